/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Groups: joining and leaving, and their public functions. */
#include "group/group_parts.h"

#include "core/clock.h"
#include "core/memory.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const rg_allocator *const allocator = &rg_default_allocator;

enum { START_SECONDS = 60, LOCAL_START_SECONDS = 7, END_SECONDS = 7 };

rg_group_desc rg_group_desc_default(void)
{
    return (rg_group_desc){ .size = sizeof(rg_group_desc), .timeout = 5 };
}

/* ---- losing ---- */

void rg_group_lose(rg_group *group, const char *sentence)
{
    pthread_mutex_lock(&group->lost_lock);
    const bool is_first = !group->is_lost;
    if (is_first) {
        snprintf(group->lost_text, sizeof group->lost_text, "%s", sentence);
        group->is_lost = true;
    }
    void (*const lost)(void *, const char *) = group->desc.lost;
    pthread_mutex_unlock(&group->lost_lock);
    if (is_first && lost != NULL)
        lost(group->desc.context, group->lost_text);
}

/* The group is lost, but `lost` is not called: the caller knows. */
static void lose_quietly(rg_group *group, const char *sentence)
{
    pthread_mutex_lock(&group->lost_lock);
    group->desc.lost = NULL;
    pthread_mutex_unlock(&group->lost_lock);
    rg_group_lose(group, sentence);
}

void rg_group_note_leaving(rg_group *group, int32_t rank, int64_t jobs)
{
    pthread_mutex_lock(&group->lost_lock);
    if (jobs < group->left_after) {
        group->left_rank = rank;
        group->left_after = jobs;
    }
    pthread_mutex_unlock(&group->lost_lock);
}

/* ---- joining ---- */

static rg_status check_desc(const rg_group_desc *desc, rg_group_desc *checked)
{
    *checked = rg_group_desc_default();
    if (desc == NULL)
        return RG_OK;
    RG_CHECK(desc->size > sizeof desc->size && desc->size <= sizeof *desc, RG_INVALID_ARGUMENT,
             "rg_group_create: size is %u; start from rg_group_desc_default()", desc->size);
    memcpy(checked, desc, desc->size);
    RG_CHECK((unsigned)checked->engine <= RG_GROUP_MPI, RG_INVALID_ARGUMENT,
             "rg_group_create: engine is %d, which is not one of its values", (int)checked->engine);
    RG_CHECK(checked->timeout >= 1 && checked->timeout <= 1000, RG_INVALID_ARGUMENT,
             "rg_group_create: timeout must be between 1 and 1000 seconds, not %g",
             checked->timeout);
    RG_CHECK(checked->start_timeout == 0 ||
                 (checked->start_timeout >= 1 && checked->start_timeout <= 100000),
             RG_INVALID_ARGUMENT,
             "rg_group_create: start_timeout must be 0, or between 1 and 100000 seconds, not %g",
             checked->start_timeout);
    return RG_OK;
}

static rg_status check_size(const rg_group *group)
{
    const rg_launcher *l = &group->launcher;
    RG_CHECK(
        l->size <= 1 || group->size == l->size, RG_INVALID_STATE,
        "by the environment %s has started %d processes, but %s knows of %d: it is not the "
        "library of this launcher (set RG_MPI to openmpi, mpich, abi or the path of a library), "
        "or this process was not started by it",
        l->name, l->size, group->engine, group->size);
    RG_CHECK((group->size & (group->size - 1)) == 0, RG_INVALID_ARGUMENT,
             "the number of ranks must be a power of two, not %d", group->size);
    return RG_OK;
}

/* What tells machines apart: their names, which two may share, when the system was started, and the
 * loopback address, of which containers have one each. */
typedef struct machine {
    char host[RG_GROUP_HOST];
    char start[40], network[40];
} machine;

static machine this_machine(void)
{
    machine m;
    memset(&m, 0, sizeof m);
    if (gethostname(m.host, sizeof m.host - 1) != 0)
        snprintf(m.host, sizeof m.host, "unknown");
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");
    if (file != NULL) {
        (void)!fread(m.start, 1, sizeof m.start - 1, file);
        (void)fclose(file);
    }
    (void)!readlink("/proc/self/ns/net", m.network, sizeof m.network - 1);
    return m;
}

/* The first message, because those that follow may differ from version to version. */
static rg_status check_version(rg_group *group)
{
    typedef char version[32];
    version *all, mine = "";
    snprintf(mine, sizeof mine, "%s", rg_version());
    RG_TRY(rg_allocate_array((size_t)group->size, sizeof *all, &all));
    rg_group_job gather = { .data = mine, .bytes = sizeof mine, .result = all };
    rg_status status = rg_job_gather(group, &gather);
    for (int32_t i = 1; i < group->size && status == RG_OK; i++) {
        if (memcmp(all[i], all[0], sizeof mine) != 0)
            status = rg_fail(RG_INVALID_ARGUMENT,
                             "rank %d has version %.31s of retrograde, rank 0 version %.31s", i,
                             all[i], all[0]);
    }
    rg_release(allocator, all, (size_t)group->size * sizeof *all);
    return status;
}

/* Which ranks are on this machine. */
static rg_status count_local(rg_group *group)
{
    machine *all, mine = this_machine();
    memcpy(group->host, mine.host, sizeof group->host);
    RG_TRY(rg_allocate_array((size_t)group->size, sizeof *group->hosts, &group->hosts));
    RG_TRY(rg_allocate_array((size_t)group->size, sizeof *all, &all));
    rg_group_job gather = { .data = &mine, .bytes = sizeof mine, .result = all };
    const rg_status status = rg_job_gather(group, &gather);
    for (int32_t i = 0; i < group->size && status == RG_OK; i++) {
        const bool same = memcmp(&all[i], &mine, sizeof mine) == 0;
        memcpy(group->hosts[i], all[i].host, sizeof all[i].host);
        group->local_size += same;
        group->local_rank += same && i < group->rank;
    }
    rg_release(allocator, all, (size_t)group->size * sizeof *all);
    return status;
}

static rg_status start_mpi(rg_group *group, int *rank, int *size)
{
    const int error = group->mpi->start(rank, size);
    group->is_started = error == 0 || error == RG_MPI_ONE_THREAD;
    RG_CHECK(error != RG_MPI_STARTED_BEFORE, RG_INVALID_STATE,
             "MPI has been started in this process before: a process joins at most one group by "
             "MPI, and nothing else of it may start MPI");
    RG_CHECK(error != RG_MPI_ONE_THREAD, RG_UNSUPPORTED,
             "this library of MPI allows no threads beside it (MPI_THREAD_FUNNELED)");
    RG_CHECK(error == 0, RG_IO, "MPI cannot start: error %d", error);
    return RG_OK;
}

/* What a library says of itself in one line: Open MPI tells its whole package, MPICH aligns words.
 */
static void tidy(char *text)
{
    char *to = text;
    for (const char *from = text; *from != 0 && *from != ',' && *from != '\n'; from++) {
        const char c = *from == '\t' ? ' ' : *from;
        if (c != ' ' || (to > text && to[-1] != ' '))
            *to++ = c;
    }
    *to = 0;
}

/* Begins MPI and the heartbeats; the first job of the thread. */
static rg_status join(rg_group *group, rg_group_job *job)
{
    (void)job;
    int rank = 0, size = 0;
    RG_TRY(start_mpi(group, &rank, &size));
    group->rank = rank;
    group->size = size;
    group->mpi->describe(group->engine);
    tidy(group->engine);
    RG_TRY(check_size(group));
    RG_TRY(check_version(group));
    RG_TRY(count_local(group));
    if (group->size > 1)
        RG_TRY(rg_heartbeat_start(group));
    return RG_OK;
}

static rg_status make(rg_group *group)
{
    const rg_launcher *l = &group->launcher;
    const rg_group_engine engine = group->desc.engine;
    snprintf(group->engine, sizeof group->engine, "alone");
    group->size = group->local_size = 1;
    if (engine == RG_GROUP_ALONE ||
        (engine == RG_GROUP_AUTO && (l->name[0] == 0 || (l->size == 1 && !l->is_slurm_only))))
        return RG_OK;
    RG_CHECK(!l->is_slurm_only || engine == RG_GROUP_MPI, RG_INVALID_STATE,
             "srun has started %d processes without PMI, so that each of them would be alone; use "
             "srun --mpi=pmix or --mpi=pmi2, or mpirun within the allocation",
             l->size);
    RG_TRY(rg_mpi_open(group->desc.library, l, &group->mpi));
    group->size = group->local_size = 0;
    RG_TRY(rg_group_thread_start(group));
    group->joining = (rg_group_job){ .run = join };
    const bool is_chosen = group->desc.start_timeout > 0;
    rg_limited joining = { .job = &group->joining, .stopped = -1 };
    joining.seconds = is_chosen     ? group->desc.start_timeout
                      : l->is_local ? LOCAL_START_SECONDS
                                    : START_SECONDS;
    joining.needed = l->is_local && !is_chosen ? l->size : 0;
    if (!rg_limited_run(group, &joining)) {
        char missing[64];
        group->is_stuck = true;
        rg_limited_describe(&joining, "one has not started, or hangs", missing);
        return rg_fail(RG_IO, "rank %d of %d waited %.0f seconds for the others: %s", l->rank,
                       l->size, joining.seconds, missing);
    }
    const rg_status status = group->joining.status;
    return status == RG_OK ? RG_OK : rg_fail(status, "%s", group->joining.text);
}

rg_status rg_group_create(const rg_group_desc *desc, rg_group **group)
{
    rg_group_desc checked;
    void *memory;
    RG_CHECK_NOT_NULL(group);
    *group = NULL;
    RG_TRY(check_desc(desc, &checked));
    RG_TRY(rg_allocate_zero(allocator, sizeof(rg_group), &memory));
    rg_group *made = memory;
    made->desc = checked;
    made->launcher = rg_launcher_find();
    made->left_after = INT64_MAX;
    pthread_mutex_init(&made->lost_lock, NULL);
    *group = made; /* `lost` may ask for its rank */
    const rg_status status = make(made);
    if (status == RG_OK)
        return RG_OK;
    *group = NULL;
    if (made->is_stuck) { /* its thread is still within MPI, and it stays; but it joins no more */
        lose_quietly(made, rg_error_text());
        return status;
    }
    rg_group_fail(made, rg_error_text()); /* nobody waits for the others */
    rg_group_destroy(made);
    return status;
}

/* ---- leaving ---- */

/* Tells the others, which may wait for this rank in a function that it will never call, and waits
 * until they leave, too. */
static void say_goodbye(rg_group *group)
{
    rg_group_job job = { .run = rg_job_leave, .is_last = true };
    rg_heartbeat_leave(group, group->begun);
    (void)rg_group_run(group, &job);
}

static rg_status leave(rg_group *group, rg_group_job *job)
{
    (void)job;
    return group->mpi->finish() == 0 ? RG_OK : rg_fail(RG_IO, "MPI could not end");
}

/* MPI waits for all ranks once more, and nobody watches them now. False: one hangs. The thread is
 * still within MPI then, and stays, with what it uses. */
static bool end_mpi(rg_group *group)
{
    char sentence[RG_GROUP_TEXT], missing[64];
    rg_limited leaving = { &group->leaving, END_SECONDS, 2, -1 };
    group->leaving = (rg_group_job){ .run = leave, .is_last = true };
    if (rg_limited_run(group, &leaving))
        return true;
    rg_limited_describe(&leaving, "another rank hangs", missing);
    snprintf(sentence, sizeof sentence,
             "rank %d has waited for the end of MPI for %.0f seconds: %s", group->rank,
             leaving.seconds, missing);
    rg_group_lose(group, sentence);
    return false;
}

void rg_group_destroy(rg_group *group)
{
    if (group == NULL)
        return;
    if (group->has_thread)
        (void)rg_group_wait(group);
    if (group->size > 1 && !group->is_lost)
        say_goodbye(group);
    rg_heartbeat_end(group);
    if (group->is_started && !group->is_lost && !end_mpi(group))
        return;
    rg_group_thread_end(group);
    rg_release(allocator, group->hosts, (size_t)group->size * sizeof *group->hosts);
    rg_release(allocator, group->scratch, group->scratch_bytes);
    pthread_mutex_destroy(&group->lost_lock);
    rg_release(allocator, group, sizeof *group);
}

void rg_group_fail(rg_group *group, const char *why)
{
    const char *reason = why != NULL && why[0] != 0 ? why : "it gives no reason";
    if (group == NULL || group->is_lost)
        return;
    lose_quietly(group, reason); /* before others end because of it */
    rg_heartbeat_fail(group, reason);
}

/* ---- queries ---- */

int32_t rg_group_rank(const rg_group *group)
{
    return group != NULL ? group->rank : 0;
}

int32_t rg_group_size(const rg_group *group)
{
    return group != NULL ? group->size : 1;
}

rg_status rg_group_get_info(const rg_group *group, rg_group_info *info)
{
    RG_CHECK_NOT_NULL(group);
    RG_CHECK_NOT_NULL(info);
    *info = (rg_group_info){ .rank = group->rank,
                             .size = group->size,
                             .local_rank = group->local_rank,
                             .local_size = group->local_size,
                             .launched = group->launcher.name[0] != 0,
                             .engine = group->engine,
                             .bytes = group->bytes,
                             .seconds = group->seconds };
    return RG_OK;
}

/* ---- collective functions ---- */

/* Runs it where there are other ranks. */
static rg_status run(rg_group *group, rg_group_job job)
{
    return group->size > 1 ? rg_group_run(group, &job) : RG_OK;
}

rg_status rg_group_barrier(rg_group *group)
{
    RG_CHECK_NOT_NULL(group);
    char *all;
    RG_TRY(rg_allocate_array((size_t)group->size, 1, &all));
    const char mine = 1;
    const rg_status status = rg_group_gather(group, &mine, 1, all);
    rg_release(allocator, all, (size_t)group->size);
    return status;
}

rg_status rg_group_broadcast(rg_group *group, void *data, size_t bytes, int32_t root)
{
    RG_CHECK_NOT_NULL(group);
    RG_CHECK(data != NULL || bytes == 0, RG_INVALID_ARGUMENT, "rg_group_broadcast: data is NULL");
    RG_CHECK(root >= 0 && root < group->size, RG_INVALID_ARGUMENT,
             "rg_group_broadcast: root is %d, but there are %d ranks", root, group->size);
    return run(group, (rg_group_job){
                          .run = rg_job_broadcast, .data = data, .bytes = bytes, .root = root });
}

rg_status rg_group_gather(rg_group *group, const void *mine, size_t bytes, void *all)
{
    RG_CHECK_NOT_NULL(group);
    RG_CHECK_NOT_NULL(mine);
    RG_CHECK_NOT_NULL(all);
    if (group->size == 1) {
        memmove(all, mine, bytes);
        return RG_OK;
    }
    void *data;
    memcpy(&data, &mine, sizeof data); /* which is only read */
    return run(group,
               (rg_group_job){ .run = rg_job_gather, .data = data, .bytes = bytes, .result = all });
}

static rg_status sum_job(const char *who, rg_group *group, void *elements, rg_dtype dtype,
                         int64_t count, rg_group_job *job)
{
    RG_CHECK(group != NULL, RG_INVALID_ARGUMENT, "%s: group is NULL", who);
    RG_CHECK(elements != NULL || count == 0, RG_INVALID_ARGUMENT, "%s: elements is NULL", who);
    RG_CHECK(dtype == RG_F32 || dtype == RG_F64, RG_UNSUPPORTED,
             "%s: sums are of f32 or f64, not of %s", who, rg_dtype_name(dtype));
    RG_CHECK(count >= 0 && count <= INT64_MAX / 16, RG_INVALID_ARGUMENT, "%s: count is %lld", who,
             (long long)count);
    static char nothing;
    *job = (rg_group_job){
        .run = rg_job_sum, .data = count > 0 ? elements : &nothing, .dtype = dtype, .count = count
    };
    return RG_OK;
}

rg_status rg_group_sum(rg_group *group, void *elements, rg_dtype dtype, int64_t count)
{
    rg_group_job job;
    RG_TRY(sum_job(__func__, group, elements, dtype, count, &job));
    return run(group, job);
}

rg_status rg_group_sum_start(rg_group *group, void *elements, rg_dtype dtype, int64_t count)
{
    rg_group_job job;
    RG_TRY(sum_job(__func__, group, elements, dtype, count, &job));
    return group->size > 1 ? rg_group_post(group, &job) : RG_OK;
}

rg_status rg_group_sum_fast_start(rg_group *group, void *elements, rg_dtype dtype, int64_t count)
{
    rg_group_job job;
    RG_TRY(sum_job(__func__, group, elements, dtype, count, &job));
    job.run = rg_job_sum_fast;
    return group->size > 1 ? rg_group_post(group, &job) : RG_OK;
}

/* ---- agreement ---- */

/* 128 bits of a hash: FNV-1a from two starts. */
typedef struct digest {
    uint64_t words[2];
    uint64_t bytes;
} digest;

static digest digest_of(const void *data, size_t bytes)
{
    digest d = { { 0xcbf29ce484222325, 0x9e3779b97f4a7c15 }, bytes };
    for (size_t i = 0; i < bytes; i++) {
        for (int k = 0; k < 2; k++)
            d.words[k] = (d.words[k] ^ ((const unsigned char *)data)[i]) * 0x100000001b3;
    }
    return d;
}

rg_status rg_group_agree(rg_group *group, const char *what, const void *data, size_t bytes)
{
    RG_CHECK_NOT_NULL(group);
    RG_CHECK_NOT_NULL(what);
    RG_CHECK(data != NULL || bytes == 0, RG_INVALID_ARGUMENT, "rg_group_agree: data is NULL");
    digest *all, mine = digest_of(data, bytes);
    RG_TRY(rg_allocate_array((size_t)group->size, sizeof *all, &all));
    rg_status status = rg_group_gather(group, &mine, sizeof mine, all);
    for (int32_t i = 1; i < group->size && status == RG_OK; i++) {
        if (memcmp(&all[0], &all[i], sizeof mine) != 0)
            status = rg_fail(RG_INVALID_ARGUMENT,
                             "rank %d on %s has %s that differs from that of rank 0 on %s", i,
                             group->hosts[i], what, group->hosts[0]);
    }
    rg_release(allocator, all, (size_t)group->size * sizeof *all);
    return status;
}
