/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Group normalization where every image is one row: statistics of a group, and y. */
#include "ops/group_norm/group_norm_rows_cpu.h"

RG_INLINE vreal row_y(const group_rows *k, const group_row *r, vreal x, vreal gamma, vreal beta,
                      const int variant)
{
    return norm_neuron(k->neuron, vfma(row_xh(r, x), gamma, beta), variant);
}

RG_INLINE void row_forward_step(const group_rows *k, const group_row *r, row_sums *q,
                                channel_pair p, const rg_dtype T)
{
    (void)q;
    const vpair gamma = row_gamma(k, p, T), beta = row_beta(k, p, T);
    const vpair x = row_load(k, r->x, k->x_step, p, T);
    row_ahead(k, r->x, p, T);
    const vpair y = { row_y(k, r, x.a, gamma.a, beta.a, p.variant),
                      row_y(k, r, x.b, gamma.b, beta.b, p.variant) };
    row_store(k, r, p, T, y);
}
ROW_REST(row_forward)

/* The addresses of group `group` of an image. */
RG_INLINE void place_forward(const rg_group_norm_args *k, const group_rows *all, group_row *r,
                             int64_t image, int64_t group, const rg_dtype T)
{
    const rg_channels *s = &k->shape.channels;
    const int64_t c = group * all->count;
    r->x = at(image_at(k->x, s, 0, image, T), c * all->x_step, T);
    r->out = (char *)(uintptr_t)at(image_at(k->y, s, 1, image, T), c * all->out_step, T);
    r->pivot = middle_element(all, r, T);
}

/* Its statistics, which are kept; `to` is its number. */
RG_INLINE void end_statistics(const rg_group_norm_args *k, const group_rows *all, group_row *r,
                              const row_sums *q, int64_t to)
{
    end_moments(all, r, q, k->shape.epsilon);
    ((real *)k->mean)[to] = r->mean;
    ((real *)k->rest)[to] = r->rest;
    ((real *)k->s)[to] = r->s;
    set_shift(r);
}

/* Groups first to last - 1, perhaps none. */
RG_INLINE void fused_forward(const rg_group_norm_args *k, group_rows *all, row_tables *tables,
                             int64_t first, int64_t last, const rg_dtype T)
{
    const int64_t groups = k->shape.groups;
    group_row r[2] = { 0 };
    all->ahead = 2 * all->count;
    for (int64_t i = first - 1; first < last && i < last;
         i++) { /* prologue: no row to finish yet */
        const group_row *const now = &r[i & 1];
        group_row *const next = &r[~i & 1];
        if (i + 1 < last)
            place_forward(k, all, next, (i + 1) / groups, (i + 1) % groups, T);
        else
            *next = *now; /* no next row: the sums are discarded */
        row_sums q;
        if (i >= first) {
            find_parameters(all, tables, k->gamma, k->beta, i % groups * all->count, T);
            q = row_fused(row_forward_step, row_forward_rest, row_moments_step, row_moments_rest,
                          all, (const group_row *const[]){ now, next }, T,
                          k->shape.stream && row_aligned(now));
        } else {
            q = row_moments_total(all, next, T);
        }
        if (i + 1 < last)
            end_statistics(k, all, next, &q, i + 1);
    }
}

/* Groups of one unit after the other take turns at each step: of short rows the end of the
 * statistics, a chain of scalar operations, would take longer than the elements. */
enum { TURNS = 8, TURN_BYTES = 8192 };

/* Groups first to last - 1, at most TURNS. */
RG_INLINE void forward_turns(const rg_group_norm_args *k, group_rows *all, row_tables *tables,
                             int64_t first, int64_t last, const rg_dtype T)
{
    const int64_t groups = k->shape.groups;
    group_row r[TURNS];
    row_sums q[TURNS], unused = { 0 };
    for (int64_t i = first; i < last; i++) {
        place_forward(k, all, &r[i - first], i / groups, i % groups, T);
        q[i - first] = row_moments_total(all, &r[i - first], T);
    }
    for (int64_t i = first; i < last; i++)
        end_statistics(k, all, &r[i - first], &q[i - first], i);
    for (int64_t i = first; i < last; i++) {
        const group_row *row = &r[i - first];
        find_parameters(all, tables, k->gamma, k->beta, i % groups * all->count, T);
        const row_range range = { 0, all->count, k->shape.stream && row_aligned(row) };
        row_elements(row_forward_step, row_forward_rest, 2, all, row, &unused, range, T);
    }
}

RG_INLINE void rows_forward(const rg_group_norm_args *k, int64_t begin, int64_t end,
                            const rg_dtype T)
{
    const rg_channels *s = &k->shape.channels;
    const int64_t groups = k->shape.groups;
    norm_columns neuron;
    row_tables tables;
    group_rows all = rows_of(&k->shape, &neuron, false, &tables);
    all.x_step = s->step[0];
    all.out_step = s->step[1];
    all.ahead = all.count;
    const int64_t first = begin * k->shape.part * groups;
    const int64_t last = least(end * k->shape.part, s->images.count) * groups;
    if (are_fused(&all, T)) {
        fused_forward(k, &all, &tables, first, last, T);
        return;
    }
    const int64_t fit = TURN_BYTES / (all.count * (vbytes(T) / VLEN));
    const int64_t turns = fit < 1 ? 1 : least(fit, TURNS);
    if (groups == 1) /* not those of the next turns: their statistics would wait for memory */
        all.ahead = 2 * turns * all.count;
    for (int64_t i = first; i < last; i += turns)
        forward_turns(k, &all, &tables, i, least(last, i + turns), T);
}

RG_KERNEL(rows_forward, rg_group_norm_args)

RG_CPU_TABLE(group_norm_rows_forward, RG_GROUP_NORM_KERNELS) = {
    [RG_GROUP_NORM_ROWS] = RG_ROW(rows_forward),
};
