/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* How well a result follows from its inputs, by the definition itself: it is evaluated once more on
 * inputs that are moved by a few roundings of the type that kernels compute in. A result that moves
 * by a good part of its tolerance is not compared: no kernel could be held to it. */
#include "cli/check_trial.h"
#include "cli/random_case.h"
#include "core/dtype.h"
#include "core/shape.h"

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

/* Up to eight roundings up or down: the same for equal numbers, so that they stay equal, or another
 * one for each element. */
static double move(double value, rg_dtype dtype, uint64_t salt, int64_t i, bool by_value)
{
    uint64_t bits;
    if (!isfinite(value))
        return value;
    memcpy(&bits, &value, sizeof bits);
    const uint64_t hash = mix(by_value ? bits ^ salt : (uint64_t)i * 0x9e3779b97f4a7c15 + salt);
    const double unit = dtype == RG_F64 ? 0x1p-53 : 0x1p-24;
    return value + value * unit * 8 * ((double)(hash >> 11) * 0x1p-52 - 1);
}

static rg_ref_tensor copy(const rg_tensor_desc *desc, const double *data, uint64_t salt,
                          bool by_value)
{
    const int64_t count = rg_shape_count(desc);
    rg_ref_tensor ref = { .rank = desc->rank, .data = calloc((size_t)count + 1, sizeof(double)) };
    memcpy(ref.dims, desc->dims, sizeof ref.dims);
    const bool moves = rg_dtype_is_data(desc->dtype);
    for (int64_t i = 0; data != NULL && ref.data != NULL && i < count; i++)
        ref.data[i] = moves ? move(data[i], desc->dtype, salt, i, by_value) : data[i];
    return ref;
}

static bool make(const rg_values *v, uint64_t salt, bool by_value, moved *m)
{
    bool whole = true;
    for (int32_t i = 0; i < v->inputs; i++) {
        /* equal numbers stay equal across inputs, too */
        const uint64_t own = by_value ? salt : salt + (uint64_t)i;
        m->x[i] = copy(&v->x_desc[i], v->x[i], own, by_value);
        m->dx[i] = copy(&v->x_desc[i], NULL, 0, false);
        whole = whole && m->x[i].data != NULL && m->dx[i].data != NULL;
        if (v->want_dx[i] == NULL) {
            free(m->dx[i].data);
            m->dx[i].data = NULL;
        }
    }
    for (int32_t i = 0; i < v->outputs; i++) {
        m->y[i] = copy(&v->y_desc[i], NULL, 0, false);
        m->given[i] = copy(&v->y_desc[i], v->y[i], salt + 20, by_value);
        m->dy[i] = copy(&v->y_desc[i], v->dy[i], salt + 30, by_value);
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
    const double small = dtype == RG_F16 ? 0x1p-12 : dtype == RG_F64 ? 1e-290 : 1e-33;
    const double large = dtype == RG_F16 ? 6.5e4 : dtype == RG_F64 ? 1e290 : 1e36;
    if (largest != 0 && largest < small)
        return false;
    for (int64_t i = 0; i < count; i++) {
        if (isfinite(want[i]) && fabs(want[i]) > large)
            return false;
    }
    return true;
}

static bool is_sure(const double *want, const double *again, int64_t count, rg_dtype dtype)
{
    const double allowed = rg_tolerance(dtype) * rg_trial_largest_of(want, count) / 4;
    for (int64_t i = 0; i < count; i++) {
        const bool same = want[i] == again[i] || (isnan(want[i]) && isnan(again[i]));
        if (!same && !(fabs(want[i] - again[i]) <= allowed))
            return false;
    }
    return true;
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

static void judge(rg_values *v, uint64_t salt, bool by_value)
{
    moved m = { 0 };
    const bool differentiates =
        v->test->gradient != NULL && !(v->c->flags & RG_CASE_FORWARD) && v->test->op->gradient;
    if (make(v, salt, by_value, &m)) {
        v->test->forward(v->desc, m.x, m.y);
        if (differentiates)
            v->test->gradient(v->desc, m.dy, m.x, m.given, m.dx);
    }
    for (int32_t i = 0; i < v->outputs && m.y[i].data != NULL; i++) {
        const int64_t count = rg_shape_count(&v->y_desc[i]);
        const rg_dtype dtype = v->y_desc[i].dtype;
        if (!is_sure(v->want_y[i], m.y[i].data, count, dtype) ||
            !fits_dtype(v->want_y[i], count, dtype))
            v->unsure_y |= 1u << i;
    }
    const bool lost = overflows(v);
    for (int32_t i = 0; i < v->inputs && differentiates; i++) {
        const int64_t count = rg_shape_count(&v->x_desc[i]);
        if (v->want_dx[i] == NULL || m.dx[i].data == NULL)
            continue;
        /* f32 beside 16 bits has the tolerance of f32 */
        const bool wide = v->c->flags & RG_CASE_WIDE && v->test->op->wide_gradients >> i & 1;
        const rg_dtype dtype = wide && v->dtype != RG_F64 ? RG_F32 : v->dtype;
        if (lost || !is_sure(v->want_dx[i], m.dx[i].data, count, dtype) ||
            !fits_dtype(v->want_dx[i], count, v->dtype))
            v->unsure_dx |= 1u << i;
    }
    give_back(&m);
}

void rg_random_judge(rg_values *values, bool jumps)
{
    judge(values, 1, true);
    if (!jumps)
        judge(values, 2, false);
}
