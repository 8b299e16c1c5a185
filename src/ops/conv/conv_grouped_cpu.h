/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Groups of few channels on the CPU, see conv_grouped.h: the source is spread first, as dense
 * reals; from there on only the last loop depends on T. */
#ifndef RG_OPS_CONV_GROUPED_CPU_H
#define RG_OPS_CONV_GROUPED_CPU_H

#include "backend/cpu/thread_pool.h"
#include "ops/conv/conv_depthwise_cpu.h"
#include "ops/conv/conv_grouped.h"

/* VLEN lanes from some lane on: the vectors of the source that they take, and which lane takes
 * what of them with each pick. */
typedef struct grouped_lanes {
    int64_t base; /* the first channel */
    int vectors, n[RG_CONV_GROUPED_MOST];
    vint index[RG_CONV_GROUPED_MOST];
} grouped_lanes;

/* Lanes from c on; groups have `wide` of them, and `picks` channels in the source. */
RG_OUTLINE grouped_lanes find_lanes(int64_t c, int64_t groups, int64_t wide, int64_t picks)
{
    const int64_t count = least(VLEN, groups * wide - c), first = c / wide;
    const int64_t channels = ((c + count - 1) / wide - first + 1) * picks;
    grouped_lanes v = { .base = first * picks, .vectors = (int)((channels + VLEN - 1) / VLEN) };
    for (int k = 0; k < v.vectors; k++)
        v.n[k] = vlanes_left(groups * picks - v.base - k * VLEN);
    for (int64_t i = 0; i < picks; i++) {
        v.index[i] = (vint){ 0 };
        for (int64_t lane = 0; lane < count; lane++)
            v.index[i][lane] = (intr)((c + lane) / wide * picks + i - v.base);
    }
    return v;
}

/* to[pixel][pick] = vectors of lanes, from pixels `pixel` elements apart. */
RG_INLINE void spread_pixels(const grouped_lanes *v, const char *from, int64_t pixel, int64_t step,
                             int64_t count, int64_t picks, real *to, const rg_dtype T)
{
    const int64_t next = v->vectors * VLEN * step; /* what the next lanes will want */
    const int last = v->vectors - 1;
    for (int64_t j = 0; j < count; j++, to += picks * VLEN) {
        vreal x[RG_CONV_GROUPED_MOST];
        const char *const at_ = at(from, j * pixel, T);
        __builtin_prefetch(at(at_, next, T), 0, 2);
        if (last == 0 && step == 1 && v->n[0] == VLEN) {
            const vreal one = vload_full(at_, 0, T);
            for (int64_t i = 0; i < picks; i++)
                vstore_full(to, i * VLEN, RG_REAL, vpick(one, v->index[i]));
            continue;
        }
        for (int k = 0; k <= last; k++)
            x[k] = step == 1 ? vload_partial(at_, k * VLEN, v->n[k], T)
                             : vgather(at(at_, k * VLEN * step, T), 0, step, v->n[k], T);
        for (int64_t i = 0; i < picks; i++) {
            vreal picked = vpick(x[0], v->index[i]);
            for (int k = 1; k <= last; k++)
                picked = vselect(v->index[i] >= (intr)(k * VLEN), vpick(x[k], v->index[i]), picked);
            vstore_full(to, i * VLEN, RG_REAL, picked);
        }
    }
}

RG_OUTLINE void spread_row(const grouped_lanes *v, const void *from, int64_t first,
                           const int64_t step[4], int64_t count, int64_t picks, real *to,
                           rg_dtype T)
{
    first += v->base * step[3];
#if !RG_REAL_F64
    if (T == RG_F16)
        spread_pixels(v, at(from, first, RG_F16), step[2], step[3], count, picks, to, RG_F16);
    else if (T == RG_BF16)
        spread_pixels(v, at(from, first, RG_BF16), step[2], step[3], count, picks, to, RG_BF16);
    else
#endif
        spread_pixels(v, at(from, first, RG_REAL), step[2], step[3], count, picks, to, RG_REAL);
    (void)T;
}

/* Rows of the source that rows begin <= r < end of the result take; none: first = last. */
RG_INLINE void rows_of_source(const rg_conv_axis *a, bool data, int64_t begin, int64_t end,
                              int64_t *first, int64_t *last)
{
    const int64_t reach = (a->window - 1) * a->dilation, all = data ? a->count : a->size;
    *first = data ? floor_div(begin + a->before - reach, a->stride) : begin * a->stride - a->before;
    *last = data ? floor_div(end - 1 + a->before, a->stride) + 1
                 : (end - 1) * a->stride - a->before + reach + 1;
    *first = *first < 0 ? 0 : least(*first, all);
    *last = *last < *first ? *first : least(*last, all);
}

/* Where lane c of so many weights stands; further weights are RG_CONV_GROUPED_BLOCK apart. */
RG_INLINE int64_t grouped_at(int64_t c, int64_t weights)
{
    return c / RG_CONV_GROUPED_BLOCK * weights * RG_CONV_GROUPED_BLOCK + c % RG_CONV_GROUPED_BLOCK;
}

/* VLEN lanes of some rows. */
typedef struct grouped_sums {
    const real *in, *w; /* spread rows from `first` on; weights of the lanes */
    real *sums;         /* vectors: of results, or of weights */
    double *totals;     /* of weights, where a row is longer than a run */
    int64_t first, columns, picks;
    int64_t window; /* taps of a row */
    int64_t stride; /* from result to result, in columns of the source */
} grouped_sums;

#endif
