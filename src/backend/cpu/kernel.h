/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* What a kernel file ends with: entry points per dtype, and the table that lists them.
 *
 * A kernel is an inline function  name(const args *k, int64_t begin, int64_t end, const rg_dtype
 * T) over its units; RG_KERNEL makes one entry point of it for each storage type, RG_ROW lists
 * them. RG_CPU_TABLE(<name>, how many kernels the op has) = { rows }; ends <name>_cpu.c. */
#ifndef RG_CPU_KERNEL_H
#define RG_CPU_KERNEL_H

#include "backend/backend.h"
#include "backend/cpu/simd.h"
#include "core/sweep.h"

#define RG_ENTRY(name, args, suffix, T)                                 \
    static void name##suffix(const void *k, int64_t begin, int64_t end) \
    {                                                                   \
        name((const args *)k, begin, end, T);                           \
    }

#if RG_REAL_F64
#define RG_KERNEL(name, args) RG_ENTRY(name, args, _f64, RG_F64)
#define RG_ROW(name)              \
    {                             \
        {                         \
            [RG_F64] = name##_f64 \
        }                         \
    }
#define RG_REAL_NAME f64
#else
#define RG_KERNEL(name, args)          \
    RG_ENTRY(name, args, _f32, RG_F32) \
    RG_ENTRY(name, args, _f16, RG_F16) \
    RG_ENTRY(name, args, _bf16, RG_BF16)
#define RG_ROW(name)                                                              \
    {                                                                             \
        {                                                                         \
            [RG_F32] = name##_f32, [RG_F16] = name##_f16, [RG_BF16] = name##_bf16 \
        }                                                                         \
    }
#define RG_REAL_NAME f32
#endif

#define RG_JOIN_(op, real, isa) rg_cpu_##op##_##real##_##isa
#define RG_JOIN(op, real, isa)  RG_JOIN_(op, real, isa)
#define RG_TABLE(op)            RG_JOIN(op, RG_REAL_NAME, RG_ISA)

/* Of an op with several files each has a table of all kernels, with empty rows for those of the
 * other files. */
#define RG_CPU_TABLE(name, count)                               \
    static const rg_cpu_row kernel_rows[count];                 \
    const rg_cpu_table RG_TABLE(name) = { kernel_rows, count }; \
    static const rg_cpu_row kernel_rows[count]

/* Runs a statement with a constant U that is what T is: for functions that are called with T a
 * variable, because their loops are long or rare. */
#if RG_REAL_F64
#define RG_WITH_TYPE(T, U, ...)    \
    do {                           \
        const rg_dtype U = RG_F64; \
        (void)(T);                 \
        __VA_ARGS__;               \
    } while (0)
#else
#define RG_WITH_TYPE(T, U, ...)         \
    do {                                \
        if ((T) == RG_F32) {            \
            const rg_dtype U = RG_F32;  \
            __VA_ARGS__;                \
        } else if ((T) == RG_F16) {     \
            const rg_dtype U = RG_F16;  \
            __VA_ARGS__;                \
        } else {                        \
            const rg_dtype U = RG_BF16; \
            __VA_ARGS__;                \
        }                               \
    } while (0)
#endif

/* ---- addresses ---- */

/* Element i of an array of T. */
RG_INLINE const char *at(const void *data, int64_t i, const rg_dtype T)
{
    return (const char *)data + i * (vbytes(T) / VLEN);
}

RG_INLINE char *at_out(void *data, int64_t i, const rg_dtype T)
{
    return (char *)data + i * (vbytes(T) / VLEN);
}

RG_INLINE int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* ---- element by element ---- */

/* Not always_inline: passed as functions, formulas are inlined by optimization alone. */
#define RG_FORMULA static inline __attribute__((unused))

/* A formula on single elements, and the loop that applies it: out = formula(k, a, b) over
 * `count` neighbours; a and b are of type `from`, out of type `to`. Pairs of vectors first, then
 * what is left. Where `from` and `to` differ, a and b are in the order of pairs of `to`, and
 * `stream` wants an aligned `out`. */
typedef vreal rg_formula(const void *k, vreal a, vreal b);

typedef struct sweep_data {
    const void *a, *b;
    void *out;
    bool add;    /* to what out holds */
    bool stream; /* out is written by streaming stores */
} sweep_data;

RG_INLINE void sweep_one(rg_formula *formula, const void *k, const sweep_data d, int64_t i,
                         const int n, const rg_dtype from, const rg_dtype to)
{
    vreal value = formula(k, vload(d.a, i, n, from), vload(d.b, i, n, from));
    if (d.add)
        value += vload(d.out, i, n, to);
    vstore(d.out, i, n, to, value);
}

RG_INLINE void sweep_pair(rg_formula *formula, const void *k, const sweep_data d, int64_t i,
                          const rg_dtype from, const rg_dtype to)
{
    const vpair x = vload_pair(d.a, i, from, true), y = vload_pair(d.b, i, from, true);
    vpair value = { formula(k, x.a, y.a), formula(k, x.b, y.b) };
    if (d.add) {
        const vpair old = vload_pair(d.out, i, to, true);
        value.a += old.a;
        value.b += old.b;
    }
    vstore_pair(d.out, i, to, value, true, d.stream);
}

/* The few elements that bring `out` to an aligned address; returns how many. */
RG_INLINE int64_t sweep_head(rg_formula *formula, const void *k, const sweep_data d, int64_t count,
                             const rg_dtype from, const rg_dtype to)
{
    const int64_t head = vhead(d.out, to) < count ? vhead(d.out, to) : count;
    for (int64_t i = 0; i < head; i += VLEN)
        sweep_one(formula, k, d, i, vlanes_left(head - i), from, to);
    return head;
}

/* Single vectors up to where `out` is aligned, if it has to be, then pairs, then what is left. */
RG_INLINE void sweep(rg_formula *formula, const void *k, const sweep_data d, int64_t count,
                     const rg_dtype from, const rg_dtype to)
{
    int64_t i = 0;
    for (int end = 0; end < 2; end++) {
        const int64_t stop = end == 1 ? count : d.stream ? least(vhead(d.out, to), count) : 0;
        for (; i < stop; i += VLEN)
            sweep_one(formula, k, d, i, vlanes_left(stop - i), from, to);
        for (i = stop; i + 2 * VLEN <= count; i += 2 * VLEN)
            sweep_pair(formula, k, d, i, from, to);
    }
}

/* The same for functions that are called, with T a variable: one formula is for T of 32 bits or
 * more, the other for T of 16. What is `kept` was computed before, as real. */
RG_INLINE void sweep_any(rg_formula *formula, rg_formula *formula_short, const bool kept,
                         const void *k, const sweep_data d, int64_t count, rg_dtype T)
{
    RG_WITH_TYPE(T, U,
                 sweep(is_short(U) ? formula_short : formula, k, d, count, kept ? RG_REAL : U, U));
}

/* Elements that are staged at a time: copied to contiguous memory, with zeros after them up to a
 * whole number of pairs, because they are apart or fewer than a pair. */
enum { STAGE = 8 * VLEN };

RG_OUTLINE void stage_in(char *stage, const char *from, int64_t step, int64_t count, int element)
{
    enum { PAIR = 2 * VLEN };
    memset(stage + (count - 1) / PAIR * PAIR * element, 0, (size_t)(PAIR * element));
    if (step == 1)
        memcpy(stage, from, (size_t)(count * element));
    for (int64_t i = 0; step != 1 && i < count; i++)
        memcpy(stage + i * element, from + i * step * element, (size_t)element);
}

RG_OUTLINE void stage_out(char *to, const char *stage, int64_t step, int64_t count, int element)
{
    if (step == 1)
        memcpy(to, stage, (size_t)(count * element));
    for (int64_t i = 0; step != 1 && i < count; i++)
        memcpy(to + i * step * element, stage + i * element, (size_t)element);
}

/* The only loop that is compiled for each formula and type: whole pairs of contiguous elements.
 * One formula is for T of 32 bits or more, the other for T of 16. */
typedef void rg_sweep_pairs(const void *k, const sweep_data *d, int64_t count, rg_dtype T);

RG_INLINE void sweep_pairs_of(rg_formula *formula, const void *k, const sweep_data d, int64_t count,
                              const rg_dtype T)
{
    for (int64_t i = 0; i < count; i += 2 * VLEN)
        sweep_pair(formula, k, d, i, T, T);
}

RG_INLINE void sweep_pairs(rg_formula *formula, rg_formula *formula_short, const void *k,
                           const sweep_data d, int64_t count, rg_dtype T)
{
    RG_WITH_TYPE(T, U, sweep_pairs_of(is_short(U) ? formula_short : formula, k, d, count, U));
}

/* A row: elements `step` apart, in two tensors that are read (or twice in one) and in `out`. */
typedef struct sweep_row {
    const char *a, *b;
    char *out;
    int64_t step[3];
    bool dense, add, stream;
} sweep_row;

/* The next `count` elements in stages; returns how many they are. */
RG_OUTLINE int64_t sweep_staged(rg_sweep_pairs *pairs, const void *k, const sweep_row *r,
                                int64_t count, rg_dtype T)
{
    char stages[3][STAGE * sizeof(real)];
    const int element = vbytes(T) / VLEN;
    const int64_t n = least(count, STAGE);
    const bool two = r->b != r->a || r->step[1] != r->step[0];
    stage_in(stages[0], r->a, r->step[0], n, element);
    if (two)
        stage_in(stages[1], r->b, r->step[1], n, element);
    if (r->add)
        stage_in(stages[2], r->out, r->step[2], n, element);
    const sweep_data d = { stages[0], stages[two ? 1 : 0], stages[2], r->add, false };
    pairs(k, &d, n, T);
    stage_out(r->out, stages[2], r->step[2], n, element);
    return n;
}

/* The elements that come before an aligned address: of `out` for streaming stores; otherwise of `a`
 * in long rows, because every load that crosses two lines of the cache costs, and b is often as far
 * from alignment as a. */
RG_INLINE int64_t sweep_to_alignment(const sweep_row *r, int64_t count, rg_dtype T)
{
    enum { LONG = 4096 };
    if (!r->dense || (!r->stream && count < LONG))
        return 0;
    return least(r->stream ? vhead(r->out, T) : vhead(r->a, T), count);
}

RG_INLINE void sweep_advance(sweep_row *r, int64_t n, int element)
{
    r->a += n * r->step[0] * element;
    r->b += n * r->step[1] * element;
    r->out += n * r->step[2] * element;
}

RG_OUTLINE void sweep_along(rg_sweep_pairs *pairs, const void *k, sweep_row r, int64_t count,
                            rg_dtype T)
{
    enum { PAIR = 2 * VLEN };
    const int element = vbytes(T) / VLEN;
    for (int64_t n; count > 0; count -= n) {
        const int64_t head = sweep_to_alignment(&r, count, T);
        n = r.dense ? count / PAIR * PAIR : 0;
        if (head != 0)
            n = sweep_staged(pairs, k, &r, head, T);
        else if (n == 0)
            n = sweep_staged(pairs, k, &r, count, T);
        else
            pairs(k, &(sweep_data){ r.a, r.b, r.out, r.add, r.stream }, n, T);
        sweep_advance(&r, n, element);
    }
}

/* A kernel over a whole rg_sweep of `tensors`: a and out, or all three. Pieces of a row begin at
 * aligned elements: what comes before them is the end of the piece before. */
RG_OUTLINE void sweep_units(rg_sweep_pairs *pairs, const void *k, const rg_sweep *s, int tensors,
                            const sweep_data *d, int64_t begin, int64_t end, rg_dtype T)
{
    const int second = tensors > 2 ? 1 : 0, last = tensors - 1;
    for (int64_t unit = begin; unit < end; unit++) {
        int64_t offset[RG_WALK_TENSORS];
        const int64_t count = rg_sweep_piece(s, tensors, unit, offset);
        const int64_t first = unit % s->pieces * s->piece, rest = s->length - first;
        sweep_row r = { at(d->a, offset[0], T),
                        at(second > 0 ? d->b : d->a, offset[second], T),
                        at_out(d->out, offset[last], T),
                        { s->step[0], s->step[second], s->step[last] },
                        s->dense,
                        d->add,
                        d->stream };
        sweep_row next = r;
        sweep_advance(&next, count, vbytes(T) / VLEN);
        const int64_t more = sweep_to_alignment(&next, rest - count, T);
        const int64_t done = first > 0 ? sweep_to_alignment(&r, rest, T) : 0;
        sweep_advance(&r, done, vbytes(T) / VLEN);
        sweep_along(pairs, k, r, count + more - done, T);
    }
}

/* ---- sums and the like over many elements ---- */

/* acc = fold(k, acc, a, b) over `count` neighbours, in 4 VLEN lanes of which each starts with
 * `start`. Which element goes to which lane depends on the count alone. */
typedef vreal rg_fold(const void *k, vreal acc, vreal a, vreal b);

typedef struct rg_lanes {
    vreal part[4];
} rg_lanes;

RG_INLINE vreal fold_one(rg_fold *step, const void *k, vreal acc, const void *a, const void *b,
                         int64_t i, int64_t left, const rg_dtype T)
{
    if (left <= 0)
        return acc;
    const int n = vlanes_left(left);
    const vreal next = step(k, acc, vload(a, i, n, T), vload(b, i, n, T));
    return vselect(vlanes() < (intr)n, next, acc);
}

/* 4 VLEN elements from i on. */
RG_INLINE void fold_four(rg_fold *step, const void *k, rg_lanes *acc, const void *a, const void *b,
                         int64_t i, const rg_dtype T)
{
    const vpair x = vload_pair(a, i, T, true), y = vload_pair(b, i, T, true);
    const vpair z = vload_pair(a, i + 2 * VLEN, T, true), w = vload_pair(b, i + 2 * VLEN, T, true);
    acc->part[0] = step(k, acc->part[0], x.a, y.a);
    acc->part[1] = step(k, acc->part[1], x.b, y.b);
    acc->part[2] = step(k, acc->part[2], z.a, w.a);
    acc->part[3] = step(k, acc->part[3], z.b, w.b);
}

/* What is left, less than 4 VLEN. */
RG_INLINE void fold_rest(rg_fold *step, const void *k, rg_lanes *acc, const void *a, const void *b,
                         int64_t i, int64_t left, const rg_dtype T)
{
    if (left == 0)
        return;
    acc->part[0] = fold_one(step, k, acc->part[0], a, b, i, left, T);
    acc->part[1] = fold_one(step, k, acc->part[1], a, b, i + VLEN, left - VLEN, T);
    acc->part[2] = fold_one(step, k, acc->part[2], a, b, i + 2 * VLEN, left - 2 * VLEN, T);
    acc->part[3] = fold_one(step, k, acc->part[3], a, b, i + 3 * VLEN, left - 3 * VLEN, T);
}

RG_INLINE rg_lanes lanes_of(real start)
{
    return (rg_lanes){ { vset(start), vset(start), vset(start), vset(start) } };
}

RG_INLINE rg_lanes fold(rg_fold *step, const void *k, real start, const void *a, const void *b,
                        int64_t count, const rg_dtype T)
{
    rg_lanes acc = lanes_of(start);
    int64_t i = 0;
    for (; i + 4 * VLEN <= count; i += 4 * VLEN)
        fold_four(step, k, &acc, a, b, i, T);
    fold_rest(step, k, &acc, a, b, i, count - i, T);
    return acc;
}

RG_INLINE real lanes_sum(rg_lanes a)
{
    return vsum((a.part[0] + a.part[1]) + (a.part[2] + a.part[3]));
}

RG_INLINE real lanes_max(rg_lanes a)
{
    return vmax_lane(vmax(vmax(a.part[0], a.part[1]), vmax(a.part[2], a.part[3])));
}

#endif
