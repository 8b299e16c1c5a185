/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Losses on a GPU. Softmax with class labels goes through memory as softmax does: once, where a row
 * fits into shared memory.
 *
 * The order of every sum is fixed by the shape: which elements a thread has follows from the number
 * of elements alone, and sums of threads form a tree. */
#include "ops/loss/loss_formulas.cuh"
#include "ops/softmax/softmax_slots.cuh"

enum { LOSS_THREADS = 256 };

/* In the fault word; below it stands how many blocks have left their sum. */
static const uint32_t FAULT = 1u << 31;

/* ---- elements of a tensor by their number ---- */

static __device__ __noinline__ int64_t far_place(const rg_loss_view &v, int64_t i)
{
    int64_t offset = 0;
    for (int32_t d = v.rank - 1; d > 0; d--) {
        const int64_t next = i / v.dims[d];
        offset += (i - next * v.dims[d]) * v.strides[d];
        i = next;
    }
    return offset + i * v.strides[0];
}

static __device__ __forceinline__ int64_t place_of(const rg_loss_view &v, int64_t i)
{
    return v.rank <= 1 ? i * v.strides[0] : far_place(v, i);
}

/* Elements number i to i + n - 1 as a vector; `wide`: they can be loaded as one. */
template <rg_dtype T>
static __device__ __forceinline__ void fetch(const rg_loss_view &v, const void *data, int64_t i,
                                             int n, bool wide, real<T> x[VLEN<T>])
{
    if (wide && n >= VLEN<T>) {
        unpack<T>(load_vector(at<T>(data, i)), x);
        return;
    }
#pragma unroll
    for (int e = 0; e < VLEN<T>; e++)
        x[e] = e < n ? load<T>(data, place_of(v, i + e)) : 0;
}

template <rg_dtype T>
static __device__ __forceinline__ void deposit(const rg_loss_view &v, void *data, int64_t i, int n,
                                               bool wide, bool stream, const real<T> x[VLEN<T>])
{
    if (wide && n >= VLEN<T>) {
        store_vector(at<T>(data, i), pack<T>(x), stream);
        return;
    }
#pragma unroll
    for (int e = 0; e < VLEN<T>; e++) {
        if (e < n)
            store<T>(data, place_of(v, i + e), x[e]);
    }
}

static __device__ __forceinline__ int64_t divide(int64_t a, int64_t b)
{
    return a <= INT32_MAX && b <= INT32_MAX ? (uint32_t)a / (uint32_t)b : a / b;
}

/* What derivatives in a group are multiplied by. */
template <rg_dtype T>
static __device__ __forceinline__ real<T> group_scale(const rg_loss_args &k, int64_t group)
{
    double scale = k.numbers.scale;
    if (k.has_dy && !k.dy_of_labels)
        scale *= load<T>(k.dy, place_of(k.views[RG_LOSS_DY], group));
    if (k.has_counts)
        scale = k.counts[group] > 0 ? scale / k.counts[group] : 0;
    return (real<T>)scale;
}

/* A part of a group, which is a block's. */
typedef struct part_place {
    int64_t group, first;
    int count;
} part_place;

static __device__ __forceinline__ part_place find_part(const rg_loss_args &k)
{
    part_place p;
    const int64_t unit = blockIdx.x;
    p.group = divide(unit, k.parts);
    const int64_t begin = (unit - p.group * k.parts) * RG_LOSS_PART;
    p.first = p.group * k.group + begin;
    p.count = (int)min((int64_t)RG_LOSS_PART, k.group - begin);
    return p;
}

/* ---- element by element ---- */

template <rg_dtype T>
static __global__ void __launch_bounds__(LOSS_THREADS)
    by_elements(const __grid_constant__ rg_loss_args k, const bool wide)
{
    enum { V = VLEN<T>, VECTORS = RG_LOSS_PART / (LOSS_THREADS * V) };
    __shared__ double partial[32];
    const part_place p = find_part(k);
    const loss_numbers<T> numbers = numbers_of<T>(k.numbers);
    const real<T> scale = group_scale<T>(k, p.group), weight = (real<T>)k.numbers.weight;
    real<T> y[VECTORS][V], t[VECTORS][V], sum = 0;
#pragma unroll
    for (int q = 0; q < VECTORS; q++) {
        const int j = ((int)threadIdx.x + q * LOSS_THREADS) * V;
        fetch<T>(k.views[RG_LOSS_Y], k.y, p.first + j, p.count - j, wide, y[q]);
        fetch<T>(k.views[RG_LOSS_T], k.labels, p.first + j, p.count - j, wide, t[q]);
    }
#pragma unroll
    for (int q = 0; q < VECTORS; q++) {
        const int j = ((int)threadIdx.x + q * LOSS_THREADS) * V, n = p.count - j;
        const int64_t i = p.first + j;
        real<T> out[V], w[V], more[V];
        if (n <= 0)
            break;
        if (k.has_weights)
            fetch<T>(k.views[RG_LOSS_W], k.weights, i, n, wide, w);
        if (k.losses != RG_LOSS_NO_LOSS) {
            map_elements<T, RG_LOSS_VALUE>(k.numbers.kind, numbers, y[q], t[q], out);
#pragma unroll
            for (int e = 0; e < V; e++) {
                out[e] = k.has_weights ? out[e] * weight * w[e] : out[e] * weight;
                sum += e < n ? out[e] : 0;
            }
            if (k.losses == RG_LOSS_OF_LABELS)
                deposit<T>(k.views[RG_LOSS_L], k.loss, i, n, wide, false, out);
        }
        if (!k.has_gradient)
            continue;
        if (k.is_label_gradient)
            map_elements<T, RG_LOSS_LABEL_SLOPE>(k.numbers.kind, numbers, y[q], t[q], out);
        else
            map_elements<T, RG_LOSS_SLOPE>(k.numbers.kind, numbers, y[q], t[q], out);
#pragma unroll
        for (int e = 0; e < V; e++)
            out[e] = k.has_weights ? out[e] * scale * w[e] : out[e] * scale;
        if (k.dy_of_labels) {
            fetch<T>(k.views[RG_LOSS_DY], k.dy, i, n, wide, more);
#pragma unroll
            for (int e = 0; e < V; e++)
                out[e] *= more[e];
        }
        if (k.add) {
            fetch<T>(k.views[RG_LOSS_D], k.gradient, i, n, wide, more);
#pragma unroll
            for (int e = 0; e < V; e++)
                out[e] += more[e];
        }
        deposit<T>(k.views[RG_LOSS_D], k.gradient, i, n, wide, k.stream, out);
    }
    if (k.losses != RG_LOSS_SUMS)
        return;
    const double total = reduce((double)sum, LOSS_THREADS, partial, false);
    if (threadIdx.x == 0)
        k.partial[blockIdx.x] = total;
}

/* Whether a tensor is contiguous and every part of it begins at 16 bytes. */
template <rg_dtype T> static bool is_plain(const rg_loss_args *k, int view, const void *data)
{
    const rg_loss_view *v = &k->views[view];
    return (v->rank == 0 || (v->rank == 1 && v->strides[0] == 1)) && (uintptr_t)data % 16 == 0;
}

template <rg_dtype T> static void loss_by_elements(const void *args, const rg_cuda_place *place)
{
    const rg_loss_args k = *(const rg_loss_args *)args;
    bool wide = k.groups == 1 || k.group % VLEN<T> == 0;
    wide &= is_plain<T>(&k, RG_LOSS_Y, k.y) && is_plain<T>(&k, RG_LOSS_T, k.labels);
    wide &= !k.has_weights || is_plain<T>(&k, RG_LOSS_W, k.weights);
    wide &= !k.dy_of_labels || is_plain<T>(&k, RG_LOSS_DY, k.dy);
    wide &= k.losses != RG_LOSS_OF_LABELS || is_plain<T>(&k, RG_LOSS_L, k.loss);
    wide &= !k.has_gradient || is_plain<T>(&k, RG_LOSS_D, k.gradient);
    launch(by_elements<T>, k.groups * k.parts, LOSS_THREADS, 0, place, k, wide);
}

/* ---- softmax with dense labels ---- */

/* A label, smoothed, times its weight and dy. */
template <rg_dtype T>
static __device__ __forceinline__ real<T> weighted_label(const rg_loss_args &k, int64_t i)
{
    real<T> t = load<T>(k.labels, place_of(k.views[RG_LOSS_T], i));
    t = t * (real<T>)k.numbers.keep + (real<T>)k.numbers.share;
    if (k.has_weights)
        t *= load<T>(k.weights, place_of(k.views[RG_LOSS_W], i));
    if (k.dy_of_labels)
        t *= load<T>(k.dy, place_of(k.views[RG_LOSS_DY], i));
    return t;
}

/* What a row has become: the largest element, log of the sum of e^(x - max), and in dl/dy the share
 * of e^(x - max). */
template <rg_dtype T> struct soft_row {
    real<T> max, log_sum, share;
};

template <rg_dtype T>
static __device__ __forceinline__ void soft_element(const rg_loss_args &k, const soft_row<T> &row,
                                                    real<T> scale, int64_t i)
{
    const real<T> x = load<T>(k.y, place_of(k.views[RG_LOSS_Y], i)) - row.max;
    const real<T> a = weighted_label<T>(k, i);
    if (k.losses == RG_LOSS_OF_LABELS)
        store<T>(k.loss, place_of(k.views[RG_LOSS_L], i),
                 -a * (x - row.log_sum) * (real<T>)k.numbers.weight);
    if (!k.has_gradient)
        return;
    real<T> d;
    if (k.is_label_gradient) {
        d = (row.log_sum - x) * (scale * (real<T>)k.numbers.keep);
        if (k.has_weights)
            d *= load<T>(k.weights, place_of(k.views[RG_LOSS_W], i));
        if (k.dy_of_labels)
            d *= load<T>(k.dy, place_of(k.views[RG_LOSS_DY], i));
    } else {
        d = (exp_of<T>(x) * row.share - a) * scale;
    }
    const int64_t to = place_of(k.views[RG_LOSS_D], i);
    store<T>(k.gradient, to, k.add ? load<T>(k.gradient, to) + d : d);
}

/* `inner` threads to a row. */
template <rg_dtype T>
static __global__ void __launch_bounds__(LOSS_THREADS)
    by_rows(const __grid_constant__ rg_loss_args k, const int inner)
{
    __shared__ double partial[4][32];
    const int lane = (int)threadIdx.x % inner;
    const int64_t row = (int64_t)blockIdx.x * (LOSS_THREADS / inner) + (int)threadIdx.x / inner;
    const int64_t first = row * k.length, length = row < k.rows ? k.length : 0;
    double max = -INFINITY, sum = 0, labels = 0, products = 0;
    for (int64_t j = lane; j < length; j += inner)
        max = join(max, (double)load<T>(k.y, place_of(k.views[RG_LOSS_Y], first + j)), true);
    max = reduce(max, inner, partial[0], true);
    soft_row<T> r;
    r.max = (real<T>)max;
    for (int64_t j = lane; j < length; j += inner) {
        const real<T> x = load<T>(k.y, place_of(k.views[RG_LOSS_Y], first + j)) - r.max;
        const real<T> a = weighted_label<T>(k, first + j);
        sum += exp_of<T>(x);
        labels += a;
        products += a * x;
    }
    sum = reduce(sum, inner, partial[1], false);
    labels = reduce(labels, inner, partial[2], false);
    products = reduce(products, inner, partial[3], false);
    r.log_sum = log((real<T>)sum);
    r.share = (real<T>)(labels / sum);
    if (row >= k.rows)
        return;
    if (lane == 0 && k.losses == RG_LOSS_SUMS)
        k.partial[row] = (r.log_sum * labels - products) * k.numbers.weight;
    if (!k.has_gradient && k.losses != RG_LOSS_OF_LABELS)
        return;
    const real<T> scale = group_scale<T>(k, divide(row, k.group / k.length));
    for (int64_t j = lane; j < length; j += inner)
        soft_element<T>(k, r, scale, first + j);
}

template <rg_dtype T> static void loss_by_rows(const void *args, const rg_cuda_place *place)
{
    const rg_loss_args k = *(const rg_loss_args *)args;
    const int inner = k.length <= 1024 ? 32 : LOSS_THREADS;
    launch(by_rows<T>, ceil_div(k.rows, LOSS_THREADS / inner), LOSS_THREADS, 0, place, k, inner);
}

/* ---- class labels ---- */

static __device__ __forceinline__ int64_t label_at(const rg_loss_args &k, int64_t row)
{
    const int64_t i = place_of(k.views[RG_LOSS_T], row);
    return k.wide_labels ? ((const int64_t *)k.labels)[i] : ((const int32_t *)k.labels)[i];
}

/* What becomes of a row: factors of its loss and of derivatives. */
template <rg_dtype T> struct class_use {
    int64_t label; /* checked; -1: the row does not count */
    real<T> loss, slope;
};

template <rg_dtype T>
static __device__ __forceinline__ class_use<T> use_of(const rg_loss_args &k, int64_t row)
{
    class_use<T> u = { -1, 0, 0 };
    if (row >= k.rows)
        return u;
    const int64_t label = label_at(k, row);
    if (k.has_ignored && label == k.ignored)
        return u;
    if (label < 0 || label >= k.length) {
        atomicOr(k.fault, FAULT);
        return u;
    }
    real<T> w = 1;
    if (k.has_weights)
        w = load<T>(k.weights, place_of(k.views[RG_LOSS_W], row));
    u.label = label;
    u.loss = (real<T>)k.numbers.weight * w;
    u.slope = group_scale<T>(k, k.group < k.rows ? divide(row, k.group) : 0) * w;
    if (k.dy_of_labels)
        u.slope *= load<T>(k.dy, place_of(k.views[RG_LOSS_DY], row));
    return u;
}

template <rg_dtype T>
static __device__ __forceinline__ void put_loss(const rg_loss_args &k, int64_t row, double loss)
{
    if (k.losses == RG_LOSS_SUMS)
        k.partial[row] = loss;
    else if (k.losses == RG_LOSS_OF_LABELS)
        store<T>(k.loss, place_of(k.views[RG_LOSS_L], row), (real<T>)loss);
}

/* ---- softmax with class labels ---- */

/* Bytes of shared memory: for three sums, and for slots that are held. */
enum { CLASS_SUMS = 96 * sizeof(double), HELD_SLOTS = SLOTS * 16 };

/* A row that does not count: derivatives are 0. */
template <rg_dtype T, bool HOLD>
static __device__ __forceinline__ void put_zeros(const rg_loss_args &k, const group_place &p,
                                                 bool wide)
{
    const real<T> zeros[VLEN<T>] = {};
    for (int64_t slot = p.first; slot < p.slots && k.has_gradient && !k.add; slot += p.step)
        store_slot<T, true>(k.shape, 1, k.gradient, p, slot, HOLD || wide, zeros);
}

/* What the threads of a row know about it. */
template <rg_dtype T> struct class_row {
    real<T> max, sum, below; /* sums of e^(x - max) and, where labels are smoothed, of x - max */
};

template <rg_dtype T, bool HOLD>
static __device__ __forceinline__ class_row<T>
sum_row(const rg_loss_args &k, const softmax_plan &plan, const group_place &p, uint4 *held,
        real<T> *partial)
{
    enum { V = VLEN<T>, KEEPS = HOLD && sizeof(element<T>) == sizeof(real<T>) };
    const bool smooth = k.numbers.share != 0;
    real<T> x[V], max = -INFINITY, sum[1] = { 0 }, below[1] = { 0 };
    double totals[2][1] = { { -0.0 }, { -0.0 } };
#pragma unroll(HOLD ? SLOTS : 1)
    for (int q = 0; q < (HOLD ? SLOTS : INT32_MAX); q++) {
        const int64_t slot = p.first + (int64_t)q * p.step;
        if (slot >= p.slots)
            break;
        take_slot<T, true, HOLD>(k.shape, 0, k.y, p, slot, plan.wide, held[q * blockDim.x], x);
#pragma unroll
        for (int e = 0; e < V; e++) {
            if (HOLD || e < p.lanes)
                max = join(max, x[e], true);
        }
    }
    max = reduce(max, plan.inner, partial, true);
#pragma unroll(HOLD ? SLOTS : 1)
    for (int q = 0; q < (HOLD ? SLOTS : INT32_MAX); q++) {
        const int64_t slot = p.first + (int64_t)q * p.step;
        if (slot >= p.slots)
            break;
        take_slot<T, true, HOLD>(k.shape, 0, k.y, p, slot, plan.wide, held[q * blockDim.x], x);
        if (smooth) {
#pragma unroll
            for (int e = 0; e < V; e++)
                below[0] += HOLD || e < p.lanes ? x[e] - max : 0;
        }
#pragma unroll
        for (int e = 0; e < V; e++) {
            x[e] = exp_of<T>(x[e] - max);
            if (HOLD || e < p.lanes)
                sum[0] += x[e];
        }
        if (KEEPS)
            held[q * blockDim.x] = pack<T>(x);
        if (!HOLD && (q + 1) % plan.chunk == 0) {
            end_chunk<1>(totals[0], sum);
            end_chunk<1>(totals[1], below);
        }
    }
    if (!HOLD) {
        end_chunks<1>(totals[0], sum);
        end_chunks<1>(totals[1], below);
    }
    class_row<T> r = { max, reduce(sum[0], plan.inner, partial + 32, false), 0 };
    if (smooth)
        r.below = reduce(below[0], plan.inner, partial + 64, false);
    return r;
}

/* Derivatives of a row: at the label e^(x - max) is less by a share of the sum. */
template <rg_dtype T, bool HOLD>
static __device__ __forceinline__ void put_slopes(const rg_loss_args &k, const softmax_plan &plan,
                                                  const group_place &p, uint4 *held,
                                                  const class_use<T> &u, const class_row<T> &r)
{
    enum { V = VLEN<T>, KEEPS = HOLD && sizeof(element<T>) == sizeof(real<T>) };
    const real<T> total = (real<T>)k.numbers.total,
                  less = r.sum * ((real<T>)k.numbers.keep / total);
    const real<T> scale = u.slope * total / r.sum, offset = u.slope * (real<T>)k.numbers.share;
#pragma unroll(HOLD ? SLOTS : 1)
    for (int q = 0; q < (HOLD ? SLOTS : INT32_MAX); q++) {
        const int64_t slot = p.first + (int64_t)q * p.step;
        real<T> x[V], old[V] = {};
        if (slot >= p.slots)
            break;
        take_slot<T, true, HOLD>(k.shape, 0, k.y, p, slot, plan.wide, held[q * blockDim.x], x);
        if (k.add)
            load_slot<T, true>(k.shape, 1, k.gradient, p, slot, HOLD || plan.wide, old);
        const int from = HOLD ? (int)u.label - (int)slot * V
                              : (int)max((int64_t)-1, min((int64_t)V, u.label - slot * p.lanes));
#pragma unroll
        for (int e = 0; e < V; e++) {
            real<T> power = KEEPS ? x[e] : exp_of<T>(x[e] - r.max);
            power = from == e ? power - less : power;
            x[e] = fma(power, scale, -offset);
            x[e] = k.add ? old[e] + x[e] : x[e];
        }
        store_slot<T, true>(k.shape, 1, k.gradient, p, slot, HOLD || plan.wide, x);
    }
}

/* Leaves the sum of a block's losses, and tells whether it is the last one to do so. */
static __device__ __forceinline__ bool leave_sum(const rg_loss_args &k, double loss,
                                                 double *partial)
{
    const double sum = reduce(loss, (int)blockDim.x, partial, false);
    if (threadIdx.x != 0)
        return false;
    k.partial[blockIdx.x] = sum;
    __threadfence();
    return (atomicAdd(k.fault, 1) & ~FAULT) == gridDim.x - 1;
}

/* The sum of all blocks, by the last one; the word is again what it was, or a fault. */
template <rg_dtype T>
static __device__ __forceinline__ void end_sum(const rg_loss_args &k, double *partial)
{
    double sum = 0;
#pragma unroll 4
    for (unsigned i = threadIdx.x; i < gridDim.x; i += blockDim.x)
        sum += __ldcg(&k.partial[i]);
    sum = reduce(sum, (int)blockDim.x, partial, false) / k.divisor;
    if (threadIdx.x != 0)
        return;
    if (k.divides_by_counts)
        sum = k.counts[0] > 0 ? sum / k.counts[0] : 0;
    store<T>(k.loss, 0, (real<T>)sum);
    atomicSub(k.fault, gridDim.x);
}

/* With HOLD every thread keeps its slots in shared memory, else they are read again and again. Of
 * short rows the last block adds up the sums of all, which saves a launch; where a block has one
 * row, to wait for that would cost more. */
template <rg_dtype T, bool HOLD>
static __global__ void __launch_bounds__(1024)
    by_classes(const __grid_constant__ rg_loss_args k, const softmax_plan plan)
{
    extern __shared__ uint4 shared[];
    __shared__ double partial[2][32];
    __shared__ bool is_last;
    uint4 *const held = shared + threadIdx.x;
    real<T> *const sums = (real<T> *)(shared + (HOLD ? SLOTS * blockDim.x : 0));
    const group_place p = find_group<T, true, HOLD>(k.shape, plan, k.has_gradient ? 2 : 1);
    const int64_t row =
        (int64_t)blockIdx.x * ((int)blockDim.x >> plan.shift) + ((int)threadIdx.x >> plan.shift);
    if (HOLD)
        hold_slots<T, true>(k.shape, 0, k.y, p, held);
    const class_use<T> u = use_of<T>(k, row);
    real<T> at_label = 0;
    if (u.label >= 0)
        at_label = load<T>(k.y, p.base[0] + slot_offset<true>(k.shape, 0, u.label, 1, 0));
    if (HOLD)
        await_copies();
    const class_row<T> r = sum_row<T, HOLD>(k, plan, p, held, sums);
    double loss = 0;
    if (p.first == 0 && u.label >= 0) {
        loss = k.numbers.total * log(r.sum) - k.numbers.keep * (at_label - r.max);
        if (k.numbers.share != 0)
            loss -= k.numbers.share * r.below;
        loss *= u.loss;
    }
    const bool ends = k.losses == RG_LOSS_SUMS && k.groups == 1 && k.length <= RG_LOSS_SHORT;
    bool last = false;
    if (ends)
        last = leave_sum(k, loss, partial[0]);
    else if (p.first == 0 && row < k.rows)
        put_loss<T>(k, row, loss);
    if (k.has_gradient && u.label >= 0)
        put_slopes<T, HOLD>(k, plan, p, held, u, r);
    else
        put_zeros<T, HOLD>(k, p, plan.wide);
    if (!ends)
        return;
    if (threadIdx.x == 0)
        is_last = last;
    __syncthreads();
    if (is_last)
        end_sum<T>(k, partial[1]);
}

/* Rows of odd length have no tile here: so many threads that they read whole sectors. */
template <rg_dtype T> static void widen(const rg_softmax_shape *shape, softmax_plan *p)
{
    if (p->lanes > 1 || p->inner > 32)
        return;
    p->inner = power_of_two(ceil_div(shape->length, 4), 1, 32);
    p->shift = __builtin_ctz((unsigned)p->inner);
    p->blocks = ceil_div(shape->outer.count, p->threads / p->inner);
}

template <rg_dtype T> static void loss_by_classes(const void *args, const rg_cuda_place *place)
{
    rg_loss_args k = *(const rg_loss_args *)args;
    const void *const data[] = { k.y, k.has_gradient ? k.gradient : k.y };
    softmax_plan p = plan_rows<T>(&k.shape, data, 2, FORWARD_SHORT);
    widen<T>(&k.shape, &p);
    const int64_t held = CLASS_SUMS + (int64_t)p.threads * HELD_SLOTS;
    k.shape.stream = k.stream;
    if (p.hold && held <= place->shared)
        launch(by_classes<T, true>, p.blocks, p.threads, held, place, k, p);
    else
        launch(by_classes<T, false>, p.blocks, p.threads, CLASS_SUMS, place, k, p);
}

/* ---- one element of a row ---- */

/* A warp to a row. */
template <rg_dtype T>
static __global__ void __launch_bounds__(LOSS_THREADS) pick(const __grid_constant__ rg_loss_args k)
{
    const int lane = (int)threadIdx.x % 32;
    const int64_t row = (int64_t)blockIdx.x * (LOSS_THREADS / 32) + (int)threadIdx.x / 32;
    if (row >= k.rows)
        return;
    const class_use<T> u = use_of<T>(k, row);
    const bool takes_log = k.numbers.kind == RG_LOSS_CATEGORICAL_CROSS_ENTROPY;
    const int64_t first = row * k.length;
    real<T> y = 1;
    if (u.label >= 0)
        y = load<T>(k.y, place_of(k.views[RG_LOSS_Y], first + u.label));
    __syncwarp(); /* the gradient may take the place of y */
    if (lane == 0)
        put_loss<T>(k, row, u.label >= 0 ? -(u.loss * (takes_log ? log(y) : y)) : 0);
    if (!k.has_gradient)
        return;
    const real<T> slope = takes_log ? -u.slope / y : -u.slope;
    for (int64_t j = lane; j < k.length; j += 32) {
        const int64_t to = place_of(k.views[RG_LOSS_D], first + j);
        if (!k.add)
            store<T>(k.gradient, to, j == u.label ? slope : 0);
        else if (j == u.label)
            store<T>(k.gradient, to, load<T>(k.gradient, to) + slope);
    }
}

template <rg_dtype T> static void loss_pick(const void *args, const rg_cuda_place *place)
{
    const rg_loss_args k = *(const rg_loss_args *)args;
    launch(pick<T>, ceil_div(k.rows, LOSS_THREADS / 32), LOSS_THREADS, 0, place, k);
}

/* ---- weights that are not 0 ---- */

template <rg_dtype T>
static __global__ void __launch_bounds__(LOSS_THREADS)
    count_weights(const __grid_constant__ rg_loss_args k)
{
    __shared__ double partial[32];
    const part_place p = find_part(k);
    int count = 0;
    for (int j = (int)threadIdx.x; j < p.count; j += LOSS_THREADS) {
        const int64_t i = p.first + j;
        bool counts = k.numbers.weight != 0;
        if (k.has_weights)
            counts &= load<T>(k.weights, place_of(k.views[RG_LOSS_W], i)) != 0;
        if (k.has_ignored)
            counts &= label_at(k, i) != k.ignored;
        count += counts;
    }
    const double total = reduce((double)count, LOSS_THREADS, partial, false);
    if (threadIdx.x == 0)
        k.partial[blockIdx.x] = total;
}

template <rg_dtype T> static void loss_count(const void *args, const rg_cuda_place *place)
{
    const rg_loss_args k = *(const rg_loss_args *)args;
    launch(count_weights<T>, k.groups * k.parts, LOSS_THREADS, 0, place, k);
}

/* ---- sums of parts ---- */

template <rg_dtype T>
static __global__ void __launch_bounds__(1024) finish(const __grid_constant__ rg_loss_finish_args k)
{
    __shared__ double partial[32];
    const int64_t group = blockIdx.x;
    const double *from = k.partial + group * k.parts;
    double sum = 0;
#pragma unroll 8
    for (int64_t i = threadIdx.x; i < k.parts; i += blockDim.x)
        sum += from[i];
    sum = reduce(sum, (int)blockDim.x, partial, false);
    if (threadIdx.x != 0)
        return;
    const int64_t to = place_of(k.view, group);
    sum = (sum + k.bias) / k.divisor;
    if (k.has_counts)
        sum = k.counts[group] > 0 ? sum / k.counts[group] : 0;
    if (k.makes_counts)
        ((double *)k.loss)[to] = sum;
    else
        store<T>(k.loss, to, (real<T>)sum);
}

template <rg_dtype T> static void loss_finish(const void *args, const rg_cuda_place *place)
{
    const rg_loss_finish_args k = *(const rg_loss_finish_args *)args;
    if (k.gpu_is_done)
        return;
    launch(finish<T>, k.groups, power_of_two(k.parts, 32, 1024), 0, place, k);
}

/* ---- the initial gradient ---- */

template <rg_dtype T>
static __global__ void __launch_bounds__(LOSS_THREADS)
    ones(const __grid_constant__ rg_loss_ones_args k)
{
    const int64_t count = k.sweep.outer.count * k.sweep.length;
    const int64_t step = (int64_t)gridDim.x * LOSS_THREADS;
    for (int64_t i = (int64_t)blockIdx.x * LOSS_THREADS + threadIdx.x; i < count; i += step) {
        const int64_t row = divide(i, k.sweep.length), j = i - row * k.sweep.length;
        store<T>(k.y, walk_offset(k.sweep.outer, 0, row) + j * k.sweep.step[0], 1);
    }
}

template <rg_dtype T> static void loss_ones(const void *args, const rg_cuda_place *place)
{
    const rg_loss_ones_args k = *(const rg_loss_ones_args *)args;
    const int64_t blocks = ceil_div(k.sweep.outer.count * k.sweep.length, LOSS_THREADS);
    const int64_t most = 16 * place->multiprocessors;
    launch(ones<T>, blocks < most ? blocks : most, LOSS_THREADS, 0, place, k);
}

/* ---- table ---- */

static const rg_cuda_row kernel_rows[] = {
    RG_CUDA_ROW(RG_LOSS_BY_ELEMENTS, loss_by_elements),
    RG_CUDA_ROW(RG_LOSS_BY_ROWS, loss_by_rows),
    RG_CUDA_ROW(RG_LOSS_BY_CLASSES, loss_by_classes),
    RG_CUDA_ROW(RG_LOSS_PICK, loss_pick),
    RG_CUDA_ROW(RG_LOSS_COUNT, loss_count),
    RG_CUDA_ROW(RG_LOSS_FINISH, loss_finish),
    RG_CUDA_ROW(RG_LOSS_ONES, loss_ones),
};
RG_CUDA_TABLE(loss, kernel_rows);
