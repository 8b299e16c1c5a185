/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Backward weights of groups of 2, 4, 8 or 16 channels with stride 1 on the CPU, see
 * conv_cpu.h. */
#include "backend/cpu/thread_pool.h"
#include "ops/contract/contract_pairs_cpu.h"
#include "ops/conv/cpu/conv_permute_cpu.h"

#if RG_HAS_PERMUTE

enum { PICKS_TOGETHER = 8, WIDEST = 5, MANY_REGISTERS = RG_VECTOR_BYTES == 64 };

/* ---- sums ---- */

/* A row of x and of dy, and the channels to pick. */
typedef struct permute_row {
    const real *x, *y;
    const vint *index;
} permute_row;

/* Column i of a row of x times dy. The windows of all taps are there, if `inside`. With `one`, all
 * lanes pick the same words. */
RG_INLINE void column_products(const rg_conv_permute_windows *t, const permute_row r, int64_t i,
                               vreal sum[WIDEST][PICKS_TOGETHER], const int N, const int Q,
                               const bool inside, const bool one)
{
    const int64_t m = t->start + i;
    const vreal all = one ? vset(0) : vload_full(r.x, i * LANES, RG_REAL);
#pragma GCC unroll 8
    for (int n = 0; n < N; n++) {
        const vreal v = one ? vset(r.x[i * LANES + n]) : vpick(all, r.index[n]);
#pragma GCC unroll 5
        for (int q = 0; q < Q; q++) {
            if (inside || (m >= q && m - q < t->windows))
                sum[q][n] = vfma(v, vload_full(r.y, (m - q) * LANES, RG_REAL), sum[q][n]);
        }
    }
}

/* N picks, windows of Q columns. */
RG_INLINE void windows_products(const rg_conv_permute_windows *t, const int N, const int Q,
                                const bool one)
{
    const int64_t first = least(Q - 1 > t->start ? Q - 1 - t->start : 0, t->columns);
    const int64_t stop = least(t->windows - t->start, t->columns),
                  last = stop > first ? stop : first;
    vreal sum[WIDEST][PICKS_TOGETHER];
    vint index[PICKS_TOGETHER];
    memcpy(index, t->index, (size_t)N * sizeof *index);
#pragma GCC unroll 5
    for (int q = 0; q < Q; q++)
#pragma GCC unroll 8
        for (int n = 0; n < N; n++)
            sum[q][n] = vset(0);
    for (int64_t r = 0; r < t->rows; r++) {
        const permute_row row = { (const real *)t->x + r * t->x_row + t->offset,
                                  (const real *)t->y + r * t->y_row, index };
        for (int64_t i = 0; i < first; i++)
            column_products(t, row, i, sum, N, Q, false, one);
        for (int64_t i = first; i < last; i++)
            column_products(t, row, i, sum, N, Q, true, one);
        for (int64_t i = last; i < t->columns; i++)
            column_products(t, row, i, sum, N, Q, false, one);
    }
#pragma GCC unroll 5
    for (int q = 0; q < Q; q++)
#pragma GCC unroll 8
        for (int n = 0; n < N; n++)
            vstore_full(t->sums, (q * N + n) * VLEN, RG_REAL, sum[q][n]);
}

/* Groups as wide as a vector. */
RG_INLINE void windows_one(const rg_conv_permute_windows *t, int64_t columns)
{
    if (MANY_REGISTERS && columns == 3)
        windows_products(t, 8, 3, true);
    else if (columns == 3)
        windows_products(t, 4, 3, true);
    else if (MANY_REGISTERS)
        windows_products(t, 4, 5, true);
    else
        windows_products(t, 2, 5, true);
}

RG_OUTLINE void permute_windows(const rg_conv_permute_windows *t, int64_t columns, int64_t picks)
{
    if (t->picks_one)
        windows_one(t, columns);
    else if (columns == 3 && picks == 4)
        windows_products(t, 4, 3, false);
    else if (columns == 3)
        windows_products(t, 2, 3, false);
    else if (MANY_REGISTERS && picks == 4)
        windows_products(t, 4, 5, false);
    else
        windows_products(t, 2, 5, false);
}

/* ---- blocks ---- */

/* Rows and columns of windows of one image, and the pixels under their taps. */
typedef struct permute_block {
    int64_t image;
    int64_t row, rows, column, columns;
    int64_t x_row, x_end, x_column, x_columns; /* rows x_row <= r < x_end */
    int64_t start; /* of the first pixel of a row: the window of column 0 of x */
} permute_block;

RG_INLINE permute_block permute_block_of(const rg_conv_permute_partials_args *k, int64_t number)
{
    const rg_conv_axis *row = &k->shape.row, *column = &k->shape.column;
    const int64_t down = number / k->block_columns;
    permute_block b = { .image = down / k->block_rows,
                        .row = down % k->block_rows * k->rows,
                        .column = number % k->block_columns * k->columns };
    b.rows = least(k->rows, row->count - b.row);
    b.columns = least(k->columns, column->count - b.column);
    const int64_t top = b.row - row->before, left = b.column - column->before;
    b.x_row = top > 0 ? top : 0;
    b.x_end = least(top + b.rows + row->window - 1, row->size);
    b.x_column = left > 0 ? left : 0;
    b.x_columns = least(left + b.columns + column->window - 1, column->size) - b.x_column;
    b.x_columns = b.x_columns > 0 ? b.x_columns : 0;
    b.start = b.x_column - left;
    return b;
}

/* Of x or dy: row r from column `column` on, channels from c on. */
RG_INLINE const char *permute_pixel(const void *from, const int64_t step[4], const permute_block *b,
                                    int64_t r, int64_t column, int64_t c, const rg_dtype T)
{
    return at(from, b->image * step[0] + r * step[1] + column * step[2] + c * step[3], T);
}

/* Adds the sums of all taps of VLEN lanes from `lane` on to the partial sums at `to`, or stores
 * them there if these are the first. */
RG_INLINE void permute_taps(const rg_conv_permute_partials_args *k, const permute_block *b,
                            rg_conv_permute_windows t, int64_t lane, real *to, bool first,
                            const bool pairs)
{
    const rg_conv_shape *s = &k->shape;
    const int64_t Q = s->column.window;
    const int64_t together = rg_conv_permute_together(s->in, Q, MANY_REGISTERS);
    const real *const x = t.x, *const y = t.y;
    real sums[WIDEST * PICKS_TOGETHER * VLEN];
    vint index[PICKS_TOGETHER];
    t.sums = sums;
    t.index = index;
    t.picks_one = picks_one(s->in);
    for (int64_t i = 0; i < s->in; i += together) {
        for (int64_t n = together; n-- > 0;)
            t.offset = find_pick(&index[n], lane, i + n, s->in, s->in);
        for (int64_t p = 0; p < s->row.window; p++) {
            const int64_t top = b->row - s->row.before + p; /* pixel of the first window */
            const int64_t begin = top < b->x_row ? b->x_row - top : 0;
            const int64_t end = least(b->rows, b->x_end - top);
            t.rows = end > begin ? end - begin : 0;
            t.x = t.rows > 0 ? x + (top + begin - b->x_row) * t.x_row : x;
            t.y = t.rows > 0 ? y + begin * t.y_row + lane : y;
            if (pairs)
                rg_bf16_permute_windows(&t, Q, together);
            else
                permute_windows(&t, Q, together);
            for (int64_t q = 0; q < Q; q++)
                for (int64_t n = 0; n < together; n++) {
                    const int64_t slot =
                        (p * Q + q) * k->sums.tap_step + (i + n) * k->sums.in_step + lane;
                    const vreal sum = vload_full(sums, (q * together + n) * VLEN, RG_REAL);
                    vstore_full(to, slot, RG_REAL,
                                first ? sum : vload_full(to, slot, RG_REAL) + sum);
                }
        }
    }
}

/* LANES channels from c on of a block. */
RG_INLINE void permute_reals(const rg_conv_permute_partials_args *k, const permute_block *b,
                             int64_t c, char *scratch, real *to, bool first, const rg_dtype T)
{
    const rg_conv_shape *s = &k->shape;
    real *const y = (real *)(void *)scratch, *const x = (real *)(void *)(scratch + k->y_bytes);
    rg_conv_permute_windows t = { .x = x,
                                  .y = y,
                                  .x_row = b->x_columns * LANES,
                                  .y_row = b->columns * LANES,
                                  .start = b->start,
                                  .columns = b->x_columns,
                                  .windows = b->columns };
    for (int64_t r = 0; r < b->rows; r++)
        permute_load(permute_pixel(k->dy, s->y, b, b->row + r, b->column, c, T), s->y, b->columns,
                     y + r * t.y_row, false, T);
    for (int64_t r = b->x_row; r < b->x_end; r++)
        permute_load(permute_pixel(k->x, s->x, b, r, b->x_column, c, T), s->x, b->x_columns,
                     x + (r - b->x_row) * t.x_row, false, T);
    for (int64_t lane = 0; lane < LANES; lane += VLEN)
        permute_taps(k, b, t, lane, to, first, false);
}

#if RG_USES_PAIRS

/* `pairs` pairs of columns from column `first` on of a row of `count` pixels, others 0. Channels
 * are adjacent. */
RG_INLINE void permute_pair_row(const uint16_t *row, int64_t step, int64_t count, int64_t first,
                                int64_t pairs, real *to)
{
    static const uint16_t none[LANES] = { 0 };
    for (int64_t i = 0; i < pairs; i++, first += 2) {
        const bool low = first >= 0 && first < count, high = first + 1 >= 0 && first + 1 < count;
        const uint16_t *const pixel = row + first * step;
        vstore_full(to, i * LANES, RG_REAL,
                    pair_words(low ? pixel : none, high ? pixel + step : none, 0));
    }
}

/* A row where it is; what lies `ahead` elements further is fetched. */
RG_INLINE void permute_take(const char *from, const int64_t steps[4], int64_t count, int64_t ahead,
                            const uint16_t **row, int64_t *step)
{
    *row = (const uint16_t *)(const void *)from;
    *step = steps[2];
    for (int64_t j = 0; j < count; j++)
        __builtin_prefetch(*row + j * *step + ahead, 0, 2);
}

/* The same in pairs of columns, the next lanes being `next` channels further, or, unless next > 0,
 * in the next image; false, and nothing done, if a number is not finite. */
RG_INLINE bool permute_in_pairs(const rg_conv_permute_partials_args *k, const permute_block *b,
                                int64_t c, int64_t next, char *scratch, real *to, bool first)
{
    const rg_conv_shape *s = &k->shape;
    const int64_t halo = rg_conv_permute_halo(s->column.window), pairs = (b->columns + 1) / 2;
    const int64_t x_pairs = pairs + halo;
    real *const y = (real *)(void *)scratch, *const x = (real *)(void *)(scratch + k->y_bytes);
    const rg_conv_permute_windows t = { .x = x,
                                        .y = y,
                                        .x_row = 2 * x_pairs * LANES,
                                        .y_row = (pairs + 2 * halo) * LANES,
                                        .columns = x_pairs };
    uint16_t *const bits = (uint16_t *)(void *)(x + (b->x_end - b->x_row) * t.x_row);
    const uint16_t *row = bits;
    int64_t step = LANES;
    for (int64_t r = 0; r < b->rows; r++) {
        const char *const from = permute_pixel(k->dy, s->y, b, b->row + r, b->column, c, RG_BF16);
        if (s->y[3] != 1)
            permute_load(from, s->y, b->columns, bits, true, RG_BF16);
        else
            permute_take(from, s->y, b->columns, next > 0 ? LANES : s->y[0] + next, &row, &step);
        permute_pair_row(row, step, b->columns, -2 * halo, pairs + 2 * halo, y + r * t.y_row);
    }
    if (has_nonfinite_bits((const uint16_t *)(const void *)y, 2 * b->rows * t.y_row))
        return false;
    row = bits;
    step = LANES;
    for (int64_t r = b->x_row; r < b->x_end; r++) {
        real *const even = x + (r - b->x_row) * t.x_row, *const odd = even + x_pairs * LANES;
        const char *const from = permute_pixel(k->x, s->x, b, r, b->x_column, c, RG_BF16);
        if (s->x[3] != 1)
            permute_load(from, s->x, b->x_columns, bits, true, RG_BF16);
        else
            permute_take(from, s->x, b->x_columns, next > 0 ? LANES : s->x[0] + next, &row, &step);
        permute_pair_row(row, step, b->x_columns, -b->start, x_pairs, even);
        permute_pair_row(row, step, b->x_columns, 1 - b->start, x_pairs, odd);
    }
    if (has_nonfinite_bits((const uint16_t *)(const void *)x,
                           2 * (b->x_end > b->x_row ? b->x_end - b->x_row : 0) * t.x_row))
        return false;
    permute_taps(k, b, t, 0, to, first, true);
    return true;
}

#endif

RG_INLINE void permute_partials_units(const rg_conv_permute_partials_args *k, int64_t begin,
                                      int64_t end, const bool pairs, const rg_dtype T)
{
    const rg_conv_shape *s = &k->shape;
    const int64_t channels = s->groups * s->out;
    const int64_t all = s->images * k->block_rows * k->block_columns;
    char *const scratch = k->scratch + rg_thread_pool_index() * k->scratch_bytes;
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t slice = unit / k->units, c0 = unit % k->units * RG_CONV_PERMUTE_CHANNELS;
        const int64_t c1 = least(c0 + RG_CONV_PERMUTE_CHANNELS, channels);
        const int64_t number = slice * k->blocks, stop = least(all, number + k->blocks);
        real *const to = (real *)k->partials + slice * k->sums.slice_step;
        for (int64_t i = number; i < stop; i++) {
            const permute_block b = permute_block_of(k, i);
            for (int64_t c = c0; c < c1; c += LANES) {
                const bool first = i == number;
#if RG_USES_PAIRS
                if (pairs && permute_in_pairs(k, &b, c, c + LANES < c1 ? LANES : c0 - c, scratch,
                                              to + c, first))
                    continue;
#endif
                permute_reals(k, &b, c, scratch, to + c, first, T);
            }
        }
    }
    (void)pairs;
}

RG_INLINE void permute_partials(const rg_conv_permute_partials_args *k, int64_t begin, int64_t end,
                                const rg_dtype T)
{
    permute_partials_units(k, begin, end, false, T);
}

RG_KERNEL(permute_partials, rg_conv_permute_partials_args)

#if RG_USES_PAIRS

RG_INLINE void pair_permute_partials(const rg_conv_permute_partials_args *k, int64_t begin,
                                     int64_t end, const rg_dtype T)
{
    permute_partials_units(k, begin, end, true, T);
}

RG_PAIR_KERNEL(pair_permute_partials, rg_conv_permute_partials_args)

#endif
#endif

RG_CPU_TABLE(conv_permute_weights, RG_CONV_KERNELS) = {
#if RG_HAS_PERMUTE
    [RG_CONV_PERMUTE_PARTIALS] = RG_ROW(permute_partials),
#if RG_USES_PAIRS
    [RG_CONV_PAIR_PERMUTE_PARTIALS] = RG_PAIR_ROW(pair_permute_partials),
#endif
#endif
};
