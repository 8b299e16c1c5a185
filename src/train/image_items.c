/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Lists of images: making them, decoding one, checking one. */
#include "train/image_items.h"
#include "train/data_source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

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
    RG_TRY(rg_image_open(path, file, &all));
    const bool there = item->at <= all && item->size <= all - item->at;
    *size = item->size > 0 ? item->size : all;
    if (there)
        return RG_OK;
    rg_regular_close(*file);
    return rg_fail(RG_MALFORMED, "the file has become shorter since it was opened");
}

uint64_t rg_items_size(const rg_items *items, size_t index)
{
    const rg_item *item = &items->list[index];
    char path[RG_DATASET_PATH];
    struct stat info;
    if (item->size > 0)
        return item->size;
    const bool found = rg_path_join(path, items->root, items->files[item->file]) == RG_OK &&
                       stat(path, &info) == 0;
    return found ? (uint64_t)info.st_size : 0;
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
    if (status != RG_OK)
        return blame(items, item, status);
    rg_decode_budget_take(decoder->budget, RG_DECODE_FILES, size);
    status = rg_decoder_read(decoder, file, item->at, size);
    rg_regular_close(file);
    if (status == RG_OK)
        status = rg_image_decode(decoder, decoder->bytes.data, (size_t)size, &items->form, to);
    rg_decoder_shrink(decoder);
    rg_decode_budget_give(decoder->budget, RG_DECODE_FILES, size);
    return blame(items, item, status);
}

/* Checks that an image ends where its file does. Of a large file only the end is looked at, unless
 * something follows the image. */
static rg_status check_end(const rg_items *items, const rg_item *item, rg_decoder *decoder,
                           uint64_t part)
{
    char tail[RG_IMAGE_TAIL];
    uint64_t size;
    int file;
    RG_TRY(open_item(items, item, &file, &size));
    rg_status status = RG_OK;
    if (part < size) {
        status = rg_regular_read(file, item->at + size - sizeof tail, tail, sizeof tail);
        if (status == RG_OK && rg_image_has_end(decoder->bytes.data, (size_t)part, tail, size)) {
            rg_regular_close(file);
            return RG_OK;
        }
        if (status == RG_OK)
            status = rg_decoder_read(decoder, file, item->at, size);
    }
    rg_regular_close(file);
    return status == RG_OK ? rg_image_check_end(decoder->bytes.data, (size_t)size) : status;
}

/* Reads the header of an image: first a small part of the file, then all of it if needed. *part
 * bytes are in the decoder then. */
static rg_status read_header(const rg_items *items, const rg_item *item, rg_decoder *decoder,
                             rg_image_header *header, uint64_t *part)
{
    enum { PART = 1 << 16 };
    uint64_t size;
    int file;
    bool more = false;
    RG_TRY(open_item(items, item, &file, &size));
    *part = size < PART ? size : PART;
    rg_status status = rg_decoder_read(decoder, file, item->at, *part);
    if (status == RG_OK)
        status = rg_image_read_header(decoder->bytes.data, (size_t)*part, size, header, &more);
    if (status != RG_OK && more) {
        *part = size;
        status = rg_decoder_read(decoder, file, item->at, size);
        if (status == RG_OK)
            status = rg_image_read_header(decoder->bytes.data, (size_t)size, size, header, &more);
    }
    rg_regular_close(file);
    return status;
}

rg_status rg_items_read_header(const rg_items *items, size_t index, rg_decoder *decoder,
                               rg_image_header *header)
{
    uint64_t part;
    const rg_item *item = &items->list[index];
    return blame(items, item, read_header(items, item, decoder, header, &part));
}

rg_status rg_items_check(const rg_items *items, size_t index, rg_decoder *decoder)
{
    const rg_item *item = &items->list[index];
    const rg_image_form *form = &items->form;
    rg_image_header header = { 0 };
    uint64_t part = 0;
    rg_status status = read_header(items, item, decoder, &header, &part);
    decoder->was = header.size;
    if (status == RG_OK && !form->resize &&
        (header.size.height != form->size.height || header.size.width != form->size.width))
        status = rg_fail(RG_MALFORMED,
                         "the image has %lld x %lld pixels, but the first image has %lld x %lld; a "
                         "size for all images resizes them (train --size)",
                         (long long)header.size.height, (long long)header.size.width,
                         (long long)form->size.height, (long long)form->size.width);
    else if (status == RG_OK)
        status = check_end(items, item, decoder, part);
    return blame(items, item, status);
}
