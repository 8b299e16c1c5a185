/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* An allocator that fails at its n-th call and knows what was not given back. */
#ifndef RG_TESTS_FAILING_ALLOCATOR_H
#define RG_TESTS_FAILING_ALLOCATOR_H

#include "tests/test.h"

typedef struct failing {
    int64_t calls_left; /* the call that brings this to 0 fails; 0: none does */
    int64_t blocks;     /* taken and not given back */
    size_t bytes, peak; /* in them, and the most there were */
} failing;

void *failing_allocate(void *context, size_t size, size_t alignment);
void failing_release(void *context, void *pointer, size_t size);

/* A CPU device with one thread over it. */
rg_device *failing_device(failing *f);

/* Calls `run` with an allocation failing at the first call, the second, … until none fails. */
void fail_at_every_call(rg_status (*run)(rg_device *device));

#endif
