/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Calls that are wrong in one way: each is refused with a sentence and changes nothing. */
#include "cli/check_trial.h"
#include "cli/random_case.h"
#include "core/dtype.h"
#include "core/shape.h"

#include <stdlib.h>

/* One call, before it is made wrong. */
typedef struct wrong_call {
    rg_check_trial t;
    rg_random random;
    rg_tensor *x[RG_MAX_INPUTS], *y[RG_MAX_OUTPUTS], *dy[RG_MAX_OUTPUTS], *dx[RG_MAX_INPUTS];
    rg_state *state;
    uint64_t add;
    bool gradient;
    rg_guarded extra; /* the tensor that does not belong here */
} wrong_call;

static int64_t below(wrong_call *w, int64_t n)
{
    return n < 1 ? 0 : (int64_t)(rg_random_uniform(&w->random) * (double)n);
}

static bool make_extra(wrong_call *w, const rg_tensor_desc *desc)
{
    return rg_guarded_make_view(w->t.checker->device, desc, 3, NULL, &w->extra) == RG_OK;
}

/* ---- ways to be wrong; false where a call cannot be wrong like that ---- */

static bool no_input(wrong_call *w)
{
    w->x[below(w, w->t.v->inputs)] = NULL;
    return true;
}

static bool no_output(wrong_call *w)
{
    w->y[below(w, w->t.v->outputs)] = NULL;
    return true;
}

static bool larger_output(wrong_call *w)
{
    const int32_t i = (int32_t)below(w, w->t.v->outputs);
    const rg_tensor_desc *own = &w->t.v->y_desc[i];
    int64_t dims[RG_MAX_RANK];
    memcpy(dims, own->dims, sizeof dims);
    if (own->rank == 0)
        return false;
    dims[below(w, own->rank)]++;
    const rg_tensor_desc desc = rg_tensor_desc_dense(own->dtype, own->rank, dims);
    if (!make_extra(w, &desc))
        return false;
    w->y[i] = w->extra.tensor;
    return true;
}

static bool output_of_other_rank(wrong_call *w)
{
    const int32_t i = (int32_t)below(w, w->t.v->outputs);
    const rg_tensor_desc *own = &w->t.v->y_desc[i];
    int64_t dims[RG_MAX_RANK] = { 1 };
    if (own->rank == RG_MAX_RANK)
        return false;
    memcpy(dims + 1, own->dims, sizeof(int64_t) * (size_t)own->rank);
    const rg_tensor_desc desc = rg_tensor_desc_dense(own->dtype, own->rank + 1, dims);
    if (!make_extra(w, &desc))
        return false;
    w->y[i] = w->extra.tensor;
    return true;
}

static bool output_of_other_dtype(wrong_call *w)
{
    const int32_t i = (int32_t)below(w, w->t.v->outputs);
    rg_tensor_desc desc = w->t.v->y_desc[i];
    desc.dtype = desc.dtype == RG_F32 ? RG_F64 : RG_F32;
    if (!make_extra(w, &desc))
        return false;
    w->y[i] = w->extra.tensor;
    return true;
}

static bool input_of_bytes(wrong_call *w)
{
    const int32_t i = (int32_t)below(w, w->t.v->inputs);
    rg_tensor_desc desc = w->t.v->x_desc[i];
    desc.dtype = RG_U8;
    if (!make_extra(w, &desc))
        return false;
    w->x[i] = w->extra.tensor;
    return true;
}

/* All indices of a dimension at one address. */
static bool expanded_output(wrong_call *w)
{
    const int32_t i = (int32_t)below(w, w->t.v->outputs);
    rg_tensor_desc desc = w->t.v->y_desc[i];
    const int64_t d = below(w, desc.rank);
    if (desc.rank == 0 || desc.dims[d] < 2 || rg_shape_count(&desc) == 0)
        return false;
    desc.strides[d] = 0;
    if (!make_extra(w, &desc))
        return false;
    w->y[i] = w->extra.tensor;
    return true;
}

/* A result in the place of an input that must stay. */
static bool output_in_input(wrong_call *w)
{
    const rg_values *v = w->t.v;
    const int32_t i = (int32_t)below(w, v->inputs), k = (int32_t)below(w, v->outputs);
    if (rg_shape_count(&v->x_desc[i]) == 0 ||
        rg_op_may_alias(v->test->op, v->desc, RG_X_AS_Y(i, k)) ||
        v->x_desc[i].dtype != v->y_desc[k].dtype ||
        !rg_shape_same_dims(&v->x_desc[i], &v->y_desc[k]))
        return false;
    w->y[k] = w->x[i];
    return true;
}

/* One memory for both: the result begins somewhere inside of the input. */
static bool output_across_input(wrong_call *w)
{
    const rg_values *v = w->t.v;
    const int32_t i = (int32_t)below(w, v->inputs), k = (int32_t)below(w, v->outputs);
    const int64_t x = rg_shape_count(&v->x_desc[i]), y = rg_shape_count(&v->y_desc[k]);
    rg_device *device = w->t.checker->device;
    if (x < 2 || y < 1 || v->x_desc[i].dtype != v->y_desc[k].dtype)
        return false;
    const int64_t at = 1 + below(w, x - 1), length = at + y > x ? at + y : x;
    const rg_tensor_desc whole = rg_tensor_desc_dense(v->x_desc[i].dtype, 1, &length);
    if (!make_extra(w, &whole))
        return false;
    char *first = rg_tensor_data(w->extra.tensor);
    rg_tensor *input = NULL, *output = NULL;
    if (rg_tensor_wrap(device, &v->x_desc[i], first, NULL, NULL, &input) != RG_OK)
        return false;
    if (rg_tensor_wrap(device, &v->y_desc[k], first + (size_t)at * rg_dtype_size(whole.dtype), NULL,
                       NULL, &output) != RG_OK) {
        rg_tensor_destroy(input);
        return false;
    }
    rg_tensor_destroy(w->t.x[i].tensor); /* they go where the old ones went */
    rg_tensor_destroy(w->t.y[k].tensor);
    w->x[i] = w->t.x[i].tensor = input;
    w->y[k] = w->t.y[k].tensor = output;
    return true;
}

static bool no_gradient_given(wrong_call *w)
{
    const rg_op *op = w->t.v->test->op;
    const int32_t count = rg_op_gradients(op, w->t.v->desc);
    const int64_t i = below(w, count);
    w->gradient = true;
    w->dy[i] = NULL;
    return count > 0 && op->gradient != NULL && !(op->optional_dy >> i & 1);
}

static bool nothing_wanted(wrong_call *w)
{
    w->gradient = true;
    memset(w->dx, 0, sizeof w->dx);
    return w->t.v->test->op->gradient != NULL && !rg_op_fills_state(w->t.v->test->op, w->t.v->desc);
}

static bool larger_gradient(wrong_call *w)
{
    const rg_values *v = w->t.v;
    const int32_t i = (int32_t)below(w, v->inputs);
    if (v->test->op->gradient == NULL || v->want_dx[i] == NULL || v->x_desc[i].rank == 0)
        return false;
    int64_t dims[RG_MAX_RANK];
    memcpy(dims, v->x_desc[i].dims, sizeof dims);
    dims[below(w, v->x_desc[i].rank)]++;
    const rg_tensor_desc desc = rg_tensor_desc_dense(v->x_desc[i].dtype, v->x_desc[i].rank, dims);
    w->gradient = true;
    if (!make_extra(w, &desc))
        return false;
    w->dx[i] = w->extra.tensor;
    return true;
}

static bool gradient_of_labels(wrong_call *w)
{
    const rg_values *v = w->t.v;
    const int32_t i = (int32_t)below(w, v->inputs);
    w->gradient = true;
    if (v->test->op->gradient == NULL || v->want_dx[i] != NULL || !make_extra(w, &v->x_desc[i]))
        return false;
    w->dx[i] = w->extra.tensor;
    return true;
}

static bool add_beyond(wrong_call *w)
{
    w->gradient = true;
    w->add = UINT64_C(1) << (w->t.v->inputs + below(w, 8));
    return w->t.v->test->op->gradient != NULL;
}

static bool expanded_gradient(wrong_call *w)
{
    const rg_values *v = w->t.v;
    const int32_t i = (int32_t)below(w, v->inputs);
    rg_tensor_desc desc = v->x_desc[i];
    const int64_t d = below(w, desc.rank);
    w->gradient = true;
    if (v->test->op->gradient == NULL || v->want_dx[i] == NULL || desc.rank == 0 ||
        desc.dims[d] < 2 || rg_shape_count(&desc) == 0)
        return false;
    desc.strides[d] = 0;
    if (!make_extra(w, &desc))
        return false;
    w->dx[i] = w->extra.tensor;
    return true;
}

static const struct {
    const char *text;
    bool (*make)(wrong_call *w);
} ways[] = {
    { "an input is NULL", no_input },
    { "an output is NULL", no_output },
    { "an output is larger", larger_output },
    { "an output has another rank", output_of_other_rank },
    { "an output has another dtype", output_of_other_dtype },
    { "an input has bytes", input_of_bytes },
    { "an output overlaps itself", expanded_output },
    { "an output takes the place of an input", output_in_input },
    { "an output overlaps an input", output_across_input },
    { "a dy is NULL", no_gradient_given },
    { "no gradient is asked for", nothing_wanted },
    { "a dx is larger", larger_gradient },
    { "a dx of an input without gradient", gradient_of_labels },
    { "add has a bit too many", add_beyond },
    { "a dx overlaps itself", expanded_gradient },
};
enum { WAYS = sizeof ways / sizeof ways[0] };

/* ---- calling ---- */

static rg_status call(wrong_call *w, bool *recorded)
{
    rg_commands *commands;
    RG_TRY(rg_commands_create(w->t.checker->queue, &commands));
    rg_status status = w->gradient ? rg_kernel_gradient(w->t.kernel, commands, w->dy, w->x, w->y,
                                                        w->state, w->dx, w->add)
                                   : rg_kernel_forward(w->t.kernel, commands, w->x, w->y, w->state);
    *recorded = status == RG_OK;
    const bool told = status == RG_OK || rg_error_text()[0] != 0;
    if (!told)
        rg_trial_fail(&w->t, "a call is refused without an error text");
    (void)rg_commands_finish(commands, status);
    return status;
}

static void check_way(rg_checker *checker, const rg_values *values, int way, uint64_t seed,
                      int64_t *refused)
{
    static const rg_views dense = { 0, 0 };
    wrong_call w = { .t = { .checker = checker, .v = values, .views = &dense },
                     .random = rg_random_seed(seed, ways[way].text) };
    const rg_op *op = values->test->op;
    bool recorded = false;
    if (!rg_trial_ok(&w.t, rg_kernel_create(checker->device, op, values->desc, &w.t.kernel),
                     "kernel") ||
        !rg_trial_ok(&w.t, rg_trial_make_tensors(&w.t, RG_DENSE), "tensors"))
        goto end;
    rg_trial_tensors_of(w.t.x, values->inputs, w.x);
    rg_trial_tensors_of(w.t.y, values->outputs, w.y);
    rg_trial_tensors_of(w.t.dy, values->outputs, w.dy);
    rg_trial_tensors_of(w.t.dx, values->inputs, w.dx);
    if (op->gradient != NULL && op->reads(values->desc) & RG_READS_STATE)
        (void)rg_state_create(w.t.kernel, w.x, &w.state);
    if (ways[way].make(&w)) {
        (void)call(&w, &recorded);
        checker->comparisons++;
        *refused += !recorded;
        if (recorded)
            rg_trial_fail(&w.t, "%s, but the call is not refused", ways[way].text);
        else if (!rg_guarded_intact(&w.extra))
            rg_trial_fail(&w.t, "%s: a refused call wrote to memory", ways[way].text);
        else
            rg_trial_check_guards(&w.t);
    }
end:
    rg_state_destroy(w.state);
    rg_guarded_free(&w.extra);
    rg_trial_free_tensors(&w.t);
    rg_kernel_destroy(w.t.kernel);
}

/* A field beyond its bounds, as a caller could have it. */
static void check_bounds(rg_checker *checker, const rg_values *values, rg_random *random,
                         int64_t *refused)
{
    const rg_op *op = values->test->op;
    _Alignas(16) char desc[RG_MAX_DESC];
    rg_check_trial t = { .checker = checker, .v = values };
    for (const rg_field *field = op->desc.fields; field->name != NULL; field++) {
        const bool whole = field->type == RG_FIELD_I32 || field->type == RG_FIELD_I64;
        const bool number = (whole || field->type == RG_FIELD_F64) && field->present == 0;
        const double value = rg_random_uniform(random) < 0.5 ? field->low - 1 : field->high * 2 + 1;
        memcpy(desc, values->desc, sizeof desc);
        char *at = desc + field->offset;
        if (!number || field->count != 0 || (field->low == 0 && field->high == 0) ||
            (value >= field->low && value <= field->high))
            continue;
        if (field->type == RG_FIELD_I32 && value > -0x1p31 && value < 0x1p31)
            *(int32_t *)(void *)at = (int32_t)value;
        else if (field->type == RG_FIELD_I64 && value > -0x1p62 && value < 0x1p62)
            *(int64_t *)(void *)at = (int64_t)value;
        else if (field->type == RG_FIELD_F64)
            *(double *)(void *)at = value;
        else
            continue;
        rg_kernel *kernel = NULL;
        checker->comparisons++;
        if (rg_kernel_create(checker->device, op, desc, &kernel) == RG_OK || kernel != NULL)
            rg_trial_fail(&t, "%s is %g, which is out of range, but is not refused", field->name,
                          value);
        *refused += kernel == NULL;
        rg_kernel_destroy(kernel);
    }
}

void rg_random_refuse(rg_checker *checker, const rg_values *values, uint64_t seed, int64_t *refused)
{
    enum { TRIED = 4 };
    rg_random random = rg_random_seed(seed, "refuse");
    if (rg_op_fills_state(values->test->op, values->desc))
        return;
    for (int i = 0; i < TRIED; i++)
        check_way(checker, values, (int)(rg_random_uniform(&random) * WAYS), seed, refused);
    check_bounds(checker, values, &random, refused);
}
