/*
 * Out of memory is a status: every allocation is made to fail once, and nothing crashes or leaks.
 *
 * This program replaces malloc and its relatives by versions that count and fail on demand, which
 * the sanitizers' own replacements do not allow: under them its tests are skipped.
 */
#include "test.h"

#include "base/arena.h"
#include "base/pool.h"
#include "gguf/gguf.h"
#include "golden.h"
#include "mkvocab.h"
#include "quant/quant.h"
#include "tempdir.h"

#include <limits.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdbool.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define REPLACE 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) ||                         \
    __has_feature(memory_sanitizer)
#define REPLACE 0
#endif
#endif
#if !defined(REPLACE) && defined(__GLIBC__)
#define REPLACE 1
#endif

#if REPLACE

static _Atomic long until_failure = LONG_MAX; /* allocations that still succeed */
static _Atomic long live;                     /* blocks that are not freed */

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t align, size_t n);
void __libc_free(void *p);

static bool may_allocate(void)
{
    return atomic_fetch_sub(&until_failure, 1) > 0;
}

static void *counted(void *p)
{
    if (p)
        atomic_fetch_add(&live, 1);
    else
        errno = ENOMEM;
    return p;
}

void *malloc(size_t n)
{
    return counted(may_allocate() ? __libc_malloc(n) : NULL);
}

void *calloc(size_t n, size_t size)
{
    return counted(may_allocate() ? __libc_calloc(n, size) : NULL);
}

void *realloc(void *p, size_t n)
{
    if (!p)
        return malloc(n);
    return may_allocate() ? __libc_realloc(p, n) : NULL;
}

void *aligned_alloc(size_t align, size_t n)
{
    return counted(may_allocate() ? __libc_memalign(align, n) : NULL);
}

void free(void *p)
{
    if (p)
        atomic_fetch_sub(&live, 1);
    __libc_free(p);
}

#endif

typedef linnet_status action(linnet_error *e);

/* Run `act` with the first, second, ... allocation failing, until it needs no more of them. It must
 * succeed then, and have failed with LINNET_NO_MEMORY before; every time all memory is returned. */
static void fail_every_allocation(action *act)
{
#if REPLACE
    for (long k = 0; k < 10000; k++) {
        linnet_error e = {0};
        long before = atomic_load(&live);
        atomic_store(&until_failure, k);
        linnet_status status = act(&e);
        bool failed = atomic_load(&until_failure) < 0;
        atomic_store(&until_failure, LONG_MAX);
        assert_int_equal(atomic_load(&live), before);
        if (!failed) {
            assert_int_equal(status, LINNET_OK);
            assert_true(k > 0);
            return;
        }
        if (status != LINNET_NO_MEMORY)
            fail_msg("allocation %ld failed and gave status %d: %s", k, (int)status, e.text);
        assert_int_equal(e.status, LINNET_NO_MEMORY);
    }
    fail_msg("more than 10000 allocations");
#else
    (void)act;
    skip();
#endif
}

static char dir[64];
static struct raw file;

static int set_up(void **state)
{
    (void)state;
    tempdir_make(dir);
    file = raw_header(3, 2, 3);
    raw_key(&file, "tokens", GGUF_ARRAY);
    raw_u32(&file, GGUF_STRING);
    raw_u64(&file, 1000);
    for (unsigned i = 0; i < 1000; i++)
        raw_str(&file, "token");
    raw_key_u32(&file, "split.no", 0);
    raw_key_u32(&file, "split.count", 1);
    raw_tensor(&file, "a", QUANT_F32, 1, (uint64_t[]){8}, 0);
    raw_tensor(&file, "b", QUANT_F32, 1, (uint64_t[]){8}, 32);
    raw_pad(&file, 32);
    raw_zeros(&file, 64);
    tempdir_write(dir, "m.gguf", file.data, file.n);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    raw_free(&file);
    tempdir_remove(dir);
    return 0;
}

static linnet_status open_memory(linnet_error *e)
{
    struct gguf *g = NULL;
    linnet_status status = gguf_open_memory(file.data, file.n, &g, e);
    gguf_close(g);
    return status;
}

static linnet_status open_file(linnet_error *e)
{
    struct gguf *g = NULL;
    linnet_status status = gguf_open(tempdir_path(dir, "m.gguf"), &g, e);
    gguf_close(g);
    return status;
}

static linnet_status write_file(linnet_error *e)
{
    struct gguf_writer *w = NULL;
    char long_text[10000] = {0};
    float data[8] = {0};
    linnet_status s = gguf_writer_create(&w, e);
    for (unsigned i = 0; i < 100 && s == LINNET_OK; i++) {
        char key[16];
        snprintf(key, sizeof key, "k%u", i);
        s = gguf_put_str(w, key, long_text, i == 50 ? sizeof long_text : 1, e);
    }
    if (s == LINNET_OK)
        s = gguf_add_tensor(w, "t", QUANT_F32, 1, &(uint64_t){8}, e);
    if (s == LINNET_OK)
        s = gguf_write_begin(w, tempdir_path(dir, "out.gguf"), e);
    if (s == LINNET_OK)
        s = gguf_write_tensor(w, data, sizeof data, e);
    if (s == LINNET_OK)
        s = gguf_write_end(w, e);
    gguf_writer_destroy(w);
    return s;
}

static linnet_status use_pool(linnet_error *e)
{
    struct pool *p = NULL;
    linnet_status status = pool_create(2, &p, e);
    pool_destroy(p);
    return status;
}

static struct raw vocab_file;

static void make_vocab_file(const char *model, const char *pre)
{
    static const char *const texts[] = {"a", "b", "ab", "<s>", "<unk>", "\xE2\x96\x81", "abab"};
    static const int32_t types[] = {1, 1, 1, 3, 2, 1, 1};
    static const float scores[] = {-1, -2, -3, 0, 0, -4, -2};
    static const char *const merges[] = {"a b", "ab ab"};
    struct mkvocab m = {0};
    mkvocab_str(&m, "tokenizer.ggml.model", model);
    mkvocab_str(&m, "tokenizer.ggml.pre", pre);
    mkvocab_strs(&m, "tokenizer.ggml.tokens", texts, 7);
    mkvocab_i32s(&m, "tokenizer.ggml.token_type", types, 7);
    mkvocab_f32s(&m, "tokenizer.ggml.scores", scores, 7);
    mkvocab_strs(&m, "tokenizer.ggml.merges", merges, 2);
    mkvocab_u32(&m, "tokenizer.ggml.unknown_token_id", 4);
    vocab_file = mkvocab_file(&m);
}

/* Load it, encode a text that needs all of its machinery, decode the ids. */
static linnet_status use_vocab(linnet_error *e)
{
    static const char part[] = "<s>ab abab e\xCC\x81 ";
    static char text[2000], back[8000];
    static int32_t ids[4000];
    struct gguf *g = NULL;
    struct vocab *v = NULL;
    size_t n;
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = part[i % (sizeof part - 1)];
    linnet_status s = gguf_open_memory(vocab_file.data, vocab_file.n, &g, e);
    if (s == LINNET_OK)
        s = vocab_load(g, &v, e);
    if (s == LINNET_OK)
        s = vocab_encode(v, text, sizeof text, VOCAB_PARSE_SPECIAL, ids, 4000, &n, e);
    if (s == LINNET_OK)
        s = vocab_decode(v, ids, n, VOCAB_WHOLE_TEXT, back, sizeof back, &n, e);
    vocab_free(v);
    gguf_close(g);
    return s;
}

static void opening_bytes_survives_failing_allocations(void **state)
{
    (void)state;
    fail_every_allocation(open_memory);
}

static void opening_a_file_survives_failing_allocations(void **state)
{
    (void)state;
    fail_every_allocation(open_file);
}

static void writing_survives_failing_allocations(void **state)
{
    (void)state;
    fail_every_allocation(write_file);
}

static void a_pool_survives_failing_allocations(void **state)
{
    (void)state;
    fail_every_allocation(use_pool);
}

static void vocabularies_survive_failing_allocations(void **state)
{
    (void)state;
    static const char *const kinds[][2] = {{"gpt2", "qwen2"}, {"gpt2", "deepseek-v3"},
                                           {"llama", ""},     {"gemma4", ""},
                                           {"bert", ""},      {"t5", ""},
                                           {"rwkv", ""}};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        make_vocab_file(kinds[i][0], kinds[i][1]);
        fail_every_allocation(use_vocab);
        raw_free(&vocab_file);
    }
}

#if REPLACE
/* Allocations of single-token steps after a prompt, pages and checkpoints included. */
static long allocations_of_decode(const struct golden_case *g)
{
    linnet_error e;
    linnet_model *m;
    linnet_context *c;
    linnet_session *s;
    char path[256];
    snprintf(path, sizeof path, "golden/%s.gguf", g->name);
    assert_ok(linnet_model_open(test_shared(path), NULL, &m, &e), e);
    linnet_context_options o;
    linnet_context_defaults(&o);
    o.n_ctx = 128;
    assert_ok(linnet_context_create(m, &o, &c, &e), e);
    assert_ok(linnet_session_create(c, &s, &e), e);
    const int32_t prompt[5] = {1, 2, 3, 4, 5};
    linnet_item item = {s, prompt, 5, LINNET_WANT_LAST};
    assert_ok(linnet_run(c, &item, 1, &e), e);
    item.n_tokens = 1;
    atomic_store(&until_failure, LONG_MAX);
    for (int i = 0; i < 100; i++)
        assert_ok(linnet_run(c, &item, 1, &e), e);
    const long n = LONG_MAX - atomic_load(&until_failure);
    linnet_session_free(s);
    linnet_context_free(c);
    linnet_model_close(m);
    return n;
}
#endif

static void a_decode_step_allocates_nothing(void **state)
{
    (void)state;
#if REPLACE
    const struct golden_case *g = golden_case_at(0);
    if (!g)
        test_skip_shared("a_decode_step_allocates_nothing");
    for (size_t i = 0; (g = golden_case_at(i)); i++) {
        const long n = allocations_of_decode(g);
        if (n != 0)
            fail_msg("%s: %ld allocations in 100 steps", g->name, n);
    }
#else
    skip();
#endif
}

int main(void)
{
#define IN_DIR(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        IN_DIR(opening_bytes_survives_failing_allocations),
        IN_DIR(opening_a_file_survives_failing_allocations),
        IN_DIR(writing_survives_failing_allocations),
        IN_DIR(vocabularies_survive_failing_allocations),
        IN_DIR(a_pool_survives_failing_allocations),
        cmocka_unit_test(a_decode_step_allocates_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
