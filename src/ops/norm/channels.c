/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Cutting rows of channels into units. */
#include "ops/norm/channels.h"
#include "core/integer.h"

#include <assert.h>

/* A part has about PART_ELEMENTS elements, and at least MIN_ROWS rows, so that storing its sums
 * costs little. There are at most MAX_PARTS parts, so that joining them costs little, unless a part
 * would exceed MAX_ROWS rows a sum. Chains make rows long enough to be worth a loop. */
enum { ROW_ELEMENTS = 256 };

static void cut(rg_channels *s, bool chained)
{
    enum { PART_ELEMENTS = 65536, MIN_ROWS = 64, MAX_PARTS = 1024, MAX_ROWS = 1024 };
    const int64_t channels = rg_max(s->channels, 1);
    s->blocks = rg_ceil_div(channels, RG_CHANNEL_COLUMNS);
    s->block = rg_ceil_div(channels, s->blocks);
    s->chains = chained ? rg_max(ROW_ELEMENTS / s->block, 1) : 1;
    s->part =
        rg_max(rg_max(PART_ELEMENTS / channels, MIN_ROWS), rg_ceil_div(s->rows.count, MAX_PARTS));
    s->part = s->part < MAX_ROWS * s->chains ? s->part : MAX_ROWS * s->chains;
    s->parts = rg_ceil_div(s->rows.count, s->part);
}

rg_channels rg_channels_make(const rg_tensor_desc *const descs[], int tensors, int32_t axis,
                             bool chained)
{
    const int32_t last = descs[0]->rank - 1;
    assert(last >= axis);
    rg_channels s = { .images = rg_walk_make(descs, tensors, 0, axis),
                      .rows = rg_walk_make(descs, tensors, axis, last),
                      .channels = descs[0]->dims[last],
                      .dense = true };
    s.joined = s.rows.rank <= 1;
    for (int t = 0; t < tensors; t++) {
        s.step[t] = s.channels > 1 ? descs[t]->strides[last] : 1;
        s.dense &= s.step[t] == 1;
        s.joined &= s.rows.rank == 0 || s.rows.strides[t][0] == s.channels;
    }
    s.joined &= s.dense;
    cut(&s, chained);
    return s;
}

bool rg_channels_are_planes(const rg_channels *s, int tensors, int64_t run)
{
    const int32_t last = s->rows.rank - 1;
    bool planes = last >= 0 && s->rows.dims[last] >= run && s->channels > 1;
    for (int t = 0; t < tensors && planes; t++)
        planes = s->rows.strides[t][last] == 1 && s->step[t] != 1;
    return planes;
}

bool rg_channels_are_short(int64_t channels)
{
    return 2 * channels <= ROW_ELEMENTS;
}
