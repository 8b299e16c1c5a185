/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Means and variances over sliding windows on a GPU: elements v, m, s and the rules to join
 * them, as on the CPU, see ops/window_norm/moments_cpu.h. The kinds of an array follow one
 * other. */
#ifndef RG_OPS_WINDOW_NORM_MOMENTS_CUH
#define RG_OPS_WINDOW_NORM_MOMENTS_CUH

#include "ops/window_norm/box.h"
#include "ops/window_norm/windows.cuh"

template <class REAL> struct moments {
    REAL v, m, s;
};

/* ---- join: means less v, and variances ---- */

template <class REAL>
static __device__ __forceinline__ moments<REAL>
join_two(const moments<REAL> &a, const moments<REAL> &b, int64_t na, int64_t nb)
{
    const REAL part = (REAL)nb / (REAL)(na + nb), gap = (b.v - a.v) + (b.m - a.m);
    return { a.v, fma(gap, part, a.m), fma(gap * gap, (REAL)na * part, a.s + b.s) };
}

template <class REAL>
static __device__ __forceinline__ moments<REAL> join_end(const moments<REAL> &e, REAL v,
                                                         int64_t width)
{
    return { v, (e.v - v) + e.m, e.s * ((REAL)1 / (REAL)width) };
}

/* All elements of a window about the v of element `centre`; get(k) gives them. PLAIN: m and s are
 * 0. */
template <bool PLAIN, class REAL, class GET>
static __device__ __forceinline__ moments<REAL> join_taps(REAL v, int width, int centre, GET get)
{
    const REAL each = (REAL)1 / (REAL)width;
    auto far = [&](int k, const moments<REAL> &e) -> REAL {
        if constexpr (PLAIN)
            return e.v - v;
        else
            return k == centre ? e.m : (e.v - v) + e.m;
    };
    REAL mean = 0, square = 0;
#pragma unroll
    for (int k = 0; k < width; k++)
        if (!PLAIN || k != centre)
            mean += far(k, get(k));
    mean *= each;
    if constexpr (PLAIN)
        square = mean * mean; /* of the centre */
#pragma unroll
    for (int k = 0; k < width; k++)
        if (!PLAIN || k != centre) {
            const moments<REAL> e = get(k);
            const REAL away = far(k, e) - mean;
            square = fma(away, away, PLAIN ? square : square + e.s);
        }
    return { v, mean, square * each };
}

/* ---- shift: sums of q (z - v), and of q ---- */

template <class REAL>
static __device__ __forceinline__ moments<REAL> shift_two(const moments<REAL> &a,
                                                          const moments<REAL> &b)
{
    const REAL v = fabs(a.s) < fabs(b.s) ? b.v : a.v;
    return { v, fma(a.s, a.v - v, a.m) + fma(b.s, b.v - v, b.m), a.s + b.s };
}

template <class REAL>
static __device__ __forceinline__ moments<REAL> shift_about(const moments<REAL> &e, REAL v)
{
    return { v, fma(e.s, e.v - v, e.m), e.s };
}

template <class REAL, class GET>
static __device__ __forceinline__ moments<REAL> shift_taps(REAL v, int width, int centre, GET get)
{
    moments<REAL> sum = { v, 0, 0 };
#pragma unroll
    for (int k = 0; k < width; k++) {
        const moments<REAL> e = get(k);
        sum.m += k == centre ? e.m : fma(e.s, e.v - v, e.m);
        sum.s += e.s;
    }
    return sum;
}

/* ---- arrays, as in windows.cuh; `size`: from one kind to the next ---- */

template <class REAL>
static __device__ __forceinline__ moments<REAL> get_moments(const REAL *from, int64_t size,
                                                            int64_t i)
{
    return { from[i], from[size + i], from[2 * size + i] };
}

template <class REAL>
static __device__ __forceinline__ void put_moments(REAL *to, int64_t size, int64_t i,
                                                   const moments<REAL> &e)
{
    to[i] = e.v;
    to[size + i] = e.m;
    to[2 * size + i] = e.s;
}

template <bool MIRRORED, class REAL>
static __device__ __forceinline__ moments<REAL>
two_moments(const moments<REAL> &a, const moments<REAL> &b, int64_t na, int64_t nb)
{
    if constexpr (MIRRORED)
        return shift_two(a, b);
    else
        return join_two(a, b, na, nb);
}

/* Values, and sums from the start of a block on; after moment_blocks, `values` has sums up to the
 * end of a block. `size` as above. */
template <class REAL> struct moment_arrays {
    REAL *values, *prefix;
    int64_t size;
};

template <bool MIRRORED, class REAL>
static __device__ __forceinline__ void
moment_blocks(const moment_arrays<REAL> &arrays, int64_t lines, int64_t inner, int64_t outer_step,
              int64_t length, int64_t step, int64_t width)
{
    REAL *const values = arrays.values, *const prefix = arrays.prefix;
    const int64_t size = arrays.size;
    const int64_t blocks = (length + width - 1) / width;
    for (int64_t i = threadIdx.x; i < lines * blocks; i += blockDim.x) {
        const int64_t block = i / lines, line = i - block * lines;
        const int64_t begin = block * width, all = length - begin;
        const int64_t count = all < width ? all : width;
        const int64_t at = line / inner * outer_step + line % inner + begin * step;
        moments<REAL> sum = get_moments(values, size, at);
        put_moments(prefix, size, at, sum);
        for (int64_t k = 1; k < count; k++) {
            sum = two_moments<MIRRORED>(sum, get_moments(values, size, at + k * step), k, 1);
            put_moments(prefix, size, at + k * step, sum);
        }
        sum = get_moments(values, size, at + (count - 1) * step);
        for (int64_t k = count - 2; k >= 0; k--) {
            sum = two_moments<MIRRORED>(get_moments(values, size, at + k * step), sum, 1,
                                        count - 1 - k);
            put_moments(values, size, at + k * step, sum);
        }
    }
}

/* Those of the window of position i of a line that begins at `line`; v is that of position i. */
template <bool MIRRORED, class REAL>
static __device__ __forceinline__ moments<REAL>
moment_window(const moment_arrays<const REAL> &arrays, int64_t line, int64_t i, int64_t step,
              int64_t width, int centre, bool blocks, REAL v)
{
    const REAL *const values = arrays.values, *const prefix = arrays.prefix;
    const int64_t size = arrays.size;
    const int64_t begin = line + i * step;
    if (!blocks) {
        auto get = [&](int k) { return get_moments(values, size, begin + k * step); };
        return MIRRORED ? shift_taps(v, (int)width, centre, get)
                        : join_taps<false>(v, (int)width, centre, get);
    }
    moments<REAL> e = get_moments(prefix, size, begin + (width - 1) * step);
    const int64_t met = i % width;
    if (met != 0)
        e = two_moments<MIRRORED>(get_moments(values, size, begin), e, width - met, met);
    return MIRRORED ? shift_about(e, v) : join_end(e, v, width);
}

#endif
