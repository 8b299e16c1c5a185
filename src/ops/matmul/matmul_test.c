/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Products of stacks of matrices: the cases. */
#include "core/shape.h"
#include "ops/optest_draw.h"

#include <retrograde/matmul.h>

/* NaN and infinities in some rows of 9; other rows must stay what they are. */
static double special(int64_t i)
{
    const int64_t row = i / 9, k = i % 9;
    if (row == 1 && k == 4)
        return __builtin_nan("");
    if (row == 3 && k == 8)
        return __builtin_inf();
    return (double)(i % 7) - 2.5;
}

/* Equal numbers are the worst case of a long sum: every addition rounds the same way. */
static double equal(int64_t i)
{
    (void)i;
    return 0.7;
}

#define TWO   1u << RG_F32 | 1u << RG_BF16
#define EQUAL .x_fill = { { .at = equal }, { .at = equal } }, .dy_fill = { .at = equal }

static const rg_case cases[] = {
    /* timed */
    { "1024x1024x1024", "", "1024,1024 1024,1024", RG_CASE_BENCH },
    { "scores-96x128x64", "transpose_b=true alpha=0.125", "8,12,128,64 8,12,128,64",
      RG_CASE_BENCH },
    { "values-96x128x128", "", "8,12,128,128 8,12,128,64", RG_CASE_BENCH },
    { "scores-gpu", "transpose_b=true alpha=0.125", "64,12,512,64 64,12,512,64",
      RG_CASE_BENCH_GPU },

    { "one", "", "1,1 1,1" },
    { "matrices", "", "13,29 29,31" },
    { "a-transposed", "transpose_a=true", "29,13 29,31" },
    { "b-transposed", "transpose_b=true", "13,29 31,29" },
    { "both-transposed", "transpose_a=true transpose_b=true alpha=-0.5", "29,13 31,29" },
    { "vectors", "alpha=0.25", "16,64 64,32" },
    { "row", "", "1,37 37,11" },
    { "column", "", "37,11 11,1" },
    { "outer-product", "", "37,1 1,11" },
    { "inner-product", "transpose_b=true", "1,131 1,131" },
    { "stack", "", "5,7,9 5,9,11" },
    { "stack-a-transposed", "transpose_a=true", "5,9,7 5,9,11" },
    { "stack-b-transposed", "transpose_b=true alpha=0.5", "5,7,9 5,11,9" },
    { "stack-both-transposed", "transpose_a=true transpose_b=true", "5,9,7 5,11,9" },
    { "heads", "transpose_b=true alpha=0.125", "2,3,17,16 2,3,19,16" },
    { "values", "", "2,3,17,19 2,3,19,16" },
    { "b-shared", "", "4,7,9 9,11" },
    { "b-shared-transposed", "transpose_b=true", "4,7,9 11,9" },
    { "a-shared", "", "7,9 4,9,11" },
    { "a-shared-transposed", "transpose_a=true", "9,7 4,9,11" },
    { "broadcast-both", "", "3,1,5,7 1,4,7,6" },
    { "broadcast-inside", "transpose_a=true", "2,1,3,7,5 2,4,1,7,6" },
    { "broadcast-ranks", "alpha=2", "3,5,7 2,1,7,6" },
    { "ones", "", "1,1,5,7 1,7,6" },
    { "rank-8", "", "2,1,2,1,2,1,3,5 1,2,1,2,2,1,5,4" },
    { "pieces", "", "3,1031 1031,7" },
    { "many-rows", "", "521,5 5,3" },
    { "many-columns", "transpose_a=true", "3,2 3,301" },
    { "stack-packed", "", "3,70,80 3,80,100" },
    { "stack-pairs", "transpose_b=true", "2,70,130 2,67,130" },
    { "pairs-in-runs", "", "17,514 514,70" },
    { "wide", "", "3,17,19 3,19,16", RG_CASE_WIDE },
    { "wide-shared", "transpose_b=true", "3,17,19 16,19", RG_CASE_WIDE },
    { "sum-4k", "", "2,4096 4096,3", 0, TWO, EQUAL },
    /* db sums over rows and over the matrices that b is repeated for */
    { "sum-512k-matrices", "", "4096,128,2 2,3", RG_CASE_WIDE, TWO, EQUAL },
    { "sum-512k-inner", "", "2,524288 524288,1", RG_CASE_WIDE, TWO, EQUAL },
    { "sum-67m-inner", "", "1,67108864 67108864,1", RG_CASE_WIDE, TWO, EQUAL },
    { "sum-67m-rows", "", "67108864,1 1,1", RG_CASE_WIDE, TWO, EQUAL },
    { "empty-stack", "", "0,5,3 0,3,2", RG_CASE_ZERO },
    { "empty-stack-shared", "", "0,5,3 3,2", RG_CASE_ZERO },
    { "no-rows", "", "2,0,3 2,3,4", RG_CASE_ZERO },
    { "no-inner", "", "2,3,0 2,0,4", RG_CASE_ZERO },
    { "special", "", "6,9 9,5", RG_CASE_SPECIAL, .x_fill = { { .at = special } } },
    { "special-alpha-0", "alpha=0", "6,9 9,5", RG_CASE_SPECIAL,
      .x_fill = { { .at = special }, { .at = special } } },
    { .name = NULL },
};

static double operations(const void *desc, const rg_tensor_desc x[])
{
    rg_tensor_desc y;
    const bool transposed = ((const rg_matmul_desc *)desc)->transpose_a;
    return rg_op_matmul.shapes(desc, x, &y) != RG_OK
               ? 0
               : 2.0 * (double)rg_shape_count(&y) *
                     (double)x[0].dims[x[0].rank - (transposed ? 2 : 1)];
}

/* ---- random trials ---- */

static void set_matrix(rg_tensor_desc *x, bool swapped, int64_t first, int64_t second)
{
    x->dims[x->rank - 2] = swapped ? second : first;
    x->dims[x->rank - 1] = swapped ? first : second;
}

/* Stacks of up to three dimensions, of which either operand may lack some or have 1. */
static void draw(rg_draw *d)
{
    const rg_matmul_desc *desc = d->desc;
    const int32_t stack = (int32_t)rg_draw_between(d, 0, 3);
    const int64_t rows = rg_draw_size(d, 130), inner = rg_draw_size(d, 130);
    const int64_t columns = rg_draw_size(d, 130);
    int64_t common[RG_MAX_RANK];
    for (int32_t k = 0; k < stack; k++)
        common[k] = rg_draw_between(d, 1, 4);
    for (int i = 0; i < 2; i++) {
        rg_tensor_desc x = { .rank = 2 };
        const int32_t missing = rg_draw_chance(d, 0.3) ? (int32_t)rg_draw_between(d, 0, stack) : 0;
        for (int32_t k = missing; k < stack; k++, x.rank++)
            x.dims[k - missing] = rg_draw_chance(d, 0.2) ? 1 : common[k];
        if (i == 0)
            set_matrix(&x, desc->transpose_a, rows, inner);
        else
            set_matrix(&x, desc->transpose_b, inner, columns);
        d->x[i] = rg_tensor_desc_dense(d->dtype, x.rank, x.dims);
    }
}

RG_OP_TEST_DEFINE(matmul, .cases = cases, .operations = operations, .draw = draw);
