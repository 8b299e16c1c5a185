/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* AVX512-BF16 for contract_pairs.h: sums become bf16 by its own conversion. */
#include "backend/cpu/bf16_unit.h"
#include "ops/contract/contract_pairs.h"

#if RG_HAVE_BF16
#include "ops/contract/contract_bf16_round.h"

enum { LANES = 16 };

/* As neuron_relu with a = 0: NaN stays. */
INLINE __m512 finish(__m512 sum, __m512 bias, const bool has_bias, const bool relu)
{
    if (has_bias)
        sum = _mm512_add_ps(sum, bias);
    return relu ? _mm512_max_ps(_mm512_setzero_ps(), sum) : sum;
}

/* One vector or two of them in a row. A masked store is slow, so that whole vectors have none. */
INLINE void end_rows(const rg_bf16_results *r, const bool two, const bool has_bias, const bool relu)
{
    const int left = (int)r->columns - (two ? LANES : 0);
    const __mmask16 last = (__mmask16)((1u << left) - 1);
    const __mmask16 first = two ? (__mmask16)0xffff : last;
    const __mmask32 mask = two ? (__mmask32)last << LANES | 0xffff : last;
    const int64_t step = r->to_step, sums_step = r->sums_step;
    const bool full = left == LANES;
    const bool stream = two && full && r->stream && (uintptr_t)r->to % 64 == 0 && step % 32 == 0;
    const __m512 zero = _mm512_setzero_ps();
    const __m512 b0 = has_bias ? _mm512_maskz_loadu_ps(first, r->bias) : zero;
    const __m512 b1 = has_bias && two ? _mm512_maskz_loadu_ps(last, r->bias + LANES) : zero;
    const float *sums = r->sums;
    uint16_t *to = r->to;
    for (int64_t i = r->rows; i > 0; i--, sums += sums_step, to += step) {
        const __m512 low = finish(_mm512_maskz_loadu_ps(first, sums), b0, has_bias, relu);
        if (!two) {
            const __m256i half = round_one(low);
            if (full)
                _mm256_storeu_si256((void *)to, half);
            else
                _mm512_mask_storeu_epi16(to, mask, _mm512_castsi256_si512(half));
            continue;
        }
        const __m512 high = finish(_mm512_maskz_loadu_ps(last, sums + LANES), b1, has_bias, relu);
        const __m512i all = round_two(low, high);
        if (stream)
            _mm512_stream_si512((void *)to, all);
        else if (full)
            _mm512_storeu_si512(to, all);
        else
            _mm512_mask_storeu_epi16(to, mask, all);
    }
}

bool rg_bf16_end(const rg_bf16_results *r)
{
    if (!rg_bf16_converts())
        return false;
    const bool two = r->columns > LANES;
    if (r->bias != NULL && r->relu)
        two ? end_rows(r, true, true, true) : end_rows(r, false, true, true);
    else if (r->bias != NULL)
        two ? end_rows(r, true, true, false) : end_rows(r, false, true, false);
    else if (r->relu)
        two ? end_rows(r, true, false, true) : end_rows(r, false, false, true);
    else
        two ? end_rows(r, true, false, false) : end_rows(r, false, false, false);
    return true;
}

#else

bool rg_bf16_end(const rg_bf16_results *r)
{
    (void)r;
    return false;
}

#endif
