/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Layouts: shapes of all values for one set of sources, and storage for them. */
#include "graph/plan.h"

#include "core/dtype.h"

static const rg_allocator *const allocator = &rg_default_allocator;

/* ---- shapes ---- */

static rg_status step_shapes(const rg_step *step, rg_tensor_desc descs[])
{
    rg_tensor_desc y[RG_MAX_OUTPUTS], x[RG_MAX_INPUTS];
    for (int32_t i = 0; i < (step->gradient ? step->outputs : step->inputs); i++)
        x[i] = descs[step->gradient ? step->source[i] : step->in[i]];
    if (!step->gradient)
        RG_TRY(step->op->shapes(step->kernel->desc, x, y));
    for (int32_t i = 0; i < step->outputs; i++) {
        const rg_tensor_desc *d = step->gradient ? &x[i] : &y[i];
        if (step->out[i] >= 0)
            descs[step->out[i]] = rg_tensor_desc_dense(d->dtype, d->rank, d->dims);
    }
    return RG_OK;
}

/* Who makes the inputs of a step, for the sentence about it. */
static void name_inputs(const rg_plan *plan, const rg_step *step, const rg_tensor_desc descs[])
{
    for (int32_t i = step->inputs - 1; i >= 0; i--) {
        char shape[RG_SHAPE_TEXT];
        if (step->in[i] < 0)
            continue;
        const rg_slot *slot = &plan->slots[step->in[i]];
        const char *maker = slot->name != NULL ? slot->name
                            : slot->made >= 0  ? plan->steps[slot->made].label
                                               : "a constant";
        rg_error_prefix("%s%s from %s", i > 0 ? ", " : "",
                        rg_shape_text(&descs[step->in[i]], shape), maker);
    }
    rg_error_prefix("%s, of ", step->label);
}

static rg_status find_shapes(const rg_plan *plan, const rg_tensor_desc sources[],
                             rg_tensor_desc descs[])
{
    for (int32_t i = 0; i < plan->sources_count; i++)
        descs[plan->sources[i]] = sources[i];
    for (int32_t v = 0; v < plan->slots_count; v++) {
        if (plan->slots[v].kind == RG_VALUE_PARAMETER)
            descs[v] = plan->slots[v].desc;
    }
    for (int32_t s = 0; s < plan->steps_count; s++) {
        for (int32_t i = 0; i < plan->steps[s].inputs; i++) { /* constants, when first read */
            const int32_t v = plan->steps[s].in[i];
            if (v >= 0 && plan->slots[v].kind == RG_VALUE_CONSTANT) {
                const rg_tensor_desc *like = &descs[plan->slots[v].like];
                descs[v] = rg_tensor_desc_dense(like->dtype, like->rank, like->dims);
            }
        }
        const rg_status status = step_shapes(&plan->steps[s], descs);
        if (status != RG_OK) {
            name_inputs(plan, &plan->steps[s], descs);
            return status;
        }
    }
    return RG_OK;
}

/* ---- claims ---- */

/* Values and the tensors of states that want storage: `owner` of a value is the value whose claim
 * it shares. */
typedef struct claims {
    rg_claim *list;
    int32_t count;
    int32_t *of_value; /* by value: its claim, or -1 */
} claims;

static bool wants_storage(const rg_slot *slot)
{
    return slot->parameter < 0 && (slot->made >= 0 || slot->kind == RG_VALUE_CONSTANT);
}

/* The place of `value` among the entries of a step that may share with output `out`, for all of
 * them: it may be read more than once. */
static bool may_take(const rg_step *step, const char *read, const int32_t values[], int32_t count,
                     int32_t value, const char *written, int32_t out)
{
    for (int32_t i = 0; i < count; i++) {
        if (values[i] == value &&
            !rg_op_may_alias(step->op, step->kernel->desc, read, i, written, out))
            return false;
    }
    return true;
}

/* Whether output `out` of a step may be written over `value`, which the step reads last. */
static bool may_overwrite(const rg_plan *plan, int32_t s, int32_t value, int32_t out)
{
    const rg_step *step = &plan->steps[s];
    const rg_slot *slot = &plan->slots[value];
    if (slot->kind != RG_VALUE_OUTPUT || slot->parameter >= 0 || slot->result || slot->last != s)
        return false;
    if (!step->gradient)
        return may_take(step, "x", step->in, step->inputs, value, "y", out);
    return may_take(step, "dy", step->in, step->inputs, value, "dx", out) &&
           may_take(step, "x", step->x, RG_MAX_INPUTS, value, "dx", out) &&
           may_take(step, "y", step->y, RG_MAX_OUTPUTS, value, "dx", out);
}

/* A value of the same shape that output `out` of step s can be written over, or -1. */
static int32_t find_place(const rg_plan *plan, const rg_tensor_desc descs[], const claims *c,
                          int32_t s, int32_t out)
{
    const rg_step *step = &plan->steps[s];
    const rg_tensor_desc *desc = &descs[step->out[out]];
    for (int32_t i = 0; i < 2 * RG_MAX_INPUTS + RG_MAX_OUTPUTS; i++) {
        const int32_t value = i < RG_MAX_INPUTS       ? step->in[i]
                              : i < 2 * RG_MAX_INPUTS ? step->x[i - RG_MAX_INPUTS]
                                                      : step->y[i - 2 * RG_MAX_INPUTS];
        if (value < 0 || c->of_value[value] < 0 || !rg_shape_same(desc, &descs[value]) ||
            !may_overwrite(plan, s, value, out))
            continue;
        bool taken = false; /* by an output before */
        for (int32_t k = 0; k < out; k++)
            taken |= step->out[k] >= 0 && c->of_value[step->out[k]] == c->of_value[value];
        if (!taken && c->list[c->of_value[value]].last == s)
            return value;
    }
    return -1;
}

static rg_status claim_value(const rg_plan *plan, const rg_tensor_desc descs[], claims *c,
                             int32_t v, size_t *apart)
{
    const rg_slot *slot = &plan->slots[v];
    size_t reach;
    RG_TRY(rg_shape_check(&descs[v], "a value", &reach));
    RG_CHECK(!__builtin_add_overflow(*apart, reach + RG_ALIGNMENT, apart), RG_OUT_OF_MEMORY,
             "out of memory: all values together exceed the address space");
    const int32_t end = plan->steps_count;
    const bool fixed = slot->kind == RG_VALUE_CONSTANT; /* written once, read by every run */
    c->of_value[v] = c->count;
    c->list[c->count++] = (rg_claim){ .bytes = reach,
                                      .first = fixed ? -1 : slot->made,
                                      .last = fixed || slot->result ? end : slot->last };
    return RG_OK;
}

static rg_status claim_values(const rg_plan *plan, const rg_tensor_desc descs[], claims *c,
                              size_t *apart)
{
    for (int32_t v = 0; v < plan->slots_count; v++) {
        c->of_value[v] = -1;
        if (plan->slots[v].kind == RG_VALUE_CONSTANT && plan->slots[v].last >= 0)
            RG_TRY(claim_value(plan, descs, c, v, apart));
    }
    for (int32_t s = 0; s < plan->steps_count; s++) {
        const rg_step *step = &plan->steps[s];
        for (int32_t i = 0; i < step->outputs; i++) {
            const int32_t v = step->out[i];
            if (v < 0 || !wants_storage(&plan->slots[v]))
                continue;
            const int32_t place = plan->options.in_place ? find_place(plan, descs, c, s, i) : -1;
            if (place < 0) {
                RG_TRY(claim_value(plan, descs, c, v, apart));
                continue;
            }
            const rg_slot *slot = &plan->slots[v];
            rg_claim *claim = &c->list[c->of_value[place]];
            c->of_value[v] = c->of_value[place];
            claim->last = slot->result ? plan->steps_count : slot->last;
            *apart += claim->bytes;
        }
    }
    return RG_OK;
}

/* A state lives from its forward step to the last gradient that reads it. */
static int32_t last_use(const rg_plan *plan, int32_t s)
{
    int32_t last = s;
    for (int32_t g = s + 1; g < plan->steps_count; g++)
        last = plan->steps[g].forward == s ? g : last;
    return last;
}

static rg_status claim_states(const rg_plan *plan, rg_layout_plan *layout, claims *c)
{
    for (int32_t s = 0; s < plan->steps_count; s++) {
        const rg_step *step = &plan->steps[s];
        rg_tensor_desc x[RG_MAX_INPUTS];
        if (!step->keeps)
            continue;
        for (int32_t i = 0; i < step->inputs; i++)
            x[i] = layout->descs[step->in[i]];
        RG_TRY(rg_state_make(step->kernel, x, &layout->states[s]));
        const int32_t last = last_use(plan, s);
        for (int32_t i = 0; i < layout->states[s]->count; i++) {
            size_t reach;
            RG_TRY(rg_shape_check(&layout->states[s]->tensors[i]->desc, "a state", &reach));
            layout->apart += reach;
            c->list[c->count++] = (rg_claim){ .bytes = reach, .first = s, .last = last };
        }
    }
    return RG_OK;
}

/* ---- tensors ---- */

static rg_status make_tensor(const rg_plan *plan, const rg_layout_plan *layout,
                             const rg_tensor_desc *desc, size_t offset, rg_tensor **tensor)
{
    RG_TRY(rg_tensor_make(plan->device, desc, tensor));
    (*tensor)->storage = rg_storage_retain(layout->storage);
    (*tensor)->offset = offset;
    (*tensor)->is_view = true;
    return RG_OK;
}

static rg_status make_tensors(rg_plan *plan, rg_layout_plan *layout, const claims *c)
{
    for (int32_t v = 0; v < plan->slots_count; v++) {
        const rg_slot *slot = &plan->slots[v];
        if (slot->parameter >= 0 && slot->live) {
            layout->tensors[v] = plan->parameters[slot->parameter];
            layout->tensors[v]->refs++;
            RG_CHECK(rg_shape_same(&layout->descs[v], &layout->tensors[v]->desc),
                     RG_INVALID_ARGUMENT, "the parameter '%s' is assigned another shape",
                     plan->slots[slot->parameter].name);
        } else if (c->of_value[v] >= 0) {
            RG_TRY(make_tensor(plan, layout, &layout->descs[v], c->list[c->of_value[v]].offset,
                               &layout->tensors[v]));
        }
        if (slot->kind == RG_VALUE_CONSTANT && layout->tensors[v] != NULL)
            RG_TRY(rg_layout_fill(layout->tensors[v], slot->number));
    }
    int32_t at = c->count;
    for (int32_t s = plan->steps_count - 1; s >= 0; s--) { /* their claims stand last, in order */
        for (int32_t i = layout->states[s] != NULL ? layout->states[s]->count - 1 : -1; i >= 0;
             i--) {
            rg_tensor *tensor = layout->states[s]->tensors[i];
            tensor->storage = rg_storage_retain(layout->storage);
            tensor->offset = c->list[--at].offset;
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

/* ---- recording ---- */

static rg_tensor *tensor_of(const rg_plan *plan, const rg_layout_plan *layout, int32_t value)
{
    if (value < 0)
        return NULL;
    const int32_t source = plan->slots[value].source;
    return source >= 0 ? layout->stand_ins[source] : layout->tensors[value];
}

static rg_status record_step(const rg_plan *plan, const rg_layout_plan *layout, int32_t s)
{
    const rg_step *step = &plan->steps[s];
    rg_tensor *in[RG_MAX_INPUTS], *out[RG_MAX_INPUTS], *x[RG_MAX_INPUTS], *y[RG_MAX_OUTPUTS];
    for (int32_t i = 0; i < RG_MAX_INPUTS; i++) {
        in[i] = tensor_of(plan, layout, step->in[i]);
        out[i] = tensor_of(plan, layout, step->out[i]);
        x[i] = tensor_of(plan, layout, step->x[i]);
    }
    for (int32_t i = 0; i < RG_MAX_OUTPUTS; i++)
        y[i] = tensor_of(plan, layout, step->y[i]);
    if (!step->gradient)
        return rg_kernel_forward(step->kernel, layout->recorded, in, out, layout->states[s]);
    rg_state *state = step->forward >= 0 ? layout->states[step->forward] : NULL;
    return rg_kernel_gradient(step->kernel, layout->recorded, in, x, y, state, out, 0);
}

/* Overwrites the storage of what step s was the last to use, for tests: a plan that still reads it
 * gives wrong numbers. */
static rg_status poison(const rg_plan *plan, const rg_layout_plan *layout, const claims *c,
                        int32_t s)
{
    for (int32_t i = 0; i < c->count; i++) {
        const rg_claim *claim = &c->list[i];
        if (claim->last != s || claim->bytes == 0)
            continue;
        rg_tensor *tensor;
        const int64_t bytes = (int64_t)claim->bytes;
        const rg_tensor_desc desc = rg_tensor_desc_dense(RG_U8, 1, &bytes);
        RG_TRY(make_tensor(plan, layout, &desc, claim->offset, &tensor));
        const rg_status status = rg_commands_write(layout->recorded, tensor, layout->poison,
                                                   claim->bytes, RG_LAYOUT_SAME);
        rg_tensor_destroy(tensor);
        RG_TRY(status);
    }
    return RG_OK;
}

static rg_status prepare_poison(rg_layout_plan *layout, const claims *c)
{
    for (int32_t i = 0; i < c->count; i++) {
        if (c->list[i].bytes > layout->poison_bytes)
            layout->poison_bytes = c->list[i].bytes;
    }
    RG_TRY(rg_allocate(allocator, layout->poison_bytes, &layout->poison));
    if (layout->poison_bytes > 0)
        memset(layout->poison, 0xff, layout->poison_bytes); /* NaN in every dtype */
    return RG_OK;
}

static rg_status record(rg_plan *plan, rg_layout_plan *layout, const claims *c)
{
    RG_TRY(rg_commands_create(plan->queue, &layout->recorded));
    for (int32_t i = 0; i < plan->sources_count; i++)
        RG_TRY(rg_stand_in_create(layout->recorded, &layout->sources[i], layout->alignments[i],
                                  &layout->stand_ins[i]));
    if (plan->options.poison)
        RG_TRY(prepare_poison(layout, c));
    for (int32_t s = 0; s < plan->steps_count; s++) {
        rg_status status = record_step(plan, layout, s);
        if (status == RG_OK && plan->options.poison)
            status = poison(plan, layout, c, s);
        if (status != RG_OK) {
            name_inputs(plan, &plan->steps[s], layout->descs);
            return status;
        }
    }
    layout->scratch = layout->recorded->part->heap_size;
    return RG_OK;
}

/* ---- layouts ---- */

static rg_status fill_layout(rg_plan *plan, const rg_tensor_desc sources[], rg_layout_plan *layout,
                             claims *c)
{
    RG_TRY(find_shapes(plan, sources, layout->descs));
    RG_TRY(claim_values(plan, layout->descs, c, &layout->apart));
    RG_TRY(claim_states(plan, layout, c));
    RG_TRY(rg_claims_place(c->list, c->count, plan->options.reuse_storage, &layout->bytes));
    RG_TRY(rg_storage_create(plan->device, layout->bytes, &layout->storage));
    RG_TRY(make_tensors(plan, layout, c));
    return record(plan, layout, c);
}

static rg_status make_layout(rg_plan *plan, const rg_tensor_desc sources[],
                             const size_t alignments[], rg_layout_plan *layout)
{
    const size_t values = (size_t)plan->slots_count, steps = (size_t)plan->steps_count;
    const size_t count = (size_t)plan->sources_count;
    const size_t most = values + steps * RG_MAX_STATE;
    claims c = { .count = 0 };
    RG_TRY(rg_room(count, sizeof *layout->sources, &layout->sources));
    RG_TRY(rg_room(count, sizeof *layout->alignments, &layout->alignments));
    RG_TRY(rg_room(count, sizeof *layout->stand_ins, &layout->stand_ins));
    RG_TRY(rg_room(values, sizeof *layout->descs, &layout->descs));
    RG_TRY(rg_room(values, sizeof *layout->tensors, &layout->tensors));
    RG_TRY(rg_room(steps, sizeof *layout->states, &layout->states));
    for (size_t i = 0; i < count; i++) {
        layout->sources[i] = sources[i];
        layout->alignments[i] = alignments != NULL ? alignments[i] : 0;
    }
    rg_status status = rg_room(most, sizeof *c.list, &c.list);
    if (status == RG_OK)
        status = rg_room(values, sizeof *c.of_value, &c.of_value);
    if (status == RG_OK)
        status = fill_layout(plan, sources, layout, &c);
    rg_release(allocator, c.list, most * sizeof *c.list);
    rg_release(allocator, c.of_value, values * sizeof *c.of_value);
    return status;
}

void rg_layout_destroy(rg_plan *plan, rg_layout_plan *layout)
{
    if (layout == NULL)
        return;
    const size_t values = (size_t)plan->slots_count, steps = (size_t)plan->steps_count;
    const size_t count = (size_t)plan->sources_count;
    rg_commands_destroy(layout->recorded);
    for (size_t i = 0; layout->stand_ins != NULL && i < count; i++)
        rg_tensor_destroy(layout->stand_ins[i]);
    for (size_t v = 0; layout->tensors != NULL && v < values; v++)
        rg_tensor_destroy(layout->tensors[v]);
    for (size_t s = 0; layout->states != NULL && s < steps; s++)
        rg_state_destroy(layout->states[s]);
    rg_storage_release(layout->storage);
    rg_release(allocator, layout->sources, count * sizeof *layout->sources);
    rg_release(allocator, layout->alignments, count * sizeof *layout->alignments);
    rg_release(allocator, layout->stand_ins, count * sizeof *layout->stand_ins);
    rg_release(allocator, layout->poison, layout->poison_bytes);
    rg_release(allocator, layout->descs, values * sizeof *layout->descs);
    rg_release(allocator, layout->tensors, values * sizeof *layout->tensors);
    rg_release(allocator, layout->states, steps * sizeof *layout->states);
    rg_release(allocator, layout, sizeof *layout);
}

static bool serves(const rg_plan *plan, const rg_layout_plan *layout,
                   const rg_tensor_desc sources[], const size_t alignments[])
{
    for (int32_t i = 0; i < plan->sources_count; i++) {
        if (layout->sources[i].dtype != sources[i].dtype ||
            !rg_shape_same(&layout->sources[i], &sources[i]) ||
            layout->alignments[i] != (alignments != NULL ? alignments[i] : 0))
            return false;
    }
    return true;
}

rg_status rg_plan_layout(rg_plan *plan, const rg_tensor_desc sources[], const size_t alignments[],
                         rg_layout_plan **layout)
{
    for (rg_layout_plan *l = plan->layouts; l != NULL; l = l->next) {
        if (serves(plan, l, sources, alignments)) {
            *layout = l;
            return RG_OK;
        }
    }
    rg_layout_plan *made = NULL;
    RG_TRY(rg_room(1, sizeof *made, &made));
    const rg_status status = make_layout(plan, sources, alignments, made);
    if (status != RG_OK) {
        rg_layout_destroy(plan, made);
        return status;
    }
    made->next = plan->layouts;
    plan->layouts = made;
    *layout = made;
    return RG_OK;
}
