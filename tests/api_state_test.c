/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* States: what they record and hold, which calls they fit, temporary ones and their counts. */
#include "api.h"
#include "api_seam.h"

#include <retrograde/batch_norm.h>

typedef struct scene {
    rig r;
    rg_kernel *kernel; /* mix */
    rg_tensor *x[2], *y, *dy, *dx[2];
} scene;

static scene scene_open(void)
{
    scene s = { .r = rig_open(2) };
    const mix_desc desc = mix_desc_default();
    EXPECT_OK(rg_kernel_create(s.r.device, &mix_op, &desc, &s.kernel));
    for (int i = 0; i < 2; i++) {
        s.x[i] = filled(s.r.device, RG_F32, 2, DIMS(4, 6), (uint64_t)i);
        s.dx[i] = filled(s.r.device, RG_F32, 2, DIMS(4, 6), 7);
    }
    s.y = filled(s.r.device, RG_F32, 2, DIMS(4, 6), 8);
    s.dy = filled(s.r.device, RG_F32, 2, DIMS(4, 6), 9);
    return s;
}

static void scene_close(scene *s)
{
    for (int i = 0; i < 2; i++) {
        rg_tensor_destroy(s->x[i]);
        rg_tensor_destroy(s->dx[i]);
    }
    rg_tensor_destroy(s->y);
    rg_tensor_destroy(s->dy);
    rg_kernel_destroy(s->kernel);
    rig_close(&s->r);
}

static rg_status forward(scene *s, rg_state *state)
{
    return rg_kernel_forward(s->kernel, s->r.commands, s->x, &s->y, state);
}

static rg_status gradient(scene *s, rg_state *state)
{
    return rg_kernel_gradient(s->kernel, s->r.commands, &s->dy, s->x, NULL, state, s->dx, 0);
}

/* ---- what a state is ---- */

static void test_fields(scene *s)
{
    rg_state *state = NULL;
    EXPECT_OK(rg_state_create(s->kernel, s->x, &state));
    EXPECT(rg_state_count(state) == 2);
    EXPECT(strcmp(rg_state_name(state, 0), "kept") == 0);
    EXPECT(strcmp(rg_state_name(state, 1), "total") == 0);
    EXPECT(rg_state_name(state, 2) == NULL && rg_state_name(state, -1) == NULL);
    EXPECT(rg_state_bytes(state) == 4 * 6 * 4 + 4);
    EXPECT(!rg_state_is_temporary(state) && rg_state_read_count(state) == 0);
    rg_tensor_desc desc;
    EXPECT_OK(rg_state_source(state, 1, &desc));
    EXPECT(desc.dtype == RG_F32 && desc.rank == 2 && desc.dims[0] == 4 && desc.dims[1] == 6);
    EXPECT_FAILS(rg_state_source(state, 2, &desc), RG_INVALID_ARGUMENT,
                 "the state of mix has 2 sources; index 2 is out of range");
    EXPECT_FAILS(rg_state_source(state, -1, &desc), RG_INVALID_ARGUMENT,
                 "the state of mix has 2 sources; index -1 is out of range");
    EXPECT_FAILS(rg_state_source(state, 0, NULL), RG_INVALID_ARGUMENT, "desc is NULL");
    rg_tensor *kept = NULL, *none = (rg_tensor *)1;
    EXPECT_OK(rg_state_tensor(state, "kept", &kept));
    EXPECT_FAILS(rg_state_tensor(state, "lost", &none), RG_INVALID_ARGUMENT, "'lost'");
    EXPECT(none == NULL);
    EXPECT_FAILS(rg_state_tensor(state, NULL, &none), RG_INVALID_ARGUMENT, "name is NULL");
    EXPECT_FAILS(rg_state_tensor(NULL, "kept", &none), RG_INVALID_ARGUMENT, "state is NULL");
    EXPECT_FAILS(rg_state_tensor(state, "kept", NULL), RG_INVALID_ARGUMENT, "tensor is NULL");
    char text[256];
    const size_t length = rg_state_describe(state, text, sizeof text);
    EXPECT(strcmp(text, "state of mix bias=false scale=1, a f32[4, 6], b f32[4, 6], holds kept "
                        "f32[4, 6], holds total f32[]") == 0);
    EXPECT(length == strlen(text) && rg_state_describe(state, NULL, 0) == length);
    EXPECT(rg_state_describe(state, text, 6) == length && strcmp(text, "state") == 0);
    EXPECT(strcmp(rg_state_label(state), "") == 0);
    EXPECT_OK(rg_state_set_label(state, "first"));
    EXPECT(strcmp(rg_state_label(state), "first") == 0);
    EXPECT_FAILS(rg_state_set_label(state, NULL), RG_INVALID_ARGUMENT, "label is NULL");
    EXPECT_FAILS(rg_state_set_read_count(state, 3), RG_INVALID_ARGUMENT, "not temporary");
    EXPECT(rg_state_add_read_count(&state, 1, 3) == 1 && rg_state_read_count(state) == 0);
    EXPECT_OK(forward(s, state));
    EXPECT_OK(rig_run(&s->r));
    EXPECT(same_bits(kept, s->x[0]));
    rg_state_destroy(state);
    rg_state_destroy(NULL);
    EXPECT(rg_state_count(NULL) == 0 && rg_state_name(NULL, 0) == NULL &&
           rg_state_bytes(NULL) == 0);
    EXPECT(rg_state_describe(NULL, text, sizeof text) == 0 && text[0] == 0);
    EXPECT(!rg_state_is_temporary(NULL) && strcmp(rg_state_label(NULL), "") == 0);
    EXPECT_FAILS(rg_state_reset(NULL), RG_INVALID_ARGUMENT, "state is NULL");
}

static void test_equality(scene *s)
{
    rg_state *states[4] = { NULL };
    rg_tensor *small[2] = { tensor_of(s->r.device, RG_F32, 2, DIMS(4, 5)),
                            tensor_of(s->r.device, RG_F32, 2, DIMS(4, 5)) };
    mix_desc desc = mix_desc_default();
    desc.scale = 2;
    rg_kernel *other = NULL, *copy = NULL;
    EXPECT_OK(rg_kernel_create(s->r.device, &mix_op, &desc, &other));
    EXPECT_OK(rg_kernel_copy(s->kernel, NULL, &copy));
    EXPECT_OK(rg_state_create(s->kernel, s->x, &states[0]));
    EXPECT_OK(rg_state_create(copy, s->x, &states[1]));
    EXPECT_OK(rg_state_create(s->kernel, small, &states[2]));
    EXPECT_OK(rg_state_create(other, s->x, &states[3]));
    EXPECT(rg_state_equal(states[0], states[1]) && rg_state_equal(NULL, NULL));
    EXPECT(!rg_state_equal(states[0], states[2]) && !rg_state_equal(states[0], states[3]));
    EXPECT(!rg_state_equal(states[0], NULL));
    EXPECT_OK(forward(s, states[1])); /* of an equal kernel: fits */
    EXPECT_FAILS(forward(s, states[2]), RG_INVALID_ARGUMENT,
                 "the state was created for a of shape f32[4, 5], not f32[4, 6]");
    EXPECT_FAILS(forward(s, states[3]), RG_INVALID_ARGUMENT,
                 "the state was created for a kernel with a different descriptor");
    rig_renew(&s->r);
    for (int i = 0; i < 4; i++)
        rg_state_destroy(states[i]);
    rg_tensor_destroy(small[0]);
    rg_tensor_destroy(small[1]);
    rg_kernel_destroy(other);
    rg_kernel_destroy(copy);
}

static void test_misfits(scene *s)
{
    rg_kernel *softmax = softmax_of(s->r.device, RG_SOFTMAX_PLAIN, -1), *far_kernel = NULL;
    rg_state *wrong = NULL, *far = NULL, *state = NULL, *none = (rg_state *)1;
    EXPECT_OK(rg_state_create(softmax, s->x, &wrong));
    EXPECT(rg_state_count(wrong) == 0 && rg_state_bytes(wrong) == 0);
    EXPECT_FAILS(forward(s, wrong), RG_INVALID_ARGUMENT, "the state belongs to the op softmax");
    rig other = rig_open(1);
    rg_tensor *x[2] = { filled(other.device, RG_F32, 2, DIMS(4, 6), 1),
                        filled(other.device, RG_F32, 2, DIMS(4, 6), 1) };
    EXPECT_OK(rg_kernel_copy(s->kernel, other.device, &far_kernel));
    EXPECT_OK(rg_state_create(far_kernel, x, &far));
    EXPECT_FAILS(forward(s, far), RG_INVALID_ARGUMENT, "different devices");
    EXPECT_FAILS(rg_state_create(s->kernel, x, &none), RG_INVALID_ARGUMENT, "different devices");
    EXPECT(none == NULL);
    EXPECT_FAILS(rg_state_create_temporary(s->kernel, other.commands, s->x, &none),
                 RG_INVALID_ARGUMENT, "different devices");
    EXPECT_FAILS(rg_state_create(NULL, s->x, &none), RG_INVALID_ARGUMENT, "kernel is NULL");
    EXPECT_FAILS(rg_state_create(s->kernel, NULL, &none), RG_INVALID_ARGUMENT, "x is NULL");
    EXPECT_FAILS(rg_state_create(s->kernel, s->x, NULL), RG_INVALID_ARGUMENT, "state is NULL");
    rg_tensor *const half[] = { s->x[0], NULL };
    EXPECT_FAILS(rg_state_create(s->kernel, half, &none), RG_INVALID_ARGUMENT, "b is NULL");
    EXPECT_FAILS(rg_state_create_temporary(s->kernel, NULL, s->x, &none), RG_INVALID_ARGUMENT,
                 "NULL");

    EXPECT_OK(rg_state_create(s->kernel, s->x, &state)); /* the order of calls */
    EXPECT_FAILS(gradient(s, state), RG_INVALID_STATE, "no forward pass");
    EXPECT_OK(forward(s, state));
    EXPECT_OK(gradient(s, state));
    EXPECT_OK(gradient(s, state));
    EXPECT_OK(rg_state_reset(state));
    EXPECT_FAILS(gradient(s, state), RG_INVALID_STATE, "no forward pass");
    EXPECT_OK(forward(s, state));
    EXPECT_OK(gradient(s, state));
    rg_state_destroy(state); /* in use: recorded work keeps its tensors */
    EXPECT_OK(rig_run(&s->r));
    rg_state_destroy(wrong);
    rg_state_destroy(far);
    rg_tensor_destroy(x[0]);
    rg_tensor_destroy(x[1]);
    rg_kernel_destroy(far_kernel);
    rg_kernel_destroy(softmax);
    rig_close(&other);
}

/* The gradient finds the shape of its source in the state. */
static void test_source_from_state(scene *s)
{
    rg_kernel *softmax = softmax_of(s->r.device, RG_SOFTMAX_PLAIN, -1);
    rg_tensor *y = NULL, *dx = NULL;
    rg_state *state = NULL;
    EXPECT_OK(rg_kernel_forward_alloc(softmax, s->r.commands, 1, s->x, false, &y, &state));
    EXPECT_OK(rg_kernel_gradient_alloc(softmax, s->r.commands, 1, &s->dy, NULL, &y, &state, 1,
                                       false, &dx));
    EXPECT_OK(rig_run(&s->r));
    rg_state_destroy(state);
    rg_tensor_destroy(y);
    rg_tensor_destroy(dx);
    rg_kernel_destroy(softmax);
    rg_tensor *both[2] = { NULL, NULL }; /* da has no y to look at */
    EXPECT_OK(rg_kernel_forward_alloc(s->kernel, s->r.commands, 1, s->x, true, &y, &state));
    rg_tensor *const only_b[] = { NULL, s->x[1] };
    EXPECT_OK(rg_kernel_gradient_alloc(s->kernel, s->r.commands, 1, &s->dy, only_b, NULL, &state, 1,
                                       false, both));
    EXPECT(both[0] != NULL && both[1] == NULL && count_of(both[0]) == 24);
    EXPECT_OK(rig_run(&s->r));
    rg_tensor_destroy(both[0]);
    rg_tensor_destroy(y);
    rg_state_destroy(state);
}

/* ---- temporary states ---- */

static void test_temporary(scene *s)
{
    rg_state *state = NULL, *other = NULL;
    EXPECT_OK(rg_state_create(s->kernel, s->x, &other)); /* the same values, kept */
    EXPECT_OK(forward(s, other));
    EXPECT_OK(gradient(s, other));
    EXPECT_OK(rig_run(&s->r));
    char *wanted = elements_of(s->dx[1]);
    EXPECT_OK(rg_state_create_temporary(s->kernel, s->r.commands, s->x, &state));
    EXPECT(rg_state_is_temporary(state) && rg_state_read_count(state) == 1);
    EXPECT(rg_state_bytes(state) == 0);
    EXPECT_OK(forward(s, state)); /* filling it is no read */
    EXPECT(rg_state_read_count(state) == 1);
    EXPECT_OK(rg_state_set_read_count(state, 3));
    EXPECT_OK(forward(s, state)); /* filling it again is one */
    EXPECT(rg_state_read_count(state) == 2);
    EXPECT_OK(gradient(s, state));
    EXPECT(rg_state_read_count(state) == 1);
    rg_tensor *wrong = s->dx[0];
    s->dx[0] = s->dy; /* refused: changes nothing */
    EXPECT_FAILS(gradient(s, state), RG_INVALID_ARGUMENT, "overlaps");
    EXPECT(rg_state_read_count(state) == 1);
    s->dx[0] = wrong;
    EXPECT_OK(gradient(s, state));
    EXPECT(rg_state_read_count(state) == 0);
    EXPECT_FAILS(gradient(s, state), RG_INVALID_STATE, "already released");
    EXPECT_FAILS(forward(s, state), RG_INVALID_STATE, "already released");
    EXPECT_FAILS(rg_state_set_read_count(state, 1), RG_INVALID_STATE, "already released");
    rg_tensor *kept = NULL;
    EXPECT_OK(rg_state_tensor(state, "kept", &kept));
    EXPECT(rg_tensor_read_count(kept) == 0); /* gone with the state */
    EXPECT_OK(rig_run(&s->r));
    EXPECT(memcmp(wanted, rg_tensor_data(s->dx[1]), bytes_of(s->dx[1])) == 0);
    free(wanted);
    rg_state_destroy(other);

    EXPECT_FAILS(forward(s, state), RG_INVALID_ARGUMENT, "other commands");
    rg_state_destroy(state);
    EXPECT_OK(rg_state_create_temporary(s->kernel, s->r.commands, s->x, &state));
    rig_renew(&s->r); /* its commands are gone; new ones may stand at their address */
    EXPECT_FAILS(forward(s, state), RG_INVALID_ARGUMENT, "other commands");
    rg_state_destroy(state);
}

static void test_counts(scene *s)
{
    rg_state *a = NULL, *b = NULL, *kept = NULL;
    EXPECT_OK(rg_state_create_temporary(s->kernel, s->r.commands, s->x, &a));
    EXPECT_OK(rg_state_create_temporary(s->kernel, s->r.commands, s->x, &b));
    EXPECT_OK(rg_state_create(s->kernel, s->x, &kept));
    rg_state *const batch[] = { a, a, b, NULL, kept };
    EXPECT(rg_state_add_read_count(batch, 5, 2) == 3);
    EXPECT(rg_state_read_count(a) == 3 && rg_state_read_count(b) == 3);
    EXPECT(rg_state_read_count(kept) == 0);
    EXPECT(rg_state_add_read_count(batch, 3, -1) == 2 && rg_state_read_count(a) == 2);
    EXPECT(rg_state_add_read_count(&b, 1, INT64_MIN) == 1 && rg_state_read_count(b) == 0);
    rig_renew(&s->r);
    rg_state_destroy(a);
    rg_state_destroy(b);
    rg_state_destroy(kept);
}

static rg_kernel *batch_norm_of(scene *s, rg_batch_norm_phase phase)
{
    rg_batch_norm_desc desc = rg_batch_norm_desc_default();
    desc.phase = phase;
    desc.gamma = desc.beta = false;
    rg_kernel *kernel = NULL;
    EXPECT_OK(rg_batch_norm_create(s->r.device, &desc, &kernel));
    return kernel;
}

/* A batch that shares one state counts it once. */
static void test_shared_counts(scene *s)
{
    rg_kernel *statistics = batch_norm_of(s, RG_BATCH_NORM_STATISTICS);
    rg_kernel *normalize = batch_norm_of(s, RG_BATCH_NORM_NORMALIZE);
    rg_state *state = NULL;
    EXPECT_OK(rg_state_create_temporary(statistics, s->r.commands, s->x, &state));
    rg_state *const shared[] = { state, state };
    rg_tensor *const dy[] = { s->dy, s->dy };
    EXPECT_OK(rg_state_set_read_count(state, 3));
    EXPECT_OK(rg_kernel_forward_batch(statistics, s->r.commands, 2, s->x, NULL, shared));
    EXPECT(rg_state_read_count(state) == 3);
    EXPECT_OK(rg_kernel_forward_batch(normalize, s->r.commands, 2, s->x, s->dx, shared));
    EXPECT(rg_state_read_count(state) == 2);
    EXPECT_OK(
        rg_kernel_gradient_batch(statistics, s->r.commands, 2, dy, s->x, NULL, shared, NULL, 0));
    EXPECT(rg_state_read_count(state) == 1);
    EXPECT_OK(rig_run(&s->r));
    rg_state_destroy(state);
    rg_kernel_destroy(statistics);
    rg_kernel_destroy(normalize);
}

/* Its tensors can be read by themselves; a state that has lost one is of no more use. */
static void test_tensors_of_temporary(scene *s)
{
    rg_state *state = NULL;
    rg_tensor *kept = NULL;
    float out[24] = { 0 };
    EXPECT_OK(rg_state_create_temporary(s->kernel, s->r.commands, s->x, &state));
    EXPECT_OK(rg_state_tensor(state, "kept", &kept));
    EXPECT_OK(forward(s, state));
    EXPECT_OK(rg_tensor_set_read_count(kept, 2));
    EXPECT_OK(rg_commands_read(s->r.commands, kept, out, sizeof out, RG_LAYOUT_SAME));
    EXPECT_OK(rg_state_set_read_count(state, 2));
    EXPECT_OK(gradient(s, state));
    EXPECT_OK(rg_commands_read(s->r.commands, kept, out, sizeof out, RG_LAYOUT_SAME));
    EXPECT(rg_tensor_read_count(kept) == 0 && rg_state_read_count(state) == 1);
    EXPECT_FAILS(gradient(s, state), RG_INVALID_STATE, "kept of the state");
    EXPECT_OK(rig_run(&s->r));
    EXPECT(memcmp(out, rg_tensor_data(s->x[0]), sizeof out) == 0);
    rg_state_destroy(state);
}

/* ---- commands that never ran ---- */

static rg_tensor *mean_of(rg_state *state)
{
    rg_tensor *mean = NULL;
    EXPECT_OK(rg_state_tensor(state, "mean", &mean));
    return mean;
}

/* Results of dropped commands are not written. */
static void test_dropped(scene *s)
{
    rg_state *state = NULL;
    EXPECT_OK(rg_state_create(s->kernel, s->x, &state));
    EXPECT_OK(forward(s, state));
    EXPECT_OK(gradient(s, state)); /* in the same commands */
    rig_renew(&s->r);
    EXPECT_FAILS(gradient(s, state), RG_INVALID_STATE, "no forward pass");
    EXPECT_OK(forward(s, state));
    EXPECT_OK(rg_commands_commit_and_continue(s->r.commands));
    EXPECT_OK(gradient(s, state)); /* in the next part */
    rig_renew(&s->r);
    EXPECT_OK(gradient(s, state)); /* a gradient that was dropped changes nothing */
    EXPECT_OK(rig_run(&s->r));
    EXPECT_OK(gradient(s, state));
    EXPECT_OK(forward(s, state));
    rig_renew(&s->r); /* the earlier pass is forgotten, too */
    EXPECT_FAILS(gradient(s, state), RG_INVALID_STATE, "no forward pass");
    rg_state_destroy(state);

    EXPECT_OK(rg_state_create(s->kernel, s->x, &state)); /* outlives its commands, or not */
    EXPECT_OK(forward(s, state));
    rg_state_destroy(state);
    rig_renew(&s->r);
}

/* Other commands may be dropped yet, or committed in another order. */
static void test_not_committed(scene *s)
{
    rg_state *state = NULL;
    rg_commands *const first = s->r.commands;
    EXPECT_OK(rg_state_create(s->kernel, s->x, &state));
    EXPECT_OK(forward(s, state));
    EXPECT_OK(rg_commands_create(s->r.queue, &s->r.commands));
    EXPECT_FAILS(gradient(s, state), RG_INVALID_STATE, "not committed yet");
    EXPECT_OK(rg_commands_commit(first));
    EXPECT_OK(gradient(s, state));
    EXPECT_OK(forward(s, state)); /* which only writes needs no order */
    rg_commands *const second = s->r.commands;
    EXPECT_OK(rg_commands_create(s->r.queue, &s->r.commands));
    EXPECT_OK(forward(s, state));
    EXPECT_OK(gradient(s, state));
    EXPECT_OK(rg_commands_commit(second));
    EXPECT_OK(rig_run(&s->r));
    rg_commands_destroy(first);
    rg_commands_destroy(second);
    rg_state_destroy(state);
}

static void test_failed(scene *s)
{
    rg_state *state = NULL;
    float *a = rg_tensor_data(s->x[0]);
    const float kept = a[5];
    EXPECT_OK(rg_state_create(s->kernel, s->x, &state));
    EXPECT_OK(forward(s, state));
    EXPECT_OK(gradient(s, state));
    a[5] = 666;
    EXPECT_FAILS(rig_run(&s->r), RG_KERNEL_FAULT, "666");
    a[5] = kept;
    EXPECT_FAILS(gradient(s, state), RG_INVALID_STATE, "no forward pass");
    EXPECT_OK(forward(s, state));
    EXPECT_OK(gradient(s, state));
    EXPECT_OK(rig_run(&s->r));
    rg_state_destroy(state);
}

/* Statistics that were to be added are not counted; those of a state that may spare work are
 * computed once more. */
static void test_dropped_progress(scene *s)
{
    rg_kernel *statistics = batch_norm_of(s, RG_BATCH_NORM_STATISTICS);
    rg_kernel *normalize = batch_norm_of(s, RG_BATCH_NORM_NORMALIZE);
    rg_kernel *whole = batch_norm_of(s, RG_BATCH_NORM_WHOLE);
    rg_state *state = NULL, *fresh = NULL, *spare = NULL;
    EXPECT_OK(rg_state_create(statistics, s->x, &state));
    EXPECT_OK(rg_state_create(statistics, s->x, &fresh));
    EXPECT_OK(rg_kernel_forward(statistics, s->r.commands, &s->x[1], NULL, state));
    rig_renew(&s->r);
    EXPECT_FAILS(rg_kernel_forward(normalize, s->r.commands, s->x, &s->y, state), RG_INVALID_STATE,
                 "no statistics");
    EXPECT_OK(rg_kernel_forward(statistics, s->r.commands, s->x, NULL, state));
    EXPECT_OK(rg_kernel_forward(statistics, s->r.commands, s->x, NULL, fresh));
    rg_commands *const first = s->r.commands;
    EXPECT_OK(rg_commands_create(s->r.queue, &s->r.commands));
    EXPECT_FAILS(rg_kernel_forward(statistics, s->r.commands, s->x, NULL, state), RG_INVALID_STATE,
                 "not committed yet");
    EXPECT_OK(rg_commands_commit(first));
    EXPECT_OK(rg_kernel_forward(normalize, s->r.commands, s->x, &s->y, state));
    EXPECT_OK(rig_run(&s->r));
    EXPECT(same_bits(mean_of(state), mean_of(fresh)));
    EXPECT_OK(rg_kernel_gradient(statistics, s->r.commands, &s->dy, s->x, NULL, state, NULL, 0));
    rig_renew(&s->r); /* sums that were never made */
    EXPECT_FAILS(rg_kernel_gradient(normalize, s->r.commands, &s->dy, s->x, NULL, state, s->dx, 0),
                 RG_INVALID_STATE, "no forward pass");

    EXPECT_OK(rg_state_create(whole, s->x, &spare));
    EXPECT_OK(rg_kernel_forward(whole, s->r.commands, s->x, &s->y, spare));
    rig_renew(&s->r);
    EXPECT_OK(rg_kernel_gradient(whole, s->r.commands, &s->dy, s->x, NULL, spare, &s->dx[0], 0));
    EXPECT_OK(rg_kernel_gradient(whole, s->r.commands, &s->dy, s->x, NULL, NULL, &s->dx[1], 0));
    EXPECT_OK(rig_run(&s->r));
    EXPECT(same_bits(s->dx[0], s->dx[1]));
    rg_commands_destroy(first);
    rg_state_destroy(state);
    rg_state_destroy(fresh);
    rg_state_destroy(spare);
    rg_kernel_destroy(statistics);
    rg_kernel_destroy(normalize);
    rg_kernel_destroy(whole);
}

/* A tensor of the state that is an output or a gradient, too, was written twice. */
static void test_apart_from_state(scene *s)
{
    rg_state *states[2] = { NULL };
    rg_tensor *kept[2] = { NULL }, *const y = s->y, *const db = s->dx[1];
    for (int i = 0; i < 2; i++) {
        EXPECT_OK(rg_state_create(s->kernel, s->x, &states[i]));
        EXPECT_OK(rg_state_tensor(states[i], "kept", &kept[i]));
    }
    s->y = kept[0];
    EXPECT_FAILS(forward(s, states[0]), RG_INVALID_ARGUMENT, "mix: y overlaps kept of the state");
    s->y = y;
    rg_tensor *const x[] = { kept[0], s->x[1] };
    EXPECT_FAILS(rg_kernel_forward(s->kernel, s->r.commands, x, &s->y, states[0]),
                 RG_INVALID_ARGUMENT, "mix: a overlaps kept of the state");
    EXPECT_OK(rg_kernel_forward(s->kernel, s->r.commands, x, &s->y, states[1])); /* of another */
    EXPECT_OK(forward(s, states[0]));
    s->dx[1] = kept[0];
    EXPECT_FAILS(gradient(s, states[0]), RG_INVALID_ARGUMENT, "mix: db overlaps kept of the state");
    s->dx[1] = db;
    rg_tensor *const dy = kept[0];
    EXPECT_FAILS(rg_kernel_gradient(s->kernel, s->r.commands, &dy, s->x, NULL, states[0], s->dx, 0),
                 RG_INVALID_ARGUMENT, "mix: dy overlaps kept of the state");
    /* that of another image of the batch */
    rg_tensor *const two_x[] = { s->x[0], s->x[0], s->x[1], s->x[1] }, *const two_y[] = { kept[1],
                                                                                          y };
    EXPECT_FAILS(rg_kernel_forward_batch(s->kernel, s->r.commands, 2, two_x, two_y, states),
                 RG_INVALID_ARGUMENT,
                 "an output overlaps a tensor of another image (images 0 and 1)");
    EXPECT_OK(rig_run(&s->r));
    rg_state_destroy(states[0]);
    rg_state_destroy(states[1]);
}

int main(void)
{
    scene s = scene_open();
    test_fields(&s);
    test_equality(&s);
    test_misfits(&s);
    test_source_from_state(&s);
    test_temporary(&s);
    test_counts(&s);
    test_shared_counts(&s);
    test_tensors_of_temporary(&s);
    test_dropped(&s);
    test_not_committed(&s);
    test_failed(&s);
    test_dropped_progress(&s);
    test_apart_from_state(&s);
    scene_close(&s);
    return rg_test_report();
}
