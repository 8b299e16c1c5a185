/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The seam between ops and runtime, with an op that the library has never heard of. */
#include "api.h"
#include "api_seam.h"

#include <math.h>
#include <stdatomic.h>

static rg_kernel *mix_of(rg_device *device, bool bias, double scale)
{
    mix_desc desc = mix_desc_default();
    desc.bias = bias;
    desc.scale = scale;
    rg_kernel *kernel = NULL;
    EXPECT_OK(rg_kernel_create(device, &mix_op, &desc, &kernel));
    return kernel;
}

static float *values(const rg_tensor *tensor)
{
    return rg_tensor_data(tensor);
}

/* ---- description ---- */

static void test_description(rg_device *device)
{
    rg_kernel *two = mix_of(device, false, 0.1), *three = mix_of(device, true, 0.1), *bad = NULL;
    EXPECT(rg_kernel_inputs(two) == 2 && rg_kernel_inputs(three) == 3);
    char text[64];
    rg_kernel_describe(two, text, sizeof text);
    EXPECT(strcmp(text, "mix bias=false scale=0.1") == 0);
    EXPECT(!rg_kernel_equal(two, three) && rg_kernel_hash(two) != rg_kernel_hash(three));
    static const double scales[] = { 100.5, -101, 1e308, (double)INFINITY };
    for (int i = 0; i < 4; i++) {
        mix_desc desc = mix_desc_default();
        desc.scale = scales[i];
        EXPECT_FAILS(rg_kernel_create(device, &mix_op, &desc, &bad), RG_INVALID_ARGUMENT, "scale");
        EXPECT(bad == NULL);
    }
    mix_desc desc = mix_desc_default();
    desc.scale = (double)NAN;
    EXPECT_FAILS(rg_kernel_create(device, &mix_op, &desc, &bad), RG_INVALID_ARGUMENT, "scale");
    rg_kernel_destroy(two);
    rg_kernel_destroy(three);
}

/* ---- forward and gradient ---- */

static void test_values(rig *r)
{
    enum { COUNT = 12 };
    rg_tensor *x[3], *dx[3], *y = tensor_of(r->device, RG_F32, 2, DIMS(3, 4));
    rg_tensor *dy = filled(r->device, RG_F32, 2, DIMS(3, 4), 9);
    for (int i = 0; i < 3; i++) {
        x[i] = filled(r->device, RG_F32, 2, DIMS(3, 4), (uint64_t)i);
        dx[i] = filled(r->device, RG_F32, 2, DIMS(3, 4), 40);
    }
    rg_kernel *kernel = mix_of(r->device, true, 3);
    rg_state *state = NULL;
    EXPECT_OK(rg_state_create(kernel, x, &state));
    EXPECT_OK(rg_kernel_forward(kernel, r->commands, x, &y, state));
    rg_tensor *const needed[] = { NULL, x[1], NULL };
    EXPECT_OK(
        rg_kernel_gradient(kernel, r->commands, &dy, needed, NULL, state, dx, 2)); /* adds db */
    char *old = elements_of(dx[1]);
    EXPECT_OK(rig_run(r));
    for (int i = 0; i < COUNT; i++) {
        const float a = values(x[0])[i], b = values(x[1])[i], g = values(dy)[i];
        EXPECT(values(y)[i] == 3 * a * b + values(x[2])[i]);
        EXPECT(values(dx[0])[i] == 3 * g * b);
        EXPECT(values(dx[1])[i] == ((const float *)(const void *)old)[i] + 3 * g * a);
        EXPECT(values(dx[2])[i] == g);
    }
    free(old);
    fill(dx[0], 5);
    char *untouched = elements_of(dx[0]); /* only one of the three is wanted */
    rg_tensor *const wanted[] = { NULL, NULL, dx[2] };
    EXPECT_OK(rg_kernel_gradient(kernel, r->commands, &dy, needed, NULL, state, wanted, 4));
    EXPECT_OK(rig_run(r));
    EXPECT(memcmp(untouched, values(dx[0]), COUNT * 4) == 0 &&
           values(dx[2])[3] == 2 * values(dy)[3]);
    free(untouched);

    rg_tensor *const meets[] = { dx[0], dx[0], NULL }, *const reads_b[] = { x[1], NULL, NULL };
    EXPECT_FAILS(rg_kernel_gradient(kernel, r->commands, &dy, needed, NULL, state, meets, 0),
                 RG_INVALID_ARGUMENT, "db overlaps da");
    EXPECT_FAILS(rg_kernel_gradient(kernel, r->commands, &dy, needed, NULL, state, reads_b, 0),
                 RG_INVALID_ARGUMENT, "da overlaps b");
    EXPECT_FAILS(rg_kernel_gradient(kernel, r->commands, &dy, NULL, NULL, state, dx, 0),
                 RG_INVALID_ARGUMENT, "reads b");
    EXPECT_FAILS(rg_kernel_gradient(kernel, r->commands, &dy, needed, NULL, NULL, dx, 0),
                 RG_INVALID_ARGUMENT, "reads the state");
    EXPECT_FAILS(rg_kernel_forward(kernel, r->commands, x, &x[0], NULL), RG_INVALID_ARGUMENT,
                 "y overlaps a");
    EXPECT_FAILS(rg_kernel_forward(kernel, r->commands, needed, &y, NULL), RG_INVALID_ARGUMENT,
                 "a is NULL");
    rg_state_destroy(state);
    rg_kernel_destroy(kernel);
    rg_tensor_destroy(y);
    rg_tensor_destroy(dy);
    for (int i = 0; i < 3; i++) {
        rg_tensor_destroy(x[i]);
        rg_tensor_destroy(dx[i]);
    }
}

/* ---- tiles ---- */

/* Every unit once, tiles of the grain, whatever the number of threads; a scale below 0 begins at
 * the end, which shows with one thread. */
static void test_tiles(int32_t threads, int scale)
{
    static const int64_t counts[] = { 1, 6, 7, 8, 63, 1000, 20011 };
    rig r = rig_open(threads);
    rg_kernel *kernel = mix_of(r.device, false, scale);
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        rg_tensor *x[2], *y = NULL;
        x[0] = filled(r.device, RG_F32, 1, &counts[i], 1);
        x[1] = filled(r.device, RG_F32, 1, &counts[i], 2);
        mix_forget();
        EXPECT_OK(rg_kernel_forward_alloc(kernel, r.commands, 1, x, false, &y, NULL));
        EXPECT_OK(rig_run(&r));
        int wrong = 0;
        for (int64_t k = 0; k < counts[i]; k++)
            wrong += mix_products[k] != 1 ||
                     values(y)[k] != (float)scale * values(x[0])[k] * values(x[1])[k];
        EXPECT(wrong == 0 && mix_products[counts[i]] == 0);
        EXPECT(mix_tiles == (counts[i] + MIX_GRAIN - 1) / MIX_GRAIN && mix_odd_tiles == 0);
        EXPECT(threads > 1 || mix_first == (scale < 0 ? (mix_tiles - 1) * MIX_GRAIN : 0));
        rg_tensor_destroy(x[0]);
        rg_tensor_destroy(x[1]);
        rg_tensor_destroy(y);
    }
    rg_kernel_destroy(kernel);
    rig_close(&r);
}

/* ---- faults ---- */

static void take_outcome(void *context, rg_status outcome)
{
    *(rg_status *)context = outcome;
}

static void test_fault(rig *r)
{
    rg_kernel *kernel = mix_of(r->device, false, 1);
    rg_tensor *x[2] = { filled(r->device, RG_F32, 1, DIMS(900), 1),
                        filled(r->device, RG_F32, 1, DIMS(900), 2) };
    rg_tensor *y = tensor_of(r->device, RG_F32, 1, DIMS(900));
    float first[900], later[900] = { 0 };
    rg_status outcome = RG_OK, second = RG_IO;
    values(x[0])[777] = 666;
    EXPECT_OK(rg_commands_read(r->commands, x[1], first, sizeof first, RG_LAYOUT_SAME));
    EXPECT_OK(rg_kernel_forward(kernel, r->commands, x, &y, NULL));
    EXPECT_OK(rg_commands_read(r->commands, x[1], later, sizeof later, RG_LAYOUT_SAME));
    EXPECT_OK(rg_commands_on_completion(r->commands, take_outcome, &outcome));
    EXPECT_OK(rg_commands_commit(r->commands));
    rg_commands *next = NULL; /* behind it in the queue: not its fault */
    EXPECT_OK(rg_commands_create(r->queue, &next));
    EXPECT_OK(rg_commands_on_completion(next, take_outcome, &second));
    EXPECT_OK(rg_commands_commit(next));
    EXPECT_FAILS(rg_commands_wait(r->commands), RG_KERNEL_FAULT, "mix: an element of a is 666");
    EXPECT_FAILS(rg_commands_wait(r->commands), RG_KERNEL_FAULT, "mix: an element of a is 666");
    EXPECT_OK(rg_commands_wait(next));
    EXPECT(outcome == RG_KERNEL_FAULT && second == RG_OK);
    EXPECT(rg_commands_get_state(r->commands) == RG_COMMANDS_FAILED);
    EXPECT(strstr(rg_commands_error_text(r->commands), "666") != NULL);
    EXPECT(first[0] == values(x[1])[0] && later[0] == 0); /* what follows a fault is not run */
    rg_commands_destroy(next);
    rig_renew(r);

    EXPECT_OK(rg_kernel_forward(kernel, r->commands, x, &y,
                                NULL)); /* a submission fails, the next runs */
    EXPECT_OK(rg_commands_commit_and_continue(r->commands));
    EXPECT_OK(rg_commands_read(r->commands, x[1], later, sizeof later, RG_LAYOUT_SAME));
    EXPECT_OK(rg_commands_commit_and_continue(r->commands));
    EXPECT_OK(rg_commands_commit(r->commands));
    EXPECT_FAILS(rg_commands_wait(r->commands), RG_KERNEL_FAULT, "666");
    EXPECT(rg_commands_get_state(r->commands) == RG_COMMANDS_FAILED);
    EXPECT(later[0] == values(x[1])[0]);
    rig_renew(r);
    values(x[0])[777] = 1;
    EXPECT_OK(rg_kernel_forward(kernel, r->commands, x, &y, NULL));
    EXPECT_OK(rig_run(r));
    rg_tensor_destroy(x[0]);
    rg_tensor_destroy(x[1]);
    rg_tensor_destroy(y);
    rg_kernel_destroy(kernel);
}

/* Many launches, each with a fault word of its own: the list ends at the first that is set. */
static void test_fault_words(rig *r, int launches, int bad)
{
    rg_kernel *kernel = mix_of(r->device, false, 1);
    rg_tensor *good[2], *faulty[2], *y = tensor_of(r->device, RG_F32, 1, DIMS(5));
    good[0] = filled(r->device, RG_F32, 1, DIMS(5), 1);
    faulty[0] = filled(r->device, RG_F32, 1, DIMS(5), 2);
    good[1] = faulty[1] = filled(r->device, RG_F32, 1, DIMS(5), 3);
    values(faulty[0])[4] = 666;
    for (int i = 0; i < launches; i++)
        EXPECT_OK(rg_kernel_forward(kernel, r->commands, i >= bad ? faulty : good, &y, NULL));
    mix_forget();
    const rg_status status = rig_run(r);
    EXPECT(status == (bad < launches ? RG_KERNEL_FAULT : RG_OK));
    EXPECT(mix_launches == (bad < launches ? bad + 1 : launches));
    rg_tensor_destroy(good[0]);
    rg_tensor_destroy(good[1]);
    rg_tensor_destroy(faulty[0]);
    rg_tensor_destroy(y);
    rg_kernel_destroy(kernel);
}

/* ---- what an op may lack ---- */

static void test_lacking(rig *r)
{
    rg_kernel *one_way = NULL, *kernel = mix_of(r->device, false, 1);
    const mix_desc desc = mix_desc_default();
    EXPECT_OK(rg_kernel_create(r->device, &one_way_op, &desc, &one_way));
    EXPECT(!rg_kernel_equal(one_way, kernel));
    rg_tensor *x[2] = { filled(r->device, RG_F32, 1, DIMS(9), 1),
                        filled(r->device, RG_F32, 1, DIMS(9), 2) };
    rg_tensor *y = NULL, *dx[2] = { NULL, NULL };
    EXPECT_OK(rg_kernel_forward_alloc(one_way, r->commands, 1, x, false, &y, NULL));
    EXPECT_FAILS(rg_kernel_gradient_alloc(one_way, r->commands, 1, &y, x, NULL, NULL, 3, false, dx),
                 RG_UNSUPPORTED, "one_way has no gradient");
    EXPECT(dx[0] == NULL && dx[1] == NULL);
    rg_tensor *wide[2] = { filled(r->device, RG_F64, 1, DIMS(9), 1),
                           filled(r->device, RG_F64, 1, DIMS(9), 2) };
    rg_tensor *none = NULL;
    EXPECT_FAILS(rg_kernel_forward_alloc(kernel, r->commands, 1, wide, true, &none, NULL),
                 RG_UNSUPPORTED, "no kernel for f64");
    EXPECT_OK(rig_run(r));
    for (int i = 0; i < 2; i++) {
        rg_tensor_destroy(x[i]);
        rg_tensor_destroy(wide[i]);
    }
    rg_tensor_destroy(y);
    rg_kernel_destroy(one_way);
    rg_kernel_destroy(kernel);
}

/* ---- neighbours become one launch ---- */

static void test_joining(rig *r)
{
    enum { IMAGES = 6 };
    rg_kernel *kernel = mix_of(r->device, false, 2);
    rg_tensor *whole[3], *of[3][IMAGES], *x[2 * IMAGES], *y[IMAGES];
    for (int i = 0; i < 3; i++) {
        whole[i] = filled(r->device, RG_F32, 2, DIMS(2 * IMAGES, 5), (uint64_t)i);
        for (int n = 0; n < IMAGES; n++)
            EXPECT_OK(rg_tensor_slice(whole[i], DIMS(2 * n, 0), DIMS(2, 5), NULL, &of[i][n]));
    }
    for (int n = 0; n < IMAGES; n++) {
        x[n] = of[0][n];
        x[IMAGES + n] = of[1][n];
        y[n] = of[2][n];
    }
    mix_forget();
    EXPECT_OK(rg_kernel_forward_batch(kernel, r->commands, IMAGES, x, y, NULL));
    EXPECT_OK(rig_run(r));
    EXPECT(mix_launches == 1);
    int wrong = 0;
    for (int i = 0; i < 10 * IMAGES; i++)
        wrong += values(whole[2])[i] != 2 * values(whole[0])[i] * values(whole[1])[i];
    EXPECT(wrong == 0);
    rg_tensor *const swapped = x[3]; /* a gap in one input: three runs */
    x[3] = tensor_of(r->device, RG_F32, 2, DIMS(2, 5));
    fill(x[3], 3);
    mix_forget();
    EXPECT_OK(rg_kernel_forward_batch(kernel, r->commands, IMAGES, x, y, NULL));
    EXPECT_OK(rig_run(r));
    EXPECT(mix_launches == 3);
    for (int i = 0; i < 10; i++)
        wrong += values(y[3])[i] != 2 * values(x[3])[i] * values(of[1][3])[i] ||
                 values(y[4])[i] != 2 * values(x[4])[i] * values(of[1][4])[i];
    EXPECT(wrong == 0);
    rg_tensor_destroy(x[3]);
    x[3] = swapped;
    for (int i = 0; i < 3; i++) {
        for (int n = 0; n < IMAGES; n++)
            rg_tensor_destroy(of[i][n]);
        rg_tensor_destroy(whole[i]);
    }
    rg_kernel_destroy(kernel);
}

int main(void)
{
    rig r = rig_open(3);
    test_description(r.device);
    test_values(&r);
    static const int32_t threads[] = { 1, 2, 3, 8 };
    for (int i = 0; i < 4; i++) {
        test_tiles(threads[i], 2);
        test_tiles(threads[i], -2);
    }
    test_fault(&r);
    test_fault_words(&r, 200, 200);
    test_fault_words(&r, 200, 0);
    test_fault_words(&r, 200, 64);
    test_fault_words(&r, 200, 199);
    test_lacking(&r);
    test_joining(&r);
    rig_close(&r);
    return rg_test_report();
}
