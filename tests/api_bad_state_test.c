/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* States of the wrong op, descriptor, shape or dtype, and states that are empty. Each gets a status
 * and the right sentence. */
#include "text_call.h"

/* A state made for `made`, given to a call of `used`. Both run alone. */
static const struct {
    line made, used; /* words: those of `used` */
} bad_states[] = {
    /* of another op */
    { { "softmax", "", "3,4", "" },
      { "batch_norm", "", "3,4 4 4", "the state belongs to the op softmax" } },
    { { "batch_norm", "", "3,4 4 4", "" },
      { "group_norm", "", "3,4 4 4", "the state belongs to the op batch_norm" } },
    { { "group_norm", "", "3,4 4 4", "" },
      { "batch_norm", "", "3,4 4 4", "the state belongs to the op group_norm" } },
    { { "spatial_norm", "", "3,4,5", "" },
      { "local_contrast", "", "3,4,5", "the state belongs to the op spatial_norm" } },
    /* of other fields */
    { { "dense", "neuron.kind=gelu", "3,4 4,4 4", "" },
      { "dense", "neuron.kind=swish", "3,4 4,4 4",
        "the state was created for a kernel with a different descriptor" } },
    { { "batch_norm", "", "3,4 4 4", "" },
      { "batch_norm", "epsilon=1", "3,4 4 4",
        "the state was created for a kernel with a different descriptor" } },
    { { "batch_norm", "phase=statistics", "3,4 4 4", "" },
      { "batch_norm", "", "3,4 4 4",
        "the state was created for a kernel with a different descriptor" } },
    { { "group_norm", "groups=4", "3,4 4 4", "" },
      { "group_norm", "groups=2", "3,4 4 4",
        "the state was created for a kernel with a different descriptor" } },
    { { "group_norm", "", "3,4 4 4", "" },
      { "group_norm", "image_gradients=true", "3,4 4 4",
        "the state was created for a kernel with a different descriptor" } },
    /* of another shape or dtype */
    { { "dense", "neuron.kind=gelu", "3,4 4,4 4", "" },
      { "dense", "neuron.kind=gelu", "2,4 4,4 4", "created for x of shape f32[3, 4]" } },
    { { "batch_norm", "", "3,4 4 4", "" },
      { "batch_norm", "", "3,5 5 5", "created for x of shape f32[3, 4]" } },
    { { "batch_norm", "", "3,4 4 4", "" },
      { "batch_norm", "", "2,4 4 4", "created for x of shape f32[3, 4]" } },
    { { "batch_norm", "", "3,4 4 4", "" },
      { "batch_norm", "", "f64:3,4 f64:4 f64:4", "created for x of shape f32[3, 4]" } },
    { { "group_norm", "", "3,4 4 4", "" },
      { "group_norm", "", "9,4 4 4", "created for x of shape f32[3, 4]" } },
    { { "group_norm", "", "3,4,4 4 4", "" },
      { "group_norm", "", "3,2,4 4 4",
        "the state was created for x of shape f32[3, 4, 4], not f32[3, 2, 4]" } },
};

/* Tensors of a call: inputs and their gradients; y and dy, which are like the first input. */
typedef struct work {
    rg_kernel *kernel;
    rg_tensor *x[RG_MAX_INPUTS], *dx[RG_MAX_INPUTS], *y, *dy;
    spec recipe;
} work;

static work work_of(const line *from, rg_device *device)
{
    work w = { .kernel = NULL };
    EXPECT_OK(make(from, device, &w.recipe, &w.kernel));
    for (int32_t i = 0; i < w.recipe.inputs; i++) {
        const rg_tensor_desc *desc = &w.recipe.x[i];
        w.x[i] = filled(device, desc->dtype, desc->rank, desc->dims, 1);
        w.dx[i] = tensor_of(device, desc->dtype, desc->rank, desc->dims);
    }
    const rg_tensor_desc *desc = &w.recipe.x[0];
    w.y = tensor_of(device, desc->dtype, desc->rank, desc->dims);
    w.dy = filled(device, desc->dtype, desc->rank, desc->dims, 2);
    return w;
}

static void work_close(work *w)
{
    for (int32_t i = 0; i < w->recipe.inputs; i++) {
        rg_tensor_destroy(w->x[i]);
        rg_tensor_destroy(w->dx[i]);
    }
    rg_tensor_destroy(w->y);
    rg_tensor_destroy(w->dy);
    rg_kernel_destroy(w->kernel);
}

static void test_bad_states(rig *r)
{
    for (size_t i = 0; i < sizeof bad_states / sizeof bad_states[0]; i++) {
        const line *used = &bad_states[i].used;
        work a = work_of(&bad_states[i].made, r->device), b = work_of(used, r->device);
        rg_state *state = NULL, *own = NULL;
        EXPECT_OK(rg_state_create(a.kernel, a.x, &state));
        EXPECT_FAILS(rg_kernel_forward(b.kernel, r->commands, b.x, &b.y, state),
                     RG_INVALID_ARGUMENT, used->words);
        EXPECT_FAILS(rg_kernel_gradient(b.kernel, r->commands, &b.dy, b.x, &b.y, state, b.dx, 0),
                     RG_INVALID_ARGUMENT, used->words);
        EXPECT_OK(rg_state_create(b.kernel, b.x, &own));
        EXPECT_OK(rg_kernel_forward(b.kernel, r->commands, b.x, &b.y, own));
        EXPECT_OK(rg_kernel_gradient(b.kernel, r->commands, &b.dy, b.x, &b.y, own, b.dx, 0));
        EXPECT_OK(rig_run(r));
        rg_state_destroy(state);
        rg_state_destroy(own);
        work_close(&a);
        work_close(&b);
    }
}

static rg_status early_gradient(work *w, rig *r, rg_state *state)
{
    return rg_kernel_gradient(w->kernel, r->commands, &w->dy, w->x, &w->y, state, w->dx, 0);
}

/* A gradient before there are statistics: refused where they come in a call of their own, else
 * made from x, as without a state. */
static void test_early_gradients(rig *r)
{
    static const line early[] = {
        { "batch_norm", "phase=statistics", "3,4 4 4", "no forward pass" },
        { "batch_norm", "phase=normalize", "3,4 4 4", "no forward pass" },
        { "batch_norm", "", "3,4 4 4", "" },
        { "batch_norm", "statistics=given", "3,4 4 4 4 4", "" },
        { "group_norm", "groups=2", "3,4 4 4", "" },
        { "group_norm", "image_gradients=true", "3,5,4 4 4", "" },
    };
    for (size_t i = 0; i < sizeof early / sizeof early[0]; i++) {
        work w = work_of(&early[i], r->device), without = work_of(&early[i], r->device);
        rg_state *state = NULL;
        EXPECT_OK(rg_state_create(w.kernel, w.x, &state));
        if (early[i].words[0] != 0) {
            EXPECT_FAILS(early_gradient(&w, r, state), RG_INVALID_STATE, early[i].words);
            EXPECT_FAILS(early_gradient(&w, r, NULL), RG_INVALID_ARGUMENT, "which is NULL");
        } else {
            EXPECT_OK(early_gradient(&w, r, state));
            EXPECT_OK(early_gradient(&without, r, NULL));
        }
        EXPECT_OK(rig_run(r));
        for (int32_t k = 0; k < w.recipe.inputs; k++)
            EXPECT(early[i].words[0] != 0 || same_bits(w.dx[k], without.dx[k]));
        rg_state_destroy(state);
        work_close(&w);
        work_close(&without);
    }
}

int main(void)
{
    rig r = rig_open(2);
    test_bad_states(&r);
    test_early_gradients(&r);
    rig_close(&r);
    return rg_test_report();
}
