/*
 * Copies of model files with changes: keys and tensors dropped, set to other values, given other
 * shapes and types. The original stays open; a copy is written, opened as a model, and removed.
 */
#ifndef LINNET_MUTANT_H
#define LINNET_MUTANT_H

#include "test.h"

#include "gguf/gguf.h"
#include "quant/quant.h"

#include <math.h>
#include <unistd.h>

enum { MUTANT_CHANGES = 8, MUTANT_NAMES = 1024 };

struct change {
    const char *key;    /* in full; or NULL */
    const char *tensor; /* or NULL */
    bool drop;
    enum gguf_type type; /* of a key that is set, as an array of n or a scalar */
    bool array;
    size_t n;
    double number;    /* of each element */
    const char *text; /* GGUF_STRING */
    uint32_t format;  /* of a tensor that is replaced by zeros */
    uint32_t n_dims;
    uint64_t dims[4];
};

struct mutant {
    const struct gguf *from;
    const char *arch; /* name to write in place of the file's; NULL: the file's own */
    struct change changes[MUTANT_CHANGES];
    size_t n;
};

static inline const char *mutant_arch_of(const struct gguf *g)
{
    static char arch[64];
    struct gguf_str s;
    linnet_error e;
    assert_ok(gguf_get_str(g, "general.architecture", &s, &e), e);
    snprintf(arch, sizeof arch, "%.*s", (int)s.n, s.s);
    return arch;
}

static inline struct change *mutant_add(struct mutant *m)
{
    assert_true(m->n < MUTANT_CHANGES);
    m->changes[m->n] = (struct change){.drop = false};
    return &m->changes[m->n++];
}

static inline void mutant_drop_key(struct mutant *m, const char *key)
{
    struct change *c = mutant_add(m);
    c->key = key;
    c->drop = true;
}

static inline void mutant_drop_tensor(struct mutant *m, const char *name)
{
    struct change *c = mutant_add(m);
    c->tensor = name;
    c->drop = true;
}

static inline void mutant_set(struct mutant *m, const char *key, enum gguf_type type, double v)
{
    struct change *c = mutant_add(m);
    c->key = key;
    c->type = type;
    c->n = 1;
    c->number = v;
}

static inline void mutant_set_text(struct mutant *m, const char *key, const char *text)
{
    struct change *c = mutant_add(m);
    c->key = key;
    c->type = GGUF_STRING;
    c->n = 1;
    c->text = text;
}

/* A tensor of zeros in place of `name`, or besides the others when there is none. */
static inline void mutant_tensor(struct mutant *m, const char *name, uint32_t format,
                                 uint32_t n_dims, const uint64_t dims[4])
{
    struct change *c = mutant_add(m);
    c->tensor = name;
    c->format = format;
    c->n_dims = n_dims;
    memcpy(c->dims, dims, sizeof c->dims);
}

/* Is there a change of the key or tensor `name`? */
static inline bool mutant_changes(const struct mutant *m, const char *name)
{
    for (size_t i = 0; i < m->n; i++) {
        const struct change *c = &m->changes[i];
        if (strcmp(c->key ? c->key : c->tensor, name) == 0)
            return true;
    }
    return false;
}

static inline void mutant_put_change(struct gguf_writer *w, const struct change *c)
{
    linnet_error e;
    if (c->type == GGUF_STRING) {
        assert_ok(gguf_put_str(w, c->key, c->text, strlen(c->text), &e), e);
        return;
    }
    uint8_t bytes[8 * 1024];
    size_t size = c->type == GGUF_BOOL ? 1 : 4;
    uint32_t u = c->type == GGUF_F32 ? 0 : (uint32_t)(int64_t)c->number;
    float f = (float)c->number;
    for (size_t i = 0; i < c->n && i < 1024; i++)
        memcpy(bytes + i * size, c->type == GGUF_F32 ? (void *)&f : &u, size);
    if (c->array)
        assert_ok(gguf_put_array(w, c->key, c->type, bytes, c->n, &e), e);
    else
        assert_ok(gguf_put(w, c->key, c->type, bytes, &e), e);
}

/* Key of the original under the copy's architecture. */
static inline const char *mutant_key(const struct mutant *m, const char *arch, const char *key,
                                     char buf[256])
{
    size_t n = strlen(arch);
    if (!m->arch || strncmp(key, arch, n) != 0 || key[n] != '.')
        return key;
    snprintf(buf, 256, "%s%s", m->arch, key + n);
    return buf;
}

static inline void mutant_put_keys(const struct mutant *m, struct gguf_writer *w)
{
    linnet_error e;
    const char *arch = mutant_arch_of(m->from);
    char buf[256];
    for (size_t i = 0; i < gguf_n_kv(m->from); i++) {
        struct gguf_kv kv = *gguf_kv_at(m->from, i);
        kv.key = mutant_key(m, arch, kv.key, buf);
        if (mutant_changes(m, kv.key))
            continue;
        if (m->arch && strcmp(kv.key, "general.architecture") == 0)
            assert_ok(gguf_put_str(w, kv.key, m->arch, strlen(m->arch), &e), e);
        else
            assert_ok(gguf_put_kv(w, &kv, &e), e);
    }
    for (size_t i = 0; i < m->n; i++)
        if (m->changes[i].key && !m->changes[i].drop)
            mutant_put_change(w, &m->changes[i]);
}

static inline size_t mutant_size(const struct change *c)
{
    const struct quant_type *type = quant_type_of(c->format);
    size_t n = 1, row = 0;
    for (uint32_t d = 0; d < c->n_dims; d++)
        n *= (size_t)c->dims[d];
    assert_true(type && quant_row_bytes(type, (size_t)c->dims[0], &row));
    return row * (n / (size_t)c->dims[0]);
}

/* Write the copy to `path`. */
static inline void mutant_write(const struct mutant *m, const char *path)
{
    linnet_error e;
    struct gguf_writer *w;
    assert_ok(gguf_writer_create(&w, &e), e);
    mutant_put_keys(m, w);
    for (size_t i = 0; i < gguf_n_tensors(m->from); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(m->from, i);
        if (!mutant_changes(m, t->name))
            assert_ok(gguf_add_tensor(w, t->name, t->type, t->n_dims, t->dims, &e), e);
    }
    for (size_t i = 0; i < m->n; i++) {
        const struct change *c = &m->changes[i];
        if (c->tensor && !c->drop)
            assert_ok(gguf_add_tensor(w, c->tensor, c->format, c->n_dims, c->dims, &e), e);
    }
    assert_ok(gguf_write_begin(w, path, &e), e);
    for (size_t i = 0; i < gguf_n_tensors(m->from); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(m->from, i);
        if (!mutant_changes(m, t->name))
            assert_ok(gguf_write_tensor(w, t->data, t->size, &e), e);
    }
    for (size_t i = 0; i < m->n; i++) {
        const struct change *c = &m->changes[i];
        if (!c->tensor || c->drop)
            continue;
        void *zeros = calloc(1, mutant_size(c));
        assert_ok(gguf_write_tensor(w, zeros, mutant_size(c), &e), e);
        free(zeros);
    }
    assert_ok(gguf_write_end(w, &e), e);
    gguf_writer_destroy(w);
}

/* Open the copy; what failed is in e. */
static inline linnet_status mutant_open(const struct mutant *m, bool draft, linnet_model **out,
                                        linnet_error *e)
{
    char path[64];
    /* thousands of files: in memory where there is such a place */
    snprintf(path, sizeof path, "%s/linnet-mutant-XXXXXX.gguf",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    int fd = mkstemps(path, 5);
    assert_true(fd >= 0);
    close(fd);
    unlink(path); /* some file systems write out a file that is renamed over another */
    mutant_write(m, path);
    linnet_model_options mo;
    linnet_model_defaults(&mo);
    mo.threads = 1;
    mo.draft = draft;
    *out = NULL;
    e->text[0] = '\0';
    linnet_status status = linnet_model_open(path, &mo, out, e);
    unlink(path);
    return status;
}

/* Names of keys and tensors, layers apart. */
struct names {
    char *of[MUTANT_NAMES];
    size_t n;
};

static inline const char *names_without_layer(const char *name)
{
    return strncmp(name, "blk.", 4) == 0 ? strchr(name + 4, '.') + 1 : name;
}

static inline bool names_have(const struct names *s, const char *name)
{
    for (size_t i = 0; i < s->n; i++)
        if (strcmp(s->of[i], names_without_layer(name)) == 0)
            return true;
    return false;
}

/* Add the name; false when it was there. */
static inline bool names_add(struct names *s, const char *name)
{
    if (names_have(s, name))
        return false;
    assert_true(s->n < MUTANT_NAMES);
    s->of[s->n++] = strdup(names_without_layer(name));
    return true;
}

static inline struct names *names_new(void)
{
    struct names *s = calloc(1, sizeof *s);
    assert_non_null(s);
    return s;
}

static inline void names_free(struct names *s)
{
    for (size_t i = 0; i < s->n; i++)
        free(s->of[i]);
    free(s);
}

#endif
