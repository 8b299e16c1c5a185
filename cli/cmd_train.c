/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* `retrograde train`: trains a network on images. */
#include "cli/cli.h"
#include "cli/train_lists.h"
#include "cli/train_run.h"

#include <retrograde/checkpoint.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { PATH_BYTES = 4096 };

static volatile sig_atomic_t interrupted, unread;

static void on_interrupt(int signal)
{
    (void)signal;
    interrupted = 1;
}

/* The reader of the output has closed it: training stops as if it were interrupted. */
static void on_broken_pipe(int signal)
{
    (void)signal;
    interrupted = unread = 1;
}

static void print_help(const rg_option options[])
{
    puts(
        "usage: retrograde train [MODEL] [options]\n\n"
        "Trains a network on images and writes checkpoints and a report. Part of the training data\n"
        "chooses the best epoch, best.safetensors; the test images are used once, at the end.\n"
        "MODEL is what --model takes; an ONNX model (model.onnx) starts with its weights.\n"
        "Ctrl-C saves a checkpoint with a report and stops; --resume continues from it, bit for bit "
        "as\nwithout the interruption. A run never replaces the results of another.\n");
    rg_options_help(options);
}

/* The words of the command, for the report. */
static char *join_words(int argc, char **argv)
{
    size_t size = sizeof "retrograde train";
    for (int i = 0; i < argc; i++)
        size += strlen(argv[i]) + 1;
    char *text = malloc(size);
    if (text == NULL)
        return NULL;
    strcpy(text, "retrograde train");
    for (int i = 0; i < argc; i++) {
        strcat(text, " ");
        strcat(text, argv[i]);
    }
    return text;
}

/* What the parameters of a checkpoint depend on cannot change when training continues. */
static bool keeps(const char *name, const char *kept, const char *wanted)
{
    if (strcmp(kept, wanted) != 0)
        rg_wrong("--%s is %s, but the checkpoint was trained with %s", name, wanted, kept);
    return strcmp(kept, wanted) == 0;
}

/* Sets the options from those of a checkpoint, of which `kept` is a copy. */
static rg_status take_kept(rg_train_request *request, rg_dtype dtype, char *kept)
{
    rg_status status = rg_train_options_read(request, kept);
    if (request->rate == 0) /* as earlier versions have kept the default */
        request->rate = RG_TRAIN_NOT_GIVEN;
    rg_train_request checked = *request;
    checked.threads = 0; /* which are of this run, and checked with it */
    if (status == RG_OK)
        status = rg_train_options_check(&checked);
    if (status == RG_OK && strcmp(request->dtype, rg_dtype_name(dtype)) != 0)
        status =
            rg_fails(RG_MALFORMED, "the checkpoint's option dtype is %s, but its network is %s",
                     request->dtype, rg_dtype_name(dtype));
    return status == RG_OK ? RG_OK : rg_fails(status, "%s: %s", request->resume, rg_failure());
}

/* Reads the options of the checkpoint; `kept` is to be freed when they are no longer used. */
static rg_status read_kept(rg_train_request *request, char **kept)
{
    rg_checkpoint *checkpoint;
    rg_checkpoint_info info;
    RG_PASS(rg_checkpoint_inspect(request->resume, &checkpoint));
    rg_status status = rg_checkpoint_get_info(checkpoint, &info);
    *kept = strdup(rg_checkpoint_options(checkpoint));
    rg_checkpoint_close(checkpoint);
    request->channels = status == RG_OK ? info.network.channels : 0;
    request->splits_always = status == RG_OK && info.train_images == 0;
    if (request->channels != 1 && request->channels != 3)
        request->channels = 0;
    if (*kept == NULL)
        status = rg_fails(RG_OUT_OF_MEMORY, "out of memory for the options");
    return status == RG_OK ? take_kept(request, info.network.dtype, *kept) : status;
}

static bool keeps_all(const rg_train_request *before, const rg_train_request *request)
{
    if (before->accumulate != request->accumulate)
        rg_wrong("--accumulate is %lld, but the checkpoint was trained with %lld",
                 (long long)request->accumulate, (long long)before->accumulate);
    return before->accumulate == request->accumulate &&
           keeps("model", before->model, request->model) &&
           keeps("optimizer", before->optimizer, request->optimizer) &&
           keeps("dtype", before->dtype, request->dtype);
}

/* The operand, which is the model; returns how many are left. */
static int take_model(rg_train_request *request, int left, char **argv)
{
    if (left != 1)
        return left;
    request->model = argv[0];
    return 0;
}

/* What may be given several times. */
static void take_lists(rg_train_request *request, const rg_train_lists *lists)
{
    if (lists->freeze != NULL)
        request->freeze = lists->freeze;
    if (lists->rates != NULL)
        request->rates = lists->rates;
}

/* --resume names a checkpoint, or the folder of a run, whose checkpoint's path is written. */
static void find_checkpoint(rg_train_request *request, char path[PATH_BYTES])
{
    struct stat info;
    const char *resume = request->resume;
    if (resume == NULL || stat(resume, &info) != 0 || !S_ISDIR(info.st_mode))
        return;
    const int length = snprintf(path, PATH_BYTES, "%s/checkpoint.safetensors", resume);
    if (length > 0 && length < PATH_BYTES)
        request->resume = path;
}

/* Options that are not on the command line come from the checkpoint. */
static int take_options(rg_train_request *request, rg_option options[], int argc, char **argv,
                        const rg_train_lists *lists, char **kept, char resumed[PATH_BYTES])
{
    char **again = malloc((size_t)(argc + 1) * sizeof *again);
    if (again == NULL) {
        (void)rg_fails(RG_OUT_OF_MEMORY, "out of memory for the options");
        return rg_failed();
    }
    memcpy(again, argv, (size_t)argc * sizeof *again);
    int left = rg_options_take(options, argc, argv, NULL, NULL), failed = 0;
    find_checkpoint(request, resumed);
    if (left >= 0 && request->resume != NULL) {
        failed = read_kept(request, kept) != RG_OK ? rg_failed() : 0;
        const rg_train_request before = *request;
        if (failed == 0)
            left = rg_options_take(options, argc, again, NULL, NULL);
        find_checkpoint(request, resumed);
        left = take_model(request, left, again);
        take_lists(request, lists);
        if (failed == 0 && left == 0 && !keeps_all(&before, request))
            left = -1;
    }
    left = take_model(request, left, argv);
    take_lists(request, lists);
    free(again);
    if (failed != 0)
        return failed;
    if (left > 0)
        return rg_wrong("unexpected argument '%s'; see --help", argv[0]);
    if (left == 0 && rg_train_options_check(request) != RG_OK)
        return rg_wrong("%s", rg_failure());
    if (request->rate < 0)
        request->rate = rg_train_base_rate(request);
    return left == 0 ? 0 : 2;
}

static int train(rg_train_request *request, const char *command)
{
    rg_train_run run = { 0 };
    rg_group *group = NULL;
    bool done = false;
    rg_status status = rg_train_group_open(request, &group);
    if (status == RG_OK)
        status = rg_train_begin(&run, request, group, &interrupted);
    if (status == RG_OK)
        status = rg_train_all(&run, &done);
    if (status == RG_OK && (done || !unread))
        status = rg_train_finish(&run, command, done);
    if (status == RG_OK && !done)
        rg_show_say(&run.show, "stopped; continue with --resume %s",
                    rg_run_path(run.run, RG_RUN_CHECKPOINT));
    if (status != RG_OK) {
        rg_show_clear(&run.show);
        rg_group_fail(group, rg_failure());
        if (rg_group_rank(group) > 0)
            (void)rg_fails(status, "rank %d: %s", rg_group_rank(group), rg_failure());
    }
    const int stopped = unread ? 128 + SIGPIPE : 130;
    const bool early = run.is_stopped && run.trainer == NULL; /* while images were read */
    int result = status == RG_OK ? (run.is_stopped && !done ? stopped : 0) : rg_failed();
    if (early)
        result = stopped;
    rg_train_end(&run);
    rg_group_destroy(group);
    return result;
}

int rg_cmd_train(int argc, char **argv)
{
    rg_option options[RG_TRAIN_OPTIONS];
    rg_train_request request = rg_train_defaults();
    char *command = join_words(argc, argv), *kept = NULL;
    char resumed[PATH_BYTES] = "";
    rg_train_lists lists = { 0 };
    rg_train_options(&request, options);
    argc = rg_train_lists_take(&lists, argc, argv);
    int result = argc < 0 ? 1 : take_options(&request, options, argc, argv, &lists, &kept, resumed);
    if (result == 0 && request.help) {
        print_help(options);
    } else if (result == 0) {
        struct sigaction action = { .sa_handler = on_interrupt };
        action.sa_flags = (int)SA_RESETHAND; /* a second one ends the program at once */
        sigaction(SIGINT, &action, NULL);
        sigaction(SIGTERM, &action, NULL);
        struct sigaction hangup;
        if (sigaction(SIGHUP, NULL, &hangup) == 0 &&
            hangup.sa_handler != SIG_IGN) /* not under nohup */
            sigaction(SIGHUP, &action, NULL);
        signal(SIGPIPE, on_broken_pipe);
        result = train(&request, command != NULL ? command : "");
    }
    rg_train_lists_release(&lists);
    free(command);
    free(kept);
    return result;
}
