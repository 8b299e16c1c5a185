/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Tensors as rows of channels, for sums over all dimensions but the last: cut into units whose
 * sums are joined later. Part of kernel args, so valid C and valid CUDA. */
#ifndef RG_OPS_NORM_CHANNELS_H
#define RG_OPS_NORM_CHANNELS_H

#include "core/walk.h"

/* The most columns of a unit. */
enum { RG_CHANNEL_COLUMNS = 512 };

/* A unit is a block of channels of a part of the rows. Where there are few channels, `chains`
 * rows are taken at once, and their channels are adjacent: a column is a channel of a chain, and
 * row r of a part belongs to chain r % chains. All of this follows from the shape. */
typedef struct rg_channels {
    rg_walk images;                  /* sums stay within an image; or one for all */
    rg_walk rows;                    /* of an image: all other dimensions but the last */
    int64_t step[RG_WALK_TENSORS];   /* between channels */
    int64_t channels, block, blocks; /* in all, of a unit, units of a part */
    int64_t part, parts;             /* rows of a part, parts of an image */
    int64_t chains;
    bool dense;  /* every step is 1 */
    bool joined; /* and every row follows the one before */
    bool planes; /* kernels take neighbours along the rows: see rg_channels_are_planes */
} rg_channels;

/* Of tensors that have the same dims: images are dimensions 0 <= d < axis, rows those after
 * them. Short rows are taken several at a time where `chained`. */
rg_channels rg_channels_make(const rg_tensor_desc *const descs[], int tensors, int32_t axis,
                             bool chained);

/* Whether it is the rows that have neighbours, and not the channels, in all tensors, at least `run`
 * at a time: memory is planes of one channel each (NCHW). */
bool rg_channels_are_planes(const rg_channels *s, int tensors, int64_t run);

/* Whether rows of this many channels are short. */
bool rg_channels_are_short(int64_t channels);

static inline RG_HOST_DEVICE int64_t rg_channels_units(const rg_channels *s)
{
    return s->images.count * s->parts * s->blocks;
}

/* Rows of a part: all have s->part but the last one. */
static inline RG_HOST_DEVICE int64_t rg_channels_rows(const rg_channels *s, int64_t part)
{
    const int64_t left = s->rows.count - part * s->part;
    return left < s->part ? left : s->part;
}

#endif
