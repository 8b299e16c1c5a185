/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Local response normalisation on the CPU. Windows of 5 channels, two on either side: neighbours
 * come by shuffles, and a pixel is gone through once. Others up to RG_SPAN_DIRECT: squares of a
 * group of pixels are written with zeros around each pixel, and summed by loads at shifted
 * addresses; a group at a time, so that what is loaded has left the store buffer. Wider ones: the
 * lanes of a line are pixels, and channels follow one another as positions, see windows_cpu.h. */
#include "ops/lrn/lrn.h"
#include "ops/window_norm/windows_cpu.h"
#include "ops/window_norm/power_cpu.h"

/* n channels from i on of a pixel. */
RG_INLINE vreal load_channels(const void *pixel, int64_t i, int64_t step, const int n, bool dense,
                              const rg_dtype T)
{
    return dense ? vload(pixel, i, n, T) : vgather(pixel, i, step, n, T);
}

/* Where a result goes. */
typedef struct output {
    char *pixel;
    int64_t step;
    bool dense, add, stream;
} output;

RG_INLINE output output_at(const rg_lrn_shape *s, char *pixel, int tensor, const rg_dtype T)
{
    const bool aligned = s->span.size % VLEN == 0 && (uintptr_t)pixel % (uintptr_t)vbytes(T) == 0;
    return (output){ pixel, s->step[tensor], s->dense, s->add, s->stream && s->dense && aligned };
}

RG_INLINE void store_channels(const output *to, int64_t i, const int n, const rg_dtype T,
                              vreal value)
{
    if (to->add)
        value += load_channels(to->pixel, i, to->step, n, to->dense, T);
    if (to->stream)
        vstream(to->pixel, i, T, value);
    else if (to->dense)
        vstore(to->pixel, i, n, T, value);
    else
        vscatter(to->pixel, i, to->step, n, T, value);
}

/* What is the same for all pixels. */
typedef struct narrow {
    power_constants c;
    int64_t lead, inner, pitch; /* reals; see lrn.h */
    int64_t channels, before, after;
    bool dense;
} narrow;

RG_INLINE narrow narrow_of(const rg_lrn_shape *s)
{
    narrow k = { .c = power_constants_of(&s->numbers),
                 .lead = rg_lrn_lead(&s->span),
                 .inner = rg_lrn_round(s->span.size),
                 .channels = s->span.size,
                 .before = s->span.before,
                 .after = s->span.after,
                 .dense = s->dense };
    k.pitch = k.inner + 2 * k.lead;
    return k;
}

RG_INLINE void square_pixel(const narrow *k, const char *x, int64_t step, real *to,
                            const rg_dtype T)
{
    int64_t i = 0;
    for (; k->dense && i + VLEN <= k->channels; i += VLEN) {
        const vreal v = vload_full(x, i, T);
        vstore_full(to, i, RG_REAL, v * v);
    }
    for (; i < k->channels; i += VLEN) { /* behind the last channel come zeros */
        const vreal v = load_channels(x, i, step, vlanes_left(k->channels - i), k->dense, T);
        vstore_full(to, i, RG_REAL, v * v);
    }
}

/* ---- forward, narrow windows ---- */

RG_INLINE void forward_step(const narrow *k, const char *x, int64_t step, const real *squares,
                            const output *to, int64_t i, const int n, const rg_dtype T,
                            const int64_t width, const int32_t quarters)
{
    const vreal sum = sum_taps(squares + i - k->before, 1, width);
    const vreal v = load_channels(x, i, step, n, k->dense, T);
    store_channels(to, i, n, T, power_forward(&k->c, v, sum, quarters, is_short(T)));
}

RG_INLINE void forward_pixel(const narrow *k, const char *x, int64_t step, const real *squares,
                             const output *to, const rg_dtype T, const int64_t width,
                             const int32_t quarters)
{
    int64_t i = 0;
    for (; i + VLEN <= k->channels; i += VLEN)
        forward_step(k, x, step, squares, to, i, VLEN, T, width, quarters);
    if (i < k->channels)
        forward_step(k, x, step, squares, to, i, (int)(k->channels - i), T, width, quarters);
}

RG_INLINE void forward_group(const rg_lrn_args *a, const narrow *k, real *buffer, int64_t first,
                             int64_t pixels, const rg_dtype T)
{
    const rg_lrn_shape *s = &a->shape;
    int64_t offset[2];
    for (int64_t p = 0; p < pixels; p++) {
        rg_walk_offsets(&s->outer, 2, first + p, offset);
        square_pixel(k, at(a->x, offset[0], T), s->step[0], buffer + p * k->pitch + k->lead, T);
    }
    for (int64_t p = 0; p < pixels; p++) {
        rg_walk_offsets(&s->outer, 2, first + p, offset);
        const char *x = at(a->x, offset[0], T);
        const output to = output_at(s, at_out(a->y, offset[1], T), 1, T);
        const real *squares = buffer + p * k->pitch + k->lead;
        forward_pixel(k, x, s->step[0], squares, &to, T, s->span.width, k->c.quarters);
    }
}

/* ---- gradient, narrow windows ---- */

/* The lines of a group; those of a pixel stand at the same place in each. */
typedef struct gradient_lines {
    real *squares, *shares; /* with zeros around */
    real *direct;
} gradient_lines;

RG_INLINE void middle_step(const narrow *k, const char *dy, const char *x, const int64_t step[],
                           const gradient_lines *l, int64_t i, const int n, const rg_dtype T,
                           const int64_t width, const int32_t quarters)
{
    const vreal sum = sum_taps(l->squares + i - k->before, 1, width);
    const vreal g = load_channels(dy, i, step[0], n, k->dense, T);
    const vreal v = load_channels(x, i, step[1], n, k->dense, T);
    vreal share;
    vstore_full(l->direct, i, RG_REAL,
                power_middle(&k->c, g, v, sum, &share, quarters, is_short(T)));
    vstore_full(l->shares, i, RG_REAL, vkeep(share, n, 0));
}

RG_INLINE void middle_pixel(const narrow *k, const char *dy, const char *x, const int64_t step[],
                            const gradient_lines *l, const rg_dtype T, const int64_t width,
                            const int32_t quarters)
{
    int64_t i = 0;
    for (; i + VLEN <= k->channels; i += VLEN)
        middle_step(k, dy, x, step, l, i, VLEN, T, width, quarters);
    if (i < k->channels)
        middle_step(k, dy, x, step, l, i, (int)(k->channels - i), T, width, quarters);
}

RG_INLINE void finish_step(const narrow *k, const char *x, int64_t step, const gradient_lines *l,
                           const output *to, int64_t i, const int n, const rg_dtype T,
                           const int64_t width)
{
    const vreal sum = sum_taps(l->shares + i - k->after, 1, width); /* the mirrored window */
    const vreal v = load_channels(x, i, step, n, k->dense, T);
    const vreal direct = vload_full(l->direct, i, RG_REAL);
    store_channels(to, i, n, T, power_gradient(&k->c, v, direct, sum));
}

RG_INLINE void finish_pixel(const narrow *k, const char *x, int64_t step, const gradient_lines *l,
                            const output *to, const rg_dtype T, const int64_t width)
{
    int64_t i = 0;
    for (; i + VLEN <= k->channels; i += VLEN)
        finish_step(k, x, step, l, to, i, VLEN, T, width);
    if (i < k->channels)
        finish_step(k, x, step, l, to, i, (int)(k->channels - i), T, width);
}

RG_INLINE gradient_lines lines_of(const narrow *k, real *buffer, int64_t group, int64_t p)
{
    real *const shares = buffer + group * k->pitch;
    return (gradient_lines){ buffer + p * k->pitch + k->lead, shares + p * k->pitch + k->lead,
                             shares + group * k->pitch + p * k->inner };
}

RG_INLINE void gradient_group(const rg_lrn_gradient_args *a, const narrow *k, real *buffer,
                              int64_t first, int64_t pixels, const rg_dtype T)
{
    const rg_lrn_shape *s = &a->shape;
    int64_t offset[RG_LRN_TENSORS];
    for (int64_t p = 0; p < pixels; p++) {
        rg_walk_offsets(&s->outer, 3, first + p, offset);
        const gradient_lines l = lines_of(k, buffer, s->group, p);
        square_pixel(k, at(a->x, offset[1], T), s->step[1], l.squares, T);
    }
    for (int64_t p = 0; p < pixels; p++) {
        rg_walk_offsets(&s->outer, 3, first + p, offset);
        const gradient_lines l = lines_of(k, buffer, s->group, p);
        const char *dy = at(a->dy, offset[0], T), *x = at(a->x, offset[1], T);
        middle_pixel(k, dy, x, s->step, &l, T, s->span.width, k->c.quarters);
    }
    for (int64_t p = 0; p < pixels; p++) {
        rg_walk_offsets(&s->outer, 3, first + p, offset);
        const gradient_lines l = lines_of(k, buffer, s->group, p);
        const char *x = at(a->x, offset[1], T);
        const output to = output_at(s, at_out(a->dx, offset[2], T), 2, T);
        finish_pixel(k, x, s->step[1], &l, &to, T, s->span.width);
    }
}

/* ---- windows of 5: two channels on either side ---- */

RG_INLINE bool is_five(const rg_lrn_shape *s)
{
    return s->span.before == 2 && s->span.after == 2 && s->dense;
}

/* The sums of the windows around the values `own`, which stand between those seen before and
 * `next`. Of the former `pairs` is kept: every value plus the one that follows it. */
RG_INLINE vreal sum_five(vreal *pairs, vreal own, vreal next)
{
    const vreal before = *pairs;
    *pairs = own + vahead_one(own, next);
    return (vbehind_two(before, *pairs) + *pairs) + vahead_two(own, next);
}

/* What stands before the first value are zeros. */
RG_INLINE vreal first_pairs(vreal own)
{
    const vreal zero = vset(0);
    return zero + vahead_one(zero, own);
}

/* What the loops are made for: pixels of whole vectors that are stored, or written past the cache,
 * and all others. */
typedef enum five_way { ANY, WHOLE, STREAM } five_way;

RG_INLINE five_way way_of(const rg_lrn_shape *s, const output *to)
{
    return s->add || s->span.size % VLEN != 0 ? ANY : to->stream ? STREAM : WHOLE;
}

/* Channels i and following, 0 where there are none. */
RG_INLINE vreal load_five(const char *pixel, int64_t i, int64_t channels, const rg_dtype T,
                          const five_way way)
{
    if (i + VLEN <= channels)
        return vload_full(pixel, i, T);
    return way == ANY && i < channels ? vload(pixel, i, (int)(channels - i), T) : vset(0);
}

RG_INLINE void store_five(const output *to, int64_t i, int64_t channels, const rg_dtype T,
                          const five_way way, vreal value)
{
    if (way == STREAM)
        vstream(to->pixel, i, T, value);
    else if (way == WHOLE)
        vstore_full(to->pixel, i, T, value);
    else
        store_channels(to, i, vlanes_left(channels - i), T, value);
}

RG_INLINE void forward_five(const power_constants *k, const char *x, const output *to,
                            int64_t channels, const rg_dtype T, const int32_t quarters,
                            const five_way way)
{
    vreal own = load_five(x, 0, channels, T, way), pairs = first_pairs(own * own);
    for (int64_t i = 0; i < channels; i += VLEN) {
        const vreal next = load_five(x, i + VLEN, channels, T, way);
        const vreal sum = sum_five(&pairs, own * own, next * next);
        store_five(to, i, channels, T, way, power_forward(k, own, sum, quarters, is_short(T)));
        own = next;
    }
}

/* The vectors that a gradient has in hand. */
typedef struct five {
    vreal x, direct, share;
} five;

RG_INLINE void finish_five(const power_constants *k, const output *to, int64_t i, int64_t channels,
                           const rg_dtype T, const five_way way, const five *own, vreal sum)
{
    store_five(to, i, channels, T, way, power_gradient(k, own->x, own->direct, sum));
}

/* A vector is finished when the shares of the one that follows are known. */
RG_INLINE void gradient_five(const power_constants *k, const char *dy, const char *x,
                             const output *to, int64_t channels, const rg_dtype T,
                             const int32_t quarters, const five_way way)
{
    vreal own = load_five(x, 0, channels, T, way), pairs = first_pairs(own * own);
    vreal share_pairs = own;
    five last = { own, own, own };
    for (int64_t i = 0; i < channels; i += VLEN) {
        const vreal next = load_five(x, i + VLEN, channels, T, way);
        const vreal sum = sum_five(&pairs, own * own, next * next);
        five now = { .x = own };
        now.direct = power_middle(k, load_five(dy, i, channels, T, way), own, sum, &now.share,
                                  quarters, is_short(T));
        if (way == ANY && i + VLEN > channels)
            now.share = vkeep(now.share, (int)(channels - i), 0);
        if (i == 0)
            share_pairs = first_pairs(now.share);
        else
            finish_five(k, to, i - VLEN, channels, T, way, &last,
                        sum_five(&share_pairs, last.share, now.share));
        last = now;
        own = next;
    }
    const int64_t end = (channels - 1) / VLEN * VLEN;
    finish_five(k, to, end, channels, T, way, &last, sum_five(&share_pairs, last.share, vset(0)));
}

/* ---- windows of 5 in bf16: even and odd channels apart, as they are loaded ---- */

/* Sums as sum_five makes them. `before`: every even value of the vectors before plus the odd one
 * behind it, and every odd one plus the even one behind it. */
RG_INLINE vpair sum_five_pairs(vpair *before, vpair own, vpair next)
{
    const vpair ahead = { vahead_one(own.a, next.a), vahead_one(own.b, next.b) };
    const vpair pairs = { own.a + own.b, own.b + ahead.a };
    const vpair sum = { (vbehind_one(before->a, pairs.a) + pairs.a) + ahead.a,
                        (vbehind_one(before->b, pairs.b) + pairs.b) + ahead.b };
    *before = pairs;
    return sum;
}

RG_INLINE vpair first_five_pairs(vpair own)
{
    const vreal zero = vset(0);
    return (vpair){ zero, zero + vahead_one(zero, own.a) };
}

RG_INLINE vpair square_pair(vpair p)
{
    return (vpair){ p.a * p.a, p.b * p.b };
}

/* Channels i to i + 2 VLEN - 1, or zeros behind the last. */
RG_INLINE vpair load_five_pair(const char *pixel, int64_t i, int64_t channels, const rg_dtype T)
{
    return i < channels ? vload_pair(pixel, i, T, true) : (vpair){ vset(0), vset(0) };
}

RG_INLINE void forward_five_pairs(const power_constants *k, const char *x, const output *to,
                                  int64_t channels, const rg_dtype T, const int32_t quarters)
{
    vpair own = load_five_pair(x, 0, channels, T), before = first_five_pairs(square_pair(own));
    for (int64_t i = 0; i < channels; i += 2 * VLEN) {
        const vpair next = load_five_pair(x, i + 2 * VLEN, channels, T);
        const vpair sum = sum_five_pairs(&before, square_pair(own), square_pair(next));
        const vpair y = { power_forward(k, own.a, sum.a, quarters, true),
                          power_forward(k, own.b, sum.b, quarters, true) };
        vstore_pair(to->pixel, i, T, y, true, to->stream);
        own = next;
    }
}

/* What a gradient has in hand, as struct five. */
typedef struct five_pair {
    vpair x, direct, share;
} five_pair;

RG_INLINE void finish_five_pair(const power_constants *k, const output *to, int64_t i,
                                const rg_dtype T, const five_pair *own, vpair sum)
{
    const vpair dx = { power_gradient(k, own->x.a, own->direct.a, sum.a),
                       power_gradient(k, own->x.b, own->direct.b, sum.b) };
    vstore_pair(to->pixel, i, T, dx, true, to->stream);
}

RG_INLINE void gradient_five_pairs(const power_constants *k, const char *dy, const char *x,
                                   const output *to, int64_t channels, const rg_dtype T,
                                   const int32_t quarters)
{
    vpair own = load_five_pair(x, 0, channels, T), before = first_five_pairs(square_pair(own));
    vpair share_before = own;
    five_pair last = { own, own, own };
    for (int64_t i = 0; i < channels; i += 2 * VLEN) {
        const vpair next = load_five_pair(x, i + 2 * VLEN, channels, T);
        const vpair sum = sum_five_pairs(&before, square_pair(own), square_pair(next));
        const vpair g = vload_pair(dy, i, T, true);
        five_pair now = { .x = own };
        now.direct.a = power_middle(k, g.a, own.a, sum.a, &now.share.a, quarters, true);
        now.direct.b = power_middle(k, g.b, own.b, sum.b, &now.share.b, quarters, true);
        if (i == 0)
            share_before = first_five_pairs(now.share);
        else
            finish_five_pair(k, to, i - 2 * VLEN, T, &last,
                             sum_five_pairs(&share_before, last.share, now.share));
        last = now;
        own = next;
    }
    const vpair none = { vset(0), vset(0) };
    finish_five_pair(k, to, channels - 2 * VLEN, T, &last,
                     sum_five_pairs(&share_before, last.share, none));
}

/* As output_at, for stores of pairs. */
RG_INLINE output pairs_at(output to)
{
    to.stream = to.stream && (uintptr_t)to.pixel % RG_VECTOR_BYTES == 0;
    return to;
}

RG_INLINE bool in_pairs(const rg_lrn_shape *s, const power_constants *k, const rg_dtype T)
{
    return T == RG_BF16 && (k->quarters == 2 || k->quarters == 3) && !s->add &&
           s->span.size % (2 * VLEN) == 0;
}

/* Pixels begin to end - 1. */
RG_INLINE void forward_fives(const rg_lrn_args *a, int64_t begin, int64_t end, const rg_dtype T)
{
    const rg_lrn_shape *s = &a->shape;
    const power_constants k = power_constants_of(&s->numbers);
    for (int64_t p = begin; p < end; p++) {
        int64_t offset[2];
        rg_walk_offsets(&s->outer, 2, p, offset);
        const char *x = at(a->x, offset[0], T);
        const output to = output_at(s, at_out(a->y, offset[1], T), 1, T);
        const five_way way = way_of(s, &to);
        const output pairs = pairs_at(to);
        if (in_pairs(s, &k, T) && k.quarters == 2)
            forward_five_pairs(&k, x, &pairs, s->span.size, T, 2);
        else if (in_pairs(s, &k, T))
            forward_five_pairs(&k, x, &pairs, s->span.size, T, 3);
        else if (k.quarters == 3 && way == STREAM)
            forward_five(&k, x, &to, s->span.size, T, 3, STREAM);
        else if (k.quarters == 3 && way == WHOLE)
            forward_five(&k, x, &to, s->span.size, T, 3, WHOLE);
        else
            forward_five(&k, x, &to, s->span.size, T, k.quarters, ANY);
    }
}

RG_INLINE void gradient_fives(const rg_lrn_gradient_args *a, int64_t begin, int64_t end,
                              const rg_dtype T)
{
    const rg_lrn_shape *s = &a->shape;
    const power_constants k = power_constants_of(&s->numbers);
    for (int64_t p = begin; p < end; p++) {
        int64_t offset[RG_LRN_TENSORS];
        rg_walk_offsets(&s->outer, 3, p, offset);
        const char *dy = at(a->dy, offset[0], T), *x = at(a->x, offset[1], T);
        const output to = output_at(s, at_out(a->dx, offset[2], T), 2, T);
        const five_way way = way_of(s, &to);
        const output pairs = pairs_at(to);
        if (in_pairs(s, &k, T) && k.quarters == 2)
            gradient_five_pairs(&k, dy, x, &pairs, s->span.size, T, 2);
        else if (in_pairs(s, &k, T))
            gradient_five_pairs(&k, dy, x, &pairs, s->span.size, T, 3);
        else if (k.quarters == 3 && way == STREAM)
            gradient_five(&k, dy, x, &to, s->span.size, T, 3, STREAM);
        else if (k.quarters == 3 && way == WHOLE)
            gradient_five(&k, dy, x, &to, s->span.size, T, 3, WHOLE);
        else
            gradient_five(&k, dy, x, &to, s->span.size, T, k.quarters, ANY);
    }
}

/* ---- wide windows: lanes are pixels ---- */

typedef struct wide {
    power_constants c;
    const rg_lrn_shape *s;
    const void *dy, *x;
    void *out;
    int64_t offset[RG_LRN_TENSORS][RG_LRN_LANES]; /* of the pixels, in dy, x and the result */
    int64_t step[RG_LRN_TENSORS];
    int pixels;
    real *direct; /* span.before + 1 lines */
    rg_dtype T;
} wide;

/* Channel `channel` of pixels i and following, 0 where there are none. */
RG_INLINE vreal load_lanes(const wide *k, const void *data, int tensor, int64_t channel, int i)
{
    real lanes[VLEN] = { 0 };
    for (int e = 0; e < VLEN && i + e < k->pixels; e++)
        lanes[e] = load_one(data, k->offset[tensor][i + e] + channel * k->step[tensor], k->T);
    return vload_full(lanes, 0, RG_REAL);
}

RG_INLINE void store_lanes(const wide *k, int64_t channel, int i, vreal value)
{
    if (k->s->add)
        value += load_lanes(k, k->out, 2, channel, i);
    real lanes[VLEN];
    vstore_full(lanes, 0, RG_REAL, value);
    for (int e = 0; e < VLEN && i + e < k->pixels; e++)
        store_one(k->out, k->offset[2][i + e] + channel * k->step[2], k->T, lanes[e]);
}

RG_OUTLINE void wide_fill(const void *job, int64_t channel, real *to)
{
    const wide *k = job;
    for (int i = 0; i < RG_LRN_LANES; i += VLEN) {
        const vreal x = load_lanes(k, k->x, 1, channel, i);
        vstore_full(to, i, RG_REAL, x * x);
    }
}

RG_OUTLINE void wide_forward(const void *job, int64_t channel, const real *sum)
{
    const wide *k = job;
    for (int i = 0; i < RG_LRN_LANES; i += VLEN) {
        const vreal x = load_lanes(k, k->x, 1, channel, i);
        const vreal s = vload_full(sum, i, RG_REAL);
        store_lanes(k, channel, i, power_forward(&k->c, x, s, k->c.quarters, is_short(k->T)));
    }
}

RG_INLINE real *wide_direct(const wide *k, int64_t channel)
{
    return k->direct + channel % (k->s->span.before + 1) * RG_LRN_LANES;
}

RG_OUTLINE void wide_middle(const void *job, int64_t channel, const real *sum, real *to)
{
    const wide *k = job;
    for (int i = 0; i < RG_LRN_LANES; i += VLEN) {
        const vreal dy = load_lanes(k, k->dy, 0, channel, i);
        const vreal x = load_lanes(k, k->x, 1, channel, i);
        const vreal s = vload_full(sum, i, RG_REAL);
        vreal share;
        const vreal direct = power_middle(&k->c, dy, x, s, &share, k->c.quarters, is_short(k->T));
        vstore_full(wide_direct(k, channel), i, RG_REAL, direct);
        vstore_full(to, i, RG_REAL, share);
    }
}

RG_OUTLINE void wide_gradient(const void *job, int64_t channel, const real *sum)
{
    const wide *k = job;
    for (int i = 0; i < RG_LRN_LANES; i += VLEN) {
        const vreal x = load_lanes(k, k->x, 1, channel, i);
        const vreal direct = vload_full(wide_direct(k, channel), i, RG_REAL);
        const vreal s = vload_full(sum, i, RG_REAL);
        store_lanes(k, channel, i, power_gradient(&k->c, x, direct, s));
    }
}

/* One group. `inputs` tensors are read: x, or dy and x. */
RG_OUTLINE void wide_group(wide *k, int inputs, real *buffer, int64_t first, int pixels)
{
    const rg_span *span = &k->s->span;
    k->pixels = pixels;
    for (int p = 0; p < pixels; p++) {
        int64_t offset[RG_LRN_TENSORS];
        rg_walk_offsets(&k->s->outer, inputs + 1, first + p, offset);
        for (int t = 0; t <= inputs; t++)
            k->offset[t + 2 - inputs][p] = offset[t];
    }
    for (int t = 0; t <= inputs; t++)
        k->step[t + 2 - inputs] = k->s->step[t];
    const int64_t ring = ring_buffer(RG_LRN_LANES, span->width);
    window_chain c = { .span = *span,
                       .end = span->size,
                       .first = ring_at(buffer, RG_LRN_LANES, span->width, span->before),
                       .first_rule = ring_sum,
                       .second_rule = ring_sum,
                       .sum = buffer + ring };
    if (inputs == 1) {
        chain_forward(&c, k, wide_fill, wide_forward);
        return;
    }
    c.second = ring_at(buffer + ring + RG_LRN_LANES, RG_LRN_LANES, span->width, span->after);
    k->direct = buffer + 2 * ring + RG_LRN_LANES;
    chain_gradient(&c, k, wide_fill, wide_middle, wide_gradient);
}

/* ---- units ---- */

/* The first group of unit u. */
RG_INLINE int64_t group_border(const rg_lrn_shape *s, int64_t u)
{
    const int64_t groups = (s->outer.count + s->group - 1) / s->group;
    return groups / s->units * u + least(groups % s->units, u);
}

RG_INLINE void lrn_forward(const rg_lrn_args *a, int64_t begin, int64_t end, const rg_dtype T)
{
    const rg_lrn_shape *s = &a->shape;
    const narrow k = narrow_of(s);
    wide w = { .c = k.c, .s = s, .x = a->x, .out = a->y, .T = T };
    for (int64_t u = begin; u < end; u++) {
        if (is_five(s)) {
            forward_fives(a, group_border(s, u) * s->group,
                          least(group_border(s, u + 1) * s->group, s->outer.count), T);
            continue;
        }
        real *const buffer = (real *)(void *)((char *)a->scratch + u * s->scratch_bytes);
        memset(buffer, 0, (size_t)s->scratch_bytes); /* zeros around the pixels, which stay */
        for (int64_t g = group_border(s, u); g < group_border(s, u + 1); g++) {
            const int64_t first = g * s->group, pixels = least(s->group, s->outer.count - first);
            if (s->span.width > RG_SPAN_DIRECT)
                wide_group(&w, 1, buffer, first, (int)pixels);
            else
                forward_group(a, &k, buffer, first, pixels, T);
        }
    }
}

RG_INLINE void lrn_gradient(const rg_lrn_gradient_args *a, int64_t begin, int64_t end,
                            const rg_dtype T)
{
    const rg_lrn_shape *s = &a->shape;
    const narrow k = narrow_of(s);
    wide w = { .c = k.c, .s = s, .dy = a->dy, .x = a->x, .out = a->dx, .T = T };
    for (int64_t u = begin; u < end; u++) {
        if (is_five(s)) {
            gradient_fives(a, group_border(s, u) * s->group,
                           least(group_border(s, u + 1) * s->group, s->outer.count), T);
            continue;
        }
        real *const buffer = (real *)(void *)((char *)a->scratch + u * s->scratch_bytes);
        memset(buffer, 0, (size_t)s->scratch_bytes);
        for (int64_t g = group_border(s, u); g < group_border(s, u + 1); g++) {
            const int64_t first = g * s->group, pixels = least(s->group, s->outer.count - first);
            if (s->span.width > RG_SPAN_DIRECT)
                wide_group(&w, 2, buffer, first, (int)pixels);
            else
                gradient_group(a, &k, buffer, first, pixels, T);
        }
    }
}

/* ---- entry points and table ---- */

RG_KERNEL(lrn_forward, rg_lrn_args)
RG_KERNEL(lrn_gradient, rg_lrn_gradient_args)

RG_CPU_TABLE(lrn, RG_LRN_KERNELS) = {
    [RG_LRN_FORWARD] = RG_ROW(lrn_forward),
    [RG_LRN_GRADIENT] = RG_ROW(lrn_gradient),
};
