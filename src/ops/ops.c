/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The tables made from ops.def: the list of ops, and the kernels of each on every instruction set.
 */
#include "ops/ops.h"

#include "core/private_api.h"

#define DECLARE(op, isa) \
    extern const rg_cpu_row rg_cpu_##op##_f32_##isa[], rg_cpu_##op##_f64_##isa[];

#ifdef RG_ONE_ISA /* stands for all */
#define DECLARE_ONE(op, isa) DECLARE(op, isa)
#define RG_OP(op)            DECLARE_ONE(op, RG_ONE_ISA)
#define ONE(op, real, isa)   rg_cpu_##op##_##real##_##isa
#define EACH(op, real, isa)                                        \
    {                                                              \
        ONE(op, real, isa), ONE(op, real, isa), ONE(op, real, isa) \
    }
#define ISAS(op, real) EACH(op, real, RG_ONE_ISA)
#elif RG_HAVE_AVX512
#define RG_OP(op) DECLARE(op, base) DECLARE(op, avx2) DECLARE(op, avx512)
#define ISAS(op, real)                                                                          \
    {                                                                                           \
        rg_cpu_##op##_##real##_base, rg_cpu_##op##_##real##_avx2, rg_cpu_##op##_##real##_avx512 \
    }
#else
#define RG_OP(op) DECLARE(op, base)
#define ISAS(op, real)              \
    {                               \
        rg_cpu_##op##_##real##_base \
    }
#endif
#include "ops/ops.def"
#undef RG_OP

#if RG_HAVE_CUDA
#define RG_OP(op) extern const rg_cuda_row rg_cuda_##op[];
#include "ops/ops.def"
#undef RG_OP
#define CUDA(op) rg_cuda_##op
#else
#define CUDA(op) NULL
#endif

#define RG_OP(op)                                                                      \
    const rg_kernel_table rg_kernels_##op = { .cpu = { ISAS(op, f32), ISAS(op, f64) }, \
                                              .cuda = CUDA(op) };
#include "ops/ops.def"
#undef RG_OP

const rg_op *const rg_ops[] = {
#define RG_OP(op) &rg_op_##op,
#include "ops/ops.def"
#undef RG_OP
    NULL
};

RG_PRIVATE_API rg_status rg_op_find(const char *text, const rg_op **op, const rg_op_name **name)
{
    for (int i = 0; rg_ops[i] != NULL; i++) {
        *op = rg_ops[i];
        *name = NULL;
        if (strcmp(text, rg_ops[i]->name) == 0)
            return RG_OK;
        for (*name = rg_ops[i]->names; *name != NULL && (*name)->name != NULL; (*name)++) {
            if (strcmp(text, (*name)->name) == 0)
                return RG_OK;
        }
    }
    *op = NULL;
    *name = NULL;
    return rg_fail(RG_INVALID_ARGUMENT, "there is no op '%s'", text);
}
