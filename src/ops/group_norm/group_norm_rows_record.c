/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Group normalization by rows: each image is one row, and a unit is several of them. */
#include "core/integer.h"
#include "ops/group_norm/group_norm_record.h"
#include "ops/transpose/channels_last.h"
#include "runtime/objects.h"

static bool accepts(const rg_call *call, const void *request)
{
    const rg_tensor_desc *x = &call->x[0]->desc;
    (void)request;
    int64_t rows = 1;
    for (int32_t d = rg_group_norm_axis_of(call->desc, x->rank); d < x->rank - 1; d++)
        rows *= x->dims[d];
    return rows == 1;
}

/* The most images of a unit: a GPU sums up ROWS of them plainly in each of the thread groups that
 * share a block, a CPU as many as fit its buffers. */
static int64_t most_images(int64_t channels, int64_t groups)
{
    enum { ELEMENTS = 65536, ROWS = RG_GROUP_NORM_RUN, THREAD_GROUPS = 64, WARPS = 8 };
    return rg_clamp(ELEMENTS / channels, ROWS, ROWS * (groups == 1 ? THREAD_GROUPS : WARPS));
}

static rg_status record_rows(rg_call *call, bool is_gradient)
{
    enum { ELEMENTS = 32768, PARTS = 1024 };
    rg_group_norm_shape s = rg_group_norm_shape_of(call, is_gradient);
    const int64_t channels = s.channels.channels;
    s.by_rows = true;
    s.part = rg_max(rg_clamp(ELEMENTS / channels, 1, ELEMENTS),
                    rg_ceil_div(s.channels.images.count, PARTS));
    s.part = rg_clamp(s.part, 1, most_images(channels, s.groups));
    return rg_group_norm_record(call, &s, is_gradient);
}

static rg_status forward(rg_call *call)
{
    return record_rows(call, false);
}

static rg_status gradient(rg_call *call)
{
    return record_rows(call, true);
}

static rg_status record(rg_call *call, const void *request)
{
    return ((const rg_group_norm_request *)request)->gradient
               ? rg_channels_last_gradient(call, gradient)
               : rg_channels_last_forward(call, forward);
}

const rg_strategy rg_group_norm_rows = { "rows", accepts, record };
