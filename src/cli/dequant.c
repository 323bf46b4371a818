/*
 * `linnet dequant TYPE`: raw blocks of a weight format on stdin, the float32 values on stdout. The
 * plain way to see what a file's bytes stand for, and to compare decoders.
 *
 * Streams in constant memory. Input that ends inside a block is an error after the whole blocks
 * were written. Output is little-endian float32, whatever the machine.
 */
#include "cli/commands.h"
#include "quant/quant.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 1 << 16 }; /* values decoded at a time; every block size divides it */

/* "f32, f16, q4_0 ..." of the formats that can be decoded. */
static void list_types(char *buf, size_t size)
{
    size_t n = 0;
    buf[0] = '\0';
    for (size_t i = 0; i < quant_type_count() && n < size; i++) {
        const struct quant_type *t = quant_type_at(i);
        if (t->decode)
            n += (size_t)snprintf(buf + n, size - n, "%s%s", n ? ", " : "", t->name);
    }
}

static int dequantise(const struct quant_type *t, FILE *in, FILE *out)
{
    const struct quant_type *f32 = quant_type_of(QUANT_F32);
    size_t room = 0;
    if (!quant_row_bytes(t, CHUNK, &room))
        return cli_fail("%s: block size %u does not fit the buffer", t->name, t->block);
    uint8_t *blocks = cli_alloc(room), *bytes = cli_alloc(CHUNK * sizeof(float));
    float *values = cli_alloc(CHUNK * sizeof(float));
    size_t got, rest = 0;
    uint64_t n_blocks = 0;
    int rc = CLI_OK;
    while (rc == CLI_OK && rest == 0 && (got = fread(blocks, 1, room, in)) > 0) {
        const size_t whole = got / t->block_bytes, n = whole * t->block;
        rest = got % t->block_bytes;
        n_blocks += whole;
        t->decode(blocks, values, n);
        f32->encode(values, bytes, n);
        if (fwrite(bytes, sizeof(float), n, out) != n)
            rc = cli_fail("cannot write the values: %s", strerror(errno));
    }
    if (rc == CLI_OK && ferror(in))
        rc = cli_fail("cannot read stdin: %s", strerror(errno));
    else if (rc == CLI_OK && rest)
        rc = cli_fail("stdin ends %zu bytes into %s block %llu; a block is %u bytes", rest, t->name,
                      (unsigned long long)n_blocks, t->block_bytes);
    free(blocks);
    free(bytes);
    free(values);
    return rc;
}

static int run(const void *opts, int n, char **args)
{
    (void)opts;
    (void)n;
    const struct quant_type *t = quant_type_named(args[0]);
    if (!t || !t->decode) {
        char known[600];
        list_types(known, sizeof known);
        return cli_usage(&cmd_dequant, "'%s' is not a weight format; known are %s", args[0], known);
    }
    if (cli_is_terminal(stdout))
        return cli_usage(&cmd_dequant, "the output is binary; send it to a file or a program");
    return dequantise(t, stdin, stdout);
}

static const struct cli_arg args[] = {
    {.name = "TYPE", .help = "weight format by its name in GGUF, such as q4_K (in any case)"},
    {0},
};

const struct cli_command cmd_dequant = {
    .name = "dequant",
    .group = CLI_GROUP_MODELS,
    .summary = "turn raw blocks of a weight format into float32",
    .about =
        "Reads blocks of the format on stdin and writes their values, little-endian float32, to "
        "stdout. An unknown TYPE lists the known ones.",
    .args = args,
    .examples = "linnet dequant q4_K <blocks.bin >values.f32\tdecode a file of q4_K blocks\n",
    .run = run,
};
