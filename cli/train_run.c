/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* A run of training, from opening the data to the last checkpoint. */
#include "cli/train_run.h"
#include "cli/use_checkpoint.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    RG_PASS(open_default(run, &all));
    rg_status status = rg_open_test_part(q->data, &run->test.set);
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
    if (status != RG_INVALID_ARGUMENT)
        return status;
    const char *use = tests ? "validation" : "testing";
    return q->validation > 0
               ? rg_usage_status(rg_fails(
                     status, "--validation %g leaves no images of %s for training, or none for %s",
                     part, q->data, use))
               : rg_fails(status, "%s: there are too few images for training and %s", q->data, use);
}

/* Counts the images of a part, which the network must take. */
static rg_status open_part(const rg_train_run *run, rg_train_part *part)
{
    rg_dataset_info info;
    RG_PASS(rg_dataset_get_info(part->set, &info));
    part->count = info.count;
    return rg_check_part(run->trainer, part->set, run->request->data);
}

/* ---- the trainer ---- */

static rg_status make_new(rg_train_run *run, const rg_trainer_desc *desc)
{
    rg_model *model;
    RG_PASS(rg_model_open(run->request->model, &model));
    const rg_status status =
        rg_trainer_create(run->device, model, run->train.set, desc, &run->trainer);
    rg_model_destroy(model);
    if (status == RG_INVALID_ARGUMENT && strncmp(rg_error_text(), "accumulate ", 11) == 0)
        return rg_usage_status(rg_fails(status, "--%s", rg_error_text()));
    return status;
}

static rg_status make_resumed(rg_train_run *run, const rg_trainer_desc *desc)
{
    const rg_status status =
        rg_trainer_resume(run->device, run->request->resume, run->train.set, desc, &run->trainer);
    run->good = run->request->resume;
    return status != RG_INVALID_ARGUMENT /* where the data does not fit */
               ? status
               : rg_fails(status, "%s: %s", run->request->data, rg_error_text());
}

/* ---- creation ---- */

static rg_status open_device(rg_train_run *run)
{
    rg_device_options options = rg_device_options_default();
    options.threads = (int32_t)run->request->threads;
    return rg_usage_status(rg_device_create(run->request->device, &options, &run->device));
}

/* Opens the table and the events; rows of epochs that are trained again go. */
static rg_status begin_folder(rg_train_run *run)
{
    int64_t removed;
    RG_PASS(rg_run_begin(run->run, run->trainer, run->request->resume, &removed));
    if (removed > 0)
        rg_show_say(&run->show,
                    "%s: rows after epoch %lld are removed; training continues from that epoch",
                    rg_run_path(run->run, RG_RUN_METRICS), (long long)run->progress.finished);
    return RG_OK;
}

static rg_status begin(rg_train_run *run)
{
    const rg_train_request *q = run->request;
    RG_PASS(rg_run_open(q->out, &run->run)); /* before the checkpoint is read */
    RG_PASS(open_device(run));
    RG_PASS(open_sets(run));
    rg_trainer_desc desc;
    RG_PASS(rg_train_desc(q, &desc));
    RG_PASS(q->resume != NULL ? make_resumed(run, &desc) : make_new(run, &desc));
    RG_PASS(rg_trainer_get_progress(run->trainer, &run->progress));
    RG_PASS(open_part(run, &run->train));
    RG_PASS(open_part(run, &run->test));
    if (run->own_validation)
        RG_PASS(open_part(run, &run->validation));
    return begin_folder(run); /* last, because it drops rows of the table */
}

static rg_status say_what(const rg_train_run *run)
{
    rg_network_desc network;
    char device[256];
    RG_PASS(rg_trainer_get_network(run->trainer, &network));
    rg_device_describe(run->device, device, sizeof device);
    rg_show_say(&run->show,
                "%s on %s: %lld images for training, %lld for testing, %d classes; %lld "
                "parameters in %s; %s",
                rg_model_name(rg_trainer_model(run->trainer)), run->request->data,
                (long long)run->train.count, (long long)run->test.count, network.classes,
                (long long)rg_trainer_parameters(run->trainer), rg_dtype_name(network.dtype),
                device);
    return RG_OK;
}

rg_status rg_train_begin(rg_train_run *run, rg_train_request *request)
{
    *run = (rg_train_run){ .request = request, .began = rg_show_clock() };
    rg_show_begin(&run->show, request->json, request->epochs, 0);
    RG_PASS(begin(run));
    rg_show_begin(&run->show, request->json, request->epochs, run->train.count);
    run->show.done_before = run->progress.finished * run->train.count + run->progress.images;
    return say_what(run);
}

void rg_train_end(rg_train_run *run)
{
    rg_run_close(run->run);
    rg_dataset_destroy(run->train.set);
    rg_dataset_destroy(run->validation.set);
    rg_dataset_destroy(run->test.set);
    rg_trainer_destroy(run->trainer);
    rg_device_destroy(run->device);
    *run = (rg_train_run){ 0 };
}

/* ---- training ---- */

/* A checkpoint keeps finite numbers only. */
static rg_status nothing_saved(const rg_train_run *run, const char *why)
{
    return rg_fails(RG_INVALID_STATE,
                    "%s; a lower --rate may help. Nothing of this epoch is saved%s%s", why,
                    run->good != NULL ? "; the last good checkpoint is " : "",
                    run->good != NULL ? run->good : "");
}

static rg_status save(rg_train_run *run)
{
    const char *path = rg_run_path(run->run, RG_RUN_CHECKPOINT);
    char *options = rg_train_options_text(run->request);
    if (options == NULL)
        return rg_fails(RG_OUT_OF_MEMORY, "out of memory for a checkpoint");
    const rg_status status = rg_trainer_save_with(run->trainer, path, options);
    free(options);
    if (status == RG_OK)
        run->good = path;
    return status;
}

static bool watch(void *context, const rg_trainer_progress *p)
{
    rg_train_run *run = context;
    run->progress = *p;
    rg_show_progress(&run->show, p);
    return !*run->interrupted;
}

/* The rest of an epoch, or less if interrupted. */
static rg_status train_epoch(rg_train_run *run, bool *whole)
{
    rg_trainer_progress now;
    *whole = false;
    if (*run->interrupted)
        return RG_OK;
    const int64_t before = run->progress.finished;
    const rg_status status = rg_trainer_train(run->trainer, 1, watch, run);
    if (status == RG_INVALID_STATE) /* training diverged */
        return nothing_saved(run, rg_error_text());
    RG_PASS(status);
    RG_PASS(rg_trainer_get_progress(run->trainer, &now));
    *whole = now.finished > before;
    run->progress.finished = now.finished;
    return RG_OK;
}

static rg_status check_validation(const rg_train_run *run, double loss)
{
    const rg_trainer_progress *p = &run->progress;
    char why[160];
    if (isfinite(loss))
        return RG_OK;
    snprintf(why, sizeof why,
             "training diverged in epoch %lld: the validation loss is %f. The learning rate is %g",
             (long long)p->epoch, rg_shown(loss), p->rate);
    return nothing_saved(run, why);
}

static rg_status end_epoch(rg_train_run *run)
{
    const rg_train_part *part = run->own_validation ? &run->validation : &run->test;
    rg_trainer_progress now;
    rg_trainer_result v;
    RG_PASS(rg_trainer_validate(run->trainer, part->set, &v));
    rg_show_epoch(&run->show, &run->progress, &v);
    RG_PASS(check_validation(run, v.loss));
    RG_PASS(rg_run_add_epoch(run->run));
    RG_PASS(rg_trainer_get_progress(run->trainer, &now));
    run->progress.best_epoch = now.best_epoch;
    return save(run);
}

static bool is_patience_over(const rg_train_run *run)
{
    const rg_trainer_progress *p = &run->progress;
    const int64_t patience = run->request->patience;
    return patience > 0 && p->best_epoch > 0 && p->finished - p->best_epoch >= patience;
}

rg_status rg_train_all(rg_train_run *run, const volatile int *interrupted, bool *done)
{
    const rg_train_request *q = run->request;
    const rg_trainer_progress *p = &run->progress;
    *done = false;
    run->interrupted = interrupted;
    while (p->finished < q->epochs && !is_patience_over(run) &&
           (q->stop < 0 || p->finished < q->stop)) {
        bool whole;
        RG_PASS(train_epoch(run, &whole));
        if (!whole)
            return save(run);
        RG_PASS(end_epoch(run));
        if (is_patience_over(run))
            rg_show_say(&run->show,
                        "no higher validation accuracy since epoch %lld; training stops",
                        (long long)p->best_epoch);
        else if (*interrupted)
            return RG_OK;
    }
    *done = p->finished >= q->epochs || is_patience_over(run);
    return RG_OK;
}

rg_status rg_train_finish(rg_train_run *run, const char *command)
{
    const char *report = rg_run_path(run->run, RG_RUN_REPORT);
    rg_report_desc desc = rg_report_desc_default();
    rg_trainer_result test;
    char *options = rg_train_options_text(run->request);
    if (options == NULL)
        return rg_fails(RG_OUT_OF_MEMORY, "out of memory for a report");
    desc.data = run->request->data;
    desc.command = command;
    desc.options = options;
    const rg_status status = rg_trainer_report(run->trainer, run->test.set, &desc, report, &test);
    free(options);
    if (status == RG_OK)
        rg_show_end(&run->show, &test, rg_show_clock() - run->began, report,
                    rg_run_path(run->run, RG_RUN_CHECKPOINT));
    return status;
}
