/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Inputs of `retrograde op`, "x=x.npy[0:2,::2]": bytes for the shape of a tensor, then the text
 * behind "x=". The slice that comes back must be read and converted without harm. */
#include "fuzz.h"

#include "cli/arguments.h"
#include "cli/op_run.h"
#include "ops/ops.h"

#include <retrograde/files.h>

#include <stdarg.h>

/* Instead of those of the program, which print. */
int rg_wrong(const char *format, ...)
{
    char sentence[4096];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(sentence, sizeof sentence, format, arguments);
    va_end(arguments);
    FUZZ_CHECK(sentence[0] != 0);
    return 2;
}

int rg_failed(void)
{
    FUZZ_CHECK(rg_error_text()[0] != 0);
    return 1;
}

static void save_tensor(fuzz_input *input, const char *path)
{
    static const rg_dtype dtypes[] = { RG_F32, RG_F64, RG_F16, RG_U8, RG_I32, RG_I64 };
    const uint8_t kind = fuzz_byte(input);
    int64_t dims[RG_MAX_RANK];
    const int32_t rank = kind / 8 % 5;
    for (int32_t d = 0; d < rank; d++)
        dims[d] = fuzz_byte(input) % 6;
    const rg_tensor_desc desc = rg_tensor_desc_dense(dtypes[kind % 6], rank, dims);
    rg_tensor *tensor;
    FUZZ_CHECK(rg_tensor_create(fuzz_reader_device(), &desc, &tensor) == RG_OK);
    fuzz_zero(tensor);
    FUZZ_CHECK(rg_tensor_save_npy(tensor, path) == RG_OK);
    rg_tensor_destroy(tensor);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_input input = { data, size };
    char saved[512], path[2048];
    snprintf(saved, sizeof saved, "%s", fuzz_path("x.npy"));
    rg_op_run run;
    const rg_operand operand = { .role = RG_ROLE_X, .name = "x", .path = path };
    FUZZ_CHECK(rg_op_run_begin(&run, "softmax") == 0);
    run.device = fuzz_reader_device();
    FUZZ_CHECK(rg_kernel_create(run.device, run.op, run.desc, &run.kernel) == RG_OK);
    const size_t held = fuzz_held();
    save_tensor(&input, saved);
    char *text = fuzz_text(&input);
    snprintf(path, sizeof path, "%s%s", saved, text);
    if (rg_op_run_load(&run, &operand) == 0 && rg_op_run_convert(&run, RG_F32) == 0)
        FUZZ_CHECK(rg_tensor_save_npy(run.x[0], saved) == RG_OK);
    free(text);
    rg_tensor_destroy(run.x[0]);
    FUZZ_CHECK(fuzz_held() == held);
    rg_kernel_destroy(run.kernel);
    return 0;
}
