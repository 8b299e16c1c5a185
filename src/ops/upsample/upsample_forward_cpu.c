/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Upsample forward on the CPU. */
#include "ops/move/segments_cpu.h"
#include "ops/upsample/upsample_cpu.h"

/* Columns of y whose positions are known: bytes to the pixels left and right of each, and how far
 * it is on the way between them. */
enum { COLUMNS = 256 };
typedef struct positions {
    int64_t left[COLUMNS], right[COLUMNS];
    real f[COLUMNS];
    bool copies; /* each lies on its left pixel */
} positions;

static void find_positions(const rg_upsample_axis *axis, int64_t first, int64_t count, int64_t step,
                           positions *p)
{
    p->copies = true;
    for (int64_t i = 0; i < count; i++) {
        const rg_upsample_tap tap = rg_upsample_tap_of(axis, first + i);
        p->copies &= tap.f == 0;
        p->left[i] = tap.first * step;
        p->right[i] = tap.second * step;
        p->f[i] = (real)tap.f;
    }
}

/* The four pixels that an output lies between, and its position there. */
typedef struct corners {
    const char *pixel[2][2]; /* upper and lower row, left and right */
    real down, right;        /* 0: the lower row, or the right pixels, are not read */
} corners;

RG_INLINE vreal between(vreal a, vreal b, real f)
{
    return vfma(vset(f), b, vset(1 - f) * a);
}

RG_INLINE vpair between_pairs(vpair a, vpair b, real f)
{
    return (vpair){ between(a.a, b.a, f), between(a.b, b.b, f) };
}

RG_INLINE vpair forward_pair(const corners *c, int64_t i, const rg_dtype T, const bool down,
                             const bool right)
{
    vpair row[2];
    for (int r = 0; r < (down ? 2 : 1); r++) {
        row[r] = vload_pair(c->pixel[r][0], i, T, true);
        if (right)
            row[r] = between_pairs(row[r], vload_pair(c->pixel[r][1], i, T, true), c->right);
    }
    return down ? between_pairs(row[0], row[1], c->down) : row[0];
}

/* The last channels, or all where they are no neighbours. */
RG_INLINE void mix_rest_of(const rg_upsample_args *k, const corners *c, char *to, int64_t i,
                           const rg_dtype T)
{
    for (; i < k->channels; i += VLEN) {
        const int n = vlanes_left(k->channels - i);
        vreal row[2];
        for (int r = 0; r < (c->down > 0 ? 2 : 1); r++) {
            row[r] = load_channels(k, c->pixel[r][0], i, n, T);
            if (c->right > 0)
                row[r] = between(row[r], load_channels(k, c->pixel[r][1], i, n, T), c->right);
        }
        store_channels(k, to, i, n, T, c->down > 0 ? between(row[0], row[1], c->down) : row[0]);
    }
}

RG_OUTLINE void mix_rest(const rg_upsample_args *k, const corners *c, char *to, int64_t i,
                         rg_dtype T)
{
    RG_WITH_TYPE(T, U, mix_rest_of(k, c, to, i, U));
}

RG_INLINE void mix_pixel(const rg_upsample_args *k, const corners *c, char *to, const rg_dtype T,
                         const bool down, const bool right, bool stream)
{
    int64_t i = 0;
    if (k->dense) {
        for (; i + 4 * VLEN <= k->channels; i += 4 * VLEN) {
            const vpair a = forward_pair(c, i, T, down, right);
            const vpair b = forward_pair(c, i + 2 * VLEN, T, down, right);
            vstore_sums(to, i, T, a, stream);
            vstore_sums(to, i + 2 * VLEN, T, b, stream);
        }
    }
    if (i < k->channels)
        mix_rest(k, c, to, i, T);
}

/* A pixel of y. One that lies on a pixel of x is its copy. */
RG_INLINE void forward_pixel(const rg_upsample_args *k, const corners *c, char *to,
                             const rg_dtype T, bool stream)
{
    const bool down = c->down > 0, right = c->right > 0;
    if (down && right)
        mix_pixel(k, c, to, T, true, true, stream);
    else if (down)
        mix_pixel(k, c, to, T, true, false, stream);
    else if (right)
        mix_pixel(k, c, to, T, false, true, stream);
    else
        move_segment(to, k->strides[1][3], c->pixel[0][0], k->strides[0][3], k->channels, T, false,
                     stream);
}

/* Pixels of y that are pixels of x, `bytes` of whole vectors each. */
RG_INLINE void copy_pixels(char *to, int64_t step, const char *from, const int64_t at[],
                           int64_t count, int64_t bytes, const bool stream)
{
    for (int64_t i = 0; i < count; i++, to += step) {
        for (int64_t b = 0; b < bytes; b += RG_VECTOR_BYTES) {
            const vreal value = load_bytes(from + at[i] + b);
            if (stream)
                vstream(to + b, 0, RG_REAL, value);
            else
                memcpy(to + b, &value, sizeof value);
        }
    }
}

/* Columns from `first` on, of which the positions are known. */
RG_INLINE void forward_row(const rg_upsample_args *k, int64_t unit, int64_t first, int64_t count,
                           const positions *p, const rg_dtype T, bool stream)
{
    const rg_upsample_axis *rows = &k->axes[0];
    const int64_t image = unit / rows->out, o = unit % rows->out;
    const rg_upsample_tap tap = rg_upsample_tap_of(rows, o);
    const char *from = (const char *)k->from + image * step_of(k, 0, 0, T);
    const char *upper = from + tap.first * step_of(k, 0, 1, T);
    const char *lower = from + tap.second * step_of(k, 0, 1, T);
    char *to = (char *)k->to + image * step_of(k, 1, 0, T) + o * step_of(k, 1, 1, T) +
               first * step_of(k, 1, 2, T);
    const int64_t bytes = k->channels * (vbytes(T) / VLEN), step = step_of(k, 1, 2, T);
    if (k->dense && p->copies && tap.f == 0 && bytes % RG_VECTOR_BYTES == 0) {
        if (stream)
            copy_pixels(to, step, upper, p->left, count, bytes, true);
        else
            copy_pixels(to, step, upper, p->left, count, bytes, false);
        return;
    }
    for (int64_t i = 0; i < count; i++) {
        const corners c = { { { upper + p->left[i], upper + p->right[i] },
                              { lower + p->left[i], lower + p->right[i] } },
                            (real)tap.f,
                            p->f[i] };
        forward_pixel(k, &c, to, T, stream);
        to += step;
    }
}

/* ---- forward, more rows than before: each row of x is mixed across once, for all rows of y ----
 */

/* Columns of two rows of x, one of an even number and one of an odd one, as they are between the
 * columns of x; pairs stand in the order in which they are loaded. */
enum { MIXED = 2048, LINE = 64 };
typedef struct mixed_rows {
    int64_t row[2]; /* counted over all images; -1: none */
    real data[2][MIXED];
} mixed_rows;

RG_INLINE bool is_mixed(const rg_upsample_args *k)
{
    const rg_upsample_axis *rows = &k->axes[0];
    return k->dense && k->channels % (2 * VLEN) == 0 && k->channels <= MIXED &&
           rows->tap == RG_TAP_LINEAR && rows->out > rows->in;
}

/* The next row of x is fetched meanwhile: a piece of a row is too short for the processor to do so.
 */
RG_INLINE const real *mixed_row(const rg_upsample_args *k, mixed_rows *m, int64_t image,
                                int64_t row, int64_t count, const positions *p, const rg_dtype T)
{
    const int64_t number = image * k->axes[0].in + row;
    real *to = m->data[number % 2];
    if (m->row[number % 2] == number)
        return to;
    m->row[number % 2] = number;
    const int64_t ahead = step_of(k, 0, 1, T);
    const char *from =
        (const char *)k->from + image * step_of(k, 0, 0, T) + row * step_of(k, 0, 1, T);
    for (int64_t i = 0; i < count; i++, to += k->channels) {
        const char *left = from + p->left[i], *right = from + p->right[i];
        for (int64_t c = 0; c < k->channels; c += 2 * VLEN) {
            for (int b = 0; b < 2 * vbytes(T); b += LINE)
                __builtin_prefetch(at(left, c, T) + ahead + b);
            vpair x = vload_pair(left, c, T, true);
            if (p->f[i] > 0)
                x = between_pairs(x, vload_pair(right, c, T, true), p->f[i]);
            vstore_pair(to, c, RG_REAL, x, false, false);
        }
    }
    return m->data[number % 2];
}

RG_INLINE void mixed_pixel(const real *upper, const real *lower, real down, char *to,
                           int64_t channels, const rg_dtype T, bool stream)
{
    for (int64_t c = 0; c < channels; c += 2 * VLEN) {
        vpair y = vload_pair(upper, c, RG_REAL, false);
        if (down > 0)
            y = between_pairs(y, vload_pair(lower, c, RG_REAL, false), down);
        vstore_sums(to, c, T, y, stream);
    }
}

RG_INLINE void forward_mixed_row(const rg_upsample_args *k, mixed_rows *m, int64_t unit,
                                 int64_t first, int64_t count, const positions *p, const rg_dtype T,
                                 bool stream)
{
    const rg_upsample_axis *rows = &k->axes[0];
    const int64_t image = unit / rows->out, o = unit % rows->out;
    const rg_upsample_tap tap = rg_upsample_tap_of(rows, o);
    const real *upper = mixed_row(k, m, image, tap.first, count, p, T);
    const real *lower = mixed_row(k, m, image, tap.second, count, p, T);
    char *to = (char *)k->to + image * step_of(k, 1, 0, T) + o * step_of(k, 1, 1, T) +
               first * step_of(k, 1, 2, T);
    for (int64_t i = 0; i < count; i++, to += step_of(k, 1, 2, T))
        mixed_pixel(upper + i * k->channels, lower + i * k->channels, (real)tap.f, to, k->channels,
                    T, stream);
}

RG_INLINE void upsample_forward(const rg_upsample_args *k, int64_t begin, int64_t end,
                                const rg_dtype T)
{
    const rg_upsample_axis *columns = &k->axes[1];
    const bool stream = is_streamed(k, T), mixed = is_mixed(k);
    const int64_t most = mixed ? least(COLUMNS, MIXED / k->channels) : COLUMNS;
    positions p;
    mixed_rows m;
    for (int64_t first = 0; first < columns->out; first += most) {
        const int64_t count = least(most, columns->out - first);
        find_positions(columns, first, count, step_of(k, 0, 2, T), &p);
        m.row[0] = m.row[1] = -1;
        for (int64_t unit = begin; unit < end; unit++) {
            if (mixed)
                forward_mixed_row(k, &m, unit, first, count, &p, T, stream);
            else
                forward_row(k, unit, first, count, &p, T, stream);
        }
    }
}

RG_KERNEL(upsample_forward, rg_upsample_args)

RG_CPU_TABLE(upsample_forward, RG_UPSAMPLE_KERNELS) = {
    [RG_UPSAMPLE_FORWARD] = RG_ROW(upsample_forward),
};
