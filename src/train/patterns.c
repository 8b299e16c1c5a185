/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Lists of patterns in one text. */
#include "train/patterns.h"

#include "core/number.h"

#include <fnmatch.h>
#include <math.h>
#include <stdio.h>

enum { ENTRY = 512 }; /* the longest entry with its end */

/* Copies the next entry and moves *list past it; false at the end. */
static bool next_entry(const char **list, char entry[ENTRY])
{
    if (*list == NULL || **list == 0)
        return false;
    const size_t length = strcspn(*list, ",");
    snprintf(entry, ENTRY, "%.*s", (int)(length < ENTRY ? length : ENTRY - 1), *list);
    *list += length + ((*list)[length] == ',');
    return true;
}

bool rg_patterns_match(const char *list, const char *name)
{
    char entry[ENTRY];
    while (next_entry(&list, entry)) {
        if (fnmatch(entry, name, 0) == 0)
            return true;
    }
    return false;
}

rg_status rg_patterns_check(const char *what, const char *list)
{
    char entry[ENTRY];
    const size_t length = strlen(list);
    RG_CHECK(length == 0 || (list[0] != ',' && list[length - 1] != ',' &&
                             strstr(list, ",,") == NULL && strpbrk(list, "\r\n") == NULL),
             RG_INVALID_ARGUMENT, "%s has an empty pattern: '%.80s'", what, list);
    for (const char *at = list; next_entry(&at, entry);)
        RG_CHECK(strlen(entry) < ENTRY - 1, RG_INVALID_ARGUMENT,
                 "%s has a pattern of more than %d "
                 "characters",
                 what, ENTRY - 2);
    return RG_OK;
}

/* Splits "pattern=rate" at its last '='. */
static bool split_rate(char entry[ENTRY], double *rate)
{
    char *equals = strrchr(entry, '=');
    if (equals == NULL || equals == entry)
        return false;
    *equals = 0;
    return rg_number_parse(equals + 1, rate) && isfinite(*rate) && *rate >= 0;
}

rg_status rg_rates_check(const char *list)
{
    char entry[ENTRY];
    RG_TRY(rg_patterns_check("rates", list));
    int32_t count = 0;
    for (const char *at = list; next_entry(&at, entry); count++) {
        char shown[64];
        double rate;
        snprintf(shown, sizeof shown, "%.60s", entry);
        RG_CHECK(split_rate(entry, &rate), RG_INVALID_ARGUMENT,
                 "rates must be PATTERN=NUMBER, the number 0 or more, not '%s'", shown);
    }
    RG_CHECK(count <= RG_MOST_RATES, RG_INVALID_ARGUMENT, "rates has %d entries; %d is the most",
             count, RG_MOST_RATES);
    return RG_OK;
}

int32_t rg_rates_find(const char *list, const char *name, double *rate)
{
    char entry[ENTRY];
    int32_t found = 0;
    for (int32_t index = 1; next_entry(&list, entry); index++) {
        double value;
        if (split_rate(entry, &value) && fnmatch(entry, name, 0) == 0) {
            found = index;
            *rate = value;
        }
    }
    return found;
}

int32_t rg_rates_count(const char *list)
{
    char entry[ENTRY];
    int32_t count = 0;
    while (next_entry(&list, entry))
        count++;
    return count;
}

double rg_rates_at(const char *list, int32_t index)
{
    char entry[ENTRY];
    double rate = 0;
    while (index-- > 0 && next_entry(&list, entry)) {
        if (index == 0 && !split_rate(entry, &rate))
            rate = 0;
    }
    return rate;
}

static rg_status check_entry(const rg_network *network, const char *what, const char *pattern)
{
    for (size_t i = 0; i < network->parameters_count; i++) {
        if (fnmatch(pattern, network->parameters[i].value->name, 0) == 0)
            return RG_OK;
    }
    return rg_fail(RG_INVALID_ARGUMENT,
                   "%s '%.80s' matches no parameter; the first of %zu is '%.80s'", what, pattern,
                   network->parameters_count,
                   network->parameters_count > 0 ? network->parameters[0].value->name : "");
}

rg_status rg_patterns_check_network(const rg_network *network, const char *freeze,
                                    const char *rates)
{
    char entry[ENTRY];
    double rate;
    while (next_entry(&freeze, entry))
        RG_TRY(check_entry(network, "freeze", entry));
    while (next_entry(&rates, entry)) {
        (void)split_rate(entry, &rate);
        RG_TRY(check_entry(network, "rates", entry));
    }
    return RG_OK;
}
