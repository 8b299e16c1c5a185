/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Masks as PNG images. Samples are read as the file has them: libpng's simple interface, which
 * images are read with, would scale grey ones of few bits, apply transparency, and look up
 * palettes. */
#include "train/mask_image.h"
#include "train/png_image.h"

#include <string.h>
#if RG_HAVE_PNG
#include <png.h>
#endif

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

#if RG_HAVE_PNG
typedef struct reader {
    const rg_png *png;
    size_t at; /* in the chunks */
    png_structp file;
    png_infop info;
    char text[160];
} reader;

static void on_error(png_structp file, png_const_charp text)
{
    reader *r = png_get_error_ptr(file);
    snprintf(r->text, sizeof r->text, "%s", text);
    png_longjmp(file, 1);
}

static void on_warning(png_structp file, png_const_charp text)
{
    (void)file;
    (void)text;
}

static void read_bytes(png_structp file, png_bytep to, size_t size)
{
    reader *r = png_get_io_ptr(file);
    if (size > r->png->kept_bytes - r->at)
        png_error(file, "the file ends within the image");
    memcpy(to, r->png->kept + r->at, size);
    r->at += size;
}

static rg_status no_memory(void)
{
    return rg_fail(RG_OUT_OF_MEMORY, "out of memory for a PNG image");
}

/* All passes of an interlaced image, each over all rows. */
static void read_rows(reader *r, unsigned char *to, size_t row_bytes, int passes)
{
    for (int pass = 0; pass < passes; pass++) {
        for (int64_t i = 0; i < r->png->height; i++)
            png_read_row(r->file, to + (size_t)i * row_bytes, NULL);
    }
    png_read_end(r->file, NULL);
}

static rg_status read_samples(reader *r, size_t row_bytes, unsigned char *to, int32_t *colours)
{
    png_colorp palette = NULL;
    int count = 0;
    if (setjmp(png_jmpbuf(r->file)) != 0)
        return rg_fail(RG_MALFORMED, "cannot read the PNG image: %s", r->text);
    png_set_read_fn(r->file, r, read_bytes);
    png_read_info(r->file, r->info);
    png_set_packing(r->file); /* one byte for each sample of fewer bits, which is not scaled */
    const int passes = png_set_interlace_handling(r->file);
    png_read_update_info(r->file, r->info);
    if (png_get_image_width(r->file, r->info) != r->png->width ||
        png_get_image_height(r->file, r->info) != r->png->height ||
        png_get_rowbytes(r->file, r->info) != row_bytes)
        return rg_fail(RG_MALFORMED, "the PNG image has two headers");
    if (r->png->indexed)
        (void)png_get_PLTE(r->file, r->info, &palette, &count);
    *colours = count;
    read_rows(r, to, row_bytes, passes);
    return RG_OK;
}

static rg_status read_image(const rg_png *png, size_t row_bytes, unsigned char *to,
                            int32_t *colours)
{
    reader r = { .png = png };
    r.file = png_create_read_struct(PNG_LIBPNG_VER_STRING, &r, on_error, on_warning);
    if (r.file == NULL)
        return no_memory();
    r.info = png_create_info_struct(r.file);
    const rg_status status =
        r.info != NULL ? read_samples(&r, row_bytes, to, colours) : no_memory();
    png_destroy_read_struct(&r.file, &r.info, NULL);
    return status;
}

#else

static rg_status read_image(const rg_png *png, size_t row_bytes, unsigned char *to,
                            int32_t *colours)
{
    (void)row_bytes;
    *colours = 0;
    return rg_png_pixels(png, 1, to); /* whose sentence says what is missing */
}
#endif

/* Indices beyond the palette name no colour. */
static rg_status check_indices(const rg_mask *mask, int32_t colours)
{
    const int64_t width = mask->size.width;
    for (int64_t i = 0; i < mask->size.height * width; i++)
        RG_CHECK(mask->samples[i] < colours || mask->samples[i] == mask->ignored, RG_MALFORMED,
                 "the pixel at row %lld, column %lld has palette index %u, but the palette has %d "
                 "colours",
                 (long long)(i / width), (long long)(i % width), mask->samples[i], colours);
    return RG_OK;
}

static rg_status read_mask(rg_decoder *d, const rg_png *png, rg_mask *mask)
{
    int32_t colours = 0;
    RG_TRY(check_kind(png));
    mask->size = (rg_extent){ png->height, png->width };
    mask->sample_bytes = png->depth > 8 ? 2 : 1;
    mask->ignored = png->depth < 8 ? -1 : png->depth == 8 ? 255 : 65535;
    const size_t row_bytes = (size_t)(png->width * mask->sample_bytes);
    RG_TRY(rg_buffer_fit(&d->pixels, (size_t)png->height * row_bytes));
    RG_TRY(read_image(png, row_bytes, d->pixels.data, &colours));
    mask->samples = d->pixels.data;
    return png->indexed ? check_indices(mask, colours) : RG_OK;
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
