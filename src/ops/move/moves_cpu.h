/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Moves and scatters on the CPU, for ops that have no other kernels. */
#ifndef RG_OPS_MOVE_MOVES_CPU_H
#define RG_OPS_MOVE_MOVES_CPU_H

#include "backend/cpu/kernel.h"
#include "ops/move/move.h"

/* moves_cpu.c: compiled once for all ops. */
typedef struct rg_moves {
    void (*move)(const rg_move_args *k, int64_t begin, int64_t end, rg_dtype T);
    void (*scatter)(const rg_scatter_args *k, int64_t begin, int64_t end, rg_dtype T);
} rg_moves;
extern const rg_moves RG_TABLE(moves);

RG_INLINE void move_units(const rg_move_args *k, int64_t begin, int64_t end, const rg_dtype T)
{
    RG_TABLE(moves).move(k, begin, end, T);
}

RG_INLINE void scatter_units(const rg_scatter_args *k, int64_t begin, int64_t end, const rg_dtype T)
{
    RG_TABLE(moves).scatter(k, begin, end, T);
}

#endif
