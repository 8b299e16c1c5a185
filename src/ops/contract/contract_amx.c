/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The tile unit for contract_pairs.h: two by two tiles of sums. A test compiles this file against
 * functions in C that do what the instructions do. */
#include "ops/contract/contract_pairs.h"

#if !defined(RG_AMX_EMULATED) && RG_HAVE_AMX
#include <immintrin.h>
#endif

#if defined(RG_AMX_EMULATED) || RG_HAVE_AMX

enum {
    HEIGHT = 16,
    LANES = 16,
    TILE_BYTES = 64,
    PANEL_BYTES = RG_PAIR_PANEL * 2 * (int)sizeof(uint16_t)
};

/* Palette 1: eight tiles of up to 16 rows of 64 bytes. */
typedef struct tile_config {
    uint8_t palette, start, reserved[14];
    uint16_t bytes[16];
    uint8_t rows[16];
} tile_config;

/* Tiles 0 to 3 are sums, 4 and 5 from a, 6 and 7 from b; of a and c there are `rows`, up to 32. */
static void configure(int64_t rows)
{
    tile_config config = { .palette = 1 };
    const uint8_t upper = (uint8_t)(rows < HEIGHT ? rows : HEIGHT);
    const uint8_t lower = (uint8_t)(rows > HEIGHT ? rows - HEIGHT : HEIGHT);
    for (int t = 0; t < 8; t++) {
        config.bytes[t] = TILE_BYTES;
        config.rows[t] = t == 0 || t == 1 || t == 4   ? upper
                         : t == 2 || t == 3 || t == 5 ? lower
                                                      : HEIGHT;
    }
    __asm__ volatile("" : : "r"(&config) : "memory"); /* all of it is read */
    _tile_loadconfig(&config);
}

static inline __attribute__((always_inline)) void store_sums(const rg_pair_tile *t, const bool tall,
                                                             const bool wide)
{
    const int64_t step = t->c_step * (int64_t)sizeof *t->c;
    float *const below = t->c + HEIGHT * t->c_step;
    _tile_stored(0, t->c, step);
    if (wide)
        _tile_stored(1, t->c + LANES, step);
    if (tall)
        _tile_stored(2, below, step);
    if (tall && wide)
        _tile_stored(3, below + LANES, step);
}

/* Asks for a quarter of the next step: half of a tile of a, a quarter of the lines of a panel.
 * The unit waits until a tile has arrived. Prefetches may go beyond the end of a run; loads do not.
 */
static inline __attribute__((always_inline)) void
ask_ahead(const char *a, int64_t step, const char *b, const int quarter, const bool tall)
{
    enum { LINES = HEIGHT / 2 };
    const uintptr_t next_a = (uintptr_t)a + TILE_BYTES + (uintptr_t)(quarter * LINES * step);
    const uintptr_t next_b =
        (uintptr_t)b + (RG_PAIR_DEPTH / 2 * PANEL_BYTES) + (uintptr_t)quarter * LINES * TILE_BYTES;
#pragma GCC unroll 8
    for (int i = 0; i < LINES; i++) {
        if (quarter < 2 || tall)
            __builtin_prefetch((const void *)(next_a + (uintptr_t)(i * step)), 0, 3);
        __builtin_prefetch((const void *)(next_b + (uintptr_t)i * TILE_BYTES), 0, 3);
    }
}

/* Up to 32 rows. */
static inline __attribute__((always_inline)) void block(const rg_pair_tile *t, const bool tall,
                                                        const bool wide)
{
    const int64_t step = t->a_step * (int64_t)sizeof *t->a;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (const rg_k_run *r = t->runs; r < t->runs + t->run_count; r++) {
        const char *a = (const char *)(t->a + r->a), *b = (const char *)(t->b + r->b);
        for (int64_t k = 0; k < r->count; k += RG_PAIR_DEPTH) {
            _tile_loadd(6, b, PANEL_BYTES);
            if (wide)
                _tile_loadd(7, b + TILE_BYTES, PANEL_BYTES);
            _tile_loadd(4, a, step);
            if (tall)
                _tile_loadd(5, a + HEIGHT * step, step);
            _tile_dpbf16ps(0, 4, 6);
            ask_ahead(a, step, b, 0, tall);
            if (wide)
                _tile_dpbf16ps(1, 4, 7);
            ask_ahead(a, step, b, 1, tall);
            if (tall)
                _tile_dpbf16ps(2, 5, 6);
            ask_ahead(a, step, b, 2, tall);
            if (tall && wide)
                _tile_dpbf16ps(3, 5, 7);
            ask_ahead(a, step, b, 3, tall);
            a += TILE_BYTES;
            b += RG_PAIR_DEPTH / 2 * PANEL_BYTES;
        }
    }
    store_sums(t, tall, wide);
}

typedef void rg_block_function(const rg_pair_tile *t);

static void tall_wide(const rg_pair_tile *t)
{
    block(t, true, true);
}

static void tall_narrow(const rg_pair_tile *t)
{
    block(t, true, false);
}

static void low_wide(const rg_pair_tile *t)
{
    block(t, false, true);
}

static void low_narrow(const rg_pair_tile *t)
{
    block(t, false, false);
}

typedef float row __attribute__((vector_size(TILE_BYTES), aligned(4), may_alias));

/* Up to 32 rows, added to c. The tiles begin with 0 nevertheless, so that long sums are cut. */
static void add_block(const rg_pair_tile *t, rg_block_function *function, int64_t rows,
                      int64_t width)
{
    _Alignas(TILE_BYTES) float sums[2 * HEIGHT][2 * LANES];
    rg_pair_tile part = *t;
    part.c = sums[0];
    part.c_step = 2 * LANES;
    function(&part);
    for (int64_t m = 0; m < rows; m++)
        for (int64_t n = 0; n < width; n += LANES)
            *(row *)(t->c + m * t->c_step + n) += *(const row *)&sums[m][n];
}

void rg_amx_rows(const rg_pair_tile *tile, int64_t rows, int64_t columns)
{
    const bool wide = columns > LANES;
    rg_pair_tile t = *tile;
    for (int64_t now = rows, last = 0; rows > 0; rows -= now) {
        now = rows < 2 * HEIGHT ? rows : 2 * HEIGHT;
        if (now != last)
            configure(now);
        last = now;
        rg_block_function *const function =
            now > HEIGHT ? (wide ? tall_wide : tall_narrow) : (wide ? low_wide : low_narrow);
        if (t.add)
            add_block(&t, function, now, wide ? 2 * LANES : LANES);
        else
            function(&t);
        t.a += now * t.a_step;
        t.c += now * t.c_step;
    }
    _tile_release();
}

#else

void rg_amx_rows(const rg_pair_tile *tile, int64_t rows, int64_t columns)
{
    (void)tile, (void)rows, (void)columns;
}

#endif
