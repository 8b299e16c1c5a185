/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Runs of ONNX's poolings and of Resize that are more than one op. */
#include "operators/onnx_converters.h"
#include "operators/run.h"
#include "runtime/objects.h"

#include <retrograde/neuron.h>
#include <retrograde/pool.h>
#include <retrograde/reduce.h>
#include <retrograde/slice.h>
#include <retrograde/upsample.h>

#include <math.h>

/* y = (scale x)^c; |x|^c where `absolute`. */
static rg_status power(rg_run *run, rg_tensor *x, bool absolute, double scale, double c,
                       rg_tensor **y)
{
    rg_neuron_desc desc = rg_neuron_desc_default();
    *y = x;
    if (absolute) {
        desc.kind = RG_NEURON_ABSOLUTE;
        RG_TRY(rg_run_unary(run, &rg_op_neuron, &desc, x, y));
    }
    if (scale == 1 && c == 1)
        return RG_OK;
    desc.kind = RG_NEURON_POWER;
    desc.a = scale;
    desc.c = c;
    desc.has_a = desc.has_c = true;
    return rg_run_unary(run, &rg_op_neuron, &desc, *y, y);
}

static rg_status read_p(const rg_run *run, double *p)
{
    *p = (double)rg_onnx_int(&run->node, "p");
    RG_CHECK(*p >= 1, RG_INVALID_ARGUMENT, "%s: p must be 1 or more, not %g", run->node.type, *p);
    return RG_OK;
}

/* Y = (sum |X|^p)^(1/p): by the mean of the powers, with zeros outside of the image. */
rg_status rg_run_lp_pool(rg_run *run)
{
    double p;
    RG_TRY(read_p(run, &p));
    if (p == 2)
        return rg_run_op(run, rg_onnx_pool);
    rg_pool_desc *d = (rg_pool_desc *)run->call.desc;
    RG_TRY(rg_onnx_finish(&run->node, &run->call, rg_onnx_pool));
    d->kind = RG_POOL_AVERAGE;
    d->edge = RG_POOL_ZERO;
    rg_tensor *x, *y;
    RG_TRY(rg_run_arrange(run, run->in[0], RG_ONNX_IMAGE, &x));
    RG_TRY(power(run, x, true, 1, p, &x));
    RG_TRY(rg_run_unary(run, &rg_op_pool, d, x, &y));
    RG_TRY(power(run, y, false, (double)d->window[0] * d->window[1], 1 / p, &y));
    RG_TRY(rg_run_restore(run, y, RG_ONNX_IMAGE, &run->shapes[0], &y));
    return rg_run_give(run, 0, y);
}

rg_status rg_run_global_lp_pool(rg_run *run)
{
    const rg_tensor_desc *x = &run->shapes[0];
    rg_reduce_desc reduce = rg_reduce_desc_default();
    const int32_t first = run->node.nhwc ? 1 : 2;
    double p;
    rg_tensor *y;
    RG_TRY(read_p(run, &p));
    RG_CHECK(x->rank >= 3, RG_INVALID_ARGUMENT,
             "%s: X has rank %d, but must have rank 3 or more: (n, c, d…)", run->node.type,
             x->rank);
    reduce.keep_dims = true;
    reduce.dims_count = x->rank - 2;
    for (int32_t d = 0; d < x->rank - 2; d++)
        reduce.dims[d] = first + d;
    RG_TRY(power(run, run->in[0], true, 1, p, &y));
    RG_TRY(rg_run_unary(run, &rg_op_reduce, &reduce, y, &y));
    RG_TRY(power(run, y, false, 1, 1 / p, &y));
    return rg_run_give(run, 0, y);
}

/* ---- gradients of pooling ---- */

/* dX where X is not given: of `shape`, whose batch may be -1 for that of dY, or of the smallest
 * shape that gives this dY, which windows cover to its end. */
static rg_status source_shape(rg_run *run, const rg_pool_desc *d, rg_tensor_desc *shape)
{
    int64_t given[RG_ONNX_VALUES];
    const rg_tensor_desc *dy = &run->shapes[0];
    const int32_t count = rg_onnx_ints(&run->node, "shape", given), spatial = dy->rank - 2;
    *shape = *dy;
    if (count > 0) {
        RG_CHECK(count == dy->rank, RG_INVALID_ARGUMENT,
                 "%s: shape has %d numbers, but dY has rank %d", run->node.type, count, dy->rank);
        memcpy(shape->dims, given, (size_t)count * sizeof given[0]);
        shape->dims[0] = given[0] == -1 ? dy->dims[0] : given[0];
        *shape = rg_tensor_desc_dense(dy->dtype, dy->rank, shape->dims);
        return RG_OK;
    }
    const int64_t pads[] = { (int64_t)d->padding.top + d->padding.bottom,
                             (int64_t)d->padding.left + d->padding.right };
    for (int32_t axis = 2 - spatial; axis < 2; axis++) {
        const int32_t at = spatial + axis - 1 + !run->node.nhwc;
        RG_CHECK(
            d->padding.policy == RG_PADDING_EXPLICIT && d->padding.top >= 0, RG_INVALID_ARGUMENT,
            "%s: with auto_pad the shape of dX does not follow from dY; give X or the attribute "
            "shape, (n, c, d…)",
            run->node.type);
        const int64_t steps = (shape->dims[at] - 1) * d->stride[axis];
        shape->dims[at] =
            steps + (d->window[axis] - 1) * (int64_t)d->dilation[axis] + 1 - pads[axis];
        RG_CHECK(shape->dims[at] >= 0, RG_INVALID_ARGUMENT, "%s: dX would have %lld pixels",
                 run->node.type, (long long)shape->dims[at]);
    }
    *shape = rg_tensor_desc_dense(dy->dtype, dy->rank, shape->dims);
    return RG_OK;
}

rg_status rg_run_pool_gradient(rg_run *run)
{
    const int32_t last = run->call.input_count - 1; /* X */
    if (run->in[last] == NULL) {
        rg_onnx_call call = run->call;
        RG_TRY(rg_onnx_finish(&run->node, &call, rg_onnx_pool));
        RG_TRY(source_shape(run, (const rg_pool_desc *)call.desc, &run->shapes[last]));
        RG_TRY(rg_tensor_create(run->device, &run->shapes[last], &run->in[last]));
        RG_TRY(rg_run_keep(run, run->in[last]));
    }
    return rg_run_op(run, rg_onnx_pool);
}

/* ---- resize ---- */

/* With pytorch_half_pixel a result of one pixel along an axis is the first pixel: the others are
 * cut off. Sets *cut to that view of x. */
static rg_status cut_single(rg_run *run, rg_upsample_desc *d, rg_tensor *x, rg_tensor **cut,
                            bool *any)
{
    static const char *const grids[] = { "half_pixel", "pytorch_half_pixel",   "align_corners",
                                         "asymmetric", "half_pixel_symmetric", NULL };
    int32_t grid;
    int64_t start[RG_MAX_RANK] = { 0 }, length[RG_MAX_RANK];
    RG_TRY(rg_onnx_word(&run->node, "coordinate_transformation_mode", grids, &grid));
    memcpy(length, x->desc.dims, sizeof length);
    *any = false;
    *cut = x;
    for (int32_t axis = 0; axis < 2 && grid == 1; axis++) {
        const int64_t in = x->desc.dims[1 + axis];
        const double out =
            d->output[axis] > 0 ? (double)d->output[axis] : floor((double)in * d->scale[axis]);
        if (out != 1 || in == 1)
            continue;
        length[1 + axis] = 1;
        d->scale[axis] = 1;
        d->output[axis] = d->output[axis] > 0 ? 1 : 0;
        *any = true;
    }
    if (!*any)
        return RG_OK;
    RG_TRY(rg_tensor_slice(x, start, length, NULL, cut));
    return rg_run_keep(run, *cut);
}

rg_status rg_run_resize(rg_run *run)
{
    rg_upsample_desc *d = (rg_upsample_desc *)run->call.desc;
    rg_tensor *x, *y;
    bool any;
    RG_TRY(rg_onnx_finish(&run->node, &run->call, rg_onnx_resize));
    RG_TRY(rg_run_arrange(run, run->in[0], RG_ONNX_IMAGE, &x));
    RG_TRY(cut_single(run, d, x, &x, &any));
    RG_TRY(rg_run_unary(run, &rg_op_upsample, d, x, &y));
    RG_TRY(rg_run_restore(run, y, RG_ONNX_IMAGE, &run->shapes[0], &y));
    return rg_run_give(run, 0, y);
}

rg_status rg_run_resize_gradient(rg_run *run)
{
    rg_upsample_desc *d = (rg_upsample_desc *)run->call.desc;
    rg_tensor *x, *dy, *cut, *dx;
    bool any;
    RG_TRY(rg_onnx_finish(&run->node, &run->call, rg_onnx_resize));
    RG_TRY(rg_run_arrange(run, run->in[0], RG_ONNX_IMAGE, &dy));
    RG_TRY(rg_run_arrange(run, run->in[1], RG_ONNX_IMAGE, &x));
    RG_TRY(cut_single(run, d, x, &cut, &any));
    const rg_run_reads of_upsample = { .dy = &dy, .x = &cut, .wanted = 1 };
    RG_TRY(rg_run_gradient(run, &rg_op_upsample, d, &of_upsample, &dx));
    if (any) { /* the pixels that were cut off have no gradient */
        rg_slice_desc slice = rg_slice_desc_default();
        slice.length_count = x->desc.rank;
        memcpy(slice.length, cut->desc.dims, sizeof slice.length);
        const rg_run_reads of_slice = { .dy = &dx, .x = &x, .wanted = 1 };
        RG_TRY(rg_run_gradient(run, &rg_op_slice, &slice, &of_slice, &dx));
    }
    RG_TRY(rg_run_restore(run, dx, RG_ONNX_IMAGE, &run->shapes[1], &dx));
    return rg_run_give(run, 0, dx);
}
