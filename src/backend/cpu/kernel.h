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

/* Not always_inline: passed as functions, formulas are inlined by optimisation alone. */
#define RG_FORMULA static inline __attribute__((unused))

/* A formula on single elements, and the loop that applies it: out = formula(k, a, b), plus what
 * out held where `add`, over `count` neighbours; a and b are of type `from`, out of type `to`,
 * and goes past the cache where `stream`. Pairs of vectors first, then what is left. Where
 * `from` and `to` differ, a and b stand in the order of pairs of `to`, and `stream` wants an
 * aligned `out`. */
typedef vreal rg_formula(const void *k, vreal a, vreal b);

RG_INLINE void sweep_one(rg_formula *formula, const void *k, const void *a, const void *b,
                         void *out, int64_t i, const int n, const rg_dtype from, const rg_dtype to,
                         bool add)
{
    vreal value = formula(k, vload(a, i, n, from), vload(b, i, n, from));
    if (add)
        value += vload(out, i, n, to);
    vstore(out, i, n, to, value);
}

RG_INLINE void sweep_pair(rg_formula *formula, const void *k, const void *a, const void *b,
                          void *out, int64_t i, const rg_dtype from, const rg_dtype to, bool add,
                          const bool stream)
{
    const vpair x = vload_pair(a, i, from, true), y = vload_pair(b, i, from, true);
    vpair value = { formula(k, x.a, y.a), formula(k, x.b, y.b) };
    if (add) {
        const vpair old = vload_pair(out, i, to, true);
        value.a += old.a;
        value.b += old.b;
    }
    vstore_pair(out, i, to, value, true, stream);
}

/* The few elements that bring `out` to an aligned address; returns how many. */
RG_INLINE int64_t sweep_head(rg_formula *formula, const void *k, const void *a, const void *b,
                             void *out, int64_t count, const rg_dtype from, const rg_dtype to,
                             bool add)
{
    const int64_t head = vhead(out, to) < count ? vhead(out, to) : count;
    for (int64_t i = 0; i < head; i += VLEN)
        sweep_one(formula, k, a, b, out, i, vlanes_left(head - i), from, to, add);
    return head;
}

/* Single vectors up to where `out` is aligned, if it has to be, then pairs, then what is left. */
RG_INLINE void sweep(rg_formula *formula, const void *k, const void *a, const void *b, void *out,
                     int64_t count, const rg_dtype from, const rg_dtype to, bool add, bool stream)
{
    int64_t i = 0;
    for (int end = 0; end < 2; end++) {
        const int64_t stop = end == 1 ? count : stream ? least(vhead(out, to), count) : 0;
        for (; i < stop; i += VLEN)
            sweep_one(formula, k, a, b, out, i, vlanes_left(stop - i), from, to, add);
        for (i = stop; i + 2 * VLEN <= count; i += 2 * VLEN)
            sweep_pair(formula, k, a, b, out, i, from, to, add, stream);
    }
}

/* A kernel over a whole rg_sweep: data[0] to data[tensors - 2] are read, of which a formula sees
 * the first two; the last one is written. */
RG_INLINE void sweep_units(rg_formula *formula, const void *k, const rg_sweep *s,
                           const void *const data[], int tensors, int64_t begin, int64_t end,
                           const rg_dtype T, bool add, bool stream)
{
    const int64_t element = vbytes(T) / VLEN;
    for (int64_t unit = begin; unit < end; unit++) {
        int64_t at[RG_WALK_TENSORS];
        const int64_t count = rg_sweep_piece(s, tensors, unit, at);
        const char *a = (const char *)data[0] + at[0] * element;
        const char *b = tensors > 2 ? (const char *)data[1] + at[1] * element : a;
        char *out = (char *)(uintptr_t)data[tensors - 1] + at[tensors - 1] * element;
        if (s->dense) {
            sweep(formula, k, a, b, out, count, T, T, add, stream);
            continue;
        }
        const int second = tensors > 2 ? 1 : 0;
        for (int64_t i = 0; i < count; i++) {
            sweep_one(formula, k, a, b, out, 0, 1, T, T, add);
            a += s->step[0] * element;
            b += s->step[second] * element;
            out += s->step[tensors - 1] * element;
        }
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
