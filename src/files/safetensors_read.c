/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Safetensors: the header is read and checked when a file is opened, elements when they are asked
 * for. Nothing is allocated because the header says so: sizes are compared with the file first. */
#include "files/json.h"
#include "files/safetensors_format.h"
#include "files/tensor_pieces.h"
#include "files/whole_file.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* The longest name of a dtype. */
enum { DTYPE_NAME = 15 };

typedef struct tensor_info {
    const char *name, *dtype;
    const rg_json_value *value; /* in the header */
    size_t rank;
    bool known;          /* the dtype is one of ours */
    rg_tensor_desc desc; /* where it is, and the rank is at most RG_MAX_RANK */
    uint64_t begin, end; /* behind the header */
} tensor_info;

struct rg_safetensors {
    rg_allocator allocator;
    char *path;
    rg_input input;
    char *header;
    uint64_t header_size, data_size;
    rg_json json;
    tensor_info *tensors; /* in the order of the header */
    tensor_info **sorted; /* by name */
    size_t count, capacity;
    const rg_json_value *metadata; /* an object, or NULL */
    const rg_json_value **texts;   /* its members */
};

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

/* Sets dtype, and the bits of an element: 0 for a type that we have never heard of, which may have
 * come after us. */
static rg_status read_dtype(const rg_json *json, tensor_info *t, int *bits)
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
static rg_status read_shape(const rg_json *json, tensor_info *t, uint64_t *elements, uint64_t *most)
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

static rg_status read_offsets(const rg_json *json, tensor_info *t, uint64_t data_size)
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

static rg_status read_tensor(const rg_json *json, tensor_info *t, uint64_t data_size)
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
    size_t reach;
    if (__builtin_mul_overflow(most, (uint64_t)bits, &size) || size > INT64_MAX)
        return rg_json_fail(json, t->value->at, "the size of a tensor overflows");
    if (t->known && t->rank <= RG_MAX_RANK && rg_shape_check(&t->desc, t->dtype, &reach) != RG_OK)
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
    const tensor_info *left = *(tensor_info *const *)a, *right = *(tensor_info *const *)b;
    if (left->begin != right->begin)
        return left->begin < right->begin ? -1 : 1;
    return left->end != right->end ? (left->end < right->end ? -1 : 1) : 0;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp((*(tensor_info *const *)a)->name, (*(tensor_info *const *)b)->name);
}

/* The tensors fill the data: none shares a byte with another, and none is left over. */
static rg_status check_layout(rg_safetensors *file)
{
    uint64_t end = 0;
    char name[RG_QUOTED];
    if (file->count > 1)
        qsort(file->sorted, file->count, sizeof *file->sorted, compare_offsets);
    for (size_t i = 0; i < file->count; i++) {
        const tensor_info *t = file->sorted[i];
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
    file->capacity = root->count; /* each stands in the header, so this follows its size */
    RG_TRY(rg_allocate_zero(&file->allocator, file->capacity * sizeof(tensor_info), &tensors));
    file->tensors = tensors;
    RG_TRY(rg_allocate(&file->allocator, file->capacity * sizeof(tensor_info *), &sorted));
    file->sorted = sorted;
    for (const rg_json_value *v = root->first; v != NULL; v = v->next) {
        if (strcmp(v->key, RG_SAFETENSORS_METADATA) == 0) {
            RG_TRY(read_metadata(file, v));
            continue;
        }
        tensor_info *t = &file->tensors[file->count];
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

static rg_status read_at(const rg_safetensors *file, void *to, size_t size, uint64_t offset)
{
    size_t got;
    RG_TRY(rg_input_read_at(&file->input, to, size, offset, &got));
    RG_CHECK(got == size, RG_IO, "cannot be read: the file was truncated");
    return RG_OK;
}

static rg_status read_header(rg_safetensors *file)
{
    unsigned char start[8];
    const uint64_t whole = file->input.left;
    RG_CHECK(file->input.sized, RG_MALFORMED, "this is empty or not a regular file");
    RG_CHECK(whole >= sizeof start, RG_MALFORMED, "a file of %" PRIu64 " bytes has no header",
             whole);
    RG_TRY(read_at(file, start, sizeof start, 0));
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
    RG_TRY(read_at(file, memory, (size_t)length, sizeof start));
    RG_CHECK(length > 0 && file->header[0] == '{', RG_MALFORMED,
             "the header does not start with '{'");
    rg_status status = rg_json_read(&file->json, &file->allocator, file->header, (size_t)length);
    if (status == RG_OK)
        status = read_tensors(file);
    if (status == RG_MALFORMED)
        rg_error_prefix("in the header, ");
    return status;
}

/* ---- opening and closing ---- */

static rg_status make_file(const rg_allocator *allocator, const char *path, rg_safetensors **file)
{
    void *memory;
    RG_TRY(rg_allocate_zero(allocator, sizeof(rg_safetensors), &memory));
    rg_safetensors *made = memory;
    made->allocator = *allocator;
    made->input.file = -1;
    *file = made;
    RG_TRY(rg_allocate(allocator, strlen(path) + 1, &memory));
    made->path = memcpy(memory, path, strlen(path) + 1);
    return RG_OK;
}

rg_status rg_safetensors_open_with(const rg_allocator *allocator, const char *path,
                                   rg_safetensors **file)
{
    RG_CHECK(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, RG_UNSUPPORTED,
             "%s: big-endian machines are not supported by this format", path);
    rg_safetensors *made = NULL;
    rg_status status = make_file(allocator, path, &made);
    if (status == RG_OK)
        status = rg_input_open(&made->input, path);
    if (status == RG_OK)
        status = read_header(made);
    if (status != RG_OK) {
        rg_error_prefix("%s: ", path);
        rg_safetensors_close(made);
        return status;
    }
    *file = made;
    return RG_OK;
}

rg_status rg_safetensors_open(const char *path, rg_safetensors **file)
{
    RG_CHECK_NOT_NULL(file);
    *file = NULL;
    RG_CHECK_NOT_NULL(path);
    return rg_safetensors_open_with(&rg_default_allocator, path, file);
}

void rg_safetensors_close(rg_safetensors *file)
{
    if (file == NULL)
        return;
    const rg_allocator allocator = file->allocator;
    rg_input_close(&file->input);
    rg_release(&allocator, file->header, (size_t)file->header_size);
    rg_release(&allocator, file->tensors, file->capacity * sizeof(tensor_info));
    rg_release(&allocator, file->sorted, file->capacity * sizeof(tensor_info *));
    rg_release(&allocator, file->texts,
               rg_safetensors_metadata_count(file) * sizeof(rg_json_value *));
    if (file->json.strings != NULL)
        rg_json_clear(&file->json);
    if (file->path != NULL)
        rg_release(&allocator, file->path, strlen(file->path) + 1);
    rg_release(&allocator, file, sizeof *file);
}

/* ---- asking ---- */

static const tensor_info *info_of(const rg_safetensors *file, size_t index)
{
    return file != NULL && index < file->count ? &file->tensors[index] : NULL;
}

size_t rg_safetensors_count(const rg_safetensors *file)
{
    return file != NULL ? file->count : 0;
}

const char *rg_safetensors_name(const rg_safetensors *file, size_t index)
{
    const tensor_info *t = info_of(file, index);
    return t != NULL ? t->name : NULL;
}

const char *rg_safetensors_dtype(const rg_safetensors *file, size_t index)
{
    const tensor_info *t = info_of(file, index);
    return t != NULL ? t->dtype : NULL;
}

size_t rg_safetensors_bytes(const rg_safetensors *file, size_t index)
{
    const tensor_info *t = info_of(file, index);
    return t != NULL ? (size_t)(t->end - t->begin) : 0;
}

bool rg_safetensors_find(const rg_safetensors *file, const char *name, size_t *index)
{
    if (file == NULL || name == NULL || file->count == 0)
        return false;
    const tensor_info wanted = { .name = name }, *key = &wanted;
    tensor_info *const *found =
        bsearch(&key, file->sorted, file->count, sizeof *file->sorted, compare_names);
    if (found != NULL && index != NULL)
        *index = (size_t)(*found - file->tensors);
    return found != NULL;
}

size_t rg_safetensors_metadata_count(const rg_safetensors *file)
{
    return file != NULL && file->metadata != NULL ? file->metadata->count : 0;
}

const char *rg_safetensors_metadata_key(const rg_safetensors *file, size_t index)
{
    return index < rg_safetensors_metadata_count(file) ? file->texts[index]->key : NULL;
}

const char *rg_safetensors_metadata(const rg_safetensors *file, const char *key)
{
    if (file == NULL || file->metadata == NULL || key == NULL)
        return NULL;
    const rg_json_value *v = rg_json_find(file->metadata, key);
    return v != NULL ? v->text : NULL;
}

/* ---- reading ---- */

/* The tensor, if it can be read. */
static rg_status readable(const rg_safetensors *file, size_t index, const char *who,
                          const tensor_info **info)
{
    char name[RG_QUOTED];
    RG_CHECK(file != NULL, RG_INVALID_ARGUMENT, "%s: file is NULL", who);
    const tensor_info *t = info_of(file, index);
    RG_CHECK(t != NULL, RG_INVALID_ARGUMENT, "%s: %s: tensor %zu does not exist; the file has %zu",
             who, file->path, index, file->count);
    RG_CHECK(t->known, RG_UNSUPPORTED,
             "%s: the dtype of %s is %s; F32, F64, F16, BF16, U8, I32 and I64 are supported",
             file->path, rg_text_quoted(t->name, name), t->dtype);
    RG_CHECK(t->rank <= RG_MAX_RANK, RG_UNSUPPORTED, "%s: %s has %zu dimensions, more than %d",
             file->path, rg_text_quoted(t->name, name), t->rank, RG_MAX_RANK);
    *info = t;
    return RG_OK;
}

static uint64_t first_byte(const rg_safetensors *file, const tensor_info *t)
{
    return 8 + file->header_size + t->begin;
}

/* Puts file and tensor in front of the sentence of a failure. */
static rg_status named(const rg_safetensors *file, const tensor_info *t, rg_status status)
{
    char name[RG_QUOTED];
    if (status != RG_OK)
        rg_error_prefix("%s: %s: ", file->path, rg_text_quoted(t->name, name));
    return status;
}

rg_status rg_safetensors_desc(const rg_safetensors *file, size_t index, rg_tensor_desc *desc)
{
    const tensor_info *t = NULL;
    RG_CHECK_NOT_NULL(desc);
    RG_TRY(readable(file, index, __func__, &t));
    *desc = t->desc;
    return RG_OK;
}

rg_status rg_safetensors_read(const rg_safetensors *file, size_t index, void *data, size_t bytes)
{
    const tensor_info *t = NULL;
    RG_TRY(readable(file, index, __func__, &t));
    const size_t size = (size_t)(t->end - t->begin);
    if (bytes != size)
        return named(
            file, t,
            rg_fail(RG_INVALID_ARGUMENT, "has %zu bytes, but the size given is %zu", size, bytes));
    RG_CHECK(data != NULL || bytes == 0, RG_INVALID_ARGUMENT, "%s: data is NULL", __func__);
    return named(file, t, read_at(file, data, bytes, first_byte(file, t)));
}

static rg_status read_pieces(const rg_safetensors *file, const tensor_info *t, rg_tensor *tensor)
{
    rg_pieces pieces;
    RG_TRY(rg_pieces_of_tensor(tensor, false, "rg_safetensors_read_tensor", &pieces));
    uint64_t at = first_byte(file, t);
    if (pieces.direct != NULL)
        return read_at(file, pieces.direct, pieces.bytes, at);
    void *staging;
    RG_TRY(rg_allocate(&file->allocator, pieces.staging, &staging));
    rg_status status = RG_OK;
    size_t size;
    while (status == RG_OK && (size = rg_pieces_next(&pieces)) > 0) {
        status = read_at(file, staging, size, at);
        at += size;
        if (status == RG_OK)
            status = rg_pieces_copy(&pieces, staging);
    }
    rg_release(&file->allocator, staging, pieces.staging);
    return status;
}

rg_status rg_safetensors_read_tensor(const rg_safetensors *file, size_t index, rg_tensor *tensor)
{
    const tensor_info *t = NULL;
    char here[RG_SHAPE_TEXT], there[RG_SHAPE_TEXT];
    RG_CHECK_NOT_NULL(tensor);
    RG_TRY(readable(file, index, __func__, &t));
    if (tensor->desc.dtype != t->desc.dtype || !rg_shape_same_dims(&tensor->desc, &t->desc))
        return named(file, t,
                     rg_fail(RG_INVALID_ARGUMENT, "is %s in the file, but the tensor is %s",
                             rg_shape_text(&t->desc, there), rg_shape_text(&tensor->desc, here)));
    return named(file, t, read_pieces(file, t, tensor));
}

rg_status rg_safetensors_load(const rg_safetensors *file, size_t index, rg_device *device,
                              rg_tensor **tensor)
{
    RG_CHECK_NOT_NULL(tensor);
    *tensor = NULL;
    RG_CHECK_NOT_NULL(device);
    const tensor_info *t = NULL;
    RG_TRY(readable(file, index, __func__, &t));
    rg_tensor *made;
    RG_TRY(named(file, t, rg_tensor_create(device, &t->desc, &made)));
    const rg_status status = rg_safetensors_read_tensor(file, index, made);
    if (status != RG_OK)
        rg_tensor_destroy(made);
    else
        *tensor = made;
    return status;
}
