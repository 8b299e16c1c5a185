/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* What happens to the sums of a convolution on the CPU before they are stored, in all strategies:
 * bias, neuron, addition, conversion. Where channels are neighbours and at most a bias and ReLU
 * follow, kernels do it themselves, to sums in registers. */
#ifndef RG_OPS_CONV_EPILOGUE_CPU_H
#define RG_OPS_CONV_EPILOGUE_CPU_H

#include "backend/cpu/columns.h"
#include "ops/conv/conv.h"
#include "ops/fused_neuron/any_neuron_cpu.h"

typedef struct conv_epilogue {
    const rg_conv_args *k;
    neuron_constants neuron;
} conv_epilogue;

RG_INLINE conv_epilogue epilogue_of(const rg_conv_args *k)
{
    return (conv_epilogue){ k, neuron_constants_of(&k->neuron.numbers) };
}

/* Channels c to c + n - 1 of a pixel whose channel 0 is element `to` of the result, where channels
 * are `step` apart, and element `z` of z. */
RG_INLINE void finish_vector(const conv_epilogue *e, int64_t to, int64_t z, int64_t step, int64_t c,
                             int n, const rg_dtype T, vreal value)
{
    const rg_conv_args *k = e->k;
    char *const out = at_out(k->to, to + c * step, T);
    if (k->has_b)
        value += load_groups(at(k->b, c * k->b_step, T), k->b_step, n, T, k->b_step == 1);
    if (k->has_z)
        store_groups(at_out(k->z, z + c * k->z_step[3], T), k->z_step[3], n, T, k->z_step[3] == 1,
                     value);
    if (k->neuron.kind != RG_NEURON_NONE)
        value = any_neuron(k->neuron.kind, &e->neuron, value);
    if (k->add)
        value += load_groups(out, step, n, T, step == 1);
    store_groups(out, step, n, T, step == 1, value);
}

/* The same, called: for loops that do not end with it as a rule. */
RG_OUTLINE void finish_channels(const conv_epilogue *e, int64_t to, int64_t z, int64_t step,
                                int64_t c, int n, rg_dtype T, vreal value)
{
    finish_vector(e, to, z, step, c, n, T, value);
}

/* Element 0 of channel 0 of a pixel (row, column) of an image, in a tensor of these steps. */
RG_INLINE int64_t pixel_offset(const int64_t step[4], int64_t image, int64_t row, int64_t column)
{
    return image * step[0] + row * step[1] + column * step[2];
}

#endif
