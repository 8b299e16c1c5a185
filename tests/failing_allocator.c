/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The failing allocator: see failing_allocator.h. */
#include "tests/failing_allocator.h"

#include <stdlib.h>

void *failing_allocate(void *context, size_t size, size_t alignment)
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

void failing_release(void *context, void *pointer, size_t size)
{
    failing *f = context;
    f->blocks--;
    f->bytes -= size;
    free(pointer);
}

rg_device *failing_device(failing *f)
{
    const rg_allocator allocator = { failing_allocate, failing_release, f };
    rg_device_options options = rg_device_options_default();
    options.allocator = &allocator;
    options.threads = 1;
    rg_device *device = NULL;
    EXPECT_OK(rg_device_create("cpu", &options, &device));
    return device;
}

void fail_at_every_call(rg_status (*run)(rg_device *device))
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
