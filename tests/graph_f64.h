/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* What the tests of graphs share: values and plans of f64. */
#ifndef RG_TESTS_GRAPH_F64_H
#define RG_TESTS_GRAPH_F64_H

#include "tests/api.h"

rg_graph *graph_new(void);
rg_value *f64_neuron(rg_graph *graph, rg_neuron_kind kind, rg_value *x);
rg_value *f64_sum(rg_graph *graph, rg_value *a, rg_value *b);
rg_value *f64_total(rg_graph *graph, rg_value *x);
rg_value *f64_parameter(rg_graph *graph, const char *name, int32_t rank, const int64_t dims[]);
rg_value *f64_dense(rg_graph *graph, rg_value *x, rg_value *w);

rg_plan *f64_plan(rg_device *device, const rg_graph *graph);
rg_tensor *f64_result(rg_plan *plan, const char *name);
void f64_read(rg_plan *plan, const char *name, double to[]);
void f64_run(rig *r, rg_plan *plan, rg_tensor *const sources[]);

#endif
