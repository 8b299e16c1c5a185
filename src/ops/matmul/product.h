/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Products of matrices, for dense and gram: kernels and their args. Valid C and valid CUDA. */
#ifndef RG_OPS_MATMUL_PRODUCT_H
#define RG_OPS_MATMUL_PRODUCT_H

#include "core/long_sum.h"
#include "core/walk.h"
#include "ops/neuron/neuron.h"

/* All with rg_product_args. A GPU has the first one alone. */
enum {
    RG_MATMUL_PRODUCT,
    RG_MATMUL_DOT,  /* few rows, of which each element of c is one long sum */
    RG_MATMUL_PACK, /* b into panels, for the product */
    RG_MATMUL_KERNELS
};

/* A unit of the product is a block of rows of c by a group of panels of columns, and one of DOT all
 * rows by some columns. Sums over k are taken in pieces, in order, each from 0 on; the pieces are
 * added up in order, as core/long_sum.h says: RG_SUM_BLOCK is a multiple of them. */
enum {
    RG_PRODUCT_ROWS = 64,
    RG_PRODUCT_PANEL = 32,
    RG_PRODUCT_DEPTH = 1024,
    RG_PRODUCT_GROUP = 32,          /* panels, at most; half as many where k is taken in pieces */
    RG_PACK_PANELS = 4,             /* of a unit of PACK, */
    RG_PACK_DEPTH = 256,            /* and its part of k */
    RG_PAIRS_DEPTH = 32,            /* elements of k, and */
    RG_PAIRS_SIDE = 16,             /* of m and n, at least, for products of pairs */
    RG_PACK_MAX_ELEMENTS = 1 << 20, /* in panels at a time */
    RG_DOT_ROWS = 8,                /* at most */
    RG_DOT_COLUMNS = 16
};

/* c(m, n) = neuron(alpha sum over k of a(m, k) b(k, n) + bias), for each index of `batch`. Each of
 * these indices may go over several dimensions. The bias belongs to columns, or to rows where
 * `bias_rows`. Unused pointers hold any valid address. */
typedef struct rg_product_args {
    const void *a, *b, *bias;
    void *c;
    void *panels;  /* real, (images, panels of columns, k, RG_PRODUCT_PANEL), see below */
    void *scratch; /* of all threads, `thread_bytes` each; of a GPU's own */
    rg_walk batch; /* tensors a, b, c */
    rg_walk m;     /* a, c */
    rg_walk n;     /* b, c */
    rg_walk k;     /* a, b */
    int64_t bias_step;
    double alpha;
    bool a_transposed, b_transposed; /* a is (k, m) where it is dense, b is (n, k) */
    bool has_bias, bias_rows;
    bool add;       /* into c */
    bool wide;      /* c is f32 beside f16 or bf16 */
    bool mirrored;  /* b(k, n) + b(n, k) in place of b(k, n) */
    bool symmetric; /* c(m, n) = c(n, m): only half of it is computed */

    /* for a CPU */
    int32_t neuron; /* a kind; on a GPU it is a launch of its own */
    rg_neuron_numbers numbers;
    int64_t image, images, panel, panel_count; /* what a launch does: the first, how many */
    bool packed;                               /* panels are ready */
    bool across;                               /* a is copied along m, not along k */
    bool pairs;              /* of bf16, large enough to be worth it, by shape alone */
    bool direct_a, direct_b; /* read in place: real numbers, evenly spaced */
    bool direct_pairs;       /* a is, where a unit multiplies pairs of bf16 */
    bool direct_c;           /* sums are made where they are wanted, and nothing is done to them */
    int64_t group;           /* panels of a unit */
    int64_t thread_bytes;
} rg_product_args;

/* Scratch of a thread, in elements: a block of a (rows of `depth` + RG_PRODUCT_GAP elements, so
 * that they use different cache sets), a panel of b, sums. */
enum { RG_PRODUCT_GAP = 16 };
typedef struct rg_product_buffer {
    int64_t depth, a, b, c, c_step;
    int64_t totals; /* in double, after the sums: of sums that are longer than a block */
} rg_product_buffer;

static inline rg_product_buffer rg_product_buffer_of(const rg_product_args *k)
{
    const int64_t most = RG_PRODUCT_DEPTH, depth = k->k.count < most ? k->k.count : most;
    const int64_t panels = k->k.count > RG_PRODUCT_DEPTH ? k->group : 1; /* else one by one */
    rg_product_buffer buffer = { .depth = (depth + 15) / 16 * 16 };
    buffer.c_step = panels * RG_PRODUCT_PANEL + RG_PRODUCT_GAP;
    buffer.a = k->direct_a ? 0 : RG_PRODUCT_ROWS * (buffer.depth + RG_PRODUCT_GAP);
    buffer.b = k->packed || k->direct_b ? 0 : RG_PRODUCT_PANEL * buffer.depth;
    buffer.c = k->direct_c ? 0 : RG_PRODUCT_ROWS * buffer.c_step;
    buffer.totals = k->k.count > RG_SUM_BLOCK ? buffer.c : 0;
    return buffer;
}

#endif
