/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* IDX files, as those of MNIST: two bytes 0, the type of the elements (8: u8), the number of
 * dimensions, these as big-endian words, the elements.
 *
 *      00 00 08 03  00 00 ea 60  00 00 00 1c  00 00 00 1c  …        60000 images of 28 x 28 */
#include "train/dataset.h"
#include "train/data_source.h"

#include <string.h>
#include <sys/stat.h>

typedef struct idx_file {
    char path[RG_DATASET_PATH];
    int file;
    rg_source source;
    int rank;
    int64_t dims[4];
} idx_file;

/* ---- finding ---- */

static const char *part_name(rg_dataset_part part)
{
    return part == RG_DATASET_TEST ? "t10k" : "train";
}

/* The path of "train-labels-idx1-ubyte" or of the same with .gz; false if there is neither. */
static bool find_file(const char *folder, rg_dataset_part part, const char *what, char *path,
                      bool *packed)
{
    static const char *const ends[] = { "", ".gz" };
    for (int i = 0; i < 2; i++) {
        char name[64];
        struct stat info;
        strcpy(name, part_name(part));
        strcat(name, what);
        strcat(name, ends[i]);
        *packed = i == 1;
        if (rg_path_join(path, folder, name) == RG_OK && stat(path, &info) == 0)
            return true;
    }
    return false;
}

static bool find_images(const char *folder, rg_dataset_part part, char *path, bool *packed)
{
    return find_file(folder, part, "-images-idx3-ubyte", path, packed) ||
           find_file(folder, part, "-images-idx4-ubyte", path, packed);
}

static bool find_labels(const char *folder, rg_dataset_part part, char *path, bool *packed)
{
    return find_file(folder, part, "-labels-idx1-ubyte", path, packed);
}

bool rg_idx_is_here(const char *folder)
{
    char path[RG_DATASET_PATH];
    bool packed;
    for (int part = RG_DATASET_TRAIN; part <= RG_DATASET_TEST; part++) {
        if (find_images(folder, (rg_dataset_part)part, path, &packed) ||
            find_labels(folder, (rg_dataset_part)part, path, &packed))
            return true;
    }
    return false;
}

/* ---- reading ---- */

static rg_status read_header(idx_file *idx)
{
    unsigned char start[4], word[4];
    RG_TRY(rg_source_take(&idx->source, start, sizeof start, "its IDX header"));
    RG_CHECK(start[0] == 0 && start[1] == 0, RG_MALFORMED,
             "this is not an IDX file: it starts with %02x %02x, not 00 00", start[0], start[1]);
    RG_CHECK(start[2] == 8, RG_UNSUPPORTED,
             "the IDX element type is %02x, at byte 2; only 08 (u8) is supported", start[2]);
    idx->rank = start[3];
    RG_CHECK(idx->rank >= 1 && idx->rank <= 4, RG_UNSUPPORTED,
             "the file has %d dimensions, at byte 3; 1, 3 and 4 are supported", idx->rank);
    for (int d = 0; d < idx->rank; d++) {
        RG_TRY(rg_source_take(&idx->source, word, sizeof word, "its IDX header"));
        idx->dims[d] = (int64_t)word[0] << 24 | word[1] << 16 | word[2] << 8 | word[3];
    }
    return RG_OK;
}

static rg_status read_images(idx_file *idx, rg_dataset *set)
{
    RG_CHECK(idx->rank == 3 || idx->rank == 4, RG_MALFORMED,
             "the file has %d dimensions, at byte 3; images must have 3, or 4 with channels",
             idx->rank);
    set->info = (rg_dataset_info){ .count = idx->dims[0],
                                   .height = idx->dims[1],
                                   .width = idx->dims[2],
                                   .channels = idx->rank == 4 ? idx->dims[3] : 1,
                                   .dtype = RG_U8 };
    RG_TRY(rg_dataset_allocate(set, rg_source_most(&idx->source)));
    RG_TRY(rg_source_take(&idx->source, set->pixels, set->pixel_bytes, "its images"));
    return rg_source_finish(&idx->source);
}

/* Reads labels in pieces: `to` may be NULL, to learn the largest alone. */
static rg_status read_labels(idx_file *idx, int64_t count, int32_t *to, int32_t *largest)
{
    RG_CHECK(idx->rank == 1, RG_MALFORMED,
             "the file has %d dimensions, at byte 3; labels must have 1", idx->rank);
    RG_CHECK(count < 0 || idx->dims[0] == count, RG_MALFORMED,
             "the file declares %lld labels, at byte 4, but there are %lld images",
             (long long)idx->dims[0], (long long)count);
    unsigned char piece[4096];
    for (int64_t at = 0; at < idx->dims[0];) {
        const int64_t left = idx->dims[0] - at;
        const int64_t size = left < (int64_t)sizeof piece ? left : (int64_t)sizeof piece;
        RG_TRY(rg_source_take(&idx->source, piece, (size_t)size, "its labels"));
        for (int64_t i = 0; i < size; i++) {
            *largest = piece[i] > *largest ? piece[i] : *largest;
            if (to != NULL)
                to[at + i] = piece[i];
        }
        at += size;
    }
    return rg_source_finish(&idx->source);
}

static rg_status begin_file(idx_file *idx, bool packed)
{
    uint64_t size;
    RG_TRY(rg_regular_open(idx->path, &idx->file, &size));
    rg_status status =
        rg_source_begin(&idx->source, idx->file, 0, size, packed ? RG_GZIP : RG_PLAIN);
    if (status == RG_OK)
        status = read_header(idx);
    return status;
}

static rg_status end_file(idx_file *idx, rg_status status)
{
    rg_source_end(&idx->source);
    rg_regular_close(idx->file);
    if (status != RG_OK)
        rg_path_prefix(idx->path);
    return status;
}

static rg_status images_of(const char *folder, rg_dataset_part part, rg_dataset *set)
{
    idx_file idx = { .file = -1 };
    bool packed;
    if (!find_images(folder, part, idx.path, &packed)) {
        const rg_status missing = rg_dataset_no_part(part);
        rg_path_prefix(folder);
        return missing;
    }
    rg_status status = begin_file(&idx, packed);
    if (status == RG_OK)
        status = read_images(&idx, set);
    return end_file(&idx, status);
}

/* Of the part that is not read, labels alone are looked at, if they are there. */
static rg_status labels_of(const char *folder, rg_dataset_part part, int64_t count, int32_t *to,
                           int32_t *largest)
{
    idx_file idx = { .file = -1 };
    bool packed;
    if (!find_labels(folder, part, idx.path, &packed)) {
        if (to == NULL)
            return RG_OK;
        (void)rg_fail(RG_IO, "the file %s-labels-idx1-ubyte is missing beside the images",
                      part_name(part));
        rg_path_prefix(folder);
        return RG_IO;
    }
    rg_status status = begin_file(&idx, packed);
    if (status == RG_OK)
        status = read_labels(&idx, count, to, largest);
    return end_file(&idx, status);
}

rg_status rg_idx_read(const char *folder, rg_dataset_part part, rg_dataset *set)
{
    const rg_dataset_part other = part == RG_DATASET_TEST ? RG_DATASET_TRAIN : RG_DATASET_TEST;
    int32_t largest = 0;
    void *labels;
    if (part == RG_DATASET_VALIDATION) {
        (void)rg_dataset_no_part(part);
        rg_path_prefix(folder);
        return RG_INVALID_ARGUMENT;
    }
    RG_TRY(images_of(folder, part, set));
    RG_TRY(rg_allocate(&rg_default_allocator, (size_t)set->info.count * sizeof(int32_t), &labels));
    set->labels = labels;
    RG_TRY(labels_of(folder, part, set->info.count, set->labels, &largest));
    RG_TRY(labels_of(folder, other, -1, NULL, &largest));
    return rg_dataset_name(set, largest + 1, NULL);
}
