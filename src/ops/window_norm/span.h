/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Windows around the positions of a line, and how their sums are built. Part of kernel args, so
 * valid C and valid CUDA.
 *
 * The line is thought to go on with zeros at both ends: `before` of them, its `size` values,
 * `after` more, positions 0 to size + width - 2. The window of position i is positions i to i +
 * width - 1, and its sum is
 *
 *      up to RG_SPAN_DIRECT wide   pairs of its values added one after the other: (a + b) + (c + d)
 *                                  + e
 *      wider                       a suffix sum plus a prefix sum of blocks: positions are cut into
 *                                  blocks of `width`, so a window is the end of one and the
 *                                  beginning of the next, or a whole one, which is a prefix
 *
 * So the cost of a wide window does not grow with it, and nothing is subtracted: an infinity or a
 * NaN is seen by windows that contain it and by no other. The order of additions follows from
 * `size`, `before` and `after`. */
#ifndef RG_OPS_WINDOW_NORM_SPAN_H
#define RG_OPS_WINDOW_NORM_SPAN_H

#include <stdbool.h>
#include <stdint.h>

/* Where a block is wider than RG_SPAN_RUN, its running sums keep what rounding takes from them. */
enum { RG_SPAN_DIRECT = 8, RG_SPAN_RUN = 256 };

typedef struct rg_span {
    int64_t size;          /* positions */
    int64_t before, after; /* of a window around its position, no more than can be met */
    int64_t width;         /* before + 1 + after */
} rg_span;

/* A window of `window` positions; an even one reaches further before its position, or after it. */
static inline rg_span rg_span_make(int64_t size, int64_t window, bool even_after)
{
    const int64_t most = size > 0 ? size - 1 : 0;
    int64_t before = window / 2, after = (window - 1) / 2;
    if (even_after) {
        before = (window - 1) / 2;
        after = window / 2;
    }
    before = before < most ? before : most;
    after = after < most ? after : most;
    const rg_span span = { size, before, after, before + 1 + after };
    return span;
}

#endif
