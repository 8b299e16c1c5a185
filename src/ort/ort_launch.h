/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* What the host side of native kernels shares. */
#ifndef RG_ORT_LAUNCH_H
#define RG_ORT_LAUNCH_H

#include "ort/ort_kernel.h"

/* A node that native kernels compute. */
typedef struct rg_ort_native {
    const char *name;
    rg_status (*prepare)(rg_ort_node *node, const rg_onnx_node *attributes); /* NULL: nothing */
    rg_status (*run)(rg_ort_computation *c, bool *done);
} rg_ort_native;

typedef struct rg_ort_launch {
    int32_t kernel;
    const void *args;
    size_t size;
    int64_t units, grain, bytes;
    bool wide; /* the kernel for f32, whatever the type of the data */
} rg_ort_launch;

rg_status rg_ort_run(rg_ort_computation *c, const rg_ort_launch *launch);

static inline bool rg_ort_has(const rg_ort_computation *c, int32_t input)
{
    return c->given >> input & 1;
}

static inline int64_t rg_ort_blocks(int64_t count, int64_t block)
{
    return (count + block - 1) / block;
}

/* The product of dimensions begin to end - 1. */
int64_t rg_ort_product(const rg_tensor_desc *shape, int32_t begin, int32_t end);

/* Bytes that this many passes over a tensor move. */
static inline int64_t rg_ort_bytes(const rg_tensor_desc *shape, int64_t passes)
{
    return passes * rg_ort_product(shape, 0, shape->rank) * (int64_t)rg_dtype_size(shape->dtype);
}

/* The dtype of data of one of the registered types. */
rg_dtype rg_ort_dtype(ort_type type);

/* ort_prepared.c: keeps what was recorded with stand-ins if it is short and refers to nothing else;
 * runs it with data[i] in the place of stand-in i. */
void rg_ort_prepared_keep(rg_ort_prepared *prepared, const rg_commands *commands,
                          rg_tensor *const tensors[], int32_t count);
void rg_ort_prepared_run(rg_device *device, rg_ort_prepared *prepared, void *const data[]);

/* ort_native_shapes.c */
rg_status rg_ort_prepare_pool(rg_ort_node *node, const rg_onnx_node *attributes);
rg_status rg_ort_run_max_pool(rg_ort_computation *c, bool *done);
rg_status rg_ort_run_average_pool(rg_ort_computation *c, bool *done);
rg_status rg_ort_run_slice(rg_ort_computation *c, bool *done);
rg_status rg_ort_run_gather(rg_ort_computation *c, bool *done);
/* ort_pointwise.c */
rg_status rg_ort_prepare_conv(rg_ort_node *node, const rg_onnx_node *attributes);
rg_status rg_ort_run_conv(rg_ort_computation *c, bool *done);
/* The gradient of Y = W X: of dY, X and W, dX and dW, which may be NULL. */
typedef struct rg_ort_products {
    const rg_tensor_desc *shapes; /* of dY, X, W */
    void *data[3], *results[2];
    bool add; /* to what dW holds */
} rg_ort_products;
rg_status rg_ort_multiply(rg_ort_computation *c, const rg_ort_products *products);
/* The sums of dY over all but its channels, if db is not NULL. */
rg_status rg_ort_sum_bias(rg_ort_computation *c, void *db, int64_t pixels);
/* ort_volume.c */
void rg_ort_prepare_volume(rg_ort_node *node, const rg_onnx_node *attributes, int32_t policy);
rg_status rg_ort_run_volume(rg_ort_computation *c, bool *done);
/* ort_small_conv.c */
void rg_ort_prepare_small_conv(rg_ort_node *node, const rg_onnx_node *attributes, bool is_explicit);
rg_status rg_ort_run_small_conv(rg_ort_computation *c, bool *done);
/* ort_native_optimizers.c */
rg_status rg_ort_prepare_adamw(rg_ort_node *node, const rg_onnx_node *attributes);
rg_status rg_ort_run_sgd(rg_ort_computation *c, bool *done);
rg_status rg_ort_run_adamw(rg_ort_computation *c, bool *done);
rg_status rg_ort_run_accumulate(rg_ort_computation *c, bool *done);

#endif
