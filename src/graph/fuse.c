/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Fusion: steps that become part of the op before or behind them, with their gradients. */
#include "graph/plan.h"
#include "ops/neuron/neuron.h"
#include "ops/neuron/neuron_fields.h"

#include <retrograde/loss.h>
#include <retrograde/softmax.h>

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

static bool is_op(const rg_step *step, const char *name)
{
    return strcmp(step->op->name, name) == 0;
}

/* The neuron in the descriptor of an op that fuses one; NULL: it does not. */
static const rg_field *neuron_in(const rg_op *op)
{
    const rg_field *f = op->desc.fields;
    while (f->name != NULL && (f->type != RG_FIELD_GROUP || f->fields != rg_neuron_fields))
        f++;
    return f->name != NULL ? f : NULL;
}

/* Whether a descriptor says that there is a bias; NULL for ops that never have one. */
static const rg_field *bias_in(const rg_op *op)
{
    const rg_field *f = op->desc.fields;
    while (f->name != NULL && (f->type != RG_FIELD_BOOL || strcmp(f->name, "bias") != 0))
        f++;
    return f->name != NULL ? f : NULL;
}

/* Whether the op takes this descriptor. */
static bool takes_desc(const rg_schedule *s, const rg_op *op, const any_desc *desc)
{
    rg_kernel *kernel = NULL;
    const bool takes = rg_kernel_create(s->plan->device, op, desc->bytes, &kernel) == RG_OK;
    rg_kernel_destroy(kernel);
    return takes;
}

static rg_status set_desc(const rg_schedule *s, rg_step *step, const any_desc *desc)
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

/* With a state, which every gradient here has. */
static uint32_t reads_with(const rg_op *op, const void *desc)
{
    const uint32_t reads = op->reads(desc);
    return reads & RG_READS_OR_STATE ? RG_READS_STATE : reads;
}

/* A gradient step reads what its kernel says. */
static void set_reads(rg_schedule *s, rg_step *step)
{
    const uint32_t reads = reads_with(step->op, step->kernel->desc);
    const rg_step *forward = &s->steps[step->forward];
    for (int32_t i = 0; i < RG_MAX_INPUTS; i++)
        step->x[i] = reads & (uint32_t)RG_READS_X << i ? step->source[i] : -1;
    for (int32_t i = 0; i < RG_MAX_OUTPUTS; i++)
        step->y[i] = reads & (uint32_t)RG_READS_Y << i ? forward->out[i] : -1;
}

/* Whether a gradient at `at` can read what descriptor `desc` wants beyond `old`. */
static bool may_read(const rg_schedule *s, int32_t at, const rg_step *step, const any_desc *desc)
{
    const uint32_t more =
        reads_with(step->op, desc->bytes) & ~reads_with(step->op, step->kernel->desc);
    for (int32_t i = 0; i < RG_MAX_INPUTS; i++) {
        if (more & (uint32_t)RG_READS_X << i && rg_schedule_overwrites(s, step->source[i], at))
            return false;
    }
    return true;
}

/* ---- two steps, one behind the other ---- */

/* Values between steps, which are gone when both are one. */
static bool is_between(const rg_schedule *s, int32_t value)
{
    return value >= 0 && s->slots[value].kind == RG_VALUE_OUTPUT && !s->slots[value].result &&
           s->slots[value].parameter < 0;
}

/* The only step that reads a value, or -1. */
static int32_t reader_of(const rg_schedule *s, int32_t value)
{
    for (int32_t i = s->slots[value].made; s->slots[value].readers == 1 && i < s->steps_count;
         i++) {
        if (rg_step_reads(&s->steps[i], value))
            return i;
    }
    return -1;
}

/* Whether only step `at`, its gradients and those of `other` read a value. */
static bool is_read_by(const rg_schedule *s, int32_t value, int32_t at, int32_t other)
{
    for (int32_t i = 0; i < s->steps_count; i++) {
        const int32_t of = s->steps[i].forward;
        if (i != at && of != at && (of != other || other < 0) && rg_step_reads(&s->steps[i], value))
            return false;
    }
    return true;
}

/* The gradients of step `behind` make, as dx[k], the dy of one gradient of `before` each, and
 * nobody else reads it; and these are all gradients that `before` has. With `lone` some of the
 * first may make no dx[k] at all. */
static bool gradients_pair(const rg_schedule *s, int32_t before, int32_t behind, int32_t k,
                           bool lone)
{
    for (int32_t i = 0; i < s->steps_count; i++) {
        const rg_step *step = &s->steps[i];
        if (step->forward == behind) {
            const int32_t between = step->out[k];
            if (between < 0 && lone)
                continue;
            const int32_t reader = is_between(s, between) ? reader_of(s, between) : -1;
            if (reader < 0 || s->steps[reader].forward != before ||
                s->steps[reader].in[0] != between)
                return false;
        } else if (step->forward == before) {
            const int32_t made = step->in[0] >= 0 ? s->slots[step->in[0]].made : -1;
            if (made < 0 || s->steps[made].forward != behind ||
                s->steps[made].out[k] != step->in[0])
                return false;
        }
    }
    return true;
}

/* Whether gradients of `at` may read what `desc` wants, where the gradients before them stand. */
static bool gradients_may_read(const rg_schedule *s, int32_t at, const any_desc *desc)
{
    for (int32_t i = 0; i < s->steps_count; i++) {
        if (s->steps[i].forward == at && !may_read(s, i, &s->steps[i], desc))
            return false;
    }
    return true;
}

/* Step `from` takes the place of the earlier step `to`. */
static void move_into(rg_schedule *s, int32_t from, int32_t to)
{
    if (s->steps[to].own_kernel)
        rg_kernel_destroy(s->steps[to].kernel);
    s->steps[to] = s->steps[from];
    s->steps[from].own_kernel = false;
    rg_schedule_remove(s, from);
}

/* ---- neurons and biases, into the op before them ---- */

/* Steps `before` and `behind` become one with descriptor `desc`, in the place of the first, and so
 * do their gradients. Input `k` of `behind` is what `before` makes; `bias`, unless -1, is the
 * other, and becomes input b. */
static rg_status absorb(rg_schedule *s, int32_t before, int32_t behind, int32_t k, int32_t bias,
                        const any_desc *desc)
{
    RG_TRY(set_desc(s, &s->steps[before], desc));
    rg_step *step = &s->steps[before];
    step->out[0] = s->steps[behind].out[0];
    if (bias >= 0)
        step->in[step->inputs++] = bias;
    const int32_t inputs = step->inputs;
    for (int32_t i = 0; i < s->steps_count; i++) {
        if (s->steps[i].forward != behind)
            continue;
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
        move_into(s, at, i);
        rg_schedule_times(s);
    }
    rg_schedule_remove(s, behind);
    rg_schedule_times(s);
    return RG_OK;
}

/* The step that makes `value`, if it is of an op that can take up what stands behind it: -1 if
 * not. */
static int32_t maker_of(const rg_schedule *s, int32_t value)
{
    if (!is_between(s, value))
        return -1;
    const int32_t made = s->slots[value].made;
    if (made < 0 || s->steps[made].gradient || s->steps[made].shown ||
        s->steps[made].out[0] != value)
        return -1;
    const rg_field *field = neuron_in(s->steps[made].op);
    rg_neuron_desc neuron;
    if (field == NULL)
        return -1;
    memcpy(&neuron, (const char *)s->steps[made].kernel->desc + field->offset, sizeof neuron);
    return neuron.kind == RG_NEURON_NONE ? made : -1;
}

static rg_status fuse_neuron(rg_schedule *s, int32_t at, bool *fused)
{
    const rg_step *step = &s->steps[at];
    if (step->gradient || !is_op(step, "neuron") || step->inputs != 1 ||
        s->slots[step->out[0]].parameter >= 0)
        return RG_OK;
    const int32_t before = maker_of(s, step->in[0]);
    if (before < 0 || !is_read_by(s, step->in[0], at, -1) ||
        !gradients_pair(s, before, at, 0, false))
        return RG_OK;
    any_desc desc = desc_of(&s->steps[before]);
    rg_neuron_desc neuron;
    memcpy(&neuron, step->kernel->desc, sizeof neuron);
    neuron.from_y = false;
    memcpy(desc.bytes + neuron_in(s->steps[before].op)->offset, &neuron, sizeof neuron);
    if (!takes_desc(s, s->steps[before].op, &desc) || !gradients_may_read(s, before, &desc))
        return RG_OK;
    *fused = true;
    return absorb(s, before, at, 0, -1, &desc);
}

/* Whether `b` is one number for each channel of `y`, and adds nothing to its shape. */
static bool is_bias(const rg_schedule *s, int32_t b, int32_t y, int32_t sum)
{
    const rg_tensor_desc *d = &s->descs[b], *to = &s->descs[y];
    return d->rank == 1 && to->rank > 0 && d->dims[0] == to->dims[to->rank - 1] &&
           rg_shape_same_dims(to, &s->descs[sum]);
}

static rg_status fuse_bias(rg_schedule *s, int32_t at, bool *fused)
{
    const rg_step *step = &s->steps[at];
    for (int32_t k = 0; k < 2 && rg_step_is_sum(step); k++) {
        const int32_t y = step->in[k], b = step->in[1 - k];
        const int32_t before = y != b ? maker_of(s, y) : -1;
        if (before < 0 || s->slots[step->out[0]].parameter >= 0 || s->slots[b].made >= before ||
            !is_bias(s, b, y, step->out[0]) || !is_read_by(s, y, at, -1) ||
            !gradients_pair(s, before, at, k, false))
            continue;
        any_desc desc = desc_of(&s->steps[before]);
        const rg_field *bias = bias_in(s->steps[before].op);
        if (bias == NULL || desc.bytes[bias->offset] != 0)
            continue;
        desc.bytes[bias->offset] = 1;
        if (!takes_desc(s, s->steps[before].op, &desc) ||
            rg_op_inputs(s->steps[before].op, desc.bytes) != s->steps[before].inputs + 1)
            continue;
        *fused = true;
        return absorb(s, before, at, k, b, &desc);
    }
    return RG_OK;
}

/* A neuron that stays alone reads y in its gradient where that tells the slope, so that x need not
 * be kept: y can take its place. */
static rg_status read_from_y(rg_schedule *s, int32_t at, bool *fused)
{
    const rg_step *step = &s->steps[at];
    if (step->gradient || !is_op(step, "neuron") || !step->keeps)
        return RG_OK;
    any_desc desc = desc_of(step);
    rg_neuron_desc neuron;
    memcpy(&neuron, desc.bytes, sizeof neuron);
    if (neuron.from_y || !rg_neuron_tells_slope(&neuron))
        return RG_OK;
    neuron.from_y = true;
    memcpy(desc.bytes, &neuron, sizeof neuron);
    for (int32_t i = at + 1; i < s->steps_count; i++) { /* another gradient keeps x all the same */
        if (s->steps[i].forward != at && s->steps[i].gradient &&
            rg_step_reads(&s->steps[i], step->in[0]))
            return RG_OK;
    }
    if (!takes_desc(s, step->op, &desc))
        return RG_OK;
    for (int32_t i = at; i < s->steps_count; i++) {
        if (i != at && s->steps[i].forward != at)
            continue;
        RG_TRY(set_desc(s, &s->steps[i], &desc));
        if (i != at)
            set_reads(s, &s->steps[i]);
    }
    rg_schedule_times(s);
    (void)fused;
    return RG_OK;
}

/* ---- softmax, into the loss behind it ---- */

/* Whether a loss of probabilities, or of their logarithms, is that of softmax. Means of dense
 * labels differ: they are over predictions, not over rows. */
static bool is_cross_entropy(const rg_loss_desc *loss, rg_softmax_kind kind)
{
    const bool classes = loss->labels == RG_LOSS_CLASS_LABELS;
    if (kind == RG_SOFTMAX_LOG)
        return loss->kind == RG_LOSS_KULLBACK_LEIBLER && classes;
    return loss->kind == RG_LOSS_CATEGORICAL_CROSS_ENTROPY &&
           (classes || loss->reduction == RG_LOSS_NONE ||
            (loss->reduction == RG_LOSS_SUM && loss->across_batch));
}

static rg_status absorb_softmax(rg_schedule *s, int32_t softmax, int32_t loss, const any_desc *desc)
{
    const int32_t x = s->steps[softmax].in[0];
    RG_TRY(set_desc(s, &s->steps[loss], desc));
    s->steps[loss].in[0] = x;
    for (int32_t i = 0; i < s->steps_count; i++) {
        rg_step *gradient = &s->steps[i];
        if (gradient->forward != loss)
            continue;
        RG_TRY(set_desc(s, gradient, desc));
        const int32_t at = gradient->out[0] >= 0 ? reader_of(s, gradient->out[0]) : -1;
        gradient->source[0] = x;
        set_reads(s, gradient);
        if (at < 0)
            continue;
        gradient->out[0] = s->steps[at].out[0];
        rg_schedule_remove(s, at);
        rg_schedule_times(s);
    }
    rg_schedule_remove(s, softmax);
    rg_schedule_times(s);
    return RG_OK;
}

/* Whether the loss and all its gradients still see the value that softmax reads. */
static bool lasts(const rg_schedule *s, int32_t value, int32_t loss)
{
    int32_t last = loss;
    for (int32_t i = loss; i < s->steps_count; i++)
        last = s->steps[i].forward == loss ? i : last;
    return !rg_schedule_overwrites(s, value, last);
}

static rg_status fuse_softmax(rg_schedule *s, int32_t at, bool *fused)
{
    const rg_step *step = &s->steps[at];
    const int32_t y = step->in[0];
    if (step->gradient || !is_op(step, "loss") || !is_between(s, y))
        return RG_OK;
    const int32_t before = s->slots[y].made;
    if (s->steps[before].gradient || s->steps[before].shown || !is_op(&s->steps[before], "softmax"))
        return RG_OK;
    const rg_softmax_desc *softmax = s->steps[before].kernel->desc;
    any_desc desc = desc_of(step);
    rg_loss_desc loss;
    memcpy(&loss, desc.bytes, sizeof loss);
    const bool last = softmax->axis == -1 || softmax->axis == s->descs[y].rank - 1;
    if (!last || !is_cross_entropy(&loss, softmax->kind) || loss.gradient_output)
        return RG_OK;
    loss.kind = RG_LOSS_SOFTMAX_CROSS_ENTROPY;
    memcpy(desc.bytes, &loss, sizeof loss);
    for (int32_t i = 1; i < step->inputs; i++) { /* not its own label */
        if (step->in[i] == y)
            return RG_OK;
    }
    if (!is_read_by(s, y, at, before) || !gradients_pair(s, before, at, 0, true) ||
        !takes_desc(s, step->op, &desc) || !lasts(s, s->steps[before].in[0], at))
        return RG_OK;
    *fused = true;
    return absorb_softmax(s, before, at, &desc);
}

/* ---- a loss with its gradient ---- */

/* Whether a gradient step of a loss has dy = 1 and is asked for the gradient of y alone. */
static bool starts(const rg_schedule *s, const rg_step *step)
{
    const rg_slot *dy = step->in[0] >= 0 ? &s->slots[step->in[0]] : NULL;
    for (int32_t i = 1; i < step->outputs; i++) {
        if (step->out[i] >= 0)
            return false;
    }
    return step->out[0] >= 0 && s->slots[step->out[0]].parameter < 0 &&
           (dy == NULL || (dy->kind == RG_VALUE_CONSTANT && dy->number == 1));
}

static rg_status fuse_loss(rg_schedule *s, int32_t at, bool *fused)
{
    const rg_step *step = &s->steps[at];
    if (step->gradient || !is_op(step, "loss"))
        return RG_OK;
    any_desc desc = desc_of(step);
    rg_loss_desc loss;
    memcpy(&loss, desc.bytes, sizeof loss);
    if (loss.gradient_output)
        return RG_OK;
    loss.gradient_output = true;
    memcpy(desc.bytes, &loss, sizeof loss);
    int32_t gradient = -1;
    for (int32_t i = 0; i < s->steps_count; i++) {
        if (s->steps[i].forward != at)
            continue;
        if (gradient >= 0 || !starts(s, &s->steps[i])) /* others would need the kernel as it is */
            return RG_OK;
        gradient = i;
    }
    if (gradient < 0 || !takes_desc(s, step->op, &desc))
        return RG_OK;
    RG_TRY(set_desc(s, &s->steps[at], &desc));
    s->steps[at].out[s->steps[at].outputs++] = s->steps[gradient].out[0];
    rg_schedule_remove(s, gradient);
    rg_schedule_times(s);
    *fused = true;
    return RG_OK;
}

/* ---- all of it ---- */

/* Tries every step; where one has become part of another, the next has moved to its place. */
typedef rg_status fuse_step(rg_schedule *s, int32_t at, bool *fused);
static rg_status each_step(rg_schedule *s, bool wanted, fuse_step *fuse)
{
    for (int32_t i = 0; i < s->steps_count && wanted; i++) {
        bool fused = false;
        if (s->steps[i].shown) /* its state has to be that of the node */
            continue;
        RG_TRY(fuse(s, i, &fused));
        i -= fused;
    }
    return RG_OK;
}

rg_status rg_schedule_fuse(rg_schedule *s)
{
    const rg_plan_options *options = &s->plan->options;
    RG_TRY(each_step(s, options->fuse_biases, fuse_bias));
    RG_TRY(each_step(s, options->fuse_neurons, fuse_neuron));
    RG_TRY(each_step(s, options->fuse_neurons, read_from_y));
    RG_TRY(each_step(s, options->fuse_softmax, fuse_softmax));
    RG_TRY(each_step(s, options->fuse_losses, fuse_loss));
    for (int32_t i = 0; i < s->steps_count; i++)
        s->steps[i].keeps = s->steps[i].shown;
    for (int32_t i = 0; i < s->steps_count; i++) {
        if (s->steps[i].forward >= 0)
            s->steps[s->steps[i].forward].keeps = true;
    }
    rg_schedule_times(s);
    return RG_OK;
}
