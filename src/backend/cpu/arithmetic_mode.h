/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Rounding and subnormal numbers of a thread: results must not depend on how the calling program
 * has set them. */
#ifndef RG_CPU_ARITHMETIC_MODE_H
#define RG_CPU_ARITHMETIC_MODE_H

#include <stdint.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

/* Sets round to nearest, subnormal numbers and no traps; returns what was set before. */
static inline uint64_t rg_arithmetic_plain(void)
{
#if defined(__x86_64__)
    const uint64_t old = _mm_getcsr();
    _mm_setcsr(0x1f80);
    return old;
#elif defined(__aarch64__)
    uint64_t old;
    __asm__ volatile("mrs %0, fpcr" : "=r"(old));
    __asm__ volatile("msr fpcr, %0" : : "r"(UINT64_C(0)));
    return old;
#else
    return 0;
#endif
}

static inline void rg_arithmetic_restore(uint64_t old)
{
#if defined(__x86_64__)
    _mm_setcsr((unsigned)old);
#elif defined(__aarch64__)
    __asm__ volatile("msr fpcr, %0" : : "r"(old));
#else
    (void)old;
#endif
}

#endif
