/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Checking and recording, for conv and conv_transpose. */
#include "ops/conv/conv_record.h"
#include "core/integer.h"
#include "ops/ops.h"

#include <stdio.h>

/* ---- checks; `op` is the name ---- */

rg_status rg_conv_check_inputs(const rg_tensor_desc x[], bool bias, const char *op)
{
    char have[RG_SHAPE_TEXT], text[RG_SHAPE_TEXT];
    RG_CHECK(rg_dtype_is_data(x->dtype), RG_INVALID_ARGUMENT,
             "%s: x is %s; f32, f64, f16 and bf16 are supported", op, rg_dtype_name(x->dtype));
    RG_CHECK(x->rank == 3 || x->rank == 4, RG_INVALID_ARGUMENT,
             "%s: x has rank %d; it must be an image (h, w, c) or a batch (n, h, w, c)", op,
             x->rank);
    RG_CHECK(x->dims[x->rank - 1] > 0, RG_INVALID_ARGUMENT,
             "%s: x is %s and has no channels (its last dimension)", op,
             rg_shape_text(&x[0], have));
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

int32_t rg_conv_row(const rg_tensor_desc *x)
{
    return x->rank - 3;
}

int64_t rg_conv_groups(int32_t groups, const rg_tensor_desc *x)
{
    return groups > 0 ? groups : x->dims[x->rank - 1];
}

/* Steps (image, row, column, channel); returns whether channels are neighbours. */
static bool steps_of(const rg_tensor_desc *desc, int64_t steps[4])
{
    const int32_t row = rg_conv_row(desc);
    steps[0] = row > 0 ? desc->strides[0] : 0;
    for (int i = 0; i < 3; i++)
        steps[1 + i] = desc->strides[row + i];
    return steps[3] == 1 || desc->dims[row + 2] == 1;
}

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
    s.x_dense = steps_of(image, s.x);
    s.y_dense = steps_of(windows, s.y);
    return s;
}

/* ---- launches ---- */

rg_dtype rg_conv_dtype(const rg_conv_pass *p)
{
    return p->kernel == RG_CONV_WEIGHTS ? p->x->desc.dtype : p->from->desc.dtype;
}

double rg_conv_products(const rg_conv_shape *s)
{
    return (double)s->images * (double)(s->row.count * s->column.count) *
           (double)(s->row.window * s->column.window) * (double)(s->groups * s->in * s->out);
}

void rg_conv_set_cost(rg_launch *launch, int64_t units, int64_t bytes, double products)
{
    const double most = 0x1p60, work = products / 8 + (double)bytes, each = work / (double)units;
    launch->units = units;
    launch->bytes = (int64_t)(work < most ? work : most);
    launch->grain = each < 1 << 15 ? rg_max((int64_t)((1 << 15) / (each + 1)), 1) : 1;
}

rg_launch rg_conv_launch(const rg_conv_pass *p, int32_t kernel, const rg_tensor *w,
                         const void *args, size_t args_size)
{
    return (
        rg_launch){ .kernel = kernel,
                    .dtype = rg_conv_dtype(p),
                    .args = args,
                    .args_size = args_size,
                    .tensors = { [RG_POINTER_OF(rg_conv_args, from)] = p->from,
                                 [RG_POINTER_OF(rg_conv_args, w)] = w,
                                 [RG_POINTER_OF(rg_conv_args, b)] = p->b != NULL ? p->b : p->from,
                                 [RG_POINTER_OF(rg_conv_args, to)] = p->to,
                                 [RG_POINTER_OF(rg_conv_args, z)] = p->z != NULL ? p->z : p->to } };
}

void rg_conv_set_pass_cost(rg_launch *launch, const rg_conv_pass *p, int64_t units, double products)
{
    rg_conv_set_cost(launch, units, rg_move_bytes(p->from) + rg_move_bytes(p->to), products);
}

rg_conv_args rg_conv_args_of(const rg_call *call, const rg_conv_pass *p)
{
    rg_conv_args args = { .shape = p->shape,
                          .has_b = p->b != NULL,
                          .has_z = p->z != NULL,
                          .b_step = p->b != NULL ? p->b->desc.strides[0] : 0,
                          .add = p->add };
    args.stream = !p->add && rg_call_streams(call, rg_move_bytes(p->to));
    if (p->z != NULL)
        args.z_dense = steps_of(&p->z->desc, args.z_step);
    if (p->neuron != NULL)
        args.neuron = (rg_conv_neuron){ (int32_t)p->neuron->kind,
                                        rg_neuron_numbers_of(p->neuron, rg_conv_dtype(p), false) };
    return args;
}

rg_status rg_conv_temporary(const rg_call *call, rg_dtype dtype, double count, rg_tensor **made)
{
    RG_CHECK(count <= 0x1p55, RG_OUT_OF_MEMORY, "conv: a scratch of %g elements is too large",
             count);
    const int64_t dims[] = { (int64_t)count };
    const rg_tensor_desc desc = rg_tensor_desc_dense(dtype == RG_F64 ? RG_F64 : RG_F32, 1, dims);
    return rg_tensor_create_temporary(call->commands, &desc, made);
}

/* ---- partial sums of dw ---- */

rg_status rg_conv_partials(const rg_call *call, const rg_conv_pass *p,
                           const rg_conv_partial_sums *sums, rg_tensor **made)
{
    enum { SLACK = 16 }; /* elements: kernels store whole vectors */
    const rg_dtype dtype = rg_conv_dtype(p);
    const double reals_per_total = dtype == RG_F64 ? 1 : 2, count = (double)sums->slices;
    const double each = sums->has_totals ? 1 + reals_per_total : 1;
    return rg_conv_temporary(call, dtype, count * (double)sums->slice_step * each + SLACK, made);
}

/* The weights in the order of an array of partial sums; tensors: that, dw. */
static rg_walk walk_weights(const rg_conv_shape *s, const rg_conv_partial_sums *sums)
{
    const int64_t dims[5] = { s->groups, s->out, s->row.window, s->column.window, s->in };
    const int64_t steps[5] = { sums->group_step, sums->out_step, sums->tap_step * s->column.window,
                               sums->tap_step, sums->in_step };
    rg_tensor_desc partials = { .rank = 5 }, dw = { .rank = 5 };
    const rg_tensor_desc *const descs[] = { &partials, &dw };
    bool taken[5] = { false };
    for (int d = 0; d < 5; d++) {
        int next = -1; /* the largest step that is left */
        for (int i = 0; i < 5; i++)
            if (!taken[i] && (next < 0 || steps[i] > steps[next]))
                next = i;
        taken[next] = true;
        partials.dims[d] = dw.dims[d] = dims[next];
        partials.strides[d] = steps[next];
        dw.strides[d] = s->w[next];
    }
    return rg_walk_make(descs, 2, 0, 5);
}

rg_status rg_conv_record_join(rg_call *call, const rg_conv_pass *p,
                              const rg_conv_partial_sums *sums, const rg_tensor *partials)
{
    rg_conv_join_args args = { .lines = walk_weights(&p->shape, sums),
                               .width = 1,
                               .dw_first = p->shape.w_first,
                               .slices = sums->slices,
                               .slice_step = sums->slice_step,
                               .has_totals = sums->has_totals,
                               .add = p->add };
    int64_t steps[RG_WALK_TENSORS];
    if (args.lines.rank > 0 && args.lines.strides[0][args.lines.rank - 1] == 1) {
        args.width = rg_walk_take_inner(&args.lines, 2, steps);
        args.dw_step = steps[1];
    }
    rg_launch launch = { .kernel = RG_CONV_JOIN,
                         .dtype = p->dw->desc.dtype, /* which may be f32 beside f16 or bf16 */
                         RG_ARGS(args),
                         .tensors = { RG_BIND(args, partials, partials),
                                      RG_BIND(args, dw, p->dw) } };
    rg_conv_set_cost(&launch, args.lines.count * rg_ceil_div(args.width, RG_CONV_JOIN_WIDTH),
                     rg_move_bytes(partials), 0);
    return rg_record(call, &launch);
}

/* ---- any shape: for what no other strategy accepts, and on a GPU for all, where conv_cuda.cu
 * chooses further ---- */

static bool accepts_any(const rg_call *call, const void *request)
{
    (void)call, (void)request;
    return true;
}

static rg_status record_any_weights(rg_call *call, const rg_conv_pass *p)
{
    const rg_conv_shape *s = &p->shape;
    const rg_dtype dtype = rg_conv_dtype(p);
    const rg_conv_weights_args args = { .shape = *s,
                                        .add = p->add,
                                        .wide = p->dw->desc.dtype != dtype };
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
    const rg_conv_args args = rg_conv_args_of(call, p);
    const rg_conv_axis *row = &p->shape.row;
    rg_launch launch = rg_conv_launch(p, p->kernel, p->w, &args, sizeof args);
    launch.scratch_at = RG_POINTER(args, scratch);
    rg_conv_set_pass_cost(&launch, p,
                          p->shape.images * (p->kernel == RG_CONV_FORWARD ? row->count : row->size),
                          rg_conv_products(&p->shape));
    return rg_record(call, &launch);
}

const rg_strategy rg_conv_by_any = { "any", accepts_any, record_any };

/* ---- strategies ---- */

static const rg_strategy *const strategies[] = { RG_CONV_STRATEGIES(RG_STRATEGY_ENTRY) NULL };
const rg_strategy *const *const rg_conv_strategies[] = { strategies, NULL };

/* Kernels are conv's, whichever op asks. */
static rg_status record(const rg_call *call, const rg_conv_pass *p)
{
    rg_call own = *call;
    rg_conv_pass pass = *p;
    own.op = &rg_op_conv;
    pass.is_transpose = ((const rg_conv_kind *)call->op->own)->is_transpose;
    if (!rg_call_finds(&own, RG_CONV_DEPTHWISE, rg_conv_dtype(p))) /* a GPU chooses at launch */
        return rg_conv_by_any.record(&own, &pass);
    return rg_strategy_run(&own, strategies, &pass);
}

/* ---- forward and gradient of the ops ---- */

uint32_t rg_conv_reads(const rg_neuron_desc *neuron, bool bias)
{
    uint32_t bits = RG_READS_X | (uint32_t)RG_READS_X << 1;
    if (rg_fused_needs_z(neuron) && bias)
        bits |= (uint32_t)RG_READS_X << 2;
    return bits | rg_fused_reads(neuron);
}

static const rg_neuron_desc *neuron_of(const rg_call *call)
{
    const rg_conv_kind *kind = call->op->own;
    return (const void *)((const char *)call->desc + kind->neuron);
}

static bool has_bias(const rg_call *call)
{
    const rg_conv_kind *kind = call->op->own;
    return *(const bool *)((const char *)call->desc + kind->bias);
}

/* y, or with `neuron` NULL what the neuron is applied to. */
static rg_status record_forward(rg_call *call, const rg_tensor *y, const rg_tensor *z,
                                const rg_neuron_desc *neuron)
{
    const rg_conv_kind *kind = call->op->own;
    const rg_conv_pass pass = {
        .kernel = kind->is_transpose ? RG_CONV_DATA : RG_CONV_FORWARD,
        .from = call->x[0],
        .w = call->x[1],
        .b = has_bias(call) ? call->x[2] : NULL,
        .to = y,
        .z = z,
        .shape = kind->shape(call->desc, &call->x[0]->desc, &y->desc, &call->x[1]->desc),
        .neuron = neuron,
    };
    return record(call, &pass);
}

rg_status rg_conv_forward(rg_call *call)
{
    const rg_neuron_desc *neuron = neuron_of(call);
    return record_forward(call, call->y[0], rg_fused_z(call, neuron), neuron);
}

static rg_status make_z(rg_call *call, const rg_tensor *z)
{
    return record_forward(call, z, NULL, NULL);
}

/* dx, dw and db from g, the gradient of what the neuron is applied to. */
static rg_status record_gradients(rg_call *call, const rg_tensor *g)
{
    const rg_conv_kind *kind = call->op->own;
    const rg_tensor *const x = call->x[0], *const *const dx = call->dx;
    if (dx[0] != NULL) {
        const rg_conv_pass pass = {
            .kernel = kind->is_transpose ? RG_CONV_FORWARD : RG_CONV_DATA,
            .from = g,
            .w = call->x[1],
            .to = dx[0],
            .shape = kind->shape(call->desc, &dx[0]->desc, &g->desc, &call->x[1]->desc),
            .add = call->add & 1,
        };
        RG_TRY(record(call, &pass));
    }
    if (dx[1] != NULL) {
        const rg_conv_pass pass = {
            .kernel = RG_CONV_WEIGHTS,
            .x = kind->is_transpose ? g : x,
            .dy = kind->is_transpose ? x : g,
            .dw = dx[1],
            .shape = kind->shape(call->desc, &x->desc, &g->desc, &dx[1]->desc),
            .add = call->add >> 1 & 1,
        };
        RG_TRY(record(call, &pass));
    }
    if (has_bias(call) && dx[2] != NULL)
        RG_TRY(rg_fused_bias(call, g, dx[2], call->add >> 2 & 1));
    return RG_OK;
}

rg_status rg_conv_gradient(rg_call *call)
{
    return rg_fused_backward(call, neuron_of(call), make_z, record_gradients);
}
