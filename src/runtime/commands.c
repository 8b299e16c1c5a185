/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Commands: recording entries, planning temporaries, committing parts, completing them. */
#include "runtime/objects.h"

#include <stdatomic.h>

/* ---- parts ---- */

static rg_status part_create(rg_queue *queue, rg_part **part)
{
    void *memory;
    RG_TRY(rg_allocate_zero(&queue->device->allocator, sizeof(rg_part), &memory));
    *part = memory;
    (*part)->refs = 1;
    (*part)->queue = rg_queue_retain(queue);
    atomic_store(&(*part)->state, RG_COMMANDS_RECORDING);
    return RG_OK;
}

/* What is only needed until the part has run. */
static void part_release_work(rg_part *part)
{
    const rg_allocator *allocator = &part->queue->device->allocator;
    for (size_t i = 0; i < part->temporaries_count; i++) {
        if (part->temporaries[i]->part != NULL) /* dropped without commit */
            part->temporaries[i]->part = NULL;
        rg_storage_release(part->temporaries[i]);
    }
    for (size_t i = 0; i < part->used_count; i++)
        rg_storage_release(part->used[i]);
    rg_release(allocator, part->entries, part->entries_capacity);
    rg_release(allocator, part->used, part->used_capacity * sizeof part->used[0]);
    rg_release(allocator, part->relocations,
               part->relocations_capacity * sizeof part->relocations[0]);
    rg_release(allocator, part->handlers, part->handlers_capacity * sizeof part->handlers[0]);
    rg_release(allocator, part->ranges, part->ranges_capacity * sizeof part->ranges[0]);
    rg_release(allocator, part->temporaries,
               part->temporaries_capacity * sizeof part->temporaries[0]);
    part->entries = NULL;
    part->entries_size = part->entries_capacity = 0;
    part->used_count = part->used_capacity = 0;
    part->relocations_count = part->relocations_capacity = 0;
    part->handlers_count = part->handlers_capacity = 0;
    part->ranges_count = part->ranges_capacity = 0;
    part->temporaries_count = part->temporaries_capacity = 0;
    part->used = NULL;
    part->relocations = NULL;
    part->handlers = NULL;
    part->ranges = NULL;
    part->temporaries = NULL;
}

rg_status rg_part_need_fate(rg_part *part)
{
    if (part->fate != NULL)
        return RG_OK;
    void *memory;
    RG_TRY(rg_allocate_zero(&part->queue->device->allocator, sizeof(rg_fate), &memory));
    part->fate = memory;
    part->fate->refs = 1;
    atomic_store(&part->fate->state, RG_COMMANDS_RECORDING);
    return RG_OK;
}

void rg_fate_release(const rg_allocator *allocator, rg_fate *fate)
{
    if (fate != NULL && --fate->refs == 0)
        rg_release(allocator, fate, sizeof *fate);
}

static void part_set_state(rg_part *part, int state)
{
    if (part->fate != NULL)
        atomic_store(&part->fate->state, state);
    atomic_store(&part->state, state);
}

static void part_release(rg_part *part)
{
    while (part != NULL && --part->refs == 0) {
        rg_part *before = part->before;
        rg_queue *queue = part->queue;
        if (atomic_load(&part->state) == RG_COMMANDS_RECORDING)
            part_set_state(part, RG_COMMANDS_FAILED); /* dropped */
        rg_fate_release(&queue->device->allocator, part->fate);
        part_release_work(part);
        rg_release(&queue->device->allocator, part, sizeof *part);
        rg_queue_release(queue);
        part = before;
    }
}

/* Called by the backend when all entries have run, or one has faulted. */
static void part_finished(rg_list *list)
{
    rg_part *part = (rg_part *)list;
    part->outcome = list->outcome;
    for (size_t i = 0; i < part->handlers_count; i++)
        part->handlers[i].function(part->handlers[i].context, part->outcome);
    part_release_work(part);
    part_set_state(part, part->outcome == RG_OK ? RG_COMMANDS_COMPLETED : RG_COMMANDS_FAILED);
    part_release(part);
}

static bool part_is_done(rg_list *list)
{
    return atomic_load(&((rg_part *)list)->state) >= RG_COMMANDS_COMPLETED;
}

/* ---- the heap of temporaries ---- */

rg_status rg_heap_take(rg_part *part, size_t bytes, size_t *offset)
{
    enum { ALIGNMENT = RG_SCRATCH_ALIGNMENT };
    RG_CHECK(bytes <= SIZE_MAX - ALIGNMENT, RG_OUT_OF_MEMORY,
             "out of memory: %zu bytes exceed the address space", bytes);
    bytes = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    bytes = bytes == 0 ? ALIGNMENT : bytes; /* so that every range has an address of its own */
    RG_TRY(rg_grow(&part->queue->device->allocator, (void **)&part->ranges, &part->ranges_capacity,
                   part->ranges_count, sizeof part->ranges[0]));
    size_t begin = 0, at = 0;
    while (at < part->ranges_count && part->ranges[at].begin - begin < bytes)
        begin = part->ranges[at++].end;
    size_t end;
    RG_CHECK(!__builtin_add_overflow(begin, bytes, &end), RG_OUT_OF_MEMORY,
             "out of memory: the temporaries need more than the address space");
    memmove(part->ranges + at + 1, part->ranges + at,
            (part->ranges_count - at) * sizeof part->ranges[0]);
    part->ranges[at] = (rg_range){ begin, end };
    part->ranges_count++;
    part->heap_size = end > part->heap_size ? end : part->heap_size;
    *offset = begin;
    return RG_OK;
}

void rg_heap_give(rg_part *part, size_t offset)
{
    size_t at = 0;
    while (part->ranges[at].begin != offset)
        at++;
    part->ranges_count--;
    memmove(part->ranges + at, part->ranges + at + 1,
            (part->ranges_count - at) * sizeof part->ranges[0]);
}

/* One allocation for all temporaries, scratch and fault words of the part, then every pointer into
 * it is known. */
static rg_status place_temporaries(rg_part *part)
{
    rg_storage *block = NULL;
    const size_t words = (size_t)part->list.fault_count * sizeof(uint32_t);
    size_t bytes;
    RG_CHECK(!__builtin_add_overflow(part->heap_size, words, &bytes), RG_OUT_OF_MEMORY,
             "out of memory: the temporaries need more than the address space");
    if (bytes > 0) { /* scratch needs it, whether or not a temporary keeps it */
        RG_TRY(rg_heap_create(part->queue->device, bytes, &block));
        const rg_status status = rg_part_keep(part, block);
        rg_storage_release(block);
        RG_TRY(status);
    }
    if (part->list.fault_count > 0)
        part->list.faults = (uint32_t *)(void *)(block->data + part->heap_size);
    for (size_t i = 0; i < part->temporaries_count; i++) {
        rg_storage *storage = part->temporaries[i];
        storage->data = block->data + storage->offset;
        storage->block = rg_storage_retain(block);
        storage->part = NULL;
    }
    for (size_t i = 0; i < part->relocations_count; i++) {
        const rg_relocation *r = &part->relocations[i];
        char *pointer = (r->storage != NULL ? r->storage->data : block->data) + r->offset;
        pointer += r->is_fault ? part->heap_size : 0;
        memcpy(part->entries + r->at, &pointer, sizeof pointer);
    }
    return RG_OK;
}

rg_status rg_part_settle(rg_part *part)
{
    RG_TRY(place_temporaries(part));
    part->list.entries = part->entries;
    part->list.bytes = part->entries_size;
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
    const rg_status status = part_create(queue, &made->part);
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
    if (commands->last != NULL && !part_is_done(&commands->last->list))
        queue->device->backend->nudge(queue->queue);
    part_release(commands->part);
    part_release(commands->last);
    rg_release(&queue->device->allocator, commands, sizeof *commands);
    rg_queue_release(queue);
}

rg_status rg_commands_recording(const rg_commands *commands, const char *who)
{
    RG_CHECK(commands != NULL, RG_INVALID_ARGUMENT, "%s: commands is NULL", who);
    RG_CHECK(commands->part != NULL, RG_INVALID_STATE, "%s: the commands are committed already",
             who);
    return RG_OK;
}

/* Parts that ran without error have nothing more to tell. */
static void forget_completed(rg_part **part)
{
    while (*part != NULL) {
        rg_part *done = *part;
        if (atomic_load(&done->state) != RG_COMMANDS_COMPLETED) {
            part = &done->before;
            continue;
        }
        *part = done->before;
        done->before = NULL;
        part_release(done);
    }
}

/* `next` becomes the part being recorded; NULL ends recording. */
static rg_status commit(rg_commands *commands, rg_part *next)
{
    rg_part *part = commands->part;
    rg_queue *queue = commands->queue;
    RG_TRY(rg_part_settle(part));
    part->list.finished = part_finished;
    part->list.watched = part->handlers_count > 0;
    forget_completed(&commands->last);
    part->before = commands->last;
    part->refs++; /* the queue's */
    part_set_state(part, RG_COMMANDS_COMMITTED);
    commands->last = part;
    commands->part = next;
    rg_queue_retain(queue); /* a handler may destroy all there is before submit returns */
    queue->device->backend->submit(queue->queue, &part->list);
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
    rg_part *next;
    RG_TRY(part_create(commands->queue, &next));
    const rg_status status = commit(commands, next);
    if (status != RG_OK)
        part_release(next);
    return status;
}

static const rg_part *failed_part(const rg_commands *commands)
{
    const rg_part *failed = NULL; /* the earliest */
    for (rg_part *part = commands->last; part != NULL; part = part->before)
        failed = atomic_load(&part->state) == RG_COMMANDS_FAILED ? part : failed;
    return failed;
}

rg_status rg_commands_wait(rg_commands *commands)
{
    RG_CHECK_NOT_NULL(commands);
    RG_CHECK(commands->part == NULL, RG_INVALID_STATE,
             "rg_commands_wait: the commands are still being recorded; commit them first");
    RG_TRY(commands->queue->device->backend->wait(commands->queue->queue, &commands->last->list,
                                                  part_is_done));
    const rg_part *failed = failed_part(commands);
    return failed == NULL ? RG_OK : rg_fail(failed->outcome, "%s", failed->list.fault_text);
}

rg_status rg_commands_on_completion(rg_commands *commands,
                                    void (*handler)(void *context, rg_status outcome),
                                    void *context)
{
    RG_TRY(rg_commands_recording(commands, "rg_commands_on_completion"));
    RG_CHECK_NOT_NULL(handler);
    rg_part *part = commands->part;
    RG_TRY(rg_grow(&part->queue->device->allocator, (void **)&part->handlers,
                   &part->handlers_capacity, part->handlers_count, sizeof part->handlers[0]));
    part->handlers[part->handlers_count++] = (rg_handler){ handler, context };
    return RG_OK;
}

rg_commands_state rg_commands_get_state(rg_commands *commands)
{
    if (commands == NULL || commands->part != NULL)
        return RG_COMMANDS_RECORDING;
    if (failed_part(commands) != NULL)
        return RG_COMMANDS_FAILED;
    if (!part_is_done(&commands->last->list)) {
        commands->queue->device->backend->nudge(commands->queue->queue);
        return RG_COMMANDS_COMMITTED;
    }
    return RG_COMMANDS_COMPLETED;
}

const char *rg_commands_error_text(rg_commands *commands)
{
    const rg_part *failed = commands != NULL ? failed_part(commands) : NULL;
    return failed != NULL ? failed->list.fault_text : "";
}

rg_status rg_commands_set_results_hint(rg_commands *commands, rg_results_hint hint)
{
    RG_TRY(rg_commands_recording(commands, "rg_commands_set_results_hint"));
    RG_CHECK(hint == RG_RESULTS_BY_SIZE || hint == RG_RESULTS_READ_SOON ||
                 hint == RG_RESULTS_READ_LATER,
             RG_INVALID_ARGUMENT, "rg_commands_set_results_hint: there is no hint %d", (int)hint);
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
    const rg_part *part = commands->part;
    return (rg_mark){ .entries = part->entries_size,
                      .used = part->used_count,
                      .relocations = part->relocations_count,
                      .temporaries = part->temporaries_count,
                      .heap_size = part->heap_size,
                      .moved = part->list.moved,
                      .faults = part->list.fault_count,
                      .merged = part->list.merged };
}

void rg_commands_rewind(rg_commands *commands, rg_mark mark)
{
    rg_part *part = commands->part;
    while (part->used_count > mark.used)
        rg_storage_release(part->used[--part->used_count]);
    while (part->temporaries_count > mark.temporaries)
        rg_storage_release(part->temporaries[--part->temporaries_count]);
    part->heap_size = mark.heap_size;
    part->entries_size = mark.entries;
    part->relocations_count = mark.relocations;
    part->list.moved = mark.moved;
    part->list.fault_count = mark.faults;
    part->list.merged = mark.merged;
}

rg_status rg_part_make_room(rg_part *part, size_t size)
{
    size_t capacity = part->entries_capacity;
    if (part->entries_size + size <= capacity)
        return RG_OK;
    if (capacity == 0) /* enough for a few entries: most lists are short */
        capacity = 4096;
    while (capacity < part->entries_size + size)
        capacity *= 2;
    void *larger;
    RG_TRY(rg_allocate(&part->queue->device->allocator, capacity, &larger));
    if (part->entries_size > 0)
        memcpy(larger, part->entries, part->entries_size);
    rg_release(&part->queue->device->allocator, part->entries, part->entries_capacity);
    part->entries = larger;
    part->entries_capacity = capacity;
    return RG_OK;
}

/* Room for an entry with `args_size` bytes behind it; copies the args there. */
rg_status rg_part_add(rg_part *part, const rg_entry *entry, const void *args, size_t args_size,
                      size_t *args_at)
{
    const size_t size = sizeof(rg_entry) + (args_size + 15) / 16 * 16;
    RG_TRY(rg_part_make_room(part, size));
    char *at = part->entries + part->entries_size;
    memcpy(at, entry, sizeof *entry);
    ((rg_entry *)(void *)at)->size = size;
    memcpy(at + sizeof *entry, args, args_size);
    *args_at = part->entries_size + sizeof *entry;
    part->entries_size += size;
    part->list.moved += entry->bytes;
    return RG_OK;
}

/* A pointer of the args that is known at commit. */
rg_status rg_part_relocate(rg_part *part, rg_relocation relocation)
{
    RG_TRY(rg_grow(&part->queue->device->allocator, (void **)&part->relocations,
                   &part->relocations_capacity, part->relocations_count,
                   sizeof part->relocations[0]));
    part->relocations[part->relocations_count++] = relocation;
    return RG_OK;
}

rg_status rg_part_keep(rg_part *part, rg_storage *storage)
{
    RG_TRY(rg_grow(&part->queue->device->allocator, (void **)&part->used, &part->used_capacity,
                   part->used_count, sizeof part->used[0]));
    part->used[part->used_count++] = rg_storage_retain(storage);
    return RG_OK;
}

/* Fills in the pointer to a tensor: now if the address is known, at commit for a temporary. An
 * empty tensor has no storage; kernels are handed some address all the same, so that they may
 * reckon with it. */
rg_status rg_part_bind(rg_part *part, size_t at, rg_storage *storage, size_t offset)
{
    static _Alignas(RG_ALIGNMENT) char nothing[RG_ALIGNMENT];
    RG_TRY(rg_part_keep(part, storage));
    if (storage->part != NULL)
        return rg_part_relocate(part,
                                (rg_relocation){ .at = at, .storage = storage, .offset = offset });
    char *pointer = storage->data != NULL ? storage->data + offset : nothing;
    memcpy(part->entries + at, &pointer, sizeof pointer);
    return RG_OK;
}

/* The pointer to scratch, which lives for one entry alone; a later one may have the same room. */
static rg_status bind_scratch(rg_part *part, size_t at, size_t bytes)
{
    size_t offset;
    RG_TRY(rg_heap_take(part, bytes, &offset));
    rg_heap_give(part, offset);
    return rg_part_relocate(part, (rg_relocation){ .at = at, .offset = offset });
}

static rg_status bind_fault(rg_part *part, size_t at, int32_t fault)
{
    const size_t offset = (size_t)fault * sizeof(uint32_t);
    RG_TRY(rg_part_relocate(part, (rg_relocation){ .at = at, .offset = offset, .is_fault = true }));
    part->list.fault_count = fault + 1;
    return RG_OK;
}

/* Pointers to scratch of a launch, to that of all threads, or to both. */
static rg_status bind_launch_scratch(rg_part *part, size_t at, size_t bytes, size_t lane_bytes)
{
    const rg_device *device = part->queue->device;
    const size_t align = RG_ALIGNMENT, own = (bytes + align - 1) / align * align;
    const int32_t lanes = device->backend->lanes ? device->backend->threads(device->context) : 0;
    size_t all, offset;
    RG_CHECK(own >= bytes && !__builtin_mul_overflow(lane_bytes, (size_t)lanes, &all) &&
                 !__builtin_add_overflow(all, own, &all),
             RG_OUT_OF_MEMORY, "out of memory: scratch needs more than the address space");
    RG_TRY(rg_heap_take(part, all, &offset));
    rg_heap_give(part, offset);
    if (bytes > 0) {
        RG_TRY(rg_part_relocate(part, (rg_relocation){ .at = at, .offset = offset }));
        at += sizeof(void *);
    }
    if (lane_bytes == 0 || lanes == 0)
        return RG_OK;
    return rg_part_relocate(part, (rg_relocation){ .at = at, .offset = offset + own });
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
    rg_part *part = call->commands->part;
    rg_device *device = part->queue->device;
    rg_entry entry = { .units = launch->units,
                       .grain = launch->grain,
                       .bytes = launch->bytes,
                       .fault_text = launch->fault_text,
                       .fault = part->list.fault_count };
    entry.function =
        device->backend->find(device->context, call->op->kernels, launch->kernel, launch->dtype);
    RG_CHECK(entry.function != NULL, RG_UNSUPPORTED, "%s: no kernel for %s on %s", call->op->name,
             rg_dtype_name(launch->dtype), device->name);
    const size_t scratch = entry.scratch = scratch_of(call, launch);
    size_t at;
    RG_TRY(rg_part_add(part, &entry, launch->args, launch->args_size, &at));
    const rg_tensor *const *tensors = launch->list != NULL ? launch->list : launch->tensors;
    const int32_t most = launch->list != NULL ? launch->length : RG_MAX_POINTERS;
    for (int32_t i = 0; i < most; i++, at += sizeof(void *)) {
        if (tensors[i] != NULL)
            RG_TRY(rg_part_bind(part, at, tensors[i]->storage, tensors[i]->offset));
        else if (launch->list == NULL)
            break;
    }
    if (scratch > 0 || launch->lane_scratch > 0)
        RG_TRY(bind_launch_scratch(part, at, scratch, launch->lane_scratch));
    at += (scratch > 0 ? sizeof(void *) : 0) + (launch->lane_scratch > 0 ? sizeof(void *) : 0);
    return launch->fault_text != NULL ? bind_fault(part, at, entry.fault) : RG_OK;
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
                                 .fault = commands->part->list.fault_count };
        size_t at;
        rg_status status = rg_part_add(commands->part, &entry, &args, sizeof args, &at);
        if (status == RG_OK)
            status = rg_part_bind(commands->part, at, tensor->storage, tensor->offset);
        if (status == RG_OK && commands->queue->device->backend->stages && !rg_copy_is_dense(&args))
            status = bind_scratch(commands->part, at + offsetof(rg_copy_args, staging), bytes);
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
