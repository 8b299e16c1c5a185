/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/** @file
 *  Commands: work that is recorded, then committed to a queue, then waited for or called back
 *  about.
 *
 *  Recording checks its arguments and does no work. One thread at a time records into one
 *  rg_commands; different ones are independent. */
#ifndef RETROGRADE_COMMANDS_H
#define RETROGRADE_COMMANDS_H

#include <retrograde/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum rg_commands_state {
    RG_COMMANDS_RECORDING, /**< not committed, or going on after commit_and_continue */
    RG_COMMANDS_COMMITTED, /**< waiting for its turn, or running */
    RG_COMMANDS_COMPLETED, /**< ran without error */
    RG_COMMANDS_FAILED     /**< ran into an error: see rg_commands_error_text() */
} rg_commands_state;

RG_API rg_status rg_commands_create(rg_queue *queue, rg_commands **commands);

/** Gives the commands back: what was not committed is dropped, what was committed still runs.
 *  NULL allowed. */
RG_API void rg_commands_destroy(rg_commands *commands);

/** Hands what was recorded to the queue, without waiting for it; on a GPU a recorded read or write
 *  of memory that is not pinned does wait for the work before it. RG_OUT_OF_MEMORY if its
 *  temporaries find no room: then nothing was committed and it can be tried again. */
RG_API rg_status rg_commands_commit(rg_commands *commands);

/** Commits what was recorded so far and goes on recording. Handlers added before belong to the
 *  committed part; temporaries stay valid. */
RG_API rg_status rg_commands_commit_and_continue(rg_commands *commands);

/** Waits until all that was committed has run, helping to run it, and returns its outcome.
 *  Refused while recording: commit first. */
RG_API rg_status rg_commands_wait(rg_commands *commands);

/** Adds a function that is called once, on any thread, when the part being recorded has run.
 *  Handlers run in the order they were added, and before rg_commands_wait returns. A handler
 *  does not wait for commands of its own queue. */
RG_API rg_status rg_commands_on_completion(rg_commands *commands,
                                           void (*handler)(void *context, rg_status outcome),
                                           void *context);

/** Where the commands stand; never blocks. */
RG_API rg_commands_state rg_commands_get_state(rg_commands *commands);

/** The sentence that explains why the commands failed, "" if they did not. Valid until the
 *  commands are destroyed. */
RG_API const char *rg_commands_error_text(rg_commands *commands);

/** What happens next to results. Large results that nobody reads soon are written past the
 *  cache. */
typedef enum rg_results_hint {
    RG_RESULTS_BY_SIZE,   /**< decide by size (default) */
    RG_RESULTS_READ_SOON, /**< keep them in the cache */
    RG_RESULTS_READ_LATER /**< write them past the cache */
} rg_results_hint;

/** Sets the hint for what is recorded from here on. It changes speed, never values. */
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
