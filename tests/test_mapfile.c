#include "test.h"

#include "base/mapfile.h"
#include "tempdir.h"

static char dir[64];

static int set_up(void **state)
{
    (void)state;
    tempdir_make(dir);
    chmod(dir, 0755);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    tempdir_remove(dir);
    return 0;
}

static void a_file_is_mapped_whole(void **state)
{
    (void)state;
    linnet_error e;
    struct mapfile m;
    char data[10001];
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (char)(i * 31);
    assert_ok(mapfile_open(tempdir_write(dir, "data", data, sizeof data), &m, &e), e);
    assert_int_equal(m.size, sizeof data);
    assert_memory_equal(m.data, data, sizeof data);
    mapfile_close(&m);
    assert_null(m.data);
    mapfile_close(&m);
}

static void dropped_pages_read_the_same_again(void **state)
{
    (void)state;
    linnet_error e;
    struct mapfile m;
    size_t size = 1 << 20;
    unsigned char *data = malloc(size);
    assert_non_null(data);
    for (size_t i = 0; i < size; i++)
        data[i] = (unsigned char)(i >> 8 ^ i);
    assert_ok(mapfile_open(tempdir_write(dir, "data", data, size), &m, &e), e);
    mapfile_drop(&m, 0, size);
    mapfile_drop(&m, 100, 200); /* less than a page: nothing */
    mapfile_drop(&m, 5000, 100000);
    mapfile_drop(&m, size - 1, 1);
    mapfile_drop(&m, size, 1);            /* outside: ignored */
    mapfile_drop(&m, 4096, SIZE_MAX - 5); /* wraps: ignored */
    assert_memory_equal(m.data, data, size);
    mapfile_close(&m);
    free(data);
}

static void an_empty_file_has_no_data(void **state)
{
    (void)state;
    linnet_error e;
    struct mapfile m = {(const uint8_t *)"x", 1};
    assert_ok(mapfile_open(tempdir_text(dir, "empty", ""), &m, &e), e);
    assert_null(m.data);
    assert_int_equal(m.size, 0);
    mapfile_drop(&m, 0, 0);
    mapfile_close(&m);
}

static void what_is_not_a_file_is_refused_by_name(void **state)
{
    (void)state;
    linnet_error e;
    struct mapfile m;
    assert_int_equal(mapfile_open(tempdir_path(dir, "missing"), &m, &e), LINNET_NOT_FOUND);
    assert_non_null(strstr(e.text, "/missing"));
    assert_int_equal(mapfile_open(dir, &m, &e), LINNET_IO);
    assert_non_null(strstr(e.text, "is a directory"));
    assert_int_equal(mapfile_open("/dev/null", &m, &e), LINNET_IO);
    assert_non_null(strstr(e.text, "not a regular file"));
    const char *fifo = tempdir_path(dir, "fifo");
    assert_int_equal(mkfifo(fifo, 0600), 0);
    assert_int_equal(mapfile_open(fifo, &m, &e), LINNET_IO); /* and does not hang */
    assert_int_equal(mapfile_open("", &m, NULL), LINNET_NOT_FOUND);
}

static void an_unreadable_file_is_an_error(void **state)
{
    (void)state;
    linnet_error e;
    struct mapfile m;
    const char *path = tempdir_text(dir, "secret", "x");
    assert_int_equal(chmod(path, 0), 0);
    uid_t user = geteuid();
    if (user == 0) /* the superuser reads everything */
        assert_int_equal(seteuid(65534), 0);
    linnet_status status = mapfile_open(path, &m, &e);
    assert_int_equal(seteuid(user), 0);
    assert_int_equal(status, LINNET_IO);
    assert_non_null(strstr(e.text, "/secret"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_file_is_mapped_whole, set_up, tear_down),
        cmocka_unit_test_setup_teardown(dropped_pages_read_the_same_again, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_empty_file_has_no_data, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_is_not_a_file_is_refused_by_name, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_unreadable_file_is_an_error, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
