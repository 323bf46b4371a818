/*
 * Read-only file mappings. A mapping is private to its owner; truncation of the file by someone
 * else while mapped is the one thing that cannot be defended against here.
 */
#ifndef LINNET_BASE_MAPFILE_H
#define LINNET_BASE_MAPFILE_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

struct mapfile {
    const uint8_t *data; /* NULL when size is 0 */
    size_t size;
};

/* Map the whole regular file at `path`. */
linnet_status mapfile_open(const char *path, struct mapfile *out, linnet_error *e);
void mapfile_close(struct mapfile *m);

/* Tell the system that bytes [offset, offset+size) will not be read again soon (rounded inward to
 * pages): used after a tensor was repacked, so that it does not stay resident twice. */
void mapfile_drop(const struct mapfile *m, size_t offset, size_t size);

#endif
