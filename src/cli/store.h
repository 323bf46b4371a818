/*
 * The models on this machine: the folder they lie in, the names they go by, and finding one by
 * name.
 *
 * The folder is $XDG_DATA_HOME/linnet/models (default ~/.local/share). A model's place in it
 * mirrors where it came from, so that the path tells the source and no index can go stale:
 *
 *     hf:owner/repo/file         hf/owner/repo/file           pypi:package/file pypi/package/file
 *     hf:owner/repo@rev/file     hf/owner/repo@rev/file       https://host/path    https/host/path
 *
 * Beside a complete file lies <file>.sha256 (for `sha256sum -c`); <file>.part is an unfinished
 * download.
 */
#ifndef LINNET_CLI_STORE_H
#define LINNET_CLI_STORE_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A model known by a short name. */
struct store_short {
    const char *name;
    const char *source;
    const char *sha256; /* of the file */
    uint64_t size;
    const char *about;
};
extern const struct store_short store_shorts[]; /* ended by an entry without a name */
const struct store_short *store_find_short(const char *name);

/* Where a model comes from, parsed. */
enum store_kind { STORE_HF, STORE_PYPI, STORE_URL };
struct store_source {
    enum store_kind kind;
    char *name;         /* in its normal form: "hf:owner/repo/file" */
    char *owner, *repo; /* STORE_HF */
    char *revision;     /* STORE_HF: "main" unless given */
    char *package;      /* STORE_PYPI: normalised (PEP 503) */
    char *version;      /* STORE_PYPI: NULL for the newest */
    char *file;         /* STORE_HF and STORE_PYPI: NULL when it was left out */
    char *url;          /* STORE_URL */
    char *place;        /* path below the folder; NULL when `file` is */
};

/* Parse "hf:...", "pypi:...", "https://..."; a page or file address of the model hub becomes its
 * hf: form. LINNET_NOT_FOUND when `text` is not of this form at all; other errors say what is wrong
 * with it. */
linnet_status store_parse_source(const char *text, struct store_source *out, linnet_error *e);
void store_free_source(struct store_source *s);

/* The folder, and a path in it; free() them. */
char *store_folder(void);
char *store_path(const char *place);

/* One model that is here: all parts of a split file are one model. */
struct store_model {
    char *name;      /* short name or source */
    char *place;     /* of the first part */
    uint64_t size;   /* all parts; of an unfinished one what is there */
    int64_t changed; /* seconds since 1970 */
    unsigned parts;  /* files: 1, or as many as a split model has here */
    bool unfinished;
};
struct store_list {
    struct store_model *item; /* [n], by name */
    size_t n;
};
linnet_status store_list_models(struct store_list *out, linnet_error *e);
void store_free_list(struct store_list *list);

/* The entry of `list` that `name` means: a short name, a source, or a file name (with or without
 * ".gguf") that only one model has. LINNET_NOT_FOUND and LINNET_INVALID (several fit) say what to
 * do. */
linnet_status store_find(const struct store_list *list, const char *name,
                         const struct store_model **out, linnet_error *e);

/* "<prefix>-NNNNN-of-MMMMM.gguf": length of the prefix, part and count; false for other names. */
bool store_split_name(const char *path, size_t *prefix, unsigned *part, unsigned *count);

#endif
