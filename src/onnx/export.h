/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* From a graph to an ONNX model. Every value of the graph has a name in the file and an order of
 * dimensions: images are (n, c, h, w) there. Shapes are found for two sizes of the batch, as in an
 * import. */
#ifndef RG_ONNX_EXPORT_H
#define RG_ONNX_EXPORT_H

#include "onnx/onnx_write.h"

#include <retrograde/arithmetic.h>
#include <retrograde/conv_transpose.h>
#include <retrograde/conv.h>
#include <retrograde/pool.h>
#include <retrograde/transpose.h>

/* A value as the file has it. Dimension d of the graph is dimension order[d] of the file. Its shape
 * may lack dimensions of 1 that the value of the graph has: one pixel (n, 1, 1, c) is (n, c). */
typedef struct rg_form {
    const char *name;
    rg_tensor_desc shape[RG_PROBES]; /* in the order of the graph */
    int32_t order[RG_MAX_RANK];
} rg_form;

/* What is known of a value of the graph. */
typedef struct rg_exported {
    bool known; /* its shape is */
    bool has_form;
    bool needed;     /* by a result */
    int32_t readers; /* nodes that are written, and results */
    rg_tensor_desc shape[RG_PROBES];
    rg_form form;
    bool has_inner;
    rg_form inner;        /* what the neuron of an op reads */
    const char *extra[2]; /* further outputs of its node: positions of maxima, logarithms, … */
    /* A parameter that the file has with other elements or dimensions: its name there. */
    const char *changed;
    rg_tensor_desc changed_desc; /* in the order of the file */
    /* The first value whose gradient this is, and the next one with the same gradient. */
    const rg_value *of_gradient, *next_of_gradient;
} rg_exported;

/* Where the elements of parameters come from: a plan, or the file of an imported network. */
typedef struct rg_export_source {
    rg_plan *plan;
    const rg_onnx_network *network;
} rg_export_source;

/* A node of the file. Names may change until all nodes are there. */
enum { RG_EMITTED_INPUTS = 16, RG_EMITTED_OUTPUTS = 4 };
typedef struct rg_emitted {
    struct rg_emitted *next;
    const char *type;
    bool runtime; /* of com.microsoft */
    const char *inputs[RG_EMITTED_INPUTS], *outputs[RG_EMITTED_OUTPUTS];
    int32_t input_count, output_count;
    size_t begin, end; /* its attributes, in `attributes` of the export */
} rg_emitted;

typedef struct rg_export {
    const rg_graph *graph;
    rg_onnx_write_desc desc;
    rg_dtype dtype; /* of floating-point values in the file */
    rg_export_source source;
    rg_arena arena;
    rg_exported *values; /* by id */
    bool *live;          /* nodes, by id */
    rg_names names;      /* of the file, all of them */
    rg_names renamed;    /* by what they were called first */
    rg_names results;    /* their names in the file */
    rg_names made;       /* outputs of nodes up to `noted`, as they were called first */
    rg_emitted *first, *last, *noted;
    rg_writer attributes, tensors, inputs, outputs;
    const rg_node *node; /* being written */
    char *uncovered;
    size_t uncovered_length, uncovered_capacity;
} rg_export;

typedef rg_status rg_exporter(rg_export *e, const rg_node *node);

/* ---- nodes of the file: a type, then inputs, attributes and outputs (export_emit.c) ---- */

rg_status rg_emit(rg_export *e, const char *type);
rg_status rg_emit_runtime(rg_export *e, const char *type); /* of com.microsoft */
void rg_emit_input(rg_export *e, const char *name);        /* "": absent */
void rg_emit_int(rg_export *e, const char *name, int64_t value);
void rg_emit_ints(rg_export *e, const char *name, const int64_t values[], int32_t count);
void rg_emit_float(rg_export *e, const char *name, double value);
void rg_emit_text(rg_export *e, const char *name, const char *value);
void rg_emit_output(rg_export *e, const char *name);
/* Writes the whole model. */
rg_status rg_emit_model(rg_export *e, rg_writer *writer);

/* ---- forms (export_value.c) ---- */

/* A name that nothing in the file has: `wanted`, or with a number after it. */
rg_status rg_export_name(rg_export *e, const char *wanted, const char *suffix, const char **name);
/* What the imported file has under the name, in this role; NULL: nothing, or there is no file. */
const rg_onnx_entry *rg_export_entry(const rg_export *e, const char *name, rg_onnx_role role);
/* The value as it is; a parameter that nothing has read yet gets its dimensions as the imported
 * file has them, else as the graph has. */
rg_status rg_export_any(rg_export *e, const rg_value *value, rg_form *form);
/* The same, perhaps without dimensions of 1. */
rg_status rg_export_raw(rg_export *e, const rg_value *value, rg_form *form);
/* In this order; a parameter that nothing has read yet is stored in it. */
rg_status rg_export_ordered(rg_export *e, const rg_value *value, const int32_t order[],
                            rg_form *form);
rg_status rg_export_plain(rg_export *e, const rg_value *value, rg_form *form);
rg_status rg_export_image(rg_export *e, const rg_value *value, rg_form *form); /* (n, c, …) */
rg_status rg_form_reorder(rg_export *e, rg_form *form, const int32_t order[]);
/* Other dimensions in the order of the graph, which the file has in `order`. */
bool rg_form_keeps_order(const rg_form *form, const rg_tensor_desc shape[RG_PROBES],
                         const int32_t order[]); /* without a Transpose */
rg_status rg_form_reshape(rg_export *e, rg_form *form, const rg_tensor_desc shape[RG_PROBES],
                          const int32_t order[]);
void rg_form_file_dims(const rg_form *form, int64_t dims[]); /* RG_ONNX_ANY_DIM: the batch */
bool rg_order_same(const int32_t a[], const int32_t b[], int32_t rank);
extern const int32_t rg_plain_order[RG_MAX_RANK];

/* A new value of the file after `x`: one input, one output, `type` without attributes. */
rg_status rg_form_unary(rg_export *e, const char *type, rg_form *form);
/* With a second input. */
rg_status rg_form_binary(rg_export *e, const char *type, rg_form *form, const char *other);
/* The last node makes a new value, which `form` becomes: its output gets a name. */
rg_status rg_form_made(rg_export *e, rg_form *form);

/* Output `index` of the node is this form. */
rg_status rg_export_define(rg_export *e, const rg_node *node, int32_t index, const rg_form *form);
/* Shapes of the outputs of a node whose inputs are known. */
rg_status rg_export_shapes(rg_export *e, const rg_node *node);

/* Constants of the file: integers; one number, or `count` equal ones, of the dtype of values. */
rg_status rg_export_ints(rg_export *e, const int64_t values[], int32_t count, const char *suffix,
                         const char **name);
rg_status rg_export_number(rg_export *e, rg_dtype dtype, double number, const char **name);
rg_status rg_export_numbers(rg_export *e, rg_dtype dtype, const double numbers[], int64_t count,
                            int32_t rank, const int64_t dims[], const char *suffix,
                            const char **name);
/* The type that values of a dtype have in the file. */
int32_t rg_export_type(const rg_export *e, rg_dtype dtype);
/* Elements of a parameter as doubles, in the order of the graph; `count` of them. */
rg_status rg_export_doubles(rg_export *e, const rg_value *parameter, double **elements,
                            int64_t *count);
/* A parameter with other elements and dimensions, under its name if nothing else reads it. */
rg_status rg_export_changed(rg_export *e, const rg_value *parameter, const double elements[],
                            const rg_tensor_desc *desc, const int32_t order[], const char **name);

/* ---- by op ---- */

rg_exporter *rg_exporter_find(const char *op, bool gradient);
rg_exporter rg_export_conv, rg_export_conv_transpose, rg_export_pool, rg_export_upsample,
    rg_export_pad, rg_export_dense, rg_export_matmul, rg_export_batch_norm, rg_export_group_norm,
    rg_export_lrn, rg_export_neuron, rg_export_arithmetic, rg_export_softmax, rg_export_dropout,
    rg_export_gram;
/* An activation after `form`; prelu takes its slopes from `slope`. */
rg_status rg_form_neuron(rg_export *e, const rg_neuron_desc *desc, const rg_value *slope,
                         rg_form *form);

/* The numbers a, b, c of a kind, its defaults where they are not given. */
void rg_neuron_numbers(const rg_neuron_desc *desc, double numbers[3]);
rg_status rg_form_times(rg_export *e, rg_form *form, double factor);
rg_status rg_form_plus(rg_export *e, rg_form *form, double term);
/* An operand with as many dimensions as the result, in its order. */
rg_status rg_export_operand(rg_export *e, const rg_value *value, int32_t rank,
                            const int32_t order[], rg_form *form);
/* Attributes of windows for gradients; RG_UNSUPPORTED where the forward pass has nodes for them. */
rg_status rg_emit_conv_windows(rg_export *e, const rg_conv_desc *desc, const rg_tensor_desc *x,
                               const rg_tensor_desc *w);
rg_status rg_emit_transposed_windows(rg_export *e, const rg_conv_transpose_desc *desc,
                                     const rg_tensor_desc *x, const rg_tensor_desc *w,
                                     const rg_tensor_desc *y);
rg_status rg_emit_pool_windows(rg_export *e, const rg_pool_desc *desc, const rg_tensor_desc *x);

/* Pad with numbers in the order of the file, (n, c, h, w). */
rg_status rg_form_pad(rg_export *e, rg_form *form, const char *mode, const int64_t pads[8],
                      double value);

/* Arithmetic of operands that have one order; the result is *a. */
rg_status rg_form_combine(rg_export *e, const rg_arithmetic_desc *d, rg_form *a, rg_form *b);
/* a where b is not 0, else 0. */
rg_status rg_form_mask(rg_export *e, rg_form *a, const rg_form *b);
/* Held between two bounds; infinite ones are none. */
rg_status rg_form_clip(rg_export *e, rg_form *form, double low, double high);

/* A convolution or product with weights, and a batch normalization that is folded into it. */
typedef struct rg_weighted {
    const rg_node *node, *norm; /* NULL: nothing is folded */
    const char *weights, *bias; /* names; NULL: no bias */
    const rg_neuron_desc *neuron;
} rg_weighted;
/* Bias and weights, the channels of the result being dimension `channel` of w, whose dimensions the
 * file has in `order`. */
rg_status rg_export_weights(rg_export *e, const rg_node *node, bool bias, int32_t channel,
                            const int32_t order[], rg_weighted *weighted);
/* Neurons after it; the result is that of the node, and of the normalization. */
rg_status rg_export_weighted(rg_export *e, const rg_weighted *weighted, rg_form *form);

/* Class labels and logits with classes in dimension 1, as ONNX has them. */
rg_status rg_export_loss_inputs(rg_export *e, const rg_value *x, const rg_value *labels,
                                rg_form *x_form, rg_form *label_form);

/* ---- gradients ---- */

rg_exporter *rg_gradient_exporter_find(const char *op);
rg_exporter rg_export_conv_gradient, rg_export_pool_gradient, rg_export_dense_gradient,
    rg_export_matmul_gradient, rg_export_batch_norm_gradient, rg_export_layer_norm_gradient,
    rg_export_reshape_gradient, rg_export_transpose_gradient, rg_export_concat_gradient,
    rg_export_slice_gradient, rg_export_reduce_gradient, rg_export_softmax_gradient,
    rg_export_dropout_gradient, rg_export_loss_gradient, rg_export_conv_transpose_gradient,
    rg_export_pad_gradient, rg_export_upsample_gradient, rg_export_lrn_gradient;
/* The dimension of x that dimension k of y is. */
int32_t rg_export_transposed(const rg_transpose_desc *desc, int32_t k, int32_t rank);
/* Whether a gradient of this forward node is written. */
bool rg_export_has_gradient(const rg_export *e, const rg_node *node);
/* The gradient of an input, if it is wanted. */
rg_status rg_export_define_gradient(rg_export *e, const rg_node *node, int32_t input,
                                    const rg_form *form);
/* The result of the forward node of a gradient node, in an order. */
rg_status rg_export_forward_result(rg_export *e, const rg_node *node, const int32_t order[],
                                   rg_form *y);
/* An operator of com.microsoft with two inputs; attributes may follow. */
rg_status rg_form_runtime(rg_export *e, const char *type, rg_form *dy, const char *other);
/* dy becomes the gradient of an activation with input x and result y, of the same order. */
rg_status rg_form_neuron_gradient(rg_export *e, const rg_neuron_desc *d, const rg_form *x,
                                  const rg_form *y, rg_form *dy);
/* The gradient before a neuron that is part of the op: g = dy neuron'(z). */
rg_status rg_form_before_neuron(rg_export *e, const rg_node *node, const rg_neuron_desc *neuron,
                                rg_form *dy);
/* Sums over dimensions of the graph, which stay with length 1, or are left out. */
rg_status rg_form_sum(rg_export *e, rg_form *form, const bool dims[], bool keep);

/* The graph as a model. */
enum { RG_ONNX_DEFAULT_WRITTEN = 17 };
rg_status rg_graph_export(const rg_graph *graph, rg_export_source source,
                          const rg_onnx_write_desc *desc, rg_writer *writer);

#endif
