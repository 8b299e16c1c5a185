/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Random networks: a random graph, its definition in double, its kernels run one by one, and plans
 * of it with all options. All must agree. */
#ifndef RG_CLI_RANDOM_NETWORK_H
#define RG_CLI_RANDOM_NETWORK_H

#include "cli/cases.h"
#include "core/shape.h"

#include <retrograde/graph.h>

#include <stdio.h>

enum {
    RG_NET_VALUES = 320,
    RG_NET_NODES = 72,
    RG_NET_ITEMS = 192,
    RG_NET_PASSES = 2, /* calls of rg_graph_gradients */
    RG_NET_LOSSES = 4,
    RG_NET_RESULTS = 32,
    RG_NET_STATES = 4,
    RG_NET_VARIANTS = 6,
    RG_NET_STEPS = 3 /* runs in a row; every second one has the other source shapes */
};

typedef enum rg_net_kind {
    RG_NET_SOURCE,
    RG_NET_PARAMETER,
    RG_NET_CONSTANT,
    RG_NET_OUTPUT,
    RG_NET_GRADIENT /* of value `of`, by pass `pass` */
} rg_net_kind;

typedef struct rg_net_value {
    rg_net_kind drawn, kind; /* kind: a source where what makes it was left out */
    rg_tensor_desc desc[2];  /* for both sets of source shapes */
    double low, high;        /* what a source, a parameter or a stand-in is filled with */
    int64_t classes;         /* of class labels; 0: numbers */
    double number;           /* of a constant */
    int32_t like;            /* of a constant */
    int32_t node, index;     /* of an output */
    int32_t of, pass;        /* of a gradient */
    int32_t stop;            /* the item that is its stop mark, or -1 */
    bool leaf;               /* no forward node reads it: it has no gradient */
    bool taken;              /* of a parameter: a node assigns it, and no other reads it */
    bool assigned;           /* a node assigns it */
    bool needed;             /* it depends on a value whose gradient is wanted */
    bool reached[RG_NET_PASSES];
    char name[32]; /* of a source or parameter */
} rg_net_value;

typedef struct rg_net_node {
    const rg_op_test *test;
    _Alignas(16) char desc[RG_MAX_DESC];
    int32_t item;
    int32_t gradient_of; /* the forward node, or -1 */
    bool with_state;     /* of a gradient: it reads the state of that node */
    bool flat;           /* its gradient is refused: that of a comparison */
    bool after_backward; /* it comes after the backward passes */
    int32_t inputs, outputs;
    int32_t in[RG_MAX_INPUTS], out[RG_MAX_INPUTS]; /* values; dy and dx of a gradient */
    int32_t assigns[RG_MAX_OUTPUTS];               /* parameters that outputs are assigned to */
    int32_t updates; /* of an optimizer: the parameter that it is for, or -1 */
} rg_net_node;

typedef struct rg_net_mark { /* a loss with its gradient, a result, a state */
    int32_t item, value, dy, pass;
} rg_net_mark;

/* How a plan is run, besides its options. */
typedef enum rg_net_way {
    RG_NET_ENCODE,
    RG_NET_ONE_LIST,     /* all runs in one list of commands */
    RG_NET_BATCH,        /* images that are tensors of their own */
    RG_NET_ASYNC,        /* with a handler */
    RG_NET_COPY,         /* by a copy of a copy of the graph, and a copy of the plan */
    RG_NET_JSON,         /* by a graph that was written and read */
    RG_NET_FILE,         /* by a plan that was saved between runs */
    RG_NET_ANEW,         /* a new plan for each run, which shares the parameters of the last */
    RG_NET_STEP_BY_STEP, /* by rg_plan_time() */
    RG_NET_RELOAD,       /* parameters by data sources, loaded again for a second round */
    RG_NET_WAYS
} rg_net_way;

typedef struct rg_net_variant {
    int32_t item;
    rg_plan_options options;
    double budget; /* share of the bytes that the plan takes without one; 0: none */
    rg_net_way way;
    int32_t threads;
    int32_t strided; /* sources are views with gaps: in no run, all, every second one */
} rg_net_variant;

typedef struct rg_net {
    uint64_t seed;
    rg_dtype dtype;
    bool kinked;      /* a gradient of it jumps somewhere */
    bool stopped;     /* it has stop marks */
    int64_t batch[2]; /* of both sets of source shapes */
    int32_t shapes;   /* how many sets there are */
    int32_t shape_item, run_items[RG_NET_STEPS - 1];
    int32_t steps; /* runs in a row */
    uint32_t isa;  /* picks an instruction set */
    int32_t passes;
    int32_t items;
    bool keep[RG_NET_ITEMS];
    rg_net_value values[RG_NET_VALUES];
    rg_net_node nodes[RG_NET_NODES];
    rg_net_mark losses[RG_NET_LOSSES], results[RG_NET_RESULTS], states[RG_NET_STATES];
    rg_net_variant variants[RG_NET_VARIANTS];
    int32_t values_count, nodes_count, losses_count, results_count, states_count, variants_count;
} rg_net;

/* ---- drawing: random_network_draw.c, _ops.c, _backward.c, _windows.c, _norms.c ---- */

/* Numbers in double, by value; grad: by pass. */
typedef struct rg_net_numbers {
    double *at[RG_NET_VALUES], *grad[RG_NET_PASSES][RG_NET_VALUES];
} rg_net_numbers;

typedef struct rg_net_draw {
    rg_net *net;
    rg_random random;
    rg_net_numbers seen; /* of the first run */
    char fields[512];    /* of the node that is being drawn */
    rg_net_node *node;
    int32_t reads;  /* the value that the next node reads, where it can; -1: any */
    bool deep;      /* most nodes read what the last one has made */
    bool plain;     /* no bias, no inner neuron: they follow as nodes */
    bool logarithm; /* of a softmax and its loss */
} rg_net_draw;

void rg_net_draw_all(rg_net *net, uint64_t seed);
int64_t rg_net_int(rg_net_draw *d, int64_t low, int64_t high); /* both included */
bool rg_net_chance(rg_net_draw *d, double p);
double rg_net_real(rg_net_draw *d, double low, double high);
/* A new value, with all of `like`; -1 where there are too many. */
int32_t rg_net_add_value(rg_net_draw *d, const rg_net_value *like);
int32_t rg_net_add_source(rg_net_draw *d, const rg_tensor_desc desc[2], double low, double high,
                          int64_t classes);
/* A parameter of this shape, now and then one that exists already. */
int32_t rg_net_add_parameter(rg_net_draw *d, rg_dtype dtype, int32_t rank, const int64_t dims[],
                             double low, double high, bool own);
void rg_net_forget(rg_net_draw *d, int32_t count); /* all values from this one on */
int32_t rg_net_add_item(rg_net *net);
__attribute__((format(printf, 2, 3))) void rg_net_field(rg_net_draw *d, const char *format, ...);
/* What a value is at present: the least and the largest element. */
void rg_net_range(const rg_net_draw *d, int32_t value, double *least, double *largest);
/* Finishes d->node, whose inputs and fields are drawn: whether it is a node that may be. */
bool rg_net_finish_node(rg_net_draw *d, const char *op);
/* Draws a forward node's fields and inputs: false where no value fits. */
bool rg_net_draw_op(rg_net_draw *d, const char *op);
bool rg_net_is_window(const char *op); /* one of random_network_windows.c */
bool rg_net_draw_window(rg_net_draw *d, const char *op);
bool rg_net_draw_norm(rg_net_draw *d, const char *op); /* those of random_network_norms.c */
/* What they share: a value of a rank from low to high, or -1; one more input; a parameter of rank
 * 1; a neuron as a part of the op. */
int32_t rg_net_pick(rg_net_draw *d, int32_t low, int32_t high);
bool rg_net_input(rg_net_draw *d, int32_t value);
int32_t rg_net_vector(rg_net_draw *d, rg_dtype dtype, int64_t length, double low, double high,
                      bool own);
void rg_net_inner_neuron(rg_net_draw *d);
void rg_net_add_result(rg_net_draw *d, int32_t value); /* unless it is one */
/* Results, states and plans, when all else is drawn: random_network_requests.c. */
void rg_net_draw_requests(rg_net_draw *d);
/* Draws what follows the forward pass. */
void rg_net_draw_backward(rg_net_draw *d);

/* Says, for the items that are kept, what every value is, and which gradients there are. */
void rg_net_settle(rg_net *net);
bool rg_net_has_node(const rg_net *net, int32_t node);
/* Whether a result that is kept can be had. */
bool rg_net_has_result(const rg_net *net, const rg_net_mark *result);

/* ---- the definition, in double: random_network_define.c ---- */

/* What a source or parameter holds in a run, as its dtype rounds it. */
double *rg_net_fill(const rg_net *net, int32_t value, int32_t step);
/* One node, of values that are there. With `noise` every result is changed by so much of its
 * largest element, at random by `seed`; equal numbers stay equal. */
bool rg_net_define_node(const rg_net *net, const rg_net_node *node, rg_net_numbers *n,
                        int32_t shape, double noise, uint64_t seed);
/* The gradients of a pass, of values that are there. */
bool rg_net_define_backward(const rg_net *net, rg_net_numbers *n, int32_t pass, double noise,
                            uint64_t seed);
/* All of a network in its first run. */
bool rg_net_define(const rg_net *net, rg_net_numbers *n, double noise, uint64_t seed);
void rg_net_numbers_free(rg_net_numbers *n);

/* ---- graphs: random_network_build.c ---- */

typedef struct rg_net_graph {
    rg_graph *graph;
    rg_value *values[RG_NET_VALUES];
    rg_node *nodes[RG_NET_NODES];
    /* With data sources: the elements of parameters, for load. */
    void *elements[RG_NET_VALUES];
} rg_net_graph;
rg_status rg_net_build(const rg_net *net, bool data_sources, rg_net_graph *g);
void rg_net_graph_free(rg_net_graph *g);

/* ---- what runs leave: random_network_eager.c ---- */

/* All that a run leaves, in the order of the graph: results, states, parameters. */
typedef struct rg_net_chunk {
    char name[48];
    int32_t result; /* its place among the network's results, or -1 */
    int32_t value;  /* of a parameter: its place; else -1 */
    rg_tensor_desc desc;
    void *data;
} rg_net_chunk;
typedef struct rg_net_outcome {
    rg_net_chunk *chunks;
    int32_t count, capacity;
} rg_net_outcome;
rg_status rg_net_outcome_add(rg_net_outcome *o, const rg_tensor *tensor, const char *name,
                             int32_t result, int32_t value);
void rg_net_outcome_free(rg_net_outcome *o);

/* Runs every node of the graph alone, in the graph's order, each value in memory of its own;
 * outcomes has an entry for each run. */
rg_status rg_net_plain(const rg_net *net, const rg_net_graph *g, rg_queue *queue,
                       rg_net_outcome outcomes[]);
/* Writes what a source or parameter holds in a run. */
rg_status rg_net_write(const rg_net *net, int32_t value, int32_t step, rg_tensor *tensor);
/* The source tensors of a run, by value. */
rg_status rg_net_sources(const rg_net *net, rg_device *device, int32_t step, bool strided,
                         rg_tensor *tensors[]);

/* ---- plans: random_network_plan.c ---- */

/* Runs the network through a plan, as the variant says. `bytes`, unless NULL, receives what the
 * plan takes. */
rg_status rg_net_run(const rg_net *net, const rg_net_graph *g, const rg_net_variant *variant,
                     rg_queue *queue, rg_net_outcome outcomes[], size_t *bytes);

/* ---- comparing: random_network_compare.c ---- */

/* What the definitions say, and how far that may be from the truth: results with every step
 * disturbed by the tolerance of its dtype. */
enum { RG_NET_NOISY = 3 };
typedef struct rg_net_truth {
    bool known;
    rg_net_numbers exact, noisy[RG_NET_NOISY];
} rg_net_truth;
bool rg_net_truth_make(const rg_net *net, rg_net_truth *truth);
void rg_net_truth_free(rg_net_truth *truth);

/* A sentence of what is wrong. */
typedef struct rg_net_report {
    char text[1024];
    int64_t comparisons;
} rg_net_report;
/* The first run against the definition; false with a sentence. */
bool rg_net_is_true(const rg_net *net, const rg_net_truth *truth, const rg_net_outcome *o,
                    const char *who, rg_net_report *report);
/* The same bits in everything that both have. */
bool rg_net_is_same(const rg_net *net, const rg_net_outcome want[], const rg_net_outcome got[],
                    const char *who, rg_net_report *report);
/* A gradient against finite differences of the losses, in f64: random_network_differences.c. */
rg_status rg_net_check_slope(const rg_net *net, const rg_net_graph *g, const rg_net_truth *truth,
                             rg_queue *queue, rg_net_report *report, bool *right);

/* One mistake in the graph, or in the sources of a run: random_network_invalid.c. */
bool rg_net_check_mistakes(const rg_net *net, const rg_net_graph *g, rg_queue *queue,
                           rg_net_report *report);

/* ---- entry point: random_network.c ---- */

typedef struct rg_networks rg_networks;
/* Devices of all instruction sets and numbers of threads; failures are printed to `told`. */
rg_status rg_networks_open(const char *device, const char *isa, FILE *told, rg_networks **n);
void rg_networks_close(rg_networks *n);
/* Draws the network of a seed and checks it. `only`, unless NULL, lists the items to keep. A
 * failure is shrunk and told, with the command that repeats it. */
rg_status rg_networks_check(rg_networks *n, uint64_t seed, const char *only);
int64_t rg_networks_comparisons(const rg_networks *n);
int64_t rg_networks_failures(const rg_networks *n);
/* `retrograde check --networks`: those of `count` seeds, and a line about them. Returns the exit
 * status. */
int rg_check_networks(const char *device, const char *isa, int64_t count, uint64_t seed,
                      const char *only);

#endif
