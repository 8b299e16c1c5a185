/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* WebP images, lossy and lossless. */
#include "train/webp_image.h"

#if RG_HAVE_WEBP
#include <webp/decode.h>

/* An image of one colour may have any size in some bytes; memory must not follow from declared
 * sizes alone. */
enum { MOST_PIXELS = 1 << 24, PIXELS_PER_BYTE = 1024 };

static rg_status failed(VP8StatusCode code)
{
    if (code == VP8_STATUS_OUT_OF_MEMORY)
        return rg_fail(RG_OUT_OF_MEMORY, "out of memory for a WebP image");
    return rg_fail(RG_MALFORMED, "cannot read the WebP image: %s",
                   code == VP8_STATUS_NOT_ENOUGH_DATA       ? "the file ends within the image"
                   : code == VP8_STATUS_UNSUPPORTED_FEATURE ? "it has an unknown feature"
                                                            : "its data is damaged");
}

rg_status rg_webp_header(const void *bytes, size_t size, uint64_t file_size, rg_webp *webp,
                         bool *more)
{
    WebPBitstreamFeatures features;
    const VP8StatusCode code = WebPGetFeatures(bytes, size, &features);
    *more = code == VP8_STATUS_NOT_ENOUGH_DATA && size < file_size;
    if (code != VP8_STATUS_OK)
        return failed(code);
    RG_CHECK(!features.has_animation, RG_UNSUPPORTED, "animated WebP images are not supported");
    RG_CHECK(features.height > 0 && features.width > 0, RG_MALFORMED, "the image has no pixels");
    const uint64_t pixels = (uint64_t)features.height * (uint64_t)features.width;
    RG_CHECK(pixels <= MOST_PIXELS || pixels / PIXELS_PER_BYTE <= file_size, RG_UNSUPPORTED,
             "the image declares %d x %d pixels, which is too much for a file of %llu bytes",
             features.height, features.width, (unsigned long long)file_size);
    *webp = (rg_webp){ features.height, features.width, features.has_alpha ? 4 : 3 };
    return RG_OK;
}

rg_status rg_webp_pixels(const void *bytes, size_t size, const rg_webp *webp, unsigned char *to)
{
    WebPDecoderConfig config;
    RG_CHECK(WebPInitDecoderConfig(&config), RG_UNSUPPORTED,
             "libwebp has another version than its headers");
    config.output.colorspace = webp->samples == 4 ? MODE_RGBA : MODE_RGB;
    config.output.is_external_memory = 1;
    config.output.u.RGBA.rgba = to;
    config.output.u.RGBA.stride = (int)(webp->width * webp->samples);
    config.output.u.RGBA.size = (size_t)(webp->width * webp->height * webp->samples);
    const VP8StatusCode code = WebPDecode(bytes, size, &config);
    WebPFreeDecBuffer(&config.output);
    return code == VP8_STATUS_OK ? RG_OK : failed(code);
}

#else

static rg_status no_library(void)
{
    return rg_fail(RG_UNSUPPORTED,
                   "this build of retrograde cannot read WebP images: it has no libwebp");
}

rg_status rg_webp_header(const void *bytes, size_t size, uint64_t file_size, rg_webp *webp,
                         bool *more)
{
    (void)bytes;
    (void)size;
    (void)file_size;
    *webp = (rg_webp){ 0 };
    *more = false;
    return no_library();
}

rg_status rg_webp_pixels(const void *bytes, size_t size, const rg_webp *webp, unsigned char *to)
{
    (void)bytes;
    (void)size;
    (void)webp;
    (void)to;
    return no_library();
}
#endif
