/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* JPEG images. Errors of libjpeg come back by longjmp; warnings that mean lost pixels are errors,
 * others are ignored, as other programs do. */
#include "train/jpeg_image.h"
#include "train/exif.h"

#if RG_HAVE_JPEG
#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include <jpeglib.h>

#include <jerror.h>

enum {
    LARGEST_SIDE = 65500,  /* of the format */
    PIXELS_PER_BYTE = 512, /* at most: each block of 8 x 8 takes a bit or more */
    MOST_SCANS = 500       /* of a progressive image: each one passes over all pixels */
};

typedef struct decoder {
    struct jpeg_decompress_struct info;
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    jmp_buf back;
    char text[JMSG_LENGTH_MAX];
    bool at_end; /* the input ended */
    bool damaged;
} decoder;

/* ---- what libjpeg calls ---- */

static void on_error(j_common_ptr info)
{
    decoder *d = info->client_data;
    info->err->format_message(info, d->text);
    longjmp(d->back, 1);
}

static void on_message(j_common_ptr info, int level)
{
    decoder *d = info->client_data;
    const int code = info->err->msg_code;
    const bool lost = code == JWRN_JPEG_EOF || code == JWRN_HIT_MARKER ||
                      code == JWRN_HUFF_BAD_CODE || code == JWRN_MUST_RESYNC ||
                      code == JWRN_BOGUS_PROGRESSION;
    if (level < 0 && lost && !d->damaged) {
        d->damaged = true;
        info->err->format_message(info, d->text);
    }
}

static void on_progress(j_common_ptr info)
{
    decoder *d = info->client_data;
    if (d->info.input_scan_number <= MOST_SCANS)
        return;
    snprintf(d->text, sizeof d->text, "the image has more than %d scans", MOST_SCANS);
    longjmp(d->back, 1);
}

static void nothing(j_decompress_ptr info)
{
    (void)info;
}

static boolean fill(j_decompress_ptr info)
{
    decoder *d = info->client_data;
    d->at_end = true;
    snprintf(d->text, sizeof d->text, "the file ends within the image");
    longjmp(d->back, 1);
}

static void skip(j_decompress_ptr info, long count)
{
    if (count <= 0)
        return;
    if ((size_t)count > info->src->bytes_in_buffer)
        (void)fill(info);
    info->src->next_input_byte += count;
    info->src->bytes_in_buffer -= (size_t)count;
}

/* ---- decoding ---- */

static void begin(decoder *d, struct jpeg_source_mgr *source, const void *bytes, size_t size)
{
    d->info.err = jpeg_std_error(&d->errors);
    d->errors.error_exit = on_error;
    d->errors.emit_message = on_message;
    d->info.client_data = d;
    jpeg_create_decompress(&d->info);
    d->info.client_data = d; /* which creation has cleared */
    d->progress.progress_monitor = on_progress;
    d->info.progress = &d->progress;
    *source = (struct jpeg_source_mgr){ .next_input_byte = bytes,
                                        .bytes_in_buffer = size,
                                        .init_source = nothing,
                                        .fill_input_buffer = fill,
                                        .skip_input_data = skip,
                                        .resync_to_restart = jpeg_resync_to_restart,
                                        .term_source = nothing };
    d->info.src = source;
}

static rg_status check_header(const decoder *d, uint64_t file_size)
{
    const uint64_t height = d->info.image_height, width = d->info.image_width;
    const int components = d->info.num_components;
    RG_CHECK(height > 0 && width > 0 && height <= LARGEST_SIDE && width <= LARGEST_SIDE,
             RG_MALFORMED, "the image declares %llu x %llu pixels", (unsigned long long)height,
             (unsigned long long)width);
    RG_CHECK(!d->info.arith_code, RG_UNSUPPORTED,
             "JPEG images with arithmetic coding are not supported");
    RG_CHECK(components == 1 || components == 3 || components == 4, RG_UNSUPPORTED,
             "JPEG images of %d components are not supported", components);
    RG_CHECK(height * width / PIXELS_PER_BYTE <= file_size, RG_MALFORMED,
             "an image of %llu x %llu pixels cannot be compressed into %llu bytes",
             (unsigned long long)height, (unsigned long long)width, (unsigned long long)file_size);
    return RG_OK;
}

/* Of an image in several scans libjpeg keeps all coefficients, of 2 bytes, in blocks of 8 x 8. */
static uint64_t kept_bytes(j_decompress_ptr info)
{
    uint64_t bytes = 0;
    if (!jpeg_has_multiple_scans(info))
        return 0;
    for (int i = 0; i < info->num_components; i++) {
        const jpeg_component_info *c = &info->comp_info[i];
        const uint64_t across = (uint64_t)(info->max_h_samp_factor * DCTSIZE);
        const uint64_t down = (uint64_t)(info->max_v_samp_factor * DCTSIZE);
        const uint64_t columns = (info->image_width + across - 1) / across;
        const uint64_t rows = (info->image_height + down - 1) / down;
        bytes += columns * rows * (uint64_t)(c->h_samp_factor * c->v_samp_factor) * 2 * DCTSIZE2;
    }
    return bytes;
}

rg_status rg_jpeg_header(const void *bytes, size_t size, uint64_t file_size, rg_jpeg *jpeg,
                         bool *more)
{
    decoder d = { .at_end = false };
    struct jpeg_source_mgr source;
    rg_status status = RG_OK;
    *more = false;
    if (setjmp(d.back) == 0) {
        begin(&d, &source, bytes, size);
        (void)jpeg_read_header(&d.info, TRUE);
        status = check_header(&d, file_size);
        *jpeg = (rg_jpeg){ .height = d.info.image_height,
                           .width = d.info.image_width,
                           .channels = d.info.num_components == 1 ? 1 : 3,
                           .orientation = rg_exif_orientation(bytes, size),
                           .kept_bytes = kept_bytes(&d.info) };
    } else {
        *more = d.at_end && size < file_size;
        status = rg_fail(RG_MALFORMED, "cannot read the JPEG image: %s", d.text);
    }
    jpeg_destroy_decompress(&d.info);
    return status;
}

/* Rows of C, M, Y, K, which Adobe's programs store inverted, in place. */
static void make_rgb(unsigned char *row, int64_t width, bool inverted)
{
    const unsigned char flip = inverted ? 0 : 255;
    for (int64_t i = 0; i < width; i++) {
        const unsigned key = row[4 * i + 3] ^ flip;
        for (int c = 0; c < 3; c++)
            row[3 * i + c] = (unsigned char)(((row[4 * i + c] ^ flip) * key + 127) / 255);
    }
}

static void read_rows(decoder *d, unsigned char *row, rg_jpeg_take *take, void *context)
{
    const int64_t width = d->info.output_width;
    while (d->info.output_scanline < d->info.output_height) {
        const int64_t i = d->info.output_scanline;
        JSAMPROW rows[1] = { row };
        (void)jpeg_read_scanlines(&d->info, rows, 1);
        if (d->info.output_components == 4)
            make_rgb(row, width, d->info.saw_Adobe_marker);
        take(context, i, row);
    }
}

rg_status rg_jpeg_rows(const void *bytes, size_t size, const rg_jpeg *jpeg, rg_jpeg_take *take,
                       void *context)
{
    decoder d = { .at_end = false };
    struct jpeg_source_mgr source;
    void *row = NULL;
    const size_t row_bytes = 4 * (size_t)jpeg->width;
    RG_TRY(rg_allocate(&rg_default_allocator, row_bytes, &row));
    rg_status status = RG_OK;
    if (setjmp(d.back) == 0) {
        begin(&d, &source, bytes, size);
        (void)jpeg_read_header(&d.info, TRUE);
        const int components = d.info.num_components;
        d.info.out_color_space = components == 1   ? JCS_GRAYSCALE
                                 : components == 4 ? JCS_CMYK
                                                   : JCS_RGB;
        (void)jpeg_start_decompress(&d.info);
        if (d.info.output_width == jpeg->width && d.info.output_height == jpeg->height)
            read_rows(&d, row, take, context);
        (void)jpeg_finish_decompress(&d.info);
    } else {
        d.damaged = true;
    }
    if (d.damaged)
        status = rg_fail(RG_MALFORMED, "cannot read the JPEG image: %s", d.text);
    jpeg_destroy_decompress(&d.info);
    rg_release(&rg_default_allocator, row, row_bytes);
    return status;
}

typedef struct copied_rows {
    unsigned char *to;
    size_t bytes; /* of a row */
} copied_rows;

static void copy_row(void *context, int64_t i, const unsigned char *row)
{
    const copied_rows *c = context;
    memcpy(c->to + (size_t)i * c->bytes, row, c->bytes);
}

rg_status rg_jpeg_pixels(const void *bytes, size_t size, const rg_jpeg *jpeg, unsigned char *to)
{
    copied_rows rows = { to, (size_t)(jpeg->width * jpeg->channels) };
    return rg_jpeg_rows(bytes, size, jpeg, copy_row, &rows);
}

#else

static rg_status no_library(void)
{
    return rg_fail(RG_UNSUPPORTED,
                   "this build of retrograde cannot read JPEG images: it has no libjpeg");
}

rg_status rg_jpeg_header(const void *bytes, size_t size, uint64_t file_size, rg_jpeg *jpeg,
                         bool *more)
{
    (void)bytes;
    (void)size;
    (void)file_size;
    *jpeg = (rg_jpeg){ 0 };
    *more = false;
    return no_library();
}

rg_status rg_jpeg_pixels(const void *bytes, size_t size, const rg_jpeg *jpeg, unsigned char *to)
{
    (void)bytes;
    (void)size;
    (void)jpeg;
    (void)to;
    return no_library();
}

rg_status rg_jpeg_rows(const void *bytes, size_t size, const rg_jpeg *jpeg, rg_jpeg_take *take,
                       void *context)
{
    (void)bytes;
    (void)size;
    (void)jpeg;
    (void)take;
    (void)context;
    return no_library();
}
#endif
