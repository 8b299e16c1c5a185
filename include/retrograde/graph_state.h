/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/** @file
 *  States in graphs and plans: what a forward node leaves for its gradient, as a value of its own,
 *  and states that a plan is given from outside, so that a plan of gradient nodes alone can go on
 *  where kernels, or another plan, have run the forward pass.
 *
 *      rg_value *dy = rg_graph_source(graph, "dy");
 *      rg_state_value *mask = rg_graph_source_state(graph, "mask", "dropout", &desc);
 *      rg_node *node = rg_graph_gradient_from_state(
 *          graph, mask, &(rg_gradient_values){ .dy = &dy, .dy_count = 1 }, 0);
 *      rg_graph_result(graph, rg_node_output(node, 0), "dx");
 *      …
 *      rg_plan_encode_with_states(plan, commands, &dy_tensor, 1, &state, 1); */
#ifndef RETROGRADE_GRAPH_STATE_H
#define RETROGRADE_GRAPH_STATE_H

#include <retrograde/graph.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct rg_state_value rg_state_value;

/* ---- states in a graph; they belong to the graph ---- */

/** The maximum number of states that a plan can be given. */
#define RG_PLAN_SOURCE_STATES 4096

/** The state that a forward node leaves for its gradient, MPS's MPSNNGradientStateNode: always the
 *  same one for a node, and any number of gradient nodes may read it. NULL for a gradient node, and
 *  for an op without a gradient. */
RG_API rg_state_value *rg_node_state(rg_node *node);

/** A state that every run is given: one that a kernel of this op and descriptor, which is copied,
 *  has filled, or another plan (rg_plan_state()). Dropout may have drawn its mask by the number of
 *  a run. Names of these states must be unique. RG_UNSUPPORTED for an op without a gradient, and
 *  for a state that calls add to, such as that of a phase of batch normalization. */
RG_API rg_state_value *rg_graph_source_state(rg_graph *graph, const char *name, const char *op,
                                             const void *desc);

/** The values that a gradient node reads, each array with its length. */
typedef struct rg_gradient_values {
    rg_value *const *dy; /**< one for each output that has a gradient */
    size_t dy_count;
    rg_value *const *x; /**< of the forward pass; entries that the gradient does not read may be
                             NULL, and so may the array, with length 0 */
    size_t x_count;
    rg_value *const *y; /**< the same for the results */
    size_t y_count;
} rg_gradient_values;

/** A gradient node that reads `state`, with the op and descriptor of the state. For the state of a
 *  node, an array of length 0 is that of the node. Of a state that runs are given, the shapes of
 *  the forward pass are recorded in the state itself. `wanted` as in rg_graph_gradient(); 0: all
 *  gradients. */
RG_API rg_node *rg_graph_gradient_from_state(rg_graph *graph, rg_state_value *state,
                                             const rg_gradient_values *values, uint64_t wanted);

/** The node that leaves the state; NULL for one that runs are given. */
RG_API rg_node *rg_state_value_node(const rg_state_value *state);
/** The name of a state that runs are given, "" for others. */
RG_API const char *rg_state_value_name(const rg_state_value *state);
/** A pointer of the caller, which the graph stores but does not use; NULL by default. */
RG_API rg_status rg_state_value_set_handle(rg_state_value *state, void *handle);
RG_API void *rg_state_value_handle(const rg_state_value *state);
/** The state that a gradient node reads; NULL for others. */
RG_API rg_state_value *rg_node_source_state(const rg_node *node);
/** The states that runs are given, in the order of their creation, and one by its name. NULL past
 *  the last, or if there is none. */
RG_API int32_t rg_graph_source_states(const rg_graph *graph);
RG_API rg_state_value *rg_graph_source_state_at(const rg_graph *graph, int32_t index);
RG_API rg_state_value *rg_graph_find_source_state(const rg_graph *graph, const char *name);

/* ---- plans that are given states ---- */

/** The states that a run is given, in the order that rg_plan_encode_with_states() expects: how
 *  many, the name of each, and how many nodes of a run read it, as rg_plan_source_reads(). */
RG_API int32_t rg_plan_source_states(const rg_plan *plan);
RG_API const char *rg_plan_source_state_name(const rg_plan *plan, int32_t index);
RG_API uint64_t rg_plan_source_state_reads(const rg_plan *plan, int32_t index);

/** As rg_plan_prepare() for sources of these shapes and these states, whose shapes and
 *  descriptors matter, not their elements. Both arrays have the lengths that the plan reports. */
RG_API rg_status rg_plan_prepare_with_states(rg_plan *plan, const rg_tensor_desc sources[],
                                             int64_t sources_count, rg_state *const states[],
                                             int64_t states_count);

/** As rg_plan_encode(), for a plan that is given states, too: each has been filled by a forward
 *  pass that is committed, or recorded before in the same commands. Temporary ones are lowered by
 *  what rg_plan_source_state_reads() says. The states of this plan itself must be copied first.
 *  Some gradients write sums into the state that they are given, such as that of batch
 *  normalization; on a GPU into a copy of it. The lengths of both arrays must be those that the
 *  plan tells. */
RG_API rg_status rg_plan_encode_with_states(rg_plan *plan, rg_commands *commands,
                                            rg_tensor *const sources[], int64_t sources_count,
                                            rg_state *const states[], int64_t states_count);

/** As rg_plan_encode_batch(), for a plan that is given states, too: entry i * count + n is state i
 *  of image n; the lengths are those of all entries. A state that is the same for all images is
 *  that of the whole batch, or, where it is of one image, (h, w, c) or (1, h, w, c), that of each
 *  of them. States of images are equal (rg_state_equal()), count as images like sources, and the
 *  nodes that read them run image by image. Of the inputs of the forward pass that such a node is
 *  not given, the first is an image, and so are others of its rank and dimension 0, but for
 *  weights; the rest is the same for all images. */
RG_API rg_status rg_plan_encode_batch_with_states(rg_plan *plan, rg_commands *commands,
                                                  int64_t count, rg_tensor *const sources[],
                                                  int64_t sources_count, rg_state *const states[],
                                                  int64_t states_count);

#ifdef __cplusplus
}
#endif

#endif
