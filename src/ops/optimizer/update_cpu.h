/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The pass of sgd, rmsprop and adam over memory, on the CPU: each element is read once and written
 * once. What an optimizer itself does is its rule. */
#ifndef RG_OPS_OPTIMIZER_UPDATE_CPU_H
#define RG_OPS_OPTIMIZER_UPDATE_CPU_H

#include "ops/optimizer/update_formulas.h"

#include <retrograde/optimizer.h>

/* What an optimizer makes of them; g has been prepared. */
typedef void update_rule(const update_constants *k, update_point *x);

/* ---- contiguous elements ---- */

RG_INLINE void update_store(void *data, int64_t i, const int n, const rg_dtype T, vreal a,
                            bool stream)
{
    if (stream && n == VLEN)
        vstream(data, i, T, a);
    else
        vstore(data, i, n, T, a);
}

RG_INLINE void update_step(update_rule *rule, const update_constants *k, const rg_update_tensors *t,
                           int64_t i, const int n, const rg_dtype T, bool stream)
{
    update_point x = { .p = vload(t->parameter, i, n, RG_REAL), .g = vload(t->gradient, i, n, T) };
#pragma GCC unroll 3
    for (int m = 0; m < RG_UPDATE_MOMENTS; m++)
        if (m < k->moments)
            x.moment[m] = vload(t->moment[m], i, n, RG_REAL);
    if (!k->skip) {
        x.g = update_prepare(k, x.g, x.p);
        rule(k, &x);
    }
    update_store(t->new_parameter, i, n, RG_REAL, x.p, stream);
#pragma GCC unroll 3
    for (int m = 0; m < RG_UPDATE_MOMENTS; m++)
        if (m < k->moments)
            update_store(t->new_moment[m], i, n, RG_REAL, x.moment[m], stream);
#if !RG_REAL_F64
    if (k->copy == RG_PARAMETER_COPY_F16)
        update_store(t->copy, i, n, RG_F16, x.p, stream);
    if (k->copy == RG_PARAMETER_COPY_BF16)
        update_store(t->copy, i, n, RG_BF16, x.p, stream);
#endif
}

/* Whether results can and should be written by streaming stores: what is updated in place is in
 * the cache already. */
RG_INLINE bool update_streams(const update_constants *k, const rg_update_tensors *t)
{
    uintptr_t all = (uintptr_t)t->new_parameter;
    bool apart = t->new_parameter != t->parameter;
    for (int m = 0; m < k->moments; m++) {
        all |= (uintptr_t)t->new_moment[m];
        apart &= t->new_moment[m] != t->moment[m];
    }
    all |= k->copy != RG_PARAMETER_COPY_NONE ? (uintptr_t)t->copy : 0;
    return k->stream && apart && all % RG_VECTOR_BYTES == 0;
}

/* Asks for what is read some vectors later: of four and more tensors the processor itself asks for
 * less. */
RG_INLINE void update_fetch(const update_constants *k, const rg_update_tensors *t, int64_t i,
                            const rg_dtype T)
{
    enum { AHEAD = 2048 }; /* bytes */
    const int64_t size = sizeof(real), narrow = vbytes(T) / VLEN;
    __builtin_prefetch((const char *)t->parameter + i * size + AHEAD);
    __builtin_prefetch((const char *)t->gradient + i * narrow + AHEAD);
#pragma GCC unroll 3
    for (int m = 0; m < RG_UPDATE_MOMENTS; m++)
        if (m < k->moments)
            __builtin_prefetch((const char *)t->moment[m] + i * size + AHEAD);
}

RG_INLINE void update_row_of(update_rule *rule, const update_constants *constants,
                             const rg_update_tensors *tensors, int64_t count, const rg_dtype T)
{
    const update_constants k = *constants; /* copies, which stores cannot change */
    const rg_update_tensors t = *tensors;
    const bool stream = update_streams(&k, &t);
    const bool fetch = k.stream && k.moments > 1; /* many bytes, in place or not */
    int64_t i = 0;
    for (; i + VLEN <= count; i += VLEN) {
        if (fetch)
            update_fetch(&k, &t, i, T);
        update_step(rule, &k, &t, i, VLEN, T, stream);
    }
    if (i < count)
        update_step(rule, &k, &t, i, (int)(count - i), T, stream);
}

/* The rest of an optimizer calls one function for all storage types of a gradient. */
typedef void update_row(const update_constants *k, const rg_update_tensors *t, int64_t count,
                        rg_dtype T);

RG_INLINE void update_row_any(update_rule *rule, const update_constants *k,
                              const rg_update_tensors *t, int64_t count, rg_dtype T)
{
#if !RG_REAL_F64
    if (T == RG_F16)
        update_row_of(rule, k, t, count, RG_F16);
    else if (T == RG_BF16)
        update_row_of(rule, k, t, count, RG_BF16);
    else
#endif
        update_row_of(rule, k, t, count, RG_REAL);
    (void)T;
}

/* ---- units ---- */

/* The tensors from elements `at` on; gradient and copy have sizes of their own. */
static rg_update_tensors update_from(const rg_update_tensors *t, const int64_t at[], rg_dtype T)
{
    const int64_t size = sizeof(real), narrow = T == RG_F16 || T == RG_BF16 ? 2 : size;
    rg_update_tensors from = { .parameter = (const char *)t->parameter + at[0] * size,
                               .gradient = (const char *)t->gradient + at[1] * narrow,
                               .new_parameter = (char *)t->new_parameter + at[5] * size };
    for (int m = 0; m < RG_UPDATE_MOMENTS && t->moment[m] != NULL; m++) {
        from.moment[m] = (const char *)t->moment[m] + at[2 + m] * size;
        from.new_moment[m] = (char *)t->new_moment[m] + at[6 + m] * size;
    }
    from.copy = t->copy != NULL ? (char *)t->copy + at[9] * 2 : NULL;
    return from;
}

static void update_flat(update_row *row, const rg_update_flat_args *a, int64_t begin, int64_t end,
                        rg_dtype T)
{
    const update_constants k = update_constants_of(&a->values, &a->numbers);
    int r = 0;
    for (int64_t unit = begin; unit < end; unit++) {
        while (unit >= a->first[r + 1])
            r++;
        const int64_t first = (unit - a->first[r]) * RG_UPDATE_PIECE;
        int64_t at[RG_UPDATE_TENSORS];
        for (int i = 0; i < RG_UPDATE_TENSORS; i++)
            at[i] = first;
        const rg_update_tensors t = update_from(&a->row[r], at, T);
        row(&k, &t, least(RG_UPDATE_PIECE, a->count[r] - first), T);
    }
}

/* ---- any strides: a few elements at a time are gathered, and scattered back ---- */

enum { UPDATE_BLOCK = 256 };

RG_OUTLINE void update_move(char *to, int64_t to_step, const char *from, int64_t from_step,
                            int64_t count, int64_t size)
{
    if (to == NULL)
        return;
    for (int64_t i = 0; i < count; i++)
        memcpy(to + i * to_step * size, from + i * from_step * size, (size_t)size);
}

typedef struct update_buffer {
    real parameter[UPDATE_BLOCK], gradient[UPDATE_BLOCK], moment[RG_UPDATE_MOMENTS][UPDATE_BLOCK];
    uint16_t copy[UPDATE_BLOCK];
} update_buffer;

static void update_scattered(update_row *row, const update_constants *k, const rg_update_tensors *t,
                             const int64_t step[], int64_t count, rg_dtype T)
{
    const int64_t size = sizeof(real), narrow = T == RG_F16 || T == RG_BF16 ? 2 : size;
    update_buffer buffer;
    rg_update_tensors near = { .parameter = buffer.parameter,
                               .gradient = buffer.gradient,
                               .new_parameter = buffer.parameter,
                               .copy = buffer.copy };
    update_move((char *)buffer.parameter, 1, t->parameter, step[0], count, size);
    update_move((char *)buffer.gradient, 1, t->gradient, step[1], count, narrow);
    for (int m = 0; m < k->moments; m++) {
        near.moment[m] = near.new_moment[m] = buffer.moment[m];
        update_move((char *)buffer.moment[m], 1, t->moment[m], step[2 + m], count, size);
    }
    row(k, &near, count, T);
    update_move(t->new_parameter, step[5], (const char *)buffer.parameter, 1, count, size);
    for (int m = 0; m < k->moments; m++)
        update_move(t->new_moment[m], step[6 + m], (const char *)buffer.moment[m], 1, count, size);
    if (k->copy != RG_PARAMETER_COPY_NONE)
        update_move(t->copy, step[9], (const char *)buffer.copy, 1, count, 2);
}

static void update_strided(update_row *row, const rg_update_strided_args *a, int64_t begin,
                           int64_t end, rg_dtype T)
{
    const update_constants k = update_constants_of(&a->values, &a->numbers);
    for (int64_t unit = begin; unit < end; unit++) {
        int64_t at[RG_UPDATE_TENSORS];
        rg_walk_offsets(&a->read, RG_UPDATE_INPUTS, unit / a->pieces, at);
        rg_walk_offsets(&a->written, RG_UPDATE_INPUTS, unit / a->pieces, at + RG_UPDATE_INPUTS);
        const int64_t first = unit % a->pieces * RG_UPDATE_PIECE;
        const int64_t count = least(RG_UPDATE_PIECE, a->length - first);
        const int64_t block = a->dense ? count : UPDATE_BLOCK;
        for (int i = 0; i < RG_UPDATE_TENSORS; i++)
            at[i] += first * a->step[i];
        for (int64_t done = 0; done < count; done += block) {
            const rg_update_tensors t = update_from(&a->tensors, at, T);
            if (a->dense)
                row(&k, &t, count, T);
            else
                update_scattered(row, &k, &t, a->step, least(block, count - done), T);
            for (int i = 0; i < RG_UPDATE_TENSORS; i++)
                at[i] += block * a->step[i];
        }
    }
}

/* The loops over name_rule: a row, called, then whole tensors of neighbours, and any others. */
#define RG_UPDATE_LOOPS(name)                                                                  \
    RG_OUTLINE void name##_row(const update_constants *k, const rg_update_tensors *t,          \
                               int64_t count, rg_dtype T)                                      \
    {                                                                                          \
        update_row_any(name##_rule, k, t, count, T);                                           \
    }                                                                                          \
    RG_INLINE void name##_flat(const rg_update_flat_args *a, int64_t begin, int64_t end,       \
                               const rg_dtype T)                                               \
    {                                                                                          \
        update_flat(name##_row, a, begin, end, T);                                             \
    }                                                                                          \
    RG_INLINE void name##_strided(const rg_update_strided_args *a, int64_t begin, int64_t end, \
                                  const rg_dtype T)                                            \
    {                                                                                          \
        update_strided(name##_row, a, begin, end, T);                                          \
    }

#endif
