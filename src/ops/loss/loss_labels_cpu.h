/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Class labels on the CPU: what becomes of a row. */
#ifndef RG_OPS_LOSS_LABELS_CPU_H
#define RG_OPS_LOSS_LABELS_CPU_H

#include "ops/loss/loss_pieces_cpu.h"

RG_INLINE int64_t label_at(const rg_loss_args *k, int64_t row)
{
    const int64_t i = view_offset(&k->views[RG_LOSS_T], row);
    return k->wide_labels ? ((const int64_t *)k->labels)[i] : ((const int32_t *)k->labels)[i];
}

/* What becomes of a row: factors of its loss and of derivatives. */
typedef struct class_use {
    int64_t label; /* checked; -1: the row does not count */
    real loss, slope;
} class_use;

RG_OUTLINE class_use use_of(const rg_loss_args *k, int64_t row, rg_dtype T)
{
    class_use u = { .label = label_at(k, row) };
    if (k->has_ignored && u.label == k->ignored)
        return (class_use){ .label = -1 };
    if (u.label < 0 || u.label >= k->length) {
        __atomic_store_n(k->fault, 1, __ATOMIC_RELAXED);
        return (class_use){ .label = -1 };
    }
    real w = 1;
    if (k->has_weights)
        w = load_one(k->weights, view_offset(&k->views[RG_LOSS_W], row), T);
    u.loss = (real)k->numbers.weight * w;
    u.slope = group_scale(k, k->group < k->rows ? row / k->group : 0, T) * w;
    if (k->dy_of_labels)
        u.slope *= load_one(k->dy, view_offset(&k->views[RG_LOSS_DY], row), T);
    return u;
}

RG_INLINE void put_loss(const rg_loss_args *k, int64_t row, double loss, rg_dtype T)
{
    if (k->losses == RG_LOSS_SUMS)
        k->partial[row] = loss;
    else if (k->losses == RG_LOSS_OF_LABELS)
        store_one(k->loss, view_offset(&k->views[RG_LOSS_L], row), T, (real)loss);
}

/* A row of derivatives that are 0. */
RG_OUTLINE void put_zeros(const rg_loss_args *k, int64_t row, rg_dtype T)
{
    const real zeros[PIECE] = { 0 };
    const int64_t first = row * k->length;
    if (!k->has_gradient || k->add)
        return;
    for (int64_t j = 0; j < k->length; j += PIECE)
        put_piece(&k->views[RG_LOSS_D], k->gradient, first + j, least(PIECE, k->length - j), zeros,
                  T, false, k->stream);
}

#endif
