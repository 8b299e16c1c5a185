/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Factors of a step on the CPU. */
#include "backend/cpu/kernel.h"
#include "ops/grad_scale/grad_scale.h"

RG_INLINE void grad_scale_forward(const rg_grad_scale_args *k, int64_t begin, int64_t end,
                                  const rg_dtype T)
{
    (void)begin;
    (void)end;
    (void)T;
    double total = 0;
    for (int64_t i = 0; i < k->walk.count; i++) {
        int64_t offset;
        rg_walk_offsets(&k->walk, 1, i, &offset);
        total += (double)((const real *)k->squares)[offset];
    }
    const double scale = k->scale != NULL ? (double)*(const real *)k->scale : 1;
    const double largest = sizeof(real) == sizeof(float) ? 0x1.fffffep127 : 0x1.fffffffffffffp1023;
    const rg_grad_scale_values v = rg_grad_scale_of(k, total, scale, largest);
    *(real *)k->factor = (real)v.factor;
    *(real *)k->norm = (real)v.norm;
    if (k->new_scale != NULL)
        *(real *)k->new_scale = (real)v.scale;
    if (k->new_good != NULL)
        *k->new_good = v.good;
    if (k->new_step != NULL)
        *k->new_step = v.step;
}

/* ---- entry points and table: sums of squares are f32 or f64 ---- */

#if RG_REAL_F64
RG_KERNEL(grad_scale_forward, rg_grad_scale_args)
#define ROW RG_ROW(grad_scale_forward)
#else
RG_ENTRY(grad_scale_forward, rg_grad_scale_args, _f32, RG_F32)
#define ROW                                   \
    {                                         \
        {                                     \
            [RG_F32] = grad_scale_forward_f32 \
        }                                     \
    }
#endif

RG_CPU_TABLE(grad_scale, RG_GRAD_SCALE_KERNELS) = {
    [RG_GRAD_SCALE_FORWARD] = ROW,
};
