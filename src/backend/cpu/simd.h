/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Vectors for kernel files. A file is compiled once for each instruction set and for each
 * `real`:
 *
 *      real    what a kernel computes in: float, or double for f64 tensors
 *      vreal   VLEN of them; operators + - * / and comparisons work lane by lane
 *      T       how a tensor stores its elements, a constant: f32, f16, bf16, or f64
 *
 * vload and vstore convert between the two. Intrinsics stay in this file. */
#ifndef RG_CPU_SIMD_H
#define RG_CPU_SIMD_H

#include "core/dtype.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
#define RG_VECTOR_BYTES 64
#elif defined(__AVX2__)
#define RG_VECTOR_BYTES 32
#else
#define RG_VECTOR_BYTES 16
#endif

#if RG_REAL_F64
typedef double real;
typedef int64_t intr; /* an integer as wide as real */
typedef uint64_t uintr;
#define RG_REAL RG_F64
#define RG_VLEN (RG_VECTOR_BYTES / 8)
#else
typedef float real;
typedef int32_t intr;
typedef uint32_t uintr;
#define RG_REAL RG_F32
#define RG_VLEN (RG_VECTOR_BYTES / 4)
#endif

/* Lanes of a vector. */
enum { VLEN = RG_VLEN };
typedef real vreal __attribute__((vector_size(RG_VECTOR_BYTES)));
typedef intr vint __attribute__((vector_size(RG_VECTOR_BYTES))); /* integers, and masks: 0 or -1 */
typedef uintr vuint __attribute__((vector_size(RG_VECTOR_BYTES)));

/* Kept out of line: rare, or shared by all storage types. */
#define RG_OUTLINE static __attribute__((noinline, unused))

#define RG_INFINITY ((real)__builtin_inf())

/* ---- lane by lane ---- */

RG_INLINE vreal vset(real a)
{
    return a - (vreal){ 0 }; /* not +: -0 stays -0 */
}

RG_INLINE vint vlanes(void) /* 0, 1, 2, … */
{
#if RG_VLEN == 16
    return (vint){ 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 };
#elif RG_VLEN == 8
    return (vint){ 0, 1, 2, 3, 4, 5, 6, 7 };
#elif RG_VLEN == 4
    return (vint){ 0, 1, 2, 3 };
#else
    return (vint){ 0, 1 };
#endif
}

/* Lanes of a vector that starts `left` elements before the end. */
RG_INLINE int vlanes_left(int64_t left)
{
    return left < VLEN ? (int)left : VLEN;
}

RG_INLINE vreal vselect(vint mask, vreal yes, vreal no)
{
#if defined(__AVX512F__) && RG_REAL_F64
    return (vreal)_mm512_mask_blend_pd(_mm512_movepi64_mask((__m512i)mask), (__m512d)no,
                                       (__m512d)yes);
#elif defined(__AVX512F__)
    return (vreal)_mm512_mask_blend_ps(_mm512_movepi32_mask((__m512i)mask), (__m512)no,
                                       (__m512)yes);
#elif defined(__AVX2__) && RG_REAL_F64
    return (vreal)_mm256_blendv_pd((__m256d)no, (__m256d)yes, (__m256d)mask);
#elif defined(__AVX2__)
    return (vreal)_mm256_blendv_ps((__m256)no, (__m256)yes, (__m256)mask);
#else
    return (vreal)((mask & (vint)yes) | (~mask & (vint)no));
#endif
}

RG_INLINE vreal vabs(vreal a)
{
    return (vreal)((vuint)a << 1 >> 1);
}

/* a > b ? a : b, so b where either is NaN */
RG_INLINE vreal vmax(vreal a, vreal b)
{
#if defined(__AVX512F__) && RG_REAL_F64
    return (vreal)_mm512_max_pd((__m512d)a, (__m512d)b);
#elif defined(__AVX512F__)
    return (vreal)_mm512_max_ps((__m512)a, (__m512)b);
#elif defined(__AVX2__) && RG_REAL_F64
    return (vreal)_mm256_max_pd((__m256d)a, (__m256d)b);
#elif defined(__AVX2__)
    return (vreal)_mm256_max_ps((__m256)a, (__m256)b);
#elif defined(__SSE2__) && RG_REAL_F64
    return (vreal)_mm_max_pd((__m128d)a, (__m128d)b);
#elif defined(__SSE2__)
    return (vreal)_mm_max_ps((__m128)a, (__m128)b);
#else
    return vselect(a > b, a, b);
#endif
}

RG_INLINE vreal vmin(vreal a, vreal b) /* a < b ? a : b */
{
#if defined(__AVX512F__) && RG_REAL_F64
    return (vreal)_mm512_min_pd((__m512d)a, (__m512d)b);
#elif defined(__AVX512F__)
    return (vreal)_mm512_min_ps((__m512)a, (__m512)b);
#elif defined(__AVX2__) && RG_REAL_F64
    return (vreal)_mm256_min_pd((__m256d)a, (__m256d)b);
#elif defined(__AVX2__)
    return (vreal)_mm256_min_ps((__m256)a, (__m256)b);
#elif defined(__SSE2__) && RG_REAL_F64
    return (vreal)_mm_min_pd((__m128d)a, (__m128d)b);
#elif defined(__SSE2__)
    return (vreal)_mm_min_ps((__m128)a, (__m128)b);
#else
    return vselect(a < b, a, b);
#endif
}

/* a * b + c, rounded once where the instruction set can. Kernel files are compiled without
 * contraction, so that the main loop and the tail round alike. */
RG_INLINE vreal vfma(vreal a, vreal b, vreal c)
{
#if defined(__AVX512F__) && RG_REAL_F64
    return (vreal)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)c);
#elif defined(__AVX512F__)
    return (vreal)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__AVX2__) && RG_REAL_F64
    return (vreal)_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)c);
#elif defined(__AVX2__)
    return (vreal)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#else
    return a * b + c;
#endif
}

/* Half a vector, where that is as many lanes as a whole one of the rung below. */
#if RG_VLEN == 16
#define RG_HAS_SLIM 1
typedef real vslim __attribute__((vector_size(RG_VECTOR_BYTES / 2)));

RG_INLINE vslim vslim_fma(real a, vslim b, vslim c)
{
    return (vslim)_mm256_fmadd_ps(_mm256_set1_ps(a), (__m256)b, (__m256)c);
}
#else
#define RG_HAS_SLIM 0
#endif

RG_INLINE vreal vsqrt(vreal a)
{
#if defined(__AVX512F__) && RG_REAL_F64
    return (vreal)_mm512_sqrt_pd((__m512d)a);
#elif defined(__AVX512F__)
    return (vreal)_mm512_sqrt_ps((__m512)a);
#elif defined(__AVX2__) && RG_REAL_F64
    return (vreal)_mm256_sqrt_pd((__m256d)a);
#elif defined(__AVX2__)
    return (vreal)_mm256_sqrt_ps((__m256)a);
#elif defined(__SSE2__) && RG_REAL_F64
    return (vreal)_mm_sqrt_pd((__m128d)a);
#elif defined(__SSE2__)
    return (vreal)_mm_sqrt_ps((__m128)a);
#else
    for (int e = 0; e < VLEN; e++)
        a[e] = sizeof(real) == 4 ? (real)__builtin_sqrtf((float)a[e]) : (real)__builtin_sqrt(a[e]);
    return a;
#endif
}

/* Whether a lane of a mask is set. */
RG_INLINE bool vany(vint mask)
{
#if defined(__AVX512F__) && RG_REAL_F64
    return _mm512_movepi64_mask((__m512i)mask) != 0;
#elif defined(__AVX512F__)
    return _mm512_movepi32_mask((__m512i)mask) != 0;
#elif defined(__AVX2__)
    return _mm256_movemask_epi8((__m256i)mask) != 0;
#elif defined(__SSE2__)
    return _mm_movemask_epi8((__m128i)mask) != 0;
#else
    intr any = 0;
    for (int e = 0; e < VLEN; e++)
        any |= mask[e];
    return any != 0;
#endif
}

/* Whether a lane is NaN. */
RG_INLINE bool vany_nan(vreal a)
{
#if defined(__AVX512F__) && RG_REAL_F64
    return _mm512_cmp_pd_mask((__m512d)a, (__m512d)a, _CMP_UNORD_Q) != 0;
#elif defined(__AVX512F__)
    return _mm512_cmp_ps_mask((__m512)a, (__m512)a, _CMP_UNORD_Q) != 0;
#else
    return vany(a != a);
#endif
}

/* 1 / sqrt(a) within 2 units of the last place, or, where `brief`, within 2^-14 of the value, for
 * numbers. What is not brief may be NaN for 0 and infinity. */
RG_INLINE vreal vrsqrt(vreal a, const bool brief)
{
#if defined(__AVX512F__) && !RG_REAL_F64
    const vreal r = (vreal)_mm512_rsqrt14_ps((__m512)a);
    return brief ? r : vfma(r * vset((real)0.5), vfma(-a * r, r, vset(1)), r);
#else
    (void)brief;
    return 1 / vsqrt(a);
#endif
}

/* Integers of 64 bits, and the products of their lower halves. */
typedef uint64_t vwide __attribute__((vector_size(RG_VECTOR_BYTES)));
RG_INLINE vwide vmul_low(vwide a, vwide b)
{
#if defined(__AVX512F__)
    return (vwide)_mm512_mul_epu32((__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
    return (vwide)_mm256_mul_epu32((__m256i)a, (__m256i)b);
#elif defined(__SSE2__)
    return (vwide)_mm_mul_epu32((__m128i)a, (__m128i)b);
#else
    return (a & 0xffffffff) * (b & 0xffffffff);
#endif
}

/* Which of the 16-bit parts of a vector, the lowest in bit 0, are at most `limit`, or equal to it.
 */
RG_INLINE uint32_t vbits_at_most(vwide a, uint16_t limit)
{
#if defined(__AVX512F__)
    return _mm512_cmple_epu16_mask((__m512i)a, _mm512_set1_epi16((short)limit));
#elif defined(__AVX2__)
    const __m256i over = _mm256_subs_epu16((__m256i)a, _mm256_set1_epi16((short)limit));
    const __m256i none = _mm256_setzero_si256(), bytes = _mm256_cmpeq_epi16(over, none);
    const uint32_t bits = (uint32_t)_mm256_movemask_epi8(_mm256_packs_epi16(bytes, none));
    return (bits & 0xff) | (bits >> 8 & 0xff00);
#elif defined(__SSE2__)
    const __m128i over = _mm_subs_epu16((__m128i)a, _mm_set1_epi16((short)limit));
    const __m128i none = _mm_setzero_si128(), bytes = _mm_cmpeq_epi16(over, none);
    return (uint32_t)_mm_movemask_epi8(_mm_packs_epi16(bytes, none));
#else
    uint32_t bits = 0;
    for (int i = 0; i < RG_VECTOR_BYTES / 2; i++)
        bits |= (uint32_t)((a[i / 4] >> i % 4 * 16 & 0xffff) <= limit) << i;
    return bits;
#endif
}

RG_INLINE uint32_t vbits_equal(vwide a, uint16_t limit)
{
#if defined(__AVX512F__)
    return _mm512_cmpeq_epi16_mask((__m512i)a, _mm512_set1_epi16((short)limit));
#else
    return vbits_at_most(a, limit) ^ (limit > 0 ? vbits_at_most(a, (uint16_t)(limit - 1)) : 0);
#endif
}

/* a where a bit of `each` is set in `all`, else 0. */
RG_INLINE vreal vkeep_bits(vreal a, vuint all, vuint each)
{
#if defined(__AVX512F__) && RG_REAL_F64
    return (vreal)_mm512_maskz_mov_pd(_mm512_test_epi64_mask((__m512i)all, (__m512i)each),
                                      (__m512d)a);
#elif defined(__AVX512F__)
    return (vreal)_mm512_maskz_mov_ps(_mm512_test_epi32_mask((__m512i)all, (__m512i)each),
                                      (__m512)a);
#else
    return (vreal)(((all & each) == each) & (vint)a);
#endif
}

/* a * 2^k for a whole number k, rounded once, where there is an instruction for it. */
#if defined(__AVX512F__)
#define RG_HAS_VSCALE 1
RG_INLINE vreal vscale(vreal a, vreal k)
{
#if RG_REAL_F64
    return (vreal)_mm512_scalef_pd((__m512d)a, (__m512d)k);
#else
    return (vreal)_mm512_scalef_ps((__m512)a, (__m512)k);
#endif
}
#endif

/* 1 / a within 2^-14 of the value, for results of 16 bits; 1 / infinity is 0. */
RG_INLINE vreal vrecip_short(vreal a)
{
#if defined(__AVX512F__) && !RG_REAL_F64
    return (vreal)_mm512_rcp14_ps((__m512)a);
#else
    return 1 / a;
#endif
}

/* Lanes from `n` on become `fill`. */
RG_INLINE vreal vkeep(vreal a, const int n, real fill)
{
    return n == VLEN ? a : vselect(vlanes() < (intr)n, a, vset(fill));
}

/* ---- across lanes, in a fixed order ---- */

#if RG_VLEN == 16
#define RG_XOR(k)                                                                                 \
    0 ^ k, 1 ^ k, 2 ^ k, 3 ^ k, 4 ^ k, 5 ^ k, 6 ^ k, 7 ^ k, 8 ^ k, 9 ^ k, 10 ^ k, 11 ^ k, 12 ^ k, \
        13 ^ k, 14 ^ k, 15 ^ k
#elif RG_VLEN == 8
#define RG_XOR(k) 0 ^ k, 1 ^ k, 2 ^ k, 3 ^ k, 4 ^ k, 5 ^ k, 6 ^ k, 7 ^ k
#elif RG_VLEN == 4
#define RG_XOR(k) 0 ^ k, 1 ^ k, 2 ^ k, 3 ^ k
#else
#define RG_XOR(k) 0 ^ k, 1 ^ k
#endif

/* Every second lane of two vectors, from the first (k = 0) or the second on; and lanes of two
 * vectors in turn. */
#if RG_VLEN == 16
#define RG_EVEN(k)                                                                                 \
    k, k + 2, k + 4, k + 6, k + 8, k + 10, k + 12, k + 14, k + 16, k + 18, k + 20, k + 22, k + 24, \
        k + 26, k + 28, k + 30
#define RG_ZIP(k)                                                                                \
    k, k + 16, k + 1, k + 17, k + 2, k + 18, k + 3, k + 19, k + 4, k + 20, k + 5, k + 21, k + 6, \
        k + 22, k + 7, k + 23
#elif RG_VLEN == 8
#define RG_EVEN(k) k, k + 2, k + 4, k + 6, k + 8, k + 10, k + 12, k + 14
#define RG_ZIP(k)  k, k + 8, k + 1, k + 9, k + 2, k + 10, k + 3, k + 11
#elif RG_VLEN == 4
#define RG_EVEN(k) k, k + 2, k + 4, k + 6
#define RG_ZIP(k)  k, k + 4, k + 1, k + 5
#else
#define RG_EVEN(k) k, k + 2
#define RG_ZIP(k)  k, k + 2
#endif

/* VLEN lanes of two vectors, one behind the other, from lane k on. */
#if RG_VLEN == 16
#define RG_FROM(k)                                                                            \
    k, k + 1, k + 2, k + 3, k + 4, k + 5, k + 6, k + 7, k + 8, k + 9, k + 10, k + 11, k + 12, \
        k + 13, k + 14, k + 15
#elif RG_VLEN == 8
#define RG_FROM(k) k, k + 1, k + 2, k + 3, k + 4, k + 5, k + 6, k + 7
#elif RG_VLEN == 4
#define RG_FROM(k) k, k + 1, k + 2, k + 3
#else
#define RG_FROM(k) k, k + 1
#endif

/* One and two lanes further than a, and one and two before b, where b follows a. */
RG_INLINE vreal vahead_one(vreal a, vreal b)
{
    return __builtin_shufflevector(a, b, RG_FROM(1));
}

RG_INLINE vreal vahead_two(vreal a, vreal b)
{
    return __builtin_shufflevector(a, b, RG_FROM(2));
}

RG_INLINE vreal vbehind_one(vreal a, vreal b)
{
    return __builtin_shufflevector(a, b, RG_FROM(RG_VLEN - 1));
}

RG_INLINE vreal vbehind_two(vreal a, vreal b)
{
    return __builtin_shufflevector(a, b, RG_FROM(RG_VLEN - 2));
}

/* Rows of a square become its columns. */
RG_INLINE void vturn(vreal rows[VLEN])
{
#pragma GCC unroll 4
    for (int step = 1; step < VLEN; step *= 2) {
        vreal next[VLEN];
#pragma GCC unroll 8
        for (int i = 0; i < VLEN / 2; i++) {
            next[2 * i] = __builtin_shufflevector(rows[i], rows[i + VLEN / 2], RG_ZIP(0));
            next[2 * i + 1] =
                __builtin_shufflevector(rows[i], rows[i + VLEN / 2], RG_ZIP(RG_VLEN / 2));
        }
#pragma GCC unroll 16
        for (int i = 0; i < VLEN; i++)
            rows[i] = next[i];
    }
}

RG_INLINE real vsum(vreal a)
{
#if RG_VLEN > 8
    a += __builtin_shufflevector(a, a, RG_XOR(8));
#endif
#if RG_VLEN > 4
    a += __builtin_shufflevector(a, a, RG_XOR(4));
#endif
#if RG_VLEN > 2
    a += __builtin_shufflevector(a, a, RG_XOR(2));
#endif
    a += __builtin_shufflevector(a, a, RG_XOR(1));
    return a[0];
}

RG_INLINE real vmax_lane(vreal a)
{
#if RG_VLEN > 8
    a = vmax(a, __builtin_shufflevector(a, a, RG_XOR(8)));
#endif
#if RG_VLEN > 4
    a = vmax(a, __builtin_shufflevector(a, a, RG_XOR(4)));
#endif
#if RG_VLEN > 2
    a = vmax(a, __builtin_shufflevector(a, a, RG_XOR(2)));
#endif
    a = vmax(a, __builtin_shufflevector(a, a, RG_XOR(1)));
    return a[0];
}

/* ---- 16-bit storage: exact, round to nearest even, NaN kept ---- */

#if !RG_REAL_F64
typedef uint16_t vhalf __attribute__((vector_size(2 * RG_VLEN)));

RG_INLINE vreal vreal_of_bf16(vhalf bits)
{
#if defined(__AVX512F__) /* gcc widens in two halves */
    return (vreal)_mm512_slli_epi32(_mm512_cvtepu16_epi32((__m256i)bits), 16);
#else
    return (vreal)(__builtin_convertvector(bits, vuint) << 16);
#endif
}

/* The upper 16 bits are those of the bf16; what stands below is to be cut off. */
RG_INLINE vuint vround_bf16(vreal a)
{
    const vuint bits = (vuint)a, rounded = bits + 0x7fff + (bits >> 16 & 1);
#if defined(__AVX512F__)
    const __mmask16 nan = _mm512_cmp_ps_mask((__m512)a, (__m512)a, _CMP_UNORD_Q);
    return (vuint)_mm512_mask_or_epi32((__m512i)rounded, nan, (__m512i)bits,
                                       _mm512_set1_epi32(0x400000));
#else
    return (vuint)vselect(a == a, (vreal)rounded, (vreal)(bits | 0x400000));
#endif
}

RG_INLINE vhalf vbf16_of_real(vreal a)
{
    return __builtin_convertvector(vround_bf16(a) >> 16, vhalf);
}

RG_INLINE vreal vreal_of_f16(vhalf bits)
{
#if defined(__AVX512F__)
    return (vreal)_mm512_cvtph_ps((__m256i)bits);
#elif defined(__F16C__)
    return (vreal)_mm256_cvtph_ps((__m128i)bits);
#else /* as rg_float_of_f16, which explains it */
    const vuint wide = __builtin_convertvector(bits, vuint);
    const vuint sign = (wide & 0x8000) << 16, rest = (wide & 0x7fff) << 13;
    const vuint nan = (vuint)(rest > 0x0f800000) & 0x400000;
    const vuint number = (vuint)((vreal)rest * vset((real)0x1p112));
    const vint special = rest >= 0x0f800000;
    return (vreal)(sign | (vuint)vselect(special, (vreal)(rest | 0x7f800000 | nan), (vreal)number));
#endif
}

RG_INLINE vhalf vf16_of_real(vreal a)
{
#if defined(__AVX512F__)
    return (vhalf)_mm512_cvtps_ph((__m512)a, _MM_FROUND_TO_NEAREST_INT);
#elif defined(__F16C__)
    return (vhalf)_mm256_cvtps_ph((__m256)a, _MM_FROUND_TO_NEAREST_INT);
#else /* as rg_f16_of_float */
    const vuint bits = (vuint)a, sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff;
    const vuint normal = ((size + 0xfff + (size >> 13 & 1)) >> 13) - (112 << 10);
    const vuint small = (vuint)((vreal)size + vset((real)0.5)) - 0x3f000000;
    const vuint nan = (size >> 13 & 0x3ff) | 0x7e00;
    vreal result = vselect(size < 0x38800000, (vreal)small, (vreal)normal);
    result = vselect(size >= 0x477ff000, (vreal)((vuint){ 0 } + 0x7c00), result);
    result = vselect(size > 0x7f800000, (vreal)nan, result);
    return __builtin_convertvector((vuint)result | sign, vhalf);
#endif
}
#endif

/* ---- loads and stores: elements i to i + n - 1 of an array of T, 0 < n <= VLEN ---- */

RG_INLINE real load_one(const void *data, int64_t i, const rg_dtype T)
{
#if RG_REAL_F64
    (void)T;
    return ((const double *)data)[i];
#else
    if (T == RG_F16)
        return rg_float_of_f16(((const uint16_t *)data)[i]);
    if (T == RG_BF16)
        return rg_float_of_bf16(((const uint16_t *)data)[i]);
    return ((const float *)data)[i];
#endif
}

RG_INLINE void store_one(void *data, int64_t i, const rg_dtype T, real a)
{
#if RG_REAL_F64
    (void)T;
    ((double *)data)[i] = a;
#else
    if (T == RG_F16)
        ((uint16_t *)data)[i] = rg_f16_of_float(a);
    else if (T == RG_BF16)
        ((uint16_t *)data)[i] = rg_bf16_of_float(a);
    else
        ((float *)data)[i] = a;
#endif
}

RG_INLINE vreal vload_full(const void *data, int64_t i, const rg_dtype T)
{
#if !RG_REAL_F64
    if (T != RG_F32) {
        vhalf half;
        memcpy(&half, (const uint16_t *)data + i, sizeof half);
        return T == RG_F16 ? vreal_of_f16(half) : vreal_of_bf16(half);
    }
#endif
    (void)T;
    vreal a;
    memcpy(&a, (const real *)data + i, sizeof a);
    return a;
}

RG_INLINE void vstore_full(void *data, int64_t i, const rg_dtype T, vreal a)
{
#if !RG_REAL_F64
    if (T != RG_F32) {
        const vhalf half = T == RG_F16 ? vf16_of_real(a) : vbf16_of_real(a);
        memcpy((uint16_t *)data + i, &half, sizeof half);
        return;
    }
#endif
    (void)T;
    memcpy((real *)data + i, &a, sizeof a);
}

/* Bytes that VLEN elements of T take, and the alignment that vstream asks for. */
RG_INLINE int vbytes(const rg_dtype T)
{
    return T == RG_F16 || T == RG_BF16 ? 2 * VLEN : RG_VECTOR_BYTES;
}

/* Elements to the next address that is aligned to RG_VECTOR_BYTES. */
RG_INLINE int vhead(const void *data, const rg_dtype T)
{
    return (int)(-(uintptr_t)data & (RG_VECTOR_BYTES - 1)) / (vbytes(T) / VLEN);
}

/* Stores past the cache, aligned to what they write. */
#if !RG_REAL_F64
RG_INLINE void vstream_half(uint16_t *to, vhalf half)
{
#if !defined(__x86_64__)
    memcpy(to, &half, sizeof half);
#elif RG_VLEN == 16
    _mm256_stream_si256((__m256i *)(void *)to, (__m256i)half);
#elif RG_VLEN == 8
    _mm_stream_si128((__m128i *)(void *)to, (__m128i)half);
#else
    long long bits;
    memcpy(&bits, &half, sizeof bits);
    _mm_stream_si64((long long *)(void *)to, bits);
#endif
}
#endif

RG_INLINE void vstream(void *data, int64_t i, const rg_dtype T, vreal a)
{
#if !RG_REAL_F64
    if (T != RG_F32) {
        vstream_half((uint16_t *)data + i, T == RG_F16 ? vf16_of_real(a) : vbf16_of_real(a));
        return;
    }
#endif
    (void)T;
    real *to = (real *)data + i;
#if !defined(__x86_64__)
    memcpy(to, &a, sizeof a);
#elif RG_VECTOR_BYTES == 64
    _mm512_stream_si512((void *)to, (__m512i)a);
#elif RG_VECTOR_BYTES == 32
    _mm256_stream_si256((__m256i *)(void *)to, (__m256i)a);
#else
    _mm_stream_si128((__m128i *)(void *)to, (__m128i)a);
#endif
}

/* ---- pairs: 2 VLEN elements at once ---- */

/* A pair is the first half and the second; for bf16, where the order does not matter
 * (`any_order`), the even and the odd elements, which a shift and a mask take apart and put
 * together again. */
typedef struct vpair {
    vreal a, b;
} vpair;

#if !RG_REAL_F64
/* Even elements a and odd elements b as bf16, side by side. A NaN is quiet (the result of
 * arithmetic) or was a bf16, so its upper half alone is one.
 *
 * The upper halves of all elements go up by 1 where the lower halves, plus 1 if the upper one is
 * odd, exceed one half, and where that does not turn a NaN over. */
RG_INLINE vuint vpack_bf16(vreal a, vreal b)
{
#if defined(__AVX512BW__)
    const __m512i x = (__m512i)a, y = (__m512i)b, upper = _mm512_set1_epi32((int)0xffff0000);
    const __m512i half = _mm512_set1_epi16((short)0x8000), one = _mm512_set1_epi16(1);
    const __m512i high = _mm512_ternarylogic_epi32(upper, y, _mm512_srli_epi32(x, 16), 0xca);
    const __m512i low = _mm512_ternarylogic_epi32(upper, _mm512_slli_epi32(y, 16), x, 0xca);
    const __m512i sum = _mm512_adds_epu16(low, _mm512_and_si512(high, one));
    const __m512i room = _mm512_ternarylogic_epi32(high, half, half, 0x03); /* ~(high | half) */
    const __m512i up = _mm512_min_epu16(_mm512_subs_epu16(sum, half), _mm512_min_epu16(room, one));
    return (vuint)_mm512_add_epi16(high, up);
#else
    return vround_bf16(a) >> 16 | (vround_bf16(b) & 0xffff0000);
#endif
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
        const vuint both = vpack_bf16(pair.a, pair.b);
        uint16_t *to = (uint16_t *)data + i;
        if (stream)
            vstream(to, 0, RG_F32, (vreal)both);
        else
            memcpy(to, &both, sizeof both);
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
 * them has zeros where bf16 is cut off, so it needs no care. */
RG_INLINE void vstore_sums(void *data, int64_t i, const rg_dtype T, vpair pair, const bool stream)
{
#if !RG_REAL_F64
    if (T == RG_BF16) {
#if defined(__AVX512BW__)
        const __m512i x = (__m512i)pair.a, y = (__m512i)pair.b;
        const __m512i upper = _mm512_set1_epi32((int)0xffff0000), one = _mm512_set1_epi16(1);
        const __m512i high = _mm512_ternarylogic_epi32(upper, y, _mm512_srli_epi32(x, 16), 0xca);
        const __m512i low = _mm512_ternarylogic_epi32(upper, _mm512_slli_epi32(y, 16), x, 0xca);
        const __m512i sum = _mm512_adds_epu16(low, _mm512_and_si512(high, one));
        const __mmask32 up = _mm512_cmpgt_epu16_mask(sum, _mm512_set1_epi16((short)0x8000));
        const vreal both = (vreal)_mm512_mask_add_epi16(high, up, high, one);
#else
        const vuint a = (vuint)pair.a + 0x7fff + ((vuint)pair.a >> 16 & 1);
        const vuint b = (vuint)pair.b + 0x7fff + ((vuint)pair.b >> 16 & 1);
        const vreal both = (vreal)(a >> 16 | (b & 0xffff0000));
#endif
        uint16_t *to = (uint16_t *)data + i;
        if (stream)
            vstream(to, 0, RG_F32, both);
        else
            memcpy(to, &both, sizeof both);
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

/* ---- bytes: small integers beside elements, VLEN of them ---- */

RG_INLINE vint vload_bytes(const uint8_t *data)
{
#if defined(__AVX512F__) && RG_REAL_F64
    return (vint)_mm512_cvtepu8_epi64(_mm_loadl_epi64((const __m128i *)(const void *)data));
#elif defined(__AVX512F__)
    return (vint)_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)data));
#elif defined(__AVX2__) && RG_REAL_F64
    int32_t bytes;
    memcpy(&bytes, data, sizeof bytes);
    return (vint)_mm256_cvtepu8_epi64(_mm_cvtsi32_si128(bytes));
#elif defined(__AVX2__)
    return (vint)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)data));
#elif defined(__SSE2__) && !RG_REAL_F64
    int32_t bytes;
    memcpy(&bytes, data, sizeof bytes);
    const __m128i none = _mm_setzero_si128();
    const __m128i words = _mm_unpacklo_epi8(_mm_cvtsi32_si128(bytes), none);
    return (vint)_mm_unpacklo_epi16(words, none);
#else
    vint lanes = { 0 };
    for (int k = 0; k < VLEN; k++)
        lanes[k] = data[k];
    return lanes;
#endif
}

RG_INLINE void vstore_bytes(uint8_t *data, vint a) /* 0 <= a < 256 */
{
#if defined(__AVX512F__) && RG_REAL_F64
    _mm_storel_epi64((__m128i *)(void *)data, _mm512_cvtepi64_epi8((__m512i)a));
#elif defined(__AVX512F__)
    _mm_storeu_si128((__m128i *)(void *)data, _mm512_cvtepi32_epi8((__m512i)a));
#elif defined(__AVX2__) && !RG_REAL_F64
    const __m128i low = _mm256_castsi256_si128((__m256i)a);
    const __m128i words = _mm_packs_epi32(low, _mm256_extracti128_si256((__m256i)a, 1));
    _mm_storel_epi64((__m128i *)(void *)data, _mm_packus_epi16(words, words));
#elif defined(__SSE2__) && !RG_REAL_F64
    const __m128i words = _mm_packs_epi32((__m128i)a, (__m128i)a);
    const int32_t bytes = _mm_cvtsi128_si32(_mm_packus_epi16(words, words));
    memcpy(data, &bytes, sizeof bytes);
#else
    for (int k = 0; k < VLEN; k++)
        data[k] = (uint8_t)a[k];
#endif
}

/* Elements of a pair in storage, for what needs no arithmetic: 0 where the byte that goes with an
 * element is not `value`. */
#if !RG_REAL_F64
typedef uint16_t vhalves __attribute__((vector_size(RG_VECTOR_BYTES)));

RG_INLINE vhalves vload_halves_where(const uint16_t *data, const uint8_t *bytes, uint8_t value)
{
#if defined(__AVX512F__)
    const __m256i flags = _mm256_loadu_si256((const __m256i *)(const void *)bytes);
    const __mmask32 keep = _mm256_cmpeq_epi8_mask(flags, _mm256_set1_epi8((char)value));
    return (vhalves)_mm512_maskz_loadu_epi16(keep, data);
#else
    vhalves a;
    memcpy(&a, data, sizeof a);
#if defined(__AVX2__)
    const __m128i flags = _mm_loadu_si128((const __m128i *)(const void *)bytes);
    const __m128i keep = _mm_cmpeq_epi8(flags, _mm_set1_epi8((char)value));
    return a & (vhalves)_mm256_cvtepi8_epi16(keep);
#elif defined(__SSE2__)
    const __m128i flags = _mm_loadl_epi64((const __m128i *)(const void *)bytes);
    const __m128i keep = _mm_cmpeq_epi8(flags, _mm_set1_epi8((char)value));
    return a & (vhalves)_mm_unpacklo_epi8(keep, keep);
#else
    for (int k = 0; k < 2 * VLEN; k++)
        a[k] = bytes[k] == value ? a[k] : 0;
    return a;
#endif
#endif
}
#endif

RG_INLINE vpair vload_pair_where(const void *data, int64_t i, const uint8_t *bytes, uint8_t value,
                                 const rg_dtype T)
{
#if !RG_REAL_F64
    if (T != RG_F32) {
        const vhalves kept = vload_halves_where((const uint16_t *)data + i, bytes, value);
        return vload_pair(&kept, 0, T, true);
    }
#endif
    const vpair p = vload_pair(data, i, T, true);
    const vint first = vload_bytes(bytes) == value, second = vload_bytes(bytes + VLEN) == value;
    return (vpair){ (vreal)(first & (vint)p.a), (vreal)(second & (vint)p.b) };
}

/* ---- less than a vector ---- */

/* Less than a vector: rare, so one copy for all storage types, called. */
RG_OUTLINE vreal vload_part(const void *data, int64_t i, int n, rg_dtype T)
{
#if defined(__AVX512F__) && RG_REAL_F64
    (void)T;
    return (vreal)_mm512_maskz_loadu_pd((__mmask8)((1u << n) - 1), (const double *)data + i);
#elif defined(__AVX512F__)
    const __mmask16 lanes = (__mmask16)((1u << n) - 1);
    if (T == RG_F32)
        return (vreal)_mm512_maskz_loadu_ps(lanes, (const float *)data + i);
    const vhalf half = (vhalf)_mm256_maskz_loadu_epi16(lanes, (const uint16_t *)data + i);
    return T == RG_F16 ? vreal_of_f16(half) : vreal_of_bf16(half);
#else
    real lanes[VLEN] = { 0 };
    for (int k = 0; k < n; k++)
        lanes[k] = load_one(data, i + k, T);
    return vload_full(lanes, 0, RG_REAL);
#endif
}

RG_OUTLINE void vstore_part(void *data, int64_t i, int n, rg_dtype T, vreal a)
{
#if defined(__AVX512F__) && RG_REAL_F64
    (void)T;
    _mm512_mask_storeu_pd((double *)data + i, (__mmask8)((1u << n) - 1), (__m512d)a);
#elif defined(__AVX512F__)
    const __mmask16 lanes = (__mmask16)((1u << n) - 1);
    if (T == RG_F32) {
        _mm512_mask_storeu_ps((float *)data + i, lanes, (__m512)a);
    } else {
        const vhalf half = T == RG_F16 ? vf16_of_real(a) : vbf16_of_real(a);
        _mm256_mask_storeu_epi16((uint16_t *)data + i, lanes, (__m256i)half);
    }
#else
    real lanes[VLEN];
    vstore_full(lanes, 0, RG_REAL, a);
    for (int k = 0; k < n; k++)
        store_one(data, i + k, T, lanes[k]);
#endif
}

/* Lanes from n on are 0. */
RG_INLINE vreal vload(const void *data, int64_t i, const int n, const rg_dtype T)
{
    return n == VLEN ? vload_full(data, i, T) : vload_part(data, i, n, T);
}

RG_INLINE void vstore(void *data, int64_t i, const int n, const rg_dtype T, vreal a)
{
    if (n == VLEN)
        vstore_full(data, i, T, a);
    else
        vstore_part(data, i, n, T, a);
}

/* The same for loops in which n < VLEN is usual, such as those over images of few channels: in
 * line, with masks, where the instruction set has them. */
RG_INLINE vreal vload_few(const void *data, int64_t i, int n, const rg_dtype T)
{
#if defined(__AVX512F__) && RG_REAL_F64
    (void)T;
    return (vreal)_mm512_maskz_loadu_pd((__mmask8)((1u << n) - 1), (const double *)data + i);
#elif defined(__AVX512F__)
    const __mmask16 lanes = (__mmask16)((1u << n) - 1);
    if (T == RG_F32)
        return (vreal)_mm512_maskz_loadu_ps(lanes, (const float *)data + i);
    const vhalf half = (vhalf)_mm256_maskz_loadu_epi16(lanes, (const uint16_t *)data + i);
    return T == RG_F16 ? vreal_of_f16(half) : vreal_of_bf16(half);
#else
    return vload(data, i, n, T);
#endif
}

RG_INLINE void vstore_few(void *data, int64_t i, int n, const rg_dtype T, vreal a)
{
#if defined(__AVX512F__) && RG_REAL_F64
    (void)T;
    _mm512_mask_storeu_pd((double *)data + i, (__mmask8)((1u << n) - 1), (__m512d)a);
#elif defined(__AVX512F__)
    const __mmask16 lanes = (__mmask16)((1u << n) - 1);
    if (T == RG_F32) {
        _mm512_mask_storeu_ps((float *)data + i, lanes, (__m512)a);
    } else {
        const vhalf half = T == RG_F16 ? vf16_of_real(a) : vbf16_of_real(a);
        _mm256_mask_storeu_epi16((uint16_t *)data + i, lanes, (__m256i)half);
    }
#else
    vstore(data, i, n, T, a);
#endif
}

RG_INLINE vint vload_bytes_few(const uint8_t *data, int n) /* lanes from n on: anything */
{
#if defined(__AVX512F__) && RG_REAL_F64
    return (vint)_mm512_cvtepu8_epi64(_mm_maskz_loadu_epi8((__mmask16)((1u << n) - 1), data));
#elif defined(__AVX512F__)
    return (vint)_mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8((__mmask16)((1u << n) - 1), data));
#else
    if (n == VLEN)
        return vload_bytes(data);
    uint8_t bytes[VLEN] = { 0 };
    for (int k = 0; k < n; k++)
        bytes[k] = data[k];
    return vload_bytes(bytes);
#endif
}

RG_INLINE void vstore_bytes_few(uint8_t *data, int n, vint a) /* 0 <= a < 256 */
{
#if defined(__AVX512F__) && RG_REAL_F64
    _mm_mask_storeu_epi8(data, (__mmask16)((1u << n) - 1), _mm512_cvtepi64_epi8((__m512i)a));
#elif defined(__AVX512F__)
    _mm_mask_storeu_epi8(data, (__mmask16)((1u << n) - 1), _mm512_cvtepi32_epi8((__m512i)a));
#else
    if (n == VLEN) {
        vstore_bytes(data, a);
        return;
    }
    uint8_t bytes[VLEN];
    vstore_bytes(bytes, a);
    for (int k = 0; k < n; k++)
        data[k] = bytes[k];
#endif
}

/* VLEN elements, or n, that stand `step` apart. */
RG_OUTLINE vreal vgather(const void *data, int64_t i, int64_t step, int n, rg_dtype T)
{
    real lanes[VLEN] = { 0 };
    for (int k = 0; k < n; k++)
        lanes[k] = load_one(data, (i + k) * step, T);
    return vload_full(lanes, 0, RG_REAL);
}

RG_OUTLINE void vscatter(void *data, int64_t i, int64_t step, int n, rg_dtype T, vreal a)
{
    real lanes[VLEN];
    vstore_full(lanes, 0, RG_REAL, a);
    for (int k = 0; k < n; k++)
        store_one(data, (i + k) * step, T, lanes[k]);
}

#endif
