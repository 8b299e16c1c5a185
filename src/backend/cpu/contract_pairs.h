/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The contraction engine for bf16 on instructions that multiply pairs and add them up in f32: the
 * tile unit (AMX), or vdpbf16ps of AVX512-BF16. A tile is as in contract.h, in the form of rows,
 *
 *      c[m][n]  =  sum over runs r, over k < r.count  of  a[r.a + m * a_step + k] * B(r, k, n)
 *
 * with bits of bf16 in a, and with a panel of pairs in b, [k / 2][RG_PAIR_PANEL][2]: B(r, k, n) =
 * b[r.b + k / 2 * 2 * RG_PAIR_PANEL + 2 n + k % 2]. A unit may take k in steps of RG_PAIR_DEPTH:
 *
 *      r.count is even; behind a run, b is 0 up to a multiple of RG_PAIR_DEPTH, and a can be read
 *      up to there and holds numbers, neither infinite nor NaN.
 *
 * Products are added in an order that follows from the runs alone, not from how rows and columns
 * are cut. Both units take subnormal numbers for 0. */
#ifndef RG_CPU_CONTRACT_PAIRS_H
#define RG_CPU_CONTRACT_PAIRS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { RG_PAIR_PANEL = 32, RG_PAIR_DEPTH = 32 };

/* A piece of k, for all forms of the engine. */
typedef struct rg_run {
    int64_t a, b, count; /* where it begins in a and b, in elements, and its length */
} rg_run;

typedef struct rg_pair_tile {
    const uint16_t *a, *b;
    float *c;
    const rg_run *runs;
    int64_t run_count;
    int64_t a_step, c_step; /* from row to row, in elements */
    bool add;               /* c += the sum */
} rg_pair_tile;

/* Any number of rows, and up to RG_PAIR_PANEL columns; of c, columns up to 16 or 32 are written. */
typedef void rg_pair_function(const rg_pair_tile *tile, int64_t rows, int64_t columns);

typedef struct rg_pair_unit {
    const char *name;
    rg_pair_function *rows;
    bool tall; /* rows are worth most where there are 32 or more */
} rg_pair_unit;

/* The best one that build, processor and system offer, beside AVX-512; NULL: none. */
const rg_pair_unit *rg_pair_unit_best(void);

/* The units, for those whose processor has them. */
void rg_amx_rows(const rg_pair_tile *tile, int64_t rows, int64_t columns);
void rg_bf16_rows(const rg_pair_tile *tile, int64_t rows, int64_t columns);

#endif
