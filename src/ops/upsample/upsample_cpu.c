/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Upsample on the CPU: a unit is a row of the result, and each pixel runs over its channels. */
#include "backend/cpu/kernel.h"
#include "ops/upsample/upsample.h"

/* Bytes from one index of dimension d to the next, of `from` (t = 0) or `to` (t = 1). */
RG_INLINE int64_t step_of(const rg_upsample_args *k, int t, int d, const rg_dtype T)
{
    return k->strides[t][d] * (vbytes(T) / VLEN);
}

/* n channels of a pixel from i on, neighbours or not. */
RG_INLINE vreal load_channels(const rg_upsample_args *k, const char *pixel, int64_t i, const int n,
                              const rg_dtype T)
{
    return k->dense ? vload(pixel, i, n, T) : vgather(pixel, i, k->strides[0][3], n, T);
}

RG_INLINE void store_channels(const rg_upsample_args *k, char *pixel, int64_t i, const int n,
                              const rg_dtype T, vreal value, const bool stream)
{
    const int64_t step = k->strides[1][3];
    if (k->add)
        value += k->dense ? vload(pixel, i, n, T) : vgather(pixel, i, step, n, T);
    if (!k->dense)
        vscatter(pixel, i, step, n, T, value);
    else if (stream && n == VLEN)
        vstream(pixel, i, T, value);
    else
        vstore(pixel, i, n, T, value);
}

/* Whether results go past the cache: every pixel must start at an aligned address. */
RG_INLINE bool is_streamed(const rg_upsample_args *k, const rg_dtype T)
{
    uintptr_t all = (uintptr_t)k->to;
    for (int d = 0; d < 3; d++)
        all |= (uintptr_t)step_of(k, 1, d, T);
    return k->stream && k->dense && all % RG_VECTOR_BYTES == 0;
}

/* ---- forward ---- */

/* The four pixels that an output lies between, and its place there. */
typedef struct corners {
    const char *pixel[2][2]; /* upper and lower row, left and right */
    real down, right;        /* 0: the lower row, or the right pixels, are not read */
} corners;

RG_INLINE vreal between(vreal a, vreal b, real f)
{
    return vfma(vset(f), b, vset(1 - f) * a);
}

RG_INLINE vreal forward_row(const rg_upsample_args *k, const char *const pair[2], real right,
                            int64_t i, const int n, const rg_dtype T)
{
    const vreal left = load_channels(k, pair[0], i, n, T);
    return right > 0 ? between(left, load_channels(k, pair[1], i, n, T), right) : left;
}

RG_INLINE vreal forward_step(const rg_upsample_args *k, const corners *c, int64_t i, const int n,
                             const rg_dtype T)
{
    const vreal upper = forward_row(k, c->pixel[0], c->right, i, n, T);
    if (!(c->down > 0))
        return upper;
    return between(upper, forward_row(k, c->pixel[1], c->right, i, n, T), c->down);
}

RG_INLINE void forward_pixel(const rg_upsample_args *k, const corners *c, char *to,
                             const rg_dtype T, const bool stream)
{
    int64_t i = 0;
    for (; i + VLEN <= k->channels; i += VLEN)
        store_channels(k, to, i, VLEN, T, forward_step(k, c, i, VLEN, T), stream);
    if (i < k->channels) {
        const int n = (int)(k->channels - i);
        store_channels(k, to, i, n, T, forward_step(k, c, i, n, T), false);
    }
}

RG_INLINE void forward_rows(const rg_upsample_args *k, int64_t begin, int64_t end, const rg_dtype T,
                            const bool stream)
{
    const rg_upsample_axis *rows = &k->axes[0], *columns = &k->axes[1];
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t image = unit / rows->out, o = unit % rows->out;
        const rg_upsample_tap y = rg_upsample_tap_of(rows, o);
        const char *from = (const char *)k->from + image * step_of(k, 0, 0, T);
        const char *row[] = { from + y.first * step_of(k, 0, 1, T),
                              from + y.second * step_of(k, 0, 1, T) };
        char *to = (char *)k->to + image * step_of(k, 1, 0, T) + o * step_of(k, 1, 1, T);
        for (int64_t p = 0; p < columns->out; p++) {
            const rg_upsample_tap x = rg_upsample_tap_of(columns, p);
            const int64_t left = x.first * step_of(k, 0, 2, T);
            const int64_t right = x.second * step_of(k, 0, 2, T);
            const corners c = { { { row[0] + left, row[0] + right },
                                  { row[1] + left, row[1] + right } },
                                (real)y.f,
                                (real)x.f };
            forward_pixel(k, &c, to, T, stream);
            to += step_of(k, 1, 2, T);
        }
    }
}

RG_INLINE void upsample_forward(const rg_upsample_args *k, int64_t begin, int64_t end,
                                const rg_dtype T)
{
    if (is_streamed(k, T))
        forward_rows(k, begin, end, T, true);
    else
        forward_rows(k, begin, end, T, false);
}

/* ---- gradient: dx gathers, along rows of dy first, then down ---- */

/* Outputs that look at one pixel along an axis, and the weights of the first ones. */
enum { TAPS = 32 };
typedef struct looks {
    const rg_upsample_axis *axis;
    int64_t pixel, begin, end;
    real weight[TAPS];
} looks;

RG_INLINE real weigh(const rg_upsample_axis *axis, int64_t pixel, int64_t o)
{
    const rg_upsample_tap tap = rg_upsample_tap_of(axis, o);
    return tap.first == pixel ? 1 - (real)tap.f : (real)tap.f;
}

RG_INLINE void find_looks(looks *l, const rg_upsample_axis *axis, int64_t pixel)
{
    l->axis = axis;
    l->pixel = pixel;
    l->begin = rg_upsample_find(axis, pixel, false);
    l->end = rg_upsample_find(axis, pixel + 1, true);
    for (int64_t o = l->begin; o < least(l->end, l->begin + TAPS); o++)
        l->weight[o - l->begin] = weigh(axis, pixel, o);
}

RG_INLINE real weight_of(const looks *l, int64_t o)
{
    return o - l->begin < TAPS ? l->weight[o - l->begin] : weigh(l->axis, l->pixel, o);
}

/* `blocks` vectors of channels from i on, the last of them with n. */
RG_INLINE void gradient_step(const rg_upsample_args *k, const looks *rows, const looks *columns,
                             const char *from, char *to, int64_t i, const int blocks, const int n,
                             const rg_dtype T, const bool stream)
{
    vreal sum[4] = { vset(0), vset(0), vset(0), vset(0) };
    for (int64_t o = rows->begin; o < rows->end; o++) {
        vreal row[4] = { vset(0), vset(0), vset(0), vset(0) };
        const char *dy = from + o * step_of(k, 0, 1, T) + columns->begin * step_of(k, 0, 2, T);
        for (int64_t p = columns->begin; p < columns->end; p++) {
            const vreal weight = vset(weight_of(columns, p));
            for (int b = 0; b < blocks; b++)
                row[b] = vfma(weight, load_channels(k, dy, i + b * VLEN, n, T), row[b]);
            dy += step_of(k, 0, 2, T);
        }
        const vreal weight = vset(weight_of(rows, o));
        for (int b = 0; b < blocks; b++)
            sum[b] = vfma(weight, row[b], sum[b]);
    }
    for (int b = 0; b < blocks; b++)
        store_channels(k, to, i + b * VLEN, n, T, sum[b], stream);
}

RG_INLINE void gradient_rows(const rg_upsample_args *k, int64_t begin, int64_t end,
                             const rg_dtype T, const bool stream)
{
    looks rows, columns;
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t image = unit / k->axes[0].in, y = unit % k->axes[0].in;
        const char *from = (const char *)k->from + image * step_of(k, 0, 0, T);
        char *to = (char *)k->to + image * step_of(k, 1, 0, T) + y * step_of(k, 1, 1, T);
        find_looks(&rows, &k->axes[0], y);
        for (int64_t x = 0; x < k->axes[1].in; x++) {
            int64_t i = 0;
            find_looks(&columns, &k->axes[1], x);
            for (; i + 4 * VLEN <= k->channels; i += 4 * VLEN)
                gradient_step(k, &rows, &columns, from, to, i, 4, VLEN, T, stream);
            for (; i + VLEN <= k->channels; i += VLEN)
                gradient_step(k, &rows, &columns, from, to, i, 1, VLEN, T, stream);
            if (i < k->channels)
                gradient_step(k, &rows, &columns, from, to, i, 1, (int)(k->channels - i), T, false);
            to += step_of(k, 1, 2, T);
        }
    }
}

RG_INLINE void upsample_gradient(const rg_upsample_args *k, int64_t begin, int64_t end,
                                 const rg_dtype T)
{
    if (is_streamed(k, T))
        gradient_rows(k, begin, end, T, true);
    else
        gradient_rows(k, begin, end, T, false);
}

/* ---- entry points and table ---- */

RG_KERNEL(upsample_forward, rg_upsample_args)
RG_KERNEL(upsample_gradient, rg_upsample_args)

const rg_cpu_row RG_TABLE(upsample)[RG_UPSAMPLE_KERNELS] = {
    [RG_UPSAMPLE_FORWARD] = RG_ROW(upsample_forward),
    [RG_UPSAMPLE_GRADIENT] = RG_ROW(upsample_gradient),
};
