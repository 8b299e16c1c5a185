/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* A stepper in a group: the sums of gradients over ranks, and outcomes of all micro-batches. */
#include "train/stepper_parts.h"

#include "core/memory.h"
#include "core/shape.h"
#include "files/tensor_pieces.h"
#include "runtime/objects.h"

static const rg_allocator *const allocator = &rg_default_allocator;

/* ---- NCCL ---- */

rg_status rg_stepper_join(rg_stepper *t)
{
    rg_group_info info;
    if (!t->options.fast || t->options.group == NULL || t->micro == NULL || t->nccl != NULL ||
        rg_device_streams(t->device) == NULL)
        return RG_OK;
    RG_TRY(rg_group_get_info(t->options.group, &info));
    return info.launched ? rg_nccl_create(t->options.group, t->device, &t->nccl) : RG_OK;
}

bool rg_stepper_is_joint(const rg_stepper *t)
{
    return t->ranks > 1 || t->nccl != NULL;
}

/* ---- gradients ---- */

/* The buckets of a batch that are being summed: recorded one after the other, each handed to the
 * group when its submission has run. */
typedef struct rg_reduction {
    rg_stepper *stepper;
    rg_step_slot *slot;
    char *host;  /* the sums, where the CPU has them; NULL: they are staged when all are complete */
    size_t done; /* buckets that have run */
    rg_status status;
    rg_status posted; /* of handing over */
} rg_reduction;

static rg_dtype real_of(const rg_stepper *t)
{
    return t->options.network.dtype == RG_F64 ? RG_F64 : RG_F32;
}

static rg_status start_bucket(rg_stepper *t, char *host, size_t bucket)
{
    const rg_micro_bucket *b = &t->micro->buckets[bucket];
    char *const elements = host + (size_t)b->offset * rg_dtype_size(real_of(t));
    return (t->options.fast ? rg_group_sum_fast_start
                            : rg_group_sum_start)(t->options.group, elements, real_of(t), b->count);
}

/* Submissions run in order, so buckets are handed over in order. */
static void on_run(void *context, rg_status outcome)
{
    rg_reduction *r = context;
    if (outcome == RG_OK && r->posted == RG_OK)
        r->posted = start_bucket(r->stepper, r->host, r->done);
    r->done++;
}

static rg_status record_bucket(rg_reduction *r, rg_commands *commands, size_t bucket)
{
    rg_stepper *t = r->stepper;
    const int32_t last = r->slot->parts_count - 1;
    RG_TRY(rg_micro_add(t, commands, &r->slot->parts[last], last, bucket));
    if (r->host == NULL)
        return RG_OK;
    RG_TRY(rg_commands_on_completion(commands, on_run, r));
    return rg_commands_commit_and_continue(commands);
}

static void on_cut(void *context, int32_t cut, rg_commands *commands)
{
    rg_reduction *r = context;
    if (r->status == RG_OK)
        r->status = record_bucket(r, commands, (size_t)cut);
}

/* The steps after which all pieces of the buckets are complete. */
static rg_status find_cuts(rg_stepper *t, const rg_step_part *part, int32_t cuts[])
{
    rg_micro *m = t->micro;
    RG_TRY(
        rg_plan_prepare(m->gradient, (rg_tensor_desc[]){ part->images->desc, part->labels->desc }));
    for (size_t k = 0; k < m->bucket_count; k++) {
        cuts[k] = k > 0 ? cuts[k - 1] : 0;
        for (size_t i = m->buckets[k].first; i < m->buckets[k].end; i++) {
            int32_t step;
            RG_TRY(rg_plan_result_step(m->gradient, m->pieces[i].name, &step));
            cuts[k] = step > cuts[k] ? step : cuts[k];
        }
    }
    return RG_OK;
}

static rg_status record_last(rg_reduction *r, int32_t cuts[])
{
    rg_stepper *t = r->stepper;
    rg_step_slot *s = r->slot;
    const int32_t last = s->parts_count - 1;
    const size_t buckets = t->micro->bucket_count;
    const rg_step_part *part = &s->parts[last];
    RG_TRY(rg_micro_begin(t, s->commands, part, last));
    if (part->count == 0) {
        for (size_t k = 0; k < buckets; k++)
            RG_TRY(record_bucket(r, s->commands, k));
        return RG_OK;
    }
    RG_TRY(find_cuts(t, part, cuts));
    const rg_plan_cuts cut = { cuts, (int32_t)buckets, on_cut, r };
    RG_TRY(rg_stepper_record_part(t, t->micro->gradient, s, last, &cut));
    return r->status;
}

/* On a GPU sums go through memory of the host when all are complete. */
static rg_status sum_staged(rg_stepper *t, size_t bytes)
{
    rg_tensor *sum = rg_micro_sum(t->micro);
    void *staging;
    RG_TRY(rg_host_allocate(t->device, bytes, &staging));
    rg_status status = rg_tensor_read(sum, staging, bytes, RG_LAYOUT_SAME);
    for (size_t k = 0; k < t->micro->bucket_count && status == RG_OK; k++)
        status = start_bucket(t, staging, k);
    const rg_status waited = rg_group_wait(t->options.group);
    status = status == RG_OK ? waited : status;
    if (status == RG_OK)
        status = rg_tensor_write(sum, staging, bytes, RG_LAYOUT_SAME);
    rg_host_release(t->device, staging, bytes);
    return status;
}

static rg_status sum_on_device(rg_stepper *t, const rg_pieces *pieces)
{
    return t->nccl != NULL
               ? rg_nccl_sum(t->nccl, pieces->args.device, real_of(t), t->micro->elements)
               : sum_staged(t, pieces->bytes);
}

rg_status rg_stepper_sum_recorded(rg_stepper *t, rg_step_slot *s)
{
    rg_pieces pieces;
    RG_TRY(rg_pieces_of_tensor(rg_micro_sum(t->micro), true, "gradients", &pieces));
    RG_TRY(rg_commands_commit(s->commands));
    RG_TRY(rg_commands_wait(s->commands));
    if (pieces.direct == NULL)
        return sum_on_device(t, &pieces);
    for (size_t k = 0; k < t->micro->bucket_count; k++)
        RG_TRY(start_bucket(t, pieces.direct, k));
    return RG_OK;
}

static rg_status run_last(rg_reduction *r, int32_t cuts[])
{
    rg_stepper *t = r->stepper;
    rg_pieces pieces;
    RG_TRY(rg_pieces_of_tensor(rg_micro_sum(t->micro), true, "gradients", &pieces));
    r->host = pieces.direct;
    rg_status status = record_last(r, cuts);
    rg_micro_end(t, r->slot->parts_count - 1);
    rg_status last = rg_commands_commit(r->slot->commands);
    if (last == RG_OK)
        last = rg_commands_wait(r->slot->commands);
    else /* without memory; handlers of earlier submissions use `r` */
        (void)rg_commands_wait_committed(r->slot->commands);
    status = status == RG_OK ? last : status;
    RG_TRY(status == RG_OK ? r->posted : status);
    return r->host == NULL ? sum_on_device(t, &pieces) : RG_OK;
}

rg_status rg_stepper_run_last(rg_stepper *t, rg_step_slot *s)
{
    rg_reduction r = { .stepper = t, .slot = s };
    int32_t *cuts;
    RG_TRY(rg_allocate_array(t->micro->bucket_count, sizeof *cuts, &cuts));
    const rg_status status = run_last(&r, cuts);
    rg_release(allocator, cuts, t->micro->bucket_count * sizeof *cuts);
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
    return rg_group_wait(t->options.group);
}

void rg_stepper_give_up(rg_stepper *t)
{
    rg_group_fail(t->options.group, rg_error_text());
    (void)rg_group_wait(t->options.group); /* its sentence is the same */
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
