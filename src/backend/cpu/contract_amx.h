/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The contraction engine on the tile unit of a processor (AMX): products of bf16, sums in f32. */
#ifndef RG_CPU_CONTRACT_AMX_H
#define RG_CPU_CONTRACT_AMX_H

#include <stdbool.h>
#include <stdint.h>

/* Columns of a panel, and elements of k in a tile. */
enum { RG_AMX_PANEL = 32, RG_AMX_DEPTH = 32, RG_AMX_ROWS = 16 };

/* Whether there is such a unit, and the system lets this process use it. */
bool rg_amx_ready(void);

/* c[m][n] = sum over k of a[m][k] b[k][n], or c += it, for m < rows and n < columns, 16 or 32. Rows
 * of a are a_step elements apart, and memory is there up to a multiple of RG_AMX_ROWS of them. b is
 * a panel of pairs, [k / 2][RG_AMX_PANEL][2], whose last pair ends with 0 where k is odd. Products
 * are added in the order of k; the unit rounds subnormal numbers to 0. */
void rg_amx_rows(const uint16_t *a, int64_t a_step, const uint16_t *b, float *c, int64_t c_step,
                 int64_t rows, int64_t columns, int64_t k, bool add);

#endif
