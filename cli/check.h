/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The check of one case on one device: against the definition, against finite differences, and
 * against itself under other layouts and aliases. */
#ifndef RG_CLI_CHECK_H
#define RG_CLI_CHECK_H

#include "cli/cases.h"

#include <stdio.h>

enum { RG_SAID = 512 };

typedef struct rg_checker {
    rg_device *device;
    rg_queue *queue;
    const char *options; /* that reproduce a failure here: " --isa avx2 --threads 2", or "" */
    uint64_t seed;
    FILE *told; /* where failures are printed: apart from results for machines */
    char *said; /* or, in RG_SAID bytes, the first failure since it was "" */
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

/* Random layouts. Each tensor of a call has one of its own by `seed`, or is dense where its bit
 * of `mask` is 0: bits 2 i and 2 i + 1 are x[i] and dx[i], those after the inputs y[j] and
 * dy[j]. */
typedef struct rg_views {
    uint64_t seed;
    uint32_t mask;
} rg_views;
rg_tensor_desc rg_view_of(const rg_views *views, int number, const rg_tensor_desc *shape,
                          uint32_t repeat, int64_t *shift);

/* The forms of a random trial. */
enum {
    RG_FORM_STATE = 1 << 0, /* with a state where none is needed, too */
    RG_FORM_GRADIENT = 1 << 1,
    RG_FORM_ALONE = 1 << 2,
    RG_FORM_ADD = 1 << 3,
    RG_FORM_ALIAS = 1 << 4,
    RG_FORM_DIFFERENCES = 1 << 5,
    RG_FORM_HINT = 1 << 6,
    RG_FORM_COPY = 1 << 7,       /* a kernel copied from another device */
    RG_FORM_JSON = 1 << 8,       /* a kernel written as JSON and read again */
    RG_FORM_BATCH = 1 << 9,      /* several images in one call */
    RG_FORM_ALLOC = 1 << 10,     /* results that the call makes */
    RG_FORM_TEMPORARY = 1 << 11, /* the same, as temporaries */
    RG_FORM_INTERLEAVE = 1 << 12 /* x[0] and y[0] in one memory, an element of either in turn */
};
void rg_check_view(rg_checker *checker, const rg_values *values, const rg_views *views,
                   uint32_t forms, rg_bits *bits);

#endif
