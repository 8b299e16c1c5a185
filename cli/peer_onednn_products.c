/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Products of matrices by oneDNN. */
#if RG_HAVE_ONEDNN
#include "cli/peer_onednn.h"
#include "cli/peer_product.h"

static rg_status describe(const rg_onednn_job *j, int64_t rows, int64_t columns, bool transposed,
                          dnnl_memory_desc_t *memory)
{
    static const dnnl_data_type_t types[] = { [RG_F32] = dnnl_f32, [RG_BF16] = dnnl_bf16 };
    const dnnl_dims_t dims = { rows, columns };
    const dnnl_dims_t strides = { transposed ? 1 : columns, transposed ? rows : 1 };
    RG_CHECK(j->row->dtype == RG_F32 || j->row->dtype == RG_BF16, RG_UNSUPPORTED,
             "onednn: only matrix products in f32 and bf16 are compared");
    return rg_onednn_check(
        j, rg_onednn.memory_desc_init_by_strides(memory, 2, dims, types[j->row->dtype], strides));
}

/* A relu after the product. */
static rg_status add_relu(rg_onednn_job *j)
{
    dnnl_post_ops_t after = NULL;
    RG_TRY(rg_onednn_check(j, rg_onednn.primitive_attr_create(&j->attributes)));
    dnnl_status_t status = rg_onednn.post_ops_create(&after);
    if (status == dnnl_success)
        status = rg_onednn.post_ops_append_eltwise(after, 1, dnnl_eltwise_relu, 0, 0);
    if (status == dnnl_success)
        status = rg_onednn.primitive_attr_set_post_ops(j->attributes, after);
    rg_onednn.post_ops_destroy(after);
    return rg_onednn_check(j, status);
}

rg_status rg_onednn_prepare_product(rg_onednn_job *j)
{
    rg_peer_product p;
    dnnl_memory_desc_t a, b, c, bias;
    dnnl_matmul_desc_t matmul;
    RG_TRY(rg_peer_product_find(j->row, "onednn", &p));
    RG_TRY(describe(j, p.rows, p.inner, p.a_transposed, &a));
    RG_TRY(describe(j, p.inner, p.columns, p.b_transposed, &b));
    RG_TRY(describe(j, p.rows, p.columns, false, &c));
    RG_TRY(describe(j, 1, p.columns, false, &bias));
    if (p.relu)
        RG_TRY(add_relu(j));
    RG_TRY(rg_onednn_check(
        j, rg_onednn.matmul_desc_init(&matmul, &a, &b, p.bias != NULL ? &bias : NULL, &c)));
    RG_TRY(rg_onednn_plan(j, &matmul, &matmul));
    RG_TRY(rg_onednn_use(j, DNNL_ARG_SRC, &a, p.a));
    RG_TRY(rg_onednn_use(j, DNNL_ARG_WEIGHTS, &b, p.b));
    if (p.bias != NULL)
        RG_TRY(rg_onednn_use(j, DNNL_ARG_BIAS, &bias, p.bias));
    return rg_onednn_use(j, DNNL_ARG_DST, &c, p.c);
}
#else
typedef int rg_no_onednn_products; /* a file must not be empty */
#endif
