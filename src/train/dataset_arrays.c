/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Data sets of the caller's arrays. */
#include "train/dataset.h"

#include <math.h>
#include <string.h>

rg_dataset_arrays rg_dataset_arrays_default(void)
{
    return (rg_dataset_arrays){ .size = sizeof(rg_dataset_arrays),
                                .dtype = RG_F32,
                                .count = 1,
                                .height = 1,
                                .width = 1,
                                .channels = 1,
                                .classes = 1,
                                .targets = 1 };
}

static bool has_labels(const rg_dataset_arrays *a)
{
    return a->target == RG_TARGET_CLASS || a->target == RG_TARGET_MASK;
}

static rg_status check_arrays(const rg_dataset_arrays *a)
{
    const rg_status wrong = RG_INVALID_ARGUMENT;
    RG_CHECK(a->size == sizeof *a, wrong,
             "rg_dataset_create: size is %u; start from rg_dataset_arrays_default()", a->size);
    RG_CHECK(a->dtype == RG_U8 || a->dtype == RG_F32, wrong,
             "rg_dataset_create: dtype must be u8 or f32, not %s", rg_dtype_name(a->dtype));
    RG_CHECK((unsigned)a->target <= RG_TARGET_MASK, wrong, "rg_dataset_create: target is %d",
             (int)a->target);
    RG_CHECK(a->targets >= 1 && a->targets <= INT32_MAX &&
                 (a->target != RG_TARGET_CLASS || a->targets == 1),
             wrong, "rg_dataset_create: targets is %lld", (long long)a->targets);
    RG_CHECK(a->pixels != NULL && (has_labels(a) ? a->labels != NULL : a->values != NULL), wrong,
             "rg_dataset_create: pixels, labels or values are NULL");
    RG_CHECK(a->classes >= 1 && a->classes <= RG_DATASET_CLASSES, wrong,
             "rg_dataset_create: classes must be between 1 and %d, not %d", RG_DATASET_CLASSES,
             a->classes);
    return RG_OK;
}

static rg_status check_numbers(const float *numbers, size_t count, const char *what)
{
    for (size_t i = 0; i < count; i++)
        RG_CHECK(isfinite(numbers[i]), RG_INVALID_ARGUMENT,
                 "rg_dataset_create: %s %zu is not a finite number", what, i);
    return RG_OK;
}

static rg_status copy_targets(const rg_dataset_arrays *a, rg_dataset *set)
{
    size_t count;
    RG_CHECK(rg_multiply((size_t)a->count, (size_t)a->targets, &count), RG_OUT_OF_MEMORY,
             "rg_dataset_create: the targets do not fit in memory");
    if (!has_labels(a)) {
        RG_TRY(check_numbers(a->values, count, "value"));
        RG_TRY(rg_allocate_array(count, sizeof *set->values, &set->values));
        memcpy(set->values, a->values, count * sizeof *set->values);
        return RG_OK;
    }
    const int32_t least = a->target == RG_TARGET_MASK ? RG_DATASET_IGNORED : 0;
    for (size_t i = 0; i < count; i++)
        RG_CHECK(a->labels[i] >= least && a->labels[i] < a->classes, RG_INVALID_ARGUMENT,
                 "rg_dataset_create: label %zu is %d, but there are %d classes", i, a->labels[i],
                 a->classes);
    RG_TRY(rg_allocate_array(count, sizeof *set->labels, &set->labels));
    memcpy(set->labels, a->labels, count * sizeof *set->labels);
    return RG_OK;
}

static rg_status fill(const rg_dataset_arrays *a, rg_dataset *set)
{
    set->info = (rg_dataset_info){ .count = a->count,
                                   .height = a->height,
                                   .width = a->width,
                                   .channels = a->channels,
                                   .dtype = a->dtype,
                                   .target = a->target,
                                   .targets = a->targets };
    rg_status status = rg_dataset_allocate(set, UINT64_MAX);
    RG_TRY(status == RG_MALFORMED ? RG_INVALID_ARGUMENT : status);
    RG_CHECK(a->target != RG_TARGET_MASK || a->targets == a->height * a->width, RG_INVALID_ARGUMENT,
             "rg_dataset_create: targets is %lld; a mask has the %lld x %lld pixels of its image",
             (long long)a->targets, (long long)a->height, (long long)a->width);
    memcpy(set->pixels, a->pixels, set->pixel_bytes);
    set->has_columns = a->dtype == RG_F32 && a->height == 1 && a->channels == 1;
    const size_t numbers = set->pixel_bytes / sizeof(float);
    if (a->dtype == RG_F32)
        RG_TRY(check_numbers(a->pixels, numbers, "pixel"));
    if (a->dtype == RG_F32)
        set->range = rg_pixels_range(a->pixels, RG_F32, numbers);
    RG_TRY(copy_targets(a, set));
    const int32_t classes = has_labels(a) ? a->classes : (int32_t)a->targets;
    RG_CHECK(classes <= RG_DATASET_CLASSES, RG_INVALID_ARGUMENT,
             "rg_dataset_create: there can be at most %d targets", RG_DATASET_CLASSES);
    return rg_dataset_name(set, classes, a->names);
}

rg_status rg_dataset_create(const rg_dataset_arrays *arrays, rg_dataset **set)
{
    rg_dataset *made;
    RG_CHECK_NOT_NULL(set);
    *set = NULL;
    RG_CHECK_NOT_NULL(arrays);
    RG_TRY(check_arrays(arrays));
    RG_TRY(rg_dataset_begin(&made));
    const rg_status status = fill(arrays, made);
    if (status == RG_OK)
        *set = made;
    else
        rg_dataset_destroy(made);
    return status;
}
