/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/** @file
 *  Graphs: a network described as ops applied to values, its backward pass, and plans that run it.
 *
 *  A graph is a description without a device. Values are what flows: sources that every run is
 *  given, parameters that a plan keeps, constants, and the outputs of nodes. A node is an op with
 *  its descriptor applied to values. Builders return NULL where something is wrong or an argument
 *  is NULL, so a network is written without checks; rg_graph_status(), and with it
 *  rg_plan_create(), tells the first mistake.
 *
 *      rg_value *x = rg_graph_source(graph, "x");
 *      rg_value *w = rg_graph_parameter(graph, "w", &desc);
 *      rg_value *y = rg_node_output(rg_graph_dense(graph, &dense, (rg_value *[]){ x, w }), 0);
 *      …
 *      rg_graph_gradients(graph, loss, NULL, NULL, NULL);
 *      rg_graph_result(graph, rg_value_gradient(w), "dw");
 *
 *  rg_graph_<op>() for every op stands in retrograde/nodes.h. */
#ifndef RETROGRADE_GRAPH_H
#define RETROGRADE_GRAPH_H

#include <retrograde/kernel.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct rg_graph rg_graph;
typedef struct rg_value rg_value;
typedef struct rg_node rg_node;
typedef struct rg_plan rg_plan;

/* ---- graphs ---- */

RG_API rg_status rg_graph_create(rg_graph **graph);
/** Gives the graph back with its values and nodes; plans do not need them. NULL allowed. */
RG_API void rg_graph_destroy(rg_graph *graph);
/** RG_OK, or the first mistake that a builder met, with its sentence. */
RG_API rg_status rg_graph_status(const rg_graph *graph);

/* ---- values; they belong to the graph ---- */

/** What each run is given. Names of sources and of parameters differ from each other. */
RG_API rg_value *rg_graph_source(rg_graph *graph, const char *name);

/** A tensor that a plan keeps from run to run, dense; zeros until written, see
 *  rg_plan_parameter(). */
RG_API rg_value *rg_graph_parameter(rg_graph *graph, const char *name, const rg_tensor_desc *desc);

/** `number` in all elements, with shape and dtype of `like`. */
RG_API rg_value *rg_graph_constant(rg_graph *graph, rg_value *like, double number);

/** Asks for a value after each run, by this name; see rg_plan_result(). */
RG_API rg_status rg_graph_result(rg_graph *graph, rg_value *value, const char *name);

/** After a run the parameter holds `value`: an output of a node that may be written in place of
 *  the parameter, such as new_parameter of an optimizer. All other nodes of the run see the old
 *  one. */
RG_API rg_status rg_graph_assign(rg_graph *graph, rg_value *parameter, rg_value *value);

/** The backward pass does not go past this value: its gradient is computed, that of what it was
 *  made from is not. A parameter is frozen, and a source gets no gradient. */
RG_API rg_status rg_value_stop_gradient(rg_value *value);

/** The gradient that rg_graph_gradients() has made for the value; NULL where there is none. */
RG_API rg_value *rg_value_gradient(const rg_value *value);

/** The node that makes the value; NULL for sources, parameters and constants. */
RG_API rg_node *rg_value_node(const rg_value *value);
/** Name of a source or parameter, "" for others. */
RG_API const char *rg_value_name(const rg_value *value);

/* ---- nodes; they belong to the graph ---- */

/** An op, by its name, applied to `count` values; `desc` is its descriptor, which is copied. */
RG_API rg_node *rg_graph_node(rg_graph *graph, const char *op, const void *desc,
                              rg_value *const x[], int32_t count);

/** The gradient of the forward node `of`, by hand: dy[] has an entry for each of its outputs that
 *  has a gradient; bit i of `wanted` asks for the gradient of input i, which is output i of the
 *  new node. */
RG_API rg_node *rg_graph_gradient(rg_graph *graph, rg_node *of, rg_value *const dy[],
                                  uint64_t wanted);

/** A gradient from all its parts: op and descriptor, dy[], x[] and y[] of the forward pass, and
 *  the node whose state it reads, NULL where it does without. `y`, or entries of it, may be NULL
 *  where the gradient does not read them; `wanted` 0 asks for all there are. */
RG_API rg_node *rg_graph_gradient_node(rg_graph *graph, const char *op, const void *desc,
                                       rg_value *const dy[], rg_value *const x[],
                                       rg_value *const y[], rg_node *state_of, uint64_t wanted);

/** Output `index`; of a gradient node the gradient of input `index`. NULL where there is none. */
RG_API rg_value *rg_node_output(const rg_node *node, int32_t index);
RG_API rg_value *rg_node_input(const rg_node *node, int32_t index);
/** The op's name. */
RG_API const char *rg_node_op(const rg_node *node);
RG_API bool rg_node_is_gradient(const rg_node *node);
/** The forward node whose state a gradient node reads; NULL for others. */
RG_API rg_node *rg_node_forward(const rg_node *node);
/** Copies the node's descriptor, as many bytes as its first field says. */
RG_API rg_status rg_node_desc(const rg_node *node, void *desc);

/** A name for people, which stands in sentences about the node; at first the op's name and a
 *  number. */
RG_API rg_status rg_node_set_label(rg_node *node, const char *label);
RG_API const char *rg_node_label(const rg_node *node);
/** "conv1: conv groups=1 …", as rg_kernel_describe. */
RG_API size_t rg_node_describe(const rg_node *node, char *text, size_t capacity);

/* ---- the backward pass ---- */

/** Called for each new node: the gradient node of `forward`, or, with `forward` NULL, a sum of
 *  gradients that reach one value. `source` is the value whose gradient it makes, `dy` the first
 *  gradient that it reads. */
typedef void rg_gradient_handler(void *context, rg_node *gradient, rg_node *forward,
                                 rg_value *source, rg_value *dy);

/** Adds nodes for the gradient of `y` with respect to every parameter that is not frozen and every
 *  source, as far as floating-point values lead to them. `dy` is its gradient; NULL: ones. May be
 *  called for several values; what reaches a value from all of them in one call is summed. A value
 *  that has a gradient from an earlier call gets the new one. `handler` may be NULL. */
RG_API rg_status rg_graph_gradients(rg_graph *graph, rg_value *const y[], rg_value *const dy[],
                                    int32_t count, rg_gradient_handler *handler, void *context);

/** A step of an optimizer, by the name of its op: a node that reads `parameter` and `gradient`, and
 *  assigns the new parameter. Moments are parameters "<name>.<input>", zeros at first, which it
 *  assigns, too. `rate`, `step` and `scale` are of rank 0; NULL where the descriptor has none. A
 *  parameter of 16 bits has its f32 master as the parameter "<name>.master", which is to be written
 *  together with it, and is the descriptor's `copy`. */
RG_API rg_node *rg_graph_update(rg_graph *graph, const char *op, const void *desc,
                                rg_value *parameter, rg_value *gradient, rg_value *rate,
                                rg_value *step, rg_value *scale);

/* ---- plans ---- */

/** How to plan. Start from rg_plan_options_default(), then change what matters. */
typedef struct rg_plan_options {
    uint32_t size;      /**< of this struct; set by rg_plan_options_default() */
    bool reuse_storage; /**< values share storage when their times do not meet (default true) */
    bool in_place;      /**< results may take the storage of what they are made of (default true) */
    bool poison;        /**< storage is overwritten after its last use, for tests (default false) */
    /* What follows stays within the tolerances of docs/numerics.md; all above gives the same
     * bits. */
    bool fuse_neurons;  /**< neurons become part of the op before them (default true) */
    bool fuse_biases;   /**< so does an addition of a bias for each channel (default true) */
    bool fuse_softmax;  /**< softmax becomes part of the loss that alone reads it (default true) */
    bool fuse_losses;   /**< a loss and its gradient are made in one pass (default true) */
    bool add_gradients; /**< gradients are added into each other, without nodes of their own for
                             sums (default true) */
    /* What follows gives the same bits. */
    bool share_views;   /**< results that are their source in another shape are not copied (default
                             true) */
    bool batch_updates; /**< steps of optimizers run together, in few launches (default true) */
    /** Bytes that values and states should not exceed: what is cheap to compute is dropped and
     *  computed again for the backward pass until they fit, or nothing more can be dropped; 0
     *  (default): no bound. */
    size_t budget;
    /** Parameters of the same name and shape are those of this plan, on the same device (default
     *  NULL). */
    const struct rg_plan *share;
} rg_plan_options;
RG_API rg_plan_options rg_plan_options_default(void);

/** Makes the graph ready to run on a device: what no result and no assignment needs is left out,
 *  kernels are made, parameters allocated. `options` may be NULL. On failure *plan is NULL. */
RG_API rg_status rg_plan_create(rg_device *device, const rg_graph *graph,
                                const rg_plan_options *options, rg_plan **plan);
/** Gives the plan back; recorded work keeps what it needs. NULL allowed. */
RG_API void rg_plan_destroy(rg_plan *plan);

/** The sources, in the order in which rg_plan_encode() wants them. */
RG_API int32_t rg_plan_sources(const rg_plan *plan);
RG_API const char *rg_plan_source_name(const rg_plan *plan, int32_t index);
/** Nodes that a run goes through: of the graph, or after rg_plan_prepare() or rg_plan_encode() what
 *  has become of them. */
RG_API int32_t rg_plan_steps(const rg_plan *plan);
/** Launches of kernels that a run with the shapes prepared or encoded last takes. */
RG_API int64_t rg_plan_launches(const rg_plan *plan);

/** How many parameters there are, and the name of each, in the order of the graph. */
RG_API int32_t rg_plan_parameters(const rg_plan *plan);
RG_API const char *rg_plan_parameter_name(const rg_plan *plan, int32_t index);
/** A parameter by its name; it belongs to the plan and may be read and written between runs. */
RG_API rg_status rg_plan_parameter(rg_plan *plan, const char *name, rg_tensor **tensor);

/** Checks all shapes for sources of these shapes, assigns storage and makes the layout the one
 *  that results are asked of. A layout is made once for each set of shapes and kept. */
RG_API rg_status rg_plan_prepare(rg_plan *plan, const rg_tensor_desc sources[]);

/** Records a run. One thread at a time uses a plan, and its runs go to one queue or are waited
 *  for. */
RG_API rg_status rg_plan_encode(rg_plan *plan, rg_commands *commands, rg_tensor *const sources[]);

/** A result of the runs with the shapes that were prepared or encoded last; it belongs to the
 *  plan, and each run with these shapes writes it anew. */
RG_API rg_status rg_plan_result(rg_plan *plan, const char *name, rg_tensor **tensor);

/** Bytes of storage that the values and states of the last layout take together, results and
 *  constants included, parameters and sources not; what they would take without sharing; and the
 *  scratch that each run allocates besides. */
RG_API size_t rg_plan_bytes(const rg_plan *plan);
RG_API size_t rg_plan_bytes_apart(const rg_plan *plan);
RG_API size_t rg_plan_scratch(const rg_plan *plan);

#ifdef __cplusplus
}
#endif

#endif
