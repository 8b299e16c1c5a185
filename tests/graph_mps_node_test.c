/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Every node class of MPS that has a counterpart, as a node of a graph: a plan gives what the
 * kernel of the same descriptor gives, forward and back. On any device. docs/mps.md names these
 * tests. */
#include "any_device.h"
#include "graph_f64.h"
#include "ops/ops.h"

#include <math.h>

enum { MOST_INPUTS = 5 };

/* A graph with sources "0", "1", … and tensors for them. */
typedef struct scene {
    rig *r;
    rg_graph *graph;
    rg_value *values[MOST_INPUTS];
    rg_tensor *x[MOST_INPUTS];
    int32_t count;
    bool forward_only;
} scene;

static scene scene_of(rig *r)
{
    return (scene){ .r = r, .graph = graph_new() };
}

static void add_input(scene *s, int32_t rank, const int64_t dims[])
{
    const char name[] = { (char)('0' + s->count), 0 };
    s->values[s->count] = rg_graph_source(s->graph, name);
    s->x[s->count] = filled(s->r->device, RG_F64, rank, dims, 40 + (uint64_t)s->count);
    s->count++;
}

/* One image of 4 by 5 pixels with 6 channels, or two. */
static scene image_scene(rig *r)
{
    scene s = scene_of(r);
    add_input(&s, 4, DIMS(2, 4, 5, 6));
    return s;
}

static void expect_near(const char *what, const rg_tensor *got, const rg_tensor *want)
{
    rg_tensor_desc a = { 0 }, b = { 0 };
    EXPECT_OK(rg_tensor_get_desc(got, &a));
    EXPECT_OK(rg_tensor_get_desc(want, &b));
    EXPECT(a.dtype == b.dtype && count_of(got) == count_of(want));
    if (a.dtype != RG_F64) {
        EXPECT(same_bits(got, want));
        return;
    }
    double *have = (double *)(void *)elements_of(got),
           *should = (double *)(void *)elements_of(want);
    int64_t wrong = 0;
    for (int64_t i = 0; i < count_of(got) && i < count_of(want); i++)
        wrong += !(fabs(have[i] - should[i]) <= 1e-11 * (1 + fabs(should[i])));
    EXPECT(wrong == 0);
    if (wrong != 0)
        printf("    %s: %lld elements differ\n", what, (long long)wrong);
    free(have);
    free(should);
}

/* The sources of the plan in its order. */
static void order_sources(const scene *s, const rg_plan *plan, rg_tensor *dy, rg_tensor *sources[])
{
    for (int32_t i = 0; i < rg_plan_sources(plan); i++) {
        const char *name = rg_plan_source_name(plan, i);
        sources[i] = strcmp(name, "dy") == 0 ? dy : s->x[name[0] - '0'];
    }
}

static const char *const gradient_names[MOST_INPUTS] = { "d0", "d1", "d2", "d3", "d4" };

/* Asks for the result of the node and its gradients; returns which inputs have one. */
static uint64_t ask(const scene *s, rg_node *node)
{
    rg_value *y = rg_node_output(node, 0), *dy;
    uint64_t wanted = 0;
    EXPECT_OK(rg_graph_result(s->graph, y, "y"));
    if (s->forward_only)
        return 0;
    dy = rg_graph_source(s->graph, "dy");
    EXPECT_OK(rg_graph_gradients(s->graph, &y, &dy, 1, NULL, NULL));
    for (int32_t i = 0; i < s->count; i++) {
        rg_value *gradient = rg_value_gradient(s->values[i]);
        if (gradient == NULL)
            continue;
        EXPECT_OK(rg_graph_result(s->graph, gradient, gradient_names[i]));
        wanted |= UINT64_C(1) << i;
    }
    EXPECT(wanted & 1);
    return wanted;
}

/* The node against a kernel of its op and descriptor; drops the scene. */
static void check(scene *s, const char *what, rg_node *node)
{
    _Alignas(16) char desc[RG_MAX_DESC];
    const rg_op *op = NULL;
    const rg_op_name *name;
    rg_kernel *kernel = NULL;
    rg_tensor *y[RG_MAX_OUTPUTS] = { NULL }, *dy[RG_MAX_OUTPUTS] = { NULL }, *dx[RG_MAX_INPUTS];
    rg_tensor *sources[MOST_INPUTS + 1];
    rg_state *state = NULL;
    EXPECT_OK(rg_graph_status(s->graph));
    if (node == NULL) {
        printf("    %s: no node\n", what);
        return;
    }
    EXPECT_OK(rg_op_find(rg_node_op(node), &op, &name));
    EXPECT_OK(rg_node_desc(node, desc));
    EXPECT_OK(rg_kernel_create(s->r->device, op, desc, &kernel));
    const uint64_t wanted = ask(s, node);
    rg_plan *plan = f64_plan(s->r->device, s->graph);
    rg_commands *const c = s->r->commands;
    EXPECT_OK(rg_kernel_forward_alloc(kernel, c, 1, s->x, false, y, &state));
    rg_tensor_desc shape = { 0 };
    EXPECT_OK(rg_tensor_get_desc(y[0], &shape));
    if (wanted != 0) {
        dy[0] = filled(s->r->device, shape.dtype, shape.rank, shape.dims, 50);
        EXPECT_OK(rg_kernel_gradient_alloc(kernel, c, 1, dy, s->x, y, &state, wanted, false, dx));
    }
    order_sources(s, plan, dy[0], sources);
    EXPECT_OK(rg_plan_encode(plan, c, sources));
    EXPECT_OK(rig_run(s->r));
    expect_near(what, f64_result(plan, "y"), y[0]);
    for (int32_t i = 0; i < s->count; i++) {
        if (!(wanted >> i & 1))
            continue;
        expect_near(what, f64_result(plan, gradient_names[i]), dx[i]);
        rg_tensor_destroy(dx[i]);
    }
    for (int32_t i = 0; i < s->count; i++)
        rg_tensor_destroy(s->x[i]);
    for (int32_t i = 0; i < RG_MAX_OUTPUTS; i++)
        rg_tensor_destroy(y[i]);
    rg_tensor_destroy(dy[0]);
    rg_state_destroy(state);
    rg_kernel_destroy(kernel);
    rg_plan_destroy(plan);
    rg_graph_destroy(s->graph);
}

/* MPSCNNConvolutionNode, MPSCNNConvolutionTransposeNode, MPSCNNFullyConnectedNode. */
static void test_convolutions(rig *r)
{
    const rg_conv_desc conv = rg_conv_desc_default();
    scene s = image_scene(r);
    add_input(&s, 4, DIMS(3, 2, 2, 6));
    add_input(&s, 1, DIMS(3));
    check(&s, "conv", rg_graph_conv(s.graph, &conv, s.values));
    for (int sized = 0; sized < 2; sized++) { /* the size of an image that a stride of 2 has lost */
        rg_conv_transpose_desc transpose = rg_conv_transpose_desc_default();
        transpose.stride[0] = transpose.stride[1] = 1 + sized;
        transpose.output[0] = sized ? 9 : 0;
        transpose.output[1] = sized ? 11 : 0;
        s = image_scene(r);
        add_input(&s, 4, DIMS(3, 2, 2, 6));
        add_input(&s, 1, DIMS(3));
        check(&s, "conv_transpose", rg_graph_conv_transpose(s.graph, &transpose, s.values));
    }
    const rg_dense_desc dense = rg_dense_desc_default();
    s = scene_of(r);
    add_input(&s, 2, DIMS(5, 6));
    add_input(&s, 2, DIMS(4, 6));
    add_input(&s, 1, DIMS(4));
    check(&s, "dense", rg_graph_dense(s.graph, &dense, s.values));
}

/* The neuron nodes, with what MPS suggests for a, b and c. */
static void test_neurons(rig *r)
{
    static const rg_neuron_kind kinds[] = {
        RG_NEURON_ABSOLUTE,    RG_NEURON_ELU,       RG_NEURON_RELUN,        RG_NEURON_LINEAR,
        RG_NEURON_RELU,        RG_NEURON_SIGMOID,   RG_NEURON_HARD_SIGMOID, RG_NEURON_SOFTPLUS,
        RG_NEURON_SOFTSIGN,    RG_NEURON_TANH,      RG_NEURON_PRELU,        RG_NEURON_POWER,
        RG_NEURON_EXPONENTIAL, RG_NEURON_LOGARITHM, RG_NEURON_GELU
    };
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        rg_neuron_desc desc = rg_neuron_desc_default();
        scene s = image_scene(r);
        desc.kind = kinds[i];
        if (desc.kind == RG_NEURON_PRELU)
            add_input(&s, 1, DIMS(6));
        desc.has_b = desc.kind == RG_NEURON_LOGARITHM || desc.kind == RG_NEURON_POWER;
        desc.b = desc.has_b ? 4 : 0; /* x + 4 is positive */
        check(&s, "neuron", rg_graph_neuron(s.graph, &desc, s.values));
    }
}

/* Rows, columns, channels, and both of an image; clipRectSource is a slice before it. */
static void test_reductions(rig *r)
{
    static const rg_reduce_kind kinds[] = { RG_REDUCE_MIN, RG_REDUCE_MAX,     RG_REDUCE_MEAN,
                                            RG_REDUCE_SUM, RG_REDUCE_ARG_MIN, RG_REDUCE_ARG_MAX };
    for (int dims = 1; dims < 5; dims++) {
        for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
            rg_reduce_desc desc = rg_reduce_desc_default();
            const bool index = kinds[i] == RG_REDUCE_ARG_MIN || kinds[i] == RG_REDUCE_ARG_MAX;
            desc.kind = kinds[i];
            desc.dims_count = dims == 4 ? 2 : 1;
            desc.dims[0] = dims == 4 ? 1 : dims;
            desc.dims[1] = 2;
            if (index && dims == 4)
                continue; /* MPS has none */
            scene s = image_scene(r);
            s.forward_only = index;
            check(&s, "reduce", rg_graph_reduce(s.graph, &desc, s.values));
        }
    }
    rg_slice_desc slice = rg_slice_desc_default();
    slice.start_count = slice.length_count = 4;
    memcpy(slice.length, DIMS(-1, 2, 3, -1), 4 * sizeof slice.length[0]);
    scene s = image_scene(r);
    check(&s, "slice", rg_graph_slice(s.graph, &slice, s.values));
}

static void test_pools(rig *r)
{
    static const rg_pool_kind kinds[] = { RG_POOL_AVERAGE, RG_POOL_L2, RG_POOL_MAX, RG_POOL_MAX };
    for (int i = 0; i < 4; i++) {
        const rg_pool_desc desc = rg_pool_desc_mps_node(kinds[i], 2, i == 3);
        scene s = image_scene(r);
        check(&s, "pool", rg_graph_pool(s.graph, &desc, s.values));
    }
    for (int i = 0; i < 3; i++) { /* all arguments of the initializer by hand */
        rg_pool_desc desc = rg_pool_desc_default();
        desc.kind = kinds[i];
        desc.edge = i == 1 ? RG_POOL_ZERO : RG_POOL_CLAMP;
        desc.window[0] = 3;
        desc.window[1] = 2;
        desc.stride[0] = desc.dilation[1] = 2;
        desc.padding.policy = RG_PADDING_FULL;
        scene s = image_scene(r);
        check(&s, "pool by hand", rg_graph_pool(s.graph, &desc, s.values));
    }
}

static void test_norms(rig *r)
{
    scene s = image_scene(r);
    const rg_spatial_norm_desc spatial = rg_spatial_norm_desc_default();
    check(&s, "spatial_norm", rg_graph_spatial_norm(s.graph, &spatial, s.values));
    rg_local_contrast_desc contrast = rg_local_contrast_desc_default();
    contrast.alpha = 1; /* as the node */
    s = image_scene(r);
    check(&s, "local_contrast", rg_graph_local_contrast(s.graph, &contrast, s.values));
    const rg_lrn_desc lrn = rg_lrn_desc_default();
    s = image_scene(r);
    check(&s, "lrn", rg_graph_lrn(s.graph, &lrn, s.values));
    for (int64_t groups = 0; groups < 4; groups += 3) { /* 0: instances */
        rg_group_norm_desc group = rg_group_norm_desc_default();
        group.groups = groups;
        group.epsilon = 1e-3;
        s = image_scene(r);
        add_input(&s, 1, DIMS(6));
        add_input(&s, 1, DIMS(6));
        check(&s, "group_norm", rg_graph_group_norm(s.graph, &group, s.values));
    }
    rg_batch_norm_desc batch = rg_batch_norm_desc_default();
    batch.epsilon = 1e-3;
    s = image_scene(r);
    add_input(&s, 1, DIMS(6));
    add_input(&s, 1, DIMS(6));
    check(&s, "batch_norm", rg_graph_batch_norm(s.graph, &batch, s.values));
    for (int given = 0; given < 2; given++) {
        static const double variance[6] = { 0.5, 1, 2, 3, 0.25, 4 };
        batch.statistics = given ? RG_BATCH_NORM_GIVEN : RG_BATCH_NORM_RUNNING;
        s = image_scene(r);
        for (int i = 0; i < 4; i++)
            add_input(&s, 1, DIMS(6));
        EXPECT_OK(rg_tensor_write(s.x[4], variance, sizeof variance, RG_LAYOUT_SAME));
        check(&s, "batch_norm by statistics", rg_graph_batch_norm(s.graph, &batch, s.values));
    }
}

static void test_arithmetic(rig *r)
{
    static const rg_arithmetic_kind kinds[] = { RG_ARITHMETIC_ADD, RG_ARITHMETIC_SUBTRACT,
                                                RG_ARITHMETIC_MULTIPLY, RG_ARITHMETIC_DIVIDE,
                                                RG_ARITHMETIC_COMPARE };
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        rg_arithmetic_desc desc = rg_arithmetic_desc_default();
        desc.kind = kinds[i];
        scene s = image_scene(r);
        add_input(&s, 4, DIMS(2, 4, 5, 6));
        s.forward_only = desc.kind == RG_ARITHMETIC_COMPARE;
        check(&s, "arithmetic", rg_graph_arithmetic(s.graph, &desc, s.values));
    }
}

static void test_shapes(rig *r)
{
    const rg_concat_desc concat = rg_concat_desc_default();
    scene s = image_scene(r);
    add_input(&s, 4, DIMS(2, 4, 5, 3));
    check(&s, "concat", rg_graph_concat(s.graph, &concat, s.values));
    rg_reshape_desc reshape = rg_reshape_desc_default();
    reshape.dims_count = 2;
    memcpy(reshape.dims, DIMS(-1, 10), 2 * sizeof reshape.dims[0]);
    s = image_scene(r);
    check(&s, "reshape", rg_graph_reshape(s.graph, &reshape, s.values));
    rg_pad_desc pad = rg_pad_desc_default();
    pad.before[1] = pad.after[2] = 2;
    s = image_scene(r);
    check(&s, "pad", rg_graph_pad(s.graph, &pad, s.values));
    for (int kind = 0; kind < 2; kind++) {
        rg_upsample_desc upsample = rg_upsample_desc_default();
        upsample.kind = kind == 0 ? RG_UPSAMPLE_NEAREST : RG_UPSAMPLE_BILINEAR;
        s = image_scene(r);
        check(&s, "upsample", rg_graph_upsample(s.graph, &upsample, s.values));
        upsample.output[0] = 7; /* MPSNNBilinearScaleNode: a size */
        upsample.output[1] = 9;
        s = image_scene(r);
        check(&s, "scale", rg_graph_upsample(s.graph, &upsample, s.values));
    }
}

static void test_others(rig *r)
{
    for (int kind = 0; kind < 2; kind++) {
        rg_softmax_desc softmax = rg_softmax_desc_default();
        softmax.kind = kind == 0 ? RG_SOFTMAX_PLAIN : RG_SOFTMAX_LOG;
        scene s = image_scene(r);
        check(&s, "softmax", rg_graph_softmax(s.graph, &softmax, s.values));
    }
    const rg_gram_desc gram = rg_gram_desc_default();
    scene s = image_scene(r);
    check(&s, "gram", rg_graph_gram(s.graph, &gram, s.values));
    rg_dropout_desc dropout = rg_dropout_desc_default();
    s = image_scene(r);
    check(&s, "dropout", rg_graph_dropout(s.graph, &dropout, s.values));
    const int64_t step = 3;
    dropout.step_input = true;
    s = image_scene(r);
    s.values[s.count] = rg_graph_source(s.graph, "1");
    s.x[s.count] = tensor_of(r->device, RG_I64, 0, NULL);
    EXPECT_OK(rg_tensor_write(s.x[s.count++], &step, sizeof step, RG_LAYOUT_SAME));
    check(&s, "dropout by step", rg_graph_dropout(s.graph, &dropout, s.values));
    rg_loss_desc loss = rg_loss_desc_default(); /* labels are a source */
    loss.kind = RG_LOSS_MEAN_SQUARED;
    s = image_scene(r);
    add_input(&s, 4, DIMS(2, 4, 5, 6));
    check(&s, "loss", rg_graph_loss(s.graph, &loss, s.values));
    loss.kind = RG_LOSS_INITIAL_GRADIENT;
    s = image_scene(r);
    s.forward_only = true;
    rg_node *ones = rg_graph_node(s.graph, "loss", &loss, s.values, 1);
    if (ones != NULL)
        check(&s, "initial gradient", ones);
    else
        EXPECT_OK(rg_graph_status(s.graph));
    EXPECT(!rg_node_is_gradient(NULL));
}

/* isLabelsGradientFilter: a gradient node of a loss for labels alone; there is one for both, too.
 */
static void test_label_gradient(rig *r)
{
    rg_loss_desc desc = rg_loss_desc_default();
    desc.kind = RG_LOSS_KULLBACK_LEIBLER;
    desc.reduction = RG_LOSS_SUM;
    rg_graph *graph = graph_new();
    rg_value *const in[] = { rg_graph_source(graph, "y"), rg_graph_source(graph, "labels") };
    rg_node *loss = rg_graph_loss(graph, &desc, in);
    rg_value *dy = rg_graph_constant(graph, rg_node_output(loss, 0), 2);
    rg_node *labels = rg_graph_gradient(graph, loss, &dy, 2), *both;
    both = rg_graph_gradient(graph, loss, &dy, 3);
    EXPECT(rg_node_output(labels, 0) == NULL);
    EXPECT_OK(rg_graph_result(graph, rg_node_output(labels, 1), "alone"));
    EXPECT_OK(rg_graph_result(graph, rg_node_output(both, 0), "dy"));
    EXPECT_OK(rg_graph_result(graph, rg_node_output(both, 1), "dlabels"));
    rg_plan *plan = f64_plan(r->device, graph);
    rg_tensor *const sources[] = { tensor_of(r->device, RG_F64, 4, DIMS(1, 1, 1, 2)),
                                   tensor_of(r->device, RG_F64, 4, DIMS(1, 1, 1, 2)) };
    const double y[] = { -1, -2 }, t[] = { 0.25, 0.75 };
    double alone[2], dx[2], dt[2];
    EXPECT_OK(rg_tensor_write(sources[0], y, sizeof y, RG_LAYOUT_SAME));
    EXPECT_OK(rg_tensor_write(sources[1], t, sizeof t, RG_LAYOUT_SAME));
    f64_run(r, plan, sources);
    f64_read(plan, "alone", alone);
    f64_read(plan, "dy", dx);
    f64_read(plan, "dlabels", dt);
    for (int i = 0; i < 2; i++) { /* of the sum of t (ln t - y) */
        EXPECT(dx[i] == -2 * t[i] && alone[i] == dt[i]);
        EXPECT(fabs(dt[i] - 2 * (log(t[i]) + 1 - y[i])) < 1e-14);
        rg_tensor_destroy(sources[i]);
    }
    rg_plan_destroy(plan);
    rg_graph_destroy(graph);
}

/* MPSCNNSubPixelConvolutionDescriptor with a factor of 2: channels (row, column, c) of a pixel
 * become four pixels, dst(y, x, c) = z(y / 2, x / 2, 4 / 2 (2 (y % 2) + x % 2) + c). */
enum { SUB_H = 2, SUB_W = 3, SUB_C = 2, SUB_COUNT = SUB_H * SUB_W * 4 * SUB_C };

static int64_t sub_pixel(int64_t y, int64_t x, int64_t c)
{
    return ((y / 2 * SUB_W + x / 2) * 4 + 2 * (y % 2) + x % 2) * SUB_C + c;
}

static rg_value *shuffle(rg_graph *graph, rg_value *z)
{
    rg_reshape_desc reshape = rg_reshape_desc_default();
    rg_transpose_desc transpose = rg_transpose_desc_default();
    reshape.dims_count = transpose.order_count = 6;
    memcpy(reshape.dims, DIMS(-1, SUB_H, SUB_W, 2, 2, SUB_C), 6 * sizeof reshape.dims[0]);
    memcpy(transpose.order, DIMS(0, 1, 3, 2, 4, 5), 6 * sizeof transpose.order[0]);
    rg_value *apart = rg_node_output(rg_graph_reshape(graph, &reshape, &z), 0);
    rg_value *moved = rg_node_output(rg_graph_transpose(graph, &transpose, &apart), 0);
    reshape.dims_count = 4;
    memcpy(reshape.dims, DIMS(-1, 2 * SUB_H, 2 * SUB_W, SUB_C), 4 * sizeof reshape.dims[0]);
    return rg_node_output(rg_graph_reshape(graph, &reshape, &moved), 0);
}

static void test_sub_pixels(rig *r)
{
    rg_graph *graph = graph_new();
    rg_value *z = rg_graph_source(graph, "z"), *dy = rg_graph_source(graph, "dy");
    rg_value *y = shuffle(graph, z);
    EXPECT_OK(rg_graph_gradients(graph, &y, &dy, 1, NULL, NULL));
    EXPECT_OK(rg_graph_result(graph, y, "y"));
    EXPECT_OK(rg_graph_result(graph, rg_value_gradient(z), "dz"));
    rg_plan *plan = f64_plan(r->device, graph);
    rg_tensor *const sources[] = {
        filled(r->device, RG_F64, 4, DIMS(1, SUB_H, SUB_W, 4 * SUB_C), 1),
        filled(r->device, RG_F64, 4, DIMS(1, 2 * SUB_H, 2 * SUB_W, SUB_C), 2)
    };
    double in[SUB_COUNT], up[SUB_COUNT], out[SUB_COUNT], back[SUB_COUNT];
    EXPECT_OK(rg_tensor_read(sources[0], in, sizeof in, RG_LAYOUT_SAME));
    EXPECT_OK(rg_tensor_read(sources[1], up, sizeof up, RG_LAYOUT_SAME));
    f64_run(r, plan, sources);
    f64_read(plan, "y", out);
    f64_read(plan, "dz", back);
    for (int64_t i = 0; i < SUB_COUNT; i++) {
        const int64_t c = i % SUB_C, x = i / SUB_C % (2 * SUB_W), row = i / SUB_C / (2 * SUB_W);
        EXPECT(out[i] == in[sub_pixel(row, x, c)] && back[sub_pixel(row, x, c)] == up[i]);
    }
    rg_tensor_destroy(sources[0]);
    rg_tensor_destroy(sources[1]);
    rg_plan_destroy(plan);
    rg_graph_destroy(graph);
}

int main(void)
{
    RUN_ON_DEVICES(test_sub_pixels, test_convolutions, test_neurons, test_reductions, test_pools,
                   test_norms, test_arithmetic, test_shapes, test_others, test_label_gradient);
    return rg_test_report();
}
