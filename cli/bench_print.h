/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The output of `bench`: a table, or one JSON object per line. */
#ifndef RG_CLI_BENCH_PRINT_H
#define RG_CLI_BENCH_PRINT_H

#include "cli/bench_row.h"
#include "cli/peer_api.h"
#include "runtime/strategy.h"

enum { RG_MOST_PEERS = 8 };

typedef struct rg_bench_printer {
    bool json;
    const rg_device *device; /* a GPU's times are printed in us, others in ms */
    int op_width, case_width;
    const rg_peer *peers[RG_MOST_PEERS]; /* those asked for and installed; NULL at the end */
} rg_bench_printer;

typedef struct rg_bench_line {
    rg_bench_mode mode;
    const char *note; /* behind the case in the table, "100 calls", or NULL */
    rg_bench_result result;
    const char *strategies[RG_CHOICES_NOTED]; /* that ran */
    int32_t strategy_count;
    double peak_gflop_s;           /* for contractions; 0: not known */
    double overhead_us;            /* of a commit, where a call is alone in it; else 0 */
    double peer_ms[RG_MOST_PEERS]; /* in the order of the printer's peers; 0: not measured */
} rg_bench_line;

void rg_bench_print_head(const rg_bench_printer *printer);
void rg_bench_print_line(const rg_bench_printer *printer, const rg_bench_row *row,
                         const rg_bench_line *line);
void rg_bench_print_skipped(const rg_bench_printer *printer, const rg_bench_row *row,
                            const char *reason);

#endif
