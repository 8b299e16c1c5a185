/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The submissions of a queue, in order. A thread that waits runs what is pending itself; a fifo
 * has a worker of its own only once there is work that no thread may be waiting for. */
#ifndef RG_BACKEND_FIFO_H
#define RG_BACKEND_FIFO_H

#include "backend/backend.h"

typedef struct rg_fifo rg_fifo;

/* What a backend does with its submissions. */
typedef struct rg_fifo_owner {
    void (*run)(void *owner,
                rg_backend_submission
                    *submission); /* does the work of a submission, or waits for its end */
    void (*closed)(void *owner);  /* the fifo is gone, and no thread of it is left */
    void *owner;
    bool starts_late; /* threads are the caller's: nothing runs before one of them waits for it */
} rg_fifo_owner;

rg_status rg_fifo_create(const rg_allocator *allocator, const rg_fifo_owner *owner, rg_fifo **fifo);
/* Nothing is pending: every submission keeps its queue. `closed` may be called later, by the
 * worker. */
void rg_fifo_close(rg_fifo *fifo);

/* Puts a submission after all others. With `wake` the worker runs it, whether or not a thread
 * waits; returns whether others were pending. */
bool rg_fifo_submit(rg_fifo *fifo, rg_backend_submission *submission, bool wake);
/* `starts_late` of its owner. */
bool rg_fifo_starts_late(const rg_fifo *fifo);
/* Makes sure that what is pending runs even if no thread waits for it. */
void rg_fifo_wake(rg_fifo *fifo);
/* As rg_backend's wait. */
rg_status rg_fifo_wait(rg_fifo *fifo, rg_backend_submission *submission,
                       bool (*is_done)(rg_backend_submission *submission));

#endif
