/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Data sets as objects: counted, immutable, split into parts that share the images, measured. */
#include "train/image_items.h"
#include "train/random.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const rg_allocator *const memory = &rg_default_allocator;

/* ---- making and counting ---- */

rg_status rg_dataset_begin(rg_dataset **set)
{
    void *made;
    RG_TRY(rg_allocate_zero(memory, sizeof **set, &made));
    *set = made;
    atomic_init(&(*set)->users, 1);
    return RG_OK;
}

rg_dataset *rg_dataset_keep(const rg_dataset *set)
{
    rg_dataset *own = (rg_dataset *)set; /* the count is all that changes */
    atomic_fetch_add(&own->users, 1);
    return own;
}

void rg_dataset_destroy(rg_dataset *set)
{
    if (set == NULL || atomic_fetch_sub(&set->users, 1) > 1)
        return;
    rg_dataset_destroy(set->whole);
    const size_t count = (size_t)set->info.count;
    rg_release(memory, set->index, count * sizeof *set->index);
    rg_release(memory, set->pixels, set->pixel_bytes);
    const size_t targets = set->info.target == RG_TARGET_CLASS ? 1 : (size_t)set->info.targets;
    rg_release(memory, set->labels, count * targets * sizeof *set->labels);
    rg_release(memory, set->values, count * targets * sizeof *set->values);
    rg_release(memory, set->names, set->name_bytes);
    rg_release(memory, set->files, count * sizeof *set->files);
    rg_items_destroy(set->items);
    rg_release(memory, set, sizeof *set);
}

rg_status rg_dataset_check(rg_dataset *set, size_t *bytes)
{
    const rg_dataset_info *info = &set->info;
    const int64_t most = INT32_MAX;
    RG_CHECK(info->count > 0, RG_MALFORMED, "there are no images");
    if (set->info.targets == 0)
        set->info.targets = 1;
    RG_CHECK(info->height > 0 && info->width > 0 && info->channels > 0 && info->height <= most &&
                 info->width <= most,
             RG_MALFORMED, "images of %lld x %lld pixels with %lld channels are not supported",
             (long long)info->height, (long long)info->width, (long long)info->channels);
    RG_CHECK(info->channels <= RG_DATASET_CHANNELS, RG_UNSUPPORTED,
             "the images have %lld channels; at most %d are supported", (long long)info->channels,
             RG_DATASET_CHANNELS);
    size_t size = rg_dtype_size(info->dtype);
    RG_CHECK(rg_multiply(size, (size_t)info->height, &size) &&
                 rg_multiply(size, (size_t)info->width, &size) &&
                 rg_multiply(size, (size_t)info->channels, &size) &&
                 rg_multiply(size, (size_t)info->count, bytes) && *bytes <= INT64_MAX,
             RG_MALFORMED, "%lld images of %lld x %lld pixels do not fit in memory",
             (long long)info->count, (long long)info->height, (long long)info->width);
    set->image_bytes = size;
    return RG_OK;
}

rg_status rg_dataset_allocate(rg_dataset *set, uint64_t most)
{
    size_t bytes = 0;
    void *pixels;
    RG_TRY(rg_dataset_check(set, &bytes));
    RG_CHECK(bytes <= most, RG_MALFORMED,
             "the file declares %lld images of %lld x %lld x %lld, %zu bytes, but can contain at "
             "most %llu bytes",
             (long long)set->info.count, (long long)set->info.height, (long long)set->info.width,
             (long long)set->info.channels, bytes, (unsigned long long)most);
    RG_TRY(rg_allocate(memory, bytes, &pixels));
    set->pixels = pixels;
    set->pixel_bytes = bytes;
    return RG_OK;
}

rg_status rg_dataset_name(rg_dataset *set, int32_t classes, const char *const names[])
{
    const size_t heads = (size_t)classes * sizeof(char *);
    size_t bytes = heads;
    char number[16];
    void *block;
    for (int32_t i = 0; i < classes; i++)
        bytes += names != NULL ? strlen(names[i]) + 1 : sizeof number;
    RG_TRY(rg_allocate(memory, bytes, &block));
    set->names = block;
    set->name_bytes = bytes;
    set->info.classes = classes;
    char *at = (char *)block + heads;
    for (int32_t i = 0; i < classes; i++) {
        snprintf(number, sizeof number, "%d", i);
        const char *name = names != NULL ? names[i] : number;
        set->names[i] = strcpy(at, name);
        at += strlen(name) + 1;
    }
    return RG_OK;
}

rg_status rg_dataset_no_part(rg_dataset_part part)
{
    static const char *const names[] = { "train", "test", "validation" };
    return rg_fail(RG_INVALID_ARGUMENT, "has no %s part", names[part]);
}

const char *rg_dataset_find_part(rg_dataset_part part, rg_part_check *usable, void *context)
{
    static const char *const names[] = { "test", "val", "valid", "validation" };
    bool has_test = false;
    if (part == RG_DATASET_TRAIN)
        return usable(context, "train") ? "train" : NULL;
    for (int i = 0; i < 4; i++) {
        if ((part == RG_DATASET_VALIDATION && i > 0 && !has_test) || !usable(context, names[i]))
            continue;
        if (part == RG_DATASET_TEST || i > 0)
            return names[i];
        has_test = true;
    }
    return NULL;
}

/* ---- access ---- */

rg_status rg_dataset_get_info(const rg_dataset *set, rg_dataset_info *info)
{
    RG_CHECK_NOT_NULL(set);
    RG_CHECK_NOT_NULL(info);
    *info = set->info;
    return RG_OK;
}

const char *rg_dataset_class_name(const rg_dataset *set, int32_t label)
{
    const bool known = set != NULL && label >= 0 && label < set->info.classes;
    return known ? rg_dataset_whole(set)->names[label] : "";
}

const void *rg_dataset_image(const rg_dataset *set, int64_t index)
{
    if (set == NULL || index < 0 || index >= set->info.count)
        return NULL;
    const rg_dataset *whole = rg_dataset_whole(set);
    if (whole->pixels == NULL)
        return NULL;
    return whole->pixels + (size_t)rg_dataset_whole_index(set, index) * whole->image_bytes;
}

rg_status rg_dataset_fetch(const rg_dataset *set, int64_t index, rg_decoder *decoder, void *to,
                           const void **pixels)
{
    *pixels = rg_dataset_image(set, index);
    if (*pixels != NULL)
        return RG_OK;
    *pixels = to;
    return rg_items_decode(rg_dataset_whole(set)->items, (size_t)rg_dataset_whole_index(set, index),
                           decoder, to);
}

rg_status rg_dataset_fetch_mask(const rg_dataset *set, int64_t index, rg_decoder *decoder,
                                int32_t *to)
{
    const rg_dataset *whole = rg_dataset_whole(set);
    const int32_t *mask = rg_dataset_mask(set, index);
    if (mask == NULL)
        return rg_items_decode_mask(whole->items, (size_t)rg_dataset_whole_index(set, index),
                                    decoder, to);
    memcpy(to, mask, (size_t)set->info.targets * sizeof *to);
    return RG_OK;
}

rg_status rg_dataset_read_mask(const rg_dataset *set, int64_t index, int32_t *classes)
{
    rg_decoder decoder = { 0 };
    RG_CHECK_NOT_NULL(set);
    RG_CHECK_NOT_NULL(classes);
    RG_CHECK(set->info.target == RG_TARGET_MASK, RG_INVALID_ARGUMENT,
             "rg_dataset_read_mask: the images have no masks");
    RG_CHECK(index >= 0 && index < set->info.count, RG_INVALID_ARGUMENT,
             "rg_dataset_read_mask: image %lld does not exist; there are %lld", (long long)index,
             (long long)set->info.count);
    const rg_status status = rg_dataset_fetch_mask(set, index, &decoder, classes);
    rg_decoder_release(&decoder);
    return status;
}

rg_status rg_dataset_read_image(const rg_dataset *set, int64_t index, void *pixels)
{
    rg_decoder decoder = { 0 };
    const void *from;
    RG_CHECK_NOT_NULL(set);
    RG_CHECK_NOT_NULL(pixels);
    RG_CHECK(index >= 0 && index < set->info.count, RG_INVALID_ARGUMENT,
             "rg_dataset_read_image: image %lld does not exist; there are %lld", (long long)index,
             (long long)set->info.count);
    const rg_status status = rg_dataset_fetch(set, index, &decoder, pixels, &from);
    if (status == RG_OK && from != pixels)
        memcpy(pixels, from, set->image_bytes);
    rg_decoder_release(&decoder);
    return status;
}

int32_t rg_dataset_label(const rg_dataset *set, int64_t index)
{
    if (set == NULL || index < 0 || index >= set->info.count || set->info.target != RG_TARGET_CLASS)
        return -1;
    return rg_dataset_whole(set)->labels[rg_dataset_whole_index(set, index)];
}

const float *rg_dataset_values(const rg_dataset *set, int64_t index)
{
    if (set == NULL || index < 0 || index >= set->info.count ||
        rg_dataset_whole(set)->values == NULL)
        return NULL;
    return rg_dataset_whole(set)->values + rg_dataset_whole_index(set, index) * set->info.targets;
}

const int32_t *rg_dataset_mask(const rg_dataset *set, int64_t index)
{
    if (set == NULL || index < 0 || index >= set->info.count || set->info.target != RG_TARGET_MASK)
        return NULL;
    const int32_t *labels = rg_dataset_whole(set)->labels;
    return labels != NULL ? labels + rg_dataset_whole_index(set, index) * set->info.targets : NULL;
}

/* ---- telling sets apart ---- */

static uint64_t hash_bytes(uint64_t key, const void *data, size_t size)
{
    const char *at = data;
    for (; size >= 8; size -= 8, at += 8) {
        uint64_t word;
        memcpy(&word, at, sizeof word);
        key = rg_random_mix(key ^ word) + 1;
    }
    uint64_t rest = size;
    for (; size > 0; size--)
        rest = rest << 8 | (unsigned char)*at++;
    return rg_random_key(key, rest);
}

/* A file's name without its ending, and the size of an image in an archive. */
static uint64_t hash_item(uint64_t key, const rg_items *items, size_t index)
{
    const rg_item *item = &items->list[index];
    const char *name = items->files[item->file], *dot = strrchr(name, '.');
    key = hash_bytes(key, name, dot != NULL ? (size_t)(dot - name) : strlen(name));
    return rg_random_key(key, item->size);
}

int64_t rg_dataset_hash(const rg_dataset *set)
{
    const rg_dataset *whole = rg_dataset_whole(set);
    const int64_t targets = set->info.targets;
    uint64_t key = rg_random_key((uint64_t)set->info.count, (uint64_t)set->info.target);
    for (int64_t i = 0; i < set->info.count; i++) {
        const size_t at = (size_t)rg_dataset_whole_index(set, i);
        const float *values = rg_dataset_values(set, i);
        const int32_t label = rg_dataset_label(set, i);
        key = rg_random_key(key, (uint64_t)(label + 1));
        if (values != NULL)
            key = hash_bytes(key, values, (size_t)targets * sizeof *values);
        if (whole->files != NULL)
            key = rg_random_key(key, whole->files[at]);
        else
            key = hash_bytes(key, rg_dataset_image(set, i), whole->image_bytes);
    }
    return (int64_t)(key >> 1 | 1);
}

uint64_t rg_dataset_hash_contents(const rg_dataset *set)
{
    const rg_dataset *whole = rg_dataset_whole(set);
    uint64_t key = 0;
    for (int64_t i = 0; set->decoded && i < set->info.count; i++) {
        const void *pixels = rg_dataset_image(set, i);
        key = pixels != NULL
                  ? hash_bytes(key, pixels, whole->image_bytes)
                  : rg_random_key(
                        key, rg_items_size(whole->items, (size_t)rg_dataset_whole_index(set, i)));
    }
    return key;
}

rg_status rg_dataset_keep_files(rg_dataset *set, const rg_items *items)
{
    RG_TRY(rg_allocate_array(items->count, sizeof *set->files, &set->files));
    for (size_t i = 0; i < items->count; i++)
        set->files[i] = hash_item(0, items, i);
    return RG_OK;
}

/* ---- parts ---- */

/* A part of `set`, without its list of images. */
static rg_status begin_part(const rg_dataset *set, int64_t count, rg_dataset **part)
{
    rg_dataset *made;
    void *index;
    RG_TRY(rg_dataset_begin(&made));
    const rg_status status = rg_allocate(memory, (size_t)count * sizeof *made->index, &index);
    if (status != RG_OK) {
        rg_dataset_destroy(made);
        return status;
    }
    made->index = index;
    made->info = set->info;
    made->info.count = count;
    made->image_bytes = set->image_bytes;
    made->resized = set->resized;
    made->decoded = set->decoded;
    made->threads = set->threads;
    made->has_columns = set->has_columns;
    made->range = set->range;
    made->whole = rg_dataset_keep(rg_dataset_whole(set));
    *part = made;
    return RG_OK;
}

/* The first `taken` of a random order belong to the second part. Marks them in `chosen`. */
static rg_status choose(int64_t count, int64_t taken, uint64_t seed, bool *chosen)
{
    void *order;
    RG_TRY(rg_allocate(memory, (size_t)count * sizeof(int64_t), &order));
    rg_random_order(rg_random_key(seed, 0), order, count);
    for (int64_t i = 0; i < taken; i++)
        chosen[((int64_t *)order)[i]] = true;
    rg_release(memory, order, (size_t)count * sizeof(int64_t));
    return RG_OK;
}

rg_status rg_dataset_split(const rg_dataset *set, double fraction, uint64_t seed,
                           rg_dataset **train, rg_dataset **validation)
{
    if (train != NULL)
        *train = NULL;
    if (validation != NULL)
        *validation = NULL;
    RG_CHECK_NOT_NULL(set);
    RG_CHECK_NOT_NULL(train);
    RG_CHECK_NOT_NULL(validation);
    RG_CHECK(fraction >= 0 && fraction <= 1, RG_INVALID_ARGUMENT,
             "rg_dataset_split: fraction must be between 0 and 1, not %g", fraction);
    const int64_t count = set->info.count;
    const int64_t taken = (int64_t)llround((double)count * fraction);
    RG_CHECK(taken > 0 && taken < count, RG_INVALID_ARGUMENT,
             "rg_dataset_split: a fraction of %g of %lld images leaves one part empty", fraction,
             (long long)count);

    rg_dataset *rest = NULL, *part = NULL;
    void *chosen;
    RG_TRY(rg_allocate_zero(memory, (size_t)count, &chosen));
    rg_status status = choose(count, taken, seed, chosen);
    if (status == RG_OK)
        status = begin_part(set, count - taken, &rest);
    if (status == RG_OK)
        status = begin_part(set, taken, &part);
    if (status == RG_OK) {
        int64_t *to[] = { rest->index, part->index };
        for (int64_t i = 0; i < count; i++)
            *to[((const bool *)chosen)[i]]++ = rg_dataset_whole_index(set, i);
        *train = rest;
        *validation = part;
    } else {
        rg_dataset_destroy(rest);
    }
    rg_release(memory, chosen, (size_t)count);
    return status;
}
