/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Transposed convolution has no kernels of its own: those of conv do its work, with both sides
 * exchanged. Valid C and valid CUDA. */
#ifndef RG_OPS_CONV_TRANSPOSE_H
#define RG_OPS_CONV_TRANSPOSE_H

enum { RG_CONV_TRANSPOSE_KERNELS = 1 }; /* a row without any */

#endif
