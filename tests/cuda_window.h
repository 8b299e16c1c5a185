/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Memory of a GPU that repeats its beginning: made, and looked through, on the GPU. Valid C and
 * valid CUDA. */
#ifndef RG_TESTS_CUDA_WINDOW_H
#define RG_TESTS_CUDA_WINDOW_H

#include <cuda_runtime_api.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Makes element i < count equal to element i % window, and waits. */
cudaError_t window_repeat(uint16_t *data, int64_t window, int64_t count);

/* How many of `count` elements are not equal to element i % window. */
cudaError_t window_differences(const uint16_t *data, int64_t window, int64_t count,
                               unsigned long long *differences);

#ifdef __cplusplus
}
#endif

#endif
