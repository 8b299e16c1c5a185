/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* What ranks tell each other, made of messages between two. The number of ranks is a power of two,
 * and in every round a rank talks with the one whose number differs in one bit. */
#include "group/group_parts.h"

#include "core/clock.h"
#include "core/memory.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static const rg_allocator *const allocator = &rg_default_allocator;

/* ---- one exchange ---- */

enum { PIECE = 1 << 28 }; /* bytes: MPI counts in int */

static rg_status mpi_failed(const rg_group *group, int error)
{
    char text[256] = "";
    group->mpi->error_text(error, text);
    return rg_fail(RG_IO, "MPI failed: %s", text);
}

/* Gives the processor away, the longer the more often nothing has come: other threads compute. */
static void pause_after(int64_t tests)
{
    const struct timespec moment = { 0, 20000 };
    if (tests > 2000)
        nanosleep(&moment, NULL);
    else if (tests > 50)
        sched_yield();
}

/* A rank that has begun to leave takes no part in jobs that it has not run. Its messages would
 * never come. */
static rg_status check_leavers(rg_group *group)
{
    char sentence[RG_GROUP_TEXT];
    if (group->begun <= group->left_after || group->tag == RG_TAG_OF_LAST)
        return RG_OK;
    snprintf(
        sentence, sizeof sentence,
        "rank %d on %s has left the group, while rank %d waits for it in a collective function",
        group->left_rank, group->hosts[group->left_rank], group->rank);
    rg_heartbeat_fail(group, sentence); /* first: `lost` may end the process */
    rg_group_lose(group, sentence);
    return rg_fail(RG_IO, "%s", sentence);
}

static rg_status check_group(rg_group *group)
{
    RG_CHECK(!group->is_lost, RG_IO, "%s", group->lost_text);
    RG_TRY(check_leavers(group));
    RG_CHECK(group->deadline == 0 || rg_seconds() < group->deadline, RG_IO,
             "rank %d waits for the other ranks, but not all of them have begun", group->rank);
    return RG_OK;
}

static rg_status complete(rg_group *group, rg_mpi_request *request, int *bytes)
{
    for (int64_t tests = 0;; tests++) {
        int done = 0;
        const int error = group->mpi->test(request, &done, bytes);
        if (error != 0)
            return mpi_failed(group, error);
        if (done)
            return RG_OK;
        RG_TRY(check_group(group));
        pause_after(tests);
    }
}

static size_t piece_of(size_t bytes, size_t at)
{
    return at >= bytes ? 0 : bytes - at < PIECE ? bytes - at : PIECE;
}

/* The address `at` bytes further; NULL stays NULL. */
static void *advance(const void *data, size_t at)
{
    return data != NULL ? (char *)(uintptr_t)data + at : NULL;
}

/* A message of another size belongs to another call. */
static rg_status complete_receive(rg_group *group, rg_mpi_request *request, int32_t from,
                                  size_t bytes)
{
    int got = -1;
    RG_TRY(complete(group, request, &got));
    RG_CHECK(got == (int)bytes, RG_INVALID_ARGUMENT,
             "rank %d waits for %zu bytes, but rank %d has sent %d: collective functions must be "
             "called by all ranks in the same order and with the same sizes",
             group->rank, bytes, from, got);
    return RG_OK;
}

/* Sends to one rank and receives from another, which may be the same; -1: none. With a peer there
 * is a message, perhaps an empty one: sizes that differ are found. */
static rg_status exchange(rg_group *group, int32_t to, const void *data, size_t bytes, int32_t from,
                          void *result, size_t result_bytes)
{
    const size_t most = bytes > result_bytes ? bytes : result_bytes;
    RG_TRY(check_group(group)); /* messages of a group that is lost may still point to memory */
    for (size_t at = 0; at == 0 || at < most; at += PIECE) {
        const size_t out = piece_of(bytes, at), in = piece_of(result_bytes, at);
        const bool receives = from >= 0 && (at == 0 || in > 0);
        const bool sends = to >= 0 && (at == 0 || out > 0);
        rg_mpi_request sent, received;
        int error = 0;
        if (receives)
            error = group->mpi->receive(advance(result, at), (int)in, from, group->tag, &received);
        if (error == 0 && sends)
            error = group->mpi->send(advance(data, at), (int)out, to, group->tag, &sent);
        if (error != 0)
            return mpi_failed(group, error);
        if (receives)
            RG_TRY(complete_receive(group, &received, from, in));
        if (sends)
            RG_TRY(complete(group, &sent, NULL));
        group->bytes += (int64_t)out;
    }
    return RG_OK;
}

/* ---- one to all, all to all ---- */

/* Counted from the root, ranks below `distance` have the data and pass it on. */
rg_status rg_job_broadcast(rg_group *group, rg_group_job *job)
{
    const int32_t own = group->rank ^ job->root;
    for (int32_t distance = 1; distance < group->size; distance *= 2) {
        const int32_t peer = group->rank ^ distance;
        if (own < distance)
            RG_TRY(exchange(group, peer, job->data, job->bytes, -1, NULL, 0));
        else if (own < 2 * distance)
            RG_TRY(exchange(group, -1, NULL, 0, peer, job->data, job->bytes));
    }
    return RG_OK;
}

/* Blocks of all ranks: each round doubles the neighbours whose blocks are known. */
rg_status rg_job_gather(rg_group *group, rg_group_job *job)
{
    char *all = job->result;
    if (job->data != all + (size_t)group->rank * job->bytes)
        memcpy(all + (size_t)group->rank * job->bytes, job->data, job->bytes);
    for (int32_t distance = 1; distance < group->size; distance *= 2) {
        const int32_t peer = group->rank ^ distance;
        const size_t bytes = (size_t)distance * job->bytes;
        const size_t own = (size_t)(group->rank / distance), its = (size_t)(peer / distance);
        RG_TRY(exchange(group, peer, all + own * bytes, bytes, peer, all + its * bytes, bytes));
    }
    return RG_OK;
}

/* Each round doubles the ranks that are known to leave. */
rg_status rg_job_leave(rg_group *group, rg_group_job *job)
{
    (void)job;
    for (int32_t distance = 1; distance < group->size; distance *= 2) {
        const char out = 1;
        char in;
        const int32_t peer = group->rank ^ distance;
        RG_TRY(exchange(group, peer, &out, 1, peer, &in, 1));
    }
    return RG_OK;
}

/* ---- sums ---- */

static void add_floats(float *restrict to, const float *restrict from, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        to[i] += from[i];
}

static void add_doubles(double *restrict to, const double *restrict from, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        to[i] += from[i];
}

static rg_status fit_scratch(rg_group *group, size_t bytes)
{
    if (group->scratch_bytes >= bytes)
        return RG_OK;
    rg_release(allocator, group->scratch, group->scratch_bytes);
    group->scratch_bytes = 0;
    group->scratch = NULL;
    RG_TRY(rg_allocate(allocator, bytes, &group->scratch));
    group->scratch_bytes = bytes;
    return RG_OK;
}

/* In the order of the library. What it sends is not known: as much as the fewest that it can. */
rg_status rg_job_sum_fast(rg_group *group, rg_group_job *job)
{
    const size_t element = rg_dtype_size(job->dtype);
    RG_TRY(check_group(group));
    for (int64_t at = 0; at < job->count; at += PIECE) {
        const int64_t left = job->count - at;
        const int count = (int)(left < PIECE ? left : PIECE);
        rg_mpi_request request;
        const int error = group->mpi->sum((char *)job->data + (size_t)at * element, count,
                                          job->dtype == RG_F64, &request);
        if (error != 0)
            return mpi_failed(group, error);
        RG_TRY(complete(group, &request, NULL));
    }
    group->bytes += job->count * (int64_t)element * 2 * (group->size - 1) / group->size;
    return RG_OK;
}

/* A range of elements, and the halves that a rank keeps and hands over at some distance. */
typedef struct range {
    int64_t first, count;
} range;

static range half_of(range r, bool second)
{
    const int64_t half = r.count / 2;
    return second ? (range){ r.first + half, r.count - half } : (range){ r.first, half };
}

/* Rounds with neighbours at distance 1, 2, 4, ...: of the range that it still has, a rank keeps one
 * half, to which the neighbour's is added, and hands over the other. So element i is summed over
 * pairs first, then over pairs of pairs. Then the way back: each round doubles what is known. */
rg_status rg_job_sum(rg_group *group, rg_group_job *job)
{
    const size_t element = rg_dtype_size(job->dtype);
    range ranges[32] = { { 0, job->count } };
    char *data = job->data;
    int rounds = 0;
    RG_TRY(fit_scratch(group, (size_t)(job->count + 1) / 2 * element));
    for (int32_t distance = 1; distance < group->size; distance *= 2, rounds++) {
        const bool upper = (group->rank & distance) != 0;
        const range keep = half_of(ranges[rounds], upper), give = half_of(ranges[rounds], !upper);
        const int32_t peer = group->rank ^ distance;
        RG_TRY(exchange(group, peer, data + (size_t)give.first * element,
                        (size_t)give.count * element, peer, group->scratch,
                        (size_t)keep.count * element));
        char *const at = data + (size_t)keep.first * element;
        if (job->dtype == RG_F32)
            add_floats((float *)(void *)at, group->scratch, keep.count);
        else
            add_doubles((double *)(void *)at, group->scratch, keep.count);
        ranges[rounds + 1] = keep;
    }
    for (int32_t distance = group->size / 2; distance > 0; distance /= 2, rounds--) {
        const bool upper = (group->rank & distance) != 0;
        const range own = ranges[rounds], other = half_of(ranges[rounds - 1], !upper);
        const int32_t peer = group->rank ^ distance;
        RG_TRY(exchange(group, peer, data + (size_t)own.first * element,
                        (size_t)own.count * element, peer, data + (size_t)other.first * element,
                        (size_t)other.count * element));
    }
    return RG_OK;
}
