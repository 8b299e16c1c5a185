/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Transposed convolution on the CPU: see conv. */
#include "ops/conv_transpose/conv_transpose.h"
#include "backend/cpu/kernel.h"

const rg_cpu_row RG_TABLE(conv_transpose)[RG_CONV_TRANSPOSE_KERNELS] = { { { NULL } } };
