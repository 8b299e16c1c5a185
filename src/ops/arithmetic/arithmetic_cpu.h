/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Arithmetic on the CPU: what its kernels share, the elements of a row. An operand that is
 * repeated within a row is read once; others are read in place. */
#ifndef RG_OPS_ARITHMETIC_CPU_H
#define RG_OPS_ARITHMETIC_CPU_H

#include "ops/arithmetic/arithmetic_formulas.h"

/* One kind of a kernel that is written for all of them. */
#define KIND(name, K, kernel, args)                                                             \
    RG_INLINE void name##_##kernel(const args *k, int64_t begin, int64_t end, const rg_dtype T) \
    {                                                                                           \
        kernel(K, k, begin, end, T);                                                            \
    }

/* ---- elements of a row, wherever they are ---- */

enum { GATHERED = -1 }; /* as a step: `data` is an array of real, whole vectors long */

typedef struct operand {
    const char *data;
    int64_t step;
    vreal all; /* of all elements, where step is 0 */
} operand;

RG_INLINE operand operand_at(const char *data, int64_t step, const rg_dtype T)
{
    return (operand){ data, step, step == 0 ? vset(load_one(data, 0, T)) : vset(0) };
}

/* Elements that are apart: rare, so one copy for all kernels, called. */
RG_OUTLINE vreal take_apart(const char *data, int64_t step, int64_t i, int n, rg_dtype T)
{
    if (step == GATHERED)
        return vload_full(data, i, RG_REAL);
    real lanes[VLEN] = { 0 };
    for (int k = 0; k < n; k++)
        lanes[k] = load_one(data, (i + k) * step, T);
    return vload_full(lanes, 0, RG_REAL);
}

RG_INLINE vreal take(const operand *x, int64_t i, const int n, const rg_dtype T)
{
    if (x->step == 1)
        return vload(x->data, i, n, T);
    return x->step == 0 ? x->all : take_apart(x->data, x->step, i, n, T);
}

/* 2 VLEN of them, in the order of pairs of T. */
RG_INLINE vpair take_pair(const operand *x, int64_t i, const rg_dtype T)
{
    if (x->step == 1)
        return vload_pair(x->data, i, T, true);
    if (x->step == 0)
        return (vpair){ x->all, x->all };
    const vpair p = { take_apart(x->data, x->step, i, VLEN, T),
                      take_apart(x->data, x->step, i + VLEN, VLEN, T) };
    return vpair_order(p, T);
}

typedef struct result {
    char *data; /* NULL: not wanted */
    int64_t step;
    bool add, stream;
} result;

RG_OUTLINE void put_apart(char *data, int64_t step, bool add, int64_t i, int n, rg_dtype T,
                          vreal value)
{
    if (step == GATHERED) {
        vstore_full(data, i, RG_REAL, value);
        return;
    }
    real lanes[VLEN];
    vstore_full(lanes, 0, RG_REAL, value);
    for (int k = 0; k < n; k++) {
        const int64_t to = (i + k) * step;
        store_one(data, to, T, add ? lanes[k] + load_one(data, to, T) : lanes[k]);
    }
}

RG_INLINE void put(const result *y, int64_t i, const int n, const rg_dtype T, vreal value)
{
    if (y->step != 1) {
        put_apart(y->data, y->step, y->add, i, n, T, value);
        return;
    }
    if (y->add)
        value += vload(y->data, i, n, T);
    if (n == VLEN && y->stream)
        vstream(y->data, i, T, value);
    else
        vstore(y->data, i, n, T, value);
}

RG_INLINE void put_pair(const result *y, int64_t i, const rg_dtype T, vpair value)
{
    if (y->step != 1) {
        value = velement_order(value, T);
        put_apart(y->data, y->step, y->add, i, VLEN, T, value.a);
        put_apart(y->data, y->step, y->add, i + VLEN, VLEN, T, value.b);
        return;
    }
    if (y->add) {
        const vpair old = vload_pair(y->data, i, T, true);
        value.a += old.a;
        value.b += old.b;
    }
    vstore_pair(y->data, i, T, value, true, y->stream);
}

RG_INLINE bool is_aligned(const char *data)
{
    return ((uintptr_t)data & (RG_VECTOR_BYTES - 1)) == 0;
}

/* How many elements come before an aligned address of a result that is written by streaming
 * stores. From there on results do where they are aligned too. */
RG_INLINE int64_t align(result y[], const int count, int64_t length, const rg_dtype T)
{
    int64_t head = 0;
    for (int i = count - 1; i >= 0; i--) {
        y[i].stream = y[i].stream && y[i].data != NULL && y[i].step == 1 && !y[i].add;
        if (y[i].stream)
            head = least(vhead(y[i].data, T), length);
    }
    for (int i = 0; i < count; i++)
        y[i].stream = y[i].stream && is_aligned(at(y[i].data, head, T));
    return head;
}

#endif
