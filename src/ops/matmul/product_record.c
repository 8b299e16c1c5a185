/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Recording matrix products, for matmul, dense and gram. */
#include "ops/matmul/product_record.h"

/* ---- indices over several dimensions ---- */

static rg_tensor_desc desc_of(rg_dims dims)
{
    rg_tensor_desc desc = dims.tensor->desc;
    desc.rank = dims.count;
    for (int32_t d = 0; d < dims.count; d++) {
        desc.dims[d] = dims.tensor->desc.dims[dims.first + d];
        desc.strides[d] = dims.tensor->desc.strides[dims.first + d];
    }
    return desc;
}

rg_walk rg_dims_walk(const rg_dims dims[], int count)
{
    rg_tensor_desc descs[3];
    const rg_tensor_desc *at[3];
    for (int t = 0; t < count; t++) {
        descs[t] = desc_of(dims[t]);
        at[t] = &descs[t];
    }
    return rg_walk_make(at, count, 0, dims[0].count);
}

int64_t rg_product_step(const rg_walk *walk, int t)
{
    return walk->rank == 0 ? 1 : walk->strides[t][walk->rank - 1];
}

static void swap_walk(rg_walk *walk)
{
    for (int32_t d = 0; d < walk->rank; d++) {
        const int64_t stride = walk->strides[0][d];
        walk->strides[0][d] = walk->strides[1][d];
        walk->strides[1][d] = stride;
    }
}

/* ---- a product ---- */

bool rg_product_fuses(const rg_call *call, rg_dtype dtype)
{
    const rg_call part = { .op = &rg_op_matmul, .commands = call->commands };
    return rg_call_finds(&part, RG_MATMUL_PACK, dtype);
}

void rg_product_swap(rg_product_call *p)
{
    const rg_tensor *a = p->a;
    const rg_walk m = p->args.m;
    p->a = p->b;
    p->b = a;
    p->args.m = p->args.n;
    p->args.n = m;
    p->args.bias_rows = !p->args.bias_rows;
    swap_walk(&p->args.k);
    swap_walk(&p->args.batch);
}

rg_launch rg_product_launch(const rg_product_call *p, int32_t kernel, const rg_tensor *panels)
{
    const rg_tensor *bias = p->bias != NULL ? p->bias : p->c;
    return (rg_launch){ .tensors = { RG_BIND(p->args, a, p->a), RG_BIND(p->args, b, p->b),
                                     RG_BIND(p->args, bias, bias), RG_BIND(p->args, c, p->c),
                                     RG_BIND(p->args, panels, panels != NULL ? panels : p->c) },
                        .kernel = kernel,
                        .dtype = p->a->desc.dtype,
                        RG_ARGS(p->args),
                        .scratch_at = RG_POINTER(p->args, scratch),
                        .thread_scratch_at = RG_POINTER(p->args, scratch),
                        .thread_scratch = (size_t)p->args.thread_bytes };
}

rg_status rg_product_launched(rg_call *call, rg_launch *launch, double units, double elements,
                              double products)
{
    enum { MIN_PARALLEL_BYTES = 1 << 15 };
    const double most = 0x1p60;
    const double work = products / 8 + elements * (double)rg_dtype_size(launch->dtype);
    rg_call own = { .op = &rg_op_matmul, .desc = call->desc, .commands = call->commands };
    launch->units = (int64_t)units;
    launch->bytes = (int64_t)(work < most ? work : most);
    launch->grain = work < MIN_PARALLEL_BYTES * units
                        ? (int64_t)(MIN_PARALLEL_BYTES * units / (work + 1)) + 1
                        : 1;
    return rg_record(&own, launch);
}

double rg_product_elements(const rg_product_args *k)
{
    const double m = (double)k->m.count, n = (double)k->n.count, depth = (double)k->k.count;
    return (double)k->batch.count * (m * depth + depth * n + m * n);
}

double rg_product_multiplications(const rg_product_args *k)
{
    return (double)k->batch.count * (double)k->m.count * (double)k->n.count * (double)k->k.count;
}

/* ---- strategies ---- */

static const rg_strategy *const strategies[] = { RG_PRODUCT_STRATEGIES(RG_STRATEGY_ENTRY) NULL };
const rg_strategy *const *const rg_product_strategies[] = { strategies, NULL };

rg_status rg_record_product(rg_call *call, rg_product_call *p)
{
    rg_product_args *k = &p->args;
    const rg_dtype dtype = p->a->desc.dtype;
    k->wide = p->c->desc.dtype != dtype;
    k->has_bias = p->bias != NULL;
    k->bias_step = p->bias != NULL ? p->bias->desc.strides[0] : 0;
    if (p->neuron != NULL) {
        k->neuron = (int32_t)p->neuron->kind;
        k->numbers = rg_neuron_numbers_of(p->neuron, dtype, false);
    }
    if (!rg_product_fuses(call, dtype)) /* a GPU chooses at launch */
        return rg_product_record_all(call, p);
    return rg_strategy_run(call, strategies, p);
}
