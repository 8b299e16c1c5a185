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

/* ---- launches ---- */

rg_status rg_conv_record(const rg_call *call, int32_t kernel, const rg_conv_pass *p)
{
    rg_call own = *call;
    own.op = &rg_op_conv;
    const rg_dtype dtype = p->to->desc.dtype;
    if (rg_conv_depthwise_takes(&own, &p->shape, dtype))
        return rg_conv_record_depthwise(&own, kernel == RG_CONV_DATA, p);
    if (rg_conv_grouped_takes(&own, &p->shape, dtype))
        return rg_conv_record_grouped(&own, kernel == RG_CONV_DATA, p);
    if (rg_conv_engine_takes(&own, &p->shape, dtype))
        return rg_conv_engine_record(&own, kernel == RG_CONV_FORWARD, p);
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
    rg_launch launch = { .kernel = kernel,
                         .dtype = dtype,
                         RG_ARGS(args),
                         .scratch_at = RG_POINTER(args, scratch),
                         .tensors = { RG_BIND(args, from, p->from), RG_BIND(args, w, p->w),
                                      RG_BIND(args, b, p->b != NULL ? p->b : p->from),
                                      RG_BIND(args, to, p->to),
                                      RG_BIND(args, z, p->z != NULL ? p->z : p->to) } };
    const rg_conv_shape *s = &p->shape;
    const int64_t rows = kernel == RG_CONV_FORWARD ? s->row.count : s->row.size;
    rg_conv_set_cost(&launch, s->images * rows, rg_move_bytes(p->from) + rg_move_bytes(p->to),
                     rg_conv_products(s));
    return rg_record(&own, &launch);
}

rg_status rg_conv_record_weights(const rg_call *call, const rg_conv_shape *s, const rg_tensor *x,
                                 const rg_tensor *dy, const rg_tensor *dw, bool add)
{
    rg_call own = *call;
    own.op = &rg_op_conv;
    const rg_dtype dtype = x->desc.dtype;
    if (rg_conv_depthwise_takes(&own, s, dtype))
        return rg_conv_record_depthwise_weights(&own, s, x, dy, dw, add);
    if (rg_conv_grouped_takes(&own, s, dtype))
        return rg_conv_record_grouped_weights(&own, s, x, dy, dw, add);
    if (rg_conv_engine_takes(&own, s, dtype))
        return rg_conv_engine_weights(&own, s, x, dy, dw, add);
    rg_conv_weights_args args = { .shape = *s, .add = add, .wide = dw->desc.dtype != dtype };
    rg_launch launch = { .kernel = RG_CONV_WEIGHTS,
                         .dtype = dtype,
                         RG_ARGS(args),
                         .scratch_at = RG_POINTER(args, scratch),
                         .tensors = { RG_BIND(args, x, x), RG_BIND(args, dy, dy),
                                      RG_BIND(args, dw, dw) } };
    rg_conv_set_cost(&launch, s->groups * s->out * s->row.window * s->column.window,
                     rg_move_bytes(x) + rg_move_bytes(dy), rg_conv_products(s));
    return rg_record(&own, &launch);
}
