/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Arithmetic on the CPU, element by element: forward, and the gradients of operands that are not
 * repeated. */
#include "ops/arithmetic/arithmetic_cpu.h"

/* ---- forward ---- */

RG_INLINE vreal value_of(const kind K, const constants *k, vreal a, vreal b)
{
    if (K == COMPARE)
        return compared(k, a, b);
    const vreal r = free_value(K, k, a, b);
    return k->bounded ? bounded_value(k, r) : r;
}

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

/* A row along which b is repeated: some periods of b are made, as many as a piece of the loop. */
RG_INLINE void forward_repeated(const kind K, const constants *k, const rg_arithmetic_args *args,
                                const int64_t offset[3], int64_t count, const rg_dtype T)
{
    char periods[2 * RG_ARITHMETIC_PERIOD * sizeof(real)];
    const int64_t element = vbytes(T) / VLEN, most = 2 * RG_ARITHMETIC_PERIOD / args->period;
    const int64_t made = least(most * args->period, count);
    for (int64_t i = 0; i < made; i += args->period)
        memcpy(periods + i * element, at(args->b, offset[1], T), (size_t)(args->period * element));
    const operand b = operand_at(periods, 1, T);
    for (int64_t i = 0; i < count; i += made) {
        const operand a = operand_at(at(args->a, offset[0] + i, T), 1, T);
        const result y = { at_out(args->y, offset[2] + i, T), 1, false, args->stream };
        forward_row(K, k, &a, &b, y, least(made, count - i), T);
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
        if (args->period > 0) {
            forward_repeated(K, &k, args, offset, count, T);
            continue;
        }
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
KIND(maximum, MAXIMUM, forward, rg_arithmetic_args)

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
    for (int end = 0; end < 2; end++) {
        const int64_t stop = end == 0 ? head : count;
        for (; i < stop; i += VLEN)
            gradient_one(K, k, x, unaligned, i, vlanes_left(stop - i), T);
        for (i = stop; i + 2 * VLEN <= count; i += 2 * VLEN)
            gradient_pair(K, k, x, dx, i, T);
    }
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
KIND(maximum, MAXIMUM, gradient, rg_arithmetic_gradient_args)

/* ---- entry points and table ---- */

RG_KERNEL(add_forward, rg_arithmetic_args)
RG_KERNEL(multiply_forward, rg_arithmetic_args)
RG_KERNEL(divide_forward, rg_arithmetic_args)
RG_KERNEL(compare_forward, rg_arithmetic_args)
RG_KERNEL(maximum_forward, rg_arithmetic_args)
RG_KERNEL(add_gradient, rg_arithmetic_gradient_args)
RG_KERNEL(add_bounded_gradient, rg_arithmetic_gradient_args)
RG_KERNEL(multiply_gradient, rg_arithmetic_gradient_args)
RG_KERNEL(divide_gradient, rg_arithmetic_gradient_args)
RG_KERNEL(maximum_gradient, rg_arithmetic_gradient_args)

RG_CPU_TABLE(arithmetic, RG_ARITHMETIC_KERNELS) = {
    [RG_ADD_FORWARD] = RG_ROW(add_forward),
    [RG_MULTIPLY_FORWARD] = RG_ROW(multiply_forward),
    [RG_DIVIDE_FORWARD] = RG_ROW(divide_forward),
    [RG_COMPARE_FORWARD] = RG_ROW(compare_forward),
    [RG_MAXIMUM_FORWARD] = RG_ROW(maximum_forward),
    [RG_ADD_GRADIENT] = RG_ROW(add_gradient),
    [RG_ADD_BOUNDED_GRADIENT] = RG_ROW(add_bounded_gradient),
    [RG_MULTIPLY_GRADIENT] = RG_ROW(multiply_gradient),
    [RG_DIVIDE_GRADIENT] = RG_ROW(divide_gradient),
    [RG_MAXIMUM_GRADIENT] = RG_ROW(maximum_gradient),
};
