/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Random networks: a gradient that a plan makes, against finite differences of the losses that the
 * same plan makes. */
#include "cli/random_network.h"

#include "runtime/objects.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The result with the gradient of a parameter by the first pass, picked by the seed; -1: none. */
static int32_t pick_gradient(const rg_net *net)
{
    int32_t found[RG_NET_RESULTS], count = 0;
    for (int32_t i = 0; i < net->results_count; i++) {
        const rg_net_value *value = &net->values[net->results[i].value];
        if (rg_net_has_result(net, &net->results[i]) && value->kind == RG_NET_GRADIENT &&
            value->pass == 0 && net->values[value->of].kind == RG_NET_PARAMETER)
            found[count++] = i;
    }
    return count > 0 ? found[net->seed % (uint64_t)count] : -1;
}

/* The result that a loss is; -1: it is none. */
static int32_t result_of(const rg_net *net, int32_t value)
{
    for (int32_t i = 0; i < net->results_count; i++) {
        if (net->results[i].value == value && rg_net_has_result(net, &net->results[i]))
            return i;
    }
    return -1;
}

static bool can_check(const rg_net *net)
{
    int32_t losses = 0;
    for (int32_t l = 0; l < net->losses_count; l++) {
        const rg_net_mark *loss = &net->losses[l];
        if (loss->pass != 0 || !net->keep[loss->item] || !net->values[loss->value].needed)
            continue;
        losses++;
        if (result_of(net, loss->value) < 0)
            return false;
    }
    return losses > 0 && net->dtype == RG_F64 && !net->stopped && pick_gradient(net) >= 0;
}

typedef struct slope {
    const rg_net *net;
    const rg_net_truth *truth;
    rg_commands *commands;
    rg_plan *plan;
    rg_queue *queue;
    rg_tensor *sources[RG_NET_VALUES], *list[RG_NET_VALUES];
} slope;

static const double *numbers_of(rg_tensor *tensor)
{
    return rg_tensor_data(tensor);
}

/* The sum of all losses, times their gradients to begin with, where one parameter has moved. */
static rg_status sum_losses(slope *s, int32_t moved, const double *direction, double by,
                            double *sum)
{
    for (int32_t v = 0; v < s->net->values_count; v++) {
        rg_tensor *tensor;
        if (s->net->values[v].kind != RG_NET_PARAMETER ||
            rg_plan_parameter(s->plan, s->net->values[v].name, &tensor) != RG_OK)
            continue;
        RG_TRY(rg_net_write(s->net, v, 0, tensor));
        double *data = v == moved ? rg_tensor_data(tensor) : NULL;
        for (int64_t i = 0; data != NULL && i < rg_shape_count(&s->net->values[v].desc[0]); i++)
            data[i] += by * direction[i];
    }
    RG_TRY(rg_commands_create(s->queue, &s->commands));
    RG_TRY(rg_commands_finish(s->commands, rg_plan_encode(s->plan, s->commands, s->list)));
    *sum = 0;
    for (int32_t l = 0; l < s->net->losses_count; l++) {
        const rg_net_mark *loss = &s->net->losses[l];
        if (loss->pass != 0 || !s->net->keep[loss->item] || !s->net->values[loss->value].needed)
            continue;
        char name[16];
        rg_tensor *tensor;
        snprintf(name, sizeof name, "r%d", result_of(s->net, loss->value));
        RG_TRY(rg_plan_result(s->plan, name, &tensor));
        const double *dy = loss->dy >= 0 ? s->truth->exact.at[loss->dy] : NULL;
        for (int64_t i = 0; i < rg_shape_count(&s->net->values[loss->value].desc[0]); i++)
            *sum += numbers_of(tensor)[i] * (dy != NULL ? dy[i] : 1);
    }
    return RG_OK;
}

static rg_status compare(slope *s, rg_net_report *report, bool *right)
{
    const double h = 1e-4;
    const int32_t result = pick_gradient(s->net),
                  of = s->net->values[s->net->results[result].value].of;
    const int64_t count = rg_shape_count(&s->net->values[of].desc[0]);
    double direction[count + 1], here, at[4], analytic = 0, scale = 0;
    const double by[] = { h, -h, h / 2, -h / 2 };
    rg_random random = rg_random_seed(s->net->seed, "direction");
    char name[16];
    rg_tensor *gradient;
    for (int64_t i = 0; i < count; i++)
        direction[i] = 2 * rg_random_uniform(&random) - 1;
    RG_TRY(sum_losses(s, of, direction, 0, &here));
    snprintf(name, sizeof name, "r%d", result);
    RG_TRY(rg_plan_result(s->plan, name, &gradient));
    for (int64_t i = 0; i < count; i++) {
        analytic += numbers_of(gradient)[i] * direction[i];
        scale += fabs(numbers_of(gradient)[i] * direction[i]);
    }
    for (int32_t k = 0; k < 4; k++)
        RG_TRY(sum_losses(s, of, direction, by[k], &at[k]));
    const double wide = (at[0] - at[1]) / (2 * h), near = (at[2] - at[3]) / h;
    const double jump = fabs((at[2] - here) - (here - at[3])) / (h / 2); /* of slopes, at a kink */
    scale += fabs(near) + 1e-3 * (1 + fabs(here));
    if (!(fabs(wide - near) < 1e-5 * scale)) /* a kink nearby, or too steep to decide */
        return RG_OK;
    report->comparisons++;
    *right = fabs(near - analytic) <= fmax(1e-4 * scale, jump);
    if (!*right)
        snprintf(report->text, sizeof report->text,
                 "the gradient of %s along a direction is %.9g, finite differences say %.9g",
                 s->net->values[of].name, analytic, near);
    return RG_OK;
}

static rg_status open_slope(slope *s, const rg_net_graph *g)
{
    RG_TRY(rg_plan_create(s->queue->device, g->graph, NULL, &s->plan));
    RG_TRY(rg_net_sources(s->net, s->queue->device, 0, false, s->sources));
    for (int32_t i = 0; i < rg_plan_sources(s->plan); i++) {
        for (int32_t v = 0; v < s->net->values_count; v++) {
            if (s->sources[v] != NULL &&
                strcmp(s->net->values[v].name, rg_plan_source_name(s->plan, i)) == 0)
                s->list[i] = s->sources[v];
        }
    }
    return RG_OK;
}

rg_status rg_net_check_slope(const rg_net *net, const rg_net_graph *g, const rg_net_truth *truth,
                             rg_queue *queue, rg_net_report *report, bool *right)
{
    slope s = { .net = net, .truth = truth, .queue = queue };
    *right = true;
    if (!truth->known || !can_check(net) || strcmp(rg_device_name(queue->device), "cpu") != 0)
        return RG_OK;
    rg_status status = open_slope(&s, g);
    if (status == RG_OK)
        status = compare(&s, report, right);
    for (int32_t v = 0; v < net->values_count; v++)
        rg_tensor_destroy(s.sources[v]);
    rg_plan_destroy(s.plan);
    return status;
}
