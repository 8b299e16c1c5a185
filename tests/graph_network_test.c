/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* One network with every op that has a gradient: all gradients against finite differences, and
 * every option of a plan on and off. */
#include "plan_network.h"

enum { BATCH = 2, SIDE = 6, CLASSES = 4 };

/* pad, conv, bias, tanh, batch norm, relu: (2, 6, 6, 4) */
static rg_value *make_stem(network *n, rg_value *x)
{
    rg_pad_desc pad = rg_pad_desc_default();
    pad.mode = RG_PAD_MIRROR;
    for (int i = 1; i < 3; i++)
        pad.before[i] = pad.after[i] = 1;
    rg_conv_desc conv = rg_conv_desc_default();
    conv.bias = false;
    rg_batch_norm_desc norm = rg_batch_norm_desc_default();
    norm.epsilon = 1e-3;
    rg_value *y = NODE(n, pad, pad, x);
    y = NODE(n, conv, conv, y, parameter_of(n, 4, DIMS(4, 3, 3, 3)));
    y = neuron_of(n, RG_NEURON_TANH, add_of(n, y, parameter_of(n, 1, DIMS(4))));
    y = NODE(n, batch_norm, norm, y, parameter_of(n, 1, DIMS(4)), parameter_of(n, 1, DIMS(4)));
    return neuron_of(n, RG_NEURON_RELU, y);
}

/* Three poolings side by side: (2, 3, 3, 12) */
static rg_value *make_pools(network *n, rg_value *x)
{
    rg_value *y[3];
    rg_concat_desc concat = rg_concat_desc_default();
    concat.sources = 3;
    for (int i = 0; i < 3; i++) {
        rg_pool_desc pool = rg_pool_desc_default();
        pool.kind = (rg_pool_kind)i;
        pool.edge = RG_POOL_CLAMP;
        y[i] = NODE(n, pool, pool, x);
    }
    y[2] = neuron_of(n, RG_NEURON_SOFTSIGN, y[2]);
    return NODE(n, concat, concat, y[0], y[1], y[2]);
}

/* group norm, prelu, transposed convolution, gelu, three normalisations: (2, 6, 6, 5) */
static rg_value *make_body(network *n, rg_value *x)
{
    rg_group_norm_desc norm = rg_group_norm_desc_default();
    norm.groups = 3;
    norm.epsilon = 1e-3;
    rg_neuron_desc prelu = rg_neuron_desc_default();
    prelu.kind = RG_NEURON_PRELU;
    rg_conv_transpose_desc conv = rg_conv_transpose_desc_default();
    conv.stride[0] = conv.stride[1] = 2;
    rg_lrn_desc lrn = rg_lrn_desc_default();
    lrn.beta = 0.75;
    lrn.window = 3;
    rg_spatial_norm_desc spatial = rg_spatial_norm_desc_default();
    spatial.window[0] = spatial.window[1] = 3;
    spatial.beta = 0.5;
    rg_local_contrast_desc contrast = rg_local_contrast_desc_default();
    contrast.window[0] = contrast.window[1] = 3;
    contrast.alpha = 1;
    contrast.delta = 0.5;
    contrast.p0 = 0.5;
    rg_value *y =
        NODE(n, group_norm, norm, x, parameter_of(n, 1, DIMS(12)), parameter_of(n, 1, DIMS(12)));
    y = NODE(n, neuron, prelu, y, parameter_of(n, 1, DIMS(12)));
    y = NODE(n, conv_transpose, conv, y, parameter_of(n, 4, DIMS(5, 2, 2, 12)),
             parameter_of(n, 1, DIMS(5)));
    y = neuron_of(n, RG_NEURON_GELU, y);
    y = NODE(n, lrn, lrn, y);
    y = NODE(n, spatial_norm, spatial, y);
    return NODE(n, local_contrast, contrast, y);
}

/* A shortcut by slice and upsample, dropout, a factor for each channel: (2, 6, 6, 5) */
static rg_value *make_shortcut(network *n, rg_value *x, rg_value *from)
{
    rg_slice_desc slice = rg_slice_desc_default();
    slice.start_count = slice.length_count = 4;
    for (int i = 0; i < 4; i++)
        slice.length[i] = i == 3 ? 5 : -1;
    slice.start[3] = 2;
    rg_upsample_desc upsample = rg_upsample_desc_default();
    upsample.kind = RG_UPSAMPLE_BILINEAR;
    upsample.grid = RG_UPSAMPLE_HALF_PIXEL;
    rg_dropout_desc dropout = rg_dropout_desc_default();
    dropout.keep = 0.8;
    dropout.seed = 5;
    rg_arithmetic_desc multiply = rg_arithmetic_desc_default();
    multiply.kind = RG_ARITHMETIC_MULTIPLY;
    rg_value *y = NODE(n, upsample, upsample, NODE(n, slice, slice, from));
    y = NODE(n, dropout, dropout, add_of(n, x, y));
    y = NODE(n, arithmetic, multiply, y, parameter_of(n, 1, DIMS(5)));
    return add_of(n, y, x); /* x has two readers here, and one of them two of its own */
}

/* Gram matrices beside means of images: (2, 30) */
static rg_value *make_features(network *n, rg_value *x)
{
    const rg_gram_desc gram = { .size = sizeof gram, .alpha = 0.1 };
    rg_reshape_desc flat = rg_reshape_desc_default();
    flat.dims_count = 2;
    flat.dims[0] = BATCH;
    flat.dims[1] = -1;
    rg_reduce_desc mean = rg_reduce_desc_default();
    mean.kind = RG_REDUCE_MEAN;
    mean.dims_count = 2;
    mean.dims[0] = -3;
    mean.dims[1] = -2;
    const rg_concat_desc concat = rg_concat_desc_default();
    rg_value *a = NODE(n, reshape, flat, NODE(n, gram, gram, x));
    rg_value *b = NODE(n, reshape, flat, NODE(n, reduce, mean, x));
    return NODE(n, concat, concat, a, b);
}

static rg_value *dense_of(network *n, rg_value *x, int64_t in, int64_t out)
{
    const rg_dense_desc dense = rg_dense_desc_default();
    return NODE(n, dense, dense, x, parameter_of(n, 2, DIMS(out, in)),
                parameter_of(n, 1, DIMS(out)));
}

/* Softmax and its loss, log-softmax and its loss, softmax and squares. */
static void make_losses(network *n, rg_value *x, rg_value *losses[3])
{
    rg_value *labels = source_of(n, RG_I32, 1, DIMS(BATCH), CLASSES);
    rg_value *targets = source_of(n, n->dtype, 2, DIMS(BATCH, CLASSES), 0);
    rg_softmax_desc softmax = rg_softmax_desc_default();
    rg_loss_desc loss = rg_loss_desc_default();
    loss.kind = RG_LOSS_CATEGORICAL_CROSS_ENTROPY;
    loss.labels = RG_LOSS_CLASS_LABELS;
    losses[0] = NODE(n, softmax, softmax, dense_of(n, x, 7, CLASSES));
    losses[0] = NODE(n, loss, loss, losses[0], labels);
    softmax.kind = RG_SOFTMAX_LOG;
    loss.kind = RG_LOSS_KULLBACK_LEIBLER;
    loss.reduction = RG_LOSS_SUM;
    losses[1] = NODE(n, softmax, softmax, dense_of(n, x, 7, CLASSES));
    losses[1] = NODE(n, loss, loss, losses[1], labels);
    softmax.kind = RG_SOFTMAX_PLAIN;
    loss.kind = RG_LOSS_MEAN_SQUARED;
    loss.labels = RG_LOSS_DENSE_LABELS;
    losses[2] = NODE(n, softmax, softmax, dense_of(n, x, 7, CLASSES));
    losses[2] = NODE(n, loss, loss, losses[2], targets);
}

static network make_network(rg_dtype dtype)
{
    network n = network_open(dtype);
    rg_value *losses[3];
    rg_value *x = source_of(&n, dtype, 4, DIMS(BATCH, SIDE, SIDE, 3), 0);
    x = make_pools(&n, make_stem(&n, x));
    x = make_shortcut(&n, make_body(&n, x), x);
    rg_dense_desc dense = rg_dense_desc_default();
    dense.bias = false;
    x = NODE(&n, dense, dense, make_features(&n, x), parameter_of(&n, 2, DIMS(7, 30)));
    x = neuron_of(&n, RG_NEURON_SIGMOID, add_of(&n, parameter_of(&n, 1, DIMS(7)), x));
    make_losses(&n, x, losses);
    differentiate(&n, losses, 3);
    EXPECT_OK(rg_graph_status(n.graph));
    return n;
}

/* ---- gradients ---- */

static double total_loss(runner *u)
{
    double total = 0;
    int64_t count;
    runner_run(u);
    for (int32_t i = 0; i < 3; i++) {
        double *loss = result_of(u, "l", i, &count);
        total += loss[0];
        free(loss);
    }
    return total;
}

/* One element, in both directions. A difference across a kink of relu or max is not a derivative:
 * a smaller step has no kink in it. */
static double slope_at(runner *u, rg_tensor *tensor, double values[], int64_t k, double h)
{
    const double at = values[k];
    values[k] = at + h;
    write_numbers(tensor, values);
    const double above = total_loss(u);
    values[k] = at - h;
    write_numbers(tensor, values);
    const double below = total_loss(u);
    values[k] = at;
    return (above - below) / (2 * h);
}

static void check_parameter(runner *u, int32_t i)
{
    int64_t count = 0;
    runner_run(u);
    rg_tensor *tensor = parameter_tensor(u, i);
    double *gradient = result_of(u, "d", i, &count), *values = numbers_of(tensor);
    double largest = 0;
    for (int64_t k = 0; k < count; k++)
        largest = fmax(largest, fabs(gradient[k]));
    EXPECT(largest > 1e-4);
    for (int64_t k = 0; k < count; k++) {
        double far = fabs(slope_at(u, tensor, values, k, 1e-4) - gradient[k]);
        if (far > 1e-6 * largest)
            far = fabs(slope_at(u, tensor, values, k, 1e-5) - gradient[k]);
        if (far > 1e-6 * largest)
            printf("parameter %d element %d: off by %g of %g\n", i, (int)k, far, largest);
        EXPECT(far <= 1e-6 * largest);
    }
    write_numbers(tensor, values);
    free(gradient);
    free(values);
}

static void test_gradients(const network *n)
{
    rg_plan_options options = rg_plan_options_default();
    options.poison = true;
    runner u = runner_open(n, &options, 1);
    for (int32_t i = 0; i < n->parameters_count; i++)
        check_parameter(&u, i);
    runner_close(&u);
}

/* ---- options ---- */

static void test_options(const network *n)
{
    const double near = n->dtype == RG_F64 ? 1e-12 : 2e-5;
    for (int i = 0; i < 10; i++) {
        for (int rest = 0; rest < 2; rest++) { /* alone, and on top of all others */
            rg_plan_options off = rest ? rg_plan_options_default() : plain_options();
            off.poison = true;
            rg_plan_options on = off;
            bool *const switches[2][10] = {
                { &off.reuse_storage, &off.in_place, &off.share_views, &off.batch_updates,
                  &off.add_gradients, &off.fuse_neurons, &off.fuse_biases, &off.fuse_softmax,
                  &off.fuse_losses, &off.poison },
                { &on.reuse_storage, &on.in_place, &on.share_views, &on.batch_updates,
                  &on.add_gradients, &on.fuse_neurons, &on.fuse_biases, &on.fuse_softmax,
                  &on.fuse_losses, &on.poison }
            };
            *switches[0][i] = false;
            *switches[1][i] = true;
            const bool same = i < 4 || i == 9;
            const double worst = options_change(n, &off, &on, NULL, NULL);
            if (worst > (same ? 0 : near))
                printf("option %d, %d: %g\n", i, rest, worst);
            EXPECT(worst <= (same ? 0 : near));
        }
    }
}

/* Computed again, or kept: the same bits. */
static void test_budget(const network *n)
{
    rg_plan_options options = rg_plan_options_default();
    for (int i = 0; i < 2; i++) {
        options.poison = true;
        runner u = runner_open(n, &options, 1);
        runner_run(&u);
        rg_plan_options less = options;
        less.budget = rg_plan_bytes(u.plan) / 2;
        runner v = runner_open(n, &less, 1);
        runner_run(&v);
        runner_run(&v);
        EXPECT(difference(&u, &v, "l") == 0 && difference(&u, &v, "d") == 0);
        EXPECT(rg_plan_bytes(v.plan) < rg_plan_bytes(u.plan));
        EXPECT(rg_plan_steps(v.plan) > rg_plan_steps(u.plan));
        runner_close(&u);
        runner_close(&v);
        options = plain_options();
        options.reuse_storage = true;
    }
}

static void test_threads(const network *n)
{
    rg_plan_options options = rg_plan_options_default();
    options.poison = true;
    runner one = runner_open(n, &options, 1);
    runner_run(&one);
    for (int32_t threads = 2; threads <= 3; threads++) {
        runner many = runner_open(n, &options, threads);
        runner_run(&many);
        EXPECT(difference(&one, &many, "l") == 0 && difference(&one, &many, "d") == 0);
        runner_close(&many);
    }
    runner_close(&one);
}

int main(void)
{
    network n = make_network(RG_F64);
    test_gradients(&n);
    test_options(&n);
    test_budget(&n);
    test_threads(&n);
    rg_graph_destroy(n.graph);
    n = make_network(RG_F32);
    test_options(&n);
    test_budget(&n);
    test_threads(&n);
    rg_graph_destroy(n.graph);
    return rg_test_report();
}
