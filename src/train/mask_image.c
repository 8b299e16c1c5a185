/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Masks as PNG images, whose samples are read as the file has them. */
#include "train/mask_image.h"
#include "train/png_samples.h"

/* ---- headers ---- */

static rg_status check_kind(const rg_png *png)
{
    static const char *const others[] = {
        NULL, NULL, "colours", NULL, "opacity", NULL, "colours and opacity"
    };
    RG_CHECK(
        others[png->kind] == NULL, RG_UNSUPPORTED,
        "the mask has %s; masks are PNG images with a palette or of grey pixels, whose numbers "
        "are the classes",
        others[png->kind]);
    return RG_OK;
}

static rg_status check_format(const void *bytes, size_t size)
{
    RG_CHECK(size >= 1 && ((const unsigned char *)bytes)[0] == 0x89, RG_UNSUPPORTED,
             "this is not a PNG image, as masks must be");
    return RG_OK;
}

rg_status rg_mask_read_size(const void *bytes, size_t size, rg_extent *extent)
{
    rg_png png;
    RG_TRY(check_format(bytes, size));
    RG_TRY(rg_png_header(bytes, size, size, &png));
    RG_TRY(check_kind(&png));
    *extent = (rg_extent){ png.height, png.width };
    return RG_OK;
}

/* ---- samples ---- */

/* Indices beyond the palette name no colour. */
static rg_status check_indices(const rg_mask *mask, int32_t colours)
{
    const int64_t width = mask->size.width;
    for (int64_t i = 0; i < mask->size.height * width; i++) {
        if (mask->samples[i] >= colours && mask->samples[i] != mask->ignored)
            return rg_png_bad_index(i / width, i % width, mask->samples[i], colours);
    }
    return RG_OK;
}

static rg_status read_mask(rg_decoder *d, const rg_png *png, rg_mask *mask)
{
    rg_png_samples samples;
    RG_TRY(check_kind(png));
    mask->size = (rg_extent){ png->height, png->width };
    mask->sample_bytes = png->depth > 8 ? 2 : 1;
    mask->ignored = png->depth < 8 ? -1 : png->depth == 8 ? 255 : 65535;
    RG_TRY(rg_buffer_fit(&d->pixels, (size_t)(png->height * png->width * mask->sample_bytes)));
    RG_TRY(rg_png_read_samples(png, RG_PNG_RAW, d->pixels.data, &samples));
    mask->samples = d->pixels.data;
    return png->indexed ? check_indices(mask, samples.palette.count) : RG_OK;
}

rg_status rg_mask_read(rg_decoder *d, const void *bytes, size_t size, rg_mask *mask)
{
    rg_png png;
    RG_TRY(check_format(bytes, size));
    RG_TRY(rg_png_begin(&png, bytes, size));
    const rg_status status = read_mask(d, &png, mask);
    rg_png_end(&png);
    return status;
}

/* ---- classes ---- */

static int32_t class_at(const rg_mask *mask, int64_t i)
{
    const unsigned char *at = mask->samples + i * mask->sample_bytes;
    const int32_t sample = mask->sample_bytes == 2 ? at[0] << 8 | at[1] : at[0];
    return sample == mask->ignored ? RG_DATASET_IGNORED : sample;
}

void rg_mask_add_classes(const rg_mask *mask, rg_mask_classes *classes)
{
    for (int64_t i = 0; i < mask->size.height * mask->size.width; i++) {
        const int32_t class = class_at(mask, i);
        classes->largest = class > classes->largest ? class : classes->largest;
        classes->has_ignored = classes->has_ignored || class == RG_DATASET_IGNORED;
    }
}

void rg_mask_classes_join(rg_mask_classes *classes, const rg_mask_classes *others)
{
    classes->largest = others->largest > classes->largest ? others->largest : classes->largest;
    classes->has_ignored = classes->has_ignored || others->has_ignored;
}

/* The source of element i of a resized row or column: the pixel below its centre. */
static int64_t nearest(int64_t i, int64_t from, int64_t to)
{
    const int64_t at = (2 * i + 1) * from / (2 * to);
    return at < from ? at : from - 1;
}

void rg_mask_write(const rg_mask *mask, const rg_mask_form *form, int32_t *to)
{
    const rg_extent of = mask->size, size = form->size;
    const bool same = of.height == size.height && of.width == size.width;
    const rg_extent whole = same ? of : rg_resize_covering(of, size);
    const int64_t top = (whole.height - size.height) / 2, left = (whole.width - size.width) / 2;
    for (int64_t i = 0; i < size.height; i++) {
        const int64_t row = nearest(i + top, of.height, whole.height);
        for (int64_t j = 0; j < size.width; j++) {
            const int64_t column = nearest(j + left, of.width, whole.width);
            const int32_t class = class_at(mask, row * of.width + column);
            to[i * size.width + j] =
                class == RG_DATASET_IGNORED && form->marks_are_ones ? 1 : class;
        }
    }
}
