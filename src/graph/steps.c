/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Sequences: the steps of one layout, and passes over them that save copies, sums and launches. */
#include "graph/links.h"

#include <stdlib.h>

static const rg_allocator *const allocator = &rg_default_allocator;

/* ---- steps ---- */

rg_status rg_sequence_create(const rg_plan *plan, rg_sequence *s)
{
    const size_t steps = (size_t)plan->steps_count, values = (size_t)plan->slots_count;
    const size_t more = plan->options.budget > 0 ? 2 * steps : 0; /* those that run again */
    s->plan = plan;
    s->steps_capacity = steps + more;
    s->slots_capacity = values + more;
    RG_TRY(rg_allocate_array(s->steps_capacity, sizeof *s->steps, &s->steps));
    RG_TRY(rg_allocate_array(s->slots_capacity, sizeof *s->slots, &s->slots));
    RG_TRY(rg_allocate_array(s->slots_capacity, sizeof *s->descs, &s->descs));
    for (size_t i = 0; i < steps; i++) {
        s->steps[i] = plan->steps[i];
        s->steps[i].begin = s->steps[i].end = s->steps[i].origin = (int32_t)i;
    }
    for (size_t v = 0; v < values; v++) {
        s->slots[v] = plan->slots[v];
        s->slots[v].view = -1;
    }
    s->steps_count = plan->steps_count;
    s->slots_count = plan->slots_count;
    rg_sequence_times(s);
    return RG_OK;
}

static void drop_kernel(rg_step *step)
{
    if (step->own_kernel)
        rg_kernel_destroy(step->kernel);
}

void rg_sequence_destroy(rg_sequence *s)
{
    for (int32_t i = 0; i < s->steps_count; i++)
        drop_kernel(&s->steps[i]);
    rg_release(allocator, s->steps, s->steps_capacity * sizeof *s->steps);
    rg_release(allocator, s->slots, s->slots_capacity * sizeof *s->slots);
    rg_release(allocator, s->descs, s->slots_capacity * sizeof *s->descs);
}

void rg_sequence_drop(rg_sequence *s, int32_t at)
{
    rg_step *step = &s->steps[at];
    drop_kernel(step);
    step->own_kernel = false;
    step->gone = true;
    for (int32_t i = 0; i < step->outputs; i++) {
        if (step->out[i] >= 0 && s->slots[step->out[i]].made == at)
            s->slots[step->out[i]].made = -1;
    }
}

void rg_sequence_note_outputs(rg_sequence *s, int32_t at)
{
    const rg_step *step = &s->steps[at];
    for (int32_t i = 0; i < step->outputs; i++) {
        if (step->out[i] < 0)
            continue;
        rg_plan_value *slot = &s->slots[step->out[i]];
        slot->made = at;
        if (slot->parameter >= 0 && at < s->slots[slot->parameter].written)
            s->slots[slot->parameter].written = at;
    }
}

rg_status rg_sequence_compact(rg_sequence *s)
{
    int32_t *moved = NULL, count = 0; /* by step: its new index */
    const size_t capacity = (size_t)s->steps_count;
    RG_TRY(rg_allocate_array(capacity, sizeof *moved, &moved));
    for (int32_t i = 0; i < s->steps_count; i++) {
        moved[i] = count;
        if (s->steps[i].gone)
            continue;
        if (count < i)
            s->steps[count] = s->steps[i];
        s->steps[count].begin = s->steps[count].end = count;
        count++;
    }
    s->steps_count = count;
    for (int32_t i = 0; i < count; i++) {
        if (s->steps[i].forward >= 0)
            s->steps[i].forward = moved[s->steps[i].forward];
    }
    rg_release(allocator, moved, capacity * sizeof *moved);
    rg_sequence_times(s);
    return RG_OK;
}

bool rg_step_read(const rg_step *step, int32_t index, int32_t *value)
{
    if (index < 3 * RG_MAX_INPUTS) {
        const int32_t *const lists[] = { step->in, step->x, step->base };
        *value = lists[index / RG_MAX_INPUTS][index % RG_MAX_INPUTS];
        return true;
    }
    index -= 3 * RG_MAX_INPUTS;
    if (index >= RG_MAX_OUTPUTS)
        return false;
    *value = step->y[index];
    return true;
}

bool rg_sequence_overwrites(const rg_sequence *s, int32_t value, int32_t end)
{
    const int32_t parameter = value >= 0 ? s->slots[value].parameter : -1;
    return parameter >= 0 && s->slots[parameter].written < end;
}

bool rg_step_is_sum(const rg_step *step)
{
    return !step->gradient && step->op->fusion.is_sum != NULL &&
           step->op->fusion.is_sum(step->kernel->desc);
}

/* ---- times ---- */

/* A step also makes values that are not read. */
static void note_writes(rg_sequence *s, int32_t at)
{
    const rg_step *step = &s->steps[at];
    for (int32_t i = 0; i < step->outputs; i++) {
        if (step->out[i] < 0)
            continue;
        rg_plan_value *slot = &s->slots[step->out[i]];
        slot->made = step->begin;
        if (slot->parameter >= 0 && at < s->slots[slot->parameter].written)
            s->slots[slot->parameter].written = at;
        if (slot->last < step->end)
            slot->last = step->end;
        if (slot->view >= 0 && s->slots[slot->view].last < step->end)
            s->slots[slot->view].last = step->end;
    }
}

void rg_sequence_times(rg_sequence *s)
{
    for (int32_t v = 0; v < s->slots_count; v++) {
        s->slots[v].made = s->slots[v].last = -1;
        s->slots[v].readers = 0;
        s->slots[v].written = INT32_MAX;
    }
    for (int32_t i = 0; i < s->steps_count; i++) {
        const rg_step *step = &s->steps[i];
        int32_t value, seen[3 * RG_MAX_INPUTS + RG_MAX_OUTPUTS], count = 0;
        note_writes(s, i);
        for (int32_t k = 0; rg_step_read(step, k, &value); k++) {
            bool again = value < 0;
            for (int32_t j = 0; j < count && !again; j++)
                again = seen[j] == value;
            if (again)
                continue;
            seen[count++] = value;
            s->slots[value].readers++;
            s->slots[value].last = step->end;
            s->slots[rg_sequence_root(s, value)].last = step->end;
        }
    }
}

/* ---- views ---- */

/* Whether `value` may be `source` in another shape, or could be if the memory of a source were
 * `dense`. A parameter may be overwritten before its readers are done, and a result must be a
 * tensor of the plan. */
static bool may_view(const rg_sequence *s, int32_t source, int32_t value, bool dense)
{
    const rg_plan_value *from = &s->slots[source], *to = &s->slots[value];
    const rg_tensor_desc *a = &s->descs[source], *b = &s->descs[value];
    return from->parameter < 0 && to->parameter < 0 && a->dtype == b->dtype &&
           rg_shape_count(a) == rg_shape_count(b) && (dense || rg_shape_is_dense(a)) &&
           !(from->kind == RG_VALUE_SOURCE && to->result);
}

/* `dense`: as if all sources were. */
static void find_views(rg_sequence *s, bool dense)
{
    for (int32_t i = 0; i < s->steps_count; i++) {
        rg_step *step = &s->steps[i];
        if (step->op->fusion.views == NULL || step->in[0] < 0)
            continue;
        const uint32_t views = step->op->fusion.views(step->kernel->desc, step->gradient);
        const int32_t root = rg_sequence_root(s, step->in[0]);
        for (int32_t k = 0; k < step->outputs; k++) {
            const int32_t v = step->out[k];
            if (v < 0 || !(views >> k & 1) || step->add >> k & 1 || !may_view(s, root, v, dense))
                continue;
            step->views |= 1u << k;
            s->slots[v].view = root;
            s->slots[root].result |= s->slots[v].result;
        }
    }
    rg_sequence_times(s);
}

static void forget_views(rg_sequence *s)
{
    for (int32_t i = 0; i < s->steps_count; i++)
        s->steps[i].views = 0;
    for (int32_t v = 0; v < s->slots_count; v++) {
        s->slots[v].view = -1;
        s->slots[v].result = s->plan->slots[v].result;
    }
    rg_sequence_times(s);
}

void rg_sequence_views(rg_sequence *s)
{
    find_views(s, false);
}

/* ---- sums of gradients ---- */

/* Whether any step from `from` on, but for `sum`, reads what has the storage of `value`. Lists
 * of readers run from the last step to the first here: the first other reader decides. */
static bool is_read_from(rg_links *links, int32_t value, int32_t from, int32_t sum)
{
    int32_t at = -1, reader;
    do
        reader = rg_links_reader(links, value, &at);
    while (reader == sum);
    return reader >= from;
}

/* Whether a gradient is added into another one where it is made: a step has one base for each dx.
 */
static bool has_base(const rg_sequence *s, int32_t value)
{
    const rg_step *step = &s->steps[s->slots[value].made];
    for (int32_t k = 0; k < step->outputs; k++) {
        if (step->out[k] == value && step->base[k] >= 0)
            return true;
    }
    return false;
}

/* Whether dx[k] of a gradient step can be added into `base` in place of a sum of both. */
static bool may_add(const rg_sequence *s, rg_links *links, int32_t sum, int32_t base, int32_t last)
{
    const int32_t root = rg_sequence_root(s, base), total = s->steps[sum].out[0];
    const rg_plan_value *from = &s->slots[root], *to = &s->slots[last];
    if (s->steps[sum].keeps || s->steps[sum].shown)
        return false; /* its state is wanted */
    if (base == last || from->kind != RG_VALUE_OUTPUT || from->parameter >= 0 || from->result ||
        to->kind != RG_VALUE_OUTPUT || to->result || to->parameter >= 0 || to->readers != 1 ||
        to->view >= 0 || s->slots[total].parameter >= 0 || s->slots[base].made >= to->made)
        return false;
    return s->steps[to->made].gradient && !has_base(s, last) &&
           rg_shape_same(&s->descs[base], &s->descs[last]) &&
           rg_shape_same(&s->descs[base], &s->descs[total]) &&
           !is_read_from(links, base, to->made, sum) && !is_read_from(links, last, to->made, sum);
}

static rg_status add_into(rg_sequence *s, rg_links *links, int32_t sum, int32_t base, int32_t last)
{
    const int32_t made = s->slots[last].made, total = s->steps[sum].out[0];
    rg_step *step = &s->steps[made];
    for (int32_t k = 0; k < step->outputs; k++) {
        if (step->out[k] != last)
            continue;
        step->out[k] = total;
        step->base[k] = base;
        step->add |= UINT64_C(1) << k;
    }
    rg_sequence_drop(s, sum);
    rg_sequence_note_outputs(s, made);
    s->slots[last].made = -1;
    s->slots[last].readers = 0;
    return rg_links_add_reader(links, base, made); /* after all other readers of `base` */
}

/* Which sums are made in place decides how often 16-bit numbers are rounded: so it depends neither
 * on the memory of sources nor on whether views are shared. */
rg_status rg_sequence_sums(rg_sequence *s)
{
    rg_links links;
    find_views(s, true);
    RG_TRY(rg_links_create(s, &links));
    rg_status status = RG_OK;
    for (int32_t i = 0; i < s->steps_count && status == RG_OK; i++) {
        if (!rg_step_is_sum(&s->steps[i]))
            continue;
        const int32_t a = s->steps[i].in[0], b = s->steps[i].in[1];
        const bool a_first = s->slots[a].made < s->slots[b].made;
        const int32_t base = a_first ? a : b, last = a_first ? b : a;
        if (may_add(s, &links, i, base, last))
            status = add_into(s, &links, i, base, last);
    }
    rg_links_destroy(&links);
    RG_TRY(status);
    RG_TRY(rg_sequence_compact(s));
    forget_views(s);
    return RG_OK;
}

/* ---- batches ---- */

static bool may_batch(const rg_step *step)
{
    return !step->gradient && !step->keeps && step->op->forward_calls != NULL;
}

/* What a value is for those who read and write it: its parameter, if it has one. */
static int32_t target_of(const rg_sequence *s, int32_t value)
{
    return s->slots[value].parameter >= 0 ? s->slots[value].parameter : value;
}

/* Marks of the steps that read and write a target last. */
typedef struct marks {
    int32_t *reader, *writer;
} marks;

/* Whether a step can run in any order with those from `first` on: it reads nothing that they write,
 * and they read nothing that it writes. */
static bool is_independent(const rg_sequence *s, const marks *m, int32_t first, int32_t at)
{
    const rg_step *step = &s->steps[at];
    for (int32_t i = 0; i < step->inputs; i++) {
        if (step->in[i] >= 0 && m->writer[target_of(s, step->in[i])] >= first)
            return false;
    }
    for (int32_t i = 0; i < step->outputs; i++) {
        const int32_t target = step->out[i] >= 0 ? target_of(s, step->out[i]) : -1;
        if (target >= 0 && (m->reader[target] >= first || m->writer[target] >= first))
            return false;
    }
    return true;
}

static void mark(const rg_sequence *s, const marks *m, int32_t at)
{
    const rg_step *step = &s->steps[at];
    for (int32_t i = 0; i < step->inputs; i++) {
        if (step->in[i] >= 0)
            m->reader[target_of(s, step->in[i])] = at;
    }
    for (int32_t i = 0; i < step->outputs; i++) {
        if (step->out[i] >= 0)
            m->writer[target_of(s, step->out[i])] = at;
    }
}

/* A step that is moved to its batch. */
typedef struct batched {
    uint64_t hash; /* of its kernel */
    int32_t at;    /* its index among the steps that are gathered */
    int32_t first; /* that of the first step with an equal kernel */
    rg_step step;
} batched;

static int by_kernel(const void *a, const void *b)
{
    const batched *x = a, *y = b;
    return x->hash != y->hash ? (x->hash < y->hash ? -1 : 1) : (x->at < y->at ? -1 : 1);
}

static int by_first(const void *a, const void *b)
{
    const batched *x = a, *y = b;
    return x->first != y->first ? (x->first < y->first ? -1 : 1) : (x->at < y->at ? -1 : 1);
}

/* Finds the first step of each kernel, in a list that is sorted by hashes: two kernels with one
 * hash are adjacent in it, and are distinguished. */
static void find_batch_leaders(batched list[], int32_t count)
{
    for (int32_t begin = 0; begin < count;) {
        int32_t end = begin + 1, other = begin;
        list[begin].first = list[begin].at;
        for (; end < count && list[end].hash == list[begin].hash; end++) {
            for (other = begin; !rg_kernel_equal(list[other].step.kernel, list[end].step.kernel);)
                other++; /* up to itself */
            list[end].first = other < end ? list[other].first : list[end].at;
        }
        begin = end;
    }
}

/* Steps of one kernel are adjacent, in the order in which kernels come first. */
static rg_status gather(rg_sequence *s, int32_t first, int32_t last)
{
    const int32_t count = last - first + 1;
    batched *list = NULL;
    RG_TRY(rg_allocate_array((size_t)count, sizeof *list, &list));
    for (int32_t i = 0; i < count; i++)
        list[i] =
            (batched){ rg_kernel_hash(s->steps[first + i].kernel), i, i, s->steps[first + i] };
    qsort(list, (size_t)count, sizeof *list, by_kernel);
    find_batch_leaders(list, count);
    qsort(list, (size_t)count, sizeof *list, by_first);
    for (int32_t begin = 0, end; begin < count; begin = end) {
        for (end = begin; end < count && list[end].first == list[begin].first; end++) {
        }
        for (int32_t i = begin; i < end; i++) {
            s->steps[first + i] = list[i].step;
            s->steps[first + i].begin = first + begin;
            s->steps[first + i].end = first + end - 1;
        }
    }
    rg_release(allocator, list, (size_t)count * sizeof *list);
    return RG_OK;
}

static rg_status find_batches(rg_sequence *s, const marks *m)
{
    for (int32_t v = 0; v < s->slots_count; v++)
        m->reader[v] = m->writer[v] = -1;
    for (int32_t first = 0; first < s->steps_count;) {
        int32_t end = first;
        while (end < s->steps_count && may_batch(&s->steps[end]) &&
               is_independent(s, m, first, end))
            mark(s, m, end++);
        if (end > first + 1)
            RG_TRY(gather(s, first, end - 1));
        first = end > first ? end : first + 1;
    }
    return RG_OK;
}

rg_status rg_sequence_batches(rg_sequence *s)
{
    const size_t bytes = (size_t)s->slots_count * sizeof(int32_t);
    marks m = { NULL, NULL };
    rg_status status = rg_allocate_array((size_t)s->slots_count, sizeof *m.reader, &m.reader);
    if (status == RG_OK)
        status = rg_allocate_array((size_t)s->slots_count, sizeof *m.writer, &m.writer);
    if (status == RG_OK)
        status = find_batches(s, &m);
    rg_release(allocator, m.reader, bytes);
    rg_release(allocator, m.writer, bytes);
    rg_sequence_times(s);
    return status;
}
