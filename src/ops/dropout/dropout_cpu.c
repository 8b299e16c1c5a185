/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Dropout on the CPU. A unit first has the bits of its elements in a small buffer, drawn or read,
 * and then selects. */
#include "backend/cpu/kernel.h"
#include "ops/dropout/dropout.h"

/* ---- random bits, vectors of Philox blocks at a time ---- */

/* A step draws SETS vectors of blocks. A lane of 64 bits works on one block, with a word in its
 * lower half. The upper halves hold whatever is left there, which neither products nor the lower
 * halves ever see. */
enum { LANES = RG_VECTOR_BYTES / 8, SETS = RG_VECTOR_BYTES == 64 ? 4 : 2, BLOCKS = SETS * LANES };

/* The bits of a piece that starts in the middle of a byte, of blocks drawn too many, and of a read
 * of 8 bytes at the end. */
enum { BITS = RG_DROPOUT_PIECE / 8 + BLOCKS + 8 };

typedef struct rounds {
    uint64_t key[RG_PHILOX_ROUNDS][2], seed, step;
    uint32_t limit;
} rounds;

RG_INLINE vwide wide(uint64_t a)
{
    return (vwide){ 0 } + a;
}

static rounds rounds_of(const rg_dropout_args *k)
{
    rounds r = { .seed = k->seed, .step = rg_dropout_step(k), .limit = k->limit };
    for (uint32_t i = 0; i < RG_PHILOX_ROUNDS; i++) {
        r.key[i][0] = (uint32_t)k->seed + i * RG_PHILOX_KEY_0;
        r.key[i][1] = (uint32_t)(k->seed >> 32) + i * RG_PHILOX_KEY_1;
    }
    return r;
}

/* Numbers that blocks with the same upper half of the counter share: what the first two rounds
 * make of that and of the step. */
typedef struct shared {
    uint64_t c1, a2, c2, d2;
} shared;

static shared shared_of(const rounds *r, uint64_t block)
{
    const uint64_t q = (uint64_t)RG_PHILOX_MULTIPLY_1 * (uint32_t)r->step;
    const uint32_t a1 = (uint32_t)(q >> 32 ^ block >> 32 ^ r->key[0][0]);
    const uint64_t p = (uint64_t)RG_PHILOX_MULTIPLY_0 * a1;
    return (shared){ r->step >> 32 ^ r->key[0][1], (uint32_t)q ^ r->key[1][0],
                     p >> 32 ^ r->key[1][1], (uint32_t)p };
}

/* Block j of a vector is in lane 2 j, block LANES / 2 + j in lane 2 j + 1: so words of
 * neighbours become adjacent without crossing the vector. */
RG_INLINE vwide lane_blocks(void)
{
    vwide a;
    for (int i = 0; i < LANES; i++)
        a[i] = (uint64_t)(i / 2 + i % 2 * (LANES / 2));
    return a;
}

#if RG_VECTOR_BYTES == 64
#define UNPACK(k) k, k + 8, k + 2, k + 10, k + 4, k + 12, k + 6, k + 14
#elif RG_VECTOR_BYTES == 32
#define UNPACK(k) k, k + 4, k + 2, k + 6
#else
#define UNPACK(k) k, k + 2
#endif

/* The words of a vector of blocks between two rounds. */
typedef struct words {
    vwide a, b, c, d;
} words;

RG_INLINE words first_rounds(const shared *first, uint64_t block)
{
    const vwide p = vmul_low(lane_blocks() + block, wide(RG_PHILOX_MULTIPLY_0));
    const vwide q = vmul_low(p >> 32 ^ first->c1, wide(RG_PHILOX_MULTIPLY_1));
    return (words){ q >> 32 ^ first->a2, q, p ^ first->c2, wide(first->d2) };
}

RG_INLINE words next_round(words w, const uint64_t key[2])
{
    const vwide p = vmul_low(w.a, wide(RG_PHILOX_MULTIPLY_0));
    const vwide q = vmul_low(w.c, wide(RG_PHILOX_MULTIPLY_1));
    return (words){ q >> 32 ^ w.b ^ key[0], q, p >> 32 ^ w.d ^ key[1], p };
}

/* The steps are those of rg_philox_block. result[2 s] and result[2 s + 1] hold the words of the
 * blocks from block + s LANES on, one after the other. */
RG_INLINE void draw_words(const rounds *r, const shared *first, uint64_t block,
                          vwide result[2 * SETS])
{
    words w[SETS];
#pragma GCC unroll 4
    for (int s = 0; s < SETS; s++)
        w[s] = first_rounds(first, block + (uint64_t)(s * LANES));
#pragma GCC unroll 8
    for (int i = 2; i < RG_PHILOX_ROUNDS; i++) {
#pragma GCC unroll 4
        for (int s = 0; s < SETS; s++)
            w[s] = next_round(w[s], r->key[i]);
    }
#pragma GCC unroll 4
    for (int s = 0; s < SETS; s++) {
        const vwide ab = (w[s].a & 0xffffffff) | w[s].b << 32;
        const vwide cd = (w[s].c & 0xffffffff) | w[s].d << 32;
        result[2 * s] = __builtin_shufflevector(ab, cd, UNPACK(0));
        result[2 * s + 1] = __builtin_shufflevector(ab, cd, UNPACK(1));
    }
}

/* Rare: a number whose upper half is that of the limit. */
RG_OUTLINE void draw_again(const rounds *r, uint64_t block, uint8_t bits[BLOCKS])
{
    for (uint64_t i = 0; i < BLOCKS; i++)
        bits[i] = (uint8_t)rg_dropout_bits(r->seed, r->step, block + i, r->limit);
}

/* The bits of BLOCKS blocks, a byte each. */
RG_INLINE void draw_step(const rounds *r, const shared *first, uint64_t block, uint8_t *bits)
{
    const uint16_t limit = (uint16_t)(r->limit >> 16);
    vwide drawn[2 * SETS];
    uint32_t equal = 0;
    draw_words(r, first, block, drawn);
#pragma GCC unroll 8
    for (int v = 0; v < 2 * SETS; v++) {
        const uint32_t kept = vbits_at_most(drawn[v], limit);
        memcpy(bits + v * (LANES / 2), &kept, LANES / 2);
        equal |= vbits_equal(drawn[v], limit);
    }
    if (equal != 0 && (r->limit & 0xffff) != 0xffff)
        draw_again(r, block, bits);
}

/* What the drawing of bits leaves time to fetch: the elements that they are for, `bytes` in a
 * step. */
typedef struct fetch {
    const char *data;
    int64_t bytes;
} fetch;

/* Draws `blocks`; may write BLOCKS bytes more than these take. */
RG_OUTLINE void draw(const rounds *r, uint64_t block, int64_t blocks, uint8_t *bits, fetch next)
{
    enum { LINE = 64 };
    while (blocks > 0) { /* up to where the upper half of the counter changes */
        const int64_t count = least(blocks, (int64_t)((1ull << 32) - (block & 0xffffffff)));
        const shared first = shared_of(r, block);
        for (int64_t done = 0; done < count; done += BLOCKS) {
            draw_step(r, &first, block + (uint64_t)done, bits + done);
            for (int64_t i = 0; i < next.bytes; i += LINE, next.data += LINE)
                __builtin_prefetch(next.data);
        }
        block += (uint64_t)count;
        bits += count;
        blocks -= count;
    }
}

/* ---- the bits of a unit: element i of the unit is bit `shift` + i ---- */

/* Bits first to first + count - 1 of the mask; returns `shift`. */
static int drawn_bits(const rounds *r, int64_t first, int64_t count, uint8_t bits[BITS], fetch next)
{
    const int shift = (int)(first % 8);
    draw(r, (uint64_t)(first / 8), (shift + count + 7) / 8, bits, next);
    return shift;
}

static int read_bits(const uint8_t *mask, int64_t first, int64_t count, uint8_t bits[BITS])
{
    const int shift = (int)(first % 8);
    memcpy(bits, mask + first / 8, (size_t)((shift + count + 7) / 8));
    return shift;
}

/* Bits after the last one are 0. */
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

/* The bits from element i on, of 2 VLEN at least, in every lane. */
RG_INLINE vuint bits_from(const row *r, int64_t i)
{
    const int64_t bit = r->shift + i;
    uint64_t bits;
    memcpy(&bits, r->bits + bit / 8, sizeof bits);
    return (vuint){ 0 } + (uintr)(bits >> bit % 8);
}

RG_INLINE void select_one(const row *r, int64_t i, const int n, const rg_dtype T)
{
    const vuint each = ((vuint){ 0 } + 1) << (vuint)vlanes();
    vreal y = vkeep_bits(vload(r->x, i, n, T) * vset(r->scale), bits_from(r, i), each);
    if (r->add)
        y += vload(r->y, i, n, T);
    vstore(r->y, i, n, T, y);
}

RG_INLINE void select_pair(const row *r, int64_t i, const rg_dtype T, const bool stream)
{
    const bool in_turns = T == RG_BF16;
    const vuint lane = (vuint)vlanes(), one = (vuint){ 0 } + 1;
    const vuint each_a = one << (in_turns ? lane + lane : lane);
    const vuint each_b = one << (in_turns ? lane + lane + 1 : lane + VLEN);
    const vpair x = vload_pair(r->x, i, T, true);
    const vuint bits = bits_from(r, i);
    vpair y = { vkeep_bits(x.a * vset(r->scale), bits, each_a),
                vkeep_bits(x.b * vset(r->scale), bits, each_b) };
    if (r->add) {
        const vpair old = vload_pair(r->y, i, T, true);
        y.a += old.a;
        y.b += old.b;
    }
    vstore_sums(r->y, i, T, y, stream);
}

RG_INLINE void select_row(const row *r, int64_t count, const rg_dtype T, bool stream)
{
    const row k = *r; /* a copy, which stores cannot change */
    int64_t i = 0;
    if (stream) {
        const int64_t head = least(vhead(k.y, T), count);
        for (; i < head; i += VLEN)
            select_one(&k, i, vlanes_left(head - i), T);
        for (i = head; i + 2 * VLEN <= count; i += 2 * VLEN)
            select_pair(&k, i, T, true);
    }
    for (; i + 2 * VLEN <= count; i += 2 * VLEN)
        select_pair(&k, i, T, false);
    for (; i < count; i += VLEN)
        select_one(&k, i, vlanes_left(count - i), T);
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

/* Elements that are selected at once: few, so that x is still in the cache when their bits are
 * there, and a multiple of 8. */
enum { CHUNK = 2048 };

/* The bits of `count` elements from one of the mask on, and where they are. */
typedef struct held {
    int64_t first, count;
    int shift;
    uint8_t bits[BITS];
} held;

/* Rows that share their part of the mask find it held. */
RG_INLINE void hold_bits(held *h, const rg_dropout_args *k, const rounds *random, int64_t first,
                         int64_t count, bool broadcast, fetch next, const bool draws)
{
    if (h->first == first && h->count == count)
        return;
    const int64_t needed = broadcast ? 1 : count;
    h->first = first;
    h->count = count;
    h->shift = draws ? drawn_bits(random, first, needed, h->bits, next)
                     : read_bits(k->mask, first, needed, h->bits);
    if (k->keeps_mask)
        write_mask((uint8_t *)k->mask + first / 8, h->bits, needed);
    if (broadcast) {
        memset(h->bits, h->bits[0] >> h->shift & 1 ? 0xff : 0, (size_t)(count + 7) / 8);
        h->shift = 0;
    }
}

/* Rows from that of `unit` on, which is one of them, to the end of the innermost dimension around
 * rows: where units are whole rows the next one needs no division. */
RG_INLINE int64_t rows_ahead(const rg_sweep *s, int64_t unit)
{
    const int32_t last = s->outer.rank - 1;
    return s->pieces != 1 || last < 0 ? 1 : s->outer.dims[last] - unit % s->outer.dims[last];
}

RG_INLINE void next_row(const rg_sweep *s, int64_t offset[3])
{
    for (int t = 0; t < 3; t++)
        offset[t] += s->outer.strides[t][s->outer.rank - 1];
}

RG_INLINE void select_units(const rg_dropout_args *k, int64_t begin, int64_t end, const rg_dtype T,
                            const bool draws)
{
    const rounds random = rounds_of(k);
    const rg_sweep *s = &k->sweep;
    const bool broadcast = s->step[2] == 0 || s->length == 1;
    const int64_t fetched = k->dense && !broadcast ? 8 * BLOCKS * (vbytes(T) / VLEN) : 0;
    held h = { .first = -1 };
    int64_t offset[3], count = 0, ahead = 0;
    for (int64_t unit = begin; unit < end; unit++, ahead--) {
        if (ahead > 0) {
            next_row(s, offset);
        } else {
            count = rg_sweep_piece(s, 3, unit, offset);
            ahead = rows_ahead(s, unit);
        }
        for (int64_t done = 0; done < count; done += CHUNK) {
            const int64_t part = least(CHUNK, count - done);
            const char *x = at(k->x, offset[0] + done * s->step[0], T);
            char *y = at_out(k->y, offset[1] + done * s->step[1], T);
            hold_bits(&h, k, &random, offset[2] + done * s->step[2], part, broadcast,
                      (fetch){ x, fetched }, draws);
            const row r = { x, y, h.bits, h.shift, (real)k->scale, k->add };
            if (k->dense)
                select_row(&r, part, T, k->stream);
            else
                select_scattered(&r, part, s->step, T);
        }
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
        drawn_bits(&random, first, count, bits, (fetch){ NULL, 0 });
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

RG_CPU_TABLE(dropout, RG_DROPOUT_KERNELS) = {
    [RG_DROPOUT_FORWARD] = RG_ROW(dropout_forward),
    [RG_DROPOUT_MASK] = RG_ROW(dropout_mask),
    [RG_DROPOUT_APPLY] = RG_ROW(dropout_apply),
};
