/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* JSON of kernels: what is read is written and read again. */
#include "fuzz.h"

#include <retrograde/files.h>

static void check_round_trip(const rg_kernel *kernel)
{
    const size_t length = rg_kernel_to_json(kernel, NULL, 0);
    char *text = malloc(length + 1);
    rg_kernel *again;
    FUZZ_CHECK(text != NULL && rg_kernel_to_json(kernel, text, length + 1) == length);
    FUZZ_CHECK(rg_kernel_from_json(fuzz_reader_device(), text, length, &again) == RG_OK);
    FUZZ_CHECK(rg_kernel_equal(kernel, again));
    FUZZ_CHECK(rg_kernel_hash(kernel) == rg_kernel_hash(again));
    FUZZ_CHECK(strcmp(rg_kernel_label(kernel), rg_kernel_label(again)) == 0);
    FUZZ_CHECK(rg_kernel_describe(kernel, NULL, 0) > 0);
    rg_kernel_destroy(again);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    rg_device *device = fuzz_reader_device();
    const size_t held = fuzz_held();
    rg_kernel *kernel;
    if (FUZZ_TRY(rg_kernel_from_json(device, (const char *)data, size, &kernel)))
        check_round_trip(kernel);
    else
        FUZZ_CHECK(kernel == NULL);
    rg_kernel_destroy(kernel);
    FUZZ_CHECK(fuzz_held() == held);
    return 0;
}
