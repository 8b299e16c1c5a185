/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Poolings that other libraries also have. */
#include "cli/peer_pool.h"

static rg_status place(const rg_pool_desc *d, const rg_tensor_desc *x, rg_placement *placement)
{
    const rg_window window = { .source = { x->dims[1], x->dims[2] },
                               .window = { d->window[0], d->window[1] },
                               .stride = { d->stride[0], d->stride[1] },
                               .dilation = { d->dilation[0], d->dilation[1] },
                               .output = { d->output[0], d->output[1] },
                               .ceil_mode = d->ceil_mode };
    return rg_padding_resolve(&d->padding, &window, placement);
}

rg_status rg_peer_pool_find(const rg_bench_row *row, const char *peer, rg_peer_pool *pool)
{
    const rg_pool_desc *d = (const void *)row->desc;
    const rg_tensor_desc *x = &row->x_desc[0];
    rg_placement at;
    RG_CHECK(x->rank == 4 && d->kind != RG_POOL_L2, RG_UNSUPPORTED,
             "%s: only max and average pooling of batches are compared", peer);
    RG_TRY(place(d, x, &at));
    *pool = (rg_peer_pool){ .max = d->kind == RG_POOL_MAX,
                            .count_padding = d->edge == RG_POOL_ZERO || d->count_include_pad,
                            .desc = d,
                            .x = x,
                            .y = &row->y_desc[0] };
    bool padded = false;
    for (int i = 0; i < 2; i++) {
        RG_CHECK(at.before[i] >= 0, RG_UNSUPPORTED, "%s: negative padding is not supported", peer);
        pool->before[i] = at.before[i];
        pool->after[i] = at.after[i] > 0 ? at.after[i] : 0; /* what a floor leaves over */
        padded |= pool->before[i] + pool->after[i] > 0;
    }
    if (pool->max)
        RG_CHECK(!padded || d->edge == RG_POOL_CLAMP, RG_UNSUPPORTED,
                 "%s: zero padding cannot win a maximum", peer);
    else
        RG_CHECK(d->edge == RG_POOL_ZERO ||
                     (d->count_include_pad ? !d->ceil_mode : d->zero_pad[0] + d->zero_pad[1] == 0),
                 RG_UNSUPPORTED, "%s: an average counts all of the padding or none", peer);
    return RG_OK;
}
