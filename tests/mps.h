/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* What the tests behind docs/mps.md share: views as MPS speaks of them, and formulas in double. */
#ifndef RG_TESTS_MPS_H
#define RG_TESTS_MPS_H

#include "api.h"

#include <math.h>
#include <stdlib.h>

/* ---- single elements of f32, f64 and f16 tensors ---- */

static inline double element_at(const rg_tensor *tensor, const int64_t index[])
{
    rg_tensor_desc desc = { 0 };
    EXPECT_OK(rg_tensor_get_desc(tensor, &desc));
    int64_t offset = 0;
    for (int32_t d = 0; d < desc.rank; d++)
        offset += index[d] * desc.strides[d];
    double value = 0;
    if (strcmp(rg_device_name(rg_tensor_device(tensor)), "cpu") == 0) {
        const char *first = rg_tensor_data(tensor);
        EXPECT_OK(rg_convert(&value, RG_F64, first + (size_t)offset * rg_dtype_size(desc.dtype),
                             desc.dtype, 1));
        return value;
    }
    int64_t length[RG_MAX_RANK]; /* of a GPU: that one is copied */
    char element[8] = { 0 };
    rg_tensor *one = NULL;
    for (int32_t d = 0; d < desc.rank; d++)
        length[d] = 1;
    EXPECT_OK(rg_tensor_slice((rg_tensor *)(uintptr_t)tensor, index, length, NULL, &one));
    EXPECT_OK(rg_tensor_read(one, element, rg_dtype_size(desc.dtype), RG_LAYOUT_SAME));
    EXPECT_OK(rg_convert(&value, RG_F64, element, desc.dtype, 1));
    rg_tensor_destroy(one);
    return value;
}

/* ---- the four formulas, on a group of `count` elements ---- */

static inline void forward_of(const double x[], double y[], int count, bool log_kind)
{
    double max = -INFINITY, sum = 0;
    for (int i = 0; i < count; i++)
        max = fmax(max, x[i]);
    for (int i = 0; i < count; i++)
        sum += exp(x[i] - max);
    for (int i = 0; i < count; i++)
        y[i] = log_kind ? x[i] - max - log(sum) : exp(x[i] - max) / sum;
}

static inline void gradient_of(const double dy[], const double y[], double dx[], int count,
                               bool log_kind)
{
    double sum = 0;
    for (int i = 0; i < count; i++)
        sum += log_kind ? dy[i] : dy[i] * y[i];
    for (int i = 0; i < count; i++)
        dx[i] = log_kind ? dy[i] - exp(y[i]) * sum : y[i] * (dy[i] - sum);
}

static inline bool is_near(double a, double b, double tolerance)
{
    return fabs(a - b) <= tolerance;
}

#endif
