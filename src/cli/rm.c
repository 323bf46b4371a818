/*
 * `linnet rm`: remove models that `linnet pull` brought, with everything that lies beside them.
 * Touches nothing outside the folder of models.
 */
#include "cli/cli.h"
#include "cli/store.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Remove one file and its companions; true when it was there. */
static bool remove_file(const char *place, bool *failed)
{
    static const char *const endings[] = {"", ".sha256", ".part", ".part.info", ".part.unpacked"};
    bool any = false;
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        char *path = store_path(place), *full = cli_printf("%s%s", path, endings[i]);
        if (unlink(full) == 0) {
            any = true;
        } else if (errno != ENOENT) {
            cli_fail("cannot remove %s: %s", full, strerror(errno));
            *failed = true;
        }
        free(path);
        free(full);
    }
    return any;
}

/* Remove the folders that became empty, up to the folder of models. */
static void remove_empty_folders(const char *place)
{
    char *at = cli_printf("%s", place);
    for (char *slash; (slash = strrchr(at, '/')) != NULL;) {
        *slash = '\0';
        char *path = store_path(at);
        int rc = rmdir(path);
        free(path);
        if (rc != 0)
            break;
    }
    free(at);
}

static bool remove_model(const struct store_model *m)
{
    size_t prefix;
    unsigned part, count;
    bool failed = false;
    if (store_split_name(m->place, &prefix, &part, &count)) {
        for (unsigned i = 1; i <= count; i++) {
            char *place = cli_printf("%.*s-%05u-of-%05u.gguf", (int)prefix, m->place, i, count);
            remove_file(place, &failed);
            free(place);
        }
    } else {
        remove_file(m->place, &failed);
    }
    remove_empty_folders(m->place);
    return !failed;
}

static int run(const void *opts, int n, char **args)
{
    (void)opts;
    int rc = CLI_OK;
    for (int i = 0; i < n; i++) {
        struct store_list list;
        const struct store_model *m = NULL;
        linnet_error e;
        linnet_status s = store_list_models(&list, &e);
        if (s == LINNET_OK)
            s = store_find(&list, args[i], &m, &e);
        if (s != LINNET_OK) {
            rc = cli_fail_with(&e);
        } else if (!remove_model(m)) {
            rc = CLI_FAILED;
        } else {
            char size[CLI_NUM_LEN];
            fprintf(stderr, "removed %s (%s)\n", m->name, cli_format_size(size, m->size));
        }
        store_free_list(&list);
    }
    return rc;
}

static const struct cli_arg args[] = {
    {.name = "MODEL",
     .help = "a name that 'linnet list' shows",
     .repeated = true,
     .hint = CLI_HINT_MODEL},
    {0},
};

const struct cli_command cmd_rm = {
    .name = "rm",
    .group = CLI_GROUP_MODELS,
    .summary = "remove models from this machine",
    .about = "Only models that 'linnet pull' brought; other files are yours to remove.",
    .args = args,
    .run = run,
};
