/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Random networks: drawing values and nodes. */
#include "cli/random_network.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* ---- numbers ---- */

int64_t rg_net_int(rg_net_draw *d, int64_t low, int64_t high)
{
    return low + (int64_t)(rg_random_uniform(&d->random) * (double)(high - low + 1));
}

bool rg_net_chance(rg_net_draw *d, double p)
{
    return rg_random_uniform(&d->random) < p;
}

double rg_net_real(rg_net_draw *d, double low, double high)
{
    return low + (high - low) * rg_random_uniform(&d->random);
}

/* ---- values ---- */

int32_t rg_net_add_value(rg_net_draw *d, const rg_net_value *like)
{
    rg_net *net = d->net;
    if (net->values_count == RG_NET_VALUES)
        return -1;
    const int32_t v = net->values_count++;
    net->values[v] = *like;
    net->values[v].kind = like->drawn;
    net->values[v].stop = -1;
    if (like->name[0] == 0)
        snprintf(net->values[v].name, sizeof net->values[v].name, "%c%d",
                 like->drawn == RG_NET_PARAMETER ? 'p' : 'x', v);
    d->seen.at[v] = NULL;
    if (like->drawn != RG_NET_OUTPUT && like->drawn != RG_NET_GRADIENT)
        d->seen.at[v] = rg_net_fill(net, v, 0);
    return v;
}

int32_t rg_net_add_source(rg_net_draw *d, const rg_tensor_desc desc[2], double low, double high,
                          int64_t classes)
{
    const rg_net_value made = { .drawn = RG_NET_SOURCE,
                                .desc = { desc[0], desc[1] },
                                .low = low,
                                .high = high,
                                .classes = classes,
                                .leaf = !rg_dtype_is_data(desc[0].dtype) ||
                                        desc[0].dtype != d->net->dtype };
    return rg_net_add_value(d, &made);
}

int32_t rg_net_add_parameter(rg_net_draw *d, rg_dtype dtype, int32_t rank, const int64_t dims[],
                             double low, double high, bool own)
{
    const rg_tensor_desc desc = rg_tensor_desc_dense(dtype, rank, dims);
    rg_net *net = d->net;
    for (int32_t v = 0; v < net->values_count && !own; v++) {
        const rg_net_value *value = &net->values[v];
        if (value->drawn == RG_NET_PARAMETER && !value->taken && value->low == low &&
            value->desc[0].dtype == dtype && rg_shape_same(&desc, &value->desc[0]) &&
            rg_net_chance(d, 0.3))
            return v;
    }
    const rg_net_value made = { .drawn = RG_NET_PARAMETER,
                                .desc = { desc, desc },
                                .low = low,
                                .high = high,
                                .taken = own,
                                .leaf = dtype != net->dtype };
    return rg_net_add_value(d, &made);
}

int32_t rg_net_add_item(rg_net *net)
{
    if (net->items == RG_NET_ITEMS)
        return -1;
    net->keep[net->items] = true;
    return net->items++;
}

void rg_net_range(const rg_net_draw *d, int32_t value, double *least, double *largest)
{
    const int64_t count = rg_shape_count(&d->net->values[value].desc[0]);
    *least = INFINITY;
    *largest = -INFINITY;
    for (int64_t i = 0; d->seen.at[value] != NULL && i < count; i++) {
        *least = fmin(*least, d->seen.at[value][i]);
        *largest = fmax(*largest, d->seen.at[value][i]);
    }
}

void rg_net_field(rg_net_draw *d, const char *format, ...)
{
    const size_t length = strlen(d->fields);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(d->fields + length, sizeof d->fields - length, format, arguments);
    va_end(arguments);
}

/* ---- nodes ---- */

/* Shapes of the outputs for both sets of sources; with the second left out where it does not
 * fit. */
static bool find_shapes(rg_net *net, const rg_net_node *node, rg_tensor_desc y[2][RG_MAX_OUTPUTS])
{
    const rg_op *op = node->test->op;
    for (int32_t s = 0; s < 2; s++) {
        rg_tensor_desc x[RG_MAX_INPUTS];
        for (int32_t i = 0; i < node->inputs; i++)
            x[i] = net->values[node->in[i]].desc[s];
        if (op->shapes(node->desc, x, y[s]) != RG_OK)
            return false;
    }
    return true;
}

/* Whether all numbers of a value are of a size to go on with, and some are not 0. */
static bool is_well(const rg_net_draw *d, int32_t value)
{
    enum { MOST_ELEMENTS = 1500 };
    const rg_net_value *v = &d->net->values[value];
    const int64_t count = rg_shape_count(&v->desc[0]);
    double most = 0;
    for (int64_t i = 0; i < count; i++) {
        if (!isfinite(d->seen.at[value][i]))
            return false;
        most = fmax(most, fabs(d->seen.at[value][i]));
    }
    if (d->node->after_backward)
        return most < 1e4;
    return count > 0 && count <= MOST_ELEMENTS && most < 40 &&
           (most > 1e-3 || !rg_dtype_is_data(v->desc[0].dtype));
}

static bool add_outputs(rg_net_draw *d, rg_tensor_desc y[2][RG_MAX_OUTPUTS])
{
    rg_net *net = d->net;
    rg_net_node *node = d->node;
    const int32_t gradients = node->test->op->gradient != NULL && !node->flat
                                  ? rg_op_gradients(node->test->op, node->desc)
                                  : 0;
    for (int32_t j = 0; j < node->outputs; j++) {
        const rg_net_value made = { .drawn = RG_NET_OUTPUT,
                                    .desc = { y[0][j], y[1][j] },
                                    .node = net->nodes_count,
                                    .index = j,
                                    .leaf = j >= gradients || y[0][j].dtype != net->dtype };
        node->out[j] = rg_net_add_value(d, &made);
        if (node->out[j] < 0)
            return false;
    }
    if (!rg_net_define_node(net, node, &d->seen, 0, 0, 0))
        return false;
    for (int32_t j = 0; j < node->outputs; j++) {
        if (!is_well(d, node->out[j]))
            return false;
        rg_net_value *value = &net->values[node->out[j]];
        rg_net_range(d, node->out[j], &value->low, &value->high);
    }
    return true;
}

bool rg_net_finish_node(rg_net_draw *d, const char *op)
{
    rg_net *net = d->net;
    rg_net_node *node = d->node;
    rg_tensor_desc y[2][RG_MAX_OUTPUTS];
    node->test = rg_op_test_find(op);
    memcpy(node->desc, node->test->op->desc.defaults, node->test->op->desc.size);
    for (int32_t i = 0; i < node->inputs; i++) {
        if (node->in[i] < 0)
            return false;
    }
    const rg_op *o = node->test->op;
    if (rg_fields_parse(&o->desc, op, node->desc, d->fields) != RG_OK ||
        (o->check != NULL && o->check(node->desc) != RG_OK) ||
        rg_op_inputs(o, node->desc) != node->inputs || !find_shapes(net, node, y))
        return false;
    node->outputs = rg_op_outputs(o, node->desc);
    if (!add_outputs(d, y))
        return false;
    node->item = rg_net_add_item(net);
    if (node->item < 0)
        return false;
    net->nodes_count++;
    return true;
}

void rg_net_forget(rg_net_draw *d, int32_t count)
{
    for (int32_t v = count; v < d->net->values_count; v++) {
        free(d->seen.at[v]);
        d->seen.at[v] = NULL;
    }
    d->net->values_count = count;
}

static const char *draw_name(rg_net_draw *d)
{
    /* Those that plans fuse are listed more often. */
    static const char *const names[] = {
        "softmax",    "neuron",       "neuron",         "neuron",     "neuron",
        "slice",      "concat",       "reshape",        "reshape",    "transpose",
        "upsample",   "pad",          "dropout",        "reduce",     "arithmetic",
        "arithmetic", "arithmetic",   "arithmetic",     "pool",       "pool",
        "lrn",        "spatial_norm", "local_contrast", "batch_norm", "batch_norm",
        "group_norm", "conv",         "conv",           "conv",       "conv_transpose",
        "dense",      "dense",        "dense",          "gram",       "matmul",
        "loss",       "loss",         "grad_norm"
    };
    return names[rg_net_int(d, 0, (int64_t)(sizeof names / sizeof names[0]) - 1)];
}

static bool begin_node(rg_net_draw *d)
{
    rg_net *net = d->net;
    if (net->nodes_count == RG_NET_NODES || net->values_count > RG_NET_VALUES / 2)
        return false;
    d->node = &net->nodes[net->nodes_count];
    *d->node = (rg_net_node){ .gradient_of = -1, .updates = -1 };
    for (int32_t j = 0; j < RG_MAX_OUTPUTS; j++)
        d->node->assigns[j] = -1;
    d->fields[0] = 0;
    return true;
}

static bool draw_node(rg_net_draw *d, const char *op)
{
    rg_net *net = d->net;
    for (int32_t i = 0; i < 4; i++) { /* until one fits */
        const int32_t values = net->values_count;
        if (begin_node(d) && rg_net_draw_op(d, op) && rg_net_finish_node(d, op))
            return true;
        rg_net_forget(d, values);
    }
    return false;
}

/* A parameter that is not yet assigned, the last ones more often; -1: none. */
static int32_t pick_parameter(rg_net_draw *d)
{
    int32_t p = -1;
    for (int32_t v = 0; v < d->net->values_count; v++) {
        const rg_net_value *value = &d->net->values[v];
        if (value->drawn == RG_NET_PARAMETER && !value->taken && !value->assigned &&
            value->desc[0].dtype == d->net->dtype && (p < 0 || rg_net_chance(d, 0.5)))
            p = v;
    }
    return p;
}

/* A parameter that the forward pass changes: what reads it after that in the order of the graph,
 * and every gradient, sees the old one. */
static void draw_assignment(rg_net_draw *d, int32_t p)
{
    rg_net *net = d->net;
    const int32_t values = net->values_count;
    if (p < 0 || !begin_node(d))
        return;
    d->node->flat = true; /* the assigned value is not read */
    d->node->assigns[0] = p;
    const rg_tensor_desc *desc = &net->values[p].desc[0];
    rg_net_input(d, p);
    rg_net_input(d, rg_net_add_parameter(d, net->dtype, desc->rank, desc->dims, -0.5, 0.5, true));
    rg_net_field(d, "primary_scale=0.5 secondary_scale=0.5");
    if (!rg_net_finish_node(d, "arithmetic")) {
        rg_net_forget(d, values);
        return;
    }
    net->values[p].assigned = true;
}

/* A chain of nodes that plans fuse. Other nodes may read the values in between. */
static void draw_chain(rg_net_draw *d)
{
    static const char *const before[] = { "conv",       "conv",       "dense",   "dense",
                                          "batch_norm", "group_norm", "softmax", "conv_transpose" };
    rg_net *net = d->net;
    const char *op = before[rg_net_int(d, 0, 7)];
    const bool softmax = strcmp(op, "softmax") == 0, bias = rg_net_chance(d, 0.6);
    d->plain = true;
    const int32_t parameter = rg_net_chance(d, 0.15) ? pick_parameter(d) : -1;
    d->reads = parameter;
    if (draw_node(d, op)) {
        const int32_t y = d->node->out[0];
        if (!softmax && rg_net_chance(d, 0.2)) { /* a bias that is made after it */
            const rg_tensor_desc *desc = &net->values[y].desc[0];
            d->reads = rg_net_vector(d, net->dtype, desc->dims[desc->rank - 1], -0.5, 0.5, false);
            if (d->reads >= 0)
                (void)draw_node(d, "neuron");
        }
        d->reads = y;
        if (softmax) {
            draw_node(d, "loss");
        } else {
            if (bias && draw_node(d, "arithmetic"))
                d->reads = d->node->out[0];
            if (!bias || rg_net_chance(d, 0.7))
                draw_node(d, "neuron");
        }
    }
    d->plain = false;
    d->reads = -1;
    if (parameter >= 0 || rg_net_chance(d, 0.1))
        draw_assignment(d, parameter >= 0 ? parameter : pick_parameter(d));
}

/* ---- entry point ---- */

static void draw_first_sources(rg_net_draw *d)
{
    rg_net *net = d->net;
    const int32_t count = (int32_t)rg_net_int(d, 1, 3);
    for (int32_t i = 0; i < count; i++) {
        const int32_t rank = rg_net_chance(d, 0.7) ? 4 : rg_net_chance(d, 0.8) ? 2 : 1;
        const int64_t channels = rg_net_chance(d, 0.8) ? rg_net_int(d, 1, 6) : rg_net_int(d, 7, 17);
        const int64_t rows = rg_net_int(d, 1, 7), columns = rg_net_int(d, 1, 7);
        rg_tensor_desc desc[2];
        for (int32_t s = 0; s < 2; s++)
            desc[s] = rg_tensor_desc_dense(
                net->dtype, rank,
                rank == 4   ? (int64_t[]){ net->batch[s], rows, columns, channels }
                : rank == 2 ? (int64_t[]){ net->batch[s], channels }
                            : (int64_t[]){ channels });
        rg_net_add_source(d, desc, -1.5, 1.5, 0);
    }
}

static void draw_stops(rg_net_draw *d)
{
    rg_net *net = d->net;
    if (!rg_net_chance(d, 0.2))
        return;
    for (int32_t v = 0; v < net->values_count; v++) {
        if (net->values[v].drawn == RG_NET_CONSTANT || !rg_net_chance(d, 0.1))
            continue;
        net->values[v].stop = rg_net_add_item(net);
        net->stopped |= net->values[v].stop >= 0;
    }
}

void rg_net_draw_all(rg_net *net, uint64_t seed)
{
    static const rg_dtype dtypes[] = { RG_F64, RG_F64, RG_F32, RG_F32, RG_F16, RG_BF16 };
    memset(net, 0, sizeof *net);
    rg_net_draw d = { .net = net, .random = rg_random_seed(seed, "network"), .reads = -1 };
    net->seed = seed;
    net->dtype = dtypes[rg_net_int(&d, 0, 5)];
    net->batch[0] = rg_net_int(&d, 1, 5);
    net->batch[1] = rg_net_chance(&d, 0.5) ? rg_net_int(&d, 1, 5) : net->batch[0];
    net->isa = (uint32_t)rg_net_int(&d, 0, 1000);
    net->shapes = 1;
    draw_first_sources(&d);
    const int32_t count =
        (int32_t)(rg_net_chance(&d, 0.5) ? rg_net_int(&d, 1, 8) : rg_net_int(&d, 6, 25));
    d.deep = rg_net_chance(&d, 0.6);
    for (int32_t i = 0; i < count; i++) {
        if (rg_net_chance(&d, 0.25))
            draw_chain(&d);
        else
            (void)draw_node(&d, draw_name(&d));
        if (rg_net_chance(&d, 0.06))
            draw_assignment(&d, pick_parameter(&d));
    }
    draw_stops(&d);
    rg_net_settle(net);
    rg_net_draw_backward(&d);
    net->shape_item = net->batch[1] != net->batch[0] ? rg_net_add_item(net) : -1;
    for (int32_t i = 0; i < RG_NET_STEPS - 1; i++)
        net->run_items[i] = rg_net_chance(&d, 0.6) ? rg_net_add_item(net) : -1;
    rg_net_settle(net);
    rg_net_numbers_free(&d.seen);
}
