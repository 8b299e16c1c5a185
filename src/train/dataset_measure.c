/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Mean and deviation of data sets: of every channel, or of every column of tables and series. */
#include "train/image_items.h"
#include "core/dtype.h"

#include <math.h>

static const rg_allocator *const memory = &rg_default_allocator;

/* ---- channels ---- */

/* Counts the values of some images: all, or of image files so many that are evenly
 * distributed, whether they are in memory or not. */
static rg_status count_bytes(const rg_dataset *set, uint64_t counts[][256], int64_t *images)
{
    enum { SAMPLE = 512 };
    const int64_t channels = set->info.channels, count = set->info.count;
    const bool all = !set->decoded || count <= SAMPLE;
    rg_decoder decoder = { 0 };
    void *block;
    *images = all ? count : SAMPLE;
    RG_TRY(rg_allocate(memory, set->image_bytes, &block));
    rg_status status = RG_OK;
    for (int64_t i = 0; i < *images && status == RG_OK; i++) {
        const void *pixels;
        status = rg_dataset_fetch(set, all ? i : i * count / SAMPLE, &decoder, block, &pixels);
        const unsigned char *image = pixels;
        for (size_t k = 0; status == RG_OK && k < set->image_bytes; k += (size_t)channels) {
            for (int64_t c = 0; c < channels; c++)
                counts[c][image[k + (size_t)c]]++;
        }
    }
    rg_decoder_release(&decoder);
    rg_release(memory, block, set->image_bytes);
    return status;
}

/* Whole numbers: exact, whatever the order. */
static rg_status measure_bytes(const rg_dataset *set, double mean[], double deviation[])
{
    uint64_t counts[RG_DATASET_CHANNELS][256] = { { 0 } };
    const int64_t channels = set->info.channels, pixels = (int64_t)set->image_bytes / channels;
    int64_t images;
    RG_TRY(count_bytes(set, counts, &images));
    const double n = (double)images * (double)pixels;
    for (int64_t c = 0; c < channels; c++) {
        double sum = 0, squares = 0;
        for (int v = 0; v < 256; v++)
            sum += (double)counts[c][v] * v;
        mean[c] = sum / n;
        for (int v = 0; v < 256; v++)
            squares += (double)counts[c][v] * (v - mean[c]) * (v - mean[c]);
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

/* Whether numbers look like pixels, which have one scale. */
static bool are_pixels(const rg_dataset *set)
{
    const int64_t count = set->info.height * set->info.width;
    bool small = true, bytes = set->info.height > 1;
    for (int64_t i = 0; i < set->info.count && (small || bytes); i++) {
        const float *x = rg_dataset_image(set, i);
        for (int64_t k = 0; k < count; k++) {
            small = small && x[k] >= 0 && x[k] <= 1;
            bytes = bytes && x[k] >= 0 && x[k] <= 255 && x[k] == floorf(x[k]);
        }
    }
    return small || bytes;
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
