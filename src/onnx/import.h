/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* From an ONNX model to a graph. Every name of the file is a constant or a flow: a value of the
 * graph with the order of its dimensions. Shapes are found twice, for two sizes of the batch: what
 * differs depends on the batch, and all else is fixed. */
#ifndef RG_ONNX_IMPORT_H
#define RG_ONNX_IMPORT_H

#include "graph/graph.h"
#include "onnx/onnx_file.h"
#include "operators/onnx.h"

#include <retrograde/arithmetic.h>
#include <retrograde/neuron.h>

/* Probe p has a batch of RG_PROBE_BATCH + p. */
enum { RG_PROBES = 2, RG_PROBE_BATCH = 2 };

/* A value of the graph. Dimension d of it is dimension order[d] of the file. */
typedef struct rg_flow {
    rg_value *value;
    rg_tensor_desc shape[RG_PROBES]; /* in the order of the graph */
    int32_t order[RG_MAX_RANK];
} rg_flow;

/* An element of a folded constant: `i` for integers and bool, `f` for the others. */
typedef union rg_element {
    int64_t i;
    double f;
} rg_element;

/* A folded constant, in row-major order. */
typedef struct rg_array {
    int32_t type; /* as in the file */
    int32_t rank;
    int64_t dims[RG_MAX_RANK];
    int64_t count;
    bool uniform; /* all elements are data[0] */
    rg_element *data;
} rg_array;

typedef enum rg_known_kind {
    RG_KNOWN_UNCOVERED, /* by a node that is not covered, or after one */
    RG_KNOWN_TENSOR,    /* a constant in the file */
    RG_KNOWN_ARRAY,     /* a folded constant */
    RG_KNOWN_SOURCE,    /* an input that nothing has read yet */
    RG_KNOWN_ERF,       /* offset + factor erf(x / sqrt 2), which only a Gelu can be made of */
    RG_KNOWN_FLOW
} rg_known_kind;

/* Of what may be a part of a Gelu: factor x, or offset + factor erf(x / sqrt 2). */
typedef struct rg_part {
    rg_flow x;
    double offset, factor;
    int32_t type; /* that the numbers of the file have, which tells how exact they are */
    bool gelu;    /* x is a Gelu that was recognised, and factor no number of the file */
} rg_part;

#define RG_ERF_TEXT "Erf is covered as a part of Gelu alone, x (1 + erf(x / sqrt 2)) / 2"

/* What a name of the file stands for. */
typedef struct rg_known {
    const char *name;
    rg_known_kind kind;
    int32_t type;
    rg_tensor_desc shape[RG_PROBES]; /* dimensions in the order of the file */
    bool trained;                    /* of constants: gradients are meant for it */
    bool wide;                       /* f32 where other values have 16 bits */
    bool is_bytes;                   /* an input of pixels from 0 to 255 */
    const rg_proto_tensor *tensor;
    const rg_array *array[RG_PROBES];
    bool has_flow;
    rg_flow flow;
    const rg_part *part; /* NULL: not known as one */
} rg_known;

/* An input, output or parameter of the network. */
typedef struct rg_onnx_entry {
    rg_onnx_tensor_info info;
    const rg_proto_tensor *tensor; /* where its elements come from, or */
    const rg_array *array;
    rg_tensor_desc shape[RG_PROBES]; /* of an output, in the order of the file */
    size_t next;                     /* 1 + the index of another one with its name; 0: none */
} rg_onnx_entry;

struct rg_onnx_network {
    const rg_onnx *model;
    rg_onnx_options options; /* `inputs` is in the arena */
    rg_graph *graph;
    rg_arena arena;
    rg_onnx_entry *entries;
    size_t entry_capacity, entry_count;
    rg_names entries_by_name; /* 1 + the index of one with this name */
};
rg_status rg_onnx_network_add(rg_onnx_network *network, const rg_onnx_entry *entry);
/* NULL if there is none. */
const rg_onnx_entry *rg_onnx_network_entry(const rg_onnx_network *network, rg_onnx_role role,
                                           const char *name);

/* The state of an import. */
typedef struct rg_import {
    const rg_onnx *model;
    rg_onnx_options options;
    rg_onnx_network *network;
    rg_graph *graph;
    rg_names names;                          /* rg_known by name */
    bool images;                             /* inputs of rank 4 are read with channels last */
    const struct rg_onnx_images *for_images; /* or NULL; see onnx_train.h */
    rg_value *step;                          /* of dropout, or NULL */
    rg_flow batch_zeros; /* (n), where an operator needed them; value NULL: not yet */
    int32_t mixed;       /* the widest type that values are converted to or from; 0: none */
    int64_t file_batch;  /* that the file fixes where the import leaves it open; 0: none */
    struct {
        int64_t length, outside;
    } batch_parts[8]; /* see import_batch.c */
    int32_t batch_part;
    int32_t made;              /* counts names and seeds */
    int64_t folded;            /* elements of all folded constants */
    const rg_proto_node *node; /* being converted */
    /* What is not covered: "Loop (node 'x')", the names of operators once each. */
    char *uncovered;
    size_t uncovered_length, uncovered_capacity;
    int32_t uncovered_count;
} rg_import;

typedef rg_status rg_converter(rg_import *m, const rg_proto_node *node);
/* Computes the outputs of a node with constant inputs; NULL for those not given. */
typedef rg_status rg_folder(rg_import *m, const rg_proto_node *node, const rg_array *const x[],
                            rg_array *y);

typedef struct rg_importer {
    const char *type;
    const char *attributes; /* all that it may have, with spaces between them; NULL: `convert`
                               checks them */
    int32_t least, most;    /* inputs */
    rg_converter *convert;  /* NULL: constants alone */
    rg_folder *fold;        /* NULL: not folded */
} rg_importer;
const rg_importer *rg_importer_find(const rg_proto_node *node);

/* ---- attributes; a wrong type is RG_MALFORMED ---- */

/* That it has none but these, with spaces between them; RG_UNSUPPORTED otherwise. */
rg_status rg_import_attributes(const rg_proto_node *node, const char *known);
const rg_proto_attribute *rg_attribute_find(const rg_proto_node *node, const char *name);
rg_status rg_attribute_int(const rg_proto_node *node, const char *name, int64_t *value);
rg_status rg_attribute_float(const rg_proto_node *node, const char *name, double *value);
/* The number that was rounded to this one: 0.1, 1/6 or 1/sqrt 8 rather than its neighbours in f32.
 * As f32 it has the same bits. */
double rg_meant_number(float number);
/* The same for a constant of one element, which may be a trained number: one in thirty of these is
 * a decimal fraction of six digits by chance, but one in three thousand of four. */
double rg_meant_constant(float number);
rg_status rg_attribute_bool(const rg_proto_node *node, const char *name, bool *value);
rg_status rg_attribute_text(const rg_proto_node *node, const char *name, const char **value);
/* Up to `most` integers; *count keeps its value where the attribute is not given. */
rg_status rg_attribute_ints(const rg_proto_node *node, const char *name, int64_t values[],
                            int32_t most, int32_t *count);
/* An axis of a tensor of this rank, from 0. */
rg_status rg_axis(const char *name, int64_t axis, int32_t rank, int32_t *from_0);

/* ---- values (import_value.c) ---- */

bool rg_node_has(const rg_proto_node *node, size_t input);
/* Input `i`, which the node has. RG_UNSUPPORTED where it depends on something not covered. */
rg_status rg_import_known(rg_import *m, const rg_proto_node *node, size_t input, rg_known **known);
rg_status rg_import_define(rg_import *m, const rg_proto_node *node, size_t output,
                           const rg_flow *flow);
rg_status rg_import_define_array(rg_import *m, const char *name, const rg_array *a,
                                 const rg_array *b);
/* The name becomes another name of a value. */
rg_status rg_import_define_same(rg_import *m, const rg_proto_node *node, size_t output,
                                rg_known *known);
rg_status rg_import_add(rg_import *m, const char *name, rg_known **known);
/* The output is not covered, which matters if something reads it. */
rg_status rg_import_define_uncovered(rg_import *m, const rg_proto_node *node, size_t output);

/* Input `i` as a flow of any order, identity for constants; of the identity; channels last. */
rg_status rg_import_any(rg_import *m, const rg_proto_node *node, size_t input, rg_flow *flow);
rg_status rg_import_plain(rg_import *m, const rg_proto_node *node, size_t input, rg_flow *flow);
rg_status rg_import_channels_last(rg_import *m, const rg_proto_node *node, size_t input,
                                  rg_flow *flow);
/* In this order of dimensions; a constant is stored in it, another flow is transposed. */
rg_status rg_import_ordered(rg_import *m, const rg_proto_node *node, size_t input,
                            const int32_t order[], rg_flow *flow);
rg_status rg_flow_reorder(rg_import *m, rg_flow *flow, const int32_t order[]);

/* ---- networks for images (import_images.c) ---- */

/* As rg_onnx_network_create(); `images` is NULL or belongs to a network for images. */
rg_status rg_onnx_import(const rg_onnx *model, const rg_onnx_options *options,
                         const struct rg_onnx_images *images, rg_onnx_network **network);
/* The flow of the input, from the source "images". */
rg_status rg_import_image_source(rg_import *m, rg_known *known, rg_dtype dtype);
/* The output without what the loss applies, channels last. */
rg_status rg_import_image_output(rg_import *m, rg_flow *flow);
/* Whether a parameter keeps its value while training. */
bool rg_import_is_frozen(const rg_import *m, const char *name);
/* Whether a Softmax, LogSoftmax or Sigmoid that changes of shape follow is one that the loss
 * applies itself. */
bool rg_import_is_left_out(const rg_import *m, const rg_proto_node *node);

/* ---- a batch that the file fixes (import_batch.c) ---- */

/* The dims of a Reshape of x by constants for the file's own batch, where the import leaves it
 * open; *done is false where that is not so. */
rg_status rg_import_open_reshape(rg_import *m, const rg_known *x, bool allow_zero,
                                 const int64_t shape[], int32_t rank,
                                 int64_t dims[RG_PROBES][RG_MAX_RANK], bool *done);
/* The same for the sizes of a Resize of input 0, in one probe. */
rg_status rg_import_open_sizes(rg_import *m, const rg_proto_node *node, int32_t probe,
                               int64_t sizes[], int32_t count);
/* The same for an Expand of x to constant dims. */
void rg_import_open_expand(const rg_import *m, const rg_flow *x, int32_t rank,
                           int64_t dims[RG_PROBES][RG_MAX_RANK]);
/* Flows that a Concat joins along an axis: one image beside a batch of them is repeated. */
rg_status rg_import_open_concat(rg_import *m, const rg_flow *like, int32_t axis, rg_flow *x);
/* A Gather of all elements in their order defines its output as a reshape. */
rg_status rg_import_open_gather(rg_import *m, const rg_proto_node *node, const rg_array *indices,
                                bool *done);
/* Refuses a sum, softmax or the like along a dimension that holds the images of a batch, which the
 * file fixes: with other batches it is another one. */
rg_status rg_import_within_image(const rg_import *m, const rg_flow *x, int32_t axis);
/* The shape of a Reshape in one probe, in place: 0 keeps a dimension, -1 is what is left. */
rg_status rg_resolve_shape(const rg_tensor_desc *x, bool allow_zero, int64_t shape[], int32_t rank);

/* A name that no file has. */
rg_status rg_import_name(rg_import *m, const char **name);
/* A constant of the importer, frozen, with its dimensions in this order; one number of the dtype,
 * of rank 0. */
rg_status rg_import_constant(rg_import *m, const rg_array *array, const int32_t order[],
                             rg_flow *flow);
rg_status rg_import_number(rg_import *m, rg_dtype dtype, double number, rg_flow *flow);

/* ---- flows (import_flow.c) ---- */

int32_t rg_flow_rank(const rg_flow *flow);
/* Dimensions in the order of the file. */
void rg_flow_dims(const rg_flow *flow, int32_t probe, int64_t dims[]);
/* The dimension of the graph that is dimension `axis` of the file. */
int32_t rg_flow_axis(const rg_flow *flow, int32_t axis);
void rg_flow_plain_order(rg_flow *flow);
void rg_channels_last_order(int32_t rank, int32_t order[]);
/* The order of a tensor of `own` dimensions that fits to the last of `rank` ones in `order`. */
void rg_fitting_order(const int32_t order[], int32_t rank, int32_t own, int32_t fitting[]);
/* Input `input` beside a flow: both get one rank and the order of *first. */
rg_status rg_import_beside(rg_import *m, const rg_proto_node *node, size_t input, rg_flow *first,
                           rg_flow *second);
/* One rank, and the order of *first, for both. */
rg_status rg_flow_align(rg_import *m, rg_flow *first, rg_flow *second);
/* A part of x along one axis of the file. */
rg_status rg_flow_cut(rg_import *m, const rg_flow *x, int32_t axis, int64_t start, int64_t length,
                      int64_t step, rg_flow *y);
/* Flows of one order, one after the other along an axis of the file; up to RG_MOST_SOURCES. */
enum { RG_MOST_SOURCES = 8 };
rg_status rg_flow_concat(rg_import *m, const rg_flow x[], int32_t count, int32_t axis, rg_flow *y);
/* Elements along an axis of the file, of this length, by their indices: slices that are joined. */
rg_status rg_flow_pick(rg_import *m, const rg_array *indices, int32_t axis, int64_t length,
                       rg_flow *x);
/* One axis of a slice as numpy has it: the first element, and how many. */
void rg_slice_range(int64_t length, int64_t step, int64_t *start, int64_t end, int64_t *count);
/* The order without the dimensions that are marked, by their number in the file; and the flow,
 * whose dimensions they are of length 1. */
void rg_flow_order_without(const rg_flow *x, const bool dropped[], int32_t order[]);
rg_status rg_flow_drop(rg_import *m, rg_flow *flow, const bool dropped[]);
/* Repeats dimensions of length 1, in the order of the file, as numpy broadcasts. */
rg_status rg_flow_expand(rg_import *m, rg_flow *flow, int32_t rank,
                         int64_t dims[RG_PROBES][RG_MAX_RANK]);
/* 0 for every element, with no gradient. */
rg_status rg_flow_zeros(rg_import *m, const rg_flow *x, rg_flow *zeros);
/* Applies an op of ours to values in the order of the graph. The first outputs get shapes and the
 * order of the first input if their rank is the same, else the identity. */
rg_status rg_import_apply(rg_import *m, const char *op, const void *desc, const rg_flow *const x[],
                          int32_t count, rg_flow y[], int32_t outputs);
/* The same for one input and output: *flow is replaced. */
rg_status rg_flow_apply(rg_import *m, const char *op, const void *desc, rg_flow *flow);
/* Other dimensions, in the order of the graph, which becomes the identity. */
rg_status rg_flow_reshape(rg_import *m, rg_flow *flow, int32_t rank,
                          int64_t dims[RG_PROBES][RG_MAX_RANK]);
/* Dimensions of 1 in front, in the order of the file and of the graph. */
rg_status rg_flow_widen(rg_import *m, rg_flow *flow, int32_t rank);
/* The channels of a flow with channels last, and whether they are the same in both probes. */
int64_t rg_flow_last(const rg_flow *flow);
rg_status rg_flow_neuron(rg_import *m, rg_flow *flow, rg_neuron_kind kind, const double numbers[],
                         int32_t count);
rg_status rg_flow_arithmetic(rg_import *m, rg_arithmetic_kind kind, const rg_flow *a,
                             const rg_flow *b, rg_flow *y);

/* ---- constants (import_constant.c) ---- */

bool rg_type_is_integer(int32_t type); /* or bool */
bool rg_known_is_constant(const rg_known *known);
/* A constant as an array, for one probe; RG_UNSUPPORTED if it is too long to be folded. */
rg_status rg_known_array(rg_import *m, const rg_known *known, int32_t probe,
                         const rg_array **array);
rg_element rg_array_at(const rg_array *array, int64_t i);
rg_status rg_array_create(rg_import *m, int32_t type, int32_t rank, const int64_t dims[],
                          bool uniform, rg_array *array);
/* Integers or numbers that input `i` holds, the same in both probes. */
rg_status rg_import_ints(rg_import *m, const rg_proto_node *node, size_t input, int64_t values[],
                         int32_t most, int32_t *count);
rg_status rg_import_floats(rg_import *m, const rg_proto_node *node, size_t input, double values[],
                           int32_t most, int32_t *count);
/* Those of one probe. */
rg_status rg_import_probe_ints(rg_import *m, const rg_proto_node *node, size_t input, int32_t probe,
                               int64_t values[], int32_t most, int32_t *count);
/* The integers of both probes, as many of each. */
rg_status rg_import_shape(rg_import *m, const rg_proto_node *node, size_t input,
                          int64_t dims[RG_PROBES][RG_MAX_RANK], int32_t *rank);
/* A list by attribute or by input, as older and newer operator sets have it; *count -1: neither. */
rg_status rg_import_list(rg_import *m, const rg_proto_node *node, const char *attribute,
                         size_t input, int64_t values[], int32_t *count);
/* Whether input `i` is a constant of one element that is not trained, and which. */
bool rg_import_scalar(rg_import *m, const rg_proto_node *node, size_t input, double *number);

/* Folds a node if all of its inputs are constants. */
rg_status rg_import_fold(rg_import *m, const rg_proto_node *node, const rg_importer *op,
                         bool *folded);

/* Folds a node that is not covered otherwise, whatever its constants are meant for. Fails with the
 * error that there is. */
rg_status rg_import_fold_trained(rg_import *m, const rg_proto_node *node, const rg_importer *op);
/* The value of a node that was converted because a gradient is meant for its inputs, where these
 * are constants: few numbers, such as sizes, may be meant as a constant all the same. */
rg_status rg_import_fold_also(rg_import *m, const rg_proto_node *node, const rg_importer *op);

/* ---- converters and folders, by family ---- */

/* By the table of operators, in two steps. */
rg_converter rg_convert_table;
rg_status rg_import_call(rg_import *m, const rg_proto_node *node, rg_onnx_call *call);
rg_status rg_import_run_call(rg_import *m, const rg_proto_node *node, rg_onnx_call *call);

rg_converter rg_convert_batch_norm, rg_convert_group_norm, rg_convert_dropout, rg_convert_resize;
rg_converter rg_convert_cubic, rg_convert_erf, rg_convert_threshold, rg_convert_lp_pool,
    rg_convert_global_lp_pool, rg_convert_loss, rg_convert_expand, rg_convert_tile,
    rg_convert_where, rg_convert_gather, rg_convert_gather_nd, rg_convert_depth_to_space,
    rg_convert_compare, rg_convert_logic, rg_convert_sign, rg_convert_scatter;
/* Add, Sub, Mul and Div of what may be a part of a Gelu; *done is false where that is all to say.
 */
rg_status rg_gelu_binary(rg_import *m, const rg_proto_node *node, rg_arithmetic_kind kind,
                         bool *done);
/* Remembers that the output of Mul or Div is a multiple of a value. */
rg_status rg_gelu_note(rg_import *m, const rg_proto_node *node, rg_arithmetic_kind kind);

rg_converter rg_convert_binary, rg_convert_sum, rg_convert_pow, rg_convert_unary, rg_convert_clip,
    rg_convert_hard_swish, rg_convert_mish, rg_convert_swish, rg_convert_prelu, rg_convert_selu,
    rg_convert_celu;
rg_converter rg_convert_gemm, rg_convert_matmul;
rg_converter rg_convert_identity, rg_convert_constant, rg_convert_cast, rg_convert_shape,
    rg_convert_reshape, rg_convert_flatten, rg_convert_squeeze, rg_convert_unsqueeze,
    rg_convert_transpose, rg_convert_concat, rg_convert_slice, rg_convert_split, rg_convert_pad,
    rg_convert_upsample;
rg_converter rg_convert_softmax, rg_convert_reduce, rg_convert_log_sum_exp, rg_convert_product;
rg_folder rg_fold_binary, rg_fold_extreme, rg_fold_clip, rg_fold_unary, rg_fold_cast,
    rg_fold_reshape, rg_fold_flatten, rg_fold_squeeze, rg_fold_unsqueeze, rg_fold_transpose,
    rg_fold_concat, rg_fold_slice, rg_fold_gather, rg_fold_range, rg_fold_constant_of_shape,
    rg_fold_expand, rg_fold_where, rg_fold_reduce, rg_fold_trilu, rg_fold_scatter, rg_fold_non_zero;

#endif
