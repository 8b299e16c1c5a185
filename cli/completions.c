/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Completions for bash, zsh and fish, from the tables of options that the commands read, the names
 * of ops and of models. */
#include "cli/arguments.h"
#include "cli/cli.h"

#include "ops/ops.h"

#include <stdio.h>
#include <string.h>

/* ---- words ---- */

/* Values of options that are one of some words; "" for others. */
static const char *values_of(const char *option)
{
    static const char *const values[][2] = {
        { "device", "cpu cuda" },
        { "model", "lenet small mlp resnet" },
        { "dtype", "f32 f64 bf16 f16" },
        { "optimizer", "adam sgd rmsprop" },
        { "schedule", "cosine step constant" },
        { "loss", "mean_squared mean_absolute huber hinge sigmoid_cross_entropy "
                  "softmax_cross_entropy" },
        { "data", "fashion-mnist glyphs" },
        { "isa", "base avx2 avx512" },
        { "normalize", "data imagenet none" },
        { "mpi", "openmpi mpich abi none" },
        { "head", "auto" },
    };
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        if (strcmp(values[i][0], option) == 0)
            return values[i][1];
    }
    return "";
}

/* What may follow a command apart from files: ops, models, commands. */
static void print_operands(const char *command)
{
    if (strcmp(command, "op") == 0 || strcmp(command, "check") == 0 ||
        strcmp(command, "bench") == 0) {
        for (int32_t i = 0; rg_ops[i] != NULL; i++)
            printf(" %s", rg_ops[i]->name);
    } else if (strcmp(command, "graph") == 0 || strcmp(command, "export") == 0 ||
               strcmp(command, "train") == 0 || strcmp(command, "run") == 0) {
        printf(" %s", values_of("model"));
    } else if (strcmp(command, "help") == 0) {
        for (const rg_command *c = rg_commands_of_program; c->name != NULL; c++)
            printf(" %s", c->name);
    }
}

/* Text in single quotes, with a backslash before each of `special`. */
static void print_quoted(const char *text, const char *special)
{
    for (; *text != 0; text++) {
        if (*text == '\'')
            fputs("'\\''", stdout);
        else if (strchr(special, *text) != NULL)
            printf("\\%c", *text);
        else
            putchar(*text);
    }
}

/* ---- bash ---- */

static void show_words(const rg_option *options)
{
    for (; options->name != NULL; options++)
        printf(" --%s", options->name);
}

static void print_values(void)
{
    static const char *const names[] = { "device",   "model",     "dtype", "optimizer",
                                         "schedule", "data",      "isa",   "loss",
                                         "mpi",      "normalize", "head" };
    puts("    case ${COMP_WORDS[COMP_CWORD-1]} in");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        printf("        --%s) mapfile -t COMPREPLY < <(compgen -f -W '%s' -- \"$current\")\n"
               "            return ;;\n",
               names[i], values_of(names[i]));
    puts("    esac");
}

void rg_print_bash(void)
{
    puts("# Bash completions for retrograde, printed by `retrograde help --bash`.\n"
         "_retrograde()\n"
         "{\n"
         "    local current=${COMP_WORDS[COMP_CWORD]} options= operands=\n"
         "    case ${COMP_WORDS[1]} in");
    for (const rg_command *c = rg_commands_of_program; c->name != NULL; c++) {
        printf("        %s) options='", c->name);
        rg_show_options(c, show_words);
        puts("' ;;");
    }
    puts("    esac\n    case ${COMP_WORDS[1]} in");
    for (const rg_command *c = rg_commands_of_program; c->name != NULL; c++) {
        printf("        %s) operands='", c->name);
        print_operands(c->name);
        puts("' ;;");
    }
    fputs("    esac\n    if [ \"$COMP_CWORD\" -eq 1 ]; then\n        options='", stdout);
    for (const rg_command *c = rg_commands_of_program; c->name != NULL; c++)
        printf(" %s", c->name);
    puts(" --help --version'\n        operands=\n    fi");
    print_values();
    puts("    if [ \"$COMP_CWORD\" -gt 1 ] && [ \"${current#-}\" = \"$current\" ]; then\n"
         "        mapfile -t COMPREPLY < <(compgen -f -W \"$operands\" -- \"$current\")\n"
         "        return\n    fi\n"
         "    mapfile -t COMPREPLY < <(compgen -W \"$options\" -- \"$current\")\n}\n"
         "complete -o filenames -F _retrograde retrograde");
}

/* ---- zsh ---- */

static void show_zsh(const rg_option *options)
{
    for (; options->name != NULL; options++) {
        const char *values = values_of(options->name);
        printf(" \\\n            '--%s[", options->name);
        print_quoted(options->text, "[]:\\");
        putchar(']');
        if (options->type != RG_OPTION_FLAG && values[0] != 0)
            printf(":%s:(%s)", options->argument, values);
        else if (options->type != RG_OPTION_FLAG)
            printf(":%s:_files", options->argument);
        putchar('\'');
    }
}

void rg_print_zsh(void)
{
    puts("#compdef retrograde\n"
         "# Zsh completions for retrograde, printed by `retrograde help --zsh`.\n"
         "_retrograde()\n{\n    local -a commands\n    commands=(");
    for (const rg_command *c = rg_commands_of_program; c->name != NULL; c++) {
        printf("        '%s:", c->name);
        print_quoted(c->text, ":\\");
        puts("'");
    }
    puts(
        "    )\n"
        "    if (( CURRENT == 2 )); then\n        _describe command commands\n        return\n    fi\n"
        "    local command=$words[2]\n    shift words\n    (( CURRENT-- ))\n    case $command in");
    for (const rg_command *c = rg_commands_of_program; c->name != NULL; c++) {
        printf("        %s) _arguments '*: :{compadd --", c->name);
        print_operands(c->name);
        fputs("; _files}'", stdout);
        rg_show_options(c, show_zsh);
        puts(" ;;");
    }
    puts("    esac\n}\nif [ \"$funcstack[1]\" = _retrograde ]; then\n    _retrograde \"$@\"\nelse\n"
         "    compdef _retrograde retrograde\nfi");
}

/* ---- fish ---- */

static const char *fish_command;

/* Text in single quotes, in which fish knows two escapes. */
static void print_fish_text(const char *text)
{
    putchar('\'');
    for (; *text != 0; text++) {
        if (*text == '\'' || *text == '\\')
            putchar('\\');
        putchar(*text);
    }
    puts("'");
}

static void show_fish(const rg_option *options)
{
    for (; options->name != NULL; options++) {
        printf("complete -c retrograde -n '__fish_seen_subcommand_from %s' -l %s", fish_command,
               options->name);
        if (options->type != RG_OPTION_FLAG)
            printf(" -r");
        if (values_of(options->name)[0] != 0)
            printf(" -a '%s'", values_of(options->name));
        fputs(" -d ", stdout);
        print_fish_text(options->text);
    }
}

void rg_print_fish(void)
{
    puts("# Fish completions for retrograde, printed by `retrograde help --fish`.");
    for (const rg_command *c = rg_commands_of_program; c->name != NULL; c++) {
        printf("complete -c retrograde -f -n __fish_use_subcommand -a %s -d ", c->name);
        print_fish_text(c->text);
        fish_command = c->name;
        rg_show_options(c, show_fish);
        printf("complete -c retrograde -n '__fish_seen_subcommand_from %s' -a '", c->name);
        print_operands(c->name);
        puts("'");
    }
}
