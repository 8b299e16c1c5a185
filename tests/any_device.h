/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Tests that are written for any device: they run on the CPU, and on a GPU where one is found. With
 * RG_TEST_DEVICES ("cpu", "cuda" or "cpu,cuda") they run on those, and one that is absent is a
 * failure. */
#ifndef RG_TESTS_ANY_DEVICE_H
#define RG_TESTS_ANY_DEVICE_H

#include "tests/api.h"

#include <stdio.h>
#include <stdlib.h>

typedef void device_test(rig *r);

/* A rig on the device of this name; false where there is none, with a line that says so. */
static inline bool rig_open_on(const char *name, bool required, rig *r)
{
    *r = (rig){ 0 };
    const rg_status status = rg_device_create(name, NULL, &r->device);
    if (!required && (status == RG_NO_DEVICE || status == RG_UNSUPPORTED)) {
        printf("skipped on %s: %s\n", name, rg_error_text());
        return false;
    }
    EXPECT_OK(status);
    if (status != RG_OK)
        return false;
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
    const char *wanted = getenv("RG_TEST_DEVICES");
    int devices = 0;
    for (size_t d = 0; d < sizeof names / sizeof names[0]; d++) {
        rig r;
        if (wanted != NULL && strstr(wanted, names[d]) == NULL)
            continue;
        devices++;
        if (!rig_open_on(names[d], wanted != NULL, &r))
            continue;
        const int passed = rg_passed, failed = rg_failed;
        for (size_t i = 0; i < count; i++)
            tests[i](&r);
        printf("%s: %zu tests, %d checks passed, %d failed\n", names[d], count, rg_passed - passed,
               rg_failed - failed);
        rig_close(&r);
    }
    EXPECT(devices > 0); /* a device that RG_TEST_DEVICES names */
}
#define RUN_ON_DEVICES(...)                               \
    run_on_devices((device_test *const[]){ __VA_ARGS__ }, \
                   sizeof((device_test *const[]){ __VA_ARGS__ }) / sizeof(device_test *))

#endif
