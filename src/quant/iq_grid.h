/* The codebooks of the iq types; see iq_grid.c. */
#ifndef LINNET_QUANT_IQ_GRID_H
#define LINNET_QUANT_IQ_GRID_H

#include <stdint.h>

extern const int8_t iq1_grid[2048][8]; /* iq1_s, iq1_m */
extern const int8_t iq2_xxs_grid[256][8];
extern const int8_t iq2_xs_grid[512][8];
extern const int8_t iq2_s_grid[1024][8];
extern const int8_t iq3_xxs_grid[256][4];
extern const int8_t iq3_s_grid[512][4];

#endif
