/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* States that runs of a plan are given: whether they fit, stand-ins for them in a layout, gradients
 * whose images have states of their own, read counts. */
#include "graph/plan.h"

#include <inttypes.h>

static const rg_allocator *const allocator = &rg_default_allocator;

static const rg_state_value *value_of(const rg_plan *plan, int32_t k)
{
    return plan->graph->given[plan->given[k]];
}

rg_status rg_plan_note_given(rg_plan *plan, const bool runs[])
{
    const rg_graph *graph = plan->graph;
    RG_TRY(rg_allocate_array(graph->given_count, sizeof *plan->given, &plan->given));
    for (int32_t id = 0; id < (int32_t)graph->given_count; id++) {
        bool read = false;
        for (size_t n = 0; n < graph->nodes_count && !read; n++)
            read = runs[n] && graph->nodes[n]->given == graph->given[id];
        if (read)
            plan->given[plan->given_count++] = id;
    }
    return RG_OK;
}

/* ---- whether a state fits ---- */

/* Whether the state has this descriptor, or has it with the number of a run as one more input. */
static bool has_desc(const rg_state *state, const rg_state_value *value)
{
    const rg_op *op = value->op;
    _Alignas(16) char numbered[RG_MAX_DESC];
    if (rg_fields_equal(&op->desc, state->desc, value->desc))
        return true;
    memcpy(numbered, value->desc, op->desc.size);
    return op->fusion.with_run_number != NULL && op->fusion.with_run_number(numbered) &&
           rg_fields_equal(&op->desc, state->desc, numbered);
}

/* Whether the tensors of the state are those that a gradient of this descriptor reads. */
static bool has_tensors(const rg_state *state, const rg_state_value *value)
{
    rg_state_slot slots[RG_MAX_STATE];
    const int32_t count =
        value->op->state != NULL ? value->op->state(value->desc, state->sources, slots) : 0;
    bool same = count == state->count;
    for (int32_t i = 0; i < count && same; i++)
        same = strcmp(slots[i].name, state->names[i]) == 0 &&
               slots[i].desc.dtype == state->tensors[i]->desc.dtype &&
               rg_shape_same(&slots[i].desc, &state->tensors[i]->desc);
    return same;
}

static rg_status check_fit(const rg_state *state, const rg_state_value *value, const char *who)
{
    RG_CHECK(state != NULL, RG_INVALID_ARGUMENT, "%s: the state '%s' is NULL", who, value->name);
    RG_CHECK(state->op == value->op, RG_INVALID_ARGUMENT,
             "%s: the state '%s' must be of %s, but is of %s", who, value->name, value->op->name,
             state->op->name);
    if (!has_desc(state, value)) {
        char have[256], want[256];
        rg_fields_text(&state->op->desc, state->desc, have, sizeof have);
        rg_fields_text(&value->op->desc, value->desc, want, sizeof want);
        return rg_fail(
            RG_INVALID_ARGUMENT,
            "%s: the state '%s' of %s has another descriptor (%s) than in the graph (%s)", who,
            value->name, value->op->name, have, want);
    }
    RG_CHECK(has_tensors(state, value), RG_INVALID_ARGUMENT,
             "%s: the state '%s' has other tensors than a state of %s with this descriptor", who,
             value->name, value->op->name);
    return RG_OK;
}

/* Whether a gradient in these commands can read the state. */
static rg_status check_ready(const rg_plan *plan, const rg_commands *commands, rg_state *state,
                             const char *name, const char *who)
{
    rg_status status = rg_state_usable(state, commands, who);
    if (status == RG_OK)
        status = rg_state_discard_failed(state, commands, true, who);
    if (status == RG_OK && !state->filled)
        status = rg_fail(RG_INVALID_STATE, "%s: it is empty: no forward pass has written it", who);
    if (status != RG_OK) {
        rg_error_prefix("the state '%s': ", name);
        return status;
    }
    for (int32_t i = 0; i < state->count; i++)
        RG_TRY(rg_plan_check_input(plan, commands, who, "state ", name, state->tensors[i]));
    return RG_OK;
}

/* States of images must be those of one kernel for inputs of one shape. */
static rg_status check_images(rg_state *const states[], int64_t images, const rg_state_value *value,
                              const char *who)
{
    for (int64_t n = 0; n < images; n++) {
        rg_status status = check_fit(states[n], value, who);
        if (status == RG_OK && !rg_state_equal(states[0], states[n]))
            status = rg_fail(RG_INVALID_ARGUMENT,
                             "%s: the states '%s' of images 0 and %" PRId64
                             " differ in descriptor or shapes",
                             who, value->name, n);
        if (status != RG_OK && images > 1 && states[n] == NULL)
            rg_error_prefix("image %" PRId64 ": ", n);
        RG_TRY(status);
    }
    return RG_OK;
}

/* Whether a state that is the same for all images is of one image, and not of the whole batch. */
static bool is_of_image(const rg_state *state, const rg_given_states *given)
{
    if (state == NULL)
        return false;
    const rg_tensor_desc *x = &state->sources[0];
    return given->stacked ? x->rank == 3 : given->images > 1 && x->rank == 4 && x->dims[0] == 1;
}

/* ---- in the buffers of a plan ---- */

static rg_status take_state(rg_plan *plan, const rg_commands *commands, int32_t k,
                            rg_state *const states[], const rg_given *given, const char *who)
{
    rg_input_buffers *const b = &plan->buffers;
    const bool copies = rg_plan_may_replay(plan);
    int32_t at = given->first;
    for (int64_t n = 0; n < given->images; n++) {
        if (commands != NULL)
            RG_TRY(check_ready(plan, commands, states[n], value_of(plan, k)->name, who));
        for (int32_t i = 0; i < given->count; i++, at++) {
            rg_tensor *tensor = states[n]->tensors[i];
            b->tensors[at] = tensor;
            b->descs[at] = tensor->desc;
            b->alignments[at] = copies || commands == NULL ? 0 : rg_source_alignment(plan, tensor);
        }
    }
    return RG_OK;
}

rg_status rg_plan_take_given(rg_plan *plan, const rg_commands *commands,
                             const rg_given_states *given, const char *who)
{
    rg_input_buffers *const b = &plan->buffers;
    int64_t count = plan->sources_count, states_count = 0;
    RG_CHECK(given->states != NULL || plan->given_count == 0, RG_INVALID_ARGUMENT,
             "%s: states is NULL", who);
    for (int32_t k = 0; k < plan->given_count; k++) {
        rg_state *const *states = given->states + k * given->images;
        const rg_state_value *value = value_of(plan, k);
        const bool by_image =
            !rg_plan_is_one_state(states, given->images) || is_of_image(states[0], given);
        const int64_t images = by_image ? given->images : 1;
        RG_TRY(check_images(states, images, value, who));
        b->given[k] = (rg_given){ .images = images,
                                  .stacked = given->stacked,
                                  .by_image = by_image,
                                  .weights = value->op->weights,
                                  .inputs = rg_op_inputs(value->op, value->desc),
                                  .count = states[0]->count,
                                  .first = (int32_t)count,
                                  .at = states_count };
        memcpy(b->given[k].x, states[0]->sources, sizeof states[0]->sources);
        count += images * states[0]->count;
        states_count += images;
        RG_TRY(rg_plan_reserve_inputs(plan, count));
        RG_TRY(take_state(plan, commands, k, states, &b->given[k], who));
    }
    b->count = (int32_t)count;
    return RG_OK;
}

bool rg_given_same(const rg_given *a, const rg_given *b)
{
    bool same = a->images == b->images && a->stacked == b->stacked && a->count == b->count;
    for (int32_t i = 0; i < a->inputs && same; i++)
        same = a->x[i].dtype == b->x[i].dtype && rg_shape_same_dims(&a->x[i], &b->x[i]);
    return same;
}

/* ---- shapes ---- */

/* Whether an input of the forward pass differs between images, when only the states give its
 * shape. */
static bool is_image(const rg_given *given, int32_t i)
{
    const rg_tensor_desc *x = &given->x[i], *first = &given->x[0];
    return given->by_image && !(given->weights >> i & 1) && x->rank > 0 && x->rank == first->rank &&
           x->dims[0] == first->dims[0];
}

rg_tensor_desc rg_given_shape(const rg_given *given, int32_t i)
{
    rg_tensor_desc desc = given->x[i];
    if (is_image(given, i) && given->stacked && desc.rank < 4) {
        memmove(&desc.dims[1], &desc.dims[0], (size_t)desc.rank++ * sizeof desc.dims[0]);
        desc.dims[0] = given->images;
    } else if (is_image(given, i) &&
               __builtin_mul_overflow(desc.dims[0], given->images, &desc.dims[0])) {
        desc.dims[0] = INT64_MAX; /* refused where its storage is asked for */
    }
    return rg_tensor_desc_dense(desc.dtype, desc.rank, desc.dims);
}

/* ---- in a layout ---- */

rg_status rg_layout_make_given(const rg_plan *plan, rg_layout_plan *layout)
{
    int64_t all = 0;
    for (int32_t k = 0; k < plan->given_count; k++)
        all += layout->given[k].images;
    RG_TRY(rg_allocate_array((size_t)all, sizeof *layout->given_states, &layout->given_states));
    layout->given_count = all;
    for (int32_t k = 0; k < plan->given_count; k++) {
        const rg_given *given = &layout->given[k];
        const rg_state_value *value = value_of(plan, k);
        const rg_kernel kernel = { .device = plan->device, .op = value->op, .desc = value->desc };
        rg_tensor *const *stand_ins = layout->stand_ins + given->first;
        for (int64_t n = 0; n < given->images; n++) {
            rg_state **state = &layout->given_states[given->at + n];
            RG_TRY(rg_state_make(&kernel, given->x, state));
            (*state)->filled = true;
            for (int32_t i = 0; i < given->count; i++) {
                const rg_tensor *stand_in = *stand_ins++;
                (*state)->tensors[i]->storage = rg_storage_retain(stand_in->storage);
                (*state)->tensors[i]->offset = stand_in->offset;
                (*state)->tensors[i]->is_view = true;
            }
        }
    }
    return RG_OK;
}

/* ---- gradients image by image ---- */

/* Tensors of one role, one for each image: entry i * images + n. Views are made here. */
typedef struct per_image {
    rg_tensor **tensors;
    int32_t entries;
    int64_t images;
} per_image;

static void free_images(const per_image *p)
{
    const int64_t count = p->entries * p->images;
    for (int64_t i = 0; p->tensors != NULL && i < count; i++)
        rg_tensor_destroy(p->tensors[i]);
    rg_release(allocator, p->tensors, (size_t)count * sizeof *p->tensors);
}

/* Image n of a tensor of all images, in the shape `image`. */
static rg_status make_view(const rg_tensor *whole, const rg_tensor_desc *image, int64_t images,
                           int64_t n, rg_tensor **view)
{
    rg_tensor_desc desc = whole->desc;
    const int64_t step = desc.rank > 0 ? desc.dims[0] / images * desc.strides[0] : 0;
    if (desc.rank == image->rank + 1 && desc.dims[0] == images) { /* counts images */
        desc.rank--;
        memmove(&desc.dims[0], &desc.dims[1], (size_t)desc.rank * sizeof desc.dims[0]);
        memmove(&desc.strides[0], &desc.strides[1], (size_t)desc.rank * sizeof desc.strides[0]);
    } else if (desc.rank > 0 && desc.dims[0] % images == 0) {
        desc.dims[0] /= images;
    }
    char have[RG_SHAPE_TEXT], want[RG_SHAPE_TEXT];
    RG_CHECK(rg_shape_same_dims(&desc, image), RG_INVALID_ARGUMENT,
             "%s is not %" PRId64 " images of %s, the shape in their states",
             rg_shape_text(&whole->desc, have), images, rg_shape_text(image, want));
    RG_TRY(rg_tensor_make(whole->device, &desc, view));
    (*view)->storage = rg_storage_retain(whole->storage);
    (*view)->offset = whole->offset + (size_t)(n * step) * rg_dtype_size(whole->desc.dtype);
    (*view)->is_view = true;
    return RG_OK;
}

/* `values` for each image; a tensor of the shape that an image has is the same for all. */
static rg_status split(const rg_layout_plan *layout, const int32_t values[], int32_t entries,
                       const rg_tensor_desc shapes[], per_image *p)
{
    p->entries = entries;
    RG_TRY(rg_allocate_array((size_t)(entries * p->images), sizeof *p->tensors, &p->tensors));
    for (int32_t i = 0; i < entries; i++) {
        rg_tensor *whole = rg_layout_value(layout, values[i]);
        for (int64_t n = 0; whole != NULL && n < p->images; n++) {
            rg_tensor **tensor = &p->tensors[i * p->images + n];
            if (!rg_shape_same_dims(&whole->desc, &shapes[i])) {
                RG_TRY(make_view(whole, &shapes[i], p->images, n, tensor));
                continue;
            }
            *tensor = whole;
            whole->refs++;
        }
    }
    return RG_OK;
}

rg_status rg_layout_record_images(const rg_layout_plan *layout, const rg_step *step)
{
    const rg_given *given = &layout->given[step->given];
    rg_state *const *states = layout->given_states + given->at;
    rg_tensor_desc y[RG_MAX_OUTPUTS];
    int32_t out[RG_MAX_INPUTS];
    per_image dy = { .images = given->images }, x = dy, made = dy, dx = dy;
    RG_TRY(step->op->shapes(step->kernel->desc, given->x, y));
    for (int32_t i = 0; i < RG_MAX_INPUTS; i++)
        out[i] = step->views >> i & 1 ? -1 : step->out[i];
    const int32_t inputs = step->outputs, outputs = rg_op_outputs(step->op, step->kernel->desc);
    rg_status status = split(layout, step->in, step->inputs, y, &dy);
    if (status == RG_OK)
        status = split(layout, step->x, inputs, given->x, &x);
    if (status == RG_OK)
        status = split(layout, step->y, outputs, y, &made);
    if (status == RG_OK)
        status = split(layout, out, inputs, given->x, &dx);
    if (status == RG_OK)
        status = rg_kernel_gradient_batch(step->kernel, layout->recorded, given->images, dy.tensors,
                                          x.tensors, made.tensors, states, dx.tensors, step->add);
    free_images(&dy);
    free_images(&x);
    free_images(&made);
    free_images(&dx);
    return status;
}

/* ---- read counts ---- */

rg_status rg_plan_check_given_counts(const rg_plan *plan, const rg_given_states *given,
                                     const char *who)
{
    const int64_t images = given->images, all = plan->given_count * images;
    for (int64_t k = 0; k < all; k++) {
        const rg_state *state = given->states[k];
        uint64_t reads = 0; /* by all that are this state */
        for (int32_t i = 0; i < plan->given_count && state->temporary; i++) {
            bool is_given = false;
            for (int64_t n = 0; n < images && !is_given; n++)
                is_given = given->states[i * images + n] == state;
            reads += is_given ? rg_plan_source_state_reads(plan, i) : 0;
        }
        RG_CHECK(!state->temporary || state->read_count >= reads, RG_INVALID_STATE,
                 "%s: the state '%s' is a temporary with a read count of %" PRIu64
                 ", and is read %" PRIu64 " times",
                 who, rg_plan_source_state_name(plan, (int32_t)(k / images)), state->read_count,
                 reads);
    }
    return RG_OK;
}

void rg_plan_count_given(const rg_plan *plan, const rg_given_states *given)
{
    for (int32_t k = 0; k < plan->given_count; k++)
        rg_state_add_read_count(given->states + k * given->images, (size_t)given->images,
                                -(int64_t)rg_plan_source_state_reads(plan, k));
}
