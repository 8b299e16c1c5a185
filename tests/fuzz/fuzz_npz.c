/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* NPZ: a byte of choices, then the archive as it is, or with its checksums made right; or a folder
 * of two NPY files, the length of the first before them. */
#include "fuzz_data.h"

static void use_folder(fuzz_input *input, bool parts)
{
    size_t first;
    uint8_t *x = fuzz_take(input, fuzz_word(input), &first);
    fuzz_file(parts ? "x_test.npy" : "x.npy", x, first);
    fuzz_file(parts ? "y_test.npy" : "y.npy", input->data, input->size);
    fuzz_use_dataset(fuzz_path(""));
    free(x);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_input input = { data, size };
    const uint8_t choice = fuzz_byte(&input);
    fuzz_clear();
    if ((choice & 4) != 0) {
        use_folder(&input, (choice & 8) != 0);
    } else {
        size_t taken;
        uint8_t *archive = fuzz_take(&input, input.size, &taken);
        if ((choice & 1) != 0)
            fuzz_repair_zip(archive, taken);
        fuzz_use_dataset(fuzz_file("x.npz", archive, taken));
        free(archive);
    }
    fuzz_clear();
    return 0;
}
