/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Contractions by cuDNN and cuBLASLt: the calls that our kernels make, made directly, one after
 * the other in a stream. What is left is what commands and our own kernels cost beside them. */
#if RG_HAVE_CUDNN
#include "cli/peer_cudnn.h"
#include "core/shape.h"

#include <retrograde/conv.h>
#include <retrograde/dense.h>
#include <retrograde/gram.h>
#include <retrograde/padding.h>

typedef rg_cudnn_job job;

static void *data_of(const rg_tensor *tensor)
{
    return tensor != NULL ? rg_tensor_data(tensor) : NULL;
}

static rg_cuda_target target_of(const job *j)
{
    return (rg_cuda_target){ .stream = j->stream, .cudnn = j->dnn, .cublaslt = j->blas };
}

/* ---- convolution ---- */

/* x or dx, w or dw, y or dy. */
static cudnnStatus_t run_conv(const job *j)
{
    const rg_bench_row *r = j->row;
    const rg_cuda_target target = target_of(j);
    void *space = data_of(j->spare[RG_CUDNN_WORKSPACE]);
    bool done = true;
    for (int i = 0; i < j->calls && done; i++) {
        const int64_t direction = j->conv[i].direction;
        done = rg_cudnn_conv_run(&target, &j->conv[i],
                                 data_of(direction == RG_CONV_DATA ? r->dx[0] : r->x[0]),
                                 data_of(direction == RG_CONV_WEIGHTS ? r->dx[1] : r->x[1]),
                                 data_of(r->gradient ? r->dy[0] : r->y[0]), space, j->workspace);
    }
    return done ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_EXECUTION_FAILED;
}

static rg_status add_conv(job *j, rg_cudnn_conv conv, int32_t direction)
{
    const rg_cuda_target target = target_of(j);
    size_t bytes = 0;
    conv.direction = direction;
    RG_CHECK(rg_cudnn_conv_plan(&target, &conv, &bytes), RG_UNSUPPORTED,
             "cudnn: this convolution is not supported in %s", rg_dtype_name(j->row->dtype));
    j->conv[j->calls++] = conv;
    j->workspace = bytes > j->workspace ? bytes : j->workspace;
    return RG_OK;
}

static rg_status make_workspace(job *j)
{
    const int64_t bytes = (int64_t)j->workspace + 1;
    const rg_tensor_desc desc = rg_tensor_desc_dense(RG_U8, 1, &bytes);
    return rg_bench_row_spare(j->row, &desc, false, &j->spare[RG_CUDNN_WORKSPACE]);
}

rg_status rg_peer_cudnn_prepare_conv(job *j)
{
    const rg_bench_row *r = j->row;
    const rg_conv_desc *d = (const void *)r->desc;
    const int64_t *x = r->x_desc[0].dims, *w = r->x_desc[1].dims, *y = r->y_desc[0].dims;
    RG_CHECK(r->x_desc[0].rank == 4 && !d->bias && d->neuron.kind == RG_NEURON_NONE, RG_UNSUPPORTED,
             "cudnn: only convolutions of batches without bias and neuron are compared");
    const rg_window window = { .source = { x[1], x[2] },
                               .window = { (int32_t)w[1], (int32_t)w[2] },
                               .stride = { d->stride[0], d->stride[1] },
                               .dilation = { d->dilation[0], d->dilation[1] },
                               .output = { d->output[0], d->output[1] } };
    rg_placement at;
    RG_TRY(rg_padding_resolve(&d->padding, &window, &at));
    const rg_cudnn_conv conv = { .dtype = r->dtype,
                                 .images = x[0],
                                 .channels = x[3],
                                 .outputs = w[0],
                                 .groups = x[3] / w[3],
                                 .size = { x[1], x[2] },
                                 .result = { y[1], y[2] },
                                 .window = { w[1], w[2] },
                                 .stride = { d->stride[0], d->stride[1] },
                                 .dilation = { d->dilation[0], d->dilation[1] },
                                 .before = { at.before[0], at.before[1] } };
    j->run = run_conv;
    if (!r->gradient)
        RG_TRY(add_conv(j, conv, RG_CONV_FORWARD));
    if (r->dx[0] != NULL)
        RG_TRY(add_conv(j, conv, RG_CONV_DATA));
    if (r->dx[1] != NULL)
        RG_TRY(add_conv(j, conv, RG_CONV_WEIGHTS));
    return make_workspace(j);
}

/* ---- products ---- */

static cudnnStatus_t run_products(const job *j)
{
    const rg_cuda_target target = target_of(j);
    void *space = data_of(j->spare[RG_CUDNN_WORKSPACE]);
    bool done = true;
    for (int i = 0; i < j->calls && done; i++) {
        const rg_tensor *const *t = j->factors[i];
        const rg_product_operands operands = { .a = data_of(t[0]),
                                               .b = data_of(t[1]),
                                               .c = data_of(t[2]) };
        done = rg_cublaslt_run(&target, &j->product[i], 1, &operands, space, j->workspace);
    }
    return done ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_EXECUTION_FAILED;
}

/* c = a b. */
static rg_status add_product(job *j, rg_product product, const rg_tensor *a, const rg_tensor *b,
                             const rg_tensor *c)
{
    const rg_cuda_target target = target_of(j);
    size_t bytes = 0;
    if (c == NULL)
        return RG_OK;
    product.dtype = j->row->dtype;
    RG_CHECK(rg_cublaslt_plan(&target, &product, &bytes), RG_UNSUPPORTED,
             "cublaslt: this matrix product is not supported in %s", rg_dtype_name(j->row->dtype));
    j->product[j->calls] = product;
    j->factors[j->calls][0] = a;
    j->factors[j->calls][1] = b;
    j->factors[j->calls++][2] = c;
    j->workspace = bytes > j->workspace ? bytes : j->workspace;
    return RG_OK;
}

rg_status rg_peer_cudnn_prepare_dense(job *j)
{
    const rg_bench_row *r = j->row;
    const rg_dense_desc *d = (const void *)r->desc;
    RG_CHECK(!d->bias && d->neuron.kind == RG_NEURON_NONE && d->alpha == 1 &&
                 d->layout == RG_DENSE_OUT_IN,
             RG_UNSUPPORTED, "cublaslt: only plain matrix products are compared");
    const int64_t out = r->x_desc[1].dims[0], in = rg_shape_count(&r->x_desc[1]) / out;
    const int64_t rows = rg_shape_count(&r->x_desc[0]) / in;
    const rg_product y = {
        .batch = 1, .rows = rows, .columns = out, .inner = in, .transposed_b = 1
    };
    const rg_product dx = { .batch = 1, .rows = rows, .columns = in, .inner = out };
    const rg_product dw = {
        .batch = 1, .rows = out, .columns = in, .inner = rows, .transposed_a = 1
    };
    j->run = run_products;
    RG_TRY(add_product(j, y, r->x[0], r->x[1], r->gradient ? NULL : r->y[0]));
    RG_TRY(add_product(j, dx, r->dy[0], r->x[1], r->dx[0]));
    RG_TRY(add_product(j, dw, r->dy[0], r->x[0], r->dx[1]));
    return make_workspace(j);
}

/* The gradient without the sum of dy and its transpose, which cuBLASLt has not. */
rg_status rg_peer_cudnn_prepare_gram(job *j)
{
    const rg_bench_row *r = j->row;
    const rg_tensor_desc *x = &r->x_desc[0];
    const int64_t channels = x->dims[x->rank - 1];
    const int64_t pixels = x->dims[x->rank - 3] * x->dims[x->rank - 2];
    const int64_t images = rg_shape_count(x) / (channels * pixels);
    const rg_product y = {
        .batch = images, .rows = channels, .columns = channels, .inner = pixels, .transposed_a = 1
    };
    const rg_product dx = {
        .batch = images, .rows = pixels, .columns = channels, .inner = channels
    };
    j->run = run_products;
    RG_TRY(add_product(j, y, r->x[0], r->x[0], r->gradient ? NULL : r->y[0]));
    RG_TRY(add_product(j, dx, r->x[0], r->dy[0], r->dx[0]));
    return make_workspace(j);
}
#else
typedef int rg_no_cudnn_products; /* a file must not be empty */
#endif
