/*
 * RWKV's "world" vocabulary: at each place the longest token that fits, over bytes. Its files
 * write the tokens as escaped text (\\n, \\t, \\r, \\\\, quotes, \\xNN), which loading turns into
 * bytes.
 */
#include "text/vocab_impl.h"

void rwkv_encode(struct enc *x, const char *s, size_t n)
{
    const struct trie *t = &x->v->trie;
    for (size_t i = 0; i < n && x->status == LINNET_OK;) {
        int32_t found = -1;
        size_t len = 1;
        uint32_t node = t->root[(uint8_t)s[i]];
        for (size_t end = i + 1; node; end++) {
            if (t->nodes[node].id >= 0) {
                found = t->nodes[node].id;
                len = end - i;
            }
            if (end == n)
                break;
            node = trie_step(t, node, (uint8_t)s[end]);
        }
        if (found >= 0)
            enc_emit(x, found);
        else
            enc_bytes(x, s + i, 1);
        i += len;
    }
}
