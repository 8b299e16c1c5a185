/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Convolutions that are products of matrices by cuBLASLt: windows of one pixel. */
#include "ops/conv/cuda/conv_strategy.cuh"

/* Pixels are rows: y = x w', dx = dy w, dw = dy' x. */
static rg_product product_of(const rg_conv_call *call, bool bias)
{
    const rg_conv_shape *s = call->shape;
    const int32_t direction = call->direction;
    const int64_t pixels = s->images * s->row.size * s->column.size;
    rg_product product = {};
    product.dtype = call->dtype;
    product.batch = 1;
    product.rows = direction == RG_CONV_WEIGHTS ? s->out : pixels;
    product.columns = direction == RG_CONV_FORWARD ? s->out : s->in;
    product.inner = direction == RG_CONV_FORWARD ? s->in
                    : direction == RG_CONV_DATA  ? s->out
                                                 : pixels;
    product.transposed_a = direction == RG_CONV_WEIGHTS;
    product.transposed_b = direction == RG_CONV_FORWARD;
    product.bias = bias;
    product.add = call->add;
    return product;
}

static bool accepts_bias(rg_conv_call *call, bool bias)
{
    call->product = product_of(call, bias);
    return rg_cublaslt_plan(call->target, &call->product, &call->workspace);
}

/* With the bias where it does that, without it elsewhere: see product.bias. */
static bool accepts(rg_conv_call *call)
{
    return conv_is_product(call->shape) &&
           ((call->bias && accepts_bias(call, true)) || accepts_bias(call, false));
}

static bool run(const rg_conv_call *call, scratch_arena *arena)
{
    const rg_conv_args *k = call->args;
    const rg_conv_shape *s = call->shape;
    const bool ends = has_epilogue(k), fused = call->product.bias;
    const bool own = ends && (!fused || k->add);
    const int64_t channels = call->direction == RG_CONV_FORWARD ? s->out : s->in;
    const dense_copy from = dense_from(arena, call, false);
    const dense_copy w = dense_w(arena, call, false);
    dense_copy b = {};
    if (fused)
        b = dense_tensor(arena, k->b, !(call->unaligned & 4), 1, &channels, &k->b_step,
                         (int32_t)rg_dtype_size(call->dtype), true);
    dense_copy to = dense_to(arena, call, own, k->add && !ends);
    void *const workspace = arena_alloc(arena, call->workspace);
    const rg_product_operands operands = { from.data, w.data, b.data, to.data };
    if (arena->enqueue &&
        !rg_cublaslt_run(arena->target, &call->product, 1, &operands, workspace, call->workspace))
        return false;
    put_result(arena, call, &to, own);
    return true;
}

static bool run_weights(const rg_conv_call *call, scratch_arena *arena)
{
    const bool aside = call->weights_args->wide; /* it writes the dtype of x */
    const dense_copy x = dense_x(arena, call, false);
    const dense_copy dy = dense_dy(arena, call, false);
    dense_copy dw = dense_dw(arena, call, aside);
    void *const workspace = arena_alloc(arena, call->workspace);
    const rg_product_operands operands = { dy.data, x.data, NULL, dw.data };
    if (arena->enqueue &&
        !rg_cublaslt_run(arena->target, &call->product, 1, &operands, workspace, call->workspace))
        return false;
    put_dw(arena, call, &dw, aside);
    return true;
}

extern "C" const rg_conv_strategy rg_conv_cublaslt = { "cublaslt", accepts, run };
extern "C" const rg_conv_strategy rg_conv_cublaslt_weights = { "cublaslt", accepts, run_weights };
