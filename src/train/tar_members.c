/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Reading tar archives: blocks of 512 bytes, a header before each member. */
#include "train/tar_members.h"
#include "train/data_source.h"

#include <string.h>

enum { BLOCK = 512, MOST_PAX_BYTES = 1 << 16 };

/* Fields of a header: where they are, and their bytes. */
enum {
    NAME = 0,
    NAME_BYTES = 100,
    SIZE = 124,
    NUMBER_BYTES = 12,
    SUM = 148,
    SUM_BYTES = 8,
    TYPE = 156,
    MAGIC = 257,
    PREFIX = 345,
    PREFIX_BYTES = 155
};

/* ---- headers ---- */

/* A number in octal digits, or with the highest bit set in binary. */
static bool parse_number(const unsigned char *field, int bytes, uint64_t *value)
{
    *value = 0;
    if ((field[0] & 0x80) != 0) {
        for (int i = 1; i < bytes; i++) {
            if (*value >> 56 != 0)
                return false;
            *value = *value << 8 | field[i];
        }
        return (field[0] & 0x7f) == 0;
    }
    int i = 0;
    while (i < bytes && field[i] == ' ')
        i++;
    for (; i < bytes && field[i] >= '0' && field[i] <= '7'; i++)
        *value = *value << 3 | (uint64_t)(field[i] - '0');
    return i == bytes || field[i] == 0 || field[i] == ' ';
}

/* The sum of all bytes, with spaces in place of itself. */
static bool has_sum(const unsigned char header[BLOCK])
{
    uint64_t sum = 0, declared;
    for (int i = 0; i < BLOCK; i++)
        sum += i >= SUM && i < SUM + SUM_BYTES ? ' ' : header[i];
    return parse_number(header + SUM, SUM_BYTES, &declared) && declared == sum;
}

static bool is_zero(const unsigned char header[BLOCK])
{
    int i = 0;
    while (i < BLOCK && header[i] == 0)
        i++;
    return i == BLOCK;
}

/* "prefix/name"; the prefix is one of POSIX headers alone. */
static void take_name(const unsigned char header[BLOCK], char name[RG_TAR_NAME])
{
    size_t length = 0;
    if (memcmp(header + MAGIC, "ustar\0", 6) == 0 && header[PREFIX] != 0) {
        length = strnlen((const char *)header + PREFIX, PREFIX_BYTES);
        memcpy(name, header + PREFIX, length);
        name[length++] = '/';
    }
    const size_t rest = strnlen((const char *)header + NAME, NAME_BYTES);
    memcpy(name + length, header + NAME, rest);
    name[length + rest] = 0;
}

/* ---- what precedes a member ---- */

/* Names and sizes that replace those of the next header. */
typedef struct override {
    char name[RG_TAR_NAME]; /* "": none */
    uint64_t size;
    bool has_size;
    bool is_sparse;
    bool is_long; /* the name, which does not fit */
} override;

/* A value of PAX; false if it is none. */
static bool take_value(const char *key, size_t key_bytes, const char *value, size_t bytes,
                       override *o)
{
    static const char sparse[] = "GNU.sparse.";
    if (key_bytes >= sizeof sparse - 1 && memcmp(key, sparse, sizeof sparse - 1) == 0)
        o->is_sparse = true;
    if (key_bytes == 4 && memcmp(key, "path", 4) == 0) {
        const size_t kept = bytes < RG_TAR_NAME ? bytes : RG_TAR_NAME - 1;
        memcpy(o->name, value, kept);
        o->name[kept] = 0;
        o->is_long = bytes > kept;
    }
    if (key_bytes != 4 || memcmp(key, "size", 4) != 0)
        return true;
    o->size = 0;
    o->has_size = true;
    for (size_t i = 0; i < bytes; i++) {
        if (value[i] < '0' || value[i] > '9' || o->size > UINT64_MAX / 10 - 1)
            return false;
        o->size = o->size * 10 + (uint64_t)(value[i] - '0');
    }
    return true;
}

/* One record of PAX, "27 path=some/name\n"; returns its length, 0 if it is none. */
static size_t take_record(const char *text, size_t left, override *o)
{
    size_t length = 0, digits = 0;
    while (digits < left && text[digits] >= '0' && text[digits] <= '9' && length <= left)
        length = length * 10 + (size_t)(text[digits++] - '0');
    if (digits == 0 || length > left || length < digits + 3 || text[digits] != ' ' ||
        text[length - 1] != '\n')
        return 0;
    const char *key = text + digits + 1, *end = text + length - 1;
    const char *value = memchr(key, '=', (size_t)(end - key));
    if (value == NULL)
        return 0;
    const size_t key_bytes = (size_t)(value - key), bytes = (size_t)(end - value) - 1;
    return take_value(key, key_bytes, value + 1, bytes, o) ? length : 0;
}

static rg_status too_long(uint64_t at, uint64_t size)
{
    return rg_fail(RG_UNSUPPORTED, "the header at byte %llu has %llu bytes, which is too long",
                   (unsigned long long)at, (unsigned long long)size);
}

static rg_status read_extra(const rg_tar *tar, uint64_t at, uint64_t size, char type, override *o)
{
    char text[MOST_PAX_BYTES];
    const bool pax = type == 'x';
    if (size >= (pax ? MOST_PAX_BYTES : RG_TAR_NAME))
        return too_long(at, size);
    RG_TRY(rg_regular_read(tar->file, at, text, (size_t)size));
    if (!pax) {
        memcpy(o->name, text, (size_t)size);
        o->name[size] = 0;
        return RG_OK;
    }
    for (size_t i = 0; i < size;) {
        const size_t length = take_record(text + i, (size_t)size - i, o);
        RG_CHECK(length > 0, RG_MALFORMED, "the PAX header at byte %llu is invalid",
                 (unsigned long long)at);
        i += length;
    }
    return o->is_long ? too_long(at, size) : RG_OK;
}

/* ---- members ---- */

static rg_status read_header(rg_tar *tar, unsigned char header[BLOCK], uint64_t *size)
{
    const unsigned long long at = tar->next;
    RG_CHECK(tar->size - tar->next >= BLOCK, RG_MALFORMED,
             "the archive ends within the header at byte %llu", at);
    RG_TRY(rg_regular_read(tar->file, tar->next, header, BLOCK));
    if (is_zero(header))
        return RG_OK;
    RG_CHECK(has_sum(header), RG_MALFORMED,
             "this is not a tar archive: the header at byte %llu has "
             "a wrong checksum",
             at);
    RG_CHECK(parse_number(header + SIZE, NUMBER_BYTES, size), RG_MALFORMED,
             "the header at byte %llu has no valid size", at);
    return RG_OK;
}

static void take_member(const unsigned char header[BLOCK], const override *o, uint64_t at,
                        uint64_t size, rg_tar_member *member)
{
    take_name(header, member->name);
    if (o->name[0] != 0)
        memcpy(member->name, o->name, sizeof o->name);
    member->at = at;
    member->size = size;
    member->is_link = header[TYPE] == '1' || header[TYPE] == '2';
}

/* Whether something else than padding follows the end, as in files that were joined. */
static rg_status look_behind(rg_tar *tar)
{
    enum { MOST = 1 << 21 }; /* twice the longest padding of GNU tar */
    unsigned char block[BLOCK];
    const uint64_t first = tar->next, left = tar->size - first;
    const uint64_t end = first + (left < MOST ? left : MOST);
    for (uint64_t at = first; !tar->has_more && end - at >= BLOCK; at += BLOCK) {
        RG_TRY(rg_regular_read(tar->file, at, block, BLOCK));
        tar->has_more = !is_zero(block) && has_sum(block);
    }
    return RG_OK;
}

rg_status rg_tar_next(rg_tar *tar, rg_tar_member *member, bool *found)
{
    override o = { .name = "" };
    *found = false;
    while (tar->next < tar->size) {
        unsigned char header[BLOCK];
        uint64_t size = 0;
        RG_TRY(read_header(tar, header, &size));
        if (is_zero(header)) /* blocks of 0 end the archive */
            return look_behind(tar);
        const char type = (char)header[TYPE];
        const bool extra = type == 'x' || type == 'L';
        const uint64_t at = tar->next + BLOCK;
        if (!extra && o.has_size)
            size = o.size;
        if (type >= '1' && type <= '6')
            size = 0; /* links, devices, folders and pipes have no data, whatever they declare */
        const uint64_t padded =
            size < UINT64_MAX - BLOCK ? (size + BLOCK - 1) / BLOCK * BLOCK : size;
        RG_CHECK(padded <= tar->size - at, RG_MALFORMED,
                 "the member at byte %llu declares %llu bytes, but the archive ends earlier",
                 (unsigned long long)tar->next, (unsigned long long)size);
        tar->next = at + padded;
        if (extra) {
            RG_TRY(read_extra(tar, at, size, type, &o));
            continue;
        }
        RG_CHECK(type != 'S' && !o.is_sparse, RG_UNSUPPORTED,
                 "the member at byte %llu is a sparse file, whose data is in pieces; pack it "
                 "without --sparse",
                 (unsigned long long)(at - BLOCK));
        if (strchr("0127", type) != NULL) { /* 0 as a number, too */
            take_member(header, &o, at, size, member);
            *found = true;
            return RG_OK;
        }
        if (type != 'g' && type != 'K') /* which do not belong to this member */
            o = (override){ .name = "" };
    }
    return RG_OK;
}
