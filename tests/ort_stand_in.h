/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* A stand-in for ONNX Runtime: a table of functions over plain structs, which collects the
 * operators of a library, creates nodes with attributes, and computes on memory of exactly the
 * size of each tensor. */
#ifndef RG_TESTS_ORT_STAND_IN_H
#define RG_TESTS_ORT_STAND_IN_H

#include "ort/ort_abi.h"

#include <stdbool.h>

enum { STAND_IN_RANK = 9, STAND_IN_TENSORS = 8, STAND_IN_ATTRIBUTES = 8 };

/* A value; `data` has `bytes` bytes. */
struct ort_value {
    ort_type type;
    size_t rank;
    int64_t dims[STAND_IN_RANK];
    void *data;
    size_t bytes;
};

typedef struct stand_in_attribute {
    const char *name;
    char kind; /* i, f, t, n: an integer, a float, a text, integers */
    int64_t ints[8];
    size_t count;
    float number;
    const char *text;
} stand_in_attribute;

/* What a node is created from. */
struct ort_kernel_info {
    stand_in_attribute attributes[STAND_IN_ATTRIBUTES];
    int attribute_count;
    unsigned absent_outputs;       /* bit i: the node does not have output i */
    const struct ort_value *shape; /* what the model says of the first output; NULL: nothing */
};

/* One computation. Outputs are allocated when the operator asks for them. */
struct ort_context {
    const ort_custom_op *op;
    const ort_value *inputs[STAND_IN_TENSORS]; /* NULL: absent */
    size_t input_count, output_count;
    unsigned absent_outputs;
    ort_value outputs[STAND_IN_TENSORS];
    void *stream;
    void *(*allocate)(size_t bytes);
    int tasks; /* handed to the pool */
};

struct ort_status {
    ort_code code;
    char text[512];
};

extern const ort_api_base stand_in_base;

/* Of which version the table of functions is, from the next registration on: 24 at first. */
void stand_in_choose(uint32_t version);
/* Shapes that were allocated for the library. */
int stand_in_shapes(void);
/* Registers the library for one more session; false where it refuses. */
bool stand_in_load(void);
/* What a runtime gets that is too old. */
ort_status *stand_in_load_into_old(void);
/* Domains that were created and not released. */
int stand_in_alive(void);
/* The operator of a domain for a type of data; NULL if there is none. */
const ort_custom_op *stand_in_find(const char *domain, const char *name, ort_type type, bool cuda);
int stand_in_count(const char *domain);
size_t stand_in_size(ort_type type);
/* NULL on success; otherwise the caller releases it. */
ort_status *stand_in_run(const ort_custom_op *op, const struct ort_kernel_info *info,
                         struct ort_context *context);
void stand_in_release(ort_status *status);

#endif
