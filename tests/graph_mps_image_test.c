/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Batches of separate images in plans, where an image is repeated, is the only one, or is known by
 * its state alone: each is one image. On any device. docs/mps.md names these tests. */
#include "any_device.h"
#include "graph_f64.h"

enum { HEIGHT = 2, WIDTH = 3, PIXELS = HEIGHT * WIDTH };

/* The 3x3 average of images, with zeros around them. */
static rg_pool_desc average_desc(void)
{
    rg_pool_desc desc = rg_pool_desc_default();
    desc.kind = RG_POOL_AVERAGE;
    desc.window[0] = desc.window[1] = 3;
    desc.stride[0] = desc.stride[1] = 1;
    desc.padding.policy = RG_PADDING_SAME;
    return desc;
}

static rg_value *average(rg_graph *graph, rg_value *x)
{
    const rg_pool_desc desc = average_desc();
    return rg_node_output(rg_graph_pool(graph, &desc, &x), 0);
}

/* The same by a kernel, of one image. */
static rg_tensor *average_of(rig *r, rg_tensor *image)
{
    const rg_pool_desc desc = average_desc();
    rg_kernel *kernel = NULL;
    rg_tensor *y = NULL;
    EXPECT_OK(rg_pool_create(r->device, &desc, &kernel));
    EXPECT_OK(rg_kernel_forward_alloc(kernel, r->commands, 1, &image, false, &y, NULL));
    EXPECT_OK(rig_run(r));
    rg_kernel_destroy(kernel);
    return y;
}

/* Expects a result to have these dims, and the elements of `parts` behind each other. */
static void expect_parts(rg_plan *plan, const char *name, int32_t rank, const int64_t dims[],
                         rg_tensor *const parts[], int64_t count)
{
    rg_tensor_desc desc = { 0 };
    double all[4 * PIXELS], one[2 * PIXELS];
    EXPECT_OK(rg_tensor_get_desc(f64_result(plan, name), &desc));
    EXPECT(desc.rank == rank && memcmp(desc.dims, dims, (size_t)rank * sizeof dims[0]) == 0);
    f64_read(plan, name, all);
    for (int64_t n = 0; n < count; n++) {
        rg_tensor_desc part = { 0 };
        EXPECT_OK(rg_tensor_get_desc(parts[n], &part));
        int64_t elements = 1;
        for (int32_t d = 0; d < part.rank; d++)
            elements *= part.dims[d];
        const size_t bytes = (size_t)elements * sizeof one[0];
        EXPECT_OK(rg_tensor_read(parts[n], one, bytes, RG_LAYOUT_SAME));
        EXPECT(memcmp(one, all + n * elements, bytes) == 0);
    }
}

/* Only the states tell how many images there are: no window sees pixels of two. */
static void test_states_of_images(rig *r)
{
    const rg_dropout_desc dropout = rg_dropout_desc_default();
    rg_graph *graph = graph_new();
    rg_value *dy = rg_graph_source(graph, "dy");
    rg_state_value *state = rg_graph_source_state(graph, "mask", "dropout", &dropout);
    const rg_gradient_values values = { .dy = &dy, .dy_count = 1 };
    rg_node *back = rg_graph_gradient_from_state(graph, state, &values, 1);
    EXPECT_OK(rg_graph_result(graph, average(graph, rg_node_output(back, 0)), "y"));
    rg_plan *plan = f64_plan(r->device, graph);
    rg_kernel *kernel = NULL;
    EXPECT_OK(rg_dropout_create(r->device, &dropout, &kernel));
    for (int count = 1; count <= 2; count++) {
        rg_tensor *x[2], *y[2], *dx[2], *want[2], *dys[2];
        rg_state *states[2];
        for (int n = 0; n < count; n++) {
            x[n] = filled(r->device, RG_F64, 3, DIMS(HEIGHT, WIDTH, 1), 3 + (uint64_t)n);
            dys[n] = x[0];
        }
        EXPECT_OK(rg_kernel_forward_alloc(kernel, r->commands, count, x, false, y, states));
        EXPECT_OK(rg_kernel_gradient_alloc(kernel, r->commands, count, dys, NULL, NULL, states, 1,
                                           false, dx));
        EXPECT_OK(rig_run(r));
        for (int n = 0; n < count; n++)
            want[n] = average_of(r, dx[n]);
        EXPECT_OK(
            rg_plan_encode_batch_with_states(plan, r->commands, count, dys, count, states, count));
        EXPECT_OK(rig_run(r));
        expect_parts(plan, "y", 4, DIMS(count, HEIGHT, WIDTH, 1), want, count);
        for (int n = 0; n < count; n++) {
            rg_tensor_destroy(x[n]);
            rg_tensor_destroy(y[n]);
            rg_tensor_destroy(dx[n]);
            rg_tensor_destroy(want[n]);
            rg_state_destroy(states[n]);
        }
    }
    rg_kernel_destroy(kernel);
    rg_plan_destroy(plan);
    rg_graph_destroy(graph);
}

/* A node that names its source image, as in MPS, where the gradient reads the state alone: its
 * shape is that in the state, also of images of rank 3. */
static void test_source_not_read(rig *r)
{
    enum { IMAGES = 2, COUNT = 24 };
    const rg_dropout_desc desc = rg_dropout_desc_default();
    rg_graph *graph = graph_new();
    rg_value *x = rg_graph_source(graph, "x"), *dy = rg_graph_source(graph, "dy");
    rg_state_value *state = rg_graph_source_state(graph, "state", "dropout", &desc);
    const rg_gradient_values values = { .dy = &dy, .dy_count = 1, .x = &x, .x_count = 1 };
    rg_node *node = rg_graph_gradient_from_state(graph, state, &values, 1);
    EXPECT_OK(rg_graph_result(graph, rg_node_output(node, 0), "dx"));
    rg_plan *plan = f64_plan(r->device, graph);
    EXPECT(rg_plan_sources(plan) == 1 && strcmp(rg_plan_source_name(plan, 0), "dy") == 0);
    rg_kernel *kernel = NULL;
    EXPECT_OK(rg_dropout_create(r->device, &desc, &kernel));
    rg_tensor *in[IMAGES], *y[IMAGES], *dx[IMAGES];
    rg_state *states[IMAGES] = { NULL };
    double want[IMAGES * COUNT], have[IMAGES * COUNT];
    for (int n = 0; n < IMAGES; n++)
        in[n] = filled(r->device, RG_F64, 3, DIMS(2, 4, 3), 3 + (uint64_t)n);
    EXPECT_OK(rg_kernel_forward_alloc(kernel, r->commands, IMAGES, in, false, y, states));
    EXPECT_OK(rg_kernel_gradient_alloc(kernel, r->commands, IMAGES, in, NULL, NULL, states, 1,
                                       false, dx));
    EXPECT_OK(rig_run(r));
    for (int n = 0; n < IMAGES; n++)
        EXPECT_OK(rg_tensor_read(dx[n], want + n * COUNT, sizeof want / IMAGES, RG_LAYOUT_SAME));
    for (int n = 1; n <= IMAGES; n++) {
        EXPECT_OK(rg_plan_encode_batch_with_states(plan, r->commands, n, in, n, states, n));
        EXPECT_OK(rig_run(r));
        f64_read(plan, "dx", have);
        EXPECT(memcmp(have, want, (size_t)n * COUNT * sizeof want[0]) == 0);
    }
    EXPECT_OK(rg_plan_encode_with_states(plan, r->commands, in, 1, states, 1));
    EXPECT_OK(rig_run(r));
    EXPECT(same_bits(dx[0], f64_result(plan, "dx")));
    for (int n = 0; n < IMAGES; n++) {
        rg_tensor_destroy(in[n]);
        rg_tensor_destroy(y[n]);
        rg_tensor_destroy(dx[n]);
        rg_state_destroy(states[n]);
    }
    rg_kernel_destroy(kernel);
    rg_plan_destroy(plan);
    rg_graph_destroy(graph);
}

/* One state of one image, repeated: each image has that mask. */
static void test_repeated_state(rig *r)
{
    const rg_dropout_desc dropout = rg_dropout_desc_default();
    rg_graph *graph = graph_new();
    rg_value *dy = rg_graph_source(graph, "dy");
    const rg_gradient_values values = { .dy = &dy, .dy_count = 1 };
    rg_node *back = rg_graph_gradient_from_state(
        graph, rg_graph_source_state(graph, "mask", "dropout", &dropout), &values, 1);
    EXPECT_OK(rg_graph_result(graph, rg_node_output(back, 0), "dx"));
    rg_plan *plan = f64_plan(r->device, graph);
    rg_kernel *kernel = NULL;
    EXPECT_OK(rg_dropout_create(r->device, &dropout, &kernel));
    for (int32_t rank = 3; rank <= 4; rank++) {
        const int64_t dims[] = { 1, HEIGHT, WIDTH, 1 };
        rg_tensor *dys[2], *y = NULL, *dx[2];
        rg_state *state = NULL;
        for (int n = 0; n < 2; n++)
            dys[n] = filled(r->device, RG_F64, rank, dims + 4 - rank, 5 + (uint64_t)n);
        EXPECT_OK(rg_kernel_forward_alloc(kernel, r->commands, 1, dys, false, &y, &state));
        for (int n = 0; n < 2; n++)
            EXPECT_OK(rg_kernel_gradient_alloc(kernel, r->commands, 1, &dys[n], NULL, NULL, &state,
                                               1, false, &dx[n]));
        rg_state *const states[] = { state, state };
        for (int repeated = 0; repeated < 2; repeated++) {
            rg_tensor *const given[] = { dys[0], dys[1 - repeated] };
            rg_tensor *const want[] = { dx[0], dx[1 - repeated] };
            EXPECT_OK(rg_plan_encode_batch_with_states(plan, r->commands, 2, given, 2, states, 2));
            EXPECT_OK(rig_run(r));
            expect_parts(plan, "dx", 4, DIMS(2, HEIGHT, WIDTH, 1), want, 2);
        }
        for (int n = 0; n < 2; n++) {
            rg_tensor_destroy(dys[n]);
            rg_tensor_destroy(dx[n]);
        }
        rg_tensor_destroy(y);
        rg_state_destroy(state);
    }
    rg_kernel_destroy(kernel);
    rg_plan_destroy(plan);
    rg_graph_destroy(graph);
}

/* The same image twice is two images, of any rank, temporary or not; and their masks differ. */
static void test_repeated_images(rig *r)
{
    const rg_dropout_desc dropout = rg_dropout_desc_default();
    rg_graph *graph = graph_new();
    rg_value *x = rg_graph_source(graph, "x");
    EXPECT_OK(rg_graph_result(graph, average(graph, x), "y"));
    EXPECT_OK(
        rg_graph_result(graph, rg_node_output(rg_graph_dropout(graph, &dropout, &x), 0), "some"));
    rg_plan *plan = f64_plan(r->device, graph);
    const double ones[2 * PIXELS * 2] = { 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1 };
    for (int32_t rank = 3; rank <= 4; rank++) {
        const int64_t dims[] = { 1, HEIGHT, WIDTH, 2 };
        double some[4 * PIXELS];
        rg_tensor *image = tensor_of(r->device, RG_F64, rank, dims + 4 - rank), *temporary = NULL;
        EXPECT_OK(rg_tensor_write(image, ones, sizeof ones / 2, RG_LAYOUT_SAME));
        rg_tensor *want = average_of(r, image), *const wants[] = { want, want };
        rg_tensor *const twice[] = { image, image };
        EXPECT_OK(rg_plan_encode_batch(plan, r->commands, 2, twice));
        EXPECT_OK(rig_run(r));
        expect_parts(plan, "y", 4, DIMS(2, HEIGHT, WIDTH, 2), wants, 2);
        f64_read(plan, "some", some);
        EXPECT(memcmp(some, some + 2 * PIXELS, 2 * PIXELS * sizeof some[0]) != 0);
        const rg_tensor_desc desc = rg_tensor_desc_dense(RG_F64, rank, dims + 4 - rank);
        EXPECT_OK(rg_tensor_create_temporary(r->commands, &desc, &temporary));
        EXPECT_OK(rg_commands_write(r->commands, temporary, ones, sizeof ones / 2, RG_LAYOUT_SAME));
        EXPECT_OK(rg_tensor_set_read_count(temporary, 3));
        rg_tensor *const again[] = { temporary, temporary };
        EXPECT_OK(rg_plan_encode_batch(plan, r->commands, 2, again));
        EXPECT(rg_tensor_read_count(temporary) == 1);
        EXPECT_OK(rig_run(r));
        expect_parts(plan, "y", 4, DIMS(2, HEIGHT, WIDTH, 2), wants, 2);
        rg_tensor_destroy(image);
        rg_tensor_destroy(temporary);
        rg_tensor_destroy(want);
    }
    rg_plan_destroy(plan);
    rg_graph_destroy(graph);
}

/* One image with two kinds of labels, and a whole batch beside images: the losses of each. */
static void test_repeated_beside_labels(rig *r)
{
    rg_loss_desc desc = rg_loss_desc_default();
    desc.kind = RG_LOSS_MEAN_SQUARED;
    desc.reduction = RG_LOSS_SUM;
    desc.across_batch = false;
    rg_graph *graph = graph_new();
    rg_value *const in[] = { rg_graph_source(graph, "x"), rg_graph_source(graph, "labels") };
    EXPECT_OK(rg_graph_result(graph, rg_node_output(rg_graph_loss(graph, &desc, in), 0), "loss"));
    rg_plan *plan = f64_plan(r->device, graph);
    rg_tensor *image = tensor_of(r->device, RG_F64, 3, DIMS(1, 1, 2)), *labels[2], *all = NULL;
    const double x[] = { 1, 2 }, t[2][2] = { { 0, 2 }, { 1, -1 } };
    EXPECT_OK(rg_tensor_write(image, x, sizeof x, RG_LAYOUT_SAME));
    for (int n = 0; n < 2; n++) {
        labels[n] = tensor_of(r->device, RG_F64, 3, DIMS(1, 1, 2));
        EXPECT_OK(rg_tensor_write(labels[n], t[n], sizeof t[n], RG_LAYOUT_SAME));
    }
    all = tensor_of(r->device, RG_F64, 4, DIMS(2, 1, 1, 2));
    EXPECT_OK(rg_tensor_write(all, t, sizeof t, RG_LAYOUT_SAME));
    for (int whole = 0; whole < 2; whole++) {
        rg_tensor *const sources[] = { image, image, whole ? all : labels[0],
                                       whole ? all : labels[1] };
        double loss[2] = { 0 };
        EXPECT_OK(rg_plan_encode_batch(plan, r->commands, 2, sources));
        EXPECT_OK(rig_run(r));
        f64_read(plan, "loss", loss);
        EXPECT(loss[0] == 1 && loss[1] == 9);
    }
    double loss = 0;
    EXPECT_OK(rg_plan_encode_batch(plan, r->commands, 1, (rg_tensor *[]){ image, labels[1] }));
    EXPECT_OK(rig_run(r));
    rg_tensor_desc shape = { 0 };
    EXPECT_OK(rg_tensor_get_desc(f64_result(plan, "loss"), &shape));
    EXPECT(shape.rank == 1 && shape.dims[0] == 1); /* of one image, not of its rows */
    f64_read(plan, "loss", &loss);
    EXPECT(loss == 9);
    for (int n = 0; n < 2; n++)
        rg_tensor_destroy(labels[n]);
    rg_tensor_destroy(image);
    rg_tensor_destroy(all);
    rg_plan_destroy(plan);
    rg_graph_destroy(graph);
}

/* A batch of one image is (1, h, w, c): rows and columns are dimensions 1 and 2, labels of classes
 * go with it, and so does its view. */
static void test_one_image(rig *r)
{
    rg_reduce_desc mean = rg_reduce_desc_default();
    mean.kind = RG_REDUCE_MEAN;
    mean.dims_count = 2;
    mean.dims[0] = 1;
    mean.dims[1] = 2;
    mean.keep_dims = true;
    rg_loss_desc loss = rg_loss_desc_default();
    loss.kind = RG_LOSS_SOFTMAX_CROSS_ENTROPY;
    loss.labels = RG_LOSS_CLASS_LABELS;
    loss.across_batch = false;
    rg_graph *graph = graph_new();
    rg_value *const in[] = { rg_graph_source(graph, "x"), rg_graph_source(graph, "classes") };
    EXPECT_OK(rg_graph_result(graph, rg_node_output(rg_graph_reduce(graph, &mean, in), 0), "mean"));
    EXPECT_OK(rg_graph_result(graph, rg_node_output(rg_graph_loss(graph, &loss, in), 0), "loss"));
    rg_plan *plan = f64_plan(r->device, graph);
    rg_tensor *wide = tensor_of(r->device, RG_F64, 3, DIMS(1, 2, 3)), *image = NULL;
    rg_tensor *classes = tensor_of(r->device, RG_I32, 2, DIMS(1, 2));
    const double elements[] = { 1, 2, 9, 3, 6, 9 };
    const int32_t class[] = { 0, 1 };
    EXPECT_OK(rg_tensor_write(wide, elements, sizeof elements, RG_LAYOUT_SAME));
    EXPECT_OK(rg_tensor_write(classes, class, sizeof class, RG_LAYOUT_SAME));
    EXPECT_OK(rg_tensor_slice(wide, DIMS(0, 0, 0), DIMS(1, 2, 2), NULL, &image));
    for (int64_t count = 1; count <= 2; count++) {
        rg_tensor_desc desc = { 0 };
        double means[4] = { 0 }, losses[2];
        rg_tensor *sources[4];
        for (int64_t n = 0; n < count; n++) {
            sources[n] = image;
            sources[count + n] = classes;
        }
        EXPECT_OK(rg_plan_encode_batch(plan, r->commands, count, sources));
        EXPECT_OK(rig_run(r));
        EXPECT_OK(rg_tensor_get_desc(f64_result(plan, "mean"), &desc));
        EXPECT(desc.rank == 4 && desc.dims[0] == count && desc.dims[3] == 2);
        EXPECT_OK(rg_tensor_get_desc(f64_result(plan, "loss"), &desc));
        EXPECT(desc.rank == 1 && desc.dims[0] == count);
        f64_read(plan, "mean", means);
        f64_read(plan, "loss", losses);
        for (int64_t n = 0; n < count; n++)
            EXPECT(means[2 * n] == 2 && means[2 * n + 1] == 4 && losses[n] == losses[0]);
    }
    const rg_tensor_desc vector = rg_tensor_desc_dense(RG_F64, 1, DIMS(3));
    rg_tensor *vectors[2], *sources[4] = { NULL, NULL, classes, classes };
    for (int n = 0; n < 2; n++) {
        EXPECT_OK(rg_tensor_create(r->device, &vector, &vectors[n]));
        sources[n] = vectors[n];
    }
    EXPECT_FAILS(rg_plan_encode_batch(plan, r->commands, 2, sources), RG_INVALID_ARGUMENT,
                 "the source 'x' is f64[3] for each image, and has no dimension for images");
    for (int n = 0; n < 2; n++)
        rg_tensor_destroy(vectors[n]);
    rg_tensor_destroy(image);
    rg_tensor_destroy(wide);
    rg_tensor_destroy(classes);
    rg_plan_destroy(plan);
    rg_graph_destroy(graph);
}

/* Weights of one output channel have as many dimensions as an image, and are none: their gradient
 * is a sum over images, whose states tell the shape of the weights. */
static void test_weights_of_one_channel(rig *r)
{
    rg_conv_desc desc = rg_conv_desc_default();
    desc.bias = false;
    rg_kernel *kernel = NULL;
    EXPECT_OK(rg_conv_create(r->device, &desc, &kernel));
    rg_graph *graph = graph_new();
    rg_state_value *state = rg_graph_source_state(graph, "s", "conv", &desc);
    rg_value *const x[] = { rg_graph_source(graph, "x"), rg_graph_source(graph, "w") };
    rg_value *dy = rg_graph_source(graph, "dy");
    const rg_gradient_values values = { &dy, 1, x, 2, NULL, 0 };
    rg_node *node = rg_graph_gradient_from_state(graph, state, &values, 3);
    EXPECT_OK(rg_graph_result(graph, rg_node_output(node, 0), "dx"));
    EXPECT_OK(rg_graph_result(graph, rg_node_output(node, 1), "dw"));
    rg_plan *plan = f64_plan(r->device, graph);
    rg_tensor *in[4], *y[2], *dx[4], *sources[6];
    rg_state *states[2];
    in[2] = in[3] = filled(r->device, RG_F64, 4, DIMS(1, 1, 1, 2), 1);
    dx[2] = dx[3] = tensor_of(r->device, RG_F64, 4, DIMS(1, 1, 1, 2));
    for (int repeated = 0; repeated < 2; repeated++) {
        for (int n = 0; n < 2; n++) {
            in[n] = filled(r->device, RG_F64, 4, DIMS(1, HEIGHT, WIDTH, 2), 3 + (uint64_t)n);
            dx[n] = tensor_of(r->device, RG_F64, 4, DIMS(1, HEIGHT, WIDTH, 2));
            sources[4 + n] = filled(r->device, RG_F64, 4, DIMS(1, HEIGHT, WIDTH, 1), 7);
        }
        rg_tensor *const given[] = { in[0], in[1 - repeated], in[2], in[3] };
        EXPECT_OK(rg_kernel_forward_alloc(kernel, r->commands, 2, given, false, y, states));
        EXPECT_OK(rg_kernel_gradient_batch(kernel, r->commands, 2, sources + 4, given, NULL, states,
                                           dx, 0));
        memcpy(sources, given, sizeof given);
        EXPECT_OK(rg_plan_encode_batch_with_states(plan, r->commands, 2, sources, 6, states, 2));
        EXPECT_OK(rig_run(r));
        expect_parts(plan, "dx", 4, DIMS(2, HEIGHT, WIDTH, 2), dx, 2);
        expect_parts(plan, "dw", 4, DIMS(1, 1, 1, 2), dx + 2, 1);
        for (int n = 0; n < 2; n++) {
            rg_tensor_destroy(in[n]);
            rg_tensor_destroy(dx[n]);
            rg_tensor_destroy(y[n]);
            rg_tensor_destroy(sources[4 + n]);
            rg_state_destroy(states[n]);
        }
    }
    rg_tensor_destroy(in[2]);
    rg_tensor_destroy(dx[2]);
    rg_kernel_destroy(kernel);
    rg_plan_destroy(plan);
    rg_graph_destroy(graph);
}

int main(void)
{
    RUN_ON_DEVICES(test_states_of_images, test_source_not_read, test_repeated_state,
                   test_repeated_images, test_repeated_beside_labels, test_one_image,
                   test_weights_of_one_channel);
    return rg_test_report();
}
