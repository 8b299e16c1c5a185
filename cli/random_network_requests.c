/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Random networks: what is asked of one: results, states, and plans to run it with. */
#include "cli/random_network.h"

void rg_net_add_result(rg_net_draw *d, int32_t value)
{
    rg_net *net = d->net;
    for (int32_t i = 0; i < net->results_count; i++) {
        if (net->results[i].value == value)
            return;
    }
    if (value < 0 || net->results_count == RG_NET_RESULTS)
        return;
    const int32_t item = rg_net_add_item(net);
    if (item >= 0)
        net->results[net->results_count++] = (rg_net_mark){ .item = item, .value = value };
}

static void draw_results(rg_net_draw *d)
{
    rg_net *net = d->net;
    for (int32_t v = 0; v < net->values_count; v++) {
        const rg_net_value *value = &net->values[v];
        if ((value->drawn == RG_NET_OUTPUT && rg_net_chance(d, 0.12)) ||
            (value->drawn == RG_NET_CONSTANT && rg_net_chance(d, 0.1)))
            rg_net_add_result(d, v);
    }
    for (int32_t v = net->values_count - 1; v >= 0 && net->results_count == 0; v--) {
        if (net->values[v].drawn == RG_NET_OUTPUT)
            rg_net_add_result(d, v);
    }
    for (int32_t n = 0; n < net->nodes_count && net->states_count < RG_NET_STATES; n++) {
        const rg_net_node *node = &net->nodes[n];
        if (node->gradient_of < 0 && node->test->op->state != NULL && rg_net_chance(d, 0.1))
            net->states[net->states_count++] =
                (rg_net_mark){ .item = rg_net_add_item(net), .value = n };
    }
}

static void draw_variants(rg_net_draw *d)
{
    rg_net *net = d->net;
    const int32_t count = (int32_t)rg_net_int(d, 3, 5);
    for (int32_t i = 0; i < count; i++) {
        rg_net_variant v = { .options = rg_plan_options_default(), .threads = 1 };
        v.options.new_masks = false; /* runs are compared with one another */
        bool *const switches[] = { &v.options.reuse_storage, &v.options.in_place,
                                   &v.options.fuse_neurons,  &v.options.fuse_biases,
                                   &v.options.fuse_softmax,  &v.options.fuse_losses,
                                   &v.options.add_gradients, &v.options.share_views,
                                   &v.options.batch_updates, &v.options.replay };
        for (size_t k = 0; k < sizeof switches / sizeof switches[0] && i > 1; k++)
            *switches[k] = rg_net_chance(d, 0.7);
        v.options.poison = i > 0 && rg_net_chance(d, 0.4);
        v.budget = i > 0 && rg_net_chance(d, 0.6) ? rg_net_real(d, 0.05, 0.95) : 0;
        v.way =
            rg_net_chance(d, 0.4) ? RG_NET_ENCODE : (rg_net_way)rg_net_int(d, 0, RG_NET_WAYS - 1);
        v.threads = (int32_t)rg_net_int(d, 1, 3);
        v.strided =
            v.way != RG_NET_BATCH && rg_net_chance(d, 0.2) ? (int32_t)rg_net_int(d, 1, 2) : 0;
        v.item = rg_net_add_item(net);
        if (v.item >= 0)
            net->variants[net->variants_count++] = v;
    }
}

void rg_net_draw_requests(rg_net_draw *d)
{
    draw_results(d);
    draw_variants(d);
}
