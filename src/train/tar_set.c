/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Data sets in tar archives, called shards, in the layout of WebDataset: members of one name, up to
 * its first dot, make a sample: an image, name.jpg, name.png or name.webp, and its class, a
 * number in name.cls. An index of all members is read when a set is opened; images are read when
 * they are needed. */
#include "train/image_items.h"
#include "train/folder_names.h"
#include "train/tar_members.h"
#include "train/data_source.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

/* ---- samples ---- */

typedef struct shard_reader {
    rg_items *items; /* NULL: labels alone are looked at */
    char key[RG_TAR_NAME];
    rg_item image;   /* size 0: none yet */
    int64_t label;   /* -1: none yet */
    int32_t largest; /* label so far */
    int64_t skipped; /* samples without an image or without a class */
    int64_t links;   /* named like an image or a class */
    int64_t twice;   /* samples with more than one image, of which the last counts */
    int64_t joined;  /* shards that are followed by another archive */
    bool has_two;    /* this sample */
} shard_reader;

static rg_status end_sample(shard_reader *r)
{
    const bool whole = r->image.size > 0 && r->label >= 0;
    rg_status status = RG_OK;
    if (whole && r->items != NULL) {
        r->image.label = (int32_t)r->label;
        status = rg_items_add(r->items, r->image);
    }
    if (whole && r->label > r->largest)
        r->largest = (int32_t)r->label;
    r->skipped += !whole && r->key[0] != 0;
    r->twice += whole && r->has_two;
    r->image = (rg_item){ 0 };
    r->label = -1;
    r->has_two = false;
    return status;
}

static rg_status read_label(const rg_tar *tar, const rg_tar_member *m, int64_t *label)
{
    char text[24] = "", *end;
    const bool short_enough = m->size > 0 && m->size < sizeof text;
    if (short_enough)
        RG_TRY(rg_regular_read(tar->file, m->at, text, (size_t)m->size));
    *label = strtoll(text, &end, 10);
    RG_CHECK(short_enough && end != text && strspn(end, " \r\n\t") == strlen(end) && *label >= 0 &&
                 *label < RG_DATASET_CLASSES,
             RG_MALFORMED, "the class of %s is '%s', not a number from 0 to %d", m->name, text,
             RG_DATASET_CLASSES - 1);
    return RG_OK;
}

static bool is_image_kind(const char *kind)
{
    static const char *const kinds[] = { "jpg", "jpeg", "png", "webp", "jfif", "jpe" };
    size_t i = 0;
    while (i < sizeof kinds / sizeof kinds[0] && strcasecmp(kind, kinds[i]) != 0)
        i++;
    return i < sizeof kinds / sizeof kinds[0];
}

/* Members that belong to no sample, such as those without a dot, are ignored. */
static rg_status take_member(shard_reader *r, const rg_tar *tar, rg_tar_member *m)
{
    const char *slash = strrchr(m->name, '/'), *base = slash != NULL ? slash + 1 : m->name;
    char *dot = strchr(base, '.');
    if (dot == NULL || dot == base)
        return RG_OK;
    const bool is_image = is_image_kind(dot + 1), is_class = strcasecmp(dot + 1, "cls") == 0;
    const size_t length = (size_t)(dot - m->name);
    if (m->is_link) {
        r->links += is_image || is_class;
        return RG_OK;
    }
    if (strlen(r->key) != length || memcmp(r->key, m->name, length) != 0) {
        RG_TRY(end_sample(r));
        memcpy(r->key, m->name, length);
        r->key[length] = 0;
    }
    if (is_class)
        return read_label(tar, m, &r->label);
    if (is_image && m->size > 0)
        r->has_two = r->image.size > 0;
    if (is_image && m->size > 0)
        r->image = (rg_item){ .at = m->at, .size = m->size };
    if (r->items != NULL)
        r->image.file = (int32_t)r->items->file_count - 1;
    return RG_OK;
}

static rg_status read_members(shard_reader *r, int file, uint64_t size)
{
    rg_tar tar = { .file = file, .size = size };
    rg_tar_member *member = NULL;
    bool found = true;
    RG_TRY(rg_allocate_array(1, sizeof *member, &member));
    rg_status status = RG_OK;
    while (status == RG_OK && found) {
        status = rg_tar_next(&tar, member, &found);
        if (status == RG_OK && found)
            status = take_member(r, &tar, member);
    }
    rg_release(&rg_default_allocator, member, sizeof *member);
    RG_TRY(status);
    RG_TRY(end_sample(r));
    r->joined += tar.has_more;
    r->key[0] = 0;
    return RG_OK;
}

static rg_status read_shard(shard_reader *r, const char *path)
{
    uint64_t size;
    int file;
    rg_status status = rg_regular_open(path, &file, &size);
    if (status == RG_OK) {
        status = read_members(r, file, size);
        rg_regular_close(file);
    }
    if (status != RG_OK)
        rg_path_prefix(path);
    return status;
}

/* ---- shards ---- */

bool rg_tar_is_name(const char *path)
{
    const size_t length = strlen(path);
    return length > 4 && strcasecmp(path + length - 4, ".tar") == 0;
}

typedef struct shard_list {
    char **names;
    size_t count, capacity;
} shard_list;

static void release_shards(shard_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        free(list->names[i]);
    rg_release(&rg_default_allocator, list->names, list->capacity * sizeof *list->names);
}

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Of shards whose names begin with test or val, or have such a word where others have the word
 * train, the first are the test part, the others, where there are both, the validation part; all
 * others are the training part. */
typedef enum shard_kind { TRAIN_SHARD, TEST_SHARD, VALIDATION_SHARD, KINDS } shard_kind;

/* Whether one of the words of a name stands for a part: set-test-0001.tar. */
static bool has_word(const char *name, const char *part)
{
    char word[16];
    while (*name != 0) {
        size_t length = 0;
        while (isalpha((unsigned char)name[length]))
            length++;
        snprintf(word, sizeof word, "%.*s", (int)(length < sizeof word ? length : 0), name);
        if (rg_part_is_name(word, part))
            return true;
        name += length + (name[length] != 0);
    }
    return false;
}

/* `words`: whether other shards have the word train in their names. */
static shard_kind kind_of(const char *name, bool words)
{
    words = words && !has_word(name, "train");
    if (strncasecmp(name, "test", 4) == 0 || (words && has_word(name, "test")))
        return TEST_SHARD;
    if (strncasecmp(name, "val", 3) == 0 ||
        (words &&
         (has_word(name, "val") || has_word(name, "valid") || has_word(name, "validation"))))
        return VALIDATION_SHARD;
    return TRAIN_SHARD;
}

static rg_status add_shard(shard_list *list, const char *name)
{
    RG_TRY(rg_grow(&rg_default_allocator, (void **)&list->names, &list->capacity, list->count,
                   sizeof *list->names));
    RG_TRY(rg_copy_text(name, &list->names[list->count]));
    list->count++;
    return RG_OK;
}

static bool is_shard(const char *name)
{
    return name[0] != '.' && rg_tar_is_name(name);
}

/* Whether shards tell by words what they are. */
static bool names_parts(DIR *open)
{
    bool found = false;
    for (const struct dirent *e; !found && (e = readdir(open)) != NULL;)
        found = is_shard(e->d_name) && has_word(e->d_name, "train");
    rewinddir(open);
    return found;
}

static rg_status list_kind(const char *folder, shard_kind kind, shard_list *list)
{
    DIR *open = opendir(folder);
    rg_status status = RG_OK;
    RG_CHECK(open != NULL, RG_IO, "cannot be opened: %s", strerror(errno));
    const bool words = names_parts(open);
    for (const struct dirent *e; status == RG_OK && (e = readdir(open)) != NULL;) {
        if (is_shard(e->d_name) && kind_of(e->d_name, words) == kind)
            status = add_shard(list, e->d_name);
    }
    closedir(open);
    if (list->count > 1)
        qsort(list->names, list->count, sizeof *list->names, by_bytes);
    return status;
}

static bool has_kind(const char *folder, shard_kind kind)
{
    shard_list list = { 0 };
    const bool found = list_kind(folder, kind, &list) == RG_OK && list.count > 0;
    release_shards(&list);
    return found;
}

/* All shards of a folder train/, test/ or val/, whatever their names. */
static bool has_shards_below(void *context, const char *name)
{
    const char *folder = context;
    char path[RG_DATASET_PATH];
    if (rg_part_join(path, folder, name) != RG_OK)
        return false;
    for (int kind = 0; kind < KINDS; kind++) {
        if (has_kind(path, (shard_kind)kind))
            return true;
    }
    return false;
}

static rg_status list_below(const char *folder, const char *part, shard_list *list)
{
    shard_list own = { 0 };
    char path[RG_DATASET_PATH];
    const rg_part_folder below = rg_part_find(folder, part);
    rg_status status = rg_path_join(path, folder, below.name);
    for (int kind = 0; kind < KINDS && status == RG_OK; kind++)
        status = list_kind(path, (shard_kind)kind, &own);
    for (size_t i = 0; i < own.count && status == RG_OK; i++) {
        status = rg_path_join(path, below.name, own.names[i]);
        if (status == RG_OK)
            status = add_shard(list, path);
    }
    release_shards(&own);
    return status;
}

static bool has_folders(const char *folder)
{
    return has_shards_below((char *)folder, "train"); /* which is not changed */
}

static rg_status list_shards(const char *folder, rg_dataset_part part, shard_list *list)
{
    if (has_folders(folder)) {
        char *of = (char *)folder; /* which is not changed */
        const char *name = rg_dataset_find_part(part, has_shards_below, of);
        return name != NULL ? list_below(folder, name, list) : RG_OK;
    }
    if (part == RG_DATASET_TRAIN)
        return list_kind(folder, TRAIN_SHARD, list);
    const bool has_test = has_kind(folder, TEST_SHARD);
    if (part == RG_DATASET_VALIDATION && !has_test)
        return RG_OK;
    return list_kind(folder, has_test && part == RG_DATASET_TEST ? TEST_SHARD : VALIDATION_SHARD,
                     list);
}

bool rg_tar_is_here(const char *folder)
{
    bool found = has_folders(folder);
    for (int kind = 0; kind < KINDS; kind++)
        found = found || has_kind(folder, (shard_kind)kind);
    return found;
}

/* ---- the set ---- */

/* Reads the shards of one part; the classes of all parts count. */
static rg_status read_part(const char *folder, rg_dataset_part part, shard_reader *r)
{
    shard_list list = { 0 };
    char path[RG_DATASET_PATH];
    rg_status status = list_shards(folder, part, &list);
    if (status == RG_OK && list.count == 0 && r->items != NULL)
        status = rg_dataset_no_part(part);
    if (status != RG_OK)
        rg_path_prefix(folder);
    for (size_t i = 0; i < list.count && status == RG_OK; i++) {
        status = rg_path_join(path, folder, list.names[i]);
        if (status == RG_OK && r->items != NULL)
            status = rg_items_add_file(r->items, list.names[i]);
        if (status == RG_OK)
            status = read_shard(r, path);
    }
    release_shards(&list);
    return status;
}

static rg_status read_single(const char *path, rg_dataset_part part, shard_reader *r)
{
    const char *slash = strrchr(path, '/');
    rg_status status = RG_OK;
    if (part != RG_DATASET_TRAIN) {
        status = rg_dataset_no_part(part);
        rg_path_prefix(path);
        return status;
    }
    RG_TRY(rg_items_add_file(r->items, slash != NULL ? slash + 1 : path));
    return read_shard(r, path);
}

/* "." for a name alone. */
static rg_status folder_of(const char *path, char folder[RG_DATASET_PATH])
{
    const char *slash = strrchr(path, '/');
    const size_t length = slash == NULL ? 1 : slash == path ? 1 : (size_t)(slash - path);
    RG_CHECK(length < RG_DATASET_PATH, RG_IO, "the path is too long");
    memcpy(folder, slash == NULL ? "." : path, length);
    folder[length] = 0;
    return RG_OK;
}

static void say_unused(const char *path, const rg_dataset_options *options, const shard_reader *r)
{
    const bool one = r->skipped == 1;
    if (r->skipped > 0)
        rg_dataset_say(options, "%s: %lld %s no image or no class next to it, and %s not used",
                       path, (long long)r->skipped, one ? "sample has" : "samples have",
                       one ? "is" : "are");
    if (r->links > 0)
        rg_dataset_say(options,
                       "%s: %lld images or classes are links to other members, which are "
                       "not followed",
                       path, (long long)r->links);
    if (r->twice > 0)
        rg_dataset_say(options, "%s: %lld samples have more than one image; the last one is used",
                       path, (long long)r->twice);
    if (r->joined > 0)
        rg_dataset_say(options,
                       "%s: another archive follows in the same file (%lld times) and is not read; "
                       "keep archives as files of their own",
                       path, (long long)r->joined);
}

static rg_status read_all(const char *path, rg_dataset_part part, const rg_dataset_options *options,
                          shard_reader *r)
{
    rg_items *const items = r->items;
    const bool single = rg_tar_is_name(path);
    RG_TRY(single ? read_single(path, part, r) : read_part(path, part, r));
    say_unused(path, options, r);
    if (items->count == 0) {
        (void)rg_fail(RG_MALFORMED, "the archives contain no images with a class (name.jpg, "
                                    "name.png or name.webp, and next to it name.cls)");
        rg_path_prefix(path);
        return RG_MALFORMED;
    }
    r->items = NULL;
    rg_status status = RG_OK;
    for (int other = RG_DATASET_TRAIN; other <= RG_DATASET_VALIDATION && status == RG_OK; other++) {
        if (!single && other != (int)part)
            status = read_part(path, (rg_dataset_part)other, r);
    }
    r->items = items;
    return status;
}

rg_status rg_tar_read(const char *path, rg_dataset_part part, const rg_dataset_options *options,
                      rg_dataset *set)
{
    char folder[RG_DATASET_PATH];
    shard_reader *r = NULL;
    RG_TRY(folder_of(path, folder));
    RG_TRY(rg_allocate_array(1, sizeof *r, &r));
    r->label = -1;
    rg_status status = rg_items_create(rg_tar_is_name(path) ? folder : path, &r->items);
    if (status == RG_OK)
        status = read_all(path, part, options, r);
    if (status == RG_OK)
        status = rg_dataset_name(set, r->largest + 1, NULL);
    if (status == RG_OK)
        status = rg_items_use(r->items, options, set);
    else
        rg_items_destroy(r->items);
    rg_release(&rg_default_allocator, r, sizeof *r);
    return status;
}
