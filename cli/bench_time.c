/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Timing a row: the two loops of the limit and the kernel alternate. */
#include "cli/bench_limit.h"
#include "cli/bench_row.h"
#include "cli/cases.h"
#include "core/clock.h"
#include "runtime/objects.h"

#include <stdlib.h>

enum { LEAST_ROUNDS = 7, MOST_ROUNDS = 4096 };

bool rg_bench_on_gpu(const rg_device *device)
{
    return device->backend != &rg_backend_cpu;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double rg_bench_quantile(double *values, int32_t count, double share)
{
    qsort(values, (size_t)count, sizeof *values, compare);
    const double at = share * (count - 1);
    const int32_t low = (int32_t)at, high = low + 1 < count ? low + 1 : low;
    return values[low] + (at - low) * (values[high] - values[low]);
}

/* ---- one round ---- */

typedef rg_status recorder(rg_bench_row *row, rg_commands *commands);

static rg_status record_kernel(rg_bench_row *row, rg_commands *commands)
{
    if (!row->gradient)
        return rg_kernel_forward(row->kernel, commands, row->x, row->y, row->state);
    return rg_kernel_gradient(row->kernel, commands, row->dy, row->x, row->y, row->state, row->dx,
                              0);
}

static rg_status record_ordinary(rg_bench_row *row, rg_commands *commands)
{
    return rg_limit_record(commands, row->read, row->read_count, row->written, row->written_count,
                           false);
}

static rg_status record_bypass(rg_bench_row *row, rg_commands *commands)
{
    return rg_limit_record(commands, row->read, row->read_count, row->written, row->written_count,
                           true);
}

static rg_status record_calls(rg_bench_row *row, recorder *record, int32_t calls,
                              rg_commands *commands)
{
    const bool kept = record == record_kernel && row->kept != NULL;
    const int32_t count = kept ? RG_BENCH_REPLAYS : calls;
    rg_status status = RG_OK;
    for (int32_t i = 0; i < count && status == RG_OK; i++)
        status = kept ? rg_commands_launch(commands, row->kept) : record(row, commands);
    return status;
}

/* Adds the time to *seconds. */
static rg_status commit_once(rg_bench_row *row, recorder *record, rg_bench_mode mode,
                             double *seconds)
{
    rg_commands *commands;
    double start = rg_seconds();
    RG_TRY(rg_commands_create(row->queue, &commands));
    rg_status status = record_calls(row, record, mode.calls, commands);
    if (mode.ahead)
        start = rg_seconds();
    status = rg_commands_finish(commands, status);
    *seconds += rg_seconds() - start;
    return status;
}

/* The time of one call in milliseconds. A first commit, not timed, leaves the cache as this loop
 * or kernel leaves it: the one before may or may not have used streaming stores. */
static rg_status time_round(rg_bench_row *row, recorder *record, rg_bench_mode mode, double *ms)
{
    double seconds = 0;
    RG_TRY(commit_once(row, record, mode, &seconds));
    seconds = 0;
    for (int32_t i = 0; i < mode.commits; i++)
        RG_TRY(commit_once(row, record, mode, &seconds));
    *ms = 1e3 * seconds / ((double)mode.calls * mode.commits);
    return RG_OK;
}

/* Keeps calls, of which a round then has RG_BENCH_REPLAYS times as many. A round before loads all
 * kernels, which a capture may not. */
static rg_status keep_calls(rg_bench_row *row, int32_t calls)
{
    static const rg_stand_ins none;
    rg_commands *commands;
    double ms;
    rg_replay_destroy(row->kept);
    row->kept = NULL;
    RG_TRY(time_round(row, record_kernel, (rg_bench_mode){ .calls = 1, .commits = 1 }, &ms));
    RG_TRY(rg_commands_create(row->queue, &commands));
    rg_status status = record_calls(row, record_kernel, calls, commands);
    if (status == RG_OK)
        status = rg_replay_create(row->queue, commands, &none, &row->kept);
    rg_commands_destroy(commands);
    return status;
}

int32_t rg_bench_calls_of(double ms, double seconds)
{
    const double share = 1e3 * seconds / LEAST_ROUNDS, round_ms = share < 5 ? share : 5,
                 most = 2000;
    const double calls = ms * most > round_ms ? round_ms / ms : most;
    return (int32_t)calls + (calls < most);
}

rg_status rg_bench_gpu_mode(rg_bench_row *row, double seconds, rg_bench_mode *mode)
{
    const rg_bench_mode trial = { .calls = 8, .commits = 1, .ahead = true };
    double limit, kernel;
    RG_TRY(time_round(row, record_ordinary, trial, &limit));
    RG_TRY(time_round(row, record_kernel, trial, &kernel));
    *mode = trial;
    const bool copies = limit < kernel && row->operations == 0; /* or they are what takes less */
    mode->calls = rg_bench_calls_of(copies ? limit : kernel, seconds);
    return RG_OK;
}

/* ---- rounds ---- */

typedef struct rounds {
    double kernel[MOST_ROUNDS], limit[MOST_ROUNDS], share[MOST_ROUNDS];
} rounds;

static rg_status run_rounds(rg_bench_row *row, rg_bench_mode mode, double seconds, rounds *r,
                            int32_t *count)
{
    double start = 0;
    for (int32_t n = -1; n < MOST_ROUNDS; n++) { /* the first is for caches and helpers */
        double ordinary, bypass, kernel;
        RG_TRY(time_round(row, record_ordinary, mode, &ordinary));
        RG_TRY(time_round(row, record_bypass, mode, &bypass));
        RG_TRY(time_round(row, record_kernel, mode, &kernel));
        if (n < 0) {
            start = rg_seconds();
            continue;
        }
        r->kernel[n] = kernel;
        r->limit[n] = ordinary < bypass ? ordinary : bypass;
        r->share[n] = r->limit[n] / kernel;
        *count = n + 1;
        if (*count >= LEAST_ROUNDS && rg_seconds() - start >= seconds)
            break;
    }
    return RG_OK;
}

/* Replays are compared with those of others, which nothing comes between: copies come before them,
 * once. */
static rg_status run_replays(rg_bench_row *row, rg_bench_mode mode, double seconds, rounds *r,
                             int32_t *count)
{
    double ordinary, bypass, kernel;
    RG_TRY(time_round(row, record_ordinary, mode, &ordinary));
    RG_TRY(time_round(row, record_bypass, mode, &bypass));
    RG_TRY(time_round(row, record_kernel, mode, &kernel));
    const double limit = ordinary < bypass ? ordinary : bypass, start = rg_seconds();
    for (int32_t n = 0; n < LEAST_ROUNDS || (n < MOST_ROUNDS && rg_seconds() - start < seconds);
         n++) {
        RG_TRY(time_round(row, record_kernel, mode, &r->kernel[n]));
        r->limit[n] = limit;
        r->share[n] = limit / r->kernel[n];
        *count = n + 1;
    }
    return RG_OK;
}

rg_status rg_bench_row_measure(rg_bench_row *row, rg_bench_mode mode, double seconds,
                               rg_bench_result *result)
{
    if (row->replay) {
        const int32_t calls = (mode.calls + RG_BENCH_REPLAYS - 1) / RG_BENCH_REPLAYS;
        RG_TRY(keep_calls(row, calls));
        mode.calls = calls * RG_BENCH_REPLAYS;
    }
    rounds *r = malloc(sizeof *r);
    RG_CHECK(r != NULL, RG_OUT_OF_MEMORY, "out of memory for the timings");
    int32_t count = 0;
    const rg_status status =
        (row->replay ? run_replays : run_rounds)(row, mode, seconds, r, &count);
    if (status == RG_OK)
        *result = (rg_bench_result){ .ms = rg_bench_quantile(r->kernel, count, 0.5),
                                     .limit_ms = rg_bench_quantile(r->limit, count, 0.5),
                                     .share = rg_bench_quantile(r->share, count, 0.5),
                                     .share_q1 = rg_bench_quantile(r->share, count, 0.25),
                                     .share_q3 = rg_bench_quantile(r->share, count, 0.75),
                                     .rounds = count };
    free(r);
    return status;
}

/* ---- arithmetic ---- */

static rg_status run_peak(rg_queue *queue, rg_tensor *done, rg_dtype dtype, double *seconds)
{
    rg_commands *commands;
    RG_TRY(rg_commands_create(queue, &commands));
    rg_status status = rg_limit_record_peak(commands, done, dtype);
    const double start = rg_seconds();
    status = rg_commands_finish(commands, status);
    *seconds = rg_seconds() - start;
    return status;
}

rg_status rg_bench_peak(rg_queue *queue, rg_dtype dtype, double *gflop_s)
{
    enum { UNITS = 256 };
    const int64_t units = UNITS;
    const rg_tensor_desc desc = rg_tensor_desc_dense(RG_F64, 1, &units);
    rg_tensor *done;
    double each[UNITS], operations = 0, best = 0;
    RG_TRY(rg_tensor_create(queue->device, &desc, &done));
    rg_status status = RG_OK;
    for (int round = 0; round < LEAST_ROUNDS && status == RG_OK; round++) {
        double seconds = 0;
        status = run_peak(queue, done, dtype, &seconds);
        best = round == 0 || seconds < best ? seconds : best;
    }
    if (status == RG_OK)
        status = rg_tensor_read(done, each, sizeof each, RG_LAYOUT_SAME);
    rg_tensor_destroy(done);
    RG_TRY(status);
    for (int u = 0; u < UNITS; u++)
        operations += each[u];
    *gflop_s = 1e-9 * operations / best;
    return RG_OK;
}
