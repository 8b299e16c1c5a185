/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* libxsmm 1.17, opened at run time: convolutions and products in f32, on tensors in blocks of its
 * own, which are filled before the clock starts. */
#include "cli/peer_api.h"
#include "core/clock.h"

#if RG_HAVE_LIBXSMM
#include "cli/peer_product.h"

#include <libxsmm.h>
#include <retrograde/conv.h>

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- the library ---- */

#define FUNCTIONS(F)                  \
    F(init);                          \
    F(dnn_create_conv_layer);         \
    F(dnn_destroy_conv_layer);        \
    F(dnn_create_tensor_datalayout);  \
    F(dnn_destroy_tensor_datalayout); \
    F(dnn_get_tensor_size);           \
    F(dnn_link_tensor);               \
    F(dnn_destroy_tensor);            \
    F(dnn_bind_tensor);               \
    F(dnn_release_tensor);            \
    F(dnn_get_scratch_size);          \
    F(dnn_bind_scratch);              \
    F(dnn_release_scratch);           \
    F(dnn_execute_st);                \
    F(blocked_gemm_handle_create);    \
    F(blocked_gemm_handle_destroy);   \
    F(blocked_gemm_st)

static struct functions {
#define F(name) __typeof__(libxsmm_##name) *name
    FUNCTIONS(F);
#undef F
} xsmm; /* filled by open_peer */

/* ---- threads: it has none of its own. They wait without sleeping, so they are there only while it
 * is timed: others are timed in the same process ---- */

enum { MOST_THREADS = 64 };

typedef void work(const void *job, int thread);

static struct team {
    int threads, started; /* with the asking one; without it */
    pthread_t thread[MOST_THREADS];
    work *function;
    const void *job;
    _Atomic int round, left;
    _Atomic bool stop;
} team;

static void *member(void *number)
{
    for (int seen = 0;;) {
        while (atomic_load(&team.round) == seen && !atomic_load(&team.stop))
            sched_yield();
        if (atomic_load(&team.stop))
            return NULL;
        seen++;
        team.function(team.job, (int)(intptr_t)number);
        atomic_fetch_sub(&team.left, 1);
    }
}

static void run_all(work *function, const void *job)
{
    team.function = function;
    team.job = job;
    atomic_store(&team.left, team.threads - 1);
    atomic_fetch_add(&team.round, 1);
    function(job, 0);
    while (atomic_load(&team.left) > 0)
        sched_yield();
}

static void end_team(void)
{
    atomic_store(&team.stop, true);
    for (; team.started > 0; team.started--)
        pthread_join(team.thread[team.started], NULL);
}

static rg_status begin_team(void)
{
    atomic_store(&team.stop, false);
    atomic_store(&team.round, 0);
    while (team.started < team.threads - 1) {
        const int next = team.started + 1;
        if (pthread_create(&team.thread[next], NULL, member, (void *)(intptr_t)next) != 0) {
            end_team();
            return rg_fail(RG_UNSUPPORTED, "libxsmm: cannot start its threads");
        }
        team.started = next;
    }
    return RG_OK;
}

/* The module that the build makes is beside the program; RG_LIBXSMM names another. */
static rg_status load(void)
{
    static const char module[] = "peer_libxsmm.so";
    char path[PATH_MAX + sizeof module];
    const char *named = getenv("RG_LIBXSMM");
    if (named != NULL && named[0] != 0) {
        snprintf(path, sizeof path, "%s", named);
    } else {
        const ssize_t length = readlink("/proc/self/exe", path, PATH_MAX);
        const char *slash = length > 0 ? memrchr(path, '/', (size_t)length) : NULL;
        memcpy(path + (slash != NULL ? slash + 1 - path : 0), module, sizeof module);
    }
    void *library = dlopen(path, RTLD_LAZY | RTLD_LOCAL); /* never closed */
    RG_CHECK(library != NULL, RG_UNSUPPORTED,
             "libxsmm: cannot load %s; set RG_LIBXSMM to the path of the library", path);
#define F(name) RG_TRY(rg_peer_symbol("libxsmm", library, "libxsmm_" #name, &xsmm.name))
    FUNCTIONS(F);
#undef F
    return RG_OK;
}

static rg_status open_peer(const rg_device *device)
{
    const int32_t threads = rg_device_threads(device);
    RG_TRY(rg_peer_needs_cpu("libxsmm", device));
    RG_CHECK(threads <= MOST_THREADS, RG_UNSUPPORTED, "libxsmm: at most %d threads are supported",
             MOST_THREADS);
    RG_TRY(load());
    xsmm.init();
    team.threads = threads;
    return RG_OK;
}

/* ---- memory ---- */

/* Small numbers; what they are does not matter. */
static void *filled(size_t bytes)
{
    enum { ALIGNMENT = 2 << 20 };
    float *data = aligned_alloc(ALIGNMENT, (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
    for (size_t i = 0; data != NULL && i < bytes / sizeof *data; i++)
        data[i] = 0.01f * (float)(i % 13) - 0.06f;
    return data;
}

/* ---- convolution ---- */

enum { TENSORS = 6 };
static const libxsmm_dnn_tensor_type types[TENSORS] = {
    LIBXSMM_DNN_REGULAR_INPUT,  LIBXSMM_DNN_REGULAR_OUTPUT,  LIBXSMM_DNN_REGULAR_FILTER,
    LIBXSMM_DNN_GRADIENT_INPUT, LIBXSMM_DNN_GRADIENT_OUTPUT, LIBXSMM_DNN_GRADIENT_FILTER
};

typedef struct convolution {
    libxsmm_dnn_layer *layer;
    libxsmm_dnn_compute_kind kind;
    libxsmm_dnn_tensor *tensors[TENSORS];
    void *data[TENSORS], *scratch;
} convolution;

static void convolve(const void *job, int thread)
{
    const convolution *c = job;
    xsmm.dnn_execute_st(c->layer, c->kind, 0, thread);
}

static rg_status describe(const rg_bench_row *row, libxsmm_dnn_conv_desc *to)
{
    const rg_conv_desc *d = (const void *)row->desc;
    const rg_tensor_desc *x = &row->x_desc[0], *w = &row->x_desc[1], *y = &row->y_desc[0];
    const rg_window window = { .source = { x->dims[1], x->dims[2] },
                               .window = { (int32_t)w->dims[1], (int32_t)w->dims[2] },
                               .stride = { d->stride[0], d->stride[1] },
                               .dilation = { d->dilation[0], d->dilation[1] },
                               .output = { d->output[0], d->output[1] } };
    rg_placement at;
    RG_CHECK(row->dtype == RG_F32 && x->rank == 4, RG_UNSUPPORTED,
             "libxsmm: only batches in f32 are compared");
    RG_CHECK(d->groups == 1 && d->dilation[0] == 1 && d->dilation[1] == 1 && !d->bias &&
                 d->neuron.kind == RG_NEURON_NONE,
             RG_UNSUPPORTED, "libxsmm: groups, dilation, bias and neuron are not compared");
    RG_CHECK(!row->gradient || row->only == 0 || row->only == 1, RG_UNSUPPORTED,
             "libxsmm: only the gradient of one input at a time is compared");
    RG_TRY(rg_padding_resolve(&d->padding, &window, &at));
    for (int i = 0; i < 2; i++)
        RG_CHECK(at.before[i] >= 0 && at.after[i] <= at.before[i] &&
                     (x->dims[1 + i] + 2 * at.before[i] - w->dims[1 + i]) / d->stride[i] + 1 ==
                         y->dims[1 + i],
                 RG_UNSUPPORTED, "libxsmm: padding must be the same on both sides");
    *to = (libxsmm_dnn_conv_desc){ .N = (int)x->dims[0],
                                   .C = (int)x->dims[3],
                                   .H = (int)x->dims[1],
                                   .W = (int)x->dims[2],
                                   .K = (int)w->dims[0],
                                   .R = (int)w->dims[1],
                                   .S = (int)w->dims[2],
                                   .u = d->stride[0],
                                   .v = d->stride[1],
                                   .pad_h = (int)at.before[0],
                                   .pad_w = (int)at.before[1],
                                   .pad_h_in = (int)at.before[0],
                                   .pad_w_in = (int)at.before[1],
                                   .threads = team.threads,
                                   .datatype_in = LIBXSMM_DNN_DATATYPE_F32,
                                   .datatype_out = LIBXSMM_DNN_DATATYPE_F32,
                                   .buffer_format = LIBXSMM_DNN_TENSOR_FORMAT_LIBXSMM,
                                   .filter_format = LIBXSMM_DNN_TENSOR_FORMAT_LIBXSMM,
                                   .algo = LIBXSMM_DNN_CONV_ALGO_DIRECT,
                                   .options = LIBXSMM_DNN_CONV_OPTION_OVERWRITE,
                                   .fuse_ops = LIBXSMM_DNN_CONV_FUSE_NONE };
    return RG_OK;
}

static rg_status prepare_convolution(const rg_bench_row *row, convolution *c)
{
    libxsmm_dnn_conv_desc desc;
    libxsmm_dnn_err_t status = LIBXSMM_DNN_SUCCESS;
    RG_TRY(describe(row, &desc));
    c->kind = !row->gradient   ? LIBXSMM_DNN_COMPUTE_KIND_FWD
              : row->only == 0 ? LIBXSMM_DNN_COMPUTE_KIND_BWD
                               : LIBXSMM_DNN_COMPUTE_KIND_UPD;
    c->layer = xsmm.dnn_create_conv_layer(desc, &status);
    RG_CHECK(c->layer != NULL && status == LIBXSMM_DNN_SUCCESS, RG_UNSUPPORTED,
             "libxsmm: this convolution is not supported");
    for (int i = 0; i < TENSORS; i++) {
        libxsmm_dnn_tensor_datalayout *layout =
            xsmm.dnn_create_tensor_datalayout(c->layer, types[i], &status);
        RG_CHECK(layout != NULL, RG_UNSUPPORTED, "libxsmm: no tensor layout for this convolution");
        c->data[i] = filled(xsmm.dnn_get_tensor_size(layout, &status));
        if (c->data[i] != NULL)
            c->tensors[i] = xsmm.dnn_link_tensor(layout, c->data[i], &status);
        xsmm.dnn_destroy_tensor_datalayout(layout);
        RG_CHECK(c->tensors[i] != NULL, RG_OUT_OF_MEMORY, "libxsmm: out of memory for tensors");
        RG_CHECK(xsmm.dnn_bind_tensor(c->layer, c->tensors[i], types[i]) == LIBXSMM_DNN_SUCCESS,
                 RG_UNSUPPORTED, "libxsmm: cannot bind a tensor in its own layout");
    }
    const size_t scratch =
        xsmm.dnn_get_scratch_size(c->layer, LIBXSMM_DNN_COMPUTE_KIND_ALL, &status);
    c->scratch = filled(scratch);
    RG_CHECK(c->scratch != NULL, RG_OUT_OF_MEMORY, "libxsmm: out of memory for scratch");
    RG_CHECK(scratch == 0 || xsmm.dnn_bind_scratch(c->layer, LIBXSMM_DNN_COMPUTE_KIND_ALL,
                                                   c->scratch) == LIBXSMM_DNN_SUCCESS,
             RG_UNSUPPORTED, "libxsmm: cannot bind its scratch");
    return RG_OK;
}

static void close_convolution(convolution *c)
{
    if (c->scratch != NULL)
        xsmm.dnn_release_scratch(c->layer, LIBXSMM_DNN_COMPUTE_KIND_ALL);
    for (int i = 0; i < TENSORS; i++) {
        if (c->tensors[i] != NULL) {
            xsmm.dnn_release_tensor(c->layer, types[i]);
            xsmm.dnn_destroy_tensor(c->tensors[i]);
        }
        free(c->data[i]);
    }
    free(c->scratch);
    if (c->layer != NULL)
        xsmm.dnn_destroy_conv_layer(c->layer);
}

/* ---- products: all matrices in blocks ---- */

typedef struct product {
    libxsmm_blocked_gemm_handle *handle;
    void *a, *b, *c;
} product;

static void multiply(const void *job, int thread)
{
    const product *p = job;
    xsmm.blocked_gemm_st(p->handle, p->a, p->b, p->c, 0, thread);
}

/* The largest divisor of at most 64. */
static libxsmm_blasint block_of(int64_t size)
{
    libxsmm_blasint block = 64;
    while (size % block != 0)
        block--;
    return block;
}

/* c' = b' a' by columns is c = a b by rows; blocks are the same whether a or b is transposed. */
static rg_status prepare_product(const rg_bench_row *row, product *p)
{
    rg_peer_product r;
    RG_TRY(rg_peer_product_find(row, "libxsmm", &r));
    RG_CHECK(row->dtype == RG_F32 && r.bias == NULL && !r.relu && r.rows < INT_MAX &&
                 r.columns < INT_MAX && r.inner < INT_MAX,
             RG_UNSUPPORTED, "libxsmm: only matrix products in f32 are compared");
    const libxsmm_blasint m = (libxsmm_blasint)r.columns, n = (libxsmm_blasint)r.rows,
                          k = (libxsmm_blasint)r.inner;
    const libxsmm_blasint bm = block_of(m), bn = block_of(n), bk = block_of(k), one = 1;
    const float alpha = 1, beta = 0;
    const int flags = LIBXSMM_GEMM_FLAG_NONE;
    p->handle = xsmm.blocked_gemm_handle_create(
        team.threads, LIBXSMM_GEMM_PRECISION_F32, LIBXSMM_GEMM_PRECISION_F32, m, n, k, &bm, &bn,
        &bk, &one, &one, &one, &one, &alpha, &beta, &flags, NULL, NULL);
    RG_CHECK(p->handle != NULL, RG_UNSUPPORTED, "libxsmm: this matrix product is not supported");
    const size_t each = sizeof(float);
    p->a = filled((size_t)m * (size_t)k * each);
    p->b = filled((size_t)k * (size_t)n * each);
    p->c = filled((size_t)m * (size_t)n * each);
    RG_CHECK(p->a != NULL && p->b != NULL && p->c != NULL, RG_OUT_OF_MEMORY,
             "libxsmm: out of memory for matrices");
    return RG_OK;
}

static void close_product(product *p)
{
    free(p->a);
    free(p->b);
    free(p->c);
    if (p->handle != NULL)
        xsmm.blocked_gemm_handle_destroy(p->handle);
}

/* ---- timing ---- */

typedef struct job {
    work *function;
    const void *of;
} job;

static rg_status run_job(const void *j)
{
    run_all(((const job *)j)->function, ((const job *)j)->of);
    return RG_OK;
}

static rg_status time_job(const rg_bench_row *row, job j, double seconds, double *ms)
{
    RG_TRY(begin_team());
    const rg_status status = rg_bench_time_calls(run_job, &j, row->mode, seconds, ms);
    end_team();
    return status;
}

static rg_status time_row(const rg_bench_row *row, double seconds, rg_peer_time *time)
{
    if (strcmp(row->test->op->name, "conv") == 0) {
        convolution c = { 0 };
        rg_status status = prepare_convolution(row, &c);
        if (status == RG_OK)
            status = time_job(row, (job){ convolve, &c }, seconds, &time->ms);
        close_convolution(&c);
        return status;
    }
    product p = { 0 };
    rg_status status = prepare_product(row, &p);
    if (status == RG_OK)
        status = time_job(row, (job){ multiply, &p }, seconds, &time->ms);
    close_product(&p);
    return status;
}
#endif

const rg_peer rg_peer_libxsmm = {
    .name = "libxsmm",
    .text = "libxsmm 1.17 with its own tensor layouts, on the CPU",
#if RG_HAVE_LIBXSMM
    .open = open_peer,
    .time = time_row,
#else
    .missing = "libxsmm 1.17",
#endif
};
