/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Batch normalisation as in MPS: phases that share a state, over parts of a batch. docs/mps.md
 * names these tests. */
#include "any_device.h"
#include "mps_norm.h"

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

/* Parts of a batch give the results of the whole batch, repeatedly with one state. */
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

/* dx needs the sums of all images of the statistics, and sums need the statistics of their y. */
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

/* Statistics accumulate until they are used or reset. */
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

/* A refused call does not change the progress of its state. */
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

int main(void)
{
    RUN_ON_DEVICES(test_batch_phases, test_batch_images, test_batch_incomplete, test_batch_reset,
                   test_batch_order);
    return rg_test_report();
}
