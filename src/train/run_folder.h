/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The folder of a run: one run at a time, and nothing left of runs that were killed. */
#ifndef RG_TRAIN_RUN_FOLDER_H
#define RG_TRAIN_RUN_FOLDER_H

#include "core/status.h"

/* Locks an existing folder; *lock stays -1 if there is none. The lock ends with
 * rg_folder_unlock(), or with the process, however that ends. RG_INVALID_STATE if another process
 * has it. */
rg_status rg_folder_lock(const char *folder, int *lock);
void rg_folder_unlock(int *lock);

/* Creates a folder and those above it; one that exists is left as it is. */
rg_status rg_folder_make(const char *folder);

/* Whether a folder holds results of a run: a checkpoint, a report, or a table that is kept. */
bool rg_folder_is_used(const char *folder);

/* Removes temporary files of processes that are gone. The folder is locked. */
void rg_folder_clean(const char *folder);

/* Refuses what cannot be replaced by a file: folders, pipes, files without permission. */
rg_status rg_folder_check_file(const char *path);

#endif
