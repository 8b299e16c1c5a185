/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Data sets as NPY arrays x and y: members of an NPZ file, or files of a folder. */
#include "train/dataset.h"
#include "train/zip.h"
#include "core/dtype.h"
#include "files/npy.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static const rg_allocator *const memory = &rg_default_allocator;

/* ---- arrays ---- */

typedef struct npy_array {
    bool found;
    char name[16]; /* "x_train.npy" */
    rg_npy_header h;
    char *data;
} npy_array;

static void release_array(npy_array *array)
{
    rg_release(memory, array->data, array->h.bytes);
    array->data = NULL;
}

static rg_status read_header(rg_source *source, rg_npy_header *h)
{
    unsigned char start[RG_NPY_START], size[4] = { 0 };
    size_t length_bytes = 0;
    void *text;
    RG_TRY(rg_source_take(source, start, sizeof start, "its NPY header"));
    RG_TRY(rg_npy_start(start, &length_bytes));
    RG_TRY(rg_source_take(source, size, length_bytes, "its NPY header"));
    const size_t length =
        (size_t)size[0] | (size_t)size[1] << 8 | (size_t)size[2] << 16 | (size_t)size[3] << 24;
    RG_CHECK(length <= RG_NPY_HEADER, RG_MALFORMED,
             "the NPY header has %zu bytes; at most %d are read", length, RG_NPY_HEADER);
    RG_TRY(rg_allocate(memory, length + 1, &text));
    rg_status status = rg_source_take(source, text, length, "its NPY header");
    if (status == RG_OK)
        status = rg_npy_header_parse(text, length, h);
    rg_release(memory, text, length + 1);
    return status;
}

static rg_status read_array(rg_source *source, npy_array *array)
{
    rg_npy_header h = { 0 };
    void *data;
    RG_TRY(read_header(source, &h));
    RG_CHECK(h.bytes <= rg_source_most(source), RG_MALFORMED,
             "the NPY header declares %zu bytes of elements, but the file can contain at most %llu",
             h.bytes, (unsigned long long)rg_source_most(source));
    RG_TRY(rg_allocate(memory, h.bytes, &data));
    array->h = h;
    array->data = data;
    RG_TRY(rg_source_take(source, data, h.bytes, "its elements"));
    RG_TRY(rg_source_finish(source));
    if (h.swapped)
        rg_npy_swap_bytes(data, h.bytes, rg_dtype_size(h.dtype));
    return RG_OK;
}

/* ---- where they stand ---- */

typedef struct npy_place {
    const char *path;
    const rg_zip *zip; /* NULL: the path is a folder */
} npy_place;

/* Puts file and member, or file alone, before the sentence. */
static rg_status blame(const npy_place *place, const char *name, rg_status status)
{
    char path[RG_DATASET_PATH];
    if (status != RG_OK && place->zip != NULL && name != NULL)
        rg_error_prefix("member %s: ", name);
    const bool inside = place->zip == NULL && name != NULL;
    if (status != RG_OK && inside && rg_path_join(path, place->path, name) == RG_OK)
        rg_path_prefix(path);
    else if (status != RG_OK)
        rg_path_prefix(place->path);
    return status;
}

static rg_status read_member(const npy_place *place, npy_array *array)
{
    rg_zip_member member;
    rg_source source;
    RG_TRY(rg_zip_find(place->zip, array->name, &array->found, &member));
    if (!array->found)
        return RG_OK;
    rg_status status = rg_zip_begin(place->zip, &member, &source);
    if (status == RG_OK)
        status = read_array(&source, array);
    if (status == RG_OK)
        status = rg_zip_verify(&member, &source);
    rg_source_end(&source);
    return status;
}

static rg_status read_file(const npy_place *place, npy_array *array)
{
    char path[RG_DATASET_PATH];
    struct stat info;
    uint64_t size;
    int file;
    rg_source source;
    RG_TRY(rg_path_join(path, place->path, array->name));
    array->found = stat(path, &info) == 0;
    if (!array->found)
        return RG_OK;
    rg_status status = rg_regular_open(path, &file, &size);
    if (status == RG_OK)
        status = rg_source_begin(&source, file, 0, size, RG_PLAIN);
    if (status == RG_OK)
        status = read_array(&source, array);
    rg_regular_close(file);
    return status;
}

/* Reads x or y of a part: "x_train", or "x", which counts as the training part. */
static rg_status find_array(const npy_place *place, char letter, rg_dataset_part part,
                            npy_array *array)
{
    static const char *const ends[2][2] = { { "_train", "" }, { "_test", "_val" } };
    for (int i = 0; i < 2 && !array->found; i++) {
        snprintf(array->name, sizeof array->name, "%c%s.npy", letter, ends[part][i]);
        const rg_status status =
            place->zip != NULL ? read_member(place, array) : read_file(place, array);
        RG_TRY(blame(place, array->name, status));
    }
    return RG_OK;
}

bool rg_npy_is_here(const char *folder)
{
    static const char *const names[] = { "x.npy", "y.npy", "x_train.npy", "x_test.npy",
                                         "x_val.npy" };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char path[RG_DATASET_PATH];
        struct stat info;
        if (rg_path_join(path, folder, names[i]) == RG_OK && stat(path, &info) == 0)
            return true;
    }
    return false;
}

/* ---- x ---- */

/* Elements between neighbours in the file. */
static void find_steps(const int64_t dims[4], bool fortran, int64_t step[4])
{
    int64_t next = 1;
    for (int i = 0; i < 4; i++) {
        const int d = fortran ? i : 3 - i;
        step[d] = next;
        next *= dims[d];
    }
}

/* Elements in C order, as u8 or f32, whatever the order and type in the file. */
static void convert(rg_dataset *set, const npy_array *x)
{
    const rg_dataset_info *info = &set->info;
    const int64_t dims[4] = { info->count, info->height, info->width, info->channels };
    int64_t step[4], i = 0;
    find_steps(dims, x->h.fortran, step);
    for (int64_t n = 0; n < dims[0]; n++) {
        for (int64_t h = 0; h < dims[1]; h++) {
            for (int64_t w = 0; w < dims[2]; w++) {
                const int64_t at = n * step[0] + h * step[1] + w * step[2];
                for (int64_t c = 0; c < dims[3]; c++, i++) {
                    const double value = rg_element_get(x->data, x->h.dtype, at + c * step[3]);
                    rg_element_set(set->pixels, info->dtype, i, value);
                }
            }
        }
    }
}

/* Reports the first pixel that is NaN or infinite: it would make all parameters NaN. */
static rg_status check_finite(const rg_dataset *set)
{
    const rg_dataset_info *info = &set->info;
    const int64_t row = info->width * info->channels, image = info->height * row;
    const float *pixels = (const float *)(const void *)set->pixels;
    for (int64_t i = 0; info->dtype == RG_F32 && i < info->count * image; i++)
        RG_CHECK(isfinite(pixels[i]), RG_MALFORMED,
                 "image %lld has the non-finite pixel %f at row %lld, column %lld, channel %lld",
                 (long long)(i / image), (double)(isnan(pixels[i]) ? NAN : pixels[i]),
                 (long long)(i % image / row), (long long)(i % row / info->channels),
                 (long long)(i % info->channels));
    return RG_OK;
}

static rg_status use_images(rg_dataset *set, npy_array *x)
{
    const int64_t *dims = x->h.dims;
    const int32_t rank = x->h.rank;
    RG_CHECK(rank >= 2 && rank <= 4, RG_UNSUPPORTED,
             "the array has %d dimensions; images must be (n, h, w, c), (n, h, w) or (n, w)", rank);
    RG_CHECK(x->h.dtype != RG_I32 && x->h.dtype != RG_I64, RG_UNSUPPORTED,
             "pixels have the dtype %s; u8, f16, f32 and f64 are supported",
             rg_dtype_name(x->h.dtype));
    set->info = (rg_dataset_info){ .count = dims[0],
                                   .height = rank > 2 ? dims[1] : 1,
                                   .width = rank > 2 ? dims[2] : dims[1],
                                   .channels = rank > 3 ? dims[3] : 1,
                                   .dtype = x->h.dtype == RG_U8 ? RG_U8 : RG_F32 };
    if (x->h.dtype == set->info.dtype && !x->h.fortran) {
        size_t bytes;
        RG_TRY(rg_dataset_check(set, &bytes));
        set->pixels = x->data; /* (n, h, w, c) already */
        set->pixel_bytes = bytes;
        x->data = NULL;
        return check_finite(set);
    }
    RG_TRY(rg_dataset_allocate(set, UINT64_MAX)); /* at most twice what was read */
    convert(set, x);
    return check_finite(set);
}

/* ---- y ---- */

static rg_status label_at(const npy_array *y, int64_t i, int32_t *label)
{
    const int64_t value = y->h.dtype == RG_U8    ? ((const uint8_t *)y->data)[i]
                          : y->h.dtype == RG_I32 ? ((const int32_t *)y->data)[i]
                                                 : ((const int64_t *)y->data)[i];
    RG_CHECK(value >= 0 && value < RG_DATASET_CLASSES, RG_MALFORMED,
             "label %lld is %lld; labels must be between 0 and %d", (long long)i, (long long)value,
             RG_DATASET_CLASSES - 1);
    *label = (int32_t)value;
    return RG_OK;
}

/* `count`: of images, or -1 if it does not matter; `to` may be NULL. */
static rg_status use_labels(const npy_array *y, int64_t count, int32_t *to, int32_t *largest)
{
    const rg_npy_header *h = &y->h;
    RG_CHECK(h->rank == 1 || (h->rank == 2 && h->dims[1] == 1), RG_UNSUPPORTED,
             "labels have %d dimensions; their shape must be (n) or (n, 1)", h->rank);
    RG_CHECK(h->dtype == RG_U8 || h->dtype == RG_I32 || h->dtype == RG_I64, RG_UNSUPPORTED,
             "labels have the dtype %s; u8, i32 and i64 are supported", rg_dtype_name(h->dtype));
    RG_CHECK(count < 0 || h->dims[0] == count, RG_MALFORMED,
             "there are %lld labels for %lld images", (long long)h->dims[0], (long long)count);
    for (int64_t i = 0; i < h->dims[0]; i++) {
        int32_t label = 0;
        RG_TRY(label_at(y, i, &label));
        *largest = label > *largest ? label : *largest;
        if (to != NULL)
            to[i] = label;
    }
    return RG_OK;
}

/* ---- the set ---- */

static rg_status read_images(const npy_place *place, rg_dataset_part part, rg_dataset *set)
{
    npy_array x = { 0 };
    rg_status status = find_array(place, 'x', part, &x);
    if (status == RG_OK && !x.found)
        status = blame(place, NULL, rg_dataset_no_part(part));
    else if (status == RG_OK)
        status = blame(place, x.name, use_images(set, &x));
    release_array(&x);
    return status;
}

static rg_status read_labels(const npy_place *place, rg_dataset_part part, int64_t count,
                             int32_t *to, int32_t *largest)
{
    npy_array y = { 0 };
    rg_status status = find_array(place, 'y', part, &y);
    if (status == RG_OK && !y.found && to != NULL)
        status = blame(place, NULL, rg_fail(RG_MALFORMED, "the labels %s are missing", y.name));
    else if (status == RG_OK && y.found)
        status = blame(place, y.name, use_labels(&y, count, to, largest));
    release_array(&y);
    return status;
}

static rg_status read_set(const npy_place *place, rg_dataset_part part, rg_dataset *set)
{
    const rg_dataset_part other = part == RG_DATASET_TEST ? RG_DATASET_TRAIN : RG_DATASET_TEST;
    int32_t largest = 0;
    void *labels;
    RG_TRY(read_images(place, part, set));
    RG_TRY(rg_allocate(memory, (size_t)set->info.count * sizeof(int32_t), &labels));
    set->labels = labels;
    RG_TRY(read_labels(place, part, set->info.count, set->labels, &largest));
    RG_TRY(read_labels(place, other, -1, NULL, &largest));
    return rg_dataset_name(set, largest + 1, NULL);
}

rg_status rg_npy_read_folder(const char *folder, rg_dataset_part part, rg_dataset *set)
{
    return read_set(&(npy_place){ folder, NULL }, part, set);
}

rg_status rg_npz_read(const char *path, rg_dataset_part part, rg_dataset *set)
{
    rg_zip zip;
    const npy_place place = { path, &zip };
    RG_TRY(blame(&place, NULL, rg_zip_open(&zip, path)));
    const rg_status status = read_set(&place, part, set);
    rg_zip_close(&zip);
    return status;
}
