#include "test.h"

#include "base/arena.h"
#include "base/err.h"

static void error_text_is_cut_at_a_character_boundary(void **state)
{
    (void)state;
    linnet_error e;
    char long_text[2000];
    for (size_t i = 0; i + 2 < sizeof long_text; i += 2)
        memcpy(long_text + i, "\xC3\xA9", 2);
    long_text[1998] = '\0';
    assert_int_equal(err_set(&e, LINNET_FORMAT, "x%s", long_text), LINNET_FORMAT);
    size_t n = strlen(e.text);
    assert_true(n >= sizeof e.text - 3);
    assert_int_equal((unsigned char)e.text[n - 1], 0xA9);
}

static void arena_refuses_more_than_its_maximum(void **state)
{
    (void)state;
    struct arena a;
    arena_init(&a, 1024);
    assert_non_null(arena_alloc(&a, 10, 10));
    assert_null(arena_alloc(&a, SIZE_MAX / 2, 3));
    assert_null(arena_alloc(&a, 1000, 1));
    assert_non_null(arena_alloc(&a, 800, 1));
    arena_free(&a);
    assert_string_equal(arena_printf(&a, "%d-%s", 7, "x"), "7-x");
    arena_free(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(error_text_is_cut_at_a_character_boundary),
        cmocka_unit_test(arena_refuses_more_than_its_maximum),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
