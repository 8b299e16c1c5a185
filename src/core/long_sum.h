/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The long-sum rule: how sums keep their digits however long they are. Valid C and valid CUDA.
 *
 * n equal numbers added to one accumulator are off by up to n / 4 units of its last place: each
 * addition may round the same way. In f32 that is 1.5e-8 n of the sum. Results are promised within
 * 1e-5 however long a sum is, so a chain of additions is cut into runs of at most RG_CHAIN_RUN, and
 * the sums of the runs are joined without loss (backend/cpu/long_sum_cpu.h,
 * backend/cuda/long_sum.cuh). Contractions (convolution, dense, Gram) have three levels:
 *
 *      run      at most RG_SUM_RUN additions to one accumulator, which begins with 0;
 *      block    at most RG_SUM_RUNS runs, added one after the other in the same type;
 *      total    blocks, added one after the other in double.
 *
 * A sum of one run or one block has no further level. The error of a f32 sum of equal numbers is
 * then at most 1.5e-8 (RG_SUM_RUN + RG_SUM_RUNS) = 4.8e-6, whatever its length; that of random
 * numbers is far below. For f64 the double total is within 1e-12 up to 6e8 addends. What is one
 * addition depends on the unit: a fused multiply-add takes one addend, AMX adds 32 at a time.
 * Where runs begin follows from shapes alone. */
#ifndef RG_CORE_LONG_SUM_H
#define RG_CORE_LONG_SUM_H

enum {
    RG_CHAIN_RUN = 64, /* additions to one accumulator of a chain */
    RG_SUM_RUN = 256,  /* additions to one accumulator of a contraction */
    RG_SUM_RUNS = 64,  /* runs of a block */
    RG_SUM_BLOCK = RG_SUM_RUN * RG_SUM_RUNS
};

#endif
