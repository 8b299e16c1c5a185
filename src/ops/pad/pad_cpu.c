/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Pad on the CPU: a unit is a row of the result. Inner pixels are one run where they can be. */
#include "backend/cpu/kernel.h"
#include "backend/cpu/long_sum_cpu.h"
#include "ops/pad/pad.h"

/* The offset of index i of dimension d, of `from` (t = 0) or `to` (t = 1), in bytes. */
RG_INLINE int64_t offset_of(const rg_pad_args *k, int t, int d, int64_t i, const rg_dtype T)
{
    return i * k->strides[t][d] * (vbytes(T) / VLEN);
}

RG_FORMULA vreal same(const void *k, vreal a, vreal unused)
{
    (void)k;
    (void)unused;
    return a;
}

RG_FORMULA vreal constant(const void *k, vreal a, vreal b)
{
    (void)a;
    (void)b;
    return vset(*(const real *)k);
}

/* ---- forward ---- */

RG_INLINE void copy_of(const rg_pad_args *k, const char *from, int64_t step, char *to,
                       int64_t count, const rg_dtype T)
{
    const real value = (real)k->value;
    const int64_t to_step = k->strides[1][3];
    if (k->dense && from != NULL) {
        sweep(same, NULL, (sweep_data){ from, from, to, false, k->stream }, count, T, T);
    } else if (k->dense) {
        sweep(constant, &value, (sweep_data){ to, to, to, false, k->stream }, count, T, T);
    } else {
        for (int64_t i = 0; i < count; i++)
            store_one(to, i * to_step, T, from != NULL ? load_one(from, i * step, T) : value);
    }
}

/* `count` elements from `from`, or a constant where it is NULL. Called from several places. */
RG_OUTLINE void copy(const rg_pad_args *k, const char *from, int64_t step, char *to, int64_t count,
                     rg_dtype T)
{
    RG_WITH_TYPE(T, U, copy_of(k, from, step, to, count, U));
}

/* Channels begin to end - 1 of a pixel that is filled. */
RG_INLINE void fill_channels(const rg_pad_args *k, char *to, int64_t begin, int64_t end,
                             const rg_dtype T)
{
    const char *fill = k->fill != NULL ? at(k->fill, begin * k->fill_stride, T) : NULL;
    if (begin < end)
        copy(k, fill, k->fill_stride, to + offset_of(k, 1, 3, begin, T), end - begin, T);
}

/* Channels of a pixel that are outside of its own. */
RG_INLINE void edge_channels(const rg_pad_args *k, const char *pixel, char *to, int64_t begin,
                             int64_t end, const rg_dtype T)
{
    const rg_pad_axis *channels = &k->axes[3];
    if (channels->edge == RG_EDGE_FILL) {
        fill_channels(k, to, begin, end, T);
        return;
    }
    for (int64_t c = begin; c < end; c++) {
        const int64_t from = rg_pad_source(channels, c) * k->strides[0][3];
        store_one(to, c * k->strides[1][3], T, load_one(pixel, from, T));
    }
}

/* A pixel of y, from one of x. */
RG_INLINE void forward_pixel(const rg_pad_args *k, const char *pixel, char *to, const rg_dtype T)
{
    const rg_pad_axis *channels = &k->axes[3];
    const int64_t begin = channels->begin, end = channels->end;
    for (int side = 0; side < 2; side++)
        edge_channels(k, pixel, to, side == 0 ? 0 : end, side == 0 ? begin : channels->out, T);
    if (begin < end)
        copy(k, pixel + offset_of(k, 0, 3, begin - channels->before, T), k->strides[0][3],
             to + offset_of(k, 1, 3, begin, T), end - begin, T);
}

/* Pixels begin to end - 1 of a row of y, from a row of x. */
RG_INLINE void forward_pixels(const rg_pad_args *k, const char *row, char *to, int64_t begin,
                              int64_t end, const rg_dtype T)
{
    for (int64_t o = begin; o < end; o++) {
        const int64_t source = row != NULL ? rg_pad_source(&k->axes[2], o) : -1;
        char *pixel = to + offset_of(k, 1, 2, o, T);
        if (source >= 0)
            forward_pixel(k, row + offset_of(k, 0, 2, source, T), pixel, T);
        else
            fill_channels(k, pixel, 0, k->axes[3].out, T);
    }
}

RG_INLINE void pad_forward(const rg_pad_args *k, int64_t begin, int64_t end, const rg_dtype T)
{
    const rg_pad_axis *columns = &k->axes[2];
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t n = unit / k->axes[1].out, h = unit % k->axes[1].out;
        const int64_t from_n = rg_pad_source(&k->axes[0], n),
                      from_h = rg_pad_source(&k->axes[1], h);
        char *to = (char *)k->to + offset_of(k, 1, 0, n, T) + offset_of(k, 1, 1, h, T);
        const char *row = NULL;
        if (from_n >= 0 && from_h >= 0)
            row = (const char *)k->from + offset_of(k, 0, 0, from_n, T) +
                  offset_of(k, 0, 1, from_h, T);
        const bool run = row != NULL && k->run && columns->begin < columns->end;
        const int64_t first = run ? columns->begin : columns->out;
        const int64_t last = run ? columns->end : columns->out;
        for (int side = 0; side < 2; side++)
            forward_pixels(k, row, to, side == 0 ? 0 : last, side == 0 ? first : columns->out, T);
        if (run)
            copy(k, row + offset_of(k, 0, 2, first - columns->before, T), 1,
                 to + offset_of(k, 1, 2, first, T), (last - first) * k->axes[3].in, T);
    }
}

/* ---- gradient: dx gathers; sums of a row of dy first, then of rows ---- */

/* The pixel of dx at work: its copies along three axes. */
typedef struct copies {
    rg_pad_copies n, h, w;
    bool many; /* the sum is cut into runs */
} copies;

/* Sums start with -0, which leaves what is added as it is; without any copy they are 0. */
#define NONE ((real)-0.0)

/* A sum over copies. Where there are so many that a plain chain of additions would lose digits it
 * is cut into runs. */
RG_INLINE long_chain start_sum(bool many)
{
    long_chain sum = long_chain_start();
    if (!many) {
        sum.run = vset(NONE);
        sum.left = INT64_MAX;
    }
    return sum;
}

RG_INLINE vreal end_sum(const long_chain *sum, bool many)
{
    return many ? long_chain_end(sum) : sum->run;
}

/* The copies of n channels of which the first one is at `own` in each pixel: one, or where n is
 * 1 any number of them. */
RG_INLINE vreal gather_of(const rg_pad_args *k, const copies *c, rg_pad_copies own, const int n,
                          const rg_dtype T)
{
    const int64_t *stride = k->strides[0];
    long_chain sum = start_sum(c->many);
    bool any = false;
    int64_t image, row, column, channel;
    for (rg_pad_copies images = c->n; rg_pad_next(&images, &image);) {
        for (rg_pad_copies rows = c->h; rg_pad_next(&rows, &row); long_chain_count(&sum)) {
            const int64_t dy = image * stride[0] + row * stride[1];
            long_chain part = start_sum(c->many);
            for (rg_pad_copies columns = c->w; rg_pad_next(&columns, &column);) {
                for (rg_pad_copies channels = own; rg_pad_next(&channels, &channel); any = true) {
                    const int64_t from = dy + column * stride[2] + channel * stride[3];
                    part.run += vload_strided(at(k->from, from, T), 0, stride[3], n, T, k->dense);
                    long_chain_count(&part);
                }
            }
            sum.run += end_sum(&part, c->many);
        }
    }
    return any ? end_sum(&sum, c->many) : vset(0);
}

/* The same for VLEN contiguous channels that have few copies. */
RG_INLINE vreal gather_vector(const rg_pad_args *k, const copies *c, int64_t channel,
                              const rg_dtype T)
{
    const int64_t *stride = k->strides[0];
    vreal sum = vset(NONE);
    bool any = false;
    int64_t image, row, column;
    for (rg_pad_copies images = c->n; rg_pad_next(&images, &image);) {
        for (rg_pad_copies rows = c->h; rg_pad_next(&rows, &row);) {
            const int64_t dy = image * stride[0] + row * stride[1] + channel;
            vreal part = vset(NONE);
            for (rg_pad_copies columns = c->w; rg_pad_next(&columns, &column); any = true)
                part += vload_full(at(k->from, dy + column * stride[2], T), 0, T);
            sum += part;
        }
    }
    return any ? sum : vset(0);
}

RG_OUTLINE vreal gather(const rg_pad_args *k, const copies *c, rg_pad_copies own, int n, rg_dtype T)
{
    RG_WITH_TYPE(T, U, return gather_of(k, c, own, n, U));
}

/* n channels of dx from i on. */
RG_INLINE void gradient_channels(const rg_pad_args *k, const copies *c, char *to, int64_t i, int n,
                                 const rg_dtype T)
{
    const int64_t step = k->strides[1][3];
    vreal sum = n == VLEN && k->dense && !c->many
                    ? gather_vector(k, c, i + k->axes[3].before, T)
                    : gather(k, c, rg_pad_copies_of(&k->axes[3], i), n, T);
    if (k->add)
        sum += vload_strided(to, i, step, n, T, k->dense);
    vstore_strided(to, i, step, n, T, k->dense, sum);
}

RG_INLINE void gradient_pixels(const rg_pad_args *k, copies *c, char *row, int64_t begin,
                               int64_t end, const rg_dtype T)
{
    const rg_pad_axis *channels = &k->axes[3];
    for (int64_t w = begin; w < end; w++) {
        char *to = row + offset_of(k, 1, 2, w, T);
        c->w = rg_pad_copies_of(&k->axes[2], w);
        for (int64_t i = 0, n; i < channels->in; i += n) {
            const bool single = i >= channels->begin && i < channels->end; /* copied once */
            n = single ? vlanes_left(channels->end - i) : 1;
            gradient_channels(k, c, to, i, (int)n, T);
        }
    }
}

/* The row of dy that is the only one a row of dx was copied to; NULL: there are more, or none. */
RG_INLINE const char *only_row(const rg_pad_args *k, const copies *c, const rg_dtype T)
{
    int64_t n, h, more;
    rg_pad_copies images = c->n, rows = c->h;
    if (!rg_pad_next(&images, &n) || !rg_pad_next(&rows, &h))
        return NULL;
    if (rg_pad_next(&images, &more) || rg_pad_next(&rows, &more))
        return NULL;
    return (const char *)k->from + offset_of(k, 0, 0, n, T) + offset_of(k, 0, 1, h, T);
}

RG_INLINE void pad_gradient(const rg_pad_args *k, int64_t begin, int64_t end, const rg_dtype T)
{
    const rg_pad_axis *columns = &k->axes[2];
    const bool many = rg_pad_has_more(k->axes, RG_CHAIN_RUN);
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t n = unit / k->axes[1].in, h = unit % k->axes[1].in;
        char *to = (char *)k->to + offset_of(k, 1, 0, n, T) + offset_of(k, 1, 1, h, T);
        copies c = { .n = rg_pad_copies_of(&k->axes[0], n),
                     .h = rg_pad_copies_of(&k->axes[1], h),
                     .many = many };
        const char *row = k->run && columns->begin < columns->end ? only_row(k, &c, T) : NULL;
        const int64_t first = row != NULL ? columns->begin : columns->in;
        const int64_t last = row != NULL ? columns->end : columns->in;
        for (int side = 0; side < 2; side++)
            gradient_pixels(k, &c, to, side == 0 ? 0 : last, side == 0 ? first : columns->in, T);
        if (row == NULL)
            continue;
        const char *dy = row + offset_of(k, 0, 2, first + columns->before, T);
        const sweep_data d = { dy, dy, to + offset_of(k, 1, 2, first, T), k->add, k->stream };
        sweep(same, NULL, d, (last - first) * k->axes[3].in, T, T);
    }
}

/* ---- gradient of fill: a unit is 64 channels, summed up over what they filled ---- */

/* Pixels begin to end - 1 of a row of dy, n channels from i on. */
RG_INLINE vreal sum_pixels(const rg_pad_args *k, const char *row, int64_t begin, int64_t end,
                           int64_t i, const int n, const rg_dtype T)
{
    long_chain sum = long_chain_start();
    for (int64_t w = begin; w < end; w++, long_chain_count(&sum)) {
        const char *pixel = row + offset_of(k, 0, 2, w, T);
        sum.run += vload_strided(pixel, i, k->strides[0][3], n, T, k->dense);
    }
    return long_chain_end(&sum);
}

/* One row of dy: all of it where the row, or the channel, is outside; else what lies before and
 * after the image. */
RG_INLINE vreal fill_row(const rg_pad_args *k, int64_t n, int64_t h, int64_t i, const int lanes,
                         const rg_dtype T)
{
    const rg_pad_axis *columns = &k->axes[2], *channels = &k->axes[3];
    const char *row = (const char *)k->from + offset_of(k, 0, 0, n, T) + offset_of(k, 0, 1, h, T);
    const bool outside = rg_pad_source(&k->axes[0], n) < 0 || rg_pad_source(&k->axes[1], h) < 0;
    const int64_t borders[] = { 0, columns->begin, columns->end, columns->out };
    vreal sums[3] = { vset(0), vset(0), vset(0) };
    for (int part = 0; part < 3; part++)
        sums[part] = sum_pixels(k, row, borders[part], borders[part + 1], i, lanes, T);
    vint taken = vlanes() < 0;
    for (int e = 0; e < lanes; e++)
        taken[e] = outside || rg_pad_source(channels, i + e) < 0 ? -1 : 0;
    return sums[0] + sums[2] + vselect(taken, sums[1], vset(0));
}

RG_INLINE void pad_gradient_fill(const rg_pad_args *k, int64_t begin, int64_t end, const rg_dtype T)
{
    enum { CHANNELS = 64 };
    const int64_t last = least(end * CHANNELS, k->axes[3].out), step = k->strides[1][3];
    for (int64_t i = begin * CHANNELS; i < last; i += VLEN) {
        const int lanes = vlanes_left(last - i);
        long_chain images = long_chain_start();
        for (int64_t n = 0; n < k->axes[0].out; n++, long_chain_count(&images)) {
            long_chain image = long_chain_start();
            for (int64_t h = 0; h < k->axes[1].out; h++, long_chain_count(&image))
                image.run += fill_row(k, n, h, i, lanes, T);
            images.run += long_chain_end(&image);
        }
        vreal sum = long_chain_end(&images);
        if (k->add)
            sum += vgather(k->to, i, step, lanes, T);
        vscatter(k->to, i, step, lanes, T, sum);
    }
}

/* ---- entry points and table ---- */

RG_KERNEL(pad_forward, rg_pad_args)
RG_KERNEL(pad_gradient, rg_pad_args)
RG_KERNEL(pad_gradient_fill, rg_pad_args)

RG_CPU_TABLE(pad, RG_PAD_KERNELS) = {
    [RG_PAD_FORWARD] = RG_ROW(pad_forward),
    [RG_PAD_GRADIENT] = RG_ROW(pad_gradient),
    [RG_PAD_GRADIENT_FILL] = RG_ROW(pad_gradient_fill),
};
