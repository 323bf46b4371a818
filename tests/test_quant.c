#include "test.h"

#include "quant/quant.h"

#include <jansson.h>
#include <math.h>

static uint32_t bits_of(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

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
        return;
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

static void types_in_the_table_decode_the_golden_blocks_bit_for_bit(void **state)
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
    json_array_foreach(index, i, entry)
        check_golden(entry);
    json_decref(index);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(types_in_the_table_decode_the_golden_blocks_bit_for_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
