/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* What the reader and the writer of safetensors share. */
#ifndef RG_FILES_SAFETENSORS_FORMAT_H
#define RG_FILES_SAFETENSORS_FORMAT_H

#include "core/memory.h"

#include <retrograde/safetensors.h>

/* The longest header that is read and written. */
enum { RG_SAFETENSORS_HEADER = 32 << 20 };

/* The key of the texts among the names of the tensors. */
#define RG_SAFETENSORS_METADATA "__metadata__"

/* The public functions, with memory from an allocator. */
rg_status rg_safetensors_open_with(const rg_allocator *allocator, const char *path,
                                   rg_safetensors **file);
rg_status rg_safetensors_write_with(const rg_allocator *allocator, const char *path,
                                    const rg_safetensors_entry entries[], size_t count,
                                    const rg_safetensors_text metadata[], size_t texts);

#endif
