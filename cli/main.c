/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The program: chooses the command. */
#include "cli/cli.h"
#include "core/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

const rg_command rg_commands_of_program[] = {
#if RG_HAVE_TRAIN
    { "train", rg_cmd_train, "[MODEL] [--OPTION VALUE]...",
      "train a network on images; write a report and a checkpoint" },
    { "eval", rg_cmd_eval, "CHECKPOINT|RUN [--OPTION VALUE]...",
      "evaluate a trained network on a data set" },
    { "predict", rg_cmd_predict, "CHECKPOINT|RUN IMAGE... [--OPTION VALUE]...",
      "classify images; print the probabilities" },
    { "graph", rg_cmd_graph, "MODEL [--OPTION VALUE]...",
      "draw a network with its forward and backward pass (SVG, DOT)" },
    { "run", rg_cmd_run, "MODEL [NAME=FILE]... -o NAME=FILE... [--OPTION VALUE]...",
      "run a network, or its gradients, on NPY files" },
    { "import", rg_cmd_import, "FILE -o FILE [--OPTION VALUE]...",
      "write an ONNX model, or weights of PyTorch, as a checkpoint or a model file" },
    { "export", rg_cmd_export, "MODEL -o FILE [--OPTION VALUE]...",
      "write a network as an ONNX model, or its parameters for PyTorch" },
#endif
    { "op", rg_cmd_op, "NAME [--FIELD VALUE]... [NAME=FILE]... -o NAME=FILE...",
      "run one op or its gradient on NPY files" },
    { "check", rg_cmd_check, "[OP]... [--OPTION VALUE]...",
      "compare every op with its definition and with finite differences" },
    { "bench", rg_cmd_bench, "[OP]... [--OPTION VALUE]...",
      "time every op; compare with the machine's limit and with other libraries" },
    { "info", rg_cmd_info, "[--json]", "print version, devices, instruction sets, build options" },
    { "help", rg_cmd_help, "[COMMAND | --man | --bash | --zsh | --fish]",
      "print this list, the help of a command, the manual page or shell completions" },
    { .name = NULL },
};

/* A file that is opened later must not become one of the standard streams: messages would go into
 * it. A closed standard output becomes a folder, so that what is written to it is an error. */
static void open_streams(void)
{
    for (int stream = STDIN_FILENO; stream <= STDERR_FILENO; stream++) {
        if (fcntl(stream, F_GETFD) >= 0 || errno != EBADF)
            continue;
        const int file = open(stream == STDOUT_FILENO ? "/" : "/dev/null",
                              stream == STDERR_FILENO ? O_WRONLY : O_RDONLY);
        if (file >= 0 && file != stream) /* the lowest free number is the one that is closed */
            close(file);
    }
}

/* The exit status of the command, or 1 if its output could not be written. If the reader, such as
 * `head`, has closed the pipe, the program ends without a message. */
static int finish(int status)
{
    errno = 0;
    const bool lost = fflush(stdout) != 0 || ferror(stdout);
    if (!lost || status > 128 || errno == EPIPE)
        return status;
    fprintf(stderr, "retrograde: cannot write to standard output\n");
    return status != 0 ? status : 1;
}

typedef struct call {
    const rg_command *command;
    int argc;
    char **argv;
    int status;
} call;

static void *run_call(void *context)
{
    call *c = context;
    c->status = c->command->run(c->argc, c->argv);
    return NULL;
}

/* Runs a command, which also runs kernels. If the stack of the process is limited to less than they
 * need, the command gets a thread with a stack of its own. */
static int run_command(const rg_command *command, int argc, char **argv)
{
    struct rlimit limit;
    pthread_t thread;
    call c = { command, argc, argv, 1 };
    if (getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur >= RG_STACK_BYTES)
        run_call(&c);
    else if (rg_thread_start(&thread, run_call, &c))
        pthread_join(thread, NULL);
    else
        fprintf(stderr, "retrograde: the stack limit is %llu KiB, and no thread can be started\n",
                (unsigned long long)limit.rlim_cur / 1024);
    return c.status;
}

int main(int argc, char **argv)
{
    open_streams();
    signal(SIGXFSZ, SIG_IGN); /* a file that may not grow is an error like a full disk */
    signal(SIGPIPE, SIG_DFL); /* some parents leave it ignored */
    if (argc < 2) {
        rg_print_commands(stderr);
        return 2;
    }
    for (const rg_command *c = rg_commands_of_program; c->name != NULL; c++) {
        if (strcmp(argv[1], c->name) == 0)
            return finish(run_command(c, argc - 2, argv + 2));
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        rg_print_commands(stdout);
        return finish(0);
    }
    if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0) {
        printf("retrograde %s\n", rg_version());
        return finish(0);
    }
    return rg_unknown_command(argv[1]);
}
