/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The intrinsics of the instruction set that a kernel file is compiled for. <immintrin.h> declares
 * those of every x86 processor: GCC reads 2 MB, for longer than it takes to compile most kernels.
 * With GCC 12 the headers of single extensions are included instead; they refuse to be used alone
 * unless the include guard of <immintrin.h> is defined. How such headers are divided differs
 * between compilers and versions, so all others read <immintrin.h>. */
#ifndef RG_CPU_INTRINSICS_H
#define RG_CPU_INTRINSICS_H

#if defined(__x86_64__) && !defined(__AVX2__)
#include <emmintrin.h>
#elif defined(__x86_64__) && __GNUC__ == 12 && !defined(__clang__)
#define _IMMINTRIN_H_INCLUDED
#include <smmintrin.h>
#include <avxintrin.h>
#include <avx2intrin.h>
#include <fmaintrin.h>
#include <f16cintrin.h>
#if defined(__AVX512F__)
#include <avx512fintrin.h>
#include <avx512vlintrin.h>
#include <avx512bwintrin.h>
#include <avx512dqintrin.h>
#include <avx512vlbwintrin.h>
#endif
#elif defined(__x86_64__)
#include <immintrin.h>
#endif

#endif
