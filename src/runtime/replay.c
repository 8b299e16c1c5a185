/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Replays: recorded commands that a backend keeps and launches as one. */
#include "runtime/objects.h"

struct rg_replay {
    rg_device *device;
    rg_commands *commands; /* never committed: with their storage, scratch and fault words */
    void *captured;        /* the backend's */
    rg_storage *keeper;    /* frees all of it when it is no longer needed */
};

static void free_replay(void *context)
{
    rg_replay *replay = context;
    rg_device *device = replay->device;
    if (replay->captured != NULL)
        device->backend->let_go(device->context, replay->captured);
    rg_commands_destroy(replay->commands);
    rg_release(&device->allocator, replay, sizeof *replay);
    rg_device_destroy(device);
}

static rg_status fill_replay(rg_replay *replay, rg_queue *queue, const rg_commands *recorded,
                             const rg_stand_ins *stand_ins)
{
    const rg_device *device = replay->device;
    RG_TRY(rg_commands_create(queue, &replay->commands));
    RG_TRY(rg_commands_repeat(replay->commands, recorded, stand_ins));
    RG_TRY(rg_submission_resolve(replay->commands->submission));
    return device->backend->capture(device->context, &replay->commands->submission->base,
                                    &replay->captured);
}

rg_status rg_replay_create(rg_queue *queue, const rg_commands *recorded,
                           const rg_stand_ins *stand_ins, rg_replay **replay)
{
    rg_device *device = queue->device;
    rg_storage *keeper;
    void *memory;
    *replay = NULL;
    RG_CHECK(device->backend->capture != NULL, RG_UNSUPPORTED, "%s does not support replays",
             device->name);
    RG_TRY(rg_storage_create(device, 0, &keeper));
    rg_status status = rg_allocate_zero(&device->allocator, sizeof(rg_replay), &memory);
    if (status == RG_OK) {
        rg_replay *made = memory;
        *made = (rg_replay){ .device = rg_device_retain(device), .keeper = keeper };
        keeper->release = free_replay;
        keeper->context = made;
        status = fill_replay(made, queue, recorded, stand_ins);
        *replay = status == RG_OK ? made : NULL;
    }
    if (status != RG_OK)
        rg_storage_release(keeper);
    return status;
}

void rg_replay_destroy(rg_replay *replay)
{
    if (replay != NULL)
        rg_storage_release(replay->keeper);
}

/* ---- recording ---- */

/* Adds an entry that does nothing for each launch that may fault: it holds the launch's sentence.
 */
static rg_status add_sentences(rg_submission *submission, const rg_submission *from)
{
    static const rg_replay_args nothing;
    for (size_t at = 0; at < from->entries_size;) {
        const rg_entry *entry = (const rg_entry *)(const void *)(from->entries + at);
        const rg_entry sentence = { .function = submission->queue->device->backend->replay,
                                    .fault_text = entry->fault_text,
                                    .fault = submission->base.fault_count + entry->fault };
        size_t args_at;
        if (entry->fault_text != NULL)
            RG_TRY(rg_submission_add(submission, &sentence, &nothing, sizeof nothing, &args_at));
        at += entry->size;
    }
    return RG_OK;
}

static rg_status launch(rg_submission *submission, const rg_replay *replay)
{
    const rg_submission *from = replay->commands->submission;
    const rg_entry entry = { .function = replay->device->backend->replay,
                             .units = 1,
                             .grain = 1,
                             .bytes = from->base.moved_bytes };
    const rg_replay_args args = { .captured = replay->captured,
                                  .faults = from->base.faults,
                                  .fault_count = from->base.fault_count };
    size_t at;
    RG_TRY(rg_submission_keep(submission, replay->keeper));
    RG_TRY(rg_submission_add(submission, &entry, &args, sizeof args, &at));
    if (args.fault_count == 0)
        return RG_OK;
    const rg_relocation merged = { .at = at + offsetof(rg_replay_args, merged),
                                   .offset =
                                       (size_t)submission->base.fault_count * sizeof(uint32_t),
                                   .is_fault = true };
    RG_TRY(rg_submission_relocate(submission, merged));
    RG_TRY(add_sentences(submission, from));
    submission->base.fault_count += from->base.fault_count;
    submission->base.merged_fault_count += from->base.fault_count;
    return RG_OK;
}

rg_status rg_commands_launch(rg_commands *commands, const rg_replay *replay)
{
    const rg_mark mark = rg_commands_mark(commands);
    const rg_status status = launch(commands->submission, replay);
    if (status != RG_OK)
        rg_commands_rewind(commands, mark);
    return status;
}

static rg_status gather(rg_submission *submission, const rg_tensor *from, const rg_tensor *to,
                        const rg_copy_args *args, size_t bytes)
{
    const rg_entry entry = {
        .units = 1, .grain = 1, .bytes = 2 * (int64_t)bytes, .fault = submission->base.fault_count
    };
    size_t at;
    RG_TRY(rg_submission_add(submission, &entry, args, sizeof *args, &at));
    RG_TRY(rg_submission_bind(submission, at + offsetof(rg_copy_args, device), from->storage,
                              from->offset));
    RG_TRY(
        rg_submission_bind(submission, at + offsetof(rg_copy_args, host), to->storage, to->offset));
    if (rg_copy_is_dense(args))
        return RG_OK;
    return rg_submission_bind(submission, at + offsetof(rg_copy_args, staging), to->storage,
                              to->offset);
}

rg_status rg_commands_gather(rg_commands *commands, const rg_tensor *from, const rg_tensor *to)
{
    rg_copy_args args;
    const size_t bytes = (size_t)rg_shape_count(&to->desc) * rg_dtype_size(to->desc.dtype);
    if (bytes == 0)
        return RG_OK;
    RG_TRY(
        rg_tensor_copy_args(from, to->storage->data, bytes, RG_LAYOUT_SAME, true, __func__, &args));
    const rg_mark mark = rg_commands_mark(commands);
    const rg_status status = gather(commands->submission, from, to, &args, bytes);
    if (status != RG_OK)
        rg_commands_rewind(commands, mark);
    return status;
}
