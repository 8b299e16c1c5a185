/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* What the tests of the CUDA backend share: a GPU or a reason to skip, bytes, a definition of
 * softmax, an allocator that knows what was not given back. */
#ifndef RG_TESTS_CUDA_RIG_H
#define RG_TESTS_CUDA_RIG_H

#include "api.h"

#include <cuda_runtime_api.h>
#include <math.h>
#include <stdatomic.h>

#define EXPECT_CUDA(call) EXPECT((call) == cudaSuccess)

/* ---- a GPU ---- */

enum { SKIPPED = 77 };

static inline int skip(const char *why)
{
    printf("skipped: %s\n", why);
    return SKIPPED;
}

/* Whether there is a GPU; if not, rg_error_text() says why. One that cannot be opened is no reason
 * to skip. */
static inline bool has_gpu(void)
{
    rg_device *device = NULL;
    const rg_status status = rg_device_create("cuda", NULL, &device);
    rg_device_destroy(device);
    EXPECT(status == RG_OK || status == RG_NO_DEVICE);
    return status != RG_NO_DEVICE;
}

static inline rig rig_open_named(const char *name, const rg_allocator *allocator)
{
    rig r = { 0 };
    rg_device_options options = rg_device_options_default();
    options.allocator = allocator;
    EXPECT_OK(rg_device_create(name, &options, &r.device));
    EXPECT_OK(rg_queue_create(r.device, &r.queue));
    EXPECT_OK(rg_commands_create(r.queue, &r.commands));
    return r;
}

static inline rig rig_open_cuda(void)
{
    return rig_open_named("cuda", NULL);
}

/* ---- values ---- */

static inline void draw_bytes(void *data, size_t bytes, uint64_t seed)
{
    for (size_t i = 0; i < bytes; i++)
        ((unsigned char *)data)[i] = (unsigned char)draw(&seed);
}

static inline void draw_floats(float *data, int64_t count, uint64_t seed)
{
    for (int64_t i = 0; i < count; i++)
        data[i] = (float)draw(&seed) / 0x1p29f - 2;
}

/* Whether every row of y is the softmax of that row of x. */
static inline bool is_softmax(const float *x, const float *y, int64_t rows, int64_t columns)
{
    int64_t wrong = 0;
    for (int64_t row = 0; row < rows; row++) {
        double sum = 0;
        for (int64_t i = 0; i < columns; i++)
            sum += exp((double)x[row * columns + i]);
        for (int64_t i = 0; i < columns; i++) {
            const double want = exp((double)x[row * columns + i]) / sum;
            wrong += !(fabs((double)y[row * columns + i] - want) <= 1e-5 * want);
        }
    }
    return wrong == 0;
}

/* Whether two tensors of one shape, on any devices, differ by no more than `tolerance` times the
 * largest element of `want`. */
static inline bool are_close(const rg_tensor *got, const rg_tensor *want, double tolerance)
{
    rg_tensor_desc desc = { 0 };
    EXPECT_OK(rg_tensor_get_desc(want, &desc));
    const size_t count = (size_t)count_of(want);
    double *values = calloc(2 * count + 1, sizeof *values), largest = 0;
    const rg_tensor *const tensors[] = { got, want };
    for (size_t t = 0; t < 2; t++) {
        char *elements = elements_of(tensors[t]);
        EXPECT_OK(rg_convert(values + t * count, RG_F64, elements, desc.dtype, count));
        free(elements);
    }
    for (size_t i = 0; i < count; i++)
        largest = fmax(largest, fabs(values[count + i]));
    int64_t wrong = 0;
    for (size_t i = 0; i < count; i++)
        wrong += !(fabs(values[i] - values[count + i]) <= tolerance * largest);
    free(values);
    return wrong == 0;
}

/* ---- views ---- */

static inline rg_tensor *sliced(rg_tensor *tensor, const int64_t start[], const int64_t length[],
                                const int64_t step[])
{
    rg_tensor *view = NULL;
    EXPECT_OK(rg_tensor_slice(tensor, start, length, step, &view));
    return view;
}

static inline rg_tensor *permuted(rg_tensor *tensor, const int32_t order[])
{
    rg_tensor *view = NULL;
    EXPECT_OK(rg_tensor_permute(tensor, order, &view));
    return view;
}

#define ORDER(...) ((const int32_t[]){ __VA_ARGS__ })

/* ---- host memory ---- */

/* Blocks that are taken and not given back; may be used from any thread. */
typedef _Atomic int64_t block_count;

static inline void *counted_allocate(void *context, size_t size, size_t alignment)
{
    void *pointer = NULL;
    if (posix_memalign(&pointer, alignment < sizeof(void *) ? sizeof(void *) : alignment, size))
        return NULL;
    atomic_fetch_add((block_count *)context, 1);
    return pointer;
}

static inline void counted_release(void *context, void *pointer, size_t size)
{
    (void)size;
    free(pointer);
    atomic_fetch_sub((block_count *)context, 1);
}

static inline rg_allocator counted_allocator(block_count *blocks)
{
    return (rg_allocator){ counted_allocate, counted_release, blocks };
}

/* For rg_tensor_wrap: counts how often memory was let go. */
static inline void count_release(void *context)
{
    atomic_fetch_add((_Atomic int *)context, 1);
}

#endif
