/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Submissions: their life, their entries, and the heap of their temporaries. */
#include "runtime/objects.h"

#include <stdatomic.h>

/* ---- memory that the next submission takes over ---- */

/* At the start of the entries of a submission that has run. Memory that grows anew with every
 * commit would be given back to the system, and faulted in, each time. */
typedef struct rg_spare {
    size_t entries_capacity, used_capacity, relocations_capacity;
    rg_storage **used;
    rg_relocation *relocations;
} rg_spare;

static void release_arrays(const rg_allocator *allocator, void *entries, const rg_spare *arrays)
{
    rg_release(allocator, arrays->used, arrays->used_capacity * sizeof arrays->used[0]);
    rg_release(allocator, arrays->relocations,
               arrays->relocations_capacity * sizeof arrays->relocations[0]);
    rg_release(allocator, entries, arrays->entries_capacity);
}

void rg_spare_release(const rg_allocator *allocator, rg_spare *spare)
{
    if (spare == NULL)
        return;
    const rg_spare arrays = *spare;
    release_arrays(allocator, spare, &arrays);
}

/* Entries, and what grows with them. */
static void leave_arrays(rg_submission *submission)
{
    enum { MOST_BYTES = 1 << 20 };
    const rg_allocator *allocator = &submission->queue->device->allocator;
    const rg_spare arrays = { submission->entries_capacity, submission->used_capacity,
                              submission->relocations_capacity, submission->used,
                              submission->relocations };
    if (arrays.entries_capacity == 0 || arrays.entries_capacity > MOST_BYTES) {
        release_arrays(allocator, submission->entries, &arrays);
        return;
    }
    rg_spare *const spare = (rg_spare *)(void *)submission->entries;
    *spare = arrays;
    rg_spare_release(allocator, atomic_exchange(&submission->queue->spare, spare));
}

static void take_arrays(rg_submission *submission)
{
    rg_spare *const spare = atomic_exchange(&submission->queue->spare, NULL);
    if (spare == NULL)
        return;
    submission->entries_capacity = spare->entries_capacity;
    submission->used_capacity = spare->used_capacity;
    submission->relocations_capacity = spare->relocations_capacity;
    submission->used = spare->used;
    submission->relocations = spare->relocations;
    submission->entries = (char *)spare;
}

/* ---- life ---- */

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
    leave_arrays(submission);
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

void rg_submission_set_state(rg_submission *submission, int state)
{
    if (submission->completion != NULL)
        atomic_store(&submission->completion->state, state);
    atomic_store(&submission->state, state);
}

void rg_submission_release(rg_submission *submission)
{
    while (submission != NULL && --submission->refs == 0) {
        rg_submission *before = submission->before;
        rg_queue *queue = submission->queue;
        if (atomic_load(&submission->state) == RG_COMMANDS_RECORDING)
            rg_submission_set_state(submission, RG_COMMANDS_FAILED); /* dropped */
        rg_completion_release(&queue->device->allocator, submission->completion);
        submission_release_work(submission);
        rg_release(&queue->device->allocator, submission, sizeof *submission);
        rg_queue_release(queue);
        submission = before;
    }
}

/* Called by the backend when all entries have run, or one has faulted. */
static void submission_finished(rg_backend_submission *base)
{
    rg_submission *submission = (rg_submission *)base;
    submission->outcome = base->outcome;
    if (submission->outcome != RG_OK && submission->handlers_count > 0)
        (void)rg_fail(submission->outcome, "%s", base->fault_text); /* for rg_error_text() there */
    for (size_t i = 0; i < submission->handlers_count; i++)
        submission->handlers[i].function(submission->handlers[i].context, submission->outcome);
    submission_release_work(submission);
    rg_submission_set_state(submission, submission->outcome == RG_OK ? RG_COMMANDS_COMPLETED
                                                                     : RG_COMMANDS_FAILED);
    rg_submission_release(submission);
}

rg_status rg_submission_create(rg_queue *queue, rg_submission **submission)
{
    void *memory;
    RG_TRY(rg_allocate_zero(&queue->device->allocator, sizeof(rg_submission), &memory));
    *submission = memory;
    (*submission)->refs = 1;
    (*submission)->queue = rg_queue_retain(queue);
    (*submission)->base.finished = submission_finished;
    atomic_store(&(*submission)->state, RG_COMMANDS_RECORDING);
    take_arrays(*submission);
    return RG_OK;
}

bool rg_submission_is_done(rg_backend_submission *base)
{
    return atomic_load(&((rg_submission *)base)->state) >= RG_COMMANDS_COMPLETED;
}

/* ---- entries ---- */

rg_status rg_submission_reserve(rg_submission *submission, size_t size)
{
    size_t capacity = submission->entries_capacity;
    if (submission->entries_size + size <= capacity)
        return RG_OK;
    if (capacity == 0) /* enough for a few entries: most submissions are short */
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
    submission->base.moved_bytes += entry->bytes;
    return RG_OK;
}

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

/* An empty tensor has no storage; kernels are handed some address all the same, so that they may
 * compute with it. */
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
    const size_t words = (size_t)submission->base.fault_count * sizeof(uint32_t);
    size_t bytes;
    RG_CHECK(!__builtin_add_overflow(submission->heap_size, words, &bytes), RG_OUT_OF_MEMORY,
             "out of memory: the temporaries exceed the address space");
    if (bytes > 0) { /* scratch needs it, whether or not a temporary keeps it */
        RG_TRY(rg_heap_create(submission->queue->device, bytes, &block));
        const rg_status status = rg_submission_keep(submission, block);
        rg_storage_release(block);
        RG_TRY(status);
    }
    if (submission->base.fault_count > 0)
        submission->base.faults = (uint32_t *)(void *)(block->data + submission->heap_size);
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

rg_status rg_submission_resolve(rg_submission *submission)
{
    RG_TRY(place_temporaries(submission));
    submission->base.entries = submission->entries;
    submission->base.bytes = submission->entries_size;
    submission->base.has_handler = submission->handlers_count > 0;
    return RG_OK;
}
