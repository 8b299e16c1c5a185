/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Recording matrix products, for dense and gram. */
#include "ops/matmul/product_record.h"
#include "backend/kernel_lists.h"
#include "core/integer.h"
#include "ops/op_tables.h" /* made by cmake/ops.cmake */

RG_KERNELS_DEFINE(matmul)

/* Whose kernels are launched, whichever op asks. */
static const rg_op matmul = { .name = "matmul", .kernels = &rg_kernels_matmul };

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

/* The distance of neighbours in tensor t; 1 where there is one element alone. */
static int64_t step_of(const rg_walk *walk, int t)
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
    const rg_call part = { .op = &matmul, .commands = call->commands };
    return rg_call_finds(&part, RG_MATMUL_PACK, dtype);
}

/* c and its transpose are the same numbers. */
static void swap_operands(rg_product_call *p)
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

static rg_launch launch_of(const rg_product_call *p, int32_t kernel, const rg_tensor *panels)
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

/* Records a launch of `units` units that moves `elements` and makes `products`: eight products take
 * as long as a byte. */
static rg_status record(rg_call *call, rg_launch *launch, double units, double elements,
                        double products)
{
    enum { WORTH = 1 << 15 };
    const double most = 0x1p60;
    const double work = products / 8 + elements * (double)rg_dtype_size(launch->dtype);
    rg_call own = { .op = &matmul, .desc = call->desc, .commands = call->commands };
    launch->units = (int64_t)units;
    launch->bytes = (int64_t)(work < most ? work : most);
    launch->grain = work < WORTH * units ? (int64_t)(WORTH * units / (work + 1)) + 1 : 1;
    return rg_record(&own, launch);
}

static double ceil_div(int64_t count, int64_t size)
{
    return (double)rg_ceil_div(count, size);
}

/* Elements of all three matrices. */
static double elements_of(const rg_product_args *k)
{
    const double m = (double)k->m.count, n = (double)k->n.count, depth = (double)k->k.count;
    return (double)k->batch.count * (m * depth + depth * n + m * n);
}

static double products_of(const rg_product_args *k)
{
    return (double)k->batch.count * (double)k->m.count * (double)k->n.count * (double)k->k.count;
}

/* ---- few rows ---- */

/* Whether tensor t, with indices k and `rows`, can be read in place: neighbours in k are neighbours
 * in memory. */
static bool reads_directly(const rg_walk *k, int t, const rg_walk *rows, rg_dtype dtype)
{
    return (dtype == RG_F32 || dtype == RG_F64) && k->rank <= 1 && rows->rank <= 1 &&
           step_of(k, t) == 1;
}

static rg_status record_dot(rg_call *call, rg_product_call *p)
{
    rg_product_args *k = &p->args;
    const rg_dtype dtype = p->a->desc.dtype;
    if (k->m.count > k->n.count)
        swap_operands(p);
    k->direct_a = reads_directly(&k->k, 0, &k->m, dtype);
    k->direct_b = reads_directly(&k->k, 1, &k->n, dtype);
    const int64_t rows =
        (k->direct_a ? 0 : RG_DOT_ROWS) + (k->direct_b ? 0 : (int64_t)RG_DOT_COLUMNS);
    k->thread_bytes = RG_ALIGNMENT + rows * RG_PRODUCT_DEPTH * (dtype == RG_F64 ? 8 : 4);
    rg_launch launch = launch_of(p, RG_MATMUL_DOT, NULL);
    return record(call, &launch, ceil_div(k->n.count, RG_DOT_COLUMNS), elements_of(k),
                  products_of(k));
}

/* ---- blocks and panels ---- */

/* Whether a is packed instead of b: the one whose rows are neighbours, or the smaller one. Storing
 * a transposed sum costs twice as much as packing an element. */
static bool wants_swap(const rg_product_args *k)
{
    const double m = (double)k->m.count, n = (double)k->n.count, depth = (double)k->k.count;
    const bool b_is_plain = step_of(&k->n, 0) == 1;
    const bool a_is_transposed = step_of(&k->m, 0) == 1 && step_of(&k->k, 0) != 1;
    if (k->symmetric || k->mirrored || b_is_plain)
        return false;
    return a_is_transposed || (n - m) * depth > 2 * m * n;
}

/* How a and b are read. Rows a multiple of 2 KiB apart would share a few cache lines; rows far
 * apart touch a page each. */
static void choose_access(rg_product_args *k, rg_dtype dtype)
{
    enum {
        MAX_STEP_BYTES = 1024,
        ALIAS_BYTES = 2048,
        MAX_DIRECT_ROWS = 28
    }; /* rows that need b once or twice */
    const int64_t size = dtype == RG_F64 ? 8 : 4;
    const bool real = dtype == RG_F32 || dtype == RG_F64, even = real && k->k.rank <= 1;
    const int64_t a_k = step_of(&k->k, 0), b_k = step_of(&k->k, 1);
    const int64_t a_m = step_of(&k->m, 0), b_n = step_of(&k->n, 0);
    k->across = a_k != 1 && a_m == 1;
    k->pairs = dtype == RG_BF16 && !k->mirrored && k->m.count > RG_PRODUCT_ROWS &&
               k->n.count > RG_PRODUCT_ROWS && k->k.count >= RG_PRODUCT_PAIRS;
    k->direct_a =
        even && k->m.rank <= 1 &&
        (k->across ? a_k * size <= MAX_STEP_BYTES : a_k == 1 && a_m * size % ALIAS_BYTES != 0);
    k->direct_b = even && k->n.rank <= 1 && b_n == 1 && k->n.count % 16 == 0 && !k->mirrored &&
                  (b_k * size <= MAX_STEP_BYTES || k->m.count <= MAX_DIRECT_ROWS);
    k->direct_c = (real || k->wide) && k->m.rank <= 1 && k->n.rank <= 1 && step_of(&k->n, 1) == 1 &&
                  k->n.count % 16 == 0 && k->alpha == 1 && !k->has_bias && !k->symmetric &&
                  k->neuron == RG_NEURON_NONE && k->k.count <= RG_SUM_BLOCK &&
                  (!k->add || k->k.count <= RG_PRODUCT_DEPTH);
    /* Where not even one panel fits the scratch, every block of rows packs b for itself, piece by
     * piece. */
    k->packed = !k->direct_b && k->m.count > RG_PRODUCT_ROWS && k->k.count > 0 && k->n.count > 0 &&
                k->k.count <= RG_PACK_MOST / RG_PRODUCT_PANEL;
    k->pairs &= k->packed;
}

static rg_status record_pack(rg_call *call, const rg_product_call *p, const rg_tensor *panels)
{
    const rg_product_args *k = &p->args;
    const double elements =
        (double)k->images * (double)k->k.count * (double)(k->panel_count * RG_PRODUCT_PANEL);
    rg_launch launch = launch_of(p, RG_MATMUL_PACK, panels);
    launch.thread_scratch = 0;
    return record(call, &launch,
                  (double)k->images * ceil_div(k->panel_count, RG_PACK_PANELS) *
                      ceil_div(k->k.count, RG_PACK_DEPTH),
                  2 * elements, elements);
}

/* The images and panels of the args. */
static rg_status record_blocks(rg_call *call, rg_product_call *p, const rg_tensor *panels)
{
    enum { UNITS = 16 }; /* or more, if there is work for so many */
    rg_product_args *k = &p->args;
    const double all = (double)k->batch.count * ceil_div(k->n.count, RG_PRODUCT_PANEL);
    const double share = all > 0 ? (double)k->images * (double)k->panel_count / all : 1;
    const double blocks = (double)k->images * ceil_div(k->m.count, RG_PRODUCT_ROWS);
    const double group = blocks * (double)k->panel_count / UNITS;
    const int64_t most = k->k.count > RG_PRODUCT_DEPTH ? RG_PRODUCT_GROUP / 2 : RG_PRODUCT_GROUP;
    k->group = group < 1 ? 1 : group > (double)most ? most : (int64_t)group;
    const rg_product_buffer buffer = rg_product_buffer_of(k);
    const int64_t size = p->c->desc.dtype == RG_F64 ? 8 : 4;
    k->thread_bytes = RG_ALIGNMENT + (buffer.a + buffer.b + buffer.c) * size + /* never none */
                      buffer.totals * (int64_t)sizeof(double);
    rg_launch launch = launch_of(p, RG_MATMUL_PRODUCT, panels);
    return record(call, &launch, blocks * ceil_div(k->panel_count, k->group),
                  share * elements_of(k), share * products_of(k));
}

static rg_status record_all(rg_call *call, rg_product_call *p)
{
    p->args.images = p->args.batch.count;
    p->args.panel_count = (int64_t)ceil_div(p->args.n.count, RG_PRODUCT_PANEL);
    return record_blocks(call, p, NULL);
}

/* Packs as many panels, or images of them, at a time as RG_PACK_MOST allows. */
static rg_status record_packed(rg_call *call, rg_product_call *p)
{
    rg_product_args *k = &p->args;
    const int64_t panels = (int64_t)ceil_div(k->n.count, RG_PRODUCT_PANEL);
    const int64_t most = RG_PACK_MOST / (k->k.count * RG_PRODUCT_PANEL); /* at least 1 */
    const int64_t together = panels < most ? panels : most;
    const int64_t images = together < panels ? 1 : most / panels;
    const int64_t dims[] = { images < k->batch.count ? images : k->batch.count, together,
                             k->k.count, RG_PRODUCT_PANEL };
    const rg_dtype real = p->c->desc.dtype == RG_F64 ? RG_F64 : RG_F32;
    const rg_tensor_desc desc = rg_tensor_desc_dense(real, 4, dims);
    rg_tensor *packed;
    RG_TRY(rg_tensor_create_temporary(call->commands, &desc, &packed));
    rg_status status = RG_OK;
    for (k->image = 0; k->image < k->batch.count; k->image += dims[0]) {
        const int64_t rest = k->batch.count - k->image;
        k->images = rest < dims[0] ? rest : dims[0];
        for (k->panel = 0; status == RG_OK && k->panel < panels; k->panel += together) {
            const int64_t left = panels - k->panel;
            k->panel_count = left < together ? left : together;
            status = record_pack(call, p, packed);
            if (status == RG_OK)
                status = record_blocks(call, p, packed);
        }
    }
    rg_tensor_destroy(packed);
    return status;
}

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
    if (!rg_product_fuses(call, dtype))
        return record_all(call, p);
    const int64_t shorter = k->m.count < k->n.count ? k->m.count : k->n.count;
    if (!k->a_transposed && k->b_transposed && shorter <= RG_DOT_ROWS && k->k.count >= 64)
        return record_dot(call, p);
    if (wants_swap(k))
        swap_operands(p);
    choose_access(k, dtype);
    return k->packed ? record_packed(call, p) : record_all(call, p);
}
