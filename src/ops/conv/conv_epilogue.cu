/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The epilogue of convolutions in a kernel of its own, which reads the sums of a library once. */
#include "ops/conv/conv_epilogue.cuh"

#include "backend/cuda/packing.cuh"

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

template <rg_dtype T>
static void finish_sums(const rg_conv_args *k, const void *sums, const pixel *size,
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
        launch(end_any<T>, blocks_of(count, THREADS), THREADS, 0, place, *k, sums, *size,
               pixel{ steps[0], steps[1], steps[2], steps[3] }, count);
}

extern "C" void rg_conv_finish_sums(rg_dtype dtype, const rg_conv_args *k, bool image_side,
                                    const void *sums, const rg_cuda_place *place)
{
    static void (*const finish_by_dtype[])(const rg_conv_args *, const void *, const pixel *,
                                           const int64_t *, const rg_cuda_place *) =
        CONV_BY_DTYPE(finish_sums);
    const rg_conv_shape *s = &k->shape;
    const pixel size = { s->images, image_side ? s->row.size : s->row.count,
                         image_side ? s->column.size : s->column.count,
                         s->groups * (image_side ? s->in : s->out) };
    finish_by_dtype[dtype](k, sums, &size, image_side ? s->x : s->y, place);
}

/* ---- weights: a thread has one ---- */

template <rg_dtype T>
static __global__ void __launch_bounds__(THREADS)
    end_weights(const __grid_constant__ rg_conv_weights_args k, const void *sums, int64_t count)
{
    const int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (at < count)
        put_dense_weight<T>(k, at, load<T>(sums, at));
}

template <rg_dtype T>
static void put_weights(const rg_conv_weights_args *k, const void *sums, const rg_cuda_place *place)
{
    const rg_conv_shape *s = &k->shape;
    const int64_t count = s->groups * s->out * s->row.window * s->column.window * s->in;
    launch(end_weights<T>, ceil_div(count, THREADS), THREADS, 0, place, *k, sums, count);
}

extern "C" void rg_conv_put_weights(rg_dtype dtype, const rg_conv_weights_args *k, const void *sums,
                                    const rg_cuda_place *place)
{
    static void (*const put_by_dtype[])(const rg_conv_weights_args *, const void *,
                                        const rg_cuda_place *) = CONV_BY_DTYPE(put_weights);
    put_by_dtype[dtype](k, sums, place);
}
