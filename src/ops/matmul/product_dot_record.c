/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Products with few rows on a CPU: sums of products along k, without packing. */
#include "core/integer.h"
#include "ops/matmul/product_record.h"

/* Whether tensor t, with indices k and `rows`, can be read in place: neighbours in k are neighbours
 * in memory. */
static bool reads_directly(const rg_walk *k, int t, const rg_walk *rows)
{
    return k->rank <= 1 && rows->rank <= 1 && rg_product_step(k, t) == 1;
}

/* Numbers of 16 bits are read in place where both operands are, and b is read once: each time costs
 * a conversion. */
static void choose_access(rg_product_args *k, rg_dtype dtype)
{
    enum { ROWS_AT_ONCE = 2 };
    k->direct_a = reads_directly(&k->k, 0, &k->m);
    k->direct_b = reads_directly(&k->k, 1, &k->n);
    if (dtype != RG_F32 && dtype != RG_F64)
        k->direct_a = k->direct_b = k->direct_a && k->direct_b && k->m.count <= ROWS_AT_ONCE;
}

/* Few rows of one of the operands, which is not read in any other form than it has. */
static bool accepts(const rg_call *call, const void *request)
{
    const rg_product_call *p = request;
    const rg_product_args *k = &p->args;
    return rg_product_fuses(call, p->a->desc.dtype) && k->batch.count == 1 && !k->mirrored &&
           !k->symmetric && rg_min(k->m.count, k->n.count) <= RG_DOT_ROWS;
}

/* Elements along k are neighbours, and are read in place. */
static bool prefers(const rg_call *call, const void *request)
{
    enum { MIN_K = 64 };
    const rg_product_args *k = &((const rg_product_call *)request)->args;
    (void)call;
    return !k->a_transposed && k->b_transposed && k->k.count >= MIN_K;
}

static rg_status record(rg_call *call, const void *request)
{
    rg_product_call p = *(const rg_product_call *)request;
    rg_product_args *k = &p.args;
    const rg_dtype dtype = p.a->desc.dtype;
    if (k->m.count > k->n.count)
        rg_product_swap(&p);
    choose_access(k, dtype);
    const int64_t rows =
        (k->direct_a ? 0 : RG_DOT_ROWS) + (k->direct_b ? 0 : (int64_t)RG_DOT_COLUMNS);
    const int64_t bytes = rows * RG_PRODUCT_DEPTH * (dtype == RG_F64 ? 8 : 4);
    k->thread_bytes = bytes > 0 ? RG_ALIGNMENT + bytes : 0;
    rg_launch launch = rg_product_launch(&p, RG_MATMUL_DOT, NULL);
    return rg_product_launched(call, &launch, (double)rg_ceil_div(k->n.count, RG_DOT_COLUMNS),
                               rg_product_elements(k), rg_product_multiplications(k));
}

const rg_strategy rg_product_dot = { "dot", accepts, record, prefers };
