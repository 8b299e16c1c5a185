/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Images of all formats: headers, pixels, colours, sizes. */
#include "train/image_file.h"
#include "train/data_source.h"
#include "train/exif.h"
#include "train/jpeg_image.h"
#include "train/png_image.h"
#include "train/webp_image.h"

#include <string.h>
#include <strings.h>

bool rg_image_is_name(const char *name)
{
    static const char *const ends[] = { ".png", ".jpg", ".jpeg", ".webp", ".jfif", ".jpe" };
    const size_t length = strlen(name);
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        const size_t end = strlen(ends[i]);
        if (length > end && strcasecmp(name + length - end, ends[i]) == 0)
            return true;
    }
    return false;
}

static bool is_jpeg(const void *bytes, size_t size)
{
    return size >= 2 && memcmp(bytes, "\xff\xd8", 2) == 0;
}

static bool is_webp(const void *bytes, size_t size)
{
    return size >= 12 && memcmp(bytes, "RIFF", 4) == 0 &&
           memcmp((const char *)bytes + 8, "WEBP", 4) == 0;
}

/* ---- headers ---- */

/* What is neither a JPEG nor a WebP image must look like a PNG image. */
static rg_status check_kind(const void *bytes, size_t size)
{
    RG_CHECK(size > 0, RG_MALFORMED, "the file is empty");
    RG_CHECK(is_jpeg(bytes, size) || is_webp(bytes, size) ||
                 ((const unsigned char *)bytes)[0] == 0x89,
             RG_MALFORMED, "this is neither a PNG, a JPEG nor a WebP image");
    return RG_OK;
}

/* Memory follows from the size of images, which small files may declare. */
static rg_status check_pixels(rg_extent size)
{
    RG_CHECK(size.height * size.width <= RG_IMAGE_PIXELS, RG_UNSUPPORTED,
             "the image has %lld x %lld pixels; at most %lld in all are supported",
             (long long)size.height, (long long)size.width, (long long)RG_IMAGE_PIXELS);
    return RG_OK;
}

/* An image whose header was read. */
typedef struct opened_image {
    enum { PNG, JPEG, WEBP } format;
    rg_extent size, seen; /* in the file; as it is seen, upright */
    int channels;         /* 1, grey, or 3 */
    int orientation;
    int64_t depth; /* bytes of a pixel while it is decoded, beside those of the result */
    uint64_t kept; /* others */
    rg_png png;
    rg_jpeg jpeg;
    rg_webp webp;
} opened_image;

static rg_status open_png(const void *bytes, size_t size, uint64_t file_size, opened_image *image,
                          bool *more)
{
    RG_TRY(rg_png_header(bytes, size, file_size, &image->png));
    image->orientation = rg_exif_orientation_png(bytes, size, file_size, more);
    image->size = (rg_extent){ image->png.height, image->png.width };
    image->channels = image->png.channels;
    image->kept = size; /* a copy of its chunks */
    return RG_OK;
}

static rg_status open_jpeg(const void *bytes, size_t size, uint64_t file_size, opened_image *image,
                           bool *more)
{
    RG_TRY(rg_jpeg_header(bytes, size, file_size, &image->jpeg, more));
    image->orientation = image->jpeg.orientation;
    image->size = (rg_extent){ image->jpeg.height, image->jpeg.width };
    image->channels = image->jpeg.channels;
    image->depth = 0;
    image->kept = image->jpeg.kept_bytes;
    return RG_OK;
}

static rg_status open_webp(const void *bytes, size_t size, uint64_t file_size, opened_image *image,
                           bool *more)
{
    RG_TRY(rg_webp_header(bytes, size, file_size, &image->webp, more));
    image->orientation = rg_exif_orientation_webp(bytes, size, file_size, more);
    image->size = (rg_extent){ image->webp.height, image->webp.width };
    image->channels = 3;
    return RG_OK;
}

/* `size` bytes are there of a file with `file_size`; where these are too few, *more is set. */
static rg_status open_image(const void *bytes, size_t size, uint64_t file_size, opened_image *image,
                            bool *more)
{
    rg_status (*const open[])(const void *, size_t, uint64_t, opened_image *, bool *) = {
        [PNG] = open_png, [JPEG] = open_jpeg, [WEBP] = open_webp
    };
    *more = false;
    *image = (opened_image){ .format = is_jpeg(bytes, size)   ? JPEG
                                       : is_webp(bytes, size) ? WEBP
                                                              : PNG,
                             .depth = 4 };
    RG_TRY(check_kind(bytes, size));
    RG_TRY(open[image->format](bytes, size, file_size, image, more));
    image->seen = rg_exif_upright_size(image->size, image->orientation);
    return check_pixels(image->size);
}

rg_status rg_image_read_header(const void *bytes, size_t size, uint64_t file_size,
                               rg_image_header *header, bool *more)
{
    opened_image image;
    RG_TRY(open_image(bytes, size, file_size, &image, more));
    RG_CHECK(!*more, RG_MALFORMED, "the file ends within the header of the image");
    *header = (rg_image_header){ image.seen, image.channels };
    return RG_OK;
}

/* ---- ends ---- */

static const unsigned char png_end[RG_IMAGE_TAIL] = { 0,   0,   0,    0,    'I',  'E',
                                                      'N', 'D', 0xae, 0x42, 0x60, 0x82 };

/* The bytes that the file of a WebP image must have. */
static uint64_t webp_size(const unsigned char *at)
{
    return 8 +
           ((uint64_t)at[4] | (uint64_t)at[5] << 8 | (uint64_t)at[6] << 16 | (uint64_t)at[7] << 24);
}

/* Walks from marker to marker until the image ends. Segments have lengths; the data of a scan goes
 * on to the next marker, where 0, restarts and filling bytes do not count. */
static bool jpeg_has_end(const unsigned char *at, size_t size)
{
    size_t i = 2;
    while (i + 1 < size) {
        const int marker = at[i] == 0xff ? at[i + 1] : 0;
        if (marker == 0xd9)
            return true;
        if (marker == 0 || marker == 0xff)
            i++;
        else if (marker == 1 || (marker >= 0xd0 && marker <= 0xd8))
            i += 2;
        else if (size - i < 4)
            break;
        else
            i += 2 + ((size_t)at[i + 2] << 8 | at[i + 3]);
    }
    return false;
}

bool rg_image_has_end(const void *start, size_t size, const void *tail, uint64_t file_size)
{
    const char *end = tail;
    if (is_jpeg(start, size))
        return memcmp(end + RG_IMAGE_TAIL - 2, "\xff\xd9", 2) == 0;
    if (is_webp(start, size))
        return webp_size(start) <= file_size;
    return memcmp(end, png_end, sizeof png_end) == 0;
}

rg_status rg_image_check_end(const void *bytes, size_t size)
{
    rg_png png;
    if (is_jpeg(bytes, size)) {
        RG_CHECK(jpeg_has_end(bytes, size), RG_MALFORMED,
                 "cannot read the JPEG image: the file ends within the image");
        return RG_OK;
    }
    if (is_webp(bytes, size)) {
        RG_CHECK(webp_size(bytes) <= size, RG_MALFORMED,
                 "cannot read the WebP image: the file ends within the image");
        return RG_OK;
    }
    RG_TRY(rg_png_begin(&png, bytes, size));
    rg_png_end(&png);
    return RG_OK;
}

/* ---- pixels ---- */

void rg_decoder_release(rg_decoder *decoder)
{
    rg_buffer_release(&decoder->bytes);
    rg_buffer_release(&decoder->pixels);
    rg_buffer_release(&decoder->converted);
    rg_buffer_release(&decoder->upright);
    rg_resizer_release(&decoder->resizer);
}

/* A thread does not keep the memory of a large image. */
static void shrink(rg_buffer *buffer)
{
    enum { KEPT_BYTES = 1 << 22 };
    if (buffer->capacity > KEPT_BYTES)
        rg_buffer_release(buffer);
}

static rg_status check_size(const rg_image_form *form, rg_extent size)
{
    RG_CHECK(
        form->resize || (size.height == form->size.height && size.width == form->size.width),
        RG_MALFORMED,
        "the image has %lld x %lld pixels, but the first image has %lld x %lld; a size for all "
        "images resizes them (train --size)",
        (long long)size.height, (long long)size.width, (long long)form->size.height,
        (long long)form->size.width);
    return RG_OK;
}

/* The pixels of a JPEG image in `channels`. */
static rg_status read_jpeg(rg_decoder *d, const void *bytes, size_t size, const rg_jpeg *jpeg,
                           int channels, unsigned char *to)
{
    const int64_t count = jpeg->height * jpeg->width;
    if (jpeg->channels == channels)
        return rg_jpeg_pixels(bytes, size, jpeg, to);
    RG_TRY(rg_buffer_fit(&d->converted, (size_t)(count * jpeg->channels)));
    RG_TRY(rg_jpeg_pixels(bytes, size, jpeg, d->converted.data));
    rg_pixels_convert(d->converted.data, jpeg->channels, to, channels, count);
    return RG_OK;
}

/* The pixels of a WebP image in `channels`. */
static rg_status read_webp(rg_decoder *d, const void *bytes, size_t size, const rg_webp *webp,
                           int channels, unsigned char *to)
{
    const int64_t count = webp->height * webp->width;
    if (webp->samples == channels)
        return rg_webp_pixels(bytes, size, webp, to);
    RG_TRY(rg_buffer_fit(&d->converted, (size_t)(count * webp->samples)));
    RG_TRY(rg_webp_pixels(bytes, size, webp, d->converted.data));
    rg_pixels_convert(d->converted.data, webp->samples, to, channels, count);
    return RG_OK;
}

static rg_status read_image(rg_decoder *d, const void *bytes, size_t size,
                            const opened_image *image, int channels, unsigned char *to)
{
    return image->format == JPEG   ? read_jpeg(d, bytes, size, &image->jpeg, channels, to)
           : image->format == WEBP ? read_webp(d, bytes, size, &image->webp, channels, to)
                                   : rg_png_pixels(&image->png, channels, to);
}

/* Upright, into `to`. */
static rg_status read_upright(rg_decoder *d, const void *bytes, size_t size,
                              const opened_image *image, int channels, unsigned char *to)
{
    if (image->orientation == 1)
        return read_image(d, bytes, size, image, channels, to);
    RG_TRY(rg_buffer_fit(&d->upright, (size_t)(image->size.height * image->size.width * channels)));
    RG_TRY(read_image(d, bytes, size, image, channels, d->upright.data));
    rg_exif_orient(d->upright.data, image->size, channels, image->orientation, to);
    return RG_OK;
}

static bool is_resized(const opened_image *image, const rg_image_form *form)
{
    return image->seen.height != form->size.height || image->seen.width != form->size.width;
}

static rg_resize_source source_of(const opened_image *image, const rg_image_form *form)
{
    return (rg_resize_source){ image->size, image->orientation, form->channels };
}

/* Rows of a JPEG image on their way to the resizer. */
typedef struct resized_rows {
    rg_resizer *resizer;
    int64_t width;
    int from, to; /* channels */
    unsigned char *converted;
} resized_rows;

static void take_row(void *context, int64_t i, const unsigned char *row)
{
    const resized_rows *r = context;
    if (r->from != r->to) {
        rg_pixels_convert(row, r->from, r->converted, r->to, r->width);
        row = r->converted;
    }
    rg_resize_row(r->resizer, i, row);
}

/* Row by row: the image is never in memory whole, unless it has several scans. */
static rg_status resize_jpeg(rg_decoder *d, const void *bytes, size_t size,
                             const opened_image *image, const rg_image_form *form,
                             unsigned char *to)
{
    const rg_resize_source source = source_of(image, form);
    const int64_t width = image->size.width;
    RG_TRY(rg_buffer_fit(&d->converted, (size_t)(width * form->channels)));
    RG_TRY(rg_resize_begin(&d->resizer, &source, to, form->size));
    resized_rows rows = { &d->resizer, width, image->jpeg.channels, form->channels,
                          d->converted.data };
    return rg_jpeg_rows(bytes, size, &image->jpeg, take_row, &rows);
}

/* Straight into `to` where no size changes, otherwise by d->pixels. */
static rg_status read_resized(rg_decoder *d, const void *bytes, size_t size,
                              const opened_image *image, const rg_image_form *form,
                              unsigned char *to)
{
    const rg_extent was = image->seen;
    if (!is_resized(image, form))
        return read_upright(d, bytes, size, image, form->channels, to);
    if (image->format == JPEG)
        return resize_jpeg(d, bytes, size, image, form, to);
    RG_TRY(rg_buffer_fit(&d->pixels, (size_t)(was.height * was.width * form->channels)));
    RG_TRY(read_upright(d, bytes, size, image, form->channels, d->pixels.data));
    return rg_resize_cover(&d->resizer, d->pixels.data, was, form->channels, to, form->size);
}

/* Memory for an image while it is decoded. */
static uint64_t needed_bytes(const opened_image *image, const rg_image_form *form)
{
    const rg_resize_source source = source_of(image, form);
    const int64_t copies = image->orientation == 1 ? 1 : 2;
    const int64_t pixels = image->size.height * image->size.width;
    if (image->format == JPEG && is_resized(image, form))
        return image->kept + rg_resize_bytes(&source, form->size);
    return image->kept + (uint64_t)(pixels * (copies * form->channels + image->depth));
}

static rg_status decode(rg_decoder *d, const void *bytes, size_t size, opened_image *image,
                        const rg_image_form *form, unsigned char *to)
{
    const uint64_t needed = needed_bytes(image, form);
    const bool is_png = image->format == PNG;
    rg_decode_budget_take(d->budget, RG_DECODE_PIXELS, needed);
    rg_status status = is_png ? rg_png_begin(&image->png, bytes, size) : RG_OK;
    if (status == RG_OK)
        status = read_resized(d, bytes, size, image, form, to);
    if (is_png)
        rg_png_end(&image->png);
    shrink(&d->pixels);
    shrink(&d->converted);
    shrink(&d->upright);
    shrink(&d->resizer.rows);
    rg_decode_budget_give(d->budget, RG_DECODE_PIXELS, needed);
    return status;
}

rg_status rg_image_decode(rg_decoder *d, const void *bytes, size_t size, const rg_image_form *form,
                          unsigned char *to)
{
    opened_image image;
    bool more;
    RG_TRY(open_image(bytes, size, size, &image, &more));
    d->was = image.seen;
    RG_TRY(check_size(form, d->was));
    return decode(d, bytes, size, &image, form, to);
}

rg_status rg_decoder_read(rg_decoder *d, int file, uint64_t at, uint64_t size)
{
    RG_CHECK(size <= RG_IMAGE_BYTES, RG_UNSUPPORTED,
             "has %llu bytes; images of at most %d bytes are read", (unsigned long long)size,
             RG_IMAGE_BYTES);
    RG_TRY(rg_buffer_fit(&d->bytes, (size_t)size));
    return rg_regular_read(file, at, d->bytes.data, (size_t)size);
}

void rg_decoder_shrink(rg_decoder *d)
{
    shrink(&d->bytes);
}
