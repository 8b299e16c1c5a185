/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/** @file
 *  Runs: the folder in which `retrograde train` leaves its results.
 *
 *      rg_run_open("run", &run);
 *      rg_run_begin(run, trainer, NULL, NULL);
 *      while (...) {
 *          rg_trainer_train(trainer, 1, NULL, NULL);
 *          rg_trainer_validate(trainer, validation, &result);
 *          rg_run_add_epoch(run);
 *          rg_trainer_save(trainer, rg_run_path(run, RG_RUN_CHECKPOINT));
 *      }
 *      rg_trainer_report(trainer, test, NULL, rg_run_path(run, RG_RUN_REPORT), NULL);
 *      rg_run_close(run);
 *
 *  The folder holds checkpoint.safetensors, report.html, metrics.csv with a row for each epoch, and
 *  event files for TensorBoard. best.safetensors is the checkpoint of the best epoch, for runs that
 *  validate. One run at a time writes into it, and no run replaces another. Programs that use this
 *  header are linked with libretrograde_train. */
#ifndef RETROGRADE_RUN_H
#define RETROGRADE_RUN_H

#include <retrograde/trainer.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A run. Calls for one run come from one thread at a time. */
typedef struct rg_run rg_run;

/** Whether a folder holds results of a run: a checkpoint, a report, or a table with rows. false for
 *  NULL and for a folder that does not exist. */
RG_API bool rg_run_exists(const char *folder);

/** Locks the folder if it exists already; call it before a checkpoint in it is read. The lock
 *  ends with the run, or with the process. RG_INVALID_STATE if another process has it. On failure
 *  *run is NULL. */
RG_API rg_status rg_run_open(const char *folder, rg_run **run);

/** Ends the run and releases its lock. NULL is allowed. */
RG_API void rg_run_close(rg_run *run);

/** Creates the folder and those above it, unless they exist, removes temporary files of processes
 *  that were killed, and begins metrics.csv and the events. RG_IO if one of the files could not be
 *  written; RG_INVALID_STATE for a new run in a folder that holds another (rg_run_exists).
 *
 *  `resumed` is the checkpoint that `trainer` continues from, or NULL. The table then continues the
 *  one beside that checkpoint; rows of later epochs are removed, and *removed, unless NULL,
 *  receives their number. The best checkpoint is copied, and the report of the trainer also
 *  shows the epochs of earlier runs.
 *  The trainer must outlive the run. */
RG_API rg_status rg_run_begin(rg_run *run, rg_trainer *trainer, const char *resumed,
                              int64_t *removed);

/** Adds a row for the epoch that was completed last. */
RG_API rg_status rg_run_add_epoch(rg_run *run);

typedef enum rg_run_file {
    RG_RUN_CHECKPOINT,
    RG_RUN_REPORT,
    RG_RUN_METRICS,
    RG_RUN_BEST
} rg_run_file;

/** The path of a file in the folder, which lives as long as the run; "" before rg_run_begin(). */
RG_API const char *rg_run_path(const rg_run *run, rg_run_file file);

#ifdef __cplusplus
}
#endif

#endif
