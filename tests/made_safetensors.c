/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Safetensors files made by hand: see made_safetensors.h. */
#include "tests/made_safetensors.h"

made_file make_file(const char *header, size_t size)
{
    made_file made = { .header = (strlen(header) + 7) / 8 * 8 };
    for (int i = 0; i < 8; i++)
        made.bytes[i] = (unsigned char)(made.header >> 8 * i);
    memset(made.bytes + 8, ' ', made.header);
    memcpy(made.bytes + 8, header, strlen(header));
    for (size_t i = 0; i < size; i++)
        made.bytes[8 + made.header + i] = (unsigned char)i;
    made.size = 8 + made.header + size;
    return made;
}
