/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Group normalization of memory in planes of one channel each (NCHW), on a CPU: the kernels of
 * columns, without copies of their tensors. Result bits are the same. */
#include "core/integer.h"
#include "ops/group_norm/group_norm_record.h"
#include "runtime/objects.h"

/* Whether all tensors have at least `run` neighbours along the rows. */
static bool is_planes(const rg_call *call, const rg_group_norm_request *r, int64_t run)
{
    const rg_group_norm_shape s = rg_group_norm_shape_of(call, r->gradient);
    return rg_channels_are_planes(&s.channels, r->gradient ? 3 : 2, run);
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

/* Planes do not share cache lines: units of few groups stay in the cache between the passes. */
static rg_status record(rg_call *call, const void *request)
{
    enum { CHANNELS = 32 };
    const rg_group_norm_request *r = request;
    rg_group_norm_shape s = rg_group_norm_shape_of(call, r->gradient);
    const int64_t each = s.channels.channels / s.groups;
    rg_group_norm_cut(&s);
    s.channels.planes = true;
    s.channels.block = rg_min(s.channels.block, rg_ceil_div(CHANNELS, each) * each);
    s.channels.blocks = rg_ceil_div(s.channels.channels, s.channels.block);
    return rg_group_norm_record(call, &s, r->gradient);
}

const rg_strategy rg_group_norm_planes = { "planes", accepts, record, prefers };
