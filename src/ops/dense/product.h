/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Recording products of matrices. */
#ifndef RG_OPS_PRODUCT_H
#define RG_OPS_PRODUCT_H

#include "ops/dense/dense.h"
#include "ops/ops.h"
#include "runtime/objects.h"

/* Some dimensions of a tensor: first <= d < first + count. */
typedef struct rg_dims {
    const rg_tensor *tensor;
    int32_t first, count;
} rg_dims;

static inline rg_tensor_desc rg_dims_desc(rg_dims dims)
{
    rg_tensor_desc desc = dims.tensor->desc;
    desc.rank = dims.count;
    for (int32_t d = 0; d < dims.count; d++) {
        desc.dims[d] = dims.tensor->desc.dims[dims.first + d];
        desc.strides[d] = dims.tensor->desc.strides[dims.first + d];
    }
    return desc;
}

/* The walk over the same index of `count` tensors, at most 3. */
static inline rg_walk rg_dims_walk(const rg_dims dims[], int count)
{
    rg_tensor_desc descs[3];
    const rg_tensor_desc *at[3];
    for (int t = 0; t < count; t++) {
        descs[t] = rg_dims_desc(dims[t]);
        at[t] = &descs[t];
    }
    return rg_walk_make(at, count, 0, dims[0].count);
}

/* Records c (+)= alpha a b + bias; args holds all but the pointers. `bias` may be NULL. */
static inline rg_status rg_record_product(rg_call *call, rg_product_args *args, const rg_tensor *a,
                                          const rg_tensor *b, const rg_tensor *bias,
                                          const rg_tensor *c)
{
    const int64_t rows = (args->m.count + RG_PRODUCT_ROWS - 1) / RG_PRODUCT_ROWS;
    const int64_t columns = (args->n.count + RG_PRODUCT_COLUMNS - 1) / RG_PRODUCT_COLUMNS;
    const int64_t element = (int64_t)rg_dtype_size(c->desc.dtype);
    args->has_bias = bias != NULL;
    args->bias_step = bias != NULL ? bias->desc.strides[0] : 0;
    const rg_launch launch = { .tensors = { a, b, bias != NULL ? bias : c, c },
                               .kernel = RG_DENSE_PRODUCT,
                               .dtype = c->desc.dtype,
                               .args = args,
                               .args_size = sizeof *args,
                               .units = args->batch.count * rows * columns,
                               .grain = 1,
                               .bytes =
                                   element * (rg_shape_count(&a->desc) + rg_shape_count(&b->desc) +
                                              rg_shape_count(&c->desc)) };
    rg_call part = { .op = &rg_op_dense, .desc = call->desc, .commands = call->commands };
    return rg_record(&part, &launch);
}

#endif
