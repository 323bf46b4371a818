/*
 * Builds ZIP files in memory for tests of wheels: stored and deflated members, a directory, nothing
 * else.
 */
#ifndef LINNET_TEST_ZIP_H
#define LINNET_TEST_ZIP_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <zlib.h>

#include "base/sha256.h"

enum { ZIP_MAX = 4 << 20, ZIP_MEMBERS = 8 };

struct zip {
    uint8_t *data; /* [ZIP_MAX] */
    size_t n, n_members;
    struct {
        char name[100];
        uint32_t crc, packed, size, offset;
        uint16_t method;
    } member[ZIP_MEMBERS];
    char record[2000]; /* the RECORD so far */
};

static void zip_put(struct zip *z, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++)
        z->data[z->n++] = (uint8_t)(i < 8 ? v >> 8 * i : 0);
}

static void zip_bytes(struct zip *z, const void *p, size_t n)
{
    if (n > ZIP_MAX - z->n)
        abort();
    memcpy(z->data + z->n, p, n);
    z->n += n;
}

static void zip_start(struct zip *z)
{
    memset(z, 0, sizeof *z);
    z->data = malloc(ZIP_MAX);
    if (!z->data)
        abort();
}

/* RECORD's form of a digest: base64url without padding. */
static void zip_record(struct zip *z, const char *name, const void *data, size_t n)
{
    static const char digit[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    uint8_t d[SHA256_SIZE + 1] = {0};
    struct sha256 h;
    sha256_init(&h);
    sha256_update(&h, data, n);
    sha256_final(&h, d);
    char text[44] = "";
    for (int i = 0; i < 43; i++) {
        unsigned two = (unsigned)d[i * 6 / 8] << 8 | d[i * 6 / 8 + 1];
        text[i] = digit[two >> (10 - i * 6 % 8) & 63];
    }
    size_t used = strlen(z->record);
    snprintf(z->record + used, sizeof z->record - used, "%s,sha256=%s,%zu\n", name, text, n);
}

static void zip_add(struct zip *z, const char *name, const void *data, size_t n, bool deflated)
{
    size_t i = z->n_members++;
    if (i == ZIP_MEMBERS)
        abort();
    uint8_t *packed = malloc(n + n / 100 + 1000);
    if (!packed)
        abort();
    size_t packed_n = n;
    if (deflated) {
        z_stream s = {0};
        deflateInit2(&s, 6, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
        s.next_in = (z_const Bytef *)data;
        s.avail_in = (uInt)n;
        s.next_out = packed;
        s.avail_out = (uInt)(n + n / 100 + 1000);
        if (deflate(&s, Z_FINISH) != Z_STREAM_END)
            abort();
        packed_n = s.total_out;
        deflateEnd(&s);
    } else {
        memcpy(packed, data, n);
    }
    snprintf(z->member[i].name, sizeof z->member[i].name, "%s", name);
    z->member[i].crc = (uint32_t)crc32(0, data, (uInt)n);
    z->member[i].packed = (uint32_t)packed_n;
    z->member[i].size = (uint32_t)n;
    z->member[i].offset = (uint32_t)z->n;
    z->member[i].method = deflated ? 8 : 0;
    zip_put(z, 0x04034b50, 4);
    zip_put(z, 20, 2);
    zip_put(z, 0, 2);
    zip_put(z, deflated ? 8 : 0, 2);
    zip_put(z, 0, 4);
    zip_put(z, z->member[i].crc, 4);
    zip_put(z, packed_n, 4);
    zip_put(z, n, 4);
    zip_put(z, strlen(name), 2);
    zip_put(z, 5, 2); /* an extra field that the directory does not have */
    zip_bytes(z, name, strlen(name));
    zip_bytes(z, "\x99\x99\x01\x00x", 5);
    zip_bytes(z, packed, packed_n);
    free(packed);
    zip_record(z, name, data, n);
}

/* Add <dist>/RECORD and the directory: the file is complete. */
static void zip_end(struct zip *z, const char *dist)
{
    char name[100];
    snprintf(name, sizeof name, "%s.dist-info/RECORD", dist);
    zip_add(z, name, z->record, strlen(z->record), true);
    size_t start = z->n;
    for (size_t i = 0; i < z->n_members; i++) {
        zip_put(z, 0x02014b50, 4);
        zip_put(z, 20, 2);
        zip_put(z, 20, 2);
        zip_put(z, 0, 2);
        zip_put(z, z->member[i].method, 2);
        zip_put(z, 0, 4);
        zip_put(z, z->member[i].crc, 4);
        zip_put(z, z->member[i].packed, 4);
        zip_put(z, z->member[i].size, 4);
        zip_put(z, strlen(z->member[i].name), 2);
        zip_put(z, 0, 12);
        zip_put(z, z->member[i].offset, 4);
        zip_bytes(z, z->member[i].name, strlen(z->member[i].name));
    }
    size_t size = z->n - start;
    zip_put(z, 0x06054b50, 4);
    zip_put(z, 0, 4);
    zip_put(z, z->n_members, 2);
    zip_put(z, z->n_members, 2);
    zip_put(z, size, 4);
    zip_put(z, start, 4);
    zip_put(z, 0, 2);
}

#endif
