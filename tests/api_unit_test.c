/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Dimensions of size 1, and of size 0, make no step: whatever their strides are, nothing but the
 * elements is read or written. */
#include "api.h"

enum { SIDE = 8, COUNT = SIDE * SIDE, CAPACITY = 16 * COUNT * SIDE };

/* ---- what a tensor tells ---- */

static void expect_strides(const rg_tensor *tensor, int64_t a, int64_t b, int64_t c)
{
    rg_tensor_desc desc = { .rank = 0 };
    EXPECT_OK(rg_tensor_get_desc(tensor, &desc));
    EXPECT(desc.rank == 3 && desc.strides[0] == a && desc.strides[1] == b && desc.strides[2] == c);
}

static void test_strides(rig *r)
{
    float data[5] = { 1, 2, 3, 4, 5 }, back[5] = { 0 };
    rg_tensor_desc desc = rg_tensor_desc_dense(RG_F32, 3, DIMS(1, 5, 1));
    desc.strides[0] = desc.strides[2] = INT64_MAX;
    rg_tensor *tensor = NULL, *view = NULL;
    EXPECT_OK(rg_tensor_wrap(r->device, &desc, data, NULL, NULL, &tensor));
    expect_strides(tensor, 5, 1, 1);
    EXPECT_OK(rg_tensor_read(tensor, back, sizeof back, RG_LAYOUT_SAME));
    EXPECT(memcmp(data, back, sizeof data) == 0);
    EXPECT_OK(rg_tensor_permute(tensor, (const int32_t[]){ 1, 0, 2 }, &view));
    expect_strides(view, 1, 1, 1);
    rg_tensor_destroy(view);
    EXPECT_OK(rg_tensor_slice(tensor, DIMS(0, 1, 0), DIMS(1, 1, 1), NULL, &view));
    expect_strides(view, 1, 1, 1);
    rg_tensor_destroy(view);
    rg_tensor_destroy(tensor);

    desc = rg_tensor_desc_dense(RG_F32, 3, DIMS(4, 0, 7));
    desc.strides[1] = INT64_MAX;
    EXPECT_OK(rg_tensor_create(r->device, &desc, &tensor));
    expect_strides(tensor, 7, 7, 1);
    rg_tensor_destroy(tensor);
}

/* ---- one channel through a view ---- */

/* (1, 1, 8, 8) in a larger memory, seen as (1, 8, 8, 1): the stride of the channel is 64. */
typedef struct watched {
    float memory[CAPACITY];
    rg_tensor *planes, *view;
} watched;

static void watch(rig *r, watched *w, uint64_t seed)
{
    for (int i = 0; i < CAPACITY; i++)
        w->memory[i] = i < COUNT ? (float)(draw(&seed) % 1000) / 250 - 2 : 77;
    const rg_tensor_desc desc = rg_tensor_desc_dense(RG_F32, 4, DIMS(1, 1, SIDE, SIDE));
    EXPECT_OK(rg_tensor_wrap(r->device, &desc, w->memory, NULL, NULL, &w->planes));
    EXPECT_OK(rg_tensor_permute(w->planes, (const int32_t[]){ 0, 2, 3, 1 }, &w->view));
}

static bool is_intact(const watched *w)
{
    for (int i = COUNT; i < CAPACITY; i++) {
        if (w->memory[i] != 77)
            return false;
    }
    return true;
}

static void unwatch(watched *w)
{
    rg_tensor_destroy(w->view);
    rg_tensor_destroy(w->planes);
}

/* PReLU read and wrote 64 elements apart: one channel counted as dense, with the stride of a view.
 */
static void test_prelu(rig *r)
{
    static watched x, y, dy, dx;
    float slope = 0.25f, dslope = 0, sum = 0;
    const rg_tensor_desc one = rg_tensor_desc_dense(RG_F32, 1, DIMS(1));
    rg_neuron_desc desc = rg_neuron_desc_default();
    desc.kind = RG_NEURON_PRELU;
    rg_kernel *kernel = NULL;
    rg_tensor *w = NULL, *dw = NULL;
    EXPECT_OK(rg_neuron_create(r->device, &desc, &kernel));
    EXPECT_OK(rg_tensor_wrap(r->device, &one, &slope, NULL, NULL, &w));
    EXPECT_OK(rg_tensor_wrap(r->device, &one, &dslope, NULL, NULL, &dw));
    watch(r, &x, 1);
    watch(r, &y, 2);
    watch(r, &dy, 3);
    watch(r, &dx, 4);
    rg_tensor *inputs[] = { x.view, w }, *gradients[] = { dx.view, dw };
    EXPECT_OK(rg_kernel_forward(kernel, r->commands, inputs, &y.view, NULL));
    EXPECT_OK(rg_kernel_gradient(kernel, r->commands, &dy.view, inputs, NULL, NULL, gradients, 0));
    EXPECT_OK(rig_run(r));
    for (int i = 0; i < COUNT; i++) {
        const bool positive = x.memory[i] > 0;
        EXPECT(y.memory[i] == (positive ? x.memory[i] : x.memory[i] * slope));
        EXPECT(dx.memory[i] == (positive ? dy.memory[i] : dy.memory[i] * slope));
        sum += positive ? 0 : dy.memory[i] * x.memory[i];
    }
    EXPECT(dslope - sum < 1e-4f && sum - dslope < 1e-4f);
    EXPECT(is_intact(&x) && is_intact(&y) && is_intact(&dy) && is_intact(&dx));
    unwatch(&x);
    unwatch(&y);
    unwatch(&dy);
    unwatch(&dx);
    rg_tensor_destroy(w);
    rg_tensor_destroy(dw);
    rg_kernel_destroy(kernel);
}

/* ---- images of a batch: those with a gap between them are neighbours, too ---- */

static void test_batch(rig *r, int64_t gap)
{
    enum { IMAGES = 3, SIZE = 10 };
    static float x[IMAGES * 2 * SIZE], y[IMAGES * 2 * SIZE];
    rg_tensor_desc desc = rg_tensor_desc_dense(RG_F32, 2, DIMS(IMAGES, SIZE));
    desc.strides[0] = SIZE + gap;
    rg_tensor *all_x = NULL, *all_y = NULL, *xs[IMAGES], *ys[IMAGES];
    for (int i = 0; i < IMAGES * 2 * SIZE; i++) {
        x[i] = (float)(i % 7) - 3;
        y[i] = 77;
    }
    EXPECT_OK(rg_tensor_wrap(r->device, &desc, x, NULL, NULL, &all_x));
    EXPECT_OK(rg_tensor_wrap(r->device, &desc, y, NULL, NULL, &all_y));
    for (int n = 0; n < IMAGES; n++) {
        EXPECT_OK(rg_tensor_slice(all_x, DIMS(n, 0), DIMS(1, SIZE), NULL, &xs[n]));
        EXPECT_OK(rg_tensor_slice(all_y, DIMS(n, 0), DIMS(1, SIZE), NULL, &ys[n]));
    }
    const rg_neuron_desc neuron = rg_neuron_desc_default();
    rg_kernel *kernel = NULL;
    EXPECT_OK(rg_neuron_create(r->device, &neuron, &kernel));
    EXPECT_OK(rg_kernel_forward_batch(kernel, r->commands, IMAGES, xs, ys, NULL));
    EXPECT_OK(rig_run(r));
    for (int i = 0; i < IMAGES * (SIZE + (int)gap); i++) {
        const bool is_element = i % (SIZE + (int)gap) < SIZE;
        EXPECT(y[i] == (!is_element ? 77 : x[i] > 0 ? x[i] : 0));
    }
    for (int n = 0; n < IMAGES; n++) {
        rg_tensor_destroy(xs[n]);
        rg_tensor_destroy(ys[n]);
    }
    rg_tensor_destroy(all_x);
    rg_tensor_destroy(all_y);
    rg_kernel_destroy(kernel);
}

int main(void)
{
    rig r = rig_open(1);
    test_strides(&r);
    test_prelu(&r);
    test_batch(&r, 0);
    test_batch(&r, 3);
    rig_close(&r);
    return rg_test_report();
}
