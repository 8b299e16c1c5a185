/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Patterns of parameter names: those that are frozen, and those with a rate of their own. */
#ifndef RG_TRAIN_PATTERNS_H
#define RG_TRAIN_PATTERNS_H

#include "train/model.h"

/* Whether a pattern of the list, separated by commas, matches; NULL and "" match nothing. */
bool rg_patterns_match(const char *list, const char *name);

/* RG_INVALID_ARGUMENT for a list with an empty pattern. `what` begins the sentence. */
rg_status rg_patterns_check(const char *what, const char *list);

/* Rates: "pattern=rate" separated by commas. The number of the last entry that matches, from 1, and
 * its rate; 0: none does. */
int32_t rg_rates_find(const char *list, const char *name, double *rate);
/* How many there are. */
int32_t rg_rates_count(const char *list);
/* The rate of an entry, from 1. */
double rg_rates_at(const char *list, int32_t index);
rg_status rg_rates_check(const char *list);
enum { RG_MOST_RATES = 32 };

/* RG_INVALID_ARGUMENT if a pattern of either list matches no parameter of the network. */
rg_status rg_patterns_check_network(const rg_network *network, const char *freeze,
                                    const char *rates);

#endif
