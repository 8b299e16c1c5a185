/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Base64, as RFC 4648 has it, without line breaks. */
#include "train/base64.h"

#include <stdlib.h>
#include <string.h>

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void rg_base64_group(const uint8_t *bytes, size_t rest, char four[4])
{
    const uint32_t three = (uint32_t)bytes[0] << 16 | (rest > 1 ? (uint32_t)bytes[1] << 8 : 0) |
                           (rest > 2 ? bytes[2] : 0u);
    four[0] = digits[three >> 18];
    four[1] = digits[three >> 12 & 63];
    four[2] = '=';
    four[3] = '=';
    if (rest > 1)
        four[2] = digits[three >> 6 & 63];
    if (rest > 2)
        four[3] = digits[three & 63];
}

rg_status rg_base64_write(const char *prefix, const void *data, size_t size, char **text)
{
    const size_t before = strlen(prefix);
    *text = malloc(before + size / 3 * 4 + 5);
    RG_CHECK(*text != NULL, RG_OUT_OF_MEMORY, "out of memory for a text of %zu bytes", size);
    memcpy(*text, prefix, before);
    char *at = *text + before;
    for (size_t i = 0; i < size; i += 3, at += 4)
        rg_base64_group((const uint8_t *)data + i, size - i, at);
    *at = 0;
    return RG_OK;
}

/* The number of a character; -1: it is none. */
static int digit_of(char c)
{
    const char *found = c != 0 ? strchr(digits, c) : NULL;
    return found != NULL ? (int)(found - digits) : -1;
}

rg_status rg_base64_read(const char *text, uint8_t **data, size_t *size)
{
    const size_t length = strlen(text);
    size_t padding = 0;
    while (padding < 2 && padding < length && text[length - padding - 1] == '=')
        padding++;
    RG_CHECK(length % 4 == 0 && length > 0, RG_MALFORMED, "it is not Base64: it has %zu characters",
             length);
    *data = malloc(length / 4 * 3);
    RG_CHECK(*data != NULL, RG_OUT_OF_MEMORY, "out of memory for %zu characters", length);
    for (size_t i = 0; i < length; i += 4) {
        uint32_t three = 0;
        for (size_t k = 0; k < 4; k++) {
            const bool end = i + k >= length - padding;
            const int digit = end ? 0 : digit_of(text[i + k]);
            if (digit < 0) {
                free(*data);
                *data = NULL;
                return rg_fail(RG_MALFORMED, "it is not Base64: character %zu is invalid", i + k);
            }
            three = three << 6 | (uint32_t)digit;
        }
        uint8_t *to = *data + i / 4 * 3;
        to[0] = (uint8_t)(three >> 16);
        to[1] = (uint8_t)(three >> 8);
        to[2] = (uint8_t)three;
    }
    *size = length / 4 * 3 - padding;
    return RG_OK;
}
