/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Images of all formats: headers, pixels, colours, sizes. */
#include "train/image_file.h"
#include "train/data_source.h"
#include "train/jpeg_image.h"
#include "train/png_image.h"
#include "train/webp_image.h"

#include <string.h>
#include <strings.h>

bool rg_image_is_name(const char *name)
{
    static const char *const ends[] = { ".png", ".jpg", ".jpeg", ".webp" };
    const size_t length = strlen(name);
    for (int i = 0; i < 4; i++) {
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
    if (is_webp(bytes, size)) {
        rg_webp webp;
        RG_TRY(rg_webp_header(bytes, size, file_size, &webp, more));
        *header = (rg_image_header){ { webp.height, webp.width }, 3 };
        return RG_OK;
    }
    RG_CHECK(size >= 1 && ((const unsigned char *)bytes)[0] == 0x89, RG_MALFORMED,
             "this is neither a PNG, a JPEG nor a WebP image");
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

/* An image whose header was read. */
typedef struct opened_image {
    enum { PNG, JPEG, WEBP } format;
    rg_extent size;
    rg_png png;
    rg_jpeg jpeg;
    rg_webp webp;
} opened_image;

static rg_status open_image(const void *bytes, size_t size, opened_image *image)
{
    bool more;
    *image = (opened_image){ .format = is_jpeg(bytes, size)   ? JPEG
                                       : is_webp(bytes, size) ? WEBP
                                                              : PNG };
    if (image->format == JPEG) {
        RG_TRY(rg_jpeg_header(bytes, size, size, &image->jpeg, &more));
        image->size = (rg_extent){ image->jpeg.height, image->jpeg.width };
    } else if (image->format == WEBP) {
        RG_TRY(rg_webp_header(bytes, size, size, &image->webp, &more));
        image->size = (rg_extent){ image->webp.height, image->webp.width };
    } else {
        RG_TRY(rg_png_begin(&image->png, bytes, size));
        image->size = (rg_extent){ image->png.height, image->png.width };
    }
    return RG_OK;
}

static rg_status read_image(rg_decoder *d, const void *bytes, size_t size,
                            const opened_image *image, int channels, unsigned char *to)
{
    return image->format == JPEG   ? read_jpeg(d, bytes, size, &image->jpeg, channels, to)
           : image->format == WEBP ? read_webp(d, bytes, size, &image->webp, channels, to)
                                   : rg_png_pixels(&image->png, channels, to);
}

/* Decodes into `to` where no size changes, otherwise into d->pixels. */
static rg_status decode(rg_decoder *d, const void *bytes, size_t size, const rg_image_form *form,
                        unsigned char *to)
{
    opened_image image;
    RG_TRY(open_image(bytes, size, &image));
    d->was = image.size;
    rg_status status = check_size(form, d->was);
    const bool same = d->was.height == form->size.height && d->was.width == form->size.width;
    if (status == RG_OK && !same)
        status = rg_buffer_fit(&d->pixels, (size_t)(d->was.height * d->was.width * form->channels));
    if (status == RG_OK)
        status = read_image(d, bytes, size, &image, form->channels, same ? to : d->pixels.data);
    if (image.format == PNG)
        rg_png_end(&image.png);
    return status;
}

rg_status rg_image_decode(rg_decoder *d, const void *bytes, size_t size, const rg_image_form *form,
                          unsigned char *to)
{
    RG_TRY(decode(d, bytes, size, form, to));
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
