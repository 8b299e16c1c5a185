/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Softmax with dense labels on a GPU. A row is cut into slots: a vector each, or an element each
 * where the length is not whole vectors. Thread t of those of a row adds up slots t, t + n, … one
 * after the other, in chunks whose sums are added in double; the sums of the threads form a tree.
 */
#include "ops/loss/loss.cuh"

/* Slots that a thread holds in registers; they are also a chunk. */
enum { SLOTS = 8 };

/* By length alone, but for `wide`. */
typedef struct rows_plan {
    int inner, elements; /* threads of a row; elements of a slot */
    bool wide;           /* slots are aligned vectors in all tensors */
} rows_plan;

/* ---- slots ---- */

/* The slot that begins with element `i`; elements that are not there are 0. */
template <rg_dtype T, bool HOLD>
static __device__ __forceinline__ void fetch(const rg_loss_view &v, const void *data,
                                             const rows_plan &plan, int64_t i, real<T> x[VLEN<T>])
{
    const bool wide = HOLD || plan.wide;
    if (wide)
        unpack<T>(load_vector(at<T>(data, i)), x);
#pragma unroll
    for (int e = 0; e < VLEN<T> && !wide; e++)
        x[e] = e < plan.elements ? load<T>(data, view_offset(v, i + e)) : 0;
}

template <rg_dtype T, bool HOLD>
static __device__ __forceinline__ void deposit(const rg_loss_view &v, void *data,
                                               const rows_plan &plan, int64_t i, bool stream,
                                               const real<T> x[VLEN<T>])
{
    const bool wide = HOLD || plan.wide;
    if (wide)
        store_vector(at<T>(data, i), pack<T>(x), stream);
#pragma unroll
    for (int e = 0; e < VLEN<T> && !wide; e++) {
        if (e < plan.elements)
            store<T>(data, view_offset(v, i + e), x[e]);
    }
}

/* Times the weights of the labels, and their dy. */
template <rg_dtype T, bool HOLD>
static __device__ __forceinline__ void apply_weights(const rg_loss_args &k, const rows_plan &plan,
                                                     int64_t i, real<T> x[VLEN<T>])
{
    real<T> more[VLEN<T>];
    if (!HOLD && k.has_weights) {
        fetch<T, HOLD>(k.views[RG_LOSS_W], k.weights, plan, i, more);
#pragma unroll
        for (int e = 0; e < VLEN<T>; e++)
            x[e] *= more[e];
    }
    if (!HOLD && k.dy_of_labels) {
        fetch<T, HOLD>(k.views[RG_LOSS_DY], k.dy, plan, i, more);
#pragma unroll
        for (int e = 0; e < VLEN<T>; e++)
            x[e] *= more[e];
    }
}

/* ---- a thread's share of a row ---- */

/* The slots of a thread, in order. With HOLD they are in registers: aligned vectors, of labels
 * without weights, and what is wanted is sums and derivatives by predictions. */
template <rg_dtype T, bool HOLD> struct row_share {
    int64_t first; /* element of the row */
    int64_t slots;
    int thread;
    uint4 y[HOLD ? SLOTS : 1], t[HOLD ? SLOTS : 1];
};

/* Predictions and labels, smoothed and weighted, of slot `q` of the thread. */
template <rg_dtype T, bool HOLD>
static __device__ __forceinline__ void take(const rg_loss_args &k, const rows_plan &plan,
                                            const row_share<T, HOLD> &s, int q, int64_t i,
                                            real<T> x[VLEN<T>], real<T> a[VLEN<T>])
{
    const real<T> keep = (real<T>)k.numbers.keep, share = (real<T>)k.numbers.share;
    if (HOLD) {
        unpack<T>(s.y[HOLD ? q : 0], x);
        unpack<T>(s.t[HOLD ? q : 0], a);
    } else {
        fetch<T, HOLD>(k.views[RG_LOSS_Y], k.y, plan, i, x);
        fetch<T, HOLD>(k.views[RG_LOSS_T], k.labels, plan, i, a);
    }
#pragma unroll
    for (int e = 0; e < VLEN<T>; e++)
        a[e] = a[e] * keep + share;
    apply_weights<T, HOLD>(k, plan, i, a);
}

/* Calls body(q, i) for every slot of the thread, whose first element is i. */
template <rg_dtype T, bool HOLD, class BODY>
static __device__ __forceinline__ void each_slot(const rows_plan &plan, const row_share<T, HOLD> &s,
                                                 BODY body)
{
#pragma unroll(HOLD ? SLOTS : 1)
    for (int q = 0; q < (HOLD ? SLOTS : INT32_MAX); q++) {
        const int64_t slot = s.thread + (int64_t)q * plan.inner;
        if (slot >= s.slots)
            break;
        body(q, s.first + slot * plan.elements);
    }
}

/* ---- formulas ---- */

/* What a row has become: the largest element, log of the sum of e^(x - max), and in dl/dy the share
 * of e^(x - max). */
template <rg_dtype T> struct soft_row {
    real<T> max, log_sum, share;
};

/* Sums over a row: of e^(x - max), of labels, and of labels times x - max. */
struct soft_sums {
    double powers, labels, products;
};

template <rg_dtype T, bool HOLD>
static __device__ __forceinline__ real<T> largest_of(const rg_loss_args &k, const rows_plan &plan,
                                                     const row_share<T, HOLD> &s)
{
    real<T> max = -INFINITY;
    each_slot<T, HOLD>(plan, s, [&](int q, int64_t i) {
        real<T> x[VLEN<T>];
        if (HOLD)
            unpack<T>(s.y[HOLD ? q : 0], x);
        else
            fetch<T, HOLD>(k.views[RG_LOSS_Y], k.y, plan, i, x);
#pragma unroll
        for (int e = 0; e < VLEN<T>; e++) {
            if (HOLD || e < plan.elements)
                max = join(max, x[e], true);
        }
    });
    return max;
}

template <rg_dtype T, bool HOLD>
static __device__ __forceinline__ soft_sums sums_of(const rg_loss_args &k, const rows_plan &plan,
                                                    const row_share<T, HOLD> &s, real<T> max)
{
    soft_sums total = { 0, 0, 0 };
    real<T> powers = 0, labels = 0, products = 0;
    each_slot<T, HOLD>(plan, s, [&](int q, int64_t i) {
        real<T> x[VLEN<T>], a[VLEN<T>];
        take<T, HOLD>(k, plan, s, q, i, x, a);
#pragma unroll
        for (int e = 0; e < VLEN<T>; e++) {
            if (!HOLD && e >= plan.elements)
                break;
            x[e] -= max;
            powers += exp_of<T>(x[e]);
            labels += a[e];
            products += a[e] * x[e];
        }
        if (!HOLD && q % SLOTS == SLOTS - 1) {
            total = { total.powers + powers, total.labels + labels, total.products + products };
            powers = labels = products = 0;
        }
    });
    return { total.powers + powers, total.labels + labels, total.products + products };
}

/* Losses and derivatives of a slot. */
template <rg_dtype T, bool HOLD>
static __device__ __forceinline__ void store_slot(const rg_loss_args &k, const rows_plan &plan,
                                                  const soft_row<T> &row, real<T> scale, int64_t i,
                                                  real<T> x[VLEN<T>], const real<T> a[VLEN<T>])
{
    enum { V = VLEN<T> };
    const real<T> keep = scale * (real<T>)k.numbers.keep, weight = (real<T>)k.numbers.weight;
    real<T> out[V], old[V];
#pragma unroll
    for (int e = 0; e < V; e++) {
        x[e] -= row.max;
        out[e] = -a[e] * (x[e] - row.log_sum) * weight;
    }
    if (!HOLD && k.losses == RG_LOSS_OF_LABELS)
        deposit<T, HOLD>(k.views[RG_LOSS_L], k.loss, plan, i, false, out);
    if (!k.has_gradient)
        return;
    if (!HOLD && k.is_label_gradient) {
#pragma unroll
        for (int e = 0; e < V; e++)
            out[e] = (row.log_sum - x[e]) * keep;
        apply_weights<T, HOLD>(k, plan, i, out);
    } else {
#pragma unroll
        for (int e = 0; e < V; e++)
            out[e] = (exp_of<T>(x[e]) * row.share - a[e]) * scale;
    }
    if (k.add) {
        fetch<T, HOLD>(k.views[RG_LOSS_D], k.gradient, plan, i, old);
#pragma unroll
        for (int e = 0; e < V; e++)
            out[e] += old[e];
    }
    deposit<T, HOLD>(k.views[RG_LOSS_D], k.gradient, plan, i, k.stream, out);
}

/* ---- kernel ---- */

template <rg_dtype T, bool HOLD>
static __global__ void __launch_bounds__(LOSS_THREADS, HOLD ? 2 : 1)
    by_rows(const __grid_constant__ rg_loss_args k, const rows_plan plan)
{
    __shared__ double partial[3][32];
    __shared__ real<T> largest[32];
    const int64_t row =
        (int64_t)blockIdx.x * (LOSS_THREADS / plan.inner) + (int)threadIdx.x / plan.inner;
    row_share<T, HOLD> s;
    s.first = row * k.length;
    s.thread = (int)threadIdx.x % plan.inner;
    s.slots = row >= k.rows ? 0 : plan.elements > 1 ? k.length / VLEN<T> : k.length;
    if (HOLD)
        each_slot<T, HOLD>(plan, s, [&](int q, int64_t i) {
            s.y[HOLD ? q : 0] = load_vector(at<T>(k.y, i));
            s.t[HOLD ? q : 0] = load_vector(at<T>(k.labels, i));
        });
    soft_row<T> r;
    r.max = reduce(largest_of<T, HOLD>(k, plan, s), plan.inner, largest, true);
    soft_sums sums = sums_of<T, HOLD>(k, plan, s, r.max);
    sums.powers = reduce(sums.powers, plan.inner, partial[0], false);
    sums.labels = reduce(sums.labels, plan.inner, partial[1], false);
    sums.products = reduce(sums.products, plan.inner, partial[2], false);
    r.log_sum = log((real<T>)sums.powers);
    r.share = (real<T>)(sums.labels / sums.powers);
    if (row >= k.rows)
        return;
    if (s.thread == 0 && k.losses == RG_LOSS_SUMS)
        k.partial[row] = (r.log_sum * sums.labels - sums.products) * k.numbers.weight;
    if (!k.has_gradient && k.losses != RG_LOSS_OF_LABELS)
        return;
    const real<T> scale = group_scale<T>(k, k.groups > 1 ? divide(row, k.group / k.length) : 0);
    each_slot<T, HOLD>(plan, s, [&](int q, int64_t i) {
        real<T> x[VLEN<T>], a[VLEN<T>];
        take<T, HOLD>(k, plan, s, q, i, x, a);
        store_slot<T, HOLD>(k, plan, r, scale, i, x, a);
    });
}

/* ---- launch ---- */

/* Whether a tensor is contiguous and begins at 16 bytes. */
static bool is_plain(const rg_loss_args &k, int view, const void *data)
{
    const rg_loss_view &v = k.views[view];
    return (v.rank == 0 || (v.rank == 1 && v.strides[0] == 1)) && (uintptr_t)data % 16 == 0;
}

static bool are_plain(const rg_loss_args &k)
{
    bool plain = is_plain(k, RG_LOSS_Y, k.y) && is_plain(k, RG_LOSS_T, k.labels);
    plain &= !k.has_weights || is_plain(k, RG_LOSS_W, k.weights);
    plain &= !k.dy_of_labels || is_plain(k, RG_LOSS_DY, k.dy);
    plain &= k.losses != RG_LOSS_OF_LABELS || is_plain(k, RG_LOSS_L, k.loss);
    return plain && (!k.has_gradient || is_plain(k, RG_LOSS_D, k.gradient));
}

template <rg_dtype T> static void loss_by_rows(const void *args, const rg_cuda_target *target)
{
    const rg_loss_args k = *(const rg_loss_args *)args;
    rows_plan plan = { 0, k.length % VLEN<T> == 0 ? (int)VLEN<T> : 1, false };
    const int64_t slots = k.length / plan.elements;
    plan.wide = plan.elements > 1 && are_plain(k);
    const int64_t shared_out = plan.elements > 1 ? slots : ceil_div(slots, 4);
    plan.inner = shared_out <= SLOTS * WARP_THREADS ? power_of_two(shared_out, 1, WARP_THREADS)
                                                    : (int)LOSS_THREADS;
    const bool plain =
        !k.has_weights && !k.dy_of_labels && !k.is_label_gradient && k.losses != RG_LOSS_OF_LABELS;
    const bool hold = plain && plan.wide && slots <= SLOTS * plan.inner;
    launch(hold ? by_rows<T, true> : by_rows<T, false>, ceil_div(k.rows, LOSS_THREADS / plan.inner),
           LOSS_THREADS, 0, target, k, plan);
}

/* ---- table ---- */

static const rg_cuda_row kernel_rows[] = {
    RG_CUDA_ROW(RG_LOSS_BY_ROWS, loss_by_rows),
};
RG_CUDA_TABLE(loss_rows, kernel_rows);
