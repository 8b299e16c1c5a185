/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The list of peers, and what they share: how they are opened and how they are timed. */
#include "cli/peer_api.h"
#include "core/clock.h"

#include <dlfcn.h>
#include <stdio.h>

const rg_peer *const rg_peers[] = { &rg_peer_onednn,
                                    &rg_peer_libxsmm,
                                    &rg_peer_openblas,
                                    &rg_peer_torch,
                                    &rg_peer_compile,
                                    &rg_peer_cudnn,
                                    NULL };

const rg_peer *rg_peer_find(const char *name, size_t length)
{
    for (int i = 0; rg_peers[i] != NULL; i++) {
        if (strlen(rg_peers[i]->name) == length && memcmp(rg_peers[i]->name, name, length) == 0)
            return rg_peers[i];
    }
    return NULL;
}

const char *rg_peers_text(bool built, const char *between, char *text, size_t capacity)
{
    size_t at = 0;
    text[0] = 0;
    for (int i = 0; rg_peers[i] != NULL && at < capacity; i++) {
        if (rg_peers[i]->missing == NULL || !built)
            at += (size_t)snprintf(text + at, capacity - at, "%s%s", at > 0 ? between : "",
                                   rg_peers[i]->name);
    }
    return text;
}

rg_status rg_peer_open(const rg_peer *peer, const rg_device *device)
{
    RG_CHECK(peer->missing == NULL, RG_UNSUPPORTED,
             "%s: this build does not contain it; %s was missing when it was built", peer->name,
             peer->missing);
    return peer->open(device);
}

rg_status rg_peer_needs_cpu(const char *peer, const rg_device *device)
{
    RG_CHECK(!rg_bench_on_gpu(device), RG_UNSUPPORTED, "%s runs only on the CPU, not on %s", peer,
             rg_device_name(device));
    return RG_OK;
}

rg_status rg_peer_symbol(const char *peer, void *library, const char *name, void *function)
{
    void *found = dlsym(library, name);
    RG_CHECK(found != NULL, RG_UNSUPPORTED, "%s: the library has no function %s", peer, name);
    memcpy(function, &found, sizeof found);
    return RG_OK;
}

rg_status rg_bench_time_rounds(rg_peer_round *round, const void *job, double seconds, double *ms)
{
    enum { LEAST = 7, MOST = 4096 };
    static double times[MOST];
    const double start = rg_seconds();
    RG_TRY(round(job, ms));
    if (*ms >= 1e3 * seconds)
        return RG_OK;
    int32_t count = 0;
    while (count < LEAST || (count < MOST && rg_seconds() - start < seconds))
        RG_TRY(round(job, &times[count++]));
    *ms = rg_bench_quantile(times, count, 0.5);
    return RG_OK;
}

typedef struct timed_calls {
    rg_peer_call *call;
    const void *job;
    rg_bench_mode mode;
} timed_calls;

static rg_status time_calls(const void *of, double *ms)
{
    const timed_calls *t = of;
    double seconds = 0;
    for (int32_t i = 0; i < t->mode.commits; i++) {
        const double start = rg_seconds();
        for (int32_t call = 0; call < t->mode.calls; call++)
            RG_TRY(t->call(t->job));
        seconds += rg_seconds() - start;
    }
    *ms = 1e3 * seconds / ((double)t->mode.calls * t->mode.commits);
    return RG_OK;
}

rg_status rg_bench_time_calls(rg_peer_call *call, const void *job, rg_bench_mode mode,
                              double seconds, double *ms)
{
    return rg_bench_time_rounds(time_calls, &(timed_calls){ call, job, mode }, seconds, ms);
}
