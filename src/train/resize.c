/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Resizing of images, first along rows, then along columns.
 *
 * A pixel of the result is a weighted mean of those that a triangle around its centre covers; the
 * triangle is as wide as two pixels of the larger of the two images. Weights are whole numbers with
 * PRECISION bits, so that results have the same bits on every machine. */
#include "train/resize.h"

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

/* One direction: element i of `count` results is the sum of weights[i * most + k] times element
 * first[i] + k of the source, for k below taken[i]. */
typedef struct filter {
    int64_t count, most;
    int32_t *first, *taken, *weights;
} filter;

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
static void set_weights(const filter *f, int64_t i, double centre, double width)
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

static filter make_filter(const direction *d, int32_t *block)
{
    const double scale = (double)d->from / (double)d->whole, width = scale > 1 ? scale : 1;
    filter f = { .count = d->kept, .most = filter_width(d) };
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

static unsigned char rounded(int64_t sum)
{
    const int64_t value = (sum + (1 << (PRECISION - 1))) >> PRECISION;
    return (unsigned char)(value < 0 ? 0 : value > 255 ? 255 : value);
}

/* One row. */
RG_INLINE void filter_row(const filter *f, const unsigned char *from, unsigned char *to,
                          const int64_t channels)
{
    for (int64_t i = 0; i < f->count; i++) {
        const int32_t *w = f->weights + i * f->most;
        const unsigned char *at = from + f->first[i] * channels;
        for (int64_t c = 0; c < channels; c++) {
            int64_t sum = 0;
            for (int32_t k = 0; k < f->taken[i]; k++)
                sum += (int64_t)w[k] * at[k * channels + c];
            to[i * channels + c] = rounded(sum);
        }
    }
}

/* Row i of the result, of rows of `bytes` each from row `first` of the source on; `sums` has as
 * many elements. */
static void filter_columns(const filter *f, int64_t i, int64_t first, const unsigned char *rows,
                           size_t bytes, int32_t *sums, unsigned char *to)
{
    const int32_t *w = f->weights + i * f->most;
    memset(sums, 0, bytes * sizeof *sums);
    for (int32_t k = 0; k < f->taken[i]; k++) {
        const unsigned char *row = rows + (size_t)(f->first[i] - first + k) * bytes;
        for (size_t j = 0; j < bytes; j++)
            sums[j] += w[k] * row[j];
    }
    for (size_t j = 0; j < bytes; j++)
        to[j] = rounded(sums[j]);
}

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

rg_status rg_resize_cover(rg_resizer *r, const unsigned char *from, rg_extent of, int64_t channels,
                          unsigned char *to, rg_extent size)
{
    const rg_extent whole = rg_resize_covering(of, size);
    const direction across = { of.width, whole.width, (whole.width - size.width) / 2, size.width };
    const direction down = { of.height, whole.height, (whole.height - size.height) / 2,
                             size.height };
    const size_t bytes = (size_t)(size.width * channels), source = (size_t)(of.width * channels);
    RG_TRY(rg_buffer_fit(&r->weights, filter_bytes(&across) + filter_bytes(&down)));
    int32_t *block = r->weights.data;
    const filter x = make_filter(&across, block);
    const filter y = make_filter(&down, block + filter_bytes(&across) / sizeof *block);
    /* Only these rows of the source are seen: of a strip few. */
    const int64_t first = y.first[0], end = y.first[y.count - 1] + y.taken[y.count - 1];
    const size_t rows_bytes = ((size_t)(end - first) * bytes + 63) / 64 * 64;
    RG_TRY(rg_buffer_fit(&r->rows, rows_bytes + bytes * sizeof(int32_t)));
    unsigned char *rows = r->rows.data;
    int32_t *sums = (int32_t *)(void *)(rows + rows_bytes);
    for (int64_t i = first; i < end; i++) {
        const unsigned char *at = from + (size_t)i * source;
        unsigned char *row = rows + (size_t)(i - first) * bytes;
        if (channels == 3)
            filter_row(&x, at, row, 3);
        else if (channels == 1)
            filter_row(&x, at, row, 1);
        else
            filter_row(&x, at, row, channels);
    }
    for (int64_t i = 0; i < y.count; i++)
        filter_columns(&y, i, first, rows, bytes, sums, to + (size_t)i * bytes);
    return RG_OK;
}
