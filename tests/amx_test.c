/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The tile unit, in C functions that do what its instructions do: this program is linked with a
 * contract_amx.c of its own, which the kernels of the library find, too, if they are for AVX-512.
 * Numbers are small integers, so that all sums are exact. */
#include "api.h"
#include "backend/cpu/contract_amx.h"

#include <retrograde/dense.h>

#include <stdlib.h>

enum { ROWS = 64, DEPTH = 200, WIDTH = 40 };

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

/* ---- the unit itself ---- */

static uint16_t a[ROWS][DEPTH], b[DEPTH / 2 + 1][RG_AMX_PANEL][2];
static float c[ROWS][WIDTH];

static void expect_product(int64_t rows, int64_t columns, int64_t k, bool add)
{
    int wrong = 0;
    for (int64_t i = 0; i < ROWS * WIDTH; i++)
        c[i / WIDTH][i % WIDTH] = (float)(i % 7);
    if (k % 2 != 0) /* as a panel ends */
        for (int n = 0; n < RG_AMX_PANEL; n++)
            b[k / 2][n][1] = 0;
    rg_amx_rows(a[0], DEPTH, b[0][0], c[0], WIDTH, rows, columns, k, add);
    for (int64_t m = 0; m < ROWS; m++) {
        for (int64_t n = 0; n < WIDTH; n++) {
            const float old = (float)((m * WIDTH + n) % 7);
            float sum = add ? old : 0;
            for (int64_t i = 0; n < columns && i < k; i++)
                sum += float_of(a[m][i]) * float_of(b[i / 2][n][i % 2]);
            wrong += c[m][n] != (m < rows && n < columns ? sum : old);
        }
    }
    EXPECT(wrong == 0);
}

static void test_rows(void)
{
    static const int64_t rows[] = { 1, 15, 16, 17, 32, 33, 47, 64 };
    static const int64_t depths[] = { 1, 2, 3, 31, 32, 33, 63, 64, 96, 131 };
    uint64_t seed = 5;
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        for (size_t d = 0; d < sizeof depths / sizeof depths[0]; d++) {
            for (int64_t i = 0; i < ROWS * DEPTH; i++)
                a[i / DEPTH][i % DEPTH] = bits_of((float)draw_from(&seed, -4, 4));
            for (size_t i = 0; i < sizeof b / sizeof(uint16_t); i++)
                (&b[0][0][0])[i] = bits_of((float)draw_from(&seed, -4, 4));
            expect_product(rows[r], 16, depths[d], false);
            expect_product(rows[r], 32, depths[d], r % 2 == 0);
        }
    }
}

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

/* to(m, n) is the sum over k of from(m, k) by(k, n), by steps of m, n and k in each. Results of
 * more than 256 may be rounded, in f32 they are exact. */
static void expect_sums(const rg_tensor *to, const rg_tensor *from, const rg_tensor *by, int64_t m,
                        int64_t n, int64_t k, int64_t from_m, int64_t from_k, int64_t by_n,
                        int64_t by_k)
{
    char *const result = elements_of(to);
    uint16_t *const x = (uint16_t *)(void *)elements_of(from);
    uint16_t *const w = (uint16_t *)(void *)elements_of(by);
    rg_tensor_desc desc;
    rg_tensor_get_desc(to, &desc);
    int wrong = 0;
    for (int64_t i = 0; i < m; i++) {
        for (int64_t j = 0; j < n; j++) {
            float sum = 0, got;
            for (int64_t e = 0; e < k; e++)
                sum += float_of(x[i * from_m + e * from_k]) * float_of(w[j * by_n + e * by_k]);
            got = desc.dtype == RG_F32 ? ((float *)(void *)result)[i * n + j]
                                       : float_of(((uint16_t *)(void *)result)[i * n + j]);
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
    expect_sums(y, x[0], x[1], BATCH, OUT, IN, IN, 1, IN, 1);
    expect_sums(dx[0], dy, x[1], BATCH, IN, OUT, OUT, 1, 1, IN);
    expect_sums(dx[1], dy, x[0], OUT, IN, BATCH, 1, OUT, 1, IN);
    for (int i = 0; i < 2; i++) {
        rg_tensor_destroy(x[i]);
        rg_tensor_destroy(dx[i]);
    }
    rg_tensor_destroy(y);
    rg_tensor_destroy(dy);
    rg_kernel_destroy(kernel);
    rig_close(&r);
}

int main(void)
{
    test_rows();
    test_dense();
    return rg_test_report();
}
