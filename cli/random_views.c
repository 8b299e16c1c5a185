/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Random layouts: the order of dimensions in memory, gaps, offsets, strides that are not used. */
#include "cli/check.h"
#include "core/shape.h"

static int64_t below(rg_random *random, int64_t n)
{
    return (int64_t)(rg_random_uniform(random) * (double)n);
}

/* All draws happen for any dims, so that a smaller shape keeps its layout. */
static void draw_order(rg_random *random, int32_t rank, int32_t order[RG_MAX_RANK])
{
    const bool permutes = rg_random_uniform(random) < 0.6;
    for (int32_t k = 0; k < RG_MAX_RANK; k++)
        order[k] = rank - 1 - k;
    for (int32_t k = rank - 1; k > 0; k--) {
        const int32_t other = (int32_t)below(random, k + 1), own = order[k];
        order[k] = permutes ? order[other] : own;
        order[other] = permutes ? own : order[other];
    }
}

/* A gap of a dimension in elements. */
static int64_t draw_gap(rg_random *random)
{
    const double kind = rg_random_uniform(random);
    const int64_t gap = 1 + below(random, 5);
    return kind < 0.6 ? 0 : kind < 0.9 ? gap : 16;
}

rg_tensor_desc rg_view_of(const rg_views *views, int number, const rg_tensor_desc *shape,
                          uint32_t repeat, int64_t *shift)
{
    rg_tensor_desc desc = *shape;
    rg_random random = rg_random_seed(views->seed, (char[]){ 'v', (char)('A' + number), 0 });
    int32_t order[RG_MAX_RANK];
    const bool dense = views->seed == 0 || !(views->mask >> number & 1);
    draw_order(&random, desc.rank, order);
    *shift = below(&random, 18);
    *shift = dense || rg_random_uniform(&random) < 0.3 ? 0 : *shift;
    /* Elements that the view may span, and how many are in the dimensions without a stride yet. */
    const int64_t most = 8 * rg_shape_count(shape) + 4096;
    int64_t rest = rg_shape_count(shape);
    int64_t stride = rg_random_uniform(&random) < 0.2 ? 1 + below(&random, 3) : 1;
    for (int32_t k = 0; k < desc.rank && !dense; k++) {
        const int32_t d = order[k];
        const int64_t gap = draw_gap(&random), unused = below(&random, 4096);
        const bool strange = rg_random_uniform(&random) < 0.5;
        desc.strides[d] = desc.dims[d] == 1 && strange ? unused : stride;
        rest = desc.dims[d] > 0 ? rest / desc.dims[d] : 0;
        const int64_t next = stride * (desc.dims[d] + gap);
        stride = next * rest <= most ? next : stride * desc.dims[d];
        stride = stride < 1 ? 1 : stride;
    }
    for (int32_t d = 0; d < desc.rank && !dense; d++)
        desc.strides[d] = repeat >> d & 1 ? 0 : desc.strides[d];
    return desc;
}
