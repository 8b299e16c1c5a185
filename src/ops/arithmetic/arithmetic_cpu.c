/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Arithmetic on the CPU. An operand that is repeated within a row is read once; others are read as
 * they lie. Sums over what an operand was repeated for are made in pieces, together with the
 * gradient of the other operand, so that memory sees dy once. */
#include "backend/cpu/kernel.h"
#include "backend/cpu/long_sum_cpu.h"
#include "ops/arithmetic/arithmetic.h"

#include <retrograde/arithmetic.h>

/* ---- formulas ---- */

typedef enum kind { ADD, ADD_BOUNDED, MULTIPLY, DIVIDE, COMPARE } kind;

/* One kind of a kernel that is written for all of them. */
#define KIND(name, K, kernel, args)                                                             \
    RG_INLINE void name##_##kernel(const args *k, int64_t begin, int64_t end, const rg_dtype T) \
    {                                                                                           \
        kernel(K, k, begin, end, T);                                                            \
    }

/* The numbers, cast once. */
typedef struct constants {
    real p, s, bias, low, high, threshold;
    int comparison;
    bool bounded;
} constants;

RG_INLINE constants constants_of(const rg_arithmetic_numbers *n)
{
    return (constants){ (real)n->primary, (real)n->secondary, (real)n->bias,      (real)n->minimum,
                        (real)n->maximum, (real)n->threshold, (int)n->comparison, n->bounded };
}

/* y before the bounds */
RG_INLINE vreal free_value(const kind K, const constants *k, vreal a, vreal b)
{
    if (K == MULTIPLY)
        return vset(k->p) * a * (vset(k->s) * b) + vset(k->bias);
    if (K == DIVIDE)
        return vset(k->p) * a / (vset(k->s) * b) + vset(k->bias);
    return vfma(vset(k->p), a, vset(k->s) * b) + vset(k->bias);
}

RG_INLINE vint compared(const constants *k, vreal a, vreal b)
{
    switch (k->comparison) {
    case RG_COMPARE_LESS:
        return a < b;
    case RG_COMPARE_LESS_OR_EQUAL:
        return a <= b;
    case RG_COMPARE_GREATER:
        return a > b;
    case RG_COMPARE_GREATER_OR_EQUAL:
        return a >= b;
    default:
        break;
    }
    const vint equal = (a == b) | (vabs(a - b) <= vset(k->threshold));
    return k->comparison == RG_COMPARE_EQUAL ? equal : ~equal;
}

RG_INLINE vreal value_of(const kind K, const constants *k, vreal a, vreal b)
{
    if (K == COMPARE)
        return vselect(compared(k, a, b), vset(1), vset(0));
    const vreal r = free_value(K, k, a, b);
    return k->bounded ? vmin(vset(k->high), vmax(vset(k->low), r)) : r; /* NaN stays */
}

/* The gradient of a, or of b if `second`. */
RG_INLINE vreal slope_of(const kind K, bool second, const constants *k, vreal dy, vreal a, vreal b)
{
    if (K == MULTIPLY)
        return second ? vset(k->s) * dy * (vset(k->p) * a) : vset(k->p) * dy * (vset(k->s) * b);
    if (K == DIVIDE) {
        const vreal da = vset(k->p) * dy / (vset(k->s) * b);
        return second ? -da * (a / b) : da;
    }
    return vset(second ? k->s : k->p) * dy;
}

/* dy, or 0 where a bound holds y. */
RG_INLINE vreal passed(const kind K, const constants *k, vreal dy, vreal a, vreal b)
{
    if (K == ADD || !k->bounded)
        return dy;
    const vreal r = free_value(K, k, a, b);
    return vselect((r >= vset(k->low)) & (r <= vset(k->high)), dy, vset(0));
}

/* ---- elements of a row, wherever they are ---- */

enum { GATHERED = -1 }; /* as a step: `data` is an array of real, whole vectors long */

typedef struct operand {
    const char *data;
    int64_t step;
    vreal all; /* of all elements, where step is 0 */
} operand;

RG_INLINE operand operand_at(const char *data, int64_t step, const rg_dtype T)
{
    return (operand){ data, step, step == 0 ? vset(load_one(data, 0, T)) : vset(0) };
}

RG_INLINE vreal take(const operand *x, int64_t i, const int n, const rg_dtype T)
{
    if (x->step == 1)
        return vload(x->data, i, n, T);
    if (x->step == 0)
        return x->all;
    return x->step == GATHERED ? vload_full(x->data, i, RG_REAL)
                               : vgather(x->data, i, x->step, n, T);
}

/* 2 VLEN of them, in the order of pairs of T. */
RG_INLINE vpair take_pair(const operand *x, int64_t i, const rg_dtype T)
{
    if (x->step == 1)
        return vload_pair(x->data, i, T, true);
    const vpair p = { take(x, i, VLEN, T), take(x, i + VLEN, VLEN, T) };
    return x->step == 0 ? p : vpair_order(p, T);
}

typedef struct result {
    char *data; /* NULL: not wanted */
    int64_t step;
    bool add, stream;
} result;

RG_INLINE void put(const result *y, int64_t i, const int n, const rg_dtype T, vreal value)
{
    if (y->step == GATHERED) {
        vstore_full(y->data, i, RG_REAL, value);
    } else if (y->step != 1) {
        if (y->add)
            value += vgather(y->data, i, y->step, n, T);
        vscatter(y->data, i, y->step, n, T, value);
    } else {
        if (y->add)
            value += vload(y->data, i, n, T);
        if (n == VLEN && y->stream)
            vstream(y->data, i, T, value);
        else
            vstore(y->data, i, n, T, value);
    }
}

RG_INLINE void put_pair(const result *y, int64_t i, const rg_dtype T, vpair value)
{
    if (y->step != 1) {
        value = velement_order(value, T);
        put(y, i, VLEN, T, value.a);
        put(y, i + VLEN, VLEN, T, value.b);
        return;
    }
    if (y->add) {
        const vpair old = vload_pair(y->data, i, T, true);
        value.a += old.a;
        value.b += old.b;
    }
    vstore_pair(y->data, i, T, value, true, y->stream);
}

RG_INLINE bool is_aligned(const char *data)
{
    return ((uintptr_t)data & (RG_VECTOR_BYTES - 1)) == 0;
}

/* How many elements come before an aligned address of a result that goes past the cache. From
 * there on results do where they are aligned too. */
RG_INLINE int64_t align(result y[], const int count, int64_t length, const rg_dtype T)
{
    int64_t head = 0;
    for (int i = count - 1; i >= 0; i--) {
        y[i].stream = y[i].stream && y[i].data != NULL && y[i].step == 1 && !y[i].add;
        if (y[i].stream)
            head = least(vhead(y[i].data, T), length);
    }
    for (int i = 0; i < count; i++)
        y[i].stream = y[i].stream && is_aligned(at(y[i].data, head, T));
    return head;
}

/* ---- forward ---- */

RG_INLINE void forward_row(const kind K, const constants *k, const operand *a, const operand *b,
                           result y, int64_t count, const rg_dtype T)
{
    result unaligned = y;
    unaligned.stream = false;
    const int64_t head = align(&y, 1, count, T);
    int64_t i = 0;
    for (; i < head; i += VLEN) {
        const int n = vlanes_left(head - i);
        put(&unaligned, i, n, T, value_of(K, k, take(a, i, n, T), take(b, i, n, T)));
    }
    for (i = head; i + 2 * VLEN <= count; i += 2 * VLEN) {
        const vpair p = take_pair(a, i, T), q = take_pair(b, i, T);
        const vpair value = { value_of(K, k, p.a, q.a), value_of(K, k, p.b, q.b) };
        put_pair(&y, i, T, value);
    }
    for (; i < count; i += VLEN) {
        const int n = vlanes_left(count - i);
        put(&unaligned, i, n, T, value_of(K, k, take(a, i, n, T), take(b, i, n, T)));
    }
}

RG_INLINE void forward(const kind K, const rg_arithmetic_args *args, int64_t begin, int64_t end,
                       const rg_dtype T)
{
    const constants k = constants_of(&args->numbers);
    const rg_sweep *s = &args->sweep;
    for (int64_t unit = begin; unit < end; unit++) {
        int64_t offset[3];
        const int64_t count = rg_sweep_piece(s, 3, unit, offset);
        const operand a = operand_at(at(args->a, offset[0], T), s->step[0], T);
        const operand b = operand_at(at(args->b, offset[1], T), s->step[1], T);
        const result y = { at_out(args->y, offset[2], T), s->step[2], false, args->stream };
        forward_row(K, &k, &a, &b, y, count, T);
    }
}

KIND(add, ADD, forward, rg_arithmetic_args)
KIND(multiply, MULTIPLY, forward, rg_arithmetic_args)
KIND(divide, DIVIDE, forward, rg_arithmetic_args)
KIND(compare, COMPARE, forward, rg_arithmetic_args)

/* ---- gradient, element by element ---- */

RG_INLINE void gradient_one(const kind K, const constants *k, const operand x[3],
                            const result dx[2], int64_t i, const int n, const rg_dtype T)
{
    const vreal a = K == ADD ? vset(0) : take(&x[1], i, n, T);
    const vreal b = K == ADD ? vset(0) : take(&x[2], i, n, T);
    const vreal dy = passed(K, k, take(&x[0], i, n, T), a, b);
    if (dx[0].data != NULL)
        put(&dx[0], i, n, T, slope_of(K, false, k, dy, a, b));
    if (dx[1].data != NULL)
        put(&dx[1], i, n, T, slope_of(K, true, k, dy, a, b));
}

RG_INLINE void gradient_pair(const kind K, const constants *k, const operand x[3],
                             const result dx[2], int64_t i, const rg_dtype T)
{
    const vpair none = { vset(0), vset(0) }, given = take_pair(&x[0], i, T);
    const vpair a = K == ADD ? none : take_pair(&x[1], i, T);
    const vpair b = K == ADD ? none : take_pair(&x[2], i, T);
    const vpair dy = { passed(K, k, given.a, a.a, b.a), passed(K, k, given.b, a.b, b.b) };
    if (dx[0].data != NULL) {
        const vpair da = { slope_of(K, false, k, dy.a, a.a, b.a),
                           slope_of(K, false, k, dy.b, a.b, b.b) };
        put_pair(&dx[0], i, T, da);
    }
    if (dx[1].data != NULL) {
        const vpair db = { slope_of(K, true, k, dy.a, a.a, b.a),
                           slope_of(K, true, k, dy.b, a.b, b.b) };
        put_pair(&dx[1], i, T, db);
    }
}

RG_INLINE void gradient_row(const kind K, const constants *k, const operand x[3], result dx[2],
                            int64_t count, const rg_dtype T)
{
    result unaligned[2] = { dx[0], dx[1] };
    unaligned[0].stream = unaligned[1].stream = false;
    const int64_t head = align(dx, 2, count, T);
    int64_t i = 0;
    for (; i < head; i += VLEN)
        gradient_one(K, k, x, unaligned, i, vlanes_left(head - i), T);
    for (i = head; i + 2 * VLEN <= count; i += 2 * VLEN)
        gradient_pair(K, k, x, dx, i, T);
    for (; i < count; i += VLEN)
        gradient_one(K, k, x, unaligned, i, vlanes_left(count - i), T);
}

RG_INLINE void gradient(const kind K, const rg_arithmetic_gradient_args *args, int64_t begin,
                        int64_t end, const rg_dtype T)
{
    const constants k = constants_of(&args->numbers);
    const rg_sweep *s = &args->sweep;
    const void *const from[] = { args->dy, args->a, args->b };
    for (int64_t unit = begin; unit < end; unit++) {
        int64_t offset[5];
        operand x[3];
        result dx[2];
        const int64_t count = rg_sweep_piece(s, 5, unit, offset);
        for (int t = 0; t < 3; t++)
            x[t] = operand_at(at(from[t], offset[t], T), s->step[t], T);
        for (int i = 0; i < 2; i++)
            dx[i] = (result){ args->wants[i] ? at_out(args->dx[i], offset[3 + i], T) : NULL,
                              s->step[3 + i], args->add[i], args->stream };
        gradient_row(K, &k, x, dx, count, T);
    }
}

KIND(add, ADD, gradient, rg_arithmetic_gradient_args)
KIND(add_bounded, ADD_BOUNDED, gradient, rg_arithmetic_gradient_args)
KIND(multiply, MULTIPLY, gradient, rg_arithmetic_gradient_args)
KIND(divide, DIVIDE, gradient, rg_arithmetic_gradient_args)

/* ---- sums: runs of the inner dimensions ---- */

/* Elements of a run at most: those of a block of columns, or whole lanes of a row. */
enum { RUN = RG_BLOCK_GROUPS };

typedef struct run {
    operand x[3]; /* dy, a, b */
    result other;
} run;

/* Room for what does not lie in a straight line: dy, a, b, and the gradient of the other operand.
 */
typedef struct buffer {
    real data[RG_SUMS_TENSORS][RUN + VLEN];
} buffer;

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

/* Elements first to first + count - 1 of the inner dimensions; outside of them the tensors stand
 * at `offset`. */
RG_INLINE run open_run(const rg_arithmetic_sums_args *args, const int64_t offset[], int64_t first,
                       int64_t count, buffer *r, const rg_dtype T)
{
    const void *const from[] = { args->dy, args->a, args->b };
    const int64_t *const steps[] = { args->inner.strides[0], args->inner.strides[1],
                                     args->inner.strides[2], args->inner.strides[3] };
    run x;
    for (int t = 0; t < 3; t++) {
        const char *data = at(from[t], offset[t], T);
        if (args->straight) {
            const int64_t step = steps[t][0];
            x.x[t] = operand_at(at(data, first * step, T), step, T);
        } else {
            gather(&args->inner, t, data, first, count, r->data[t], T);
            x.x[t] = (operand){ (const char *)r->data[t], GATHERED, vset(0) };
        }
    }
    if (args->straight) {
        char *to = at_out(args->other, offset[3] + first * steps[3][0], T);
        x.other = (result){ to, steps[3][0], args->add, args->stream && is_aligned(to) };
    } else {
        x.other = (result){ (char *)r->data[3], GATHERED, args->add, false };
    }
    return x;
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

RG_INLINE void join_columns(real *sum, real *part, int64_t count)
{
    for (int64_t i = 0; i < count; i += VLEN) {
        vstore_full(sum, i, RG_REAL, vload_full(sum, i, RG_REAL) + vload_full(part, i, RG_REAL));
        vstore_full(part, i, RG_REAL, vset(0));
    }
}

/* One piece of a block of sums that lie side by side, read row by row. Every 128 rows what they
 * have added up to is put aside: so errors grow less. */
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
    for (int64_t row = begin; row < end; row++) {
        rg_walk_offsets(&args->around, RG_SUMS_TENSORS, row, offset);
        for (int t = 0; t < RG_SUMS_TENSORS; t++)
            offset[t] += from[t];
        const run x = open_run(args, offset, first, count, &r, T);
        int64_t i = 0;
        for (; i + VLEN <= count; i += VLEN)
            vstore_full(part, i, RG_REAL,
                        vload_full(part, i, RG_REAL) + run_step(K, args, k, &x, i, VLEN, T));
        if (i < count)
            vstore_full(part, i, RG_REAL,
                        vload_full(part, i, RG_REAL) +
                            run_step(K, args, k, &x, i, vlanes_left(count - i), T));
        close_run(args, offset, first, count, &r, T);
        if ((row + 1 - begin) % ASIDE == 0)
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
        rg_walk_offsets(&args->around, RG_SUMS_TENSORS, j, offset);
        for (int t = 0; t < RG_SUMS_TENSORS; t++)
            offset[t] += from[t];
        for (int64_t i = first; i < last; i += RUN) {
            const int64_t count = least(RUN, last - i);
            const run x = open_run(args, offset, i, count, &r, T);
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

RG_KERNEL(add_forward, rg_arithmetic_args)
RG_KERNEL(multiply_forward, rg_arithmetic_args)
RG_KERNEL(divide_forward, rg_arithmetic_args)
RG_KERNEL(compare_forward, rg_arithmetic_args)
RG_KERNEL(add_gradient, rg_arithmetic_gradient_args)
RG_KERNEL(add_bounded_gradient, rg_arithmetic_gradient_args)
RG_KERNEL(multiply_gradient, rg_arithmetic_gradient_args)
RG_KERNEL(divide_gradient, rg_arithmetic_gradient_args)
RG_KERNEL(add_columns, rg_arithmetic_sums_args)
RG_KERNEL(add_bounded_columns, rg_arithmetic_sums_args)
RG_KERNEL(multiply_columns, rg_arithmetic_sums_args)
RG_KERNEL(divide_columns, rg_arithmetic_sums_args)
RG_KERNEL(add_rows, rg_arithmetic_sums_args)
RG_KERNEL(add_bounded_rows, rg_arithmetic_sums_args)
RG_KERNEL(multiply_rows, rg_arithmetic_sums_args)
RG_KERNEL(divide_rows, rg_arithmetic_sums_args)
RG_KERNEL(sum_pieces, rg_sum_pieces_args)

RG_CPU_TABLE(arithmetic, RG_ARITHMETIC_KERNELS) = {
    [RG_ADD_FORWARD] = RG_ROW(add_forward),
    [RG_MULTIPLY_FORWARD] = RG_ROW(multiply_forward),
    [RG_DIVIDE_FORWARD] = RG_ROW(divide_forward),
    [RG_COMPARE_FORWARD] = RG_ROW(compare_forward),
    [RG_ADD_GRADIENT] = RG_ROW(add_gradient),
    [RG_ADD_BOUNDED_GRADIENT] = RG_ROW(add_bounded_gradient),
    [RG_MULTIPLY_GRADIENT] = RG_ROW(multiply_gradient),
    [RG_DIVIDE_GRADIENT] = RG_ROW(divide_gradient),
    [RG_ADD_COLUMNS] = RG_ROW(add_columns),
    [RG_ADD_BOUNDED_COLUMNS] = RG_ROW(add_bounded_columns),
    [RG_MULTIPLY_COLUMNS] = RG_ROW(multiply_columns),
    [RG_DIVIDE_COLUMNS] = RG_ROW(divide_columns),
    [RG_ADD_ROWS] = RG_ROW(add_rows),
    [RG_ADD_BOUNDED_ROWS] = RG_ROW(add_bounded_rows),
    [RG_MULTIPLY_ROWS] = RG_ROW(multiply_rows),
    [RG_DIVIDE_ROWS] = RG_ROW(divide_rows),
    [RG_SUM_PIECES] = RG_ROW(sum_pieces),
};
