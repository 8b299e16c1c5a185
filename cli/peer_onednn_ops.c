/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Which primitive of oneDNN runs which op, keyed by the op's name: an op's own folder knows
 * nothing of peers. */
#if RG_HAVE_ONEDNN
#include "cli/peer_onednn.h"
#include "cli/peer_pool.h"

#include <retrograde/batch_norm.h>
#include <retrograde/conv.h>
#include <retrograde/group_norm.h>
#include <retrograde/lrn.h>
#include <retrograde/neuron.h>
#include <retrograde/softmax.h>
#include <retrograde/upsample.h>

typedef rg_onednn_job job;

static dnnl_data_type_t type_of(rg_dtype dtype)
{
    return dtype == RG_F32    ? dnnl_f32
           : dtype == RG_BF16 ? dnnl_bf16
           : dtype == RG_F16  ? dnnl_f16
                              : dnnl_data_type_undef;
}

/* Dimensions from `rank` on are one. */
static rg_status describe(const job *j, const rg_tensor_desc *desc, int32_t rank,
                          dnnl_memory_desc_t *memory)
{
    const dnnl_data_type_t type = type_of(desc->dtype);
    dnnl_dims_t dims = { 0 }, strides = { 0 };
    for (int32_t d = 0; d < desc->rank; d++) {
        const int32_t to = d < rank ? d : rank - 1;
        dims[to] = d < rank ? desc->dims[d] : dims[to] * desc->dims[d];
        strides[to] = desc->strides[d];
    }
    return rg_onednn_check(
        j, type == dnnl_data_type_undef
               ? dnnl_unimplemented
               : rg_onednn.memory_desc_init_by_strides(memory, rank, dims, type, strides));
}

/* (n, h, w, c) in the order that oneDNN names dimensions in: n, c, h, w. */
static rg_status describe_image(const job *j, const rg_tensor_desc *desc,
                                dnnl_memory_desc_t *memory)
{
    static const int from[] = { 0, 3, 1, 2 };
    RG_CHECK(desc->rank == 4, RG_UNSUPPORTED, "onednn: only batches of images are compared");
    rg_tensor_desc transposed = *desc;
    for (int i = 0; i < 4; i++) {
        transposed.dims[i] = desc->dims[from[i]];
        transposed.strides[i] = desc->strides[from[i]];
    }
    return describe(j, &transposed, 4, memory);
}

static rg_status prepare_softmax(job *j)
{
    const rg_bench_row *row = j->row;
    const rg_softmax_desc *d = (const void *)row->desc;
    const int32_t rank = row->x_desc[0].rank;
    const int axis = (int)(d->axis < 0 ? d->axis + rank : d->axis);
    const dnnl_alg_kind_t kind =
        d->kind == RG_SOFTMAX_LOG ? dnnl_softmax_log : dnnl_softmax_accurate;
    dnnl_memory_desc_t memory;
    dnnl_softmax_v2_desc_t forward, backward;
    RG_TRY(describe(j, &row->x_desc[0], d->flatten ? axis + 1 : rank, &memory));
    RG_TRY(rg_onednn_check(j, rg_onednn.softmax_v2_forward_desc_init(
                                  &forward, dnnl_forward_training, kind, &memory, &memory, axis)));
    RG_TRY(rg_onednn_check(j, rg_onednn.softmax_v2_backward_desc_init(&backward, kind, &memory,
                                                                      &memory, &memory, axis)));
    RG_TRY(rg_onednn_plan(j, &forward, &backward));
    if (!row->gradient) {
        RG_TRY(rg_onednn_use(j, DNNL_ARG_SRC, &memory, row->x[0]));
        return rg_onednn_use(j, DNNL_ARG_DST, &memory, row->y[0]);
    }
    RG_TRY(rg_onednn_use(j, DNNL_ARG_DST, &memory, row->y[0]));
    RG_TRY(rg_onednn_use(j, DNNL_ARG_DIFF_DST, &memory, row->dy[0]));
    return rg_onednn_use(j, DNNL_ARG_DIFF_SRC, &memory, row->dx[0]);
}

/* ---- neurons ---- */

/* a and b where they are not given, and the algorithm by whether the gradient reads x or y. */
static const struct eltwise {
    rg_neuron_kind kind;
    float a, b;
    dnnl_alg_kind_t from_x, from_y;
} eltwises[] = {
    { RG_NEURON_RELU, 0, 0, dnnl_eltwise_relu, dnnl_eltwise_relu_use_dst_for_bwd },
    { RG_NEURON_SIGMOID, 0, 0, dnnl_eltwise_logistic, dnnl_eltwise_logistic_use_dst_for_bwd },
    { RG_NEURON_TANH, 1, 1, dnnl_eltwise_tanh, dnnl_eltwise_tanh_use_dst_for_bwd },
    { RG_NEURON_ELU, 1, 0, dnnl_eltwise_elu, dnnl_eltwise_elu_use_dst_for_bwd },
    { RG_NEURON_GELU, 0, 0, dnnl_eltwise_gelu_erf, dnnl_alg_kind_undef },
    { RG_NEURON_GELU_TANH, 0, 0, dnnl_eltwise_gelu_tanh, dnnl_alg_kind_undef },
    { RG_NEURON_SWISH, 1, 0, dnnl_eltwise_swish, dnnl_alg_kind_undef },
};

static rg_status prepare_eltwise(job *j)
{
    const rg_bench_row *row = j->row;
    const rg_neuron_desc *d = (const void *)row->desc;
    const struct eltwise *e = NULL;
    for (size_t i = 0; i < sizeof eltwises / sizeof eltwises[0]; i++)
        e = eltwises[i].kind == d->kind ? &eltwises[i] : e;
    RG_CHECK(e != NULL, RG_UNSUPPORTED, "onednn: this kind of neuron is not compared");
    const float a = d->has_a ? (float)d->a : e->a, b = d->has_b ? (float)d->b : e->b;
    RG_CHECK(d->kind != RG_NEURON_TANH || (a == 1 && b == 1), RG_UNSUPPORTED,
             "onednn: tanh has no factors");
    const dnnl_alg_kind_t kind = d->from_y ? e->from_y : e->from_x;
    dnnl_memory_desc_t memory;
    dnnl_eltwise_desc_t forward, backward;
    RG_TRY(describe(j, &row->x_desc[0], row->x_desc[0].rank, &memory));
    RG_TRY(rg_onednn_check(j, rg_onednn.eltwise_forward_desc_init(&forward, dnnl_forward_training,
                                                                  kind, &memory, a, 0)));
    RG_TRY(rg_onednn_check(
        j, rg_onednn.eltwise_backward_desc_init(&backward, kind, &memory, &memory, a, 0)));
    RG_TRY(rg_onednn_plan(j, &forward, &backward));
    if (!row->gradient) {
        RG_TRY(rg_onednn_use(j, DNNL_ARG_SRC, &memory, row->x[0]));
        return rg_onednn_use(j, DNNL_ARG_DST, &memory, row->y[0]);
    }
    RG_TRY(rg_onednn_use(j, d->from_y ? DNNL_ARG_DST : DNNL_ARG_SRC, &memory,
                         d->from_y ? row->y[0] : row->x[0]));
    RG_TRY(rg_onednn_use(j, DNNL_ARG_DIFF_DST, &memory, row->dy[0]));
    return rg_onednn_use(j, DNNL_ARG_DIFF_SRC, &memory, row->dx[0]);
}

/* x (rows, channels), slope (1, channels). */
static rg_status prepare_prelu(job *j)
{
    const rg_bench_row *row = j->row;
    const rg_tensor_desc *x = &row->x_desc[0];
    RG_CHECK(x->rank == 2, RG_UNSUPPORTED, "onednn: prelu is compared for matrices only");
    const int64_t channels = x->dims[1], slope_dims[] = { 1, channels };
    const rg_tensor_desc slope = rg_tensor_desc_dense(x->dtype, 2, slope_dims);
    dnnl_memory_desc_t memory, weights;
    dnnl_prelu_desc_t forward, backward;
    RG_TRY(describe(j, x, 2, &memory));
    RG_TRY(describe(j, &slope, 2, &weights));
    RG_TRY(rg_onednn_check(
        j, rg_onednn.prelu_forward_desc_init(&forward, dnnl_forward_training, &memory, &weights)));
    RG_TRY(rg_onednn_check(
        j, rg_onednn.prelu_backward_desc_init(&backward, &memory, &weights, &memory, &weights)));
    RG_TRY(rg_onednn_plan(j, &forward, &backward));
    RG_TRY(rg_onednn_use(j, DNNL_ARG_SRC, &memory, row->x[0]));
    RG_TRY(rg_onednn_use(j, DNNL_ARG_WEIGHTS, &weights, row->x[1]));
    if (!row->gradient)
        return rg_onednn_use(j, DNNL_ARG_DST, &memory, row->y[0]);
    RG_TRY(rg_onednn_use(j, DNNL_ARG_DIFF_DST, &memory, row->dy[0]));
    RG_TRY(rg_onednn_use(j, DNNL_ARG_DIFF_SRC, &memory, row->dx[0]));
    return rg_onednn_use(j, DNNL_ARG_DIFF_WEIGHTS, &weights, row->dx[1]);
}

static rg_status prepare_neuron(job *j)
{
    const rg_neuron_desc *d = (const void *)j->row->desc;
    return d->kind == RG_NEURON_PRELU ? prepare_prelu(j) : prepare_eltwise(j);
}

/* ---- images ---- */

/* x and y, or dx and dy. */
static rg_status use_images(job *j, const dnnl_memory_desc_t *x, const dnnl_memory_desc_t *y)
{
    const rg_bench_row *row = j->row;
    const bool g = row->gradient;
    RG_TRY(rg_onednn_use(j, g ? DNNL_ARG_DIFF_SRC : DNNL_ARG_SRC, x, g ? row->dx[0] : row->x[0]));
    return rg_onednn_use(j, g ? DNNL_ARG_DIFF_DST : DNNL_ARG_DST, y, g ? row->dy[0] : row->y[0]);
}

/* As in training: a maximum leaves its winners in a workspace, which the gradient reads. */
static rg_status prepare_pool(job *j)
{
    rg_peer_pool pool;
    RG_TRY(rg_peer_pool_find(j->row, "onednn", &pool));
    const dnnl_alg_kind_t kind = pool.max             ? dnnl_pooling_max
                                 : pool.count_padding ? dnnl_pooling_avg_include_padding
                                                      : dnnl_pooling_avg_exclude_padding;
    dnnl_dims_t window, stride, dilation, before, after;
    for (int i = 0; i < 2; i++) {
        window[i] = pool.desc->window[i];
        stride[i] = pool.desc->stride[i];
        dilation[i] = pool.desc->dilation[i] - 1;
        before[i] = pool.before[i];
        after[i] = pool.after[i];
    }
    dnnl_memory_desc_t x, y;
    dnnl_pooling_v2_desc_t forward, backward;
    RG_TRY(describe_image(j, pool.x, &x));
    RG_TRY(describe_image(j, pool.y, &y));
    RG_TRY(rg_onednn_check(
        j, rg_onednn.pooling_v2_forward_desc_init(&forward, dnnl_forward_training, kind, &x, &y,
                                                  stride, window, dilation, before, after)));
    RG_TRY(rg_onednn_check(j, rg_onednn.pooling_v2_backward_desc_init(&backward, kind, &x, &y,
                                                                      stride, window, dilation,
                                                                      before, after)));
    RG_TRY(rg_onednn_plan(j, &forward, &backward));
    RG_TRY(use_images(j, &x, &y));
    RG_TRY(rg_onednn_use_workspace(j));
    return j->row->gradient ? rg_onednn_run_forward(j, &x, &y) : RG_OK;
}

/* Its grid is half_pixel. Where every pixel becomes a block, that is the nearest pixel of all
 * grids but align_corners. */
static rg_status prepare_upsample(job *j)
{
    const rg_bench_row *row = j->row;
    const rg_upsample_desc *d = (const void *)row->desc;
    const rg_tensor_desc *from = &row->x_desc[0], *to = &row->y_desc[0];
    dnnl_memory_desc_t x, y;
    dnnl_resampling_desc_t forward, backward;
    RG_TRY(describe_image(j, from, &x));
    RG_TRY(describe_image(j, to, &y));
    if (d->kind == RG_UPSAMPLE_NEAREST)
        RG_CHECK(d->grid != RG_UPSAMPLE_ALIGN_CORNERS && d->round != RG_UPSAMPLE_CEIL &&
                     from->dims[1] > 0 && from->dims[2] > 0 && to->dims[1] % from->dims[1] == 0 &&
                     to->dims[2] % from->dims[2] == 0,
                 RG_UNSUPPORTED, "onednn: nearest is compared only for whole scale factors");
    else
        RG_CHECK(d->grid == RG_UPSAMPLE_HALF_PIXEL, RG_UNSUPPORTED,
                 "onednn: bilinear supports only the grid half_pixel");
    const dnnl_alg_kind_t kind =
        d->kind == RG_UPSAMPLE_NEAREST ? dnnl_resampling_nearest : dnnl_resampling_linear;
    RG_TRY(rg_onednn_check(j, rg_onednn.resampling_forward_desc_init(
                                  &forward, dnnl_forward_training, kind, NULL, &x, &y)));
    RG_TRY(
        rg_onednn_check(j, rg_onednn.resampling_backward_desc_init(&backward, kind, NULL, &x, &y)));
    RG_TRY(rg_onednn_plan(j, &forward, &backward));
    return use_images(j, &x, &y);
}

/* ---- normalizations ---- */

/* Statistics, gamma and beta, which oneDNN has in f32. */
static rg_status use_parameters(job *j, const rg_tensor_desc *statistics)
{
    const rg_tensor_desc *x = &j->row->x_desc[0];
    const rg_tensor_desc each = rg_tensor_desc_dense(RG_F32, 1, &x->dims[x->rank - 1]);
    dnnl_memory_desc_t numbers, channels;
    RG_TRY(describe(j, statistics, statistics->rank, &numbers));
    RG_TRY(describe(j, &each, 1, &channels));
    RG_TRY(rg_onednn_use_spare(j, DNNL_ARG_MEAN, &numbers, statistics, false));
    RG_TRY(rg_onednn_use_spare(j, DNNL_ARG_VARIANCE, &numbers, statistics, false));
    RG_TRY(rg_onednn_use_spare(j, DNNL_ARG_SCALE, &channels, &each, true));
    RG_TRY(rg_onednn_use_spare(j, DNNL_ARG_SHIFT, &channels, &each, true));
    if (!j->row->gradient)
        return RG_OK;
    RG_TRY(rg_onednn_use_spare(j, DNNL_ARG_DIFF_SCALE, &channels, &each, false));
    return rg_onednn_use_spare(j, DNNL_ARG_DIFF_SHIFT, &channels, &each, false);
}

/* x and what use_images binds; then, for a gradient, what forward leaves. */
static rg_status use_normalized(job *j, const dnnl_memory_desc_t *x)
{
    if (j->row->gradient)
        RG_TRY(rg_onednn_use(j, DNNL_ARG_SRC, x, j->row->x[0]));
    RG_TRY(use_images(j, x, x));
    RG_TRY(rg_onednn_use_workspace(j));
    return j->row->gradient ? rg_onednn_run_forward(j, x, x) : RG_OK;
}

static rg_status prepare_batch_norm(job *j)
{
    const rg_bench_row *row = j->row;
    const rg_batch_norm_desc *d = (const void *)row->desc;
    const bool relu = d->neuron.kind == RG_NEURON_RELU && !d->neuron.has_a;
    RG_CHECK(d->statistics == RG_BATCH_NORM_OWN && d->phase == RG_BATCH_NORM_WHOLE && d->gamma &&
                 d->beta && (relu || d->neuron.kind == RG_NEURON_NONE),
             RG_UNSUPPORTED, "onednn: only batch statistics with gamma and beta are compared");
    const unsigned flags = (unsigned)dnnl_use_scale | (unsigned)dnnl_use_shift |
                           (relu ? (unsigned)dnnl_fuse_norm_relu : 0);
    dnnl_memory_desc_t x;
    dnnl_batch_normalization_desc_t forward, backward;
    RG_TRY(describe_image(j, &row->x_desc[0], &x));
    RG_TRY(rg_onednn_check(j, rg_onednn.batch_normalization_forward_desc_init(
                                  &forward, dnnl_forward_training, &x, (float)d->epsilon, flags)));
    RG_TRY(rg_onednn_check(j, rg_onednn.batch_normalization_backward_desc_init(
                                  &backward, dnnl_backward, &x, &x, (float)d->epsilon, flags)));
    RG_TRY(rg_onednn_plan(j, &forward, &backward));
    const rg_tensor_desc statistics = rg_tensor_desc_dense(RG_F32, 1, &row->x_desc[0].dims[3]);
    RG_TRY(use_parameters(j, &statistics));
    return use_normalized(j, &x);
}

/* Layer normalization, one group in each row. */
static rg_status prepare_group_norm(job *j)
{
    const rg_bench_row *row = j->row;
    const rg_group_norm_desc *d = (const void *)row->desc;
    const rg_tensor_desc *desc = &row->x_desc[0];
    RG_CHECK(d->groups == 1 && (d->axis == -1 || d->axis == desc->rank - 1) && desc->rank > 1,
             RG_UNSUPPORTED, "onednn: version 2 has no group or instance normalization");
    RG_CHECK(d->gamma && d->beta && d->neuron.kind == RG_NEURON_NONE, RG_UNSUPPORTED,
             "onednn: only layer normalization with gamma and beta is compared");
    const unsigned flags = (unsigned)dnnl_use_scale | (unsigned)dnnl_use_shift;
    const rg_tensor_desc statistics = rg_tensor_desc_dense(RG_F32, desc->rank - 1, desc->dims);
    dnnl_memory_desc_t x, numbers;
    dnnl_layer_normalization_desc_t forward, backward;
    RG_TRY(describe(j, desc, desc->rank, &x));
    RG_TRY(describe(j, &statistics, statistics.rank, &numbers));
    RG_TRY(rg_onednn_check(
        j, rg_onednn.layer_normalization_forward_desc_init(&forward, dnnl_forward_training, &x,
                                                           &numbers, (float)d->epsilon, flags)));
    RG_TRY(rg_onednn_check(
        j, rg_onednn.layer_normalization_backward_desc_init(&backward, dnnl_backward, &x, &x,
                                                            &numbers, (float)d->epsilon, flags)));
    RG_TRY(rg_onednn_plan(j, &forward, &backward));
    RG_TRY(use_parameters(j, &statistics));
    return use_normalized(j, &x);
}

static rg_status prepare_lrn(job *j)
{
    const rg_bench_row *row = j->row;
    const rg_lrn_desc *d = (const void *)row->desc;
    RG_CHECK(d->window % 2 == 1, RG_UNSUPPORTED, "onednn: only odd windows are compared");
    const float alpha = (float)d->alpha, beta = (float)d->beta, delta = (float)d->delta;
    dnnl_memory_desc_t x;
    dnnl_lrn_desc_t forward, backward;
    RG_TRY(describe_image(j, &row->x_desc[0], &x));
    RG_TRY(rg_onednn_check(j, rg_onednn.lrn_forward_desc_init(&forward, dnnl_forward_training,
                                                              dnnl_lrn_across_channels, &x,
                                                              d->window, alpha, beta, delta)));
    RG_TRY(
        rg_onednn_check(j, rg_onednn.lrn_backward_desc_init(&backward, dnnl_lrn_across_channels, &x,
                                                            &x, d->window, alpha, beta, delta)));
    RG_TRY(rg_onednn_plan(j, &forward, &backward));
    return use_normalized(j, &x);
}

/* ---- convolution: images in the layout that oneDNN likes best, and in ours ---- */

/* Weights (out, kh, kw, in) as groups, out, in, kh, kw; without groups if there is one. */
static rg_status describe_weights(const job *j, const rg_tensor_desc *w, int64_t groups,
                                  dnnl_memory_desc_t *memory)
{
    rg_tensor_desc transposed = *w;
    const int32_t o = groups > 1;
    static const int from[] = { 0, 3, 1, 2 };
    for (int i = 0; i < 4; i++) {
        transposed.dims[o + i] = w->dims[from[i]];
        transposed.strides[o + i] = w->strides[from[i]];
    }
    transposed.dims[o] /= groups;
    if (groups > 1) {
        transposed.dims[0] = groups;
        transposed.strides[0] = transposed.dims[1] * transposed.strides[1];
    }
    transposed.rank = 4 + o;
    return describe(j, &transposed, transposed.rank, memory);
}

/* Binds what the plan needs: a tensor of its own, in its layout. */
static rg_status use_wanted(job *j, int argument, dnnl_query_t query)
{
    const dnnl_primitive_desc_t plan = j->row->gradient ? j->backward : j->forward;
    const dnnl_memory_desc_t *desc = rg_onednn.primitive_desc_query_md(plan, query, 0);
    const int64_t size = (int64_t)rg_dtype_size(j->row->dtype);
    const int64_t count = (int64_t)rg_onednn.memory_desc_get_size(desc) / size;
    const rg_tensor_desc flat = rg_tensor_desc_dense(j->row->dtype, 1, &count);
    return rg_onednn_use_spare(j, argument, desc, &flat, true);
}

static rg_status use_conv(job *j)
{
    const rg_bench_row *row = j->row;
    if (!row->gradient) {
        RG_TRY(use_wanted(j, DNNL_ARG_SRC, dnnl_query_src_md));
        RG_TRY(use_wanted(j, DNNL_ARG_WEIGHTS, dnnl_query_weights_md));
        return use_wanted(j, DNNL_ARG_DST, dnnl_query_dst_md);
    }
    RG_TRY(use_wanted(j, DNNL_ARG_DIFF_DST, dnnl_query_diff_dst_md));
    if (row->only == 0) {
        RG_TRY(use_wanted(j, DNNL_ARG_WEIGHTS, dnnl_query_weights_md));
        return use_wanted(j, DNNL_ARG_DIFF_SRC, dnnl_query_diff_src_md);
    }
    RG_TRY(use_wanted(j, DNNL_ARG_SRC, dnnl_query_src_md));
    return use_wanted(j, DNNL_ARG_DIFF_WEIGHTS, dnnl_query_diff_weights_md);
}

static rg_status prepare_conv(job *j)
{
    const rg_bench_row *row = j->row;
    const rg_conv_desc *d = (const void *)row->desc;
    const rg_tensor_desc *x = &row->x_desc[0], *w = &row->x_desc[1], *y = &row->y_desc[0];
    RG_CHECK(!d->bias && d->neuron.kind == RG_NEURON_NONE, RG_UNSUPPORTED,
             "onednn: only convolutions without bias and neuron are compared");
    RG_CHECK(!row->gradient || row->only >= 0, RG_UNSUPPORTED,
             "onednn: only the gradient of one input at a time is compared");
    dnnl_memory_desc_t memory[3];
    RG_TRY(describe_image(j, x, &memory[0]));
    RG_TRY(describe_weights(j, w, d->groups > 0 ? d->groups : x->dims[3], &memory[1]));
    RG_TRY(describe_image(j, y, &memory[2]));
    j->layouts = 2;
    for (int i = 0; i < 3; i++) { /* weights are always in its own */
        if (i != 1 && j->layout == 1)
            continue;
        const dnnl_memory_desc_t m = memory[i];
        RG_TRY(rg_onednn_check(j, rg_onednn.memory_desc_init_by_tag(&memory[i], m.ndims, m.dims,
                                                                    m.data_type,
                                                                    dnnl_format_tag_any)));
    }
    dnnl_dims_t stride, dilation, before = { d->padding.top, d->padding.left }, after;
    for (int i = 0; i < 2; i++) {
        stride[i] = d->stride[i];
        dilation[i] = d->dilation[i] - 1;
        after[i] = (y->dims[1 + i] - 1) * stride[i] + (w->dims[1 + i] - 1) * d->dilation[i] + 1 -
                   x->dims[1 + i] - before[i];
    }
    const dnnl_alg_kind_t kind = dnnl_convolution_direct;
    dnnl_convolution_desc_t forward, backward = { 0 };
    RG_TRY(rg_onednn_check(j, rg_onednn.dilated_convolution_forward_desc_init(
                                  &forward, dnnl_forward_training, kind, &memory[0], &memory[1],
                                  NULL, &memory[2], stride, dilation, before, after)));
    if (row->gradient && row->only == 0)
        RG_TRY(rg_onednn_check(j, rg_onednn.dilated_convolution_backward_data_desc_init(
                                      &backward, kind, &memory[0], &memory[1], &memory[2], stride,
                                      dilation, before, after)));
    else if (row->gradient)
        RG_TRY(rg_onednn_check(j, rg_onednn.dilated_convolution_backward_weights_desc_init(
                                      &backward, kind, &memory[0], &memory[1], NULL, &memory[2],
                                      stride, dilation, before, after)));
    RG_TRY(rg_onednn_plan(j, &forward, &backward));
    return use_conv(j);
}

static const struct {
    const char *op;
    rg_status (*prepare)(job *j);
} primitives[] = {
    { "softmax", prepare_softmax },
    { "neuron", prepare_neuron },
    { "pool", prepare_pool },
    { "upsample", prepare_upsample },
    { "batch_norm", prepare_batch_norm },
    { "group_norm", prepare_group_norm },
    { "lrn", prepare_lrn },
    { "conv", prepare_conv },
    { "dense", rg_onednn_prepare_product },
};

rg_status rg_onednn_prepare(job *j)
{
    const char *op = j->row->test->op->name;
    for (size_t i = 0; i < sizeof primitives / sizeof primitives[0]; i++) {
        if (strcmp(primitives[i].op, op) == 0)
            return primitives[i].prepare(j);
    }
    return rg_fail(RG_UNSUPPORTED, "onednn: op '%s' is not compared", op);
}
#else
typedef int rg_no_onednn_ops; /* a file must not be empty */
#endif
