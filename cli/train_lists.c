/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Options of `train` that may be given several times. */
#include "cli/train_lists.h"

#include "cli/arguments.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The value of option `name` at argv[*i], which moves to it; NULL: this is another option, or it
 * has no value. */
static const char *value_of(const char *name, int argc, char **argv, int *i)
{
    const size_t length = strlen(name);
    if (strncmp(argv[*i], name, length) != 0)
        return NULL;
    if (argv[*i][length] == '=')
        return argv[*i] + length + 1;
    return argv[*i][length] == 0 && *i + 1 < argc ? argv[++*i] : NULL;
}

static int add(char **list, const char *value)
{
    char *longer;
    if (asprintf(&longer, "%s%s%s", *list != NULL ? *list : "", *list != NULL ? "," : "", value) <
        0)
        return -1;
    free(*list);
    *list = longer;
    return 0;
}

int rg_train_lists_take(rg_train_lists *lists, int argc, char **argv)
{
    int left = 0;
    for (int i = 0; i < argc; i++) {
        int at = i;
        const char *freeze = value_of("--freeze", argc, argv, &at);
        const char *rate = freeze == NULL ? value_of("--rate", argc, argv, &at) : NULL;
        if (rate != NULL && strchr(rate, '=') == NULL)
            rate = NULL; /* the rate of all others */
        if (freeze == NULL && rate == NULL) {
            argv[left++] = argv[i];
            continue;
        }
        i = at;
        if (freeze != NULL && freeze[0] == 0) {
            rg_wrong("--freeze needs a pattern of parameter names, not an empty text");
            return -1;
        }
        if (add(freeze != NULL ? &lists->freeze : &lists->rates, freeze != NULL ? freeze : rate) !=
            0) {
            rg_wrong("out of memory for the options");
            return -1;
        }
    }
    return left;
}

void rg_train_lists_release(rg_train_lists *lists)
{
    free(lists->freeze);
    free(lists->rates);
    *lists = (rg_train_lists){ 0 };
}
