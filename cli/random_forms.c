/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Other forms of the same calls have the bits of plain ones: batches of separate or neighbouring
 * images, results that the call makes, temporaries, kernels that were JSON in between. */
#include "cli/check_trial.h"
#include "cli/random_case.h"
#include "core/dtype.h"
#include "core/shape.h"

#include <retrograde/files.h>

#include <stdlib.h>

enum { MOST_IMAGES = 3 };

/* All tensors of some images: entry i * images + n, as batches have them. */
typedef struct batch {
    rg_checker *checker;
    const rg_values *v;
    rg_kernel *kernel;
    int64_t images;
    uint32_t shared; /* bit i: input i is one tensor for all images */
    uint64_t wanted; /* gradients */
    bool with_state;
    rg_tensor *x[RG_MAX_INPUTS * MOST_IMAGES], *dx[RG_MAX_INPUTS * MOST_IMAGES];
    rg_tensor *y[RG_MAX_OUTPUTS * MOST_IMAGES], *dy[RG_MAX_OUTPUTS * MOST_IMAGES];
    rg_tensor *parents[2 * (RG_MAX_INPUTS + RG_MAX_OUTPUTS)];
    int parent_count;
    rg_state *states[MOST_IMAGES];
} batch;

rg_status rg_random_tensor(rg_device *device, const rg_tensor_desc *desc, const double *values,
                           int64_t roll, rg_tensor **tensor)
{
    const int64_t count = rg_shape_count(desc);
    const rg_tensor_desc dense = rg_tensor_desc_dense(desc->dtype, desc->rank, desc->dims);
    RG_TRY(rg_tensor_create(device, &dense, tensor));
    if (values == NULL)
        return RG_OK;
    const size_t bytes = (size_t)count * rg_dtype_size(desc->dtype);
    char *data = malloc(bytes + 8);
    RG_CHECK(data != NULL, RG_OUT_OF_MEMORY, "a tensor of %zu bytes is too large", bytes);
    for (int64_t i = 0; i < count; i++)
        rg_element_set(data, desc->dtype, i, values[(i + roll) % count]);
    const rg_status status = rg_tensor_write(*tensor, data, bytes, RG_LAYOUT_SAME);
    free(data);
    return status;
}

/* By value: any NaN is like any other. */
static uint64_t hash_of(const rg_tensor *tensor)
{
    rg_tensor_desc desc;
    uint64_t hash = 1;
    if (tensor == NULL || rg_tensor_get_desc(tensor, &desc) != RG_OK)
        return hash;
    const int64_t count = rg_shape_count(&desc);
    const size_t bytes = (size_t)count * rg_dtype_size(desc.dtype);
    char *data = malloc(bytes + 8);
    if (data != NULL && rg_tensor_read(tensor, data, bytes, RG_LAYOUT_SAME) == RG_OK) {
        for (int64_t i = 0; i < count; i++) {
            const double value = rg_element_get(data, desc.dtype, i);
            uint64_t bits;
            memcpy(&bits, &value, sizeof bits);
            hash = (hash ^ (value != value ? 1 : bits)) * UINT64_C(0x100000001b3);
            hash ^= hash >> 29;
        }
    }
    free(data);
    return hash;
}

/* ---- making ---- */

/* Separate tensors, or consecutive slices of one. */
static rg_status make_row(batch *b, const rg_tensor_desc *desc, const double *values,
                          bool neighbours, bool shared, rg_tensor *row[])
{
    rg_device *device = b->checker->device;
    rg_tensor *parent = NULL;
    if (neighbours && desc->rank > 0 && !shared) {
        int64_t dims[RG_MAX_RANK];
        memcpy(dims, desc->dims, sizeof dims);
        dims[0] *= b->images;
        const rg_tensor_desc all = rg_tensor_desc_dense(desc->dtype, desc->rank, dims);
        RG_TRY(rg_tensor_create(device, &all, &parent));
        b->parents[b->parent_count++] = parent;
    }
    for (int64_t n = 0; n < b->images; n++) {
        rg_tensor *own = NULL;
        if (shared && n > 0) {
            row[n] = row[0];
            continue;
        }
        RG_TRY(rg_random_tensor(device, desc, values, n, parent == NULL ? &row[n] : &own));
        if (parent == NULL)
            continue;
        int64_t start[RG_MAX_RANK] = { n * desc->dims[0] };
        rg_status status = rg_tensor_slice(parent, start, desc->dims, NULL, &row[n]);
        const size_t bytes = (size_t)rg_shape_count(desc) * rg_dtype_size(desc->dtype);
        char *data = malloc(bytes + 8);
        if (status == RG_OK && values != NULL && data != NULL)
            status = rg_tensor_read(own, data, bytes, RG_LAYOUT_SAME);
        if (status == RG_OK && values != NULL && data != NULL)
            status = rg_tensor_write(row[n], data, bytes, RG_LAYOUT_SAME);
        free(data);
        rg_tensor_destroy(own);
        RG_TRY(status);
    }
    return RG_OK;
}

static rg_status make_batch(batch *b, bool neighbours)
{
    const rg_values *v = b->v;
    const int64_t n = b->images;
    for (int32_t i = 0; i < v->inputs; i++) {
        const bool shared = b->shared >> i & 1;
        RG_TRY(make_row(b, &v->x_desc[i], v->x[i], neighbours, shared, &b->x[i * n]));
        if (b->wanted >> i & 1)
            RG_TRY(make_row(b, &v->x_desc[i], NULL, neighbours, shared, &b->dx[i * n]));
    }
    for (int32_t i = 0; i < v->outputs; i++) {
        RG_TRY(make_row(b, &v->y_desc[i], NULL, neighbours, false, &b->y[i * n]));
        if (i < rg_op_gradients(v->test->op, v->desc))
            RG_TRY(make_row(b, &v->y_desc[i], v->dy[i], neighbours, false, &b->dy[i * n]));
    }
    for (int64_t k = 0; k < n && b->with_state; k++) {
        rg_tensor *x[RG_MAX_INPUTS];
        for (int32_t i = 0; i < v->inputs; i++)
            x[i] = b->x[i * n + k];
        RG_TRY(rg_state_create(b->kernel, x, &b->states[k]));
    }
    return RG_OK;
}

/* A shared tensor is in several entries. */
static void destroy_row(rg_tensor *row[], int64_t images)
{
    for (int64_t n = 0; n < images; n++) {
        if (n == 0 || row[n] != row[0])
            rg_tensor_destroy(row[n]);
    }
}

static void free_batch(batch *b)
{
    for (int32_t i = 0; i < RG_MAX_INPUTS; i++) {
        destroy_row(&b->x[i * b->images], b->images);
        destroy_row(&b->dx[i * b->images], b->images);
    }
    for (int32_t i = 0; i < RG_MAX_OUTPUTS; i++) {
        destroy_row(&b->y[i * b->images], b->images);
        destroy_row(&b->dy[i * b->images], b->images);
    }
    for (int64_t n = 0; n < b->images; n++)
        rg_state_destroy(b->states[n]);
    for (int i = 0; i < b->parent_count; i++)
        rg_tensor_destroy(b->parents[i]);
}

/* ---- running ---- */

/* The kernel and the state of image n alone: those of the batch, unless images draw random numbers
 * of their own. */
static rg_status image_kernel(const batch *b, int64_t n, rg_tensor *const x[], rg_kernel **kernel,
                              rg_state **state)
{
    const rg_op *op = b->v->test->op;
    *kernel = NULL;
    *state = NULL;
    if (op->image_desc == NULL)
        return RG_OK;
    _Alignas(16) char desc[RG_MAX_DESC];
    memcpy(desc, b->v->desc, op->desc.size);
    op->image_desc(desc, n);
    RG_TRY(rg_kernel_create(b->checker->device, op, desc, kernel));
    return rg_state_create(*kernel, x, state);
}

/* One image after the other; what images share is added up in their order. */
static rg_status run_single(batch *b)
{
    rg_commands *commands;
    RG_TRY(rg_commands_create(b->checker->queue, &commands));
    rg_status status = RG_OK;
    for (int64_t n = 0; n < b->images && status == RG_OK; n++) {
        rg_tensor *x[RG_MAX_INPUTS], *y[RG_MAX_OUTPUTS], *dy[RG_MAX_OUTPUTS], *dx[RG_MAX_INPUTS];
        for (int32_t i = 0; i < RG_MAX_INPUTS; i++) {
            x[i] = b->x[i * b->images + n];
            dx[i] = b->dx[i * b->images + n];
        }
        for (int32_t i = 0; i < RG_MAX_OUTPUTS; i++) {
            y[i] = b->y[i * b->images + n];
            dy[i] = b->dy[i * b->images + n];
        }
        rg_kernel *own;
        rg_state *own_state;
        status = image_kernel(b, n, x, &own, &own_state);
        const rg_kernel *kernel = own != NULL ? own : b->kernel;
        rg_state *state = own_state != NULL ? own_state : b->states[n];
        if (status == RG_OK)
            status = rg_kernel_forward(kernel, commands, x, y, state);
        const uint64_t add = n > 0 ? b->shared & b->wanted : 0;
        if (status == RG_OK && b->wanted != 0)
            status = rg_kernel_gradient(kernel, commands, dy, x, y, state, dx, add);
        rg_state_destroy(own_state);
        rg_kernel_destroy(own);
    }
    return rg_commands_finish(commands, status);
}

static rg_status run_batch(batch *b)
{
    rg_commands *commands;
    rg_state *const *states = b->with_state ? b->states : NULL;
    RG_TRY(rg_commands_create(b->checker->queue, &commands));
    rg_status status = rg_kernel_forward_batch(b->kernel, commands, b->images, b->x, b->y, states);
    if (status == RG_OK && b->wanted != 0)
        status = rg_kernel_gradient_batch(b->kernel, commands, b->images, b->dy, b->x, b->y, states,
                                          b->dx, 0);
    return rg_commands_finish(commands, status);
}

/* Results are made by the calls: y and the state, then the gradient, or temporaries between
 * both. */
static rg_status run_alloc(batch *b, bool temporary)
{
    rg_commands *commands;
    const int32_t inputs = b->v->inputs, outputs = b->v->outputs;
    rg_tensor *y[RG_MAX_OUTPUTS * MOST_IMAGES] = { 0 };
    rg_state *states[MOST_IMAGES] = { 0 };
    rg_state **made = b->with_state ? states : NULL;
    RG_TRY(rg_commands_create(b->checker->queue, &commands));
    rg_status status =
        rg_kernel_forward_alloc(b->kernel, commands, b->images, b->x, temporary, y, made);
    if (status == RG_OK && b->wanted != 0 && temporary)
        status = rg_kernel_gradient_batch(b->kernel, commands, b->images, b->dy, b->x, y, made,
                                          b->dx, 0);
    if (status == RG_OK && b->wanted != 0 && !temporary) {
        for (int32_t i = 0; i < inputs * b->images; i++) {
            rg_tensor_destroy(b->dx[i]);
            b->dx[i] = NULL;
        }
        status = rg_kernel_gradient_alloc(b->kernel, commands, b->images, b->dy, b->x, y, made,
                                          b->wanted, false, b->dx);
    }
    status = rg_commands_finish(commands, status);
    for (int32_t i = 0; i < outputs * b->images; i++) {
        if (temporary || status != RG_OK) {
            rg_tensor_destroy(y[i]);
        } else {
            rg_tensor_destroy(b->y[i]);
            b->y[i] = y[i];
        }
    }
    for (int64_t n = 0; n < b->images; n++)
        rg_state_destroy(states[n]);
    return status;
}

/* ---- comparing ---- */

static void compare(const rg_check_trial *t, const batch *a, const batch *b, const char *what,
                    bool with_y)
{
    for (int32_t i = 0; i < a->v->outputs * a->images && with_y; i++) {
        t->checker->comparisons++;
        if (hash_of(a->y[i]) != hash_of(b->y[i]))
            rg_trial_fail(t, "%s: the forward result of image %d differs in bits from a plain call",
                          what, (int)(i % a->images));
    }
    for (int32_t i = 0; i < a->v->inputs * a->images; i++) {
        t->checker->comparisons++;
        if (hash_of(a->dx[i]) != hash_of(b->dx[i]))
            rg_trial_fail(t, "%s: dx[%d] of image %d differs in bits from a plain call", what,
                          (int)(i / a->images), (int)(i % a->images));
    }
}

static void check_form(const rg_check_trial *t, const batch *model, uint32_t form, bool neighbours)
{
    static const char *const names[] = { "batch", "results made by the call", "temporaries" };
    const char *name = names[form == RG_FORM_BATCH ? 0 : form == RG_FORM_ALLOC ? 1 : 2];
    batch single = *model, other = *model;
    if (form != RG_FORM_BATCH)
        single.shared = other.shared = 0;
    const bool made = rg_trial_ok(t, make_batch(&single, false), "tensors") &&
                      rg_trial_ok(t, make_batch(&other, neighbours), "tensors");
    if (made && rg_trial_ok(t, run_single(&single), "plain calls")) {
        const rg_status status = form == RG_FORM_BATCH
                                     ? run_batch(&other)
                                     : run_alloc(&other, form == RG_FORM_TEMPORARY);
        if (rg_trial_ok(t, status, name))
            compare(t, &single, &other, name, form != RG_FORM_TEMPORARY);
    }
    free_batch(&single);
    free_batch(&other);
}

/* The first input and the first output share a memory without a common element. */
static rg_status interleave(batch *b, rg_tensor *parent)
{
    rg_device *device = b->checker->device;
    rg_tensor_desc desc = b->v->x_desc[0];
    char *first = rg_tensor_data(parent);
    for (int32_t d = 0; d < desc.rank; d++)
        desc.strides[d] *= 2;
    rg_tensor *x = NULL, *y = NULL;
    const size_t size = rg_dtype_size(desc.dtype), bytes = (size_t)rg_shape_count(&desc) * size;
    char *data = malloc(bytes);
    rg_status status = rg_tensor_wrap(device, &desc, first, NULL, NULL, &x);
    if (status == RG_OK)
        status = rg_tensor_wrap(device, &desc, first + size, NULL, NULL, &y);
    if (status == RG_OK)
        status =
            data != NULL ? rg_tensor_read(b->x[0], data, bytes, RG_LAYOUT_SAME) : RG_OUT_OF_MEMORY;
    if (status == RG_OK)
        status = rg_tensor_write(x, data, bytes, RG_LAYOUT_SAME);
    free(data);
    rg_tensor_destroy(b->x[0]);
    rg_tensor_destroy(b->y[0]);
    b->x[0] = x;
    b->y[0] = y;
    return status;
}

static void check_interleaved(const rg_check_trial *t, const batch *model)
{
    const rg_values *v = t->v;
    batch single = *model, other = *model;
    const int64_t count = 2 * rg_shape_count(&v->x_desc[0]);
    const rg_tensor_desc whole = rg_tensor_desc_dense(v->x_desc[0].dtype, 1, &count);
    if (count == 0 || v->x_desc[0].dtype != v->y_desc[0].dtype ||
        !rg_shape_same_dims(&v->x_desc[0], &v->y_desc[0]))
        return;
    single.images = other.images = 1;
    single.shared = other.shared = 0;
    rg_tensor *parent = NULL;
    const bool made =
        rg_trial_ok(t, make_batch(&single, false), "tensors") &&
        rg_trial_ok(t, make_batch(&other, false), "tensors") &&
        rg_trial_ok(t, rg_tensor_create(t->checker->device, &whole, &parent), "memory");
    if (made && rg_trial_ok(t, interleave(&other, parent), "interleaved tensors") &&
        rg_trial_ok(t, run_single(&single), "plain calls") &&
        rg_trial_ok(t, run_single(&other), "interleaved calls"))
        compare(t, &single, &other, "interleaved", true);
    if (made && hash_of(single.x[0]) != hash_of(other.x[0]))
        rg_trial_fail(t, "interleaved calls: x was overwritten");
    free_batch(&single);
    free_batch(&other);
    rg_tensor_destroy(parent);
}

static void check_json(const rg_check_trial *t)
{
    char text[8192];
    rg_kernel *read = NULL;
    const size_t length = rg_kernel_to_json(t->kernel, text, sizeof text);
    if (length < sizeof text &&
        rg_trial_ok(t, rg_kernel_from_json(t->checker->device, text, length, &read), "JSON") &&
        (!rg_kernel_equal(read, t->kernel) || rg_kernel_hash(read) != rg_kernel_hash(t->kernel)))
        rg_trial_fail(t, "a kernel read from its own JSON differs from the original");
    rg_kernel_destroy(read);
}

void rg_random_forms(rg_checker *checker, const rg_values *values, uint32_t forms, uint64_t seed)
{
    const rg_op *op = values->test->op;
    rg_check_trial t = { .checker = checker, .v = values };
    if (!rg_trial_ok(&t, rg_kernel_create(checker->device, op, values->desc, &t.kernel), "kernel"))
        return;
    const bool differentiates =
        op->gradient != NULL && forms & RG_FORM_GRADIENT && !(values->c->flags & RG_CASE_FORWARD);
    const bool needs = differentiates && op->reads(values->desc) & RG_READS_STATE;
    batch model = { .checker = checker,
                    .v = values,
                    .kernel = t.kernel,
                    .images = 1 + (int64_t)(seed % MOST_IMAGES),
                    .shared = (uint32_t)(seed >> 8) & ~1u,
                    .with_state = needs || forms & RG_FORM_STATE };
    for (int32_t i = 0; i < values->inputs && differentiates; i++)
        model.wanted |= (uint64_t)rg_op_differentiates(op, values->desc, i) << i;
    for (uint32_t form = RG_FORM_BATCH; form <= RG_FORM_TEMPORARY; form <<= 1) {
        if (forms & form && !rg_op_fills_state(op, values->desc))
            check_form(&t, &model, form, seed >> 20 & 1);
    }
    if (forms & RG_FORM_INTERLEAVE && !rg_op_fills_state(op, values->desc))
        check_interleaved(&t, &model);
    if (forms & RG_FORM_JSON)
        check_json(&t);
    rg_kernel_destroy(t.kernel);
}
