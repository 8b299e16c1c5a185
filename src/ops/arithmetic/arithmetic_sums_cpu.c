/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Gradients of operands that arithmetic repeats, on the CPU. Sums over what an operand was repeated
 * for are made in pieces, together with the gradient of the other operand, so that memory sees dy
 * once. */
#include "backend/cpu/long_sum_cpu.h"
#include "ops/arithmetic/arithmetic_cpu.h"

/* ---- sums: runs of the inner dimensions ---- */

/* Elements of a run at most: those of a block of columns, or whole lanes of a row. */
enum { RUN = RG_BLOCK_GROUPS };

/* Scratch for elements without one common stride: dy, a, b, and the gradient of the other operand.
 */
typedef struct buffer {
    real data[RG_SUMS_TENSORS][RUN + VLEN];
} buffer;

typedef struct run {
    operand x[3]; /* dy, a, b */
    result other;
    buffer *gathered;
} run;

RG_OUTLINE void gather(const rg_walk *inner, int t, const char *data, int64_t first, int64_t count,
                       real *to, rg_dtype T)
{
    for (int64_t i = 0; i < count; i++) {
        int64_t offset[RG_SUMS_TENSORS];
        rg_walk_offsets(inner, RG_SUMS_TENSORS, first + i, offset);
        to[i] = load_one(data, offset[t], T);
    }
    for (int64_t i = count; i < count + VLEN; i++)
        to[i] = 0;
}

RG_OUTLINE void spread(const rg_walk *inner, int t, char *data, int64_t first, int64_t count,
                       const real *from, bool add, rg_dtype T)
{
    for (int64_t i = 0; i < count; i++) {
        int64_t offset[RG_SUMS_TENSORS];
        rg_walk_offsets(inner, RG_SUMS_TENSORS, first + i, offset);
        const real old = add ? load_one(data, offset[t], T) : 0;
        store_one(data, offset[t], T, add ? from[i] + old : from[i]);
    }
}

/* Opens elements first to first + count - 1 of the inner dimensions, for index `row` of those
 * around them; outside of both the tensors are at `from`. `offset` is set to that of the row. */
RG_OUTLINE void open_run(run *x, const rg_arithmetic_sums_args *args, const int64_t from[],
                         int64_t row, int64_t offset[], int64_t first, int64_t count, rg_dtype T)
{
    const void *const data[] = { args->dy, args->a, args->b };
    rg_walk_offsets(&args->around, RG_SUMS_TENSORS, row, offset);
    for (int t = 0; t < RG_SUMS_TENSORS; t++)
        offset[t] += from[t];
    for (int t = 0; t < 3; t++) {
        const char *start = at(data[t], offset[t], T);
        const int64_t step = args->inner.strides[t][0];
        if (args->straight) {
            x->x[t] = operand_at(at(start, first * step, T), step, T);
        } else {
            gather(&args->inner, t, start, first, count, x->gathered->data[t], T);
            x->x[t] = (operand){ (const char *)x->gathered->data[t], GATHERED, vset(0) };
        }
    }
    const int64_t step = args->inner.strides[3][0];
    char *to = at_out(args->other, offset[3] + first * step, T);
    x->other = args->straight
                   ? (result){ to, step, args->add, args->stream && is_aligned(to) }
                   : (result){ (char *)x->gathered->data[3], GATHERED, args->add, false };
}

RG_INLINE void close_run(const rg_arithmetic_sums_args *args, const int64_t offset[], int64_t first,
                         int64_t count, const buffer *r, const rg_dtype T)
{
    if (args->wants_other && !args->straight)
        spread(&args->inner, 3, at_out(args->other, offset[3], T), first, count, r->data[3],
               args->add, T);
}

/* A vector of what is added up; the gradient of the other operand goes where it belongs. */
RG_INLINE vreal run_step(const kind K, const rg_arithmetic_sums_args *args, const constants *k,
                         const run *x, int64_t i, const int n, const rg_dtype T)
{
    const vreal a = K == ADD ? vset(0) : take(&x->x[1], i, n, T);
    const vreal b = K == ADD ? vset(0) : take(&x->x[2], i, n, T);
    const vreal dy = passed(K, k, take(&x->x[0], i, n, T), a, b);
    if (args->wants_other)
        put(&x->other, i, n, T, slope_of(K, !args->second, k, dy, a, b));
    return slope_of(K, args->second, k, dy, a, b);
}

/* ---- sums, columns ---- */

enum { EVEN_VECTORS = 4 };

RG_INLINE void join_columns(real *sum, real *part, int64_t count)
{
    for (int64_t i = 0; i < count; i += VLEN) {
        vstore_full(sum, i, RG_REAL, vload_full(sum, i, RG_REAL) + vload_full(part, i, RG_REAL));
        vstore_full(part, i, RG_REAL, vset(0));
    }
}

/* Rows of V whole vectors that follow at even distances: what each column has added up to stays in
 * registers. Steps are in bytes, from row to row. Memory is fetched AHEAD bytes before it is read,
 * which need not be there. */
RG_INLINE void add_even_rows(const rg_arithmetic_sums_args *args, const constants *k, run x,
                             const int64_t step[2], int64_t rows, real *part, const int V,
                             const rg_dtype T)
{
    enum { MOST = EVEN_VECTORS, LINE = 64, AHEAD = 4096 };
    vreal acc[MOST];
    for (int v = 0; v < V; v++)
        acc[v] = vload_full(part, v * VLEN, RG_REAL);
    for (int64_t row = 0; row < rows; row++) {
        for (int line = 0; line < V * vbytes(T); line += LINE)
            __builtin_prefetch(x.x[0].data + AHEAD + line);
#pragma GCC unroll 4
        for (int v = 0; v < V; v++)
            acc[v] += run_step(ADD, args, k, &x, v * VLEN, VLEN, T);
        x.x[0].data += step[0];
        x.other.data += step[1];
    }
    for (int v = 0; v < V; v++)
        vstore_full(part, v * VLEN, RG_REAL, acc[v]);
}

RG_INLINE void sum_even_rows(const rg_arithmetic_sums_args *args, const constants *k, run x,
                             int64_t rows, int64_t count, real *part, const rg_dtype T)
{
    const rg_walk *w = &args->around;
    const int64_t element = vbytes(T) / VLEN;
    const int64_t step[] = { w->strides[0][w->rank - 1] * element,
                             w->strides[3][w->rank - 1] * element };
    x.other.stream = x.other.stream && step[1] % RG_VECTOR_BYTES == 0; /* all rows are aligned */
    if (count == 4 * VLEN)
        add_even_rows(args, k, x, step, rows, part, 4, T);
    else if (count == 2 * VLEN)
        add_even_rows(args, k, x, step, rows, part, 2, T);
    else
        add_even_rows(args, k, x, step, rows, part, 1, T);
}

/* How many rows from `row` on, at most `most`, add_even_rows takes; 0: not this one. */
RG_INLINE int64_t even_rows(const kind K, const rg_arithmetic_sums_args *args, int64_t count,
                            int64_t row, int64_t most)
{
    const rg_walk *w = &args->around;
    const bool dense = args->straight && args->inner.strides[0][0] == 1 &&
                       (!args->wants_other || args->inner.strides[3][0] == 1);
    if (K != ADD || !dense || w->rank < 1 ||
        (count != VLEN && count != 2 * VLEN && count != 4 * VLEN))
        return 0;
    const int64_t dim = w->dims[w->rank - 1];
    return least(most, dim - row % dim);
}

/* One piece of a block of adjacent sums, read row by row. The sums are flushed every 128 rows to
 * limit rounding errors. */
RG_INLINE void sum_columns(const kind K, const rg_arithmetic_sums_args *args, const constants *k,
                           int64_t unit, const rg_dtype T)
{
    enum { ASIDE = 128 };
    const int64_t first = unit % args->blocks * args->block, p = unit / args->blocks % args->pieces;
    const int64_t o = unit / (args->blocks * args->pieces), width = args->inner.count;
    const int64_t count = least(args->block, width - first), begin = p * args->piece;
    const int64_t end = least(begin + args->piece, args->around.count);
    int64_t from[RG_SUMS_TENSORS], offset[RG_SUMS_TENSORS];
    real sum[RUN + VLEN] = { 0 }, part[RUN + VLEN] = { 0 };
    buffer r;
    rg_walk_offsets(&args->outer, RG_SUMS_TENSORS, o, from);
    for (int64_t row = begin, next; row < end; row = next) {
        const int64_t aside = least(end, row + ASIDE - (row - begin) % ASIDE);
        const int64_t even = even_rows(K, args, count, row, aside - row);
        run opened;
        opened.gathered = &r;
        open_run(&opened, args, from, row, offset, first, count, T);
        const run x = opened; /* which no store can change */
        next = row + (even > 0 ? even : 1);
        if (even > 0) {
            sum_even_rows(args, k, x, even, count, part, T);
            if ((next - begin) % ASIDE == 0)
                join_columns(sum, part, count);
            continue;
        }
        int64_t i = 0;
        for (; i + VLEN <= count; i += VLEN)
            vstore_full(part, i, RG_REAL,
                        vload_full(part, i, RG_REAL) + run_step(K, args, k, &x, i, VLEN, T));
        if (i < count)
            vstore_full(part, i, RG_REAL,
                        vload_full(part, i, RG_REAL) +
                            run_step(K, args, k, &x, i, vlanes_left(count - i), T));
        close_run(args, offset, first, count, &r, T);
        if ((next - begin) % ASIDE == 0)
            join_columns(sum, part, count);
    }
    join_columns(sum, part, count);
    real *to = (real *)args->part + p * args->sums + o * width + first;
    memcpy(to, sum, (size_t)count * sizeof(real));
}

RG_INLINE void columns(const kind K, const rg_arithmetic_sums_args *args, int64_t begin,
                       int64_t end, const rg_dtype T)
{
    const constants k = constants_of(&args->numbers);
    for (int64_t unit = begin; unit < end; unit++)
        sum_columns(K, args, &k, unit, T);
}

KIND(add, ADD, columns, rg_arithmetic_sums_args)
KIND(add_bounded, ADD_BOUNDED, columns, rg_arithmetic_sums_args)
KIND(multiply, MULTIPLY, columns, rg_arithmetic_sums_args)
KIND(divide, DIVIDE, columns, rg_arithmetic_sums_args)
KIND(maximum, MAXIMUM, columns, rg_arithmetic_sums_args)

/* ---- sums, rows ---- */

/* A run into four vectors of lanes: which element goes to which follows from its place. */
RG_INLINE void fold_run(const kind K, const rg_arithmetic_sums_args *args, const constants *k,
                        const run *x, int64_t count, vreal acc[4], const rg_dtype T)
{
    int64_t i = 0;
    for (; i + 4 * VLEN <= count; i += 4 * VLEN) {
        for (int q = 0; q < 4; q++)
            acc[q] += run_step(K, args, k, x, i + q * VLEN, VLEN, T);
    }
    for (int q = 0; i < count; i += VLEN, q++) {
        const int n = vlanes_left(count - i);
        acc[q] += vkeep(run_step(K, args, k, x, i, n, T), n, 0);
    }
}

RG_INLINE void sum_row(const kind K, const rg_arithmetic_sums_args *args, const constants *k,
                       int64_t unit, const rg_dtype T)
{
    const int64_t p = unit % args->pieces, o = unit / args->pieces;
    const int64_t first = p % args->cuts * args->piece, row = p / args->cuts * args->rows;
    const int64_t last = least(first + args->piece, args->inner.count);
    const int64_t end = least(row + args->rows, args->around.count);
    int64_t from[RG_SUMS_TENSORS], offset[RG_SUMS_TENSORS];
    vreal acc[4] = { vset(0), vset(0), vset(0), vset(0) };
    long_sum total[4] = { long_sum_zero(), long_sum_zero(), long_sum_zero(), long_sum_zero() };
    int64_t left = RG_CHAIN_RUN; /* additions to a lane */
    buffer r;
    rg_walk_offsets(&args->outer, RG_SUMS_TENSORS, o, from);
    for (int64_t j = row; j < end; j++) {
        for (int64_t i = first; i < last; i += RUN) {
            const int64_t count = least(RUN, last - i);
            run opened;
            opened.gathered = &r;
            open_run(&opened, args, from, j, offset, i, count, T);
            const run x = opened; /* which no store can change */
            fold_run(K, args, k, &x, count, acc, T);
            close_run(args, offset, i, count, &r, T);
            left -= (count + 4 * VLEN - 1) / (4 * VLEN);
            if (left <= 0)
                left = long_sums_end_run(total, acc, 4);
        }
    }
    long_sums_end_run(total, acc, 4);
    ((real *)args->part)[p * args->sums + o] =
        vsum((total[0].high + total[1].high) + (total[2].high + total[3].high));
}

RG_INLINE void rows(const kind K, const rg_arithmetic_sums_args *args, int64_t begin, int64_t end,
                    const rg_dtype T)
{
    const constants k = constants_of(&args->numbers);
    for (int64_t unit = begin; unit < end; unit++)
        sum_row(K, args, &k, unit, T);
}

KIND(add, ADD, rows, rg_arithmetic_sums_args)
KIND(add_bounded, ADD_BOUNDED, rows, rg_arithmetic_sums_args)
KIND(multiply, MULTIPLY, rows, rg_arithmetic_sums_args)
KIND(divide, DIVIDE, rows, rg_arithmetic_sums_args)
KIND(maximum, MAXIMUM, rows, rg_arithmetic_sums_args)

/* ---- sums of pieces ---- */

RG_INLINE void sum_pieces(const rg_sum_pieces_args *k, int64_t begin, int64_t end, const rg_dtype T)
{
    const int64_t sums = k->kept.count;
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t first = unit * RG_SUMS_BLOCK, count = least(RG_SUMS_BLOCK, sums - first);
        double sum[RG_SUMS_BLOCK];
        sum_of_pieces(sum, (const real *)k->part + first, sums, k->pieces, count);
        for (int64_t i = 0; i < count; i++) {
            int64_t offset;
            rg_walk_offsets(&k->kept, 1, first + i, &offset);
            const real value = (real)sum[i];
            store_one(k->dx, offset, T, k->add ? load_one(k->dx, offset, T) + value : value);
        }
    }
}

/* ---- entry points and table ---- */

RG_KERNEL(add_columns, rg_arithmetic_sums_args)
RG_KERNEL(add_bounded_columns, rg_arithmetic_sums_args)
RG_KERNEL(multiply_columns, rg_arithmetic_sums_args)
RG_KERNEL(divide_columns, rg_arithmetic_sums_args)
RG_KERNEL(maximum_columns, rg_arithmetic_sums_args)
RG_KERNEL(add_rows, rg_arithmetic_sums_args)
RG_KERNEL(add_bounded_rows, rg_arithmetic_sums_args)
RG_KERNEL(multiply_rows, rg_arithmetic_sums_args)
RG_KERNEL(divide_rows, rg_arithmetic_sums_args)
RG_KERNEL(maximum_rows, rg_arithmetic_sums_args)
RG_KERNEL(sum_pieces, rg_sum_pieces_args)

RG_CPU_TABLE(arithmetic_sums, RG_ARITHMETIC_KERNELS) = {
    [RG_ADD_COLUMNS] = RG_ROW(add_columns),
    [RG_ADD_BOUNDED_COLUMNS] = RG_ROW(add_bounded_columns),
    [RG_MULTIPLY_COLUMNS] = RG_ROW(multiply_columns),
    [RG_DIVIDE_COLUMNS] = RG_ROW(divide_columns),
    [RG_MAXIMUM_COLUMNS] = RG_ROW(maximum_columns),
    [RG_ADD_ROWS] = RG_ROW(add_rows),
    [RG_ADD_BOUNDED_ROWS] = RG_ROW(add_bounded_rows),
    [RG_MULTIPLY_ROWS] = RG_ROW(multiply_rows),
    [RG_DIVIDE_ROWS] = RG_ROW(divide_rows),
    [RG_MAXIMUM_ROWS] = RG_ROW(maximum_rows),
    [RG_SUM_PIECES] = RG_ROW(sum_pieces),
};
