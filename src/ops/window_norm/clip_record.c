/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Results of spatial_norm and local_contrast that are a part of the image, or lie beyond it.
 *
 * With P, which cuts a region out of x or adds zeros around it, N, the normalization, and C, which
 * cuts the clip out of that region, y = C(N(P(x))). P and C are paddings, negative where they cut,
 * and the gradient goes back through all three. The region is the clip and all pixels of the image
 * that its windows see. */
#include "core/integer.h"
#include "ops/window_norm/box_record.h"

#include <retrograde/pad.h>

/* P and C, and the shape of the region. */
typedef struct region {
    rg_pad_desc from_x, to_y;
    rg_tensor_desc desc;
    bool is_x, is_y; /* the region is x, or y: there is nothing to cut or to add */
} region;

static region find_region(const rg_box_plan *plan, const rg_tensor_desc *x, const rg_tensor_desc *y)
{
    region r = { rg_pad_desc_default(), rg_pad_desc_default(), *x, true, true };
    for (int a = 0; a < 2; a++) {
        const int32_t d = x->rank - 3 + a;
        const int64_t before = plan->window[a] / 2, after = (plan->window[a] - 1) / 2;
        const int64_t size = x->dims[d], begin = plan->offset[a], end = begin + y->dims[d];
        const int64_t seen = rg_max(begin - before, 0), unseen = rg_min(end + after, size);
        const bool sees = seen < unseen; /* a pixel of the image */
        const int64_t first = sees ? rg_min(begin, seen) : begin;
        const int64_t last = sees ? rg_max(end, unseen) : end;
        r.desc.dims[d] = last - first;
        r.from_x.before[1 + a] = -first;
        r.from_x.after[1 + a] = last - size;
        r.to_y.before[1 + a] = first - begin;
        r.to_y.after[1 + a] = end - last;
        r.is_x &= first == 0 && last == size;
        r.is_y &= first == begin && last == end;
    }
    r.desc = rg_tensor_desc_dense(x->dtype, x->rank, r.desc.dims);
    return r;
}

static rg_call part_of(const rg_call *call, const rg_op *op, const void *desc)
{
    return (rg_call){ .op = op,
                      .desc = desc,
                      .commands = call->commands,
                      .inputs = 1,
                      .outputs = 1,
                      .gradients = 1 };
}

static rg_status record_pad(const rg_call *call, const rg_pad_desc *desc, const rg_tensor *x,
                            const rg_tensor *y)
{
    rg_call part = part_of(call, &rg_op_pad, desc);
    part.x[0] = x;
    part.y[0] = y;
    return rg_op_pad.forward(&part);
}

static rg_status record_pad_gradient(const rg_call *call, const rg_pad_desc *desc,
                                     const rg_tensor *dy, const rg_tensor *dx, uint64_t add)
{
    rg_call part = part_of(call, &rg_op_pad, desc);
    part.dy[0] = dy;
    part.dx[0] = dx;
    part.add = add;
    return rg_op_pad.gradient(&part);
}

/* The region of x: x itself, or *made, a temporary. */
static rg_status take_region(const rg_call *call, const region *r, rg_tensor **made,
                             const rg_tensor **x)
{
    *x = call->x[0];
    if (r->is_x)
        return RG_OK;
    RG_TRY(rg_tensor_create_temporary(call->commands, &r->desc, made));
    *x = *made;
    return record_pad(call, &r->from_x, call->x[0], *made);
}

rg_status rg_box_forward(rg_call *call, const rg_box_plan *plan)
{
    const region r = find_region(plan, &call->x[0]->desc, &call->y[0]->desc);
    if ((r.is_x && r.is_y) || rg_shape_count(&call->y[0]->desc) == 0)
        return rg_box_record(call, plan, false);
    rg_call part = part_of(call, call->op, call->desc);
    rg_tensor *x = NULL, *y = NULL;
    rg_status status = take_region(call, &r, &x, &part.x[0]);
    if (status == RG_OK && !r.is_y)
        status = rg_tensor_create_temporary(call->commands, &r.desc, &y);
    part.y[0] = r.is_y ? call->y[0] : y;
    if (status == RG_OK)
        status = rg_box_record(&part, plan, false);
    if (status == RG_OK && !r.is_y)
        status = record_pad(call, &r.to_y, y, call->y[0]);
    rg_tensor_destroy(x);
    rg_tensor_destroy(y);
    return status;
}

rg_status rg_box_gradient(rg_call *call, const rg_box_plan *plan)
{
    const region r = find_region(plan, &call->x[0]->desc, &call->dy[0]->desc);
    if (r.is_x && r.is_y)
        return rg_box_record(call, plan, true);
    rg_call part = part_of(call, call->op, call->desc);
    rg_tensor *x = NULL, *dy = NULL, *dx = NULL;
    rg_status status = take_region(call, &r, &x, &part.x[0]);
    if (status == RG_OK && !r.is_y)
        status = rg_tensor_create_temporary(call->commands, &r.desc, &dy);
    if (status == RG_OK && !r.is_x)
        status = rg_tensor_create_temporary(call->commands, &r.desc, &dx);
    if (status == RG_OK && !r.is_y)
        status = record_pad_gradient(call, &r.to_y, call->dy[0], dy, 0);
    part.dy[0] = r.is_y ? call->dy[0] : dy;
    part.dx[0] = r.is_x ? call->dx[0] : dx;
    part.add = r.is_x ? call->add : 0;
    if (status == RG_OK)
        status = rg_box_record(&part, plan, true);
    if (status == RG_OK && !r.is_x)
        status = record_pad_gradient(call, &r.from_x, dx, call->dx[0], call->add);
    rg_tensor_destroy(x);
    rg_tensor_destroy(dy);
    rg_tensor_destroy(dx);
    return status;
}
