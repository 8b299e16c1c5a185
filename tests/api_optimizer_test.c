/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Optimizers beyond one step: many parameters in few launches, gradients that overflow, the norm of
 * all gradients, masters of 16-bit parameters, schedules. */
#include "api.h"

#include "runtime/objects.h"

#include <math.h>

static rg_tensor *value_of(rg_device *device, rg_dtype dtype, double value)
{
    rg_tensor *tensor = tensor_of(device, dtype, 0, NULL);
    char data[8];
    EXPECT_OK(rg_convert(data, dtype, &value, RG_F64, 1));
    EXPECT_OK(rg_tensor_write(tensor, data, rg_dtype_size(dtype), RG_LAYOUT_SAME));
    return tensor;
}

static double read_value(const rg_tensor *tensor)
{
    rg_tensor_desc desc = { 0 };
    char data[8];
    double value = 0;
    EXPECT_OK(rg_tensor_get_desc(tensor, &desc));
    EXPECT_OK(rg_tensor_read(tensor, data, rg_dtype_size(desc.dtype), RG_LAYOUT_SAME));
    EXPECT_OK(rg_convert(&value, RG_F64, data, desc.dtype, 1));
    return value;
}

static int launches_of(const rg_commands *commands)
{
    int launches = 0;
    const rg_submission *submission = commands->submission;
    for (size_t at = 0; at < submission->entries_size; launches++)
        at += ((const rg_entry *)(const void *)(submission->entries + at))->size;
    return launches;
}

/* ---- many small parameters ---- */

enum { MANY = 100, INPUTS = 6, OUTPUTS = 3 };

static rg_kernel *adam_of(rg_device *device, bool scaled, rg_parameter_copy copy)
{
    rg_adam_desc desc = rg_adam_desc_default();
    desc.scaled = scaled;
    desc.copy = copy;
    rg_kernel *kernel = NULL;
    EXPECT_OK(rg_adam_create(device, &desc, &kernel));
    return kernel;
}

/* Entry i * MANY + n of input i of parameter n; its length goes up from 0. */
static void make_many(rg_device *device, rg_tensor *x[INPUTS * MANY], rg_tensor *y[OUTPUTS * MANY])
{
    rg_tensor *rate = value_of(device, RG_F32, 0.125), *t = value_of(device, RG_I64, 3);
    for (int64_t n = 0; n < MANY; n++) {
        const int64_t length = n == 50 ? 40000 : n * 7;
        for (int64_t i = 0; i < 4; i++)
            x[i * MANY + n] = filled(device, RG_F32, 1, &length, (uint64_t)(i * MANY + n));
        x[4 * MANY + n] = rate;
        x[5 * MANY + n] = t;
        y[n] = x[n];
        y[MANY + n] = x[2 * MANY + n];
        y[2 * MANY + n] = x[3 * MANY + n];
    }
}

static void drop_many(rg_tensor *x[INPUTS * MANY])
{
    for (int i = 0; i < 4 * MANY; i++)
        rg_tensor_destroy(x[i]);
    rg_tensor_destroy(x[4 * MANY]);
    rg_tensor_destroy(x[5 * MANY]);
}

static void test_many(int32_t threads)
{
    rig r = rig_open(threads);
    rg_tensor *x[INPUTS * MANY], *y[OUTPUTS * MANY], *u[INPUTS * MANY], *v[OUTPUTS * MANY];
    rg_kernel *kernel = adam_of(r.device, false, RG_PARAMETER_COPY_NONE);
    make_many(r.device, x, y);
    make_many(r.device, u, v);
    EXPECT_OK(rg_kernel_forward_batch(kernel, r.commands, MANY, x, y, NULL));
    EXPECT(launches_of(r.commands) == 4); /* of 32 parameters each */
    EXPECT_OK(rig_run(&r));
    for (int n = 0; n < MANY; n++) {
        rg_tensor *in[INPUTS], *out[OUTPUTS];
        for (int i = 0; i < INPUTS; i++)
            in[i] = u[i * MANY + n];
        for (int i = 0; i < OUTPUTS; i++)
            out[i] = v[i * MANY + n];
        EXPECT_OK(rg_kernel_forward(kernel, r.commands, in, out, NULL));
    }
    EXPECT(launches_of(r.commands) == MANY - 1); /* nothing for the empty one */
    EXPECT_OK(rig_run(&r));
    for (int i = 0; i < OUTPUTS * MANY; i++)
        EXPECT(same_bits(y[i], v[i]));
    drop_many(x);
    drop_many(u);
    rg_kernel_destroy(kernel);
    rig_close(&r);
}

/* What is refused is named by its number, and nothing is recorded. */
static void test_refused(rig *r)
{
    rg_tensor *x[INPUTS * MANY], *y[OUTPUTS * MANY];
    rg_kernel *kernel = adam_of(r->device, false, RG_PARAMETER_COPY_NONE);
    make_many(r->device, x, y);
    rg_tensor *const own = x[3 * MANY + 77], *const result = y[2 * MANY + 77];
    x[3 * MANY + 77] = x[3 * MANY + 78];
    EXPECT_FAILS(rg_kernel_forward_batch(kernel, r->commands, MANY, x, y, NULL),
                 RG_INVALID_ARGUMENT, "adam");
    y[2 * MANY + 77] = result;
    x[3 * MANY + 77] = filled(r->device, RG_F32, 1, DIMS(3), 1);
    EXPECT_FAILS(rg_kernel_forward_batch(kernel, r->commands, MANY, x, y, NULL),
                 RG_INVALID_ARGUMENT, "image 77: adam: velocity is f32[3]");
    EXPECT(launches_of(r->commands) == 0);
    rg_tensor_destroy(x[3 * MANY + 77]);
    x[3 * MANY + 77] = own;
    drop_many(x);
    rg_kernel_destroy(kernel);
}

/* Some with strides among them: the same result, in more launches. */
static void test_strided(rig *r)
{
    enum { TENSORS = 3 };
    rg_kernel *kernel = adam_of(r->device, false, RG_PARAMETER_COPY_NONE);
    rg_tensor *rate = value_of(r->device, RG_F32, 0.125), *t = value_of(r->device, RG_I64, 3);
    rg_tensor *x[INPUTS * TENSORS], *dense[INPUTS],
        *wide = filled(r->device, RG_F32, 2, DIMS(9, 6), 1);
    for (int64_t n = 0; n < TENSORS; n++) {
        for (int64_t i = 0; i < 4; i++)
            x[i * TENSORS + n] =
                filled(r->device, RG_F32, 2, DIMS(9, 5), (uint64_t)(8 * i + 1 + n));
        x[4 * TENSORS + n] = rate;
        x[5 * TENSORS + n] = t;
    }
    rg_tensor_destroy(x[1]);
    EXPECT_OK(rg_tensor_slice(wide, DIMS(0, 1), DIMS(9, 5), NULL, &x[1]));
    dense[0] = tensor_of(r->device, RG_F32, 2, DIMS(9, 5));
    float values[45];
    EXPECT_OK(rg_tensor_read(x[1], values, sizeof values, RG_LAYOUT_SAME));
    EXPECT_OK(rg_tensor_write(dense[0], values, sizeof values, RG_LAYOUT_SAME));
    dense[1] = x[TENSORS + 1];
    dense[2] = filled(r->device, RG_F32, 2, DIMS(9, 5), 8 * 2 + 2);
    dense[3] = filled(r->device, RG_F32, 2, DIMS(9, 5), 8 * 3 + 2);
    dense[4] = rate;
    dense[5] = t;
    rg_tensor *y[OUTPUTS * TENSORS];
    for (int n = 0; n < TENSORS; n++) {
        y[n] = x[n];
        y[TENSORS + n] = x[2 * TENSORS + n];
        y[2 * TENSORS + n] = x[3 * TENSORS + n];
    }
    EXPECT_OK(rg_kernel_forward_batch(kernel, r->commands, TENSORS, x, y, NULL));
    EXPECT(launches_of(r->commands) == 3);
    rg_tensor *out[] = { dense[0], dense[2], dense[3] };
    EXPECT_OK(rg_kernel_forward(kernel, r->commands, dense, out, NULL));
    EXPECT_OK(rig_run(r));
    EXPECT(same_bits(x[1], dense[0]) && same_bits(x[2 * TENSORS + 1], dense[2]) &&
           same_bits(x[3 * TENSORS + 1], dense[3]));
    for (int i = 0; i < 4 * TENSORS; i++)
        rg_tensor_destroy(x[i]);
    rg_tensor_destroy(dense[0]);
    rg_tensor_destroy(dense[2]);
    rg_tensor_destroy(dense[3]);
    rg_tensor_destroy(wide);
    rg_tensor_destroy(rate);
    rg_tensor_destroy(t);
    rg_kernel_destroy(kernel);
}

/* ---- the norm of all gradients ---- */

static void test_norm(int32_t threads)
{
    rig r = rig_open(threads);
    rg_grad_norm_desc desc = rg_grad_norm_desc_default();
    rg_kernel *norm = NULL;
    EXPECT_OK(rg_grad_norm_create(r.device, &desc, &norm));
    rg_tensor *squares = tensor_of(r.device, RG_F32, 1, DIMS(MANY)), *x[MANY], *y[MANY];
    double want = 0;
    for (int64_t n = 0; n < MANY; n++) {
        const int64_t length = n == 50 ? 40000 : n * 7;
        x[n] = filled(r.device, n % 40 == 39 ? RG_F16 : RG_F32, 1, &length, (uint64_t)n);
        rg_tensor *one = NULL;
        EXPECT_OK(rg_tensor_slice(squares, &n, DIMS(1), NULL, &one));
        EXPECT_OK(rg_tensor_reshape(one, 0, NULL, &y[n]));
        rg_tensor_destroy(one);
        char *data = elements_of(x[n]);
        for (int64_t i = 0; i < length; i++) {
            double value = 0;
            const rg_dtype dtype = n % 40 == 39 ? RG_F16 : RG_F32;
            (void)rg_convert(&value, RG_F64, data + (size_t)i * rg_dtype_size(dtype), dtype, 1);
            want += value * value;
        }
        free(data);
    }
    EXPECT_OK(rg_kernel_forward_batch(norm, r.commands, MANY, x, y, NULL));
    EXPECT(launches_of(r.commands) <= 20);
    rg_grad_scale_desc scale_desc = rg_grad_scale_desc_default();
    scale_desc.max_norm = 1;
    rg_kernel *scale = NULL;
    EXPECT_OK(rg_grad_scale_create(r.device, &scale_desc, &scale));
    rg_tensor *out[] = { tensor_of(r.device, RG_F32, 0, NULL),
                         tensor_of(r.device, RG_F32, 0, NULL) };
    EXPECT_OK(rg_kernel_forward(scale, r.commands, &squares, out, NULL));
    EXPECT_OK(rig_run(&r));
    EXPECT(fabs(read_value(out[1]) - sqrt(want)) < 1e-6 * sqrt(want));
    EXPECT(fabs(read_value(out[0]) * sqrt(want) - 1) < 1e-5);
    for (int n = 0; n < MANY; n++) {
        rg_tensor_destroy(x[n]);
        rg_tensor_destroy(y[n]);
    }
    rg_tensor_destroy(squares);
    rg_tensor_destroy(out[0]);
    rg_tensor_destroy(out[1]);
    rg_kernel_destroy(norm);
    rg_kernel_destroy(scale);
    rig_close(&r);
}

/* ---- 16-bit gradients, masters, and a dynamic scale of the loss ---- */

typedef struct trained {
    rg_kernel *norm, *scale, *adam;
    rg_tensor *gradient, *master, *m, *v, *copy; /* f16 and f32 */
    rg_tensor *squares, *factor, *norm_of_all;
    rg_tensor *loss_scale, *good, *step, *rate;
} trained;

static trained trained_open(rg_device *device)
{
    trained t = { .adam = adam_of(device, true, RG_PARAMETER_COPY_F16) };
    rg_grad_norm_desc norm = rg_grad_norm_desc_default();
    rg_grad_scale_desc scale = rg_grad_scale_desc_default();
    scale.scaling = RG_LOSS_SCALING_DYNAMIC;
    scale.interval = 2;
    scale.stepped = true;
    EXPECT_OK(rg_grad_norm_create(device, &norm, &t.norm));
    EXPECT_OK(rg_grad_scale_create(device, &scale, &t.scale));
    const int64_t *dims = DIMS(37);
    t.gradient = filled(device, RG_F16, 1, dims, 1);
    t.master = filled(device, RG_F32, 1, dims, 2);
    t.copy = tensor_of(device, RG_F16, 1, dims);
    t.m = tensor_of(device, RG_F32, 1, dims);
    t.v = tensor_of(device, RG_F32, 1, dims);
    const float zeros[37] = { 0 };
    EXPECT_OK(rg_tensor_write(t.m, zeros, sizeof zeros, RG_LAYOUT_SAME));
    EXPECT_OK(rg_tensor_write(t.v, zeros, sizeof zeros, RG_LAYOUT_SAME));
    t.squares = tensor_of(device, RG_F32, 0, NULL);
    t.factor = tensor_of(device, RG_F32, 0, NULL);
    t.norm_of_all = tensor_of(device, RG_F32, 0, NULL);
    t.loss_scale = value_of(device, RG_F32, 64);
    t.good = value_of(device, RG_I64, 0);
    t.step = value_of(device, RG_I64, 0);
    t.rate = value_of(device, RG_F32, 0.01);
    return t;
}

static void trained_close(trained *t)
{
    rg_tensor *const all[] = { t->gradient,   t->master,  t->m,      t->v,
                               t->copy,       t->squares, t->factor, t->norm_of_all,
                               t->loss_scale, t->good,    t->step,   t->rate };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        rg_tensor_destroy(all[i]);
    rg_kernel_destroy(t->norm);
    rg_kernel_destroy(t->scale);
    rg_kernel_destroy(t->adam);
}

static void train(rig *r, trained *t)
{
    EXPECT_OK(rg_kernel_forward(t->norm, r->commands, &t->gradient, &t->squares, NULL));
    rg_tensor *in[] = { t->squares, t->loss_scale, t->good, t->step };
    rg_tensor *out[] = { t->factor, t->norm_of_all, t->loss_scale, t->good, t->step };
    EXPECT_OK(rg_kernel_forward(t->scale, r->commands, in, out, NULL));
    rg_tensor *x[] = { t->master, t->gradient, t->m, t->v, t->rate, t->step, t->factor };
    rg_tensor *y[] = { t->master, t->m, t->v, t->copy };
    EXPECT_OK(rg_kernel_forward(t->adam, r->commands, x, y, NULL));
    EXPECT_OK(rig_run(r));
}

static void test_loss_scaling(rig *r)
{
    trained t = trained_open(r->device);
    char *const start = elements_of(t.master);
    train(r, &t);
    EXPECT(read_value(t.loss_scale) == 64 && read_value(t.good) == 1 && read_value(t.step) == 1);
    EXPECT(read_value(t.factor) == 1.0 / 64);
    char *const first = elements_of(t.master), *const m = elements_of(t.m);
    EXPECT(memcmp(start, first, bytes_of(t.master)) != 0);
    uint16_t copy[37], rounded[37];
    EXPECT_OK(rg_tensor_read(t.copy, copy, sizeof copy, RG_LAYOUT_SAME));
    EXPECT_OK(rg_convert(rounded, RG_F16, first, RG_F32, 37));
    EXPECT(memcmp(copy, rounded, sizeof copy) == 0);

    /* One gradient has overflowed: nothing moves but the scale. */
    char *const gradient = elements_of(t.gradient);
    uint16_t bad[37];
    memcpy(bad, gradient, sizeof bad);
    bad[20] = 0x7c00;
    EXPECT_OK(rg_tensor_write(t.gradient, bad, sizeof bad, RG_LAYOUT_SAME));
    train(r, &t);
    EXPECT(read_value(t.loss_scale) == 32 && read_value(t.good) == 0 && read_value(t.step) == 1);
    EXPECT(isnan(read_value(t.factor)));
    char *const second = elements_of(t.master), *const same_m = elements_of(t.m);
    EXPECT(memcmp(first, second, bytes_of(t.master)) == 0);
    EXPECT(memcmp(m, same_m, bytes_of(t.m)) == 0);

    /* Two good ones: it grows again. */
    EXPECT_OK(rg_tensor_write(t.gradient, gradient, sizeof bad, RG_LAYOUT_SAME));
    train(r, &t);
    train(r, &t);
    EXPECT(read_value(t.loss_scale) == 64 && read_value(t.good) == 0 && read_value(t.step) == 3);
    free(start);
    free(first);
    free(second);
    free(m);
    free(same_m);
    free(gradient);
    trained_close(&t);
}

/* ---- schedules ---- */

static bool is_near(double a, double b)
{
    return fabs(a - b) < 1e-15;
}

static void test_schedules(void)
{
    EXPECT(rg_rate_constant(0.5, 7) == 0.5);
    EXPECT(rg_rate_step(0.5, 0.1, 10, 9) == 0.5);
    EXPECT(is_near(rg_rate_step(0.5, 0.1, 10, 10), 0.05));
    EXPECT(is_near(rg_rate_step(0.5, 0.1, 10, 39), 0.0005));
    EXPECT(rg_rate_step(0.5, 0.1, 0, 39) == 0.5 && rg_rate_step(0.5, 0.1, 10, -39) == 0.5);
    EXPECT(rg_rate_cosine(1, 0.25, 8, 0) == 1 && rg_rate_cosine(1, 0.25, 8, -1) == 1);
    EXPECT(is_near(rg_rate_cosine(1, 0.25, 8, 4), 0.625));
    EXPECT(is_near(rg_rate_cosine(1, 0, 6, 2), 0.75));
    EXPECT(rg_rate_cosine(1, 0.25, 8, 8) == 0.25 && rg_rate_cosine(1, 0.25, 8, 99) == 0.25);
    EXPECT(rg_rate_cosine(1, 0.25, 0, 0) == 0.25 && rg_rate_cosine(1, 0.25, 0, -1) == 0.25);
    EXPECT(rg_rate_warmup(1, 4, 0) == 0.25 && rg_rate_warmup(1, 4, 2) == 0.75);
    EXPECT(rg_rate_warmup(1, 4, 3) == 1 && rg_rate_warmup(1, 4, 9) == 1);
    EXPECT(rg_rate_warmup(1, 0, 0) == 1 && rg_rate_warmup(1, 4, -9) == 0.25);
    EXPECT(rg_rate_warmup(1, INT64_MIN + 1, 0) == 1);
}

int main(void)
{
    rig r = rig_open(2);
    for (int32_t threads = 1; threads <= 3; threads++) {
        test_many(threads);
        test_norm(threads);
    }
    test_refused(&r);
    test_strided(&r);
    test_loss_scaling(&r);
    test_schedules();
    rig_close(&r);
    return rg_test_report();
}
