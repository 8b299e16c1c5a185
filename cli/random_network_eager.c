/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Random networks: every node run alone, each value in memory of its own. No plan has a part in
 * it. */
#include "cli/random_network.h"
#include "core/dtype.h"
#include "graph/graph.h"
#include "runtime/objects.h"

#include <stdlib.h>
#include <string.h>

/* ---- outcomes ---- */

rg_status rg_net_outcome_add(rg_net_outcome *o, const rg_tensor *tensor, const char *name,
                             int32_t result, int32_t value)
{
    if (o->count == o->capacity) {
        const int32_t capacity = o->capacity > 0 ? 2 * o->capacity : 16;
        rg_net_chunk *chunks = realloc(o->chunks, (size_t)capacity * sizeof *chunks);
        RG_CHECK(chunks != NULL, RG_OUT_OF_MEMORY, "out of memory");
        o->chunks = chunks;
        o->capacity = capacity;
    }
    rg_net_chunk *chunk = &o->chunks[o->count++];
    *chunk = (rg_net_chunk){ .result = result, .value = value };
    snprintf(chunk->name, sizeof chunk->name, "%s", name);
    RG_TRY(rg_tensor_get_desc(tensor, &chunk->desc));
    const size_t bytes = (size_t)rg_shape_count(&chunk->desc) * rg_dtype_size(chunk->desc.dtype);
    chunk->data = malloc(bytes + 1);
    RG_CHECK(chunk->data != NULL, RG_OUT_OF_MEMORY, "out of memory");
    return rg_tensor_read(tensor, chunk->data, bytes, RG_LAYOUT_SAME);
}

void rg_net_outcome_free(rg_net_outcome *o)
{
    for (int32_t i = 0; i < o->count; i++)
        free(o->chunks[i].data);
    free(o->chunks);
    memset(o, 0, sizeof *o);
}

/* ---- tensors ---- */

static rg_status write_numbers(rg_tensor *tensor, const double *numbers)
{
    rg_tensor_desc desc;
    RG_TRY(rg_tensor_get_desc(tensor, &desc));
    const int64_t count = rg_shape_count(&desc);
    const size_t bytes = (size_t)count * rg_dtype_size(desc.dtype);
    void *data = malloc(bytes + 1);
    RG_CHECK(data != NULL && numbers != NULL, RG_OUT_OF_MEMORY, "out of memory");
    for (int64_t i = 0; i < count; i++)
        rg_element_set(data, desc.dtype, i, numbers[i]);
    const rg_status status = rg_tensor_write(tensor, data, bytes, RG_LAYOUT_SAME);
    free(data);
    return status;
}

rg_status rg_net_write(const rg_net *net, int32_t value, int32_t step, rg_tensor *tensor)
{
    double *numbers = rg_net_fill(net, value, step);
    const rg_status status = write_numbers(tensor, numbers);
    free(numbers);
    return status;
}

/* Every second element of the last dimension of a tensor that is twice as long. */
static rg_status make_strided(rg_device *device, const rg_tensor_desc *desc, rg_tensor **tensor)
{
    const int64_t ones[RG_MAX_RANK] = { 1, 1, 1, 1, 1, 1, 1, 1 };
    int64_t zeros[RG_MAX_RANK] = { 0 }, dims[RG_MAX_RANK], step[RG_MAX_RANK];
    rg_tensor *whole;
    memcpy(dims, desc->dims, sizeof dims);
    memcpy(step, ones, sizeof step);
    dims[desc->rank - 1] *= 2;
    step[desc->rank - 1] = 2;
    const rg_tensor_desc wide = rg_tensor_desc_dense(desc->dtype, desc->rank, dims);
    RG_TRY(rg_tensor_create(device, &wide, &whole));
    const rg_status status = rg_tensor_slice(whole, zeros, desc->dims, step, tensor);
    rg_tensor_destroy(whole);
    return status;
}

rg_status rg_net_sources(const rg_net *net, rg_device *device, int32_t step, bool strided,
                         rg_tensor *tensors[])
{
    for (int32_t v = 0; v < net->values_count; v++) {
        const rg_net_value *value = &net->values[v];
        const rg_tensor_desc *desc = &value->desc[net->shapes == 1 ? 0 : step % 2];
        if (value->kind != RG_NET_SOURCE)
            continue;
        if (strided && desc->rank > 0)
            RG_TRY(make_strided(device, desc, &tensors[v]));
        else
            RG_TRY(rg_tensor_create(device, desc, &tensors[v]));
        RG_TRY(rg_net_write(net, v, step, tensors[v]));
    }
    return RG_OK;
}

/* ---- nodes, one by one ---- */

typedef struct plain {
    const rg_net *net;
    const rg_net_graph *g;
    rg_queue *queue;
    rg_device *device;
    rg_tensor **tensors;    /* by value of the graph */
    rg_tensor **parameters; /* kept from run to run */
    rg_state **states;      /* by node */
    rg_kernel **kernels;
    rg_commands *commands;
} plain;

/* A constant comes with the first who reads it. */
static rg_status tensor_of(plain *p, const rg_value *value, rg_tensor **tensor)
{
    *tensor = NULL;
    if (value == NULL)
        return RG_OK;
    if (value->kind == RG_VALUE_CONSTANT && p->tensors[value->id] == NULL) {
        rg_tensor *like;
        RG_TRY(tensor_of(p, value->like, &like));
        RG_CHECK(like != NULL, RG_INVALID_STATE, "a constant has no value to take its shape from");
        const rg_tensor_desc desc =
            rg_tensor_desc_dense(like->desc.dtype, like->desc.rank, like->desc.dims);
        RG_TRY(rg_tensor_create(p->device, &desc, &p->tensors[value->id]));
        double *numbers = malloc(((size_t)rg_shape_count(&desc) + 1) * sizeof *numbers);
        for (int64_t i = 0; numbers != NULL && i < rg_shape_count(&desc); i++)
            numbers[i] = value->number;
        const rg_status status = write_numbers(p->tensors[value->id], numbers);
        free(numbers);
        RG_TRY(status);
    }
    *tensor = p->tensors[value->id];
    return RG_OK;
}

static rg_status make_output(plain *p, const rg_value *value, const rg_tensor_desc *desc)
{
    const rg_tensor_desc dense = rg_tensor_desc_dense(desc->dtype, desc->rank, desc->dims);
    return rg_tensor_create(p->device, &dense, &p->tensors[value->id]);
}

static rg_status run_forward(plain *p, const rg_node *node)
{
    rg_tensor *x[RG_MAX_INPUTS] = { NULL }, *y[RG_MAX_INPUTS] = { NULL };
    rg_tensor_desc in[RG_MAX_INPUTS], out[RG_MAX_OUTPUTS];
    for (int32_t i = 0; i < node->inputs; i++) {
        RG_TRY(tensor_of(p, node->in[i], &x[i]));
        in[i] = x[i]->desc;
    }
    RG_TRY(node->op->shapes(node->desc, in, out));
    for (int32_t j = 0; j < node->outputs; j++) {
        RG_TRY(make_output(p, node->out[j], &out[j]));
        y[j] = p->tensors[node->out[j]->id];
    }
    if (node->op->gradient != NULL)
        RG_TRY(rg_state_create(p->kernels[node->id], x, &p->states[node->id]));
    return rg_kernel_forward(p->kernels[node->id], p->commands, x, y, p->states[node->id]);
}

static rg_status run_gradient(plain *p, const rg_node *node)
{
    rg_tensor *dy[RG_MAX_INPUTS] = { NULL }, *dx[RG_MAX_INPUTS] = { NULL };
    rg_tensor *x[RG_MAX_INPUTS] = { NULL }, *y[RG_MAX_OUTPUTS] = { NULL };
    bool any = false;
    for (int32_t j = 0; j < node->inputs; j++)
        RG_TRY(tensor_of(p, node->in[j], &dy[j]));
    for (int32_t i = 0; i < RG_MAX_INPUTS; i++)
        RG_TRY(tensor_of(p, node->x[i], &x[i]));
    for (int32_t j = 0; j < RG_MAX_OUTPUTS; j++)
        RG_TRY(tensor_of(p, node->y[j], &y[j]));
    for (int32_t i = 0; i < node->outputs; i++) {
        if (node->out[i] == NULL || !rg_dtype_is_data(x[i]->desc.dtype)) /* the step of dropout */
            continue;
        RG_TRY(make_output(p, node->out[i], &x[i]->desc));
        dx[i] = p->tensors[node->out[i]->id];
        any = true;
    }
    rg_state *state = node->forward != NULL ? p->states[node->forward->id] : NULL;
    if (!any)
        return RG_OK;
    return rg_kernel_gradient(p->kernels[node->id], p->commands, dy, x, y, state, dx, 0);
}

static rg_status run_nodes(plain *p, int32_t step)
{
    const rg_graph *graph = p->g->graph;
    rg_tensor *sources[RG_NET_VALUES] = { NULL };
    rg_status status = rg_net_sources(p->net, p->device, step, false, sources);
    for (int32_t v = 0; v < p->net->values_count; v++) {
        if (sources[v] != NULL && p->g->values[v] != NULL)
            p->tensors[p->g->values[v]->id] = sources[v];
        else
            rg_tensor_destroy(sources[v]);
    }
    for (size_t i = 0; i < graph->values_count; i++) {
        if (p->parameters[i] != NULL) {
            p->tensors[i] = p->parameters[i];
            p->parameters[i]->refs++;
        }
    }
    RG_TRY(status);
    RG_TRY(rg_commands_create(p->queue, &p->commands));
    for (size_t n = 0; n < graph->nodes_count && status == RG_OK; n++)
        status = graph->nodes[n]->gradient ? run_gradient(p, graph->nodes[n])
                                           : run_forward(p, graph->nodes[n]);
    return rg_commands_finish(p->commands, status);
}

/* ---- what is left ---- */

static rg_status assign(plain *p)
{
    const rg_graph *graph = p->g->graph;
    for (size_t i = 0; i < graph->assignments_count; i++) {
        rg_tensor *to = p->parameters[graph->assignments[i].parameter->id];
        const rg_tensor *from = p->tensors[graph->assignments[i].value->id];
        const size_t bytes = rg_tensor_bytes(to);
        void *data = malloc(bytes + 1);
        rg_status status = rg_tensor_read(from, data, bytes, RG_LAYOUT_SAME);
        if (status == RG_OK)
            status = rg_tensor_write(to, data, bytes, RG_LAYOUT_SAME);
        free(data);
        RG_TRY(status);
    }
    return RG_OK;
}

static rg_status collect(plain *p, rg_net_outcome *o)
{
    const rg_graph *graph = p->g->graph;
    char name[48];
    for (size_t i = 0; i < graph->results_count; i++) {
        rg_tensor *tensor;
        RG_TRY(tensor_of(p, graph->results[i].value, &tensor));
        RG_TRY(rg_net_outcome_add(o, tensor, graph->results[i].name,
                                  atoi(graph->results[i].name + 1), -1));
    }
    for (size_t i = 0; i < graph->states_count; i++) {
        rg_state *state = p->states[graph->states[i].node->id];
        for (int32_t k = 0; state != NULL && k < rg_state_count(state); k++) {
            rg_tensor *tensor;
            snprintf(name, sizeof name, "%s.%s", graph->states[i].name, rg_state_name(state, k));
            RG_TRY(rg_state_tensor(state, rg_state_name(state, k), &tensor));
            RG_TRY(rg_net_outcome_add(o, tensor, name, -1, -1));
        }
    }
    RG_TRY(assign(p));
    for (int32_t v = 0; v < p->net->values_count; v++) {
        const rg_value *value = p->net->values[v].kind == RG_NET_PARAMETER ? p->g->values[v] : NULL;
        if (value != NULL)
            RG_TRY(rg_net_outcome_add(o, p->parameters[value->id], value->name, -1, v));
    }
    return RG_OK;
}

static void drop_run(plain *p)
{
    for (size_t i = 0; i < p->g->graph->values_count; i++) {
        rg_tensor_destroy(p->tensors[i]);
        p->tensors[i] = NULL;
    }
    for (size_t n = 0; n < p->g->graph->nodes_count; n++) {
        rg_state_destroy(p->states[n]);
        p->states[n] = NULL;
    }
}

static rg_status prepare(plain *p)
{
    const rg_graph *graph = p->g->graph;
    for (size_t n = 0; n < graph->nodes_count; n++)
        RG_TRY(rg_kernel_create(p->device, graph->nodes[n]->op, graph->nodes[n]->desc,
                                &p->kernels[n]));
    for (int32_t v = 0; v < p->net->values_count; v++) {
        const rg_value *value = p->net->values[v].kind == RG_NET_PARAMETER ? p->g->values[v] : NULL;
        if (value == NULL)
            continue;
        RG_TRY(rg_tensor_create(p->device, &value->desc, &p->parameters[value->id]));
        RG_TRY(rg_net_write(p->net, v, 0, p->parameters[value->id]));
    }
    return RG_OK;
}

rg_status rg_net_plain(const rg_net *net, const rg_net_graph *g, rg_queue *queue,
                       rg_net_outcome outcomes[])
{
    const size_t values = g->graph->values_count + 1, nodes = g->graph->nodes_count + 1;
    plain p = { .net = net,
                .g = g,
                .queue = queue,
                .device = queue->device,
                .tensors = calloc(values, sizeof *p.tensors),
                .parameters = calloc(values, sizeof *p.parameters),
                .states = calloc(nodes, sizeof *p.states),
                .kernels = calloc(nodes, sizeof *p.kernels) };
    rg_status status = prepare(&p);
    for (int32_t step = 0; step < net->steps && status == RG_OK; step++) {
        status = run_nodes(&p, step);
        if (status == RG_OK)
            status = collect(&p, &outcomes[step]);
        drop_run(&p);
    }
    for (size_t i = 0; i < values; i++)
        rg_tensor_destroy(p.parameters[i]);
    for (size_t n = 0; n < nodes; n++)
        rg_kernel_destroy(p.kernels[n]);
    free(p.tensors);
    free(p.parameters);
    free(p.states);
    free(p.kernels);
    return status;
}
