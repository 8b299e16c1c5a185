/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The forms of a call: forward, gradient, each gradient alone, added, in place. */
#include "cli/check_trial.h"
#include "core/shape.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- what is checked ---- */

void rg_trial_check_forward(rg_check_trial *t, rg_state *state, rg_bits *bits)
{
    const rg_values *v = t->v;
    rg_trial_refill(t);
    for (int32_t i = 0; i < v->outputs; i++)
        rg_guarded_fill(&t->y[i], NULL);
    rg_trial_expect_written(t->y, v->outputs, true);
    if (rg_trial_ok(t, rg_trial_run_whole(t, false, state, 0), "forward")) {
        for (int32_t i = 0; i < v->outputs; i++)
            rg_trial_compare(t, rg_op_output_names(v->test->op, v->desc)[i], &t->y[i],
                             v->unsure_y >> i & 1 ? NULL : v->want_y[i],
                             rg_tolerance(v->y_desc[i].dtype));
        rg_trial_check_guards(t);
        rg_trial_compare_bits(t, "forward", &bits->y,
                              rg_trial_hash_results(t->y, v->outputs, NULL));
        if (v->c->golden != NULL && v->c->flags & RG_CASE_FORWARD)
            rg_trial_compare(t, "golden y", &t->y[0], v->c->golden,
                             fmax(1e-6, rg_tolerance(v->dtype)));
    }
    rg_trial_expect_written(t->y, v->outputs, false);
}

/* Of a gradient. One in f32 beside 16 bits has all of f32, except that libraries of a GPU may round
 * it on the way. */
static double gradient_tolerance(const rg_check_trial *t, int32_t i)
{
    const bool cpu = strcmp(rg_device_name(t->checker->device), "cpu") == 0;
    const bool wide = t->v->c->flags & RG_CASE_WIDE && t->dx[i].memory != NULL && cpu;
    return rg_tolerance(wide ? t->dx[i].desc.dtype : t->v->dtype);
}

void rg_trial_check_gradient(rg_check_trial *t, rg_state *state, rg_bits *bits)
{
    const rg_values *v = t->v;
    rg_trial_refill(t);
    rg_trial_expect_written(t->dx, v->inputs, true);
    if (rg_trial_ok(t, rg_trial_run_whole(t, true, state, 0), "gradient")) {
        for (int32_t i = 0; i < v->inputs; i++)
            rg_trial_compare(t, "dx", &t->dx[i], v->unsure_dx >> i & 1 ? NULL : v->want_dx[i],
                             gradient_tolerance(t, i));
        rg_trial_check_guards(t);
        rg_trial_compare_bits(t, "gradient", &bits->dx,
                              rg_trial_hash_results(t->dx, v->inputs, t->beside));
        if (v->c->golden != NULL)
            rg_trial_compare(t, "golden dx", &t->dx[0], v->c->golden,
                             fmax(1e-6, rg_tolerance(v->dtype)));
    }
    rg_trial_expect_written(t->dx, v->inputs, false);
}

/* Each dx computed alone has the same bits as together with the others. */
void rg_trial_check_alone(rg_check_trial *t, rg_state *state)
{
    const rg_values *v = t->v;
    int count = 0;
    for (int32_t i = 0; i < v->inputs; i++)
        count += v->want_dx[i] != NULL && t->beside[i] != 0;
    t->alone = true;
    for (int32_t i = 0; i < v->inputs && count > 1; i++) {
        if (v->want_dx[i] == NULL)
            continue;
        t->wanted = i;
        rg_trial_refill(t);
        rg_trial_expect_written(&t->dx[i], 1, true);
        if (rg_trial_ok(t, rg_trial_run_whole(t, true, state, 0), "gradient alone")) {
            rg_trial_compare_bits(t, "gradient alone", &t->beside[i], rg_guarded_hash(&t->dx[i]));
            rg_trial_check_guards(t);
        }
        rg_trial_expect_written(&t->dx[i], 1, false);
    }
    t->alone = false;
}

/* Whether the addends are not much larger than the sums. The cases are chosen that way. */
static bool is_sum_sure(const rg_check_trial *t, int32_t i, const double *want)
{
    const rg_values *v = t->v;
    if (t->views == NULL || want == NULL)
        return true;
    const int64_t count = rg_shape_count(&v->x_desc[i]);
    const double sums = rg_trial_largest_of(want, count);
    return !(v->unsure_dx >> i & 1) && sums >= 1 &&
           2 * sums >= rg_trial_largest_of(v->want_dx[i], count) &&
           (v->dtype != RG_F16 || sums < 6e4);
}

/* Of a sum, relative to its largest element. The gradient is within its tolerance of its own
 * largest element, which old values may cancel: in random trials the error allowed is a share of
 * the larger of the two. */
static double sum_tolerance(const rg_check_trial *t, int32_t i, const double *want)
{
    if (t->views == NULL || want == NULL)
        return gradient_tolerance(t, i);
    const int64_t count = rg_shape_count(&t->v->x_desc[i]);
    const double sums = rg_trial_largest_of(want, count);
    const double gradients = rg_trial_largest_of(t->v->want_dx[i], count);
    return gradient_tolerance(t, i) * (gradients > sums && sums > 0 ? gradients / sums : 1);
}

/* What dx holds before it is added to: numbers that every dtype holds exactly. */
static double old_value(int64_t k)
{
    return (double)(k % 17 - 8) / 4;
}

static void fill_old_values(rg_check_trial *t, int32_t i)
{
    const int64_t count = rg_shape_count(&t->v->x_desc[i]);
    double *old = calloc((size_t)count + 1, sizeof(double));
    for (int64_t k = 0; old != NULL && k < count; k++)
        old[k] = old_value(k);
    rg_guarded_fill(&t->dx[i], old);
    free(old);
}

/* Some gradients are added, others stored: each must have the same bits as when all gradients
 * were added, or all stored. */
static void check_mixed(rg_check_trial *t, rg_state *state, uint64_t add, uint64_t added[])
{
    const rg_values *v = t->v;
    rg_trial_refill(t);
    rg_trial_expect_written(t->dx, v->inputs, true);
    for (int32_t i = 0; i < v->inputs; i++)
        if (add >> i & 1)
            fill_old_values(t, i);
    if (rg_trial_ok(t, rg_trial_run_whole(t, true, state, add), "some gradients added")) {
        for (int32_t i = 0; i < v->inputs; i++)
            if (v->want_dx[i] != NULL && t->beside[i] != 0)
                rg_trial_compare_bits(t, "some gradients added",
                                      add >> i & 1 ? &added[i] : &t->beside[i],
                                      rg_guarded_hash(&t->dx[i]));
        rg_trial_check_guards(t);
    }
    rg_trial_expect_written(t->dx, v->inputs, false);
}

/* dx += gradient, of all inputs, then of every other one. */
void rg_trial_check_add(rg_check_trial *t, rg_state *state, rg_bits *bits)
{
    const rg_values *v = t->v;
    rg_trial_refill(t);
    double *want[RG_MAX_INPUTS] = { NULL };
    uint64_t add = 0, added[RG_MAX_INPUTS] = { 0 };
    for (int32_t i = 0; i < v->inputs; i++) {
        const int64_t count = rg_shape_count(&v->x_desc[i]);
        if (v->want_dx[i] == NULL)
            continue;
        add |= UINT64_C(1) << i;
        want[i] = calloc((size_t)count + 1, sizeof(double));
        fill_old_values(t, i);
        for (int64_t k = 0; want[i] != NULL && k < count; k++)
            want[i][k] = old_value(k) + v->want_dx[i][k];
    }
    rg_trial_expect_written(t->dx, v->inputs, true);
    const bool ok = rg_trial_ok(t, rg_trial_run_whole(t, true, state, add), "gradient added");
    if (ok) {
        for (int32_t i = 0; i < v->inputs; i++)
            rg_trial_compare(t, "added dx", &t->dx[i], is_sum_sure(t, i, want[i]) ? want[i] : NULL,
                             sum_tolerance(t, i, want[i]));
        rg_trial_check_guards(t);
        rg_trial_compare_bits(t, "gradient added", &bits->added,
                              rg_trial_hash_results(t->dx, v->inputs, added));
    }
    rg_trial_expect_written(t->dx, v->inputs, false);
    for (int32_t i = 0; i < v->inputs; i++)
        free(want[i]);
    const uint64_t every_other = UINT64_C(0x5555555555555555);
    for (int k = 0; ok && k < 2 && (add & (add - 1)) != 0; k++)
        check_mixed(t, state, add & every_other << k, added);
}

/* The pairs that the op lists: the result takes the place of what is read, and gets the same
 * bits. */
static void check_alias(rg_check_trial *t, rg_alias pair, rg_state *state, rg_bits *bits)
{
    static const char *const roles[] = {
        [RG_ROLE_X] = "x", [RG_ROLE_Y] = "y", [RG_ROLE_DY] = "dy", [RG_ROLE_DX] = "dx"
    };
    rg_guarded *const tensors[] = {
        [RG_ROLE_X] = t->x, [RG_ROLE_Y] = t->y, [RG_ROLE_DY] = t->dy, [RG_ROLE_DX] = t->dx
    };
    const int read = pair >> 12, i = pair >> 8 & 15, written = pair >> 4 & 15, k = pair & 15;
    const rg_values *v = t->v;
    const bool gradient = written == RG_ROLE_DX;
    char name[64];
    if (v->c->flags & (gradient ? RG_CASE_FORWARD : RG_CASE_FREE_Y))
        return;
    snprintf(name, sizeof name, "%s%d=%s%d", roles[read], i, roles[written], k);
    rg_guarded *from = &tensors[read][i], *to = &tensors[written][k];
    if (from->memory == NULL || to->memory == NULL || rg_shape_overlaps_itself(&from->desc))
        return;
    if (!rg_shape_same_dims(&from->desc, &to->desc) || from->desc.dtype != to->desc.dtype)
        return; /* of other shapes in this case: they cannot be one tensor */
    rg_trial_refill(t);
    rg_guarded *results = gradient ? t->dx : t->y;
    const int32_t count = gradient ? v->inputs : v->outputs;
    const rg_guarded own = *to;
    *to = *from;
    rg_trial_expect_written(results, count, true); /* the others too */
    from->is_result = true;
    if (rg_trial_ok(t, rg_trial_run_whole(t, gradient, state, 0), name)) {
        rg_trial_compare_bits(t, name, gradient ? &bits->dx : &bits->y,
                              rg_trial_hash_results(results, count, NULL));
        rg_trial_check_guards(t);
    }
    rg_trial_expect_written(results, count, false);
    from->is_result = false;
    *to = own;
}

void rg_trial_check_aliases(rg_check_trial *t, const rg_alias *pairs, rg_state *state,
                            rg_bits *bits)
{
    for (const rg_alias *pair = pairs; pair != NULL && *pair != 0; pair++)
        check_alias(t, *pair, state, bits);
}

/* All pairs of the forward pass at once, as an optimizer is used. */
void rg_trial_check_in_place(rg_check_trial *t, const rg_alias *pairs, rg_state *state,
                             rg_bits *bits)
{
    const rg_values *v = t->v;
    rg_guarded own[RG_MAX_OUTPUTS];
    int count = 0;
    if (v->c->flags & RG_CASE_FREE_Y)
        return;
    rg_trial_refill(t);
    memcpy(own, t->y, sizeof own);
    rg_trial_expect_written(t->y, v->outputs, true);
    for (const rg_alias *pair = pairs; pair != NULL && *pair != 0; pair++) {
        const int i = *pair >> 8 & 15, k = *pair & 15;
        rg_guarded *from = &t->x[i], *to = &t->y[k];
        if (*pair != RG_X_AS_Y(i, k) || i >= v->inputs || k >= v->outputs ||
            !rg_shape_same_dims(&from->desc, &to->desc) || from->desc.dtype != to->desc.dtype ||
            rg_shape_overlaps_itself(&from->desc))
            continue;
        from->is_result = true;
        *to = *from;
        count++;
    }
    if (count > 1 && rg_trial_ok(t, rg_trial_run_whole(t, false, state, 0), "all in place")) {
        rg_trial_compare_bits(t, "all in place", &bits->y,
                              rg_trial_hash_results(t->y, v->outputs, NULL));
        rg_trial_check_guards(t);
    }
    memcpy(t->y, own, sizeof own);
    rg_trial_expect_written(t->x, v->inputs, false);
    rg_trial_expect_written(t->y, v->outputs, false);
}
