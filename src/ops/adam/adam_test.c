/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Adam: the cases. */
#include "ops/optimizer/update_draw.h"

#include <retrograde/adam.h>

#define ADAM(shape) "real:" shape " " shape " real:" shape " real:" shape " real:- i64:-"
#define AMS(shape) \
    "real:" shape " " shape " real:" shape " real:" shape " real:" shape " real:- i64:-"
#define ADAM_FILL \
    .x_fill = { { 0 }, { 0 }, { 0 }, { 0.1, 2 }, { 0.01, 0.2 }, { 1, 30 }, { 0.2, 3 } }
#define AMS_FILL \
    .x_fill = { { 0 }, { 0 }, { 0 }, { 0.1, 2 }, { 0.1, 2 }, { 0.01, 0.2 }, { 1, 30 }, { 0.2, 3 } }

static double none(int64_t i)
{
    (void)i;
    return 0;
}

static const rg_case cases[] = {
    { "adam-25M", "", ADAM("25000000"), RG_CASE_BENCH | RG_CASE_BENCH_GPU, ADAM_FILL },
    { "adam-25M-torch-decay", "form=torch decay=0.01", ADAM("25000000"),
      RG_CASE_BENCH | RG_CASE_BENCH_GPU, ADAM_FILL },
    { "adam-25M-bf16-copy", "copy=bf16", ADAM("25000000"), RG_CASE_BENCH | RG_CASE_BENCH_GPU, BF16,
      ADAM_FILL },

    { "one", "", ADAM("1"), ADAM_FILL },
    { "scalar", "amsgrad=true", AMS("-"), AMS_FILL },
    { "mps", "", ADAM("5,37"), ADAM_FILL },
    { "torch", "form=torch", ADAM("5,37"), ADAM_FILL },
    { "numbers", "beta1=0.5 beta2=0.9 epsilon=0.25", ADAM("7,53"), ADAM_FILL },
    { "numbers-torch", "form=torch beta1=0.5 beta2=0.9 epsilon=0.25", ADAM("7,53"), ADAM_FILL },
    { "no-memory", "beta1=0 beta2=0 epsilon=0.5", ADAM("7,53"), ADAM_FILL },
    { "long", "form=torch", ADAM("40009"), ADAM_FILL },
    { "vectors", "", ADAM("33,48"), ADAM_FILL },
    { "late", "", ADAM("4,19"),
      .x_fill = { { 0 }, { 0 }, { 0 }, { 0.1, 2 }, { 0.01, 0.2 }, { 100000, 2000000 } } },
    /* the first step of ONNX's Adam: parameters became NaN */
    { "step-0", "", ADAM("4,19"),
      .x_fill = { { 0 }, { 0 }, { 0 }, { 0.1, 2 }, { 0.01, 0.2 }, { 0, 0, none } } },
    { "step-0-torch", "form=torch", ADAM("4,19"),
      .x_fill = { { 0 }, { 0 }, { 0 }, { 0.1, 2 }, { 0.01, 0.2 }, { 0, 0, none } } },
    { "amsgrad", "amsgrad=true", AMS("7,53"), AMS_FILL },
    { "amsgrad-torch", "amsgrad=true form=torch", AMS("33,48"), AMS_FILL },
    { "decay", "decay=0.1", ADAM("7,53"), ADAM_FILL },
    { "decay-torch", "decay=0.3 form=torch amsgrad=true", AMS("7,53"), AMS_FILL },
    { "rules",
      "gradient.clip_minimum=-0.5 gradient.clip_maximum=1 gradient.rescale=0.25 "
      "gradient.regularization=l2 gradient.regularization_scale=0.1",
      ADAM("4,19"), ADAM_FILL },
    { "l1", "gradient.regularization=l1 gradient.regularization_scale=0.3", ADAM("4,19"),
      ADAM_FILL },
    { "scaled", "scaled=true", ADAM("4,19") " real:-", ADAM_FILL },
    { "scaled-amsgrad", "scaled=true amsgrad=true", AMS("4,19") " f64:-", AMS_FILL },
    { "skipped", "scaled=true decay=0.5", ADAM("4,19") " f32:-",
      .x_fill = { { 0 },
                  { 0, 0, special },
                  { 0 },
                  { 0.1, 2 },
                  { 0.01, 0.2 },
                  { 1, 30 },
                  { 0, 0, infinite } } },
    { "skipped-copy", "scaled=true copy=f16 amsgrad=true", AMS("4,19") " f64:-", 0, F16 | F32,
      .x_fill = { { 0 },
                  { 0 },
                  { 0 },
                  { 0.1, 2 },
                  { 0.1, 2 },
                  { 0.01, 0.2 },
                  { 1, 30 },
                  { 0, 0, infinite } } },
    { "copy-f16", "copy=f16", ADAM("5,37"), 0, F16, ADAM_FILL },
    { "copy-bf16", "copy=bf16 amsgrad=true", AMS("5,37"), 0, BF16, AMS_FILL },
    { "copy-bf16-of-f32", "copy=bf16", ADAM("35,48"), 0, F32, ADAM_FILL },
    { "copy-f16-of-bf16", "copy=f16", ADAM("35,48"), 0, BF16, ADAM_FILL },
    { "copy-long", "copy=bf16", ADAM("3,16411"), 0, BF16 | F32, ADAM_FILL },
    { "special", "", ADAM("3,17"), RG_CASE_SPECIAL,
      .x_fill = { { 0 }, { 0, 0, special }, { 0 }, { 0.1, 2 }, { 0.01, 0.2 }, { 1, 30 } } },
    { "special-amsgrad", "amsgrad=true form=torch", AMS("3,17"), RG_CASE_SPECIAL,
      .x_fill = { { 0 },
                  { 0, 0, special },
                  { 0 },
                  { 0.1, 2 },
                  { 0.1, 2 },
                  { 0.01, 0.2 },
                  { 1, 30 } } },
    { "wide-rate", "", "real:4,19 4,19 real:4,19 real:4,19 f64:- i64:-", ADAM_FILL },
    { "rank-8", "", ADAM("2,1,3,2,1,2,3,2"), ADAM_FILL },
    { "empty", "amsgrad=true", AMS("3,0,5"), AMS_FILL },
    { .name = NULL },
};

/* ---- random trials ---- */

static void draw(rg_draw *d)
{
    rg_adam_desc *desc = d->desc;
    rg_dtype real;
    d->x_fill[3] = d->x_fill[4] = (rg_fill){ .low = 0.1, .high = 2 };
    const int32_t step = draw_update(d, 2 + desc->amsgrad, &real);
    d->x_fill[step] = (rg_fill){ .low = 0, .high = rg_draw_chance(d, 0.5) ? 4 : 1e5 };
    d->x[step] = rg_draw_scalar(RG_I64);
    draw_rules(d, step + 1, real, &desc->gradient);
    desc->epsilon = rg_draw_chance(d, 0.5) ? 1e-3 : 0.25;
}

RG_OP_TEST_DEFINE_FORWARD(adam, .cases = cases, .draw = draw);
