/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* What all launches of convolution share. */
#include "ops/conv/conv_launch.h"
#include "core/integer.h"

int32_t rg_conv_row(const rg_tensor_desc *x)
{
    return x->rank - 3;
}

bool rg_conv_steps(const rg_tensor_desc *desc, int64_t steps[4])
{
    const int32_t row = rg_conv_row(desc);
    steps[0] = row > 0 ? desc->strides[0] : 0;
    for (int i = 0; i < 3; i++)
        steps[1 + i] = desc->strides[row + i];
    return steps[3] == 1 || desc->dims[row + 2] == 1;
}

double rg_conv_products(const rg_conv_shape *s)
{
    return (double)s->images * (double)(s->row.count * s->column.count) *
           (double)(s->row.window * s->column.window) * (double)(s->groups * s->in * s->out);
}

void rg_conv_set_cost(rg_launch *launch, int64_t units, int64_t bytes, double products)
{
    const double most = 0x1p60, work = products / 8 + (double)bytes, each = work / (double)units;
    launch->units = units;
    launch->bytes = (int64_t)(work < most ? work : most);
    launch->grain = each < 1 << 15 ? rg_max((int64_t)((1 << 15) / (each + 1)), 1) : 1;
}
