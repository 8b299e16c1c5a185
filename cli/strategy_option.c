/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The option --strategy: names of ops' strategies, and whether one has run. */
#include "cli/strategy_option.h"

#include <stdio.h>

bool rg_op_has_strategy(const rg_op *op, const char *name)
{
    const char *names[RG_MAX_STRATEGIES];
    const int32_t count = rg_strategy_names(op, names);
    for (int32_t i = 0; i < count; i++) {
        if (strcmp(names[i], name) == 0)
            return true;
    }
    return false;
}

const char *rg_op_strategy(const rg_op *op, uint64_t number)
{
    const char *names[RG_MAX_STRATEGIES];
    const int32_t count = rg_strategy_names(op, names);
    return count > 0 ? names[number % (uint64_t)count] : NULL;
}

/* "conv: depthwise, any" for each op that has any, with `between` them. */
static void print_names(FILE *to, const char *between, int ops, char **argv)
{
    bool any = false;
    const rg_op_test *test;
    for (int k = 0; (test = rg_op_test_at(ops, argv, k)) != NULL; k++) {
        const char *names[RG_MAX_STRATEGIES];
        const int32_t count = rg_strategy_names(test->op, names);
        for (int32_t i = 0; i < count; i++)
            fprintf(to, "%s%s%s%s", i == 0 && any ? between : "", i == 0 ? test->op->name : "",
                    i == 0 ? ": " : ", ", names[i]);
        any |= count > 0;
    }
    fputs(any ? "\n" : "there are none\n", to);
}

int rg_strategy_check(const char *name, int ops, char **argv)
{
    if (name == NULL)
        return -1;
    if (strcmp(name, "help") == 0) {
        print_names(stdout, "\n", ops, argv);
        return 0;
    }
    const rg_op_test *test;
    for (int k = 0; (test = rg_op_test_at(ops, argv, k)) != NULL; k++) {
        if (rg_op_has_strategy(test->op, name))
            return -1;
    }
    fprintf(stderr, "retrograde: unknown strategy '%s'; ", name);
    print_names(stderr, "; ", ops, argv);
    return 2;
}

bool rg_strategy_ran(rg_device *device, const char *name)
{
    const char *names[RG_CHOICES_NOTED];
    const int32_t count = rg_choices_take(rg_device_choices(device), names);
    bool ran = false;
    for (int32_t i = 0; i < count; i++)
        ran |= strcmp(names[i], name) == 0;
    return ran;
}
