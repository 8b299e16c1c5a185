/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Forward and gradient of conv and of conv_transpose, as three passes. */
#include "ops/conv/conv_passes.h"

uint32_t rg_conv_reads(const rg_neuron_desc *neuron, bool bias)
{
    uint32_t bits = RG_READS_X | (uint32_t)RG_READS_X << 1;
    if (rg_fused_needs_z(neuron) && bias)
        bits |= (uint32_t)RG_READS_X << 2;
    return bits | rg_fused_reads(neuron);
}

rg_status rg_conv_record_forward(rg_call *call, const rg_conv_passes *p, const rg_tensor *y,
                                 const rg_tensor *z, const rg_neuron_desc *neuron)
{
    const rg_conv_pass pass = {
        .kernel = p->is_transpose ? RG_CONV_DATA : RG_CONV_FORWARD,
        .from = call->x[0],
        .w = call->x[1],
        .b = p->bias ? call->x[2] : NULL,
        .to = y,
        .z = z,
        .shape = p->shape(call->desc, &call->x[0]->desc, &y->desc, &call->x[1]->desc),
        .neuron = neuron,
    };
    return rg_conv_record(call, &pass);
}

rg_status rg_conv_record_gradients(rg_call *call, const rg_conv_passes *p, const rg_tensor *g)
{
    const rg_tensor *const x = call->x[0], *const *const dx = call->dx;
    if (dx[0] != NULL) {
        const rg_conv_pass pass = {
            .kernel = p->is_transpose ? RG_CONV_FORWARD : RG_CONV_DATA,
            .from = g,
            .w = call->x[1],
            .to = dx[0],
            .shape = p->shape(call->desc, &dx[0]->desc, &g->desc, &call->x[1]->desc),
            .add = call->add & 1,
        };
        RG_TRY(rg_conv_record(call, &pass));
    }
    if (dx[1] != NULL) {
        const rg_conv_pass pass = {
            .kernel = RG_CONV_WEIGHTS,
            .x = p->is_transpose ? g : x,
            .dy = p->is_transpose ? x : g,
            .dw = dx[1],
            .shape = p->shape(call->desc, &x->desc, &g->desc, &dx[1]->desc),
            .add = call->add >> 1 & 1,
        };
        RG_TRY(rg_conv_record(call, &pass));
    }
    if (p->bias && dx[2] != NULL)
        RG_TRY(rg_fused_bias(call, g, dx[2], call->add >> 2 & 1));
    return RG_OK;
}
