/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Claims: how much storage values and states need, and for how long; results written in place. */
#include "graph/plan.h"

static const rg_allocator *const allocator = &rg_default_allocator;

static bool wants_storage(const rg_plan_value *slot)
{
    return slot->parameter < 0 && (slot->made >= 0 || slot->kind == RG_VALUE_CONSTANT);
}

/* ---- in place ---- */

/* Whether output k, which is `written`, may be written over claim `claim`, for all of the values
 * with role `read` that have it: a value may be read more than once. */
static bool may_alias_all(const rg_step *step, const rg_claims *c, rg_role read, int32_t claim,
                          rg_role written, int32_t k)
{
    const int32_t *values = read == RG_ROLE_X && step->gradient ? step->x
                            : read == RG_ROLE_Y                 ? step->y
                                                                : step->in;
    const int32_t count = values == step->x   ? RG_MAX_INPUTS
                          : values == step->y ? RG_MAX_OUTPUTS
                                              : step->inputs;
    for (int32_t i = 0; i < count; i++) {
        if (values[i] >= 0 && c->of_value[values[i]] == claim &&
            !rg_op_may_alias(step->op, step->kernel->desc, RG_ALIAS(read, i, written, k)))
            return false;
    }
    return true;
}

/* Whether output `out` of a step may be written over `value`, which the step reads last. */
static bool may_overwrite(const rg_sequence *s, const rg_claims *c, int32_t at, int32_t value,
                          int32_t out)
{
    const rg_step *step = &s->steps[at];
    const rg_plan_value *slot = &s->slots[value];
    const int32_t claim = c->of_value[value];
    if (slot->kind != RG_VALUE_OUTPUT || slot->parameter >= 0 || slot->result || slot->last != at)
        return false;
    for (int32_t k = 0; k < step->outputs; k++) { /* taken by an output before, or added into */
        if ((k < out && step->out[k] >= 0 && c->of_value[step->out[k]] == claim) ||
            (step->base[k] >= 0 && c->of_value[step->base[k]] == claim) || step->views >> k & 1)
            return false;
    }
    if (!step->gradient)
        return may_alias_all(step, c, RG_ROLE_X, claim, RG_ROLE_Y, out);
    return may_alias_all(step, c, RG_ROLE_DY, claim, RG_ROLE_DX, out) &&
           may_alias_all(step, c, RG_ROLE_X, claim, RG_ROLE_DX, out) &&
           may_alias_all(step, c, RG_ROLE_Y, claim, RG_ROLE_DX, out);
}

/* A value of the same shape that output `out` of a step can be written over, or -1. */
static int32_t find_overwritten(const rg_sequence *s, const rg_claims *c, int32_t at, int32_t out)
{
    const rg_step *step = &s->steps[at];
    const rg_tensor_desc *desc = &s->descs[step->out[out]];
    int32_t value;
    if (!s->plan->options.in_place || step->begin != step->end)
        return -1;
    for (int32_t i = 0; rg_step_read(step, i, &value); i++) {
        if (value >= 0 && c->of_value[value] >= 0 && rg_shape_same(desc, &s->descs[value]) &&
            c->list[c->of_value[value]].last == at && may_overwrite(s, c, at, value, out))
            return value;
    }
    return -1;
}

/* ---- values ---- */

static rg_status claim_value(const rg_sequence *s, rg_claims *c, int32_t v)
{
    const rg_plan_value *slot = &s->slots[v];
    size_t bytes;
    RG_TRY(rg_shape_check(&s->descs[v], "a value", &bytes));
    RG_CHECK(!__builtin_add_overflow(c->apart, bytes + RG_ALIGNMENT, &c->apart), RG_OUT_OF_MEMORY,
             "out of memory: the values together exceed the address space");
    const bool fixed = slot->kind == RG_VALUE_CONSTANT; /* written once, read by every run */
    c->of_value[v] = c->count;
    c->list[c->count++] = (rg_claim){ .bytes = bytes,
                                      .first = fixed ? -1 : slot->made,
                                      .last = fixed || slot->result ? s->steps_count : slot->last };
    return RG_OK;
}

/* Output `out` of a step: a claim of its own, or that of what it is written over. */
static rg_status claim_output(const rg_sequence *s, rg_claims *c, int32_t at, int32_t out)
{
    const rg_step *step = &s->steps[at];
    const int32_t v = step->out[out];
    if (s->slots[v].view >= 0) {
        c->of_value[v] = c->of_value[s->slots[v].view]; /* -1 for a source */
        c->apart += c->of_value[v] >= 0 ? c->list[c->of_value[v]].bytes : 0;
        return RG_OK;
    }
    const int32_t old = step->base[out] >= 0 ? step->base[out] : find_overwritten(s, c, at, out);
    if (old < 0)
        return claim_value(s, c, v);
    rg_claim *claim = &c->list[c->of_value[old]];
    c->of_value[v] = c->of_value[old];
    claim->last = s->slots[v].result ? s->steps_count : s->slots[v].last;
    c->apart += claim->bytes;
    return RG_OK;
}

static rg_status claim_values(const rg_sequence *s, rg_claims *c)
{
    for (int32_t v = 0; v < s->slots_count; v++) {
        c->of_value[v] = -1;
        if (s->slots[v].kind == RG_VALUE_CONSTANT && (s->slots[v].last >= 0 || s->slots[v].result))
            RG_TRY(claim_value(s, c, v));
    }
    for (int32_t at = 0; at < s->steps_count; at++) {
        const rg_step *step = &s->steps[at];
        for (int32_t i = 0; i < step->outputs; i++) {
            if (step->out[i] >= 0 && wants_storage(&s->slots[step->out[i]]))
                RG_TRY(claim_output(s, c, at, i));
        }
    }
    c->values = c->count;
    return RG_OK;
}

/* ---- states ---- */

/* The tensors of a step's state, which live from this step to `last`. */
static rg_status claim_state(const rg_sequence *s, rg_claims *c, int32_t at, int32_t last)
{
    const rg_step *step = &s->steps[at];
    rg_tensor_desc x[RG_MAX_INPUTS];
    rg_state_slot slots[RG_MAX_STATE];
    for (int32_t i = 0; i < step->inputs; i++)
        x[i] = s->descs[step->in[i]];
    const int32_t count = step->op->state(step->kernel->desc, x, slots);
    for (int32_t i = 0; i < count; i++) {
        size_t bytes;
        RG_TRY(rg_shape_check(&slots[i].desc, "a state", &bytes));
        RG_CHECK(!__builtin_add_overflow(c->apart, bytes, &c->apart), RG_OUT_OF_MEMORY,
                 "out of memory: all states together exceed the address space");
        c->list[c->count++] = (rg_claim){ .bytes = bytes, .first = at, .last = last };
    }
    return RG_OK;
}

static rg_status claim_states(const rg_sequence *s, rg_claims *c, int32_t last_use[])
{
    for (int32_t at = 0; at < s->steps_count; at++) {
        if (s->steps[at].forward >= 0)
            last_use[s->steps[at].forward] = at;
    }
    for (int32_t at = 0; at < s->steps_count; at++) {
        const int32_t last = s->steps[at].shown ? s->steps_count : last_use[at];
        if (s->steps[at].keeps && s->steps[at].op->state != NULL)
            RG_TRY(claim_state(s, c, at, last > at ? last : at));
    }
    return RG_OK;
}

rg_status rg_claims_make(const rg_sequence *s, rg_claims *c)
{
    int32_t *last_use = NULL;
    *c = (rg_claims){ .list_capacity = s->slots_capacity + s->steps_capacity * RG_MAX_STATE,
                      .values_capacity = s->slots_capacity };
    RG_TRY(rg_allocate_array(c->list_capacity, sizeof *c->list, &c->list));
    RG_TRY(rg_allocate_array(c->values_capacity, sizeof *c->of_value, &c->of_value));
    RG_TRY(claim_values(s, c));
    RG_TRY(rg_allocate_array(s->steps_capacity, sizeof *last_use, &last_use));
    const rg_status status = claim_states(s, c, last_use);
    rg_release(allocator, last_use, s->steps_capacity * sizeof *last_use);
    return status;
}

void rg_claims_free(rg_claims *c)
{
    rg_release(allocator, c->list, c->list_capacity * sizeof *c->list);
    rg_release(allocator, c->of_value, c->values_capacity * sizeof *c->of_value);
}
