/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* A folder with one folder of PNG files per class, perhaps below train/ and test/ or val/. */
#include "train/dataset.h"
#include "train/data_source.h"
#include "train/png_image.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
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

/* Whether an entry of a folder is wanted; fails if it is wanted but cannot be read. */
typedef rg_status look(const char *path, bool *wanted);

static rg_status look_for_folder(const char *path, bool *wanted)
{
    struct stat info;
    RG_CHECK(stat(path, &info) == 0, RG_IO, "cannot be opened: %s", strerror(errno));
    *wanted = S_ISDIR(info.st_mode);
    return RG_OK;
}

static const char *kind_of(mode_t mode)
{
    return S_ISFIFO(mode) ? "a pipe" : S_ISSOCK(mode) ? "a socket" : "a device";
}

static rg_status look_for_png(const char *path, bool *wanted)
{
    struct stat info;
    const size_t length = strlen(path);
    *wanted = length > 4 && strcasecmp(path + length - 4, ".png") == 0;
    if (!*wanted)
        return RG_OK;
    RG_CHECK(stat(path, &info) == 0, RG_IO, "cannot be opened: %s", strerror(errno));
    *wanted = !S_ISDIR(info.st_mode);
    RG_CHECK(S_ISREG(info.st_mode) || !*wanted, RG_IO, "this is %s, not an image",
             kind_of(info.st_mode));
    return RG_OK;
}

/* The names in a folder that are wanted, hidden ones left out, in the order of their bytes. */
static rg_status list_names(const char *folder, look *looks, name_list *list)
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
            status = blame(path, looks(path, &wanted));
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
    RG_TRY(list_names(folder, look_for_folder, classes));
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

typedef struct png_folder {
    char path[RG_DATASET_PATH]; /* where the folders of the classes are */
    name_list classes;          /* those of the training part, where there are parts */
    name_list present;          /* those below `path` */
    name_list files;            /* "class/file.png" */
    int32_t *labels;            /* (capacity) of each file */
    size_t capacity;
} png_folder;

static void release_folder(png_folder *f)
{
    release_names(&f->classes);
    release_names(&f->present);
    release_names(&f->files);
    rg_release(memory, f->labels, f->capacity * sizeof *f->labels);
}

/* A folder has parts if train/ holds folders; a class named train holds files. */
static rg_status find_parts(const char *folder, char train[RG_DATASET_PATH], bool *parts)
{
    name_list inside = { 0 };
    RG_TRY(rg_path_join(train, folder, "train"));
    *parts = false;
    if (!is_folder(train))
        return RG_OK;
    const rg_status status = list_names(train, look_for_folder, &inside);
    *parts = inside.count > 0;
    release_names(&inside);
    return status;
}

static rg_status find_path(png_folder *f, const char *folder, rg_dataset_part part)
{
    static const char *const names[2][2] = { { "train", "train" }, { "test", "val" } };
    bool parts;
    char train[RG_DATASET_PATH];
    RG_TRY(find_parts(folder, train, &parts));
    RG_TRY(list_classes(parts ? train : folder, &f->classes));
    if (f->classes.count == 0)
        return blame(
            folder,
            rg_fail(RG_MALFORMED,
                    "contains no data set: no IDX files, no x.npy and no folder for each class"));
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

static rg_status add_class(png_folder *f, const char *class_name, int32_t label)
{
    name_list inside = { 0 };
    char folder[RG_DATASET_PATH], file[RG_DATASET_PATH];
    RG_TRY(rg_path_join(folder, f->path, class_name));
    rg_status status = list_names(folder, look_for_png, &inside);
    for (size_t i = 0; i < inside.count && status == RG_OK; i++) {
        status = rg_path_join(file, class_name, inside.names[i]);
        if (status == RG_OK)
            status = rg_grow(memory, (void **)&f->labels, &f->capacity, f->files.count,
                             sizeof *f->labels);
        if (status == RG_OK) {
            f->labels[f->files.count] = label;
            status = add_name(&f->files, file);
        }
    }
    release_names(&inside);
    return status;
}

/* Every class folder that is here must be one of the classes. */
static rg_status list_files(png_folder *f)
{
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
        RG_TRY(add_class(f, name, (int32_t)label));
    }
    if (f->files.count == 0)
        return blame(f->path, rg_fail(RG_MALFORMED, "the class folders contain no PNG files"));
    return RG_OK;
}

/* ---- the images ---- */

static rg_status fill_image(const rg_png *png, rg_dataset *set, int64_t i)
{
    rg_dataset_info *info = &set->info;
    if (i == 0) {
        info->height = png->height;
        info->width = png->width;
        info->channels = png->channels;
        info->dtype = RG_U8;
        RG_TRY(rg_dataset_allocate(set, UINT64_MAX)); /* one image of it is known to fit its file */
    }
    RG_CHECK(png->height == info->height && png->width == info->width, RG_MALFORMED,
             "the image has %lld x %lld pixels, but the first image has %lld x %lld",
             (long long)png->height, (long long)png->width, (long long)info->height,
             (long long)info->width);
    return rg_png_pixels(png, (int)info->channels,
                         (unsigned char *)set->pixels + (size_t)i * set->image_bytes);
}

static rg_status read_bytes(const char *path, void **bytes, size_t *size)
{
    enum { LARGEST = 1 << 28 };
    uint64_t all;
    int file;
    *bytes = NULL;
    *size = 0;
    RG_TRY(rg_regular_open(path, &file, &all));
    rg_status status = RG_OK;
    if (all > LARGEST)
        status = rg_fail(RG_UNSUPPORTED, "has %llu bytes; PNG files of at most %d are read",
                         (unsigned long long)all, LARGEST);
    if (status == RG_OK)
        status = rg_allocate(memory, (size_t)all, bytes);
    *size = (size_t)all;
    if (status == RG_OK)
        status = rg_regular_read(file, 0, *bytes, *size);
    rg_regular_close(file);
    return status;
}

static rg_status read_image(const char *path, rg_dataset *set, int64_t i)
{
    void *bytes;
    size_t size;
    rg_png png = { 0 };
    rg_status status = read_bytes(path, &bytes, &size);
    if (status == RG_OK)
        status = rg_png_begin(&png, bytes, size);
    if (status == RG_OK)
        status = fill_image(&png, set, i);
    rg_png_end(&png);
    rg_release(memory, bytes, size);
    return blame(path, status);
}

static rg_status read_files(const png_folder *f, rg_dataset *set)
{
    void *labels;
    set->info.count = (int64_t)f->files.count;
    RG_TRY(rg_allocate(memory, f->files.count * sizeof(int32_t), &labels));
    set->labels = labels;
    memcpy(labels, f->labels, f->files.count * sizeof(int32_t));
    for (size_t i = 0; i < f->files.count; i++) {
        char path[RG_DATASET_PATH];
        RG_TRY(rg_path_join(path, f->path, f->files.names[i]));
        RG_TRY(read_image(path, set, (int64_t)i));
    }
    return rg_dataset_name(set, (int32_t)f->classes.count, (const char *const *)f->classes.names);
}

rg_status rg_png_read_folder(const char *folder, rg_dataset_part part, rg_dataset *set)
{
    png_folder f = { 0 };
    rg_status status = find_path(&f, folder, part);
    if (status == RG_OK)
        status = list_files(&f);
    if (status == RG_OK)
        status = read_files(&f, set);
    release_folder(&f);
    return status;
}
