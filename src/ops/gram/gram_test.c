/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Gram matrices: the cases. */
#include "core/shape.h"
#include "ops/contract/contract_cases.h"

/* NaN in one channel, infinities in others; the rest must stay what it is. */
static double special(int64_t i)
{
    const int64_t c = i % 7, p = i / 7;
    if (p == 3 && c == 2)
        return __builtin_nan("");
    if (p == 5 && (c == 4 || c == 5))
        return c == 4 ? __builtin_inf() : -__builtin_inf();
    return (double)(i % 5) - 1.5;
}

static const rg_case cases[] = {
    /* timed */
    { "gram-32x56x56x64", "", "32,56,56,64", RG_CASE_BENCH },
    { "gram-8x28x28x512", "", "8,28,28,512", RG_CASE_BENCH },

    /* timed on a GPU */
    { "gram-256x56x56x64", "", "256,56,56,64", RG_CASE_BENCH_GPU },
    { "gram-64x28x28x512", "", "64,28,28,512", RG_CASE_BENCH_GPU },

    { "one", "", "1,1,1,1" },
    { "one-channel", "", "2,3,5,1" },
    { "one-pixel", "alpha=0.5", "3,1,1,19" },
    { "image", "alpha=-2.5", "5,7,3" },
    { "primes", "alpha=0.0625", "2,5,7,13" },
    { "vectors", "", "2,4,8,32" },
    { "above-vector", "", "1,3,5,17" },
    { "above-columns", "", "2,3,4,33" },
    { "above-rows", "", "1,2,3,97" },
    { "blocks", "alpha=0.125", "1,3,4,131" },
    { "pieces", "", "2,17,31,11" },
    { "long", "alpha=0.001", "1,1,5003,5", .x_fill = { { 0, 1 } } },
    { "long-blocks", "", "1,2,520,97" },
    { "chunks", "", "5,2,520,97", .only = 1u << RG_F32 | 1u << RG_BF16 },
    { "vectors-blocks", "", "2,3,5,96" },
    { "deep", "", "1,2,2,301" },
    { "deepest", "", "1,1,2,1030", .only = 1u << RG_F32 }, /* a matrix of a million elements */
    { "rank-8", "", "2,1,2,1,2,3,2,5" },
    { "large-dy", "alpha=0.0001", "2,3,4,19",
      .dy_fill = { 33000, 60000 } }, /* two of them: > f16 */
    /* sums that one accumulator in f32 would miss: over pixels forward, over channels back */
    { "sum-4k", "", "1,64,64,2", 0, TWO, EQUAL },
    { "sum-512k", "", "1,512,1024,2", 0, TWO, EQUAL },
    { "sum-512k-above", "", "1,512,1024,2", 0, TWO, ABOVE },
    { "sum-512k-f64", "", "1,512,1024,2", 0, 1u << RG_F64, EQUAL },
    { "sum-channels", "", "1,1,2,2048", 0, SINGLE, EQUAL },
    { "sum-67m", "", "1,8192,8192,1", 0, TWO, EQUAL },
    { "sum-67m-above", "", "1,8192,8192,1", 0, SINGLE, ABOVE },
    { "empty", "", "0,3,4,5" },
    { "no-pixels", "", "2,0,4,5", RG_CASE_ZERO },
    { "no-channels", "", "2,3,4,0" },
    { "special", "", "1,3,4,7", RG_CASE_SPECIAL, .x_fill = { { .at = special } } },
    { .name = NULL },
};

static double operations(const void *desc, const rg_tensor_desc x[])
{
    (void)desc; /* of the whole matrix, as others count */
    return 2.0 * (double)rg_shape_count(x) * (double)x->dims[x->rank - 1];
}

/* ---- random trials ---- */

static void draw(rg_draw *d)
{
    d->x[0] = rg_draw_shape(d, 3, 5);
}

RG_OP_TEST_DEFINE(gram, .cases = cases, .operations = operations, .draw = draw);
