/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Tensors of an ONNX file: their description, and their elements from whichever field has them. */
#include "onnx/onnx_file.h"

#include <stdlib.h>
#include <string.h>

/* Fields of TensorProto. */
enum {
    DIMS = 1,
    DATA_TYPE = 2,
    SEGMENT = 3,
    FLOAT_DATA = 4,
    INT32_DATA = 5,
    INT64_DATA = 7,
    NAME = 8,
    RAW_DATA = 9,
    DOUBLE_DATA = 10,
    UINT64_DATA = 11,
    EXTERNAL_DATA = 13,
    DATA_LOCATION = 14
};

/* ---- description ---- */

static rg_status add_dim(rg_proto_tensor *tensor, uint64_t value)
{
    RG_CHECK(tensor->rank < RG_MAX_RANK, RG_UNSUPPORTED, "it has more than %d dimensions",
             RG_MAX_RANK);
    RG_CHECK(value <= INT64_MAX, RG_MALFORMED, "dimension %d is %lld, which is negative",
             tensor->rank, (long long)value);
    tensor->dims[tensor->rank++] = (int64_t)value;
    return RG_OK;
}

static rg_status read_dims(const rg_message_field *field, rg_proto_tensor *tensor)
{
    if (field->wire == RG_WIRE_VARINT)
        return add_dim(tensor, field->value);
    RG_TRY(rg_message_expect(field, RG_WIRE_BYTES, "dims"));
    rg_message list = field->bytes;
    while (list.at < list.end) {
        uint64_t value;
        RG_TRY(rg_message_varint(&list, &value));
        RG_TRY(add_dim(tensor, value));
    }
    return RG_OK;
}

static rg_status parse_number(const char *key, const char *text, int64_t *number)
{
    char *end;
    const bool digit = text[0] >= '0' && text[0] <= '9';
    const unsigned long long value = digit ? strtoull(text, &end, 10) : 0;
    RG_CHECK(digit && *end == 0 && value <= INT64_MAX, RG_MALFORMED,
             "%s of its external data is '%.40s', which is not a number of bytes", key, text);
    *number = (int64_t)value;
    return RG_OK;
}

/* A StringStringEntryProto: location, offset, length, checksum. */
static rg_status read_external(rg_arena *arena, rg_message entry, rg_proto_tensor *tensor)
{
    const char *key = "", *value = "";
    rg_message_field field;
    rg_status failed = RG_OK;
    while (rg_message_next(&entry, &field, &failed)) {
        if (field.number == 1)
            RG_TRY(rg_proto_read_text(arena, &field, "a key of external_data", &key));
        else if (field.number == 2)
            RG_TRY(rg_proto_read_text(arena, &field, "a value of external_data", &value));
    }
    RG_TRY(failed);
    if (strcmp(key, "location") == 0)
        tensor->location = value;
    else if (strcmp(key, "offset") == 0)
        RG_TRY(parse_number("offset", value, &tensor->offset));
    else if (strcmp(key, "length") == 0)
        RG_TRY(parse_number("length", value, &tensor->length));
    return RG_OK;
}

static rg_status read_field(rg_arena *arena, const rg_message_field *field, rg_proto_tensor *tensor)
{
    switch (field->number) {
    case DIMS:
        return read_dims(field, tensor);
    case DATA_TYPE:
        RG_TRY(rg_message_expect(field, RG_WIRE_VARINT, "data_type"));
        tensor->type = field->value <= INT32_MAX ? (int32_t)field->value : -1;
        return RG_OK;
    case SEGMENT:
        return rg_fail(RG_UNSUPPORTED, "it is stored in segments");
    case EXTERNAL_DATA:
        RG_TRY(rg_message_expect(field, RG_WIRE_BYTES, "external_data"));
        return read_external(arena, field->bytes, tensor);
    case DATA_LOCATION:
        RG_TRY(rg_message_expect(field, RG_WIRE_VARINT, "data_location"));
        RG_CHECK(field->value <= 1, RG_MALFORMED, "data_location is %llu, which is not known",
                 (unsigned long long)field->value);
        tensor->external = field->value == 1;
        return RG_OK;
    default:
        return RG_OK;
    }
}

static rg_status read_description(rg_arena *arena, rg_message message, rg_proto_tensor *tensor)
{
    rg_message_field field;
    rg_status failed = RG_OK;
    while (rg_message_next(&message, &field, &failed))
        RG_TRY(read_field(arena, &field, tensor));
    RG_TRY(failed);
    int64_t most = 1; /* as if no dimension were 0: products of some of them do not overflow */
    tensor->count = 1;
    for (int32_t d = 0; d < tensor->rank; d++) {
        const int64_t length = tensor->dims[d];
        RG_CHECK(!__builtin_mul_overflow(most, length > 0 ? length : 1, &most) &&
                     most <= INT64_MAX / 16,
                 RG_MALFORMED, "it has more elements than memory can hold");
        tensor->count *= length;
    }
    return RG_OK;
}

rg_status rg_proto_read_tensor(rg_arena *arena, rg_message message, rg_proto_tensor *tensor)
{
    rg_message names = message;
    rg_message_field field;
    rg_status ignored = RG_OK; /* read_description() meets it again */
    *tensor = (rg_proto_tensor){ .name = "", .message = message, .length = -1 };
    while (rg_message_next(&names, &field, &ignored)) { /* the name first, for error sentences */
        if (field.number == NAME)
            RG_TRY(rg_proto_read_text(arena, &field, "the name of a tensor", &tensor->name));
    }
    const rg_status status = read_description(arena, message, tensor);
    if (status != RG_OK)
        rg_error_prefix("tensor '%.80s': ", tensor->name);
    return status;
}

/* ---- elements ---- */

/* The field that lists elements of a type one by one. */
static uint32_t list_of(int32_t type)
{
    switch (type) {
    case RG_ONNX_FLOAT:
        return FLOAT_DATA;
    case RG_ONNX_DOUBLE:
        return DOUBLE_DATA;
    case RG_ONNX_INT64:
        return INT64_DATA;
    case RG_ONNX_UINT32:
    case RG_ONNX_UINT64:
        return UINT64_DATA;
    default:
        return INT32_DATA;
    }
}

typedef struct list_reader {
    const rg_proto_tensor *tensor;
    char *to;
    size_t size; /* of an element */
    int64_t at;
} list_reader;

/* Stores the low bytes of a number: what a list has of f16, bf16 and short integers. */
static rg_status add_element(list_reader *r, uint64_t value)
{
    RG_CHECK(r->at < r->tensor->count, RG_MALFORMED,
             "it has more elements than its dimensions say, %lld", (long long)r->tensor->count);
    char *to = r->to + (size_t)r->at++ * r->size;
    for (size_t i = 0; i < r->size; i++) {
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
        to[r->size - 1 - i] = (char)(value >> (8 * i));
#else
        to[i] = (char)(value >> (8 * i));
#endif
    }
    return RG_OK;
}

static rg_status add_packed(list_reader *r, rg_message list, size_t fixed)
{
    while (list.at < list.end) {
        uint64_t value = 0;
        if (fixed == 0) {
            RG_TRY(rg_message_varint(&list, &value));
        } else {
            RG_CHECK(rg_message_size(&list) >= fixed, RG_MALFORMED, "a packed list is truncated");
            for (size_t i = 0; i < fixed; i++)
                value |= (uint64_t)list.at[i] << (8 * i);
            list.at += fixed;
        }
        RG_TRY(add_element(r, value));
    }
    return RG_OK;
}

static rg_status read_lists(const rg_proto_tensor *tensor, void *data)
{
    const uint32_t number = list_of(tensor->type);
    const size_t fixed = number == FLOAT_DATA ? 4 : number == DOUBLE_DATA ? 8 : 0;
    const uint32_t single = fixed == 4 ? RG_WIRE_32 : fixed == 8 ? RG_WIRE_64 : RG_WIRE_VARINT;
    list_reader r = { tensor, data, rg_onnx_type_size(tensor->type), 0 };
    rg_message message = tensor->message;
    rg_message_field field;
    rg_status failed = RG_OK;
    while (rg_message_next(&message, &field, &failed)) {
        if (field.number != number)
            continue;
        if (field.wire == single) {
            RG_TRY(add_element(&r, field.value));
        } else {
            RG_TRY(rg_message_expect(&field, RG_WIRE_BYTES, "a list of elements"));
            RG_TRY(add_packed(&r, field.bytes, fixed));
        }
    }
    RG_TRY(failed);
    RG_CHECK(r.at == tensor->count, RG_MALFORMED,
             "it has %lld elements, but its dimensions say %lld", (long long)r.at,
             (long long)tensor->count);
    return RG_OK;
}

void rg_proto_byte_order(void *data, size_t bytes, size_t size)
{
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    char *at = data;
    for (size_t i = 0; i + size <= bytes; i += size) {
        for (size_t a = 0, b = size - 1; a < b; a++, b--) {
            const char kept = at[i + a];
            at[i + a] = at[i + b];
            at[i + b] = kept;
        }
    }
#else
    (void)data, (void)bytes, (void)size;
#endif
}

static bool find_raw(const rg_proto_tensor *tensor, rg_message *raw)
{
    rg_message message = tensor->message;
    rg_message_field field;
    rg_status failed = RG_OK;
    bool found = false;
    while (rg_message_next(&message, &field, &failed)) {
        if (field.number == RAW_DATA && field.wire == RG_WIRE_BYTES) {
            *raw = field.bytes;
            found = true;
        }
    }
    return found;
}

/* Whether a model that is kept without its weights has none for this tensor. */
static bool is_missing(const rg_onnx *model, const rg_proto_tensor *tensor, bool has_raw)
{
    return model->stripped && !has_raw && !tensor->external && tensor->count > 0 &&
           rg_message_count(tensor->message, list_of(tensor->type)) == 0;
}

bool rg_proto_is_missing(const rg_onnx *model, const rg_proto_tensor *tensor)
{
    rg_message raw = { 0 };
    return is_missing(model, tensor, find_raw(tensor, &raw));
}

static rg_status check_size(const rg_proto_tensor *tensor, const rg_message *raw, bool has_raw,
                            size_t bytes)
{
    if (has_raw)
        RG_CHECK(rg_message_size(raw) == bytes, RG_MALFORMED,
                 "it has %zu bytes of raw data, but its type and dimensions need %zu",
                 rg_message_size(raw), bytes);
    else if (!tensor->external) /* each element takes a byte of the list at least */
        RG_CHECK((uint64_t)tensor->count <= rg_message_size(&tensor->message), RG_MALFORMED,
                 "its dimensions say %lld elements, but the file has fewer",
                 (long long)tensor->count);
    return RG_OK;
}

static rg_status read_elements(const rg_onnx *model, const rg_proto_tensor *tensor, void **data,
                               size_t *bytes)
{
    const size_t size = rg_onnx_type_size(tensor->type);
    rg_message raw = { 0 };
    RG_CHECK(size > 0, RG_UNSUPPORTED, "its elements are of type %s",
             rg_onnx_type_name(tensor->type));
    *bytes = (size_t)tensor->count * size;
    const bool has_raw = !tensor->external && find_raw(tensor, &raw);
    if (is_missing(model, tensor, has_raw))
        return rg_allocate_zero(&rg_default_allocator, *bytes, data);
    RG_TRY(check_size(tensor, &raw, has_raw, *bytes));
    if (*bytes == 0)
        return RG_OK;
    if (tensor->external)
        RG_TRY(rg_proto_external_check(model, tensor, *bytes));
    RG_TRY(rg_allocate(&rg_default_allocator, *bytes, data));
    if (tensor->external) {
        RG_TRY(rg_proto_external_read(model, tensor, *data, *bytes));
        rg_proto_byte_order(*data, *bytes, size);
    } else if (has_raw) {
        memcpy(*data, raw.at, *bytes);
        rg_proto_byte_order(*data, *bytes, size);
    } else {
        RG_TRY(read_lists(tensor, *data));
    }
    return RG_OK;
}

rg_status rg_proto_elements(const rg_onnx *model, const rg_proto_tensor *tensor, void **data,
                            size_t *bytes)
{
    *data = NULL;
    *bytes = 0;
    const rg_status status = read_elements(model, tensor, data, bytes);
    if (status != RG_OK) {
        rg_release(&rg_default_allocator, *data, *bytes);
        *data = NULL;
        rg_error_prefix("tensor '%.80s': ", tensor->name);
    }
    return status;
}
