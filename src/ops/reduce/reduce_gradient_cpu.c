/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Gradients of reductions on the CPU. */
#include "backend/cpu/kernel.h"
#include "ops/move/segments_cpu.h"
#include "ops/reduce/reduce.h"

/* ---- gradient of a sum ---- */

RG_FORMULA vreal scaled(const void *k, vreal dy, vreal unused)
{
    (void)unused;
    return dy * vset(*(const real *)k);
}

RG_FORMULA vreal raised(const void *k, vreal dx, vreal unused)
{
    (void)unused;
    return vset(*(const real *)k) + dx;
}

/* `count` elements that are all `value`. */
RG_INLINE void fill_row(char *dx, real value, int64_t count, const rg_dtype T, bool stream)
{
    enum { VECTOR_BYTES = RG_VECTOR_BYTES };
    char line[2 * VECTOR_BYTES];
    const int64_t bytes = count * (vbytes(T) / VLEN);
    int64_t i = least(-(uintptr_t)dx & (VECTOR_BYTES - 1), bytes);
    vstore_pair(line, 0, T, (vpair){ vset(value), vset(value) }, true, false);
    const vreal bits = load_bytes(line);
    if (i > 0)
        memcpy(dx, line, (size_t)i);
    for (; stream && i + VECTOR_BYTES <= bytes; i += VECTOR_BYTES)
        vstream(dx + i, 0, RG_REAL, bits);
    for (; i + VECTOR_BYTES <= bytes; i += VECTOR_BYTES)
        memcpy(dx + i, &bits, sizeof bits);
    if (i < bytes)
        memcpy(dx + i, line, (size_t)(bytes - i));
}

RG_INLINE void reduce_spread(const rg_reduce_gradient_args *k, int64_t begin, int64_t end,
                             const rg_dtype T)
{
    const int64_t *step = k->sweep.step;
    const real factor = (real)k->factor;
    for (int64_t unit = begin; unit < end; unit++) {
        int64_t offset[2];
        const int64_t count = rg_sweep_piece(&k->sweep, 2, unit, offset);
        char *dx = at_out(k->dx, offset[0], T);
        const char *dy = at(k->dy, offset[1], T);
        if (k->sweep.dense) {
            sweep(scaled, &factor, (sweep_data){ dy, dy, dx, k->add, k->stream }, count, T, T);
        } else if (step[0] == 1 && step[1] == 0) {
            const real value = load_one(dy, 0, T) * factor;
            if (k->add)
                sweep(raised, &value, (sweep_data){ dx, dx, dx, false, false }, count, T, T);
            else
                fill_row(dx, value, count, T, k->stream);
        } else {
            for (int64_t i = 0; i < count; i++) {
                const char *from = at(dy, i * step[1], T);
                const sweep_data d = { from, from, at_out(dx, i * step[0], T), k->add, false };
                sweep_one(scaled, &factor, d, 0, 1, T, T);
            }
        }
    }
}

/* Rows of dx that all become the same row of dy: some of them are made, then copied. */
RG_INLINE void reduce_repeat(const rg_reduce_gradient_args *k, int64_t begin, int64_t end,
                             const rg_dtype T)
{
    enum { COPIES_BYTES = 4096 };
    char rows[RG_REPEAT_MAX * sizeof(real) + COPIES_BYTES];
    const real factor = (real)k->factor;
    const int64_t bytes = k->period * (vbytes(T) / VLEN);
    const int64_t most = COPIES_BYTES / bytes * bytes + bytes;
    for (int64_t unit = begin; unit < end; unit++) {
        int64_t offset[2];
        const int64_t count = rg_sweep_piece(&k->sweep, 2, unit, offset);
        const int64_t all = count * (vbytes(T) / VLEN), made = least(most, all);
        const char *dy = at(k->dy, offset[1], T);
        char *dx = at_out(k->dx, offset[0], T);
        sweep(scaled, &factor, (sweep_data){ dy, dy, rows, false, false }, k->period, T, T);
        for (int64_t done = bytes; done < made; done += bytes)
            memcpy(rows + done, rows, (size_t)bytes);
        for (int64_t done = 0; done < all; done += made)
            move_bytes(dx + done, rows, least(made, all - done), false, k->stream);
    }
}

/* ---- gradient of an extreme ---- */

/* All bits set where a winner is number j. */
RG_INLINE vint winners_are(const int64_t *winners, int64_t j, const int n)
{
    intr is[VLEN] = { 0 };
    for (int i = 0; i < n; i++)
        is[i] = winners[i] == j ? -1 : 0;
    vint lanes;
    memcpy(&lanes, is, sizeof lanes);
    return lanes;
}

RG_INLINE void award_one(const char *dy, char *dx, const int64_t *winners, int64_t j, int64_t i,
                         const int n, bool add, const rg_dtype T)
{
    vreal value = vselect(winners_are(winners + i, j, n), vload(dy, i, n, T), vset(0));
    if (add)
        value += vload(dx, i, n, T);
    vstore(dx, i, n, T, value);
}

/* Adjacent groups; all elements are number j of their groups. */
RG_INLINE void award_columns(const char *dy, char *dx, const int64_t *winners, int64_t j,
                             int64_t count, bool add, const rg_dtype T)
{
    int64_t i = 0;
    for (; i + VLEN <= count; i += VLEN)
        award_one(dy, dx, winners, j, i, VLEN, add, T);
    if (i < count)
        award_one(dy, dx, winners, j, i, vlanes_left(count - i), add, T);
}

/* Elements of one group, of which `winner` gets dy and the others 0. Streaming stores would have
 * the cache line of the winner read back: it is made before it is written. */
RG_INLINE void award_row(const char *dy, char *dx, int64_t winner, int64_t count, bool stream,
                         const rg_dtype T)
{
    enum { LINE_BYTES = 64 };
    const int64_t element = vbytes(T) / VLEN, bytes = count * element;
    const bool wins = winner >= 0 && winner < count;
    const int64_t at_bytes = wins ? winner * element : 0;
    const int64_t before = at_bytes - (int64_t)((uintptr_t)(dx + at_bytes) % LINE_BYTES);
    const bool whole = before + LINE_BYTES <= bytes;
    if (!stream || !wins || before < 0 || !whole) {
        move_bytes(dx, NULL, bytes, true, stream);
        if (wins)
            store_one(dx, winner, T, load_one(dy, 0, T));
        return;
    }
    char line[LINE_BYTES] = { 0 };
    store_one(line + (at_bytes - before), 0, T, load_one(dy, 0, T)); /* within the line */
    move_bytes(dx, NULL, before, true, true);
    move_bytes(dx + before, line, LINE_BYTES, false, true);
    move_bytes(dx + before + LINE_BYTES, NULL, bytes - before - LINE_BYTES, true, true);
}

/* The winner of a group, counted from element `first` on; any number there is may be given. */
RG_INLINE int64_t winner_from(const int64_t *winner, int64_t first)
{
    return (int64_t)((uint64_t)*winner - (uint64_t)first);
}

RG_INLINE void award_more(const char *dy, char *dx, int64_t winner, int64_t count, const rg_dtype T)
{
    if (winner >= 0 && winner < count)
        store_one(dx, winner, T, load_one(dx, winner, T) + load_one(dy, 0, T));
}

/* Rows of `width` adjacent groups, from number `first` of these on. */
RG_INLINE void award_block(const char *dy, char *dx, const int64_t *winners, int64_t first,
                           int64_t width, int64_t count, bool stream, const rg_dtype T)
{
    move_bytes(dx, NULL, count * (vbytes(T) / VLEN), true, stream);
    for (int64_t i = 0; i < width; i++) {
        const int64_t row = winner_from(winners + i, first);
        if (row >= 0 && row < count / width)
            store_one(dx, row * width + i, T, load_one(dy, i, T));
    }
}

RG_INLINE void reduce_award(const rg_reduce_gradient_args *k, int64_t begin, int64_t end,
                            const rg_dtype T)
{
    const int64_t *step = k->sweep.step;
    for (int64_t unit = begin; unit < end; unit++) {
        int64_t offset[4];
        const int64_t count = rg_sweep_piece(&k->sweep, 4, unit, offset);
        char *dx = at_out(k->dx, offset[0], T);
        const char *dy = at(k->dy, offset[1], T);
        const int64_t *winners = k->winners + offset[2];
        const bool row = step[0] == 1 && step[2] == 0 && step[3] == 1;
        if (k->period > 0) {
            const int64_t before = unit % k->sweep.pieces * (k->sweep.piece / k->period);
            award_block(dy, dx, winners, offset[3] + before, k->period, count, k->stream, T);
        } else if (row && k->add) {
            award_more(dy, dx, winner_from(winners, offset[3]), count, T);
        } else if (row) {
            award_row(dy, dx, winner_from(winners, offset[3]), count, k->stream, T);
        } else if (step[0] == 1 && step[1] == 1 && step[2] == 1 && step[3] == 0) {
            award_columns(dy, dx, winners, offset[3], count, k->add, T);
        } else {
            for (int64_t i = 0; i < count; i++)
                award_one(at(dy, i * step[1], T), at_out(dx, i * step[0], T), winners + i * step[2],
                          offset[3] + i * step[3], 0, 1, k->add, T);
        }
    }
}

/* ---- entry points and table ---- */

RG_KERNEL(reduce_spread, rg_reduce_gradient_args)
RG_KERNEL(reduce_repeat, rg_reduce_gradient_args)
RG_KERNEL(reduce_award, rg_reduce_gradient_args)

RG_CPU_TABLE(reduce_gradient, RG_REDUCE_KERNELS) = {
    [RG_REDUCE_SPREAD] = RG_ROW(reduce_spread),
    [RG_REDUCE_REPEAT] = RG_ROW(reduce_repeat),
    [RG_REDUCE_AWARD] = RG_ROW(reduce_award),
};
