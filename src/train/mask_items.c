/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The masks of lists of images: reading one, and the classes of all of them. */
#include "train/data_source.h"
#include "train/image_items.h"

/* ---- one mask ---- */

/* Reads the file of a mask, whose bytes live in the decoder. */
static rg_status read_file(const char *path, rg_decoder *decoder, uint64_t *size)
{
    int file;
    RG_TRY(rg_image_open(path, &file, size));
    const rg_status status = rg_decoder_read(decoder, file, 0, *size);
    rg_regular_close(file);
    return status;
}

/* With the size of its image, which is checked before there is memory for pixels. */
static rg_status read_mask(const char *path, rg_decoder *decoder, rg_extent image, rg_mask *mask)
{
    uint64_t size;
    rg_extent own;
    RG_TRY(read_file(path, decoder, &size));
    RG_TRY(rg_mask_read_size(decoder->bytes.data, (size_t)size, &own));
    RG_CHECK(image.height == 0 || (own.height == image.height && own.width == image.width),
             RG_MALFORMED, "the mask has %lld x %lld pixels, but its image has %lld x %lld",
             (long long)own.height, (long long)own.width, (long long)image.height,
             (long long)image.width);
    return rg_mask_read(decoder, decoder->bytes.data, (size_t)size, mask);
}

static rg_status path_of(const rg_items *items, size_t index, char path[RG_DATASET_PATH])
{
    return rg_path_join(path, items->root, items->files[items->list[index].label]);
}

static rg_mask_form form_of(const rg_items *items)
{
    return (rg_mask_form){ .size = items->form.size, .marks_are_ones = items->marks_are_ones };
}

rg_status rg_items_decode_mask(const rg_items *items, size_t index, rg_decoder *decoder,
                               int32_t *to)
{
    const rg_mask_form form = form_of(items);
    const int64_t count = form.size.height * form.size.width;
    char path[RG_DATASET_PATH];
    rg_mask mask;
    RG_TRY(path_of(items, index, path));
    rg_status status = read_mask(path, decoder, decoder->was, &mask);
    if (status == RG_OK)
        rg_mask_write(&mask, &form, to);
    for (int64_t i = 0; i < count && status == RG_OK; i++) {
        if (to[i] >= items->classes) /* the file has changed since it was checked */
            status = rg_fail(RG_MALFORMED, "a pixel has the class %d, but there are %d classes",
                             to[i], items->classes);
    }
    if (status != RG_OK)
        rg_path_prefix(path);
    return status;
}

static rg_status check_mask(const rg_items *items, const rg_mask *mask, rg_mask_classes *present)
{
    rg_mask_classes own = { .largest = -1 };
    rg_mask_add_classes(mask, &own);
    RG_CHECK(items->classes == 0 || own.largest < items->classes, RG_MALFORMED,
             "a pixel has the class %d, but classes.txt names %d classes", own.largest,
             items->classes);
    RG_CHECK(own.largest < RG_DATASET_CLASSES, RG_UNSUPPORTED, "a pixel has the class %d",
             own.largest);
    rg_mask_classes_join(present, &own);
    return RG_OK;
}

rg_status rg_items_check_mask(const rg_items *items, size_t index, rg_decoder *decoder,
                              rg_extent image, rg_mask_classes *present, int32_t *to)
{
    const rg_mask_form form = form_of(items);
    char path[RG_DATASET_PATH];
    rg_mask mask;
    RG_TRY(path_of(items, index, path));
    rg_status status = read_mask(path, decoder, image, &mask);
    if (status == RG_OK)
        status = check_mask(items, &mask, present);
    if (status == RG_OK && to != NULL)
        rg_mask_write(&mask, &form, to);
    if (status != RG_OK)
        rg_path_prefix(path);
    return status;
}

/* ---- the classes of all ---- */

/* Masks of 0 and 255 alone have two classes: 255 marks pixels to be ignored only beside others. */
static bool are_marks_ones(const rg_items *items)
{
    return items->present.largest == 0 && items->present.has_ignored &&
           (items->classes == 0 || items->classes == 2);
}

rg_status rg_items_settle_classes(rg_items *items, const rg_mask_classes *mine, int32_t *to,
                                  int64_t count)
{
    rg_mask_classes_join(&items->present, mine);
    items->marks_are_ones = are_marks_ones(items);
    if (!items->marks_are_ones && mine->largest < 0) {
        (void)rg_fail(RG_MALFORMED, "all pixels of the masks are ignored");
        rg_path_prefix(items->root);
        return RG_MALFORMED;
    }
    for (int64_t i = 0; i < count && to != NULL && items->marks_are_ones; i++)
        to[i] = to[i] == RG_DATASET_IGNORED ? 1 : to[i];
    if (items->classes == 0)
        items->classes = items->marks_are_ones ? 2 : items->present.largest + 1;
    return RG_OK;
}
