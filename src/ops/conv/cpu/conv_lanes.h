/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Groups of few channels, stride 1: the innermost loops, for real and for pairs of bf16.
 *
 * A vector holds neighbouring channels of the result. The inputs of a block of
 * RG_CONV_GROUPED_BLOCK channels are dense in scratch; each lane picks the channel that it
 * multiplies while the vector is in a register, and all taps of a row use what was picked:
 *
 *      sums[m][lane]  =  sum over rows of taps, picks i, taps q  of
 *                        x[row][m + q][pick i of the lane] * w[row][q][i][lane]
 *
 * A word is a real, or a pair of adjacent channels in bf16.
 *
 * Backward weights likewise, where a pair is two adjacent columns:
 *
 *      sums[q][i][lane]  =  sum over windows  of  x[m + q][pick i of the lane] * dy[m][lane]  */
#ifndef RG_OPS_CONV_LANES_H
#define RG_OPS_CONV_LANES_H

#include "ops/conv/cpu/conv_cpu.h"

enum {
    RG_CONV_LANES_PICKS = 16,  /* of a lane, at most */
    RG_CONV_LANES_HEIGHT = 14, /* results side by side, at most */
};

/* Steps are in words. `first` may lie before x: inputs begin <= j < end of a row exist, counted
 * from there, the others are left out. */
typedef struct rg_conv_lanes {
    const void *x, *w;
    void *sums; /* [count][lanes] */
    int64_t first, x_row;
    int64_t w_row, w_tap; /* a pick further: RG_CONV_GROUPED_BLOCK */
    int64_t rows;         /* of taps */
    int64_t begin, end;
    int64_t picks;
    const void *index;                   /* [picks][lanes]: which word a lane picks */
    int64_t offset[RG_CONV_LANES_PICKS]; /* of the vector that a pick is taken from */
} rg_conv_lanes;

/* Whether there are loops for windows of so many columns. */
static inline bool rg_conv_lanes_has(int64_t columns)
{
    return columns == 3 || columns == 5;
}

/* Pairs of bf16 in 16 lanes, `count` results: 14, 7, 4, 2 or 1. */
void rg_bf16_lanes(const rg_conv_lanes *t, int64_t columns, int64_t count);

/* ---- backward weights ---- */

/* `rows` rows of words of RG_CONV_GROUPED_BLOCK channels, of x and of dy. Reals: column i of x is
 * tap q of window start + i - q, if there is such a one. Pairs: a row of x is `columns` pairs that
 * begin with an even column, then as many that begin one further; tap q of pair i is window pair
 * i - q / 2, and zeros lie around those of dy. All numbers are finite. */
typedef struct rg_conv_lanes_windows {
    const void *x, *y;
    void *sums; /* [tap][pick][lanes] */
    int64_t rows, x_row, y_row;
    int64_t start, columns, windows;
    const void *index; /* [picks][lanes] */
    int64_t offset;    /* of the vector that the picks are taken from */
} rg_conv_lanes_windows;

/* Picks that are summed together: as many as the registers hold sums of, if there are so many. */
static inline int64_t rg_conv_lanes_together(int64_t channels, int64_t columns, bool many)
{
    return channels >= 4 && (columns == 3 || many) ? 4 : 2;
}

/* Zero pairs on either side of a row of dy. */
static inline int64_t rg_conv_lanes_halo(int64_t columns)
{
    return (columns - 1) / 2;
}

/* 16 lanes. */
void rg_bf16_lanes_windows(const rg_conv_lanes_windows *t, int64_t columns, int64_t picks);

#endif
