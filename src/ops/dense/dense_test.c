/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Fully connected layers: the cases. */
#include "core/shape.h"
#include "ops/contract/contract_cases.h"

#include <retrograde/dense.h>

/* NaN and infinities in some rows of 9; other rows must stay what they are. */
static double special(int64_t i)
{
    const int64_t row = i / 9, k = i % 9;
    if (row == 1 && k == 4)
        return __builtin_nan("");
    if (row == 3 && k == 8)
        return __builtin_inf();
    if (row == 4 && k == 0)
        return -__builtin_inf();
    return (double)(i % 7) - 2.5;
}

static const rg_case cases[] = {
    /* timed */
    { "1024x1024x1024", "bias=false", "1024,1024 1024,1024", RG_CASE_BENCH },
    { "1024x1024x1024-in-out", "bias=false layout=in_out", "1024,1024 1024,1024", RG_CASE_BENCH },
    { "32x4096-1000", "", "32,4096 1000,4096 1000", RG_CASE_BENCH },
    { "512x784-128-relu", "neuron.kind=relu", "512,784 128,784 128", RG_CASE_BENCH },
    { "1x512-10", "", "1,512 10,512 10", RG_CASE_BENCH },
    { "32x7x7x64-128", "", "32,7,7,64 128,7,7,64 128", RG_CASE_BENCH },

    /* timed on a GPU */
    { "4096x4096x4096", "bias=false", "4096,4096 4096,4096", RG_CASE_BENCH_GPU },
    { "256x4096-1000-relu", "neuron.kind=relu", "256,4096 1000,4096 1000", RG_CASE_BENCH_GPU },

    { "one", "", "1,1 1,1 1" },
    { "one-row", "", "1,37 11,37 11" },
    { "one-input", "", "5,1 7,1 7" },
    { "one-output", "", "5,7 1,7 1" },
    { "vector", "", "19 5,19 5" },
    { "vector-in-out", "layout=in_out bias=false", "19 19,5" },
    { "primes", "", "13,29 31,29 31" },
    { "primes-in-out", "layout=in_out", "13,29 29,31 31" },
    { "no-bias", "bias=false", "3,17 33,17" },
    { "vectors", "", "12,64 32,64 32" },
    { "vectors-in-out", "layout=in_out", "12,64 64,32 32" },
    { "above-vector", "alpha=0.5", "7,17 33,17 33" },
    { "above-rows", "", "97,9 5,9 5" },
    { "above-rows-in-out", "layout=in_out", "97,9 9,35 35" },
    { "pieces", "alpha=0.25", "3,257 6,257 6" },
    { "pieces-in-out", "layout=in_out", "5,1031 1031,7 7" },
    { "pieces-image", "", "3,3,25,17 5,3,25,17 5" },
    { "pieces-packed", "", "9,1031 70,1031 70" },
    { "blocks-of-inputs", "", "1,17001 3,17001 3", .only = SINGLE },
    { "blocks-of-inputs-in-out", "layout=in_out bias=false", "1,17001 17001,3", .only = SINGLE },
    { "many-rows", "", "521,5 3,5 3" },
    { "middle", "", "67,131 71,131 71" },
    { "many-outputs", "bias=false", "2,3 301,3" },
    { "many-outputs-in-out", "bias=false layout=in_out alpha=-1.5", "2,3 3,301" },
    { "groups", "layout=in_out", "70,1030 1030,520 520" },
    { "groups-out-in", "alpha=0.5", "150,9 600,9 600" },
    { "chunks", "bias=false layout=in_out", "66,1030 1030,530",
      .only = 1u << RG_F32 | 1u << RG_BF16 },
    { "own-panels", "bias=false", "67,16500 33,16500", .only = 1u << RG_F32 | 1u << RG_F16 },
    { "in-place", "bias=false layout=in_out", "70,1040 1040,48" },
    { "in-place-few", "bias=false layout=in_out", "5,1040 1040,32" },
    { "few-outputs", "", "37,131 3,131 3" },
    { "few-rows-in-out", "layout=in_out", "5,7 7,70 70" },
    { "few-rows-relu", "neuron.kind=relu neuron.a=0.25", "7,67 18,67 18" },
    { "few-rows-image", "", "2,3,5,9 21,3,5,9 21" },
    { "positive", "bias=false", "3,20011 5,20011", .x_fill = { { 0, 1 }, { 0, 1 } } },
    { "pairs-relu", "neuron.kind=relu", "33,64 96,64 96" },
    { "image", "", "3,2,5,7 11,2,5,7 11" },
    { "image-in-out", "layout=in_out", "3,2,5,7 2,5,7,11 11" },
    { "single-image", "", "4,3,9 5,4,3,9 5" },
    { "rows-of-rows", "", "2,3,4,17 5,17 5" },
    { "rows-of-images", "", "2,1,3,2,5 7,2,5 7" },
    { "rank-8", "", "2,1,2,1,2,1,2,3 5,2,1,2,3 5" },
    { "relu", "neuron.kind=relu", "5,19 17,19 17" },
    { "relu-leaky-down", "neuron.kind=relu neuron.a=-0.5", "5,7 6,7 6" },
    { "sigmoid", "neuron.kind=sigmoid", "5,7 6,7 6", .x_fill = { { -1, 1 }, { -1, 1 } } },
    { "tanh", "neuron.kind=tanh neuron.a=1.25 neuron.b=0.5", "5,7 6,7 6",
      .x_fill = { { -1, 1 }, { -1, 1 } } },
    { "linear", "neuron.kind=linear neuron.a=-2 neuron.b=0.5 alpha=0.5", "5,7 6,7 6" },
    { "elu", "neuron.kind=elu", "5,7 6,7 6", .x_fill = { { -1, 1 }, { -1, 1 } } },
    { "softsign", "neuron.kind=softsign", "5,7 6,7 6", .x_fill = { { -1, 1 }, { -1, 1 } } },
    { "softplus", "neuron.kind=softplus", "5,7 6,7 6", .x_fill = { { -1, 1 }, { -1, 1 } } },
    { "absolute", "neuron.kind=absolute", "5,7 6,7 6" },
    { "gelu", "neuron.kind=gelu", "5,7 33,7 33" },
    { "gelu-no-bias", "neuron.kind=gelu bias=false layout=in_out", "5,7 7,6" },
    { "gelu-tanh", "neuron.kind=gelu_tanh", "2,3,2,5 6,3,2,5 6" },
    { "swish", "neuron.kind=swish alpha=0.5", "5,7 6,7 6" },
    { "power", "neuron.kind=power neuron.c=2", "5,7 6,7 6" },
    { "wide", "", "67,131 71,131 71", RG_CASE_WIDE },
    { "wide-direct", "bias=false layout=in_out", "33,40 40,48", RG_CASE_WIDE },
    { "wide-in-out", "layout=in_out alpha=0.5", "70,1030 1030,52 52", RG_CASE_WIDE },
    { "wide-long", "neuron.kind=relu", "521,9 35,9 35", RG_CASE_WIDE },
    /* Sums that one accumulator in f32 would miss: dw was off by 6e-4 at 67 million addends. Over
     * rows for dw and db, over inputs forward, over outputs for dx. */
    { "sum-4k-rows", "", "4096,2 3,2 3", RG_CASE_WIDE, TWO, EQUAL },
    { "sum-4k-inputs", "", "2,4096 3,4096 3", 0, TWO, EQUAL },
    { "sum-4k-inputs-in-out", "layout=in_out", "65,4096 4096,17 17", 0, TWO, EQUAL },
    { "sum-20k-pairs", "bias=false", "20000,80 96,80", RG_CASE_WIDE, TWO, EQUAL },
    { "sum-512k-rows", "", "524288,2 3,2 3", RG_CASE_WIDE, TWO, EQUAL },
    { "sum-512k-rows-above", "", "524288,2 3,2 3", RG_CASE_WIDE, TWO, ABOVE },
    { "sum-512k-rows-in-out", "layout=in_out alpha=0.5", "524288,2 2,3 3", RG_CASE_WIDE, TWO,
      EQUAL },
    { "sum-512k-inputs-f64", "bias=false", "1,524288 2,524288", 0, 1u << RG_F64, EQUAL },
    { "sum-512k-inputs", "", "2,524288 3,524288 3", 0, TWO, EQUAL },
    { "sum-512k-inputs-above", "", "2,524288 3,524288 3", 0, TWO, ABOVE },
    { "sum-512k-inputs-in-out", "layout=in_out", "2,524288 524288,3 3", 0, TWO, EQUAL },
    { "sum-512k-outputs", "", "2,1 524288,1 524288", RG_CASE_LONG, TWO, EQUAL },
    { "sum-67m-rows", "", "67108864,1 1,1 1", RG_CASE_WIDE, TWO, EQUAL },
    { "sum-67m-rows-above", "", "67108864,1 1,1 1", RG_CASE_WIDE, SINGLE, ABOVE },
    { "sum-67m-inputs", "bias=false", "1,67108864 1,67108864", 0, TWO, EQUAL },
    { "sum-67m-inputs-in-out", "bias=false layout=in_out", "1,67108864 67108864,1", 0, SINGLE,
      EQUAL },

    { "wide-empty", "", "0,5 3,5 3", RG_CASE_ZERO | RG_CASE_WIDE },
    { "empty", "", "0,5 3,5 3", RG_CASE_ZERO },
    { "no-rows-many-outputs", "layout=in_out", "0,2,3 2,3,67 67", RG_CASE_ZERO },
    { "no-inputs", "", "3,0 5,0 5", RG_CASE_ZERO },
    { "no-outputs", "", "3,5 0,5 0", RG_CASE_ZERO },
    { "special", "", "6,9 5,9 5", RG_CASE_SPECIAL, .x_fill = { { .at = special } } },
    /* cuBLASLt skips a product whose factor is 0, and the NaNs with it */
    { "special-alpha-0", "alpha=0", "6,9 5,9 5", RG_CASE_SPECIAL,
      .x_fill = { { .at = special }, { .at = special } } },
    { "special-weights", "layout=in_out", "3,6 6,9 9", RG_CASE_SPECIAL,
      .x_fill = { { 0 }, { .at = special } } },
    { .name = NULL },
};

static double operations(const void *desc, const rg_tensor_desc x[])
{
    const bool first = ((const rg_dense_desc *)desc)->layout == RG_DENSE_OUT_IN;
    return 2.0 * (double)rg_shape_count(x) * (double)x[1].dims[first ? 0 : x[1].rank - 1];
}

/* ---- random trials ---- */

static void draw(rg_draw *d)
{
    rg_dense_desc *desc = d->desc;
    int64_t dims[RG_MAX_RANK], w[RG_MAX_RANK];
    const int32_t rows = (int32_t)rg_draw_between(d, 0, 3);
    const int32_t inputs = rg_draw_chance(d, 0.7) ? 1 : (int32_t)rg_draw_between(d, 1, 3);
    const int64_t out = rg_draw_size(d, 130);
    for (int32_t k = 0; k < rows + inputs; k++)
        dims[k] = rg_draw_size(d, k == rows || k == 0 ? 200 : 6);
    for (int32_t k = 0; k < inputs; k++)
        w[(desc->layout == RG_DENSE_OUT_IN) + k] = dims[rows + k];
    w[desc->layout == RG_DENSE_OUT_IN ? 0 : inputs] = out;
    d->x[0] = rg_tensor_desc_dense(d->dtype, rows + inputs, dims);
    d->x[1] = rg_tensor_desc_dense(d->dtype, inputs + 1, w);
    d->x[2] = rg_draw_vector(d->dtype, out);
    rg_draw_neuron(d, &desc->neuron, true);
}

RG_OP_TEST_DEFINE(dense, .cases = cases, .operations = operations, .draw = draw);
