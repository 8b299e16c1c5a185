/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Transposed convolution by definition, in double. Out_in as MPS says it: an image with zeros
 * between its pixels under an ordinary convolution. */
#include "ops/optest.h"

#include <retrograde/conv_transpose.h>

#include <stdlib.h>

typedef struct sizes {
    int64_t n, h, w, in, oh, ow, out, kh, kw, groups;
    int64_t before[2], offset[2]; /* offset: MPS's */
    const rg_conv_transpose_desc *d;
} sizes;

static sizes sizes_of(const rg_conv_transpose_desc *d, const rg_ref_tensor *x,
                      const rg_ref_tensor *w, const rg_ref_tensor *y)
{
    const int32_t row = x->rank - 3;
    sizes s = { .n = row > 0 ? x->dims[0] : 1,
                .h = x->dims[row],
                .w = x->dims[row + 1],
                .in = x->dims[row + 2],
                .oh = y->dims[row],
                .ow = y->dims[row + 1],
                .out = y->dims[row + 2],
                .kh = w->dims[1],
                .kw = w->dims[2],
                .groups = d->groups > 0 ? d->groups : x->dims[row + 2],
                .d = d };
    const rg_window window = { .source = { s.h, s.w },
                               .window = { (int32_t)s.kh, (int32_t)s.kw },
                               .stride = { d->stride[0], d->stride[1] },
                               .dilation = { d->dilation[0], d->dilation[1] },
                               .output = { d->output[0], d->output[1] },
                               .transposed = true };
    rg_placement at = { .output = { 0 } };
    (void)rg_padding_resolve(&d->padding, &window, &at);
    for (int i = 0; i < 2; i++) {
        const int64_t span = ((i == 0 ? s.kh : s.kw) - 1) * d->dilation[i] + 1;
        s.offset[i] = d->by_offset ? d->kernel_offset[i] : at.offset[i];
        s.before[i] = d->by_offset ? s.offset[i] + span - 1 - span / 2 : at.before[i];
    }
    return s;
}

/* The pixel of x under tap t of the window around pixel u of the image with zeros between, or -1.
 */
static int64_t under(int64_t u, int64_t t, int64_t k, int64_t offset, int32_t stride,
                     int32_t dilation, int64_t size)
{
    const int64_t at = u + offset - ((k - 1) * dilation + 1) / 2 + t * dilation;
    return at < 0 || at % stride != 0 || at / stride >= size ? -1 : at / stride;
}

/* The pixel of x whose tap t is pixel u, or -1. */
static int64_t spreads(int64_t u, int64_t t, int64_t before, int32_t stride, int32_t dilation,
                       int64_t size)
{
    const int64_t at = u + before - t * dilation;
    return at < 0 || at % stride != 0 || at / stride >= size ? -1 : at / stride;
}

/* For all products: sums of products of two of the three into the third. */
static void each_product(const sizes *s, const double *x, const double *w, const double *g,
                         double *y, double *dx, double *dw)
{
    const rg_conv_transpose_desc *d = s->d;
    const int64_t in = s->in / s->groups, out = s->out / s->groups;
    for (int64_t n = 0; n < s->n; n++)
        for (int64_t u = 0; u < s->oh * s->ow; u++)
            for (int64_t o = 0; o < s->out; o++)
                for (int64_t k = 0; k < s->kh * s->kw * in; k++) {
                    const int64_t p = k / in / s->kw, q = k / in % s->kw;
                    const int64_t c = o / out * in + k % in, r = u / s->ow, t = u % s->ow;
                    const bool mps = d->layout == RG_CONV_TRANSPOSE_OUT_IN;
                    const int64_t i =
                        mps ? under(r, p, s->kh, s->offset[0], d->stride[0], d->dilation[0], s->h)
                            : spreads(r, p, s->before[0], d->stride[0], d->dilation[0], s->h);
                    const int64_t j =
                        mps ? under(t, q, s->kw, s->offset[1], d->stride[1], d->dilation[1], s->w)
                            : spreads(t, q, s->before[1], d->stride[1], d->dilation[1], s->w);
                    if (i < 0 || j < 0)
                        continue;
                    const int64_t from = ((n * s->h + i) * s->w + j) * s->in + c;
                    const int64_t to = (n * s->oh * s->ow + u) * s->out + o;
                    const int64_t at = mps ? ((o * s->kh + p) * s->kw + q) * in + k % in
                                           : ((c * s->kh + p) * s->kw + q) * out + o % out;
                    if (y != NULL)
                        y[to] += w[at] * x[from];
                    if (dx != NULL)
                        dx[from] += w[at] * g[to];
                    if (dw != NULL)
                        dw[at] += x[from] * g[to];
                }
}

static void pre_activation(const sizes *s, const rg_ref_tensor x[], double *z)
{
    for (int64_t i = 0; i < s->n * s->oh * s->ow * s->out; i++)
        z[i] = s->d->bias ? x[2].data[i % s->out] : 0;
    each_product(s, x[0].data, x[1].data, NULL, z, NULL, NULL);
}

void rg_conv_transpose_ref_forward(const void *desc, const rg_ref_tensor x[], rg_ref_tensor y[])
{
    const rg_conv_transpose_desc *d = desc;
    const sizes s = sizes_of(d, &x[0], &x[1], &y[0]);
    pre_activation(&s, x, y[0].data);
    rg_neuron_ref_forward(&d->neuron, y, y);
}

void rg_conv_transpose_ref_gradient(const void *desc, const rg_ref_tensor dy[],
                                    const rg_ref_tensor x[], const rg_ref_tensor y[],
                                    rg_ref_tensor dx[])
{
    const rg_conv_transpose_desc *d = desc;
    rg_neuron_desc neuron = d->neuron;
    neuron.from_y = rg_op_conv_transpose.reads(d) & RG_READS_Y; /* as y is stored */
    const sizes s = sizes_of(d, &x[0], &x[1], &dy[0]);
    rg_ref_tensor z = dy[0], g = dy[0];
    z.data = calloc((size_t)rg_ref_count(&z) + 1, sizeof(double));
    g.data = calloc((size_t)rg_ref_count(&g) + 1, sizeof(double));
    if (z.data == NULL || g.data == NULL)
        abort();
    pre_activation(&s, x, z.data);
    rg_neuron_ref_gradient(&neuron, dy, &z, y, &g);
    for (int32_t i = 0; i < 2 + d->bias; i++)
        for (int64_t k = 0; dx[i].data != NULL && k < rg_ref_count(&dx[i]); k++)
            dx[i].data[k] = 0;
    each_product(&s, x[0].data, x[1].data, g.data, NULL, dx[0].data, dx[1].data);
    for (int64_t i = 0; d->bias && dx[2].data != NULL && i < rg_ref_count(&g); i++)
        dx[2].data[i % s.out] += g.data[i];
    free(z.data);
    free(g.data);
}
