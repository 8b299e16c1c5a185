/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* What a trainer remembers of its epochs and batches, for the report. */
#include "train/trainer.h"

#include "core/memory.h"

static const rg_allocator *const allocator = &rg_default_allocator;

rg_status rg_history_begin(rg_trainer *trainer)
{
    enum { POINTS = 2000 };
    rg_history *h = &trainer->history;
    const int64_t batches = rg_loader_batches(trainer->loader) * trainer->desc.epochs;
    h->loss_every = batches / POINTS + 1;
    h->loss_capacity = batches / h->loss_every + 2;
    return rg_allocate_array((size_t)h->loss_capacity, sizeof *h->losses, &h->losses);
}

void rg_history_add_loss(rg_history *h, int64_t batches, double loss)
{
    if (batches % h->loss_every == 0 && h->loss_count < h->loss_capacity)
        h->losses[h->loss_count++] = (rg_report_step){ batches, loss };
}

rg_status rg_history_add_epoch(rg_history *h, const rg_report_epoch *epoch)
{
    void *list = h->epochs;
    while (h->epoch_count > 0 && h->epochs[h->epoch_count - 1].epoch >= epoch->epoch)
        h->epoch_count--;
    RG_TRY(rg_grow(allocator, &list, &h->epoch_capacity, h->epoch_count, sizeof *h->epochs));
    h->epochs = list;
    h->epochs[h->epoch_count++] = *epoch;
    return RG_OK;
}

rg_report_epoch *rg_history_last(const rg_history *h)
{
    return h->epoch_count > 0 ? &h->epochs[h->epoch_count - 1] : NULL;
}

void rg_history_release(rg_history *h)
{
    rg_release(allocator, h->epochs, h->epoch_capacity * sizeof *h->epochs);
    rg_release(allocator, h->losses, (size_t)h->loss_capacity * sizeof *h->losses);
    *h = (rg_history){ 0 };
}
