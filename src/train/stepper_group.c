/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* A stepper in a group: the sums of gradients over ranks, and outcomes of all micro-batches. */
#include "train/stepper_parts.h"

#include "core/memory.h"
#include "core/shape.h"
#include "files/tensor_pieces.h"

static const rg_allocator *const allocator = &rg_default_allocator;

/* ---- gradients ---- */

/* Summed in pieces, so that the sum of one is computed while the next is under way. */
static rg_status sum_host(rg_stepper *t, char *elements, int64_t count)
{
    enum { BUCKET = 1 << 20 }; /* elements */
    const rg_dtype dtype = t->options.network.dtype == RG_F64 ? RG_F64 : RG_F32;
    rg_status status = RG_OK;
    for (int64_t at = 0; at < count && status == RG_OK; at += BUCKET) {
        const int64_t now = count - at < BUCKET ? count - at : BUCKET;
        status = rg_group_sum_start(t->options.group, elements + (size_t)at * rg_dtype_size(dtype),
                                    dtype, now);
    }
    const rg_status waited = rg_group_wait(t->options.group);
    return status == RG_OK ? waited : status;
}

/* On a GPU through memory of the host. */
static rg_status sum_gradients(rg_stepper *t)
{
    rg_tensor *sum = rg_micro_sum(t->micro);
    const int64_t count = t->micro->elements;
    rg_pieces pieces;
    void *staging;
    RG_TRY(rg_pieces_of_tensor(sum, true, "gradients", &pieces));
    if (pieces.direct != NULL)
        return sum_host(t, pieces.direct, count);
    RG_TRY(rg_host_allocate(t->device, pieces.bytes, &staging));
    rg_status status = rg_tensor_read(sum, staging, pieces.bytes, RG_LAYOUT_SAME);
    if (status == RG_OK)
        status = sum_host(t, staging, count);
    if (status == RG_OK)
        status = rg_tensor_write(sum, staging, pieces.bytes, RG_LAYOUT_SAME);
    rg_host_release(t->device, staging, pieces.bytes);
    return status;
}

/* ---- outcomes ---- */

/* What a rank tells of a batch: an outcome for each of its micro-batches, and one more whose number
 * of images is 1 if it asks all to stop. */
static rg_status gather_outcomes(rg_stepper *t, rg_step_slot *s)
{
    const size_t each = (size_t)s->parts_count + 1, count = each * (size_t)t->ranks;
    rg_outcome *all;
    RG_TRY(rg_allocate_array(count, sizeof *all, &all));
    rg_outcome *own = all + each * (size_t)t->rank;
    rg_slot_outcomes(t, s, own);
    own[each - 1].images = t->is_asked;
    const rg_status status = rg_group_gather(t->options.group, own, each * sizeof *all, all);
    for (int32_t r = 0; r < t->ranks && status == RG_OK; r++) {
        const rg_outcome *of = all + each * (size_t)r;
        memcpy(s->outcomes + r * s->parts_count, of, (each - 1) * sizeof *of);
        t->is_stopped = t->is_stopped || of[each - 1].images != 0;
    }
    rg_release(allocator, all, count * sizeof *all);
    s->gathered = true;
    return status;
}

rg_status rg_stepper_reduce(rg_stepper *t, rg_step_slot *s)
{
    t->is_stopped = false;
    RG_TRY(gather_outcomes(t, s));
    return sum_gradients(t);
}

void rg_stepper_ask_stop(rg_stepper *t, bool stop)
{
    t->is_asked = stop;
    t->is_stopped = false;
}

bool rg_stepper_is_stopped(const rg_stepper *t)
{
    return t->is_stopped;
}

/* ---- evaluations ---- */

rg_status rg_stepper_join_overlaps(rg_stepper *t)
{
    const size_t each = 3 * (size_t)t->options.network.classes, count = each * (size_t)t->ranks;
    int64_t *all;
    if (t->overlaps == NULL || t->ranks == 1)
        return RG_OK;
    RG_TRY(rg_allocate_array(count, sizeof *all, &all));
    const rg_status status =
        rg_group_gather(t->options.group, t->overlaps, each * sizeof *all, all);
    for (size_t i = 0; i < each && status == RG_OK; i++) {
        t->overlaps[i] = 0;
        for (size_t r = 0; r < (size_t)t->ranks; r++)
            t->overlaps[i] += all[r * each + i];
    }
    rg_release(allocator, all, count * sizeof *all);
    return status;
}
