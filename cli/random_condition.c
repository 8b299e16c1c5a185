/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The condition of a result, measured with the definition in two ways: on inputs perturbed by some
 * roundings of the type that kernels compute in, and with every operation rounded up, then down. A
 * result that changes by a good part of its tolerance is not compared, because no kernel could meet
 * it. Equal numbers stay equal and exact numbers stay exact, so that ties are compared. */
#include "cli/check_trial.h"
#include "cli/random_case.h"
#include "core/dtype.h"
#include "core/shape.h"
#include "runtime/field.h"

#include <fenv.h>
#include <math.h>
#include <stdlib.h>

/* Tensors of the definition, moved. */
typedef struct moved {
    rg_ref_tensor x[RG_MAX_INPUTS], y[RG_MAX_OUTPUTS], given[RG_MAX_OUTPUTS], dy[RG_MAX_OUTPUTS],
        dx[RG_MAX_INPUTS];
} moved;

static uint64_t mix(uint64_t z)
{
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* By how much inputs move, as a share of themselves. */
typedef struct motion {
    double share;
    bool apart;        /* each element by itself; otherwise equal numbers stay equal */
    bool dy_only;      /* the other inputs stay */
    uint64_t salt;     /* a seed: other salts move the same numbers by other amounts */
    bool scales;       /* all elements by the same share, so that what a neuron sees moves, too */
    bool weights_only; /* input 1 moves; without it, where `scales`, all others do */
    bool upwards;      /* all elements towards plus infinity, so that sums that cancel move most */
    int32_t only;      /* 0: all move; 1 + i: input i alone; 1 + inputs + j: dy[j] alone */
    bool clears_first; /* the first input becomes 0, everything else stays */
} motion;

static double move(double value, const motion *by, int64_t i)
{
    uint64_t bits;
    if (!isfinite(value))
        return value;
    if (by->scales)
        return value + value * by->share;
    if (by->upwards)
        return value + fabs(value) * by->share;
    memcpy(&bits, &value, sizeof bits);
    const uint64_t hash =
        mix(by->salt + (by->apart ? bits + (uint64_t)i * 0x9e3779b97f4a7c15 : bits));
    return value + value * by->share * ((double)(hash >> 11) * 0x1p-52 - 1);
}

static rg_ref_tensor copy(const rg_tensor_desc *desc, const double *data, const motion *by,
                          bool stays)
{
    const int64_t count = rg_shape_count(desc);
    rg_ref_tensor ref = { .rank = desc->rank, .data = calloc((size_t)count + 1, sizeof(double)) };
    memcpy(ref.dims, desc->dims, sizeof ref.dims);
    const bool moves = by != NULL && !stays && rg_dtype_is_data(desc->dtype);
    for (int64_t i = 0; data != NULL && ref.data != NULL && i < count; i++)
        ref.data[i] = moves ? move(data[i], by, i) : data[i];
    return ref;
}

/* Whether a tensor is not the only one that moves. */
static bool is_still(const motion *by, int32_t number)
{
    return by != NULL && by->only != 0 && by->only != 1 + number;
}

static bool make(const rg_values *v, const motion *by, moved *m)
{
    const bool clears = by != NULL && by->clears_first;
    const bool stays = clears || (by != NULL && by->dy_only);
    bool whole = true;
    for (int32_t i = 0; i < v->inputs; i++) {
        const double *x = clears && i == 0 ? NULL : v->x[i];
        const bool other = by != NULL && by->scales && (i == 1) != by->weights_only;
        m->x[i] = copy(&v->x_desc[i], x, by, stays || other || is_still(by, i));
        m->dx[i] = copy(&v->x_desc[i], NULL, NULL, true);
        whole = whole && m->x[i].data != NULL && m->dx[i].data != NULL;
        if (v->want_dx[i] == NULL) {
            free(m->dx[i].data);
            m->dx[i].data = NULL;
        }
    }
    for (int32_t i = 0; i < v->outputs; i++) {
        m->y[i] = copy(&v->y_desc[i], NULL, NULL, true);
        m->given[i] = copy(&v->y_desc[i], v->y[i], by, stays || is_still(by, -1));
        m->dy[i] = copy(&v->y_desc[i], v->dy[i], by, clears || is_still(by, v->inputs + i));
        whole = whole && m->y[i].data != NULL && m->given[i].data != NULL && m->dy[i].data != NULL;
    }
    return whole;
}

static void give_back(moved *m)
{
    for (int32_t i = 0; i < RG_MAX_INPUTS; i++) {
        free(m->x[i].data);
        free(m->dx[i].data);
    }
    for (int32_t i = 0; i < RG_MAX_OUTPUTS; i++) {
        free(m->y[i].data);
        free(m->given[i].data);
        free(m->dy[i].data);
    }
}

/* Near the end of what f16 holds an error decides between a number and infinity; where all elements
 * are as small as the smallest normal numbers, their places are too coarse. */
static bool fits_dtype(const double *want, int64_t count, rg_dtype dtype)
{
    const double largest = rg_trial_largest_of(want, count);
    /* f16: a factor on the way to the result may be 64 times smaller than the result */
    const double small = dtype == RG_F16 ? 0x1p-8 : dtype == RG_F64 ? 1e-290 : 1e-33;
    const double large = dtype == RG_F16 ? 6.5e4 : dtype == RG_F64 ? 1e290 : 1e36;
    if (largest != 0 && largest < small)
        return false;
    for (int64_t i = 0; i < count; i++) {
        if (isfinite(want[i]) && fabs(want[i]) > large)
            return false;
    }
    return true;
}

/* The largest distance, in shares of the largest element; infinite where one is a number alone. */
static double distance(const double *a, const double *b, int64_t count)
{
    const double largest = rg_trial_largest_of(a, count);
    double far = 0;
    for (int64_t i = 0; i < count; i++) {
        const bool same = a[i] == b[i] || (isnan(a[i]) && isnan(b[i]));
        const double share = fabs(a[i] - b[i]) / largest;
        far = same ? far : isnan(share) ? (double)INFINITY : fmax(far, share);
    }
    return far;
}

/* y as the dtype holds it has become infinite where the definition has a number. */
static bool overflows(const rg_values *v)
{
    for (int32_t i = 0; i < v->outputs; i++) {
        for (int64_t k = 0; k < rg_shape_count(&v->y_desc[i]); k++) {
            if (isfinite(v->want_y[i][k]) && !isfinite(v->y[i][k]))
                return true;
        }
    }
    return false;
}

static bool differentiates(const rg_values *v)
{
    return v->test->gradient != NULL && !(v->c->flags & RG_CASE_FORWARD) &&
           v->test->op->gradient != NULL;
}

/* The definition with other inputs, or other roundings. */
static bool evaluate(const rg_values *v, const motion *by, int rounding, moved *m)
{
    if (!make(v, by, m))
        return false;
    fesetround(rounding);
    v->test->forward(v->desc, m->x, m->y);
    if (differentiates(v))
        v->test->gradient(v->desc, m->dy, m->x, m->given, m->dx);
    fesetround(FE_TONEAREST);
    return true;
}

/* f32 beside 16 bits has the tolerance of f32. */
static double tolerance_of(const rg_values *v, int32_t i)
{
    const bool wide = v->c->flags & RG_CASE_WIDE && v->test->op->wide_gradients >> i & 1;
    return rg_tolerance(wide && v->dtype != RG_F64 ? RG_F32 : v->dtype);
}

/* Distances between results on two sets of inputs. */
typedef struct distances {
    double y[RG_MAX_OUTPUTS], dx[RG_MAX_INPUTS];
} distances;

/* `a` NULL: the definition as it is. */
static distances measure(const rg_values *v, const moved *a, const moved *b)
{
    distances d = { { 0 }, { 0 } };
    for (int32_t i = 0; i < v->outputs; i++)
        d.y[i] = distance(a != NULL ? a->y[i].data : v->want_y[i], b->y[i].data,
                          rg_shape_count(&v->y_desc[i]));
    for (int32_t i = 0; i < v->inputs && differentiates(v); i++) {
        if (v->want_dx[i] != NULL)
            d.dx[i] = distance(a != NULL ? a->dx[i].data : v->want_dx[i], b->dx[i].data,
                               rg_shape_count(&v->x_desc[i]));
    }
    return d;
}

static distances move_inputs(const rg_values *v, const motion *by)
{
    distances d = { { 0 }, { 0 } };
    moved m = { 0 };
    if (evaluate(v, by, FE_TONEAREST, &m))
        d = measure(v, NULL, &m);
    give_back(&m);
    return d;
}

/* Distances beyond `part` of the tolerance, and `slack`. */
static void judge(rg_values *v, const distances *d, double part, double slack)
{
    for (int32_t i = 0; i < v->outputs; i++) {
        if (d->y[i] > part * rg_tolerance(v->y_desc[i].dtype) + slack)
            v->unsure_y |= 1u << i;
    }
    for (int32_t i = 0; i < v->inputs; i++) {
        if (d->dx[i] > part * tolerance_of(v, i) + slack)
            v->unsure_dx |= 1u << i;
    }
}

/* What does not grow with the motion is a jump between equal numbers, not a slope. */
static void drop_jumps(distances *d, const distances *further)
{
    for (int32_t i = 0; i < RG_MAX_OUTPUTS; i++)
        d->y[i] = d->y[i] <= further->y[i] / 64 ? d->y[i] : 0;
    for (int32_t i = 0; i < RG_MAX_INPUTS; i++)
        d->dx[i] = d->dx[i] <= further->dx[i] / 64 ? d->dx[i] : 0;
}

/* A contraction compares no inputs with each other, so that it has no ties: a jump of its gradient
 * is a pre-activation within rounding of a kink of the neuron, and stays. One motion takes it to
 * the other side of the kink half of the time at best, six leave it unnoticed once in 64. */
static void judge_contraction(rg_values *v, double share)
{
    for (uint64_t trial = 0; trial < 6; trial++) {
        const motion apart = { .share = share,
                               .apart = true,
                               .salt = trial * UINT64_C(0xd1342543de82ef95) };
        const distances each = move_inputs(v, &apart);
        judge(v, &each, 0.25, 0);
    }
}

static void judge_elements(rg_values *v, double share)
{
    const motion apart = { .share = share, .apart = true },
                 further = { .share = 4096 * share, .apart = true };
    distances each = move_inputs(v, &apart);
    const distances all = move_inputs(v, &further);
    drop_jumps(&each, &all);
    judge(v, &each, 0.25, 0);
}

/* A pre-activation in 16 bits is rounded before the neuron sees it, dz before it is multiplied, and
 * the result: three roundings, which sums of equal terms do not average out. Moving x shows what
 * the first one does to y and dx, moving the weights what it does to dw, which grows with x by
 * itself.
 */
static void judge_neuron(rg_values *v, double share)
{
    const motion by_x = { .share = share, .scales = true };
    const motion by_w = { .share = share, .scales = true, .weights_only = true };
    distances neurons = move_inputs(v, &by_x);
    neurons.dx[1] = move_inputs(v, &by_w).dx[1];
    for (int32_t i = 0; i < RG_MAX_INPUTS; i++)
        neurons.dx[i] += neurons.dx[i] > share / 8 ? 2 * share : 0;
    judge(v, &neurons, 1, 0);
}

/* Sums and differences that cancel: each tensor is moved to one side by itself, and what the
 * results move by is added up, as roundings of one sign are. Equal numbers are rounded alike, so
 * that a sum of repeated ones is off by several units of its terms. */
static void judge_cancellation(rg_values *v, double share)
{
    bool repeats = v->c->dy_fill.repeat != 0;
    distances all = { { 0 }, { 0 } };
    for (int32_t i = 0; i < v->inputs; i++)
        repeats |= v->c->x_fill[i].repeat != 0;
    for (int32_t i = 0; i < v->inputs + (differentiates(v) ? v->outputs : 0); i++) {
        const motion by = { .share = share / (repeats ? 1 : 4), .upwards = true, .only = 1 + i };
        const distances d = move_inputs(v, &by);
        for (int32_t k = 0; k < RG_MAX_OUTPUTS; k++)
            all.y[k] += d.y[k];
        for (int32_t k = 0; k < RG_MAX_INPUTS; k++)
            all.dx[k] += d.dx[k];
    }
    judge(v, &all, 0.5, 0);
}

/* Window norms: the terms of dx, whose factors are made of alpha, beta, p0 and the size of the
 * window, may cancel whatever x is (with one element and beta 1/2, or p0 equal to the size). A
 * kernel rounds the factors. */
static void judge_factors(rg_values *v, double share)
{
    const rg_fields *fields = &v->test->op->desc;
    bool has_power = false;
    for (const rg_field *f = fields->fields; f->name != NULL; f++)
        has_power |= strcmp(f->name, "beta") == 0;
    for (const rg_field *f = fields->fields; has_power && f->name != NULL; f++) {
        rg_values other = *v;
        char *field = (char *)other.desc + f->offset;
        double value;
        if (f->type != RG_FIELD_F64)
            continue;
        memcpy(&value, field, sizeof value);
        value += value * share;
        memcpy(field, &value, sizeof value);
        const motion none = { 0 };
        const distances d = move_inputs(&other, &none);
        judge(v, &d, 0.25, 0);
    }
}

static void judge_inputs(rg_values *v)
{
    const double share = 8 * (v->dtype == RG_F64 ? 0x1p-53 : 0x1p-24);
    const motion together = { .share = share };
    const distances d = move_inputs(v, &together);
    judge(v, &d, 0.25, 0);
    judge_cancellation(v, share);
    judge_factors(v, share / 4);
    if (v->test->operations != NULL)
        judge_contraction(v, share);
    else
        judge_elements(v, share);
    if (v->c->flags & RG_CASE_NARROW && (v->dtype == RG_F16 || v->dtype == RG_BF16)) {
        const motion stored = { .share = v->dtype == RG_F16 ? 0x1p-11 : 0x1p-8,
                                .apart = true,
                                .dy_only = true };
        const distances rounded = move_inputs(v, &stored);
        judge(v, &rounded, 0.5, 0);
        judge_neuron(v, stored.share);
        const motion alike = { .share = stored.share / 2, .upwards = true, .only = 1 + v->inputs };
        const distances sums = move_inputs(v, &alike);
        judge(v, &sums, 0.5, 0);
    }
}

/* What lies between rounding up and down, scaled to the type that kernels compute in. Sums of one
 * sign may be off by more, which kernels add up in parts. */
static void judge_roundings(rg_values *v)
{
    moved up = { 0 }, down = { 0 };
    double terms = 0;
    for (int32_t i = 0; i < v->inputs; i++)
        terms += (double)rg_shape_count(&v->x_desc[i]);
    const double unit = v->dtype == RG_F64 ? 0x1p-53 : 0x1p-24, scale = unit / 0x1p-53;
    if (evaluate(v, NULL, FE_UPWARD, &up) && evaluate(v, NULL, FE_DOWNWARD, &down)) {
        distances d = measure(v, &up, &down);
        for (int32_t i = 0; i < RG_MAX_OUTPUTS; i++)
            d.y[i] *= scale;
        for (int32_t i = 0; i < RG_MAX_INPUTS; i++)
            d.dx[i] *= scale;
        judge(v, &d, 0.25, terms * unit);
    }
    give_back(&up);
    give_back(&down);
}

/* What the dtypes of the results do not hold. */
static void judge_ranges(rg_values *v)
{
    const bool lost = overflows(v);
    for (int32_t i = 0; i < v->outputs; i++) {
        if (!fits_dtype(v->want_y[i], rg_shape_count(&v->y_desc[i]), v->y_desc[i].dtype))
            v->unsure_y |= 1u << i;
    }
    for (int32_t i = 0; i < v->inputs && differentiates(v); i++) {
        if (v->want_dx[i] != NULL &&
            (lost || !fits_dtype(v->want_dx[i], rg_shape_count(&v->x_desc[i]), v->dtype)))
            v->unsure_dx |= 1u << i;
    }
}

/* A probability less its target is within a rounding of 1 of the difference, which may be much
 * smaller. How large such differences are where the probabilities are not yet near the targets is
 * what the definition says for logits of 0. */
static void judge_probabilities(rg_values *v)
{
    const motion clears = { .clears_first = true };
    const double unit = v->dtype == RG_F64 ? 0x1p-53 : 0x1p-24;
    moved m = { 0 };
    if (strcmp(v->test->op->name, "loss") == 0 && v->want_dx[0] != NULL && differentiates(v) &&
        evaluate(v, &clears, FE_TONEAREST, &m)) {
        const int64_t count = rg_shape_count(&v->x_desc[0]);
        const double whole = rg_trial_largest_of(m.dx[0].data, count);
        if (rg_trial_largest_of(v->want_dx[0], count) * rg_tolerance(v->dtype) < 8 * unit * whole)
            v->unsure_dx |= 1;
    }
    give_back(&m);
}

static void find_gelu(void *found, const char *name, const rg_field *field, const char *value)
{
    (void)field;
    if ((strcmp(name, "kind") == 0 || strcmp(name, "neuron.kind") == 0) &&
        strcmp(value, "gelu") == 0)
        *(bool *)found = true;
}

/* GeLU far to the left, in f64. Its normal distribution function P is within 1.5 units of the last
 * place of 1/2, 2^-53, whatever its value, down to -8.3 where it has become 0: x P(x) is within
 * 8.3 * 1.5 * 2^-53 < 1.4e-15, which is 1e-12 of 1.4e-3. Where all of y is smaller no kernel could
 * be held to 1e-12 of it; nor, where all of y that dy reaches is, could its slopes. */
static void judge_gelu(rg_values *v)
{
    const double small = 0x1p-9;
    double largest = 0, reached = 0;
    bool gelu = false;
    rg_fields_each(&v->test->op->desc, v->desc, find_gelu, &gelu);
    if (!gelu || v->dtype != RG_F64)
        return;
    for (int64_t i = 0; i < rg_shape_count(&v->y_desc[0]); i++) {
        const double y = isfinite(v->want_y[0][i]) ? fabs(v->want_y[0][i]) : 0;
        largest = fmax(largest, y);
        if (v->dy[0] != NULL && v->dy[0][i] != 0)
            reached = fmax(reached, y);
    }
    if (largest != 0 && largest < small)
        v->unsure_y |= 1;
    for (int32_t i = 0; i < v->inputs && reached != 0 && reached < small; i++)
        v->unsure_dx |= 1u << i;
}

/* A y that a float takes for 0, as GeLU's far to the left, tells of a slope that it takes for 0,
 * too: 0 times an infinite dy is NaN, where the definition in double has an infinity. */
static void judge_vanished_slopes(rg_values *v)
{
    const double least = 0x1p-126; /* normal numbers of float */
    bool vanished = false;
    for (int64_t i = 0; v->dy[0] != NULL && i < rg_shape_count(&v->y_desc[0]); i++) {
        const double y = fabs(v->want_y[0][i]);
        vanished |= !isfinite(v->dy[0][i]) && y > 0 && y < least;
    }
    for (int32_t i = 0; i < v->inputs && vanished && v->dtype != RG_F64; i++)
        v->unsure_dx |= 1u << i;
}

void rg_random_judge(rg_values *values)
{
    judge_vanished_slopes(values);
    judge_gelu(values);
    judge_probabilities(values);
    judge_inputs(values);
    judge_roundings(values);
    judge_ranges(values);
}
