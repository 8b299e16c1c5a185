/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Batch, instance and group normalisation as in MPS: phases that share a state, statistics of parts
 * of a batch, states of images, and calls that must be refused. docs/mps.md names these tests. */
#include "mps.h"
#include "ops/ops.h"

enum { IMAGES = 5, PIXELS = 12, CHANNELS = 7 };

static rg_kernel *batch_norm_of(rg_device *device, rg_batch_norm_phase phase, rg_neuron_kind neuron)
{
    rg_batch_norm_desc desc = rg_batch_norm_desc_default();
    desc.phase = phase;
    desc.epsilon = 1e-5;
    desc.neuron.kind = neuron;
    rg_kernel *kernel = NULL;
    EXPECT_OK(rg_batch_norm_create(device, &desc, &kernel));
    return kernel;
}

/* Tensors of a batch, in f64: x, gamma, beta, dy. */
typedef struct batch {
    rg_tensor *x[3], *dy, *y, *dx[3];
} batch;

static batch batch_of(rg_device *device, int64_t images)
{
    const int64_t *dims = DIMS(images, 3, 4, CHANNELS);
    batch b = {
        .x = { filled(device, RG_F64, 4, dims, 1), filled(device, RG_F64, 1, DIMS(CHANNELS), 2),
               filled(device, RG_F64, 1, DIMS(CHANNELS), 3) },
        .dy = filled(device, RG_F64, 4, dims, 4),
        .y = tensor_of(device, RG_F64, 4, dims),
        .dx = { tensor_of(device, RG_F64, 4, dims), tensor_of(device, RG_F64, 1, DIMS(CHANNELS)),
                tensor_of(device, RG_F64, 1, DIMS(CHANNELS)) }
    };
    return b;
}

static void batch_close(batch *b)
{
    for (int i = 0; i < 3; i++) {
        rg_tensor_destroy(b->x[i]);
        rg_tensor_destroy(b->dx[i]);
    }
    rg_tensor_destroy(b->dy);
    rg_tensor_destroy(b->y);
}

/* Images `first` to first + count - 1 of a tensor. */
static rg_tensor *images_of(rg_tensor *tensor, int64_t first, int64_t count)
{
    rg_tensor *view = NULL;
    EXPECT_OK(
        rg_tensor_slice(tensor, DIMS(first, 0, 0, 0), DIMS(count, 3, 4, CHANNELS), NULL, &view));
    return view;
}

static bool all_near(const rg_tensor *a, const rg_tensor *b)
{
    double *in_a = (double *)(void *)elements_of(a), *in_b = (double *)(void *)elements_of(b);
    bool near = count_of(a) == count_of(b);
    for (int64_t i = 0; i < count_of(a) && near; i++)
        near = is_near(in_a[i], in_b[i], 1e-12);
    free(in_a);
    free(in_b);
    return near;
}

/* A cycle in two parts of 2 and 3 images, with the kernels apart. */
static void run_phases(rig *r, const rg_kernel *statistics, const rg_kernel *normalize, batch *b,
                       rg_state *state)
{
    static const int64_t first[] = { 0, 2 }, count[] = { 2, 3 };
    rg_tensor *x[2][3], *y[2], *dy[2], *dx[2][3];
    for (int p = 0; p < 2; p++) {
        x[p][0] = images_of(b->x[0], first[p], count[p]);
        x[p][1] = b->x[1];
        x[p][2] = b->x[2];
        y[p] = images_of(b->y, first[p], count[p]);
        dy[p] = images_of(b->dy, first[p], count[p]);
        dx[p][0] = images_of(b->dx[0], first[p], count[p]);
        dx[p][1] = p == 0 ? b->dx[1] : NULL;
        dx[p][2] = p == 0 ? b->dx[2] : NULL;
    }
    for (int p = 0; p < 2; p++)
        EXPECT_OK(rg_kernel_forward(statistics, r->commands, x[p], NULL, state));
    for (int p = 0; p < 2; p++)
        EXPECT_OK(rg_kernel_forward(normalize, r->commands, x[p], &y[p], state));
    for (int p = 0; p < 2; p++)
        EXPECT_OK(rg_kernel_gradient(statistics, r->commands, &dy[p], x[p], NULL, state, NULL, 0));
    for (int p = 0; p < 2; p++)
        EXPECT_OK(rg_kernel_gradient(normalize, r->commands, &dy[p], x[p], NULL, state, dx[p], 0));
    EXPECT_OK(rig_run(r));
    for (int p = 0; p < 2; p++) {
        rg_tensor_destroy(x[p][0]);
        rg_tensor_destroy(y[p]);
        rg_tensor_destroy(dy[p]);
        rg_tensor_destroy(dx[p][0]);
    }
}

/* Parts of a batch give what the whole batch does, again and again with one state. */
static void test_batch_phases(rig *r)
{
    static const rg_neuron_kind neurons[] = { RG_NEURON_NONE, RG_NEURON_RELU, RG_NEURON_TANH };
    for (int i = 0; i < 3; i++) {
        rg_kernel *whole = batch_norm_of(r->device, RG_BATCH_NORM_WHOLE, neurons[i]);
        rg_kernel *statistics = batch_norm_of(r->device, RG_BATCH_NORM_STATISTICS, neurons[i]);
        rg_kernel *normalize = batch_norm_of(r->device, RG_BATCH_NORM_NORMALIZE, neurons[i]);
        batch a = batch_of(r->device, IMAGES), b = batch_of(r->device, IMAGES);
        rg_state *state = NULL;
        EXPECT_OK(rg_kernel_forward(whole, r->commands, a.x, &a.y, NULL));
        EXPECT_OK(rg_kernel_gradient(whole, r->commands, &a.dy, a.x, NULL, NULL, a.dx, 0));
        EXPECT_OK(rig_run(r));
        EXPECT_OK(rg_state_create(statistics, b.x, &state));
        for (int cycle = 0; cycle < 2; cycle++) {
            run_phases(r, statistics, normalize, &b, state);
            EXPECT(all_near(a.y, b.y));
            for (int k = 0; k < 3; k++)
                EXPECT(all_near(a.dx[k], b.dx[k]));
        }
        rg_tensor *dgamma = NULL;
        EXPECT_OK(rg_state_tensor(state, "dgamma", &dgamma));
        EXPECT(all_near(a.dx[1], dgamma));
        rg_state_destroy(state);
        batch_close(&a);
        batch_close(&b);
        rg_kernel_destroy(whole);
        rg_kernel_destroy(statistics);
        rg_kernel_destroy(normalize);
    }
}

/* Images of a batch, each in its own tensors, beside parameters that all of them share. */
typedef struct images {
    rg_tensor *x[3 * IMAGES], *y[IMAGES], *dy[IMAGES], *dx[3 * IMAGES];
    rg_state *states[IMAGES];
} images;

static images images_open(batch *b, rg_state *state)
{
    images all;
    for (int n = 0; n < IMAGES; n++) {
        all.x[n] = images_of(b->x[0], n, 1);
        all.y[n] = images_of(b->y, n, 1);
        all.dy[n] = images_of(b->dy, n, 1);
        all.dx[n] = images_of(b->dx[0], n, 1);
        for (int i = 1; i < 3; i++) {
            all.x[i * IMAGES + n] = b->x[i];
            all.dx[i * IMAGES + n] = b->dx[i];
        }
        all.states[n] = state;
    }
    return all;
}

static void images_close(images *all)
{
    for (int n = 0; n < IMAGES; n++) {
        rg_tensor_destroy(all->x[n]);
        rg_tensor_destroy(all->y[n]);
        rg_tensor_destroy(all->dy[n]);
        rg_tensor_destroy(all->dx[n]);
    }
}

/* Phases over a batch of images that share dgamma and dbeta: those of the batch, once, and where
 * the caller adds, added once. */
static void test_batch_images(rig *r)
{
    rg_kernel *whole = batch_norm_of(r->device, RG_BATCH_NORM_WHOLE, RG_NEURON_RELU);
    rg_kernel *statistics = batch_norm_of(r->device, RG_BATCH_NORM_STATISTICS, RG_NEURON_RELU);
    rg_kernel *normalize = batch_norm_of(r->device, RG_BATCH_NORM_NORMALIZE, RG_NEURON_RELU);
    batch a = batch_of(r->device, IMAGES), b = batch_of(r->device, IMAGES);
    rg_state *state = NULL;
    EXPECT_OK(rg_state_create(statistics, b.x, &state));
    images all = images_open(&b, state);
    for (uint64_t add = 0; add < 8; add++) {
        for (uint32_t i = 0; i < 3; i++) {
            fill(a.dx[i], 10 + i);
            fill(b.dx[i], 10 + i);
        }
        EXPECT_OK(rg_kernel_forward(whole, r->commands, a.x, &a.y, NULL));
        EXPECT_OK(rg_kernel_gradient(whole, r->commands, &a.dy, a.x, NULL, NULL, a.dx, add));
        EXPECT_OK(
            rg_kernel_forward_batch(statistics, r->commands, IMAGES, all.x, NULL, all.states));
        EXPECT_OK(
            rg_kernel_forward_batch(normalize, r->commands, IMAGES, all.x, all.y, all.states));
        EXPECT_OK(rg_kernel_gradient_batch(statistics, r->commands, IMAGES, all.dy, all.x, NULL,
                                           all.states, NULL, 0));
        EXPECT_OK(rg_kernel_gradient_batch(normalize, r->commands, IMAGES, all.dy, all.x, NULL,
                                           all.states, all.dx, add));
        EXPECT_OK(rig_run(r));
        EXPECT(all_near(a.y, b.y));
        for (int i = 0; i < 3; i++)
            EXPECT(all_near(a.dx[i], b.dx[i]));
    }
    images_close(&all);
    rg_state_destroy(state);
    batch_close(&a);
    batch_close(&b);
    rg_kernel_destroy(whole);
    rg_kernel_destroy(statistics);
    rg_kernel_destroy(normalize);
}

/* A dx needs the sums of all that the statistics have, and these the statistics of their y. */
static void test_batch_incomplete(rig *r)
{
    rg_kernel *statistics = batch_norm_of(r->device, RG_BATCH_NORM_STATISTICS, RG_NEURON_NONE);
    rg_kernel *normalize = batch_norm_of(r->device, RG_BATCH_NORM_NORMALIZE, RG_NEURON_NONE);
    batch b = batch_of(r->device, IMAGES);
    rg_state *state = NULL;
    EXPECT_OK(rg_state_create(statistics, b.x, &state));
    images all = images_open(&b, state);
    rg_tensor *one[] = { all.x[0], b.x[1], b.x[2] }, *one_dx[] = { all.dx[0], NULL, NULL };
    EXPECT_OK(rg_kernel_forward(statistics, r->commands, b.x, NULL, state));
    EXPECT_FAILS(rg_kernel_gradient(statistics, r->commands, all.dy, one, NULL, state, NULL, 0),
                 RG_INVALID_STATE,
                 "batch_norm: the statistics in the state were not used yet; run forward of phase "
                 "normalize first");
    EXPECT_OK(rg_kernel_forward(normalize, r->commands, b.x, &b.y, state));
    EXPECT_OK(rg_kernel_gradient(statistics, r->commands, all.dy, one, NULL, state, NULL, 0));
    EXPECT_FAILS(rg_kernel_gradient(normalize, r->commands, all.dy, one, NULL, state, one_dx, 0),
                 RG_INVALID_STATE,
                 "batch_norm: the state has sums of 12 elements per channel but statistics of 60; "
                 "run the gradient of phase statistics for the whole batch first");
    EXPECT_FAILS(rg_kernel_gradient(statistics, r->commands, &b.dy, b.x, NULL, state, NULL, 0),
                 RG_INVALID_STATE,
                 "batch_norm: dy adds 60 elements per channel to the 12 already summed, more than "
                 "the 60 of the statistics");
    for (int n = 1; n < IMAGES; n++) {
        one[0] = all.x[n];
        EXPECT_OK(
            rg_kernel_gradient(statistics, r->commands, &all.dy[n], one, NULL, state, NULL, 0));
    }
    EXPECT_OK(rg_kernel_gradient(normalize, r->commands, &b.dy, b.x, NULL, state, b.dx, 0));
    /* newer statistics, which no y has used: nothing of the older batch can follow */
    EXPECT_OK(rg_kernel_forward(statistics, r->commands, b.x, NULL, state));
    EXPECT_FAILS(rg_kernel_gradient(statistics, r->commands, &b.dy, b.x, NULL, state, NULL, 0),
                 RG_INVALID_STATE,
                 "batch_norm: the statistics in the state were not used yet; run forward of phase "
                 "normalize first");
    EXPECT_FAILS(rg_kernel_gradient(normalize, r->commands, &b.dy, b.x, NULL, state, b.dx, 0),
                 RG_INVALID_STATE,
                 "batch_norm: the statistics in the state were not used yet; run forward of phase "
                 "normalize first");
    EXPECT_OK(rig_run(r));
    images_close(&all);
    rg_state_destroy(state);
    batch_close(&b);
    rg_kernel_destroy(statistics);
    rg_kernel_destroy(normalize);
}

/* Statistics go on until they are used, or reset. */
static void test_batch_reset(rig *r)
{
    rg_kernel *statistics = batch_norm_of(r->device, RG_BATCH_NORM_STATISTICS, RG_NEURON_NONE);
    batch b = batch_of(r->device, 1), other = batch_of(r->device, 1);
    rg_state *state = NULL, *fresh = NULL;
    fill(other.x[0], 77);
    EXPECT_OK(rg_state_create(statistics, b.x, &state));
    EXPECT_OK(rg_state_create(statistics, b.x, &fresh));
    EXPECT_OK(rg_kernel_forward(statistics, r->commands, other.x, NULL, state));
    EXPECT_OK(rg_state_reset(state));
    EXPECT_OK(rg_kernel_forward(statistics, r->commands, b.x, NULL, state));
    EXPECT_OK(rg_kernel_forward(statistics, r->commands, b.x, NULL, fresh));
    EXPECT_OK(rig_run(r));
    rg_tensor *mean = NULL, *want = NULL;
    EXPECT_OK(rg_state_tensor(state, "mean", &mean));
    EXPECT_OK(rg_state_tensor(fresh, "mean", &want));
    EXPECT(same_bits(mean, want));
    rg_state_destroy(state);
    rg_state_destroy(fresh);
    batch_close(&b);
    batch_close(&other);
    rg_kernel_destroy(statistics);
}

/* A refused call leaves the progress of its state alone. */
static void test_batch_order(rig *r)
{
    rg_kernel *statistics = batch_norm_of(r->device, RG_BATCH_NORM_STATISTICS, RG_NEURON_NONE);
    rg_kernel *normalize = batch_norm_of(r->device, RG_BATCH_NORM_NORMALIZE, RG_NEURON_NONE);
    rg_kernel *whole = batch_norm_of(r->device, RG_BATCH_NORM_WHOLE, RG_NEURON_NONE);
    batch b = batch_of(r->device, 2);
    rg_state *state = NULL, *other = NULL;
    EXPECT_OK(rg_state_create(normalize, b.x, &state));
    EXPECT_OK(rg_state_create(whole, b.x, &other));
    EXPECT_FAILS(rg_kernel_forward(normalize, r->commands, b.x, &b.y, state), RG_INVALID_STATE,
                 "no statistics");
    EXPECT_FAILS(rg_kernel_forward(normalize, r->commands, b.x, &b.y, NULL), RG_INVALID_ARGUMENT,
                 "NULL");
    EXPECT_FAILS(rg_kernel_forward(statistics, r->commands, b.x, NULL, NULL), RG_INVALID_ARGUMENT,
                 "state");
    EXPECT_FAILS(rg_kernel_forward(statistics, r->commands, b.x, &b.y, state), RG_INVALID_ARGUMENT,
                 "must be NULL");
    EXPECT_FAILS(rg_kernel_forward(statistics, r->commands, b.x, NULL, other), RG_INVALID_ARGUMENT,
                 "the state was created for a kernel with a different descriptor");
    EXPECT_FAILS(rg_kernel_gradient(statistics, r->commands, &b.dy, b.x, NULL, state, NULL, 0),
                 RG_INVALID_STATE, "no forward pass");
    EXPECT_OK(rg_kernel_forward(statistics, r->commands, b.x, NULL, state));
    EXPECT_FAILS(rg_kernel_gradient(normalize, r->commands, &b.dy, b.x, NULL, state, b.dx, 0),
                 RG_INVALID_STATE,
                 "batch_norm: the statistics in the state were not used yet; run forward of phase "
                 "normalize first");
    /* an image that fits and one that does not: nothing is counted */
    rg_tensor *wrong = filled(r->device, RG_F64, 4, DIMS(2, 3, 4, CHANNELS + 1), 5);
    rg_tensor *x[] = { b.x[0], wrong, b.x[1], b.x[1], b.x[2], b.x[2] };
    rg_state *states[] = { state, state };
    EXPECT_FAILS(rg_kernel_forward_batch(statistics, r->commands, 2, x, NULL, states),
                 RG_INVALID_ARGUMENT, "image 1");
    EXPECT_OK(rg_kernel_forward(normalize, r->commands, b.x, &b.y, state));
    EXPECT_FAILS(rg_kernel_gradient(normalize, r->commands, &b.dy, b.x, NULL, state, b.dx, 0),
                 RG_INVALID_STATE, "no sums");
    EXPECT_OK(rig_run(r));
    batch a = batch_of(r->device, 2);
    EXPECT_OK(rg_kernel_forward(whole, r->commands, a.x, &a.y, NULL));
    EXPECT_OK(rig_run(r));
    EXPECT(all_near(a.y, b.y));
    rg_tensor_destroy(wrong);
    rg_state_destroy(state);
    rg_state_destroy(other);
    batch_close(&a);
    batch_close(&b);
    rg_kernel_destroy(statistics);
    rg_kernel_destroy(normalize);
    rg_kernel_destroy(whole);
}

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
    bool near = true;
    for (int64_t c = 0; c < count_of(sum); c++) {
        double all = 0;
        for (int64_t n = 0; n < count; n++)
            all += element_at(each, DIMS(n, c));
        near &= is_near(all, element_at(sum, DIMS(c)), tolerance);
    }
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
static void test_little_capacity(void)
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

static void test_bad_shapes(rg_device *device)
{
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

static void test_bad_descriptors(rg_device *device)
{
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
    rig r = rig_open(2);
    test_batch_phases(&r);
    test_batch_images(&r);
    test_batch_incomplete(&r);
    test_batch_reset(&r);
    test_batch_order(&r);
    test_what_is_asked(&r);
    test_image_states(&r);
    test_image_sums(&r);
    test_little_capacity();
    test_parameter_dtype(&r);
    test_parameters_left_out(&r);
    test_bad_shapes(r.device);
    test_bad_descriptors(r.device);
    rig_close(&r);
    return rg_test_report();
}
