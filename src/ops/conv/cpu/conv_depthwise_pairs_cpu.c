/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Depthwise convolution of bf16 by pairs of rows, forward and backward data, see conv_cpu.h. */
#include "backend/cpu/thread_pool.h"
#include "ops/contract/contract_pairs_cpu.h"
#include "ops/conv/cpu/conv_depthwise_cpu.h"
#include "ops/conv/cpu/conv_permute_cpu.h"

#if RG_USES_PAIRS

enum { TAPS = RG_CONV_PAIR_WINDOW, WORDS = RG_CONV_PAIR_DEPTHWISE_WORDS };

/* ---- weights ---- */

/* A unit is LANES channels. */
RG_INLINE void pair_depthwise_weights(const rg_conv_transpose_weights_args *k, int64_t begin,
                                      int64_t end, const rg_dtype T)
{
    const rg_conv_shape *s = &k->shape;
    for (int64_t unit = begin; unit < end; unit++) {
        uint16_t *const to = (uint16_t *)k->transposed + unit * 2 * WORDS * LANES;
        memset(to, 0, sizeof(uint32_t) * WORDS * LANES);
        for (int64_t i = 0; i < least(LANES, s->groups - unit * LANES); i++) {
            for (int64_t q = 0; q < TAPS; q++) {
                const int64_t column = k->data ? TAPS - 1 - q : q;
                const uint16_t *const w = (const uint16_t *)k->w + s->w_first +
                                          (unit * LANES + i) * s->w[0] + column * s->w[3];
                const uint16_t top = w[k->data ? 2 * s->w[2] : 0], middle = w[s->w[2]];
                const uint16_t bottom = w[k->data ? 0 : 2 * s->w[2]];
                const uint16_t pairs[4][2] = {
                    { top, middle }, { bottom, 0 }, { 0, top }, { middle, bottom }
                };
                for (int n = 0; n < 4; n++)
                    memcpy(to + 2 * ((4 * q + n) * LANES + i), pairs[n], sizeof pairs[n]);
            }
        }
    }
    (void)T;
}

/* ---- rows of inputs ---- */

enum { ROWS = 4 }; /* of inputs, for two rows of results */

static const uint16_t no_channels[LANES] = { 0 };

/* Some rows of one image, and the channels of a unit. */
typedef struct pair_unit {
    int64_t image, channel, channels;
    const uint16_t *from; /* of the image and the first channel */
    uint16_t *copies;     /* of ROWS rows, dense and in whole vectors of channels; or NULL */
    uint16_t *staged;     /* two rows of results, which streaming stores then write; or NULL */
    real *sums;
    bool rounds; /* sums are results */
    permute_axis row, column;
} pair_unit;

/* A row of inputs for `copies`. */
RG_OUTLINE void copy_row(const pair_unit *u, const int64_t step[4], int64_t row, uint16_t *to)
{
    const int64_t padded = (u->channels + LANES - 1) / LANES * LANES;
    for (int64_t j = 0; j < u->column.inputs; j++, to += padded) {
        const uint16_t *const pixel = u->from + row * step[1] + j * step[2];
        for (int64_t c = 0; c < u->channels; c++)
            to[c] = pixel[c * step[3]];
        for (int64_t c = u->channels; c < padded; c++)
            to[c] = 0;
    }
}

/* Input row `row`, number i of ROWS: where it is, and how far its pixels are apart. */
RG_INLINE void find_row(const pair_unit *u, const int64_t step[4], int64_t row, int64_t i,
                        rg_conv_pair_depthwise *t)
{
    const int64_t padded = (u->channels + LANES - 1) / LANES * LANES;
    const bool inside = row >= 0 && row < u->row.inputs, copied = u->copies != NULL;
    uint16_t *const copy = u->copies + i * u->column.inputs * padded;
    if (inside && copied)
        copy_row(u, step, row, copy);
    t->row[i] = !inside ? no_channels : copied ? copy : u->from + row * step[1];
    t->step[i] = !inside ? 0 : copied ? padded : step[2];
}

/* ---- results ---- */

/* Row `second` of two from those taps alone that it has: where something is not finite, 0 times it
 * is no part of a sum. */
RG_OUTLINE void sum_own_pairs(const rg_conv_pair_depthwise *t, int64_t second)
{
    for (int64_t j = 0; j < t->count; j++) {
        vreal sum = vset(0);
        for (int64_t p = 0; p < TAPS; p++) {
            const int64_t i = second + p;
            for (int64_t q = 0; q < TAPS && t->step[i] != 0; q++) {
                const int64_t column = j + q - t->shift;
                vuint w;
                memcpy(&w, (const real *)t->w + (4 * q + p / 2) * LANES, sizeof w);
                if (column >= 0 && column < t->inputs)
                    sum = vfma(vload_full(t->row[i], column * t->step[i], RG_BF16),
                               (vreal)(p % 2 == 0 ? w << 16 : w >> 16 << 16), sum);
            }
        }
        vstore_full(t->sums, (second * t->count + j) * LANES, RG_REAL, sum);
    }
}

/* Where a row of results goes, LANES channels from c on of the unit, and how far columns are apart.
 * `i`: of two rows. */
RG_INLINE uint16_t *row_of_results(const rg_conv_grouped_args *k, const depthwise_row *d,
                                   const pair_unit *u, int64_t r, int64_t i, int64_t c,
                                   int64_t *step)
{
    *step = u->staged != NULL ? k->channels : d->result[2];
    return u->staged != NULL ? u->staged + i * u->column.results * k->channels + c
                             : (uint16_t *)k->conv.to + pixel_offset(d->result, u->image, r, 0) +
                                   (u->channel + c) * d->result[3];
}

/* Results of rows r and r + 1 from sums. */
RG_OUTLINE void end_pair_rows(const rg_conv_grouped_args *k, depthwise_row *d, const pair_unit *u,
                              const rg_conv_pair_depthwise *t, int64_t r, int64_t rows, int64_t c)
{
    const int64_t channel = u->channel + c;
    const int n = vlanes_left(k->channels - channel);
    for (int64_t i = 0; i < rows; i++) {
        const real *const sums = t->sums + i * t->count * LANES;
        int64_t step;
        uint16_t *const to = row_of_results(k, d, u, r + i, i, c, &step);
        d->to = pixel_offset(d->result, u->image, r + i, 0);
        d->z = pixel_offset(k->conv.z_step, u->image, r + i, 0);
        if (!end_bf16(d, sums, t->count, channel, n, to, step))
            grouped_end(d, sums, 0, t->count, channel, n, RG_BF16);
    }
}

/* A row of results from where they are staged: whole cache lines by streaming stores. */
RG_INLINE void write_staged(uint16_t *to, const uint16_t *from, int64_t count)
{
    enum { LINE = LINE_BYTES / 2 };
    const int64_t head = least(vhead(to, RG_BF16), count);
    const int64_t lines = (count - head) / LINE * LINE;
    memcpy(to, from, (size_t)head * sizeof *to);
    for (int64_t i = head; i < head + lines; i += LINE) {
        vreal line;
        memcpy(&line, from + i, sizeof line);
        vstream(to + i, 0, RG_REAL, line);
    }
    memcpy(to + head + lines, from + head + lines, (size_t)(count - head - lines) * sizeof *to);
}

/* Rows r and r + 1 of results, of which there may be one. */
RG_INLINE void pair_results(const rg_conv_grouped_args *k, depthwise_row *d, const pair_unit *u,
                            rg_conv_pair_depthwise *t, int64_t r, int64_t rows)
{
    const int64_t count = t->count;
    const char *ahead = (const char *)(u->from + (r + ROWS - u->row.shift) * d->source[1]);
    const int64_t blocks = (u->channels + LANES - 1) / LANES;
    const int64_t bytes = 2 * d->source[1] * (int64_t)sizeof(uint16_t) / blocks;
    t->pace = u->copies == NULL && bytes > 0 ? bytes / count + 1 : 0;
    for (int64_t c = 0; c < u->channels; c += LANES, ahead += bytes) {
        t->w = (const real *)k->conv.w + (u->channel + c) * WORDS;
        t->ahead = ahead;
        t->ahead_end = ahead + bytes;
        const bool rounds = u->rounds && rows == 2 && k->channels - u->channel - c >= LANES;
        for (int64_t i = 0; i < rows; i++)
            t->to[i] = row_of_results(k, d, u, r + i, i, c, &t->to_step);
        if (!rounds || !rg_bf16_depthwise_results(t)) {
            if (!rg_bf16_depthwise(t))
                for (int64_t i = 0; i < 2; i++)
                    sum_own_pairs(t, i);
            end_pair_rows(k, d, u, t, r, rows, c);
        }
        for (int64_t i = 0; i < ROWS; i++)
            t->row[i] += t->step[i] != 0 ? LANES : 0;
    }
    for (int64_t i = 0; i < rows && u->staged != NULL; i++)
        write_staged((uint16_t *)k->conv.to + pixel_offset(d->result, u->image, r + i, 0),
                     u->staged + i * count * k->channels, count * k->channels);
}

/* A unit: some rows of an image. */
RG_INLINE void pair_rows_of(const rg_conv_grouped_args *k, depthwise_row *d, const pair_unit *u,
                            int64_t first, int64_t last)
{
    const permute_axis *a = &u->column;
    rg_conv_pair_depthwise t = {
        .sums = u->sums, .count = a->results, .inputs = a->inputs, .shift = a->shift
    };
    t.low = least(a->shift > 0 ? a->shift : 0, t.count);
    t.high = least(a->inputs - TAPS + 1 + a->shift, t.count);
    t.high = t.high > t.low ? t.high : t.low;
    for (int64_t r = first; r < last; r += 2) {
        for (int64_t i = 0; i < ROWS; i++)
            find_row(u, d->source, r - u->row.shift + i, i, &t);
        pair_results(k, d, u, &t, r, least(2, last - r));
    }
}

/* Scratch of a thread: sums, rows of results, rows of inputs. */
RG_INLINE void divide_scratch(const rg_conv_grouped_args *k, const depthwise_row *d, pair_unit *u)
{
    const int64_t sums = 2 * u->column.results * LANES;
    const bool whole = k->unit_channels == k->padded_channels;
    const bool relu = k->conv.neuron.kind == RG_NEURON_RELU && d->epilogue.neuron.a == 0;
    u->sums = (real *)(void *)((char *)k->conv.scratch + rg_thread_pool_index() * k->scratch_bytes);
    u->rounds =
        k->plain && !k->conv.has_b && k->conv.neuron.kind == RG_NEURON_NONE && d->result[3] == 1;
    uint16_t *const after = (uint16_t *)(void *)(u->sums + sums);
    if (k->conv.stream && k->plain && whole && d->result[3] == 1 && d->result[2] == k->channels &&
        (k->conv.neuron.kind == RG_NEURON_NONE || relu))
        u->staged = after;
    if (d->source[3] != 1 || d->source[2] == 0 || k->channels % LANES != 0)
        u->copies = after + 2 * u->column.results * k->unit_channels;
}

RG_INLINE void pair_depthwise(const rg_conv_grouped_args *k, int64_t begin, int64_t end,
                              const rg_dtype T)
{
    const rg_conv_shape *s = &k->conv.shape;
    const int64_t splits = (k->padded_channels + k->unit_channels - 1) / k->unit_channels;
    depthwise_row d = depthwise_row_of(k, T);
    pair_unit u = { .row = permute_axis_of(&s->row, k->data),
                    .column = permute_axis_of(&s->column, k->data) };
    d.step = 1;
    divide_scratch(k, &d, &u);
    for (int64_t unit = begin; unit < end; unit++) {
        u.channel = unit % splits * k->unit_channels;
        u.channels = least(k->unit_channels, k->channels - u.channel);
        u.image = unit / splits / k->blocks;
        u.from = (const uint16_t *)k->conv.from + u.image * d.source[0] + u.channel * d.source[3];
        const int64_t first = unit / splits % k->blocks * k->block;
        pair_rows_of(k, &d, &u, first, least(first + k->block, u.row.results));
    }
}

RG_PAIR_KERNEL(pair_depthwise_weights, rg_conv_transpose_weights_args)
RG_PAIR_KERNEL(pair_depthwise, rg_conv_grouped_args)

#endif

RG_CPU_TABLE(conv_depthwise_pairs, RG_CONV_KERNELS) = {
#if RG_USES_PAIRS
    [RG_CONV_PAIR_DEPTHWISE_WEIGHTS] = RG_PAIR_ROW(pair_depthwise_weights),
    [RG_CONV_PAIR_DEPTHWISE] = RG_PAIR_ROW(pair_depthwise),
#endif
};
