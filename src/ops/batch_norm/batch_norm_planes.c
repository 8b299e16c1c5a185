/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Batch normalization of memory in planes of one channel each (NCHW), on a CPU: without copies of
 * its tensors. Result bits are those of the other strategies. */
#include "ops/batch_norm/batch_norm_record.h"
#include "runtime/objects.h"

/* Whether all tensors have at least `run` neighbours along the rows. */
static bool is_planes(const rg_call *call, const rg_batch_norm_request *r, int64_t run)
{
    const rg_tensor *const all[] = { call->x[0], r->gradient ? call->dy[0] : call->y[0],
                                     r->gradient ? call->dx[0] : NULL };
    const rg_tensor_desc *descs[RG_WALK_TENSORS];
    int tensors = 0;
    for (int i = 0; i < 3; i++) {
        if (all[i] != NULL)
            descs[tensors++] = &all[i]->desc;
    }
    const rg_channels s = rg_channels_make(descs, tensors, 0, false);
    return rg_channels_are_planes(&s, tensors, run);
}

static bool accepts(const rg_call *call, const void *request)
{
    return call->x[0]->device->backend == &rg_backend_cpu && is_planes(call, request, 2);
}

static bool prefers(const rg_call *call, const void *request)
{
    enum { MIN_RUN = 16 };
    return is_planes(call, request, MIN_RUN);
}

static rg_status record(rg_call *call, const void *request)
{
    const bool chained = rg_channels_are_short(rg_batch_norm_channels_of(call->x[0]));
    const rg_batch_norm_request *r = request;
    return rg_batch_norm_record(
        call,
        &(rg_batch_norm_request){ .gradient = r->gradient, .chained = chained, .planes = true });
}

const rg_strategy rg_batch_norm_planes = { "planes", accepts, record, prefers };
