/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The second level of sums that may be long. A sum of many addends is cut into runs of at most
 * RG_CHAIN_RUN, each a plain chain of additions; what the runs add up to is joined here without
 * loss. So rounding errors grow with the length of a run alone. Which addends form a run follows
 * from shapes. backend/cuda/long_sum.cuh is the same for a GPU. */
#ifndef RG_CPU_LONG_SUM_H
#define RG_CPU_LONG_SUM_H

#include "backend/cpu/simd.h"
#include "core/long_sum.h"

/* A sum as two numbers of which the second one is what rounding took from the first: twice the
 * digits of `real`. A sum that is not finite is so in `high`; `low` is then of no account. */
typedef struct long_sum {
    vreal high, low;
} long_sum;

RG_INLINE long_sum long_sum_zero(void)
{
    return (long_sum){ vset(0), vset(0) };
}

/* s + run, in each lane. */
RG_INLINE long_sum long_sum_add(long_sum s, vreal run)
{
    const vreal sum = s.high + run, back = sum - s.high;
    const vreal lost = ((s.high - (sum - back)) + (run - back)) + s.low;
    const vreal rest = vselect(lost - lost == 0, lost, vset(0));
    const vreal high = sum + rest;
    return (long_sum){ high, rest - (high - sum) };
}

/* Ends the runs of several sums: total += run, run = 0. Returns RG_CHAIN_RUN, what may follow. */
RG_INLINE int64_t long_sums_end_run(long_sum total[], vreal run[], const int count)
{
    for (int i = 0; i < count; i++) {
        total[i] = long_sum_add(total[i], run[i]);
        run[i] = vset(0);
    }
    return RG_CHAIN_RUN;
}

/* A chain of additions that is cut into runs. The caller adds to `run` and counts the additions. */
typedef struct long_chain {
    long_sum sum;
    vreal run;
    int64_t left; /* additions until the run ends */
} long_chain;

RG_INLINE long_chain long_chain_start(void)
{
    return (long_chain){ long_sum_zero(), vset(0), RG_CHAIN_RUN };
}

/* Call after each addition to `run`. */
RG_INLINE void long_chain_count(long_chain *c)
{
    if (--c->left > 0)
        return;
    c->sum = long_sum_add(c->sum, c->run);
    c->run = vset(0);
    c->left = RG_CHAIN_RUN;
}

/* The sum; a chain of less than RG_CHAIN_RUN addends has the bits of a plain one. */
RG_INLINE vreal long_chain_end(const long_chain *c)
{
    return long_sum_add(c->sum, c->run).high;
}

/* ---- sums of pieces, in double ---- */

/* totals (+)= the sums of a block. */
RG_OUTLINE void add_to_totals(double *totals, const real *sums, int64_t count, bool first)
{
    for (int64_t i = 0; i < count; i++)
        totals[i] = (first ? 0 : totals[i]) + (double)sums[i];
}

/* The sums of pieces are added one after the other in double, and every LONG_BLOCK of them begin
 * anew: so also sums of f64 keep their digits however many pieces there are. */
enum { LONG_BLOCK = 1024 };

typedef struct piece_sum {
    double blocks, block;
    int64_t count;
} piece_sum;

RG_INLINE void piece_sum_add(piece_sum *s, double piece)
{
    s->block += piece;
    if (++s->count < LONG_BLOCK)
        return;
    s->blocks += s->block;
    s->block = 0;
    s->count = 0;
}

RG_INLINE double piece_sum_end(const piece_sum *s)
{
    return s->blocks + s->block;
}

/* The same for adjacent columns: sum[c] = the sum over p of from[p step + c], for c < width, at
 * most PIECES_WIDTH. */
enum { PIECES_WIDTH = 256 };

RG_OUTLINE void sum_of_pieces(double *sum, const real *from, int64_t step, int64_t pieces,
                              int64_t width)
{
    for (int64_t c = 0; c < width; c++)
        sum[c] = 0;
    for (int64_t p = 0; p < pieces;) {
        double block[PIECES_WIDTH] = { 0 };
        for (const int64_t end = pieces - p < LONG_BLOCK ? pieces : p + LONG_BLOCK; p < end; p++) {
            for (int64_t c = 0; c < width; c++)
                block[c] += (double)from[p * step + c];
        }
        for (int64_t c = 0; c < width; c++)
            sum[c] += block[c];
    }
}

#endif
