/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The output of `bench`: a table, or one JSON object per line. */
#ifndef RG_CLI_BENCH_PRINT_H
#define RG_CLI_BENCH_PRINT_H

#include "cli/bench_row.h"
#include "cli/peer_api.h"
#include "runtime/strategy.h"

#include <stdio.h>

enum { RG_MOST_PEERS = 8 };

typedef struct rg_bench_printer {
    bool json, compares;     /* JSON on standard output; the table has columns for --compare */
    FILE *save;              /* gets every row as JSON, or NULL */
    const rg_device *device; /* a GPU's times are printed in us, others in ms */
    int op_width, case_width;
    const rg_peer *peers[RG_MOST_PEERS]; /* those asked for and installed; NULL at the end */
} rg_bench_printer;

typedef struct rg_bench_line {
    rg_bench_mode mode;
    const char *note; /* printed after the case, "100 calls", or NULL */
    rg_bench_result result;
    const char *strategies[RG_CHOICES_NOTED]; /* that ran */
    int32_t strategy_count;
    double peak_gflop_s;              /* for contractions; 0: not known */
    double overhead_us;               /* of a commit, where a call is alone in it; else 0 */
    rg_peer_time peer[RG_MOST_PEERS]; /* in the order of the printer's peers */
    double before_ms;                 /* in the file of --compare; 0: it has no such row */
} rg_bench_line;

void rg_bench_print_head(const rg_bench_printer *printer);
void rg_bench_print_line(const rg_bench_printer *printer, const rg_bench_row *row,
                         const rg_bench_line *line);
/* "softmax 64x128 forward f32 cpu avx512, 2 threads, 100 calls": what distinguishes rows. */
enum { RG_BENCH_NAME = 256 };
void rg_bench_name(const rg_bench_printer *printer, const rg_bench_row *row,
                   const rg_bench_line *line, char name[RG_BENCH_NAME]);
/* The time of the fastest peer over ours; 0 where none was timed, or one would return a view. */
double rg_bench_lead(const rg_bench_line *line, int *peer);
void rg_bench_print_skipped(const rg_bench_printer *printer, const rg_bench_row *row,
                            const char *reason);

#endif
