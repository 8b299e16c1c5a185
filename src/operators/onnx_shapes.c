/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Converters of ONNX's operators that move, cut or reduce: Reshape, Slice, Concat, Pad, Resize,
 * Reduce…. */
#include "operators/onnx_converters.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <retrograde/concat.h>
#include <retrograde/pad.h>
#include <retrograde/reduce.h>
#include <retrograde/reshape.h>
#include <retrograde/slice.h>
#include <retrograde/transpose.h>
#include <retrograde/upsample.h>

rg_status rg_onnx_reshape(const rg_onnx_node *node, rg_onnx_call *call)
{
    rg_reshape_desc *d = (rg_reshape_desc *)call->desc;
    int64_t shape[RG_ONNX_VALUES];
    const int32_t count = rg_onnx_ints(node, "shape", shape);
    RG_CHECK(rg_onnx_given(node, "shape"), RG_INVALID_ARGUMENT, "%s: shape is missing", node->type);
    RG_CHECK(count <= RG_MAX_RANK, RG_UNSUPPORTED,
             "%s: at most %d dimensions are supported, not %d", node->type, RG_MAX_RANK, count);
    d->dims_count = count;
    memcpy(d->dims, shape, (size_t)count * sizeof shape[0]);
    d->zero_keeps = rg_onnx_int(node, "allowzero") == 0;
    return RG_OK;
}

rg_status rg_onnx_transpose(const rg_onnx_node *node, rg_onnx_call *call)
{
    rg_transpose_desc *d = (rg_transpose_desc *)call->desc;
    int64_t order[RG_ONNX_VALUES];
    const int32_t count = rg_onnx_ints(node, "perm", order);
    RG_CHECK(count <= RG_MAX_RANK, RG_INVALID_ARGUMENT, "%s: perm has %d numbers", node->type,
             count);
    d->order_count = count;
    memcpy(d->order, order, (size_t)count * sizeof order[0]);
    return RG_OK;
}

static int64_t clamp(int64_t value, int64_t low, int64_t high)
{
    return value < low ? low : value > high ? high : value;
}

/* One axis of n elements. A negative step goes down from the start: the slice has the same elements
 * with a step upwards. */
static void slice_axis(rg_slice_desc *d, int64_t axis, int64_t n, int64_t start, int64_t end,
                       int64_t step)
{
    const bool down = step < 0;
    const int64_t low = down ? -1 : 0, high = down ? n - 1 : n, by = down ? -step : step;
    const int64_t first = clamp(start < 0 ? start + n : start, down ? 0 : low, high);
    const bool open = end >= (int64_t)1 << 62 || end == INT32_MAX; /* as None in Python */
    const int64_t last =
        open ? (down ? low : high) : clamp(end < 0 && end >= -n ? end + n : end, low, high);
    const int64_t apart = down ? first - last : last - first;
    d->length[axis] = apart > 0 && n > 0 ? (apart - 1) / by + 1 : 0;
    d->start[axis] = down ? first - (d->length[axis] - 1) * by : first;
    if (d->length[axis] == 0)
        d->start[axis] = 0;
    d->step[axis] = by;
}

/* Slice: data starts ends axes steps. SliceGrad: dY shape starts ends axes steps, where `shape` is
 * that of the source. */
rg_status rg_onnx_slice_any(const rg_onnx_node *node, rg_onnx_call *call, uint32_t *backwards)
{
    rg_slice_desc *d = (rg_slice_desc *)call->desc;
    int64_t starts[RG_ONNX_VALUES], ends[RG_ONNX_VALUES], axes[RG_ONNX_VALUES],
        steps[RG_ONNX_VALUES], shape[RG_ONNX_VALUES];
    const int32_t count = rg_onnx_ints(node, "starts", starts);
    const int32_t axes_count = rg_onnx_ints(node, "axes", axes);
    const int32_t steps_count = rg_onnx_ints(node, "steps", steps);
    int32_t rank = rg_onnx_rank(node, 0);
    RG_CHECK(count > 0 && rg_onnx_ints(node, "ends", ends) == count, RG_INVALID_ARGUMENT,
             "%s: starts and ends are required, with as many numbers each", node->type);
    RG_CHECK((axes_count == 0 || axes_count == count) && (steps_count == 0 || steps_count == count),
             RG_INVALID_ARGUMENT, "%s: axes and steps must have %d numbers, as starts has",
             node->type, count);
    RG_CHECK(rank >= 0, RG_INVALID_ARGUMENT, "%s: the shape of data must be known", node->type);
    memcpy(shape, node->inputs[0].dims, (size_t)rank * sizeof shape[0]);
    if (call->gradient)
        RG_CHECK(rg_onnx_ints(node, "shape", shape) == rank, RG_INVALID_ARGUMENT,
                 "%s: shape must have %d numbers, as many as dY has dimensions", node->type, rank);
    d->start_count = d->length_count = d->step_count = rank;
    for (int32_t i = 0; i < rank; i++) {
        RG_CHECK(shape[i] >= 0, RG_INVALID_ARGUMENT, "%s: dimension %d of shape is %lld",
                 node->type, i, (long long)shape[i]);
        d->start[i] = 0;
        d->length[i] = shape[i];
        d->step[i] = 1;
    }
    for (int32_t i = 0; i < count; i++) {
        int64_t axis;
        RG_TRY(rg_onnx_axis(node, "an axis", axes_count > 0 ? axes[i] : i, rank, &axis));
        const int64_t step = steps_count > 0 ? steps[i] : 1, n = shape[axis];
        RG_CHECK(step != 0 && step >= -INT64_MAX, RG_INVALID_ARGUMENT,
                 "%s: a step must not be %lld", node->type, (long long)step);
        *backwards |= (uint32_t)(step < 0) << axis;
        slice_axis(d, axis, n, starts[i], ends[i], step);
    }
    return RG_OK;
}

rg_status rg_onnx_slice(const rg_onnx_node *node, rg_onnx_call *call)
{
    uint32_t backwards = 0;
    RG_TRY(rg_onnx_slice_any(node, call, &backwards));
    RG_CHECK(backwards == 0, RG_UNSUPPORTED, "%s: a step must be 1 or more here", node->type);
    return RG_OK;
}

rg_status rg_onnx_concat(const rg_onnx_node *node, rg_onnx_call *call)
{
    rg_concat_desc *d = (rg_concat_desc *)call->desc;
    int32_t sources = 0;
    while (sources < node->input_count && rg_onnx_has(node, sources))
        sources++;
    RG_CHECK(rg_onnx_given(node, "axis"), RG_INVALID_ARGUMENT, "%s: the attribute axis is required",
             node->type);
    RG_CHECK(sources >= 1, RG_INVALID_ARGUMENT, "%s: the first input is missing", node->type);
    for (int32_t i = sources; i < node->input_count; i++)
        RG_CHECK(!rg_onnx_has(node, i), RG_INVALID_ARGUMENT, "%s: inputs%d is missing", node->type,
                 sources);
    d->sources = sources;
    return rg_onnx_axis(node, "axis", rg_onnx_int(node, "axis"), rg_onnx_rank(node, 0), &d->axis);
}

rg_status rg_onnx_read_pads(const rg_onnx_node *node, rg_onnx_call *call, rg_onnx_pads *p)
{
    static const int64_t MOST_PADDED = (int64_t)1 << 48;
    static const char *const modes[] = { "constant", "reflect", "edge", "wrap", NULL };
    static const rg_pad_mode kinds[] = { RG_PAD_CONSTANT, RG_PAD_MIRROR, RG_PAD_CLAMP,
                                         RG_PAD_CONSTANT };
    rg_pad_desc *d = (rg_pad_desc *)call->desc;
    int32_t mode;
    int64_t pads[RG_ONNX_VALUES], axes[RG_ONNX_VALUES];
    const int32_t rank = rg_onnx_rank(node, 0), given = rg_onnx_ints(node, "axes", axes);
    RG_TRY(rg_onnx_word(node, "mode", modes, &mode));
    RG_CHECK(rank >= 1, RG_UNSUPPORTED, "%s: %s has rank %d; it must be 1 or more", node->type,
             call->inputs[0].name, rank);
    const int32_t count = given > 0 ? given : rank;
    RG_CHECK(rg_onnx_ints(node, "pads", pads) == 2 * count, RG_INVALID_ARGUMENT,
             "%s: pads must have %d numbers: what to add before and after each of %d dimensions",
             node->type, 2 * count, count);
    *p = (rg_onnx_pads){ .rank = rank, .wraps = mode == 3 };
    d->mode = kinds[mode];
    d->value = mode == 0 ? rg_onnx_float(node, "constant_value") : 0;
    for (int32_t i = 0; i < 2 * count; i++)
        RG_CHECK(pads[i] >= -MOST_PADDED && pads[i] <= MOST_PADDED, RG_INVALID_ARGUMENT,
                 "%s: %lld is out of range for pads", node->type, (long long)pads[i]);
    for (int32_t i = 0; i < count; i++) {
        int64_t axis;
        RG_TRY(rg_onnx_axis(node, "an axis", given > 0 ? axes[i] : i, rank, &axis));
        p->before[axis] = pads[i];
        p->after[axis] = pads[count + i];
    }
    return RG_OK;
}

/* Up to four dimensions, which pad has as (n, h, w, c). */
rg_status rg_onnx_pad(const rg_onnx_node *node, rg_onnx_call *call)
{
    rg_pad_desc *d = (rg_pad_desc *)call->desc;
    rg_onnx_pads p;
    RG_TRY(rg_onnx_read_pads(node, call, &p));
    RG_CHECK(!p.wraps && p.rank <= 4, RG_UNSUPPORTED,
             "%s: with the mode wrap or a rank above 4 it needs more than one op", node->type);
    for (int32_t i = 0; i < p.rank; i++) {
        d->before[4 - p.rank + i] = p.before[i];
        d->after[4 - p.rank + i] = p.after[i];
    }
    return RG_OK;
}

/* ReduceSum, ReduceMean, …: no axes are all of them, or none with noop_with_empty_axes. */
rg_status rg_onnx_reduce(const rg_onnx_node *node, rg_onnx_call *call)
{
    rg_reduce_desc *d = (rg_reduce_desc *)call->desc;
    int64_t axes[RG_ONNX_VALUES];
    const int32_t count = rg_onnx_ints(node, "axes", axes), rank = rg_onnx_rank(node, 0);
    d->keep_dims = rg_onnx_int(node, "keepdims") != 0;
    RG_CHECK(count > 0 || rg_onnx_int(node, "noop_with_empty_axes") == 0, RG_UNSUPPORTED,
             "%s: without axes, noop_with_empty_axes makes it a copy, which is not this op",
             node->type);
    RG_CHECK(count <= RG_MAX_RANK, RG_INVALID_ARGUMENT, "%s: there are more axes than dimensions",
             node->type);
    d->dims_count = count;
    for (int32_t i = 0; i < count; i++) {
        int64_t dimension;
        if (rank >= 0)
            RG_TRY(rg_onnx_axis(node, "an axis", axes[i], rank, &dimension));
        d->dims[i] = axes[i];
    }
    return RG_OK;
}

/* Without select_last_index, which the run takes care of. */
rg_status rg_onnx_arg_reduce_any(const rg_onnx_node *node, rg_onnx_call *call)
{
    rg_reduce_desc *d = (rg_reduce_desc *)call->desc;
    const int32_t rank = rg_onnx_rank(node, 0);
    int64_t dimension;
    d->keep_dims = rg_onnx_int(node, "keepdims") != 0;
    d->dims_count = 1;
    d->dims[0] = rg_onnx_int(node, "axis");
    return rank < 0 ? RG_OK : rg_onnx_axis(node, "axis", d->dims[0], rank, &dimension);
}

rg_status rg_onnx_arg_reduce(const rg_onnx_node *node, rg_onnx_call *call)
{
    RG_CHECK(rg_onnx_int(node, "select_last_index") == 0, RG_UNSUPPORTED,
             "%s: with select_last_index it needs more than one op", node->type);
    return rg_onnx_arg_reduce_any(node, call);
}

/* ---- resize ---- */

/* Numbers for each dimension of X from those of the axes; others are `fill`. */
static rg_status spread(const rg_onnx_node *node, const char *name, int32_t rank, double fill,
                        double to[RG_MAX_RANK], bool *given)
{
    double values[RG_ONNX_VALUES];
    int64_t axes[RG_ONNX_VALUES];
    const int32_t count = rg_onnx_floats(node, name, values);
    const int32_t axes_count = rg_onnx_ints(node, "axes", axes);
    *given = count > 0;
    for (int32_t d = 0; d < rank; d++)
        to[d] = fill;
    if (count == 0)
        return RG_OK;
    RG_CHECK(count == (axes_count > 0 ? axes_count : rank), RG_INVALID_ARGUMENT,
             "%s: %s has %d numbers, but must have %d", node->type, name, count,
             axes_count > 0 ? axes_count : rank);
    for (int32_t i = 0; i < count; i++) {
        int64_t axis;
        RG_TRY(rg_onnx_axis(node, "an axis", axes_count > 0 ? axes[i] : i, rank, &axis));
        RG_CHECK(values[i] > 0 && values[i] < 0x1p48, RG_INVALID_ARGUMENT,
                 "%s: %s must be more than 0, not %g", node->type, name, values[i]);
        to[axis] = values[i];
    }
    return RG_OK;
}

static rg_status read_modes(const rg_onnx_node *node, rg_upsample_desc *d, bool *symmetric)
{
    static const char *const modes[] = { "nearest", "linear", NULL };
    static const char *const grids[] = {
        "half_pixel", "pytorch_half_pixel",   "align_corners",
        "asymmetric", "half_pixel_symmetric", "tf_half_pixel_for_nn",
        NULL
    };
    static const char *const rounds[] = { "round_prefer_floor", "round_prefer_ceil", "floor",
                                          "ceil", NULL };
    static const rg_upsample_grid grid_of[] = { RG_UPSAMPLE_HALF_PIXEL,    RG_UPSAMPLE_HALF_PIXEL,
                                                RG_UPSAMPLE_ALIGN_CORNERS, RG_UPSAMPLE_ASYMMETRIC,
                                                RG_UPSAMPLE_HALF_PIXEL,    RG_UPSAMPLE_HALF_PIXEL };
    static const rg_upsample_round round_of[] = { RG_UPSAMPLE_PREFER_FLOOR, RG_UPSAMPLE_PREFER_CEIL,
                                                  RG_UPSAMPLE_FLOOR, RG_UPSAMPLE_CEIL };
    int32_t mode, grid, rounding;
    RG_TRY(rg_onnx_word(node, "mode", modes, &mode));
    RG_TRY(rg_onnx_word(node, "coordinate_transformation_mode", grids, &grid));
    RG_TRY(rg_onnx_word(node, "nearest_mode", rounds, &rounding));
    RG_CHECK(rg_onnx_int(node, "antialias") == 0, RG_UNSUPPORTED, "%s: antialias is not supported",
             node->type);
    d->kind = mode == 0 ? RG_UPSAMPLE_NEAREST : RG_UPSAMPLE_BILINEAR;
    *symmetric = grid == 4;
    d->grid = grid_of[grid];
    d->round = round_of[rounding];
    if (grid == 5) { /* half a pixel further on: what is rounded down is above a half before */
        RG_CHECK(mode == 0 && (rounding == 0 || rounding == 2), RG_UNSUPPORTED,
                 "%s: tf_half_pixel_for_nn is supported for nearest with floor and "
                 "round_prefer_floor",
                 node->type);
        d->round = rounding == 2 ? RG_UPSAMPLE_PREFER_CEIL : RG_UPSAMPLE_CEIL;
    }
    return RG_OK;
}

/* Scales and sizes so that the image keeps its aspect ratio; *kept: it does, and the scale counts,
 * not the quotient of sizes. */
static rg_status read_sizes(const rg_onnx_node *node, const rg_tensor_desc *x, double sizes[],
                            double scales[], bool *kept)
{
    static const char *const policies[] = { "stretch", "not_larger", "not_smaller", NULL };
    int32_t policy;
    double scale = 0;
    RG_TRY(rg_onnx_word(node, "keep_aspect_ratio_policy", policies, &policy));
    for (int32_t d = 0; d < x->rank; d++) {
        scales[d] = sizes[d] > 0 && x->dims[d] > 0 ? sizes[d] / (double)x->dims[d] : 0;
        const bool better = policy == 1 ? scales[d] < scale : scales[d] > scale;
        if (sizes[d] > 0 && (scale == 0 || better))
            scale = scales[d];
    }
    for (int32_t d = 0; policy > 0 && d < x->rank; d++) {
        if (sizes[d] > 0) {
            scales[d] = scale;
            sizes[d] = floor(scale * (double)x->dims[d] + 0.5);
            RG_CHECK(sizes[d] <= INT32_MAX, RG_UNSUPPORTED,
                     "%s: sizes would be %.0f; at most %d pixels are supported", node->type,
                     sizes[d], INT32_MAX);
        }
    }
    *kept = policy > 0;
    return RG_OK;
}

/* Scales are f32 in a tensor: 2.6 is meant, not its neighbour, with which 5 pixels would become 12.
 * The runtime multiplies in f32, too. */
static double scale_of(int64_t in, double scale)
{
    char text[32];
    const float exact = (float)in * (float)scale;
    snprintf(text, sizeof text, "%.6g", scale);
    const double meant = strtod(text, NULL);
    if ((double)(float)scale == scale && (float)meant == (float)scale)
        scale = meant;
    return in > 0 && floor((double)exact) > floor((double)in * scale) ? (double)exact / (double)in
                                                                      : scale;
}

/* Pixel `o` of the result looks here. */
static double source_of(const rg_upsample_desc *d, double o, double scale, int64_t in)
{
    const double u = d->grid == RG_UPSAMPLE_HALF_PIXEL ? (o + 0.5) / scale - 0.5 : o / scale;
    const double at = d->round == RG_UPSAMPLE_FLOOR          ? floor(u)
                      : d->round == RG_UPSAMPLE_CEIL         ? ceil(u)
                      : d->round == RG_UPSAMPLE_PREFER_FLOOR ? ceil(u - 0.5)
                                                             : floor(u + 0.5);
    return fmin(fmax(at, 0), (double)in - 1);
}

/* An image that keeps its aspect ratio: the scale counts. Where the size is rounded up, it is the
 * quotient of sizes that the op takes, which is right where it finds the same pixels. */
static rg_status place_by_ratio(const rg_onnx_node *node, rg_upsample_desc *d, int32_t to,
                                int64_t in, double size)
{
    enum { MOST_COMPARED = 1 << 20 };
    const double scale = d->scale[to];
    bool same = d->grid == RG_UPSAMPLE_ALIGN_CORNERS ||
                (d->kind == RG_UPSAMPLE_NEAREST && size <= MOST_COMPARED);
    if (floor(scale * (double)in) == size && d->grid != RG_UPSAMPLE_ALIGN_CORNERS)
        return RG_OK;
    for (int64_t o = 0; o < (int64_t)size && same && d->grid != RG_UPSAMPLE_ALIGN_CORNERS; o++)
        same = source_of(d, (double)o, scale, in) == source_of(d, (double)o, size / (double)in, in);
    RG_CHECK(same, RG_UNSUPPORTED,
             "%s: keep_aspect_ratio_policy with a part of a pixel that is rounded up (%g) is not "
             "supported",
             node->type, scale * (double)in);
    d->output[to] = (int64_t)size;
    return RG_OK;
}

/* Scales of an image with these pixels: where the result has just as many along both axes, ONNX
 * Runtime copies, whatever the scales are. `symmetric` moves pixels only where a part of one is cut
 * off. */
static rg_status settle_scales(const rg_onnx_node *node, const int64_t pixels[2], bool symmetric,
                               rg_upsample_desc *d)
{
    bool same = true;
    for (int32_t axis = 0; axis < 2; axis++) {
        const double exact = (double)pixels[axis] * d->scale[axis];
        const double size = d->output[axis] > 0 ? (double)d->output[axis] : floor(exact);
        same = same && size == (double)pixels[axis];
        RG_CHECK(!symmetric || d->output[axis] > 0 || exact == floor(exact), RG_UNSUPPORTED,
                 "%s: half_pixel_symmetric with a part of a pixel (%g) is not supported",
                 node->type, exact);
    }
    for (int32_t axis = 0; axis < 2 && same; axis++)
        d->scale[axis] = 1;
    return RG_OK;
}

/* Resize: X roi scales sizes; ResizeGrad: dY X roi scales. */
rg_status rg_onnx_resize(const rg_onnx_node *node, rg_onnx_call *call)
{
    rg_upsample_desc *d = (rg_upsample_desc *)call->desc;
    const int32_t image = call->gradient, rank = rg_onnx_rank(node, image);
    double scales[RG_MAX_RANK], sizes[RG_MAX_RANK];
    bool has_scales, has_sizes, symmetric = false, by_ratio = false;
    RG_TRY(read_modes(node, d, &symmetric));
    RG_CHECK(rank == 3 || rank == 4, RG_UNSUPPORTED,
             "%s: X has rank %d; images (n, c, d) and (n, c, h, w) are supported", node->type,
             rank);
    RG_TRY(spread(node, "scales", rank, 1, scales, &has_scales));
    RG_TRY(spread(node, "sizes", rank, 0, sizes, &has_sizes));
    RG_CHECK(has_scales != has_sizes, RG_INVALID_ARGUMENT,
             has_scales ? "%s: scales and sizes cannot both be given"
                        : "%s: either scales or sizes must be given",
             node->type);
    const rg_tensor_desc *x = &node->inputs[image];
    if (has_sizes)
        RG_TRY(read_sizes(node, x, sizes, scales, &by_ratio));
    const int32_t first = node->nhwc ? 1 : 2;
    int64_t pixels[2] = { 1, 1 };
    for (int32_t axis = 0; axis < rank; axis++) {
        const bool spatial = axis >= first && axis < first + rank - 2;
        const bool kept = has_sizes ? sizes[axis] == 0 || sizes[axis] == (double)x->dims[axis]
                                    : scales[axis] == 1;
        RG_CHECK(spatial || kept, RG_UNSUPPORTED, "%s: only spatial dimensions can be resized",
                 node->type);
        if (!spatial)
            continue;
        const int32_t to = axis - first + (rank == 3);
        pixels[to] = x->dims[axis];
        d->scale[to] = has_scales || by_ratio ? scale_of(x->dims[axis], scales[axis]) : 1;
        if (has_sizes && (!by_ratio || sizes[axis] == 0))
            d->output[to] = sizes[axis] > 0 ? (int64_t)sizes[axis] : x->dims[axis];
        else if (by_ratio)
            RG_TRY(place_by_ratio(node, d, to, x->dims[axis], sizes[axis]));
    }
    if (rank == 3) {
        d->scale[0] = 1;
        d->output[0] = has_sizes ? 1 : 0;
    }
    return settle_scales(node, pixels, symmetric, d);
}
