/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The structs of graphs, values and nodes. */
#ifndef RG_GRAPH_GRAPH_H
#define RG_GRAPH_GRAPH_H

#include "graph/name_index.h"
#include "runtime/op.h"

#include <retrograde/graph_state.h>

struct rg_value {
    rg_graph *graph;
    int32_t id; /* its index among the graph's values */
    rg_value_kind kind;
    char *name;          /* of a source or parameter */
    rg_tensor_desc desc; /* of a parameter */
    rg_data_source data; /* of a parameter that has one; size 0: none */
    rg_value *like;      /* of a constant; not a constant itself */
    double number;
    rg_node *node; /* of an output */
    int32_t index; /* among the node's outputs */
    bool stops;
    rg_value *gradient; /* by the last rg_graph_gradients() */
    rg_value *assigned; /* of a parameter: what it holds after a run, or NULL */
    rg_value *takes;    /* of an output: the parameter that it is assigned to, or NULL */
    void *handle;       /* the caller's */
};

/* A forward node has inputs x and outputs y. A gradient node has the inputs dy, the x and y of the
 * forward pass as far as it was given them, and outputs dx at the indices of x. */
struct rg_node {
    rg_graph *graph;
    int32_t id; /* its index among the graph's nodes: later than all it reads */
    const rg_op *op;
    void *desc;
    char *label;
    bool gradient;
    rg_padding_rule *rule; /* places the windows, or NULL */
    void *rule_context;
    rg_node *forward;             /* of a gradient node: whose state it reads, or NULL */
    int32_t inputs, outputs;      /* entries of in and out */
    rg_value *in[RG_MAX_INPUTS];  /* x, or dy, some of which may be NULL */
    rg_value *out[RG_MAX_INPUTS]; /* y, or dx, some of which may be NULL */
    rg_value *x[RG_MAX_INPUTS];   /* of a gradient node: of the forward pass, all of them */
    rg_value *y[RG_MAX_OUTPUTS];  /* some of which may be NULL */
    rg_state_value *given;        /* of a gradient node: a state that runs are given, or NULL */
    rg_state_value *state_value;  /* of a forward node: its own, once somebody has asked for it */
    bool ends; /* no later node of the backward pass that has added it reads what it makes */
};

/* A state: what a node leaves, or what runs are given. */
struct rg_state_value {
    rg_graph *graph;
    rg_node *node; /* NULL: runs are given it */
    char *name;    /* then */
    int32_t id;    /* then: its index among them */
    const rg_op *op;
    void *desc; /* of the node, or a copy */
    void *handle;
};

typedef struct rg_result {
    char *name;
    rg_value *value;
} rg_result;

/* A node whose state is asked for. */
typedef struct rg_state_result {
    char *name;
    rg_node *node;
} rg_state_result;

typedef struct rg_assignment {
    rg_value *parameter, *value;
} rg_assignment;

struct rg_graph {
    rg_value **values;
    size_t values_capacity, values_count;
    rg_node **nodes;
    size_t nodes_capacity, nodes_count;
    rg_result *results;
    size_t results_capacity, results_count;
    rg_state_result *states;
    size_t states_capacity, states_count;
    rg_assignment *assignments;
    size_t assignments_capacity, assignments_count;
    rg_state_value **given; /* states that runs are given */
    size_t given_capacity, given_count;
    rg_names values_by_name, nodes_by_label, results_by_name, states_by_name, given_by_name;
    size_t backward, backward_end; /* nodes that the last rg_graph_gradients() has added */
    rg_status status;              /* of the first mistake, with its sentence */
    char text[512];
};

/* The parts of graph.c that copies are made of, too. A value has all of `like` but graph and id;
 * a node has neither inputs nor outputs, and a label that is the op's name with `suffix`. */
rg_status rg_graph_add_value(rg_graph *graph, const rg_value *like, rg_value **value);
rg_status rg_graph_add_node(rg_graph *graph, const rg_op *op, const void *desc, const char *suffix,
                            rg_node **node);

void rg_node_destroy(rg_node *node);
void rg_state_value_destroy(rg_state_value *state); /* NULL allowed */

/* Copies a descriptor of the caller, RG_MAX_DESC bytes at most, if it is right. */
rg_status rg_graph_check_desc(const rg_op *op, const void *desc, void *checked);

/* Records a mistake, unless there was one before, and returns its status. The sentence is that of
 * this thread. */
rg_status rg_graph_mistake(rg_graph *graph, rg_status status);

/* An op applied to as many values as its descriptor says, of `count` that x[] has; SIZE_MAX: that
 * is not known. */
rg_node *rg_graph_apply(rg_graph *graph, const char *op, const void *desc, rg_value *const x[],
                        size_t count);

/* What a gradient node is made of; `of`, `given`, and entries of y may be NULL; with `given` those
 * of x, too. */
typedef struct rg_gradient_parts {
    const rg_op *op;
    const void *desc;
    rg_node *of;
    rg_state_value *given;
    rg_value *const *dy, *const *x, *const *y;
    size_t dy_count, x_count, y_count; /* SIZE_MAX: not known */
    uint64_t wanted;
} rg_gradient_parts;
rg_status rg_graph_add_gradient(rg_graph *graph, const rg_gradient_parts *parts, rg_node **node);
/* For each value, by id: whether parameters that are not frozen have a gradient of it. */
rg_status rg_graph_trained_values(rg_graph *graph, bool trained[]);
/* Bits of all inputs that have a gradient. */
uint64_t rg_op_all_gradients(const rg_op *op, const void *desc);
/* An op by its own name. */
rg_status rg_graph_find_op(const char *name, const rg_op **op);

/* Values that a node reads: of a gradient node dy, and those of x and y that its op says. `visit`
 * may see a value twice. */
typedef void rg_value_visit(void *context, rg_value *value);
void rg_node_each_read(const rg_node *node, rg_value_visit *visit, void *context);
/* RG_READS_ bits of a gradient node. */
uint32_t rg_node_reads(const rg_node *node);

#endif
