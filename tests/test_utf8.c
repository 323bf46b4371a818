#include "test.h"

#include "base/utf8.h"

#include <stdbool.h>

/* A decoder by the definition: a sequence is a character exactly when its bits, put together for
 * some length, are a scalar value whose encoding is the sequence. Returns the length, 0 when there
 * is none. */
static size_t naive_decode(const unsigned char *s, size_t n, uint32_t *cp)
{
    for (size_t len = 1; len <= 4 && len <= n; len++) {
        uint32_t c = len == 1 ? s[0] : s[0] & (0xFFu >> (len + 1));
        for (size_t i = 1; i < len; i++)
            c = c << 6 | (s[i] & 0x3F);
        if (c > 0x10FFFF || (c >= 0xD800 && c <= 0xDFFF))
            continue;
        char out[4];
        if (utf8_encode(c, out) == len && memcmp(out, s, len) == 0) {
            *cp = c;
            return len;
        }
    }
    return 0;
}

static void every_scalar_value_survives_encoding_and_decoding(void **state)
{
    (void)state;
    for (uint32_t c = 0; c <= 0x10FFFF; c++) {
        if (c >= 0xD800 && c <= 0xDFFF)
            continue;
        char out[4];
        uint32_t back = 0;
        size_t n = utf8_encode(c, out);
        size_t expected = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
        assert_int_equal(n, expected);
        assert_int_equal(utf8_length((unsigned char)out[0]), n);
        assert_int_equal(utf8_decode(out, n, &back), n);
        assert_int_equal(back, c);
        assert_int_equal(utf8_valid_prefix(out, n), n);
        assert_int_equal(utf8_incomplete_tail(out, n), 0);
        for (size_t cut = 1; cut < n; cut++) {
            assert_int_equal(utf8_incomplete_tail(out, cut), cut);
            assert_int_equal(utf8_decode(out, cut, &back), cut);
            assert_int_equal(back, UTF8_REPLACEMENT);
            assert_int_equal(utf8_valid_prefix(out, cut), 0);
        }
    }
}

static void encoding_matches_known_bytes(void **state)
{
    (void)state;
    static const struct {
        uint32_t cp;
        const char *bytes;
    } known[] = {{0x24, "$"},
                 {0xA3, "\xC2\xA3"},
                 {0x939, "\xE0\xA4\xB9"},
                 {0x20AC, "\xE2\x82\xAC"},
                 {0xD55C, "\xED\x95\x9C"},
                 {0x10348, "\xF0\x90\x8D\x88"},
                 {0x10FFFF, "\xF4\x8F\xBF\xBF"}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        char out[4];
        size_t n = utf8_encode(known[i].cp, out);
        assert_int_equal(n, strlen(known[i].bytes));
        assert_memory_equal(out, known[i].bytes, n);
    }
}

/* Decode all of `s` and check the code points; 0 ends the list. */
static void check_decoding(const char *s, size_t n, const uint32_t *expected)
{
    size_t i = 0, k = 0;
    while (i < n) {
        uint32_t cp = 0;
        size_t len = utf8_decode(s + i, n - i, &cp);
        assert_in_range(len, 1, 4);
        assert_int_equal(cp, expected[k++]);
        i += len;
    }
    assert_int_equal(i, n);
    assert_int_equal(expected[k], 0);
}

/* The examples of the Unicode standard, section 3.9, tables 3-8 to 3-11. */
static void ill_formed_sequences_are_replaced_by_maximal_subparts(void **state)
{
    (void)state;
    const uint32_t R = UTF8_REPLACEMENT;
    static const char non_shortest[] = "\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41";
    check_decoding(non_shortest, 9, (uint32_t[]){R, R, R, R, R, R, R, R, 0x41, 0});
    static const char surrogates[] = "\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41";
    check_decoding(surrogates, 9, (uint32_t[]){R, R, R, R, R, R, R, R, 0x41, 0});
    static const char others[] = "\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42";
    check_decoding(others, 9, (uint32_t[]){R, R, R, R, R, 0x41, R, R, 0x42, 0});
    static const char truncated[] = "\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41";
    check_decoding(truncated, 9, (uint32_t[]){R, R, R, R, 0x41, 0});
    static const char mixed[] = "\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64";
    check_decoding(mixed, 13, (uint32_t[]){0x61, R, R, R, 0x62, R, 0x63, R, R, 0x64, 0});
}

static void every_three_byte_string_decodes_like_the_definition(void **state)
{
    (void)state;
    for (uint32_t v = 0; v < 1u << 24; v += v % 7 + 1) {
        unsigned char s[4] = {(unsigned char)(v >> 16), (unsigned char)(v >> 8), (unsigned char)v,
                              0x80};
        uint32_t cp = 0, want = 0;
        size_t n = utf8_decode((char *)s, 4, &cp), expected = naive_decode(s, 4, &want);
        if (expected) {
            if (n != expected || cp != want)
                fail_msg("%02X %02X %02X 80", s[0], s[1], s[2]);
        } else if (cp != UTF8_REPLACEMENT || n < 1 || n > 3) {
            fail_msg("%02X %02X %02X 80 is ill-formed", s[0], s[1], s[2]);
        }
        assert_true((utf8_valid_prefix((char *)s, 4) == 0) == (expected == 0));
    }
}

static void impossible_lead_bytes_have_no_length(void **state)
{
    (void)state;
    for (unsigned b = 0; b < 256; b++) {
        size_t expected = b < 0x80   ? 1
                          : b < 0xC2 ? 0
                          : b < 0xE0 ? 2
                          : b < 0xF0 ? 3
                          : b < 0xF5 ? 4
                                     : 0;
        assert_int_equal(utf8_length((unsigned char)b), expected);
    }
}

static void only_completable_tails_are_held_back(void **state)
{
    (void)state;
    static const struct {
        const char *s;
        size_t tail;
    } cases[] = {
        {"", 0},
        {"a", 0},
        {"a\xC3", 1},
        {"\xE2\x82", 2},
        {"x\xF0\x9F\x98", 3},
        {"\xF0\x9F\x98\x80", 0},
        {"\xE2\x82\xAC\xE2", 1},
        {"\x80", 0}, /* no lead byte */
        {"\x80\x80\x80\x80", 0},
        {"\xE0\x80", 0}, /* overlong whatever follows */
        {"\xED\xA0", 0}, /* surrogate whatever follows */
        {"\xF4\x90", 0}, /* above U+10FFFF whatever follows */
        {"\xC0", 0},
        {"\xFF", 0},
        {"\xC3\xA9\x80", 0}, /* complete, then a stray byte */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(utf8_incomplete_tail(cases[i].s, strlen(cases[i].s)), cases[i].tail);
}

static void valid_prefix_stops_at_the_first_bad_byte(void **state)
{
    (void)state;
    static const char s[] = "h\xC3\xA9llo \xE2\x82\xAC \xF0\x9F\x98\x80";
    assert_int_equal(utf8_valid_prefix(s, sizeof s - 1), sizeof s - 1);
    assert_int_equal(utf8_valid_prefix(s, sizeof s - 2), sizeof s - 5);
    assert_int_equal(utf8_valid_prefix("ab\xFFzz", 5), 2);
    assert_int_equal(utf8_valid_prefix("\0\0", 2), 2);
    assert_int_equal(utf8_valid_prefix("", 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_scalar_value_survives_encoding_and_decoding),
        cmocka_unit_test(encoding_matches_known_bytes),
        cmocka_unit_test(ill_formed_sequences_are_replaced_by_maximal_subparts),
        cmocka_unit_test(every_three_byte_string_decodes_like_the_definition),
        cmocka_unit_test(impossible_lead_bytes_have_no_length),
        cmocka_unit_test(only_completable_tails_are_held_back),
        cmocka_unit_test(valid_prefix_stops_at_the_first_bad_byte),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
