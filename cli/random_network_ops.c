/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Random networks: fields and inputs of a forward node of each op, drawn so that numbers stay of a
 * size that can be compared. */
#include "cli/random_network.h"

#include <math.h>
#include <string.h>

/* A value of a rank from low to high that a node can read; the last ones are taken more often. */
int32_t rg_net_pick(rg_net_draw *d, int32_t low, int32_t high)
{
    const rg_net *net = d->net;
    int32_t found[RG_NET_VALUES], count = 0;
    if (d->reads >= 0)
        return net->values[d->reads].desc[0].rank >= low &&
                       net->values[d->reads].desc[0].rank <= high
                   ? d->reads
                   : -1;
    for (int32_t v = 0; v < net->values_count; v++) {
        const rg_net_value *value = &net->values[v];
        if (!value->leaf && !value->taken && value->drawn != RG_NET_CONSTANT &&
            value->desc[0].rank >= low && value->desc[0].rank <= high &&
            (value->drawn != RG_NET_PARAMETER || rg_net_chance(d, 0.1)))
            found[count++] = v;
    }
    if (count == 0)
        return -1;
    const int32_t back = d->deep && rg_net_chance(d, 0.85) ? 1 : rg_net_chance(d, 0.6) ? 2 : count;
    return found[count - 1 - rg_net_int(d, 0, (back < count ? back : count) - 1)];
}

bool rg_net_input(rg_net_draw *d, int32_t value)
{
    d->node->in[d->node->inputs++] = value;
    return value >= 0;
}

static const rg_tensor_desc *desc_of(const rg_net_draw *d, int32_t value)
{
    return &d->net->values[value].desc[0];
}

static int64_t last_dim(const rg_net_draw *d, int32_t value)
{
    const rg_tensor_desc *desc = desc_of(d, value);
    return desc->dims[desc->rank - 1];
}

int32_t rg_net_vector(rg_net_draw *d, rg_dtype dtype, int64_t length, double low, double high,
                      bool own)
{
    return rg_net_add_parameter(d, dtype, 1, &length, low, high, own);
}

/* ---- activations ---- */

/* A kind whose formula takes numbers of this range; as fields with a prefix. */
static void draw_neuron_fields(rg_net_draw *d, const char *prefix, double least, double largest)
{
    static const struct {
        const char *kind, *more;
        bool kinked;
        double most, least; /* of the values it takes; 0: any */
    } kinds[] = { { "relu", "", true },
                  { "relu", "a=0.25", true },
                  { "sigmoid", "", false },
                  { "tanh", "", false },
                  { "softplus", "", false },
                  { "softsign", "", false },
                  { "elu", "", false },
                  { "gelu", "", false },
                  { "gelu_tanh", "", false },
                  { "swish", "", false },
                  { "hard_sigmoid", "", true },
                  { "absolute", "", true },
                  { "relun", "a=0.1 b=1", true },
                  { "linear", "a=0.7 b=0.2", false },
                  { "none", "", false },
                  { "power", "a=0.5 b=0.1 c=2", false },
                  { "exponential", "a=0.5 b=0", false, .most = 4 },
                  { "logarithm", "", false, .least = 0.3 } };
    enum { KINDS = sizeof kinds / sizeof kinds[0], FREE_KINDS = 10 }; /* the first take anything */
    int64_t k = rg_net_int(d, 0, KINDS - 1);
    if ((kinds[k].most != 0 && largest > kinds[k].most) || least < kinds[k].least)
        k = rg_net_int(d, 0, FREE_KINDS - 1);
    rg_net_field(d, " %skind=%s", prefix, kinds[k].kind);
    if (kinds[k].more[0] != 0) {
        char copy[64], *at = copy, *field;
        snprintf(copy, sizeof copy, "%s", kinds[k].more);
        while ((field = strsep(&at, " ")) != NULL)
            rg_net_field(d, " %s%s", prefix, field);
    }
    d->net->kinked |= kinds[k].kinked;
}

/* A neuron inside another op reads numbers that are not known yet. */
void rg_net_inner_neuron(rg_net_draw *d)
{
    if (!d->plain && rg_net_chance(d, 0.3))
        draw_neuron_fields(d, "neuron.", -1, 3);
}

static bool draw_neuron(rg_net_draw *d)
{
    double least, largest;
    const int32_t x = rg_net_pick(d, 0, 8);
    if (!rg_net_input(d, x))
        return false;
    rg_net_range(d, x, &least, &largest);
    if (desc_of(d, x)->rank > 0 && rg_net_chance(d, 0.08)) {
        d->net->kinked = true;
        rg_net_field(d, "kind=prelu");
        return rg_net_input(d, rg_net_vector(d, d->net->dtype, last_dim(d, x), 0.1, 0.5, false));
    }
    draw_neuron_fields(d, "", least, largest);
    if (rg_net_chance(d, 0.1))
        rg_net_field(d, " from_y=true");
    return true;
}

static bool draw_softmax(rg_net_draw *d)
{
    const int32_t x = rg_net_pick(d, 1, 8);
    if (!rg_net_input(d, x))
        return false;
    const int32_t rank = desc_of(d, x)->rank;
    d->logarithm = rg_net_chance(d, 0.4);
    rg_net_field(d, "kind=%s axis=%d", d->logarithm ? "log" : "plain",
                 d->plain || rg_net_chance(d, 0.6) ? -1 : (int)rg_net_int(d, -rank, rank - 1));
    if (!d->plain && rg_net_chance(d, 0.2))
        rg_net_field(d, " flatten=true");
    return true;
}

static bool draw_dropout(rg_net_draw *d)
{
    const rg_tensor_desc step = rg_tensor_desc_dense(RG_I64, 0, NULL), steps[] = { step, step };
    if (!rg_net_input(d, rg_net_pick(d, 1, 8)))
        return false;
    rg_net_field(d, "keep=0.%d seed=%d step=%d", (int)rg_net_int(d, 4, 9),
                 (int)rg_net_int(d, 0, 99), (int)rg_net_int(d, 0, 9));
    if (rg_net_chance(d, 0.2))
        rg_net_field(d, " broadcast=%d",
                     (int)rg_net_int(d, 0, desc_of(d, d->node->in[0])->rank - 1));
    if (rg_net_chance(d, 0.5))
        return true;
    rg_net_field(d, " step_input=true");
    return rg_net_input(d, rg_net_add_source(d, steps, 0, 9, 10));
}

/* ---- shapes ---- */

static bool draw_slice(rg_net_draw *d)
{
    const int32_t x = rg_net_pick(d, 2, 4);
    if (!rg_net_input(d, x))
        return false;
    char start[64] = "0", length[64] = "-1", step[64] = "1", number[24];
    for (int32_t i = 1; i < desc_of(d, x)->rank; i++) {
        const int64_t dim = desc_of(d, x)->dims[i], from = rg_net_int(d, 0, dim - 1);
        const int64_t by = rg_net_int(d, 1, 2), most = (dim - from + by - 1) / by;
        const bool negative = rg_net_chance(d, 0.2);
        snprintf(number, sizeof number, ",%d", (int)(negative ? from - dim : from));
        strcat(start, number);
        snprintf(number, sizeof number, ",%d",
                 (int)(rg_net_chance(d, 0.5) ? most : rg_net_int(d, 1, most)));
        strcat(length, number);
        snprintf(number, sizeof number, ",%d", (int)by);
        strcat(step, number);
    }
    rg_net_field(d, "start=%s length=%s step=%s", start, length, step);
    return true;
}

/* Another value that differs from x along `axis` alone; it may be x itself. */
static int32_t pick_beside(rg_net_draw *d, int32_t x, int32_t axis)
{
    int32_t found = x;
    for (int32_t v = 0; v < d->net->values_count; v++) {
        const rg_net_value *value = &d->net->values[v];
        bool same = !value->leaf && !value->taken && value->desc[0].rank == desc_of(d, x)->rank &&
                    value->drawn != RG_NET_CONSTANT;
        for (int32_t s = 0; s < 2; s++) {
            for (int32_t i = 0; same && i < value->desc[s].rank; i++)
                same = i == axis || value->desc[s].dims[i] == d->net->values[x].desc[s].dims[i];
        }
        if (same && rg_net_chance(d, 0.4))
            found = v;
    }
    return found;
}

static bool draw_concat(rg_net_draw *d)
{
    const int32_t x = rg_net_pick(d, 1, 4), count = (int32_t)rg_net_int(d, 1, 3);
    if (!rg_net_input(d, x))
        return false;
    const int32_t rank = desc_of(d, x)->rank;
    const int32_t axis = rg_net_chance(d, 0.7) ? rank - 1 : (int32_t)rg_net_int(d, 0, rank - 1);
    for (int32_t i = 1; i < count; i++)
        rg_net_input(d, pick_beside(d, x, axis));
    rg_net_field(d, "sources=%d axis=%d multiple=%d", count, axis, rg_net_chance(d, 0.2) ? 4 : 1);
    return true;
}

static bool draw_reshape(rg_net_draw *d)
{
    const int32_t x = rg_net_pick(d, 0, 4);
    if (!rg_net_input(d, x))
        return false;
    const rg_tensor_desc *desc = desc_of(d, x);
    const int64_t all = rg_shape_count(desc), first = desc->rank > 0 ? desc->dims[0] : 1;
    const int64_t rest = all / (first > 0 ? first : 1), half = rest % 2 == 0 ? 2 : 1;
    switch (rg_net_int(d, 0, 5)) {
    case 0:
        rg_net_field(d, "dims=-1,1,1,%d", (int)rest);
        break;
    case 1:
        rg_net_field(d, "dims=-1,%d,1,%d", (int)half, (int)(rest / half));
        break;
    case 2:
        rg_net_field(d, "dims=-1");
        break;
    case 3:
        if (desc->rank < 1)
            return false;
        rg_net_field(d, "dims=0,-1 zero_keeps=true");
        break;
    default:
        rg_net_field(d, "dims=-1,%d", (int)rest);
    }
    return true;
}

/* Images to channels first or last, matrices transposed; mostly dimension 0 stays where it is. */
static bool draw_transpose(rg_net_draw *d)
{
    static const char *const orders[] = { "", "order=1,0", "order=0,2,1", "order=0,2,3,1",
                                          "order=0,3,1,2" };
    const int32_t x = rg_net_pick(d, 2, 4);
    if (!rg_net_input(d, x))
        return false;
    const int32_t rank = desc_of(d, x)->rank;
    rg_net_field(d, "%s", orders[rank < 4 ? rank - 1 : (int32_t)rg_net_int(d, 3, 4)]);
    return true;
}

static bool draw_upsample(rg_net_draw *d)
{
    static const char *const grids[] = { "asymmetric", "half_pixel", "align_corners" };
    static const char *const rounds[] = { "floor", "ceil", "prefer_floor", "prefer_ceil" };
    if (!rg_net_input(d, rg_net_pick(d, 4, 4)))
        return false;
    rg_net_field(d, "kind=%s grid=%s", rg_net_chance(d, 0.5) ? "nearest" : "bilinear",
                 grids[rg_net_int(d, 0, 2)]);
    if (rg_net_chance(d, 0.3))
        rg_net_field(d, " round=%s", rounds[rg_net_int(d, 0, 3)]);
    rg_net_field(d, " output=%d,%d", (int)rg_net_int(d, 1, 7), (int)rg_net_int(d, 1, 7));
    return true;
}

static bool draw_pad(rg_net_draw *d)
{
    static const char *const modes[] = { "zero", "constant", "clamp", "mirror", "mirror_edge" };
    if (!rg_net_input(d, rg_net_pick(d, 4, 4)))
        return false;
    rg_net_field(d, "mode=%s before=0,%d,%d,%d after=0,%d,%d,0", modes[rg_net_int(d, 0, 4)],
                 (int)rg_net_int(d, -1, 2), (int)rg_net_int(d, 0, 2),
                 rg_net_chance(d, 0.2) ? (int)rg_net_int(d, 0, 3) : 0, (int)rg_net_int(d, 0, 2),
                 (int)rg_net_int(d, -1, 2));
    rg_net_field(d, " value=0.5 repeat=%s", rg_net_chance(d, 0.5) ? "true" : "false");
    return true;
}

static bool draw_reduce(rg_net_draw *d)
{
    static const char *const kinds[] = {
        "sum", "mean", "mean", "min", "max", "arg_min", "arg_max"
    };
    const int32_t x = rg_net_pick(d, 1, 8);
    if (!rg_net_input(d, x))
        return false;
    const int64_t kind = rg_net_chance(d, 0.8) ? rg_net_int(d, 0, 2) : rg_net_int(d, 3, 6);
    d->net->kinked |= kind >= 3;
    rg_net_field(d, "kind=%s keep_dims=%s", kinds[kind], rg_net_chance(d, 0.5) ? "true" : "false");
    const int32_t rank = desc_of(d, x)->rank;
    if (rank > 1 && rg_net_chance(d, 0.7))
        rg_net_field(d, " dims=%d", (int)rg_net_int(d, 1, rank - 1));
    else if (rank > 2)
        rg_net_field(d, " dims=1,2");
    if (kind < 3)
        rg_net_field(d, " weight=0.3");
    return true;
}

/* One number for each channel, or for all: a parameter, or what another node has made. */
static int32_t draw_bias(rg_net_draw *d, int32_t x, double low)
{
    const int64_t channels = last_dim(d, x);
    if (desc_of(d, x)->rank == 1 && rg_net_chance(d, 0.3))
        return x;
    for (int32_t v = 0; v < d->net->values_count && rg_net_chance(d, 0.9); v++) {
        const rg_net_value *value = &d->net->values[v];
        if (!value->leaf && value->drawn == RG_NET_OUTPUT && value->desc[0].rank == 1 &&
            value->desc[0].dims[0] == channels && value->desc[1].dims[0] == channels &&
            rg_net_chance(d, 0.5))
            return v;
    }
    return rg_net_vector(d, d->net->dtype, rg_net_chance(d, 0.1) ? 1 : channels, low, 1, false);
}

/* A value with itself, one of them transposed: any value fits. */
static bool draw_matmul(rg_net_draw *d)
{
    const int32_t x = rg_net_pick(d, 2, 4);
    if (!rg_net_input(d, x) || !rg_net_input(d, x))
        return false;
    rg_net_field(d, "transpose_%s=true alpha=0.25", rg_net_chance(d, 0.5) ? "a" : "b");
    return true;
}

static bool draw_arithmetic(rg_net_draw *d)
{
    static const char *const kinds[] = { "add",     "subtract", "multiply", "divide",
                                         "compare", "maximum",  "minimum" };
    const int32_t x = rg_net_pick(d, 1, 8);
    if (x < 0)
        return false;
    int64_t kind = d->plain || rg_net_chance(d, 0.5) ? 0 : rg_net_int(d, 0, 6);
    int32_t other;
    const rg_net_value constant = { .drawn = RG_NET_CONSTANT,
                                    .desc = { d->net->values[x].desc[0],
                                              d->net->values[x].desc[1] },
                                    .like = x,
                                    .number = (double)rg_net_int(d, 1, 4) / 2 };
    if (d->plain || rg_net_chance(d, 0.35))
        other = draw_bias(d, x, kind == 3 ? 0.5 : -0.5);
    else if (rg_net_chance(d, 0.1))
        other = rg_net_add_value(d, &constant);
    else
        other = pick_beside(d, x, -1);
    if (other < 0)
        return false;
    double least, largest;
    rg_net_range(d, other, &least, &largest);
    kind = kind == 3 && least < 0.3 ? 2 : kind;
    const bool swap = kind < 3 && rg_net_chance(d, 0.3);
    rg_net_input(d, swap ? other : x);
    rg_net_input(d, swap ? x : other);
    rg_net_field(d, "kind=%s", kinds[kind]);
    d->node->flat = kind == 4;
    if (kind == 4)
        rg_net_field(d, " comparison=greater");
    else if (!d->plain && rg_net_chance(d, 0.2))
        rg_net_field(d, " primary_scale=0.5 secondary_scale=-0.75 bias=0.125");
    d->net->kinked |= kind > 4;
    if (!d->plain && kind != 4 && rg_net_chance(d, 0.1)) {
        rg_net_field(d, " minimum=-1 maximum=1.25");
        d->net->kinked = true;
    }
    return true;
}

/* ---- the table ---- */

bool rg_net_draw_op(rg_net_draw *d, const char *op)
{
    static const struct {
        const char *op;
        bool (*draw)(rg_net_draw *d);
    } table[] = {
        { "softmax", draw_softmax },       { "neuron", draw_neuron },
        { "slice", draw_slice },           { "concat", draw_concat },
        { "reshape", draw_reshape },       { "transpose", draw_transpose },
        { "upsample", draw_upsample },     { "pad", draw_pad },
        { "dropout", draw_dropout },       { "reduce", draw_reduce },
        { "arithmetic", draw_arithmetic }, { "matmul", draw_matmul },

    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        if (strcmp(table[i].op, op) == 0)
            return table[i].draw(d);
    }
    return rg_net_is_window(op) ? rg_net_draw_window(d, op) : rg_net_draw_norm(d, op);
}
