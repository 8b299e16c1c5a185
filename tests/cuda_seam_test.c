/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The seam between ops and the CUDA backend: pointers, scratch, state and temporaries, then fault
 * words, and launches that fail. */
#include "cuda_rig.h"
#include "cuda_seam.h"

static rg_kernel *seam_of(rg_device *device, int32_t number, seam_mode mode, double scale)
{
    seam_desc desc = seam_desc_of(number);
    desc.mode = mode;
    desc.scale = scale;
    rg_kernel *kernel = NULL;
    EXPECT_OK(rg_kernel_create(device, &seam_op, &desc, &kernel));
    return kernel;
}

/* Bytes of elements_of(), as what they are. */
static float *floats_of(const rg_tensor *tensor)
{
    return (float *)(void *)elements_of(tensor);
}

/* ---- values ---- */

static void test_values(rig *r, int64_t count)
{
    const int64_t *dims = &count;
    rg_kernel *kernel = seam_of(r->device, 0, SEAM_WORKS, 3);
    rg_tensor *x[2] = { filled(r->device, RG_F32, 1, dims, 1),
                        filled(r->device, RG_F32, 1, dims, 2) };
    rg_tensor *dx[2] = { filled(r->device, RG_F32, 1, dims, 3),
                         filled(r->device, RG_F32, 1, dims, 4) };
    rg_tensor *y = tensor_of(r->device, RG_F32, 1, dims), *kept = NULL;
    rg_tensor *dy = filled(r->device, RG_F32, 1, dims, 5), *const needed[] = { NULL, x[1] };
    rg_state *state = NULL;
    float *a = floats_of(x[0]), *b = floats_of(x[1]), *g = floats_of(dy), *old = floats_of(dx[1]);
    EXPECT_OK(rg_state_create(kernel, x, &state));
    EXPECT_OK(rg_kernel_forward(kernel, r->commands, x, &y, state));
    EXPECT_OK(rg_kernel_gradient(kernel, r->commands, &dy, needed, NULL, state, dx, 2));
    EXPECT_OK(rig_run(r));
    EXPECT_OK(rg_state_tensor(state, "kept", &kept));
    EXPECT(same_bits(kept, x[0]));
    float *got = floats_of(y), *da = floats_of(dx[0]), *db = floats_of(dx[1]);
    int64_t wrong = 0;
    for (int64_t i = 0; i < count; i++) {
        const int64_t transposed = count - 1 - i;
        wrong += got[i] != 3 * a[transposed] * b[i];
        wrong += da[i] != 3 * g[transposed] * b[transposed];
        wrong += db[i] != old[i] + 3 * g[i] * a[transposed]; /* added */
    }
    EXPECT(wrong == 0);
    float *const copies[] = { a, b, g, old, got, da, db };
    for (int i = 0; i < 7; i++)
        free(copies[i]);
    for (int i = 0; i < 2; i++) {
        rg_tensor_destroy(x[i]);
        rg_tensor_destroy(dx[i]);
    }
    rg_tensor_destroy(y);
    rg_tensor_destroy(dy);
    rg_state_destroy(state);
    rg_kernel_destroy(kernel);
}

/* A long list of temporaries: each result is an input of the next launch, beside scratch, fault
 * words and states of the same heap. An even number of them turns a round and back again. */
static void test_temporaries(rig *r)
{
    enum { STEPS = 100, COUNT = 1001 };
    static float in[COUNT], ones[COUNT], out[COUNT];
    rg_kernel *kernel = seam_of(r->device, 1, SEAM_WORKS, 1);
    const rg_tensor_desc desc = rg_tensor_desc_dense(RG_F32, 1, DIMS(COUNT));
    rg_tensor *x[2] = { NULL, tensor_of(r->device, RG_F32, 1, DIMS(COUNT)) };
    draw_floats(in, COUNT, 6);
    for (int i = 0; i < COUNT; i++)
        ones[i] = 1;
    EXPECT_OK(rg_tensor_write(x[1], ones, sizeof ones, RG_LAYOUT_SAME));
    EXPECT_OK(rg_tensor_create_temporary(r->commands, &desc, &x[0]));
    EXPECT_OK(rg_commands_write(r->commands, x[0], in, sizeof in, RG_LAYOUT_SAME));
    for (int i = 0; i < STEPS; i++) {
        rg_tensor *y = NULL;
        rg_state *state = NULL;
        EXPECT_OK(rg_kernel_forward_alloc(kernel, r->commands, 1, x, true, &y,
                                          i % 7 == 0 ? &state : NULL));
        rg_state_destroy(state);
        rg_tensor_destroy(x[0]);
        x[0] = y;
        if (i % 10 == 9)
            EXPECT_OK(rg_commands_commit_and_continue(r->commands));
    }
    EXPECT_OK(rg_commands_read(r->commands, x[0], out, sizeof out, RG_LAYOUT_SAME));
    EXPECT_OK(rig_run(r));
    EXPECT(memcmp(in, out, sizeof in) == 0);
    rg_tensor_destroy(x[0]);
    rg_tensor_destroy(x[1]);
    rg_kernel_destroy(kernel);
}

/* ---- what is not there ---- */

static void test_lacking(rig *r)
{
    rig cpu = rig_open(1);
    rig *const rigs[] = { r, &cpu };
    static const rg_dtype types[] = { RG_F64, RG_F32 };
    static const char *const words[] = { "seam: there is no kernel for f64 on cuda:0",
                                         "seam: there is no kernel for f32 on cpu" };
    for (int i = 0; i < 2; i++) {
        rg_kernel *kernel = seam_of(rigs[i]->device, 0, SEAM_WORKS, 1);
        rg_tensor *x[2] = { filled(rigs[i]->device, types[i], 1, DIMS(9), 1),
                            filled(rigs[i]->device, types[i], 1, DIMS(9), 2) };
        rg_tensor *y = (rg_tensor *)1;
        EXPECT_FAILS(rg_kernel_forward_alloc(kernel, rigs[i]->commands, 1, x, true, &y, NULL),
                     RG_UNSUPPORTED, words[i]);
        EXPECT(y == NULL);
        EXPECT_OK(rig_run(rigs[i]));
        rg_tensor_destroy(x[0]);
        rg_tensor_destroy(x[1]);
        rg_kernel_destroy(kernel);
    }
    rig_close(&cpu);
}

/* ---- faults ---- */

/* Inputs with and without a value that must not be, and kernels that can be told apart. */
typedef struct bench {
    rg_tensor *good[2], *bad[2], *y, *dy, *da;
    rg_kernel *kernels[3], *half, *launches_badly;
    rg_state *state;
} bench;

enum { BENCH = 900 };

static bench bench_make(rig *r)
{
    bench b = { .y = tensor_of(r->device, RG_F32, 1, DIMS(BENCH)) };
    b.good[0] = filled(r->device, RG_F32, 1, DIMS(BENCH), 1);
    b.good[1] = b.bad[1] = filled(r->device, RG_F32, 1, DIMS(BENCH), 2);
    b.dy = filled(r->device, RG_F32, 1, DIMS(BENCH), 3);
    b.da = tensor_of(r->device, RG_F32, 1, DIMS(BENCH));
    b.bad[0] = tensor_of(r->device, RG_F32, 1, DIMS(BENCH));
    float *values = floats_of(b.good[0]);
    values[777] = 666;
    EXPECT_OK(rg_tensor_write(b.bad[0], values, BENCH * sizeof(float), RG_LAYOUT_SAME));
    free(values);
    for (int32_t i = 0; i < 3; i++)
        b.kernels[i] = seam_of(r->device, i, SEAM_WORKS, 1);
    b.half = seam_of(r->device, 3, SEAM_STOPS_HALF_WAY, 1);
    b.launches_badly = seam_of(r->device, 3, SEAM_LAUNCHES_BADLY, 1);
    EXPECT_OK(rg_state_create(b.kernels[0], b.good, &b.state));
    EXPECT_OK(rg_kernel_forward(b.kernels[0], r->commands, b.good, &b.y, b.state));
    EXPECT_OK(rig_run(r));
    return b;
}

static void bench_free(bench *b)
{
    rg_tensor *const tensors[] = { b->good[0], b->good[1], b->bad[0], b->y, b->dy, b->da };
    for (int i = 0; i < 6; i++)
        rg_tensor_destroy(tensors[i]);
    for (int i = 0; i < 3; i++)
        rg_kernel_destroy(b->kernels[i]);
    rg_kernel_destroy(b->half);
    rg_kernel_destroy(b->launches_badly);
    rg_state_destroy(b->state);
}

static rg_status run_one(const bench *b, rg_commands *commands, int number, bool bad)
{
    rg_tensor *y = b->y;
    return rg_kernel_forward(b->kernels[number], commands, bad ? b->bad : b->good, &y, NULL);
}

static void take_outcome(void *context, rg_status outcome)
{
    *(rg_status *)context = outcome;
}

static void test_fault(rig *r, const bench *b)
{
    float first[BENCH] = { 0 }, after[BENCH] = { 0 };
    rg_status outcome = RG_OK, second = RG_IO;
    rg_commands *next = NULL;
    EXPECT_OK(rg_commands_read(r->commands, b->dy, first, sizeof first, RG_LAYOUT_SAME));
    EXPECT_OK(run_one(b, r->commands, 2, true));
    EXPECT_OK(rg_commands_on_completion(r->commands, take_outcome, &outcome));
    EXPECT_OK(rg_commands_commit(r->commands));
    EXPECT_OK(rg_commands_create(r->queue, &next)); /* behind it in the queue: not its fault */
    EXPECT_OK(run_one(b, next, 1, false));
    EXPECT_OK(rg_commands_read(next, b->dy, after, sizeof after, RG_LAYOUT_SAME));
    EXPECT_OK(rg_commands_on_completion(next, take_outcome, &second));
    EXPECT_OK(rg_commands_commit(next));
    EXPECT_FAILS(rg_commands_wait(r->commands), RG_KERNEL_FAULT, "seam 2: an element of a is 666");
    EXPECT_FAILS(rg_commands_wait(r->commands), RG_KERNEL_FAULT, "seam 2: an element of a is 666");
    EXPECT_OK(rg_commands_wait(next));
    EXPECT(outcome == RG_KERNEL_FAULT && second == RG_OK);
    EXPECT(rg_commands_get_state(r->commands) == RG_COMMANDS_FAILED);
    EXPECT(rg_commands_get_state(next) == RG_COMMANDS_COMPLETED);
    EXPECT(strstr(rg_commands_error_text(r->commands), "seam 2") != NULL);
    EXPECT(strcmp(rg_commands_error_text(next), "") == 0);
    EXPECT(first[0] != 0 && memcmp(first, after, sizeof first) == 0);
    rg_commands_destroy(next);
    rig_renew(r);

    EXPECT_OK(run_one(b, r->commands, 1, true)); /* nobody waits: asking tells, too */
    EXPECT_OK(rg_commands_commit(r->commands));
    SECONDS(rg_commands_get_state(r->commands) == RG_COMMANDS_FAILED);
    EXPECT(strstr(rg_commands_error_text(r->commands), "seam 1") != NULL);
    rig_renew(r);

    EXPECT_OK(run_one(b, r->commands, 1, true)); /* a submission fails, the next runs */
    EXPECT_OK(rg_commands_commit_and_continue(r->commands));
    memset(after, 0, sizeof after);
    EXPECT_OK(rg_commands_read(r->commands, b->dy, after, sizeof after, RG_LAYOUT_SAME));
    EXPECT_OK(rg_commands_commit_and_continue(r->commands));
    EXPECT_OK(run_one(b, r->commands, 2, true)); /* fails as well, later */
    EXPECT_OK(rg_commands_commit(r->commands));
    EXPECT_FAILS(rg_commands_wait(r->commands), RG_KERNEL_FAULT, "seam 1");
    EXPECT(memcmp(first, after, sizeof first) == 0);
    rig_renew(r);
    EXPECT_OK(run_one(b, r->commands, 0, false));
    EXPECT_OK(rig_run(r));
}

/* `launches` with fault words, of which number `bad` faults first and some behind it, too; between
 * them work without fault words and calls that are refused half-way. */
static void test_first_fault(rig *r, bench *b, int launches, int bad)
{
    rg_tensor *const needed[] = { NULL, b->good[1] }, *const dx[] = { b->da, NULL };
    float value = 0;
    rg_tensor *one = NULL;
    EXPECT_OK(rg_tensor_slice(b->dy, DIMS(0), DIMS(1), NULL, &one));
    for (int i = 0; i < launches; i++) {
        const bool faults = i == bad || (i > bad && i % 3 == 0);
        EXPECT_OK(run_one(b, r->commands, i == bad ? 1 : faults ? 2 : 0, faults));
        if (i % 5 == 0)
            EXPECT_OK(rg_kernel_gradient(b->kernels[0], r->commands, &b->dy, needed, NULL, b->state,
                                         dx, 0));
        if (i % 7 == 0)
            EXPECT_FAILS(rg_kernel_forward(b->half, r->commands, b->bad, &b->y, NULL),
                         RG_UNSUPPORTED, "seam: there is no kernel");
        if (i % 11 == 0)
            EXPECT_OK(rg_commands_read(r->commands, one, &value, sizeof value, RG_LAYOUT_SAME));
    }
    if (bad < launches)
        EXPECT_FAILS(rig_run(r), RG_KERNEL_FAULT, "seam 1");
    else
        EXPECT_OK(rig_run(r));
    EXPECT_OK(run_one(b, r->commands, 0, false)); /* the words of new commands are clear */
    EXPECT_OK(rig_run(r));
    rg_tensor_destroy(one);
}

/* The driver refuses the launch itself: an outcome of its list alone. */
static void test_bad_launch(rig *r, bench *b)
{
    rg_status outcome = RG_OK;
    EXPECT_OK(rg_kernel_forward(b->launches_badly, r->commands, b->good, &b->y, NULL));
    EXPECT_OK(run_one(b, r->commands, 0, false));
    EXPECT_OK(rg_commands_on_completion(r->commands, take_outcome, &outcome));
    EXPECT_OK(rg_commands_commit(r->commands));
    EXPECT_FAILS(rg_commands_wait(r->commands), RG_KERNEL_FAULT, "GPU");
    EXPECT(outcome == RG_KERNEL_FAULT);
    EXPECT(rg_commands_get_state(r->commands) == RG_COMMANDS_FAILED);
    EXPECT(rg_commands_error_text(r->commands)[0] != 0);
    rig_renew(r);
    EXPECT_OK(run_one(b, r->commands, 0, false));
    EXPECT_OK(rig_run(r));
    EXPECT_CUDA(cudaGetLastError()); /* nor is it left to the caller */
}

int main(void)
{
    if (!has_gpu())
        return skip(rg_error_text());
    rig r = rig_open_cuda();
    test_values(&r, 1);
    test_values(&r, 12);
    test_values(&r, 100003);
    test_temporaries(&r);
    test_lacking(&r);
    bench b = bench_make(&r);
    test_fault(&r, &b);
    static const int bad[] = { 0, 1, 62, 63, 64, 65, 127, 128, 150, 199, 1000 };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        test_first_fault(&r, &b, 200, bad[i]);
    test_first_fault(&r, &b, 64, 63);
    test_first_fault(&r, &b, 65, 64);
    test_first_fault(&r, &b, 128, 1000);
    test_bad_launch(&r, &b);
    bench_free(&b);
    rig_close(&r);
    return rg_test_report();
}
