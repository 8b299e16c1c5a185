/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Gram matrices: all kernels are those of dense. Valid C and valid CUDA. */
#ifndef RG_OPS_GRAM_H
#define RG_OPS_GRAM_H

#include <retrograde/gram.h>

enum { RG_GRAM_KERNELS = 1 }; /* an empty row: tables of none do not exist */

#endif
