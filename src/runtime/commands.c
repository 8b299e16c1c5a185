/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Commands: recording entries, planning temporaries, committing submissions, completing them. */
#include "runtime/objects.h"

#include <stdatomic.h>

/* ---- submissions ---- */

static rg_status submission_create(rg_queue *queue, rg_submission **submission)
{
    void *memory;
    RG_TRY(rg_allocate_zero(&queue->device->allocator, sizeof(rg_submission), &memory));
    *submission = memory;
    (*submission)->refs = 1;
    (*submission)->queue = rg_queue_retain(queue);
    atomic_store(&(*submission)->state, RG_COMMANDS_RECORDING);
    return RG_OK;
}

/* What is only needed until the submission has run. */
static void submission_release_work(rg_submission *submission)
{
    const rg_allocator *allocator = &submission->queue->device->allocator;
    for (size_t i = 0; i < submission->temporaries_count; i++) {
        if (submission->temporaries[i]->submission != NULL) /* dropped without commit */
            submission->temporaries[i]->submission = NULL;
        rg_storage_release(submission->temporaries[i]);
    }
    for (size_t i = 0; i < submission->used_count; i++)
        rg_storage_release(submission->used[i]);
    rg_release(allocator, submission->entries, submission->entries_capacity);
    rg_release(allocator, submission->used, submission->used_capacity * sizeof submission->used[0]);
    rg_release(allocator, submission->relocations,
               submission->relocations_capacity * sizeof submission->relocations[0]);
    rg_release(allocator, submission->handlers,
               submission->handlers_capacity * sizeof submission->handlers[0]);
    rg_release(allocator, submission->ranges,
               submission->ranges_capacity * sizeof submission->ranges[0]);
    rg_release(allocator, submission->temporaries,
               submission->temporaries_capacity * sizeof submission->temporaries[0]);
    submission->entries = NULL;
    submission->entries_size = submission->entries_capacity = 0;
    submission->used_count = submission->used_capacity = 0;
    submission->relocations_count = submission->relocations_capacity = 0;
    submission->handlers_count = submission->handlers_capacity = 0;
    submission->ranges_count = submission->ranges_capacity = 0;
    submission->temporaries_count = submission->temporaries_capacity = 0;
    submission->used = NULL;
    submission->relocations = NULL;
    submission->handlers = NULL;
    submission->ranges = NULL;
    submission->temporaries = NULL;
}

rg_status rg_submission_need_completion(rg_submission *submission)
{
    if (submission->completion != NULL)
        return RG_OK;
    void *memory;
    RG_TRY(rg_allocate_zero(&submission->queue->device->allocator, sizeof(rg_completion), &memory));
    submission->completion = memory;
    submission->completion->refs = 1;
    atomic_store(&submission->completion->state, RG_COMMANDS_RECORDING);
    return RG_OK;
}

void rg_completion_release(const rg_allocator *allocator, rg_completion *completion)
{
    if (completion != NULL && --completion->refs == 0)
        rg_release(allocator, completion, sizeof *completion);
}

static void submission_set_state(rg_submission *submission, int state)
{
    if (submission->completion != NULL)
        atomic_store(&submission->completion->state, state);
    atomic_store(&submission->state, state);
}

static void submission_release(rg_submission *submission)
{
    while (submission != NULL && --submission->refs == 0) {
        rg_submission *before = submission->before;
        rg_queue *queue = submission->queue;
        if (atomic_load(&submission->state) == RG_COMMANDS_RECORDING)
            submission_set_state(submission, RG_COMMANDS_FAILED); /* dropped */
        rg_completion_release(&queue->device->allocator, submission->completion);
        submission_release_work(submission);
        rg_release(&queue->device->allocator, submission, sizeof *submission);
        rg_queue_release(queue);
        submission = before;
    }
}

/* Called by the backend when all entries have run, or one has faulted. */
static void submission_finished(rg_list *list)
{
    rg_submission *submission = (rg_submission *)list;
    submission->outcome = list->outcome;
    for (size_t i = 0; i < submission->handlers_count; i++)
        submission->handlers[i].function(submission->handlers[i].context, submission->outcome);
    submission_release_work(submission);
    submission_set_state(submission,
                         submission->outcome == RG_OK ? RG_COMMANDS_COMPLETED : RG_COMMANDS_FAILED);
    submission_release(submission);
}

static bool submission_is_done(rg_list *list)
{
    return atomic_load(&((rg_submission *)list)->state) >= RG_COMMANDS_COMPLETED;
}

/* ---- the heap of temporaries ---- */

rg_status rg_heap_take(rg_submission *submission, size_t bytes, size_t *offset)
{
    enum { ALIGNMENT = RG_SCRATCH_ALIGNMENT };
    RG_CHECK(bytes <= SIZE_MAX - ALIGNMENT, RG_OUT_OF_MEMORY,
             "out of memory: %zu bytes exceed the address space", bytes);
    bytes = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    bytes = bytes == 0 ? ALIGNMENT : bytes; /* so that every range has an address of its own */
    RG_TRY(rg_grow(&submission->queue->device->allocator, (void **)&submission->ranges,
                   &submission->ranges_capacity, submission->ranges_count,
                   sizeof submission->ranges[0]));
    size_t begin = 0, at = 0;
    while (at < submission->ranges_count && submission->ranges[at].begin - begin < bytes)
        begin = submission->ranges[at++].end;
    size_t end;
    RG_CHECK(!__builtin_add_overflow(begin, bytes, &end), RG_OUT_OF_MEMORY,
             "out of memory: the temporaries exceed the address space");
    memmove(submission->ranges + at + 1, submission->ranges + at,
            (submission->ranges_count - at) * sizeof submission->ranges[0]);
    submission->ranges[at] = (rg_range){ begin, end };
    submission->ranges_count++;
    submission->heap_size = end > submission->heap_size ? end : submission->heap_size;
    *offset = begin;
    return RG_OK;
}

void rg_heap_give(rg_submission *submission, size_t offset)
{
    size_t at = 0;
    while (submission->ranges[at].begin != offset)
        at++;
    submission->ranges_count--;
    memmove(submission->ranges + at, submission->ranges + at + 1,
            (submission->ranges_count - at) * sizeof submission->ranges[0]);
}

/* One allocation for all temporaries, scratch and fault words of the submission, then every pointer
 * into it is known. */
static rg_status place_temporaries(rg_submission *submission)
{
    rg_storage *block = NULL;
    const size_t words = (size_t)submission->list.fault_count * sizeof(uint32_t);
    size_t bytes;
    RG_CHECK(!__builtin_add_overflow(submission->heap_size, words, &bytes), RG_OUT_OF_MEMORY,
             "out of memory: the temporaries exceed the address space");
    if (bytes > 0) { /* scratch needs it, whether or not a temporary keeps it */
        RG_TRY(rg_heap_create(submission->queue->device, bytes, &block));
        const rg_status status = rg_submission_keep(submission, block);
        rg_storage_release(block);
        RG_TRY(status);
    }
    if (submission->list.fault_count > 0)
        submission->list.faults = (uint32_t *)(void *)(block->data + submission->heap_size);
    for (size_t i = 0; i < submission->temporaries_count; i++) {
        rg_storage *storage = submission->temporaries[i];
        storage->data = block->data + storage->offset;
        storage->block = rg_storage_retain(block);
        storage->submission = NULL;
    }
    for (size_t i = 0; i < submission->relocations_count; i++) {
        const rg_relocation *r = &submission->relocations[i];
        char *pointer = (r->storage != NULL ? r->storage->data : block->data) + r->offset;
        pointer += r->is_fault ? submission->heap_size : 0;
        memcpy(submission->entries + r->at, &pointer, sizeof pointer);
    }
    return RG_OK;
}

rg_status rg_submission_settle(rg_submission *submission)
{
    RG_TRY(place_temporaries(submission));
    submission->list.entries = submission->entries;
    submission->list.bytes = submission->entries_size;
    return RG_OK;
}

/* ---- commands ---- */

rg_status rg_commands_create(rg_queue *queue, rg_commands **commands)
{
    RG_CHECK_NOT_NULL(commands);
    *commands = NULL;
    RG_CHECK_NOT_NULL(queue);
    const rg_allocator *allocator = &queue->device->allocator;
    void *memory;
    RG_TRY(rg_allocate_zero(allocator, sizeof(rg_commands), &memory));
    rg_commands *made = memory;
    const rg_status status = submission_create(queue, &made->submission);
    if (status != RG_OK) {
        rg_release(allocator, memory, sizeof *made);
        return status;
    }
    made->queue = rg_queue_retain(queue);
    made->id = ++queue->device->commands_made;
    *commands = made;
    return RG_OK;
}

void rg_commands_destroy(rg_commands *commands)
{
    if (commands == NULL)
        return;
    rg_queue *queue = commands->queue;
    if (commands->last != NULL && !submission_is_done(&commands->last->list))
        queue->device->backend->wake(queue->queue);
    submission_release(commands->submission);
    submission_release(commands->last);
    rg_release(&queue->device->allocator, commands, sizeof *commands);
    rg_queue_release(queue);
}

rg_status rg_commands_recording(const rg_commands *commands, const char *who)
{
    RG_CHECK(commands != NULL, RG_INVALID_ARGUMENT, "%s: commands is NULL", who);
    RG_CHECK(commands->submission != NULL, RG_INVALID_STATE,
             "%s: the commands are already committed", who);
    return RG_OK;
}

/* Submissions that ran without error have nothing more to tell. */
static void forget_completed(rg_submission **submission)
{
    while (*submission != NULL) {
        rg_submission *done = *submission;
        if (atomic_load(&done->state) != RG_COMMANDS_COMPLETED) {
            submission = &done->before;
            continue;
        }
        *submission = done->before;
        done->before = NULL;
        submission_release(done);
    }
}

/* `next` becomes the submission being recorded; NULL ends recording. */
static rg_status commit(rg_commands *commands, rg_submission *next)
{
    rg_submission *submission = commands->submission;
    rg_queue *queue = commands->queue;
    RG_TRY(rg_submission_settle(submission));
    submission->list.finished = submission_finished;
    submission->list.watched = submission->handlers_count > 0;
    forget_completed(&commands->last);
    submission->before = commands->last;
    submission->refs++; /* the queue's */
    submission_set_state(submission, RG_COMMANDS_COMMITTED);
    commands->last = submission;
    commands->submission = next;
    rg_queue_retain(queue); /* a handler may destroy all there is before submit returns */
    queue->device->backend->submit(queue->queue, &submission->list);
    rg_queue_release(queue);
    return RG_OK;
}

rg_status rg_commands_commit(rg_commands *commands)
{
    RG_TRY(rg_commands_recording(commands, "rg_commands_commit"));
    return commit(commands, NULL);
}

rg_status rg_commands_commit_and_continue(rg_commands *commands)
{
    RG_TRY(rg_commands_recording(commands, "rg_commands_commit_and_continue"));
    rg_submission *next;
    RG_TRY(submission_create(commands->queue, &next));
    const rg_status status = commit(commands, next);
    if (status != RG_OK)
        submission_release(next);
    return status;
}

static const rg_submission *failed_submission(const rg_commands *commands)
{
    const rg_submission *failed = NULL; /* the earliest */
    for (rg_submission *submission = commands->last; submission != NULL;
         submission = submission->before)
        failed = atomic_load(&submission->state) == RG_COMMANDS_FAILED ? submission : failed;
    return failed;
}

rg_status rg_commands_wait(rg_commands *commands)
{
    RG_CHECK_NOT_NULL(commands);
    RG_CHECK(commands->submission == NULL, RG_INVALID_STATE,
             "rg_commands_wait: the commands are not committed; commit them first");
    RG_TRY(commands->queue->device->backend->wait(commands->queue->queue, &commands->last->list,
                                                  submission_is_done));
    const rg_submission *failed = failed_submission(commands);
    return failed == NULL ? RG_OK : rg_fail(failed->outcome, "%s", failed->list.fault_text);
}

rg_status rg_commands_on_completion(rg_commands *commands,
                                    void (*handler)(void *context, rg_status outcome),
                                    void *context)
{
    RG_TRY(rg_commands_recording(commands, "rg_commands_on_completion"));
    RG_CHECK_NOT_NULL(handler);
    rg_submission *submission = commands->submission;
    RG_TRY(rg_grow(&submission->queue->device->allocator, (void **)&submission->handlers,
                   &submission->handlers_capacity, submission->handlers_count,
                   sizeof submission->handlers[0]));
    submission->handlers[submission->handlers_count++] = (rg_handler){ handler, context };
    return RG_OK;
}

rg_commands_state rg_commands_get_state(rg_commands *commands)
{
    if (commands == NULL || commands->submission != NULL)
        return RG_COMMANDS_RECORDING;
    if (failed_submission(commands) != NULL)
        return RG_COMMANDS_FAILED;
    if (!submission_is_done(&commands->last->list)) {
        commands->queue->device->backend->wake(commands->queue->queue);
        return RG_COMMANDS_COMMITTED;
    }
    return RG_COMMANDS_COMPLETED;
}

const char *rg_commands_error_text(rg_commands *commands)
{
    const rg_submission *failed = commands != NULL ? failed_submission(commands) : NULL;
    return failed != NULL ? failed->list.fault_text : "";
}

rg_status rg_commands_set_results_hint(rg_commands *commands, rg_results_hint hint)
{
    RG_TRY(rg_commands_recording(commands, "rg_commands_set_results_hint"));
    RG_CHECK(hint == RG_RESULTS_BY_SIZE || hint == RG_RESULTS_READ_SOON ||
                 hint == RG_RESULTS_READ_LATER,
             RG_INVALID_ARGUMENT, "rg_commands_set_results_hint: unknown hint %d", (int)hint);
    commands->hint = hint;
    return RG_OK;
}

bool rg_call_streams(const rg_call *call, int64_t bytes)
{
    enum { LARGE = 12 << 20 }; /* about where rereading a result no longer finds it in the cache */
    const rg_results_hint hint = call->commands->hint;
    return hint == RG_RESULTS_BY_SIZE ? bytes >= LARGE : hint == RG_RESULTS_READ_LATER;
}

/* ---- recording ---- */

rg_mark rg_commands_mark(const rg_commands *commands)
{
    const rg_submission *submission = commands->submission;
    return (rg_mark){ .entries = submission->entries_size,
                      .used = submission->used_count,
                      .relocations = submission->relocations_count,
                      .temporaries = submission->temporaries_count,
                      .heap_size = submission->heap_size,
                      .moved = submission->list.moved,
                      .faults = submission->list.fault_count,
                      .merged = submission->list.merged };
}

void rg_commands_rewind(rg_commands *commands, rg_mark mark)
{
    rg_submission *submission = commands->submission;
    while (submission->used_count > mark.used)
        rg_storage_release(submission->used[--submission->used_count]);
    while (submission->temporaries_count > mark.temporaries)
        rg_storage_release(submission->temporaries[--submission->temporaries_count]);
    submission->heap_size = mark.heap_size;
    submission->entries_size = mark.entries;
    submission->relocations_count = mark.relocations;
    submission->list.moved = mark.moved;
    submission->list.fault_count = mark.faults;
    submission->list.merged = mark.merged;
}

rg_status rg_submission_reserve(rg_submission *submission, size_t size)
{
    size_t capacity = submission->entries_capacity;
    if (submission->entries_size + size <= capacity)
        return RG_OK;
    if (capacity == 0) /* enough for a few entries: most lists are short */
        capacity = 4096;
    while (capacity < submission->entries_size + size)
        capacity *= 2;
    void *larger;
    RG_TRY(rg_allocate(&submission->queue->device->allocator, capacity, &larger));
    if (submission->entries_size > 0)
        memcpy(larger, submission->entries, submission->entries_size);
    rg_release(&submission->queue->device->allocator, submission->entries,
               submission->entries_capacity);
    submission->entries = larger;
    submission->entries_capacity = capacity;
    return RG_OK;
}

/* Room for an entry with `args_size` bytes behind it; copies the args there. */
rg_status rg_submission_add(rg_submission *submission, const rg_entry *entry, const void *args,
                            size_t args_size, size_t *args_at)
{
    const size_t size = sizeof(rg_entry) + (args_size + 15) / 16 * 16;
    RG_TRY(rg_submission_reserve(submission, size));
    char *at = submission->entries + submission->entries_size;
    memcpy(at, entry, sizeof *entry);
    ((rg_entry *)(void *)at)->size = size;
    memcpy(at + sizeof *entry, args, args_size);
    *args_at = submission->entries_size + sizeof *entry;
    submission->entries_size += size;
    submission->list.moved += entry->bytes;
    return RG_OK;
}

/* A pointer of the args that is known at commit. */
rg_status rg_submission_relocate(rg_submission *submission, rg_relocation relocation)
{
    RG_TRY(rg_grow(&submission->queue->device->allocator, (void **)&submission->relocations,
                   &submission->relocations_capacity, submission->relocations_count,
                   sizeof submission->relocations[0]));
    submission->relocations[submission->relocations_count++] = relocation;
    return RG_OK;
}

rg_status rg_submission_keep(rg_submission *submission, rg_storage *storage)
{
    RG_TRY(rg_grow(&submission->queue->device->allocator, (void **)&submission->used,
                   &submission->used_capacity, submission->used_count, sizeof submission->used[0]));
    submission->used[submission->used_count++] = rg_storage_retain(storage);
    return RG_OK;
}

/* Fills in the pointer to a tensor: now if the address is known, at commit for a temporary. An
 * empty tensor has no storage; kernels are handed some address all the same, so that they may
 * reckon with it. */
rg_status rg_submission_bind(rg_submission *submission, size_t at, rg_storage *storage,
                             size_t offset)
{
    static _Alignas(RG_ALIGNMENT) char nothing[RG_ALIGNMENT];
    RG_TRY(rg_submission_keep(submission, storage));
    if (storage->submission != NULL)
        return rg_submission_relocate(
            submission, (rg_relocation){ .at = at, .storage = storage, .offset = offset });
    char *pointer = storage->data != NULL ? storage->data + offset : nothing;
    memcpy(submission->entries + at, &pointer, sizeof pointer);
    return RG_OK;
}

/* The pointer to scratch, which lives for one entry alone; a later one may have the same room. */
static rg_status bind_scratch(rg_submission *submission, size_t at, size_t bytes)
{
    size_t offset;
    RG_TRY(rg_heap_take(submission, bytes, &offset));
    rg_heap_give(submission, offset);
    return rg_submission_relocate(submission, (rg_relocation){ .at = at, .offset = offset });
}

static rg_status bind_fault(rg_submission *submission, size_t at, int32_t fault)
{
    const size_t offset = (size_t)fault * sizeof(uint32_t);
    RG_TRY(rg_submission_relocate(submission,
                                  (rg_relocation){ .at = at, .offset = offset, .is_fault = true }));
    submission->list.fault_count = fault + 1;
    return RG_OK;
}

/* Pointers to scratch of a launch, to that of all threads, or to both. */
static rg_status bind_launch_scratch(rg_submission *submission, size_t at, size_t bytes,
                                     size_t thread_bytes)
{
    const rg_device *device = submission->queue->device;
    const size_t align = RG_ALIGNMENT, own = (bytes + align - 1) / align * align;
    const int32_t lanes =
        device->backend->thread_scratch ? device->backend->threads(device->context) : 0;
    size_t all, offset;
    RG_CHECK(own >= bytes && !__builtin_mul_overflow(thread_bytes, (size_t)lanes, &all) &&
                 !__builtin_add_overflow(all, own, &all),
             RG_OUT_OF_MEMORY, "out of memory: the scratch exceeds the address space");
    RG_TRY(rg_heap_take(submission, all, &offset));
    rg_heap_give(submission, offset);
    if (bytes > 0) {
        RG_TRY(rg_submission_relocate(submission, (rg_relocation){ .at = at, .offset = offset }));
        at += sizeof(void *);
    }
    if (thread_bytes == 0 || lanes == 0)
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
                       .fault = submission->list.fault_count };
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
                                 .fault = commands->submission->list.fault_count };
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
