/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The product of matrices that a row of dense is, for peers that know products alone. */
#ifndef RG_CLI_PEER_PRODUCT_H
#define RG_CLI_PEER_PRODUCT_H

#include "cli/bench_row.h"

/* c (rows, columns) = a (rows, inner) b (inner, columns); a lies as (inner, rows) where
 * `a_transposed`, b as (columns, inner) where `b_transposed`. */
typedef struct rg_peer_product {
    const rg_tensor *a, *b, *c, *bias; /* bias (columns), or NULL */
    int64_t rows, columns, inner;
    bool a_transposed, b_transposed, relu;
} rg_peer_product;

/* RG_UNSUPPORTED, with a sentence that begins with the peer's name, for other ops, and for
 * gradients of all inputs at once or after a neuron. */
rg_status rg_peer_product_find(const rg_bench_row *row, const char *peer, rg_peer_product *product);

#endif
