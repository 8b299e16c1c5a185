/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Recording a bias and a fused neuron, by the kernels of the ops that have them. */
#include "ops/fused_neuron/fused_neuron.h"

rg_status rg_fused_check(const rg_neuron_desc *neuron, const char *op)
{
    RG_CHECK(neuron->kind != RG_NEURON_PRELU, RG_UNSUPPORTED,
             "%s: neuron.kind cannot be prelu, which needs slopes; use a separate neuron op", op);
    RG_CHECK(!neuron->from_y, RG_INVALID_ARGUMENT,
             "%s: neuron.from_y must be false: the op itself decides whether the gradient reads y",
             op);
    return rg_op_neuron.check(neuron);
}

bool rg_fused_take_bias(const rg_neuron_desc *neuron, bool *bias)
{
    const bool takes = !*bias && neuron->kind == RG_NEURON_NONE;
    *bias |= takes;
    return takes;
}

bool rg_fused_needs_z(const rg_neuron_desc *neuron)
{
    return !rg_neuron_tells_slope(neuron);
}

uint32_t rg_fused_reads(const rg_neuron_desc *neuron)
{
    if (neuron->kind == RG_NEURON_NONE || neuron->kind == RG_NEURON_LINEAR)
        return 0;
    return rg_fused_needs_z(neuron) ? RG_READS_WITH_STATE : RG_READS_Y;
}

int32_t rg_fused_slots(const rg_neuron_desc *neuron, const rg_tensor_desc *y, rg_state_slot slots[])
{
    if (!rg_fused_needs_z(neuron))
        return 0;
    slots[0] = (rg_state_slot){ "z", *y };
    return 1;
}

const rg_tensor *rg_fused_z(const rg_call *call, const rg_neuron_desc *neuron)
{
    return rg_fused_needs_z(neuron) && call->state != NULL ? rg_state_slot_tensor(call->state, 0)
                                                           : NULL;
}

rg_status rg_fused_forward(rg_call *call, const rg_neuron_desc *neuron, const rg_tensor *z,
                           const rg_tensor *y)
{
    rg_call part = { .op = &rg_op_neuron,
                     .desc = neuron,
                     .commands = call->commands,
                     .inputs = 1,
                     .outputs = 1,
                     .x = { z },
                     .y = { y } };
    return rg_op_neuron.forward(&part);
}

/* dz from dy, and from y or z, whichever determines the slope. dz may be z. */
static rg_status record_gradient(rg_call *call, const rg_neuron_desc *neuron, const rg_tensor *z,
                                 const rg_tensor *dz)
{
    rg_neuron_desc desc = *neuron;
    desc.from_y = !rg_fused_needs_z(neuron);
    rg_call part = { .op = &rg_op_neuron,
                     .desc = &desc,
                     .commands = call->commands,
                     .inputs = 1,
                     .outputs = 1,
                     .gradients = 1,
                     .x = { z },
                     .y = { call->y[0] },
                     .dy = { call->dy[0] },
                     .dx = { dz } };
    return rg_op_neuron.gradient(&part);
}

rg_status rg_fused_backward(rg_call *call, const rg_neuron_desc *neuron, rg_fused_record *make_z,
                            rg_fused_record *gradients)
{
    const rg_tensor_desc *dy = &call->dy[0]->desc;
    if (neuron->kind == RG_NEURON_NONE)
        return gradients(call, call->dy[0]);
    const rg_tensor_desc dense = rg_tensor_desc_dense(dy->dtype, dy->rank, dy->dims);
    rg_tensor *dz;
    RG_TRY(rg_tensor_create_temporary(call->commands, &dense, &dz));
    rg_status status = RG_OK;
    const rg_tensor *z = dz;
    if (rg_fused_needs_z(neuron) && call->state != NULL && call->state->filled)
        z = rg_state_slot_tensor(call->state, 0);
    else if (rg_fused_needs_z(neuron))
        status = make_z(call, dz);
    if (status == RG_OK)
        status = record_gradient(call, neuron, z, dz);
    if (status == RG_OK)
        status = gradients(call, dz);
    rg_tensor_destroy(dz);
    return status;
}

/* db (+)= sum of dz over all of its dimensions but the last. */
static rg_status record_sum(rg_call *call, const rg_tensor *dz, const rg_tensor *db)
{
    rg_reduce_desc desc = rg_reduce_desc_default();
    rg_tensor rows = *dz; /* at least two dimensions: an empty list means all */
    if (dz->desc.rank == 1) {
        rows.desc.rank = 2;
        rows.desc.dims[0] = 1;
        rows.desc.strides[0] = 1;
        rows.desc.dims[1] = dz->desc.dims[0];
        rows.desc.strides[1] = dz->desc.strides[0];
    }
    desc.keep_dims = false;
    desc.dims_count = rows.desc.rank - 1;
    for (int32_t d = 0; d < desc.dims_count; d++)
        desc.dims[d] = d;
    rg_call part = { .op = &rg_op_reduce,
                     .desc = &desc,
                     .commands = call->commands,
                     .inputs = 1,
                     .outputs = 1,
                     .x = { &rows },
                     .y = { db } };
    return rg_op_reduce.forward(&part);
}

rg_status rg_fused_bias(rg_call *call, const rg_tensor *dz, const rg_tensor *db, bool add)
{
    if (!add)
        return record_sum(call, dz, db);
    const rg_tensor_desc dense = rg_tensor_desc_dense(db->desc.dtype, 1, db->desc.dims);
    const rg_arithmetic_desc desc = rg_arithmetic_desc_default();
    rg_tensor *sum;
    RG_TRY(rg_tensor_create_temporary(call->commands, &dense, &sum));
    rg_call part = { .op = &rg_op_arithmetic,
                     .desc = &desc,
                     .commands = call->commands,
                     .inputs = 2,
                     .outputs = 1,
                     .x = { db, sum },
                     .y = { db } };
    rg_status status = record_sum(call, dz, sum);
    if (status == RG_OK)
        status = rg_op_arithmetic.forward(&part);
    rg_tensor_destroy(sum);
    return status;
}
