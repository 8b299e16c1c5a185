/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The CPU backend: devices, queues that run submissions in order, copies. */
#include "backend/cpu/arithmetic_mode.h"
#include "backend/cpu/bf16_unit.h"
#include "backend/cpu/isa.h"
#include "backend/cpu/thread_pool.h"
#include "backend/fifo.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct cpu_device {
    rg_allocator allocator;
    int32_t isa;
    rg_thread_pool *thread_pool;
    bool parallel; /* its threads are the caller's */
} cpu_device;

/* ---- devices ---- */

static int32_t cpu_count(const char **reason)
{
    (void)reason;
    return 1;
}

static rg_status choose_threads(const rg_device_options *options, int32_t *threads)
{
    *threads = options->threads;
    const char *text = getenv("RG_THREADS");
    if (*threads == 0 && text != NULL && text[0] != 0) {
        char *end;
        const long number = strtol(text, &end, 10);
        RG_CHECK(*end == 0 && number >= 1 && number <= 1024, RG_INVALID_ARGUMENT,
                 "RG_THREADS must be a number between 1 and 1024, not '%s'", text);
        *threads = (int32_t)number;
    }
    if (*threads == 0) {
        cpu_set_t allowed;
        *threads = sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : 1;
    }
    RG_CHECK(*threads >= 1 && *threads <= 1024, RG_INVALID_ARGUMENT,
             "the number of threads must be between 1 and 1024, not %d", *threads);
    return RG_OK;
}

static rg_status choose_isa(const rg_device_options *options, int32_t *isa)
{
    const char *name = options->isa != NULL ? options->isa : getenv("RG_CPU");
    *isa = rg_isa_best();
    if (name == NULL || name[0] == 0)
        return RG_OK;
    int32_t cap;
    RG_TRY(rg_isa_parse(name, &cap));
    RG_CHECK(options->isa == NULL || cap <= *isa, RG_UNSUPPORTED,
             "this machine does not support %s; its highest instruction set is %s", name,
             rg_isa_name(*isa));
    *isa = cap < *isa ? cap : *isa;
    return RG_OK;
}

static rg_status cpu_open(int32_t index, const rg_device_options *options,
                          const rg_allocator *allocator, rg_choices *choices, void **context)
{
    (void)index, (void)choices; /* kernels of a CPU choose nothing */
    int32_t threads, isa;
    RG_CHECK(options->parallel == NULL || options->parallel->run != NULL, RG_INVALID_ARGUMENT,
             "rg_device_create: the option `parallel` has no function `run`");
    RG_TRY(choose_threads(options, &threads));
    RG_TRY(choose_isa(options, &isa));
    void *memory;
    RG_TRY(rg_allocate_zero(allocator, sizeof(cpu_device), &memory));
    cpu_device *device = memory;
    *device =
        (cpu_device){ .allocator = *allocator, .isa = isa, .parallel = options->parallel != NULL };
    const rg_status status =
        rg_thread_pool_create(allocator, threads, options->parallel, &device->thread_pool);
    if (status != RG_OK) {
        rg_release(allocator, memory, sizeof *device);
        return status;
    }
    *context = device;
    return RG_OK;
}

static void cpu_close(void *context)
{
    cpu_device *device = context;
    rg_thread_pool_destroy(device->thread_pool);
    const rg_allocator allocator = device->allocator;
    rg_release(&allocator, device, sizeof *device);
}

static int32_t cpu_threads(const void *context)
{
    return rg_thread_pool_threads(((const cpu_device *)context)->thread_pool);
}

static const char *cpu_isa(const void *context)
{
    return rg_isa_name(((const cpu_device *)context)->isa);
}

static void cpu_describe(const void *context, char *text, size_t capacity)
{
    const cpu_device *device = context;
    const int32_t threads = rg_thread_pool_threads(device->thread_pool);
    const int32_t unit = device->isa == RG_ISA_AVX512 ? rg_bf16_unit() : RG_BF16_UNIT_NONE;
    snprintf(text, capacity, "%d thread%s, %s%s%s", threads, threads == 1 ? "" : "s",
             rg_isa_name(device->isa), unit != RG_BF16_UNIT_NONE ? ", bf16 by " : "",
             rg_bf16_unit_name(unit));
}

static rg_status cpu_allocate(void *context, size_t size, void **pointer)
{
    return rg_allocate(&((cpu_device *)context)->allocator, size, pointer);
}

static void cpu_release(void *context, void *pointer, size_t size)
{
    rg_release(&((cpu_device *)context)->allocator, pointer, size);
}

/* Walks down past instruction sets that have no such kernel. */
static void (*cpu_find(void *context, const rg_kernel_table *table, int32_t id,
                       rg_dtype dtype))(void)
{
    if (!rg_dtype_is_data(dtype))
        return NULL;
    for (int32_t isa = ((cpu_device *)context)->isa; isa >= 0; isa--) {
        const rg_cpu_table *const *tables = table->cpu[dtype == RG_F64][isa];
        for (; tables != NULL && *tables != NULL; tables++) {
            const rg_cpu_function function = (*tables)->rows[id].function[dtype];
            if (function != NULL)
                return (void (*)(void))function;
        }
    }
    return NULL;
}

/* ---- copies ---- */

static void copy_elements(char *to, int64_t to_step, const char *from, int64_t from_step,
                          int64_t count, int32_t element)
{
    if (to_step == element && from_step == element) {
        memcpy(to, from, (size_t)(count * element));
        return;
    }
    for (int64_t i = 0; i < count; i++)
        memcpy(to + i * to_step, from + i * from_step, (size_t)element);
}

static rg_status cpu_copy(void *context, const rg_copy_args *args)
{
    (void)context;
    const int32_t inner = args->rank - 1, element = args->element;
    int64_t rows = 1, index[RG_MAX_RANK] = { 0 };
    for (int32_t d = 0; d < inner; d++)
        rows *= args->dims[d];
    const int64_t length = inner >= 0 ? args->dims[inner] : 1;
    const int64_t step = (inner >= 0 ? args->strides[inner] : 1) * element;
    char *host = args->host, *device = args->device;
    for (int64_t row = 0; row < rows && length > 0; row++) {
        if (args->to_host)
            copy_elements(host, element, device, step, length, element);
        else
            copy_elements(device, step, host, element, length, element);
        host += length * element;
        for (int32_t d = inner - 1; d >= 0; d--) { /* the next row of the tensor */
            device += args->strides[d] * element;
            if (++index[d] < args->dims[d])
                break;
            device -= index[d] * args->strides[d] * element;
            index[d] = 0;
        }
    }
    return RG_OK;
}

/* ---- running ---- */

static void run_submission(void *owner, rg_backend_submission *submission)
{
    enum { MIN_PARALLEL_BYTES = 128 << 10 }; /* as long as it takes to wake a thread */
    rg_thread_pool *thread_pool = owner;
    const uint64_t old = rg_arithmetic_plain();
    const rg_entry *entry;
    for (int32_t i = 0; i < submission->fault_count; i++)
        submission->faults[i] = 0;
    for (size_t at = 0; at < submission->bytes && submission->fault_text == NULL;
         at += entry->size) {
        entry = (const rg_entry *)(const void *)(submission->entries + at);
        const void *args = entry + 1;
        if (entry->function == NULL) {
            cpu_copy(NULL, args);
            continue;
        }
        const rg_cpu_function function = (rg_cpu_function)entry->function;
        if (entry->bytes < MIN_PARALLEL_BYTES) {
            function(args, 0, entry->units);
            rg_thread_pool_fence();
        } else {
            const rg_cpu_job job = { function, args, entry->units, entry->grain, entry->backwards };
            rg_thread_pool_run(thread_pool, &job);
        }
        if (entry->fault_text != NULL &&
            __atomic_load_n(&submission->faults[entry->fault], __ATOMIC_RELAXED) != 0) {
            submission->outcome = RG_KERNEL_FAULT;
            submission->fault_text = entry->fault_text;
        }
    }
    rg_arithmetic_restore(old);
}

static void cpu_run(void *context, rg_backend_submission *submission)
{
    run_submission(((cpu_device *)context)->thread_pool, submission);
}

/* ---- queues: a fifo each ---- */

static rg_status cpu_queue_open(void *context, void **queue)
{
    cpu_device *device = context;
    const rg_fifo_owner owner = { .run = run_submission,
                                  .owner = device->thread_pool,
                                  .starts_late = device->parallel };
    rg_fifo *fifo;
    RG_TRY(rg_fifo_create(&device->allocator, &owner, &fifo));
    *queue = fifo;
    return RG_OK;
}

static void cpu_queue_close(void *queue)
{
    rg_fifo_close(queue);
}

static void cpu_submit(void *queue, rg_backend_submission *submission)
{
    /* Bytes. Smaller submissions are finished sooner by the thread that waits; waking the worker
     * for them only adds contention. */
    enum { MIN_WAKE_BYTES = 256 << 20 };
    const bool large = submission->moved_bytes >= MIN_WAKE_BYTES && !rg_fifo_starts_late(queue);
    const bool behind = rg_fifo_submit(queue, submission, submission->has_handler || large);
    if (behind && !rg_fifo_starts_late(queue)) /* no thread waited for the one before */
        rg_fifo_wake(queue);
}

static void cpu_wake(void *queue)
{
    rg_fifo_wake(queue);
}

static rg_status cpu_wait(void *queue, rg_backend_submission *submission,
                          bool (*is_done)(rg_backend_submission *submission))
{
    return rg_fifo_wait(queue, submission, is_done);
}

const rg_backend rg_backend_cpu = {
    .name = "cpu",
    .thread_scratch = true,
    .keeps_heaps = true,
    .count = cpu_count,
    .open = cpu_open,
    .close = cpu_close,
    .threads = cpu_threads,
    .isa = cpu_isa,
    .describe = cpu_describe,
    .allocate = cpu_allocate,
    .release = cpu_release,
    .copy = cpu_copy,
    .find = cpu_find,
    .run = cpu_run,
    .queue_open = cpu_queue_open,
    .queue_close = cpu_queue_close,
    .submit = cpu_submit,
    .wake = cpu_wake,
    .wait = cpu_wait,
};
