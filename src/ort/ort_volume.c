/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* ConvGrad over volumes (n, c, d, h, w): the windows of some images become columns of a matrix, so
 * that the rest is a ConvGrad with windows of one pixel; then the gradients of the columns are
 * added to the pixels that they were copied from. 16-bit numbers are computed in 32 bits. Images
 * (n, c, h, w) are volumes of depth 1 where the columns are fewer than the weights, which the op
 * would copy into an order of its own. */
#include "core/shape.h"
#include "ort/ort_launch.h"

/* Reads numbers of all axes to the last ones of three; *axes: how many, 0 where that
 * is not known yet. */
static bool read_axes(const rg_onnx_node *node, const char *name, int64_t least, int32_t *axes,
                      int64_t to[3])
{
    int64_t values[RG_ONNX_VALUES];
    const int32_t count = rg_onnx_ints(node, name, values);
    if (count == 0)
        return true;
    if (count > 3 || (*axes != 0 && count != *axes))
        return false;
    *axes = count;
    for (int32_t i = 0; i < count; i++) {
        if (values[i] < least || values[i] >= 1 << 20)
            return false;
        to[3 - count + i] = values[i];
    }
    return true;
}

void rg_ort_prepare_volume(rg_ort_node *node, const rg_onnx_node *attributes, int32_t policy)
{
    rg_ort_volume_args k = { .stride = { 1, 1, 1 }, .dilation = { 1, 1, 1 } };
    int64_t pads[RG_ONNX_VALUES];
    int32_t axes = 0;
    bool fits = read_axes(attributes, "kernel_shape", 1, &axes, k.window) &&
                read_axes(attributes, "strides", 1, &axes, k.stride) &&
                read_axes(attributes, "dilations", 1, &axes, k.dilation) && node->conv.groups >= 1;
    const int32_t count = rg_onnx_ints(attributes, "pads", pads), half = count / 2;
    fits = fits && count % 2 == 0 && half <= 3 && (count == 0 || axes == 0 || half == axes);
    for (int32_t i = 0; i < half && fits; i++) {
        fits = pads[i] >= 0 && pads[i] < 1 << 20 && pads[half + i] >= 0 && pads[half + i] < 1 << 20;
        if (policy == 0) {
            k.before[3 - half + i] = pads[i];
            node->volume_after[3 - half + i] = pads[half + i];
        }
    }
    node->volume = k;
    node->volume_axes = count > 0 ? half : axes;
    node->volume_policy = fits ? policy : -1;
}

/* A convolution: sizes, and those of a group. */
typedef struct volume {
    rg_ort_volume_args k;
    int64_t images, channels, outputs, groups, taps, in, out;
} volume;

/* Along one axis: the padding, and how many outputs there are; -1: none. */
static int64_t pad_axis(const rg_ort_node *node, rg_ort_volume_args *k, int32_t i)
{
    enum { EXPLICIT, VALID, UPPER, LOWER };
    const int64_t span = (k->window[i] - 1) * k->dilation[i] + 1;
    const int64_t out = rg_ort_blocks(k->in[i], k->stride[i]);
    int64_t room = k->in[i] + k->before[i] + node->volume_after[i];
    if (node->volume_policy == UPPER || node->volume_policy == LOWER) {
        const int64_t all = (out - 1) * k->stride[i] + span - k->in[i];
        const int64_t pad = all > 0 ? all : 0;
        k->before[i] = node->volume_policy == UPPER ? pad / 2 : pad - pad / 2;
        return out;
    }
    room -= span;
    return room < 0 ? -1 : room / k->stride[i] + 1;
}

static rg_status check_volume(const rg_ort_computation *c, volume *v)
{
    const rg_tensor_desc *dy = &c->shapes[0], *x = &c->shapes[1], *w = &c->shapes[2];
    const int32_t first = 5 - x->rank;
    char a[RG_SHAPE_TEXT], b[RG_SHAPE_TEXT];
    int64_t dims[5] = { x->dims[0], w->dims[0] };
    RG_CHECK(dy->rank == x->rank && w->rank == x->rank, RG_INVALID_ARGUMENT,
             "ConvGrad: X has %d dimensions, but dY is %s and W is %s", x->rank,
             rg_shape_text(dy, a), rg_shape_text(w, b));
    *v = (volume){ c->k->volume, x->dims[0], x->dims[1], w->dims[0], c->k->conv.groups, 1, 1, 1 };
    RG_CHECK(v->channels % v->groups == 0 && v->outputs % v->groups == 0 &&
                 w->dims[1] == v->channels / v->groups,
             RG_INVALID_ARGUMENT,
             "ConvGrad: W is %s, which %lld channels in %lld groups do not fit",
             rg_shape_text(w, a), (long long)v->channels, (long long)v->groups);
    for (int32_t i = 0; i < 3; i++) {
        const bool flat = i < first;
        const int64_t window = flat ? 1 : w->dims[2 + i - first];
        RG_CHECK(v->k.window[i] == 0 || v->k.window[i] == window, RG_INVALID_ARGUMENT,
                 "ConvGrad: kernel_shape is not that of W, %s", rg_shape_text(w, a));
        v->k.window[i] = window;
        v->k.in[i] = flat ? 1 : x->dims[2 + i - first];
        v->k.out[i] = flat ? 1 : dy->dims[2 + i - first];
        if (!flat)
            dims[2 + i - first] = window > 0 ? pad_axis(c->k, &v->k, i) : -1;
        v->taps *= window;
        v->in *= v->k.in[i];
        v->out *= v->k.out[i];
    }
    const rg_tensor_desc wanted = rg_tensor_desc_dense(dy->dtype, x->rank, dims);
    RG_CHECK(rg_shape_same_dims(dy, &wanted), RG_INVALID_ARGUMENT,
             "ConvGrad: dY is %s, but must be %s", rg_shape_text(dy, a), rg_shape_text(&wanted, b));
    return RG_OK;
}

/* What some images after others are computed with. */
typedef struct work {
    volume v;
    rg_dtype dtype;
    int64_t element, at_once;  /* bytes; images */
    char *columns, *gradients; /* of all channels: (channels, taps, at_once, out) */
    char *dy;                  /* (outputs, at_once, out), of several images */
    char *dx, *dw;
} work;

static rg_status run_columns(rg_ort_computation *c, const work *s, int32_t kernel, const void *from,
                             void *to, int64_t pitch)
{
    rg_ort_volume_args k = s->v.k;
    k.from = from;
    k.to = to;
    k.pitch = pitch;
    const rg_ort_launch launch = { .kernel = kernel,
                                   .args = &k,
                                   .size = sizeof k,
                                   .units = s->v.channels,
                                   .bytes = s->v.channels * s->v.taps * s->v.out * s->element,
                                   .wide = s->dtype == RG_F32 };
    return rg_ort_run(c, &launch);
}

/* dY of `count` images as one matrix. */
static const char *gather_dy(const rg_ort_computation *c, const work *s, int64_t image,
                             int64_t count)
{
    const volume *v = &s->v;
    const int64_t row = v->out * s->element;
    const char *from = (const char *)c->data[0] + image * v->outputs * row;
    for (int64_t i = 0; i < count * v->outputs && count > 1; i++)
        memcpy(s->dy + (i % v->outputs * count + i / v->outputs) * row, from + i * row,
               (size_t)row);
    return count > 1 ? s->dy : from;
}

static rg_status run_groups(rg_ort_computation *c, const work *s, int64_t image, int64_t count)
{
    const volume *v = &s->v;
    const int64_t outputs = v->outputs / v->groups, rows = v->channels / v->groups * v->taps;
    const int64_t pitch = count * v->out;
    const rg_tensor_desc shapes[] = {
        rg_tensor_desc_dense(s->dtype, 2, (int64_t[]){ outputs, pitch }),
        rg_tensor_desc_dense(s->dtype, 2, (int64_t[]){ rows, pitch }),
        rg_tensor_desc_dense(s->dtype, 2, (int64_t[]){ outputs, rows }),
    };
    const char *dy = gather_dy(c, s, image, count);
    for (int64_t g = 0; g < v->groups; g++) {
        const int64_t columns = g * rows * pitch * s->element, w = g * outputs * rows * s->element;
        const rg_ort_products p = { .shapes = shapes,
                                    .data = { (char *)(uintptr_t)dy +
                                                  g * outputs * pitch * s->element,
                                              s->columns + columns, (char *)c->data[2] + w },
                                    .results = { s->dx != NULL ? s->gradients + columns : NULL,
                                                 s->dw != NULL ? s->dw + w : NULL },
                                    .add = image > 0 };
        RG_TRY(rg_ort_multiply(c, &p));
    }
    return RG_OK;
}

static rg_status run_some(rg_ort_computation *c, const work *s, int64_t image, int64_t count)
{
    const volume *v = &s->v;
    const int64_t each = v->channels * v->in * s->element, apart = v->out * s->element;
    for (int64_t i = 0; i < count; i++)
        RG_TRY(run_columns(c, s, RG_ORT_VOLUME_COLUMNS,
                           (const char *)c->data[1] + (image + i) * each, s->columns + i * apart,
                           count * v->out));
    RG_TRY(run_groups(c, s, image, count));
    for (int64_t i = 0; i < count && s->dx != NULL; i++)
        RG_TRY(run_columns(c, s, RG_ORT_VOLUME_SUMS, s->gradients + i * apart,
                           s->dx + (image + i) * each, count * v->out));
    return RG_OK;
}

/* Columns of as many images as make a few megabytes. */
static rg_status take_memory(rg_ort_computation *c, work *s)
{
    enum { COLUMNS_BYTES = 8 << 20 };
    volume *v = &s->v;
    int64_t each, bytes;
    void *memory;
    RG_CHECK(!__builtin_mul_overflow(v->channels * v->taps, v->out, &each) &&
                 !__builtin_mul_overflow(each, s->element, &each) && each <= INT64_MAX / 8,
             RG_INVALID_ARGUMENT, "ConvGrad: the columns of an image are too large");
    s->at_once = COLUMNS_BYTES / each;
    s->at_once = s->at_once < 1 ? 1 : s->at_once < v->images ? s->at_once : v->images;
    bytes = s->at_once * each;
    RG_TRY(rg_ort_scratch(c, (size_t)(2 * bytes + s->at_once * v->outputs * v->out * s->element),
                          &memory));
    s->columns = memory;
    s->gradients = s->columns + bytes;
    s->dy = s->gradients + bytes;
    return RG_OK;
}

/* Memory of a result: the runtime's, or, for 16-bit data, scratch. */
static rg_status take_result(rg_ort_computation *c, void *own, int64_t count, char **to)
{
    void *memory = own;
    if (own != NULL && rg_dtype_size(rg_ort_dtype(c->k->registered->type)) == 2)
        RG_TRY(rg_ort_scratch(c, (size_t)count * sizeof(float), &memory));
    *to = memory;
    return RG_OK;
}

static rg_status run_images(rg_ort_computation *c, work *s, void *const results[2])
{
    const rg_dtype dtype = rg_ort_dtype(c->k->registered->type);
    const int64_t counts[] = { rg_shape_count(&c->shapes[1]), rg_shape_count(&c->shapes[2]) };
    for (int32_t i = 0; i < 3 && dtype != RG_F64; i++)
        RG_TRY(rg_ort_widen(c, i, RG_F32));
    RG_TRY(take_memory(c, s));
    RG_TRY(take_result(c, results[0], counts[0], &s->dx));
    RG_TRY(take_result(c, results[1], counts[1], &s->dw));
    for (int64_t image = 0; image < s->v.images; image += s->at_once) {
        const int64_t left = s->v.images - image;
        RG_TRY(run_some(c, s, image, left < s->at_once ? left : s->at_once));
    }
    for (int32_t i = 0; i < 2 && dtype != s->dtype; i++) {
        if (results[i] != NULL)
            RG_TRY(
                rg_convert(results[i], dtype, i == 0 ? s->dx : s->dw, s->dtype, (size_t)counts[i]));
    }
    return RG_OK;
}

/* Images with fewer columns than weights; false: not ours. */
static bool takes_images(const rg_ort_computation *c, volume *v)
{
    const rg_tensor_desc *x = &c->shapes[1], *w = &c->shapes[2];
    return x->rank == 4 && w->rank == 4 && (x->dtype == RG_F32 || x->dtype == RG_F64) &&
           c->k->volume_policy >= 0 && (c->k->volume_axes == 0 || c->k->volume_axes == 2) &&
           rg_ort_product(w, 2, 4) * rg_shape_count(x) < rg_shape_count(w) &&
           rg_shape_count(x) > 0 && check_volume(c, v) == RG_OK;
}

rg_status rg_ort_run_volume(rg_ort_computation *c, bool *done)
{
    const rg_tensor_desc *dy = &c->shapes[0], *x = &c->shapes[1], *w = &c->shapes[2];
    const rg_tensor_desc bias = rg_tensor_desc_dense(x->dtype, 1, w->dims);
    work s = { .dtype = x->dtype == RG_F64 ? RG_F64 : RG_F32 };
    void *results[2], *db;
    s.element = (int64_t)rg_dtype_size(s.dtype);
    if (x->rank != 5 && !takes_images(c, &s.v))
        return RG_OK;
    RG_CHECK(c->k->volume_policy >= 0 && (x->rank == 4 || c->k->volume_axes % 3 == 0),
             RG_INVALID_ARGUMENT,
             "ConvGrad: of volumes, kernel_shape, strides and dilations must be three numbers of 1 "
             "or more, and pads six of 0 or more");
    RG_TRY(check_volume(c, &s.v));
    RG_TRY(rg_ort_output(c, 0, x, &results[0]));
    RG_TRY(rg_ort_output(c, 1, w, &results[1]));
    RG_TRY(rg_ort_output(c, 2, &bias, &db));
    *done = true;
    RG_TRY(rg_ort_sum_bias(c, db, s.v.out));
    if (rg_shape_count(dy) > 0 && rg_shape_count(x) > 0 && rg_shape_count(w) > 0)
        return results[0] == NULL && results[1] == NULL ? RG_OK : run_images(c, &s, results);
    for (int32_t i = 0; i < 2; i++) { /* nothing is summed up */
        if (results[i] != NULL)
            memset(results[i], 0, (size_t)rg_ort_bytes(&c->shapes[1 + i], 1));
    }
    return RG_OK;
}
