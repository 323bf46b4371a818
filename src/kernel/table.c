/*
 * The kernel tables that were compiled in, and the choice among them by what the machine supports.
 */
#include "kernel/tile.h"

/* Best first. */
static const struct kernels *const tables[] = {
#if defined(__x86_64__)
    &kernels_avx512vnni,
    &kernels_avx512,
    &kernels_avx2,
#elif defined(__aarch64__)
    &kernels_dotprod,
    &kernels_neon,
#endif
    &kernels_generic,
};

enum { N_TABLES = sizeof tables / sizeof tables[0] };

const struct kernels *kernels_best(void)
{
    for (size_t i = 0; i < N_TABLES; i++)
        if (tables[i]->supported())
            return tables[i];
    return &kernels_generic;
}

const struct kernels *kernels_named(const char *name)
{
    for (size_t i = 0; i < N_TABLES; i++)
        if (strcmp(tables[i]->name, name) == 0)
            return tables[i]->supported() ? tables[i] : NULL;
    return NULL;
}

size_t kernels_count(void)
{
    return N_TABLES;
}

const struct kernels *kernels_at(size_t i)
{
    return i < N_TABLES ? tables[i] : NULL;
}
