/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Data sources: parameters that are loaded, and changed after each run, by functions of the
 * caller. */
#include "graph/plan.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- in a graph ---- */

rg_data_source rg_data_source_default(void)
{
    return (rg_data_source){ .size = sizeof(rg_data_source) };
}

static rg_status check_source(const char *name, const rg_data_source *source)
{
    RG_CHECK(source != NULL, RG_INVALID_ARGUMENT, "rg_graph_parameter_from: source is NULL");
    RG_CHECK(
        source->size == sizeof *source, RG_INVALID_ARGUMENT,
        "the data source of '%s' has size %u, not %zu; initialize it with rg_data_source_default()",
        name != NULL ? name : "", source->size, sizeof *source);
    RG_CHECK(source->load != NULL, RG_INVALID_ARGUMENT,
             "the data source of '%s' has no load function", name != NULL ? name : "");
    RG_CHECK(source->style == RG_UPDATE_NONE || source->style == RG_UPDATE_DEVICE ||
                 source->style == RG_UPDATE_HOST,
             RG_INVALID_ARGUMENT, "the data source of '%s' has the unknown style %d",
             name != NULL ? name : "", (int)source->style);
    return RG_OK;
}

rg_value *rg_graph_parameter_from(rg_graph *graph, const char *name, const rg_data_source *source)
{
    if (graph == NULL || rg_graph_mistake(graph, check_source(name, source)) != RG_OK)
        return NULL;
    rg_value *value = rg_graph_parameter(graph, name, &source->desc);
    if (value == NULL)
        return NULL;
    value->data = *source;
    value->stops = source->style == RG_UPDATE_NONE;
    return value;
}

rg_value *rg_value_updates_by(const rg_value *value)
{
    const rg_data_source *data = &value->data;
    const bool updates = value->kind == RG_VALUE_PARAMETER && data->size > 0 &&
                         ((data->style == RG_UPDATE_DEVICE && data->update_on_device != NULL) ||
                          (data->style == RG_UPDATE_HOST && data->update_on_host != NULL));
    return updates ? value->gradient : NULL;
}

/* ---- loading ---- */

/* Copies the elements of a data source into the parameter. */
static rg_status load(const rg_data_source *data, const char *name, rg_tensor *parameter)
{
    const void *elements = NULL;
    const rg_status status = data->load(data->context, &elements);
    const size_t bytes =
        (size_t)rg_shape_count(&parameter->desc) * rg_dtype_size(parameter->desc.dtype);
    RG_CHECK(status == RG_OK, status, "the data source of '%s' could not be loaded: %s", name,
             rg_status_name(status));
    rg_status copied =
        elements != NULL || bytes == 0
            ? rg_tensor_write(parameter, elements, bytes, RG_LAYOUT_SAME)
            : rg_fail(RG_INVALID_ARGUMENT, "the data source of '%s' returned no data", name);
    if (data->purge != NULL)
        data->purge(data->context);
    return copied;
}

rg_status rg_plan_load_new(rg_plan *plan)
{
    for (size_t v = 0; v < plan->graph->values_count; v++) {
        const rg_value *value = plan->graph->values[v];
        if (plan->parameters[v] != NULL && plan->parameters[v]->refs == 1 && value->data.size > 0)
            RG_TRY(load(&value->data, value->name, plan->parameters[v]));
    }
    return RG_OK;
}

rg_status rg_plan_reload(rg_plan *plan, const char *name)
{
    bool found = name == NULL;
    RG_CHECK_NOT_NULL(plan);
    RG_TRY(rg_plan_wait_updates(plan));
    for (size_t v = 0; v < plan->graph->values_count; v++) {
        const rg_value *value = plan->graph->values[v];
        if (plan->parameters[v] == NULL || value->data.size == 0 ||
            (name != NULL && strcmp(value->name, name) != 0))
            continue;
        found = true;
        RG_TRY(load(&value->data, value->name, plan->parameters[v]));
    }
    RG_CHECK(found, RG_INVALID_ARGUMENT,
             "rg_plan_reload: the plan has no parameter '%s' with a data source", name);
    return RG_OK;
}

/* ---- what has to be updated ---- */

static int by_time(const void *a, const void *b)
{
    const rg_plan_update *x = a, *y = b;
    if (x->made != y->made)
        return x->made < y->made ? -1 : 1;
    return x->parameter < y->parameter ? -1 : 1;
}

rg_status rg_plan_note_updates(rg_plan *plan)
{
    const rg_graph *graph = plan->graph;
    int32_t count = 0;
    for (size_t i = 0; i < graph->values_count; i++)
        count += rg_value_updates_by(graph->values[i]) != NULL;
    RG_TRY(rg_allocate_array((size_t)count, sizeof *plan->updates, &plan->updates));
    for (size_t i = 0; i < graph->values_count; i++) {
        const rg_value *gradient = rg_value_updates_by(graph->values[i]);
        if (gradient == NULL)
            continue;
        RG_CHECK(gradient->kind == RG_VALUE_OUTPUT || gradient->kind == RG_VALUE_CONSTANT,
                 RG_UNSUPPORTED, "the gradient of '%s' is '%s', which no run computes",
                 graph->values[i]->name, gradient->name);
        plan->updates[plan->updates_count++] =
            (rg_plan_update){ (int32_t)i, gradient->id, plan->slots[gradient->id].made,
                              graph->values[i]->data };
    }
    if (count > 0)
        qsort(plan->updates, (size_t)plan->updates_count, sizeof *plan->updates, by_time);
    return RG_OK;
}

/* ---- updates on the host ---- */

typedef struct host_update {
    rg_data_source data;
    rg_tensor *gradient, *parameter;
    char *name;
} host_update;

/* A run whose end calls data sources. It belongs to the plan and to the commands, so that either
 * may go first. */
typedef struct rg_host_run {
    rg_refs refs;
    rg_device *device;
    rg_queue *queue;
    rg_completion *completion; /* of the submission that the run is recorded in */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool done;
    rg_status status; /* of the updates */
    char text[512];
    int32_t count, capacity;
    host_update updates[];
} rg_host_run;

static void release_run(void *context)
{
    rg_host_run *run = context;
    if (run == NULL || --run->refs > 0)
        return;
    for (int32_t i = 0; i < run->count; i++) {
        rg_tensor_destroy(run->updates[i].gradient);
        rg_tensor_destroy(run->updates[i].parameter);
        free(run->updates[i].name);
    }
    rg_device *device = run->device;
    rg_completion_release(&device->allocator, run->completion);
    rg_queue_release(run->queue);
    pthread_mutex_destroy(&run->lock);
    pthread_cond_destroy(&run->changed);
    rg_release(&rg_default_allocator, run,
               sizeof *run + (size_t)run->capacity * sizeof run->updates[0]);
    rg_device_destroy(device);
}

static rg_status update_one(const host_update *u)
{
    const size_t bytes =
        (size_t)rg_shape_count(&u->gradient->desc) * rg_dtype_size(u->gradient->desc.dtype);
    const size_t own =
        (size_t)rg_shape_count(&u->parameter->desc) * rg_dtype_size(u->parameter->desc.dtype);
    void *gradient = NULL, *elements = NULL;
    rg_status status = rg_allocate(&rg_default_allocator, bytes, &gradient);
    if (status == RG_OK)
        status = rg_allocate(&rg_default_allocator, own, &elements);
    if (status == RG_OK)
        status = rg_tensor_read(u->gradient, gradient, bytes, RG_LAYOUT_SAME);
    if (status == RG_OK)
        status = rg_tensor_read(u->parameter, elements, own, RG_LAYOUT_SAME);
    if (status == RG_OK && u->data.update_on_host(u->data.context, gradient, elements))
        status = load(&u->data, u->name, u->parameter);
    rg_release(&rg_default_allocator, gradient, bytes);
    rg_release(&rg_default_allocator, elements, own);
    return status;
}

static void run_ended(void *context, rg_status outcome)
{
    rg_host_run *run = context;
    rg_status status = RG_OK;
    for (int32_t i = 0; i < run->count && outcome == RG_OK && status == RG_OK; i++)
        status = update_one(&run->updates[i]);
    pthread_mutex_lock(&run->lock);
    run->status = status;
    if (status != RG_OK)
        snprintf(run->text, sizeof run->text, "%s", rg_error_text());
    run->done = true;
    pthread_cond_broadcast(&run->changed);
    pthread_mutex_unlock(&run->lock);
}

static rg_status fill_run(const rg_plan *plan, rg_host_run *run)
{
    for (int32_t i = 0; i < plan->updates_count; i++) {
        const rg_plan_update *update = &plan->updates[i];
        if (update->data.style != RG_UPDATE_HOST)
            continue;
        host_update *u = &run->updates[run->count++];
        *u = (host_update){ .data = update->data,
                            .gradient = plan->current->tensors[update->gradient],
                            .parameter = plan->parameters[update->parameter] };
        u->gradient->refs++;
        u->parameter->refs++;
        u->name = strdup(plan->graph->values[update->parameter]->name);
        RG_CHECK(u->name != NULL, RG_OUT_OF_MEMORY, "out of memory for a name");
    }
    return RG_OK;
}

static rg_status make_run(const rg_plan *plan, const rg_commands *commands, rg_host_run **run)
{
    void *memory;
    const size_t capacity = (size_t)plan->updates_count;
    RG_TRY(rg_submission_need_completion(commands->submission));
    RG_TRY(rg_allocate_zero(&rg_default_allocator,
                            sizeof(rg_host_run) + capacity * sizeof(host_update), &memory));
    *run = memory;
    (*run)->refs = 1;
    (*run)->capacity = plan->updates_count;
    (*run)->device = rg_device_retain(plan->device);
    (*run)->queue = rg_queue_retain(commands->queue);
    (*run)->completion = commands->submission->completion;
    (*run)->completion->refs++;
    pthread_mutex_init(&(*run)->lock, NULL);
    pthread_cond_init(&(*run)->changed, NULL);
    return fill_run(plan, *run);
}

/* Makes the commands keep the run: a storage without bytes, whose end is the end of its use. */
static rg_status keep_run(rg_commands *commands, rg_host_run *run)
{
    rg_submission *submission = commands->submission;
    rg_storage *storage;
    RG_TRY(rg_grow(&submission->queue->device->allocator, (void **)&submission->used,
                   &submission->used_capacity, submission->used_count, sizeof submission->used[0]));
    RG_TRY(rg_storage_create(submission->queue->device, 0, &storage));
    const rg_status status = rg_commands_on_completion(commands, run_ended, run);
    if (status != RG_OK) {
        rg_storage_release(storage);
        return status;
    }
    run->refs++;
    storage->release = release_run;
    storage->context = run;
    submission->used[submission->used_count++] = storage;
    return RG_OK;
}

static rg_status encode_host_updates(rg_plan *plan, rg_commands *commands)
{
    rg_host_run *run = NULL;
    rg_status status = make_run(plan, commands, &run);
    if (status == RG_OK)
        status = keep_run(commands, run);
    if (status != RG_OK) {
        release_run(run);
        return status;
    }
    release_run(plan->host_run);
    plan->host_run = run;
    return RG_OK;
}

rg_status rg_plan_wait_updates(rg_plan *plan)
{
    rg_host_run *run = plan->host_run;
    if (run == NULL)
        return RG_OK;
    const int state = atomic_load(&run->completion->state);
    RG_CHECK(state != RG_COMMANDS_RECORDING, RG_INVALID_STATE,
             "the previous run has host updates, and its commands are not committed; this run "
             "would wait forever");
    if (state == RG_COMMANDS_COMMITTED)
        run->queue->device->backend->wake(run->queue->queue);
    pthread_mutex_lock(&run->lock);
    while (!run->done && atomic_load(&run->completion->state) != RG_COMMANDS_FAILED)
        pthread_cond_wait(&run->changed, &run->lock);
    const rg_status status =
        run->done && run->status != RG_OK ? rg_fail(run->status, "%s", run->text) : RG_OK;
    pthread_mutex_unlock(&run->lock);
    plan->host_run = NULL;
    release_run(run);
    return status;
}

/* ---- encoding ---- */

rg_status rg_plan_encode_updates(rg_plan *plan, rg_commands *commands)
{
    bool host = false;
    for (int32_t i = 0; i < plan->updates_count; i++) {
        const rg_plan_update *u = &plan->updates[i];
        host |= u->data.style == RG_UPDATE_HOST;
        if (u->data.style != RG_UPDATE_DEVICE)
            continue;
        RG_TRY(u->data.update_on_device(u->data.context, commands,
                                        plan->current->tensors[u->gradient],
                                        plan->parameters[u->parameter]));
    }
    return host ? encode_host_updates(plan, commands) : RG_OK;
}

void rg_plan_forget_updates(rg_plan *plan)
{
    release_run(plan->host_run);
    rg_release(&rg_default_allocator, plan->updates,
               (size_t)plan->updates_count * sizeof *plan->updates);
    if (plan->graph != NULL)
        rg_release(&rg_default_allocator, plan->state_steps,
                   plan->graph->states_count * sizeof *plan->state_steps);
}
