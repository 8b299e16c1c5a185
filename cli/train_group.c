/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Ranks: how they are found, how they share a machine, and how they end. */
#include "cli/train_group.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Under a launcher a batch has 8 parts, so that 1, 2, 4 and 8 ranks have the same bits; fewer if it
 * has fewer images, and at least one for each rank. */
static int64_t default_micro_batches(const rg_group_info *info, int64_t batch)
{
    int64_t parts = info->launched ? 8 : 1;
    while (parts > batch && parts > 1)
        parts /= 2;
    return parts > info->size ? parts : info->size;
}

/* On a thread of the group, while others compute or wait: nothing of them can be trusted to come to
 * an end. Files are written whole or not at all. */
static void on_loss(void *context, const char *sentence)
{
    char line[640];
    rg_group **group = context;
    const int length = snprintf(line, sizeof line, "retrograde: rank %d ends: %s\n",
                                rg_group_rank(*group), sentence);
    (void)!write(STDERR_FILENO, line, (size_t)length);
    _exit(1);
}

/* The processors of a machine are shared by its ranks. Where the launcher binds each rank to some
 * of them the device takes no more than those. */
static int64_t threads_of(const rg_group_info *info)
{
    const long processors = sysconf(_SC_NPROCESSORS_ONLN);
    const long share = processors / info->local_size;
    return share > 1 ? share : 1;
}

/* The GPUs of a machine are shared by its ranks: rank after rank takes the next one. */
static void choose_gpu(rg_train_request *q, const rg_group_info *info)
{
    static char name[32];
    int32_t count = 0;
    for (int32_t i = 0; rg_device_list(i, name, sizeof name) == RG_OK; i++)
        count += strncmp(name, "cuda:", 5) == 0;
    if (count < 2)
        return;
    snprintf(name, sizeof name, "cuda:%d", info->local_rank % count);
    q->device = name;
}

static rg_status share_batch(rg_train_request *q, const rg_group_info *info)
{
    if (q->batch < info->size)
        return rg_usage_status(rg_fails(
            RG_INVALID_ARGUMENT, "--batch must be at least the number of ranks, %d, not %lld",
            info->size, (long long)q->batch));
    if (q->micro_batches == RG_TRAIN_NOT_GIVEN)
        q->micro_batches = default_micro_batches(info, q->batch);
    if (q->micro_batches < info->size)
        return rg_usage_status(
            rg_fails(RG_INVALID_ARGUMENT,
                     "--micro-batches must be at least the number of ranks, %d, not %lld",
                     info->size, (long long)q->micro_batches));
    return RG_OK;
}

static rg_status share_machine(rg_train_request *q, const rg_group *group)
{
    rg_group_info info;
    RG_PASS(rg_group_get_info(group, &info));
    q->quiet = info.rank > 0;
    RG_PASS(share_batch(q, &info));
    if (info.local_size == 1)
        return RG_OK;
    if (strcmp(q->device, "cuda") == 0)
        choose_gpu(q, &info);
    cpu_set_t set;
    const int64_t threads = threads_of(&info);
    const int64_t allowed = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : threads;
    if (q->threads == 0 && getenv("RG_THREADS") == NULL && strcmp(q->device, "cpu") == 0)
        q->threads = threads < allowed ? threads : allowed;
    if (q->workers == 0)
        q->workers = threads < 16 ? threads : 16;
    return RG_OK;
}

/* When training ends is decided by each rank: one that ends earlier would let others wait, and so
 * would one that reads no weights. */
static rg_status agree_on_request(const rg_train_request *q, rg_group *group)
{
    const int64_t ends[] = { q->epochs, q->stop, q->patience };
    const char weights = q->weights[0] != 0; /* what is in the file is compared once it is read */
    RG_PASS(rg_group_agree(group, "an end of training (--epochs, --stop or --patience)", ends,
                           sizeof ends));
    return rg_group_agree(group, "a choice of first weights (--weights)", &weights, 1);
}

rg_status rg_train_group_open(rg_train_request *q, rg_group **group)
{
    rg_group_desc desc = rg_group_desc_default();
    const bool none = q->mpi != NULL && strcmp(q->mpi, "none") == 0;
    desc.engine = none ? RG_GROUP_ALONE : RG_GROUP_AUTO;
    desc.library = none ? NULL : q->mpi;
    desc.lost = on_loss;
    desc.context = group;
    RG_PASS(rg_group_create(&desc, group));
    RG_PASS(agree_on_request(q, *group));
    return share_machine(q, *group);
}

rg_status rg_train_group_stops(rg_group *group, bool interrupted, bool *stops)
{
    const int32_t size = rg_group_size(group);
    *stops = interrupted;
    if (size == 1)
        return RG_OK;
    char *all = calloc((size_t)size, 1);
    if (all == NULL)
        return rg_fails(RG_OUT_OF_MEMORY, "out of memory for the ranks");
    const char mine = interrupted;
    const rg_status status = rg_group_gather(group, &mine, 1, all);
    *stops = memchr(all, 1, (size_t)size) != NULL;
    free(all);
    return status;
}
