/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Transposed convolution on a GPU: see conv. */
#include "ops/conv_transpose/conv_transpose.h"
#include "backend/cuda/kernel.cuh"

RG_CUDA_TABLE(conv_transpose, RG_CONV_TRANSPOSE_KERNELS) = { { { nullptr } } };
