/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* OpenBLAS, opened at run time: products of matrices, without bias and neuron. */
#include "cli/peer_api.h"
#include "cli/peer_product.h"
#include "core/clock.h"

#include <dlfcn.h>
#include <limits.h>

enum { ROW_MAJOR = 101, AS_IT_IS = 111, TRANSPOSED = 112 }; /* of CBLAS */

typedef void gemm_f32(int order, int a_transposed, int b_transposed, int m, int n, int k,
                      float alpha, const float *a, int a_step, const float *b, int b_step,
                      float beta, float *c, int c_step);
typedef void gemm_f64(int order, int a_transposed, int b_transposed, int m, int n, int k,
                      double alpha, const double *a, int a_step, const double *b, int b_step,
                      double beta, double *c, int c_step);

static gemm_f32 *in_float; /* filled by open_peer */
static gemm_f64 *in_double;

static rg_status open_peer(const rg_device *device)
{
    void (*set_threads)(int count) = NULL;
    RG_TRY(rg_peer_needs_cpu("openblas", device));
    void *library = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL); /* never closed */
    RG_CHECK(library != NULL, RG_UNSUPPORTED, "openblas: cannot load libopenblas.so.0");
    RG_TRY(rg_peer_symbol("openblas", library, "cblas_sgemm", &in_float));
    RG_TRY(rg_peer_symbol("openblas", library, "cblas_dgemm", &in_double));
    RG_TRY(rg_peer_symbol("openblas", library, "openblas_set_num_threads", &set_threads));
    set_threads(rg_device_threads(device));
    return RG_OK;
}

typedef struct job {
    rg_peer_product product;
    rg_dtype dtype;
} job;

static rg_status multiply(const void *of)
{
    const job *j = of;
    const rg_peer_product *p = &j->product;
    const int m = (int)p->rows, n = (int)p->columns, k = (int)p->inner;
    const int a_step = p->a_transposed ? m : k, b_step = p->b_transposed ? k : n;
    const int a_as = p->a_transposed ? TRANSPOSED : AS_IT_IS,
              b_as = p->b_transposed ? TRANSPOSED : AS_IT_IS;
    const void *a = rg_tensor_data(p->a), *b = rg_tensor_data(p->b);
    void *c = rg_tensor_data(p->c);
    if (j->dtype == RG_F64)
        in_double(ROW_MAJOR, a_as, b_as, m, n, k, 1, a, a_step, b, b_step, 0, c, n);
    else
        in_float(ROW_MAJOR, a_as, b_as, m, n, k, 1, a, a_step, b, b_step, 0, c, n);
    return RG_OK;
}

static rg_status time_row(const rg_bench_row *row, double seconds, rg_peer_time *time)
{
    job j = { .dtype = row->dtype };
    const rg_peer_product *p = &j.product;
    RG_TRY(rg_peer_product_find(row, "openblas", &j.product));
    RG_CHECK(row->dtype == RG_F32 || row->dtype == RG_F64, RG_UNSUPPORTED,
             "openblas: only f32 and f64 are compared");
    RG_CHECK(p->rows < INT_MAX && p->columns < INT_MAX && p->inner < INT_MAX && !p->relu,
             RG_UNSUPPORTED, "openblas: only matrix products are compared");
    return rg_bench_time_calls(multiply, &j, row->mode, seconds, &time->ms);
}

static void close_peer(void)
{
}

const rg_peer rg_peer_openblas = { .name = "openblas",
                                   .text = "matrix products of OpenBLAS, on the CPU",
                                   .open = open_peer,
                                   .time = time_row,
                                   .close = close_peer };
