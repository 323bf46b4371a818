/*
 * A temporary directory for one test, files in it, and its removal with everything below.
 */
#ifndef LINNET_TEMPDIR_H
#define LINNET_TEMPDIR_H

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Make a directory; its path goes to dir[64]. */
static inline void tempdir_make(char dir[64])
{
    strcpy(dir, "/tmp/linnet-test-XXXXXX");
    if (!mkdtemp(dir)) {
        perror(dir);
        exit(1);
    }
}

/* "<dir>/<name>"; static, valid until the fourth next call. */
static inline const char *tempdir_path(const char *dir, const char *name)
{
    static char paths[4][512];
    static unsigned next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", dir, name);
    return path;
}

/* Write a file, making the directories above it. Returns its path, as tempdir_path. */
static inline const char *tempdir_write(const char *dir, const char *name, const void *data,
                                        size_t n)
{
    const char *path = tempdir_path(dir, name);
    char part[512];
    snprintf(part, sizeof part, "%s", path);
    for (char *s = part + strlen(dir) + 1; (s = strchr(s, '/')) != NULL; s++) {
        *s = '\0';
        if (mkdir(part, 0777) != 0 && errno != EEXIST)
            perror(part);
        *s = '/';
    }
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(data, 1, n, f) != n || fclose(f) != 0) {
        perror(path);
        exit(1);
    }
    return path;
}

static inline const char *tempdir_text(const char *dir, const char *name, const char *text)
{
    return tempdir_write(dir, name, text, strlen(text));
}

static inline int tempdir_remove_one(const char *path, const struct stat *st, int type,
                                     struct FTW *at)
{
    (void)st;
    (void)type;
    (void)at;
    return remove(path);
}

static inline void tempdir_remove(const char *dir)
{
    nftw(dir, tempdir_remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

#endif
