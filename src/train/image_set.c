/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Data sets of lists of images: their form, whether they fit in memory, and filling them. */
#include "train/image_pass.h"

#include "core/text.h"

#include <stdarg.h>
#include <stdio.h>

void rg_dataset_say(const rg_dataset_options *options, const char *format, ...)
{
    char text[600];
    va_list values;
    if (options->say == NULL)
        return;
    va_start(values, format);
    vsnprintf(text, sizeof text, format, values);
    va_end(values);
    rg_text_clean(text);
    options->say(options->context, text);
}

void rg_dataset_say_skipped(const rg_dataset_options *options, const char *path, int64_t files)
{
    if (files > 0)
        rg_dataset_say(options, "%s: %lld %s skipped, because %s", path, (long long)files,
                       files == 1 ? "file is" : "files are",
                       files == 1 ? "it is not a PNG, JPEG or WebP image"
                                  : "they are not PNG, JPEG or WebP images");
}

/* The first image that can be read decides about the size if none is given. All are grey, unless
 * one of them has colours. */
static rg_status find_form(rg_items *items, const rg_dataset_options *options)
{
    enum { TRIED = 100 };
    rg_decoder decoder = { 0 };
    rg_image_header header = { 0 };
    rg_status status = RG_OK;
    for (size_t i = 0; i < items->count && i < TRIED; i++) {
        status = rg_items_read_header(items, i, &decoder, &header);
        if (status == RG_OK)
            break;
    }
    rg_decoder_release(&decoder);
    RG_TRY(status);
    const bool resize = options->height > 0;
    rg_image_pass look = { .items = items, .kind = RG_PASS_COLOURS };
    if (options->channels == 0 && header.channels == 1)
        RG_TRY(rg_image_pass_over(&look, options));
    items->form = (rg_image_form){ .size = resize ? (rg_extent){ options->height, options->width }
                                                  : header.size,
                                   .channels = options->channels > 0 ? (int)options->channels
                                               : look.has_colours    ? 3
                                                                     : header.channels,
                                   .resize = resize };
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
    rg_image_pass p = { .items = items, .kind = RG_PASS_MASKS };
    RG_TRY(rg_image_pass_over(&p, options));
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
    set->threads = options->threads;
    RG_TRY(rg_dataset_keep_files(set, items));
    RG_TRY(count_bytes(items, set, &bytes));
    rg_image_pass p = { .items = items,
                        .image_bytes = set->image_bytes,
                        .targets = set->info.targets };
    const bool in_memory = bytes <= (uint64_t)options->memory_bytes;
    RG_TRY(make_labels(items, set, in_memory));
    if (in_memory) {
        RG_TRY(rg_dataset_allocate(set, UINT64_MAX));
        p.pixels = (unsigned char *)set->pixels;
        p.classes = items->has_masks ? set->labels : NULL;
    }
    RG_TRY(rg_image_pass_over(&p, options));
    if (items->has_masks) {
        RG_TRY(rg_items_settle_classes(items, &p.present, p.classes,
                                       set->info.count * set->info.targets));
        set->info.classes = items->classes;
    }
    if (p.pixels == NULL) {
        set->items = items;
        rg_dataset_say(options, "%lld images are read while training: decoded they have %.*f %s",
                       (long long)set->info.count, bytes < 1000000000 ? 0 : 1,
                       (double)bytes * (bytes < 1000000000 ? 1e-6 : 1e-9),
                       bytes < 1000000000 ? "MB" : "GB");
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
