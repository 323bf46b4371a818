/*
 * The package index: which one, what wheels it has of a package, and which is the newest.
 *
 * Pages are the simple API's, as JSON (PEP 691) or HTML (PEP 503); versions are ordered by PEP 440
 * (epochs and local versions apart, which no index of models has shown).
 */
#include "cli/cli.h"
#include "cli/http.h"
#include "cli/wheel.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include <curl/curl.h>
#include <jansson.h>

enum { PAGE_MAX = 1 << 26 };

/* ---- which index ----------------------------------------------------------------------------- */

/* `index-url` of one of pip's configuration files, or NULL. */
static char *index_from_file(const char *path)
{
    FILE *f = fopen(path, "r");
    if (!f)
        return NULL;
    char line[2000], *url = NULL;
    while (!url && fgets(line, sizeof line, f)) {
        char *p = line + strspn(line, " \t");
        if (strncmp(p, "index-url", 9) != 0 && strncmp(p, "index_url", 9) != 0)
            continue;
        p += 9;
        p += strspn(p, " \t");
        if (*p != '=' && *p != ':')
            continue;
        p += 1 + strspn(p + 1, " \t");
        p[strcspn(p, " \t\r\n")] = '\0';
        if (*p)
            url = cli_printf("%s", p);
    }
    fclose(f);
    return url;
}

/* The order in which pip lets one file override another. */
static char *index_url(void)
{
    const char *env = getenv("PIP_INDEX_URL"), *home = getenv("HOME");
    const char *config = getenv("PIP_CONFIG_FILE"), *xdg = getenv("XDG_CONFIG_HOME");
    if (env && *env)
        return cli_printf("%s", env);
    char *files[] = {
        cli_printf("%s", config ? config : ""),
        xdg && *xdg ? cli_printf("%s/pip/pip.conf", xdg)
                    : cli_printf("%s/.config/pip/pip.conf", home ? home : ""),
        cli_printf("%s/.pip/pip.conf", home ? home : ""),
        cli_printf("/etc/pip.conf"),
    };
    char *url = NULL;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        if (!url)
            url = index_from_file(files[i]);
        free(files[i]);
    }
    return url ? url : cli_printf("https://pypi.org/simple");
}

/* ---- versions -------------------------------------------------------------------------------- */

enum { RELEASE_MAX = 8 };
struct version {
    uint64_t release[RELEASE_MAX]; /* absent parts are 0 */
    int phase;                     /* dev -4, a -3, b -2, rc -1, final 0, post 1 */
    uint64_t number;               /* of the phase */
};

static struct version parse_version(const char *s)
{
    static const struct {
        const char *word;
        int phase;
    } phases[] = {
        {"alpha", -3}, {"beta", -2}, {"rc", -1}, {"post", 1}, {"dev", -4},
        {"pre", -1},   {"a", -3},    {"b", -2},  {"c", -1},
    };
    struct version v = {0};
    char *end = NULL;
    for (int i = 0; i < RELEASE_MAX && isdigit((unsigned char)*s); i++) {
        v.release[i] = strtoull(s, &end, 10);
        s = end;
        if (*s == '.' && isdigit((unsigned char)s[1]))
            s++;
        else
            break;
    }
    s += strspn(s, ".-_");
    for (size_t i = 0; i < sizeof phases / sizeof *phases; i++) {
        size_t n = strlen(phases[i].word);
        if (strncmp(s, phases[i].word, n) == 0) {
            v.phase = phases[i].phase;
            v.number = strtoull(s + n + strspn(s + n, ".-_"), NULL, 10);
            if (strstr(s + n, "dev"))
                v.phase = v.phase < 0 ? -4 : v.phase;
            break;
        }
    }
    return v;
}

static int compare_versions(const struct version *a, const struct version *b)
{
    for (int i = 0; i < RELEASE_MAX; i++)
        if (a->release[i] != b->release[i])
            return a->release[i] < b->release[i] ? -1 : 1;
    if (a->phase != b->phase)
        return a->phase < b->phase ? -1 : 1;
    return a->number < b->number ? -1 : a->number > b->number;
}

/* ---- choosing -------------------------------------------------------------------------------- */

struct choice {
    const char *base, *version; /* version: NULL for the newest */
    struct wheel best;
    struct version best_version;
    bool best_pure; /* a wheel for any platform */
};

static void set_best(struct choice *c, const char *url, const char *filename, const char *sha256,
                     uint64_t size)
{
    wheel_free(&c->best);
    CURLU *u = curl_url();
    char *full = NULL;
    if (u && curl_url_set(u, CURLUPART_URL, c->base, 0) == CURLUE_OK &&
        curl_url_set(u, CURLUPART_URL, url, 0) == CURLUE_OK &&
        curl_url_get(u, CURLUPART_URL, &full, 0) == CURLUE_OK)
        c->best.url = cli_printf("%.*s", (int)strcspn(full, "#"), full);
    curl_free(full);
    curl_url_cleanup(u);
    if (!c->best.url)
        return;
    c->best.filename = cli_printf("%s", filename);
    c->best.size = size;
    bool digest = sha256 && strspn(sha256, "0123456789abcdef") == 64 && strlen(sha256) == 64;
    snprintf(c->best.sha256, sizeof c->best.sha256, "%s", digest ? sha256 : "");
}

/* A file of the page: a better wheel than the best so far?
 * NAME-VERSION[-BUILD]-PYTHON-ABI-PLATFORM.whl */
static void consider(struct choice *c, const char *url, const char *filename, const char *sha256,
                     uint64_t size, bool yanked)
{
    size_t n = strlen(filename), name = strcspn(filename, "-");
    if (n < 5 || strcmp(filename + n - 4, ".whl") != 0 || !filename[name])
        return;
    char *text = cli_printf("%.*s", (int)strcspn(filename + name + 1, "-"), filename + name + 1);
    struct version v = parse_version(text);
    bool named = c->version && strcmp(text, c->version) == 0;
    free(text);
    if (c->version ? !named : yanked)
        return;
    bool pure = strstr(filename, "-none-any.whl") != NULL;
    if (c->best.url) {
        bool was_final = c->best_version.phase >= 0, is_final = v.phase >= 0;
        int order =
            was_final != is_final ? (is_final ? 1 : -1) : compare_versions(&v, &c->best_version);
        if (order < 0 || (order == 0 && (c->best_pure || !pure)))
            return;
    }
    c->best_version = v;
    c->best_pure = pure;
    set_best(c, url, filename, sha256, size);
}

static linnet_status read_json(struct choice *c, const char *page, size_t n, linnet_error *e)
{
    json_error_t je;
    json_t *root = json_loadb(page, n, 0, &je);
    json_t *files = root ? json_object_get(root, "files") : NULL;
    if (!json_is_array(files)) {
        json_decref(root);
        return err_set(e, LINNET_FORMAT, "the package index sent a page that cannot be read");
    }
    size_t i;
    json_t *file;
    json_array_foreach(files, i, file)
    {
        const char *url = json_string_value(json_object_get(file, "url"));
        const char *name = json_string_value(json_object_get(file, "filename"));
        const char *sha =
            json_string_value(json_object_get(json_object_get(file, "hashes"), "sha256"));
        json_t *size = json_object_get(file, "size"), *yanked = json_object_get(file, "yanked");
        bool has_size = json_is_integer(size) && json_integer_value(size) >= 0;
        if (url && name)
            consider(c, url, name, sha,
                     has_size ? (uint64_t)json_integer_value(size) : HTTP_UNKNOWN,
                     json_is_true(yanked) || json_is_string(yanked));
    }
    json_decref(root);
    return LINNET_OK;
}

/* <a href="URL#sha256=HEX" data-yanked="">FILENAME</a>, each on its own. */
static void read_html(struct choice *c, const char *page)
{
    for (const char *p = page; (p = strstr(p, "<a ")) != NULL;) {
        const char *close = strchr(p, '>');
        const char *end = close ? strstr(close, "</a") : NULL;
        if (!end)
            return;
        char *tag = cli_printf("%.*s", (int)(close - p), p);
        char *name = cli_printf("%.*s", (int)(end - close - 1), close + 1);
        char *href = strstr(tag, "href=\"");
        if (href) {
            bool yanked = strstr(tag, "data-yanked") != NULL;
            href += 6;
            href[strcspn(href, "\"")] = '\0';
            const char *sha = strstr(href, "#sha256=");
            char *trimmed = name + strspn(name, " \r\n\t");
            trimmed[strcspn(trimmed, " \r\n\t")] = '\0';
            consider(c, href, trimmed, sha ? sha + 8 : NULL, HTTP_UNKNOWN, yanked);
        }
        free(tag);
        free(name);
        p = end;
    }
}

linnet_status wheel_choose(const char *page, size_t n, const char *base, const char *package,
                           const char *version, struct wheel *out, linnet_error *e)
{
    struct choice c = {.base = base, .version = version};
    linnet_status s = LINNET_OK;
    if (page[strspn(page, " \r\n\t")] == '{')
        s = read_json(&c, page, n, e);
    else
        read_html(&c, page);
    if (s == LINNET_OK && !c.best.url)
        s = err_set(e, LINNET_NOT_FOUND, "the package %s has no wheel%s%s", package,
                    version ? " of version " : "", version ? version : "");
    if (s != LINNET_OK)
        wheel_free(&c.best);
    *out = c.best;
    return s;
}

linnet_status wheel_find(const char *package, const char *version, struct wheel *out,
                         linnet_error *e)
{
    char *index = index_url();
    size_t n = strlen(index);
    char *url = cli_printf("%s%s%s/", index, n && index[n - 1] == '/' ? "" : "/", package);
    struct http_request req = {
        .url = url,
        .length = HTTP_UNKNOWN,
        .accept = "application/vnd.pypi.simple.v1+json, text/html;q=0.1",
    };
    struct http_reply reply;
    char *page = NULL;
    linnet_status s = http_get_memory(&req, PAGE_MAX, &page, &n, &reply, e);
    if (s == LINNET_NOT_FOUND)
        err_set(e, s, "the package index has no package '%s'", package);
    if (s == LINNET_OK)
        s = wheel_choose(page, n, url, package, version, out, e);
    free(page);
    free(url);
    free(index);
    return s;
}

void wheel_free(struct wheel *w)
{
    free(w->url);
    free(w->filename);
    *w = (struct wheel){0};
}
