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
    const double counted = v->d->kind == RG_POOL_AVERAGE ? divisor(v) : 1;
    for (int32_t p = 0; p < v->d->window[0]; p++) {
        for (int32_t q = 0; q < v->d->window[1]; q++) {
            const int64_t at = index_of(v, p, q);
            if (at >= 0 && v->d->kind == RG_POOL_AVERAGE)
                dx[at] += dy / counted;
            else if (at >= 0 && y != 0)
                dx[at] += dy * (v->x[at] / y);
        }
    }
}

/* One axis: how many windows there are, and where the first one begins. */
typedef struct axis {
    int64_t size, span, stride;
    int64_t before, after; /* padding */
    int64_t windows;
} axis;

/* How many of 0, step, 2 step, ... are below `end`. */
static int64_t steps_below(int64_t end, int64_t step)
{
    int64_t count = 0;
    while (count * step < end)
        count++;
    return count;
}

/* Explicit padding: windows that lie in the image and its padding as a whole; with ceil_mode one
 * more if that leaves pixels over, and if it begins in the image or before it. */
static int64_t count_explicit(const axis *a, bool ceil_mode)
{
    const int64_t end = a->size + a->after;
    int64_t count = 0, start = -a->before;
    for (; start + a->span <= end; start += a->stride)
        count++;
    const bool leftover = count > 0 && start - a->stride + a->span < end;
    return count + (ceil_mode && leftover && start < a->size);
}

/* What the header of paddings says, policy by policy. `odd`: the odd pixel goes before the
 * image, by the remainder. */
static void place_axis(const rg_pool_desc *d, axis *a, int64_t output, bool odd)
{
    const rg_padding_policy policy = d->padding.policy;
    if (policy == RG_PADDING_EXPLICIT) {
        a->windows = output > 0 ? output : count_explicit(a, d->ceil_mode);
        return; /* the padding is as given */
    }
    const int64_t end = policy == RG_PADDING_VALID  ? a->size - (a->span - 1)
                        : policy == RG_PADDING_FULL ? a->size + (a->span - 1)
                                                    : a->size;
    a->windows = output > 0 ? output : steps_below(end, a->stride);
    const int64_t extra = (a->windows - 1) * a->stride + a->span - a->size;
    const double missing = fmax((double)extra, 0);
    if (policy == RG_PADDING_SAME_UPPER)
        a->before = (int64_t)floor(missing / 2);
    else if (policy == RG_PADDING_SAME_LOWER)
        a->before = (int64_t)ceil(missing / 2);
    else if (d->padding.align == RG_PADDING_CENTERED)
        a->before = (int64_t)trunc(((double)extra + (odd ? 1 : 0)) / 2);
    else
        a->before = d->padding.align == RG_PADDING_TOP_LEFT ? extra : 0;
    a->after = extra - a->before;
}

static void place(const rg_pool_desc *d, const window *v, axis at[2])
{
    const rg_padding *p = &d->padding;
    const rg_padding_remainder r = p->remainder;
    const bool top = r == RG_REMAINDER_TOP_LEFT || r == RG_REMAINDER_TOP_RIGHT;
    const bool left = r == RG_REMAINDER_TOP_LEFT || r == RG_REMAINDER_BOTTOM_LEFT;
    for (int i = 0; i < 2; i++)
        at[i] = (axis){ .size = i == 0 ? v->h : v->w,
                        .span = (int64_t)(d->window[i] - 1) * d->dilation[i] + 1,
                        .stride = d->stride[i],
                        .before = i == 0 ? p->top : p->left,
                        .after = i == 0 ? p->bottom : p->right };
    place_axis(d, &at[0], d->output[0], top);
    place_axis(d, &at[1], d->output[1], left);
}

/* The image, and what an average counts with it. */
static void set_counted(const rg_pool_desc *d, const axis at[2], window *v)
{
    double margin[2][2];
    for (int i = 0; i < 2; i++) {
        margin[i][0] = fmax(d->count_include_pad ? (double)at[i].before : d->zero_pad[i], 0);
        margin[i][1] = fmax(d->count_include_pad ? (double)at[i].after : d->zero_pad[i], 0);
    }
    v->count_top = -(int64_t)margin[0][0];
    v->count_bottom = v->h + (int64_t)margin[0][1];
    v->count_left = -(int64_t)margin[1][0];
    v->count_right = v->w + (int64_t)margin[1][1];
}

/* ONNX's index of the winner: its place in (n, c, h, w), or in (n, c, w, h). */
static double index_one(const window *v, int64_t n)
{
    double value;
    const int64_t winner = find_largest(v, &value);
    if (winner < 0)
        return -1;
    const int64_t r = winner / v->c / v->w, s = winner / v->c % v->w, plane = n * v->c + v->channel;
    return (double)(v->d->storage_order == 1 ? (plane * v->w + s) * v->h + r
                                             : (plane * v->h + r) * v->w + s);
}

/* Calls forward_one, or gradient_one where there is a dx, for all windows. */
static void each_window(const rg_pool_desc *d, const rg_ref_tensor *x, const double *dy, double *y,
                        double *indices, double *dx)
{
    const int32_t row = x->rank - 3;
    const int64_t images = row > 0 ? x->dims[0] : 1;
    window v = { .d = d, .h = x->dims[row], .w = x->dims[row + 1], .c = x->dims[row + 2] };
    axis at[2];
    place(d, &v, at);
    set_counted(d, at, &v);
    int64_t o = 0;
    for (int64_t n = 0; n < images; n++) {
        const int64_t image = n * v.h * v.w * v.c;
        v.x = x->data + image;
        for (int64_t i = 0; i < at[0].windows; i++) {
            for (int64_t j = 0; j < at[1].windows; j++) {
                v.row = i * d->stride[0] - at[0].before;
                v.column = j * d->stride[1] - at[1].before;
                for (v.channel = 0; v.channel < v.c; v.channel++, o++) {
                    if (dx != NULL)
                        gradient_one(&v, dy[o], y[o], dx + image);
                    else
                        y[o] = forward_one(&v);
                    if (indices != NULL)
                        indices[o] = index_one(&v, n);
                }
            }
        }
    }
}

void rg_pool_ref_forward(const void *desc, const rg_ref_tensor x[], rg_ref_tensor y[])
{
    const bool indices = ((const rg_pool_desc *)desc)->indices;
    each_window(desc, x, NULL, y->data, indices ? y[1].data : NULL, NULL);
}

void rg_pool_ref_gradient(const void *desc, const rg_ref_tensor dy[], const rg_ref_tensor x[],
                          const rg_ref_tensor y[], rg_ref_tensor dx[])
{
    each_window(desc, x, dy->data, y->data, NULL, dx->data); /* dx begins with zeros */
}
