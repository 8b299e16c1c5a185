/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Converters of ONNX's operators with windows: convolution and pooling. */
#include "operators/onnx_converters.h"

#include <retrograde/conv.h>
#include <retrograde/conv_transpose.h>
#include <retrograde/pool.h>
#include <retrograde/reduce.h>

/* One window in rows and columns; 1-D windows are a row. */
typedef struct window {
    int32_t spatial; /* 1 or 2 */
    int64_t kernel[2], stride[2], dilation[2];
    rg_padding padding;
} window;

/* Reads a list of as many numbers as there are spatial dimensions into the last of to[2]; entry 0
 * of a 1-D window stays. */
static rg_status read_pair(const rg_onnx_node *node, const char *name, int32_t spatial, int64_t low,
                           int64_t to[2])
{
    int64_t values[RG_ONNX_VALUES];
    const int32_t count = rg_onnx_ints(node, name, values);
    if (count == 0)
        return RG_OK;
    RG_CHECK(count == spatial, RG_INVALID_ARGUMENT,
             "%s: %s has %d numbers, but there are %d spatial dimensions", node->type, name, count,
             spatial);
    for (int32_t d = 0; d < spatial; d++) {
        RG_CHECK(values[d] >= low && values[d] <= INT32_MAX, RG_INVALID_ARGUMENT,
                 "%s: %s must be %lld or more, not %lld", node->type, name, (long long)low,
                 (long long)values[d]);
        to[2 - spatial + d] = values[d];
    }
    return RG_OK;
}

static rg_status read_pads(const rg_onnx_node *node, int32_t spatial, rg_padding *padding)
{
    static const char *const policies[] = { "NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER", NULL };
    int32_t policy;
    int64_t pads[RG_ONNX_VALUES];
    RG_TRY(rg_onnx_word(node, "auto_pad", policies, &policy));
    const int32_t count = rg_onnx_ints(node, "pads", pads);
    bool any = false;
    for (int32_t i = 0; i < count; i++) {
        RG_CHECK(pads[i] >= -INT32_MAX && pads[i] <= INT32_MAX, RG_INVALID_ARGUMENT,
                 "%s: %lld is out of range for pads", node->type, (long long)pads[i]);
        any |= pads[i] != 0;
    }
    RG_CHECK(policy == 0 || !any, RG_INVALID_ARGUMENT,
             "%s: pads cannot be given together with auto_pad %s", node->type, policies[policy]);
    if (policy >= 2)
        padding->policy = policy == 2 ? RG_PADDING_SAME_UPPER : RG_PADDING_SAME_LOWER;
    if (count == 0 || policy > 0)
        return RG_OK;
    RG_CHECK(count == 2 * spatial, RG_INVALID_ARGUMENT,
             "%s: pads has %d numbers, but must have %d: the beginning and the end of %s",
             node->type, count, 2 * spatial,
             spatial == 1 ? "the spatial dimension" : "both spatial dimensions");
    if (spatial == 2) {
        padding->top = (int32_t)pads[0];
        padding->bottom = (int32_t)pads[2];
    }
    padding->left = (int32_t)pads[spatial - 1];
    padding->right = (int32_t)pads[2 * spatial - 1];
    return RG_OK;
}

/* The number of spatial dimensions from an input of rank n + 2. */
static rg_status read_spatial(const rg_onnx_node *node, int32_t index, int32_t *spatial)
{
    const int32_t rank = rg_onnx_rank(node, index);
    int64_t kernel[RG_ONNX_VALUES];
    *spatial = rank >= 0 ? rank - 2 : rg_onnx_ints(node, "kernel_shape", kernel);
    RG_CHECK(*spatial != 3, RG_UNSUPPORTED,
             "%s: windows over three dimensions are not supported; images are (n, c, d) or (n, c, "
             "h, w)",
             node->type);
    RG_CHECK(*spatial == 1 || *spatial == 2, RG_INVALID_ARGUMENT,
             "%s: the image has rank %d, but must be (n, c, d) or (n, c, h, w)", node->type,
             *spatial + 2);
    return RG_OK;
}

static rg_status read_window(const rg_onnx_node *node, int32_t image, window *w)
{
    *w = (window){ .kernel = { 1, 1 }, .stride = { 1, 1 }, .dilation = { 1, 1 } };
    RG_TRY(read_spatial(node, image, &w->spatial));
    RG_TRY(read_pair(node, "kernel_shape", w->spatial, 1, w->kernel));
    RG_TRY(read_pair(node, "strides", w->spatial, 1, w->stride));
    RG_TRY(read_pair(node, "dilations", w->spatial, 1, w->dilation));
    return read_pads(node, w->spatial, &w->padding);
}

/* Windows of 2^31 pixels or more are refused, so that sums below do not overflow. */
static rg_status check_spans(const rg_onnx_node *node, const window *w)
{
    for (int32_t axis = 0; axis < 2; axis++) {
        const bool fits = w->kernel[axis] >= 0 && w->kernel[axis] <= INT32_MAX;
        RG_CHECK(fits && (w->kernel[axis] - 1) * w->dilation[axis] < INT32_MAX, RG_UNSUPPORTED,
                 "%s: a window of %lld pixels with a dilation of %lld is too large", node->type,
                 (long long)w->kernel[axis], (long long)w->dilation[axis]);
    }
    return RG_OK;
}

/* The dimension of rows (0) or columns (1) of an image with this many spatial dimensions. */
static int64_t pixels_of(const rg_onnx_node *node, const rg_tensor_desc *image, int32_t spatial,
                         int32_t axis)
{
    if (spatial == 1 && axis == 0)
        return 1;
    return image->dims[spatial + axis - 1 + !node->nhwc];
}

/* kernel_shape may be given, and must then be that of w (o, i, k…). */
static rg_status check_kernel(const rg_onnx_node *node, int32_t weights, const window *w)
{
    if (!rg_onnx_has(node, weights) || !rg_onnx_given(node, "kernel_shape"))
        return RG_OK;
    const rg_tensor_desc *shape = &node->inputs[weights];
    RG_CHECK(shape->rank == w->spatial + 2, RG_INVALID_ARGUMENT,
             "%s: W has rank %d, but X has rank %d", node->type, shape->rank, w->spatial + 2);
    for (int32_t axis = 2 - w->spatial; axis < 2; axis++)
        RG_CHECK(pixels_of(node, shape, w->spatial, axis) == w->kernel[axis], RG_INVALID_ARGUMENT,
                 "%s: kernel_shape has %lld where W has %lld", node->type,
                 (long long)w->kernel[axis], (long long)pixels_of(node, shape, w->spatial, axis));
    return RG_OK;
}

/* The window of w (o, i, k…), which kernel_shape need not repeat. */
static void take_kernel(const rg_onnx_node *node, int32_t weights, window *w)
{
    for (int32_t axis = 2 - w->spatial; axis < 2; axis++) {
        if (node->inputs[weights].rank == w->spatial + 2)
            w->kernel[axis] = pixels_of(node, &node->inputs[weights], w->spatial, axis);
    }
}

static rg_status read_groups(const rg_onnx_node *node, int32_t *groups)
{
    const int64_t group = rg_onnx_int(node, "group");
    RG_CHECK(group >= 1 && group <= INT32_MAX, RG_INVALID_ARGUMENT,
             "%s: group must be 1 or more, not %lld", node->type, (long long)group);
    *groups = (int32_t)group;
    return RG_OK;
}

static void copy_pair(int32_t to[2], const int64_t from[2])
{
    to[0] = (int32_t)from[0];
    to[1] = (int32_t)from[1];
}

/* Where windows are further apart than they are long, ONNX Runtime's SAME leaves pixels out at both
 * sides of the image: w->padding becomes explicit. Whether it does; `fewer`: 1 for convolutions,
 * which leave out one less before the first window where the number allows it. */
static bool cut_same(const rg_onnx_node *node, window *w, int32_t image, int64_t fewer,
                     int64_t output[2])
{
    if (w->padding.policy == RG_PADDING_EXPLICIT || !rg_onnx_has(node, image))
        return false;
    const bool lower = w->padding.policy == RG_PADDING_SAME_LOWER;
    int64_t before[2] = { 0 }, after[2] = { 0 };
    bool any = false;
    output[0] = output[1] = 1;
    for (int32_t axis = 2 - w->spatial; axis < 2; axis++) {
        const int64_t n = pixels_of(node, &node->inputs[image], w->spatial, axis);
        output[axis] = (n + w->stride[axis] - 1) / w->stride[axis];
        const int64_t span = (w->kernel[axis] - 1) * w->dilation[axis] + 1;
        const int64_t extra = (output[axis] - 1) * w->stride[axis] + span - n;
        before[axis] = (extra + lower + (extra < 0 ? fewer : 0)) / 2;
        after[axis] = extra - before[axis];
        any |= extra < 0;
    }
    if (!any || output[0] < 1 || output[1] < 1)
        return false;
    w->padding = (rg_padding){ .top = (int32_t)before[0],
                               .left = (int32_t)before[1],
                               .bottom = (int32_t)after[0],
                               .right = (int32_t)after[1] };
    return true;
}

/* ---- convolution ---- */

/* Conv: X W B; ConvGrad: dY X W, and a third output. */
rg_status rg_onnx_conv(const rg_onnx_node *node, rg_onnx_call *call)
{
    rg_conv_desc *d = (rg_conv_desc *)call->desc;
    int64_t output[2];
    window w;
    RG_TRY(read_window(node, call->gradient, &w));
    RG_TRY(check_kernel(node, 1 + call->gradient, &w));
    RG_TRY(read_groups(node, &d->groups));
    if (rg_onnx_has(node, 1 + call->gradient))
        take_kernel(node, 1 + call->gradient, &w);
    RG_TRY(check_spans(node, &w));
    (void)cut_same(node, &w, call->gradient, 1, output);
    copy_pair(d->stride, w.stride);
    copy_pair(d->dilation, w.dilation);
    d->padding = w.padding;
    d->bias = call->gradient ? node->outputs & 4 : rg_onnx_has(node, 2);
    return RG_OK;
}

/* Pixels of y along each axis: (n - 1) stride + K + output_padding - before - after. output_shape,
 * or auto_pad SAME with n stride pixels, divide the rest between both sides. */
static rg_status place_transposed(const rg_onnx_node *node, const rg_tensor_desc *image,
                                  const window *w, const int64_t shape[2], const int64_t extra[2],
                                  rg_padding *padding)
{
    const bool upper = w->padding.policy == RG_PADDING_SAME_UPPER;
    int64_t before[2] = { w->padding.top, w->padding.left };
    int64_t after[2] = { w->padding.bottom, w->padding.right };
    for (int32_t axis = 0; axis < 2; axis++) {
        const int64_t n = pixels_of(node, image, w->spatial, axis);
        const int64_t span = (w->kernel[axis] - 1) * w->dilation[axis] + 1;
        const bool same = w->padding.policy != RG_PADDING_EXPLICIT;
        RG_CHECK(n <= INT32_MAX, RG_UNSUPPORTED, "%s: X has %lld pixels along an axis", node->type,
                 (long long)n);
        if (shape[axis] > 0 || same) {
            const int64_t pixels = shape[axis] > 0 ? shape[axis] : n * w->stride[axis];
            const int64_t total = (n - 1) * w->stride[axis] + extra[axis] + span - pixels;
            const int64_t held = total > 0 ? total : 0;
            before[axis] = upper ? held / 2 : held - held / 2;
            /* auto_pad adds no pixels where windows are further apart than they are long */
            after[axis] = (shape[axis] > 0 ? total : held) - before[axis] - extra[axis];
        } else {
            after[axis] -= extra[axis];
        }
        RG_CHECK(before[axis] <= INT32_MAX && after[axis] <= INT32_MAX && after[axis] >= -INT32_MAX,
                 RG_INVALID_ARGUMENT, "%s: the shape of Y is out of range", node->type);
    }
    *padding = (rg_padding){ .top = (int32_t)before[0],
                             .left = (int32_t)before[1],
                             .bottom = (int32_t)after[0],
                             .right = (int32_t)after[1] };
    return RG_OK;
}

/* ConvTranspose: X W B; ConvTransposeGrad: dY X W. */
rg_status rg_onnx_conv_transpose(const rg_onnx_node *node, rg_onnx_call *call)
{
    rg_conv_transpose_desc *d = (rg_conv_transpose_desc *)call->desc;
    window w;
    RG_TRY(read_window(node, call->gradient, &w));
    RG_TRY(check_kernel(node, 1 + call->gradient, &w));
    RG_TRY(read_groups(node, &d->groups));
    copy_pair(d->stride, w.stride);
    copy_pair(d->dilation, w.dilation);
    d->bias = call->gradient ? node->outputs & 4 : rg_onnx_has(node, 2);
    int64_t shape[2] = { 0 }, extra[2] = { 0 };
    int64_t given[RG_ONNX_VALUES];
    const int32_t count = rg_onnx_ints(node, "output_shape", given);
    if (count == w.spatial + 2) { /* with n and c in front */
        for (int32_t axis = 2 - w.spatial; axis < 2; axis++)
            shape[axis] = given[w.spatial + axis];
    } else {
        RG_TRY(read_pair(node, "output_shape", w.spatial, 1, shape));
    }
    RG_TRY(read_pair(node, "output_padding", w.spatial, 0, extra));
    const int32_t weights = 1 + call->gradient;
    RG_CHECK(rg_onnx_has(node, call->gradient) && rg_onnx_has(node, weights), RG_INVALID_ARGUMENT,
             "%s: the shapes of X and W must be known", node->type);
    RG_CHECK(node->inputs[weights].rank == w.spatial + 2, RG_INVALID_ARGUMENT,
             "%s: W has rank %d, but X has rank %d", node->type, node->inputs[weights].rank,
             w.spatial + 2);
    for (int32_t axis = 0; axis < 2; axis++)
        w.kernel[axis] = pixels_of(node, &node->inputs[weights], w.spatial, axis);
    RG_TRY(check_spans(node, &w));
    return place_transposed(node, &node->inputs[call->gradient], &w, shape, extra, &d->padding);
}

/* ---- pooling ---- */

/* With ceil_mode ONNX has one window, a partial one, even where none fits. ONNX Runtime has it
 * without ceil_mode, too, where less than a stride is missing. */
static void keep_partial(const rg_onnx_node *node, const window *w, rg_pool_desc *d, int32_t image)
{
    const int64_t before[2] = { d->padding.top, d->padding.left };
    const int64_t after[2] = { d->padding.bottom, d->padding.right };
    const rg_padding_policy policy = d->padding.policy;
    if ((policy != RG_PADDING_EXPLICIT && policy != RG_PADDING_VALID) || !rg_onnx_has(node, image))
        return;
    for (int32_t axis = 2 - w->spatial; axis < 2; axis++) {
        const int64_t n = pixels_of(node, &node->inputs[image], w->spatial, axis);
        const int64_t span = (w->kernel[axis] - 1) * w->dilation[axis] + 1;
        const int64_t missing = span - n - before[axis] - after[axis];
        if (missing > 0 && missing < w->stride[axis]) {
            d->output[axis] = 1;
            d->padding.policy = RG_PADDING_EXPLICIT;
        }
    }
}

/* ONNX Runtime's SAME of pooling does not know of dilations: it pads for the window without them,
 * and has as many windows as fit then. */
static bool dilated_same(const rg_onnx_node *node, window *w, int32_t image, int64_t output[2])
{
    const bool ceil = rg_onnx_int(node, "ceil_mode") != 0;
    const bool lower = w->padding.policy == RG_PADDING_SAME_LOWER;
    int64_t before[2] = { 0 }, after[2] = { 0 };
    if ((!lower && w->padding.policy != RG_PADDING_SAME_UPPER) || !rg_onnx_has(node, image) ||
        (w->dilation[0] == 1 && w->dilation[1] == 1))
        return false;
    output[0] = output[1] = 1;
    for (int32_t axis = 2 - w->spatial; axis < 2; axis++) {
        const int64_t n = pixels_of(node, &node->inputs[image], w->spatial, axis);
        const int64_t stride = w->stride[axis];
        const int64_t extra = (n + stride - 1) / stride * stride - stride + w->kernel[axis] - n;
        const int64_t left = n + extra - (w->kernel[axis] - 1) * w->dilation[axis] - 1;
        before[axis] = (extra + lower) / 2;
        after[axis] = extra - before[axis];
        output[axis] = left > -stride ? left / stride + 1 : 0; /* 0: the op says that none fits */
        if (ceil && left > 0 && left % stride != 0 && output[axis] * stride < n + before[axis])
            output[axis]++;
    }
    w->padding = (rg_padding){ .top = (int32_t)before[0],
                               .left = (int32_t)before[1],
                               .bottom = (int32_t)after[0],
                               .right = (int32_t)after[1] };
    return true;
}

/* MaxPool, AveragePool, LpPool: X; MaxPoolGrad: dY Indices X; AveragePoolGrad: dY X. */
rg_status rg_onnx_pool(const rg_onnx_node *node, rg_onnx_call *call)
{
    rg_pool_desc *d = (rg_pool_desc *)call->desc;
    window w;
    int64_t kernel[RG_ONNX_VALUES], output[2];
    RG_TRY(read_window(node, 0, &w));
    RG_CHECK(rg_onnx_ints(node, "kernel_shape", kernel) > 0, RG_INVALID_ARGUMENT,
             "%s: the attribute kernel_shape is required", node->type);
    RG_TRY(check_spans(node, &w));
    copy_pair(d->window, w.kernel);
    copy_pair(d->stride, w.stride);
    copy_pair(d->dilation, w.dilation);
    d->padding = w.padding;
    d->ceil_mode = rg_onnx_int(node, "ceil_mode") != 0 && w.padding.policy == RG_PADDING_EXPLICIT;
    if (d->kind == RG_POOL_MAX) {
        d->indices = call->gradient || (node->outputs & 2);
        const int64_t order = rg_onnx_int(node, "storage_order");
        RG_CHECK(order == 0 || order == 1, RG_INVALID_ARGUMENT,
                 "%s: storage_order must be 0 or 1, not %lld", node->type, (long long)order);
        d->storage_order = (int32_t)order;
    }
    if (d->kind == RG_POOL_AVERAGE)
        d->count_include_pad = rg_onnx_int(node, "count_include_pad") != 0;
    const int32_t image = !call->gradient ? 0 : d->indices ? 2 : 1;
    keep_partial(node, &w, d, image);
    if (!dilated_same(node, &w, image, output) && !cut_same(node, &w, image, 0, output))
        return RG_OK;
    memcpy(d->output, output, sizeof output);
    d->padding = w.padding;
    return RG_OK;
}

rg_status rg_onnx_lp_pool(const rg_onnx_node *node, rg_onnx_call *call)
{
    RG_CHECK(rg_onnx_int(node, "p") == 2, RG_UNSUPPORTED,
             "%s: with a p other than 2 it needs more than one op", node->type);
    return rg_onnx_pool(node, call);
}

/* GlobalAveragePool, GlobalMaxPool: the mean or maximum over all spatial dimensions. */
rg_status rg_onnx_global_pool(const rg_onnx_node *node, rg_onnx_call *call)
{
    rg_reduce_desc *d = (rg_reduce_desc *)call->desc;
    const int32_t rank = rg_onnx_rank(node, 0);
    RG_CHECK(rank >= 3, RG_INVALID_ARGUMENT,
             "%s: X has rank %d, but must have rank 3 or more: (n, c, d…)", node->type, rank);
    const bool image = rank <= 4 || node->nhwc;
    call->inputs[0].layout = call->outputs[0].layout = image ? RG_ONNX_IMAGE : RG_ONNX_SAME;
    d->keep_dims = true;
    const int32_t first = image ? 1 : 2, count = rank == 3 ? 2 : rank - 2;
    d->dims_count = count;
    for (int32_t i = 0; i < count; i++)
        d->dims[i] = first + i;
    return RG_OK;
}
