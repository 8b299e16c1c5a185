/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Pooling by definition, in double. Every tap of every window is looked at, in the image or not. */
#include "ops/optest.h"

#include <retrograde/pool.h>

#include <math.h>

/* One window: where its tap (0, 0) is, and what it reads. */
typedef struct window {
    const rg_pool_desc *d;
    const double *x; /* the image */
    int64_t h, w, c, channel;
    int64_t row, column;                         /* of tap (0, 0) */
    int64_t count_top, count_left, count_bottom, /* the image and the margin that counts with it */
        count_right;
} window;

/* The index of tap (p, q) in the image, or -1 if it lies outside. */
static int64_t index_of(const window *v, int32_t p, int32_t q)
{
    const int64_t r = v->row + (int64_t)p * v->d->dilation[0];
    const int64_t s = v->column + (int64_t)q * v->d->dilation[1];
    if (r < 0 || r >= v->h || s < 0 || s >= v->w)
        return -1;
    return (r * v->w + s) * v->c + v->channel;
}

/* How many taps an average divides by. */
static double divisor(const window *v)
{
    double counted = 0;
    for (int32_t p = 0; p < v->d->window[0]; p++) {
        for (int32_t q = 0; q < v->d->window[1]; q++) {
            const int64_t r = v->row + (int64_t)p * v->d->dilation[0];
            const int64_t s = v->column + (int64_t)q * v->d->dilation[1];
            counted += v->d->edge == RG_POOL_ZERO || (r >= v->count_top && r < v->count_bottom &&
                                                      s >= v->count_left && s < v->count_right);
        }
    }
    return counted;
}

/* The index of the largest tap, and its value; -1 if it is a virtual 0 or if there is none. */
static int64_t find_largest(const window *v, double *value)
{
    int64_t winner = -1;
    bool any = false;
    *value = 0;
    for (int32_t p = 0; p < v->d->window[0]; p++) {
        for (int32_t q = 0; q < v->d->window[1]; q++) {
            const int64_t at = index_of(v, p, q);
            if (at < 0 && v->d->edge == RG_POOL_CLAMP)
                continue;
            const double tap = at < 0 ? 0 : v->x[at];
            if (!any || tap > *value || (isnan(tap) && !isnan(*value))) {
                *value = tap;
                winner = at;
            }
            any = true;
        }
    }
    return winner;
}

static double sum_up(const window *v, bool squares)
{
    double sum = 0;
    for (int32_t p = 0; p < v->d->window[0]; p++) {
        for (int32_t q = 0; q < v->d->window[1]; q++) {
            const int64_t at = index_of(v, p, q);
            const double x = at < 0 ? 0 : v->x[at];
            sum += squares ? x * x : x;
        }
    }
    return sum;
}

static double forward_one(const window *v)
{
    double value;
    switch (v->d->kind) {
    case RG_POOL_MAX:
        find_largest(v, &value);
        return value;
    case RG_POOL_AVERAGE:
        return divisor(v) > 0 ? sum_up(v, false) / divisor(v) : 0;
    default:
        return sqrt(sum_up(v, true));
    }
}

/* Adds what one window passes to the image dx. */
static void gradient_one(const window *v, double dy, double y, double *dx)
{
    double value;
    if (v->d->kind == RG_POOL_MAX) {
        const int64_t winner = find_largest(v, &value);
        if (winner >= 0)
            dx[winner] += dy;
        return;
    }
    for (int32_t p = 0; p < v->d->window[0]; p++) {
        for (int32_t q = 0; q < v->d->window[1]; q++) {
            const int64_t at = index_of(v, p, q);
            if (at >= 0 && v->d->kind == RG_POOL_AVERAGE)
                dx[at] += dy / divisor(v);
            else if (at >= 0 && y != 0)
                dx[at] += dy * (v->x[at] / y);
        }
    }
}

/* Calls forward_one, or gradient_one where there is a dx, for all windows. */
static void each_window(const rg_pool_desc *d, const rg_ref_tensor *x, const double *dy, double *y,
                        double *dx)
{
    const int32_t row = x->rank - 3;
    const int64_t images = row > 0 ? x->dims[0] : 1;
    window v = { .d = d, .h = x->dims[row], .w = x->dims[row + 1], .c = x->dims[row + 2] };
    const rg_window geometry = { .source = { v.h, v.w },
                                 .window = { d->window[0], d->window[1] },
                                 .stride = { d->stride[0], d->stride[1] },
                                 .dilation = { d->dilation[0], d->dilation[1] },
                                 .output = { d->output[0], d->output[1] },
                                 .ceil_mode = d->ceil_mode };
    rg_placement at;
    if (rg_padding_resolve(&d->padding, &geometry, &at) != RG_OK)
        return;
    const bool given = d->padding.policy == RG_PADDING_EXPLICIT;
    const double margin[4] = { (double)at.before[0], (double)at.before[1],
                               given ? d->padding.bottom : (double)at.after[0],
                               given ? d->padding.right : (double)at.after[1] };
    const bool padding = d->count_include_pad;
    v.count_top = -(int64_t)fmax(padding ? margin[0] : d->zero_pad[0], 0);
    v.count_left = -(int64_t)fmax(padding ? margin[1] : d->zero_pad[1], 0);
    v.count_bottom = v.h + (int64_t)fmax(padding ? margin[2] : d->zero_pad[0], 0);
    v.count_right = v.w + (int64_t)fmax(padding ? margin[3] : d->zero_pad[1], 0);
    for (int64_t n = 0; n < images; n++) {
        const int64_t image = n * v.h * v.w * v.c;
        v.x = x->data + image;
        for (int64_t i = 0; i < at.output[0]; i++) {
            for (int64_t j = 0; j < at.output[1]; j++) {
                v.row = i * d->stride[0] - at.before[0];
                v.column = j * d->stride[1] - at.before[1];
                for (v.channel = 0; v.channel < v.c; v.channel++) {
                    const int64_t o = ((n * at.output[0] + i) * at.output[1] + j) * v.c + v.channel;
                    if (dx != NULL)
                        gradient_one(&v, dy[o], y[o], dx + image);
                    else
                        y[o] = forward_one(&v);
                }
            }
        }
    }
}

void rg_pool_ref_forward(const void *desc, const rg_ref_tensor x[], rg_ref_tensor y[])
{
    each_window(desc, x, NULL, y->data, NULL);
}

void rg_pool_ref_gradient(const void *desc, const rg_ref_tensor dy[], const rg_ref_tensor x[],
                          const rg_ref_tensor y[], rg_ref_tensor dx[])
{
    each_window(desc, x, dy->data, y->data, dx->data); /* dx begins with zeros */
}
