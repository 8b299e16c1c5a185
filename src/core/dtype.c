/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Names, sizes and conversions of element types. */
#include "core/dtype.h"

#include "core/private_api.h"

#include <fenv.h>

static const struct {
    const char *name;
    size_t size;
} dtypes[RG_DTYPES] = {
    [RG_F32] = { "f32", 4 },   [RG_F64] = { "f64", 8 }, [RG_F16] = { "f16", 2 },
    [RG_BF16] = { "bf16", 2 }, [RG_U8] = { "u8", 1 },   [RG_I32] = { "i32", 4 },
    [RG_I64] = { "i64", 8 },
};

static bool is_dtype(rg_dtype dtype)
{
    return (unsigned)dtype < RG_DTYPES;
}

size_t rg_dtype_size(rg_dtype dtype)
{
    return is_dtype(dtype) ? dtypes[dtype].size : 0;
}

const char *rg_dtype_name(rg_dtype dtype)
{
    return is_dtype(dtype) ? dtypes[dtype].name : "?";
}

RG_PRIVATE_API rg_status rg_dtype_parse(const char *text, rg_dtype *dtype)
{
    for (int i = 0; i < RG_DTYPES; i++) {
        if (strcmp(text, dtypes[i].name) == 0) {
            *dtype = (rg_dtype)i;
            return RG_OK;
        }
    }
    return rg_fail(RG_INVALID_ARGUMENT,
                   "unknown dtype '%s'; the dtypes are f32, f64, f16, bf16, u8, i32 and i64", text);
}

RG_PRIVATE_API double rg_element_get(const void *data, rg_dtype dtype, int64_t i)
{
    switch (dtype) {
    case RG_F32:
        return (double)((const float *)data)[i];
    case RG_F64:
        return ((const double *)data)[i];
    case RG_F16:
        return (double)rg_float_of_f16(((const uint16_t *)data)[i]);
    case RG_BF16:
        return (double)rg_float_of_bf16(((const uint16_t *)data)[i]);
    case RG_U8:
        return ((const uint8_t *)data)[i];
    case RG_I32:
        return ((const int32_t *)data)[i];
    case RG_I64:
        return (double)((const int64_t *)data)[i];
    }
    return 0;
}

/* Truncates; the upper bound, 2^k, is exact in double while 2^k - 1 may not be. */
static int64_t to_integer(double value, double low, double bound, int64_t highest)
{
    if (value != value)
        return 0;
    if (value >= bound)
        return highest;
    return (int64_t)(value < low ? low : value);
}

RG_PRIVATE_API void rg_element_set(void *data, rg_dtype dtype, int64_t i, double value)
{
    switch (dtype) {
    case RG_F32:
        ((float *)data)[i] = (float)value;
        break;
    case RG_F64:
        ((double *)data)[i] = value;
        break;
    case RG_F16:
        ((uint16_t *)data)[i] = rg_f16_of_float(rg_float_to_odd(value));
        break;
    case RG_BF16:
        ((uint16_t *)data)[i] = rg_bf16_of_float(rg_float_to_odd(value));
        break;
    case RG_U8:
        ((uint8_t *)data)[i] = (uint8_t)to_integer(value, 0, 0x1p8, UINT8_MAX);
        break;
    case RG_I32:
        ((int32_t *)data)[i] = (int32_t)to_integer(value, -0x1p31, 0x1p31, INT32_MAX);
        break;
    case RG_I64:
        ((int64_t *)data)[i] = to_integer(value, -0x1p63, 0x1p63, INT64_MAX);
        break;
    }
}

/* A double that rounds to float, f16 and bf16 as `value` itself does: what does not fit its 53
 * digits is kept as an odd last one. */
static double long_to_odd(int64_t value)
{
    const bool fits = value < INT64_C(1) << 53 && value > -(INT64_C(1) << 53);
    if (fits || (value & 0x3ff) == 0)
        return (double)value;
    return (double)((value & ~INT64_C(0x3ff)) | 0x400);
}

rg_status rg_convert(void *to, rg_dtype to_dtype, const void *from, rg_dtype from_dtype,
                     size_t count)
{
    RG_CHECK(is_dtype(to_dtype) && is_dtype(from_dtype), RG_INVALID_ARGUMENT,
             "rg_convert: unknown dtype %d", is_dtype(to_dtype) ? from_dtype : to_dtype);
    if (count == 0)
        return RG_OK;
    RG_CHECK_NOT_NULL(to);
    RG_CHECK_NOT_NULL(from);
    if (to_dtype == from_dtype) {
        memcpy(to, from, count * dtypes[to_dtype].size);
        return RG_OK;
    }
    fenv_t caller; /* who may round otherwise, or take subnormal numbers for 0 */
    fegetenv(&caller);
    fesetenv(FE_DFL_ENV);
    const bool longer = from_dtype == RG_I64 && rg_dtype_is_data(to_dtype) && to_dtype != RG_F64;
    for (size_t i = 0; i < count; i++) {
        const double value = longer ? long_to_odd(((const int64_t *)from)[i])
                                    : rg_element_get(from, from_dtype, (int64_t)i);
        rg_element_set(to, to_dtype, (int64_t)i, value);
    }
    fesetenv(&caller);
    return RG_OK;
}
