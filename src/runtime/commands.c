/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Commands: created, committed, waited for; marks that recording goes back to. */
#include "core/private_api.h"
#include "runtime/objects.h"

#include <stdatomic.h>

rg_status rg_commands_create(rg_queue *queue, rg_commands **commands)
{
    RG_CHECK_NOT_NULL(commands);
    *commands = NULL;
    RG_CHECK_NOT_NULL(queue);
    const rg_allocator *allocator = &queue->device->allocator;
    void *memory;
    RG_TRY(rg_allocate_zero(allocator, sizeof(rg_commands), &memory));
    rg_commands *made = memory;
    const rg_status status = rg_submission_create(queue, &made->submission);
    if (status != RG_OK) {
        rg_release(allocator, memory, sizeof *made);
        return status;
    }
    made->queue = rg_queue_retain(queue);
    made->id = ++queue->device->commands_made;
    *commands = made;
    return RG_OK;
}

void rg_commands_destroy(rg_commands *commands)
{
    if (commands == NULL)
        return;
    rg_queue *queue = commands->queue;
    if (commands->last != NULL && !rg_submission_is_done(&commands->last->base))
        queue->device->backend->wake(queue->queue);
    rg_submission_release(commands->submission);
    rg_submission_release(commands->last);
    rg_label_clear(&queue->device->allocator, &commands->label);
    rg_release(&queue->device->allocator, commands, sizeof *commands);
    rg_queue_release(queue);
}

rg_device *rg_commands_device(const rg_commands *commands)
{
    return commands != NULL ? commands->queue->device : NULL;
}

rg_status rg_commands_set_label(rg_commands *commands, const char *label)
{
    RG_CHECK_NOT_NULL(commands);
    RG_CHECK_NOT_NULL(label);
    return rg_label_set(&commands->queue->device->allocator, &commands->label, label);
}

const char *rg_commands_label(const rg_commands *commands)
{
    return commands != NULL && commands->label != NULL ? commands->label : "";
}

rg_status rg_commands_recording(const rg_commands *commands, const char *who)
{
    RG_CHECK(commands != NULL, RG_INVALID_ARGUMENT, "%s: commands is NULL", who);
    RG_CHECK(commands->submission != NULL, RG_INVALID_STATE,
             "%s: the commands are already committed", who);
    return RG_OK;
}

/* Submissions that ran without error have nothing more to report. */
static void forget_completed(rg_submission **submission)
{
    while (*submission != NULL) {
        rg_submission *done = *submission;
        if (atomic_load(&done->state) != RG_COMMANDS_COMPLETED) {
            submission = &done->before;
            continue;
        }
        *submission = done->before;
        done->before = NULL;
        rg_submission_release(done);
    }
}

/* `next` becomes the submission being recorded; NULL ends recording. */
static rg_status commit(rg_commands *commands, rg_submission *next)
{
    rg_submission *submission = commands->submission;
    rg_queue *queue = commands->queue;
    RG_TRY(rg_submission_resolve(submission));
    forget_completed(&commands->last);
    submission->before = commands->last;
    submission->refs++; /* the queue's */
    rg_submission_set_state(submission, RG_COMMANDS_COMMITTED);
    commands->last = submission;
    commands->submission = next;
    rg_queue_retain(queue); /* a handler may destroy all there is before submit returns */
    queue->device->backend->submit(queue->queue, &submission->base);
    rg_queue_release(queue);
    return RG_OK;
}

rg_status rg_commands_commit(rg_commands *commands)
{
    RG_TRY(rg_commands_recording(commands, "rg_commands_commit"));
    return commit(commands, NULL);
}

rg_status rg_commands_commit_and_continue(rg_commands *commands)
{
    RG_TRY(rg_commands_recording(commands, "rg_commands_commit_and_continue"));
    rg_submission *next;
    RG_TRY(rg_submission_create(commands->queue, &next));
    const rg_status status = commit(commands, next);
    if (status != RG_OK)
        rg_submission_release(next);
    return status;
}

static const rg_submission *failed_submission(const rg_commands *commands)
{
    const rg_submission *failed = NULL; /* the earliest */
    for (rg_submission *submission = commands->last; submission != NULL;
         submission = submission->before)
        failed = atomic_load(&submission->state) == RG_COMMANDS_FAILED ? submission : failed;
    return failed;
}

RG_PRIVATE_API rg_status rg_commands_wait_committed(rg_commands *commands)
{
    return commands->last == NULL ? RG_OK
                                  : commands->queue->device->backend->wait(commands->queue->queue,
                                                                           &commands->last->base,
                                                                           rg_submission_is_done);
}

rg_status rg_commands_wait(rg_commands *commands)
{
    RG_CHECK_NOT_NULL(commands);
    RG_CHECK(commands->submission == NULL, RG_INVALID_STATE,
             "rg_commands_wait: the commands are not committed; commit them first");
    RG_TRY(rg_commands_wait_committed(commands));
    const rg_submission *failed = failed_submission(commands);
    return failed == NULL ? RG_OK : rg_fail(failed->outcome, "%s", failed->base.fault_text);
}

rg_status rg_commands_on_completion(rg_commands *commands,
                                    void (*handler)(void *context, rg_status outcome),
                                    void *context)
{
    RG_TRY(rg_commands_recording(commands, "rg_commands_on_completion"));
    RG_CHECK_NOT_NULL(handler);
    rg_submission *submission = commands->submission;
    RG_TRY(rg_grow(&submission->queue->device->allocator, (void **)&submission->handlers,
                   &submission->handlers_capacity, submission->handlers_count,
                   sizeof submission->handlers[0]));
    submission->handlers[submission->handlers_count++] = (rg_handler){ handler, context };
    return RG_OK;
}

rg_commands_state rg_commands_get_state(rg_commands *commands)
{
    if (commands == NULL || commands->submission != NULL)
        return RG_COMMANDS_RECORDING;
    if (failed_submission(commands) != NULL)
        return RG_COMMANDS_FAILED;
    if (!rg_submission_is_done(&commands->last->base)) {
        commands->queue->device->backend->wake(commands->queue->queue);
        return RG_COMMANDS_COMMITTED;
    }
    return RG_COMMANDS_COMPLETED;
}

const char *rg_commands_error_text(rg_commands *commands)
{
    const rg_submission *failed = commands != NULL ? failed_submission(commands) : NULL;
    return failed != NULL ? failed->base.fault_text : "";
}

rg_status rg_commands_set_results_hint(rg_commands *commands, rg_results_hint hint)
{
    RG_TRY(rg_commands_recording(commands, "rg_commands_set_results_hint"));
    RG_CHECK(hint == RG_RESULTS_BY_SIZE || hint == RG_RESULTS_READ_SOON ||
                 hint == RG_RESULTS_READ_LATER,
             RG_INVALID_ARGUMENT, "rg_commands_set_results_hint: unknown hint %d", (int)hint);
    commands->hint = hint;
    return RG_OK;
}

/* ---- marks ---- */

rg_mark rg_commands_mark(const rg_commands *commands)
{
    const rg_submission *submission = commands->submission;
    return (rg_mark){ .entries = submission->entries_size,
                      .used = submission->used_count,
                      .relocations = submission->relocations_count,
                      .temporaries = submission->temporaries_count,
                      .heap_size = submission->heap_size,
                      .moved_bytes = submission->base.moved_bytes,
                      .faults = submission->base.fault_count,
                      .merged_fault_count = submission->base.merged_fault_count };
}

void rg_commands_rewind(rg_commands *commands, rg_mark mark)
{
    rg_submission *submission = commands->submission;
    while (submission->used_count > mark.used)
        rg_storage_release(submission->used[--submission->used_count]);
    while (submission->temporaries_count > mark.temporaries)
        rg_storage_release(submission->temporaries[--submission->temporaries_count]);
    submission->heap_size = mark.heap_size;
    submission->entries_size = mark.entries;
    submission->relocations_count = mark.relocations;
    submission->base.moved_bytes = mark.moved_bytes;
    submission->base.fault_count = mark.faults;
    submission->base.merged_fault_count = mark.merged_fault_count;
}
