/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* A folder with images/ and masks/, perhaps below train/ and test/ or val/: the mask of an image is
 * a PNG file with the same name up to the last dot. classes.txt may name the classes, one a line.
 */
#include "train/folder_names.h"
#include "train/image_items.h"

#include "files/whole_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- which folders there are ---- */

static bool has_pair(const char *folder)
{
    char images[RG_DATASET_PATH], masks[RG_DATASET_PATH];
    return rg_path_join(images, folder, "images") == RG_OK &&
           rg_path_join(masks, folder, "masks") == RG_OK && rg_folder_exists(images) &&
           rg_folder_exists(masks);
}

static bool has_parts(const char *folder)
{
    char train[RG_DATASET_PATH];
    return rg_part_join(train, folder, "train") == RG_OK && has_pair(train);
}

bool rg_masks_are_here(const char *folder)
{
    return has_pair(folder) || has_parts(folder);
}

static bool has_pair_below(void *context, const char *name)
{
    char path[RG_DATASET_PATH];
    return rg_part_join(path, context, name) == RG_OK && has_pair(path);
}

static rg_status find_part(const char *folder, rg_dataset_part part, char path[RG_DATASET_PATH])
{
    const bool parts = has_parts(folder);
    char *of = (char *)folder; /* which is not changed */
    const char *name = parts ? rg_dataset_find_part(part, has_pair_below, of) : NULL;
    if (name != NULL)
        return rg_part_join(path, folder, name);
    if (parts || part != RG_DATASET_TRAIN)
        return rg_path_blame(folder, rg_dataset_no_part(part));
    RG_CHECK(strlen(folder) < RG_DATASET_PATH, RG_IO, "the path is too long");
    strcpy(path, folder);
    return RG_OK;
}

/* ---- images and their masks ---- */

/* The length of a name up to its last dot. */
static size_t stem_length(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot != NULL ? (size_t)(dot - name) : strlen(name);
}

static int compare_stems(const char *a, const char *b)
{
    const size_t m = stem_length(a), n = stem_length(b), both = m < n ? m : n;
    const int order = memcmp(a, b, both);
    return order != 0 ? order : (m > n) - (m < n);
}

static int by_stem(const void *a, const void *b)
{
    const char *const x = *(char *const *)a, *const y = *(char *const *)b;
    const int order = compare_stems(x, y);
    return order != 0 ? order : strcmp(x, y);
}

/* The images of a folder, in the order of their names without endings. */
static rg_status list_images(const char *folder, const char *below, rg_name_list *list,
                             int64_t *skipped)
{
    char path[RG_DATASET_PATH];
    RG_TRY(rg_path_join(path, folder, below));
    RG_TRY(rg_folder_list(path, rg_entry_is_image, list, skipped));
    if (list->count > 1)
        qsort(list->names, list->count, sizeof *list->names, by_stem);
    return RG_OK;
}

static rg_status add_file(rg_items *items, const char *below, const char *name)
{
    char path[RG_DATASET_PATH];
    RG_TRY(rg_path_join(path, below, name));
    return rg_items_add_file(items, path);
}

static rg_status add_pair(rg_items *items, const char *image, const char *mask)
{
    RG_TRY(add_file(items, "images", image));
    RG_TRY(add_file(items, "masks", mask));
    const int32_t files = (int32_t)items->file_count;
    return rg_items_add(items, (rg_item){ .file = files - 2, .label = files - 1 });
}

typedef struct mask_folder {
    rg_name_list images, masks;
    rg_items *items;
    int64_t skipped; /* files that are no images */
    int64_t alone;   /* images without a mask */
} mask_folder;

static void release_folder(mask_folder *f)
{
    rg_name_list_release(&f->images);
    rg_name_list_release(&f->masks);
    rg_items_destroy(f->items);
}

/* Both lists are sorted. */
static rg_status add_pairs(mask_folder *f)
{
    size_t at = 0;
    for (size_t i = 0; i < f->images.count; i++) {
        const char *image = f->images.names[i];
        while (at < f->masks.count && compare_stems(f->masks.names[at], image) < 0)
            at++;
        if (at < f->masks.count && compare_stems(f->masks.names[at], image) == 0)
            RG_TRY(add_pair(f->items, image, f->masks.names[at]));
        else
            f->alone++;
    }
    return RG_OK;
}

static void warn(const char *path, const mask_folder *f, const rg_dataset_options *options)
{
    rg_dataset_say_skipped(options, path, f->skipped);
    if (f->alone > 0)
        rg_dataset_say(options,
                       "%s: %lld %s skipped, because masks/ has no PNG image of the same name",
                       path, (long long)f->alone, f->alone == 1 ? "image is" : "images are");
}

static rg_status list_pairs(const char *path, mask_folder *f)
{
    RG_TRY(rg_items_create(path, &f->items));
    f->items->has_masks = true;
    f->items->present.largest = -1;
    RG_TRY(list_images(path, "images", &f->images, &f->skipped));
    RG_TRY(list_images(path, "masks", &f->masks, &f->skipped));
    RG_TRY(add_pairs(f));
    if (f->items->count == 0)
        return rg_path_blame(
            path,
            rg_fail(RG_MALFORMED, "no image of images/ has a mask of the same name in masks/"));
    return RG_OK;
}

/* ---- classes ---- */

typedef struct class_names {
    rg_name_list list; /* empty: there is no classes.txt */
    rg_bytes bytes;
} class_names;

static void release_classes(class_names *c)
{
    rg_name_list_release(&c->list);
    rg_bytes_release(&rg_default_allocator, &c->bytes);
}

/* One name a line; empty lines at the end do not count. */
static rg_status cut_lines(char *text, rg_name_list *list)
{
    for (size_t end = strlen(text); end > 0 && strchr("\r\n", text[end - 1]) != NULL; end--)
        text[end - 1] = 0;
    char *next = text[0] != 0 ? text : NULL;
    while (next != NULL) {
        char *line = next;
        next = strchr(line, '\n');
        if (next != NULL)
            *next++ = 0;
        line[strcspn(line, "\r")] = 0;
        RG_CHECK(line[0] != 0 && rg_path_is_text(line), RG_MALFORMED,
                 "line %zu is no name of a class, of valid UTF-8", list->count + 1);
        RG_TRY(rg_name_list_add(list, line));
    }
    RG_CHECK(list->count > 0 && list->count <= RG_DATASET_CLASSES, RG_MALFORMED,
             "there are %zu classes; from 1 to %d are supported", list->count, RG_DATASET_CLASSES);
    return RG_OK;
}

static rg_status read_classes(const char *folder, class_names *c)
{
    enum { MOST_BYTES = 1 << 24 };
    char path[RG_DATASET_PATH];
    struct stat info;
    RG_TRY(rg_path_join(path, folder, "classes.txt"));
    if (stat(path, &info) != 0 && errno == ENOENT)
        return RG_OK;
    RG_TRY(rg_file_read(&rg_default_allocator, path, MOST_BYTES, &c->bytes));
    char *text = NULL;
    RG_TRY(rg_allocate_array(c->bytes.size + 1, 1, &text));
    if (c->bytes.size > 0)
        memcpy(text, c->bytes.data, c->bytes.size);
    const bool whole = strlen(text) == c->bytes.size;
    const rg_status status =
        whole ? cut_lines(text, &c->list) : rg_fail(RG_MALFORMED, "the file contains a byte of 0");
    rg_release(&rg_default_allocator, text, c->bytes.size + 1);
    return rg_path_blame(path, status);
}

static rg_status check_other_part(const char *folder, rg_dataset_part other,
                                  const rg_dataset_options *options, rg_mask_classes *present)
{
    char path[RG_DATASET_PATH];
    mask_folder f = { .skipped = 0 };
    if (!has_parts(folder) || find_part(folder, other, path) != RG_OK)
        return RG_OK;
    rg_status status = list_pairs(path, &f);
    if (status == RG_OK)
        status = rg_items_check_masks(f.items, options);
    if (status == RG_OK)
        rg_mask_classes_join(present, &f.items->present);
    release_folder(&f);
    return status;
}

/* The classes of the other parts count, too, where no file names them. */
static rg_status check_other_parts(const char *folder, rg_dataset_part part,
                                   const rg_dataset_options *options, rg_mask_classes *present)
{
    for (int other = RG_DATASET_TRAIN; other <= RG_DATASET_VALIDATION; other++) {
        if (other != (int)part)
            RG_TRY(check_other_part(folder, (rg_dataset_part)other, options, present));
    }
    return RG_OK;
}

/* ---- the set ---- */

static rg_status read_part(const char *folder, rg_dataset_part part,
                           const rg_dataset_options *options, class_names *c, mask_folder *f,
                           rg_dataset *set)
{
    char path[RG_DATASET_PATH];
    RG_TRY(find_part(folder, part, path));
    RG_TRY(read_classes(folder, c));
    RG_TRY(list_pairs(path, f));
    warn(path, f, options);
    f->items->classes = (int32_t)c->list.count;
    if (c->list.count == 0 || c->list.count == 2) /* marks may be ones */
        RG_TRY(check_other_parts(folder, part, options, &f->items->present));
    rg_items *items = f->items;
    f->items = NULL; /* the set owns it, or it is gone */
    RG_TRY(rg_items_use(items, options, set));
    const bool named = c->list.count > 0;
    return rg_dataset_name(set, set->info.classes,
                           named ? (const char *const *)c->list.names : NULL);
}

rg_status rg_mask_folder_read(const char *folder, rg_dataset_part part,
                              const rg_dataset_options *options, rg_dataset *set)
{
    class_names classes = { .list = { 0 } };
    mask_folder f = { .skipped = 0 };
    const rg_status status = read_part(folder, part, options, &classes, &f, set);
    release_folder(&f);
    release_classes(&classes);
    return status;
}
