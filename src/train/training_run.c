/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The folder of a run: its lock, its table and events, and what earlier runs have left in them. */
#include "train/run_folder.h"
#include "train/metrics.h"
#include "train/trainer.h"

#include "core/memory.h"
#include "files/whole_file.h"

#include <retrograde/run.h>

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>

static const rg_allocator *const allocator = &rg_default_allocator;

enum { FILES = RG_RUN_BEST + 1 };

struct rg_run {
    char *folder;
    int lock; /* of the folder; -1: not yet */
    rg_trainer *trainer;
    char *paths[FILES];
    rg_metric_file csv, events;
};

/* ---- opening ---- */

rg_status rg_run_open(const char *folder, rg_run **run)
{
    void *memory;
    RG_CHECK_NOT_NULL(run);
    *run = NULL;
    RG_CHECK_NOT_NULL(folder);
    RG_TRY(rg_allocate_zero(allocator, sizeof **run, &memory));
    rg_run *made = memory;
    made->lock = made->csv.file = made->events.file = -1;
    rg_status status = rg_copy_text(folder, &made->folder);
    if (status == RG_OK)
        status = rg_folder_lock(folder, &made->lock);
    if (status == RG_OK)
        *run = made;
    else
        rg_run_close(made);
    return status;
}

void rg_run_close(rg_run *run)
{
    if (run == NULL)
        return;
    (void)rg_metric_file_close(&run->csv);
    (void)rg_metric_file_close(&run->events);
    rg_folder_unlock(&run->lock);
    for (int i = 0; i < FILES; i++)
        free(run->paths[i]);
    free(run->folder);
    rg_release(allocator, run, sizeof *run);
}

const char *rg_run_path(const rg_run *run, rg_run_file file)
{
    const bool known = run != NULL && (unsigned)file < FILES && run->paths[file] != NULL;
    return known ? run->paths[file] : "";
}

bool rg_run_exists(const char *folder)
{
    return folder != NULL && rg_folder_is_used(folder);
}

/* ---- the table and the events ---- */

/* Seconds since 1970. */
static double clock_time(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static double given(const rg_metric_row *row, rg_metric metric)
{
    return (row->given >> metric & 1) != 0 ? row->value[metric] : (double)NAN;
}

/* Epochs of earlier runs, for the report. */
static rg_status take_epochs(rg_run *run, const rg_metric_rows *rows)
{
    for (size_t i = 0; i < rows->count; i++) {
        const rg_metric_row *row = &rows->list[i];
        const double *v = row->value;
        const rg_report_epoch epoch = { .epoch = row->epoch,
                                        .train_loss = v[RG_METRIC_TRAIN_LOSS],
                                        .train_accuracy = given(row, RG_METRIC_TRAIN_ACCURACY),
                                        .validated = row->given >> RG_METRIC_VALIDATION_LOSS & 1,
                                        .validation_loss = v[RG_METRIC_VALIDATION_LOSS],
                                        .validation_accuracy =
                                            given(row, RG_METRIC_VALIDATION_ACCURACY),
                                        .seconds = v[RG_METRIC_SECONDS],
                                        .images_per_second = v[RG_METRIC_IMAGES_PER_SECOND],
                                        .learning_rate = v[RG_METRIC_LEARNING_RATE] };
        RG_TRY(rg_history_add_epoch(&run->trainer->history, &epoch));
    }
    return RG_OK;
}

/* A file beside a checkpoint; to be freed. */
static rg_status path_beside(const char *checkpoint, const char *name, char **path)
{
    const char *slash = strrchr(checkpoint, '/');
    const int length = slash != NULL ? (int)(slash - checkpoint) + 1 : 0;
    RG_CHECK(asprintf(path, "%.*s%s", length, checkpoint, name) >= 0, RG_OUT_OF_MEMORY,
             "out of memory for a path");
    return RG_OK;
}

/* The table of a run that continues: the one beside its checkpoint, if there is one. */
static rg_status continue_csv(rg_run *run, const char *resumed, rg_metric_rows *rows)
{
    char *beside;
    RG_TRY(path_beside(resumed, "metrics.csv", &beside));
    const rg_status status = rg_csv_continue(&run->csv, run->paths[RG_RUN_METRICS], beside,
                                             run->trainer->state.epoch, rows);
    free(beside);
    RG_TRY(status);
    return take_epochs(run, rows);
}

static rg_status copy_file(const char *from, const char *to)
{
    enum { PIECE = 1 << 20 };
    void *piece;
    rg_input input;
    rg_output output;
    size_t got = 1;
    RG_TRY(rg_allocate(allocator, PIECE, &piece));
    rg_status status = rg_input_open(&input, from);
    if (status == RG_OK) {
        status = rg_output_open(&output, to);
        if (status == RG_OK) {
            while (status == RG_OK && got > 0) {
                status = rg_input_read(&input, piece, PIECE, &got);
                if (status == RG_OK)
                    status = rg_output_add(&output, piece, got);
            }
            status = rg_output_close(&output, status);
        }
        rg_input_close(&input);
    }
    rg_release(allocator, piece, PIECE);
    if (status != RG_OK)
        rg_error_prefix("%s: ", to);
    return status;
}

/* A run that continues in another folder takes the best network with it. */
static rg_status continue_best(const rg_run *run, const char *resumed)
{
    char *beside;
    struct stat there, here;
    RG_TRY(path_beside(resumed, "best.safetensors", &beside));
    const char *path = run->paths[RG_RUN_BEST];
    const bool same = stat(path, &here) == 0 && stat(beside, &there) == 0 &&
                      here.st_dev == there.st_dev && here.st_ino == there.st_ino;
    rg_status status = RG_OK;
    if (!same && run->trainer->state.best_epoch > 0 && stat(beside, &there) == 0 &&
        S_ISREG(there.st_mode))
        status = copy_file(beside, path);
    free(beside);
    return status;
}

/* Steps after the checkpoint are taken again; in another folder earlier events are written again.
 */
static rg_status open_events(rg_run *run, const char *resumed, const rg_metric_rows *rows)
{
    const bool again = resumed == NULL || rows->moved;
    RG_TRY(rg_events_open(&run->events, run->folder, clock_time(),
                          again ? 0 : run->trainer->state.steps + 1));
    for (size_t i = 0; rows->moved && i < rows->count; i++)
        RG_TRY(rg_events_add(&run->events, &rows->list[i], clock_time()));
    return RG_OK;
}

/* A resumed run continues the table of the run before. */
static rg_status open_metrics(rg_run *run, const char *resumed, int64_t *removed)
{
    rg_metric_rows rows = { 0 };
    rg_status status = resumed != NULL ? continue_csv(run, resumed, &rows)
                                       : rg_csv_start(&run->csv, run->paths[RG_RUN_METRICS]);
    if (status == RG_OK)
        status = open_events(run, resumed, &rows);
    if (removed != NULL)
        *removed = (int64_t)rows.dropped;
    rg_metric_rows_release(&rows);
    return status;
}

rg_status rg_run_begin(rg_run *run, rg_trainer *trainer, const char *resumed, int64_t *removed)
{
    static const char *const names[FILES] = { "checkpoint.safetensors", "report.html",
                                              "metrics.csv", "best.safetensors" };
    RG_CHECK_NOT_NULL(run);
    RG_CHECK_NOT_NULL(trainer);
    RG_CHECK(trainer->loader != NULL, RG_INVALID_STATE,
             "rg_run_begin: the trainer was loaded for use alone");
    RG_CHECK(run->trainer == NULL, RG_INVALID_STATE, "rg_run_begin: the run has begun already");
    RG_TRY(rg_folder_make(run->folder));
    if (run->lock < 0)
        RG_TRY(rg_folder_lock(run->folder, &run->lock));
    RG_CHECK(resumed != NULL || !rg_folder_is_used(run->folder), RG_INVALID_STATE,
             "%s: contains the results of another run, which are not changed; use another folder",
             run->folder);
    rg_folder_clean(run->folder);
    for (int i = 0; i < FILES; i++)
        RG_CHECK(asprintf(&run->paths[i], "%s/%s", run->folder, names[i]) >= 0, RG_OUT_OF_MEMORY,
                 "out of memory");
    RG_TRY(rg_folder_check_file(run->paths[RG_RUN_CHECKPOINT])); /* now, not after an epoch */
    RG_TRY(rg_folder_check_file(run->paths[RG_RUN_REPORT]));
    RG_TRY(rg_folder_check_file(run->paths[RG_RUN_BEST]));
    run->trainer = trainer;
    RG_TRY(open_metrics(run, resumed, removed));
    return resumed != NULL ? continue_best(run, resumed) : RG_OK;
}

rg_status rg_run_add_epoch(rg_run *run)
{
    RG_CHECK_NOT_NULL(run);
    const rg_report_epoch *e =
        run->trainer != NULL ? rg_history_last(&run->trainer->history) : NULL;
    RG_CHECK(e != NULL && e->epoch == run->trainer->state.epoch, RG_INVALID_STATE,
             "rg_run_add_epoch: no epoch has been trained");
    rg_metric_row row = { .epoch = e->epoch, .step = rg_stepper_steps(run->trainer->stepper) };
    rg_metric_set(&row, RG_METRIC_TRAIN_LOSS, e->train_loss);
    if (run->trainer->state.network.target != RG_TARGET_VALUES)
        rg_metric_set(&row, RG_METRIC_TRAIN_ACCURACY, e->train_accuracy);
    if (e->validated) {
        rg_metric_set(&row, RG_METRIC_VALIDATION_LOSS, e->validation_loss);
        if (run->trainer->state.network.target != RG_TARGET_VALUES)
            rg_metric_set(&row, RG_METRIC_VALIDATION_ACCURACY, e->validation_accuracy);
    }
    rg_metric_set(&row, RG_METRIC_LEARNING_RATE, e->learning_rate);
    rg_metric_set(&row, RG_METRIC_IMAGES_PER_SECOND, e->images_per_second);
    rg_metric_set(&row, RG_METRIC_SECONDS, e->seconds);
    RG_TRY(rg_csv_add(&run->csv, &row));
    return rg_events_add(&run->events, &row, clock_time());
}
