/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The commands of the program. Each gets the arguments after its name and returns the exit
 * status: 0 if all went well, 1 if something failed, 2 if the arguments are wrong. */
#ifndef RG_CLI_CLI_H
#define RG_CLI_CLI_H

#include <stdio.h>

int rg_cmd_train(int argc, char **argv);
int rg_cmd_eval(int argc, char **argv);
int rg_cmd_predict(int argc, char **argv);
int rg_cmd_graph(int argc, char **argv);
int rg_cmd_run(int argc, char **argv);
int rg_cmd_import(int argc, char **argv);
int rg_cmd_export(int argc, char **argv);
int rg_cmd_op(int argc, char **argv);
int rg_cmd_check(int argc, char **argv);
int rg_cmd_bench(int argc, char **argv);
int rg_cmd_info(int argc, char **argv);
int rg_cmd_help(int argc, char **argv);

typedef struct rg_command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *operands; /* what follows the name, for the manual */
    const char *text;     /* one line */
} rg_command;

/* All of them; the last has no name. */
extern const rg_command rg_commands_of_program[];
void rg_print_commands(FILE *to);

/* Says that a word is no command, and which one is similar; returns 2. */
int rg_unknown_command(const char *word);

/* Lets a command show its table of options, and nothing else. */
struct rg_option;
void rg_show_options(const rg_command *command, void (*show)(const struct rg_option *options));

/* Completions for shells, on standard output. */
void rg_print_bash(void);
void rg_print_zsh(void);
void rg_print_fish(void);

#endif
