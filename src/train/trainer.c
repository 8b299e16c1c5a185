/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Trainers: creation, resumption from a checkpoint, and epochs of training. */
#include "train/dataset.h"
#include "train/model_onnx.h"
#include "train/patterns.h"
#include "train/scores.h"
#include "train/trainer.h"

#include "core/clock.h"
#include "core/memory.h"
#include "runtime/objects.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const rg_allocator *const allocator = &rg_default_allocator;

/* ---- creation ---- */

static rg_status begin(rg_device *device, rg_trainer **trainer)
{
    void *memory;
    RG_TRY(rg_allocate_zero(allocator, sizeof **trainer, &memory));
    *trainer = memory;
    (*trainer)->device = rg_device_retain(device);
    return RG_OK;
}

static rg_stepper_options stepper_options(const rg_trainer *t)
{
    rg_network_desc network = t->state.network;
    network.freeze = t->desc.freeze;
    return (rg_stepper_options){ .network = network,
                                 .rates = t->desc.rates,
                                 .base_rate = rg_trainer_desc_base_rate(&t->desc),
                                 .optimizer = t->desc.optimizer,
                                 .momentum = t->desc.momentum,
                                 .decay = t->desc.decay,
                                 .batch = t->desc.batch,
                                 .accumulate = (int32_t)t->desc.accumulate,
                                 .micro_batches = (int32_t)t->desc.micro_batches,
                                 .group = t->desc.group,
                                 .fast = t->desc.fast,
                                 .sync_norms = t->desc.sync_batch_norm,
                                 .seed = (uint64_t)t->desc.seed };
}

/* Opens a loader at the position of training, and computes the number of steps. */
static rg_status open_loader(rg_trainer *t, const rg_dataset *set)
{
    const rg_run_state *s = &t->state;
    rg_loader_desc desc = rg_loader_desc_default();
    rg_dataset_info info;
    desc.dtype = s->network.dtype;
    desc.batch = t->desc.batch;
    desc.seed = (uint64_t)t->desc.seed;
    desc.shift = (int32_t)t->desc.shift;
    desc.crop = (int32_t)t->desc.crop;
    desc.mirror = t->desc.mirror;
    desc.threads = (int32_t)t->desc.workers;
    rg_trainer_part(t, &desc);
    rg_run_state_normalize(s, &desc);
    RG_TRY(rg_dataset_get_info(set, &info));
    RG_TRY(rg_loader_create(set, &desc, &t->loader));
    t->images = info.count;
    const int64_t batches = rg_loader_batches(t->loader) * t->desc.epochs;
    t->steps = batches / t->desc.accumulate;
    RG_CHECK(
        t->steps > 0, RG_INVALID_ARGUMENT,
        "accumulate is %lld; it can be at most the number of batches of the whole training, %lld",
        (long long)t->desc.accumulate, (long long)batches);
    RG_TRY(rg_history_begin(t));
    RG_TRY(rg_trainer_join(t, set));
    return rg_loader_seek(t->loader, s->epoch, s->position);
}

/* The model, with a new last layer where one is asked for. */
static rg_status take_model(rg_trainer *t, const rg_model *model)
{
    const rg_network_desc *n = &t->state.network;
    const bool rows = n->target == RG_TARGET_CLASS || n->target == RG_TARGET_MASK;
    const int64_t needed = rows ? n->classes : n->outputs;
    if (t->desc.head == 0 || model->onnx == NULL) {
        RG_CHECK(t->desc.head <= 0 || t->desc.head == needed, RG_INVALID_ARGUMENT,
                 "head is %lld, but the data needs %lld", (long long)t->desc.head,
                 (long long)needed);
        t->model = rg_model_retain(model);
        return RG_OK;
    }
    return rg_model_replace_head(model, t->desc.head > 0 ? t->desc.head : needed, &t->model);
}

static rg_status make_new(rg_trainer *t, const rg_model *model, const rg_dataset *set)
{
    RG_CHECK(model->onnx == NULL || model->file != NULL, RG_INVALID_ARGUMENT,
             "%s: the model has no weights; open its file", model->name);
    RG_TRY(rg_trainer_describe_set(t, set));
    RG_TRY(take_model(t, model));
    RG_TRY(rg_copy_text(t->model->name, &t->state.model_name));
    RG_TRY(rg_copy_text(t->model->text, &t->state.model));
    const rg_stepper_options options = stepper_options(t);
    RG_TRY(rg_stepper_create(t->device, t->model, &options, &t->stepper));
    RG_TRY(
        rg_patterns_check_network(rg_stepper_network(t->stepper), t->desc.freeze, t->desc.rates));
    return open_loader(t, set);
}

/* Hands the trainer to the caller, or destroys it after a failure. */
static rg_status finish_create(rg_trainer *made, rg_status status, rg_trainer **trainer)
{
    if (status == RG_OK)
        *trainer = made;
    else
        rg_trainer_destroy(made);
    return status;
}

rg_status rg_trainer_create(rg_device *device, const rg_model *model, const rg_dataset *set,
                            const rg_trainer_desc *desc, rg_trainer **trainer)
{
    rg_trainer_desc checked;
    rg_trainer *t;
    RG_CHECK_NOT_NULL(trainer);
    *trainer = NULL;
    RG_CHECK_NOT_NULL(device);
    RG_CHECK_NOT_NULL(model);
    RG_CHECK_NOT_NULL(set);
    RG_TRY(rg_trainer_desc_copy(__func__, desc, &checked));
    RG_TRY(begin(device, &t));
    t->desc = checked;
    return finish_create(t, make_new(t, model, set), trainer);
}

/* ---- from checkpoints ---- */

/* What the parameters of a checkpoint depend on cannot change when training continues. */
static rg_status check_kept(const rg_trainer *t)
{
    rg_trainer_desc kept;
    RG_TRY(rg_trainer_desc_read(t->state.options, &kept));
    RG_CHECK(t->desc.dtype == t->state.network.dtype, RG_INVALID_ARGUMENT,
             "dtype is %s, the network is in %s", rg_dtype_name(t->desc.dtype),
             rg_dtype_name(t->state.network.dtype));
    RG_CHECK(strcmp(t->desc.freeze, kept.freeze) == 0 && strcmp(t->desc.rates, kept.rates) == 0 &&
                 t->desc.head == kept.head && t->desc.normalize == kept.normalize,
             RG_INVALID_ARGUMENT,
             "freeze, rates, head and normalize cannot change where training goes on");
    RG_CHECK(t->desc.optimizer == kept.optimizer && t->desc.accumulate == kept.accumulate,
             RG_INVALID_ARGUMENT, "optimizer and accumulate cannot change where training goes on");
    RG_CHECK(!t->desc.has_loss || t->desc.loss == rg_network_loss(&t->state.network),
             RG_INVALID_ARGUMENT, "loss cannot change where training goes on");
    return RG_OK;
}

static rg_status read_resumed(rg_trainer *t, const char *path, const rg_safetensors *file,
                              const rg_dataset *set)
{
    rg_run_state *s = &t->state;
    RG_TRY(rg_trainer_check_set(t, set));
    RG_TRY(rg_trainer_check_images(t, set));
    s->set_images = set->info.count;
    s->set_hash = rg_dataset_hash(set); /* which older checkpoints lack */
    const rg_stepper_options options = stepper_options(t);
    RG_TRY(rg_run_state_read(path, file, s, t->device, &options, &t->model, &t->stepper));
    rg_status status = rg_run_state_check(t->stepper);
    if (status == RG_INVALID_STATE)
        status = rg_fail(RG_MALFORMED, "%s: %s; training cannot continue from it", path,
                         rg_error_text());
    RG_TRY(status);
    rg_stepper_seek(t->stepper, s->steps, s->batches);
    status = open_loader(t, set);
    if (status != RG_OK)
        rg_error_prefix("%s: ", path);
    return status;
}

static rg_status make_resumed(rg_trainer *t, const char *path, const rg_dataset *set,
                              const rg_trainer_desc *desc)
{
    rg_safetensors *file;
    RG_TRY(rg_run_state_open(path, &t->state, &file));
    rg_status status = RG_OK;
    if (desc != NULL)
        t->desc = *desc;
    else
        status = rg_trainer_desc_read(t->state.options, &t->desc);
    if (status == RG_OK)
        status = check_kept(t);
    if (status != RG_OK)
        rg_error_prefix("%s: ", path);
    else
        status = read_resumed(t, path, file, set);
    rg_safetensors_close(file);
    return status;
}

rg_status rg_trainer_resume(rg_device *device, const char *path, const rg_dataset *set,
                            const rg_trainer_desc *desc, rg_trainer **trainer)
{
    rg_trainer_desc checked;
    rg_trainer *t;
    RG_CHECK_NOT_NULL(trainer);
    *trainer = NULL;
    RG_CHECK_NOT_NULL(device);
    RG_CHECK_NOT_NULL(path);
    RG_CHECK_NOT_NULL(set);
    if (desc != NULL)
        RG_TRY(rg_trainer_desc_copy(__func__, desc, &checked));
    RG_TRY(begin(device, &t));
    return finish_create(t, make_resumed(t, path, set, desc != NULL ? &checked : NULL), trainer);
}

static rg_status make_loaded(rg_trainer *t, const char *path)
{
    rg_safetensors *file;
    RG_TRY(rg_run_state_open(path, &t->state, &file));
    const rg_stepper_options options = { .network = t->state.network,
                                         .accumulate = 1,
                                         .use_only = true };
    const rg_status status =
        rg_run_state_read(path, file, &t->state, t->device, &options, &t->model, &t->stepper);
    rg_safetensors_close(file);
    return status;
}

rg_status rg_trainer_load(rg_device *device, const char *path, rg_trainer **trainer)
{
    rg_trainer *t;
    RG_CHECK_NOT_NULL(trainer);
    *trainer = NULL;
    RG_CHECK_NOT_NULL(device);
    RG_CHECK_NOT_NULL(path);
    RG_TRY(begin(device, &t));
    return finish_create(t, make_loaded(t, path), trainer);
}

static rg_status make_opened(rg_trainer *t, const rg_model *model, const rg_dataset *set,
                             rg_normalize_kind normalize)
{
    RG_CHECK(model->file != NULL, RG_INVALID_ARGUMENT,
             "%s: the model has no weights; a network must be trained before it is used",
             model->name);
    t->model = rg_model_retain(model);
    t->desc = rg_trainer_desc_default();
    t->desc.normalize = normalize;
    RG_TRY(set != NULL ? rg_trainer_describe_set(t, set) : rg_trainer_describe_model(t, model));
    const rg_stepper_options options = { .network = t->state.network,
                                         .accumulate = 1,
                                         .use_only = true };
    RG_TRY(rg_stepper_create(t->device, t->model, &options, &t->stepper));
    return rg_network_start(rg_stepper_network(t->stepper), rg_stepper_plan(t->stepper), 0);
}

rg_status rg_trainer_open(rg_device *device, const rg_model *model, const rg_dataset *set,
                          rg_normalize_kind normalize, rg_trainer **trainer)
{
    rg_trainer *t;
    RG_CHECK_NOT_NULL(trainer);
    *trainer = NULL;
    RG_CHECK_NOT_NULL(device);
    RG_CHECK_NOT_NULL(model);
    RG_CHECK((unsigned)normalize <= RG_NORMALIZE_IMAGENET, RG_INVALID_ARGUMENT,
             "rg_trainer_open: normalize is %d, which is not one of its values", (int)normalize);
    RG_TRY(begin(device, &t));
    return finish_create(t, make_opened(t, model, set, normalize), trainer);
}

static rg_status make_used(rg_trainer *t, const rg_model *model, const rg_network_desc *network)
{
    t->model = rg_model_retain(model);
    t->desc = rg_trainer_desc_default();
    t->desc.normalize = RG_NORMALIZE_NONE;
    RG_TRY(rg_trainer_describe_network(t, network));
    const rg_stepper_options options = { .network = t->state.network,
                                         .accumulate = 1,
                                         .use_only = true };
    RG_TRY(rg_stepper_create(t->device, t->model, &options, &t->stepper));
    return rg_network_start(rg_stepper_network(t->stepper), rg_stepper_plan(t->stepper), 0);
}

rg_status rg_trainer_use(rg_device *device, const rg_model *model, const rg_network_desc *network,
                         rg_trainer **trainer)
{
    rg_trainer *t;
    RG_TRY(begin(device, &t));
    return finish_create(t, make_used(t, model, network), trainer);
}

void rg_trainer_destroy(rg_trainer *t)
{
    if (t == NULL)
        return;
    rg_loader_destroy(t->loader);
    rg_stepper_destroy(t->stepper);
    rg_model_destroy(t->model);
    rg_run_state_release(&t->state);
    rg_history_release(&t->history);
    rg_device_destroy(t->device);
    rg_release(allocator, t, sizeof *t);
}

/* ---- training ---- */

/* One call of rg_trainer_train(), within an epoch. */
typedef struct watcher {
    rg_trainer *t;
    rg_trainer_watch *watch;
    void *context;
    double began;
    int64_t before;   /* images of the epoch that were done when the call began it */
    rg_outcome batch; /* that was done since the last word to `watch`; perhaps none */
    rg_trainer_progress last;
    bool is_asked; /* to stop */
} watcher;

static rg_trainer_progress progress_of(const rg_trainer *t)
{
    const rg_run_state *s = &t->state;
    const int64_t epochs = t->desc.epochs;
    return (rg_trainer_progress){ .epoch = s->epoch < epochs ? s->epoch + 1 : epochs,
                                  .epochs = epochs,
                                  .images = s->images,
                                  .of = t->images,
                                  .right = s->right,
                                  .loss = rg_weighted_mean(s->loss, s->weight),
                                  .steps = rg_stepper_steps(t->stepper),
                                  .batches = rg_stepper_batches(t->stepper),
                                  .rate = t->rate,
                                  .finished = s->epoch,
                                  .best_epoch = s->best_epoch,
                                  .best_accuracy = s->best_accuracy,
                                  .score = rg_weighted_mean(s->score, s->weight) };
}

static void tell(watcher *w)
{
    rg_trainer_progress progress = progress_of(w->t);
    progress.batch_images = w->batch.images;
    progress.batch_loss = w->batch.loss;
    progress.now_images = progress.images - w->before;
    progress.now_seconds = rg_seconds() - w->began;
    if (progress.batch_images > 0)
        rg_history_add_loss(&w->t->history, progress.batches, progress.batch_loss);
    w->last = progress;
    w->is_asked = (w->watch != NULL && !w->watch(w->context, &progress)) || w->is_asked;
}

/* In a group, ranks stop together, after the step in which one of them has told the others. */
static bool goes_on(const watcher *w)
{
    const bool alone = rg_group_size(w->t->desc.group) == 1;
    return alone ? !w->is_asked : !rg_stepper_is_stopped(w->t->stepper);
}

static rg_status diverged(rg_trainer *t, const char *what)
{
    t->nonfinite = true;
    return rg_fail(RG_INVALID_STATE, "training diverged in epoch %lld: %s. The learning rate is %g",
                   (long long)t->state.epoch + 1, what, t->rate);
}

/* Parameters updated by a loss that is NaN or infinite are not usable: no checkpoint keeps them. */
static rg_status count_outcome(watcher *w, const rg_outcome *outcome)
{
    rg_run_state *s = &w->t->state;
    if (outcome->images == 0)
        return RG_OK;
    if (!isfinite(outcome->loss)) {
        char what[80];
        snprintf(what, sizeof what, "the loss of a batch is %f",
                 isnan(outcome->loss) ? (double)NAN : outcome->loss);
        return diverged(w->t, what);
    }
    s->images += outcome->images;
    s->right += outcome->right;
    s->score += outcome->score;
    s->weight += outcome->weight;
    s->loss += outcome->loss * (double)outcome->images;
    return RG_OK;
}

static rg_status finish_batches(watcher *w)
{
    rg_outcome outcome;
    do {
        RG_TRY(rg_stepper_finish(w->t->stepper, &outcome));
        w->batch = outcome;
        RG_TRY(count_outcome(w, &outcome));
        if (outcome.images > 0)
            tell(w);
    } while (outcome.images > 0);
    return RG_OK;
}

/* An update can overflow parameters although the loss was finite. */
static rg_status check_parameters(rg_trainer *t)
{
    const rg_status status = rg_run_state_check(t->stepper);
    return status == RG_INVALID_STATE ? diverged(t, rg_error_text()) : status;
}

static rg_status end_epoch(watcher *w)
{
    const rg_trainer_progress *p = &w->last;
    rg_run_state *s = &w->t->state;
    s->epoch++;
    s->position = s->images = s->right = 0;
    s->loss = s->score = s->weight = 0;
    const bool values = s->network.target == RG_TARGET_VALUES;
    const rg_report_epoch epoch = { .epoch = s->epoch,
                                    .train_loss = p->loss,
                                    .train_accuracy = values ? (double)NAN : p->score,
                                    .seconds = p->now_seconds,
                                    .images_per_second = (double)p->now_images / p->now_seconds,
                                    .learning_rate = p->rate };
    return rg_history_add_epoch(&w->t->history, &epoch);
}

/* A batch cannot be made: those before it are finished, so that the trainer can be saved. Ranks of
 * a group end together. */
static rg_status stop_at_bad_batch(watcher *w, rg_status status)
{
    char text[512];
    if (rg_group_size(w->t->desc.group) > 1)
        return status;
    snprintf(text, sizeof text, "%s", rg_error_text());
    RG_TRY(finish_batches(w));
    RG_TRY(check_parameters(w->t));
    return rg_fail(status, "%s", text);
}

/* The rest of an epoch, or less if stopped. */
static rg_status train_epoch(watcher *w)
{
    rg_trainer *t = w->t;
    rg_run_state *s = &t->state;
    rg_batch batch = { .last = false };
    w->began = rg_seconds();
    w->before = s->images;
    while (!batch.last && goes_on(w)) {
        rg_outcome outcome;
        const int64_t left = t->images - s->position;
        const int64_t whole = left < t->desc.batch ? left : t->desc.batch;
        t->rate = rg_trainer_desc_rate(&t->desc, rg_stepper_steps(t->stepper), t->steps);
        const rg_status status = rg_loader_next(t->loader, &batch);
        if (status != RG_OK)
            return stop_at_bad_batch(w, status);
        rg_stepper_ask_stop(t->stepper, w->is_asked);
        const rg_step_data data = rg_trainer_step_data(t->loader, &batch);
        RG_TRY(rg_stepper_step(t->stepper, &data, whole, t->rate, &outcome));
        s->position = batch.position + whole;
        w->batch = outcome;
        RG_TRY(count_outcome(w, &outcome));
        tell(w);
    }
    RG_TRY(finish_batches(w));
    RG_TRY(check_parameters(t));
    return batch.last ? end_epoch(w) : RG_OK;
}

rg_status rg_trainer_train(rg_trainer *trainer, int64_t epochs, rg_trainer_watch *watch,
                           void *context)
{
    RG_CHECK_NOT_NULL(trainer);
    RG_CHECK(epochs >= 0, RG_INVALID_ARGUMENT, "rg_trainer_train: epochs is %lld",
             (long long)epochs);
    RG_CHECK(trainer->loader != NULL, RG_INVALID_STATE,
             "rg_trainer_train: the trainer was loaded for use alone; see rg_trainer_resume");
    RG_CHECK(!trainer->nonfinite, RG_INVALID_STATE,
             "rg_trainer_train: training has diverged before; go on from a checkpoint");
    RG_CHECK(!trainer->restored, RG_INVALID_STATE,
             "rg_trainer_train: the trainer has the parameters of another checkpoint; see "
             "rg_trainer_resume");
    watcher w = { .t = trainer, .watch = watch, .context = context };
    rg_stepper_ask_stop(trainer->stepper, false); /* an earlier call may have been stopped */
    for (; epochs > 0 && goes_on(&w) && trainer->state.epoch < trainer->desc.epochs; epochs--)
        RG_TRY(train_epoch(&w));
    return RG_OK;
}

rg_status rg_trainer_get_progress(const rg_trainer *trainer, rg_trainer_progress *progress)
{
    RG_CHECK_NOT_NULL(trainer);
    RG_CHECK_NOT_NULL(progress);
    *progress = progress_of(trainer);
    return RG_OK;
}
