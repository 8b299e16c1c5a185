/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* `retrograde check --random`: trials without end, each in a child process that may crash. */
#ifndef RG_CLI_RANDOM_TRIALS_H
#define RG_CLI_RANDOM_TRIALS_H

#include "cli/random_case.h"

typedef struct rg_random_request {
    const char *device;
    rg_random_limits limits;
    double seconds;
    int64_t trials; /* or 0: until the time is over */
    int64_t seed;
    bool json;
    bool networks;                /* some of the trials are random networks */
    const rg_op_test *const *ops; /* NULL at the end */
} rg_random_request;

/* Runs trials; returns the exit status of the program. */
int rg_random_trials(const rg_random_request *request);
/* Runs the one trial of a text, in this process. */
int rg_random_repeat(const rg_random_request *request, const rg_op_test *test, const char *text);

/* ---- children ---- */

/* What a child process leaves. */
typedef enum rg_random_outcome {
    RG_OUTCOME_NONE, /* it did not come to an end */
    RG_OUTCOME_FINE,
    RG_OUTCOME_REFUSED, /* there is no such trial */
    RG_OUTCOME_FAILED
} rg_random_outcome;

enum { RG_RANDOM_SUBJECTS = 64 };

/* In memory that parent and child share. */
typedef struct rg_random_shared {
    rg_random_outcome outcome;
    int64_t trial; /* that runs, or ran last */
    int subject;
    char text[RG_RANDOM_TEXT], said[RG_SAID];
    int64_t trials[RG_RANDOM_SUBJECTS];
    rg_random_counts counts;
} rg_random_shared;
rg_random_shared *rg_random_share(void);

/* Forks; the child calls `work` and exits. Where it ends without an outcome, `said` says how. A
 * quiet child writes nothing. */
rg_status rg_random_fork(rg_random_shared *shared, bool quiet,
                         void (*work)(void *context, rg_random_shared *shared), void *context);
/* A trial begins: it may take so long. */
void rg_random_limit_time(void);

/* A smaller trial that still fails. `said` receives what it says. */
void rg_random_shrink(const char *device, rg_random_case *c, char said[RG_SAID]);

#endif
