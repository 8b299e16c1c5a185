/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Plans: what of a graph has to run, in which order, with which kernels. */
#include "graph/plan.h"

#include "core/private_api.h"

#include "core/shape.h"

#include <stdlib.h>

static const rg_allocator *const allocator = &rg_default_allocator;

rg_plan_options rg_plan_options_default(void)
{
    return (rg_plan_options){ .size = sizeof(rg_plan_options),
                              .reuse_storage = true,
                              .in_place = true,
                              .fuse_neurons = true,
                              .fuse_biases = true,
                              .fuse_softmax = true,
                              .fuse_losses = true,
                              .add_gradients = true,
                              .share_views = true,
                              .batch_updates = true,
                              .replay = true,
                              .new_masks = true };
}

/* ---- what has to run ---- */

static void mark_live(void *context, rg_value *value)
{
    bool *live = context;
    while (value != NULL && !live[value->id]) {
        live[value->id] = true;
        value = value->kind == RG_VALUE_CONSTANT ? value->like : NULL;
    }
}

/* Nodes follow what they read: one walk from the last to the first. */
static void find_live(rg_plan_draft *d)
{
    const rg_graph *graph = d->graph;
    for (size_t i = 0; i < graph->results_count; i++)
        mark_live(d->live, graph->results[i].value);
    for (size_t i = 0; i < graph->assignments_count; i++) {
        mark_live(d->live, graph->assignments[i].value);
        d->takes[graph->assignments[i].value->id] = graph->assignments[i].parameter;
        d->live[graph->assignments[i].parameter->id] = true;
    }
    for (size_t i = 0; i < graph->states_count; i++)
        d->runs[graph->states[i].node->id] = true;
    for (size_t i = 0; i < graph->values_count; i++) {
        rg_value *gradient = rg_value_updates_by(graph->values[i]);
        mark_live(d->live, gradient);
        d->live[i] |= gradient != NULL;
    }
    for (size_t n = graph->nodes_count; n-- > 0;) {
        const rg_node *node = graph->nodes[n];
        for (int32_t i = 0; i < node->outputs; i++)
            d->runs[n] |= node->out[i] != NULL && d->live[node->out[i]->id];
        if (!d->runs[n])
            continue;
        rg_node_each_read(node, mark_live, d->live);
        if (node->forward != NULL)
            d->runs[node->forward->id] = true; /* its state */
    }
}

RG_PRIVATE_API rg_status rg_graph_live(const rg_graph *graph, bool live[])
{
    rg_plan_draft d = { .graph = graph, .live = live };
    rg_status status = rg_allocate_array(graph->nodes_count, sizeof *d.runs, &d.runs);
    if (status == RG_OK)
        status = rg_allocate_array(graph->values_count, sizeof *d.takes, &d.takes);
    if (status == RG_OK)
        find_live(&d);
    rg_release(allocator, d.runs, graph->nodes_count * sizeof *d.runs);
    rg_release(allocator, d.takes, graph->values_count * sizeof *d.takes);
    return status;
}

/* ---- steps and slots ---- */

static int32_t id_of(const rg_value *value)
{
    return value != NULL ? value->id : -1;
}

/* Gives a forward step the number of the run, where its op can take it. A gradient has the same
 * descriptor, so that the state fits. */
static void take_run_number(const rg_plan *plan, const rg_node *node, void *desc, rg_step *step)
{
    memcpy(desc, node->desc, node->op->desc.size);
    if (plan->run_slot < 0 || node->op->fusion.with_run_number == NULL || node->given != NULL ||
        !node->op->fusion.with_run_number(desc))
        return;
    int32_t *const values = node->gradient ? step->source : step->in;
    values[node->gradient ? step->outputs++ : step->inputs++] = plan->run_slot;
}

/* The index of the state that the node is given, or -1. */
static int32_t find_given(const rg_plan *plan, const rg_node *node)
{
    for (int32_t k = 0; node->given != NULL && k < plan->given_count; k++) {
        if (plan->given[k] == node->given->id)
            return k;
    }
    return -1;
}

static rg_status make_step(rg_plan *plan, const rg_plan_draft *d, const rg_node *node,
                           rg_step *step)
{
    _Alignas(16) char desc[RG_MAX_DESC];
    const rg_node *forward = node->forward, *ruled = forward != NULL ? forward : node;
    *step = (rg_step){ .op = node->op,
                       .rule = ruled->rule,
                       .rule_context = ruled->rule_context,
                       .gradient = node->gradient,
                       .forward = forward != NULL ? d->step_of[forward->id] : -1,
                       .given = find_given(plan, node),
                       .inputs = node->inputs,
                       .outputs = node->outputs };
    for (int32_t i = 0; i < RG_MAX_INPUTS; i++) {
        step->in[i] = i < node->inputs ? id_of(node->in[i]) : -1;
        const rg_value *out = i < node->outputs ? node->out[i] : NULL;
        step->out[i] = out != NULL && (!node->gradient || d->live[out->id]) ? out->id : -1;
        if (step->out[i] >= 0)
            plan->slots[step->out[i]].made = (int32_t)(step - plan->steps);
    }
    const uint32_t reads = node->gradient ? rg_node_reads(node) : 0;
    const bool for_shape = node->gradient && forward == NULL && node->given == NULL;
    for (int32_t i = 0; i < RG_MAX_INPUTS; i++) {
        const bool is_read = for_shape || reads & (uint32_t)RG_READS_X << i;
        /* What is not read may not be there: the forward pass has the shape, or a given state. */
        const rg_value *own = forward != NULL ? forward->in[i] : NULL;
        step->source[i] = node->gradient ? id_of(is_read ? node->x[i] : own) : -1;
        step->base[i] = -1;
        step->x[i] = is_read ? id_of(node->x[i]) : -1;
    }
    for (int32_t i = 0; i < RG_MAX_OUTPUTS; i++)
        step->y[i] = reads & (uint32_t)RG_READS_Y << i ? id_of(node->y[i]) : -1;
    if (forward != NULL)
        plan->steps[step->forward].keeps = true;
    RG_TRY(rg_copy_text(node->label, &step->label));
    take_run_number(plan, node, desc, step);
    return rg_kernel_create(plan->device, node->op, desc, &step->kernel);
}

/* Whether a node that runs takes the number of the run. */
static bool takes_run_number(const rg_plan_draft *d)
{
    bool any = false;
    for (size_t n = 0; n < d->graph->nodes_count && !any; n++) {
        const rg_node *node = d->graph->nodes[n];
        any = d->runs[n] && node->op->fusion.with_run_number != NULL;
    }
    return any;
}

/* The slot after those of the graph's values. */
static void make_run_slot(rg_plan *plan, const rg_plan_draft *d)
{
    const int32_t v = plan->slots_count;
    plan->run_slot = -1;
    if (!plan->options.new_masks || !takes_run_number(d))
        return;
    plan->run_slot = plan->slots_count++;
    plan->slots[v] = (rg_plan_value){ .kind = RG_VALUE_PARAMETER,
                                      .source = -1,
                                      .like = -1,
                                      .parameter = v,
                                      .made = -1,
                                      .last = -1,
                                      .live = true,
                                      .desc = rg_tensor_desc_dense(RG_I64, 0, NULL) };
}

static rg_status make_slots(rg_plan *plan, const rg_plan_draft *d)
{
    const rg_graph *graph = d->graph;
    for (int32_t v = 0; v < plan->slots_count; v++) {
        const rg_value *value = graph->values[v];
        rg_plan_value *slot = &plan->slots[v];
        *slot = (rg_plan_value){ .kind = value->kind,
                                 .source = -1,
                                 .like = id_of(value->like),
                                 .number = value->number,
                                 .parameter = -1,
                                 .made = -1,
                                 .last = -1,
                                 .live = d->live[v],
                                 .desc = value->desc };
        if (value->kind == RG_VALUE_PARAMETER)
            slot->parameter = v;
        else if (d->takes[v] != NULL)
            slot->parameter = d->takes[v]->id;
        if (value->name != NULL)
            RG_TRY(rg_copy_text(value->name, &slot->name));
        if (value->kind == RG_VALUE_SOURCE &&
            slot->live) { /* runs keep lists of them on the stack */
            RG_CHECK(plan->sources_count < RG_PLAN_SOURCES, RG_UNSUPPORTED,
                     "the graph reads more than %d sources, the maximum of a plan",
                     RG_PLAN_SOURCES);
            slot->source = plan->sources_count;
            plan->sources[plan->sources_count++] = v;
        }
    }
    for (size_t i = 0; i < graph->values_count; i++) {
        const rg_value *gradient = rg_value_updates_by(graph->values[i]);
        if (gradient != NULL)
            plan->slots[gradient->id].result = true;
    }
    for (size_t i = 0; i < graph->results_count; i++) {
        const int32_t v = graph->results[i].value->id;
        plan->slots[v].result = true;
        plan->results[i] = v;
        RG_TRY(rg_copy_text(graph->results[i].name, &plan->result_names[i]));
        plan->results_count++;
    }
    return RG_OK;
}

/* Whether a step may write value `v` over parameter `p`, which it may read. */
static rg_status check_assignment(const rg_plan *plan, const rg_step *step, int32_t out)
{
    const int32_t p = plan->slots[step->out[out]].parameter;
    for (int32_t i = 0; p >= 0 && !step->gradient && i < step->inputs; i++)
        RG_CHECK(step->in[i] != p ||
                     rg_op_may_alias(step->op, step->kernel->desc, RG_X_AS_Y(i, out)),
                 RG_UNSUPPORTED, "%s cannot overwrite the parameter '%s' that it reads",
                 step->label, plan->slots[p].name);
    return RG_OK;
}

/* The parameter of another plan that serves as this one, or NULL. */
static rg_tensor *shared_parameter(const rg_plan *plan, const rg_plan_value *slot)
{
    const rg_plan *from = plan->options.share;
    if (from == NULL || from->device != plan->device || slot->name == NULL)
        return NULL;
    rg_tensor *tensor = rg_plan_find_parameter(from, slot->name);
    const bool fits = tensor != NULL && tensor->desc.dtype == slot->desc.dtype &&
                      rg_shape_same(&tensor->desc, &slot->desc);
    return fits ? tensor : NULL;
}

static rg_status make_parameters(rg_plan *plan)
{
    for (int32_t v = 0; v < plan->slots_count; v++) {
        const rg_plan_value *slot = &plan->slots[v];
        if (slot->kind != RG_VALUE_PARAMETER || !slot->live)
            continue;
        if (v != plan->run_slot)
            plan->listed[plan->listed_count++] = v;
        plan->parameters[v] = shared_parameter(plan, slot);
        if (plan->parameters[v] != NULL) {
            plan->parameters[v]->refs++;
            continue;
        }
        RG_TRY(rg_tensor_create(plan->device, &slot->desc, &plan->parameters[v]));
        RG_TRY(rg_layout_fill(plan->parameters[v], 0));
    }
    for (int32_t s = 0; s < plan->steps_count; s++) {
        for (int32_t i = 0; i < plan->steps[s].outputs; i++) {
            if (plan->steps[s].out[i] >= 0)
                RG_TRY(check_assignment(plan, &plan->steps[s], i));
        }
    }
    return RG_OK;
}

static rg_status make_buffers(rg_plan *plan)
{
    const size_t count = (size_t)plan->sources_count;
    rg_input_buffers *b = &plan->buffers;
    RG_TRY(rg_allocate_array(count, sizeof *b->wholes, &b->wholes));
    RG_TRY(rg_allocate_array(count, sizeof *b->pieces, &b->pieces));
    RG_TRY(rg_allocate_array((size_t)plan->given_count, sizeof *b->given, &b->given));
    return rg_plan_reserve_inputs(plan, plan->sources_count);
}

static void free_buffers(const rg_plan *plan)
{
    const size_t count = (size_t)plan->sources_count;
    const rg_input_buffers *b = &plan->buffers;
    rg_release(allocator, b->tensors, b->capacity * sizeof *b->tensors);
    rg_release(allocator, b->descs, b->capacity * sizeof *b->descs);
    rg_release(allocator, b->alignments, b->capacity * sizeof *b->alignments);
    rg_release(allocator, b->read, b->capacity * sizeof *b->read);
    rg_release(allocator, b->given, (size_t)plan->given_count * sizeof *b->given);
    rg_release(allocator, b->wholes, count * sizeof *b->wholes);
    rg_release(allocator, b->pieces, count * sizeof *b->pieces);
    rg_release(allocator, plan->given, plan->graph->given_count * sizeof *plan->given);
}

static rg_status fill_plan(rg_plan *plan, rg_plan_draft *d)
{
    const rg_graph *graph = d->graph;
    const rg_node **order = NULL;
    const size_t nodes = graph->nodes_count, values = graph->values_count;
    plan->slots_capacity = values + 1;
    RG_TRY(rg_allocate_array(plan->slots_capacity, sizeof *plan->slots, &plan->slots));
    RG_TRY(rg_allocate_array(plan->slots_capacity, sizeof *plan->sources, &plan->sources));
    RG_TRY(rg_allocate_array(plan->slots_capacity, sizeof *plan->parameters, &plan->parameters));
    RG_TRY(rg_allocate_array(plan->slots_capacity, sizeof *plan->listed, &plan->listed));
    plan->slots_count = (int32_t)values;
    plan->nodes = nodes;
    plan->results_capacity = graph->results_count;
    RG_TRY(rg_allocate_array(nodes, sizeof *plan->steps, &plan->steps));
    RG_TRY(rg_allocate_array(graph->results_count, sizeof *plan->results, &plan->results));
    RG_TRY(
        rg_allocate_array(graph->results_count, sizeof *plan->result_names, &plan->result_names));
    RG_TRY(rg_allocate_array(nodes, sizeof *order, &order));
    int32_t count = 0;
    find_live(d);
    rg_status status = rg_plan_order(d, order, &count);
    if (status == RG_OK)
        status = make_slots(plan, d);
    if (status == RG_OK)
        make_run_slot(plan, d);
    if (status == RG_OK)
        status = rg_plan_note_given(plan, d->runs);
    if (status == RG_OK)
        status = make_buffers(plan);
    for (int32_t s = 0; s < count && status == RG_OK; s++) {
        plan->steps_count = s + 1;
        status = make_step(plan, d, order[s], &plan->steps[s]);
    }
    rg_release(allocator, order, nodes * sizeof *order);
    RG_TRY(status);
    RG_TRY(rg_plan_note_states(plan, d->step_of));
    RG_TRY(rg_plan_note_updates(plan));
    RG_TRY(make_parameters(plan));
    plan->options.share = NULL; /* it may be gone before this plan */
    return rg_plan_load_new(plan);
}

static bool has_purpose(const rg_graph *graph)
{
    bool any = graph->results_count + graph->states_count + graph->assignments_count > 0;
    for (size_t i = 0; i < graph->values_count && !any; i++)
        any = rg_value_updates_by(graph->values[i]) != NULL;
    return any;
}

rg_status rg_plan_create(rg_device *device, const rg_graph *graph, const rg_plan_options *options,
                         rg_plan **plan)
{
    RG_CHECK_NOT_NULL(plan);
    *plan = NULL;
    RG_CHECK_NOT_NULL(device);
    RG_TRY(rg_graph_status(graph));
    RG_CHECK(
        options == NULL ||
            (options->size >= sizeof options->size && options->size <= sizeof *options),
        RG_INVALID_ARGUMENT,
        "rg_plan_create: the options have size %u; initialize them with rg_plan_options_default()",
        options->size);
    RG_CHECK(has_purpose(graph), RG_INVALID_ARGUMENT,
             "the graph has no results and assigns no parameters, so there is nothing to run");
    const size_t nodes = graph->nodes_count, values = graph->values_count;
    rg_plan_draft d = { .graph = graph };
    rg_plan *made = NULL;
    rg_status status = rg_allocate_array(1, sizeof *made, &made);
    if (status == RG_OK) {
        made->device = rg_device_retain(device);
        made->options = rg_plan_options_default();
        if (options != NULL)
            memcpy(&made->options, options, options->size);
        made->options.size = sizeof made->options;
        status = rg_queue_create(device, &made->queue);
    }
    if (status == RG_OK)
        status = rg_graph_copy(graph, &made->graph);
    if (status == RG_OK)
        status = rg_allocate_array(values, sizeof *d.live, &d.live);
    if (status == RG_OK)
        status = rg_allocate_array(nodes, sizeof *d.runs, &d.runs);
    if (status == RG_OK)
        status = rg_allocate_array(nodes, sizeof *d.step_of, &d.step_of);
    if (status == RG_OK)
        status = rg_allocate_array(values, sizeof *d.readers, &d.readers);
    if (status == RG_OK)
        status = rg_allocate_array(values, sizeof *d.takes, &d.takes);
    if (status == RG_OK)
        status = fill_plan(made, &d);
    rg_release(allocator, d.live, values * sizeof *d.live);
    rg_release(allocator, d.runs, nodes * sizeof *d.runs);
    rg_release(allocator, d.step_of, nodes * sizeof *d.step_of);
    rg_release(allocator, d.readers, values * sizeof *d.readers);
    rg_release(allocator, d.takes, values * sizeof *d.takes);
    if (status != RG_OK) {
        rg_plan_destroy(made);
        return status;
    }
    *plan = made;
    return RG_OK;
}

static void free_arrays(rg_plan *plan)
{
    const size_t values = plan->slots_capacity;
    rg_release(allocator, plan->slots, values * sizeof *plan->slots);
    rg_release(allocator, plan->sources, values * sizeof *plan->sources);
    if (plan->graph != NULL)
        free_buffers(plan);
    rg_release(allocator, plan->parameters, values * sizeof *plan->parameters);
    rg_release(allocator, plan->listed, values * sizeof *plan->listed);
    rg_release(allocator, plan->steps, plan->nodes * sizeof *plan->steps);
    rg_release(allocator, plan->results, plan->results_capacity * sizeof *plan->results);
    rg_release(allocator, plan->result_names, plan->results_capacity * sizeof *plan->result_names);
}

void rg_plan_destroy(rg_plan *plan)
{
    if (plan == NULL)
        return;
    while (plan->layouts != NULL) {
        rg_layout_plan *layout = plan->layouts;
        plan->layouts = layout->next;
        rg_layout_destroy(plan, layout);
    }
    for (int32_t s = 0; s < plan->steps_count; s++) {
        rg_kernel_destroy(plan->steps[s].kernel);
        free(plan->steps[s].label);
    }
    for (int32_t v = 0; v < plan->slots_count; v++) {
        free(plan->slots[v].name);
        rg_tensor_destroy(plan->parameters[v]);
    }
    for (int32_t i = 0; i < plan->results_count; i++)
        free(plan->result_names[i]);
    rg_plan_forget_updates(plan);
    free_arrays(plan);
    rg_graph_destroy(plan->graph);
    rg_queue_destroy(plan->own_queue);
    rg_queue_destroy(plan->queue);
    rg_device_destroy(plan->device);
    rg_release(allocator, plan, sizeof *plan);
}
