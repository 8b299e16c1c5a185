/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* What a model is made of, and the networks made from it. */
#ifndef RG_TRAIN_MODEL_H
#define RG_TRAIN_MODEL_H

#include "graph/graph.h"
#include "onnx/onnx_train.h"

#include <retrograde/model.h>
#include <retrograde/onnx.h>

#include <stdatomic.h>

enum { RG_MODEL_CLASSES = -1 };

typedef struct rg_layer {
    char *label;
    const rg_op *op;
    int32_t line, column;        /* of the op's name */
    int64_t outputs;             /* or RG_MODEL_CLASSES; 0: none given */
    int32_t window[2];           /* 0: none given */
    int32_t from[RG_MAX_INPUTS]; /* layers before it, -1 for the images */
    int32_t from_count;          /* 0: the one before */
    _Alignas(16) char desc[RG_MAX_DESC];
} rg_layer;

struct rg_model {
    atomic_int users;
    char *name, *text;
    rg_onnx *onnx;  /* of an ONNX model, without weights; else NULL */
    rg_onnx *file;  /* that it was opened from, with weights; NULL for that of a checkpoint */
    rg_model *base; /* the model whose last layer was replaced, which owns `file`; else NULL */
    rg_layer *layers;
    size_t layers_capacity, layers_count;
};

/* Another user of a model, who destroys it, too. */
rg_model *rg_model_retain(const rg_model *model);

/* ---- networks ---- */

/* How a parameter starts. */
typedef enum rg_start { RG_START_ZERO, RG_START_ONE, RG_START_SLOPE, RG_START_NORMAL } rg_start;

typedef struct rg_network_parameter {
    rg_value *value;
    rg_start start;
    double deviation; /* of RG_START_NORMAL */
    bool trained;     /* by gradients; running statistics are not */
    bool stored;      /* its first value is that of the model's file */
    bool head;        /* of the last layer */
    /* Dimension d is dimension order[d] in PyTorch: (out, in, h, w), (out, in). */
    int32_t order[RG_MAX_RANK];
} rg_network_parameter;

/* What there is for each layer, in their order. */
typedef struct rg_network_layer {
    rg_node *node;       /* NULL: left out, as dropout is where nothing is trained */
    rg_value *value;     /* its result */
    rg_tensor_desc desc; /* for a batch of one image */
    int64_t parameters;  /* elements of what it trains */
} rg_network_layer;

/* A batch normalization whose statistics are those of several plans: see network_norm.h. */
typedef struct rg_split_norm {
    const char *label;                    /* of its layer */
    rg_value *mean, *variance, *unbiased; /* of a part, then of all */
    int64_t channels, elements;           /* elements: of a channel of one image */
    bool has_gradient;
} rg_split_norm;

/* A model as a graph: sources "images" (n, h, w, c) and "labels" (n…), results "logits" and "loss".
 * With dropout while training there is a parameter "dropout_step", i64. */
typedef struct rg_network {
    const rg_model *model;   /* of an ONNX model, which lives longer; else NULL */
    rg_network_desc options; /* what it was made for */
    rg_graph *graph;
    rg_value *images, *labels, *logits, *loss, *dropout_step;
    rg_tensor_desc label_desc; /* of the labels of one image */
    rg_network_parameter *parameters;
    size_t parameters_capacity, parameters_count;
    rg_network_layer *layers;
    size_t layers_count;
    rg_split_norm *norms; /* only of rg_network_create_split() */
    size_t norms_capacity, norms_count;
} rg_network;

/* Creates the graph and what is known of its layers. `size` of the descriptor is ignored. */
rg_status rg_network_create(const rg_model *model, const rg_network_desc *options,
                            rg_network *network);
/* The same with statistics of batch normalization that are written while the graph runs. Not for
 * ONNX models. */
rg_status rg_network_create_split(const rg_model *model, const rg_network_desc *options,
                                  rg_network *network);
void rg_network_destroy(rg_network *network);

/* Checks a descriptor of the caller and copies it; `who` begins the sentence. */
rg_status rg_network_desc_copy(const char *who, const rg_network_desc *desc,
                               rg_network_desc *checked);

/* Adds the results "logits", with this shape for one image, and "loss", which reads the labels.
 * `name` is that of the model. */
rg_status rg_network_add_results(rg_network *network, const rg_network_desc *options,
                                 const char *name, rg_value *logits, const rg_tensor_desc *desc);

/* A name for a value that training adds: `wanted`, or one with underscores after it where the
 * model of the file has a tensor of that name. */
void rg_network_own_name(const rg_network *network, const char *wanted, char name[RG_OWN_NAME]);

/* Writes the first values of all parameters: those of the model's file, or by seed and name alone.
 */
rg_status rg_network_start(const rg_network *network, rg_plan *plan, uint64_t seed);

#endif
