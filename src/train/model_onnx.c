/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Models of ONNX files. Their text is the file without its weights, so that a checkpoint needs
 * nothing else; the weights stay with the model that was opened. */
#include "train/model_onnx.h"

#include "core/memory.h"
#include "train/base64.h"

#include <retrograde/neuron.h>

#include <stdlib.h>

static const char prefix[] = "@onnx ";

bool rg_model_is_onnx_text(const char *text)
{
    return strncmp(text, prefix, sizeof prefix - 1) == 0;
}

bool rg_model_is_onnx_path(const char *path)
{
    const size_t length = strlen(path);
    return length > 5 && strcmp(path + length - 5, ".onnx") == 0;
}

rg_status rg_model_read_onnx(rg_model *model)
{
    uint8_t *data;
    size_t size;
    rg_status status = rg_base64_read(model->text + sizeof prefix - 1, &data, &size);
    if (status != RG_OK)
        rg_error_prefix("%s: ", model->name);
    RG_TRY(status);
    status = rg_onnx_parse_stripped(model->name, data, size, &model->onnx);
    free(data);
    return status;
}

/* The model of a file: its text is that of the stripped model. */
static rg_status make(const char *path, const rg_onnx *file, int64_t classes, rg_model **model)
{
    rg_writer writer = { 0 };
    char *text = NULL;
    rg_status status = rg_onnx_strip(file, classes, &writer);
    if (status == RG_OK)
        status = rg_base64_write(prefix, writer.data, writer.size, &text);
    if (status != RG_OK)
        rg_error_prefix("%s: ", path);
    rg_writer_release(&writer);
    if (status == RG_OK)
        status = rg_model_parse(path, text, model);
    free(text);
    return status;
}

rg_status rg_model_open_onnx(const char *path, rg_model **model)
{
    rg_onnx *file;
    RG_TRY(rg_onnx_open(path, &file));
    const rg_status status = make(path, file, 0, model);
    if (status == RG_OK)
        (*model)->file = file;
    else
        rg_onnx_close(file);
    return status;
}

rg_status rg_model_replace_head(const rg_model *model, int64_t classes, rg_model **replaced)
{
    RG_TRY(make(model->name, model->onnx, classes, replaced));
    (*replaced)->file = model->file;
    (*replaced)->base = rg_model_retain(model);
    return RG_OK;
}

/* ---- what a model says of its images ---- */

/* Whether a Sigmoid makes a value, before changes of shape. */
static bool ends_with_sigmoid(rg_value *value)
{
    const rg_node *node = rg_value_node(value);
    while (node != NULL && strcmp(rg_node_op(node), "reshape") == 0)
        node = rg_value_node(node->in[0]);
    return node != NULL && strcmp(rg_node_op(node), "neuron") == 0 &&
           ((const rg_neuron_desc *)node->desc)->kind == RG_NEURON_SIGMOID;
}

/* The channels of the output, which are the classes; more than one pixel makes a mask, and a
 * Sigmoid labels of which any number holds. */
static rg_status describe_output(const rg_model *model, rg_network_desc *desc)
{
    const rg_onnx_images images = { .height = desc->height,
                                    .width = desc->width,
                                    .channels = desc->channels };
    const rg_onnx_options options = rg_onnx_options_default();
    rg_onnx_network *network;
    RG_TRY(rg_onnx_network_for_images(model->onnx, &options, &images, &network));
    const size_t count = network->entry_count; /* the output comes last */
    if (count == 0 || network->entries[count - 1].info.role != RG_ONNX_OUTPUT) {
        rg_onnx_network_destroy(network);
        return rg_fail(RG_UNSUPPORTED, "%s: the network has no output", model->name);
    }
    const rg_onnx_tensor_info *output = &network->entries[count - 1].info;
    const rg_tensor_desc *y = &output->desc;
    const int32_t channels = y->rank > 1 ? output->order[y->rank - 1] : 0;
    int64_t pixels = 1;
    for (int32_t d = 1; d < y->rank; d++)
        pixels *= d == channels ? 1 : y->dims[d];
    if (y->rank > 1 && y->dims[channels] > 0 && y->dims[channels] <= INT32_MAX) {
        desc->classes = (int32_t)y->dims[channels];
        desc->target = pixels > 1                         ? RG_TARGET_MASK
                       : ends_with_sigmoid(output->value) ? RG_TARGET_LABELS
                                                          : RG_TARGET_CLASS;
        desc->outputs = pixels > 1 ? pixels : 0;
    }
    rg_onnx_network_destroy(network);
    return RG_OK;
}

rg_status rg_model_input(const rg_model *model, int64_t *height, int64_t *width, int64_t *channels)
{
    int64_t *const sizes[] = { height, width, channels };
    RG_CHECK_NOT_NULL(model);
    for (int i = 0; i < 3; i++) {
        RG_CHECK(sizes[i] != NULL, RG_INVALID_ARGUMENT, "rg_model_input: a size is NULL");
        *sizes[i] = 0;
    }
    if (model->onnx == NULL || model->onnx->input_count != 1 || model->onnx->inputs[0].rank != 4)
        return RG_OK;
    const int64_t *dims = model->onnx->inputs[0].dims;
    /* as images have channels */
    const bool last = (dims[1] > 4 || dims[1] < 0) && dims[3] > 0 && dims[3] <= 4;
    for (int i = 0; i < 3; i++) {
        const int64_t size = dims[last ? 1 + i : i == 2 ? 1 : 2 + i];
        *sizes[i] = size > 0 ? size : 0;
    }
    return RG_OK;
}

bool rg_model_is_series(const rg_model *model, int64_t *rows, int64_t *columns)
{
    const rg_proto_port *port =
        model->onnx != NULL && model->onnx->input_count == 1 ? &model->onnx->inputs[0] : NULL;
    if (port == NULL || port->rank != 3 || port->dims[1] <= 0 || port->dims[2] <= 0)
        return false;
    *rows = port->dims[1];
    *columns = port->dims[2];
    return true;
}

rg_status rg_model_describe(const rg_model *model, rg_network_desc *desc)
{
    int64_t height, width, channels;
    rg_network_desc made;
    RG_TRY(rg_model_input(model, &height, &width, &channels));
    RG_TRY(rg_network_desc_copy(__func__, desc, &made));
    if (model->onnx == NULL)
        return RG_OK;
    made.height = height > 0 ? height : made.height;
    made.width = width > 0 ? width : made.width;
    made.channels = channels > 0 ? channels : made.channels;
    if (rg_model_is_series(model, &made.height, &made.width))
        made.channels = 1;
    RG_TRY(describe_output(model, &made));
    made.size = desc->size;
    memcpy(desc, &made, made.size); /* which may be shorter */
    return RG_OK;
}
