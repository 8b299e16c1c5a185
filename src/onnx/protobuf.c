/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Protocol buffers: varints, keys, lengths. */
#include "onnx/protobuf.h"

rg_status rg_message_varint(rg_message *message, uint64_t *value)
{
    enum { BITS = 7, LAST_SHIFT = 63 };
    uint64_t sum = 0;
    for (uint32_t shift = 0; shift <= LAST_SHIFT; shift += BITS) {
        RG_CHECK(message->at < message->end, RG_MALFORMED, "the file ends within a number");
        const uint8_t byte = *message->at++;
        RG_CHECK(shift < LAST_SHIFT || byte <= 1, RG_MALFORMED, "a number has more than 64 bits");
        sum |= (uint64_t)(byte & 0x7f) << shift;
        if ((byte & 0x80) == 0) {
            *value = sum;
            return RG_OK;
        }
    }
    return rg_fail(RG_MALFORMED, "a number has more than 64 bits");
}

static rg_status read_fixed(rg_message *message, size_t bytes, uint64_t *value)
{
    RG_CHECK(rg_message_size(message) >= bytes, RG_MALFORMED, "the file ends within a number");
    *value = 0;
    for (size_t i = 0; i < bytes; i++)
        *value |= (uint64_t)message->at[i] << (8 * i);
    message->at += bytes;
    return RG_OK;
}

static rg_status read_field(rg_message *message, rg_message_field *field)
{
    enum { MOST_KEY = UINT32_MAX };
    uint64_t key = 0, length = 0;
    *field = (rg_message_field){ 0 };
    RG_TRY(rg_message_varint(message, &key));
    RG_CHECK(key <= MOST_KEY && key >> 3 != 0, RG_MALFORMED,
             "%llu is not the number of a field of a protocol buffer",
             (unsigned long long)(key >> 3));
    field->number = (uint32_t)(key >> 3);
    field->wire = (uint32_t)(key & 7);
    switch (field->wire) {
    case RG_WIRE_VARINT:
        return rg_message_varint(message, &field->value);
    case RG_WIRE_64:
        return read_fixed(message, 8, &field->value);
    case RG_WIRE_32:
        return read_fixed(message, 4, &field->value);
    case RG_WIRE_BYTES:
        RG_TRY(rg_message_varint(message, &length));
        RG_CHECK(length <= rg_message_size(message), RG_MALFORMED,
                 "field %u claims %llu bytes, but %zu are left", field->number,
                 (unsigned long long)length, rg_message_size(message));
        field->bytes = (rg_message){ message->at, message->at + length };
        message->at += length;
        return RG_OK;
    default:
        return rg_fail(RG_MALFORMED, "field %u has the unknown wire type %u", field->number,
                       field->wire);
    }
}

bool rg_message_next(rg_message *message, rg_message_field *field, rg_status *failed)
{
    if (message->at == message->end)
        return false;
    const rg_status status = read_field(message, field);
    if (status != RG_OK)
        *failed = status;
    return status == RG_OK;
}

size_t rg_message_count(rg_message message, uint32_t number)
{
    rg_status failed = RG_OK;
    rg_message_field field;
    size_t count = 0;
    while (rg_message_next(&message, &field, &failed))
        count += field.number == number;
    return count;
}

rg_status rg_message_expect(const rg_message_field *field, uint32_t wire, const char *name)
{
    RG_CHECK(field->wire == wire, RG_MALFORMED, "%s has the wire type %u in place of %u", name,
             field->wire, wire);
    return RG_OK;
}
