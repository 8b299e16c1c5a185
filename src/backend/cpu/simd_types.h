/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Vectors: their types, lengths and lanes. */
#ifndef RG_CPU_SIMD_TYPES_H
#define RG_CPU_SIMD_TYPES_H

#include "backend/cpu/intrinsics.h"
#include "core/dtype.h"

#if defined(__AVX512F__)
#define RG_VECTOR_BYTES 64
#elif defined(__AVX2__)
#define RG_VECTOR_BYTES 32
#else
#define RG_VECTOR_BYTES 16
#endif

#if RG_REAL_F64
typedef double real;
typedef int64_t intr; /* an integer as wide as real */
typedef uint64_t uintr;
#define RG_REAL RG_F64
#define RG_VLEN (RG_VECTOR_BYTES / 8)
#else
typedef float real;
typedef int32_t intr;
typedef uint32_t uintr;
#define RG_REAL RG_F32
#define RG_VLEN (RG_VECTOR_BYTES / 4)
#endif

/* Lanes of a vector. */
enum { VLEN = RG_VLEN };
typedef real vreal __attribute__((vector_size(RG_VECTOR_BYTES)));
typedef intr vint __attribute__((vector_size(RG_VECTOR_BYTES))); /* integers, and masks: 0 or -1 */
typedef uintr vuint __attribute__((vector_size(RG_VECTOR_BYTES)));

/* Kept out of line: rare, or shared by all storage types. */
#define RG_OUTLINE static __attribute__((noinline, unused))

/* What takes many instructions without AVX2, and is inlined hundreds of times: called in the lowest
 * of several instruction sets, which few wait for. */
#if RG_HAVE_X86_ISAS && !defined(__AVX2__) && !defined(RG_ONE_ISA)
#define RG_INLINE_LONG RG_OUTLINE
#else
#define RG_INLINE_LONG RG_INLINE
#endif

#define RG_INFINITY ((real)__builtin_inf())

#endif
