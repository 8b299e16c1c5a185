/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The table that a backend fills, and what it is handed. A backend sees lists of functions with
 * their args; it never learns an op's name. */
#ifndef RG_BACKEND_BACKEND_H
#define RG_BACKEND_BACKEND_H

#include "core/dtype.h"
#include "core/memory.h"

#include <retrograde/device.h>

/* ---- kernels ---- */

/* A CPU kernel does units begin <= u < end. */
typedef void (*rg_cpu_function)(const void *args, int64_t begin, int64_t end);
typedef struct rg_cpu_row {
    rg_cpu_function function[4]; /* by data dtype; NULL: look one rung lower */
} rg_cpu_row;

/* The kernels of one op on every backend: cpu[double][rung] is an array of rows by kernel id, or
 * NULL. */
enum { RG_RUNG_BASE, RG_RUNG_AVX2, RG_RUNG_AVX512, RG_RUNGS };
typedef struct rg_kernel_table {
    const rg_cpu_row *cpu[2][RG_RUNGS];
    const void *cuda;
} rg_kernel_table;

/* ---- lists: recorded work on its way to a backend ---- */

/* One entry of a list; `size` bytes with its args behind it. A work entry calls `function` on
 * the args; a copy entry (function NULL) has rg_copy_args. */
typedef struct rg_entry {
    size_t size;
    void (*function)(void); /* of the backend's own type */
    int64_t units, grain, bytes;
    const char *fault_text;
} __attribute__((aligned(16))) rg_entry;

/* A strided copy between a tensor and dense host memory. */
typedef struct rg_copy_args {
    void *device;                 /* the tensor's first element */
    void *host;                   /* dense */
    int64_t dims[RG_MAX_RANK];    /* in the order of the host */
    int64_t strides[RG_MAX_RANK]; /* of the tensor, in elements */
    int32_t rank;
    int32_t element; /* bytes */
    bool to_host;
} rg_copy_args;

typedef struct rg_list {
    const char *entries; /* one behind the other */
    size_t bytes;
    int64_t moved;          /* bytes that all entries move */
    bool watched;           /* somebody is told of its end, and may never wait for it */
    const char *fault_text; /* of the first entry that faulted */
    _Atomic uint32_t fault; /* set by kernels; the list ends there */
    void (*finished)(struct rg_list *list); /* call when done; the list may be gone afterwards */
    struct rg_list *next;
} rg_list;

/* ---- the table ---- */

typedef struct rg_backend {
    const char *name; /* "cpu" */
    /* How many devices of this kind the machine has. */
    int32_t (*count)(void);
    /* Opens device `index`; *context is handed to all that follows. */
    rg_status (*open)(int32_t index, const rg_device_options *options,
                      const rg_allocator *allocator, void **context);
    void (*close)(void *context);
    int32_t (*threads)(const void *context);
    const char *(*rung)(const void *context);
    const char *(*rung_list)(
        int32_t index); /* from the lowest; NULL past the last this machine has */
    bool numbered;      /* a device is called "name:index", not "name" */

    rg_status (*allocate)(void *context, size_t size, void **pointer);
    void (*release)(void *context, void *pointer, size_t size);
    /* An immediate copy; waits for nothing but itself. */
    rg_status (*copy)(void *context, const rg_copy_args *args);

    /* The function of kernel `id`, or NULL where the table has none. */
    void (*(*find)(void *context, const rg_kernel_table *table, int32_t id, rg_dtype dtype))(void);

    rg_status (*queue_open)(void *context, void **queue);
    void (*queue_close)(void *queue); /* nothing is pending: every list keeps its queue */
    /* Takes the list; it runs after all submitted before it. */
    void (*submit)(void *queue, rg_list *list);
    /* Somebody wants to know, without waiting, whether the queue gets on. */
    void (*nudge)(void *queue);
    /* Returns when `is_done(list)`; may run pending work itself. Refused from a handler of the
     * same queue. */
    rg_status (*wait)(void *queue, rg_list *list, bool (*is_done)(rg_list *list));
} rg_backend;

extern const rg_backend rg_backend_cpu;

#endif
