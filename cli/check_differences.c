/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The definition of a gradient against finite differences of the forward kernel. */
#include "cli/check_trial.h"
#include "core/shape.h"

#include <math.h>

/* sum of dy times y, after a forward pass */
static double loss(const rg_check_trial *t)
{
    long double sum = 0;
    const int32_t gradients = rg_op_gradients(t->v->test->op, t->v->desc);
    for (int32_t i = 0; i < gradients; i++)
        for (int64_t k = 0; k < rg_shape_count(&t->v->y_desc[i]); k++)
            sum += (long double)t->v->dy[i][k] * (long double)rg_guarded_get(&t->y[i], k);
    return (double)sum;
}

/* Without a look at the guards: a GPU moves the changed input and the outputs alone. */
static rg_status run_forward(rg_check_trial *t)
{
    RG_TRY(rg_trial_run(t, false, NULL, 0));
    for (int32_t i = 0; i < t->v->outputs; i++)
        RG_TRY(rg_guarded_download(&t->y[i]));
    return RG_OK;
}

static bool loss_at(rg_check_trial *t, int32_t input, int64_t k, double value, double *result)
{
    rg_guarded_set(&t->x[input], k, value);
    if (!rg_trial_ok(t, run_forward(t), "forward"))
        return false;
    *result = loss(t);
    return true;
}

/* In a random trial: whether a step of twice the length gives another slope. Then the function
 * curves too much, or its value is too large compared with its slope, for finite differences.
 * `bend` is the second difference: four times as large where a function curves, twice at a kink. */
static bool is_doubtful(rg_check_trial *t, int32_t i, int64_t k, double slope, double bend,
                        double largest)
{
    const double x = t->v->x[i][k], step = 2e-5;
    double below, here, above;
    if (t->views == NULL)
        return false;
    if (!loss_at(t, i, k, x - step, &below) || !loss_at(t, i, k, x + step, &above) ||
        !loss_at(t, i, k, x, &here))
        return true;
    const double twice = (above - here) - (here - below);
    if (fabs(bend) > 1e-12 * largest && !(fabs(twice / bend - 4) < 0.5))
        return true;
    return !(fabs((above - below) / (2 * step) - slope) <= 2e-7 * largest) ||
           fabs(here) * 1e-10 > 1e-7 * largest;
}

/* Central differences at some elements. Where the slopes on both sides differ there is a kink, and
 * the element is skipped; at most half may be. */
void rg_trial_check_differences(rg_check_trial *t)
{
    enum { SAMPLES = 24 };
    const double step = 1e-5;
    const rg_values *v = t->v;
    rg_trial_refill(t);
    rg_random random = rg_random_seed(t->checker->seed, "differences");
    for (int32_t i = 0; i < v->inputs; i++) {
        if (v->want_dx[i] == NULL || v->unsure_dx >> i & 1 || t->x[i].memory == NULL ||
            rg_shape_overlaps_itself(&t->x[i].desc))
            continue;
        const int64_t count = rg_shape_count(&v->x_desc[i]);
        const double largest = rg_trial_largest_of(v->want_dx[i], count);
        int skipped = 0, done = 0;
        for (; done < (t->views == NULL ? SAMPLES : 6) && done < count; done++) {
            const int64_t k = (int64_t)(rg_random_uniform(&random) * (double)count);
            const double x = v->x[i][k];
            double below, here, above;
            if (!loss_at(t, i, k, x - step, &below) || !loss_at(t, i, k, x + step, &above) ||
                !loss_at(t, i, k, x, &here))
                return;
            const double slope = (above - below) / (2 * step);
            if (fabs((above - here) - (here - below)) > 1e-3 * step * (largest + fabs(slope)) ||
                is_doubtful(t, i, k, slope, (above - here) - (here - below), largest)) {
                skipped++;
                continue;
            }
            t->checker->comparisons++;
            if (!(fabs(slope - v->want_dx[i][k]) <= 1e-6 * largest))
                rg_trial_fail(t, "d%s[%lld] is %.12g by definition, %.12g by finite differences",
                              rg_op_input_names(v->test->op, v->desc)[i], (long long)k,
                              v->want_dx[i][k], slope);
        }
        if (skipped > done / 2 && t->views == NULL)
            rg_trial_fail(t,
                          "%d of %d finite differences cross a point where the function is not "
                          "differentiable",
                          skipped, done);
    }
}
