/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Pooling kernels and their args. Valid C and valid CUDA. */
#ifndef RG_OPS_POOL_H
#define RG_OPS_POOL_H

#include "core/walk.h" /* RG_HOST_DEVICE */

enum {
    RG_POOL_MAX_FORWARD,
    RG_POOL_MAX_WINNERS, /* and y where it is wanted */
    RG_POOL_AVERAGE_FORWARD,
    RG_POOL_L2_FORWARD,
    RG_POOL_MAX_GRADIENT,
    RG_POOL_AVERAGE_GRADIENT,
    RG_POOL_L2_GRADIENT,
    RG_POOL_MAX_INDICES, /* from winners */
    RG_POOL_MAX_TAPS,    /* winners from indices, checked */
    RG_POOL_KERNELS
};

/* Rows or columns. Positions of all taps fit into 31 bits. */
typedef struct rg_pool_axis {
    int64_t size;                     /* pixels of x */
    int64_t count;                    /* windows: pixels of y */
    int64_t window, stride, dilation; /* taps, steps */
    int64_t before;    /* tap p of window i is pixel i stride - before + p dilation */
    int64_t low, high; /* average: taps at low <= pixel < high are counted */
} rg_pool_axis;

typedef struct rg_pool_shape {
    rg_pool_axis row, column;
    int64_t images, channels;
    int64_t x[4], y[4]; /* steps (image, row, column, channel) of x or dx, and of y or dy */
    int64_t z[4], w[4]; /* gradient of l2: of x and y */
    int64_t winners[3]; /* steps (image, row, column); channels are neighbours */
    bool wide;          /* winners are i32, not u8 */
    bool zero;          /* taps outside of the image are 0, not left out */
    bool dense;         /* channels are neighbours in all tensors */
    bool add, stream;   /* into the result; by streaming stores */
} rg_pool_shape;

/* Winners that are no tap. */
enum { RG_POOL_VIRTUAL = 255, RG_POOL_VIRTUAL_WIDE = -1 };

typedef struct rg_pool_args {
    const void *x;
    void *y;
    rg_pool_shape shape;
} rg_pool_args;

typedef struct rg_pool_winners_args {
    const void *x;
    void *winners, *y; /* y: or NULL */
    rg_pool_shape shape;
} rg_pool_winners_args;

enum { RG_POOL_LISTED = 64 }; /* the most windows of a list */

typedef struct rg_pool_gradient_args {
    const void *dy;
    void *dx;
    const void *from; /* max: winners; l2: x */
    const void *y;    /* l2 */
    rg_pool_shape shape;
    bool by_lists; /* a CPU lists the windows of a pixel once for all channels, not per vector */
} rg_pool_gradient_args;

typedef struct rg_pool_indices_args {
    const void *winners;
    int64_t *indices;
    rg_pool_shape shape; /* y: steps of indices */
    bool by_columns;     /* storage_order 1 */
} rg_pool_indices_args;

typedef struct rg_pool_taps_args {
    const int64_t *indices;
    void *winners;
    uint32_t *fault; /* an index is no pixel of its window */
    rg_pool_shape shape;
    bool by_columns;
} rg_pool_taps_args;

/* Taps begin <= p < end of window i lie in the image; none: begin = end. */
static inline RG_HOST_DEVICE void rg_pool_taps(const rg_pool_axis *a, int64_t i, int64_t *begin,
                                               int64_t *end)
{
    const int64_t start = i * a->stride - a->before, left = a->size - start;
    *begin = start >= 0 ? 0 : a->dilation == 1 ? -start : (a->dilation - 1 - start) / a->dilation;
    *end = left <= 0 ? 0 : a->dilation == 1 ? left : (left + a->dilation - 1) / a->dilation;
    *end = *end < a->window ? *end : a->window;
    *begin = *begin < *end ? *begin : *end;
}

/* Windows first <= i <= last may contain pixel r: those that do so between their first tap and
 * their last. None: last < first, by any number where the pixel lies after the last window. */
static inline RG_HOST_DEVICE void rg_pool_windows(const rg_pool_axis *a, int64_t r, int64_t *first,
                                                  int64_t *last)
{
    const int64_t end = r + a->before, begin = end - (a->window - 1) * a->dilation;
    *last = end < 0 ? -1 : end / a->stride;
    *last = *last < a->count ? *last : a->count - 1;
    *first = begin <= 0 ? 0 : (begin + a->stride - 1) / a->stride;
}

/* The most windows that contain a pixel, in one direction. */
static inline RG_HOST_DEVICE int64_t rg_pool_most_windows(const rg_pool_axis *a)
{
    const int64_t most = (a->window - 1) * a->dilation / a->stride + 1;
    return most < a->count ? most : a->count;
}

/* Whether each pixel belongs to one window at most. */
static inline RG_HOST_DEVICE bool rg_pool_are_apart(const rg_pool_shape *k)
{
    return k->row.dilation == 1 && k->column.dilation == 1 && k->row.window <= k->row.stride &&
           k->column.window <= k->column.stride;
}

/* The tap of window i that is pixel r, or -1 where it lies between two taps. */
static inline RG_HOST_DEVICE int64_t rg_pool_tap(const rg_pool_axis *a, int64_t i, int64_t r)
{
    const int64_t distance = r + a->before - i * a->stride;
    if (a->dilation == 1)
        return distance;
    return distance % a->dilation == 0 ? distance / a->dilation : -1;
}

/* The taps of window i that an average counts. */
static inline RG_HOST_DEVICE int64_t rg_pool_counted(const rg_pool_axis *a, int64_t i)
{
    const int64_t start = i * a->stride - a->before, d = a->dilation;
    if (start >= a->low && start + (a->window - 1) * d < a->high)
        return a->window;
    const int64_t begin = start >= a->low ? 0 : (a->low - start + d - 1) / d;
    int64_t end = start >= a->high ? 0 : (a->high - start + d - 1) / d;
    end = end < a->window ? end : a->window;
    return begin < end ? end - begin : 0;
}

/* Rows of a window after which its first virtual 0 comes in row-major order: 0, 1, or all that
 * lie in the image; -1: there is none. [p0, p1) and [q0, q1) are its taps in the image. */
static inline RG_HOST_DEVICE int64_t rg_pool_zero_after(const rg_pool_shape *k, int64_t p0,
                                                        int64_t p1, int64_t q0, int64_t q1)
{
    if (p0 == p1 || q0 == q1)
        return 0;
    if (!k->zero)
        return -1;
    if (p0 > 0 || q0 > 0)
        return 0;
    if (q1 < k->column.window)
        return 1;
    return p1 < k->row.window ? p1 : -1;
}

/* The index of a winner of window (i, j), which counts from the first pixel of its image and
 * channel on; -1 for winners that are no tap. */
static inline RG_HOST_DEVICE int64_t rg_pool_index(const rg_pool_shape *k, int64_t i, int64_t j,
                                                   int32_t winner, bool by_columns)
{
    const int32_t columns = (int32_t)k->column.window;
    if (winner == (k->wide ? (int32_t)RG_POOL_VIRTUAL_WIDE : (int32_t)RG_POOL_VIRTUAL))
        return -1;
    const int64_t r =
        i * k->row.stride - k->row.before + (int64_t)(winner / columns) * k->row.dilation;
    const int64_t q =
        j * k->column.stride - k->column.before + (int64_t)(winner % columns) * k->column.dilation;
    return by_columns ? q * k->row.size + r : r * k->column.size + q;
}

/* The tap of a window along one axis that is pixel r, or -1. */
static inline RG_HOST_DEVICE int64_t rg_pool_own_tap(const rg_pool_axis *a, int64_t i, int64_t r)
{
    const int64_t tap = rg_pool_tap(a, i, r);
    return r >= i * a->stride - a->before && tap < a->window ? tap : -1;
}

/* The way back: 0 <= index < rows columns. -1 if it is no pixel of window (i, j). */
static inline RG_HOST_DEVICE int64_t rg_pool_index_tap(const rg_pool_shape *k, int64_t i, int64_t j,
                                                       int64_t index, bool by_columns)
{
    const int64_t line = by_columns ? k->row.size : k->column.size;
    const int64_t r = by_columns ? index % line : index / line;
    const int64_t q = by_columns ? index / line : index % line;
    const int64_t p = rg_pool_own_tap(&k->row, i, r), s = rg_pool_own_tap(&k->column, j, q);
    return p < 0 || s < 0 ? -1 : p * k->column.window + s;
}

/* Whether -1 may stand for the winner of window (i, j). */
static inline RG_HOST_DEVICE bool rg_pool_may_be_virtual(const rg_pool_shape *k, int64_t i,
                                                         int64_t j)
{
    int64_t p0, p1, q0, q1;
    rg_pool_taps(&k->row, i, &p0, &p1);
    rg_pool_taps(&k->column, j, &q0, &q1);
    return rg_pool_zero_after(k, p0, p1, q0, q1) >= 0;
}

/* The winner that an index of window (i, j) stands for; `first`: the index of the first pixel of
 * its image and channel. False if there is none. */
static inline RG_HOST_DEVICE bool rg_pool_index_winner(const rg_pool_shape *k, int64_t i, int64_t j,
                                                       int64_t index, int64_t first,
                                                       bool by_columns, int32_t *winner)
{
    *winner = k->wide ? (int32_t)RG_POOL_VIRTUAL_WIDE : (int32_t)RG_POOL_VIRTUAL;
    if (index == -1)
        return rg_pool_may_be_virtual(k, i, j);
    if (index < first || index >= first + k->row.size * k->column.size)
        return false;
    const int64_t tap = rg_pool_index_tap(k, i, j, index - first, by_columns);
    if (tap < 0)
        return false;
    *winner = (int32_t)tap;
    return true;
}

#endif
