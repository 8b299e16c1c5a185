/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The public forms of the two verbs: single, batch, and those that allocate their results. */
#include "runtime/apart.h"
#include "runtime/call.h"

/* Everything passed to a batch call; NULL arrays where a direction has none. */
typedef struct batch {
    const rg_kernel *kernel;
    rg_commands *commands;
    int64_t count;
    rg_tensor *const *x, *const *y, *const *dy, *const *dx;
    rg_state *const *states;
    uint64_t add;
    bool gradient;
} batch;

/* ---- neighbours ---- */

static rg_tensor *entry(rg_tensor *const tensors[], int64_t count, int32_t i, int64_t n)
{
    return tensors != NULL ? tensors[i * count + n] : NULL;
}

/* Bytes from the first element to the end of the last one, of dimensions 1 and later. */
static int64_t extent(const rg_tensor_desc *desc)
{
    int64_t last = 0;
    for (int32_t d = 1; d < desc->rank; d++)
        last += (desc->dims[d] - 1) * desc->strides[d];
    return (last + 1) * (int64_t)rg_dtype_size(desc->dtype);
}

/* Whether `next` lies behind `tensor`, which holds `images` joined already, so that dimension 0
 * goes on. Where that has one index it has no stride yet: the first neighbour tells. */
static bool continues(const rg_tensor *tensor, const rg_tensor *next, int64_t images)
{
    if (tensor == NULL || next == NULL)
        return tensor == next;
    if (tensor->commands != 0 || next->commands != 0 || tensor->desc.rank == 0)
        return false; /* temporaries are counted one by one */
    if (tensor->storage != next->storage || tensor->desc.dtype != next->desc.dtype ||
        tensor->desc.rank != next->desc.rank || next->offset <= tensor->offset)
        return false;
    const int64_t rows = next->desc.dims[0];
    for (int32_t d = 0; d < next->desc.rank; d++) {
        const bool same = tensor->desc.strides[d] == next->desc.strides[d];
        if ((!same && (d > 0 || rows != 1)) ||
            (d > 0 && tensor->desc.dims[d] != next->desc.dims[d]))
            return false;
    }
    if (rows * images != tensor->desc.dims[0])
        return false;
    const int64_t distance = (int64_t)(next->offset - tensor->offset);
    const int64_t element = (int64_t)rg_dtype_size(tensor->desc.dtype);
    if (tensor->desc.dims[0] == 1)
        return distance % element == 0 && distance >= extent(&tensor->desc);
    return distance == tensor->desc.dims[0] * tensor->desc.strides[0] * element;
}

/* Tensors of one run of images, joined along dimension 0. */
typedef struct run {
    rg_tensor x[RG_MAX_INPUTS], y[RG_MAX_OUTPUTS], dy[RG_MAX_OUTPUTS], dx[RG_MAX_INPUTS];
} run;

static void start_run(rg_tensor *const tensors[], int64_t count, int32_t entries, int64_t n,
                      rg_tensor joined[], const rg_tensor *view[])
{
    for (int32_t i = 0; i < entries; i++) {
        const rg_tensor *tensor = entry(tensors, count, i, n);
        view[i] = tensor != NULL ? &joined[i] : NULL;
        if (tensor != NULL) { /* a copy on the stack: no reference is taken or given */
            joined[i].device = tensor->device;
            joined[i].storage = tensor->storage;
            joined[i].offset = tensor->offset;
            joined[i].desc = tensor->desc;
            joined[i].is_view = tensor->is_view;
            joined[i].commands = tensor->commands;
            joined[i].read_count = tensor->read_count;
            joined[i].parent = tensor->parent;
        }
    }
}

static bool run_continues(rg_tensor *const tensors[], int64_t count, int32_t entries, int64_t n,
                          const rg_tensor *const view[], int64_t images)
{
    for (int32_t i = 0; i < entries; i++) {
        if (!continues(view[i], entry(tensors, count, i, n), images))
            return false;
    }
    return true;
}

/* Image n of the batch comes behind the `images` that are joined. */
static void extend_run(rg_tensor *const tensors[], int64_t count, int32_t entries, int64_t n,
                       rg_tensor joined[], int64_t images)
{
    for (int32_t i = 0; i < entries; i++) {
        const rg_tensor *next = entry(tensors, count, i, n);
        if (next == NULL)
            continue;
        rg_tensor_desc *desc = &joined[i].desc;
        const size_t distance = next->offset - joined[i].offset;
        if (desc->dims[0] == 1)
            desc->strides[0] = (int64_t)(distance / rg_dtype_size(desc->dtype));
        desc->dims[0] += desc->dims[0] / images;
    }
}

/* Gradients that several images share are summed: all but the first add. */
static uint64_t add_bits(const batch *b, int32_t inputs, int64_t n)
{
    uint64_t add = b->add;
    for (int32_t i = 0; i < inputs && b->gradient; i++) {
        const rg_tensor *dx = entry(b->dx, b->count, i, n);
        for (int64_t k = 0; k < n && dx != NULL; k++)
            add |= entry(b->dx, b->count, i, k) == dx ? UINT64_C(1) << i : 0;
    }
    return add;
}

/* Images n to the one before the returned number can be one call: states keep them apart, and so
 * does a tensor that several images share. */
static int64_t join(const batch *b, int64_t n, run *r, rg_call *call)
{
    const rg_op *op = call->op;
    start_run(b->x, b->count, call->inputs, n, r->x, call->x);
    start_run(b->y, b->count, call->outputs, n, r->y, call->y);
    start_run(b->dy, b->count, call->gradients, n, r->dy, call->dy);
    start_run(b->dx, b->count, call->inputs, n, r->dx, call->dx);
    int64_t images = 1;
    rg_tensor_desc x[RG_MAX_INPUTS];
    for (int32_t i = 0; i < call->inputs; i++) {
        const rg_tensor *known = call->x[i] != NULL ? call->x[i] : call->dx[i];
        if (known == NULL)
            return n + 1;
        x[i] = known->desc;
    }
    if (b->states != NULL || op->joins == NULL || !op->joins(call->desc, x))
        return n + 1;
    const uint64_t add = add_bits(b, call->inputs, n);
    while (n + images < b->count && add_bits(b, call->inputs, n + images) == add &&
           run_continues(b->x, b->count, call->inputs, n + images, call->x, images) &&
           run_continues(b->y, b->count, call->outputs, n + images, call->y, images) &&
           run_continues(b->dy, b->count, call->gradients, n + images, call->dy, images) &&
           run_continues(b->dx, b->count, call->inputs, n + images, call->dx, images)) {
        const int64_t next = n + images;
        extend_run(b->x, b->count, call->inputs, next, r->x, images);
        extend_run(b->y, b->count, call->outputs, next, r->y, images);
        extend_run(b->dy, b->count, call->gradients, next, r->dy, images);
        extend_run(b->dx, b->count, call->inputs, next, r->dx, images);
        images++;
    }
    return n + images;
}

/* ---- all images ---- */

/* Before places are compared: a temporary of others, or one that is used up, has none. */
static rg_status check_all_usable(rg_tensor *const tensors[], int64_t entries, const rg_call *call,
                                  const char *prefix, const char *const names[], int64_t count)
{
    for (int64_t i = 0; tensors != NULL && i < entries; i++) {
        const rg_status status = tensors[i] == NULL
                                     ? RG_OK
                                     : rg_tensor_usable(tensors[i], call->commands, call->op->name,
                                                        prefix, names[i / count]);
        if (status != RG_OK) {
            rg_error_prefix("image %lld: ", (long long)(i % count));
            return status;
        }
    }
    return RG_OK;
}

static size_t add_places(rg_tensor *const tensors[], int64_t entries, const batch *b, bool written,
                         rg_place places[], size_t count)
{
    for (int64_t i = 0; tensors != NULL && i < entries; i++) {
        if (tensors[i] != NULL)
            places[count++] = (rg_place){ tensors[i], i % b->count, written };
    }
    return count;
}

/* The tensors of the states, once each; with places NULL only their number. */
static size_t add_states(const batch *b, rg_place places[], size_t count)
{
    for (int64_t n = 0; b->states != NULL && n < b->count; n++) {
        const rg_state *state = b->states[n];
        bool first = true;
        for (int64_t k = 0; k < n && first; k++)
            first = b->states[k] != state;
        for (int32_t i = 0; i < rg_state_count(state) && first; i++, count++) {
            if (places != NULL)
                places[count] = (rg_place){ state->tensors[i], n, true };
        }
    }
    return count;
}

/* What one image writes no other may touch: images may run joined, or in any order. */
static rg_status check_images_apart(const batch *b, const rg_call *call)
{
    const int64_t inputs = call->inputs * b->count, outputs = call->outputs * b->count;
    const int64_t gradients = call->gradients * b->count;
    const rg_allocator *allocator = &b->commands->queue->device->allocator;
    const rg_op *op = call->op;
    size_t bytes, count = 0;
    void *memory;
    RG_TRY(check_all_usable(b->x, inputs, call, "", call->input_names, b->count));
    RG_TRY(check_all_usable(b->y, outputs, call, "", call->output_names, b->count));
    RG_TRY(check_all_usable(b->dy, gradients, call, "d", call->output_names, b->count));
    RG_TRY(check_all_usable(b->dx, inputs, call, "d", call->input_names, b->count));
    for (int64_t n = 0; b->states != NULL && n < b->count; n++) {
        if (b->states[n] != NULL)
            RG_TRY(rg_state_usable(b->states[n], b->commands, op->name));
    }
    const size_t most = (size_t)(2 * (inputs + outputs)) + add_states(b, NULL, 0);
    RG_CHECK(rg_multiply(most, sizeof(rg_place), &bytes), RG_OUT_OF_MEMORY,
             "out of memory: a batch of %lld images", (long long)b->count);
    RG_TRY(rg_allocate(allocator, bytes, &memory));
    rg_place *places = memory;
    count = add_places(b->x, inputs, b, false, places, count);
    count = add_places(b->dy, gradients, b, false, places, count);
    count = add_places(b->y, outputs, b, !b->gradient, places, count);
    count = add_places(b->dx, inputs, b, true, places, count);
    count = add_states(b, places, count);
    const rg_status status = rg_places_apart(places, count, b->gradient, op->name);
    rg_release(allocator, memory, bytes);
    return status;
}

/* What one image leaves in a state the next would overwrite, unless the op adds to it. */
static rg_status check_states(const batch *b, const rg_call *call)
{
    const rg_op *op = call->op;
    if (b->states == NULL || (op->shares_state != NULL && op->shares_state(call->desc)))
        return RG_OK;
    for (int64_t n = 1; n < b->count; n++) {
        for (int64_t k = 0; k < n && rg_state_count(b->states[n]) > 0; k++)
            RG_CHECK(b->states[k] != b->states[n], RG_INVALID_ARGUMENT,
                     "%s: images %lld and %lld share a state that stores tensors of a single image",
                     op->name, (long long)k, (long long)n);
    }
    return RG_OK;
}

/* Images in the fewest launches, for ops that take many at once. */
static rg_status record_calls(const batch *b, const rg_call *call)
{
    rg_call calls[RG_MAX_CALLS];
    for (int64_t n = 0; n < b->count;) {
        int32_t count = 0;
        for (; count < RG_MAX_CALLS && n < b->count; count++, n++) {
            rg_call *c = &calls[count];
            *c = *call;
            for (int32_t i = 0; i < call->inputs; i++)
                c->x[i] = entry(b->x, b->count, i, n);
            for (int32_t i = 0; i < call->outputs; i++)
                c->y[i] = entry(b->y, b->count, i, n);
            c->state = b->states != NULL ? b->states[n] : NULL;
            const rg_status status = rg_call_check(c);
            if (status != RG_OK) {
                rg_error_prefix("image %lld: ", (long long)n);
                return status;
            }
        }
        RG_TRY(call->op->forward_calls(calls, count));
    }
    return RG_OK;
}

static rg_status record_images(const batch *b, rg_call *call)
{
    RG_TRY(check_states(b, call));
    if (b->count > 1)
        RG_TRY(check_images_apart(b, call));
    if (b->count > 1 && !b->gradient && call->op->forward_calls != NULL)
        return record_calls(b, call);
    for (int64_t n = 0; n < b->count;) {
        run r;
        const int64_t next = join(b, n, &r, call);
        call->state = b->states != NULL ? b->states[n] : NULL;
        call->add = add_bits(b, call->inputs, n);
        const rg_status status = b->gradient ? rg_call_gradient(call) : rg_call_forward(call);
        if (status != RG_OK) {
            if (b->count > 1)
                rg_error_prefix("image %lld: ", (long long)n);
            return status;
        }
        n = next;
    }
    return RG_OK;
}

static void count_reads(rg_tensor *const tensors[], int64_t entries, uint64_t serial)
{
    for (int64_t i = 0; tensors != NULL && i < entries; i++)
        rg_tensor_count_read(tensors[i], serial);
}

/* What the op has noted in the states of a refused call never happened. */
static void take_back_progress(const batch *b)
{
    for (int64_t n = 0; b->states != NULL && n < b->count; n++) {
        rg_state *state = b->states[n];
        if (state != NULL)
            memcpy(state->progress, state->recorded, sizeof state->progress);
    }
}

static rg_status record_batch(const batch *b, const char *who)
{
    rg_call call;
    RG_TRY(rg_call_begin(b->kernel, b->commands, who, &call));
    if (b->states != NULL)
        RG_TRY(rg_submission_need_completion(b->commands->submission));
    const rg_mark mark = rg_commands_mark(b->commands);
    const rg_status status = record_images(b, &call);
    if (status != RG_OK) {
        take_back_progress(b);
        rg_commands_rewind(b->commands, mark);
        return status;
    }
    const uint64_t serial = ++b->commands->serial;
    for (int64_t n = 0; b->states != NULL && n < b->count; n++) {
        if (b->states[n] == NULL)
            continue;
        if (b->gradient || b->states[n]->filled) /* filling a new one only writes */
            rg_state_count_read(b->states[n], serial);
        else
            b->states[n]->seen = serial;
        rg_state_note(b->states[n], b->commands->submission, !b->gradient);
    }
    count_reads(b->x, call.inputs * b->count, serial);
    count_reads(b->gradient ? b->y : NULL, call.outputs * b->count, serial);
    count_reads(b->dy, call.gradients * b->count, serial);
    return RG_OK;
}

static rg_status check_arrays(const batch *b, const char *who)
{
    RG_CHECK(b->count >= 1, RG_INVALID_ARGUMENT, "%s: count must be at least 1, not %lld", who,
             (long long)b->count);
    RG_CHECK(b->gradient || b->x != NULL, RG_INVALID_ARGUMENT, "%s: x is NULL", who);
    const bool results = b->kernel == NULL || !rg_op_fills_state(b->kernel->op, b->kernel->desc);
    RG_CHECK(b->gradient || !results || b->y != NULL, RG_INVALID_ARGUMENT, "%s: y is NULL", who);
    RG_CHECK(!b->gradient || b->dy != NULL, RG_INVALID_ARGUMENT, "%s: dy is NULL", who);
    RG_CHECK(!b->gradient || !results || b->dx != NULL, RG_INVALID_ARGUMENT, "%s: dx is NULL", who);
    return record_batch(b, who);
}

rg_status rg_kernel_forward_batch(const rg_kernel *kernel, rg_commands *commands, int64_t count,
                                  rg_tensor *const x[], rg_tensor *const y[],
                                  rg_state *const states[])
{
    const batch b = {
        .kernel = kernel, .commands = commands, .count = count, .x = x, .y = y, .states = states
    };
    return check_arrays(&b, __func__);
}

rg_status rg_kernel_gradient_batch(const rg_kernel *kernel, rg_commands *commands, int64_t count,
                                   rg_tensor *const dy[], rg_tensor *const x[],
                                   rg_tensor *const y[], rg_state *const states[],
                                   rg_tensor *const dx[], uint64_t add)
{
    const batch b = { .kernel = kernel,
                      .commands = commands,
                      .count = count,
                      .x = x,
                      .y = y,
                      .dy = dy,
                      .dx = dx,
                      .states = states,
                      .add = add,
                      .gradient = true };
    return check_arrays(&b, __func__);
}

rg_status rg_kernel_forward(const rg_kernel *kernel, rg_commands *commands, rg_tensor *const x[],
                            rg_tensor *const y[], rg_state *state)
{
    const batch b = { .kernel = kernel,
                      .commands = commands,
                      .count = 1,
                      .x = x,
                      .y = y,
                      .states = state != NULL ? &state : NULL };
    return check_arrays(&b, __func__);
}

rg_status rg_kernel_gradient(const rg_kernel *kernel, rg_commands *commands, rg_tensor *const dy[],
                             rg_tensor *const x[], rg_tensor *const y[], rg_state *state,
                             rg_tensor *const dx[], uint64_t add)
{
    const batch b = { .kernel = kernel,
                      .commands = commands,
                      .count = 1,
                      .x = x,
                      .y = y,
                      .dy = dy,
                      .dx = dx,
                      .states = state != NULL ? &state : NULL,
                      .add = add,
                      .gradient = true };
    return check_arrays(&b, __func__);
}

/* ---- forms that allocate ---- */

/* Takes back what a refused call has made, so that it leaves no trace. */
static void drop_results(rg_tensor *tensors[], int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        rg_tensor_destroy(tensors[i]);
        tensors[i] = NULL;
    }
}

static void drop_states(rg_state *states[], int64_t count)
{
    for (int64_t n = 0; states != NULL && n < count; n++) {
        rg_state_destroy(states[n]);
        states[n] = NULL;
    }
}

static rg_status make_result(rg_commands *commands, const rg_tensor_desc *like, bool temporary,
                             rg_tensor **tensor)
{
    const rg_tensor_desc desc = rg_tensor_desc_dense(like->dtype, like->rank, like->dims);
    return temporary ? rg_tensor_create_temporary(commands, &desc, tensor)
                     : rg_tensor_create(commands->queue->device, &desc, tensor);
}

static rg_status make_outputs(const batch *b, const rg_call *call, bool temporary, rg_tensor *y[],
                              rg_state *states[])
{
    const rg_op *op = call->op;
    for (int64_t n = 0; n < b->count; n++) {
        rg_tensor_desc xd[RG_MAX_INPUTS], yd[RG_MAX_OUTPUTS];
        rg_tensor *x[RG_MAX_INPUTS];
        for (int32_t i = 0; i < call->inputs; i++) {
            x[i] = entry(b->x, b->count, i, n);
            RG_CHECK(x[i] != NULL, RG_INVALID_ARGUMENT, "%s: %s is NULL", op->name,
                     call->input_names[i]);
            xd[i] = x[i]->desc;
        }
        RG_TRY(op->shapes(call->desc, xd, yd));
        for (int32_t i = 0; i < call->outputs && !rg_op_fills_state(op, call->desc); i++)
            RG_TRY(make_result(b->commands, &yd[i], temporary, &y[i * b->count + n]));
        if (states != NULL && temporary)
            RG_TRY(rg_state_create_temporary(b->kernel, b->commands, x, &states[n]));
        else if (states != NULL)
            RG_TRY(rg_state_create(b->kernel, x, &states[n]));
    }
    return RG_OK;
}

rg_status rg_kernel_forward_alloc(const rg_kernel *kernel, rg_commands *commands, int64_t count,
                                  rg_tensor *const x[], bool temporary, rg_tensor *y[],
                                  rg_state *states[])
{
    RG_CHECK_NOT_NULL(y);
    for (int64_t i = 0; i < rg_kernel_outputs(kernel) * count; i++)
        y[i] = NULL;
    for (int64_t n = 0; states != NULL && n < count; n++)
        states[n] = NULL;
    RG_CHECK_NOT_NULL(x);
    RG_CHECK(count >= 1, RG_INVALID_ARGUMENT, "%s: count must be at least 1, not %lld", __func__,
             (long long)count);
    rg_call call;
    RG_TRY(rg_call_begin(kernel, commands, __func__, &call));
    const batch b = {
        .kernel = kernel, .commands = commands, .count = count, .x = x, .y = y, .states = states
    };
    const rg_mark mark = rg_commands_mark(commands);
    rg_status status = make_outputs(&b, &call, temporary, y, states);
    if (status == RG_OK)
        status = record_batch(&b, __func__);
    if (status == RG_OK)
        return RG_OK;
    drop_results(y, call.outputs * count);
    drop_states(states, count);
    rg_commands_rewind(commands, mark);
    return status;
}

/* The shape of dx[i]: that of x[i], as the forward pass had it. Without x and state y tells it,
 * where the op has one input and gives an output of the same shape. */
static rg_status gradient_shape(const batch *b, const rg_call *call, int32_t i, int64_t n,
                                const rg_tensor_desc **like)
{
    const rg_tensor *x = entry(b->x, b->count, i, n), *y = entry(b->y, b->count, 0, n);
    const rg_state *state = b->states != NULL ? b->states[n] : NULL;
    *like = x != NULL ? &x->desc : NULL;
    if (*like == NULL && state != NULL && i < state->inputs)
        *like = &state->sources[i];
    if (*like == NULL && y != NULL && call->inputs == 1) {
        rg_tensor_desc made[RG_MAX_OUTPUTS];
        RG_TRY(call->op->shapes(call->desc, &y->desc, made));
        if (made[0].dtype == y->desc.dtype && rg_shape_same_dims(&made[0], &y->desc))
            *like = &y->desc;
    }
    RG_CHECK(*like != NULL, RG_INVALID_ARGUMENT,
             "%s: pass %s or a state: the shape of d%s is unknown", call->op->name,
             call->input_names[i], call->input_names[i]);
    return RG_OK;
}

static rg_status make_gradients(const batch *b, const rg_call *call, uint64_t wanted,
                                bool temporary, rg_tensor *dx[])
{
    for (int64_t n = 0; n < b->count; n++) {
        for (int32_t i = 0; i < call->inputs; i++) {
            const rg_tensor_desc *like;
            if (!(wanted >> i & 1))
                continue;
            RG_TRY(gradient_shape(b, call, i, n, &like));
            RG_TRY(make_result(b->commands, like, temporary, &dx[i * b->count + n]));
        }
    }
    return RG_OK;
}

rg_status rg_kernel_gradient_alloc(const rg_kernel *kernel, rg_commands *commands, int64_t count,
                                   rg_tensor *const dy[], rg_tensor *const x[],
                                   rg_tensor *const y[], rg_state *const states[], uint64_t wanted,
                                   bool temporary, rg_tensor *dx[])
{
    RG_CHECK_NOT_NULL(dx);
    for (int64_t i = 0; i < rg_kernel_inputs(kernel) * count; i++)
        dx[i] = NULL;
    RG_CHECK_NOT_NULL(dy);
    RG_CHECK(count >= 1, RG_INVALID_ARGUMENT, "%s: count must be at least 1, not %lld", __func__,
             (long long)count);
    rg_call call;
    RG_TRY(rg_call_begin(kernel, commands, __func__, &call));
    RG_CHECK(wanted >> call.inputs == 0, RG_INVALID_ARGUMENT,
             "%s: `wanted` has bits set beyond its %d inputs", call.op->name, call.inputs);
    const batch b = { .kernel = kernel,
                      .commands = commands,
                      .count = count,
                      .x = x,
                      .y = y,
                      .dy = dy,
                      .dx = dx,
                      .states = states,
                      .gradient = true };
    const rg_mark mark = rg_commands_mark(commands);
    rg_status status = make_gradients(&b, &call, wanted, temporary, dx);
    if (status == RG_OK)
        status = record_batch(&b, __func__);
    if (status == RG_OK)
        return RG_OK;
    drop_results(dx, call.inputs * count);
    rg_commands_rewind(commands, mark);
    return status;
}
