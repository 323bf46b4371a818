/*
 * The program: finds the subcommand and hands over.
 */
#include "linnet.h"

#include <stdio.h>

int main(void)
{
    fprintf(stderr, "linnet %s\n", linnet_version());
    return 2;
}
