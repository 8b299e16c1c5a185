/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* An open safetensors file. */
#ifndef RG_FILES_SAFETENSORS_FILE_H
#define RG_FILES_SAFETENSORS_FILE_H

#include "files/json.h"
#include "files/safetensors_format.h"
#include "files/whole_file.h"

typedef struct rg_safetensors_tensor {
    const char *name, *dtype;
    const rg_json_value *value; /* in the header */
    size_t rank;
    bool known;          /* the dtype is one of ours */
    rg_tensor_desc desc; /* where it is, and the rank is at most RG_MAX_RANK */
    uint64_t begin, end; /* after the header */
} rg_safetensors_tensor;

struct rg_safetensors {
    rg_allocator allocator;
    char *path;
    rg_input input;
    char *header;
    uint64_t header_size, data_size;
    rg_json json;
    rg_safetensors_tensor *tensors; /* in the order of the header */
    rg_safetensors_tensor **sorted; /* by name */
    size_t count, capacity;
    const rg_json_value *metadata; /* an object, or NULL */
    const rg_json_value **texts;   /* its members */
};

/* Reads and checks the header of file->input; fills in all that follows from it. */
rg_status rg_safetensors_read_header(rg_safetensors *file);
/* Reads `size` bytes from `offset` of the file on. */
rg_status rg_safetensors_read_at(const rg_safetensors *file, void *to, size_t size,
                                 uint64_t offset);

#endif
