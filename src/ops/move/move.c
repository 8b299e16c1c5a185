/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Makes moves and scatters. */
#include "ops/move/move.h"

/* A walk over one tensor, of a rank of at least 1. */
static rg_walk path_of(const rg_tensor_desc *desc)
{
    rg_walk walk = rg_walk_make(&desc, 1, 0, desc->rank);
    if (walk.rank == 0) {
        walk.rank = 1;
        walk.dims[0] = walk.count;
        walk.strides[0][0] = 1;
    }
    return walk;
}

/* The dimensions of a tensor, largest stride first; equal ones stay in their order. */
static void order_of(const rg_tensor_desc *desc, int32_t order[])
{
    for (int32_t d = 0; d < desc->rank; d++) {
        int32_t k = d;
        for (; k > 0 && desc->strides[order[k - 1]] < desc->strides[d]; k--)
            order[k] = order[k - 1];
        order[k] = d;
    }
}

static rg_tensor_desc permuted(const rg_tensor_desc *desc, const int32_t order[])
{
    rg_tensor_desc result = *desc;
    for (int32_t d = 0; d < desc->rank; d++) {
        result.dims[d] = desc->dims[order[d]];
        result.strides[d] = desc->strides[order[d]];
    }
    return result;
}

rg_move rg_move_make(const rg_tensor_desc *from, const rg_tensor_desc *to)
{
    return (rg_move){ .from = path_of(from), .to = path_of(to) };
}

/* The dimension whose stride in tensor t is 1, or -1. */
static int32_t unit_dim(const rg_walk *walk, int t)
{
    int32_t d = walk->rank - 1;
    while (d >= 0 && walk->strides[t][d] != 1)
        d--;
    return d;
}

static void drop_dim(rg_walk *walk, int32_t d)
{
    walk->count /= walk->dims[d];
    walk->rank--;
    for (; d < walk->rank; d++) {
        walk->dims[d] = walk->dims[d + 1];
        for (int t = 0; t < 2; t++)
            walk->strides[t][d] = walk->strides[t][d + 1];
    }
}

/* Tiles where neighbours of the tensors lie along different dimensions, which are not tiny. */
static rg_move_tiles tiles_of(const rg_tensor_desc *from, const rg_tensor_desc *to)
{
    enum { MIN_SIDE = 3, SIDE = 64, TILE_ELEMENTS = SIDE * SIDE };
    const rg_tensor_desc *const descs[] = { from, to };
    const rg_walk walk = rg_walk_make(descs, 2, 0, to->rank);
    const int32_t row = unit_dim(&walk, 0), column = unit_dim(&walk, 1);
    rg_move_tiles tiles = { .outer = walk };
    if (walk.count == 0 || row < 0 || column < 0 || row == column || walk.dims[row] < MIN_SIDE ||
        walk.dims[column] < MIN_SIDE)
        return tiles;
    tiles.rows = walk.dims[row];
    tiles.columns = walk.dims[column];
    tiles.to_step = walk.strides[1][row];
    tiles.from_step = walk.strides[0][column];
    tiles.tile_rows = SIDE;
    tiles.tile_columns = SIDE;
    if (tiles.rows < SIDE)
        tiles.tile_columns = TILE_ELEMENTS / tiles.rows / SIDE * SIDE;
    else if (tiles.columns < SIDE)
        tiles.tile_rows = TILE_ELEMENTS / tiles.columns / SIDE * SIDE;
    drop_dim(&tiles.outer, row > column ? row : column);
    drop_dim(&tiles.outer, row > column ? column : row);
    return tiles;
}

rg_move rg_move_make_same(const rg_tensor_desc *from, const rg_tensor_desc *to)
{
    int32_t order[RG_MAX_RANK];
    order_of(to, order);
    const rg_tensor_desc ordered_from = permuted(from, order), ordered_to = permuted(to, order);
    rg_move move = rg_move_make(&ordered_from, &ordered_to);
    move.tiles = tiles_of(&ordered_from, &ordered_to);
    return move;
}

/* Appends an innermost dimension, merged with the previous one if both tensors are contiguous there
 * and the slice covers it completely with step 1. */
static void scatter_push(rg_scatter *s, int64_t dim, int64_t start, int64_t length, int64_t step,
                         int64_t from, int64_t to)
{
    const int32_t last = s->rank - 1;
    const bool merges = last >= 0 && s->step[last] == 1 && length == dim && step == 1 &&
                        s->to[last] == dim * to && s->from[last] == dim * from;
    if (merges) {
        s->dims[last] *= dim;
        s->start[last] *= dim;
        s->length[last] *= dim;
        s->from[last] = from;
        s->to[last] = to;
        return;
    }
    s->dims[s->rank] = dim;
    s->start[s->rank] = start;
    s->length[s->rank] = length;
    s->step[s->rank] = length > 1 ? step : 1;
    s->from[s->rank] = from;
    s->to[s->rank] = to;
    s->rank++;
}

rg_scatter rg_scatter_make(const rg_tensor_desc *from, const rg_tensor_desc *to,
                           const int64_t start[], const int64_t step[])
{
    rg_scatter scatter = { .count = 1 };
    int32_t order[RG_MAX_RANK];
    order_of(to, order);
    for (int32_t k = 0; k < to->rank; k++) {
        const int32_t d = order[k];
        scatter.count *= to->dims[d];
        if (to->dims[d] != 1 || from->dims[d] != 1)
            scatter_push(&scatter, to->dims[d], start[d], from->dims[d], step[d], from->strides[d],
                         to->strides[d]);
    }
    if (scatter.rank == 0)
        scatter_push(&scatter, 1, 0, 1, 1, 1, 1);
    return scatter;
}
