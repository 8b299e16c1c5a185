/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* RMSProp: the cases. */
#include "ops/optimizer/update_draw.h"

#include <retrograde/rmsprop.h>

#define PLAIN(shape)  "real:" shape " " shape " real:" shape " real:-"
#define MOVING(shape) "real:" shape " " shape " real:" shape " real:" shape " real:-"
#define CENTERED(shape) \
    "real:" shape " " shape " real:" shape " real:" shape " real:" shape " real:-"
#define PLAIN_FILL  .x_fill = { { 0 }, { 0 }, { 0.5, 2 }, { 0.01, 0.2 }, { 0.2, 3 } }
#define MOVING_FILL .x_fill = { { 0 }, { 0 }, { 1, 2 }, { -0.5, 0.5 }, { 0.01, 0.2 }, { 0.2, 3 } }
#define CENTERED_FILL \
    .x_fill = { { 0 }, { 0 }, { 1, 2 }, { -0.5, 0.5 }, { 0 }, { 0.01, 0.2 }, { 0.2, 3 } }

static const rg_case cases[] = {
    { "plain-25M", "", PLAIN("25000000"), RG_CASE_BENCH | RG_CASE_BENCH_GPU, PLAIN_FILL },

    { "one", "", PLAIN("1"), PLAIN_FILL },
    { "scalar", "momentum=0.5", MOVING("-"), MOVING_FILL },
    { "plain", "", PLAIN("5,37"), PLAIN_FILL },
    { "decay", "decay=0.5 epsilon=0.25", PLAIN("7,53"), PLAIN_FILL },
    { "long", "", PLAIN("40009"), PLAIN_FILL },
    { "vectors", "form=torch decay=0.99", PLAIN("33,48"), PLAIN_FILL },
    { "mps", "momentum=0.9", MOVING("7,53"), MOVING_FILL },
    { "torch", "momentum=0.9 form=torch", MOVING("7,53"), MOVING_FILL },
    /* 0 as a float: p took a step without the rate, and the momentum was left alone */
    { "tiny-momentum", "momentum=1e-60", MOVING("7,53"), MOVING_FILL },
    { "centered", "centered=true", MOVING("7,53"), MOVING_FILL },
    { "centered-mps", "centered=true momentum=0.9", CENTERED("7,53"), CENTERED_FILL },
    { "centered-torch", "centered=true momentum=0.8 form=torch", CENTERED("33,48"), CENTERED_FILL },
    { "below-0", "centered=true epsilon=0.5", MOVING("4,19"),
      .x_fill = { { 0 }, { 0 }, { 0.1, 0.2 }, { 3, 4 }, { 0.01, 0.2 } } },
    { "rules",
      "gradient.clip_minimum=-0.5 gradient.clip_maximum=1 gradient.rescale=0.25 "
      "gradient.regularization=l2 gradient.regularization_scale=0.1",
      PLAIN("4,19"), PLAIN_FILL },
    { "l1", "gradient.regularization=l1 gradient.regularization_scale=0.3", PLAIN("4,19"),
      PLAIN_FILL },
    { "scaled", "scaled=true momentum=0.9 centered=true", CENTERED("4,19") " real:-",
      CENTERED_FILL },
    { "skipped", "scaled=true", PLAIN("4,19") " f32:-",
      .x_fill = { { 0 }, { 0, 0, special }, { 0.5, 2 }, { 0.01, 0.2 }, { 0, 0, infinite } } },
    { "copy-f16", "copy=f16 momentum=0.9 centered=true", CENTERED("5,37"), 0, F16, CENTERED_FILL },
    { "copy-bf16", "copy=bf16", PLAIN("5,37"), 0, BF16, PLAIN_FILL },
    { "copy-f16-of-f32", "copy=f16 momentum=0.9", MOVING("35,48"), 0, F32, MOVING_FILL },
    { "special", "momentum=0.9", MOVING("3,17"), RG_CASE_SPECIAL,
      .x_fill = { { 0 }, { 0, 0, special }, { 0.5, 2 }, { 0 }, { 0.01, 0.2 } } },
    { "special-centered", "centered=true", MOVING("3,17"), RG_CASE_SPECIAL,
      .x_fill = { { 0 }, { 0, 0, special }, { 0.5, 2 }, { 0 }, { 0.01, 0.2 } } },
    { "rank-8", "momentum=0.9", MOVING("2,1,3,2,1,2,3,2"), MOVING_FILL },
    { "empty", "", PLAIN("3,0,5"), PLAIN_FILL },
    { .name = NULL },
};

/* ---- random trials ---- */

static void draw(rg_draw *d)
{
    rg_rmsprop_desc *desc = d->desc;
    rg_dtype real;
    d->x_fill[2] = (rg_fill){ .low = 1, .high = 3 };
    d->x_fill[3] = (rg_fill){ .low = -0.5, .high = 0.5 }; /* a mean: its square is less */
    const int32_t scale = draw_update(d, 1 + desc->centered + (desc->momentum != 0), &real);
    draw_rules(d, scale, real, &desc->gradient);
    desc->epsilon = rg_draw_chance(d, 0.5) ? 1e-3 : 0.25;
}

RG_OP_TEST_DEFINE_FORWARD(rmsprop, .cases = cases, .draw = draw);
