/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Submissions in order: a thread that waits runs them, or a worker does. */
#include "backend/fifo.h"

#include "core/thread.h"

struct rg_fifo {
    rg_allocator allocator;
    rg_fifo_owner owner;
    pthread_mutex_t lock;
    pthread_cond_t changed;              /* a submission has run */
    pthread_cond_t wanted;               /* the worker has something to do */
    rg_backend_submission *first, *last; /* pending */
    rg_backend_submission
        *current; /* the submission that thread `runner` runs; may be gone: compared only */
    pthread_t runner;
    int32_t waiters;
    pthread_t worker;
    bool has_worker, awake, stop, abandoned;
    bool orphans; /* no worker could be started: a thread that waits runs all that is pending */
};

rg_status rg_fifo_create(const rg_allocator *allocator, const rg_fifo_owner *owner, rg_fifo **fifo)
{
    void *memory;
    RG_TRY(rg_allocate_zero(allocator, sizeof(rg_fifo), &memory));
    rg_fifo *made = memory;
    made->allocator = *allocator;
    made->owner = *owner;
    pthread_mutex_init(&made->lock, NULL);
    pthread_cond_init(&made->changed, NULL);
    pthread_cond_init(&made->wanted, NULL);
    *fifo = made;
    return RG_OK;
}

static void fifo_free(rg_fifo *fifo)
{
    pthread_mutex_destroy(&fifo->lock);
    pthread_cond_destroy(&fifo->changed);
    pthread_cond_destroy(&fifo->wanted);
    const rg_allocator allocator = fifo->allocator;
    const rg_fifo_owner owner = fifo->owner;
    rg_release(&allocator, fifo, sizeof *fifo);
    if (owner.closed != NULL)
        owner.closed(owner.owner);
}

/* Runs the submission at the head. Called with the lock, which is released meanwhile, and while no
 * other thread runs one. */
static void run_head(rg_fifo *fifo)
{
    rg_backend_submission *submission = fifo->first;
    fifo->first = submission->next;
    fifo->last = fifo->first != NULL ? fifo->last : NULL;
    fifo->current = submission;
    fifo->runner = pthread_self();
    pthread_mutex_unlock(&fifo->lock);
    fifo->owner.run(fifo->owner.owner, submission);
    submission->finished(submission);
    pthread_mutex_lock(&fifo->lock);
    fifo->current = NULL;
    if (fifo->waiters > 0)
        pthread_cond_broadcast(&fifo->changed);
}

static void *worker_main(void *context)
{
    rg_fifo *fifo = context;
    pthread_mutex_lock(&fifo->lock);
    while (!fifo->stop) {
        if (fifo->first != NULL && fifo->current == NULL && fifo->awake) {
            run_head(fifo);
        } else if (fifo->first != NULL && fifo->current != NULL) {
            fifo->waiters++;
            pthread_cond_wait(&fifo->changed, &fifo->lock);
            fifo->waiters--;
        } else {
            fifo->awake = false;
            pthread_cond_wait(&fifo->wanted, &fifo->lock);
        }
    }
    const bool abandoned = fifo->abandoned;
    pthread_mutex_unlock(&fifo->lock);
    if (abandoned)
        fifo_free(fifo);
    return NULL;
}

/* With the lock. */
static void wake_worker(rg_fifo *fifo)
{
    if (fifo->first == NULL || fifo->awake)
        return;
    if (!fifo->has_worker)
        fifo->has_worker = rg_thread_start(&fifo->worker, worker_main, fifo);
    fifo->awake = fifo->has_worker;
    fifo->orphans = !fifo->has_worker;
    pthread_cond_signal(&fifo->wanted);
    while (!fifo->has_worker && fifo->first != NULL && fifo->current == NULL)
        run_head(fifo); /* no thread to be had: do it here */
}

void rg_fifo_close(rg_fifo *fifo)
{
    pthread_mutex_lock(&fifo->lock);
    fifo->stop = true;
    const bool inside = fifo->has_worker && pthread_equal(fifo->worker, pthread_self());
    fifo->abandoned = inside;
    pthread_cond_signal(&fifo->wanted);
    pthread_mutex_unlock(&fifo->lock);
    if (inside) { /* the last submission let go of its queue: the worker frees it on its way out */
        pthread_detach(fifo->worker);
        return;
    }
    if (fifo->has_worker)
        pthread_join(fifo->worker, NULL);
    fifo_free(fifo);
}

bool rg_fifo_submit(rg_fifo *fifo, rg_backend_submission *submission, bool wake)
{
    pthread_mutex_lock(&fifo->lock);
    const bool behind = fifo->first != NULL;
    submission->next = NULL;
    if (behind)
        fifo->last->next = submission;
    else
        fifo->first = submission;
    fifo->last = submission;
    if (wake)
        wake_worker(fifo);
    pthread_mutex_unlock(&fifo->lock);
    return behind;
}

bool rg_fifo_starts_late(const rg_fifo *fifo)
{
    return fifo->owner.starts_late;
}

void rg_fifo_wake(rg_fifo *fifo)
{
    pthread_mutex_lock(&fifo->lock);
    wake_worker(fifo);
    pthread_mutex_unlock(&fifo->lock);
}

rg_status rg_fifo_wait(rg_fifo *fifo, rg_backend_submission *submission,
                       bool (*is_done)(rg_backend_submission *submission))
{
    pthread_mutex_lock(&fifo->lock);
    const bool inside = fifo->current != NULL && pthread_equal(fifo->runner, pthread_self());
    /* Not before its runner has let go of it: the caller may destroy all there is, and expects
     * that nothing then touches the allocator. */
    while (!inside && (!is_done(submission) || fifo->current == submission)) {
        if (fifo->current == NULL) {
            run_head(fifo);
        } else {
            fifo->waiters++;
            pthread_cond_wait(&fifo->changed, &fifo->lock);
            fifo->waiters--;
        }
    }
    while (!inside && fifo->orphans && fifo->first != NULL && fifo->current == NULL)
        run_head(fifo);
    pthread_mutex_unlock(&fifo->lock);
    RG_CHECK(!inside || is_done(submission), RG_INVALID_STATE,
             "a completion handler cannot wait for commands of its own queue");
    return RG_OK;
}
