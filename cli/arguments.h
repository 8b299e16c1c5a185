/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Reading options: one table per command, from which parsing and --help follow. */
#ifndef RG_CLI_ARGUMENTS_H
#define RG_CLI_ARGUMENTS_H

#include <retrograde/base.h>

typedef enum rg_option_type {
    RG_OPTION_FLAG,  /* bool: --json */
    RG_OPTION_TEXT,  /* const char *: --device cpu, or --device=cpu */
    RG_OPTION_COUNT, /* int64_t, at least 0: --threads 2 */
    RG_OPTION_REAL,  /* double, at least 0: --seconds 0.5 */
} rg_option_type;

typedef struct rg_option {
    const char *name; /* without the dashes; NULL at the end of a table */
    rg_option_type type;
    void *value;          /* where it goes */
    const char *argument; /* what --help calls its value, "N" */
    const char *text;     /* one line for --help */
} rg_option;

/* Reads the options of the table from argv and moves the other arguments to its front, in order.
 * Returns how many are left, or -1 after printing what is wrong. `-o x` and a lone `-` are left.
 * "--" ends the options. An unknown option is an error unless `unknown` is given. `unknown`
 * receives the name (without dashes) and the value, NULL if the option is last or followed by
 * another one. It returns whether it took the value, or -1 after printing what is wrong. */
int rg_options_take(const rg_option *options, int argc, char **argv,
                    int (*unknown)(void *context, const char *name, const char *value),
                    void *context);

/* If set, rg_options_take() calls it with the table, reads nothing and returns -1. `help` gets the
 * options of other commands in this way. */
extern void (*rg_options_show)(const rg_option *options);

/* "; did you mean 'resnet'?", or "" where none of the names, which end with NULL, is similar. */
enum { RG_DID_YOU_MEAN = 128 };
const char *rg_did_you_mean(const char *wanted, const char *(*name)(int32_t index),
                            char text[RG_DID_YOU_MEAN]);

/* Prints the table. */
void rg_options_help(const rg_option *options);

/* Passes a failure of the library, or of rg_fails(), up. */
#define RG_PASS(call)                            \
    do {                                         \
        const rg_status rg_pass_status = (call); \
        if (rg_pass_status != RG_OK)             \
            return rg_pass_status;               \
    } while (0)

/* Keeps a sentence of the program, which rg_failed() prints instead of the library's; returns the
 * status. rg_failure() is the sentence. */
__attribute__((format(printf, 2, 3))) rg_status rg_fails(rg_status status, const char *format, ...);
const char *rg_failure(void);

/* Returns the status of a call that takes arguments of the program as they are: with
 * RG_INVALID_ARGUMENT they are wrong, and rg_failed() returns 2. */
rg_status rg_usage_status(rg_status status);

/* Print a sentence on stderr and return the exit status: 2 for wrong arguments, 1 for any other
 * last failure of the program or the library. */
__attribute__((format(printf, 1, 2))) int rg_wrong(const char *format, ...);
int rg_failed(void);

/* 0; or the exit status, with a sentence, if there are too many threads. */
enum { RG_MOST_THREADS = 1024 };
int rg_threads_check(int64_t threads);

/* 0; or the exit status, with a sentence, if this machine lacks an instruction set. NULL is none.
 */
int rg_isa_check(const char *isa);

#endif
