#include "test.h"

#include "base/sha256.h"

static void check(const char *text, size_t times, size_t step, const char *want)
{
    struct sha256 h;
    uint8_t digest[SHA256_SIZE];
    char hex[SHA256_HEX];
    size_t n = strlen(text) * times;
    char *all = malloc(n + 1);
    assert_non_null(all);
    for (size_t i = 0; i < times; i++)
        memcpy(all + i * strlen(text), text, strlen(text));
    sha256_init(&h);
    for (size_t at = 0; at < n; at += step)
        sha256_update(&h, all + at, step < n - at ? step : n - at);
    sha256_final(&h, digest);
    sha256_hex(digest, hex);
    assert_string_equal(hex, want);
    free(all);
}

/* The examples of FIPS 180-2, appendix B, and the empty message. */
static void published_examples_have_their_digests(void **state)
{
    (void)state;
    check("", 1, 1, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    check("abc", 1, 3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    check("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 1, 100,
          "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    check("a", 1000000, 1000, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

static void pieces_of_any_size_give_the_same_digest(void **state)
{
    (void)state;
    const char *want = "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0";
    const size_t steps[] = {1, 55, 56, 63, 64, 65, 127, 1000000};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        check("a", 1000000, steps[i], want);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_examples_have_their_digests),
        cmocka_unit_test(pieces_of_any_size_give_the_same_digest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
