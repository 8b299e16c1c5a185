/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Matrix products by cuBLASLt, which is opened when the first one is recorded. Where it is not
 * installed, or does not support a shape, the answer is no, and the op's own kernels run. Valid
 * C and valid CUDA.
 *
 * Its heuristics choose once per shape among algorithms that give the same bits on every run: a
 * long sum is split only where the parts are kept in f32 (f64 for f64) and added up in a step of
 * their own. f32 is multiplied as f32, unless the device allows TF32. */
#ifndef RG_BACKEND_CUDA_CUBLASLT_H
#define RG_BACKEND_CUDA_CUBLASLT_H

#include "backend/cuda/target.h"

#include <retrograde/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/* c = alpha a b, or c += alpha a b, for each of `batch` consecutive triples. All are dense: a
 * (rows, inner) or, transposed, (inner, rows); b (inner, columns) or, transposed, (columns,
 * inner); c (rows, columns). With bias, one number per column is added. With `whole`, a and b
 * are pieces of one longer product over `whole` elements: each of the batch begins `inner`
 * further on. All members are alike, so that it has no padding bytes. */
typedef struct rg_product {
    int64_t dtype; /* rg_dtype, f32, f64, f16 or bf16 */
    int64_t batch, rows, columns, inner;
    int64_t transposed_a, transposed_b;
    int64_t bias, add;
    int64_t wide;  /* c is f32 beside f16 or bf16 */
    int64_t whole; /* or 0 */
} rg_product;

/* The library on one device; made empty, opened when first needed. NULL: no memory, or none in
 * this build. */
struct rg_cublaslt *rg_cublaslt_create(const rg_allocator *allocator, bool tf32);
void rg_cublaslt_destroy(struct rg_cublaslt *cublaslt); /* nothing is running; NULL allowed */

/* Whether cuBLASLt does it, and with how many bytes of workspace. Chooses and keeps the algorithm:
 * call it when work is recorded. */
bool rg_cublaslt_plan(const rg_cuda_target *target, const rg_product *product, size_t *workspace);

/* Puts it into the target's stream. All pointers are at multiples of RG_CUBLASLT_ALIGN_BYTES bytes,
 * the workspace, which has `bytes`, or none, at a multiple of 256. False where cuBLASLt refuses or
 * needs more of them, and nothing is in the stream. */
enum { RG_CUBLASLT_ALIGN_BYTES = 16 };
typedef struct rg_product_operands {
    const void *a, *b, *bias; /* bias: or NULL */
    void *c;
} rg_product_operands;
bool rg_cublaslt_run(const rg_cuda_target *target, const rg_product *product, double alpha,
                     const rg_product_operands *operands, void *workspace, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
