/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The head of a model: the product or convolution that its first output ends with, and what that
 * output is computed from. */
#include "onnx/onnx_train.h"

#include <stdio.h>
#include <string.h>

/* Stands for all initializers among the nodes that `names` of a model leads to. */
static const rg_proto_node initializer;

rg_status rg_onnx_name(rg_onnx *model, const char *name, rg_proto_node *maker)
{
    return name[0] != 0 && rg_names_find(&model->names, name) == NULL
               ? rg_names_add(&model->names, name,
                              maker != NULL ? maker : (void *)(uintptr_t)&initializer)
               : RG_OK;
}

rg_status rg_onnx_index_names(rg_onnx *model)
{
    for (size_t i = 0; i < model->node_count; i++) {
        for (size_t k = 0; k < model->nodes[i].output_count; k++)
            RG_TRY(rg_onnx_name(model, model->nodes[i].outputs[k], &model->nodes[i]));
    }
    for (size_t i = 0; i < model->initializer_count; i++)
        RG_TRY(rg_onnx_name(model, model->initializers[i].name, NULL));
    return RG_OK;
}

const rg_proto_node *rg_onnx_maker(const rg_onnx *model, const char *name)
{
    const rg_proto_node *found = rg_names_find(&model->names, name);
    return found != &initializer ? found : NULL;
}

rg_status rg_onnx_needed(const rg_onnx *model, rg_names *needed)
{
    static char here;
    if (model->output_count > 0)
        RG_TRY(rg_names_add(needed, model->outputs[0].name, &here));
    for (size_t i = model->node_count; i-- > 0;) {
        const rg_proto_node *node = &model->nodes[i];
        for (size_t k = 0; k < node->input_count && rg_onnx_is_needed(node, needed); k++) {
            if (node->inputs[k][0] != 0 && rg_names_find(needed, node->inputs[k]) == NULL)
                RG_TRY(rg_names_add(needed, node->inputs[k], &here));
        }
    }
    return RG_OK;
}

bool rg_onnx_is_needed(const rg_proto_node *node, const rg_names *needed)
{
    bool any = false;
    for (size_t k = 0; k < node->output_count; k++)
        any |= node->outputs[k][0] != 0 && rg_names_find(needed, node->outputs[k]) != NULL;
    return any;
}

void rg_onnx_own_name(const rg_onnx *model, const char *wanted, char name[RG_OWN_NAME])
{
    size_t length = (size_t)snprintf(name, RG_OWN_NAME, "%s", wanted);
    while (model != NULL && length + 1 < RG_OWN_NAME &&
           rg_names_find(&model->names, name) != NULL) {
        name[length++] = '_';
        name[length] = 0;
    }
}

/* What errors call a node that may have no name: its first output, as elsewhere. */
static const char *name_of(const rg_proto_node *node)
{
    return node->name[0] != 0 || node->output_count == 0 ? node->name : node->outputs[0];
}

static const rg_proto_tensor *initializer_of(const rg_onnx *model, const char *name)
{
    for (size_t i = 0; i < model->initializer_count; i++) {
        if (strcmp(model->initializers[i].name, name) == 0)
            return &model->initializers[i];
    }
    return NULL;
}

static int32_t readers_of(const rg_onnx *model, const char *name)
{
    int32_t count = 0;
    for (size_t i = 0; i < model->node_count; i++) {
        for (size_t k = 0; k < model->nodes[i].input_count; k++)
            count += strcmp(model->nodes[i].inputs[k], name) == 0;
    }
    return count;
}

/* Operators after the head that work with any number of channels. */
static bool passes(const char *type)
{
    static const char *const types[] = {
        "Softmax",           "LogSoftmax",  "Sigmoid",    "Flatten",  "Reshape", "Squeeze",
        "Unsqueeze",         "Identity",    "Dropout",    "Cast",     "Relu",    "Clip",
        "GlobalAveragePool", "AveragePool", "ReduceMean", "Transpose"
    };
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        if (strcmp(types[i], type) == 0)
            return true;
    }
    return false;
}

static rg_status take_bias(const rg_onnx *model, const rg_proto_tensor *bias, rg_onnx_head *head)
{
    head->b = bias;
    head->b_axis = bias->rank - 1;
    for (int32_t d = 0; d < bias->rank && head->classes > 1; d++) {
        if (bias->dims[d] == head->classes)
            head->b_axis = d;
    }
    if (head->classes == 1 &&
        bias->rank >= head->w->rank - 1) /* the dimensions after it are those of pixels */
        head->b_axis = bias->rank - (head->w->rank - 1);
    RG_CHECK(readers_of(model, bias->name) == 1, RG_UNSUPPORTED,
             "the last layer cannot be replaced: its bias '%.80s' is shared", bias->name);
    RG_CHECK(bias->rank > 0 && bias->count == head->classes, RG_UNSUPPORTED,
             "the last layer cannot be replaced: its bias '%.80s' has %lld elements for %lld "
             "channels",
             bias->name, (long long)bias->count, (long long)head->classes);
    return RG_OK;
}

static rg_status take_weights(const rg_onnx *model, const rg_proto_node *node,
                              const rg_proto_tensor *bias, rg_onnx_head *head)
{
    const bool gemm = strcmp(node->type, "Gemm") == 0, conv = strcmp(node->type, "Conv") == 0;
    int64_t out_first = conv, group = 1;
    RG_CHECK(node->input_count >= 2, RG_MALFORMED, "node '%.80s' has no weights", name_of(node));
    head->w = initializer_of(model, node->inputs[1]);
    if (gemm)
        RG_TRY(rg_attribute_int(node, "transB", &out_first));
    if (conv)
        RG_TRY(rg_attribute_int(node, "group", &group));
    RG_CHECK(head->w != NULL && head->w->rank >= 2 && (conv || head->w->rank == 2) && group == 1 &&
                 readers_of(model, node->inputs[1]) == 1,
             RG_UNSUPPORTED,
             "the last layer, node '%.80s' (%.40s), cannot be replaced: its weights are computed, "
             "shared or grouped",
             name_of(node), node->type);
    head->w_axis = out_first != 0 ? 0 : 1;
    head->classes = head->w->dims[head->w_axis];
    if (node->input_count > 2 && node->inputs[2][0] != 0) {
        RG_CHECK(bias == NULL, RG_UNSUPPORTED,
                 "the last layer cannot be replaced: node '%.80s' has a bias, and another one is "
                 "added",
                 name_of(node));
        bias = initializer_of(model, node->inputs[2]);
        RG_CHECK(
            bias != NULL && readers_of(model, node->inputs[2]) == 1, RG_UNSUPPORTED,
            "the last layer cannot be replaced: the bias of node '%.80s' is computed or shared",
            name_of(node));
    }
    return bias != NULL ? take_bias(model, bias, head) : RG_OK;
}

rg_status rg_onnx_find_head(const rg_onnx *model, rg_onnx_head *head)
{
    enum { MOST_STEPS = 64 };
    const rg_proto_tensor *bias = NULL;
    const char *name = model->output_count > 0 ? model->outputs[0].name : "";
    *head = (rg_onnx_head){ .w = NULL };
    for (int step = 0; step < MOST_STEPS; step++) {
        const rg_proto_node *node = rg_onnx_maker(model, name);
        RG_CHECK(node != NULL, RG_UNSUPPORTED,
                 "there is no last layer to replace: no node makes '%.80s'", name);
        if (strcmp(node->type, "Gemm") == 0 || strcmp(node->type, "MatMul") == 0 ||
            strcmp(node->type, "Conv") == 0)
            return take_weights(model, node, bias, head);
        const bool add = strcmp(node->type, "Add") == 0 && node->input_count == 2 && bias == NULL;
        const rg_proto_tensor *added[2] = { NULL, NULL };
        for (int i = 0; add && i < 2; i++)
            added[i] = initializer_of(model, node->inputs[i]);
        const bool biased = add && (added[0] != NULL) != (added[1] != NULL);
        RG_CHECK((passes(node->type) || biased) && node->input_count > 0, RG_UNSUPPORTED,
                 "there is no last layer to replace: the network ends with node '%.80s' (%.40s), "
                 "which no Gemm, MatMul or Conv comes before",
                 name_of(node), node->type);
        bias = biased ? (added[0] != NULL ? added[0] : added[1]) : bias;
        name = node->inputs[biased && added[0] != NULL ? 1 : 0];
    }
    return rg_fail(RG_UNSUPPORTED, "there is no last layer to replace");
}
