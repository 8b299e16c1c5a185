/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* A folder with one folder of images per class, perhaps below train/ and test/ or val/. */
#include "train/folder_names.h"
#include "train/image_items.h"

#include <string.h>
#include <strings.h>

static rg_status list_classes(const char *folder, rg_name_list *classes)
{
    int64_t skipped = 0;
    RG_TRY(rg_folder_list(folder, rg_entry_is_folder, classes, &skipped));
    for (size_t i = 0; i < classes->count; i++) {
        if (!rg_path_is_text(classes->names[i])) {
            char path[RG_DATASET_PATH];
            RG_TRY(rg_path_join(path, folder, classes->names[i]));
            return rg_path_blame(
                path, rg_fail(RG_MALFORMED,
                              "the class name has a control character, or is not valid UTF-8"));
        }
    }
    if (classes->count > RG_DATASET_CLASSES)
        return rg_path_blame(folder, rg_fail(RG_UNSUPPORTED,
                                             "there are %zu classes; at most %d are supported",
                                             classes->count, RG_DATASET_CLASSES));
    return RG_OK;
}

/* ---- the parts ---- */

typedef struct image_folder {
    char path[RG_DATASET_PATH]; /* where the folders of the classes are */
    rg_name_list classes;       /* those of the training part, where there are parts */
    rg_name_list present;       /* those below `path` */
    rg_items *items;
    int64_t skipped; /* files that are no images */
    int64_t loose;   /* images beside the folders of the classes */
    int64_t linked;  /* links to folders, below those of the classes */
} image_folder;

static void release_folder(image_folder *f)
{
    rg_name_list_release(&f->classes);
    rg_name_list_release(&f->present);
    rg_items_destroy(f->items);
}

/* Train may be a class of vehicles, with folders in it: as a part it has others beside it. */
static bool is_part(const char *folder, const rg_part_folder *train)
{
    static const char *const others[] = { "test", "val", "valid", "validation" };
    char path[RG_DATASET_PATH];
    bool found = strcmp(train->name, "train") == 0;
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        found = found || (rg_part_join(path, folder, others[i]) == RG_OK && rg_folder_exists(path));
    return found;
}

/* A folder has parts if train/ holds folders; a class named train holds files. */
static rg_status find_parts(const char *folder, char train[RG_DATASET_PATH], bool *parts)
{
    rg_name_list inside = { 0 };
    const rg_part_folder name = rg_part_find(folder, "train");
    RG_TRY(rg_path_join(train, folder, name.name));
    *parts = false;
    if (!rg_folder_exists(train) || !is_part(folder, &name))
        return RG_OK;
    int64_t skipped = 0;
    const rg_status status = rg_folder_list(train, rg_entry_is_folder, &inside, &skipped);
    *parts = inside.count > 0;
    rg_name_list_release(&inside);
    return status;
}

static bool holds_images(const char *folder)
{
    rg_name_list images = { 0 };
    int64_t skipped = 0;
    const rg_status status = rg_folder_list(folder, rg_entry_is_image, &images, &skipped);
    const bool found = status == RG_OK && images.count > 0;
    rg_name_list_release(&images);
    return found;
}

bool rg_image_folder_is_here(const char *folder)
{
    char path[RG_DATASET_PATH];
    rg_name_list inside = { 0 };
    int64_t skipped = 0;
    bool found = false;
    if (find_parts(folder, path, &found) == RG_OK && !found &&
        rg_folder_list(folder, rg_entry_is_folder, &inside, &skipped) == RG_OK) {
        for (size_t i = 0; i < inside.count && !found; i++)
            found = rg_path_join(path, folder, inside.names[i]) == RG_OK && holds_images(path);
    }
    rg_name_list_release(&inside);
    return found;
}

/* Where a part is looked for. */
typedef struct part_search {
    const char *folder;
    const rg_dataset_options *options; /* NULL: nothing is said */
} part_search;

/* Images of a part lie in folders of their classes; test images of a competition have no classes.
 */
static bool has_classes(void *context, const char *name)
{
    const part_search *s = context;
    char path[RG_DATASET_PATH];
    rg_name_list inside = { 0 };
    int64_t skipped = 0;
    if (rg_part_join(path, s->folder, name) != RG_OK || !rg_folder_exists(path))
        return false;
    const bool found = rg_folder_list(path, rg_entry_is_folder, &inside, &skipped) != RG_OK ||
                       inside.count > 0; /* what cannot be read is not ignored */
    rg_name_list_release(&inside);
    if (!found && s->options != NULL)
        rg_dataset_say(s->options, "%s: ignored, because it has no folder for each class", path);
    return found;
}

/* Folders beside the parts that hold folders, as parts do. */
static rg_status tell_others(const char *folder, const rg_dataset_options *options)
{
    rg_name_list beside = { 0 };
    int64_t skipped = 0;
    const rg_status status = rg_folder_list(folder, rg_entry_is_folder, &beside, &skipped);
    for (size_t i = 0; i < beside.count && status == RG_OK; i++) {
        part_search quiet = { folder, NULL };
        if (!rg_part_is_any_name(beside.names[i]) && has_classes(&quiet, beside.names[i]))
            rg_dataset_say(options, "%s: the folder %s beside train/ is not used", folder,
                           beside.names[i]);
    }
    rg_name_list_release(&beside);
    return status;
}

static rg_status find_path(image_folder *f, const char *folder, rg_dataset_part part,
                           const rg_dataset_options *options)
{
    bool parts;
    char train[RG_DATASET_PATH];
    RG_TRY(find_parts(folder, train, &parts));
    RG_TRY(list_classes(parts ? train : folder, &f->classes));
    if (f->classes.count == 0)
        return rg_path_blame(
            folder,
            rg_fail(
                RG_MALFORMED,
                "contains no data set: no IDX files, no x.npy, no tar files, no images/ beside masks/ "
                "and no folder for each class"));
    part_search search = { folder, part == RG_DATASET_TEST ? options : NULL };
    const char *name = parts ? rg_dataset_find_part(part, has_classes, &search) : NULL;
    if (parts && part == RG_DATASET_TRAIN)
        RG_TRY(tell_others(folder, options));
    if (name != NULL)
        return rg_part_join(f->path, folder, name);
    if (parts || part != RG_DATASET_TRAIN)
        return rg_path_blame(folder, rg_dataset_no_part(part));
    strcpy(f->path, folder); /* shorter than train/ in it */
    return RG_OK;
}

/* Adds the images of one folder. */
static rg_status add_images(image_folder *f, const char *below, int32_t label)
{
    rg_name_list inside = { 0 };
    char folder[RG_DATASET_PATH], file[RG_DATASET_PATH];
    RG_TRY(rg_path_join(folder, f->path, below));
    rg_status status = rg_folder_list(folder, rg_entry_is_image, &inside, &f->skipped);
    for (size_t i = 0; i < inside.count && status == RG_OK; i++) {
        status = rg_path_join(file, below, inside.names[i]);
        if (status == RG_OK)
            status = rg_items_add_file(f->items, file);
        if (status == RG_OK)
            status =
                rg_items_add(f->items, (rg_item){ (int32_t)f->items->file_count - 1, label, 0, 0 });
    }
    rg_name_list_release(&inside);
    return status;
}

/* Adds the images of a folder and of those below it, which are not links. */
static rg_status add_tree(image_folder *f, const char *below, int32_t label, int depth)
{
    enum { DEEPEST = 16 };
    rg_name_list folders = { 0 };
    char *path = NULL; /* not on the stack of each level */
    RG_TRY(add_images(f, below, label));
    RG_TRY(rg_allocate_array(RG_DATASET_PATH, 1, &path));
    rg_status status = rg_path_join(path, f->path, below);
    if (status == RG_OK)
        status = rg_folder_list(path, rg_entry_is_own_folder, &folders, &f->linked);
    if (status == RG_OK && folders.count > 0 && depth == DEEPEST)
        status = rg_path_blame(
            path,
            rg_fail(RG_UNSUPPORTED, "there are folders more than %d deep below a class", DEEPEST));
    for (size_t i = 0; i < folders.count && status == RG_OK; i++) {
        status = rg_path_join(path, below, folders.names[i]);
        if (status == RG_OK)
            status = add_tree(f, path, label, depth + 1);
    }
    rg_release(&rg_default_allocator, path, RG_DATASET_PATH);
    rg_name_list_release(&folders);
    return status;
}

static rg_status add_class(image_folder *f, const char *class_name, int32_t label,
                           const rg_dataset_options *options)
{
    const size_t before = f->items->count;
    RG_TRY(add_tree(f, class_name, label, 1));
    if (f->items->count == before)
        rg_dataset_say(options, "%s: the class %s has no images", f->path, class_name);
    return RG_OK;
}

/* Images that have no class. */
static rg_status count_loose(image_folder *f)
{
    rg_name_list inside = { 0 };
    int64_t skipped = 0;
    const rg_status status = rg_folder_list(f->path, rg_entry_is_image, &inside, &skipped);
    f->loose = (int64_t)inside.count;
    rg_name_list_release(&inside);
    return status;
}

static bool is_one_of(const char *name, const char *const names[], size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (strcasecmp(name, names[i]) == 0)
            return true;
    }
    return false;
}

/* Two folders of a set for segmentation would be classes. */
static void warn_of_masks(const image_folder *f, const rg_dataset_options *options)
{
    static const char *const images[] = { "image",      "images", "img",   "imgs",
                                          "JPEGImages", "input",  "inputs" };
    static const char *const masks[] = { "mask",   "masks",        "label",
                                         "labels", "annotation",   "annotations",
                                         "annots", "segmentation", "SegmentationClass",
                                         "gt",     "groundtruth",  "ground_truth" };
    char *const *names = f->classes.names;
    for (int first = 0; first < 2 && f->classes.count == 2; first++) {
        const char *image = names[first], *mask = names[1 - first];
        if (is_one_of(image, images, sizeof images / sizeof images[0]) &&
            is_one_of(mask, masks, sizeof masks / sizeof masks[0]))
            rg_dataset_say(options,
                           "%s: %s and %s are taken for two classes; for masks the folders must be "
                           "called images and masks",
                           f->path, image, mask);
    }
}

/* What is probably not meant. */
static void warn(const image_folder *f, const rg_dataset_options *options)
{
    warn_of_masks(f, options);
    rg_dataset_say_skipped(options, f->path, f->skipped);
    if (f->loose > 0)
        rg_dataset_say(options,
                       "%s: %lld %s beside the folders of the classes, not in one of them, and not "
                       "used",
                       f->path, (long long)f->loose, f->loose == 1 ? "image is" : "images are");
    if (f->linked > 0)
        rg_dataset_say(
            options, "%s: %lld %s below a class, not followed: images there are not used", f->path,
            (long long)f->linked, f->linked == 1 ? "link to a folder is" : "links to folders are");
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
            return rg_path_blame(
                f->path, rg_fail(RG_MALFORMED, "the class %s does not exist in train/", name));
        RG_TRY(add_class(f, name, (int32_t)label, options));
    }
    if (f->items->count == 0)
        return rg_path_blame(
            f->path,
            rg_fail(RG_MALFORMED, "the class folders contain no PNG, JPEG or WebP images"));
    RG_TRY(count_loose(f));
    warn(f, options);
    return RG_OK;
}

rg_status rg_image_folder_read(const char *folder, rg_dataset_part part,
                               const rg_dataset_options *options, rg_dataset *set)
{
    image_folder f = { .path = "" };
    rg_status status = find_path(&f, folder, part, options);
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
