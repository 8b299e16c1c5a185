/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* ConvGrad over volumes (n, c, d, h, w): the windows of an image as columns of a matrix, so that it
 * is that of windows of one pixel, then the gradients of the columns summed up in their places. One
 * image at a time; 16-bit numbers in 32 bits. */
#include "core/shape.h"
#include "ort/ort_launch.h"

static bool read_three(const rg_onnx_node *node, const char *name, int64_t least, int64_t to[])
{
    int64_t values[RG_ONNX_VALUES];
    const int32_t count = rg_onnx_ints(node, name, values);
    for (int32_t i = 0; i < count; i++) {
        if (values[i] < least || values[i] >= 1 << 20)
            return false;
        if (i < 3)
            to[i] = values[i];
    }
    return count == 3 || count == 0;
}

void rg_ort_prepare_volume(rg_ort_node *node, const rg_onnx_node *attributes, int32_t policy)
{
    rg_ort_volume_args k = { .stride = { 1, 1, 1 }, .dilation = { 1, 1, 1 } };
    int64_t pads[RG_ONNX_VALUES];
    const int32_t count = rg_onnx_ints(attributes, "pads", pads);
    bool fits = read_three(attributes, "kernel_shape", 1, k.window) &&
                read_three(attributes, "strides", 1, k.stride) &&
                read_three(attributes, "dilations", 1, k.dilation) && (count == 6 || count == 0) &&
                node->conv.groups >= 1;
    for (int32_t i = 0; i < count && fits; i++) {
        fits = pads[i] >= 0 && pads[i] < 1 << 20;
        if (policy == 0)
            *(i < 3 ? &k.before[i] : &node->volume_after[i - 3]) = pads[i];
    }
    node->volume = k;
    node->volume_policy = fits ? policy : -1;
}

/* A convolution: sizes, and those of a group. */
typedef struct volume {
    rg_ort_volume_args k;
    int64_t images, channels, outputs, groups, taps, in, out;
} volume;

/* Along one axis: the padding, and how many outputs there are; -1: none. */
static int64_t place(const rg_ort_node *node, rg_ort_volume_args *k, int32_t i)
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
    char a[RG_SHAPE_TEXT], b[RG_SHAPE_TEXT];
    int64_t dims[5] = { x->dims[0], w->dims[0] };
    RG_CHECK(dy->rank == 5 && w->rank == 5, RG_INVALID_ARGUMENT,
             "ConvGrad: X has 5 dimensions, but dY is %s and W is %s", rg_shape_text(dy, a),
             rg_shape_text(w, b));
    *v = (volume){ c->k->volume, x->dims[0], x->dims[1], w->dims[0], c->k->conv.groups, 1, 1, 1 };
    RG_CHECK(v->channels % v->groups == 0 && v->outputs % v->groups == 0 &&
                 w->dims[1] == v->channels / v->groups,
             RG_INVALID_ARGUMENT,
             "ConvGrad: W is %s, which %lld channels in %lld groups do not fit",
             rg_shape_text(w, a), (long long)v->channels, (long long)v->groups);
    for (int32_t i = 0; i < 3; i++) {
        const int64_t window = w->dims[2 + i];
        RG_CHECK(v->k.window[i] == 0 || v->k.window[i] == window, RG_INVALID_ARGUMENT,
                 "ConvGrad: kernel_shape is not that of W, %s", rg_shape_text(w, a));
        v->k.window[i] = window;
        v->k.in[i] = x->dims[2 + i];
        dims[2 + i] = window > 0 ? place(c->k, &v->k, i) : -1;
        v->k.out[i] = dy->dims[2 + i];
        v->taps *= window;
        v->in *= v->k.in[i];
        v->out *= v->k.out[i];
    }
    const rg_tensor_desc wanted = rg_tensor_desc_dense(dy->dtype, 5, dims);
    RG_CHECK(rg_shape_same_dims(dy, &wanted), RG_INVALID_ARGUMENT,
             "ConvGrad: dY is %s, but must be %s", rg_shape_text(dy, a), rg_shape_text(&wanted, b));
    return RG_OK;
}

/* What one image after the other is computed with. */
typedef struct work {
    volume v;
    rg_dtype dtype;
    char *columns, *gradients; /* of all channels: (channels, taps, out) */
    char *dx, *dw;
} work;

static rg_status run_columns(rg_ort_computation *c, const work *s, int32_t kernel, const void *from,
                             void *to)
{
    rg_ort_volume_args k = s->v.k;
    k.from = from;
    k.to = to;
    const rg_ort_launch launch = { .kernel = kernel,
                                   .args = &k,
                                   .size = sizeof k,
                                   .units = s->v.channels,
                                   .bytes = s->v.channels * s->v.taps * s->v.out *
                                            (int64_t)rg_dtype_size(s->dtype),
                                   .wide = s->dtype == RG_F32 };
    return rg_ort_run(c, &launch);
}

static rg_status run_image(rg_ort_computation *c, const work *s, int64_t image)
{
    const volume *v = &s->v;
    const int64_t element = (int64_t)rg_dtype_size(s->dtype);
    const int64_t outputs = v->outputs / v->groups, rows = v->channels / v->groups * v->taps;
    const rg_tensor_desc shapes[] = {
        rg_tensor_desc_dense(s->dtype, 2, (int64_t[]){ outputs, v->out }),
        rg_tensor_desc_dense(s->dtype, 2, (int64_t[]){ rows, v->out }),
        rg_tensor_desc_dense(s->dtype, 2, (int64_t[]){ outputs, rows }),
    };
    const char *x = (const char *)c->data[1] + image * v->channels * v->in * element;
    RG_TRY(run_columns(c, s, RG_ORT_VOLUME_COLUMNS, x, s->columns));
    for (int64_t g = 0; g < v->groups; g++) {
        const int64_t dy = (image * v->groups + g) * outputs * v->out * element;
        const int64_t columns = g * rows * v->out * element, w = g * outputs * rows * element;
        const rg_ort_products p = { .shapes = shapes,
                                    .data = { (char *)c->data[0] + dy, s->columns + columns,
                                              (char *)c->data[2] + w },
                                    .results = { s->dx != NULL ? s->gradients + columns : NULL,
                                                 s->dw != NULL ? s->dw + w : NULL },
                                    .add = image > 0 };
        RG_TRY(rg_ort_multiply(c, &p));
    }
    return s->dx == NULL ? RG_OK
                         : run_columns(c, s, RG_ORT_VOLUME_SUMS, s->gradients,
                                       s->dx + image * v->channels * v->in * element);
}

/* Memory of a result: the runtime's, or, for 16-bit data, scratch. */
static rg_status result(rg_ort_computation *c, void *place, int64_t count, char **to)
{
    void *memory = place;
    if (place != NULL && rg_dtype_size(rg_ort_dtype(c->k->registered->type)) == 2)
        RG_TRY(rg_ort_scratch(c, (size_t)count * sizeof(float), &memory));
    *to = memory;
    return RG_OK;
}

static rg_status run_images(rg_ort_computation *c, work *s, void *const places[2])
{
    const rg_dtype dtype = rg_ort_dtype(c->k->registered->type);
    const int64_t counts[] = { rg_shape_count(&c->shapes[1]), rg_shape_count(&c->shapes[2]) };
    void *memory;
    int64_t bytes;
    for (int32_t i = 0; i < 3 && dtype != RG_F64; i++)
        RG_TRY(rg_ort_widen(c, i, RG_F32));
    RG_CHECK(!__builtin_mul_overflow(s->v.channels * s->v.taps * 2, s->v.out, &bytes) &&
                 !__builtin_mul_overflow(bytes, (int64_t)rg_dtype_size(s->dtype), &bytes),
             RG_INVALID_ARGUMENT, "ConvGrad: the columns of an image are too large");
    RG_TRY(rg_ort_scratch(c, (size_t)bytes, &memory));
    s->columns = memory;
    s->gradients = s->columns + bytes / 2;
    RG_TRY(result(c, places[0], counts[0], &s->dx));
    RG_TRY(result(c, places[1], counts[1], &s->dw));
    for (int64_t image = 0; image < s->v.images; image++)
        RG_TRY(run_image(c, s, image));
    for (int32_t i = 0; i < 2 && dtype != s->dtype; i++) {
        if (places[i] != NULL)
            RG_TRY(
                rg_convert(places[i], dtype, i == 0 ? s->dx : s->dw, s->dtype, (size_t)counts[i]));
    }
    return RG_OK;
}

rg_status rg_ort_run_volume(rg_ort_computation *c, bool *done)
{
    const rg_tensor_desc *dy = &c->shapes[0], *x = &c->shapes[1], *w = &c->shapes[2];
    const rg_tensor_desc bias = rg_tensor_desc_dense(x->dtype, 1, w->dims);
    work s = { .dtype = x->dtype == RG_F64 ? RG_F64 : RG_F32 };
    void *places[2], *db;
    if (x->rank != 5)
        return RG_OK;
    RG_CHECK(c->k->volume_policy >= 0, RG_INVALID_ARGUMENT,
             "ConvGrad: of volumes, kernel_shape, strides and dilations must be three numbers of 1 "
             "or more, and pads six of 0 or more");
    RG_TRY(check_volume(c, &s.v));
    RG_TRY(rg_ort_output(c, 0, x, &places[0]));
    RG_TRY(rg_ort_output(c, 1, w, &places[1]));
    RG_TRY(rg_ort_output(c, 2, &bias, &db));
    *done = true;
    RG_TRY(rg_ort_sum_bias(c, db, s.v.out));
    if (rg_shape_count(dy) > 0 && rg_shape_count(x) > 0 && rg_shape_count(w) > 0)
        return places[0] == NULL && places[1] == NULL ? RG_OK : run_images(c, &s, places);
    for (int32_t i = 0; i < 2; i++) { /* nothing is summed up */
        if (places[i] != NULL)
            memset(places[i], 0, (size_t)rg_ort_bytes(&c->shapes[1 + i], 1));
    }
    return RG_OK;
}
