/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Loads and stores of pairs of vectors: 2 VLEN elements at once. */
#ifndef RG_CPU_SIMD_PAIRS_H
#define RG_CPU_SIMD_PAIRS_H

#include "backend/cpu/simd_across.h"
#include "backend/cpu/simd_memory.h"

/* A pair is the first half and the second; for bf16, where the order does not matter
 * (`any_order`), the even and the odd elements, which a shift and a mask take apart and put
 * together again. */
typedef struct vpair {
    vreal a, b;
} vpair;

#if !RG_REAL_F64
/* Even elements a and odd elements b as bf16, interleaved. A NaN is quiet (the result of
 * arithmetic) or came from a bf16, so its upper half is itself a NaN; of `sums` (see vstore_sums)
 * its lower half is 0, and it needs no special case.
 *
 * The upper halves of all elements go up by 1 where the lower halves, plus 1 if the upper one is
 * odd, exceed one half, and where that does not overflow a NaN. */
RG_INLINE_LONG vuint vpack_bf16(vreal a, vreal b, const bool sums)
{
#if defined(__AVX512BW__)
    const __m512i x = (__m512i)a, y = (__m512i)b, upper = _mm512_set1_epi32((int)0xffff0000);
    const __m512i half = _mm512_set1_epi16((short)0x8000), one = _mm512_set1_epi16(1);
    const __m512i high = _mm512_ternarylogic_epi32(upper, y, _mm512_srli_epi32(x, 16), 0xca);
    const __m512i low = _mm512_ternarylogic_epi32(upper, _mm512_slli_epi32(y, 16), x, 0xca);
    const __m512i sum = _mm512_adds_epu16(low, _mm512_and_si512(high, one));
    if (sums)
        return (vuint)_mm512_mask_add_epi16(high, _mm512_cmpgt_epu16_mask(sum, half), high, one);
    const __m512i headroom = _mm512_ternarylogic_epi32(high, half, half, 0x03); /* ~(high | half) */
    const __m512i up =
        _mm512_min_epu16(_mm512_subs_epu16(sum, half), _mm512_min_epu16(headroom, one));
    return (vuint)_mm512_add_epi16(high, up);
#else
    if (!sums)
        return vround_bf16(a) >> 16 | (vround_bf16(b) & 0xffff0000);
    const vuint x = (vuint)a + 0x7fff + ((vuint)a >> 16 & 1);
    const vuint y = (vuint)b + 0x7fff + ((vuint)b >> 16 & 1);
    return x >> 16 | (y & 0xffff0000);
#endif
}

RG_INLINE void vstore_packed(void *data, int64_t i, vuint both, const bool stream)
{
    uint16_t *to = (uint16_t *)data + i;
    if (stream)
        vstream(to, 0, RG_F32, (vreal)both);
    else
        memcpy(to, &both, sizeof both);
}
#endif

RG_INLINE vpair vload_pair(const void *data, int64_t i, const rg_dtype T, const bool any_order)
{
#if !RG_REAL_F64
    if (T == RG_BF16 && any_order) {
        vuint both;
        memcpy(&both, (const uint16_t *)data + i, sizeof both);
        return (vpair){ (vreal)(both << 16), (vreal)(both & 0xffff0000) };
    }
#endif
    (void)any_order;
    return (vpair){ vload_full(data, i, T), vload_full(data, i + VLEN, T) };
}

RG_INLINE void vstore_pair(void *data, int64_t i, const rg_dtype T, vpair pair,
                           const bool any_order, const bool stream)
{
#if !RG_REAL_F64
    if (T == RG_BF16 && any_order) {
        vstore_packed(data, i, vpack_bf16(pair.a, pair.b, false), stream);
        return;
    }
#endif
    (void)any_order;
    if (stream) {
        vstream(data, i, T, pair.a);
        vstream(data, i + VLEN, T, pair.b);
    } else {
        vstore_full(data, i, T, pair.a);
        vstore_full(data, i + VLEN, T, pair.b);
    }
}

/* The same in any order for results that +, * and fma alone made of elements of T: a NaN among
 * them has zeros where bf16 is cut off. */
RG_INLINE void vstore_sums(void *data, int64_t i, const rg_dtype T, vpair pair, const bool stream)
{
#if !RG_REAL_F64
    if (T == RG_BF16) {
        vstore_packed(data, i, vpack_bf16(pair.a, pair.b, true), stream);
        return;
    }
#endif
    vstore_pair(data, i, T, pair, true, stream);
}

/* The order of a pair of T, for arrays of real that go with its elements: takes 2 VLEN
 * neighbours apart as loading a pair of T in any order does, and puts such a pair back in the
 * order of the elements. */
RG_INLINE vpair vpair_order(vpair p, const rg_dtype T)
{
#if !RG_REAL_F64
    if (T == RG_BF16)
        return (vpair){ __builtin_shufflevector(p.a, p.b, RG_EVEN(0)),
                        __builtin_shufflevector(p.a, p.b, RG_EVEN(1)) };
#endif
    (void)T;
    return p;
}

RG_INLINE vpair velement_order(vpair p, const rg_dtype T)
{
#if !RG_REAL_F64
    if (T == RG_BF16)
        return (vpair){ __builtin_shufflevector(p.a, p.b, RG_ZIP(0)),
                        __builtin_shufflevector(p.a, p.b, RG_ZIP(RG_VLEN / 2)) };
#endif
    (void)T;
    return p;
}

#endif
