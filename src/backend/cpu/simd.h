/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Vectors for kernel files. A file is compiled once for each instruction set and for each
 * `real`:
 *
 *      real    what a kernel computes in: float, or double for f64 tensors
 *      vreal   VLEN of them; operators + - * / and comparisons work lane by lane
 *      T       how a tensor stores its elements, a constant: f32, f16, bf16, or f64
 *
 * vload and vstore convert between the two. Intrinsics stay in these files:
 *
 *      simd_types.h    real, vreal, vint, VLEN
 *      simd_lanes.h    lane by lane: vset, vselect, vmax, vfma, vsqrt, vkeep, ...
 *      simd_bits.h     masks and integers: vany, vany_nan, vmul_low, vbits_at_most, vkeep_bits
 *      simd_across.h   across lanes: vahead_one, vtranspose, vsum, vmax_lane
 *      simd_half.h     vectors of f16 and bf16 to and from real
 *      simd_memory.h   whole vectors: vload_full, vstore_full, vstream; load_one, store_one
 *      simd_pairs.h    two vectors at once: vload_pair, vstore_pair, vstore_sums
 *      simd_part.h     n elements: vload, vstore, vload_partial; those apart: vload_strided
 *      simd_bytes.h    bytes beside elements: vload_bytes, vload_pair_where */
#ifndef RG_CPU_SIMD_H
#define RG_CPU_SIMD_H

#include "backend/cpu/simd_bits.h"
#include "backend/cpu/simd_bytes.h"
#include "backend/cpu/simd_part.h"

#endif
