/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Neurons on a GPU. */
#include "backend/cuda/sweep.cuh"
#include "ops/neuron/neuron_formulas.cuh"

/* ---- forward: y from x ---- */

template <rg_dtype T, formula_of<T, neuron_constants<T>> FORMULA>
static void forward(const void *args, const rg_cuda_place *place)
{
    const rg_neuron_args *k = (const rg_neuron_args *)args;
    const neuron_constants<T> c = neuron_constants_of<T>(&k->numbers);
    const void *const data[] = { k->x, k->y };
    launch_sweep<T, neuron_constants<T>, FORMULA, 2>(c, &k->sweep, data, false, k->stream, place);
}

#define FORWARD(kind)                                                                              \
    template <rg_dtype T> static void kind##_forward(const void *args, const rg_cuda_place *place) \
    {                                                                                              \
        forward<T, neuron_##kind<T>>(args, place);                                                 \
    }

FORWARD(relu)
FORWARD(linear)
FORWARD(sigmoid)
FORWARD(hard_sigmoid)
FORWARD(tanh)
FORWARD(absolute)
FORWARD(softplus)
FORWARD(softsign)
FORWARD(elu)
FORWARD(relun)
FORWARD(power)
FORWARD(exponential)
FORWARD(logarithm)
FORWARD(gelu)
FORWARD(gelu_tanh)
FORWARD(swish)

/* ---- gradient: dx from dy and x, or from dy and y ---- */

template <rg_dtype T, formula_of<T, neuron_constants<T>> FORMULA>
static void gradient(const void *args, const rg_cuda_place *place)
{
    const rg_neuron_gradient_args *k = (const rg_neuron_gradient_args *)args;
    const neuron_constants<T> c = neuron_constants_of<T>(&k->numbers);
    const void *const data[] = { k->dy, k->from, k->dx };
    launch_sweep<T, neuron_constants<T>, FORMULA, 3>(c, &k->sweep, data, k->add, k->stream, place);
}

#define GRADIENT(kind, suffix)                                                        \
    template <rg_dtype T>                                                             \
    static void kind##_gradient##suffix(const void *args, const rg_cuda_place *place) \
    {                                                                                 \
        gradient<T, neuron_##kind##_slope##suffix<T>>(args, place);                   \
    }

GRADIENT(relu, )
GRADIENT(linear, )
GRADIENT(sigmoid, )
GRADIENT(hard_sigmoid, )
GRADIENT(tanh, )
GRADIENT(absolute, )
GRADIENT(softplus, )
GRADIENT(softsign, )
GRADIENT(elu, )
GRADIENT(relun, )
GRADIENT(power, )
GRADIENT(exponential, )
GRADIENT(logarithm, )
GRADIENT(gelu, )
GRADIENT(gelu_tanh, )
GRADIENT(swish, )
GRADIENT(sigmoid, _y)
GRADIENT(tanh, _y)
GRADIENT(softplus, _y)
GRADIENT(softsign, _y)
GRADIENT(elu, _y)
GRADIENT(exponential, _y)

/* ---- prelu ---- */

enum { PRELU_THREADS = 256, PRELU_PIECE = 64 };

/* Contiguous, aligned tensors whose channels are whole vectors: a vector a thread. */
template <rg_dtype T>
static __global__ void __launch_bounds__(PRELU_THREADS)
    prelu_vectors(const char *x, const char *slope, char *y, int64_t count, int64_t channels,
                  bool stream)
{
    enum { V = VLEN<T> };
    const int64_t v = (int64_t)blockIdx.x * PRELU_THREADS + threadIdx.x;
    if (v >= count / V)
        return;
    const int64_t c = v * V % channels;
    real<T> in[V], s[V];
    unpack<T>(load_vector(x + 16 * v), in);
    unpack<T>(load_vector(at<T>(slope, c)), s);
#pragma unroll
    for (int e = 0; e < V; e++)
        in[e] = neuron_prelu(in[e], s[e]);
    store_vector(y + 16 * v, pack<T>(in), stream);
}

/* Any tensors. */
template <rg_dtype T>
static __global__ void __launch_bounds__(PRELU_THREADS)
    prelu_elements(const __grid_constant__ rg_prelu_args k)
{
    const rg_prelu_shape &s = k.shape;
    const int64_t count = s.rows.count * s.channels, step = (int64_t)gridDim.x * PRELU_THREADS;
    for (int64_t i = (int64_t)blockIdx.x * PRELU_THREADS + threadIdx.x; i < count; i += step) {
        const int64_t row = i / s.channels, c = i - row * s.channels;
        const real<T> x = load<T>(k.x, walk_offset(s.rows, 0, row) + c * s.step[0]);
        const real<T> slope = load<T>(k.slope, c * s.slope_step);
        store<T>(k.y, walk_offset(s.rows, 1, row) + c * s.step[1], neuron_prelu(x, slope));
    }
}

template <rg_dtype T> static void prelu_forward(const void *args, const rg_cuda_place *place)
{
    const int64_t most_blocks = 1 << 24;
    const rg_prelu_args *k = (const rg_prelu_args *)args;
    const rg_prelu_shape *s = &k->shape;
    const int64_t count = s->rows.count * s->channels;
    const uintptr_t addresses = (uintptr_t)k->x | (uintptr_t)k->slope | (uintptr_t)k->y;
    if (s->joined && s->slope_step == 1 && s->channels % VLEN<T> == 0 && addresses % 16 == 0) {
        launch(prelu_vectors<T>, ceil_div(count, PRELU_THREADS * VLEN<T>), PRELU_THREADS, 0, place,
               (const char *)k->x, (const char *)k->slope, (char *)k->y, count, s->channels,
               s->stream);
        return;
    }
    const int64_t blocks = ceil_div(count, PRELU_THREADS);
    launch(prelu_elements<T>, blocks < most_blocks ? blocks : most_blocks, PRELU_THREADS, 0, place,
           *k);
}

/* A block takes `across` channels of a part; thread (row, channel) goes over every `down`th row,
 * so neighbours read neighbours. Sums of a thread are made in pieces, then a tree joins those of
 * a channel: an order that follows from the shape. */
template <rg_dtype T>
static __global__ void __launch_bounds__(PRELU_THREADS)
    prelu_part(const __grid_constant__ rg_prelu_gradient_args k, int across, int64_t chunks)
{
    __shared__ real<T> partial[PRELU_THREADS];
    const rg_prelu_shape &s = k.shape;
    const int64_t part = blockIdx.x / chunks, chunk = blockIdx.x - part * chunks;
    const int64_t c = chunk * across + (threadIdx.x & (across - 1));
    const int down = PRELU_THREADS / across;
    const int64_t last = (part + 1) * s.part < s.rows.count ? (part + 1) * s.part : s.rows.count;
    const bool inside = c < s.channels;
    const real<T> slope = inside ? load<T>(k.slope, c * s.slope_step) : 0;
    real<T> sum = 0, piece = 0;
    int filled = 0;
    for (int64_t row = part * s.part + threadIdx.x / across; inside && row < last; row += down) {
        const real<T> dy = load<T>(k.dy, walk_offset(s.rows, 0, row) + c * s.step[0]);
        const real<T> x = load<T>(k.x, walk_offset(s.rows, 1, row) + c * s.step[1]);
        if (k.wants_dx) {
            const int64_t to = walk_offset(s.rows, 2, row) + c * s.step[2];
            const real<T> dx = neuron_prelu_slope(dy, x, slope);
            store<T>(k.dx, to, k.add ? load<T>(k.dx, to) + dx : dx);
        }
        piece += neuron_prelu_share(dy, x);
        if (++filled == PRELU_PIECE) {
            sum += piece;
            piece = 0;
            filled = 0;
        }
    }
    if (!k.wants_sums)
        return; /* the whole block */
    real<T> value[1] = { sum + piece };
    reduce_down<1>(value, across, partial, false);
    if (inside && threadIdx.x < across)
        ((real<T> *)k.sums)[part * s.channels + c] = value[0];
}

template <rg_dtype T> static void prelu_gradient(const void *args, const rg_cuda_place *place)
{
    const rg_prelu_gradient_args *k = (const rg_prelu_gradient_args *)args;
    const int across = power_of_two(k->shape.channels, 1, PRELU_THREADS);
    const int64_t chunks = ceil_div(k->shape.channels, across);
    launch(prelu_part<T>, k->shape.parts * chunks, PRELU_THREADS, 0, place, *k, across, chunks);
}

/* A warp a channel: every lane takes every 32nd part, then a tree. */
template <rg_dtype T>
static __global__ void __launch_bounds__(PRELU_THREADS)
    prelu_join_channels(const rg_prelu_join_args k)
{
    const int lane = (int)threadIdx.x % 32;
    const int64_t c = (int64_t)blockIdx.x * (PRELU_THREADS / 32) + threadIdx.x / 32;
    if (c >= k.channels)
        return; /* the whole warp */
    real<T> sum = 0;
    for (int64_t part = lane; part < k.parts; part += 32)
        sum += ((const real<T> *)k.sums)[part * k.channels + c];
    sum = reduce(sum, 32, (real<T> *)nullptr, false);
    if (lane == 0) {
        const int64_t to = c * k.step;
        store<T>(k.dslope, to, k.add ? load<T>(k.dslope, to) + sum : sum);
    }
}

template <rg_dtype T> static void prelu_join(const void *args, const rg_cuda_place *place)
{
    const rg_prelu_join_args *k = (const rg_prelu_join_args *)args;
    launch(prelu_join_channels<T>, ceil_div(k->channels, PRELU_THREADS / 32), PRELU_THREADS, 0,
           place, *k);
}

/* ---- table, in the order of the kernels' ids ---- */

/* No kernel: y does not tell the slope. */
#define NO_ROW \
    {          \
    }

RG_CUDA_TABLE(neuron, RG_NEURON_KERNELS) = {
    RG_CUDA_ROW(relu_forward), /* none: a = 1 */
    RG_CUDA_ROW(relu_forward),
    RG_CUDA_ROW(linear_forward),
    RG_CUDA_ROW(sigmoid_forward),
    RG_CUDA_ROW(hard_sigmoid_forward),
    RG_CUDA_ROW(tanh_forward),
    RG_CUDA_ROW(absolute_forward),
    RG_CUDA_ROW(softplus_forward),
    RG_CUDA_ROW(softsign_forward),
    RG_CUDA_ROW(elu_forward),
    RG_CUDA_ROW(prelu_forward),
    RG_CUDA_ROW(relun_forward),
    RG_CUDA_ROW(power_forward),
    RG_CUDA_ROW(exponential_forward),
    RG_CUDA_ROW(logarithm_forward),
    RG_CUDA_ROW(gelu_forward),
    RG_CUDA_ROW(gelu_tanh_forward),
    RG_CUDA_ROW(swish_forward),

    RG_CUDA_ROW(linear_gradient), /* none: a = 1 */
    RG_CUDA_ROW(relu_gradient),
    RG_CUDA_ROW(linear_gradient),
    RG_CUDA_ROW(sigmoid_gradient),
    RG_CUDA_ROW(hard_sigmoid_gradient),
    RG_CUDA_ROW(tanh_gradient),
    RG_CUDA_ROW(absolute_gradient),
    RG_CUDA_ROW(softplus_gradient),
    RG_CUDA_ROW(softsign_gradient),
    RG_CUDA_ROW(elu_gradient),
    RG_CUDA_ROW(prelu_gradient),
    RG_CUDA_ROW(relun_gradient),
    RG_CUDA_ROW(power_gradient),
    RG_CUDA_ROW(exponential_gradient),
    RG_CUDA_ROW(logarithm_gradient),
    RG_CUDA_ROW(gelu_gradient),
    RG_CUDA_ROW(gelu_tanh_gradient),
    RG_CUDA_ROW(swish_gradient),

    RG_CUDA_ROW(linear_gradient),        /* none, from y */
    RG_CUDA_ROW(relu_gradient),          /* relu: the sign is that of x */
    RG_CUDA_ROW(linear_gradient),        /* linear */
    RG_CUDA_ROW(sigmoid_gradient_y),     /* sigmoid */
    NO_ROW,                              /* hard_sigmoid */
    RG_CUDA_ROW(tanh_gradient_y),        /* tanh */
    NO_ROW,                              /* absolute */
    RG_CUDA_ROW(softplus_gradient_y),    /* softplus */
    RG_CUDA_ROW(softsign_gradient_y),    /* softsign */
    RG_CUDA_ROW(elu_gradient_y),         /* elu */
    NO_ROW,                              /* prelu */
    RG_CUDA_ROW(relun_gradient),         /* relun: as relu */
    NO_ROW,                              /* power */
    RG_CUDA_ROW(exponential_gradient_y), /* exponential */
    NO_ROW,                              /* logarithm */
    NO_ROW,                              /* gelu */
    NO_ROW,                              /* gelu_tanh */
    NO_ROW,                              /* swish */

    RG_CUDA_ROW(prelu_join),
};
