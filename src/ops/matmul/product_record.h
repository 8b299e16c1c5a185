/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Recording products of matrices, for dense and gram, and what their strategies share. How a
 * product is carried out depends on shapes and strides; its bits depend on shapes alone. */
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

/* ---- strategies of a CPU: their request is a const rg_product_call, whose flags for a CPU they
 * set in a copy ---- */

/* In the order in which they are asked; the last one takes all products. */
/* clang-format off */
#define RG_PRODUCT_STRATEGIES(STRATEGY) \
    STRATEGY(rg_product_dot) \
    STRATEGY(rg_product_packed) \
    STRATEGY(rg_product_blocks)
/* clang-format on */
RG_PRODUCT_STRATEGIES(RG_STRATEGY_DECLARE)

/* The distance of neighbours in tensor t; 1 where there is one element alone. */
int64_t rg_product_step(const rg_walk *walk, int t);

/* Computes the transpose of c, which has the same numbers: a and b change places. */
void rg_product_swap(rg_product_call *p);

double rg_product_elements(const rg_product_args *k); /* of all three matrices */
double rg_product_multiplications(const rg_product_args *k);

rg_launch rg_product_launch(const rg_product_call *p, int32_t kernel, const rg_tensor *panels);
/* Records a launch of `units` units that moves `elements` and makes `products`: eight products take
 * as long as a byte. */
rg_status rg_product_launched(rg_call *call, rg_launch *launch, double units, double elements,
                              double products);

/* The product with its operands in the order for blocks, and how these are read. */
rg_product_call rg_product_by_blocks(const rg_product_call *p);
/* The images and panels of the args; all of them, with nothing packed. */
rg_status rg_product_record_blocks(rg_call *call, rg_product_call *p, const rg_tensor *panels);
rg_status rg_product_record_all(rg_call *call, rg_product_call *p);

#endif
