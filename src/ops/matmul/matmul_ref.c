/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Products of stacks of matrices by definition, in double. */
#include "ops/optest.h"

#include <retrograde/matmul.h>

/* Sizes of a product, and how many matrices y has. */
typedef struct sizes {
    int64_t rows, columns, inner, matrices;
} sizes;

static sizes sizes_of(const rg_matmul_desc *d, const rg_ref_tensor x[], const rg_ref_tensor *y)
{
    sizes s = { y->dims[y->rank - 2], y->dims[y->rank - 1],
                x[0].dims[x[0].rank - (d->transpose_a ? 2 : 1)], 1 };
    for (int32_t k = 0; k < y->rank - 2; k++)
        s.matrices *= y->dims[k];
    return s;
}

/* The matrix of `x` that belongs to matrix `i` of y. */
static int64_t matrix_of(const rg_ref_tensor *x, const rg_ref_tensor *y, int64_t i)
{
    int64_t at = 0, step = 1;
    for (int32_t d = y->rank - 3; d >= 0; d--) {
        const int32_t own = d - (y->rank - x->rank);
        const int64_t index = i % y->dims[d], size = own < 0 ? 1 : x->dims[own];
        i /= y->dims[d];
        at += size == 1 ? 0 : index * step;
        step *= size;
    }
    return at;
}

static int64_t a_index(const rg_matmul_desc *d, sizes s, int64_t matrix, int64_t i, int64_t k)
{
    return matrix * s.rows * s.inner + (d->transpose_a ? k * s.rows + i : i * s.inner + k);
}

static int64_t b_index(const rg_matmul_desc *d, sizes s, int64_t matrix, int64_t k, int64_t j)
{
    return matrix * s.inner * s.columns + (d->transpose_b ? j * s.inner + k : k * s.columns + j);
}

void rg_matmul_ref_forward(const void *desc, const rg_ref_tensor x[], rg_ref_tensor y[])
{
    const rg_matmul_desc *d = desc;
    const sizes s = sizes_of(d, x, y);
    for (int64_t t = 0; t < s.matrices * s.rows * s.columns; t++) {
        const int64_t matrix = t / (s.rows * s.columns);
        const int64_t i = t / s.columns % s.rows, j = t % s.columns;
        const int64_t ma = matrix_of(&x[0], y, matrix), mb = matrix_of(&x[1], y, matrix);
        long double sum = 0;
        for (int64_t k = 0; k < s.inner; k++)
            sum += x[0].data[a_index(d, s, ma, i, k)] * x[1].data[b_index(d, s, mb, k, j)];
        y->data[t] = d->alpha * (double)sum;
    }
}

static void clear(rg_ref_tensor *tensor)
{
    const int64_t count = rg_ref_count(tensor);
    for (int64_t i = 0; tensor->data != NULL && i < count; i++)
        tensor->data[i] = 0;
}

void rg_matmul_ref_gradient(const void *desc, const rg_ref_tensor dy[], const rg_ref_tensor x[],
                            const rg_ref_tensor y[], rg_ref_tensor dx[])
{
    const rg_matmul_desc *d = desc;
    const sizes s = sizes_of(d, x, dy);
    (void)y;
    clear(&dx[0]);
    clear(&dx[1]);
    for (int64_t t = 0; t < s.matrices * s.rows * s.columns; t++) {
        const int64_t matrix = t / (s.rows * s.columns);
        const int64_t i = t / s.columns % s.rows, j = t % s.columns;
        const int64_t ma = matrix_of(&x[0], dy, matrix), mb = matrix_of(&x[1], dy, matrix);
        for (int64_t k = 0; k < s.inner; k++) {
            const int64_t at_a = a_index(d, s, ma, i, k), at_b = b_index(d, s, mb, k, j);
            if (dx[0].data != NULL)
                dx[0].data[at_a] += d->alpha * (dy->data[t] * x[1].data[at_b]);
            if (dx[1].data != NULL)
                dx[1].data[at_b] += d->alpha * (dy->data[t] * x[0].data[at_a]);
        }
    }
}
