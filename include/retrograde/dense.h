/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/** @file
 *  Fully connected layers: every output is a weighted sum of all inputs. With rows i, inputs k and
 *  outputs o:
 *
 *      z(i, o) = alpha sum over k of x(i, k) w(o, k) + b(o),   y = neuron(z)
 *
 *      g = dy neuron'(z),   db(o) = sum over i of g(i, o)
 *      dx(i, k) = alpha sum over o of g(i, o) w(o, k)
 *      dw(o, k) = alpha sum over i of g(i, o) x(i, k)
 *
 *  An input may have several indices: the last dimensions of x, as many as w has besides its
 *  outputs. The dimensions before them are rows. In y all of them have length 1 but the last, which
 *  is that of the outputs.
 *
 *      x (rows, in)      w (out, in)          ->  y (rows, out)         a matrix
 *      x (rows, in)      w (in, out)          ->  y (rows, out)         a matrix, in_out
 *      x (n, h, w, in)   w (out, h, w, in)    ->  y (n, 1, 1, out)      images
 *
 *  All tensors have the same dtype: f32, f64, f16 or bf16, except that dw and db may each be f32
 *  beside f16 and bf16. Sums of f16 and bf16 are kept in f32, and f32 stays within 1e-5 of the
 *  largest element however long a sum is. */
#ifndef RETROGRADE_DENSE_H
#define RETROGRADE_DENSE_H

#include <retrograde/neuron.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Where w has its outputs. */
typedef enum rg_dense_layout {
    RG_DENSE_OUT_IN, /**< w (out, inputs…), as MPSCNNFullyConnected and PyTorch have it */
    RG_DENSE_IN_OUT  /**< w (inputs…, out), as MPSMatrixFullyConnected has it */
} rg_dense_layout;

/** Which layer. Initialize with rg_dense_desc_default(). */
typedef struct rg_dense_desc {
    uint32_t size;          /**< of this struct; set by rg_dense_desc_default() */
    rg_dense_layout layout; /**< default RG_DENSE_OUT_IN */
    bool bias;              /**< whether `b` is an input (default true); otherwise 0 */
    double alpha;           /**< factor of the sums, not of b; finite (default 1) */
    /** Of kind none by default. Not prelu, and from_y must be false: the op itself decides whether
     *  the gradient reads y. */
    rg_neuron_desc neuron;
} rg_dense_desc;
RG_API rg_dense_desc rg_dense_desc_default(void);

/** Creates a fully connected kernel; *desc is copied. On failure *kernel is NULL.
 *
 *      x, w[, b (out)]  ->  y
 *
 *  The gradient reads x and w, even if only dx or dw is requested. With a neuron whose slope
 *  follows from y (relu, relun, elu with a of 0 or more, linear, sigmoid, tanh, softplus, softsign,
 *  exponential) it reads y, too. Other neurons (hard_sigmoid, absolute, power, logarithm, gelu,
 *  gelu_tanh, swish, and those with a below 0) need z: the state holds it as "z", shaped as y, and
 *  without a state z is computed once more, which reads b. The bits of a requested gradient do not
 *  depend on the other requests. */
RG_API rg_status rg_dense_create(rg_device *device, const rg_dense_desc *desc, rg_kernel **kernel);

#ifdef __cplusplus
}
#endif

#endif
