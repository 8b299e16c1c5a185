/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Gradients of convolutions, on memory of ONNX Runtime. Small ones: loops over the definition,
 * which for a few thousand products are sooner done than tensors are copied for the ops. Volumes:
 * their windows as columns of a matrix, and back. */
#include "backend/cpu/kernel.h"
#include "ort/ort_native.h"

/* Output pixels o whose input pixel o stride + offset is in the image: from *first to *last - 1. */
RG_INLINE void range_of(int64_t offset, int64_t stride, int64_t in, int64_t out, int64_t *first,
                        int64_t *last)
{
    *first = offset < 0 ? (-offset + stride - 1) / stride : 0;
    *last = in > offset ? least(out, (in - offset - 1) / stride + 1) : 0;
}

/* A plane of dy and one of x, joined by one number of w for each tap. Results may be NULL. */
RG_INLINE void conv_planes(const rg_ort_conv_args *k, const real *dy, const real *x, const real *w,
                           real *dx, real *dw)
{
    for (int64_t tap = 0; tap < k->window[0] * k->window[1]; tap++) {
        const int64_t down = tap / k->window[1] * k->dilation[0] - k->before[0];
        const int64_t right = tap % k->window[1] * k->dilation[1] - k->before[1];
        const int64_t step = k->stride[1];
        int64_t top, bottom, left, end;
        real sum = 0;
        range_of(down, k->stride[0], k->in[0], k->out[0], &top, &bottom);
        range_of(right, step, k->in[1], k->out[1], &left, &end);
        for (int64_t i = top; i < bottom; i++) {
            const real *from = dy + i * k->out[1];
            const int64_t row = (i * k->stride[0] + down) * k->in[1] + right;
            for (int64_t j = left; dx != NULL && j < end; j++)
                dx[row + j * step] += w[tap] * from[j];
            for (int64_t j = left; dw != NULL && j < end; j++)
                sum += x[row + j * step] * from[j];
        }
        if (dw != NULL)
            dw[tap] += sum;
    }
}

RG_INLINE void clear(real *data, int64_t count)
{
    if (data != NULL)
        memset(data, 0, (size_t)count * sizeof *data);
}

static void small_conv(const void *args, int64_t begin, int64_t end)
{
    const rg_ort_conv_args *k = args;
    const int64_t in = k->in[0] * k->in[1], out = k->out[0] * k->out[1];
    const int64_t taps = k->window[0] * k->window[1];
    const int64_t each_in = k->channels / k->groups, each_out = k->outputs / k->groups;
    real *const dx = k->dx, *const dw = k->dw, *const db = k->db;
    (void)begin, (void)end; /* one unit */
    clear(dx, k->images * k->channels * in);
    clear(dw, k->outputs * each_in * taps);
    clear(db, k->outputs);
    for (int64_t plane = 0; plane < k->images * k->outputs; plane++) {
        const int64_t o = plane % k->outputs;
        const int64_t first = plane / k->outputs * k->channels + o / each_out * each_in;
        const real *dy = (const real *)k->dy + plane * out;
        for (int64_t c = 0; c < each_in; c++) {
            const int64_t at = (o * each_in + c) * taps;
            conv_planes(k, dy, (const real *)k->x + (first + c) * in, (const real *)k->w + at,
                        dx != NULL ? dx + (first + c) * in : NULL, dw != NULL ? dw + at : NULL);
        }
        for (int64_t i = 0; db != NULL && i < out; i++)
            db[o] += dy[i];
    }
}

/* ---- volumes ---- */

/* One tap of a window: for each output its element of the volume. */
typedef struct volume_tap {
    int64_t offset[3], first[3], last[3]; /* outputs first to last - 1 are inside */
} volume_tap;

RG_INLINE volume_tap tap_of(const rg_ort_volume_args *k, int64_t tap)
{
    volume_tap t;
    for (int d = 2; d >= 0; d--) {
        t.offset[d] = tap % k->window[d] * k->dilation[d] - k->before[d];
        tap /= k->window[d];
        range_of(t.offset[d], k->stride[d], k->in[d], k->out[d], &t.first[d], &t.last[d]);
        t.last[d] = t.last[d] > t.first[d] ? t.last[d] : t.first[d];
    }
    return t;
}

/* Where the row of the volume for output row `row` begins, for output column 0; -1: outside. */
RG_INLINE bool find_row(const rg_ort_volume_args *k, const volume_tap *t, int64_t row, int64_t *at)
{
    const int64_t d = row / k->out[1], h = row % k->out[1];
    *at = ((d * k->stride[0] + t->offset[0]) * k->in[1] + h * k->stride[1] + t->offset[1]) *
              k->in[2] +
          t->offset[2];
    return d >= t->first[0] && d < t->last[0] && h >= t->first[1] && h < t->last[1];
}

/* Rows are short: whole calls of memset and memcpy would take longer than their elements. */
RG_INLINE void clear_row(real *to, int64_t count)
{
    for (int64_t i = 0; i < count; i += VLEN)
        vstore_partial(to, i, vlanes_left(count - i), RG_REAL, vset(0));
}

RG_INLINE void copy_row(const volume_tap *t, const real *from, int64_t step, int64_t width,
                        real *to)
{
    const int64_t first = least(t->first[2], width), last = least(t->last[2], width);
    if (last - first < width)
        clear_row(to, width);
    for (int64_t i = first; step == 1 && i < last; i += VLEN)
        vstore_partial(to, i, vlanes_left(last - i), RG_REAL,
                       vload_partial(from, i, vlanes_left(last - i), RG_REAL));
    for (int64_t i = first; step != 1 && i < last; i++)
        to[i] = from[i * step];
}

RG_INLINE void sum_row(const volume_tap *t, const real *from, int64_t step, real *to)
{
    const int64_t last = t->last[2];
    for (int64_t i = t->first[2]; step == 1 && i < last; i += VLEN) {
        const int n = vlanes_left(last - i);
        vstore_partial(to, i, n, RG_REAL,
                       vload_partial(to, i, n, RG_REAL) + vload_partial(from, i, n, RG_REAL));
    }
    for (int64_t i = t->first[2]; step != 1 && i < last; i++)
        to[i * step] += from[i];
}

static void volume_columns(const void *args, int64_t begin, int64_t end)
{
    const rg_ort_volume_args *k = args;
    const int64_t taps = k->window[0] * k->window[1] * k->window[2];
    const int64_t rows = k->out[0] * k->out[1], width = k->out[2];
    for (int64_t i = begin * taps; i < end * taps; i++) {
        const real *from = (const real *)k->from + i / taps * k->in[0] * k->in[1] * k->in[2];
        const volume_tap t = tap_of(k, i % taps);
        for (int64_t row = 0; row < rows; row++) {
            real *to = (real *)k->to + i * k->pitch + row * width;
            int64_t at;
            if (find_row(k, &t, row, &at))
                copy_row(&t, from + at, k->stride[2], width, to);
            else
                clear_row(to, width);
        }
    }
}

static void volume_sums(const void *args, int64_t begin, int64_t end)
{
    const rg_ort_volume_args *k = args;
    const int64_t taps = k->window[0] * k->window[1] * k->window[2], step = k->stride[2];
    const int64_t rows = k->out[0] * k->out[1], in = k->in[0] * k->in[1] * k->in[2];
    clear((real *)k->to + begin * in, (end - begin) * in);
    for (int64_t i = begin * taps; i < end * taps; i++) {
        const volume_tap t = tap_of(k, i % taps);
        for (int64_t row = 0; row < rows; row++) {
            const real *from = (const real *)k->from + i * k->pitch + row * k->out[2];
            int64_t at;
            if (!find_row(k, &t, row, &at))
                continue;
            sum_row(&t, from, step, (real *)k->to + i / taps * in + at);
        }
    }
}

#define IN_REAL(name)        \
    {                        \
        {                    \
            [RG_REAL] = name \
        }                    \
    }

RG_CPU_TABLE(ort_conv, RG_ORT_KERNELS) = {
    [RG_ORT_SMALL_CONV] = IN_REAL(small_conv),
    [RG_ORT_VOLUME_COLUMNS] = IN_REAL(volume_columns),
    [RG_ORT_VOLUME_SUMS] = IN_REAL(volume_sums),
};
