/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Which sources of a plan are images, where a batch of them is given as tensors of their own. */
#include "graph/plan.h"

#include "core/dtype.h"

bool rg_plan_is_one_tensor(rg_tensor *const images[], int64_t count)
{
    bool one = true;
    for (int64_t n = 1; n < count && one; n++)
        one = images[n] == images[0];
    return one;
}

bool rg_plan_is_one_state(rg_state *const states[], int64_t count)
{
    bool one = true;
    for (int64_t n = 1; n < count && one; n++)
        one = states[n] == states[0];
    return one;
}

/* The source among what a step reads: input k of its forward pass. */
static bool reads_as(const rg_step *step, int32_t value, int32_t k)
{
    return (step->gradient ? step->source[k] : step->in[k]) == value;
}

/* Whether a step reads source i as one of the inputs that `bits` returns. */
static bool is_read_as(const rg_plan *plan, int32_t i, uint32_t (*bits)(const rg_op *op))
{
    for (int32_t s = 0; s < plan->steps_count; s++) {
        const rg_step *step = &plan->steps[s];
        const uint32_t all = bits(step->op);
        for (int32_t k = 0; all != 0 && k < (step->gradient ? step->outputs : step->inputs); k++) {
            if (all >> k & 1 && reads_as(step, plan->sources[i], k))
                return true;
        }
    }
    return false;
}

static uint32_t weights_of(const rg_op *op)
{
    return op->weights;
}

/* Labels and their weights: all that a loss reads after its first input. */
static uint32_t labels_of(const rg_op *op)
{
    return op->fusion.with_gradient != NULL ? 6 : 0;
}

/* Whether a tensor that is the same for all images can be one of them: elements of images, and no
 * weights. */
static bool may_be_image(const rg_plan *plan, int32_t i, const rg_tensor_desc *desc)
{
    return rg_dtype_is_data(desc->dtype) && !is_read_as(plan, i, weights_of);
}

/* The highest rank among sources and states that differ between images, but for integers; where it
 * is below 2, also among sources of rank 3, or of 4 with a dimension 0 of 1, that do not differ;
 * where that is below 3, among integers, too. */
int32_t rg_plan_images_rank(const rg_plan *plan, int64_t count, rg_tensor *const sources[],
                            rg_state *const states[])
{
    int32_t differing = 0, repeated = 0, integers = 0;
    for (int32_t i = 0; i < plan->sources_count; i++) {
        rg_tensor *const *images = sources + i * count;
        if (images[0] == NULL)
            continue;
        const rg_tensor_desc *d = &images[0]->desc;
        const bool is_image = d->rank == 3 || (d->rank == 4 && d->dims[0] == 1);
        int32_t *most = &differing;
        if (!rg_plan_is_one_tensor(images, count))
            most = rg_dtype_is_data(d->dtype) ? &differing : &integers;
        else if (is_image && may_be_image(plan, i, d))
            most = &repeated;
        else
            continue;
        *most = d->rank > *most ? d->rank : *most;
    }
    for (int32_t k = 0; states != NULL && k < plan->given_count; k++) {
        rg_state *const *given = states + k * count;
        const bool one = rg_plan_is_one_state(given, count);
        int32_t *most = one ? &repeated : &differing;
        const rg_tensor_desc *x = given[0] != NULL ? &given[0]->sources[0] : NULL;
        if (x != NULL && (!one || x->rank == 3) && x->rank > *most)
            *most = x->rank;
    }
    if (differing < 2)
        differing = repeated > differing ? repeated : differing;
    return differing < 3 && integers > differing ? integers : differing;
}

bool rg_plan_repeats_image(const rg_plan *plan, int32_t i, int64_t count, int32_t rank,
                           const rg_tensor *image)
{
    const rg_tensor_desc *d = &image->desc;
    const bool is_data = rg_dtype_is_data(d->dtype);
    if (rank != 3) /* joined, where there are several */
        return count > 1 && d->rank > 0 && d->dims[0] == 1 &&
               (is_data ? rank == 4 && d->rank == 4 && may_be_image(plan, i, d) : d->rank < 4);
    if (d->rank == 2)
        return !is_data || is_read_as(plan, i, labels_of);
    return d->rank == 3 && is_data && may_be_image(plan, i, d);
}
