/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/** @file
 *  Graphs: a network described as ops applied to values, its backward pass, and plans that run it.
 *
 *  A graph is a description without a device. Its values are sources (inputs of every run),
 *  parameters (kept by a plan), constants, and outputs of nodes. A node is an op with its
 *  descriptor applied to values. Builders return NULL on an error or if an argument is NULL, so a
 *  network can be described without checks; rg_graph_status() and rg_plan_create() report the
 *  first error.
 *
 *      rg_value *x = rg_graph_source(graph, "x");
 *      rg_value *w = rg_graph_parameter(graph, "w", &desc);
 *      rg_value *y = rg_node_output(rg_graph_dense(graph, &dense, (rg_value *[]){ x, w }), 0);
 *      …
 *      rg_graph_gradients(graph, &loss, NULL, 1, NULL, NULL);
 *      rg_graph_result(graph, rg_value_gradient(w), "dw");
 *
 *  retrograde/nodes.h declares rg_graph_<op>() for every op, retrograde/graph_state.h what a graph
 *  does with states. An array of values that is too short
 *  for its descriptor is an error if its length is known: from an argument, see rg_graph_node()
 *  and the forms with `_counted`, or from the compiler. */
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

#if defined(__GNUC__) && !defined(__cplusplus)
/** The number of values in an array that is passed to a builder, or a large number if the compiler
 *  does not know it. The array is not evaluated. */
#define RG_VALUES_LENGTH(...)                                                                     \
    (__builtin_types_compatible_p(__typeof__(__VA_ARGS__), rg_value *[]) ||                       \
             __builtin_types_compatible_p(__typeof__(__VA_ARGS__), rg_value *const[])             \
         ? sizeof(__typeof__(__VA_ARGS__)) / (0 + sizeof(rg_value *)) /* no pointer comes here */ \
         : __builtin_object_size(__VA_ARGS__, 1) / sizeof(rg_value *))
#endif

/* ---- graphs ---- */

RG_API rg_status rg_graph_create(rg_graph **graph);
/** Releases the graph with its values and nodes; plans do not need them. NULL is allowed. */
RG_API void rg_graph_destroy(rg_graph *graph);
/** RG_OK, or the status and error text of the first error of a builder. */
RG_API rg_status rg_graph_status(const rg_graph *graph);

/* ---- values; they belong to the graph ---- */

/** The maximum number of sources of a plan. */
#define RG_PLAN_SOURCES 4096

/** An input of every run. Names of sources and parameters must be unique. */
RG_API rg_value *rg_graph_source(rg_graph *graph, const char *name);

/** A dense tensor that a plan keeps from run to run; zeros until written, see
 *  rg_plan_parameter(). */
RG_API rg_value *rg_graph_parameter(rg_graph *graph, const char *name, const rg_tensor_desc *desc);

/** When a data source's update is called. */
typedef enum rg_update_style {
    RG_UPDATE_NONE,   /**< never: the parameter is frozen, gradients flow past it */
    RG_UPDATE_DEVICE, /**< at the end of every encode, to record its update */
    RG_UPDATE_HOST    /**< when a run has completed, with the gradient on the host */
} rg_update_style;

/** Loads and updates a parameter. Initialize with rg_data_source_default(). The functions may be
 *  called from any thread; `context` must stay valid longer than the plans. */
typedef struct rg_data_source {
    uint32_t size;       /**< of this struct; set by rg_data_source_default() */
    void *context;       /**< passed to all functions */
    rg_tensor_desc desc; /**< of the parameter */
    /** Returns the elements, dense and in the parameter's dtype; they stay valid until `purge`.
     *  Called when a plan is created, by rg_plan_reload(), and after an update on the host. The
     *  caller fails with any status other than RG_OK. */
    rg_status (*load)(void *context, const void **elements);
    void (*purge)(void *context); /**< called once after each successful load; may be NULL */
    rg_update_style style;        /**< default RG_UPDATE_NONE */
    /** Records the update of `parameter`, or nothing to keep it; the next run uses the new
     * elements. Called in the order in which gradients are complete, last layer first. A failure
     * becomes that of the encode; the commands then contain part of a run and must be destroyed. */
    rg_status (*update_on_device)(void *context, rg_commands *commands, rg_tensor *gradient,
                                  rg_tensor *parameter);
    /** Receives the gradient and the elements of the run, dense. Returns true if the elements have
     *  changed and the plan must load them again. Called on any thread, before rg_commands_wait()
     *  returns. */
    bool (*update_on_host)(void *context, const void *gradient, const void *elements);
} rg_data_source;
RG_API rg_data_source rg_data_source_default(void);

/** A parameter with a data source, which is copied. Its gradient is that of the last
 *  rg_graph_gradients() before a plan is created; without one there are no updates. */
RG_API rg_value *rg_graph_parameter_from(rg_graph *graph, const char *name,
                                         const rg_data_source *source);

/** A constant: `number` in all elements, with the shape and dtype of `like`. */
RG_API rg_value *rg_graph_constant(rg_graph *graph, rg_value *like, double number);

/** Makes a value a named result of each run; see rg_plan_result(). */
RG_API rg_status rg_graph_result(rg_graph *graph, rg_value *value, const char *name);

/** Keeps the state of a forward node after each run under this name; see rg_plan_state(). */
RG_API rg_status rg_graph_state_result(rg_graph *graph, rg_node *node, const char *name);

/** Assigns `value` to the parameter at the end of a run. `value` is an output of a node that may
 *  overwrite the parameter, such as new_parameter of an optimizer. All other nodes of the run
 *  read the old parameter. */
RG_API rg_status rg_graph_assign(rg_graph *graph, rg_value *parameter, rg_value *value);

/** Stops the backward pass at this value: its gradient is computed, but not the gradients of its
 *  inputs. A parameter becomes frozen, and a source gets no gradient. */
RG_API rg_status rg_value_stop_gradient(rg_value *value);

/** The gradient of the value from rg_graph_gradients(); NULL if there is none. */
RG_API rg_value *rg_value_gradient(const rg_value *value);

/** The node that computes the value; NULL for sources, parameters and constants. */
RG_API rg_node *rg_value_node(const rg_value *value);
/** The index of the value among the outputs of that node; 0 for others. */
RG_API int32_t rg_value_index(const rg_value *value);
/** Name of a source or parameter, "" for others. */
RG_API const char *rg_value_name(const rg_value *value);

typedef enum rg_value_kind {
    RG_VALUE_SOURCE,
    RG_VALUE_PARAMETER,
    RG_VALUE_CONSTANT,
    RG_VALUE_OUTPUT
} rg_value_kind;
RG_API rg_value_kind rg_value_get_kind(const rg_value *value);

/** A pointer of the caller, which the graph stores but does not use; NULL by default. */
RG_API rg_status rg_value_set_handle(rg_value *value, void *handle);
RG_API void *rg_value_handle(const rg_value *value);

/* ---- queries ---- */

/** The nodes in topological order. NULL past the last. */
RG_API int32_t rg_graph_nodes(const rg_graph *graph);
RG_API rg_node *rg_graph_node_at(const rg_graph *graph, int32_t index);
/** The values in the order of their creation. NULL past the last. */
RG_API int32_t rg_graph_values(const rg_graph *graph);
RG_API rg_value *rg_graph_value_at(const rg_graph *graph, int32_t index);
/** Results in their order; `name`, unless NULL, receives the name. NULL past the last. */
RG_API int32_t rg_graph_results(const rg_graph *graph);
RG_API rg_value *rg_graph_result_at(const rg_graph *graph, int32_t index, const char **name);
/** The value assigned to the parameter; NULL if there is none. */
RG_API rg_value *rg_graph_assigned(const rg_graph *graph, const rg_value *parameter);
/** A source or parameter by its name, a node by its label; NULL if there is none. */
RG_API rg_value *rg_graph_find_value(const rg_graph *graph, const char *name);
RG_API rg_node *rg_graph_find_node(const rg_graph *graph, const char *label);

/** A line for each source, parameter, node, result and assignment, as rg_kernel_describe. */
RG_API size_t rg_graph_describe(const rg_graph *graph, char *text, size_t capacity);

/** Whether two graphs have equal nodes in the same order, equal results, states and assignments
 *  under the same names, and the same stop marks. Labels, handles and data sources do not
 *  matter. */
RG_API bool rg_graph_equal(const rg_graph *a, const rg_graph *b);

/** An independent copy of the graph, with the same labels, handles, data sources and gradients. */
RG_API rg_status rg_graph_copy(const rg_graph *graph, rg_graph **copy);

/* ---- nodes; they belong to the graph ---- */

/** An op, by its name, applied to `count` values; `desc` is its descriptor, which is copied. */
RG_API rg_node *rg_graph_node(rg_graph *graph, const char *op, const void *desc,
                              rg_value *const x[], int32_t count);

/** The gradient of the forward node `of`, by hand: dy[] has an entry for each of its outputs that
 *  has a gradient; bit i of `wanted` requests the gradient of input i, which is output i of the
 *  new node. */
RG_API rg_node *rg_graph_gradient(rg_graph *graph, rg_node *of, rg_value *const dy[],
                                  uint64_t wanted);

/** A gradient node with explicit arguments: op and descriptor, dy[], x[] and y[] of the forward
 *  pass, and the node whose state it reads, or NULL if it reads none. `y`, or entries of it, may be
 *  NULL if the gradient does not read them; `wanted` 0 requests all gradients. */
RG_API rg_node *rg_graph_gradient_node(rg_graph *graph, const char *op, const void *desc,
                                       rg_value *const dy[], rg_value *const x[],
                                       rg_value *const y[], rg_node *state_of, uint64_t wanted);

/** The same with the lengths of the arrays: an array shorter than the descriptor requires is
 *  an error. A `y` of NULL has any length. */
RG_API rg_node *rg_graph_gradient_node_counted(rg_graph *graph, const char *op, const void *desc,
                                               rg_value *const dy[], size_t dy_count,
                                               rg_value *const x[], size_t x_count,
                                               rg_value *const y[], size_t y_count,
                                               rg_node *state_of, uint64_t wanted);

/** Output `index`; of a gradient node the gradient of input `index`. NULL if there is none. */
RG_API rg_value *rg_node_output(const rg_node *node, int32_t index);
RG_API rg_value *rg_node_input(const rg_node *node, int32_t index);
/** The number of inputs and outputs; the inputs of a gradient node are the gradients it reads.
 */
RG_API int32_t rg_node_outputs(const rg_node *node);
RG_API int32_t rg_node_inputs(const rg_node *node);
/** The op's name. */
RG_API const char *rg_node_op(const rg_node *node);
RG_API bool rg_node_is_gradient(const rg_node *node);
/** The forward node whose state a gradient node reads; NULL for others. */
RG_API rg_node *rg_node_forward(const rg_node *node);
/** Copies the node's descriptor, as many bytes as its first field says. */
RG_API rg_status rg_node_desc(const rg_node *node, void *desc);

/** Whether two nodes, of one graph or of two, have the same op, direction and descriptor, and read
 *  the same: sources and parameters of the same names, outputs of the nodes in the same places. */
RG_API bool rg_node_equal(const rg_node *a, const rg_node *b);

/** A unique name that error texts use for the node; by default the op's name and a number. */
RG_API rg_status rg_node_set_label(rg_node *node, const char *label);
RG_API const char *rg_node_label(const rg_node *node);
/** Gives a node of an op with windows a padding policy of the caller's own: a plan calls it once
 *  for each set of source shapes, in rg_plan_prepare() or rg_plan_encode(), and the gradient nodes
 *  of the node have the same windows. `context` must stay valid as long as the plans. NULL takes
 *  the rule away. Copies of the graph have it, texts (JSON) do not. RG_UNSUPPORTED for other ops,
 *  and for a gradient node that is given a state. */
RG_API rg_status rg_node_set_padding_rule(rg_node *node, rg_padding_rule *rule, void *context);
/** "conv1: conv groups=1 …", as rg_kernel_describe. */
RG_API size_t rg_node_describe(const rg_node *node, char *text, size_t capacity);

/* ---- the backward pass ---- */

/** Called for each new node: the gradient node of `forward`, or, with `forward` NULL, a sum of
 *  gradients that reach one value. `source` is the value whose gradient it makes, `dy` the first
 *  gradient that it reads; a node that makes several is shown once for each. The handler may label
 *  the node, set handles, and mark `source` so that the pass ends there. Without a handler
 *  gradients get the handles of the values that they are for. */
typedef void rg_gradient_handler(void *context, rg_node *gradient, rg_node *forward,
                                 rg_value *source, rg_value *dy);

/** Adds nodes for the gradient of `y` with respect to every parameter that is not frozen and every
 *  source, as far as floating-point values lead to them. `dy` is its gradient; NULL: ones. May be
 *  called for several values; gradients that reach a value from all of them are summed. A value
 *  that has a gradient from an earlier call gets the new one. `handler` may be NULL. It is an
 *  error if a parameter is an input of an op without gradient, or of a gradient node. */
RG_API rg_status rg_graph_gradients(rg_graph *graph, rg_value *const y[], rg_value *const dy[],
                                    int32_t count, rg_gradient_handler *handler, void *context);

/** The nodes of the last backward pass whose results no other node of it reads, in their order: up
 *  to `capacity` of them into `nodes`. Returns how many there are. */
RG_API int32_t rg_graph_termini(const rg_graph *graph, rg_node *nodes[], int32_t capacity);

/** A step of an optimizer, by the name of its op: a node that reads `parameter` and `gradient`, and
 *  assigns the new parameter. Moments are parameters "<name>.<input>", zeros at first, which it
 *  assigns, too. `rate`, `step` and `scale` are of rank 0; NULL where the descriptor has none. A
 *  parameter of 16 bits has its f32 master as the parameter "<name>.master", which must be written
 *  together with it; the 16-bit parameter is the descriptor's `copy`. */
RG_API rg_node *rg_graph_update(rg_graph *graph, const char *op, const void *desc,
                                rg_value *parameter, rg_value *gradient, rg_value *rate,
                                rg_value *step, rg_value *scale);

/* ---- plans ---- */

/** Options of a plan. Initialize with rg_plan_options_default(). */
typedef struct rg_plan_options {
    uint32_t size;      /**< of this struct; set by rg_plan_options_default() */
    bool reuse_storage; /**< values with disjoint lifetimes share storage (default true) */
    bool in_place;      /**< results may overwrite their inputs (default true) */
    bool poison;        /**< storage is overwritten after its last use, for tests (default false) */
    /* The options below stay within the tolerances of docs/numerics.md; those above give the same
     * bits. */
    bool fuse_neurons;  /**< fuse neurons into the op before them (default true) */
    bool fuse_biases;   /**< fuse additions of a bias per channel in the same way (default true) */
    bool fuse_softmax;  /**< fuse softmax into a loss that is its only reader (default true) */
    bool fuse_losses;   /**< compute a loss and its gradient in one pass (default true) */
    bool add_gradients; /**< gradients are added into each other, without nodes of their own for
                             sums (default true) */
    /* The options below give the same bits. */
    bool share_views;   /**< results that are their source in another shape are not copied (default
                             true) */
    bool batch_updates; /**< run optimizer steps together, in few launches (default true) */
    bool replay;        /**< on a GPU, runs after the first are launched as one: the launches are
                             kept with their scratch, and sources are copied to where they read
                             them (default true) */
    /** Memory budget of values and states in bytes: values that are cheap to compute are dropped
     * and recomputed for the backward pass until the rest fits or nothing more can be dropped; in a
     *  graph with tens of thousands of nodes not all are tried. 0 (default): no limit. */
    size_t budget;
    /** Parameters of the same name and shape are those of this plan, on the same device (default
     *  NULL). Runs of both then go to one queue, and one that updates parameters on the host is
     *  waited for before the other plan is encoded. */
    const struct rg_plan *share;
    /** Each run draws other random numbers: nodes without an input for the step, such as dropout,
     *  are given the number of the run, from 0 on, which rg_plan_copy() copies (default true). */
    bool new_masks;
} rg_plan_options;
RG_API rg_plan_options rg_plan_options_default(void);

/** Prepares the graph to run on a device: removes nodes that no result and no assignment needs,
 *  creates kernels, allocates parameters. `options` may be NULL. On failure *plan is NULL. At most
 *  RG_PLAN_SOURCES sources can be read; with more it is RG_UNSUPPORTED. */
RG_API rg_status rg_plan_create(rg_device *device, const rg_graph *graph,
                                const rg_plan_options *options, rg_plan **plan);
/** Releases the plan; recorded work keeps what it needs. NULL is allowed. */
RG_API void rg_plan_destroy(rg_plan *plan);

/** The sources, in the order that rg_plan_encode() expects. */
RG_API int32_t rg_plan_sources(const rg_plan *plan);
RG_API const char *rg_plan_source_name(const rg_plan *plan, int32_t index);
/** How many nodes of a run read the source, with the shapes prepared or encoded last: a temporary
 *  that is a source must have at least that read count, and each encode lowers it by so much. */
RG_API uint64_t rg_plan_source_reads(const rg_plan *plan, int32_t index);
/** Nodes that a run goes through: of the graph, or after rg_plan_prepare() or rg_plan_encode() what
 *  has become of them. */
RG_API int32_t rg_plan_steps(const rg_plan *plan);
/** The number of kernel launches of a run with the shapes prepared or encoded last. */
RG_API int64_t rg_plan_launches(const rg_plan *plan);

/** Whether runs with the shapes prepared or encoded last are launched as one; false before the
 *  second of them, and where the device cannot. */
RG_API bool rg_plan_replays(const rg_plan *plan);

/** A node that a run goes through. Texts belong to the plan. */
typedef struct rg_step_info {
    const char *label, *op;
    bool gradient;
    bool update;     /**< a step of an optimizer */
    int32_t forward; /**< of a gradient: the step whose state it reads, or -1 */
} rg_step_info;
RG_API rg_status rg_plan_step_info(const rg_plan *plan, int32_t step, rg_step_info *info);

/** An entry in the storage of a plan: a value, or a tensor of a state. */
typedef struct rg_memory_info {
    const char *label;   /**< of the node that makes it; "" for a constant */
    int32_t output;      /**< which of its outputs; of a state: which of its tensors */
    const char *state;   /**< the name of a state's tensor; NULL for a value */
    rg_tensor_desc desc; /**< its shape */
    size_t offset, bytes;
    int32_t first, last; /**< steps that make it and read it last; first -1: before all; last
                              rg_plan_steps(): it stays */
} rg_memory_info;
/** The storage entries of the layout prepared or encoded last. */
RG_API int32_t rg_plan_memory_count(const rg_plan *plan);
RG_API rg_status rg_plan_memory(const rg_plan *plan, int32_t index, rg_memory_info *info);

/** Runs the plan once as a whole, then step by step, waiting after each: milliseconds[i] receives
 *  the least time of step i in `runs` runs. There are rg_plan_steps() of them with these sources,
 *  see rg_plan_prepare(). Parameters change as in any other `runs` + 1 runs. */
RG_API rg_status rg_plan_time(rg_plan *plan, rg_queue *queue, rg_tensor *const sources[],
                              int32_t runs, double milliseconds[]);

/** The shape of a value in the layout prepared or encoded last: output `output` of the node with
 *  this label. */
RG_API rg_status rg_plan_shape(const rg_plan *plan, const char *label, int32_t output,
                               rg_tensor_desc *desc);

/** Loads a parameter, or with a NULL name all of them, from its data source again. Runs that use it
 *  must be complete. */
RG_API rg_status rg_plan_reload(rg_plan *plan, const char *name);

/** The same plan on another device (NULL: on the same one), with copies of the parameters. Data
 *  sources are shared. Runs that change parameters must be complete. */
RG_API rg_status rg_plan_copy(const rg_plan *plan, rg_device *device, rg_plan **copy);

/** The number of parameters, and the name of each, in the order of the graph. */
RG_API int32_t rg_plan_parameters(const rg_plan *plan);
RG_API const char *rg_plan_parameter_name(const rg_plan *plan, int32_t index);
/** A parameter by its name; it belongs to the plan and may be read and written between runs. */
RG_API rg_status rg_plan_parameter(rg_plan *plan, const char *name, rg_tensor **tensor);

/** Checks all shapes for sources of these shapes, assigns storage and makes this layout the current
 *  one for results. A layout is created once for each set of shapes and kept. */
RG_API rg_status rg_plan_prepare(rg_plan *plan, const rg_tensor_desc sources[]);

/** Records a run. Only one thread at a time may use a plan, and its runs must go to one queue or be
 *  waited for. With updates on the host it waits for those of the previous run, which must be
 *  committed first. */
RG_API rg_status rg_plan_encode(rg_plan *plan, rg_commands *commands, rg_tensor *const sources[]);

/** Records a run for `count` images that are tensors of their own: entry i * count + n is source i
 *  of image n. Recorded copies put them together. Where the highest rank among sources that differ
 *  between images is 3, they are images (h, w, c), and all get a dimension in front: a batch
 *  (count, h, w, c), labels (count, h, w). Otherwise they have a dimension for images and are
 *  joined along it, dimension 0; numbers of rank 0 become a row, and vectors are refused that no
 *  source of a higher rank explains.
 *
 *  A tensor that is the same for all images, as any is with a count of 1, is one more image where
 *  it has the shape of one: (h, w, c), or (1, h, w, c) where images are joined; with its labels of
 *  classes, (h, w) or (1, h, w), and their weights. So the same image may be given several times,
 *  and a batch of one is (1, h, w, c). All else is used as it is: weights of layers, numbers,
 *  vectors, a tensor (count, h, w, c) of the whole batch.
 *
 *  Results contain all images. Each temporary is lowered by what rg_plan_source_reads() says, as by
 *  rg_plan_encode(). RG_UNSUPPORTED for separate images of u8. */
RG_API rg_status rg_plan_encode_batch(rg_plan *plan, rg_commands *commands, int64_t count,
                                      rg_tensor *const sources[]);

/** Runs at once, on a queue of the plan, and calls `handler`, which may be NULL, when done, on any
 *  thread and perhaps before this returns. Sources may be destroyed, but not written, meanwhile. On
 *  failure the handler is not called. Where the run itself fails, rg_error_text() within the
 *  handler is its sentence. A later run overwrites the results of the plan. */
RG_API rg_status rg_plan_run_async(rg_plan *plan, rg_tensor *const sources[],
                                   void (*handler)(void *context, rg_status outcome),
                                   void *context);

/** The same with results of this run's own, as MPS returns an image for each call: results[]
 *  receives a dense tensor for each of rg_plan_results(), which the caller destroys; the run copies
 *  its results there, and no other run touches them. On failure all entries are NULL. */
RG_API rg_status rg_plan_run_async_results(rg_plan *plan, rg_tensor *const sources[],
                                           rg_tensor *results[],
                                           void (*handler)(void *context, rg_status outcome),
                                           void *context);

/** The results of the graph: how many, and the name of each, in their order. */
RG_API int32_t rg_plan_results(const rg_plan *plan);
RG_API const char *rg_plan_result_name(const rg_plan *plan, int32_t index);

/** A result of the run that was prepared or encoded last. It belongs to the plan; query it
 *  again after each encode: runs with other shapes or source alignments have other results. */
RG_API rg_status rg_plan_result(rg_plan *plan, const char *name, rg_tensor **tensor);

/** The state that was kept under this name, for the shapes prepared or encoded last. It belongs
 *  to the plan; each run with these shapes overwrites its tensors. */
RG_API rg_status rg_plan_state(rg_plan *plan, const char *name, rg_state **state);

/** Bytes of storage that the values and states of the last layout take together, results and
 *  constants included, parameters and sources not; what they would take without sharing; and the
 *  scratch that the layout keeps besides, or that each run allocates on a GPU until it is launched
 *  as one. */
RG_API size_t rg_plan_bytes(const rg_plan *plan);
RG_API size_t rg_plan_bytes_apart(const rg_plan *plan);
RG_API size_t rg_plan_scratch(const rg_plan *plan);

#ifdef __cplusplus
}
#endif

#endif
