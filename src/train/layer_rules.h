/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* What layers of some ops need beyond the op's description: all that models and networks know of
 * single ops. */
#ifndef RG_TRAIN_LAYER_RULES_H
#define RG_TRAIN_LAYER_RULES_H

#include "train/model.h"

typedef struct rg_layer_rule {
    const char *op;
    bool no_layer; /* the op ends a network, and is not part of a model */
    bool window;   /* `window` is that of its weights */
    bool left_out; /* where nothing is trained */
    /* The shape of the weights w of a layer with inputs like x, in x's dtype; *fan_in elements of x
     * make one of y. NULL: it has no weights, takes no number of outputs, and b is no bias. */
    rg_status (*weights)(const rg_layer *layer, const rg_tensor_desc *x, int64_t outputs,
                         rg_tensor_desc *w, int64_t *fan_in);
    /* Changes the descriptor of layer `index` for training, or for use; NULL: it stays. */
    void (*adjust)(void *desc, const rg_network_desc *options, const rg_layer *layer, size_t index);
} rg_layer_rule;

/* The order that a parameter's dimensions have in PyTorch; see rg_network_parameter. */
void rg_layer_weight_order(const rg_layer *layer, const char *input, int32_t rank, int32_t order[]);

/* That of an op; an empty one where it needs none. */
const rg_layer_rule *rg_layer_rule_of(const rg_op *op);

#endif
