/*
 * CPU features: instruction sets that both the processor and the operating system support, and the
 * sizes of the caches of one core.
 *
 * x86-64 is asked with CPUID, and XGETBV for the registers the system saves on a context switch.
 * aarch64 is asked through the auxiliary vector. Cache sizes come from sysfs; where it is not
 * mounted a size that every supported core has is assumed.
 */
#include "base/cpu.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

static struct cpu machine;
static pthread_once_t once = PTHREAD_ONCE_INIT;

#if defined(__x86_64__)

/* XCR0: which register sets the operating system saves. */
static unsigned xcr0(void)
{
    unsigned low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

static bool has(unsigned reg, unsigned mask)
{
    return (reg & mask) == mask;
}

static void read_features(struct cpu *c)
{
    enum { SAVES_YMM = 0x06, SAVES_ZMM = 0xE6 };
    unsigned a, b, d, leaf1_c, leaf7_b, leaf7_c, leaf71_a = 0;
    if (!__get_cpuid(1, &a, &b, &leaf1_c, &d) || !has(leaf1_c, bit_OSXSAVE))
        return;
    unsigned saved = xcr0();
    if (!has(saved, SAVES_YMM) || !__get_cpuid_count(7, 0, &a, &leaf7_b, &leaf7_c, &d))
        return;
    unsigned max_subleaf = a;
    c->avx2 = has(leaf1_c, bit_AVX | bit_FMA | bit_F16C) && has(leaf7_b, bit_AVX2 | bit_BMI2);
    c->avx512 =
        c->avx2 && has(saved, SAVES_ZMM) &&
        has(leaf7_b, (unsigned)bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | (unsigned)bit_AVX512VL);
    c->avx512_vnni = c->avx512 && has(leaf7_c, bit_AVX512VNNI);
    if (max_subleaf >= 1 && __get_cpuid_count(7, 1, &leaf71_a, &b, &a, &d))
        c->avx512_bf16 = c->avx512 && has(leaf71_a, bit_AVX512BF16);
}

#elif defined(__aarch64__)

static void read_features(struct cpu *c)
{
    /* Bit numbers of the Linux user interface, spelled out for older C libraries. */
    const unsigned long dotprod = 1ul << 20, i8mm = 1ul << 13;
    c->neon = true;
    c->dotprod = (getauxval(AT_HWCAP) & dotprod) != 0;
    c->i8mm = (getauxval(AT_HWCAP2) & i8mm) != 0;
}

#else

static void read_features(struct cpu *c)
{
    (void)c;
}

#endif

/* First line of a file of /sys, without its newline; false when unreadable. */
static bool read_line(const char *path, char *out, int size)
{
    FILE *f = fopen(path, "re");
    if (!f)
        return false;
    bool ok = fgets(out, size, f) != NULL;
    fclose(f);
    if (ok)
        out[strcspn(out, "\n")] = '\0';
    return ok;
}

/* Sizes of the first processor's data caches: entries "index*" with level, type, and a size in KiB.
 */
static void read_caches(struct cpu *c)
{
    c->l1d = 32u << 10;
    c->l2 = 256u << 10;
    for (unsigned i = 0; i < 8; i++) {
        char path[128], level[16], type[32], size[32];
        const char *dir = "/sys/devices/system/cpu/cpu0/cache/index";
        snprintf(path, sizeof path, "%s%u/level", dir, i);
        if (!read_line(path, level, sizeof level))
            return;
        snprintf(path, sizeof path, "%s%u/type", dir, i);
        if (!read_line(path, type, sizeof type) || strcmp(type, "Instruction") == 0)
            continue;
        snprintf(path, sizeof path, "%s%u/size", dir, i);
        unsigned kib;
        if (!read_line(path, size, sizeof size) || sscanf(size, "%9uK", &kib) != 1 || kib == 0)
            continue;
        if (strcmp(level, "1") == 0)
            c->l1d = (size_t)kib << 10;
        else if (strcmp(level, "2") == 0)
            c->l2 = (size_t)kib << 10;
    }
}

static void read_machine(void)
{
    read_features(&machine);
    read_caches(&machine);
}

const struct cpu *cpu_features(void)
{
    pthread_once(&once, read_machine);
    return &machine;
}
