/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Safetensors: the header is read and checked when a file is opened. Nothing is allocated because
 * the header says so: sizes are compared with the file first. */
#include "files/safetensors_file.h"
#include "core/shape.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* The longest name of a dtype. */
enum { DTYPE_NAME = 15 };

/* ---- one tensor of the header ---- */

static const struct element_type {
    char name[DTYPE_NAME + 1];
    int bits;
    int dtype; /* -1: none of ours */
} element_types[] = {
    { "F32", 32, RG_F32 },   { "F64", 64, RG_F64 },    { "F16", 16, RG_F16 },
    { "BF16", 16, RG_BF16 }, { "U8", 8, RG_U8 },       { "I32", 32, RG_I32 },
    { "I64", 64, RG_I64 },   { "BOOL", 8, -1 },        { "I8", 8, -1 },
    { "I16", 16, -1 },       { "U16", 16, -1 },        { "U32", 32, -1 },
    { "U64", 64, -1 },       { "C64", 64, -1 },        { "F8_E5M2", 8, -1 },
    { "F8_E4M3", 8, -1 },    { "F8_E8M0", 8, -1 },     { "F8_E5M2FNUZ", 8, -1 },
    { "F4", 4, -1 },         { "F8_E4M3FNUZ", 8, -1 }, { "F6_E2M3", 6, -1 },
    { "F6_E3M2", 6, -1 },
};
enum { ELEMENT_TYPES = sizeof element_types / sizeof element_types[0] };

static rg_status read_whole(const rg_json *json, const rg_json_value *value, const char *what,
                            uint64_t *number)
{
    const char *text = value->type == RG_JSON_NUMBER ? value->text : "";
    if (text[0] == 0 || text[strspn(text, "0123456789")] != 0)
        return rg_json_fail(json, value->at, "%s must consist of whole numbers of at least 0",
                            what);
    *number = 0;
    for (; *text != 0; text++) {
        if (__builtin_mul_overflow(*number, 10, number) ||
            __builtin_add_overflow(*number, (uint64_t)(*text - '0'), number) || *number > INT64_MAX)
            return rg_json_fail(json, value->at, "a number of the %s is too large", what);
    }
    return RG_OK;
}

/* Sets dtype, and the bits of an element: 0 for an unknown type, which a later version of the
 * format may have. */
static rg_status read_dtype(const rg_json *json, rg_safetensors_tensor *t, int *bits)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
    const rg_json_value *value = rg_json_find(t->value, "dtype");
    if (value == NULL || value->type != RG_JSON_STRING)
        return rg_json_fail(json, (value != NULL ? value : t->value)->at,
                            "a tensor needs a string \"dtype\"");
    const size_t length = strlen(value->text);
    if (length == 0 || length > DTYPE_NAME || value->text[strspn(value->text, letters)] != 0)
        return rg_json_fail(json, value->at, "this is not the name of a dtype");
    t->dtype = value->text;
    *bits = 0;
    for (int i = 0; i < ELEMENT_TYPES; i++) {
        if (strcmp(value->text, element_types[i].name) != 0)
            continue;
        *bits = element_types[i].bits;
        t->known = element_types[i].dtype >= 0;
        t->desc.dtype = t->known ? (rg_dtype)element_types[i].dtype : RG_U8;
    }
    return RG_OK;
}

/* Sets rank and dims. `elements` is their product, `most` the product of those that are not 0. */
static rg_status read_shape(const rg_json *json, rg_safetensors_tensor *t, uint64_t *elements,
                            uint64_t *most)
{
    const rg_json_value *shape = rg_json_find(t->value, "shape");
    if (shape == NULL || shape->type != RG_JSON_ARRAY)
        return rg_json_fail(json, (shape != NULL ? shape : t->value)->at,
                            "a tensor needs an array \"shape\"");
    int64_t dims[RG_MAX_RANK];
    bool empty = false;
    *most = 1;
    for (const rg_json_value *v = shape->first; v != NULL; v = v->next, t->rank++) {
        uint64_t size;
        RG_TRY(read_whole(json, v, "shape", &size));
        if (t->rank < RG_MAX_RANK)
            dims[t->rank] = (int64_t)size;
        empty |= size == 0;
        if (__builtin_mul_overflow(*most, size > 0 ? size : 1, most))
            return rg_json_fail(json, shape->at, "the size of a tensor overflows");
    }
    *elements = empty ? 0 : *most;
    if (t->rank <= RG_MAX_RANK)
        t->desc = rg_tensor_desc_dense(t->desc.dtype, (int32_t)t->rank, dims);
    return RG_OK;
}

static rg_status read_offsets(const rg_json *json, rg_safetensors_tensor *t, uint64_t data_size)
{
    const rg_json_value *v = rg_json_find(t->value, "data_offsets");
    if (v == NULL || v->type != RG_JSON_ARRAY || v->count != 2)
        return rg_json_fail(json, (v != NULL ? v : t->value)->at,
                            "a tensor needs an array \"data_offsets\" of two numbers");
    RG_TRY(read_whole(json, v->first, "data_offsets", &t->begin));
    RG_TRY(read_whole(json, v->first->next, "data_offsets", &t->end));
    if (t->begin > t->end)
        return rg_json_fail(json, v->at, "the end of the tensor is before its start");
    if (t->end > data_size)
        return rg_json_fail(json, v->at,
                            "the tensor ends at %" PRIu64 ", but %" PRIu64 " bytes of data follow",
                            t->end, data_size);
    return RG_OK;
}

static rg_status read_tensor(const rg_json *json, rg_safetensors_tensor *t, uint64_t data_size)
{
    int bits = 0;
    uint64_t elements = 0, most = 0, size;
    if (t->value->type != RG_JSON_OBJECT)
        return rg_json_fail(json, t->value->at, "a tensor must be an object");
    RG_TRY(read_dtype(json, t, &bits));
    RG_TRY(read_shape(json, t, &elements, &most));
    RG_TRY(read_offsets(json, t, data_size));
    if (bits == 0)
        return RG_OK;
    if (__builtin_mul_overflow(most, (uint64_t)bits, &size) || size > INT64_MAX)
        return rg_json_fail(json, t->value->at, "the size of a tensor overflows");
    if (t->known && t->rank <= RG_MAX_RANK && rg_shape_check(&t->desc, t->dtype, NULL) != RG_OK)
        return rg_json_fail(json, t->value->at, "%s", rg_error_text());
    size = elements * (uint64_t)bits;
    if (size % 8 != 0 || size / 8 != t->end - t->begin)
        return rg_json_fail(json, t->value->at,
                            "dtype and shape make %" PRIu64 " bytes, the offsets %" PRIu64,
                            size / 8 + (size % 8 != 0), t->end - t->begin);
    return RG_OK;
}

/* ---- the whole header ---- */

static rg_status read_metadata(rg_safetensors *file, const rg_json_value *value)
{
    if (value->type == RG_JSON_NULL)
        return RG_OK;
    if (value->type != RG_JSON_OBJECT)
        return rg_json_fail(&file->json, value->at, RG_SAFETENSORS_METADATA " is an object");
    for (const rg_json_value *v = value->first; v != NULL; v = v->next) {
        if (v->type != RG_JSON_STRING)
            return rg_json_fail(&file->json, v->at,
                                "in " RG_SAFETENSORS_METADATA " all values are strings");
    }
    void *memory;
    RG_TRY(rg_allocate(&file->allocator, value->count * sizeof(rg_json_value *), &memory));
    file->texts = memory;
    file->metadata = value;
    size_t count = 0;
    for (const rg_json_value *v = value->first; v != NULL; v = v->next)
        file->texts[count++] = v;
    return RG_OK;
}

static int compare_offsets(const void *a, const void *b)
{
    const rg_safetensors_tensor *left = *(rg_safetensors_tensor *const *)a,
                                *right = *(rg_safetensors_tensor *const *)b;
    if (left->begin != right->begin)
        return left->begin < right->begin ? -1 : 1;
    return left->end != right->end ? (left->end < right->end ? -1 : 1) : 0;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp((*(rg_safetensors_tensor *const *)a)->name,
                  (*(rg_safetensors_tensor *const *)b)->name);
}

/* The tensors must fill the data: no byte belongs to two of them or to none. */
static rg_status check_layout(rg_safetensors *file)
{
    uint64_t end = 0;
    char name[RG_QUOTED];
    if (file->count > 1)
        qsort(file->sorted, file->count, sizeof *file->sorted, compare_offsets);
    for (size_t i = 0; i < file->count; i++) {
        const rg_safetensors_tensor *t = file->sorted[i];
        if (t->begin != end)
            return rg_json_fail(&file->json, t->value->at,
                                "%s begins at %" PRIu64 ", but the data before it end at %" PRIu64,
                                rg_text_quoted(t->name, name), t->begin, end);
        end = t->end;
    }
    RG_CHECK(end == file->data_size, RG_MALFORMED,
             "the tensors end at %" PRIu64 ", but %" PRIu64 " bytes of data follow the header", end,
             file->data_size);
    return RG_OK;
}

static rg_status read_tensors(rg_safetensors *file)
{
    const rg_json_value *root = file->json.root;
    void *tensors, *sorted;
    file->capacity = root->count; /* each is in the header, so this follows its size */
    RG_TRY(rg_allocate_zero(&file->allocator, file->capacity * sizeof(rg_safetensors_tensor),
                            &tensors));
    file->tensors = tensors;
    RG_TRY(
        rg_allocate(&file->allocator, file->capacity * sizeof(rg_safetensors_tensor *), &sorted));
    file->sorted = sorted;
    for (const rg_json_value *v = root->first; v != NULL; v = v->next) {
        if (strcmp(v->key, RG_SAFETENSORS_METADATA) == 0) {
            RG_TRY(read_metadata(file, v));
            continue;
        }
        rg_safetensors_tensor *t = &file->tensors[file->count];
        t->name = v->key;
        t->value = v;
        RG_TRY(read_tensor(&file->json, t, file->data_size));
        file->sorted[file->count++] = t;
    }
    RG_TRY(check_layout(file));
    if (file->count > 1)
        qsort(file->sorted, file->count, sizeof *file->sorted, compare_names);
    return RG_OK;
}

rg_status rg_safetensors_read_header(rg_safetensors *file)
{
    unsigned char start[8];
    const uint64_t whole = file->input.left;
    RG_CHECK(file->input.sized, RG_MALFORMED, "this is empty or not a regular file");
    RG_CHECK(whole >= sizeof start, RG_MALFORMED, "a file of %" PRIu64 " bytes has no header",
             whole);
    RG_TRY(rg_safetensors_read_at(file, start, sizeof start, 0));
    uint64_t length = 0;
    for (int i = 0; i < 8; i++)
        length |= (uint64_t)start[i] << 8 * i;
    RG_CHECK(length <= whole - sizeof start, RG_MALFORMED,
             "the header has %" PRIu64 " bytes, but only %" PRIu64 " follow", length,
             whole - sizeof start);
    RG_CHECK(length <= RG_SAFETENSORS_HEADER, RG_MALFORMED,
             "the header has %" PRIu64 " bytes; at most %d are read", length,
             RG_SAFETENSORS_HEADER);
    void *memory;
    RG_TRY(rg_allocate(&file->allocator, (size_t)length, &memory));
    file->header = memory;
    file->header_size = length;
    file->data_size = whole - sizeof start - length;
    RG_TRY(rg_safetensors_read_at(file, memory, (size_t)length, sizeof start));
    RG_CHECK(length > 0 && file->header[0] == '{', RG_MALFORMED,
             "the header does not start with '{'");
    rg_status status = rg_json_read(&file->json, &file->allocator, file->header, (size_t)length);
    if (status == RG_OK)
        status = read_tensors(file);
    if (status == RG_MALFORMED)
        rg_error_prefix("in the header, ");
    return status;
}

bool rg_safetensors_find(const rg_safetensors *file, const char *name, size_t *index)
{
    if (file == NULL || name == NULL || file->count == 0)
        return false;
    const rg_safetensors_tensor wanted = { .name = name }, *key = &wanted;
    rg_safetensors_tensor *const *found =
        bsearch(&key, file->sorted, file->count, sizeof *file->sorted, compare_names);
    if (found != NULL && index != NULL)
        *index = (size_t)(*found - file->tensors);
    return found != NULL;
}
