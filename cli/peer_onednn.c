/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* oneDNN, version 2, opened at run time. Which of its primitives stands for which op is written
 * here, keyed by the op's name: an op's own folder knows nothing of peers. */
#include "cli/peer_api.h"

#if RG_HAVE_ONEDNN
#include "core/shape.h"

#include <retrograde/softmax.h>

#include <dlfcn.h>
#include <dnnl.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- the library ---- */

#define FUNCTIONS(F)                 \
    F(engine_create);                \
    F(engine_destroy);               \
    F(stream_create);                \
    F(stream_destroy);               \
    F(stream_wait);                  \
    F(memory_desc_init_by_strides);  \
    F(memory_create);                \
    F(memory_destroy);               \
    F(primitive_desc_create);        \
    F(primitive_desc_destroy);       \
    F(primitive_create);             \
    F(primitive_destroy);            \
    F(primitive_execute);            \
    F(softmax_v2_forward_desc_init); \
    F(softmax_v2_backward_desc_init)

static struct {
#define F(name) __typeof__(dnnl_##name) *name
    FUNCTIONS(F);
#undef F
} dnnl; /* filled by open_peer */
static dnnl_engine_t engine;
static dnnl_stream_t stream;

static rg_status find(void *library, const char *name, void *function)
{
    void *found = dlsym(library, name);
    RG_CHECK(found != NULL, RG_UNSUPPORTED, "onednn: libdnnl.so.2 has no %s", name);
    memcpy(function, &found, sizeof found);
    return RG_OK;
}

static rg_status open_peer(const rg_device *device)
{
    char text[16];
    RG_CHECK(!rg_bench_on_gpu(device), RG_UNSUPPORTED, "onednn runs on the CPU alone, not on %s",
             rg_device_name(device));
    snprintf(text, sizeof text, "%d", rg_device_threads(device));
    setenv("OMP_NUM_THREADS", text, 1);
    setenv("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16", 0); /* its tile code traps on some machines */
    void *library = dlopen("libdnnl.so.2", RTLD_NOW | RTLD_LOCAL); /* stays for good */
    RG_CHECK(library != NULL, RG_UNSUPPORTED, "onednn is not installed: there is no libdnnl.so.2");
#define F(name) RG_TRY(find(library, "dnnl_" #name, &dnnl.name))
    FUNCTIONS(F);
#undef F
    RG_CHECK(dnnl.engine_create(&engine, dnnl_cpu, 0) == dnnl_success &&
                 dnnl.stream_create(&stream, engine, dnnl_stream_default_flags) == dnnl_success,
             RG_UNSUPPORTED, "onednn does not start");
    return RG_OK;
}

static void close_peer(void)
{
    dnnl.stream_destroy(stream);
    dnnl.engine_destroy(engine);
}

/* ---- from ops to primitives ---- */

enum { MOST_ARGUMENTS = 4 };
typedef struct job {
    dnnl_primitive_t primitive;
    dnnl_exec_arg_t arguments[MOST_ARGUMENTS];
    int count;
} job;

static rg_status use(job *j, int argument, const dnnl_memory_desc_t *desc, const rg_tensor *tensor)
{
    dnnl_memory_t memory;
    RG_CHECK(dnnl.memory_create(&memory, desc, engine, rg_tensor_data(tensor)) == dnnl_success,
             RG_UNSUPPORTED, "onednn refuses a tensor");
    j->arguments[j->count++] = (dnnl_exec_arg_t){ argument, memory };
    return RG_OK;
}

static bool describe(const rg_tensor_desc *desc, int32_t rank, dnnl_memory_desc_t *memory)
{
    const dnnl_data_type_t type = desc->dtype == RG_F32    ? dnnl_f32
                                  : desc->dtype == RG_BF16 ? dnnl_bf16
                                                           : dnnl_data_type_undef;
    if (type == dnnl_data_type_undef)
        return false;
    dnnl_dims_t dims = { 0 }, strides = { 0 };
    for (int32_t d = 0; d < desc->rank; d++) { /* dimensions from `rank` on are one */
        const int32_t to = d < rank ? d : rank - 1;
        dims[to] = d < rank ? desc->dims[d] : dims[to] * desc->dims[d];
        strides[to] = desc->strides[d];
    }
    return dnnl.memory_desc_init_by_strides(memory, rank, dims, type, strides) == dnnl_success;
}

static rg_status prepare_softmax(const rg_bench_row *row, job *j)
{
    const rg_softmax_desc *d = (const void *)row->desc;
    const int32_t rank = row->x_desc[0].rank;
    const int axis = (int)(d->axis < 0 ? d->axis + rank : d->axis);
    const dnnl_alg_kind_t kind =
        d->kind == RG_SOFTMAX_LOG ? dnnl_softmax_log : dnnl_softmax_accurate;
    dnnl_memory_desc_t memory;
    dnnl_softmax_v2_desc_t forward, backward;
    dnnl_primitive_desc_t plan = NULL, gradient_plan = NULL;
    RG_CHECK(describe(&row->x_desc[0], d->flatten ? axis + 1 : rank, &memory), RG_UNSUPPORTED,
             "onednn has no softmax in %s", rg_dtype_name(row->dtype));
    dnnl_status_t status = dnnl.softmax_v2_forward_desc_init(&forward, dnnl_forward_training, kind,
                                                             &memory, &memory, axis);
    if (status == dnnl_success)
        status = dnnl.primitive_desc_create(&plan, &forward, NULL, engine, NULL);
    if (status == dnnl_success && row->gradient)
        status =
            dnnl.softmax_v2_backward_desc_init(&backward, kind, &memory, &memory, &memory, axis);
    if (status == dnnl_success && row->gradient)
        status = dnnl.primitive_desc_create(&gradient_plan, &backward, NULL, engine, plan);
    if (status == dnnl_success)
        status = dnnl.primitive_create(&j->primitive, row->gradient ? gradient_plan : plan);
    dnnl.primitive_desc_destroy(gradient_plan);
    dnnl.primitive_desc_destroy(plan);
    RG_CHECK(status == dnnl_success, RG_UNSUPPORTED, "onednn refuses this softmax");
    if (!row->gradient) {
        RG_TRY(use(j, DNNL_ARG_SRC, &memory, row->x[0]));
        return use(j, DNNL_ARG_DST, &memory, row->y[0]);
    }
    RG_TRY(use(j, DNNL_ARG_DST, &memory, row->y[0]));
    RG_TRY(use(j, DNNL_ARG_DIFF_DST, &memory, row->dy[0]));
    return use(j, DNNL_ARG_DIFF_SRC, &memory, row->dx[0]);
}

static const struct {
    const char *op;
    rg_status (*prepare)(const rg_bench_row *row, job *j);
} primitives[] = {
    { "softmax", prepare_softmax },
};

static rg_status prepare(const rg_bench_row *row, job *j)
{
    for (size_t i = 0; i < sizeof primitives / sizeof primitives[0]; i++) {
        if (strcmp(primitives[i].op, row->test->op->name) == 0)
            return primitives[i].prepare(row, j);
    }
    return rg_fail(RG_UNSUPPORTED, "onednn stands for no op '%s' here", row->test->op->name);
}

/* ---- timing ---- */

static rg_status execute(const job *j, double *ms)
{
    const double start = rg_bench_seconds();
    RG_CHECK(dnnl.primitive_execute(j->primitive, stream, j->count, j->arguments) == dnnl_success &&
                 dnnl.stream_wait(stream) == dnnl_success,
             RG_KERNEL_FAULT, "onednn fails while running");
    *ms = 1e3 * (rg_bench_seconds() - start);
    return RG_OK;
}

/* The first run warms up; where it takes too long already, it counts. */
static rg_status time_job(const job *j, double seconds, double *ms)
{
    enum { LEAST = 7, MOST = 4096 };
    static double times[MOST];
    const double start = rg_bench_seconds();
    RG_TRY(execute(j, ms));
    if (*ms >= 1e3 * seconds)
        return RG_OK;
    int32_t count = 0;
    while (count < LEAST || (count < MOST && rg_bench_seconds() - start < seconds))
        RG_TRY(execute(j, &times[count++]));
    *ms = rg_bench_quantile(times, count, 0.5);
    return RG_OK;
}

static rg_status time_row(const rg_bench_row *row, double seconds, double *ms)
{
    job j = { 0 };
    rg_status status = prepare(row, &j);
    if (status == RG_OK)
        status = time_job(&j, seconds, ms);
    for (int i = 0; i < j.count; i++)
        dnnl.memory_destroy(j.arguments[i].memory);
    dnnl.primitive_destroy(j.primitive);
    return status;
}
#else
static rg_status open_peer(const rg_device *device)
{
    (void)device;
    return rg_fail(RG_UNSUPPORTED,
                   "onednn is not in this build: it was made without the header of oneDNN 2");
}

static rg_status time_row(const rg_bench_row *row, double seconds, double *ms)
{
    (void)row, (void)seconds, (void)ms;
    return rg_fail(RG_UNSUPPORTED, "onednn is not in this build");
}

static void close_peer(void)
{
}
#endif

const rg_peer rg_peer_onednn = { "onednn", open_peer, time_row, close_peer };
