/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The structs of the handles in public headers. */
#ifndef RG_RUNTIME_OBJECTS_H
#define RG_RUNTIME_OBJECTS_H

#include "backend/backend.h"
#include "backend/streams.h"
#include "core/shape.h"
#include "runtime/op.h"

typedef _Atomic int64_t rg_refs;

enum { RG_SPARES = 2 };
struct rg_device {
    rg_refs refs;
    const rg_backend *backend;
    void *context; /* the backend's */
    rg_allocator allocator;
    char name[32];
    _Atomic uint64_t commands_made;
    rg_choices choices; /* of strategies */
    /* Heaps of submissions that have run, the latest first; the next of their size takes one. */
    _Atomic(struct rg_storage *) spares[RG_SPARES];
};
rg_device *rg_device_retain(rg_device *device);
/* NULL: its backend has none. */
const rg_backend_streams *rg_device_streams(const rg_device *device);

/* Memory of the host that recorded copies reach without waiting; 0 bytes give NULL. */
rg_status rg_host_allocate(rg_device *device, size_t bytes, void **pointer);
void rg_host_release(rg_device *device, void *pointer, size_t bytes);

struct rg_queue {
    rg_refs refs;
    rg_device *device;
    void *queue; /* the backend's */
    _Atomic(struct rg_spare *) spare;
};
rg_queue *rg_queue_retain(rg_queue *queue);
void rg_queue_release(rg_queue *queue);

/* Memory that tensors share. It belongs to the device, to the caller (`release`), or to a block
 * of temporaries. */
typedef struct rg_storage {
    rg_refs refs;
    rg_device *device;
    char *data;   /* NULL for a temporary until its submission is committed */
    size_t bytes; /* owned; 0 for wrapped memory */
    void (*release)(void *context);
    void *context;
    struct rg_storage *block; /* of a committed temporary */
    /* Of a temporary that is not committed: the address of its range, and the range's offset. */
    struct rg_submission *submission;
    size_t offset;
    bool is_heap; /* see rg_heap_create */
} rg_storage;
rg_storage *rg_storage_retain(rg_storage *storage);
void rg_storage_release(rg_storage *storage);
rg_status rg_storage_create(rg_device *device, size_t bytes, rg_storage **storage);
/* Memory for temporaries and scratch of a submission: at least `bytes`, which may have been those
 * of an earlier one. */
rg_status rg_heap_create(rg_device *device, size_t bytes, rg_storage **storage);

struct rg_tensor {
    rg_refs refs;
    rg_device *device;
    rg_storage *storage;
    size_t offset; /* of element (0, …, 0) in the storage, in bytes */
    rg_tensor_desc desc;
    bool is_view;
    char *label; /* NULL: "" */

    /* temporaries only */
    uint64_t commands; /* the id of its commands; 0 for others */
    uint64_t read_count;
    rg_tensor *parent; /* of a view */
    uint64_t seen;     /* the last call that counted it */
};
/* An object without storage. */
rg_status rg_tensor_make(rg_device *device, const rg_tensor_desc *desc, rg_tensor **tensor);
/* Refuses what cannot be used in `commands`: a temporary of others, or one whose count is used
 * up. */
rg_status rg_tensor_usable(const rg_tensor *tensor, const rg_commands *commands, const char *who,
                           const char *prefix, const char *name);
/* Lowers the count of a temporary, once for each serial number. */
void rg_tensor_count_read(rg_tensor *tensor, uint64_t serial);
/* A read count with `amount` added, held between 0 and the largest number. */
uint64_t rg_count_plus(uint64_t count, int64_t amount);
/* Where a copy between the tensor and dense host memory goes; `device` is left to the caller. */
rg_status rg_tensor_copy_args(const rg_tensor *tensor, void *host, size_t bytes, rg_layout layout,
                              bool to_host, const char *who, rg_copy_args *args);

/* A pointer of an entry whose value is known when the submission is committed. */
typedef struct rg_relocation {
    size_t at;           /* the offset of the pointer in the entries */
    rg_storage *storage; /* NULL: scratch, or a fault word */
    size_t offset;       /* in the storage, in the heap, or after it among the fault words */
    bool is_fault;
} rg_relocation;

typedef struct rg_handler {
    void (*function)(void *context, rg_status outcome);
    void *context;
} rg_handler;

typedef struct rg_range {
    size_t begin, end;
} rg_range;

/* The outcome of a submission, for the states that its calls change. It outlives the submission. */
typedef struct rg_completion {
    rg_refs refs;
    /* As rg_submission.state; RG_COMMANDS_FAILED also if dropped without commit. */
    _Atomic int state;
} rg_completion;
void rg_completion_release(const rg_allocator *allocator, rg_completion *completion);

/* What one commit hands to the queue: entries, and all that they need. Its queue holds it until it
 * has run, and its commands, for the outcome, until the next commit. */
typedef struct rg_submission {
    rg_backend_submission base; /* first, so that a pointer to it is one to the submission */
    rg_refs refs;
    rg_queue *queue;
    _Atomic int state; /* rg_commands_state */
    rg_status outcome;
    rg_completion *completion;    /* NULL while no call has a state */
    struct rg_submission *before; /* committed earlier by the same commands; for its outcome */

    char *entries;
    size_t entries_capacity, entries_size;
    rg_storage **used; /* kept alive until the submission has run */
    size_t used_capacity, used_count;
    rg_relocation *relocations;
    size_t relocations_capacity, relocations_count;
    rg_handler *handlers;
    size_t handlers_capacity, handlers_count;

    /* the heap of temporaries: ranges in use, by offset, and the most that was in use */
    rg_range *ranges;
    size_t ranges_capacity, ranges_count;
    size_t heap_size;
    rg_storage **temporaries; /* made in this submission */
    size_t temporaries_capacity, temporaries_count;
} rg_submission;

struct rg_commands {
    uint64_t id; /* on its device: from 1, never used again */
    rg_queue *queue;
    rg_submission *submission; /* being recorded; NULL after commit */
    rg_submission *last;       /* committed last; NULL before the first commit */
    rg_results_hint hint;
    char *label;     /* NULL: "" */
    uint64_t serial; /* of calls: see rg_tensor.seen */
};

/* ---- submission.c ---- */

rg_status rg_submission_create(rg_queue *queue, rg_submission **submission);
/* Memory that a submission has left for the next one of its queue. */
void rg_spare_release(const rg_allocator *allocator, struct rg_spare *spare); /* NULL allowed */
void rg_submission_release(rg_submission *submission);                        /* NULL allowed */
void rg_submission_set_state(rg_submission *submission, int state);
bool rg_submission_is_done(rg_backend_submission *base);
/* Makes submission->completion, unless there is one. */
rg_status rg_submission_need_completion(rg_submission *submission);

/* Allocates memory for `size` more bytes of entries. */
rg_status rg_submission_reserve(rg_submission *submission, size_t size);
/* Appends an entry and a copy of its args, which lie at `args_at` of the entries. */
rg_status rg_submission_add(rg_submission *submission, const rg_entry *entry, const void *args,
                            size_t args_size, size_t *args_at);
/* Stores a pointer into the storage of a tensor at `at` of the entries: now if the address is
 * known, at commit for a temporary. */
rg_status rg_submission_bind(rg_submission *submission, size_t at, rg_storage *storage,
                             size_t offset);
/* Keeps a storage alive until the submission has run. */
rg_status rg_submission_keep(rg_submission *submission, rg_storage *storage);
/* Has a pointer stored at commit. */
rg_status rg_submission_relocate(rg_submission *submission, rg_relocation relocation);
/* Allocates the heap and stores all pointers into it: the last step before the queue. */
rg_status rg_submission_resolve(rg_submission *submission);

/* Take a range of `bytes` of the heap of temporaries, and return it. */
rg_status rg_heap_take(rg_submission *submission, size_t bytes, size_t *offset);
void rg_heap_give(rg_submission *submission, size_t offset);

/* ---- commands.c ---- */

/* A point that recording can go back to when a call is refused half-way. Temporaries made since
 * are destroyed first. */
typedef struct rg_mark {
    size_t entries, used, relocations, temporaries, heap_size;
    int64_t moved_bytes;
    int32_t faults, merged_fault_count;
} rg_mark;
rg_mark rg_commands_mark(const rg_commands *commands);
void rg_commands_rewind(rg_commands *commands, rg_mark mark);
rg_status rg_commands_recording(const rg_commands *commands, const char *who);
/* Waits for what was committed so far, and its handlers, whether or not more is being recorded. */
rg_status rg_commands_wait_committed(rg_commands *commands);

/* ---- repeat.c ---- */

/* Commands that are recorded once and repeated in others. A stand-in takes the place of a tensor
 * that is only known then: it has a shape, and an offset that gives the alignment of the tensor. */
rg_status rg_stand_in_create(rg_commands *commands, const rg_tensor_desc *desc, size_t offset,
                             rg_tensor **tensor);
typedef struct rg_stand_ins {
    rg_tensor *const *tensors, *const *stand_for;
    int32_t count;
    size_t begin, end; /* bytes of the entries to be repeated; both 0: all */
    bool waits;        /* the caller keeps `recorded` until the repetition has run */
} rg_stand_ins;
/* Allocates memory for scratch and temporaries once, for all repetitions, which run one after the
 * other. stand_for is not read. */
rg_status rg_commands_keep_heap(rg_commands *recorded, const rg_stand_ins *stand_ins);
/* Records all entries of `recorded`, which is not committed; on failure none of them. */
rg_status rg_commands_repeat(rg_commands *commands, const rg_commands *recorded,
                             const rg_stand_ins *stand_ins);

/* ---- replay.c ---- */

/* Commands that a backend launches as one, again and again, at fixed addresses. Recorded work that
 * launches them keeps them alive. */
typedef struct rg_replay rg_replay;
/* Captures all entries of `recorded`, which is not committed, and keeps the tensors that stand for
 * its stand-ins. RG_UNSUPPORTED, or another failure, where the backend refuses. */
rg_status rg_replay_create(rg_queue *queue, const rg_commands *recorded,
                           const rg_stand_ins *stand_ins, rg_replay **replay);
void rg_replay_destroy(rg_replay *replay); /* NULL allowed */
rg_status rg_commands_launch(rg_commands *commands, const rg_replay *replay);
/* Copies all elements to a dense tensor of the same dtype and dimensions; for backends with
 * replays. */
rg_status rg_commands_gather(rg_commands *commands, const rg_tensor *from, const rg_tensor *to);

struct rg_kernel {
    rg_device *device;
    const rg_op *op;
    void *desc; /* op->desc.size bytes */
    char *label;
};

enum { RG_STATE_PROGRESS = 4 };
struct rg_state {
    rg_device *device;
    const rg_op *op;
    void *desc;
    char *label;
    int32_t inputs, count;
    rg_tensor_desc sources[RG_MAX_INPUTS];
    const char *names[RG_MAX_STATE];
    rg_tensor *tensors[RG_MAX_STATE];
    rg_tensor *gradients[RG_MAX_INPUTS]; /* dx of the last gradient call but dx[0]; some NULL */
    bool filled;                         /* by a forward pass */
    /* Numbers of the op's own on how far recording has come; a call that is refused half-way
     * restores those of the calls before, which are in `recorded`. */
    int64_t progress[RG_STATE_PROGRESS], recorded[RG_STATE_PROGRESS];
    /* Of the submission that `filled` and `progress` come from; NULL: of none. */
    rg_completion *completion;
    bool temporary;
    uint64_t commands; /* of a temporary: the id of its commands */
    uint64_t read_count;
    uint64_t seen;
};
/* A state whose tensors have no storage yet. */
rg_status rg_state_make(const rg_kernel *kernel, const rg_tensor_desc sources[], rg_state **state);
rg_status rg_state_usable(const rg_state *state, const rg_commands *commands, const char *who);
/* Before a call: forgets calls that were dropped or have failed. `reads`: whether the call reads
 * what earlier ones have left; these must then be committed, or recorded in the same submission. */
rg_status rg_state_discard_failed(rg_state *state, const rg_commands *commands, bool reads,
                                  const char *who);
/* After one that was recorded. */
void rg_state_note(rg_state *state, const rg_submission *submission, bool filled);
void rg_state_count_read(rg_state *state, uint64_t serial);
/* Keeps dx[i] of image n of `count` for its name, NULL dx: forgets all. */
void rg_state_note_gradients(rg_state *state, rg_tensor *const dx[], int32_t inputs, int64_t count,
                             int64_t n);

/* Replaces a label by a copy of `text`. */
rg_status rg_label_set(const rg_allocator *allocator, char **label, const char *text);
void rg_label_clear(const rg_allocator *allocator, char **label);

#endif
