/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Kernels: what they say of themselves, both verbs with softmax, aliasing, adding, and the forms
 * that allocate their results. */
#include "api.h"

#include <math.h>
#include <stdlib.h>

/* ---- what a kernel is ---- */

static void test_describe(rg_device *device)
{
    rg_softmax_desc desc = rg_softmax_desc_default();
    EXPECT(desc.size == sizeof desc && desc.kind == RG_SOFTMAX_PLAIN && desc.axis == -1);
    EXPECT(!desc.flatten);
    desc.kind = RG_SOFTMAX_LOG;
    desc.axis = 1;
    rg_kernel *kernel = NULL;
    EXPECT_OK(rg_softmax_create(device, &desc, &kernel));
    EXPECT(rg_kernel_inputs(kernel) == 1 && rg_kernel_outputs(kernel) == 1);
    EXPECT(strcmp(rg_kernel_op(kernel), "softmax") == 0 && rg_kernel_device(kernel) == device);
    char text[128];
    const size_t length = rg_kernel_describe(kernel, text, sizeof text);
    EXPECT(strcmp(text, "softmax kind=log axis=1 flatten=false") == 0 && length == strlen(text));
    EXPECT(rg_kernel_describe(kernel, NULL, 0) == length);
    char cut[9];
    EXPECT(rg_kernel_describe(kernel, cut, sizeof cut) == length && strcmp(cut, "softmax ") == 0);
    EXPECT(strcmp(rg_kernel_label(kernel), "") == 0);
    EXPECT_OK(rg_kernel_set_label(kernel, "head"));
    EXPECT_OK(rg_kernel_set_label(kernel, rg_kernel_label(kernel))); /* its own text */
    EXPECT(strcmp(rg_kernel_label(kernel), "head") == 0);
    EXPECT_FAILS(rg_kernel_set_label(kernel, NULL), RG_INVALID_ARGUMENT, "label is NULL");
    EXPECT(strcmp(rg_kernel_label(kernel), "head") == 0);
    rg_tensor_desc x = rg_tensor_desc_dense(RG_BF16, 3, DIMS(2, 3, 4)), y;
    x.strides[2] = 2;
    EXPECT_OK(rg_kernel_shapes(kernel, &x, &y));
    EXPECT(y.dtype == RG_BF16 && y.rank == 3 && y.dims[2] == 4 && y.strides[2] == 1);
    rg_kernel_destroy(kernel);
    EXPECT(rg_kernel_inputs(NULL) == 0 && rg_kernel_outputs(NULL) == 0);
    EXPECT(strcmp(rg_kernel_op(NULL), "") == 0 && rg_kernel_device(NULL) == NULL);
    EXPECT(rg_kernel_describe(NULL, text, sizeof text) == 0 && text[0] == 0);
    EXPECT_FAILS(rg_kernel_set_label(NULL, "a"), RG_INVALID_ARGUMENT, "kernel is NULL");
    rg_kernel_destroy(NULL);
}

/* A loss without its second output wrote the shape of it, too. */
static void test_shapes(rg_device *device)
{
    const rg_loss_desc desc = rg_loss_desc_default();
    const rg_tensor_desc one = rg_tensor_desc_dense(RG_F32, 2, DIMS(2, 3)), x[] = { one, one };
    rg_tensor_desc y[2], other = rg_tensor_desc_dense(RG_I64, 1, DIMS(99));
    rg_kernel *kernel = NULL;
    EXPECT_OK(rg_loss_create(device, &desc, &kernel));
    EXPECT(rg_kernel_outputs(kernel) == 1);
    y[0] = y[1] = other;
    EXPECT_OK(rg_kernel_shapes(kernel, x, y));
    EXPECT(y[0].dtype == RG_F32 && memcmp(&y[1], &other, sizeof other) == 0);
    y[0] = other;
    EXPECT(rg_kernel_shapes(kernel, (const rg_tensor_desc[]){ one, other }, y) != RG_OK);
    EXPECT(memcmp(&y[0], &other, sizeof other) == 0); /* on failure nothing is written */
    rg_kernel_destroy(kernel);
}

static void test_equality(rg_device *device)
{
    rg_kernel *kernels[12];
    int made = 0;
    for (int kind = 0; kind < 2; kind++) {
        for (int axis = -1; axis < 2; axis++) {
            for (int flatten = 0; flatten < 2; flatten++) {
                rg_softmax_desc desc = rg_softmax_desc_default();
                desc.kind = (rg_softmax_kind)kind;
                desc.axis = axis;
                desc.flatten = flatten;
                EXPECT_OK(rg_softmax_create(device, &desc, &kernels[made++]));
            }
        }
    }
    rg_device *other = NULL;
    EXPECT_OK(rg_device_create("cpu", NULL, &other));
    for (int a = 0; a < made; a++) {
        rg_kernel *copy = NULL;
        EXPECT_OK(rg_kernel_set_label(kernels[a], "name"));
        EXPECT_OK(rg_kernel_copy(kernels[a], a % 2 ? other : NULL, &copy));
        EXPECT(rg_kernel_device(copy) == (a % 2 ? other : device));
        EXPECT(strcmp(rg_kernel_label(copy), "name") == 0);
        EXPECT_OK(rg_kernel_set_label(copy, "another"));
        for (int b = 0; b < made; b++) {
            EXPECT(rg_kernel_equal(copy, kernels[b]) == (a == b));
            EXPECT((rg_kernel_hash(copy) == rg_kernel_hash(kernels[b])) == (a == b));
        }
        rg_kernel_destroy(copy);
    }
    EXPECT(rg_kernel_equal(NULL, NULL) && !rg_kernel_equal(kernels[0], NULL));
    rg_kernel *copy = (rg_kernel *)1;
    EXPECT_FAILS(rg_kernel_copy(NULL, NULL, &copy), RG_INVALID_ARGUMENT, "kernel is NULL");
    EXPECT(copy == NULL);
    EXPECT_FAILS(rg_kernel_copy(kernels[0], NULL, NULL), RG_INVALID_ARGUMENT, "copy is NULL");
    for (int a = 0; a < made; a++)
        rg_kernel_destroy(kernels[a]);
    rg_device_destroy(other);
}

/* A hash is the same in every process: another one, at other addresses, is asked. */
/* The hashes of a kernel and of its state for an input of 2 by 3 by 4 by 5. */
static void write_hashes(rg_device *device, char text[64])
{
    rg_kernel *kernel = softmax_of(device, RG_SOFTMAX_LOG, 3);
    rg_tensor *x = tensor_of(device, RG_F32, 4, DIMS(2, 3, 4, 5));
    rg_state *state = NULL;
    EXPECT_OK(rg_state_create(kernel, &x, &state));
    snprintf(text, 64, "%016llx %016llx\n", (unsigned long long)rg_kernel_hash(kernel),
             (unsigned long long)rg_state_hash(state));
    rg_state_destroy(state);
    rg_tensor_destroy(x);
    rg_kernel_destroy(kernel);
}

static void test_hash(rg_device *device, const char *program)
{
    const char *emulator = getenv("RG_EMULATOR"); /* of a cross build */
    char command[1024], wanted[64], got[64] = "";
    snprintf(command, sizeof command, "%s '%s' hash", emulator != NULL ? emulator : "", program);
    write_hashes(device, wanted);
    FILE *other = popen(command, "r");
    EXPECT(other != NULL && fgets(got, sizeof got, other) != NULL);
    EXPECT(other != NULL && pclose(other) == 0);
    EXPECT(strcmp(got, wanted) == 0);
}

static int print_hash(void)
{
    rig r = rig_open(1);
    char text[64];
    write_hashes(r.device, text);
    fputs(text, stdout);
    rig_close(&r);
    return rg_failed > 0;
}

/* ---- the verbs ---- */

static double at(const rg_tensor *tensor, int64_t i)
{
    return (double)((const float *)rg_tensor_data(tensor))[i];
}

/* Rows of 7 against the formulas. */
static void test_verbs(rig *r)
{
    enum { ROWS = 5, COLUMNS = 7 };
    rg_tensor *x = filled(r->device, RG_F32, 2, DIMS(ROWS, COLUMNS), 1), *y = NULL, *dx = NULL;
    rg_tensor *dy = filled(r->device, RG_F32, 2, DIMS(ROWS, COLUMNS), 2);
    rg_kernel *kernel = softmax_of(r->device, RG_SOFTMAX_PLAIN, 1);
    EXPECT_OK(rg_kernel_forward_alloc(kernel, r->commands, 1, &x, false, &y, NULL));
    EXPECT_OK(rg_kernel_gradient_alloc(kernel, r->commands, 1, &dy, NULL, &y, NULL, 1, false, &dx));
    EXPECT_OK(rig_run(r));
    for (int64_t row = 0; row < ROWS; row++) {
        double sum = 0, dot = 0;
        for (int64_t i = row * COLUMNS; i < (row + 1) * COLUMNS; i++)
            sum += exp(at(x, i));
        for (int64_t i = row * COLUMNS; i < (row + 1) * COLUMNS; i++)
            dot += at(dy, i) * exp(at(x, i)) / sum;
        for (int64_t i = row * COLUMNS; i < (row + 1) * COLUMNS; i++) {
            const double p = exp(at(x, i)) / sum;
            EXPECT(fabs(at(y, i) - p) < 1e-6);
            EXPECT(fabs(at(dx, i) - p * (at(dy, i) - dot)) < 1e-6);
        }
    }
    rg_tensor_destroy(x);
    rg_tensor_destroy(y);
    rg_tensor_destroy(dy);
    rg_tensor_destroy(dx);
    rg_kernel_destroy(kernel);
}

/* y may be x; dx may be dy or y: the same bits as apart. */
static void test_aliases(rig *r)
{
    for (int axis = 0; axis < 2; axis++) {
        rg_kernel *kernel = softmax_of(r->device, RG_SOFTMAX_LOG, axis);
        rg_tensor *x = filled(r->device, RG_F32, 2, DIMS(33, 70), 1);
        rg_tensor *dy = filled(r->device, RG_F32, 2, DIMS(33, 70), 2), *y = NULL, *dx = NULL;
        EXPECT_OK(rg_kernel_forward_alloc(kernel, r->commands, 1, &x, false, &y, NULL));
        EXPECT_OK(
            rg_kernel_gradient_alloc(kernel, r->commands, 1, &dy, NULL, &y, NULL, 1, false, &dx));
        EXPECT_OK(rig_run(r));
        EXPECT_OK(rg_kernel_forward(kernel, r->commands, &x, &x, NULL));
        EXPECT_OK(rg_kernel_gradient(kernel, r->commands, &dy, NULL, &y, NULL, &dy, 0));
        EXPECT_OK(rig_run(r));
        EXPECT(same_bits(x, y) && same_bits(dx, dy));
        fill(dy, 2);
        rg_tensor *same =
            NULL; /* another tensor of the same elements; strides of 1 do not matter */
        EXPECT_OK(rg_tensor_reshape(y, 2, DIMS(33, 70), &same));
        EXPECT_OK(rg_kernel_gradient(kernel, r->commands, &dy, NULL, &y, NULL, &same, 0));
        EXPECT_OK(rig_run(r));
        EXPECT(same_bits(dx, y));
        rg_tensor_destroy(same);
        rg_tensor_destroy(x);
        rg_tensor_destroy(y);
        rg_tensor_destroy(dy);
        rg_tensor_destroy(dx);
        rg_kernel_destroy(kernel);
    }
    rg_kernel *kernel = softmax_of(r->device, RG_SOFTMAX_PLAIN, -1);
    rg_tensor *whole = filled(r->device, RG_F32, 2, DIMS(4, 8), 1), *row[2] = { NULL, NULL };
    EXPECT_OK(rg_tensor_slice(whole, DIMS(1, 0), DIMS(1, 8), NULL, &row[0])); /* dims (1, 8) */
    EXPECT_OK(
        rg_tensor_reshape(row[0], 2, DIMS(1, 8), &row[1])); /* another stride of dimension 0 */
    EXPECT_OK(rg_kernel_forward(kernel, r->commands, &row[0], &row[1], NULL));
    EXPECT_OK(rig_run(r));
    rg_tensor_destroy(whole);
    rg_tensor_destroy(row[0]);
    rg_tensor_destroy(row[1]);
    rg_kernel_destroy(kernel);
}

/* `add` adds what would have been written. */
static void test_add(rig *r)
{
    for (int axis = 0; axis < 2; axis++) {
        rg_kernel *kernel = softmax_of(r->device, RG_SOFTMAX_PLAIN, axis);
        rg_tensor *y = filled(r->device, RG_F32, 2, DIMS(20, 30), 1);
        rg_tensor *dy = filled(r->device, RG_F32, 2, DIMS(20, 30), 2);
        rg_tensor *dx = tensor_of(r->device, RG_F32, 2, DIMS(20, 30));
        rg_tensor *sum = filled(r->device, RG_F32, 2, DIMS(20, 30), 3);
        float *before = (float *)(void *)elements_of(sum);
        EXPECT_OK(rg_kernel_gradient(kernel, r->commands, &dy, NULL, &y, NULL, &dx, 0));
        EXPECT_OK(rg_kernel_gradient(kernel, r->commands, &dy, NULL, &y, NULL, &sum, 1));
        EXPECT_OK(rig_run(r));
        for (int64_t i = 0; i < 600; i++)
            EXPECT(fabs(at(sum, i) - ((double)before[i] + at(dx, i))) < 1e-5);
        free(before);
        rg_tensor_destroy(y);
        rg_tensor_destroy(dy);
        rg_tensor_destroy(dx);
        rg_tensor_destroy(sum);
        rg_kernel_destroy(kernel);
    }
}

/* A kernel may go before its work has run, and a copy runs on its own device. */
static void test_copies(rig *r)
{
    rg_kernel *kernel = softmax_of(r->device, RG_SOFTMAX_PLAIN, -1), *copy = NULL;
    rig other = rig_open(1);
    EXPECT_OK(rg_kernel_copy(kernel, other.device, &copy));
    rg_tensor *x[2], *y[2] = { NULL, NULL };
    x[0] = filled(r->device, RG_F16, 2, DIMS(9, 40), 1);
    x[1] = filled(other.device, RG_F16, 2, DIMS(9, 40), 1);
    EXPECT_FAILS(rg_kernel_forward_alloc(copy, r->commands, 1, &x[0], false, &y[0], NULL),
                 RG_INVALID_ARGUMENT, "different devices");
    EXPECT_FAILS(rg_kernel_forward_alloc(kernel, r->commands, 1, &x[1], false, &y[0], NULL),
                 RG_INVALID_ARGUMENT, "different devices");
    EXPECT_OK(rg_kernel_forward_alloc(kernel, r->commands, 1, &x[0], false, &y[0], NULL));
    EXPECT_OK(rg_kernel_forward_alloc(copy, other.commands, 1, &x[1], false, &y[1], NULL));
    rg_kernel_destroy(kernel);
    rg_kernel_destroy(copy);
    EXPECT_OK(rig_run(r));
    EXPECT_OK(rig_run(&other));
    EXPECT(same_bits(y[0], y[1]));
    for (int i = 0; i < 2; i++) {
        rg_tensor_destroy(x[i]);
        rg_tensor_destroy(y[i]);
    }
    rig_close(&other);
}

int main(int count, char **arguments)
{
    if (count > 1 && strcmp(arguments[1], "hash") == 0)
        return print_hash();
    rig r = rig_open(2);
    test_describe(r.device);
    test_shapes(r.device);
    test_equality(r.device);
    test_hash(r.device, arguments[0]);
    test_verbs(&r);
    test_aliases(&r);
    test_add(&r);
    test_copies(&r);
    rig_close(&r);
    return rg_test_report();
}
