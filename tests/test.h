/*
 * What every test program includes: cmocka with the headers it needs, and a few helpers.
 * A test is a function named for the rule it keeps; a program is tests/test_<noun>.c with one main.
 */
#ifndef LINNET_TEST_H
#define LINNET_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "linnet.h"

/* Path of `name` in the shared conformance data ($LINNET_SHARED, else ../shared), or NULL when the
 * data is not there: then the test must call test_skip_shared(). The string is static, valid until
 * the next call. */
static inline const char *test_shared(const char *name)
{
    static char path[4096];
    const char *root = getenv("LINNET_SHARED");
    snprintf(path, sizeof path, "%s/%s", root && *root ? root : "../shared", name);
    FILE *f = fopen(path, "rb");
    if (!f)
        return NULL;
    fclose(f);
    return path;
}

#define test_skip_shared(what)                                                                     \
    do {                                                                                           \
        fprintf(stderr, "SKIPPED: %s needs the shared conformance data (LINNET_SHARED)\n", what);  \
        skip();                                                                                    \
    } while (0)

/* assert that a status is OK, showing the error's text when not */
#define assert_ok(expr, err)                                                                       \
    do {                                                                                           \
        (err).text[0] = '\0';                                                                      \
        linnet_status status_ = (expr);                                                            \
        if (status_ != LINNET_OK)                                                                  \
            fail_msg("%s: %s: %s", #expr, linnet_status_text(status_), (err).text);                \
    } while (0)

#endif
