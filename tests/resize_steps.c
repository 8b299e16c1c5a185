/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Resizes images for image_peer_test.py, which compares them with Pillow's. Input: lines "height
 * width channels new_height new_width", each followed by the pixels. Output: the pixels. */
#include "train/resize.h"

#include <stdio.h>
#include <stdlib.h>

int main(void)
{
    rg_resizer resizer = { 0 };
    long long height, width, channels, rows, columns;
    while (scanf("%lld %lld %lld %lld %lld", &height, &width, &channels, &rows, &columns) == 5 &&
           getchar() == '\n') {
        const size_t size = (size_t)(height * width * channels);
        const size_t result = (size_t)(rows * columns * channels);
        unsigned char *from = malloc(size), *to = malloc(result);
        if (from == NULL || to == NULL || fread(from, 1, size, stdin) != size ||
            rg_resize_cover(&resizer, from, (rg_extent){ height, width }, channels, to,
                            (rg_extent){ rows, columns }) != RG_OK)
            return 1;
        fwrite(to, 1, result, stdout);
        free(from);
        free(to);
    }
    rg_resizer_release(&resizer);
    return 0;
}
