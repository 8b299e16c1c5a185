/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* A small PNG encoder: 8 bits, no filter, no compression, which images of a few pixels do not need.
 */
#include "train/png_uri.h"
#include "train/base64.h"
#include "core/memory.h"

#include <string.h>

/* The longest stored block of deflate. */
enum { LARGEST_BLOCK = 65535 };

/* ---- check sums ---- */

static uint32_t crc32_of(const uint8_t *data, size_t size)
{
    uint32_t crc = 0xffffffff;
    for (size_t i = 0; i < size; i++) {
        crc ^= data[i];
        for (int k = 0; k < 8; k++)
            crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
    }
    return ~crc;
}

static uint32_t adler32_of(const uint8_t *data, size_t size)
{
    uint32_t a = 1, b = 0;
    for (size_t i = 0; i < size; i++) {
        a = (a + data[i]) % 65521;
        b = (b + a) % 65521;
    }
    return b << 16 | a;
}

/* ---- chunks ---- */

/* Bytes of a file; the buffer holds them all. */
typedef struct writer {
    uint8_t *data;
    size_t size;
} writer;

static void put(writer *w, const void *data, size_t size)
{
    memcpy(w->data + w->size, data, size);
    w->size += size;
}

static void put32(writer *w, uint32_t value)
{
    const uint8_t bytes[4] = { (uint8_t)(value >> 24), (uint8_t)(value >> 16),
                               (uint8_t)(value >> 8), (uint8_t)value };
    put(w, bytes, 4);
}

static size_t begin_chunk(writer *w, const char *name, size_t size)
{
    put32(w, (uint32_t)size);
    put(w, name, 4);
    return w->size - 4;
}

static void end_chunk(writer *w, size_t begin)
{
    put32(w, crc32_of(w->data + begin, w->size - begin));
}

static size_t stored_size(size_t size)
{
    const size_t blocks = size > 0 ? (size - 1) / LARGEST_BLOCK + 1 : 1;
    return 2 + size + 5 * blocks + 4;
}

/* zlib's format with stored blocks. */
static void put_stored(writer *w, const uint8_t *data, size_t size)
{
    put(w, "\x78\x01", 2);
    for (size_t at = 0;;) {
        const size_t step = size - at < LARGEST_BLOCK ? size - at : LARGEST_BLOCK;
        const uint8_t head[5] = { at + step == size, (uint8_t)step, (uint8_t)(step >> 8),
                                  (uint8_t)~step, (uint8_t)(~step >> 8) };
        put(w, head, 5);
        put(w, data + at, step);
        at += step;
        if (at == size)
            break;
    }
    put32(w, adler32_of(data, size));
}

static void put_png(writer *w, const uint8_t *rows, int32_t height, int32_t width, bool grey)
{
    const size_t size = (size_t)height * (1 + (size_t)width * (grey ? 1 : 3));
    put(w, "\x89PNG\r\n\x1a\n", 8);
    size_t begin = begin_chunk(w, "IHDR", 13);
    put32(w, (uint32_t)width);
    put32(w, (uint32_t)height);
    put(w, grey ? "\x08\x00\x00\x00\x00" : "\x08\x02\x00\x00\x00", 5);
    end_chunk(w, begin);
    begin = begin_chunk(w, "IDAT", stored_size(size));
    put_stored(w, rows, size);
    end_chunk(w, begin);
    end_chunk(w, begin_chunk(w, "IEND", 0));
}

/* ---- pixels ---- */

/* Rows of PNG, a 0 (no filter) before each; every pixel the mean of a square of `factor`. */
static void make_rows(uint8_t *to, const uint8_t *pixels, int32_t height, int32_t width,
                      int32_t channels, int32_t factor)
{
    const int32_t planes = channels < 3 ? 1 : 3;
    for (int32_t y = 0; y < height / factor; y++) {
        *to++ = 0;
        for (int32_t x = 0; x < width / factor; x++) {
            for (int32_t c = 0; c < planes; c++) {
                uint64_t sum = 0;
                for (int64_t k = 0; k < (int64_t)factor * factor; k++) {
                    const int64_t row = (int64_t)y * factor + k / factor;
                    const int64_t column = (int64_t)x * factor + k % factor;
                    sum += pixels[(row * width + column) * channels + c];
                }
                const uint64_t count = (uint64_t)factor * (uint64_t)factor;
                *to++ = (uint8_t)((sum + count / 2) / count);
            }
        }
    }
}

static void add_base64(rg_page *page, const uint8_t *data, size_t size)
{
    for (size_t i = 0; i < size; i += 3) {
        char four[4];
        rg_base64_group(data + i, size - i, four);
        rg_page_add(page, four, 4);
    }
}

rg_status rg_png_uri(rg_page *page, const uint8_t *pixels, int32_t height, int32_t width,
                     int32_t channels, int32_t most)
{
    RG_CHECK(pixels != NULL && height > 0 && width > 0 && channels > 0 && most > 0,
             RG_INVALID_ARGUMENT, "an image of %d x %d pixels and %d channels cannot be displayed",
             height, width, channels);
    const int32_t longest = height > width ? height : width;
    int32_t factor = longest / most + (longest % most != 0);
    const int32_t shortest = height < width ? height : width;
    factor = factor < shortest ? factor : shortest; /* a strip stays longer */
    const int32_t rows = height / factor, columns = width / factor;
    RG_CHECK((int64_t)rows * columns <= (int64_t)most * most * 8, RG_UNSUPPORTED,
             "an image of %d x %d pixels is too narrow to be displayed", height, width);
    const size_t raw = (size_t)rows * (1 + (size_t)columns * 3);
    const size_t capacity = raw + stored_size(raw) + 128;
    void *memory;
    RG_TRY(rg_allocate(&rg_default_allocator, capacity, &memory));
    uint8_t *image = memory;
    make_rows(image, pixels, height, width, channels, factor);
    writer w = { image + raw, 0 };
    put_png(&w, image, rows, columns, channels < 3);
    rg_page_put(page, "data:image/png;base64,");
    add_base64(page, w.data, w.size);
    rg_release(&rg_default_allocator, memory, capacity);
    return page->status;
}
