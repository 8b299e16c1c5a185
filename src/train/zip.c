/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* ZIP files: members, then a directory of them, then a record that says where it begins.
 *
 *      PK34 name extra data …   PK12 sizes, offset, name, extra, comment …   PK56 directory at,
 * size
 *
 *  Large archives have words of 64 bits in an extra field (1) and in a record PK66 of their own, to
 *  which PK67 points. The directory alone is believed; each of its numbers is compared with the
 * file before it is used. */
#include "train/zip.h"

#include <string.h>

enum {
    END_BYTES = 22,     /* of the record PK56 without its comment */
    COMMENT = 65535,    /* the longest */
    LOCATOR_BYTES = 20, /* of PK67, which stands before PK56 */
    END64_BYTES = 56,   /* of PK66 */
    ENTRY_BYTES = 46,   /* of PK12 without names */
    HEADER_BYTES = 30,  /* of PK34 without names */
    DIRECTORY = 1 << 26 /* bytes of the largest directory that is read */
};

static uint32_t u16(const unsigned char *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8;
}

static uint32_t u32(const unsigned char *at)
{
    return u16(at) | u16(at + 2) << 16;
}

static uint64_t u64(const unsigned char *at)
{
    return u32(at) | (uint64_t)u32(at + 4) << 32;
}

/* ---- the directory ---- */

/* The words of 64 bits, where the archive has them. `end_at` is the offset of PK56. */
static rg_status read_end64(const rg_zip *zip, uint64_t end_at, uint64_t *at, uint64_t *bytes)
{
    unsigned char locator[LOCATOR_BYTES], end[END64_BYTES];
    RG_CHECK(end_at >= LOCATOR_BYTES, RG_MALFORMED, "the ZIP archive lacks its 64-bit record");
    RG_TRY(rg_regular_read(zip->file, end_at - LOCATOR_BYTES, locator, sizeof locator));
    RG_CHECK(memcmp(locator, "PK\6\7", 4) == 0, RG_MALFORMED,
             "the ZIP archive lacks its 64-bit record");
    const uint64_t record = u64(locator + 8);
    RG_CHECK(record <= end_at - LOCATOR_BYTES && end_at - LOCATOR_BYTES - record >= END64_BYTES,
             RG_MALFORMED, "the ZIP archive declares its 64-bit record at byte %llu",
             (unsigned long long)record);
    RG_TRY(rg_regular_read(zip->file, record, end, sizeof end));
    RG_CHECK(memcmp(end, "PK\6\6", 4) == 0, RG_MALFORMED,
             "the ZIP archive has no 64-bit record at byte %llu", (unsigned long long)record);
    *bytes = u64(end + 40);
    *at = u64(end + 48);
    return RG_OK;
}

/* Finds PK56: the last one whose comment ends with the file. */
static rg_status find_directory(const rg_zip *zip, uint64_t *at, uint64_t *bytes)
{
    const size_t most = END_BYTES + COMMENT;
    const size_t size = zip->size < most ? (size_t)zip->size : most;
    RG_CHECK(size >= END_BYTES, RG_MALFORMED, "this is not a ZIP archive: it has only %zu bytes",
             size);
    void *memory;
    RG_TRY(rg_allocate(&rg_default_allocator, size, &memory));
    const unsigned char *tail = memory;
    rg_status status = rg_regular_read(zip->file, zip->size - size, memory, size);
    size_t i = size - END_BYTES + 1;
    bool found = false;
    while (status == RG_OK && i > 0 && !found) {
        i--;
        found = memcmp(tail + i, "PK\5\6", 4) == 0 && u16(tail + i + 20) == size - END_BYTES - i;
    }
    if (found) {
        *bytes = u32(tail + i + 12);
        *at = u32(tail + i + 16);
        const bool large = *at == UINT32_MAX || *bytes == UINT32_MAX || u16(tail + i + 10) == 65535;
        if (large)
            status = read_end64(zip, zip->size - size + i, at, bytes);
    } else if (status == RG_OK) {
        status = rg_fail(RG_MALFORMED, "this is not a ZIP archive: it has no central directory");
    }
    rg_release(&rg_default_allocator, memory, size);
    return status;
}

static rg_status read_directory(rg_zip *zip)
{
    uint64_t at = 0, bytes = 0;
    void *entries;
    RG_TRY(find_directory(zip, &at, &bytes));
    RG_CHECK(at <= zip->size && bytes <= zip->size - at, RG_MALFORMED,
             "the ZIP archive declares a directory of %llu bytes at byte %llu, but the file has "
             "%llu bytes",
             (unsigned long long)bytes, (unsigned long long)at, (unsigned long long)zip->size);
    RG_CHECK(bytes <= DIRECTORY, RG_UNSUPPORTED,
             "the directory of the ZIP archive has %llu bytes; at most %d are supported",
             (unsigned long long)bytes, DIRECTORY);
    RG_TRY(rg_allocate(&rg_default_allocator, (size_t)bytes, &entries));
    zip->entries = entries;
    zip->entry_bytes = (size_t)bytes;
    zip->entries_at = at;
    return rg_regular_read(zip->file, at, entries, (size_t)bytes);
}

rg_status rg_zip_open(rg_zip *zip, const char *path)
{
    *zip = (rg_zip){ .file = -1 };
    rg_status status = rg_regular_open(path, &zip->file, &zip->size);
    if (status == RG_OK)
        status = read_directory(zip);
    if (status != RG_OK)
        rg_zip_close(zip);
    return status;
}

void rg_zip_close(rg_zip *zip)
{
    rg_release(&rg_default_allocator, zip->entries, zip->entry_bytes);
    rg_regular_close(zip->file);
    *zip = (rg_zip){ .file = -1 };
}

/* ---- members ---- */

/* Sizes and offset that do not fit 32 bits stand in the extra field 1, in this order. */
static rg_status read_large(const unsigned char *extra, size_t size, rg_zip_member *member)
{
    uint64_t *const words[] = { &member->bytes, &member->packed, &member->header_at };
    while (size >= 4) {
        const size_t length = u16(extra + 2);
        RG_CHECK(length <= size - 4, RG_MALFORMED, "its extra field runs past its entry");
        size_t used = 0;
        for (int i = 0; u16(extra) == 1 && i < 3; i++) {
            if (*words[i] != UINT32_MAX)
                continue;
            RG_CHECK(used + 8 <= length, RG_MALFORMED, "its extra field lacks a word of 64 bits");
            *words[i] = u64(extra + 4 + used);
            used += 8;
        }
        if (u16(extra) == 1)
            return RG_OK;
        extra += 4 + length;
        size -= 4 + length;
    }
    return RG_OK;
}

static rg_status read_entry(const unsigned char *entry, size_t name, size_t extra,
                            rg_zip_member *member)
{
    *member = (rg_zip_member){ .flags = u16(entry + 8),
                               .method = (int)u16(entry + 10),
                               .crc = u32(entry + 16),
                               .packed = u32(entry + 20),
                               .bytes = u32(entry + 24),
                               .header_at = u32(entry + 42) };
    return read_large(entry + ENTRY_BYTES + name, extra, member);
}

rg_status rg_zip_find(const rg_zip *zip, const char *name, bool *found, rg_zip_member *member)
{
    const size_t length = strlen(name);
    *found = false;
    for (size_t at = 0; at < zip->entry_bytes;) {
        const unsigned char *entry = zip->entries + at;
        const size_t left = zip->entry_bytes - at;
        const unsigned long long offset = zip->entries_at + at;
        RG_CHECK(left >= ENTRY_BYTES && memcmp(entry, "PK\1\2", 4) == 0, RG_MALFORMED,
                 "the ZIP directory has no entry at byte %llu", offset);
        const size_t names = u16(entry + 28), extra = u16(entry + 30), comment = u16(entry + 32);
        RG_CHECK(names + extra + comment <= left - ENTRY_BYTES, RG_MALFORMED,
                 "the entry of the ZIP directory at byte %llu runs past its end", offset);
        if (names == length && memcmp(entry + ENTRY_BYTES, name, length) == 0) {
            RG_CHECK(!*found, RG_MALFORMED, "the member %s appears twice, at byte %llu", name,
                     offset);
            *found = true;
            RG_TRY(read_entry(entry, names, extra, member));
        }
        at += ENTRY_BYTES + names + extra + comment;
    }
    return RG_OK;
}

rg_status rg_zip_begin(const rg_zip *zip, const rg_zip_member *member, rg_source *source)
{
    unsigned char header[HEADER_BYTES];
    const uint64_t limit = zip->entries_at;
    const unsigned long long offset = member->header_at;
    *source = (rg_source){ .file = -1 };
    RG_CHECK((member->flags & 1) == 0, RG_UNSUPPORTED, "it is encrypted");
    RG_CHECK(member->method == 0 || member->method == 8, RG_UNSUPPORTED,
             "it is compressed with method %d; 0 (stored) and 8 (deflated) are supported",
             member->method);
    RG_CHECK(member->header_at <= limit && limit - member->header_at >= HEADER_BYTES, RG_MALFORMED,
             "it is declared to start at byte %llu, but the directory starts at byte %llu", offset,
             (unsigned long long)limit);
    RG_TRY(rg_regular_read(zip->file, member->header_at, header, sizeof header));
    RG_CHECK(memcmp(header, "PK\3\4", 4) == 0, RG_MALFORMED, "it has no local header at byte %llu",
             offset);
    const uint64_t at = member->header_at + HEADER_BYTES + u16(header + 26) + u16(header + 28);
    RG_CHECK(
        at <= limit && member->packed <= limit - at, RG_MALFORMED,
        "it is declared to have %llu bytes at byte %llu, but the directory starts at byte %llu",
        (unsigned long long)member->packed, (unsigned long long)at, (unsigned long long)limit);
    RG_CHECK(member->method != 0 || member->packed == member->bytes, RG_MALFORMED,
             "it is stored, but its sizes are %llu and %llu", (unsigned long long)member->packed,
             (unsigned long long)member->bytes);
    RG_TRY(rg_source_begin(source, zip->file, at, at + member->packed,
                           member->method == 0 ? RG_PLAIN : RG_DEFLATE));
    source->summed = true;
    return RG_OK;
}

rg_status rg_zip_verify(const rg_zip_member *member, const rg_source *source)
{
    RG_CHECK(source->made == member->bytes, RG_MALFORMED, "it has %llu bytes, not %llu",
             (unsigned long long)source->made, (unsigned long long)member->bytes);
    RG_CHECK(source->crc == member->crc, RG_MALFORMED,
             "it is corrupt: its checksum is %08x, not %08x", source->crc, member->crc);
    return RG_OK;
}
