/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Bad calls of the verbs: each gets a status and a sentence, writes nothing and records nothing. */
#include "api.h"

/* ---- descriptors ---- */

static void test_descriptors(rg_device *device)
{
    rg_softmax_desc desc = rg_softmax_desc_default();
    rg_kernel *kernel = (rg_kernel *)1;
    EXPECT_FAILS(rg_softmax_create(NULL, &desc, &kernel), RG_INVALID_ARGUMENT, "device is NULL");
    EXPECT(kernel == NULL);
    EXPECT_FAILS(rg_softmax_create(device, NULL, &kernel), RG_INVALID_ARGUMENT, "desc is NULL");
    EXPECT_FAILS(rg_softmax_create(device, &desc, NULL), RG_INVALID_ARGUMENT, "kernel is NULL");
    static const uint32_t sizes[] = { 0, 1, 4, sizeof desc + 1, sizeof desc + 8, UINT32_MAX };
    for (int i = 0; i < 6; i++) {
        desc.size = sizes[i];
        kernel = (rg_kernel *)1;
        EXPECT_FAILS(
            rg_softmax_create(device, &desc, &kernel), i < 3 ? RG_INVALID_ARGUMENT : RG_UNSUPPORTED,
            i < 3 ? "softmax: the size of the descriptor is" : "softmax: the descriptor has");
        EXPECT(kernel == NULL);
    }
    desc = rg_softmax_desc_default(); /* an older and shorter one: the rest takes its default */
    desc.size = offsetof(rg_softmax_desc, axis);
    desc.kind = RG_SOFTMAX_LOG;
    desc.axis = 55;
    EXPECT_OK(rg_softmax_create(device, &desc, &kernel));
    char text[64];
    rg_kernel_describe(kernel, text, sizeof text);
    EXPECT(strcmp(text, "softmax kind=log axis=-1 flatten=false") == 0);
    rg_kernel_destroy(kernel);
    desc = rg_softmax_desc_default();
    static const int kinds[] = { 2, -1, INT32_MAX, INT32_MIN };
    for (int i = 0; i < 4; i++) {
        memcpy(&desc.kind, &kinds[i], sizeof desc.kind);
        EXPECT_FAILS(rg_softmax_create(device, &desc, &kernel), RG_INVALID_ARGUMENT, "kind");
    }
    desc = rg_softmax_desc_default();
    memset(&desc.flatten, 7, sizeof desc.flatten);
    EXPECT_FAILS(rg_softmax_create(device, &desc, &kernel), RG_INVALID_ARGUMENT, "flatten");
}

/* The size of a neuron inside of another descriptor was not looked at. */
static void test_nested_descriptors(rg_device *device)
{
    static const uint32_t sizes[] = { 0, 4, sizeof(rg_neuron_desc) - 1, sizeof(rg_neuron_desc) + 1,
                                      UINT32_MAX };
    for (int i = 0; i < 5; i++) {
        rg_kernel *kernel = (rg_kernel *)1;
        rg_dense_desc dense = rg_dense_desc_default();
        dense.neuron.size = sizes[i];
        EXPECT_FAILS(rg_dense_create(device, &dense, &kernel), RG_INVALID_ARGUMENT,
                     "dense: neuron.size is");
        EXPECT(kernel == NULL);
        rg_conv_desc conv = rg_conv_desc_default();
        conv.neuron.size = sizes[i];
        EXPECT_FAILS(rg_conv_create(device, &conv, &kernel), RG_INVALID_ARGUMENT,
                     "conv: neuron.size is");
        rg_batch_norm_desc norm = rg_batch_norm_desc_default();
        norm.neuron.size = sizes[i];
        EXPECT_FAILS(rg_batch_norm_create(device, &norm, &kernel), RG_INVALID_ARGUMENT,
                     "batch_norm: neuron.size is");
    }
}

/* Whole numbers are spelled as such, also large ones. */
static void test_ranges(rg_device *device)
{
    rg_kernel *kernel;
    rg_slice_desc desc = rg_slice_desc_default();
    desc.length_count = 1;
    desc.length[0] = INT64_MAX;
    EXPECT_FAILS(rg_slice_create(device, &desc, &kernel), RG_INVALID_ARGUMENT,
                 "length is 9223372036854775807; it must be between -1 and 4611686018427387904");
}

/* ---- calls ---- */

typedef struct bench {
    rig r, other;
    rg_kernel *kernel;
    rg_tensor *x, *y, *dy, *dx; /* f32 [6, 8], the results full of a pattern */
    rg_tensor *narrow, *flat, *half, *number, *number_out, *far, *wide, *long_x;
} bench;

enum { BYTES = 6 * 8 * 4 };

static bench bench_open(void)
{
    bench b = { .r = rig_open(2), .other = rig_open(1) };
    rg_device *device = b.r.device;
    b.kernel = softmax_of(device, RG_SOFTMAX_PLAIN, -1);
    b.x = filled(device, RG_F32, 2, DIMS(6, 8), 1);
    b.y = filled(device, RG_F32, 2, DIMS(6, 8), 2);
    b.dy = filled(device, RG_F32, 2, DIMS(6, 8), 3);
    b.dx = filled(device, RG_F32, 2, DIMS(6, 8), 4);
    b.narrow = filled(device, RG_F32, 2, DIMS(6, 7), 5);
    b.long_x = filled(device, RG_F32, 2, DIMS(60, 8), 5);
    b.flat = filled(device, RG_F32, 1, DIMS(48), 6);
    b.half = filled(device, RG_F16, 2, DIMS(6, 8), 7);
    b.number = tensor_of(device, RG_I32, 2, DIMS(6, 8));
    b.number_out = tensor_of(device, RG_I32, 2, DIMS(6, 8));
    b.far = filled(b.other.device, RG_F32, 2, DIMS(6, 8), 8);
    rg_tensor *row = NULL;
    EXPECT_OK(rg_tensor_slice(b.dx, DIMS(0, 0), DIMS(1, 8), NULL, &row));
    EXPECT_OK(rg_tensor_expand(row, 2, DIMS(6, 8), &b.wide));
    rg_tensor_destroy(row);
    return b;
}

static void bench_close(bench *b)
{
    rg_tensor *const all[] = { b->x,    b->y,      b->dy,         b->dx,  b->narrow, b->flat,
                               b->half, b->number, b->number_out, b->far, b->wide,   b->long_x };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        rg_tensor_destroy(all[i]);
    rg_kernel_destroy(b->kernel);
    rig_close(&b->r);
    rig_close(&b->other);
}

#define REFUSED(call, words) EXPECT_FAILS(call, RG_INVALID_ARGUMENT, words)
#define FORWARD(x_, y_)                                                     \
    rg_kernel_forward(b->kernel, b->r.commands, (rg_tensor *const[]){ x_ }, \
                      (rg_tensor *const[]){ y_ }, NULL)
#define GRADIENT(dy_, y_, dx_)                                                      \
    rg_kernel_gradient(b->kernel, b->r.commands, (rg_tensor *const[]){ dy_ }, NULL, \
                       (rg_tensor *const[]){ y_ }, NULL, (rg_tensor *const[]){ dx_ }, 0)

static void refuse_forward(bench *b)
{
    rg_commands *const commands = b->r.commands;
    REFUSED(rg_kernel_forward(NULL, commands, &b->x, &b->y, NULL), "kernel is NULL");
    REFUSED(rg_kernel_forward(b->kernel, NULL, &b->x, &b->y, NULL), "commands is NULL");
    REFUSED(rg_kernel_forward(b->kernel, commands, NULL, &b->y, NULL), "x is NULL");
    REFUSED(rg_kernel_forward(b->kernel, commands, &b->x, NULL, NULL), "y is NULL");
    REFUSED(FORWARD(NULL, b->y), "x is NULL");
    REFUSED(FORWARD(b->x, NULL), "y is NULL");
    REFUSED(FORWARD(b->narrow, b->y), "f32[6, 7]");
    REFUSED(FORWARD(b->x, b->narrow), "f32[6, 8]");
    REFUSED(FORWARD(b->x, b->flat), "f32[48]");
    REFUSED(FORWARD(b->x, b->half), "f16[6, 8]");
    REFUSED(FORWARD(b->half, b->y), "f32[6, 8]");
    REFUSED(FORWARD(b->number, b->number_out), "i32");
    REFUSED(FORWARD(b->far, b->y), "different devices");
    REFUSED(FORWARD(b->x, b->far), "different devices");
    REFUSED(FORWARD(b->x, b->wide), "expanded");
    REFUSED(rg_kernel_forward(b->kernel, b->other.commands, &b->far, &b->far, NULL),
            "different devices");
}

static void refuse_gradient(bench *b)
{
    rg_commands *const commands = b->r.commands;
    REFUSED(rg_kernel_gradient(b->kernel, commands, NULL, NULL, &b->y, NULL, &b->dx, 0),
            "dy is NULL");
    REFUSED(rg_kernel_gradient(b->kernel, commands, &b->dy, NULL, &b->y, NULL, NULL, 0),
            "dx is NULL");
    REFUSED(rg_kernel_gradient(b->kernel, commands, &b->dy, NULL, NULL, NULL, &b->dx, 0),
            "reads y");
    REFUSED(rg_kernel_gradient(b->kernel, commands, &b->dy, &b->x, NULL, NULL, &b->dx, 0),
            "reads y");
    REFUSED(GRADIENT(NULL, b->y, b->dx), "dy is NULL");
    REFUSED(GRADIENT(b->dy, NULL, b->dx), "reads y");
    REFUSED(GRADIENT(b->dy, b->y, NULL), "the shape of x is unknown: pass it, dx or a state");
    REFUSED(rg_kernel_gradient(b->kernel, commands, &b->dy, &b->x, &b->y, NULL,
                               (rg_tensor *const[]){ NULL }, 0),
            "no gradient is requested: every entry of dx is NULL");
    REFUSED(GRADIENT(b->long_x, b->y, b->dx), "dy is f32[60, 8]");
    REFUSED(GRADIENT(b->dy, b->narrow, b->dx), "y is f32[6, 7]"); /* a saved output too small */
    REFUSED(GRADIENT(b->long_x, b->y, b->long_x), "y is f32[6, 8]");
    REFUSED(GRADIENT(b->dy, b->y, b->narrow), "f32[6, 7]");
    REFUSED(GRADIENT(b->dy, b->y, b->half), "f16");
    REFUSED(GRADIENT(b->half, b->y, b->dx), "f16");
    REFUSED(GRADIENT(b->dy, b->half, b->dx), "f16");
    REFUSED(GRADIENT(b->number, b->number, b->number_out), "i32");
    REFUSED(GRADIENT(b->far, b->y, b->dx), "different devices");
    REFUSED(GRADIENT(b->dy, b->far, b->dx), "different devices");
    REFUSED(GRADIENT(b->dy, b->y, b->far), "different devices");
    REFUSED(GRADIENT(b->dy, b->y, b->wide), "expanded");
    REFUSED(rg_kernel_gradient(b->kernel, commands, &b->dy, &b->narrow, &b->y, NULL, &b->dx, 0),
            "dx is");
    REFUSED(rg_kernel_gradient(b->kernel, commands, &b->dy, NULL, &b->y, NULL, &b->dx, 2), "add");
    REFUSED(rg_kernel_gradient(b->kernel, commands, &b->dy, NULL, &b->y, NULL, &b->dx, UINT64_MAX),
            "add");
}

/* Results that meet something else, by bytes or by elements. */
static void refuse_overlap(bench *b)
{
    rg_tensor *whole = filled(b->r.device, RG_F32, 2, DIMS(9, 16), 1), *v[4] = { NULL };
    char *before = elements_of(whole);
    EXPECT_OK(rg_tensor_slice(whole, DIMS(0, 0), DIMS(6, 8), NULL, &v[0]));
    EXPECT_OK(rg_tensor_slice(whole, DIMS(1, 0), DIMS(6, 8), NULL, &v[1]));
    EXPECT_OK(rg_tensor_slice(whole, DIMS(0, 7), DIMS(6, 8), NULL, &v[2]));
    EXPECT_OK(rg_tensor_slice(whole, DIMS(0, 0), DIMS(6, 8), DIMS(1, 2), &v[3]));
    for (int i = 1; i < 4; i++) {
        REFUSED(FORWARD(v[0], v[i]), "y overlaps x");
        REFUSED(FORWARD(v[i], v[0]), "y overlaps x");
        REFUSED(GRADIENT(v[i], b->y, v[0]), "dx overlaps dy");
        REFUSED(GRADIENT(b->dy, v[i], v[0]), "dx overlaps y");
    }
    EXPECT_OK(rig_run(&b->r));
    char *after = elements_of(whole);
    EXPECT(memcmp(before, after, bytes_of(whole)) == 0);
    free(before);
    free(after);
    rg_tensor *beside = NULL; /* columns 8 to 15: apart, though their bytes interleave */
    EXPECT_OK(rg_tensor_slice(whole, DIMS(0, 8), DIMS(6, 8), NULL, &beside));
    EXPECT_OK(FORWARD(v[0], beside));
    EXPECT_OK(GRADIENT(beside, b->y, v[0]));
    EXPECT_OK(rig_run(&b->r));
    rg_tensor_destroy(beside);
    for (int i = 0; i < 4; i++)
        rg_tensor_destroy(v[i]);
    rg_tensor_destroy(whole);
}

static void refuse_forms(bench *b)
{
    rg_commands *const commands = b->r.commands;
    rg_tensor *made[2];
    rg_tensor *const pair[] = { b->x, b->narrow }, *const good[] = { b->x, b->x };
#define CLEARED(call, words)      \
    do {                          \
        made[0] = made[1] = b->x; \
        REFUSED(call, words);     \
        EXPECT(made[0] == NULL);  \
    } while (0)
    CLEARED(rg_kernel_forward_alloc(b->kernel, NULL, 1, &b->x, false, made, NULL), "commands");
    CLEARED(rg_kernel_forward_alloc(b->kernel, commands, 1, NULL, false, made, NULL), "x is NULL");
    CLEARED(rg_kernel_forward_alloc(b->kernel, commands, 1, &b->number, true, made, NULL), "i32");
    CLEARED(
        rg_kernel_gradient_alloc(b->kernel, commands, 1, NULL, NULL, &b->y, NULL, 1, false, made),
        "dy is NULL");
    CLEARED(
        rg_kernel_gradient_alloc(b->kernel, commands, 1, &b->dy, NULL, &b->y, NULL, 0, false, made),
        "the shape of x is unknown: pass it, dx or a state");
    CLEARED(
        rg_kernel_gradient_alloc(b->kernel, commands, 1, &b->dy, NULL, &b->y, NULL, 2, false, made),
        "wanted");
    CLEARED(
        rg_kernel_gradient_alloc(b->kernel, commands, 1, &b->dy, NULL, NULL, NULL, 1, false, made),
        "pass x or a state: the shape of dx is unknown");
    CLEARED(rg_kernel_gradient_alloc(b->kernel, commands, 2, pair, NULL, good, NULL, 1, true, made),
            "image 1");
    EXPECT(made[1] == NULL);
    REFUSED(rg_kernel_forward_alloc(NULL, commands, 1, &b->x, false, made, NULL), "kernel is NULL");
    REFUSED(rg_kernel_forward_alloc(b->kernel, commands, 0, &b->x, false, made, NULL),
            "count must be at least 1, not 0");
    REFUSED(rg_kernel_forward_alloc(b->kernel, commands, 1, &b->x, false, NULL, NULL), "y is NULL");
    REFUSED(rg_kernel_gradient_alloc(b->kernel, commands, -1, &b->dy, NULL, &b->y, NULL, 1, false,
                                     made),
            "count must be at least 1, not -1");
    REFUSED(rg_kernel_forward_batch(b->kernel, commands, 0, &b->x, &b->y, NULL),
            "count must be at least 1, not 0");
    REFUSED(rg_kernel_forward_batch(b->kernel, commands, INT64_MIN, &b->x, &b->y, NULL),
            "count must be at least 1, not");
    REFUSED(rg_kernel_forward_batch(b->kernel, commands, 2, NULL, pair, NULL), "x is NULL");
    REFUSED(rg_kernel_gradient_batch(b->kernel, commands, 2, NULL, NULL, pair, NULL, pair, 0),
            "dy");
    rg_tensor_desc desc = rg_tensor_desc_dense(RG_F32, 1, DIMS(-5)), result;
    REFUSED(rg_kernel_shapes(b->kernel, &desc, &result), "-5");
    REFUSED(rg_kernel_shapes(b->kernel, NULL, &result), "x is NULL");
    REFUSED(rg_kernel_shapes(b->kernel, &desc, NULL), "y is NULL");
    REFUSED(rg_kernel_shapes(NULL, &desc, &result), "kernel is NULL");
}

/* An axis out of range is known once there is a rank. */
static void refuse_axis(bench *b)
{
    static const int64_t axes[] = { 2,
                                    -3,
                                    100,
                                    INT32_MAX,
                                    INT32_MIN,
                                    INT64_MAX,
                                    INT64_MIN,
                                    INT64_C(1) << 32,
                                    (INT64_C(1) << 32) + 1,
                                    -(INT64_C(1) << 32) };
    rg_tensor *scalar = filled(b->r.device, RG_F32, 0, NULL, 1), *made = NULL;
    for (size_t i = 0; i < sizeof axes / sizeof axes[0]; i++) {
        for (int flatten = 0; flatten < 2; flatten++) {
            rg_softmax_desc desc = rg_softmax_desc_default();
            desc.axis = axes[i];
            desc.flatten = flatten;
            rg_kernel *kernel = NULL;
            rg_state *state = NULL;
            EXPECT_OK(rg_softmax_create(b->r.device, &desc, &kernel));
            REFUSED(rg_kernel_forward(kernel, b->r.commands, &b->x, &b->y, NULL), "axis");
            REFUSED(rg_kernel_gradient(kernel, b->r.commands, &b->dy, NULL, &b->y, NULL, &b->dx, 0),
                    "axis");
            REFUSED(rg_kernel_forward_alloc(kernel, b->r.commands, 1, &b->x, true, &made, NULL),
                    "axis");
            REFUSED(rg_state_create(kernel, &b->x, &state), "axis");
            REFUSED(rg_kernel_forward_batch(kernel, b->r.commands, 1, &b->x, &b->y, NULL), "axis");
            rg_kernel_destroy(kernel);
        }
    }
    REFUSED(FORWARD(scalar, scalar), "rank 0");
    rg_tensor_destroy(scalar);
}

int main(void)
{
    bench b = bench_open();
    test_descriptors(b.r.device);
    test_nested_descriptors(b.r.device);
    test_ranges(b.r.device);
    rg_tensor *const results[] = { b.x, b.y, b.dy, b.dx };
    char *before[4];
    for (int i = 0; i < 4; i++)
        before[i] = elements_of(results[i]);
    refuse_forward(&b);
    refuse_gradient(&b);
    refuse_forms(&b);
    refuse_axis(&b);
    EXPECT_OK(rig_run(&b.r)); /* nothing was recorded: nothing changes */
    EXPECT_OK(rig_run(&b.other));
    for (int i = 0; i < 4; i++) {
        char *after = elements_of(results[i]);
        EXPECT(memcmp(before[i], after, BYTES) == 0);
        free(before[i]);
        free(after);
    }
    refuse_overlap(&b);
    bench_close(&b);
    return rg_test_report();
}
