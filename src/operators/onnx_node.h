/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* What converters see of a node: the table of ONNX's operators, and attributes by name. */
#ifndef RG_OPERATORS_ONNX_NODE_H
#define RG_OPERATORS_ONNX_NODE_H

#include "operators/onnx.h"

struct rg_run;

typedef struct rg_onnx_operator {
    const char *name, *domain;
    const rg_op *op;
    bool gradient;
    const char *fields; /* "kind=max edge=clamp", on top of the op's defaults */
    /* "X=x@image B=b? pads#": tensors of ONNX, the op's names for them, layouts; `?`: optional,
     * `#`: numbers. A name ending in * stands for several: name0, name1, … */
    const char *inputs, *outputs;
    /* "axis:int=-1 kernel_shape:ints! auto_pad:text=NOTSET": types and defaults; `!`: required,
     * `|`: it, or another one that the converter takes in its place */
    const char *attributes;
    /* Completes a descriptor that holds `fields`; NULL: that is all. */
    rg_status (*convert)(const rg_onnx_node *node, rg_onnx_call *call);
    /* Runs it in place of the op alone; NULL: the op alone. */
    rg_status (*run)(struct rg_run *run);
} rg_onnx_operator;

/* Ends with a NULL name. */
extern const rg_onnx_operator rg_onnx_operators[];

/* NULL if there is none. */
const rg_onnx_operator *rg_onnx_find(const char *type);

/* Fills in the tensors that a text of the table names; returns how many. */
int32_t rg_onnx_tensors(const rg_onnx_operator *entry, const void *desc, const char *text,
                        rg_onnx_tensor tensors[RG_ONNX_TENSORS]);

/* The two halves of rg_onnx_convert: checks attributes and fills in what the table says; completes
 * the descriptor by a converter. */
rg_status rg_onnx_begin(rg_onnx_node *node, rg_onnx_call *call);
rg_status rg_onnx_finish(const rg_onnx_node *node, rg_onnx_call *call,
                         rg_status (*convert)(const rg_onnx_node *node, rg_onnx_call *call));

/* ---- attributes ---- */

enum { RG_ONNX_VALUES = 32 };

/* One attribute of a text of the table. */
typedef struct rg_onnx_spec {
    char name[RG_ONNX_NAME], type[8], value[32]; /* value: the default, or "" */
    bool required, shown; /* shown: in lines about usage, where another one can take its place */
} rg_onnx_spec;
/* Reads the attribute at *at and moves on; false at the end. */
bool rg_onnx_next_spec(const char **at, rg_onnx_spec *spec);

/* Refuses attributes that the operator does not have, and values that are none of its type. */
rg_status rg_onnx_check(const rg_onnx_operator *entry, const rg_attribute attributes[],
                        int32_t count);

/* The value of an attribute that rg_onnx_check has passed, or its default. */
bool rg_onnx_given(const rg_onnx_node *node, const char *name);
int64_t rg_onnx_int(const rg_onnx_node *node, const char *name);
double rg_onnx_float(const rg_onnx_node *node, const char *name);
int32_t rg_onnx_ints(const rg_onnx_node *node, const char *name, int64_t values[RG_ONNX_VALUES]);
int32_t rg_onnx_floats(const rg_onnx_node *node, const char *name, double values[RG_ONNX_VALUES]);
/* The index of the value in `words`, which end with NULL. */
rg_status rg_onnx_word(const rg_onnx_node *node, const char *name, const char *const words[],
                       int32_t *index);

/* Whether input i is there. */
bool rg_onnx_has(const rg_onnx_node *node, int32_t index);
/* The rank of input i; -1 if it is not known. */
int32_t rg_onnx_rank(const rg_onnx_node *node, int32_t index);
/* A dimension from 0 to rank - 1 for an axis from -rank to rank - 1. */
rg_status rg_onnx_axis(const rg_onnx_node *node, const char *name, int64_t axis, int32_t rank,
                       int64_t *dimension);

/* ---- similar names ---- */

/* ": did you mean 'Softmax'?" into text, or "" where no word is similar. */
enum { RG_SIMILAR_TEXT = 96 };
typedef struct rg_similar {
    const char *wanted;
    char best[64];
    int32_t distance;
} rg_similar;
rg_similar rg_similar_begin(const char *wanted);
void rg_similar_try(rg_similar *s, const char *word);
const char *rg_similar_text(const rg_similar *s, char text[RG_SIMILAR_TEXT]);

#endif
