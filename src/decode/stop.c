/*
 * Stop texts. Held bytes are at most the longest stop text less one, plus what the last push
 * brought.
 */
#include "decode/stop.h"

#include <stdlib.h>
#include <string.h>

linnet_status stop_init(struct stop_filter *f, const char *const *stop, size_t n_stop,
                        linnet_error *e)
{
    *f = (struct stop_filter){.stop = stop, .n_stop = n_stop};
    for (size_t i = 0; i < n_stop; i++) {
        size_t n = strlen(stop[i]);
        if (n == 0)
            return err_set(e, LINNET_INVALID, "stop text %zu is empty", i);
        if (n > f->longest)
            f->longest = n;
    }
    return LINNET_OK;
}

void stop_free(struct stop_filter *f)
{
    free(f->held);
    free(f->given);
    f->held = f->given = NULL;
    f->cap = f->n_held = 0;
}

/* Room for n bytes more in both buffers. */
static linnet_status grow(struct stop_filter *f, size_t n, linnet_error *e)
{
    if (n <= f->cap - f->n_held)
        return LINNET_OK;
    size_t cap = (f->n_held + n) * 2 + 64;
    char *held = realloc(f->held, cap);
    if (held)
        f->held = held;
    char *given = realloc(f->given, cap);
    if (given)
        f->given = given;
    if (!held || !given)
        return err_memory(e, "text held back for stop texts", cap);
    f->cap = cap;
    return LINNET_OK;
}

/* Offset of the first complete stop text in held, or n_held. */
static size_t find_stop(const struct stop_filter *f)
{
    for (size_t at = 0; at < f->n_held; at++)
        for (size_t i = 0; i < f->n_stop; i++) {
            size_t n = strlen(f->stop[i]);
            if (n <= f->n_held - at && memcmp(f->held + at, f->stop[i], n) == 0)
                return at;
        }
    return f->n_held;
}

/* First offset from which the rest of held could grow into a stop text. */
static size_t first_possible(const struct stop_filter *f)
{
    size_t at = f->n_held >= f->longest ? f->n_held - f->longest + 1 : 0;
    for (; at < f->n_held; at++)
        for (size_t i = 0; i < f->n_stop; i++)
            if (strncmp(f->stop[i], f->held + at, f->n_held - at) == 0)
                return at;
    return f->n_held;
}

linnet_status stop_push(struct stop_filter *f, const char *bytes, size_t n, const char **out,
                        size_t *n_out, linnet_error *e)
{
    *out = "";
    *n_out = 0;
    if (f->stopped || n == 0)
        return LINNET_OK;
    if (f->n_stop == 0) {
        *out = bytes;
        *n_out = n;
        return LINNET_OK;
    }
    linnet_status s = grow(f, n, e);
    if (s != LINNET_OK)
        return s;
    memcpy(f->held + f->n_held, bytes, n);
    f->n_held += n;
    size_t end = find_stop(f);
    f->stopped = end < f->n_held;
    size_t give = f->stopped ? end : first_possible(f);
    memcpy(f->given, f->held, give);
    f->n_held = f->stopped ? 0 : f->n_held - give;
    memmove(f->held, f->held + give, f->n_held);
    *out = f->given;
    *n_out = give;
    return LINNET_OK;
}

void stop_flush(struct stop_filter *f, const char **out, size_t *n_out)
{
    *out = f->held ? f->held : "";
    *n_out = f->stopped ? 0 : f->n_held;
    f->n_held = 0;
}
