/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Images of either format: headers, pixels, colours, sizes. */
#include "train/image_file.h"
#include "train/data_source.h"
#include "train/jpeg_image.h"
#include "train/png_image.h"

#include <string.h>
#include <strings.h>

bool rg_image_is_name(const char *name)
{
    static const char *const ends[] = { ".png", ".jpg", ".jpeg" };
    const size_t length = strlen(name);
    for (int i = 0; i < 3; i++) {
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

/* ---- headers ---- */

rg_status rg_image_read_header(const void *bytes, size_t size, uint64_t file_size,
                               rg_image_header *header, bool *more)
{
    rg_jpeg jpeg;
    rg_png png;
    *more = false;
    if (is_jpeg(bytes, size)) {
        RG_TRY(rg_jpeg_header(bytes, size, file_size, &jpeg, more));
        *header = (rg_image_header){ { jpeg.height, jpeg.width }, jpeg.channels };
        return RG_OK;
    }
    RG_CHECK(size >= 1 && ((const unsigned char *)bytes)[0] == 0x89, RG_MALFORMED,
             "this is neither a PNG nor a JPEG image");
    RG_TRY(rg_png_header(bytes, size, file_size, &png));
    *header = (rg_image_header){ { png.height, png.width }, png.channels };
    return RG_OK;
}

/* ---- pixels ---- */

void rg_decoder_release(rg_decoder *decoder)
{
    rg_buffer_release(&decoder->bytes);
    rg_buffer_release(&decoder->pixels);
    rg_buffer_release(&decoder->converted);
    rg_resizer_release(&decoder->resizer);
}

static rg_status check_size(const rg_image_form *form, rg_extent size)
{
    RG_CHECK(
        form->resize || (size.height == form->size.height && size.width == form->size.width),
        RG_MALFORMED,
        "the image has %lld x %lld pixels, but the first image has %lld x %lld; a size for all "
        "images resizes them (--size)",
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

/* Decodes into `to` where no size changes, otherwise into d->pixels. */
static rg_status decode(rg_decoder *d, const void *bytes, size_t size, const rg_image_form *form,
                        unsigned char *to, rg_extent *was)
{
    rg_png png;
    rg_jpeg jpeg = { 0 };
    bool more;
    const bool is_png = !is_jpeg(bytes, size);
    RG_TRY(is_png ? rg_png_begin(&png, bytes, size)
                  : rg_jpeg_header(bytes, size, size, &jpeg, &more));
    *was = is_png ? (rg_extent){ png.height, png.width } : (rg_extent){ jpeg.height, jpeg.width };
    rg_status status = check_size(form, *was);
    const bool same = was->height == form->size.height && was->width == form->size.width;
    if (status == RG_OK && !same)
        status = rg_buffer_fit(&d->pixels, (size_t)(was->height * was->width * form->channels));
    unsigned char *const pixels = same ? to : d->pixels.data;
    if (status == RG_OK)
        status = is_png ? rg_png_pixels(&png, form->channels, pixels)
                        : read_jpeg(d, bytes, size, &jpeg, form->channels, pixels);
    if (is_png)
        rg_png_end(&png);
    return status;
}

rg_status rg_image_decode(rg_decoder *d, const void *bytes, size_t size, const rg_image_form *form,
                          unsigned char *to)
{
    RG_TRY(decode(d, bytes, size, form, to, &d->was));
    if (d->was.height == form->size.height && d->was.width == form->size.width)
        return RG_OK;
    return rg_resize_cover(&d->resizer, d->pixels.data, d->was, form->channels, to, form->size);
}

rg_status rg_decoder_read(rg_decoder *d, int file, uint64_t at, uint64_t size)
{
    RG_CHECK(size <= RG_IMAGE_BYTES, RG_UNSUPPORTED,
             "has %llu bytes; images of at most %d bytes are read", (unsigned long long)size,
             RG_IMAGE_BYTES);
    RG_TRY(rg_buffer_fit(&d->bytes, (size_t)size));
    return rg_regular_read(file, at, d->bytes.data, (size_t)size);
}
