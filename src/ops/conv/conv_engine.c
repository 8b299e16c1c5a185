/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Recording convolution on the contraction engine of a CPU. */
#include "ops/conv/conv_engine.h"
#include "core/integer.h"

bool rg_conv_engine_takes(const rg_call *call, const rg_conv_shape *s, rg_dtype dtype)
{
    return rg_conv_suits(s) && rg_call_finds(call, RG_CONV_ROWS, dtype);
}

/* The unit for pairs of bf16 that the device's kernels can use, or NULL. */
static const rg_pair_unit *pair_unit(const rg_call *call, rg_dtype dtype)
{
    return dtype == RG_BF16 && rg_call_finds(call, RG_CONV_PAIR_ROWS, dtype) ? rg_pair_unit_best()
                                                                             : NULL;
}

/* A temporary of `count` elements in the type that kernels compute in. */
static rg_status make_reals(const rg_call *call, rg_dtype dtype, double count, rg_tensor **made)
{
    RG_CHECK(count <= 0x1p55, RG_OUT_OF_MEMORY, "conv: a scratch of %g elements is too large",
             count);
    const int64_t dims[] = { (int64_t)count };
    const rg_tensor_desc desc = rg_tensor_desc_dense(dtype == RG_F64 ? RG_F64 : RG_F32, 1, dims);
    return rg_tensor_create_temporary(call->commands, &desc, made);
}

/* ---- between image and windows ---- */

static rg_conv_rows_args rows_of(const rg_call *call, const rg_conv_pass *p, bool forward)
{
    const rg_conv_shape *s = &p->shape;
    rg_conv_rows_args k = { .images = s->images,
                            .groups = s->groups,
                            .depth = forward ? s->in : s->out,
                            .width = forward ? s->out : s->in,
                            .has_b = p->b != NULL,
                            .has_z = p->z != NULL,
                            .b_step = p->b != NULL ? p->b->desc.strides[0] : 0,
                            .add = p->add };
    memcpy(k.from_step, forward ? s->x : s->y, sizeof k.from_step);
    memcpy(k.to_step, forward ? s->y : s->x, sizeof k.to_step);
    k.stream = !p->add && rg_call_streams(call, rg_move_bytes(p->to));
    if (p->z != NULL)
        rg_conv_steps(&p->z->desc, k.z_step);
    if (p->neuron != NULL)
        k.neuron = (rg_conv_neuron){ (int32_t)p->neuron->kind,
                                     rg_neuron_numbers_of(p->neuron, p->to->desc.dtype, false) };
    return k;
}

static rg_status record_pack(rg_call *call, const rg_conv_pass *p, const rg_conv_rows_args *k,
                             const rg_tensor *panels, bool forward)
{
    const rg_conv_shape *s = &p->shape;
    const int64_t taps = k->row.taps * k->column.taps;
    rg_conv_pack_args args = { .row = k->row,
                               .column = k->column,
                               .depth = k->depth,
                               .width = k->width,
                               .panel_count = k->panel_count,
                               .units = k->groups * k->panel_count * taps,
                               .w_offset = s->w_first,
                               .depths = k->depths };
    memcpy(args.w_step, s->w, sizeof args.w_step);
    if (!forward) {
        args.w_step[1] = s->w[4];
        args.w_step[4] = s->w[1];
    }
    rg_launch launch = { .kernel = k->depths.pixel > 0 ? RG_CONV_PAIR_PACK : RG_CONV_PACK,
                         .dtype = p->w->desc.dtype,
                         RG_ARGS(args),
                         .tensors = { RG_BIND(args, w, p->w), RG_BIND(args, panels, panels) } };
    rg_conv_set_cost(&launch, args.units, args.units * k->depth * RG_CONV_PANEL * 8, 0);
    return args.units > 0 ? rg_record(call, &launch) : RG_OK;
}

/* One launch: all outputs of k->row and k->column. */
static rg_status record_rows(rg_call *call, const rg_conv_pass *p, rg_conv_rows_args *k,
                             bool forward, double products)
{
    if (k->row.outputs == 0 || k->column.outputs == 0)
        return RG_OK;
    const rg_dtype dtype = p->to->desc.dtype;
    const int64_t results = k->row.phases * k->column.phases * k->width;
    const rg_pair_unit *pairs = rg_conv_pairs_suit_rows(k) ? pair_unit(call, dtype) : NULL;
    if (pairs != NULL)
        k->depths = rg_conv_depth_pieces_of(&k->column, k->depth);
    k->panel_count = rg_ceil_div(results, RG_CONV_PANEL);
    const double taps = (double)(k->row.taps * k->column.taps); /* and a flag each */
    const double depth =
        pairs != NULL ? (double)(k->row.taps * k->depths.row) / 2 : taps * (double)k->depth;
    const double count = (double)(k->groups * k->panel_count) * (depth * RG_CONV_PANEL + taps);
    rg_tensor *panels;
    RG_TRY(make_reals(call, dtype, count + 1, &panels));
    rg_status status = record_pack(call, p, k, panels, forward);
    rg_conv_fold_stride(&k->row, &k->from_first, &k->from_step[1]);
    rg_conv_fold_stride(&k->column, &k->from_first, &k->from_step[2]);
    k->inside = rg_conv_is_inside(&k->column);
    rg_conv_join_rows(k);
    if (pairs != NULL)
        rg_conv_cut_pairs(k, pairs->tall);
    else
        rg_conv_cut_rows(k, dtype == RG_F64 ? 8 : 4);
    rg_launch launch = { .kernel = pairs != NULL ? RG_CONV_PAIR_ROWS : RG_CONV_ROWS,
                         .dtype = dtype,
                         RG_ARGS(*k),
                         .tensors = { RG_BIND(*k, from, p->from), RG_BIND(*k, panels, panels),
                                      RG_BIND(*k, b, p->b != NULL ? p->b : p->from),
                                      RG_BIND(*k, to, p->to),
                                      RG_BIND(*k, z, p->z != NULL ? p->z : p->to) },
                         .thread_scratch = (size_t)k->scratch_bytes,
                         .thread_scratch_at = RG_POINTER(*k, thread_scratch) };
    rg_conv_set_cost(&launch, k->images * k->groups * k->row.blocks * k->column.blocks,
                     rg_move_bytes(p->from) + rg_move_bytes(p->to), products);
    if (status == RG_OK)
        status = rg_record(call, &launch);
    rg_tensor_destroy(panels);
    return status;
}

rg_status rg_conv_engine_record(rg_call *call, bool forward, const rg_conv_pass *p)
{
    const rg_conv_shape *s = &p->shape;
    const rg_conv_rows_args all = rows_of(call, p, forward);
    const bool joins = !forward && rg_conv_joins_phases(s);
    const int64_t down = forward || joins ? 1 : s->row.stride;
    const int64_t across = forward || joins ? 1 : s->column.stride;
    for (int64_t r = 0; r < down * across; r++) {
        rg_conv_rows_args k = all;
        k.row = forward ? rg_conv_forward_axis(&s->row)
                : joins ? rg_conv_phases_axis(&s->row)
                        : rg_conv_phase_axis(&s->row, r / across);
        k.column = forward ? rg_conv_forward_axis(&s->column)
                   : joins ? rg_conv_phases_axis(&s->column)
                           : rg_conv_phase_axis(&s->column, r % across);
        RG_TRY(record_rows(call, p, &k, forward, rg_conv_products(s) / (double)(down * across)));
    }
    return RG_OK;
}

/* ---- weights ---- */

static rg_status record_join(rg_call *call, const rg_conv_join_args *join, const rg_tensor *parts,
                             const rg_tensor *dw)
{
    const rg_conv_shape *s = &join->shape;
    rg_launch launch = { .kernel = RG_CONV_JOIN,
                         .dtype = dw->desc.dtype, /* which may be f32 beside f16 or bf16 */
                         RG_ARGS(*join),
                         .tensors = { RG_BIND(*join, parts, parts), RG_BIND(*join, dw, dw) } };
    rg_conv_set_cost(&launch, s->groups * s->out, join->slices * s->groups * join->group_step * 4,
                     0);
    return rg_record(call, &launch);
}

/* Both sides of some images, and their parts. */
static rg_status record_pair_parts(rg_call *call, rg_conv_pair_parts_args *k, const rg_tensor *x,
                                   const rg_tensor *dy, const rg_tensor *sides,
                                   const rg_tensor *parts)
{
    const rg_conv_shape *s = &k->shape;
    const int64_t left = s->images - k->image, images = left < k->images ? left : k->images;
    const double share = (double)images / (double)s->images;
    const int64_t bytes = (int64_t)(share * (double)(rg_move_bytes(x) + rg_move_bytes(dy)));
    const rg_conv_sides_args first = {
        .shape = *s, .at = k->at, .image = k->image, .images = k->images
    };
    rg_launch launch = { .kernel = RG_CONV_PAIR_SIDES,
                         .dtype = x->desc.dtype,
                         RG_ARGS(first),
                         .tensors = { RG_BIND(first, x, x), RG_BIND(first, dy, dy),
                                      RG_BIND(first, sides, sides) } };
    rg_conv_set_cost(&launch, images * s->groups * (k->at.panels + k->at.lines), 2 * bytes, 0);
    RG_TRY(rg_record(call, &launch));
    rg_launch last = { .kernel = RG_CONV_PAIR_PARTS,
                       .dtype = x->desc.dtype,
                       RG_ARGS(*k),
                       .tensors = { RG_BIND(*k, x, x), RG_BIND(*k, dy, dy),
                                    RG_BIND(*k, sides, sides), RG_BIND(*k, parts, parts) } };
    rg_conv_set_cost(&last, k->slices * s->groups * k->splits * k->at.panels, bytes,
                     share * rg_conv_products(s));
    return rg_record(call, &last);
}

static rg_status record_pair_weights(rg_call *call, const rg_conv_shape *s, const rg_tensor *x,
                                     const rg_tensor *dy, const rg_tensor *dw, bool add)
{
    rg_conv_pair_parts_args k = { .shape = *s };
    rg_conv_cut_pair_weights(&k);
    const double count = rg_conv_parts_size(s, k.slices, k.group_step, k.has_totals, 4);
    const double size = (double)k.images * rg_conv_sides_size(s, &k.at) / 2;
    rg_tensor *parts, *sides;
    RG_TRY(make_reals(call, RG_BF16, count, &parts));
    rg_status status = make_reals(call, RG_BF16, size, &sides);
    if (status != RG_OK) {
        rg_tensor_destroy(parts);
        return status;
    }
    double pending = 0; /* elements of k in the block of a slice */
    for (; status == RG_OK && k.image < s->images; k.image += k.images) {
        pending += (double)rg_ceil_div(k.images, k.slices) * (double)k.at.count;
        k.ends_block = k.has_totals && (pending >= RG_SUM_BLOCK || k.image + k.images >= s->images);
        status = record_pair_parts(call, &k, x, dy, sides, parts);
        pending = k.ends_block ? 0 : pending;
        k.add = true;
        k.add_totals |= k.ends_block;
    }
    const rg_conv_join_args join = {
        .shape = *s,
        .slices = k.slices,
        .out_step = k.out_step,
        .tap_step = k.tap_step,
        .in_step = 1,
        .group_step = k.group_step,
        .has_totals = k.has_totals,
        .add = add,
    };
    if (status == RG_OK)
        status = record_join(call, &join, parts, dw);
    rg_tensor_destroy(sides);
    rg_tensor_destroy(parts);
    return status;
}

rg_status rg_conv_engine_weights(rg_call *call, const rg_conv_shape *s, const rg_tensor *x,
                                 const rg_tensor *dy, const rg_tensor *dw, bool add)
{
    const rg_dtype dtype = x->desc.dtype;
    if (pair_unit(call, dtype) != NULL && rg_conv_pairs_suit_weights(s))
        return record_pair_weights(call, s, x, dy, dw, add);
    rg_conv_parts_args k = { .shape = *s };
    const int64_t element = dtype == RG_F64 ? 8 : 4;
    rg_conv_cut_weights(&k, element);
    const double count = rg_conv_parts_size(s, k.slices, k.group_step, k.has_totals, element);
    rg_tensor *parts;
    RG_TRY(make_reals(call, dtype, count + 16, &parts));
    rg_launch launch = { .kernel = RG_CONV_PARTS,
                         .dtype = dtype,
                         RG_ARGS(k),
                         .tensors = { RG_BIND(k, x, x), RG_BIND(k, dy, dy),
                                      RG_BIND(k, parts, parts) },
                         .thread_scratch = (size_t)k.scratch_bytes,
                         .thread_scratch_at = RG_POINTER(k, thread_scratch) };
    rg_conv_set_cost(&launch, k.slices * s->groups * k.splits, rg_move_bytes(x) + rg_move_bytes(dy),
                     rg_conv_products(s));
    rg_status status = rg_record(call, &launch);
    const rg_conv_join_args join = {
        .shape = *s,
        .slices = k.slices,
        .out_step = k.out_step,
        .tap_step = k.tap_step,
        .in_step = k.in_step,
        .group_step = k.group_step,
        .has_totals = k.has_totals,
        .add = add,
    };
    if (status == RG_OK)
        status = record_join(call, &join, parts, dw);
    rg_tensor_destroy(parts);
    return status;
}
