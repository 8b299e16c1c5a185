/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Transpose by definition, in double. */
#include "ops/optest.h"

#include <retrograde/transpose.h>

/* The index in x of element i of y; both are dense. */
static int64_t source_index(const rg_transpose_desc *desc, const rg_ref_tensor *x,
                            const rg_ref_tensor *y, int64_t i)
{
    int64_t index[RG_MAX_RANK], at = 0;
    const int32_t rank = y->rank;
    for (int32_t d = rank - 1; d >= 0; d--) {
        int64_t from = desc->order_count == 0 ? rank - 1 - d : desc->order[d];
        from = from < 0 ? from + rank : from;
        index[from] = i % y->dims[d];
        i /= y->dims[d];
    }
    for (int32_t d = 0; d < rank; d++)
        at = at * x->dims[d] + index[d];
    return at;
}

void rg_transpose_ref_forward(const void *desc, const rg_ref_tensor x[], rg_ref_tensor y[])
{
    for (int64_t i = 0; i < rg_ref_count(y); i++)
        y->data[i] = x->data[source_index(desc, x, y, i)];
}

void rg_transpose_ref_gradient(const void *desc, const rg_ref_tensor dy[], const rg_ref_tensor x[],
                               const rg_ref_tensor y[], rg_ref_tensor dx[])
{
    (void)y;
    for (int64_t i = 0; i < rg_ref_count(dy); i++)
        dx->data[source_index(desc, x, dy, i)] = dy->data[i];
}
