/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Strategies: the first that accepts, a forced one, notes, and the names of an op. */
#include "api.h"
#include "ops/ops.h"
#include "runtime/objects.h"
#include "runtime/strategy.h"

#include <pthread.h>

/* ---- choosing ---- */

/* `request` is a number; strategies of even and of all numbers record who they are. */
static const char *recorded;

static bool is_even(const rg_call *call, const void *request)
{
    (void)call;
    return *(const int *)request % 2 == 0;
}

static bool is_number(const rg_call *call, const void *request)
{
    (void)call, (void)request;
    return true;
}

static rg_status record_even(rg_call *call, const void *request)
{
    (void)call, (void)request;
    recorded = "even";
    return RG_OK;
}

static rg_status record_last(rg_call *call, const void *request)
{
    (void)call, (void)request;
    recorded = "last";
    return rg_fail(RG_UNSUPPORTED, "the last one refuses");
}

static const rg_strategy even = { "even", is_even, record_even };
static const rg_strategy last = { "last", is_number, record_last };
static const rg_strategy *const list[] = { &even, &last, NULL };

static void test_order(void)
{
    rig r = rig_open(1);
    rg_call call = { .commands = r.commands };
    rg_choices *choices = rg_device_choices(r.device);
    const char *names[RG_CHOICES_NOTED];
    const int two = 2, three = 3;
    EXPECT_OK(rg_strategy_run(&call, list, &two));
    EXPECT(strcmp(recorded, "even") == 0);
    EXPECT_FAILS(rg_strategy_run(&call, list, &three), RG_UNSUPPORTED, "the last one");
    EXPECT_OK(rg_strategy_run(&call, list, &two));
    EXPECT(rg_choices_take(choices, names) == 2);
    EXPECT(strcmp(names[0], "even") == 0 && strcmp(names[1], "last") == 0);
    EXPECT(rg_choices_take(choices, names) == 0);

    rg_choices_force(choices, "last");
    EXPECT_FAILS(rg_strategy_run(&call, list, &two), RG_UNSUPPORTED, "the last one");
    rg_choices_force(choices, "even"); /* which does not accept 3 */
    EXPECT_FAILS(rg_strategy_run(&call, list, &three), RG_UNSUPPORTED, "the last one");
    rg_choices_force(choices, "of another list");
    EXPECT_OK(rg_strategy_run(&call, list, &two));
    rg_choices_force(choices, NULL);
    EXPECT_OK(rg_strategy_run(&call, list, &two));
    rig_close(&r);
}

/* ---- notes of many threads ---- */

enum { THREADS = 4, NAMES = 6 };

static void *note_all(void *context)
{
    static const char *const names[NAMES] = { "a", "b", "c", "d", "e", "f" };
    for (int i = 0; i < 1000 * NAMES; i++)
        rg_choices_note(context, names[i % NAMES]);
    return NULL;
}

static void test_threads(void)
{
    rg_choices choices = { .forced = NULL };
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        EXPECT(pthread_create(&threads[i], NULL, note_all, &choices) == 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    const char *names[RG_CHOICES_NOTED];
    EXPECT(rg_choices_take(&choices, names) == NAMES);
    rg_choices_note(NULL, "nobody asks");
    EXPECT(!rg_choices_forces(NULL, "even"));
}

/* ---- ops ---- */

/* The names of an op differ. */
static void test_ops(void)
{
    int32_t listed = 0;
    for (int k = 0; rg_ops[k] != NULL; k++) {
        const char *names[RG_MAX_STRATEGIES];
        const int32_t count = rg_strategy_names(rg_ops[k], names);
        listed += count;
        EXPECT(count < RG_MAX_STRATEGIES);
        for (int32_t i = 0; i < count; i++) {
            for (int32_t j = 0; j < i; j++)
                EXPECT(strcmp(names[i], names[j]) != 0);
        }
    }
    EXPECT(listed > 0);
}

int main(void)
{
    test_order();
    test_threads();
    test_ops();
    return rg_test_report();
}
