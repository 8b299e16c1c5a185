/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Products of matrices on a GPU: which strategy runs. The first that accepts wins. */
#include "ops/matmul/product_strategy.cuh"

static const rg_product_strategy *const strategies[] = { &rg_product_long, &rg_product_cublaslt,
                                                         &rg_product_tiles };

enum { STRATEGIES = sizeof strategies / sizeof strategies[0] };

static const char *strategy_name(int32_t i)
{
    return i < STRATEGIES ? strategies[i]->name : NULL;
}

static const rg_product_strategy *choose(rg_cuda_product *call)
{
    for (const rg_product_strategy *s : strategies) {
        if (rg_choices_forces(call->target->choices, s->name) && s->accepts(call))
            return s;
    }
    int i = 0;
    while (!strategies[i]->accepts(call)) /* the last one accepts all */
        i++;
    return strategies[i];
}

/* By rg_product_tiles where a library that had no plan when work was recorded has one now and lacks
 * scratch, or refuses. */
template <rg_dtype T> static void product(const void *args, const rg_cuda_target *target)
{
    const rg_product_args *k = (const rg_product_args *)args;
    const void *const tensors[] = { k->a, k->b, k->bias, k->c };
    scratch_arena plan = { .target = target };
    scratch_arena arena = { .target = target, .scratch = (char *)k->scratch, .enqueue = true };
    rg_cuda_product call = {
        .dtype = T, .args = k, .unaligned = unaligned_of(tensors, 4), .target = target
    };
    const rg_product_strategy *strategy = choose(&call);
    if (!strategy->run(&call, &plan) || arena_overflows(&plan) || !strategy->run(&call, &arena)) {
        strategy = &rg_product_tiles;
        rg_product_tiles.run(&call, &arena);
    }
    rg_choices_note(target->choices, strategy->name);
}

template <rg_dtype T>
static size_t product_scratch(const void *args, uint32_t unaligned, const rg_cuda_target *target)
{
    scratch_arena plan = { .target = target };
    rg_cuda_product call = {
        .dtype = T, .args = (const rg_product_args *)args, .unaligned = unaligned, .target = target
    };
    return choose(&call)->run(&call, &plan) ? plan.used : 0;
}

/* ---- table ---- */

static const rg_cuda_row kernel_rows[] = {
    RG_CUDA_ROW_SCRATCH(RG_MATMUL_PRODUCT, product, product_scratch),
};
RG_CUDA_TABLE(product, kernel_rows, strategy_name);
