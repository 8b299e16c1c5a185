/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* NPY: a byte of choices, then the file; read from a file or through a pipe, then written and read
 * again. */
#include "fuzz.h"

#include <retrograde/files.h>

#include <unistd.h>

enum { PIPE_BYTES = 60000 }; /* that a pipe takes without a reader */

static rg_status load_pipe(const uint8_t *data, size_t size, rg_tensor **tensor)
{
    int ends[2];
    char path[64];
    FUZZ_CHECK(pipe(ends) == 0);
    FUZZ_CHECK(write(ends[1], data, size) == (ssize_t)size);
    close(ends[1]);
    snprintf(path, sizeof path, "/proc/self/fd/%d", ends[0]);
    const rg_status status = rg_tensor_load_npy(fuzz_reader_device(), path, tensor);
    close(ends[0]);
    return status;
}

static void check_round_trip(rg_tensor *tensor)
{
    rg_tensor *again;
    rg_tensor_desc desc, desc_again;
    const char *path = fuzz_path("again.npy");
    FUZZ_CHECK(rg_tensor_save_npy(tensor, path) == RG_OK);
    FUZZ_CHECK(rg_tensor_load_npy(fuzz_reader_device(), path, &again) == RG_OK);
    FUZZ_CHECK(rg_tensor_get_desc(tensor, &desc) == RG_OK);
    FUZZ_CHECK(rg_tensor_get_desc(again, &desc_again) == RG_OK);
    FUZZ_CHECK(desc.dtype == desc_again.dtype && desc.rank == desc_again.rank &&
               memcmp(desc.dims, desc_again.dims, (size_t)desc.rank * sizeof desc.dims[0]) == 0);
    const size_t bytes = rg_tensor_bytes(tensor);
    FUZZ_CHECK(rg_tensor_bytes(again) == bytes);
    FUZZ_CHECK(bytes == 0 || memcmp(rg_tensor_data(tensor), rg_tensor_data(again), bytes) == 0);
    rg_tensor_destroy(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_input input = { data, size };
    const bool piped = (fuzz_byte(&input) & 1) != 0 && input.size <= PIPE_BYTES;
    rg_device *device = fuzz_reader_device();
    const size_t held = fuzz_held();
    rg_tensor *tensor;
    const rg_status status =
        piped ? load_pipe(input.data, input.size, &tensor)
              : rg_tensor_load_npy(device, fuzz_file("x.npy", input.data, input.size), &tensor);
    if (FUZZ_TRY(status))
        check_round_trip(tensor);
    else
        FUZZ_CHECK(tensor == NULL);
    rg_tensor_destroy(tensor);
    FUZZ_CHECK(fuzz_held() == held);
    return 0;
}
