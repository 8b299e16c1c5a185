/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/** @file
 *  Products of two stacks of matrices, as torch.matmul and ONNX's MatMul compute them. For each
 *  index of the stack, with rows i, columns j and the shared dimension k:
 *
 *      y(i, j)  = alpha sum over k of a(i, k) b(k, j)
 *      da(i, k) = alpha sum over j of dy(i, j) b(k, j)
 *      db(k, j) = alpha sum over i of dy(i, j) a(i, k)
 *
 *  The last two dimensions of a tensor are the matrix, those before them the stack. Stacks are
 *  broadcast as numpy does it: the one with fewer dimensions is taken to begin with ones, and a
 *  dimension of 1 is repeated to the other's length. The gradient of an operand has its shape, and
 *  sums over all matrices that the operand was repeated for.
 *
 *      a (…, rows, inner)   b (…, inner, columns)   ->  y (…, rows, columns)
 *      a (…, inner, rows)   with transpose_a;   b (…, columns, inner)   with transpose_b
 *
 *  All tensors have the same dtype: f32, f64, f16 or bf16, except that da and db may each be f32
 *  beside f16 and bf16. Sums of f16 and bf16 are kept in f32, and f32 stays within 1e-5 of the
 *  largest element however long a sum is. For a layer with weights, a bias and an activation, see
 *  dense.h. */
#ifndef RETROGRADE_MATMUL_H
#define RETROGRADE_MATMUL_H

#include <retrograde/kernel.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Which product. Initialize with rg_matmul_desc_default(). */
typedef struct rg_matmul_desc {
    uint32_t size;    /**< of this struct; set by rg_matmul_desc_default() */
    bool transpose_a; /**< matrices of a are transposed before the product (default false) */
    bool transpose_b; /**< the same for b (default false) */
    double alpha;     /**< factor of the sums; finite (default 1) */
} rg_matmul_desc;

RG_API rg_matmul_desc rg_matmul_desc_default(void);

/** Creates a kernel of matrix products; *desc is copied. On failure *kernel is NULL.
 *
 *      a, b (of rank 2 or more)  ->  y
 *
 *  The gradient reads a and b, even if only da or db is requested. Its state holds no tensors. */
RG_API rg_status rg_matmul_create(rg_device *device, const rg_matmul_desc *desc,
                                  rg_kernel **kernel);

#ifdef __cplusplus
}
#endif

#endif
