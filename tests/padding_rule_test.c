/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Padding policies of the caller's own, as MPS's custom MPSNNPadding, and the defaults of its
 * pooling nodes. On any device. docs/mps.md names these tests. */
#include "any_device.h"
#include "graph_f64.h"

/* What a rule has seen, and what it does. */
typedef struct rule {
    int calls;
    rg_window window;       /* of the last call */
    rg_placement suggested; /* likewise */
    int64_t before, output; /* of both axes; output 0: as suggested */
    bool clamps;            /* changes the edge of a pooling */
    rg_status status;
} rule;

static rg_status place(void *context, const char *op, void *desc, const rg_window *window,
                       rg_placement *placement)
{
    rule *r = context;
    r->calls++;
    r->window = *window;
    r->suggested = *placement;
    for (int i = 0; i < 2; i++) {
        placement->before[i] = r->before;
        if (r->output != 0)
            placement->output[i] = r->output;
    }
    if (r->clamps && strcmp(op, "pool") == 0)
        ((rg_pool_desc *)desc)->edge = RG_POOL_CLAMP;
    return r->status;
}

/* paddingForTensorflowAveragePooling: SAME with the remainder at the end, and a hook that clamps.
 */
static void test_kernel(rig *r)
{
    rg_pool_desc desc = rg_pool_desc_default(), placed_desc = desc;
    desc.kind = RG_POOL_AVERAGE;
    desc.padding.policy = RG_PADDING_SAME;
    desc.padding.remainder = RG_REMAINDER_BOTTOM_RIGHT;
    rule tensorflow = { .before = 0, .clamps = true };
    rg_kernel *kernel = NULL, *placed = NULL, *expected = NULL, *plain = NULL;
    const rg_tensor_desc x = rg_tensor_desc_dense(RG_F64, 4, DIMS(1, 5, 5, 1));
    rg_tensor_desc y;
    EXPECT_OK(rg_pool_create(r->device, &desc, &kernel));
    EXPECT_OK(rg_kernel_place(kernel, &x, 1, place, &tensorflow, &placed));
    EXPECT(tensorflow.calls == 1 && tensorflow.window.source[0] == 5);
    EXPECT(tensorflow.suggested.output[0] == 3 && tensorflow.suggested.before[0] == 0);
    EXPECT_OK(rg_kernel_shapes(placed, &x, &y));
    EXPECT(y.dims[1] == 3 && y.dims[2] == 3);
    placed_desc.kind = RG_POOL_AVERAGE;
    placed_desc.edge = RG_POOL_CLAMP;
    placed_desc.padding = (rg_padding){ .bottom = 1, .right = 1 };
    placed_desc.output[0] = placed_desc.output[1] = 3;
    EXPECT_OK(rg_pool_create(r->device, &placed_desc, &expected));
    EXPECT(rg_kernel_equal(placed, expected) && !rg_kernel_equal(placed, kernel));
    EXPECT_OK(rg_kernel_place(kernel, &x, 1, NULL, NULL, &plain)); /* the policy as numbers */
    EXPECT(!rg_kernel_equal(plain, placed));
    rg_kernel_destroy(kernel);
    rg_kernel_destroy(placed);
    rg_kernel_destroy(expected);
    rg_kernel_destroy(plain);
}

/* A plan asks for each size of the source; forward and gradient have the windows of the rule. */
static void test_plan(rig *r)
{
    const rg_pool_desc desc = rg_pool_desc_default();
    rule corner = { .before = 1, .output = 2 };
    rg_graph *graph = graph_new(), *copy = NULL;
    rg_value *x = rg_graph_source(graph, "x");
    rg_node *node = rg_graph_pool(graph, &desc, &x);
    rg_value *y = rg_node_output(node, 0);
    EXPECT_OK(rg_graph_gradients(graph, &y, NULL, 1, NULL, NULL));
    EXPECT_OK(rg_graph_result(graph, y, "y"));
    EXPECT_OK(rg_graph_result(graph, rg_value_gradient(x), "dx"));
    EXPECT_OK(rg_node_set_padding_rule(node, place, &corner));
    EXPECT_OK(rg_graph_copy(graph, &copy));
    EXPECT(rg_graph_equal(graph, copy));
    EXPECT_OK(rg_node_set_padding_rule(node, NULL, NULL));
    EXPECT(!rg_graph_equal(graph, copy));
    rg_plan *plan = f64_plan(r->device, copy), *second = NULL;
    EXPECT_OK(rg_plan_copy(plan, NULL, &second));
    for (int64_t size = 3; size <= 4; size++) {
        rg_tensor *image = tensor_of(r->device, RG_F64, 3, DIMS(size, size, 1));
        double pixels[16], out[4], back[16];
        for (int64_t i = 0; i < size * size; i++)
            pixels[i] = (double)(i + 1);
        EXPECT_OK(rg_tensor_write(image, pixels, bytes_of(image), RG_LAYOUT_SAME));
        corner.calls = 0;
        for (int run = 0; run < 2; run++) {
            f64_run(r, run == 0 ? plan : second, &image);
            f64_read(run == 0 ? plan : second, "y", out);
            f64_read(run == 0 ? plan : second, "dx", back);
            /* windows begin at -1 and 1: of the first, the last pixel is in the image alone */
            EXPECT(out[0] == 1 && out[1] == 3 && out[2] == (double)(2 * size + 1));
            EXPECT(out[3] == (double)(2 * size + 3));
            double sum = 0;
            for (int64_t i = 0; i < size * size; i++)
                sum += back[i];
            EXPECT(sum == 4 && back[0] == 1 && back[2 * size + 2] == 1);
        }
        EXPECT(corner.calls == 2 && corner.window.source[0] == size); /* one for each plan */
        f64_run(r, plan, &image);
        EXPECT(corner.calls == 2); /* the layout is known */
        rg_tensor_destroy(image);
    }
    rg_plan_destroy(plan);
    rg_plan_destroy(second);
    rg_graph_destroy(graph);
    rg_graph_destroy(copy);
}

/* Convolutions, also transposed and by an offset: the rule's numbers take the place of both. */
static void test_convolutions(rig *r)
{
    rg_conv_transpose_desc desc = rg_conv_transpose_desc_default();
    desc.bias = false;
    desc.by_offset = true;
    desc.kernel_offset[0] = desc.kernel_offset[1] = 1;
    rule crop = { .before = 1, .output = 4 };
    rg_kernel *kernel = NULL, *placed = NULL, *expected = NULL;
    const rg_tensor_desc x[] = { rg_tensor_desc_dense(RG_F64, 4, DIMS(1, 3, 3, 2)),
                                 rg_tensor_desc_dense(RG_F64, 4, DIMS(2, 3, 3, 2)) };
    rg_tensor_desc y;
    EXPECT_OK(rg_conv_transpose_create(r->device, &desc, &kernel));
    EXPECT_OK(rg_kernel_place(kernel, x, 2, place, &crop, &placed));
    EXPECT(crop.window.transposed);
    EXPECT_OK(rg_kernel_shapes(placed, x, &y));
    EXPECT(y.dims[1] == 4 && y.dims[2] == 4);
    desc.by_offset = false;
    desc.kernel_offset[0] = desc.kernel_offset[1] = 0;
    desc.output[0] = desc.output[1] = 4;
    desc.padding.top = desc.padding.left = 1;
    EXPECT_OK(rg_conv_transpose_create(r->device, &desc, &expected));
    EXPECT(rg_kernel_equal(placed, expected));
    rg_kernel_destroy(kernel);
    rg_kernel_destroy(placed);
    rg_kernel_destroy(expected);
    rg_conv_desc conv = rg_conv_desc_default();
    conv.bias = false;
    placed = NULL;
    EXPECT_OK(rg_conv_create(r->device, &conv, &kernel));
    EXPECT_OK(rg_kernel_place(kernel, x, 2, place, &crop, &placed));
    EXPECT_OK(rg_kernel_shapes(placed, x, &y));
    EXPECT(y.dims[1] == 4 && y.dims[3] == 2);
    rg_kernel_destroy(kernel);
    rg_kernel_destroy(placed);
}

static rg_status break_desc(void *context, const char *op, void *desc, const rg_window *window,
                            rg_placement *placement)
{
    (void)op;
    (void)window;
    (void)placement;
    rg_pool_desc *d = desc;
    const int kind = *(const int *)context;
    if (kind == 0)
        d->size = 3;
    else if (kind == 1)
        d->window[0] = -1;
    else if (kind == 2)
        d->indices = true;
    return RG_OK;
}

static void test_refused(rig *r)
{
    const rg_pool_desc desc = rg_pool_desc_default();
    const rg_softmax_desc softmax = rg_softmax_desc_default();
    rg_kernel *kernel = NULL, *other = NULL, *placed = NULL;
    const rg_tensor_desc x = rg_tensor_desc_dense(RG_F64, 4, DIMS(1, 5, 5, 1));
    const rg_tensor_desc row = rg_tensor_desc_dense(RG_F64, 1, DIMS(5));
    EXPECT_OK(rg_pool_create(r->device, &desc, &kernel));
    EXPECT_OK(rg_softmax_create(r->device, &softmax, &other));
    rule far = { .before = INT64_C(1) << 40 }, none = { .output = -1 };
    rule failing = { .status = RG_OUT_OF_MEMORY };
    EXPECT_FAILS(rg_kernel_place(other, &x, 1, place, &far, &placed), RG_UNSUPPORTED,
                 "softmax has no windows");
    EXPECT_FAILS(rg_kernel_place(NULL, &x, 1, place, &far, &placed), RG_INVALID_ARGUMENT, "NULL");
    EXPECT_FAILS(rg_kernel_place(kernel, NULL, 1, place, &far, &placed), RG_INVALID_ARGUMENT,
                 "x is NULL");
    EXPECT_FAILS(rg_kernel_place(kernel, &x, 2, place, &far, &placed), RG_INVALID_ARGUMENT,
                 "has 1 inputs, but 2 shapes");
    EXPECT_FAILS(rg_kernel_place(kernel, &x, 1, place, &far, NULL), RG_INVALID_ARGUMENT,
                 "placed is NULL");
    EXPECT_FAILS(rg_kernel_place(kernel, &row, 1, place, &far, &placed), RG_INVALID_ARGUMENT,
                 "rank 1");
    EXPECT_FAILS(rg_kernel_place(kernel, &x, 1, place, &far, &placed), RG_INVALID_ARGUMENT,
                 "rows before the image");
    EXPECT_FAILS(rg_kernel_place(kernel, &x, 1, place, &none, &placed), RG_INVALID_ARGUMENT,
                 "asks for -1 rows");
    EXPECT_FAILS(rg_kernel_place(kernel, &x, 1, place, &failing, &placed), RG_OUT_OF_MEMORY,
                 "pool: its padding rule failed: RG_OUT_OF_MEMORY");
    rg_padding_rule *const broken = break_desc;
    static const char *const words[] = { "size", "window", "number of inputs or outputs" };
    for (int kind = 0; kind < 3; kind++) {
        EXPECT_FAILS(rg_kernel_place(kernel, &x, 1, broken, &kind, &placed), RG_INVALID_ARGUMENT,
                     words[kind]);
        EXPECT(placed == NULL);
    }
    rg_graph *graph = graph_new();
    rg_value *in = rg_graph_source(graph, "x");
    rg_node *pool = rg_graph_pool(graph, &desc, &in);
    rg_node *soft = rg_graph_softmax(graph, &softmax, &in);
    EXPECT_FAILS(rg_node_set_padding_rule(soft, place, &far), RG_UNSUPPORTED, "has no windows");
    EXPECT_FAILS(rg_node_set_padding_rule(NULL, place, &far), RG_INVALID_ARGUMENT, "node is NULL");
    EXPECT_OK(rg_node_set_padding_rule(pool, place, &failing));
    EXPECT_OK(rg_graph_result(graph, rg_node_output(pool, 0), "y"));
    rg_plan *plan = f64_plan(r->device, graph);
    EXPECT_FAILS(rg_plan_prepare(plan, &x), RG_OUT_OF_MEMORY,
                 "pool_0, of f64[1, 5, 5, 1] from x: pool: its padding rule failed");
    rg_plan_destroy(plan);
    rg_graph_destroy(graph);
    rg_kernel_destroy(kernel);
    rg_kernel_destroy(other);
}

/* filterSize alone: kernel, stride and, where it is dilated, dilation; clamp; SAME. */
static void test_pooling_nodes(rig *r)
{
    const rg_pool_desc plain = rg_pool_desc_mps_node(RG_POOL_AVERAGE, 2, false);
    const rg_pool_desc dilated = rg_pool_desc_mps_node(RG_POOL_MAX, 3, true);
    EXPECT(plain.kind == RG_POOL_AVERAGE && plain.edge == RG_POOL_CLAMP);
    EXPECT(plain.window[1] == 2 && plain.stride[0] == 2 && plain.dilation[0] == 1);
    EXPECT(plain.padding.policy == RG_PADDING_SAME);
    EXPECT(plain.padding.remainder == RG_REMAINDER_TOP_LEFT);
    EXPECT(dilated.window[0] == 3 && dilated.stride[1] == 3 && dilated.dilation[0] == 3);
    rg_graph *graph = graph_new();
    rg_value *x = rg_graph_source(graph, "x");
    EXPECT_OK(rg_graph_result(graph, rg_node_output(rg_graph_pool(graph, &plain, &x), 0), "y"));
    rg_plan *plan = f64_plan(r->device, graph);
    rg_tensor *image = tensor_of(r->device, RG_F64, 3, DIMS(3, 3, 1));
    const double pixels[] = { 1, 2, 4, 8, 16, 32, 64, 128, 256 };
    double y[4];
    EXPECT_OK(rg_tensor_write(image, pixels, sizeof pixels, RG_LAYOUT_SAME));
    f64_run(r, plan, &image);
    f64_read(plan, "y", y); /* the remainder is at the top left, and windows shrink to the image */
    EXPECT(y[0] == 1 && y[1] == 3 && y[2] == 36 && y[3] == 108);
    EXPECT_FAILS(rg_pool_create(r->device, &(rg_pool_desc){ 0 }, NULL), RG_INVALID_ARGUMENT, "");
    rg_tensor_destroy(image);
    rg_plan_destroy(plan);
    rg_graph_destroy(graph);
}

int main(void)
{
    RUN_ON_DEVICES(test_kernel, test_plan, test_convolutions, test_refused, test_pooling_nodes);
    return rg_test_report();
}
