/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Dropout kernels, their args, and the random numbers. Valid C and valid CUDA. */
#ifndef RG_OPS_DROPOUT_H
#define RG_OPS_DROPOUT_H

#include "core/sweep.h"

enum {
    RG_DROPOUT_FORWARD, /* draws the mask it needs, and keeps it where it can */
    RG_DROPOUT_MASK,    /* draws the mask alone, into the state */
    RG_DROPOUT_APPLY,   /* reads the mask: forward after RG_DROPOUT_MASK, and the gradient */
    RG_DROPOUT_KERNELS
};

/* Elements of a unit; a multiple of 8, so that units of a flat mask have bytes of their own. */
enum { RG_DROPOUT_PIECE = 16384 };

typedef struct rg_dropout_args {
    const void *x; /* or dy */
    void *y;       /* or dx */
    void *mask;    /* y where there is none */
    const int64_t *step_input;
    rg_sweep sweep; /* tensors x, y and the mask, whose elements are bits */
    int64_t count;  /* bits of the mask */
    double scale;   /* 1 / keep */
    uint64_t seed, step;
    uint32_t limit;  /* an element is kept if its random number is not more */
    bool has_step;   /* there is a step_input */
    bool keeps_mask; /* forward writes the mask: x and y are dense, nothing is broadcast */
    bool dense;      /* the steps of x and y are 1 */
    bool add;        /* into y */
    bool stream;     /* y is written by streaming stores */
} rg_dropout_args;

/* ---- Philox4x32-10 (Salmon and others, Parallel random numbers: as easy as 1, 2, 3) ---- */

#define RG_PHILOX_MULTIPLY_0 0xD2511F53u
#define RG_PHILOX_MULTIPLY_1 0xCD9E8D57u
#define RG_PHILOX_KEY_0      0x9E3779B9u
#define RG_PHILOX_KEY_1      0xBB67AE85u
enum { RG_PHILOX_ROUNDS = 10 };

typedef struct rg_philox {
    uint32_t word[4];
} rg_philox;

/* Four random words from a key and a counter of 128 bits. */
static inline RG_HOST_DEVICE rg_philox rg_philox_block(uint64_t seed, uint64_t step, uint64_t block)
{
    uint32_t a = (uint32_t)block, b = (uint32_t)(block >> 32);
    uint32_t c = (uint32_t)step, d = (uint32_t)(step >> 32);
    uint32_t key_0 = (uint32_t)seed, key_1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < RG_PHILOX_ROUNDS; round++) {
        const uint64_t p = (uint64_t)RG_PHILOX_MULTIPLY_0 * a;
        const uint64_t q = (uint64_t)RG_PHILOX_MULTIPLY_1 * c;
        a = (uint32_t)(q >> 32) ^ b ^ key_0;
        c = (uint32_t)(p >> 32) ^ d ^ key_1;
        b = (uint32_t)q;
        d = (uint32_t)p;
        key_0 += RG_PHILOX_KEY_0;
        key_1 += RG_PHILOX_KEY_1;
    }
    const rg_philox words = { { a, b, c, d } };
    return words;
}

/* Elements that a block decides on: the 16 bits of each are the upper half of its random number.
 * The lower half, from a block far after all others, is drawn only where the upper one is that
 * of the limit. One 32-bit number per element would cost 0.9 cycles instead of 0.6 (Zen 4,
 * bf16). */
enum { RG_DROPOUT_BLOCK = 8 };
#define RG_DROPOUT_LOWER (1ull << 63)

static inline RG_HOST_DEVICE uint32_t rg_dropout_half(const rg_philox *words, int i)
{
    return words->word[i / 2] >> i % 2 * 16 & 0xffff;
}

/* The bits of elements 8 block to 8 block + 7 of the mask. */
static inline RG_HOST_DEVICE uint32_t rg_dropout_bits(uint64_t seed, uint64_t step, uint64_t block,
                                                      uint32_t limit)
{
    const rg_philox upper = rg_philox_block(seed, step, block);
    uint32_t bits = 0, equal = 0;
    for (int i = 0; i < RG_DROPOUT_BLOCK; i++) {
        bits |= (uint32_t)(rg_dropout_half(&upper, i) <= limit >> 16) << i;
        equal |= (uint32_t)(rg_dropout_half(&upper, i) == limit >> 16) << i;
    }
    if (equal != 0 && (limit & 0xffff) != 0xffff) {
        const rg_philox lower = rg_philox_block(seed, step, block | RG_DROPOUT_LOWER);
        uint32_t above = 0;
        for (int i = 0; i < RG_DROPOUT_BLOCK; i++)
            above |= (uint32_t)(rg_dropout_half(&lower, i) > (limit & 0xffff)) << i;
        bits &= ~(equal & above);
    }
    return bits;
}

/* The step of a launch, which may be known only when it runs. */
static inline RG_HOST_DEVICE uint64_t rg_dropout_step(const rg_dropout_args *k)
{
    return k->step + (k->has_step ? (uint64_t)*k->step_input : 0);
}

#endif
