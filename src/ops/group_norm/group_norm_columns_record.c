/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Group normalization by columns: an image has any number of rows, and a unit is some of its
 * groups. */
#include "core/integer.h"
#include "ops/group_norm/group_norm_record.h"
#include "ops/transpose/channels_last.h"

static bool accepts(const rg_call *call, const void *request)
{
    (void)call, (void)request;
    return true;
}

/* A unit is whole groups of one image: so many that it stays in the cache between its passes, and
 * has whole cache lines if possible. */
void rg_group_norm_cut(rg_group_norm_shape *shape)
{
    enum { L2_ELEMENTS = 262144, LINE_ELEMENTS = 32, ROW_ELEMENTS = 256, PART_ELEMENTS = 8192 };
    enum { MIN_PART_ROWS = 16, MAX_PARTS = 1024 }; /* of a GPU, where there are many images */
    rg_channels *const s = &shape->channels;
    const int64_t each = s->channels / shape->groups;
    const int64_t most_columns = L2_ELEMENTS / rg_clamp(s->rows.count, 1, L2_ELEMENTS);
    const int64_t want = rg_clamp(most_columns, 1, RG_CHANNEL_COLUMNS);
    int64_t step = each;
    while (step % LINE_ELEMENTS != 0 && step * 2 <= want)
        step *= 2;
    if (step > want)
        step = each;
    s->block = rg_clamp(want / step * step, each, s->channels);
    s->part = rg_max(rg_clamp(PART_ELEMENTS / s->channels, MIN_PART_ROWS, PART_ELEMENTS),
                     rg_ceil_div(s->rows.count, MAX_PARTS));
    s->parts = rg_ceil_div(s->rows.count, s->part);
    s->blocks = rg_ceil_div(s->channels, s->block);
    s->chains = s->blocks == 1 && s->block < ROW_ELEMENTS ? ROW_ELEMENTS / s->block : 1;
}

static rg_status forward(rg_call *call)
{
    rg_group_norm_shape s = rg_group_norm_shape_of(call, false);
    rg_group_norm_cut(&s);
    return rg_group_norm_record(call, &s, false);
}

static rg_status gradient(rg_call *call)
{
    rg_group_norm_shape s = rg_group_norm_shape_of(call, true);
    rg_group_norm_cut(&s);
    return rg_group_norm_record(call, &s, true);
}

static rg_status record(rg_call *call, const void *request)
{
    return ((const rg_group_norm_request *)request)->gradient
               ? rg_channels_last_gradient(call, gradient)
               : rg_channels_last_forward(call, forward);
}

const rg_strategy rg_group_norm_columns = { "columns", accepts, record };
