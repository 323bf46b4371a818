/*
 * Recurrent state: what a session of a model with recurrent layers carries besides its pages.
 *
 * State only moves forward, so going back means starting from an earlier copy (a checkpoint) and
 * bringing in again what came since: by running those tokens, or, with the delta kind, by replaying
 * the logged inputs of the recurrent steps alone. s->valid says how far the state has come;
 * linnet_run() brings it up to s->n before anything new.
 *
 * Checkpoints are taken at multiples of the context's spacing, so where they lie does not depend on
 * how a text was cut. When there are too many, the one whose neighbours are nearest goes: recent
 * positions stay close together, old ones thin out. They stay valid after a rollback and are shared
 * by forks.
 */
#include "base/checked.h"
#include "run/exec.h"

#include <stdlib.h>
#include <string.h>

struct checkpoint {
    size_t pos;
    uint32_t refs;
    size_t bytes;
    bool half; /* data is binary16 */
    void *data;
};

static size_t state_bytes(const struct linnet_context *c)
{
    return c->p->state_floats * sizeof(float);
}

static size_t checkpoint_bytes(const struct linnet_context *c)
{
    return c->checkpoints.kind == LINNET_CHECKPOINT_F16 ? state_bytes(c) / 2 : state_bytes(c);
}

/* Floats of the inputs of a recurrent step, for a row. */
static size_t input_floats(const struct step *s)
{
    const struct view *v[] = {&s->a, &s->b, &s->c};
    size_t n = 0;
    for (size_t i = 0; i < 3; i++)
        n += v[i]->reg < 0 ? 0 : view_size(*v[i]);
    return n;
}

/* Floats of all recurrent steps' inputs, for a row. */
static size_t row_inputs(const struct plan *p)
{
    size_t n = 0;
    for (size_t i = 0; i < p->n_steps; i++)
        if (op_infos[p->steps[i].op].kind == OP_STATE)
            n += input_floats(&p->steps[i]);
    return n;
}

static bool logs(const struct linnet_context *c)
{
    return c->p->state_floats && c->checkpoints.kind == LINNET_CHECKPOINT_DELTA &&
           c->checkpoints.spacing;
}

uint64_t state_memory(const struct linnet_context *c, uint64_t *checkpoints)
{
    uint64_t most = (uint64_t)checkpoint_bytes(c) * c->checkpoints.max;
    *checkpoints = c->checkpoints.spacing == 0   ? 0
                   : most < c->checkpoints.bytes ? most
                                                 : c->checkpoints.bytes;
    uint64_t log =
        logs(c) ? (uint64_t)row_inputs(c->p) * c->checkpoints.spacing * sizeof(float) : 0;
    return state_bytes(c) + log;
}

linnet_status state_create(struct linnet_session *s, linnet_error *e)
{
    struct linnet_context *c = s->ctx;
    size_t size = state_bytes(c), log = 0;
    if (size == 0)
        return LINNET_OK;
    s->state = aligned_alloc(64, size); /* state_floats is a multiple of 16 */
    s->points = calloc(c->checkpoints.max + 1, sizeof *s->points);
    if (logs(c)) {
        if (!size_mul(row_inputs(c->p), c->checkpoints.spacing, &log) ||
            !size_mul(log, sizeof(float), &log))
            return err_memory(e, "a log of recurrent updates", SIZE_MAX);
        s->log = malloc(log);
    }
    if (!s->state || !s->points || (log && !s->log))
        return err_memory(e, "recurrent state of a session", size + log);
    memset(s->state, 0, size);
    return LINNET_OK;
}

static void point_release(struct linnet_context *c, struct checkpoint *k)
{
    if (--k->refs)
        return;
    c->checkpoints.used -= k->bytes;
    free(k->data);
    free(k);
}

static void drop_point(struct linnet_session *s, size_t i)
{
    point_release(s->ctx, s->points[i]);
    memmove(&s->points[i], &s->points[i + 1], (s->n_points - i - 1) * sizeof *s->points);
    s->n_points--;
}

void state_free(struct linnet_session *s)
{
    while (s->n_points)
        drop_point(s, s->n_points - 1);
    free(s->points);
    free(s->log);
    free(s->state);
}

void state_copy(const struct linnet_session *from, struct linnet_session *to)
{
    to->valid = from->valid;
    if (!from->state)
        return;
    memcpy(to->state, from->state, state_bytes(from->ctx));
    for (size_t i = 0; i < from->n_points; i++) {
        to->points[i] = from->points[i];
        to->points[i]->refs++;
    }
    to->n_points = from->n_points;
    to->log_from = to->log_to = from->valid; /* the log is not copied: it fills again from here */
}

void state_restored(struct linnet_session *s, size_t n)
{
    s->valid = s->log_from = s->log_to = n;
}

/* Make room for one checkpoint: true when there is some. */
static bool thin_out(struct linnet_session *s)
{
    struct linnet_context *c = s->ctx;
    size_t need = checkpoint_bytes(c);
    while (s->n_points && (s->n_points >= c->checkpoints.max ||
                           c->checkpoints.used + need > c->checkpoints.bytes)) {
        size_t best = 0, gap = SIZE_MAX;
        for (size_t i = 0; i + 1 < s->n_points; i++) {
            size_t before = i ? s->points[i - 1]->pos : 0;
            if (s->points[i + 1]->pos - before < gap) {
                gap = s->points[i + 1]->pos - before;
                best = i;
            }
        }
        drop_point(s, best);
    }
    return c->checkpoints.max && c->checkpoints.used + need <= c->checkpoints.bytes;
}

static struct checkpoint *take(const struct linnet_session *s)
{
    struct linnet_context *c = s->ctx;
    struct checkpoint *k = calloc(1, sizeof *k);
    size_t bytes = checkpoint_bytes(c);
    void *data = malloc(bytes);
    if (!k || !data) {
        free(k);
        free(data);
        return NULL;
    }
    *k =
        (struct checkpoint){s->valid, 1, bytes, c->checkpoints.kind == LINNET_CHECKPOINT_F16, data};
    if (k->half)
        for (size_t i = 0; i < c->p->state_floats; i++)
            ((uint16_t *)data)[i] = f32_to_f16(s->state[i]);
    else
        memcpy(data, s->state, bytes);
    return k;
}

void state_checkpoint(struct linnet_session *s)
{
    struct linnet_context *c = s->ctx;
    size_t i = s->n_points;
    if (!s->state || c->checkpoints.spacing == 0 || s->valid % c->checkpoints.spacing ||
        s->valid == 0)
        return;
    while (i && s->points[i - 1]->pos > s->valid)
        i--;
    s->log_from = s->log_to = s->valid;
    if ((i && s->points[i - 1]->pos == s->valid) || !thin_out(s))
        return;
    /* without memory for a checkpoint the session goes on; going back takes longer */
    struct checkpoint *k = take(s);
    if (!k)
        return;
    c->checkpoints.used += k->bytes;
    i = s->n_points;
    while (i && s->points[i - 1]->pos > s->valid)
        i--;
    memmove(&s->points[i + 1], &s->points[i], (s->n_points - i) * sizeof *s->points);
    s->points[i] = k;
    s->n_points++;
}

size_t state_next_stop(const struct linnet_session *s, size_t pos)
{
    size_t spacing = s->ctx->checkpoints.spacing;
    return s->state && spacing ? pos / spacing * spacing + spacing : SIZE_MAX;
}

static void restore(struct linnet_session *s, const struct checkpoint *k)
{
    size_t n = s->ctx->p->state_floats;
    if (!k)
        memset(s->state, 0, n * sizeof *s->state);
    else if (k->half)
        for (size_t i = 0; i < n; i++)
            s->state[i] = f16_to_f32(((const uint16_t *)k->data)[i]);
    else
        memcpy(s->state, k->data, k->bytes);
    s->valid = k ? k->pos : 0;
}

/* ---- the log of updates ---- */

/* Where row `row` (0 is position log_from) of step number `at` (in floats per row before it)
 * lies. */
static float *log_row(const struct linnet_session *s, size_t at, size_t row, size_t width)
{
    return s->log + at * s->ctx->checkpoints.spacing + row * width;
}

static void copy_inputs(struct linnet_context *c, const struct step *s, size_t row, float *log,
                        bool back)
{
    const struct view *views[] = {&s->a, &s->b, &s->c};
    for (size_t i = 0; i < 3; i++) {
        const struct view *v = views[i];
        for (uint32_t k = 0; v->reg >= 0 && k < v->n; k++, log += v->width) {
            float *x = view_row(c, v, row) + (size_t)k * v->stride;
            memcpy(back ? x : log, back ? log : x, v->width * sizeof *log);
        }
    }
}

void state_log(struct linnet_context *c, const struct step *s)
{
    size_t at = 0, width = input_floats(s);
    if (!logs(c))
        return;
    for (const struct step *t = c->p->steps; t != s; t++)
        if (op_infos[t->op].kind == OP_STATE)
            at += input_floats(t);
    for (size_t i = 0; i < c->n_spans; i++) {
        const struct span *span = &c->spans[i];
        const struct linnet_session *x = span->s;
        size_t first = (size_t)span->pos0 - x->log_from;
        bool whole = (size_t)span->pos0 == x->log_to && first + span->n <= c->checkpoints.spacing;
        for (size_t r = 0; whole && r < span->n; r++)
            copy_inputs(c, s, span->row0 + r, log_row(x, at, first + r, width), false);
    }
}

void state_logged(struct linnet_session *s, size_t pos, size_t n)
{
    size_t spacing = s->ctx->checkpoints.spacing;
    if (!s->log)
        return;
    if (pos == s->log_to && pos - s->log_from + n <= spacing)
        s->log_to = pos + n;
    else
        s->log_from = s->log_to = pos + n;
}

/* Bring the state from log_from to n by replaying the log. */
static void replay(struct linnet_session *s, size_t n)
{
    struct linnet_context *c = s->ctx;
    size_t at = 0;
    for (size_t i = 0; i < c->p->n_steps; i++) {
        const struct step *t = &c->p->steps[i];
        if (op_infos[t->op].kind != OP_STATE)
            continue;
        size_t width = input_floats(t);
        for (size_t done = s->log_from; done < n;) {
            size_t rows = n - done < c->n_batch ? n - done : c->n_batch;
            for (size_t r = 0; r < rows; r++)
                copy_inputs(c, t, r, log_row(s, at, done - s->log_from + r, width), true);
            c->spans[0] = (struct span){s, 0, rows, (int32_t)done};
            c->n_spans = 1;
            exec_state_step(c, t);
            done += rows;
        }
        at += width;
    }
    s->valid = n;
}

void state_rewind(struct linnet_session *s, size_t n)
{
    if (!s->state) {
        s->valid = n;
        return;
    }
    const struct checkpoint *best = NULL;
    for (size_t i = 0; i < s->n_points; i++)
        if (s->points[i]->pos <= n)
            best = s->points[i];
    size_t from = best ? best->pos : 0;
    bool logged = s->log && s->log_from == from && s->log_to >= n;
    restore(s, best);
    if (logged) {
        replay(s, n);
        s->log_to = n;
    } else {
        s->log_from = s->log_to = from;
    }
}
