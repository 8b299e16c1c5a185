/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* What depthwise kernels share. A thread has V neighbouring channels, 16 bytes where it can. Sums
 * follow one order in all kernels: taps in the order of the source. */
#ifndef RG_OPS_CONV_DEPTHWISE_CUH
#define RG_OPS_CONV_DEPTHWISE_CUH

#include "core/long_sum.h"
#include "ops/conv/cuda/conv_strategy.cuh"

/* ---- args ---- */

typedef struct depthwise_transpose_args {
    const void *w;
    void *transposed; /* real, (taps, channels) */
    rg_conv_shape shape;
} depthwise_transpose_args;

/* As rg_conv_args. */
typedef struct depthwise_args {
    const void *from, *w; /* w: transposed, (taps, channels) */
    const void *b;
    void *to, *z;
    rg_conv_shape shape;
    int64_t channels;
    int64_t b_step;
    int64_t z_step[4];
    rg_conv_neuron neuron;
    bool data; /* backward data */
    bool has_b, has_z, add, stream;
    bool plain; /* no z, nothing to add to, no neuron but relu, b dense */
} depthwise_args;

/* Partial sums of dw: a part is some rows of windows, counted through all images. */
typedef struct depthwise_parts_args {
    const void *x, *dy;
    void *partial; /* real, (parts, taps, channels) */
    rg_conv_shape shape;
    int64_t part, parts;   /* rows of a part; parts */
    int64_t block, blocks; /* channels of a unit; units of a part */
} depthwise_parts_args;

/* Channels of a thread. */
template <rg_dtype T> constexpr int DEPTHWISE_CHANNELS = T == RG_F64 ? 2 : 4;

/* ---- V neighbouring channels ---- */

template <rg_dtype T, int V> struct raw_channels {
    typedef uint2 type; /* 4 of 16 bits */
};
template <rg_dtype T> struct raw_channels<T, 1> {
    typedef element<T> type;
};
template <> struct raw_channels<RG_F32, 4> {
    typedef uint4 type;
};
template <> struct raw_channels<RG_F64, 2> {
    typedef uint4 type;
};
template <rg_dtype T, int V> using raw = typename raw_channels<T, V>::type;

template <rg_dtype T, int V>
static __device__ __forceinline__ raw<T, V> load_raw(const element<T> *from, bool inside)
{
    raw<T, V> x = {};
    if (inside)
        x = *(const raw<T, V> *)from;
    return x;
}

template <rg_dtype T, int V>
static __device__ __forceinline__ void unpack_raw(const raw<T, V> &r, real<T> x[V])
{
    if constexpr (V == 1) {
        x[0] = to_real<T>(r);
    } else if constexpr (sizeof(raw<T, V>) == sizeof(uint4)) {
        unpack<T>(r, x);
    } else {
        const uint32_t words[2] = { r.x, r.y };
#pragma unroll
        for (int e = 0; e < V; e++)
            x[e] = to_real<T>((uint16_t)(words[e / 2] >> e % 2 * 16));
    }
}

template <rg_dtype T, int V>
static __device__ __forceinline__ void load_channels(const void *data, int64_t i, real<T> x[V])
{
    unpack_raw<T, V>(*(const raw<T, V> *)at<T>(data, i), x);
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

/* A ring buffer of a thread in shared memory: AHEAD rows of COUNT vectors are prefetched. The pitch
 * avoids bank conflicts. Single elements go through registers. */
enum { ROW_STAGES = 3 };

template <rg_dtype T, int V, int COUNT> struct rows_ahead {
    enum { AHEAD = V > 1 ? ROW_STAGES - 1 : 1, PITCH = ROW_STAGES * COUNT | 1 };
    raw<T, V> *own;
    raw<T, V> next[V > 1 ? 1 : COUNT];

    static constexpr size_t bytes(size_t threads)
    {
        return V > 1 ? PITCH * threads * sizeof(raw<T, V>) : 0;
    }

    __device__ __forceinline__ rows_ahead(void *shared)
        : own((raw<T, V> *)shared + threadIdx.x * PITCH)
    {
    }

    /* Number q of a row: BYTES, or 0 where it is not inside, and then nothing is read. */
    enum { BYTES = sizeof(raw<T, V>) };
    __device__ __forceinline__ void load(int stage, int q, const element<T> *from, int bytes)
    {
        if constexpr (V == 1)
            next[q] = load_raw<T, V>(from, bytes != 0);
        else
            copy_async<BYTES, true>(own + stage * COUNT + q, from, bytes);
    }

    __device__ __forceinline__ void end_row()
    {
        if constexpr (V > 1)
            end_copies();
    }

    /* Waits until the oldest row has arrived. */
    __device__ __forceinline__ void await()
    {
        if constexpr (V > 1)
            await_steps<AHEAD - 1>();
    }

    __device__ __forceinline__ void take(int stage, int q, real<T> x[V]) const
    {
        if constexpr (V == 1)
            unpack_raw<T, V>(next[q], x);
        else
            unpack_raw<T, V>(own[stage * COUNT + q], x);
    }

    /* Waits for the copies that are under way, which nobody will read. */
    __device__ __forceinline__ void drop()
    {
        if constexpr (V > 1)
            await_steps<0>();
    }
};

/* Columns of a thread: 16-bit channels take half the registers while they are loaded. */
template <rg_dtype T> constexpr int COLUMNS_3X3 = T == RG_F16 || T == RG_BF16 ? 4 : 2;

/* A number that the compiler knows, for loops whose arrays stay in registers. */
template <int N> struct number {
    static constexpr int value = N;
};

/* Sums in progress are a ring: the oldest is number `phase`. */
static __device__ __forceinline__ constexpr int rotated(int phase, int n)
{
    return (phase + n) % 3;
}

/* Whether V channels can be loaded at every pixel of a tensor whose channels are neighbours. */
template <rg_dtype T> static bool depthwise_aligned(const void *data, const int64_t step[4])
{
    enum { V = DEPTHWISE_CHANNELS<T> };
    return (uintptr_t)data % (V * sizeof(element<T>)) == 0 && step[0] % V == 0 &&
           step[1] % V == 0 && step[2] % V == 0;
}

/* Whether V channels can be loaded at every pixel of both sides. */
template <rg_dtype T>
static bool depthwise_wide(const rg_conv_shape *s, const void *image, const void *windows)
{
    return s->x_dense && s->y_dense && s->groups % DEPTHWISE_CHANNELS<T> == 0 &&
           depthwise_aligned<T>(image, s->x) && depthwise_aligned<T>(windows, s->y);
}

template <rg_dtype T> static bool depthwise_wide(const depthwise_args *k)
{
    return depthwise_wide<T>(&k->shape, k->data ? k->to : k->from, k->data ? k->from : k->to);
}

template <rg_dtype T, int V>
static __device__ __forceinline__ void finish_channels(const depthwise_args &k, bool plain,
                                                       int64_t to, int64_t z, int64_t c,
                                                       int64_t step, real<T> sum[V])
{
    if (!plain) {
        for (int e = 0; e < V; e++)
            finish<T>(k, to, z, c + e, step, sum[e]);
        return;
    }
    add_bias_and_relu<T, V>(k, c, 1, sum);
    if (V > 1)
        store_channels<T, V>(k.to, to + c, sum, k.stream);
    else
        store<T>(k.to, to + c * step, sum[0]);
}

/* ---- conv_depthwise_3x3.cu ---- */

/* Whether a window has 3 by 3 adjacent taps and moves by one, and all that a kernel counts fits
 * into 31 bits. */
static inline bool depthwise_is_3x3(const rg_conv_shape *s)
{
    const rg_conv_axis *const axes[2] = { &s->row, &s->column };
    double most[2];
    bool is_3x3 = rg_conv_is_depthwise(s);
    for (int i = 0; i < 2; i++) {
        const rg_conv_axis *a = axes[i];
        is_3x3 &= a->window == 3 && a->stride == 1 && a->dilation == 1;
        most[i] = (double)(a->size > a->count ? a->size : a->count);
    }
    const double lines = (double)s->images * most[0], channels = (double)s->groups;
    return is_3x3 && lines * channels < 0x1p30 && most[1] * channels < 0x1p28 &&
           lines * most[1] * channels < 0x1p36;
}

/* Either direction, where depthwise_is_3x3, by dtype. */
typedef void depthwise_3x3_launch(const depthwise_args *k, const rg_cuda_target *target);
extern "C" depthwise_3x3_launch *const rg_conv_depthwise_3x3[RG_CUDA_DTYPES];

/* Threads that share the columns of a part, and vectors of channels of a block. */
enum { SHARES_3X3 = 7, ACROSS_3X3 = 36 };

/* Whether rg_conv_depthwise_3x3_partials does it. */
static inline bool depthwise_has_3x3_partials(const rg_conv_shape *s)
{
    return depthwise_is_3x3(s) && s->column.count <= SHARES_3X3 * RG_SUM_RUN;
}

/* Partial sums of dw, by dtype; `wide`: see depthwise_wide. */
typedef void depthwise_3x3_sums(const depthwise_parts_args *k, bool wide,
                                const rg_cuda_target *target);
extern "C" depthwise_3x3_sums *const rg_conv_depthwise_3x3_partials[RG_CUDA_DTYPES];

#endif
