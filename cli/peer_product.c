/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Rows of dense as products of matrices. */
#include "cli/peer_product.h"
#include "core/shape.h"

#include <retrograde/dense.h>

rg_status rg_peer_product_find(const rg_bench_row *row, const char *peer, rg_peer_product *product)
{
    RG_CHECK(strcmp(row->test->op->name, "dense") == 0, RG_UNSUPPORTED,
             "%s: op '%s' is not compared", peer, row->test->op->name);
    const rg_dense_desc *d = (const void *)row->desc;
    const bool relu = d->neuron.kind == RG_NEURON_RELU && !d->neuron.has_a;
    const bool plain = d->neuron.kind == RG_NEURON_NONE;
    RG_CHECK(d->alpha == 1 && (plain || (relu && !row->gradient)), RG_UNSUPPORTED,
             "%s: alpha, neurons other than relu and gradients of a neuron are not compared", peer);
    RG_CHECK(!row->gradient || row->only == 0 || row->only == 1, RG_UNSUPPORTED,
             "%s: only the gradient of x or of w is compared, not both in one call", peer);
    const bool first = d->layout == RG_DENSE_OUT_IN;
    const rg_tensor_desc *x = &row->x_desc[0], *w = &row->x_desc[1];
    const int64_t out = w->dims[first ? 0 : w->rank - 1];
    const int64_t in = out > 0 ? rg_shape_count(w) / out : 0;
    const int64_t rows = in > 0 ? rg_shape_count(x) / in : 0;
    if (!row->gradient)
        *product = (rg_peer_product){ row->x[0], row->x[1], row->y[0], d->bias ? row->x[2] : NULL,
                                      rows,      out,       in,        false,
                                      first,     relu };
    else if (row->only == 0)
        *product = (rg_peer_product){ row->dy[0], row->x[1], row->dx[0], NULL,   rows,
                                      in,         out,       false,      !first, false };
    else if (first)
        *product = (rg_peer_product){ row->dy[0], row->x[0], row->dx[1], NULL,  out,
                                      in,         rows,      true,       false, false };
    else
        *product = (rg_peer_product){ row->x[0], row->dy[0], row->dx[1], NULL,  in,
                                      out,       rows,       true,       false, false };
    return RG_OK;
}
