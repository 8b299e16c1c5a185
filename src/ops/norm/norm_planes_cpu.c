/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The loops of normalization over memory in planes of one channel each (NCHW): the same as in
 * norm_rows_cpu.c, to the last bit.
 *
 * A sum goes over the rows (pixels) of a channel one after the other in pieces, so squares of
 * VLEN channels and VLEN pixels are transposed in registers, and then VLEN channels are summed side
 * by side. y and dx need no sums: they are computed along the planes. */
#include "ops/norm/norm_cpu.h"

/* ---- pixels of VLEN channels ---- */

/* Pixels that are taken at once, at most. */
enum { SPAN = 2 * VLEN };

/* Neighbours of n channels, in tensors whose channels are so many bytes apart. */
typedef struct plane_span {
    const char *from[2];
    int64_t step[2];
    int64_t ahead[2]; /* bytes to pixels that come later */
    int n, pixels;
} plane_span;

/* Neighbours from `row` on. */
RG_INLINE int64_t plane_run(const channel_block *b, int64_t row)
{
    const rg_walk *rows = &b->s->rows;
    const int64_t length = rows->dims[rows->rank - 1];
    return least(length - (rows->rank == 1 ? row : row % length), b->end - row);
}

/* Vector j holds pixel j of n channels, for 0 <= j < pixels; the other lanes are of no account. */
RG_OUTLINE void load_some_pixels(vreal to[SPAN], const plane_span *p, int t, rg_dtype T)
{
    for (int first = 0; first < p->pixels; first += VLEN) {
        vreal square[VLEN];
        for (int i = 0; i < VLEN; i++) {
            const char *from = p->from[t] + (i < p->n ? i : p->n - 1) * p->step[t];
            RG_WITH_TYPE(T, U, square[i] = vload(from, first, vlanes_left(p->pixels - first), U));
        }
        vtranspose(square);
        memcpy(&to[first], square, sizeof square);
    }
}

/* Asks for pixels that come later, because so many planes side by side are more than a processor
 * follows by itself. */
enum { AHEAD_BYTES = 768 };

RG_INLINE void fetch_pixels(const plane_span *p, const int t, const rg_dtype T)
{
    enum { LINE = 64 }; /* bytes */
    const int bytes = 2 * vbytes(T);
    for (int i = 0; i < VLEN; i++) {
        const uintptr_t from = (uintptr_t)p->from[t] + (uintptr_t)(i * p->step[t] + p->ahead[t]);
        for (int line = 0; line < bytes; line += LINE)
            __builtin_prefetch((const void *)(from + (uintptr_t)line), 0, 2);
    }
}

RG_INLINE void load_pixels(vreal to[SPAN], const plane_span *p, const int t, const rg_dtype T)
{
    if (p->n < VLEN || p->pixels < SPAN) {
        load_some_pixels(to, p, t, T);
        return;
    }
    fetch_pixels(p, t, T);
#if !RG_REAL_F64
    if (T == RG_BF16) { /* two pixels are one number, which a shift and a mask take apart */
        vreal both[VLEN];
        for (int i = 0; i < VLEN; i++)
            both[i] = vload_full(p->from[t] + i * p->step[t], 0, RG_F32);
        vtranspose(both);
        for (int i = 0; i < VLEN; i++) {
            to[2 * i] = (vreal)((vuint)both[i] << 16);
            to[2 * i + 1] = (vreal)((vuint)both[i] & 0xffff0000);
        }
        return;
    }
#endif
    for (int first = 0; first < SPAN; first += VLEN) {
        for (int i = 0; i < VLEN; i++)
            to[first + i] = vload_full(p->from[t] + i * p->step[t], first, T);
        vtranspose(&to[first]);
    }
}

/* Bytes from a row to the end of its plane, and from there to what is read after it: the plane of
 * the next image, or, of the last one, of the next channels. */
typedef struct plane_end {
    int64_t left, jump[2];
} plane_end;

/* Of row `row`, at r, and channels from c on. */
RG_OUTLINE plane_end end_of_plane(const channel_block *b, const void *const data[], int tensors,
                                  int64_t row, int64_t c, const channel_run *r, rg_dtype T)
{
    const rg_channels *s = b->s;
    const int64_t element = vbytes(T) / VLEN, length = s->rows.dims[s->rows.rank - 1];
    const int64_t left = length - (s->rows.rank == 1 ? row : row % length);
    const bool ends = row + left == s->rows.count;
    plane_end e = { .left = left * element };
    if (ends && b->first + c + VLEN >= s->channels)
        return e;
    const channel_run next =
        run_at(s, data, tensors, false, ends ? 0 : row + left, b->first + c + (ends ? VLEN : 0), T);
    for (int t = 0; t < tensors; t++)
        e.jump[t] = next.in[t] - r->in[t] - e.left;
    return e;
}

/* ---- sums ---- */

/* What a pixel adds to the sums of its channels: `a`, and the product of both. */
typedef struct plane_terms {
    vreal a, b;
} plane_terms;
typedef plane_terms plane_formula(const void *context, int64_t column, vreal first, vreal second,
                                  const int variant);

/* Sums of a piece, and of the pieces before. The formula, what it is of, and the variant are
 * constants wherever they are passed. */
typedef struct plane_sums {
    plane_formula *formula;
    const void *context;
    real *sum, *product, *all, *all_products;
    int tensors, variant;
} plane_sums;

/* Adds pixels to the sums of columns from c on, the first one to those of `chain`. */
RG_INLINE void add_pixels(const plane_sums to, const vreal first[], const vreal second[],
                          const channel_block *b, const plane_span *p, int64_t c, int64_t chain)
{
    const int64_t chains = b->s->chains;
    if (chains == 1) {
        vreal sum = vload_full(to.sum, c, RG_REAL), product = vload_full(to.product, c, RG_REAL);
        for (int j = 0; j < p->pixels; j++) {
            const plane_terms t = to.formula(to.context, c, first[j], second[j], to.variant);
            sum += t.a;
            product = vfma(t.a, t.b, product);
        }
        vstore_full(to.sum, c, RG_REAL, sum);
        vstore_full(to.product, c, RG_REAL, product);
        return;
    }
    for (int j = 0; j < p->pixels; j++) {
        const int64_t column = chain * b->width + c;
        plane_terms t = to.formula(to.context, column, first[j], second[j], to.variant);
        t.a = vkeep(t.a, p->n, 0); /* columns after the n belong to the next chain */
        t.b = vkeep(t.b, p->n, 0);
        vstore_full(to.sum, column, RG_REAL, vload_full(to.sum, column, RG_REAL) + t.a);
        vstore_full(to.product, column, RG_REAL,
                    vfma(t.a, t.b, vload_full(to.product, column, RG_REAL)));
        chain = chain + 1 < chains ? chain + 1 : 0;
    }
}

/* total += sum, sum = 0, for n columns of each chain */
RG_INLINE void end_columns(real *total, real *sum, const channel_block *b, int64_t c, int n)
{
    for (int64_t chain = 0; chain < b->s->chains; chain++) {
        const int64_t column = chain * b->width + c;
        const vreal value = vload_full(sum, column, RG_REAL);
        vstore_full(total, column, RG_REAL,
                    vload_full(total, column, RG_REAL) + vkeep(value, n, 0));
        vstore_full(sum, column, RG_REAL, vselect(vlanes() < (intr)n, vset(0), value));
    }
}

/* All rows of a block, for the columns of VLEN channels from c on. */
RG_INLINE void sum_planes(const plane_sums to, const channel_block *b, const void *const data[],
                          int64_t c, const rg_dtype T)
{
    const rg_channels *s = b->s;
    const int tensors = to.tensors;
    const int64_t piece = CHANNEL_PIECE * s->chains, element = vbytes(T) / VLEN;
    plane_span p = { .n = vlanes_left(b->width - c) };
    for (int t = 0; t < tensors; t++)
        p.step[t] = s->step[t] * element;
    int64_t run = 0;
    channel_run r = { .dense = false };
    plane_end after = { 0 };
    for (int64_t row = b->begin, at_run = 0; row < b->end; row += p.pixels, at_run += p.pixels) {
        if (at_run == run) {
            run = plane_run(b, row);
            r = run_at(s, data, tensors, false, row, b->first + c, T);
            after = end_of_plane(b, data, tensors, row, c, &r, T);
            at_run = 0;
        }
        const int64_t done = (row - b->begin) % piece;
        p.pixels = (int)least(least(SPAN, run - at_run), piece - done);
        vreal pixels[2][SPAN];
        for (int t = 0; t < tensors; t++) {
            p.from[t] = at(r.in[t], at_run, T);
            p.ahead[t] = AHEAD_BYTES;
            if (at_run * element + AHEAD_BYTES >= after.left)
                p.ahead[t] += after.jump[t];
            load_pixels(pixels[t], &p, t, T);
        }
        add_pixels(to, pixels[0], pixels[tensors - 1], b, &p, c, done % s->chains);
        if (done + p.pixels == piece || row + p.pixels == b->end) {
            end_columns(to.all, to.sum, b, c, p.n);
            end_columns(to.all_products, to.product, b, c, p.n);
        }
    }
}

RG_FORMULA plane_terms parts_terms(const void *context, int64_t column, vreal x, vreal same,
                                   const int variant)
{
    (void)same, (void)variant;
    const vreal d = x - vload_full(((const norm_parts *)context)->pivot, column, RG_REAL);
    return (plane_terms){ d, d };
}

static void sum_parts(norm_parts *p, const channel_block *b, const void *x)
{
    const plane_sums to = { parts_terms,    p, p->sum,    p->squares, p->all,
                            p->all_squares, 1, NORM_PLAIN };
    const void *const data[] = { x };
    start_parts(p, b);
    for (int64_t c = 0; c < b->width; c += VLEN) {
        choose_pivots(p, b, x, c);
        RG_WITH_TYPE(b->dtype, U, sum_planes(to, b, data, c, U));
    }
}

RG_FORMULA plane_terms gradient_terms(const void *context, int64_t column, vreal dy, vreal x,
                                      const int variant)
{
    const norm_columns *k = context;
    const norm_numbers m = numbers_at(k, column);
    return (plane_terms){ through_neuron(k, &m, dy, x, variant), x - m.mean };
}

/* The columns of VLEN channels from c on. */
RG_INLINE void sum_gradient_planes(norm_columns *k, const channel_block *b,
                                   const void *const data[], int64_t c, const int variant)
{
    const plane_sums to = { gradient_terms,  k, k->sum, k->product, k->all,
                            k->all_products, 2, variant };
    RG_WITH_TYPE(b->dtype, U, sum_planes(to, b, data, c, U));
}

static void sum_gradient(norm_columns *k, const channel_block *b, const void *const data[])
{
    const int variant = variant_of(k);
    start_sums(k, b);
    for (int64_t c = 0; c < b->width; c += VLEN) {
        if (variant == NORM_PLAIN)
            sum_gradient_planes(k, b, data, c, NORM_PLAIN);
        else if (variant == NORM_RELU)
            sum_gradient_planes(k, b, data, c, NORM_RELU);
        else
            sum_gradient_planes(k, b, data, c, NORM_OTHER);
    }
}

/* ---- y and dx ---- */

/* Those of one channel. */
typedef struct plane_numbers {
    norm_numbers m;
    const norm_columns *columns;
} plane_numbers;

RG_INLINE plane_numbers plane_numbers_at(const norm_columns *k, int64_t c)
{
    return (plane_numbers){ { vset(k->mean[c]), vset(k->scale[c]), vset(k->shift[c]),
                              vset(k->weight[c]), vset(k->offset[c]), vset(k->plus[c]) },
                            k };
}

/* Neighbours of one plane, by pairs of vectors as long as these are whole; adds nothing to what out
 * holds. */
RG_INLINE void plane_sweep(rg_formula *formula, const plane_numbers *k, const sweep_data d,
                           int64_t count, const rg_dtype T)
{
    int64_t i = d.stream ? sweep_head(formula, k, d, count, T, T) : 0;
    for (; i + SPAN <= count; i += SPAN) {
        const vpair x = vload_pair(d.a, i, T, true), y = vload_pair(d.b, i, T, true);
        vstore_sums(d.out, i, T, (vpair){ formula(k, x.a, y.a), formula(k, x.b, y.b) }, d.stream);
    }
    for (; i < count; i += VLEN)
        sweep_one(formula, k, d, i, vlanes_left(count - i), T, T);
}

typedef void plane_sweep_any(const plane_numbers *k, const sweep_data *d, int64_t count,
                             rg_dtype T);

/* name_y, name_dx, and their loops. */
#define PLANE_SWEEPS(name, variant, sweep_of)                                                     \
    RG_FORMULA vreal name##_y(const void *numbers, vreal x, vreal same)                           \
    {                                                                                             \
        const plane_numbers *k = numbers;                                                         \
        (void)same;                                                                               \
        return y_of(k->columns, &k->m, x, variant);                                               \
    }                                                                                             \
    RG_FORMULA vreal name##_dx(const void *numbers, vreal dy, vreal x)                            \
    {                                                                                             \
        const plane_numbers *k = numbers;                                                         \
        return dx_of(k->columns, &k->m, dy, x, variant);                                          \
    }                                                                                             \
    RG_OUTLINE void sweep_##name##_y(const plane_numbers *k, const sweep_data *d, int64_t count,  \
                                     rg_dtype T)                                                  \
    {                                                                                             \
        const plane_numbers own = *k; /* which no store can change */                             \
        RG_WITH_TYPE(T, U, sweep_of(name##_y, &own, *d, count, U));                               \
    }                                                                                             \
    RG_OUTLINE void sweep_##name##_dx(const plane_numbers *k, const sweep_data *d, int64_t count, \
                                      rg_dtype T)                                                 \
    {                                                                                             \
        const plane_numbers own = *k;                                                             \
        RG_WITH_TYPE(T, U, sweep_of(name##_dx, &own, *d, count, U));                              \
    }

RG_INLINE void other_sweep(rg_formula *formula, const plane_numbers *k, const sweep_data d,
                           int64_t count, const rg_dtype T)
{
    sweep(formula, k, d, count, T, T);
}

PLANE_SWEEPS(plain, NORM_PLAIN, plane_sweep)
PLANE_SWEEPS(relu, NORM_RELU, plane_sweep)
PLANE_SWEEPS(other, NORM_OTHER, other_sweep)

/* All planes of a block; data[] holds what is read, and then what is written. */
static void each_plane(plane_sweep_any *sweep_any_run, const norm_columns *k,
                       const channel_block *b, const void *const data[], int tensors)
{
    for (int64_t c = 0; c < b->width; c++) {
        const plane_numbers n = plane_numbers_at(k, c);
        for (int64_t row = b->begin, run; row < b->end; row += run) {
            const channel_run r = run_at(b->s, data, tensors, true, row, b->first + c, b->dtype);
            run = plane_run(b, row);
            const sweep_data d = { r.in[0], r.in[tensors - 2], r.out, k->add, b->stream };
            sweep_any_run(&n, &d, run, b->dtype);
        }
    }
}

static void forward(norm_columns *k, const channel_block *b, const void *const data[])
{
    static plane_sweep_any *const sweeps[] = {
        [NORM_PLAIN] = sweep_plain_y, [NORM_RELU] = sweep_relu_y, [NORM_OTHER] = sweep_other_y
    };
    each_plane(sweeps[variant_of(k)], k, b, data, 2);
}

static void gradient(norm_columns *k, const channel_block *b, const void *const data[])
{
    static plane_sweep_any *const sweeps[] = {
        [NORM_PLAIN] = sweep_plain_dx, [NORM_RELU] = sweep_relu_dx, [NORM_OTHER] = sweep_other_dx
    };
    each_plane(sweeps[variant_of(k)], k, b, data, 3);
}

const rg_norm_loops RG_TABLE(norm_planes) = { sum_parts, forward, sum_gradient, gradient };
