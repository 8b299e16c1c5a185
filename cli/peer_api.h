/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Peers: other libraries, timed on the same rows, device and threads. They are opened at run time
 * and never linked. */
#ifndef RG_CLI_PEER_API_H
#define RG_CLI_PEER_API_H

#include "cli/bench_row.h"

typedef struct rg_peer_time {
    double ms; /* of one call; 0: not measured */
    bool view; /* the library would return a view here; a copy that writes the result was timed */
} rg_peer_time;

typedef struct rg_peer {
    const char *name, *text; /* what it is, in some words */
    const char *missing; /* what this build was made without, so that it is not there; or NULL */
    bool takes_nchw;     /* it times rows of RG_CASE_NCHW, with its own kernels for such memory */
    /* Starts it on the device, with as many threads; fails, with a sentence, where it is not
     * installed or does not run on such a device. */
    rg_status (*open)(const rg_device *device);
    /* The median time of one call on the tensors of an open row, or on its own like them, in the
     * row's mode. RG_UNSUPPORTED, with a sentence, where it has no such op or dtype; any other
     * failure ends its part. */
    rg_status (*time)(const rg_bench_row *row, double seconds, rg_peer_time *time);
    void (*close)(void); /* NULL: nothing to do */
} rg_peer;

extern const rg_peer rg_peer_onednn, rg_peer_libxsmm, rg_peer_openblas, rg_peer_torch,
    rg_peer_compile, rg_peer_cudnn;

/* All peers, NULL at the end. */
extern const rg_peer *const rg_peers[];
/* The one of that name, or NULL. */
const rg_peer *rg_peer_find(const char *name, size_t length);
/* Starts it, where it is in this build. */
rg_status rg_peer_open(const rg_peer *peer, const rg_device *device);
/* Their names, of all or of those in this build, with a text between each two; returns `text`. */
const char *rg_peers_text(bool built, const char *between, char *text, size_t capacity);

/* ---- for peers ---- */

/* RG_UNSUPPORTED on any other device. */
rg_status rg_peer_needs_cpu(const char *peer, const rg_device *device);
/* Finds a function of a library, and puts it at `function`. */
rg_status rg_peer_symbol(const char *peer, void *library, const char *name, void *function);

/* One round of a job, and the time of one call in it. */
typedef rg_status rg_peer_round(const void *job, double *ms);
/* The median time of rounds. The first one warms up; if it takes too long already, it counts. */
rg_status rg_bench_time_rounds(rg_peer_round *round, const void *job, double seconds, double *ms);

/* One call of a job on the CPU. */
typedef rg_status rg_peer_call(const void *job);
/* The same for rounds of calls in the row's mode, as our own are timed. */
rg_status rg_bench_time_calls(rg_peer_call *call, const void *job, rg_bench_mode mode,
                              double seconds, double *ms);

#endif
