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
        rg_show_say(&run->show, "%s; training on generated glyph images instead", rg_error_text());
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
        rg_show_say(&run->show, "%s has no test part; %g %% of its images are used for testing",
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

/* ---- the trainer ---- */

static rg_status make_new(rg_train_run *run, const rg_trainer_desc *desc)
{
    rg_model *model;
    RG_TRY(rg_model_open(run->request->model, &model));
    const rg_status status =
        rg_trainer_create(run->device, model, run->train.set, desc, &run->trainer);
    rg_model_destroy(model);
    return status;
}

static rg_status make_resumed(rg_train_run *run, const rg_trainer_desc *desc)
{
    const rg_status status =
        rg_trainer_resume(run->device, run->request->resume, run->train.set, desc, &run->trainer);
    if (status == RG_INVALID_ARGUMENT) /* the data does not fit */
        rg_error_prefix("%s: ", run->request->data);
    run->good = run->request->resume;
    return status;
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
    RG_CHECK(mkdir(out, 0777) == 0 || errno == EEXIST, RG_IO, "%s: cannot be created: %s", out,
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
    const int64_t epochs = run->request->epochs, before = run->trainer->state.epoch;
    const int64_t batches = rg_loader_batches(run->trainer->loader) * epochs;
    run->loss_every = batches / POINTS + 1;
    run->loss_capacity = batches / run->loss_every + 2;
    run->epoch_capacity = epochs > before ? epochs : before;
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
    const rg_network *network = rg_stepper_network(run->trainer->stepper);
    int64_t parameters = 0;
    for (size_t i = 0; i < network->layers_count; i++)
        parameters += network->layers[i].parameters;
    rg_show_say(&run->show,
                "%s on %s: %lld images for training, %lld for testing, %d classes; %lld "
                "parameters in %s; %s",
                run->trainer->model->name, run->request->data, (long long)run->train.info.count,
                (long long)run->test.info.count, run->train.info.classes, (long long)parameters,
                rg_dtype_name(run->trainer->state.network.dtype), device);
}

static rg_status begin(rg_train_run *run)
{
    const rg_train_request *q = run->request;
    RG_TRY(rg_folder_lock(q->out, &run->lock)); /* before the checkpoint is read */
    RG_TRY(open_device(run));
    RG_TRY(open_sets(run));
    RG_TRY(rg_dataset_get_info(run->train.set, &run->train.info));
    rg_trainer_desc desc;
    RG_TRY(rg_train_desc(q, &desc));
    RG_TRY(q->resume != NULL ? make_resumed(run, &desc) : make_new(run, &desc));
    RG_TRY(rg_train_open_part(&run->test, run->trainer, q->data));
    if (run->own_validation)
        RG_TRY(rg_train_open_part(&run->validation, run->trainer, q->data));
    RG_TRY(make_capacity(run));
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
        run->trainer->state.epoch * run->train.info.count + run->trainer->state.position;
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
    rg_device_destroy(run->device);
    free(run->checkpoint_path);
    free(run->report_path);
    rg_folder_unlock(&run->lock);
    rg_release(allocator, run->epochs, (size_t)run->epoch_capacity * sizeof *run->epochs);
    rg_release(allocator, run->losses, (size_t)run->loss_capacity * sizeof *run->losses);
    *run = (rg_train_run){ 0 };
}

/* ---- training ---- */

/* No checkpoint keeps what is spoilt. */
static rg_status nothing_saved(const rg_train_run *run)
{
    return rg_fail(RG_INVALID_STATE,
                   "%s; a lower --rate may help. Nothing of this epoch is saved%s%s",
                   rg_error_text(), run->good != NULL ? "; the last good checkpoint is " : "",
                   run->good != NULL ? run->good : "");
}

static rg_status save(rg_train_run *run)
{
    char *options = rg_train_options_text(run->request);
    RG_CHECK(options != NULL, RG_OUT_OF_MEMORY, "out of memory for a checkpoint");
    RG_TRY(rg_trainer_write(run->trainer, run->checkpoint_path, options));
    run->good = run->checkpoint_path;
    return RG_OK;
}

static bool watch(void *context, const rg_trainer_progress *p)
{
    rg_train_run *run = context;
    if (p->batch_images > 0 && p->batches % run->loss_every == 0 &&
        run->loss_count < run->loss_capacity)
        run->losses[run->loss_count++] = (rg_report_step){ p->batches, p->batch_loss };
    run->progress = *p;
    rg_show_progress(&run->show, p);
    return !*run->interrupted;
}

/* The rest of an epoch, or less if interrupted. */
static rg_status train_epoch(rg_train_run *run, bool *whole)
{
    const int64_t before = run->trainer->state.epoch;
    *whole = false;
    if (*run->interrupted)
        return RG_OK;
    const rg_status status = rg_trainer_train(run->trainer, 1, watch, run);
    *whole = run->trainer->state.epoch > before;
    return status != RG_OK && run->trainer->spoilt ? nothing_saved(run) : status;
}

static rg_status check_validation(const rg_train_run *run, double loss)
{
    const rg_trainer_progress *p = &run->progress;
    if (isfinite(loss))
        return RG_OK;
    (void)rg_fail(
        RG_INVALID_STATE,
        "training diverged in epoch %lld: the validation loss is %f. The learning rate is "
        "%g",
        (long long)p->epoch, rg_shown(loss), p->rate);
    return nothing_saved(run);
}

static rg_status end_epoch(rg_train_run *run)
{
    rg_run_state *s = &run->trainer->state;
    const rg_trainer_progress *p = &run->progress;
    rg_trainer_result v;
    RG_TRY(rg_train_evaluate(run->trainer, run->own_validation ? &run->validation : &run->test, &v,
                             NULL));
    run->epochs[run->epoch_count++] =
        (rg_report_epoch){ .epoch = p->epoch,
                           .train_loss = p->loss,
                           .train_accuracy = (double)p->right / (double)p->images,
                           .validated = true,
                           .validation_loss = v.loss,
                           .validation_accuracy = v.accuracy,
                           .seconds = p->now_seconds,
                           .images_per_second = (double)p->now_images / p->now_seconds,
                           .learning_rate = p->rate };
    rg_show_epoch(&run->show, p, &v);
    RG_TRY(check_validation(run, v.loss));
    RG_TRY(rg_train_add_metrics(run, &run->epochs[run->epoch_count - 1]));
    if (v.accuracy > s->best_accuracy || s->best_epoch == 0) {
        s->best_accuracy = v.accuracy;
        s->best_epoch = p->epoch;
    }
    return save(run);
}

static bool is_patience_over(const rg_train_run *run)
{
    const rg_run_state *c = &run->trainer->state;
    const int64_t patience = run->request->patience;
    return patience > 0 && c->best_epoch > 0 && c->epoch - c->best_epoch >= patience;
}

rg_status rg_train_all(rg_train_run *run, const volatile int *interrupted, bool *done)
{
    const rg_train_request *q = run->request;
    const rg_run_state *c = &run->trainer->state;
    *done = false;
    run->interrupted = interrupted;
    while (c->epoch < q->epochs && !is_patience_over(run) && (q->stop < 0 || c->epoch < q->stop)) {
        bool whole;
        RG_TRY(train_epoch(run, &whole));
        if (!whole)
            return save(run);
        RG_TRY(end_epoch(run));
        if (is_patience_over(run))
            rg_show_say(&run->show,
                        "no higher validation accuracy since epoch %lld; training stops",
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
    rg_trainer_result test;
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
