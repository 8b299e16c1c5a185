/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* One run of one op for `retrograde op`: its tensors by name, from files and into files. */
#ifndef RG_CLI_OP_RUN_H
#define RG_CLI_OP_RUN_H

#include "ops/ops.h"

typedef struct rg_operand {
    rg_role role;
    int32_t index;
    const char *name; /* as typed; of a tensor of the state, without "state." */
    const char *path; /* of an input, a slice may follow */
} rg_operand;

enum { RG_MOST_RESULTS = RG_MAX_INPUTS + RG_MAX_OUTPUTS + RG_MAX_STATE };

typedef struct rg_op_run {
    const char *called; /* the op's name as typed */
    const rg_op *op;
    const rg_op_name *name; /* NULL if called by the op's own name */
    _Alignas(16) char desc[RG_MAX_DESC];
    uint32_t set; /* of the fields that follow others by this name: rg_op_name_bit() */
    bool gradient;
    int32_t inputs, outputs, gradients;

    rg_device *device;
    rg_queue *queue;
    rg_commands *commands;
    rg_kernel *kernel;
    rg_state *state;
    rg_tensor *x[RG_MAX_INPUTS], *y[RG_MAX_OUTPUTS], *dy[RG_MAX_OUTPUTS], *dx[RG_MAX_INPUTS];
    rg_operand results[RG_MOST_RESULTS];
    int result_count;
} rg_op_run;

/* All below that return int print what is wrong and return the exit status, 0 if all is well. */

/* Finds the op and presets its descriptor. */
int rg_op_run_begin(rg_op_run *run, const char *called);
void rg_op_run_end(rg_op_run *run);

/* What a tensor is called here: its name in MPS or ONNX where the op was called by one of theirs.
 */
enum { RG_SHOWN_NAME = 64 };
const char *rg_op_run_shown(const rg_op_run *run, const char *prefix, const char *name,
                            char shown[RG_SHOWN_NAME]);

/* Reads "x=in.npy", an input, or "y=out.npy", a result. The text must outlive the run. */
int rg_op_run_operand(const rg_op_run *run, const char *text, bool is_result, rg_operand *operand);

/* Loads a file, "x.npy" or "x.npy[0:2]"; saves files, all or none; converts a tensor. */
int rg_op_load(rg_device *device, const char *text, rg_tensor **tensor);
int rg_op_save(rg_tensor *const tensors[], const char *const paths[], int count);
rg_status rg_op_convert(rg_tensor **tensor, rg_dtype dtype);

/* Loads an input and takes its slice. */
int rg_op_run_load(rg_op_run *run, const rg_operand *operand);

/* Converts the inputs: all but labels and indices, integers that the op takes as they are. */
int rg_op_run_convert(rg_op_run *run, rg_dtype dtype);

/* Runs the op, a forward pass first where a gradient needs one. */
int rg_op_run_run(rg_op_run *run);

/* Writes all results or, if one fails, none. */
int rg_op_run_save(rg_op_run *run);

/* Texts for --help and --list. */
void rg_op_run_help(const rg_op_run *run);
void rg_op_list(void);

#endif
