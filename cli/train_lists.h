/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Options of `train` that may be given several times. */
#ifndef RG_CLI_TRAIN_LISTS_H
#define RG_CLI_TRAIN_LISTS_H

/* What was given, with commas between; NULL: nothing. */
typedef struct rg_train_lists {
    char *freeze; /* of --freeze PATTERN */
    char *rates;  /* of --rate PATTERN=X; --rate X is another option */
} rg_train_lists;

/* Takes them out of argv; returns how many arguments are left, or -1 after printing what is wrong.
 */
int rg_train_lists_take(rg_train_lists *lists, int argc, char **argv);
void rg_train_lists_release(rg_train_lists *lists);

#endif
