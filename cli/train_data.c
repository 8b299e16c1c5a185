/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Opening the parts of a data set. */
#include "cli/train_data.h"
#include "cli/train_show.h"
#include "cli/use_checkpoint.h"

#include <malloc.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>

/* Moves a share of `*from` to `*part`, which stays NULL if that is less than half an image. */
static rg_status hold_back(const rg_train_request *q, double fraction, uint64_t seed,
                           rg_dataset **from, rg_dataset **part)
{
    rg_dataset *rest;
    rg_dataset_info info;
    RG_PASS(rg_dataset_get_info(*from, &info));
    if (llround((double)info.count * fraction) == 0)
        return RG_OK;
    const rg_status status = rg_dataset_split(*from, fraction, seed, &rest, part);
    if (status == RG_INVALID_ARGUMENT)
        return rg_usage_status(rg_fails(
            status, "--validation %g leaves no images of %s for training", fraction, q->data));
    RG_PASS(status);
    rg_dataset_destroy(*from);
    *from = rest;
    return RG_OK;
}

/* A line of progress on the terminal makes room. */
static void say(void *context, const char *sentence)
{
    const rg_train_request *q = context;
    if (q->show != NULL)
        rg_show_clear(q->show);
    fprintf(stderr, "retrograde: %s\n", sentence);
}

static bool watch(void *context, int64_t done, int64_t of)
{
    const rg_train_request *q = context;
    return q->watch == NULL || q->watch(q->watched, done, of);
}

/* Each thread that decodes has memory of its own in glibc, which keeps freed blocks of up to 32 MB.
 * What large photographs need shall go back when one is done. */
static void give_memory_back(void)
{
#if defined(__GLIBC__)
    enum { KEPT_BYTES = 4 << 20 };
    mallopt(M_MMAP_THRESHOLD, KEPT_BYTES);
    mallopt(M_TRIM_THRESHOLD, KEPT_BYTES);
#endif
}

rg_status rg_train_data_options(const rg_train_request *q, rg_dataset_options *options)
{
    give_memory_back();
    *options = rg_dataset_options_default();
    options->say = q->quiet ? NULL : say;
    options->watch = watch;
    options->context = (void *)(uintptr_t)q; /* which is only read */
    options->threads = (int32_t)q->workers;
    options->memory_bytes = q->memory * 1000000;
    options->channels = q->channels;
    return rg_train_size(q->size, &options->height, &options->width);
}

/* Images in files of the other parts get the channels of the training part. */
static rg_status follow(const rg_dataset *train, rg_dataset_options *options)
{
    rg_dataset_info info;
    RG_PASS(rg_dataset_get_info(train, &info));
    if (info.channels == 1 || info.channels == 3)
        options->channels = info.channels;
    return RG_OK;
}

rg_status rg_train_data_divide(const rg_train_request *q, const rg_dataset *whole,
                               rg_train_data *data)
{
    rg_dataset_info info;
    RG_PASS(rg_dataset_get_info(whole, &info));
    if (llround((double)info.count * RG_TRAIN_TEST_FRACTION) == 0)
        return rg_fails(RG_INVALID_ARGUMENT,
                        "%s: there are too few images for training and testing", q->data);
    RG_PASS(rg_dataset_split(whole, RG_TRAIN_TEST_FRACTION, (uint64_t)q->seed, &data->train,
                             &data->test));
    return q->validation > 0
               ? hold_back(q, q->validation, (uint64_t)q->seed + 1, &data->train, &data->validation)
               : RG_OK;
}

/* The same of an opened set, whose parts keep it. */
static rg_status divide(const rg_train_request *q, rg_train_data *data)
{
    rg_dataset *whole = data->train;
    data->train = NULL;
    const rg_status status = rg_train_data_divide(q, whole, data);
    rg_dataset_destroy(whole);
    return status;
}

rg_status rg_train_data_open(const rg_train_request *q, rg_train_data *data)
{
    rg_dataset_options options;
    *data = (rg_train_data){ .train = NULL };
    RG_PASS(rg_train_data_options(q, &options));
    RG_PASS(rg_dataset_open_with(q->data, RG_DATASET_TRAIN, &options, &data->train));
    RG_PASS(follow(data->train, &options));
    RG_PASS(rg_open_part(q->data, RG_DATASET_TEST, &options, &data->test));
    if (q->validation > 0 && !q->splits_always)
        RG_PASS(rg_open_part(q->data, RG_DATASET_VALIDATION, &options, &data->validation));
    data->has_validation_part = data->validation != NULL;
    data->has_test_part = data->test != NULL;
    if (!data->has_test_part)
        return divide(q, data);
    if (q->validation > 0 && data->validation == NULL)
        RG_PASS(
            hold_back(q, q->validation, (uint64_t)q->seed + 1, &data->train, &data->validation));
    return RG_OK;
}

void rg_train_data_close(rg_train_data *data)
{
    rg_dataset_destroy(data->train);
    rg_dataset_destroy(data->validation);
    rg_dataset_destroy(data->test);
    *data = (rg_train_data){ .train = NULL };
}
