/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Data sets as NPY arrays x and y: members of an NPZ file, or files of a folder. */
#include "train/image_items.h"
#include "train/zip.h"
#include "core/dtype.h"
#include "files/npy.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const rg_allocator *const memory = &rg_default_allocator;

/* ---- arrays ---- */

typedef struct npy_array {
    bool found;
    char name[24]; /* "x_train.npy" */
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
        status = rg_npy_header_parse(text, length, true, h);
    rg_release(memory, text, length + 1);
    return status;
}

/* Integers of other sizes become i64; those that are too large become less than 0. */
static rg_status widen(npy_array *array)
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
        wide[i] = h->narrow < 0 ? (int64_t)(bits << rest) >> rest : (int64_t)bits;
    }
    rg_release(memory, array->data, h->bytes);
    array->data = (char *)wide;
    h->bytes = count * sizeof *wide;
    h->narrow = 0;
    return RG_OK;
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
        rg_npy_swap_bytes(data, h.bytes,
                          h.narrow != 0 ? (size_t)abs(h.narrow) : rg_dtype_size(h.dtype));
    return h.narrow != 0 ? widen(array) : RG_OK;
}

/* ---- where they stand ---- */

typedef struct npy_place {
    const char *path;
    const rg_zip *zip; /* NULL: the path is a folder */
    const rg_dataset_options *options;
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

static rg_status find_array(const npy_place *place, char letter, const char *end, npy_array *array)
{
    snprintf(array->name, sizeof array->name, "%c%s%s.npy", letter, end[0] != 0 ? "_" : "", end);
    return blame(place, array->name,
                 place->zip != NULL ? read_member(place, array) : read_file(place, array));
}

static bool has_array(const npy_place *place, char letter, const char *end)
{
    npy_array array = { .found = false };
    rg_zip_member member;
    char path[RG_DATASET_PATH];
    struct stat info;
    snprintf(array.name, sizeof array.name, "%c%s%s.npy", letter, end[0] != 0 ? "_" : "", end);
    if (place->zip == NULL)
        return rg_path_join(path, place->path, array.name) == RG_OK && stat(path, &info) == 0;
    return rg_zip_find(place->zip, array.name, &array.found, &member) != RG_OK || array.found;
}

static bool has_part(void *context, const char *name)
{
    const npy_place *place = context;
    const bool found = has_array(place, 'x', name), labelled = has_array(place, 'y', name);
    const bool is_test = strcmp(name, "test") == 0;
    if (found && !labelled && is_test && place->options != NULL)
        rg_dataset_say(place->options,
                       "%s: x_test.npy is passed over, because there is no y_test.npy",
                       place->path);
    return found && (labelled || !is_test);
}

/* What follows x and y of a part in the names of its arrays: "train", or nothing, which counts as
 * the training part, too. */
static rg_status find_end(npy_place place, rg_dataset_part part, const char **end)
{
    if (part != RG_DATASET_TEST)
        place.options = NULL; /* it is said once */
    *end = rg_dataset_find_part(part, has_part, &place);
    if (*end == NULL && part == RG_DATASET_TRAIN)
        *end = "";
    return *end != NULL ? RG_OK : rg_dataset_no_part(part);
}

bool rg_npy_is_here(const char *folder)
{
    static const char *const ends[] = { "", "train", "test", "val", "valid", "validation" };
    const npy_place place = { .path = folder };
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        if (has_array(&place, 'x', ends[i]))
            return true;
    }
    return has_array(&place, 'y', "") && !rg_image_folder_is_here(folder);
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

/* Images (h, w, c) of one item: of more dimensions those between the first and the last make one.
 */
static rg_status find_shape(const npy_array *x, rg_dataset_info *info)
{
    const int64_t *dims = x->h.dims;
    const int32_t rank = x->h.rank;
    int64_t middle = 1;
    RG_CHECK(rank >= 1 && (rank <= 4 || !x->h.fortran), RG_UNSUPPORTED,
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

static rg_status use_images(rg_dataset *set, npy_array *x)
{
    RG_CHECK(x->h.dtype != RG_I32 && x->h.dtype != RG_I64, RG_UNSUPPORTED,
             "pixels have the dtype %s; u8, f16, f32 and f64 are supported",
             rg_dtype_name(x->h.dtype));
    RG_TRY(find_shape(x, &set->info));
    set->has_columns = x->h.rank <= 3 && set->info.dtype == RG_F32;
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

/* What y holds for each image. */
typedef struct npy_targets {
    rg_target_kind kind;
    int64_t count;
    int64_t dims[RG_MAX_RANK]; /* of one image, without those of 1 */
    int32_t rank;
    char name[24]; /* of the file; empty: there is none */
} npy_targets;

/* The dimensions `from` to `end` - 1 of an array, without those of 1. */
static void list_dims(const rg_npy_header *h, int32_t from, int32_t end, npy_targets *to)
{
    to->rank = 0;
    for (int32_t d = from; d < end; d++) {
        if (h->dims[d] != 1)
            to->dims[to->rank++] = h->dims[d];
    }
}

static bool same_dims(const npy_targets *a, const npy_targets *b)
{
    return a->rank == b->rank && memcmp(a->dims, b->dims, (size_t)a->rank * sizeof *a->dims) == 0;
}

/* In signed masks -1 marks pixels that are ignored. */
static rg_status label_at(const npy_array *y, int64_t i, bool is_mask, int32_t *label)
{
    const int64_t value = y->h.dtype == RG_U8    ? ((const uint8_t *)y->data)[i]
                          : y->h.dtype == RG_I32 ? ((const int32_t *)y->data)[i]
                                                 : ((const int64_t *)y->data)[i];
    const int64_t least = is_mask ? RG_DATASET_IGNORED : 0;
    RG_CHECK(value >= least && value < RG_DATASET_CLASSES, RG_MALFORMED,
             "label %lld is %lld; labels must be between 0 and %d%s", (long long)i,
             (long long)value, RG_DATASET_CLASSES - 1, is_mask ? ", or -1 (ignored)" : "");
    *label = (int32_t)value;
    return RG_OK;
}

static bool is_whole(rg_dtype dtype)
{
    return dtype == RG_U8 || dtype == RG_I32 || dtype == RG_I64;
}

/* Elements in C order: the last dimension is contiguous. */
static rg_status order_rows(npy_array *y)
{
    const rg_npy_header *h = &y->h;
    const size_t element = rg_dtype_size(h->dtype);
    int64_t index[RG_MAX_RANK] = { 0 }, step[RG_MAX_RANK] = { 0 }, next = 1, from = 0;
    void *data;
    RG_TRY(rg_allocate(memory, h->bytes, &data));
    for (int32_t d = 0; d < h->rank; d++) {
        step[d] = next;
        next *= h->dims[d];
    }
    for (size_t i = 0; i < h->bytes / element; i++) {
        memcpy((char *)data + i * element, y->data + (size_t)from * element, element);
        for (int32_t d = h->rank - 1; d >= 0; d--) {
            from += step[d];
            if (++index[d] < h->dims[d])
                break;
            from -= step[d] * h->dims[d];
            index[d] = 0;
        }
    }
    rg_release(memory, y->data, h->bytes);
    y->data = data;
    y->h.fortran = false;
    return RG_OK;
}

/* What an array y holds. `count`: of images, -1 where they are not read. */
static rg_status find_targets(const npy_array *y, int64_t count, npy_targets *t)
{
    const rg_npy_header *h = &y->h;
    RG_CHECK(h->rank >= 1, RG_UNSUPPORTED, "targets must have at least one dimension");
    RG_CHECK(count < 0 || h->dims[0] == count, RG_MALFORMED,
             "there are %lld labels for %lld images", (long long)h->dims[0], (long long)count);
    memcpy(t->name, y->name, sizeof t->name);
    list_dims(h, 1, h->rank, t);
    t->count = 1;
    for (int32_t d = 0; d < t->rank; d++)
        t->count *= t->dims[d];
    t->kind = !is_whole(h->dtype) ? RG_TARGET_VALUES
              : t->count == 1     ? RG_TARGET_CLASS
              : h->rank == 2      ? RG_TARGET_LABELS
                                  : RG_TARGET_MASK;
    RG_CHECK(t->count >= 1 && t->count <= INT32_MAX, RG_MALFORMED,
             "there are %lld targets an image", (long long)t->count);
    RG_CHECK(t->kind == RG_TARGET_CLASS || t->kind == RG_TARGET_MASK ||
                 t->count <= RG_DATASET_CLASSES,
             RG_UNSUPPORTED, "there are %lld targets an image; at most %d are supported",
             (long long)t->count, RG_DATASET_CLASSES);
    return RG_OK;
}

/* Classes, of images or of pixels; `to` may be NULL. */
static rg_status use_classes(const npy_array *y, int64_t count, bool is_mask, int32_t *to,
                             int32_t *largest)
{
    for (int64_t i = 0; i < count; i++) {
        int32_t label = 0;
        RG_TRY(label_at(y, i, is_mask, &label));
        *largest = label > *largest ? label : *largest;
        if (to != NULL)
            to[i] = label;
    }
    return RG_OK;
}

static rg_status use_values(const npy_array *y, int64_t count, bool labels, float *to)
{
    for (int64_t i = 0; i < count; i++) {
        const double value = rg_element_get(y->data, y->h.dtype, i);
        RG_CHECK(!labels || value == 0 || value == 1, RG_MALFORMED,
                 "element %lld is %g; labels of several classes must be 0 or 1", (long long)i,
                 value);
        to[i] = (float)value;
        RG_CHECK(isfinite(to[i]), RG_MALFORMED, "element %lld is not a finite number",
                 (long long)i);
    }
    return RG_OK;
}

/* `set` is NULL for the part that is not read. */
static rg_status use_labels(npy_array *y, rg_dataset *set, npy_targets *t, int32_t *largest)
{
    if (y->h.fortran && y->h.rank > 1)
        RG_TRY(order_rows(y));
    RG_TRY(find_targets(y, set != NULL ? set->info.count : -1, t));
    const bool classes = t->kind == RG_TARGET_CLASS || t->kind == RG_TARGET_MASK;
    const bool is_mask = t->kind == RG_TARGET_MASK;
    const int64_t all = y->h.dims[0] * t->count;
    if (!classes)
        *largest = (int32_t)t->count - 1;
    if (set == NULL)
        return classes ? use_classes(y, all, is_mask, NULL, largest) : RG_OK;
    set->info.target = t->kind;
    set->info.targets = t->count;
    if (classes) {
        RG_TRY(rg_allocate_array((size_t)all, sizeof *set->labels, &set->labels));
        return use_classes(y, all, is_mask, set->labels, largest);
    }
    RG_TRY(rg_allocate_array((size_t)all, sizeof *set->values, &set->values));
    return use_values(y, all, t->kind == RG_TARGET_LABELS, set->values);
}

/* ---- the set ---- */

/* `pixels`: the rows and columns of an image. */
static rg_status read_images(const npy_place *place, rg_dataset_part part, const char *end,
                             rg_dataset *set, npy_targets *pixels)
{
    npy_array x = { 0 };
    rg_status status = find_array(place, 'x', end, &x);
    if (status == RG_OK && !x.found)
        status = blame(place, NULL, rg_dataset_no_part(part));
    else if (status == RG_OK)
        status = blame(place, x.name, use_images(set, &x));
    list_dims(&x.h, 1, x.h.rank > 3 ? x.h.rank - 1 : x.h.rank, pixels);
    release_array(&x);
    return status;
}

static rg_status read_labels(const npy_place *place, const char *end, rg_dataset *set,
                             npy_targets *targets, int32_t *largest)
{
    npy_array y = { 0 };
    rg_status status = find_array(place, 'y', end, &y);
    if (status == RG_OK && !y.found && set != NULL)
        status = blame(place, NULL, rg_fail(RG_MALFORMED, "the labels %s are missing", y.name));
    else if (status == RG_OK && y.found)
        status = blame(place, y.name, use_labels(&y, set, targets, largest));
    release_array(&y);
    return status;
}

/* A mask has the size of its image. */
static rg_status check_mask(const rg_dataset *set, const npy_targets *targets,
                            const npy_targets *pixels)
{
    RG_CHECK(targets->kind != RG_TARGET_MASK || same_dims(targets, pixels), RG_MALFORMED,
             "a mask has %lld pixels, but must have the size of its image, %lld x %lld",
             (long long)targets->count, (long long)set->info.height, (long long)set->info.width);
    return RG_OK;
}

static rg_status check_parts(const npy_targets *own, const npy_targets *other)
{
    static const char *const kinds[] = { "class", "labels", "values", "mask" };
    const bool same = own->kind == other->kind && own->count == other->count &&
                      (own->kind != RG_TARGET_MASK || same_dims(own, other));
    RG_CHECK(
        other->name[0] == 0 || same, RG_MALFORMED,
        "the targets of an image, %lld (%s), differ in number, kind or shape from those in %s, "
        "%lld (%s)",
        (long long)own->count, kinds[own->kind], other->name, (long long)other->count,
        kinds[other->kind]);
    return RG_OK;
}

/* The classes of all parts count, and their targets agree. */
static rg_status read_set(const npy_place *place, rg_dataset_part part, rg_dataset *set)
{
    npy_targets pixels, own = { .name = "" };
    int32_t largest = 0;
    const char *end;
    RG_TRY(blame(place, NULL, find_end(*place, part, &end)));
    RG_TRY(read_images(place, part, end, set, &pixels));
    RG_TRY(read_labels(place, end, set, &own, &largest));
    RG_TRY(blame(place, own.name, check_mask(set, &own, &pixels)));
    for (int i = RG_DATASET_TRAIN; i <= RG_DATASET_VALIDATION; i++) {
        const npy_place silent = { .path = place->path, .zip = place->zip };
        npy_targets other = { .name = "" };
        if (i == (int)part || find_end(silent, (rg_dataset_part)i, &end) != RG_OK)
            continue;
        RG_TRY(read_labels(place, end, NULL, &other, &largest));
        RG_TRY(blame(place, own.name, check_parts(&own, &other)));
    }
    return rg_dataset_name(set, largest + 1, NULL);
}

rg_status rg_npy_read_folder(const char *folder, rg_dataset_part part,
                             const rg_dataset_options *options, rg_dataset *set)
{
    return read_set(&(npy_place){ .path = folder, .options = options }, part, set);
}

rg_status rg_npz_read(const char *path, rg_dataset_part part, const rg_dataset_options *options,
                      rg_dataset *set)
{
    rg_zip zip;
    const npy_place place = { path, &zip, options };
    RG_TRY(blame(&place, NULL, rg_zip_open(&zip, path)));
    const rg_status status = read_set(&place, part, set);
    rg_zip_close(&zip);
    return status;
}
