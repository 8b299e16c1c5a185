/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Recording: launches of kernels, copies between tensors and the host. */
#include "runtime/objects.h"

/* ---- launches ---- */

bool rg_call_streams(const rg_call *call, int64_t bytes)
{
    enum { STREAM_MIN_BYTES = 12 << 20 }; /* about where a result no longer stays in the cache */
    const rg_results_hint hint = call->commands->hint;
    return hint == RG_RESULTS_BY_SIZE ? bytes >= STREAM_MIN_BYTES : hint == RG_RESULTS_READ_LATER;
}

bool rg_call_copy_streams(const rg_call *call, int64_t bytes, int64_t all)
{
    enum { CACHE_BYTES = 32 << 20 };
    return rg_call_streams(call, all <= CACHE_BYTES ? 0 : bytes);
}

static size_t pointer_at(size_t args, int32_t index)
{
    return args + (size_t)index * sizeof(void *);
}

static rg_status bind_tensors(rg_submission *submission, size_t args, const rg_launch *launch)
{
    const rg_tensor *const *sources[] = { launch->tensors, launch->list };
    const int32_t counts[] = { RG_MAX_POINTERS, launch->length }, first[] = { 0, launch->list_at };
    for (int s = 0; s < 2; s++) {
        for (int32_t i = 0; i < counts[s]; i++) {
            const rg_tensor *tensor = sources[s][i];
            if (tensor != NULL)
                RG_TRY(rg_submission_bind(submission, pointer_at(args, first[s] + i),
                                          tensor->storage, tensor->offset));
        }
    }
    return RG_OK;
}

/* Has pointer `index` of the args point into the heap, or among the fault words. */
static rg_status bind_offset(rg_submission *submission, size_t args, int32_t index, size_t offset,
                             bool is_fault)
{
    RG_CHECK(index > 0, RG_UNSUPPORTED,
             "a launch does not say where its scratch or fault word goes");
    return rg_submission_relocate(
        submission,
        (rg_relocation){ .at = pointer_at(args, index), .offset = offset, .is_fault = is_fault });
}

/* Takes scratch that lives for one entry alone: a later entry may get the same range. */
static rg_status take_scratch(rg_submission *submission, size_t bytes, size_t *offset)
{
    RG_TRY(rg_heap_take(submission, bytes, offset));
    rg_heap_give(submission, *offset);
    return RG_OK;
}

/* Scratch of a launch, of all threads, or both. */
static rg_status bind_scratch(rg_submission *submission, size_t args, const rg_launch *launch,
                              size_t bytes)
{
    const rg_device *device = submission->queue->device;
    const size_t align = RG_ALIGNMENT, own = (bytes + align - 1) / align * align;
    const size_t threads =
        device->backend->thread_scratch ? (size_t)device->backend->threads(device->context) : 0;
    size_t all, offset;
    RG_CHECK(own >= bytes && !__builtin_mul_overflow(launch->thread_scratch, threads, &all) &&
                 !__builtin_add_overflow(all, own, &all),
             RG_OUT_OF_MEMORY, "out of memory: the scratch exceeds the address space");
    RG_TRY(take_scratch(submission, all, &offset));
    if (bytes > 0)
        RG_TRY(bind_offset(submission, args, launch->scratch_at, offset, false));
    if (launch->thread_scratch == 0 || threads == 0)
        return RG_OK;
    return bind_offset(submission, args, launch->thread_scratch_at, offset + own, false);
}

bool rg_call_finds(const rg_call *call, int32_t kernel, rg_dtype dtype)
{
    const rg_device *device = call->commands->queue->device;
    return device->backend->find(device->context, call->op->kernels, kernel, dtype) != NULL;
}

/* How many bytes of scratch the launch gets. */
static size_t scratch_of(const rg_call *call, const rg_launch *launch)
{
    const rg_device *device = call->commands->queue->device;
    uint32_t unaligned = 0;
    if (device->backend->scratch == NULL)
        return launch->scratch;
    for (int i = 0; i < RG_MAX_POINTERS; i++) {
        const rg_tensor *tensor = launch->tensors[i]; /* a temporary's storage is aligned */
        if (tensor != NULL)
            unaligned |= (uint32_t)(((uintptr_t)tensor->storage->data + tensor->offset) % 16 != 0)
                         << i;
    }
    return device->backend->scratch(device->context, call->op->kernels, launch->kernel,
                                    launch->dtype, launch->args, unaligned, launch->scratch);
}

rg_status rg_record(rg_call *call, const rg_launch *launch)
{
    if (launch->units == 0)
        return RG_OK;
    rg_submission *submission = call->commands->submission;
    rg_device *device = submission->queue->device;
    rg_entry entry = { .units = launch->units,
                       .grain = launch->grain > 0 ? launch->grain : 1,
                       .bytes = launch->bytes,
                       .backwards = launch->backwards,
                       .fault_text = launch->fault_text,
                       .fault = submission->base.fault_count };
    entry.function =
        device->backend->find(device->context, call->op->kernels, launch->kernel, launch->dtype);
    RG_CHECK(entry.function != NULL, RG_UNSUPPORTED, "%s: there is no kernel for %s on %s",
             call->op->name, rg_dtype_name(launch->dtype), device->name);
    const size_t scratch = entry.scratch = scratch_of(call, launch);
    size_t args;
    RG_TRY(rg_submission_add(submission, &entry, launch->args, launch->args_size, &args));
    RG_TRY(bind_tensors(submission, args, launch));
    if (scratch > 0 || launch->thread_scratch > 0)
        RG_TRY(bind_scratch(submission, args, launch, scratch));
    if (launch->fault_text == NULL)
        return RG_OK;
    submission->base.fault_count = entry.fault + 1;
    return bind_offset(submission, args, launch->fault_at, (size_t)entry.fault * sizeof(uint32_t),
                       true);
}

/* ---- copies ---- */

static rg_status add_copy(rg_submission *submission, const rg_copy_args *copy,
                          const rg_tensor *tensor, size_t bytes)
{
    const rg_entry entry = {
        .units = 1, .grain = 1, .bytes = 2 * (int64_t)bytes, .fault = submission->base.fault_count
    };
    size_t args, offset;
    RG_TRY(rg_submission_add(submission, &entry, copy, sizeof *copy, &args));
    RG_TRY(rg_submission_bind(submission, args + offsetof(rg_copy_args, device), tensor->storage,
                              tensor->offset));
    if (!submission->queue->device->backend->stages || rg_copy_is_dense(copy))
        return RG_OK;
    RG_TRY(take_scratch(submission, bytes, &offset));
    return bind_offset(submission, args, RG_POINTER(*copy, staging), offset, false);
}

static rg_status record_copy(rg_commands *commands, rg_tensor *tensor, void *host, size_t bytes,
                             rg_layout layout, bool to_host, const char *who)
{
    RG_TRY(rg_commands_recording(commands, who));
    RG_TRY(rg_tensor_usable(tensor, commands, who, "", "tensor"));
    rg_copy_args args;
    RG_TRY(rg_tensor_copy_args(tensor, host, bytes, layout, to_host, who, &args));
    const rg_mark mark = rg_commands_mark(commands);
    const rg_status status =
        bytes > 0 ? add_copy(commands->submission, &args, tensor, bytes) : RG_OK;
    if (status != RG_OK)
        rg_commands_rewind(commands, mark);
    else if (to_host)
        rg_tensor_count_read(tensor, ++commands->serial);
    return status;
}

rg_status rg_commands_read(rg_commands *commands, rg_tensor *tensor, void *data, size_t bytes,
                           rg_layout layout)
{
    return record_copy(commands, tensor, data, bytes, layout, true, "rg_commands_read");
}

rg_status rg_commands_write(rg_commands *commands, rg_tensor *tensor, const void *data,
                            size_t bytes, rg_layout layout)
{
    return record_copy(commands, tensor, (void *)(uintptr_t)data, bytes, layout, false,
                       "rg_commands_write");
}
