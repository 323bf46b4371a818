#include "test.h"

#include "quant/iq_grid.h"
#include "quant/quant.h"

#include <float.h>
#include <jansson.h>
#include <math.h>

static uint32_t bits_of(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

static float of_bits(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

/* Equal bits, or both NaN: which operand's NaN an operation returns is not fixed. */
static bool same(float a, float b)
{
    return bits_of(a) == bits_of(b) || (isnan(a) && isnan(b));
}

/* xorshift64*: the same data on every machine */
static uint64_t rng_state;

static uint32_t rng_u32(void)
{
    rng_state ^= rng_state >> 12;
    rng_state ^= rng_state << 25;
    rng_state ^= rng_state >> 27;
    return (uint32_t)(rng_state * 0x2545f4914f6cdd1dull >> 32);
}

/* bell-shaped, variance 1/2, within [-3, 3] */
static float rng_bell(void)
{
    float x = 0.0f;
    for (int i = 0; i < 6; i++)
        x += (float)(rng_u32() >> 8) * 0x1p-24f - 0.5f;
    return x;
}

/* --- golden data --- */

static void *load_golden(const char *name, size_t *size)
{
    char path[512];
    snprintf(path, sizeof path, "golden/dequant/%s", name);
    const char *full = test_shared(path);
    if (!full)
        return NULL;
    FILE *f = fopen(full, "rb");
    assert_non_null(f);
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    *size = (size_t)ftell(f);
    rewind(f);
    char *data = malloc(*size + 1);
    assert_non_null(data);
    assert_int_equal(fread(data, 1, *size, f), *size);
    data[*size] = '\0';
    fclose(f);
    return data;
}

static void check_golden(const json_t *entry)
{
    const char *name = json_string_value(json_object_get(entry, "name"));
    const struct quant_type *t =
        quant_type_of((uint32_t)json_integer_value(json_object_get(entry, "type_id")));
    if (!t)
        fail_msg("%s: not in the table", name);
    assert_string_equal(t->name, name);
    assert_int_equal(t->block, json_integer_value(json_object_get(entry, "block_size")));
    assert_int_equal(t->block_bytes, json_integer_value(json_object_get(entry, "bytes_per_block")));

    size_t bin_size, f32_size;
    uint8_t *bin = load_golden(json_string_value(json_object_get(entry, "bin")), &bin_size);
    float *want = load_golden(json_string_value(json_object_get(entry, "f32")), &f32_size);
    assert_non_null(bin);
    assert_non_null(want);
    const size_t n = (size_t)json_integer_value(json_object_get(entry, "n_blocks")) * t->block;
    assert_int_equal(bin_size, n / t->block * t->block_bytes);
    assert_int_equal(f32_size, n * sizeof(float));
    float *got = malloc(f32_size);
    assert_non_null(got);
    t->decode(bin, got, n);
    for (size_t i = 0; i < n; i++)
        if (bits_of(got[i]) != bits_of(want[i]))
            fail_msg("%s: element %zu is %a, not %a", name, i, (double)got[i], (double)want[i]);
    free(bin);
    free(want);
    free(got);
}

static void every_type_decodes_the_golden_blocks_bit_for_bit(void **state)
{
    (void)state;
    size_t size;
    char *text = load_golden("index.json", &size);
    if (!text) {
        test_skip_shared("golden dequantisation");
        return;
    }
    json_t *index = json_loads(text, 0, NULL);
    assert_true(json_is_array(index));
    size_t i;
    json_t *entry;
    json_array_foreach(index, i, entry) check_golden(entry);
    json_decref(index);
    free(text);
}

/* --- the table --- */

static void the_table_is_in_id_order_and_consistent(void **state)
{
    (void)state;
    uint64_t last = 0;
    for (size_t i = 0; i < quant_type_count(); i++) {
        const struct quant_type *t = quant_type_at(i);
        assert_true(i == 0 || t->id > last);
        last = t->id;
        assert_ptr_equal(quant_type_of(t->id), t);
        assert_ptr_equal(quant_type_named(t->name), t);
        assert_true(t->group == 0 || t->group == 16 || t->group == 32);
        assert_true((t->unpack != NULL) == (t->group != 0));
        assert_true((t->decode != NULL) == t->weight);
        assert_true(t->weight || !t->encode);
        if (t->group)
            assert_int_equal(t->block % t->group, 0);
        else
            assert_int_equal(t->block, 1);
    }
    assert_null(quant_type_at(quant_type_count()));
}

static void types_are_found_by_name_in_any_case(void **state)
{
    (void)state;
    assert_int_equal(quant_type_named("Q4_K")->id, QUANT_Q4_K);
    assert_int_equal(quant_type_named("q4_k")->id, QUANT_Q4_K);
    assert_string_equal(quant_type_named("Q4_K")->name, "q4_K");
    assert_int_equal(quant_type_named("BF16")->id, QUANT_BF16);
    assert_null(quant_type_named("q4"));
    assert_null(quant_type_named(""));
    assert_null(quant_type_of(4)); /* q4_2, removed from the format */
    assert_null(quant_type_of(UINT32_MAX));
}

static void the_two_layouts_of_type_42_are_separate_types(void **state)
{
    (void)state;
    const struct quant_type *a = quant_type_of(42), *b = quant_type_of(QUANT_Q2_0_G128);
    assert_int_equal(a->block, 64);
    assert_int_equal(a->block_bytes, 18);
    assert_int_equal(b->block, 128);
    assert_int_equal(b->block_bytes, 34);

    /* one block of 128 = two of 64 with the same scale */
    uint8_t wide[34], narrow[36];
    rng_state = 42;
    for (int i = 0; i < 32; i++)
        wide[2 + i] = (uint8_t)rng_u32();
    wide[0] = 0x00;
    wide[1] = 0xb8; /* -0.5 */
    memcpy(narrow, wide, 18);
    memcpy(narrow + 18, wide, 2);
    memcpy(narrow + 20, wide + 18, 16);
    float x[128], y[128];
    b->decode(wide, x, 128);
    a->decode(narrow, y, 128);
    assert_memory_equal(x, y, sizeof x);
    const int q = wide[2] & 3;
    assert_true(x[0] == -0.5f * (float)(q - 1));
}

static void row_bytes_refuses_partial_blocks_and_overflow(void **state)
{
    (void)state;
    size_t n = 7;
    assert_true(quant_row_bytes(quant_type_of(QUANT_Q4_K), 512, &n));
    assert_int_equal(n, 288);
    assert_false(quant_row_bytes(quant_type_of(QUANT_Q4_K), 64, &n));
    assert_false(quant_row_bytes(quant_type_of(QUANT_MXFP4), 33, &n));
    assert_int_equal(n, 288); /* not written on failure */
    assert_true(quant_row_bytes(quant_type_of(QUANT_F32), 3, &n));
    assert_int_equal(n, 12);
    assert_true(quant_row_bytes(quant_type_of(QUANT_Q8_0), 0, &n));
    assert_int_equal(n, 0);
    assert_false(quant_row_bytes(quant_type_of(QUANT_F64), UINT64_MAX / 4, &n));
    assert_false(quant_row_bytes(quant_type_of(QUANT_Q8_0), UINT64_MAX & ~31ull, &n));
}

/* --- 16-bit floats --- */

static double naive_f16(uint32_t h)
{
    const int e = h >> 10 & 31, m = h & 1023;
    const double sign = h & 0x8000 ? -1.0 : 1.0;
    if (e == 31)
        return m ? NAN : sign * INFINITY;
    return sign * (e ? ldexp(1024 + m, e - 25) : ldexp(m, -24));
}

static double naive_bf16(uint32_t h)
{
    const int e = h >> 7 & 255, m = h & 127;
    const double sign = h & 0x8000 ? -1.0 : 1.0;
    if (e == 255)
        return m ? NAN : sign * INFINITY;
    return sign * (e ? ldexp(128 + m, e - 134) : ldexp(m, -133));
}

struct half_format {
    float (*widen)(uint16_t);
    uint16_t (*narrow)(float);
    double (*naive)(uint32_t);
    uint32_t infinity;
    double overflow; /* what the value after the largest finite one would be */
};

static const struct half_format half_formats[2] = {
    {f16_to_f32, f32_to_f16, naive_f16, 0x7c00, 65536.0},
    {bf16_to_f32, f32_to_bf16, naive_bf16, 0x7f80, 0x1p128},
};

static void every_16_bit_value_widens_to_its_definition(void **state)
{
    (void)state;
    for (int f = 0; f < 2; f++) {
        for (uint32_t h = 0; h < 0x10000; h++) {
            const float x = half_formats[f].widen((uint16_t)h);
            const double want = half_formats[f].naive(h);
            if (isnan(want))
                assert_true(isnan(x));
            else
                assert_true((double)x == want && (h >> 15) == bits_of(x) >> 31);
        }
    }
}

static void every_16_bit_value_survives_widening_and_narrowing(void **state)
{
    (void)state;
    for (int f = 0; f < 2; f++) {
        const struct half_format *t = &half_formats[f];
        for (uint32_t h = 0; h < 0x10000; h++) {
            const uint16_t back = t->narrow(t->widen((uint16_t)h));
            if ((h & 0x7fff) > t->infinity)
                assert_true((back & 0x7fff) > t->infinity && (back ^ h) < 0x8000);
            else
                assert_int_equal(back, h);
        }
    }
}

/* Between every two neighbours: below the middle goes down, above goes up, the middle to the even
 * one. */
static void narrowing_rounds_to_nearest_ties_to_even(void **state)
{
    (void)state;
    for (int f = 0; f < 2; f++) {
        const struct half_format *t = &half_formats[f];
        for (uint32_t h = 0; h < t->infinity; h++) {
            const double a = t->naive(h);
            const double b = h + 1 == t->infinity ? t->overflow : t->naive(h + 1);
            const float mid = (float)((a + b) / 2); /* exact: f32 has more bits than both */
            const uint32_t even = h & 1 ? h + 1 : h;
            assert_int_equal(t->narrow(mid), even);
            assert_int_equal(t->narrow(nextafterf(mid, 0.0f)), h);
            assert_int_equal(t->narrow(nextafterf(mid, INFINITY)), h + 1);
            assert_int_equal(t->narrow(-mid), even | 0x8000);
        }
        assert_int_equal(t->narrow(INFINITY), t->infinity);
        assert_int_equal(t->narrow(-INFINITY), t->infinity | 0x8000);
        assert_true((t->narrow(of_bits(0x7f800001)) & 0x7fff) > t->infinity);
        assert_true(t->narrow(of_bits(0xffffffff)) > (t->infinity | 0x8000));
    }
    assert_int_equal(f32_to_f16(FLT_MAX), 0x7c00);
    assert_int_equal(f32_to_bf16(FLT_MAX), 0x7f80);
    assert_int_equal(f32_to_f16(FLT_TRUE_MIN), 0);
}

/* --- unpack and decode --- */

enum { RANDOM_BLOCKS = 512 };

static void unpacked_values_are_the_decoded_ones_on_any_bytes(void **state)
{
    (void)state;
    rng_state = 1;
    for (size_t k = 0; k < quant_type_count(); k++) {
        const struct quant_type *t = quant_type_at(k);
        if (!t->unpack)
            continue;
        for (int b = 0; b < RANDOM_BLOCKS; b++) {
            uint8_t src[256];
            int8_t q[257];
            float x[256], scale[17], min[17];
            for (size_t i = 0; i < t->block_bytes; i++)
                src[i] = (uint8_t)rng_u32();
            const uint32_t n_groups = t->block / t->group;
            q[t->block] = 77;
            scale[n_groups] = min[n_groups] = 77.0f;
            t->unpack(src, q, scale, min);
            t->decode(src, x, t->block);
            assert_true(q[t->block] == 77 && scale[n_groups] == 77.0f && min[n_groups] == 77.0f);
            for (uint32_t i = 0; i < t->block; i++) {
                const float product = scale[i / t->group] * (float)q[i];
                if (!same(product - min[i / t->group], x[i]))
                    fail_msg("%s: element %u of block %d", t->name, i, b);
                if (!t->has_min)
                    assert_int_equal(bits_of(min[i / t->group]), 0);
            }
        }
    }
}

static void decoding_does_not_depend_on_alignment_or_neighbours(void **state)
{
    (void)state;
    rng_state = 2;
    for (size_t k = 0; k < quant_type_count(); k++) {
        const struct quant_type *t = quant_type_at(k);
        if (!t->decode)
            continue;
        enum { BLOCKS = 5 };
        uint8_t data[BLOCKS * 256], moved[BLOCKS * 256 + 8];
        float x[BLOCKS * 256], y[256];
        const size_t bytes = t->block_bytes;
        for (size_t i = 0; i < BLOCKS * bytes; i++)
            data[i] = (uint8_t)rng_u32();
        t->decode(data, x, (size_t)BLOCKS * t->block);
        for (size_t shift = 1; shift < 8; shift++) {
            memcpy(moved + shift, data, BLOCKS * bytes);
            for (size_t b = 0; b < BLOCKS; b++) {
                t->decode(moved + shift + b * bytes, y, t->block);
                for (size_t i = 0; i < t->block; i++)
                    assert_true(same(y[i], x[b * t->block + i]));
            }
        }
    }
}

static uint64_t fnv1a(const void *data, size_t n)
{
    const uint8_t *p = data;
    uint64_t h = 0xcbf29ce484222325ull;
    for (size_t i = 0; i < n; i++)
        h = (h ^ p[i]) * 0x100000001b3ull;
    return h;
}

/* Vectors ascend when read with coordinate 0 as the least significant digit. */
static bool ascending(const int8_t *grid, size_t n, size_t width)
{
    for (size_t i = 1; i < n; i++) {
        const int8_t *a = grid + (i - 1) * width, *b = grid + i * width;
        size_t j = width;
        while (j > 0 && a[j - 1] == b[j - 1])
            j--;
        if (j == 0 || a[j - 1] > b[j - 1])
            return false;
    }
    return true;
}

static void codebooks_are_the_published_ones(void **state)
{
    (void)state;
    const struct {
        const int8_t *grid;
        size_t n, width;
        uint64_t hash;
    } books[] = {
        {iq1_grid[0], 2048, 8, 0x99649f4b16b0d5ddull},
        {iq2_xxs_grid[0], 256, 8, 0xbb4ee025b5ac6e8eull},
        {iq2_xs_grid[0], 512, 8, 0xc9b1ee61e79909bdull},
        {iq2_s_grid[0], 1024, 8, 0x123edd38a3b62b90ull},
        {iq3_xxs_grid[0], 256, 4, 0xdfa5dc83d6a155d5ull},
        {iq3_s_grid[0], 512, 4, 0xfa37020c25b44829ull},
    };
    for (size_t i = 0; i < sizeof books / sizeof books[0]; i++) {
        assert_true(ascending(books[i].grid, books[i].n, books[i].width));
        assert_true(fnv1a(books[i].grid, books[i].n * books[i].width) == books[i].hash);
    }
}

/* --- encoders --- */

enum { SAMPLES = 256 * 64 };

/* |error| <= bound * the largest magnitude of the 32 elements around it. */
static void check_error(const struct quant_type *t, const float *x, float bound)
{
    static uint8_t blocks[SAMPLES * 4];
    static float y[SAMPLES];
    t->encode(x, blocks, SAMPLES);
    t->decode(blocks, y, SAMPLES);
    for (size_t g = 0; g < SAMPLES; g += 32) {
        float top = 0.0f;
        for (size_t i = g; i < g + 32; i++)
            top = fmaxf(top, fabsf(x[i]));
        for (size_t i = g; i < g + 32; i++)
            if (!(fabsf(x[i] - y[i]) <= bound * top))
                fail_msg("%s: %a became %a beside %a", t->name, (double)x[i], (double)y[i],
                         (double)top);
    }
}

static void encoding_keeps_every_value_within_its_step(void **state)
{
    (void)state;
    static const struct {
        uint32_t id;
        float bound; /* of |error| / max|x| of its 32 elements */
    } bounds[] = {
        {QUANT_F32, 0.0f},
        {QUANT_F16, 1 / 2048.0f},
        {QUANT_BF16, 1 / 256.0f},
        {QUANT_Q8_0, 0.5f / 127 + 1e-3f},
        {QUANT_Q4_0,
         1.0f / 8 + 1e-3f}, /* the end opposite to the largest element is a step short */
        {QUANT_Q5_0, 1.0f / 16 + 1e-3f},
        {QUANT_Q4_1, 1.0f / 15 + 2e-3f}, /* half of 2 max / 15 */
        {QUANT_Q5_1, 1.0f / 31 + 2e-3f},
        {QUANT_Q4_K, 0.08f}, /* half of (2 max / 15), scale and minimum rounded up */
        {QUANT_Q5_K, 0.04f},
        {QUANT_Q6_K, 0.5f / 31 + 6e-3f},
        {QUANT_IQ4_NL, 14.0f / 127 + 1e-3f}, /* the positive end of the table is 113 */
        {QUANT_IQ4_XS, 0.14f},
        {QUANT_MXFP4, 1.0f / 4},
    };
    static float x[SAMPLES];
    rng_state = 3;
    for (int i = 0; i < SAMPLES; i++)
        x[i] = rng_bell() * 0.04f;
    size_t n_encoders = 0;
    for (size_t k = 0; k < quant_type_count(); k++)
        n_encoders += quant_type_at(k)->encode != NULL;
    assert_int_equal(n_encoders, sizeof bounds / sizeof bounds[0]); /* each has a bound here */
    for (size_t k = 0; k < sizeof bounds / sizeof bounds[0]; k++)
        check_error(quant_type_of(bounds[k].id), x, bounds[k].bound);
}

/* Groups of very unlike size within one super-block: each keeps the precision of its own scale,
 * down to what the super-block's 6 or 7 bits of scale can express. */
static void k_quants_cover_the_range_of_every_group(void **state)
{
    (void)state;
    static const uint32_t ids[] = {QUANT_Q4_K, QUANT_Q5_K, QUANT_Q6_K, QUANT_IQ4_XS};
    rng_state = 4;
    for (size_t k = 0; k < 4; k++) {
        const struct quant_type *t = quant_type_of(ids[k]);
        for (int rep = 0; rep < 64; rep++) {
            float x[256], y[256];
            uint8_t block[256];
            for (int g = 0; g < 8; g++)
                for (int i = 0; i < 32; i++)
                    x[32 * g + i] = (rng_bell() + 1.5f) * ldexpf(1.0f, -g);
            t->encode(x, block, 256);
            t->decode(block, y, 256);
            int8_t q[256];
            float scale[16], min[16];
            t->unpack(block, q, scale, min);
            for (uint32_t i = 0; i < 256; i++) {
                const float step = fabsf(scale[i / t->group]);
                const float half = t->id == QUANT_IQ4_XS ? 14.5f : 0.5f;
                assert_true(fabsf(x[i] - y[i]) <= half * step * 1.001f);
            }
        }
    }
}

static void encoding_decoded_blocks_again_changes_nothing(void **state)
{
    (void)state;
    static const uint32_t ids[] = {QUANT_F32,  QUANT_F16,  QUANT_BF16,   QUANT_Q8_0,
                                   QUANT_Q4_0, QUANT_Q5_0, QUANT_IQ4_NL, QUANT_MXFP4};
    static float x[SAMPLES], y[SAMPLES];
    static uint8_t a[SAMPLES * 4], b[SAMPLES * 4];
    rng_state = 5;
    for (int i = 0; i < SAMPLES; i++)
        x[i] = rng_bell() * 3.0f;
    for (size_t k = 0; k < sizeof ids / sizeof ids[0]; k++) {
        const struct quant_type *t = quant_type_of(ids[k]);
        size_t bytes;
        assert_true(quant_row_bytes(t, SAMPLES, &bytes));
        t->encode(x, a, SAMPLES);
        t->decode(a, y, SAMPLES);
        t->encode(y, b, SAMPLES);
        assert_memory_equal(a, b, bytes);
    }
}

static void simple_encoders_follow_the_reference_rounding(void **state)
{
    (void)state;
    float x[32] = {0};
    uint8_t b[64];

    /* q8_0: d = max|x| / 127, halves away from zero */
    x[0] = 127.0f;
    x[1] = 2.5f;
    x[2] = -2.5f;
    x[3] = 0.49999997f;
    quant_type_of(QUANT_Q8_0)->encode(x, b, 32);
    assert_int_equal(b[0] | b[1] << 8, 0x3c00);
    assert_int_equal((int8_t)b[2], 127);
    assert_int_equal((int8_t)b[3], 3);
    assert_int_equal((int8_t)b[4], -3);
    assert_int_equal((int8_t)b[5], 0);

    /* q4_0: the largest becomes code 0, so d is negative here; the opposite end is cut at 15 */
    x[0] = 8.0f;
    x[1] = -8.0f;
    x[2] = 0.5f; /* 7.5 + 0.5 truncated */
    x[3] = -0.5f;
    quant_type_of(QUANT_Q4_0)->encode(x, b, 32);
    assert_int_equal(b[0] | b[1] << 8, 0xbc00);
    assert_int_equal(b[2] & 15, 0);
    assert_int_equal(b[3] & 15, 15);
    assert_int_equal(b[4] & 15, 8);
    assert_int_equal(b[5] & 15, 9);
    assert_int_equal(b[2] >> 4, 8);

    /* q4_1: minimum and range */
    for (int i = 0; i < 32; i++)
        x[i] = 1.0f + 0.5f * (float)(i % 16);
    quant_type_of(QUANT_Q4_1)->encode(x, b, 32);
    assert_int_equal(b[0] | b[1] << 8, 0x3800);
    assert_int_equal(b[2] | b[3] << 8, 0x3c00);
    for (int i = 0; i < 16; i++)
        assert_int_equal(b[4 + i], i | i << 4);

    /* mxfp4: the largest in [4, 8) units; ties to the even code */
    memset(x, 0, sizeof x);
    x[0] = 7.0f;
    x[1] = -2.5f;
    x[2] = 3.5f;
    x[3] = 0.25f;
    quant_type_of(QUANT_MXFP4)->encode(x, b, 32);
    assert_int_equal(b[0], 127);
    assert_int_equal(b[1] & 15, 7);
    assert_int_equal(b[2] & 15, 8 | 4);
    assert_int_equal(b[3] & 15, 6);
    assert_int_equal(b[4] & 15, 0);
}

/* One bad value in the second of two blocks: the first block is untouched, the second all NaN
 * (mxfp4, which has no NaN: the value itself 0 or the largest, the rest finite). */
static void check_non_finite(const struct quant_type *t, float bad)
{
    float x[512], y[512];
    uint8_t blocks[512 * 4];
    for (size_t i = 0; i < 2 * t->block; i++)
        x[i] = rng_bell();
    x[t->block + t->block / 2] = bad;
    t->encode(x, blocks, 2 * t->block);
    t->decode(blocks, y, 2 * t->block);
    for (size_t i = 0; i < t->block; i++)
        assert_true(isfinite(y[i]));
    for (size_t i = t->block; i < 2 * t->block; i++) {
        if (t->id != QUANT_MXFP4)
            assert_true(t->block == 1 ? same(y[i], bad) : isnan(y[i]));
        else if (i == t->block + t->block / 2)
            assert_true(isnan(bad) ? y[i] == 0.0f : y[i] == copysignf(6 * 0x1p125f, bad));
        else
            assert_true(isfinite(y[i]));
    }
}

static void encoders_show_non_finite_input(void **state)
{
    (void)state;
    rng_state = 6;
    for (size_t k = 0; k < quant_type_count(); k++) {
        const struct quant_type *t = quant_type_at(k);
        if (!t->encode)
            continue;
        check_non_finite(t, NAN);
        check_non_finite(t, -NAN);
        check_non_finite(t, INFINITY);
        check_non_finite(t, -INFINITY);
    }
}

static void encoders_saturate_huge_input_and_keep_zero(void **state)
{
    (void)state;
    static const float sizes[] = {FLT_MAX, 1e30f, 1e9f, 1e-9f, FLT_MIN, FLT_TRUE_MIN, 0.0f};
    rng_state = 7;
    for (size_t k = 0; k < quant_type_count(); k++) {
        const struct quant_type *t = quant_type_at(k);
        if (!t->encode)
            continue;
        for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
            float x[256], y[256];
            uint8_t blocks[256 * 4];
            for (int i = 0; i < 256; i++)
                x[i] = rng_u32() & 1 ? sizes[s] : -sizes[s];
            t->encode(x, blocks, 256);
            t->decode(blocks, y, 256);
            for (int i = 0; i < 256; i++) {
                assert_true(t->block == 1 || isfinite(y[i]));
                /* below binary16's reach iq4 cannot say zero, only its smallest step */
                assert_true(fabsf(y[i]) < 1e-6f || (y[i] < 0.0f) == (x[i] < 0.0f));
                if (sizes[s] >= 1e9f)
                    assert_true(fabsf(y[i]) > 65503.0f);
                if (sizes[s] == 0.0f)
                    assert_true(y[i] == 0.0f);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type_decodes_the_golden_blocks_bit_for_bit),
        cmocka_unit_test(the_table_is_in_id_order_and_consistent),
        cmocka_unit_test(types_are_found_by_name_in_any_case),
        cmocka_unit_test(the_two_layouts_of_type_42_are_separate_types),
        cmocka_unit_test(row_bytes_refuses_partial_blocks_and_overflow),
        cmocka_unit_test(every_16_bit_value_widens_to_its_definition),
        cmocka_unit_test(every_16_bit_value_survives_widening_and_narrowing),
        cmocka_unit_test(narrowing_rounds_to_nearest_ties_to_even),
        cmocka_unit_test(unpacked_values_are_the_decoded_ones_on_any_bytes),
        cmocka_unit_test(decoding_does_not_depend_on_alignment_or_neighbours),
        cmocka_unit_test(codebooks_are_the_published_ones),
        cmocka_unit_test(encoding_keeps_every_value_within_its_step),
        cmocka_unit_test(k_quants_cover_the_range_of_every_group),
        cmocka_unit_test(encoding_decoded_blocks_again_changes_nothing),
        cmocka_unit_test(simple_encoders_follow_the_reference_rounding),
        cmocka_unit_test(encoders_show_non_finite_input),
        cmocka_unit_test(encoders_saturate_huge_input_and_keep_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
