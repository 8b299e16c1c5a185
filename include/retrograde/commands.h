/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/** @file
 *  Commands: work that is recorded and then committed to a queue. The caller waits for it or adds
 *  a completion handler.
 *
 *  Recording checks arguments and runs nothing. Only one thread at a time may record into an
 *  rg_commands; different rg_commands are independent. */
#ifndef RETROGRADE_COMMANDS_H
#define RETROGRADE_COMMANDS_H

#include <retrograde/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum rg_commands_state {
    RG_COMMANDS_RECORDING, /**< not committed, or recording after commit_and_continue */
    RG_COMMANDS_COMMITTED, /**< queued or running */
    RG_COMMANDS_COMPLETED, /**< ran without error */
    RG_COMMANDS_FAILED     /**< failed: see rg_commands_error_text() */
} rg_commands_state;

RG_API rg_status rg_commands_create(rg_queue *queue, rg_commands **commands);

/** Releases the commands: work that was not committed is dropped, committed work still runs.
 *  NULL is allowed. */
RG_API void rg_commands_destroy(rg_commands *commands);

/** Submits the recorded work to the queue without waiting for it; on a GPU a recorded read or write
 *  of memory that is not pinned waits for the work before it. RG_OUT_OF_MEMORY if its temporaries
 *  cannot be allocated: then nothing is committed and the call can be repeated. */
RG_API rg_status rg_commands_commit(rg_commands *commands);

/** Commits the work recorded so far and continues recording. Handlers added before belong to the
 *  committed part; temporaries stay valid. */
RG_API rg_status rg_commands_commit_and_continue(rg_commands *commands);

/** Waits until all committed work has run, helps to run it, and returns its result. Fails while
 *  work is being recorded: before the first commit, and after rg_commands_commit_and_continue()
 *  until the next one. On the CPU the calling thread runs kernels and needs 512 KiB of stack;
 * threads of the library have at least 2 MiB, whatever the stack limit of the process. */
RG_API rg_status rg_commands_wait(rg_commands *commands);

/** Adds a function that is called once, on any thread, when the work being recorded has run.
 *  Handlers run in the order they were added, and before rg_commands_wait returns. A handler
 *  must not wait for commands of its own queue. */
RG_API rg_status rg_commands_on_completion(rg_commands *commands,
                                           void (*handler)(void *context, rg_status outcome),
                                           void *context);

/** The device of their queue, owned by the commands. */
RG_API rg_device *rg_commands_device(const rg_commands *commands);
/** A name for diagnostics; "" by default. The text is copied. */
RG_API rg_status rg_commands_set_label(rg_commands *commands, const char *label);
RG_API const char *rg_commands_label(const rg_commands *commands);

/** The state of the commands; never blocks. */
RG_API rg_commands_state rg_commands_get_state(rg_commands *commands);

/** The error text of commands that failed, "" if they did not. Valid until the
 *  commands are destroyed. */
RG_API const char *rg_commands_error_text(rg_commands *commands);

/** When results will be read. Large results that are not read soon are written with non-temporal
 *  stores, which bypass the cache. */
typedef enum rg_results_hint {
    RG_RESULTS_BY_SIZE,   /**< decide by size (default) */
    RG_RESULTS_READ_SOON, /**< keep them in the cache */
    RG_RESULTS_READ_LATER /**< bypass the cache */
} rg_results_hint;

/** Sets the hint for work recorded from now on. It changes speed, never values. */
RG_API rg_status rg_commands_set_results_hint(rg_commands *commands, rg_results_hint hint);

/** Records rg_tensor_read; `data` must live until the commands have run. Counts as a read of a
 *  temporary. */
RG_API rg_status rg_commands_read(rg_commands *commands, rg_tensor *tensor, void *data,
                                  size_t bytes, rg_layout layout);

/** Records rg_tensor_write; `data` must live until the commands have run. */
RG_API rg_status rg_commands_write(rg_commands *commands, rg_tensor *tensor, const void *data,
                                   size_t bytes, rg_layout layout);

#ifdef __cplusplus
}
#endif

#endif
