/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Protocol buffers, written: varints of the least length, lengths in front of what they count. */
#include "onnx/protobuf_write.h"

#include "core/dtype.h"
#include "core/memory.h"

#include <string.h>

static const rg_allocator *const allocator = &rg_default_allocator;
static const size_t most_bytes = (size_t)1 << 31; /* what readers of protocol buffers take */

enum { LONGEST_VARINT = 10 };

void rg_writer_release(rg_writer *writer)
{
    rg_release(allocator, writer->data, writer->capacity);
    *writer = (rg_writer){ 0 };
}

/* Memory for `size` bytes more; NULL after a failure. */
static char *more(rg_writer *writer, size_t size)
{
    if (writer->failed != RG_OK)
        return NULL;
    if (size > most_bytes - writer->size) {
        writer->failed = rg_fail(RG_UNSUPPORTED, "the file would be longer than 2 GiB");
        return NULL;
    }
    if (writer->size + size > writer->capacity) {
        size_t capacity = writer->capacity > 0 ? writer->capacity : 1024;
        while (capacity < writer->size + size)
            capacity *= 2;
        void *data;
        writer->failed = rg_allocate(allocator, capacity, &data);
        if (writer->failed != RG_OK)
            return NULL;
        if (writer->size > 0)
            memcpy(data, writer->data, writer->size);
        rg_release(allocator, writer->data, writer->capacity);
        writer->data = data;
        writer->capacity = capacity;
    }
    char *at = writer->data + writer->size;
    writer->size += size;
    return at;
}

void rg_write_raw(rg_writer *writer, const void *data, size_t size)
{
    char *at = size > 0 ? more(writer, size) : NULL;
    if (at != NULL)
        memcpy(at, data, size);
}

static size_t varint_of(uint64_t value, uint8_t bytes[LONGEST_VARINT])
{
    size_t size = 0;
    for (; value >= 0x80; value >>= 7)
        bytes[size++] = (uint8_t)(value | 0x80);
    bytes[size++] = (uint8_t)value;
    return size;
}

static void add_varint(rg_writer *writer, uint64_t value)
{
    uint8_t bytes[LONGEST_VARINT];
    rg_write_raw(writer, bytes, varint_of(value, bytes));
}

static void add_key(rg_writer *writer, uint32_t number, uint32_t wire)
{
    add_varint(writer, (uint64_t)number << 3 | wire);
}

void rg_write_varint(rg_writer *writer, uint32_t number, uint64_t value)
{
    add_key(writer, number, RG_WIRE_VARINT);
    add_varint(writer, value);
}

void rg_write_float(rg_writer *writer, uint32_t number, float value)
{
    const uint32_t bits = rg_bits_of_float(value);
    uint8_t bytes[4];
    for (int i = 0; i < 4; i++)
        bytes[i] = (uint8_t)(bits >> (8 * i));
    add_key(writer, number, RG_WIRE_32);
    rg_write_raw(writer, bytes, sizeof bytes);
}

void rg_write_bytes(rg_writer *writer, uint32_t number, const void *data, size_t size)
{
    add_key(writer, number, RG_WIRE_BYTES);
    add_varint(writer, size);
    rg_write_raw(writer, data, size);
}

void rg_write_text(rg_writer *writer, uint32_t number, const char *text)
{
    rg_write_bytes(writer, number, text, strlen(text));
}

size_t rg_write_begin(const rg_writer *writer)
{
    return writer->size;
}

/* Key and length go in front of the message, which moves. */
void rg_write_end(rg_writer *writer, uint32_t number, size_t begin)
{
    uint8_t head[2 * LONGEST_VARINT];
    if (writer->failed != RG_OK)
        return;
    const size_t size = writer->size - begin;
    size_t length = varint_of((uint64_t)number << 3 | RG_WIRE_BYTES, head);
    length += varint_of(size, head + length);
    if (more(writer, length) == NULL)
        return;
    memmove(writer->data + begin + length, writer->data + begin, size);
    memcpy(writer->data + begin, head, length);
}
