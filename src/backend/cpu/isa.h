/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The instruction sets: which ones this build has and this machine can run. */
#ifndef RG_CPU_ISA_H
#define RG_CPU_ISA_H

#include "backend/backend.h"

/* The highest instruction set that build, processor and system allow. */
int32_t rg_isa_best(void);
const char *rg_isa_name(int32_t isa);
rg_status rg_isa_parse(const char *name, int32_t *isa);

#endif
