/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The table that a backend fills, and what it is handed. A backend sees functions with their
 * args; it never learns an op's name. */
#ifndef RG_BACKEND_BACKEND_H
#define RG_BACKEND_BACKEND_H

#include "backend/choices.h"
#include "core/dtype.h"
#include "core/memory.h"

#include <retrograde/device.h>

/* ---- kernels ---- */

/* A CPU kernel does units begin <= u < end. */
typedef void (*rg_cpu_function)(const void *args, int64_t begin, int64_t end);
typedef struct rg_cpu_row {
    rg_cpu_function function[4]; /* by data dtype; NULL: look one instruction set lower */
} rg_cpu_row;

/* Host side of a CUDA kernel: chooses a grid and launches once on the target's stream. */
typedef struct rg_cuda_target rg_cuda_target; /* backend/cuda/target.h */
typedef void (*rg_cuda_function)(const void *args, const rg_cuda_target *target);
/* Returns the scratch bytes the launch needs. Called while recording: anything slow or that
 * allocates is prepared here. Pointers of the args are not filled in yet; bit i of `unaligned`
 * is set if tensor i does not begin at a multiple of 16 bytes. Scratch begins at a multiple of
 * RG_SCRATCH_ALIGNMENT, as libraries want it. */
enum { RG_SCRATCH_ALIGNMENT = 256 };
typedef size_t (*rg_cuda_scratch)(const void *args, uint32_t unaligned,
                                  const rg_cuda_target *target);
typedef struct rg_cuda_row {
    int32_t id;                   /* the kernel's */
    rg_cuda_function function[4]; /* by data dtype; NULL: there is none */
    rg_cuda_scratch scratch[4];   /* NULL: as many as the launch says */
} rg_cuda_row;

/* What one object has of an op's kernels. On the CPU rows[id] is kernel id's, empty for kernels of
 * other objects; a row for a GPU says its id. */
typedef struct rg_cpu_table {
    const rg_cpu_row *rows;
    int32_t count;
} rg_cpu_table;
typedef struct rg_cuda_table {
    const rg_cuda_row *rows;
    int32_t count;
    /* The name of strategy i that its kernels choose from at launch, NULL after the last; or NULL.
     */
    const char *(*strategy)(int32_t i);
} rg_cuda_table;

/* The kernels of one op on every backend: cpu[double][instruction set] and cuda are lists of tables
 * with NULL at their end, or NULL. At most one table of a list has a function for a kernel and
 * dtype. */
enum { RG_MAX_ISAS = 3 }; /* of a CPU */
typedef struct rg_kernel_table {
    const rg_cpu_table *const *cpu[2][RG_MAX_ISAS];
    const rg_cuda_table *const *cuda;
} rg_kernel_table;

/* ---- submissions: recorded work for a backend ---- */

/* One entry of a submission; `size` bytes, followed by its args. A work entry calls `function`
 * on the args; a copy entry (function NULL) has rg_copy_args. */
typedef struct rg_entry {
    size_t size;
    void (*function)(void); /* of the backend's own type */
    int64_t units, grain, bytes;
    bool backwards; /* a CPU takes tiles from the last to the first */
    const char *fault_text;
    int32_t fault;  /* with a fault_text: which of the submission's fault words its kernel sets */
    size_t scratch; /* bytes, of a launch; without those of each thread */
} __attribute__((aligned(16))) rg_entry;

/* A strided copy between a tensor and dense host memory. */
typedef struct rg_copy_args {
    void *device;                 /* the tensor's first element */
    void *staging;                /* as much as the host's, where the backend stages copies */
    void *host;                   /* dense; the staging itself where nothing is beyond it */
    int64_t dims[RG_MAX_RANK];    /* in the order of the host */
    int64_t strides[RG_MAX_RANK]; /* of the tensor, in elements */
    int32_t rank;
    int32_t element; /* bytes */
    bool to_host;
} rg_copy_args;

/* The args of rg_backend.replay. */
typedef struct rg_replay_args {
    void *captured;         /* NULL: nothing is done */
    const uint32_t *faults; /* of what is launched, */
    uint32_t *merged;       /* copied here, among those of the submission, when it has run */
    int64_t fault_count;
} rg_replay_args;

/* Whether the tensor's elements have the order of the host's. */
static inline bool rg_copy_is_dense(const rg_copy_args *args)
{
    int64_t stride = 1;
    for (int32_t d = args->rank - 1; d >= 0; d--) {
        if (args->strides[d] != stride && args->dims[d] != 1)
            return false;
        stride *= args->dims[d];
    }
    return true;
}

/* What a backend sees of a submission. */
typedef struct rg_backend_submission {
    const char *entries; /* contiguous */
    size_t bytes;
    int64_t moved_bytes; /* by all entries */
    bool has_handler;    /* a handler is called at its end, so that a wait may never come */

    /* Words that kernels set, in memory of the device; the backend clears them first. The CPU ends
     * a submission at the first fault; a GPU has launched what follows already. */
    uint32_t *faults;
    int32_t fault_count;
    int32_t merged_fault_count; /* how many of them entries write in any case: see rg_replay_args */

    rg_status outcome;      /* by the backend, with a sentence if it is not RG_OK */
    const char *fault_text; /* of the first entry that faulted, or `text` */
    char text[160];

    void *token; /* the backend's own */
    /* Call when done; the submission may be gone afterwards. */
    void (*finished)(struct rg_backend_submission *submission);
    struct rg_backend_submission *next;
} rg_backend_submission;

/* ---- the table ---- */

typedef struct rg_backend {
    const char *name;    /* "cpu" */
    bool numbered;       /* a device is called "name:index", not "name" */
    bool thread_scratch; /* kernels run on threads() threads, which may have scratch of their own */
    bool keeps_heaps;    /* those of submissions: new memory comes slowly, page by page */
    bool stages;         /* a copy of a tensor that is not dense goes through dense device memory */

    /* How many devices of this kind the machine has; if 0, *reason says why. */
    int32_t (*count)(const char **reason);
    /* Opens device `index`; *context is handed to all that follows. `choices`, of strategies, lives
     * as long as it. */
    rg_status (*open)(int32_t index, const rg_device_options *options,
                      const rg_allocator *allocator, rg_choices *choices, void **context);
    void (*close)(void *context);
    int32_t (*threads)(const void *context);
    const char *(*isa)(const void *context);
    /* One line for people. */
    void (*describe)(const void *context, char *text, size_t capacity);

    rg_status (*allocate)(void *context, size_t size, void **pointer);
    void (*release)(void *context, void *pointer, size_t size);
    /* Memory of the host that copies of a submission reach without waiting; NULL: any. */
    rg_status (*host_allocate)(void *context, size_t size, void **pointer);
    void (*host_release)(void *context, void *pointer);
    /* Refuses memory of the caller that the device cannot use; NULL: any will do. */
    rg_status (*check_pointer)(void *context, const void *pointer);
    /* An immediate copy; waits for nothing but itself. */
    rg_status (*copy)(void *context, const rg_copy_args *args);

    /* The function of kernel `id`, or NULL where the table has none. */
    void (*(*find)(void *context, const rg_kernel_table *table, int32_t id, rg_dtype dtype))(void);
    /* Bytes of scratch for a launch of it that asks for `wanted`, see rg_cuda_scratch; NULL: just
     * these. */
    size_t (*scratch)(void *context, const rg_kernel_table *table, int32_t id, rg_dtype dtype,
                      const void *args, uint32_t unaligned, size_t wanted);

    /* Keeps the work of a submission that is not submitted, to be launched as one, again and
     * again. What its entries point to stays where it is. NULL: the backend launches one by one. */
    rg_status (*capture)(void *context, const rg_backend_submission *submission, void **captured);
    void (*let_go)(void *context, void *captured);
    /* The function of an entry that launches it, on rg_replay_args. */
    void (*replay)(void);

    rg_status (*queue_open)(void *context, void **queue);
    /* A queue over a stream of the caller; NULL: the backend has none. */
    rg_status (*queue_wrap)(void *context, void *stream, void **queue);
    /* Runs the entries of a submission that belongs to no queue at once, on the calling thread and
     * those of the device; NULL: the backend cannot. */
    void (*run)(void *context, rg_backend_submission *submission);
    void (*queue_close)(void *queue); /* nothing is pending: every submission keeps its queue */
    /* Takes the submission; it runs after all submitted before it. */
    void (*submit)(void *queue, rg_backend_submission *submission);
    /* Makes the queue run what is pending even if no thread waits for it. */
    void (*wake)(void *queue);
    /* Returns when `is_done(submission)`; may run pending work itself. Refused from a handler of
     * the same queue. */
    rg_status (*wait)(void *queue, rg_backend_submission *submission,
                      bool (*is_done)(rg_backend_submission *submission));
} rg_backend;

extern const rg_backend rg_backend_cpu;
extern const rg_backend rg_backend_cuda; /* where RG_HAVE_CUDA */

#endif
