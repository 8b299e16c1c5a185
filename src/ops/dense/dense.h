/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Products of matrices, for dense and gram: kernels and their args. Valid C and valid CUDA. */
#ifndef RG_OPS_DENSE_H
#define RG_OPS_DENSE_H

#include "core/walk.h"

#include <retrograde/dense.h>

enum { RG_DENSE_PRODUCT, RG_DENSE_KERNELS };

/* A unit is a block of rows of c by a block of its columns. Sums over k are taken in pieces, in
 * order, each from 0 on; the pieces are added up in order. */
enum { RG_PRODUCT_ROWS = 96, RG_PRODUCT_COLUMNS = 32, RG_PRODUCT_DEPTH = 256 };

/* c(m, n) = alpha sum over k of a(m, k) b(k, n) + bias(n), for each index of `batch`. Each of
 * these indices may go over several dimensions. Without a bias, c stands in for it. */
typedef struct rg_product_args {
    const void *a, *b, *bias;
    void *c;
    void *scratch; /* of a GPU's own */
    rg_walk batch; /* tensors a, b, c */
    rg_walk m;     /* a, c */
    rg_walk n;     /* b, c */
    rg_walk k;     /* a, b */
    int64_t bias_step;
    double alpha;
    bool a_turned, b_turned; /* a is (k, m) where it is dense, b is (n, k) */
    bool has_bias;
    bool add;       /* into c */
    bool mirrored;  /* b(k, n) + b(n, k) in place of b(k, n) */
    bool symmetric; /* c(m, n) = c(n, m): only half of it is computed */
} rg_product_args;

#endif
