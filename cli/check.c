/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The check of one case. Every tensor has guard bytes around it in memory and in its gaps;
 * nothing but the elements of results may change. */
#include "cli/check.h"
#include "cli/check_trial.h"
#include "core/shape.h"

/* Refuses a gradient that is (almost) 0 everywhere: it would agree with wrong results. */
static bool is_trivial(const rg_values *v, double share)
{
    bool trivial = false;
    const double largest = rg_trial_largest_of(v->dy[0], rg_shape_count(&v->y_desc[0]));
    for (int32_t i = 0; i < v->inputs; i++)
        trivial |=
            v->want_dx[i] != NULL &&
            rg_trial_largest_of(v->want_dx[i], rg_shape_count(&v->x_desc[i])) < share * largest;
    return trivial;
}

/* ---- one layout, one case ---- */

/* dx[i] is as x[i] is, or f32 where the case asks for that. */
static rg_tensor_desc gradient_desc(const rg_values *v, int32_t i)
{
    rg_tensor_desc desc = v->x_desc[i];
    const bool wide = v->c->flags & RG_CASE_WIDE && v->test->op->wide_gradients >> i & 1;
    if (wide && (desc.dtype == RG_F16 || desc.dtype == RG_BF16))
        desc.dtype = RG_F32;
    return desc;
}

/* One tensor: in an arrangement, or in a view where the trial has them. */
static rg_status make_tensor(rg_check_trial *t, const rg_tensor_desc *desc,
                             rg_arrangement arrangement, int number, uint32_t repeat,
                             const double *values, rg_guarded *guarded)
{
    rg_device *device = t->checker->device;
    if (t->views == NULL)
        return rg_guarded_make(device, desc, arrangement, number, values, guarded);
    int64_t shift;
    const rg_tensor_desc view = rg_view_of(t->views, number, desc, repeat, &shift);
    return rg_guarded_make_view(device, &view, shift, values, guarded);
}

rg_status rg_trial_make_tensors(rg_check_trial *t, rg_arrangement arrangement)
{
    const rg_values *v = t->v;
    const rg_arrangement results = arrangement == RG_EXPANDED ? RG_DENSE : arrangement;
    const uint32_t repeat = v->c->dy_fill.repeat;
    int number = 0;
    for (int32_t i = 0; i < v->inputs; i++) {
        RG_TRY(make_tensor(t, &v->x_desc[i], arrangement, number++, v->c->x_fill[i].repeat, v->x[i],
                           &t->x[i]));
        const rg_tensor_desc dx = gradient_desc(v, i);
        if (v->want_dx[i] != NULL)
            RG_TRY(make_tensor(t, &dx, results, number, 0, NULL, &t->dx[i]));
        number++;
    }
    for (int32_t i = 0; i < v->outputs; i++) {
        RG_TRY(make_tensor(t, &v->y_desc[i], results, number++, 0, v->y[i], &t->y[i]));
        RG_TRY(make_tensor(t, &v->y_desc[i], arrangement, number++, repeat, v->dy[i], &t->dy[i]));
    }
    return RG_OK;
}

void rg_trial_free_tensors(rg_check_trial *t)
{
    for (int32_t i = 0; i < RG_MAX_INPUTS; i++) {
        rg_guarded_free(&t->x[i]);
        rg_guarded_free(&t->dx[i]);
    }
    for (int32_t i = 0; i < RG_MAX_OUTPUTS; i++) {
        rg_guarded_free(&t->y[i]);
        rg_guarded_free(&t->dy[i]);
    }
}

static void check_layout(rg_check_trial *t, rg_arrangement arrangement, rg_bits *bits)
{
    const rg_values *v = t->v;
    const uint32_t flags = v->c->flags;
    t->layout_name = rg_arrangement_name(arrangement);
    rg_state *state = NULL;
    if (!rg_trial_ok(t, rg_trial_make_tensors(t, arrangement), "tensors"))
        goto end;
    const bool needs_state =
        v->test->op->gradient != NULL && v->test->op->reads(v->desc) & RG_READS_STATE;
    if (needs_state || arrangement == RG_DENSE) {
        rg_tensor *x[RG_MAX_INPUTS];
        rg_trial_tensors_of(t->x, v->inputs, x);
        if (!rg_trial_ok(t, rg_state_create(t->kernel, x, &state), "state"))
            goto end;
    }
    if (!(flags & RG_CASE_FREE_Y) || needs_state)
        rg_trial_check_forward(t, state, bits);
    bool differentiate = !(flags & RG_CASE_FORWARD) && v->test->op->gradient != NULL;
    const bool zero = flags & (RG_CASE_ZERO | RG_CASE_SPECIAL);
    if (differentiate && arrangement == RG_EXPANDED && is_trivial(v, 1e-4))
        differentiate = false; /* expanded along the axis of the op, it is 0 but for rounding */
    if (differentiate && !zero && is_trivial(v, 1e-6))
        rg_trial_fail(t, "the gradient is 0 everywhere, so the case tests nothing");
    if (differentiate) {
        rg_trial_check_gradient(t, state, bits);
        rg_trial_check_alone(t, state);
        rg_trial_check_add(t, state, bits);
    }
    if (arrangement != RG_EXPANDED)
        rg_trial_check_phases(t, differentiate);
    if (arrangement != RG_EXPANDED) {
        const rg_op *op = v->test->op;
        rg_trial_check_aliases(t, op->aliases, needs_state ? state : NULL, bits);
        if (op->aliases_of != NULL)
            rg_trial_check_aliases(t, op->aliases_of(v->desc), needs_state ? state : NULL, bits);
        rg_trial_check_in_place(t, op->aliases_of != NULL ? op->aliases_of(v->desc) : op->aliases,
                                needs_state ? state : NULL, bits);
    }
    const bool smooth = differentiate && !(flags & (RG_CASE_SPECIAL | RG_CASE_FREE_Y));
    if (smooth && arrangement == RG_DENSE && v->dtype == RG_F64 &&
        rg_shape_count(&v->x_desc[0]) <= 20000 && !(flags & RG_CASE_LONG))
        rg_trial_check_differences(t);
end:
    rg_state_destroy(state);
    rg_trial_free_tensors(t);
    memset(t->x, 0, sizeof t->x);
    memset(t->y, 0, sizeof t->y);
    memset(t->dy, 0, sizeof t->dy);
    memset(t->dx, 0, sizeof t->dx);
    memset(t->beside, 0, sizeof t->beside);
}

/* A kernel copied from another device gives the same results as one created here. */
static rg_status copy_kernel(rg_device *device, const rg_values *v, rg_kernel **kernel)
{
    rg_device_options options = rg_device_options_default();
    options.threads = 1;
    rg_device *other;
    RG_TRY(rg_device_create("cpu", &options, &other));
    rg_kernel *made = NULL;
    rg_status status = rg_kernel_create(other, v->test->op, v->desc, &made);
    if (status == RG_OK)
        status = rg_kernel_copy(made, device, kernel);
    rg_kernel_destroy(made);
    rg_device_destroy(other);
    return status;
}

static bool has_units(const rg_tensor_desc descs[], int32_t count)
{
    for (int32_t i = 0; i < count; i++) {
        for (int32_t d = 0; d < descs[i].rank; d++) {
            if (descs[i].dims[d] == 1)
                return true;
        }
    }
    return false;
}

void rg_check_values(rg_checker *checker, const rg_values *values, bool expanded, rg_bits *bits)
{
    rg_check_trial t = { .checker = checker, .v = values, .layout_name = "" };
    rg_device *device = checker->device;
    const rg_status status =
        expanded ? copy_kernel(device, values, &t.kernel)
                 : rg_kernel_create(device, values->test->op, values->desc, &t.kernel);
    if (!rg_trial_ok(&t, status, "kernel"))
        return;
    const int64_t count = rg_shape_count(&values->x_desc[0]);
    const bool is_short = !(values->c->flags & RG_CASE_LONG);
    const bool all_layouts = count <= 20000 && is_short;
    const bool nchw = count <= 2000000 && is_short && values->c->flags & RG_CASE_NCHW;
    if (expanded) {
        check_layout(&t, RG_EXPANDED, bits);
    } else {
        check_layout(&t, RG_DENSE, bits);
        t.hint = RG_RESULTS_READ_LATER;
        const bool units =
            has_units(values->x_desc, values->inputs) || has_units(values->y_desc, values->outputs);
        for (int a = RG_DENSE; a < RG_EXPANDED && all_layouts; a++) {
            if (a != RG_UNITS || units)
                check_layout(&t, (rg_arrangement)a, bits);
        }
        if (nchw) /* large images are taken in parts */
            check_layout(&t, RG_NCHW, bits);
    }
    rg_kernel_destroy(t.kernel);
}

/* The forms of one call that a random trial asks for. */
static void check_forms(rg_check_trial *t, uint32_t forms, rg_state *state, bool needs_state,
                        rg_bits *bits)
{
    const rg_values *v = t->v;
    const rg_op *op = v->test->op;
    rg_state *needed = needs_state ? state : NULL;
    rg_trial_check_forward(t, state, bits);
    const bool differentiate =
        forms & RG_FORM_GRADIENT && op->gradient != NULL && !(v->c->flags & RG_CASE_FORWARD);
    if (differentiate)
        rg_trial_check_gradient(t, state, bits);
    if (differentiate && forms & RG_FORM_ALONE)
        rg_trial_check_alone(t, state);
    if (differentiate && forms & RG_FORM_ADD)
        rg_trial_check_add(t, state, bits);
    if (forms & RG_FORM_ALIAS) {
        const rg_alias *of_desc = op->aliases_of != NULL ? op->aliases_of(v->desc) : NULL;
        const rg_alias *pairs[] = { op->aliases, of_desc };
        for (int k = 0; k < 2; k++) {
            /* a state is written by forward: what a gradient reads of it must be there */
            rg_trial_check_aliases(t, pairs[k], needed, bits);
            rg_trial_check_in_place(t, pairs[k], needed, bits);
        }
    }
    if (differentiate && forms & RG_FORM_DIFFERENCES && v->dtype == RG_F64 &&
        !(v->c->flags & (RG_CASE_SPECIAL | RG_CASE_NO_DIFFERENCES)))
        rg_trial_check_differences(t);
}

void rg_check_view(rg_checker *checker, const rg_values *values, const rg_views *views,
                   uint32_t forms, rg_bits *bits)
{
    rg_check_trial t = { .checker = checker, .v = values, .layout_name = "view", .views = views };
    const rg_op *op = values->test->op;
    t.hint = forms & RG_FORM_HINT ? RG_RESULTS_READ_LATER : RG_RESULTS_BY_SIZE;
    const rg_status status = forms & RG_FORM_COPY
                                 ? copy_kernel(checker->device, values, &t.kernel)
                                 : rg_kernel_create(checker->device, op, values->desc, &t.kernel);
    rg_state *state = NULL;
    const bool needs_state = op->gradient != NULL && op->reads(values->desc) & RG_READS_STATE;
    if (!rg_trial_ok(&t, status, "kernel") ||
        !rg_trial_ok(&t, rg_trial_make_tensors(&t, RG_DENSE), "tensors"))
        goto end;
    if (needs_state || forms & RG_FORM_STATE) {
        rg_tensor *x[RG_MAX_INPUTS];
        rg_trial_tensors_of(t.x, values->inputs, x);
        if (!rg_trial_ok(&t, rg_state_create(t.kernel, x, &state), "state"))
            goto end;
    }
    check_forms(&t, forms, state, needs_state, bits);
end:
    rg_state_destroy(state);
    rg_trial_free_tensors(&t);
    rg_kernel_destroy(t.kernel);
}
