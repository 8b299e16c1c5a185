/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Random networks: what follows the forward pass. Losses, gradients, optimizers, results, and
 * plans to run all of it with. */
#include "cli/random_network.h"

#include <stdlib.h>
#include <string.h>

/* A gradient as a value of the network, with its numbers. */
static int32_t add_gradient(rg_net_draw *d, int32_t of, int32_t pass)
{
    const rg_net_value *from = &d->net->values[of];
    const rg_net_value made = { .drawn = RG_NET_GRADIENT,
                                .desc = { from->desc[0], from->desc[1] },
                                .low = -0.5,
                                .high = 0.5,
                                .of = of,
                                .pass = pass,
                                .leaf = true };
    const int32_t v = rg_net_add_value(d, &made);
    const size_t bytes = (size_t)rg_shape_count(&from->desc[0]) * sizeof(double);
    if (v < 0)
        return -1;
    d->seen.at[v] = malloc(bytes + 1);
    if (d->seen.at[v] != NULL)
        memcpy(d->seen.at[v], d->seen.grad[pass][of], bytes);
    return v;
}

/* ---- losses and their gradients ---- */

static void draw_losses(rg_net_draw *d, int32_t pass)
{
    rg_net *net = d->net;
    const int32_t wanted = (int32_t)rg_net_int(d, 1, pass == 0 ? 3 : 1);
    for (int32_t i = 0, tries = 0; i < wanted && tries < 20; tries++) {
        const int32_t back =
            rg_net_chance(d, d->deep ? 0.9 : 0.6) && net->values_count > 4 ? 4 : net->values_count;
        int32_t v = net->values_count - 1 - (int32_t)rg_net_int(d, 0, back - 1);
        if (pass > 0 && net->losses_count > 0 && rg_net_chance(d, 0.5))
            v = net->losses[0].value;
        const rg_net_value *value = &net->values[v];
        if (value->drawn != RG_NET_OUTPUT || value->leaf || !value->needed ||
            net->losses_count == RG_NET_LOSSES)
            continue;
        rg_net_mark loss = { .value = v, .dy = -1, .pass = pass, .item = rg_net_add_item(net) };
        const rg_net_value constant = { .drawn = RG_NET_CONSTANT,
                                        .desc = { value->desc[0], value->desc[1] },
                                        .like = v,
                                        .number = 0.5 };
        const rg_tensor_desc desc[] = { value->desc[0], value->desc[1] };
        if (rg_net_chance(d, 0.15))
            loss.dy = rg_net_add_source(d, desc, -1, 1, 0);
        else if (rg_net_chance(d, 0.1))
            loss.dy = rg_net_add_value(d, &constant);
        net->losses[net->losses_count++] = loss;
        i++;
        if (rg_net_chance(d, 0.8))
            rg_net_add_result(d, v);
    }
}

static void draw_gradients(rg_net_draw *d, int32_t pass)
{
    rg_net *net = d->net;
    const int32_t count = net->values_count;
    for (int32_t v = 0; v < count; v++) {
        const rg_net_value *value = &net->values[v];
        const double p = value->drawn == RG_NET_PARAMETER ? 0.9
                         : value->drawn == RG_NET_SOURCE  ? 0.4
                                                          : 0.1;
        if (!value->reached[pass] || !rg_dtype_is_data(value->desc[0].dtype) ||
            net->values_count > RG_NET_VALUES - 100 || !rg_net_chance(d, p))
            continue;
        const int32_t g = add_gradient(d, v, pass);
        if (g >= 0 && rg_net_chance(d, 0.7))
            rg_net_add_result(d, g);
    }
}

/* ---- nodes after the backward passes ---- */

static bool begin_node(rg_net_draw *d)
{
    rg_net *net = d->net;
    d->fields[0] = 0;
    if (net->nodes_count == RG_NET_NODES || net->values_count > RG_NET_VALUES - 16)
        return false;
    d->node = &net->nodes[net->nodes_count];
    *d->node = (rg_net_node){ .gradient_of = -1, .updates = -1, .after_backward = true };
    for (int32_t j = 0; j < RG_MAX_OUTPUTS; j++)
        d->node->assigns[j] = -1;
    return true;
}

/* Adds a node of one or two inputs; returns its first output, or -1. */
static int32_t simple_node(rg_net_draw *d, const char *op, const char *fields, int32_t a, int32_t b)
{
    const int32_t values = d->net->values_count;
    if (a < 0 || !begin_node(d))
        return -1;
    rg_net_input(d, a);
    if (b >= 0)
        rg_net_input(d, b);
    rg_net_field(d, "%s", fields);
    if (rg_net_finish_node(d, op))
        return d->node->out[0];
    rg_net_forget(d, values);
    return -1;
}

/* Adds nodes that clip gradients by their norm; returns the factor, or -1. */
static int32_t draw_scale(rg_net_draw *d)
{
    rg_net *net = d->net;
    int32_t squares[4], count = 0;
    for (int32_t v = 0; v < net->values_count && count < 4; v++) {
        const rg_net_value *value = &net->values[v];
        if (value->drawn != RG_NET_GRADIENT || net->values[value->of].drawn != RG_NET_PARAMETER ||
            value->desc[0].dtype != net->dtype || !rg_net_chance(d, 0.7))
            continue;
        const int32_t norm = simple_node(d, "grad_norm", "", v, -1);
        if (rg_net_chance(d, 0.2)) /* reads the norm itself: both cannot be one batch */
            rg_net_add_result(d, simple_node(d, "grad_norm", "", norm, -1));
        squares[count] = simple_node(d, "reshape", "dims=1", norm, -1);
        count += squares[count] >= 0;
    }
    if (count == 0 || !begin_node(d))
        return -1;
    rg_net_field(d, "sources=%d axis=0", count);
    for (int32_t i = 0; i < count; i++)
        rg_net_input(d, squares[i]);
    const int32_t all = rg_net_finish_node(d, "concat") ? d->node->out[0] : -1;
    const int32_t factor = simple_node(d, "grad_scale", "max_norm=0.5", all, -1);
    rg_net_add_result(d, factor);
    return factor;
}

/* What a moment begins with: squares are positive. */
static int32_t add_moment(rg_net_draw *d, const rg_net_value *p, const char *input)
{
    const bool square = strcmp(input, "velocity") == 0 || strcmp(input, "maximum") == 0;
    const rg_dtype dtype = p->desc[0].dtype == RG_F64 ? RG_F64 : RG_F32;
    const rg_tensor_desc desc = rg_tensor_desc_dense(dtype, p->desc[0].rank, p->desc[0].dims);
    rg_net_value made = { .drawn = RG_NET_PARAMETER,
                          .desc = { desc, desc },
                          .low = square ? 0.1 : -0.05,
                          .high = square ? 0.2 : 0.05,
                          .taken = true,
                          .leaf = true };
    snprintf(made.name, sizeof made.name, "%.15s.%.15s", p->name, input);
    return rg_net_add_value(d, &made);
}

/* Numbers of rank 0 that all optimizers share. */
typedef struct numbers {
    int32_t rate, step, scale;
} numbers;

static void draw_optimizer_fields(rg_net_draw *d, int64_t kind, const rg_net_value *p, bool scaled)
{
    rg_net_field(d, "form=%s", rg_net_chance(d, 0.5) ? "mps" : "torch");
    if (kind < 2 && rg_net_chance(d, 0.6))
        rg_net_field(d, " momentum=0.8");
    else if (kind == 2 && rg_net_chance(d, 0.5))
        rg_net_field(d, " amsgrad=true decay=0.01");
    if (kind == 1)
        rg_net_field(d, " epsilon=0.05 centered=%s", rg_net_chance(d, 0.5) ? "true" : "false");
    if (kind == 2)
        rg_net_field(d, " epsilon=0.05");
    if (rg_net_chance(d, 0.2))
        rg_net_field(d, " gradient.regularization=l2 gradient.regularization_scale=0.1");
    if (scaled)
        rg_net_field(d, " scaled=true");
    if (rg_dtype_size(p->desc[0].dtype) == 2)
        rg_net_field(d, " copy=%s", rg_dtype_name(p->desc[0].dtype));
}

static int32_t optimizer_input(rg_net_draw *d, int32_t p, int32_t gradient, const numbers *n,
                               const char *name)
{
    const rg_net_value *value = &d->net->values[p];
    if (strcmp(name, "parameter") == 0)
        return rg_dtype_size(value->desc[0].dtype) == 2 ? add_moment(d, value, "master") : p;
    if (strcmp(name, "gradient") == 0)
        return gradient;
    return strcmp(name, "rate") == 0    ? n->rate
           : strcmp(name, "step") == 0  ? n->step
           : strcmp(name, "scale") == 0 ? n->scale
                                        : add_moment(d, value, name);
}

static void draw_optimizer(rg_net_draw *d, int32_t gradient, const numbers *n, int64_t kind)
{
    static const char *const ops[] = { "sgd", "rmsprop", "adam" };
    rg_net *net = d->net;
    const int32_t p = net->values[gradient].of, values = net->values_count;
    const rg_op *op = rg_op_test_find(ops[kind])->op;
    _Alignas(16) char desc[RG_MAX_DESC];
    if (!begin_node(d))
        return;
    d->node->updates = p;
    draw_optimizer_fields(d, kind, &net->values[p], n->scale >= 0 && rg_net_chance(d, 0.7));
    memcpy(desc, op->desc.defaults, op->desc.size);
    if (rg_fields_parse(&op->desc, op->name, desc, d->fields) != RG_OK)
        return;
    const char *const *in = rg_op_input_names(op, desc), *const *out = rg_op_output_names(op, desc);
    for (int32_t i = 0; i < rg_op_inputs(op, desc); i++)
        rg_net_input(d, optimizer_input(d, p, gradient, n, in[i]));
    if (!rg_net_finish_node(d, op->name)) {
        rg_net_forget(d, values);
        return;
    }
    net->values[p].taken = true;
    for (int32_t j = 0; j < d->node->outputs; j++) {
        if (strcmp(out[j], "copy") == 0)
            d->node->assigns[j] = p;
        for (int32_t i = 0; i < d->node->inputs; i++) {
            if (strcmp(out[j] + 4, in[i]) == 0)
                d->node->assigns[j] = d->node->in[i];
        }
    }
}

static void draw_updates(rg_net_draw *d)
{
    rg_net *net = d->net;
    const rg_dtype real = net->dtype == RG_F64 ? RG_F64 : RG_F32;
    const rg_tensor_desc rate = rg_tensor_desc_dense(real, 0, NULL);
    const rg_tensor_desc step = rg_tensor_desc_dense(RG_I64, 0, NULL);
    const int64_t kind = rg_net_int(d, 0, 2);
    numbers n = { .scale = -1 };
    n.rate = rg_net_add_source(d, (rg_tensor_desc[]){ rate, rate }, 0.05, 0.2, 0);
    n.step = rg_net_add_source(d, (rg_tensor_desc[]){ step, step }, 1, 9, 10);
    if (rg_net_chance(d, 0.4))
        n.scale = draw_scale(d);
    const int32_t count = net->values_count;
    for (int32_t v = 0; v < count; v++) {
        const rg_net_value *value = &net->values[v];
        if (value->drawn != RG_NET_GRADIENT || net->values[value->of].drawn != RG_NET_PARAMETER ||
            net->values[value->of].taken || net->values[value->of].assigned ||
            !rg_net_chance(d, 0.8))
            continue;
        if (rg_net_chance(d, 0.8)) {
            draw_optimizer(d, v, &n, rg_net_chance(d, 0.8) ? kind : rg_net_int(d, 0, 2));
            continue;
        }
        const int32_t out =
            simple_node(d, "arithmetic", "kind=subtract secondary_scale=0.1", value->of, v);
        if (out >= 0) {
            d->node->assigns[0] = value->of;
            net->values[value->of].taken = true;
        }
    }
}

/* ---- gradients by hand ---- */

/* A node that reads the value assigned to a parameter cannot read the parameter. */
static bool is_assigned(const rg_net *net, int32_t v)
{
    const rg_net_value *value = &net->values[v];
    return value->drawn == RG_NET_OUTPUT && net->nodes[value->node].gradient_of < 0 &&
           net->nodes[value->node].assigns[value->index] >= 0;
}

/* A value that can be the gradient of `of`. */
static int32_t pick_like(rg_net_draw *d, int32_t of)
{
    int32_t found = -1;
    for (int32_t v = 0; v < d->net->values_count; v++) {
        const rg_net_value *a = &d->net->values[v], *b = &d->net->values[of];
        if (a->desc[0].dtype == b->desc[0].dtype && rg_shape_same(&a->desc[0], &b->desc[0]) &&
            rg_shape_same(&a->desc[1], &b->desc[1]) && (found < 0 || rg_net_chance(d, 0.4)) &&
            !a->taken && !is_assigned(d->net, v))
            found = v;
    }
    return found;
}

/* The last gradient of the same shape; if there is none, any value of that shape. */
static int32_t pick_gradient(rg_net_draw *d, int32_t like)
{
    for (int32_t v = d->net->values_count - 1; v > like; v--) {
        const rg_net_value *a = &d->net->values[v], *b = &d->net->values[like];
        if (a->drawn == RG_NET_GRADIENT && a->desc[0].dtype == b->desc[0].dtype &&
            rg_shape_same(&a->desc[0], &b->desc[0]) && rg_shape_same(&a->desc[1], &b->desc[1]))
            return v;
    }
    return pick_like(d, like);
}

static void draw_by_hand(rg_net_draw *d)
{
    rg_net *net = d->net;
    const int32_t of = (int32_t)rg_net_int(d, 0, net->nodes_count - 1);
    const rg_net_node *from = &net->nodes[of];
    const rg_op *op = from->test->op;
    const int32_t values = net->values_count;
    if (from->after_backward || op->gradient == NULL || net->values[from->out[0]].leaf ||
        !begin_node(d))
        return;
    rg_net_node *node = d->node;
    memcpy(node->desc, from->desc, sizeof node->desc);
    node->test = from->test;
    node->gradient_of = of;
    bool overwrites = false; /* without a state all x are read */
    for (int32_t i = 0; i < from->inputs; i++)
        overwrites |= net->values[from->in[i]].taken;
    node->with_state =
        overwrites || (op->reads(from->desc) & RG_READS_STATE) != 0 || rg_net_chance(d, 0.6);
    node->inputs = rg_op_gradients(op, from->desc);
    node->outputs = from->inputs;
    for (int32_t j = 0; j < node->inputs; j++)
        node->in[j] = op->optional_dy >> j & 1 && j > 0 && rg_net_chance(d, 0.5)
                          ? -1
                          : pick_like(d, from->out[j]);
    bool any = node->in[0] >= 0;
    for (int32_t i = 0; i < from->inputs; i++) {
        const rg_net_value *x = &net->values[from->in[i]];
        const bool may =
            rg_dtype_is_data(x->desc[0].dtype) && rg_op_differentiates(op, from->desc, i);
        const rg_net_value made = { .drawn = RG_NET_OUTPUT,
                                    .desc = { x->desc[0], x->desc[1] },
                                    .low = -0.5,
                                    .high = 0.5,
                                    .node = net->nodes_count,
                                    .index = i,
                                    .leaf = true };
        node->out[i] = may && (i == 0 || rg_net_chance(d, 0.7)) ? rg_net_add_value(d, &made) : -1;
    }
    node->item = any && node->out[0] >= 0 ? rg_net_add_item(net) : -1;
    if (node->item < 0 || !rg_net_define_node(net, node, &d->seen, 0, 0, 0)) {
        rg_net_forget(d, values);
        return;
    }
    net->nodes_count++;
    for (int32_t i = 0; i < node->outputs; i++)
        rg_net_add_result(d, node->out[i]);
}

/* ---- entry point ---- */

void rg_net_draw_backward(rg_net_draw *d)
{
    rg_net *net = d->net;
    net->passes = rg_net_chance(d, 0.15) ? 2 : 1;
    for (int32_t p = 0; p < net->passes; p++)
        draw_losses(d, p);
    rg_net_settle(net);
    for (int32_t p = 0; p < net->passes; p++)
        rg_net_define_backward(net, &d->seen, p, 0, 0);
    for (int32_t p = 0; p < net->passes; p++)
        draw_gradients(d, p);
    if (rg_net_chance(d, 0.2) && net->nodes_count > 0)
        draw_by_hand(d);
    for (int32_t v = 0; v < net->values_count && rg_net_chance(d, 0.5); v++) {
        if (net->values[v].drawn == RG_NET_GRADIENT && net->values[v].desc[0].dtype == net->dtype &&
            rg_net_chance(d, 0.2))
            rg_net_add_result(d, rg_net_chance(d, 0.5)
                                     ? simple_node(d, "arithmetic", "", v, pick_gradient(d, v))
                                     : simple_node(d, "neuron", "kind=tanh", v, -1));
    }
    if (rg_net_chance(d, 0.6))
        draw_updates(d);
    rg_net_draw_requests(d);
}
