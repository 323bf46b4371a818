/*
 * `linnet list`: the models on this machine, and the short names that can be pulled.
 */
#include "cli/cli.h"
#include "cli/store.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <jansson.h>

struct list_opts {
    bool json, names;
};

static int width_of_names(const struct store_list *list)
{
    int width = 4;
    for (size_t i = 0; i < list->n; i++) {
        int n = (int)strlen(list->item[i].name);
        width = n > width ? n : width;
    }
    return width;
}

static void print_table(const struct store_list *list)
{
    int width = width_of_names(list);
    const char *bold = cli_style(stdout, CLI_BOLD), *plain = cli_style(stdout, CLI_PLAIN);
    printf("%s%-*s  %9s  %-10s%s\n", bold, width, "NAME", "SIZE", "PULLED", plain);
    for (size_t i = 0; i < list->n; i++) {
        const struct store_model *m = &list->item[i];
        char size[CLI_NUM_LEN], day[16] = "";
        time_t when = (time_t)m->changed;
        struct tm tm;
        if (localtime_r(&when, &tm))
            strftime(day, sizeof day, "%Y-%m-%d", &tm);
        printf("%-*s  %9s  %-10s", width, m->name, cli_format_size(size, m->size), day);
        if (m->unfinished)
            printf("  not complete: 'linnet pull' goes on");
        else if (m->parts > 1)
            printf("  %u files", m->parts);
        putchar('\n');
    }
}

static int print_json(const struct store_list *list)
{
    json_t *all = json_array();
    for (size_t i = 0; i < list->n; i++) {
        const struct store_model *m = &list->item[i];
        char *path = store_path(m->place);
        json_array_append_new(all, json_pack("{s:s, s:s, s:I, s:I, s:i, s:b}", "name", m->name,
                                             "path", path, "bytes", (json_int_t)m->size, "changed",
                                             (json_int_t)m->changed, "files", (int)m->parts,
                                             "complete", !m->unfinished));
        free(path);
    }
    int rc = json_dumpf(all, stdout, JSON_INDENT(2));
    putchar('\n');
    json_decref(all);
    return rc == 0 ? CLI_OK : cli_fail("the list cannot be written as JSON");
}

static void print_nothing(void)
{
    char *folder = store_folder(), size[CLI_NUM_LEN];
    fprintf(stderr, "No models in %s yet. To begin with:\n", folder);
    for (const struct store_short *s = store_shorts; s->name; s++)
        fprintf(stderr, "  linnet pull %-10s %s (%s)\n", s->name, s->about,
                cli_format_size(size, s->size));
    free(folder);
}

static int run(const void *opts, int n, char **args)
{
    (void)n;
    (void)args;
    const struct list_opts *o = opts;
    struct store_list list;
    linnet_error e;
    if (store_list_models(&list, &e) != LINNET_OK)
        return cli_fail_with(&e);
    int rc = CLI_OK;
    if (o->json) {
        rc = print_json(&list);
    } else if (o->names) {
        for (size_t i = 0; i < list.n; i++)
            printf("%s\n", list.item[i].name);
    } else if (list.n == 0) {
        print_nothing();
    } else {
        print_table(&list);
    }
    store_free_list(&list);
    return rc;
}

static const struct cli_opt options[] = {
    {.flag = "--json", CLI_FLAG(struct list_opts, json), .help = "print JSON"},
    {.flag = "--names", CLI_FLAG(struct list_opts, names), .help = "print names only, one a line"},
    {0},
};

const struct cli_command cmd_list = {
    .name = "list",
    .group = CLI_GROUP_MODELS,
    .summary = "list the models on this machine",
    .about = "",
    .opts = options,
    .opts_size = sizeof(struct list_opts),
    .run = run,
};
