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
 *      r.count is even; after a run, b is 0 up to a multiple of RG_PAIR_DEPTH, and a can be read
 *      up to there and holds numbers, neither infinite nor NaN.
 *
 * Products are added in an order that follows from the runs alone, not from how rows and columns
 * are cut. Both units take subnormal numbers for 0. */
#ifndef RG_OPS_CONTRACT_PAIRS_H
#define RG_OPS_CONTRACT_PAIRS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { RG_PAIR_PANEL = 32, RG_PAIR_DEPTH = 32 };

/* A piece of k, for all forms of the engine. */
typedef struct rg_k_run {
    int64_t a, b, count; /* where it begins in a and b, in elements, and its length */
} rg_k_run;

/* Cuts a list of runs, one piece after the other. */
typedef struct rg_run_cut {
    const rg_k_run *run, *end;
    int64_t done;           /* of the first run */
    int64_t a_step, b_step; /* from k to k + 1, in elements */
    int64_t grain;          /* a run is cut at multiples of this */
} rg_run_cut;

/* Runs of a piece, at most: all that a tile has, so that where a piece ends follows from the
 * elements of k alone, not from how they are cut into runs. */
enum { RG_CUT_RUNS = 256 };

/* The next runs of at most `most` elements of k together; returns how many, 0 at the end. */
static inline int64_t rg_run_cut_next(rg_run_cut *c, int64_t most, rg_k_run to[RG_CUT_RUNS])
{
    int64_t n = 0;
    while (c->run < c->end && most > 0 && n < RG_CUT_RUNS) {
        const int64_t left = c->run->count - c->done;
        const int64_t count = left <= most ? left : most - most % c->grain;
        if (count == 0 && left > 0)
            break;
        if (count > 0)
            to[n++] = (rg_k_run){ c->run->a + c->done * c->a_step, c->run->b + c->done * c->b_step,
                                  count };
        most -= count;
        c->done += count;
        if (count == left) {
            c->run++;
            c->done = 0;
        }
    }
    return n;
}

static inline int64_t rg_run_sum(const rg_k_run *runs, int64_t count)
{
    int64_t sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += runs[i].count;
    return sum;
}

/* Rows of up to RG_PAIR_PANEL sums that become bf16, after an addition and ReLU. */
typedef struct rg_bf16_results {
    const float *sums, *bias; /* bias: one for each column, or NULL */
    uint16_t *to;
    int64_t sums_step, to_step; /* from row to row, in elements */
    int64_t rows, columns;
    bool relu;   /* with a = 0 */
    bool stream; /* rows that are whole cache lines by streaming stores */
} rg_bf16_results;

/* Memory to fetch meanwhile, which need not exist. */
typedef struct rg_pair_ahead {
    const char *next, *end;
} rg_pair_ahead;

typedef struct rg_pair_tile {
    const uint16_t *a, *b;
    float *c;
    const rg_k_run *runs;
    int64_t run_count;
    int64_t a_step, c_step; /* from row to row, in elements */
    bool add;               /* c += the sum */
    bool fetches;           /* a is read from memory once: rows further on are fetched ahead */
    int64_t a_gap;          /* elements between one pair of a and the next: 0 but for a unit that
                               ends, whose tiles may have rows side by side */
    rg_pair_ahead *ahead;   /* or NULL; what is fetched is left out of it */

    /* for units that `end`: */
    const rg_bf16_results *results; /* or NULL: where sums go instead of c, after c is added where
                                       `add`; of these the sums, their step and rows are not read */
    const uint16_t *from; /* whole panels, RG_PAIR_PACK_ROWS of a at least: b is packed on the way,
                             row k from `from` + k * from_step. Or NULL: it is there */
    int64_t from_step;
} rg_pair_tile;

enum { RG_PAIR_PACK_ROWS = 8 };

/* Any number of rows, and up to RG_PAIR_PANEL columns; of c, columns up to 16 or 32 are written. */
typedef void rg_pair_function(const rg_pair_tile *tile, int64_t rows, int64_t columns);

typedef struct rg_pair_unit {
    rg_pair_function *rows;
    bool tall;    /* rows are worth most where there are 32 or more */
    int64_t run;  /* elements of k that are a run of core/long_sum.h, a multiple of RG_PAIR_DEPTH */
    int64_t step; /* elements of k that it reads together: at most this many less one after a run */
    bool ends;    /* whether it knows `results` and `from` of a tile */
} rg_pair_unit;

/* The best one that there is, see backend/cpu/bf16_unit.h; NULL: none. */
const rg_pair_unit *rg_pair_unit_best(void);

/* A tile in runs of at most `most` elements of k. */
static inline void rg_pair_rows(const rg_pair_unit *unit, const rg_pair_tile *tile, int64_t height,
                                int64_t width, int64_t most)
{
    rg_k_run runs[RG_CUT_RUNS];
    rg_run_cut cut = {
        tile->runs, tile->runs + tile->run_count, 0, 1, RG_PAIR_PANEL, RG_PAIR_DEPTH
    };
    if (rg_run_sum(tile->runs, tile->run_count) <= most) {
        unit->rows(tile, height, width);
        return;
    }
    rg_pair_tile part = *tile;
    part.runs = runs;
    while ((part.run_count = rg_run_cut_next(&cut, most, runs)) > 0) {
        part.results = cut.run == cut.end ? tile->results : NULL;
        unit->rows(&part, height, width);
        part.add = true;
    }
}

/* By the conversion of AVX512-BF16, with the bits of any other conversion to bf16; false where the
 * processor has none. */
bool rg_bf16_end(const rg_bf16_results *results);

/* The units, for those whose processor has them. */
void rg_amx_rows(const rg_pair_tile *tile, int64_t rows, int64_t columns);
void rg_bf16_rows(const rg_pair_tile *tile, int64_t rows, int64_t columns);

#endif
