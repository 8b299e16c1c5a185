/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Recording: launches of kernels, copies between tensors and the host. */
#include "runtime/objects.h"

/* ---- launches ---- */

bool rg_call_streams(const rg_call *call, int64_t bytes)
{
    enum { LARGE = 12 << 20 }; /* about where rereading a result no longer finds it in the cache */
    const rg_results_hint hint = call->commands->hint;
    return hint == RG_RESULTS_BY_SIZE ? bytes >= LARGE : hint == RG_RESULTS_READ_LATER;
}

static rg_status bind_fault(rg_submission *submission, size_t at, int32_t fault)
{
    const size_t offset = (size_t)fault * sizeof(uint32_t);
    RG_TRY(rg_submission_relocate(submission,
                                  (rg_relocation){ .at = at, .offset = offset, .is_fault = true }));
    submission->base.fault_count = fault + 1;
    return RG_OK;
}

/* Pointers to scratch of a launch, to that of all threads, or to both. */
static rg_status bind_launch_scratch(rg_submission *submission, size_t at, size_t bytes,
                                     size_t thread_bytes)
{
    const rg_device *device = submission->queue->device;
    const size_t align = RG_ALIGNMENT, own = (bytes + align - 1) / align * align;
    const int32_t threads =
        device->backend->thread_scratch ? device->backend->threads(device->context) : 0;
    size_t all, offset;
    RG_CHECK(own >= bytes && !__builtin_mul_overflow(thread_bytes, (size_t)threads, &all) &&
                 !__builtin_add_overflow(all, own, &all),
             RG_OUT_OF_MEMORY, "out of memory: the scratch exceeds the address space");
    RG_TRY(rg_heap_take(submission, all, &offset));
    rg_heap_give(submission, offset);
    if (bytes > 0) {
        RG_TRY(rg_submission_relocate(submission, (rg_relocation){ .at = at, .offset = offset }));
        at += sizeof(void *);
    }
    if (thread_bytes == 0 || threads == 0)
        return RG_OK;
    return rg_submission_relocate(submission, (rg_relocation){ .at = at, .offset = offset + own });
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
    for (int i = 0; i < RG_MAX_POINTERS && launch->tensors[i] != NULL; i++) {
        const rg_tensor *tensor = launch->tensors[i]; /* a temporary's storage is aligned */
        const uintptr_t at = (uintptr_t)tensor->storage->data + tensor->offset;
        unaligned |= (uint32_t)(at % 16 != 0) << i;
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
                       .grain = launch->grain,
                       .bytes = launch->bytes,
                       .fault_text = launch->fault_text,
                       .fault = submission->base.fault_count };
    entry.function =
        device->backend->find(device->context, call->op->kernels, launch->kernel, launch->dtype);
    RG_CHECK(entry.function != NULL, RG_UNSUPPORTED, "%s: there is no kernel for %s on %s",
             call->op->name, rg_dtype_name(launch->dtype), device->name);
    const size_t scratch = entry.scratch = scratch_of(call, launch);
    size_t at;
    RG_TRY(rg_submission_add(submission, &entry, launch->args, launch->args_size, &at));
    const rg_tensor *const *tensors = launch->list != NULL ? launch->list : launch->tensors;
    const int32_t most = launch->list != NULL ? launch->length : RG_MAX_POINTERS;
    for (int32_t i = 0; i < most; i++, at += sizeof(void *)) {
        if (tensors[i] != NULL)
            RG_TRY(rg_submission_bind(submission, at, tensors[i]->storage, tensors[i]->offset));
        else if (launch->list == NULL)
            break;
    }
    if (scratch > 0 || launch->thread_scratch > 0)
        RG_TRY(bind_launch_scratch(submission, at, scratch, launch->thread_scratch));
    at += (scratch > 0 ? sizeof(void *) : 0) + (launch->thread_scratch > 0 ? sizeof(void *) : 0);
    return launch->fault_text != NULL ? bind_fault(submission, at, entry.fault) : RG_OK;
}

/* ---- copies ---- */

/* The pointer to scratch, which lives for one entry alone: a later entry may get the same range. */
static rg_status bind_scratch(rg_submission *submission, size_t at, size_t bytes)
{
    size_t offset;
    RG_TRY(rg_heap_take(submission, bytes, &offset));
    rg_heap_give(submission, offset);
    return rg_submission_relocate(submission, (rg_relocation){ .at = at, .offset = offset });
}

static rg_status record_copy(rg_commands *commands, rg_tensor *tensor, void *host, size_t bytes,
                             rg_layout layout, bool to_host, const char *who)
{
    RG_TRY(rg_commands_recording(commands, who));
    RG_TRY(rg_tensor_usable(tensor, commands, who, "", "tensor"));
    rg_copy_args args;
    RG_TRY(rg_tensor_copy_args(tensor, host, bytes, layout, to_host, who, &args));
    if (bytes > 0) {
        const rg_mark mark = rg_commands_mark(commands);
        const rg_entry entry = { .units = 1,
                                 .grain = 1,
                                 .bytes = 2 * (int64_t)bytes,
                                 .fault = commands->submission->base.fault_count };
        size_t at;
        rg_status status = rg_submission_add(commands->submission, &entry, &args, sizeof args, &at);
        if (status == RG_OK)
            status = rg_submission_bind(commands->submission, at, tensor->storage, tensor->offset);
        if (status == RG_OK && commands->queue->device->backend->stages && !rg_copy_is_dense(&args))
            status =
                bind_scratch(commands->submission, at + offsetof(rg_copy_args, staging), bytes);
        if (status != RG_OK) {
            rg_commands_rewind(commands, mark);
            return status;
        }
    }
    if (to_host)
        rg_tensor_count_read(tensor, ++commands->serial);
    return RG_OK;
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
