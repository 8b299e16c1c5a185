/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Fields, shape rule and recording, for sgd, rmsprop and adam. */
#ifndef RG_OPS_OPTIMIZER_UPDATE_RECORD_H
#define RG_OPS_OPTIMIZER_UPDATE_RECORD_H

#include "ops/ops.h"
#include "ops/optimizer/update.h"
#include "runtime/objects.h"

#include <retrograde/optimizer.h>

#include <math.h>

/* ---- fields ---- */

extern const char *const rg_update_forms[], *const rg_update_copies[];
extern const rg_field rg_gradient_fields[];

#define RG_GRADIENT_RULES_DEFAULT                                                         \
    {                                                                                     \
        .clip_minimum = -(double)INFINITY, .clip_maximum = (double)INFINITY, .rescale = 1 \
    }

/* The fields that all of them end with; `desc` is the type of the descriptor. */
#define RG_UPDATE_FIELDS(desc)                                                                  \
    RG_FIELD_STRUCT(desc, gradient, rg_gradient_fields,                                         \
                    "processing of the gradient before the step"),                              \
        RG_FIELD(desc, scaled,                                                                  \
                 "add a last input of rank 0, a factor of the gradient; infinite or NaN: skip " \
                 "the step"),                                                                   \
        RG_FIELD_NAMED(desc, copy, rg_update_copies,                                            \
                       "add a last output: the new parameter in 16 bits"),                      \
    {                                                                                           \
        .name = NULL                                                                            \
    }

/* ---- what an optimizer reports of a descriptor ---- */

typedef struct rg_update_plan {
    const char *op;
    const rg_gradient_rules *gradient;
    bool scaled, stepped; /* there is a scale, a step */
    rg_parameter_copy copy;
    rg_update_numbers numbers; /* those of its own, with `moments` */
} rg_update_plan;

int32_t rg_update_count_inputs(const rg_update_plan *p);

int32_t rg_update_count_outputs(const rg_update_plan *p);

/* Pairs that may be one tensor. */
const rg_alias *rg_update_aliases(const rg_update_plan *p);

rg_status rg_update_check(const rg_update_plan *p);

/* ---- shape rule ---- */

rg_status rg_update_shapes(const rg_update_plan *p, const char *const names[],
                           const rg_tensor_desc x[], rg_tensor_desc y[]);

/* ---- recording ---- */

/* Steps for `count` parameters: flat ones of a kind together, others by themselves. */
rg_status rg_update_record(const rg_update_plan *p, rg_call calls[], int32_t count);

/* Functions of an op's description that follow from its plan_of() and input_names(), and their
 * entries in it. */
#define RG_UPDATE_FUNCTIONS                                                                 \
    static int32_t count_inputs(const void *desc)                                           \
    {                                                                                       \
        const rg_update_plan plan = plan_of(desc);                                          \
        return rg_update_count_inputs(&plan);                                               \
    }                                                                                       \
    static int32_t count_outputs(const void *desc)                                          \
    {                                                                                       \
        const rg_update_plan plan = plan_of(desc);                                          \
        return rg_update_count_outputs(&plan);                                              \
    }                                                                                       \
    static const rg_alias *aliases_of(const void *desc)                                     \
    {                                                                                       \
        const rg_update_plan plan = plan_of(desc);                                          \
        return rg_update_aliases(&plan);                                                    \
    }                                                                                       \
    static rg_status shapes(const void *desc, const rg_tensor_desc x[], rg_tensor_desc y[]) \
    {                                                                                       \
        const rg_update_plan plan = plan_of(desc);                                          \
        return rg_update_shapes(&plan, input_names(desc), x, y);                            \
    }                                                                                       \
    static rg_status forward_calls(rg_call *calls, int32_t count)                           \
    {                                                                                       \
        const rg_update_plan plan = plan_of(calls->desc);                                   \
        return rg_update_record(&plan, calls, count);                                       \
    }                                                                                       \
    static rg_status forward(rg_call *call)                                                 \
    {                                                                                       \
        return forward_calls(call, 1);                                                      \
    }
#define RG_UPDATE_ENTRIES                                                                       \
    .aliases_of = aliases_of, .count_inputs = count_inputs, .count_outputs = count_outputs,     \
    .input_names = input_names, .output_names = output_names, .check = check, .shapes = shapes, \
    .updates = true, .forward = forward, .forward_calls = forward_calls

#endif
