/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* `retrograde help`: the commands; with --man a page of the manual, with --bash completions for a
 * shell, both from the tables of options that the commands themselves read. */
#include "cli/arguments.h"
#include "cli/cli.h"

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

/* Lets a command show its table of options, and nothing else. */
static void show_options(const rg_command *command, void (*show)(const rg_option *options))
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
        show_options(c, show_manual);
    }
    puts(".SH EXIT STATUS\n"
         "0 on success, 1 on failure, 2 for wrong arguments, 130 if training was interrupted.\n"
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

/* ---- completions ---- */

static void show_words(const rg_option *options)
{
    for (; options->name != NULL; options++)
        printf(" --%s", options->name);
}

static void print_bash(void)
{
    puts("# Bash completions for retrograde, printed by `retrograde help --bash`.\n"
         "_retrograde()\n"
         "{\n"
         "    local current=${COMP_WORDS[COMP_CWORD]} options=\n"
         "    case ${COMP_WORDS[1]} in");
    for (const rg_command *c = rg_commands_of_program; c->name != NULL; c++) {
        printf("        %s) options='", c->name);
        show_options(c, show_words);
        puts("' ;;");
    }
    fputs("    esac\n    if [ \"$COMP_CWORD\" -eq 1 ]; then\n        options='", stdout);
    for (const rg_command *c = rg_commands_of_program; c->name != NULL; c++)
        printf(" %s", c->name);
    puts(" --help --version'\n"
         "    elif [ \"${current#-}\" = \"$current\" ]; then\n"
         "        COMPREPLY=($(compgen -f -- \"$current\"))\n        return\n    fi\n"
         "    COMPREPLY=($(compgen -W \"$options\" -- \"$current\"))\n}\n"
         "complete -o filenames -F _retrograde retrograde");
}

int rg_cmd_help(int argc, char **argv)
{
    bool man = false, bash = false, help = false;
    const rg_option options[] = {
        { "man", RG_OPTION_FLAG, &man, NULL, "print the manual page in the format of man" },
        { "bash", RG_OPTION_FLAG, &bash, NULL, "print completions for bash" },
        { "help", RG_OPTION_FLAG, &help, NULL, "print this help" },
        { .name = NULL },
    };
    const int left = rg_options_take(options, argc, argv, NULL, NULL);
    if (left < 0)
        return 2;
    if (left > 0)
        return rg_wrong("help takes no argument '%s'; see retrograde %s --help", argv[0], argv[0]);
    if (man)
        print_manual();
    else if (bash)
        print_bash();
    else
        rg_print_commands(stdout);
    if (help) {
        puts("");
        rg_options_help(options);
    }
    return 0;
}
