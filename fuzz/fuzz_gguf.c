/*
 * Fuzzing the GGUF reader: any bytes are opened, and whatever opens is read to the last key, string
 * and tensor byte through the functions that the engine uses. The reader may refuse; it may not
 * crash, hang, leak, or read outside of the bytes.
 *
 * The tests include this file to run the same over inputs made by rule.
 */
#include "gguf/gguf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Values are summed so that no read can be left out; the sum itself means nothing. */
static volatile uint64_t fuzz_sum;

static void read_key(const struct gguf *g, const struct gguf_kv *kv)
{
    uint32_t u[3];
    int64_t i;
    float f[3];
    bool b;
    struct gguf_str s;
    const struct gguf_kv *array;
    size_t n;
    linnet_error e;
    gguf_get_u32(g, kv->key, u, &e);
    gguf_get_i64(g, kv->key, &i, &e);
    gguf_get_f32(g, kv->key, f, &e);
    gguf_get_bool(g, kv->key, &b, &e);
    gguf_get_u32_each(g, kv->key, 3, u, &e);
    gguf_get_f32_each(g, kv->key, 3, f, &e);
    if (gguf_get_str(g, kv->key, &s, &e) == LINNET_OK && s.n > 0)
        fuzz_sum += (uint64_t)s.s[0] + (uint64_t)s.s[s.n - 1];
    if (gguf_get_array(g, kv->key, GGUF_KIND_INT, &array, &n, &e) == LINNET_OK)
        for (size_t k = 0; k < n; k++)
            fuzz_sum += (uint64_t)gguf_int_at(array, k);
    if (gguf_get_array(g, kv->key, GGUF_KIND_FLOAT, &array, &n, &e) == LINNET_OK)
        for (size_t k = 0; k < n; k++)
            fuzz_sum += gguf_float_at(array, k) > 0.0;
    gguf_get_array(g, kv->key, GGUF_KIND_BOOL, &array, &n, &e);
    if (gguf_get_array(g, kv->key, GGUF_KIND_STR, &array, &n, &e) == LINNET_OK)
        for (size_t k = 0; k < n; k++) {
            s = gguf_str_at(array, k);
            for (size_t c = 0; c < s.n; c++)
                fuzz_sum += (uint64_t)s.s[c];
        }
    for (size_t k = 0; k < kv->size; k++)
        fuzz_sum += kv->value[k];
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    linnet_error e;
    struct gguf *g;
    if (gguf_open_memory(data, size, &g, &e) != LINNET_OK)
        return 0;
    for (size_t i = 0; i < gguf_n_kv(g); i++) {
        const struct gguf_kv *kv = gguf_kv_at(g, i);
        if (gguf_find(g, kv->key) != kv)
            __builtin_trap();
        read_key(g, kv);
    }
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        if (gguf_tensor_find(g, t->name) != t)
            __builtin_trap();
        for (size_t k = 0; k < t->size; k++)
            fuzz_sum += t->data[k];
        gguf_tensor_drop(g, t);
    }
    fuzz_sum += gguf_file_size(g) + gguf_alignment(g) + gguf_version(g);
    gguf_close(g);
    return 0;
}
