/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* What the strategies of a product share when they record it. */
#ifndef RG_OPS_MATMUL_PRODUCT_LAUNCH_H
#define RG_OPS_MATMUL_PRODUCT_LAUNCH_H

#include "ops/matmul/product_record.h"

/* A strategy's request is a const rg_product_call, whose flags for a CPU it sets in a copy. */
extern const rg_strategy rg_product_dot, rg_product_packed, rg_product_blocks;

/* The distance of neighbours in tensor t; 1 where there is one element alone. */
int64_t rg_product_step(const rg_walk *walk, int t);

/* Computes the transpose of c: a and b change places. */
void rg_product_swap(rg_product_call *p);

double rg_product_elements(const rg_product_args *k); /* of all three matrices */
double rg_product_multiplications(const rg_product_args *k);

rg_launch rg_product_launch(const rg_product_call *p, int32_t kernel, const rg_tensor *panels);
/* Records a launch of `units` units that moves `elements` and makes `products`. */
rg_status rg_product_launched(rg_call *call, rg_launch *launch, double units, double elements,
                              double products);

/* The product with its operands in the order for blocks, and how these are read. */
rg_product_call rg_product_by_blocks(const rg_product_call *p);
/* The images and panels of the args; all of them, with nothing packed. */
rg_status rg_product_record_blocks(rg_call *call, rg_product_call *p, const rg_tensor *panels);
rg_status rg_product_record_all(rg_call *call, rg_product_call *p);

#endif
