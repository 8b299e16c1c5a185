/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Protocol buffers: the fields of a message, one after the other, read within its bytes. */
#ifndef RG_ONNX_PROTOBUF_H
#define RG_ONNX_PROTOBUF_H

#include "core/status.h"

/* A message, or what is left of it. */
typedef struct rg_message {
    const uint8_t *at, *end;
} rg_message;

/* How a field is stored. */
enum { RG_WIRE_VARINT = 0, RG_WIRE_64 = 1, RG_WIRE_BYTES = 2, RG_WIRE_32 = 5 };

typedef struct rg_message_field {
    uint32_t number;
    uint32_t wire;
    uint64_t value;   /* of a varint, or of 32 or 64 bits */
    rg_message bytes; /* of RG_WIRE_BYTES */
} rg_message_field;

RG_INLINE size_t rg_message_size(const rg_message *message)
{
    return (size_t)(message->end - message->at);
}

/* Reads the next field. False at the end of the message and, with a status in *failed, at what is
 * no field: a number of more than 64 bits, a length beyond the end, a group. *failed keeps its
 * value otherwise, so that a loop over all fields is followed by one look at it. */
bool rg_message_next(rg_message *message, rg_message_field *field, rg_status *failed);

/* Reads a varint, of a packed list. */
rg_status rg_message_varint(rg_message *message, uint64_t *value);

/* How many fields of this number rg_message_next() gives, up to what is no field. */
size_t rg_message_count(rg_message message, uint32_t number);

/* Whether the field is stored in this way; RG_MALFORMED, with the name of the field, if not. */
rg_status rg_message_expect(const rg_message_field *field, uint32_t wire, const char *name);

#endif
