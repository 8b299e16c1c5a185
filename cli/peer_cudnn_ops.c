/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Which functions of cuDNN run which op, keyed by the op's name. */
#if RG_HAVE_CUDNN
#include "cli/peer_cudnn.h"
#include "cli/peer_pool.h"
#include "core/shape.h"

#include <retrograde/batch_norm.h>
#include <retrograde/dropout.h>
#include <retrograde/lrn.h>
#include <retrograde/neuron.h>
#include <retrograde/softmax.h>

#include <limits.h>

typedef rg_cudnn_job job;

/* dims are n, c, h, w, whatever the layout. */
static rg_status describe(job *j, cudnnTensorDescriptor_t *tensor, cudnnTensorFormat_t layout,
                          const int64_t dims[4])
{
    static const cudnnDataType_t types[] = { [RG_F32] = CUDNN_DATA_FLOAT,
                                             [RG_F64] = CUDNN_DATA_DOUBLE,
                                             [RG_F16] = CUDNN_DATA_HALF,
                                             [RG_BF16] = CUDNN_DATA_BFLOAT16 };
    static const float one = 1, zero = 0;
    static const double double_one = 1, double_zero = 0;
    const bool in_double = j->row->dtype == RG_F64;
    j->one = in_double ? (const void *)&double_one : &one;
    j->zero = in_double ? (const void *)&double_zero : &zero;
    RG_CHECK(rg_shape_count(&j->row->x_desc[0]) <= INT_MAX, RG_UNSUPPORTED,
             "cudnn: %s has too many elements", j->row->c->name);
    RG_TRY(rg_cudnn_check(j, rg_cudnn.CreateTensorDescriptor(tensor)));
    return rg_cudnn_check(j, rg_cudnn.SetTensor4dDescriptor(*tensor, layout, types[j->row->dtype],
                                                            (int)dims[0], (int)dims[1],
                                                            (int)dims[2], (int)dims[3]));
}

/* One element after the other. */
static rg_status describe_flat(job *j)
{
    const int64_t count = rg_shape_count(&j->row->x_desc[0]);
    const int64_t columns = count % 1024 == 0 ? 1024 : 1;
    const int64_t dims[4] = { 1, 1, count / columns, columns };
    return describe(j, &j->tensor, CUDNN_TENSOR_NCHW, dims);
}

/* ---- softmax, neurons ---- */

static cudnnStatus_t run_softmax(const job *j)
{
    const rg_bench_row *r = j->row;
    if (r->gradient)
        return rg_cudnn.SoftmaxBackward(
            j->handle, j->algorithm, j->mode, j->one, j->tensor, rg_tensor_data(r->y[0]), j->tensor,
            rg_tensor_data(r->dy[0]), j->zero, j->tensor, rg_tensor_data(r->dx[0]));
    return rg_cudnn.SoftmaxForward(j->handle, j->algorithm, j->mode, j->one, j->tensor,
                                   rg_tensor_data(r->x[0]), j->zero, j->tensor,
                                   rg_tensor_data(r->y[0]));
}

/* Rows as (rows, length, 1, 1), each an image of its own; other axes as channels of images. */
static rg_status prepare_softmax(job *j)
{
    const rg_softmax_desc *d = (const void *)j->row->desc;
    const rg_tensor_desc *x = &j->row->x_desc[0];
    const int64_t axis = d->axis < 0 ? d->axis + x->rank : d->axis;
    int64_t dims[4] = { 1, 1, 1, 1 };
    for (int32_t i = 0; i < x->rank; i++) {
        const int to = i < axis ? 0 : i == axis || d->flatten ? 1 : i == axis + 1 ? 2 : 3;
        dims[to] *= x->dims[i];
    }
    j->algorithm = d->kind == RG_SOFTMAX_LOG ? CUDNN_SOFTMAX_LOG : CUDNN_SOFTMAX_ACCURATE;
    j->mode = dims[2] * dims[3] == 1 ? CUDNN_SOFTMAX_MODE_INSTANCE : CUDNN_SOFTMAX_MODE_CHANNEL;
    j->run = run_softmax;
    return describe(j, &j->tensor, CUDNN_TENSOR_NCHW, dims);
}

/* Its gradient takes x and y. The row has the one that matters, which stands for both. */
static cudnnStatus_t run_neuron(const job *j)
{
    const rg_bench_row *r = j->row;
    if (!r->gradient)
        return rg_cudnn.ActivationForward(j->handle, j->activation, j->one, j->tensor,
                                          rg_tensor_data(r->x[0]), j->zero, j->tensor,
                                          rg_tensor_data(r->y[0]));
    const void *read = rg_tensor_data(r->y[0] != NULL ? r->y[0] : r->x[0]);
    return rg_cudnn.ActivationBackward(j->handle, j->activation, j->one, j->tensor, read, j->tensor,
                                       rg_tensor_data(r->dy[0]), j->tensor, read, j->zero,
                                       j->tensor, rg_tensor_data(r->dx[0]));
}

static rg_status prepare_neuron(job *j)
{
    static const cudnnActivationMode_t modes[] = { [RG_NEURON_RELU] = CUDNN_ACTIVATION_RELU,
                                                   [RG_NEURON_SIGMOID] = CUDNN_ACTIVATION_SIGMOID,
                                                   [RG_NEURON_TANH] = CUDNN_ACTIVATION_TANH };
    const rg_neuron_desc *d = (const void *)j->row->desc;
    RG_CHECK(d->kind == RG_NEURON_RELU || d->kind == RG_NEURON_SIGMOID || d->kind == RG_NEURON_TANH,
             RG_UNSUPPORTED, "cudnn: only relu, sigmoid and tanh are compared");
    RG_CHECK(!d->has_a && !d->has_b, RG_UNSUPPORTED, "cudnn: activations have no factors");
    RG_CHECK(!j->row->gradient || d->kind == RG_NEURON_RELU || d->from_y, RG_UNSUPPORTED,
             "cudnn: gradients of sigmoid and tanh read y, not x");
    j->run = run_neuron;
    RG_TRY(describe_flat(j));
    RG_TRY(rg_cudnn_check(j, rg_cudnn.CreateActivationDescriptor(&j->activation)));
    return rg_cudnn_check(
        j, rg_cudnn.SetActivationDescriptor(j->activation, modes[d->kind], CUDNN_PROPAGATE_NAN, 0));
}

/* ---- pooling ---- */

/* The gradient of a maximum finds the winners again, from x and y; that of a mean takes them, too,
 * but has no use for their values. */
static cudnnStatus_t run_pool(const job *j)
{
    const rg_bench_row *r = j->row;
    if (!r->gradient)
        return rg_cudnn.PoolingForward(j->handle, j->pooling, j->one, j->tensor,
                                       rg_tensor_data(r->x[0]), j->zero, j->result,
                                       rg_tensor_data(r->y[0]));
    const rg_tensor *x = j->spare[RG_CUDNN_X] != NULL ? j->spare[RG_CUDNN_X] : r->dx[0];
    const rg_tensor *y = j->spare[RG_CUDNN_Y] != NULL ? j->spare[RG_CUDNN_Y] : r->dy[0];
    return rg_cudnn.PoolingBackward(j->handle, j->pooling, j->one, j->result, rg_tensor_data(y),
                                    j->result, rg_tensor_data(r->dy[0]), j->tensor,
                                    rg_tensor_data(x), j->zero, j->tensor,
                                    rg_tensor_data(r->dx[0]));
}

/* x and y of the forward pass, for the gradient of a maximum. */
static rg_status make_images(job *j)
{
    const rg_bench_row *r = j->row;
    RG_TRY(rg_bench_row_spare(r, &r->x_desc[0], true, &j->spare[RG_CUDNN_X]));
    RG_TRY(rg_bench_row_spare(r, &r->y_desc[0], false, &j->spare[RG_CUDNN_Y]));
    return rg_cudnn_check(j,
                          rg_cudnn.PoolingForward(j->handle, j->pooling, j->one, j->tensor,
                                                  rg_tensor_data(j->spare[RG_CUDNN_X]), j->zero,
                                                  j->result, rg_tensor_data(j->spare[RG_CUDNN_Y])));
}

static rg_status describe_image(job *j, const rg_tensor_desc *desc, cudnnTensorDescriptor_t *to)
{
    const int64_t dims[4] = { desc->dims[0], desc->dims[3], desc->dims[1], desc->dims[2] };
    return describe(j, to, CUDNN_TENSOR_NHWC, dims);
}

/* The same padding on either side, and no dilation. */
static rg_status prepare_pool(job *j)
{
    rg_peer_pool pool;
    int n, c, rows, columns;
    RG_TRY(rg_peer_pool_find(j->row, "cudnn", &pool));
    const rg_pool_desc *d = pool.desc;
    RG_CHECK(d->dilation[0] == 1 && d->dilation[1] == 1, RG_UNSUPPORTED,
             "cudnn: pooling does not support dilation");
    const cudnnPoolingMode_t mode = pool.max ? CUDNN_POOLING_MAX_DETERMINISTIC
                                    : pool.count_padding
                                        ? CUDNN_POOLING_AVERAGE_COUNT_INCLUDE_PADDING
                                        : CUDNN_POOLING_AVERAGE_COUNT_EXCLUDE_PADDING;
    RG_TRY(describe_image(j, pool.x, &j->tensor));
    RG_TRY(describe_image(j, pool.y, &j->result));
    RG_TRY(rg_cudnn_check(j, rg_cudnn.CreatePoolingDescriptor(&j->pooling)));
    RG_TRY(rg_cudnn_check(
        j, rg_cudnn.SetPooling2dDescriptor(j->pooling, mode, CUDNN_PROPAGATE_NAN, d->window[0],
                                           d->window[1], (int)pool.before[0], (int)pool.before[1],
                                           d->stride[0], d->stride[1])));
    RG_TRY(rg_cudnn_check(
        j, rg_cudnn.GetPooling2dForwardOutputDim(j->pooling, j->tensor, &n, &c, &rows, &columns)));
    RG_CHECK(rows == pool.y->dims[1] && columns == pool.y->dims[2], RG_UNSUPPORTED,
             "cudnn: padding must be the same on both sides");
    j->run = run_pool;
    return j->row->gradient && pool.max ? make_images(j) : RG_OK;
}

/* ---- dropout ---- */

static cudnnStatus_t drop_forward(const job *j, const rg_tensor *x, const rg_tensor *y)
{
    return rg_cudnn.DropoutForward(j->handle, j->dropout, j->tensor, rg_tensor_data(x), j->tensor,
                                   rg_tensor_data(y), rg_tensor_data(j->spare[RG_CUDNN_RESERVE]),
                                   j->reserve);
}

static cudnnStatus_t run_dropout(const job *j)
{
    const rg_bench_row *r = j->row;
    if (!r->gradient)
        return drop_forward(j, r->x[0], r->y[0]);
    return rg_cudnn.DropoutBackward(j->handle, j->dropout, j->tensor, rg_tensor_data(r->dy[0]),
                                    j->tensor, rg_tensor_data(r->dx[0]),
                                    rg_tensor_data(j->spare[RG_CUDNN_RESERVE]), j->reserve);
}

static rg_status make_bytes(job *j, size_t bytes, rg_tensor **tensor)
{
    const int64_t count = (int64_t)bytes;
    const rg_tensor_desc desc = rg_tensor_desc_dense(RG_U8, 1, &count);
    return rg_bench_row_spare(j->row, &desc, false, tensor);
}

/* Its random numbers have states, its mask is the reserve. */
static rg_status prepare_dropout(job *j)
{
    const rg_dropout_desc *d = (const void *)j->row->desc;
    size_t states;
    RG_CHECK(d->broadcast_count == 0, RG_UNSUPPORTED,
             "cudnn: dropout does not support a broadcast mask");
    RG_TRY(describe_flat(j));
    RG_TRY(rg_cudnn_check(j, rg_cudnn.DropoutGetStatesSize(j->handle, &states)));
    RG_TRY(rg_cudnn_check(j, rg_cudnn.DropoutGetReserveSpaceSize(j->tensor, &j->reserve)));
    RG_TRY(make_bytes(j, states, &j->spare[RG_CUDNN_STATES]));
    RG_TRY(make_bytes(j, j->reserve, &j->spare[RG_CUDNN_RESERVE]));
    RG_TRY(rg_cudnn_check(j, rg_cudnn.CreateDropoutDescriptor(&j->dropout)));
    RG_TRY(
        rg_cudnn_check(j, rg_cudnn.SetDropoutDescriptor(j->dropout, j->handle, (float)(1 - d->keep),
                                                        rg_tensor_data(j->spare[RG_CUDNN_STATES]),
                                                        states, (unsigned long long)d->seed)));
    j->run = run_dropout;
    return j->row->gradient ? rg_cudnn_check(j, drop_forward(j, j->row->dy[0], j->row->dx[0]))
                            : RG_OK;
}

/* ---- normalizations ---- */

/* NHWC in 16 bits is what the persistent kernels are made for; what they do not take falls back. */
static const cudnnBatchNormMode_t batch_mode = CUDNN_BATCHNORM_SPATIAL_PERSISTENT;
static const cudnnBatchNormOps_t batch_ops = CUDNN_BATCHNORM_OPS_BN;

static void *spare_data(const job *j, int which)
{
    return j->spare[which] != NULL ? rg_tensor_data(j->spare[which]) : NULL;
}

static cudnnStatus_t batch_forward(const job *j, const rg_tensor *x, const rg_tensor *y)
{
    return rg_cudnn.BatchNormalizationForwardTrainingEx(
        j->handle, batch_mode, batch_ops, j->one, j->zero, j->tensor, rg_tensor_data(x), NULL, NULL,
        j->tensor, rg_tensor_data(y), j->channels, spare_data(j, RG_CUDNN_GAMMA),
        spare_data(j, RG_CUDNN_BETA), 1, NULL, NULL, j->epsilon, spare_data(j, RG_CUDNN_MEAN),
        spare_data(j, RG_CUDNN_S), NULL, spare_data(j, RG_CUDNN_WORKSPACE), j->workspace,
        spare_data(j, RG_CUDNN_RESERVE), j->reserve);
}

static cudnnStatus_t run_batch_norm(const job *j)
{
    const rg_bench_row *r = j->row;
    if (!r->gradient)
        return batch_forward(j, r->x[0], r->y[0]);
    return rg_cudnn.BatchNormalizationBackwardEx(
        j->handle, batch_mode, batch_ops, j->one, j->zero, j->one, j->zero, j->tensor,
        rg_tensor_data(r->x[0]), NULL, NULL, j->tensor, rg_tensor_data(r->dy[0]), NULL, NULL,
        j->tensor, rg_tensor_data(r->dx[0]), j->channels, spare_data(j, RG_CUDNN_GAMMA),
        spare_data(j, RG_CUDNN_BETA), spare_data(j, RG_CUDNN_DGAMMA), spare_data(j, RG_CUDNN_DBETA),
        j->epsilon, spare_data(j, RG_CUDNN_MEAN), spare_data(j, RG_CUDNN_S), NULL,
        spare_data(j, RG_CUDNN_WORKSPACE), j->workspace, spare_data(j, RG_CUDNN_RESERVE),
        j->reserve);
}

/* Workspace and reserve, both directions alike; a byte where nothing is wanted. */
static rg_status make_capacities(job *j)
{
    size_t forward, backward;
    RG_TRY(rg_cudnn_check(j, rg_cudnn.GetBatchNormalizationForwardTrainingExWorkspaceSize(
                                 j->handle, batch_mode, batch_ops, j->tensor, NULL, j->tensor,
                                 j->channels, NULL, &forward)));
    RG_TRY(rg_cudnn_check(j, rg_cudnn.GetBatchNormalizationBackwardExWorkspaceSize(
                                 j->handle, batch_mode, batch_ops, j->tensor, NULL, j->tensor, NULL,
                                 j->tensor, j->channels, NULL, &backward)));
    RG_TRY(rg_cudnn_check(j, rg_cudnn.GetBatchNormalizationTrainingExReserveSpaceSize(
                                 j->handle, batch_mode, batch_ops, NULL, j->tensor, &j->reserve)));
    j->workspace = forward > backward ? forward : backward;
    RG_TRY(make_bytes(j, j->workspace + 1, &j->spare[RG_CUDNN_WORKSPACE]));
    return make_bytes(j, j->reserve + 1, &j->spare[RG_CUDNN_RESERVE]);
}

static rg_status prepare_batch_norm(job *j)
{
    const rg_bench_row *r = j->row;
    const rg_batch_norm_desc *d = (const void *)r->desc;
    const rg_tensor_desc *x = &r->x_desc[0];
    RG_CHECK(d->statistics == RG_BATCH_NORM_OWN && d->phase == RG_BATCH_NORM_WHOLE && d->gamma &&
                 d->beta && d->neuron.kind == RG_NEURON_NONE && x->rank == 4,
             RG_UNSUPPORTED, "cudnn: only batch statistics with gamma and beta are compared");
    j->epsilon = d->epsilon;
    RG_TRY(describe_image(j, x, &j->tensor));
    RG_TRY(rg_cudnn_check(j, rg_cudnn.CreateTensorDescriptor(&j->channels)));
    const cudnnDataType_t type = r->dtype == RG_F64 ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT;
    RG_TRY(rg_cudnn_check(j, rg_cudnn.SetTensor4dDescriptor(j->channels, CUDNN_TENSOR_NHWC, type, 1,
                                                            (int)x->dims[3], 1, 1)));
    const rg_tensor_desc each =
        rg_tensor_desc_dense(r->dtype == RG_F64 ? RG_F64 : RG_F32, 1, &x->dims[3]);
    for (int i = RG_CUDNN_GAMMA; i < RG_CUDNN_SPARES; i++)
        RG_TRY(rg_bench_row_spare(r, &each, i <= RG_CUDNN_BETA, &j->spare[i]));
    RG_TRY(make_capacities(j));
    j->run = run_batch_norm;
    return r->gradient ? rg_cudnn_check(j, batch_forward(j, r->x[0], r->dx[0])) : RG_OK;
}

static cudnnStatus_t lrn_forward(const job *j, const rg_tensor *x, const rg_tensor *y)
{
    return rg_cudnn.LRNCrossChannelForward(j->handle, j->lrn, CUDNN_LRN_CROSS_CHANNEL_DIM1, j->one,
                                           j->tensor, rg_tensor_data(x), j->zero, j->tensor,
                                           rg_tensor_data(y));
}

static cudnnStatus_t run_lrn(const job *j)
{
    const rg_bench_row *r = j->row;
    if (!r->gradient)
        return lrn_forward(j, r->x[0], r->y[0]);
    return rg_cudnn.LRNCrossChannelBackward(
        j->handle, j->lrn, CUDNN_LRN_CROSS_CHANNEL_DIM1, j->one, j->tensor,
        spare_data(j, RG_CUDNN_Y), j->tensor, rg_tensor_data(r->dy[0]), j->tensor,
        rg_tensor_data(r->x[0]), j->zero, j->tensor, rg_tensor_data(r->dx[0]));
}

/* Its gradient reads y, too. */
static rg_status prepare_lrn(job *j)
{
    const rg_bench_row *r = j->row;
    const rg_lrn_desc *d = (const void *)r->desc;
    RG_CHECK(d->window % 2 == 1 && r->x_desc[0].rank == 4, RG_UNSUPPORTED,
             "cudnn: only odd windows and batches of images are compared");
    RG_TRY(describe_image(j, &r->x_desc[0], &j->tensor));
    RG_TRY(rg_cudnn_check(j, rg_cudnn.CreateLRNDescriptor(&j->lrn)));
    RG_TRY(rg_cudnn_check(
        j, rg_cudnn.SetLRNDescriptor(j->lrn, (unsigned)d->window, d->alpha, d->beta, d->delta)));
    j->run = run_lrn;
    if (!r->gradient)
        return RG_OK;
    RG_TRY(rg_bench_row_spare(r, &r->y_desc[0], false, &j->spare[RG_CUDNN_Y]));
    return rg_cudnn_check(j, lrn_forward(j, r->x[0], j->spare[RG_CUDNN_Y]));
}

static const struct {
    const char *op;
    rg_status (*prepare)(job *j);
} functions[] = {
    { "softmax", prepare_softmax },
    { "neuron", prepare_neuron },
    { "pool", prepare_pool },
    { "dropout", prepare_dropout },
    { "batch_norm", prepare_batch_norm },
    { "lrn", prepare_lrn },
    { "conv", rg_peer_cudnn_prepare_conv },
    { "dense", rg_peer_cudnn_prepare_dense },
    { "gram", rg_peer_cudnn_prepare_gram },
};

rg_status rg_peer_cudnn_prepare(job *j)
{
    const char *op = j->row->test->op->name;
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
        if (strcmp(functions[i].op, op) == 0)
            return functions[i].prepare(j);
    }
    return rg_fail(RG_UNSUPPORTED, "cudnn: op '%s' is not compared", op);
}
#else
typedef int rg_no_cudnn_ops; /* a file must not be empty */
#endif
