/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Convolutions by cuDNN, and by cuBLASLt where a window of one pixel makes them a product. Both see
 * dense tensors: what lies in another way goes through scratch, so that views give the bits of
 * dense tensors. Bias, z and neuron follow in a kernel of our own, which goes over the result once.
 * Included by conv_cuda.cu, whose finish() it uses. */
#ifndef RG_OPS_CONV_LIBRARY_CUH
#define RG_OPS_CONV_LIBRARY_CUH

#include "backend/cuda/cublaslt.h"
#include "backend/cuda/cudnn.h"
#include "backend/cuda/packing.cuh"
#include "ops/conv/conv.h"
#include "ops/conv/conv_stem_weights.cuh"
#include "ops/conv/conv_fold.cuh"
#include "ops/conv/conv_split.cuh"
#include "ops/conv/conv_split_hopper.cuh"

/* ---- the call ---- */

/* What a library computes: the convolution, or the product that it is. */
struct conv_call {
    rg_cudnn_conv conv;
    rg_product product;
    bool is_product;
    bool is_split;  /* or a kernel of ours, see conv_split.cuh */
    bool is_stem;   /* likewise, see conv_stem.cuh */
    bool is_folded; /* the library sees a folded image, see conv_fold.cuh */
    size_t workspace;
};

template <rg_dtype T>
static rg_cudnn_conv conv_of(const rg_conv_shape *s, rg_cudnn_direction direction)
{
    rg_cudnn_conv conv = {};
    conv.direction = direction;
    conv.dtype = T;
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

static bool is_pixel(const rg_conv_axis *a)
{
    return a->window == 1 && a->stride == 1 && a->before == 0 && a->count == a->size;
}

/* Pixels are rows: y = x w', dx = dy w, dw = dy' x. */
template <rg_dtype T>
static rg_product product_of(const rg_conv_shape *s, rg_cudnn_direction direction, bool bias,
                             bool add)
{
    const int64_t pixels = s->images * s->row.size * s->column.size;
    rg_product product = {};
    product.dtype = T;
    product.batch = 1;
    product.rows = direction == RG_CUDNN_WEIGHTS ? s->out : pixels;
    product.columns = direction == RG_CUDNN_FORWARD ? s->out : s->in;
    product.inner = direction == RG_CUDNN_FORWARD ? s->in
                    : direction == RG_CUDNN_DATA  ? s->out
                                                  : pixels;
    product.transposed_a = direction == RG_CUDNN_WEIGHTS;
    product.transposed_b = direction == RG_CUDNN_FORWARD;
    product.bias = bias;
    product.add = add;
    return product;
}

/* f32 that stays f32: products are cuBLASLt's, and cuDNN is faster where a window has too few
 * channels for vectors; elsewhere it is slower than conv_split.cuh by up to a half. With TF32 cuDNN
 * is faster, but for dx of a first layer, which takes it 1.6 times as long. */
static bool prefers_split(const rg_conv_shape *s, rg_cudnn_direction direction, bool tf32)
{
    if (tf32)
        return direction == RG_CUDNN_DATA && split_merges(s);
    return direction != RG_CUDNN_FORWARD || s->in % 4 == 0;
}

/* Products that cuBLASLt is slower at than cuDNN: dx with TF32 by up to a fifth, in 16 bits dw by
 * up to a twentieth, y by 2 to 3 per cent. */
template <rg_dtype T> static bool prefers_cudnn(rg_cudnn_direction direction, bool bias, bool tf32)
{
    return !bias && (T == RG_F32 ? tf32 && direction == RG_CUDNN_DATA
                                 : T != RG_F64 && direction != RG_CUDNN_DATA);
}

/* Finds a library for it. `bias`: one is added to each result, which a product can do itself;
 * whether it does is told by product.bias. `add`: to old values, which only a product does itself:
 * sums of others have to be recomputed first. A channel to itself has too little work for either.
 */
template <rg_dtype T>
static bool find_library(const rg_conv_shape *s, rg_cudnn_direction direction, bool bias, bool add,
                         const rg_cuda_place *place, conv_call *call)
{
    const bool splits = T == RG_F32 && split_takes(s) && has_split();
    if (s->groups > 1 && s->in == 1)
        return false;
    *call = {};
    call->conv = conv_of<T>(s, direction);
    call->is_product = s->groups == 1 && is_pixel(&s->row) && is_pixel(&s->column);
    if (call->is_product && !add && prefers_cudnn<T>(direction, bias, place->tf32) &&
        rg_cudnn_conv_plan(place, &call->conv, &call->workspace)) {
        call->is_product = false;
        return true;
    }
    if (call->is_product && bias) {
        call->product = product_of<T>(s, direction, true, add);
        if (rg_cublaslt_plan(place, &call->product, &call->workspace))
            return true;
    }
    call->product = product_of<T>(s, direction, false, add);
    if (call->is_product && rg_cublaslt_plan(place, &call->product, &call->workspace))
        return true;
    call->is_product = false;
    call->is_stem = direction != RG_CUDNN_DATA && stem_takes<T>(s, direction == RG_CUDNN_FORWARD);
    if (call->is_stem)
        return true;
    call->is_folded = direction == RG_CUDNN_DATA && fold_takes<T>(s);
    if (call->is_folded) {
        fold_conv(s, &call->conv);
        if (rg_cudnn_conv_plan(place, &call->conv, &call->workspace))
            return true;
        call->is_folded = false;
        call->conv = conv_of<T>(s, direction);
    }
    call->is_split = splits && prefers_split(s, direction, place->tf32);
    if (call->is_split || rg_cudnn_conv_plan(place, &call->conv, &call->workspace))
        return true;
    call->is_split = splits;
    return splits;
}

/* ---- tensors ---- */

template <rg_dtype T>
static packed pack_image(packing *arena, const void *data, bool aligned, const rg_conv_shape *s,
                         bool read)
{
    const int64_t dims[4] = { s->images, s->row.size, s->column.size, s->groups * s->in };
    return pack_tensor(arena, data, aligned, 4, dims, s->x, (int32_t)sizeof(element<T>), read);
}

template <rg_dtype T>
static packed pack_windows(packing *arena, const void *data, bool aligned, const rg_conv_shape *s,
                           bool read)
{
    const int64_t dims[4] = { s->images, s->row.count, s->column.count, s->groups * s->out };
    return pack_tensor(arena, data, aligned, 4, dims, s->y, (int32_t)sizeof(element<T>), read);
}

/* (group, out, row, column, in), from where the first of them stands. */
template <rg_dtype T>
static packed pack_weights(packing *arena, const void *data, bool aligned, const rg_conv_shape *s,
                           bool read)
{
    const int64_t dims[5] = { s->groups, s->out, s->row.window, s->column.window, s->in };
    const int64_t first = s->w_first * (int64_t)sizeof(element<T>);
    return pack_tensor(arena, (const char *)data + first, aligned && first % 16 == 0, 5, dims, s->w,
                       (int32_t)sizeof(element<T>), read);
}

/* Where groups are mixed and do not fill the last block of channels, cuDNN reads beyond the last
 * group: tensors then go through scratch, with room behind them. */
template <rg_dtype T>
static bool reads_beyond(const rg_conv_shape *s, const conv_call *call, const rg_cuda_place *place)
{
    enum { BLOCK = 64 };
    return !call->is_product && !call->is_split && mixes_groups<T>(s, place) &&
           (s->groups * s->in % BLOCK != 0 || s->groups * s->out % BLOCK != 0);
}

/* As many weights, and more than as many channels, as a block has. */
template <rg_dtype T> static void pack_beyond(packing *arena, const rg_conv_shape *s)
{
    enum { BLOCK = 64 };
    const int64_t channels = s->in > s->out ? s->in : s->out;
    packing_take(arena, (size_t)(BLOCK * channels * s->row.window * s->column.window) *
                            sizeof(element<T>));
}

/* ---- bias, z and neuron ---- */

/* Any strides: a thread has an element. */
template <rg_dtype T>
static __global__ void __launch_bounds__(THREADS)
    end_any(const __grid_constant__ rg_conv_args k, const void *sums, pixel size, pixel step,
            int64_t count)
{
    const int64_t stride = (int64_t)gridDim.x * THREADS;
    for (int64_t n = (int64_t)blockIdx.x * THREADS + threadIdx.x; n < count; n += stride) {
        const pixel p = pixel_at(n, size.row, size.column, size.channel);
        finish<T>(k, p.image * step.image + p.row * step.row + p.column * step.column,
                  p.image * k.z_step[0] + p.row * k.z_step[1] + p.column * k.z_step[2], p.channel,
                  step.channel, load<T>(sums, n));
    }
}

/* All is dense, and channels come in whole vectors: a thread has one of them. */
template <rg_dtype T>
static __global__ void __launch_bounds__(THREADS)
    end_dense(const __grid_constant__ rg_conv_args k, const void *sums, uint32_t vectors,
              int64_t count)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= count)
        return;
    const int64_t at = i * VLEN<T>;
    const uint32_t channel = (uint32_t)(i % vectors) * VLEN<T>;
    real<T> value[VLEN<T>], bias[VLEN<T>];
    unpack<T>(load_vector(::at<T>(sums, at)), value);
    if (k.has_b) {
        unpack<T>(load_vector(::at<T>(k.b, channel)), bias);
#pragma unroll
        for (int e = 0; e < VLEN<T>; e++)
            value[e] += bias[e];
    }
    if (k.has_z)
        store_vector(::at<T>(k.z, at), pack<T>(value), false);
    if (k.neuron.kind != RG_NEURON_NONE) {
        const neuron_constants<T> numbers = neuron_constants_in<T>(k.neuron.numbers);
#pragma unroll
        for (int e = 0; e < VLEN<T>; e++)
            value[e] = any_neuron<T>(k.neuron.kind, numbers, value[e]);
    }
    if (k.add) {
        real<T> old[VLEN<T>];
        unpack<T>(load_vector(::at<T>(k.to, at)), old);
#pragma unroll
        for (int e = 0; e < VLEN<T>; e++)
            value[e] += old[e];
    }
    store_vector(::at<T>(k.to, at), pack<T>(value), k.stream);
}

/* Whether a tensor lies as the sums do. */
static bool lies_dense(const pixel *size, const int64_t steps[4])
{
    rg_copy_args tensor = { .rank = 4 };
    const int64_t dims[4] = { size->image, size->row, size->column, size->channel };
    for (int d = 0; d < 4; d++) {
        tensor.dims[d] = dims[d];
        tensor.strides[d] = steps[d];
    }
    return rg_copy_is_dense(&tensor);
}

/* From sums, which may be the result itself. */
template <rg_dtype T>
static void end_sums(const rg_conv_args *k, const void *sums, const pixel *size,
                     const int64_t steps[4], const rg_cuda_place *place)
{
    const int64_t count = size->image * size->row * size->column * size->channel;
    const int64_t vectors = count / VLEN<T>;
    const void *const tensors[] = { k->to, k->b, k->z };
    const bool dense = lies_dense(size, steps) && (!k->has_z || lies_dense(size, k->z_step)) &&
                       (!k->has_b || k->b_step == 1) && size->channel % VLEN<T> == 0 &&
                       unaligned_of(tensors, 3) == 0 && vectors < INT32_MAX;
    if (dense)
        launch(end_dense<T>, ceil_div(vectors, THREADS), THREADS, 0, place, *k, sums,
               (uint32_t)(size->channel / VLEN<T>), vectors);
    else
        launch(end_any<T>, blocks_of(count), THREADS, 0, place, *k, sums, *size,
               pixel{ steps[0], steps[1], steps[2], steps[3] }, count);
}

/* ---- forward and data ---- */

static bool run_library(const conv_call *call, const packing *arena, void *x, void *w, void *y,
                        const void *b, void *workspace)
{
    const rg_cuda_place *place = arena->place;
    if (!arena->run)
        return true;
    if (!call->is_product)
        return rg_cudnn_conv_run(place, &call->conv, x, w, y, workspace, call->workspace);
    switch (call->conv.direction) {
    case RG_CUDNN_FORWARD:
        return rg_cublaslt_run(place, &call->product, 1, x, w, b, y, workspace, call->workspace);
    case RG_CUDNN_DATA:
        return rg_cublaslt_run(place, &call->product, 1, y, w, b, x, workspace, call->workspace);
    default:
        return rg_cublaslt_run(place, &call->product, 1, y, x, b, w, workspace, call->workspace);
    }
}

/* Whether bias, z and neuron are left to us where no product takes care of the bias. */
static bool has_end(const rg_conv_args *k)
{
    return k->has_b || k->has_z || k->neuron.kind != RG_NEURON_NONE;
}

/* Whether results are sums that a library may make: how it adds up many products is its own. */
template <rg_dtype T> static bool library_adds(const rg_conv_shape *s, bool forward)
{
    const int64_t most = sizeof(element<T>) == 2 ? 1 << 20 : 1 << 15;
    const int64_t taps = s->row.window * s->column.window;
    return (forward ? s->in : s->out) <= most / taps;
}

template <rg_dtype T>
static bool find_pass(const rg_conv_args *k, rg_cudnn_direction direction,
                      const rg_cuda_place *place, conv_call *call)
{
    const bool plain = !k->has_z && k->neuron.kind == RG_NEURON_NONE;
    if (!library_adds<T>(&k->shape, direction == RG_CUDNN_FORWARD))
        return false;
    return find_library<T>(&k->shape, direction, plain && k->has_b && !k->add,
                           k->add && !has_end(k), place, call);
}

/* Does it, or finds out what it would take; false: it is not done. */
template <rg_dtype T>
static bool by_library(const rg_conv_args *k, const conv_call *call, uint32_t unaligned,
                       packing *arena)
{
    const rg_conv_shape *s = &k->shape;
    const bool forward = call->conv.direction == RG_CUDNN_FORWARD, ends = has_end(k);
    const bool fused = call->is_product && call->product.bias;
    const bool adds = k->add && !ends && (call->is_product || call->is_folded); /* or end_sums() */
    const bool own = (ends && !fused) || (k->add && !adds);
    const bool beyond = reads_beyond<T>(s, call, arena->place);
    const bool from_aligned = !(unaligned & 1) && !beyond, to_aligned = !(unaligned & 8);
    const packed from = forward ? pack_image<T>(arena, k->from, from_aligned, s, true)
                                : pack_windows<T>(arena, k->from, from_aligned, s, true);
    const packed w = pack_weights<T>(arena, k->w, !(unaligned & 2) && !beyond, s, true);
    if (beyond)
        pack_beyond<T>(arena, s);
    if (call->is_split) { /* which takes care of the rest */
        run_split(k, !forward, (const float *)from.data, (const float *)w.data, arena);
        return true;
    }
    if (call->is_stem) {
        run_stem<T>(k, from.data, w.data, arena);
        return true;
    }
    const int64_t channels = s->groups * (forward ? s->out : s->in);
    const packed b = pack_tensor(arena, k->b, !(unaligned & 4), fused ? 1 : 0, &channels,
                                 &k->b_step, (int32_t)sizeof(element<T>), fused);
    const bool aside = own && k->add; /* old values stand where the result goes */
    packed to = forward ? pack_windows<T>(arena, k->to, to_aligned && !aside, s, adds)
                        : pack_image<T>(arena, k->to, to_aligned && !aside, s, adds);
    void *const workspace = packing_take(arena, call->workspace);
    folded t = { forward ? from.data : to.data, w.data };
    if (call->is_folded)
        t = fold_tensors<T>(arena, s, w.data);
    if (!run_library(call, arena, t.image, t.weights, forward ? to.data : from.data, b.data,
                     workspace))
        return false;
    if (call->is_folded)
        unfold<T>(arena, s, &t, from.data, w.data, to.data, adds);
    else if (arena->run && !call->is_product)
        resum<T>(s, !forward, from.data, w.data, to.data, arena->place);
    const pixel size = { s->images, forward ? s->row.count : s->row.size,
                         forward ? s->column.count : s->column.size, channels };
    if (!own)
        packed_copy(arena, &to, true);
    else if (arena->run)
        end_sums<T>(k, to.data, &size, forward ? s->y : s->x, arena->place);
    return true;
}

template <rg_dtype T>
static bool run_by_library(const rg_conv_args *k, rg_cudnn_direction direction,
                           const rg_cuda_place *place)
{
    const void *const tensors[] = { k->from, k->w, k->b, k->to };
    const uint32_t unaligned = unaligned_of(tensors, 4);
    packing plan = { .place = place };
    conv_call call;
    if (!find_pass<T>(k, direction, place, &call) || !by_library<T>(k, &call, unaligned, &plan) ||
        packing_lacks(&plan))
        return false;
    packing arena = { .place = place, .scratch = (char *)k->scratch, .run = true };
    return by_library<T>(k, &call, unaligned, &arena);
}

template <rg_dtype T>
static size_t pass_scratch(const void *args, rg_cudnn_direction direction, uint32_t unaligned,
                           const rg_cuda_place *place)
{
    packing arena = { .place = place };
    const rg_conv_args *k = (const rg_conv_args *)args;
    conv_call call;
    const bool found = find_pass<T>(k, direction, place, &call);
    return found && by_library<T>(k, &call, unaligned, &arena) ? arena.used : 0;
}

template <rg_dtype T>
static size_t forward_scratch(const void *args, uint32_t unaligned, const rg_cuda_place *place)
{
    return pass_scratch<T>(args, RG_CUDNN_FORWARD, unaligned, place);
}

template <rg_dtype T>
static size_t data_scratch(const void *args, uint32_t unaligned, const rg_cuda_place *place)
{
    return pass_scratch<T>(args, RG_CUDNN_DATA, unaligned, place);
}

/* ---- weights ---- */

/* Weight number `at` of dense ones. */
template <rg_dtype T>
static __device__ __forceinline__ void end_weight(const rg_conv_weights_args &k, int64_t at,
                                                  real<T> sum)
{
    const rg_conv_shape &s = k.shape;
    const int64_t tap = at / s.in, c = at - tap * s.in, line = tap / s.column.window;
    const int64_t channel = line / s.row.window, g = channel / s.out;
    const int64_t to = s.w_first + g * s.w[0] + (channel - g * s.out) * s.w[1] +
                       (line - channel * s.row.window) * s.w[2] +
                       (tap - line * s.column.window) * s.w[3] + c * s.w[4];
    if (k.wide)
        put_weight<T == RG_F64 ? RG_F64 : RG_F32>(k, to, sum);
    else
        put_weight<T>(k, to, sum);
}

/* From dense sums of T to dw, a thread each. */
template <rg_dtype T>
static __global__ void __launch_bounds__(THREADS)
    end_weights(const __grid_constant__ rg_conv_weights_args k, const void *sums, int64_t count)
{
    const int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (at < count)
        end_weight<T>(k, at, load<T>(sums, at));
}

/* Libraries write T, and only products add: what is wide or added otherwise goes through scratch.
 */
template <rg_dtype T>
static bool weights_by_library(const rg_conv_weights_args *k, const conv_call *call,
                               uint32_t unaligned, packing *arena)
{
    const rg_conv_shape *s = &k->shape;
    const int64_t count = s->groups * s->out * s->row.window * s->column.window * s->in;
    const bool beyond = reads_beyond<T>(s, call, arena->place);
    const packed x = pack_image<T>(arena, k->x, !(unaligned & 1) && !beyond, s, true);
    const packed dy = pack_windows<T>(arena, k->dy, !(unaligned & 2) && !beyond, s, true);
    if (beyond)
        pack_beyond<T>(arena, s);
    if (call->is_split) {
        run_split_weights(k, (const float *)x.data, (const float *)dy.data, arena);
        return true;
    }
    if (call->is_stem) {
        run_stem_weights<T>(k, x.data, dy.data, arena);
        return true;
    }
    const bool aside = k->wide || (k->add && !call->is_product);
    packed dw = {};
    if (aside)
        dw.data = packing_take(arena, (size_t)count * sizeof(element<T>));
    else
        dw = pack_weights<T>(arena, k->dw, !(unaligned & 4), &k->shape, k->add);
    void *const workspace = packing_take(arena, call->workspace);
    if (!run_library(call, arena, x.data, dw.data, dy.data, NULL, workspace))
        return false;
    if (arena->run && !call->is_product)
        resum_dw<T>(&k->shape, x.data, dy.data, dw.data, arena->place);
    if (arena->run && aside)
        launch(end_weights<T>, ceil_div(count, THREADS), THREADS, 0, arena->place, *k, dw.data,
               count);
    packed_copy(arena, &dw, true);
    return true;
}

template <rg_dtype T>
static bool find_weights(const rg_conv_weights_args *k, const rg_cuda_place *place, conv_call *call)
{
    return find_library<T>(&k->shape, RG_CUDNN_WEIGHTS, false, k->add && !k->wide, place, call);
}

#include "ops/conv/conv_long.cuh"

/* In one call, or in several. */
template <rg_dtype T>
static bool weights_by_calls(const rg_conv_weights_args *k, uint32_t unaligned, packing *arena)
{
    conv_call call;
    if (library_images<T>(&k->shape, arena->place) < k->shape.images)
        return weights_by_images<T>(k, unaligned, arena);
    return find_weights<T>(k, arena->place, &call) &&
           weights_by_library<T>(k, &call, unaligned, arena);
}

template <rg_dtype T>
static bool run_weights_by_library(const rg_conv_weights_args *k, const rg_cuda_place *place)
{
    const void *const tensors[] = { k->x, k->dy, k->dw };
    const uint32_t unaligned = unaligned_of(tensors, 3);
    packing plan = { .place = place };
    if (!weights_by_calls<T>(k, unaligned, &plan) || packing_lacks(&plan))
        return false;
    packing arena = { .place = place, .scratch = (char *)k->scratch, .run = true };
    return weights_by_calls<T>(k, unaligned, &arena);
}

template <rg_dtype T>
static size_t weights_scratch(const void *args, uint32_t unaligned, const rg_cuda_place *place)
{
    packing arena = { .place = place };
    const rg_conv_weights_args *k = (const rg_conv_weights_args *)args;
    return weights_by_calls<T>(k, unaligned, &arena) ? arena.used : 0;
}

#endif
