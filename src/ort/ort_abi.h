/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The part of ONNX Runtime's C interface that operators of a library need: version 21 of its table
 * of functions, which later releases extend and never change, and one function of version 24. Its
 * own header is in few packages, so these declarations are ours: handles, the entries of the table
 * that are called, by index, and the struct that describes an operator. */
#ifndef RG_ORT_ABI_H
#define RG_ORT_ABI_H

#include <stddef.h>
#include <stdint.h>

enum { ORT_API_VERSION = 21, ORT_API_BORROWED_SHAPES = 24 };

/* Handles of the runtime. */
typedef struct ort_status ort_status; /* NULL: success */
typedef struct ort_session_options ort_session_options;
typedef struct ort_domain ort_domain;
typedef struct ort_kernel_info ort_kernel_info;
typedef struct ort_context ort_context;
typedef struct ort_value ort_value;
typedef struct ort_type_info ort_type_info;
typedef struct ort_shape ort_shape; /* type and shape of a tensor */

typedef enum ort_code { ORT_FAIL = 1, ORT_INVALID_ARGUMENT = 2, ORT_NOT_IMPLEMENTED = 9 } ort_code;

typedef enum ort_type {
    ORT_FLOAT = 1,
    ORT_INT32 = 6,
    ORT_INT64 = 7,
    ORT_BOOL = 9,
    ORT_FLOAT16 = 10,
    ORT_DOUBLE = 11,
    ORT_BFLOAT16 = 16
} ort_type;

typedef void ort_function(void);

/* The table of functions. */
typedef struct ort_api {
    ort_function *entries[415]; /* as many as version 24 has; that of version 21 is shorter */
} ort_api;

typedef struct ort_api_base {
    const ort_api *(*get_api)(uint32_t version); /* NULL: the runtime is older */
    const char *(*get_version)(void);
} ort_api_base;

enum {
    ORT_CREATE_STATUS = 0,
    ORT_CREATE_DOMAIN = 26,
    ORT_DOMAIN_ADD = 27,
    ORT_ADD_DOMAIN = 28,
    ORT_TENSOR_DATA = 51,
    ORT_TYPE_SHAPE = 55,
    ORT_SHAPE_TYPE = 60,
    ORT_SHAPE_RANK = 61,
    ORT_SHAPE_DIMS = 62,
    ORT_VALUE_SHAPE = 65,
    ORT_ATTRIBUTE_FLOAT = 85,
    ORT_ATTRIBUTE_INT = 86,
    ORT_ATTRIBUTE_TEXT = 87,
    ORT_INPUT_COUNT = 88,
    ORT_OUTPUT_COUNT = 89,
    ORT_INPUT = 90,
    ORT_OUTPUT = 91,
    ORT_RELEASE_STATUS = 93,
    ORT_RELEASE_TYPE = 98,
    ORT_RELEASE_SHAPE = 99,
    ORT_RELEASE_DOMAIN = 101,
    ORT_ATTRIBUTE_FLOATS = 162,
    ORT_ATTRIBUTE_INTS = 163,
    ORT_GPU_STREAM = 193,
    ORT_OUTPUT_NAME = 233,
    ORT_OUTPUT_TYPE = 235,
    ORT_PARALLEL_FOR = 274,
    ORT_BORROWED_SHAPE = 414 /* of version 24 */
};

/* Calls entry `name` as a function that returns `result` and has parameters `types`. */
#define ORT_CALL(api, name, result, types, ...) \
    (((result(*) types)(void (*)(void))(api)->entries[name])(__VA_ARGS__))

/* An operator for one type of elements; the members stand at fixed offsets. */
typedef struct ort_custom_op {
    uint32_t version;
    void *(*create_kernel)(const struct ort_custom_op *op, const ort_api *api,
                           const ort_kernel_info *info);
    const char *(*get_name)(const struct ort_custom_op *op);
    const char *(*get_provider)(const struct ort_custom_op *op); /* NULL: the CPU */
    ort_type (*get_input_type)(const struct ort_custom_op *op, size_t index);
    size_t (*get_input_count)(const struct ort_custom_op *op);
    ort_type (*get_output_type)(const struct ort_custom_op *op, size_t index);
    size_t (*get_output_count)(const struct ort_custom_op *op);
    void (*compute)(void *kernel, ort_context *context);
    void (*destroy_kernel)(void *kernel);
    int (*get_input_kind)(const struct ort_custom_op *op, size_t index); /* 1: optional */
    int (*get_output_kind)(const struct ort_custom_op *op, size_t index);
    int (*get_input_memory)(const struct ort_custom_op *op, size_t index); /* 0: the provider's */
    int (*get_variadic_input_minimum)(const struct ort_custom_op *op);
    int (*get_variadic_input_homogeneity)(const struct ort_custom_op *op);
    int (*get_variadic_output_minimum)(const struct ort_custom_op *op);
    int (*get_variadic_output_homogeneity)(const struct ort_custom_op *op);
    ort_status *(*create_kernel_v2)(const struct ort_custom_op *op, const ort_api *api,
                                    const ort_kernel_info *info, void **kernel);
    ort_status *(*compute_v2)(void *kernel, ort_context *context);
    ort_status *(*infer_shapes)(const struct ort_custom_op *op, void *context);
    int (*get_first_version)(const struct ort_custom_op *op);
    int (*get_last_version)(const struct ort_custom_op *op);
    size_t (*get_in_place)(int **inputs, int **outputs);
    void (*release_in_place)(int *inputs, int *outputs);
    size_t (*get_aliases)(int **inputs, int **outputs);
    void (*release_aliases)(int *inputs, int *outputs);
} ort_custom_op;

_Static_assert(offsetof(ort_custom_op, compute) == 64, "offsets are part of the interface");
_Static_assert(offsetof(ort_custom_op, create_kernel_v2) == 136,
               "offsets are part of the interface");
_Static_assert(sizeof(ort_custom_op) == 208, "offsets are part of the interface");

#endif
