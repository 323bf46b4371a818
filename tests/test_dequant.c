#include "tempdir.h"
#include "test.h"

#include "quant/quant.h"

#include <sys/wait.h>

static char dir[64];

static char *slurp(const char *name, size_t *n)
{
    static char data[1 << 20];
    FILE *f = fopen(tempdir_path(dir, name), "rb");
    assert_non_null(f);
    *n = fread(data, 1, sizeof data - 1, f);
    data[*n] = '\0';
    fclose(f);
    return data;
}

/* `linnet dequant <arguments>` with `in` on stdin; its exit code. Output goes to the files out and
 * err. */
static int dequant(const char *arguments, const void *in, size_t n)
{
    const char *program = getenv("LINNET"), *runner = getenv("RUNNER");
    char command[2000];
    tempdir_write(dir, "in", in, n);
    snprintf(command, sizeof command, "%s %s dequant %s <%s/in >%s/out 2>%s/err",
             runner ? runner : "", program ? program : "build/linnet", arguments, dir, dir, dir);
    const int status = system(command);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* More than the program decodes at a time, so that blocks meet its buffer's end. */
enum { BLOCKS = 300 };

static void the_program_decodes_as_the_library_does(void **state)
{
    (void)state;
    const struct quant_type *t = quant_type_named("q4_K");
    static uint8_t blocks[BLOCKS * 144];
    static float want[BLOCKS * 256];
    for (size_t i = 0; i < sizeof blocks; i++)
        blocks[i] = (uint8_t)(i * 7 % 59); /* small exponents: no infinities */
    t->decode(blocks, want, (size_t)BLOCKS * 256);
    assert_int_equal(dequant("Q4_k", blocks, sizeof blocks), 0);
    size_t n;
    const char *out = slurp("out", &n);
    assert_int_equal(n, sizeof want);
    assert_memory_equal(out, want, sizeof want);
}

static void no_blocks_are_no_values(void **state)
{
    (void)state;
    assert_int_equal(dequant("q8_0", "", 0), 0);
    size_t n;
    slurp("out", &n);
    assert_int_equal(n, 0);
}

static void input_that_ends_inside_a_block_is_an_error(void **state)
{
    (void)state;
    uint8_t blocks[2 * 34 + 5] = {0};
    assert_int_equal(dequant("q8_0", blocks, sizeof blocks), 1);
    size_t n;
    assert_non_null(strstr(slurp("err", &n), "5 bytes into q8_0 block 2"));
    slurp("out", &n);
    assert_int_equal(n, 2 * 32 * sizeof(float)); /* the whole blocks were written */
}

static void an_unknown_type_lists_the_known_ones(void **state)
{
    (void)state;
    static const char *const wrong[] = {"q9_Z", "i32", "''"};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(dequant(wrong[i], "", 0), 2);
        size_t n;
        const char *err = slurp("err", &n);
        assert_non_null(strstr(err, "f32, f16, q4_0"));
        assert_non_null(strstr(err, "q2_0_g128"));
        assert_null(strstr(err, " i32,"));
    }
    assert_int_equal(dequant("", "", 0), 2);
}

static int make_dir(void **state)
{
    (void)state;
    tempdir_make(dir);
    return 0;
}

static int remove_dir(void **state)
{
    (void)state;
    tempdir_remove(dir);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_program_decodes_as_the_library_does),
        cmocka_unit_test(no_blocks_are_no_values),
        cmocka_unit_test(input_that_ends_inside_a_block_is_an_error),
        cmocka_unit_test(an_unknown_type_lists_the_known_ones),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
