/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The MPSNNOptimizer classes: steps on numbers worked out by hand. docs/mps.md names these tests.
 */
#include "any_device.h"
#include "mps.h"

/* ---- a parameter of a few f64 elements, and all that goes with it ---- */

enum { COUNT = 4, MOST = 8 };

typedef struct step {
    rg_kernel *kernel;
    rg_tensor *x[MOST], *y[MOST]; /* as the kernel wants them; in place where possible */
    int32_t inputs, moments;
} step;

static rg_tensor *numbers(rg_device *device, const double values[COUNT])
{
    rg_tensor *tensor = tensor_of(device, RG_F64, 1, DIMS(COUNT));
    EXPECT_OK(rg_tensor_write(tensor, values, COUNT * sizeof(double), RG_LAYOUT_SAME));
    return tensor;
}

static rg_tensor *number(rg_device *device, double value)
{
    rg_tensor *tensor = tensor_of(device, RG_F64, 0, NULL);
    EXPECT_OK(rg_tensor_write(tensor, &value, sizeof value, RG_LAYOUT_SAME));
    return tensor;
}

static rg_tensor *whole(rg_device *device, int64_t value)
{
    rg_tensor *tensor = tensor_of(device, RG_I64, 0, NULL);
    EXPECT_OK(rg_tensor_write(tensor, &value, sizeof value, RG_LAYOUT_SAME));
    return tensor;
}

/* Moments are 0; the results go where the parameter and the moments are. */
static step step_of(rg_kernel *kernel, const double p[COUNT], const double g[COUNT], double rate)
{
    static const double zeros[COUNT] = { 0 };
    rg_device *device = rg_kernel_device(kernel);
    step s = { .kernel = kernel,
               .x = { numbers(device, p), numbers(device, g) },
               .inputs = rg_kernel_inputs(kernel),
               .moments = rg_kernel_outputs(kernel) - 1 };
    s.y[0] = s.x[0];
    for (int32_t m = 0; m < s.moments; m++)
        s.y[1 + m] = s.x[2 + m] = numbers(device, zeros);
    s.x[2 + s.moments] = number(device, rate);
    if (s.inputs > 3 + s.moments)
        s.x[3 + s.moments] = whole(device, 1);
    return s;
}

static void run(rig *r, const step *s)
{
    EXPECT_OK(rg_kernel_forward(s->kernel, r->commands, s->x, s->y, NULL));
    EXPECT_OK(rig_run(r));
}

static void step_close(step *s)
{
    for (int32_t i = 0; i < s->inputs; i++)
        rg_tensor_destroy(s->x[i]);
    rg_kernel_destroy(s->kernel);
}

static void expect_near(const rg_tensor *tensor, const double want[COUNT])
{
    for (int64_t i = 0; i < COUNT; i++) {
        const double got = element_at(tensor, &i);
        EXPECT(is_near(got, want[i], 1e-14 * (1 + fabs(want[i]))));
        if (!is_near(got, want[i], 1e-14 * (1 + fabs(want[i]))))
            printf("    element %d is %.17g, not %.17g\n", (int)i, got, want[i]);
    }
}

#define EXPECT_NUMBERS(tensor, ...) expect_near(tensor, (const double[COUNT]){ __VA_ARGS__ })

static const double p0[COUNT] = { 1, -2, 0, 4 }, g0[COUNT] = { 2, 1, -4, 0.5 };

static rg_kernel *sgd_of(rg_device *device, double momentum, bool nesterov, rg_update_form form,
                         const rg_gradient_rules *rules)
{
    rg_sgd_desc desc = rg_sgd_desc_default();
    desc.momentum = momentum;
    desc.nesterov = nesterov;
    desc.form = form;
    if (rules != NULL)
        desc.gradient = *rules;
    rg_kernel *kernel = NULL;
    EXPECT_OK(rg_sgd_create(device, &desc, &kernel));
    return kernel;
}

/* ---- MPSNNOptimizerStochasticGradientDescent ---- */

static void test_plain(rig *r)
{
    step s = step_of(sgd_of(r->device, 0, false, RG_UPDATE_MPS, NULL), p0, g0, 0.5);
    run(r, &s);
    EXPECT_NUMBERS(s.x[0], 0, -2.5, 2, 3.75); /* p - 0.5 g */
    step_close(&s);
}

/* m = 0.5 m + 0.25 g; p -= m, twice */
static void test_momentum(rig *r)
{
    step s = step_of(sgd_of(r->device, 0.5, false, RG_UPDATE_MPS, NULL), p0, g0, 0.25);
    run(r, &s);
    EXPECT_NUMBERS(s.x[2], 0.5, 0.25, -1, 0.125);
    EXPECT_NUMBERS(s.x[0], 0.5, -2.25, 1, 3.875);
    run(r, &s);
    EXPECT_NUMBERS(s.x[2], 0.75, 0.375, -1.5, 0.1875);
    EXPECT_NUMBERS(s.x[0], -0.25, -2.625, 2.5, 3.6875);
    step_close(&s);
}

/* torch's form has the rate outside: after the rate is halved the two differ. */
static void test_momentum_forms(rig *r)
{
    step mps = step_of(sgd_of(r->device, 0.5, false, RG_UPDATE_MPS, NULL), p0, g0, 0.25);
    step torch = step_of(sgd_of(r->device, 0.5, false, RG_UPDATE_TORCH, NULL), p0, g0, 0.25);
    run(r, &mps);
    run(r, &torch);
    EXPECT(same_bits(mps.x[0], torch.x[0]));
    EXPECT_NUMBERS(torch.x[2], 2, 1, -4, 0.5);
    const double half = 0.125;
    EXPECT_OK(rg_tensor_write(mps.x[3], &half, sizeof half, RG_LAYOUT_SAME));
    EXPECT_OK(rg_tensor_write(torch.x[3], &half, sizeof half, RG_LAYOUT_SAME));
    run(r, &mps);
    run(r, &torch);
    EXPECT_NUMBERS(mps.x[0], 0, -2.5, 2, 3.75);                /* m = 0.25 g / 2 + 0.125 g */
    EXPECT_NUMBERS(torch.x[0], 0.125, -2.4375, 1.75, 3.78125); /* m = 1.5 g */
    step_close(&mps);
    step_close(&torch);
}

/* m = 0.5 m + g; p -= 0.25 (g + 0.5 m), twice */
static void test_nesterov(rig *r)
{
    step s = step_of(sgd_of(r->device, 0.5, true, RG_UPDATE_MPS, NULL), p0, g0, 0.25);
    run(r, &s);
    EXPECT_NUMBERS(s.x[2], 2, 1, -4, 0.5);
    EXPECT_NUMBERS(s.x[0], 0.25, -2.375, 1.5, 3.8125); /* p - 0.375 g */
    run(r, &s);
    EXPECT_NUMBERS(s.x[2], 3, 1.5, -6, 0.75);
    EXPECT_NUMBERS(s.x[0], -0.625, -2.8125, 3.25, 3.59375); /* and - 0.4375 g */
    step_close(&s);
}

/* ---- MPSNNOptimizerDescriptor ---- */

/* Clipped to [-1, 1.5], times 2, and 0.5 p on top; the rate is 1. */
static void test_gradient_rules(rig *r)
{
    rg_gradient_rules rules = rg_sgd_desc_default().gradient;
    rules.clip_minimum = -1;
    rules.clip_maximum = 1.5;
    rules.rescale = 2;
    rules.regularization = RG_REGULARIZATION_L2;
    rules.regularization_scale = 0.5;
    step s = step_of(sgd_of(r->device, 0, false, RG_UPDATE_MPS, &rules), p0, g0, 1);
    run(r, &s);
    EXPECT_NUMBERS(s.x[0], 1 - 3.5, -2 - 1, 0 + 2, 4 - 3);
    step_close(&s);
}

/* By calculus: the sign of the parameter, which is 0 for 0, and not 1 whatever it is. */
static void test_l1(rig *r)
{
    rg_gradient_rules rules = rg_sgd_desc_default().gradient;
    rules.regularization = RG_REGULARIZATION_L1;
    rules.regularization_scale = 0.5;
    step s = step_of(sgd_of(r->device, 0, false, RG_UPDATE_MPS, &rules), p0, g0, 1);
    run(r, &s);
    EXPECT_NUMBERS(s.x[0], 1 - 2.5, -2 - 0.5, 0 + 4, 4 - 1);
    step_close(&s);
}

/* Running statistics by a rate below 0 and a regularization of -1: p = 0.75 p + 0.25 g */
static void test_running_mean(rig *r)
{
    rg_gradient_rules rules = rg_sgd_desc_default().gradient;
    rules.regularization = RG_REGULARIZATION_L2;
    rules.regularization_scale = -1;
    step s = step_of(sgd_of(r->device, 0, false, RG_UPDATE_MPS, &rules), p0, g0, -0.25);
    run(r, &s);
    EXPECT_NUMBERS(s.x[0], 1.25, -1.25, -1, 3.125);
    step_close(&s);
}

static void test_defaults(void)
{
    const rg_gradient_rules rules = rg_adam_desc_default().gradient;
    EXPECT(isinf(rules.clip_minimum) && isinf(rules.clip_maximum) && rules.rescale == 1);
    EXPECT(rules.regularization == RG_REGULARIZATION_NONE && rules.regularization_scale == 0);
    EXPECT(rg_sgd_desc_default().momentum == 0 && !rg_sgd_desc_default().nesterov);
    EXPECT(rg_rmsprop_desc_default().decay == 0.9 && rg_rmsprop_desc_default().epsilon == 1e-8);
    const rg_adam_desc adam = rg_adam_desc_default();
    EXPECT(adam.beta1 == 0.9 && adam.beta2 == 0.999 && adam.epsilon == 1e-8 && !adam.amsgrad);
}

/* ---- MPSNNOptimizerRMSProp ---- */

/* v = 0.75 v + 0.25 g²: the root is |g| / 2 first, then √7 / 4 |g|. */
static void test_rmsprop(rig *r)
{
    rg_rmsprop_desc desc = rg_rmsprop_desc_default();
    desc.decay = 0.75;
    desc.epsilon = 0;
    rg_kernel *kernel = NULL;
    EXPECT_OK(rg_rmsprop_create(r->device, &desc, &kernel));
    step s = step_of(kernel, p0, g0, 0.5);
    run(r, &s);
    EXPECT_NUMBERS(s.x[2], 1, 0.25, 4, 0.0625);
    EXPECT_NUMBERS(s.x[0], 0, -3, 1, 3); /* p - sign(g) */
    run(r, &s);
    const double more = 2 / sqrt(7);
    EXPECT_NUMBERS(s.x[2], 1.75, 0.4375, 7, 0.109375);
    EXPECT_NUMBERS(s.x[0], -more, -3 - more, 1 + more, 3 - more);
    step_close(&s);
}

/* epsilon is added to the root, not under it: 2 / (1 + 1) with g = 2 and v = 1 */
static void test_epsilon(rig *r)
{
    rg_rmsprop_desc desc = rg_rmsprop_desc_default();
    desc.decay = 0.75;
    desc.epsilon = 1;
    rg_kernel *kernel = NULL;
    EXPECT_OK(rg_rmsprop_create(r->device, &desc, &kernel));
    step s = step_of(kernel, p0, g0, 1);
    run(r, &s);
    EXPECT_NUMBERS(s.x[0], 0, -2 - 2. / 3, 4. / 3, 4 - 0.4);
    step_close(&s);
}

/* ---- MPSNNOptimizerAdam ---- */

static step adam_of(rig *r, rg_update_form form, double epsilon, bool amsgrad)
{
    rg_adam_desc desc = rg_adam_desc_default();
    desc.form = form;
    desc.beta1 = 0.5;
    desc.beta2 = 0.75;
    desc.epsilon = epsilon;
    desc.amsgrad = amsgrad;
    rg_kernel *kernel = NULL;
    EXPECT_OK(rg_adam_create(r->device, &desc, &kernel));
    return step_of(kernel, p0, g0, 0.5);
}

/* t = 1: m = g / 2, v = g² / 4, and the rate becomes 0.5 √0.25 / 0.5 = 0.5. */
static void test_adam(rig *r)
{
    step s = adam_of(r, RG_UPDATE_MPS, 0, false);
    run(r, &s);
    EXPECT_NUMBERS(s.x[2], 1, 0.5, -2, 0.25);
    EXPECT_NUMBERS(s.x[3], 1, 0.25, 4, 0.0625);
    EXPECT_NUMBERS(s.x[0], 0.5, -2.5, 0.5, 3.5);
    const int64_t t = 2; /* m = 0.75 g, v = 7/16 g²; corrections 0.75 and 7/16: sign(g) again */
    EXPECT_OK(rg_tensor_write(s.x[5], &t, sizeof t, RG_LAYOUT_SAME));
    run(r, &s);
    EXPECT_NUMBERS(s.x[2], 1.5, 0.75, -3, 0.375);
    EXPECT_NUMBERS(s.x[0], 0, -3, 1, 3);
    step_close(&s);
}

/* epsilon 0.5 at t = 1: MPS has 0.5 (g/2) / (|g|/2 + 0.5), torch g/2 / (|g| + 0.5). */
static void test_adam_epsilon(rig *r)
{
    step mps = adam_of(r, RG_UPDATE_MPS, 0.5, false),
         torch = adam_of(r, RG_UPDATE_TORCH, 0.5, false);
    run(r, &mps);
    run(r, &torch);
    EXPECT_NUMBERS(mps.x[0], 1 - 1. / 3, -2.25, 0.4, 4 - 1. / 6);
    EXPECT_NUMBERS(torch.x[0], 1 - 0.4, -2 - 1. / 3, 4. / 9, 3.75);
    step_close(&mps);
    step_close(&torch);
}

/* The largest velocity counts: v falls to 3/16 g² when the gradient vanishes, maximum stays. */
static void test_amsgrad(rig *r)
{
    static const double zeros[COUNT] = { 0 };
    step s = adam_of(r, RG_UPDATE_MPS, 0, true);
    run(r, &s);
    EXPECT_NUMBERS(s.x[4], 1, 0.25, 4, 0.0625);
    EXPECT_OK(rg_tensor_write(s.x[1], zeros, sizeof zeros, RG_LAYOUT_SAME));
    run(r, &s); /* t is still 1: 0.5 (g / 4) / (|g| / 2) */
    EXPECT_NUMBERS(s.x[3], 0.75, 0.1875, 3, 0.046875);
    EXPECT_NUMBERS(s.x[4], 1, 0.25, 4, 0.0625);
    EXPECT_NUMBERS(s.x[0], 0.25, -2.75, 0.75, 3.25);
    step_close(&s);
}

/* ---- encode forms ---- */

/* A result of its own leaves values and moments as they were; it may be the values themselves. */
static void test_result(rig *r)
{
    step s = adam_of(r, RG_UPDATE_MPS, 0.1, false), apart = adam_of(r, RG_UPDATE_MPS, 0.1, false);
    for (int i = 0; i < 3; i++)
        apart.y[i] = tensor_of(r->device, RG_F64, 1, DIMS(COUNT));
    run(r, &s);
    run(r, &apart);
    EXPECT_NUMBERS(apart.x[0], 1, -2, 0, 4);
    EXPECT_NUMBERS(apart.x[2], 0, 0, 0, 0);
    EXPECT(same_bits(s.x[0], apart.y[0]) && same_bits(s.x[2], apart.y[1]) &&
           same_bits(s.x[3], apart.y[2]));
    for (int i = 0; i < 3; i++)
        rg_tensor_destroy(apart.y[i]);
    step_close(&s);
    step_close(&apart);
}

/* Weights and biases, gamma and beta, in one call: entry i * 2 + n of input i. A call with the
 * first alone leaves the second as it is. */
static void test_weights_and_biases(rig *r)
{
    step weights = step_of(sgd_of(r->device, 0.5, false, RG_UPDATE_MPS, NULL), p0, g0, 0.25);
    step biases = step_of(sgd_of(r->device, 0.5, false, RG_UPDATE_MPS, NULL), g0, p0, 0.25);
    rg_tensor *x[8], *y[4];
    for (int i = 0; i < 4; i++) {
        x[2 * i] = weights.x[i];
        x[2 * i + 1] = i == 3 ? weights.x[3] : biases.x[i]; /* one rate */
    }
    for (int i = 0; i < 2; i++) {
        y[2 * i] = weights.y[i];
        y[2 * i + 1] = biases.y[i];
    }
    run(r, &weights);
    EXPECT_NUMBERS(biases.x[0], 2, 1, -4, 0.5);
    EXPECT_OK(rg_kernel_forward_batch(weights.kernel, r->commands, 2, x, y, NULL));
    EXPECT_OK(rig_run(r));
    EXPECT_NUMBERS(weights.x[0], -0.25, -2.625, 2.5, 3.6875);
    EXPECT_NUMBERS(biases.x[0], 1.75, 1.5, -4, -0.5);
    step_close(&weights);
    step_close(&biases);
}

/* Matrices are tensors of two dimensions; a view of one is updated in place. */
static void test_matrix(rig *r)
{
    rg_tensor *p = filled(r->device, RG_F32, 2, DIMS(3, 8), 1), *part = NULL;
    rg_tensor *g = filled(r->device, RG_F32, 2, DIMS(3, 5), 2);
    rg_tensor *rate = number(r->device, 1);
    float before[24], after[24], gradient[15];
    EXPECT_OK(rg_tensor_slice(p, DIMS(0, 2), DIMS(3, 5), NULL, &part));
    EXPECT_OK(rg_tensor_read(p, before, sizeof before, RG_LAYOUT_SAME));
    EXPECT_OK(rg_tensor_read(g, gradient, sizeof gradient, RG_LAYOUT_SAME));
    rg_kernel *kernel = sgd_of(r->device, 0, false, RG_UPDATE_MPS, NULL);
    EXPECT_OK(
        rg_kernel_forward(kernel, r->commands, (rg_tensor *[]){ part, g, rate }, &part, NULL));
    EXPECT_OK(rig_run(r));
    EXPECT_OK(rg_tensor_read(p, after, sizeof after, RG_LAYOUT_SAME));
    for (int i = 0; i < 24; i++) {
        const int row = i / 8, column = i % 8 - 2;
        const bool inside = column >= 0 && column < 5;
        EXPECT(after[i] == before[i] - (inside ? gradient[row * 5 + column] : 0));
    }
    rg_tensor_destroy(part);
    rg_tensor_destroy(p);
    rg_tensor_destroy(g);
    rg_tensor_destroy(rate);
    rg_kernel_destroy(kernel);
}

int main(void)
{
    test_defaults();
    RUN_ON_DEVICES(test_plain, test_momentum, test_momentum_forms, test_nesterov,
                   test_gradient_rules, test_l1, test_running_mean, test_rmsprop, test_epsilon,
                   test_adam, test_adam_epsilon, test_amsgrad, test_result, test_weights_and_biases,
                   test_matrix);
    return rg_test_report();
}
