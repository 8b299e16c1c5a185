/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* One run of a kernel: reporting, comparing, running. */
#include "cli/check_trial.h"
#include "core/dtype.h"
#include "core/shape.h"

#include <math.h>
#include <stdarg.h>

/* ---- reporting ---- */

void rg_trial_fail(const rg_check_trial *t, const char *format, ...)
{
    const rg_values *v = t->v;
    const char *op = v->test->op->name;
    t->checker->failures++;
    if (t->checker->said != NULL) {
        const size_t used = strlen(t->checker->said);
        va_list sentence;
        va_start(sentence, format);
        if (used == 0)
            vsnprintf(t->checker->said, RG_SAID, format, sentence);
        va_end(sentence);
        return;
    }
    FILE *to = t->checker->told;
    fprintf(to, "FAIL %s %s %s %s: ", op, v->c->name, rg_dtype_name(v->dtype), t->layout_name);
    va_list arguments;
    va_start(arguments, format);
    vfprintf(to, format, arguments);
    va_end(arguments);
    fprintf(to, "\n     retrograde check %s --case %s --dtype %s --device %s%s --seed %llu\n", op,
            v->c->name, rg_dtype_name(v->dtype), rg_device_name(t->checker->device),
            t->checker->options, (unsigned long long)t->checker->seed);
}

bool rg_trial_ok(const rg_check_trial *t, rg_status status, const char *what)
{
    t->checker->comparisons++;
    if (status == RG_OK)
        return true;
    rg_trial_fail(t, "%s: %s", what, rg_error_text());
    return false;
}

/* ---- comparing ---- */

/* Relative to the largest element of the result. */
double rg_tolerance(rg_dtype dtype)
{
    static const double tolerances[] = {
        [RG_F32] = 1e-5, [RG_F64] = 1e-12, [RG_F16] = 2e-3, [RG_BF16] = 1e-2
    };
    return rg_dtype_is_data(dtype) ? tolerances[dtype] : 0;
}

double rg_trial_largest_of(const double *data, int64_t count)
{
    double largest = 0;
    for (int64_t i = 0; i < count; i++)
        largest = isfinite(data[i]) && fabs(data[i]) > largest ? fabs(data[i]) : largest;
    return largest;
}

/* The result of the definition, within the range of the dtype. */
static double reachable(double want, rg_dtype dtype)
{
    return dtype == RG_F16 && fabs(want) >= 65520 ? copysign((double)INFINITY, want) : want;
}

/* Numbers by distance, NaN with NaN, infinities with themselves. */
void rg_trial_compare(const rg_check_trial *t, const char *what, const rg_guarded *got,
                      const double *want, double tolerance)
{
    if (want == NULL)
        return; /* an input that has no gradient */
    const int64_t count = rg_shape_count(&got->desc);
    const double allowed = tolerance * rg_trial_largest_of(want, count);
    t->checker->comparisons++;
    double worst = 0;
    int64_t where = -1;
    for (int64_t i = 0; i < count; i++) {
        const double value = rg_guarded_get(got, i), should = reachable(want[i], got->desc.dtype);
        const bool same = value == should || (isnan(value) && isnan(should));
        if (same)
            continue;
        const bool numbers = isfinite(value) && isfinite(should);
        const double error =
            numbers && allowed > 0 ? fabs(value - should) / allowed : (double)INFINITY;
        if (error > worst) {
            worst = error;
            where = i;
        }
    }
    if (worst > t->checker->worst)
        t->checker->worst = worst;
    if (worst > 1)
        rg_trial_fail(t, "%s[%lld] is %.9g, the definition says %.9g (%.3g times the tolerance)",
                      what, (long long)where, rg_guarded_get(got, where), want[where], worst);
}

void rg_trial_check_guards(const rg_check_trial *t)
{
    const rg_values *v = t->v;
    bool whole = true;
    for (int32_t i = 0; i < v->inputs; i++)
        whole = whole && rg_guarded_intact(&t->x[i]) && rg_guarded_intact(&t->dx[i]);
    for (int32_t i = 0; i < v->outputs; i++)
        whole = whole && rg_guarded_intact(&t->y[i]) && rg_guarded_intact(&t->dy[i]);
    t->checker->comparisons++;
    if (!whole)
        rg_trial_fail(t, "bytes outside the result were overwritten");
}

/* Of all results; of each of them too, where `each` is given. */
uint64_t rg_trial_hash_results(const rg_guarded results[], int32_t count, uint64_t each[])
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (int32_t i = 0; i < count; i++) {
        const uint64_t own = results[i].memory != NULL ? rg_guarded_hash(&results[i]) : 0;
        hash = (hash ^ own) * UINT64_C(0x100000001b3);
        hash ^= hash >> 29;
        if (each != NULL)
            each[i] = own;
    }
    return hash == 0 ? 1 : hash;
}

void rg_trial_compare_bits(const rg_check_trial *t, const char *what, uint64_t *known,
                           uint64_t hash)
{
    t->checker->comparisons++;
    if (*known == 0)
        *known = hash;
    else if (*known != hash)
        rg_trial_fail(
            t, "%s: the bits differ between runs, thread counts, layouts or in-place calls", what);
}

/* ---- running ---- */

void rg_trial_tensors_of(const rg_guarded from[], int32_t count, rg_tensor *to[])
{
    for (int32_t i = 0; i < count; i++)
        to[i] = from[i].tensor;
}

static rg_status move_all(rg_check_trial *t, rg_status (*move)(rg_guarded *guarded))
{
    for (int32_t i = 0; i < t->v->inputs; i++) {
        RG_TRY(move(&t->x[i]));
        RG_TRY(move(&t->dx[i]));
    }
    for (int32_t i = 0; i < t->v->outputs; i++) {
        RG_TRY(move(&t->y[i]));
        RG_TRY(move(&t->dy[i]));
    }
    return RG_OK;
}

rg_status rg_trial_move(rg_check_trial *t, bool upload)
{
    return move_all(t, upload ? rg_guarded_upload : rg_guarded_download);
}

/* Runs the kernel on what the tensors were filled with; a GPU keeps the results. */
rg_status rg_trial_run(rg_check_trial *t, bool gradient, rg_state *state, uint64_t add)
{
    RG_TRY(move_all(t, rg_guarded_upload));
    rg_tensor *x[RG_MAX_INPUTS], *y[RG_MAX_OUTPUTS], *dy[RG_MAX_OUTPUTS], *dx[RG_MAX_INPUTS];
    rg_trial_tensors_of(t->x, t->v->inputs, x);
    rg_trial_tensors_of(t->y, t->v->outputs, y);
    rg_trial_tensors_of(t->dy, t->v->outputs, dy);
    rg_trial_tensors_of(t->dx, t->v->inputs, dx);
    for (int32_t i = 0; i < t->v->inputs && t->alone; i++)
        dx[i] = i == t->wanted ? dx[i] : NULL;
    rg_commands *commands;
    RG_TRY(rg_commands_create(t->checker->queue, &commands));
    rg_status status = rg_commands_set_results_hint(commands, t->hint);
    if (status == RG_OK)
        status = gradient ? rg_kernel_gradient(t->kernel, commands, dy, x, y, state, dx, add)
                          : rg_kernel_forward(t->kernel, commands, x, y, state);
    return rg_commands_finish(commands, status);
}

/* The same, and brings back all tensors: also what the kernel only read may have been changed. */
rg_status rg_trial_run_whole(rg_check_trial *t, bool gradient, rg_state *state, uint64_t add)
{
    RG_TRY(rg_trial_run(t, gradient, state, add));
    return move_all(t, rg_guarded_download);
}

/* Makes all tensors what they were: results a pattern that no element has by chance. */
void rg_trial_refill(rg_check_trial *t)
{
    for (int32_t i = 0; i < t->v->inputs; i++) {
        rg_guarded_reset(&t->x[i]);
        rg_guarded_reset(&t->dx[i]);
    }
    for (int32_t i = 0; i < t->v->outputs; i++) {
        rg_guarded_reset(&t->y[i]);
        rg_guarded_reset(&t->dy[i]);
    }
}

void rg_trial_expect_written(rg_guarded results[], int32_t count, bool written)
{
    for (int32_t i = 0; i < count; i++)
        results[i].is_result = written;
}
