/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* PNG: a byte of choices, then one image in memory; or a data set of two classes, whose names and
 * images stand in the input, each behind its length; or a mask, or a data set of two images with
 * masks and names of classes. */
#include "fuzz_data.h"

#include "train/mask_image.h"
#include "train/png_image.h"

#include <sys/stat.h>

enum { MOST_PIXELS = 1 << 20 };

static void read_one(const uint8_t *data, size_t size)
{
    rg_png png;
    if (!FUZZ_TRY(rg_png_begin(&png, data, size)))
        return;
    FUZZ_CHECK(png.height >= 1 && png.width >= 1);
    if (png.height <= MOST_PIXELS / png.width) {
        for (int channels = 1; channels <= 3; channels += 2) {
            unsigned char *pixels = malloc((size_t)(png.height * png.width * channels));
            FUZZ_CHECK(pixels != NULL);
            (void)FUZZ_TRY(rg_png_pixels(&png, channels, pixels));
            free(pixels);
        }
    }
    rg_png_end(&png);
}

/* As it is, and resized. */
static void read_mask(const uint8_t *data, size_t size)
{
    enum { SIDE = 5 };
    rg_decoder decoder = { 0 };
    rg_mask_classes classes = { .largest = -1 };
    rg_mask_form form = { .size = { SIDE, SIDE + 4 } };
    rg_mask mask;
    int32_t small[SIDE * (SIDE + 4)];
    if (FUZZ_TRY(rg_mask_read_size(data, size, &mask.size)) &&
        mask.size.height <= MOST_PIXELS / mask.size.width &&
        FUZZ_TRY(rg_mask_read(&decoder, data, size, &mask))) {
        rg_mask_add_classes(&mask, &classes);
        FUZZ_CHECK(classes.largest < RG_DATASET_CLASSES);
        rg_mask_write(&mask, &form, small);
        for (int i = 0; i < SIDE * (SIDE + 4); i++)
            FUZZ_CHECK(small[i] >= RG_DATASET_IGNORED && small[i] <= classes.largest);
    }
    rg_decoder_release(&decoder);
}

static void use_masks(fuzz_input *input, bool repair)
{
    static const char *const names[] = { "images/a.png", "masks/a.png", "images/b.png",
                                         "masks/b.png", "classes.txt" };
    fuzz_clear();
    mkdir(fuzz_path("images"), 0777);
    mkdir(fuzz_path("masks"), 0777);
    for (int i = 0; i < 5; i++) {
        size_t taken;
        uint8_t *file = fuzz_take(input, fuzz_word(input), &taken);
        if (repair)
            fuzz_repair_png(file, taken);
        if (i < 4 || taken > 0)
            fuzz_file(names[i], file, taken);
        free(file);
    }
    fuzz_use_dataset(fuzz_path(""));
    fuzz_clear();
}

/* A folder's name may be any bytes but '/' and 0; one that begins with a dot is another folder. */
static void make_class(fuzz_input *input, const char *below, bool repair)
{
    char folder[64], name[96];
    size_t length, taken;
    char *text = (char *)fuzz_take(input, fuzz_byte(input) % 16, &length);
    for (size_t i = 0; i < length; i++)
        text[i] = text[i] == '/' || text[i] == 0 || (i == 0 && text[i] == '.') ? '_' : text[i];
    snprintf(folder, sizeof folder, "%s%.*s", below, length > 0 ? (int)length : 1,
             length > 0 ? text : "_");
    mkdir(fuzz_path(folder), 0777);
    for (int i = 0; i < 2; i++) {
        uint8_t *image = fuzz_take(input, fuzz_word(input), &taken);
        if (repair)
            fuzz_repair_png(image, taken);
        snprintf(name, sizeof name, "%s/%d.png", folder, i);
        struct stat info;
        if (stat(fuzz_path(folder), &info) == 0 && S_ISDIR(info.st_mode))
            fuzz_file(name, image, taken);
        free(image);
    }
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_input input = { data, size };
    const uint8_t choice = fuzz_byte(&input);
    const bool repair = (choice & 1) != 0;
    if ((choice & 10) == 10) {
        use_masks(&input, repair);
        return 0;
    }
    if ((choice & 2) != 0) {
        const char *below = (choice & 4) != 0 ? "train/" : "";
        fuzz_clear();
        mkdir(fuzz_path("train"), 0777);
        make_class(&input, below, repair);
        make_class(&input, below, repair);
        fuzz_use_dataset(fuzz_path(""));
        fuzz_clear();
        return 0;
    }
    size_t taken;
    uint8_t *image = fuzz_take(&input, input.size, &taken);
    if (repair)
        fuzz_repair_png(image, taken);
    if ((choice & 8) != 0)
        read_mask(image, taken);
    else
        read_one(image, taken);
    free(image);
    return 0;
}
