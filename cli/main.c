/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The program: chooses the command. */
#include "cli/cli.h"

#include <retrograde/base.h>

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *text;
} commands[] = {
#if RG_HAVE_TRAIN
    { "train", rg_cmd_train, "train a network on images; progress, report, checkpoint" },
    { "eval", rg_cmd_eval, "how good a trained network is on a data set" },
    { "predict", rg_cmd_predict, "classes of images, with probabilities" },
    { "graph", rg_cmd_graph, "draw a network, forward and backward (SVG, DOT)" },
#endif
    { "op", rg_cmd_op, "run one op, or its gradient, on NPY files" },
    { "check", rg_cmd_check, "every case against its definition and finite differences" },
    { "bench", rg_cmd_bench,
      "time, bytes per second, share of the machine's limit, peers beside it" },
    { "info", rg_cmd_info, "version, devices, instruction sets, build" },
};
enum { COMMANDS = sizeof commands / sizeof commands[0] };

static void print_help(FILE *to)
{
    fprintf(
        to,
        "retrograde %s: neural-network training kernels\n\nusage: retrograde COMMAND [--help]\n\n",
        rg_version());
    for (int i = 0; i < COMMANDS; i++)
        fprintf(to, "  %-8s %s\n", commands[i].name, commands[i].text);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        print_help(stderr);
        return 2;
    }
    for (int i = 0; i < COMMANDS; i++) {
        if (strcmp(argv[1], commands[i].name) == 0) {
            const int status = commands[i].run(argc - 2, argv + 2);
            if (fflush(stdout) != 0 || ferror(stdout)) {
                fprintf(stderr, "retrograde: standard output could not be written\n");
                return status != 0 ? status : 1;
            }
            return status;
        }
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "help") == 0) {
        print_help(stdout);
        return 0;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("retrograde %s\n", rg_version());
        return 0;
    }
    fprintf(stderr, "retrograde: there is no command '%s'\n", argv[1]);
    print_help(stderr);
    return 2;
}
