/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Units beside AVX-512 that multiply pairs of bf16 and add them up in f32. */
#ifndef RG_CPU_BF16_UNIT_H
#define RG_CPU_BF16_UNIT_H

#include <stdbool.h>
#include <stdint.h>

enum {
    RG_BF16_UNIT_NONE,
    RG_BF16_UNIT_AVX512, /* vdpbf16ps */
    RG_BF16_UNIT_AMX     /* the tile unit */
};

/* The best one that build, processor and system offer. */
int32_t rg_bf16_unit(void);

/* Whether the processor converts f32 to bf16, which AVX512-BF16 does, beside the tile unit, too. */
bool rg_bf16_converts(void);

/* "" for RG_BF16_UNIT_NONE. */
const char *rg_bf16_unit_name(int32_t unit);

#endif
