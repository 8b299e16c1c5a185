/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Kernels that run in phases over parts of a batch, with one state: the results are those of the
 * definition, as in one call. */
#include "cli/check_trial.h"
#include "core/shape.h"
#include "runtime/objects.h"

enum { MOST_PHASES = 4, PARTS = 2 };

/* The kernels of all phases, the state that they share, and the parts of the tensors that have an
 * entry for each image: x, y, dy and dx of input or output 0. */
typedef struct phases {
    rg_kernel *kernels[MOST_PHASES];
    int32_t count;
    rg_state *state;
    rg_tensor *x[PARTS], *y[PARTS], *dy[PARTS], *dx[PARTS];
    int32_t parts;
} phases;

static rg_status make_kernels(const rg_check_trial *t, phases *p)
{
    _Alignas(16) char desc[RG_MAX_DESC];
    const rg_op_test *test = t->v->test;
    for (; p->count < MOST_PHASES; p->count++) {
        memcpy(desc, t->v->desc, test->op->desc.size);
        if (!test->phase(desc, p->count))
            break;
        RG_TRY(rg_kernel_create(t->checker->device, test->op, desc, &p->kernels[p->count]));
    }
    return RG_OK;
}

static rg_status slice(const rg_guarded *from, int64_t begin, int64_t end, rg_tensor **part)
{
    int64_t start[RG_MAX_RANK] = { begin }, length[RG_MAX_RANK];
    if (from->tensor == NULL)
        return RG_OK;
    memcpy(length, from->desc.dims, sizeof length);
    length[0] = end - begin;
    return rg_tensor_slice(from->tensor, start, length, NULL, part);
}

static rg_status make_parts(rg_check_trial *t, phases *p)
{
    const int64_t images = t->v->x_desc[0].dims[0];
    rg_tensor *x[RG_MAX_INPUTS];
    p->parts = images >= PARTS && t->v->x_desc[0].rank > 1 ? PARTS : 1;
    for (int32_t n = 0; n < p->parts; n++) {
        const int64_t begin = images * n / p->parts, end = images * (n + 1) / p->parts;
        RG_TRY(slice(&t->x[0], begin, end, &p->x[n]));
        RG_TRY(slice(&t->y[0], begin, end, &p->y[n]));
        RG_TRY(slice(&t->dy[0], begin, end, &p->dy[n]));
        RG_TRY(slice(&t->dx[0], begin, end, &p->dx[n]));
    }
    rg_trial_tensors_of(t->x, t->v->inputs, x);
    return rg_state_create(p->kernels[0], x, &p->state);
}

static void free_phases(phases *p)
{
    for (int32_t n = 0; n < PARTS; n++) {
        rg_tensor_destroy(p->x[n]);
        rg_tensor_destroy(p->y[n]);
        rg_tensor_destroy(p->dy[n]);
        rg_tensor_destroy(p->dx[n]);
    }
    for (int32_t k = 0; k < p->count; k++)
        rg_kernel_destroy(p->kernels[k]);
    rg_state_destroy(p->state);
}

/* One phase over all parts: parameters are the same for all; their gradients are those of the whole
 * batch, and the first part writes them. */
static rg_status record_phase(rg_check_trial *t, const phases *p, int32_t k, bool gradient,
                              rg_commands *commands)
{
    const bool fills = rg_op_fills_state(t->v->test->op, p->kernels[k]->desc);
    for (int32_t n = 0; n < p->parts; n++) {
        rg_tensor *x[RG_MAX_INPUTS], *dx[RG_MAX_INPUTS], *dy[RG_MAX_OUTPUTS] = { p->dy[n] };
        rg_trial_tensors_of(t->x, t->v->inputs, x);
        rg_trial_tensors_of(t->dx, t->v->inputs, dx);
        x[0] = p->x[n];
        dx[0] = p->dx[n];
        for (int32_t i = 0; i < t->v->inputs; i++)
            dx[i] = fills || (i > 0 && n > 0) ? NULL : dx[i];
        if (gradient)
            RG_TRY(rg_kernel_gradient(p->kernels[k], commands, dy, x, NULL, p->state, dx, 0));
        else
            RG_TRY(
                rg_kernel_forward(p->kernels[k], commands, x, fills ? NULL : &p->y[n], p->state));
    }
    return RG_OK;
}

static rg_status run_phases(rg_check_trial *t, const phases *p, bool gradient)
{
    rg_commands *commands;
    RG_TRY(rg_trial_move(t, true));
    RG_TRY(rg_commands_create(t->checker->queue, &commands));
    rg_status status = RG_OK;
    for (int32_t k = 0; k < p->count && status == RG_OK; k++)
        status = record_phase(t, p, k, gradient, commands);
    RG_TRY(rg_commands_finish(commands, status));
    return rg_trial_move(t, false);
}

static void check_results(rg_check_trial *t, bool gradient)
{
    const rg_values *v = t->v;
    const int32_t count = gradient ? v->inputs : v->outputs;
    for (int32_t i = 0; i < count; i++) {
        const uint32_t unsure = gradient ? v->unsure_dx : v->unsure_y;
        const double *want = gradient ? v->want_dx[i] : v->want_y[i];
        rg_trial_compare(t, gradient ? "dx in phases" : "y in phases",
                         gradient ? &t->dx[i] : &t->y[i], unsure >> i & 1 ? NULL : want,
                         rg_tolerance(gradient ? v->dtype : v->y_desc[i].dtype));
    }
    rg_trial_check_guards(t);
}

void rg_trial_check_phases(rg_check_trial *t, bool differentiate)
{
    phases p = { .count = 0 };
    if (t->v->test->phase == NULL || t->v->outputs != 1)
        return;
    rg_status status = make_kernels(t, &p);
    if (status == RG_OK && p.count > 0)
        status = make_parts(t, &p);
    for (int gradient = 0; gradient <= (differentiate ? 1 : 0) && p.count > 0; gradient++) {
        rg_guarded *results = gradient ? t->dx : t->y;
        const int32_t count = gradient ? t->v->inputs : t->v->outputs;
        rg_trial_refill(t);
        for (int32_t i = 0; i < count && !gradient; i++)
            rg_guarded_fill(&t->y[i], NULL);
        rg_trial_expect_written(results, count, true);
        if (status == RG_OK)
            status = run_phases(t, &p, gradient);
        if (rg_trial_ok(t, status, gradient ? "gradient in phases" : "forward in phases"))
            check_results(t, gradient);
        rg_trial_expect_written(results, count, false);
    }
    free_phases(&p);
}
