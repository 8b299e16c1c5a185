/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Upsample kernels, their args, and the grid that both directions follow. Valid C and valid
 * CUDA. */
#ifndef RG_OPS_UPSAMPLE_H
#define RG_OPS_UPSAMPLE_H

#include "core/walk.h"

enum { RG_UPSAMPLE_FORWARD, RG_UPSAMPLE_GRADIENT, RG_UPSAMPLE_KERNELS };

/* What an output reads: two pixels, or the nearest one. The values from RG_TAP_FLOOR on are in
 * the order of rg_upsample_round. */
enum { RG_TAP_LINEAR, RG_TAP_FLOOR, RG_TAP_CEIL, RG_TAP_PREFER_FLOOR, RG_TAP_PREFER_CEIL };

/* One axis: output o reads position u = (o + half) num / den - half. */
typedef struct rg_upsample_axis {
    int64_t in, out;
    double num, den, half;
    int32_t tap;
} rg_upsample_axis;

typedef struct rg_upsample_args {
    const void *from; /* x, or dy */
    void *to;         /* y, or dx */
    rg_upsample_axis axes[2];
    int64_t images, channels;
    int64_t strides[2][4]; /* of `from` and `to`: n, h, w, c */
    bool dense;            /* channels are neighbours in both */
    bool add;              /* into dx */
    bool stream;           /* the result is written by streaming stores */
} rg_upsample_args;

/* y = (1 - f) x[first] + f x[second]; where f is 0, second is first. */
typedef struct rg_upsample_tap {
    int64_t first, second;
    double f;
} rg_upsample_tap;

static inline RG_HOST_DEVICE rg_upsample_tap rg_upsample_tap_of(const rg_upsample_axis *a,
                                                                int64_t o)
{
    const double last = (double)(a->in - 1);
    double u = ((double)o + a->half) * a->num / a->den - a->half;
    u = u > 0 ? u : 0;
    u = u < last ? u : last;
    rg_upsample_tap tap;
    tap.first = (int64_t)u;
    tap.f = u - (double)tap.first;
    if (a->tap == RG_TAP_CEIL)
        tap.first += tap.f > 0;
    else if (a->tap == RG_TAP_PREFER_FLOOR)
        tap.first += tap.f > 0.5;
    else if (a->tap == RG_TAP_PREFER_CEIL)
        tap.first += tap.f >= 0.5;
    if (a->tap != RG_TAP_LINEAR)
        tap.f = 0;
    tap.second = tap.first + (tap.f > 0);
    return tap;
}

/* The first output that looks at pixel i or beyond: with its first pixel, or with its second. The
 * grid never goes back, so outputs from find(i, false) to find(i + 1, true) - 1 look at pixel i. */
static inline RG_HOST_DEVICE int64_t rg_upsample_find(const rg_upsample_axis *a, int64_t i,
                                                      bool first)
{
    if (i <= 0)
        return 0;
    if (i >= a->in || a->num == 0)
        return a->out;
    const double before = a->tap == RG_TAP_LINEAR  ? (first ? 0 : 1)
                          : a->tap == RG_TAP_FLOOR ? 0
                          : a->tap == RG_TAP_CEIL  ? 1
                                                   : 0.5;
    const double guess = ((double)i - before + a->half) * a->den / a->num - a->half;
    int64_t o = guess > 0 ? guess < (double)a->out ? (int64_t)guess : a->out : 0;
    while (o > 0) { /* rounding of the guess is put right by the grid itself */
        const rg_upsample_tap tap = rg_upsample_tap_of(a, o - 1);
        if ((first ? tap.first : tap.second) < i)
            break;
        o--;
    }
    while (o < a->out) {
        const rg_upsample_tap tap = rg_upsample_tap_of(a, o);
        if ((first ? tap.first : tap.second) >= i)
            break;
        o++;
    }
    return o;
}

#endif
