/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Tiles on the CPU: matrices that are transposed, one square of a vector's lanes after the other.
 *
 *      to[row * to_step + column]  =  from[row + column * from_step]
 *
 * A square has VLEN rows. Its columns fill a vector: VLEN of them, or 2 VLEN of 16 bits, of which
 * two neighbours make a word. */
#ifndef RG_OPS_MOVE_TILES_CPU_H
#define RG_OPS_MOVE_TILES_CPU_H

#include "ops/move/move.h"
#include "ops/move/segments_cpu.h"

/* A square that may have fewer rows and columns. */
typedef struct square {
    char *to;
    const char *from;
    int64_t to_step, from_step; /* in bytes */
    int64_t ahead;              /* bytes from a column to that of the next tile, which is fetched */
    int rows, columns;
    bool stream; /* whole rows are cache lines and are written by streaming stores */
} square;

/* Columns of a square. */
RG_INLINE int square_columns(const rg_dtype T)
{
    return RG_VECTOR_BYTES / (vbytes(T) / VLEN);
}

#if !RG_REAL_F64
RG_INLINE vuint load_halves(const char *from, const int rows)
{
    vhalf bits = { 0 };
    if (rows == VLEN)
        memcpy(&bits, from, sizeof bits);
    else
        move_tail((char *)&bits, from, rows * 2, false);
    return __builtin_convertvector(bits, vuint);
}
#endif

/* Rows of `from` from `column` on as one vector of the square. */
RG_INLINE vreal load_column(const square *s, int column, const int rows, const rg_dtype T)
{
    const char *from = s->from + column * s->from_step;
#if !RG_REAL_F64
    if (T != RG_F32) {
        const vuint low = load_halves(from, rows);
        if (column + 1 >= s->columns)
            return (vreal)low;
        return (vreal)(low | load_halves(from + s->from_step, rows) << 16);
    }
#endif
    return vload(from, 0, rows, T);
}

RG_INLINE void move_square(const square *s, const int rows, const rg_dtype T)
{
    const int each = square_columns(T) / VLEN;
    const bool whole = s->columns == square_columns(T);
    vreal lanes[VLEN];
#pragma GCC unroll 16
    for (int i = 0; i < VLEN; i++)
        lanes[i] = whole || i * each < s->columns ? load_column(s, i * each, rows, T) : vset(0);
    vtranspose(lanes);
    const char *next = s->from + s->ahead; /* fetched meanwhile */
    for (int i = 0; i < rows; i++) {
        char *to = s->to + i * s->to_step;
        for (int k = 0; k < each; k++, next += s->from_step)
            __builtin_prefetch(next);
        if (!whole)
            move_tail(to, (const char *)&lanes[i], s->columns * (vbytes(T) / VLEN), false);
        else if (s->stream)
            vstream(to, 0, RG_REAL, lanes[i]);
        else
            memcpy(to, &lanes[i], sizeof lanes[i]);
    }
}

/* Where a square begins: the last one overlaps that before, so that it is whole. */
RG_INLINE int64_t square_at(int64_t i, int64_t count, int64_t side)
{
    return i + side > count && count >= side ? count - side : i;
}

/* Tiles along one side: the last one also takes the remainder. */
RG_INLINE int64_t tiles_along(int64_t count, int64_t side)
{
    return count < 2 * side ? 1 : count / side;
}

/* One tile: squares along the columns, which are neighbours in `to`. */
RG_INLINE void move_tile(char *to, const char *from, const rg_move_tiles *t, int64_t rows,
                         int64_t columns, bool stream, const rg_dtype T)
{
    enum { LINE_BYTES = 64 };
    const int64_t element = vbytes(T) / VLEN, most = square_columns(T);
    square s = { .to_step = t->to_step * element, .from_step = t->from_step * element };
    s.ahead = t->rows > t->tile_rows ? t->tile_rows * element : t->tile_columns * s.from_step;
    s.stream = stream && (uintptr_t)to % LINE_BYTES == 0 && s.to_step % LINE_BYTES == 0 &&
               columns % most == 0;
    for (int64_t i = 0; i < rows; i += VLEN) {
        const int64_t row = square_at(i, rows, VLEN);
        s.rows = vlanes_left(rows - row);
        for (int64_t j = 0; j < columns; j += most) {
            const int64_t column = square_at(j, columns, most);
            s.columns = (int)least(most, columns - column);
            s.to = to + row * s.to_step + column * element;
            s.from = from + row * element + column * s.from_step;
            if (s.rows == VLEN)
                move_square(&s, VLEN, T);
            else
                move_square(&s, s.rows, T);
        }
    }
}

/* What units begin <= u < end of `units` do: their share of the tiles, of which neighbours in
 * `from` follow each other. */
RG_INLINE void move_tiles_of(const rg_move_args *k, int64_t begin, int64_t end, int64_t units,
                             const rg_dtype T)
{
    const rg_move_tiles *t = &k->move.tiles;
    const int64_t across = tiles_along(t->columns, t->tile_columns);
    const int64_t down = tiles_along(t->rows, t->tile_rows);
    const int64_t tiles = t->outer.count * down * across;
    const int64_t stop = end == units ? tiles : tiles / units * end + tiles % units * end / units;
    for (int64_t i = tiles / units * begin + tiles % units * begin / units; i < stop; i++) {
        const int64_t row_tile = i % down, row = row_tile * t->tile_rows;
        const int64_t column_tile = i / down % across, column = column_tile * t->tile_columns;
        int64_t offset[2];
        rg_walk_offsets(&t->outer, 2, i / down / across, offset);
        offset[0] += k->move.from_offset + row + column * t->from_step;
        offset[1] += k->move.to_offset + row * t->to_step + column;
        move_tile(at_out(k->to, offset[1], T), at(k->from, offset[0], T), t,
                  row_tile + 1 < down ? t->tile_rows : t->rows - row,
                  column_tile + 1 < across ? t->tile_columns : t->columns - column, k->move.stream,
                  T);
    }
}

#endif
