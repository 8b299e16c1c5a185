/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Peers: other libraries, timed beside us on the same rows, device and threads. They are found at
 * run time and never linked. */
#ifndef RG_CLI_PEER_API_H
#define RG_CLI_PEER_API_H

#include "cli/bench_row.h"

typedef struct rg_peer {
    const char *name;
    /* Starts it on the device, with as many threads; fails, with a sentence, where it is not
     * installed or does not run on such a device. */
    rg_status (*open)(const rg_device *device);
    /* The median time of one call on the tensors of an open row, or on its own like them.
     * RG_UNSUPPORTED, with a sentence, where it has no such op or dtype; any other failure ends
     * its part. */
    rg_status (*time)(const rg_bench_row *row, double seconds, double *ms);
    void (*close)(void);
} rg_peer;

extern const rg_peer rg_peer_onednn, rg_peer_libxsmm, rg_peer_openblas, rg_peer_torch,
    rg_peer_compile, rg_peer_cudnn;

/* All peers, NULL at the end. */
extern const rg_peer *const rg_peers[];

#endif
