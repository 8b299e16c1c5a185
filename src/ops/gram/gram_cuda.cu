/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Gram matrices on a GPU: products, see dense_cuda.cu. */
#include "ops/gram/gram.h"
#include "backend/cuda/kernel.cuh"

RG_CUDA_TABLE(gram, RG_GRAM_KERNELS) = {};
