/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Fusion, one kind at a time: the same numbers in fewer steps. */
#include "plan_network.h"

static rg_plan_options only(size_t offset)
{
    rg_plan_options options = plain_options();
    *(bool *)((char *)&options + offset) = true;
    return options;
}
#define ONLY(name) only(offsetof(rg_plan_options, name))

/* The options leave the numbers as they are, but for rounding, and save `fewer` steps. */
static void expect_fewer(const network *n, const rg_plan_options *options, int32_t fewer)
{
    const rg_plan_options plain = plain_options();
    rg_plan_options poisoned = *options;
    int32_t before = 0, after = 0;
    poisoned.poison = true;
    poisoned.reuse_storage = poisoned.in_place = true;
    const double worst = options_change(n, &plain, &poisoned, &before, &after);
    EXPECT(worst <= (n->dtype == RG_F64 ? 1e-12 : 1e-5));
    EXPECT(before - after == fewer);
    if (before - after != fewer)
        printf("%d steps became %d\n", before, after);
}

static void finish(network *n, rg_value *y, int64_t width)
{
    rg_loss_desc loss = rg_loss_desc_default();
    loss.kind = RG_LOSS_MEAN_SQUARED;
    loss.weight = 3;
    rg_reshape_desc flat = rg_reshape_desc_default();
    flat.dims_count = 2;
    flat.dims[0] = -1;
    flat.dims[1] = width;
    y = NODE(n, reshape, flat, y);
    y = NODE(n, loss, loss, y, source_of(n, n->dtype, 2, DIMS(10, width), 0));
    differentiate(n, &y, 1);
}

enum { CONV, CONV_TRANSPOSE, DENSE, DENSE_IN_OUT, BATCH_NORM, GROUP_NORM, LAYERS };

/* A layer on (5, 2, 3), a bias for each channel by a node of its own where `bias`. */
static rg_value *make_layer(network *n, int kind, bool bias, rg_value *x)
{
    rg_conv_desc conv = rg_conv_desc_default();
    rg_conv_transpose_desc transpose = rg_conv_transpose_desc_default();
    rg_dense_desc dense = rg_dense_desc_default();
    const rg_batch_norm_desc batch = rg_batch_norm_desc_default();
    const rg_group_norm_desc group = rg_group_norm_desc_default();
    conv.bias = transpose.bias = dense.bias = false;
    dense.layout = kind == DENSE_IN_OUT ? RG_DENSE_IN_OUT : RG_DENSE_OUT_IN;
    rg_value *y = NULL;
    if (kind == CONV)
        y = NODE(n, conv, conv, x, parameter_of(n, 4, DIMS(3, 1, 1, 3)));
    else if (kind == CONV_TRANSPOSE)
        y = NODE(n, conv_transpose, transpose, x, parameter_of(n, 4, DIMS(3, 1, 1, 3)));
    else if (kind == DENSE || kind == DENSE_IN_OUT)
        y = NODE(n, dense, dense, x, parameter_of(n, 2, DIMS(3, 3)));
    else if (kind == BATCH_NORM)
        y = NODE(n, batch_norm, batch, x, parameter_of(n, 1, DIMS(3)), parameter_of(n, 1, DIMS(3)));
    else
        y = NODE(n, group_norm, group, x, parameter_of(n, 1, DIMS(3)), parameter_of(n, 1, DIMS(3)));
    if (!bias)
        return y;
    rg_value *b = parameter_of(n, 1, DIMS(3));
    return kind == CONV ? add_of(n, b, y) : add_of(n, y, b);
}

static void test_neurons(rg_dtype dtype)
{
    const rg_plan_options options = ONLY(fuse_neurons);
    const rg_neuron_kind kinds[] = { RG_NEURON_RELU, RG_NEURON_GELU, RG_NEURON_TANH };
    for (int layer = 0; layer < LAYERS; layer++) {
        for (int k = 0; k < 3; k++) {
            network n = network_open(dtype);
            rg_value *x = source_of(&n, dtype, 4, DIMS(5, 2, 1, 3), 0);
            x = neuron_of(&n, kinds[k], make_layer(&n, layer, false, x));
            x = neuron_of(&n, kinds[k], make_layer(&n, layer, false, x));
            finish(&n, x, 3);
            expect_fewer(&n, &options, 4);
            rg_graph_destroy(n.graph);
        }
    }
}

static void test_biases(rg_dtype dtype)
{
    rg_plan_options options = ONLY(fuse_biases);
    for (int layer = 0; layer <= DENSE_IN_OUT; layer++) {
        network n = network_open(dtype);
        rg_value *x = source_of(&n, dtype, 4, DIMS(5, 2, 1, 3), 0);
        x = neuron_of(&n, RG_NEURON_SIGMOID, make_layer(&n, layer, true, x));
        x = neuron_of(&n, RG_NEURON_SWISH, make_layer(&n, layer, true, x));
        finish(&n, x, 3);
        options.fuse_neurons = false;
        expect_fewer(&n, &options, 4);
        options.fuse_neurons = true;
        expect_fewer(&n, &options, 8);
        rg_graph_destroy(n.graph);
    }
}

/* What stands in the way: a second reader, a result, a gradient that is asked for, a bias of
 * another shape. */
static void test_obstacles(void)
{
    rg_plan_options options = rg_plan_options_default();
    options.fuse_losses = options.add_gradients = false;
    for (int kind = 0; kind < 4; kind++) {
        network n = network_open(RG_F64);
        rg_value *x = source_of(&n, RG_F64, 4, DIMS(5, 2, 1, 3), 0);
        rg_value *z = make_layer(&n, CONV, kind == 3, x);
        rg_value *y = neuron_of(&n, RG_NEURON_TANH, z);
        if (kind == 0)
            y = add_of(&n, y, z);
        if (kind == 1)
            EXPECT_OK(rg_graph_result(n.graph, z, "z"));
        finish(&n, y, 3);
        if (kind == 2)
            EXPECT_OK(rg_graph_result(n.graph, rg_value_gradient(z), "dz"));
        expect_fewer(&n, &options, kind == 3 ? 4 : 0);
        rg_graph_destroy(n.graph);
    }
    network n = network_open(RG_F64); /* one number, or one for each pixel, is no bias */
    rg_value *x = source_of(&n, RG_F64, 4, DIMS(5, 2, 1, 3), 0);
    x = add_of(&n, make_layer(&n, CONV, false, x), parameter_of(&n, 1, DIMS(1)));
    x = add_of(&n, make_layer(&n, CONV, false, x), parameter_of(&n, 3, DIMS(2, 1, 3)));
    finish(&n, x, 3);
    expect_fewer(&n, &options, 0);
    rg_graph_destroy(n.graph);
}

/* Batch normalization whose mean is read, too: its gradient cannot move to that of the neuron where
 * the gradient of the mean is made later. */
static void test_later_gradient(rg_dtype dtype)
{
    const rg_plan_options options = ONLY(fuse_neurons);
    for (int first = 0; first < 2; first++) {
        network n = network_open(dtype);
        rg_batch_norm_desc desc = rg_batch_norm_desc_default();
        desc.statistics = RG_BATCH_NORM_RETURNED;
        rg_value *x = source_of(&n, dtype, 4, DIMS(5, 2, 1, 3), 0);
        x = make_layer(&n, CONV, false, x);
        rg_value *const inputs[] = { x, parameter_of(&n, 1, DIMS(3)),
                                     parameter_of(&n, 1, DIMS(3)) };
        rg_node *const node = rg_graph_batch_norm(n.graph, &desc, inputs);
        rg_value *losses[2];
        for (int i = 0; i < 2; i++) { /* the last one has its gradient first */
            const int k = i == 0 ? first : 1 - first;
            losses[k] =
                neuron_of(&n, k == 0 ? RG_NEURON_TANH : RG_NEURON_GELU, rg_node_output(node, k));
        }
        differentiate(&n, losses, 2);
        expect_fewer(&n, &options, first == 0 ? 2 : 0);
        rg_graph_destroy(n.graph);
    }
}

/* A second reader where there are no gradients, and a loss whose gradient begins with 2. */
static void test_more_obstacles(void)
{
    const rg_plan_options options = rg_plan_options_default();
    network n = network_open(RG_F64);
    rg_value *z = make_layer(&n, CONV, true, source_of(&n, RG_F64, 4, DIMS(5, 2, 1, 3), 0));
    rg_value *y = add_of(&n, neuron_of(&n, RG_NEURON_TANH, z), z);
    EXPECT_OK(rg_graph_result(n.graph, y, "l0"));
    expect_fewer(&n, &options, 1);
    rg_graph_destroy(n.graph);

    n = network_open(RG_F64);
    rg_loss_desc loss = rg_loss_desc_default();
    loss.kind = RG_LOSS_MEAN_SQUARED;
    y = make_layer(&n, DENSE, false, source_of(&n, RG_F64, 2, DIMS(10, 3), 0));
    y = NODE(&n, loss, loss, y, source_of(&n, RG_F64, 2, DIMS(10, 3), 0));
    rg_value *two = rg_graph_constant(n.graph, y, 2);
    EXPECT_OK(rg_graph_gradients(n.graph, &y, &two, 1, NULL, NULL));
    EXPECT_OK(rg_graph_result(n.graph, y, "l0"));
    EXPECT_OK(rg_graph_result(n.graph, rg_value_gradient(n.parameters[0]), "d0"));
    expect_fewer(&n, &options, 0);
    rg_graph_destroy(n.graph);
}

/* A neuron behind a neuron, a bias behind one, and sums that are more than that. */
static void test_taken(void)
{
    rg_plan_options options = ONLY(fuse_neurons);
    options.fuse_biases = true;
    for (int layer = 0; layer < LAYERS; layer++) {
        network n = network_open(RG_F64);
        rg_value *x = source_of(&n, RG_F64, 4, DIMS(5, 2, 1, 3), 0);
        x = neuron_of(&n, RG_NEURON_TANH, make_layer(&n, layer, false, x));
        finish(&n, neuron_of(&n, RG_NEURON_SIGMOID, x), 3);
        expect_fewer(&n, &options, 2);
        rg_graph_destroy(n.graph);
    }
    rg_dense_desc dense = rg_dense_desc_default();
    dense.bias = false;
    dense.neuron.kind = RG_NEURON_TANH;
    network with = network_open(RG_F64);
    rg_value *y = source_of(&with, RG_F64, 4, DIMS(5, 2, 1, 3), 0);
    y = NODE(&with, dense, dense, y, parameter_of(&with, 2, DIMS(3, 3)));
    y = add_of(&with, y, parameter_of(&with, 1, DIMS(3)));
    EXPECT_OK(rg_graph_result(with.graph, y, "l0")); /* without gradients, which would read y */
    expect_fewer(&with, &options, 0);
    rg_graph_destroy(with.graph);
    for (int kind = 0; kind < 6; kind++) {
        rg_arithmetic_desc sum = rg_arithmetic_desc_default();
        sum.kind = kind == 0 ? RG_ARITHMETIC_SUBTRACT : RG_ARITHMETIC_ADD;
        sum.primary_scale = kind == 1 ? 2 : 1;
        sum.secondary_scale = kind == 2 ? 2 : 1;
        sum.bias = kind == 3 ? 0.5 : 0;
        sum.minimum = kind == 4 ? -0.1 : sum.minimum;
        sum.maximum = kind == 5 ? 0.1 : sum.maximum;
        network n = network_open(RG_F64);
        rg_value *x = source_of(&n, RG_F64, 4, DIMS(5, 2, 1, 3), 0);
        x = make_layer(&n, CONV, false, x);
        finish(&n, NODE(&n, arithmetic, sum, x, parameter_of(&n, 1, DIMS(3))), 3);
        expect_fewer(&n, &options, 0);
        rg_graph_destroy(n.graph);
    }
}

/* One bias and one weight that two layers share. */
static void test_shared(rg_dtype dtype)
{
    rg_plan_options options = rg_plan_options_default();
    options.fuse_losses = false;
    network n = network_open(dtype);
    rg_value *x = source_of(&n, dtype, 4, DIMS(5, 2, 1, 3), 0);
    rg_value *w = parameter_of(&n, 4, DIMS(3, 1, 1, 3)), *b = parameter_of(&n, 1, DIMS(3));
    rg_conv_desc conv = rg_conv_desc_default();
    conv.bias = false;
    for (int i = 0; i < 3; i++)
        x = neuron_of(&n, RG_NEURON_TANH, add_of(&n, NODE(&n, conv, conv, x, w), b));
    finish(&n, x, 3);
    expect_fewer(&n, &options, 3 * 4 + 2 * 2); /* and two sums of each gradient */
    rg_graph_destroy(n.graph);
}

static void test_softmax(rg_dtype dtype)
{
    rg_plan_options options = ONLY(fuse_softmax);
    for (int kind = 0; kind < 5; kind++) {
        network n = network_open(dtype);
        const bool classes = kind < 2 || kind == 4;
        rg_value *x = make_layer(&n, DENSE, true, source_of(&n, dtype, 2, DIMS(10, 3), 0));
        rg_softmax_desc softmax = rg_softmax_desc_default();
        softmax.kind = kind == 1 ? RG_SOFTMAX_LOG : RG_SOFTMAX_PLAIN;
        softmax.axis = kind == 4 ? 0 : kind == 0 ? 1 : -1;
        rg_loss_desc loss = rg_loss_desc_default();
        loss.kind = kind == 1 ? RG_LOSS_KULLBACK_LEIBLER : RG_LOSS_CATEGORICAL_CROSS_ENTROPY;
        loss.labels = classes ? RG_LOSS_CLASS_LABELS : RG_LOSS_DENSE_LABELS;
        loss.reduction = kind == 2 ? RG_LOSS_SUM : RG_LOSS_MEAN;
        rg_value *labels = classes ? source_of(&n, RG_I64, 1, DIMS(10), 3)
                                   : source_of(&n, dtype, 2, DIMS(10, 3), 0);
        x = NODE(&n, loss, loss, NODE(&n, softmax, softmax, x), labels);
        differentiate(&n, &x, 1);
        options.fuse_losses = false;
        expect_fewer(&n, &options, kind < 3 ? 2 : 0);
        options.fuse_losses = true;
        expect_fewer(&n, &options, kind < 3 ? 3 : 1);
        rg_graph_destroy(n.graph);
    }
}

/* Softmax of a parameter that is overwritten before the loss, or its gradient, would read it in the
 * place of the probabilities: it stays apart. Overwritten behind them, it does not. */
static void test_overwritten_softmax(void)
{
    const rg_softmax_desc softmax = rg_softmax_desc_default();
    rg_loss_desc loss = rg_loss_desc_default();
    loss.kind = RG_LOSS_CATEGORICAL_CROSS_ENTROPY;
    loss.labels = RG_LOSS_CLASS_LABELS;
    for (int late = 0; late < 2; late++) {
        network n = network_open(RG_F64);
        rg_value *p = parameter_of(&n, 2, DIMS(10, 3));
        rg_value *labels = source_of(&n, RG_I64, 1, DIMS(10), 3);
        rg_value *y = NODE(&n, softmax, softmax, p);
        if (!late)
            EXPECT_OK(rg_graph_assign(n.graph, p, neuron_of(&n, RG_NEURON_TANH, p)));
        y = NODE(&n, loss, loss, y, labels);
        differentiate(&n, &y, 1);
        if (late)
            EXPECT_OK(rg_graph_assign(n.graph, p, neuron_of(&n, RG_NEURON_TANH, p)));
        const rg_plan_options plain = plain_options(), fused = ONLY(fuse_softmax);
        runner u = runner_open(&n, &plain, 1), v = runner_open(&n, &fused, 1);
        runner_run(&u);
        runner_run(&v);
        EXPECT(difference(&u, &v, "l") <= 1e-12 && difference(&u, &v, "d") <= 1e-12);
        EXPECT(rg_plan_steps(u.plan) - rg_plan_steps(v.plan) == (late ? 2 : 0));
        EXPECT(same_bits(parameter_tensor(&u, 0), parameter_tensor(&v, 0)));
        runner_close(&u);
        runner_close(&v);
        rg_graph_destroy(n.graph);
    }
}

/* Views and sums: fewer launches, the same steps. */
static void test_residual(rg_dtype dtype)
{
    network n = network_open(dtype);
    rg_value *x = source_of(&n, dtype, 4, DIMS(5, 2, 1, 3), 0);
    x = make_layer(&n, CONV, false, x);
    for (int i = 0; i < 3; i++)
        x = add_of(&n, x, neuron_of(&n, RG_NEURON_TANH, make_layer(&n, CONV, false, x)));
    finish(&n, x, 3);
    const rg_plan_options plain = plain_options();
    rg_plan_options options = ONLY(share_views);
    EXPECT(options_change(&n, &plain, &options, NULL, NULL) == 0);
    runner u = runner_open(&n, &plain, 1), v = runner_open(&n, &options, 1);
    runner_run(&u);
    runner_run(&v);
    /* reshape and its gradient, and the gradients of three sums, which stand for two copies each */
    EXPECT(rg_plan_launches(u.plan) - rg_plan_launches(v.plan) >= 5);
    runner_close(&u);
    runner_close(&v);
    const rg_plan_options sums = ONLY(add_gradients);
    expect_fewer(&n, &sums, 3);
    options = rg_plan_options_default();
    expect_fewer(&n, &options, 6 + 1); /* a gradient is not added into its own dy */
    rg_graph_destroy(n.graph);
}

/* Three gradients of one value, the last of a loss that is joined with it and so is made first: it
 * is no second value for a gradient that is added into another one already. That one was lost. */
static void test_sum_of_three(rg_dtype dtype)
{
    network n = network_open(dtype);
    rg_loss_desc loss = rg_loss_desc_default();
    rg_value *x = source_of(&n, dtype, 4, DIMS(5, 2, 1, 3), 0), *y[3];
    x = make_layer(&n, CONV, false, x);
    y[0] = NODE(&n, loss, loss, x, source_of(&n, dtype, 4, DIMS(5, 2, 1, 3), 0));
    y[1] = neuron_of(&n, RG_NEURON_TANH, x);
    y[2] = neuron_of(&n, RG_NEURON_SIGMOID, x);
    differentiate(&n, y, 3);
    rg_plan_options options = ONLY(add_gradients);
    expect_fewer(&n, &options, 2);
    options.fuse_losses = true;
    expect_fewer(&n, &options, 2); /* a sum stays, but the gradient of the loss is no step */
    rg_graph_destroy(n.graph);
}

/* A source in another shape is read where it lies, if it is dense. */
static void test_source_view(void)
{
    network n = network_open(RG_F64);
    rg_value *x = source_of(&n, RG_F64, 3, DIMS(2, 5, 3), 0);
    rg_reshape_desc flat = rg_reshape_desc_default();
    flat.dims_count = 2;
    flat.dims[0] = -1;
    flat.dims[1] = 3;
    x = NODE(&n, reshape, flat, x);
    x = NODE(&n, reshape, flat, x);
    finish(&n, make_layer(&n, DENSE, true, x), 3);
    rg_plan_options options = rg_plan_options_default();
    options.poison = true;
    runner u = runner_open(&n, &options, 1);
    runner_run(&u);
    const int64_t launches = rg_plan_launches(u.plan);
    double *loss[2];
    int64_t count;
    loss[0] = result_of(&u, "l", 0, &count);
    rg_tensor *wide = tensor_of(u.r.device, RG_F64, 3, DIMS(2, 5, 4)), *dense = u.sources[0];
    EXPECT_OK(rg_tensor_slice(wide, DIMS(0, 0, 1), DIMS(2, 5, 3), NULL, &u.sources[0]));
    write_drawn(u.sources[0], 100, -0.5, 0); /* as the dense one */
    runner_run(&u);
    loss[1] = result_of(&u, "l", 0, &count);
    EXPECT(loss[0][0] == loss[1][0] && rg_plan_launches(u.plan) == launches + 1);
    free(loss[0]);
    free(loss[1]);
    rg_tensor_destroy(wide);
    rg_tensor_destroy(dense);
    runner_close(&u);
    rg_graph_destroy(n.graph);
}

/* ---- updates ---- */

enum { UPDATED = 40 };

static network make_updates(int kind)
{
    network n = network_open(RG_F32);
    rg_value *x = source_of(&n, RG_F32, 2, DIMS(10, 3), 0);
    for (int i = 0; i < UPDATED; i++)
        x = add_of(&n, x, parameter_of(&n, 1, DIMS(i % 2 ? 1 : 3)));
    finish(&n, x, 3);
    const rg_tensor_desc number = rg_tensor_desc_dense(RG_F32, 0, NULL);
    rg_value *rate = rg_graph_parameter(n.graph, "rate", &number);
    const rg_tensor_desc whole = rg_tensor_desc_dense(RG_I64, 0, NULL);
    rg_value *step = rg_graph_parameter(n.graph, "step", &whole);
    for (int i = 0; i < UPDATED; i++) {
        rg_sgd_desc sgd = rg_sgd_desc_default();
        sgd.momentum = 0.5;
        sgd.gradient.rescale = i % 2 ? 1 : 2; /* two kernels in turn */
        const rg_rmsprop_desc rmsprop = rg_rmsprop_desc_default();
        const rg_adam_desc adam = rg_adam_desc_default();
        const char *const names[] = { "sgd", "rmsprop", "adam" };
        const void *const descs[] = { &sgd, &rmsprop, &adam };
        EXPECT(rg_graph_update(n.graph, names[kind], descs[kind], n.parameters[i],
                               rg_value_gradient(n.parameters[i]), rate, step, NULL) != NULL);
    }
    return n;
}

static void test_updates(void)
{
    for (int kind = 0; kind < 3; kind++) {
        network n = make_updates(kind);
        rg_plan_options plain = plain_options(), batched = ONLY(batch_updates);
        plain.reuse_storage = batched.reuse_storage = true;
        runner u = runner_open(&n, &plain, 1), v = runner_open(&n, &batched, 2);
        const float rate = 0.1f;
        rg_tensor *tensor = NULL;
        EXPECT_OK(rg_plan_parameter(u.plan, "rate", &tensor));
        EXPECT_OK(rg_tensor_write(tensor, &rate, sizeof rate, RG_LAYOUT_SAME));
        EXPECT_OK(rg_plan_parameter(v.plan, "rate", &tensor));
        EXPECT_OK(rg_tensor_write(tensor, &rate, sizeof rate, RG_LAYOUT_SAME));
        for (int i = 0; i < 3; i++) {
            runner_run(&u);
            runner_run(&v);
        }
        EXPECT(rg_plan_steps(u.plan) == rg_plan_steps(v.plan));
        EXPECT(rg_plan_launches(u.plan) - rg_plan_launches(v.plan) >= UPDATED - 4);
        EXPECT(difference(&u, &v, "l") == 0 && difference(&u, &v, "d") == 0);
        for (int32_t i = 0; i < UPDATED; i++)
            EXPECT(same_bits(parameter_tensor(&u, i), parameter_tensor(&v, i)));
        runner_close(&u);
        runner_close(&v);
        rg_graph_destroy(n.graph);
    }
}

/* Steps that run together do not share storage, though one is over before the next begins. */
static void test_batch_storage(void)
{
    network n = network_open(RG_F32);
    const rg_tensor_desc number = rg_tensor_desc_dense(RG_F32, 0, NULL);
    rg_value *rate = rg_graph_parameter(n.graph, "rate", &number), *gradients[6];
    rg_value *x = source_of(&n, RG_F32, 1, DIMS(100), 0);
    const rg_sgd_desc sgd = rg_sgd_desc_default();
    for (int i = 0; i < 6; i++)
        gradients[i] = neuron_of(&n, RG_NEURON_TANH, x);
    for (int i = 0; i < 6; i++) {
        char name[16];
        rg_value *y = NODE(&n, sgd, sgd, parameter_of(&n, 1, DIMS(100)), gradients[i], rate);
        snprintf(name, sizeof name, "l%d", i);
        EXPECT_OK(rg_graph_result(n.graph, y, name));
    }
    const rg_plan_options plain = plain_options();
    rg_plan_options options = ONLY(batch_updates);
    options.reuse_storage = options.in_place = true;
    EXPECT(options_change(&n, &plain, &options, NULL, NULL) == 0);
    rg_graph_destroy(n.graph);
}

int main(void)
{
    const rg_dtype dtypes[] = { RG_F32, RG_F64 };
    for (int i = 0; i < 2; i++) {
        test_neurons(dtypes[i]);
        test_biases(dtypes[i]);
        test_shared(dtypes[i]);
        test_softmax(dtypes[i]);
        test_residual(dtypes[i]);
        test_sum_of_three(dtypes[i]);
        test_later_gradient(dtypes[i]);
    }
    test_overwritten_softmax();
    test_obstacles();
    test_more_obstacles();
    test_taken();
    test_source_view();
    test_batch_storage();
    test_updates();
    return rg_test_report();
}
