/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Folders of IDX files: a byte of choices, the length of the images' file, then both files. They
 * are plain, gzip as they stand in the input, or packed here. */
#include "fuzz_data.h"

static void put(const char *base, uint8_t how, const uint8_t *data, size_t size)
{
    char name[96];
    snprintf(name, sizeof name, "%s%s", base, how > 0 ? ".gz" : "");
    if (how < 2) {
        fuzz_file(name, data, size);
        return;
    }
    size_t made;
    uint8_t *packed = fuzz_gzip(data, size, &made);
    fuzz_file(name, packed, made);
    free(packed);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint8_t ways[] = { 0, 0, 1, 2 };
    fuzz_input input = { data, size };
    const uint8_t choice = fuzz_byte(&input);
    const uint8_t images_way = ways[choice & 3], labels_way = ways[choice >> 2 & 3];
    const bool test = (choice & 16) != 0, deep = (choice & 32) != 0;
    size_t first;
    uint8_t *images = fuzz_take(&input, fuzz_word(&input), &first);
    char name[64];
    snprintf(name, sizeof name, "%s-images-idx%d-ubyte", test ? "t10k" : "train", deep ? 4 : 3);
    fuzz_clear();
    put(name, images_way, images, first);
    put(test ? "t10k-labels-idx1-ubyte" : "train-labels-idx1-ubyte", labels_way, input.data,
        input.size);
    fuzz_use_dataset(fuzz_path(""));
    fuzz_clear();
    free(images);
    return 0;
}
