/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Strategies: the ways to record one kernel. Each is a file of its op that exports an rg_strategy;
 * an ordered list of them decides, and the first that accepts and prefers a call wins.
 *
 * A harness can force a strategy by name on a device and ask which ones ran there: see
 * backend/choices.h. GPU strategies that are chosen at launch use the same names and notes, through
 * rg_cuda_target. */
#ifndef RG_RUNTIME_STRATEGY_H
#define RG_RUNTIME_STRATEGY_H

#include "backend/choices.h"
#include "runtime/op.h"

/* `request` is the op's own struct, the same for all strategies of a list. What a strategy can run
 * and where it is worth running are two questions, so that a check can force it on all it can. */
struct rg_strategy {
    const char *name;
    bool (*accepts)(const rg_call *call, const void *request); /* whether it can run this */
    rg_status (*record)(rg_call *call, const void *request);
    bool (*prefers)(const rg_call *call, const void *request); /* whether it is the fastest of those
                                              after it in the list; NULL: wherever
                                              it accepts */
};

/* An op lists its strategies once, in the order in which they are asked:
 *      #define RG_CONV_STRATEGIES(STRATEGY) \
 *          STRATEGY(rg_conv_grouped)        \
 *          STRATEGY(rg_conv_panels)
 * RG_CONV_STRATEGIES(RG_STRATEGY_DECLARE) declares them, and
 * { RG_CONV_STRATEGIES(RG_STRATEGY_ENTRY) NULL } is the list. */
#define RG_STRATEGY_DECLARE(strategy) extern const rg_strategy strategy;
#define RG_STRATEGY_ENTRY(strategy)   &strategy,

/* Records by the forced strategy where `list` has it and it accepts, else by the first that accepts
 * and prefers the request; notes its name. The list ends with NULL, and one of it takes all. */
rg_status rg_strategy_run(rg_call *call, const rg_strategy *const list[], const void *request);

/* What is forced and noted on a device. */
rg_choices *rg_device_choices(rg_device *device);

/* The names of all strategies of an op, each once, those of GPUs too; returns how many. */
enum { RG_MAX_STRATEGIES = 32 };
int32_t rg_strategy_names(const rg_op *op, const char *names[RG_MAX_STRATEGIES]);

#endif
