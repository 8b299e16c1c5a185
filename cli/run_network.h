/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* What `retrograde run` runs: a network of any format, its inputs, and its results by name. */
#ifndef RG_CLI_RUN_NETWORK_H
#define RG_CLI_RUN_NETWORK_H

#include <retrograde/checkpoint.h>
#include <retrograde/onnx.h>

/* NAME=FILE of an argument. */
typedef struct rg_run_file {
    char *name, *path;
    rg_tensor *tensor; /* of an input: what the file holds */
} rg_run_file;

enum { RG_MOST_RUN_FILES = 256 };

typedef struct rg_run_files {
    rg_run_file files[RG_MOST_RUN_FILES];
    int count;
} rg_run_files;

typedef struct rg_run_network {
    const char *path; /* of the model */
    rg_device *device;
    int64_t seed, classes;
    bool has_dtype;
    rg_dtype dtype;
    rg_run_files inputs, outputs, gradients;
    const char *all_gradients; /* a safetensors file, or NULL */

    rg_onnx *onnx; /* of an ONNX model, else NULL */
    rg_onnx_network *network;
    rg_checkpoint *checkpoint;
    rg_graph *graph; /* belongs to `network` if there is one */
    rg_plan *first;  /* of a model as text: the plan that has its parameters */
    rg_plan *plan;
} rg_run_network;

/* Reads the inputs, makes the graph with the gradients that are asked for, runs it and writes the
 * results. */
rg_status rg_run_network_run(rg_run_network *run);
void rg_run_network_end(rg_run_network *run);

/* Makes the graph and, for a model as text, its parameters (run_model.c). */
rg_status rg_run_network_open(rg_run_network *run);
/* Writes the parameters into the plan. */
rg_status rg_run_network_load(rg_run_network *run);
/* The input of this name, or NULL. */
rg_run_file *rg_run_files_find(rg_run_files *files, const char *name);

#endif
