/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Parts of data sets: opening them for evaluation, and evaluation. */
#include "cli/train_part.h"

#include "core/memory.h"

static const rg_allocator *const allocator = &rg_default_allocator;

/* ---- parts ---- */

rg_status rg_train_open_test(const char *data, rg_dataset **set)
{
    *set = NULL;
    const rg_status status = rg_dataset_open(data, RG_DATASET_TEST, set);
    return status == RG_INVALID_ARGUMENT ? RG_OK : status; /* that, and nothing else, is missing */
}

rg_status rg_train_open_part(rg_train_part *part, const rg_trainer *trainer, const char *data)
{
    RG_TRY(rg_dataset_get_info(part->set, &part->info));
    const rg_status status = rg_trainer_check_set(trainer, part->set);
    if (status != RG_OK)
        rg_error_prefix("%s: ", data);
    return status;
}

void rg_train_close_part(rg_train_part *part)
{
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

/* Where the verdicts of an evaluation go. */
typedef struct judged {
    rg_train_verdicts *verdicts;
    int32_t classes;
} judged;

static void judge(void *context, const rg_batch *batch, const float probabilities[])
{
    const judged *to = context;
    rg_train_verdicts *v = to->verdicts;
    for (int64_t i = 0; i < batch->count; i++) {
        const float *p = probabilities + i * to->classes;
        const int64_t image = batch->indices[i];
        int32_t best = 0;
        for (int32_t k = 1; k < to->classes; k++)
            best = p[k] > p[best] ? k : best;
        v->labels[image] = batch->labels[i];
        v->predicted[image] = best;
        v->certainty[image] = p[best];
        v->of_label[image] = p[batch->labels[i]];
    }
}

rg_status rg_train_evaluate(rg_trainer *trainer, const rg_train_part *part,
                            rg_trainer_result *result, rg_train_verdicts *verdicts)
{
    judged to = { verdicts, part->info.classes };
    if (verdicts == NULL)
        return rg_trainer_evaluate(trainer, part->set, result);
    RG_TRY(rg_trainer_evaluate_with(trainer, part->set, judge, &to, result));
    return rg_confusion_create(verdicts->labels, verdicts->predicted, part->info.count,
                               &verdicts->confusion);
}
