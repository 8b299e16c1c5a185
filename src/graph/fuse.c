/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Fusion: steps that become part of the op before or after them, with their gradients. */
#include "graph/links.h"

/* ---- descriptors ---- */

/* A descriptor of any op. Its members are copied in and out. */
typedef struct any_desc {
    _Alignas(16) char bytes[RG_MAX_DESC];
} any_desc;

static any_desc desc_of(const rg_step *step)
{
    any_desc desc = { { 0 } };
    memcpy(desc.bytes, step->kernel->desc, step->op->desc.size);
    return desc;
}

/* Whether the op takes this descriptor; a lack of memory is no answer. */
static rg_status takes_desc(const rg_sequence *s, const rg_op *op, const any_desc *desc,
                            bool *takes)
{
    rg_kernel *kernel = NULL;
    const rg_status status = rg_kernel_create(s->plan->device, op, desc->bytes, &kernel);
    *takes = status == RG_OK;
    rg_kernel_destroy(kernel);
    return status == RG_OUT_OF_MEMORY ? status : RG_OK;
}

static rg_status set_desc(const rg_sequence *s, rg_step *step, const any_desc *desc)
{
    rg_kernel *kernel = NULL;
    RG_TRY(rg_kernel_create(s->plan->device, step->op, desc->bytes, &kernel));
    if (step->own_kernel)
        rg_kernel_destroy(step->kernel);
    step->kernel = kernel;
    step->own_kernel = true;
    return RG_OK;
}

/* ---- what gradients read ---- */

/* A gradient step reads what its kernel says. */
static void set_reads(rg_sequence *s, rg_step *step)
{
    const uint32_t reads = rg_op_reads(step->op, step->kernel->desc, true);
    const rg_step *forward = &s->steps[step->forward];
    for (int32_t i = 0; i < RG_MAX_INPUTS; i++)
        step->x[i] = reads & (uint32_t)RG_READS_X << i ? step->source[i] : -1;
    for (int32_t i = 0; i < RG_MAX_OUTPUTS; i++)
        step->y[i] = reads & (uint32_t)RG_READS_Y << i ? forward->out[i] : -1;
}

/* Whether a gradient at `at` can read what descriptor `desc` requires beyond what the step's
 * kernel reads. */
static bool may_read(const rg_sequence *s, int32_t at, const rg_step *step, const any_desc *desc)
{
    const uint32_t more =
        rg_op_reads(step->op, desc->bytes, true) & ~rg_op_reads(step->op, step->kernel->desc, true);
    for (int32_t i = 0; i < RG_MAX_INPUTS; i++) {
        if (more & (uint32_t)RG_READS_X << i && rg_sequence_overwrites(s, step->source[i], at))
            return false;
    }
    return true;
}

/* Whether the gradients of step `at` are of its own inputs and outputs. Others, which a graph can
 * name for a gradient node, are not what the step itself reads and makes. */
static bool has_own_gradients(const rg_sequence *s, int32_t at)
{
    const rg_step *forward = &s->steps[at];
    int32_t link = -1, i;
    while ((i = rg_links_gradient(s->links, at, &link)) >= 0) {
        const rg_step *gradient = &s->steps[i];
        for (int32_t k = 0; k < gradient->outputs; k++) {
            if (gradient->source[k] != forward->in[k])
                return false;
        }
        for (int32_t k = 0; k < forward->outputs; k++) {
            if (gradient->y[k] >= 0 && gradient->y[k] != forward->out[k])
                return false;
        }
    }
    return true;
}

/* ---- two consecutive steps ---- */

/* Values between steps, which are gone when both are one. */
static bool is_between(const rg_sequence *s, int32_t value)
{
    return value >= 0 && s->slots[value].kind == RG_VALUE_OUTPUT && !s->slots[value].result &&
           s->slots[value].parameter < 0;
}

/* The only step that reads a value, or -1. */
static int32_t reader_of(const rg_sequence *s, int32_t value)
{
    int32_t at = -1, next;
    const int32_t reader = rg_links_reader(s->links, value, &at);
    while ((next = rg_links_reader(s->links, value, &at)) >= 0) {
        if (next != reader)
            return -1;
    }
    return reader;
}

/* Whether only step `at`, its gradients and those of `other` read a value. */
static bool is_read_by(const rg_sequence *s, int32_t value, int32_t at, int32_t other)
{
    int32_t link = -1, reader;
    while ((reader = rg_links_reader(s->links, value, &link)) >= 0) {
        const int32_t of = s->steps[reader].forward;
        if (reader != at && of != at && (of != other || other < 0))
            return false;
    }
    return true;
}

/* Each gradient of step `after` produces, as dx[k], the dy of exactly one gradient of `before`,
 * which is its only reader, and `before` has no other gradients. With `lone` some of the first
 * may make no dx[k] at all. */
static bool gradients_pair(const rg_sequence *s, int32_t before, int32_t after, int32_t k,
                           bool lone)
{
    int32_t i, at = -1;
    if (!has_own_gradients(s, before) || !has_own_gradients(s, after))
        return false;
    while ((i = rg_links_gradient(s->links, after, &at)) >= 0) {
        const int32_t between = s->steps[i].out[k];
        if (between < 0 && lone)
            continue;
        const int32_t reader = is_between(s, between) ? reader_of(s, between) : -1;
        if (reader < 0 || s->steps[reader].forward != before || s->steps[reader].in[0] != between)
            return false;
    }
    at = -1;
    while ((i = rg_links_gradient(s->links, before, &at)) >= 0) {
        const int32_t dy = s->steps[i].in[0], made = dy >= 0 ? s->slots[dy].made : -1;
        if (made < 0 || s->steps[made].forward != after || s->steps[made].out[k] != dy)
            return false;
        for (int32_t n = 1; n < s->steps[i].inputs; n++) { /* it moves to `made` */
            const int32_t other = s->steps[i].in[n];
            if (other >= 0 && s->slots[other].made > made)
                return false;
        }
    }
    return true;
}

/* Whether gradients of `at` may read what `desc` requires, at the position of the gradients
 * before them. */
static bool gradients_may_read(const rg_sequence *s, int32_t at, const any_desc *desc)
{
    int32_t i, link = -1;
    while ((i = rg_links_gradient(s->links, at, &link)) >= 0) {
        if (!may_read(s, i, &s->steps[i], desc))
            return false;
    }
    return true;
}

/* A step that has changed reads and makes other values. */
static rg_status note_change(rg_sequence *s, int32_t at)
{
    rg_sequence_note_outputs(s, at);
    return rg_links_add_reads(s->links, at);
}

/* Step `from` takes the place of the earlier step `to`. */
static rg_status move_into(rg_sequence *s, int32_t from, int32_t to)
{
    const rg_step moved = s->steps[from];
    s->steps[from].own_kernel = false;
    rg_sequence_drop(s, from);
    rg_sequence_drop(s, to);
    s->steps[to] = moved;
    RG_TRY(note_change(s, to));
    return rg_links_add_gradient(s->links, to);
}

/* ---- neurons and biases, into the op before them ---- */

/* Steps `before` and `after` become one with descriptor `desc`, in the place of the first, and
 * so do their gradients. Input `k` of `after` is what `before` makes; `bias`, unless -1, is the
 * other, and becomes input b. */
static rg_status absorb(rg_sequence *s, int32_t before, int32_t after, int32_t k, int32_t bias,
                        const any_desc *desc)
{
    RG_TRY(set_desc(s, &s->steps[before], desc));
    rg_step *step = &s->steps[before];
    step->out[0] = s->steps[after].out[0];
    if (bias >= 0)
        step->in[step->inputs++] = bias;
    const int32_t inputs = step->inputs;
    RG_TRY(note_change(s, before));
    for (int32_t i, link = -1; (i = rg_links_gradient(s->links, after, &link)) >= 0;) {
        const int32_t at = reader_of(s, s->steps[i].out[k]);
        rg_step *gradient = &s->steps[at];
        RG_TRY(set_desc(s, gradient, desc));
        gradient->in[0] = s->steps[i].in[0];
        if (bias >= 0) {
            gradient->outputs = inputs;
            gradient->source[inputs - 1] = bias;
            gradient->out[inputs - 1] = s->steps[i].out[1 - k];
        }
        set_reads(s, gradient);
        RG_TRY(move_into(s, at, i));
    }
    rg_sequence_drop(s, after);
    return RG_OK;
}

/* The step whose forward pass makes `value`, as its first output and for other steps alone; -1:
 * none. */
static int32_t maker_of(const rg_sequence *s, int32_t value)
{
    const int32_t made = is_between(s, value) ? s->slots[value].made : -1;
    const rg_step *step = made >= 0 ? &s->steps[made] : NULL;
    return step != NULL && !step->gradient && !step->shown && step->out[0] == value ? made : -1;
}

static rg_status fuse_neuron(rg_sequence *s, int32_t at)
{
    const rg_step *step = &s->steps[at];
    if (step->gradient || step->op->fusion.join_before == NULL ||
        s->slots[step->out[0]].parameter >= 0)
        return RG_OK;
    const int32_t before = maker_of(s, step->in[0]);
    if (before < 0 || !is_read_by(s, step->in[0], at, -1) ||
        !gradients_pair(s, before, at, 0, false))
        return RG_OK;
    const rg_op *op = s->steps[before].op;
    any_desc desc = desc_of(&s->steps[before]);
    if (!step->op->fusion.join_before(step->kernel->desc, op, desc.bytes))
        return RG_OK;
    bool takes;
    RG_TRY(takes_desc(s, op, &desc, &takes));
    if (!takes || !gradients_may_read(s, before, &desc))
        return RG_OK;
    return absorb(s, before, at, 0, -1, &desc);
}

/* Whether `b` is one number for each channel of `y`, and adds nothing to its shape. */
static bool is_bias(const rg_sequence *s, int32_t b, int32_t y, int32_t sum)
{
    const rg_tensor_desc *d = &s->descs[b], *to = &s->descs[y];
    return d->rank == 1 && to->rank > 0 && d->dims[0] == to->dims[to->rank - 1] &&
           rg_shape_same_dims(to, &s->descs[sum]);
}

static rg_status fuse_bias(rg_sequence *s, int32_t at)
{
    const rg_step *step = &s->steps[at];
    for (int32_t k = 0; k < 2 && rg_step_is_sum(step); k++) {
        const int32_t y = step->in[k], b = step->in[1 - k];
        const int32_t before = y != b ? maker_of(s, y) : -1;
        if (before < 0 || s->slots[step->out[0]].parameter >= 0 || s->slots[b].made >= before ||
            !is_bias(s, b, y, step->out[0]) || !is_read_by(s, y, at, -1) ||
            !gradients_pair(s, before, at, k, false))
            continue;
        const rg_op *op = s->steps[before].op;
        any_desc desc = desc_of(&s->steps[before]);
        if (op->fusion.take_bias == NULL || !op->fusion.take_bias(desc.bytes))
            continue;
        bool takes;
        RG_TRY(takes_desc(s, op, &desc, &takes));
        if (!takes || rg_op_inputs(op, desc.bytes) != s->steps[before].inputs + 1)
            continue;
        return absorb(s, before, at, k, b, &desc);
    }
    return RG_OK;
}

/* A neuron that stays alone reads y in its gradient where the slope follows from it, so that x
 * need not be kept: y can take its place. */
static rg_status read_from_y(rg_sequence *s, int32_t at)
{
    const rg_step *step = &s->steps[at];
    if (step->gradient || step->op->fusion.gradient_of_y == NULL || !step->keeps ||
        !has_own_gradients(s, at))
        return RG_OK;
    any_desc desc = desc_of(step);
    if (!step->op->fusion.gradient_of_y(desc.bytes))
        return RG_OK;
    for (int32_t i, link = -1; (i = rg_links_reader(s->links, step->in[0], &link)) >= 0;) {
        if (i > at && s->steps[i].forward != at && s->steps[i].gradient)
            return RG_OK; /* another gradient keeps x all the same */
    }
    bool takes;
    RG_TRY(takes_desc(s, step->op, &desc, &takes));
    if (!takes)
        return RG_OK;
    RG_TRY(set_desc(s, &s->steps[at], &desc));
    for (int32_t i, link = -1; (i = rg_links_gradient(s->links, at, &link)) >= 0;) {
        RG_TRY(set_desc(s, &s->steps[i], &desc));
        set_reads(s, &s->steps[i]);
        RG_TRY(note_change(s, i));
    }
    return RG_OK;
}

/* ---- softmax, into the loss after it ---- */

static rg_status absorb_softmax(rg_sequence *s, int32_t softmax, int32_t loss, const any_desc *desc)
{
    const int32_t x = s->steps[softmax].in[0];
    RG_TRY(set_desc(s, &s->steps[loss], desc));
    s->steps[loss].in[0] = x;
    for (int32_t i, link = -1; (i = rg_links_gradient(s->links, loss, &link)) >= 0;) {
        rg_step *gradient = &s->steps[i];
        RG_TRY(set_desc(s, gradient, desc));
        const int32_t at = gradient->out[0] >= 0 ? reader_of(s, gradient->out[0]) : -1;
        gradient->source[0] = x;
        set_reads(s, gradient);
        if (at >= 0) {
            gradient->out[0] = s->steps[at].out[0];
            rg_sequence_drop(s, at);
        }
        RG_TRY(note_change(s, i));
    }
    rg_sequence_drop(s, softmax);
    return note_change(s, loss);
}

/* Whether the loss and all its gradients still see the value that softmax reads. */
static bool lasts(const rg_sequence *s, int32_t value, int32_t loss)
{
    int32_t last = loss;
    for (int32_t i, link = -1; (i = rg_links_gradient(s->links, loss, &link)) >= 0;)
        last = i > last ? i : last;
    return !rg_sequence_overwrites(s, value, last);
}

static rg_status fuse_softmax(rg_sequence *s, int32_t at)
{
    const rg_step *step = &s->steps[at];
    const int32_t y = step->in[0];
    const int32_t before =
        step->gradient || step->op->fusion.take_before == NULL ? -1 : maker_of(s, y);
    if (before < 0)
        return RG_OK;
    const rg_step *maker = &s->steps[before];
    any_desc desc = desc_of(step);
    if (!step->op->fusion.take_before(desc.bytes, maker->op, maker->kernel->desc, &s->descs[y]))
        return RG_OK;
    for (int32_t i = 1; i < step->inputs; i++) { /* not its own label */
        if (step->in[i] == y)
            return RG_OK;
    }
    if (!is_read_by(s, y, at, before) || !gradients_pair(s, before, at, 0, true))
        return RG_OK;
    bool takes;
    RG_TRY(takes_desc(s, step->op, &desc, &takes));
    if (!takes || !lasts(s, s->steps[before].in[0], at))
        return RG_OK;
    return absorb_softmax(s, before, at, &desc);
}

/* ---- a loss with its gradient ---- */

/* Whether a gradient step of a loss has dy = 1 and is asked for the gradient of y alone. */
static bool starts(const rg_sequence *s, const rg_step *step)
{
    const rg_plan_value *dy = step->in[0] >= 0 ? &s->slots[step->in[0]] : NULL;
    for (int32_t i = 1; i < step->outputs; i++) {
        if (step->out[i] >= 0)
            return false;
    }
    return step->out[0] >= 0 && s->slots[step->out[0]].parameter < 0 &&
           (dy == NULL || (dy->kind == RG_VALUE_CONSTANT && dy->number == 1));
}

static rg_status fuse_loss(rg_sequence *s, int32_t at)
{
    const rg_step *step = &s->steps[at];
    if (step->gradient || step->op->fusion.with_gradient == NULL || !has_own_gradients(s, at))
        return RG_OK;
    any_desc desc = desc_of(step);
    if (!step->op->fusion.with_gradient(desc.bytes))
        return RG_OK;
    int32_t gradient = -1;
    for (int32_t i, link = -1; (i = rg_links_gradient(s->links, at, &link)) >= 0;) {
        if (gradient >= 0 || !starts(s, &s->steps[i])) /* others would need the kernel as it is */
            return RG_OK;
        gradient = i;
    }
    if (gradient < 0)
        return RG_OK;
    bool takes;
    RG_TRY(takes_desc(s, step->op, &desc, &takes));
    if (!takes)
        return RG_OK;
    RG_TRY(set_desc(s, &s->steps[at], &desc));
    const int32_t dx = s->steps[gradient].out[0];
    rg_sequence_drop(s, gradient);
    s->steps[at].out[s->steps[at].outputs++] = dx;
    rg_sequence_note_outputs(s, at);
    return RG_OK;
}

/* ---- all of it ---- */

typedef rg_status fuse_step(rg_sequence *s, int32_t at);
static rg_status each_step(rg_sequence *s, bool wanted, fuse_step *fuse)
{
    for (int32_t i = 0; i < s->steps_count && wanted; i++) {
        if (s->steps[i].gone || s->steps[i].shown) /* its state has to be that of the node */
            continue;
        RG_TRY(fuse(s, i));
    }
    return RG_OK;
}

static rg_status fuse_all(rg_sequence *s)
{
    const rg_plan_options *options = &s->plan->options;
    RG_TRY(each_step(s, options->fuse_biases, fuse_bias));
    RG_TRY(each_step(s, options->fuse_neurons, fuse_neuron));
    RG_TRY(each_step(s, options->fuse_neurons, read_from_y));
    RG_TRY(each_step(s, options->fuse_softmax, fuse_softmax));
    return each_step(s, options->fuse_losses, fuse_loss);
}

rg_status rg_sequence_fuse(rg_sequence *s)
{
    rg_links links;
    RG_TRY(rg_links_create(s, &links));
    s->links = &links;
    const rg_status status = fuse_all(s);
    s->links = NULL;
    rg_links_destroy(&links);
    RG_TRY(status);
    RG_TRY(rg_sequence_compact(s));
    for (int32_t i = 0; i < s->steps_count; i++)
        s->steps[i].keeps = s->steps[i].shown;
    for (int32_t i = 0; i < s->steps_count; i++) {
        if (s->steps[i].forward >= 0)
            s->steps[s->steps[i].forward].keeps = true;
    }
    return RG_OK;
}
