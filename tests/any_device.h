/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Tests that are written for any device: they run on the CPU, and on a GPU where one is found. */
#ifndef RG_TESTS_ANY_DEVICE_H
#define RG_TESTS_ANY_DEVICE_H

#include "tests/api.h"

#include <stdio.h>
#include <stdlib.h>

typedef void device_test(rig *r);

/* A rig on the device of this name; false, with a line that says so, where there is none. */
static inline bool rig_open_on(const char *name, rig *r)
{
    *r = (rig){ 0 };
    const rg_status status = rg_device_create(name, NULL, &r->device);
    if (status == RG_NO_DEVICE || status == RG_UNSUPPORTED) {
        printf("skipped on %s: %s\n", name, rg_error_text());
        return false;
    }
    EXPECT_OK(status);
    EXPECT_OK(rg_queue_create(r->device, &r->queue));
    EXPECT_OK(rg_commands_create(r->queue, &r->commands));
    return true;
}

/* Whether the device is the CPU: results there have the same bits whatever the threads. */
static inline bool is_cpu(const rig *r)
{
    return strncmp(rg_device_name(r->device), "cpu", 3) == 0;
}

static inline void run_on_devices(device_test *const tests[], size_t count)
{
    static const char *const names[] = { "cpu", "cuda" };
    for (size_t d = 0; d < sizeof names / sizeof names[0]; d++) {
        rig r;
        if (!rig_open_on(names[d], &r))
            continue;
        for (size_t i = 0; i < count; i++)
            tests[i](&r);
        printf("%zu tests on %s\n", count, names[d]);
        rig_close(&r);
    }
}
#define RUN_ON_DEVICES(...)                               \
    run_on_devices((device_test *const[]){ __VA_ARGS__ }, \
                   sizeof((device_test *const[]){ __VA_ARGS__ }) / sizeof(device_test *))

#endif
