/*
 * KV pages: groups, allocation, sharing.
 *
 * Pages come from slabs that are kept until the context ends; a page that is let go is used again
 * by the next session. Getting one allocates only when no free page is left, and then several at
 * once.
 */
#include "base/checked.h"
#include "run/context.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* A slab is at least this large, so that pages cost few allocations, and lies in huge pages, so
 * that walking through them costs few misses of the address cache. Memory never used is never
 * touched. */
#define SLAB_BYTES ((size_t)16 << 20)
#define HUGE_PAGE  ((size_t)2 << 20)

static struct kv_page *page_of(uint8_t *data)
{
    return (struct kv_page *)(void *)(data - offsetof(struct kv_page, data));
}

static uint32_t group_for(struct linnet_context *c, uint32_t window)
{
    for (uint32_t g = 0; g < c->n_groups; g++)
        if (c->groups[g].window == window)
            return g;
    c->groups[c->n_groups].window = window;
    return c->n_groups++;
}

/* The place of one slot at the end of its group's page so far. */
static bool place_slot(struct linnet_context *c, const struct kv_slot *slot, struct kv_place *at)
{
    struct kv_group *g = &c->groups[at->group = group_for(c, slot->window)];
    size_t rows = (size_t)slot->n_head * KV_PAGE, k_bytes, v_bytes = 0;
    at->k_row = kv_row_bytes(c->kv_k, slot->d_k);
    at->v_row = slot->v_in_k ? at->k_row : kv_row_bytes(c->kv_v, slot->d_v);
    if (at->k_row == 0 || at->v_row == 0)
        return false;
    at->k_off = g->page_bytes;
    if (!size_mul(rows, at->k_row, &k_bytes) || !size_align(k_bytes, 64, &k_bytes) ||
        !size_add(g->page_bytes, k_bytes, &g->page_bytes))
        return false;
    at->v_off = slot->v_in_k ? at->k_off : g->page_bytes;
    if (slot->v_in_k)
        return true;
    return size_mul(rows, at->v_row, &v_bytes) && size_align(v_bytes, 64, &v_bytes) &&
           size_add(g->page_bytes, v_bytes, &g->page_bytes);
}

linnet_status kv_init(struct linnet_context *c, linnet_error *e)
{
    size_t n = c->p->n_kvs;
    c->n_table = ((size_t)c->n_ctx + KV_PAGE - 1) / KV_PAGE;
    c->groups = ARENA_ARRAY(&c->arena, n, struct kv_group);
    c->places = ARENA_ARRAY(&c->arena, n, struct kv_place);
    if (!c->groups || !c->places)
        return err_memory(e, "KV layout", n * sizeof *c->places);
    for (size_t i = 0; i < n; i++)
        if (!place_slot(c, &c->p->kvs[i], &c->places[i]))
            return err_set(e, LINNET_UNSUPPORTED,
                           "layer %d: keys of %u and values of %u cannot be stored in the chosen "
                           "KV type (q8_0 needs multiples of 32); use f16",
                           c->p->kvs[i].layer, c->p->kvs[i].d_k, c->p->kvs[i].d_v);
    return LINNET_OK;
}

void kv_free(struct linnet_context *c)
{
    for (uint32_t g = 0; g < c->n_groups; g++) {
        for (size_t i = 0; i < c->groups[g].n_slabs; i++)
            free(c->groups[g].slabs[i]);
        free(c->groups[g].slabs);
    }
}

static bool grow_slabs(struct kv_group *g)
{
    size_t header = offsetof(struct kv_page, data), each, n, total;
    if (!size_add(g->page_bytes, header, &each) || !size_align(each, 64, &each))
        return false;
    n = SLAB_BYTES / each + 1;
    if (!size_mul(n, each, &total) || !size_align(total, HUGE_PAGE, &total))
        return false;
    if (g->n_slabs == g->cap_slabs) {
        size_t cap = g->cap_slabs ? g->cap_slabs * 2 : 16;
        void **bigger = realloc(g->slabs, cap * sizeof *bigger);
        if (!bigger)
            return false;
        g->slabs = bigger;
        g->cap_slabs = cap;
    }
    uint8_t *slab = aligned_alloc(HUGE_PAGE, total);
    if (!slab)
        return false;
    madvise(slab, total, MADV_HUGEPAGE); /* advice: a refusal costs speed only */
    g->slabs[g->n_slabs++] = slab;
    /* the first page will be taken first: addresses ascend with positions */
    for (size_t i = n; i-- > 0;) {
        struct kv_page *p = (struct kv_page *)(void *)(slab + i * each);
        p->refs = 0;
        p->next = g->free;
        g->free = p;
    }
    g->n_pages += n;
    return true;
}

static uint8_t *page_new(struct kv_group *g)
{
    if (!g->free && !grow_slabs(g))
        return NULL;
    struct kv_page *p = g->free;
    g->free = p->next;
    p->refs = 1;
    memset(p->data, 0, g->page_bytes); /* what is not written yet may be saved to a file */
    return p->data;
}

static void page_release(struct kv_group *g, uint8_t *data)
{
    struct kv_page *p = page_of(data);
    if (--p->refs == 0) {
        p->next = g->free;
        g->free = p;
    }
}

linnet_status kv_add_page(struct linnet_session *s, uint32_t group, size_t i, linnet_error *e)
{
    struct kv_group *g = &s->ctx->groups[group];
    s->pages[group][i] = page_new(g);
    return s->pages[group][i] ? LINNET_OK : err_memory(e, "a KV page", g->page_bytes);
}

linnet_status kv_reserve(struct linnet_session *s, size_t first, size_t end, linnet_error *e)
{
    struct linnet_context *c = s->ctx;
    for (uint32_t g = 0; g < c->n_groups; g++) {
        struct kv_group *group = &c->groups[g];
        for (size_t i = first / KV_PAGE; i * KV_PAGE < end; i++) {
            uint8_t *old = s->pages[g][i];
            if (old && page_of(old)->refs == 1)
                continue;
            uint8_t *page = page_new(group);
            if (!page)
                return err_memory(e, "a KV page", group->page_bytes);
            if (old) {
                memcpy(page, old, group->page_bytes);
                page_release(group, old);
            }
            s->pages[g][i] = page;
        }
    }
    return LINNET_OK;
}

static void release_at(struct linnet_session *s, uint32_t g, size_t i)
{
    if (!s->pages[g][i])
        return;
    page_release(&s->ctx->groups[g], s->pages[g][i]);
    s->pages[g][i] = NULL;
}

void kv_truncate(struct linnet_session *s, size_t n)
{
    struct linnet_context *c = s->ctx;
    for (uint32_t g = 0; g < c->n_groups; g++)
        for (size_t i = (n + KV_PAGE - 1) / KV_PAGE; i < c->n_table; i++)
            release_at(s, g, i);
}

/* First position that a query at n sees in a group with a window. */
static size_t first_seen(const struct kv_group *g, size_t n)
{
    return g->window && n + 1 > g->window ? n + 1 - g->window : 0;
}

void kv_release_behind(struct linnet_session *s, size_t n)
{
    struct linnet_context *c = s->ctx;
    for (uint32_t g = 0; g < c->n_groups; g++) {
        size_t end = n > KV_SLACK ? first_seen(&c->groups[g], n - KV_SLACK) / KV_PAGE : 0;
        for (size_t i = end; i-- > 0 && s->pages[g][i];)
            release_at(s, g, i);
    }
}

bool kv_reaches(const struct linnet_session *s, size_t n)
{
    const struct linnet_context *c = s->ctx;
    for (uint32_t g = 0; g < c->n_groups; g++)
        for (size_t i = first_seen(&c->groups[g], n) / KV_PAGE; i * KV_PAGE < n; i++)
            if (!s->pages[g][i])
                return false;
    return true;
}

void kv_share(struct linnet_session *from, struct linnet_session *to)
{
    struct linnet_context *c = from->ctx;
    for (uint32_t g = 0; g < c->n_groups; g++)
        for (size_t i = 0; i < c->n_table; i++) {
            to->pages[g][i] = from->pages[g][i];
            if (to->pages[g][i])
                page_of(to->pages[g][i])->refs++;
        }
}

uint64_t kv_bytes(const struct linnet_context *c, size_t n)
{
    uint64_t total = 0;
    for (uint32_t g = 0; g < c->n_groups; g++) {
        /* behind a window only the slack is kept, and a batch before it is let go */
        size_t most = (size_t)c->groups[g].window + KV_SLACK + c->n_batch + KV_PAGE;
        size_t held = c->groups[g].window && most < n ? most : n;
        total += (uint64_t)((held + KV_PAGE - 1) / KV_PAGE) * c->groups[g].page_bytes;
    }
    return total;
}
