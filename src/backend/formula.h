/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* What the formulas of an op are written in, <op>_formulas.h: one text that is valid C, where vreal
 * is a vector, and valid CUDA, where vreal and real are one number.
 *
 *      RG_FORMULA                  heads a formula, RG_FORMULA_INLINE one that is always inlined
 *      RG_FORMULA_CAST             heads a function that casts constants to real
 *      RG_FORMULA_STRUCT(name)     heads a struct of real or vreal, RG_OF(name) is its type
 *      RG_CAST_OF(name)            the function name_of that casts one, inside of another
 *      + - * / < == ...            a comparison is a mask for vselect
 *      vset, vselect, vabs, vmax, vmin, vfma, vsqrt, vsigned
 *
 * and functions that take a constant `brief`: the result is to be rounded to 16 bits, so a quicker
 * form may do, where there is one. */
#ifndef RG_BACKEND_FORMULA_H
#define RG_BACKEND_FORMULA_H

#ifdef __CUDACC__
#include "backend/cuda/formula.cuh"
#else
#include "backend/cpu/formula_cpu.h"
#endif

#endif
