/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Launches that a node keeps: recorded once for a set of shapes with stand-ins for the runtime's
 * tensors, then run with other addresses. A small tensor is computed sooner than a call of an op is
 * checked and recorded. */
#include "ort/ort_launch.h"
#include "runtime/objects.h"

#include <stdlib.h>

/* The tensor among `tensors` with this storage; -1: none. */
static int32_t tensor_of(rg_tensor *const tensors[], int32_t count, const rg_storage *storage)
{
    for (int32_t i = 0; i < count && storage != NULL; i++) {
        if (tensors[i] != NULL && tensors[i]->storage == storage)
            return i;
    }
    return -1;
}

void rg_ort_prepared_keep(rg_ort_prepared *prepared, const rg_commands *commands,
                          rg_tensor *const tensors[], int32_t count)
{
    const rg_submission *from = commands->submission;
    prepared->size = 0;
    if (from->entries_size == 0 || from->entries_size > sizeof prepared->entries ||
        from->base.fault_count > 0 || from->relocations_count > RG_ORT_POINTERS ||
        from->heap_size > RG_ORT_HEAP)
        return;
    for (size_t i = 0; i < from->relocations_count; i++) {
        const rg_relocation *r = &from->relocations[i];
        prepared->pointers[i] = (rg_ort_pointer){ .at = r->at,
                                                  .offset = r->offset,
                                                  .tensor = tensor_of(tensors, count, r->storage) };
        if (r->storage != NULL && prepared->pointers[i].tensor < 0)
            return;
    }
    for (size_t i = 0; i < from->used_count; i++) { /* nothing but stand-ins */
        if (tensor_of(tensors, count, from->used[i]) < 0)
            return;
    }
    memcpy(prepared->entries, from->entries, from->entries_size);
    prepared->pointer_count = (int32_t)from->relocations_count;
    prepared->heap_size = from->heap_size;
    prepared->size = from->entries_size;
}

void rg_ort_prepared_run(rg_device *device, rg_ort_prepared *prepared, void *const data[])
{
    _Alignas(RG_SCRATCH_ALIGNMENT) char heap[RG_ORT_HEAP];
    for (int32_t i = 0; i < prepared->pointer_count; i++) {
        const rg_ort_pointer *p = &prepared->pointers[i];
        char *const pointer = (p->tensor >= 0 ? (char *)data[p->tensor] : heap) + p->offset;
        memcpy(prepared->entries + p->at, &pointer, sizeof pointer);
    }
    rg_backend_submission submission = { .entries = prepared->entries, .bytes = prepared->size };
    device->backend->run(device->context, &submission);
}
