/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* An opened data set: see opened_set.h. */
#include "tests/opened_set.h"

#include <unistd.h>

rg_dataset *opened;

rg_status open_it(const char *name, rg_dataset_part part)
{
    rg_dataset_destroy(opened);
    const rg_status status =
        rg_dataset_open(name[0] != 0 ? scratch(name) : scratch_folder, part, &opened);
    EXPECT((status == RG_OK) == (opened != NULL));
    return status;
}

void close_it(void)
{
    rg_dataset_destroy(opened);
    opened = NULL;
}

bool refused(rg_status status)
{
    const bool lacks = status == RG_INVALID_ARGUMENT && strstr(rg_error_text(), "has no ") != NULL;
    return (status == RG_MALFORMED || status == RG_UNSUPPORTED || status == RG_IO || lacks) &&
           strstr(rg_error_text(), scratch_folder) != NULL && opened == NULL;
}

bool holds(int64_t count, int64_t height, int64_t width, int64_t channels, int32_t classes,
           rg_dtype dtype)
{
    rg_dataset_info info = { 0 };
    EXPECT_OK(rg_dataset_get_info(opened, &info));
    return info.count == count && info.height == height && info.width == width &&
           info.channels == channels && info.classes == classes && info.dtype == dtype;
}

bool image_is(int64_t index, const void *pixels, size_t size)
{
    const void *image = rg_dataset_image(opened, index);
    return image != NULL && memcmp(image, pixels, size) == 0;
}

void try_damage(const char *name, const bytes *file, const char *path, bool flips)
{
    bytes damaged = *file;
    for (damaged.size = 0; damaged.size < file->size; damaged.size++) {
        write_file(name, &damaged);
        EXPECT(refused(open_it(path, RG_DATASET_TRAIN)));
    }
    static const unsigned char masks[] = { 0x01, 0x80, 0xff };
    for (size_t i = 0; flips && i < 3 * file->size; i++) {
        damaged.data[i / 3] ^= masks[i % 3];
        write_file(name, &damaged);
        const rg_status status = open_it(path, RG_DATASET_TRAIN);
        EXPECT(status == RG_OK || refused(status));
        damaged.data[i / 3] ^= masks[i % 3];
    }
    write_file(name, file);
    EXPECT_OK(open_it(path, RG_DATASET_TRAIN));
    close_it();
}
