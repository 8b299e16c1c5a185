/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* A batch call: several images in one call of a verb, recorded in as few launches as possible. */
#ifndef RG_RUNTIME_BATCH_H
#define RG_RUNTIME_BATCH_H

#include "runtime/call.h"

/* Everything passed to a batch call; NULL arrays where a direction has none. Entry i * count + n of
 * an array is tensor i of image n. */
typedef struct rg_batch {
    const rg_kernel *kernel;
    rg_commands *commands;
    int64_t count;
    rg_tensor *const *x, *const *y, *const *dy, *const *dx;
    rg_state *const *states;
    uint64_t add;
    bool gradient;
} rg_batch;

static inline rg_tensor *rg_batch_tensor(rg_tensor *const tensors[], int64_t count, int32_t i,
                                         int64_t n)
{
    return tensors != NULL ? tensors[i * count + n] : NULL;
}

/* Tensors of one run of images, joined along dimension 0. */
typedef struct rg_batch_run {
    rg_tensor x[RG_MAX_INPUTS], y[RG_MAX_OUTPUTS], dy[RG_MAX_OUTPUTS], dx[RG_MAX_INPUTS];
} rg_batch_run;

/* Bits of `add` for image n. Gradients that several images share are summed: all but the first of
 * these images add. */
uint64_t rg_batch_add(const rg_batch *b, int32_t inputs, int64_t n);

/* Joins image n with those that follow it in memory, so that one call takes them all, and returns
 * the first image that is not joined. Images with states, or that share a gradient, stay apart. */
int64_t rg_batch_join(const rg_batch *b, int64_t n, rg_batch_run *r, rg_call *call);

/* Checks and records all images; on failure nothing is recorded. `who` is the public function. */
rg_status rg_batch_record(const rg_batch *b, const char *who);

#endif
