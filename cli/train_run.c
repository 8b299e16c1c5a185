/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* A run of training, from opening the data to the last checkpoint. */
#include "cli/train_run.h"
#include "cli/use_checkpoint.h"

#include <retrograde/checkpoint.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Whether this rank writes files. */
static bool writes(const rg_train_run *run)
{
    return rg_group_rank(run->group) == 0;
}

/* ---- data ---- */

/* Without the package of the default data set there is one that the program draws. */
static rg_status open_data(rg_train_run *run)
{
    rg_train_request *q = run->request;
    rg_status status = rg_train_data_open(q, &run->data);
    if (status == RG_IO && q->data == rg_train_default_data && q->resume == NULL) {
        rg_show_say(&run->show, "%s; training on generated glyph images instead", rg_failure());
        q->data = "glyphs";
        status = rg_train_data_open(q, &run->data);
    }
    if (status == RG_UNSUPPORTED && run->size[0] != 0)
        return rg_fails(status, "%s; %s takes images of %s", rg_failure(), q->model, run->size);
    RG_PASS(status);
    if (!run->data.has_test_part)
        rg_show_say(&run->show, "%s has no test part; %g %% of its images are used for testing",
                    q->data, 100 * RG_TRAIN_TEST_FRACTION);
    if (run->data.has_validation_part)
        rg_show_say(&run->show, "%s has a validation part, which chooses the best epoch", q->data);
    if (run->data.validation == NULL && q->validation > 0)
        rg_show_say(&run->show, "%s: there are too few images for validation", q->data);
    return RG_OK;
}

static int64_t count_of(const rg_dataset *set)
{
    rg_dataset_info info;
    return rg_dataset_get_info(set, &info) == RG_OK ? info.count : 0;
}

/* ---- the trainer ---- */

static void say_weights(void *context, const char *sentence)
{
    rg_train_run *run = context;
    rg_show_say(&run->show, "%s", sentence);
}

static rg_status create_trainer(rg_train_run *run, const rg_trainer_desc *desc)
{
    const rg_status status =
        rg_trainer_create(run->device, run->model, run->data.train, desc, &run->trainer);
    rg_model_destroy(run->model);
    run->model = NULL;
    static const char *const options[] = { "accumulate ", "loss ", "freeze ", "rates ",
                                           "normalize ",  "head ", "dtype ",  "mirror ",
                                           "crop ",       "shift " };
    for (size_t i = 0; status == RG_INVALID_ARGUMENT && i < sizeof options / sizeof options[0];
         i++) {
        if (strncmp(rg_error_text(), options[i], strlen(options[i])) == 0)
            return rg_usage_status(rg_fails(status, "--%s", rg_error_text()));
    }
    RG_PASS(status);
    const char *weights = run->request->weights;
    return weights[0] != 0 ? rg_trainer_load_weights(run->trainer, weights, say_weights, run)
                           : RG_OK;
}

static rg_status resume_trainer(rg_train_run *run, const rg_trainer_desc *desc)
{
    const rg_status status =
        rg_trainer_resume(run->device, run->request->resume, run->data.train, desc, &run->trainer);
    run->good = run->request->resume;
    if (status != RG_INVALID_ARGUMENT) /* where the data does not fit */
        return status;
    const char *why = strstr(rg_error_text(), "training images") == NULL ? ""
                      : run->data.has_test_part && run->request->validation == 0
                          ? ""
                          : "; --seed, --validation and the files must be as before";
    return rg_fails(status, "%s: %s%s", run->request->data, rg_error_text(), why);
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

/* ---- the results folder ---- */

/* The folder of a path: "." for a name alone. */
static char *folder_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash == NULL ? strdup(".") : strndup(path, slash == path ? 1 : (size_t)(slash - path));
}

/* "run", or the first of "run-2", "run-3", ... that holds no run, and that no process writes to. */
static rg_status open_free_folder(rg_train_run *run)
{
    rg_status status = RG_INVALID_STATE;
    for (int i = 1; i < 100000 && status == RG_INVALID_STATE; i++) {
        char name[32] = "run";
        if (i > 1)
            snprintf(name, sizeof name, "run-%d", i);
        if (rg_run_exists(name))
            continue;
        status = rg_run_open(name, &run->run);
        run->out = status == RG_OK ? strdup(name) : NULL;
    }
    RG_PASS(status);
    return run->out != NULL ? RG_OK : rg_fails(RG_OUT_OF_MEMORY, "out of memory for a path");
}

/* A run goes on in the folder of its checkpoint; a new one takes a folder without a run. */
static rg_status open_folder(rg_train_run *run)
{
    const rg_train_request *q = run->request;
    if (!writes(run))
        return RG_OK;
    if (q->out == NULL && q->resume == NULL)
        return open_free_folder(run);
    run->out = q->out != NULL ? strdup(q->out) : folder_of(q->resume);
    if (run->out == NULL)
        return rg_fails(RG_OUT_OF_MEMORY, "out of memory for a path");
    RG_PASS(rg_run_open(run->out, &run->run)); /* before the checkpoint is read */
    if (q->resume == NULL && rg_run_exists(run->out))
        return rg_fails(RG_INVALID_STATE,
                        "%s: contains the results of another run; choose another --out, or "
                        "continue that run with --resume %s/checkpoint.safetensors",
                        run->out, run->out);
    return RG_OK;
}

/* A model of a fixed size of images has them resized to it. */
static rg_status open_model(rg_train_run *run)
{
    RG_PASS(rg_open_model(run->request->model, &run->model));
    return rg_train_take_size(run->model, run->request, run->size);
}

static rg_status open_all(rg_train_run *run)
{
    const rg_train_request *q = run->request;
    RG_PASS(open_folder(run));
    RG_PASS(open_device(run));
    if (q->resume == NULL)
        RG_PASS(open_model(run));
    RG_PASS(open_data(run));
    rg_trainer_desc desc;
    RG_PASS(rg_train_desc(q, &desc));
    desc.group = run->group;
    RG_PASS(q->resume != NULL ? resume_trainer(run, &desc) : create_trainer(run, &desc));
    RG_PASS(rg_trainer_get_progress(run->trainer, &run->progress));
    RG_PASS(rg_check_part(run->trainer, run->data.train, q->data));
    RG_PASS(rg_check_part(run->trainer, run->data.test, q->data));
    RG_PASS(rg_trainer_agree_on_set(run->trainer, "validation data", run->data.validation));
    return !writes(run) ? RG_OK : begin_folder(run); /* last, because it drops rows of the table */
}

static rg_status say_what(const rg_train_run *run)
{
    static const char *const kinds[] = { "classes", "labels", "values", "classes of pixels" };
    rg_network_desc network;
    char device[256], validation[64] = "";
    rg_group_info group;
    char ranks[320] = "";
    RG_PASS(rg_trainer_get_network(run->trainer, &network));
    RG_PASS(rg_group_get_info(run->group, &group));
    if (group.size > 1)
        snprintf(ranks, sizeof ranks, "; %d ranks, %s", group.size, group.engine);
    rg_device_describe(run->device, device, sizeof device);
    if (run->data.validation != NULL)
        snprintf(validation, sizeof validation, ", %lld for validation",
                 (long long)count_of(run->data.validation));
    rg_show_say(&run->show,
                "%s on %s: %lld images for training%s, %lld for testing, %d %s; %lld "
                "parameters in %s; %s%s",
                rg_model_name(rg_trainer_model(run->trainer)), run->request->data,
                (long long)count_of(run->data.train), validation,
                (long long)count_of(run->data.test), network.classes, kinds[network.target],
                (long long)rg_trainer_parameters(run->trainer), rg_dtype_name(network.dtype),
                device, ranks);
    return RG_OK;
}

/* While images are read before training. */
static bool watch_reading(void *context, int64_t done, int64_t of)
{
    rg_train_run *run = context;
    rg_show_reading(&run->show, done, of);
    run->is_stopped = run->is_stopped || *run->interrupted != 0;
    return !run->is_stopped;
}

rg_status rg_train_begin(rg_train_run *run, rg_train_request *request, rg_group *group,
                         const volatile int *interrupted)
{
    *run = (rg_train_run){
        .request = request, .group = group, .interrupted = interrupted, .began = rg_show_clock()
    };
    request->watch = watch_reading;
    request->watched = run;
    request->show = &run->show;
    rg_show_begin(&run->show, request->json, request->epochs, 0);
    run->show.silent = !writes(run);
    RG_PASS(open_all(run));
    const int64_t images = count_of(run->data.train);
    rg_show_begin(&run->show, request->json, request->epochs, images);
    run->show.silent = !writes(run);
    run->show.done_before = run->progress.finished * images + run->progress.images;
    rg_dataset_info info;
    RG_PASS(rg_dataset_get_info(run->data.train, &info));
    run->show.metric = rg_score_name(info.target);
    return say_what(run);
}

void rg_train_end(rg_train_run *run)
{
    rg_run_close(run->run);
    rg_train_data_close(&run->data);
    rg_model_destroy(run->model);
    rg_trainer_destroy(run->trainer);
    rg_device_destroy(run->device);
    free(run->out);
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

static rg_status save(rg_train_run *run, rg_run_file file)
{
    if (!writes(run))
        return RG_OK;
    const char *path = rg_run_path(run->run, file);
    char *options = rg_train_options_text(run->request);
    if (options == NULL)
        return rg_fails(RG_OUT_OF_MEMORY, "out of memory for a checkpoint");
    const rg_status status = rg_trainer_save_with(run->trainer, path, options);
    free(options);
    if (status == RG_OK)
        run->good = path;
    return status;
}

/* Data could not be read: what was trained before is saved. */
static rg_status save_before(rg_train_run *run, rg_status status)
{
    char *why = strdup(rg_failure());
    const bool alone = rg_group_size(run->group) == 1;
    if (why == NULL)
        return status;
    if (alone && run->progress.batches > 0 && save(run, RG_RUN_CHECKPOINT) == RG_OK)
        (void)rg_fails(status,
                       "%s. What was trained before is saved; when the data is mended, continue "
                       "with --resume %s",
                       why, rg_run_path(run->run, RG_RUN_CHECKPOINT));
    else
        (void)rg_fails(status, "%s", why);
    free(why);
    return status;
}

static bool watch(void *context, const rg_trainer_progress *p)
{
    rg_train_run *run = context;
    run->progress = *p;
    rg_show_progress(&run->show, p);
    return !*run->interrupted;
}

static double seconds_waited(const rg_train_run *run)
{
    rg_group_info group;
    return rg_group_get_info(run->group, &group) == RG_OK ? group.seconds : 0;
}

/* The rest of an epoch, or less if interrupted. */
static rg_status run_epoch(rg_train_run *run, bool *whole)
{
    rg_trainer_progress now;
    *whole = false;
    bool stops;
    RG_PASS(rg_train_group_stops(run->group, *run->interrupted != 0, &stops));
    if (stops)
        return RG_OK;
    const int64_t before = run->progress.finished;
    const double began = rg_show_clock(), waited = seconds_waited(run);
    const rg_status status = rg_trainer_train(run->trainer, 1, watch, run);
    run->trained += rg_show_clock() - began;
    run->waited += seconds_waited(run) - waited;
    if (status == RG_INVALID_STATE) /* training diverged */
        return nothing_saved(run, rg_error_text());
    if (status == RG_MALFORMED || status == RG_IO || status == RG_UNSUPPORTED)
        return save_before(run, status);
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

static rg_status validate(rg_train_run *run)
{
    rg_trainer_progress now;
    rg_trainer_result v;
    const rg_status status = rg_trainer_validate(run->trainer, run->data.validation, &v);
    if (status == RG_MALFORMED || status == RG_IO || status == RG_UNSUPPORTED)
        return save_before(run, status);
    RG_PASS(status);
    rg_show_epoch(&run->show, &run->progress, &v);
    RG_PASS(check_validation(run, v.loss));
    RG_PASS(rg_trainer_get_progress(run->trainer, &now));
    run->progress.best_epoch = now.best_epoch;
    return RG_OK;
}

/* The best checkpoint is written first: it exists whenever the other one tells of it. */
static rg_status save_epoch(rg_train_run *run)
{
    if (run->data.validation != NULL)
        RG_PASS(validate(run));
    else
        rg_show_epoch(&run->show, &run->progress, NULL);
    if (writes(run))
        RG_PASS(rg_run_add_epoch(run->run));
    if (run->data.validation != NULL && run->progress.best_epoch == run->progress.finished)
        RG_PASS(save(run, RG_RUN_BEST));
    return save(run, RG_RUN_CHECKPOINT);
}

static bool is_patience_over(const rg_train_run *run)
{
    const rg_trainer_progress *p = &run->progress;
    const int64_t patience = run->request->patience;
    return patience > 0 && p->best_epoch > 0 && p->finished - p->best_epoch >= patience;
}

/* What makes an epoch the best one. */
static const char *better_of(const rg_train_run *run)
{
    rg_network_desc network;
    if (rg_trainer_get_network(run->trainer, &network) != RG_OK)
        return "better epoch";
    return network.target == RG_TARGET_VALUES ? "lower validation loss"
           : network.target == RG_TARGET_MASK ? "higher validation intersection over union"
                                              : "higher validation accuracy";
}

/* What the other ranks have cost. */
static rg_status say_shares(const rg_train_run *run)
{
    rg_group_info group;
    RG_PASS(rg_group_get_info(run->group, &group));
    if (group.size > 1 && run->trained > 0)
        rg_show_say(&run->show,
                    "rank 0 of %d: %.1f %% of the time of training was spent waiting for other "
                    "ranks; it has sent %.1f MB",
                    group.size, 100 * run->waited / run->trained, (double)group.bytes / 1e6);
    return RG_OK;
}

/* Where no epoch was left, a run that continues in another folder has no checkpoint there. */
static rg_status save_unless_there(rg_train_run *run)
{
    return writes(run) && access(rg_run_path(run->run, RG_RUN_CHECKPOINT), F_OK) != 0
               ? save(run, RG_RUN_CHECKPOINT)
               : RG_OK;
}

rg_status rg_train_all(rg_train_run *run, bool *done)
{
    const rg_train_request *q = run->request;
    const rg_trainer_progress *p = &run->progress;
    *done = false;
    while (p->finished < q->epochs && !is_patience_over(run) &&
           (q->stop < 0 || p->finished < q->stop)) {
        bool whole, stops;
        RG_PASS(run_epoch(run, &whole));
        run->is_stopped = !whole;
        if (!whole)
            return save(run, RG_RUN_CHECKPOINT);
        RG_PASS(save_epoch(run));
        RG_PASS(rg_train_group_stops(run->group, *run->interrupted != 0, &stops));
        if (is_patience_over(run))
            rg_show_say(&run->show, "no %s since epoch %lld; training stops", better_of(run),
                        (long long)p->best_epoch);
        else if (stops) {
            run->is_stopped = true;
            return RG_OK;
        }
    }
    *done = p->finished >= q->epochs || is_patience_over(run);
    RG_PASS(save_unless_there(run));
    return say_shares(run);
}

/* ---- the end ---- */

/* The epochs of a checkpoint; -1 if it cannot be read. */
static int64_t epoch_of(const char *path)
{
    rg_checkpoint *checkpoint;
    rg_checkpoint_info info = { .epochs = -1 };
    if (rg_checkpoint_inspect(path, &checkpoint) != RG_OK)
        return -1;
    (void)rg_checkpoint_get_info(checkpoint, &info);
    rg_checkpoint_close(checkpoint);
    return info.epochs;
}

/* The network of the best epoch. Where its file is gone, or of a run that was continued from an
 * older checkpoint, the last parameters count. */
static rg_status restore_best(rg_train_run *run, const char **network)
{
    const char *best = rg_run_path(run->run, RG_RUN_BEST);
    *network = rg_run_path(run->run, RG_RUN_CHECKPOINT);
    if (run->data.validation == NULL || run->progress.best_epoch == 0)
        return RG_OK;
    if (epoch_of(best) != run->progress.best_epoch) {
        rg_show_say(&run->show, "%s is not that of epoch %lld; the last epoch is tested", best,
                    (long long)run->progress.best_epoch);
        return RG_OK;
    }
    *network = best;
    return rg_trainer_restore(run->trainer, best);
}

rg_status rg_train_finish(rg_train_run *run, const char *command, bool done)
{
    const char *report = rg_run_path(run->run, RG_RUN_REPORT), *network = NULL;
    const rg_dataset *set = done ? run->data.test : run->data.validation;
    rg_report_desc desc = rg_report_desc_default();
    rg_trainer_result test;
    if (!writes(run))
        return RG_OK;
    if (done)
        RG_PASS(restore_best(run, &network));
    char *options = rg_train_options_text(run->request);
    if (options == NULL)
        return rg_fails(RG_OUT_OF_MEMORY, "out of memory for a report");
    desc.data = run->request->data;
    desc.command = command;
    desc.options = options;
    desc.part = done ? NULL : "validation";
    const rg_status status = rg_trainer_report(run->trainer, set, &desc, report, &test);
    free(options);
    rg_network_desc shape;
    if (status == RG_OK && done && rg_trainer_get_network(run->trainer, &shape) == RG_OK)
        rg_show_end(&run->show, &shape, &test, rg_show_clock() - run->began, report, network);
    return status;
}
