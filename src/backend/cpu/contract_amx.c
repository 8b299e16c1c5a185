/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Two by two tiles of sums, see contract_amx.h. A test compiles this file against functions in C
 * that do what the instructions do. */
#include "backend/cpu/contract_amx.h"

#include <string.h>

#if !defined(RG_AMX_EMULATED) && RG_HAVE_AMX
#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#if defined(RG_AMX_EMULATED) || RG_HAVE_AMX

enum { TILE_BYTES = 64, PANEL_BYTES = RG_AMX_PANEL * 2 * (int)sizeof(uint16_t) };

/* Palette 1: eight tiles of 16 rows of 64 bytes. */
typedef struct tile_config {
    uint8_t palette, start, reserved[14];
    uint16_t bytes[16];
    uint8_t rows[16];
} tile_config;

static const tile_config config = {
    .palette = 1,
    .bytes = { 64, 64, 64, 64, 64, 64, 64, 64 },
    .rows = { 16, 16, 16, 16, 16, 16, 16, 16 },
};

/* Operands of one step: two tiles of a, two of b. */
typedef struct operands {
    const void *a[2], *b;
    int64_t a_step, b_step; /* in bytes */
} operands;

/* Tiles 0 to 3 are sums, 4 and 5 from a, 6 and 7 from b. */
static inline void add_products(const operands *o, bool tall, bool wide)
{
    _tile_loadd(4, o->a[0], o->a_step);
    _tile_loadd(6, o->b, o->b_step);
    _tile_dpbf16ps(0, 4, 6);
    if (wide) {
        _tile_loadd(7, (const char *)o->b + TILE_BYTES, o->b_step);
        _tile_dpbf16ps(1, 4, 7);
    }
    if (!tall)
        return;
    _tile_loadd(5, o->a[1], o->a_step);
    _tile_dpbf16ps(2, 5, 6);
    if (wide)
        _tile_dpbf16ps(3, 5, 7);
}

/* The end of k, less than RG_AMX_DEPTH: copies with zeros behind. */
static void add_rest(const uint16_t *a, int64_t a_step, const uint16_t *b, int64_t k, bool tall,
                     bool wide)
{
    uint16_t as[2 * RG_AMX_ROWS][RG_AMX_DEPTH] = { 0 };
    uint16_t bs[RG_AMX_DEPTH / 2][2 * RG_AMX_PANEL] = { 0 };
    for (int64_t m = 0; m < (tall ? 2 : 1) * RG_AMX_ROWS; m++)
        memcpy(as[m], a + m * a_step, (size_t)k * sizeof *a);
    memcpy(bs, b, (size_t)((k + 1) / 2 * PANEL_BYTES));
    const operands o = { { as, as[RG_AMX_ROWS] }, bs, sizeof as[0], sizeof bs[0] };
    add_products(&o, tall, wide);
}

/* What a tile of sums leaves, up to the last row and column. */
static void keep(const float sums[RG_AMX_ROWS][16], float *c, int64_t c_step, int64_t rows,
                 bool add)
{
    for (int64_t m = 0; m < rows && m < RG_AMX_ROWS; m++, c += c_step)
        for (int n = 0; n < 16; n++)
            c[n] = add ? c[n] + sums[m][n] : sums[m][n];
}

static void store_tiles(float *c, int64_t c_step, int64_t rows, bool tall, bool wide, bool add)
{
    _Alignas(64) float sums[4][RG_AMX_ROWS][16];
    _tile_stored(0, sums[0], TILE_BYTES);
    keep((const float(*)[16])sums[0], c, c_step, rows, add);
    if (wide) {
        _tile_stored(1, sums[1], TILE_BYTES);
        keep((const float(*)[16])sums[1], c + 16, c_step, rows, add);
    }
    c += RG_AMX_ROWS * c_step;
    if (tall) {
        _tile_stored(2, sums[2], TILE_BYTES);
        keep((const float(*)[16])sums[2], c, c_step, rows - RG_AMX_ROWS, add);
    }
    if (tall && wide) {
        _tile_stored(3, sums[3], TILE_BYTES);
        keep((const float(*)[16])sums[3], c + 16, c_step, rows - RG_AMX_ROWS, add);
    }
}

void rg_amx_rows(const uint16_t *a, int64_t a_step, const uint16_t *b, float *c, int64_t c_step,
                 int64_t rows, int64_t columns, int64_t k, bool add)
{
    const bool wide = columns > 16;
    const int64_t whole = k / RG_AMX_DEPTH * RG_AMX_DEPTH;
    const int64_t step = a_step * (int64_t)sizeof *a;
    _tile_loadconfig(&config);
    for (int64_t m = 0; m < rows; m += 2 * RG_AMX_ROWS) {
        const bool tall = rows - m > RG_AMX_ROWS;
        const uint16_t *const first = a + m * a_step;
        const uint16_t *const second = tall ? first + RG_AMX_ROWS * a_step : first;
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
        for (int64_t i = 0; i < whole; i += RG_AMX_DEPTH) {
            const operands o = {
                { first + i, second + i }, b + i * RG_AMX_PANEL, step, PANEL_BYTES
            };
            add_products(&o, tall, wide);
        }
        if (whole < k)
            add_rest(first + whole, a_step, b + whole * RG_AMX_PANEL, k - whole, tall, wide);
        store_tiles(c + m * c_step, c_step, rows - m, tall, wide, add);
    }
    _tile_release();
}

#else

void rg_amx_rows(const uint16_t *a, int64_t a_step, const uint16_t *b, float *c, int64_t c_step,
                 int64_t rows, int64_t columns, int64_t k, bool add)
{
    (void)a, (void)a_step, (void)b, (void)c, (void)c_step;
    (void)rows, (void)columns, (void)k, (void)add;
}

#endif

/* ---- is there one? ---- */

#if defined(RG_AMX_EMULATED)

bool rg_amx_ready(void)
{
    return true;
}

#elif RG_HAVE_AMX

/* The unit and its bf16, registers that the system saves, and its permission, which is asked for
 * once for the whole process. */
static bool ask(void)
{
    enum { BF16 = 1 << 22, TILE = 1 << 24, REQUEST = 0x1023, TILE_DATA = 18 };
    const uint32_t saved = 3u << 17;
    unsigned a, b, c, d;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & (BF16 | TILE)) != (BF16 | TILE))
        return false;
    if (syscall(SYS_arch_prctl, REQUEST, TILE_DATA) != 0)
        return false;
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (low & saved) == saved;
}

bool rg_amx_ready(void)
{
    static int known; /* 0: not yet asked, 1: no, 2: yes; two threads may ask at once */
    int answer = __atomic_load_n(&known, __ATOMIC_RELAXED);
    if (answer == 0) {
        answer = ask() ? 2 : 1;
        __atomic_store_n(&known, answer, __ATOMIC_RELAXED);
    }
    return answer == 2;
}

#else

bool rg_amx_ready(void)
{
    return false;
}

#endif
