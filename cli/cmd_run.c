/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* `retrograde run`: a network on files, and its gradients. */
#include "cli/arguments.h"
#include "cli/cli.h"
#include "cli/run_network.h"

#include <stdlib.h>
#include <string.h>

typedef struct request {
    const char *device, *dtype, *isa;
    const char *gradient; /* of the form --gradient=NAME=FILE; others are taken before */
    int64_t threads;
    bool help;
} request;

/* NAME=FILE; names may have any character but '='. */
static int take_file(rg_run_files *files, const char *text, const char *what)
{
    const char *equals = text != NULL ? strchr(text, '=') : NULL;
    if (equals == NULL || equals == text || equals[1] == 0)
        return rg_wrong("%s needs NAME=FILE, not '%s'", what, text != NULL ? text : "");
    if (files->count == RG_MOST_RUN_FILES)
        return rg_wrong("at most %d files can be given at once", RG_MOST_RUN_FILES);
    char *copy = malloc(strlen(text) + 1);
    if (copy == NULL)
        return rg_wrong("out of memory");
    memcpy(copy, text, strlen(text) + 1);
    copy[equals - text] = 0;
    const bool twice = rg_run_files_find(files, copy) != NULL;
    files->files[files->count++] = (rg_run_file){ copy, copy + (equals - text) + 1, NULL };
    return twice ? rg_wrong("'%s' is given twice", copy) : 0;
}

static int take_output(rg_run_network *run, const char *text)
{
    if (text != NULL && strchr(text, '=') == NULL) {
        if (run->all_gradients != NULL)
            return rg_wrong("all gradients can be written to one file alone");
        run->all_gradients = text;
        return 0;
    }
    return take_file(&run->outputs, text, "-o");
}

/* Takes -o and --gradient with their values out of argv; returns how many arguments are left, or -1
 * after printing what is wrong. */
static int take_results(rg_run_network *run, int argc, char **argv)
{
    int left = 0;
    for (int i = 0; i < argc; i++) {
        const bool output = strcmp(argv[i], "-o") == 0;
        const bool gradient = strcmp(argv[i], "--gradient") == 0;
        if (!output && !gradient) {
            argv[left++] = argv[i];
            continue;
        }
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        if ((output ? take_output(run, value) : take_file(&run->gradients, value, "--gradient")) !=
            0)
            return -1;
        i++;
    }
    return left;
}

static int check_request(rg_run_network *run, const request *r)
{
    static const char *const names[] = { "f32", "f64", "f16", "bf16" };
    run->has_dtype = r->dtype != NULL;
    for (int i = 0; i < 4 && r->dtype != NULL; i++) {
        if (strcmp(r->dtype, names[i]) == 0) {
            run->dtype = (rg_dtype)i;
            break;
        }
        if (i == 3)
            return rg_wrong("--dtype must be f32, f64, f16 or bf16, not '%s'", r->dtype);
    }
    if (run->outputs.count == 0 && run->all_gradients == NULL)
        return rg_wrong("no result is requested; add -o NAME=FILE");
    if (run->all_gradients != NULL && run->gradients.count == 0)
        return rg_wrong("-o %s asks for gradients; add --gradient OUTPUT=FILE", run->all_gradients);
    if (run->classes < 1 || run->classes > 1 << 20)
        return rg_wrong("--classes must be between 1 and %d", 1 << 20);
    return rg_threads_check(r->threads);
}

static int run_files(rg_run_network *run, const request *r, int argc, char **argv)
{
    rg_device_options options = rg_device_options_default();
    int status = r->gradient != NULL ? take_file(&run->gradients, r->gradient, "--gradient") : 0;
    if (status == 0)
        status = check_request(run, r);
    for (int i = 0; i < argc && status == 0; i++)
        status = take_file(&run->inputs, argv[i], "an input");
    if (status != 0)
        return status;
    options.isa = r->isa;
    options.threads = (int32_t)r->threads;
    if (rg_usage_status(rg_device_create(r->device, &options, &run->device)) != RG_OK)
        return rg_failed();
    return rg_usage_status(rg_run_network_run(run)) == RG_OK ? 0 : rg_failed();
}

static void print_help(const rg_option *options)
{
    puts("usage: retrograde run MODEL [NAME=FILE]... -o NAME=FILE... [options]\n\n"
         "Runs a network on NPY files. MODEL is an ONNX model, a checkpoint, a model file or the "
         "name of\n"
         "a built-in model; inputs and outputs have the names that it gives them.\n");
    rg_options_help(options);
}

int rg_cmd_run(int argc, char **argv)
{
    request r = { .device = "cpu" };
    rg_run_network *run = calloc(1, sizeof *run);
    if (run == NULL)
        return rg_wrong("out of memory");
    run->classes = 10;
    run->seed = 1;
    const rg_option options[] = {
        { "gradient", RG_OPTION_TEXT, &r.gradient, "NAME=FILE",
          "gradient of an output; -o NAME=FILE then also writes the gradient of an input or "
          "parameter, -o FILE.safetensors those of all parameters" },
        { "device", RG_OPTION_TEXT, &r.device, "D", "cpu, cuda or cuda:N (default cpu)" },
        { "dtype", RG_OPTION_TEXT, &r.dtype, "T",
          "compute in f32, f64, f16 or bf16 (default: as the model says)" },
        { "threads", RG_OPTION_COUNT, &r.threads, "N", "number of CPU threads (default: all)" },
        { "isa", RG_OPTION_TEXT, &r.isa, "ISA",
          "highest instruction set to use: base, avx2 or avx512" },
        { "classes", RG_OPTION_COUNT, &run->classes, "N",
          "number of classes of a model file (default 10)" },
        { "seed", RG_OPTION_COUNT, &run->seed, "N",
          "seed of the random parameters of a model file (default 1)" },
        { "help", RG_OPTION_FLAG, &r.help, NULL, "print this help" },
        { NULL, RG_OPTION_FLAG, NULL, NULL, NULL },
    };
    int status = 2;
    int left = take_results(run, argc, argv);
    if (left >= 0)
        left = rg_options_take(options, left, argv, NULL, NULL);
    if (left >= 0 && r.help) {
        print_help(options);
        status = 0;
    } else if (left == 0) {
        status = rg_wrong("the first argument must be a model; see retrograde run --help");
    } else if (left > 0) {
        run->path = argv[0];
        status = run_files(run, &r, left - 1, argv + 1);
    }
    rg_run_network_end(run);
    free(run);
    return status;
}
