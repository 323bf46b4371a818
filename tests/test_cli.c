#include "test.h"

#include "cli/cli.h"

#include <unistd.h>

struct opts {
    bool json;
    int64_t n;
    double temp;
    const char *kind, *out;
    struct cli_list stop;
};

static const struct cli_opt table[] = {
    {.flag = "--json", CLI_FLAG(struct opts, json), .help = "print JSON"},
    {.flag = "--predict",
     .letter = 'n',
     CLI_INT(struct opts, n, 1, 100),
     .arg = "N",
     .def = "7",
     .help = "how many"},
    {.flag = "--temp",
     CLI_NUMBER(struct opts, temp, 0, 2),
     .arg = "T",
     .def = "0.8",
     .help = "heat"},
    {.flag = "--kind",
     CLI_CHOICE(struct opts, kind, "f32|f16|q8_0"),
     .arg = "KIND",
     .def = "f16",
     .help = "kind"},
    {.flag = "--out", .letter = 'o', CLI_TEXT(struct opts, out), .arg = "FILE", .help = "file"},
    {.flag = "--stop", CLI_LIST(struct opts, stop), .arg = "TEXT", .help = "stop"},
    {0},
};
static const struct cli_arg table_args[] = {
    {.name = "MODEL", .help = "a model"},
    {.name = "PROMPT", .help = "a prompt", .optional = true},
    {0},
};
static const struct cli_command cmd = {
    .name = "try",
    .summary = "try it",
    .about = "",
    .args = table_args,
    .opts = table,
    .opts_size = sizeof(struct opts),
};

enum { ARGV_MAX = 16 };
static struct opts got;
static char *rest[ARGV_MAX];
static bool help;
static char said[4000];

/* Parse the words of `line`, split at spaces; what was printed on stderr ends up in said[]. */
static int parse(const char *line)
{
    static char words[400];
    snprintf(words, sizeof words, "%s", line);
    int argc = 0;
    for (char *p = words; *p;) {
        rest[argc++] = p;
        p += strcspn(p, " ");
        if (*p)
            *p++ = '\0';
    }
    got = (struct opts){0};
    fflush(stderr);
    int old = dup(2);
    FILE *f = tmpfile();
    assert_non_null(f);
    dup2(fileno(f), 2);
    int n = cli_parse(&cmd, &got, argc, rest, &help);
    fflush(stderr);
    dup2(old, 2);
    close(old);
    rewind(f);
    said[fread(said, 1, sizeof said - 1, f)] = '\0';
    fclose(f);
    return n;
}

static void options_have_their_defaults_when_absent(void **state)
{
    (void)state;
    assert_int_equal(parse("m.gguf"), 1);
    assert_false(got.json);
    assert_int_equal(got.n, 7);
    assert_float_equal(got.temp, 0.8, 1e-12);
    assert_string_equal(got.kind, "f16");
    assert_null(got.out);
    assert_int_equal(got.stop.n, 0);
}

static void options_are_read_in_every_form(void **state)
{
    (void)state;
    assert_int_equal(parse("--json -n 3 m.gguf --temp=1.5 hello --kind q8_0 -oout.bin"), 2);
    assert_true(got.json);
    assert_int_equal(got.n, 3);
    assert_float_equal(got.temp, 1.5, 1e-12);
    assert_string_equal(got.kind, "q8_0");
    assert_string_equal(got.out, "out.bin");
    assert_string_equal(rest[0], "m.gguf");
    assert_string_equal(rest[1], "hello");
    assert_int_equal(parse("--stop a --stop=b m"), 1);
    assert_int_equal(got.stop.n, 2);
    assert_string_equal(got.stop.item[1], "b");
}

static void two_dashes_end_the_options(void **state)
{
    (void)state;
    assert_int_equal(parse("-- -n --json"), 2);
    assert_string_equal(rest[0], "-n");
    assert_false(got.json);
    assert_int_equal(parse("- x"), 2);
    assert_string_equal(rest[0], "-");
}

static void a_wrong_command_line_is_refused_with_a_reason(void **state)
{
    (void)state;
    static const struct {
        const char *line, *reason;
    } cases[] = {
        {"m -n 0", "--predict is out of range: 0 (1 to 100, default 7)"},
        {"m -n 101", "out of range"},
        {"m -n 99999999999999999999", "out of range"},
        {"m -n 3x", "wants a whole number, not '3x'"},
        {"m --temp nan", "wants a number"},
        {"m --temp 2.1", "out of range"},
        {"m --kind q4", "one of: f32|f16|q8_0"},
        {"m --kind f", "one of: f32|f16|q8_0"},
        {"m --json=1", "--json takes no value"},
        {"m --out", "--out wants a value: --out FILE"},
        {"m --tmep 1", "did you mean '--temp'?"},
        {"m --js", "did you mean '--json'?"},
        {"m -x", "has no option '-x'"},
        {"", "try wants MODEL: a model"},
        {"a b c", "does not take 'c'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (parse(cases[i].line) != -1)
            fail_msg("accepted: %s", cases[i].line);
        if (!strstr(said, cases[i].reason))
            fail_msg("%s: '%s' lacks '%s'", cases[i].line, said, cases[i].reason);
        assert_non_null(strstr(said, "See 'linnet try --help'."));
    }
}

static void help_wins_over_missing_arguments(void **state)
{
    (void)state;
    assert_int_equal(parse("--help"), 0);
    assert_true(help);
    assert_int_equal(parse("m -h -n 0"), 0);
    assert_true(help);
}

static void nearest_word_is_suggested_only_when_near(void **state)
{
    (void)state;
    const char *words[] = {"pull", "list", "rm", "inspect", "perplexity", NULL};
    assert_string_equal(cli_nearest("pul", words), "pull");
    assert_string_equal(cli_nearest("lsit", words), "list");
    assert_string_equal(cli_nearest("perp", words), "perplexity");
    assert_null(cli_nearest("tokenize", words));
    assert_null(cli_nearest("", words));
}

static void every_command_is_fully_described(void **state)
{
    (void)state;
    for (size_t i = 0; cli_commands[i]; i++) {
        const struct cli_command *c = cli_commands[i];
        assert_true(strlen(c->summary) < 62);
        assert_non_null(c->run);
        assert_non_null(c->about);
        assert_ptr_equal(cli_find_command(c->name), c);
        for (const struct cli_opt *o = c->opts; o && o->flag; o++) {
            if (strncmp(o->flag, "--", 2) != 0 || !o->help || !*o->help)
                fail_msg("%s %s: flag or help", c->name, o->flag);
            if ((o->type == CLI_TYPE_FLAG) != (o->arg == NULL))
                fail_msg("%s %s: a value needs a name, a flag has none", c->name, o->flag);
            if (o->letter == 'h' || strcmp(o->flag, "--help") == 0)
                fail_msg("%s %s: help is built in", c->name, o->flag);
            void *opts = calloc(1, c->opts_size);
            assert_non_null(opts);
            if (o->def && !cli_set_opt(o, opts, o->flag, o->def))
                fail_msg("%s %s: its default is out of range", c->name, o->flag);
            free(opts);
            for (const struct cli_opt *p = c->opts; p != o; p++)
                if (strcmp(p->flag, o->flag) == 0 || (p->letter && p->letter == o->letter))
                    fail_msg("%s %s is declared twice", c->name, o->flag);
        }
    }
}

static void numbers_are_shown_with_three_digits(void **state)
{
    (void)state;
    char b[CLI_NUM_LEN];
    assert_string_equal(cli_format_size(b, 0), "0 B");
    assert_string_equal(cli_format_size(b, 999), "999 B");
    assert_string_equal(cli_format_size(b, 999999), "1.00 MB");
    assert_string_equal(cli_format_size(b, 91234567), "91.2 MB");
    assert_string_equal(cli_format_size(b, 1240000000), "1.24 GB");
    assert_string_equal(cli_format_size(b, UINT64_MAX), "18447 PB");
    assert_string_equal(cli_format_count(b, 134515008), "135 M");
    assert_string_equal(cli_format_count(b, 12), "12");
    assert_string_equal(cli_format_int(b, 49152), "49,152");
    assert_string_equal(cli_format_int(b, 152), "152");
    assert_string_equal(cli_format_int(b, UINT64_MAX), "18,446,744,073,709,551,615");
}

static void text_is_wrapped_at_eighty_columns(void **state)
{
    (void)state;
    char text[1000] = "", out[2000];
    for (int i = 0; i < 60; i++)
        strcat(text, i % 7 ? "word " : "l\xC3\xA4nger ");
    FILE *f = tmpfile();
    assert_non_null(f);
    fprintf(f, "%10s", "");
    cli_wrap(f, 10, 10, text);
    rewind(f);
    size_t n = fread(out, 1, sizeof out - 1, f);
    fclose(f);
    out[n] = '\0';
    int lines = 0;
    for (char *p = out; *p; lines++) {
        size_t len = strcspn(p, "\n"), columns = 0;
        for (size_t i = 0; i < len; i++)
            columns += ((unsigned char)p[i] & 0xC0) != 0x80;
        assert_true(columns <= 80);
        assert_memory_equal(p, "          ", 10);
        assert_true(p[10] != ' ' && p[len - 1] != ' ');
        p += len + (p[len] == '\n');
    }
    assert_true(lines >= 4);
}

static void a_stream_longer_than_its_limit_is_refused(void **state)
{
    (void)state;
    FILE *f = tmpfile();
    assert_non_null(f);
    for (int i = 0; i < 10000; i++)
        fputc('a' + i % 26, f);
    size_t n = 0;
    rewind(f);
    char *s = cli_read_stream(f, "it", 10000, &n);
    assert_non_null(s);
    assert_int_equal(n, 10000);
    assert_int_equal(s[9999], 'a' + 9999 % 26);
    assert_int_equal(s[10000], '\0');
    free(s);
    rewind(f);
    int old = dup(2);
    assert_non_null(freopen("/dev/null", "w", stderr));
    s = cli_read_stream(f, "it", 9999, &n);
    fflush(stderr);
    dup2(old, 2);
    close(old);
    assert_null(s);
    fclose(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_have_their_defaults_when_absent),
        cmocka_unit_test(options_are_read_in_every_form),
        cmocka_unit_test(two_dashes_end_the_options),
        cmocka_unit_test(a_wrong_command_line_is_refused_with_a_reason),
        cmocka_unit_test(help_wins_over_missing_arguments),
        cmocka_unit_test(nearest_word_is_suggested_only_when_near),
        cmocka_unit_test(every_command_is_fully_described),
        cmocka_unit_test(numbers_are_shown_with_three_digits),
        cmocka_unit_test(text_is_wrapped_at_eighty_columns),
        cmocka_unit_test(a_stream_longer_than_its_limit_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
