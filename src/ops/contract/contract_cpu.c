/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Tiles of the contraction engine, see contract.h. The sums of a tile fill the registers, so each
 * instruction set has its own sizes. */
#include "ops/contract/contract.h"
#include "backend/cpu/long_sum_cpu.h"

enum { TALL = 14, WIDE = 2 }; /* at most */

/* Sums of a tile that wait for further runs, see core/long_sum.h. */
enum { WAIT_STEP = WIDE * VLEN };
typedef struct waiting {
    real sum[TALL * WAIT_STEP];
} waiting;

typedef struct sums {
    vreal row[TALL][WIDE];
} sums;

/* One k: M broadcast elements, `step` bytes apart, times N vectors. */
RG_INLINE void add_products(sums *s, const char *const a, int64_t step, const real *b, const int M,
                            const int N)
{
    vreal right[WIDE];
#pragma GCC unroll 2
    for (int v = 0; v < N; v++)
        right[v] = vload_full(b, v * VLEN, RG_REAL);
#pragma GCC unroll 14
    for (int m = 0; m < M; m++) {
        real left;
        memcpy(&left, a + m * step, sizeof left);
#pragma GCC unroll 2
        for (int v = 0; v < N; v++)
            s->row[m][v] = vfma(vset(left), right[v], s->row[m][v]);
    }
}

RG_INLINE void store_sums(sums *s, const rg_tile *t, const int M, const int N)
{
    const int64_t step = t->c_step;
    real *const to = t->c, *c = to;
    if (t->waiting != NULL) {
#pragma GCC unroll 14
        for (int m = 0; m < M; m++) {
#pragma GCC unroll 2
            for (int v = 0; v < N; v++)
                s->row[m][v] += vload_full(t->waiting, m * WAIT_STEP + v * VLEN, RG_REAL);
        }
    }
    if (t->add) {
#pragma GCC unroll 14
        for (int m = 0; m < M; m++, c += step) {
#pragma GCC unroll 2
            for (int v = 0; v < N; v++)
                s->row[m][v] += vload_full(c, v * VLEN, RG_REAL);
        }
    }
    c = to;
    if (t->stream) {
#pragma GCC unroll 14
        for (int m = 0; m < M; m++, c += step) {
#pragma GCC unroll 2
            for (int v = 0; v < N; v++)
                vstream(c, v * VLEN, RG_REAL, s->row[m][v]);
        }
        return;
    }
#pragma GCC unroll 14
    for (int m = 0; m < M; m++, c += step) {
#pragma GCC unroll 2
        for (int v = 0; v < N; v++)
            vstore_full(c, v * VLEN, RG_REAL, s->row[m][v]);
    }
}

enum { LINE = 64 }; /* bytes that are fetched at once */

/* M rows of N vectors: A is read along its rows, or along its columns. With each k a line of what
 * is wanted next is fetched. */
RG_INLINE void tile(const rg_tile *t, const int M, const int N, const bool rows)
{
    const int64_t each = sizeof(real), a_step = t->a_step * each, b_step = t->b_step;
    sums s;
#pragma GCC unroll 14
    for (int m = 0; m < M; m++) {
#pragma GCC unroll 2
        for (int v = 0; v < N; v++)
            s.row[m][v] = vset(0);
    }
    const rg_k_run *const end = t->runs + t->run_count;
    const char *ahead = t->ahead, *const ahead_end = t->ahead_end;
    for (const rg_k_run *r = t->runs; r < end; r++) {
        const char *a = (const char *)(t->a + r->a);
        const real *b = t->b + r->b;
        for (int64_t k = r->count; k > 0; k--) {
            __asm__("" : "+r"(a)); /* one register for all rows, not one each */
            add_products(&s, a, rows ? a_step : each, b, M, N);
            a += rows ? each : a_step;
            b += b_step;
            __builtin_prefetch(ahead, 0, 2);
            ahead = ahead < ahead_end ? ahead + LINE : ahead;
        }
    }
    store_sums(&s, t, M, N);
}

#if RG_HAS_SLIM
/* The same with RG_NARROW_PANEL columns. */
RG_INLINE void slim_tile(const rg_tile *t, const int M, const bool rows)
{
    const int64_t each = sizeof(real), a_step = t->a_step * each;
    const int64_t down = rows ? a_step : each, along = rows ? each : a_step;
    vslim sum[TALL], right;
#pragma GCC unroll 14
    for (int m = 0; m < M; m++)
        sum[m] = (vslim){ 0 };
    const rg_k_run *const end = t->runs + t->run_count;
    for (const rg_k_run *r = t->runs; r < end; r++) {
        const char *a = (const char *)(t->a + r->a);
        const real *b = t->b + r->b;
        for (int64_t k = r->count; k > 0; k--, a += along, b += t->b_step) {
            __asm__("" : "+r"(a));
            memcpy(&right, b, sizeof right);
#pragma GCC unroll 14
            for (int m = 0; m < M; m++) {
                real left;
                memcpy(&left, a + m * down, sizeof left);
                sum[m] = vslim_fma(left, right, sum[m]);
            }
        }
    }
    real *c = t->c;
#pragma GCC unroll 14
    for (int m = 0; m < M; m++, c += t->c_step) {
        if (t->waiting != NULL) {
            memcpy(&right, t->waiting + m * WAIT_STEP, sizeof right);
            sum[m] += right;
        }
        if (t->add) {
            memcpy(&right, c, sizeof right);
            sum[m] += right;
        }
        memcpy(c, &sum[m], sizeof right);
    }
}
#endif

/* ---- tiles of all heights, and what fits best ---- */

typedef void rg_tile_function(const rg_tile *t);

#define TILE(M, N)                                  \
    static void rows_##M##_##N(const rg_tile *t)    \
    {                                               \
        tile(t, M, N, true);                        \
    }                                               \
    static void columns_##M##_##N(const rg_tile *t) \
    {                                               \
        tile(t, M, N, false);                       \
    }

TILE(1, 2)
TILE(2, 2)
TILE(4, 2)
#if RG_VECTOR_BYTES == 64
TILE(7, 2) /* images are often 7, 14, 28 or 56 pixels wide */
TILE(8, 2)
TILE(14, 2)
#elif RG_VECTOR_BYTES == 32
TILE(6, 2)
#endif
#if RG_VLEN >= 8
TILE(1, 1)
TILE(3, 1)
TILE(5, 1)
TILE(10, 1)
#if RG_VECTOR_BYTES == 64
TILE(14, 1)
#endif
#endif

#if RG_HAS_SLIM
#define SLIM(M)                                      \
    static void rows_##M##_slim(const rg_tile *t)    \
    {                                                \
        slim_tile(t, M, true);                       \
    }                                                \
    static void columns_##M##_slim(const rg_tile *t) \
    {                                                \
        slim_tile(t, M, false);                      \
    }
SLIM(1)
SLIM(3)
SLIM(5)
SLIM(10)
SLIM(14)
#endif

/* The highest first; ended by 1. */
typedef struct height {
    int64_t rows;
    rg_tile_function *function[2]; /* along rows, along columns */
} height;

#define HEIGHT(M, N)                          \
    {                                         \
        M,                                    \
        {                                     \
            rows_##M##_##N, columns_##M##_##N \
        }                                     \
    }

static const height wide[] = {
#if RG_VECTOR_BYTES == 64
    HEIGHT(14, 2), HEIGHT(8, 2), HEIGHT(7, 2),
#elif RG_VECTOR_BYTES == 32
    HEIGHT(6, 2),
#endif
    HEIGHT(4, 2),  HEIGHT(2, 2), HEIGHT(1, 2),
};

/* Of one vector; where RG_NARROW_PANEL are two, `wide` is for them. */
#if RG_VLEN >= 8
static const height narrow[] = {
#if RG_VECTOR_BYTES == 64
    HEIGHT(14, 1),
#endif
    HEIGHT(10, 1), HEIGHT(5, 1), HEIGHT(3, 1), HEIGHT(1, 1)
};
#else
static const height *const narrow = wide;
#endif

#if RG_HAS_SLIM
static const height slim[] = { HEIGHT(14, slim), HEIGHT(10, slim), HEIGHT(5, slim), HEIGHT(3, slim),
                               HEIGHT(1, slim) };
#else
static const height *const slim = narrow;
#endif

/* ---- long sums ---- */

_Static_assert((int)RG_CUT_RUNS >= (int)RG_MAX_RUNS, "runs of a piece");

/* A block, cut into runs: those of piece i begin at first[i]. */
typedef struct cut_block {
    rg_k_run runs[RG_MAX_RUNS + RG_SUM_RUNS];
    int64_t first[RG_SUM_RUNS + 2], pieces;
} cut_block;

/* The next `total` products, in pieces that are about equally long. */
static void next_block(cut_block *b, rg_run_cut *cut, int64_t total)
{
    const int64_t pieces = (total + RG_SUM_RUN - 1) / RG_SUM_RUN;
    const int64_t most = (total + pieces - 1) / pieces;
    b->first[0] = b->pieces = 0;
    for (int64_t left = total; left > 0;) {
        rg_k_run *const to = b->runs + b->first[b->pieces];
        const int64_t n = rg_run_cut_next(cut, least(most, left), to);
        left -= rg_run_sum(to, n);
        b->first[b->pieces + 1] = b->first[b->pieces] + n;
        b->pieces++;
    }
}

/* Sums of the pieces before the last wait in w. */
static void tile_in_runs(const rg_tile *t, rg_tile_function *function, const cut_block *b,
                         waiting *w)
{
    rg_tile part = *t;
    part.c = w->sum;
    part.c_step = WAIT_STEP;
    part.add = part.stream = false;
    for (int64_t i = 0; i < b->pieces; i++) {
        part.runs = b->runs + b->first[i];
        part.run_count = b->first[i + 1] - b->first[i];
        if (i == b->pieces - 1) {
            part.c = t->c;
            part.c_step = t->c_step;
            part.add = t->add;
            part.stream = t->stream;
        }
        function(&part);
        part.ahead += least(RG_SUM_RUN * LINE, part.ahead_end - part.ahead);
        part.waiting = w->sum;
    }
}

static rg_run_cut cut_of(const rg_tile *t, bool columns)
{
    return (rg_run_cut){ .run = t->runs,
                         .end = t->runs + t->run_count,
                         .a_step = columns ? t->a_step : 1,
                         .b_step = t->b_step,
                         .grain = 1 };
}

/* Blocks, and their total in double. */
static void tile_in_blocks(const rg_tile *t, const height *h, int64_t width, int64_t total,
                           bool columns)
{
    waiting w, one;
    double totals[TALL * WAIT_STEP];
    cut_block b;
    rg_run_cut cut = cut_of(t, columns);
    rg_tile block = *t;
    block.c = one.sum;
    block.c_step = WAIT_STEP;
    block.add = block.stream = false;
    for (int64_t done = 0; done < total; done += RG_SUM_BLOCK) {
        next_block(&b, &cut, least(RG_SUM_BLOCK, total - done));
        tile_in_runs(&block, h->function[columns], &b, &w);
        for (int64_t m = 0; m < h->rows; m++)
            add_to_totals(totals + m * WAIT_STEP, one.sum + m * WAIT_STEP, width, done == 0);
    }
    for (int64_t m = 0; m < h->rows; m++) {
        for (int64_t n = 0; n < width; n++) {
            real *const c = t->c + m * t->c_step + n;
            const real sum = (real)totals[m * WAIT_STEP + n];
            *c = t->add ? *c + sum : sum;
        }
    }
}

/* All rows of up to two vectors. */
static void stack(rg_tile t, int64_t rows, int64_t width, const height *h, bool columns)
{
    const int64_t a_step = columns ? 1 : t.a_step;
    const int64_t total = rg_run_sum(t.runs, t.run_count);
    const bool in_runs = total > RG_SUM_RUN && total <= RG_SUM_BLOCK;
    cut_block b;
    waiting w;
    if (in_runs) {
        rg_run_cut cut = cut_of(&t, columns);
        next_block(&b, &cut, total);
    }
    while (rows > 0) {
        while (h->rows > rows)
            h++;
        if (in_runs)
            tile_in_runs(&t, h->function[columns], &b, &w);
        else if (total > RG_SUM_BLOCK)
            tile_in_blocks(&t, h, width, total, columns);
        else
            h->function[columns](&t);
        t.a += h->rows * a_step;
        t.c += h->rows * t.c_step;
        rows -= h->rows;
        t.ahead += least(total * LINE, t.ahead_end - t.ahead);
    }
}

static void contract(const rg_tile *t, int64_t rows, int64_t columns, bool along)
{
    const int64_t width = contract_width(columns),
                  ahead = t->ahead != NULL ? t->ahead_end - t->ahead : 0;
    for (int64_t n = 0; n < width; n += WIDE * VLEN) {
        rg_tile part = *t;
        part.b += n;
        part.c += n;
        if (ahead > 0) {
            part.ahead += ahead * n / width;
            part.ahead_end = t->ahead + ahead * least(n + WIDE * VLEN, width) / width;
        } else { /* some line that is there */
            part.ahead = part.ahead_end = (const char *)part.c;
        }
        const int64_t left = width - n;
        stack(part, rows, least(left, WIDE * VLEN),
              left >= WIDE * VLEN ? wide
              : left >= VLEN      ? narrow
                                  : slim,
              along);
    }
}

static void contract_rows(const rg_tile *t, int64_t rows, int64_t columns)
{
    contract(t, rows, columns, false);
}

static void contract_columns(const rg_tile *t, int64_t rows, int64_t columns)
{
    contract(t, rows, columns, true);
}

const rg_contract RG_CONTRACT = { contract_rows, contract_columns };
