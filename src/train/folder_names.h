/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The names of what is in a folder. */
#ifndef RG_TRAIN_FOLDER_NAMES_H
#define RG_TRAIN_FOLDER_NAMES_H

#include "train/dataset.h"

typedef struct rg_name_list {
    char **names;
    size_t count, capacity;
} rg_name_list;
rg_status rg_name_list_add(rg_name_list *list, const char *name);
void rg_name_list_release(rg_name_list *list);

/* Whether an entry of a folder is wanted; fails if it is wanted but cannot be read. Files that are
 * not wanted are counted in *skipped. */
typedef rg_status rg_entry_check(const char *path, bool *wanted, int64_t *skipped);
rg_status rg_entry_is_folder(const char *path, bool *wanted, int64_t *skipped);
/* Links to folders are not wanted, but counted. */
rg_status rg_entry_is_own_folder(const char *path, bool *wanted, int64_t *skipped);
/* By its name; whether it can be read is found when it is. */
rg_status rg_entry_is_image(const char *path, bool *wanted, int64_t *skipped);

/* The names in a folder that are wanted, those left out that are hidden or that
 * systems put beside files (__MACOSX, @eaDir, #recycle), in the order of their bytes. */
rg_status rg_folder_list(const char *folder, rg_entry_check *check, rg_name_list *list,
                         int64_t *skipped);

bool rg_folder_exists(const char *path);

/* Whether a folder of this name holds a part: train, test, val, valid or validation, in any case,
 * also training and testing. */
bool rg_part_is_name(const char *name, const char *part);
bool rg_part_is_any_name(const char *name);

/* The folder of a part below another one: the part itself is its name, or what stands for it as
 * above; the part itself where there is none. */
typedef struct rg_part_folder {
    char name[256];
} rg_part_folder;
rg_part_folder rg_part_find(const char *folder, const char *part);
rg_status rg_part_join(char path[RG_DATASET_PATH], const char *folder, const char *part);

/* Puts a path before the sentence of a failure. */
rg_status rg_path_blame(const char *path, rg_status status);

#endif
