/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The messages of an ONNX file, as far as networks need them. Everything lives in the arena of the
 * file, or in its bytes. */
#ifndef RG_ONNX_FILE_H
#define RG_ONNX_FILE_H

#include "files/whole_file.h"
#include "graph/name_index.h"
#include "onnx/protobuf.h"

#include <retrograde/onnx.h>

/* TensorProto.DataType */
enum {
    RG_ONNX_UNDEFINED = 0,
    RG_ONNX_FLOAT = 1,
    RG_ONNX_UINT8 = 2,
    RG_ONNX_INT8 = 3,
    RG_ONNX_UINT16 = 4,
    RG_ONNX_INT16 = 5,
    RG_ONNX_INT32 = 6,
    RG_ONNX_INT64 = 7,
    RG_ONNX_STRING = 8,
    RG_ONNX_BOOL = 9,
    RG_ONNX_FLOAT16 = 10,
    RG_ONNX_DOUBLE = 11,
    RG_ONNX_UINT32 = 12,
    RG_ONNX_UINT64 = 13,
    RG_ONNX_BFLOAT16 = 16
};
const char *rg_onnx_type_name(int32_t type);
/* Bytes of an element as raw_data has it; 0 for types without elements of fixed size. */
size_t rg_onnx_type_size(int32_t type);
/* The dtype that holds the type; false if there is none. */
bool rg_onnx_type_dtype(int32_t type, rg_dtype *dtype);
/* The type of a dtype. */
int32_t rg_onnx_type_of(rg_dtype dtype);

/* ---- an arena: many small allocations, released together ---- */

typedef struct rg_arena {
    struct rg_arena_block *blocks;
} rg_arena;
/* Zeroed memory; `pointer` is the address of a pointer. Count 0 gives NULL. */
rg_status rg_arena_take(rg_arena *arena, size_t count, size_t element, void *pointer);
rg_status rg_arena_text(rg_arena *arena, const char *text, size_t length, char **copy);
void rg_arena_release(rg_arena *arena);

/* ---- messages ---- */

typedef struct rg_proto_tensor {
    const char *name;
    int32_t type;
    int32_t rank;
    int64_t dims[RG_MAX_RANK];
    int64_t count;      /* of elements; checked against overflow */
    rg_message message; /* where its elements are read from */
    bool external;
    const char *location; /* external: the file, the first byte, and how many (-1: to its end) */
    int64_t offset, length;
    bool constant;      /* no parameter: see onnx_parameters.c */
    const char *source; /* of a tensor that the file lacks: the one that it was made of */
} rg_proto_tensor;

/* AttributeProto.AttributeType */
typedef enum rg_proto_attribute_type {
    RG_PROTO_NONE = 0,
    RG_PROTO_FLOAT = 1,
    RG_PROTO_INT = 2,
    RG_PROTO_STRING = 3,
    RG_PROTO_TENSOR = 4,
    RG_PROTO_GRAPH = 5,
    RG_PROTO_FLOATS = 6,
    RG_PROTO_INTS = 7,
    RG_PROTO_STRINGS = 8,
    RG_PROTO_OTHER = 9
} rg_proto_attribute_type;

typedef struct rg_proto_attribute {
    const char *name;
    rg_proto_attribute_type type;
    float f;
    int64_t i;
    const char *s;
    rg_proto_tensor *tensor;
    size_t count; /* of floats or ints */
    const float *floats;
    const int64_t *ints;
} rg_proto_attribute;

typedef struct rg_proto_node {
    const char *name, *type, *domain;
    const char **inputs, **outputs; /* "": not given */
    size_t input_count, output_count;
    rg_proto_attribute *attributes;
    size_t attribute_count;
    rg_message message; /* as the file has it */
    bool renamed;       /* its inputs are others than in the file */
} rg_proto_node;

enum { RG_ONNX_ANY_RANK = -1, RG_ONNX_ANY_DIM = -1, RG_ONNX_OTHER_DIM = -2 };

/* An input or output of the graph. */
typedef struct rg_proto_port {
    const char *name;
    int32_t type;              /* RG_ONNX_UNDEFINED: not given, or no tensor */
    int32_t rank;              /* RG_ONNX_ANY_RANK: not given */
    int64_t dims[RG_MAX_RANK]; /* RG_ONNX_ANY_DIM: not given, or a name */
} rg_proto_port;

struct rg_onnx {
    char *name, *folder; /* of the file; external data lies in the folder */
    rg_bytes file;
    rg_message graph;
    rg_arena arena;
    int64_t ir_version, opset;
    rg_proto_node *nodes;
    size_t node_count;
    rg_proto_tensor *initializers;
    size_t initializer_count;
    rg_proto_port *inputs, *outputs; /* inputs that are no initializers */
    size_t input_count, output_count;
    rg_names names; /* of what nodes make, and of initializers; see rg_onnx_maker() */
    bool stripped;  /* elements that are missing read as 0; see onnx_train.h */
};

/* Parses the messages; strings and lists go to the arena. */
rg_status rg_proto_read_model(rg_onnx *model);
rg_status rg_proto_read_tensor(rg_arena *arena, rg_message message, rg_proto_tensor *tensor);
/* A text field; refuses a 0 byte within it. */
rg_status rg_proto_read_text(rg_arena *arena, const rg_message_field *field, const char *name,
                             const char **text);

/* The elements of a tensor in row-major order and in the type's own size, `count` of them; BOOL and
 * 8-bit types are bytes, in native byte order. To be released with rg_release() and *bytes. */
rg_status rg_proto_elements(const rg_onnx *model, const rg_proto_tensor *tensor, void **data,
                            size_t *bytes);

/* Whether a model that is kept without its weights has none for this tensor. */
bool rg_proto_is_missing(const rg_onnx *model, const rg_proto_tensor *tensor);

/* From the byte order of a file, the lowest byte first, to that of the machine, or back. */
void rg_proto_byte_order(void *data, size_t bytes, size_t size);

/* Checks that a file of external data lies in the model's folder and has these bytes, before memory
 * is allocated for them; then reads them. */
rg_status rg_proto_external_check(const rg_onnx *model, const rg_proto_tensor *tensor,
                                  size_t bytes);
rg_status rg_proto_external_read(const rg_onnx *model, const rg_proto_tensor *tensor, void *data,
                                 size_t bytes);

#endif
