/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The gradient of the softmax cross-entropy loss from logarithms of probabilities, optimizers, and
 * sums in place, on memory of ONNX Runtime. */
#include "backend/cpu/kernel.h"
#include "backend/cpu/math.h"
#include "ort/ort_native.h"

/* ---- loss ---- */

/* What the gradient of a position is multiplied by, 0 where its label is ignored; *label: its
 * class, or -1. */
RG_INLINE real factor(const rg_ort_loss_args *k, int64_t position, int64_t *label, const rg_dtype T)
{
    *label = k->label[position];
    if (k->has_ignored && *label == k->ignored) {
        *label = -1;
        return 0;
    }
    if (*label < 0 || *label >= k->classes) {
        __atomic_store_n(k->fault, 1, __ATOMIC_RELAXED);
        *label = -1;
        return 0;
    }
    const double dy = (double)load_one(k->dy, k->each ? position : 0, T) * k->scale;
    return (real)(k->weight != NULL ? dy * (double)load_one(k->weight, *label, T) : dy);
}

/* Classes are neighbours: one position. */
RG_INLINE void loss_row(const rg_ort_loss_args *k, int64_t row, const rg_dtype T)
{
    int64_t label;
    const real f = factor(k, row, &label, T);
    const vreal all = vset(f);
    for (int64_t i = 0; i < k->classes; i += VLEN) {
        const int n = vlanes_left(k->classes - i);
        const int64_t at = row * k->classes + i;
        vreal e = vexp(vload(k->log_prob, at, n, T));
        if (label >= i && label < i + VLEN)
            e[label - i] -= 1;
        vstore(k->d, at, n, T, label < 0 ? vset(0) : all * e);
    }
}

/* Positions are neighbours: some of an image, class after class. */
RG_INLINE void loss_block(const rg_ort_loss_args *k, int64_t image, int64_t first, const rg_dtype T)
{
    real factors[RG_ORT_POSITIONS + VLEN] = { 0 };
    int64_t labels[RG_ORT_POSITIONS];
    const int64_t count = least(RG_ORT_POSITIONS, k->positions - first);
    for (int64_t i = 0; i < count; i++)
        factors[i] = factor(k, image * k->positions + first + i, &labels[i], T);
    for (int64_t c = 0; c < k->classes; c++) {
        const int64_t at = (image * k->classes + c) * k->positions + first;
        for (int64_t i = 0; i < count; i += VLEN) {
            const int n = vlanes_left(count - i);
            const vreal f = vload_full(factors, i, RG_REAL);
            const vreal e = vexp(vload(k->log_prob, at + i, n, T));
            vstore(k->d, at + i, n, T, vselect(f == 0, vset(0), f * e));
        }
    }
    for (int64_t i = 0; i < count; i++) {
        if (labels[i] < 0)
            continue;
        const int64_t at = (image * k->classes + labels[i]) * k->positions + first + i;
        const real e = vexp(vset(load_one(k->log_prob, at, T)))[0];
        store_one(k->d, at, T, factors[i] * (e - 1));
    }
}

RG_INLINE void loss(const rg_ort_loss_args *k, int64_t begin, int64_t end, const rg_dtype T)
{
    for (int64_t unit = begin; unit < end; unit++) {
        if (k->positions == 1)
            loss_row(k, unit, T);
        else
            loss_block(k, unit / k->blocks, unit % k->blocks * RG_ORT_POSITIONS, T);
    }
}
RG_KERNEL(loss, rg_ort_loss_args)

/* ---- optimizers ---- */

/* weight - rate gradient */
RG_INLINE void sgd_vector(const rg_ort_update_args *k, int64_t i, const int n, const rg_dtype T)
{
    const vreal w = vload(k->weight, i, n, T), g = vload(k->gradient, i, n, T);
    vstore(k->new_weight, i, n, T, w - vset((real)k->rate) * g);
}

/* first = alpha first + (1 - alpha) g, second = beta second + (1 - beta) g^2. As PyTorch: decay of
 * the weight first, then rate / bias_1 first / (sqrt(second) / sqrt(bias_2) + epsilon). As the
 * transformers library of Hugging Face: rate sqrt(bias_2) / bias_1 first / (sqrt(second) +
 * epsilon), then decay. */
RG_INLINE void adamw_vector(const rg_ort_update_args *k, int64_t i, const int n, const rg_dtype T)
{
    const vreal g = vload(k->gradient, i, n, T);
    const vreal keep = vset((real)(1 - k->rate * k->decay));
    const vreal first =
        vfma(vset((real)k->alpha), vload(k->first, i, n, T), vset((real)(1 - k->alpha)) * g);
    const vreal second =
        vfma(vset((real)k->beta), vload(k->second, i, n, T), vset((real)(1 - k->beta)) * (g * g));
    const double root = __builtin_sqrt(k->bias_2);
    vreal w = vload(k->weight, i, n, T);
    if (k->torch)
        w = w * keep - vset((real)(k->rate / k->bias_1)) * first /
                           (vsqrt(second) / vset((real)root) + vset((real)k->epsilon));
    else
        w = (w - vset((real)(k->rate * root / k->bias_1)) * first /
                     (vsqrt(second) + vset((real)k->epsilon))) *
            keep;
    if (k->new_weight != NULL)
        vstore(k->new_weight, i, n, T, w);
    if (k->new_first != NULL)
        vstore(k->new_first, i, n, T, first);
    if (k->new_second != NULL)
        vstore(k->new_second, i, n, T, second);
}

RG_INLINE void add_vector(const rg_ort_update_args *k, int64_t i, const int n, const rg_dtype T)
{
    vstore(k->new_weight, i, n, T, vload(k->weight, i, n, T) + vload(k->gradient, i, n, T));
}

#define UPDATE(name)                                                                               \
    RG_INLINE void name(const rg_ort_update_args *k, int64_t begin, int64_t end, const rg_dtype T) \
    {                                                                                              \
        const int64_t stop = least(end * RG_ORT_BLOCK, k->count);                                  \
        int64_t i = begin * RG_ORT_BLOCK;                                                          \
        for (; i + VLEN <= stop; i += VLEN)                                                        \
            name##_vector(k, i, VLEN, T);                                                          \
        if (i < stop)                                                                              \
            name##_vector(k, i, (int)(stop - i), T);                                               \
    }                                                                                              \
    RG_KERNEL(name, rg_ort_update_args)

UPDATE(sgd)
UPDATE(adamw)
UPDATE(add)

RG_CPU_TABLE(ort_loss, RG_ORT_KERNELS) = {
    [RG_ORT_LOSS] = RG_ROW(loss),
    [RG_ORT_SGD] = RG_ROW(sgd),
    [RG_ORT_ADAMW] = RG_ROW(adamw),
    [RG_ORT_ADD] = RG_ROW(add),
};
