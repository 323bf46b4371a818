/*
 * RWKV-7 "Goose" (arXiv 2503.14456; specification F24).
 *
 *     x += time_mix(N x);  x += channel_mix(N' x)
 *
 * with layer norms, one of them over the embeddings. What a session keeps of a text is the row
 * before, twice a layer, and a state per head.
 */
#include "base/limits.h"
#include "model/family.h"

static struct rwkv_desc read_all(struct loader *l)
{
    read_facts(l);
    struct rwkv_desc r = {.d = l->m->facts.d_model};
    r.eps = key_eps(l, "attention.layer_norm_epsilon");
    r.d_head = key_u32(l, "wkv.head_size", 1, LIMIT_WIDTH);
    r.d_ff = key_u32(l, "feed_forward_length", 1, LIMIT_WIDTH);
    r.rank_w = key_u32(l, "attention.decay_lora_rank", 1, LIMIT_WIDTH);
    r.rank_a = key_u32(l, "attention.iclr_lora_rank", 1, LIMIT_WIDTH);
    r.rank_v = key_u32(l, "attention.value_residual_mix_lora_rank", 1, LIMIT_WIDTH);
    r.rank_g = key_u32(l, "attention.gate_lora_rank", 1, LIMIT_WIDTH);
    key_u32_or(l, "token_shift_count", 2, 2, 2);    /* other numbers are other models */
    key_u32_or(l, "attention.head_count", 0, 0, 0); /* required by writers, and always 0 */
    if (r.d % r.d_head)
        load_fail(l, LINNET_FORMAT,
                  "metadata key '%s.wkv.head_size' is %u and does not divide the width %u", l->arch,
                  r.d_head, r.d);
    return r;
}

void build_rwkv7(struct loader *l, const struct family *f)
{
    struct rwkv_desc r = read_all(l);
    struct view x = plan_embed(l->p, mat(l, "token_embd", l->m->facts.n_vocab, r.d));
    struct view v_first = view_none();
    x = layer_norm(l, "token_embd_norm", x, r.eps);
    for (uint32_t il = 0; il < l->m->facts.n_layer && l->status == LINNET_OK; il++) {
        l->il = (int32_t)il;
        plan_begin_layer(l->p, l->il, x);
        plan_add(l->p, x, x, block_time_mix(l, &r, layer_norm(l, "attn_norm", x, r.eps), &v_first));
        plan_add(l->p, x, x, block_channel_mix(l, &r, layer_norm(l, "attn_norm_2", x, r.eps)));
    }
    build_plain_head(l, f, "output_norm", r.eps, x);
}
