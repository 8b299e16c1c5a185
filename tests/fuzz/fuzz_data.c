/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Data sets for fuzz targets: use them, and make files of them whole again. */
#include "fuzz_data.h"

#include "train/zip.h"

#include <retrograde/dataset.h>

/* ---- use ---- */

static void look(const rg_dataset *set)
{
    rg_dataset_info info;
    FUZZ_CHECK(rg_dataset_get_info(set, &info) == RG_OK);
    FUZZ_CHECK(info.count >= 1 && info.height >= 1 && info.width >= 1 && info.channels >= 1 &&
               info.channels <= RG_DATASET_CHANNELS && info.classes >= 1 &&
               info.classes <= RG_DATASET_CLASSES);
    const size_t bytes =
        (size_t)(info.height * info.width * info.channels) * rg_dtype_size(info.dtype);
    unsigned sum = 0;
    FUZZ_CHECK(info.targets == (info.target == RG_TARGET_CLASS  ? 1
                                : info.target == RG_TARGET_MASK ? info.height * info.width
                                                                : info.classes));
    for (int64_t i = 0; i < info.count; i++) {
        const unsigned char *pixels = rg_dataset_image(set, i);
        const int32_t label = rg_dataset_label(set, i);
        FUZZ_CHECK(pixels != NULL && label < info.classes);
        FUZZ_CHECK(info.target == RG_TARGET_CLASS ? label >= 0 : label == -1);
        const float *values = rg_dataset_values(set, i);
        const int32_t *mask = rg_dataset_mask(set, i);
        FUZZ_CHECK((mask != NULL) == (info.target == RG_TARGET_MASK));
        sum += values != NULL ? values[info.targets - 1] > 0 : 0;
        FUZZ_CHECK(mask == NULL || mask[info.targets - 1] < info.classes);
        sum += pixels[0] + pixels[bytes - 1];
    }
    FUZZ_CHECK(rg_dataset_image(set, info.count) == NULL && rg_dataset_image(set, -1) == NULL);
    for (int32_t i = 0; i < info.classes; i++)
        sum += (unsigned)strlen(rg_dataset_class_name(set, i));
    (void)*(volatile unsigned *)&sum;
}

static void use(const rg_dataset *set)
{
    double mean[RG_DATASET_CHANNELS], deviation[RG_DATASET_CHANNELS];
    rg_dataset *train, *validation;
    look(set);
    (void)FUZZ_TRY(rg_dataset_measure(set, mean, deviation));
    if (FUZZ_TRY(rg_dataset_split(set, 0.5, 1, &train, &validation))) {
        look(train);
        look(validation);
    }
    rg_dataset_destroy(train);
    rg_dataset_destroy(validation);
}

void fuzz_use_dataset(const char *path)
{
    for (int part = 0; part < 2; part++) {
        rg_dataset *set;
        if (FUZZ_TRY(rg_dataset_open(path, part == 0 ? RG_DATASET_TRAIN : RG_DATASET_TEST, &set)))
            use(set);
        else
            FUZZ_CHECK(set == NULL);
        rg_dataset_destroy(set);
    }
}

/* ---- numbers ---- */

static void put_low(uint8_t *to, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        to[i] = (uint8_t)(value >> 8 * i);
}

static uint64_t get_low(const uint8_t *from, int bytes)
{
    uint64_t value = 0;
    for (int i = bytes - 1; i >= 0; i--)
        value = value << 8 | from[i];
    return value;
}

static uint32_t get_high32(const uint8_t *from)
{
    return (uint32_t)from[0] << 24 | (uint32_t)from[1] << 16 | (uint32_t)from[2] << 8 | from[3];
}

/* ---- gzip ---- */

uint8_t *fuzz_gzip(const uint8_t *data, size_t size, size_t *made)
{
    enum { HEAD = 10, BLOCK = 5, TAIL = 8, LARGEST = 65535 };
    const size_t blocks = size / LARGEST + 1;
    uint8_t *to = malloc(HEAD + blocks * BLOCK + size + TAIL), *at = to;
    FUZZ_CHECK(to != NULL);
    memcpy(at, "\x1f\x8b\x08\0\0\0\0\0\0\x03", HEAD);
    at += HEAD;
    for (size_t i = 0; i < blocks; i++) {
        const size_t from = i * LARGEST, left = size - from;
        const size_t length = left < LARGEST ? left : LARGEST;
        *at = i + 1 == blocks;
        put_low(at + 1, length, 2);
        put_low(at + 3, ~length, 2);
        if (length > 0)
            memcpy(at + BLOCK, data + from, length);
        at += BLOCK + length;
    }
    put_low(at, rg_crc32(0, data, size), 4);
    put_low(at + 4, size, 4);
    *made = (size_t)(at + TAIL - to);
    return to;
}

/* ---- PNG ---- */

void fuzz_repair_png(uint8_t *data, size_t size)
{
    for (size_t at = 8; at < size && size - at >= 12;) {
        const size_t length = get_high32(data + at), left = size - at - 12;
        if (length > left)
            return;
        const uint32_t crc = rg_crc32(0, data + at + 4, length + 4);
        for (int i = 0; i < 4; i++)
            data[at + 8 + length + (size_t)i] = (uint8_t)(crc >> (24 - 8 * i));
        at += 12 + length;
    }
}

/* ---- ZIP ---- */

/* The sum of a member, as far as it can be read. */
static bool sum_member(const rg_zip *zip, const rg_zip_member *member, uint32_t *crc)
{
    rg_source source;
    char piece[4096];
    size_t got = 1, whole = 0;
    if (rg_zip_begin(zip, member, &source) != RG_OK)
        return false;
    while (got > 0 && whole < 1 << 20 &&
           rg_source_read(&source, piece, sizeof piece, &got) == RG_OK)
        whole += got;
    *crc = source.crc;
    rg_source_end(&source);
    return true;
}

void fuzz_repair_zip(uint8_t *data, size_t size)
{
    enum { ENTRY = 46, MOST_NAME = 64 };
    rg_zip zip;
    if (rg_zip_open(&zip, fuzz_file("repair.zip", data, size)) != RG_OK)
        return;
    for (size_t at = 0; at < size && size - at >= ENTRY; at++) {
        if (memcmp(data + at, "PK\1\2", 4) != 0)
            continue;
        const size_t length = (size_t)get_low(data + at + 28, 2);
        char name[MOST_NAME + 1] = "";
        rg_zip_member member;
        bool found = false;
        uint32_t crc;
        if (length > MOST_NAME || length > size - at - ENTRY)
            continue;
        memcpy(name, data + at + ENTRY, length);
        if (rg_zip_find(&zip, name, &found, &member) == RG_OK && found &&
            sum_member(&zip, &member, &crc))
            put_low(data + at + 16, crc, 4);
    }
    rg_zip_close(&zip);
}
