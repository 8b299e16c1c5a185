/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Converters of ONNX's normalizations and optimizers. */
#include "operators/onnx_converters.h"

#include <retrograde/adam.h>
#include <retrograde/batch_norm.h>
#include <retrograde/group_norm.h>
#include <retrograde/lrn.h>
#include <retrograde/sgd.h>

/* ---- normalizations ---- */

/* Images (n, c, d…) have their channels last here; matrices (n, c) have them there already. */
static rg_status check_image(const rg_onnx_node *node, int32_t index, const rg_onnx_call *call)
{
    const int32_t rank = rg_onnx_rank(node, index);
    RG_CHECK(rank < 0 || rank >= 2, RG_INVALID_ARGUMENT,
             "%s: %s has rank %d, but must be (n, c) or (n, c, d…)", node->type,
             call->inputs[index].name, rank);
    return RG_OK;
}

rg_status rg_onnx_batch_norm(const rg_onnx_node *node, rg_onnx_call *call)
{
    rg_batch_norm_desc *d = (rg_batch_norm_desc *)call->desc;
    RG_TRY(check_image(node, 0, call));
    d->epsilon = rg_onnx_float(node, "epsilon");
    d->momentum = rg_onnx_float(node, "momentum");
    d->statistics =
        rg_onnx_int(node, "training_mode") != 0 ? RG_BATCH_NORM_RUNNING : RG_BATCH_NORM_GIVEN;
    return RG_OK;
}

rg_status rg_onnx_batch_norm_gradient(const rg_onnx_node *node, rg_onnx_call *call)
{
    rg_batch_norm_desc *d = (rg_batch_norm_desc *)call->desc;
    RG_TRY(check_image(node, 0, call));
    d->epsilon = rg_onnx_float(node, "epsilon");
    RG_CHECK(!rg_onnx_has(node, 3) && !rg_onnx_has(node, 4), RG_UNSUPPORTED,
             "%s: with saved statistics it needs more than one op", node->type);
    return RG_OK;
}

/* LayerNormalization: X Scale B. Statistics go over all dimensions from the axis on. */
rg_status rg_onnx_layer_norm(const rg_onnx_node *node, rg_onnx_call *call)
{
    rg_group_norm_desc *d = (rg_group_norm_desc *)call->desc;
    const int32_t rank = rg_onnx_rank(node, call->gradient);
    const int64_t axis = rg_onnx_int(node, "axis");
    d->epsilon = rg_onnx_float(node, "epsilon");
    d->axis = -1;
    d->groups = 1;
    if (!call->gradient)
        d->beta = rg_onnx_has(node, 2);
    if (rank < 0)
        return RG_OK;
    RG_TRY(rg_onnx_axis(node, "axis", axis, rank, &call->axis));
    const bool flat = call->axis != rank - 1;
    for (int32_t i = 0; i < call->input_count; i++) {
        if (flat && (call->inputs[i].role == RG_ROLE_DY || call->inputs[i].index == 0))
            call->inputs[i].layout = RG_ONNX_ROWS;
        else if (flat)
            call->inputs[i].layout = RG_ONNX_FLAT;
    }
    for (int32_t i = 0; flat && i < call->output_count; i++)
        call->outputs[i].layout = call->outputs[i].index == 0 ? RG_ONNX_ROWS : RG_ONNX_FLAT;
    RG_CHECK(!(node->outputs & 6) || call->gradient, RG_UNSUPPORTED,
             "%s: with Mean or InvStdDev it needs more than one op", node->type);
    return RG_OK;
}

rg_status rg_onnx_group_norm(const rg_onnx_node *node, rg_onnx_call *call)
{
    rg_group_norm_desc *d = (rg_group_norm_desc *)call->desc;
    RG_TRY(check_image(node, 0, call));
    d->epsilon = rg_onnx_float(node, "epsilon");
    d->groups = rg_onnx_int(node, "num_groups");
    RG_CHECK(d->groups >= 1, RG_INVALID_ARGUMENT,
             "%s: the attribute num_groups is required, and must be 1 or more", node->type);
    d->axis = 1;
    if (rg_onnx_has(node, 0) && rg_onnx_has(node, 1) && node->inputs[1].rank == 1) {
        const rg_tensor_desc *x = &node->inputs[0];
        const int64_t channels = x->dims[node->nhwc ? x->rank - 1 : 1];
        RG_CHECK(node->inputs[1].dims[0] == channels, RG_UNSUPPORTED,
                 "%s: with one scale per group it needs more than one op", node->type);
    }
    return RG_OK;
}

rg_status rg_onnx_instance_norm(const rg_onnx_node *node, rg_onnx_call *call)
{
    rg_group_norm_desc *d = (rg_group_norm_desc *)call->desc;
    const int32_t rank = rg_onnx_rank(node, 0);
    RG_CHECK(rank < 0 || rank >= 3, RG_INVALID_ARGUMENT,
             "%s: input has rank %d, but must be (n, c, d…)", node->type, rank);
    d->epsilon = rg_onnx_float(node, "epsilon");
    d->groups = 0;
    d->axis = 1;
    return RG_OK;
}

rg_status rg_onnx_lrn(const rg_onnx_node *node, rg_onnx_call *call)
{
    rg_lrn_desc *d = (rg_lrn_desc *)call->desc;
    RG_TRY(check_image(node, 0, call));
    const int64_t size = rg_onnx_int(node, "size");
    RG_CHECK(size >= 1 && size <= INT32_MAX, RG_INVALID_ARGUMENT,
             "%s: the attribute size is required, and must be 1 or more", node->type);
    d->window = (int32_t)size;
    d->alpha = rg_onnx_float(node, "alpha");
    d->beta = rg_onnx_float(node, "beta");
    d->delta = rg_onnx_float(node, "bias");
    return RG_OK;
}

/* ---- optimizers ---- */

static void set_norm(rg_gradient_rules *rules, double coefficient)
{
    if (coefficient == 0)
        return;
    rules->regularization = RG_REGULARIZATION_L2;
    rules->regularization_scale = coefficient;
}

/* norm_coefficient_post multiplies the new parameter, which the run does. */
rg_status rg_onnx_adam(const rg_onnx_node *node, rg_onnx_call *call)
{
    rg_adam_desc *d = (rg_adam_desc *)call->desc;
    d->beta1 = rg_onnx_float(node, "alpha");
    d->beta2 = rg_onnx_float(node, "beta");
    d->epsilon = rg_onnx_float(node, "epsilon");
    set_norm(&d->gradient, rg_onnx_float(node, "norm_coefficient"));
    return RG_OK;
}

/* V = alpha V + beta' G, where beta' is 1 in the first step: T = 0. */
rg_status rg_onnx_momentum(const rg_onnx_node *node, rg_onnx_call *call)
{
    static const char *const modes[] = { "standard", "nesterov", NULL };
    rg_sgd_desc *d = (rg_sgd_desc *)call->desc;
    int32_t mode;
    RG_TRY(rg_onnx_word(node, "mode", modes, &mode));
    d->momentum = rg_onnx_float(node, "alpha");
    d->nesterov = mode == 1;
    set_norm(&d->gradient, rg_onnx_float(node, "norm_coefficient"));
    RG_CHECK(d->momentum > 0, RG_UNSUPPORTED, "%s: alpha must be more than 0", node->type);
    const double beta = rg_onnx_int(node, "T") > 0 ? rg_onnx_float(node, "beta") : 1;
    RG_CHECK(beta == 1 || mode == 0, RG_UNSUPPORTED,
             "%s: nesterov needs a beta of 1, except in the first step, where T is 0", node->type);
    d->gradient.rescale = beta;
    d->gradient.regularization_scale *= beta;
    return RG_OK;
}
