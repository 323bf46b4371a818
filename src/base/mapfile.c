/*
 * File mappings: open, map, close the descriptor, keep the mapping.
 *
 * Only regular files are mapped: a directory, pipe or device is refused by name before anything
 * reads it (the file is opened without blocking, so that a pipe nobody writes to cannot hang the
 * caller). An empty file is valid and has no mapping.
 */
#include "base/mapfile.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static linnet_status map_descriptor(int fd, const char *path, struct mapfile *out, linnet_error *e)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return err_set(e, LINNET_IO, "cannot examine '%s': %m", path);
    if (S_ISDIR(st.st_mode))
        return err_set(e, LINNET_IO, "'%s' is a directory: name a file in it", path);
    if (!S_ISREG(st.st_mode))
        return err_set(e, LINNET_IO, "'%s' is not a regular file", path);
    if ((uintmax_t)st.st_size > (uintmax_t)(SIZE_MAX / 2))
        return err_set(e, LINNET_LIMIT, "'%s' is too large for this machine's address space", path);

    size_t size = (size_t)st.st_size;
    if (size == 0) {
        *out = (struct mapfile){NULL, 0};
        return LINNET_OK;
    }
    void *p = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (p == MAP_FAILED) {
        linnet_status status = errno == ENOMEM ? LINNET_NO_MEMORY : LINNET_IO;
        return err_set(e, status, "cannot map the %zu bytes of '%s': %m", size, path);
    }
    *out = (struct mapfile){p, size};
    return LINNET_OK;
}

linnet_status mapfile_open(const char *path, struct mapfile *out, linnet_error *e)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) {
        linnet_status status = errno == ENOENT ? LINNET_NOT_FOUND : LINNET_IO;
        return err_set(e, status, "cannot open '%s': %m", path);
    }
    linnet_status status = map_descriptor(fd, path, out, e);
    close(fd);
    return status;
}

void mapfile_close(struct mapfile *m)
{
    if (m->data)
        munmap((void *)m->data, m->size);
    *m = (struct mapfile){NULL, 0};
}

void mapfile_drop(const struct mapfile *m, size_t offset, size_t size)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (offset >= m->size || size > m->size - offset)
        return;
    size_t first = (offset + page - 1) / page * page;
    size_t last = (offset + size) / page * page;
    if (first < last)
        madvise((void *)(m->data + first), last - first, MADV_DONTNEED);
}
