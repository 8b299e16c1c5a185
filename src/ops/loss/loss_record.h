/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* What is recorded for a loss, and what its descriptor says of its tensors. */
#ifndef RG_OPS_LOSS_RECORD_H
#define RG_OPS_LOSS_RECORD_H

#include "runtime/op.h"

#include <retrograde/loss.h>

static inline bool rg_loss_is_initial(const rg_loss_desc *d)
{
    return d->kind == RG_LOSS_INITIAL_GRADIENT;
}

static inline bool rg_loss_has_classes(const rg_loss_desc *d)
{
    return d->labels == RG_LOSS_CLASS_LABELS;
}

/* Whether the last dimension belongs together, so that it holds no images. */
static inline bool rg_loss_has_rows(const rg_loss_desc *d)
{
    return rg_loss_has_classes(d) || d->kind == RG_LOSS_SOFTMAX_CROSS_ENTROPY;
}

rg_status rg_loss_forward(rg_call *call);
rg_status rg_loss_gradient(rg_call *call);

#endif
