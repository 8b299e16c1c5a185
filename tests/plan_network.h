/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* What tests of plans share: graphs with parameters of a seed, runs, and all that they give. */
#ifndef RG_TESTS_PLAN_NETWORK_H
#define RG_TESTS_PLAN_NETWORK_H

#include "api.h"

#include <retrograde/nodes.h>

#include <math.h>

enum { MAX_PARAMETERS = 512, MAX_SOURCES = 4 };

/* A graph with loss values, whose sum the gradients are of, and its sources. */
typedef struct network {
    rg_graph *graph;
    rg_dtype dtype;
    rg_value *parameters[MAX_PARAMETERS];
    int32_t parameters_count;
    rg_tensor_desc sources[MAX_SOURCES];
    int64_t classes[MAX_SOURCES]; /* of labels; 0: numbers */
    int32_t sources_count;
} network;

network network_open(rg_dtype dtype);
rg_value *source_of(network *n, rg_dtype dtype, int32_t rank, const int64_t dims[],
                    int64_t classes);
rg_value *parameter_of(network *n, int32_t rank, const int64_t dims[]);

/* Output 0 of a new node. */
#define NODE(n, op, desc, ...) \
    rg_node_output(rg_graph_##op((n)->graph, &(desc), (rg_value *[]){ __VA_ARGS__ }), 0)

rg_value *neuron_of(network *n, rg_neuron_kind kind, rg_value *x);
rg_value *add_of(network *n, rg_value *a, rg_value *b);

/* Losses and gradients of all parameters become results "l0", …, "d0", …. */
void differentiate(network *n, rg_value *const losses[], int32_t count);

/* ---- plans that run ---- */

typedef struct runner {
    rig r;
    const network *n;
    rg_plan *plan;
    rg_tensor *sources[MAX_SOURCES];
} runner;

/* All elements as doubles, to be freed. */
double *numbers_of(const rg_tensor *tensor);

void write_numbers(rg_tensor *tensor, const double numbers[]);

/* Numbers from low to low + 1, or whole ones below `classes`. */
void write_drawn(rg_tensor *tensor, uint64_t seed, double low, int64_t classes);

rg_tensor *parameter_tensor(const runner *u, int32_t i);
runner runner_open(const network *n, const rg_plan_options *options, int32_t threads);
void runner_run(runner *u);
void runner_close(runner *u);

/* A result as doubles, to be freed; NULL if there is none of this name. */
double *result_of(const runner *u, const char *prefix, int32_t i, int64_t *count);

/* The largest difference of any two results, relative to the largest element. */
double difference(const runner *a, const runner *b, const char *prefix);

/* As before, by what the options change: 0 for the same bits. */
double options_change(const network *n, const rg_plan_options *a, const rg_plan_options *b,
                      int32_t *steps_a, int32_t *steps_b);

/* Everything off. */
rg_plan_options plain_options(void);

#endif
