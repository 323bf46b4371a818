/* The fuzz target's properties over texts made by rule, in every run of the tests. */
#include "test.h"

#include "../fuzz/fuzz_vocab.c"

static uint32_t state = 12345;
static uint32_t pick(uint32_t below)
{
    state = state * 1664525 + 1013904223;
    return (state >> 9) % below;
}

static void properties_hold_for_texts_of_every_make(void **unused)
{
    (void)unused;
    static const char *const parts[] = {
        "a",
        "bc",
        "abc",
        " ",
        "\n",
        "1",
        "12",
        "'s",
        "<s>",
        "</s>",
        "<tool>",
        "<|im_end|>",
        ".",
        "\xC3\xA9",
        "e\xCC\x81",
        "\xE4\xB8\xAD",
        "\xE2\x96\x81",
        "\xFF",
        "\xC3",
        "\xF0\x9F\xA6\x99",
        "\xF0\x9F",
        "A",
        "\t",
        "<0x41>",
        "\xE2\x80\xA8",
    };
    for (int i = 0; i < 4000; i++) {
        uint8_t text[300];
        size_t n = 1;
        text[0] = (uint8_t)i; /* every vocabulary, every flag, also as a hostile file */
        for (uint32_t k = pick(40); k-- > 0;) {
            const char *p = parts[pick(sizeof parts / sizeof parts[0])];
            memcpy(text + n, p, strlen(p));
            n += strlen(p);
        }
        LLVMFuzzerTestOneInput(text, n);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(properties_hold_for_texts_of_every_make),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
