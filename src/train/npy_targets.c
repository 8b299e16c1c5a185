/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Targets of data sets as NPY arrays: classes, labels, values or masks. */
#include "train/npy_set.h"
#include "train/image_items.h"
#include "core/dtype.h"

#include <math.h>
#include <string.h>

static const rg_allocator *const memory = &rg_default_allocator;

void rg_npy_list_dims(const rg_npy_header *h, int32_t from, int32_t end, rg_npy_targets *to)
{
    to->rank = 0;
    for (int32_t d = from; d < end; d++) {
        if (h->dims[d] != 1)
            to->dims[to->rank++] = h->dims[d];
    }
}

static bool same_dims(const rg_npy_targets *a, const rg_npy_targets *b)
{
    return a->rank == b->rank && memcmp(a->dims, b->dims, (size_t)a->rank * sizeof *a->dims) == 0;
}

/* In signed masks -1 marks pixels that are ignored. */
static rg_status label_at(const rg_npy_array *y, int64_t i, bool is_mask, int32_t *label)
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
static rg_status order_rows(rg_npy_array *y)
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
static rg_status find_targets(const rg_npy_array *y, int64_t count, rg_npy_targets *t)
{
    const rg_npy_header *h = &y->h;
    RG_CHECK(h->rank >= 1, RG_UNSUPPORTED, "targets must have at least one dimension");
    RG_CHECK(count < 0 || h->dims[0] == count, RG_MALFORMED,
             "there are %lld labels for %lld images", (long long)h->dims[0], (long long)count);
    memcpy(t->name, y->name, sizeof t->name);
    rg_npy_list_dims(h, 1, h->rank, t);
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
static rg_status use_classes(const rg_npy_array *y, int64_t count, bool is_mask, int32_t *to,
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

static rg_status use_values(const rg_npy_array *y, int64_t count, bool labels, float *to)
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

rg_status rg_npy_use_labels(rg_npy_array *y, rg_dataset *set, rg_npy_targets *t, int32_t *largest)
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

/* ---- what is probably not meant ---- */

/* Whether each image has exactly one label. */
static bool has_one_label(const rg_dataset *set)
{
    const int64_t targets = set->info.targets;
    for (int64_t i = 0; i < set->info.count; i++) {
        float sum = 0;
        for (int64_t k = 0; k < targets; k++)
            sum += set->values[i * targets + k];
        if (sum != 1)
            return false;
    }
    return targets > 1;
}

/* Whether values are few small whole numbers, as classes are. */
static bool are_classes(const rg_dataset *set)
{
    enum { CLASSES = 100, IMAGES = 10 }; /* of each class, at least */
    float largest = 0;
    if (set->info.targets != 1)
        return false;
    for (int64_t i = 0; i < set->info.count; i++) {
        const float value = set->values[i];
        if (!(value >= 0 && value < CLASSES && value == floorf(value)))
            return false;
        largest = value > largest ? value : largest;
    }
    return (double)set->info.count >= IMAGES * ((double)largest + 1);
}

void rg_npy_warn(const rg_dataset *set, const char *path, const rg_dataset_options *options)
{
    if (set->info.target == RG_TARGET_LABELS && has_one_label(set))
        rg_dataset_say(options,
                       "%s: each image has exactly one label; if it can have no other, let y hold "
                       "the class of each image (numpy: y.argmax(1))",
                       path);
    if (set->info.target == RG_TARGET_VALUES && are_classes(set))
        rg_dataset_say(options,
                       "%s: y has whole numbers as floats, which are learned as values; if they "
                       "are classes, let y hold integers (numpy: y.astype(int))",
                       path);
}

/* ---- what must agree ---- */

rg_status rg_npy_check_mask(const rg_dataset *set, const rg_npy_targets *targets,
                            const rg_npy_targets *pixels)
{
    RG_CHECK(targets->kind != RG_TARGET_MASK || same_dims(targets, pixels), RG_MALFORMED,
             "a mask has %lld pixels, but must have the size of its image, %lld x %lld",
             (long long)targets->count, (long long)set->info.height, (long long)set->info.width);
    return RG_OK;
}

rg_status rg_npy_check_parts(const rg_npy_targets *own, const rg_npy_targets *other)
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
