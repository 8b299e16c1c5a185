/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* `retrograde help`: the commands, the help of one of them, and the page of the manual, from the
 * tables of options that the commands themselves read. */
#include "cli/arguments.h"
#include "cli/cli.h"

#include "operators/onnx_node.h"

#include <retrograde/base.h>

#include <stdio.h>
#include <string.h>

void rg_print_commands(FILE *to)
{
    fprintf(to,
            "retrograde %s: trains neural networks on CPUs and NVIDIA GPUs\n\n"
            "usage: retrograde COMMAND [--help]\n\n",
            rg_version());
    for (const rg_command *c = rg_commands_of_program; c->name != NULL; c++)
        fprintf(to, "  %-8s %s\n", c->name, c->text);
}

void rg_show_options(const rg_command *command, void (*show)(const rg_option *options))
{
    char *words[] = { NULL };
    rg_options_show = show;
    (void)command->run(0, words);
    rg_options_show = NULL;
}

/* ---- manual ---- */

/* Escapes text for troff: dashes stay dashes, and no line begins like a request. */
static void print_troff(const char *text)
{
    if (*text == '.' || *text == '\'')
        fputs("\\&", stdout);
    for (; *text != 0; text++) {
        if (*text == '-' || *text == '\\')
            printf("\\%c", *text == '-' ? '-' : 'e');
        else
            putchar(*text);
    }
}

static void show_manual(const rg_option *options)
{
    for (; options->name != NULL; options++) {
        puts(".TP");
        fputs(".B \\-\\-", stdout);
        print_troff(options->name);
        if (options->argument != NULL)
            printf(" \\fI%s\\fR", options->argument);
        puts("");
        print_troff(options->text);
        puts("");
    }
}

static void print_manual(void)
{
    printf(".TH RETROGRADE 1 \"\" \"retrograde %s\"\n.SH NAME\n"
           "retrograde \\- train neural networks; run, check and time their kernels\n"
           ".SH SYNOPSIS\n",
           rg_version());
    for (const rg_command *c = rg_commands_of_program; c->name != NULL; c++) {
        printf(".B retrograde %s\n", c->name);
        print_troff(c->operands);
        puts(c[1].name != NULL ? "\n.br" : "");
    }
    puts(".SH DESCRIPTION\n"
         "Every layer has its exact gradient, on CPUs and on NVIDIA GPUs.\n"
         "The value of an option follows a space or an equals sign; \\-\\- ends the options.");
    for (const rg_command *c = rg_commands_of_program; c->name != NULL; c++) {
        printf(".SH %s\n", c->name);
        print_troff(c->text);
        puts(".");
        rg_show_options(c, show_manual);
    }
    puts(".SH EXIT STATUS\n"
         "0 on success, 1 on failure, 2 for wrong arguments, 130 if training was interrupted.\n"
         ".SH FILES\n"
         "A run of train writes these files to its folder, run unless \\-\\-out names another:\n"
         ".TP\n.I best.safetensors\nthe network of the epoch with the best validation\n"
         ".TP\n.I checkpoint.safetensors\nwhere \\-\\-resume continues\n"
         ".TP\n.I report.html\ncurves, confusions, the network, its time and memory\n"
         ".TP\n.I metrics.csv\na row for each epoch\n"
         ".TP\n.I events.out.tfevents.*\nthe same for TensorBoard\n"
         ".SH EXAMPLES\n.TP\nTrain on photographs in a folder for each class:\n"
         ".B retrograde train \\-\\-data photos \\-\\-size 224 \\-\\-model resnet\n"
         ".TP\nRepeat its test, and classify an image:\n.B retrograde eval run\n.br\n"
         ".B retrograde predict run cat.jpg \\-\\-top 3\n"
         ".TP\nContinue a run that was interrupted:\n"
         ".B retrograde train \\-\\-resume run/checkpoint.safetensors\n"
         ".TP\nDraw a network:\n.B retrograde graph lenet \\-\\-out lenet.svg\n"
         ".SH ENVIRONMENT\n.TP\n.B RG_THREADS\n"
         "number of CPU threads that run a kernel\n"
         ".TP\n.B RG_CPU\nhighest instruction set to use: base, avx2, avx512\n"
         ".TP\n.B RG_PYTHON\n"
         "Python interpreter for the peers torch and compile of bench\n"
         ".TP\n.B RG_CUDNN\ncuDNN library for the peer cudnn of bench\n.TP\n"
         ".B RG_LIBXSMM\n"
         "library for the peer libxsmm of bench: a shared library that contains all of libxsmm "
         "1.17;\n"
         "the default is peer_libxsmm.so beside the program");
}

/* ---- the command ---- */

int rg_unknown_command(const char *word)
{
    char text[RG_SIMILAR_TEXT];
    rg_similar similar = rg_similar_begin(word);
    similar.distance += strlen(word) > 3; /* two letters that are exchanged are two edits */
    for (const rg_command *c = rg_commands_of_program; c->name != NULL; c++)
        rg_similar_try(&similar, c->name);
    fprintf(stderr, "retrograde: unknown command '%s'%s\n", word, rg_similar_text(&similar, text));
    if (text[0] == 0)
        rg_print_commands(stderr);
    return 2;
}

/* `help train` is `train --help`. */
static int help_command(const char *name)
{
    char option[] = "--help", *words[] = { option, NULL };
    for (const rg_command *c = rg_commands_of_program; c->name != NULL; c++) {
        if (strcmp(c->name, name) == 0)
            return c->run(1, words);
    }
    return rg_unknown_command(name);
}

int rg_cmd_help(int argc, char **argv)
{
    bool man = false, bash = false, zsh = false, fish = false, help = false;
    const rg_option options[] = {
        { "man", RG_OPTION_FLAG, &man, NULL, "print the manual page in the format of man" },
        { "bash", RG_OPTION_FLAG, &bash, NULL, "print completions for bash" },
        { "zsh", RG_OPTION_FLAG, &zsh, NULL, "print completions for zsh" },
        { "fish", RG_OPTION_FLAG, &fish, NULL, "print completions for fish" },
        { "help", RG_OPTION_FLAG, &help, NULL, "print this help" },
        { .name = NULL },
    };
    const int left = rg_options_take(options, argc, argv, NULL, NULL);
    if (left < 0)
        return 2;
    if (left > 1)
        return rg_wrong("help takes one command, not %d", left);
    if (left == 1)
        return help_command(argv[0]);
    if (man)
        print_manual();
    else if (bash)
        rg_print_bash();
    else if (zsh)
        rg_print_zsh();
    else if (fish)
        rg_print_fish();
    else
        rg_print_commands(stdout);
    if (help) {
        puts("");
        rg_options_help(options);
    }
    return 0;
}
