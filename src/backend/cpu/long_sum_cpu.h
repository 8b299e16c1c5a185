/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The long-sum rule of core/long_sum.h on the CPU: blocks into totals, lists of runs cut into runs
 * that are short enough, and sums of single vectors. */
#ifndef RG_CPU_LONG_SUM_CPU_H
#define RG_CPU_LONG_SUM_CPU_H

#include "backend/cpu/contract_pairs.h"
#include "backend/cpu/kernel.h"
#include "core/long_sum.h"

/* ---- arrays of sums ---- */

/* totals (+)= the sums of a block. */
RG_OUTLINE void add_to_totals(double *totals, const real *sums, int64_t count, bool first)
{
    for (int64_t i = 0; i < count; i++)
        totals[i] = (first ? 0 : totals[i]) + (double)sums[i];
}

/* ---- one vector of sums ---- */

typedef struct long_sum {
    vreal run, block;
    double total[VLEN];
    int64_t count, runs; /* additions of the run, runs of the block */
    bool has_total;
} long_sum;

RG_INLINE long_sum long_sum_none(void)
{
    return (long_sum){ .run = vset(0), .block = vset(0) };
}

RG_OUTLINE void long_sum_end_block(long_sum *s)
{
    for (int i = 0; i < VLEN; i++)
        s->total[i] += (double)s->block[i];
    s->block = vset(0);
    s->runs = 0;
    s->has_total = true;
}

/* To call behind every addition to s->run. */
RG_INLINE void long_sum_count(long_sum *s)
{
    if (++s->count < RG_SUM_RUN)
        return;
    s->block += s->run;
    s->run = vset(0);
    s->count = 0;
    if (++s->runs == RG_SUM_RUNS)
        long_sum_end_block(s);
}

RG_INLINE vreal long_sum_value(const long_sum *s)
{
    vreal value = s->block + s->run;
    for (int i = 0; i < VLEN && s->has_total; i++)
        value[i] = (real)(s->total[i] + (double)s->block[i] + (double)s->run[i]);
    return value;
}

#endif
