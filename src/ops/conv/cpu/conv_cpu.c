/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Convolution of any shape and layout on the CPU, for what no other strategy accepts; and the join
 * of partial sums of dw, of all strategies. */
#include "ops/conv/cpu/conv_cpu.h"
#include "ops/conv/cpu/conv_epilogue_cpu.h"

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

RG_INLINE void forward_pixel(const rg_conv_args *k, const conv_epilogue *e, int64_t image,
                             int64_t i, int64_t j, const rg_dtype T)
{
    const rg_conv_shape *s = &k->shape;
    const conv_window v = window_at(s, image, i, j);
    const int64_t to = pixel_offset(s->y, image, i, j), z = pixel_offset(k->z_step, image, i, j);
    for (int64_t g = 0; g < s->groups; g++) {
        const char *x = at(k->from, v.x + g * s->in * s->x[3], T);
        const char *w = at(k->w, v.w + g * s->w[0], T);
        for (int64_t o = 0; o < s->out; o += VLEN) {
            const int n = vlanes_left(s->out - o);
            vreal value = vset(0);
            for (int lane = 0; lane < n; lane++)
                value[lane] = dot(s, &v, x, at(w, (o + lane) * s->w[1], T), T);
            finish_channels(e, to, z, s->y[3], g * s->out + o, n, T, value);
        }
    }
}

/* A unit is a row of windows. */
RG_INLINE void forward(const rg_conv_args *k, int64_t begin, int64_t end, const rg_dtype T)
{
    const conv_epilogue e = epilogue_of(k);
    const int64_t rows = k->shape.row.count;
    for (int64_t unit = begin; unit < end; unit++)
        for (int64_t j = 0; j < k->shape.column.count; j++)
            forward_pixel(k, &e, unit / rows, unit % rows, j, T);
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
    const conv_epilogue epilogue = epilogue_of(k);
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t image = unit / s->row.size, r = unit % s->row.size;
        for (int64_t c = 0; c < s->column.size; c++) {
            const int64_t to = pixel_offset(s->x, image, r, c);
            const int64_t z = pixel_offset(k->z_step, image, r, c);
            for (int64_t g = 0; g < s->groups; g++) {
                const char *y = at(k->from, image * s->y[0] + g * s->out * s->y[3], T);
                const char *w = at(k->w, s->w_first + g * s->w[0], T);
                for (int64_t e = 0; e < s->in; e += VLEN) {
                    const int n = vlanes_left(s->in - e);
                    const vreal sum = collect(s, y, at(w, e * s->w[4], T), r, c, n, T);
                    finish_channels(&epilogue, to, z, s->x[3], g * s->in + e, n, T, sum);
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

/* ---- dw from partial sums ---- */

/* The sum of n elements of all slices, one after the other, with twice the digits of f32. */
RG_INLINE vreal join_slices(const rg_conv_join_args *k, int64_t from, int n)
{
    const real *const partials = k->partials;
    long_sum sum = long_sum_zero();
    for (int64_t slice = 0; slice < k->slices; slice++) {
        const vreal x = vload(partials, from + slice * k->slice_step, n, RG_REAL);
#if RG_REAL_F64
        sum.high += x;
#else
        sum = long_sum_add(sum, x);
#endif
    }
    return sum.high;
}

/* The same of totals in double. */
RG_OUTLINE vreal join_totals(const rg_conv_join_args *k, int64_t from, int n)
{
    const real *const end = (const real *)k->partials + k->slices * k->slice_step;
    const double *const totals = (const double *)(const void *)end + from;
    vreal value = vset(0);
    for (int lane = 0; lane < n; lane++) {
        double sum = 0;
        for (int64_t slice = 0; slice < k->slices; slice++)
            sum += totals[slice * k->slice_step + lane];
        value[lane] = (real)sum;
    }
    return value;
}

RG_INLINE void join(const rg_conv_join_args *k, int64_t begin, int64_t end, const rg_dtype T)
{
    enum { WIDTH = RG_CONV_JOIN_WIDTH };
    const int64_t pieces = (k->width + WIDTH - 1) / WIDTH, step = k->dw_step;
    for (int64_t unit = begin; unit < end; unit++) {
        int64_t from[RG_WALK_TENSORS];
        const int64_t first = unit % pieces * WIDTH, last = least(first + WIDTH, k->width);
        rg_walk_offsets(&k->lines, 2, unit / pieces, from);
        for (int64_t i = first; i < last; i += VLEN) {
            const int n = vlanes_left(last - i);
            char *const to = at_out(k->dw, k->dw_first + from[1] + i * step, T);
            vreal sum =
                k->has_totals ? join_totals(k, from[0] + i, n) : join_slices(k, from[0] + i, n);
            if (k->add)
                sum += load_groups(to, step, n, T, step == 1);
            store_groups(to, step, n, T, step == 1, sum);
        }
    }
}

RG_KERNEL(forward, rg_conv_args)
RG_KERNEL(data, rg_conv_args)
RG_KERNEL(weights, rg_conv_weights_args)
RG_KERNEL(join, rg_conv_join_args)

/* ---- table ---- */

RG_CPU_TABLE(conv, RG_CONV_KERNELS) = {
    [RG_CONV_FORWARD] = RG_ROW(forward),
    [RG_CONV_DATA] = RG_ROW(data),
    [RG_CONV_WEIGHTS] = RG_ROW(weights),
    [RG_CONV_JOIN] = RG_ROW(join),
};
