/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* What the tests of normalisations as in MPS share: a batch in f64 and its kernels. */
#ifndef RG_TESTS_MPS_NORM_H
#define RG_TESTS_MPS_NORM_H

#include "tests/mps.h"

enum { IMAGES = 5, PIXELS = 12, CHANNELS = 7 };

/* With epsilon 1e-5. */
rg_kernel *batch_norm_of(rg_device *device, rg_batch_norm_phase phase, rg_neuron_kind neuron);

/* Tensors of a batch, in f64: x, gamma, beta, dy. */
typedef struct batch {
    rg_tensor *x[3], *dy, *y, *dx[3];
} batch;

batch batch_of(rg_device *device, int64_t images);
void batch_close(batch *b);

#endif
