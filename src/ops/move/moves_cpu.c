/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Moves and scatters on the CPU: copies of strided tensors, segment by segment; one copy for each
 * instruction set and real. */
#include "ops/move/moves_cpu.h"
#include "ops/move/segments_cpu.h"
#include "ops/move/tiles_cpu.h"

/* ---- moves ---- */

/* A position on a walk: where its element is, and how many follow in the same run. */
typedef struct cursor {
    int64_t offset, left;
    int64_t index[RG_MAX_RANK]; /* but for the innermost dimension */
} cursor;

RG_INLINE cursor cursor_at(const rg_walk *walk, int64_t first, int64_t i)
{
    cursor c = { .offset = first };
    const int32_t last = walk->rank - 1;
    for (int32_t d = last; d >= 0; d--) {
        const int64_t index = d > 0 ? i % walk->dims[d] : i;
        i = d > 0 ? i / walk->dims[d] : 0;
        c.index[d] = index;
        c.offset += index * walk->strides[0][d];
    }
    c.left = walk->dims[last] - c.index[last];
    return c;
}

/* Goes on by at most what is left of the run; after its end the next one begins. */
RG_INLINE void cursor_advance(cursor *c, const rg_walk *walk, int64_t count)
{
    int32_t d = walk->rank - 1;
    c->offset += count * walk->strides[0][d];
    c->left -= count;
    if (c->left > 0)
        return;
    c->left = walk->dims[d];
    c->offset -= walk->dims[d] * walk->strides[0][d];
    while (d-- > 0) {
        c->offset += walk->strides[0][d];
        if (++c->index[d] < walk->dims[d])
            return;
        c->index[d] = 0;
        c->offset -= walk->dims[d] * walk->strides[0][d];
    }
}

/* How many rows of `length` elements follow at even distances, at least 1; *step is the distance.
 */
RG_INLINE int64_t rows_ahead(const cursor *c, const rg_walk *walk, int64_t length, int64_t *step)
{
    const int32_t last = walk->rank - 1;
    *step = length;
    if (c->left > length)
        return c->left / length;
    if (last == 0 || walk->dims[last] != length)
        return 1;
    *step = walk->strides[0][last - 1];
    return walk->dims[last - 1] - c->index[last - 1];
}

/* Goes on by some of these rows. */
RG_INLINE void cursor_skip(cursor *c, const rg_walk *walk, int64_t length, int64_t rows)
{
    if (c->left >= rows * length) {
        cursor_advance(c, walk, rows * length);
        return;
    }
    c->index[walk->rank - 2] += rows - 1;
    c->offset += (rows - 1) * walk->strides[0][walk->rank - 2];
    cursor_advance(c, walk, length);
}

/* Moves short contiguous segments that follow at even distances; returns their rows, or 0. */
RG_INLINE int64_t move_rows(const rg_move_args *k, const cursor *from, const cursor *to,
                            int64_t length, int64_t left, const rg_dtype T)
{
    enum { MAX_ROW_BYTES = 4096 };
    const int64_t element = vbytes(T) / VLEN;
    int64_t from_step, to_step;
    if (k->move.add || length * element > MAX_ROW_BYTES || left < 2 * length)
        return 0;
    const int64_t rows =
        least(left / length, least(rows_ahead(from, &k->move.from, length, &from_step),
                                   rows_ahead(to, &k->move.to, length, &to_step)));
    if (rows < 2)
        return 0;
    move_rows_of_bytes(at_out(k->to, to->offset, T), to_step * element,
                       at(k->from, from->offset, T), from_step * element, rows, length * element,
                       k->move.stream);
    return rows;
}

RG_INLINE void move_units_of(const rg_move_args *k, int64_t begin, int64_t end, const rg_dtype T)
{
    const rg_move *m = &k->move;
    const int64_t from_step = m->from.strides[0][m->from.rank - 1];
    const int64_t to_step = m->to.strides[0][m->to.rank - 1];
    const int64_t units = (m->to.count + RG_MOVE_PIECE - 1) / RG_MOVE_PIECE;
    int64_t left = least(end * RG_MOVE_PIECE, m->to.count) - begin * RG_MOVE_PIECE;
    if (m->tiles.rows > 0 && !m->add) {
        move_tiles_of(k, begin, end, units, T);
        return;
    }
    cursor from = cursor_at(&m->from, m->from_offset, begin * RG_MOVE_PIECE);
    cursor to = cursor_at(&m->to, m->to_offset, begin * RG_MOVE_PIECE);
    while (left > 0) {
        const int64_t count = least(left, least(from.left, to.left));
        const int64_t rows =
            from_step == 1 && to_step == 1 ? move_rows(k, &from, &to, count, left, T) : 0;
        if (rows == 0)
            move_segment(at_out(k->to, to.offset, T), to_step, at(k->from, from.offset, T),
                         from_step, count, T, m->add, m->stream);
        cursor_skip(&from, &m->from, count, rows == 0 ? 1 : rows);
        cursor_skip(&to, &m->to, count, rows == 0 ? 1 : rows);
        left -= count * (rows == 0 ? 1 : rows);
    }
}

/* ---- scatters ---- */

/* The offset of index `row` of all dimensions but the last; whether it is in the slice. */
RG_INLINE bool scatter_row(const rg_scatter *s, int64_t row, int64_t *from, int64_t *to)
{
    bool inside = true;
    *from = 0;
    *to = s->to_offset;
    for (int32_t d = s->rank - 2; d >= 0; d--) {
        const int64_t index = d > 0 ? row % s->dims[d] : row;
        row = d > 0 ? row / s->dims[d] : 0;
        *to += index * s->to[d];
        const int64_t distance = index - s->start[d];
        const int64_t taken = s->step[d] == 1 ? distance : distance / s->step[d];
        inside = inside && distance >= 0 && taken < s->length[d] && taken * s->step[d] == distance;
        *from += inside ? taken * s->from[d] : 0;
    }
    return inside;
}

/* The part of a row from `distance` elements after the start of a slice with a step on. */
RG_INLINE void scatter_steps(const rg_scatter *s, char *to, const char *from, int64_t distance,
                             int64_t count, const rg_dtype T)
{
    const int32_t d = s->rank - 1;
    const size_t element = (size_t)(vbytes(T) / VLEN);
    int64_t phase = distance % s->step[d], taken = (distance + s->step[d] - 1) / s->step[d];
    for (int64_t i = 0; i < count; i++) {
        if (phase == 0)
            memcpy(at_out(to, i * s->to[d], T), at(from, taken++ * s->from[d], T), element);
        else
            memset(at_out(to, i * s->to[d], T), 0, element);
        phase = phase + 1 < s->step[d] ? phase + 1 : 0;
    }
}

/* Elements first <= i < end of a row that the slice overlaps. */
RG_INLINE void scatter_segment(const rg_scatter *s, char *to, const char *from, int64_t first,
                               int64_t end, const rg_dtype T)
{
    const int32_t d = s->rank - 1;
    const int64_t start = s->start[d], stop = start + (s->length[d] - 1) * s->step[d] + 1;
    const int64_t low = start < first ? first : least(start, end);
    const int64_t high = stop < low ? low : least(stop, end);
    const int64_t step = s->to[d];
    zero_segment(at_out(to, first * step, T), step, low - first, T, s->stream);
    if (high > low && s->step[d] == 1)
        move_segment(at_out(to, low * step, T), step, at(from, (low - start) * s->from[d], T),
                     s->from[d], high - low, T, false, s->stream);
    else if (high > low)
        scatter_steps(s, at_out(to, low * step, T), from, low - start, high - low, T);
    zero_segment(at_out(to, high * step, T), step, end - high, T, s->stream);
}

/* Short contiguous rows of which only a part is copied. They are assembled in the cache, because
 * streaming stores must write whole lines. */
typedef struct scatter_rows {
    int64_t most; /* 0: other rows */
    char data[4096];
} scatter_rows;

RG_INLINE void scatter_rows_begin(scatter_rows *r, const rg_scatter *s, const rg_dtype T)
{
    const int32_t d = s->rank - 1;
    const int64_t bytes = s->dims[d] * (vbytes(T) / VLEN);
    const bool even = d > 0 && s->to[d] == 1 && s->from[d] == 1 && s->step[d] == 1 &&
                      s->step[d - 1] == 1 && s->to[d - 1] == s->dims[d] && s->length[d] > 0;
    r->most = even && bytes > 0 ? (int64_t)sizeof r->data / bytes : 0;
    if (r->most > 1)
        memset(r->data, 0, sizeof r->data);
}

/* Rows from `row` on, which has a part that is copied, at most `most`; returns how many are done.
 */
RG_INLINE int64_t scatter_whole_rows(scatter_rows *r, const rg_scatter *s, int64_t row,
                                     int64_t most, char *to, const char *from, const rg_dtype T)
{
    const int32_t d = s->rank - 1;
    const int64_t element = vbytes(T) / VLEN, bytes = s->dims[d] * element;
    const int64_t left = s->start[d - 1] + s->length[d - 1] - row % s->dims[d - 1];
    const int64_t rows = least(r->most, least(most, left));
    if (rows < 2)
        return 0;
    move_rows_of_bytes(r->data + s->start[d] * element, bytes, from, s->from[d - 1] * element, rows,
                       s->length[d] * element, false);
    move_bytes(to, r->data, rows * bytes, false, s->stream);
    return rows;
}

RG_INLINE void scatter_units_of(const rg_scatter_args *k, int64_t begin, int64_t end,
                                const rg_dtype T)
{
    const rg_scatter *s = &k->scatter;
    const int64_t length = s->dims[s->rank - 1];
    const int64_t stop = least(end * RG_MOVE_PIECE, s->count);
    scatter_rows made;
    scatter_rows_begin(&made, s, T);
    for (int64_t i = begin * RG_MOVE_PIECE; i < stop;) {
        const int64_t row = i / length, first = i - row * length;
        const int64_t last = least(length, first + (stop - i));
        int64_t from, to;
        const bool inside = scatter_row(s, row, &from, &to) && s->length[s->rank - 1] > 0;
        const int64_t rows = inside && first == 0 && made.most > 1
                                 ? scatter_whole_rows(&made, s, row, (stop - i) / length,
                                                      at_out(k->to, to, T), at(k->from, from, T), T)
                                 : 0;
        if (rows > 0) {
            i += rows * length;
            continue;
        }
        if (inside)
            scatter_segment(s, at_out(k->to, to, T), at(k->from, from, T), first, last, T);
        else
            zero_segment(at_out(k->to, to + first * s->to[s->rank - 1], T), s->to[s->rank - 1],
                         last - first, T, s->stream);
        i += last - first;
    }
}

/* ---- any type ---- */

static void move_any(const rg_move_args *k, int64_t begin, int64_t end, rg_dtype T)
{
    RG_WITH_TYPE(T, U, move_units_of(k, begin, end, U));
}

static void scatter_any(const rg_scatter_args *k, int64_t begin, int64_t end, rg_dtype T)
{
    RG_WITH_TYPE(T, U, scatter_units_of(k, begin, end, U));
}

const rg_moves RG_TABLE(moves) = { move_any, scatter_any };
