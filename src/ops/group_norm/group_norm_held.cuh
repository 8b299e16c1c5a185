/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Group normalization on a GPU where what is normalized together is held in shared memory between
 * its sums and its results: memory sees one pass. Whether a shape is held follows from its size, on
 * any GPU with enough shared memory. The launches, by dtype, return false, and launch nothing,
 * where it is not. */
#ifndef RG_OPS_GROUP_NORM_HELD_CUH
#define RG_OPS_GROUP_NORM_HELD_CUH

#include "backend/cuda/kernel.cuh"
#include "ops/group_norm/group_norm.h"

typedef bool rg_group_norm_held(const rg_group_norm_args *k, const rg_cuda_target *target);
typedef bool rg_group_norm_held_gradient(const rg_group_norm_gradient_args *k,
                                         const rg_cuda_target *target);
typedef bool rg_group_norm_held_statistics(const rg_group_norm_gradient_args *k,
                                           const rg_channels *x_shape,
                                           const rg_cuda_target *target);

/* Two strategies of a launch: "held" where it accepts, or else several passes over memory. */
static inline const char *held_strategy(int32_t i)
{
    return i == 0 ? "held" : i == 1 ? "passes" : NULL;
}

/* Launches by `held` unless it does not accept, or passes are forced. */
template <class ARGS>
static bool launch_held(bool (*held)(const ARGS *, const rg_cuda_target *), const ARGS *k,
                        const rg_cuda_target *target)
{
    const bool launched = !rg_choices_forces(target->choices, "passes") && held(k, target);
    rg_choices_note(target->choices, launched ? "held" : "passes");
    return launched;
}

extern "C" {
extern rg_group_norm_held *const rg_group_norm_held_rows[RG_CUDA_DTYPES];
extern rg_group_norm_held_gradient *const rg_group_norm_held_rows_gradient[RG_CUDA_DTYPES];
extern rg_group_norm_held *const rg_group_norm_held_columns[RG_CUDA_DTYPES];
extern rg_group_norm_held_gradient *const rg_group_norm_held_columns_gradient[RG_CUDA_DTYPES];

/* Statistics of x by the kernel that forward uses, so that a gradient without a state has the bits
 * of one with it; x is the first tensor of x_shape. */
extern rg_group_norm_held_statistics *const rg_group_norm_held_moments[RG_CUDA_DTYPES];
}

#endif
