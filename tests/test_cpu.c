#include "test.h"

#include "base/cpu.h"

#include <stdbool.h>

static void features_imply_what_they_are_built_on(void **state)
{
    (void)state;
    const struct cpu *c = cpu_features();
    assert_ptr_equal(c, cpu_features());
    assert_true(!c->avx512 || c->avx2);
    assert_true(!c->avx512_vnni || c->avx512);
    assert_true(!c->avx512_bf16 || c->avx512);
    assert_in_range(c->l1d, 8u << 10, 16u << 20);
    assert_in_range(c->l2, c->l1d, 1u << 30);
}

/* The kernel lists what a processor has in /proc/cpuinfo, the same words on every x86 machine. */
static void features_match_the_kernels_list(void **state)
{
    (void)state;
#if defined(__x86_64__)
    static char text[1 << 16];
    FILE *f = fopen("/proc/cpuinfo", "r");
    if (!f)
        skip();
    size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = '\0';
    const char *start = strstr(text, "\nflags");
    if (!start)
        skip();
    static char flags[sizeof text + 1];
    snprintf(flags, sizeof flags, "%.*s ", (int)strcspn(start + 1, "\n"), start + 1);
    const struct cpu *c = cpu_features();
    bool avx2 = strstr(flags, " avx2 ") && strstr(flags, " fma ") && strstr(flags, " f16c ") &&
                strstr(flags, " bmi2 ");
    bool avx512 = avx2 && strstr(flags, " avx512f ") && strstr(flags, " avx512bw ") &&
                  strstr(flags, " avx512dq ") && strstr(flags, " avx512vl ");
    assert_int_equal(c->avx2, avx2);
    assert_int_equal(c->avx512, avx512);
    assert_int_equal(c->avx512_vnni, avx512 && strstr(flags, " avx512_vnni "));
    assert_int_equal(c->avx512_bf16, avx512 && strstr(flags, " avx512_bf16 "));
#elif defined(__aarch64__)
    assert_true(cpu_features()->neon);
#else
    skip();
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(features_imply_what_they_are_built_on),
        cmocka_unit_test(features_match_the_kernels_list),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
