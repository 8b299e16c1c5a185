/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* An allocator that fails at its n-th call and knows what was not given back. */
#ifndef RG_TESTS_FAILING_ALLOCATOR_H
#define RG_TESTS_FAILING_ALLOCATOR_H

#include "tests/test.h"

#include <stdlib.h>

typedef struct failing {
    int64_t calls_left; /* the call that brings this to 0 fails; 0: none does */
    int64_t blocks;     /* taken and not given back */
    size_t bytes, peak; /* in them, and the most there were */
} failing;

static inline void *failing_allocate(void *context, size_t size, size_t alignment)
{
    failing *f = context;
    void *pointer = NULL;
    if (f->calls_left > 0 && --f->calls_left == 0)
        return NULL;
    if (posix_memalign(&pointer, alignment < sizeof(void *) ? sizeof(void *) : alignment, size))
        return NULL;
    f->blocks++;
    f->bytes += size;
    f->peak = f->bytes > f->peak ? f->bytes : f->peak;
    return pointer;
}

static inline void failing_release(void *context, void *pointer, size_t size)
{
    failing *f = context;
    f->blocks--;
    f->bytes -= size;
    free(pointer);
}

/* A CPU device with one thread over it. */
static inline rg_device *failing_device(failing *f)
{
    const rg_allocator allocator = { failing_allocate, failing_release, f };
    rg_device_options options = rg_device_options_default();
    options.allocator = &allocator;
    options.threads = 1;
    rg_device *device = NULL;
    EXPECT_OK(rg_device_create("cpu", &options, &device));
    return device;
}

/* Calls `run` with an allocation failing at the first call, the second, … until none fails. */
static inline void fail_at_every_call(rg_status (*run)(rg_device *device))
{
    failing f = { 0 };
    rg_device *device = failing_device(&f);
    for (int64_t n = 1; n < 1000; n++) {
        const int64_t blocks = f.blocks;
        const size_t bytes = f.bytes;
        f.calls_left = n;
        const rg_status status = run(device);
        EXPECT(f.blocks == blocks && f.bytes == bytes);
        if (f.calls_left > 0) { /* it was not reached */
            EXPECT(status == RG_OK && n > 1);
            break;
        }
        EXPECT_FAILS(status, RG_OUT_OF_MEMORY, "out of memory");
    }
    f.calls_left = 0;
    rg_device_destroy(device);
    EXPECT(f.blocks == 0 && f.bytes == 0);
}

#endif
