/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Rows of `bench` beside the present one: those of an earlier run, for --compare, and those of this
 * run that are furthest behind a peer, for --worst. */
#ifndef RG_CLI_BENCH_SAVED_H
#define RG_CLI_BENCH_SAVED_H

#include "cli/bench_print.h"

typedef struct rg_bench_entry {
    char name[RG_BENCH_NAME];
    double ms;        /* of one call, ours */
    double times;     /* a peer's time over ours, or the time before over ours */
    const char *peer; /* the fastest, or NULL */
} rg_bench_entry;

/* Entries, as many as were added. */
typedef struct rg_bench_entries {
    rg_bench_entry *entries;
    size_t count, capacity;
} rg_bench_entries;
rg_status rg_bench_entries_add(rg_bench_entries *to, const rg_bench_entry *entry);
void rg_bench_entries_clear(rg_bench_entries *entries);

/* Reads what --save or --json has written. */
rg_status rg_bench_entries_read(const char *path, rg_bench_entries *entries);
/* The time of the row of that name; 0 if there is none. */
double rg_bench_entries_ms(const rg_bench_entries *entries, const char *name);

/* Prints the `most` entries with the least `times`, least first. Sorts them. */
void rg_bench_print_worst(rg_bench_entries *entries, int64_t most);
/* One line: how many rows were compared with `path`, and how much faster they are now. */
void rg_bench_print_compared(const rg_bench_entries *compared, const char *path);

#endif
