/*
 * What the program says and how: messages, colour, wrapping, progress, number formats, reading
 * streams, interruption. The only file with process-wide state: the interruption flag, which a
 * signal handler sets.
 */
#include "cli/cli.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

/* ---- messages -------------------------------------------------------------------------------- */

static void message(const char *fmt, va_list args)
{
    fflush(stdout); /* keeps the two streams in order on a terminal */
    fprintf(stderr, "%slinnet:%s ", cli_style(stderr, CLI_RED), cli_style(stderr, CLI_PLAIN));
    vfprintf(stderr, fmt, args);
    fputc('\n', stderr);
}

void cli_warn(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    message(fmt, args);
    va_end(args);
}

int cli_fail(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    message(fmt, args);
    va_end(args);
    return CLI_FAILED;
}

int cli_usage(const struct cli_command *cmd, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    message(fmt, args);
    va_end(args);
    fprintf(stderr, "See 'linnet %s --help'.\n", cmd->name);
    return CLI_USAGE;
}

int cli_fail_with(const linnet_error *e)
{
    return cli_fail("%s", e->text[0] ? e->text : linnet_status_text(e->status));
}

bool cli_is_terminal(FILE *f)
{
    return isatty(fileno(f)) == 1;
}

const char *cli_style(FILE *f, enum cli_style style)
{
    static const char *const code[] = {
        [CLI_PLAIN] = "\033[0m", [CLI_BOLD] = "\033[1m",   [CLI_DIM] = "\033[2m",
        [CLI_RED] = "\033[31m",  [CLI_GREEN] = "\033[32m",
    };
    const char *no_color = getenv("NO_COLOR"), *term = getenv("TERM");
    if ((no_color && *no_color) || !term || strcmp(term, "dumb") == 0 || !cli_is_terminal(f))
        return "";
    return code[style];
}

/* Columns a UTF-8 word takes, counting one per character. */
static int columns(const char *s, size_t n)
{
    int c = 0;
    for (size_t i = 0; i < n; i++)
        c += ((unsigned char)s[i] & 0xC0) != 0x80;
    return c;
}

void cli_wrap(FILE *f, int indent, int column, const char *text)
{
    enum { WIDTH = 80 };
    bool fresh = true; /* at the start of a line: no space before the next word */
    while (*text) {
        if (*text == '\n') {
            fputc('\n', f);
            if (text[1] != '\n' && text[1])
                fprintf(f, "%*s", indent, "");
            column = indent;
            fresh = true;
            text++;
            continue;
        }
        if (*text == ' ') {
            text++;
            continue;
        }
        size_t n = strcspn(text, " \n");
        int wide = columns(text, n);
        if (!fresh && column + 1 + wide > WIDTH) {
            fprintf(f, "\n%*s", indent, "");
            column = indent;
            fresh = true;
        }
        if (!fresh) {
            fputc(' ', f);
            column++;
        }
        fwrite(text, 1, n, f);
        column += wide;
        fresh = false;
        text += n;
    }
}

/* ---- numbers --------------------------------------------------------------------------------- */

/* Three significant digits with the unit that fits. */
static const char *scaled(char buf[CLI_NUM_LEN], uint64_t n, const char *const *units,
                          const char *one)
{
    double v = (double)n;
    size_t u = 0;
    if (n < 1000) {
        snprintf(buf, CLI_NUM_LEN, "%u%s%s", (unsigned)n, *one ? " " : "", one);
        return buf;
    }
    while (v >= 999.5 && u < 5) {
        v /= 1000;
        u++;
    }
    snprintf(buf, CLI_NUM_LEN,
             v < 9.995   ? "%.2f %s"
             : v < 99.95 ? "%.1f %s"
                         : "%.0f %s",
             v, units[u]);
    return buf;
}

const char *cli_format_size(char buf[CLI_NUM_LEN], uint64_t bytes)
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB"};
    return scaled(buf, bytes, units, "B");
}

const char *cli_format_count(char buf[CLI_NUM_LEN], uint64_t n)
{
    static const char *const units[] = {"", "K", "M", "B", "T", "Q"};
    return scaled(buf, n, units, "");
}

const char *cli_format_int(char buf[CLI_NUM_LEN], uint64_t n)
{
    char digits[CLI_NUM_LEN];
    int len = snprintf(digits, sizeof digits, "%llu", (unsigned long long)n);
    int at = 0;
    for (int i = 0; i < len; i++) {
        if (i > 0 && (len - i) % 3 == 0)
            buf[at++] = ',';
        buf[at++] = digits[i];
    }
    buf[at] = '\0';
    return buf;
}

/* ---- progress -------------------------------------------------------------------------------- */

double cli_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void cli_progress_start(struct cli_progress *p, const char *title, bool bytes, uint64_t first,
                        uint64_t total, bool quiet)
{
    *p = (struct cli_progress){.title = title, .bytes = bytes, .total = total, .first = first};
    p->quiet = quiet;
    p->started = cli_seconds();
    p->drawn = p->started;
    p->tenth = total ? (int)(10.0 * (double)first / (double)total) : 0;
}

static int screen_columns(void)
{
    struct winsize w;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 0)
        return w.ws_col;
    return 80;
}

static void format_amount(const struct cli_progress *p, char buf[CLI_NUM_LEN], uint64_t n)
{
    if (p->bytes)
        cli_format_size(buf, n);
    else
        cli_format_int(buf, n);
}

/* "42.0 MB of 91.2 MB, 12.1 MB/s, 4 s left" */
static void describe(const struct cli_progress *p, uint64_t done, char *buf, size_t size)
{
    char d[CLI_NUM_LEN], t[CLI_NUM_LEN], r[CLI_NUM_LEN];
    double elapsed = cli_seconds() - p->started;
    double rate = elapsed > 0.2 && done > p->first ? (double)(done - p->first) / elapsed : 0;
    format_amount(p, d, done);
    format_amount(p, t, p->total);
    int n = p->total ? snprintf(buf, size, "%s of %s", d, t) : snprintf(buf, size, "%s", d);
    if (rate <= 0 || n < 0 || (size_t)n >= size)
        return;
    if (p->bytes)
        n += snprintf(buf + n, size - (size_t)n, ", %s/s", cli_format_size(r, (uint64_t)rate));
    if (p->total > done && (size_t)n < size) {
        double left = (double)(p->total - done) / rate;
        if (left < 100)
            snprintf(buf + n, size - (size_t)n, ", %.0f s left", left);
        else
            snprintf(buf + n, size - (size_t)n, ", %.0f min left", left / 60);
    }
}

static void draw_bar(struct cli_progress *p, uint64_t done)
{
    enum { BAR = 20 };
    char text[160], line[400];
    describe(p, done, text, sizeof text);
    char bar[BAR + 1];
    int full = p->total ? (int)((double)BAR * (double)done / (double)p->total) : 0;
    for (int i = 0; i < BAR; i++)
        bar[i] = i < full ? '#' : '.';
    bar[BAR] = '\0';
    if (p->total)
        snprintf(line, sizeof line, "%s [%s] %s", p->title, bar, text);
    else
        snprintf(line, sizeof line, "%s %s", p->title, text);
    fprintf(stderr, "\r\033[K%.*s", screen_columns() - 1, line);
    fflush(stderr);
    p->on_screen = true;
}

void cli_progress_update(struct cli_progress *p, uint64_t done)
{
    if (p->quiet)
        return;
    double now = cli_seconds();
    if (cli_is_terminal(stderr)) {
        if (now - p->drawn >= 0.1) {
            p->drawn = now;
            draw_bar(p, done);
        }
        return;
    }
    int tenth = p->total ? (int)(10.0 * (double)done / (double)p->total) : 0;
    if (tenth > p->tenth && tenth < 10 && now - p->drawn >= 3) {
        char text[160];
        p->tenth = tenth;
        p->drawn = now;
        describe(p, done, text, sizeof text);
        fprintf(stderr, "%s: %d%%, %s\n", p->title, 10 * tenth, text);
    }
}

void cli_progress_end(struct cli_progress *p)
{
    if (p->on_screen)
        fprintf(stderr, "\r\033[K");
    p->on_screen = false;
}

/* ---- interruption ---------------------------------------------------------------------------- */

volatile sig_atomic_t cli_interrupted;

/* What runs when the interrupt comes; set before work starts and cleared after it. */
static linnet_context *volatile interruptible;

static void on_interrupt(int sig)
{
    cli_interrupted = sig;
    if (interruptible)
        linnet_context_cancel(interruptible);
}

void cli_interrupt_cancels(linnet_context *context)
{
    interruptible = context;
}

void cli_catch_interrupt(void)
{
    struct sigaction a;
    memset(&a, 0, sizeof a);
    a.sa_handler = on_interrupt;
    a.sa_flags = (int)SA_RESETHAND; /* the second one has its default effect: it kills */
    sigemptyset(&a.sa_mask);
    sigaction(SIGINT, &a, NULL);
    sigaction(SIGTERM, &a, NULL);
}

/* ---- memory and streams ---------------------------------------------------------------------- */

void *cli_alloc(size_t n)
{
    void *p = malloc(n ? n : 1);
    if (!p) {
        cli_fail("out of memory: %zu bytes", n);
        exit(CLI_FAILED);
    }
    return p;
}

char *cli_printf(const char *fmt, ...)
{
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    char *s = cli_alloc((size_t)(n < 0 ? 0 : n) + 1);
    s[0] = '\0';
    vsnprintf(s, (size_t)(n < 0 ? 0 : n) + 1, fmt, again);
    va_end(again);
    return s;
}

char *cli_read_stream(FILE *f, const char *name, size_t max, size_t *n)
{
    size_t size = 0, room = 4096;
    char *buf = cli_alloc(room + 1);
    for (;;) {
        size += fread(buf + size, 1, room - size, f);
        if (ferror(f)) {
            cli_fail("cannot read %s: %s", name, strerror(errno));
            break;
        }
        if (size > max) {
            char limit[CLI_NUM_LEN];
            cli_fail("%s is longer than the limit of %s", name, cli_format_size(limit, max));
            break;
        }
        if (size < room) {
            buf[size] = '\0';
            *n = size;
            return buf;
        }
        room *= 2;
        char *more = realloc(buf, room + 1);
        if (!more) {
            cli_fail("out of memory: %zu bytes for %s", room, name);
            break;
        }
        buf = more;
    }
    free(buf);
    return NULL;
}

char *cli_read_file(const char *path, size_t max, size_t *n)
{
    if (strcmp(path, "-") == 0)
        return cli_read_stream(stdin, "standard input", max, n);
    FILE *f = fopen(path, "rb");
    if (!f) {
        cli_fail("cannot open %s: %s", path, strerror(errno));
        return NULL;
    }
    char *text = cli_read_stream(f, path, max, n);
    fclose(f);
    return text;
}
