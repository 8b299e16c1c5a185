/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* What a kernel file ends with: entry points per dtype, and the table that lists them.
 *
 * A kernel is an inline function  name(const args *k, int64_t begin, int64_t end, const rg_dtype T)
 * over its units; RG_KERNEL makes one entry point of it for each storage type, RG_ROW lists them,
 * RG_TABLE names the table. */
#ifndef RG_CPU_KERNEL_H
#define RG_CPU_KERNEL_H

#include "backend/backend.h"
#include "backend/cpu/simd.h"

#define RG_ENTRY(name, args, suffix, T)                                 \
    static void name##suffix(const void *k, int64_t begin, int64_t end) \
    {                                                                   \
        name((const args *)k, begin, end, T);                           \
    }

#if RG_REAL_F64
#define RG_KERNEL(name, args) RG_ENTRY(name, args, _f64, RG_F64)
#define RG_ROW(name)              \
    {                             \
        {                         \
            [RG_F64] = name##_f64 \
        }                         \
    }
#define RG_REAL_NAME f64
#else
#define RG_KERNEL(name, args)          \
    RG_ENTRY(name, args, _f32, RG_F32) \
    RG_ENTRY(name, args, _f16, RG_F16) \
    RG_ENTRY(name, args, _bf16, RG_BF16)
#define RG_ROW(name)                                                              \
    {                                                                             \
        {                                                                         \
            [RG_F32] = name##_f32, [RG_F16] = name##_f16, [RG_BF16] = name##_bf16 \
        }                                                                         \
    }
#define RG_REAL_NAME f32
#endif

#define RG_JOIN_(op, real, rung) rg_cpu_##op##_##real##_##rung
#define RG_JOIN(op, real, rung)  RG_JOIN_(op, real, rung)
#define RG_TABLE(op)             RG_JOIN(op, RG_REAL_NAME, RG_RUNG)

/* The loop over the elements of one contiguous piece: step(k, i, n, T) for full vectors, past the
 * cache where `stream` (after the few elements that bring `out` to an aligned address), then once
 * for what is left. */
#define RG_SWEEP(step, k, count, out, T, stream)                                      \
    do {                                                                              \
        int64_t rg_i = 0;                                                             \
        const int64_t rg_count = (count);                                             \
        if (stream) {                                                                 \
            const int rg_head = vhead(out, 0, T);                                     \
            if (rg_head > 0 && rg_head <= rg_count) {                                 \
                step(k, 0, rg_head, T);                                               \
                rg_i = rg_head;                                                       \
            }                                                                         \
            for (; vhead(out, rg_i, T) == 0 && rg_i + VLEN <= rg_count; rg_i += VLEN) \
                step(k, rg_i, VSTREAM, T);                                            \
        }                                                                             \
        for (; rg_i + VLEN <= rg_count; rg_i += VLEN)                                 \
            step(k, rg_i, VLEN, T);                                                   \
        if (rg_i < rg_count)                                                          \
            step(k, rg_i, (int)(rg_count - rg_i), T);                                 \
    } while (0)

#endif
