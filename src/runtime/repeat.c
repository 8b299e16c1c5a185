/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Repetitions: commands recorded once, copied into others with tensors instead of stand-ins. */
#include "runtime/objects.h"

/* What of a submission is repeated. */
typedef struct range {
    size_t begin, end;           /* bytes of its entries */
    int32_t faults, fault_count; /* their fault words: the first, and how many */
} range;

/* The number of fault words before the entry at `at`. */
static int32_t faults_before(const rg_submission *from, size_t at)
{
    if (at >= from->entries_size)
        return from->base.fault_count;
    return ((const rg_entry *)(const void *)(from->entries + at))->fault;
}

static range range_of(const rg_submission *from, const rg_stand_ins *stand_ins)
{
    range r = { stand_ins->begin, stand_ins->end > 0 ? stand_ins->end : from->entries_size, 0, 0 };
    r.faults = faults_before(from, r.begin);
    r.fault_count = faults_before(from, r.end) - r.faults;
    return r;
}

/* Adds the entries of `from` to those of `submission`, with fault words of their own. */
static rg_status repeat_entries(rg_submission *submission, const rg_submission *from,
                                const range *repeated)
{
    const size_t begin = repeated->begin, end = repeated->end;
    if (begin == end)
        return RG_OK;
    RG_TRY(rg_submission_reserve(submission, end - begin));
    char *entries = submission->entries + submission->entries_size;
    memcpy(entries, from->entries + begin, end - begin);
    for (size_t at = 0; at < end - begin;) {
        rg_entry *entry = (rg_entry *)(void *)(entries + at);
        entry->fault += submission->base.fault_count - repeated->faults;
        submission->base.moved_bytes += entry->bytes;
        at += entry->size;
    }
    submission->entries_size += end - begin;
    return RG_OK;
}

/* Storages that `from` keeps alive, each once: stand-ins are left out. */
static rg_status repeat_used(rg_submission *submission, const rg_submission *from)
{
    for (size_t i = 0; i < from->used_count; i++) {
        const bool again = i > 0 && from->used[i] == from->used[i - 1];
        if (from->used[i]->submission != NULL || again)
            continue;
        RG_TRY(rg_submission_keep(submission, from->used[i]));
    }
    return RG_OK;
}

/* The tensor that takes the place of a stand-in with this storage; NULL for a temporary. */
static const rg_tensor *stand_for(const rg_stand_ins *s, const rg_storage *storage, size_t *offset)
{
    for (int32_t i = 0; i < s->count; i++) {
        if (s->tensors[i]->storage == storage) {
            *offset += s->stand_for[i]->offset - s->tensors[i]->offset;
            return s->stand_for[i];
        }
    }
    return NULL;
}

/* The first relocation in the entry at `begin` or after it: relocations are in the order of
 * entries. */
static size_t first_relocation(const rg_submission *from, size_t begin)
{
    size_t low = 0, high = from->relocations_count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (from->relocations[middle].at < begin)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static rg_status repeat_relocations(rg_submission *submission, const rg_submission *from,
                                    size_t entries, size_t heap, const range *repeated,
                                    const rg_stand_ins *stand_ins)
{
    for (size_t i = first_relocation(from, repeated->begin);
         i < from->relocations_count && from->relocations[i].at < repeated->end; i++) {
        rg_relocation r = from->relocations[i];
        r.at += entries - repeated->begin;
        const rg_tensor *tensor =
            r.storage != NULL ? stand_for(stand_ins, r.storage, &r.offset) : NULL;
        if (tensor != NULL) {
            RG_TRY(rg_submission_bind(submission, r.at, tensor->storage, r.offset));
            continue;
        }
        if (r.is_fault)
            r.offset +=
                (size_t)(submission->base.fault_count - repeated->faults) * sizeof(uint32_t);
        else
            r.offset += heap + (r.storage != NULL ? r.storage->offset : 0);
        r.storage = NULL;
        RG_TRY(rg_submission_relocate(submission, r));
    }
    return RG_OK;
}

static rg_status repeat(rg_submission *submission, const rg_submission *from,
                        const rg_stand_ins *stand_ins)
{
    const size_t entries = submission->entries_size;
    size_t heap = 0;
    if (from->heap_size > 0) {
        RG_TRY(rg_heap_take(submission, from->heap_size, &heap));
        rg_heap_give(submission, heap);
    }
    const range repeated = range_of(from, stand_ins);
    RG_TRY(repeat_entries(submission, from, &repeated));
    if (!stand_ins->waits)
        RG_TRY(repeat_used(submission, from));
    RG_TRY(repeat_relocations(submission, from, entries, heap, &repeated, stand_ins));
    submission->base.fault_count += repeated.fault_count;
    return RG_OK;
}

rg_status rg_commands_repeat(rg_commands *commands, const rg_commands *recorded,
                             const rg_stand_ins *stand_ins)
{
    const rg_mark mark = rg_commands_mark(commands);
    const rg_status status = repeat(commands->submission, recorded->submission, stand_ins);
    if (status != RG_OK)
        rg_commands_rewind(commands, mark);
    return status;
}

/* Pointers into the heap of a submission that is only repeated are filled in; those to stand-ins
 * and fault words stay open. */
static void resolve_heap(rg_submission *submission, const rg_storage *block,
                         const rg_stand_ins *stand_ins)
{
    size_t kept = 0;
    for (size_t i = 0; i < submission->relocations_count; i++) {
        const rg_relocation r = submission->relocations[i];
        size_t offset = r.offset;
        if (r.is_fault || (r.storage != NULL && stand_for(stand_ins, r.storage, &offset) != NULL)) {
            submission->relocations[kept++] = r;
            continue;
        }
        char *pointer = block->data + r.offset + (r.storage != NULL ? r.storage->offset : 0);
        memcpy(submission->entries + r.at, &pointer, sizeof pointer);
    }
    submission->relocations_count = kept;
    submission->heap_size = 0;
}

rg_status rg_commands_keep_heap(rg_commands *recorded, const rg_stand_ins *stand_ins)
{
    rg_submission *submission = recorded->submission;
    rg_storage *block;
    if (submission->heap_size == 0)
        return RG_OK;
    RG_TRY(rg_storage_create(submission->queue->device, submission->heap_size, &block));
    const rg_status status = rg_submission_keep(submission, block);
    if (status == RG_OK)
        resolve_heap(submission, block, stand_ins);
    rg_storage_release(block);
    return status;
}

rg_status rg_stand_in_create(rg_commands *commands, const rg_tensor_desc *desc, size_t offset,
                             rg_tensor **tensor)
{
    RG_TRY(rg_tensor_make(commands->queue->device, desc, tensor));
    RG_TRY(rg_storage_create(commands->queue->device, 0, &(*tensor)->storage));
    (*tensor)->storage->submission = commands->submission;
    (*tensor)->offset = offset;
    return RG_OK;
}
