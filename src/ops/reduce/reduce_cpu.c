/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Reductions on the CPU.
 *
 * The order of every sum is fixed by the shape. A row is summed in pieces of 1024 elements, each in
 * 4 VLEN lanes; columns from the first element to the last, in pieces of 128. Pieces are added one
 * after the other in double, and so are parts. */
#include "backend/cpu/columns.h"
#include "ops/reduce/reduce.h"

enum { PIECE = 1024 };

/* ---- results ---- */

/* What is known of a part of a group, or of all of it. */
typedef struct found {
    double value;
    int64_t number;
} found;

/* Whether a value comes before the best so far: larger, or the first NaN. */
RG_INLINE bool beats(double value, double best)
{
    return value > best || (value != value && best == best);
}

RG_INLINE void store_found(const rg_reduce_result *r, void *y, int64_t at, found f,
                           const rg_dtype T)
{
    if (r->what == RG_REDUCE_NUMBER)
        ((int64_t *)y)[at] = f.number;
    else if (r->what == RG_REDUCE_TOTAL)
        store_one(y, at, T, (real)(f.value * r->weight / r->divisor));
    else
        store_one(y, at, T, (real)(f.value * r->sign));
}

/* The result of part p of output o: in y if it is the only one. */
RG_INLINE void keep_found(const rg_reduce_args *k, int64_t y, int64_t o, int64_t p, found f,
                          const rg_dtype T)
{
    const rg_reduce_result *r = &k->result;
    if (r->parts == 1 && !r->apart) {
        store_found(r, k->y, y, f, T);
        if (r->what == RG_REDUCE_WINNER)
            k->winners[o] = f.number;
        return;
    }
    k->partial[p * r->outputs + o] = f.value;
    if (r->what >= RG_REDUCE_NUMBER)
        k->partial[(r->parts + p) * r->outputs + o] = (double)f.number;
}

/* The groups from `offset` on; of no elements there is no x, not even an address. */
RG_INLINE const char *groups_at(const rg_reduce_args *k, int64_t offset, const rg_dtype T)
{
    return k->length > 0 ? at(k->x, offset, T) : NULL;
}

/* ---- rows ---- */

/* Elements j to j + count - 1 of a group: where they are, or gathered into `piece`. */
RG_INLINE const char *piece_at(const rg_reduce_args *k, const char *x, int64_t j, int64_t count,
                               char *piece, const rg_dtype T)
{
    const rg_walk *g = &k->group;
    if (k->dense)
        return at(x, j, T);
    const int64_t inner = g->dims[g->rank - 1], step = g->strides[0][g->rank - 1];
    for (int64_t done = 0, run; done < count; done += run) {
        int64_t offset;
        rg_walk_offsets(g, 1, j + done, &offset);
        run = least(inner - (j + done) % inner, count - done);
        if (step == 1 && run == count)
            return at(x, offset, T);
        if (step == 1) {
            memcpy(at_out(piece, done, T), at(x, offset, T), (size_t)(run * vbytes(T) / VLEN));
            continue;
        }
        for (int64_t i = 0; i < run; i++)
            memcpy(at_out(piece, done + i, T), at(x, offset + i * step, T),
                   (size_t)(vbytes(T) / VLEN));
    }
    return piece;
}

RG_FORMULA vreal fold_sum(const void *k, vreal acc, vreal x, vreal unused)
{
    (void)k;
    (void)unused;
    return acc + x;
}

/* The larger one, and NaN once there was one. */
RG_INLINE vreal larger(vreal acc, vreal x)
{
    return vselect((x > acc) | (x != x), x, acc);
}

RG_FORMULA vreal fold_extreme(const void *k, vreal acc, vreal x, vreal unused)
{
    (void)unused;
    return larger(acc, x * vset(*(const real *)k));
}

RG_INLINE double lanes_extreme(rg_lanes a)
{
    real lanes[VLEN];
    vstore_full(lanes, 0, RG_REAL,
                larger(larger(a.part[0], a.part[1]), larger(a.part[2], a.part[3])));
    double best = (double)lanes[0];
    for (int i = 1; i < VLEN; i++)
        best = beats((double)lanes[i], best) ? (double)lanes[i] : best;
    return best;
}

RG_OUTLINE double extreme_with_nan(const char *from, int64_t count, real sign, rg_dtype T)
{
    rg_lanes lanes = lanes_of(0);
    RG_WITH_TYPE(T, U, lanes = fold(fold_extreme, &sign, -RG_INFINITY, from, from, count, U));
    return lanes_extreme(lanes);
}

/* The extreme of neighbours. A maximum does not see NaN, so products with 0 are added up beside it:
 * if their sum is no number, there may be one. */
RG_INLINE double extreme_of(const char *from, int64_t count, real sign, rg_lanes *lanes,
                            const rg_dtype T)
{
    const vreal factor = vset(sign), zero = vset(0);
    rg_lanes best = lanes_of(-RG_INFINITY), seen = lanes_of(0);
    int64_t i = 0;
    for (; i + 4 * VLEN <= count; i += 4 * VLEN) {
        const vpair x = vload_pair(from, i, T, true), y = vload_pair(from, i + 2 * VLEN, T, true);
        const vreal value[4] = { x.a, x.b, y.a, y.b };
#pragma GCC unroll 4
        for (int p = 0; p < 4; p++) {
            best.part[p] = vmax(value[p] * factor, best.part[p]);
            seen.part[p] = vfma(value[p], zero, seen.part[p]);
        }
    }
    for (; i < count; i += VLEN) {
        const int n = vlanes_left(count - i);
        const vreal value = vload(from, i, n, T);
        best.part[0] = vmax(vkeep(value * factor, n, -RG_INFINITY), best.part[0]);
        seen.part[0] = vfma(value, zero, seen.part[0]);
    }
    *lanes = best;
    if (lanes_sum(seen) == 0)
        return (double)lanes_max(best);
    return extreme_with_nan(from, count, sign, T);
}

RG_INLINE found sum_row(const rg_reduce_args *k, const char *x, int64_t begin, int64_t end,
                        const rg_dtype T)
{
    char piece[PIECE * sizeof(real)];
    piece_sum sum = { 0 };
    for (int64_t j = begin; j < end; j += PIECE) {
        const int64_t count = least(PIECE, end - j);
        const char *from = piece_at(k, x, j, count, piece, T);
        piece_sum_add(&sum, (double)lanes_sum(fold(fold_sum, NULL, 0, from, from, count, T)));
    }
    return (found){ piece_sum_end(&sum), 0 };
}

/* The first element of a piece that is `best`. */
RG_INLINE int64_t first_in_piece(const char *from, int64_t count, real sign, double best,
                                 const rg_dtype T)
{
    enum { SHORT_LANES = RG_VECTOR_BYTES / 2 };
    const vreal wanted = vset((real)best * sign);
    int64_t i = 0;
    if (is_short(T) && best == best && best != 0) { /* numbers are equal where their bits are */
        uint16_t bits;
        store_one(&bits, 0, T, (real)best * sign);
        for (; i + SHORT_LANES <= count; i += SHORT_LANES) {
            const vreal x = vload_full(at(from, i, T), 0, RG_REAL);
            const uint32_t equal = vbits_equal((vwide)x, bits);
            if (equal != 0)
                return i + __builtin_ctz(equal);
        }
    }
    for (; best == best && i + 2 * VLEN <= count; i += 2 * VLEN) {
        const vpair x = vload_pair(from, i, T, true);
        if (vany((x.a == wanted) | (x.b == wanted)))
            break;
    }
    for (; i < count; i++) {
        const double x = (double)(load_one(from, i, T) * sign);
        if (x == best || (x != x && best != best))
            return i;
    }
    return 0;
}

/* The first element that lane `lane` of extreme_of() had and that is `best`. It looks at all of
 * them, so that a processor has nothing to guess. */
RG_INLINE int64_t first_of_lane(const char *from, int64_t count, real sign, real best, int64_t lane,
                                const rg_dtype T)
{
    const int64_t rows = count / (4 * VLEN);
    int64_t number = count;
    for (int64_t i = rows * 4 * VLEN + lane; i < count && lane < VLEN; i += VLEN)
        number = load_one(from, i, T) * sign >= best && i < number ? i : number;
    for (int64_t i = (rows - 1) * 4 * VLEN + lane; i >= 0; i -= 4 * VLEN)
        number = load_one(from, i, T) * sign >= best ? i : number;
    return number;
}

/* The first element that is `best`, the extreme that lanes of extreme_of() have found. */
RG_INLINE int64_t first_of_lanes(const char *from, int64_t count, real sign, double best,
                                 const rg_lanes *lanes, const rg_dtype T)
{
    enum { MOST_LANES = 4 };
    const vreal wanted = vset((real)best);
    uint64_t equal = 0;
    int64_t first = count;
#pragma GCC unroll 4
    for (int p = 0; p < 4; p++)
        equal |= (uint64_t)vmask_bits(lanes->part[p] == wanted) << p * VLEN;
    if (is_short(T) || best != best || __builtin_popcountll(equal) > MOST_LANES)
        return first_in_piece(from, count, sign, best, T);
    for (; equal != 0; equal &= equal - 1)
        first =
            least(first, first_of_lane(from, count, sign, (real)best, __builtin_ctzll(equal), T));
    return first;
}

/* The extreme of every piece; where its number is wanted, the first best piece is searched. */
RG_INLINE found extreme_row(const rg_reduce_args *k, const char *x, int64_t begin, int64_t end,
                            const rg_dtype T)
{
    char piece[PIECE * sizeof(real)];
    const real sign = (real)k->result.sign;
    const bool numbered = k->result.what >= RG_REDUCE_NUMBER;
    found f = { -(double)RG_INFINITY, begin };
    rg_lanes lanes;
    if (numbered && end - begin <= PIECE) {
        const char *from = piece_at(k, x, begin, end - begin, piece, T);
        f.value = extreme_of(from, end - begin, sign, &lanes, T);
        f.number += first_of_lanes(from, end - begin, sign, f.value, &lanes, T);
        return f;
    }
    for (int64_t j = begin; j < end; j += PIECE) {
        const int64_t count = least(PIECE, end - j);
        const char *from = piece_at(k, x, j, count, piece, T);
        const double best = extreme_of(from, count, sign, &lanes, T);
        if (beats(best, f.value))
            f = (found){ best, j };
    }
    if (numbered) {
        const int64_t count = least(PIECE, end - f.number);
        const char *from = piece_at(k, x, f.number, count, piece, T);
        f.number += first_in_piece(from, count, sign, f.value, T);
    }
    return f;
}

RG_INLINE void reduce_rows(const rg_reduce_args *k, int64_t begin, int64_t end, const rg_dtype T)
{
    const rg_reduce_result *r = &k->result;
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t o = unit / r->parts, p = unit % r->parts, first = p * r->part;
        const int64_t last = least(k->length, first + r->part);
        int64_t offset[3];
        rg_walk_offsets(&k->outer, 3, o, offset);
        const char *x = groups_at(k, offset[0], T);
        const found f = r->what == RG_REDUCE_TOTAL ? sum_row(k, x, first, last, T)
                                                   : extreme_row(k, x, first, last, T);
        keep_found(k, offset[1], o, p, f, T);
    }
}

/* ---- columns ---- */

/* What belongs to each group of a block; a vector from any group on is whole. */
typedef struct block {
    real acc[RG_BLOCK_GROUPS + VLEN];   /* of a piece: a sum; of all: an extreme */
    double sum[RG_BLOCK_GROUPS + VLEN]; /* of pieces */
    intr number[RG_BLOCK_GROUPS + VLEN];
} block;

/* One row of a block: element j (counted from the start of the part) of every group. */
RG_INLINE void fold_columns(const rg_reduce_args *k, block *b, const char *x, int64_t width,
                            int64_t j, const rg_reduce_what what, const rg_dtype T)
{
    const int64_t across = k->across[0];
    const vreal sign = vset((real)k->result.sign);
    int64_t i = 0;
    if (what == RG_REDUCE_TOTAL && k->dense) { /* the same, in a short loop */
        for (; i + VLEN <= width; i += VLEN)
            vstore_full(b->acc, i, RG_REAL, vload_full(b->acc, i, RG_REAL) + vload_full(x, i, T));
    }
    for (; i < width; i += VLEN) {
        const int n = vlanes_left(width - i);
        const vreal v = load_groups(at(x, i * across, T), across, n, T, k->dense);
        const vreal acc = vload_full(b->acc, i, RG_REAL);
        if (what == RG_REDUCE_TOTAL) {
            vstore_full(b->acc, i, RG_REAL, acc + v);
            continue;
        }
        const vreal next = v * sign;
        if (what == RG_REDUCE_NUMBER) {
            vint number;
            memcpy(&number, b->number + i, sizeof number);
            const vint wins = (next > acc) | ((next != next) & (acc == acc));
            number = (wins & ((vint){ 0 } + (intr)j)) | (~wins & number);
            memcpy(b->number + i, &number, sizeof number);
        }
        vstore_full(b->acc, i, RG_REAL, larger(acc, next));
    }
}

/* Of `width` groups; what is beyond them is not read. */
static void start_block(block *b, int64_t width, const rg_reduce_what what)
{
    const size_t groups = (size_t)(width + VLEN);
    memset(b->acc, 0, groups * sizeof *b->acc);
    memset(b->sum, 0, groups * sizeof *b->sum);
    memset(b->number, 0, groups * sizeof *b->number);
    for (int64_t i = 0; i < width + VLEN && what != RG_REDUCE_TOTAL; i++)
        b->acc[i] = -RG_INFINITY;
}

static void end_piece(block *b, int64_t width)
{
    for (int64_t i = 0; i < width; i++)
        b->sum[i] += (double)b->acc[i];
    memset(b->acc, 0, (size_t)(width + VLEN) * sizeof *b->acc);
}

/* `count` rows of up to NARROW vectors, `step` elements apart: sums stay in registers. Memory is
 * fetched AHEAD bytes before it is read, which need not be there. */
enum { NARROW = 8, TOGETHER = 4, LINE = 64, AHEAD = 8192 };

RG_INLINE void sum_narrow(block *b, const char *x, int64_t step, int64_t width, int64_t count,
                          const rg_dtype T)
{
    int64_t i = 0;
    for (; i + TOGETHER * VLEN <= width; i += TOGETHER * VLEN) {
        const char *row = at(x, i, T);
        vreal acc[TOGETHER];
#pragma GCC unroll 4
        for (int v = 0; v < TOGETHER; v++)
            acc[v] = vload_full(b->acc, i + v * VLEN, RG_REAL);
        for (int64_t j = 0; j < count; j++, row = at(row, step, T)) {
            for (int64_t f = 0; f < TOGETHER * vbytes(T); f += LINE)
                __builtin_prefetch(row + AHEAD + f);
#pragma GCC unroll 4
            for (int v = 0; v < TOGETHER; v++)
                acc[v] += vload_full(row, v * VLEN, T);
        }
#pragma GCC unroll 4
        for (int v = 0; v < TOGETHER; v++)
            vstore_full(b->acc, i + v * VLEN, RG_REAL, acc[v]);
    }
    for (; i < width; i += VLEN) {
        const int n = vlanes_left(width - i);
        const char *row = x;
        vreal acc = vload_full(b->acc, i, RG_REAL);
        for (int64_t j = 0; j < count; j++, row = at(row, step, T))
            acc += vload_partial(row, i, n, T);
        vstore_full(b->acc, i, RG_REAL, acc);
    }
}

/* Elements begin to end - 1 of all groups of a block. */
RG_INLINE void fold_part(const rg_reduce_args *k, block *b, const char *x, int64_t width,
                         int64_t begin, int64_t end, const rg_reduce_what what, const rg_dtype T)
{
    const rg_walk *g = &k->group;
    const int64_t inner = g->rank > 0 ? g->dims[g->rank - 1] : 1;
    const int64_t step = g->rank > 0 ? g->strides[0][g->rank - 1] : 0;
    for (int64_t j = begin; j < end;) {
        int64_t offset;
        rg_walk_offsets(g, 1, j, &offset);
        const char *row = at(x, offset, T);
        for (const int64_t stop = least(end, j + inner - j % inner); j < stop;
             row = at(row, step, T)) {
            if (what == RG_REDUCE_TOTAL && k->dense && width <= NARROW * VLEN) {
                const int64_t left = COLUMN_PIECE - (j - begin) % COLUMN_PIECE;
                const int64_t count = least(stop - j, left);
                sum_narrow(b, row, step, width, count, T);
                row = at(row, (count - 1) * step, T);
                j += count - 1;
            } else {
                fold_columns(k, b, row, width, j - begin, what, T);
            }
            j++;
            if (what == RG_REDUCE_TOTAL && ((j - begin) % COLUMN_PIECE == 0 || j == end))
                end_piece(b, width);
        }
    }
}

RG_INLINE void reduce_columns(const rg_reduce_args *k, int64_t begin, int64_t end, const rg_dtype T)
{
    const rg_reduce_result *r = &k->result;
    block b;
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t p = unit % r->parts, row = unit / r->parts;
        const int64_t column = row % k->blocks * k->block, first = p * r->part;
        const int64_t width = least(k->block, k->width - column);
        const int64_t last = least(k->length, first + r->part);
        int64_t offset[3];
        rg_walk_offsets(&k->outer, 3, row / k->blocks, offset);
        for (int t = 0; t < 3; t++)
            offset[t] += column * k->across[t];
        start_block(&b, width, r->what);
        const char *x = groups_at(k, offset[0], T);
        if (r->what == RG_REDUCE_TOTAL)
            fold_part(k, &b, x, width, first, last, RG_REDUCE_TOTAL, T);
        else if (r->what == RG_REDUCE_EXTREME)
            fold_part(k, &b, x, width, first, last, RG_REDUCE_EXTREME, T);
        else
            fold_part(k, &b, x, width, first, last, RG_REDUCE_NUMBER, T);
        if (r->what == RG_REDUCE_TOTAL && (r->parts > 1 || r->apart) && k->across[2] == 1) {
            memcpy(k->partial + p * r->outputs + offset[2], b.sum, (size_t)width * sizeof *b.sum);
            continue;
        }
        for (int64_t i = 0; i < width; i++) {
            const double value = r->what == RG_REDUCE_TOTAL ? b.sum[i] : (double)b.acc[i];
            keep_found(k, offset[1] + i * k->across[1], offset[2] + i * k->across[2], p,
                       (found){ value, first + b.number[i] }, T);
        }
    }
}

/* ---- joining parts ---- */

RG_INLINE void reduce_finish(const rg_reduce_finish_args *k, int64_t begin, int64_t end,
                             const rg_dtype T)
{
    const rg_reduce_result *r = &k->result;
    for (int64_t o = begin; o < end; o++) {
        found f = { -(double)RG_INFINITY, 0 };
        piece_sum total = { 0 };
        for (int64_t p = 0; p < r->parts; p++) {
            const double value = k->partial[p * r->outputs + o];
            if (r->what == RG_REDUCE_TOTAL)
                piece_sum_add(&total, value);
            else if (p == 0 || beats(value, f.value))
                f = (found){ value, p };
        }
        if (r->what == RG_REDUCE_TOTAL)
            f.value = piece_sum_end(&total);
        if (r->what >= RG_REDUCE_NUMBER)
            f.number = (int64_t)k->partial[(r->parts + f.number) * r->outputs + o];
        int64_t offset;
        rg_walk_offsets(&k->outer, 1, o, &offset);
        store_found(r, k->y, offset, f, T);
        if (r->what == RG_REDUCE_WINNER)
            k->winners[o] = f.number;
    }
}

/* ---- entry points and table ---- */

RG_KERNEL(reduce_rows, rg_reduce_args)
RG_KERNEL(reduce_columns, rg_reduce_args)
RG_KERNEL(reduce_finish, rg_reduce_finish_args)

RG_CPU_TABLE(reduce, RG_REDUCE_KERNELS) = {
    [RG_REDUCE_ROWS] = RG_ROW(reduce_rows),
    [RG_REDUCE_COLUMNS] = RG_ROW(reduce_columns),
    [RG_REDUCE_FINISH] = RG_ROW(reduce_finish),
};
