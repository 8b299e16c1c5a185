/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Random networks: what the definitions of the ops say in double, with a backward pass of its own
 * that knows nothing of graphs. */
#include "cli/random_network.h"

#include "core/dtype.h"

#include <retrograde/dropout.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- numbers ---- */

static double *take(const rg_tensor_desc *desc)
{
    return calloc((size_t)rg_shape_count(desc) + 1, sizeof(double));
}

double *rg_net_fill(const rg_net *net, int32_t value, int32_t step)
{
    const rg_net_value *v = &net->values[value];
    const rg_tensor_desc *desc =
        &v->desc[v->drawn == RG_NET_PARAMETER || net->shapes == 1 ? 0 : step % 2];
    char name[48], element[8];
    snprintf(name, sizeof name, "value %d of run %d", value,
             v->drawn == RG_NET_PARAMETER ? 0 : step);
    rg_random random = rg_random_seed(net->seed, name);
    double *data = take(desc);
    for (int64_t i = 0; data != NULL && i < rg_shape_count(desc); i++) {
        const double u = rg_random_uniform(&random);
        double x = v->low + (v->high - v->low) * u;
        if (v->drawn == RG_NET_CONSTANT)
            x = v->number;
        else if (!rg_dtype_is_data(desc->dtype))
            x = v->classes > 0 ? floor(v->low + ((double)v->classes - v->low) * u) : floor(x);
        rg_element_set(element, desc->dtype, 0, x);
        data[i] = rg_element_get(element, desc->dtype, 0);
    }
    return data;
}

void rg_net_numbers_free(rg_net_numbers *n)
{
    for (int32_t v = 0; v < RG_NET_VALUES; v++) {
        free(n->at[v]);
        for (int32_t p = 0; p < RG_NET_PASSES; p++)
            free(n->grad[p][v]);
    }
    memset(n, 0, sizeof *n);
}

/* Changes every number by up to `noise` of the largest; zeros stay zeros. With `ties`, equal
 * numbers stay equal: a maximum of several stays where it is. */
static void disturb(double *data, int64_t count, double noise, uint64_t seed, bool ties)
{
    double most = 0;
    for (int64_t i = 0; i < count; i++)
        most = fmax(most, fabs(data[i]));
    for (int64_t i = 0; i < count && noise > 0; i++) {
        uint64_t bits = (uint64_t)i;
        if (ties)
            memcpy(&bits, &data[i], sizeof bits);
        rg_random random = { (bits ^ seed) * UINT64_C(0x9e3779b97f4a7c15) };
        if (data[i] != 0)
            data[i] += noise * most * (2 * rg_random_uniform(&random) - 1);
    }
}

/* ---- one node ---- */

static rg_ref_tensor ref_of(const rg_net *net, int32_t value, double *data, int32_t shape)
{
    const rg_tensor_desc *desc = &net->values[value].desc[shape];
    rg_ref_tensor ref = { .rank = desc->rank, .data = data };
    memcpy(ref.dims, desc->dims, sizeof ref.dims);
    return ref;
}

static bool run_forward(const rg_net *net, const rg_net_node *node, rg_net_numbers *n,
                        int32_t shape)
{
    rg_ref_tensor x[RG_MAX_INPUTS], y[RG_MAX_OUTPUTS];
    for (int32_t i = 0; i < node->inputs; i++) {
        if (n->at[node->in[i]] == NULL)
            return false;
        x[i] = ref_of(net, node->in[i], n->at[node->in[i]], shape);
    }
    for (int32_t j = 0; j < node->outputs; j++) {
        const int32_t v = node->out[j];
        free(n->at[v]);
        n->at[v] = take(&net->values[v].desc[shape]);
        y[j] = ref_of(net, v, n->at[v], shape);
    }
    node->test->forward(node->desc, x, y);
    return true;
}

/* dx[i] of the forward node `of`: all of them, to be freed; dy[j] NULL: zeros. */
static bool run_gradient(const rg_net *net, const rg_net_node *of, const rg_net_numbers *n,
                         double *const dy[], int32_t shape, double *dx[])
{
    const rg_op *op = of->test->op;
    rg_ref_tensor x[RG_MAX_INPUTS], y[RG_MAX_OUTPUTS], g[RG_MAX_OUTPUTS], to[RG_MAX_INPUTS];
    double *zeros[RG_MAX_OUTPUTS] = { NULL };
    bool whole = true;
    for (int32_t i = 0; i < of->inputs; i++) {
        const rg_tensor_desc *desc = &net->values[of->in[i]].desc[shape];
        const bool has = rg_op_differentiates(op, of->desc, i) && rg_dtype_is_data(desc->dtype);
        dx[i] = has ? take(desc) : NULL;
        x[i] = ref_of(net, of->in[i], n->at[of->in[i]], shape);
        to[i] = ref_of(net, of->in[i], dx[i], shape);
        whole = whole && x[i].data != NULL;
    }
    for (int32_t j = 0; j < of->outputs; j++) {
        y[j] = ref_of(net, of->out[j], n->at[of->out[j]], shape);
        whole = whole && y[j].data != NULL;
        if (j >= rg_op_gradients(op, of->desc))
            continue;
        if (dy[j] == NULL)
            zeros[j] = take(&net->values[of->out[j]].desc[shape]);
        g[j] = ref_of(net, of->out[j], dy[j] != NULL ? dy[j] : zeros[j], shape);
    }
    if (whole)
        of->test->gradient(of->desc, g, x, y, to);
    for (int32_t j = 0; j < RG_MAX_OUTPUTS; j++)
        free(zeros[j]);
    return whole;
}

static bool define_by_hand(const rg_net *net, const rg_net_node *node, rg_net_numbers *n,
                           int32_t shape)
{
    const rg_net_node *of = &net->nodes[node->gradient_of];
    double *dy[RG_MAX_OUTPUTS] = { NULL }, *dx[RG_MAX_INPUTS] = { NULL };
    for (int32_t j = 0; j < node->inputs; j++)
        dy[j] = node->in[j] >= 0 ? n->at[node->in[j]] : NULL;
    const bool whole = run_gradient(net, of, n, dy, shape, dx);
    for (int32_t i = 0; i < of->inputs; i++) {
        if (node->out[i] < 0) {
            free(dx[i]);
            continue;
        }
        free(n->at[node->out[i]]);
        n->at[node->out[i]] = dx[i];
    }
    return whole;
}

/* Whether equal results of a node are equal for kernels, too. The sums of neighbouring windows have
 * the same terms in another order where images repeat pixels, and round differently. */
static bool keeps_ties(const rg_net_node *node)
{
    const char *name = node->test->op->name;
    return strcmp(name, "spatial_norm") != 0 && strcmp(name, "local_contrast") != 0;
}

bool rg_net_define_node(const rg_net *net, const rg_net_node *node, rg_net_numbers *n,
                        int32_t shape, double noise, uint64_t seed)
{
    const bool done = node->gradient_of >= 0 ? define_by_hand(net, node, n, shape)
                                             : run_forward(net, node, n, shape);
    for (int32_t j = 0; done && j < node->outputs; j++) {
        const int32_t v = node->out[j];
        if (v >= 0 && rg_dtype_is_data(net->values[v].desc[0].dtype))
            disturb(n->at[v], rg_shape_count(&net->values[v].desc[shape]), noise,
                    seed + (uint64_t)v, keeps_ties(node));
    }
    return done;
}

/* ---- the backward pass ---- */

static void add_upstream(const rg_net *net, rg_net_numbers *n, int32_t pass, int32_t v,
                         const double *more)
{
    const int64_t count = rg_shape_count(&net->values[v].desc[0]);
    if (n->grad[pass][v] == NULL)
        n->grad[pass][v] = take(&net->values[v].desc[0]);
    for (int64_t i = 0; n->grad[pass][v] != NULL && i < count; i++)
        n->grad[pass][v][i] += more != NULL ? more[i] : 1;
}

static bool is_stopped(const rg_net *net, int32_t v)
{
    return net->values[v].stop >= 0 && net->keep[net->values[v].stop];
}

static bool go_back(const rg_net *net, const rg_net_node *node, rg_net_numbers *n, int32_t pass,
                    double noise, uint64_t seed)
{
    const rg_op *op = node->test->op;
    double *dy[RG_MAX_OUTPUTS] = { NULL }, *dx[RG_MAX_INPUTS] = { NULL };
    bool any = false, wanted = false, done = true;
    for (int32_t j = 0; j < rg_op_gradients(op, node->desc); j++) {
        dy[j] = is_stopped(net, node->out[j]) ? NULL : n->grad[pass][node->out[j]];
        any |= dy[j] != NULL;
    }
    for (int32_t i = 0; i < node->inputs; i++)
        wanted |= net->values[node->in[i]].needed && rg_op_differentiates(op, node->desc, i);
    if (!any || !wanted)
        return true;
    done = run_gradient(net, node, n, dy, 0, dx);
    for (int32_t i = 0; i < node->inputs; i++) {
        const int32_t v = node->in[i];
        if (dx[i] != NULL && done && net->values[v].needed) {
            disturb(dx[i], rg_shape_count(&net->values[v].desc[0]), noise,
                    seed + 1000 + 8 * (uint64_t)(node - net->nodes) + (uint64_t)i, false);
            add_upstream(net, n, pass, v, dx[i]);
        }
        free(dx[i]);
    }
    return done;
}

bool rg_net_define_backward(const rg_net *net, rg_net_numbers *n, int32_t pass, double noise,
                            uint64_t seed)
{
    bool done = true;
    for (int32_t l = 0; l < net->losses_count; l++) {
        const rg_net_mark *loss = &net->losses[l];
        if (loss->pass == pass && net->keep[loss->item] && net->values[loss->value].needed) {
            add_upstream(net, n, pass, loss->value, loss->dy >= 0 ? n->at[loss->dy] : NULL);
            disturb(n->grad[pass][loss->value], rg_shape_count(&net->values[loss->value].desc[0]),
                    noise, seed + 2000 + (uint64_t)l, false);
        }
    }
    for (int32_t k = net->nodes_count - 1; k >= 0 && done; k--) {
        const rg_net_node *node = &net->nodes[k];
        if (rg_net_has_node(net, k) && !node->after_backward && node->test->op->gradient != NULL)
            done = go_back(net, node, n, pass, noise, seed + 77 * (uint64_t)pass);
    }
    return done;
}

/* ---- entry point ---- */

static bool define_nodes(const rg_net *net, rg_net_numbers *n, bool after_backward, double noise,
                         uint64_t seed)
{
    for (int32_t k = 0; k < net->nodes_count; k++) {
        if (net->nodes[k].after_backward == after_backward && rg_net_has_node(net, k) &&
            !rg_net_define_node(net, &net->nodes[k], n, 0, noise, seed))
            return false;
    }
    return true;
}

bool rg_net_define(const rg_net *net, rg_net_numbers *n, double noise, uint64_t seed)
{
    for (int32_t v = 0; v < net->values_count; v++) {
        if (net->values[v].kind != RG_NET_OUTPUT && net->values[v].kind != RG_NET_GRADIENT)
            n->at[v] = rg_net_fill(net, v, 0);
    }
    if (!define_nodes(net, n, false, noise, seed))
        return false;
    for (int32_t p = 0; p < net->passes; p++) {
        if (!rg_net_define_backward(net, n, p, noise, seed))
            return false;
    }
    for (int32_t v = 0; v < net->values_count; v++) {
        const rg_net_value *value = &net->values[v];
        if (value->kind != RG_NET_GRADIENT)
            continue;
        n->at[v] = take(&value->desc[0]);
        if (n->at[v] == NULL || n->grad[value->pass][value->of] == NULL)
            return false;
        memcpy(n->at[v], n->grad[value->pass][value->of],
               (size_t)rg_shape_count(&value->desc[0]) * sizeof(double));
    }
    return define_nodes(net, n, true, noise, seed);
}
