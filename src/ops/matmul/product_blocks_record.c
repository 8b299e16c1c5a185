/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Products in blocks of rows. Where b is neither packed before nor read in place, every block packs
 * what it needs of it, piece by piece. */
#include "core/integer.h"
#include "ops/contract/contract_pairs.h"
#include "ops/matmul/product_record.h"

/* Whether a is packed instead of b: the one whose rows are neighbours, or the smaller one. Storing
 * a transposed sum costs twice as much as packing an element. */
static bool wants_swap(const rg_product_args *k)
{
    const double m = (double)k->m.count, n = (double)k->n.count, depth = (double)k->k.count;
    const bool b_is_plain = rg_product_step(&k->n, 0) == 1;
    const bool a_is_transposed = rg_product_step(&k->m, 0) == 1 && rg_product_step(&k->k, 0) != 1;
    if (k->symmetric || k->mirrored || b_is_plain)
        return false;
    return a_is_transposed || (n - m) * depth > 2 * m * n;
}

enum { ALIAS_BYTES = 2048 }; /* rows a multiple of this apart would share a few cache lines */

/* Whether pairs of bf16 are read in place, in rows that end where a unit stops reading. */
static bool reads_pairs(const rg_product_args *k)
{
    const rg_pair_unit *unit = rg_pair_unit_best();
    return k->pairs && unit != NULL && k->m.rank <= 1 && k->k.rank <= 1 &&
           rg_product_step(&k->k, 0) == 1 && k->k.count % unit->step == 0 &&
           rg_product_step(&k->m, 0) * 2 % ALIAS_BYTES != 0;
}

/* How a and b are read. Rows far apart touch a page each. */
static void choose_access(rg_product_args *k, rg_dtype dtype)
{
    enum { MAX_STEP_BYTES = 1024, MAX_DIRECT_ROWS = 28 }; /* rows that need b once or twice */
    const int64_t size = dtype == RG_F64 ? 8 : 4;
    const bool real = dtype == RG_F32 || dtype == RG_F64, even = real && k->k.rank <= 1;
    const int64_t a_k = rg_product_step(&k->k, 0), b_k = rg_product_step(&k->k, 1);
    const int64_t a_m = rg_product_step(&k->m, 0), b_n = rg_product_step(&k->n, 0);
    k->across = a_k != 1 && a_m == 1;
    k->direct_a =
        even && k->m.rank <= 1 &&
        (k->across ? a_k * size <= MAX_STEP_BYTES : a_k == 1 && a_m * size % ALIAS_BYTES != 0);
    k->direct_b = even && k->n.rank <= 1 && b_n == 1 && k->n.count % 16 == 0 && !k->mirrored &&
                  (b_k * size <= MAX_STEP_BYTES || k->m.count <= MAX_DIRECT_ROWS);
    k->direct_c = (real || k->wide) && k->m.rank <= 1 && k->n.rank <= 1 &&
                  rg_product_step(&k->n, 1) == 1 && k->n.count % 16 == 0 && k->alpha == 1 &&
                  !k->has_bias && !k->symmetric && k->neuron == RG_NEURON_NONE &&
                  k->k.count <= RG_SUM_BLOCK && (!k->add || k->k.count <= RG_PRODUCT_DEPTH);
}

rg_product_call rg_product_by_blocks(const rg_product_call *p)
{
    rg_product_call own = *p;
    if (wants_swap(&own.args))
        rg_product_swap(&own);
    rg_product_args *k = &own.args;
    choose_access(k, own.a->desc.dtype);
    k->pairs = own.a->desc.dtype == RG_BF16 && rg_min(k->m.count, k->n.count) >= RG_PAIRS_SIDE &&
               k->k.count >= RG_PAIRS_DEPTH;
    k->direct_pairs = reads_pairs(k);
    return own;
}

rg_status rg_product_record_blocks(rg_call *call, rg_product_call *p, const rg_tensor *panels)
{
    enum { UNITS = 16 }; /* or more, if there is work for them */
    rg_product_args *k = &p->args;
    const double all = (double)k->batch.count * (double)rg_ceil_div(k->n.count, RG_PRODUCT_PANEL);
    const double share = all > 0 ? (double)k->images * (double)k->panel_count / all : 1;
    const double blocks = (double)k->images * (double)rg_ceil_div(k->m.count, RG_PRODUCT_ROWS);
    const double group = blocks * (double)k->panel_count / UNITS;
    const int64_t most = k->k.count > RG_PRODUCT_DEPTH ? RG_PRODUCT_GROUP / 2 : RG_PRODUCT_GROUP;
    k->group = group < 1 ? 1 : group > (double)most ? most : (int64_t)group;
    const rg_product_buffer buffer = rg_product_buffer_of(k);
    const int64_t size = p->c->desc.dtype == RG_F64 ? 8 : 4;
    k->thread_bytes = RG_ALIGNMENT + (buffer.a + buffer.b + buffer.c) * size + /* never none */
                      buffer.totals * (int64_t)sizeof(double);
    rg_launch launch = rg_product_launch(p, RG_MATMUL_PRODUCT, panels);
    return rg_product_launched(
        call, &launch, blocks * (double)rg_ceil_div(k->panel_count, k->group),
        share * rg_product_elements(k), share * rg_product_multiplications(k));
}

rg_status rg_product_record_all(rg_call *call, rg_product_call *p)
{
    p->args.images = p->args.batch.count;
    p->args.panel_count = rg_ceil_div(p->args.n.count, RG_PRODUCT_PANEL);
    return rg_product_record_blocks(call, p, NULL);
}

static bool accepts(const rg_call *call, const void *request)
{
    (void)call, (void)request;
    return true;
}

static rg_status record(rg_call *call, const void *request)
{
    rg_product_call p = rg_product_by_blocks(request);
    return rg_product_record_all(call, &p);
}

const rg_strategy rg_product_blocks = { "blocks", accepts, record };
