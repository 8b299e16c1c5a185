/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Dropout on the CPU. A unit first has the bits of its elements in a small buffer, drawn or read,
 * and then selects. */
#include "backend/cpu/kernel.h"
#include "ops/dropout/dropout.h"

/* ---- random bits, a vector of Philox blocks at a time ---- */

/* Blocks of a vector: one in the lower half of each lane of 64 bits. The upper halves hold whatever
 * is left there, which neither products nor the lower halves ever see. */
enum { BLOCKS = RG_VECTOR_BYTES / 8 };

/* The bits of a piece that starts in the middle of a byte, of blocks drawn too many, and of a read
 * of 4 bytes at the end. */
enum { BITS = RG_DROPOUT_PIECE / 8 + BLOCKS + 8 };

typedef struct rounds {
    vwide key[RG_PHILOX_ROUNDS][2], step[2];
    uint64_t limit;
} rounds;

RG_INLINE vwide wide(uint64_t a)
{
    return (vwide){ 0 } + a;
}

static rounds rounds_of(const rg_dropout_args *k)
{
    const uint64_t step = rg_dropout_step(k);
    rounds r = { .step = { wide(step), wide(step >> 32) }, .limit = k->limit };
    for (int i = 0; i < RG_PHILOX_ROUNDS; i++) {
        r.key[i][0] = wide((uint32_t)k->seed + (uint32_t)i * RG_PHILOX_KEY_0);
        r.key[i][1] = wide((uint32_t)(k->seed >> 32) + (uint32_t)i * RG_PHILOX_KEY_1);
    }
    return r;
}

/* 1 << shift where the word in the lower half is above the limit, else 0. */
RG_INLINE vwide above(vwide word, uint64_t limit, int shift)
{
    return (wide(limit) - (word & 0xffffffff)) >> 63 << shift;
}

/* The steps are those of rg_philox_block. Lane i has the bits of block + i in its lowest 4. */
RG_INLINE vwide draw_blocks(const rounds *r, uint64_t block)
{
    vwide a = wide(block), b, c = r->step[0], d = r->step[1];
    for (int i = 0; i < BLOCKS; i++)
        a[i] += (uint64_t)i;
    b = a >> 32;
    for (int i = 0; i < RG_PHILOX_ROUNDS; i++) {
        const vwide p = vmul_low(a, wide(RG_PHILOX_MULTIPLY_0));
        const vwide q = vmul_low(c, wide(RG_PHILOX_MULTIPLY_1));
        a = q >> 32 ^ b ^ r->key[i][0];
        c = p >> 32 ^ d ^ r->key[i][1];
        b = q;
        d = p;
    }
    const uint64_t limit = r->limit;
    return 15 ^ (above(a, limit, 0) | above(b, limit, 1) | above(c, limit, 2) | above(d, limit, 3));
}

/* Draws `blocks` from an even one on; may write BLOCKS / 2 bytes more than these take. */
RG_OUTLINE void draw(const rounds *r, uint64_t block, int64_t blocks, uint8_t *bits)
{
    for (int64_t done = 0; done < blocks; done += BLOCKS, bits += BLOCKS / 2) {
        const vwide four = draw_blocks(r, block + (uint64_t)done);
        for (int i = 0; i < BLOCKS / 2; i++)
            bits[i] = (uint8_t)(four[2 * i] | four[2 * i + 1] << 4);
    }
}

/* ---- the bits of a unit: element i of the unit is bit `shift` + i ---- */

/* Bits first to first + count - 1 of the mask; returns `shift`. */
static int drawn_bits(const rounds *r, int64_t first, int64_t count, uint8_t bits[BITS])
{
    const int shift = (int)(first % 8);
    draw(r, (uint64_t)(first / 8 * 2), (shift + count + 3) / 4, bits);
    return shift;
}

static int read_bits(const uint8_t *mask, int64_t first, int64_t count, uint8_t bits[BITS])
{
    const int shift = (int)(first % 8);
    memcpy(bits, mask + first / 8, (size_t)((shift + count + 7) / 8));
    return shift;
}

/* Bits behind the last one are 0. */
static void write_mask(uint8_t *mask, const uint8_t *bits, int64_t count)
{
    memcpy(mask, bits, (size_t)((count + 7) / 8));
    if (count % 8 != 0)
        mask[count / 8] &= (uint8_t)((1u << count % 8) - 1);
}

/* ---- selecting ---- */

typedef struct row {
    const char *x;
    char *y;
    const uint8_t *bits;
    int shift;
    real scale;
    bool add;
} row;

/* All bits set, or none, from the bit of lane i on: one for each lane. */
RG_INLINE vint lanes_kept(const row *r, int64_t i)
{
    const int64_t bit = r->shift + i;
    uint32_t bits;
    memcpy(&bits, r->bits + bit / 8, sizeof bits);
    const vuint all = (vuint){ 0 } + (uintr)(bits >> bit % 8);
    return (all & ((vuint){ 0 } + 1) << (vuint)vlanes()) != 0;
}

RG_INLINE void select_one(const row *r, int64_t i, const int n, const rg_dtype T, const bool stream)
{
    const vreal x = vload(r->x, i, n, T);
    vreal y = vselect(lanes_kept(r, i), x * vset(r->scale), vset(0));
    if (r->add)
        y += vload(r->y, i, n, T);
    if (stream)
        vstream(r->y, i, T, y);
    else
        vstore(r->y, i, n, T, y);
}

RG_INLINE void select_row(const row *r, int64_t count, const rg_dtype T, bool stream)
{
    int64_t i = 0;
    if (stream) {
        const int64_t head = least(vhead(r->y, T), count);
        for (; i < head; i += VLEN)
            select_one(r, i, vlanes_left(head - i), T, false);
        for (i = head; i + VLEN <= count; i += VLEN)
            select_one(r, i, VLEN, T, true);
    }
    for (; i + VLEN <= count; i += VLEN)
        select_one(r, i, VLEN, T, false);
    if (i < count)
        select_one(r, i, vlanes_left(count - i), T, false);
}

RG_INLINE void select_scattered(const row *r, int64_t count, const int64_t step[], const rg_dtype T)
{
    for (int64_t i = 0; i < count; i++) {
        const int64_t bit = r->shift + i;
        const bool kept = r->bits[bit / 8] >> bit % 8 & 1;
        const real y = kept ? load_one(r->x, i * step[0], T) * r->scale : 0;
        store_one(r->y, i * step[1], T, r->add ? y + load_one(r->y, i * step[1], T) : y);
    }
}

/* ---- kernels ---- */

RG_INLINE void select_units(const rg_dropout_args *k, int64_t begin, int64_t end, const rg_dtype T,
                            const bool draws)
{
    const rounds random = rounds_of(k);
    const bool broadcast = k->sweep.step[2] == 0 || k->sweep.length == 1;
    uint8_t bits[BITS];
    for (int64_t unit = begin; unit < end; unit++) {
        int64_t offset[3];
        const int64_t count = rg_sweep_piece(&k->sweep, 3, unit, offset);
        const int64_t needed = broadcast ? 1 : count;
        int shift = draws ? drawn_bits(&random, offset[2], needed, bits)
                          : read_bits(k->mask, offset[2], needed, bits);
        if (k->keeps_mask)
            write_mask((uint8_t *)k->mask + offset[2] / 8, bits, needed);
        if (broadcast) {
            memset(bits, bits[0] >> shift & 1 ? 0xff : 0, (size_t)(count + 7) / 8);
            shift = 0;
        }
        const row r = {
            at(k->x, offset[0], T), at_out(k->y, offset[1], T), bits, shift, (real)k->scale, k->add
        };
        if (k->dense)
            select_row(&r, count, T, k->stream);
        else
            select_scattered(&r, count, k->sweep.step, T);
    }
}

RG_INLINE void dropout_forward(const rg_dropout_args *k, int64_t begin, int64_t end,
                               const rg_dtype T)
{
    select_units(k, begin, end, T, true);
}

RG_INLINE void dropout_mask(const rg_dropout_args *k, int64_t begin, int64_t end, const rg_dtype T)
{
    (void)T;
    const rounds random = rounds_of(k);
    uint8_t bits[BITS];
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t first = unit * RG_DROPOUT_PIECE;
        const int64_t count = least(RG_DROPOUT_PIECE, k->count - first);
        drawn_bits(&random, first, count, bits);
        write_mask((uint8_t *)k->mask + first / 8, bits, count);
    }
}

RG_INLINE void dropout_apply(const rg_dropout_args *k, int64_t begin, int64_t end, const rg_dtype T)
{
    select_units(k, begin, end, T, false);
}

/* ---- entry points and table ---- */

RG_KERNEL(dropout_forward, rg_dropout_args)
RG_KERNEL(dropout_mask, rg_dropout_args)
RG_KERNEL(dropout_apply, rg_dropout_args)

const rg_cpu_row RG_TABLE(dropout)[RG_DROPOUT_KERNELS] = {
    [RG_DROPOUT_FORWARD] = RG_ROW(dropout_forward),
    [RG_DROPOUT_MASK] = RG_ROW(dropout_mask),
    [RG_DROPOUT_APPLY] = RG_ROW(dropout_apply),
};
