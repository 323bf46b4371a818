/* What a sound file means: writer to reader, typed getters, split sets, real files. */
#include "test.h"

#include "gguf/gguf.h"
#include "mkgguf.h"
#include "quant/quant.h"
#include "tempdir.h"

#include <dirent.h>
#include <math.h>

static char dir[64];

static int set_up(void **state)
{
    (void)state;
    tempdir_make(dir);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    tempdir_remove(dir);
    return 0;
}

static struct gguf_writer *new_writer(void)
{
    linnet_error e;
    struct gguf_writer *w = NULL;
    assert_ok(gguf_writer_create(&w, &e), e);
    return w;
}

static void finish(struct gguf_writer *w, const char *path)
{
    linnet_error e;
    assert_ok(gguf_write_begin(w, path, &e), e);
    assert_ok(gguf_write_end(w, &e), e);
    gguf_writer_destroy(w);
}

static struct gguf *open_file(const char *path)
{
    linnet_error e;
    struct gguf *g = NULL;
    assert_ok(gguf_open(path, &g, &e), e);
    return g;
}

/* ---- one value of each of the 13 types, and what each getter makes of it ---- */

enum { N_TYPES = 13 };

static const uint8_t scalar_one[N_TYPES][8] = {
    [GGUF_U8] = {1},
    [GGUF_I8] = {1},
    [GGUF_U16] = {1},
    [GGUF_I16] = {1},
    [GGUF_U32] = {1},
    [GGUF_I32] = {1},
    [GGUF_U64] = {1},
    [GGUF_I64] = {1},
    [GGUF_BOOL] = {1},
    [GGUF_F32] = {0, 0, 0x80, 0x3F},
    [GGUF_F64] = {0, 0, 0, 0, 0, 0, 0xF0, 0x3F},
};

static const struct gguf_str string_one = {"one", 3};

/* Keys "s<type>" with the value one, and "a<type>" with an array of three ones. */
static void put_every_type(struct gguf_writer *w)
{
    linnet_error e;
    for (int t = 0; t < N_TYPES; t++) {
        char key[16], array_key[16];
        snprintf(key, sizeof key, "s%d", t);
        snprintf(array_key, sizeof array_key, "a%d", t);
        if (t == GGUF_ARRAY)
            continue;
        if (t == GGUF_STRING) {
            struct gguf_str three[3] = {string_one, {"", 0}, {"\0x", 2}};
            assert_ok(gguf_put(w, key, GGUF_STRING, &string_one, &e), e);
            assert_ok(gguf_put_array(w, array_key, GGUF_STRING, three, 3, &e), e);
            continue;
        }
        static const size_t sizes[N_TYPES] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
        uint8_t three[24];
        for (size_t i = 0; i < 3; i++)
            memcpy(three + i * sizes[t], scalar_one[t], sizes[t]);
        assert_ok(gguf_put(w, key, (enum gguf_type)t, scalar_one[t], &e), e);
        assert_ok(gguf_put_array(w, array_key, (enum gguf_type)t, three, 3, &e), e);
    }
}

static void every_type_survives_writing_and_reading(void **state)
{
    (void)state;
    struct gguf_writer *w = new_writer();
    put_every_type(w);
    const char *path = tempdir_path(dir, "types.gguf");
    finish(w, path);
    struct gguf *g = open_file(path);
    assert_int_equal(gguf_version(g), 3);
    assert_int_equal(gguf_n_kv(g), 24);
    assert_int_equal(gguf_n_tensors(g), 0);
    assert_int_equal(gguf_n_parts(g), 1);
    assert_string_equal(gguf_part_path(g, 0), path);
    for (int t = 0; t < N_TYPES; t++) {
        char key[16];
        snprintf(key, sizeof key, "s%d", t);
        const struct gguf_kv *kv = gguf_find(g, key);
        if (t == GGUF_ARRAY) {
            assert_null(kv);
            continue;
        }
        assert_non_null(kv);
        assert_int_equal(kv->type, t);
        assert_int_equal(kv->elem, t);
        assert_int_equal(kv->count, 1);
        if (t == GGUF_STRING)
            assert_memory_equal(gguf_str_at(kv, 0).s, "one", 3);
        else
            assert_memory_equal(kv->value, scalar_one[t], kv->size);
        key[0] = 'a';
        kv = gguf_find(g, key);
        assert_int_equal(kv->type, GGUF_ARRAY);
        assert_int_equal(kv->elem, t);
        assert_int_equal(kv->count, 3);
        for (size_t i = 0; i < 3 && t != GGUF_STRING; i++) {
            if (t != GGUF_F32 && t != GGUF_F64)
                assert_int_equal(gguf_int_at(kv, i), 1);
            assert_float_equal(gguf_float_at(kv, i), 1.0, 0.0);
        }
    }
    const struct gguf_kv *strings = gguf_find(g, "a8");
    assert_int_equal(gguf_str_at(strings, 1).n, 0);
    assert_memory_equal(gguf_str_at(strings, 2).s, "\0x", 2);
    gguf_close(g);
}

/* A0.1 and field bug 4: each getter against each type, scalar and array. */
static void getters_take_the_types_they_document_and_no_others(void **state)
{
    (void)state;
    struct gguf_writer *w = new_writer();
    put_every_type(w);
    const char *path = tempdir_path(dir, "types.gguf");
    finish(w, path);
    struct gguf *g = open_file(path);
    for (int k = 0; k < 2 * N_TYPES; k++) {
        int t = k / 2;
        bool scalar = k % 2 == 0;
        if (t == GGUF_ARRAY)
            continue;
        bool is_float = t == GGUF_F32 || t == GGUF_F64;
        bool is_int = !is_float && t != GGUF_STRING;
        bool is_number = (is_int && t != GGUF_BOOL) || is_float;
        char key[16];
        snprintf(key, sizeof key, "%c%d", scalar ? 's' : 'a', t);

        linnet_error e = {0};
        uint32_t u = 77, us[4] = {77, 77, 77, 77};
        int64_t i = 77;
        float f = 77, fs[4] = {77, 77, 77, 77};
        bool b = false;
        struct gguf_str s = {NULL, 0};
        const struct gguf_kv *array = NULL;
        size_t n = 0;
#define EXPECT(call, good) assert_int_equal(call, (good) ? LINNET_OK : LINNET_FORMAT)
        EXPECT(gguf_get_u32(g, key, &u, &e), scalar && is_int);
        assert_int_equal(u, scalar && is_int ? 1 : 77);
        EXPECT(gguf_get_i64(g, key, &i, &e), scalar && is_int);
        assert_int_equal(i, scalar && is_int ? 1 : 77);
        EXPECT(gguf_get_f32(g, key, &f, &e), scalar && is_number);
        assert_true(f == (scalar && is_number ? 1.0f : 77.0f));
        EXPECT(gguf_get_bool(g, key, &b, &e), scalar && is_int);
        assert_int_equal(b, scalar && is_int);
        EXPECT(gguf_get_str(g, key, &s, &e), scalar && t == GGUF_STRING);
        assert_int_equal(s.n, scalar && t == GGUF_STRING ? 3 : 0);
        EXPECT(gguf_get_u32_each(g, key, 4, us, &e), scalar && is_int);
        assert_int_equal(us[3], scalar && is_int ? 1 : 77);
        EXPECT(gguf_get_u32_each(g, key, 3, us, &e), is_int);
        EXPECT(gguf_get_u32_each(g, key, 2, us, &e), is_int);
        EXPECT(gguf_get_f32_each(g, key, 4, fs, &e), scalar && is_number);
        EXPECT(gguf_get_f32_each(g, key, 3, fs, &e), is_number);
        assert_true(fs[2] == (is_number ? 1.0f : 77.0f));
        EXPECT(gguf_get_array(g, key, GGUF_KIND_INT, &array, &n, &e), !scalar && is_int);
        EXPECT(gguf_get_array(g, key, GGUF_KIND_FLOAT, &array, &n, &e), !scalar && is_number);
        EXPECT(gguf_get_array(g, key, GGUF_KIND_BOOL, &array, &n, &e), !scalar && is_int);
        EXPECT(gguf_get_array(g, key, GGUF_KIND_STR, &array, &n, &e), !scalar && t == GGUF_STRING);
        assert_int_equal(n, scalar ? 0 : 3);
    }
    gguf_close(g);
}

static void an_absent_key_is_told_from_a_wrong_one(void **state)
{
    (void)state;
    linnet_error e;
    struct gguf_writer *w = new_writer();
    assert_ok(gguf_put_str(w, "present", "x", 1, &e), e);
    const char *path = tempdir_path(dir, "absent.gguf");
    finish(w, path);
    struct gguf *g = open_file(path);
    uint32_t u = 5;
    assert_int_equal(gguf_get_u32(g, "absent", &u, &e), LINNET_NOT_FOUND);
    assert_non_null(strstr(e.text, "'absent'"));
    assert_int_equal(gguf_get_u32_each(g, "absent", 1, &u, &e), LINNET_NOT_FOUND);
    assert_int_equal(gguf_get_u32(g, "present", &u, &e), LINNET_FORMAT);
    assert_non_null(strstr(e.text, "'present'"));
    assert_non_null(strstr(e.text, "string"));
    assert_non_null(strstr(e.text, "absent.gguf"));
    assert_int_equal(gguf_get_u32(g, "present", &u, NULL), LINNET_FORMAT);
    assert_int_equal(u, 5);
    assert_null(gguf_find(g, "presen"));
    assert_null(gguf_find(g, "presents"));
    assert_null(gguf_tensor_find(g, "present"));
    gguf_close(g);
}

static void put_number(struct gguf_writer *w, const char *key, enum gguf_type type, const void *v)
{
    linnet_error e;
    assert_ok(gguf_put(w, key, type, v, &e), e);
}

static void values_outside_of_the_output_are_refused(void **state)
{
    (void)state;
    linnet_error e;
    struct gguf_writer *w = new_writer();
    put_number(w, "minus", GGUF_I8, &(int8_t){-1});
    put_number(w, "i16", GGUF_I16, &(int16_t){-300});
    put_number(w, "i32", GGUF_I32, &(int32_t){INT32_MIN});
    put_number(w, "u32", GGUF_U32, &(uint32_t){UINT32_MAX});
    put_number(w, "2^32", GGUF_I64, &(int64_t){1ll << 32});
    put_number(w, "max", GGUF_U64, &(uint64_t){UINT64_MAX});
    put_number(w, "imax", GGUF_U64, &(uint64_t){INT64_MAX});
    put_number(w, "1e300", GGUF_F64, &(double){1e300});
    put_number(w, "-inf", GGUF_F64, &(double){-INFINITY});
    put_number(w, "half", GGUF_F64, &(double){0.5});
    uint64_t mixed[3] = {7, UINT64_MAX, 9};
    assert_ok(gguf_put_array(w, "mixed", GGUF_U64, mixed, 3, &e), e);
    const char *path = tempdir_path(dir, "ranges.gguf");
    finish(w, path);
    struct gguf *g = open_file(path);

    uint32_t u = 3, us[3] = {3, 3, 3};
    int64_t i = 3;
    float f = 3;
    bool b = false;
    assert_int_equal(gguf_get_u32(g, "minus", &u, &e), LINNET_FORMAT);
    assert_non_null(strstr(e.text, "is -1;"));
    assert_ok(gguf_get_i64(g, "minus", &i, &e), e);
    assert_int_equal(i, -1);
    assert_ok(gguf_get_f32(g, "minus", &f, &e), e);
    assert_true(f == -1.0f);
    assert_int_equal(gguf_get_bool(g, "minus", &b, &e), LINNET_FORMAT);
    assert_ok(gguf_get_i64(g, "i16", &i, &e), e);
    assert_int_equal(i, -300);
    assert_ok(gguf_get_i64(g, "i32", &i, &e), e);
    assert_int_equal(i, INT32_MIN);
    assert_ok(gguf_get_u32(g, "u32", &u, &e), e);
    assert_int_equal(u, UINT32_MAX);
    assert_int_equal(gguf_get_u32(g, "2^32", &u, &e), LINNET_FORMAT);
    assert_int_equal(u, UINT32_MAX);
    assert_int_equal(gguf_get_i64(g, "max", &i, &e), LINNET_FORMAT);
    assert_int_equal(gguf_get_bool(g, "max", &b, &e), LINNET_FORMAT);
    assert_ok(gguf_get_f32(g, "max", &f, &e), e);
    assert_true(f == 18446744073709551616.0f);
    assert_ok(gguf_get_i64(g, "imax", &i, &e), e);
    assert_int_equal(i, INT64_MAX);
    assert_int_equal(gguf_get_f32(g, "1e300", &f, &e), LINNET_FORMAT);
    assert_ok(gguf_get_f32(g, "-inf", &f, &e), e);
    assert_true(isinf(f) && f < 0);
    assert_ok(gguf_get_f32(g, "half", &f, &e), e);
    assert_true(f == 0.5f);
    assert_int_equal(gguf_get_u32_each(g, "mixed", 3, us, &e), LINNET_FORMAT);
    assert_int_equal(us[0], 3); /* nothing is written when one is wrong */
    assert_non_null(strstr(e.text, "element 1"));
    assert_ok(gguf_get_u32_each(g, "mixed", 1, us, &e), e);
    assert_int_equal(us[0], 7);
    assert_int_equal(gguf_int_at(gguf_find(g, "mixed"), 1), INT64_MAX);
    gguf_close(g);
}

static void a_copied_key_keeps_every_byte(void **state)
{
    (void)state;
    linnet_error e;
    struct gguf_writer *w = new_writer();
    put_every_type(w);
    char first[512], second[512];
    snprintf(first, sizeof first, "%s", tempdir_path(dir, "a.gguf"));
    snprintf(second, sizeof second, "%s", tempdir_path(dir, "b.gguf"));
    finish(w, first);
    struct gguf *g = open_file(first);
    w = new_writer();
    for (size_t i = 0; i < gguf_n_kv(g); i++)
        assert_ok(gguf_put_kv(w, gguf_kv_at(g, i), &e), e);
    finish(w, second);
    struct gguf *h = open_file(second);
    assert_int_equal(gguf_file_size(g), gguf_file_size(h));
    for (size_t i = 0; i < gguf_n_kv(g); i++) {
        assert_string_equal(gguf_kv_at(g, i)->key, gguf_kv_at(h, i)->key);
        assert_int_equal(gguf_kv_at(g, i)->size, gguf_kv_at(h, i)->size);
        assert_memory_equal(gguf_kv_at(g, i)->value, gguf_kv_at(h, i)->value,
                            gguf_kv_at(g, i)->size);
    }
    gguf_close(g);
    gguf_close(h);
}

/* ---- tensors ---- */

/* Bytes that differ from tensor to tensor and from place to place. */
static void fill(uint8_t *data, size_t n, unsigned tensor)
{
    for (size_t i = 0; i < n; i++)
        data[i] = (uint8_t)(i * 7 + i / 256 + tensor * 13 + 1);
}

static void tensors_come_back_with_their_shapes_and_bytes(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint32_t type, n_dims;
        uint64_t dims[4];
        size_t size;
    } tensors[] = {
        {"f32", QUANT_F32, 1, {3}, 12},
        {"q4_0", QUANT_Q4_0, 2, {64, 5}, 180},
        {"q6_K", QUANT_Q6_K, 3, {256, 2, 3}, 1260},
        {"f16", QUANT_F16, 4, {1, 2, 3, 5}, 60},
        {"i8", QUANT_I8, 2, {7, 1}, 7},
        {"scalar", QUANT_F32, 1, {1}, 4},
    };
    enum { N = sizeof tensors / sizeof *tensors };
    static const uint32_t alignments[] = {0, 8, 64, 4096, 65536}; /* 0: none given */
    for (size_t a = 0; a < 5; a++) {
        linnet_error e;
        struct gguf_writer *w = new_writer();
        uint8_t data[2048];
        const char *path = tempdir_path(dir, "tensors.gguf");
        uint64_t alignment = alignments[a] ? alignments[a] : 32;
        if (alignments[a])
            assert_ok(gguf_put_u32(w, "general.alignment", alignments[a], &e), e);
        for (size_t i = 0; i < N; i++)
            assert_ok(gguf_add_tensor(w, tensors[i].name, tensors[i].type, tensors[i].n_dims,
                                      tensors[i].dims, &e),
                      e);
        assert_ok(gguf_write_begin(w, path, &e), e);
        for (unsigned i = 0; i < N; i++) {
            fill(data, tensors[i].size, i);
            assert_ok(gguf_write_tensor(w, data, tensors[i].size, &e), e);
        }
        assert_ok(gguf_write_end(w, &e), e);
        gguf_writer_destroy(w);

        struct gguf *g = open_file(path);
        assert_int_equal(gguf_alignment(g), alignment);
        assert_int_equal(gguf_n_tensors(g), N);
        for (unsigned i = 0; i < N; i++) {
            const struct gguf_tensor *t = gguf_tensor_find(g, tensors[i].name);
            assert_ptr_equal(t, gguf_tensor_at(g, i));
            assert_int_equal(t->type, tensors[i].type);
            assert_int_equal(t->n_dims, tensors[i].n_dims);
            uint64_t n = 1;
            for (unsigned d = 0; d < 4; d++) {
                assert_int_equal(t->dims[d], d < t->n_dims ? tensors[i].dims[d] : 1);
                n *= t->dims[d];
            }
            assert_int_equal(t->n_elems, n);
            assert_int_equal(t->size, tensors[i].size);
            assert_int_equal(t->offset % alignment, 0);
            assert_int_equal(t->part, 0);
            fill(data, t->size, i);
            gguf_tensor_drop(g, t);
            assert_memory_equal(t->data, data, t->size);
        }
        assert_null(gguf_tensor_find(g, "f3"));
        assert_int_equal(gguf_file_size(g) % alignment, 0);
        gguf_close(g);
    }
}

/* ---- split sets ---- */

/* Part `no` of `count`, holding tensors "t<first>" and "t<first + 1>". */
static void write_part(const char *name, unsigned no, unsigned count, unsigned n_tensors)
{
    linnet_error e;
    struct gguf_writer *w = new_writer();
    put_number(w, "split.no", GGUF_U16, &(uint16_t){(uint16_t)no});
    put_number(w, "split.count", GGUF_U16, &(uint16_t){(uint16_t)count});
    put_number(w, "split.tensors.count", GGUF_I32, &(int32_t){(int32_t)n_tensors});
    if (no == 0)
        assert_ok(gguf_put_str(w, "general.architecture", "llama", 5, &e), e);
    for (unsigned i = 0; i < 2; i++) {
        char tensor[16];
        snprintf(tensor, sizeof tensor, "t%u", 2 * no + i);
        assert_ok(gguf_add_tensor(w, tensor, QUANT_F32, 1, &(uint64_t){5}, &e), e);
    }
    assert_ok(gguf_write_begin(w, tempdir_path(dir, name), &e), e);
    for (unsigned i = 0; i < 2; i++) {
        float v[5] = {(float)(2 * no + i)};
        assert_ok(gguf_write_tensor(w, v, sizeof v, &e), e);
    }
    assert_ok(gguf_write_end(w, &e), e);
    gguf_writer_destroy(w);
}

static void any_part_of_a_split_set_opens_all(void **state)
{
    (void)state;
    write_part("m-00001-of-00003.gguf", 0, 3, 6);
    write_part("m-00002-of-00003.gguf", 1, 3, 6);
    write_part("m-00003-of-00003.gguf", 2, 3, 6);
    for (unsigned named = 1; named <= 3; named++) {
        char name[64];
        snprintf(name, sizeof name, "m-%05u-of-00003.gguf", named);
        struct gguf *g = open_file(tempdir_path(dir, name));
        assert_int_equal(gguf_n_parts(g), 3);
        assert_non_null(strstr(gguf_part_path(g, 0), "/m-00001-of-00003.gguf"));
        assert_non_null(strstr(gguf_part_path(g, 2), "/m-00003-of-00003.gguf"));
        assert_non_null(gguf_find(g, "general.architecture"));
        assert_int_equal(gguf_n_tensors(g), 6);
        for (unsigned i = 0; i < 6; i++) {
            char tensor[16];
            snprintf(tensor, sizeof tensor, "t%u", i);
            const struct gguf_tensor *t = gguf_tensor_find(g, tensor);
            assert_non_null(t);
            assert_int_equal(t->part, i / 2);
            float v;
            memcpy(&v, t->data, sizeof v);
            assert_true(v == (float)i);
            gguf_tensor_drop(g, t);
        }
        gguf_close(g);
    }
}

/* Open part 1 of the set: it must fail with a text that has `word`. */
static void check_refused(const char *name, linnet_status expected, const char *word)
{
    linnet_error e = {0};
    struct gguf *g = NULL;
    assert_int_equal(gguf_open(tempdir_path(dir, name), &g, &e), expected);
    if (!strstr(e.text, word))
        fail_msg("'%s' lacks '%s'", e.text, word);
    assert_null(g);
}

static void a_broken_split_set_is_refused_by_part(void **state)
{
    (void)state;
    write_part("m-00001-of-00002.gguf", 0, 2, 4);
    check_refused("m-00001-of-00002.gguf", LINNET_NOT_FOUND, "m-00002-of-00002.gguf");
    write_part("m-00002-of-00002.gguf", 0, 2, 4); /* the first part again */
    check_refused("m-00001-of-00002.gguf", LINNET_MISMATCH,
                  "m-00002-of-00002.gguf': split.no is 0");
    write_part("m-00002-of-00002.gguf", 1, 3, 4);
    check_refused("m-00001-of-00002.gguf", LINNET_MISMATCH, "split.count is 3");
    check_refused("m-00002-of-00002.gguf", LINNET_MISMATCH, "split.count is 3");
    write_part("m-00002-of-00002.gguf", 1, 2, 5);
    check_refused("m-00001-of-00002.gguf", LINNET_MISMATCH, "split.tensors.count is 5");
    write_part("m-00002-of-00002.gguf", 1, 2, 4);
    gguf_close(open_file(tempdir_path(dir, "m-00002-of-00002.gguf")));

    write_part("renamed.gguf", 0, 2, 4);
    check_refused("renamed.gguf", LINNET_FORMAT, "restore its name");
    write_part("n-00003-of-00002.gguf", 0, 2, 4);
    check_refused("n-00003-of-00002.gguf", LINNET_MISMATCH, "split.count is 2");
    write_part("n-00001-of-00009.gguf", 0, 2, 4);
    check_refused("n-00001-of-00009.gguf", LINNET_MISMATCH, "split.count is 2");
}

static void a_file_of_one_part_may_have_any_name(void **state)
{
    (void)state;
    write_part("one.gguf", 0, 1, 2);
    gguf_close(open_file(tempdir_path(dir, "one.gguf")));
    struct mkgguf m = mkgguf_defaults("llama");
    const char *path = tempdir_path(dir, "whole-00001-of-00004.gguf");
    mkgguf_write(&m, path); /* named like a part, but says nothing about parts */
    struct gguf *g = open_file(path);
    assert_int_equal(gguf_n_parts(g), 1);
    gguf_close(g);
}

/* ---- the writer ---- */

static unsigned files_in_dir(void)
{
    unsigned n = 0;
    DIR *d = opendir(dir);
    assert_non_null(d);
    for (struct dirent *entry; (entry = readdir(d)) != NULL;)
        n += entry->d_name[0] != '.';
    closedir(d);
    return n;
}

static void a_file_appears_only_when_it_is_finished(void **state)
{
    (void)state;
    linnet_error e;
    const char *path = tempdir_path(dir, "late.gguf");
    uint8_t data[20] = {0};
    for (unsigned finished = 0; finished < 2; finished++) {
        struct gguf_writer *w = new_writer();
        assert_ok(gguf_add_tensor(w, "t", QUANT_F32, 1, &(uint64_t){5}, &e), e);
        assert_ok(gguf_write_begin(w, path, &e), e);
        assert_int_equal(access(path, F_OK), -1);
        assert_int_equal(files_in_dir(), 1);
        if (finished) {
            assert_ok(gguf_write_tensor(w, data, sizeof data, &e), e);
            assert_ok(gguf_write_end(w, &e), e);
        }
        gguf_writer_destroy(w);
        assert_int_equal(access(path, F_OK), finished ? 0 : -1);
        assert_int_equal(files_in_dir(), finished);
    }
}

static void the_writer_refuses_what_a_reader_would(void **state)
{
    (void)state;
    linnet_error e;
    char long_name[400];
    memset(long_name, 'x', sizeof long_name);
    long_name[sizeof long_name - 1] = '\0';
    static const uint64_t ten = 10, zero = 0, huge[4] = {1ull << 32, 1ull << 32, 1ull << 32, 1};
    for (unsigned c = 0; c < 18; c++) {
        struct gguf_writer *w = new_writer();
        linnet_status s = LINNET_OK;
        switch (c) {
        case 0: s = gguf_put_u32(w, "", 1, &e); break;
        case 1: s = gguf_put_u32(w, "a\nb", 1, &e); break;
        case 2: s = gguf_put_u32(w, "\xFF", 1, &e); break;
        case 3: s = gguf_put(w, "k", GGUF_ARRAY, &ten, &e); break;
        case 4: s = gguf_put(w, "k", (enum gguf_type)13, &ten, &e); break;
        case 5: s = gguf_put_array(w, "k", GGUF_ARRAY, &ten, 1, &e); break;
        case 6: s = gguf_put_u32(w, "general.alignment", 3, &e); break;
        case 7: s = gguf_put_str(w, "general.alignment", "x", 1, &e); break;
        case 8: s = gguf_add_tensor(w, "t", 9999, 1, &ten, &e); break;
        case 9: s = gguf_add_tensor(w, "t", QUANT_Q4_0, 1, &ten, &e); break;
        case 10: s = gguf_add_tensor(w, "t", QUANT_F32, 0, &ten, &e); break;
        case 11: s = gguf_add_tensor(w, "t", QUANT_F32, 5, &ten, &e); break;
        case 12: s = gguf_add_tensor(w, "t", QUANT_F32, 1, &zero, &e); break;
        case 13: s = gguf_add_tensor(w, "t", QUANT_F32, 4, huge, &e); break;
        case 14: s = gguf_add_tensor(w, long_name, QUANT_F32, 1, &ten, &e); break;
        case 15:
            assert_ok(gguf_put_u32(w, "k", 1, &e), e);
            assert_ok(gguf_put_u32(w, "k", 1, &e), e);
            s = gguf_write_begin(w, tempdir_path(dir, "x.gguf"), &e);
            break;
        case 16:
            assert_ok(gguf_add_tensor(w, "t", QUANT_F32, 1, &ten, &e), e);
            assert_ok(gguf_add_tensor(w, "t", QUANT_F32, 1, &ten, &e), e);
            s = gguf_write_begin(w, tempdir_path(dir, "x.gguf"), &e);
            break;
        case 17: s = gguf_put_array(w, "k", GGUF_BOOL, "\0\1\2", 3, &e); break;
        default: break;
        }
        if (s != LINNET_INVALID)
            fail_msg("case %u gave status %d", c, (int)s);
        /* and goes no further */
        assert_int_equal(gguf_put_u32(w, "later", 1, &e), LINNET_INVALID);
        gguf_writer_destroy(w);
    }
    assert_int_equal(files_in_dir(), 0);
}

static void tensors_are_written_whole_and_in_order(void **state)
{
    (void)state;
    linnet_error e;
    uint8_t data[64] = {0};
    const char *path = tempdir_path(dir, "order.gguf");
    for (unsigned c = 0; c < 4; c++) {
        struct gguf_writer *w = new_writer();
        assert_ok(gguf_add_tensor(w, "t", QUANT_F32, 1, &(uint64_t){5}, &e), e);
        if (c == 0) {
            assert_int_equal(gguf_write_tensor(w, data, 20, &e), LINNET_INVALID);
        } else {
            assert_ok(gguf_write_begin(w, path, &e), e);
            if (c == 1)
                assert_int_equal(gguf_write_tensor(w, data, 19, &e), LINNET_INVALID);
            else if (c == 2)
                assert_int_equal(gguf_write_end(w, &e), LINNET_INVALID);
            else
                assert_int_equal(gguf_put_u32(w, "late", 1, &e), LINNET_INVALID);
        }
        gguf_writer_destroy(w);
    }
    struct gguf_writer *w = new_writer();
    assert_int_equal(gguf_write_begin(w, tempdir_path(dir, "no/such/dir.gguf"), &e), LINNET_IO);
    assert_non_null(strstr(e.text, "no/such/dir.gguf"));
    gguf_writer_destroy(w);
    gguf_writer_destroy(NULL);
    assert_int_equal(files_in_dir(), 0);
}

/* ---- the test models ---- */

static bool drop_output(void *arg, const char *name)
{
    (void)arg;
    return strcmp(name, "output.weight") == 0;
}

static void test_models_are_the_same_every_time(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof mkgguf_families / sizeof *mkgguf_families; i++) {
        struct mkgguf m = mkgguf_defaults(mkgguf_families[i].arch);
        m.type = QUANT_Q8_0;
        struct gguf *a = mkgguf_open(&m), *b = mkgguf_open(&m);
        m.drop = drop_output;
        struct gguf *c = mkgguf_open(&m);
        m.seed = 2;
        struct gguf *d = mkgguf_open(&m);
        assert_int_equal(gguf_file_size(a), gguf_file_size(b));
        for (size_t k = 0; k < gguf_n_tensors(a); k++) {
            const struct gguf_tensor *t = gguf_tensor_at(a, k);
            assert_memory_equal(t->data, gguf_tensor_at(b, k)->data, t->size);
            const struct gguf_tensor *same = gguf_tensor_find(c, t->name);
            assert_true(same != NULL || drop_output(NULL, t->name));
            if (same) {
                assert_memory_equal(t->data, same->data, t->size);
                assert_memory_not_equal(t->data, gguf_tensor_find(d, t->name)->data, t->size);
            }
        }
        const struct gguf_kv *tokens;
        size_t n;
        linnet_error e;
        assert_ok(gguf_get_array(a, "tokenizer.ggml.tokens", GGUF_KIND_STR, &tokens, &n, &e), e);
        assert_int_equal(n, 300);
        gguf_close(a);
        gguf_close(b);
        gguf_close(c);
        gguf_close(d);
    }
}

/* ---- real files ---- */

/* Open every .gguf file of a shared directory; returns how many. */
static unsigned open_all(const char *probe, bool weights)
{
    char folder[4096];
    const char *path = test_shared(probe);
    if (!path)
        return 0;
    snprintf(folder, sizeof folder, "%s", path);
    *strrchr(folder, '/') = '\0';
    DIR *d = opendir(folder);
    assert_non_null(d);
    unsigned n = 0;
    for (struct dirent *entry; (entry = readdir(d)) != NULL;) {
        size_t len = strlen(entry->d_name);
        if (len < 5 || strcmp(entry->d_name + len - 5, ".gguf") != 0)
            continue;
        char file[8192];
        linnet_error e;
        struct gguf_str arch;
        snprintf(file, sizeof file, "%s/%s", folder, entry->d_name);
        struct gguf *g = open_file(file);
        assert_ok(gguf_get_str(g, "general.architecture", &arch, &e), e);
        assert_true(arch.n > 0);
        uint64_t total = 0;
        for (size_t i = 0; i < gguf_n_tensors(g); i++)
            total += gguf_tensor_at(g, i)->size;
        assert_true(total <= gguf_file_size(g));
        assert_int_equal(gguf_n_tensors(g) > 0, weights);
        const struct gguf_kv *tokens;
        size_t n_tokens;
        assert_ok(gguf_get_array(g, "tokenizer.ggml.tokens", GGUF_KIND_STR, &tokens, &n_tokens, &e),
                  e);
        assert_true(n_tokens >= 300);
        gguf_close(g);
        n++;
    }
    closedir(d);
    return n;
}

static void every_golden_model_opens(void **state)
{
    (void)state;
    unsigned n = open_all("golden/INDEX.tsv", true);
    if (n == 0)
        test_skip_shared("every_golden_model_opens");
    assert_true(n >= 90);
}

static void every_golden_vocabulary_opens(void **state)
{
    (void)state;
    unsigned n = open_all("golden-text/tokenizer/vocab/ggml-vocab-gpt-2.gguf", false);
    if (n == 0)
        test_skip_shared("every_golden_vocabulary_opens");
    assert_true(n >= 15);
}

int main(void)
{
#define IN_DIR(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        IN_DIR(every_type_survives_writing_and_reading),
        IN_DIR(getters_take_the_types_they_document_and_no_others),
        IN_DIR(an_absent_key_is_told_from_a_wrong_one),
        IN_DIR(values_outside_of_the_output_are_refused),
        IN_DIR(a_copied_key_keeps_every_byte),
        IN_DIR(tensors_come_back_with_their_shapes_and_bytes),
        IN_DIR(any_part_of_a_split_set_opens_all),
        IN_DIR(a_broken_split_set_is_refused_by_part),
        IN_DIR(a_file_of_one_part_may_have_any_name),
        IN_DIR(a_file_appears_only_when_it_is_finished),
        IN_DIR(the_writer_refuses_what_a_reader_would),
        IN_DIR(tensors_are_written_whole_and_in_order),
        cmocka_unit_test(test_models_are_the_same_every_time),
        cmocka_unit_test(every_golden_model_opens),
        cmocka_unit_test(every_golden_vocabulary_opens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
