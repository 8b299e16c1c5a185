/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The table and the JSON of `bench`. */
#include "cli/bench_print.h"

#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>

/* ---- the heading ---- */

/* The processor's name, or else its architecture. */
static void machine_name(char *name, size_t capacity)
{
    struct utsname system;
    snprintf(name, capacity, "%s", uname(&system) == 0 ? system.machine : "unknown machine");
    FILE *file = fopen("/proc/cpuinfo", "r");
    if (file == NULL)
        return;
    char text[256];
    while (fgets(text, sizeof text, file) != NULL) {
        const char *colon = strchr(text, ':');
        if (strncmp(text, "model name", 10) == 0 && colon != NULL) {
            snprintf(name, capacity, "%.*s", (int)strcspn(colon + 2, "\n"), colon + 2);
            break;
        }
    }
    fclose(file);
}

void rg_bench_print_head(const rg_bench_printer *printer)
{
    if (printer->json)
        return;
    char machine[256], date[32];
    const time_t now = time(NULL);
    struct tm local;
    machine_name(machine, sizeof machine);
    strftime(date, sizeof date, "%Y-%m-%d", localtime_r(&now, &local));
    const int threads = rg_device_threads(printer->device);
    printf("retrograde %s on %s: %s, %d thread%s, %s; %s\n", rg_version(), machine,
           rg_device_name(printer->device), threads, threads == 1 ? "" : "s",
           rg_device_rung(printer->device), date);
    printf("GB/s: each input read once, each output written once. limit: plain loops that move the "
           "same bytes.\n\n");
    printf("%-*s %-*s %-9s %-5s %9s %7s %7s %6s %-11s", printer->op_width, "op",
           printer->case_width, "case", "direction", "dtype", "ms", "GB/s", "limit", "share",
           "quartiles");
    for (int i = 0; printer->peers[i] != NULL; i++)
        printf(" %9s %7s", printer->peers[i]->name, "times");
    printf("\n");
    fflush(stdout);
}

/* ---- rows ---- */

static double gb_s(const rg_bench_row *row, double ms)
{
    return 1e-6 * (double)row->bytes / ms;
}

static double gflop_s(const rg_bench_row *row, double ms)
{
    return 1e-6 * row->operations / ms;
}

/* Four digits, whatever the size. */
static const char *ms_text(double ms, char *text, size_t capacity)
{
    const int decimals = ms >= 1000  ? 0
                         : ms >= 100 ? 1
                         : ms >= 10  ? 2
                         : ms >= 1   ? 3
                         : ms >= 0.1 ? 4
                                     : 5;
    snprintf(text, capacity, "%.*f", decimals, ms);
    return text;
}

static void print_name(const rg_bench_printer *printer, const rg_bench_row *row, const char *name)
{
    printf("%-*s %-*s %-9s %-5s", printer->op_width, row->test->op->name, printer->case_width, name,
           row->gradient ? "gradient" : "forward", rg_dtype_name(row->dtype));
}

static void print_table_line(const rg_bench_printer *printer, const rg_bench_row *row,
                             const rg_bench_line *line)
{
    char name[128], ms[32];
    const rg_bench_result *r = &line->result;
    snprintf(name, sizeof name, "%s", row->c->name);
    if (line->mode.calls > 1)
        snprintf(name, sizeof name, "%s, %d calls", row->c->name, line->mode.calls);
    else if (line->mode.commits > 1)
        snprintf(name, sizeof name, "%s, 1 call", row->c->name);
    print_name(printer, row, name);
    printf(" %9s %7.2f %7.2f %6.3f %.3f-%.3f", ms_text(r->ms, ms, sizeof ms), gb_s(row, r->ms),
           gb_s(row, r->limit_ms), r->share, r->share_q1, r->share_q3);
    for (int i = 0; printer->peers[i] != NULL; i++) {
        const double peer = line->peer_ms[i];
        if (peer > 0)
            printf(" %9s %6.1fx", ms_text(peer, ms, sizeof ms), peer / r->ms);
        else
            printf(" %9s %7s", "-", "");
    }
    if (row->operations > 0)
        printf("  %.1f of %.1f GFLOP/s", gflop_s(row, r->ms), line->peak_gflop_s);
    if (line->overhead_us != 0)
        printf("  a commit of its own costs a call %.2f us", line->overhead_us);
    printf("\n");
}

static void print_json_name(const rg_bench_printer *printer, const rg_bench_row *row)
{
    printf("{\"op\": \"%s\", \"case\": \"%s\", \"direction\": \"%s\", \"dtype\": \"%s\", "
           "\"device\": \"%s\", \"rung\": \"%s\", \"threads\": %d",
           row->test->op->name, row->c->name, row->gradient ? "gradient" : "forward",
           rg_dtype_name(row->dtype), rg_device_name(printer->device),
           rg_device_rung(printer->device), rg_device_threads(printer->device));
}

static void print_json_line(const rg_bench_printer *printer, const rg_bench_row *row,
                            const rg_bench_line *line)
{
    const rg_bench_result *r = &line->result;
    print_json_name(printer, row);
    printf(", \"calls\": %d, \"ms\": %.6g, \"gb_s\": %.5g, \"limit_gb_s\": %.5g, "
           "\"share\": %.4f, \"share_q1\": %.4f, \"share_q3\": %.4f, \"rounds\": %d",
           line->mode.calls, r->ms, gb_s(row, r->ms), gb_s(row, r->limit_ms), r->share, r->share_q1,
           r->share_q3, r->rounds);
    if (row->operations > 0)
        printf(", \"gflop_s\": %.5g, \"peak_gflop_s\": %.5g", gflop_s(row, r->ms),
               line->peak_gflop_s);
    if (line->overhead_us != 0)
        printf(", \"overhead_us\": %.3f", line->overhead_us);
    for (int i = 0; printer->peers[i] != NULL; i++) {
        if (line->peer_ms[i] > 0)
            printf(", \"%s_ms\": %.6g", printer->peers[i]->name, line->peer_ms[i]);
    }
    printf("}\n");
}

void rg_bench_print_line(const rg_bench_printer *printer, const rg_bench_row *row,
                         const rg_bench_line *line)
{
    if (printer->json)
        print_json_line(printer, row, line);
    else
        print_table_line(printer, row, line);
    fflush(stdout);
}

void rg_bench_print_skipped(const rg_bench_printer *printer, const rg_bench_row *row,
                            const char *reason)
{
    if (printer->json) {
        print_json_name(printer, row);
        printf(", \"skipped\": \"%s\"}\n", reason);
    } else {
        print_name(printer, row, row->c->name);
        printf(" skipped: %s\n", reason);
    }
    fflush(stdout);
}
