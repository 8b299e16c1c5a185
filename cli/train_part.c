/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Parts of data sets: opening them for evaluation, and evaluation. */
#include "cli/train_part.h"

#include "core/memory.h"

static const rg_allocator *const allocator = &rg_default_allocator;

enum { EVALUATED = 256 }; /* images in a batch that is not trained with */

/* ---- parts ---- */

rg_status rg_train_check_data(const rg_network_options *n, const rg_dataset_info *info,
                              const char *data)
{
    RG_CHECK(n->height == info->height && n->width == info->width &&
                 n->channels == info->channels && n->classes == info->classes,
             RG_INVALID_ARGUMENT,
             "%s: it has %lldx%lldx%lld images of %d classes, the network takes %lldx%lldx%lld "
             "and %d",
             data, (long long)info->height, (long long)info->width, (long long)info->channels,
             info->classes, (long long)n->height, (long long)n->width, (long long)n->channels,
             n->classes);
    return RG_OK;
}

rg_status rg_train_open_test(const char *data, rg_dataset **set)
{
    *set = NULL;
    const rg_status status = rg_dataset_open(data, RG_DATASET_TEST, set);
    return status == RG_INVALID_ARGUMENT ? RG_OK : status; /* that, and nothing else, is missing */
}

rg_status rg_train_open_part(rg_train_part *part, const rg_checkpoint *checkpoint, const char *data)
{
    rg_loader_desc desc = rg_loader_desc_default();
    RG_TRY(rg_dataset_get_info(part->set, &part->info));
    RG_TRY(rg_train_check_data(&checkpoint->network, &part->info, data));
    desc.dtype = checkpoint->network.dtype;
    desc.batch = EVALUATED;
    desc.shuffle = false;
    memcpy(desc.mean, checkpoint->mean, sizeof desc.mean);
    memcpy(desc.deviation, checkpoint->deviation, sizeof desc.deviation);
    return rg_loader_create(part->set, &desc, &part->loader);
}

void rg_train_close_part(rg_train_part *part)
{
    rg_loader_destroy(part->loader);
    rg_dataset_destroy(part->set);
    *part = (rg_train_part){ 0 };
}

/* ---- verdicts ---- */

rg_status rg_train_verdicts_create(const rg_dataset_info *info, rg_train_verdicts *v)
{
    const size_t count = (size_t)info->count;
    *v = (rg_train_verdicts){ 0 };
    RG_TRY(rg_allocate_array(count, sizeof *v->labels, &v->labels));
    RG_TRY(rg_allocate_array(count, sizeof *v->predicted, &v->predicted));
    RG_TRY(rg_allocate_array(count, sizeof *v->certainty, &v->certainty));
    return rg_allocate_array(count, sizeof *v->of_label, &v->of_label);
}

void rg_train_verdicts_release(const rg_dataset_info *info, rg_train_verdicts *v)
{
    const size_t count = (size_t)info->count;
    rg_confusion_release(&v->confusion);
    rg_release(allocator, v->labels, count * sizeof *v->labels);
    rg_release(allocator, v->predicted, count * sizeof *v->predicted);
    rg_release(allocator, v->certainty, count * sizeof *v->certainty);
    rg_release(allocator, v->of_label, count * sizeof *v->of_label);
    *v = (rg_train_verdicts){ 0 };
}

/* ---- evaluation ---- */

static void judge(const rg_batch *batch, int32_t classes, const float probabilities[],
                  rg_train_verdicts *v)
{
    for (int64_t i = 0; i < batch->count; i++) {
        const float *p = probabilities + i * classes;
        const int64_t image = batch->indices[i];
        int32_t best = 0;
        for (int32_t k = 1; k < classes; k++)
            best = p[k] > p[best] ? k : best;
        v->labels[image] = batch->labels[i];
        v->predicted[image] = best;
        v->certainty[image] = p[best];
        v->of_label[image] = p[batch->labels[i]];
    }
}

static rg_status evaluate(rg_trainer *trainer, rg_train_part *part, float probabilities[],
                          rg_train_result *result, rg_train_verdicts *verdicts)
{
    int64_t images = 0, right = 0;
    double loss = 0;
    rg_batch batch;
    RG_TRY(rg_loader_seek(part->loader, 0, 0));
    do {
        rg_outcome outcome;
        RG_TRY(rg_loader_next(part->loader, &batch));
        RG_TRY(rg_trainer_evaluate(trainer, batch.images, batch.labels, batch.count, probabilities,
                                   &outcome));
        images += outcome.images;
        right += outcome.right;
        loss += outcome.loss * (double)outcome.images;
        if (verdicts != NULL)
            judge(&batch, part->info.classes, probabilities, verdicts);
    } while (!batch.last);
    *result = (rg_train_result){ loss / (double)images, (double)right / (double)images };
    return RG_OK;
}

rg_status rg_train_evaluate(rg_trainer *trainer, rg_train_part *part, rg_train_result *result,
                            rg_train_verdicts *verdicts)
{
    const size_t bytes = EVALUATED * (size_t)part->info.classes * sizeof(float);
    void *probabilities = NULL;
    if (verdicts != NULL)
        RG_TRY(rg_allocate(allocator, bytes, &probabilities));
    rg_status status = evaluate(trainer, part, probabilities, result, verdicts);
    rg_release(allocator, probabilities, bytes);
    if (status == RG_OK && verdicts != NULL)
        status = rg_confusion_create(verdicts->labels, verdicts->predicted, part->info.count,
                                     &verdicts->confusion);
    return status;
}
