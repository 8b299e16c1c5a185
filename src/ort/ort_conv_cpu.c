/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The gradient of small convolutions, on memory of ONNX Runtime: loops over its definition. For a
 * few thousand products they are sooner done than tensors are copied for the ops. */
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

RG_CPU_TABLE(ort_conv, RG_ORT_KERNELS) = {
    [RG_ORT_SMALL_CONV] = { { [RG_REAL] = small_conv } },
};
