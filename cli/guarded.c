/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Watched tensors. */
#include "cli/guarded.h"
#include "core/dtype.h"
#include "core/shape.h"

#include <stdlib.h>
#if defined(__SANITIZE_ADDRESS__)
#define HAS_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HAS_ASAN 1
#endif
#endif
#ifdef HAS_ASAN
#include <sanitizer/asan_interface.h>
#endif

enum { GUARD = 256, GUARD_BYTE = 0xa5, RESULT_BYTE = 0x7b };

/* The strides of dimensions of size 1 where they are odd, and the guard after such a tensor: as
 * far as a vector of 16 elements of 8 bytes reaches with these steps. */
enum { UNIT_STRIDE = 501, UNIT_GUARD = 1 << 16 };

const char *rg_arrangement_name(rg_arrangement arrangement)
{
    static const char *const names[] = { "dense", "padded", "scattered", "spaced",
                                         "mixed", "units",  "expanded",  "nchw" };
    return names[arrangement];
}

void rg_arrange_nchw(rg_tensor_desc *desc)
{
    const int32_t last = desc->rank - 1;
    if (last < 2)
        return;
    const int64_t pixels = desc->dims[last - 2] * desc->dims[last - 1];
    desc->strides[last - 1] = 1;
    desc->strides[last - 2] = desc->dims[last - 1];
    desc->strides[last] = pixels;
}

static void arrange(rg_tensor_desc *desc, rg_arrangement arrangement)
{
    int64_t stride = arrangement == RG_SCATTERED ? 2 : 1;
    for (int32_t k = 0; k < desc->rank; k++) {
        const int32_t d = arrangement == RG_SCATTERED ? k : desc->rank - 1 - k;
        desc->strides[d] = stride;
        if (arrangement == RG_PADDED)
            stride *= desc->dims[d] + 3;
        else if (arrangement == RG_SPACED)
            stride *= desc->dims[d] + (k == 0 ? 16 : 0);
        else
            stride *= desc->dims[d] + (arrangement == RG_SCATTERED);
    }
    if (arrangement == RG_NCHW)
        rg_arrange_nchw(desc);
    if (arrangement == RG_EXPANDED && desc->rank > 0)
        desc->strides[0] = 0;
    for (int32_t d = 0; arrangement == RG_UNITS && d < desc->rank; d++) {
        if (desc->dims[d] == 1)
            desc->strides[d] = UNIT_STRIDE + 2 * d;
    }
}

/* ---- guards that nothing may read ---- */

/* With the address sanitizer, a kernel that reads what lies before or after a tensor is reported.
 * Without it such a read goes unnoticed unless it changes a result. */
static void close_guards(const rg_guarded *guarded)
{
#ifdef HAS_ASAN
    if (guarded->memory == NULL || guarded->abroad != NULL)
        return;
    const char *const end = guarded->first + guarded->extent;
    __asan_poison_memory_region(guarded->memory, (size_t)(guarded->first - guarded->memory));
    __asan_poison_memory_region(end, guarded->bytes - (size_t)(end - guarded->memory));
#else
    (void)guarded;
#endif
}

static void open_guards(const rg_guarded *guarded)
{
#ifdef HAS_ASAN
    if (guarded->memory != NULL)
        __asan_unpoison_memory_region(guarded->memory, guarded->bytes);
#else
    (void)guarded;
#endif
}

/* ---- making ---- */

/* Only here it is decided whether the tensor has a memory of its own. */
static rg_status allocate(rg_device *device, rg_guarded *guarded)
{
    char *first = guarded->first;
    if (strcmp(rg_device_name(device), "cpu") != 0) {
        const int64_t bytes = (int64_t)guarded->bytes;
        const rg_tensor_desc desc = rg_tensor_desc_dense(RG_U8, 1, &bytes);
        RG_TRY(rg_tensor_create(device, &desc, &guarded->abroad));
        first = (char *)rg_tensor_data(guarded->abroad) + (guarded->first - guarded->memory);
    }
    return rg_tensor_wrap(device, &guarded->desc, first, NULL, NULL, &guarded->tensor);
}

/* Counts indices up, the last one fastest. */
static void find_offsets(const rg_tensor_desc *desc, int64_t count, int64_t *offsets)
{
    int64_t index[RG_MAX_RANK] = { 0 }, at = 0;
    for (int64_t i = 0; i < count; i++) {
        offsets[i] = at;
        for (int32_t d = desc->rank - 1; d >= 0; d--) {
            at += desc->strides[d];
            if (++index[d] < desc->dims[d])
                break;
            at -= desc->dims[d] * desc->strides[d];
            index[d] = 0;
        }
    }
}

rg_status rg_guarded_make(rg_device *device, const rg_tensor_desc *shape,
                          rg_arrangement arrangement, int number, const double *values,
                          rg_guarded *guarded)
{
    rg_tensor_desc desc = *shape;
    if (arrangement == RG_MIXED)
        arrangement = (rg_arrangement)(number % RG_MIXED);
    arrange(&desc, arrangement);
    const bool shifts =
        arrangement != RG_DENSE && arrangement != RG_SPACED && arrangement != RG_UNITS;
    return rg_guarded_make_view(device, &desc, shifts ? 1 + number % 3 : 0, values, guarded);
}

/* Bytes after the tensor that are watched. */
static size_t guard_behind(const rg_tensor_desc *desc)
{
    for (int32_t d = 0; d < desc->rank; d++) {
        if (desc->dims[d] == 1 && desc->strides[d] >= UNIT_STRIDE)
            return UNIT_GUARD;
    }
    return GUARD;
}

rg_status rg_guarded_make_view(rg_device *device, const rg_tensor_desc *desc, int64_t shift,
                               const double *values, rg_guarded *guarded)
{
    *guarded = (rg_guarded){ .desc = *desc };
    RG_TRY(rg_shape_check(&guarded->desc, "check", &guarded->extent));
    const size_t front = rg_dtype_size(desc->dtype) * (size_t)shift;
    guarded->bytes = guarded->extent + GUARD + guard_behind(desc) + front;
    guarded->memory = aligned_alloc(64, (guarded->bytes + 63) / 64 * 64);
    guarded->before = malloc(guarded->bytes);
    guarded->kept = malloc(guarded->bytes);
    const int64_t count = rg_shape_count(&guarded->desc);
    const bool dense = rg_shape_is_dense(&guarded->desc);
    guarded->offsets = dense ? NULL : malloc(sizeof(int64_t) * (size_t)(count + 1));
    RG_CHECK(guarded->memory != NULL && guarded->before != NULL && guarded->kept != NULL &&
                 (dense || guarded->offsets != NULL),
             RG_OUT_OF_MEMORY, "a tensor of %zu bytes is too large", guarded->bytes);
    guarded->first = guarded->memory + GUARD + front;
    if (!dense)
        find_offsets(&guarded->desc, count, guarded->offsets);
    rg_guarded_fill(guarded, values);
    memcpy(guarded->kept, guarded->memory, guarded->bytes);
    return allocate(device, guarded);
}

void rg_guarded_free(rg_guarded *guarded)
{
    rg_tensor_destroy(guarded->tensor);
    rg_tensor_destroy(guarded->abroad);
    open_guards(guarded);
    free(guarded->memory);
    free(guarded->before);
    free(guarded->kept);
    free(guarded->offsets);
}

/* In elements, from the first one. */
static int64_t position(const rg_guarded *guarded, int64_t i)
{
    return guarded->offsets != NULL ? guarded->offsets[i] : i;
}

double rg_guarded_get(const rg_guarded *guarded, int64_t i)
{
    return rg_element_get(guarded->first, guarded->desc.dtype, position(guarded, i));
}

void rg_guarded_set(rg_guarded *guarded, int64_t i, double value)
{
    rg_element_set(guarded->first, guarded->desc.dtype, position(guarded, i), value);
    guarded->is_changed = true;
}

/* All elements of one image to their places in another. */
static void copy_elements(const rg_guarded *guarded, char *to, const char *from)
{
    const int64_t count = rg_shape_count(&guarded->desc);
    const int64_t *offsets = guarded->offsets;
    const size_t size = rg_dtype_size(guarded->desc.dtype);
    if (offsets == NULL)
        memcpy(to, from, (size_t)count * size);
    for (int64_t i = 0; offsets != NULL && i < count; i++) {
        const int64_t at = offsets[i] * (int64_t)size;
        switch (size) { /* a constant size is one instruction */
        case 2:
            memcpy(to + at, from + at, 2);
            break;
        case 4:
            memcpy(to + at, from + at, 4);
            break;
        default:
            memcpy(to + at, from + at, size);
        }
    }
}

void rg_guarded_fill(rg_guarded *guarded, const double *values)
{
    const int64_t count = rg_shape_count(&guarded->desc);
    open_guards(guarded);
    memset(guarded->memory, GUARD_BYTE, guarded->bytes);
    if (values == NULL) {
        memset(guarded->before, RESULT_BYTE, guarded->bytes);
        copy_elements(guarded, guarded->first,
                      guarded->before + (guarded->first - guarded->memory));
    }
    for (int64_t i = 0; values != NULL && i < count; i++)
        rg_guarded_set(guarded, i, values[i]);
    memcpy(guarded->before, guarded->memory, guarded->bytes);
    guarded->is_changed = true;
}

void rg_guarded_reset(rg_guarded *guarded)
{
    if (guarded->memory == NULL)
        return;
    open_guards(guarded);
    memcpy(guarded->memory, guarded->kept, guarded->bytes);
    memcpy(guarded->before, guarded->kept, guarded->bytes);
    guarded->is_changed = true;
}

rg_status rg_guarded_upload(rg_guarded *guarded)
{
    close_guards(guarded);
    if (guarded->abroad == NULL || !guarded->is_changed)
        return RG_OK;
    RG_TRY(rg_tensor_write(guarded->abroad, guarded->memory, guarded->bytes, RG_LAYOUT_SAME));
    guarded->is_changed = false;
    return RG_OK;
}

rg_status rg_guarded_download(rg_guarded *guarded)
{
    if (guarded->abroad == NULL)
        return RG_OK;
    return rg_tensor_read(guarded->abroad, guarded->memory, guarded->bytes, RG_LAYOUT_SAME);
}

bool rg_guarded_intact(const rg_guarded *guarded)
{
    if (guarded->memory == NULL)
        return true;
    open_guards(guarded);
    if (guarded->is_result) /* what may have changed is taken over */
        copy_elements(guarded, guarded->before + (guarded->first - guarded->memory),
                      guarded->first);
    return memcmp(guarded->memory, guarded->before, guarded->bytes) == 0;
}

/* By value: any NaN is like any other. */
uint64_t rg_guarded_hash(const rg_guarded *guarded)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    const int64_t count = rg_shape_count(&guarded->desc);
    for (int64_t i = 0; i < count; i++) {
        const double value = rg_guarded_get(guarded, i);
        uint64_t bits;
        memcpy(&bits, &value, sizeof bits);
        hash = (hash ^ (value != value ? 1 : bits)) * UINT64_C(0x100000001b3);
        hash ^= hash >> 29;
    }
    return hash == 0 ? 1 : hash;
}
