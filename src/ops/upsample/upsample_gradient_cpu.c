/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The gradient of upsample on the CPU: dx gathers, along rows of dy first, then down.
 *
 * Slower in bf16 on Zen 4: summing rows in a buffer first. */
#include "backend/cpu/long_sum_cpu.h"
#include "ops/upsample/upsample_cpu.h"

/* What is known of some pixels along an axis: the outputs that read each, and their weights.
 * Only the first pixel may have more outputs than weights. */
enum { PIXELS = 128, WEIGHTS = 512 };
typedef struct readers {
    const rg_upsample_axis *axis;
    int64_t first, count; /* pixels */
    int64_t begin[PIXELS], end[PIXELS];
    int weights[PIXELS + 1]; /* where those of a pixel begin */
    real weight[WEIGHTS];
} readers;

static real tap_weight(const rg_upsample_axis *axis, int64_t pixel, int64_t o)
{
    const rg_upsample_tap tap = rg_upsample_tap_of(axis, o);
    return tap.first == pixel ? 1 - (real)tap.f : (real)tap.f;
}

/* Outputs from `begin` on: the pixels that they read, and f in the type of the kernel. */
typedef struct outputs {
    int64_t begin, count;
    int64_t first[WEIGHTS], second[WEIGHTS];
    real f[WEIGHTS];
} outputs;

static void find_outputs(outputs *o, const rg_upsample_axis *axis, int64_t pixel)
{
    o->begin = rg_upsample_find(axis, pixel, false);
    o->count = least(WEIGHTS, axis->out - o->begin);
    for (int64_t i = 0; i < o->count; i++) {
        const rg_upsample_tap tap = rg_upsample_tap_of(axis, o->begin + i);
        o->first[i] = tap.first;
        o->second[i] = tap.second;
        o->f[i] = (real)tap.f;
    }
}

/* As many pixels from `first` on as fit, at most `count`. */
static void find_readers(readers *r, const rg_upsample_axis *axis, int64_t first, int64_t count)
{
    outputs o;
    find_outputs(&o, axis, first);
    int64_t begin = 0, pixel = first;
    int used = r->weights[0] = 0;
    for (; pixel < first + least(count, PIXELS); pixel++) {
        const int64_t slot = pixel - first;
        while (begin < o.count && o.second[begin] < pixel)
            begin++;
        int64_t end = begin;
        for (; end < o.count && o.first[end] <= pixel && used < WEIGHTS; end++)
            r->weight[used++] = o.first[end] == pixel ? 1 - o.f[end] : o.f[end];
        const bool is_cut = o.begin + end < axis->out && (end == o.count || used == WEIGHTS);
        if (is_cut && pixel > first)
            break;
        r->weights[slot + 1] = used;
        r->begin[slot] = o.begin + begin;
        r->end[slot] = is_cut ? rg_upsample_find(axis, pixel + 1, true) : o.begin + end;
    }
    r->axis = axis;
    r->first = first;
    r->count = pixel - first;
}

/* The outputs of one pixel along an axis. */
typedef struct window {
    const rg_upsample_axis *axis;
    const real *weight; /* of the first ones: */
    int64_t known;
    int64_t pixel, begin, end;
} window;

RG_INLINE window window_of(const readers *r, int64_t slot)
{
    return (window){ r->axis,
                     r->weight + r->weights[slot],
                     r->weights[slot + 1] - r->weights[slot],
                     r->first + slot,
                     r->begin[slot],
                     r->end[slot] };
}

RG_INLINE real weight_of(const window *w, int64_t i)
{
    return i < w->known ? w->weight[i] : tap_weight(w->axis, w->pixel, w->begin + i);
}

/* A pixel of dx: the outputs that read it, the first of them in dy, and where it goes. Loops
 * keep it in registers, so it is passed by value; functions that are not inlined receive a copy. */
typedef struct target {
    window rows, columns;
    const char *from;
    char *to;
    bool stream;
} target;

RG_INLINE int64_t count_of(const window *w)
{
    return w->end - w->begin;
}

/* Channels from i on, neighbours or not. Sums are cut into runs, because many outputs may read a
 * pixel. */
RG_INLINE void gradient_rest_of(const rg_upsample_args *k, const target *t, int64_t i,
                                const rg_dtype T)
{
    for (; i < k->channels; i += VLEN) {
        const int n = vlanes_left(k->channels - i);
        long_chain sum = long_chain_start();
        for (int64_t o = 0; o < count_of(&t->rows); o++, long_chain_count(&sum)) {
            long_chain row = long_chain_start();
            const char *dy = t->from + o * step_of(k, 0, 1, T);
            for (int64_t p = 0; p < count_of(&t->columns); p++, long_chain_count(&row)) {
                const vreal x = load_channels(k, dy, i, n, T);
                row.run = vfma(vset(weight_of(&t->columns, p)), x, row.run);
                dy += step_of(k, 0, 2, T);
            }
            sum.run = vfma(vset(weight_of(&t->rows, o)), long_chain_end(&row), sum.run);
        }
        store_channels(k, t->to, i, n, T, long_chain_end(&sum));
    }
}

RG_OUTLINE void gradient_rest(const rg_upsample_args *k, target t, int64_t i, rg_dtype T)
{
    RG_WITH_TYPE(T, U, gradient_rest_of(k, &t, i, U));
}

RG_INLINE vpair add_pair(vpair sum, real weight, vpair x)
{
    return (vpair){ vfma(vset(weight), x.a, sum.a), vfma(vset(weight), x.b, sum.b) };
}

/* `pairs` pairs of neighbours, at most 2. `width` outputs of each row read the pixel; 0: any
 * number. */
RG_INLINE void gradient_pairs(const rg_upsample_args *k, const target t, int64_t i, const int pairs,
                              const int width, const rg_dtype T)
{
    const window *rows = &t.rows, *columns = &t.columns;
    const vpair zero = { vset(0), vset(0) };
    const int64_t across = step_of(k, 0, 2, T), down = step_of(k, 0, 1, T);
    const int64_t count = width > 0 ? width : count_of(columns), height = count_of(rows);
    const char *from = t.from;
    vpair sum[2] = { zero, zero };
    for (int64_t o = 0; o < height; o++, from += down) {
        vpair row[2] = { zero, zero };
        const char *dy = from;
#pragma GCC unroll 4
        for (int64_t p = 0; p < count; p++, dy += across) {
            const real weight = width > 0 ? columns->weight[p] : weight_of(columns, p);
#pragma GCC unroll 2
            for (int b = 0; b < pairs; b++)
                row[b] = add_pair(row[b], weight, vload_pair(dy, i + b * 2 * VLEN, T, true));
        }
        const real weight = weight_of(rows, o);
#pragma GCC unroll 2
        for (int b = 0; b < pairs; b++)
            sum[b] = add_pair(sum[b], weight, row[b]);
    }
#pragma GCC unroll 2
    for (int b = 0; b < pairs; b++) {
        if (k->add) {
            const vpair old = vload_pair(t.to, i + b * 2 * VLEN, T, true);
            sum[b].a += old.a;
            sum[b].b += old.b;
        }
        vstore_sums(t.to, i + b * 2 * VLEN, T, sum[b], t.stream);
    }
}

/* Factors of two, the nearest pixel or between pixels, have a loop of their own. */
RG_INLINE void gradient_quad(const rg_upsample_args *k, const target t, int64_t i, const rg_dtype T)
{
    const int64_t width = count_of(&t.columns);
    if (width == 2)
        gradient_pairs(k, t, i, 2, 2, T);
    else if (width == 3)
        gradient_pairs(k, t, i, 2, 3, T);
    else if (width == 4)
        gradient_pairs(k, t, i, 2, 4, T);
    else
        gradient_pairs(k, t, i, 2, 0, T);
}

RG_INLINE void gradient_pixel(const rg_upsample_args *k, const target t, const rg_dtype T)
{
    const bool fits_run = count_of(&t.rows) <= RG_CHAIN_RUN && count_of(&t.columns) <= RG_CHAIN_RUN;
    int64_t i = 0;
    if (k->dense && fits_run) {
        for (; i + 4 * VLEN <= k->channels; i += 4 * VLEN)
            gradient_quad(k, t, i, T);
        for (; i + 2 * VLEN <= k->channels; i += 2 * VLEN)
            gradient_pairs(k, t, i, 1, 0, T);
    }
    if (i < k->channels)
        gradient_rest(k, t, i, T);
}

/* Asks for the outputs that pixels some steps ahead are the first to read, where a pixel takes so
 * many instructions that the processor does not come to later loads by itself. With vectors of
 * less than a cache line that made Zen 4 slower. */
RG_INLINE void fetch_ahead(const rg_upsample_args *k, const target *t, const rg_dtype T)
{
    enum { LINE = 64, AHEAD = 2048 };
    const int64_t rows = count_of(&t->rows), columns = count_of(&t->columns);
    const bool apart = columns <= 2; /* no other pixel reads them */
    const int64_t bytes = least(step_of(k, 0, 2, T) * columns / (apart ? 1 : 2), AHEAD);
    if (RG_VECTOR_BYTES < LINE)
        return;
    for (int64_t row = apart ? 0 : rows / 2; row < rows; row++)
        for (int64_t i = 0; i < bytes; i += LINE)
            __builtin_prefetch(t->from + row * step_of(k, 0, 1, T) + AHEAD + i, 0, 3);
}

/* Rows from y on of one image, and the columns that are known. */
RG_INLINE void gradient_block(const rg_upsample_args *k, int64_t image, const readers *rows,
                              const readers *columns, const rg_dtype T, bool stream)
{
    const char *from = (const char *)k->from + image * step_of(k, 0, 0, T);
    for (int64_t r = 0; r < rows->count; r++) {
        const window row = window_of(rows, r);
        char *to = (char *)k->to + image * step_of(k, 1, 0, T) + row.pixel * step_of(k, 1, 1, T) +
                   columns->first * step_of(k, 1, 2, T);
        for (int64_t c = 0; c < columns->count; c++) {
            const window column = window_of(columns, c);
            const char *first =
                from + row.begin * step_of(k, 0, 1, T) + column.begin * step_of(k, 0, 2, T);
            const target t = { row, column, first, to, stream };
            fetch_ahead(k, &t, T);
            gradient_pixel(k, t, T);
            to += step_of(k, 1, 2, T);
        }
    }
}

RG_INLINE void upsample_gradient(const rg_upsample_args *k, int64_t begin, int64_t end,
                                 const rg_dtype T)
{
    const rg_upsample_axis *down = &k->axes[0], *across = &k->axes[1];
    const bool stream = is_streamed(k, T);
    readers rows, columns;
    for (int64_t x = 0; x < across->in; x += columns.count) {
        find_readers(&columns, across, x, across->in - x);
        for (int64_t unit = begin; unit < end; unit += rows.count) {
            const int64_t image = unit / down->in, y = unit % down->in;
            find_readers(&rows, down, y, least(end - unit, down->in - y));
            gradient_block(k, image, &rows, &columns, T, stream);
        }
    }
}

RG_KERNEL(upsample_gradient, rg_upsample_args)

RG_CPU_TABLE(upsample_gradient, RG_UPSAMPLE_KERNELS) = {
    [RG_UPSAMPLE_GRADIENT] = RG_ROW(upsample_gradient),
};
