/*
 * linnet: run large language models from GGUF files on the CPU.
 *
 * This is the whole public interface. Handles are opaque; option structs are plain and are filled by
 * their linnet_*_defaults() before use. Every function that can fail returns a linnet_status and takes an
 * optional linnet_error (may be NULL) that receives a text naming what was wrong, where, and what to do.
 * The library never prints, exits, aborts, reads the environment or installs signal handlers.
 */
#ifndef LINNET_H
#define LINNET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#pragma GCC visibility push(default)
#endif

/* Every status the library can return: name, one-line meaning. */
#define LINNET_STATUS_MAP(X)                                                                       \
    X(OK, "success")                                                                               \
    X(INVALID, "an argument is out of its documented range")                                       \
    X(NO_MEMORY, "out of memory")                                                                  \
    X(IO, "a file or network operation failed")                                                    \
    X(FORMAT, "a file or text is malformed")                                                       \
    X(UNSUPPORTED, "well-formed, but not something this build can run")                            \
    X(NOT_FOUND, "the named thing does not exist")                                                 \
    X(LIMIT, "a documented limit was exceeded")                                                    \
    X(CONTEXT_FULL, "the context has no room for these tokens")                                    \
    X(MISMATCH, "two things that must agree do not")                                               \
    X(CANCELLED, "stopped at the caller's request")                                                \
    X(NUMERIC, "a computation produced NaN or infinity")

typedef enum linnet_status {
#define LINNET_STATUS_ENUM(name, text) LINNET_##name,
    LINNET_STATUS_MAP(LINNET_STATUS_ENUM)
#undef LINNET_STATUS_ENUM
} linnet_status;

/* Detail of a failure. Caller-owned; written only when a call fails. */
typedef struct linnet_error {
    linnet_status status;
    char text[1000]; /* NUL-terminated UTF-8 */
} linnet_error;

/* The meaning of a status; never NULL. */
const char *linnet_status_text(linnet_status status);

/* "major.minor.patch" of this library. */
const char *linnet_version(void);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif

#ifdef __cplusplus
}
#endif
#endif
