/* `linnet tokenize` and `linnet detokenize` on a small vocabulary without weights. */
#include "mkvocab.h"
#include "program.h"

static char vocab_path[300];
static struct mktokens tokens;

enum { END = 257 };

static int make_vocab(void **state)
{
    static const char *const merges[] = {"a b"};
    struct mkvocab m = {0};
    if (program_begin(state) != 0)
        return -1;
    mktokens_alphabet(&tokens);
    mktoken(&tokens, "ab", VOCAB_TYPE_NORMAL, 0);
    mktoken(&tokens, "<|im_end|>", VOCAB_TYPE_CONTROL, 0);
    mkvocab_str(&m, "tokenizer.ggml.model", "gpt2");
    mkvocab_str(&m, "tokenizer.ggml.pre", "gpt-2");
    mktokens_put(&tokens, &m, false);
    mkvocab_strs(&m, "tokenizer.ggml.merges", merges, 1);
    mkvocab_u32(&m, "tokenizer.ggml.bos_token_id", END);
    mkvocab_bool(&m, "tokenizer.ggml.add_bos_token", true);
    struct raw file = mkvocab_file(&m);
    snprintf(vocab_path, sizeof vocab_path, "%s/vocab.gguf", program_folder);
    FILE *f = fopen(vocab_path, "wb");
    if (!f || fwrite(file.data, 1, file.n, f) != file.n || fclose(f) != 0)
        return -1;
    raw_free(&file);
    return 0;
}

/* Run `linnet COMMAND VOCAB REST`. */
static void run(const char *command, const char *rest, int want)
{
    char args[2000];
    snprintf(args, sizeof args, "%s %s %s", command, vocab_path, rest);
    program_run(args, want);
}

/* The same with `in` on stdin. */
static void run_with(const char *command, const char *rest, const char *in)
{
    char path[320], args[2000];
    snprintf(path, sizeof path, "%s/in", program_folder);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    fputs(in, f);
    fclose(f);
    snprintf(args, sizeof args, "%s %s %s <%s", command, vocab_path, rest, path);
    program_run(args, 0);
}

static void ids_are_printed_in_a_line(void **state)
{
    (void)state;
    run("tokenize", "'abab c'", 0);
    assert_string_equal(program_out, "256 256 32 99\n");
    run_with("tokenize", "", "ab\n");
    assert_string_equal(program_out, "256 10\n");
    run("tokenize", "'ab<|im_end|>' --parse-special --add-special", 0);
    assert_string_equal(program_out, "257 256 257\n");
    run("tokenize", "--pieces abc", 0);
    assert_string_equal(program_out, "     256  \"ab\"\n      99  \"c\"\n");
    run("tokenize", "--pieces '\xC3\xA9'", 0);
    assert_string_equal(program_out, "     195  bytes c3\n     169  bytes a9\n");
}

static void user_text_names_no_control_token(void **state)
{
    (void)state;
    run("tokenize", "'<|im_end|>'", 0);
    assert_null(strstr(program_out, "257"));
}

static void ids_come_back_as_text(void **state)
{
    (void)state;
    run("detokenize", "256 99 257", 0);
    assert_string_equal(program_out, "abc<|im_end|>");
    run("detokenize", "--hide-special 256,99 257", 0);
    assert_string_equal(program_out, "abc");
    run_with("detokenize", "", "256 195\n169\n");
    assert_string_equal(program_out, "ab\xC3\xA9");
}

static void a_filter_answers_line_by_line(void **state)
{
    (void)state;
    run_with("tokenize", "--jsonl",
             "{\"text_b64\":\"YWI=\"}\n"
             "{\"text_b64\":\"PHxpbV9lbmR8Pg==\",\"parse_special\":true,\"add_special\":false,"
             "\"cat\":1}\n"
             "{\"text_b64\":\"YQ==\",\"add_special\":true}\n"
             "nonsense\n"
             "{\"text_b64\":\"YQ=\"}\n"
             "{\"text_b64\":7}\n"
             "{\"text_b64\":\"\",\"add_special\":0}\n"
             "{\"text_b64\":\"\"}");
    const char *expected = "{\"ids\":[256],\"detok_b64\":\"YWI=\"}\n"
                           "{\"ids\":[257],\"detok_b64\":\"PHxpbV9lbmR8Pg==\"}\n"
                           "{\"ids\":[257,97],\"detok_b64\":\"PHxpbV9lbmR8PmE=\"}\n"
                           "{\"error\":";
    assert_memory_equal(program_out, expected, strlen(expected));
    program_assert_printed("{\"error\":\"\\\"text_b64\\\" is not base64\"}\n");
    program_assert_printed("{\"error\":\"\\\"text_b64\\\" must be a string\"}\n");
    program_assert_printed("{\"error\":\"\\\"add_special\\\" must be true or false\"}\n");
    program_assert_printed("}\n{\"ids\":[],\"detok_b64\":\"\"}\n");
}

static void what_is_wrong_is_said(void **state)
{
    (void)state;
    run("detokenize", "12 x3", 2);
    program_assert_said("'x3' is not a token id");
    run("detokenize", "300", 1);
    program_assert_said("300");
    run("tokenize", "--jsonl text", 2);
    program_run("tokenize /nowhere/model.gguf text", 1);
    program_assert_said("/nowhere/model.gguf");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_are_printed_in_a_line),
        cmocka_unit_test(user_text_names_no_control_token),
        cmocka_unit_test(ids_come_back_as_text),
        cmocka_unit_test(a_filter_answers_line_by_line),
        cmocka_unit_test(what_is_wrong_is_said),
    };
    return cmocka_run_group_tests(tests, make_vocab, program_end);
}
