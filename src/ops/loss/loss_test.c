/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Losses: the cases. */
#include "ops/optest_draw.h"

#include <retrograde/loss.h>

#define ABSOLUTE    "kind=mean_absolute "
#define SQUARED     "kind=mean_squared "
#define SOFTMAX     "kind=softmax_cross_entropy "
#define SIGMOID     "kind=sigmoid_cross_entropy "
#define CATEGORICAL "kind=categorical_cross_entropy "
#define HINGE       "kind=hinge "
#define HUBER       "kind=huber "
#define COSINE      "kind=cosine_distance reduction=sum "
#define LOG         "kind=log epsilon=0.01 "
#define KULLBACK    "kind=kullback_leibler "
#define CLASSES     "labels=classes "
#define NONE        "reduction=none "
#define SUM         "reduction=sum "
#define NON_ZERO    "reduction=sum_by_non_zero_weights "
#define IMAGES      "across_batch=false "
#define WEIGHTS     "weights=true "
#define BOTH        "gradient_output=true "

/* Hinge has labels 0 and 1. */
static double binary(int64_t i)
{
    return (double)(i * 7 % 5 % 2);
}

/* Some weights are 0. */
static double sparse(int64_t i)
{
    return i % 3 == 1 ? 0 : 0.5 + (double)(i % 5) / 4;
}

static double no_weight(int64_t i)
{
    (void)i;
    return 0;
}

/* Labels, some of which are ignored: -100. */
static double some_ignored(int64_t i)
{
    return i % 4 == 2 ? -100 : (double)(i * 5 % 7);
}

static double all_ignored(int64_t i)
{
    (void)i;
    return -100;
}

static double huge(int64_t i)
{
    return (double)(i * 31 % 17 - 8) * 3000;
}

/* So large that e^y overflows in f32, in the first piece of a row alone. */
static double falling(int64_t i)
{
    return i < 100 ? 200 : 0;
}

static double special(int64_t i)
{
    const double inf = __builtin_inf();
    const double values[] = { 0, 1, inf, -inf, __builtin_nan(""), 0.5, 60 };
    return values[i % 7];
}

static double special_values(int64_t i)
{
    const double inf = __builtin_inf();
    return i == 3 ? -inf : i == 20 ? inf : i == 33 ? __builtin_nan("") : (double)(i % 5);
}

#define SHARES   \
    {            \
        0.1, 0.9 \
    }
#define OF_TEN \
    {          \
        0, 10  \
    }
#define OF_FIVE \
    {           \
        0, 5    \
    }
#define OF_SEVEN \
    {            \
        0, 7     \
    }

/* Where no reads go through y: a row has one label, and only its class is looked at. */
static int64_t needs(const void *desc, const rg_tensor_desc x[], const rg_tensor_desc y[],
                     bool gradient)
{
    const rg_loss_desc *d = desc;
    int64_t rows = 1, count = 1;
    for (int32_t i = 0; i < (gradient ? y->rank : x->rank); i++)
        count *= gradient ? y->dims[i] : x->dims[i];
    for (int32_t i = 0; i < x->rank - 1; i++)
        rows *= x->dims[i];
    const bool picks =
        d->labels == RG_LOSS_CLASS_LABELS && d->kind != RG_LOSS_SOFTMAX_CROSS_ENTROPY;
    return picks && !gradient ? rows : count;
}

#define ONLY_F32 .only = 1 << RG_F32
#define APART    .x_fill = { { 0.5, 1.5 }, { 2.5, 3.5 }, { 0.5, 1.5 } }

static const rg_case cases[] = {
    /* timed: loss and gradient together */
    { "classes-8192x1000", SOFTMAX CLASSES BOTH, "8192,1000 i32:8192",
      RG_CASE_BENCH | RG_CASE_BENCH_GPU | RG_CASE_FORWARD, .x_fill = { { 0 }, { 0, 1000 } } },
    { "classes-512x32000", SOFTMAX CLASSES BOTH, "512,32000 i32:512",
      RG_CASE_BENCH | RG_CASE_BENCH_GPU | RG_CASE_FORWARD, .x_fill = { { 0 }, { 0, 32000 } } },
    { "classes-each-8192x1000", SOFTMAX CLASSES BOTH NONE, "8192,1000 i32:8192",
      RG_CASE_BENCH | RG_CASE_BENCH_GPU | RG_CASE_FORWARD, .x_fill = { { 0 }, { 0, 1000 } } },
    { "classes-262144x21", SOFTMAX CLASSES BOTH, "262144,21 i32:262144",
      RG_CASE_BENCH | RG_CASE_FORWARD, .x_fill = { { 0 }, { 0, 21 } } },
    { "dense-8192x1000", SOFTMAX BOTH, "8192,1000 8192,1000", RG_CASE_BENCH | RG_CASE_FORWARD,
      .x_fill = { { 0 }, SHARES } },
    { "squared-16M", SQUARED BOTH, "16777216 16777216", RG_CASE_BENCH | RG_CASE_FORWARD },
    { "sigmoid-16M", SIGMOID BOTH, "16777216 16777216", RG_CASE_BENCH | RG_CASE_FORWARD,
      .x_fill = { { 0 }, SHARES } },

    /* timed on a GPU */
    { "classes-65536x1000", SOFTMAX CLASSES BOTH, "65536,1000 i32:65536",
      RG_CASE_BENCH_GPU | RG_CASE_FORWARD, .x_fill = { { 0 }, { 0, 1000 } } },
    { "classes-8192x32000", SOFTMAX CLASSES BOTH, "8192,32000 i32:8192",
      RG_CASE_BENCH_GPU | RG_CASE_FORWARD, .x_fill = { { 0 }, { 0, 32000 } } },
    { "classes-4194304x21", SOFTMAX CLASSES BOTH, "4194304,21 i32:4194304",
      RG_CASE_BENCH_GPU | RG_CASE_FORWARD, .x_fill = { { 0 }, { 0, 21 } } },
    { "dense-65536x1000", SOFTMAX BOTH, "65536,1000 65536,1000",
      RG_CASE_BENCH_GPU | RG_CASE_FORWARD, .x_fill = { { 0 }, SHARES } },
    { "squared-256M", SQUARED BOTH, "268435456 268435456", RG_CASE_BENCH_GPU | RG_CASE_FORWARD },
    { "sigmoid-256M", SIGMOID BOTH, "268435456 268435456", RG_CASE_BENCH_GPU | RG_CASE_FORWARD,
      .x_fill = { { 0 }, SHARES } },

    /* every kind, mean of all, gradient in one pass */
    { "absolute", ABSOLUTE BOTH, "3,37 3,37" },
    { "squared", SQUARED BOTH, "3,37 3,37" },
    { "softmax", SOFTMAX BOTH, "3,37 3,37", .x_fill = { { 0 }, SHARES } },
    { "sigmoid", SIGMOID BOTH, "3,37 3,37", .x_fill = { { 0 }, SHARES } },
    { "categorical", CATEGORICAL BOTH, "3,37 3,37", .x_fill = { SHARES, SHARES } },
    { "hinge", HINGE BOTH, "3,37 3,37", .x_fill = { { 0 }, { .at = binary } } },
    { "huber", HUBER BOTH "delta=0.75", "3,37 3,37" },
    { "cosine", COSINE BOTH, "3,37 3,37" },
    { "log", LOG BOTH, "3,37 3,37", .x_fill = { SHARES, SHARES } },
    { "kullback", KULLBACK BOTH, "3,37 3,37", .x_fill = { { -3, -0.1 }, SHARES } },

    /* every kind, a number for each image, with weights */
    { "absolute-images", ABSOLUTE IMAGES WEIGHTS, "3,5,2,7 3,5,2,7 3,5,2,7" },
    { "squared-images", SQUARED IMAGES WEIGHTS SUM, "3,5,2,7 3,5,2,7 3,5,2,7" },
    { "softmax-images", SOFTMAX IMAGES WEIGHTS BOTH, "3,5,2,7 3,5,2,7 3,5,2,7",
      .x_fill = { { 0 }, SHARES, { .at = sparse } } },
    { "sigmoid-images", SIGMOID IMAGES WEIGHTS, "3,5,2,7 3,5,2,7 3,5,2,7",
      .x_fill = { { 0 }, SHARES } },
    { "categorical-images", CATEGORICAL IMAGES WEIGHTS, "3,5,2,7 3,5,2,7 3,5,2,7",
      .x_fill = { SHARES, SHARES } },
    { "hinge-images", HINGE IMAGES WEIGHTS, "3,5,2,7 3,5,2,7 3,5,2,7",
      .x_fill = { { 0 }, { .at = binary } } },
    { "huber-images", HUBER IMAGES WEIGHTS BOTH, "3,5,2,7 3,5,2,7 3,5,2,7" },
    { "cosine-images", COSINE IMAGES WEIGHTS BOTH "weight=0.5", "3,5,2,7 3,5,2,7 3,5,2,7" },
    { "log-images", LOG IMAGES WEIGHTS, "3,5,2,7 3,5,2,7 3,5,2,7", .x_fill = { SHARES, SHARES } },
    { "kullback-images", KULLBACK IMAGES WEIGHTS, "3,5,2,7 3,5,2,7 3,5,2,7",
      .x_fill = { { -3, -0.1 }, SHARES } },

    /* every kind, a loss for every label */
    { "absolute-each", ABSOLUTE NONE BOTH, "5,67 5,67" },
    { "squared-each", SQUARED NONE WEIGHTS "weight=-2", "5,67 5,67 5,67" },
    { "softmax-each", SOFTMAX NONE WEIGHTS BOTH "label_smoothing=0.2 weight=3", "5,67 5,67 5,67",
      .x_fill = { { 0 }, SHARES } },
    { "sigmoid-each", SIGMOID NONE BOTH "label_smoothing=0.25", "5,67 5,67",
      .x_fill = { { 0 }, SHARES } },
    { "categorical-each", CATEGORICAL NONE, "5,67 5,67", .x_fill = { SHARES, SHARES } },
    { "hinge-each", HINGE NONE, "5,67 5,67", .x_fill = { { 0 }, { .at = binary } } },
    { "huber-each", HUBER NONE "delta=0.5", "5,67 5,67" },
    { "log-each", LOG NONE, "5,67 5,67", .x_fill = { SHARES, SHARES } },
    { "kullback-each", KULLBACK NONE, "5,67 5,67", .x_fill = { { -3, -0.1 }, SHARES } },

    /* dense labels: sizes */
    { "scalar", SQUARED, "- -" },
    { "one", HUBER, "1 1" },
    { "one-class", CATEGORICAL NONE, "5,1 5,1", .x_fill = { SHARES, SHARES } },
    { "softmax-vector", SOFTMAX, "37 37", .x_fill = { { 0 }, SHARES } },
    { "softmax-vector-each", SOFTMAX NONE BOTH, "37 37", .x_fill = { { 0 }, SHARES } },
    { "softmax-long", SOFTMAX BOTH, "3,5003 3,5003", .x_fill = { { 0 }, SHARES } },
    { "softmax-rank-8", SOFTMAX IMAGES, "2,1,3,2,1,2,1,5 2,1,3,2,1,2,1,5",
      .x_fill = { { 0 }, SHARES } },
    { "softmax-huge", SOFTMAX NONE BOTH, "4,17 4,17", RG_CASE_FORWARD, 1 << RG_F64 | 1 << RG_F32,
      .x_fill = { { .at = huge }, SHARES } },
    { "softmax-falling", SOFTMAX NONE BOTH, "1,2500 1,2500", RG_CASE_FORWARD,
      1 << RG_F64 | 1 << RG_F32, .x_fill = { { .at = falling }, SHARES } },
    { "softmax-classes-field", SOFTMAX BOTH "label_smoothing=0.1 classes=11", "3,37 3,37",
      .x_fill = { { 0 }, SHARES } },
    { "parts", SQUARED BOTH, "3,4099 3,4099" },
    { "parts-images", ABSOLUTE IMAGES BOTH, "3,4099 3,4099" },
    { "rank-8", SQUARED IMAGES BOTH, "2,1,3,2,5,2,1,3 2,1,3,2,5,2,1,3" },
    { "undivided", SQUARED BOTH "undivided_gradient=true", "3,37 3,37", RG_CASE_FORWARD },
    { "undivided-softmax", SOFTMAX BOTH IMAGES "undivided_gradient=true", "3,37 3,37",
      RG_CASE_FORWARD, .x_fill = { { 0 }, SHARES } },
    { "empty", SQUARED SUM, "3,0 3,0", RG_CASE_ZERO },
    { "empty-images", SQUARED IMAGES SUM, "3,0 3,0", RG_CASE_ZERO },
    { "empty-batch", SOFTMAX IMAGES, "0,5 0,5", RG_CASE_ZERO },
    { "empty-each", SIGMOID NONE BOTH, "3,0,2 3,0,2", RG_CASE_ZERO },
    { "empty-non-zero", SQUARED WEIGHTS NON_ZERO, "3,0 3,0 3,0", RG_CASE_ZERO },

    /* weights that are not 0 */
    { "non-zero", SQUARED WEIGHTS NON_ZERO BOTH, "3,37 3,37 3,37",
      .x_fill = { { 0 }, { 0 }, { .at = sparse } } },
    { "non-zero-images", SOFTMAX WEIGHTS NON_ZERO IMAGES BOTH, "3,2,7 3,2,7 3,2,7",
      .x_fill = { { 0 }, SHARES, { .at = sparse } } },
    { "non-zero-alone", HUBER NON_ZERO IMAGES BOTH "weight=2", "3,37 3,37" },
    { "non-zero-parts", ABSOLUTE WEIGHTS NON_ZERO BOTH, "3,4099 3,4099 3,4099",
      .x_fill = { { 0 }, { 0 }, { .at = sparse } } },
    { "non-zero-undivided", SQUARED WEIGHTS NON_ZERO BOTH "undivided_gradient=true",
      "3,37 3,37 3,37", RG_CASE_FORWARD, .x_fill = { { 0 }, { 0 }, { .at = sparse } } },
    { "non-zero-none", SQUARED WEIGHTS NON_ZERO BOTH, "3,37 3,37 3,37", RG_CASE_ZERO,
      .x_fill = { { 0 }, { 0 }, { .at = no_weight } } },
    { "non-zero-no-weight", SQUARED NON_ZERO BOTH "weight=0", "3,37 3,37", RG_CASE_ZERO },
    { "non-zero-no-weight-special", SQUARED WEIGHTS NON_ZERO "weight=0", "7,7 7,7 7,7",
      RG_CASE_SPECIAL, .x_fill = { { .at = special } } },
    { "non-zero-weight-0-special", SQUARED NON_ZERO "weight=0", "7,7 7,7", RG_CASE_SPECIAL,
      .x_fill = { { .at = special } } },
    { "non-zero-weight-0-rows", SOFTMAX NON_ZERO BOTH "weight=0", "7,7 7,7", RG_CASE_SPECIAL,
      .x_fill = { { .at = special } } },
    { "non-zero-weight-0-classes", SOFTMAX CLASSES NON_ZERO BOTH "weight=0", "5,37 i32:5",
      RG_CASE_SPECIAL, .x_fill = { { .at = special }, OF_TEN } },

    /* class labels */
    { "classes", SOFTMAX CLASSES BOTH, "5,37 i32:5", .x_fill = { { 0 }, OF_TEN } },
    { "classes-wide", SOFTMAX CLASSES BOTH, "5,37 i64:5", .x_fill = { { 0 }, OF_TEN } },
    { "classes-row", SOFTMAX CLASSES BOTH, "37 i32:-", .x_fill = { { 0 }, OF_TEN } },
    { "classes-one", SOFTMAX CLASSES BOTH, "3,1 i32:3", RG_CASE_ZERO,
      .x_fill = { { 0 }, { 0, 1 } } },
    { "classes-images", SOFTMAX CLASSES IMAGES BOTH, "3,5,2,7 i32:3,5,2",
      .x_fill = { { 0 }, OF_SEVEN } },
    { "classes-images-sum", SOFTMAX CLASSES IMAGES SUM "weight=-0.5", "3,5,2,7 i64:3,5,2",
      .x_fill = { { 0 }, OF_SEVEN } },
    { "classes-each", SOFTMAX CLASSES NONE BOTH, "7,5 i32:7", .x_fill = { { 0 }, OF_FIVE } },
    { "classes-weights", SOFTMAX CLASSES NONE WEIGHTS BOTH, "7,5 i32:7 7",
      .x_fill = { { 0 }, OF_FIVE, { .at = sparse } } },
    { "classes-weights-images", SOFTMAX CLASSES IMAGES WEIGHTS BOTH, "3,4,5 i32:3,4 3,4",
      .x_fill = { { 0 }, OF_FIVE } },
    { "classes-smooth", SOFTMAX CLASSES BOTH "label_smoothing=0.1", "5,37 i32:5",
      .x_fill = { { 0 }, OF_TEN } },
    { "classes-smooth-field", SOFTMAX CLASSES BOTH "label_smoothing=0.3 classes=4", "5,37 i32:5",
      .x_fill = { { 0 }, OF_TEN } },
    { "classes-ignored", SOFTMAX CLASSES BOTH "ignored=-100", "9,7 i32:9",
      .x_fill = { { 0 }, { .at = some_ignored } } },
    { "classes-ignored-each", SOFTMAX CLASSES NONE BOTH "ignored=-100", "9,7 i64:9",
      .x_fill = { { 0 }, { .at = some_ignored } } },
    { "classes-ignored-counted", SOFTMAX CLASSES NON_ZERO BOTH "ignored=-100", "9,7 i64:9",
      .x_fill = { { 0 }, { .at = some_ignored } } },
    { "classes-ignored-images", SOFTMAX CLASSES NON_ZERO IMAGES WEIGHTS "ignored=-100",
      "3,5,7 i32:3,5 3,5", .x_fill = { { 0 }, { .at = some_ignored }, { .at = sparse } } },
    { "classes-ignored-class", SOFTMAX CLASSES NON_ZERO BOTH "ignored=3", "9,7 i64:9",
      .x_fill = { { 0 }, OF_SEVEN } },
    { "classes-ignored-all", SOFTMAX CLASSES NON_ZERO BOTH "ignored=-100", "9,7 i64:9",
      RG_CASE_ZERO, .x_fill = { { 0 }, { .at = all_ignored } } },
    { "classes-undivided", SOFTMAX CLASSES BOTH "undivided_gradient=true", "5,37 i32:5",
      RG_CASE_FORWARD, .x_fill = { { 0 }, OF_TEN } },
    { "classes-two", SOFTMAX CLASSES BOTH, "67,2 i32:67", .x_fill = { { 0 }, { 0, 2 } } },
    { "classes-vectors", SOFTMAX CLASSES BOTH, "9,256 i32:9", .x_fill = { { 0 }, { 0, 256 } } },
    { "classes-many", SOFTMAX CLASSES BOTH, "41,131 i32:41", .x_fill = { { 0 }, { 0, 131 } } },
    { "classes-pieces", SOFTMAX CLASSES BOTH "label_smoothing=0.1", "5,3000 i32:5",
      .x_fill = { { 0 }, { 0, 3000 } } },
    { "classes-long", SOFTMAX CLASSES BOTH, "3,5003 i32:3", .x_fill = { { 0 }, { 0, 5003 } } },
    { "classes-longer-f64", SOFTMAX CLASSES BOTH, "1,17001 i32:1", .only = 1 << RG_F64,
      .x_fill = { { 0 }, { 0, 17001 } } },
    { "classes-longer", SOFTMAX CLASSES NONE BOTH, "2,70000 i32:2",
      .x_fill = { { 0 }, { 0, 70000 } } },
    { "classes-longer-falling", SOFTMAX CLASSES NONE BOTH, "2,40000 i32:2", RG_CASE_FORWARD,
      1 << RG_F16 | 1 << RG_BF16, .x_fill = { { .at = falling }, OF_TEN } },
    { "classes-longest", SOFTMAX CLASSES NONE BOTH, "2,270001 i32:2", RG_CASE_FORWARD,
      .x_fill = { { 0 }, { 0, 270001 } } },
    { "classes-huge", SOFTMAX CLASSES NONE BOTH, "4,17 i32:4", RG_CASE_FORWARD,
      1 << RG_F64 | 1 << RG_F32, .x_fill = { { .at = huge }, OF_TEN } },
    { "classes-rank-8", SOFTMAX CLASSES IMAGES, "2,1,3,2,1,2,1,5 i32:2,1,3,2,1,2,1",
      .x_fill = { { 0 }, OF_FIVE } },
    { "classes-empty", SOFTMAX CLASSES SUM BOTH, "0,5 i32:0", RG_CASE_ZERO },
    { "classes-special", SOFTMAX CLASSES NONE BOTH, "6,7 i32:6", RG_CASE_SPECIAL,
      .x_fill = { { .at = special_values }, OF_SEVEN } },
    { "picks-log", CATEGORICAL CLASSES BOTH, "5,37 i32:5", .x_fill = { SHARES, OF_TEN } },
    { "picks", KULLBACK CLASSES BOTH IMAGES WEIGHTS, "5,3,37 i64:5,3 5,3",
      .x_fill = { { 0 }, OF_TEN } },
    { "picks-each", KULLBACK CLASSES NONE BOTH "ignored=-100", "9,1037 i32:9",
      .x_fill = { { 0 }, { .at = some_ignored } } },
    { "picks-counted", CATEGORICAL CLASSES NON_ZERO "ignored=2", "9,7 i32:9",
      .x_fill = { SHARES, OF_SEVEN } },

    /* NaN and infinities */
    { "absolute-special", ABSOLUTE NONE, "7,7 7,7", RG_CASE_SPECIAL,
      .x_fill = { { .at = special } } },
    { "squared-special", SQUARED NONE, "7,7 7,7", RG_CASE_SPECIAL,
      .x_fill = { { .at = special } } },
    { "softmax-special", SOFTMAX NONE BOTH, "6,7 6,7", RG_CASE_SPECIAL,
      .x_fill = { { .at = special_values }, SHARES } },
    { "hinge-special", HINGE NONE, "7,7 7,7", RG_CASE_SPECIAL,
      .x_fill = { { .at = special }, { .at = binary } } },
    { "huber-special", HUBER NONE, "7,7 7,7", RG_CASE_SPECIAL, .x_fill = { { .at = special } } },
    { "categorical-special", CATEGORICAL NONE, "7,7 7,7", RG_CASE_SPECIAL,
      .x_fill = { { .at = special }, SHARES } },
    { "log-special", LOG NONE, "7,7 7,7", RG_CASE_SPECIAL,
      .x_fill = { { .at = special }, SHARES } },
    { "kullback-special", KULLBACK NONE, "7,7 7,7", RG_CASE_SPECIAL,
      .x_fill = { { 0 }, { .at = special } } },

    /* the gradient to begin with */
    { "initial", "kind=initial_gradient", "3,5,67", RG_CASE_FORWARD },
    { "initial-scalar", "kind=initial_gradient", "-", RG_CASE_FORWARD },
    { "initial-special", "kind=initial_gradient", "7,7", RG_CASE_FORWARD | RG_CASE_SPECIAL,
      .x_fill = { { .at = special } } },

    /* long sums of what does not cancel */
    { "long-sum-4096", ABSOLUTE SUM, "2,4096 2,4096", 0, ONLY_F32, APART },
    { "long-sum-524288", SQUARED, "524288,2 524288,2", 0, ONLY_F32, APART },
    { "long-sum-67m", ABSOLUTE SUM, "67108864 67108864", 0, ONLY_F32, APART },
    { "long-weights-67m", SQUARED WEIGHTS NON_ZERO, "16777216 16777216 16777216", RG_CASE_FORWARD,
      ONLY_F32, APART },
    { "long-images-67m", SQUARED IMAGES, "2,16777216 2,16777216", RG_CASE_FORWARD, ONLY_F32,
      APART },
    { "long-classes-524288", SOFTMAX CLASSES, "2,524288 i32:2", 0, ONLY_F32,
      .x_fill = { { 0.5, 1.5 }, OF_TEN } },
    { "long-classes-67m", SOFTMAX CLASSES, "1,67108864 i32:1", 0, ONLY_F32,
      .x_fill = { { 0.5, 1.5 }, OF_TEN } },
    { "long-rows-67m", SOFTMAX CLASSES, "16777216,4 i32:16777216", RG_CASE_FORWARD, ONLY_F32,
      .x_fill = { { 0.5, 1.5 }, { 0, 4 } } },
    { "long-dense-524288", SOFTMAX, "2,524288 2,524288", 0, ONLY_F32,
      .x_fill = { { 0.5, 1.5 }, SHARES } },
    { "long-cosine-524288", COSINE, "2,524288 2,524288", 0, ONLY_F32, APART },
    { .name = NULL },
};

/* ---- random trials ---- */

/* Class labels of rows, now and then one that no class has. */
static void draw_classes(rg_draw *d, rg_loss_desc *desc)
{
    const int32_t rank = d->x[0].rank - 1;
    const int64_t classes = rank >= 0 ? d->x[0].dims[rank] : 0;
    const rg_dtype whole = rg_draw_chance(d, 0.5) ? RG_I32 : RG_I64;
    if (rank < 0)
        return; /* refused */
    d->x[1] = rg_tensor_desc_dense(whole, rank, d->x[0].dims);
    d->x[2] = rg_tensor_desc_dense(d->dtype, rank, d->x[0].dims);
    d->x_fill[1] = (rg_fill){ .low = 0, .high = (double)classes, .step = 1 };
    if (desc->has_ignored)
        desc->ignored = rg_draw_chance(d, 0.5) ? -100 : rg_draw_below(d, classes);
    d->faults = rg_draw_chance(d, 0.04) && rg_draw_count(&d->x[1]) > 0;
    if (d->faults) {
        desc->has_ignored = false;
        desc->ignored = 0;
        const double label = rg_draw_chance(d, 0.5) ? (double)classes : -1;
        d->x_fill[1] = (rg_fill){ .low = label, .high = label };
    }
}

/* Predictions and labels that the formula takes. */
static void draw(rg_draw *d)
{
    rg_loss_desc *desc = d->desc;
    const rg_loss_kind kind = desc->kind;
    const rg_fill shares = { .low = 0.0625, .high = 0.9375 };
    const bool picks = kind == RG_LOSS_SOFTMAX_CROSS_ENTROPY ||
                       kind == RG_LOSS_CATEGORICAL_CROSS_ENTROPY ||
                       kind == RG_LOSS_KULLBACK_LEIBLER;
    const bool smooths =
        kind == RG_LOSS_SOFTMAX_CROSS_ENTROPY || kind == RG_LOSS_SIGMOID_CROSS_ENTROPY;
    d->x[0] = d->x[1] = d->x[2] = rg_draw_shape(d, 0, RG_MAX_RANK);
    desc->labels = picks ? desc->labels : RG_LOSS_DENSE_LABELS;
    const bool one = d->x[0].rank > 0 && d->x[0].dims[d->x[0].rank - 1] == 1;
    desc->label_smoothing = smooths && !one ? desc->label_smoothing : 0; /* 0 but for rounding */
    if (kind == RG_LOSS_COSINE_DISTANCE)
        desc->reduction = RG_LOSS_SUM;
    if (kind == RG_LOSS_INITIAL_GRADIENT)
        desc->gradient_output = false;
    desc->delta = (double)rg_draw_between(d, 1, 16) / 8;
    desc->epsilon = 0.01;
    desc->classes = rg_draw_chance(d, 0.7) ? 0 : rg_draw_between(d, 1, 20);
    desc->weight = rg_draw_chance(d, 0.5) ? 1 : (double)rg_draw_between(d, 1, 16) / 8;
    d->x_fill[2] = rg_draw_chance(d, 0.5) ? (rg_fill){ .low = 0, .high = 3, .step = 1 }
                                          : (rg_fill){ .low = 0.25, .high = 2 };
    if (kind == RG_LOSS_LOG || kind == RG_LOSS_CATEGORICAL_CROSS_ENTROPY)
        d->x_fill[0] = shares;
    if (smooths || picks || kind == RG_LOSS_LOG)
        d->x_fill[1] = shares;
    if (kind == RG_LOSS_HINGE)
        d->x_fill[1] = (rg_fill){ .low = 0, .high = 2, .step = 1 };
    if (desc->labels == RG_LOSS_CLASS_LABELS)
        draw_classes(d, desc);
    else
        desc->has_ignored = false;
    desc->ignored = desc->has_ignored ? desc->ignored : 0;
    d->flags = desc->undivided_gradient ? RG_CASE_NO_DIFFERENCES : 0;
}

RG_OP_TEST_DEFINE(loss, .cases = cases, .needs = needs, .draw = draw);
