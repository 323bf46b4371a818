/*
 * A small HTTP/1.1 server on a loopback port, for tests of downloads: serves byte strings by path,
 * one connection per request, and misbehaves as its routes say. It runs in a thread of the test.
 *
 * Routes are set up before a request and changed between requests, never during one.
 */
#ifndef LINNET_TEST_SERVER_H
#define LINNET_TEST_SERVER_H

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

struct route {
    const char *path;
    const char *data;
    size_t n;
    int status;         /* 0: 200 or 206 */
    bool no_ranges;     /* ignores Range */
    const char *etag;   /* quoted, or NULL */
    const char *header; /* more header lines, each with its CRLF, or NULL */
    size_t drop_after;  /* closes after so many bytes of the body, once; 0: never */
    unsigned pause_ms;  /* waits after each 16 kB */
    /* what was asked */
    atomic_int requests;
    atomic_size_t sent; /* bytes of bodies */
    char range[100];    /* Range of the last request, or "" */
    char authorization[100];
};

enum { ROUTES_MAX = 32 };
struct server {
    struct route route[ROUTES_MAX];
    size_t n_routes;
    int port, fd;
    pthread_t thread;
    atomic_bool ended;
    atomic_int busy; /* connections being served */
};

static struct route *server_add(struct server *s, const char *path, const void *data, size_t n)
{
    if (s->n_routes == ROUTES_MAX)
        abort();
    struct route *r = &s->route[s->n_routes++];
    memset(r, 0, sizeof *r);
    r->path = path;
    r->data = data;
    r->n = n;
    return r;
}

/* False when the other side is gone. */
static bool server_send(int fd, const char *data, size_t n)
{
    while (n > 0) {
        ssize_t w = send(fd, data, n, MSG_NOSIGNAL);
        if (w <= 0)
            return false;
        data += w;
        n -= (size_t)w;
    }
    return true;
}

static void server_header(const char *request, const char *name, char *out, size_t size)
{
    out[0] = '\0';
    size_t len = strlen(name);
    for (const char *p = strstr(request, "\r\n"); p && p[2]; p = strstr(p + 2, "\r\n")) {
        if (strncasecmp(p + 2, name, len) != 0 || p[2 + len] != ':')
            continue;
        const char *v = p + 3 + len + strspn(p + 3 + len, " ");
        snprintf(out, size, "%.*s", (int)strcspn(v, "\r"), v);
        return;
    }
}

/* "bytes=A-B", "bytes=A-", "bytes=-N" within n bytes: false when it cannot be met. */
static bool server_range(const char *text, size_t n, size_t *from, size_t *to)
{
    unsigned long long a, b;
    if (sscanf(text, "bytes=-%llu", &b) == 1 && text[6] == '-') {
        *from = b < n ? n - (size_t)b : 0;
        *to = n;
        return true;
    }
    int got = sscanf(text, "bytes=%llu-%llu", &a, &b);
    *from = (size_t)a;
    *to = got == 2 && b + 1 < n ? (size_t)b + 1 : n;
    return got >= 1 && *from < n;
}

static void server_body(struct route *r, int fd, size_t from, size_t to)
{
    size_t end = to;
    if (r->drop_after && to - from > r->drop_after) {
        end = from + r->drop_after;
        r->drop_after = 0;
    }
    while (from < end) {
        size_t n = end - from < 16384 ? end - from : 16384;
        if (!server_send(fd, r->data + from, n))
            return;
        atomic_fetch_add(&r->sent, n);
        from += n;
        if (r->pause_ms)
            nanosleep(&(struct timespec){.tv_nsec = (long)r->pause_ms * 1000000}, NULL);
    }
}

static void server_answer(struct route *r, int fd, const char *request)
{
    char range[100], if_range[200], head[1000];
    server_header(request, "Range", range, sizeof range);
    server_header(request, "If-Range", if_range, sizeof if_range);
    server_header(request, "Authorization", r->authorization, sizeof r->authorization);
    snprintf(r->range, sizeof r->range, "%s", range);
    atomic_fetch_add(&r->requests, 1);
    size_t from = 0, to = r->n;
    int status = r->status ? r->status : 200;
    bool same = !if_range[0] || (r->etag && strcmp(if_range, r->etag) == 0);
    char content_range[100] = "";
    if (range[0] && !r->no_ranges && !r->status && same) {
        status = server_range(range, r->n, &from, &to) ? 206 : 416;
        if (status == 206)
            snprintf(content_range, sizeof content_range, "Content-Range: bytes %zu-%zu/%zu\r\n",
                     from, to - 1, r->n);
        else
            from = to = 0;
    }
    int n = snprintf(head, sizeof head,
                     "HTTP/1.1 %d X\r\nContent-Length: %zu\r\nConnection: close\r\n%s%s%s%s%s\r\n",
                     status, to - from, r->etag ? "ETag: " : "", r->etag ? r->etag : "",
                     r->etag ? "\r\n" : "", content_range, r->header ? r->header : "");
    server_send(fd, head, (size_t)n);
    server_body(r, fd, from, to);
}

static void server_serve(struct server *s, int fd)
{
    static const char none[] = "HTTP/1.1 404 X\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    char request[8192], path[1000];
    size_t n = 0;
    while (n + 1 < sizeof request) {
        ssize_t got = recv(fd, request + n, sizeof request - 1 - n, 0);
        if (got <= 0)
            return;
        n += (size_t)got;
        request[n] = '\0';
        if (strstr(request, "\r\n\r\n"))
            break;
    }
    if (sscanf(request, "GET %999s", path) != 1)
        return;
    path[strcspn(path, "?")] = '\0';
    for (size_t i = 0; i < s->n_routes; i++)
        if (strcmp(s->route[i].path, path) == 0) {
            server_answer(&s->route[i], fd, request);
            return;
        }
    server_send(fd, none, sizeof none - 1);
}

struct server_connection {
    struct server *s;
    int fd;
};

static void *server_connection(void *arg)
{
    struct server_connection *c = arg;
    server_serve(c->s, c->fd);
    shutdown(c->fd, SHUT_WR);
    char rest[256];
    while (recv(c->fd, rest, sizeof rest, 0) > 0)
        ;
    close(c->fd);
    atomic_fetch_sub(&c->s->busy, 1);
    free(c);
    return NULL;
}

static void *server_main(void *arg)
{
    struct server *s = arg;
    for (;;) {
        int fd = accept(s->fd, NULL, NULL);
        if (atomic_load(&s->ended) || fd < 0) {
            if (fd >= 0)
                close(fd);
            return NULL;
        }
        struct server_connection *c = malloc(sizeof *c);
        pthread_t t;
        if (!c)
            abort();
        *c = (struct server_connection){s, fd};
        atomic_fetch_add(&s->busy, 1);
        if (pthread_create(&t, NULL, server_connection, c) != 0)
            abort();
        pthread_detach(t);
    }
}

static void server_start(struct server *s)
{
    memset(s, 0, sizeof *s);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof a;
    s->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (s->fd < 0 || bind(s->fd, (struct sockaddr *)&a, sizeof a) != 0 || listen(s->fd, 16) != 0 ||
        getsockname(s->fd, (struct sockaddr *)&a, &len) != 0 ||
        pthread_create(&s->thread, NULL, server_main, s) != 0)
        abort();
    s->port = ntohs(a.sin_port);
}

/* Until no connection is being served. */
static void server_wait(struct server *s)
{
    while (atomic_load(&s->busy) > 0)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

static void server_stop(struct server *s)
{
    atomic_store(&s->ended, true);
    shutdown(s->fd, SHUT_RDWR);
    pthread_join(s->thread, NULL);
    server_wait(s);
    close(s->fd);
}

#endif
