/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Random networks: norms, losses and sums of squares as forward nodes. */
#include "cli/random_network.h"

#include <string.h>

static const rg_net_value *input_of(const rg_net_draw *d)
{
    return &d->net->values[d->node->in[0]];
}

static int64_t channels_of(const rg_net_draw *d)
{
    const rg_tensor_desc *desc = &input_of(d)->desc[0];
    return desc->dims[desc->rank - 1];
}

static void draw_window_norm(rg_net_draw *d, const char *op)
{
    if (strcmp(op, "lrn") == 0)
        rg_net_field(d, "window=%d", (int)rg_net_int(d, 1, 5));
    else
        rg_net_field(d, "window=%d,%d", (int)rg_net_int(d, 1, 3), (int)rg_net_int(d, 1, 5));
    rg_net_field(d, " alpha=0.75 beta=0.5 delta=0.5");
    if (strcmp(op, "local_contrast") == 0)
        rg_net_field(d, " p0=0.75 pm=0.1 ps=0.9");
}

/* f32 beside 16 bits now and then. */
static rg_dtype parameter_dtype(rg_net_draw *d)
{
    const bool half = rg_dtype_size(d->net->dtype) == 2;
    return half && rg_net_chance(d, 0.5) ? RG_F32 : d->net->dtype;
}

static void draw_scales(rg_net_draw *d, rg_dtype dtype)
{
    const bool gamma = rg_net_chance(d, 0.7), beta = rg_net_chance(d, 0.7);
    rg_net_field(d, " gamma=%s beta=%s epsilon=0.05", gamma ? "true" : "false",
                 beta ? "true" : "false");
    if (gamma)
        rg_net_input(d, rg_net_vector(d, dtype, channels_of(d), 0.5, 1.5, false));
    if (beta)
        rg_net_input(d, rg_net_vector(d, dtype, channels_of(d), -0.5, 0.5, false));
    rg_net_inner_neuron(d);
}

static bool draw_batch_norm(rg_net_draw *d)
{
    static const char *const statistics[] = { "own", "returned", "running", "given" };
    const int64_t kind = rg_net_int(d, 0, 3);
    const rg_dtype dtype = parameter_dtype(d);
    if (!rg_net_input(d, rg_net_pick(d, 2, 4)))
        return false;
    rg_net_field(d, "statistics=%s", statistics[kind]);
    draw_scales(d, dtype);
    if (kind < 2)
        return true;
    rg_net_field(d, " momentum=0.7 unbiased=%s", rg_net_chance(d, 0.5) ? "true" : "false");
    const int32_t mean = rg_net_vector(d, dtype, channels_of(d), -0.2, 0.2, kind == 2);
    const int32_t variance = rg_net_vector(d, dtype, channels_of(d), 0.5, 1.25, kind == 2);
    if (kind == 2) {
        d->node->assigns[1] = mean;
        d->node->assigns[2] = variance;
    }
    return rg_net_input(d, mean) && rg_net_input(d, variance);
}

static bool draw_group_norm(rg_net_draw *d)
{
    if (!rg_net_input(d, rg_net_pick(d, 2, 4)))
        return false;
    const int64_t channels = channels_of(d);
    int64_t groups = rg_net_int(d, 0, channels < 4 ? channels : 4);
    if (groups > 0 && channels % groups != 0)
        groups = 1;
    rg_net_field(d, "groups=%d axis=%d", (int)groups, rg_net_chance(d, 0.2) ? -1 : 1);
    draw_scales(d, parameter_dtype(d));
    return true;
}

/* Labels as the kind requires, and whether predictions of this range will do. */
static bool draw_loss_kind(rg_net_draw *d, bool *classes, double *low, double *high)
{
    static const char *const kinds[] = { "softmax_cross_entropy",
                                         "softmax_cross_entropy",
                                         "softmax_cross_entropy",
                                         "sigmoid_cross_entropy",
                                         "mean_squared",
                                         "cosine_distance",
                                         "kullback_leibler",
                                         "mean_absolute",
                                         "huber",
                                         "hinge",
                                         "categorical_cross_entropy",
                                         "categorical_cross_entropy",
                                         "log" };
    double least, largest;
    rg_net_range(d, d->node->in[0], &least, &largest);
    int64_t kind = rg_net_int(d, 0, 12);
    if ((kind >= 10 && least < 0.05) || (kind == 12 && largest > 0.95))
        kind = rg_net_int(d, 0, 9);
    if (d->plain) /* what a loss makes of a softmax before it */
        kind = d->logarithm ? 6 : 10;
    d->net->kinked |= kind >= 7 && kind <= 9;
    *classes = (kind < 3 || kind == 6 || kind == 10) && rg_net_chance(d, 0.5);
    *low = kind == 9 ? 1 : 0.1;
    *high = kind == 9 ? 1 : 0.9;
    rg_net_field(d, "kind=%s", kinds[kind]);
    if (kind < 4 && rg_net_chance(d, 0.2))
        rg_net_field(d, " label_smoothing=0.1");
    return true;
}

static bool draw_loss(rg_net_draw *d)
{
    static const char *const reductions[] = { "none", "sum", "mean", "mean",
                                              "sum_by_non_zero_weights" };
    bool classes;
    double low, high;
    if (!rg_net_input(d, rg_net_pick(d, 1, 4)) || !draw_loss_kind(d, &classes, &low, &high))
        return false;
    rg_tensor_desc labels[2];
    for (int32_t s = 0; s < 2; s++) {
        const rg_tensor_desc *y = &input_of(d)->desc[s];
        labels[s] = classes ? rg_tensor_desc_dense(d->net->values_count % 2 == 0 ? RG_I32 : RG_I64,
                                                   y->rank - 1, y->dims)
                            : *y;
    }
    const rg_tensor_desc *other = &input_of(d)->desc[1];
    const int64_t one = channels_of(d), two = other->dims[other->rank - 1];
    const int64_t length = one < two ? one : two;
    if (classes || rg_net_chance(d, 0.8))
        rg_net_input(d, rg_net_add_source(d, labels, low, high, classes ? length : 0));
    else /* its own label */
        rg_net_input(d, low == high ? -1 : d->node->in[0]);
    const bool weights = rg_net_chance(d, 0.15);
    if (weights) {
        for (int32_t s = 0; s < 2; s++)
            labels[s].dtype = d->net->dtype;
        rg_net_input(d, rg_net_add_source(d, labels, 0.5, 1.5, 0));
    }
    rg_net_field(d, " labels=%s weights=%s reduction=%s across_batch=%s weight=0.%d",
                 classes ? "classes" : "dense", weights ? "true" : "false",
                 reductions[rg_net_int(d, 0, 4)], rg_net_chance(d, 0.8) ? "true" : "false",
                 (int)rg_net_int(d, 2, 9));
    return true;
}

bool rg_net_draw_norm(rg_net_draw *d, const char *op)
{
    if (strcmp(op, "batch_norm") == 0)
        return draw_batch_norm(d);
    if (strcmp(op, "group_norm") == 0)
        return draw_group_norm(d);
    if (strcmp(op, "loss") == 0)
        return draw_loss(d);
    if (strcmp(op, "grad_norm") == 0) {
        rg_net_field(d, "factor=0.01");
        return rg_net_input(d, rg_net_pick(d, 0, 8));
    }
    if (!rg_net_input(d, rg_net_pick(d, 4, 4)))
        return false;
    if (strcmp(op, "gram") == 0)
        rg_net_field(d, "alpha=0.1");
    else
        draw_window_norm(d, op);
    return true;
}
