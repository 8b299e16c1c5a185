/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* An image as a data URI, for the src of an img element. */
#ifndef RG_TRAIN_PNG_URI_H
#define RG_TRAIN_PNG_URI_H

#include "train/page.h"

/* Adds "data:image/png;base64,…". `pixels` are (height, width, channels); 1 and 2 channels are
 * grey, more are red, green, blue. Larger images are averaged down until no side is over `most`. */
rg_status rg_png_uri(rg_page *page, const uint8_t *pixels, int32_t height, int32_t width,
                     int32_t channels, int32_t most);

#endif
