/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Reductions over an axis that is not the last: adjacent groups of elements. */
#ifndef RG_CPU_COLUMNS_H
#define RG_CPU_COLUMNS_H

#include "backend/cpu/kernel.h"
#include "backend/cpu/long_sum_cpu.h"

/* Elements of a piece of a group: rounding errors of a sum grow with the length of a piece and
 * with their number, not with the product of both. */
enum { COLUMN_PIECE = 128 };

/* A unit is a block of adjacent groups. It is read row by row (element j of every group of the
 * block), so that memory is read in long runs; what belongs to each group, such as its sum, is
 * in an array. */
typedef struct columns {
    const char *in[2];
    char *out;
    int64_t in_step[2], out_step;     /* bytes from one element of a group to the next */
    int64_t in_across[2], out_across; /* elements from one group to the next */
    int64_t length, width;            /* of a group; groups of the block */
    bool dense, add, stream;
} columns;

/* One vector of groups, of which the first is at `data`. */
RG_INLINE vreal load_groups(const char *data, int64_t across, const int n, const rg_dtype T,
                            bool dense)
{
    return vload_strided(data, 0, across, n, T, dense);
}

RG_INLINE void store_groups(char *data, int64_t across, const int n, const rg_dtype T, bool dense,
                            vreal a)
{
    vstore_strided(data, 0, across, n, T, dense, a);
}

/* What is done with one vector of a row; `state` is a number of each group. */
typedef vreal rg_group_fold(vreal acc, vreal state, vreal a, vreal b);

/* acc = step(acc, state, a, b) for every group, with the next element of each. */
RG_INLINE void fold_groups(rg_group_fold *step, real *acc, const real *state, const columns *c,
                           const char *a, const char *b, const rg_dtype T)
{
    int64_t i = 0;
    for (; c->dense && i + 2 * VLEN <= c->width; i += 2 * VLEN) {
        const vpair x = vload_pair(a, i, T, true), y = vload_pair(b, i, T, true);
        const vpair p = vload_pair(acc, i, RG_REAL, false); /* in the pair's order until end_fold */
        const vpair q = vpair_order(vload_pair(state, i, RG_REAL, false), T);
        vstore_pair(acc, i, RG_REAL, (vpair){ step(p.a, q.a, x.a, y.a), step(p.b, q.b, x.b, y.b) },
                    false, false);
    }
    for (; i < c->width; i += VLEN) {
        const int n = vlanes_left(c->width - i);
        const vreal x = load_groups(at(a, i * c->in_across[0], T), c->in_across[0], n, T, c->dense);
        const vreal y = load_groups(at(b, i * c->in_across[1], T), c->in_across[1], n, T, c->dense);
        const vreal p = vload_full(acc, i, RG_REAL), q = vload_full(state, i, RG_REAL);
        vstore_full(acc, i, RG_REAL, step(p, q, x, y));
    }
}

/* Puts the results of fold_groups into the order of the groups. */
RG_INLINE void end_fold(real *acc, const columns *c, const rg_dtype T)
{
    for (int64_t i = 0; c->dense && i + 2 * VLEN <= c->width; i += 2 * VLEN)
        vstore_pair(acc, i, RG_REAL, velement_order(vload_pair(acc, i, RG_REAL, false), T), false,
                    false);
}

/* Up to this many pieces are added up plainly; sums of more pieces are compensated. */
enum { COLUMN_PIECES = 32 };

/* sum += part for every group, where `lost` is what rounding took from the sums. Not inlined: this
 * is rare. */
RG_OUTLINE void add_long_piece(real *sum, real *lost, const real *part, int64_t width)
{
    for (int64_t i = 0; i < width; i += VLEN) {
        const long_sum s =
            long_sum_add((long_sum){ vload_full(sum, i, RG_REAL), vload_full(lost, i, RG_REAL) },
                         vload_full(part, i, RG_REAL));
        vstore_full(sum, i, RG_REAL, s.high);
        vstore_full(lost, i, RG_REAL, s.low);
    }
}

/* All rows of the block, in pieces that are added up. */
RG_INLINE void fold_rows(rg_group_fold *step, real *sum, const real *state, const columns *c,
                         const rg_dtype T)
{
    const char *a = c->in[0], *b = c->in[1];
    real part[RG_BLOCK_GROUPS + VLEN]; /* a vector from any group on is whole */
    real lost[RG_BLOCK_GROUPS + VLEN];
    const bool many = c->length > COLUMN_PIECES * COLUMN_PIECE;
    memset(sum, 0, sizeof part);
    if (many)
        memset(lost, 0, sizeof lost);
    for (int64_t j = 0; j < c->length;) {
        memset(part, 0, sizeof part);
        for (const int64_t end = least(c->length, j + COLUMN_PIECE); j < end; j++) {
            fold_groups(step, part, state, c, a, b, T);
            a += c->in_step[0];
            b += c->in_step[1];
        }
        if (many)
            add_long_piece(sum, lost, part, c->width);
        for (int64_t i = 0; !many && i < c->width; i += VLEN)
            vstore_full(sum, i, RG_REAL,
                        vload_full(sum, i, RG_REAL) + vload_full(part, i, RG_REAL));
    }
    end_fold(sum, c, T);
}

typedef vreal rg_group_formula(vreal first, vreal second, vreal a, vreal b);

/* What a formula reads of each group, and a row. */
typedef struct columns_row {
    const real *first, *second;
    const char *a, *b;
    char *out;
} columns_row;

RG_INLINE void finish_one(rg_group_formula *formula, const columns *c, const columns_row r,
                          int64_t i, const int n, const rg_dtype T)
{
    const vreal x = load_groups(at(r.a, i * c->in_across[0], T), c->in_across[0], n, T, c->dense);
    const vreal y = load_groups(at(r.b, i * c->in_across[1], T), c->in_across[1], n, T, c->dense);
    char *to = at_out(r.out, i * c->out_across, T);
    vreal value = formula(vload_full(r.first, i, RG_REAL), vload_full(r.second, i, RG_REAL), x, y);
    if (c->add)
        value += load_groups(to, c->out_across, n, T, c->dense);
    store_groups(to, c->out_across, n, T, c->dense, value);
}

RG_INLINE void finish_pair(rg_group_formula *formula, const columns *c, const columns_row r,
                           int64_t i, const rg_dtype T)
{
    const vpair x = vload_pair(r.a, i, T, true), y = vload_pair(r.b, i, T, true);
    const vpair p = vpair_order(vload_pair(r.first, i, RG_REAL, false), T);
    const vpair q = vpair_order(vload_pair(r.second, i, RG_REAL, false), T);
    vpair value = { formula(p.a, q.a, x.a, y.a), formula(p.b, q.b, x.b, y.b) };
    if (c->add) {
        const vpair old = vload_pair(r.out, i, T, true);
        value.a += old.a;
        value.b += old.b;
    }
    vstore_pair(r.out, i, T, value, true, c->stream);
}

/* out = formula(first, second, a, b) for every group and every element. */
RG_INLINE void finish_rows(rg_group_formula *formula, const real *first, const real *second,
                           const columns *c, const rg_dtype T)
{
    columns_row r = { first, second, c->in[0], c->in[1], c->out };
    for (int64_t j = 0; j < c->length; j++) {
        int64_t i = 0;
        for (int end = 0; end < 2; end++) { /* a few groups bring `out` to an aligned address */
            const int64_t head = c->stream ? least(vhead(r.out, T), c->width) : 0;
            const int64_t stop = end == 1 ? c->width : head;
            for (; i < stop; i += VLEN)
                finish_one(formula, c, r, i, vlanes_left(stop - i), T);
            for (i = stop; c->dense && i + 2 * VLEN <= c->width; i += 2 * VLEN)
                finish_pair(formula, c, r, i, T);
        }
        r.a += c->in_step[0];
        r.b += c->in_step[1];
        r.out += c->out_step;
    }
}

#endif
