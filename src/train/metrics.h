/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Metrics of a run while it trains: a CSV file, and an event file for TensorBoard. */
#ifndef RG_TRAIN_METRICS_H
#define RG_TRAIN_METRICS_H

#include "core/status.h"

typedef enum rg_metric {
    RG_METRIC_TRAIN_LOSS,
    RG_METRIC_TRAIN_ACCURACY,
    RG_METRIC_VALIDATION_LOSS,
    RG_METRIC_VALIDATION_ACCURACY,
    RG_METRIC_LEARNING_RATE,
    RG_METRIC_IMAGES_PER_SECOND,
    RG_METRIC_SECONDS,
    RG_METRICS
} rg_metric;

/* What is known after an epoch, or after some steps. */
typedef struct rg_metric_row {
    int64_t epoch, step; /* both from the beginning of training */
    uint32_t given;      /* bit i: value[i] is known, and may yet be NaN */
    double value[RG_METRICS];
} rg_metric_row;

/* Sets a value and its bit. */
RG_INLINE void rg_metric_set(rg_metric_row *row, rg_metric metric, double value)
{
    row->given |= UINT32_C(1) << metric;
    row->value[metric] = value;
}

/* A file that grows; every row is written at once, so that a run that ends early leaves whole rows.
 */
typedef struct rg_metric_file {
    int file; /* -1: closed */
} rg_metric_file;

/* "epoch,step,train_loss,…", RFC 4180. A file that is there already is continued if its first line
 * is the same, otherwise refused; half a row at its end, left by a crash, is removed. */
rg_status rg_csv_open(rg_metric_file *csv, const char *path);
/* The same for a new run: rows of the run before are removed. */
rg_status rg_csv_start(rg_metric_file *csv, const char *path);
/* Whether a file has rows that a new run must not replace: two, or one below another first line.
 * One row alone is what a run leaves that is killed before its first checkpoint. */
bool rg_csv_is_used(const char *path);
rg_status rg_csv_add(rg_metric_file *csv, const rg_metric_row *row);

/* Rows of a table. */
typedef struct rg_metric_rows {
    rg_metric_row *list;
    size_t count, capacity;
    size_t dropped; /* rows of later epochs that were there */
    bool moved;     /* they come from a table in another place */
} rg_metric_rows;
void rg_metric_rows_release(rg_metric_rows *rows);

/* Opens the table at `path` for a run that continues after epoch `last`. It
 * starts with the rows of the table at `from`, or, if that is missing or empty, with its own rows.
 * Rows of later epochs, left by a run that was killed or continued before, are removed. If `path`
 * has rows that do not begin with those of `from`, they belong to another run: that is refused. The
 * table is replaced whole or not at all, and lines that are no rows are kept. `rows` receives the
 * rows that are left. */
rg_status rg_csv_continue(rg_metric_file *csv, const char *path, const char *from, int64_t last,
                          rg_metric_rows *rows);

/* Creates events.out.tfevents.<time>.<host>.<process>.<n> in a folder that exists. `time` is in
 * seconds since 1970. Events of `step` and later steps in earlier files of the folder become
 * void: a run that continues from an older checkpoint takes these steps again. */
rg_status rg_events_open(rg_metric_file *events, const char *folder, double time, int64_t step);

/* Adds one event with a scalar for every value that is given: loss/train, accuracy/validation, … */
rg_status rg_events_add(rg_metric_file *events, const rg_metric_row *row, double time);

/* Closes either, open or not. RG_IO where the last bytes could not be written. */
rg_status rg_metric_file_close(rg_metric_file *file);

/* ---- for both files ---- */

/* Writes all, or fails with a sentence. */
rg_status rg_metric_file_write(rg_metric_file *file, const void *data, size_t size);

/* CRC-32C (Castagnoli). */
uint32_t rg_crc32c(const void *data, size_t size);

#endif
