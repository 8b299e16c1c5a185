/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Neurons: the cases. */
#include "ops/optest_draw.h"

#include <retrograde/neuron.h>

static double special(int64_t i)
{
    const double inf = __builtin_inf();
    const double values[] = { 0, -0.0, inf, -inf, __builtin_nan(""), 1e-7, -1e-7, 60, -60 };
    return values[(i + i / 9) % 9]; /* each row starts with another one */
}

/* Quarters from -8 to 8: corners and borders exactly. */
static double quarters(int64_t i)
{
    return (double)(i * 7 % 65 - 32) / 4;
}

/* Around the ends of what the types hold. */
static double huge(int64_t i)
{
    const double values[] = { 6e4, -6e4, 88, -88, 1e3, -1e3, 17, -17, 9, -9, 2.5 };
    return values[i % 11];
}

#define WIDE    .x_fill = { { -12, 12 } }
#define ABOVE_0 .x_fill = { { 0.125, 4 } }
#define EXACT   .x_fill = { { .at = quarters } }
/* Too far apart for finite differences, which double is checked by. */
#define HUGE_VALUES .only = ~(1u << RG_F64), .x_fill = { { .at = huge } }
#define SPECIAL     .x_fill = { { .at = special } }
#define BOTH        .x_fill = { { .at = special } }, .dy_fill = { .at = special }

/* A number whose sums are rounded in one direction for long. */
static double tenth(int64_t i)
{
    (void)i;
    return 0.1;
}

#define ONLY_F32 .only = 1 << RG_F32
#define LONG_SUM .x_fill = { { -1.5, -0.5 } }, .dy_fill = { .at = tenth }

static const rg_case cases[] = {
    /* timed */
    { "relu-16M", "kind=relu", "16777216", RG_CASE_BENCH },
    { "sigmoid-16M", "kind=sigmoid", "16777216", RG_CASE_BENCH },
    { "sigmoid-16M-from-y", "kind=sigmoid from_y=true", "16777216", RG_CASE_BENCH },
    { "tanh-16M", "kind=tanh", "16777216", RG_CASE_BENCH },
    { "tanh-16M-from-y", "kind=tanh from_y=true", "16777216", RG_CASE_BENCH },
    { "elu-16M", "kind=elu", "16777216", RG_CASE_BENCH },
    { "gelu-16M", "kind=gelu", "16777216", RG_CASE_BENCH },
    { "prelu-16M", "kind=prelu", "262144,64 64", RG_CASE_BENCH },

    /* timed on a GPU */
    { "relu-256M", "kind=relu", "268435456", RG_CASE_BENCH_GPU },
    { "sigmoid-256M", "kind=sigmoid", "268435456", RG_CASE_BENCH_GPU },
    { "sigmoid-256M-from-y", "kind=sigmoid from_y=true", "268435456", RG_CASE_BENCH_GPU },
    { "tanh-256M", "kind=tanh", "268435456", RG_CASE_BENCH_GPU },
    { "tanh-256M-from-y", "kind=tanh from_y=true", "268435456", RG_CASE_BENCH_GPU },
    { "elu-256M", "kind=elu", "268435456", RG_CASE_BENCH_GPU },
    { "gelu-256M", "kind=gelu", "268435456", RG_CASE_BENCH_GPU },
    { "prelu-256M", "kind=prelu", "4194304,64 64", RG_CASE_BENCH_GPU },

    { "relu", "kind=relu", "5,37" },
    { "relu-leaky", "kind=relu a=0.25", "3,7,5,21" },
    { "relu-negative-slope", "kind=relu a=-0.5", "1000" },
    { "relu-corner", "kind=relu a=0.25", "5,37", .x_fill = { { .at = quarters } } },
    { "relu-from-y", "kind=relu a=0.125 from_y=true", "5,37" },
    { "sigmoid", "kind=sigmoid", "5,37", WIDE },
    { "sigmoid-from-y", "kind=sigmoid from_y=true", "5,37" },
    { "tanh", "kind=tanh", "5,37", .x_fill = { { -6, 6 } } },
    { "tanh-scaled", "kind=tanh a=1.75 b=0.625", "7,3,11" },
    { "tanh-scaled-from-y", "kind=tanh a=-1.75 b=0.625 from_y=true", "7,3,11" },
    { "tanh-zero", "kind=tanh a=0", "5,37", RG_CASE_ZERO },
    { "none", "kind=none a=3 b=2", "5,37" },
    { "none-from-y", "kind=none from_y=true", "5,37" },
    { "linear", "kind=linear", "5,37" },
    { "linear-scaled", "kind=linear a=-1.75 b=0.625", "5,37" },
    { "linear-from-y", "kind=linear a=2.5 b=3 from_y=true", "5,37" },
    { "hard-sigmoid", "kind=hard_sigmoid", "5,37", .x_fill = { { -5, 5 } } },
    { "hard-sigmoid-borders", "kind=hard_sigmoid", "5,65", EXACT },
    { "hard-sigmoid-falling", "kind=hard_sigmoid a=-0.25 b=0.75", "5,65", EXACT },
    { "hard-sigmoid-flat", "kind=hard_sigmoid a=0", "5,37", RG_CASE_ZERO },
    { "absolute", "kind=absolute", "5,37" },
    { "absolute-corner", "kind=absolute", "5,65", EXACT },
    { "softplus", "kind=softplus", "5,37", WIDE },
    { "softplus-scaled", "kind=softplus a=-1.5 b=0.75", "7,3,11", WIDE },
    { "softplus-from-y", "kind=softplus from_y=true", "5,37", WIDE },
    { "softplus-scaled-from-y", "kind=softplus a=-1.5 b=-0.75 from_y=true", "7,3,11", WIDE },
    { "softsign", "kind=softsign", "5,37", WIDE },
    { "softsign-from-y", "kind=softsign from_y=true", "5,37" },
    { "elu", "kind=elu", "5,37", .x_fill = { { -6, 6 } } },
    { "elu-scaled", "kind=elu a=-0.5", "7,3,11" },
    { "elu-corner", "kind=elu a=0.25", "5,65", EXACT },
    { "elu-from-y", "kind=elu a=0.75 from_y=true", "5,37" },
    { "relun", "kind=relun", "5,37", WIDE },
    { "relun-6", "kind=relun a=0", "5,65", EXACT },
    { "relun-scaled", "kind=relun a=0.25 b=1.5", "5,65", EXACT },
    { "relun-negative", "kind=relun a=-2 b=-0.5", "5,37", RG_CASE_ZERO },
    { "relun-both-sides", "kind=relun a=-0.5 b=1", "5,65", EXACT },
    { "relun-from-y", "kind=relun a=0.25 b=1.5 from_y=true", "5,65", EXACT },
    { "relun-6-from-y", "kind=relun a=0 from_y=true", "5,37", WIDE },
    { "power", "kind=power", "5,37" },
    { "power-square", "kind=power a=1.5 b=0.25 c=2", "5,37" },
    { "power-cube", "kind=power a=-0.75 b=0.5 c=3", "5,37" },
    { "power-root", "kind=power c=0.5", "5,37", ABOVE_0 },
    { "power-broken", "kind=power a=2 b=1 c=-1.75", "7,3,11", ABOVE_0 },
    { "power-inverse", "kind=power c=-3", "5,37", .x_fill = { { 0.5, 2 } } },
    { "power-odd", "kind=power a=0.5 c=37", "5,37", .x_fill = { { -2.25, -1.5 } } },
    { "power-even", "kind=power a=-0.5 c=40", "5,37", .x_fill = { { -2.25, 2.25 } } },
    { "power-zero", "kind=power c=0", "5,37", RG_CASE_ZERO },
    { "exponential", "kind=exponential", "5,37", .x_fill = { { -6, 6 } } },
    { "exponential-base", "kind=exponential a=1.25 b=-0.5 c=2", "5,37" },
    { "exponential-small-base", "kind=exponential a=-0.5 b=0.25 c=0.125", "5,37" },
    { "exponential-from-y", "kind=exponential a=1.25 b=-0.5 c=2 from_y=true", "5,37" },
    { "logarithm", "kind=logarithm", "5,37", ABOVE_0 },
    { "logarithm-base", "kind=logarithm a=0.5 b=1.5 c=10", "5,37" },
    { "logarithm-small-base", "kind=logarithm a=-0.5 b=1.5 c=0.5", "5,37" },
    { "gelu", "kind=gelu", "5,37", .x_fill = { { -6, 6 } } },
    { "gelu-near", "kind=gelu", "3,7,5,21" },
    { "gelu-far", "kind=gelu", "5,37", HUGE_VALUES },
    { "gelu-tanh", "kind=gelu_tanh", "5,37", .x_fill = { { -6, 6 } } },
    { "gelu-tanh-near", "kind=gelu_tanh", "3,7,5,21" },
    { "gelu-tanh-far", "kind=gelu_tanh", "5,37", HUGE_VALUES },
    { "swish", "kind=swish", "5,37", WIDE },
    { "swish-quick-gelu", "kind=swish a=1.702", "3,7,5,21" },
    { "swish-negative", "kind=swish a=-1.702", "5,37" },
    { "far-sigmoid", "kind=sigmoid", "5,37", HUGE_VALUES },
    { "far-tanh", "kind=tanh", "5,37", HUGE_VALUES },
    { "far-softplus", "kind=softplus", "5,37", HUGE_VALUES },
    { "far-elu", "kind=elu", "5,37", HUGE_VALUES },
    { "far-swish", "kind=swish", "5,37", HUGE_VALUES },
    { "overflow", "kind=tanh a=70000", "5,37", RG_CASE_FORWARD, .only = 1 << RG_F16 },

    { "prelu", "kind=prelu", "5,37 37" },
    { "prelu-corner", "kind=prelu", "5,65 65", EXACT },
    { "prelu-one", "kind=prelu", "1 1", .x_fill = { { -2, -1 } } },
    { "prelu-one-channel", "kind=prelu", "17,31,1 1" },
    { "prelu-row", "kind=prelu", "70 70" },
    { "prelu-3-channels", "kind=prelu", "3,41,37,3 3" },
    { "prelu-image", "kind=prelu", "2,9,7,24 24" },
    { "prelu-parts", "kind=prelu", "517,129 129" },
    { "prelu-many-parts", "kind=prelu", "70001,2 2" },
    { "prelu-blocks", "kind=prelu", "300,1027 1027" },
    { "prelu-block", "kind=prelu", "7,1024 1024" },
    { "prelu-two-blocks", "kind=prelu", "3,1027 1027" },
    { "prelu-pairs", "kind=prelu", "37,64 64" }, /* bf16: slopes and sums in the order of pairs */
    { "prelu-pairs-many", "kind=prelu", "3,29,13,32 32" },
    { "prelu-pairs-special", "kind=prelu", "9,32 32", RG_CASE_SPECIAL, SPECIAL },
    { "prelu-two-parts", "kind=prelu", "70,256 256" },
    { "prelu-pieces", "kind=prelu", "37,530 530" },
    { "prelu-rank-8", "kind=prelu", "2,1,3,2,5,2,1,3 3" },
    { "prelu-empty", "kind=prelu", "3,0,2 2", RG_CASE_ZERO },
    { "prelu-no-channels", "kind=prelu", "3,0 0", RG_CASE_ZERO },
    { "prelu-special", "kind=prelu", "3,9 9", RG_CASE_SPECIAL, SPECIAL },

    { "scalar", "kind=tanh", "-" },
    { "rows", "kind=sigmoid", "5,64" },
    { "one", "kind=sigmoid", "1" },
    { "rank-8", "kind=sigmoid", "2,1,3,2,5,2,1,3" },
    { "pieces", "kind=relu a=0.5", "3,20011" },
    { "pieces-strided", "kind=relu a=0.5", "1,17001" },
    { "empty", "kind=relu", "3,0,2", RG_CASE_ZERO },
    { "special-none", "kind=none", "3,9", RG_CASE_SPECIAL, BOTH },
    { "special-relu", "kind=relu a=0.5", "3,9", RG_CASE_SPECIAL, SPECIAL },
    { "special-relu-flat", "kind=relu", "3,9", RG_CASE_SPECIAL, BOTH },
    { "special-linear", "kind=linear a=2 b=1", "3,9", RG_CASE_SPECIAL, SPECIAL },
    { "special-hard-sigmoid-flat", "kind=hard_sigmoid a=0", "3,9", RG_CASE_SPECIAL, SPECIAL },
    { "special-sigmoid", "kind=sigmoid", "3,9", RG_CASE_SPECIAL, SPECIAL },
    { "special-sigmoid-from-y", "kind=sigmoid from_y=true", "3,9", RG_CASE_SPECIAL, SPECIAL },
    { "special-hard-sigmoid", "kind=hard_sigmoid", "3,9", RG_CASE_SPECIAL, SPECIAL },
    { "special-hard-sigmoid-flat", "kind=hard_sigmoid", "3,9", RG_CASE_SPECIAL,
      .only = 1 << RG_F32 | 1 << RG_F64, BOTH },
    { "special-tanh", "kind=tanh", "3,9", RG_CASE_SPECIAL, SPECIAL },
    { "special-absolute", "kind=absolute", "3,9", RG_CASE_SPECIAL, BOTH },
    { "special-softplus", "kind=softplus", "3,9", RG_CASE_SPECIAL, SPECIAL },
    { "special-softsign", "kind=softsign", "3,9", RG_CASE_SPECIAL, SPECIAL },
    { "special-elu", "kind=elu", "3,9", RG_CASE_SPECIAL, SPECIAL },
    { "special-relun", "kind=relun a=0", "3,9", RG_CASE_SPECIAL, BOTH },
    { "special-power", "kind=power c=3", "3,9", RG_CASE_SPECIAL, SPECIAL },
    { "special-power-broken", "kind=power c=1.5", "3,9", RG_CASE_SPECIAL, SPECIAL },
    { "special-power-even", "kind=power c=-36", "3,9", RG_CASE_SPECIAL, .only = 1 << RG_F64,
      SPECIAL },
    { "special-exponential", "kind=exponential a=0.125", "3,9", RG_CASE_SPECIAL, SPECIAL },
    { "special-logarithm", "kind=logarithm", "3,9", RG_CASE_SPECIAL, SPECIAL },
    { "special-gelu", "kind=gelu", "3,9", RG_CASE_SPECIAL, SPECIAL },
    { "special-gelu-tanh", "kind=gelu_tanh", "3,9", RG_CASE_SPECIAL, SPECIAL },
    { "special-swish", "kind=swish", "3,9", RG_CASE_SPECIAL, SPECIAL },

    /* long sums of what does not cancel */
    { "prelu-sum-4096", "kind=prelu", "4096,3 3", 0, ONLY_F32, LONG_SUM },
    { "prelu-sum-524288", "kind=prelu", "524288,2 2", 0, ONLY_F32, LONG_SUM },
    { "prelu-sum-67m", "kind=prelu", "67108864,1 1", 0, ONLY_F32, LONG_SUM },
    { .name = NULL },
};

/* ---- random trials ---- */

/* Numbers are given in every other trial. Logarithms and powers see numbers above 0. */
static void draw(rg_draw *d)
{
    rg_neuron_desc *desc = d->desc;
    if (rg_draw_chance(d, 0.15))
        desc->kind = RG_NEURON_PRELU; /* the only one with sums */
    d->x[0] = rg_draw_shape(d, desc->kind == RG_NEURON_PRELU, RG_MAX_RANK);
    if (desc->kind == RG_NEURON_PRELU)
        d->x[1] = rg_draw_vector(d->dtype, d->x[0].dims[d->x[0].rank - 1]);
    if (rg_draw_chance(d, 0.5)) {
        desc->has_a = desc->has_b = desc->has_c = false;
        desc->a = desc->b = desc->c = 0;
    }
    if (desc->kind == RG_NEURON_LOGARITHM || desc->kind == RG_NEURON_POWER)
        d->x_fill[0] = (rg_fill){ .low = 0.25, .high = 4 };
}

RG_OP_TEST_DEFINE(neuron, .cases = cases, .draw = draw);
