/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Products in blocks of rows whose b is packed into panels before, by a launch of its own. */
#include "core/integer.h"
#include "ops/matmul/product_record.h"

/* Whether the scratch holds at least one panel. */
static bool accepts(const rg_call *call, const void *request)
{
    const rg_product_call *p = request;
    const rg_product_args *k = &p->args;
    return rg_product_fuses(call, p->a->desc.dtype) && rg_min(k->m.count, k->n.count) > 0 &&
           k->k.count > 0 && k->k.count <= RG_PACK_MAX_ELEMENTS / RG_PRODUCT_PANEL;
}

/* Several blocks of rows use b, which cannot be read in place. Where that is little, two blocks
 * pack it twice in less time than a launch takes. */
static bool prefers(const rg_call *call, const void *request)
{
    enum { MOST_REPACKED_PANELS = 2 };
    const rg_product_call blocks = rg_product_by_blocks(request);
    const rg_product_args *k = &blocks.args;
    const int64_t row_blocks = rg_ceil_div(k->m.count, RG_PRODUCT_ROWS);
    (void)call;
    return !k->direct_b && row_blocks > 1 &&
           (row_blocks > 2 || k->n.count > MOST_REPACKED_PANELS * RG_PRODUCT_PANEL);
}

static rg_status record_pack(rg_call *call, const rg_product_call *p, const rg_tensor *panels)
{
    const rg_product_args *k = &p->args;
    const double elements =
        (double)k->images * (double)k->k.count * (double)(k->panel_count * RG_PRODUCT_PANEL);
    rg_launch launch = rg_product_launch(p, RG_MATMUL_PACK, panels);
    launch.thread_scratch = 0;
    return rg_product_launched(call, &launch,
                               (double)k->images *
                                   (double)rg_ceil_div(k->panel_count, RG_PACK_PANELS) *
                                   (double)rg_ceil_div(k->k.count, RG_PACK_DEPTH),
                               2 * elements, elements);
}

/* Packs as many panels, or images of them, at a time as RG_PACK_MAX_ELEMENTS allows. */
static rg_status record(rg_call *call, const void *request)
{
    rg_product_call own = rg_product_by_blocks(request), *p = &own;
    rg_product_args *k = &p->args;
    k->packed = true;
    k->direct_b = false;
    const int64_t panels = rg_ceil_div(k->n.count, RG_PRODUCT_PANEL);
    const int64_t most = RG_PACK_MAX_ELEMENTS / (k->k.count * RG_PRODUCT_PANEL); /* at least 1 */
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
                status = rg_product_record_blocks(call, p, packed);
        }
    }
    rg_tensor_destroy(packed);
    return status;
}

const rg_strategy rg_product_packed = { "packed", accepts, record, prefers };
