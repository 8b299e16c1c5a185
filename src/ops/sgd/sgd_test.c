/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Gradient descent: the cases. */
#include "ops/optimizer/update_draw.h"

#include <retrograde/sgd.h>

#define PLAIN(shape)  "real:" shape " " shape " real:-"
#define MOVING(shape) "real:" shape " " shape " real:" shape " real:-"
#define PLAIN_FILL    .x_fill = { { 0 }, { 0 }, { 0.01, 0.2 }, { 0.2, 3 } }
#define MOVING_FILL   .x_fill = { { 0 }, { 0 }, { 0 }, { 0.01, 0.2 }, { 0.2, 3 } }

static double some_zeros(int64_t i)
{
    return i % 3 == 0 ? 0 : i % 3 == 1 ? -0.75 : 1.5;
}

static const rg_case cases[] = {
    { "plain-25M", "", PLAIN("25000000"), RG_CASE_BENCH | RG_CASE_BENCH_GPU, PLAIN_FILL },
    { "momentum-25M", "momentum=0.9", MOVING("25000000"), RG_CASE_BENCH | RG_CASE_BENCH_GPU,
      MOVING_FILL },

    { "one", "", PLAIN("1"), PLAIN_FILL },
    { "scalar", "momentum=0.5", MOVING("-"), MOVING_FILL },
    { "plain", "", PLAIN("5,37"), PLAIN_FILL },
    { "plain-long", "", PLAIN("3,16411"), PLAIN_FILL },
    { "plain-vectors", "", PLAIN("33,48"), PLAIN_FILL },
    { "mps", "momentum=0.9", MOVING("7,53"), MOVING_FILL },
    { "torch", "momentum=0.9 form=torch", MOVING("7,53"), MOVING_FILL },
    { "nesterov-mps", "momentum=0.9 nesterov=true", MOVING("7,53"), MOVING_FILL },
    { "nesterov-torch", "momentum=0.8 nesterov=true form=torch", MOVING("33,48"), MOVING_FILL },
    { "long", "momentum=0.9 form=torch", MOVING("40009"), MOVING_FILL },
    { "clip", "gradient.clip_minimum=-0.5 gradient.clip_maximum=1 gradient.rescale=0.25",
      PLAIN("4,19"), PLAIN_FILL },
    { "l1", "gradient.regularization=l1 gradient.regularization_scale=0.3", PLAIN("4,19"),
      .x_fill = { { 0, 0, some_zeros }, { 0 }, { 0.01, 0.2 } } },
    { "l2",
      "momentum=0.9 gradient.regularization=l2 gradient.regularization_scale=-1 "
      "gradient.rescale=2",
      MOVING("4,19"), MOVING_FILL },
    { "scaled", "scaled=true gradient.clip_maximum=0.5", PLAIN("4,19") " real:-", PLAIN_FILL },
    { "scaled-momentum", "scaled=true momentum=0.9", MOVING("4,19") " f64:-", MOVING_FILL },
    { "skipped", "scaled=true momentum=0.9", MOVING("4,19") " f32:-",
      .x_fill = { { 0 }, { 0, 0, special }, { 0 }, { 0.01, 0.2 }, { 0, 0, infinite } } },
    { "copy-f16", "copy=f16 momentum=0.9", MOVING("5,37"), 0, F16, MOVING_FILL },
    { "copy-bf16", "copy=bf16", PLAIN("5,37"), 0, BF16, PLAIN_FILL },
    { "copy-bf16-of-f32", "copy=bf16 momentum=0.9", MOVING("35,48"), 0, F32, MOVING_FILL },
    { "copy-long", "copy=f16", PLAIN("3,16411"), 0, F16 | BF16, PLAIN_FILL },
    { "special", "momentum=0.9", MOVING("3,17"), RG_CASE_SPECIAL,
      .x_fill = { { 0 }, { 0, 0, special }, { 0 }, { 0.01, 0.2 } } },
    { "special-clip", "gradient.clip_minimum=-2 gradient.clip_maximum=2", PLAIN("3,17"),
      RG_CASE_SPECIAL, .x_fill = { { 0 }, { 0, 0, special }, { 0.01, 0.2 } } },
    { "wide-rate", "", "real:4,19 4,19 f64:-", PLAIN_FILL },
    { "rank-8", "momentum=0.9", MOVING("2,1,3,2,1,2,3,2"), MOVING_FILL },
    { "empty", "momentum=0.9", MOVING("3,0,5"), MOVING_FILL },
    { .name = NULL },
};

/* ---- random trials ---- */

static void draw(rg_draw *d)
{
    rg_sgd_desc *desc = d->desc;
    rg_dtype real;
    const int32_t scale = draw_update(d, desc->momentum != 0, &real);
    draw_rules(d, scale, real, &desc->gradient);
    desc->nesterov &= desc->momentum != 0;
}

RG_OP_TEST_DEFINE_FORWARD(sgd, .cases = cases, .draw = draw);
