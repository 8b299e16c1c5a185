/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The thread of a group, which runs all that calls MPI, one job after the other. */
#include "group/group_parts.h"

#include "backend/cpu/arithmetic_mode.h"
#include "core/clock.h"
#include "core/memory.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static const rg_allocator *const allocator = &rg_default_allocator;

/* Messages of a rank that leaves have a tag of their own: others may still be in a sum. A rank
 * whose job has failed takes no part in it: the others, who wait for its messages, must not take
 * those of the next one, so they lose it. */
static void run_job(rg_group *group, rg_group_job *job)
{
    group->tag = job->is_last ? RG_TAG_OF_LAST : RG_TAG;
    group->begun += !job->is_last;
    job->status = job->run(group, job);
    if (job->status != RG_OK)
        snprintf(job->text, sizeof job->text, "%s", rg_error_text());
    if (job->status != RG_OK && !job->is_last && group->size > 1)
        rg_group_fail(group, job->text);
}

static void *thread_main(void *context)
{
    rg_group *group = context;
    (void)rg_arithmetic_plain(); /* sums round as those of kernels do */
    pthread_mutex_lock(&group->lock);
    while (!group->stop || group->first != NULL) {
        rg_group_job *job = group->first;
        if (job == NULL) {
            pthread_cond_wait(&group->changed, &group->lock);
            continue;
        }
        pthread_mutex_unlock(&group->lock);
        run_job(group, job);
        pthread_mutex_lock(&group->lock);
        group->first = job->next;
        if (group->first == NULL)
            group->last = NULL;
        job->is_done = true;
        pthread_cond_broadcast(&group->changed);
    }
    pthread_mutex_unlock(&group->lock);
    return NULL;
}

rg_status rg_group_thread_start(rg_group *group)
{
    sigset_t all, before;
    pthread_condattr_t attributes;
    sigfillset(&all);
    pthread_mutex_init(&group->lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC); /* of rg_seconds() */
    pthread_cond_init(&group->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    group->has_lock = true;
    pthread_sigmask(SIG_SETMASK, &all, &before); /* the program's threads handle signals */
    group->has_thread = rg_thread_start(&group->thread, thread_main, group);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    RG_CHECK(group->has_thread, RG_OUT_OF_MEMORY, "out of memory: cannot start a thread");
    return RG_OK;
}

static void append(rg_group *group, rg_group_job *job)
{
    pthread_mutex_lock(&group->lock);
    if (group->last != NULL)
        group->last->next = job;
    else
        group->first = job;
    group->last = job;
    pthread_cond_broadcast(&group->changed);
    pthread_mutex_unlock(&group->lock);
}

static void wait_for(rg_group *group, const rg_group_job *job)
{
    const double began = rg_seconds();
    pthread_mutex_lock(&group->lock);
    while (!job->is_done)
        pthread_cond_wait(&group->changed, &group->lock);
    pthread_mutex_unlock(&group->lock);
    group->seconds += rg_seconds() - began;
}

void rg_group_begin(rg_group *group, rg_group_job *job)
{
    append(group, job);
}

bool rg_group_is_over(rg_group *group, const rg_group_job *job, double until)
{
    const double whole = floor(until);
    const struct timespec when = { (time_t)whole, (long)(1e9 * (until - whole)) };
    pthread_mutex_lock(&group->lock);
    while (!job->is_done && pthread_cond_timedwait(&group->changed, &group->lock, &when) == 0)
        continue;
    const bool done = job->is_done;
    pthread_mutex_unlock(&group->lock);
    return done;
}

rg_status rg_group_run(rg_group *group, rg_group_job *job)
{
    append(group, job);
    wait_for(group, job);
    return job->status == RG_OK ? RG_OK : rg_fail(job->status, "%s", job->text);
}

rg_status rg_group_post(rg_group *group, const rg_group_job *job)
{
    void *memory;
    RG_TRY(rg_allocate(allocator, sizeof *job, &memory));
    rg_group_job *kept = memory;
    *kept = *job;
    kept->is_kept = true;
    kept->result = group->started; /* a list of those that are not waited for */
    group->started = kept;
    append(group, kept);
    return RG_OK;
}

rg_status rg_group_wait(rg_group *group)
{
    rg_status status = RG_OK;
    char text[RG_GROUP_TEXT] = "";
    RG_CHECK_NOT_NULL(group);
    while (group->started != NULL) {
        rg_group_job *job = group->started;
        wait_for(group, job);
        if (job->status != RG_OK) { /* the earliest failure stays */
            status = job->status;
            memcpy(text, job->text, sizeof text);
        }
        group->started = job->result;
        rg_release(allocator, job, sizeof *job);
    }
    return status == RG_OK ? RG_OK : rg_fail(status, "%s", text);
}

void rg_group_thread_end(rg_group *group)
{
    if (group->has_thread) {
        (void)rg_group_wait(group);
        pthread_mutex_lock(&group->lock);
        group->stop = true;
        pthread_cond_broadcast(&group->changed);
        pthread_mutex_unlock(&group->lock);
        pthread_join(group->thread, NULL);
    }
    if (group->has_lock) {
        pthread_mutex_destroy(&group->lock);
        pthread_cond_destroy(&group->changed);
    }
}
