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

/* ---- attributes ---- */

/* The type of an attribute in ONNX's words, whatever it should be; NULL: the node has none. Lists
 * come last, because a list of numbers can be read from anything, and is empty then. */
static const char *type_of(const rg_ort_node *k, const ort_kernel_info *info, const char *name)
{
    const ort_api *api = k->api;
    int64_t number;
    float value;
    size_t size = 0, ints = 0, floats = 0;
    if (ort_succeeded(api, ort_attribute_int(api, info, name, &number)))
        return "an int";
    if (ort_succeeded(api, ort_attribute_float(api, info, name, &value)))
        return "a float";
    if (ort_succeeded(api, ort_attribute_text(api, info, name, NULL, &size)))
        return "a string";
    const bool some = ort_succeeded(api, ort_attribute_floats(api, info, name, NULL, &floats));
    if (some && floats > 0)
        return "a list of floats";
    if (ort_succeeded(api, ort_attribute_ints(api, info, name, NULL, &ints)) && ints > 0)
        return "a list of ints";
    return some ? "an empty list, or of another type" : NULL;
}

/* An attribute that is not of its type must not be taken for one that is absent. */
static rg_status check_absent(const rg_ort_node *k, const ort_kernel_info *info,
                              const rg_onnx_spec *spec, const char *wanted)
{
    const char *type = type_of(k, info, spec->name);
    RG_CHECK(type == NULL, RG_INVALID_ARGUMENT, "%s: the attribute %s must be %s, but it is %s",
             k->registered->entry->name, spec->name, wanted, type);
    return RG_OK;
}

static rg_status read_ints(rg_ort_node *k, const ort_kernel_info *info, const rg_onnx_spec *spec,
                           rg_attribute *a)
{
    const ort_api *api = k->api;
    int64_t *const values = k->ints[k->attribute_count];
    size_t count = 0;
    if (!ort_succeeded(api, ort_attribute_ints(api, info, spec->name, NULL, &count)))
        return check_absent(k, info, spec, "a list of ints");
    const char *type = count == 0 ? type_of(k, info, spec->name) : NULL;
    RG_CHECK(type == NULL || strncmp(type, "an empty", 8) == 0, RG_INVALID_ARGUMENT,
             "%s: the attribute %s must be a list of ints, but it is %s",
             k->registered->entry->name, spec->name, type);
    RG_CHECK(count <= RG_ONNX_VALUES, RG_INVALID_ARGUMENT,
             "%s: the attribute %s has %zu values; at most %d are supported",
             k->registered->entry->name, spec->name, count, RG_ONNX_VALUES);
    RG_CHECK(count == 0 ||
                 ort_succeeded(api, ort_attribute_ints(api, info, spec->name, values, &count)),
             RG_INVALID_ARGUMENT, "%s: the attribute %s cannot be read", k->registered->entry->name,
             spec->name);
    a->ints = values;
    a->count = (int32_t)count;
    k->attribute_count++;
    return RG_OK;
}

static rg_status read_text(rg_ort_node *k, const ort_kernel_info *info, const rg_onnx_spec *spec,
                           rg_attribute *a)
{
    const ort_api *api = k->api;
    char *const text = k->texts[k->attribute_count];
    size_t length = 0, capacity = RG_ORT_TEXT;
    if (!ort_succeeded(api, ort_attribute_text(api, info, spec->name, NULL, &length)))
        return check_absent(k, info, spec, "a string");
    RG_CHECK(length <= RG_ORT_TEXT, RG_INVALID_ARGUMENT,
             "%s: the attribute %s has %zu characters, more than any of its values",
             k->registered->entry->name, spec->name, length - 1);
    RG_CHECK(ort_succeeded(api, ort_attribute_text(api, info, spec->name, text, &capacity)),
             RG_INVALID_ARGUMENT, "%s: the attribute %s cannot be read", k->registered->entry->name,
             spec->name);
    a->text = text;
    k->attribute_count++;
    return RG_OK;
}

static rg_status read_number(rg_ort_node *k, const ort_kernel_info *info, const rg_onnx_spec *spec,
                             rg_attribute *a)
{
    const int32_t i = k->attribute_count;
    const bool whole = strcmp(spec->type, "int") == 0;
    float number = 0;
    if (!ort_succeeded(k->api, whole ? ort_attribute_int(k->api, info, spec->name, k->ints[i])
                                     : ort_attribute_float(k->api, info, spec->name, &number)))
        return check_absent(k, info, spec, whole ? "an int" : "a float");
    k->floats[i] = (double)number;
    a->ints = whole ? k->ints[i] : NULL;
    a->floats = whole ? NULL : &k->floats[i];
    k->attribute_count++;
    return RG_OK;
}

/* Reads an attribute if the node has it; absent ones have defaults, which the operator knows. */
static rg_status read_attribute(rg_ort_node *k, const ort_kernel_info *info,
                                const rg_onnx_spec *spec)
{
    const int32_t i = k->attribute_count;
    rg_attribute *a = &k->attributes[i];
    k->names[i] = *spec;
    *a = (rg_attribute){ .name = k->names[i].name, .count = 1 };
    if (strcmp(spec->type, "ints") == 0)
        return read_ints(k, info, spec, a);
    if (strcmp(spec->type, "text") == 0)
        return read_text(k, info, spec, a);
    const bool number = strcmp(spec->type, "int") == 0 || strcmp(spec->type, "float") == 0;
    return number ? read_number(k, info, spec, a) : RG_OK;
}

/* ---- results ---- */

/* The shape of the result, where the model says it: gradients of pooling have no other way to know.
 * A dimension that is not known is -1. */
static void read_output_shape(rg_ort_node *k, const ort_kernel_info *info)
{
    ort_type_info *type = NULL;
    const ort_shape *shape = NULL;
    size_t rank = 0;
    if (strstr(k->registered->entry->name, "PoolGrad") == NULL || k->shape_rank > 0 ||
        !ort_succeeded(k->api, ort_output_type(k->api, info, 0, &type)))
        return;
    if (ort_succeeded(k->api, ort_type_shape(k->api, type, &shape)) && shape != NULL &&
        ort_succeeded(k->api, ort_shape_rank(k->api, shape, &rank)) && rank <= RG_MAX_RANK &&
        ort_succeeded(k->api, ort_shape_dims(k->api, shape, k->shape, rank)))
        k->shape_rank = (int32_t)rank;
    ort_release_type(k->api, type);
}

/* Ops know the shape of a result as an attribute. The batch may be unknown, -1. */
static void add_shape(rg_ort_node *k)
{
    const int32_t i = k->attribute_count;
    for (int32_t d = 1; d < k->shape_rank; d++) {
        if (k->shape[d] < 0)
            return;
    }
    if (k->shape_rank == 0 || i == RG_ORT_ATTRIBUTES || k->has_shape)
        return;
    memcpy(k->ints[i], k->shape, sizeof k->shape);
    k->attributes[i] =
        (rg_attribute){ .name = "shape", .ints = k->ints[i], .count = k->shape_rank };
    k->attribute_count++;
}

/* With strides several shapes of X have this dY, and a guess could be wrong without a word. */
static void find_need_of_x(rg_ort_node *k)
{
    bool known = k->shape_rank > 0;
    for (int32_t d = 1; d < k->shape_rank; d++)
        known = known && k->shape[d] >= 0;
    for (int32_t i = 0; i < k->attribute_count && !known; i++) {
        const rg_attribute *a = &k->attributes[i];
        for (int32_t j = 0; strcmp(a->name, "strides") == 0 && j < a->count; j++)
            k->needs_x |= a->ints[j] != 1;
    }
    k->needs_x &= strstr(k->registered->entry->name, "PoolGrad") != NULL;
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
    k->has_shape = k->shape_rank > 0;
    read_output_shape(k, info);
    add_shape(k);
    find_need_of_x(k);
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
    k->borrows = rg_ort_borrows(api);
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
