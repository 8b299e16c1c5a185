/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Nodes of a session: attributes are read when a node is created. */
#include "ort/ort_call.h"
#include "ort/ort_launch.h"
#include "runtime/objects.h"

#include <stdlib.h>

ort_status *rg_ort_fail(const ort_api *api, rg_status status)
{
    return ort_fail(api,
                    status == RG_UNSUPPORTED        ? ORT_NOT_IMPLEMENTED
                    : status == RG_INVALID_ARGUMENT ? ORT_INVALID_ARGUMENT
                                                    : ORT_FAIL,
                    rg_error_text());
}

/* Reads attribute i if the node has it; absent ones have defaults, which the operator knows. */
static rg_status read_attribute(rg_ort_node *k, const ort_kernel_info *info,
                                const rg_onnx_spec *spec)
{
    const int32_t i = k->attribute_count;
    const ort_api *api = k->api;
    size_t count = RG_ONNX_VALUES, length = RG_ORT_TEXT;
    rg_attribute *a = &k->attributes[i];
    float number;
    bool given = false;
    k->names[i] = *spec;
    *a = (rg_attribute){ .name = k->names[i].name, .count = 1 };
    if (strcmp(spec->type, "int") == 0) {
        given = ort_succeeded(api, ort_attribute_int(api, info, spec->name, k->ints[i]));
        a->ints = k->ints[i];
    } else if (strcmp(spec->type, "float") == 0) {
        given = ort_succeeded(api, ort_attribute_float(api, info, spec->name, &number));
        k->floats[i] = given ? (double)number : 0;
        a->floats = &k->floats[i];
    } else if (strcmp(spec->type, "ints") == 0) {
        given = ort_succeeded(api, ort_attribute_ints(api, info, spec->name, NULL, &count));
        RG_CHECK(!given || count <= RG_ONNX_VALUES, RG_INVALID_ARGUMENT,
                 "%s: the attribute %s has %zu values; at most %d are supported",
                 k->registered->entry->name, spec->name, count, RG_ONNX_VALUES);
        given = given &&
                ort_succeeded(api, ort_attribute_ints(api, info, spec->name, k->ints[i], &count));
        a->ints = k->ints[i];
        a->count = (int32_t)count;
    } else if (strcmp(spec->type, "text") == 0) {
        given = ort_succeeded(api, ort_attribute_text(api, info, spec->name, k->texts[i], &length));
        a->text = k->texts[i];
    }
    k->attribute_count += given;
    return RG_OK;
}

/* The shape of the result, where the model says it: gradients of pooling have no other way to know.
 * A dimension that is not known is -1. */
static rg_status read_output_shape(rg_ort_node *k, const ort_kernel_info *info)
{
    ort_type_info *type = NULL;
    const ort_shape *shape = NULL;
    size_t rank = 0;
    if (strstr(k->registered->entry->name, "PoolGrad") == NULL || k->shape_rank > 0 ||
        !ort_succeeded(k->api, ort_output_type(k->api, info, 0, &type)))
        return RG_OK;
    if (ort_succeeded(k->api, ort_type_shape(k->api, type, &shape)) && shape != NULL &&
        ort_succeeded(k->api, ort_shape_rank(k->api, shape, &rank)) && rank <= RG_MAX_RANK &&
        ort_succeeded(k->api, ort_shape_dims(k->api, shape, k->shape, rank)))
        k->shape_rank = (int32_t)rank;
    ort_release_type(k->api, type);
    return RG_OK;
}

/* Gradients that nobody reads have no name and are not computed. */
static void read_outputs(rg_ort_node *k, const ort_kernel_info *info)
{
    for (int32_t i = 0; i < k->registered->output_count; i++) {
        size_t size = 0;
        if (ort_succeeded(k->api, ort_output_name(k->api, info, (size_t)i, NULL, &size)) &&
            size > 1)
            k->outputs |= (uint64_t)1 << i;
    }
}

static rg_status create(rg_ort_node *k, const ort_kernel_info *info)
{
    rg_onnx_spec spec;
    RG_TRY(rg_ort_device(k->registered->cuda, &k->device));
    for (const char *at = k->registered->entry->attributes; rg_onnx_next_spec(&at, &spec);) {
        RG_CHECK(k->attribute_count < RG_ORT_ATTRIBUTES, RG_UNSUPPORTED,
                 "%s has too many attributes", k->registered->entry->name);
        RG_TRY(read_attribute(k, info, &spec));
    }
    RG_TRY(rg_onnx_check(k->registered->entry, k->attributes, k->attribute_count));
    RG_TRY(rg_ort_native_prepare(k));
    RG_TRY(read_output_shape(k, info));
    read_outputs(k, info);
    if (!k->registered->direct && !k->registered->native)
        RG_TRY(rg_operator_create(k->device, k->registered->entry->name, k->attributes,
                                  k->attribute_count, &k->general));
    return k->registered->cuda ? RG_OK : rg_queue_create(k->device, &k->queue);
}

ort_status *rg_ort_create_kernel(const ort_custom_op *op, const ort_api *api,
                                 const ort_kernel_info *info, void **kernel)
{
    rg_ort_node *k = calloc(1, sizeof *k);
    *kernel = NULL;
    if (k == NULL)
        return ort_fail(api, ORT_FAIL, "retrograde: out of memory");
    k->registered = (const ort_entry *)(const void *)op;
    k->api = api;
    pthread_mutex_init(&k->lock, NULL);
    const rg_status status = create(k, info);
    if (status != RG_OK) {
        ort_status *failure = rg_ort_fail(api, status);
        rg_ort_destroy_kernel(k);
        return failure;
    }
    *kernel = k;
    return NULL;
}

void rg_ort_destroy_kernel(void *kernel)
{
    rg_ort_node *k = kernel;
    rg_kernel_destroy(k->kernel);
    rg_operator_destroy(k->general);
    rg_queue_destroy(k->queue);
    pthread_mutex_destroy(&k->lock);
    free(k);
}
