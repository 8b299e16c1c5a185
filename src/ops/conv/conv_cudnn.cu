/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Convolutions by cuDNN. Kernels of ours sum results again that padding made NaN, and apply the
 * epilogue. */
#include "ops/conv/conv_nonfinite.cuh"
#include "ops/conv/conv_packing.cuh"

extern "C" rg_cudnn_conv rg_conv_cudnn_conv(const rg_conv_call *call)
{
    const rg_conv_shape *s = call->shape;
    rg_cudnn_conv conv = {};
    conv.direction = call->direction;
    conv.dtype = call->dtype;
    conv.images = s->images;
    conv.channels = s->groups * s->in;
    conv.outputs = s->groups * s->out;
    conv.groups = s->groups;
    const rg_conv_axis *const axes[2] = { &s->row, &s->column };
    for (int d = 0; d < 2; d++) {
        conv.size[d] = axes[d]->size;
        conv.result[d] = axes[d]->count;
        conv.window[d] = axes[d]->window;
        conv.stride[d] = axes[d]->stride;
        conv.dilation[d] = axes[d]->dilation;
        conv.before[d] = axes[d]->before;
    }
    return conv;
}

static bool accepts(rg_conv_call *call)
{
    call->conv = rg_conv_cudnn_conv(call);
    return rg_cudnn_conv_plan(call->place, &call->conv, &call->workspace);
}

/* ---- groups ---- */

enum { BLOCK = 64 }; /* channels that cuDNN reads at once */

/* Where groups are mixed and do not fill the last block of channels, cuDNN reads beyond the last
 * group: tensors then go through scratch, with scratch behind them. */
static bool reads_beyond(const rg_conv_call *call)
{
    const rg_conv_shape *s = call->shape;
    return mixes_groups(call->dtype, s, call->place) &&
           (s->groups * s->in % BLOCK != 0 || s->groups * s->out % BLOCK != 0);
}

/* As many weights, and more than as many channels, as a block has. */
static void pack_beyond(packing *arena, const rg_conv_call *call)
{
    const rg_conv_shape *s = call->shape;
    const int64_t channels = s->in > s->out ? s->in : s->out;
    packing_take(arena, (size_t)(BLOCK * channels * s->row.window * s->column.window) *
                            rg_dtype_size(call->dtype));
}

/* ---- strategies ---- */

static bool run(const rg_conv_call *call, packing *arena)
{
    const rg_conv_args *k = call->args;
    const bool forward = call->direction == RG_CUDNN_FORWARD;
    const bool own = has_epilogue(k) || k->add, beyond = reads_beyond(call);
    const packed from = pack_from(arena, call, beyond);
    const packed w = pack_w(arena, call, beyond);
    if (beyond)
        pack_beyond(arena, call);
    packed to = pack_to(arena, call, own, false);
    void *const workspace = packing_take(arena, call->workspace);
    void *const x = forward ? from.data : to.data, *const y = forward ? to.data : from.data;
    if (arena->run &&
        !rg_cudnn_conv_run(arena->place, &call->conv, x, w.data, y, workspace, call->workspace))
        return false;
    if (arena->run)
        rg_conv_resum(call->dtype, call->shape, !forward, from.data, w.data, to.data, arena->place);
    put_result(arena, call, &to, own);
    return true;
}

/* cuDNN writes the dtype of x, and does not add. */
static bool run_weights(const rg_conv_call *call, packing *arena)
{
    const rg_conv_weights_args *k = call->weights_args;
    const bool aside = k->wide || k->add, beyond = reads_beyond(call);
    const packed x = pack_x(arena, call, beyond);
    const packed dy = pack_dy(arena, call, beyond);
    if (beyond)
        pack_beyond(arena, call);
    packed dw = pack_dw(arena, call, aside);
    void *const workspace = packing_take(arena, call->workspace);
    if (arena->run && !rg_cudnn_conv_run(arena->place, &call->conv, x.data, dw.data, dy.data,
                                         workspace, call->workspace))
        return false;
    if (arena->run)
        rg_conv_resum_weights(call->dtype, call->shape, x.data, dy.data, dw.data, arena->place);
    put_dw(arena, call, &dw, aside);
    return true;
}

extern "C" const rg_conv_strategy rg_conv_cudnn = { "cudnn", accepts, run };
extern "C" const rg_conv_strategy rg_conv_cudnn_weights = { "cudnn", accepts, run_weights };
