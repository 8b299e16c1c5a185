/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Resizing of images, first along rows of the upright image, then along columns. Rows come one by
 * one, and few of them are kept, so that a large image is never in memory whole.
 *
 * A pixel of the result is a weighted mean of those that a triangle around its centre covers; the
 * triangle is as wide as two pixels of the larger of the two images. Weights are whole numbers with
 * PRECISION bits, so that results have the same bits on every machine. */
#include "train/resize.h"
#include "train/exif.h"

#include <math.h>
#include <string.h>

static const rg_allocator *const memory = &rg_default_allocator;

enum { PRECISION = 22 };

rg_status rg_buffer_fit(rg_buffer *buffer, size_t bytes)
{
    if (bytes <= buffer->capacity)
        return RG_OK;
    rg_buffer_release(buffer);
    RG_TRY(rg_allocate(memory, bytes, &buffer->data));
    buffer->capacity = bytes;
    return RG_OK;
}

void rg_buffer_release(rg_buffer *buffer)
{
    rg_release(memory, buffer->data, buffer->capacity);
    *buffer = (rg_buffer){ 0 };
}

void rg_resizer_release(rg_resizer *resizer)
{
    rg_buffer_release(&resizer->weights);
    rg_buffer_release(&resizer->rows);
}

/* The part of a direction that is kept: `kept` of `whole` results, from `skipped` on. */
typedef struct direction {
    int64_t from, whole, skipped, kept;
} direction;

static int64_t filter_width(const direction *d)
{
    const double scale = (double)d->from / (double)d->whole;
    return (int64_t)ceil(scale > 1 ? scale : 1) * 2 + 1;
}

static size_t filter_bytes(const direction *d)
{
    return (size_t)(d->kept * (filter_width(d) + 2)) * sizeof(int32_t);
}

/* Weights of one result, which add up to 1. */
static void set_weights(const rg_filter *f, int64_t i, double centre, double width)
{
    int32_t *w = f->weights + i * f->most;
    double sum = 0;
    for (int32_t k = 0; k < f->taken[i]; k++) {
        const double far = fabs(((double)(f->first[i] + k) - centre + 0.5) / width);
        sum += far < 1 ? 1 - far : 0;
    }
    for (int32_t k = 0; k < f->taken[i]; k++) {
        const double far = fabs(((double)(f->first[i] + k) - centre + 0.5) / width);
        const double part = far < 1 ? 1 - far : 0;
        w[k] = (int32_t)(part / sum * (1 << PRECISION) + 0.5);
    }
}

static rg_filter make_filter(const direction *d, int32_t *block)
{
    const double scale = (double)d->from / (double)d->whole, width = scale > 1 ? scale : 1;
    rg_filter f = { .count = d->kept, .most = filter_width(d) };
    f.first = block;
    f.taken = block + d->kept;
    f.weights = block + 2 * d->kept;
    for (int64_t i = 0; i < d->kept; i++) {
        const double centre = ((double)(i + d->skipped) + 0.5) * scale;
        const double low = centre - width + 0.5, high = centre + width + 0.5;
        const int64_t first = low > 0 ? (int64_t)low : 0;
        const int64_t end = high < (double)d->from ? (int64_t)high : d->from;
        f.first[i] = (int32_t)first;
        f.taken[i] = (int32_t)(end - first < f.most ? end - first : f.most);
        set_weights(&f, i, centre, width);
    }
    return f;
}

/* The same filter of elements in reverse order. */
static void mirror(rg_filter *f, int64_t from)
{
    for (int64_t i = 0; i < f->count; i++) {
        int32_t *w = f->weights + i * f->most;
        f->first[i] = (int32_t)from - f->first[i] - f->taken[i];
        for (int32_t k = 0; k < f->taken[i] / 2; k++) {
            const int32_t last = w[f->taken[i] - 1 - k];
            w[f->taken[i] - 1 - k] = w[k];
            w[k] = last;
        }
    }
}

/* Of a sum that begins with a half: weights add up to 1, so that 32 bits hold it. */
static unsigned char rounded(int32_t sum)
{
    const int32_t value = sum >> PRECISION;
    return (unsigned char)(value < 0 ? 0 : value > 255 ? 255 : value);
}

enum { HALF = 1 << (PRECISION - 1) };

/* One row. */
RG_INLINE void filter_row(const rg_filter *f, const unsigned char *from, unsigned char *to,
                          const int64_t channels)
{
    for (int64_t i = 0; i < f->count; i++) {
        const int32_t *w = f->weights + i * f->most;
        const unsigned char *at = from + f->first[i] * channels;
        int32_t sums[3] = { HALF, HALF, HALF };
        for (int32_t k = 0; k < f->taken[i]; k++, at += channels) {
            for (int64_t c = 0; c < channels; c++)
                sums[c] += w[k] * at[c];
        }
        for (int64_t c = 0; c < channels; c++)
            to[i * channels + c] = rounded(sums[c]);
    }
}

static void filter_any_row(const rg_filter *f, const unsigned char *from, unsigned char *to,
                           int64_t channels)
{
    if (channels == 3)
        filter_row(f, from, to, 3);
    else
        filter_row(f, from, to, 1);
}

/* Result i, of the rows in the ring. */
static void filter_rows(const rg_resizer *r, int64_t i, unsigned char *to)
{
    const rg_filter *f = &r->across;
    const int32_t *w = f->weights + i * f->most;
    const size_t bytes = r->row_bytes;
    int32_t *sums = r->sums;
    for (size_t j = 0; j < bytes; j++)
        sums[j] = HALF;
    for (int32_t k = 0; k < f->taken[i]; k++) {
        const unsigned char *row = r->ring + (size_t)((f->first[i] + k) % r->held) * bytes;
        for (size_t j = 0; j < bytes; j++)
            sums[j] += w[k] * row[j];
    }
    for (size_t j = 0; j < bytes; j++)
        to[j] = rounded(sums[j]);
}

/* ---- an image ---- */

rg_extent rg_resize_covering(rg_extent of, rg_extent size)
{
    const double rows = (double)size.height / (double)of.height;
    const double columns = (double)size.width / (double)of.width;
    rg_extent whole = size;
    if (rows > columns)
        whole.width = (int64_t)((double)of.width * rows + 0.5);
    else
        whole.height = (int64_t)((double)of.height * columns + 0.5);
    whole.width = whole.width < size.width ? size.width : whole.width;
    whole.height = whole.height < size.height ? size.height : whole.height;
    return whole;
}

/* Memory for the last rows of the source, which are filtered already, or transposed into columns
 * first. */
static rg_status make_rows(rg_resizer *r, rg_extent of)
{
    const size_t column = (size_t)(r->size.height * r->channels);
    r->row_bytes = (size_t)((r->is_transposed ? of.width : r->size.width) * r->channels);
    r->held = r->across.most < of.height ? r->across.most : of.height;
    const size_t sums = r->row_bytes * sizeof(int32_t), ring = (size_t)r->held * r->row_bytes;
    RG_TRY(rg_buffer_fit(&r->rows, sums + ring + r->row_bytes + column));
    r->sums = r->rows.data;
    r->ring = (unsigned char *)r->rows.data + sums;
    r->line = r->ring + ring;
    r->column = r->line + r->row_bytes;
    return RG_OK;
}

uint64_t rg_resize_bytes(const rg_resize_source *source, rg_extent size)
{
    const rg_extent of = rg_exif_upright_size(source->of, source->orientation);
    const rg_extent whole = rg_resize_covering(of, size);
    const bool is_transposed = rg_exif_axes_of(source->orientation).is_transposed;
    const direction across = { .from = source->of.height,
                               .whole = is_transposed ? whole.width : whole.height };
    const int64_t most = filter_width(&across);
    const int64_t held = most < source->of.height ? most : source->of.height;
    return (uint64_t)((held + 5) * (is_transposed ? source->of.width : size.width) *
                      source->channels);
}

rg_status rg_resize_begin(rg_resizer *r, const rg_resize_source *source, unsigned char *to,
                          rg_extent size)
{
    const rg_exif_axes axes = rg_exif_axes_of(source->orientation);
    const rg_extent of = rg_exif_upright_size(source->of, source->orientation);
    const rg_extent whole = rg_resize_covering(of, size);
    const direction columns = { of.width, whole.width, (whole.width - size.width) / 2, size.width };
    const direction rows = { of.height, whole.height, (whole.height - size.height) / 2,
                             size.height };
    RG_TRY(rg_buffer_fit(&r->weights, filter_bytes(&columns) + filter_bytes(&rows)));
    int32_t *block = r->weights.data;
    rg_filter x = make_filter(&columns, block);
    rg_filter y = make_filter(&rows, block + filter_bytes(&columns) / sizeof *block);
    r->along = axes.is_transposed ? y : x;
    r->across = axes.is_transposed ? x : y;
    if (axes.from_right)
        mirror(&r->along, source->of.width);
    if (axes.from_below)
        mirror(&r->across, source->of.height);
    r->channels = source->channels;
    r->size = size;
    r->to = to;
    r->is_transposed = axes.is_transposed;
    r->is_reversed = axes.from_below;
    r->done = 0;
    return make_rows(r, source->of);
}

/* Row i of the result, or column i. */
static void make_result(const rg_resizer *r, int64_t i)
{
    const int64_t channels = r->channels, width = r->size.width;
    if (!r->is_transposed) {
        filter_rows(r, i, r->to + (size_t)(i * width * channels));
        return;
    }
    filter_rows(r, i, r->line);
    filter_any_row(&r->along, r->line, r->column, channels);
    for (int64_t k = 0; k < r->size.height; k++)
        memcpy(r->to + (size_t)((k * width + i) * channels), r->column + (size_t)(k * channels),
               (size_t)channels);
}

/* What is made of the rows comes in their order, or in the reverse of it. */
static int64_t next_result(const rg_resizer *r)
{
    return r->is_reversed ? r->across.count - 1 - r->done : r->done;
}

void rg_resize_row(rg_resizer *r, int64_t i, const unsigned char *row)
{
    const rg_filter *f = &r->across;
    if (r->done == f->count || i < f->first[next_result(r)])
        return; /* of a part that is cut off */
    unsigned char *to = r->ring + (size_t)(i % r->held) * r->row_bytes;
    if (r->is_transposed)
        memcpy(to, row, r->row_bytes);
    else
        filter_any_row(&r->along, row, to, r->channels);
    for (; r->done < f->count; r->done++) {
        const int64_t next = next_result(r);
        if (i + 1 < f->first[next] + f->taken[next])
            break;
        make_result(r, next);
    }
}

rg_status rg_resize_cover(rg_resizer *r, const unsigned char *from, rg_extent of, int64_t channels,
                          unsigned char *to, rg_extent size)
{
    const rg_resize_source source = { of, 1, channels };
    RG_TRY(rg_resize_begin(r, &source, to, size));
    for (int64_t i = 0; i < of.height; i++)
        rg_resize_row(r, i, from + (size_t)(i * of.width * channels));
    return RG_OK;
}
