/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Recording products of matrices, for dense and gram. How a product is carried out depends on
 * shapes and strides; its bits depend on shapes alone. */
#ifndef RG_OPS_MATMUL_PRODUCT_RECORD_H
#define RG_OPS_MATMUL_PRODUCT_RECORD_H

#include "ops/matmul/product.h"
#include "ops/ops.h"
#include "runtime/objects.h"
#include "runtime/strategy.h"

extern const rg_strategy *const *const rg_product_strategies[];

/* ---- indices over several dimensions ---- */

/* Some dimensions of a tensor: first <= d < first + count. */
typedef struct rg_dims {
    const rg_tensor *tensor;
    int32_t first, count;
} rg_dims;

/* The walk over the same index of `count` tensors, at most 3. */
rg_walk rg_dims_walk(const rg_dims dims[], int count);

/* ---- a product ---- */

typedef struct rg_product_call {
    const rg_tensor *a, *b, *bias, *c; /* bias may be NULL */
    rg_product_args args;              /* walks, alpha, and flags that depend on shapes */
    const rg_neuron_desc *neuron;      /* or NULL; see rg_product_fuses */
} rg_product_call;

/* Whether the device is a CPU, whose products take a neuron, too. */
bool rg_product_fuses(const rg_call *call, rg_dtype dtype);

/* Records c (+)= neuron(alpha a b + bias), and changes *p on the way. */
rg_status rg_record_product(rg_call *call, rg_product_call *p);

#endif
