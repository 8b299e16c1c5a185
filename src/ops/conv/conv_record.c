/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Checking and recording, for conv and conv_transpose. */
#include "ops/conv/conv_record.h"

#include <stdio.h>

/* ---- checks; `op` is the name ---- */

rg_status rg_conv_check_inputs(const rg_tensor_desc x[], bool bias, const char *op)
{
    char have[RG_SHAPE_TEXT], text[RG_SHAPE_TEXT];
    rg_shape_text(&x[0], have);
    RG_CHECK(rg_dtype_is_data(x->dtype), RG_INVALID_ARGUMENT,
             "%s: x is %s; f32, f64, f16 and bf16 are supported", op, rg_dtype_name(x->dtype));
    RG_CHECK(x->rank == 3 || x->rank == 4, RG_INVALID_ARGUMENT,
             "%s: x has rank %d; it must be an image (h, w, c) or a batch (n, h, w, c)", op,
             x->rank);
    RG_CHECK(x->dims[x->rank - 1] > 0, RG_INVALID_ARGUMENT,
             "%s: x is %s and has no channels (its last dimension)", op, have);
    RG_CHECK(x[1].rank == 4, RG_INVALID_ARGUMENT,
             "%s: w has rank %d; it must have rank 4, with the rows and columns of the window in "
             "the middle",
             op, x[1].rank);
    for (int32_t i = 1; i < 2 + bias; i++)
        RG_CHECK(x[i].dtype == x->dtype, RG_INVALID_ARGUMENT,
                 "%s: %s is %s but x is %s; all must have the same dtype", op, i == 1 ? "w" : "b",
                 rg_shape_text(&x[i], text), have);
    for (int32_t d = 0; d < 4; d++)
        RG_CHECK(x[1].dims[d] > 0 && x[1].dims[d] <= INT32_MAX, RG_INVALID_ARGUMENT,
                 "%s: w is %s; every dimension must be at least 1 and less than 2^31", op,
                 rg_shape_text(&x[1], text));
    return RG_OK;
}

rg_status rg_conv_check_bias(const rg_tensor_desc *b, int64_t channels, const char *op)
{
    char text[RG_SHAPE_TEXT];
    RG_CHECK(b->rank == 1 && b->dims[0] == channels, RG_INVALID_ARGUMENT,
             "%s: b is %s; it must have one element for each of the %lld channels of y", op,
             rg_shape_text(b, text), (long long)channels);
    return RG_OK;
}

rg_status rg_conv_place(const rg_padding *padding, const rg_window *window, const char *op,
                        rg_placement *at)
{
    const int64_t most = INT64_C(1) << 30;
    const rg_status status = rg_padding_resolve(padding, window, at);
    if (status != RG_OK) {
        rg_error_prefix("%s: ", op);
        return status;
    }
    for (int i = 0; i < 2; i++) {
        const char *name = i == 0 ? "rows" : "columns";
        const int64_t image = window->transposed ? at->output[i] : window->source[i];
        RG_CHECK(window->source[i] >= 1, RG_INVALID_ARGUMENT, "%s: x has %lld %s", op,
                 (long long)window->source[i], name);
        RG_CHECK(at->before[i] >= -most && at->before[i] <= most && at->after[i] >= -most &&
                     at->after[i] <= most && image <= most &&
                     at->before[i] + image + at->after[i] <= most && window->stride[i] <= most,
                 RG_UNSUPPORTED,
                 "%s: an image of %lld %s with a window of %d, a stride of %d, a dilation of %d "
                 "and paddings of %lld and %lld covers more than 2^30",
                 op, (long long)image, name, window->window[i], window->stride[i],
                 window->dilation[i], (long long)at->before[i], (long long)at->after[i]);
    }
    return RG_OK;
}

rg_status rg_conv_result(const rg_tensor_desc *x, const rg_placement *at, int64_t channels,
                         const char *op, rg_tensor_desc *y)
{
    const int32_t row = rg_conv_row(x);
    int64_t dims[4] = { x->dims[0] };
    dims[row] = at->output[0];
    dims[row + 1] = at->output[1];
    dims[row + 2] = channels;
    *y = rg_tensor_desc_dense(x->dtype, x->rank, dims);
    char name[40];
    snprintf(name, sizeof name, "%s: y", op);
    return rg_shape_check(y, name, NULL);
}

/* ---- geometry ---- */

rg_conv_shape rg_conv_shape_of(const rg_window *window, const rg_placement *at,
                               const rg_tensor_desc *image, const rg_tensor_desc *windows,
                               int64_t groups)
{
    const int32_t row = rg_conv_row(image);
    rg_conv_shape s = { .images = row > 0 ? image->dims[0] : 1,
                        .groups = groups,
                        .in = image->dims[row + 2] / groups,
                        .out = windows->dims[row + 2] / groups };
    rg_conv_axis *const axes[2] = { &s.row, &s.column };
    for (int i = 0; i < 2; i++)
        *axes[i] = (rg_conv_axis){ .size = image->dims[row + i],
                                   .count = windows->dims[row + i],
                                   .window = window->window[i],
                                   .stride = window->stride[i],
                                   .dilation = window->dilation[i],
                                   .before = at->before[i] };
    s.x_dense = rg_conv_steps(image, s.x);
    s.y_dense = rg_conv_steps(windows, s.y);
    return s;
}

/* ---- strategies ---- */

static rg_dtype dtype_of(const rg_conv_pass *p)
{
    return p->kernel == RG_CONV_WEIGHTS ? p->x->desc.dtype : p->to->desc.dtype;
}

static bool takes_depthwise(const rg_call *call, const void *request)
{
    const rg_conv_pass *p = request;
    return rg_conv_depthwise_takes(call, &p->shape, dtype_of(p));
}

static rg_status record_depthwise(rg_call *call, const void *request)
{
    const rg_conv_pass *p = request;
    if (p->kernel == RG_CONV_WEIGHTS)
        return rg_conv_record_depthwise_weights(call, &p->shape, p->x, p->dy, p->dw, p->add);
    return rg_conv_record_depthwise(call, p->kernel == RG_CONV_DATA, p);
}

static bool takes_grouped(const rg_call *call, const void *request)
{
    const rg_conv_pass *p = request;
    return rg_conv_grouped_takes(call, &p->shape, dtype_of(p));
}

static rg_status record_grouped(rg_call *call, const void *request)
{
    const rg_conv_pass *p = request;
    if (p->kernel == RG_CONV_WEIGHTS)
        return rg_conv_record_grouped_weights(call, &p->shape, p->x, p->dy, p->dw, p->add);
    return rg_conv_record_grouped(call, p->kernel == RG_CONV_DATA, p);
}

static bool takes_panels(const rg_call *call, const void *request)
{
    const rg_conv_pass *p = request;
    return rg_conv_engine_takes(call, &p->shape, dtype_of(p));
}

static rg_status record_panels(rg_call *call, const void *request)
{
    const rg_conv_pass *p = request;
    if (p->kernel == RG_CONV_WEIGHTS)
        return rg_conv_engine_weights(call, &p->shape, p->x, p->dy, p->dw, p->add);
    return rg_conv_engine_record(call, p->kernel == RG_CONV_FORWARD, p);
}

static bool takes_any(const rg_call *call, const void *request)
{
    (void)call, (void)request;
    return true;
}

static rg_status record_any_weights(rg_call *call, const rg_conv_pass *p)
{
    const rg_conv_shape *s = &p->shape;
    const rg_dtype dtype = dtype_of(p);
    rg_conv_weights_args args = { .shape = *s, .add = p->add, .wide = p->dw->desc.dtype != dtype };
    rg_launch launch = { .kernel = RG_CONV_WEIGHTS,
                         .dtype = dtype,
                         RG_ARGS(args),
                         .scratch_at = RG_POINTER(args, scratch),
                         .tensors = { RG_BIND(args, x, p->x), RG_BIND(args, dy, p->dy),
                                      RG_BIND(args, dw, p->dw) } };
    rg_conv_set_cost(&launch, s->groups * s->out * s->row.window * s->column.window,
                     rg_move_bytes(p->x) + rg_move_bytes(p->dy), rg_conv_products(s));
    return rg_record(call, &launch);
}

static rg_status record_any(rg_call *call, const void *request)
{
    const rg_conv_pass *p = request;
    if (p->kernel == RG_CONV_WEIGHTS)
        return record_any_weights(call, p);
    const rg_dtype dtype = dtype_of(p);
    rg_conv_args args = { .shape = p->shape,
                          .has_b = p->b != NULL,
                          .has_z = p->z != NULL,
                          .b_step = p->b != NULL ? p->b->desc.strides[0] : 0,
                          .add = p->add };
    args.stream = !p->add && rg_call_streams(call, rg_move_bytes(p->to));
    if (p->z != NULL)
        args.z_dense = rg_conv_steps(&p->z->desc, args.z_step);
    if (p->neuron != NULL)
        args.neuron = (rg_conv_neuron){ (int32_t)p->neuron->kind,
                                        rg_neuron_numbers_of(p->neuron, dtype, false) };
    rg_launch launch = { .kernel = p->kernel,
                         .dtype = dtype,
                         RG_ARGS(args),
                         .scratch_at = RG_POINTER(args, scratch),
                         .tensors = { RG_BIND(args, from, p->from), RG_BIND(args, w, p->w),
                                      RG_BIND(args, b, p->b != NULL ? p->b : p->from),
                                      RG_BIND(args, to, p->to),
                                      RG_BIND(args, z, p->z != NULL ? p->z : p->to) } };
    const rg_conv_shape *s = &p->shape;
    const int64_t rows = p->kernel == RG_CONV_FORWARD ? s->row.count : s->row.size;
    rg_conv_set_cost(&launch, s->images * rows, rg_move_bytes(p->from) + rg_move_bytes(p->to),
                     rg_conv_products(s));
    return rg_record(call, &launch);
}

static const rg_strategy depthwise = { "depthwise", takes_depthwise, record_depthwise };
static const rg_strategy grouped = { "grouped", takes_grouped, record_grouped };
static const rg_strategy panels = { "panels", takes_panels, record_panels };
static const rg_strategy any = { "any", takes_any, record_any };

static const rg_strategy *const list[] = { &depthwise, &grouped, &panels, &any, NULL };
const rg_strategy *const *const rg_conv_strategies[] = { list, NULL };

rg_status rg_conv_record(const rg_call *call, const rg_conv_pass *p)
{
    rg_call own = *call;
    own.op = &rg_op_conv;
    return rg_strategy_run(&own, list, p);
}
