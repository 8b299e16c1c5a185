/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The commands of the program. Each gets the arguments behind its name and returns the exit status:
 * 0 if all went well, 1 if something failed, 2 if the arguments are wrong. */
#ifndef RG_CLI_CLI_H
#define RG_CLI_CLI_H

int rg_cmd_train(int argc, char **argv);
int rg_cmd_eval(int argc, char **argv);
int rg_cmd_predict(int argc, char **argv);
int rg_cmd_graph(int argc, char **argv);
int rg_cmd_op(int argc, char **argv);
int rg_cmd_check(int argc, char **argv);
int rg_cmd_bench(int argc, char **argv);
int rg_cmd_info(int argc, char **argv);

#endif
