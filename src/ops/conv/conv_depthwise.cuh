/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* What depthwise kernels share. A thread has V neighbouring channels, 16 bytes where it can. */
#ifndef RG_OPS_CONV_DEPTHWISE_CUH
#define RG_OPS_CONV_DEPTHWISE_CUH

#include "ops/conv/conv_epilogue.cuh"

/* Channels of a thread. */
template <rg_dtype T> constexpr int DEPTHWISE_LANES = T == RG_F64 ? 2 : 4;

/* ---- V neighbouring channels ---- */

template <rg_dtype T, int V>
static __device__ __forceinline__ void load_channels(const void *data, int64_t i, real<T> x[V])
{
    if constexpr (V == 1) {
        x[0] = load<T>(data, i);
    } else if constexpr (V == VLEN<T>) {
        unpack<T>(load_vector(at<T>(data, i)), x);
    } else { /* 4 of 16 bits */
        const uint2 both = *(const uint2 *)at<T>(data, i);
        x[0] = to_real<T>((uint16_t)both.x);
        x[1] = to_real<T>((uint16_t)(both.x >> 16));
        x[2] = to_real<T>((uint16_t)both.y);
        x[3] = to_real<T>((uint16_t)(both.y >> 16));
    }
}

template <rg_dtype T, int V>
static __device__ __forceinline__ void store_channels(void *data, int64_t i, const real<T> x[V],
                                                      bool stream)
{
    if constexpr (V == 1) {
        store<T>(data, i, x[0]);
    } else if constexpr (V == VLEN<T>) {
        store_vector(at<T>(data, i), pack<T>(x), stream);
    } else {
        const uint2 both = make_uint2(pack_two<T>(x[0], x[1]), pack_two<T>(x[2], x[3]));
        if (stream)
            __stcs((uint2 *)at<T>(data, i), both);
        else
            *(uint2 *)at<T>(data, i) = both;
    }
}

/* Whether V channels can be loaded at every pixel of a tensor whose channels are neighbours. */
template <rg_dtype T> static bool depthwise_aligned(const void *data, const int64_t step[4])
{
    enum { V = DEPTHWISE_LANES<T> };
    return (uintptr_t)data % (V * sizeof(element<T>)) == 0 && step[0] % V == 0 &&
           step[1] % V == 0 && step[2] % V == 0;
}

/* Whether V channels can be loaded at every pixel of both sides. */
template <rg_dtype T>
static bool depthwise_wide(const rg_conv_shape *s, const void *image, const void *windows)
{
    return s->x_dense && s->y_dense && s->groups % DEPTHWISE_LANES<T> == 0 &&
           depthwise_aligned<T>(image, s->x) && depthwise_aligned<T>(windows, s->y);
}

template <rg_dtype T> static bool depthwise_wide(const rg_conv_depthwise_args *k)
{
    return depthwise_wide<T>(&k->shape, k->data ? k->to : k->from, k->data ? k->from : k->to);
}

template <rg_dtype T, int V>
static __device__ __forceinline__ void finish_channels(const rg_conv_depthwise_args &k, bool plain,
                                                       int64_t to, int64_t z, int64_t c,
                                                       int64_t step, real<T> sum[V])
{
    if (!plain) {
        for (int e = 0; e < V; e++)
            finish<T>(k, to, z, c + e, step, sum[e]);
        return;
    }
#pragma unroll
    for (int e = 0; e < V; e++) {
        if (k.has_b)
            sum[e] += load<T>(k.b, c + e);
        if (k.neuron.kind == RG_NEURON_RELU)
            sum[e] = neuron_relu<T>(neuron_constants_in<T>(k.neuron.numbers), sum[e], sum[e]);
    }
    if (V > 1)
        store_channels<T, V>(k.to, to + c, sum, k.stream);
    else
        store<T>(k.to, to + c * step, sum[0]);
}

/* ---- conv_depthwise_3x3_parts.cu ---- */

extern "C" bool rg_conv_depthwise_3x3_accepts(const rg_conv_depthwise_parts_args *k);

/* dw of parts; `wide`: see depthwise_wide. */
extern "C" void rg_conv_depthwise_3x3_parts(rg_dtype dtype, const rg_conv_depthwise_parts_args *k,
                                            bool wide, const rg_cuda_place *place);

#endif
