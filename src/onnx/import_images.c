/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Networks that read images with channels last: the input of the file is made from them, and the
 * output ends before what the loss applies itself. */
#include "onnx/onnx_train.h"

#include "core/dtype.h"
#include "core/shape.h"

#include <retrograde/softmax.h>

#include <stdio.h>
#include <string.h>

bool rg_onnx_has_channels_last(const rg_onnx *model, int64_t channels)
{
    const rg_proto_port *port = &model->inputs[0];
    return port->rank == 4 && port->dims[1] != channels && port->dims[3] == channels;
}

/* ---- the input ---- */

rg_status rg_onnx_check_input(const rg_onnx *model)
{
    char names[160];
    size_t length = 0;
    names[0] = 0;
    for (size_t i = 0; i < model->input_count && length < sizeof names; i++)
        length += (size_t)snprintf(names + length, sizeof names - length, "%s'%.40s'",
                                   i > 0 ? ", " : "", model->inputs[i].name);
    RG_CHECK(model->input_count == 1, RG_UNSUPPORTED,
             "the network has %zu inputs%s%s; to train or predict, a model has one input, the "
             "images; use 'run' for others",
             model->input_count, model->input_count > 0 ? ": " : "", names);
    return RG_OK;
}

/* Whether the elements of an image, in the order channels, rows, columns, are those of the input
 * one after the other: with several channels no dimension may go across two of them, and (steps,
 * values) are not (values, steps). */
static bool is_in_order(const rg_tensor_desc *input, const rg_onnx_images *images)
{
    const int64_t h = images->height, w = images->width, c = images->channels;
    int64_t before = 1, longer[RG_MAX_RANK];
    int32_t count = 0;
    bool regular = true;
    for (int32_t d = 1; d < input->rank; d++) {
        regular &= before == 1 || before == c || before == c * h || before == c * h * w;
        before *= input->dims[d];
        if (input->dims[d] != 1)
            longer[count++] = input->dims[d];
    }
    const bool swapped = count == 2 && longer[0] == w && longer[1] == h && h != w;
    return c == 1 ? !swapped : regular;
}

/* The shape of the input for these images, dimensions in the order of the file. */
static rg_status input_shape(const rg_onnx *model, const rg_onnx_images *images,
                             rg_tensor_desc *input)
{
    RG_TRY(rg_onnx_check_input(model));
    const rg_proto_port *port = &model->inputs[0];
    const int64_t h = images->height, w = images->width, c = images->channels;
    const bool last = rg_onnx_has_channels_last(model, c);
    const int64_t first[] = { RG_ONNX_ANY_DIM, c, h, w },
                  channels_last[] = { RG_ONNX_ANY_DIM, h, w, c };
    input->dtype = RG_F32;
    input->rank = port->rank < 0 ? 4 : port->rank;
    if (input->rank == 4) {
        memcpy(input->dims, last ? channels_last : first, sizeof first);
    } else {
        int64_t count = 1;
        input->dims[0] = RG_ONNX_ANY_DIM;
        for (int32_t d = 1; d < port->rank; d++) {
            input->dims[d] = port->dims[d] > 0 ? port->dims[d] : h * w * c;
            RG_CHECK(!__builtin_mul_overflow(count, input->dims[d], &count), RG_UNSUPPORTED,
                     "input '%.80s' has too many elements", port->name);
        }
        RG_CHECK(port->rank >= 2 && count == h * w * c, RG_INVALID_ARGUMENT,
                 "input '%.80s' of the network has %lld elements, but images of %lldx%lld pixels "
                 "and %lld channels have %lld",
                 port->name, (long long)count, (long long)h, (long long)w, (long long)c,
                 (long long)(h * w * c));
        RG_CHECK(is_in_order(input, images), RG_INVALID_ARGUMENT,
                 "dimensions 1 and 2 of input '%.80s' of the network are %lld and %lld, but images "
                 "have %lld channels, %lld rows and %lld columns, in this order",
                 port->name, (long long)input->dims[1],
                 (long long)(input->rank > 2 ? input->dims[2] : 1), (long long)c, (long long)h,
                 (long long)w);
    }
    for (int32_t d = 1; d < input->rank && port->rank == 4; d++)
        RG_CHECK(
            port->dims[d] < 0 || port->dims[d] == input->dims[d], RG_INVALID_ARGUMENT,
            "the network takes images of %lldx%lld pixels with %lld channels, not of %lldx%lld "
            "with %lld",
            (long long)port->dims[last ? 1 : 2], (long long)port->dims[last ? 2 : 3],
            (long long)port->dims[last ? 3 : 1], (long long)h, (long long)w, (long long)c);
    return RG_OK;
}

rg_status rg_import_image_source(rg_import *m, rg_known *known, rg_dtype dtype)
{
    static const int32_t last[] = { 0, 2, 3, 1 };
    const rg_onnx_images *images = m->for_images;
    rg_flow *flow = &known->flow;
    char name[RG_OWN_NAME];
    rg_flow_plain_order(flow);
    for (int32_t p = 0; p < RG_PROBES; p++) {
        const int64_t dims[] = { known->shape[p].dims[0], images->height, images->width,
                                 images->channels };
        flow->shape[p] = rg_tensor_desc_dense(dtype, 4, dims);
    }
    rg_onnx_own_name(m->model, "images", name);
    flow->value = rg_graph_source(m->graph, name);
    RG_TRY(rg_graph_status(m->graph));
    if (known->is_bytes)
        RG_TRY(rg_flow_neuron(m, flow, RG_NEURON_LINEAR, (const double[]){ 255, 0 }, 2));
    if (rg_onnx_has_channels_last(m->model, images->channels))
        return RG_OK;
    memcpy(flow->order, last, sizeof last);
    if (known->shape[0].rank == 4)
        return RG_OK;
    static const int32_t plain[] = { 0, 1, 2, 3 };
    int64_t dims[RG_PROBES][RG_MAX_RANK];
    for (int32_t p = 0; p < RG_PROBES; p++)
        memcpy(dims[p], known->shape[p].dims, sizeof dims[p]);
    RG_TRY(rg_flow_reorder(m, flow, plain));
    return rg_flow_reshape(m, flow, known->shape[0].rank, dims);
}

/* ---- the output ---- */

/* Whether changes of shape, at least one, are all that follows the node before the first output. */
static bool is_reshaped_to_output(const rg_onnx *model, const rg_proto_node *node)
{
    static const char *const types[] = { "Flatten", "Reshape", "Squeeze", "Unsqueeze", "Identity" };
    enum { MOST_STEPS = 16, TYPES = sizeof types / sizeof types[0] };
    const char *name = model->output_count > 0 ? model->outputs[0].name : "";
    for (int step = 0; step < MOST_STEPS; step++) {
        const rg_proto_node *maker = rg_onnx_maker(model, name);
        size_t i = 0;
        if (maker == node)
            return step > 0;
        while (maker != NULL && i < TYPES && strcmp(types[i], maker->type) != 0)
            i++;
        if (maker == NULL || i == TYPES || maker->input_count == 0)
            return false;
        name = maker->inputs[0];
    }
    return false;
}

/* Whether a softmax has all elements of an image in one group. */
static bool spans_image(const rg_import *m, const rg_proto_node *node)
{
    const rg_known *known = rg_names_find(&m->names, node->inputs[0]);
    const bool old = m->model->opset < 13;
    int64_t axis = old ? 1 : -1;
    int32_t along;
    if (known == NULL || rg_attribute_int(node, "axis", &axis) != RG_OK ||
        rg_axis("attribute 'axis'", axis, known->shape[0].rank, &along) != RG_OK || along == 0)
        return false;
    for (int32_t d = 1; d < known->shape[0].rank; d++) {
        if (known->shape[0].dims[d] > 1 && d != along && !(old && d > along))
            return false;
    }
    return true;
}

bool rg_import_is_left_out(const rg_import *m, const rg_proto_node *node)
{
    const rg_onnx_images *images = m->for_images;
    if (images == NULL)
        return false;
    const bool softmax = images->without_softmax && (strcmp(node->type, "Softmax") == 0 ||
                                                     strcmp(node->type, "LogSoftmax") == 0);
    const bool sigmoid = images->without_sigmoid && strcmp(node->type, "Sigmoid") == 0;
    return (softmax || sigmoid) && is_reshaped_to_output(m->model, node) &&
           (sigmoid || spans_image(m, node));
}

/* Whether the output has the pixels of the images, with channels last as they have in the file. */
static bool is_channels_last(const rg_import *m, const rg_flow *flow)
{
    const rg_onnx_images *images = m->for_images;
    int64_t dims[RG_MAX_RANK];
    if (rg_flow_rank(flow) != 4 || !rg_onnx_has_channels_last(m->model, images->channels))
        return false;
    rg_flow_dims(flow, 0, dims);
    return dims[1] == images->height && dims[2] == images->width &&
           (dims[2] != images->height || dims[3] != images->width);
}

/* Whether the node is a softmax over the channels of its output, a dimension of the file; or over
 * all of an image. */
static bool is_softmax_of_channels(const rg_node *node, const rg_flow *flow, int32_t channels)
{
    if (node == NULL || strcmp(rg_node_op(node), "softmax") != 0)
        return false;
    const rg_softmax_desc *desc = node->desc;
    const int32_t rank = rg_flow_rank(flow);
    const int64_t axis = desc->axis < 0 ? desc->axis + rank : desc->axis;
    bool alone = true; /* the group is all of an image */
    for (int32_t d = 0; d < rank; d++)
        alone &= flow->order[d] == 0 || d == axis || (desc->flatten && d > axis) ||
                 flow->shape[0].dims[d] == 1;
    return flow->order[axis] != 0 && (alone || (flow->order[axis] == channels && !desc->flatten));
}

rg_status rg_import_image_output(rg_import *m, rg_flow *flow)
{
    const rg_onnx_images *images = m->for_images;
    int32_t order[RG_MAX_RANK] = { 0, 1, 2, 3 };
    const rg_node *node = rg_value_node(flow->value);
    const bool last = is_channels_last(m, flow);
    const bool softmax = is_softmax_of_channels(node, flow, last ? 3 : 1);
    const bool sigmoid = node != NULL && strcmp(rg_node_op(node), "neuron") == 0 &&
                         ((const rg_neuron_desc *)node->desc)->kind == RG_NEURON_SIGMOID;
    if ((softmax && images->without_softmax) || (sigmoid && images->without_sigmoid))
        flow->value = node->in[0];
    if (!last)
        rg_channels_last_order(rg_flow_rank(flow), order);
    return rg_flow_reorder(m, flow, order);
}

bool rg_import_is_frozen(const rg_import *m, const char *name)
{
    const rg_onnx_images *images = m->for_images;
    return images != NULL && images->is_frozen != NULL && images->is_frozen(images->context, name);
}

rg_status rg_onnx_network_for_images(const rg_onnx *model, const rg_onnx_options *options,
                                     const rg_onnx_images *images, rg_onnx_network **network)
{
    rg_onnx_options with = *options;
    rg_tensor_desc input;
    *network = NULL;
    const rg_status status = input_shape(model, images, &input);
    if (status != RG_OK)
        rg_error_prefix("%s: ", model->name);
    RG_TRY(status);
    with.inputs = &input;
    return rg_onnx_import(model, &with, images, network);
}
