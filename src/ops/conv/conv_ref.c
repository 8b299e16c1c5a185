/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Convolution by definition, in double: every product is looked at, in the image or not. */
#include "ops/optest.h"

#include <retrograde/conv.h>

#include <stdlib.h>

/* All sizes; x, y and w are dense. */
typedef struct sizes {
    int64_t n, h, w, in, oh, ow, out, kh, kw, groups;
    int64_t top, left;
    const rg_conv_desc *d;
} sizes;

static sizes sizes_of(const rg_conv_desc *d, const rg_ref_tensor *x, const rg_ref_tensor *w,
                      const rg_ref_tensor *y)
{
    const int32_t row = x->rank - 3;
    sizes s = { .n = row > 0 ? x->dims[0] : 1,
                .h = x->dims[row],
                .w = x->dims[row + 1],
                .in = x->dims[row + 2],
                .oh = y->dims[row],
                .ow = y->dims[row + 1],
                .out = w->dims[0],
                .kh = w->dims[1],
                .kw = w->dims[2],
                .groups = d->groups > 0 ? d->groups : x->dims[row + 2],
                .d = d };
    const rg_window window = { .source = { s.h, s.w },
                               .window = { (int32_t)s.kh, (int32_t)s.kw },
                               .stride = { d->stride[0], d->stride[1] },
                               .dilation = { d->dilation[0], d->dilation[1] },
                               .output = { d->output[0], d->output[1] } };
    rg_placement at = { .output = { 0 } };
    (void)rg_padding_resolve(&d->padding, &window, &at);
    s.top = at.before[0];
    s.left = at.before[1];
    return s;
}

/* One product of one sum: offsets of its three elements. False where the tap is outside. */
typedef struct product {
    int64_t x, y, w;
} product;

/* Product k of those that make y[n, i, j, o]: taps row by row, then channels. */
static bool find(const sizes *s, int64_t n, int64_t i, int64_t j, int64_t o, int64_t k, product *at)
{
    const int64_t each = s->in / s->groups, group = o / (s->out / s->groups);
    const int64_t p = k / each / s->kw, q = k / each % s->kw, c = k % each;
    const int64_t r = i * s->d->stride[0] - s->top + p * s->d->dilation[0];
    const int64_t t = j * s->d->stride[1] - s->left + q * s->d->dilation[1];
    at->x = ((n * s->h + r) * s->w + t) * s->in + group * each + c;
    at->y = ((n * s->oh + i) * s->ow + j) * s->out + o;
    at->w = ((o * s->kh + p) * s->kw + q) * each + c;
    return r >= 0 && r < s->h && t >= 0 && t < s->w;
}

/* For all products of the convolution: sums of products of two of the three into the third. */
static void each_product(const sizes *s, const double *x, const double *w, const double *g,
                         double *y, double *dx, long double *dw)
{
    for (int64_t n = 0; n < s->n; n++)
        for (int64_t i = 0; i < s->oh; i++)
            for (int64_t j = 0; j < s->ow; j++)
                for (int64_t o = 0; o < s->out; o++)
                    for (int64_t k = 0; k < s->kh * s->kw * (s->in / s->groups); k++) {
                        product at;
                        if (!find(s, n, i, j, o, k, &at))
                            continue;
                        if (y != NULL)
                            y[at.y] += w[at.w] * x[at.x];
                        if (dx != NULL)
                            dx[at.x] += w[at.w] * g[at.y];
                        if (dw != NULL)
                            dw[at.w] += x[at.x] * g[at.y];
                    }
}

static void pre_activation(const sizes *s, const rg_ref_tensor x[], double *z)
{
    for (int64_t i = 0; i < s->n * s->oh * s->ow * s->out; i++)
        z[i] = s->d->bias ? x[2].data[i % s->out] : 0;
    each_product(s, x[0].data, x[1].data, NULL, z, NULL, NULL);
}

void rg_conv_ref_forward(const void *desc, const rg_ref_tensor x[], rg_ref_tensor y[])
{
    const rg_conv_desc *d = desc;
    const sizes s = sizes_of(d, &x[0], &x[1], &y[0]);
    pre_activation(&s, x, y[0].data);
    rg_neuron_ref_forward(&d->neuron, y, y);
}

void rg_conv_ref_gradient(const void *desc, const rg_ref_tensor dy[], const rg_ref_tensor x[],
                          const rg_ref_tensor y[], rg_ref_tensor dx[])
{
    const rg_conv_desc *d = desc;
    rg_neuron_desc neuron = d->neuron;
    neuron.from_y = rg_op_conv.reads(d) & RG_READS_Y; /* as y is stored */
    const sizes s = sizes_of(d, &x[0], &x[1], &dy[0]);
    rg_ref_tensor z = dy[0], g = dy[0];
    z.data = calloc((size_t)rg_ref_count(&z) + 1, sizeof(double));
    g.data = calloc((size_t)rg_ref_count(&g) + 1, sizeof(double));
    if (z.data == NULL || g.data == NULL)
        abort();
    pre_activation(&s, x, z.data);
    rg_neuron_ref_gradient(&neuron, dy, &z, y, &g);
    long double *dw = calloc((size_t)rg_ref_count(&x[1]) + 1, sizeof *dw); /* long sums, see gram */
    if (dw == NULL)
        abort();
    for (int32_t i = 0; i < 2 + d->bias; i++)
        for (int64_t k = 0; dx[i].data != NULL && k < rg_ref_count(&dx[i]); k++)
            dx[i].data[k] = 0;
    each_product(&s, x[0].data, x[1].data, g.data, NULL, dx[0].data, dw);
    for (int64_t i = 0; dx[1].data != NULL && i < rg_ref_count(&x[1]); i++)
        dx[1].data[i] = (double)dw[i];
    free(dw);
    for (int64_t i = 0; d->bias && dx[2].data != NULL && i < rg_ref_count(&g); i++)
        dx[2].data[i % s.out] += g.data[i];
    free(z.data);
    free(g.data);
}
