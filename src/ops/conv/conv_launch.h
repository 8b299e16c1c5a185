/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* What all launches of convolution share. */
#ifndef RG_OPS_CONV_LAUNCH_H
#define RG_OPS_CONV_LAUNCH_H

#include "ops/conv/conv.h"
#include "ops/move/move_record.h"
#include "ops/ops.h"

/* Where rows stand in (n, h, w, c) or (h, w, c). */
int32_t rg_conv_row(const rg_tensor_desc *x);

bool rg_conv_steps(const rg_tensor_desc *desc, int64_t steps[4]);

/* Multiplications of one direction. */
double rg_conv_products(const rg_conv_shape *s);

/* What a launch of so many units has to do, in bytes and in products, which take as long as bytes
 * if there are eight of them. */
void rg_conv_set_cost(rg_launch *launch, int64_t units, int64_t bytes, double products);

/* What the strategies record. b and z may be NULL. */
typedef struct rg_conv_pass {
    int32_t kernel;                         /* RG_CONV_FORWARD, RG_CONV_DATA or RG_CONV_WEIGHTS */
    const rg_tensor *from, *w, *b, *to, *z; /* of forward and data */
    const rg_tensor *x, *dy, *dw;           /* of weights */
    rg_conv_shape shape;
    const rg_neuron_desc *neuron; /* or NULL */
    bool add;
} rg_conv_pass;

#endif
