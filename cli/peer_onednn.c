/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* oneDNN, version 2, opened at run time: the library, its primitives, timing. */
#include "cli/peer_api.h"
#include "core/clock.h"

#if RG_HAVE_ONEDNN
#include "cli/peer_onednn.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- the library ---- */

rg_onednn_functions rg_onednn; /* filled by open_peer, as what follows */
static dnnl_engine_t engine;
static dnnl_stream_t stream;

static rg_status open_peer(const rg_device *device)
{
    char text[16];
    RG_TRY(rg_peer_needs_cpu("onednn", device));
    snprintf(text, sizeof text, "%d", rg_device_threads(device));
    setenv("OMP_NUM_THREADS", text, 1);
    setenv("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16", 0); /* its tile code traps on some machines */
    void *library = dlopen("libdnnl.so.2", RTLD_NOW | RTLD_LOCAL); /* never closed */
    RG_CHECK(library != NULL, RG_UNSUPPORTED, "onednn: cannot load libdnnl.so.2");
#define F(name) RG_TRY(rg_peer_symbol("onednn", library, "dnnl_" #name, &rg_onednn.name))
    RG_ONEDNN_FUNCTIONS(F);
#undef F
    RG_CHECK(rg_onednn.engine_create(&engine, dnnl_cpu, 0) == dnnl_success &&
                 rg_onednn.stream_create(&stream, engine, dnnl_stream_default_flags) ==
                     dnnl_success,
             RG_UNSUPPORTED, "onednn: cannot be initialized");
    return RG_OK;
}

static void close_peer(void)
{
    rg_onednn.stream_destroy(stream);
    rg_onednn.engine_destroy(engine);
}

/* ---- primitives ---- */

rg_status rg_onednn_check(const rg_onednn_job *j, dnnl_status_t status)
{
    if (status == dnnl_success)
        return RG_OK;
    return rg_fail(status == dnnl_out_of_memory ? RG_OUT_OF_MEMORY : RG_UNSUPPORTED,
                   "onednn: this %s is not supported in %s", j->row->test->op->name,
                   rg_dtype_name(j->row->dtype));
}

rg_status rg_onednn_plan(rg_onednn_job *j, const void *forward, const void *backward)
{
    RG_TRY(rg_onednn_check(
        j, rg_onednn.primitive_desc_create(&j->forward, forward, j->attributes, engine, NULL)));
    if (j->row->gradient)
        RG_TRY(rg_onednn_check(j, rg_onednn.primitive_desc_create(
                                      &j->backward, backward, j->attributes, engine, j->forward)));
    return rg_onednn_check(
        j, rg_onednn.primitive_create(&j->primitive, j->row->gradient ? j->backward : j->forward));
}

static rg_status bind(const rg_onednn_job *j, int argument, const dnnl_memory_desc_t *desc,
                      const rg_tensor *tensor, dnnl_exec_arg_t *bound)
{
    bound->arg = argument;
    return rg_onednn_check(
        j, rg_onednn.memory_create(&bound->memory, desc, engine, rg_tensor_data(tensor)));
}

rg_status rg_onednn_use(rg_onednn_job *j, int argument, const dnnl_memory_desc_t *desc,
                        const rg_tensor *tensor)
{
    RG_TRY(bind(j, argument, desc, tensor, &j->arguments[j->count]));
    j->count++;
    return RG_OK;
}

static rg_status execute(const rg_onednn_job *j, dnnl_primitive_t primitive, int count,
                         const dnnl_exec_arg_t *arguments)
{
    RG_CHECK(rg_onednn.primitive_execute(primitive, stream, count, arguments) == dnnl_success &&
                 rg_onednn.stream_wait(stream) == dnnl_success,
             RG_KERNEL_FAULT, "onednn: %s failed", j->row->test->op->name);
    return RG_OK;
}

rg_status rg_onednn_use_spare(rg_onednn_job *j, int argument, const dnnl_memory_desc_t *desc,
                              const rg_tensor_desc *tensor, bool filled)
{
    RG_CHECK(j->spares < RG_ONEDNN_SPARES && j->count < RG_ONEDNN_ARGUMENTS, RG_UNSUPPORTED,
             "onednn: too many tensors in one call");
    RG_TRY(rg_bench_row_spare(j->row, tensor, filled, &j->spare[j->spares]));
    return rg_onednn_use(j, argument, desc, j->spare[j->spares++]);
}

rg_status rg_onednn_use_workspace(rg_onednn_job *j)
{
    const dnnl_memory_desc_t *desc =
        rg_onednn.primitive_desc_query_md(j->forward, dnnl_query_workspace_md, 0);
    const int64_t bytes = desc != NULL ? (int64_t)rg_onednn.memory_desc_get_size(desc) : 0;
    const rg_tensor_desc flat = rg_tensor_desc_dense(RG_U8, 1, &bytes);
    return bytes > 0 ? rg_onednn_use_spare(j, DNNL_ARG_WORKSPACE, desc, &flat, false) : RG_OK;
}

/* Arguments that the forward plan does not know are ignored. */
static int shared_arguments(const rg_onednn_job *j, dnnl_exec_arg_t *shared)
{
    int count = 0;
    for (int i = 0; i < j->count; i++) {
        const int argument = j->arguments[i].arg;
        if (argument != DNNL_ARG_SRC && argument != DNNL_ARG_DST && argument < DNNL_ARG_DIFF_SRC)
            shared[count++] = j->arguments[i];
    }
    return count;
}

rg_status rg_onednn_run_forward(rg_onednn_job *j, const dnnl_memory_desc_t *x,
                                const dnnl_memory_desc_t *y)
{
    dnnl_exec_arg_t arguments[2 + RG_ONEDNN_ARGUMENTS] = { { 0 } };
    dnnl_primitive_t forward = NULL;
    rg_tensor *source = NULL, *result = NULL;
    const rg_bench_row *row = j->row;
    rg_status status = rg_onednn_check(j, rg_onednn.primitive_create(&forward, j->forward));
    if (status == RG_OK)
        status = rg_bench_row_spare(row, &row->x_desc[0], true, &source);
    if (status == RG_OK)
        status = rg_bench_row_spare(row, &row->y_desc[0], false, &result);
    if (status == RG_OK)
        status = bind(j, DNNL_ARG_SRC, x, source, &arguments[0]);
    if (status == RG_OK)
        status = bind(j, DNNL_ARG_DST, y, result, &arguments[1]);
    if (status == RG_OK)
        status = execute(j, forward, 2 + shared_arguments(j, arguments + 2), arguments);
    rg_onednn.memory_destroy(arguments[0].memory);
    rg_onednn.memory_destroy(arguments[1].memory);
    rg_onednn.primitive_destroy(forward);
    rg_tensor_destroy(source);
    rg_tensor_destroy(result);
    return status;
}

/* ---- timing ---- */

static rg_status run_job(const void *job)
{
    const rg_onednn_job *j = job;
    return execute(j, j->primitive, j->count, j->arguments);
}

static rg_status time_layout(const rg_bench_row *row, int layout, double seconds, int *layouts,
                             double *ms)
{
    rg_onednn_job j = { .row = row, .layout = layout };
    rg_status status = rg_onednn_prepare(&j);
    *layouts = j.layouts;
    if (status == RG_OK)
        status = rg_bench_time_calls(run_job, &j, row->mode, seconds, ms);
    for (int i = 0; i < j.count; i++)
        rg_onednn.memory_destroy(j.arguments[i].memory);
    rg_onednn.primitive_destroy(j.primitive);
    rg_onednn.primitive_desc_destroy(j.backward);
    rg_onednn.primitive_desc_destroy(j.forward);
    rg_onednn.primitive_attr_destroy(j.attributes);
    for (int i = 0; i <= j.spares && i < RG_ONEDNN_SPARES; i++) /* one may have failed */
        rg_tensor_destroy(j.spare[i]);
    return status;
}

/* The fastest layout counts. */
static rg_status time_row(const rg_bench_row *row, double seconds, rg_peer_time *time)
{
    int layouts = 1;
    rg_status status = RG_OK;
    for (int layout = 0; layout == 0 || layout < layouts; layout++) {
        double one = 0;
        const rg_status own = time_layout(row, layout, seconds, &layouts, &one);
        status = layout == 0 || own == RG_OK ? own : status;
        if (layout == 0 || (own == RG_OK && (one < time->ms || time->ms == 0)))
            time->ms = one;
    }
    return status;
}
#endif

const rg_peer rg_peer_onednn = {
    .name = "onednn",
    .text = "oneDNN 2, on the CPU",
#if RG_HAVE_ONEDNN
    .open = open_peer,
    .time = time_row,
    .close = close_peer,
#else
    .missing = "the oneDNN 2 header",
#endif
};
