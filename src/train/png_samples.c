/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Samples of PNG images by libpng's functions for rows. Its simple interface would scale grey ones
 * of few bits in masks and look up palettes, and does not put the passes of an interlaced image of
 * 16 bits together. */
#include "train/png_samples.h"

#include <string.h>
#if RG_HAVE_PNG
#include <png.h>
#endif

int rg_png_most_bytes(const rg_png *png, rg_png_form form)
{
    static const int samples[7] = { 1, 0, 3, 1, 2, 0, 4 };
    if (form == RG_PNG_RAW)
        return samples[png->kind] * (png->depth > 8 ? 2 : 1);
    return png->indexed ? 1 : png->channels + 1;
}

rg_status rg_png_bad_index(int64_t row, int64_t column, unsigned index, int32_t colours)
{
    return rg_fail(RG_MALFORMED,
                   "the pixel at row %lld, column %lld has palette index %u, but the palette has "
                   "%d colours",
                   (long long)row, (long long)column, index, colours);
}

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

/* Grey samples of few bits are scaled to 0 to 255, and 16 bits to 8. */
static void set_form(reader *r, rg_png_form form)
{
    png_set_packing(r->file);
    if (form == RG_PNG_RAW || r->png->indexed)
        return;
    if (r->png->depth < 8)
        png_set_expand_gray_1_2_4_to_8(r->file);
    if (png_get_valid(r->file, r->info, PNG_INFO_tRNS) != 0)
        png_set_tRNS_to_alpha(r->file);
    png_set_scale_16(r->file);
}

static void read_palette(reader *r, rg_png_palette *palette)
{
    png_colorp colours = NULL;
    png_bytep opacities = NULL;
    int count = 0, opaque_from = 0;
    (void)png_get_PLTE(r->file, r->info, &colours, &count);
    if (png_get_valid(r->file, r->info, PNG_INFO_tRNS) != 0)
        (void)png_get_tRNS(r->file, r->info, &opacities, &opaque_from, NULL);
    for (int i = 0; i < count; i++) {
        const unsigned char rgba[4] = { colours[i].red, colours[i].green, colours[i].blue,
                                        i < opaque_from ? opacities[i] : 255 };
        memcpy(palette->rgba[i], rgba, sizeof rgba);
    }
    palette->count = count;
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

static rg_status read_samples(reader *r, rg_png_form form, unsigned char *to,
                              rg_png_samples *samples)
{
    const size_t width = (size_t)r->png->width;
    if (setjmp(png_jmpbuf(r->file)) != 0)
        return rg_fail(RG_MALFORMED, "cannot read the PNG image: %s", r->text);
    png_set_read_fn(r->file, r, read_bytes);
    png_read_info(r->file, r->info);
    set_form(r, form);
    const int passes = png_set_interlace_handling(r->file);
    png_read_update_info(r->file, r->info);
    const size_t row_bytes = png_get_rowbytes(r->file, r->info);
    if (png_get_image_width(r->file, r->info) != width ||
        png_get_image_height(r->file, r->info) != r->png->height ||
        row_bytes > width * (size_t)rg_png_most_bytes(r->png, form))
        return rg_fail(RG_MALFORMED, "the PNG image has two headers");
    if (r->png->indexed)
        read_palette(r, &samples->palette);
    samples->pixel_bytes = (int)(row_bytes / width);
    read_rows(r, to, row_bytes, passes);
    return RG_OK;
}

rg_status rg_png_read_samples(const rg_png *png, rg_png_form form, unsigned char *to,
                              rg_png_samples *samples)
{
    reader r = { .png = png };
    *samples = (rg_png_samples){ 0 };
    r.file = png_create_read_struct(PNG_LIBPNG_VER_STRING, &r, on_error, on_warning);
    if (r.file == NULL)
        return no_memory();
    r.info = png_create_info_struct(r.file);
    const rg_status status = r.info != NULL ? read_samples(&r, form, to, samples) : no_memory();
    png_destroy_read_struct(&r.file, &r.info, NULL);
    return status;
}

#else

rg_status rg_png_read_samples(const rg_png *png, rg_png_form form, unsigned char *to,
                              rg_png_samples *samples)
{
    (void)png;
    (void)form;
    (void)to;
    *samples = (rg_png_samples){ 0 };
    return rg_fail(RG_UNSUPPORTED,
                   "this build of retrograde cannot read PNG images: it has no libpng");
}
#endif
