/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* A folder with one folder of images per class, perhaps below train/ and test/ or val/. */
#include "train/image_items.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const rg_allocator *const memory = &rg_default_allocator;

/* Puts a path before the sentence of a failure. */
static rg_status blame(const char *path, rg_status status)
{
    if (status != RG_OK)
        rg_path_prefix(path);
    return status;
}

/* ---- lists of names ---- */

typedef struct name_list {
    char **names;
    size_t count, capacity;
} name_list;

static void release_names(name_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        rg_release(memory, list->names[i], strlen(list->names[i]) + 1);
    rg_release(memory, list->names, list->capacity * sizeof *list->names);
    *list = (name_list){ 0 };
}

static rg_status add_name(name_list *list, const char *name)
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

static bool is_folder(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

/* Whether an entry of a folder is wanted; fails if it is wanted but cannot be read. Files that are
 * not wanted are counted in *skipped. */
typedef rg_status look(const char *path, bool *wanted, int64_t *skipped);

static rg_status look_for_folder(const char *path, bool *wanted, int64_t *skipped)
{
    (void)skipped;
    struct stat info;
    RG_CHECK(stat(path, &info) == 0, RG_IO, "cannot be opened: %s", strerror(errno));
    *wanted = S_ISDIR(info.st_mode);
    return RG_OK;
}

static const char *kind_of(mode_t mode)
{
    return S_ISFIFO(mode) ? "a pipe" : S_ISSOCK(mode) ? "a socket" : "a device";
}

static rg_status look_for_image(const char *path, bool *wanted, int64_t *skipped)
{
    struct stat info;
    *wanted = rg_image_is_name(path);
    *skipped += !*wanted;
    if (!*wanted)
        return RG_OK;
    RG_CHECK(stat(path, &info) == 0, RG_IO, "cannot be opened: %s", strerror(errno));
    *wanted = !S_ISDIR(info.st_mode);
    *skipped += !*wanted;
    RG_CHECK(S_ISREG(info.st_mode) || !*wanted, RG_IO, "this is %s, not an image",
             kind_of(info.st_mode));
    return RG_OK;
}

/* The names in a folder that are wanted, hidden ones left out, in the order of their bytes. */
static rg_status list_names(const char *folder, look *looks, name_list *list, int64_t *skipped)
{
    DIR *open = opendir(folder);
    rg_status status = RG_OK;
    if (open == NULL)
        status = blame(folder, rg_fail(RG_IO, "cannot be opened: %s", strerror(errno)));
    while (status == RG_OK) {
        char path[RG_DATASET_PATH];
        errno = 0;
        const struct dirent *entry = readdir(open);
        if (entry == NULL && errno != 0)
            status = blame(folder, rg_fail(RG_IO, "cannot be read: %s", strerror(errno)));
        if (entry == NULL)
            break;
        if (entry->d_name[0] == '.')
            continue;
        bool wanted = false;
        status = blame(folder, rg_path_join(path, folder, entry->d_name));
        if (status == RG_OK)
            status = blame(path, looks(path, &wanted, skipped));
        if (status == RG_OK && wanted)
            status = blame(folder, add_name(list, entry->d_name));
    }
    if (open != NULL)
        closedir(open);
    if (list->count > 1)
        qsort(list->names, list->count, sizeof *list->names, by_bytes);
    return status;
}

static rg_status list_classes(const char *folder, name_list *classes)
{
    int64_t skipped = 0;
    RG_TRY(list_names(folder, look_for_folder, classes, &skipped));
    for (size_t i = 0; i < classes->count; i++) {
        if (!rg_path_is_text(classes->names[i])) {
            char path[RG_DATASET_PATH];
            RG_TRY(rg_path_join(path, folder, classes->names[i]));
            return blame(path, rg_fail(RG_MALFORMED, "the class name is not valid UTF-8"));
        }
    }
    if (classes->count > RG_DATASET_CLASSES)
        return blame(folder,
                     rg_fail(RG_UNSUPPORTED, "there are %zu classes; at most %d are supported",
                             classes->count, RG_DATASET_CLASSES));
    return RG_OK;
}

/* ---- the parts ---- */

typedef struct image_folder {
    char path[RG_DATASET_PATH]; /* where the folders of the classes are */
    name_list classes;          /* those of the training part, where there are parts */
    name_list present;          /* those below `path` */
    rg_items *items;
    int64_t skipped; /* files that are no images */
} image_folder;

static void release_folder(image_folder *f)
{
    release_names(&f->classes);
    release_names(&f->present);
    rg_items_destroy(f->items);
}

/* A folder has parts if train/ holds folders; a class named train holds files. */
static rg_status find_parts(const char *folder, char train[RG_DATASET_PATH], bool *parts)
{
    name_list inside = { 0 };
    RG_TRY(rg_path_join(train, folder, "train"));
    *parts = false;
    if (!is_folder(train))
        return RG_OK;
    int64_t skipped = 0;
    const rg_status status = list_names(train, look_for_folder, &inside, &skipped);
    *parts = inside.count > 0;
    release_names(&inside);
    return status;
}

static rg_status find_path(image_folder *f, const char *folder, rg_dataset_part part)
{
    static const char *const names[2][2] = { { "train", "train" }, { "test", "val" } };
    bool parts;
    char train[RG_DATASET_PATH];
    RG_TRY(find_parts(folder, train, &parts));
    RG_TRY(list_classes(parts ? train : folder, &f->classes));
    if (f->classes.count == 0)
        return blame(
            folder,
            rg_fail(
                RG_MALFORMED,
                "contains no data set: no IDX files, no x.npy, no tar files and no folder for each "
                "class"));
    for (int i = 0; i < 2 && parts; i++) {
        RG_TRY(rg_path_join(f->path, folder, names[part][i]));
        if (is_folder(f->path))
            return RG_OK;
    }
    if (parts || part == RG_DATASET_TEST)
        return blame(folder, rg_dataset_no_part(part));
    strcpy(f->path, folder); /* shorter than train/ in it */
    return RG_OK;
}

static rg_status add_class(image_folder *f, const char *class_name, int32_t label,
                           const rg_dataset_options *options)
{
    name_list inside = { 0 };
    char folder[RG_DATASET_PATH], file[RG_DATASET_PATH];
    RG_TRY(rg_path_join(folder, f->path, class_name));
    rg_status status = list_names(folder, look_for_image, &inside, &f->skipped);
    for (size_t i = 0; i < inside.count && status == RG_OK; i++) {
        status = rg_path_join(file, class_name, inside.names[i]);
        if (status == RG_OK)
            status = rg_items_add_file(f->items, file);
        if (status == RG_OK)
            status =
                rg_items_add(f->items, (rg_item){ (int32_t)f->items->file_count - 1, label, 0, 0 });
    }
    if (status == RG_OK && inside.count == 0)
        rg_dataset_say(options, "%s: the class %s has no images", f->path, class_name);
    release_names(&inside);
    return status;
}

/* What is probably not meant. */
static void warn(const image_folder *f, const rg_dataset_options *options)
{
    if (f->skipped > 0)
        rg_dataset_say(options,
                       "%s: %lld files are skipped, because they are not PNG or JPEG images",
                       f->path, (long long)f->skipped);
    if (f->classes.count == 1)
        rg_dataset_say(options, "%s: there is only one class, %s; a network learns nothing from it",
                       f->path, f->classes.names[0]);
}

/* Every class folder that is here must be one of the classes. */
static rg_status list_files(image_folder *f, const rg_dataset_options *options)
{
    RG_TRY(rg_items_create(f->path, &f->items));
    RG_TRY(list_classes(f->path, &f->present));
    size_t label = 0;
    for (size_t i = 0; i < f->present.count; i++) {
        const char *name = f->present.names[i];
        while (label < f->classes.count && strcmp(f->classes.names[label], name) < 0)
            label++;
        const bool known = label < f->classes.count && strcmp(f->classes.names[label], name) == 0;
        if (!known)
            return blame(f->path,
                         rg_fail(RG_MALFORMED, "the class %s does not exist in train/", name));
        RG_TRY(add_class(f, name, (int32_t)label, options));
    }
    if (f->items->count == 0)
        return blame(f->path,
                     rg_fail(RG_MALFORMED, "the class folders contain no PNG or JPEG images"));
    warn(f, options);
    return RG_OK;
}

rg_status rg_image_folder_read(const char *folder, rg_dataset_part part,
                               const rg_dataset_options *options, rg_dataset *set)
{
    image_folder f = { .path = "" };
    rg_status status = find_path(&f, folder, part);
    if (status == RG_OK)
        status = list_files(&f, options);
    if (status == RG_OK) {
        rg_items *items = f.items;
        f.items = NULL; /* the set owns it, or it is gone */
        status = rg_items_use(items, options, set);
    }
    if (status == RG_OK)
        status =
            rg_dataset_name(set, (int32_t)f.classes.count, (const char *const *)f.classes.names);
    release_folder(&f);
    return status;
}
