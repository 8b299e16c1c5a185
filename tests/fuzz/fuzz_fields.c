/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Descriptors as text, "axis=1 kind=log": a byte for the op, then the text. What is read is written
 * and read again. Numbers likewise. */
#include "fuzz.h"

#include "core/number.h"
#include "ops/ops.h"

#include <math.h>

static const rg_op *op_of(uint8_t choice)
{
    int count = 0;
    while (rg_ops[count] != NULL)
        count++;
    return rg_ops[choice % count];
}

static void check_kernel(const rg_op *op, const char *desc)
{
    rg_kernel *kernel;
    _Alignas(16) char again[RG_MAX_DESC];
    const size_t length = rg_fields_text(&op->desc, desc, NULL, 0);
    char *text = malloc(length + 1);
    FUZZ_CHECK(text != NULL && rg_fields_text(&op->desc, desc, text, length + 1) == length);
    if (FUZZ_TRY(rg_kernel_create(fuzz_reader_device(), op, desc, &kernel))) {
        memcpy(again, op->desc.defaults, op->desc.size);
        FUZZ_CHECK(rg_fields_parse(&op->desc, op->name, again, text) == RG_OK);
        FUZZ_CHECK(rg_fields_equal(&op->desc, desc, again));
        FUZZ_CHECK(rg_kernel_describe(kernel, NULL, 0) > 0);
        (void)rg_kernel_hash(kernel);
    }
    rg_kernel_destroy(kernel);
    free(text);
}

static void check_number(const char *text)
{
    double value, again;
    char written[32];
    if (!rg_number_parse_any(text, &value))
        return;
    rg_number_text(value, written, sizeof written);
    FUZZ_CHECK(rg_number_parse_any(written, &again));
    FUZZ_CHECK(value == again || (isnan(value) && isnan(again)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_input input = { data, size };
    (void)fuzz_reader_device();
    const size_t held = fuzz_held();
    const rg_op *op = op_of(fuzz_byte(&input));
    char *text = fuzz_text(&input);
    _Alignas(16) char desc[RG_MAX_DESC];
    const rg_op *found;
    const rg_op_name *name;
    rg_dtype dtype;
    memcpy(desc, op->desc.defaults, op->desc.size);
    if (FUZZ_TRY(rg_fields_parse(&op->desc, op->name, desc, text)))
        check_kernel(op, desc);
    check_number(text);
    (void)FUZZ_TRY(rg_op_find(text, &found, &name));
    (void)FUZZ_TRY(rg_dtype_parse(text, &dtype));
    free(text);
    FUZZ_CHECK(fuzz_held() == held);
    return 0;
}
