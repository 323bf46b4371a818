/*
 * What the attention of Gemma 3n and 4 has in common (specification A8, A11.3 to A11.6): scores are
 * not scaled, values are normed without weights, and a layer without keys and values reads those of
 * the last layer of its kind that has.
 */
#include "model/arch/gemma.h"

static void read_widths(struct loader *l, struct gemma_attention *g)
{
    uint32_t d_v[2];
    g->d_head[0] = g->heads.d_k;
    d_v[0] = g->heads.d_v;
    g->d_head[1] = key_u32_or(l, "attention.key_length_swa", 1, LIMIT_WIDTH, g->heads.d_k);
    d_v[1] = key_u32_or(l, "attention.value_length_swa", 1, LIMIT_WIDTH, g->d_head[1]);
    for (int i = 0; i < 2; i++)
        if (d_v[i] != g->d_head[i])
            load_fail(l, LINNET_FORMAT,
                      "metadata keys '%s.attention.key_length%s' and value_length%s are %u and %u; "
                      "they must be equal",
                      l->arch, i ? "_swa" : "", i ? "_swa" : "", g->d_head[i], d_v[i]);
}

static void read_rotation(struct loader *l, struct gemma_attention *g)
{
    uint32_t n_rot[2];
    struct rope_scaling scaling = rope_scaling_read(l, g->f->yarn_keys);
    n_rot[0] = key_u32_or(l, "rope.dimension_count", 1, LIMIT_WIDTH, g->d_head[0]);
    n_rot[1] = key_u32_or(l, "rope.dimension_count_swa", 1, LIMIT_WIDTH,
                          g->d_head[1] == g->d_head[0] ? n_rot[0] : g->d_head[1]);
    for (int i = 0; i < 2; i++)
        if (n_rot[i] > g->d_head[i])
            load_fail(l, LINNET_FORMAT,
                      "metadata key '%s.rope.dimension_count%s' is %u, more than a head's %u",
                      l->arch, i ? "_swa" : "", n_rot[i], g->d_head[i]);
    float base = key_rope_base(l, "rope.freq_base", 10000.0f),
          base_swa = key_rope_base(l, "rope.freq_base_swa", 10000.0f);
    g->rope[0] = rope_resolve(l, n_rot[0], base, &scaling,
                              rope_factors(l, "rope_freqs.weight", n_rot[0] / 2), NULL, 0.0f);
    g->rope[1] = rope_resolve(l, n_rot[1], base_swa, NULL, NULL, NULL, 0.0f);
}

void gemma_attention_read(struct loader *l, struct gemma_attention *g, const struct family *f,
                          float eps, uint32_t shared)
{
    const uint32_t n_layer = l->m->facts.n_layer;
    bool any = false;
    g->f = f;
    g->eps = eps;
    read_heads(l, n_layer, false, &g->heads);
    if (f->window == WINDOW_REQUIRED && !key_present(l, "attention.sliding_window_pattern"))
        load_fail(l, LINNET_FORMAT, "metadata key '%s.attention.sliding_window_pattern' is missing",
                  l->arch);
    read_pattern(l, n_layer, f->window_period, g->windowed);
    for (uint32_t i = 0; i < n_layer; i++)
        any |= g->windowed[i] != 0;
    g->window = any ? key_u32(l, "attention.sliding_window", 1, INT32_MAX) : 0;
    key_ignore(l, "attention.sliding_window");
    read_widths(l, g);
    read_rotation(l, g);
    shared = key_u32_or(l, "attention.shared_kv_layers", 0, LIMIT_LAYERS, shared);
    g->n_own = shared < n_layer ? n_layer - shared : 0;
    if (shared && g->n_own < 2)
        load_fail(l, LINNET_FORMAT,
                  "metadata key '%s.attention.shared_kv_layers' is %u of %u layers; two must have "
                  "keys of their own",
                  l->arch, shared, n_layer);
}

/* The layer whose keys and values layer il reads. */
static uint32_t source(struct loader *l, const struct gemma_attention *g, uint32_t il)
{
    uint32_t from = g->windowed[il] ? g->n_own - 2 : g->n_own - 1;
    if (g->windowed[from] != g->windowed[il] || g->heads.n[il] % g->heads.n_kv[from])
        load_fail(
            l, LINNET_FORMAT,
            "metadata key '%s.attention.shared_kv_layers' leaves layer %u without keys of its "
            "own, and it cannot read those of layer %u: window or heads differ",
            l->arch, il, from);
    return from;
}

struct view gemma_attention(struct loader *l, struct gemma_attention *g, uint32_t il, struct view h)
{
    struct attn_desc attn = attn_plain(&g->heads, il);
    attn.d_k = attn.d_v = g->d_head[g->windowed[il]];
    attn.qk_norm = g->f->qk_norm;
    attn.norm = g->f->norm;
    attn.eps = g->eps;
    attn.rope = g->f->pairs;
    attn.table = g->rope[g->windowed[il]];
    attn.window = g->windowed[il] ? g->window : 0;
    attn.scale = 1.0f;
    attn.v_norm = true;
    attn.v_from_k = g->v_from_k && !g->windowed[il];
    if (il < g->n_own) {
        struct view o = block_attention(l, &attn, h);
        g->slot[il] = (uint32_t)l->p->n_kvs - 1;
        return o;
    }
    static const char *const unused[] = {"attn_k.weight", "attn_v.weight", "attn_k_norm.weight"};
    for (size_t i = 0; i < sizeof unused / sizeof *unused; i++)
        tensor_ignore(l, unused[i]);
    attn.kv = &g->slot[source(l, g, il)];
    return block_attention(l, &attn, h);
}
