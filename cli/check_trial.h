/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* One run of a kernel: all its tensors, and the checks that are made of them. */
#ifndef RG_CLI_CHECK_TRIAL_H
#define RG_CLI_CHECK_TRIAL_H

#include "cli/check.h"
#include "cli/guarded.h"

typedef struct rg_check_trial {
    rg_checker *checker;
    const rg_values *v;
    const char *layout_name;
    rg_kernel *kernel;
    rg_results_hint hint; /* must change no bit */
    bool alone;           /* the gradient of input `wanted` is asked for, no other */
    int32_t wanted;
    const rg_views *views;          /* of random layouts; NULL: arrangements */
    uint64_t beside[RG_MAX_INPUTS]; /* fingerprints of each dx that ran beside the others, or 0 */
    rg_guarded x[RG_MAX_INPUTS], y[RG_MAX_OUTPUTS], dy[RG_MAX_OUTPUTS], dx[RG_MAX_INPUTS];
} rg_check_trial;

/* Counts a failure and prints it; the sentence follows the name of the trial. */
__attribute__((format(printf, 2, 3))) void rg_trial_fail(const rg_check_trial *t,
                                                         const char *format, ...);
/* Whether a call succeeded; prints the failure otherwise. */
bool rg_trial_ok(const rg_check_trial *t, rg_status status, const char *what);

/* The largest finite element; the error that a dtype may have, relative to it. */
double rg_trial_largest_of(const double *data, int64_t count);
double rg_tolerance(rg_dtype dtype);

/* Numbers by distance, NaN with NaN, infinities with themselves. NULL: nothing to compare with. */
void rg_trial_compare(const rg_check_trial *t, const char *what, const rg_guarded *got,
                      const double *want, double tolerance);
void rg_trial_check_guards(const rg_check_trial *t);
/* A fingerprint of all results; of each of them too, where `each` is given. */
uint64_t rg_trial_hash_results(const rg_guarded results[], int32_t count, uint64_t each[]);
void rg_trial_compare_bits(const rg_check_trial *t, const char *what, uint64_t *known,
                           uint64_t hash);

void rg_trial_tensors_of(const rg_guarded from[], int32_t count, rg_tensor *to[]);
/* Runs the kernel on what the tensors were filled with; a GPU keeps the results. */
rg_status rg_trial_run(rg_check_trial *t, bool gradient, rg_state *state, uint64_t add);
/* The same, and brings back all tensors: also what the kernel only read may have been changed. */
rg_status rg_trial_run_whole(rg_check_trial *t, bool gradient, rg_state *state, uint64_t add);
/* Brings all tensors to the device, or back. */
rg_status rg_trial_move(rg_check_trial *t, bool upload);
/* Makes all tensors what they were: results a pattern that no element has by chance. */
void rg_trial_refill(rg_check_trial *t);
void rg_trial_expect_written(rg_guarded results[], int32_t count, bool written);

/* All tensors of the trial, in an arrangement or, where the trial has views, in those. */
rg_status rg_trial_make_tensors(rg_check_trial *t, rg_arrangement arrangement);
void rg_trial_free_tensors(rg_check_trial *t);

void rg_trial_check_forward(rg_check_trial *t, rg_state *state, rg_bits *bits);
void rg_trial_check_gradient(rg_check_trial *t, rg_state *state, rg_bits *bits);
/* Each dx computed alone has the same bits as together with the others. */
void rg_trial_check_alone(rg_check_trial *t, rg_state *state);
void rg_trial_check_add(rg_check_trial *t, rg_state *state, rg_bits *bits);
/* The pairs that the op lists, each by itself; all pairs of the forward pass at once. */
void rg_trial_check_aliases(rg_check_trial *t, const rg_alias *pairs, rg_state *state,
                            rg_bits *bits);
void rg_trial_check_in_place(rg_check_trial *t, const rg_alias *pairs, rg_state *state,
                             rg_bits *bits);
void rg_trial_check_differences(rg_check_trial *t);
/* In phases, where the op has them: the same results, within the tolerance. */
void rg_trial_check_phases(rg_check_trial *t, bool differentiate);

#endif
