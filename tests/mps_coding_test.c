/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Coding as in MPS: a kernel goes through JSON, onto a device that the reader chooses, and computes
 * the same there. docs/mps.md names these tests. */
#include "mps.h"

#include <retrograde/files.h>

/* encodeWithCoder: and initWithCoder:device: keep op, descriptor and label, never the device. */
static void test_coding(rig *r)
{
    rig other = rig_open(1);
    rg_kernel *kernel = softmax_of(r->device, RG_SOFTMAX_LOG, 1), *decoded = NULL;
    EXPECT_OK(rg_kernel_set_label(kernel, "head"));
    char text[256];
    const size_t length = rg_kernel_to_json(kernel, text, sizeof text);
    EXPECT(length == strlen(text) && strstr(text, "cpu") == NULL);
    EXPECT_OK(rg_kernel_from_json(other.device, text, length, &decoded));
    EXPECT(rg_kernel_device(decoded) == other.device);
    EXPECT(rg_kernel_equal(kernel, decoded) && rg_kernel_hash(kernel) == rg_kernel_hash(decoded));
    EXPECT(strcmp(rg_kernel_label(decoded), "head") == 0);

    rg_tensor *x[2] = { filled(r->device, RG_F32, 3, DIMS(3, 7, 5), 1),
                        filled(other.device, RG_F32, 3, DIMS(3, 7, 5), 1) };
    rg_tensor *y[2] = { NULL, NULL }; /* equal results from equal inputs */
    EXPECT_OK(rg_kernel_forward_alloc(kernel, r->commands, 1, &x[0], false, &y[0], NULL));
    EXPECT_OK(rg_kernel_forward_alloc(decoded, other.commands, 1, &x[1], false, &y[1], NULL));
    EXPECT_OK(rig_run(r));
    EXPECT_OK(rig_run(&other));
    EXPECT(same_bits(y[0], y[1]));
    for (int i = 0; i < 2; i++) {
        rg_tensor_destroy(x[i]);
        rg_tensor_destroy(y[i]);
    }
    rg_kernel_destroy(kernel);
    rg_kernel_destroy(decoded);
    rig_close(&other);
}

/* Secure coding: what is not a kernel becomes an error, never an object of another class. */
static void test_secure_coding(rig *r)
{
    static const char *const texts[] = { "", "{}", "[1, 2]",
                                         "{\"retrograde\": 1, \"op\": \"exec\"}",
                                         "{\"retrograde\": 1, \"op\": \"softmax\", \"desc\": 7}" };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        rg_kernel *kernel = (rg_kernel *)1;
        EXPECT(rg_kernel_from_json(r->device, texts[i], strlen(texts[i]), &kernel) == RG_MALFORMED);
        EXPECT(kernel == NULL && strstr(rg_error_text(), "line 1") != NULL);
    }
}

int main(void)
{
    rig r = rig_open(2);
    test_coding(&r);
    test_secure_coding(&r);
    rig_close(&r);
    return rg_test_report();
}
