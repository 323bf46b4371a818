/*
 * The Mamba and Mamba-2 blocks (arXiv 2312.00752, 2405.21060; specification F18, F19).
 *
 * Both: a projection, a short convolution, steps in time dt = softplus(..), a scan, and the gate z.
 * What they keep of a text is the convolution's last inputs and the scan's state.
 */
#include "base/limits.h"
#include "model/block.h"

struct mamba_desc mamba_read(struct loader *l, float eps)
{
    return (struct mamba_desc){.d_inner = key_u32(l, "ssm.inner_size", 1, LIMIT_WIDTH / 2),
                               .d_state = key_u32(l, "ssm.state_size", 1, LIMIT_WIDTH / 4),
                               .n_taps = key_u32(l, "ssm.conv_kernel", 1, LIMIT_CONV),
                               .rank = key_u32(l, "ssm.time_step_rank", 1, LIMIT_WIDTH / 2),
                               .norm_dbc = key_bool_or(l, "ssm.dt_b_c_rms", false),
                               .n_head = 1,
                               .n_group = 1,
                               .eps = eps};
}

struct mamba_desc mamba2_read(struct loader *l, float eps)
{
    struct mamba_desc d = mamba_read(l, eps);
    d.n_head = d.rank; /* the key's name means what it says in Mamba only */
    d.n_group = key_u32(l, "ssm.group_count", 1, LIMIT_WIDTH);
    if (d.d_inner % d.n_head || d.n_head % d.n_group)
        load_fail(l, LINNET_FORMAT,
                  "metadata keys '%s.ssm.inner_size' %u, '%s.ssm.time_step_rank' %u (heads) and "
                  "'%s.ssm.group_count' %u do not divide",
                  l->arch, d.d_inner, l->arch, d.n_head, l->arch, d.n_group);
    return d;
}

static struct view conv(struct loader *l, const struct mamba_desc *d, struct view x)
{
    return plan_conv(
        l->p, "conv",
        &(struct conv_step){.n_taps = d->n_taps,
                            .silu = true,
                            .weight = vec_rows(l, "ssm_conv1d.weight", x.width, d->n_taps),
                            .bias = bias_opt(l, "ssm_conv1d", x.width)},
        x);
}

/* A [channels][d_state] of the file in the order the scan reads it: struct scan_step. */
static const float *by_block(struct loader *l, const float *a, uint32_t n, uint32_t d_state)
{
    float *out = a ? ARENA_ARRAY(l->arena, (size_t)n * d_state, float) : NULL;
    if (!out) {
        if (a)
            l->status =
                err_memory(l->e, "decays of a Mamba layer", (size_t)n * d_state * sizeof *out);
        return NULL;
    }
    float *at = out;
    for (uint32_t c0 = 0; c0 < n; c0 += SCAN_BLOCK) {
        uint32_t c1 = n - c0 < SCAN_BLOCK ? n : c0 + SCAN_BLOCK;
        for (uint32_t j = 0; j < d_state; j++)
            for (uint32_t c = c0; c < c1; c++)
                *at++ = a[(size_t)c * d_state + j];
    }
    return out;
}

struct view block_mamba(struct loader *l, const struct mamba_desc *d, struct view x)
{
    struct plan *p = l->p;
    uint32_t n = d->d_inner, s = d->d_state, r = d->rank;
    struct view uz = plan_matmul(p, "ssm_in", mat(l, "ssm_in", 2 * n, x.width), NULL, x);
    struct view z = view_part(uz, n, n);
    struct view u = conv(l, d, view_part(uz, 0, n));
    struct view dbc = plan_matmul(p, "dt_b_c", mat(l, "ssm_x", r + 2 * s, n), NULL, u);
    struct view low = view_part(dbc, 0, r), bc = view_part(dbc, r, 2 * s);
    if (d->norm_dbc) {
        plan_norm_pieces(p, NORM_RMS, low, NULL, NULL, d->eps, false);
        plan_norm_pieces(p, NORM_RMS, view_split(bc, 2), NULL, NULL, d->eps, false);
    }
    struct view dt = plan_matmul(p, "dt", mat(l, "ssm_dt", n, r), vec(l, "ssm_dt.bias", n), low);
    plan_act(p, ACT_SOFTPLUS, dt);
    struct view y =
        plan_scan(p,
                  &(struct scan_step){.d_state = s,
                                      .a = by_block(l, decay_rates(l, n, s, 1.0f), n, s),
                                      .d = vec(l, "ssm_d", n)},
                  u, dt, bc);
    plan_gate(p, GATE_SILU, y, z, y);
    return plan_matmul(p, "ssm_out", mat(l, "ssm_out", x.width, n), NULL, y);
}

struct view block_mamba2(struct loader *l, const struct mamba_desc *d, struct view x)
{
    struct plan *p = l->p;
    uint32_t n = d->d_inner, n_bc = width_mul(l, "B and C", 2 * d->n_group, d->d_state);
    uint32_t n_conv = width_mul(l, "the convolution", n + n_bc, 1);
    uint32_t n_in = width_mul(l, "the projection", n + n_conv + d->n_head, 1);
    struct view in = plan_matmul(p, "ssm_in", mat(l, "ssm_in", n_in, x.width), NULL, x);
    struct view z = view_part(in, 0, n), dt = view_part(in, n + n_conv, d->n_head);
    struct view ubc = conv(l, d, view_part(in, n, n_conv));
    plan_add_vec(p, dt, vec(l, "ssm_dt.bias", d->n_head));
    plan_act(p, ACT_SOFTPLUS, dt);
    struct view y = plan_ssd(p,
                             &(struct ssd_step){.n_head = d->n_head,
                                                .d_head = n / d->n_head,
                                                .d_state = d->d_state,
                                                .n_group = d->n_group,
                                                .a = decay_rates(l, 1, d->n_head, 1.0f),
                                                .d = vec(l, "ssm_d", d->n_head)},
                             view_part(ubc, 0, n), dt, view_part(ubc, n, n_bc));
    plan_gate(p, GATE_SILU, y, z, y);
    if (!d->norm_optional || has(l, "ssm_norm.weight"))
        plan_norm_pieces(p, NORM_RMS, view_split(y, d->n_group),
                         vec_rows(l, "ssm_norm.weight", d->n_group, n / d->n_group), NULL, d->eps,
                         d->n_group > 1);
    return plan_matmul(p, "ssm_out", mat(l, "ssm_out", x.width, n), NULL, y);
}
