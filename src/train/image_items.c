/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Lists of images: making them, decoding one, and checking or decoding all by several threads. */
#include "train/image_items.h"
#include "train/data_source.h"

#include "core/thread.h"

#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const rg_allocator *const memory = &rg_default_allocator;

/* ---- the list ---- */

static rg_status copy_name(const char *name, char **copy)
{
    *copy = strdup(name);
    RG_CHECK(*copy != NULL, RG_OUT_OF_MEMORY, "out of memory for the name of a file");
    return RG_OK;
}

rg_status rg_items_create(const char *root, rg_items **items)
{
    void *made;
    RG_TRY(rg_allocate_zero(memory, sizeof **items, &made));
    *items = made;
    return copy_name(root, &(*items)->root);
}

void rg_items_destroy(rg_items *items)
{
    if (items == NULL)
        return;
    for (size_t i = 0; i < items->file_count; i++)
        free(items->files[i]);
    free(items->root);
    rg_release(memory, items->files, items->file_capacity * sizeof *items->files);
    rg_release(memory, items->list, items->capacity * sizeof *items->list);
    rg_release(memory, items, sizeof *items);
}

rg_status rg_items_add_file(rg_items *items, const char *name)
{
    RG_CHECK(items->file_count < INT32_MAX, RG_UNSUPPORTED, "there are too many files");
    RG_TRY(rg_grow(memory, (void **)&items->files, &items->file_capacity, items->file_count,
                   sizeof *items->files));
    RG_TRY(copy_name(name, &items->files[items->file_count]));
    items->file_count++;
    return RG_OK;
}

rg_status rg_items_add(rg_items *items, rg_item item)
{
    RG_TRY(rg_grow(memory, (void **)&items->list, &items->capacity, items->count,
                   sizeof *items->list));
    items->list[items->count++] = item;
    return RG_OK;
}

/* ---- one image ---- */

/* Opens the file of an image and finds out how many bytes it has. */
static rg_status open_item(const rg_items *items, const rg_item *item, int *file, uint64_t *size)
{
    char path[RG_DATASET_PATH];
    uint64_t all;
    RG_TRY(rg_path_join(path, items->root, items->files[item->file]));
    RG_TRY(rg_regular_open(path, file, &all));
    const bool there = item->at <= all && item->size <= all - item->at;
    *size = item->size > 0 ? item->size : all;
    if (there)
        return RG_OK;
    rg_regular_close(*file);
    return rg_fail(RG_MALFORMED, "the file has become shorter since it was opened");
}

/* Puts the file, and the place in it, before the sentence of a failure. */
static rg_status blame(const rg_items *items, const rg_item *item, rg_status status)
{
    char path[RG_DATASET_PATH];
    if (status == RG_OK)
        return RG_OK;
    if (item->size > 0)
        rg_error_prefix("image at byte %llu: ", (unsigned long long)item->at);
    const int length = snprintf(path, sizeof path, "%s/%s", items->root, items->files[item->file]);
    rg_path_prefix(length > 0 ? path : items->root);
    return status;
}

rg_status rg_items_decode(const rg_items *items, size_t index, rg_decoder *decoder,
                          unsigned char *to)
{
    const rg_item *item = &items->list[index];
    uint64_t size;
    int file;
    rg_status status = open_item(items, item, &file, &size);
    if (status == RG_OK) {
        status = rg_decoder_read(decoder, file, item->at, size);
        rg_regular_close(file);
    }
    if (status == RG_OK)
        status = rg_image_decode(decoder, decoder->bytes.data, (size_t)size, &items->form, to);
    return blame(items, item, status);
}

/* Reads the header of an image: first a small part of the file, then all of it if needed. */
static rg_status read_header(const rg_items *items, const rg_item *item, rg_decoder *decoder,
                             rg_image_header *header)
{
    enum { PART = 1 << 16 };
    uint64_t size;
    int file;
    bool more = false;
    RG_TRY(open_item(items, item, &file, &size));
    const uint64_t part = size < PART ? size : PART;
    rg_status status = rg_decoder_read(decoder, file, item->at, part);
    if (status == RG_OK)
        status = rg_image_read_header(decoder->bytes.data, (size_t)part, size, header, &more);
    if (status != RG_OK && more) {
        status = rg_decoder_read(decoder, file, item->at, size);
        if (status == RG_OK)
            status = rg_image_read_header(decoder->bytes.data, (size_t)size, size, header, &more);
    }
    rg_regular_close(file);
    return status;
}

static rg_status check_item(const rg_items *items, size_t index, rg_decoder *decoder)
{
    const rg_item *item = &items->list[index];
    const rg_image_form *form = &items->form;
    rg_image_header header = { 0 };
    rg_status status = read_header(items, item, decoder, &header);
    decoder->was = header.size;
    if (status == RG_OK && !form->resize &&
        (header.size.height != form->size.height || header.size.width != form->size.width))
        status = rg_fail(RG_MALFORMED,
                         "the image has %lld x %lld pixels, but the first image has %lld x %lld; a "
                         "size for all images resizes them (--size)",
                         (long long)header.size.height, (long long)header.size.width,
                         (long long)form->size.height, (long long)form->size.width);
    return blame(items, item, status);
}

/* ---- all of them ---- */

enum { SENTENCE = 400, KEPT = 100 };

/* An image that cannot be used. */
typedef struct bad_image {
    size_t index;
    rg_status status;
    char text[SENTENCE];
} bad_image;

typedef struct pass {
    const rg_items *items;
    unsigned char *pixels; /* of all images; NULL: headers are checked alone */
    size_t image_bytes;
    int32_t *classes;   /* of all masks; NULL: they are checked alone */
    int64_t targets;    /* pixels of a mask */
    bool is_mask_check; /* images are not looked at */
    _Atomic size_t next;
    pthread_mutex_t lock; /* of what follows */
    bad_image *bad;       /* (KEPT), by index */
    size_t kept, found;   /* of bad images: those in the list, all of them */
    size_t resizable;     /* of these: those that only have another size; the first one is: */
    bad_image other_size;
    rg_mask_classes present;
} pass;

static void set_bad(bad_image *bad, size_t index, rg_status status)
{
    *bad = (bad_image){ .index = index, .status = status };
    snprintf(bad->text, SENTENCE, "%s", rg_error_text());
}

/* Keeps those that come first, in their order, whichever thread finds them. Of those that only have
 * another size, of which there may be very many, one is enough. */
static void keep_bad(pass *p, size_t index, rg_status status, bool is_resizable)
{
    pthread_mutex_lock(&p->lock);
    p->found++;
    size_t at = p->kept;
    if (is_resizable) {
        if (p->resizable++ == 0 || index < p->other_size.index)
            set_bad(&p->other_size, index, status);
        at = KEPT;
    } else if (at < KEPT) {
        p->kept++;
    } else if (index < p->bad[KEPT - 1].index) {
        at = KEPT - 1;
    }
    if (at < KEPT) {
        for (; at > 0 && p->bad[at - 1].index > index; at--)
            p->bad[at] = p->bad[at - 1];
        set_bad(&p->bad[at], index, status);
    }
    pthread_mutex_unlock(&p->lock);
}

/* Decodes or checks one image and its mask. */
static rg_status pass_item(pass *p, size_t i, rg_decoder *decoder, rg_mask_classes *present)
{
    if (!p->is_mask_check)
        RG_TRY(p->pixels != NULL
                   ? rg_items_decode(p->items, i, decoder, p->pixels + i * p->image_bytes)
                   : check_item(p->items, i, decoder));
    if (!p->items->has_masks)
        return RG_OK;
    return rg_items_check_mask(p->items, i, decoder, decoder->was, present,
                               p->classes != NULL ? p->classes + (int64_t)i * p->targets : NULL);
}

static bool is_other_size(const pass *p, rg_extent size)
{
    const rg_image_form *form = &p->items->form;
    return !p->is_mask_check && !form->resize && size.height > 0 &&
           (size.height != form->size.height || size.width != form->size.width);
}

static void *pass_main(void *context)
{
    pass *p = context;
    rg_decoder decoder = { 0 };
    rg_mask_classes present = { .largest = -1 };
    for (size_t i; (i = atomic_fetch_add(&p->next, 1)) < p->items->count;) {
        decoder.was = (rg_extent){ 0, 0 };
        const rg_status status = pass_item(p, i, &decoder, &present);
        if (status != RG_OK)
            keep_bad(p, i, status, is_other_size(p, decoder.was));
    }
    pthread_mutex_lock(&p->lock);
    rg_mask_classes_join(&p->present, &present);
    pthread_mutex_unlock(&p->lock);
    rg_decoder_release(&decoder);
    return NULL;
}

int32_t rg_decoder_threads(int32_t asked)
{
    enum { MOST = 16 };
    cpu_set_t allowed;
    if (asked > 0)
        return asked < 64 ? asked : 64;
    const int count = sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : 1;
    return count < MOST ? count : MOST;
}

/* Names the bad images, and fails with one sentence. */
static rg_status tell_bad(const pass *p, const rg_dataset_options *options)
{
    const size_t others = p->found - p->resizable;
    if (p->found == 0)
        return RG_OK;
    const bool is_size = others == 0 || (p->resizable > 0 && p->other_size.index < p->bad[0].index);
    const bad_image *first = is_size ? &p->other_size : &p->bad[0];
    if (p->found == 1)
        return rg_fail(first->status, "%s", first->text);
    for (size_t i = 0; i < p->kept; i++)
        rg_dataset_say(options, "%s", p->bad[i].text);
    if (others > p->kept)
        rg_dataset_say(options, "… and %zu more", others - p->kept);
    if (others > 0 && p->resizable > 0)
        rg_dataset_say(options, "%zu images have another size than the first one", p->resizable);
    return rg_fail(first->status, "%zu of %zu images cannot be used; the first is %s", p->found,
                   p->items->count, first->text);
}

static rg_status pass_over(pass *p, const rg_dataset_options *options)
{
    enum { MOST = 64 };
    pthread_t threads[MOST];
    int32_t started = 0;
    const int32_t wanted = rg_decoder_threads(options->threads);
    p->present.largest = -1;
    RG_TRY(rg_allocate_array(KEPT, sizeof *p->bad, &p->bad));
    pthread_mutex_init(&p->lock, NULL);
    while (started < wanted - 1 && started + 1 < (int64_t)p->items->count &&
           rg_thread_start(&threads[started], pass_main, p))
        started++;
    (void)pass_main(p);
    for (int32_t i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    pthread_mutex_destroy(&p->lock);
    const rg_status status = tell_bad(p, options);
    rg_release(memory, p->bad, KEPT * sizeof *p->bad);
    return status;
}

/* ---- a data set ---- */

void rg_dataset_say(const rg_dataset_options *options, const char *format, ...)
{
    char text[600];
    va_list values;
    if (options->say == NULL)
        return;
    va_start(values, format);
    vsnprintf(text, sizeof text, format, values);
    va_end(values);
    options->say(options->context, text);
}

/* The first image that can be read decides about colours, and about the size if none is given. */
static rg_status find_form(rg_items *items, const rg_dataset_options *options)
{
    rg_decoder decoder = { 0 };
    rg_image_header header = { 0 };
    rg_status status = RG_OK, first = RG_OK;
    for (size_t i = 0; i < items->count && i < KEPT; i++) {
        status = read_header(items, &items->list[i], &decoder, &header);
        if (status == RG_OK)
            break;
        first = blame(items, &items->list[i], status);
    }
    rg_decoder_release(&decoder);
    RG_TRY(status == RG_OK ? RG_OK : first);
    const bool resize = options->height > 0;
    items->form = (rg_image_form){
        .size = resize ? (rg_extent){ options->height, options->width } : header.size,
        .channels = options->channels > 0 ? (int)options->channels : header.channels,
        .resize = resize
    };
    return RG_OK;
}

/* Masks are decoded with their images, in memory or not. */
static rg_status make_labels(const rg_items *items, rg_dataset *set, bool in_memory)
{
    if (items->has_masks)
        return in_memory ? rg_allocate_array(items->count * (size_t)set->info.targets,
                                             sizeof *set->labels, &set->labels)
                         : RG_OK;
    RG_TRY(rg_allocate_array(items->count, sizeof *set->labels, &set->labels));
    for (size_t i = 0; i < items->count; i++)
        set->labels[i] = items->list[i].label;
    return RG_OK;
}

rg_status rg_items_check_masks(rg_items *items, const rg_dataset_options *options)
{
    pass p = { .items = items, .is_mask_check = true };
    RG_TRY(pass_over(&p, options));
    rg_mask_classes_join(&items->present, &p.present);
    return RG_OK;
}

/* Bytes of all pixels, and of all masks. */
static rg_status count_bytes(const rg_items *items, rg_dataset *set, size_t *bytes)
{
    size_t masks = (size_t)set->info.height * sizeof *set->labels;
    RG_TRY(rg_dataset_check(set, bytes));
    if (!items->has_masks)
        return RG_OK;
    set->info.target = RG_TARGET_MASK;
    set->info.targets = set->info.height * set->info.width;
    RG_CHECK(set->info.targets <= INT32_MAX &&
                 rg_multiply((size_t)set->info.width, masks, &masks) &&
                 rg_multiply(items->count, masks, &masks) && masks <= INT64_MAX - *bytes,
             RG_MALFORMED, "masks of %lld x %lld pixels are too large", (long long)set->info.height,
             (long long)set->info.width);
    *bytes += masks;
    return RG_OK;
}

static rg_status fill(rg_items *items, const rg_dataset_options *options, rg_dataset *set)
{
    size_t bytes = 0;
    RG_TRY(find_form(items, options));
    set->info.count = (int64_t)items->count;
    set->info.height = items->form.size.height;
    set->info.width = items->form.size.width;
    set->info.channels = items->form.channels;
    set->info.dtype = RG_U8;
    set->resized = items->form.resize;
    set->decoded = true;
    RG_TRY(count_bytes(items, set, &bytes));
    pass p = { .items = items, .image_bytes = set->image_bytes, .targets = set->info.targets };
    const bool in_memory = bytes <= (uint64_t)options->memory_bytes;
    RG_TRY(make_labels(items, set, in_memory));
    if (in_memory) {
        RG_TRY(rg_dataset_allocate(set, UINT64_MAX));
        p.pixels = (unsigned char *)set->pixels;
        p.classes = items->has_masks ? set->labels : NULL;
    }
    RG_TRY(pass_over(&p, options));
    if (items->has_masks) {
        RG_TRY(rg_items_settle_classes(items, &p.present, p.classes,
                                       set->info.count * set->info.targets));
        set->info.classes = items->classes;
    }
    if (p.pixels == NULL) {
        set->items = items;
        rg_dataset_say(options, "%lld images are read while training: decoded they have %.1f GB",
                       (long long)set->info.count, (double)bytes * 1e-9);
    }
    return RG_OK;
}

rg_status rg_items_use(rg_items *items, const rg_dataset_options *options, rg_dataset *set)
{
    const rg_status status = fill(items, options, set);
    if (set->items != items)
        rg_items_destroy(items);
    return status;
}
