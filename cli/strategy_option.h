/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The option --strategy of `check` and `bench`. */
#ifndef RG_CLI_STRATEGY_OPTION_H
#define RG_CLI_STRATEGY_OPTION_H

#include "cli/cases.h"
#include "runtime/strategy.h"

#define RG_STRATEGY_TEXT \
    "use only this strategy where an op has it and it accepts the call; help lists them"

bool rg_op_has_strategy(const rg_op *op, const char *name);

/* One of the op's strategies, picked by `number`; NULL where it has none. */
const char *rg_op_strategy(const rg_op *op, uint64_t number);

/* Handles "help" and names that no op of the arguments has: prints, and returns the exit status.
 * Returns -1 where `name` is NULL or the name of a strategy. */
int rg_strategy_check(const char *name, int ops, char **argv);

/* Empties the notes of the device; returns whether `name` was among them. */
bool rg_strategy_ran(rg_device *device, const char *name);

#endif
