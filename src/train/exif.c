/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The orientation of a photograph. A JPEG file begins with segments, PNG and WebP files consist of
 * chunks; the one of EXIF holds a TIFF file, whose first directory has an entry of 12 bytes for
 * each property: tag, type, count, value. Whatever is not as it must be means orientation 1: other
 * programs do not refuse such files either.
 */
#include "train/exif.h"

#include <string.h>

/* ---- reading ---- */

typedef struct tiff {
    const unsigned char *data;
    size_t size;
    bool is_big; /* the highest byte of a number is first */
} tiff;

/* A number of `count` bytes; 0 where they are not there. */
static uint32_t number_at(const tiff *t, size_t at, int count)
{
    uint32_t value = 0;
    if (at > t->size || t->size - at < (size_t)count)
        return 0;
    for (int i = 0; i < count; i++)
        value |= (uint32_t)t->data[at + (size_t)i] << 8 * (t->is_big ? count - 1 - i : i);
    return value;
}

static int find_orientation(const tiff *t)
{
    enum { TAG = 0x0112, SHORT = 3, LONG = 4, ENTRY = 12 };
    const size_t directory = number_at(t, 4, 4);
    const size_t count = number_at(t, directory, 2);
    for (size_t i = 0; i < count; i++) {
        const size_t at = directory + 2 + i * ENTRY;
        if (number_at(t, at, 2) != TAG)
            continue;
        const uint32_t type = number_at(t, at + 2, 2);
        const uint32_t value = number_at(t, at + 8, type == LONG ? 4 : 2);
        const bool valid = (type == SHORT || type == LONG) && value >= 1 && value <= 8;
        return valid ? (int)value : 1;
    }
    return 1;
}

static const unsigned char prefix[6] = { 'E', 'x', 'i', 'f', 0, 0 };

static bool has_prefix(const unsigned char *data, size_t size)
{
    return size >= sizeof prefix && memcmp(data, prefix, sizeof prefix) == 0;
}

static int read_tiff(const unsigned char *data, size_t size)
{
    tiff t = { data, size, size >= 8 && data[0] == 'M' };
    const bool known =
        size >= 8 && (memcmp(data, "II*\0", 4) == 0 || memcmp(data, "MM\0*", 4) == 0);
    return known ? find_orientation(&t) : 1;
}

/* Of a JPEG image; 0 where it is another one. */
static int read_segment(const unsigned char *data, size_t size)
{
    if (size < sizeof prefix + 8 || !has_prefix(data, size))
        return 0;
    return read_tiff(data + sizeof prefix, size - sizeof prefix);
}

/* Of PNG and WebP images. Some programs write the prefix of JPEG's segment there, too. */
static int read_chunk(const unsigned char *data, size_t size)
{
    const size_t skipped = has_prefix(data, size) ? sizeof prefix : 0;
    return read_tiff(data + skipped, size - skipped);
}

int rg_exif_orientation(const void *bytes, size_t size)
{
    enum { APP1 = 0xe1, SCAN = 0xda, END = 0xd9 };
    const unsigned char *const at = bytes;
    for (size_t i = 2; i < size && size - i >= 4 && at[i] == 0xff;) {
        const int marker = at[i + 1];
        const size_t length = (size_t)at[i + 2] << 8 | at[i + 3];
        if (marker == 0xff) {
            i++;
            continue;
        }
        if (marker == SCAN || marker == END || length < 2 || length > size - i - 2)
            break;
        const int found = marker == APP1 ? read_segment(at + i + 4, length - 2) : 0;
        if (found != 0)
            return found;
        i += 2 + length;
    }
    return 1;
}

/* A chunk of a PNG or WebP file. */
typedef struct chunk {
    const unsigned char *name, *data;
    uint32_t size; /* of its data */
} chunk;

/* Where the chunks of a file are read; `bytes.size` of them are there. */
typedef struct chunks {
    tiff bytes;
    uint64_t file_size, at;
    bool more; /* the rest of the file is needed to know */
} chunks;

/* Reads the head of a chunk; false where the file has no other one. PNG has the length first, and a
 * checksum behind the data; WebP has the name first, and even lengths. */
static bool next_chunk(chunks *c, chunk *found)
{
    enum { HEAD = 8, CHECKSUM = 4 };
    const bool is_png = c->bytes.is_big;
    if (c->at > c->file_size || c->file_size - c->at < HEAD)
        return false;
    c->more = c->at + HEAD > c->bytes.size;
    if (c->more)
        return false;
    const size_t at = (size_t)c->at;
    found->name = c->bytes.data + at + (is_png ? 4 : 0);
    found->data = c->bytes.data + at + HEAD;
    found->size = number_at(&c->bytes, at + (is_png ? 0 : 4), 4);
    c->at += HEAD + (uint64_t)found->size + (is_png ? CHECKSUM : found->size % 2);
    return true;
}

/* The orientation in the chunk of a name, before the one of another, if that is not NULL. */
static int find_chunk(chunks *c, const char *name, const char *before)
{
    chunk found;
    while (next_chunk(c, &found) && (before == NULL || memcmp(found.name, before, 4) != 0)) {
        if (memcmp(found.name, name, 4) != 0)
            continue;
        const size_t there = (size_t)(c->bytes.data + c->bytes.size - found.data);
        c->more = found.size > there && c->bytes.size < c->file_size;
        return found.size <= there ? read_chunk(found.data, found.size) : 1;
    }
    return 1;
}

int rg_exif_orientation_png(const void *bytes, size_t size, uint64_t file_size, bool *more)
{
    chunks c = { .bytes = { bytes, size, true }, .file_size = file_size, .at = 8 };
    const int orientation = find_chunk(&c, "eXIf", "IDAT");
    *more = c.more;
    return orientation;
}

int rg_exif_orientation_webp(const void *bytes, size_t size, uint64_t file_size, bool *more)
{
    enum { FIRST = 12, FLAGS = 20, HAS_EXIF = 8 };
    chunks c = { .bytes = { bytes, size, false }, .file_size = file_size, .at = FIRST };
    const bool has_exif = size > FLAGS && memcmp(c.bytes.data + FIRST, "VP8X", 4) == 0 &&
                          (c.bytes.data[FLAGS] & HAS_EXIF) != 0;
    const int orientation = has_exif ? find_chunk(&c, "EXIF", NULL) : 1;
    *more = c.more;
    return orientation;
}

/* ---- turning ---- */

/* From 5 on rows become columns. */
rg_extent rg_exif_upright_size(rg_extent size, int orientation)
{
    return orientation >= 5 ? (rg_extent){ size.width, size.height } : size;
}

rg_exif_axes rg_exif_axes_of(int orientation)
{
    return (rg_exif_axes){
        .is_transposed = orientation >= 5,
        .from_right = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8,
        .from_below = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7
    };
}

RG_INLINE void orient(const unsigned char *from, rg_extent size, int orientation, unsigned char *to,
                      const size_t channels)
{
    const rg_extent upright = rg_exif_upright_size(size, orientation);
    const rg_exif_axes axes = rg_exif_axes_of(orientation);
    for (int64_t r = 0; r < upright.height; r++) {
        for (int64_t c = 0; c < upright.width; c++, to += channels) {
            const int64_t row = axes.is_transposed ? c : r, column = axes.is_transposed ? r : c;
            const int64_t y = axes.from_below ? size.height - 1 - row : row;
            const int64_t x = axes.from_right ? size.width - 1 - column : column;
            memcpy(to, from + (size_t)(y * size.width + x) * channels, channels);
        }
    }
}

void rg_exif_orient(const unsigned char *from, rg_extent size, int64_t channels, int orientation,
                    unsigned char *to)
{
    if (channels == 3)
        orient(from, size, orientation, to, 3);
    else
        orient(from, size, orientation, to, (size_t)channels);
}
