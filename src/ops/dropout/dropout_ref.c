/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Dropout by definition, in double. */
#include "ops/optest.h"

#include <retrograde/dropout.h>

#include <math.h>

/* Number `word` (0 to 3) of Philox4x32-10. counter[] and key[] are changed. */
static uint32_t philox(uint32_t counter[4], uint32_t key[2], int word)
{
    for (int round = 1; round <= 10; round++) {
        const unsigned long long even = 3528531795ull * counter[0];
        const unsigned long long odd = 3449720151ull * counter[2];
        const uint32_t next[4] = { (uint32_t)(odd / 4294967296ull) ^ counter[1] ^ key[0],
                                   (uint32_t)(odd % 4294967296ull),
                                   (uint32_t)(even / 4294967296ull) ^ counter[3] ^ key[1],
                                   (uint32_t)(even % 4294967296ull) };
        for (int i = 0; i < 4; i++)
            counter[i] = next[i];
        key[0] += 2654435769u;
        key[1] += 3144134277u;
    }
    return counter[word];
}

/* 16 bits of a block, number `half` (0 to 7). */
static uint32_t random_half(const rg_dropout_desc *d, uint64_t block, int half)
{
    const uint64_t step = (uint64_t)d->step, seed = (uint64_t)d->seed;
    uint32_t counter[4] = { (uint32_t)block, (uint32_t)(block >> 32), (uint32_t)step,
                            (uint32_t)(step >> 32) };
    uint32_t key[2] = { (uint32_t)seed, (uint32_t)(seed >> 32) };
    const uint32_t word = philox(counter, key, half / 2);
    return half % 2 == 0 ? word % 65536 : word / 65536;
}

static bool is_kept(const rg_dropout_desc *d, int64_t m)
{
    const uint64_t block = (uint64_t)m / 8, behind = 9223372036854775808ull;
    const int half = (int)(m % 8);
    const double number =
        65536.0 * random_half(d, block, half) + random_half(d, behind + block, half);
    return number < fmax(1, round(d->keep * 4294967296.0));
}

/* Which element of the mask belongs to element i of x. */
static int64_t mask_index(const rg_dropout_desc *d, const rg_ref_tensor *x, int64_t i)
{
    int64_t m = 0, size = 1;
    for (int32_t axis = x->rank - 1; axis >= 0; axis--) {
        bool broadcast = false;
        for (int32_t k = 0; k < d->broadcast_count; k++)
            broadcast |= d->broadcast[k] == axis || d->broadcast[k] == axis - x->rank;
        m += broadcast ? 0 : i % x->dims[axis] * size;
        size *= broadcast ? 1 : x->dims[axis];
        i /= x->dims[axis];
    }
    return m;
}

static void drop(const rg_dropout_desc *d, const rg_ref_tensor *x, rg_ref_tensor *y)
{
    for (int64_t i = 0; i < rg_ref_count(x); i++)
        y->data[i] = is_kept(d, mask_index(d, x, i)) ? x->data[i] / d->keep : 0;
}

/* The step is that of the descriptor and that of the input, whose sum may go around. */
static rg_dropout_desc with_step(const rg_dropout_desc *desc, const rg_ref_tensor x[])
{
    rg_dropout_desc d = *desc;
    if (d.step_input)
        d.step = (int64_t)((uint64_t)d.step + (uint64_t)(int64_t)x[1].data[0]);
    return d;
}

void rg_dropout_ref_forward(const void *desc, const rg_ref_tensor x[], rg_ref_tensor y[])
{
    const rg_dropout_desc d = with_step(desc, x);
    drop(&d, x, y);
}

void rg_dropout_ref_gradient(const void *desc, const rg_ref_tensor dy[], const rg_ref_tensor x[],
                             const rg_ref_tensor y[], rg_ref_tensor dx[])
{
    const rg_dropout_desc d = with_step(desc, x);
    (void)y;
    drop(&d, dy, dx);
}
