/*
 * Errors: status texts and the one function that writes a linnet_error.
 */
#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *const status_text[] = {
#define TEXT(name, text) text,
    LINNET_STATUS_MAP(TEXT)
#undef TEXT
};

const char *linnet_status_text(linnet_status status)
{
    size_t n = sizeof status_text / sizeof *status_text;
    return (size_t)status < n ? status_text[status] : "unknown status";
}

linnet_status err_set(linnet_error *e, linnet_status status, const char *fmt, ...)
{
    if (!e)
        return status;
    e->status = status;
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(e->text, sizeof e->text, fmt, args);
    va_end(args);
    if (n < 0) {
        e->text[0] = '\0';
    } else if ((size_t)n >= sizeof e->text) {
        size_t end = sizeof e->text - 1;
        while (end > 0 && ((unsigned char)e->text[end - 1] & 0xC0) == 0x80)
            end--;
        if (end > 0 && ((unsigned char)e->text[end - 1] & 0x80))
            end--;
        e->text[end] = '\0';
    }
    return status;
}

linnet_status err_memory(linnet_error *e, const char *what, size_t size)
{
    return err_set(e, LINNET_NO_MEMORY, "out of memory: %zu bytes for %s", size, what);
}
