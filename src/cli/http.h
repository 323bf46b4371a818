/*
 * One HTTP GET: a body, or a range of it, handed to a sink while it arrives.
 *
 * Only https is spoken; http only to a loopback address. Redirects are followed here, not in the
 * transport, so that each target passes the same check and a token goes to no host but the first.
 * Retrying is the caller's.
 */
#ifndef LINNET_CLI_HTTP_H
#define LINNET_CLI_HTTP_H

#include "base/err.h"
#include "base/sha256.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HTTP_UNKNOWN UINT64_MAX

/* What the server said, complete before the first byte of the body is handed on. */
struct http_reply {
    int status;          /* of the last reply: 200, 206, 404... 0 before there was one */
    uint64_t total;      /* bytes of the whole resource, or HTTP_UNKNOWN */
    uint64_t from;       /* where this body begins in it */
    uint64_t length;     /* bytes of this body, or HTTP_UNKNOWN */
    char validator[256]; /* for If-Range: strong ETag or Last-Modified; "" when neither was sent */
    char sha256[SHA256_HEX]; /* of the resource, where the server names it (X-Linked-ETag); or "" */
    bool transient;          /* the failure may go away by itself: try again */
};

struct http_request {
    const char *url;
    const char *accept;   /* Accept header, or NULL */
    const char *token;    /* bearer token, or NULL */
    uint64_t from;        /* first byte wanted */
    uint64_t length;      /* bytes wanted, HTTP_UNKNOWN for all that follow */
    bool tail;            /* wanted are the last `length` bytes instead */
    const char *if_range; /* validator: when it no longer holds the server sends all; or NULL */

    /* Called once, before the body, for a reply with status 200 or 206; false ends the transfer. Or
     * NULL. */
    bool (*begin)(void *arg, const struct http_reply *reply, linnet_error *e);
    /* Called with each piece; false (with the error filled) ends the transfer. */
    bool (*body)(void *arg, const void *data, size_t n, linnet_error *e);
    void *arg;
};

/* Fetch. LINNET_OK: the body arrived whole. LINNET_CANCELLED: interrupted. Others: `e` says what
 * failed. */
linnet_status http_get(const struct http_request *req, struct http_reply *reply, linnet_error *e);

/* The whole body (or range) in memory, at most `max` bytes, with a NUL after it; free() it. The
 * request's callbacks are not used. LINNET_UNSUPPORTED: a range was asked for and the server sends
 * only whole files. */
linnet_status http_get_memory(const struct http_request *req, size_t max, char **out, size_t *n,
                              struct http_reply *reply, linnet_error *e);

/* True when `url` is one that http_get accepts: https, or http to a loopback address. */
bool http_allowed(const char *url);

#endif
