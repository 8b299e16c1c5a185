/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* What the instructions of the tile unit do, in C: tiles of up to 16 rows of 64 bytes. */
#ifndef RG_TESTS_AMX_EMULATED_H
#define RG_TESTS_AMX_EMULATED_H
#define RG_AMX_EMULATED 1 /* this header comes before all else */

#include <stdint.h>
#include <string.h>

static _Thread_local unsigned char tiles[8][16][64];
static _Thread_local unsigned char tile_rows[8]; /* by the configuration */

/* Bytes 48 to 55 are the rows of the tiles. All becomes NaN: whoever uses a tile before it is
 * filled will see. */
static inline void _tile_loadconfig(const void *config)
{
    memcpy(tile_rows, (const char *)config + 48, sizeof tile_rows);
    memset(tiles, 0xff, sizeof tiles);
}

static inline void _tile_release(void)
{
    memset(tile_rows, 0, sizeof tile_rows);
    memset(tiles, 0xff, sizeof tiles);
}

static inline void _tile_zero(int t)
{
    memset(tiles[t], 0, tile_rows[t] * sizeof tiles[t][0]);
}

static inline void _tile_loadd(int t, const void *base, int64_t stride)
{
    for (int row = 0; row < tile_rows[t]; row++)
        memcpy(tiles[t][row], (const char *)base + row * stride, 64);
}

static inline void _tile_stored(int t, void *base, int64_t stride)
{
    for (int row = 0; row < tile_rows[t]; row++)
        memcpy((char *)base + row * stride, tiles[t][row], 64);
}

static inline float tile_bf16(int t, int row, int i)
{
    uint16_t bits;
    memcpy(&bits, &tiles[t][row][2 * i], sizeof bits);
    const uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
}

/* Row m of c gets pair after pair of row m of a, times the pairs of column n of b. */
static inline void _tile_dpbf16ps(int c, int a, int b)
{
    for (int m = 0; m < tile_rows[c]; m++) {
        float sums[16];
        memcpy(sums, tiles[c][m], sizeof sums);
        for (int pair = 0; pair < 16; pair++)
            for (int n = 0; n < 16; n++)
                for (int e = 0; e < 2; e++)
                    sums[n] += tile_bf16(a, m, 2 * pair + e) * tile_bf16(b, pair, 2 * n + e);
        memcpy(tiles[c][m], sums, sizeof sums);
    }
}

#endif
