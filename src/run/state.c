/*
 * Recurrent state: what a session of a model with recurrent layers carries besides its pages.
 *
 * State can only move forward, so going back means starting from an earlier copy and running the tokens since
 * then again. s->valid says how far the state has come; linnet_run() brings it up to s->n before anything new.
 */
#include "base/checked.h"
#include "run/context.h"

#include <stdlib.h>
#include <string.h>

static size_t state_bytes(const struct linnet_session *s)
{
    return s->ctx->p->state_floats * sizeof(float);
}

linnet_status state_create(struct linnet_session *s, linnet_error *e)
{
    size_t size = state_bytes(s);
    if (size == 0)
        return LINNET_OK;
    s->state = aligned_alloc(64, size); /* state_floats is a multiple of 16 */
    if (!s->state)
        return err_memory(e, "recurrent state of a session", size);
    memset(s->state, 0, size);
    return LINNET_OK;
}

void state_free(struct linnet_session *s)
{
    free(s->state);
}

linnet_status state_copy(const struct linnet_session *from, struct linnet_session *to, linnet_error *e)
{
    (void)e;
    if (from->state)
        memcpy(to->state, from->state, state_bytes(from));
    to->valid = from->valid;
    return LINNET_OK;
}

void state_rewind(struct linnet_session *s, size_t n)
{
    if (!s->state) {
        s->valid = n;
        return;
    }
    memset(s->state, 0, state_bytes(s));
    s->valid = 0;
}
