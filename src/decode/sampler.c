/*
 * Samplers: from logits to a token.
 *
 * Candidates are cut down in the order top-k, top-p, min-p and sampled at the temperature, as
 * llama.cpp does by default. Probabilities that decide what is kept are those at temperature 1.
 * Ties are broken by the lower id, so that nothing depends on a sort's whims.
 */
#include "base/err.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct candidate {
    float logit;
    int32_t id;
};

struct linnet_sampler {
    linnet_sampler_options o;
    uint64_t state;
    struct candidate *list; /* [cap] */
    size_t cap;
};

void linnet_sampler_defaults(linnet_sampler_options *options)
{
    *options = (linnet_sampler_options){
        .size = sizeof *options, .temp = 0.8f, .top_k = 40, .top_p = 0.95f, .min_p = 0.05f};
}

linnet_status linnet_sampler_create(const linnet_sampler_options *options, linnet_sampler **out,
                                    linnet_error *error)
{
    linnet_sampler_options o;
    linnet_sampler_defaults(&o);
    if (options && options->size != sizeof o)
        return err_set(
            error, LINNET_INVALID,
            "linnet_sampler_options of an unknown size: call linnet_sampler_defaults() first");
    if (options)
        o = *options;
    if (!(o.temp >= 0.0f && o.temp < INFINITY))
        return err_set(error, LINNET_INVALID, "temp is %g; it must be 0 or more", (double)o.temp);
    if (o.top_k < 0)
        return err_set(error, LINNET_INVALID, "top_k is %d; it must be 0 (off) or more", o.top_k);
    if (!(o.top_p > 0.0f && o.top_p <= 1.0f))
        return err_set(error, LINNET_INVALID, "top_p is %g; it must be above 0 and at most 1",
                       (double)o.top_p);
    if (!(o.min_p >= 0.0f && o.min_p <= 1.0f))
        return err_set(error, LINNET_INVALID, "min_p is %g; it must be in 0..1", (double)o.min_p);
    linnet_sampler *s = calloc(1, sizeof *s);
    if (!s)
        return err_memory(error, "a sampler", sizeof *s);
    s->o = o;
    s->state = o.seed;
    *out = s;
    return LINNET_OK;
}

void linnet_sampler_free(linnet_sampler *s)
{
    if (!s)
        return;
    free(s->list);
    free(s);
}

/* SplitMix64 (Steele, Lea, Flood 2014): uniform in [0, 1) with 53 bits. */
static double uniform(linnet_sampler *s)
{
    uint64_t z = s->state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    z ^= z >> 31;
    return (double)(z >> 11) * 0x1p-53;
}

/* Is a less likely than b? */
static bool below(struct candidate a, struct candidate b)
{
    return a.logit < b.logit || (a.logit == b.logit && a.id > b.id);
}

static int likeliest_first(const void *a, const void *b)
{
    return below(*(const struct candidate *)a, *(const struct candidate *)b) ? 1 : -1;
}

/* Restore the heap (least likely on top) below i. */
static void sift(struct candidate *heap, size_t n, size_t i)
{
    for (;;) {
        size_t least = i;
        for (size_t child = 2 * i + 1; child < n && child <= 2 * i + 2; child++)
            if (below(heap[child], heap[least]))
                least = child;
        if (least == i)
            return;
        struct candidate t = heap[i];
        heap[i] = heap[least];
        heap[least] = t;
        i = least;
    }
}

/* The k likeliest of logits, likeliest first, into s->list; returns their number. */
static size_t top_k(linnet_sampler *s, const float *logits, size_t n, size_t k)
{
    struct candidate *heap = s->list;
    for (size_t i = 0; i < k; i++)
        heap[i] = (struct candidate){logits[i], (int32_t)i};
    if (k < n) {
        for (size_t i = k / 2 + 1; i-- > 0;)
            sift(heap, k, i);
        for (size_t i = k; i < n; i++) {
            struct candidate c = {logits[i], (int32_t)i};
            if (below(heap[0], c)) {
                heap[0] = c;
                sift(heap, k, 0);
            }
        }
    }
    qsort(heap, k, sizeof *heap, likeliest_first);
    return k;
}

/* How many of the n candidates, likeliest first, top-p and then min-p keep. */
static size_t cut(const linnet_sampler *s, size_t n)
{
    double max = (double)s->list[0].logit, total = 0.0, sum = 0.0;
    size_t keep = n;
    if (s->o.top_p < 1.0f) {
        for (size_t i = 0; i < n; i++)
            total += exp((double)s->list[i].logit - max);
        for (keep = 0; keep < n && sum < (double)s->o.top_p * total; keep++)
            sum += exp((double)s->list[keep].logit - max);
    }
    if (s->o.min_p > 0.0f) {
        double least = max + log((double)s->o.min_p);
        while (keep > 1 && (double)s->list[keep - 1].logit < least)
            keep--;
    }
    return keep ? keep : 1;
}

linnet_status linnet_sampler_pick(linnet_sampler *s, const float *logits, size_t n_vocab,
                                  int32_t *token, linnet_error *error)
{
    float max = -INFINITY;
    size_t best = 0;
    for (size_t i = 0; i < n_vocab; i++) {
        if (!(logits[i] < INFINITY))
            return err_set(error, LINNET_NUMERIC,
                           "logit %zu is %g: the model's weights or activations overflow", i,
                           (double)logits[i]);
        if (logits[i] > max) {
            max = logits[i];
            best = i;
        }
    }
    if (max == -INFINITY)
        return err_set(error, LINNET_NUMERIC, "no token has a probability above 0");
    *token = (int32_t)best;
    if (s->o.temp == 0.0f)
        return LINNET_OK;
    size_t k = s->o.top_k && (size_t)s->o.top_k < n_vocab ? (size_t)s->o.top_k : n_vocab;
    if (n_vocab > s->cap) {
        struct candidate *bigger = realloc(s->list, n_vocab * sizeof *bigger);
        if (!bigger)
            return err_memory(error, "candidates", n_vocab * sizeof *bigger);
        s->list = bigger;
        s->cap = n_vocab;
    }
    size_t n = cut(s, top_k(s, logits, n_vocab, k));
    double total = 0.0, temp = (double)s->o.temp;
    for (size_t i = 0; i < n; i++)
        total += exp(((double)s->list[i].logit - (double)max) / temp);
    double u = uniform(s) * total;
    size_t i = 0;
    for (; i + 1 < n; i++) {
        u -= exp(((double)s->list[i].logit - (double)max) / temp);
        if (u < 0.0)
            break;
    }
    *token = s->list[i].id;
    return LINNET_OK;
}
