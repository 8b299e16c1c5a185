/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Evaluation and prediction: how good a network is on a data set, and what it says of images. */
#include "train/dataset.h"
#include "train/loader.h"
#include "train/scores.h"
#include "train/trainer.h"

#include "core/dtype.h"
#include "core/memory.h"

#include <math.h>
#include <stdio.h>

static const rg_allocator *const allocator = &rg_default_allocator;

/* ---- evaluation ---- */

/* Whether a name is that of a class without one: its number. */
static bool is_number(const char *name, int32_t label)
{
    char number[16];
    snprintf(number, sizeof number, "%d", label);
    return strcmp(name, number) == 0;
}

/* Labels mean the same only where the classes have the same names. */
static rg_status check_names(const rg_trainer *trainer, const rg_dataset *set)
{
    for (int32_t i = 0; i < trainer->state.network.classes; i++) {
        const char *name = rg_dataset_class_name(set, i), *known = trainer->state.class_names[i];
        RG_CHECK(strcmp(name, known) == 0 || is_number(name, i) || is_number(known, i),
                 RG_INVALID_ARGUMENT,
                 "class %d of the data set is '%s', but the network was trained with '%s'", i, name,
                 known);
    }
    return RG_OK;
}

/* Bytes count from 0 to 1; floats that are bytes do not. `given` is of images that the network is
 * used on. */
static rg_status check_range(const rg_trainer *trainer, rg_pixel_range given)
{
    const int64_t known = trainer->state.pixels;
    const bool small = known == RG_RANGE_U8 || known == RG_RANGE_UNIT;
    RG_CHECK(!small || given != RG_RANGE_BYTES, RG_INVALID_ARGUMENT,
             "the pixels are whole numbers up to 255, but the network was trained on %s; give "
             "bytes (uint8), or divide by 255",
             known == RG_RANGE_U8 ? "bytes, which count as 0 to 1" : "numbers from 0 to 1");
    RG_CHECK(known != RG_RANGE_BYTES || given != RG_RANGE_UNIT, RG_INVALID_ARGUMENT,
             "the pixels are numbers from 0 to 1, but the network was trained on whole numbers up "
             "to 255; multiply by 255");
    return RG_OK;
}

static rg_status check_pixels(const rg_trainer *trainer, const rg_dataset *set)
{
    const int64_t known = trainer->state.pixels;
    if (set->info.dtype != RG_U8)
        return check_range(trainer, set->range);
    RG_CHECK(known != RG_RANGE_BYTES && known != RG_RANGE_NUMBERS, RG_INVALID_ARGUMENT,
             "the pixels are bytes, which count as 0 to 1, but the network was trained on floats "
             "that go beyond; give floats");
    return RG_OK;
}

rg_status rg_trainer_check_set(const rg_trainer *trainer, const rg_dataset *set)
{
    rg_dataset_info info;
    RG_CHECK_NOT_NULL(trainer);
    const rg_network_desc *n = &trainer->state.network;
    RG_TRY(rg_dataset_get_info(set, &info));
    RG_CHECK(n->height == info.height && n->width == info.width && n->channels == info.channels &&
                 n->classes == info.classes,
             RG_INVALID_ARGUMENT,
             "the data set has %lldx%lldx%lld images and %d classes, but the network needs "
             "%lldx%lldx%lld and %d",
             (long long)info.height, (long long)info.width, (long long)info.channels, info.classes,
             (long long)n->height, (long long)n->width, (long long)n->channels, n->classes);
    RG_CHECK(
        n->target == info.target && (n->target == RG_TARGET_CLASS || n->outputs == info.targets),
        RG_INVALID_ARGUMENT,
        "the data set has other targets than the network: %lld of kind %d, not %lld of kind %d",
        (long long)info.targets, (int)info.target, (long long)rg_network_targets(n),
        (int)n->target);
    RG_TRY(check_pixels(trainer, set));
    return check_names(trainer, set);
}

rg_status rg_trainer_check_images(const rg_trainer *trainer, const rg_dataset *set)
{
    RG_CHECK_NOT_NULL(trainer);
    RG_CHECK_NOT_NULL(set);
    const rg_run_state *s = &trainer->state;
    RG_CHECK(s->set_hash == 0 || s->set_images == set->info.count, RG_INVALID_ARGUMENT,
             "there are %lld training images, but the network was trained with %lld",
             (long long)set->info.count, (long long)s->set_images);
    RG_CHECK(s->set_hash == 0 || s->set_hash == rg_dataset_hash(set), RG_INVALID_ARGUMENT,
             "the training images are not those that the network was trained with");
    return RG_OK;
}

/* For all images, or with `ranks` > 1 for every ranks-th batch, from that of `rank` on. */
static rg_status open_loader(const rg_trainer *trainer, const rg_dataset *set, int32_t rank,
                             int32_t ranks, rg_loader **loader)
{
    const rg_run_state *s = &trainer->state;
    rg_loader_desc desc = rg_loader_desc_default();
    desc.dtype = s->network.dtype;
    desc.most = rg_stepper_use_batch(trainer->stepper);
    desc.batch = desc.most * ranks;
    desc.first = desc.most * rank;
    desc.shuffle = false;
    desc.threads = (int32_t)trainer->desc.workers;
    rg_run_state_normalize(s, &desc);
    return rg_loader_create(set, &desc, loader);
}

rg_step_data rg_trainer_step_data(const rg_loader *loader, const rg_batch *batch)
{
    return (rg_step_data){ .images = batch->images,
                           .labels = batch->values != NULL ? batch->values : batch->labels,
                           .exact = rg_loader_exact(loader) };
}

/* What the caller of rg_trainer_predict_set() wants. */
typedef struct predicted {
    int32_t classes;
    rg_prediction *predictions;
} predicted;

static void take_predictions(void *context, const rg_batch *batch, const float probabilities[])
{
    const predicted *to = context;
    for (int64_t i = 0; i < batch->count; i++) {
        const float *p = probabilities + i * to->classes;
        int32_t best = 0;
        for (int32_t k = 1; k < to->classes; k++)
            best = p[k] > p[best] ? k : best;
        to->predictions[batch->indices[i]] =
            (rg_prediction){ batch->labels[i], best, p[best], p[batch->labels[i]] };
    }
}

static void add_outcome(rg_trainer_result *sum, double *weight, const rg_outcome *outcome)
{
    sum->score += outcome->score;
    *weight += outcome->weight;
    sum->top5 += (double)outcome->top5;
    sum->images += outcome->images;
    sum->right += outcome->right;
    sum->loss += outcome->loss * (double)outcome->images;
}

/* Sums become means over all images, or of masks over all pixels that count. */
static void finish_result(rg_trainer *trainer, double weight, rg_trainer_result *sum)
{
    const rg_target_kind target = trainer->state.network.target;
    sum->loss = rg_weighted_mean(sum->loss, weight);
    sum->score = rg_weighted_mean(sum->score, weight);
    sum->accuracy = target == RG_TARGET_VALUES ? (double)NAN : sum->score;
    sum->top5 = target == RG_TARGET_CLASS ? sum->top5 / (double)sum->images : (double)NAN;
    sum->iou = rg_stepper_take_iou(trainer->stepper);
}

/* `answers`, of one batch, is NULL where `look` is. */
static rg_status evaluate_batches(rg_trainer *trainer, rg_loader *loader, float answers[],
                                  rg_batch_look *look, void *context, rg_trainer_result *result)
{
    rg_trainer_result sum = { 0 };
    double weight = 0;
    rg_batch batch;
    do {
        rg_outcome outcome;
        RG_TRY(rg_loader_next(loader, &batch));
        const rg_step_data data = rg_trainer_step_data(loader, &batch);
        RG_TRY(rg_stepper_evaluate(trainer->stepper, &data, batch.count, answers, &outcome));
        add_outcome(&sum, &weight, &outcome);
        if (look != NULL)
            look(context, &batch, answers);
    } while (!batch.last);
    finish_result(trainer, weight, &sum);
    *result = sum;
    return RG_OK;
}

rg_status rg_trainer_evaluate_with(rg_trainer *trainer, const rg_dataset *set, rg_batch_look *look,
                                   void *context, rg_trainer_result *result)
{
    const size_t batch = (size_t)rg_stepper_use_batch(trainer->stepper);
    const size_t bytes = batch * (size_t)rg_trainer_answers(trainer) * sizeof(float);
    void *answers = NULL;
    rg_loader *loader;
    RG_TRY(rg_trainer_check_set(trainer, set));
    RG_TRY(open_loader(trainer, set, 0, 1, &loader));
    rg_status status = RG_OK;
    if (look != NULL)
        status = rg_allocate(allocator, bytes, &answers);
    if (status == RG_OK)
        status = evaluate_batches(trainer, loader, answers, look, context, result);
    rg_release(allocator, answers, bytes);
    rg_loader_destroy(loader);
    return status;
}

rg_status rg_trainer_evaluate(rg_trainer *trainer, const rg_dataset *set, rg_trainer_result *result)
{
    RG_CHECK_NOT_NULL(trainer);
    RG_CHECK_NOT_NULL(set);
    RG_CHECK_NOT_NULL(result);
    return rg_trainer_evaluate_with(trainer, set, NULL, NULL, result);
}

rg_status rg_trainer_predict_set(rg_trainer *trainer, const rg_dataset *set,
                                 rg_prediction predictions[], rg_trainer_result *result)
{
    RG_CHECK_NOT_NULL(trainer);
    RG_CHECK_NOT_NULL(set);
    RG_CHECK_NOT_NULL(predictions);
    RG_CHECK_NOT_NULL(result);
    RG_CHECK(trainer->state.network.target == RG_TARGET_CLASS, RG_INVALID_STATE,
             "rg_trainer_predict_set: the network does not learn one class for each image");
    predicted to = { trainer->state.network.classes, predictions };
    return rg_trainer_evaluate_with(trainer, set, take_predictions, &to, result);
}

/* ---- validation ---- */

/* Evaluates every ranks-th batch. */
static rg_status evaluate_part(rg_trainer *trainer, const rg_dataset *set, int64_t rounds,
                               rg_outcome own[])
{
    rg_group *group = trainer->desc.group;
    rg_loader *loader;
    rg_batch batch;
    RG_TRY(open_loader(trainer, set, rg_group_rank(group), rg_group_size(group), &loader));
    rg_status status = RG_OK;
    for (int64_t i = 0; i < rounds && status == RG_OK; i++) {
        status = rg_loader_next(loader, &batch);
        if (status != RG_OK || batch.count == 0)
            continue;
        const rg_step_data data = rg_trainer_step_data(loader, &batch);
        status = rg_stepper_evaluate(trainer->stepper, &data, batch.count, NULL, &own[i]);
    }
    rg_loader_destroy(loader);
    return status;
}

/* The batches and the order of sums are those of one process. */
static rg_status evaluate_together(rg_trainer *trainer, const rg_dataset *set,
                                   rg_trainer_result *result)
{
    rg_group *group = trainer->desc.group;
    rg_dataset_info info;
    rg_outcome *all;
    RG_TRY(rg_trainer_check_set(trainer, set));
    if (trainer->agreed != set)
        RG_TRY(rg_trainer_agree_on_set(trainer, "validation data", set));
    RG_TRY(rg_dataset_get_info(set, &info));
    const int64_t ranks = rg_group_size(group);
    const int64_t rounds = (info.count - 1) / (rg_stepper_use_batch(trainer->stepper) * ranks) + 1;
    const size_t bytes = (size_t)rounds * sizeof *all;
    RG_TRY(rg_allocate_array((size_t)(rounds * ranks), sizeof *all, &all));
    rg_outcome *own = all + rg_group_rank(group) * rounds;
    rg_status status = evaluate_part(trainer, set, rounds, own);
    if (status == RG_OK)
        status = rg_group_gather(group, own, bytes, all);
    if (status == RG_OK)
        status = rg_stepper_join_overlaps(trainer->stepper);
    rg_trainer_result sum = { 0 };
    double weight = 0;
    for (int64_t i = 0; i < rounds * ranks; i++)
        add_outcome(&sum, &weight, &all[i % ranks * rounds + i / ranks]);
    rg_release(allocator, all, (size_t)ranks * bytes);
    RG_TRY(status);
    finish_result(trainer, weight, &sum);
    *result = sum;
    return RG_OK;
}

rg_status rg_trainer_validate(rg_trainer *trainer, const rg_dataset *set, rg_trainer_result *result)
{
    RG_CHECK_NOT_NULL(trainer);
    RG_CHECK_NOT_NULL(set);
    RG_CHECK_NOT_NULL(result);
    RG_TRY(rg_group_size(trainer->desc.group) > 1 ? evaluate_together(trainer, set, result)
                                                  : rg_trainer_evaluate(trainer, set, result));
    rg_run_state *s = &trainer->state;
    rg_report_epoch *last = rg_history_last(&trainer->history);
    if (last != NULL) {
        last->validated = true;
        last->validation_loss = result->loss;
        last->validation_accuracy = result->accuracy;
    }
    const double score = s->network.target == RG_TARGET_VALUES ? -result->loss
                         : isfinite(result->iou)               ? result->iou
                                                               : result->accuracy;
    if (s->epoch > 0 && isfinite(result->loss) &&
        (score > s->best_accuracy || s->best_epoch == 0)) {
        s->best_accuracy = score;
        s->best_epoch = s->epoch;
    }
    return RG_OK;
}

/* ---- prediction ---- */

static int64_t image_pixels(const rg_trainer *trainer)
{
    const rg_network_desc *n = &trainer->state.network;
    return n->height * n->width * n->channels;
}

/* What pixels are divided by: bytes are numbers as others where the training images were. */
static double unit_of(const rg_trainer *trainer, rg_dtype dtype)
{
    const int64_t known = trainer->state.pixels;
    const bool numbers = known == RG_RANGE_BYTES || known == RG_RANGE_NUMBERS;
    return dtype == RG_U8 && !numbers ? 255 : 1;
}

/* `images` holds `count` images of the network's dtype. */
static rg_status predict(rg_trainer *trainer, const void *pixels, rg_dtype dtype, int64_t count,
                         void *images, float probabilities[])
{
    const rg_run_state *s = &trainer->state;
    const size_t label_bytes = (size_t)(count * rg_network_targets(&s->network)) * sizeof(double);
    void *labels; /* which are not known */
    RG_TRY(rg_allocate_zero(allocator, label_bytes, &labels));
    if (s->network.target == RG_TARGET_MASK)
        memset(labels, 0xff, label_bytes); /* RG_DATASET_IGNORED, so that no overlap is counted */
    const int64_t elements = count * image_pixels(trainer);
    const bool columns = s->columns > 0;
    const double *mean = columns ? s->column_mean : s->mean;
    const double *deviation = columns ? s->column_deviation : s->deviation;
    const int64_t means = columns ? s->columns : s->network.channels;
    const double unit = unit_of(trainer, dtype);
    rg_outcome outcome;
    for (int64_t i = 0; i < elements; i++) {
        const int64_t k = i % means;
        rg_element_set(images, s->network.dtype, i,
                       (rg_element_get(pixels, dtype, i) / unit - mean[k]) / deviation[k]);
    }
    const rg_step_data data = { .images = images, .labels = labels, .exact = labels };
    const rg_status status =
        rg_stepper_evaluate(trainer->stepper, &data, count, probabilities, &outcome);
    rg_release(allocator, labels, label_bytes);
    return status;
}

int64_t rg_trainer_answers(const rg_trainer *trainer)
{
    if (trainer == NULL)
        return 0;
    const rg_network_desc *n = &trainer->state.network;
    return n->target == RG_TARGET_CLASS ? n->classes : rg_network_targets(n);
}

static rg_status predict_all(rg_trainer *trainer, const void *pixels, rg_dtype dtype, int64_t count,
                             float probabilities[])
{
    const int64_t batch = rg_stepper_use_batch(trainer->stepper);
    const int64_t largest = count < batch ? count : batch;
    const size_t image = (size_t)image_pixels(trainer), element = rg_dtype_size(dtype);
    const size_t bytes = (size_t)largest * image * rg_dtype_size(trainer->state.network.dtype);
    void *images;
    RG_TRY(rg_allocate(allocator, bytes, &images));
    rg_status status = RG_OK;
    for (int64_t i = 0; i < count && status == RG_OK; i += largest) {
        const int64_t now = count - i < largest ? count - i : largest;
        status = predict(trainer, (const char *)pixels + (size_t)i * image * element, dtype, now,
                         images, probabilities + i * rg_trainer_answers(trainer));
    }
    rg_release(allocator, images, bytes);
    return status;
}

rg_status rg_trainer_predict(rg_trainer *trainer, const void *pixels, rg_dtype dtype, int64_t count,
                             float probabilities[])
{
    RG_CHECK_NOT_NULL(trainer);
    RG_CHECK_NOT_NULL(pixels);
    RG_CHECK_NOT_NULL(probabilities);
    RG_CHECK(rg_dtype_size(dtype) > 0, RG_INVALID_ARGUMENT,
             "rg_trainer_predict: dtype is %d, which is not one of its values", (int)dtype);
    RG_CHECK(count >= 1, RG_INVALID_ARGUMENT, "rg_trainer_predict: count is %lld; it is at least 1",
             (long long)count);
    if (dtype != RG_U8) {
        const int64_t elements = count * image_pixels(trainer);
        RG_TRY(check_range(trainer, rg_pixels_range(pixels, dtype, (size_t)elements)));
    }
    return predict_all(trainer, pixels, dtype, count, probabilities);
}
