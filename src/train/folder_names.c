/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Folders: lists of the names in them. */
#include "train/folder_names.h"
#include "train/image_file.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

static const rg_allocator *const memory = &rg_default_allocator;

rg_status rg_path_blame(const char *path, rg_status status)
{
    if (status != RG_OK)
        rg_path_prefix(path);
    return status;
}

void rg_name_list_release(rg_name_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        rg_release(memory, list->names[i], strlen(list->names[i]) + 1);
    rg_release(memory, list->names, list->capacity * sizeof *list->names);
    *list = (rg_name_list){ 0 };
}

rg_status rg_name_list_add(rg_name_list *list, const char *name)
{
    void *copy;
    RG_TRY(
        rg_grow(memory, (void **)&list->names, &list->capacity, list->count, sizeof *list->names));
    RG_TRY(rg_allocate(memory, strlen(name) + 1, &copy));
    list->names[list->count++] = strcpy(copy, name);
    return RG_OK;
}

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

bool rg_folder_exists(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

rg_status rg_entry_is_folder(const char *path, bool *wanted, int64_t *skipped)
{
    (void)skipped;
    struct stat info;
    *wanted = false;
    if (stat(path, &info) != 0)
        return rg_image_is_name(path) ? RG_OK
                                      : rg_fail(RG_IO, "cannot be opened: %s", strerror(errno));
    *wanted = S_ISDIR(info.st_mode);
    return RG_OK;
}

rg_status rg_entry_is_own_folder(const char *path, bool *wanted, int64_t *skipped)
{
    struct stat info;
    *wanted = lstat(path, &info) == 0 && S_ISDIR(info.st_mode);
    *skipped += !*wanted && rg_folder_exists(path);
    return RG_OK;
}

rg_status rg_entry_is_image(const char *path, bool *wanted, int64_t *skipped)
{
    *wanted = rg_image_is_name(path) && !rg_folder_exists(path);
    *skipped += !*wanted && !rg_folder_exists(path);
    return RG_OK;
}

static bool is_left_out(const char *name)
{
    return name[0] == '.' || strcmp(name, "__MACOSX") == 0 || strcmp(name, "@eaDir") == 0 ||
           strcmp(name, "#recycle") == 0;
}

rg_status rg_folder_list(const char *folder, rg_entry_check *check, rg_name_list *list,
                         int64_t *skipped)
{
    DIR *open = opendir(folder);
    rg_status status = RG_OK;
    if (open == NULL)
        status = rg_path_blame(folder, rg_fail(RG_IO, "cannot be opened: %s", strerror(errno)));
    while (status == RG_OK) {
        char path[RG_DATASET_PATH];
        errno = 0;
        const struct dirent *entry = readdir(open);
        if (entry == NULL && errno != 0)
            status = rg_path_blame(folder, rg_fail(RG_IO, "cannot be read: %s", strerror(errno)));
        if (entry == NULL)
            break;
        if (is_left_out(entry->d_name))
            continue;
        bool wanted = false;
        status = rg_path_blame(folder, rg_path_join(path, folder, entry->d_name));
        if (status == RG_OK)
            status = rg_path_blame(path, check(path, &wanted, skipped));
        if (status == RG_OK && wanted)
            status = rg_path_blame(folder, rg_name_list_add(list, entry->d_name));
    }
    if (open != NULL)
        closedir(open);
    if (list->count > 1)
        qsort(list->names, list->count, sizeof *list->names, by_bytes);
    return status;
}

/* ---- parts ---- */

bool rg_part_is_name(const char *name, const char *part)
{
    const size_t length = strlen(part);
    const bool has_form = strcmp(part, "train") == 0 || strcmp(part, "test") == 0;
    return strncasecmp(name, part, length) == 0 &&
           (name[length] == 0 || (has_form && strcasecmp(name + length, "ing") == 0));
}

bool rg_part_is_any_name(const char *name)
{
    static const char *const parts[] = { "train", "test", "val", "valid", "validation" };
    bool found = false;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        found = found || rg_part_is_name(name, parts[i]);
    return found;
}

rg_part_folder rg_part_find(const char *folder, const char *part)
{
    rg_part_folder found;
    char path[RG_DATASET_PATH];
    snprintf(found.name, sizeof found.name, "%s", part);
    if (rg_path_join(path, folder, part) != RG_OK || rg_folder_exists(path))
        return found;
    DIR *open = opendir(folder);
    bool any = false;
    for (const struct dirent *e; open != NULL && (e = readdir(open)) != NULL;) {
        if (!rg_part_is_name(e->d_name, part) || (any && strcmp(e->d_name, found.name) > 0) ||
            rg_path_join(path, folder, e->d_name) != RG_OK || !rg_folder_exists(path))
            continue;
        snprintf(found.name, sizeof found.name, "%s", e->d_name);
        any = true;
    }
    if (open != NULL)
        closedir(open);
    return found;
}

rg_status rg_part_join(char path[RG_DATASET_PATH], const char *folder, const char *part)
{
    const rg_part_folder found = rg_part_find(folder, part);
    return rg_path_join(path, folder, found.name);
}
