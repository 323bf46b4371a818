/*
 * `linnet inspect` and the program's manners: output, errors, exit codes, help.
 */
#include "test.h"

#include "program.h"

#include "cli/commands.h"
#include "gguf/gguf.h"

#include <jansson.h>

static char path[200];

/* A file with every kind of value, and text that must not reach a terminal as it is. */
static int make_file(void **state)
{
    if (program_begin(state) != 0)
        return -1;
    struct gguf_writer *w;
    linnet_error e;
    uint64_t dims[2] = {64, 3};
    float data[64 * 3] = {0};
    const int32_t numbers[] = {-1, 2, 3, 4, 5, 6, 7, 8};
    struct gguf_str words[2] = {{"a\xFFz", 3}, {"\xC3\xA9", 2}};
    float not_a_number = __builtin_nanf("");
    snprintf(path, sizeof path, "%s/m.gguf", program_folder);
    bool ok = gguf_writer_create(&w, &e) == LINNET_OK;
    ok = ok && gguf_put_str(w, "general.architecture", "llama", 5, &e) == LINNET_OK;
    ok = ok && gguf_put_u32(w, "llama.block_count", 7, &e) == LINNET_OK;
    ok = ok && gguf_put_str(w, "evil", "\033[2J\"\n", 6, &e) == LINNET_OK;
    ok = ok && gguf_put_f32(w, "nan", not_a_number, &e) == LINNET_OK;
    ok = ok && gguf_put_bool(w, "yes", true, &e) == LINNET_OK;
    ok = ok && gguf_put_array(w, "numbers", GGUF_I32, numbers, 8, &e) == LINNET_OK;
    ok = ok && gguf_put_array(w, "words", GGUF_STRING, words, 2, &e) == LINNET_OK;
    ok = ok && gguf_add_tensor(w, "t", 0, 2, dims, &e) == LINNET_OK;
    ok = ok && gguf_write_begin(w, path, &e) == LINNET_OK;
    ok = ok && gguf_write_tensor(w, data, sizeof data, &e) == LINNET_OK;
    ok = ok && gguf_write_end(w, &e) == LINNET_OK;
    gguf_writer_destroy(w);
    return ok ? 0 : -1;
}

static void inspect(const char *options)
{
    char args[400];
    snprintf(args, sizeof args, "inspect %s %s", path, options);
    program_run(args, 0);
}

static void people_see_a_summary_of_the_file(void **state)
{
    (void)state;
    inspect("--tensors");
    program_assert_printed("architecture  \"llama\"");
    program_assert_printed("layers        7");
    program_assert_printed("parameters    192 in 1 tensors");
    program_assert_printed("[64, 3]");
    program_assert_printed("[8] -1 2 3 4 5 6 ...");
    inspect("--full");
    program_assert_printed("[8] -1 2 3 4 5 6 7 8\n");
}

static void text_from_the_file_cannot_drive_the_terminal(void **state)
{
    (void)state;
    inspect("");
    assert_null(strchr(program_out, '\033'));
    program_assert_printed("\\u001b[2J\\\"\\n");
    program_assert_printed("\"a\\xffz\"");
    program_assert_printed("\xC3\xA9");
}

static void programs_get_json_of_everything(void **state)
{
    (void)state;
    inspect("--json --tensors");
    json_error_t je;
    json_t *root = json_loads(program_out, 0, &je);
    if (!root)
        fail_msg("not JSON: %s", je.text);
    json_int_t version, params, count, value, bytes;
    const char *name, *type;
    json_t *nan, *first;
    assert_int_equal(
        json_unpack(root, "{s:i, s:I, s:{s:{s:I}, s:{s:o}, s:{s:I, s:o}}, s:[{s:s, s:s, s:I}]}",
                    "version", &version, "parameters", &params, "keys", "llama.block_count",
                    "value", &value, "nan", "value", &nan, "numbers", "count", &count, "first",
                    &first, "tensors", "name", &name, "type", &type, "bytes", &bytes),
        0);
    assert_int_equal(params, 192);
    assert_int_equal(value, 7);
    assert_true(json_is_null(nan));
    assert_int_equal(count, 8);
    assert_int_equal(json_array_size(first), 6);
    assert_string_equal(name, "t");
    assert_string_equal(type, "f32");
    assert_int_equal(bytes, 768);
    json_decref(root);
}

static void a_missing_or_broken_model_is_one_line_of_error(void **state)
{
    (void)state;
    setenv("XDG_DATA_HOME", program_folder, 1);
    program_run("inspect smollm2", 1);
    program_assert_said("linnet: smollm2 is not on this machine; 'linnet pull smollm2' gets it\n");
    program_run("inspect smolm2", 1);
    program_assert_said("did you mean 'smollm2'?");
    program_run("inspect /etc/passwd", 1);
    program_assert_said("not a GGUF file");
    assert_string_equal(program_out, "");
}

static void exit_codes_tell_failure_from_misuse(void **state)
{
    (void)state;
    program_run("--help", 0);
    program_run("--version", 0);
    program_run("", 2);
    program_run("frobnicate", 2);
    program_assert_said("linnet --help");
    program_run("insepct", 2);
    program_assert_said("did you mean 'linnet inspect'?");
    program_run("inspect", 2);
    program_run("inspect a b", 2);
    program_run("help inspect", 0);
    program_assert_printed("Usage: linnet inspect [OPTIONS] MODEL");
}

static void configure(const char *text)
{
    char name[300];
    snprintf(name, sizeof name, "mkdir -p %s/linnet", program_folder);
    assert_int_equal(system(name), 0);
    snprintf(name, sizeof name, "%s/linnet/config", program_folder);
    FILE *f = fopen(name, "wb");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void the_configuration_file_gives_defaults_and_is_checked(void **state)
{
    (void)state;
    static const struct {
        const char *text, *reason;
    } wrong[] = {
        {"# fine\n\nthraeds = 1\n", "linnet/config:3: no command has an option with a value named"},
        {"rum.temp = 1\n", "config:1: there is no command 'rum'"},
        {"inspect.json = yes\n", "config:1: this command has no such option with a value:"},
        {"threads\n", "config:1: a line is KEY = VALUE"},
        {"run.threads = 1\nrun.threads = many", "config:2: run.threads wants a whole number"},
        {"threads = 100000 \n", "config:1: threads is out of range: 100000"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        configure(wrong[i].text);
        program_run("run none.gguf", 2);
        program_assert_said(wrong[i].reason);
    }
    configure("run.kv-type = f32 # no comment here\n");
    program_run("run none.gguf", 2);
    program_assert_said("cannot be 'f32 # no comment here'");
    configure("\t run.kv-type=q8_0\r\nkv-type = f16");
    program_run("run none.gguf", 1); /* good: the next thing that is wrong is the model */
    program_assert_said("none.gguf");
    configure("nonsense\n");
    program_run("list", 2);
    program_run("completion bash", 0); /* has no options: the file is not read */
    configure("");
}

static void output_that_cannot_be_written_is_a_failure(void **state)
{
    (void)state;
    char args[400];
    char said[400];
    snprintf(args, sizeof args, "inspect %s --json 2>%s/full >/dev/full #", path, program_folder);
    program_run(args, 1);
    program_read("full", "", said, sizeof said);
    assert_non_null(strstr(said, "No space left"));
}

static void help_fits_a_terminal(void **state)
{
    (void)state;
    program_run("--help", 0);
    int lines = 0;
    for (const char *p = program_out; *p; lines++) {
        size_t n = strcspn(p, "\n");
        assert_true(n <= 80);
        p += n + (p[n] == '\n');
    }
    assert_true(lines <= 24);
    for (size_t i = 0; cli_commands[i]; i++) {
        char args[100];
        snprintf(args, sizeof args, "%s --help", cli_commands[i]->name);
        program_run(args, 0);
        for (const char *p = program_out; *p;) {
            size_t n = strcspn(p, "\n");
            bool example = p[0] == ' ' && p[1] == ' ' && n > 80; /* a command stays on its line */
            if (n > 80 && !example)
                fail_msg("%s --help: a line of %zu columns: %.*s", cli_commands[i]->name, n, (int)n,
                         p);
            p += n + (p[n] == '\n');
        }
    }
}

static void completions_and_manuals_cover_every_command(void **state)
{
    (void)state;
    static const char *const shells[] = {"bash", "zsh", "fish"};
    for (size_t s = 0; s < 3; s++) {
        char args[100], name[100];
        snprintf(args, sizeof args, "completion %s", shells[s]);
        program_run(args, 0);
        for (size_t i = 0; cli_commands[i]; i++) {
            snprintf(name, sizeof name,
                     s == 0   ? " %s"
                     : s == 1 ? "'%s:"
                              : "-a %s ",
                     cli_commands[i]->name);
            program_assert_printed(name);
        }
    }
    FILE *f = fopen("man/linnet.1", "rb");
    assert_non_null(f);
    static char page[20000];
    page[fread(page, 1, sizeof page - 1, f)] = '\0';
    fclose(f);
    for (size_t i = 0; cli_commands[i]; i++) {
        char name[100];
        snprintf(name, sizeof name, ".BR linnet\\-%s (1)", cli_commands[i]->name);
        if (!strstr(page, name))
            fail_msg("man/linnet.1 does not name linnet-%s(1)", cli_commands[i]->name);
        snprintf(name, sizeof name, "manual %s", cli_commands[i]->name);
        program_run(name, 0);
        program_assert_printed(".SH SYNOPSIS");
    }
}

static void the_page_of_families_is_what_the_program_prints(void **state)
{
    (void)state;
    static char page[60000];
    FILE *f = fopen("docs/models.md", "rb");
    if (!f)
        skip(); /* run from another folder */
    page[fread(page, 1, sizeof page - 1, f)] = '\0';
    fclose(f);
    program_run("families --markdown", 0);
    assert_string_equal(program_out, page);
    assert_null(strstr(page, "|  | adjacent"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(people_see_a_summary_of_the_file),
        cmocka_unit_test(text_from_the_file_cannot_drive_the_terminal),
        cmocka_unit_test(programs_get_json_of_everything),
        cmocka_unit_test(a_missing_or_broken_model_is_one_line_of_error),
        cmocka_unit_test(exit_codes_tell_failure_from_misuse),
        cmocka_unit_test(the_configuration_file_gives_defaults_and_is_checked),
        cmocka_unit_test(output_that_cannot_be_written_is_a_failure),
        cmocka_unit_test(help_fits_a_terminal),
        cmocka_unit_test(completions_and_manuals_cover_every_command),
        cmocka_unit_test(the_page_of_families_is_what_the_program_prints),
    };
    return cmocka_run_group_tests(tests, make_file, program_end);
}
