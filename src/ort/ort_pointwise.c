/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* ConvGrad with windows of one pixel: Y = W X for each image, so dX = W' dY and dW = sum dY X', by
 * products of matrices in the runtime's memory. */
#include "core/shape.h"
#include "ort/ort_launch.h"

#include <retrograde/matmul.h>

#include <string.h>

/* Whether an attribute is absent, or all its numbers are `value`. */
static bool all_are(const rg_onnx_node *node, const char *name, int64_t value)
{
    int64_t values[RG_ONNX_VALUES];
    const int32_t count = rg_onnx_ints(node, name, values);
    for (int32_t i = 0; i < count; i++) {
        if (values[i] != value)
            return false;
    }
    return true;
}

rg_status rg_ort_prepare_conv(rg_ort_node *node, const rg_onnx_node *attributes)
{
    static const char *const policies[] = { "NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER", NULL };
    int32_t policy;
    RG_TRY(rg_onnx_word(attributes, "auto_pad", policies, &policy));
    rg_ort_prepare_small_conv(node, attributes, policy == 0);
    rg_ort_prepare_volume(node, attributes, policy);
    node->pointwise = policy == 0 && all_are(attributes, "kernel_shape", 1) &&
                      all_are(attributes, "strides", 1) && all_are(attributes, "dilations", 1) &&
                      all_are(attributes, "pads", 0) && rg_onnx_int(attributes, "group") == 1;
    return RG_OK;
}

/* dY (n, o, d...), X (n, i, d...), W (o, i, 1...), all with elements. */
static bool fits(const rg_ort_computation *c)
{
    const rg_tensor_desc *dy = &c->shapes[0], *x = &c->shapes[1], *w = &c->shapes[2];
    bool fits = c->k->pointwise && x->rank >= 3 && dy->rank == x->rank && w->rank == x->rank &&
                dy->dims[0] == x->dims[0] && dy->dims[1] == w->dims[0] &&
                w->dims[1] == x->dims[1] && rg_shape_count(x) > 0 && rg_shape_count(w) > 0;
    for (int32_t d = 2; d < x->rank && fits; d++)
        fits = dy->dims[d] == x->dims[d] && w->dims[d] == 1;
    return fits;
}

rg_status rg_ort_sum_bias(rg_ort_computation *c, void *db, int64_t pixels)
{
    const rg_ort_batch_norm_args k = { .dy = c->data[0],
                                       .dbias = db,
                                       .images = c->shapes[0].dims[0],
                                       .channels = c->shapes[0].dims[1],
                                       .pixels = pixels };
    const rg_ort_launch launch = { .kernel = RG_ORT_CHANNEL_SUMS,
                                   .args = &k,
                                   .size = sizeof k,
                                   .units = k.channels,
                                   .bytes = rg_ort_bytes(&c->shapes[0], 1) };
    return db != NULL ? rg_ort_run(c, &launch) : RG_OK;
}

static rg_status record(rg_ort_computation *c, rg_commands *commands, rg_tensor *const in[3],
                        rg_tensor *const out[2], bool add)
{
    const rg_matmul_desc desc = rg_matmul_desc_default();
    rg_kernel *kernel;
    rg_tensor *const x[] = { in[2], in[1] }, *dx[] = { out[1], out[0] };
    RG_TRY(rg_matmul_create(c->k->device, &desc, &kernel));
    const rg_status status = rg_kernel_gradient(kernel, commands, in, x, NULL, NULL, dx, add);
    rg_kernel_destroy(kernel);
    return status;
}

rg_status rg_ort_multiply(rg_ort_computation *c, const rg_ort_products *p)
{
    rg_commands *commands = NULL;
    rg_tensor *in[3] = { NULL }, *out[2] = { NULL };
    rg_status status = rg_commands_create(c->k->queue, &commands);
    for (int32_t i = 0; i < 3 && status == RG_OK; i++)
        status = rg_tensor_wrap(c->k->device, &p->shapes[i], p->data[i], NULL, NULL, &in[i]);
    for (int32_t i = 0; i < 2 && status == RG_OK; i++) {
        if (p->results[i] != NULL)
            status =
                rg_tensor_wrap(c->k->device, &p->shapes[i + 1], p->results[i], NULL, NULL, &out[i]);
    }
    if (status == RG_OK)
        status = record(c, commands, in, out, p->add);
    if (status == RG_OK)
        status = rg_commands_commit(commands);
    if (status == RG_OK)
        status = rg_commands_wait(commands);
    for (int32_t i = 0; i < 3; i++)
        rg_tensor_destroy(in[i]);
    for (int32_t i = 0; i < 2; i++)
        rg_tensor_destroy(out[i]);
    rg_commands_destroy(commands);
    return status;
}

rg_status rg_ort_run_conv(rg_ort_computation *c, bool *done)
{
    RG_TRY(rg_ort_run_small_conv(c, done));
    if (*done)
        return RG_OK;
    if (!fits(c))
        return rg_ort_run_volume(c, done);
    const rg_tensor_desc *x = &c->shapes[1], *w = &c->shapes[2];
    const int64_t pixels = rg_ort_product(x, 2, x->rank), images = x->dims[0];
    const rg_tensor_desc shapes[] = {
        rg_tensor_desc_dense(x->dtype, 3, (int64_t[]){ images, w->dims[0], pixels }),
        rg_tensor_desc_dense(x->dtype, 3, (int64_t[]){ images, w->dims[1], pixels }),
        rg_tensor_desc_dense(x->dtype, 2, w->dims), rg_tensor_desc_dense(x->dtype, 1, w->dims)
    };
    rg_ort_products p = { .shapes = shapes, .data = { c->data[0], c->data[1], c->data[2] } };
    void *db;
    RG_TRY(rg_ort_output(c, 0, x, &p.results[0]));
    RG_TRY(rg_ort_output(c, 1, w, &p.results[1]));
    RG_TRY(rg_ort_output(c, 2, &shapes[3], &db));
    *done = true;
    if (p.results[0] != NULL || p.results[1] != NULL)
        RG_TRY(rg_ort_multiply(c, &p));
    return rg_ort_sum_bias(c, db, pixels);
}
