/*
 * Downloads into a part file: locking, resuming, hashing, the rename at the end. See part.h for the
 * promises.
 */
#include "cli/part.h"
#include "cli/cli.h"
#include "cli/http.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include <zlib.h>

/* ---- files ----------------------------------------------------------------------------------- */

static linnet_status io_error(linnet_error *e, const char *what, const char *path)
{
    if (errno == ENOSPC || errno == EDQUOT)
        return err_set(
            e, LINNET_IO,
            "the disk is full (%s); free some space and pull again: it goes on from here", path);
    return err_set(e, LINNET_IO, "cannot %s %s: %s", what, path, strerror(errno));
}

linnet_status part_write(int fd, const char *path, const void *data, size_t n, linnet_error *e)
{
    const char *p = data;
    while (n > 0) {
        ssize_t w = write(fd, p, n);
        if (w < 0 && errno == EINTR)
            continue;
        if (w < 0)
            return io_error(e, "write", path);
        p += w;
        n -= (size_t)w;
    }
    return LINNET_OK;
}

linnet_status part_check_room(const char *path, uint64_t bytes, linnet_error *e)
{
    struct statvfs v;
    if (statvfs(path, &v) != 0)
        return LINNET_OK; /* not known: writing will tell */
    uint64_t room = (uint64_t)v.f_bavail * v.f_frsize;
    char want[CLI_NUM_LEN], have[CLI_NUM_LEN];
    if (room >= bytes)
        return LINNET_OK;
    return err_set(e, LINNET_IO, "not enough room: %s more are needed, %s are free at %s",
                   cli_format_size(want, bytes), cli_format_size(have, room), path);
}

static linnet_status make_folders(const char *file, linnet_error *e)
{
    char *path = cli_printf("%s", file);
    linnet_status s = LINNET_OK;
    for (char *p = strchr(path + 1, '/'); p; p = strchr(p + 1, '/')) {
        *p = '\0';
        if (mkdir(path, 0777) != 0 && errno != EEXIST) {
            s = io_error(e, "make the folder", path);
            break;
        }
        *p = '/';
    }
    free(path);
    return s;
}

static void hash_more(struct part *p, const void *data, size_t n)
{
    sha256_update(&p->sha, data, n);
    p->crc = (uint32_t)crc32_z(p->crc, data, n);
    p->have += n;
}

static linnet_status restart(struct part *p, linnet_error *e)
{
    if (ftruncate(p->fd, 0) != 0 || lseek(p->fd, 0, SEEK_SET) < 0)
        return io_error(e, "empty", p->path);
    p->have = 0;
    p->crc = 0;
    p->validator[0] = '\0';
    p->total = HTTP_UNKNOWN;
    sha256_init(&p->sha);
    return LINNET_OK;
}

static linnet_status hash_existing(struct part *p, linnet_error *e)
{
    enum { CHUNK = 1 << 18 };
    char *buf = cli_alloc(CHUNK);
    ssize_t n;
    while ((n = read(p->fd, buf, CHUNK)) > 0)
        hash_more(p, buf, (size_t)n);
    free(buf);
    return n < 0 ? io_error(e, "read", p->path) : LINNET_OK;
}

/* ---- the info file: three lines, key, validator, total --------------------------------------- */

static void read_info(struct part *p)
{
    char text[4096];
    FILE *f = fopen(p->info, "rb");
    size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    if (f)
        fclose(f);
    text[n] = '\0';
    char *line[3];
    char *at = text;
    for (int i = 0; i < 3; i++) {
        char *end = strchr(at, '\n');
        if (!end)
            return; /* cut short or absent: no key, so the part is begun anew */
        *end = '\0';
        line[i] = at;
        at = end + 1;
    }
    if (strlen(line[1]) >= sizeof p->validator)
        return;
    p->key = cli_printf("%s", line[0]);
    memcpy(p->validator, line[1], strlen(line[1]) + 1);
    p->total = strtoull(line[2], NULL, 10);
}

static linnet_status write_info(const struct part *p, linnet_error *e)
{
    FILE *f = fopen(p->info, "wb");
    if (!f)
        return io_error(e, "write", p->info);
    fprintf(f, "%s\n%s\n%llu\n", p->key, p->validator, (unsigned long long)p->total);
    return fclose(f) == 0 ? LINNET_OK : io_error(e, "write", p->info);
}

/* ---- opening --------------------------------------------------------------------------------- */

/* Lock the part; when another process has it, say so once and wait. */
static linnet_status lock(struct part *p, linnet_error *e)
{
    if (flock(p->fd, LOCK_EX | LOCK_NB) == 0)
        return LINNET_OK;
    if (errno == EWOULDBLOCK)
        cli_warn("another linnet is pulling this model; waiting for it");
    while (flock(p->fd, LOCK_EX) != 0) {
        if (cli_interrupted)
            return err_set(e, LINNET_CANCELLED, "interrupted");
        if (errno != EINTR)
            return io_error(e, "lock", p->path);
    }
    return LINNET_OK;
}

/* True when the locked file is still the one under its name: its last owner may have renamed or
 * removed it. */
static bool is_current(const struct part *p)
{
    struct stat a, b;
    return fstat(p->fd, &a) == 0 && stat(p->path, &b) == 0 && a.st_dev == b.st_dev &&
           a.st_ino == b.st_ino;
}

linnet_status part_open(struct part *p, const char *final, bool again, bool *done, linnet_error *e)
{
    memset(p, 0, sizeof *p);
    p->final = cli_printf("%s", final);
    p->path = cli_printf("%s.part", final);
    p->info = cli_printf("%s.part.info", final);
    p->fd = -1;
    *done = !again && access(final, F_OK) == 0;
    linnet_status s = *done ? LINNET_OK : make_folders(final, e);
    while (s == LINNET_OK && !*done) {
        p->fd = open(p->path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
        s = p->fd < 0 ? io_error(e, "write", p->path) : lock(p, e);
        p->locked = s == LINNET_OK && is_current(p);
        *done = s == LINNET_OK && !again && access(final, F_OK) == 0;
        if (p->locked || s != LINNET_OK)
            break;
        close(p->fd); /* the file's last owner finished or removed it: look again */
        p->fd = -1;
    }
    if (s == LINNET_OK && !*done) {
        sha256_init(&p->sha);
        p->total = HTTP_UNKNOWN;
        read_info(p);
        s = hash_existing(p, e);
    }
    if (s != LINNET_OK || *done)
        part_close(p);
    return s;
}

void part_close(struct part *p)
{
    if (p->locked && p->have == 0) { /* nothing to go on from */
        unlink(p->info);
        unlink(p->path);
    }
    if (p->fd >= 0)
        close(p->fd);
    free(p->final);
    free(p->path);
    free(p->info);
    free(p->key);
    memset(p, 0, sizeof *p);
    p->fd = -1;
}

void part_discard(struct part *p)
{
    p->have = 0;
    part_close(p);
}

/* ---- fetching -------------------------------------------------------------------------------- */

struct fetch {
    struct part *p;
    const struct part_source *src;
    struct cli_progress progress;
    bool drawing;
    bool moved; /* bytes arrived in this attempt */
};

static bool begin(void *arg, const struct http_reply *reply, linnet_error *e)
{
    struct fetch *f = arg;
    struct part *p = f->p;
    bool ranged = f->src->from > 0 || f->src->length != HTTP_UNKNOWN;
    if (reply->status == 200 && ranged) {
        err_set(e, LINNET_UNSUPPORTED, "the server does not send parts of files");
        return false;
    }
    if (reply->status == 206 && reply->from != f->src->from + p->have) {
        err_set(e, LINNET_IO, "the server sent another part of the file than was asked for");
        return false;
    }
    if (reply->status == 200 && p->have > 0 && restart(p, e) != LINNET_OK)
        return false; /* the file changed there, or the server cannot go on in the middle */
    p->total = ranged ? f->src->length : reply->total;
    snprintf(p->validator, sizeof p->validator, "%s", reply->validator);
    if (write_info(p, e) != LINNET_OK)
        return false;
    if (p->total != HTTP_UNKNOWN && p->total > p->have &&
        part_check_room(p->path, p->total - p->have, e) != LINNET_OK)
        return false;
    cli_progress_start(&f->progress, f->src->title, true, p->have,
                       p->total == HTTP_UNKNOWN ? 0 : p->total, f->src->quiet);
    f->drawing = true;
    return true;
}

static bool body(void *arg, const void *data, size_t n, linnet_error *e)
{
    struct fetch *f = arg;
    struct part *p = f->p;
    if (p->total != HTTP_UNKNOWN && n > p->total - p->have) {
        err_set(e, LINNET_IO, "the server sent more than it announced");
        return false;
    }
    if (part_write(p->fd, p->path, data, n, e) != LINNET_OK)
        return false;
    hash_more(p, data, n);
    f->moved = true;
    cli_progress_update(&f->progress, p->have);
    return true;
}

static bool is_complete(const struct part *p)
{
    return p->total != HTTP_UNKNOWN && p->have == p->total;
}

/* One request for all that is missing. */
static linnet_status attempt(struct fetch *f, struct http_reply *reply, linnet_error *e)
{
    struct part *p = f->p;
    const struct part_source *src = f->src;
    if (p->have > 0 && !p->validator[0] && !src->verified && restart(p, e) != LINNET_OK)
        return e->status;
    struct http_request req = {.url = src->url, .token = src->token, .begin = begin, .body = body};
    req.arg = f;
    req.from = src->from + p->have;
    req.length = src->length == HTTP_UNKNOWN ? HTTP_UNKNOWN : src->length - p->have;
    req.if_range = p->have > 0 && p->validator[0] ? p->validator : NULL;
    linnet_status s = http_get(&req, reply, e);
    if (f->drawing)
        cli_progress_end(&f->progress);
    f->drawing = false;
    if (s == LINNET_OK && p->total != HTTP_UNKNOWN && p->have < p->total) {
        reply->transient = true;
        return err_set(e, LINNET_IO, "the connection ended early");
    }
    if (s == LINNET_OK)
        p->total = p->have;
    return s;
}

static linnet_status pause_before_retry(int seconds, const linnet_error *why, linnet_error *e)
{
    cli_warn("%s; trying again in %d s", why->text, seconds);
    for (int i = 0; i < seconds * 10 && !cli_interrupted; i++)
        nanosleep(&(struct timespec){.tv_nsec = 100 * 1000 * 1000}, NULL);
    return cli_interrupted ? err_set(e, LINNET_CANCELLED, "interrupted") : LINNET_OK;
}

linnet_status part_fetch(struct part *p, const struct part_source *src, char sha256[SHA256_HEX],
                         linnet_error *e)
{
    enum { ATTEMPTS = 5 };
    char *key = cli_printf("%s %llu %llu", src->url, (unsigned long long)src->from,
                           (unsigned long long)src->length);
    linnet_status s = LINNET_OK;
    if (p->have > 0 && (!p->key || strcmp(p->key, key) != 0))
        s = restart(p, e);
    free(p->key);
    p->key = key;
    if (sha256)
        sha256[0] = '\0';

    struct fetch f = {.p = p, .src = src};
    bool ever_moved = false;
    for (int tries = 0; s == LINNET_OK && !is_complete(p);) {
        struct http_reply reply;
        f.moved = false;
        s = attempt(&f, &reply, e);
        if (sha256 && reply.sha256[0])
            memcpy(sha256, reply.sha256, SHA256_HEX);
        if (s == LINNET_OK || s == LINNET_CANCELLED)
            break;
        if (reply.status == 416 && p->have > 0) { /* the file there is shorter than the part */
            s = restart(p, e);
            continue;
        }
        ever_moved = ever_moved || f.moved;
        tries = f.moved ? 1 : tries + 1;
        bool lost = ever_moved && reply.status == 0; /* a network that was there has gone */
        if ((!reply.transient && !lost) || tries == ATTEMPTS)
            break;
        s = pause_before_retry(1 << (tries - 1), e, e);
    }
    return s;
}

/* ---- finishing ------------------------------------------------------------------------------- */

/* Make what was written last beyond a crash: data first, then the name. */
static linnet_status give_name(const char *path, int fd, const char *final, const char *hex,
                               linnet_error *e)
{
    if (fsync(fd) != 0)
        return io_error(e, "write", path);
    char *sums = cli_printf("%s.sha256", final);
    FILE *f = fopen(sums, "wb");
    if (f) {
        const char *slash = strrchr(final, '/');
        fprintf(f, "%s  %s\n", hex, slash ? slash + 1 : final);
    }
    bool written = f && fclose(f) == 0;
    linnet_status s = written ? LINNET_OK : io_error(e, "write", sums);
    if (written && rename(path, final) != 0)
        s = io_error(e, "rename", path);
    free(sums);
    return s;
}

static linnet_status check_model(const char *path, int fd, const char *hex, const char *sha256,
                                 linnet_error *e)
{
    char magic[4] = "";
    if (sha256 && *sha256 && strcmp(hex, sha256) != 0)
        return err_set(e, LINNET_MISMATCH,
                       "what arrived is not what was announced: its sha256 is %s, not %s; it was "
                       "removed, pull again",
                       hex, sha256);
    if (pread(fd, magic, 4, 0) != 4 || memcmp(magic, "GGUF", 4) != 0)
        return err_set(e, LINNET_FORMAT, "what arrived is not a GGUF model; it was removed (%s)",
                       path);
    return LINNET_OK;
}

linnet_status part_finish(struct part *p, const char *sha256, uint64_t size, char hex[SHA256_HEX],
                          linnet_error *e)
{
    uint8_t digest[SHA256_SIZE];
    struct sha256 sha = p->sha;
    sha256_final(&sha, digest);
    sha256_hex(digest, hex);
    linnet_status s = LINNET_OK;
    if (size != HTTP_UNKNOWN && size != p->have)
        s = err_set(e, LINNET_MISMATCH,
                    "%llu bytes arrived instead of %llu; they were removed, pull again",
                    (unsigned long long)p->have, (unsigned long long)size);
    if (s == LINNET_OK)
        s = check_model(p->path, p->fd, hex, sha256, e);
    if (s != LINNET_OK) {
        part_discard(p);
        return s;
    }
    s = give_name(p->path, p->fd, p->final, hex, e);
    if (s == LINNET_OK)
        unlink(p->info);
    part_close(p); /* have is not 0: a file too short for its magic was refused above */
    return s;
}

linnet_status part_finish_other(struct part *p, const char *path, int fd, const char *hex,
                                const char *sha256, linnet_error *e)
{
    linnet_status s = check_model(path, fd, hex, sha256, e);
    if (s == LINNET_OK)
        s = give_name(path, fd, p->final, hex, e);
    if (s != LINNET_OK)
        unlink(path);
    if (s == LINNET_OK || s == LINNET_MISMATCH || s == LINNET_FORMAT)
        part_discard(p);
    else
        part_close(p);
    return s;
}
