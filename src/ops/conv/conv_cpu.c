/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Convolution of any shape and layout on the CPU; files beside this one have faster ways. */
#include "backend/cpu/columns.h"
#include "backend/cpu/long_sum_cpu.h"
#include "ops/conv/conv.h"
#include "ops/fused_neuron/any_neuron_cpu.h"

/* ---- the end of a sum: bias, neuron, conversion ---- */

/* A pixel of the result: where its channel 0 is in the result and in z, and its channels. */
typedef struct conv_pixel {
    int64_t to, z;
    int64_t step;
    bool dense;
} conv_pixel;

/* Pixel (i, j) of an image, in a result of these steps. */
RG_INLINE conv_pixel pixel_at(const rg_conv_args *k, const int64_t step[4], bool dense,
                              int64_t image, int64_t i, int64_t j)
{
    return (conv_pixel){ .to = image * step[0] + i * step[1] + j * step[2],
                         .z = image * k->z_step[0] + i * k->z_step[1] + j * k->z_step[2],
                         .step = step[3],
                         .dense = dense };
}

/* Channels c to c + n - 1 of a pixel. */
RG_OUTLINE void finish(const rg_conv_args *k, const neuron_constants *constants,
                       const conv_pixel *pixel, int64_t c, int n, rg_dtype T, vreal value)
{
    const int64_t step = pixel->step;
    const bool dense = pixel->dense;
    char *const out = at_out(k->to, pixel->to + c * step, T);
    if (k->has_b)
        value += load_groups(at(k->b, c * k->b_step, T), k->b_step, n, T, k->b_step == 1);
    if (k->has_z)
        store_groups(at_out(k->z, pixel->z + c * k->z_step[3], T), k->z_step[3], n, T, k->z_dense,
                     value);
    value = any_neuron(k->neuron.kind, constants, value);
    if (k->add)
        value += load_groups(out, step, n, T, dense);
    store_groups(out, step, n, T, dense, value);
}

/* ---- forward: any shape ---- */

/* The taps of one window that are in the image, and where the first one and its weight are. */
typedef struct conv_window {
    int64_t rows, columns;   /* of taps */
    int64_t row, column;     /* the first of them */
    int64_t x, w;            /* offsets */
    int64_t x_row, x_column; /* steps from tap to tap */
} conv_window;

RG_INLINE conv_window window_at(const rg_conv_shape *s, int64_t image, int64_t i, int64_t j)
{
    conv_window v;
    int64_t end;
    rg_conv_taps(&s->row, i, &v.row, &end);
    v.rows = end - v.row;
    rg_conv_taps(&s->column, j, &v.column, &end);
    v.columns = end - v.column;
    const int64_t r = i * s->row.stride - s->row.before + v.row * s->row.dilation;
    const int64_t c = j * s->column.stride - s->column.before + v.column * s->column.dilation;
    v.x = image * s->x[0] + r * s->x[1] + c * s->x[2];
    v.w = s->w_first + v.row * s->w[2] + v.column * s->w[3];
    v.x_row = s->row.dilation * s->x[1];
    v.x_column = s->column.dilation * s->x[2];
    return v;
}

/* One output channel of one window: a sum in VLEN lanes, channel c in lane c % VLEN. */
RG_INLINE real dot(const rg_conv_shape *s, const conv_window *v, const void *x, const void *w,
                   const rg_dtype T)
{
    const bool dense_w = s->w[4] == 1;
    long_chain sum = long_chain_start();
    for (int64_t p = 0; p < v->rows; p++) {
        for (int64_t q = 0; q < v->columns; q++) {
            const char *a = at(x, p * v->x_row + q * v->x_column, T);
            const char *b = at(w, p * s->w[2] + q * s->w[3], T);
            for (int64_t c = 0; c < s->in; c += VLEN) {
                const int n = vlanes_left(s->in - c);
                sum.run = vfma(load_groups(at(a, c * s->x[3], T), s->x[3], n, T, s->x_dense),
                               load_groups(at(b, c * s->w[4], T), s->w[4], n, T, dense_w), sum.run);
                long_chain_count(&sum);
            }
        }
    }
    return vsum(long_chain_end(&sum));
}

RG_INLINE void forward_pixel(const rg_conv_args *k, const neuron_constants *constants,
                             int64_t image, int64_t i, int64_t j, const rg_dtype T)
{
    const rg_conv_shape *s = &k->shape;
    const conv_window v = window_at(s, image, i, j);
    const conv_pixel pixel = pixel_at(k, s->y, s->y_dense, image, i, j);
    for (int64_t g = 0; g < s->groups; g++) {
        const char *x = at(k->from, v.x + g * s->in * s->x[3], T);
        const char *w = at(k->w, v.w + g * s->w[0], T);
        for (int64_t o = 0; o < s->out; o += VLEN) {
            const int n = vlanes_left(s->out - o);
            vreal value = vset(0);
            for (int e = 0; e < n; e++)
                value[e] = dot(s, &v, x, at(w, (o + e) * s->w[1], T), T);
            finish(k, constants, &pixel, g * s->out + o, n, T, value);
        }
    }
}

/* A unit is a row of windows. */
RG_INLINE void forward(const rg_conv_args *k, int64_t begin, int64_t end, const rg_dtype T)
{
    const neuron_constants constants = neuron_constants_of(&k->neuron.numbers);
    const int64_t rows = k->shape.row.count;
    for (int64_t unit = begin; unit < end; unit++)
        for (int64_t j = 0; j < k->shape.column.count; j++)
            forward_pixel(k, &constants, unit / rows, unit % rows, j, T);
}

/* ---- backward data: any shape ---- */

/* Adds what the window at `y` passes to n channels of a pixel, by the weights at `w`. */
RG_INLINE void spread(const rg_conv_shape *s, const char *y, const char *w, int n, long_chain *sum,
                      const rg_dtype T)
{
    for (int64_t o = 0; o < s->out; o++) {
        sum->run = vfma(vset(load_one(y, o * s->y[3], T)),
                        load_groups(at(w, o * s->w[1], T), s->w[4], n, T, s->w[4] == 1), sum->run);
        long_chain_count(sum);
    }
}

/* n channels of a pixel, from all windows that contain it. `y` and `w` are those of the group. */
RG_INLINE vreal collect(const rg_conv_shape *s, const char *y, const char *w, int64_t r, int64_t c,
                        int n, const rg_dtype T)
{
    long_chain sum = long_chain_start();
    for (int64_t p = 0; p < s->row.window; p++) {
        const int64_t i = rg_conv_window(&s->row, r, p);
        for (int64_t q = 0; i >= 0 && q < s->column.window; q++) {
            const int64_t j = rg_conv_window(&s->column, c, q);
            if (j >= 0)
                spread(s, at(y, i * s->y[1] + j * s->y[2], T), at(w, p * s->w[2] + q * s->w[3], T),
                       n, &sum, T);
        }
    }
    return long_chain_end(&sum);
}

/* A unit is a row of the image. */
RG_INLINE void data(const rg_conv_args *k, int64_t begin, int64_t end, const rg_dtype T)
{
    const rg_conv_shape *s = &k->shape;
    const neuron_constants constants = neuron_constants_of(&k->neuron.numbers);
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t image = unit / s->row.size, r = unit % s->row.size;
        for (int64_t c = 0; c < s->column.size; c++) {
            const conv_pixel pixel = pixel_at(k, s->x, s->x_dense, image, r, c);
            for (int64_t g = 0; g < s->groups; g++) {
                const char *y = at(k->from, image * s->y[0] + g * s->out * s->y[3], T);
                const char *w = at(k->w, s->w_first + g * s->w[0], T);
                for (int64_t e = 0; e < s->in; e += VLEN) {
                    const int n = vlanes_left(s->in - e);
                    const vreal sum = collect(s, y, at(w, e * s->w[4], T), r, c, n, T);
                    finish(k, &constants, &pixel, g * s->in + e, n, T, sum);
                }
            }
        }
    }
}

/* ---- weights: any shape ---- */

/* n weights of one tap: the sum over images, rows and columns. `x` and `y` are those of the group's
 * channels, of image 0. */
RG_INLINE vreal correlate(const rg_conv_shape *s, const char *x, const char *y, int64_t p,
                          int64_t q, int n, const rg_dtype T)
{
    int64_t i0, i1, j0, j1;
    rg_conv_windows(&s->row, p, &i0, &i1);
    rg_conv_windows(&s->column, q, &j0, &j1);
    const int64_t step = s->column.stride * s->x[2];
    const int64_t first = q * s->column.dilation - s->column.before;
    long_chain sum = long_chain_start();
    for (int64_t image = 0; image < s->images; image++) {
        for (int64_t i = i0; i < i1; i++) {
            const int64_t r = i * s->row.stride - s->row.before + p * s->row.dilation;
            const char *a = at(x, image * s->x[0] + r * s->x[1] + first * s->x[2], T);
            const char *b = at(y, image * s->y[0] + i * s->y[1], T);
            for (int64_t j = j0; j < j1; j++) {
                sum.run = vfma(vset(load_one(b, j * s->y[2], T)),
                               load_groups(at(a, j * step, T), s->x[3], n, T, s->x_dense), sum.run);
                long_chain_count(&sum);
            }
        }
    }
    return long_chain_end(&sum);
}

/* n weights from `at` on; D is their dtype. */
RG_OUTLINE void put_weights(const rg_conv_weights_args *k, int64_t at, int n, rg_dtype D, vreal sum)
{
    const int64_t step = k->shape.w[4];
    char *const to = at_out(k->dw, at, D);
    if (k->add)
        sum += load_groups(to, step, n, D, step == 1);
    store_groups(to, step, n, D, step == 1, sum);
}

/* A unit is one tap of one output channel. */
RG_INLINE void weights(const rg_conv_weights_args *k, int64_t begin, int64_t end, const rg_dtype T)
{
    const rg_conv_shape *s = &k->shape;
    const int64_t across = s->column.window, taps = s->row.window * across;
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t channel = unit / taps, p = unit % taps / across, q = unit % across;
        const int64_t g = channel / s->out, o = channel % s->out;
        const char *y = at(k->dy, channel * s->y[3], T);
        for (int64_t c = 0; c < s->in; c += VLEN) {
            const int n = vlanes_left(s->in - c);
            vreal sum = correlate(s, at(k->x, (g * s->in + c) * s->x[3], T), y, p, q, n, T);
            const int64_t w = s->w_first + g * s->w[0] + o * s->w[1] + p * s->w[2] + q * s->w[3];
            put_weights(k, w + c * s->w[4], n, k->wide ? RG_REAL : T, sum);
        }
    }
}

RG_KERNEL(forward, rg_conv_args)
RG_KERNEL(data, rg_conv_args)
RG_KERNEL(weights, rg_conv_weights_args)

/* ---- table ---- */

RG_CPU_TABLE(conv, RG_CONV_KERNELS) = {
    [RG_CONV_FORWARD] = RG_ROW(forward),
    [RG_CONV_DATA] = RG_ROW(data),
    [RG_CONV_WEIGHTS] = RG_ROW(weights),
};
