/*
 * Saved sessions: a file that another process can go on from, to the same bits.
 *
 * Layout, little-endian:
 *     "LINNETSN", u32 version, u32 0, u64 fingerprint of the model and the KV layout, u64 tokens,
 * u64 valid, u64 size of the body, u64 hash of the header up to here; body: i32 tokens[tokens]; for
 * each KV group and page: u8 present, then the page; f32 state[state_floats]; with a draft head u64
 * rows of it, then their tokens and pages likewise; u64 hash of the body. The fingerprint covers
 * the architecture's keys, every tensor's name, type and shape, samples of the weights, the KV
 * types and page layout: what decides whether state computed there means the same here.
 *
 * Loading trusts nothing: the file is read whole and both hashes are checked before a session is
 * made of it; a session that exists is never touched.
 */
#include "base/checked.h"
#include "base/hash.h"
#include "base/mapfile.h"
#include "run/context.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { VERSION = 2, SAMPLE = 4096 };
static const char magic[8] = {'L', 'I', 'N', 'N', 'E', 'T', 'S', 'N'};

struct header {
    char magic[8];
    uint32_t version, zero;
    uint64_t fingerprint, n, valid, body, hash;
};
_Static_assert(sizeof(struct header) == 56, "the header has no holes");

static uint64_t hash_text(uint64_t h, const char *s)
{
    return hash64(h, s, strlen(s));
}

static uint64_t hash_key(uint64_t h, const struct gguf_kv *kv)
{
    h = hash_text(h, kv->key);
    if (kv->elem != GGUF_STRING)
        return hash64(h, kv->value, kv->size);
    for (uint64_t i = 0; i < kv->count; i++) {
        struct gguf_str s = gguf_str_at(kv, (size_t)i);
        h = hash64(h, s.s, s.n);
    }
    return h;
}

static uint64_t hash_tensor(uint64_t h, const struct gguf_tensor *t)
{
    h = hash_text(h, t->name);
    h = hash64(h, &t->type, sizeof t->type);
    h = hash64(h, t->dims, sizeof t->dims);
    size_t n = t->size < SAMPLE ? t->size : SAMPLE;
    h = hash64(h, t->data, n);
    return hash64(h, t->data + t->size - n, n);
}

static uint64_t fingerprint(struct linnet_context *c)
{
    if (c->fingerprint)
        return c->fingerprint;
    const struct gguf *g = c->m->gguf;
    const char *arch = c->m->facts.arch;
    uint64_t h = hash_text(0, arch);
    for (size_t i = 0; i < gguf_n_kv(g); i++) {
        const struct gguf_kv *kv = gguf_kv_at(g, i);
        if (strncmp(kv->key, arch, strlen(arch)) == 0)
            h = hash_key(h, kv);
    }
    for (size_t i = 0; i < gguf_n_tensors(g); i++)
        h = hash_tensor(h, gguf_tensor_at(g, i));
    uint64_t layout[] = {(uint64_t)c->kv_k, (uint64_t)c->kv_v,  KV_PAGE,
                         c->n_groups,       c->p->state_floats, c->draft != NULL};
    h = hash64(h, layout, sizeof layout);
    for (uint32_t i = 0; i < c->n_groups; i++) {
        uint64_t group[] = {c->groups[i].window, c->groups[i].page_bytes};
        h = hash64(h, group, sizeof group);
    }
    /* long rope is chosen by the context's length */
    for (size_t i = 0; i < c->p->n_ropes; i++) {
        uint8_t is_long = c->n_ctx > c->p->ropes[i].long_above;
        h = hash64(h, &is_long, 1);
    }
    return c->fingerprint = h ? h : 1;
}

/* Pages that hold positions below n. */
static size_t n_pages(size_t n)
{
    return (n + KV_PAGE - 1) / KV_PAGE;
}

/* A file being written, with the hash of what went in. */
struct sink {
    FILE *f;
    uint64_t hash, size;
    bool failed;
};

static void put(struct sink *s, const void *data, size_t n)
{
    s->hash = hash64(s->hash, data, n);
    s->size += n;
    if (s->f && n && fwrite(data, 1, n, s->f) != n)
        s->failed = true;
}

/* The body; with s->f NULL only its size and hash come out. */
static void put_body(struct sink *s, const linnet_session *x)
{
    const struct linnet_context *c = x->ctx;
    put(s, x->tokens, x->n * sizeof *x->tokens);
    for (uint32_t g = 0; g < c->n_groups; g++)
        for (size_t i = 0; i < n_pages(x->valid); i++) {
            uint8_t present = x->pages[g][i] != NULL;
            put(s, &present, 1);
            if (present)
                put(s, x->pages[g][i], c->groups[g].page_bytes);
        }
    if (x->state)
        put(s, x->state, c->p->state_floats * sizeof(float));
    if (!x->draft)
        return;
    uint64_t rows = x->draft->n;
    put(s, &rows, sizeof rows);
    put_body(s, x->draft);
}

linnet_status linnet_session_save(const linnet_session *session, const char *path,
                                  linnet_error *error)
{
    struct sink measure = {0}, out = {0};
    put_body(&measure, session);
    struct header h = {.version = VERSION,
                       .fingerprint = fingerprint(session->ctx),
                       .n = session->n,
                       .valid = session->valid,
                       .body = measure.size};
    memcpy(h.magic, magic, sizeof magic);
    h.hash = hash64(0, &h, offsetof(struct header, hash));
    size_t n = strlen(path) + 5;
    char *part = malloc(n);
    if (!part)
        return err_memory(error, "a file name", n);
    snprintf(part, n, "%s.tmp", path);
    out.f = fopen(part, "wb");
    linnet_status status = LINNET_OK;
    if (!out.f) {
        status = err_set(error, LINNET_IO, "cannot write '%s': %s", part, strerror(errno));
    } else {
        out.failed = fwrite(&h, sizeof h, 1, out.f) != 1;
        put_body(&out, session);
        out.failed |= fwrite(&out.hash, sizeof out.hash, 1, out.f) != 1;
        out.failed |= fclose(out.f) != 0;
        if (out.failed || rename(part, path) != 0) {
            status = err_set(error, LINNET_IO, "cannot write '%s': %s", path, strerror(errno));
            unlink(part);
        }
    }
    free(part);
    return status;
}

/* Bytes that have been read and hashed, with a position. */
struct source {
    const uint8_t *p;
    size_t left;
};

static bool get(struct source *s, void *out, size_t n)
{
    if (n > s->left)
        return false;
    memcpy(out, s->p, n);
    s->p += n;
    s->left -= n;
    return true;
}

static linnet_status check_file(struct linnet_context *c, const struct mapfile *f, const char *path,
                                struct header *h, linnet_error *e)
{
    uint64_t sum;
    if (f->size < sizeof *h + sizeof sum || memcmp(f->data, magic, sizeof magic) != 0)
        return err_set(e, LINNET_FORMAT, "'%s' is not a saved session", path);
    memcpy(h, f->data, sizeof *h);
    if (h->version != VERSION)
        return err_set(e, LINNET_UNSUPPORTED,
                       "'%s' is a saved session of version %u; this build reads version %d", path,
                       h->version, VERSION);
    if (h->hash != hash64(0, h, offsetof(struct header, hash)) ||
        h->body != f->size - sizeof *h - sizeof sum)
        return err_set(e, LINNET_FORMAT, "'%s' is damaged: its header or size is wrong", path);
    if (h->fingerprint != fingerprint(c))
        return err_set(e, LINNET_MISMATCH,
                       "'%s' was saved with another model, KV type or kind of context", path);
    if (h->n > c->n_ctx)
        return err_set(e, LINNET_CONTEXT_FULL,
                       "'%s' holds %llu tokens; the context has room for %u", path,
                       (unsigned long long)h->n, c->n_ctx);
    if (h->valid > h->n)
        return err_set(e, LINNET_FORMAT, "'%s' is damaged: its lengths contradict each other",
                       path);
    return LINNET_OK;
}

/* Fill s, a new session, with n <= n_ctx tokens of which `valid` have been run. *good false: the
 * source is damaged. */
static linnet_status read_session(linnet_session *s, size_t n, size_t valid, struct source *in,
                                  bool *good, linnet_error *e)
{
    struct linnet_context *c = s->ctx;
    *good = get(in, s->tokens, n * sizeof *s->tokens);
    for (size_t i = 0; *good && i < n; i++)
        *good = s->tokens[i] >= 0 && (uint32_t)s->tokens[i] < c->m->facts.n_vocab;
    for (uint32_t g = 0; g < c->n_groups; g++)
        for (size_t i = 0; *good && i < n_pages(valid); i++) {
            uint8_t present = 0;
            *good = get(in, &present, 1) && present <= 1;
            if (!*good || !present)
                continue;
            linnet_status status = kv_add_page(s, g, i, e);
            if (status != LINNET_OK)
                return status;
            *good = get(in, s->pages[g][i], c->groups[g].page_bytes);
        }
    if (*good && s->state)
        *good = get(in, s->state, c->p->state_floats * sizeof(float));
    s->n = n;
    state_restored(s, valid);
    if (!*good || !s->draft)
        return LINNET_OK;
    uint64_t rows = 0;
    *good = get(in, &rows, sizeof rows) && rows <= c->n_ctx;
    return *good ? read_session(s->draft, (size_t)rows, (size_t)rows, in, good, e) : LINNET_OK;
}

/* The hash of the body as the writer computed it: piece by piece. */
static linnet_status read_body(linnet_session *s, const struct header *h, struct source *in,
                               const char *path, linnet_error *e)
{
    bool good;
    linnet_status status = read_session(s, (size_t)h->n, (size_t)h->valid, in, &good, e);
    if (status != LINNET_OK)
        return status;
    uint64_t sum;
    struct sink check = {0};
    if (good)
        put_body(&check, s);
    if (!good || !get(in, &sum, sizeof sum) || in->left || sum != check.hash)
        return err_set(e, LINNET_FORMAT, "'%s' is damaged", path);
    return LINNET_OK;
}

linnet_status linnet_session_load(linnet_context *context, const char *path, linnet_session **out,
                                  linnet_error *error)
{
    struct mapfile f;
    struct header h;
    linnet_session *s = NULL;
    linnet_status status = mapfile_open(path, &f, error);
    if (status != LINNET_OK)
        return status;
    status = check_file(context, &f, path, &h, error);
    if (status == LINNET_OK)
        status = linnet_session_create(context, &s, error);
    if (status == LINNET_OK) {
        struct source in = {f.data + sizeof h, f.size - sizeof h};
        status = read_body(s, &h, &in, path, error);
        if (status != LINNET_OK)
            linnet_session_free(s);
        else
            *out = s;
    }
    mapfile_close(&f);
    return status;
}
