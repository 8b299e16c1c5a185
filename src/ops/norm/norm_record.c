/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Checking and recording, for batch and group normalization. */
#include "ops/norm/norm_record.h"
#include "core/integer.h"

rg_dtype rg_norm_real(rg_dtype dtype)
{
    return dtype == RG_F64 ? RG_F64 : RG_F32;
}

int64_t rg_norm_units(int64_t channels)
{
    return rg_ceil_div(channels, RG_NORM_UNIT);
}

rg_status rg_norm_temporary(rg_call *call, rg_dtype dtype, int32_t rank, const int64_t dims[],
                            rg_tensor **tensor)
{
    const rg_tensor_desc desc = rg_tensor_desc_dense(dtype, rank, dims);
    return rg_tensor_create_temporary(call->commands, &desc, tensor);
}

rg_norm_neuron rg_norm_neuron_of(const rg_neuron_desc *desc, rg_dtype dtype, bool gradient)
{
    return (rg_norm_neuron){ (int32_t)desc->kind, rg_neuron_numbers_of(desc, dtype, gradient) };
}

rg_status rg_norm_check_neuron(const rg_neuron_desc *neuron, const char *op)
{
    RG_CHECK(neuron->kind != RG_NEURON_PRELU, RG_UNSUPPORTED,
             "%s: neuron.kind cannot be prelu, which needs slopes; use a separate neuron op", op);
    RG_CHECK(!neuron->from_y, RG_INVALID_ARGUMENT,
             "%s: neuron.from_y must be false: the gradient reads x", op);
    return rg_op_neuron.check(neuron);
}

rg_status rg_norm_check_x(const rg_tensor_desc *x, const char *op)
{
    char text[RG_SHAPE_TEXT];
    RG_CHECK(rg_dtype_is_data(x->dtype), RG_INVALID_ARGUMENT,
             "%s: x is %s; f32, f64, f16 and bf16 are supported", op, rg_dtype_name(x->dtype));
    RG_CHECK(x->rank > 0 && x->dims[x->rank - 1] > 0, RG_INVALID_ARGUMENT,
             "%s: x is %s and has no channels (its last dimension)", op, rg_shape_text(x, text));
    return RG_OK;
}

rg_status rg_norm_check_parameter(const rg_tensor_desc x[], int32_t i, const char *name,
                                  const char *op)
{
    char have[RG_SHAPE_TEXT], parameter[RG_SHAPE_TEXT];
    RG_CHECK(
        x[i].rank == 1 && x[i].dims[0] == x->dims[x->rank - 1], RG_INVALID_ARGUMENT,
        "%s: %s is %s but x is %s; it must have one element per channel, the last dimension of x",
        op, name, rg_shape_text(&x[i], parameter), rg_shape_text(x, have));
    const bool wide = x[i].dtype == RG_F32 && x->dtype != RG_F64;
    RG_CHECK(x[i].dtype == x->dtype || wide, RG_INVALID_ARGUMENT,
             "%s: %s is %s but x is %s; it must have the dtype of x, or f32 if x is f16 or bf16",
             op, name, rg_shape_text(&x[i], parameter), rg_shape_text(x, have));
    RG_CHECK(x[i].dtype == x[1].dtype, RG_INVALID_ARGUMENT,
             "%s: %s is %s, but the first parameter is %s; all parameters must have the same dtype",
             op, name, rg_shape_text(&x[i], parameter), rg_dtype_name(x[1].dtype));
    return RG_OK;
}
