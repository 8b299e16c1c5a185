/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Random networks: pooling, convolutions and dense layers as forward nodes. */
#include "cli/random_network.h"

#include <math.h>
#include <string.h>

static const rg_tensor_desc *desc_of(const rg_net_draw *d, int32_t value)
{
    return &d->net->values[value].desc[0];
}

static int64_t last_dim(const rg_net_draw *d, int32_t value)
{
    const rg_tensor_desc *desc = desc_of(d, value);
    return desc->dims[desc->rank - 1];
}

static void draw_padding(rg_net_draw *d)
{
    static const char *const policies[] = { "valid", "same", "full", "same_upper", "same_lower" };
    if (rg_net_chance(d, 0.3))
        rg_net_field(d, " padding.policy=%s", policies[rg_net_int(d, 0, 4)]);
    else
        rg_net_field(d, " padding.top=%d padding.left=%d padding.bottom=%d padding.right=%d",
                     (int)rg_net_int(d, 0, 1), (int)rg_net_int(d, 0, 1), (int)rg_net_int(d, 0, 1),
                     (int)rg_net_int(d, 0, 1));
}

static bool draw_pool(rg_net_draw *d)
{
    static const char *const kinds[] = { "max", "max", "average", "average", "l2" };
    const int32_t x = rg_net_pick(d, 4, 4);
    if (!rg_net_input(d, x))
        return false;
    double least, largest;
    rg_net_range(d, x, &least, &largest);
    const int64_t kind = rg_net_int(d, 0, least > 0.2 ? 4 : 3);
    d->net->kinked |= kind < 2;
    rg_net_field(d, "kind=%s window=%d,%d stride=%d,%d dilation=%d,1", kinds[kind],
                 (int)rg_net_int(d, 1, 3), (int)rg_net_int(d, 1, 3), (int)rg_net_int(d, 1, 2),
                 (int)rg_net_int(d, 1, 3), rg_net_chance(d, 0.2) ? 2 : 1);
    if (kind == 4) /* a window of zeros has no slope */
        return true;
    draw_padding(d);
    rg_net_field(d, " edge=%s", rg_net_chance(d, 0.5) ? "zero" : "clamp");
    if (kind < 2 && rg_net_chance(d, 0.2))
        rg_net_field(d, " indices=true");
    return true;
}

static bool draw_conv(rg_net_draw *d, bool transposed)
{
    const int32_t x = rg_net_pick(d, 4, 4);
    if (!rg_net_input(d, x))
        return false;
    const int64_t in = last_dim(d, x), kh = rg_net_int(d, 1, 3), kw = rg_net_int(d, 1, 3);
    int64_t groups = 1, out = rg_net_chance(d, 0.85) ? rg_net_int(d, 1, 6) : rg_net_int(d, 7, 17);
    if (rg_net_chance(d, 0.25)) {
        groups = in % 2 == 0 && rg_net_chance(d, 0.5) ? 2 : in;
        out = groups * rg_net_int(d, 1, 2);
    }
    const bool in_out = transposed && rg_net_chance(d, 0.5),
               bias = !d->plain && rg_net_chance(d, 0.4);
    const int64_t dims[] = { in_out ? in : out, kh, kw, (in_out ? out : in) / groups };
    const double size = 1 / sqrt((double)(kh * kw * in) / (double)groups);
    rg_net_input(d,
                 rg_net_add_parameter(d, d->net->dtype, 4, dims, -1.5 * size, 1.5 * size, false));
    rg_net_field(d, "groups=%d bias=%s stride=%d,%d dilation=%d,1", (int)groups,
                 bias ? "true" : "false", (int)rg_net_int(d, 1, 2), (int)rg_net_int(d, 1, 2),
                 rg_net_chance(d, 0.2) ? 2 : 1);
    if (in_out)
        rg_net_field(d, " layout=in_out");
    draw_padding(d);
    rg_net_inner_neuron(d);
    return !bias || rg_net_input(d, rg_net_vector(d, d->net->dtype, out, -0.5, 0.5, false));
}

static bool draw_dense(rg_net_draw *d)
{
    const int32_t x = rg_net_pick(d, 1, 4);
    if (!rg_net_input(d, x))
        return false;
    const rg_tensor_desc *desc = desc_of(d, x);
    const bool whole = desc->rank == 4 && rg_net_chance(d, 0.5),
               bias = !d->plain && rg_net_chance(d, 0.4);
    const bool in_out = !whole && rg_net_chance(d, 0.4);
    const int64_t out = rg_net_int(d, 1, 9), in = last_dim(d, x);
    const int64_t flat[] = { in_out ? in : out, in_out ? out : in };
    const int64_t image[] = { out, desc->dims[1], desc->dims[2], desc->dims[3] };
    const double size = 1.5 / sqrt((double)(whole ? image[1] * image[2] * image[3] : in));
    rg_net_input(d, rg_net_add_parameter(d, d->net->dtype, whole ? 4 : 2, whole ? image : flat,
                                         -size, size, false));
    rg_net_field(d, "bias=%s layout=%s", bias ? "true" : "false", in_out ? "in_out" : "out_in");
    rg_net_inner_neuron(d);
    return !bias || rg_net_input(d, rg_net_vector(d, d->net->dtype, out, -0.5, 0.5, false));
}

bool rg_net_is_window(const char *op)
{
    return strcmp(op, "pool") == 0 || strcmp(op, "conv") == 0 ||
           strcmp(op, "conv_transpose") == 0 || strcmp(op, "dense") == 0;
}

bool rg_net_draw_window(rg_net_draw *d, const char *op)
{
    if (strcmp(op, "pool") == 0)
        return draw_pool(d);
    return strcmp(op, "dense") == 0 ? draw_dense(d) : draw_conv(d, strcmp(op, "conv") != 0);
}
