/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* One element at a time: conversions between storage types and double or float. */
#ifndef RG_CORE_DTYPE_H
#define RG_CORE_DTYPE_H

#include "core/status.h"

#include <string.h>

enum { RG_DTYPES = RG_I64 + 1 };

/* f32, f64, f16 or bf16: what an op computes with. */
RG_INLINE bool rg_dtype_is_data(rg_dtype dtype)
{
    return dtype == RG_F32 || dtype == RG_F64 || dtype == RG_F16 || dtype == RG_BF16;
}

/* Reads a dtype's name; RG_INVALID_ARGUMENT for any other text. */
rg_status rg_dtype_parse(const char *text, rg_dtype *dtype);

RG_INLINE float rg_float_of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

RG_INLINE uint32_t rg_bits_of_float(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

RG_INLINE float rg_float_of_bf16(uint16_t bits)
{
    return rg_float_of_bits((uint32_t)bits << 16);
}

/* Adding half of the last place, less one where that place is even, makes the cut round to
 * nearest even. A NaN is made quiet and keeps its upper bits. */
RG_INLINE uint16_t rg_bf16_of_float(float value)
{
    const uint32_t bits = rg_bits_of_float(value);
    if ((bits & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* The exponent is moved by a multiplication, which normalizes subnormal numbers on the way. */
RG_INLINE float rg_float_of_f16(uint16_t bits)
{
    const uint32_t sign = (uint32_t)(bits & 0x8000) << 16;
    const uint32_t rest = (uint32_t)(bits & 0x7fff) << 13;
    if (rest >= 0x0f800000) /* infinity and NaN; NaN becomes quiet */
        return rg_float_of_bits(sign | 0x7f800000 | rest | (rest > 0x0f800000 ? 0x400000 : 0));
    return rg_float_of_bits(sign | rg_bits_of_float(rg_float_of_bits(rest) * 0x1p112f));
}

/* Normal results round as bf16 does. For subnormal ones the addition of 1/2, whose last place is
 * that of a subnormal f16, rounds to nearest even by itself. */
RG_INLINE uint16_t rg_f16_of_float(float value)
{
    const uint32_t bits = rg_bits_of_float(value);
    const uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    const uint32_t size = bits & 0x7fffffff;
    if (size > 0x7f800000)
        return (uint16_t)(sign | 0x7e00 | (size >> 13 & 0x3ff));
    if (size >= 0x477ff000) /* rounds to 65536 or more */
        return (uint16_t)(sign | 0x7c00);
    if (size < 0x38800000) { /* below 2^-14: a multiple of 2^-24 */
        const float sum = rg_float_of_bits(size) + 0.5f;
        return (uint16_t)(sign | (rg_bits_of_float(sum) - 0x3f000000));
    }
    return (uint16_t)(sign | (((size + 0xfff + (size >> 13 & 1)) >> 13) - (112 << 10)));
}

/* Rounds to odd, so that rounding the result to 16 bits is the same as rounding the double once
 * (Boldo and Melquiond). */
RG_INLINE float rg_float_to_odd(double value)
{
    const float near = (float)value;
    if ((double)near == value || value != value)
        return near;
    uint32_t bits = rg_bits_of_float(near);
    if (bits & 1)
        return near;
    const bool beyond = (near > 0 || (near == 0 && value > 0)) == ((double)near > value);
    if (near == 0)
        return rg_float_of_bits((value < 0 ? 0x80000000 : 0) | 1);
    return rg_float_of_bits(beyond ? bits - 1 : bits + 1);
}

/* Element i of an array, as a double: exact except for i64 beyond 2^53. */
double rg_element_get(const void *data, rg_dtype dtype, int64_t i);
void rg_element_set(void *data, rg_dtype dtype, int64_t i, double value);

#endif
