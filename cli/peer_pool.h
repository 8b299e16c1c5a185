/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Pooling as other libraries know it: padding is left out of a maximum, and counts in a mean
 * everywhere or nowhere. */
#ifndef RG_CLI_PEER_POOL_H
#define RG_CLI_PEER_POOL_H

#include "cli/bench_row.h"

#include <retrograde/pool.h>

typedef struct rg_peer_pool {
    bool max, count_padding;     /* the latter of a mean */
    int64_t before[2], after[2]; /* rows, columns of padding; at least 0 */
    const rg_pool_desc *desc;    /* window, stride, dilation */
    const rg_tensor_desc *x, *y; /* (n, h, w, c) */
} rg_peer_pool;

/* RG_UNSUPPORTED, with a sentence, where `peer` has no such pooling. */
rg_status rg_peer_pool_find(const rg_bench_row *row, const char *peer, rg_peer_pool *pool);

#endif
