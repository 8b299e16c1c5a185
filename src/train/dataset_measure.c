/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Mean and deviation of data sets: of every channel, or of every column of tables and series. */
#include "train/image_items.h"
#include "core/dtype.h"
#include "core/thread.h"

#include <math.h>
#include <stdio.h>

static const rg_allocator *const memory = &rg_default_allocator;

/* ---- channels ---- */

/* How often each value stands in each channel. */
typedef uint64_t byte_counts[RG_DATASET_CHANNELS][256];

/* Images whose values are counted by several threads: all, or of image files so many that are
 * evenly distributed, whether they are in memory or not. */
typedef struct sample {
    const rg_dataset *set;
    int64_t images;
    _Atomic int64_t next;
    _Atomic bool is_over; /* after a failure */
    rg_decode_budget budget;
    pthread_mutex_t lock; /* of what follows */
    byte_counts counts;
    int64_t bad; /* the first image that cannot be read; -1: none */
    rg_status status;
    char text[512];
} sample;

static rg_status count_image(const sample *s, int64_t i, rg_decoder *decoder, void *block,
                             byte_counts counts)
{
    const int64_t channels = s->set->info.channels, count = s->set->info.count;
    const int64_t index = s->images == count ? i : i * count / s->images;
    const void *pixels;
    RG_TRY(rg_dataset_fetch(s->set, index, decoder, block, &pixels));
    const unsigned char *image = pixels;
    for (size_t k = 0; k < s->set->image_bytes; k += (size_t)channels) {
        for (int64_t c = 0; c < channels; c++)
            counts[c][image[k + (size_t)c]]++;
    }
    return RG_OK;
}

/* Images are taken in their order, so that the first bad one is found by any number of threads. */
static void keep_failure(sample *s, int64_t i, rg_status status)
{
    pthread_mutex_lock(&s->lock);
    if (s->bad < 0 || i < s->bad) {
        s->bad = i;
        s->status = status;
        snprintf(s->text, sizeof s->text, "%s", rg_error_text());
    }
    pthread_mutex_unlock(&s->lock);
    s->is_over = true;
}

static void *count_images(void *context)
{
    sample *s = context;
    rg_decoder decoder = { .budget = &s->budget };
    void *block = NULL, *made = NULL;
    rg_status status = rg_allocate_zero(memory, sizeof(byte_counts), &made);
    byte_counts *counts = made;
    if (status == RG_OK)
        status = rg_allocate(memory, s->set->image_bytes, &block);
    for (int64_t i; !s->is_over && (i = atomic_fetch_add(&s->next, 1)) < s->images;) {
        if (status == RG_OK)
            status = count_image(s, i, &decoder, block, *counts);
        if (status != RG_OK)
            keep_failure(s, i, status);
    }
    rg_decoder_release(&decoder);
    rg_release(memory, block, s->set->image_bytes);
    pthread_mutex_lock(&s->lock);
    for (int i = 0; counts != NULL && i < RG_DATASET_CHANNELS * 256; i++)
        s->counts[i / 256][i % 256] += (*counts)[i / 256][i % 256];
    pthread_mutex_unlock(&s->lock);
    rg_release(memory, counts, sizeof *counts);
    return NULL;
}

static void count_by_threads(sample *s)
{
    enum { MOST = 64 };
    pthread_t threads[MOST];
    const bool in_memory = rg_dataset_whole(s->set)->pixels != NULL;
    const int32_t wanted = in_memory ? 1 : rg_decoder_threads(s->set->threads);
    int32_t started = 0;
    pthread_mutex_init(&s->lock, NULL);
    rg_decode_budget_begin(&s->budget);
    while (started < wanted - 1 && started + 1 < s->images &&
           rg_thread_start(&threads[started], count_images, s))
        started++;
    (void)count_images(s);
    for (int32_t i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    rg_decode_budget_end(&s->budget);
    pthread_mutex_destroy(&s->lock);
}

/* Whole numbers: exact, whatever the order. */
static rg_status measure_bytes(const rg_dataset *set, double mean[], double deviation[])
{
    enum { SAMPLE = 512 };
    const int64_t channels = set->info.channels, pixels = (int64_t)set->image_bytes / channels;
    const bool all = !set->decoded || set->info.count <= SAMPLE;
    sample s = { .set = set, .images = all ? set->info.count : SAMPLE, .bad = -1 };
    count_by_threads(&s);
    if (s.bad >= 0)
        return rg_fail(s.status, "%s", s.text);
    const double n = (double)s.images * (double)pixels;
    for (int64_t c = 0; c < channels; c++) {
        double sum = 0, squares = 0;
        for (int v = 0; v < 256; v++)
            sum += (double)s.counts[c][v] * v;
        mean[c] = sum / n;
        for (int v = 0; v < 256; v++)
            squares += (double)s.counts[c][v] * (v - mean[c]) * (v - mean[c]);
        mean[c] /= 255;
        deviation[c] = sqrt(squares / n) / 255;
    }
    return RG_OK;
}

/* Two passes: differences are taken from the mean. */
static rg_status measure_floats(const rg_dataset *set, double mean[], double deviation[])
{
    const int64_t channels = set->info.channels;
    const int64_t pixels = (int64_t)(set->image_bytes / sizeof(float)) / channels;
    const double n = (double)set->info.count * (double)pixels;
    for (int64_t c = 0; c < channels; c++) {
        double sum = 0, squares = 0;
        for (int64_t i = 0; i < set->info.count; i++) {
            const float *image = rg_dataset_image(set, i);
            for (int64_t k = 0; k < pixels; k++)
                sum += (double)image[k * channels + c];
            RG_CHECK(isfinite(sum), RG_MALFORMED,
                     "image %lld has a pixel that is not a finite number", (long long)i);
        }
        mean[c] = sum / n;
        for (int64_t i = 0; i < set->info.count; i++) {
            const float *image = rg_dataset_image(set, i);
            for (int64_t k = 0; k < pixels; k++) {
                const double off = (double)image[k * channels + c] - mean[c];
                squares += off * off;
            }
        }
        deviation[c] = sqrt(squares / n);
    }
    return RG_OK;
}

rg_status rg_dataset_measure(const rg_dataset *set, double mean[RG_DATASET_CHANNELS],
                             double deviation[RG_DATASET_CHANNELS])
{
    RG_CHECK_NOT_NULL(set);
    RG_CHECK_NOT_NULL(mean);
    RG_CHECK_NOT_NULL(deviation);
    double m[RG_DATASET_CHANNELS] = { 0 }, d[RG_DATASET_CHANNELS] = { 0 };
    RG_TRY(set->info.dtype == RG_U8 ? measure_bytes(set, m, d) : measure_floats(set, m, d));
    for (int c = 0; c < RG_DATASET_CHANNELS; c++) {
        mean[c] = m[c];
        deviation[c] = d[c] > 0 ? d[c] : 1;
    }
    return RG_OK;
}

rg_pixel_range rg_pixels_range(const void *pixels, rg_dtype dtype, size_t count)
{
    bool small = true, bytes = true;
    if (dtype == RG_U8)
        return RG_RANGE_U8;
    for (size_t i = 0; i < count && (small || bytes); i++) {
        const double x = rg_element_get(pixels, dtype, (int64_t)i);
        small = small && x >= 0 && x <= 1;
        bytes = bytes && x >= 0 && x <= 255 && x == floor(x);
    }
    return small && bytes ? RG_RANGE_OPEN
           : small        ? RG_RANGE_UNIT
           : bytes        ? RG_RANGE_BYTES
                          : RG_RANGE_NUMBERS;
}

/* ---- columns ---- */

/* Whether numbers look like pixels, which have one scale: a row of whole numbers does not. */
static bool are_pixels(const rg_dataset *set)
{
    return set->range == RG_RANGE_OPEN || set->range == RG_RANGE_UNIT ||
           (set->range == RG_RANGE_BYTES && set->info.height > 1);
}

/* Adds x, or the square of its difference from the mean, to the sum of its column. */
static void add_columns(const rg_dataset *set, const double *mean, double sums[])
{
    const int64_t width = set->info.width, rows = set->info.height;
    for (int64_t i = 0; i < set->info.count; i++) {
        const float *x = rg_dataset_image(set, i);
        for (int64_t k = 0; k < rows * width; k++) {
            const double off = mean != NULL ? (double)x[k] - mean[k % width] : 0;
            sums[k % width] += mean != NULL ? off * off : (double)x[k];
        }
    }
}

rg_status rg_dataset_measure_columns(const rg_dataset *set, int64_t *columns, double mean[],
                                     double deviation[])
{
    RG_CHECK_NOT_NULL(set);
    RG_CHECK_NOT_NULL(columns);
    *columns = 0;
    if (!set->has_columns || are_pixels(set))
        return RG_OK;
    const int64_t width = set->info.width;
    const double n = (double)set->info.count * (double)set->info.height;
    *columns = width;
    if (mean == NULL || deviation == NULL)
        return RG_OK;
    for (int64_t k = 0; k < width; k++)
        mean[k] = deviation[k] = 0;
    add_columns(set, NULL, mean);
    for (int64_t k = 0; k < width; k++)
        mean[k] /= n;
    add_columns(set, mean, deviation);
    for (int64_t k = 0; k < width; k++) {
        deviation[k] = sqrt(deviation[k] / n);
        deviation[k] = deviation[k] > 0 ? deviation[k] : 1;
    }
    return RG_OK;
}
