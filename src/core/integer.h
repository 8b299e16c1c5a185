/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Arithmetic of sizes and counts. Valid C and valid CUDA, for the host. */
#ifndef RG_CORE_INTEGER_H
#define RG_CORE_INTEGER_H

#include <stdint.h>

static inline int64_t rg_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t rg_max(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static inline int64_t rg_clamp(int64_t value, int64_t low, int64_t high)
{
    return value < low ? low : value > high ? high : value;
}

/* a / b rounded up; b > 0. */
static inline int64_t rg_ceil_div(int64_t a, int64_t b)
{
    return a / b + (a % b > 0);
}

/* The smallest multiple of `unit` that is at least `a`; unit > 0. */
static inline int64_t rg_round_up(int64_t a, int64_t unit)
{
    return rg_ceil_div(a, unit) * unit;
}

#endif
