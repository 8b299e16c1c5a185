/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* What a trainer keeps of its data set, or of a model that is used without one: images, classes,
 * normalization, the loss. */
#include "train/dataset.h"
#include "train/model_onnx.h"
#include "train/scores.h"
#include "train/trainer.h"

#include "core/memory.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const rg_allocator *const allocator = &rg_default_allocator;

/* The loss that is asked for must take the targets; classes and masks have one alone. */
static rg_status choose_loss(rg_trainer *t, const rg_dataset_info *info)
{
    rg_network_desc *n = &t->state.network;
    const bool dense = info->target == RG_TARGET_LABELS || info->target == RG_TARGET_VALUES;
    const bool softmax = t->desc.loss == RG_LOSS_SOFTMAX_CROSS_ENTROPY;
    RG_CHECK(!t->desc.has_loss || softmax == !dense, RG_INVALID_ARGUMENT,
             dense ? "loss softmax_cross_entropy needs one class for each image, but the data has "
                     "numbers"
                   : "loss must be softmax_cross_entropy where the data has classes");
    n->target = info->target;
    n->outputs = info->target == RG_TARGET_CLASS ? 0 : info->targets;
    n->has_loss = dense && t->desc.has_loss;
    n->loss = t->desc.loss;
    n->loss = rg_network_loss(n);
    n->has_loss = dense;
    return RG_OK;
}

/* Masks would have to be changed with their images. */
static rg_status check_changes(const rg_trainer_desc *desc, const rg_dataset_info *info)
{
    const char *change = desc->mirror ? "mirror" : desc->crop > 0 ? "crop" : "shift";
    RG_CHECK(info->target != RG_TARGET_MASK ||
                 (!desc->mirror && desc->crop == 0 && desc->shift == 0),
             RG_INVALID_ARGUMENT, "%s is not supported for images with masks", change);
    return RG_OK;
}

/* Targets that the loss has no meaning for train without a word. */
static rg_status check_values(const rg_network_desc *n, const rg_dataset *set)
{
    const rg_loss_kind loss = rg_network_loss(n);
    const bool any = n->target != RG_TARGET_VALUES ||
                     (loss != RG_LOSS_SIGMOID_CROSS_ENTROPY && loss != RG_LOSS_HINGE);
    for (int64_t i = 0; !any && i < set->info.count; i++) {
        const float *values = rg_dataset_values(set, i);
        for (int64_t k = 0; k < set->info.targets; k++) {
            const bool fits = loss == RG_LOSS_HINGE ? values[k] == 0 || values[k] == 1
                                                    : values[k] >= 0 && values[k] <= 1;
            RG_CHECK(fits, RG_INVALID_ARGUMENT, "loss %s needs values %s, but there is %g",
                     loss == RG_LOSS_HINGE ? "hinge" : "sigmoid_cross_entropy",
                     loss == RG_LOSS_HINGE ? "that are 0 or 1" : "from 0 to 1", (double)values[k]);
        }
    }
    return RG_OK;
}

/* Values that become infinite in the dtype of the network would look like training that diverges.
 */
static rg_status check_range(const rg_network_desc *n, const rg_dataset *set)
{
    const double largest = 65504; /* of f16; f32 values fit the others */
    if (n->dtype != RG_F16 || n->target != RG_TARGET_VALUES)
        return RG_OK;
    for (int64_t i = 0; i < set->info.count; i++) {
        const float *values = rg_dataset_values(set, i);
        for (int64_t k = 0; k < set->info.targets; k++)
            RG_CHECK(
                fabs((double)values[k]) <= largest, RG_INVALID_ARGUMENT,
                "dtype f16 cannot hold the value %g, only numbers up to %g; choose another, or "
                "scale the values",
                (double)values[k], largest);
    }
    return RG_OK;
}

/* Columns of tables and series have their own. */
static rg_status measure_columns(rg_run_state *s, const rg_dataset *set)
{
    int64_t columns;
    RG_TRY(rg_dataset_measure_columns(set, &columns, NULL, NULL));
    if (columns == 0)
        return RG_OK;
    RG_TRY(rg_allocate_array((size_t)columns, sizeof *s->column_mean, &s->column_mean));
    s->columns = columns; /* which the release of the memory needs */
    RG_TRY(rg_allocate_array((size_t)columns, sizeof *s->column_deviation, &s->column_deviation));
    return rg_dataset_measure_columns(set, &columns, s->column_mean, s->column_deviation);
}

static rg_status normalize(rg_trainer *t, const rg_dataset *set)
{
    static const double means[] = { 0.485, 0.456, 0.406 }, deviations[] = { 0.229, 0.224, 0.225 };
    rg_run_state *s = &t->state;
    if (t->desc.normalize == RG_NORMALIZE_DATA && set != NULL) {
        RG_TRY(rg_dataset_measure(set, s->mean, s->deviation));
        return measure_columns(s, set);
    }
    for (int i = 0; i < RG_DATASET_CHANNELS; i++) {
        s->mean[i] = 0;
        s->deviation[i] = 1;
    }
    if (t->desc.normalize != RG_NORMALIZE_IMAGENET)
        return RG_OK;
    RG_CHECK(s->network.channels == 3, RG_INVALID_ARGUMENT,
             "normalize imagenet is for images of 3 channels, not %lld",
             (long long)s->network.channels);
    RG_CHECK(set == NULL || set->range != RG_RANGE_BYTES, RG_INVALID_ARGUMENT,
             "normalize imagenet is for pixels from 0 to 1, but they are whole numbers up to 255; "
             "give bytes (uint8), or divide by 255");
    memcpy(s->mean, means, sizeof means);
    memcpy(s->deviation, deviations, sizeof deviations);
    return RG_OK;
}

/* Numbers of tables are themselves, whatever their range. */
static rg_pixel_range range_of(const rg_dataset *set)
{
    const bool is_table = set->info.height == 1 && set->info.channels == 1;
    return set->info.dtype == RG_U8 ? RG_RANGE_U8 : is_table ? RG_RANGE_NUMBERS : set->range;
}

rg_status rg_trainer_describe_set(rg_trainer *t, const rg_dataset *set)
{
    rg_run_state *s = &t->state;
    rg_dataset_info info;
    void *memory;
    RG_TRY(rg_dataset_get_info(set, &info));
    s->network = (rg_network_desc){ .size = sizeof s->network,
                                    .dtype = t->desc.dtype,
                                    .height = info.height,
                                    .width = info.width,
                                    .channels = info.channels,
                                    .classes = info.classes,
                                    .seed = t->desc.seed };
    s->resize = set->resized;
    s->pixels = range_of(set);
    s->set_images = info.count;
    s->set_hash = rg_dataset_hash(set);
    RG_TRY(check_changes(&t->desc, &info));
    RG_TRY(choose_loss(t, &info));
    RG_TRY(check_values(&s->network, set));
    RG_TRY(check_range(&s->network, set));
    RG_TRY(normalize(t, set));
    RG_TRY(rg_allocate_zero(allocator, (size_t)info.classes * sizeof *s->class_names, &memory));
    s->class_names = memory;
    for (int32_t i = 0; i < info.classes; i++)
        RG_TRY(rg_copy_text(rg_dataset_class_name(set, i), &s->class_names[i]));
    return RG_OK;
}

rg_status rg_trainer_describe_network(rg_trainer *t, const rg_network_desc *network)
{
    rg_run_state *s = &t->state;
    void *memory;
    RG_CHECK(network->classes <= RG_DATASET_CLASSES, RG_UNSUPPORTED,
             "the network has %d classes; at most %d are supported", network->classes,
             RG_DATASET_CLASSES);
    s->network = *network;
    s->resize = 1;
    RG_TRY(normalize(t, NULL));
    RG_TRY(
        rg_allocate_zero(allocator, (size_t)s->network.classes * sizeof *s->class_names, &memory));
    s->class_names = memory;
    for (int32_t i = 0; i < s->network.classes; i++) {
        char number[16];
        snprintf(number, sizeof number, "%d", i);
        RG_TRY(rg_copy_text(number, &s->class_names[i]));
    }
    return RG_OK;
}

rg_status rg_trainer_describe_model(rg_trainer *t, const rg_model *model)
{
    rg_network_desc network = rg_network_desc_default();
    int64_t height, width, channels;
    const rg_status one = model->onnx != NULL ? rg_onnx_check_input(model->onnx) : RG_OK;
    if (one != RG_OK)
        rg_error_prefix("%s: ", model->name);
    RG_TRY(one);
    RG_TRY(rg_model_input(model, &height, &width, &channels));
    if (rg_model_is_series(model, &height, &width))
        channels = 1;
    RG_CHECK(height > 0 && width > 0 && channels > 0 && channels <= RG_DATASET_CHANNELS,
             RG_INVALID_ARGUMENT,
             "%s: the file leaves the size of the images open; a data set must be given",
             model->name);
    RG_TRY(rg_model_describe(model, &network));
    return rg_trainer_describe_network(t, &network);
}
