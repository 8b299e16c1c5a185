/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Protocol buffers, written: consecutive fields in memory that grows. */
#ifndef RG_ONNX_PROTOBUF_WRITE_H
#define RG_ONNX_PROTOBUF_WRITE_H

#include "onnx/protobuf.h"

/* What has been written; zeroed: nothing. After a failure, which `failed` keeps with its sentence
 * in the thread, nothing more is written: one look at the end is enough. */
typedef struct rg_writer {
    char *data;
    size_t size, capacity;
    rg_status failed;
} rg_writer;
void rg_writer_release(rg_writer *writer);

void rg_write_varint(rg_writer *writer, uint32_t number, uint64_t value);
void rg_write_float(rg_writer *writer, uint32_t number, float value);
void rg_write_bytes(rg_writer *writer, uint32_t number, const void *data, size_t size);
void rg_write_text(rg_writer *writer, uint32_t number, const char *text);

/* A message in a message: what is written between the two calls. */
size_t rg_write_begin(const rg_writer *writer);
void rg_write_end(rg_writer *writer, uint32_t number, size_t begin);

/* Fields that are there already. */
void rg_write_raw(rg_writer *writer, const void *data, size_t size);

#endif
