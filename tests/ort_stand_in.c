/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The functions of the stand-in for ONNX Runtime. */
#include "ort_stand_in.h"
#include "ort/ort_kernel.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

ort_status *RegisterCustomOps(ort_session_options *options, const ort_api_base *base);

/* ---- statuses ---- */

static ort_status *create_status(ort_code code, const char *text)
{
    ort_status *status = calloc(1, sizeof *status);
    status->code = code;
    snprintf(status->text, sizeof status->text, "%s", text);
    return status;
}

void stand_in_release(ort_status *status)
{
    free(status);
}

/* ---- domains ---- */

struct ort_domain {
    char name[32];
    const ort_custom_op *ops[256];
    int count;
};
static struct ort_domain *domains[8]; /* of the session options */
static int domain_count, alive;

static ort_status *create_domain(const char *name, ort_domain **domain)
{
    *domain = calloc(1, sizeof **domain);
    snprintf((*domain)->name, sizeof(*domain)->name, "%s", name);
    alive++;
    return NULL;
}

static ort_status *domain_add(ort_domain *domain, const ort_custom_op *op)
{
    domain->ops[domain->count++] = op;
    return NULL;
}

static ort_status *add_domain(ort_session_options *options, ort_domain *domain)
{
    (void)options;
    domains[domain_count++] = domain;
    return NULL;
}

static void release_domain(ort_domain *domain)
{
    alive--;
    free(domain);
}

int stand_in_alive(void)
{
    return alive;
}

int stand_in_count(const char *domain)
{
    for (int i = 0; i < domain_count; i++) {
        if (strcmp(domains[i]->name, domain) == 0)
            return domains[i]->count;
    }
    return 0;
}

const ort_custom_op *stand_in_find(const char *domain, const char *name, ort_type type, bool cuda)
{
    for (int i = 0; i < domain_count; i++) {
        for (int k = 0; k < domains[i]->count && strcmp(domains[i]->name, domain) == 0; k++) {
            const ort_custom_op *op = domains[i]->ops[k];
            const ort_entry *entry = (const ort_entry *)(const void *)op;
            if (strcmp(op->get_name(op), name) == 0 && entry->type == type &&
                (op->get_provider(op) != NULL) == cuda)
                return op;
        }
    }
    return NULL;
}

/* ---- attributes ---- */

static const stand_in_attribute *attribute_of(const ort_kernel_info *info, const char *name,
                                              char kind)
{
    for (int i = 0; i < info->attribute_count; i++) {
        if (strcmp(info->attributes[i].name, name) == 0 &&
            (kind == 0 || info->attributes[i].kind == kind))
            return &info->attributes[i];
    }
    return NULL;
}

static ort_status *absent(void)
{
    return create_status(ORT_FAIL, "no such attribute");
}

static ort_status *attribute_float(const ort_kernel_info *info, const char *name, float *value)
{
    const stand_in_attribute *a = attribute_of(info, name, 'f');
    if (a == NULL)
        return absent();
    *value = a->number;
    return NULL;
}

static ort_status *attribute_int(const ort_kernel_info *info, const char *name, int64_t *value)
{
    const stand_in_attribute *a = attribute_of(info, name, 'i');
    if (a == NULL)
        return absent();
    *value = a->ints[0];
    return NULL;
}

static ort_status *attribute_text(const ort_kernel_info *info, const char *name, char *text,
                                  size_t *size)
{
    const stand_in_attribute *a = attribute_of(info, name, 't');
    if (a == NULL)
        return absent();
    if (text != NULL && strlen(a->text) + 1 > *size)
        return create_status(ORT_INVALID_ARGUMENT, "the text is longer");
    if (text != NULL)
        strcpy(text, a->text);
    *size = strlen(a->text) + 1;
    return NULL;
}

/* Attributes of other types are read as empty lists, as ONNX Runtime does. */
static ort_status *attribute_ints(const ort_kernel_info *info, const char *name, int64_t *values,
                                  size_t *count)
{
    const stand_in_attribute *a = attribute_of(info, name, 0);
    if (a == NULL)
        return absent();
    *count = a->kind == 'n' ? a->count : 0;
    if (values != NULL)
        memcpy(values, a->ints, *count * sizeof values[0]);
    return NULL;
}

static ort_status *attribute_floats(const ort_kernel_info *info, const char *name, float *values,
                                    size_t *count)
{
    (void)values;
    *count = 0;
    return attribute_of(info, name, 0) != NULL ? NULL : absent();
}

static ort_status *output_name(const ort_kernel_info *info, size_t index, char *text, size_t *size)
{
    const char *name = info->absent_outputs >> index & 1 ? "" : "y";
    if (text != NULL && *size < strlen(name) + 1)
        return create_status(ORT_INVALID_ARGUMENT, "the name is longer");
    if (text != NULL)
        strcpy(text, name);
    *size = strlen(name) + 1;
    return NULL;
}

static ort_status *output_type(const ort_kernel_info *info, size_t index, ort_type_info **type)
{
    (void)index;
    if (info->shape == NULL)
        return create_status(ORT_FAIL, "the type is not known");
    *type = (ort_type_info *)(uintptr_t)info->shape;
    return NULL;
}

static ort_status *type_shape(const ort_type_info *type, const ort_shape **shape)
{
    *shape = (const ort_shape *)(const void *)type;
    return NULL;
}

static void release_type(ort_type_info *type)
{
    (void)type;
}

/* ---- tensors ---- */

size_t stand_in_size(ort_type type)
{
    return type == ORT_FLOAT || type == ORT_INT32    ? 4
           : type == ORT_DOUBLE || type == ORT_INT64 ? 8
           : type == ORT_BOOL                        ? 1
                                                     : 2;
}

static ort_status *input_count(const ort_context *context, size_t *count)
{
    *count = context->input_count;
    return NULL;
}

static ort_status *output_count(const ort_context *context, size_t *count)
{
    *count = context->output_count;
    return NULL;
}

static ort_status *get_input(const ort_context *context, size_t index, const ort_value **value)
{
    if (index >= context->input_count)
        return create_status(ORT_INVALID_ARGUMENT, "no such input");
    *value = context->inputs[index];
    return NULL;
}

static ort_status *get_output(ort_context *context, size_t index, const int64_t *dims, size_t rank,
                              ort_value **value)
{
    *value = NULL;
    if (index >= context->output_count || (context->absent_outputs >> index & 1))
        return NULL;
    ort_value *made = &context->outputs[index];
    if (made->data != NULL) {
        *value = made;
        return NULL;
    }
    made->type = context->op->get_output_type(context->op, index);
    made->rank = rank;
    made->bytes = stand_in_size(made->type);
    for (size_t d = 0; d < rank; d++) {
        made->dims[d] = dims[d];
        made->bytes *= (size_t)dims[d];
    }
    made->data = context->allocate(made->bytes);
    *value = made;
    return NULL;
}

static ort_status *tensor_data(ort_value *value, void **data)
{
    *data = value->bytes > 0 ? value->data : NULL;
    return NULL;
}

static int shapes_made;

int stand_in_shapes(void)
{
    return shapes_made;
}

static ort_status *value_shape(const ort_value *value, ort_shape **shape)
{
    shapes_made++;
    *shape = malloc(sizeof *value);
    memcpy(*shape, value, sizeof *value);
    return NULL;
}

static const ort_value *shown(const ort_shape *shape)
{
    return (const ort_value *)(const void *)shape;
}

static ort_status *shape_type(const ort_shape *shape, ort_type *type)
{
    *type = shown(shape)->type;
    return NULL;
}

static ort_status *shape_rank(const ort_shape *shape, size_t *rank)
{
    *rank = shown(shape)->rank;
    return NULL;
}

static ort_status *shape_dims(const ort_shape *shape, int64_t *dims, size_t rank)
{
    memcpy(dims, shown(shape)->dims, rank * sizeof dims[0]);
    return NULL;
}

static ort_status *borrowed_shape(const ort_value *value, ort_type *type, const int64_t **dims,
                                  size_t *rank)
{
    *type = value->type;
    *dims = value->rank > 0 ? value->dims : NULL;
    *rank = value->rank;
    return NULL;
}

static void release_shape(ort_shape *shape)
{
    free(shape);
}

/* ---- threads and streams ---- */

static ort_status *gpu_stream(const ort_context *context, void **stream)
{
    *stream = context->stream;
    return NULL;
}

typedef struct job {
    void (*task)(void *data, size_t index);
    void *data;
    size_t index, count;
} job;

static void *run_job(void *data)
{
    const job *j = data;
    for (size_t i = j->index; i < j->count; i += 2)
        j->task(j->data, i);
    return NULL;
}

/* Two threads. */
static ort_status *parallel_for(const ort_context *context, void (*task)(void *, size_t),
                                size_t count, size_t batches, void *data)
{
    pthread_t other;
    job jobs[2] = { { task, data, 0, count }, { task, data, 1, count } };
    (void)batches;
    ((ort_context *)(uintptr_t)context)->tasks += (int)count;
    const bool started = pthread_create(&other, NULL, run_job, &jobs[1]) == 0;
    run_job(&jobs[0]);
    if (started)
        pthread_join(other, NULL);
    else
        run_job(&jobs[1]);
    return NULL;
}

/* ---- the table ---- */

#define ENTRY(index, function) [index] = (ort_function *)(function)

static const ort_api api_21 = { .entries = { ENTRY(ORT_CREATE_STATUS, create_status),
                                             ENTRY(ORT_CREATE_DOMAIN, create_domain),
                                             ENTRY(ORT_DOMAIN_ADD, domain_add),
                                             ENTRY(ORT_ADD_DOMAIN, add_domain),
                                             ENTRY(ORT_TENSOR_DATA, tensor_data),
                                             ENTRY(ORT_SHAPE_TYPE, shape_type),
                                             ENTRY(ORT_SHAPE_RANK, shape_rank),
                                             ENTRY(ORT_SHAPE_DIMS, shape_dims),
                                             ENTRY(ORT_VALUE_SHAPE, value_shape),
                                             ENTRY(ORT_ATTRIBUTE_FLOAT, attribute_float),
                                             ENTRY(ORT_ATTRIBUTE_INT, attribute_int),
                                             ENTRY(ORT_ATTRIBUTE_TEXT, attribute_text),
                                             ENTRY(ORT_INPUT_COUNT, input_count),
                                             ENTRY(ORT_OUTPUT_COUNT, output_count),
                                             ENTRY(ORT_INPUT, get_input),
                                             ENTRY(ORT_OUTPUT, get_output),
                                             ENTRY(ORT_RELEASE_STATUS, stand_in_release),
                                             ENTRY(ORT_RELEASE_SHAPE, release_shape),
                                             ENTRY(ORT_RELEASE_DOMAIN, release_domain),
                                             ENTRY(ORT_ATTRIBUTE_INTS, attribute_ints),
                                             ENTRY(ORT_ATTRIBUTE_FLOATS, attribute_floats),
                                             ENTRY(ORT_TYPE_SHAPE, type_shape),
                                             ENTRY(ORT_RELEASE_TYPE, release_type),
                                             ENTRY(ORT_GPU_STREAM, gpu_stream),
                                             ENTRY(ORT_OUTPUT_NAME, output_name),
                                             ENTRY(ORT_OUTPUT_TYPE, output_type),
                                             ENTRY(ORT_PARALLEL_FOR, parallel_for) } };

static ort_api api_24; /* the same, and what version 24 has */
static const ort_api *api = &api_24;

void stand_in_choose(uint32_t version)
{
    memcpy(&api_24, &api_21, sizeof api_24);
    api_24.entries[ORT_BORROWED_SHAPE] = (ort_function *)borrowed_shape;
    api = version < 24 ? &api_21 : &api_24;
}

static uint32_t latest(void)
{
    return api == &api_21 ? 21 : 24;
}

static const ort_api *get_api(uint32_t version)
{
    return version <= latest() ? api : NULL;
}

static const char *get_version(void)
{
    return api == &api_21 ? "1.21.0" : "1.24.0";
}

static const ort_api *get_old_api(uint32_t version)
{
    return version < ORT_API_VERSION ? api : NULL;
}

static const char *get_old_version(void)
{
    return "1.20.0";
}

ort_status *stand_in_load_into_old(void)
{
    const ort_api_base old = { get_old_api, get_old_version };
    return RegisterCustomOps(NULL, &old);
}

const ort_api_base stand_in_base = { get_api, get_version };

bool stand_in_load(void)
{
    domain_count = 0;
    if (api_24.entries[0] == NULL)
        stand_in_choose(24);
    ort_status *status = RegisterCustomOps(NULL, &stand_in_base);
    stand_in_release(status);
    return status == NULL;
}

ort_status *stand_in_run(const ort_custom_op *op, const struct ort_kernel_info *info,
                         struct ort_context *context)
{
    void *kernel = NULL;
    context->op = op;
    context->absent_outputs = info->absent_outputs;
    ort_status *status = op->create_kernel_v2(op, api, info, &kernel);
    if (status != NULL)
        return status;
    /* More than once: from the second time on a node may run what it keeps. */
    for (int i = 0; i < 4 && status == NULL; i++)
        status = op->compute_v2(kernel, context);
    op->destroy_kernel(kernel);
    return status;
}
