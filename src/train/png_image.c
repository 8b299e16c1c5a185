/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* PNG images. libpng unpacks them; before, the list of chunks is checked and only those that make
 * the pixels are passed on: header, palette, transparency, data. So gamma and profiles change
 * nothing, and text that unpacks to gigabytes is never looked at. */
#include "train/png_image.h"
#include "train/png_samples.h"

#include <string.h>

static const unsigned char magic[8] = { 0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n' };

static uint32_t word_at(const unsigned char *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

/* ---- the list of chunks: length, name, data, CRC ---- */

static bool matters(const unsigned char *name)
{
    static const char names[5][5] = { "IHDR", "PLTE", "tRNS", "IDAT", "IEND" };
    bool found = false;
    for (int i = 0; i < 5; i++)
        found = found || memcmp(name, names[i], 4) == 0;
    return found;
}

static rg_status keep_chunks(rg_png *png, const unsigned char *bytes, size_t size)
{
    size_t at = sizeof magic;
    bool ended = false;
    memcpy(png->kept, magic, sizeof magic);
    png->kept_bytes = sizeof magic;
    while (!ended) {
        RG_CHECK(size - at >= 12, RG_MALFORMED,
                 "the PNG file ends at byte %zu, before its IEND chunk", at);
        const size_t length = word_at(bytes + at);
        RG_CHECK(length <= size - at - 12, RG_MALFORMED,
                 "the chunk at byte %zu declares %zu bytes, but the file ends earlier", at, length);
        const unsigned char *name = bytes + at + 4;
        RG_CHECK(matters(name) || (name[0] & 0x20) != 0, RG_UNSUPPORTED,
                 "the chunk at byte %zu is critical but unknown", at);
        if (matters(name)) {
            memcpy(png->kept + png->kept_bytes, bytes + at, length + 12);
            png->kept_bytes += length + 12;
        }
        ended = memcmp(name, "IEND", 4) == 0;
        at += length + 12;
    }
    return RG_OK;
}

/* The header is the first chunk: size, bits, kind of colours, methods. */
static rg_status read_header(rg_png *png, const unsigned char *bytes, size_t size,
                             uint64_t file_size)
{
    enum { DATA = 16, END = 33, LARGEST = 1 << 20, SMALL = 1 << 24 };
    RG_CHECK(size >= sizeof magic && memcmp(bytes, magic, sizeof magic) == 0, RG_MALFORMED,
             "this is not a PNG image");
    RG_CHECK(size >= END && word_at(bytes + 8) == 13 && memcmp(bytes + 12, "IHDR", 4) == 0,
             RG_MALFORMED, "the PNG image does not start with an IHDR chunk, at byte 8");
    const uint32_t width = word_at(bytes + DATA), height = word_at(bytes + DATA + 4);
    const int depth = bytes[DATA + 8], kind = bytes[DATA + 9];
    RG_CHECK(width > 0 && height > 0 && width <= LARGEST && height <= LARGEST, RG_MALFORMED,
             "the image declares %u x %u pixels, at byte 16; at most %d x %d are supported", height,
             width, LARGEST, LARGEST);
    static const int samples[7] = { 1, 0, 3, 1, 2, 0, 4 };
    RG_CHECK(
        kind < 7 && samples[kind] > 0 && depth > 0 && depth <= 16, RG_MALFORMED,
        "the image declares colour type %d with %d bits, at byte 24, which PNG does not define",
        kind, depth);
    /* Deflate makes at most 1032 bytes of one. */
    const uint64_t row = ((uint64_t)width * (uint64_t)(samples[kind] * depth) + 7) / 8;
    RG_CHECK(
        row * height / 1032 <= file_size, RG_MALFORMED,
        "an image of %u x %u pixels, declared at byte 16, cannot be compressed into %llu bytes",
        height, width, (unsigned long long)file_size);
    /* A byte of those may be 8 pixels. */
    const uint64_t pixels = (uint64_t)width * height;
    RG_CHECK(pixels <= SMALL || pixels / 1032 <= file_size, RG_UNSUPPORTED,
             "the image declares %u x %u pixels, which is too much for a file of %llu bytes",
             height, width, (unsigned long long)file_size);
    png->width = width;
    png->height = height;
    png->kind = kind;
    png->depth = depth;
    png->indexed = kind == 3;
    png->channels = kind == 0 || kind == 4 ? 1 : 3;
    return RG_OK;
}

rg_status rg_png_header(const void *bytes, size_t size, uint64_t file_size, rg_png *png)
{
    *png = (rg_png){ 0 };
    return read_header(png, bytes, size, file_size);
}

rg_status rg_png_begin(rg_png *png, const void *bytes, size_t size)
{
    *png = (rg_png){ 0 };
    void *kept;
    RG_TRY(read_header(png, bytes, size, size));
    RG_TRY(rg_allocate(&rg_default_allocator, size, &kept));
    png->kept = kept;
    png->capacity = size;
    const rg_status status = keep_chunks(png, bytes, size);
    if (status != RG_OK)
        rg_png_end(png);
    return status;
}

void rg_png_end(rg_png *png)
{
    rg_release(&rg_default_allocator, png->kept, png->capacity);
    *png = (rg_png){ 0 };
}

/* ---- pixels ---- */

/* A sample with opacity `alpha` over black. */
static unsigned char seen(unsigned sample, unsigned alpha)
{
    return (unsigned char)((sample * alpha + 127) / 255);
}

void rg_pixels_convert(const unsigned char *x, int from, unsigned char *y, int to, int64_t count)
{
    const int colours = from >= 3 ? 3 : 1;
    for (int64_t i = 0; i < count; i++, x += from, y += to) {
        const unsigned alpha = from % 2 == 0 ? x[from - 1] : 255;
        const unsigned char r = seen(x[0], alpha);
        const unsigned char g = colours == 3 ? seen(x[1], alpha) : r;
        const unsigned char b = colours == 3 ? seen(x[2], alpha) : r;
        if (to == 3) {
            y[0] = r;
            y[1] = g;
            y[2] = b;
        } else {
            y[0] =
                (unsigned char)(colours == 3 ? (299u * r + 587u * g + 114u * b + 500) / 1000 : r);
        }
    }
}

/* The colours of palette indices. */
static rg_status look_up(const rg_png *png, const unsigned char *indices,
                         const rg_png_palette *palette, int channels, unsigned char *to)
{
    unsigned char colours[256 * 3];
    rg_pixels_convert(palette->rgba[0], 4, colours, channels, palette->count);
    for (int64_t i = 0; i < png->height * png->width; i++, to += channels) {
        if (indices[i] >= palette->count)
            return rg_png_bad_index(i / png->width, i % png->width, indices[i], palette->count);
        memcpy(to, colours + indices[i] * channels, (size_t)channels);
    }
    return RG_OK;
}

rg_status rg_png_pixels(const rg_png *png, int channels, unsigned char *to)
{
    void *pixels = NULL;
    rg_png_samples samples;
    const int64_t count = png->height * png->width;
    const size_t bytes = (size_t)count * (size_t)rg_png_most_bytes(png, RG_PNG_BYTES);
    RG_TRY(rg_allocate(&rg_default_allocator, bytes, &pixels));
    rg_status status = rg_png_read_samples(png, RG_PNG_BYTES, pixels, &samples);
    if (status == RG_OK && png->indexed)
        status = look_up(png, pixels, &samples.palette, channels, to);
    else if (status == RG_OK)
        rg_pixels_convert(pixels, samples.pixel_bytes, to, channels, count);
    rg_release(&rg_default_allocator, pixels, bytes);
    return status;
}
