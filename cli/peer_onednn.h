/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Inside the peer oneDNN: its functions, and how the primitive for a row is put together. */
#ifndef RG_CLI_PEER_ONEDNN_H
#define RG_CLI_PEER_ONEDNN_H

#include "cli/bench_row.h"

#include <dnnl.h>

#define RG_ONEDNN_FUNCTIONS(F)                         \
    F(engine_create);                                  \
    F(engine_destroy);                                 \
    F(stream_create);                                  \
    F(stream_destroy);                                 \
    F(stream_wait);                                    \
    F(memory_desc_init_by_strides);                    \
    F(memory_desc_get_size);                           \
    F(memory_create);                                  \
    F(memory_destroy);                                 \
    F(primitive_desc_create);                          \
    F(primitive_desc_destroy);                         \
    F(primitive_desc_query_md);                        \
    F(primitive_create);                               \
    F(primitive_destroy);                              \
    F(primitive_execute);                              \
    F(softmax_v2_forward_desc_init);                   \
    F(softmax_v2_backward_desc_init);                  \
    F(eltwise_forward_desc_init);                      \
    F(eltwise_backward_desc_init);                     \
    F(prelu_forward_desc_init);                        \
    F(prelu_backward_desc_init);                       \
    F(pooling_v2_forward_desc_init);                   \
    F(pooling_v2_backward_desc_init);                  \
    F(resampling_forward_desc_init);                   \
    F(resampling_backward_desc_init);                  \
    F(batch_normalization_forward_desc_init);          \
    F(batch_normalization_backward_desc_init);         \
    F(layer_normalization_forward_desc_init);          \
    F(layer_normalization_backward_desc_init);         \
    F(lrn_forward_desc_init);                          \
    F(lrn_backward_desc_init);                         \
    F(memory_desc_init_by_tag);                        \
    F(dilated_convolution_forward_desc_init);          \
    F(dilated_convolution_backward_data_desc_init);    \
    F(dilated_convolution_backward_weights_desc_init); \
    F(matmul_desc_init);                               \
    F(primitive_attr_create);                          \
    F(primitive_attr_destroy);                         \
    F(primitive_attr_set_post_ops);                    \
    F(post_ops_create);                                \
    F(post_ops_destroy);                               \
    F(post_ops_append_eltwise)

typedef struct rg_onednn_functions {
#define F(name) __typeof__(dnnl_##name) *name
    RG_ONEDNN_FUNCTIONS(F);
#undef F
} rg_onednn_functions;
extern rg_onednn_functions rg_onednn; /* filled when the peer is opened */

enum { RG_ONEDNN_ARGUMENTS = 10, RG_ONEDNN_SPARES = 8 };
typedef struct rg_onednn_job {
    const rg_bench_row *row;
    dnnl_primitive_desc_t forward, backward; /* plans; backward: of gradients */
    dnnl_primitive_attr_t attributes;        /* of the plans, or NULL */
    dnnl_primitive_t primitive;              /* of the row's direction */
    dnnl_exec_arg_t arguments[RG_ONEDNN_ARGUMENTS];
    int count;
    rg_tensor *spare[RG_ONEDNN_SPARES]; /* what the row has not, such as a workspace */
    int spares;
    int layout,
        layouts; /* the one to prepare; how many there are to choose from, 0 for one alone */
} rg_onednn_job;

/* Turns a failure into a status with a sentence. */
rg_status rg_onednn_check(const rg_onednn_job *j, dnnl_status_t status);

/* Makes plans and primitive of their descriptors; `backward` is used by gradients alone. */
rg_status rg_onednn_plan(rg_onednn_job *j, const void *forward, const void *backward);

/* Binds a tensor to the argument `argument` of the primitive. */
rg_status rg_onednn_use(rg_onednn_job *j, int argument, const dnnl_memory_desc_t *desc,
                        const rg_tensor *tensor);

/* Creates and binds a tensor that the row does not have, filled like x[0] or not at all. */
rg_status rg_onednn_use_spare(rg_onednn_job *j, int argument, const dnnl_memory_desc_t *desc,
                              const rg_tensor_desc *tensor, bool filled);

/* Binds the workspace that the forward plan needs, if any. */
rg_status rg_onednn_use_workspace(rg_onednn_job *j);

/* Runs the forward plan once, on an x and a y of its own and on what is bound besides gradients: so
 * that a gradient finds workspace and statistics. */
rg_status rg_onednn_run_forward(rg_onednn_job *j, const dnnl_memory_desc_t *x,
                                const dnnl_memory_desc_t *y);

/* Fills in the primitive and its arguments by the op's name. */
rg_status rg_onednn_prepare(rg_onednn_job *j);
rg_status rg_onednn_prepare_product(rg_onednn_job *j);

#endif
