/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Units for pairs of bf16: AVX512-BF16 where the processor has it, and the tile unit in C functions
 * that do what its instructions do. This program is linked with a contract_amx.c and a
 * bf16_unit.c of its own, which the kernels of the library find, too, if they are for AVX-512.
 * Numbers are small integers, so that all sums are exact. */
#include "api.h"
#include "ops/contract/contract_pairs.h"

#include <retrograde/conv.h>
#include <retrograde/dense.h>

#include <math.h>
#include <stdlib.h>

enum { ROWS = 64, DEPTH = 224, PANEL = RG_PAIR_PANEL, WIDTH = 40 };

static uint16_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)(bits >> 16);
}

static float float_of(uint16_t bits)
{
    const uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
}

/* ---- the units themselves ---- */

static uint16_t a[ROWS + 1][DEPTH], b[DEPTH][PANEL][2];
static float c[ROWS][WIDTH];

/* Two runs of `first` and `second` elements: in b each begins where a whole step does. */
static void expect_product(rg_pair_function *function, int64_t rows, int64_t columns, int64_t first,
                           int64_t second, bool add)
{
    const int64_t step = (first + RG_PAIR_DEPTH - 1) / RG_PAIR_DEPTH * RG_PAIR_DEPTH;
    const rg_k_run runs[] = { { 3, 0, first }, { first + 5, step * PANEL, second } };
    const rg_pair_tile tile = { a[0], b[0][0], c[0], runs, second > 0 ? 2 : 1, DEPTH, WIDTH, add };
    int wrong = 0;
    for (int64_t i = 0; i < ROWS * WIDTH; i++)
        c[i / WIDTH][i % WIDTH] = (float)(i % 7);
    for (int64_t i = 0; i < DEPTH; i++) /* as panels are behind a run */
        for (int n = 0; n < PANEL; n++)
            if ((i >= first && i < step) || i >= step + second)
                b[i / 2][n][i % 2] = 0;
    function(&tile, rows, columns);
    for (int64_t m = 0; m < ROWS; m++) {
        for (int64_t n = 0; n < WIDTH; n++) {
            const float old = (float)((m * WIDTH + n) % 7);
            float sum = add ? old : 0;
            for (int64_t i = 0; n < columns && i < first; i++)
                sum += float_of(a[m][3 + i]) * float_of(b[i / 2][n][i % 2]);
            for (int64_t i = 0; n < columns && i < second; i++)
                sum += float_of(a[m][first + 5 + i]) * float_of(b[(step + i) / 2][n][i % 2]);
            wrong += c[m][n] != (m < rows && n < columns ? sum : old);
        }
    }
    EXPECT(wrong == 0);
}

static void test_rows(rg_pair_function *function)
{
    static const int64_t rows[] = { 1,  2,  3,  6,  9,  10, 11, 12, 13,
                                    15, 16, 17, 19, 27, 32, 33, 47, 64 };
    static const int64_t depths[] = { 2, 4, 30, 32, 34, 62, 64, 96 };
    uint64_t seed = 5;
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        for (size_t d = 0; d < sizeof depths / sizeof depths[0]; d++) {
            for (int64_t i = 0; i < (ROWS + 1) * DEPTH; i++)
                a[i / DEPTH][i % DEPTH] = bits_of((float)draw_from(&seed, -4, 4));
            for (size_t i = 0; i < sizeof b / sizeof(uint16_t); i++)
                (&b[0][0][0])[i] = bits_of((float)draw_from(&seed, -4, 4));
            expect_product(function, rows[r], 16, depths[d], 0, false);
            expect_product(function, rows[r], 32, depths[d], depths[7 - d], r % 2 == 0);
            expect_product(function, rows[r], 16, depths[d], depths[(d + 3) % 8], r % 2 != 0);
        }
    }
}

/* ---- results that the unit rounds itself ---- */

#if RG_HAVE_BF16

/* The same bits as of sums that are stored first, and nothing beside them. */
static void expect_results(const float *bias, bool relu, int64_t rows, int64_t columns)
{
    enum { STEP = PANEL + 3 };
    static uint16_t to[2][ROWS][STEP];
    const rg_k_run run = { 0, 0, 6 };
    rg_pair_tile tile = {
        .a = a[0], .b = b[0][0], .runs = &run, .run_count = 1, .a_step = DEPTH, .c_step = WIDTH
    };
    rg_bf16_results results = {
        .bias = bias, .to = to[0][0], .to_step = STEP, .columns = columns, .relu = relu
    };
    memset(to, 0x5a, sizeof to);
    tile.results = &results;
    rg_bf16_rows(&tile, rows, columns);
    tile.results = NULL;
    tile.c = c[0];
    rg_bf16_rows(&tile, rows, columns);
    results.to = to[1][0];
    results.rows = rows;
    results.sums = c[0];
    results.sums_step = WIDTH;
    EXPECT(rg_bf16_end(&results));
    EXPECT(memcmp(to[0], to[1], sizeof to[0]) == 0);
}

/* Sums are multiples of 2^-124, or 0 where a product is subnormal. With a bias some results are
 * subnormal, which stay. */
static void test_results(void)
{
    uint64_t seed = 9;
    float bias[PANEL];
    for (int64_t i = 0; i < (ROWS + 1) * DEPTH; i++)
        a[i / DEPTH][i % DEPTH] = bits_of(ldexpf((float)draw_from(&seed, -4, 4), -62));
    for (size_t i = 0; i < sizeof b / sizeof(uint16_t); i++)
        (&b[0][0][0])[i] = bits_of(ldexpf((float)draw_from(&seed, -4, 4), i % 5 == 0 ? -70 : -62));
    for (int i = 0; i < PANEL; i++)
        bias[i] = ldexpf((float)draw_from(&seed, -99, 99), i % 2 == 0 ? -128 : -124);
    for (int64_t rows = 1; rows < 45; rows++)
        for (int64_t columns = 1; columns <= PANEL; columns++)
            for (int kind = 0; kind < 4; kind++)
                expect_results(kind % 2 != 0 ? bias : NULL, kind > 1, rows, columns);
}

#endif

/* ---- a dense layer, whose products go there ---- */

enum { BATCH = 70, IN = 1055, OUT = 97 };

static rg_tensor *integers(rg_device *device, int32_t rank, const int64_t dims[], uint64_t seed)
{
    rg_tensor *tensor = tensor_of(device, RG_BF16, rank, dims);
    const int64_t count = count_of(tensor);
    uint16_t *values = calloc((size_t)count, sizeof *values);
    for (int64_t i = 0; i < count; i++)
        values[i] = bits_of((float)draw_from(&seed, -1, 1));
    EXPECT_OK(rg_tensor_write(tensor, values, bytes_of(tensor), RG_LAYOUT_SAME));
    free(values);
    return tensor;
}

/* Lengths of a product, and how far apart its elements are. */
typedef struct product_sums {
    int64_t m, n, k, from_m, from_k, by_n, by_k;
} product_sums;

/* to(m, n) is the sum over k of from(m, k) by(k, n). Results of more than 256 may be rounded, in
 * f32 they are exact. */
static void expect_sums(const rg_tensor *to, const rg_tensor *from, const rg_tensor *by,
                        product_sums p)
{
    char *const result = elements_of(to);
    uint16_t *const x = (uint16_t *)(void *)elements_of(from);
    uint16_t *const w = (uint16_t *)(void *)elements_of(by);
    rg_tensor_desc desc;
    rg_tensor_get_desc(to, &desc);
    int wrong = 0;
    for (int64_t i = 0; i < p.m; i++) {
        for (int64_t j = 0; j < p.n; j++) {
            float sum = 0, got;
            for (int64_t e = 0; e < p.k; e++)
                sum +=
                    float_of(x[i * p.from_m + e * p.from_k]) * float_of(w[j * p.by_n + e * p.by_k]);
            got = desc.dtype == RG_F32 ? ((float *)(void *)result)[i * p.n + j]
                                       : float_of(((uint16_t *)(void *)result)[i * p.n + j]);
            wrong += sum - got > 0.5f || got - sum > 0.5f;
        }
    }
    EXPECT(wrong == 0);
    free(result);
    free(x);
    free(w);
}

static void test_dense(void)
{
    rig r = rig_open(2);
    rg_dense_desc desc = rg_dense_desc_default();
    desc.bias = false;
    rg_kernel *kernel = NULL;
    EXPECT_OK(rg_dense_create(r.device, &desc, &kernel));
    rg_tensor *x[] = { integers(r.device, 2, DIMS(BATCH, IN), 1),
                       integers(r.device, 2, DIMS(OUT, IN), 2) };
    rg_tensor *dy = integers(r.device, 2, DIMS(BATCH, OUT), 3);
    rg_tensor *y = tensor_of(r.device, RG_BF16, 2, DIMS(BATCH, OUT));
    rg_tensor *dx[] = { tensor_of(r.device, RG_BF16, 2, DIMS(BATCH, IN)),
                        tensor_of(r.device, RG_F32, 2, DIMS(OUT, IN)) };
    EXPECT_OK(rg_kernel_forward(kernel, r.commands, x, &y, NULL));
    EXPECT_OK(rg_kernel_gradient(kernel, r.commands, &dy, x, NULL, NULL, dx, 0));
    EXPECT_OK(rig_run(&r));
    expect_sums(y, x[0], x[1], (product_sums){ BATCH, OUT, IN, IN, 1, IN, 1 });
    expect_sums(dx[0], dy, x[1], (product_sums){ BATCH, IN, OUT, OUT, 1, 1, IN });
    expect_sums(dx[1], dy, x[0], (product_sums){ OUT, IN, BATCH, 1, OUT, 1, IN });
    for (int i = 0; i < 2; i++) {
        rg_tensor_destroy(x[i]);
        rg_tensor_destroy(dx[i]);
    }
    rg_tensor_destroy(y);
    rg_tensor_destroy(dy);
    rg_kernel_destroy(kernel);
    rig_close(&r);
}

/* ---- convolutions: the best instruction set, on the tile unit, and the lowest one have the same
 * bits ---- */

typedef struct conv_case {
    int64_t x[4], w[4];
    int32_t groups, stride, dilation, padding;
    double special; /* among x, w and dy in turn; 0: none */
    int64_t at;     /* where, around the end */
} conv_case;

static const conv_case convs[] = {
    { { 2, 14, 14, 64 }, { 64, 3, 3, 64 }, 1, 1, 1, 1, 0 },
    { { 3, 7, 9, 37 }, { 35, 3, 3, 37 }, 1, 1, 1, 1, 0 },   /* an odd depth */
    { { 2, 9, 11, 48 }, { 40, 3, 3, 48 }, 1, 1, 2, 2, 0 },  /* taps apart */
    { { 2, 13, 12, 32 }, { 33, 3, 3, 32 }, 1, 2, 1, 1, 0 }, /* planes, phases */
    { { 2, 13, 12, 20 }, { 24, 4, 5, 20 }, 1, 3, 2, 3, 0 },
    { { 2, 8, 9, 32 }, { 48, 1, 1, 32 }, 1, 1, 1, 0, 0 }, /* read where they stand */
    { { 2, 8, 9, 32 }, { 48, 1, 1, 32 }, 1, 2, 1, 0, 0 },
    { { 2, 8, 9, 64 }, { 16, 3, 2, 64 }, 1, 1, 1, 0, 0 },
    { { 2, 6, 7, 48 }, { 36, 3, 3, 16 }, 3, 1, 1, 1, 0 }, /* groups */
    { { 5, 1, 1, 64 }, { 48, 1, 1, 64 }, 1, 1, 1, 0, 0 }, /* one pixel */
    { { 17, 12, 12, 8 }, { 9, 1, 1, 8 }, 1, 1, 1, 0, 0 }, /* dw in two launches, the last shorter */
    { { 70, 5, 6, 8 }, { 9, 1, 1, 8 }, 1, 1, 1, 0, 0 },   /* in two, of 32 slices */
    { { 1, 40, 90, 8 }, { 8, 3, 3, 8 }, 1, 1, 1, 1, 0 },  /* long sums of few channels */
    { { 1, 21, 20, 3 }, { 40, 7, 7, 3 }, 1, 2, 1, 3, 0 }, /* all phases together */
    { { 2, 9, 8, 33 }, { 34, 3, 3, 33 }, 1, 1, 1, 1, INFINITY, 77 },
    { { 2, 9, 8, 32 }, { 34, 3, 3, 32 }, 1, 2, 1, 1, (double)NAN, 77 },
    { { 70, 5, 6, 8 }, { 9, 3, 3, 8 }, 1, 1, 1, 1, INFINITY, 77 },    /* first image of a slice */
    { { 70, 5, 6, 8 }, { 9, 3, 3, 8 }, 1, 1, 1, 1, -INFINITY, 8390 }, /* the second one */
    { { 13, 14, 14, 256 }, { 256, 1, 1, 256 }, 1, 1, 1, 0, INFINITY, 460000 }, /* no slices */
};

/* Integers, among which entry `at` is special. */
static rg_tensor *integers_with(rg_device *device, const int64_t dims[4], uint64_t seed,
                                double special, int64_t at)
{
    rg_tensor *tensor = integers(device, 4, dims, seed);
    if (special == 0)
        return tensor;
    uint16_t *const values = (uint16_t *)(void *)elements_of(tensor);
    values[(size_t)at % (bytes_of(tensor) / sizeof *values)] = bits_of((float)special);
    EXPECT_OK(rg_tensor_write(tensor, values, bytes_of(tensor), RG_LAYOUT_SAME));
    free(values);
    return tensor;
}

/* Results y, dx and dw in f32, to be freed. */
static void convolve(const conv_case *t, const char *isa, int which, char *results[3],
                     size_t bytes[3])
{
    rg_device_options options = rg_device_options_default();
    options.threads = 2;
    options.isa = isa;
    rig r = { 0 };
    EXPECT_OK(rg_device_create("cpu", &options, &r.device));
    EXPECT_OK(rg_queue_create(r.device, &r.queue));
    EXPECT_OK(rg_commands_create(r.queue, &r.commands));
    rg_conv_desc desc = rg_conv_desc_default();
    desc.bias = false;
    desc.groups = t->groups;
    int64_t y_dims[4] = { t->x[0], 0, 0, t->w[0] };
    for (int i = 0; i < 2; i++) {
        desc.stride[i] = t->stride;
        desc.dilation[i] = t->dilation;
        const int64_t reach = (t->w[1 + i] - 1) * t->dilation + 1;
        y_dims[1 + i] = (t->x[1 + i] + 2 * t->padding - reach) / t->stride + 1;
    }
    desc.padding.top = desc.padding.left = desc.padding.bottom = desc.padding.right = t->padding;
    rg_kernel *kernel = NULL;
    EXPECT_OK(rg_conv_create(r.device, &desc, &kernel));
    rg_tensor *x[] = { integers_with(r.device, t->x, 1, which == 0 ? t->special : 0, t->at),
                       integers_with(r.device, t->w, 2, which == 1 ? t->special : 0, t->at) };
    rg_tensor *dy = integers_with(r.device, y_dims, 3, which == 2 ? t->special : 0, t->at);
    rg_tensor *const y = tensor_of(r.device, RG_BF16, 4, y_dims);
    rg_tensor *dx[] = { tensor_of(r.device, RG_BF16, 4, t->x),
                        tensor_of(r.device, RG_F32, 4, t->w) };
    EXPECT_OK(rg_kernel_forward(kernel, r.commands, x, &y, NULL));
    EXPECT_OK(rg_kernel_gradient(kernel, r.commands, &dy, x, NULL, NULL, dx, 0));
    EXPECT_OK(rig_run(&r));
    rg_tensor *all[] = { y, dx[0], dx[1], x[0], x[1], dy };
    for (int i = 0; i < 6; i++) {
        if (i < 3) {
            results[i] = elements_of(all[i]);
            bytes[i] = bytes_of(all[i]);
        }
        rg_tensor_destroy(all[i]);
    }
    rg_kernel_destroy(kernel);
    rig_close(&r);
}

/* NaN is like NaN, whatever its bits. */
static int64_t differences(const char *left, const char *right, size_t bytes, bool wide)
{
    int64_t different = 0;
    for (size_t i = 0; i < bytes; i += wide ? 4 : 2) {
        float one, other;
        if (wide) {
            memcpy(&one, left + i, sizeof one);
            memcpy(&other, right + i, sizeof other);
        } else {
            uint16_t bits[2];
            memcpy(&bits[0], left + i, sizeof bits[0]);
            memcpy(&bits[1], right + i, sizeof bits[1]);
            one = float_of(bits[0]);
            other = float_of(bits[1]);
        }
        different += one != other && !(isnan(one) && isnan(other));
    }
    return different;
}

static void test_conv(void)
{
    for (size_t i = 0; i < sizeof convs / sizeof convs[0]; i++) {
        for (int which = 0; which < (convs[i].special != 0 ? 3 : 1); which++) {
            char *results[2][3];
            size_t bytes[3];
            convolve(&convs[i], NULL, which, results[0], bytes);
            convolve(&convs[i], "base", which, results[1], bytes);
            for (int e = 0; e < 3; e++) {
                const int64_t different =
                    differences(results[0][e], results[1][e], bytes[e], e == 2);
                if (different != 0)
                    printf("convolution %zu, special %d, result %d: %lld differ\n", i, which, e,
                           (long long)different);
                EXPECT(different == 0);
                free(results[0][e]);
                free(results[1][e]);
            }
        }
    }
}

int main(void)
{
    test_rows(rg_amx_rows);
#if RG_HAVE_BF16
    if (__builtin_cpu_supports("avx512bf16")) {
        test_rows(rg_bf16_rows);
        test_results();
    }
#endif
    test_dense();
    test_conv();
    return rg_test_report();
}
