/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Steps of optimizers: a node with its moments, from the names that the op has for them. */
#include "graph/graph.h"

#include "ops/ops.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct update {
    rg_graph *graph;
    rg_value *parameter; /* as the network reads it */
    rg_value *master;    /* as the optimizer changes it: the same, or in f32 */
    rg_value *gradient, *rate, *step, *scale;
} update;

/* A parameter "<name>.<suffix>" in the shape of the optimizer's own. */
static rg_value *beside(const update *u, const char *suffix)
{
    char *name = NULL;
    const rg_value *p = u->parameter;
    const rg_dtype dtype = p->desc.dtype == RG_F64 ? RG_F64 : RG_F32;
    const rg_tensor_desc desc = rg_tensor_desc_dense(dtype, p->desc.rank, p->desc.dims);
    if (asprintf(&name, "%s.%s", p->name, suffix) < 0) {
        rg_graph_mistake(u->graph, rg_fail(RG_OUT_OF_MEMORY, "out of memory for a name"));
        return NULL;
    }
    rg_value *value = rg_graph_parameter(u->graph, name, &desc);
    free(name);
    return value;
}

static bool is(const char *a, const char *b)
{
    return strcmp(a, b) == 0;
}

static rg_value *input_of(const update *u, const char *name)
{
    return is(name, "parameter")  ? u->master
           : is(name, "gradient") ? u->gradient
           : is(name, "rate")     ? u->rate
           : is(name, "step")     ? u->step
           : is(name, "scale")    ? u->scale
                                  : beside(u, name);
}

/* "new_<input>" is assigned to that input, "copy" to the parameter of the network. */
static rg_status assign_outputs(const update *u, const rg_op *op, rg_node *node)
{
    const char *const *inputs = rg_op_input_names(op, node->desc);
    const char *const *outputs = rg_op_output_names(op, node->desc);
    for (int32_t j = 0; j < node->outputs; j++) {
        if (is(outputs[j], "copy"))
            RG_TRY(rg_graph_assign(u->graph, u->parameter, node->out[j]));
        for (int32_t i = 0; i < node->inputs; i++) {
            if (strncmp(outputs[j], "new_", 4) == 0 && is(outputs[j] + 4, inputs[i]))
                RG_TRY(rg_graph_assign(u->graph, node->in[i], node->out[j]));
        }
    }
    return RG_OK;
}

static rg_status add_update(update *u, const char *name, const void *from, rg_node **node)
{
    _Alignas(16) char desc[RG_MAX_DESC];
    const rg_op *op;
    const rg_op_name *other;
    rg_value *x[RG_MAX_INPUTS] = { NULL };
    RG_CHECK(name != NULL && from != NULL && u->parameter != NULL && u->gradient != NULL,
             RG_INVALID_ARGUMENT, "rg_graph_update: an argument is NULL");
    RG_TRY(rg_op_find(name, &op, &other));
    RG_TRY(rg_graph_check_desc(op, from, desc));
    RG_CHECK(u->parameter->graph == u->graph, RG_INVALID_ARGUMENT,
             "rg_graph_update: the parameter belongs to another graph");
    const char *const *inputs = rg_op_input_names(op, desc);
    RG_CHECK(op->updates, RG_INVALID_ARGUMENT, "rg_graph_update: %s is not an optimizer", op->name);
    RG_CHECK(u->parameter->kind == RG_VALUE_PARAMETER, RG_INVALID_ARGUMENT,
             "rg_graph_update: only parameters can be updated");
    const bool halves = rg_dtype_size(u->parameter->desc.dtype) == 2;
    u->master = halves ? beside(u, "master") : u->parameter;
    for (int32_t i = 0; i < rg_op_inputs(op, desc); i++) {
        x[i] = input_of(u, inputs[i]);
        RG_TRY(rg_graph_status(u->graph));
        RG_CHECK(x[i] != NULL, RG_INVALID_ARGUMENT, "rg_graph_update: %s of '%s' is NULL",
                 inputs[i], u->parameter->name);
    }
    *node = rg_graph_apply(u->graph, op->name, desc, x, RG_MAX_INPUTS);
    RG_TRY(rg_graph_status(u->graph));
    return assign_outputs(u, op, *node);
}

rg_node *rg_graph_update(rg_graph *graph, const char *op, const void *desc, rg_value *parameter,
                         rg_value *gradient, rg_value *rate, rg_value *step, rg_value *scale)
{
    rg_node *node = NULL;
    update u = { .graph = graph,
                 .parameter = parameter,
                 .gradient = gradient,
                 .rate = rate,
                 .step = step,
                 .scale = scale };
    if (graph == NULL || graph->status != RG_OK)
        return NULL;
    return rg_graph_mistake(graph, add_update(&u, op, desc, &node)) == RG_OK ? node : NULL;
}
