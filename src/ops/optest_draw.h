/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Random descriptors and shapes: what an op's `draw` hook works on, and the helpers it draws with.
 * Numbers depend on the seed alone, on every machine. */
#ifndef RG_OPS_OPTEST_DRAW_H
#define RG_OPS_OPTEST_DRAW_H

#include "ops/optest.h"

#include <retrograde/neuron.h>
#include <retrograde/padding.h>

/* ---- numbers ---- */

/* 0 to n - 1; 0 where n is less than 1. */
static inline int64_t rg_draw_below(rg_draw *d, int64_t n)
{
    return n < 1 ? 0 : (int64_t)(rg_random_uniform(&d->random) * (double)n);
}

/* low to high, both included. */
static inline int64_t rg_draw_between(rg_draw *d, int64_t low, int64_t high)
{
    return low + rg_draw_below(d, high - low + 1);
}

static inline bool rg_draw_chance(rg_draw *d, double chance)
{
    return rg_random_uniform(&d->random) < chance;
}

static inline double rg_draw_real(rg_draw *d, double low, double high)
{
    return low + (high - low) * rg_random_uniform(&d->random);
}

/* A short decimal number, often one of the special ones. */
static inline double rg_draw_factor(rg_draw *d)
{
    static const double common_values[] = { 1, 1, 1, -1, 2, 0.5, 0, 0.25 };
    if (rg_draw_chance(d, 0.5))
        return common_values[rg_draw_below(d, 8)];
    return (double)rg_draw_between(d, -24, 24) / 8;
}

/* A dimension of at most `most`: often 1, small, or around a vector length; now and then prime or
 * 0. */
static inline int64_t rg_draw_size(rg_draw *d, int64_t most)
{
    static const int64_t edges[] = { 7,  8,  9,  15, 16, 17,  31,  32,  33,
                                     63, 64, 65, 67, 97, 127, 128, 129, 130 };
    const double kind = rg_random_uniform(&d->random);
    int64_t size = rg_draw_between(d, 1, 20);
    if (kind < 0.015)
        size = 0;
    else if (kind < 0.15)
        size = 1;
    else if (kind < 0.5)
        size = rg_draw_between(d, 2, 6);
    else if (kind < 0.75)
        size = edges[rg_draw_below(d, 18)];
    else if (kind < 0.85)
        size = rg_draw_between(d, 1, 130);
    return size <= most ? size : most < 1 ? 1 : rg_draw_between(d, 1, most);
}

/* Channels: 1 to 40, and the sizes that kernels treat apart. */
static inline int64_t rg_draw_channels(rg_draw *d, int64_t most)
{
    static const int64_t edges[] = { 64, 65, 128, 130, 48, 72, 96 };
    const int64_t size =
        rg_draw_chance(d, 0.25) ? edges[rg_draw_below(d, 7)] : rg_draw_between(d, 1, 40);
    return size <= most ? size : most < 1 ? 1 : rg_draw_between(d, 1, most);
}

/* ---- shapes ---- */

/* How many elements a tensor of this trial may have. */
static inline int64_t rg_draw_elements(rg_draw *d)
{
    const double kind = rg_random_uniform(&d->random);
    return kind < 0.3 ? 300 : kind < 0.9 ? 4000 : kind < 0.98 ? 20000 : 100000;
}

/* A shape of low to high dimensions. */
static inline rg_tensor_desc rg_draw_shape(rg_draw *d, int32_t low, int32_t high)
{
    int64_t dims[RG_MAX_RANK], left = rg_draw_elements(d);
    const bool many = rg_draw_chance(d, 0.2);
    const int32_t most = many || high < 4 ? high : low > 4 ? low : 4;
    const int32_t rank = (int32_t)rg_draw_between(d, low, most);
    const int32_t first = (int32_t)rg_draw_below(d, rank); /* drawn first: it may be long */
    for (int32_t k = 0; k < rank; k++) {
        const int32_t at = (first + k) % rank;
        const bool longest = k == 0 && rg_draw_chance(d, 0.1);
        dims[at] = longest ? rg_draw_between(d, 1, left) : rg_draw_size(d, left);
        left /= dims[at] > 0 ? dims[at] : 1;
    }
    return rg_tensor_desc_dense(d->dtype, rank, dims);
}

/* (n, h, w, c) or (h, w, c), of at most `most` elements: small images, and flat ones of up to 200
 * columns. */
static inline rg_tensor_desc rg_draw_image(rg_draw *d, int64_t most)
{
    int64_t dims[4] = { rg_draw_between(d, 1, 3) };
    if (rg_draw_chance(d, 0.02))
        dims[0] = 0;
    const int64_t left = most / (dims[0] > 0 ? dims[0] : 1);
    dims[3] = rg_draw_channels(d, left);
    const int64_t pixels = left / dims[3];
    const bool flat = rg_draw_chance(d, 0.35);
    dims[2] = rg_draw_between(d, 1, flat ? 200 : 20);
    dims[2] = dims[2] <= pixels ? dims[2] : rg_draw_between(d, 1, pixels < 1 ? 1 : pixels);
    const int64_t rows = pixels / dims[2];
    dims[1] = rg_draw_between(d, 1, flat ? 4 : 20);
    dims[1] = dims[1] <= rows ? dims[1] : rg_draw_between(d, 1, rows < 1 ? 1 : rows);
    if (rg_draw_chance(d, 0.1)) { /* tall in place of wide */
        const int64_t swapped = dims[1];
        dims[1] = dims[2];
        dims[2] = swapped;
    }
    const int32_t rank = rg_draw_chance(d, 0.8) ? 4 : 3;
    return rg_tensor_desc_dense(d->dtype, rank, rank == 4 ? dims : dims + 1);
}

static inline int64_t rg_draw_count(const rg_tensor_desc *desc)
{
    int64_t count = 1;
    for (int32_t k = 0; k < desc->rank; k++)
        count *= desc->dims[k];
    return count;
}

static inline rg_tensor_desc rg_draw_vector(rg_dtype dtype, int64_t length)
{
    return rg_tensor_desc_dense(dtype, 1, &length);
}

static inline rg_tensor_desc rg_draw_scalar(rg_dtype dtype)
{
    return rg_tensor_desc_dense(dtype, 0, NULL);
}

/* What a kernel computes in. */
static inline rg_dtype rg_draw_real_dtype(const rg_draw *d)
{
    return d->dtype == RG_F64 ? RG_F64 : RG_F32;
}

/* An axis of a tensor, from the front or from the end. */
static inline int64_t rg_draw_axis(rg_draw *d, int32_t rank)
{
    const int64_t axis = rg_draw_below(d, rank);
    return rg_draw_chance(d, 0.5) ? axis : axis - rank;
}

/* A list of distinct axes; returns how many. */
static inline int32_t rg_draw_axes(rg_draw *d, int32_t rank, int64_t axes[RG_MAX_RANK])
{
    int32_t count = 0;
    for (int32_t k = 0; k < rank; k++) {
        if (rg_draw_chance(d, 0.4))
            axes[count++] = rg_draw_chance(d, 0.5) ? k : k - rank;
    }
    return count;
}

/* ---- windows ---- */

/* One axis of a window: how long it is, how far its taps and its neighbours are apart. */
static inline void rg_draw_window(rg_draw *d, int64_t size, int32_t *window, int32_t *stride,
                                  int32_t *dilation)
{
    const double kind = rg_random_uniform(&d->random);
    *window = (int32_t)rg_draw_between(d, 1, kind < 0.7 ? 4 : kind < 0.9 ? 7 : size + 2);
    *stride = rg_draw_chance(d, 0.5) ? 1 : (int32_t)rg_draw_between(d, 1, 4);
    if (rg_draw_chance(d, 0.03))
        *stride = (int32_t)rg_draw_between(d, 1, 2 * size + 2);
    *dilation = rg_draw_chance(d, 0.75) ? 1 : (int32_t)rg_draw_between(d, 1, 3);
    if (rg_draw_chance(d, 0.03))
        *dilation = (int32_t)rg_draw_between(d, 1, size + 2);
}

/* Explicit numbers, negative ones too, or a policy. */
static inline void rg_draw_padding(rg_draw *d, const int32_t window[2], rg_padding *padding)
{
    int32_t *const sides[] = { &padding->top, &padding->left, &padding->bottom, &padding->right };
    const bool is_explicit = rg_draw_chance(d, 0.75), same = rg_draw_chance(d, 0.4);
    padding->policy = is_explicit ? RG_PADDING_EXPLICIT : (rg_padding_policy)rg_draw_below(d, 6);
    for (int i = 0; i < 4; i++) {
        const bool negative = rg_draw_chance(d, 0.15), none = rg_draw_chance(d, 0.3);
        *sides[i] = none || padding->policy != RG_PADDING_EXPLICIT ? 0
                    : negative ? (int32_t)-rg_draw_between(d, 1, rg_draw_chance(d, 0.3) ? 30 : 4)
                               : (int32_t)rg_draw_between(d, 0, window[i % 2]);
    }
    if (same && padding->policy == RG_PADDING_EXPLICIT)
        padding->top = padding->bottom = padding->left = padding->right = window[0] / 2;
}

/* A size of the result that the padding does not give: smaller, or larger than fits. */
static inline void rg_draw_output(rg_draw *d, int64_t rows, int64_t columns, int64_t output[2])
{
    output[0] = rg_draw_chance(d, 0.85) ? 0 : rg_draw_between(d, 1, rows + 2);
    output[1] = rg_draw_chance(d, 0.85) ? 0 : rg_draw_between(d, 1, columns + 2);
}

/* ---- fused neurons ---- */

/* A neuron after a sum or a norm: none in every other trial, otherwise one that is defined
 * everywhere. Where the pre-activation is `stored` in 16 bits, it decides on which side of a
 * kink it lies: none with a kink whose side does not follow from y. */
static inline void rg_draw_neuron(rg_draw *d, rg_neuron_desc *neuron, bool stored)
{
    enum { SHARP = 2 }; /* kinds at the end of the list that 16 bits are too coarse for */
    static const rg_neuron_kind kinds[] = {
        RG_NEURON_RELU,     RG_NEURON_RELU,        RG_NEURON_LINEAR,   RG_NEURON_SIGMOID,
        RG_NEURON_TANH,     RG_NEURON_ELU,         RG_NEURON_SOFTPLUS, RG_NEURON_SOFTSIGN,
        RG_NEURON_GELU,     RG_NEURON_GELU_TANH,   RG_NEURON_SWISH,    RG_NEURON_RELUN,
        RG_NEURON_ABSOLUTE, RG_NEURON_HARD_SIGMOID
    };
    const uint32_t size = neuron->size;
    const bool none = rg_draw_chance(d, 0.5);
    const bool rounded = stored && (d->dtype == RG_F16 || d->dtype == RG_BF16);
    *neuron = (rg_neuron_desc){ .size = size, .kind = RG_NEURON_NONE };
    if (none)
        return;
    const int64_t count = (int64_t)(sizeof kinds / sizeof kinds[0]);
    neuron->kind = kinds[rg_draw_below(d, rounded ? count - SHARP : count)];
    d->flags |= stored && neuron->kind != RG_NEURON_RELU ? RG_CASE_NARROW : 0;
    const bool numbered = neuron->kind == RG_NEURON_RELU || neuron->kind == RG_NEURON_LINEAR ||
                          neuron->kind == RG_NEURON_ELU || neuron->kind == RG_NEURON_RELUN;
    if (numbered && rg_draw_chance(d, 0.5)) {
        d->flags |= stored ? RG_CASE_NARROW : 0;
        neuron->has_a = true;
        neuron->a = (double)rg_draw_between(d, rounded ? 0 : -4, 8) / 8;
    }
}

#endif
