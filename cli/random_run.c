/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* One random trial: dense on one thread, then as it was drawn. */
#include "cli/random_case.h"
#include "core/shape.h"
#include "runtime/strategy.h"

#include <stdlib.h>

enum { MOST_DEVICES = 64 };

struct rg_random_devices {
    const char *name;
    int count;
    struct {
        char isa[16];
        int32_t threads;
        rg_device *device;
        rg_queue *queue;
    } opened[MOST_DEVICES];
};

rg_random_devices *rg_random_devices_open(const char *device)
{
    rg_random_devices *devices = calloc(1, sizeof *devices);
    if (devices != NULL)
        devices->name = device;
    return devices;
}

void rg_random_devices_close(rg_random_devices *devices)
{
    for (int i = 0; devices != NULL && i < devices->count; i++) {
        rg_queue_destroy(devices->opened[i].queue);
        rg_device_destroy(devices->opened[i].device);
    }
    free(devices);
}

/* The device for an instruction set and a number of threads, and a queue. */
static rg_status find_device(rg_random_devices *devices, const char *isa, int32_t threads,
                             rg_device **device, rg_queue **queue)
{
    int i = 0;
    while (i < devices->count &&
           (strcmp(devices->opened[i].isa, isa) != 0 || devices->opened[i].threads != threads))
        i++;
    if (i == devices->count) {
        RG_CHECK(i < MOST_DEVICES, RG_OUT_OF_MEMORY, "too many open devices");
        rg_device_options options = rg_device_options_default();
        options.isa = isa[0] != 0 ? isa : NULL;
        options.threads = threads;
        RG_TRY(rg_device_create(devices->name, &options, &devices->opened[i].device));
        const rg_status status =
            rg_queue_create(devices->opened[i].device, &devices->opened[i].queue);
        if (status != RG_OK) {
            rg_device_destroy(devices->opened[i].device);
            return status;
        }
        snprintf(devices->opened[i].isa, sizeof devices->opened[i].isa, "%s", isa);
        devices->opened[i].threads = threads;
        devices->count++;
    }
    *device = devices->opened[i].device;
    *queue = devices->opened[i].queue;
    return RG_OK;
}

/* Values that the op's header forbids must be reported when the commands have run. */
static void check_fault(rg_checker *checker, const rg_values *values)
{
    const rg_op *op = values->test->op;
    rg_kernel *kernel = NULL;
    rg_tensor *x[RG_MAX_INPUTS] = { 0 }, *y[RG_MAX_OUTPUTS] = { 0 };
    rg_commands *commands = NULL;
    rg_status status = rg_kernel_create(checker->device, op, values->desc, &kernel);
    for (int32_t i = 0; i < values->inputs && status == RG_OK; i++)
        status = rg_random_tensor(checker->device, &values->x_desc[i], values->x[i], 0, &x[i]);
    for (int32_t i = 0; i < values->outputs && status == RG_OK; i++)
        status = rg_tensor_create(checker->device, &values->y_desc[i], &y[i]);
    if (status == RG_OK)
        status = rg_commands_create(checker->queue, &commands);
    checker->comparisons++;
    if (status == RG_OK) {
        status = rg_kernel_forward(kernel, commands, x, y, NULL);
        if (rg_commands_finish(commands, status) == RG_OK) {
            checker->failures++;
            snprintf(checker->said, RG_SAID, "invalid values are not reported");
        }
    }
    for (int32_t i = 0; i < RG_MAX_INPUTS; i++)
        rg_tensor_destroy(x[i]);
    for (int32_t i = 0; i < RG_MAX_OUTPUTS; i++)
        rg_tensor_destroy(y[i]);
    rg_kernel_destroy(kernel);
}

static void check(rg_checker *checker, rg_checker *plain, const rg_random_case *c,
                  const rg_values *values, rg_random_counts *counts)
{
    const uint32_t first =
        RG_FORM_GRADIENT | RG_FORM_STATE | RG_FORM_BATCH | RG_FORM_ALLOC | RG_FORM_TEMPORARY;
    rg_bits bits = { 0 };
    if (c->kind == RG_RANDOM_REFUSE) {
        rg_random_refuse(checker, values, c->seed, &counts->refused);
        return;
    }
    const rg_views dense = { 0, 0 };
    if (c->views.seed != 0 || c->threads > 1)
        rg_check_view(plain, values, &dense, c->forms & first, &bits);
    rg_check_view(checker, values, &c->views, c->forms, &bits);
    if (c->forms &
        (RG_FORM_BATCH | RG_FORM_ALLOC | RG_FORM_TEMPORARY | RG_FORM_JSON | RG_FORM_INTERLEAVE))
        rg_random_forms(checker, values, c->forms, c->seed);
}

static void count_unsure(const rg_values *v, rg_random_counts *counts)
{
    for (int32_t i = 0; i < v->outputs; i++) {
        counts->results++;
        counts->unsure += v->unsure_y >> i & 1;
    }
    for (int32_t i = 0; i < v->inputs; i++) {
        counts->results += v->want_dx[i] != NULL;
        counts->unsure += v->want_dx[i] != NULL && v->unsure_dx >> i & 1;
    }
}

/* What a caller's descriptor goes through before a kernel is made. */
static rg_status check_fields(const rg_op *op, const rg_case *c)
{
    _Alignas(16) char desc[RG_MAX_DESC], copy[RG_MAX_DESC];
    RG_TRY(rg_case_desc(op, c, desc));
    RG_TRY(rg_fields_copy(&op->desc, op->name, desc, copy));
    return op->check != NULL ? op->check(desc) : RG_OK;
}

/* Whether any input has one. */
static bool has_gradient(const rg_op *op, const rg_case *c)
{
    _Alignas(16) char desc[RG_MAX_DESC];
    bool any = false;
    if (rg_case_desc(op, c, desc) != RG_OK)
        return false;
    for (int32_t i = 0; i < rg_op_inputs(op, desc); i++)
        any |= rg_op_differentiates(op, desc, i);
    return any;
}

rg_status rg_random_run(rg_random_devices *devices, const rg_random_case *c,
                        rg_random_counts *counts, char said[RG_SAID])
{
    rg_case made = { .name = "random",
                     .fields = c->fields,
                     .x = c->shapes,
                     .flags = c->flags,
                     .dy_fill = c->dy_fill };
    memcpy(made.x_fill, c->x_fill, sizeof made.x_fill);
    const char *forced = c->strategy[0] != 0 ? c->strategy : NULL;
    said[0] = 0;
    RG_TRY(check_fields(c->test->op, &made));
    rg_checker checker = { .options = "", .seed = c->seed, .said = said }, plain = checker;
    RG_TRY(find_device(devices, c->isa, c->threads, &checker.device, &checker.queue));
    RG_TRY(find_device(devices, c->isa, c->threads > 0 ? 1 : 0, &plain.device, &plain.queue));
    rg_choices_force(rg_device_choices(checker.device), forced);
    rg_choices_force(rg_device_choices(plain.device), forced);
    rg_values values;
    if (c->faults)
        made.flags |= RG_CASE_FORWARD;
    if (c->test->op->gradient != NULL && !has_gradient(c->test->op, &made))
        made.flags |= RG_CASE_FORWARD;
    const rg_status status = rg_values_make(c->test, &made, c->dtype, c->seed, false, &values);
    if (status == RG_OK && c->faults) {
        check_fault(&checker, &values);
    } else if (status == RG_OK) {
        rg_random_judge(&values);
        check(&checker, &plain, c, &values, counts);
        count_unsure(&values, counts);
    }
    rg_choices_force(rg_device_choices(checker.device), NULL); /* the name is the caller's */
    rg_choices_force(rg_device_choices(plain.device), NULL);
    rg_values_free(&values);
    counts->comparisons += checker.comparisons + plain.comparisons;
    counts->failures += checker.failures + plain.failures > 0;
    return status;
}
