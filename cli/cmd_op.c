/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* `retrograde op`: one op, or its gradient, on files. */
#include "cli/arguments.h"
#include "cli/cli.h"
#include "cli/op_onnx.h"
#include "cli/op_run.h"

#include <stdio.h>

typedef struct request {
    const char *device, *dtype, *isa;
    int64_t threads;
    bool gradient, help, list;
} request;

/* ---- fields as options ---- */

typedef struct lookup {
    const char *name;
    const rg_field *found;
} lookup;

static void compare_name(void *context, const char *name, const rg_field *field, const char *value)
{
    (void)value;
    lookup *l = context;
    if (strcmp(l->name, name) == 0)
        l->found = field;
}

/* --axis 1, --window 3,3, --flatten, --flatten true */
static int take_field(void *context, const char *name, const char *value)
{
    rg_op_run *run = context;
    const rg_fields *fields = &run->op->desc;
    lookup l = { name, NULL };
    rg_fields_each(fields, run->desc, compare_name, &l);
    if (l.found == NULL) {
        rg_wrong("%s has no field '%s'; see retrograde op %s --help", run->called, name,
                 run->called);
        return -1;
    }
    const bool is_flag = l.found->type == RG_FIELD_BOOL && l.found->length == 0;
    const bool has_value =
        value != NULL && (!is_flag || strcmp(value, "true") == 0 || strcmp(value, "false") == 0);
    if (!has_value && !is_flag) {
        rg_wrong("--%s needs a value", name);
        return -1;
    }
    if (rg_fields_set(fields, run->called, run->desc, name, has_value ? value : "true") != RG_OK) {
        rg_wrong("%s", rg_error_text());
        return -1;
    }
    run->set |= rg_op_name_bit(run->name, name);
    rg_op_name_follow(run->op, run->name, run->set, run->desc);
    return has_value;
}

/* ---- arguments ---- */

static int open_device(rg_op_run *run, const request *r)
{
    rg_device_options options = rg_device_options_default();
    options.isa = r->isa;
    options.threads = (int32_t)(r->threads < 2048 ? r->threads : 2048); /* too many either way */
    rg_status status = rg_device_create(r->device, &options, &run->device);
    if (status == RG_OK)
        status = rg_queue_create(run->device, &run->queue);
    if (status == RG_OK)
        status = rg_kernel_create(run->device, run->op, run->desc, &run->kernel);
    return rg_usage_status(status) == RG_OK ? 0 : rg_failed();
}

static int take_result(rg_op_run *run, const char *text)
{
    if (text == NULL)
        return rg_wrong("-o needs NAME=FILE");
    if (run->result_count == RG_MOST_RESULTS)
        return rg_wrong("%s has at most %d results", run->called, RG_MOST_RESULTS);
    rg_operand *result = &run->results[run->result_count];
    const int status = rg_op_run_operand(run, text, true, result);
    if (status != 0)
        return status;
    for (int i = 0; i < run->result_count; i++) {
        if (strcmp(run->results[i].path, result->path) == 0)
            return rg_wrong("'%s' and '%s' would be written to the same file", run->results[i].name,
                            result->name);
    }
    run->result_count++;
    return 0;
}

/* Results first, so that a wrong name is found before files are read. */
static int take_operands(rg_op_run *run, int argc, char **argv)
{
    int status = 0, inputs = 0;
    for (int i = 0; i < argc && status == 0; i++) {
        if (strcmp(argv[i], "-o") == 0) {
            status = take_result(run, i + 1 < argc ? argv[i + 1] : NULL);
            i++;
        } else {
            argv[inputs++] = argv[i];
        }
    }
    bool asked = false; /* for what this direction computes */
    for (int i = 0; i < run->result_count; i++)
        asked |= run->results[i].role == RG_ROLE_DX || !run->gradient;
    if (status == 0 && !asked)
        return rg_wrong("%s: no result is requested; add -o %s%s=FILE", run->called,
                        run->gradient ? "d" : "",
                        run->gradient ? rg_op_input_names(run->op, run->desc)[0]
                                      : rg_op_output_names(run->op, run->desc)[0]);
    for (int i = 0; i < inputs && status == 0; i++) {
        rg_operand operand;
        status = rg_op_run_operand(run, argv[i], false, &operand);
        if (status == 0)
            status = rg_op_run_load(run, &operand);
    }
    return status;
}

/* Inputs and outputs follow from the fields, so those are checked first. */
static int count_tensors(rg_op_run *run)
{
    _Alignas(16) char checked[RG_MAX_DESC];
    if (rg_fields_copy(&run->op->desc, run->called, run->desc, checked) != RG_OK ||
        (run->op->check != NULL && run->op->check(checked) != RG_OK))
        return rg_wrong("%s", rg_error_text());
    run->inputs = rg_op_inputs(run->op, run->desc);
    run->outputs = rg_op_outputs(run->op, run->desc);
    run->gradients = rg_op_gradients(run->op, run->desc);
    return 0;
}

static int run_op(rg_op_run *run, const request *r, int argc, char **argv)
{
    rg_dtype dtype = RG_F32;
    if (r->dtype != NULL && (rg_dtype_parse(r->dtype, &dtype) != RG_OK || !rg_dtype_is_data(dtype)))
        return rg_wrong("--dtype must be f32, f64, f16 or bf16, not '%s'", r->dtype);
    if (r->gradient && run->name != NULL && !run->name->gradient)
        return rg_wrong("%s is the name of a forward pass; use --gradient with '%s'", run->called,
                        run->op->name);
    if ((r->gradient || run->gradient) && run->op->gradient == NULL)
        return rg_wrong("%s has no gradient", run->called);
    run->gradient |= r->gradient;
    int status = open_device(run, r);
    if (status == 0)
        status = take_operands(run, argc, argv);
    if (status == 0 && r->dtype != NULL)
        status = rg_op_run_convert(run, dtype);
    if (status == 0)
        status = rg_op_run_run(run);
    return status == 0 ? rg_op_run_save(run) : status;
}

/* By a name of ONNX, ONNX's rules hold: its attributes, defaults and order of dimensions. */
static int run_onnx(rg_op_onnx *onnx, const request *r, const rg_option *options, int argc,
                    char **argv)
{
    const char *called = onnx->entry->name;
    const int left = rg_options_take(options, argc, argv, rg_op_onnx_take, onnx);
    if (left < 0)
        return 2;
    if (r->list) {
        rg_op_list();
        return 0;
    }
    if (r->help) {
        rg_op_onnx_help(onnx);
        rg_options_help(options);
        return 0;
    }
    if (r->gradient && !onnx->entry->gradient)
        return rg_wrong("%s is the name of a forward pass; use --gradient with '%s'", called,
                        onnx->entry->op->name);
    const rg_onnx_options o = { r->device, r->dtype, r->isa, r->threads };
    return rg_op_onnx_run(onnx, &o, left, argv);
}

int rg_cmd_op(int argc, char **argv)
{
    request r = { .device = "cpu" };
    const rg_option options[] = {
        { "gradient", RG_OPTION_FLAG, &r.gradient, NULL, "run the gradient" },
        { "device", RG_OPTION_TEXT, &r.device, "D", "cpu, cuda or cuda:N (default cpu)" },
        { "dtype", RG_OPTION_TEXT, &r.dtype, "T",
          "convert the inputs to f32, f64, f16 or bf16; bf16 results are written as f32" },
        { "threads", RG_OPTION_COUNT, &r.threads, "N", "number of CPU threads (default: all)" },
        { "isa", RG_OPTION_TEXT, &r.isa, "ISA",
          "highest instruction set to use: base, avx2 or avx512" },
        { "list", RG_OPTION_FLAG, &r.list, NULL, "list all ops and their other names" },
        { "help", RG_OPTION_FLAG, &r.help, NULL,
          "print this help; after the name of an op, also its fields" },
        { .name = NULL },
    };
    const bool named = argc > 0 && argv[0][0] != '-'; /* the op decides what the options are */
    rg_op_onnx onnx;
    if (named && rg_op_onnx_begin(&onnx, argv[0]))
        return run_onnx(&onnx, &r, options, argc - 1, argv + 1);
    rg_op_run run = { 0 };
    if (named && rg_op_run_begin(&run, argv[0]) != 0)
        return 2;
    const int left =
        rg_options_take(options, argc - named, argv + named, named ? take_field : NULL, &run);
    if (left < 0)
        return 2;
    if (r.list) {
        rg_op_list();
        return 0;
    }
    if (!named && !r.help)
        return rg_wrong("the first argument must be the name of an op; see retrograde op --list");
    if (named && count_tensors(&run) != 0)
        return 2;
    if (r.help) {
        if (named)
            rg_op_run_help(&run);
        else
            printf("usage: retrograde op NAME [--FIELD VALUE]... [NAME=FILE]... -o NAME=FILE...\n\n"
                   "Runs one op or its gradient on NPY files. retrograde op NAME --help lists the "
                   "fields and\n"
                   "tensors of an op.\n\n");
        rg_options_help(options);
        return 0;
    }
    const int status = run_op(&run, &r, left, argv + 1);
    rg_op_run_end(&run);
    return status;
}
