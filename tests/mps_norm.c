/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Batches of normalisations: see mps_norm.h. */
#include "tests/mps_norm.h"

rg_kernel *batch_norm_of(rg_device *device, rg_batch_norm_phase phase, rg_neuron_kind neuron)
{
    rg_batch_norm_desc desc = rg_batch_norm_desc_default();
    desc.phase = phase;
    desc.epsilon = 1e-5;
    desc.neuron.kind = neuron;
    rg_kernel *kernel = NULL;
    EXPECT_OK(rg_batch_norm_create(device, &desc, &kernel));
    return kernel;
}

batch batch_of(rg_device *device, int64_t images)
{
    const int64_t *dims = DIMS(images, 3, 4, CHANNELS);
    batch b = {
        .x = { filled(device, RG_F64, 4, dims, 1), filled(device, RG_F64, 1, DIMS(CHANNELS), 2),
               filled(device, RG_F64, 1, DIMS(CHANNELS), 3) },
        .dy = filled(device, RG_F64, 4, dims, 4),
        .y = tensor_of(device, RG_F64, 4, dims),
        .dx = { tensor_of(device, RG_F64, 4, dims), tensor_of(device, RG_F64, 1, DIMS(CHANNELS)),
                tensor_of(device, RG_F64, 1, DIMS(CHANNELS)) }
    };
    return b;
}

void batch_close(batch *b)
{
    for (int i = 0; i < 3; i++) {
        rg_tensor_destroy(b->x[i]);
        rg_tensor_destroy(b->dx[i]);
    }
    rg_tensor_destroy(b->dy);
    rg_tensor_destroy(b->y);
}
