/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Operators that are one op: the table of operators gives the op, its descriptor and the layout of
 * each tensor; here the values of the graph are brought into these layouts. */
#include "onnx/import.h"

#include "onnx/onnx_train.h"
#include "operators/onnx_node.h"

#include <retrograde/nodes.h>

#include <string.h>

enum { MOST_GIVEN = 24, MOST_NUMBERS = 32 };

/* A node as the table of operators takes it. */
typedef struct given {
    rg_attribute attributes[MOST_GIVEN];
    int32_t count;
    int64_t ints[RG_ONNX_TENSORS][MOST_NUMBERS];
    double floats[RG_ONNX_TENSORS][MOST_NUMBERS];
    rg_tensor_desc shapes[RG_ONNX_TENSORS];
} given;

/* A count that is too large stays so. */
static int32_t count_of(const rg_proto_attribute *a)
{
    return a->count < INT32_MAX ? (int32_t)a->count : INT32_MAX;
}

static rg_status take_attributes(rg_import *m, const rg_proto_node *node, given *g)
{
    for (size_t i = 0; i < node->attribute_count; i++) {
        const rg_proto_attribute *a = &node->attributes[i];
        RG_CHECK(g->count < MOST_GIVEN, RG_MALFORMED, "it has %zu attributes",
                 node->attribute_count);
        rg_attribute *to = &g->attributes[g->count++];
        double *numbers = NULL;
        *to = (rg_attribute){ .name = a->name, .count = 1 };
        if (strcmp(node->type, "Pad") == 0 && strcmp(a->name, "value") == 0)
            to->name = "constant_value"; /* as operator sets before 11 call it */
        switch (a->type) {
        case RG_PROTO_INT:
            to->ints = &a->i;
            break;
        case RG_PROTO_INTS:
            to->ints = a->ints;
            to->count = count_of(a);
            break;
        case RG_PROTO_FLOAT:
            RG_TRY(rg_arena_take(&m->network->arena, 1, sizeof *numbers, &numbers));
            numbers[0] = rg_meant_number(a->f);
            to->floats = numbers;
            break;
        case RG_PROTO_FLOATS:
            RG_TRY(rg_arena_take(&m->network->arena, a->count, sizeof *numbers, &numbers));
            for (size_t k = 0; k < a->count; k++)
                numbers[k] = (double)a->floats[k];
            to->floats = numbers;
            to->count = count_of(a);
            break;
        case RG_PROTO_STRING:
            to->text = a->s;
            to->count = 0;
            break;
        default:
            return rg_fail(RG_UNSUPPORTED, "attribute '%.80s' is not covered", a->name);
        }
    }
    return RG_OK;
}

/* An input whose numbers the descriptor holds becomes an attribute: those of one probe. */
static rg_status take_numbers(rg_import *m, const rg_proto_node *node, size_t input,
                              const char *name, int32_t probe, given *g)
{
    rg_known *known = NULL;
    rg_attribute *to = &g->attributes[g->count];
    RG_CHECK(g->count < MOST_GIVEN, RG_MALFORMED, "it has too many attributes");
    RG_TRY(rg_import_known(m, node, input, &known));
    if (rg_known_is_constant(known) && known->shape[0].rank == 1 && known->shape[0].dims[0] == 0)
        return RG_OK; /* an empty list stands for none */
    *to = (rg_attribute){ .name = name };
    if (rg_type_is_integer(known->type)) {
        int64_t *const ints = g->ints[input];
        RG_TRY(rg_import_probe_ints(m, node, input, probe, ints, MOST_NUMBERS, &to->count));
        if (strcmp(name, "sizes") == 0)
            RG_TRY(rg_import_open_sizes(m, node, probe, ints, to->count));
        to->ints = ints;
    } else {
        RG_TRY(rg_import_floats(m, node, input, g->floats[input], MOST_NUMBERS, &to->count));
        to->floats = g->floats[input];
    }
    g->count++;
    return RG_OK;
}

static rg_status take_inputs(rg_import *m, const rg_proto_node *node,
                             const rg_onnx_tensor tensors[], int32_t count, int32_t probe, given *g)
{
    RG_CHECK(node->input_count <= (size_t)count, RG_MALFORMED, "it has %zu inputs; %d is the most",
             node->input_count, count);
    for (int32_t i = 0; i < count; i++) {
        g->shapes[i] = (rg_tensor_desc){ .rank = -1 };
        if (!rg_node_has(node, (size_t)i)) {
            RG_CHECK(tensors[i].optional, RG_MALFORMED, "input '%s' is not given", tensors[i].name);
            continue;
        }
        rg_known *known = NULL;
        if (tensors[i].layout == RG_ONNX_NUMBERS) {
            RG_TRY(take_numbers(m, node, (size_t)i, tensors[i].name, probe, g));
        } else {
            RG_TRY(rg_import_known(m, node, (size_t)i, &known));
            g->shapes[i] = known->shape[probe];
        }
    }
    return RG_OK;
}

/* Converts the node with the shapes of both probes, which must give one descriptor. */
rg_status rg_import_call(rg_import *m, const rg_proto_node *node, rg_onnx_call *call)
{
    given *g = NULL;
    rg_onnx_call other;
    rg_onnx_tensor tensors[RG_ONNX_TENSORS];
    const rg_onnx_operator *entry = rg_onnx_find(node->type);
    RG_CHECK(entry != NULL && !entry->gradient, RG_UNSUPPORTED, "it is not covered");
    const int32_t inputs = rg_onnx_tensors(entry, entry->op->desc.defaults, entry->inputs, tensors);
    RG_TRY(rg_arena_take(&m->network->arena, 1, sizeof *g, &g));
    RG_TRY(take_attributes(m, node, g));
    rg_onnx_node asked = { .type = node->type,
                           .opset = (int32_t)m->model->opset,
                           .attributes = g->attributes,
                           .inputs = g->shapes,
                           .input_count = inputs };
    for (size_t i = 0; i < node->output_count && i < 32; i++)
        asked.outputs |= node->outputs[i][0] != 0 ? 1U << i : 0;
    if (strcmp(node->type, "LayerNormalization") == 0)
        asked.outputs = 1; /* the others are not computed */
    const int32_t own = g->count;
    for (int32_t probe = 0; probe < RG_PROBES; probe++) {
        g->count = own;
        RG_TRY(take_inputs(m, node, tensors, inputs, probe, g));
        asked.attribute_count = g->count;
        const rg_status status = rg_onnx_convert(&asked, probe == 0 ? call : &other);
        RG_CHECK(status != RG_INVALID_ARGUMENT, RG_UNSUPPORTED, "%s", rg_error_text());
        RG_TRY(status);
    }
    RG_CHECK(memcmp(call->desc, other.desc, sizeof call->desc) == 0, RG_UNSUPPORTED,
             "its attributes depend on the size of the batch");
    return RG_OK;
}

/* ---- layouts ---- */

/* Reshapes to what rg_onnx_shape says of the shapes in the order of the file. */
static rg_status reshape_to(rg_import *m, rg_flow *flow, rg_onnx_layout layout, int64_t axis)
{
    int64_t dims[RG_PROBES][RG_MAX_RANK], file[RG_MAX_RANK];
    int32_t rank = 0;
    for (int32_t p = 0; p < RG_PROBES; p++) {
        rg_tensor_desc to;
        rg_flow_dims(flow, p, file);
        const rg_tensor_desc from =
            rg_tensor_desc_dense(flow->shape[p].dtype, rg_flow_rank(flow), file);
        RG_TRY(rg_onnx_shape(&from, layout, axis, &to));
        rank = to.rank;
        memcpy(dims[p], to.dims, sizeof dims[p]);
    }
    return rg_flow_reshape(m, flow, rank, dims);
}

/* Input `i` in the layout of the op. */
static rg_status bring(rg_import *m, const rg_proto_node *node, int32_t input,
                       const rg_onnx_call *call, rg_flow *flow)
{
    static const int32_t swapped[] = { 1, 0 };
    const rg_onnx_layout layout = call->inputs[input].layout;
    const size_t i = (size_t)input;
    const bool element = strcmp(call->op->name, "neuron") == 0 && call->input_count == 1;
    switch (layout) {
    case RG_ONNX_LAST:
        return rg_import_channels_last(m, node, i, flow);
    case RG_ONNX_IMAGE:
        RG_TRY(rg_import_channels_last(m, node, i, flow));
        return rg_flow_rank(flow) == 3 ? reshape_to(m, flow, layout, 0) : RG_OK;
    case RG_ONNX_TRANSPOSED:
        RG_TRY(rg_import_any(m, node, i, flow));
        RG_CHECK(rg_flow_rank(flow) == 2, RG_MALFORMED, "'%.80s' is not a matrix", node->inputs[i]);
        return rg_flow_reorder(m, flow, swapped);
    case RG_ONNX_SAME:
        return element ? rg_import_any(m, node, i, flow) : rg_import_plain(m, node, i, flow);
    default:
        RG_TRY(rg_import_plain(m, node, i, flow));
        return reshape_to(m, flow, layout, call->axis);
    }
}

/* The order of an output, whose rank is that of the file or, for 1-D images, one more. */
static rg_status take_output(rg_import *m, const rg_proto_node *node, int32_t output,
                             const rg_onnx_call *call, const rg_flow *x, rg_flow *flow)
{
    const rg_onnx_layout layout = call->outputs[output].layout;
    const bool element = strcmp(call->op->name, "neuron") == 0 && call->input_count == 1;
    rg_known *known = NULL;
    RG_TRY(rg_import_known(m, node, 0, &known));
    if (layout == RG_ONNX_IMAGE && known->shape[0].rank == 3) {
        int64_t dims[RG_PROBES][RG_MAX_RANK];
        for (int32_t p = 0; p < RG_PROBES; p++) {
            dims[p][0] = flow->shape[p].dims[0];
            dims[p][1] = flow->shape[p].dims[2];
            dims[p][2] = flow->shape[p].dims[3];
        }
        RG_TRY(rg_flow_reshape(m, flow, 3, dims));
    }
    if (layout == RG_ONNX_ROWS) { /* as the first input */
        int64_t dims[RG_PROBES][RG_MAX_RANK];
        for (int32_t p = 0; p < RG_PROBES; p++)
            memcpy(dims[p], known->shape[p].dims, sizeof dims[p]);
        RG_TRY(rg_flow_reshape(m, flow, known->shape[0].rank, dims));
        return rg_import_define(m, node, (size_t)output, flow);
    }
    rg_flow_plain_order(flow);
    if (layout == RG_ONNX_IMAGE || layout == RG_ONNX_LAST)
        rg_channels_last_order(rg_flow_rank(flow), flow->order);
    else if (element)
        memcpy(flow->order, x->order, sizeof flow->order);
    else
        RG_CHECK(layout == RG_ONNX_SAME, RG_UNSUPPORTED, "the layout of output %d is not covered",
                 output);
    return rg_import_define(m, node, (size_t)output, flow);
}

rg_status rg_import_run_call(rg_import *m, const rg_proto_node *node, rg_onnx_call *call)
{
    rg_flow x[RG_MAX_INPUTS], y[RG_MAX_OUTPUTS];
    const rg_flow *inputs[RG_MAX_INPUTS] = { NULL };
    int32_t count = 0;
    for (int32_t i = 0; i < call->input_count; i++) {
        const rg_onnx_tensor *t = &call->inputs[i];
        if (!rg_node_has(node, (size_t)i) || t->role != RG_ROLE_X)
            continue;
        RG_TRY(bring(m, node, i, call, &x[t->index]));
        inputs[t->index] = &x[t->index];
        count = t->index + 1 > count ? t->index + 1 : count;
    }
    for (int32_t i = 0; i < count; i++)
        RG_CHECK(inputs[i] != NULL, RG_MALFORMED, "an input that it needs is not given");
    RG_TRY(rg_import_apply(m, call->op->name, call->desc, inputs, count, y, RG_MAX_OUTPUTS));
    for (int32_t j = 0; j < call->output_count && (size_t)j < node->output_count; j++) {
        const rg_onnx_tensor *t = &call->outputs[j];
        if (node->outputs[j][0] == 0)
            continue;
        RG_TRY(t->role == RG_ROLE_Y ? take_output(m, node, j, call, &x[0], &y[t->index])
                                    : rg_import_define_uncovered(m, node, (size_t)j));
    }
    return RG_OK;
}

rg_status rg_convert_table(rg_import *m, const rg_proto_node *node)
{
    rg_onnx_call *call = NULL;
    RG_TRY(rg_arena_take(&m->network->arena, 1, sizeof *call, &call));
    RG_TRY(rg_import_call(m, node, call));
    return rg_import_run_call(m, node, call);
}
