/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Batch, instance and group normalisation as in MPS: gradients of single images in a state,
 * parameters of their own dtype or left out, and calls that must be refused. docs/mps.md names
 * these tests. */
#include "any_device.h"
#include "mps_norm.h"
#include "ops/ops.h"

/* dx alone, parameters alone, and all: the same bits. */
static void test_what_is_asked(rig *r)
{
    rg_kernel *kernels[2] = { batch_norm_of(r->device, RG_BATCH_NORM_WHOLE, RG_NEURON_RELU) };
    rg_group_norm_desc desc = rg_group_norm_desc_default();
    desc.epsilon = 1e-5;
    EXPECT_OK(rg_group_norm_create(r->device, &desc, &kernels[1]));
    for (int i = 0; i < 2; i++) {
        batch all = batch_of(r->device, IMAGES), some = batch_of(r->device, IMAGES);
        rg_tensor *const data[] = { some.dx[0], NULL, NULL };
        rg_tensor *const parameters[] = { NULL, some.dx[1], some.dx[2] };
        EXPECT_OK(
            rg_kernel_gradient(kernels[i], r->commands, &all.dy, all.x, NULL, NULL, all.dx, 0));
        EXPECT_OK(
            rg_kernel_gradient(kernels[i], r->commands, &some.dy, some.x, NULL, NULL, data, 0));
        EXPECT_OK(rg_kernel_gradient(kernels[i], r->commands, &some.dy, some.x, NULL, NULL,
                                     parameters, 0));
        EXPECT_OK(rig_run(r));
        for (int k = 0; k < 3; k++)
            EXPECT(same_bits(all.dx[k], some.dx[k]));
        batch_close(&all);
        batch_close(&some);
        rg_kernel_destroy(kernels[i]);
    }
}

/* Whether `sum` (channels) is that of `each` (count, channels). */
static bool is_sum(const rg_tensor *sum, const rg_tensor *each, int64_t count, double tolerance)
{
    const int64_t channels = count_of(sum);
    const size_t total = (size_t)(count * channels);
    rg_tensor_desc desc = { 0 };
    double *values = calloc(total, sizeof *values);
    char *elements = elements_of(each);
    bool near = count_of(each) == count * channels;
    EXPECT_OK(rg_tensor_get_desc(each, &desc));
    EXPECT_OK(rg_convert(values, RG_F64, elements, desc.dtype, near ? total : 0));
    for (int64_t c = 0; c < channels; c++) {
        double all = 0;
        for (int64_t n = 0; n < count; n++)
            all += values[n * channels + c];
        near &= is_near(all, element_at(sum, DIMS(c)), tolerance);
    }
    free(elements);
    free(values);
    return near;
}

/* The state has gradients of each image; the results are their sums. */
static void test_image_states(rig *r)
{
    rg_group_norm_desc desc = rg_group_norm_desc_default();
    desc.epsilon = 1e-5;
    desc.image_gradients = true;
    rg_kernel *kernel = NULL;
    EXPECT_OK(rg_instance_norm_create(r->device, &desc, &kernel));
    batch b = batch_of(r->device, IMAGES);
    rg_state *state = NULL;
    EXPECT_OK(rg_state_create(kernel, b.x, &state));
    EXPECT_OK(rg_kernel_forward(kernel, r->commands, b.x, &b.y, state));
    EXPECT_OK(rg_kernel_gradient(kernel, r->commands, &b.dy, b.x, NULL, state, b.dx, 0));
    EXPECT_OK(rig_run(r));
    rg_tensor *each = NULL;
    EXPECT_OK(rg_state_tensor(state, "dgamma", &each));
    EXPECT(is_sum(b.dx[1], each, IMAGES, 1e-12));
    rg_state_destroy(state);
    batch_close(&b);
    rg_kernel_destroy(kernel);
}

/* The same bits whether a state keeps gradients of images or not, also in place, for images of one
 * row and of several. */
static void test_image_sums(rig *r)
{
    static const int64_t rows[] = { 1, 3 };
    for (int i = 0; i < 2; i++) {
        const int64_t *dims = DIMS(4001, rows[i], 33);
        rg_tensor *x[] = { filled(r->device, RG_F32, 3, dims, 1),
                           filled(r->device, RG_F32, 1, DIMS(33), 2),
                           filled(r->device, RG_F32, 1, DIMS(33), 3) };
        rg_tensor *y = tensor_of(r->device, RG_F32, 3, dims), *dx[3][3];
        for (int k = 0; k < 3; k++) {
            rg_group_norm_desc desc = rg_group_norm_desc_default();
            desc.epsilon = 1e-5;
            desc.image_gradients = k > 0;
            rg_kernel *kernel = NULL;
            rg_state *state = NULL;
            EXPECT_OK(rg_group_norm_create(r->device, &desc, &kernel));
            EXPECT_OK(rg_state_create(kernel, x, &state));
            dx[k][0] = filled(r->device, RG_F32, 3, dims, 4); /* dy, and then dx */
            dx[k][1] = tensor_of(r->device, RG_F32, 1, DIMS(33));
            dx[k][2] = tensor_of(r->device, RG_F32, 1, DIMS(33));
            EXPECT_OK(rg_kernel_forward(kernel, r->commands, x, &y, state));
            EXPECT_OK(rg_kernel_gradient(kernel, r->commands, dx[k], x, NULL, k < 2 ? state : NULL,
                                         dx[k], 0));
            EXPECT_OK(rig_run(r));
            rg_tensor *each = NULL;
            EXPECT(k != 1 || rg_state_tensor(state, "dgamma", &each) == RG_OK);
            EXPECT(k != 1 || is_sum(dx[k][1], each, 4001, 1e-2));
            EXPECT(k != 1 || rg_state_tensor(state, "dbeta", &each) == RG_OK);
            if (k == 1 && rows[i] == 1) { /* that of one row is dy */
                rg_tensor *dy = filled(r->device, RG_F32, 2, DIMS(4001, 33), 4);
                EXPECT(same_bits(each, dy));
                rg_tensor_destroy(dy);
            }
            rg_state_destroy(state);
            rg_kernel_destroy(kernel);
        }
        for (int k = 0; k < 3; k++) {
            EXPECT(same_bits(dx[0][k], dx[1][k]));
            EXPECT(same_bits(dx[0][k], dx[2][k]));
        }
        for (int k = 0; k < 3; k++) {
            rg_tensor_destroy(x[k]);
            for (int j = 0; j < 3; j++)
                rg_tensor_destroy(dx[k][j]);
        }
        rg_tensor_destroy(y);
    }
}

/* Memory of a device: what is in use, and the most that was. */
typedef struct meter {
    _Atomic size_t bytes, most;
} meter;

static void *meter_allocate(void *context, size_t size, size_t alignment)
{
    meter *m = context;
    void *pointer = NULL;
    m->bytes += size;
    m->most = m->bytes > m->most ? m->bytes : m->most;
    return posix_memalign(&pointer, alignment, size) == 0 ? pointer : NULL;
}

static void meter_release(void *context, void *pointer, size_t size)
{
    ((meter *)context)->bytes -= size;
    free(pointer);
}

/* A CPU needs no tables between the passes over a group: beside a launch and its args there are
 * statistics, and sums of images. */
static void test_little_memory(void)
{
    meter m = { 0 };
    rg_device_options options = rg_device_options_default();
    options.threads = 1;
    options.allocator = &(const rg_allocator){ meter_allocate, meter_release, &m };
    rig r = { 0 };
    EXPECT_OK(rg_device_create("cpu", &options, &r.device));
    EXPECT_OK(rg_queue_create(r.device, &r.queue));
    EXPECT_OK(rg_commands_create(r.queue, &r.commands));
    rg_group_norm_desc desc = rg_group_norm_desc_default();
    desc.groups = 8;
    rg_kernel *kernel = NULL;
    EXPECT_OK(rg_group_norm_create(r.device, &desc, &kernel));
    batch b = {
        .x = { filled(r.device, RG_F32, 3, DIMS(2, 4096, 64), 1),
               filled(r.device, RG_F32, 1, DIMS(64), 2), filled(r.device, RG_F32, 1, DIMS(64), 3) },
        .dy = filled(r.device, RG_F32, 3, DIMS(2, 4096, 64), 4),
        .y = tensor_of(r.device, RG_F32, 3, DIMS(2, 4096, 64)),
        .dx = { tensor_of(r.device, RG_F32, 3, DIMS(2, 4096, 64)),
                tensor_of(r.device, RG_F32, 1, DIMS(64)), tensor_of(r.device, RG_F32, 1, DIMS(64)) }
    };
    const size_t before = m.bytes;
    EXPECT_OK(rg_kernel_forward(kernel, r.commands, b.x, &b.y, NULL));
    EXPECT_OK(rg_kernel_gradient(kernel, r.commands, &b.dy, b.x, NULL, NULL, b.dx, 0));
    EXPECT_OK(rig_run(&r));
    EXPECT(m.most - before < 16 << 10);
    batch_close(&b);
    rg_kernel_destroy(kernel);
    rig_close(&r);
    EXPECT(m.bytes == 0);
}

/* f32 parameters beside f16 data give what f16 parameters of the same values do. */
static void test_parameter_dtype(rig *r)
{
    rg_kernel *kernels[2] = { batch_norm_of(r->device, RG_BATCH_NORM_WHOLE, RG_NEURON_NONE) };
    EXPECT_OK(rg_layer_norm_create(r->device, NULL, &kernels[1]));
    for (int i = 0; i < 2; i++) {
        rg_tensor *x = filled(r->device, RG_F16, 2, DIMS(9, 33), 1);
        rg_tensor *short_one = filled(r->device, RG_F16, 1, DIMS(33), 2);
        rg_tensor *long_one = tensor_of(r->device, RG_F32, 1, DIMS(33));
        float values[33];
        char *stored = elements_of(short_one);
        EXPECT_OK(rg_convert(values, RG_F32, stored, RG_F16, 33));
        EXPECT_OK(rg_tensor_write(long_one, values, sizeof values, RG_LAYOUT_SAME));
        free(stored);
        rg_tensor *y[2] = { NULL, NULL };
        rg_tensor *const a[] = { x, short_one, short_one }, *const b[] = { x, long_one, long_one };
        EXPECT_OK(rg_kernel_forward_alloc(kernels[i], r->commands, 1, a, false, &y[0], NULL));
        EXPECT_OK(rg_kernel_forward_alloc(kernels[i], r->commands, 1, b, false, &y[1], NULL));
        EXPECT_OK(rig_run(r));
        EXPECT(same_bits(y[0], y[1]));
        rg_tensor_destroy(x);
        rg_tensor_destroy(short_one);
        rg_tensor_destroy(long_one);
        rg_tensor_destroy(y[0]);
        rg_tensor_destroy(y[1]);
        rg_kernel_destroy(kernels[i]);
    }
}

/* dx alone, through returned averages, with the parameters and without: the state knows their
 * dtype. Read as f32, f16 would end behind its tensor. */
static void test_parameters_left_out(rig *r)
{
    static const rg_dtype dtypes[] = { RG_F64, RG_F16, RG_F32 };
    rg_batch_norm_desc desc = rg_batch_norm_desc_default();
    desc.epsilon = 1e-5;
    desc.gamma = desc.beta = false;
    desc.statistics = RG_BATCH_NORM_RUNNING;
    rg_kernel *kernel = NULL;
    EXPECT_OK(rg_batch_norm_create(r->device, &desc, &kernel));
    for (int i = 0; i < 3; i++) {
        rg_tensor *x[3], *y[3], *dy[3], *dx[2];
        for (int k = 0; k < 3; k++) {
            const int64_t *dims = k == 0 ? DIMS(9, CHANNELS) : DIMS(CHANNELS);
            x[k] = filled(r->device, dtypes[i], k == 0 ? 2 : 1, dims, (uint32_t)k + 1);
            y[k] = tensor_of(r->device, dtypes[i], k == 0 ? 2 : 1, dims);
            dy[k] = filled(r->device, dtypes[i], k == 0 ? 2 : 1, dims, (uint32_t)k + 4);
        }
        for (int k = 0; k < 2; k++)
            dx[k] = tensor_of(r->device, dtypes[i], 2, DIMS(9, CHANNELS));
        rg_tensor *const left_out[] = { x[0], NULL, NULL };
        rg_tensor *const all[] = { dx[0], NULL, NULL }, *const less[] = { dx[1], NULL, NULL };
        rg_state *state = NULL;
        EXPECT_OK(rg_state_create(kernel, x, &state));
        EXPECT_OK(rg_kernel_forward(kernel, r->commands, x, y, state));
        EXPECT_OK(rg_kernel_gradient(kernel, r->commands, dy, x, NULL, state, all, 0));
        EXPECT_OK(rg_kernel_gradient(kernel, r->commands, dy, left_out, NULL, state, less, 0));
        EXPECT_OK(rig_run(r));
        EXPECT(same_bits(dx[0], dx[1]));
        rg_state_destroy(state);
        for (int k = 0; k < 3; k++) {
            rg_tensor_destroy(x[k]);
            rg_tensor_destroy(y[k]);
            rg_tensor_destroy(dy[k]);
        }
        rg_tensor_destroy(dx[0]);
        rg_tensor_destroy(dx[1]);
    }
    rg_kernel_destroy(kernel);
}

/* ---- refused ---- */

static void refuse_shapes(rg_device *device, rg_kernel *kernel, int64_t channels, int64_t gamma,
                          rg_dtype dtype, const char *words)
{
    const rg_tensor_desc x[] = { rg_tensor_desc_dense(RG_F32, 2, DIMS(3, channels)),
                                 rg_tensor_desc_dense(dtype, 1, DIMS(gamma)),
                                 rg_tensor_desc_dense(dtype, 1, DIMS(channels)) };
    rg_tensor_desc y[4];
    (void)device;
    EXPECT_FAILS(rg_kernel_shapes(kernel, x, y), RG_INVALID_ARGUMENT, words);
}

static void test_bad_shapes(rig *r)
{
    rg_device *const device = r->device;
    rg_kernel *kernels[2] = { batch_norm_of(device, RG_BATCH_NORM_WHOLE, RG_NEURON_NONE) };
    rg_group_norm_desc desc = rg_group_norm_desc_default();
    desc.groups = 4;
    EXPECT_OK(rg_group_norm_create(device, &desc, &kernels[1]));
    for (int i = 0; i < 2; i++) {
        refuse_shapes(device, kernels[i], 8, 7, RG_F32,
                      "it must have one element per channel, the last dimension of x");
        refuse_shapes(device, kernels[i], 0, 0, RG_F32, "no channels");
        refuse_shapes(device, kernels[i], 8, 8, RG_F64, "dtype of x");
    }
    refuse_shapes(device, kernels[1], 6, 6, RG_F32, "do not divide");
    static const int64_t axes[] = { 2, -3, INT64_C(1) << 32, INT64_MIN };
    for (int i = 0; i < 4; i++) {
        rg_kernel *kernel = NULL;
        desc.axis = axes[i];
        EXPECT_OK(rg_group_norm_create(device, &desc, &kernel));
        refuse_shapes(device, kernel, 8, 8, RG_F32, "axis is");
        rg_kernel_destroy(kernel);
    }
    rg_kernel_destroy(kernels[0]);
    rg_kernel_destroy(kernels[1]);
}

static void test_bad_descriptors(rig *r)
{
    rg_device *const device = r->device;
    rg_kernel *kernel = NULL;
    rg_batch_norm_desc desc = rg_batch_norm_desc_default();
    desc.epsilon = -1;
    EXPECT_FAILS(rg_batch_norm_create(device, &desc, &kernel), RG_INVALID_ARGUMENT, "epsilon");
    desc = rg_batch_norm_desc_default();
    desc.momentum = 1.5;
    EXPECT_FAILS(rg_batch_norm_create(device, &desc, &kernel), RG_INVALID_ARGUMENT, "momentum");
    desc = rg_batch_norm_desc_default();
    desc.phase = RG_BATCH_NORM_STATISTICS;
    desc.statistics = RG_BATCH_NORM_GIVEN;
    EXPECT_FAILS(rg_batch_norm_create(device, &desc, &kernel), RG_INVALID_ARGUMENT, "phase");
    desc = rg_batch_norm_desc_default();
    desc.neuron.kind = RG_NEURON_PRELU;
    EXPECT_FAILS(rg_batch_norm_create(device, &desc, &kernel), RG_UNSUPPORTED, "prelu");
    rg_group_norm_desc group = rg_group_norm_desc_default();
    group.groups = -1;
    EXPECT_FAILS(rg_group_norm_create(device, &group, &kernel), RG_INVALID_ARGUMENT, "groups");
    EXPECT(kernel == NULL);
}

int main(void)
{
    test_little_memory();
    RUN_ON_DEVICES(test_what_is_asked, test_image_states, test_image_sums, test_parameter_dtype,
                   test_parameters_left_out, test_bad_shapes, test_bad_descriptors);
    return rg_test_report();
}
