/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Data sets as NPY arrays x and y: members of an NPZ file, or files of a folder. */
#include "train/npy_set.h"
#include "train/image_items.h"
#include "train/zip.h"
#include "core/dtype.h"
#include "files/npy.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const rg_allocator *const memory = &rg_default_allocator;

/* ---- arrays ---- */

static void release_array(rg_npy_array *array)
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
        status = rg_npy_header_parse(text, length, true, h);
    rg_release(memory, text, length + 1);
    return status;
}

/* Integers of other sizes become i64; those that are too large become less than 0. */
static rg_status widen(rg_npy_array *array)
{
    rg_npy_header *h = &array->h;
    const size_t each = (size_t)abs(h->narrow), count = h->bytes / each;
    int64_t *wide;
    RG_TRY(rg_allocate_array(count, sizeof *wide, &wide));
    const int rest = 64 - 8 * (int)each;
    const size_t low = __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? 0 : 8 - each;
    for (size_t i = 0; i < count; i++) {
        uint64_t bits = 0;
        memcpy((char *)&bits + low, array->data + i * each, each);
        array->is_beyond = array->is_beyond || (h->narrow > 0 && bits > INT64_MAX);
        wide[i] = h->narrow < 0 ? (int64_t)(bits << rest) >> rest : (int64_t)bits;
    }
    rg_release(memory, array->data, h->bytes);
    array->data = (char *)wide;
    h->bytes = count * sizeof *wide;
    h->narrow = 0;
    return RG_OK;
}

static rg_status read_array(rg_source *source, rg_npy_array *array)
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
        rg_npy_swap_bytes(data, h.bytes,
                          h.narrow != 0 ? (size_t)abs(h.narrow) : rg_dtype_size(h.dtype));
    return h.narrow != 0 ? widen(array) : RG_OK;
}

/* ---- where they stand ---- */

typedef struct npy_location {
    const char *path;
    const rg_zip *zip; /* NULL: the path is a folder */
    const rg_dataset_options *options;
} npy_location;

/* Puts file and member, or file alone, before the sentence. */
static rg_status blame(const npy_location *location, const char *name, rg_status status)
{
    char path[RG_DATASET_PATH];
    if (status != RG_OK && location->zip != NULL && name != NULL)
        rg_error_prefix("member %s: ", name);
    const bool inside = location->zip == NULL && name != NULL;
    if (status != RG_OK && inside && rg_path_join(path, location->path, name) == RG_OK)
        rg_path_prefix(path);
    else if (status != RG_OK)
        rg_path_prefix(location->path);
    return status;
}

static rg_status read_member(const npy_location *location, rg_npy_array *array)
{
    rg_zip_member member;
    rg_source source;
    RG_TRY(rg_zip_find(location->zip, array->name, &array->found, &member));
    if (!array->found)
        return RG_OK;
    rg_status status = rg_zip_begin(location->zip, &member, &source);
    if (status == RG_OK)
        status = read_array(&source, array);
    if (status == RG_OK)
        status = rg_zip_verify(&member, &source);
    rg_source_end(&source);
    return status;
}

static rg_status read_file(const npy_location *location, rg_npy_array *array)
{
    char path[RG_DATASET_PATH];
    struct stat info;
    uint64_t size;
    int file;
    rg_source source;
    RG_TRY(rg_path_join(path, location->path, array->name));
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

static bool has_name(const npy_location *location, const char *name)
{
    bool found = false;
    rg_zip_member member;
    char path[RG_DATASET_PATH];
    struct stat info;
    if (location->zip == NULL)
        return rg_path_join(path, location->path, name) == RG_OK && stat(path, &info) == 0;
    return rg_zip_find(location->zip, name, &found, &member) != RG_OK || found;
}

/* x_train.npy, or X_train.npy as matrices are often called, if that alone is there. */
static bool name_array(const npy_location *location, char letter, const char *end,
                       rg_npy_array *array)
{
    snprintf(array->name, sizeof array->name, "%c%s%s.npy", letter, end[0] != 0 ? "_" : "", end);
    if (has_name(location, array->name))
        return true;
    array->name[0] = (char)toupper(letter);
    const bool found = has_name(location, array->name);
    array->name[0] = found ? array->name[0] : letter;
    return found;
}

static rg_status find_array(const npy_location *location, char letter, const char *end,
                            rg_npy_array *array)
{
    name_array(location, letter, end, array);
    return blame(location, array->name,
                 location->zip != NULL ? read_member(location, array) : read_file(location, array));
}

static bool has_array(const npy_location *location, char letter, const char *end)
{
    rg_npy_array array;
    return name_array(location, letter, end, &array);
}

static bool has_part(void *context, const char *name)
{
    const npy_location *location = context;
    rg_npy_array x;
    const bool found = name_array(location, 'x', name, &x);
    const bool labelled = has_array(location, 'y', name);
    const bool is_test = strcmp(name, "test") == 0;
    if (found && !labelled && is_test && location->options != NULL)
        rg_dataset_say(location->options, "%s: %s is ignored, because there is no y_test.npy",
                       location->path, x.name);
    return found && (labelled || !is_test);
}

/* What follows x and y of a part in the names of its arrays: "train", or nothing, which counts as
 * the training part, too. */
static rg_status find_end(npy_location location, rg_dataset_part part, const char **end)
{
    if (part != RG_DATASET_TEST)
        location.options = NULL; /* it is said once */
    *end = rg_dataset_find_part(part, has_part, &location);
    if (*end == NULL && part == RG_DATASET_TRAIN)
        *end = "";
    return *end != NULL ? RG_OK : rg_dataset_no_part(part);
}

bool rg_npy_is_here(const char *folder)
{
    static const char *const ends[] = { "", "train", "test", "val", "valid", "validation" };
    const npy_location location = { .path = folder };
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        if (has_array(&location, 'x', ends[i]))
            return true;
    }
    return has_array(&location, 'y', "") && !rg_image_folder_is_here(folder);
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
static void convert(rg_dataset *set, const rg_npy_array *x)
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

/* Images (h, w, c) of one item: of more dimensions those between the first and the last make one.
 */
static rg_status find_shape(const rg_npy_array *x, rg_dataset_info *info)
{
    const int64_t *dims = x->h.dims;
    const int32_t rank = x->h.rank;
    int64_t middle = 1;
    RG_CHECK(rank >= 1, RG_UNSUPPORTED,
             "the array is one number; its first dimension counts images");
    RG_CHECK(rank <= 4 || !x->h.fortran, RG_UNSUPPORTED,
             "the array has %d dimensions; more than 4 must be in C order", rank);
    for (int32_t d = 2; d < rank - 1; d++)
        RG_CHECK(dims[d] >= 0 && (dims[d] == 0 || middle <= INT32_MAX / dims[d]), RG_UNSUPPORTED,
                 "the dimensions of an image are too large");
    for (int32_t d = 2; d < rank - 1; d++)
        middle *= dims[d];
    *info = (rg_dataset_info){ .count = dims[0],
                               .height = rank > 2 ? dims[1] : 1,
                               .width = rank > 3    ? middle
                                        : rank == 3 ? dims[2]
                                        : rank == 2 ? dims[1]
                                                    : 1,
                               .channels = rank > 3 ? dims[rank - 1] : 1,
                               .dtype = x->h.dtype == RG_U8 ? RG_U8 : RG_F32 };
    return RG_OK;
}

static rg_status use_images(rg_dataset *set, rg_npy_array *x)
{
    RG_CHECK(!x->is_beyond, RG_UNSUPPORTED, "numbers of 2^63 and more are not supported");
    RG_TRY(find_shape(x, &set->info));
    set->has_columns = x->h.rank <= 3 && set->info.dtype == RG_F32;
    if (x->h.dtype == set->info.dtype && !x->h.fortran) {
        size_t bytes;
        RG_TRY(rg_dataset_check(set, &bytes));
        set->pixels = x->data; /* (n, h, w, c) already */
        set->pixel_bytes = bytes;
        x->data = NULL;
    } else {
        RG_TRY(rg_dataset_allocate(set, UINT64_MAX)); /* at most four times what was read */
        convert(set, x);
    }
    RG_TRY(check_finite(set));
    if (set->info.dtype == RG_F32)
        set->range = rg_pixels_range(set->pixels, RG_F32, set->pixel_bytes / sizeof(float));
    return RG_OK;
}

/* ---- the set ---- */

/* `pixels`: the rows and columns of an image. */
static rg_status read_images(const npy_location *location, rg_dataset_part part, const char *end,
                             rg_dataset *set, rg_npy_targets *pixels)
{
    rg_npy_array x = { 0 };
    rg_status status = find_array(location, 'x', end, &x);
    if (status == RG_OK && !x.found && part == RG_DATASET_TRAIN)
        status = blame(location, NULL,
                       rg_fail(RG_INVALID_ARGUMENT,
                               "has no train part: its arrays must be x and y, or x_train and "
                               "y_train, perhaps with x_test and y_test"));
    else if (status == RG_OK && !x.found)
        status = blame(location, NULL, rg_dataset_no_part(part));
    else if (status == RG_OK)
        status = blame(location, x.name, use_images(set, &x));
    rg_npy_list_dims(&x.h, 1, x.h.rank > 3 ? x.h.rank - 1 : x.h.rank, pixels);
    release_array(&x);
    return status;
}

static rg_status read_labels(const npy_location *location, const char *end, rg_dataset *set,
                             rg_npy_targets *targets, int32_t *largest)
{
    rg_npy_array y = { 0 };
    rg_status status = find_array(location, 'y', end, &y);
    if (status == RG_OK && !y.found && set != NULL)
        status = blame(location, NULL, rg_fail(RG_MALFORMED, "the labels %s are missing", y.name));
    else if (status == RG_OK && y.found)
        status = blame(location, y.name, rg_npy_use_labels(&y, set, targets, largest));
    release_array(&y);
    return status;
}

/* The classes of all parts count, and their targets agree. */
static rg_status read_set(const npy_location *location, rg_dataset_part part, rg_dataset *set)
{
    rg_npy_targets pixels, own = { .name = "" };
    int32_t largest = 0;
    const char *end;
    RG_TRY(blame(location, NULL, find_end(*location, part, &end)));
    RG_TRY(read_images(location, part, end, set, &pixels));
    RG_TRY(read_labels(location, end, set, &own, &largest));
    RG_TRY(blame(location, own.name, rg_npy_check_mask(set, &own, &pixels)));
    if (part == RG_DATASET_TRAIN)
        rg_npy_warn(set, location->path, location->options);
    for (int i = RG_DATASET_TRAIN; i <= RG_DATASET_VALIDATION; i++) {
        const npy_location silent = { .path = location->path, .zip = location->zip };
        rg_npy_targets other = { .name = "" };
        if (i == (int)part || find_end(silent, (rg_dataset_part)i, &end) != RG_OK)
            continue;
        RG_TRY(read_labels(location, end, NULL, &other, &largest));
        RG_TRY(blame(location, own.name, rg_npy_check_parts(&own, &other)));
    }
    return rg_dataset_name(set, largest + 1, NULL);
}

rg_status rg_npy_read_folder(const char *folder, rg_dataset_part part,
                             const rg_dataset_options *options, rg_dataset *set)
{
    return read_set(&(npy_location){ .path = folder, .options = options }, part, set);
}

rg_status rg_npz_read(const char *path, rg_dataset_part part, const rg_dataset_options *options,
                      rg_dataset *set)
{
    rg_zip zip;
    const npy_location location = { path, &zip, options };
    RG_TRY(blame(&location, NULL, rg_zip_open(&zip, path)));
    const rg_status status = read_set(&location, part, set);
    rg_zip_close(&zip);
    return status;
}
