/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The table and the JSON of `bench`. */
#include "cli/bench_print.h"
#include "cli/print_json.h"

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

static void print_machine(const rg_bench_printer *printer)
{
    char machine[256], date[32];
    const time_t now = time(NULL);
    struct tm local;
    strftime(date, sizeof date, "%Y-%m-%d", localtime_r(&now, &local));
    if (rg_bench_on_gpu(printer->device)) {
        rg_device_describe(printer->device, machine, sizeof machine);
        printf("retrograde %s on %s: %s; %s\n", rg_version(), rg_device_name(printer->device),
               machine, date);
        return;
    }
    machine_name(machine, sizeof machine);
    const int threads = rg_device_threads(printer->device);
    printf("retrograde %s on %s: %s, %d thread%s, %s; %s\n", rg_version(), machine,
           rg_device_name(printer->device), threads, threads == 1 ? "" : "s",
           rg_device_isa(printer->device), date);
}

void rg_bench_print_head(const rg_bench_printer *printer)
{
    if (printer->json)
        return;
    const bool gpu = rg_bench_on_gpu(printer->device);
    print_machine(printer);
    printf("GB/s: each needed input is read once, each result is written once. limit: %s the same "
           "bytes.\n\n",
           gpu ? "device copies of" : "plain loops over");
    printf("%-*s %-*s %-9s %-5s %9s %7s %7s %6s %-11s", printer->op_width, "op",
           printer->case_width, "case", "direction", "dtype", gpu ? "us" : "ms", "GB/s", "limit",
           "share", "quartiles");
    for (int i = 0; printer->peers[i] != NULL; i++)
        printf(" %9s %8s %6s", printer->peers[i]->name, "times", "share");
    if (printer->compares)
        printf(" %9s %7s", "before", "times");
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
static const char *time_text(const rg_bench_printer *printer, double ms, char *text,
                             size_t capacity)
{
    const double time = rg_bench_on_gpu(printer->device) ? 1e3 * ms : ms;
    const int decimals = time >= 1000  ? 0
                         : time >= 100 ? 1
                         : time >= 10  ? 2
                         : time >= 1   ? 3
                         : time >= 0.1 ? 4
                                       : 5;
    snprintf(text, capacity, "%.*f", decimals, time);
    return text;
}

static void print_name(const rg_bench_printer *printer, const rg_bench_row *row, const char *name)
{
    char direction[16];
    printf("%-*s %-*s %-9s %-5s", printer->op_width, row->test->op->name, printer->case_width, name,
           rg_bench_row_direction(row, direction), rg_dtype_name(row->dtype));
}

static void print_table_line(const rg_bench_printer *printer, const rg_bench_row *row,
                             const rg_bench_line *line)
{
    char name[128], time[32];
    const rg_bench_result *r = &line->result;
    snprintf(name, sizeof name, "%s%s%s", row->c->name, line->note != NULL ? ", " : "",
             line->note != NULL ? line->note : "");
    print_name(printer, row, name);
    printf(" %9s %7.2f %7.2f %6.3f %.3f-%.3f", time_text(printer, r->ms, time, sizeof time),
           gb_s(row, r->ms), gb_s(row, r->limit_ms), r->share, r->share_q1, r->share_q3);
    for (int i = 0; printer->peers[i] != NULL; i++) {
        const rg_peer_time *peer = &line->peer[i];
        if (peer->ms > 0)
            printf(" %9s %6.2fx%c %6.3f", time_text(printer, peer->ms, time, sizeof time),
                   peer->ms / r->ms, peer->view ? 'v' : ' ', r->limit_ms / peer->ms);
        else
            printf(" %9s %8s %6s", "-", "", "");
    }
    if (printer->compares && line->before_ms > 0)
        printf(" %9s %6.2fx", time_text(printer, line->before_ms, time, sizeof time),
               line->before_ms / r->ms);
    else if (printer->compares)
        printf(" %9s %7s", "-", "");
    if (row->operations > 0)
        printf("  %.1f", gflop_s(row, r->ms));
    if (row->operations > 0 && line->peak_gflop_s > 0)
        printf(" of %.1f", line->peak_gflop_s);
    if (row->operations > 0)
        printf(" GFLOP/s");
    for (int32_t i = 0; i < line->strategy_count; i++)
        printf("%s%s", i == 0 ? "  by " : " + ", line->strategies[i]);
    if (line->overhead_us != 0)
        printf("  overhead of a commit per call: %.2f us", line->overhead_us);
    printf("\n");
}

static void print_json_name(const rg_bench_printer *printer, const rg_bench_row *row, FILE *to)
{
    char direction[16];
    fprintf(to,
            "{\"op\": \"%s\", \"case\": \"%s\", \"direction\": \"%s\", \"dtype\": \"%s\", "
            "\"device\": \"%s\", \"isa\": \"%s\", \"threads\": %d",
            row->test->op->name, row->c->name, rg_bench_row_direction(row, direction),
            rg_dtype_name(row->dtype), rg_device_name(printer->device),
            rg_device_isa(printer->device), rg_device_threads(printer->device));
}

static void print_json_line(const rg_bench_printer *printer, const rg_bench_row *row,
                            const rg_bench_line *line, FILE *to)
{
    const rg_bench_result *r = &line->result;
    print_json_name(printer, row, to);
    fprintf(to,
            ", \"calls\": %d, \"ms\": %.6g, \"gb_s\": %.5g, \"limit_gb_s\": %.5g, "
            "\"share\": %.4f, \"share_q1\": %.4f, \"share_q3\": %.4f, \"rounds\": %d",
            line->mode.calls, r->ms, gb_s(row, r->ms), gb_s(row, r->limit_ms), r->share,
            r->share_q1, r->share_q3, r->rounds);
    if (row->operations > 0)
        fprintf(to, ", \"gflop_s\": %.5g", gflop_s(row, r->ms));
    if (row->operations > 0 && line->peak_gflop_s > 0)
        fprintf(to, ", \"peak_gflop_s\": %.5g", line->peak_gflop_s);
    for (int32_t i = 0; i < line->strategy_count; i++)
        fprintf(to, "%s\"%s\"%s", i == 0 ? ", \"strategies\": [" : ", ", line->strategies[i],
                i + 1 == line->strategy_count ? "]" : "");
    if (line->overhead_us != 0)
        fprintf(to, ", \"overhead_us\": %.3f", line->overhead_us);
    for (int i = 0; printer->peers[i] != NULL; i++) {
        const char *name = printer->peers[i]->name;
        if (line->peer[i].ms > 0)
            fprintf(to, ", \"%s_ms\": %.6g, \"%s_share\": %.4f%s%s%s", name, line->peer[i].ms, name,
                    r->limit_ms / line->peer[i].ms, line->peer[i].view ? ", \"" : "",
                    line->peer[i].view ? name : "", line->peer[i].view ? "_view\": true" : "");
    }
    if (line->before_ms > 0)
        fprintf(to, ", \"before_ms\": %.6g", line->before_ms);
    fprintf(to, "}\n");
}

void rg_bench_name(const rg_bench_printer *printer, const rg_bench_row *row,
                   const rg_bench_line *line, char name[RG_BENCH_NAME])
{
    char direction[16];
    snprintf(name, RG_BENCH_NAME, "%s %s %s %s %s %s, %d threads, %d calls", row->test->op->name,
             row->c->name, rg_bench_row_direction(row, direction), rg_dtype_name(row->dtype),
             rg_device_name(printer->device), rg_device_isa(printer->device),
             rg_device_threads(printer->device), line->mode.calls);
}

double rg_bench_lead(const rg_bench_line *line, int *peer)
{
    *peer = -1;
    for (int i = 0; i < RG_MOST_PEERS; i++) {
        const rg_peer_time *time = &line->peer[i];
        if (time->view)
            return 0;
        if (time->ms > 0 && (*peer < 0 || time->ms < line->peer[*peer].ms))
            *peer = i;
    }
    return *peer < 0 ? 0 : line->peer[*peer].ms / line->result.ms;
}

void rg_bench_print_line(const rg_bench_printer *printer, const rg_bench_row *row,
                         const rg_bench_line *line)
{
    if (printer->json)
        print_json_line(printer, row, line, stdout);
    else
        print_table_line(printer, row, line);
    fflush(stdout);
    if (printer->save != NULL)
        print_json_line(printer, row, line, printer->save);
}

void rg_bench_print_skipped(const rg_bench_printer *printer, const rg_bench_row *row,
                            const char *reason)
{
    if (printer->json) {
        print_json_name(printer, row, stdout);
        printf(", \"skipped\": ");
        rg_print_json_text(reason);
        puts("}");
    } else {
        print_name(printer, row, row->c->name);
        printf(" skipped: %s\n", reason);
    }
    fflush(stdout);
}
