/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Gradients of normalizations with saved statistics, and of dropout, on memory of ONNX Runtime. */
#include "backend/cpu/kernel.h"
#include "ort/ort_native.h"

/* ---- dropout ---- */

RG_INLINE void dropout(const rg_ort_dropout_args *k, int64_t begin, int64_t end, const rg_dtype T)
{
    const vreal scale = vset((real)k->scale), zero = vset(0);
    const int64_t stop = least(end * RG_ORT_BLOCK, k->count);
    int64_t i = begin * RG_ORT_BLOCK;
    for (; i + VLEN <= stop; i += VLEN)
        vstore(k->dx, i, VLEN, T,
               vselect(vload_bytes(k->mask + i) != 0, vload(k->dy, i, VLEN, T) * scale, zero));
    if (i < stop) {
        const int n = (int)(stop - i);
        vstore(
            k->dx, i, n, T,
            vselect(vload_bytes_partial(k->mask + i, n) != 0, vload(k->dy, i, n, T) * scale, zero));
    }
}
RG_KERNEL(dropout, rg_ort_dropout_args)

/* ---- batch normalization ---- */

/* An element of a tensor that has one for each channel or row: of the data's dtype, or wider. */
RG_INLINE real load_statistic(const void *from, int64_t i, bool wide, const rg_dtype T)
{
    return wide ? load_one(from, i, RG_REAL) : load_one(from, i, T);
}

RG_INLINE void store_sum(void *to, int64_t i, bool wide, const rg_dtype T, real value)
{
    if (wide)
        store_one(to, i, RG_REAL, value);
    else
        store_one(to, i, T, value);
}

typedef struct sums {
    double dy, dy_x; /* of dy, and of dy (x - mean) */
} sums;

RG_INLINE void add_vector(const void *dy, const void *x, int64_t i, const int n, vreal mean,
                          const rg_dtype T, vreal *a, vreal *b)
{
    const vreal d = vload(dy, i, n, T); /* lanes from n on are 0 */
    *a += d;
    *b = vfma(d, vload(x, i, n, T) - mean, *b);
}

enum { AHEAD = 32 * VLEN }; /* elements that are fetched before they are needed */

/* Each run of pixels is summed in vectors, and these in double. */
RG_INLINE sums sum_plane(const void *dy, const void *x, int64_t first, int64_t count, vreal mean,
                         const rg_dtype T)
{
    vreal a = vset(0), b = vset(0), a1 = a, b1 = a, a2 = a, b2 = a, a3 = a, b3 = a;
    int64_t i = 0;
    for (; i + 4 * VLEN <= count; i += 4 * VLEN) {
        for (int line = 0; line < 4; line++) {
            __builtin_prefetch(at(dy, first + i + AHEAD + line * VLEN, T));
            __builtin_prefetch(at(x, first + i + AHEAD + line * VLEN, T));
        }
        add_vector(dy, x, first + i, VLEN, mean, T, &a, &b);
        add_vector(dy, x, first + i + VLEN, VLEN, mean, T, &a1, &b1);
        add_vector(dy, x, first + i + 2 * VLEN, VLEN, mean, T, &a2, &b2);
        add_vector(dy, x, first + i + 3 * VLEN, VLEN, mean, T, &a3, &b3);
    }
    for (; i + VLEN <= count; i += VLEN)
        add_vector(dy, x, first + i, VLEN, mean, T, &a, &b);
    if (i < count)
        add_vector(dy, x, first + i, (int)(count - i), mean, T, &a1, &b1);
    return (sums){ (double)vsum((a + a1) + (a2 + a3)), (double)vsum((b + b1) + (b2 + b3)) };
}

/* dx = p dy + q (x - mean) + r */
typedef struct combination {
    real p, q, r, mean;
} combination;

RG_INLINE void combine(void *dx, const void *dy, const void *x, int64_t first, int64_t count,
                       combination of, const rg_dtype T)
{
    const vreal vp = vset(of.p), vq = vset(of.q), vr = vset(of.r), vm = vset(of.mean);
    int64_t i = 0;
    for (; i + VLEN <= count; i += VLEN) {
        const vreal d = vload(dy, first + i, VLEN, T), e = vload(x, first + i, VLEN, T) - vm;
        vstore(dx, first + i, VLEN, T, vfma(vp, d, vfma(vq, e, vr)));
    }
    if (i < count) {
        const int n = (int)(count - i);
        const vreal d = vload(dy, first + i, n, T), e = vload(x, first + i, n, T) - vm;
        vstore(dx, first + i, n, T, vfma(vp, d, vfma(vq, e, vr)));
    }
}

/* dbias = sum dy, dscale = sum dy x̂, dx = scale / sigma (dy - dbias / m - x̂ dscale / m), where
 * x̂ = (x - mean) / sigma and m = images pixels */
RG_INLINE void batch_norm(const rg_ort_batch_norm_args *k, int64_t begin, int64_t end,
                          const rg_dtype T)
{
    const double count = (double)(k->images * k->pixels);
    for (int64_t c = begin; c < end; c++) {
        const real mean = load_statistic(k->mean, c, k->wide, T);
        const double inverse = (double)load_statistic(k->inverse, c, k->wide, T);
        const double scale = (double)load_statistic(k->scale, c, k->wide_scale, T) * inverse;
        sums s = { 0, 0 };
        for (int64_t n = 0; n < k->images; n++) {
            const sums plane =
                sum_plane(k->dy, k->x, (n * k->channels + c) * k->pixels, k->pixels, vset(mean), T);
            s.dy += plane.dy;
            s.dy_x += plane.dy_x;
        }
        if (k->dscale != NULL)
            store_sum(k->dscale, c, k->wide_scale, T, (real)(s.dy_x * inverse));
        if (k->dbias != NULL)
            store_sum(k->dbias, c, k->wide_scale, T, (real)s.dy);
        const combination of = { (real)scale, (real)(-scale * s.dy_x * inverse * inverse / count),
                                 (real)(-scale * s.dy / count), mean };
        for (int64_t n = k->images - 1; k->dx != NULL && n >= 0; n--) /* the last is in the cache */
            combine(k->dx, k->dy, k->x, (n * k->channels + c) * k->pixels, k->pixels, of, T);
    }
}
RG_KERNEL(batch_norm, rg_ort_batch_norm_args)

RG_INLINE void channel_sums(const rg_ort_batch_norm_args *k, int64_t begin, int64_t end,
                            const rg_dtype T)
{
    for (int64_t c = begin; c < end; c++) {
        double sum = 0;
        for (int64_t n = 0; n < k->images; n++) {
            const int64_t first = (n * k->channels + c) * k->pixels;
            vreal a = vset(0), b = vset(0);
            int64_t i = 0;
            for (; i + 2 * VLEN <= k->pixels; i += 2 * VLEN) {
                a += vload(k->dy, first + i, VLEN, T);
                b += vload(k->dy, first + i + VLEN, VLEN, T);
            }
            for (; i < k->pixels; i += VLEN)
                a += vload(k->dy, first + i, vlanes_left(k->pixels - i), T);
            sum += (double)vsum(a + b);
        }
        store_one(k->dbias, c, T, (real)sum);
    }
}
RG_KERNEL(channel_sums, rg_ort_batch_norm_args)

/* ---- layer normalization ---- */

/* b = dy scale / sigma, dx = b - mean(b) - x̂ mean(b x̂) */
RG_INLINE void layer_norm(const rg_ort_layer_norm_args *k, int64_t begin, int64_t end,
                          const rg_dtype T)
{
    const int64_t columns = k->columns;
    for (int64_t row = begin; row < end; row++) {
        const int64_t first = row * columns;
        const vreal mean = vset(load_statistic(k->mean, row, k->wide, T));
        const double inverse = (double)load_statistic(k->inverse, row, k->wide, T);
        vreal a = vset(0), b = vset(0);
        for (int64_t i = 0; i < columns; i += VLEN) {
            const int n = vlanes_left(columns - i);
            const vreal g = vload(k->dy, first + i, n, T) * vload(k->scale, i, n, T);
            a += g;
            b += g * (vload(k->x, first + i, n, T) - mean);
        }
        const vreal p = vset((real)inverse);
        const vreal q =
            vset((real)(-(double)vsum(b) * inverse * inverse * inverse / (double)columns));
        const vreal r = vset((real)(-(double)vsum(a) * inverse / (double)columns));
        for (int64_t i = 0; i < columns; i += VLEN) {
            const int n = vlanes_left(columns - i);
            const vreal g = vload(k->dy, first + i, n, T) * vload(k->scale, i, n, T);
            const vreal e = vload(k->x, first + i, n, T) - mean;
            vstore(k->dx, first + i, n, T, vfma(p, g, vfma(q, e, r)));
        }
    }
}
RG_KERNEL(layer_norm, rg_ort_layer_norm_args)

/* dbias = sum of dy over rows, dscale = sum of dy x̂: a vector of columns at a time. Rows are
 * summed in groups, which keeps what is lost small. */
RG_INLINE void column_sums(const rg_ort_layer_norm_args *k, int64_t column, const int n,
                           const rg_dtype T)
{
    enum { GROUP = 128 };
    vreal a = vset(0), b = vset(0);
    for (int64_t first = 0; first < k->rows; first += GROUP) {
        vreal c = vset(0), d = vset(0);
        for (int64_t row = first; row < least(first + GROUP, k->rows); row++) {
            const vreal g = vload(k->dy, row * k->columns + column, n, T);
            const vreal e = vload(k->x, row * k->columns + column, n, T);
            c += g;
            d += g * ((e - vset(load_statistic(k->mean, row, k->wide, T))) *
                      vset(load_statistic(k->inverse, row, k->wide, T)));
        }
        a += c;
        b += d;
    }
    if (k->dbias != NULL)
        vstore(k->dbias, column, n, T, a);
    if (k->dscale != NULL)
        vstore(k->dscale, column, n, T, b);
}

RG_INLINE void layer_norm_columns(const rg_ort_layer_norm_args *k, int64_t begin, int64_t end,
                                  const rg_dtype T)
{
    const int64_t stop = least(end * RG_ORT_COLUMNS, k->columns);
    int64_t i = begin * RG_ORT_COLUMNS;
    for (; i + VLEN <= stop; i += VLEN)
        column_sums(k, i, VLEN, T);
    if (i < stop)
        column_sums(k, i, (int)(stop - i), T);
}
RG_KERNEL(layer_norm_columns, rg_ort_layer_norm_args)

RG_CPU_TABLE(ort_norm, RG_ORT_KERNELS) = {
    [RG_ORT_DROPOUT] = RG_ROW(dropout),
    [RG_ORT_BATCH_NORM] = RG_ROW(batch_norm),
    [RG_ORT_CHANNEL_SUMS] = RG_ROW(channel_sums),
    [RG_ORT_LAYER_NORM] = RG_ROW(layer_norm),
    [RG_ORT_LAYER_NORM_COLUMNS] = RG_ROW(layer_norm_columns),
};
