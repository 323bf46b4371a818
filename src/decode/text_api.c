/*
 * The public text functions: the model's vocabulary, checked for being there.
 */
#include "model/model.h"

static linnet_status need(const linnet_model *m, linnet_error *e)
{
    if (m->vocab)
        return LINNET_OK;
    return err_set(e, LINNET_UNSUPPORTED,
                   "this model file has no vocabulary: give token ids instead of text");
}

linnet_status linnet_tokenize(const linnet_model *model, const char *text, size_t n, unsigned flags,
                              int32_t *out, size_t cap, size_t *n_out, linnet_error *error)
{
    linnet_status s = need(model, error);
    if (s != LINNET_OK)
        return s;
    unsigned f = (flags & LINNET_ADD_SPECIAL ? VOCAB_ADD_SPECIAL : 0u) |
                 (flags & LINNET_PARSE_SPECIAL ? VOCAB_PARSE_SPECIAL : 0u);
    return vocab_encode(model->vocab, text, n, f, out, cap, n_out, error);
}

linnet_status linnet_detokenize(const linnet_model *model, const int32_t *ids, size_t n,
                                bool special, char *out, size_t cap, size_t *n_out,
                                linnet_error *error)
{
    linnet_status s = need(model, error);
    if (s != LINNET_OK)
        return s;
    return vocab_decode(model->vocab, ids, n, special ? VOCAB_SHOW_SPECIAL : 0, out, cap, n_out,
                        error);
}

bool linnet_token_is_eog(const linnet_model *model, int32_t id)
{
    return model->vocab && vocab_is_eog(model->vocab, id);
}

int32_t linnet_token_bos(const linnet_model *model)
{
    return model->vocab ? vocab_special(model->vocab, VOCAB_BOS) : -1;
}

bool linnet_adds_bos(const linnet_model *model)
{
    return model->vocab && vocab_add_bos(model->vocab);
}
