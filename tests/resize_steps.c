/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Resizes images for image_peer_test.py, which compares them with Pillow's. Input: lines "height
 * width channels new_height new_width", each followed by the pixels; or with height 0 and the bytes
 * of a file as width, followed by the file. Output: the pixels. */
#include "train/image_file.h"

#include <stdio.h>
#include <stdlib.h>

static rg_status make(rg_decoder *decoder, rg_extent of, int64_t channels,
                      const unsigned char *from, rg_extent size, unsigned char *to)
{
    const rg_image_form form = { .size = size, .channels = (int)channels, .resize = true };
    return of.height > 0 ? rg_resize_cover(&decoder->resizer, from, of, channels, to, size)
                         : rg_image_decode(decoder, from, (size_t)of.width, &form, to);
}

int main(void)
{
    rg_decoder decoder = { 0 };
    long long height, width, channels, rows, columns;
    while (scanf("%lld %lld %lld %lld %lld", &height, &width, &channels, &rows, &columns) == 5 &&
           getchar() == '\n') {
        const size_t size = (size_t)(height > 0 ? height * width * channels : width);
        const size_t result = (size_t)(rows * columns * channels);
        unsigned char *from = malloc(size), *to = malloc(result);
        if (from == NULL || to == NULL || fread(from, 1, size, stdin) != size ||
            make(&decoder, (rg_extent){ height, width }, channels, from,
                 (rg_extent){ rows, columns }, to) != RG_OK)
            return 1;
        fwrite(to, 1, result, stdout);
        free(from);
        free(to);
    }
    rg_decoder_release(&decoder);
    return 0;
}
