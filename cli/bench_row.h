/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* One row of `bench`: a case in one direction and dtype, its tensors, and its measurement. */
#ifndef RG_CLI_BENCH_ROW_H
#define RG_CLI_BENCH_ROW_H

#include "ops/optest.h"

/* How a row is timed: `calls` in one list of commands, committed and waited for `commits` times. */
typedef struct rg_bench_mode {
    int32_t calls, commits;
    bool ahead; /* the clock starts when the list has been recorded */
} rg_bench_mode;

typedef struct rg_bench_row {
    const rg_op_test *test;
    const rg_case *c;
    bool gradient;
    int32_t only; /* the input whose gradient alone is asked for, or -1 */
    bool tf32;    /* the device may round f32 to TF32 */
    bool replay;  /* calls are kept as a graph of CUDA, here and by peers on a GPU */
    rg_dtype dtype;
    rg_bench_mode
        mode; /* for peers on the CPU, too: calls in a row, timed `commits` times a round */

    _Alignas(16) char desc[RG_MAX_DESC];
    int32_t inputs, outputs, gradients;
    rg_tensor_desc x_desc[RG_MAX_INPUTS], y_desc[RG_MAX_OUTPUTS];
    uint32_t reads; /* RG_READS_ bits of the gradient; forward: RG_READS_STATE if it writes one */
    int64_t needed; /* elements that must be read of x[0], or of dy[0] in the gradient */
    int64_t bytes;  /* the fewest: what is needed read once, results and state written once */
    int64_t memory; /* bytes that all tensors take while they are made */
    double operations; /* of floating point, 0 where memory is what counts */

    rg_queue *queue;
    rg_kernel *kernel;
    rg_state *state;
    struct rg_replay *kept; /* the calls of a round, or a part of them, where `replay` */
    rg_tensor *x[RG_MAX_INPUTS], *y[RG_MAX_OUTPUTS], *dy[RG_MAX_OUTPUTS], *dx[RG_MAX_INPUTS];
    rg_tensor *limit[RG_MAX_OUTPUTS]; /* what the limit updates where the kernel updates x */
    rg_tensor *part;                  /* what is needed of x[0] or dy[0], where that is not all */
    rg_tensor *read[RG_MAX_POINTERS], *written[RG_MAX_POINTERS]; /* what the kernel touches */
    int32_t read_count, written_count;
} rg_bench_row;

/* Computes descriptor, shapes and sizes; `only` names an input, or is NULL. `row` does not have to
 * be closed yet. */
rg_status rg_bench_row_begin(const rg_op_test *test, const rg_case *c, bool gradient,
                             const char *only, rg_dtype dtype, rg_bench_row *row);

/* "forward", "gradient" or, of one input alone, "d" and its name. */
const char *rg_bench_row_direction(const rg_bench_row *row, char text[16]);

/* Makes kernel and tensors, and fills the inputs. Close it in any case. */
rg_status rg_bench_row_open(rg_queue *queue, rg_bench_row *row);
void rg_bench_row_close(rg_bench_row *row);

/* A tensor that a peer needs beside those of an open row, on its device; filled as x[0] is, or not
 * at all. The caller destroys it, also after a failure if it is not NULL. */
rg_status rg_bench_row_spare(const rg_bench_row *row, const rg_tensor_desc *desc, bool filled,
                             rg_tensor **tensor);

/* On a GPU a commit and a wait may cost as much as a call. So the list has enough calls to make
 * that cost negligible, all recorded before the clock starts. */
rg_status rg_bench_gpu_mode(rg_bench_row *row, double seconds, rg_bench_mode *mode);

typedef struct rg_bench_result {
    double ms, limit_ms;              /* of one call; medians */
    double share, share_q1, share_q3; /* limit over kernel: median and quartiles of the rounds */
    int32_t rounds;
} rg_bench_result;

/* Limit and kernel alternate for `seconds`, and at least 7 rounds. */
rg_status rg_bench_row_measure(rg_bench_row *row, rg_bench_mode mode, double seconds,
                               rg_bench_result *result);

/* The most floating-point operations per second that the device does, in 1e9. RG_UNSUPPORTED
 * where that is not known. */
rg_status rg_bench_peak(rg_queue *queue, rg_dtype dtype, double *gflop_s);

bool rg_bench_on_gpu(const rg_device *device);
/* How many calls of `ms` make a round on a GPU, where a row takes `seconds`: ours, and those of
 * peers. */
int32_t rg_bench_calls_of(double ms, double seconds);
/* A round of replays launches a graph this many times. */
enum { RG_BENCH_REPLAYS = 4 };
/* The value at `share` (0 to 1) of the sorted values, which are sorted here. */
double rg_bench_quantile(double *values, int32_t count, double share);

#endif
