/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* One run of an operator of ONNX: its tensors, the kernels it records, and what they leave. */
#ifndef RG_OPERATORS_RUN_H
#define RG_OPERATORS_RUN_H

#include "operators/onnx_node.h"

#include <retrograde/operator.h>

enum { RG_RUN_KEPT = 64 };

/* Where results go: gives the tensor of the caller for result `output`, which has these dimensions
 * and is destroyed by nobody here; NULL: it is not wanted. */
typedef struct rg_run_results {
    rg_status (*give)(void *context, int32_t output, const rg_tensor_desc *desc, rg_tensor **to);
    void *context;
} rg_run_results;

typedef struct rg_run {
    rg_device *device;
    rg_commands *commands;
    rg_onnx_node node;
    rg_onnx_call call; /* filled in by rg_onnx_begin, and by rg_run_op to the end */
    rg_tensor_desc shapes[RG_ONNX_TENSORS];
    rg_tensor *in[RG_ONNX_TENSORS]; /* of the caller; NULL: absent */
    rg_tensor **out;                /* of the caller */
    const rg_run_results *results;  /* NULL: results are made and left in `out` */
    uint64_t wanted;
    rg_tensor *kept[RG_RUN_KEPT]; /* destroyed at the end */
    int32_t kept_count;
} rg_run;

/* A run takes over the tensor, and destroys it at its end, also where this fails. */
rg_status rg_run_keep(rg_run *run, rg_tensor *tensor);
void rg_run_end(rg_run *run);

/* Runs an operator of ONNX as rg_operator_run() does, into tensors of the caller. */
rg_status rg_run_into(const rg_operator *op, rg_commands *commands, rg_tensor *const inputs[],
                      int32_t count, uint64_t wanted, const rg_run_results *results);

bool rg_run_wants(const rg_run *run, int32_t output);
/* Output i; `tensor`, which the run keeps, is copied where it is not dense or an input. */
rg_status rg_run_give(rg_run *run, int32_t output, rg_tensor *tensor);

/* ---- kernels; results are kept ---- */

rg_status rg_run_forward(rg_run *run, const rg_op *op, const void *desc, rg_tensor *const x[],
                         rg_tensor *y[], rg_state **state);

/* What a gradient reads, as in rg_kernel_gradient(), and a bit for each dx[i] to compute. */
typedef struct rg_run_reads {
    rg_tensor *const *dy, *const *x, *const *y;
    rg_state *state;
    uint64_t wanted;
} rg_run_reads;

/* dx[] may be the array of dy, x or y. */
rg_status rg_run_gradient(rg_run *run, const rg_op *op, const void *desc, const rg_run_reads *reads,
                          rg_tensor *dx[]);
/* Of the op of the call, which has one input; its shape is `source`. */
rg_status rg_run_gradient_of(rg_run *run, rg_tensor *dy, int32_t rank, const int64_t source[],
                             rg_tensor **dx);
/* One input, one output. */
rg_status rg_run_unary(rg_run *run, const rg_op *op, const void *desc, rg_tensor *x, rg_tensor **y);
/* The op of the call alone, with the descriptor that `convert` completes. */
rg_status rg_run_op(rg_run *run,
                    rg_status (*convert)(const rg_onnx_node *node, rg_onnx_call *call));

/* ---- views and copies; kept ---- */

rg_status rg_run_reshape(rg_run *run, rg_tensor *x, int32_t rank, const int64_t dims[],
                         rg_tensor **y);
rg_status rg_run_permute(rg_run *run, rg_tensor *x, const int32_t order[], rg_tensor **y);
/* ONNX's tensor as the op has it, and back as `like`, which is ONNX's. */
rg_status rg_run_arrange(rg_run *run, rg_tensor *x, rg_onnx_layout layout, rg_tensor **y);
rg_status rg_run_restore(rg_run *run, rg_tensor *x, rg_onnx_layout layout,
                         const rg_tensor_desc *like, rg_tensor **y);
/* A dense tensor from host numbers. */
rg_status rg_run_numbers(rg_run *run, rg_dtype dtype, int32_t rank, const int64_t dims[],
                         const double values[], rg_tensor **y);
/* All elements on the host, which the caller releases; *count of them. On failure *values is NULL.
 */
rg_status rg_run_read(rg_run *run, const rg_tensor *x, double **values, int64_t *count);
void rg_run_release(rg_run *run, double *values, int64_t count);

/* ---- operators that are more than one op ---- */

typedef rg_status rg_onnx_runner(rg_run *run);
/* run_elements.c */
rg_onnx_runner rg_run_leaky_relu, rg_run_prelu, rg_run_hard_swish, rg_run_selu, rg_run_biased,
    rg_run_gemm, rg_run_matmul;
/* run_windows.c */
rg_onnx_runner rg_run_lp_pool, rg_run_pool_gradient, rg_run_global_lp_pool, rg_run_resize,
    rg_run_resize_gradient;
/* run_norms.c */
rg_onnx_runner rg_run_batch_norm, rg_run_batch_norm_gradient, rg_run_layer_norm,
    rg_run_layer_norm_gradient, rg_run_group_norm, rg_run_adam, rg_run_momentum;
/* run_losses.c */
rg_onnx_runner rg_run_loss, rg_run_loss_gradient, rg_run_dropout, rg_run_dropout_gradient;
/* run_shapes.c */
rg_onnx_runner rg_run_slice, rg_run_slice_gradient, rg_run_split, rg_run_concat;
/* run_pad.c */
rg_onnx_runner rg_run_pad;
/* run_reduce.c */
rg_onnx_runner rg_run_reduce, rg_run_arg_reduce;

#endif
