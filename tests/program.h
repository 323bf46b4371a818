/*
 * Running the built program from a test: `$RUNNER $LINNET ARGS` in a shell, its output kept in a
 * folder of the test's own.
 */
#ifndef LINNET_TEST_PROGRAM_H
#define LINNET_TEST_PROGRAM_H

#include "test.h"

#include <sys/wait.h>
#include <unistd.h>

static char program_folder[] = "/tmp/linnet-test-XXXXXX";
static char program_out[64000], program_err[16000]; /* of the last program that ended */

/* Group set-up and tear-down: the folder. */
static int program_begin(void **state)
{
    (void)state;
    if (!mkdtemp(program_folder))
        return -1;
    setenv("XDG_CONFIG_HOME", program_folder, 1); /* not the configuration of who runs the tests */
    return 0;
}

static int program_end(void **state)
{
    (void)state;
    char command[200];
    snprintf(command, sizeof command, "rm -rf %s", program_folder);
    return system(command) == 0 ? 0 : -1;
}

static void program_read(const char *name, const char *end, char *buf, size_t size)
{
    char path[300];
    snprintf(path, sizeof path, "%s/%s%s", program_folder, name, end);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    buf[fread(buf, 1, size - 1, f)] = '\0';
    fclose(f);
}

/* Start it; `name` tells its output from that of others that run at the same time. */
static pid_t program_start(const char *args, const char *name)
{
    const char *runner = getenv("RUNNER"), *linnet = getenv("LINNET");
    char command[4000];
    snprintf(command, sizeof command, "exec %s %s %s >%s/%s.out 2>%s/%s.err", runner ? runner : "",
             linnet ? linnet : "build/linnet", args, program_folder, name, program_folder, name);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    return pid;
}

/* Wait for it; returns its exit code, or minus the signal that ended it. */
static int program_finish(pid_t pid, const char *name)
{
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    program_read(name, ".out", program_out, sizeof program_out);
    program_read(name, ".err", program_err, sizeof program_err);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/* Run it to its end; a test fails, showing what was said, when the exit code is another. */
static void program_run(const char *args, int want)
{
    int rc = program_finish(program_start(args, "run"), "run");
    if (rc != want)
        fail_msg("linnet %s: exit code %d, not %d: %s", args, rc, want, program_err);
}

static inline void program_assert_said(const char *text)
{
    if (!strstr(program_err, text))
        fail_msg("'%s' lacks '%s'", program_err, text);
}

static inline void program_assert_printed(const char *text)
{
    if (!strstr(program_out, text))
        fail_msg("'%s' lacks '%s'", program_out, text);
}

#endif
