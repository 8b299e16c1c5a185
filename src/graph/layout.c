/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Layouts: shapes of all values for one set of sources, and storage for them. */
#include "graph/plan.h"

#include "core/dtype.h"

#include <stdlib.h>

static const rg_allocator *const allocator = &rg_default_allocator;

/* ---- shapes ---- */

/* The kernel of a step whose windows a rule places, for inputs x; gradients have that of their
 * forward step. */
static rg_status place_step(rg_sequence *s, rg_step *step, const rg_tensor_desc x[])
{
    _Alignas(16) char desc[RG_MAX_DESC];
    rg_kernel *kernel = NULL;
    if (step->rule == NULL)
        return RG_OK;
    const bool follows = step->forward >= 0;
    const rg_kernel *from = follows ? s->steps[step->forward].kernel : step->kernel;
    memcpy(desc, from->desc, step->op->desc.size);
    if (!follows)
        RG_TRY(rg_op_place(step->op, desc, x, step->rule, step->rule_context));
    RG_TRY(rg_kernel_create(s->plan->device, step->op, desc, &kernel));
    step->kernel = kernel;
    step->own_kernel = true;
    return RG_OK;
}

static rg_status step_shapes(rg_sequence *s, rg_step *step)
{
    const rg_plan *plan = s->plan;
    rg_tensor_desc *const descs = s->descs;
    rg_tensor_desc y[RG_MAX_OUTPUTS], x[RG_MAX_INPUTS];
    for (int32_t i = 0; i < (step->gradient ? step->outputs : step->inputs); i++) {
        const int32_t value = step->gradient ? step->source[i] : step->in[i];
        x[i] = value >= 0 ? descs[value] : rg_given_shape(&plan->buffers.given[step->given], i);
    }
    RG_TRY(place_step(s, step, x));
    if (!step->gradient)
        RG_TRY(step->op->shapes(step->kernel->desc, x, y));
    for (int32_t i = 0; i < step->outputs; i++) {
        const rg_tensor_desc *d = step->gradient ? &x[i] : &y[i];
        if (step->out[i] >= 0)
            descs[step->out[i]] = rg_tensor_desc_dense(d->dtype, d->rank, d->dims);
    }
    return RG_OK;
}

void rg_layout_name_inputs(const rg_plan *plan, const rg_step *step, const rg_tensor_desc descs[])
{
    bool any = false;
    rg_error_prefix(": ");
    for (int32_t i = step->inputs - 1; i >= 0; i--) {
        char shape[RG_SHAPE_TEXT];
        if (step->in[i] < 0)
            continue;
        const rg_plan_value *slot = &plan->slots[step->in[i]];
        const char *maker = slot->name != NULL ? slot->name
                            : slot->made >= 0  ? plan->steps[slot->made].label
                                               : "a constant";
        rg_error_prefix("%s from %s%s", rg_shape_text(&descs[step->in[i]], shape), maker,
                        any ? ", " : "");
        any = true;
    }
    rg_error_prefix("%s%s", step->label, any ? ", of " : "");
}

static void constant_shape(const rg_plan *plan, int32_t value, rg_tensor_desc descs[])
{
    if (value < 0 || plan->slots[value].kind != RG_VALUE_CONSTANT)
        return;
    const rg_tensor_desc *like = &descs[plan->slots[value].like];
    descs[value] = rg_tensor_desc_dense(like->dtype, like->rank, like->dims);
}

/* The nodes of the graph, before anything is made of them: mistakes are reported with their
 * names. */
static rg_status find_shapes(rg_sequence *s)
{
    const rg_plan *plan = s->plan;
    rg_tensor_desc *const descs = s->descs;
    for (int32_t i = 0; i < plan->sources_count; i++)
        descs[plan->sources[i]] = plan->buffers.descs[i];
    for (int32_t v = 0; v < plan->slots_count; v++) {
        if (plan->slots[v].kind == RG_VALUE_PARAMETER)
            descs[v] = plan->slots[v].desc;
    }
    for (int32_t n = 0; n < s->steps_count; n++) {
        for (int32_t i = 0; i < RG_MAX_INPUTS; i++) { /* constants, when first read */
            constant_shape(plan, s->steps[n].in[i], descs);
            constant_shape(plan, s->steps[n].source[i], descs);
        }
        const rg_status status = step_shapes(s, &s->steps[n]);
        if (status != RG_OK) {
            rg_layout_name_inputs(plan, &plan->steps[n], descs);
            return status;
        }
    }
    for (int32_t v = 0; v < plan->slots_count; v++) {
        if (plan->slots[v].live)
            constant_shape(plan, v, descs);
    }
    return RG_OK;
}

/* ---- tensors ---- */

rg_status rg_layout_tensor(const rg_plan *plan, const rg_layout_plan *layout,
                           const rg_tensor_desc *desc, size_t offset, rg_tensor **tensor)
{
    RG_TRY(rg_tensor_make(plan->device, desc, tensor));
    (*tensor)->storage = rg_storage_retain(layout->storage);
    (*tensor)->offset = offset;
    (*tensor)->is_view = true;
    return RG_OK;
}

/* The tensor of a value that has a claim, or is a view of a source. */
static rg_status place_value(const rg_plan *plan, rg_layout_plan *layout, const rg_claims *c,
                             int32_t v)
{
    const rg_sequence *s = &layout->sequence;
    const int32_t root = rg_sequence_root(s, v), source = s->slots[root].source;
    if (c->of_value[v] >= 0)
        return rg_layout_tensor(plan, layout, &s->descs[v], c->list[c->of_value[v]].offset,
                                &layout->tensors[v]);
    if (root == v || source < 0)
        return RG_OK;
    RG_TRY(rg_tensor_make(plan->device, &s->descs[v], &layout->tensors[v]));
    layout->tensors[v]->storage = rg_storage_retain(layout->stand_ins[source]->storage);
    layout->tensors[v]->offset = layout->stand_ins[source]->offset;
    layout->tensors[v]->is_view = true;
    return RG_OK;
}

static rg_status make_values(const rg_plan *plan, rg_layout_plan *layout, const rg_claims *c)
{
    const rg_sequence *s = &layout->sequence;
    for (int32_t v = 0; v < s->slots_count; v++) {
        const rg_plan_value *slot = &s->slots[v];
        if (slot->parameter >= 0 && slot->live) {
            layout->tensors[v] = plan->parameters[slot->parameter];
            layout->tensors[v]->refs++;
            char have[RG_SHAPE_TEXT], want[RG_SHAPE_TEXT];
            RG_CHECK(rg_shape_same(&s->descs[v], &layout->tensors[v]->desc), RG_INVALID_ARGUMENT,
                     "%s: the parameter '%s' is %s, but is assigned %s",
                     plan->steps[plan->slots[v].made].label, plan->slots[slot->parameter].name,
                     rg_shape_text(&layout->tensors[v]->desc, want),
                     rg_shape_text(&s->descs[v], have));
        } else {
            RG_TRY(place_value(plan, layout, c, v));
        }
        if (slot->kind == RG_VALUE_CONSTANT && layout->tensors[v] != NULL)
            RG_TRY(rg_layout_fill(layout->tensors[v], slot->number));
    }
    return RG_OK;
}

static rg_status make_states(rg_layout_plan *layout, const rg_claims *c)
{
    const rg_sequence *s = &layout->sequence;
    int32_t at = c->values; /* their claims follow those of values */
    for (int32_t i = 0; i < s->steps_count; i++) {
        const rg_step *step = &s->steps[i];
        rg_tensor_desc x[RG_MAX_INPUTS];
        if (!step->keeps)
            continue;
        for (int32_t k = 0; k < step->inputs; k++)
            x[k] = s->descs[step->in[k]];
        RG_TRY(rg_state_make(step->kernel, x, &layout->states[i]));
        for (int32_t k = 0; k < layout->states[i]->count; k++) {
            rg_tensor *tensor = layout->states[i]->tensors[k];
            tensor->storage = rg_storage_retain(layout->storage);
            tensor->offset = c->list[at++].offset;
            tensor->is_view = true;
        }
    }
    return RG_OK;
}

rg_status rg_layout_fill(rg_tensor *tensor, double number)
{
    const rg_dtype dtype = tensor->desc.dtype;
    const size_t bytes = (size_t)rg_shape_count(&tensor->desc) * rg_dtype_size(dtype);
    void *data;
    RG_TRY(rg_allocate(allocator, bytes, &data));
    for (int64_t i = 0; i < rg_shape_count(&tensor->desc); i++)
        rg_element_set(data, dtype, i, number);
    const rg_status status = rg_tensor_write(tensor, data, bytes, RG_LAYOUT_SAME);
    rg_release(allocator, data, bytes);
    return status;
}

/* ---- layouts ---- */

/* What the options of the plan make of its steps. */
static rg_status make_schedule(const rg_plan *plan, rg_sequence *sequence)
{
    RG_TRY(rg_sequence_create(plan, sequence));
    RG_TRY(find_shapes(sequence));
    RG_TRY(rg_sequence_fuse(sequence));
    if (plan->options.add_gradients)
        RG_TRY(rg_sequence_sums(sequence));
    if (plan->options.share_views)
        rg_sequence_views(sequence);
    if (plan->options.budget > 0)
        RG_TRY(rg_sequence_fit(sequence, plan->options.budget));
    if (plan->options.batch_updates)
        RG_TRY(rg_sequence_batches(sequence));
    return RG_OK;
}

static rg_status fill_layout(rg_plan *plan, rg_layout_plan *layout, rg_claims *c)
{
    const rg_sequence *s = &layout->sequence;
    RG_TRY(rg_allocate_array(s->slots_capacity, sizeof *layout->tensors, &layout->tensors));
    RG_TRY(rg_allocate_array(s->steps_capacity, sizeof *layout->states, &layout->states));
    RG_TRY(rg_commands_create(plan->queue, &layout->recorded));
    for (int32_t i = 0; i < layout->inputs_count; i++)
        RG_TRY(rg_stand_in_create(layout->recorded, &layout->sources[i], layout->alignments[i],
                                  &layout->stand_ins[i]));
    RG_TRY(rg_claims_make(s, c));
    layout->apart = c->apart;
    RG_TRY(rg_claims_place(c->list, c->count, plan->options.reuse_storage, &layout->bytes));
    RG_TRY(rg_storage_create(plan->device, layout->bytes, &layout->storage));
    RG_TRY(make_values(plan, layout, c));
    RG_TRY(make_states(layout, c));
    RG_TRY(rg_layout_make_given(plan, layout));
    RG_TRY(rg_layout_list_memory(layout));
    return rg_layout_record(plan, layout, c);
}

static rg_status make_layout(rg_plan *plan, rg_layout_plan *layout)
{
    const rg_input_buffers *buffers = &plan->buffers;
    const size_t count = (size_t)buffers->count, given = (size_t)plan->given_count;
    rg_claims c = { .count = 0 };
    layout->inputs_count = buffers->count;
    RG_TRY(rg_allocate_array(count, sizeof *layout->sources, &layout->sources));
    RG_TRY(rg_allocate_array(count, sizeof *layout->alignments, &layout->alignments));
    RG_TRY(rg_allocate_array(count, sizeof *layout->stand_ins, &layout->stand_ins));
    RG_TRY(rg_allocate_array(count, sizeof *layout->copies, &layout->copies));
    RG_TRY(rg_allocate_array(given, sizeof *layout->given, &layout->given));
    for (size_t i = 0; i < count; i++) {
        layout->sources[i] = buffers->descs[i];
        layout->alignments[i] = buffers->alignments[i];
    }
    for (size_t k = 0; k < given; k++)
        layout->given[k] = buffers->given[k];
    RG_TRY(make_schedule(plan, &layout->sequence));
    const rg_status status = fill_layout(plan, layout, &c);
    rg_claims_free(&c);
    return status;
}

void rg_layout_destroy(rg_plan *plan, rg_layout_plan *layout)
{
    if (layout == NULL)
        return;
    const size_t values = layout->sequence.slots_capacity, steps = layout->sequence.steps_capacity;
    const size_t count = (size_t)layout->inputs_count, given = (size_t)plan->given_count;
    rg_replay_destroy(layout->replay);
    rg_commands_destroy(layout->recorded);
    for (size_t i = 0; layout->copies != NULL && i < count; i++)
        rg_tensor_destroy(layout->copies[i]);
    for (size_t i = 0; layout->stand_ins != NULL && i < count; i++)
        rg_tensor_destroy(layout->stand_ins[i]);
    for (size_t v = 0; layout->tensors != NULL && v < values; v++)
        rg_tensor_destroy(layout->tensors[v]);
    for (size_t s = 0; layout->states != NULL && s < steps; s++)
        rg_state_destroy(layout->states[s]);
    for (int64_t n = 0; layout->given_states != NULL && n < layout->given_count; n++)
        rg_state_destroy(layout->given_states[n]);
    rg_storage_release(layout->storage);
    rg_release(allocator, layout->given, given * sizeof *layout->given);
    rg_release(allocator, layout->given_states,
               (size_t)layout->given_count * sizeof *layout->given_states);
    rg_release(allocator, layout->sources, count * sizeof *layout->sources);
    rg_release(allocator, layout->alignments, count * sizeof *layout->alignments);
    rg_release(allocator, layout->stand_ins, count * sizeof *layout->stand_ins);
    rg_release(allocator, layout->copies, count * sizeof *layout->copies);
    rg_release(allocator, layout->tensors, values * sizeof *layout->tensors);
    rg_release(allocator, layout->states, steps * sizeof *layout->states);
    rg_release(allocator, layout->ends, steps * sizeof *layout->ends);
    rg_release(allocator, layout->memory, layout->memory_capacity * sizeof *layout->memory);
    rg_sequence_destroy(&layout->sequence);
    rg_release(allocator, layout, sizeof *layout);
}

/* Whether the layout was made for inputs like those in the plan's buffers. */
static bool matches_inputs(const rg_plan *plan, const rg_layout_plan *layout)
{
    const rg_input_buffers *buffers = &plan->buffers;
    bool same = layout->inputs_count == buffers->count;
    for (int32_t i = 0; i < buffers->count && same; i++)
        same = layout->sources[i].dtype == buffers->descs[i].dtype &&
               rg_shape_same(&layout->sources[i], &buffers->descs[i]) &&
               layout->alignments[i] == buffers->alignments[i];
    for (int32_t k = 0; k < plan->given_count && same; k++)
        same = rg_given_same(&layout->given[k], &buffers->given[k]);
    return same;
}

rg_status rg_plan_layout(rg_plan *plan, rg_layout_plan **layout)
{
    for (rg_layout_plan *l = plan->layouts; l != NULL; l = l->next) {
        if (matches_inputs(plan, l)) {
            *layout = l;
            return RG_OK;
        }
    }
    rg_layout_plan *made = NULL;
    RG_TRY(rg_allocate_array(1, sizeof *made, &made));
    const rg_status status = make_layout(plan, made);
    if (status != RG_OK) {
        rg_layout_destroy(plan, made);
        return status;
    }
    made->next = plan->layouts;
    plan->layouts = made;
    *layout = made;
    return RG_OK;
}

/* ---- encoding ---- */

bool rg_plan_may_replay(const rg_plan *plan)
{
    return plan->options.replay && !plan->options.poison && plan->device->backend->capture != NULL;
}

static rg_status ensure_copy(const rg_plan *plan, rg_layout_plan *layout, int32_t source)
{
    if (layout->copies[source] != NULL)
        return RG_OK;
    return rg_tensor_create(plan->device, &layout->sources[source], &layout->copies[source]);
}

static rg_status make_replay(const rg_plan *plan, rg_layout_plan *layout)
{
    for (int32_t i = 0; i < layout->inputs_count; i++)
        RG_TRY(ensure_copy(plan, layout, i));
    const rg_stand_ins s = { layout->stand_ins, layout->copies, layout->inputs_count };
    return rg_replay_create(plan->queue, layout->recorded, &s, &layout->replay);
}

/* From the second run on, when all kernels are loaded. A capture that fails is tried a few times;
 * runs then launch kernel by kernel. */
static void try_replay(const rg_plan *plan, rg_layout_plan *layout)
{
    enum { MOST_FAILURES = 3 };
    if (plan->piece != NULL || !rg_plan_may_replay(plan) || layout->replay != NULL ||
        layout->failures >= MOST_FAILURES || layout->runs++ == 0)
        return;
    layout->failures += make_replay(plan, layout) != RG_OK;
}

bool rg_layout_reads(const rg_plan *plan, const rg_layout_plan *layout, const rg_tensor *source,
                     int32_t index)
{
    return layout->alignments[index] == rg_source_alignment(plan, source) &&
           rg_shape_same(&layout->sources[index], &source->desc);
}

rg_status rg_layout_encode(const rg_plan *plan, rg_layout_plan *layout, rg_commands *commands)
{
    rg_tensor *const *inputs = plan->buffers.tensors;
    rg_tensor **const read = plan->buffers.read;
    try_replay(plan, layout);
    for (int32_t i = 0; i < layout->inputs_count; i++) {
        read[i] = inputs[i];
        if (layout->replay == NULL && rg_layout_reads(plan, layout, inputs[i], i))
            continue;
        RG_TRY(ensure_copy(plan, layout, i));
        read[i] = layout->copies[i];
        RG_TRY(rg_commands_gather(commands, inputs[i], read[i]));
    }
    if (layout->replay != NULL)
        return rg_commands_launch(commands, layout->replay);
    const rg_stand_ins s = { layout->stand_ins, read, layout->inputs_count };
    if (plan->piece != NULL)
        return rg_layout_encode_piece(plan, layout, commands, &s);
    if (plan->cuts != NULL)
        return rg_layout_encode_cut(plan, layout, commands, &s);
    return rg_commands_repeat(commands, layout->recorded, &s);
}
