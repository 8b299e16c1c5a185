/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The check of one case on one device: against the definition, against finite differences, and
 * against itself under other layouts and aliases. */
#ifndef RG_CLI_CHECK_H
#define RG_CLI_CHECK_H

#include "cli/cases.h"

#include <stdio.h>

typedef struct rg_checker {
    rg_device *device;
    rg_queue *queue;
    const char *options; /* that reproduce a failure here: " --rung avx2 --threads 2", or "" */
    uint64_t seed;
    FILE *told; /* where failures are told: apart from results for machines */
    /* results */
    int64_t comparisons, failures;
    double worst; /* error over tolerance */
} rg_checker;

/* A fingerprint of the result bits of a case, to compare devices and runs with; 0 while unknown. */
typedef struct rg_bits {
    uint64_t y, dx, added; /* added: to dx as it was */
} rg_bits;

/* Checks values made with `expanded` or without; both have bits of their own. `bits` is compared
 * where it is known, else filled in. */
void rg_check_values(rg_checker *checker, const rg_values *values, bool expanded, rg_bits *bits);

#endif
