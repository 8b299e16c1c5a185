/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The program: chooses the command. */
#include "cli/cli.h"

#include <retrograde/base.h>

#include <stdio.h>
#include <string.h>

const rg_command rg_commands_of_program[] = {
#if RG_HAVE_TRAIN
    { "train", rg_cmd_train, "[--OPTION VALUE]...",
      "train a network on images; progress, report, checkpoint" },
    { "eval", rg_cmd_eval, "CHECKPOINT [--OPTION VALUE]...",
      "how good a trained network is on a data set" },
    { "predict", rg_cmd_predict, "CHECKPOINT IMAGE... [--OPTION VALUE]...",
      "classes of images, with probabilities" },
    { "graph", rg_cmd_graph, "MODEL [--OPTION VALUE]...",
      "draw a network, forward and backward (SVG, DOT)" },
#endif
    { "op", rg_cmd_op, "NAME [--FIELD VALUE]... [NAME=FILE]... -o NAME=FILE...",
      "run one op, or its gradient, on NPY files" },
    { "check", rg_cmd_check, "[OP]... [--OPTION VALUE]...",
      "every case against its definition and finite differences" },
    { "bench", rg_cmd_bench, "[OP]... [--OPTION VALUE]...",
      "time, bytes per second, share of the machine's limit, peers beside it" },
    { "info", rg_cmd_info, "[--json]", "version, devices, instruction sets, build" },
    { "help", rg_cmd_help, "[--man | --bash]", "this list; the manual; completions for a shell" },
    { .name = NULL },
};

int main(int argc, char **argv)
{
    if (argc < 2) {
        rg_print_commands(stderr);
        return 2;
    }
    for (const rg_command *c = rg_commands_of_program; c->name != NULL; c++) {
        if (strcmp(argv[1], c->name) == 0) {
            const int status = c->run(argc - 2, argv + 2);
            if (fflush(stdout) != 0 || ferror(stdout)) {
                fprintf(stderr, "retrograde: standard output could not be written\n");
                return status != 0 ? status : 1;
            }
            return status;
        }
    }
    if (strcmp(argv[1], "--help") == 0) {
        rg_print_commands(stdout);
        return 0;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("retrograde %s\n", rg_version());
        return 0;
    }
    fprintf(stderr, "retrograde: there is no command '%s'\n", argv[1]);
    rg_print_commands(stderr);
    return 2;
}
