/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Bytes as text: three of them are four characters. */
#ifndef RG_TRAIN_BASE64_H
#define RG_TRAIN_BASE64_H

#include "core/status.h"

/* The characters of three bytes, or of fewer at the end, `rest` from here on. */
void rg_base64_group(const uint8_t *bytes, size_t rest, char four[4]);

/* `prefix`, followed by a text of all bytes; to be freed. */
rg_status rg_base64_write(const char *prefix, const void *data, size_t size, char **text);

/* The bytes of a text, to be freed; RG_MALFORMED if it is none. */
rg_status rg_base64_read(const char *text, uint8_t **data, size_t *size);

#endif
