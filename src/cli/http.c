/*
 * HTTP GET over libcurl, with the rules of http.h. Error texts name the URL without its query
 * (which may hold a signature) and what to do next. Limits: 10 redirects, 30 s to connect, 60 s
 * without a byte.
 */
#include "cli/http.h"
#include "cli/cli.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <curl/curl.h>

enum { MAX_REDIRECTS = 10, CONNECT_SECONDS = 30, STALL_SECONDS = 60 };

struct transfer {
    const struct http_request *req;
    struct http_reply *reply;
    CURL *curl;
    linnet_error *e;
    uint64_t seen; /* bytes of the body */
    bool begun;    /* `begin` was called */
    bool refused;  /* a callback said no: `e` is filled */
    bool weak;     /* no strong ETag was seen: Last-Modified may be the validator */
};

/* ---- addresses ------------------------------------------------------------------------------- */

static bool is_loopback(const char *host)
{
    struct in_addr v4;
    if (strcasecmp(host, "localhost") == 0 || strcmp(host, "[::1]") == 0)
        return true;
    return inet_pton(AF_INET, host, &v4) == 1 && ntohl(v4.s_addr) >> 24 == 127;
}

bool http_allowed(const char *url)
{
    CURLU *u = curl_url();
    char *scheme = NULL, *host = NULL;
    bool ok = false;
    if (u && curl_url_set(u, CURLUPART_URL, url, 0) == CURLUE_OK &&
        curl_url_get(u, CURLUPART_SCHEME, &scheme, 0) == CURLUE_OK &&
        curl_url_get(u, CURLUPART_HOST, &host, 0) == CURLUE_OK)
        ok = strcmp(scheme, "https") == 0 || (strcmp(scheme, "http") == 0 && is_loopback(host));
    curl_free(scheme);
    curl_free(host);
    curl_url_cleanup(u);
    return ok;
}

static bool same_host(const char *a, const char *b)
{
    size_t na = strcspn(a, ":"), nb = strcspn(b, ":");
    if (strncmp(a + na, "://", 3) != 0 || strncmp(b + nb, "://", 3) != 0)
        return false;
    na += 3 + strcspn(a + na + 3, "/?#");
    nb += 3 + strcspn(b + nb + 3, "/?#");
    return na == nb && strncasecmp(a, b, na) == 0;
}

/* ---- reply headers --------------------------------------------------------------------------- */

static bool header_value(const char *line, size_t n, const char *name, char *out, size_t size)
{
    size_t len = strlen(name);
    if (n <= len || strncasecmp(line, name, len) != 0 || line[len] != ':')
        return false;
    const char *p = line + len + 1, *end = line + n;
    while (p < end && (*p == ' ' || *p == '\t'))
        p++;
    while (end > p && (end[-1] == '\r' || end[-1] == '\n' || end[-1] == ' '))
        end--;
    if ((size_t)(end - p) >= size)
        return false;
    memcpy(out, p, (size_t)(end - p));
    out[end - p] = '\0';
    return true;
}

static bool parse_u64(const char *s, const char **end, uint64_t *out)
{
    if (*s < '0' || *s > '9')
        return false;
    char *stop;
    errno = 0;
    *out = strtoull(s, &stop, 10);
    if (end)
        *end = stop;
    return errno == 0;
}

/* Content-Range: bytes FROM-TO/TOTAL */
static void parse_content_range(const char *v, struct http_reply *r)
{
    uint64_t from, to, total = HTTP_UNKNOWN;
    const char *p;
    if (strncasecmp(v, "bytes ", 6) != 0 || !parse_u64(v + 6, &p, &from) || *p != '-' ||
        !parse_u64(p + 1, &p, &to) || *p != '/' || to < from)
        return;
    if (p[1] != '*' && !parse_u64(p + 1, NULL, &total))
        return;
    r->from = from;
    r->total = total;
}

static void parse_linked_etag(const char *v, struct http_reply *r)
{
    v += *v == '"';
    if (strspn(v, "0123456789abcdef") == 64 && (v[64] == '\0' || v[64] == '"'))
        snprintf(r->sha256, sizeof r->sha256, "%.64s", v);
}

static size_t on_header(char *line, size_t size, size_t count, void *arg)
{
    struct transfer *t = arg;
    struct http_reply *r = t->reply;
    size_t n = size * count;
    char v[512];
    if (n > 5 &&
        strncmp(line, "HTTP/", 5) == 0) { /* a new reply: forget what the last one said of itself */
        r->from = 0;
        r->total = r->length = HTTP_UNKNOWN;
        r->validator[0] = '\0';
        t->weak = true;
    } else if (header_value(line, n, "content-range", v, sizeof v)) {
        parse_content_range(v, r);
    } else if (header_value(line, n, "content-length", v, sizeof v)) {
        if (!parse_u64(v, NULL, &r->length))
            r->length = HTTP_UNKNOWN;
    } else if (header_value(line, n, "etag", v, sizeof v)) {
        if (v[0] == '"' && strlen(v) < sizeof r->validator) {
            snprintf(r->validator, sizeof r->validator, "%.255s", v);
            t->weak = false;
        }
    } else if (header_value(line, n, "last-modified", v, sizeof v)) {
        if (t->weak && strlen(v) < sizeof r->validator)
            snprintf(r->validator, sizeof r->validator, "%.255s", v);
    } else if (header_value(line, n, "x-linked-etag", v, sizeof v)) {
        parse_linked_etag(v, r);
    }
    return n;
}

/* ---- the body -------------------------------------------------------------------------------- */

static bool begin_body(struct transfer *t)
{
    struct http_reply *r = t->reply;
    long status = 0;
    curl_easy_getinfo(t->curl, CURLINFO_RESPONSE_CODE, &status);
    r->status = (int)status;
    if (status != 200 && status != 206)
        return true;
    if (status == 200) {
        r->from = 0;
        r->total = r->length;
    }
    t->begun = true;
    if (t->req->begin && !t->req->begin(t->req->arg, r, t->e)) {
        t->refused = true;
        return false;
    }
    return true;
}

static size_t on_body(char *data, size_t size, size_t count, void *arg)
{
    struct transfer *t = arg;
    size_t n = size * count;
    if (!t->begun && !begin_body(t))
        return 0;
    if (!t->begun)
        return n; /* the text of an error page */
    t->seen += n;
    if (!t->req->body(t->req->arg, data, n, t->e)) {
        t->refused = true;
        return 0;
    }
    return n;
}

static int on_progress(void *arg, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
    (void)arg, (void)a, (void)b, (void)c, (void)d;
    return cli_interrupted != 0;
}

/* ---- errors ---------------------------------------------------------------------------------- */

/* The URL without query and fragment: those may carry signatures. */
static int shown(const char *url)
{
    return (int)strcspn(url, "?#");
}

static linnet_status status_error(const char *url, const struct http_request *req,
                                  struct http_reply *r, linnet_error *e)
{
    int n = shown(url);
    switch (r->status) {
    case 401:
    case 403:
        return err_set(e, LINNET_IO,
                       "access refused (HTTP %d): %.*s; a gated model needs its terms accepted on "
                       "its page and a token in HF_TOKEN%s",
                       r->status, n, url, req->token ? " (the one given is not enough)" : "");
    case 404:
    case 410:
        return err_set(e, LINNET_NOT_FOUND, "there is no such file (HTTP %d): %.*s", r->status, n,
                       url);
    case 408:
    case 425:
    case 429:
        r->transient = true;
        return err_set(e, LINNET_IO, "the server asks to wait (HTTP %d): %.*s", r->status, n, url);
    default:
        r->transient = r->status >= 500 && r->status != 501 && r->status != 505;
        return err_set(e, LINNET_IO, "the server answered HTTP %d: %.*s", r->status, n, url);
    }
}

static linnet_status curl_error(CURLcode rc, const char *text, const char *url,
                                struct http_reply *r, linnet_error *e)
{
    int n = shown(url);
    if (!*text)
        text = curl_easy_strerror(rc);
    switch (rc) {
    case CURLE_OUT_OF_MEMORY:
        return err_set(e, LINNET_NO_MEMORY, "out of memory while fetching %.*s", n, url);
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_ISSUER_ERROR:
        return err_set(
            e, LINNET_IO,
            "the server's certificate cannot be verified: %s (%.*s); behind a proxy with "
            "its own certificates set SSL_CERT_FILE",
            text, n, url);
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
        return err_set(e, LINNET_IO, "%s; is the network up? (%.*s)", text, n, url);
    case CURLE_COULDNT_CONNECT:
        return err_set(e, LINNET_IO, "cannot connect: %s (%.*s)", text, n, url);
    default:
        r->transient = rc == CURLE_PARTIAL_FILE || rc == CURLE_RECV_ERROR ||
                       rc == CURLE_SEND_ERROR || rc == CURLE_GOT_NOTHING ||
                       rc == CURLE_OPERATION_TIMEDOUT || rc == CURLE_HTTP2 ||
                       rc == CURLE_HTTP2_STREAM || rc == CURLE_SSL_CONNECT_ERROR;
        return err_set(e, LINNET_IO, "%s (%.*s)", text, n, url);
    }
}

/* ---- one request ----------------------------------------------------------------------------- */

static struct curl_slist *add_header(struct curl_slist *list, const char *name, const char *value)
{
    char *line = cli_printf("%s: %s", name, value);
    struct curl_slist *more = curl_slist_append(list, line);
    free(line);
    if (!more)
        exit(cli_fail("out of memory for a request"));
    return more;
}

static struct curl_slist *make_headers(const struct http_request *req, bool with_token)
{
    struct curl_slist *list = NULL;
    if (req->accept)
        list = add_header(list, "Accept", req->accept);
    if (req->if_range)
        list = add_header(list, "If-Range", req->if_range);
    if (req->token && with_token) {
        char *bearer = cli_printf("Bearer %s", req->token);
        list = add_header(list, "Authorization", bearer);
        free(bearer);
    }
    return list;
}

/* "FROM-TO", "FROM-" or "-LENGTH"; "" for all. */
static void range_text(const struct http_request *req, char *buf, size_t size)
{
    buf[0] = '\0';
    if (req->tail)
        snprintf(buf, size, "-%llu", (unsigned long long)req->length);
    else if (req->length != HTTP_UNKNOWN)
        snprintf(buf, size, "%llu-%llu", (unsigned long long)req->from,
                 (unsigned long long)(req->from + req->length - 1));
    else if (req->from > 0)
        snprintf(buf, size, "%llu-", (unsigned long long)req->from);
}

static void set_certificates(CURL *c)
{
    const char *file = getenv("SSL_CERT_FILE");
    if (!file || !*file)
        file = getenv("CURL_CA_BUNDLE");
    if (file && *file)
        curl_easy_setopt(c, CURLOPT_CAINFO, file);
}

static CURLcode perform(struct transfer *t, const char *url, bool with_token, char *text)
{
    CURL *c = t->curl;
    char range[64];
    range_text(t->req, range, sizeof range);
    struct curl_slist *headers = make_headers(t->req, with_token);
    curl_easy_reset(c);
    curl_easy_setopt(c, CURLOPT_URL, url);
    curl_easy_setopt(c, CURLOPT_USERAGENT, "linnet/" LINNET_VERSION);
    curl_easy_setopt(c, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(c, CURLOPT_RANGE, *range ? range : NULL);
    curl_easy_setopt(c, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(c, CURLOPT_HEADERDATA, t);
    curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(c, CURLOPT_WRITEDATA, t);
    curl_easy_setopt(c, CURLOPT_XFERINFOFUNCTION, on_progress);
    curl_easy_setopt(c, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_SECONDS);
    curl_easy_setopt(c, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(c, CURLOPT_LOW_SPEED_TIME, (long)STALL_SECONDS);
    curl_easy_setopt(c, CURLOPT_ERRORBUFFER, text);
    set_certificates(c);
    CURLcode rc = curl_easy_perform(c);
    curl_easy_setopt(c, CURLOPT_ERRORBUFFER, NULL);
    curl_slist_free_all(headers);
    long status = 0;
    curl_easy_getinfo(c, CURLINFO_RESPONSE_CODE, &status);
    t->reply->status = (int)status;
    return rc;
}

/* What the end of one exchange means; LINNET_OK when the body came whole. */
static linnet_status judge(struct transfer *t, CURLcode rc, const char *text, const char *url)
{
    if (cli_interrupted)
        return err_set(t->e, LINNET_CANCELLED, "interrupted");
    if (t->refused)
        return t->e ? t->e->status : LINNET_IO;
    if (rc != CURLE_OK)
        return curl_error(rc, text, url, t->reply, t->e);
    if (t->reply->status != 200 && t->reply->status != 206)
        return status_error(url, t->req, t->reply, t->e);
    if (!t->begun && !begin_body(t)) /* an empty body */
        return t->e ? t->e->status : LINNET_IO;
    return LINNET_OK;
}

linnet_status http_get(const struct http_request *req, struct http_reply *reply, linnet_error *e)
{
    memset(reply, 0, sizeof *reply);
    reply->total = reply->length = HTTP_UNKNOWN;
    linnet_error spare;
    struct transfer t = {.req = req, .reply = reply, .e = e ? e : &spare, .curl = curl_easy_init()};
    if (!t.curl)
        return err_set(e, LINNET_NO_MEMORY, "out of memory for a connection");
    char text[CURL_ERROR_SIZE];
    char *url = cli_printf("%s", req->url);
    linnet_status s = LINNET_OK;
    for (int hops = 0;; hops++) {
        if (!http_allowed(url)) {
            s = err_set(e, LINNET_INVALID, "only https is fetched, not %.*s", shown(url), url);
            break;
        }
        text[0] = '\0';
        CURLcode rc = perform(&t, url, same_host(url, req->url), text);
        char *next = NULL;
        if (rc == CURLE_OK && reply->status / 100 == 3)
            curl_easy_getinfo(t.curl, CURLINFO_REDIRECT_URL, &next);
        if (!next) {
            s = judge(&t, rc, text, url);
            break;
        }
        if (hops == MAX_REDIRECTS) {
            s = err_set(e, LINNET_IO, "more than %d redirects: %.*s", MAX_REDIRECTS,
                        shown(req->url), req->url);
            break;
        }
        char *copy = cli_printf("%s", next);
        free(url);
        url = copy;
    }
    curl_easy_cleanup(t.curl);
    free(url);
    return s;
}

/* ---- into memory ----------------------------------------------------------------------------- */

struct memory {
    char *data; /* [room + 1] */
    size_t n, room, max;
    const char *url;
    bool ranged;
};

/* A range that was not honoured would bring the whole resource: better nothing. */
static bool begin_memory(void *arg, const struct http_reply *reply, linnet_error *e)
{
    const struct memory *m = arg;
    if (m->ranged && reply->status != 206) {
        err_set(e, LINNET_UNSUPPORTED, "the server does not send parts of files: %.*s",
                shown(m->url), m->url);
        return false;
    }
    return true;
}

static bool into_memory(void *arg, const void *data, size_t n, linnet_error *e)
{
    struct memory *m = arg;
    if (n > m->max - m->n) {
        err_set(e, LINNET_LIMIT, "more than %zu bytes: %.*s", m->max, shown(m->url), m->url);
        return false;
    }
    if (n > m->room - m->n) {
        size_t room = m->n + n < m->max / 2 ? 2 * (m->n + n) : m->max;
        char *more = realloc(m->data, room + 1);
        if (!more) {
            err_memory(e, "a download", room);
            return false;
        }
        m->data = more;
        m->room = room;
    }
    memcpy(m->data + m->n, data, n);
    m->n += n;
    return true;
}

linnet_status http_get_memory(const struct http_request *req, size_t max, char **out, size_t *n,
                              struct http_reply *reply, linnet_error *e)
{
    struct memory m = {.max = max, .url = req->url, .data = cli_alloc(1)};
    m.ranged = req->from > 0 || req->length != HTTP_UNKNOWN;
    struct http_request r = *req;
    r.begin = begin_memory;
    r.body = into_memory;
    r.arg = &m;
    linnet_status s = http_get(&r, reply, e);
    if (s != LINNET_OK) {
        free(m.data);
        return s;
    }
    m.data[m.n] = '\0';
    *out = m.data;
    *n = m.n;
    return LINNET_OK;
}
