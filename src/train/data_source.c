/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Ranges of files, plain or compressed. The reader asks for as many bytes as a header declares; a
 * file that decompresses to more is refused when that number is exceeded. */
#include "train/data_source.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#if RG_HAVE_ZLIB
#include <zlib.h>
#endif

/* ---- files ---- */

rg_status rg_regular_open(const char *path, int *file, uint64_t *size)
{
    struct stat info;
    *file = -1;
    *size = 0;
    RG_CHECK(stat(path, &info) == 0, RG_IO, "cannot be opened: %s", strerror(errno));
    RG_CHECK(S_ISREG(info.st_mode), RG_IO, "is not a regular file");
    const int opened = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    RG_CHECK(opened >= 0, RG_IO, "cannot be opened: %s", strerror(errno));
    if (fstat(opened, &info) != 0 || !S_ISREG(info.st_mode)) {
        close(opened);
        return rg_fail(RG_IO, "is not a regular file");
    }
    *file = opened;
    *size = (uint64_t)info.st_size;
    return RG_OK;
}

static const char *kind_of(mode_t mode)
{
    return S_ISDIR(mode)    ? "a folder"
           : S_ISFIFO(mode) ? "a pipe"
           : S_ISSOCK(mode) ? "a socket"
                            : "a device";
}

rg_status rg_image_open(const char *path, int *file, uint64_t *size)
{
    struct stat info;
    RG_CHECK(stat(path, &info) != 0 || S_ISREG(info.st_mode), RG_IO, "this is %s, not an image",
             kind_of(info.st_mode));
    return rg_regular_open(path, file, size);
}

void rg_regular_close(int file)
{
    if (file >= 0)
        close(file);
}

rg_status rg_regular_read(int file, uint64_t at, void *to, size_t size)
{
    enum { LARGEST_PIECE = 1 << 30 }; /* for one system call */
    char *next = to;
    while (size > 0) {
        const ssize_t step =
            pread(file, next, size < LARGEST_PIECE ? size : LARGEST_PIECE, (off_t)at);
        if (step < 0 && errno == EINTR)
            continue;
        RG_CHECK(step >= 0, RG_IO, "cannot be read: %s", strerror(errno));
        RG_CHECK(step > 0, RG_MALFORMED, "the file ends at byte %llu", (unsigned long long)at);
        at += (uint64_t)step;
        next += step;
        size -= (size_t)step;
    }
    return RG_OK;
}

/* Four bytes at a time, by tables that are computed for each call; that costs little for large
 * blocks. */
uint32_t rg_crc32(uint32_t crc, const void *data, size_t size)
{
    uint32_t table[4][256];
    for (uint32_t i = 0; i < 256; i++) {
        table[0][i] = i;
        for (int bit = 0; bit < 8; bit++)
            table[0][i] = table[0][i] >> 1 ^ (table[0][i] & 1 ? 0xedb88320 : 0);
    }
    for (uint32_t i = 0; i < 3 * 256; i++) {
        const uint32_t before = table[i / 256][i % 256];
        table[i / 256 + 1][i % 256] = before >> 8 ^ table[0][before & 255];
    }
    const unsigned char *at = data;
    crc = ~crc;
    for (; size >= 4; size -= 4, at += 4) {
        crc ^=
            (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
        crc = table[3][crc & 255] ^ table[2][crc >> 8 & 255] ^ table[1][crc >> 16 & 255] ^
              table[0][crc >> 24];
    }
    for (; size > 0; size--, at++)
        crc = table[0][(crc ^ *at) & 255] ^ crc >> 8;
    return ~crc;
}

/* ---- zlib ---- */

#if RG_HAVE_ZLIB
typedef struct rg_unpacker {
    z_stream stream;
    bool ended;
    unsigned char buffer[1 << 16];
} rg_unpacker;

static rg_status begin_unpacking(rg_source *source)
{
    void *made;
    RG_TRY(rg_allocate_zero(&rg_default_allocator, sizeof(rg_unpacker), &made));
    rg_unpacker *unpack = made;
    const int bits = source->packing == RG_GZIP ? 15 + 16 : -15;
    if (inflateInit2(&unpack->stream, bits) != Z_OK) {
        rg_release(&rg_default_allocator, made, sizeof *unpack);
        return rg_fail(RG_OUT_OF_MEMORY, "out of memory for decompression");
    }
    source->unpack = unpack;
    return RG_OK;
}

static void end_unpacking(rg_source *source)
{
    if (source->unpack == NULL)
        return;
    inflateEnd(&source->unpack->stream);
    rg_release(&rg_default_allocator, source->unpack, sizeof *source->unpack);
    source->unpack = NULL;
}

/* Bytes of the range that were read but not yet unpacked. */
static uint64_t waiting(const rg_source *source)
{
    return source->unpack != NULL ? source->unpack->stream.avail_in : 0;
}

/* Puts more packed bytes into the buffer, if there are any and none are waiting. */
static rg_status refill(rg_source *source)
{
    rg_unpacker *u = source->unpack;
    const uint64_t left = source->end - source->at;
    if (u->stream.avail_in > 0 || left == 0)
        return RG_OK;
    const size_t size = left < sizeof u->buffer ? (size_t)left : sizeof u->buffer;
    RG_TRY(rg_regular_read(source->file, source->at, u->buffer, size));
    source->at += size;
    u->stream.next_in = u->buffer;
    u->stream.avail_in = (uInt)size;
    return RG_OK;
}

/* What follows the end of a stream: nothing, or with gzip another stream. */
static rg_status next_stream(rg_source *source)
{
    rg_unpacker *u = source->unpack;
    u->ended = true;
    RG_TRY(refill(source));
    if (u->stream.avail_in == 0)
        return RG_OK;
    const uint64_t offset = source->at - u->stream.avail_in;
    RG_CHECK(source->packing == RG_GZIP && inflateReset(&u->stream) == Z_OK, RG_MALFORMED,
             "extra bytes follow the compressed data, at byte %llu", (unsigned long long)offset);
    u->ended = false;
    return RG_OK;
}

static rg_status unpack_some(rg_source *source, void *to, size_t size, size_t *got)
{
    enum { LARGEST_PIECE = 1 << 30 }; /* zlib counts in 32 bits */
    rg_unpacker *u = source->unpack;
    *got = 0;
    while (*got < size && !u->ended) {
        RG_TRY(refill(source));
        const size_t rest = size - *got;
        const size_t capacity = rest < LARGEST_PIECE ? rest : (size_t)LARGEST_PIECE;
        u->stream.next_out = (unsigned char *)to + *got;
        u->stream.avail_out = (uInt)capacity;
        const int result = inflate(&u->stream, Z_NO_FLUSH);
        *got += capacity - u->stream.avail_out;
        const uint64_t offset = source->at - u->stream.avail_in;
        RG_CHECK(result != Z_MEM_ERROR, RG_OUT_OF_MEMORY, "out of memory for decompression");
        RG_CHECK(result == Z_OK || result == Z_STREAM_END || result == Z_BUF_ERROR, RG_MALFORMED,
                 "the compressed data is corrupt at byte %llu: %s", (unsigned long long)offset,
                 u->stream.msg != NULL ? u->stream.msg : "unknown error");
        RG_CHECK(result != Z_BUF_ERROR || u->stream.avail_in > 0 || source->at < source->end,
                 RG_MALFORMED, "the file ends inside its compressed data, at byte %llu",
                 (unsigned long long)offset);
        if (result == Z_STREAM_END)
            RG_TRY(next_stream(source));
    }
    return RG_OK;
}

#else

static rg_status begin_unpacking(rg_source *source)
{
    (void)source;
    return rg_fail(RG_UNSUPPORTED, "is compressed, but this build of retrograde has no zlib");
}

static void end_unpacking(rg_source *source)
{
    (void)source;
}

static uint64_t waiting(const rg_source *source)
{
    (void)source;
    return 0;
}

static rg_status unpack_some(rg_source *source, void *to, size_t size, size_t *got)
{
    (void)to;
    (void)size;
    *got = 0;
    return begin_unpacking(source);
}
#endif

/* ---- sources ---- */

rg_status rg_source_begin(rg_source *source, int file, uint64_t at, uint64_t end,
                          rg_packing packing)
{
    *source = (rg_source){ .file = file, .packing = packing, .at = at, .end = end };
    return packing != RG_PLAIN ? begin_unpacking(source) : RG_OK;
}

void rg_source_end(rg_source *source)
{
    end_unpacking(source);
}

uint64_t rg_source_most(const rg_source *source)
{
    const uint64_t left = source->end - source->at;
    if (source->packing == RG_PLAIN)
        return left;
    const uint64_t packed = left + waiting(source) + 64; /* bits that zlib holds already */
    return packed < UINT64_MAX / 1032 ? packed * 1032 : UINT64_MAX;
}

rg_status rg_source_read(rg_source *source, void *to, size_t size, size_t *got)
{
    if (source->packing == RG_PLAIN) {
        const uint64_t left = source->end - source->at;
        *got = size < left ? size : (size_t)left;
        RG_TRY(rg_regular_read(source->file, source->at, to, *got));
        source->at += *got;
    } else {
        RG_TRY(unpack_some(source, to, size, got));
    }
    source->made += *got;
    if (source->summed)
        source->crc = rg_crc32(source->crc, to, *got);
    return RG_OK;
}

rg_status rg_source_take(rg_source *source, void *to, size_t size, const char *what)
{
    size_t got = 0;
    RG_TRY(rg_source_read(source, to, size, &got));
    RG_CHECK(got == size, RG_MALFORMED, "ends inside %s, at byte %llu%s", what,
             (unsigned long long)source->made,
             source->packing != RG_PLAIN ? " of the decompressed data" : "");
    return RG_OK;
}

rg_status rg_source_finish(rg_source *source)
{
    char byte;
    size_t got = 0;
    const uint64_t offset = source->made;
    RG_TRY(rg_source_read(source, &byte, 1, &got));
    RG_CHECK(got == 0, RG_MALFORMED, "extra bytes follow the declared data, at byte %llu%s",
             (unsigned long long)offset,
             source->packing != RG_PLAIN ? " of the decompressed data" : "");
    return RG_OK;
}
