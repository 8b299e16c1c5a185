/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Losses as in MPS, on numbers worked out by hand. */
#include "any_device.h"
#include "mps.h"

/* One image (2, 1, 2), that is two pixels of two channels, or two of them; f64. */
typedef struct scene {
    rg_loss_desc desc;
    const double *y, *t, *w;
    int64_t images;
} scene;

static rg_tensor *numbers(rg_device *device, int32_t rank, const int64_t dims[],
                          const double from[])
{
    rg_tensor *tensor = tensor_of(device, RG_F64, rank, dims);
    if (from != NULL)
        EXPECT_OK(rg_tensor_write(tensor, from, bytes_of(tensor), RG_LAYOUT_SAME));
    return tensor;
}

static rg_loss_desc mps_desc(rg_loss_kind kind, rg_loss_reduction reduction)
{
    rg_loss_desc desc = rg_loss_desc_default();
    desc.kind = kind;
    desc.reduction = reduction;
    desc.across_batch = false;
    return desc;
}

static void expect_near(const rg_tensor *tensor, const double want[], const char *what)
{
    char *elements = elements_of(tensor);
    const double *got = (const double *)(const void *)elements;
    for (int64_t i = 0; want != NULL && i < count_of(tensor); i++) {
        EXPECT(is_near(got[i], want[i], 1e-12));
        if (!is_near(got[i], want[i], 1e-12))
            printf("    %s[%d] is %.15g, not %.15g\n", what, (int)i, got[i], want[i]);
    }
    free(elements);
}

/* MPSCNNLoss: loss and gradient in one call. MPSNNForwardLoss, MPSNNLossGradient: one after the
 * other, with labels too. All that is not NULL is compared. */
static void expect_scene(rig *r, const scene *s, const double loss[], const double dy[],
                         const double dt[])
{
    const bool none = s->desc.reduction == RG_LOSS_NONE;
    const int64_t *dims = DIMS(s->images, 2, 1, 2);
    const int32_t rank = none ? 4 : s->desc.across_batch ? 0 : 1;
    rg_loss_desc both = s->desc;
    both.gradient_output = true;
    rg_kernel *combined = NULL, *kernel = NULL;
    EXPECT_OK(rg_loss_create(r->device, &both, &combined));
    EXPECT_OK(rg_loss_create(r->device, &s->desc, &kernel));
    rg_tensor *x[3] = { numbers(r->device, 4, dims, s->y), numbers(r->device, 4, dims, s->t),
                        s->w != NULL ? numbers(r->device, 4, dims, s->w) : NULL };
    rg_tensor *made[2] = { numbers(r->device, rank, dims, NULL),
                           numbers(r->device, 4, dims, NULL) };
    rg_tensor *alone = numbers(r->device, rank, dims, NULL), *no_dy = NULL;
    rg_tensor *dx[3] = { numbers(r->device, 4, dims, NULL), numbers(r->device, 4, dims, NULL),
                         NULL };
    EXPECT_OK(rg_kernel_forward(combined, r->commands, x, made, NULL));
    EXPECT_OK(rg_kernel_forward(kernel, r->commands, x, &alone, NULL));
    EXPECT_OK(rg_kernel_gradient(kernel, r->commands, &no_dy, x, NULL, NULL, dx, 0));
    EXPECT_OK(rig_run(r));
    expect_near(made[0], loss, "loss");
    expect_near(made[1], dy, "gradient");
    EXPECT(same_bits(made[0], alone) && same_bits(made[1], dx[0]));
    expect_near(dx[1], dt, "dlabels");
    rg_tensor *const all[] = { x[0], x[1], x[2], made[0], made[1], alone, dx[0], dx[1] };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        rg_tensor_destroy(all[i]);
    rg_kernel_destroy(combined);
    rg_kernel_destroy(kernel);
}

#define LIST(...) ((const double[]){ __VA_ARGS__ })

/* ---- the ten types ---- */

static void test_errors(rig *r)
{
    scene s = { mps_desc(RG_LOSS_MEAN_ABSOLUTE, RG_LOSS_NONE), LIST(1, 2, 3, 4), LIST(3, 2, 2.5, 0),
                NULL, 1 };
    expect_scene(r, &s, LIST(2, 0, 0.5, 4), LIST(-1, 0, 1, 1), LIST(1, 0, -1, -1));
    s.desc.kind = RG_LOSS_MEAN_SQUARED;
    expect_scene(r, &s, LIST(4, 0, 0.25, 16), LIST(-4, 0, 1, 8), LIST(4, 0, -1, -8));
}

/* softmax(0, ln 3) = (1/4, 3/4) */
static void test_softmax(rig *r)
{
    const double l2 = log(2.0), l3 = log(3.0), l4 = 2 * l2;
    scene s = { mps_desc(RG_LOSS_SOFTMAX_CROSS_ENTROPY, RG_LOSS_NONE), LIST(0, l3, 5, 5),
                LIST(1, 0, 0.5, 0.5), NULL, 1 };
    expect_scene(r, &s, LIST(l4, 0, l2 / 2, l2 / 2), LIST(-0.75, 0.75, 0, 0),
                 LIST(l4, l4 - l3, l2, l2));
    s.desc.reduction = RG_LOSS_MEAN; /* by pixels, not by pixels and channels */
    expect_scene(r, &s, LIST((l4 + l2) / 2), LIST(-0.375, 0.375, 0, 0), NULL);
    s.desc.label_smoothing = 0.5; /* (3/4, 1/4) and (1/2, 1/2) */
    s.desc.classes = 2;
    expect_scene(r, &s, LIST((0.75 * l4 + 0.25 * (l4 - l3) + l2) / 2), LIST(-0.25, 0.25, 0, 0),
                 NULL);
}

static void test_sigmoid(rig *r)
{
    const double l3 = log(3.0);
    scene s = { mps_desc(RG_LOSS_SIGMOID_CROSS_ENTROPY, RG_LOSS_NONE), LIST(0, 0, l3, -l3),
                LIST(0, 1, 1, 1), NULL, 1 };
    expect_scene(r, &s, LIST(log(2.0), log(2.0), log(4.0 / 3), log(4.0)),
                 LIST(0.5, -0.5, -0.25, -0.75), LIST(0, 0, -l3, l3));
    s.desc.label_smoothing = 0.5; /* t / 2 + 1/4 */
    expect_scene(r, &s, NULL, LIST(0.25, -0.25, 0, -0.5), LIST(0, 0, -l3 / 2, l3 / 2));
}

static void test_categorical(rig *r)
{
    const scene s = { mps_desc(RG_LOSS_CATEGORICAL_CROSS_ENTROPY, RG_LOSS_NONE),
                      LIST(0.5, 0.5, 0.25, 0.75), LIST(1, 0, 1, 0), NULL, 1 };
    expect_scene(r, &s, LIST(log(2.0), 0, log(4.0), 0), LIST(-2, 0, -4, 0),
                 LIST(log(2.0), log(2.0), log(4.0), log(4.0 / 3)));
}

/* Erratum: max(1 - t y, 0) goes with t of -1 and 1, while labels, and the printed gradient, have 0
 * and 1. */
static void test_hinge(rig *r)
{
    const scene s = { mps_desc(RG_LOSS_HINGE, RG_LOSS_NONE), LIST(0.5, 0.5, -2, -2),
                      LIST(1, 0, 1, 0), NULL, 1 };
    expect_scene(r, &s, LIST(0.5, 1.5, 3, 0), LIST(-1, 1, -1, 0), LIST(-1, -1, 4, 0));
}

/* Errata: half of (y - t)^2, not of y^2; and the gradient has the sign of y - t. */
static void test_huber(rig *r)
{
    scene s = { mps_desc(RG_LOSS_HUBER, RG_LOSS_NONE), LIST(4, 4, 4, 4), LIST(3.5, 5, 1, 6), NULL,
                1 };
    expect_scene(r, &s, LIST(0.125, 0.5, 2.5, 1.5), LIST(0.5, -1, 1, -1), LIST(-0.5, 1, -1, 1));
    s.desc.delta = 2;
    expect_scene(r, &s, LIST(0.125, 0.5, 4, 2), LIST(0.5, -1, 2, -2), NULL);
}

static void test_cosine(rig *r)
{
    scene s = { mps_desc(RG_LOSS_COSINE_DISTANCE, RG_LOSS_SUM), LIST(1, 2, 3, 4, 1, 0, 0, 0),
                LIST(0.5, 0, 0.25, -1, 1, 0, 0, 0), NULL, 2 };
    expect_scene(r, &s, LIST(3.75, 0), LIST(-0.5, 0, -0.25, 1, -1, 0, 0, 0),
                 LIST(-1, -2, -3, -4, -1, 0, 0, 0));
    s.desc.across_batch = true;
    s.desc.weight = 2;
    expect_scene(r, &s, LIST(7.5), LIST(-1, 0, -0.5, 2, -2, 0, 0, 0), NULL);
}

static void test_log(rig *r)
{
    scene s = { mps_desc(RG_LOSS_LOG, RG_LOSS_NONE), LIST(0.5, 0.25, 0.25, 0), LIST(1, 1, 0, 0),
                NULL, 1 };
    s.desc.epsilon = 0.25;
    expect_scene(r, &s, LIST(-log(0.75), -log(0.5), 0, -log(1.25)), LIST(-4.0 / 3, -2, 1, 0.8),
                 LIST(0, log(2.0), log(2.0), log(5.0)));
    EXPECT(rg_loss_desc_default().epsilon == 1e-7 && rg_loss_desc_default().delta == 1);
}

/* Erratum: the derivative of t (ln t - y) is -t, not -t / y. */
static void test_kullback(rig *r)
{
    const scene s = { mps_desc(RG_LOSS_KULLBACK_LEIBLER, RG_LOSS_NONE), LIST(-1, -2, -3, -4),
                      LIST(1, 0.5, 0.25, 2), NULL, 1 };
    expect_scene(r, &s, LIST(1, 1 - log(2.0) / 2, 0.75 - log(4.0) / 4, 8 + 2 * log(2.0)),
                 LIST(-1, -0.5, -0.25, -2), LIST(2, 3 - log(2.0), 4 - log(4.0), 5 + log(2.0)));
}

/* ---- reductions ---- */

static void test_reductions(rig *r)
{
    scene s = { mps_desc(RG_LOSS_MEAN_SQUARED, RG_LOSS_SUM), LIST(1, 2, 3, 4, 5, 6, 7, 8),
                LIST(0, 0, 0, 0, 0, 0, 0, 0), NULL, 2 };
    expect_scene(r, &s, LIST(30, 174), LIST(2, 4, 6, 8, 10, 12, 14, 16), NULL);
    s.desc.reduction = RG_LOSS_MEAN;
    expect_scene(r, &s, LIST(7.5, 43.5), LIST(0.5, 1, 1.5, 2, 2.5, 3, 3.5, 4), NULL);
    s.desc.across_batch = true;
    expect_scene(r, &s, LIST(25.5), LIST(0.25, 0.5, 0.75, 1, 1.25, 1.5, 1.75, 2), NULL);
    s.desc.undivided_gradient = true; /* as MPS has it */
    expect_scene(r, &s, LIST(25.5), LIST(2, 4, 6, 8, 10, 12, 14, 16), NULL);
    s.desc.weight = 0.5;
    expect_scene(r, &s, LIST(12.75), LIST(1, 2, 3, 4, 5, 6, 7, 8), NULL);
}

static void test_weights(rig *r)
{
    scene s = { mps_desc(RG_LOSS_MEAN_SQUARED, RG_LOSS_SUM_BY_NON_ZERO_WEIGHTS),
                LIST(1, 2, 3, 4, 5, 6, 7, 8), LIST(0, 0, 0, 0, 0, 0, 0, 0),
                LIST(1, 0, 2, 0, 0, 0, 0, 0), 2 };
    s.desc.weights = true;
    expect_scene(r, &s, LIST(9.5, 0), LIST(1, 0, 6, 0, 0, 0, 0, 0), NULL);
    s.desc.across_batch = true;
    s.desc.weight = 2;
    expect_scene(r, &s, LIST(19), LIST(2, 0, 12, 0, 0, 0, 0, 0), NULL);
    s.desc.reduction = RG_LOSS_MEAN;
    expect_scene(r, &s, LIST(38.0 / 8), LIST(0.5, 0, 3, 0, 0, 0, 0, 0), NULL);
    s.desc.reduction = RG_LOSS_NONE;
    expect_scene(r, &s, LIST(2, 0, 36, 0, 0, 0, 0, 0), LIST(4, 0, 24, 0, 0, 0, 0, 0), NULL);
}

/* ---- a gradient that comes from behind the loss, and the one to begin with ---- */

static void test_chain(rig *r)
{
    const rg_loss_desc desc = mps_desc(RG_LOSS_MEAN_SQUARED, RG_LOSS_SUM);
    rg_loss_desc first = rg_loss_desc_default();
    first.kind = RG_LOSS_INITIAL_GRADIENT;
    rg_kernel *kernel = NULL, *initial = NULL;
    EXPECT_OK(rg_loss_create(r->device, &desc, &kernel));
    EXPECT_OK(rg_loss_create(r->device, &first, &initial));
    rg_tensor *x[2] = { numbers(r->device, 2, DIMS(2, 2), LIST(1, 2, 3, 4)),
                        numbers(r->device, 2, DIMS(2, 2), LIST(0, 0, 0, 0)) };
    rg_tensor *dloss = numbers(r->device, 1, DIMS(2), LIST(10, -1)), *ones = NULL;
    rg_tensor *dx[2] = { numbers(r->device, 2, DIMS(2, 2), NULL), NULL };
    EXPECT_OK(rg_kernel_gradient(kernel, r->commands, &dloss, x, NULL, NULL, dx, 0));
    EXPECT_OK(rg_kernel_forward_alloc(initial, r->commands, 1, &dloss, false, &ones, NULL));
    EXPECT_OK(rig_run(r));
    expect_near(dx[0], LIST(20, 40, -6, -8), "dy");
    expect_near(ones, LIST(1, 1), "ones");
    EXPECT(rg_kernel_gradient(initial, r->commands, &dloss, &dloss, NULL, NULL, &ones, 0) ==
           RG_UNSUPPORTED);
    rg_tensor *const all[] = { x[0], x[1], dloss, ones, dx[0] };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        rg_tensor_destroy(all[i]);
    rg_kernel_destroy(kernel);
    rg_kernel_destroy(initial);
}

/* ---- class labels ---- */

static void expect_classes(rig *r, rg_dtype dtype, rg_loss_kind kind, int64_t label,
                           rg_status status)
{
    rg_loss_desc desc = mps_desc(kind, RG_LOSS_NONE);
    desc.labels = RG_LOSS_CLASS_LABELS;
    desc.gradient_output = true;
    desc.has_ignored = true;
    desc.ignored = -100;
    rg_kernel *kernel = NULL;
    EXPECT_OK(rg_loss_create(r->device, &desc, &kernel));
    const double l3 = log(3.0);
    rg_tensor *x[2] = { numbers(r->device, 2, DIMS(3, 2), LIST(0, l3, 0, l3, 0, l3)),
                        tensor_of(r->device, dtype, 1, DIMS(3)) };
    rg_tensor *y[2] = { numbers(r->device, 1, DIMS(3), NULL),
                        numbers(r->device, 2, DIMS(3, 2), NULL) };
    const int64_t labels[] = { 1, -100, label };
    const int32_t narrow[] = { 1, -100, (int32_t)label };
    EXPECT_OK(rg_tensor_write(x[1], dtype == RG_I64 ? (const void *)labels : narrow, bytes_of(x[1]),
                              RG_LAYOUT_SAME));
    EXPECT_OK(rg_kernel_forward(kernel, r->commands, x, y, NULL));
    EXPECT_OK(rg_commands_commit(r->commands));
    EXPECT(rg_commands_wait(r->commands) == status);
    const char *text = rg_commands_error_text(r->commands);
    EXPECT((status == RG_OK) == (strstr(text, "label") == NULL));
    rig_renew(r);
    if (status == RG_OK && kind == RG_LOSS_SOFTMAX_CROSS_ENTROPY) {
        expect_near(y[0], LIST(log(4.0 / 3), 0, log(4.0)), "loss");
        expect_near(y[1], LIST(0.25, -0.25, 0, 0, -0.75, 0.75), "gradient");
    } else if (status == RG_OK) {
        expect_near(y[0], LIST(-l3, 0, 0), "loss");
        expect_near(y[1], LIST(0, -1, 0, 0, -1, 0), "gradient");
    }
    rg_tensor *const all[] = { x[0], x[1], y[0], y[1] };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        rg_tensor_destroy(all[i]);
    rg_kernel_destroy(kernel);
}

static void test_classes(rig *r)
{
    static const rg_loss_kind kinds[] = { RG_LOSS_SOFTMAX_CROSS_ENTROPY, RG_LOSS_KULLBACK_LEIBLER };
    for (int i = 0; i < 2; i++) {
        expect_classes(r, RG_I32, kinds[i], 0, RG_OK);
        expect_classes(r, RG_I64, kinds[i], 0, RG_OK);
        expect_classes(r, RG_I32, kinds[i], 2, RG_KERNEL_FAULT);
        expect_classes(r, RG_I32, kinds[i], -1, RG_KERNEL_FAULT);
        expect_classes(r, RG_I64, kinds[i], INT64_C(1) << 32, RG_KERNEL_FAULT);
        expect_classes(r, RG_I64, kinds[i], INT64_MIN, RG_KERNEL_FAULT);
    }
}

/* ---- images of a batch that are tensors of their own ---- */

static void test_batch(rig *r)
{
    const rg_loss_desc desc = mps_desc(RG_LOSS_MEAN_SQUARED, RG_LOSS_MEAN);
    rg_kernel *kernel = NULL;
    EXPECT_OK(rg_loss_create(r->device, &desc, &kernel));
    rg_tensor *x[4], *loss[2], *dx[4] = { NULL }, *no_dy[2] = { NULL };
    for (int i = 0; i < 2; i++) {
        x[i] = numbers(r->device, 3, DIMS(1, 1, 2), LIST(1 + i, 2));
        x[2 + i] = numbers(r->device, 3, DIMS(1, 1, 2), LIST(0, 0));
        loss[i] = numbers(r->device, 1, DIMS(1), NULL);
        dx[i] = numbers(r->device, 3, DIMS(1, 1, 2), NULL);
    }
    EXPECT_OK(rg_kernel_forward_batch(kernel, r->commands, 2, x, loss, NULL));
    EXPECT_OK(rg_kernel_gradient_batch(kernel, r->commands, 2, no_dy, x, NULL, NULL, dx, 0));
    EXPECT_OK(rig_run(r));
    expect_near(loss[0], LIST(2.5), "loss 0");
    expect_near(loss[1], LIST(4), "loss 1");
    expect_near(dx[0], LIST(1, 2), "dy 0");
    expect_near(dx[1], LIST(2, 2), "dy 1");
    for (int i = 0; i < 2; i++) {
        rg_tensor_destroy(x[i]);
        rg_tensor_destroy(x[2 + i]);
        rg_tensor_destroy(loss[i]);
        rg_tensor_destroy(dx[i]);
    }
    rg_kernel_destroy(kernel);
}

int main(void)
{
    RUN_ON_DEVICES(test_errors, test_softmax, test_sigmoid, test_categorical, test_hinge,
                   test_huber, test_cosine, test_log, test_kullback, test_reductions, test_weights,
                   test_chain, test_classes, test_batch);
    return rg_test_report();
}
