/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The check of one case. Every tensor stands in memory with guard bytes around it and in its
 * gaps; nothing but the elements of results may change. */
#include "cli/check.h"
#include "cli/guarded.h"
#include "core/shape.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* Relative to the largest element of the result. */
static const double tolerances[] = {
    [RG_F32] = 1e-5, [RG_F64] = 1e-12, [RG_F16] = 2e-3, [RG_BF16] = 1e-2
};

/* One run of a kernel: all its tensors. */
typedef struct trial {
    rg_checker *checker;
    const rg_values *v;
    const char *layout_name;
    rg_kernel *kernel;
    rg_results_hint hint; /* must change no bit */
    bool alone;           /* the gradient of input `wanted` is asked for, no other */
    int32_t wanted;
    uint64_t beside[RG_MAX_INPUTS]; /* fingerprints of each dx that ran beside the others, or 0 */
    rg_guarded x[RG_MAX_INPUTS], y[RG_MAX_OUTPUTS], dy[RG_MAX_OUTPUTS], dx[RG_MAX_INPUTS];
} trial;

/* ---- reporting ---- */

__attribute__((format(printf, 2, 3))) static void fail(const trial *t, const char *format, ...)
{
    const rg_values *v = t->v;
    const char *op = v->test->op->name;
    t->checker->failures++;
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

static bool ok(const trial *t, rg_status status, const char *what)
{
    t->checker->comparisons++;
    if (status == RG_OK)
        return true;
    fail(t, "%s: %s", what, rg_error_text());
    return false;
}

/* ---- comparing ---- */

static double largest_of(const double *data, int64_t count)
{
    double largest = 0;
    for (int64_t i = 0; i < count; i++)
        largest = isfinite(data[i]) && fabs(data[i]) > largest ? fabs(data[i]) : largest;
    return largest;
}

/* What the definition says, as far as the dtype reaches. */
static double reachable(double want, rg_dtype dtype)
{
    return dtype == RG_F16 && fabs(want) >= 65520 ? copysign((double)INFINITY, want) : want;
}

/* Numbers by distance, NaN with NaN, infinities with themselves. */
static void compare(const trial *t, const char *what, const rg_guarded *got, const double *want,
                    double tolerance)
{
    if (want == NULL)
        return; /* an input that has no gradient */
    const int64_t count = rg_shape_count(&got->desc);
    const double allowed = tolerance * largest_of(want, count);
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
        fail(t, "%s[%lld] is %.9g, the definition says %.9g (%.3g times the tolerance)", what,
             (long long)where, rg_guarded_get(got, where), want[where], worst);
}

static void check_guards(const trial *t)
{
    const rg_values *v = t->v;
    bool whole = true;
    for (int32_t i = 0; i < v->inputs; i++)
        whole = whole && rg_guarded_intact(&t->x[i]) && rg_guarded_intact(&t->dx[i]);
    for (int32_t i = 0; i < v->outputs; i++)
        whole = whole && rg_guarded_intact(&t->y[i]) && rg_guarded_intact(&t->dy[i]);
    t->checker->comparisons++;
    if (!whole)
        fail(t, "bytes outside of the result were changed");
}

/* Of all results; of each of them too, where `each` is given. */
static uint64_t hash_results(const rg_guarded results[], int32_t count, uint64_t each[])
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

static void compare_bits(const trial *t, const char *what, uint64_t *known, uint64_t hash)
{
    t->checker->comparisons++;
    if (*known == 0)
        *known = hash;
    else if (*known != hash)
        fail(t, "%s has other bits than in other runs, or under other threads, layouts or aliases",
             what);
}

/* ---- running ---- */

static void tensors_of(const rg_guarded from[], int32_t count, rg_tensor *to[])
{
    for (int32_t i = 0; i < count; i++)
        to[i] = from[i].tensor;
}

static rg_status move_all(trial *t, rg_status (*move)(rg_guarded *guarded))
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

/* Runs the kernel on what the tensors were filled with; a GPU keeps the results. */
static rg_status run(trial *t, bool gradient, rg_state *state, uint64_t add)
{
    RG_TRY(move_all(t, rg_guarded_upload));
    rg_tensor *x[RG_MAX_INPUTS], *y[RG_MAX_OUTPUTS], *dy[RG_MAX_OUTPUTS], *dx[RG_MAX_INPUTS];
    tensors_of(t->x, t->v->inputs, x);
    tensors_of(t->y, t->v->outputs, y);
    tensors_of(t->dy, t->v->outputs, dy);
    tensors_of(t->dx, t->v->inputs, dx);
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
static rg_status run_whole(trial *t, bool gradient, rg_state *state, uint64_t add)
{
    RG_TRY(run(t, gradient, state, add));
    return move_all(t, rg_guarded_download);
}

/* Makes all tensors what they were: results a pattern that no element has by chance. */
static void refill(trial *t)
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

static void expect_written(rg_guarded results[], int32_t count, bool written)
{
    for (int32_t i = 0; i < count; i++)
        results[i].is_result = written;
}

/* ---- what is checked ---- */

static void check_forward(trial *t, rg_state *state, rg_bits *bits)
{
    const rg_values *v = t->v;
    refill(t);
    for (int32_t i = 0; i < v->outputs; i++)
        rg_guarded_fill(&t->y[i], NULL);
    expect_written(t->y, v->outputs, true);
    if (ok(t, run_whole(t, false, state, 0), "forward")) {
        for (int32_t i = 0; i < v->outputs; i++)
            compare(t, rg_op_output_names(v->test->op, v->desc)[i], &t->y[i], v->want_y[i],
                    rg_dtype_is_data(v->y_desc[i].dtype) ? tolerances[v->y_desc[i].dtype] : 0);
        check_guards(t);
        compare_bits(t, "forward", &bits->y, hash_results(t->y, v->outputs, NULL));
        if (v->c->golden != NULL && v->c->flags & RG_CASE_FORWARD)
            compare(t, "golden y", &t->y[0], v->c->golden, fmax(1e-6, tolerances[v->dtype]));
    }
    expect_written(t->y, v->outputs, false);
}

/* Of a gradient. One in f32 beside 16 bits has all of f32, except that libraries of a GPU may round
 * it on the way. */
static double gradient_tolerance(const trial *t, int32_t i)
{
    const bool cpu = strcmp(rg_device_name(t->checker->device), "cpu") == 0;
    const bool wide = t->v->c->flags & RG_CASE_WIDE && t->dx[i].memory != NULL && cpu;
    return tolerances[wide ? t->dx[i].desc.dtype : t->v->dtype];
}

static void check_gradient(trial *t, rg_state *state, rg_bits *bits)
{
    const rg_values *v = t->v;
    refill(t);
    expect_written(t->dx, v->inputs, true);
    if (ok(t, run_whole(t, true, state, 0), "gradient")) {
        for (int32_t i = 0; i < v->inputs; i++)
            compare(t, "dx", &t->dx[i], v->want_dx[i], gradient_tolerance(t, i));
        check_guards(t);
        compare_bits(t, "gradient", &bits->dx, hash_results(t->dx, v->inputs, t->beside));
        if (v->c->golden != NULL)
            compare(t, "golden dx", &t->dx[0], v->c->golden, fmax(1e-6, tolerances[v->dtype]));
    }
    expect_written(t->dx, v->inputs, false);
}

/* Each dx by itself has the bits that check_gradient has seen beside the others. */
static void check_alone(trial *t, rg_state *state)
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
        refill(t);
        expect_written(&t->dx[i], 1, true);
        if (ok(t, run_whole(t, true, state, 0), "gradient alone")) {
            compare_bits(t, "gradient alone", &t->beside[i], rg_guarded_hash(&t->dx[i]));
            check_guards(t);
        }
        expect_written(&t->dx[i], 1, false);
    }
    t->alone = false;
}

/* dx += gradient: old values are dy's, where they fit, so that every dtype holds them exactly. */
static void check_add(trial *t, rg_state *state, rg_bits *bits)
{
    const rg_values *v = t->v;
    refill(t);
    double *want[RG_MAX_INPUTS] = { NULL };
    uint64_t add = 0;
    for (int32_t i = 0; i < v->inputs; i++) {
        const int64_t count = rg_shape_count(&v->x_desc[i]);
        if (v->want_dx[i] == NULL)
            continue;
        add |= UINT64_C(1) << i;
        want[i] = calloc((size_t)count + 1, sizeof(double));
        for (int64_t k = 0; want[i] != NULL && k < count; k++)
            want[i][k] = (double)(k % 17 - 8) / 4;
        rg_guarded_fill(&t->dx[i], want[i]);
        for (int64_t k = 0; want[i] != NULL && k < count; k++)
            want[i][k] += v->want_dx[i][k];
    }
    expect_written(t->dx, v->inputs, true);
    if (ok(t, run_whole(t, true, state, add), "gradient added")) {
        for (int32_t i = 0; i < v->inputs; i++)
            compare(t, "added dx", &t->dx[i], want[i], gradient_tolerance(t, i));
        check_guards(t);
        compare_bits(t, "gradient added", &bits->added, hash_results(t->dx, v->inputs, NULL));
    }
    expect_written(t->dx, v->inputs, false);
    for (int32_t i = 0; i < v->inputs; i++)
        free(want[i]);
}

/* The pairs that the op lists: the result takes the place of what is read, and gets the same
 * bits. */
static void check_alias(trial *t, const char *pair, rg_state *state, rg_bits *bits)
{
    int read, written;
    const rg_values *v = t->v;
    const bool gradient = strstr(pair, "=dx") != NULL;
    if (v->c->flags & (gradient ? RG_CASE_FORWARD : RG_CASE_FREE_Y))
        return;
    rg_guarded *from = NULL, *to = NULL;
    if (sscanf(pair, "x%d=y%d", &read, &written) == 2) {
        from = &t->x[read];
        to = &t->y[written];
    } else if (sscanf(pair, "dy%d=dx%d", &read, &written) == 2) {
        from = &t->dy[read];
        to = &t->dx[written];
    } else if (sscanf(pair, "y%d=dx%d", &read, &written) == 2) {
        from = &t->y[read];
        to = &t->dx[written];
    } else if (sscanf(pair, "x%d=dx%d", &read, &written) == 2) {
        from = &t->x[read];
        to = &t->dx[written];
    }
    if (from == NULL) {
        fail(t, "the pair '%s' is not understood", pair);
        return;
    }
    if (!rg_shape_same_dims(&from->desc, &to->desc) || from->desc.dtype != to->desc.dtype)
        return; /* of other shapes in this case: they cannot be one tensor */
    refill(t);
    rg_guarded *results = gradient ? t->dx : t->y;
    const int32_t count = gradient ? v->inputs : v->outputs;
    const rg_guarded own = *to;
    *to = *from;
    expect_written(results, count, true); /* the others too */
    from->is_result = true;
    if (ok(t, run_whole(t, gradient, state, 0), pair)) {
        compare_bits(t, pair, gradient ? &bits->dx : &bits->y, hash_results(results, count, NULL));
        check_guards(t);
    }
    expect_written(results, count, false);
    from->is_result = false;
    *to = own;
}

static void check_aliases(trial *t, const char *pairs, rg_state *state, rg_bits *bits)
{
    char pair[32];
    for (const char *at = pairs; at != NULL && *at != 0; at += strspn(at, " ")) {
        const size_t length = strcspn(at, " ");
        snprintf(pair, sizeof pair, "%.*s", (int)length, at);
        check_alias(t, pair, state, bits);
        at += length;
    }
}

/* All pairs of the forward pass at once, as an optimizer is used. */
static void check_in_place(trial *t, const char *pairs, rg_state *state, rg_bits *bits)
{
    const rg_values *v = t->v;
    rg_guarded own[RG_MAX_OUTPUTS];
    int read, written, count = 0;
    if (v->c->flags & RG_CASE_FREE_Y)
        return;
    refill(t);
    memcpy(own, t->y, sizeof own);
    expect_written(t->y, v->outputs, true);
    for (const char *at = pairs; at != NULL && *at != 0; at = strchr(at + 1, ' ')) {
        if (sscanf(at, " x%d=y%d", &read, &written) != 2 || read >= v->inputs ||
            written >= v->outputs || !rg_shape_same_dims(&t->x[read].desc, &own[written].desc) ||
            t->x[read].desc.dtype != own[written].desc.dtype)
            continue;
        t->x[read].is_result = true;
        t->y[written] = t->x[read];
        count++;
    }
    if (count > 1 && ok(t, run_whole(t, false, state, 0), "all in place")) {
        compare_bits(t, "all in place", &bits->y, hash_results(t->y, v->outputs, NULL));
        check_guards(t);
    }
    memcpy(t->y, own, sizeof own);
    expect_written(t->x, v->inputs, false);
    expect_written(t->y, v->outputs, false);
}

/* sum of dy times y, after a forward pass */
static double loss(const trial *t)
{
    long double sum = 0;
    const int32_t gradients = rg_op_gradients(t->v->test->op, t->v->desc);
    for (int32_t i = 0; i < gradients; i++)
        for (int64_t k = 0; k < rg_shape_count(&t->v->y_desc[i]); k++)
            sum += (long double)t->v->dy[i][k] * (long double)rg_guarded_get(&t->y[i], k);
    return (double)sum;
}

/* Without a look at the guards: a GPU moves the changed input and the outputs alone. */
static rg_status run_forward(trial *t)
{
    RG_TRY(run(t, false, NULL, 0));
    for (int32_t i = 0; i < t->v->outputs; i++)
        RG_TRY(rg_guarded_download(&t->y[i]));
    return RG_OK;
}

static bool loss_at(trial *t, int32_t input, int64_t k, double value, double *result)
{
    rg_guarded_set(&t->x[input], k, value);
    if (!ok(t, run_forward(t), "forward"))
        return false;
    *result = loss(t);
    return true;
}

/* Central differences at some elements. Where the slopes to both sides differ there is a kink,
 * and the element is passed over; not more than half may be. */
static void check_differences(trial *t)
{
    enum { SAMPLES = 24 };
    const double step = 1e-5;
    const rg_values *v = t->v;
    refill(t);
    rg_random random = rg_random_seed(t->checker->seed, "differences");
    for (int32_t i = 0; i < v->inputs; i++) {
        if (v->want_dx[i] == NULL)
            continue;
        const int64_t count = rg_shape_count(&v->x_desc[i]);
        const double largest = largest_of(v->want_dx[i], count);
        int skipped = 0, done = 0;
        for (; done < SAMPLES && done < count; done++) {
            const int64_t k = (int64_t)(rg_random_uniform(&random) * (double)count);
            const double x = v->x[i][k];
            double below, here, above;
            if (!loss_at(t, i, k, x - step, &below) || !loss_at(t, i, k, x + step, &above) ||
                !loss_at(t, i, k, x, &here))
                return;
            const double slope = (above - below) / (2 * step);
            if (fabs((above - here) - (here - below)) > 1e-3 * step * (largest + fabs(slope))) {
                skipped++;
                continue;
            }
            t->checker->comparisons++;
            if (!(fabs(slope - v->want_dx[i][k]) <= 1e-6 * largest))
                fail(t, "d%s[%lld] is %.12g by definition, %.12g by finite differences",
                     rg_op_input_names(v->test->op, v->desc)[i], (long long)k, v->want_dx[i][k],
                     slope);
        }
        if (skipped > done / 2)
            fail(t, "%d of %d finite differences met a kink", skipped, done);
    }
}

/* A gradient that is 0 everywhere, or as good as that, would agree with too much. */
static bool is_trivial(const rg_values *v, double share)
{
    bool trivial = false;
    const double largest = largest_of(v->dy[0], rg_shape_count(&v->y_desc[0]));
    for (int32_t i = 0; i < v->inputs; i++)
        trivial |= v->want_dx[i] != NULL &&
                   largest_of(v->want_dx[i], rg_shape_count(&v->x_desc[i])) < share * largest;
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

static rg_status make_tensors(trial *t, rg_arrangement arrangement)
{
    const rg_values *v = t->v;
    rg_device *device = t->checker->device;
    const rg_arrangement results = arrangement == RG_EXPANDED ? RG_DENSE : arrangement;
    int number = 0;
    for (int32_t i = 0; i < v->inputs; i++) {
        RG_TRY(rg_guarded_make(device, &v->x_desc[i], arrangement, number++, v->x[i], &t->x[i]));
        const rg_tensor_desc dx = gradient_desc(v, i);
        if (v->want_dx[i] != NULL)
            RG_TRY(rg_guarded_make(device, &dx, results, number, NULL, &t->dx[i]));
        number++;
    }
    for (int32_t i = 0; i < v->outputs; i++) {
        RG_TRY(rg_guarded_make(device, &v->y_desc[i], results, number++, v->y[i], &t->y[i]));
        RG_TRY(rg_guarded_make(device, &v->y_desc[i], arrangement, number++, v->dy[i], &t->dy[i]));
    }
    return RG_OK;
}

static void free_tensors(trial *t)
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

static void check_layout(trial *t, rg_arrangement arrangement, rg_bits *bits)
{
    const rg_values *v = t->v;
    const uint32_t flags = v->c->flags;
    t->layout_name = rg_arrangement_name(arrangement);
    rg_state *state = NULL;
    if (!ok(t, make_tensors(t, arrangement), "tensors"))
        goto end;
    const bool needs_state =
        v->test->op->gradient != NULL && v->test->op->reads(v->desc) & RG_READS_STATE;
    if (needs_state || arrangement == RG_DENSE) {
        rg_tensor *x[RG_MAX_INPUTS];
        tensors_of(t->x, v->inputs, x);
        if (!ok(t, rg_state_create(t->kernel, x, &state), "state"))
            goto end;
    }
    if (!(flags & RG_CASE_FREE_Y) || needs_state)
        check_forward(t, state, bits);
    bool differentiate = !(flags & RG_CASE_FORWARD) && v->test->op->gradient != NULL;
    const bool zero = flags & (RG_CASE_ZERO | RG_CASE_SPECIAL);
    if (differentiate && arrangement == RG_EXPANDED && is_trivial(v, 1e-4))
        differentiate = false; /* expanded along the axis of the op, it is 0 but for rounding */
    if (differentiate && !zero && is_trivial(v, 1e-6))
        fail(t, "the gradient is 0 everywhere; the case shows nothing");
    if (differentiate) {
        check_gradient(t, state, bits);
        check_alone(t, state);
        check_add(t, state, bits);
    }
    if (arrangement != RG_EXPANDED) {
        const rg_op *op = v->test->op;
        check_aliases(t, op->alias, needs_state ? state : NULL, bits);
        if (op->alias_of != NULL)
            check_aliases(t, op->alias_of(v->desc), needs_state ? state : NULL, bits);
        check_in_place(t, op->alias_of != NULL ? op->alias_of(v->desc) : op->alias,
                       needs_state ? state : NULL, bits);
    }
    const bool smooth = differentiate && !(flags & (RG_CASE_SPECIAL | RG_CASE_FREE_Y));
    if (smooth && arrangement == RG_DENSE && v->dtype == RG_F64 &&
        rg_shape_count(&v->x_desc[0]) <= 20000 && !(flags & RG_CASE_LONG))
        check_differences(t);
end:
    rg_state_destroy(state);
    free_tensors(t);
    memset(t->x, 0, sizeof t->x);
    memset(t->y, 0, sizeof t->y);
    memset(t->dy, 0, sizeof t->dy);
    memset(t->dx, 0, sizeof t->dx);
    memset(t->beside, 0, sizeof t->beside);
}

/* A kernel of another device, copied to this one, does what one that was made here does. */
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
    trial t = { .checker = checker, .v = values, .layout_name = "" };
    rg_device *device = checker->device;
    const rg_status status =
        expanded ? copy_kernel(device, values, &t.kernel)
                 : rg_kernel_create(device, values->test->op, values->desc, &t.kernel);
    if (!ok(&t, status, "kernel"))
        return;
    const bool all_layouts =
        rg_shape_count(&values->x_desc[0]) <= 20000 && !(values->c->flags & RG_CASE_LONG);
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
    }
    rg_kernel_destroy(t.kernel);
}
