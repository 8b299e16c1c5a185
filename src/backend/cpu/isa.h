/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The instruction sets: which ones this build has and this machine can run. */
#ifndef RG_CPU_ISA_H
#define RG_CPU_ISA_H

#include "backend/backend.h"

enum { RG_ISA_BASE, RG_ISA_AVX2, RG_ISA_AVX512, RG_ISAS };
_Static_assert((int)RG_ISAS == (int)RG_MAX_ISAS, "rg_kernel_table has a list for each");

/* The highest instruction set that build, processor and system allow. */
int32_t rg_isa_best(void);
const char *rg_isa_name(int32_t isa);
rg_status rg_isa_parse(const char *name, int32_t *isa);

#endif
