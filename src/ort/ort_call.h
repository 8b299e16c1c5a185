/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Functions of ONNX Runtime as this library calls them. All return NULL on success. */
#ifndef RG_ORT_CALL_H
#define RG_ORT_CALL_H

#include "ort/ort_abi.h"

static inline ort_status *ort_fail(const ort_api *api, ort_code code, const char *text)
{
    return ORT_CALL(api, ORT_CREATE_STATUS, ort_status *, (ort_code, const char *), code, text);
}

/* Drops a status; returns whether it was a success. */
static inline int ort_succeeded(const ort_api *api, ort_status *status)
{
    if (status != NULL)
        ORT_CALL(api, ORT_RELEASE_STATUS, void, (ort_status *), status);
    return status == NULL;
}

static inline ort_status *ort_create_domain(const ort_api *api, const char *name,
                                            ort_domain **domain)
{
    return ORT_CALL(api, ORT_CREATE_DOMAIN, ort_status *, (const char *, ort_domain **), name,
                    domain);
}

static inline ort_status *ort_domain_add(const ort_api *api, ort_domain *domain,
                                         const ort_custom_op *op)
{
    return ORT_CALL(api, ORT_DOMAIN_ADD, ort_status *, (ort_domain *, const ort_custom_op *),
                    domain, op);
}

static inline ort_status *ort_add_domain(const ort_api *api, ort_session_options *options,
                                         ort_domain *domain)
{
    return ORT_CALL(api, ORT_ADD_DOMAIN, ort_status *, (ort_session_options *, ort_domain *),
                    options, domain);
}

static inline void ort_release_domain(const ort_api *api, ort_domain *domain)
{
    ORT_CALL(api, ORT_RELEASE_DOMAIN, void, (ort_domain *), domain);
}

static inline ort_status *ort_attribute_int(const ort_api *api, const ort_kernel_info *info,
                                            const char *name, int64_t *value)
{
    return ORT_CALL(api, ORT_ATTRIBUTE_INT, ort_status *,
                    (const ort_kernel_info *, const char *, int64_t *), info, name, value);
}

static inline ort_status *ort_attribute_float(const ort_api *api, const ort_kernel_info *info,
                                              const char *name, float *value)
{
    return ORT_CALL(api, ORT_ATTRIBUTE_FLOAT, ort_status *,
                    (const ort_kernel_info *, const char *, float *), info, name, value);
}

/* *size: the capacity of `text`, then its length with the 0 byte, which is all where text is NULL.
 */
static inline ort_status *ort_attribute_text(const ort_api *api, const ort_kernel_info *info,
                                             const char *name, char *text, size_t *size)
{
    return ORT_CALL(api, ORT_ATTRIBUTE_TEXT, ort_status *,
                    (const ort_kernel_info *, const char *, char *, size_t *), info, name, text,
                    size);
}

/* *count: the capacity of `values`, then how many there are, which is all where values is NULL. An
 * attribute of another type has none, unless the runtime refuses it. */
static inline ort_status *ort_attribute_ints(const ort_api *api, const ort_kernel_info *info,
                                             const char *name, int64_t *values, size_t *count)
{
    return ORT_CALL(api, ORT_ATTRIBUTE_INTS, ort_status *,
                    (const ort_kernel_info *, const char *, int64_t *, size_t *), info, name,
                    values, count);
}

static inline ort_status *ort_attribute_floats(const ort_api *api, const ort_kernel_info *info,
                                               const char *name, float *values, size_t *count)
{
    return ORT_CALL(api, ORT_ATTRIBUTE_FLOATS, ort_status *,
                    (const ort_kernel_info *, const char *, float *, size_t *), info, name, values,
                    count);
}

static inline ort_status *ort_input_count(const ort_api *api, const ort_context *context,
                                          size_t *count)
{
    return ORT_CALL(api, ORT_INPUT_COUNT, ort_status *, (const ort_context *, size_t *), context,
                    count);
}

/* *value: NULL for an optional input that is absent. */
static inline ort_status *ort_input(const ort_api *api, const ort_context *context, size_t index,
                                    const ort_value **value)
{
    return ORT_CALL(api, ORT_INPUT, ort_status *, (const ort_context *, size_t, const ort_value **),
                    context, index, value);
}

/* *value: NULL for an optional output that the node does not have. */
static inline ort_status *ort_output(const ort_api *api, ort_context *context, size_t index,
                                     const int64_t dims[], size_t rank, ort_value **value)
{
    return ORT_CALL(api, ORT_OUTPUT, ort_status *,
                    (ort_context *, size_t, const int64_t *, size_t, ort_value **), context, index,
                    dims, rank, value);
}

static inline ort_status *ort_tensor_data(const ort_api *api, ort_value *value, void **data)
{
    return ORT_CALL(api, ORT_TENSOR_DATA, ort_status *, (ort_value *, void **), value, data);
}

static inline ort_status *ort_value_shape(const ort_api *api, const ort_value *value,
                                          ort_shape **shape)
{
    return ORT_CALL(api, ORT_VALUE_SHAPE, ort_status *, (const ort_value *, ort_shape **), value,
                    shape);
}

static inline ort_status *ort_shape_type(const ort_api *api, const ort_shape *shape, ort_type *type)
{
    return ORT_CALL(api, ORT_SHAPE_TYPE, ort_status *, (const ort_shape *, ort_type *), shape,
                    type);
}

static inline ort_status *ort_shape_rank(const ort_api *api, const ort_shape *shape, size_t *rank)
{
    return ORT_CALL(api, ORT_SHAPE_RANK, ort_status *, (const ort_shape *, size_t *), shape, rank);
}

static inline ort_status *ort_shape_dims(const ort_api *api, const ort_shape *shape, int64_t dims[],
                                         size_t rank)
{
    return ORT_CALL(api, ORT_SHAPE_DIMS, ort_status *, (const ort_shape *, int64_t *, size_t),
                    shape, dims, rank);
}

static inline void ort_release_shape(const ort_api *api, ort_shape *shape)
{
    ORT_CALL(api, ORT_RELEASE_SHAPE, void, (ort_shape *), shape);
}

/* Type and dimensions of a tensor, which last as long as the tensor: of version 24. */
static inline ort_status *ort_borrowed_shape(const ort_api *api, const ort_value *value,
                                             ort_type *type, const int64_t **dims, size_t *rank)
{
    return ORT_CALL(api, ORT_BORROWED_SHAPE, ort_status *,
                    (const ort_value *, ort_type *, const int64_t **, size_t *), value, type, dims,
                    rank);
}

/* The name of output `index` of a node that is being created; "" where the node does not have it.
 * *size: the capacity of `text`, then its length with the 0 byte, which is all where text is NULL.
 */
static inline ort_status *ort_output_name(const ort_api *api, const ort_kernel_info *info,
                                          size_t index, char *text, size_t *size)
{
    return ORT_CALL(api, ORT_OUTPUT_NAME, ort_status *,
                    (const ort_kernel_info *, size_t, char *, size_t *), info, index, text, size);
}

/* The type of output `index` of a node that is being created. */
static inline ort_status *ort_output_type(const ort_api *api, const ort_kernel_info *info,
                                          size_t index, ort_type_info **type)
{
    return ORT_CALL(api, ORT_OUTPUT_TYPE, ort_status *,
                    (const ort_kernel_info *, size_t, ort_type_info **), info, index, type);
}

/* *shape: NULL for what is no tensor; it lives as long as the type. */
static inline ort_status *ort_type_shape(const ort_api *api, const ort_type_info *type,
                                         const ort_shape **shape)
{
    return ORT_CALL(api, ORT_TYPE_SHAPE, ort_status *, (const ort_type_info *, const ort_shape **),
                    type, shape);
}

static inline void ort_release_type(const ort_api *api, ort_type_info *type)
{
    ORT_CALL(api, ORT_RELEASE_TYPE, void, (ort_type_info *), type);
}

static inline ort_status *ort_gpu_stream(const ort_api *api, const ort_context *context,
                                         void **stream)
{
    return ORT_CALL(api, ORT_GPU_STREAM, ort_status *, (const ort_context *, void **), context,
                    stream);
}

/* task(data, 0) to task(data, count - 1) on threads of the runtime. */
static inline ort_status *ort_parallel_for(const ort_api *api, const ort_context *context,
                                           void (*task)(void *data, size_t index), size_t count,
                                           void *data)
{
    return ORT_CALL(api, ORT_PARALLEL_FOR, ort_status *,
                    (const ort_context *, void (*)(void *, size_t), size_t, size_t, void *),
                    context, task, count, 0, data);
}

#endif
