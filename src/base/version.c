/*
 * The library's version, given by the build.
 */
#include "linnet.h"

const char *linnet_version(void)
{
    return LINNET_VERSION;
}
