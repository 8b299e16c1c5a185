/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Gathers the kernel tables of an op's objects. RG_KERNELS_DEFINE(op) defines rg_kernels_<op> from
 * macros that list the tables: RG_CPU_TABLES_<op>(TABLE, real, instruction set), of
 * TABLE(<name>, real, instruction set) each, and RG_CUDA_TABLES_<op>(TABLE). RG_CPU_WIDE_F64_<op>
 * is that of double and AVX-512, which may be empty: the backend goes on with AVX2. */
#ifndef RG_BACKEND_KERNEL_LISTS_H
#define RG_BACKEND_KERNEL_LISTS_H

#include "backend/backend.h"

#define RG_CPU_DECLARE(name, real, isa) extern const rg_cpu_table rg_cpu_##name##_##real##_##isa;
#define RG_CPU_ADDRESS(name, real, isa) &rg_cpu_##name##_##real##_##isa,
#define RG_CPU_LIST(TABLES, op, real, isa)                                                       \
    TABLES(RG_CPU_DECLARE, real, isa)                                                            \
    static const rg_cpu_table *const op##_##real##_##isa[] = { TABLES(RG_CPU_ADDRESS, real, isa) \
                                                                   NULL };
#define RG_CPU_LISTS(op, isa)                     \
    RG_CPU_LIST(RG_CPU_TABLES_##op, op, f32, isa) \
    RG_CPU_LIST(RG_CPU_TABLES_##op, op, f64, isa)

#ifdef RG_ONE_ISA /* stands for all */
#define RG_ONE_NAME_(op, real, isa) op##_##real##_##isa
#define RG_ONE_NAME(op, real, isa)  RG_ONE_NAME_(op, real, isa)
#define RG_ONE_LISTS(op, isa)       RG_CPU_LISTS(op, isa)
#define RG_EVERY_LIST(op)           RG_ONE_LISTS(op, RG_ONE_ISA)
#define RG_EVERY_ISA(op, real)                                                \
    {                                                                         \
        RG_ONE_NAME(op, real, RG_ONE_ISA), RG_ONE_NAME(op, real, RG_ONE_ISA), \
            RG_ONE_NAME(op, real, RG_ONE_ISA)                                 \
    }
#elif RG_HAVE_AVX512
#define RG_EVERY_LIST(op)                            \
    RG_CPU_LISTS(op, base)                           \
    RG_CPU_LISTS(op, avx2)                           \
    RG_CPU_LIST(RG_CPU_TABLES_##op, op, f32, avx512) \
    RG_CPU_LIST(RG_CPU_WIDE_F64_##op, op, f64, avx512)
#define RG_EVERY_ISA(op, real)                                       \
    {                                                                \
        op##_##real##_base, op##_##real##_avx2, op##_##real##_avx512 \
    }
#else
#define RG_EVERY_LIST(op) RG_CPU_LISTS(op, base)
#define RG_EVERY_ISA(op, real) \
    {                          \
        op##_##real##_base     \
    }
#endif

#if RG_HAVE_CUDA
#define RG_CUDA_DECLARE(name) extern const rg_cuda_table rg_cuda_##name;
#define RG_CUDA_ADDRESS(name) &rg_cuda_##name,
#define RG_CUDA_LIST(op)                                                                   \
    RG_CUDA_TABLES_##op(RG_CUDA_DECLARE) static const rg_cuda_table *const op##_cuda[] = { \
        RG_CUDA_TABLES_##op(RG_CUDA_ADDRESS) NULL                                          \
    };
#define RG_CUDA_TABLES(op) op##_cuda
#else
#define RG_CUDA_LIST(op)
#define RG_CUDA_TABLES(op) NULL
#endif

#define RG_KERNELS_DEFINE(op)                                                               \
    RG_EVERY_LIST(op)                                                                       \
    RG_CUDA_LIST(op)                                                                        \
    const rg_kernel_table rg_kernels_##op = {                                               \
        .cpu = { RG_EVERY_ISA(op, f32), RG_EVERY_ISA(op, f64) }, .cuda = RG_CUDA_TABLES(op) \
    };

#endif
