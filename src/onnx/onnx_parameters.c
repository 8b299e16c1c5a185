/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Which tensors are parameters. What masks are made of is none. Exporters merge equal tensors:
 * before any training the statistics of a batch normalization are the ones and zeros of its own
 * scale and bias. Training changes all of them, so statistics that something else uses become
 * tensors of their own here, with the same elements. */
#include "onnx/onnx_train.h"

#include <stdio.h>
#include <string.h>

/* ---- tensors that are no parameters ---- */

/* Whether a tensor adds nothing or minus a hundred and more to a matrix of scores: a mask of
 * attention, as exporters fold it. */
static bool is_mask(const rg_onnx *model, const rg_proto_tensor *tensor)
{
    enum { MOST = 1 << 20 }; /* elements; larger matrices are weights */
    const int32_t r = tensor->rank;
    void *data;
    size_t bytes;
    bool some = false, none = false, mask = true;
    if (r < 2 || tensor->dims[r - 1] != tensor->dims[r - 2] || tensor->type != RG_ONNX_FLOAT ||
        tensor->count > MOST || rg_proto_elements(model, tensor, &data, &bytes) != RG_OK)
        return false;
    for (int64_t i = 0; i < tensor->count && mask; i++) {
        const float x = ((const float *)data)[i];
        some |= x == 0;
        none |= x <= -100;
        mask = x == 0 || x <= -100;
    }
    rg_release(&rg_default_allocator, data, bytes);
    return mask && some && none;
}

/* The tensor of a Constant node; NULL for other nodes. */
static rg_proto_tensor *constant_of(const rg_proto_node *node)
{
    return strcmp(node->type, "Constant") == 0 && node->output_count == 1 &&
                   node->attribute_count == 1 && node->attributes[0].type == RG_PROTO_TENSOR
               ? node->attributes[0].tensor
               : NULL;
}

static bool is_scatter(const rg_proto_node *node)
{
    return strcmp(node->type, "ScatterND") == 0 && node->input_count == 3;
}

/* A value that ScatterND writes. */
typedef struct scattered {
    rg_proto_tensor *tensor; /* NULL: it is computed */
    bool is_shared;          /* something else reads it */
} scattered;

static rg_status name_scattered(rg_onnx *model, rg_names *names)
{
    for (size_t i = 0; i < model->node_count; i++) {
        const rg_proto_node *node = &model->nodes[i];
        scattered *made = NULL;
        if (!is_scatter(node) || rg_names_find(names, node->inputs[2]) != NULL)
            continue;
        RG_TRY(rg_arena_take(&model->arena, 1, sizeof *made, &made));
        *made = (scattered){ NULL, false };
        RG_TRY(rg_names_add(names, node->inputs[2], made));
    }
    return RG_OK;
}

static void find_scattered(rg_onnx *model, const rg_names *names)
{
    scattered *found;
    for (size_t i = 0; i < model->node_count; i++) {
        const rg_proto_node *node = &model->nodes[i];
        rg_proto_tensor *tensor = constant_of(node);
        if (tensor != NULL && (found = rg_names_find(names, node->outputs[0])) != NULL)
            found->tensor = tensor;
        for (size_t k = 0; k < node->input_count; k++) {
            if ((k != 2 || !is_scatter(node)) &&
                (found = rg_names_find(names, node->inputs[k])) != NULL)
                found->is_shared = true;
        }
    }
    for (size_t i = 0; i < model->initializer_count; i++) {
        if ((found = rg_names_find(names, model->initializers[i].name)) != NULL)
            found->tensor = &model->initializers[i];
    }
}

/* What only the code that makes masks reads. */
static rg_status mark_scattered(rg_onnx *model, rg_names *names)
{
    RG_TRY(name_scattered(model, names));
    if (names->used == 0)
        return RG_OK;
    find_scattered(model, names);
    for (size_t i = 0; i < model->node_count; i++) {
        const rg_proto_node *node = &model->nodes[i];
        const scattered *found = is_scatter(node) ? rg_names_find(names, node->inputs[2]) : NULL;
        if (found != NULL && found->tensor != NULL && !found->is_shared)
            found->tensor->constant = true;
    }
    return RG_OK;
}

/* Masks, and what the code that makes masks puts into them. */
static rg_status mark_constants(rg_onnx *model)
{
    rg_names names = { 0 };
    for (size_t i = 0; i < model->initializer_count; i++)
        model->initializers[i].constant = is_mask(model, &model->initializers[i]);
    for (size_t i = 0; i < model->node_count; i++) {
        rg_proto_tensor *tensor = constant_of(&model->nodes[i]);
        if (tensor != NULL)
            tensor->constant = is_mask(model, tensor);
    }
    const rg_status status = mark_scattered(model, &names);
    rg_names_clear(&names);
    return status;
}

/* ---- merged statistics ---- */

/* A tensor by its names: its own, and those that Identity gives it. */
typedef struct root {
    const rg_proto_tensor *tensor;
    int32_t uses;
} root;

typedef struct search {
    rg_onnx *model;
    rg_names roots;
    size_t count; /* of tensors that are added */
} search;

static rg_status add_root(search *s, const char *name, const rg_proto_tensor *tensor)
{
    root *made = NULL;
    if (rg_names_find(&s->roots, name) != NULL)
        return RG_OK; /* which the import refuses */
    RG_TRY(rg_arena_take(&s->model->arena, 1, sizeof *made, &made));
    made->tensor = tensor;
    return rg_names_add(&s->roots, name, made);
}

static bool is_norm(const rg_proto_node *node)
{
    return strcmp(node->type, "BatchNormalization") == 0 && node->input_count == 5 &&
           node->output_count > 0 && node->outputs[0][0] != 0;
}

static rg_status count_uses(search *s, const rg_proto_node *node)
{
    const bool one = node->output_count == 1 && node->outputs[0][0] != 0;
    root *used = node->input_count > 0 ? rg_names_find(&s->roots, node->inputs[0]) : NULL;
    if (one && strcmp(node->type, "Constant") == 0 && node->attribute_count == 1 &&
        node->attributes[0].type == RG_PROTO_TENSOR)
        return add_root(s, node->outputs[0], node->attributes[0].tensor);
    if (one && used != NULL && strcmp(node->type, "Identity") == 0)
        return rg_names_find(&s->roots, node->outputs[0]) == NULL
                   ? rg_names_add(&s->roots, node->outputs[0], used)
                   : RG_OK;
    for (size_t i = 0; i < node->input_count; i++) {
        used = rg_names_find(&s->roots, node->inputs[i]);
        if (used != NULL)
            used->uses++;
    }
    return RG_OK;
}

static const root *shared_statistic(const search *s, const rg_proto_node *node, size_t input)
{
    const root *used = is_norm(node) ? rg_names_find(&s->roots, node->inputs[input]) : NULL;
    return used != NULL && used->uses > 1 && !rg_type_is_integer(used->tensor->type) ? used : NULL;
}

static rg_status make_own(search *s, rg_proto_node *node, size_t input)
{
    const root *used = shared_statistic(s, node, input);
    rg_onnx *model = s->model;
    char wanted[RG_OWN_NAME], name[RG_OWN_NAME], *copy;
    if (used == NULL)
        return RG_OK;
    snprintf(wanted, sizeof wanted, "%.200s.%s", node->outputs[0],
             input == 3 ? "running_mean" : "running_var");
    rg_onnx_own_name(model, wanted, name);
    RG_TRY(rg_arena_text(&model->arena, name, strlen(name), &copy));
    rg_proto_tensor *made = &model->initializers[model->initializer_count++];
    *made = *used->tensor;
    made->source = used->tensor->name[0] != 0 ? used->tensor->name : node->inputs[input];
    made->name = copy;
    RG_TRY(rg_onnx_name(model, copy, NULL));
    node->inputs[input] = copy;
    node->renamed = true;
    return RG_OK;
}

static rg_status split(search *s)
{
    rg_onnx *model = s->model;
    rg_proto_tensor *all = NULL;
    for (size_t i = 0; i < model->initializer_count; i++)
        RG_TRY(add_root(s, model->initializers[i].name, &model->initializers[i]));
    for (size_t i = 0; i < model->node_count; i++)
        RG_TRY(count_uses(s, &model->nodes[i]));
    for (size_t i = 0; i < model->node_count; i++) {
        for (size_t input = 3; input < 5; input++)
            s->count += shared_statistic(s, &model->nodes[i], input) != NULL ? 1 : 0;
    }
    if (s->count == 0)
        return RG_OK;
    RG_TRY(rg_arena_take(&model->arena, model->initializer_count + s->count, sizeof *all, &all));
    memcpy(all, model->initializers, model->initializer_count * sizeof *all);
    model->initializers = all;
    for (size_t i = 0; i < model->node_count; i++) {
        RG_TRY(make_own(s, &model->nodes[i], 3));
        RG_TRY(make_own(s, &model->nodes[i], 4));
    }
    return RG_OK;
}

rg_status rg_onnx_settle_tensors(rg_onnx *model)
{
    search s = { .model = model };
    bool any = false;
    RG_TRY(mark_constants(model));
    for (size_t i = 0; i < model->node_count; i++)
        any |= is_norm(&model->nodes[i]);
    const rg_status status = any ? split(&s) : RG_OK;
    rg_names_clear(&s.roots);
    return status;
}
