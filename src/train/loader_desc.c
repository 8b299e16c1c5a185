/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Descriptors of loaders: defaults and checks. */
#include "train/loader.h"
#include "core/dtype.h"

#include <math.h>

rg_loader_desc rg_loader_desc_default(void)
{
    rg_loader_desc desc = {
        .size = sizeof desc, .dtype = RG_F32, .batch = 128, .shuffle = true, .buffers = 3
    };
    for (int c = 0; c < RG_DATASET_CHANNELS; c++)
        desc.deviation[c] = 1;
    return desc;
}

static rg_status check_range(const char *field, int64_t value, int64_t low, int64_t high)
{
    RG_CHECK(value >= low && value <= high, RG_INVALID_ARGUMENT,
             "rg_loader_create: %s must be between %lld and %lld, not %lld", field, (long long)low,
             (long long)high, (long long)value);
    return RG_OK;
}

static rg_status check_columns(const rg_dataset *set, const rg_loader_desc *desc)
{
    if (desc->columns == 0)
        return RG_OK;
    RG_CHECK(
        desc->columns == set->info.width && set->info.channels == 1 && set->info.dtype == RG_F32 &&
            desc->column_mean != NULL && desc->column_deviation != NULL,
        RG_INVALID_ARGUMENT,
        "rg_loader_create: columns are normalized in sets of f32 with one channel, with a mean "
        "and a deviation for each column");
    for (int64_t k = 0; k < desc->columns; k++)
        RG_CHECK(isfinite(desc->column_mean[k]) && isfinite(desc->column_deviation[k]) &&
                     desc->column_deviation[k] > 0,
                 RG_INVALID_ARGUMENT,
                 "rg_loader_create: column %lld has the mean %g and the deviation %g", (long long)k,
                 desc->column_mean[k], desc->column_deviation[k]);
    return RG_OK;
}

rg_status rg_loader_check_desc(const rg_dataset *set, const rg_loader_desc *desc)
{
    RG_CHECK(rg_dtype_is_data(desc->dtype), RG_INVALID_ARGUMENT,
             "rg_loader_create: dtype must be f32, f64, f16 or bf16, not %s",
             rg_dtype_name(desc->dtype));
    RG_CHECK(set->info.target != RG_TARGET_MASK ||
                 (!desc->mirror && desc->crop == 0 && desc->shift == 0),
             RG_UNSUPPORTED,
             "rg_loader_create: images with masks cannot be mirrored, cropped or shifted");
    RG_TRY(check_range("batch", desc->batch, 1, INT32_MAX));
    RG_TRY(check_range("first", desc->first, 0, INT32_MAX));
    RG_TRY(check_range("most", desc->most, 0, INT32_MAX));
    RG_TRY(check_range("crop", desc->crop, 0, 1024));
    RG_TRY(check_range("shift", desc->shift, 0, 1024));
    RG_TRY(check_range("buffers", desc->buffers, 2, 16));
    RG_TRY(check_range("threads", desc->threads, 0, RG_LOADER_THREADS));
    RG_CHECK(!desc->drop_last || set->info.count >= desc->batch, RG_INVALID_ARGUMENT,
             "rg_loader_create: the data set has %lld images, fewer than a batch of %lld, and "
             "incomplete batches are skipped",
             (long long)set->info.count, (long long)desc->batch);
    RG_TRY(check_columns(set, desc));
    for (int c = 0; c < set->info.channels; c++) {
        RG_CHECK(isfinite(desc->mean[c]), RG_INVALID_ARGUMENT,
                 "rg_loader_create: the mean of channel %d is not finite", c);
        RG_CHECK(
            isfinite(desc->deviation[c]) && desc->deviation[c] > 0, RG_INVALID_ARGUMENT,
            "rg_loader_create: the standard deviation of channel %d must be greater than 0, not %g",
            c, desc->deviation[c]);
    }
    return RG_OK;
}
