/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* A run of training, from opening the data to the last checkpoint. */
#include "cli/run_folder.h"
#include "cli/train_run.h"

#include "core/clock.h"
#include "core/memory.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

static const rg_allocator *const allocator = &rg_default_allocator;

/* ---- data ---- */

/* Without the package of the default data set there is one that the program draws. */
static rg_status open_default(rg_train_run *run, rg_dataset **train)
{
    const rg_train_request *q = run->request;
    rg_status status = rg_dataset_open(q->data, RG_DATASET_TRAIN, train);
    if (status == RG_IO && q->data == rg_train_default_data && q->resume == NULL) {
        rg_show_say(&run->show, "%s: training with glyphs that the program draws instead",
                    rg_error_text());
        run->request->data = "glyphs";
        status = rg_dataset_open("glyphs", RG_DATASET_TRAIN, train);
    }
    return status;
}

/* Images are held back for validation where that is asked for, and for testing where the data has
 * no test part. */
static rg_status open_sets(rg_train_run *run)
{
    const rg_train_request *q = run->request;
    const double part = q->validation > 0 ? q->validation : 0.1;
    rg_dataset *all = NULL;
    RG_TRY(open_default(run, &all));
    rg_status status = rg_train_open_test(q->data, &run->test.set);
    const bool tests = run->test.set != NULL;
    if (status == RG_OK && !tests)
        rg_show_say(&run->show, "%s holds no test part: %g %% of its images are kept for testing",
                    q->data, 100 * part);
    run->own_validation = tests && q->validation > 0;
    if (status == RG_OK && tests && !run->own_validation) {
        run->train.set = all;
        return RG_OK;
    }
    if (status == RG_OK)
        status = rg_dataset_split(all, part, (uint64_t)q->seed, &run->train.set,
                                  tests ? &run->validation.set : &run->test.set);
    rg_dataset_destroy(all);
    return status;
}

static rg_status open_train(rg_train_run *run)
{
    const rg_train_request *q = run->request;
    rg_loader_desc desc = rg_loader_desc_default();
    desc.dtype = run->checkpoint.network.dtype;
    desc.batch = q->batch;
    desc.seed = (uint64_t)q->seed;
    desc.shift = (int32_t)q->shift;
    desc.crop = (int32_t)q->crop;
    desc.mirror = q->mirror;
    memcpy(desc.mean, run->checkpoint.mean, sizeof desc.mean);
    memcpy(desc.deviation, run->checkpoint.deviation, sizeof desc.deviation);
    return rg_loader_create(run->train.set, &desc, &run->train.loader);
}

/* ---- what a checkpoint says of data and model ---- */

static rg_status describe_data(rg_train_run *run)
{
    rg_checkpoint *c = &run->checkpoint;
    const rg_dataset_info *info = &run->train.info;
    c->network = (rg_network_options){ .height = info->height,
                                       .width = info->width,
                                       .channels = info->channels,
                                       .classes = info->classes,
                                       .seed = run->request->seed };
    RG_TRY(rg_dtype_parse(run->request->dtype, &c->network.dtype));
    RG_TRY(rg_dataset_measure(run->train.set, c->mean, c->deviation));
    void *memory;
    RG_TRY(rg_allocate_zero(allocator, (size_t)info->classes * sizeof *c->class_names, &memory));
    c->class_names = memory;
    for (int32_t i = 0; i < info->classes; i++)
        RG_TRY(rg_copy_text(rg_dataset_class_name(run->train.set, i), &c->class_names[i]));
    return RG_OK;
}

static rg_status open_new(rg_train_run *run)
{
    RG_TRY(rg_model_open(run->request->model, &run->model));
    RG_TRY(rg_copy_text(run->model->name, &run->checkpoint.model_name));
    RG_TRY(rg_copy_text(run->model->text, &run->checkpoint.model));
    return describe_data(run);
}

static rg_status read_checkpoint(rg_train_run *run, const rg_safetensors *file)
{
    const char *path = run->request->resume;
    const rg_checkpoint *c = &run->checkpoint;
    const rg_trainer_options options = rg_train_trainer_options(run->request, &c->network);
    RG_TRY(rg_train_check_data(&c->network, &run->train.info, run->request->data));
    RG_TRY(rg_checkpoint_read(path, file, c, run->device, &options, &run->model, &run->trainer));
    rg_status status = rg_checkpoint_check(run->trainer);
    if (status == RG_INVALID_STATE)
        status =
            rg_fail(RG_MALFORMED, "%s: %s: training cannot go on from it", path, rg_error_text());
    return status;
}

static rg_status resume(rg_train_run *run)
{
    const rg_checkpoint *c = &run->checkpoint;
    rg_safetensors *file = NULL;
    rg_checkpoint_release(&run->checkpoint);
    RG_TRY(rg_checkpoint_open(run->request->resume, &run->checkpoint, &file));
    const rg_status status = read_checkpoint(run, file);
    rg_safetensors_close(file);
    RG_TRY(status);
    rg_trainer_seek(run->trainer, c->steps, c->batches);
    run->good = run->request->resume;
    return RG_OK;
}

/* ---- beginning ---- */

rg_status rg_train_path(const char *folder, const char *name, char **path)
{
    RG_CHECK(asprintf(path, "%s/%s", folder, name) >= 0, RG_OUT_OF_MEMORY, "out of memory");
    return RG_OK;
}

static rg_status make_folder(rg_train_run *run)
{
    const char *out = run->request->out;
    RG_CHECK(mkdir(out, 0777) == 0 || errno == EEXIST, RG_IO, "%s: cannot be made: %s", out,
             strerror(errno));
    if (run->lock < 0)
        RG_TRY(rg_folder_lock(out, &run->lock));
    rg_folder_clean(out);
    RG_TRY(rg_train_path(out, "checkpoint.safetensors", &run->checkpoint_path));
    RG_TRY(rg_train_path(out, "report.html", &run->report_path));
    RG_TRY(rg_folder_check_file(run->checkpoint_path)); /* now, not after an epoch */
    RG_TRY(rg_folder_check_file(run->report_path));
    return rg_train_open_metrics(run);
}

static rg_status make_capacity(rg_train_run *run)
{
    enum { POINTS = 2000 };
    const int64_t batches = rg_loader_batches(run->train.loader) * run->request->epochs;
    run->steps = batches / run->request->accumulate;
    RG_CHECK(run->steps > 0, RG_INVALID_ARGUMENT,
             "--accumulate is %lld; the whole training has %lld batches",
             (long long)run->request->accumulate, (long long)batches);
    run->loss_every = batches / POINTS + 1;
    run->loss_capacity = batches / run->loss_every + 2;
    run->epoch_capacity =
        run->request->epochs > run->checkpoint.epoch ? run->request->epochs : run->checkpoint.epoch;
    RG_TRY(rg_allocate_array((size_t)run->epoch_capacity, sizeof *run->epochs, &run->epochs));
    return rg_allocate_array((size_t)run->loss_capacity, sizeof *run->losses, &run->losses);
}

static rg_status open_device(rg_train_run *run)
{
    rg_device_options options = rg_device_options_default();
    options.threads = (int32_t)run->request->threads;
    return rg_device_create(run->request->device, &options, &run->device);
}

static void say_what(const rg_train_run *run, const char *device)
{
    const rg_network *network = rg_trainer_network(run->trainer);
    int64_t parameters = 0;
    for (size_t i = 0; i < network->layers_count; i++)
        parameters += network->layers[i].parameters;
    rg_show_say(&run->show,
                "%s on %s: %lld images for training, %lld for testing, %d classes; %lld "
                "parameters in %s; %s",
                run->model->name, run->request->data, (long long)run->train.info.count,
                (long long)run->test.info.count, run->train.info.classes, (long long)parameters,
                rg_dtype_name(run->checkpoint.network.dtype), device);
}

static rg_status begin(rg_train_run *run)
{
    const rg_train_request *q = run->request;
    RG_TRY(rg_folder_lock(q->out, &run->lock)); /* before the checkpoint is read */
    RG_TRY(open_device(run));
    RG_TRY(open_sets(run));
    RG_TRY(rg_dataset_get_info(run->train.set, &run->train.info));
    RG_TRY(q->resume != NULL ? resume(run) : open_new(run));
    if (run->trainer == NULL) {
        const rg_trainer_options options = rg_train_trainer_options(q, &run->checkpoint.network);
        RG_TRY(rg_trainer_create(run->device, run->model, &options, &run->trainer));
    }
    RG_TRY(open_train(run));
    RG_TRY(rg_train_open_part(&run->test, &run->checkpoint, q->data));
    if (run->own_validation)
        RG_TRY(rg_train_open_part(&run->validation, &run->checkpoint, q->data));
    RG_TRY(make_capacity(run));
    const rg_checkpoint *c = &run->checkpoint;
    const rg_status status = rg_loader_seek(run->train.loader, c->epoch, c->position);
    if (status != RG_OK)
        rg_error_prefix("%s: ", q->resume);
    RG_TRY(status);
    return make_folder(run); /* last, because it drops rows of the table */
}

rg_status rg_train_begin(rg_train_run *run, rg_train_request *request)
{
    *run = (rg_train_run){
        .request = request, .began = rg_seconds(), .lock = -1, .csv.file = -1, .events.file = -1
    };
    rg_show_begin(&run->show, request->json, request->epochs, 0);
    RG_TRY(begin(run));
    char device[256];
    rg_device_describe(run->device, device, sizeof device);
    rg_show_begin(&run->show, request->json, request->epochs, run->train.info.count);
    run->show.done_before =
        run->checkpoint.epoch * run->train.info.count + run->checkpoint.position;
    say_what(run, device);
    return RG_OK;
}

void rg_train_end(rg_train_run *run)
{
    (void)rg_metric_file_close(&run->csv);
    (void)rg_metric_file_close(&run->events);
    rg_train_close_part(&run->train);
    rg_train_close_part(&run->validation);
    rg_train_close_part(&run->test);
    rg_trainer_destroy(run->trainer);
    rg_model_destroy(run->model);
    rg_checkpoint_release(&run->checkpoint);
    rg_device_destroy(run->device);
    free(run->checkpoint_path);
    free(run->report_path);
    rg_folder_unlock(&run->lock);
    rg_release(allocator, run->epochs, (size_t)run->epoch_capacity * sizeof *run->epochs);
    rg_release(allocator, run->losses, (size_t)run->loss_capacity * sizeof *run->losses);
    *run = (rg_train_run){ 0 };
}

/* ---- training ---- */

/* Parameters that have met a loss that is not finite are spoilt: no checkpoint must keep them. */
static rg_status diverged(const rg_train_run *run, const char *what, double rate)
{
    const long long epoch = run->checkpoint.epoch + 1;
    return rg_fail(RG_INVALID_STATE,
                   "training has diverged: in epoch %lld %s; the learning rate is %g: a lower "
                   "--rate may help. Nothing of this epoch is saved%s%s",
                   epoch, what, rate, run->good != NULL ? "; the last good checkpoint is " : "",
                   run->good != NULL ? run->good : "");
}

static rg_status check_loss(const rg_train_run *run, const char *whose, double loss, double rate)
{
    char what[80];
    if (isfinite(loss))
        return RG_OK;
    snprintf(what, sizeof what, "%s is %f", whose, rg_shown(loss));
    return diverged(run, what, rate);
}

/* An update can spoil them behind a loss that was finite. */
static rg_status check_parameters(const rg_train_run *run, double rate)
{
    const rg_status status = rg_checkpoint_check(run->trainer);
    return status == RG_INVALID_STATE ? diverged(run, rg_error_text(), rate) : status;
}

static rg_status count_outcome(rg_train_run *run, const rg_outcome *outcome, double rate)
{
    rg_checkpoint *c = &run->checkpoint;
    if (outcome->images == 0)
        return RG_OK;
    RG_TRY(check_loss(run, "the loss of a batch", outcome->loss, rate));
    c->images += outcome->images;
    c->right += outcome->right;
    c->loss += outcome->loss * (double)outcome->images;
    const int64_t batch = rg_trainer_batches(run->trainer);
    if (batch % run->loss_every == 0 && run->loss_count < run->loss_capacity)
        run->losses[run->loss_count++] = (rg_report_step){ batch, outcome->loss };
    return RG_OK;
}

static rg_status catch_up(rg_train_run *run, double rate)
{
    rg_outcome outcome;
    do {
        RG_TRY(rg_trainer_finish(run->trainer, &outcome));
        RG_TRY(count_outcome(run, &outcome, rate));
    } while (outcome.images > 0);
    return RG_OK;
}

static rg_status save(rg_train_run *run)
{
    rg_checkpoint *c = &run->checkpoint;
    free(c->options);
    c->options = rg_train_options_text(run->request);
    RG_CHECK(c->options != NULL, RG_OUT_OF_MEMORY, "out of memory for a checkpoint");
    c->steps = rg_trainer_steps(run->trainer);
    c->batches = rg_trainer_batches(run->trainer);
    RG_TRY(rg_checkpoint_write(run->checkpoint_path, c, run->trainer));
    run->good = run->checkpoint_path;
    return RG_OK;
}

/* The rest of an epoch, or less if interrupted. */
static rg_status train_epoch(rg_train_run *run, const volatile int *interrupted,
                             rg_train_progress *p, bool *whole)
{
    rg_checkpoint *c = &run->checkpoint;
    const double began = rg_seconds();
    const int64_t before = c->images;
    rg_batch batch = { .last = false };
    while (!batch.last && !*interrupted) {
        rg_outcome outcome;
        const int64_t step = rg_trainer_steps(run->trainer);
        p->rate = rg_train_rate(run->request, step, run->steps);
        RG_TRY(rg_loader_next(run->train.loader, &batch));
        RG_TRY(rg_trainer_step(run->trainer, batch.images, batch.labels, batch.count, p->rate,
                               &outcome));
        c->position = batch.position + batch.count;
        RG_TRY(count_outcome(run, &outcome, p->rate));
        p->images = c->images;
        p->fresh = c->images - before;
        p->right = c->right;
        p->loss = c->loss;
        p->seconds = rg_seconds() - began;
        rg_show_progress(&run->show, p);
    }
    RG_TRY(catch_up(run, p->rate));
    *p = (rg_train_progress){ .epoch = p->epoch,
                              .images = c->images,
                              .fresh = c->images - before,
                              .right = c->right,
                              .loss = c->loss,
                              .seconds = rg_seconds() - began,
                              .rate = p->rate };
    *whole = batch.last;
    return RG_OK;
}

static rg_status end_epoch(rg_train_run *run, const rg_train_progress *p)
{
    rg_checkpoint *c = &run->checkpoint;
    rg_train_result v;
    RG_TRY(rg_train_evaluate(run->trainer, run->own_validation ? &run->validation : &run->test, &v,
                             NULL));
    run->epochs[run->epoch_count++] =
        (rg_report_epoch){ .epoch = p->epoch,
                           .train_loss = p->loss / (double)p->images,
                           .train_accuracy = (double)p->right / (double)p->images,
                           .validated = true,
                           .validation_loss = v.loss,
                           .validation_accuracy = v.accuracy,
                           .seconds = p->seconds,
                           .images_per_second = (double)p->fresh / p->seconds,
                           .learning_rate = p->rate };
    rg_show_epoch(&run->show, p, &v);
    RG_TRY(check_loss(run, "the validation loss", v.loss, p->rate));
    RG_TRY(check_parameters(run, p->rate));
    RG_TRY(rg_train_add_metrics(run, &run->epochs[run->epoch_count - 1]));
    c->epoch = p->epoch;
    c->position = c->images = c->right = 0;
    c->loss = 0;
    if (v.accuracy > c->best_accuracy || c->best_epoch == 0) {
        c->best_accuracy = v.accuracy;
        c->best_epoch = p->epoch;
    }
    return save(run);
}

static bool is_patience_over(const rg_train_run *run)
{
    const rg_checkpoint *c = &run->checkpoint;
    const int64_t patience = run->request->patience;
    return patience > 0 && c->best_epoch > 0 && c->epoch - c->best_epoch >= patience;
}

rg_status rg_train_all(rg_train_run *run, const volatile int *interrupted, bool *done)
{
    const rg_train_request *q = run->request;
    rg_checkpoint *c = &run->checkpoint;
    *done = false;
    while (c->epoch < q->epochs && !is_patience_over(run) && (q->stop < 0 || c->epoch < q->stop)) {
        rg_train_progress p = { .epoch = c->epoch + 1 };
        bool whole;
        RG_TRY(train_epoch(run, interrupted, &p, &whole));
        if (!whole) {
            RG_TRY(check_parameters(run, p.rate));
            return save(run);
        }
        RG_TRY(end_epoch(run, &p));
        if (is_patience_over(run))
            rg_show_say(&run->show, "no better epoch since %lld: training ends",
                        (long long)c->best_epoch);
        else if (*interrupted)
            return RG_OK;
    }
    *done = c->epoch >= q->epochs || is_patience_over(run);
    return RG_OK;
}

rg_status rg_train_finish(rg_train_run *run, const char *command)
{
    rg_train_verdicts verdicts;
    rg_train_result test;
    rg_status status = rg_train_verdicts_create(&run->test.info, &verdicts);
    if (status == RG_OK)
        status = rg_train_evaluate(run->trainer, &run->test, &test, &verdicts);
    if (status == RG_OK)
        status = rg_train_write_report(run, &test, &verdicts, command);
    rg_train_verdicts_release(&run->test.info, &verdicts);
    if (status == RG_OK)
        rg_show_end(&run->show, &test, rg_seconds() - run->began, run->report_path,
                    run->checkpoint_path);
    return status;
}
