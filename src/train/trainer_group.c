/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Trainers in a group: each rank's part of a batch, and what must be the same on all ranks. */
#include "train/dataset.h"
#include "train/image_file.h"
#include "train/trainer.h"

#include "backend/cpu/bf16_unit.h"
#include "core/memory.h"
#include "files/tensor_pieces.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const rg_allocator *const allocator = &rg_default_allocator;

void rg_trainer_part(const rg_trainer *t, rg_loader_desc *desc)
{
    const int64_t ranks = rg_group_size(t->desc.group), parts = t->desc.micro_batches;
    const int64_t each = (t->desc.batch + parts - 1) / parts; /* as rg_stepper_range() has it */
    if (ranks == 1)
        return;
    desc->most = parts / ranks * each;
    desc->first = rg_group_rank(t->desc.group) * desc->most;
}

/* ---- agreement ---- */

/* What is told of a data set: its shape, means over its pixels, and hashes of its files or numbers,
 * in their order, of what image files hold, and of masks. */
typedef struct set_facts {
    int64_t numbers[8];
    double mean[RG_DATASET_CHANNELS], deviation[RG_DATASET_CHANNELS];
    int64_t images;
    uint64_t contents, masks;
} set_facts;

static uint64_t add_bytes(uint64_t hash, const void *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ ((const unsigned char *)data)[i]) * UINT64_C(0x100000001b3);
    return hash;
}

/* All masks, but of image files some from all over the set, in memory or not: to decode all would
 * take as long as an epoch. */
static rg_status hash_masks(const rg_dataset *set, const rg_dataset_info *info, uint64_t *hash)
{
    enum { MASKS = 256 };
    rg_decoder decoder = { 0 };
    int32_t *mask;
    rg_status status = RG_OK;
    if (info->target != RG_TARGET_MASK)
        return RG_OK;
    const size_t count = (size_t)info->targets;
    const int64_t masks = set->decoded && info->count > MASKS ? MASKS : info->count;
    RG_TRY(rg_allocate_array(count, sizeof *mask, &mask));
    for (int64_t i = 0; i < masks && status == RG_OK; i++) {
        const int64_t index = i * info->count / masks;
        const int32_t *kept = rg_dataset_mask(set, index);
        if (kept == NULL)
            status = rg_dataset_fetch_mask(set, index, &decoder, mask);
        if (status == RG_OK)
            *hash = add_bytes(*hash, kept != NULL ? kept : mask, count * sizeof *mask);
    }
    rg_decoder_release(&decoder);
    rg_release(allocator, mask, count * sizeof *mask);
    return status;
}

static rg_status find_facts(const rg_dataset *set, set_facts *facts)
{
    rg_dataset_info info;
    RG_TRY(rg_dataset_get_info(set, &info));
    const int64_t numbers[8] = { info.count,   info.height, info.width,  info.channels,
                                 info.classes, info.dtype,  info.target, info.targets };
    memcpy(facts->numbers, numbers, sizeof numbers);
    RG_TRY(rg_dataset_measure(set, facts->mean, facts->deviation));
    facts->images = rg_dataset_hash(set);
    facts->contents = rg_dataset_hash_contents(set);
    facts->masks = UINT64_C(0xcbf29ce484222325);
    return hash_masks(set, &info, &facts->masks);
}

rg_status rg_trainer_agree_on_set(rg_trainer *trainer, const char *what, const rg_dataset *set)
{
    set_facts facts;
    RG_CHECK_NOT_NULL(trainer);
    RG_CHECK_NOT_NULL(what);
    if (rg_group_size(trainer->desc.group) == 1)
        return RG_OK;
    memset(&facts, 0, sizeof facts);
    if (set != NULL)
        RG_TRY(find_facts(set, &facts));
    RG_TRY(rg_group_agree(trainer->desc.group, what, &facts, sizeof facts));
    trainer->agreed = set;
    return RG_OK;
}

static rg_status agree_on_text(rg_trainer *t, const char *what, const char *text)
{
    return rg_group_agree(t->desc.group, what, text, strlen(text));
}

static rg_status agree_on_options(rg_trainer *t)
{
    char *options;
    RG_TRY(rg_trainer_desc_text(&t->desc, &options));
    const rg_status status = agree_on_text(t, "a set of options", options);
    free(options);
    return status;
}

/* Kernels of another instruction set round differently, and parameters would drift apart. So do
 * units for pairs of bf16, which AVX-512 may have beside it. */
static rg_status agree_on_device(rg_trainer *t)
{
    const char *isa = rg_device_isa(t->device);
    const bool pairs = isa != NULL && strcmp(isa, "avx512") == 0 && t->desc.dtype == RG_BF16;
    char unit[32];
    RG_TRY(agree_on_text(t, "an instruction set", isa != NULL ? isa : ""));
    snprintf(unit, sizeof unit, "%s", pairs ? rg_bf16_unit_name(rg_bf16_unit()) : "");
    return agree_on_text(t, "a unit for products of bf16 (AMX or AVX512-BF16)", unit);
}

static rg_status agree_on_position(rg_trainer *t)
{
    const rg_run_state *s = &t->state;
    int64_t best; /* what validations of ranks are compared with */
    memcpy(&best, &s->best_accuracy, sizeof best);
    const int64_t position[] = { s->epoch,  s->position,   s->steps, s->batches,
                                 s->images, s->best_epoch, best };
    return rg_group_agree(t->desc.group, "a checkpoint", position, sizeof position);
}

/* ---- parameters ---- */

static rg_status broadcast_tensor(rg_trainer *t, rg_tensor *tensor)
{
    rg_pieces pieces;
    void *staging;
    RG_TRY(rg_pieces_of_tensor(tensor, true, "a parameter", &pieces));
    if (pieces.direct != NULL)
        return rg_group_broadcast(t->desc.group, pieces.direct, pieces.bytes, 0);
    RG_TRY(rg_allocate(allocator, pieces.bytes, &staging));
    rg_status status = rg_tensor_read(tensor, staging, pieces.bytes, RG_LAYOUT_SAME);
    if (status == RG_OK)
        status = rg_group_broadcast(t->desc.group, staging, pieces.bytes, 0);
    if (status == RG_OK)
        status = rg_tensor_write(tensor, staging, pieces.bytes, RG_LAYOUT_SAME);
    rg_release(allocator, staging, pieces.bytes);
    return status;
}

static rg_status broadcast_parameters(rg_trainer *t)
{
    const char *name;
    rg_tensor *tensor;
    RG_TRY(rg_stepper_parameter(t->stepper, 0, &name, &tensor));
    for (int32_t i = 1; name != NULL; i++) {
        RG_TRY(broadcast_tensor(t, tensor));
        RG_TRY(rg_stepper_parameter(t->stepper, i, &name, &tensor));
    }
    return RG_OK;
}

/* Ranks that were given other weights. */
rg_status rg_trainer_agree_on_weights(rg_trainer *t)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    const char *name;
    rg_tensor *tensor;
    if (rg_group_size(t->desc.group) == 1)
        return RG_OK;
    RG_TRY(rg_stepper_parameter(t->stepper, 0, &name, &tensor));
    for (int32_t i = 1; name != NULL; i++) {
        const size_t bytes = rg_tensor_bytes(tensor);
        void *staging;
        RG_TRY(rg_allocate(allocator, bytes, &staging));
        const rg_status status = rg_tensor_read(tensor, staging, bytes, RG_LAYOUT_SAME);
        if (status == RG_OK)
            hash = add_bytes(hash, staging, bytes);
        rg_release(allocator, staging, bytes);
        RG_TRY(status);
        RG_TRY(rg_stepper_parameter(t->stepper, i, &name, &tensor));
    }
    return rg_group_agree(t->desc.group, "a set of first weights", &hash, sizeof hash);
}

rg_status rg_trainer_join(rg_trainer *t, const rg_dataset *set)
{
    if (rg_group_size(t->desc.group) == 1)
        return rg_stepper_join(t->stepper);
    RG_TRY(agree_on_text(t, "a model", t->state.model));
    RG_TRY(agree_on_options(t));
    RG_TRY(rg_trainer_agree_on_set(t, "training data", set));
    RG_TRY(agree_on_device(t));
    RG_TRY(agree_on_position(t));
    RG_TRY(broadcast_parameters(t));
    return rg_stepper_join(t->stepper);
}
