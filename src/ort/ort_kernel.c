/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Nodes of a session: attributes are read when a node is created; a computation wraps the tensors
 * of the runtime, records, commits and, on a CPU, waits. CPU kernels run on the runtime's own
 * threads. */
#include "ort/ort_kernel.h"
#include "ort/ort_call.h"
#include "runtime/objects.h"

#include <retrograde/operator.h>
#include <retrograde/reshape.h>

#include <pthread.h>
#include <stdlib.h>

enum { ATTRIBUTES = 16, TEXT = 64 };

typedef struct ort_kernel {
    const ort_entry *registered;
    const ort_api *api;
    rg_device *device;
    int32_t attribute_count;
    rg_attribute attributes[ATTRIBUTES];
    rg_onnx_spec names[ATTRIBUTES];
    int64_t ints[ATTRIBUTES][RG_ONNX_VALUES];
    double floats[ATTRIBUTES];
    char texts[ATTRIBUTES][TEXT];
    rg_operator *general; /* NULL: the gradient of one op, which is run without copies */

    pthread_mutex_t
        lock; /* of what follows: the last kernel and the last stream, to be used again */
    rg_kernel *kernel;
    _Alignas(16) char desc[RG_MAX_DESC]; /* of `kernel` */
    rg_queue *queue;
    void *stream; /* of `queue`, on a GPU */
} ort_kernel;

static ort_status *fail(const ort_api *api, rg_status status)
{
    return ort_fail(api,
                    status == RG_UNSUPPORTED        ? ORT_NOT_IMPLEMENTED
                    : status == RG_INVALID_ARGUMENT ? ORT_INVALID_ARGUMENT
                                                    : ORT_FAIL,
                    rg_error_text());
}

/* ---- the device, on the runtime's threads ---- */

/* The computation that this thread is in. */
static _Thread_local const ort_api *current_api;
static _Thread_local const ort_context *current_context;

typedef struct job {
    void (*task)(void *data, int32_t index);
    void *data;
} job;

static void run_task(void *data, size_t index)
{
    const job *j = data;
    j->task(j->data, (int32_t)index);
}

static void run_parallel(void *context, int32_t count, void (*task)(void *data, int32_t index),
                         void *data)
{
    (void)context;
    job j = { task, data };
    if (current_api != NULL && count > 1 &&
        ort_succeeded(current_api,
                      ort_parallel_for(current_api, current_context, run_task, (size_t)count, &j)))
        return;
    for (int32_t i = 0; i < count; i++)
        task(data, i);
}

rg_status rg_ort_device(bool cuda, rg_device **device)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static rg_device *devices[2];
    const rg_parallel parallel = { run_parallel, NULL };
    rg_device_options options = rg_device_options_default();
    options.parallel = cuda ? NULL : &parallel;
    rg_status status = RG_OK;
    pthread_mutex_lock(&lock);
    if (devices[cuda] == NULL)
        status = rg_device_create(cuda ? "cuda" : "cpu", &options, &devices[cuda]);
    *device = devices[cuda];
    pthread_mutex_unlock(&lock);
    return status;
}

/* ---- nodes ---- */

/* Reads attribute i if the node has it; absent ones have defaults, which the operator knows. */
static rg_status read_attribute(ort_kernel *k, const ort_kernel_info *info,
                                const rg_onnx_spec *spec)
{
    const int32_t i = k->attribute_count;
    const ort_api *api = k->api;
    size_t count = RG_ONNX_VALUES, length = TEXT;
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

static rg_status create(ort_kernel *k, const ort_kernel_info *info)
{
    rg_onnx_spec spec;
    RG_TRY(rg_ort_device(k->registered->cuda, &k->device));
    for (const char *at = k->registered->entry->attributes; rg_onnx_next_spec(&at, &spec);) {
        RG_CHECK(k->attribute_count < ATTRIBUTES, RG_UNSUPPORTED, "%s has too many attributes",
                 k->registered->entry->name);
        RG_TRY(read_attribute(k, info, &spec));
    }
    RG_TRY(rg_onnx_check(k->registered->entry, k->attributes, k->attribute_count));
    if (!k->registered->direct)
        RG_TRY(rg_operator_create(k->device, k->registered->entry->name, k->attributes,
                                  k->attribute_count, &k->general));
    return k->registered->cuda ? RG_OK : rg_queue_create(k->device, &k->queue);
}

ort_status *rg_ort_create_kernel(const ort_custom_op *op, const ort_api *api,
                                 const ort_kernel_info *info, void **kernel)
{
    ort_kernel *k = calloc(1, sizeof *k);
    *kernel = NULL;
    if (k == NULL)
        return ort_fail(api, ORT_FAIL, "retrograde: out of memory");
    k->registered = (const ort_entry *)(const void *)op;
    k->api = api;
    pthread_mutex_init(&k->lock, NULL);
    const rg_status status = create(k, info);
    if (status != RG_OK) {
        ort_status *failure = fail(api, status);
        rg_ort_destroy_kernel(k);
        return failure;
    }
    *kernel = k;
    return NULL;
}

void rg_ort_destroy_kernel(void *kernel)
{
    ort_kernel *k = kernel;
    rg_kernel_destroy(k->kernel);
    rg_operator_destroy(k->general);
    rg_queue_destroy(k->queue);
    pthread_mutex_destroy(&k->lock);
    free(k);
}

/* ---- tensors ---- */

static rg_status dtype_of(ort_type type, rg_dtype *dtype)
{
    static const struct {
        ort_type type;
        rg_dtype dtype;
    } types[] = { { ORT_FLOAT, RG_F32 },     { ORT_DOUBLE, RG_F64 }, { ORT_FLOAT16, RG_F16 },
                  { ORT_BFLOAT16, RG_BF16 }, { ORT_INT64, RG_I64 },  { ORT_INT32, RG_I32 },
                  { ORT_BOOL, RG_U8 } };
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        if (types[i].type == type) {
            *dtype = types[i].dtype;
            return RG_OK;
        }
    }
    return rg_fail(RG_UNSUPPORTED, "tensors of ONNX's type %d are not supported", (int)type);
}

/* A computation: tensors of the runtime as ours. */
typedef struct computation {
    ort_kernel *k;
    ort_context *context;
    rg_tensor_desc shapes[RG_ONNX_TENSORS];
    rg_tensor *inputs[RG_ONNX_TENSORS], *outputs[RG_ONNX_TENSORS];
    ort_status *status; /* of the runtime, where it refused something */
} computation;

#define ORT_TRY(c, call)                                                   \
    do {                                                                   \
        (c)->status = (call);                                              \
        if ((c)->status != NULL)                                           \
            return rg_fail(RG_UNSUPPORTED, "ONNX Runtime refused a call"); \
    } while (0)

/* The pointer to memory of an empty tensor may be anything. */
static rg_status wrap(const computation *c, const rg_tensor_desc *desc, void *data,
                      rg_tensor **tensor)
{
    static _Alignas(64) char nothing[64];
    bool empty = false;
    for (int32_t d = 0; d < desc->rank; d++)
        empty = empty || desc->dims[d] == 0;
    return rg_tensor_wrap(c->k->device, desc, empty && !c->k->registered->cuda ? nothing : data,
                          NULL, NULL, tensor);
}

static rg_status read_shape(computation *c, const ort_value *value, ort_shape *shape,
                            rg_tensor_desc *desc)
{
    const ort_api *api = c->k->api;
    (void)value;
    ort_type type;
    size_t rank;
    int64_t dims[RG_MAX_RANK];
    rg_dtype dtype = RG_F32;
    ORT_TRY(c, ort_shape_type(api, shape, &type));
    ORT_TRY(c, ort_shape_rank(api, shape, &rank));
    RG_CHECK(rank <= RG_MAX_RANK, RG_UNSUPPORTED,
             "%s: a tensor has %zu dimensions; at most %d are supported",
             c->k->registered->entry->name, rank, RG_MAX_RANK);
    ORT_TRY(c, ort_shape_dims(api, shape, dims, rank));
    RG_TRY(dtype_of(type, &dtype));
    *desc = rg_tensor_desc_dense(dtype, (int32_t)rank, dims);
    return RG_OK;
}

static rg_status take_input(computation *c, size_t i)
{
    const ort_api *api = c->k->api;
    const ort_value *value = NULL;
    ort_shape *shape = NULL;
    void *data = NULL;
    ORT_TRY(c, ort_input(api, c->context, i, &value));
    if (value == NULL)
        return RG_OK;
    ORT_TRY(c, ort_value_shape(api, value, &shape));
    const rg_status status = read_shape(c, value, shape, &c->shapes[i]);
    ort_release_shape(api, shape);
    RG_TRY(status);
    ORT_TRY(c, ort_tensor_data(api, (ort_value *)(uintptr_t)value, &data));
    return wrap(c, &c->shapes[i], data, &c->inputs[i]);
}

static rg_status take_inputs(computation *c)
{
    size_t count = 0;
    ORT_TRY(c, ort_input_count(c->k->api, c->context, &count));
    for (size_t i = 0; i < RG_ONNX_TENSORS; i++)
        c->shapes[i].rank = -1;
    for (size_t i = 0; i < count && i < (size_t)c->k->registered->input_count; i++)
        RG_TRY(take_input(c, i));
    return RG_OK;
}

static rg_status make_output(computation *c, size_t i, const rg_tensor_desc *desc)
{
    ort_value *value = NULL;
    void *data = NULL;
    ORT_TRY(c, ort_output(c->k->api, c->context, i, desc->dims, (size_t)desc->rank, &value));
    if (value == NULL)
        return RG_OK;
    ORT_TRY(c, ort_tensor_data(c->k->api, value, &data));
    return wrap(c, desc, data, &c->outputs[i]);
}

/* ---- computations ---- */

/* The kernel for a descriptor: the one before, or a new one. The caller destroys it. */
static rg_status find_kernel(ort_kernel *k, const rg_onnx_call *call, rg_kernel **kernel)
{
    rg_status status = RG_OK;
    pthread_mutex_lock(&k->lock);
    if (k->kernel == NULL || memcmp(k->desc, call->desc, call->op->desc.size) != 0) {
        rg_kernel_destroy(k->kernel);
        status = rg_kernel_create(k->device, call->op, call->desc, &k->kernel);
        memcpy(k->desc, call->desc, call->op->desc.size);
    }
    *kernel = NULL;
    if (status == RG_OK)
        status = rg_kernel_copy(k->kernel, NULL, kernel);
    pthread_mutex_unlock(&k->lock);
    return status;
}

/* On a GPU the queue wraps the stream of the computation. */
static rg_status begin(computation *c, rg_commands **commands)
{
    ort_kernel *k = c->k;
    void *stream = NULL;
    rg_status status = RG_OK;
    if (k->registered->cuda)
        ORT_TRY(c, ort_gpu_stream(k->api, c->context, &stream));
    pthread_mutex_lock(&k->lock);
    if (k->registered->cuda && (k->queue == NULL || k->stream != stream)) {
        rg_queue_destroy(k->queue);
        k->queue = NULL;
        k->stream = stream;
        status = rg_queue_wrap(k->device, stream, &k->queue);
    }
    if (status == RG_OK)
        status = rg_commands_create(k->queue, commands);
    pthread_mutex_unlock(&k->lock);
    return status;
}

/* An operator that is the gradient of one op with one result, shaped as dY: straight into the
 * runtime's memory. */
static rg_status record_direct(computation *c, const rg_onnx_call *call, rg_kernel *kernel,
                               rg_commands *commands)
{
    rg_tensor *x[RG_MAX_INPUTS] = { NULL }, *y[RG_MAX_OUTPUTS] = { NULL };
    rg_tensor *dy[RG_MAX_OUTPUTS] = { NULL }, *dx[RG_MAX_INPUTS] = { NULL };
    for (int32_t i = 0; i < call->input_count; i++) {
        const rg_onnx_tensor *t = &call->inputs[i];
        rg_tensor **const to = t->role == RG_ROLE_X ? x : t->role == RG_ROLE_DY ? dy : y;
        RG_CHECK(c->inputs[i] != NULL, RG_INVALID_ARGUMENT, "%s: the input %s is missing",
                 c->k->registered->entry->name, t->name);
        to[t->index] = c->inputs[i];
    }
    RG_TRY(make_output(c, 0, &c->shapes[0]));
    dx[call->outputs[0].index] = c->outputs[0];
    return rg_kernel_gradient(kernel, commands, dy, x, y, NULL, dx, 0);
}

static rg_status convert(const computation *c, rg_onnx_call *call)
{
    const ort_kernel *k = c->k;
    const rg_onnx_node node = { .type = k->registered->entry->name,
                                .attributes = k->attributes,
                                .attribute_count = k->attribute_count,
                                .inputs = c->shapes,
                                .input_count = k->registered->input_count,
                                .outputs = 1,
                                .entry = k->registered->entry };
    return rg_onnx_convert(&node, call);
}

static rg_status compute_direct(computation *c, rg_commands *commands)
{
    rg_onnx_call call;
    rg_kernel *kernel = NULL;
    RG_TRY(convert(c, &call));
    RG_TRY(find_kernel(c->k, &call, &kernel));
    const rg_status status = record_direct(c, &call, kernel, commands);
    rg_kernel_destroy(kernel);
    return status;
}

/* Copies a result into the runtime's memory. */
static rg_status give_output(computation *c, rg_commands *commands, size_t i, rg_tensor *result)
{
    RG_TRY(make_output(c, i, &result->desc));
    if (c->outputs[i] == NULL)
        return RG_OK;
    rg_reshape_desc desc = rg_reshape_desc_default();
    desc.dims_count = result->desc.rank;
    memcpy(desc.dims, result->desc.dims, sizeof desc.dims);
    rg_kernel *copy = NULL;
    RG_TRY(rg_reshape_create(c->k->device, &desc, &copy));
    const rg_status status = rg_kernel_forward(copy, commands, &result, &c->outputs[i], NULL);
    rg_kernel_destroy(copy);
    return status;
}

static rg_status compute_general(computation *c, rg_commands *commands)
{
    size_t count = 0;
    rg_tensor *results[RG_ONNX_TENSORS] = { NULL };
    ORT_TRY(c, ort_output_count(c->k->api, c->context, &count));
    RG_TRY(rg_operator_run(c->k->general, commands, c->inputs, c->k->registered->input_count,
                           ((uint64_t)1 << count) - 1, results));
    rg_status status = RG_OK;
    for (size_t i = 0; i < count; i++) {
        if (status == RG_OK && results[i] != NULL)
            status = give_output(c, commands, i, results[i]);
        rg_tensor_destroy(results[i]);
    }
    return status;
}

static rg_status compute(computation *c)
{
    rg_commands *commands = NULL;
    RG_TRY(take_inputs(c));
    RG_TRY(begin(c, &commands));
    rg_status status =
        c->k->registered->direct ? compute_direct(c, commands) : compute_general(c, commands);
    if (status == RG_OK)
        status = rg_commands_commit(commands);
    if (status == RG_OK && !c->k->registered->cuda)
        status = rg_commands_wait(commands);
    rg_commands_destroy(commands);
    return status;
}

ort_status *rg_ort_compute(void *kernel, ort_context *context)
{
    computation c = { .k = kernel, .context = context };
    const ort_api *const outer_api = current_api;
    const ort_context *const outer_context = current_context;
    current_api = c.k->api;
    current_context = context;
    const rg_status status = compute(&c);
    current_api = outer_api;
    current_context = outer_context;
    for (int32_t i = 0; i < RG_ONNX_TENSORS; i++) {
        rg_tensor_destroy(c.inputs[i]);
        rg_tensor_destroy(c.outputs[i]);
    }
    if (status == RG_OK || c.status != NULL)
        return c.status;
    return fail(c.k->api, status);
}
