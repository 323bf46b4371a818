/*
 * Wheels: which one is chosen from an index, and ZIP files that nobody vouches for.
 */
#include "test.h"

#include "zip.h"

#include "cli/http.h"
#include "cli/store.h"
#include "cli/wheel.h"

#include <unistd.h>

static void assert_chosen(const char *page, const char *version, const char *want)
{
    struct wheel w;
    linnet_error e;
    assert_ok(
        wheel_choose(page, strlen(page), "https://index.test/simple/p/", "p", version, &w, &e), e);
    assert_string_equal(w.url, want);
    wheel_free(&w);
}

static void the_newest_final_wheel_for_any_platform_is_chosen(void **state)
{
    (void)state;
    const char *html = "<a href=\"p-0.9-py3-none-any.whl\">p-0.9-py3-none-any.whl</a>\n"
                       "<a href=\"/f/p-0.10.whl#sha256=x\">p-0.10-cp39-cp39-linux_x86_64.whl</a>\n"
                       "<a href='p-3.0'>p-3.0-py3-none-any.whl</a>\n"
                       "<a href=\"/f/p-0.10-any.whl\">p-0.10-py3-none-any.whl</a>\n"
                       "<a href=\"/f/p-0.10.tgz\">p-0.11.tar.gz</a>\n"
                       "<a href=\"y\" data-yanked=\"bad\">p-2.0-py3-none-any.whl</a>\n"
                       "<a href=\"r\">p-1.0rc1-py3-none-any.whl</a>\n";
    assert_chosen(html, NULL, "https://index.test/f/p-0.10-any.whl");
    assert_chosen(html, "2.0", "https://index.test/simple/p/y");
    assert_chosen(html, "1.0rc1", "https://index.test/simple/p/r");
}

static void versions_are_ordered_as_pep_440_says(void **state)
{
    (void)state;
    static const char *const order[] = {"1.0.dev1", "1.0a1",     "1.0a2", "1.0b1", "1.0rc1",
                                        "1.0",      "1.0.post1", "1.0.1", "1.2",   "1.10"};
    enum { N = sizeof order / sizeof *order };
    for (size_t i = 0; i + 1 < N; i++)
        for (size_t swap = 0; swap < 2; swap++) {
            char page[400], want[100];
            snprintf(
                page, sizeof page,
                "<a href=\"%s\">p-%s-py3-none-any.whl</a><a href=\"%s\">p-%s-py3-none-any.whl</a>",
                order[i + swap], order[i + swap], order[i + 1 - swap], order[i + 1 - swap]);
            snprintf(want, sizeof want, "https://index.test/simple/p/%s", order[i + 1]);
            assert_chosen(page, NULL, want);
        }
}

static void an_index_page_gives_digest_and_size(void **state)
{
    (void)state;
    const char *json = "{\"files\":[{\"filename\":\"p-1-py3-none-any.whl\",\"url\":\"https://"
                       "f.test/p.whl\",\"size\":7,"
                       "\"yanked\":false,\"hashes\":{\"sha256\":"
                       "\"abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789\"}}]}";
    struct wheel w;
    linnet_error e;
    assert_ok(wheel_choose(json, strlen(json), "https://i.test/", "p", NULL, &w, &e), e);
    assert_string_equal(w.url, "https://f.test/p.whl");
    assert_int_equal(w.size, 7);
    assert_memory_equal(w.sha256, "abcdef01", 8);
    wheel_free(&w);
    const char *pages[] = {"{", "{\"files\":3}", "{\"files\":[{}]}", "", "<a ", "<a href=\"x",
                           "[]"};
    for (size_t i = 0; i < sizeof pages / sizeof *pages; i++)
        assert_int_not_equal(
            wheel_choose(pages[i], strlen(pages[i]), "https://i.test/", "p", NULL, &w, &e),
            LINNET_OK);
}

/* ---- members --------------------------------------------------------------------------------- */

static struct zip zip;
static const char text[] = "some text, some text, some text, some more text, and then the end";

static int build(void **state)
{
    (void)state;
    zip_start(&zip);
    zip_add(&zip, "d/stored.bin", text, sizeof text, false);
    zip_add(&zip, "d/packed.bin", text, sizeof text, true);
    zip_end(&zip, "p-1");
    return 0;
}

static int drop(void **state)
{
    (void)state;
    free(zip.data);
    return 0;
}

/* Find and unpack a member of `data`. */
static linnet_status unpack(const uint8_t *data, size_t n, const char *file, char *out,
                            size_t *size, linnet_error *e)
{
    FILE *in = tmpfile(), *to = tmpfile();
    assert_non_null(in);
    assert_non_null(to);
    fwrite(data, 1, n, in);
    fflush(in);
    struct wheel_member m;
    char hex[SHA256_HEX];
    linnet_status s = wheel_find_member(NULL, fileno(in), file, &m, e);
    if (s == LINNET_OK)
        s = wheel_unpack(fileno(in), m.offset, &m, fileno(to), "out", hex, e);
    if (s == LINNET_OK && m.sha256[0] && strcmp(m.sha256, hex) != 0)
        s = LINNET_MISMATCH;
    rewind(to);
    *size = fread(out, 1, 1000, to);
    fclose(in);
    fclose(to);
    return s;
}

static void stored_and_deflated_members_come_out_as_they_went_in(void **state)
{
    (void)state;
    static const char *const names[] = {"stored.bin", "packed.bin", "d/packed.bin"};
    for (size_t i = 0; i < 3; i++) {
        char out[1000];
        size_t n;
        linnet_error e;
        assert_ok(unpack(zip.data, zip.n, names[i], out, &n, &e), e);
        assert_int_equal(n, sizeof text);
        assert_memory_equal(out, text, n);
    }
}

static void the_digest_of_a_member_is_read_from_record(void **state)
{
    (void)state;
    FILE *in = tmpfile();
    assert_non_null(in);
    fwrite(zip.data, 1, zip.n, in);
    fflush(in);
    struct wheel_member m;
    linnet_error e;
    assert_ok(wheel_find_member(NULL, fileno(in), "packed.bin", &m, &e), e);
    struct sha256 h;
    uint8_t digest[SHA256_SIZE];
    char hex[SHA256_HEX];
    sha256_init(&h);
    sha256_update(&h, text, sizeof text);
    sha256_final(&h, digest);
    sha256_hex(digest, hex);
    assert_string_equal(m.sha256, hex);
    fclose(in);
}

static void a_wheel_cut_anywhere_is_refused(void **state)
{
    (void)state;
    for (size_t n = 0; n < zip.n; n++) {
        char out[1000];
        size_t size;
        linnet_error e;
        if (unpack(zip.data, n, "packed.bin", out, &size, &e) == LINNET_OK)
            fail_msg("accepted when cut to %zu of %zu bytes", n, zip.n);
    }
}

static void a_changed_byte_never_gives_other_contents(void **state)
{
    (void)state;
    for (size_t i = 0; i < zip.n; i++)
        for (int bit = 0; bit < 8; bit += 7) {
            char out[1000];
            size_t size;
            linnet_error e;
            zip.data[i] ^= (uint8_t)(1 << bit);
            linnet_status s = unpack(zip.data, zip.n, "d/packed.bin", out, &size, &e);
            zip.data[i] ^= (uint8_t)(1 << bit);
            if (s == LINNET_OK && (size != sizeof text || memcmp(out, text, size) != 0))
                fail_msg("byte %zu: other contents were accepted", i);
        }
}

/* ---- sources --------------------------------------------------------------------------------- */

static void sources_have_one_name_and_one_place(void **state)
{
    (void)state;
    static const struct {
        const char *text, *name, *place;
    } cases[] = {
        {"hf:o/r/d/f.gguf", "hf:o/r/d/f.gguf", "hf/o/r/d/f.gguf"},
        {"hf:o/r@main/f.gguf", "hf:o/r/f.gguf", "hf/o/r/f.gguf"},
        {"hf:o/r@v1/f.gguf", "hf:o/r@v1/f.gguf", "hf/o/r@v1/f.gguf"},
        {"https://huggingface.co/o/r/blob/main/d/f.gguf", "hf:o/r/d/f.gguf", "hf/o/r/d/f.gguf"},
        {"https://huggingface.co/o/r/resolve/v1/f.gguf?download=true", "hf:o/r@v1/f.gguf",
         "hf/o/r@v1/f.gguf"},
        {"pypi:A_b.C/f.gguf", "pypi:a-b-c/f.gguf", "pypi/a-b-c/f.gguf"},
        {"pypi:p==1.0/f.gguf", "pypi:p==1.0/f.gguf", "pypi/p==1.0/f.gguf"},
        {"https://h.test/a/f.gguf?x=1#y", "https://h.test/a/f.gguf", "https/h.test/a/f.gguf"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct store_source s;
        linnet_error e;
        assert_ok(store_parse_source(cases[i].text, &s, &e), e);
        assert_string_equal(s.name, cases[i].name);
        assert_string_equal(s.place, cases[i].place);
        store_free_source(&s);
    }
}

static void no_source_has_a_place_outside_the_folder(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "hf:../r/f.gguf",
        "hf:o/../f.gguf",
        "hf:o/r/../../f",
        "hf:o/r//f",
        "hf:o/r@../f",
        "hf:o",
        "hf:",
        "hf:/r/f",
        "pypi:p/../f",
        "pypi:/f",
        "pypi:p=1/f",
        "pypi:p q/f",
        "https://h/../../f",
        "https://h.test",
        "https://h.test/",
        "https:///f",
        "https://h/a/.f",
        "https://h/a\nb.gguf",
        "hf:o/r/.part.gguf",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct store_source s;
        linnet_error e;
        if (store_parse_source(bad[i], &s, &e) != LINNET_INVALID)
            fail_msg("accepted: %s as %s", bad[i], s.place ? s.place : "(none)");
    }
}

static void short_names_are_sources_with_a_digest(void **state)
{
    (void)state;
    for (const struct store_short *k = store_shorts; k->name; k++) {
        struct store_source s;
        linnet_error e;
        assert_ok(store_parse_source(k->source, &s, &e), e);
        assert_string_equal(s.name, k->source);
        assert_int_equal(strlen(k->sha256), 64);
        assert_true(k->size > 0);
        store_free_source(&s);
    }
}

static void parts_of_split_models_are_recognised(void **state)
{
    (void)state;
    size_t prefix;
    unsigned part, count;
    assert_true(store_split_name("a/m-00002-of-00010.gguf", &prefix, &part, &count));
    assert_int_equal(prefix, 3);
    assert_int_equal(part, 2);
    assert_int_equal(count, 10);
    assert_false(store_split_name("m-00003-of-00002.gguf", &prefix, &part, &count));
    assert_false(store_split_name("m-00000-of-00002.gguf", &prefix, &part, &count));
    assert_false(store_split_name("m-0001-of-0002.gguf", &prefix, &part, &count));
    assert_false(store_split_name("-00001-of-00002.gguf", &prefix, &part, &count));
}

static void only_https_and_loopback_addresses_are_allowed(void **state)
{
    (void)state;
    assert_true(http_allowed("https://h.test/f"));
    assert_true(http_allowed("http://127.0.0.1:80/f"));
    assert_true(http_allowed("http://localhost/f"));
    assert_true(http_allowed("http://[::1]:80/f"));
    assert_false(http_allowed("http://h.test/f"));
    assert_false(http_allowed("http://127.0.0.1.h.test/f"));
    assert_false(http_allowed("http://localhost@h.test/f"));
    assert_false(http_allowed("file:///etc/passwd"));
    assert_false(http_allowed("ftp://127.0.0.1/f"));
    assert_false(http_allowed(""));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_newest_final_wheel_for_any_platform_is_chosen),
        cmocka_unit_test(versions_are_ordered_as_pep_440_says),
        cmocka_unit_test(an_index_page_gives_digest_and_size),
        cmocka_unit_test_setup_teardown(stored_and_deflated_members_come_out_as_they_went_in, build,
                                        drop),
        cmocka_unit_test_setup_teardown(the_digest_of_a_member_is_read_from_record, build, drop),
        cmocka_unit_test_setup_teardown(a_wheel_cut_anywhere_is_refused, build, drop),
        cmocka_unit_test_setup_teardown(a_changed_byte_never_gives_other_contents, build, drop),
        cmocka_unit_test(sources_have_one_name_and_one_place),
        cmocka_unit_test(no_source_has_a_place_outside_the_folder),
        cmocka_unit_test(short_names_are_sources_with_a_digest),
        cmocka_unit_test(parts_of_split_models_are_recognised),
        cmocka_unit_test(only_https_and_loopback_addresses_are_allowed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
