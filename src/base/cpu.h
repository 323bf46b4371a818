/*
 * CPU features, read once. Only what kernels are chosen by.
 */
#ifndef LINNET_BASE_CPU_H
#define LINNET_BASE_CPU_H

#include <stdbool.h>
#include <stddef.h>

struct cpu {
    /* x86-64; every flag includes the operating system's support for the registers */
    bool avx2;        /* AVX2, FMA, F16C, BMI2 */
    bool avx512;      /* AVX-512 F, BW, DQ, VL and all of avx2 */
    bool avx512_vnni; /* and VNNI */
    bool avx512_bf16; /* and BF16 */
    /* aarch64 */
    bool neon;      /* always on aarch64 */
    bool dotprod;   /* sdot, udot */
    bool i8mm;      /* smmla, usdot */
    size_t l1d, l2; /* bytes per core; a safe guess where the system does not say */
};

/* The machine's features; the same pointer every time, valid for ever. Thread-safe. */
const struct cpu *cpu_features(void);

#endif
