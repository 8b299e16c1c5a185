/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* JPEG and WebP: a byte of choices, then one image in memory, decoded as it is or resized; or a
 * data set of two classes with two images each, behind their lengths. */
#include "fuzz_data.h"

#include "train/image_file.h"

#include <sys/stat.h>

enum { MOST_PIXELS = 1 << 20, SIDE = 9 };

static void decode(const uint8_t *data, size_t size, const rg_image_form *form)
{
    rg_decoder decoder = { 0 };
    unsigned char *pixels = malloc((size_t)(form->size.height * form->size.width * form->channels));
    FUZZ_CHECK(pixels != NULL);
    (void)FUZZ_TRY(rg_image_decode(&decoder, data, size, form, pixels));
    free(pixels);
    rg_decoder_release(&decoder);
}

static void read_one(const uint8_t *data, size_t size, bool resize)
{
    rg_image_header header = { 0 };
    bool more;
    for (size_t part = 0; part < size; part += size / 4 + 1)
        (void)FUZZ_TRY(rg_image_read_header(data, part, size, &header, &more));
    if (!FUZZ_TRY(rg_image_read_header(data, size, size, &header, &more)))
        return;
    FUZZ_CHECK(header.size.height >= 1 && header.size.width >= 1);
    (void)FUZZ_TRY(rg_image_check_end(data, size));
    if (size > 2 * RG_IMAGE_TAIL)
        (void)rg_image_has_end(data, size / 2, data + size - RG_IMAGE_TAIL, size);
    if (header.size.height > MOST_PIXELS / header.size.width)
        return;
    for (int channels = 1; channels <= 3; channels += 2) {
        rg_image_form form = { .size = header.size, .channels = channels, .resize = resize };
        if (resize)
            form.size = (rg_extent){ SIDE, SIDE + 4 };
        decode(data, size, &form);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const names[] = { "a/0.jpg", "a/1.JPEG", "b/2.webp", "b/3.png" };
    fuzz_input input = { data, size };
    const uint8_t choice = fuzz_byte(&input);
    size_t taken;
    if ((choice & 2) == 0) {
        uint8_t *image = fuzz_take(&input, input.size, &taken);
        read_one(image, taken, (choice & 1) != 0);
        free(image);
        return 0;
    }
    fuzz_clear();
    mkdir(fuzz_path("a"), 0777);
    mkdir(fuzz_path("b"), 0777);
    for (int i = 0; i < 4; i++) {
        uint8_t *image = fuzz_take(&input, fuzz_word(&input), &taken);
        fuzz_file(names[i], image, taken);
        free(image);
    }
    fuzz_use_dataset(fuzz_path(""));
    fuzz_clear();
    return 0;
}
