/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The limits of the machine: plain loops that move bytes, and a loop of multiplications and
 * additions. They run on the same queue and threads as kernels. On a GPU the bytes are
 * copied, and there is no loop of arithmetic. */
#ifndef RG_CLI_BENCH_LIMIT_H
#define RG_CLI_BENCH_LIMIT_H

#include "runtime/op.h"

enum {
    RG_LIMIT_ORDINARY,
    RG_LIMIT_BYPASS,
    RG_LIMIT_PEAK,
    RG_LIMIT_PAIR_PEAK, /* of bf16 in pairs, where a processor multiplies them */
    RG_LIMIT_KERNELS
};

typedef struct rg_limit_args {
    char *data[RG_MAX_POINTERS];    /* inputs, then outputs; aligned to RG_ALIGNMENT */
    int64_t bytes[RG_MAX_POINTERS]; /* of each */
    int32_t inputs, outputs;
    int64_t units;
} rg_limit_args;

/* Records a loop that reads every byte of the inputs once and writes every byte of the outputs
 * once, by streaming stores with `bypass`. On a GPU it is a copy of half of all these bytes from
 * the inputs to the outputs, by CUDA or, with `bypass`, by a kernel; without inputs it writes
 * the outputs. The tensors are dense and own their storage. */
rg_status rg_limit_record(rg_commands *commands, rg_tensor *const inputs[], int32_t input_count,
                          rg_tensor *const outputs[], int32_t output_count, bool bypass);

/* Records multiplications and additions in registers, as large contractions of this dtype do them;
 * element u of `done`, an f64 vector, receives how many floating-point operations unit u did.
 * RG_UNSUPPORTED on a GPU. */
rg_status rg_limit_record_peak(rg_commands *commands, rg_tensor *done, rg_dtype dtype);

#endif
