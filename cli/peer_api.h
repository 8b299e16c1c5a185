/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Peers: other libraries, timed beside us on the same rows and threads. They are found at run time
 * and never linked. */
#ifndef RG_CLI_PEER_API_H
#define RG_CLI_PEER_API_H

#include "cli/bench_row.h"

typedef struct rg_peer {
    const char *name;
    /* Starts it with so many threads; fails, with a sentence, where it is not installed. */
    rg_status (*open)(int32_t threads);
    /* The median time of one call on the tensors of an open row, or on its own like them.
     * RG_UNSUPPORTED where it has no such op or dtype; any other failure ends its part. */
    rg_status (*time)(const rg_bench_row *row, double seconds, double *ms);
    void (*close)(void);
} rg_peer;

extern const rg_peer rg_peer_onednn, rg_peer_torch;

/* All peers, NULL at the end. */
extern const rg_peer *const rg_peers[];

#endif
