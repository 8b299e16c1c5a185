/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The numbers of a run as it goes: its table, its events, and what earlier runs have left in them.
 */
#include "cli/train_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* Seconds since 1970. */
static double clock_time(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Epochs of earlier runs, for the report. */
static void take_epochs(rg_train_run *run, const rg_metric_rows *rows)
{
    for (size_t i = 0; i < rows->count; i++) {
        const rg_metric_row *row = &rows->list[i];
        const double *v = row->value;
        while (run->epoch_count > 0 && run->epochs[run->epoch_count - 1].epoch >= row->epoch)
            run->epoch_count--; /* a later row says more */
        run->epochs[run->epoch_count++] =
            (rg_report_epoch){ .epoch = row->epoch,
                               .train_loss = v[RG_METRIC_TRAIN_LOSS],
                               .train_accuracy = v[RG_METRIC_TRAIN_ACCURACY],
                               .validated = row->given >> RG_METRIC_VALIDATION_LOSS & 1,
                               .validation_loss = v[RG_METRIC_VALIDATION_LOSS],
                               .validation_accuracy = v[RG_METRIC_VALIDATION_ACCURACY],
                               .seconds = v[RG_METRIC_SECONDS],
                               .images_per_second = v[RG_METRIC_IMAGES_PER_SECOND],
                               .learning_rate = v[RG_METRIC_LEARNING_RATE] };
    }
}

/* The table of a run that goes on: the one beside its checkpoint, if there is one. */
static rg_status continue_csv(rg_train_run *run, const char *path, rg_metric_rows *rows)
{
    const char *resume = run->request->resume, *slash = strrchr(resume, '/');
    char *beside;
    RG_CHECK(asprintf(&beside, "%.*smetrics.csv", slash != NULL ? (int)(slash - resume) + 1 : 0,
                      resume) >= 0,
             RG_OUT_OF_MEMORY, "out of memory");
    const rg_status status =
        rg_csv_continue(&run->csv, path, beside, run->trainer->state.epoch, rows);
    free(beside);
    RG_TRY(status);
    take_epochs(run, rows);
    if (rows->dropped > 0)
        rg_show_say(&run->show,
                    "%s: rows after epoch %lld are removed; training continues from that epoch",
                    path, (long long)run->trainer->state.epoch);
    return RG_OK;
}

/* Steps behind the checkpoint are taken again; in another folder earlier ones are told again. */
static rg_status open_events(rg_train_run *run, const rg_metric_rows *rows)
{
    const bool again = run->request->resume == NULL || rows->moved;
    RG_TRY(rg_events_open(&run->events, run->request->out, clock_time(),
                          again ? 0 : run->trainer->state.steps + 1));
    for (size_t i = 0; rows->moved && i < rows->count; i++)
        RG_TRY(rg_events_add(&run->events, &rows->list[i], clock_time()));
    return RG_OK;
}

/* Numbers of an epoch for spreadsheets and for TensorBoard. A run that starts anew replaces the
 * table of the run before; one that goes on continues it. */
rg_status rg_train_open_metrics(rg_train_run *run)
{
    const bool resumed = run->request->resume != NULL;
    rg_metric_rows rows = { 0 };
    char *path;
    RG_TRY(rg_train_path(run->request->out, "metrics.csv", &path));
    rg_status status = resumed ? continue_csv(run, path, &rows) : rg_csv_start(&run->csv, path);
    if (status == RG_OK)
        status = open_events(run, &rows);
    rg_metric_rows_release(&rows);
    free(path);
    return status;
}

rg_status rg_train_add_metrics(rg_train_run *run, const rg_report_epoch *e)
{
    rg_metric_row row = { .epoch = e->epoch, .step = rg_stepper_steps(run->trainer->stepper) };
    rg_metric_set(&row, RG_METRIC_TRAIN_LOSS, e->train_loss);
    rg_metric_set(&row, RG_METRIC_TRAIN_ACCURACY, e->train_accuracy);
    rg_metric_set(&row, RG_METRIC_VALIDATION_LOSS, e->validation_loss);
    rg_metric_set(&row, RG_METRIC_VALIDATION_ACCURACY, e->validation_accuracy);
    rg_metric_set(&row, RG_METRIC_LEARNING_RATE, e->learning_rate);
    rg_metric_set(&row, RG_METRIC_IMAGES_PER_SECOND, e->images_per_second);
    rg_metric_set(&row, RG_METRIC_SECONDS, e->seconds);
    RG_TRY(rg_csv_add(&run->csv, &row));
    return rg_events_add(&run->events, &row, clock_time());
}
