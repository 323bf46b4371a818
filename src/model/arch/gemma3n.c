/*
 * Gemma 3n, the text model (specification A7, B15): AltUp around every layer, and inside it
 *
 *     h = N x;  laurel = h + N'' W_r W_l h;  a = (x + N' attn(h) + laurel) / sqrt(2);  y = a + N'
 * ffn(N a)
 *
 * The last layers have no keys and values of their own. The gates of some layers are sparse.
 */
#include "model/arch/gemma.h"

#include <math.h>

struct gemma3n {
    const struct family *f;
    struct gemma_attention attn;
    struct altup altup;
    uint32_t n_layer, d_input; /* width of a layer's own input */
    uint32_t d_ff[LIMIT_LAYERS];
    float sparsity[LIMIT_LAYERS]; /* not finite: dense */
    float eps;
};

/* Files without the key are sparse in the first ten layers, to 5 % of a normal distribution. */
static void read_sparsity(struct loader *l, struct gemma3n *g)
{
    for (uint32_t i = 0; i < g->n_layer; i++)
        g->sparsity[i] = i < 10 ? 1.6448533535003662f : -INFINITY;
    key_f32_each(l, "activation_sparsity_scale", g->n_layer, -INFINITY, FLT_MAX, g->sparsity);
}

static void read_all(struct loader *l, struct gemma3n *g)
{
    read_facts(l);
    g->n_layer = l->m->facts.n_layer;
    g->eps = key_eps(l, "attention.layer_norm_rms_epsilon");
    uint32_t shared = g->n_layer > 20 ? g->n_layer - 20 : 0;
    gemma_attention_read(l, &g->attn, g->f, g->eps, shared);
    if (!key_u32_each(l, "feed_forward_length", g->n_layer, 2, LIMIT_WIDTH, g->d_ff))
        load_fail(l, LINNET_FORMAT, "metadata key '%s.feed_forward_length' is missing", l->arch);
    read_sparsity(l, g);
    g->d_input = key_u32_or(l, "embedding_length_per_layer_input", 1, LIMIT_WIDTH, 256);
    uint32_t n = key_u32_or(l, "altup.num_inputs", 1, 64, 4);
    g->altup = (struct altup){.n = n,
                              .active = key_u32_or(l, "altup.active_idx", 0, n - 1, 0),
                              .d = l->m->facts.d_model,
                              .eps = g->eps};
}

static struct view laurel(struct loader *l, const struct gemma3n *g, struct view h)
{
    uint64_t rank = tensor_dim(l, "laurel_l.weight", 1);
    struct view t = plan_matmul(l->p, "laurel", mat(l, "laurel_l", rank, h.width), NULL, h);
    struct view y = plan_matmul(l->p, "laurel_out", mat(l, "laurel_r", h.width, rank), NULL, t);
    plan_norm_pieces(l->p, NORM_RMS, y, vec(l, "laurel_post_norm.weight", h.width), NULL, g->eps,
                     false);
    plan_add(l->p, y, y, h);
    return y;
}

/* The layer's output for its input x. */
static struct view layer(struct loader *l, struct gemma3n *g, uint32_t il, struct view x)
{
    struct plan *p = l->p;
    struct view h = rms_norm(l, "attn_norm", x, g->eps);
    struct view a = rms_norm(l, "post_attention_norm", gemma_attention(l, &g->attn, il, h), g->eps);
    plan_add(p, a, a, x);
    plan_add(p, a, a, laurel(l, g, h));
    plan_scale(p, a, sqrtf(0.5f));
    struct view y = block_ffn(l,
                              &(struct ffn_desc){.kind = g->f->ffn,
                                                 .d_ff = g->d_ff[il],
                                                 .suffix = "",
                                                 .sparse = isfinite(g->sparsity[il]),
                                                 .sparsity = g->sparsity[il]},
                              rms_norm(l, "ffn_norm", a, g->eps));
    y = rms_norm(l, "post_ffw_norm", y, g->eps);
    plan_add(p, y, y, a);
    return y;
}

void build_gemma3n(struct loader *l, const struct family *f)
{
    struct gemma3n *g = ARENA_NEW(l->arena, struct gemma3n);
    if (!g) {
        l->status = err_memory(l->e, "model description", sizeof *g);
        return;
    }
    g->f = f;
    read_all(l, g);
    const struct model_facts *m = &l->m->facts;
    struct view e = plan_embed(l->p, mat(l, "token_embd", m->n_vocab, m->d_model));
    plan_scale(l->p, e, sqrtf((float)m->d_model));
    struct view inputs = block_layer_inputs(l, g->n_layer, g->d_input, e, g->eps);
    altup_begin(l, &g->altup, e);
    for (uint32_t il = 0; il < g->n_layer && l->status == LINNET_OK; il++) {
        l->il = (int32_t)il;
        plan_begin_layer(l->p, l->il, g->altup.streams);
        struct view x = altup_predict(l, &g->altup);
        altup_correct(l, &g->altup, layer(l, g, il, x), view_piece(inputs, il));
    }
    l->il = -1;
    plan_begin_layer(l->p, -1, g->altup.streams);
    struct view x = altup_end(l, &g->altup, plan_select(l->p, g->altup.streams));
    build_head(
        l,
        &(struct head_desc){.norm_name = "output_norm",
                            .norm = f->norm,
                            .norm_bias = f->norm_bias,
                            .eps = g->eps,
                            .tie = f->tie,
                            .logit_mul = 1.0f,
                            .softcap = softcap_key(l, "final_logit_softcapping", f->final_softcap)},
        x);
}
