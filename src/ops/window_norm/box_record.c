/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* What spatial_norm and local_contrast have in common when they are recorded. */
#include "ops/window_norm/box_record.h"
#include "core/integer.h"

rg_status rg_box_shapes(const rg_box_plan *plan, const rg_tensor_desc *x, rg_tensor_desc *y)
{
    RG_CHECK(rg_dtype_is_data(x->dtype), RG_INVALID_ARGUMENT,
             "%s: x is %s; f32, f64, f16 and bf16 are supported", plan->op,
             rg_dtype_name(x->dtype));
    RG_CHECK(x->rank == 3 || x->rank == 4, RG_INVALID_ARGUMENT,
             "%s: x has rank %d; it must be an image (h, w, c) or a batch (n, h, w, c)", plan->op,
             x->rank);
    *y = *x;
    for (int a = 0; a < 2; a++) {
        if (plan->output[a] > 0)
            y->dims[x->rank - 3 + a] = plan->output[a];
    }
    *y = rg_tensor_desc_dense(x->dtype, x->rank, y->dims);
    return rg_shape_check(y, plan->op, NULL);
}

uint32_t rg_box_reads(const void *desc)
{
    (void)desc;
    return RG_READS_X;
}

bool rg_box_joins(const void *desc, const rg_tensor_desc x[])
{
    (void)desc;
    return x->rank == 4;
}

/* Channels of a strip: so many that the scratch of a unit stays in the L2 cache, in whole cache
 * lines, at least one. Then rows of a strip: whole images, unless these are too few units. */
static void cut(rg_box_shape *s, int kinds, bool gradient, int64_t real)
{
    enum {
        L2_BYTES = 384 << 10,
        MIN_CHANNELS = 16,
        WANTED_STRIPS = 32
    }; /* bytes, channels, strips */
    s->block = s->channels;
    while (s->block > MIN_CHANNELS) {
        const rg_box_lines lines = rg_box_lines_of(s);
        if (rg_box_reals(&lines, kinds, gradient) * real <= L2_BYTES)
            break;
        s->block = rg_round_up(s->block / 2, MIN_CHANNELS);
    }
    s->blocks = rg_ceil_div(s->channels, s->block);
    const int64_t whole = s->images * s->blocks, least = 8 * s->row.width;
    const bool direct = s->row.width <= RG_SPAN_DIRECT;
    s->bands = direct && whole < WANTED_STRIPS
                   ? rg_clamp(WANTED_STRIPS / whole, 1, s->row.size / least)
                   : 1;
    s->bands = rg_clamp(s->bands, 1, s->row.size);
    s->band = rg_ceil_div(s->row.size, s->bands);
    s->bands = rg_ceil_div(s->row.size, s->band);
}

/* Cuts tensors of one shape into strips, and these into units. */
static void lay_out(const rg_box_plan *plan, bool gradient, rg_box_shape *s, rg_launch *launch)
{
    enum { UNITS = 32, SCRATCH_BYTES = 64 << 20 }; /* unless one unit needs more */
    const rg_tensor_desc *first = &launch->tensors[0]->desc;
    const int32_t row = first->rank - 3;
    s->images = row > 0 ? first->dims[0] : 1;
    s->channels = first->dims[row + 2];
    s->row = rg_span_make(first->dims[row], plan->window[0], false);
    s->column = rg_span_make(first->dims[row + 1], plan->window[1], false);
    s->dense = true;
    for (int t = 0; t < RG_BOX_TENSORS; t++) {
        const rg_tensor_desc *desc = &launch->tensors[t]->desc;
        s->step[t][0] = row > 0 ? desc->strides[0] : 0;
        for (int i = 0; i < 3; i++)
            s->step[t][1 + i] = desc->strides[row + i];
        s->dense &= s->step[t][3] == 1 || s->channels == 1;
    }
    const int64_t real = first->dtype == RG_F64 ? 8 : 4;
    cut(s, plan->kinds, gradient, real);
    const rg_box_lines lines = rg_box_lines_of(s);
    s->scratch_bytes = rg_box_reals(&lines, plan->kinds, gradient) * real;
    const rg_box_plane plane = rg_box_plane_of(s, plan->kinds);
    const int64_t wide = (plane.values + plane.prefix + plane.sums + plane.kept + 64) * real;
    if (rg_box_is_wide(s) && s->scratch_bytes < wide)
        s->scratch_bytes = wide / RG_ALIGNMENT * RG_ALIGNMENT;
    s->units = rg_clamp(s->images * s->blocks * s->bands, 1,
                        rg_clamp(SCRATCH_BYTES / s->scratch_bytes, 1, UNITS));
    launch->units = s->units;
    launch->scratch = (size_t)(s->units * s->scratch_bytes);
}

rg_status rg_box_record(rg_call *call, const rg_box_plan *plan, bool gradient)
{
    const rg_tensor *x = call->x[0], *dy = gradient ? call->dy[0] : x;
    const rg_tensor *out = gradient ? call->dx[0] : call->y[0];
    const int64_t bytes = rg_shape_count(&x->desc) * (int64_t)rg_dtype_size(x->desc.dtype);
    rg_box_args args = { .numbers = plan->numbers };
    rg_launch launch = { .tensors = { RG_BIND(args, dy, dy), RG_BIND(args, x, x),
                                      RG_BIND(args, out, out) },
                         .kernel = gradient ? RG_BOX_GRADIENT : RG_BOX_FORWARD,
                         .dtype = x->desc.dtype,
                         RG_ARGS(args),
                         .bytes = bytes * (gradient ? 3 : 2),
                         .scratch_at = RG_POINTER(args, scratch) };
    rg_box_shape *const s = &args.shape;
    if (bytes > 0) /* otherwise no units: nothing is recorded */
        lay_out(plan, gradient, s, &launch);
    const double count = rg_box_count(plan->window);
    const double met = (double)s->row.width * (double)s->column.width;
    args.numbers.mean = 1 / count;
    args.numbers.inside = met / count;
    args.numbers.outside = (count - met) / count;
    s->add = gradient && call->add & 1;
    s->stream = !s->add && rg_call_streams(call, bytes);
    return rg_record(call, &launch);
}
