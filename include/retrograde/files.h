/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/** @file
 *  Kernels as JSON text, tensors as NPY files. Readers are written for hostile input: whatever a
 * file holds, it gets a status and a sentence. */
#ifndef RETROGRADE_FILES_H
#define RETROGRADE_FILES_H

#include <retrograde/kernel.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Writes the kernel as one JSON object, and a 0 byte, into `text`; cut if it does not fit. Returns
 * its whole length without the 0 byte. The device is not part of it:
 *
 *      {"retrograde": 1, "op": "softmax", "label": "", "desc": {"kind": "log", "axis": 1,
 * "flatten": false}} */
RG_API size_t rg_kernel_to_json(const rg_kernel *kernel, char *text, size_t capacity);

/** Makes the kernel that `length` bytes of JSON describe, on `device`. Fields left out have their
 * default; unknown ones are refused. */
RG_API rg_status rg_kernel_from_json(rg_device *device, const char *text, size_t length,
                                     rg_kernel **kernel);

/** The same to and from a file. A file is written whole or not at all. */
RG_API rg_status rg_kernel_save(const rg_kernel *kernel, const char *path);
RG_API rg_status rg_kernel_load(rg_device *device, const char *path, rg_kernel **kernel);

/** Reads an NPY file (versions 1 to 3; f2 f4 f8 u1 i4 i8, either byte order, C or Fortran order)
 * into a new tensor. */
RG_API rg_status rg_tensor_load_npy(rg_device *device, const char *path, rg_tensor **tensor);

/** Writes a tensor as NPY, dense, in C order. bf16, which NPY lacks, is written as f4. The caller
 * has waited for the commands that write it. The file is written whole or not at all. */
RG_API rg_status rg_tensor_save_npy(const rg_tensor *tensor, const char *path);

#ifdef __cplusplus
}
#endif

#endif
