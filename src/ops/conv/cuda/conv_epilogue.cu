/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Kernels that go over the sums of a library or over partial sums: see conv_strategy.cuh. */
#include "backend/cuda/long_sum.cuh"
#include "ops/conv/cuda/conv_strategy.cuh"

/* ---- epilogue ---- */

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

template <rg_dtype T>
static void finish_sums(const rg_conv_args *k, bool image_side, const void *sums,
                        const rg_cuda_target *target)
{
    const rg_conv_shape *s = &k->shape;
    const int64_t *steps = image_side ? s->x : s->y;
    const pixel size = { s->images, image_side ? s->row.size : s->row.count,
                         image_side ? s->column.size : s->column.count,
                         s->groups * (image_side ? s->in : s->out) };
    const int64_t dims[4] = { size.image, size.row, size.column, size.channel };
    const int64_t count = size.image * size.row * size.column * size.channel;
    const int64_t vectors = count / VLEN<T>;
    const void *const tensors[] = { k->to, k->b, k->z };
    const bool dense = conv_is_dense(dims, steps) &&
                       (!k->has_z || conv_is_dense(dims, k->z_step)) &&
                       (!k->has_b || k->b_step == 1) && size.channel % VLEN<T> == 0 &&
                       unaligned_of(tensors, 3) == 0 && vectors < INT32_MAX;
    if (dense)
        launch(end_dense<T>, ceil_div(vectors, THREADS), THREADS, 0, target, *k, sums,
               (uint32_t)(size.channel / VLEN<T>), vectors);
    else
        launch(end_any<T>, blocks_of(count, THREADS), THREADS, 0, target, *k, sums, size,
               pixel{ steps[0], steps[1], steps[2], steps[3] }, count);
}

extern "C" conv_finish *const rg_conv_finish_sums[RG_CUDA_DTYPES] = RG_EVERY_DTYPE(finish_sums);

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
static void put_weights(const rg_conv_weights_args *k, const void *sums,
                        const rg_cuda_target *target)
{
    const int64_t count = conv_weight_count(&k->shape);
    launch(end_weights<T>, ceil_div(count, THREADS), THREADS, 0, target, *k, sums, count);
}

extern "C" conv_put_weights *const rg_conv_put_weights[RG_CUDA_DTYPES] =
    RG_EVERY_DTYPE(put_weights);

template <rg_dtype T, int SHARES>
static __global__ void __launch_bounds__(SPLIT_K_THREADS)
    join_partials(const __grid_constant__ rg_conv_weights_args k, const real<T> *partials,
                  int64_t partial_count, int64_t count)
{
    enum { RESULTS = SPLIT_K_THREADS / SHARES };
    const int64_t at = (int64_t)blockIdx.x * RESULTS + threadIdx.x % RESULTS;
    const double sum =
        split_k_sum<SHARES>(partials + at, count, at < count ? partial_count : (int64_t)0);
    if (threadIdx.x < RESULTS && at < count)
        put_dense_weight<T>(k, at, (real<T>)sum);
}

/* Threads share the partial sums of a weight where there are many. */
template <rg_dtype T>
static void join_weights(const rg_conv_weights_args *k, const void *partials, int64_t count,
                         const rg_cuda_target *target)
{
    enum { MIN_SHARED = 32 }; /* partial sums */
    const bool shared = count >= MIN_SHARED;
    const int64_t weights = conv_weight_count(&k->shape);
    launch(shared ? join_partials<T, SPLIT_K_SHARES> : join_partials<T, 1>,
           ceil_div(weights, SPLIT_K_THREADS / (shared ? SPLIT_K_SHARES : 1)), SPLIT_K_THREADS, 0,
           target, *k, (const real<T> *)partials, count, weights);
}

extern "C" conv_join_weights *const rg_conv_join_weights[RG_CUDA_DTYPES] =
    RG_EVERY_DTYPE(join_weights);

/* ---- non-finite sums. A kernel reads the weights, which were complete before the library began,
 * while the last blocks of the library still run, where the device allows that. If a weight is not
 * finite, results at the border that are not finite are summed again ---- */

/* Results with rows and columns; those from first to last - 1 in both do not touch the border. */
struct resum_box {
    int64_t rows, columns, channels;
    int64_t first_row, last_row, first_column, last_column;
};

/* Result number i of those of an image that touch the border: whole rows first, then what is left
 * and right of the others. */
template <typename Index>
static __device__ __forceinline__ void border_at(const resum_box &b, Index i, int64_t &row,
                                                 int64_t &column)
{
    const Index inner = (Index)(b.last_row - b.first_row), columns = (Index)b.columns;
    const Index whole = ((Index)b.rows - inner) * columns;
    if (i < whole) {
        row = i / columns;
        column = i - (Index)row * columns;
        row += row < b.first_row ? 0 : inner;
        return;
    }
    const Index across = columns - (Index)(b.last_column - b.first_column);
    const Index line = (i - whole) / across;
    row = b.first_row + line;
    column = i - whole - line * across;
    column += column < b.first_column ? 0 : b.last_column - b.first_column;
}

/* Operands and results of a library's call; `back`: results are pixels, from windows. */
struct resum_tensors {
    const void *from, *w;
    void *to;
    bool back;
};

/* Where a thread of resum_border looks. */
struct resum_index {
    int64_t image, row, column, channel;
};

/* Channels of a pixel that are not finite, V of them. */
template <rg_dtype T, int V>
static __device__ __noinline__ void resum_channels(const rg_conv_shape &s, const resum_tensors &t,
                                                   int64_t at, const resum_index &p)
{
    for (int e = 0; e < V; e++) {
        if (isfinite(load<T>(t.to, at + e)))
            continue;
        const int64_t c = p.channel + e;
        store<T>(t.to, at + e,
                 t.back ? pixel_sum<T>(s, t.from, t.w, p.image, p.row, p.column, c)
                        : window_sum<T>(s, t.from, t.w, p.image, p.row, p.column, c));
    }
}

/* Not 0 where one of V neighbouring elements is not finite: an exponent of ones and the least of
 * them carry into the bit of the sign. */
template <rg_dtype T, int V> static __device__ __forceinline__ uint32_t not_finite(const void *x)
{
    if constexpr (V == 1) {
        return !isfinite(load<T>(x, 0));
    } else {
        constexpr uint32_t ONES = T == RG_F32    ? 0x7f800000
                                  : T == RG_F64  ? 0x7ff00000
                                  : T == RG_BF16 ? 0x7f807f80
                                                 : 0x7c007c00;
        constexpr uint32_t LEAST = ONES & ~(ONES << 1), SIGN = (ONES << 1) & ~ONES & 0x80008000;
        const uint4 v = load_vector(x);
        const uint32_t words[4] = { v.x, v.y, v.z, v.w };
        uint32_t carries = 0;
#pragma unroll
        for (int i = T == RG_F64; i < 4; i += T == RG_F64 ? 2 : 1)
            carries |= (words[i] & ONES) + LEAST;
        return carries & SIGN;
    }
}

/* A thread has V channels of a pixel, `across` threads a whole one, which are `each` of an image.
 * Index is as wide as the number of threads needs. */
template <rg_dtype T, int V, typename Index>
static __global__ void __launch_bounds__(THREADS)
    resum_border(const __grid_constant__ rg_conv_shape s, const __grid_constant__ resum_box b,
                 const __grid_constant__ resum_tensors t, Index across, Index each, Index count)
{
    const Index i = (Index)blockIdx.x * THREADS + threadIdx.x, pixel = i / across;
    if (i >= count)
        return;
    resum_index p = { pixel / each, 0, 0, (i - pixel * across) * V };
    border_at(b, pixel - (Index)p.image * each, p.row, p.column);
    const int64_t at = ((p.image * b.rows + p.row) * b.columns + p.column) * b.channels + p.channel;
    if (not_finite<T, V>((const element<T> *)t.to + at))
        resum_channels<T, V>(s, t, at, p);
}

/* Results of `width` channels from `channel` on that touch the border, `each` of an image. */
template <rg_dtype T>
static __device__ __noinline__ void resum_results(const rg_conv_shape &s, const resum_box &b,
                                                  const resum_tensors &t, int64_t channel,
                                                  int64_t width, int64_t each)
{
    const int64_t count = s.images * each * width;
    for (int64_t i = threadIdx.x; i < count; i += blockDim.x) {
        const int64_t pixel = i / width;
        resum_index p = { pixel / each, 0, 0, channel + i - pixel * width };
        border_at(b, pixel - p.image * each, p.row, p.column);
        resum_channels<T, 1>(
            s, t, ((p.image * b.rows + p.row) * b.columns + p.column) * b.channels + p.channel, p);
    }
}

/* Looks at weights, which are no part of what the library writes. A block has those that some
 * channels of the result are made of, or a part of them: of windows all weights of one channel,
 * `across` vectors; of the image RESUM_WIDE vectors of channels of group blockIdx.z, in as many
 * `lines` as channels of windows have taps. Blocks of the same channels that find something all
 * write the same. What every call goes through is short: it follows the library's kernel. */
enum { RESUM_THREADS = 96, RESUM_EACH = 4, RESUM_WIDE = 4 };

template <rg_dtype T, int V, bool BACK>
static __global__ void __launch_bounds__(RESUM_THREADS)
    resum_channel(const __grid_constant__ rg_conv_shape s, const __grid_constant__ resum_box b,
                  const __grid_constant__ resum_tensors t, int32_t lines, int32_t across,
                  int64_t each)
{
    const int32_t first = (int32_t)(blockIdx.y * RESUM_EACH * RESUM_THREADS + threadIdx.x);
    const int64_t line = BACK ? (int64_t)blockIdx.z * lines : blockIdx.x; /* the block's first */
    const element<T> *const own = (const element<T> *)t.w + line * across * V;
    const int32_t left = BACK ? (int32_t)blockIdx.x * RESUM_WIDE : 0;
    uint32_t found = 0;
#pragma unroll
    for (int i = 0; i < RESUM_EACH; i++) { /* beyond the end the last one again: no load waits */
        const int32_t n = first + i * RESUM_THREADS, y = BACK ? n / RESUM_WIDE : 0;
        const int32_t x = BACK ? left + n % RESUM_WIDE : n;
        found |= not_finite<T, V>(
            own +
            ((int64_t)(y < lines ? y : lines - 1) * across + (x < across ? x : across - 1)) * V);
    }
    const bool bad = __syncthreads_or(found != 0);
    wait_for_previous_launch();
    const int32_t width = across - left < RESUM_WIDE ? across - left : (int32_t)RESUM_WIDE;
    if (bad)
        resum_results<T>(s, b, t, BACK ? blockIdx.z * s.in + left * V : blockIdx.x,
                         BACK ? width * V : 1, each);
}

/* Those of V that are not finite. */
template <rg_dtype T, int V>
static __device__ __noinline__ void sum_weights(const rg_conv_shape &s, const void *x,
                                                const void *dy, void *dw, int64_t first)
{
    for (int64_t at = first; at < first + V; at++)
        if (!isfinite(load<T>(dw, at)))
            store<T>(dw, at, weight_sum<T>(s, x, dy, at));
}

/* A thread has two vectors of `count`; the last ones may have one twice, and write the same. */
template <rg_dtype T, int V>
static __global__ void __launch_bounds__(THREADS, 4) /* so that all blocks run at once */
    resum_weights(const __grid_constant__ rg_conv_shape s, const void *x, const void *dy, void *dw,
                  int64_t count)
{
    int64_t first[2];
    uint32_t found[2];
    wait_for_previous_launch();
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int64_t n = ((int64_t)blockIdx.x * 2 + i) * THREADS + threadIdx.x;
        first[i] = (n < count ? n : count - 1) * V;
        found[i] = not_finite<T, V>((const element<T> *)dw + first[i]);
    }
    if ((found[0] | found[1]) == 0)
        return;
    sum_weights<T, V>(s, x, dy, dw, first[0]);
    sum_weights<T, V>(s, x, dy, dw, first[1]);
}

/* ---- host side ---- */

/* Windows that lie on the image with all their taps. */
static void inner_windows(const rg_conv_axis *a, int64_t *first, int64_t *last)
{
    const int64_t last_tap = (a->window - 1) * a->dilation,
                  end = a->size - 1 - last_tap + a->before;
    *first = a->before > 0 ? ceil_div(a->before, a->stride) : 0;
    *last = end >= 0 ? end / a->stride + 1 : 0;
    *last = *last < a->count ? *last : a->count;
    *first = *first < *last ? *first : *last;
}

/* Pixels that all taps of some window cover; none where windows leave pixels out, since libraries
 * fill weights up with zeros there. */
static void inner_pixels(const rg_conv_axis *a, int64_t *first, int64_t *last)
{
    const int64_t last_tap = (a->window - 1) * a->dilation;
    *first = last_tap - a->before > 0 ? last_tap - a->before : 0;
    *last = a->count - a->before < a->size ? a->count - a->before : a->size;
    *last = a->stride == 1 && *last > 0 ? *last : 0;
    *first = *first < *last ? *first : *last;
}

/* By weights; false where there are too many for a block. */
template <rg_dtype T>
static bool resum_by_weights(const rg_conv_shape *s, const resum_box *b, const resum_tensors *t,
                             int64_t each, const rg_cuda_target *target)
{
    const bool back = t->back;
    const int64_t taps = s->row.window * s->column.window, own = taps * s->in;
    const bool vectors =
        (back ? s->in : own) % VLEN<T> == 0 && (uintptr_t)t->w % sizeof(uint4) == 0;
    const int64_t v = vectors ? VLEN<T> : 1;
    const int64_t lines = back ? s->out * taps : 1, across = (back ? s->in : own) / v;
    const int64_t looks = back ? lines * RESUM_WIDE : across, groups = back ? s->groups : 1;
    if (lines > 1 << 16 || across > 1 << 20 || groups > UINT16_MAX)
        return false;
    void (*const kernel)(rg_conv_shape, resum_box, resum_tensors, int32_t, int32_t, int64_t) =
        vectors ? (back ? resum_channel<T, VLEN<T>, true> : resum_channel<T, VLEN<T>, false>)
                : (back ? resum_channel<T, 1, true> : resum_channel<T, 1, false>);
    launch_dependent(kernel,
                     dim3((unsigned)(back ? ceil_div(across, RESUM_WIDE) : b->channels),
                          (unsigned)ceil_div(looks, RESUM_EACH * RESUM_THREADS), (unsigned)groups),
                     RESUM_THREADS, target, *s, *b, *t, (int32_t)lines, (int32_t)across, each);
    return true;
}

template <rg_dtype T>
static void resum(const rg_conv_shape *s, bool back, const void *from, const void *w, void *to,
                  const rg_cuda_target *target)
{
    const resum_tensors t = { from, w, to, back };
    resum_box b = {};
    b.rows = back ? s->row.size : s->row.count;
    b.columns = back ? s->column.size : s->column.count;
    b.channels = s->groups * (back ? s->in : s->out);
    const bool mixes =
        mixes_groups(T, s, target); /* an infinite one affects results of all groups */
    if (!mixes) {
        (back ? inner_pixels : inner_windows)(&s->row, &b.first_row, &b.last_row);
        (back ? inner_pixels : inner_windows)(&s->column, &b.first_column, &b.last_column);
    }
    const int64_t each =
        b.rows * b.columns - (b.last_row - b.first_row) * (b.last_column - b.first_column);
    const bool whole = b.channels % VLEN<T> == 0 && (uintptr_t)to % sizeof(uint4) == 0;
    const int64_t across = whole ? b.channels / VLEN<T> : b.channels;
    const int64_t count = s->images * each * across;
    const bool steps = back && (s->row.stride > 1 || s->column.stride > 1); /* see inner_pixels */
    if (count == 0 || (!steps && !mixes && resum_by_weights<T>(s, &b, &t, each, target)))
        return;
    if (whole && count < INT32_MAX / 2)
        launch(resum_border<T, VLEN<T>, int32_t>, ceil_div(count, THREADS), THREADS, 0, target, *s,
               b, t, (int32_t)across, (int32_t)each, (int32_t)count);
    else if (whole)
        launch(resum_border<T, VLEN<T>, int64_t>, ceil_div(count, THREADS), THREADS, 0, target, *s,
               b, t, across, each, count);
    else
        launch(resum_border<T, 1, int64_t>, ceil_div(count, THREADS), THREADS, 0, target, *s, b, t,
               across, each, count);
}

template <rg_dtype T>
static void resum_dw(const rg_conv_shape *s, const void *x, const void *dy, void *dw,
                     const rg_cuda_target *target)
{
    const int64_t count = conv_weight_count(s);
    int64_t rows[2], columns[2];
    inner_windows(&s->row, &rows[0], &rows[1]);
    inner_windows(&s->column, &columns[0], &columns[1]);
    const bool inside =
        rows[1] - rows[0] == s->row.count && columns[1] - columns[0] == s->column.count;
    const bool vectors = count % VLEN<T> == 0 && (uintptr_t)dw % sizeof(uint4) == 0;
    const int64_t looks = count / (vectors ? VLEN<T> : 1);
    if (!inside)
        launch_dependent(vectors ? resum_weights<T, VLEN<T>> : resum_weights<T, 1>,
                         dim3((unsigned)ceil_div(looks, 2 * THREADS)), THREADS, target, *s, x, dy,
                         dw, looks);
}

extern "C" conv_resum *const rg_conv_resum[RG_CUDA_DTYPES] = RG_EVERY_DTYPE(resum);
extern "C" conv_resum_weights *const rg_conv_resum_weights[RG_CUDA_DTYPES] =
    RG_EVERY_DTYPE(resum_dw);
