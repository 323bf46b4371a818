/*
 * Gemma 4, the text models (specification A8, B16).
 *
 *     a = x + N' attn(N x);  b = a + N' ffn(N a);  c = b + input(b);  x = s c
 *
 * Windowed and full layers have heads of different widths. The last layers of the small models read
 * the keys and values of earlier ones, and every layer has an input of its own; the 26B model adds
 * routed experts beside the feed-forward: N'_1 ffn(N a) + N'_2 experts(N_2 a), the router seeing a
 * in its own scaling.
 */
#include "model/arch/gemma.h"

#include <math.h>

struct gemma4 {
    const struct family *f;
    struct gemma_attention attn;
    uint32_t n_layer, d_input; /* width of a layer's own input; 0: layers have none */
    uint32_t d_ff[LIMIT_LAYERS];
    float eps;
};

static void read_all(struct loader *l, struct gemma4 *g)
{
    read_facts(l);
    g->n_layer = l->m->facts.n_layer;
    g->eps = key_eps(l, "attention.layer_norm_rms_epsilon");
    gemma_attention_read(l, &g->attn, g->f, g->eps, 0);
    g->attn.v_from_k = true;
    if (!key_u32_each(l, "feed_forward_length", g->n_layer, 1, LIMIT_WIDTH, g->d_ff))
        load_fail(l, LINNET_FORMAT, "metadata key '%s.feed_forward_length' is missing", l->arch);
    g->d_input = key_u32_or(l, "embedding_length_per_layer_input", 0, LIMIT_WIDTH, 0);
}

/* Router logits: of a over its root mean square and sqrt(d), times the vector
 * ffn_gate_inp.scale. */
static struct view router(struct loader *l, const struct gemma4 *g, struct view a)
{
    const uint32_t d = a.width, n_expert = key_u32(l, "expert_count", 1, LIMIT_EXPERTS);
    const float *scale = vec(l, "ffn_gate_inp.scale", d);
    float *w = ARENA_ARRAY(l->arena, d, float);
    if (!w)
        l->status = err_memory(l->e, "router scale", d * sizeof *w);
    for (uint32_t i = 0; w && scale && i < d; i++)
        w[i] = scale[i] / sqrtf((float)d);
    struct view r = plan_norm(l->p, "router_norm", NORM_RMS, a, w, NULL, g->eps);
    return plan_matmul(l->p, "router", mat_unscaled(l, "ffn_gate_inp", n_expert, d), NULL, r);
}

static struct view feed_forward(struct loader *l, const struct gemma4 *g, uint32_t il,
                                struct view a)
{
    struct view h = rms_norm(l, "ffn_norm", a, g->eps);
    struct view y =
        block_ffn(l, &(struct ffn_desc){.kind = g->f->ffn, .d_ff = g->d_ff[il], .suffix = ""}, h);
    if (!has(l, "ffn_gate_inp.weight"))
        return y;
    struct view logits = router(l, g, a);
    y = rms_norm(l, "post_ffw_norm_1", y, g->eps);
    h = rms_norm(l, "pre_ffw_norm_2", a, g->eps);
    struct view z = block_moe_with(l, g->f->moe, &(struct moe_extra){.logits = &logits}, h);
    plan_add(l->p, y, y, rms_norm(l, "post_ffw_norm_2", z, g->eps));
    return y;
}

static void layer(struct loader *l, struct gemma4 *g, uint32_t il, struct view x,
                  struct view inputs)
{
    struct plan *p = l->p;
    l->il = (int32_t)il;
    plan_begin_layer(p, l->il, x);
    struct view o = gemma_attention(l, &g->attn, il, rms_norm(l, "attn_norm", x, g->eps));
    plan_add(p, x, x, rms_norm(l, "post_attention_norm", o, g->eps));
    plan_add(p, x, x, rms_norm(l, "post_ffw_norm", feed_forward(l, g, il, x), g->eps));
    if (g->d_input)
        plan_add(p, x, x, block_layer_input(l, x, view_piece(inputs, il), g->eps));
    const float *scale = vec_opt(l, "layer_output_scale.weight", 1);
    if (scale)
        plan_scale(p, x, *scale);
}

void build_gemma4(struct loader *l, const struct family *f)
{
    struct gemma4 *g = ARENA_NEW(l->arena, struct gemma4);
    if (!g) {
        l->status = err_memory(l->e, "model description", sizeof *g);
        return;
    }
    g->f = f;
    read_all(l, g);
    const struct model_facts *m = &l->m->facts;
    struct view x = plan_embed(l->p, mat(l, "token_embd", m->n_vocab, m->d_model)),
                inputs = view_none();
    plan_scale(l->p, x, sqrtf((float)m->d_model));
    if (g->d_input)
        inputs = block_layer_inputs(l, g->n_layer, g->d_input, x, g->eps);
    for (uint32_t il = 0; il < g->n_layer && l->status == LINNET_OK; il++)
        layer(l, g, il, x, inputs);
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
