/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/** @file
 *  Safetensors: many named tensors and some text in one file, as weights and checkpoints are kept.
 *
 *      8 bytes: the length of the header | header: JSON | elements, without gaps
 *
 *  A reader opens a file, queries its contents, and reads tensors. Opening reads and
 *  checks the header alone: lengths, names, dtypes, shapes, and that the tensors fill the rest of
 *  the file without overlap or gap. Invalid content gets a status and an error text, as in
 *  files.h; memory use depends on the size of the header, 32 MiB at most.
 *
 *  A writer writes the file completely or not at all: if it fails, or the process is killed at any
 *  moment, the previous file is unchanged. */
#ifndef RETROGRADE_SAFETENSORS_H
#define RETROGRADE_SAFETENSORS_H

#include <retrograde/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- reading ---- */

/** An open file. It is immutable and may be used by several threads at once. */
typedef struct rg_safetensors rg_safetensors;

/** Opens a regular file and checks its header. On failure *file is NULL: RG_IO if it cannot be
 *  read, RG_MALFORMED if it is malformed. */
RG_API rg_status rg_safetensors_open(const char *path, rg_safetensors **file);

/** Closes the file. Names and texts from it become invalid. NULL is allowed. */
RG_API void rg_safetensors_close(rg_safetensors *file);

/** The number of tensors; they are numbered from 0, in the order of the header. */
RG_API size_t rg_safetensors_count(const rg_safetensors *file);

/** The name of tensor `index`, owned by the file; NULL if there is none. */
RG_API const char *rg_safetensors_name(const rg_safetensors *file, size_t index);

/** Its dtype as the file has it, "F32" or "BOOL", owned by the file; NULL if there is none. */
RG_API const char *rg_safetensors_dtype(const rg_safetensors *file, size_t index);

/** The bytes of its elements; 0 if there is none. */
RG_API size_t rg_safetensors_bytes(const rg_safetensors *file, size_t index);

/** The index of the tensor of this name. False, with *index as it was, if there is none. */
RG_API bool rg_safetensors_find(const rg_safetensors *file, const char *name, size_t *index);

/** The dense description of tensor `index`. F32, F64, F16, BF16, U8, I32 and I64 of up to 8
 *  dimensions can be read; RG_UNSUPPORTED for all others, here and in the functions below. */
RG_API rg_status rg_safetensors_desc(const rg_safetensors *file, size_t index,
                                     rg_tensor_desc *desc);

/** Reads its elements, in row-major order, to `data`; `bytes` must be their exact size. */
RG_API rg_status rg_safetensors_read(const rg_safetensors *file, size_t index, void *data,
                                     size_t bytes);

/** Reads its elements into a tensor of the same dtype and shape, of any strides, on any device.
 *  Does not wait: see rg_tensor_write. After a failure its elements are undefined. */
RG_API rg_status rg_safetensors_read_tensor(const rg_safetensors *file, size_t index,
                                            rg_tensor *tensor);

/** Reads it into a new dense tensor. On failure *tensor is NULL. */
RG_API rg_status rg_safetensors_load(const rg_safetensors *file, size_t index, rg_device *device,
                                     rg_tensor **tensor);

/** The number of texts in the header. */
RG_API size_t rg_safetensors_metadata_count(const rg_safetensors *file);

/** The key of text `index`, owned by the file; NULL if there is none. */
RG_API const char *rg_safetensors_metadata_key(const rg_safetensors *file, size_t index);

/** The text of this key, owned by the file; NULL if there is none. */
RG_API const char *rg_safetensors_metadata(const rg_safetensors *file, const char *key);

/* ---- writing ---- */

/** A tensor to be written: `tensor`, or where that is NULL memory of the host. */
typedef struct rg_safetensors_entry {
    const char *name;        /**< UTF-8, no other entry has it, not "__metadata__" */
    const rg_tensor *tensor; /**< on any device, of any strides; not a temporary */
    const void *data;        /**< element (0, …, 0) */
    rg_tensor_desc desc;     /**< of `data`, of any strides */
} rg_safetensors_entry;

/** A text to be written. */
typedef struct rg_safetensors_text {
    const char *key;   /**< UTF-8, no other text has it */
    const char *value; /**< UTF-8 */
} rg_safetensors_text;

/** Writes `count` tensors and `texts` texts to a file. Names are in the given order; elements are
 *  dense, those of 8 bytes first, then those of 4, 2 and 1, so that all are aligned. The caller has
 *  waited for the commands that write the tensors. RG_IO if the file cannot be written. */
RG_API rg_status rg_safetensors_write(const char *path, const rg_safetensors_entry entries[],
                                      size_t count, const rg_safetensors_text metadata[],
                                      size_t texts);

#ifdef __cplusplus
}
#endif

#endif
