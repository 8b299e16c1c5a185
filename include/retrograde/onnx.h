/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/** @file
 *  ONNX models: networks of other systems as graphs that run and train.
 *
 *      rg_onnx_open("model.onnx", &model);
 *      rg_onnx_network_create(model, NULL, &network);
 *      rg_plan_create(device, rg_onnx_network_graph(network), NULL, &plan);
 *      rg_onnx_network_load(network, plan);
 *      …
 *      rg_onnx_network_view(network, "x", x, &source);      x as the file says: (n, c, h, w)
 *      rg_plan_encode(plan, commands, &source);
 *
 *  Operator sets 7 to 30 are read; docs/onnx.md lists the operators. Inputs, outputs and
 *  initializers keep their names. Images run with channels last: a value of the graph may have the
 *  dimensions of the file in another order, which rg_onnx_network_view() changes without a copy.
 *
 *  Files are untrusted. RG_IO if one cannot be read, RG_MALFORMED if its content is invalid, and
 *  RG_UNSUPPORTED, with the names of all operators concerned, for what is not covered. External
 *  data is read from the model's folder alone. Programs that use this header are linked with
 *  libretrograde_train. */
#ifndef RETROGRADE_ONNX_H
#define RETROGRADE_ONNX_H

#include <retrograde/graph.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A model as it was read. It is immutable and may be used from any thread. */
typedef struct rg_onnx rg_onnx;

/** Reads a file of at most 2 GiB. On failure *model is NULL. */
RG_API rg_status rg_onnx_open(const char *path, rg_onnx **model);

/** Reads a model from memory, which is copied. `name` begins error sentences. A model with external
 *  data can be read, but not loaded. On failure *model is NULL. */
RG_API rg_status rg_onnx_parse(const char *name, const void *data, size_t bytes, rg_onnx **model);

/** Releases the model. NULL is allowed. */
RG_API void rg_onnx_close(rg_onnx *model);

/** The version of its operator set; 0 for NULL. */
RG_API int64_t rg_onnx_opset(const rg_onnx *model);

/** An input or output, as the file declares it. */
typedef struct rg_onnx_port_info {
    const char *name; /**< lives as long as the model */
    bool has_dtype;   /**< whether elements have a type that tensors can have */
    rg_dtype dtype;
    int32_t rank;              /**< -1 if the file does not say */
    int64_t dims[RG_MAX_RANK]; /**< -1 for those that the file leaves open */
} rg_onnx_port_info;

/** Inputs that are no initializers, and outputs, in the order of the file. RG_INVALID_ARGUMENT past
 *  the last one. */
RG_API int32_t rg_onnx_inputs(const rg_onnx *model);
RG_API int32_t rg_onnx_outputs(const rg_onnx *model);
RG_API rg_status rg_onnx_input(const rg_onnx *model, int32_t index, rg_onnx_port_info *info);
RG_API rg_status rg_onnx_output(const rg_onnx *model, int32_t index, rg_onnx_port_info *info);

/* ---- networks ---- */

/** What a network is made for. Start from rg_onnx_options_default(). */
typedef struct rg_onnx_options {
    uint32_t size; /**< of this struct; set by rg_onnx_options_default() */
    /** Shapes of the inputs, as many as there are, dimensions in the order of the file; NULL
     *  (default): those of the file. A first dimension of -1 is the batch, which each run chooses;
     *  all others must be known. A rank of -1 stands for what the file says. */
    const rg_tensor_desc *inputs;
    bool training;  /**< with dropout, and statistics of the batch in batch normalization (default
                         false: as the network is used) */
    bool has_dtype; /**< whether `dtype` is given (default false: as in the file) */
    rg_dtype dtype; /**< of all floating-point values: f32, f64, f16 or bf16 */
    int64_t seed;   /**< of dropout (default 0) */
} rg_onnx_options;
RG_API rg_onnx_options rg_onnx_options_default(void);

/** The graph of a model, with what the file says of its values. */
typedef struct rg_onnx_network rg_onnx_network;

/** Makes the graph: sources are inputs, results are outputs, parameters are initializers and
 *  constants, all under their names. Gradients are not there yet: see rg_graph_gradients(). A
 *  parameter whose gradient has no use, such as a running mean, is marked by
 *  rg_value_stop_gradient(). The model must stay open longer than the network. `options` may be
 *  NULL. On failure *network is NULL. */
RG_API rg_status rg_onnx_network_create(const rg_onnx *model, const rg_onnx_options *options,
                                        rg_onnx_network **network);
RG_API void rg_onnx_network_destroy(rg_onnx_network *network);

/** The graph, which belongs to the network; NULL for NULL. */
RG_API rg_graph *rg_onnx_network_graph(rg_onnx_network *network);

typedef enum rg_onnx_role { RG_ONNX_INPUT, RG_ONNX_OUTPUT, RG_ONNX_PARAMETER } rg_onnx_role;

/** A named tensor of a network. */
typedef struct rg_onnx_tensor_info {
    const char *name; /**< lives as long as the network */
    rg_onnx_role role;
    rg_value *value; /**< of the graph; NULL for an output that is constant */
    bool trained;    /**< a parameter that gradients are meant for */
    /** Dimensions in the order of the file; -1 for the batch. */
    rg_tensor_desc desc;
    /** Dimension d of the value is dimension order[d] of the file. */
    int32_t order[RG_MAX_RANK];
} rg_onnx_tensor_info;

/** The inputs, outputs and parameters. RG_INVALID_ARGUMENT past the last one. */
RG_API int32_t rg_onnx_network_tensors(const rg_onnx_network *network);
RG_API rg_status rg_onnx_network_tensor(const rg_onnx_network *network, int32_t index,
                                        rg_onnx_tensor_info *info);
/** The same by name; RG_INVALID_ARGUMENT if there is none. */
RG_API rg_status rg_onnx_network_find(const rg_onnx_network *network, const char *name,
                                      rg_onnx_tensor_info *info);

/** Writes the parameters of the file into a plan of the graph, or of a copy of it. */
RG_API rg_status rg_onnx_network_load(const rg_onnx_network *network, rg_plan *plan);

/** The elements of an output that is constant, or of a parameter as the file has it, in a new
 *  dense tensor with the dimensions of the file. On failure *tensor is NULL. */
RG_API rg_status rg_onnx_network_constant(const rg_onnx_network *network, const char *name,
                                          rg_device *device, rg_tensor **tensor);

/** A view of a tensor with the dimensions of the file, as one of the value `name` of the graph, or
 *  of its gradient; the caller destroys it. */
RG_API rg_status rg_onnx_network_view(const rg_onnx_network *network, const char *name,
                                      rg_tensor *tensor, rg_tensor **view);
/** The other way round: a view with the dimensions of the file of a value of the graph. */
RG_API rg_status rg_onnx_network_file_view(const rg_onnx_network *network, const char *name,
                                           rg_tensor *tensor, rg_tensor **view);

/* ---- writing ---- */

/** The operator sets that can be written. */
#define RG_ONNX_OLDEST_WRITTEN 13
#define RG_ONNX_NEWEST_WRITTEN 24

/** An input of a graph that is written. */
typedef struct rg_onnx_write_input {
    const char *name;    /**< of the source */
    rg_tensor_desc desc; /**< dimensions as the graph has them; the first may be -1: the batch */
} rg_onnx_write_input;

/** A source or result that has another name, or another order of dimensions, in the file. */
typedef struct rg_onnx_write_name {
    const char *graph, *file;
    bool channels_last; /**< an image is (n, h, w, c) in the file, too */
} rg_onnx_write_name;

/** How a network is written. Start from rg_onnx_write_desc_default(). */
typedef struct rg_onnx_write_desc {
    uint32_t size; /**< of this struct; set by rg_onnx_write_desc_default() */
    int32_t opset; /**< RG_ONNX_OLDEST_WRITTEN to RG_ONNX_NEWEST_WRITTEN; 0 (default): 17, or for an
                        imported network that of its file */
    bool has_dtype; /**< whether `dtype` is given (default false: as the network has it, but f32
                         for bf16, which few runtimes take) */
    rg_dtype dtype; /**< of all floating-point values: f32, f64, f16 or bf16 */
    /** Whether a batch normalization with given statistics becomes part of the convolution or
     *  product before it, if nothing else reads that (default false). */
    bool fold_batch_norm;
    /** Of imported networks, models and checkpoints: whether the gradient graph is written, too
     *  (default false). Outputs "w_grad" are the gradients of all parameters "w" that are trained:
     *  of the loss, with an input "labels" and an output "loss", or for an imported network of the
     *  sum of outputs "y" times inputs "y_grad". Statistics of normalizations are those of the
     *  parameters, and nothing is dropped. */
    bool gradients;
    /** Whether a result that is an image of one pixel, (n, 1, 1, c), is (n, c) in the file (default
     *  false: (n, c, 1, 1)). */
    bool flat_results;
    /** Shapes of all sources that results need; an imported network knows its own (default NULL).
     */
    const rg_onnx_write_input *inputs;
    int32_t input_count;
    /** With `channels` above 0 the first input becomes (x - mean) / deviation before anything
     *  reads it, channel by channel (default 0). */
    const double *mean, *deviation;
    int32_t channels;
    bool by_columns; /**< images have one channel, and these are of each column: `channels` is how
                          many (default false) */
    const rg_onnx_write_name *names; /**< of sources and results that differ (default NULL) */
    int32_t name_count;
    const char *name; /**< of the graph in the file (default NULL: "retrograde") */
    /* The options below are for checkpoints, see rg_checkpoint_write_onnx(). */
    bool probabilities; /**< a second output, what rg_trainer_predict() gives (default false) */
    bool raw_input;     /**< the file takes (x - mean) / deviation; the caller computes it (default
                             false: the file does) */
} rg_onnx_write_desc;
RG_API rg_onnx_write_desc rg_onnx_write_desc_default(void);

/** Writes a graph with the parameters of a plan of it, or of a copy of it, as an ONNX model.
 *  Sources, results and parameters keep their names. Images, which graphs have as (n, h, w, c), are
 *  (n, c, h, w) in the file throughout, and weights of convolutions (out, in, h, w); inputs and
 *  outputs of rank 4 count as images, which `names` may except. Everything that the results of the
 *  graph need is written.
 *
 *  Gradient nodes become operators of com.microsoft, which libretrograde_ort.so adds to ONNX
 *  Runtime, and operators of ONNX.
 *
 *  RG_UNSUPPORTED, with the names of all nodes concerned, for what has no counterpart; RG_IO if the
 *  file cannot be written. It is written whole or not at all. */
RG_API rg_status rg_onnx_write(const rg_graph *graph, rg_plan *plan, const rg_onnx_write_desc *desc,
                               const char *path);

/** Writes the parameters of a graph as PyTorch has them to a safetensors file: "conv1.w" is
 *  "conv1.weight" (out, in, h, w), likewise bias, running_mean and running_var; weights of fully
 *  connected layers are (out, c h w). What cannot be written as ONNX is RG_UNSUPPORTED. */
RG_API rg_status rg_onnx_write_weights(const rg_graph *graph, rg_plan *plan,
                                       const rg_onnx_write_desc *desc, const char *path);

/** Writes a model as it was read, byte by byte, whatever its operators are; external data moves
 *  into the file. */
RG_API rg_status rg_onnx_copy(const rg_onnx *model, const char *path);

/** Writes an imported model with the parameters of a plan of its graph, or of a copy of it. All
 *  else stays as it was read, byte by byte: nodes, names, shapes, initializers that have not
 *  changed. External data moves into the file. Where the plan is NULL the parameters are those of
 *  the file. With a `desc` that asks for another operator set, dtype, folding or normalization the
 *  model is written from its graph instead, as by rg_onnx_write(); NULL asks for nothing. */
RG_API rg_status rg_onnx_network_write(const rg_onnx_network *network, rg_plan *plan,
                                       const rg_onnx_write_desc *desc, const char *path);

/** Writes the initializers that such a file would have to a safetensors file, with their names. */
RG_API rg_status rg_onnx_network_write_weights(const rg_onnx_network *network, rg_plan *plan,
                                               const rg_onnx_write_desc *desc, const char *path);

#ifdef __cplusplus
}
#endif

#endif
