/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Factors of a step: the cases. */
#include "ops/optest_draw.h"

#include <retrograde/grad_scale.h>

static double with_nan(int64_t i)
{
    return i == 3 ? __builtin_nan("") : 1;
}

static double with_infinity(int64_t i)
{
    return i == 4 ? __builtin_inf() : 0.5;
}

static double huge(int64_t i)
{
    (void)i;
    return 0x1p127;
}

/* The smallest power of two whose inverse is a float. */
static double smallest(int64_t i)
{
    (void)i;
    return 0x1p-127;
}

static const rg_case cases[] = {
    { "none", "", "real:7", .x_fill = { { 0, 4 } } },
    { "one", "max_norm=0.5", "real:-", .x_fill = { { 1, 4 } } },
    { "clipped", "max_norm=0.5", "real:3,7", .x_fill = { { 0, 4 } } },
    { "not-clipped", "max_norm=500", "real:3,7", .x_fill = { { 0, 4 } } },
    { "many", "max_norm=1 epsilon=0.5", "real:1000", .x_fill = { { 0, 4 } } },
    { "stepped", "max_norm=1 stepped=true", "real:7 i64:-", .x_fill = { { 0, 4 }, { 0, 90 } } },
    { "static", "scaling=static max_norm=0.01", "real:7 real:-",
      .x_fill = { { 0, 4 }, { 8, 1024 } } },
    { "static-stepped", "scaling=static stepped=true", "real:7 real:- i64:-",
      .x_fill = { { 0, 4 }, { 8, 1024 }, { 0, 90 } } },
    { "dynamic", "scaling=dynamic", "real:7 real:- i64:-",
      .x_fill = { { 0, 4 }, { 8, 1024 }, { 0, 90 } } },
    { "dynamic-grows", "scaling=dynamic interval=3 growth=4 stepped=true",
      "real:7 real:- i64:- i64:-", .x_fill = { { 0, 4 }, { 8, 1024 }, { 2, 2.5 }, { 0, 90 } } },
    { "dynamic-at-its-end", "scaling=dynamic interval=1 growth=16", "real:7 real:- i64:-", 0,
      1 << RG_F32, .x_fill = { { 0, 4 }, { 0, 0, huge }, { 0, 90 } } },
    { "dynamic-nan", "scaling=dynamic stepped=true", "real:7 real:- i64:- i64:-", RG_CASE_SPECIAL,
      .x_fill = { { 0, 0, with_nan }, { 8, 1024 }, { 5, 90 }, { 5, 90 } } },
    { "dynamic-infinity", "scaling=dynamic stepped=true backoff=0.25 max_norm=1",
      "real:7 real:- i64:- i64:-", RG_CASE_SPECIAL,
      .x_fill = { { 0, 0, with_infinity }, { 8, 1024 }, { 5, 90 }, { 5, 90 } } },
    { "dynamic-no-way-down", "scaling=dynamic backoff=0", "real:7 real:- i64:-", RG_CASE_SPECIAL,
      .x_fill = { { 0, 0, with_infinity }, { 8, 1024 }, { 5, 90 } } },
    /* scales went on down to 0: no later step had a finite factor, yet steps were counted */
    { "dynamic-at-its-least", "scaling=dynamic", "real:7 real:- i64:-", RG_CASE_SPECIAL,
      1 << RG_F32, .x_fill = { { 0, 0, with_infinity }, { 0, 0, smallest }, { 5, 90 } } },
    { "rank-8", "max_norm=1", "real:2,1,3,2,1,2,3,2", .x_fill = { { 0, 4 } } },
    { "empty", "max_norm=1", "real:3,0,5" },
    { .name = NULL },
};

/* ---- random trials ---- */

static void draw(rg_draw *d)
{
    rg_grad_scale_desc *desc = d->desc;
    const rg_dtype real = rg_draw_real_dtype(d);
    int32_t next = 1;
    d->x[0] = rg_draw_shape(d, 0, RG_MAX_RANK);
    d->x[0].dtype = real;
    d->x_fill[0] = (rg_fill){ .low = 0, .high = 4 };
    if (desc->scaling != RG_LOSS_SCALING_NONE) {
        d->x_fill[next] = (rg_fill){ .low = 8, .high = 1024 };
        d->x[next++] = rg_draw_scalar(real);
    }
    for (int32_t i = next; i < next + 2; i++) {
        d->x_fill[i] = (rg_fill){ .low = 0, .high = 90 };
        d->x[i] = rg_draw_scalar(RG_I64);
    }
    desc->interval = rg_draw_between(d, 1, 5);
}

RG_OP_TEST_DEFINE_FORWARD(grad_scale, .cases = cases, .draw = draw);
