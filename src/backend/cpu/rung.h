/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The ladder of instruction sets: which rungs this build has and this machine can run. */
#ifndef RG_CPU_RUNG_H
#define RG_CPU_RUNG_H

#include "backend/backend.h"

/* The highest rung that build, processor and system allow. */
int32_t rg_rung_best(void);
const char *rg_rung_name(int32_t rung);
rg_status rg_rung_parse(const char *name, int32_t *rung);

#endif
