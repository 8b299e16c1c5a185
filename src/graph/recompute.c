/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Recomputation: what is cheap to compute is dropped after its last forward reader, and computed
 * again for the backward pass, until storage fits into a budget. */
#include "graph/plan.h"

static const rg_allocator *const allocator = &rg_default_allocator;

enum {
    MAX_CHAIN = 8,              /* steps that run again for one value */
    MAX_STEPS_VISITED = 1 << 23 /* by all attempts together; each of them visits every step */
};

/* Steps that make a value again, in the order of the sequence. */
typedef struct chain {
    int32_t steps[MAX_CHAIN];
    int32_t count;
} chain;

/* ---- what can be computed again ---- */

/* Whether a value can be read just before step `at` and takes no more storage for it. */
static bool is_available(const rg_sequence *s, int32_t value, int32_t at)
{
    const rg_plan_value *slot = &s->slots[rg_sequence_root(s, value)];
    if (slot->parameter >= 0)
        return slot->kind == RG_VALUE_PARAMETER && !rg_sequence_overwrites(s, slot->parameter, at);
    return slot->kind != RG_VALUE_OUTPUT || slot->result || slot->last >= at;
}

/* How many inputs the step needs to make its first output alone; -1 if it cannot. */
static int32_t inputs_to_repeat(const rg_step *step)
{
    _Alignas(16) char desc[RG_MAX_DESC];
    if (step->gradient || !step->op->fusion.is_cheap || step->views != 0)
        return -1;
    if (step->outputs == 1)
        return step->inputs;
    memcpy(desc, step->kernel->desc, step->op->desc.size);
    return step->op->fusion.keep_first_output != NULL && step->op->fusion.keep_first_output(desc)
               ? rg_op_inputs(step->op, desc)
               : -1;
}

/* Collects the steps that make `value` again before step `at`. */
static bool collect(const rg_sequence *s, int32_t value, int32_t at, chain *c)
{
    const rg_plan_value *slot = &s->slots[value];
    if (slot->kind != RG_VALUE_OUTPUT || slot->parameter >= 0 || slot->view >= 0 ||
        s->steps[slot->made].out[0] != value)
        return false;
    for (int32_t i = 0; i < c->count; i++) {
        if (c->steps[i] == slot->made)
            return true;
    }
    const rg_step *step = &s->steps[slot->made];
    const int32_t inputs = inputs_to_repeat(step);
    for (int32_t i = 0; i < inputs; i++) {
        if (!is_available(s, step->in[i], at) && !collect(s, step->in[i], at, c))
            return false;
    }
    if (inputs < 0 || c->count == MAX_CHAIN)
        return false;
    c->steps[c->count++] = slot->made;
    return true;
}

/* ---- candidates ---- */

/* By value: whether it was tried, and the first step after a given one that reads it; -1: none, or
 * the given step reads or writes it, or it has views. */
typedef struct search {
    bool *tried;
    int32_t *reader;
} search;

static void find_readers(const rg_sequence *s, int32_t at, int32_t reader[])
{
    int32_t value;
    for (int32_t v = 0; v < s->slots_count; v++)
        reader[v] = -1;
    for (int32_t i = s->steps_count - 1; i > at; i--) {
        for (int32_t k = 0; rg_step_read(&s->steps[i], k, &value); k++) {
            if (value >= 0)
                reader[value] = i;
        }
    }
    for (int32_t k = 0; at < s->steps_count && rg_step_read(&s->steps[at], k, &value); k++) {
        if (value >= 0)
            reader[value] = -1;
    }
    for (int32_t v = 0; v < s->slots_count; v++) {
        if (s->slots[v].view >= 0)
            reader[s->slots[v].view] = -1;
        if (s->slots[v].made >= at)
            reader[v] = -1;
    }
}

/* The largest value that lives across step `at`, is not tried yet and can be made again. */
static int32_t find_value(const rg_sequence *s, const rg_claims *c, int32_t at, const search *find,
                          chain *best, int32_t *before)
{
    int32_t found = -1;
    size_t most = 0;
    find_readers(s, at, find->reader);
    for (int32_t v = 0; v < s->slots_count; v++) {
        const rg_plan_value *slot = &s->slots[v];
        const int32_t reader = find->reader[v];
        chain again = { .count = 0 };
        if (find->tried[v] || slot->kind != RG_VALUE_OUTPUT || slot->result || c->of_value[v] < 0 ||
            c->list[c->of_value[v]].bytes <= most || reader < 0 || !s->steps[reader].gradient ||
            !collect(s, v, reader, &again))
            continue;
        found = v;
        most = c->list[c->of_value[v]].bytes;
        *best = again;
        *before = reader;
    }
    return found;
}

/* ---- steps that run again ---- */

static void replace(rg_step *step, int32_t from, int32_t to)
{
    for (int32_t i = 0; i < RG_MAX_INPUTS; i++) {
        step->in[i] = step->in[i] == from ? to : step->in[i];
        step->x[i] = step->x[i] == from ? to : step->x[i];
        step->base[i] = step->base[i] == from ? to : step->base[i];
    }
    for (int32_t i = 0; i < RG_MAX_OUTPUTS; i++)
        step->y[i] = step->y[i] == from ? to : step->y[i];
}

/* The step that does what `from` does, for its first output alone. */
static rg_status make_repeated_step(const rg_sequence *s, const rg_step *from, rg_step *step)
{
    *step = *from;
    step->keeps = step->shown = step->own_kernel = false;
    if (from->outputs == 1)
        return RG_OK;
    _Alignas(16) char desc[RG_MAX_DESC];
    memcpy(desc, from->kernel->desc, from->op->desc.size);
    from->op->fusion.keep_first_output(desc);
    step->outputs = 1;
    step->inputs = rg_op_inputs(from->op, desc);
    for (int32_t i = 0; i < RG_MAX_INPUTS; i++) {
        step->in[i] = i < step->inputs ? step->in[i] : -1;
        step->out[i] = i < 1 ? step->out[i] : -1;
    }
    RG_TRY(rg_kernel_create(s->plan->device, from->op, desc, &step->kernel));
    step->own_kernel = true;
    return RG_OK;
}

static void insert(rg_sequence *s, int32_t at, const rg_step *step)
{
    memmove(&s->steps[at + 1], &s->steps[at], (size_t)(s->steps_count - at) * sizeof *s->steps);
    s->steps[at] = *step;
    s->steps_count++;
    for (int32_t i = 0; i < s->steps_count; i++) {
        if (i != at)
            s->steps[i].forward += s->steps[i].forward >= at;
        s->steps[i].begin = s->steps[i].end = i;
    }
}

/* Runs the steps of a chain again before step `at`; what comes from there on reads their
 * results. `inserted` counts the new steps. */
static rg_status insert_repeated_steps(rg_sequence *s, const chain *c, int32_t at,
                                       int32_t *inserted)
{
    int32_t old[MAX_CHAIN], made[MAX_CHAIN];
    *inserted = 0;
    for (int32_t i = 0; i < c->count; i++, at++) {
        rg_step step;
        RG_TRY(make_repeated_step(s, &s->steps[c->steps[i]], &step));
        old[i] = step.out[0];
        made[i] = s->slots_count++;
        s->slots[made[i]] = s->slots[old[i]];
        s->descs[made[i]] = s->descs[old[i]];
        step.out[0] = made[i];
        for (int32_t k = 0; k < i; k++)
            replace(&step, old[k], made[k]);
        insert(s, at, &step);
        ++*inserted;
    }
    for (int32_t k = at; k < s->steps_count; k++)
        replace(&s->steps[k], old[c->count - 1], made[c->count - 1]);
    rg_sequence_times(s);
    return RG_OK;
}

/* ---- until it fits ---- */

/* A sequence as it was. */
typedef struct saved {
    rg_step *steps;
    int32_t steps_count, slots_count;
} saved;

static void save(const rg_sequence *s, saved *to)
{
    memcpy(to->steps, s->steps, (size_t)s->steps_count * sizeof *s->steps);
    to->steps_count = s->steps_count;
    to->slots_count = s->slots_count;
}

/* `count` steps from `at` on are new. */
static void restore(rg_sequence *s, const saved *from, int32_t at, int32_t count)
{
    for (int32_t i = at; i < at + count; i++) {
        if (s->steps[i].own_kernel)
            rg_kernel_destroy(s->steps[i].kernel);
    }
    memcpy(s->steps, from->steps, (size_t)from->steps_count * sizeof *s->steps);
    s->steps_count = from->steps_count;
    s->slots_count = from->slots_count;
    rg_sequence_times(s);
}

/* The most that is alive at one step, and the first such step; what is alive at step `other`. */
static rg_status measure(const rg_sequence *s, size_t *peak, int32_t *at, int32_t other,
                         size_t *there)
{
    rg_claims c;
    rg_status status = rg_claims_make(s, &c);
    if (status == RG_OK)
        status = rg_claims_bound(c.list, c.count, s->steps_count, peak, at);
    *there = 0;
    for (int32_t i = 0; i < c.count && status == RG_OK; i++)
        *there += c.list[i].first <= other && other <= c.list[i].last ? c.list[i].bytes : 0;
    rg_claims_free(&c);
    return status;
}

/* Drops one value that lives across the step with the largest sum. *done: nothing more can be. */
static rg_status drop_one(rg_sequence *s, const rg_claims *c, int32_t at, size_t peak, search *find,
                          saved *before, bool *done)
{
    chain again = { .count = 0 };
    int32_t reader = -1, where;
    const int32_t v = find_value(s, c, at, find, &again, &reader);
    *done = v < 0 || (size_t)(s->steps_count + again.count) > s->steps_capacity ||
            (size_t)(s->slots_count + again.count) > s->slots_capacity;
    if (*done)
        return RG_OK;
    size_t old, new, least;
    int32_t inserted;
    find->tried[v] = true;
    RG_TRY(measure(s, &least, &where, at, &old));
    save(s, before);
    rg_status status = insert_repeated_steps(s, &again, reader, &inserted);
    if (status == RG_OK)
        status = measure(s, &least, &where, at, &new);
    if (status != RG_OK || least > peak || new >= old)
        restore(s, before, reader, inserted); /* its storage serves others all the same, or other
                                               * steps need more */
    return status;
}

static rg_status fit(rg_sequence *s, size_t budget, search *find, saved *before)
{
    int64_t work = 0;
    for (bool done = false; !done && work <= MAX_STEPS_VISITED; work += s->steps_count) {
        rg_claims c;
        size_t peak = 0, bytes = 0;
        int32_t at = 0;
        rg_status status = rg_claims_make(s, &c);
        if (status == RG_OK)
            status = rg_claims_bound(c.list, c.count, s->steps_count, &peak, &at);
        if (status == RG_OK && peak <= budget) {
            status = rg_claims_place(c.list, c.count, true, &bytes);
            done = bytes <= budget;
        }
        if (status == RG_OK && !done)
            status = drop_one(s, &c, at, peak, find, before, &done);
        rg_claims_free(&c);
        RG_TRY(status);
    }
    return RG_OK;
}

rg_status rg_sequence_fit(rg_sequence *s, size_t budget)
{
    search find = { NULL, NULL };
    saved before = { .steps = NULL };
    rg_status status = rg_allocate_array(s->slots_capacity, sizeof *find.tried, &find.tried);
    if (status == RG_OK)
        status = rg_allocate_array(s->slots_capacity, sizeof *find.reader, &find.reader);
    if (status == RG_OK)
        status = rg_allocate_array(s->steps_capacity, sizeof *before.steps, &before.steps);
    if (status == RG_OK)
        status = fit(s, budget, &find, &before);
    rg_release(allocator, find.tried, s->slots_capacity * sizeof *find.tried);
    rg_release(allocator, find.reader, s->slots_capacity * sizeof *find.reader);
    rg_release(allocator, before.steps, s->steps_capacity * sizeof *before.steps);
    return status;
}
