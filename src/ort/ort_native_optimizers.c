/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Native nodes that update parameters, and sum gradients of several batches in place. */
#include "core/shape.h"
#include "ort/ort_launch.h"

#include <math.h>
#include <string.h>

/* ---- optimizers ---- */

/* One number of an input. */
static rg_status read_rate(const rg_ort_computation *c, double *rate)
{
    RG_CHECK(rg_shape_count(&c->shapes[0]) == 1, RG_INVALID_ARGUMENT,
             "%s: learning_rate must be one number", c->k->registered->entry->name);
    *rate = (double)*(const float *)c->data[0];
    return RG_OK;
}

/* Inputs from `first` on have the shape of the weight. */
static rg_status check_shapes(const rg_ort_computation *c, int32_t first, int32_t last)
{
    char left[RG_SHAPE_TEXT], right[RG_SHAPE_TEXT];
    for (int32_t i = first + 1; i <= last; i++)
        RG_CHECK(rg_shape_same_dims(&c->shapes[first], &c->shapes[i]), RG_INVALID_ARGUMENT,
                 "%s: weight is %s, but %s is %s", c->k->registered->entry->name,
                 rg_shape_text(&c->shapes[first], left), c->k->registered->inputs[i].name,
                 rg_shape_text(&c->shapes[i], right));
    return RG_OK;
}

static rg_status update(rg_ort_computation *c, const rg_ort_update_args *k, int32_t kernel)
{
    const rg_tensor_desc *shape = &c->shapes[1];
    const rg_ort_launch launch = { .kernel = kernel,
                                   .args = k,
                                   .size = sizeof *k,
                                   .units = rg_ort_blocks(k->count, RG_ORT_BLOCK),
                                   .bytes = rg_ort_bytes(shape, kernel == RG_ORT_ADAMW ? 7 : 3) };
    return rg_ort_run(c, &launch);
}

/* learning_rate, weight, gradient -> new_weight */
rg_status rg_ort_run_sgd(rg_ort_computation *c, bool *done)
{
    rg_ort_update_args k = { .weight = c->data[1],
                             .gradient = c->data[2],
                             .count = rg_shape_count(&c->shapes[1]) };
    RG_TRY(read_rate(c, &k.rate));
    RG_TRY(check_shapes(c, 1, 2));
    RG_TRY(rg_ort_output(c, 0, &c->shapes[1], &k.new_weight));
    *done = true;
    return update(c, &k, RG_ORT_SGD);
}

rg_status rg_ort_prepare_adamw(rg_ort_node *node, const rg_onnx_node *attributes)
{
    rg_ort_update_args *k = &node->update;
    k->alpha = rg_onnx_float(attributes, "alpha");
    k->beta = rg_onnx_float(attributes, "beta");
    k->epsilon = rg_onnx_float(attributes, "epsilon");
    k->decay = rg_onnx_float(attributes, "weight_decay");
    k->bias_1 = rg_onnx_int(attributes, "correct_bias") != 0;
    const int64_t mode = rg_onnx_int(attributes, "adam_mode");
    RG_CHECK(mode == 0 || mode == 1, RG_INVALID_ARGUMENT,
             "AdamWOptimizer: adam_mode must be 0 or 1, not %lld", (long long)mode);
    k->torch = mode == 0;
    return RG_OK;
}

/* learning_rate, step, weight, gradient, moment_1, moment_2 -> new_weight, new_moment_1,
 * new_moment_2 */
rg_status rg_ort_run_adamw(rg_ort_computation *c, bool *done)
{
    rg_ort_update_args k = c->k->update;
    RG_TRY(read_rate(c, &k.rate));
    RG_CHECK(rg_shape_count(&c->shapes[1]) == 1, RG_INVALID_ARGUMENT,
             "AdamWOptimizer: step must be one number");
    RG_TRY(check_shapes(c, 2, 5));
    const double step = (double)*(const int64_t *)c->data[1];
    RG_CHECK(step >= 1, RG_INVALID_ARGUMENT,
             "AdamWOptimizer: step must be 1 or more, as the first step is 1");
    const bool correct = k.bias_1 != 0;
    k.bias_1 = correct ? 1 - pow(k.alpha, step) : 1;
    k.bias_2 = correct ? 1 - pow(k.beta, step) : 1;
    k.weight = c->data[2];
    k.gradient = c->data[3];
    k.first = c->data[4];
    k.second = c->data[5];
    k.count = rg_shape_count(&c->shapes[2]);
    RG_TRY(rg_ort_output(c, 0, &c->shapes[2], &k.new_weight));
    RG_TRY(rg_ort_output(c, 1, &c->shapes[2], &k.new_first));
    RG_TRY(rg_ort_output(c, 2, &c->shapes[2], &k.new_second));
    *done = true;
    return update(c, &k, RG_ORT_ADAMW);
}

/* ---- sums in place ---- */

/* buffer, value, overwrite -> updated, sum: the buffer itself is changed, as the training build
 * does. */
rg_status rg_ort_run_accumulate(rg_ort_computation *c, bool *done)
{
    const int64_t one = 1;
    const rg_tensor_desc flag = rg_tensor_desc_dense(RG_U8, 1, &one);
    char left[RG_SHAPE_TEXT], right[RG_SHAPE_TEXT];
    void *updated, *sum;
    RG_CHECK(rg_shape_same_dims(&c->shapes[0], &c->shapes[1]), RG_INVALID_ARGUMENT,
             "InPlaceAccumulatorV2: the buffer is %s, but the value is %s",
             rg_shape_text(&c->shapes[0], left), rg_shape_text(&c->shapes[1], right));
    RG_CHECK(!rg_ort_has(c, 2) || rg_shape_count(&c->shapes[2]) == 1, RG_INVALID_ARGUMENT,
             "InPlaceAccumulatorV2: overwrite_flag must be one number");
    const bool overwrite = rg_ort_has(c, 2) && *(const uint8_t *)c->data[2] != 0;
    const size_t bytes = (size_t)rg_ort_bytes(&c->shapes[0], 1);
    rg_ort_update_args k = { .weight = c->data[0],
                             .gradient = c->data[1],
                             .new_weight = c->data[0],
                             .count = rg_shape_count(&c->shapes[0]) };
    RG_TRY(rg_ort_output(c, 0, &flag, &updated));
    RG_TRY(rg_ort_output(c, 1, &c->shapes[0], &sum));
    *done = true;
    if (overwrite)
        memcpy(k.new_weight, k.gradient, bytes);
    else
        RG_TRY(update(c, &k, RG_ORT_ADD));
    if (updated != NULL)
        *(uint8_t *)updated = 1;
    if (sum != NULL && sum != k.new_weight)
        memcpy(sum, k.new_weight, bytes);
    return RG_OK;
}
