/*
 * Errors: how internal code reports a failure. One status enum (linnet.h), one optional text.
 * The text names the key, tensor, offset, line or field at fault and what to do next.
 */
#ifndef LINNET_BASE_ERR_H
#define LINNET_BASE_ERR_H

#include "linnet.h"

/* Fill `e` (may be NULL) and return `status`, so that `return err_set(e, LINNET_FORMAT, "...")`
 * reads well. Text that does not fit is cut at a character boundary. */
linnet_status err_set(linnet_error *e, linnet_status status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* err_set for a failed allocation of `size` bytes for `what`. */
linnet_status err_memory(linnet_error *e, const char *what, size_t size);

#endif
