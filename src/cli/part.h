/*
 * A file being downloaded: <final>.part, locked, resumable, verified, and only then renamed.
 *
 * One process at a time owns a part (flock on the file itself; others wait). Beside it lies
 * <final>.part.info: what was being fetched and the server's validator, without which a part is
 * begun anew. SHA-256 and CRC-32 are computed while bytes arrive. Nothing ever lies under the final
 * name that was not verified.
 */
#ifndef LINNET_CLI_PART_H
#define LINNET_CLI_PART_H

#include "base/err.h"
#include "base/sha256.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct part {
    char *final, *path, *info; /* final name, .part, .part.info */
    int fd;
    bool locked;
    uint64_t have;     /* bytes in the file; all of them hashed */
    struct sha256 sha; /* of them */
    uint32_t crc;      /* CRC-32 of them */
    char *key;         /* what they are part of: URL and range */
    char validator[256];
    uint64_t total; /* bytes when complete, or HTTP_UNKNOWN */
};

/* Make the folders, open or create the part and lock it, waiting for another process that has it.
 * `*done` is set (and nothing is open) when the final file is there: before, or because the other
 * process finished it. `again` wants a new one even so. */
linnet_status part_open(struct part *p, const char *final, bool again, bool *done, linnet_error *e);
void part_close(struct part *p);   /* keeps what was fetched */
void part_discard(struct part *p); /* removes it */

/* What to fetch into a part. */
struct part_source {
    const char *title; /* for the progress line */
    const char *url;
    const char *token; /* or NULL */
    uint64_t from,
        length; /* the range of the resource that the part holds; 0, HTTP_UNKNOWN for all of it */
    bool verified; /* the caller knows a hash: an unchanged validator is not needed to resume */
    bool quiet;
};

/* Fetch what is missing, over interruptions of the connection. On failure the part stays, for
 * another time. `sha256` (may be NULL) receives the digest that the server names for the resource,
 * or "". LINNET_UNSUPPORTED: a range was wanted and the server only sends whole files. */
linnet_status part_fetch(struct part *p, const struct part_source *src, char sha256[SHA256_HEX],
                         linnet_error *e);

/* The part is the model: check it (any of the expectations may be absent: NULL, HTTP_UNKNOWN), give
 * it its final name and write <final>.sha256. A part that fails a check is removed. `hex` receives
 * the digest. */
linnet_status part_finish(struct part *p, const char *sha256, uint64_t size, char hex[SHA256_HEX],
                          linnet_error *e);

/* Check and name another file that lies beside the part, made from it: same rules. */
linnet_status part_finish_other(struct part *p, const char *path, int fd, const char *hex,
                                const char *sha256, linnet_error *e);

/* Room on the file system of `path` for `bytes` more. */
linnet_status part_check_room(const char *path, uint64_t bytes, linnet_error *e);

/* write() all of it; a full disk is told as such. */
linnet_status part_write(int fd, const char *path, const void *data, size_t n, linnet_error *e);

#endif
