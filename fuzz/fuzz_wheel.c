/*
 * Fuzzes reading a wheel: the bytes are a ZIP file from which a member is taken. The first byte
 * chooses the member, so that stored and deflated ones are reached.
 */
#include "cli/wheel.h"

#include <stdio.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct wheel_member m;
    char hex[SHA256_HEX];
    linnet_error e;
    if (size == 0)
        return 0;
    FILE *in = tmpfile(), *out = tmpfile();
    if (in && out && fwrite(data + 1, 1, size - 1, in) == size - 1 && fflush(in) == 0 &&
        wheel_find_member(NULL, fileno(in), data[0] & 1 ? "a" : "b", &m, &e) == LINNET_OK &&
        m.size < 1 << 20)
        wheel_unpack(fileno(in), m.offset, &m, fileno(out), "out", hex, &e);
    if (in)
        fclose(in);
    if (out)
        fclose(out);
    return 0;
}
