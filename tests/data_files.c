/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Writers for the files of data sets: see data_files.h. */
#include "tests/data_files.h"

#include <ftw.h>
#include <sys/stat.h>

/* ---- bytes ---- */

void put(bytes *to, const void *data, size_t size)
{
    if (size > sizeof to->data - to->size)
        abort();
    if (size > 0)
        memcpy(to->data + to->size, data, size);
    to->size += size;
}

/* The lowest `count` bytes of a number, the lowest first. */
static void put_low(bytes *to, uint64_t value, int count)
{
    for (int i = 0; i < count; i++)
        put(to, &(unsigned char){ (unsigned char)(value >> 8 * i) }, 1);
}

/* The same, the highest first. */
static void put_high(bytes *to, uint64_t value, int count)
{
    for (int i = count - 1; i >= 0; i--)
        put(to, &(unsigned char){ (unsigned char)(value >> 8 * i) }, 1);
}

/* ---- deflate ---- */

/* One block that is stored, not packed: what any reader must know, too. */
static void put_deflated(bytes *to, const void *data, size_t size)
{
    put_low(to, 1, 1);
    put_low(to, size, 2);
    put_low(to, ~size, 2);
    put(to, data, size);
}

void put_gzip(bytes *to, const void *data, size_t size)
{
    put(to, "\x1f\x8b\x08\0\0\0\0\0\0\x03", 10);
    put_deflated(to, data, size);
    put_low(to, rg_crc32(0, data, size), 4);
    put_low(to, size, 4);
}

/* Bits from the lowest of each byte; a code of Huffman's has its highest bit first. */
typedef struct bit_writer {
    bytes *to;
    unsigned held;
    int count;
} bit_writer;

static void put_bits(bit_writer *w, unsigned bits, int count)
{
    for (int i = 0; i < count; i++) {
        w->held |= (bits >> i & 1) << w->count++;
        if (w->count == 8) {
            put_low(w->to, w->held, 1);
            w->held = 0;
            w->count = 0;
        }
    }
}

void put_bomb(bytes *to, const unsigned char *start, size_t size, int repeats)
{
    put(to, "\x1f\x8b\x08\0\0\0\0\0\0\x03", 10);
    put_low(to, 0, 1); /* a stored block, not the last */
    put_low(to, size, 2);
    put_low(to, ~size, 2);
    put(to, start, size);
    bit_writer w = { .to = to };
    put_bits(&w, 3, 3);    /* the last block, of the fixed codes */
    put_bits(&w, 0x0c, 8); /* the byte 0: code 00110000 */
    for (int i = 0; i < repeats; i++) {
        put_bits(&w, 0xa3, 8); /* length 258: code 11000101 */
        put_bits(&w, 0, 5);    /* distance 1 */
    }
    put_bits(&w, 0, 7 + 7); /* the end, and the rest of a byte */
    put_low(to, 0, 8);
}

/* ---- IDX ---- */

bytes idx_of(int rank, const uint32_t dims[], const void *data, size_t size)
{
    bytes made = { .size = 0 };
    put_high(&made, 0x0800 + (uint64_t)rank, 4);
    for (int d = 0; d < rank; d++)
        put_high(&made, dims[d], 4);
    put(&made, data, size);
    return made;
}

/* ---- NPY ---- */

bytes npy_of(const char *descr, const char *order, const char *shape, const void *data, size_t size)
{
    bytes made = { .size = 0 };
    char text[256];
    const int length =
        snprintf(text, sizeof text, "{'descr': '%s', 'fortran_order': %s, 'shape': (%s), }\n",
                 descr, order, shape);
    put(&made, "\x93NUMPY\1\0", 8);
    put_low(&made, (uint64_t)length, 2);
    put(&made, text, (size_t)length);
    put(&made, data, size);
    return made;
}

/* ---- ZIP ---- */

void zip_add(archive *zip, const char *name, int how, const bytes *data)
{
    bytes packed = { .size = 0 };
    const int method = how & 255;
    const size_t length = strlen(name), at = zip->file.size;
    if (method == ZIP_DEFLATED)
        put_deflated(&packed, data->data, data->size);
    else
        put(&packed, data->data, data->size);
    const bool large = (how & ZIP_LARGE) != 0;
    bytes common = { .size = 0 }; /* of header and entry */
    put_low(&common, 45, 2);
    put_low(&common, 0, 2);
    put_low(&common, (uint64_t)method, 2);
    put_low(&common, 0, 4);
    put_low(&common, rg_crc32(0, data->data, data->size), 4);
    put_low(&common, large ? UINT32_MAX : packed.size, 4);
    put_low(&common, large ? UINT32_MAX : data->size, 4);
    put_low(&common, length, 2);
    put_low(&common, large ? 20 : 0, 2);
    bytes extra = { .size = 0 };
    put_low(&extra, 1, 2);
    put_low(&extra, 16, 2);
    put_low(&extra, data->size, 8);
    put_low(&extra, packed.size, 8);

    put(&zip->file, "PK\3\4", 4);
    put(&zip->file, common.data, common.size);
    put(&zip->file, name, length);
    put(&zip->file, extra.data, large ? extra.size : 0);
    put(&zip->file, packed.data, packed.size);
    put(&zip->directory, "PK\1\2\x2d\3", 6);
    put(&zip->directory, common.data, common.size);
    put_low(&zip->directory, 0, 8);
    put_low(&zip->directory, 0, 2);
    put_low(&zip->directory, at, 4);
    put(&zip->directory, name, length);
    put(&zip->directory, extra.data, large ? extra.size : 0);
    zip->entries++;
}

void zip_end(archive *zip, bool large)
{
    const uint64_t at = zip->file.size, size = zip->directory.size;
    put(&zip->file, zip->directory.data, size);
    if (large) {
        const uint64_t record = zip->file.size;
        put(&zip->file, "PK\6\6", 4);
        put_low(&zip->file, 44, 8);
        put_low(&zip->file, 45 | 45 << 16, 4);
        put_low(&zip->file, 0, 8);
        put_low(&zip->file, (uint64_t)zip->entries, 8);
        put_low(&zip->file, (uint64_t)zip->entries, 8);
        put_low(&zip->file, size, 8);
        put_low(&zip->file, at, 8);
        put(&zip->file, "PK\6\7", 4);
        put_low(&zip->file, 0, 4);
        put_low(&zip->file, record, 8);
        put_low(&zip->file, 1, 4);
    }
    put(&zip->file, "PK\5\6", 4);
    put_low(&zip->file, 0, 4);
    put_low(&zip->file, large ? 65535 : (uint64_t)zip->entries, 2);
    put_low(&zip->file, large ? 65535 : (uint64_t)zip->entries, 2);
    put_low(&zip->file, large ? UINT32_MAX : size, 4);
    put_low(&zip->file, large ? UINT32_MAX : at, 4);
    put_low(&zip->file, 0, 2);
}

/* ---- PNG ---- */

void png_chunk(bytes *to, const char *name, const void *data, size_t size)
{
    put_high(to, size, 4);
    const size_t start = to->size;
    put(to, name, 4);
    put(to, data, size);
    put_high(to, rg_crc32(0, to->data + start, to->size - start), 4);
}

bytes png_start(uint32_t width, uint32_t height, int depth, int kind, int interlaced)
{
    bytes made = { .size = 0 }, header = { .size = 0 };
    put(&made, "\x89PNG\r\n\x1a\n", 8);
    put_high(&header, width, 4);
    put_high(&header, height, 4);
    put_low(&header, (uint64_t)depth, 1);
    put_low(&header, (uint64_t)kind, 1);
    put_low(&header, 0, 2);
    put_low(&header, (uint64_t)interlaced, 1);
    png_chunk(&made, "IHDR", header.data, header.size);
    return made;
}

void png_end(bytes *to, const void *rows, size_t size)
{
    bytes packed = { .size = 0 };
    uint32_t a = 1, b = 0;
    for (size_t i = 0; i < size; i++) {
        a = (a + ((const unsigned char *)rows)[i]) % 65521;
        b = (b + a) % 65521;
    }
    put(&packed, "\x78\x01", 2);
    put_deflated(&packed, rows, size);
    put_high(&packed, b << 16 | a, 4);
    png_chunk(to, "IDAT", packed.data, packed.size);
    png_chunk(to, "IEND", NULL, 0);
}

/* ---- files ---- */

void make_folder(const char *name)
{
    EXPECT(mkdir(scratch(name), 0777) == 0);
}

void write_file(const char *name, const bytes *data)
{
    scratch_write(name, data->data, data->size);
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *walk)
{
    (void)info;
    (void)kind;
    return walk->level > 0 ? remove(path) : 0;
}

void clear_files(void)
{
    EXPECT(nftw(scratch_folder, remove_one, 8, FTW_DEPTH | FTW_PHYS) == 0);
}
