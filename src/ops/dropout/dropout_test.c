/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Dropout: the cases. */
#include "ops/optest_draw.h"

#include <retrograde/dropout.h>

static double one(int64_t i)
{
    (void)i;
    return 1;
}

static double special(int64_t i)
{
    const double inf = __builtin_inf();
    const double values[] = { 0, -0.0, inf, -inf, __builtin_nan(""), 1e-7, 60 };
    return values[i % 7];
}

/* Known answers of Philox4x32-10 for the key 0 and the counter 0: 6627e8d5 e169c58d bc57ac4c
 * 9b00dbd8. By halves, lower ones first: the second is less than 0.5 times 2^16; the second, fifth,
 * sixth and eighth are less than 0.75 times 2^16. */
static const double known_half[] = { 0, 2, 0, 0, 0, 0, 0, 0 };
static const double known_most[] = { 0, 4.0 / 3, 0, 0, 4.0 / 3, 4.0 / 3, 0, 4.0 / 3 };

static const rg_case cases[] = {
    /* timed */
    { "16M", "keep=0.9 seed=1", "16777216", RG_CASE_BENCH },
    { "channels-16M", "keep=0.9 seed=1 broadcast=1,2", "64,64,64,64", RG_CASE_BENCH },

    /* timed on a GPU */
    { "256M", "keep=0.9 seed=1", "268435456", RG_CASE_BENCH_GPU },
    { "channels-256M", "keep=0.9 seed=1 broadcast=1,2", "256,128,128,64", RG_CASE_BENCH_GPU },

    { "known-half", "keep=0.5", "8", RG_CASE_FORWARD, .x_fill = { { .at = one } },
      .golden = known_half },
    { "known-most", "keep=0.75", "8", RG_CASE_FORWARD, .x_fill = { { .at = one } },
      .golden = known_most },
    { "matrix", "keep=0.5", "5,37" },
    { "image", "keep=0.75 seed=7 step=3", "3,7,5,21" },
    { "keep-all", "keep=1 seed=5", "5,37" },
    { "keep-halves", "keep=0.50000762939453125 seed=5", "3,20011" }, /* ties of upper halves */
    /* element 2 has the upper half of the limit, and a lower half that is just kept, or not */
    { "tie-kept", "keep=0.7716908126603812", "8" },
    { "tie-dropped", "keep=0.7716908124275506", "8" },
    { "keep-tiny", "keep=0.00001 seed=3", "3,70001", RG_CASE_FORWARD },
    { "keep-few", "keep=0.0625 seed=5", "5,37" },
    { "keep-least", "keep=1e-30", "5,37", RG_CASE_FORWARD | RG_CASE_ZERO },
    { "seed-wide", "keep=0.5 seed=-81985529216486896 step=-1", "67" },
    { "step-wide", "keep=0.5 seed=81985529216486895 step=1311768467463790320", "67" },
    /* a step of its own was asked for a gradient, and the definition did not know it */
    { "step-input", "keep=0.5 seed=5 step=3 step_input=true", "5,37 i64:-",
      .x_fill = { { 0 }, { 7, 8 } } },
    { "step-below-0", "keep=0.5 seed=5 step_input=true", "5,37 i64:-",
      .x_fill = { { 0 }, { -9, -8 } } },
    { "scalar", "keep=0.9 seed=1", "-" },
    { "one", "keep=0.9 seed=1", "1" },
    { "one-channel", "keep=0.75 seed=3", "5,7,1" },
    { "rank-8", "keep=0.5 seed=2", "2,1,3,2,5,2,1,3" },
    { "pieces", "keep=0.5 seed=3", "3,20011" },
    { "pieces-strided", "keep=0.5 seed=3", "1,17001" },
    { "broadcast-channels", "keep=0.5 seed=4 broadcast=-1", "3,7,5,21" },
    { "broadcast-space", "keep=0.5 seed=4 broadcast=1,2", "3,4,5,67" },
    { "broadcast-width", "keep=0.5 seed=4 broadcast=2", "3,4,5,33" },
    { "broadcast-images", "keep=0.5 seed=6 broadcast=0", "3,4,5,13" },
    { "broadcast-ends", "keep=0.5 seed=6 broadcast=-1,0", "3,11,5,13" },
    { "broadcast-all", "keep=0.9 seed=1 broadcast=0,1", "3,11" },
    { "broadcast-long", "keep=0.5 seed=9 broadcast=1", "7,17001" },
    { "vectors-space", "keep=0.5 seed=4 broadcast=1,2", "2,6,5,24" },
    { "vectors-channels", "keep=0.5 seed=4 broadcast=-1", "2,6,5,24" },
    { "vectors-rows", "keep=0.5 seed=4 broadcast=1", "2,6,5,24" },
    { "vectors-half-block", "keep=0.5 seed=4 broadcast=2", "3,5,7,12" },
    { "empty", "keep=0.5", "3,0,2", RG_CASE_ZERO },
    { "empty-broadcast", "keep=0.5 broadcast=1", "3,0,2", RG_CASE_ZERO },
    { "overflow", "keep=0.001 seed=8", "50,37", RG_CASE_FORWARD, .only = 1 << RG_F16,
      .x_fill = { { 100, 200 } } },
    { "special", "keep=0.5 seed=1", "5,7", RG_CASE_SPECIAL, .x_fill = { { .at = special } },
      .dy_fill = { .at = special } },
    { .name = NULL },
};

/* ---- random trials ---- */

static void draw(rg_draw *d)
{
    rg_dropout_desc *desc = d->desc;
    d->x[0] = rg_draw_shape(d, 0, RG_MAX_RANK);
    d->x[1] = rg_draw_scalar(RG_I64);
    d->x_fill[1] = (rg_fill){ .low = 0, .high = 1000 };
    desc->keep = rg_draw_chance(d, 0.1) ? 1 : rg_draw_real(d, 0.05, 1);
    desc->broadcast_count = 0;
    if (rg_draw_chance(d, 0.4))
        desc->broadcast_count = rg_draw_axes(d, d->x[0].rank, desc->broadcast);
}

RG_OP_TEST_DEFINE(dropout, .cases = cases, .draw = draw);
