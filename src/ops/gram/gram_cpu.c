/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Gram matrices on the CPU: products, see dense_cpu.c. */
#include "ops/gram/gram.h"
#include "backend/cpu/kernel.h"

const rg_cpu_row RG_TABLE(gram)[RG_GRAM_KERNELS] = { 0 };
