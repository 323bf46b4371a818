/* Files nobody vouches for: every lie is found, at no cost, without a read outside of the file. */
#include "test.h"

#include "../fuzz/fuzz_gguf.c"
#include "base/limits.h"
#include "mkgguf.h"
#include "quant/quant.h"
#include "rawgguf.h"
#include "tempdir.h"

#include <sys/mman.h>
#include <sys/resource.h>

/* ---- helpers ---- */

/* Open the bytes in `r`, which is freed. The status must be `expected`; a refusal's text must have
 * `word`. */
static void check(struct raw r, linnet_status expected, const char *word)
{
    linnet_error e = {0};
    struct gguf *g = NULL;
    linnet_status status = gguf_open_memory(r.data, r.n, &g, &e);
    if (status != expected)
        fail_msg("status %d, expected %d: %s", (int)status, (int)expected, e.text);
    if (word && !strstr(e.text, word))
        fail_msg("'%s' lacks '%s'", e.text, word);
    assert_int_equal(g == NULL, status != LINNET_OK);
    assert_int_equal(e.text[0] == '\0', status == LINNET_OK);
    gguf_close(g);
    raw_free(&r);
}

static size_t peak_kib(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (size_t)u.ru_maxrss;
}

/* Memory whose end is the end of a readable page: one byte further faults. */
struct guarded {
    uint8_t *map, *end;
    size_t size; /* of the map, with the guard page */
};

static struct guarded guarded_new(size_t max)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), room = (max + page - 1) / page * page;
    uint8_t *p =
        mmap(NULL, room + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(p != MAP_FAILED);
    assert_int_equal(mprotect(p + room, page, PROT_NONE), 0);
    return (struct guarded){p, p + room, room + page};
}

/* Feed n bytes to the fuzzer's function, ending at the guard. */
static void feed(struct guarded *g, const uint8_t *data, size_t n)
{
    memcpy(g->end - n, data, n);
    LLVMFuzzerTestOneInput(g->end - n, n);
}

static void guarded_free(struct guarded *g)
{
    munmap(g->map, g->size);
}

/* ---- header ---- */

static void other_versions_and_byte_orders_are_refused_by_name(void **state)
{
    (void)state;
    check(raw_header(3, 0, 0), LINNET_OK, NULL);
    check(raw_header(2, 0, 0), LINNET_OK, NULL);
    check(raw_header(1, 0, 0), LINNET_UNSUPPORTED, "version 1");
    check(raw_header(0, 0, 0), LINNET_UNSUPPORTED, "version 0");
    check(raw_header(4, 0, 0), LINNET_UNSUPPORTED, "version 4");
    check(raw_header(3u << 24, 0, 0), LINNET_UNSUPPORTED, "big-endian");
    check(raw_header(2u << 24, 0, 0), LINNET_UNSUPPORTED, "big-endian");
    struct raw r = raw_header(3u << 24, 0, 0);
    memcpy(r.data, "FUGG", 4);
    check(r, LINNET_UNSUPPORTED, "big-endian");
    r = raw_header(3, 0, 0);
    memcpy(r.data, "GGML", 4);
    check(r, LINNET_FORMAT, "not a GGUF file");
}

static void a_version_2_file_reads_like_a_version_3_file(void **state)
{
    (void)state;
    linnet_error e;
    struct raw r = raw_header(2, 1, 1);
    raw_key_u32(&r, "key", 7);
    raw_tensor(&r, "t", QUANT_F32, 2, (uint64_t[]){2, 3}, 0);
    raw_pad(&r, 32);
    raw_zeros(&r, 24);
    struct gguf *g = NULL;
    assert_ok(gguf_open_memory(r.data, r.n, &g, &e), e);
    uint32_t v = 0;
    assert_int_equal(gguf_version(g), 2);
    assert_ok(gguf_get_u32(g, "key", &v, &e), e);
    assert_int_equal(v, 7);
    assert_int_equal(gguf_tensor_find(g, "t")->size, 24);
    gguf_close(g);
    raw_free(&r);
}

static void a_short_file_is_refused_at_every_length(void **state)
{
    (void)state;
    struct raw r = raw_header(3, 0, 0);
    for (size_t n = 0; n < r.n; n++) {
        linnet_error e;
        struct gguf *g = NULL;
        assert_int_equal(gguf_open_memory(r.data, n, &g, &e), LINNET_FORMAT);
    }
    raw_free(&r);
    char dir[64];
    linnet_error e;
    struct gguf *g = NULL;
    tempdir_make(dir);
    assert_int_equal(gguf_open(tempdir_text(dir, "empty.gguf", ""), &g, &e), LINNET_FORMAT);
    assert_non_null(strstr(e.text, "empty.gguf"));
    assert_int_equal(gguf_open(tempdir_path(dir, "missing.gguf"), &g, &e), LINNET_NOT_FOUND);
    assert_int_equal(gguf_open(dir, &g, &e), LINNET_IO);
    assert_null(g);
    tempdir_remove(dir);
}

/* Field bug 1: products of counts wrapped and gave small blocks of memory. */
static void counts_beyond_the_file_are_refused_and_cost_nothing(void **state)
{
    (void)state;
    static const uint64_t counts[] = {1001,
                                      1ull << 31,
                                      1ull << 40,
                                      1ull << 61,
                                      SIZE_MAX / 40,
                                      INT64_MAX,
                                      (uint64_t)INT64_MAX + 1,
                                      UINT64_MAX};
    size_t before = peak_kib();
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        for (unsigned what = 0; what < 6; what++) {
            struct raw r = raw_header(3, what == 0 ? counts[i] : 0, what == 1 ? counts[i] : 1);
            if (what == 2) { /* length of a key */
                raw_u64(&r, counts[i]);
            } else {
                raw_key(&r, "key", what == 3 ? GGUF_STRING : GGUF_ARRAY);
                if (what == 4)
                    raw_u32(&r, GGUF_STRING);
                else if (what == 5)
                    raw_u32(&r, GGUF_ARRAY);
                else if (what != 3)
                    raw_u32(&r, GGUF_F64);
                raw_u64(&r, what < 3 ? 0 : counts[i]);
            }
            raw_zeros(&r, 1000);
            check(r, LINNET_FORMAT, NULL);
        }
    }
    assert_true(peak_kib() - before < 10 * 1024);
}

/* A file may be large enough for a count and still not need what it would cost. */
static void limits_hold_where_the_file_has_room(void **state)
{
    (void)state;
    size_t size = (size_t)LIMIT_GGUF_ARRAY + 1000;
    uint8_t *data = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(data != MAP_FAILED);
    static const struct {
        uint64_t n_tensors, n_keys, n_array;
        const char *word;
    } cases[] = {
        {LIMIT_GGUF_TENSORS + 1, 0, 0, "1048577 tensors"},
        {0, LIMIT_GGUF_KEYS + 1, 0, "65537 keys"},
        {0, 1, LIMIT_GGUF_ARRAY + 1, "67108865 elements"},
    };
    for (size_t i = 0; i < 3; i++) {
        struct raw r = raw_header(3, cases[i].n_tensors, cases[i].n_keys);
        raw_key(&r, "key", GGUF_ARRAY);
        raw_u32(&r, GGUF_U8);
        raw_u64(&r, cases[i].n_array);
        memcpy(data, r.data, r.n);
        linnet_error e;
        struct gguf *g = NULL;
        assert_int_equal(gguf_open_memory(data, size, &g, &e), LINNET_LIMIT);
        if (!strstr(e.text, cases[i].word))
            fail_msg("'%s' lacks '%s'", e.text, cases[i].word);
        raw_free(&r);
    }
    munmap(data, size);
}

/* ---- names ---- */

static struct raw one_key(const void *name, size_t n)
{
    struct raw r = raw_header(3, 0, 1);
    raw_u64(&r, n);
    raw_bytes(&r, name, n);
    raw_u32(&r, GGUF_U8);
    raw_uint(&r, 1, 1);
    return r;
}

static struct raw one_tensor_named(const void *name, size_t n)
{
    struct raw r = raw_header(3, 1, 0);
    raw_u64(&r, n);
    raw_bytes(&r, name, n);
    raw_u32(&r, 1);
    raw_u64(&r, 1);
    raw_u32(&r, QUANT_I8);
    raw_u64(&r, 0);
    raw_pad(&r, 32);
    raw_zeros(&r, 32);
    return r;
}

static void names_are_plain_text_of_bounded_length(void **state)
{
    (void)state;
    static char longest[LIMIT_GGUF_KEY + 1];
    memset(longest, 'k', sizeof longest);
    static const struct {
        const char *s;
        size_t n;
        bool good;
    } names[] = {
        {"a", 1, true},
        {"gr\xC3\xBC\xC3\x9F", 6, true},
        {"", 0, false},
        {"a\0b", 3, false},
        {"\0", 1, false},
        {"a\n", 2, false},
        {"\x1B[31mred", 8, false},
        {"\x7F", 1, false},
        {"\xC3", 1, false},
        {"\xED\xA0\x80", 3, false},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        linnet_status expected = names[i].good ? LINNET_OK : LINNET_FORMAT;
        check(one_key(names[i].s, names[i].n), expected, NULL);
        check(one_tensor_named(names[i].s, names[i].n), expected, NULL);
    }
    check(one_key(longest, LIMIT_GGUF_KEY), LINNET_OK, NULL);
    check(one_key(longest, LIMIT_GGUF_KEY + 1), LINNET_FORMAT, "65536 bytes");
    check(one_tensor_named(longest, LIMIT_GGUF_TENSOR_NAME), LINNET_OK, NULL);
    check(one_tensor_named(longest, LIMIT_GGUF_TENSOR_NAME + 1), LINNET_FORMAT, "256 bytes");
}

static void a_name_appears_once(void **state)
{
    (void)state;
    struct raw r = raw_header(3, 0, 3);
    raw_key_u32(&r, "twice", 1);
    raw_key_u32(&r, "once", 1);
    raw_key_u32(&r, "twice", 1);
    check(r, LINNET_FORMAT, "'twice' appears twice");

    r = raw_header(3, 3, 0);
    raw_tensor(&r, "twin", QUANT_I8, 1, (uint64_t[]){1}, 0);
    raw_tensor(&r, "other", QUANT_I8, 1, (uint64_t[]){1}, 32);
    raw_tensor(&r, "twin", QUANT_I8, 1, (uint64_t[]){1}, 64);
    raw_pad(&r, 32);
    raw_zeros(&r, 96);
    check(r, LINNET_FORMAT, "'twin' appears twice");
}

/* ---- values ---- */

static void values_are_checked_when_the_file_is_opened(void **state)
{
    (void)state;
    struct raw r = raw_header(3, 0, 1);
    raw_key(&r, "key", (enum gguf_type)13);
    raw_u64(&r, 0);
    check(r, LINNET_FORMAT, "unknown value type 13");

    r = raw_header(3, 0, 1);
    raw_key(&r, "key", GGUF_ARRAY);
    raw_u32(&r, UINT32_MAX);
    raw_u64(&r, 0);
    check(r, LINNET_FORMAT, "unknown element type 4294967295");

    for (uint64_t v = 0; v < 256; v++) {
        r = raw_header(3, 0, 1);
        raw_key(&r, "key", GGUF_BOOL);
        raw_uint(&r, v, 1);
        check(r, v < 2 ? LINNET_OK : LINNET_FORMAT, v < 2 ? NULL : "bool");
    }

    r = raw_header(3, 0, 1); /* the second string is longer than the rest */
    raw_key(&r, "key", GGUF_ARRAY);
    raw_u32(&r, GGUF_STRING);
    raw_u64(&r, 2);
    raw_str(&r, "fine");
    raw_u64(&r, 5);
    raw_bytes(&r, "four", 4);
    check(r, LINNET_FORMAT, "string 1 passes the end");
}

/* An array of one array of one array ... of one byte. */
static struct raw nested(unsigned depth)
{
    struct raw r = raw_header(3, 0, 1);
    raw_key(&r, "key", GGUF_ARRAY);
    for (unsigned i = 1; i < depth; i++) {
        raw_u32(&r, GGUF_ARRAY);
        raw_u64(&r, 1);
    }
    raw_u32(&r, GGUF_U8);
    raw_u64(&r, 1);
    raw_uint(&r, 5, 1);
    return r;
}

static void nested_arrays_are_passed_over_to_a_bounded_depth(void **state)
{
    (void)state;
    linnet_error e;
    for (unsigned depth = 1; depth <= LIMIT_GGUF_ARRAY_DEPTH; depth++)
        check(nested(depth), LINNET_OK, NULL);
    check(nested(LIMIT_GGUF_ARRAY_DEPTH + 1), LINNET_LIMIT, "nest deeper than 4");
    check(nested(100000), LINNET_LIMIT, "nest deeper than 4");

    struct raw r = raw_header(3, 0, 2); /* what comes after is still found */
    raw_key(&r, "nest", GGUF_ARRAY);
    raw_u32(&r, GGUF_ARRAY);
    raw_u64(&r, 2);
    raw_u32(&r, GGUF_STRING);
    raw_u64(&r, 2);
    raw_str(&r, "a");
    raw_str(&r, "bc");
    raw_u32(&r, GGUF_U16);
    raw_u64(&r, 3);
    raw_zeros(&r, 6);
    raw_key_u32(&r, "after", 9);
    struct gguf *g = NULL;
    assert_ok(gguf_open_memory(r.data, r.n, &g, &e), e);
    uint32_t v = 0;
    assert_ok(gguf_get_u32(g, "after", &v, &e), e);
    assert_int_equal(v, 9);
    assert_int_equal(gguf_get_u32_each(g, "nest", 2, &v, &e), LINNET_FORMAT);
    const struct gguf_kv *kv;
    size_t n;
    for (int kind = GGUF_KIND_INT; kind <= GGUF_KIND_STR; kind++)
        assert_int_equal(gguf_get_array(g, "nest", (enum gguf_kind)kind, &kv, &n, &e),
                         LINNET_FORMAT);

    struct gguf_writer *w; /* and such a key can be copied as it stands */
    char dir[64];
    tempdir_make(dir);
    assert_ok(gguf_writer_create(&w, &e), e);
    assert_ok(gguf_put_kv(w, gguf_find(g, "nest"), &e), e);
    assert_ok(gguf_write_begin(w, tempdir_path(dir, "copy.gguf"), &e), e);
    assert_ok(gguf_write_end(w, &e), e);
    gguf_writer_destroy(w);
    struct gguf *copy = NULL;
    assert_ok(gguf_open(tempdir_path(dir, "copy.gguf"), &copy, &e), e);
    assert_int_equal(gguf_find(copy, "nest")->size, gguf_find(g, "nest")->size);
    gguf_close(copy);
    gguf_close(g);
    tempdir_remove(dir);
    raw_free(&r);
}

/* ---- alignment: field bug 2 ---- */

/* A file with one tensor at `offset` and general.alignment as given by type and value. */
static struct raw aligned_file(enum gguf_type type, uint64_t value, size_t bytes, uint64_t offset)
{
    struct raw r = raw_header(3, 1, 1);
    raw_key(&r, "general.alignment", type);
    if (type == GGUF_ARRAY)
        raw_u32(&r, GGUF_U32);
    if (type == GGUF_ARRAY || type == GGUF_STRING)
        raw_u64(&r, 1);
    raw_uint(&r, value, bytes);
    raw_tensor(&r, "t", QUANT_I8, 1, (uint64_t[]){1}, offset);
    raw_pad(&r, LIMIT_GGUF_ALIGNMENT);
    raw_zeros(&r, LIMIT_GGUF_ALIGNMENT + 1);
    return r;
}

static void alignment_is_a_sane_power_of_two(void **state)
{
    (void)state;
    for (uint64_t a = 8; a <= LIMIT_GGUF_ALIGNMENT; a *= 2) {
        check(aligned_file(GGUF_U32, a, 4, a), LINNET_OK, NULL);
        check(aligned_file(GGUF_U32, a, 4, a / 2), LINNET_FORMAT, "is not aligned");
        check(aligned_file(GGUF_U32, a, 4, a + 1), LINNET_FORMAT, "is not aligned");
        check(aligned_file(GGUF_U32, a + 1, 4, 0), LINNET_FORMAT, "general.alignment");
    }
    static const uint64_t bad[] = {0, 1, 3, 4, 24, 1u << 17, 1u << 31, UINT32_MAX};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        check(aligned_file(GGUF_U32, bad[i], 4, 0), LINNET_FORMAT, "general.alignment");
    check(aligned_file(GGUF_I32, (uint32_t)-32, 4, 0), LINNET_FORMAT, "is -32");
    check(aligned_file(GGUF_I64, (uint64_t)INT64_MIN, 8, 0), LINNET_FORMAT, "general.alignment");
    check(aligned_file(GGUF_U64, UINT64_MAX, 8, 0), LINNET_FORMAT, "general.alignment");
    check(aligned_file(GGUF_U64, (uint64_t)INT64_MAX + 1, 8, 0), LINNET_FORMAT,
          "general.alignment");
    check(aligned_file(GGUF_U64, 64, 8, 64), LINNET_OK, NULL);
    check(aligned_file(GGUF_U8, 64, 1, 64), LINNET_OK, NULL);
    check(aligned_file(GGUF_BOOL, 1, 1, 0), LINNET_FORMAT, "general.alignment");
    check(aligned_file(GGUF_F32, 0x42000000, 4, 0), LINNET_FORMAT, "float32");
    check(aligned_file(GGUF_STRING, '8', 1, 0), LINNET_FORMAT, "string");
    check(aligned_file(GGUF_ARRAY, 32, 4, 0), LINNET_FORMAT, "array");
}

/* ---- tensors ---- */

static struct raw one_tensor(uint32_t type, uint32_t n_dims, const uint64_t *dims, uint64_t offset,
                             size_t n_data)
{
    struct raw r = raw_header(3, 1, 0);
    raw_tensor(&r, "tensor", type, n_dims, dims, offset);
    raw_pad(&r, 32);
    raw_zeros(&r, n_data);
    return r;
}

static void dimensions_are_1_to_4_and_not_zero(void **state)
{
    (void)state;
    uint64_t dims[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    for (uint32_t n = 0; n < 8; n++)
        check(one_tensor(QUANT_F32, n, dims, 0, 4), n <= 4 ? LINNET_OK : LINNET_FORMAT,
              n <= 4 ? NULL : "dimensions");
    struct raw r = one_tensor(QUANT_F32, 0, dims, 0, 4); /* a scalar: one dimension of 1 */
    linnet_error e;
    struct gguf *g = NULL;
    assert_ok(gguf_open_memory(r.data, r.n, &g, &e), e);
    assert_int_equal(gguf_tensor_at(g, 0)->n_dims, 1);
    assert_int_equal(gguf_tensor_at(g, 0)->dims[0], 1);
    gguf_close(g);
    raw_free(&r);
    for (unsigned d = 0; d < 4; d++) {
        uint64_t zero[4] = {32, 32, 32, 32};
        zero[d] = 0;
        check(one_tensor(QUANT_I8, 4, zero, 0, 64), LINNET_FORMAT, "is 0");
    }
}

static void an_unknown_type_is_named_with_its_tensor(void **state)
{
    (void)state;
    static const uint32_t unknown[] = {4, 5, 36, 99, 255, QUANT_Q2_0_G128, 1u << 31, UINT32_MAX};
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) {
        char word[64];
        snprintf(word, sizeof word, "'tensor' has type %u,", unknown[i]);
        check(one_tensor(unknown[i], 1, (uint64_t[]){256}, 0, 1024), LINNET_UNSUPPORTED, word);
    }
}

static void sizes_near_the_end_of_the_number_range_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < quant_type_count(); i++) {
        const struct quant_type *t = quant_type_at(i);
        if (t->id > UINT16_MAX)
            continue;
        for (uint64_t k = 0; k <= 64; k++) {
            static const uint64_t divisors[] = {1, 2, 4, 8, 16, 32};
            for (size_t d = 0; d < 6; d++) {
                uint64_t n = UINT64_MAX / divisors[d] - k;
                check(one_tensor(t->id, 1, &n, 0, 64), LINNET_FORMAT, "'tensor'");
                n -= n % t->block;
                check(one_tensor(t->id, 1, &n, 0, 64), LINNET_FORMAT, "'tensor'");
            }
            check(one_tensor(t->id, 1, (uint64_t[]){t->block}, UINT64_MAX - k, 64), LINNET_FORMAT,
                  "'tensor'");
        }
    }
}

/* Field bug 3: the product of the dimensions against 128-bit arithmetic. */
static void sizes_agree_with_128_bit_arithmetic(void **state)
{
    (void)state;
    enum { ROUNDS = 100000, DATA = 4096 };
    uint64_t random = 42;
    unsigned accepted = 0;
    for (unsigned round = 0; round < ROUNDS; round++) {
        const struct quant_type *t = quant_type_at(mkgguf_random(&random) % quant_type_count());
        if (t->id > UINT16_MAX || t->id == QUANT_Q2_0) /* two layouts: its own test */
            continue;
        uint64_t dims[4] = {1, 1, 1, 1};
        uint32_t n_dims = 1 + mkgguf_random(&random) % 4;
        for (uint32_t d = 0; d < n_dims; d++) {
            uint64_t r = mkgguf_random(&random);
            static const uint64_t edges[] = {
                0,          1ull << 16,   1ull << 32, (1ull << 42) + 1, 1ull << 62,   INT64_MAX,
                UINT64_MAX, SIZE_MAX / 4, 1ull << 63, 0xFFFFFFFFull,    3037000500ull};
            uint64_t kind = r >> 60;
            dims[d] = kind < 11   ? 1 + (r & 0xFFFF) % 4
                      : kind < 13 ? edges[r % 11]
                      : kind < 15 ? 1 + (r & 0xFFFF) % 2048
                                  : r >> (r & 63);
            if (d == 0 && (r >> 40) % 4 != 0)
                dims[d] *= t->block;
        }
        /* exact, as far as it matters: everything above 2^64 is too much */
        unsigned __int128 limit = (unsigned __int128)1 << 64, elems = 1;
        bool zero = false;
        for (unsigned d = 0; d < 4; d++) {
            zero = zero || dims[d] == 0;
            elems *= elems < limit ? dims[d] : 1;
        }
        bool fits = !zero && dims[0] % t->block == 0 && elems < limit &&
                    elems / t->block * t->block_bytes <= DATA;
        accepted += fits;
        check(one_tensor(t->id, n_dims, dims, 0, DATA), fits ? LINNET_OK : LINNET_FORMAT,
              fits ? NULL : "'tensor'");
    }
    assert_in_range(accepted, ROUNDS / 10, ROUNDS * 9 / 10); /* both outcomes were tried */
}

static void data_lies_inside_the_file_and_nowhere_twice(void **state)
{
    (void)state;
    static const struct {
        uint64_t first, n_first, second, n_second, n_data;
        const char *word; /* NULL: accepted */
    } cases[] = {
        {0, 32, 32, 32, 64, NULL},
        {32, 32, 0, 32, 64, NULL}, /* order in the file does not matter */
        {0, 20, 32, 20, 52, NULL}, /* the last one needs no padding */
        {0, 32, 96, 8, 104, NULL}, /* nor do gaps hurt */
        {0, 33, 32, 32, 64, "'a' (33 bytes) overlaps 'b'"},
        {32, 32, 0, 33, 64, "'b' (33 bytes) overlaps 'a'"},
        {0, 32, 0, 32, 64, "overlaps"},
        {0, 1, 0, 1, 64, "overlaps"},
        {0, 64, 32, 1, 64, "'a' (64 bytes) overlaps 'b'"},
        {0, 32, 32, 33, 64, "'b' (33 bytes) passes the end of the file by 1"},
        {0, 32, 64, 1, 64, "'b' (1 bytes) passes the end of the file by 1"},
        {0, 32, 96, 1, 64, "'b' begins 32 bytes after the end"},
        {0, 32, 33, 1, 64, "'b': offset 33 is not aligned to 32"},
        {0, 32, UINT64_MAX - 31, 32, 64, "after the end"},
        {0, 32, 1ull << 63, 32, 64, "after the end"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct raw r = raw_header(3, 2, 0);
        raw_tensor(&r, "a", QUANT_I8, 1, &cases[i].n_first, cases[i].first);
        raw_tensor(&r, "b", QUANT_I8, 1, &cases[i].n_second, cases[i].second);
        raw_pad(&r, 32);
        raw_zeros(&r, cases[i].n_data);
        check(r, cases[i].word ? LINNET_FORMAT : LINNET_OK, cases[i].word);
    }
}

/* ---- the two layouts of id 42: spec D2 ---- */

/* A file with tensors "t0", "t1", ... of n[i] elements, laid out with `block_bytes` per `block`. */
static struct raw q2_0_file(const uint64_t *n, size_t count, uint64_t block, uint64_t block_bytes)
{
    struct raw r = raw_header(3, count, 0);
    uint64_t offset = 0, end = 0;
    for (size_t i = 0; i < count; i++) {
        char name[32];
        snprintf(name, sizeof name, "t%zu", i);
        raw_tensor(&r, name, 42, 1, &n[i], offset);
        end = offset + n[i] / block * block_bytes;
        offset = (end + 31) / 32 * 32;
    }
    raw_pad(&r, 32);
    raw_zeros(&r, end);
    return r;
}

static void check_q2_0(struct raw r, const uint32_t *types, const uint64_t *n)
{
    linnet_error e;
    struct gguf *g = NULL;
    assert_ok(gguf_open_memory(r.data, r.n, &g, &e), e);
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        assert_int_equal(t->type, types[i]);
        assert_int_equal(t->n_elems, n[i]);
        assert_int_equal(t->size, types[i] == QUANT_Q2_0 ? n[i] / 64 * 18 : n[i] / 128 * 34);
    }
    gguf_close(g);
    raw_free(&r);
}

static void the_layout_of_id_42_is_the_one_the_bytes_prove(void **state)
{
    (void)state;
    const uint32_t narrow = QUANT_Q2_0, wide = QUANT_Q2_0_G128;
    uint64_t large[] = {1 << 16}, small[] = {1024}, mixed[] = {1024, 1 << 16, 1024, 8192};
    check_q2_0(q2_0_file(large, 1, 64, 18), &narrow, large);
    check_q2_0(q2_0_file(large, 1, 128, 34), &wide, large);
    check_q2_0(q2_0_file(mixed, 4, 64, 18), (uint32_t[]){narrow, narrow, narrow, narrow}, mixed);
    /* 1024 elements: 288 or 272 bytes, the same with padding; they follow the tensor that proves
     * it */
    check_q2_0(q2_0_file(mixed, 4, 128, 34), (uint32_t[]){wide, wide, wide, wide}, mixed);
    check_q2_0(q2_0_file(small, 1, 64, 18), &narrow, small);
    uint64_t three[] = {1024, 1024, 64}; /* nothing proves the other layout: the default */
    check_q2_0(q2_0_file(three, 3, 64, 18), (uint32_t[]){narrow, narrow, narrow}, three);
    check_q2_0(q2_0_file(three, 2, 64, 18), (uint32_t[]){narrow, narrow}, three);
    /* too short for either, or for the only one that 64 elements can have */
    uint64_t short_rows[] = {64 * 3};
    check(q2_0_file(large, 1, 128, 33), LINNET_FORMAT, "passes the end");
    check(q2_0_file(short_rows, 1, 64, 17), LINNET_FORMAT, "passes the end");
    check(one_tensor(42, 1, (uint64_t[]){32}, 0, 64), LINNET_FORMAT, "blocks of 64");
}

/* ---- mutations: field bug 5 ---- */

/* A small file with every kind of thing in it. */
static struct raw small_model(void)
{
    struct raw r = raw_header(3, 2, 6);
    raw_key_u32(&r, "general.alignment", 32);
    raw_key(&r, "name", GGUF_STRING);
    raw_str(&r, "a model");
    raw_key(&r, "tokens", GGUF_ARRAY);
    raw_u32(&r, GGUF_STRING);
    raw_u64(&r, 2);
    raw_str(&r, "one");
    raw_str(&r, "");
    raw_key(&r, "flags", GGUF_ARRAY);
    raw_u32(&r, GGUF_BOOL);
    raw_u64(&r, 3);
    raw_bytes(&r, "\1\0\1", 3);
    raw_key(&r, "nest", GGUF_ARRAY);
    raw_u32(&r, GGUF_ARRAY);
    raw_u64(&r, 1);
    raw_u32(&r, GGUF_F64);
    raw_u64(&r, 1);
    raw_u64(&r, 0x3FF0000000000000);
    raw_key_u32(&r, "last", 7);
    raw_tensor(&r, "a", QUANT_Q4_0, 2, (uint64_t[]){32, 3}, 0);
    raw_tensor(&r, "b", QUANT_F32, 1, (uint64_t[]){9}, 64);
    raw_pad(&r, 32);
    raw_zeros(&r, 64 + 36);
    return r;
}

static void no_truncation_reads_outside_of_the_file(void **state)
{
    (void)state;
    struct raw r = small_model();
    struct guarded g = guarded_new(r.n);
    struct gguf *out = NULL;
    linnet_error e;
    assert_ok(gguf_open_memory(r.data, r.n, &out, &e), e);
    gguf_close(out);
    for (size_t n = 0; n < r.n; n++) {
        feed(&g, r.data, n);
        assert_int_not_equal(gguf_open_memory(r.data, n, &out, &e), LINNET_OK);
    }
    feed(&g, r.data, r.n);
    guarded_free(&g);
    raw_free(&r);
}

static void a_real_model_cut_at_every_64_bytes_is_refused(void **state)
{
    (void)state;
    char path[64];
    struct mkgguf m = mkgguf_defaults("qwen3");
    m.n_layer = 1;
    m.d_model = 32;
    m.type = QUANT_Q8_0;
    mkgguf_temp(&m, path);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    static uint8_t data[1 << 20];
    size_t size = fread(data, 1, sizeof data, f);
    fclose(f);
    struct guarded g = guarded_new(size);
    linnet_error e;
    struct gguf *out = NULL;
    for (size_t n = 0; n + 64 <= size; n += 64) { /* less would only take padding away */
        feed(&g, data, n);
        assert_int_not_equal(gguf_open_memory(data, n, &out, &e), LINNET_OK);
        if (n % 4096 == 0) { /* and through a file */
            assert_int_equal(truncate(path, 0), 0);
            f = fopen(path, "wb");
            assert_non_null(f);
            assert_int_equal(fwrite(data, 1, n, f), n);
            fclose(f);
            assert_int_not_equal(gguf_open(path, &out, &e), LINNET_OK);
            assert_non_null(strstr(e.text, path));
        }
    }
    feed(&g, data, size);
    guarded_free(&g);
    unlink(path);
}

static void no_changed_byte_reads_outside_of_the_file(void **state)
{
    (void)state;
    struct raw r = small_model();
    struct guarded g = guarded_new(r.n);
    for (size_t i = 0; i < r.n; i++) {
        uint8_t kept = r.data[i];
        for (unsigned v = 0; v < 256; v++) {
            r.data[i] = (uint8_t)v;
            feed(&g, r.data, r.n);
        }
        r.data[i] = kept;
    }
    guarded_free(&g);
    raw_free(&r);
}

static void no_changed_number_reads_outside_of_the_file(void **state)
{
    (void)state;
    static const uint64_t numbers[] = {
        0,          1,          31,        0x7F,       0xFF,           1ull << 16, 1ull << 31,
        1ull << 32, 1ull << 61, INT64_MAX, 1ull << 63, UINT64_MAX - 7, UINT64_MAX};
    struct raw r = small_model();
    struct guarded g = guarded_new(r.n);
    for (size_t i = 0; i + 8 <= r.n; i++) {
        uint8_t kept[8];
        memcpy(kept, r.data + i, 8);
        for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++) {
            memcpy(r.data + i, &numbers[k], 4);
            feed(&g, r.data, r.n);
            memcpy(r.data + i, &numbers[k], 8);
            feed(&g, r.data, r.n);
            memcpy(r.data + i, kept, 8);
        }
    }
    guarded_free(&g);
    raw_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(other_versions_and_byte_orders_are_refused_by_name),
        cmocka_unit_test(a_version_2_file_reads_like_a_version_3_file),
        cmocka_unit_test(a_short_file_is_refused_at_every_length),
        cmocka_unit_test(counts_beyond_the_file_are_refused_and_cost_nothing),
        cmocka_unit_test(limits_hold_where_the_file_has_room),
        cmocka_unit_test(names_are_plain_text_of_bounded_length),
        cmocka_unit_test(a_name_appears_once),
        cmocka_unit_test(values_are_checked_when_the_file_is_opened),
        cmocka_unit_test(nested_arrays_are_passed_over_to_a_bounded_depth),
        cmocka_unit_test(alignment_is_a_sane_power_of_two),
        cmocka_unit_test(dimensions_are_1_to_4_and_not_zero),
        cmocka_unit_test(an_unknown_type_is_named_with_its_tensor),
        cmocka_unit_test(sizes_near_the_end_of_the_number_range_are_refused),
        cmocka_unit_test(sizes_agree_with_128_bit_arithmetic),
        cmocka_unit_test(data_lies_inside_the_file_and_nowhere_twice),
        cmocka_unit_test(the_layout_of_id_42_is_the_one_the_bytes_prove),
        cmocka_unit_test(no_truncation_reads_outside_of_the_file),
        cmocka_unit_test(a_real_model_cut_at_every_64_bytes_is_refused),
        cmocka_unit_test(no_changed_byte_reads_outside_of_the_file),
        cmocka_unit_test(no_changed_number_reads_outside_of_the_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
