/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The loops of the limit, compiled for every instruction set as kernels are. Bytes are added as
 * integers, so that no value is slower than another. */
#include "ops/contract/contract_pairs_cpu.h"
#include "bench_limit.h" /* beside this file: kernels do not see cli/ */

enum { UNROLL = 4, STEP = UNROLL * RG_VECTOR_BYTES, BORDER = 1024 }; /* a multiple of STEP */

RG_INLINE vuint take(const char *from)
{
    vuint a;
    memcpy(&a, from, sizeof a);
    return a;
}

RG_INLINE void put(char *to, vuint a, const bool bypass)
{
    if (bypass)
        vstream(to, 0, RG_REAL, (vreal)a);
    else
        memcpy(to, &a, sizeof a);
}

/* Where the part of unit u begins in an array of `bytes`. */
RG_INLINE int64_t border(int64_t bytes, int64_t u, int64_t units)
{
    return u == units ? bytes : bytes / units * u / BORDER * BORDER;
}

/* ---- arrays of one size: one output, the sum of n inputs ---- */

enum { MOST_STREAMS = 3 };

RG_INLINE vuint sum_at(const char *const *in, int64_t i, const int n)
{
    vuint sum = take(in[0] + i);
    for (int t = 1; t < n; t++)
        sum += take(in[t] + i);
    return sum;
}

RG_INLINE void add_streams(const rg_limit_args *k, int64_t i, int64_t end, const int n,
                           const bool bypass)
{
    const char *in[MOST_STREAMS]; /* copies, which stores into `out` cannot change */
    char *const out = k->data[n];
    for (int t = 0; t < n; t++)
        in[t] = k->data[t];
    for (; i + STEP <= end; i += STEP) {
        const vuint a = sum_at(in, i, n), b = sum_at(in, i + RG_VECTOR_BYTES, n);
        const vuint c = sum_at(in, i + 2 * RG_VECTOR_BYTES, n);
        const vuint d = sum_at(in, i + 3 * RG_VECTOR_BYTES, n);
        put(out + i, a, bypass);
        put(out + i + RG_VECTOR_BYTES, b, bypass);
        put(out + i + 2 * RG_VECTOR_BYTES, c, bypass);
        put(out + i + 3 * RG_VECTOR_BYTES, d, bypass);
    }
    for (; i < end; i++) {
        unsigned sum = 0;
        for (int t = 0; t < n; t++)
            sum += (unsigned char)in[t][i];
        out[i] = (char)sum;
    }
}

/* ---- arrays of any sizes: all inputs, then all outputs ---- */

RG_INLINE vuint read_stream(const char *from, int64_t i, int64_t end)
{
    vuint a = { 0 }, b = { 0 }, c = { 0 }, d = { 0 };
    for (; i + STEP <= end; i += STEP) {
        a += take(from + i);
        b += take(from + i + RG_VECTOR_BYTES);
        c += take(from + i + 2 * RG_VECTOR_BYTES);
        d += take(from + i + 3 * RG_VECTOR_BYTES);
    }
    for (; i < end; i++)
        a[0] += (unsigned char)from[i];
    return (a + b) + (c + d);
}

RG_INLINE void write_stream(char *to, int64_t i, int64_t end, vuint a, const bool bypass)
{
    for (; i + STEP <= end; i += STEP) {
        put(to + i, a, bypass);
        put(to + i + RG_VECTOR_BYTES, a, bypass);
        put(to + i + 2 * RG_VECTOR_BYTES, a, bypass);
        put(to + i + 3 * RG_VECTOR_BYTES, a, bypass);
    }
    for (; i < end; i++)
        to[i] = (char)a[0];
}

/* What is written is never 0, whatever was read: some processors store lines of zeros three times
 * as fast as others. */
RG_INLINE void move_tile(const rg_limit_args *k, int64_t u, const bool bypass)
{
    vuint sum = (vuint)vlanes() + 0x01010101;
    for (int32_t t = 0; t < k->inputs + k->outputs; t++) {
        const int64_t begin = border(k->bytes[t], u, k->units);
        const int64_t end = border(k->bytes[t], u + 1, k->units);
        if (t < k->inputs)
            sum += read_stream(k->data[t], begin, end);
        else
            write_stream(k->data[t], begin, end, sum, bypass);
    }
}

RG_INLINE void move(const rg_limit_args *k, int64_t u, int64_t end, const bool bypass)
{
    bool same = k->outputs == 1;
    for (int32_t t = 1; t < k->inputs + k->outputs; t++)
        same &= k->bytes[t] == k->bytes[0];
    for (; u < end; u++) {
        const int64_t from = border(k->bytes[0], u, k->units);
        const int64_t to = border(k->bytes[0], u + 1, k->units);
        if (same && k->inputs == 1)
            add_streams(k, from, to, 1, bypass);
        else if (same && k->inputs == 2)
            add_streams(k, from, to, 2, bypass);
        else if (same && k->inputs == 3)
            add_streams(k, from, to, 3, bypass);
        else
            move_tile(k, u, bypass);
    }
}

static void move_ordinary(const void *k, int64_t begin, int64_t end)
{
    move(k, begin, end, false);
}

static void move_bypass(const void *k, int64_t begin, int64_t end)
{
    move(k, begin, end, true);
}

/* ---- arithmetic in registers ---- */

static void peak(const void *args, int64_t begin, int64_t end)
{
    enum { CHAINS = 10, TIMES = 20000 }; /* enough chains to hide the latency of one */
    const rg_limit_args *k = args;
    for (int64_t u = begin; u < end; u++) {
        vreal sum[CHAINS];
        for (int c = 0; c < CHAINS; c++) /* all different, so that none is optimized away */
            sum[c] = vset((real)(c + 1));
        const vreal a = vset((real)0.5 + (real)u), b = vset((real)1e-3);
        for (int i = 0; i < TIMES; i++) {
#pragma GCC unroll 10
            for (int c = 0; c < CHAINS; c++)
                sum[c] = vfma(sum[c], b, a);
        }
        real total = 0;
        for (int c = 0; c < CHAINS; c++)
            total += vsum(sum[c]);
        const double done = 2.0 * CHAINS * TIMES * VLEN;
        ((double *)(void *)k->data[0])[u] = total < 0 ? 0 : done; /* never: the sums are needed */
    }
}

#if RG_USES_PAIRS

/* The peak of a unit for pairs: operands in the first-level cache, all rows of a the same. */
static void pair_peak(const void *args, int64_t begin, int64_t end)
{
    enum { ROWS = 224, DEPTH = 2 * RG_PAIR_DEPTH, RUNS = 32, HALF = 0x3f00 };
    const rg_limit_args *k = args;
    uint16_t a[DEPTH], b[DEPTH * RG_PAIR_PANEL];
    real sums[ROWS * RG_PAIR_PANEL];
    rg_k_run runs[RUNS];
    for (int i = 0; i < DEPTH * RG_PAIR_PANEL; i++)
        a[i % DEPTH] = b[i] = (uint16_t)(HALF + i % 101);
    for (int r = 0; r < RUNS; r++)
        runs[r] = (rg_k_run){ 0, 0, DEPTH };
    const rg_pair_tile tile = {
        .a = a, .b = b, .c = sums, .runs = runs, .run_count = RUNS, .c_step = RG_PAIR_PANEL
    };
    for (int64_t u = begin; u < end; u++) {
        rg_pair_unit_best()->rows(&tile, ROWS, RG_PAIR_PANEL);
        ((double *)(void *)k->data[0])[u] = 2.0 * ROWS * RG_PAIR_PANEL * RUNS * DEPTH;
    }
}

#endif

RG_CPU_TABLE(limit, RG_LIMIT_KERNELS) = {
    [RG_LIMIT_ORDINARY] = { { [RG_REAL] = move_ordinary } },
    [RG_LIMIT_BYPASS] = { { [RG_REAL] = move_bypass } },
    [RG_LIMIT_PEAK] = { { [RG_REAL] = peak } },
#if RG_USES_PAIRS
    [RG_LIMIT_PAIR_PEAK] = { { [RG_REAL] = pair_peak } },
#endif
};
