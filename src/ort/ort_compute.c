/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Computations: the tensors of the runtime are handed to native kernels or launches kept from
 * before, or wrapped for ops that record, commit and, on a CPU, wait. CPU kernels run on the
 * runtime's own threads. */
#include "core/shape.h"
#include "operators/run.h"
#include "ort/ort_call.h"
#include "ort/ort_launch.h"
#include "runtime/objects.h"

#include <stdlib.h>

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

static rg_device *devices[2];

rg_status rg_ort_device(bool cuda, rg_device **device)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
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

void rg_ort_close_devices(void)
{
    rg_device_destroy(devices[0]);
    devices[0] = NULL;
}

/* ---- tensors ---- */

rg_dtype rg_ort_dtype(ort_type type)
{
    return type == ORT_DOUBLE     ? RG_F64
           : type == ORT_FLOAT16  ? RG_F16
           : type == ORT_BFLOAT16 ? RG_BF16
                                  : RG_F32;
}

rg_dtype rg_ort_dtype_of_any(ort_type type)
{
    return type == ORT_INT64   ? RG_I64
           : type == ORT_INT32 ? RG_I32
           : type == ORT_BOOL  ? RG_U8
                               : rg_ort_dtype(type);
}

/* The pointer to memory of an empty tensor may be anything. */
static _Alignas(64) char nothing[64];

static rg_status wrap(const rg_ort_computation *c, const rg_tensor_desc *desc, void *data,
                      rg_tensor **tensor)
{
    bool empty = false;
    for (int32_t d = 0; d < desc->rank; d++)
        empty = empty || desc->dims[d] == 0;
    return rg_tensor_wrap(c->k->device, desc, empty && !c->k->registered->cuda ? nothing : data,
                          NULL, NULL, tensor);
}

static rg_status check_input(const rg_ort_computation *c, size_t i, ort_type type, size_t rank)
{
    const ort_entry *registered = c->k->registered;
    RG_CHECK(type == registered->input_types[i], RG_INVALID_ARGUMENT,
             "%s: %s has elements of ONNX's type %d, but must have type %d",
             registered->entry->name, registered->inputs[i].name, (int)type,
             (int)registered->input_types[i]);
    RG_CHECK(rank <= RG_MAX_RANK, RG_UNSUPPORTED,
             "%s: a tensor has %zu dimensions; at most %d are supported", registered->entry->name,
             rank, RG_MAX_RANK);
    return RG_OK;
}

/* As rg_tensor_desc_dense, in place: what it returns would be copied while it is still written. */
static void describe(rg_tensor_desc *desc, rg_dtype dtype, size_t rank, const int64_t dims[])
{
    int64_t stride = 1;
    memset(desc, 0, sizeof *desc);
    desc->dtype = dtype;
    desc->rank = (int32_t)rank;
    for (size_t d = rank; d-- > 0;) {
        desc->dims[d] = dims[d];
        desc->strides[d] = stride;
        if (__builtin_mul_overflow(stride, dims[d] > 0 ? dims[d] : 1, &stride))
            stride = INT64_MAX;
    }
}

static rg_status read_shape(rg_ort_computation *c, size_t i, ort_shape *shape, rg_tensor_desc *desc)
{
    const ort_api *api = c->k->api;
    ort_type type;
    size_t rank;
    int64_t dims[RG_MAX_RANK];
    ORT_TRY(c, ort_shape_type(api, shape, &type));
    ORT_TRY(c, ort_shape_rank(api, shape, &rank));
    RG_TRY(check_input(c, i, type, rank));
    ORT_TRY(c, ort_shape_dims(api, shape, dims, rank));
    describe(desc, c->k->registered->input_dtypes[i], rank, dims);
    return RG_OK;
}

/* A third of the time that the calls above take: no shape is allocated. */
static rg_status borrow_shape(rg_ort_computation *c, size_t i, const ort_value *value,
                              rg_tensor_desc *desc)
{
    ort_type type;
    size_t rank;
    const int64_t *dims;
    ORT_TRY(c, ort_borrowed_shape(c->k->api, value, &type, &dims, &rank));
    RG_TRY(check_input(c, i, type, rank));
    describe(desc, c->k->registered->input_dtypes[i], rank, dims);
    return RG_OK;
}

static rg_status take_input(rg_ort_computation *c, size_t i)
{
    const ort_api *api = c->k->api;
    const ort_value *value = NULL;
    ort_shape *shape = NULL;
    void *data = NULL;
    ORT_TRY(c, ort_input(api, c->context, i, &value));
    if (value == NULL)
        return RG_OK;
    if (c->k->borrows) {
        RG_TRY(borrow_shape(c, i, value, &c->shapes[i]));
    } else {
        ORT_TRY(c, ort_value_shape(api, value, &shape));
        const rg_status status = read_shape(c, i, shape, &c->shapes[i]);
        ort_release_shape(api, shape);
        RG_TRY(status);
    }
    ORT_TRY(c, ort_tensor_data(api, (ort_value *)(uintptr_t)value, &data));
    c->data[i] = data != NULL ? data : nothing;
    c->given |= 1u << i;
    return RG_OK;
}

static rg_status take_inputs(rg_ort_computation *c)
{
    size_t count = 0;
    ORT_TRY(c, ort_input_count(c->k->api, c->context, &count));
    for (size_t i = 0; i < RG_ONNX_TENSORS; i++)
        c->shapes[i].rank = -1;
    for (size_t i = 0; i < count && i < (size_t)c->k->registered->input_count; i++)
        RG_TRY(take_input(c, i));
    return RG_OK;
}

static rg_status wrap_inputs(rg_ort_computation *c)
{
    for (int32_t i = 0; i < c->k->registered->input_count; i++) {
        if (c->given >> i & 1)
            RG_TRY(wrap(c, &c->shapes[i], c->data[i], &c->inputs[i]));
    }
    return RG_OK;
}

/* What is in front of converted elements, and of scratch memory. */
typedef struct widened {
    void *next;
    _Alignas(64) char data[];
} widened;

rg_status rg_ort_scratch(rg_ort_computation *c, size_t bytes, void **memory)
{
    void *block;
    if (posix_memalign(&block, 64, sizeof(widened) + bytes) != 0)
        return rg_fail(RG_OUT_OF_MEMORY, "out of memory: %zu bytes", bytes);
    widened *made = block;
    made->next = c->widened;
    c->widened = made;
    *memory = made->data;
    return RG_OK;
}

rg_status rg_ort_widen(rg_ort_computation *c, int32_t i, rg_dtype dtype)
{
    rg_tensor_desc *shape = &c->shapes[i];
    const size_t count = (size_t)rg_shape_count(shape);
    void *data = NULL;
    if (shape->dtype == dtype)
        return RG_OK;
    RG_TRY(rg_ort_scratch(c, count * rg_dtype_size(dtype), &data));
    if (dtype == RG_I64) {
        for (size_t k = 0; k < count; k++)
            ((int64_t *)data)[k] = ((const int32_t *)c->data[i])[k];
    } else {
        RG_TRY(rg_convert(data, dtype, c->data[i], shape->dtype, count));
    }
    c->data[i] = data;
    *shape = rg_tensor_desc_dense(dtype, shape->rank, shape->dims);
    return RG_OK;
}

static void free_widened(rg_ort_computation *c)
{
    while (c->widened != NULL) {
        void *next = ((widened *)c->widened)->next;
        free(c->widened);
        c->widened = next;
    }
}

rg_status rg_ort_output(rg_ort_computation *c, int32_t i, const rg_tensor_desc *desc, void **data)
{
    ort_value *value = NULL;
    *data = NULL;
    ORT_TRY(c,
            ort_output(c->k->api, c->context, (size_t)i, desc->dims, (size_t)desc->rank, &value));
    if (value == NULL)
        return RG_OK;
    ORT_TRY(c, ort_tensor_data(c->k->api, value, data));
    *data = *data != NULL ? *data : nothing;
    return RG_OK;
}

static rg_status make_output(rg_ort_computation *c, int32_t i, const rg_tensor_desc *desc)
{
    void *data;
    RG_TRY(rg_ort_output(c, i, desc, &data));
    return data != NULL ? wrap(c, desc, data, &c->outputs[i]) : RG_OK;
}

/* ---- computations ---- */

/* The kernel for a descriptor: the one before, or a new one. The caller destroys it. */
static rg_status find_kernel(rg_ort_node *k, const rg_onnx_call *call, rg_kernel **kernel)
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
static rg_status begin(rg_ort_computation *c, rg_commands **commands)
{
    rg_ort_node *k = c->k;
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
static rg_status record_direct(rg_ort_computation *c, const rg_onnx_call *call, rg_kernel *kernel,
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
    if (!c->stands)
        RG_TRY(make_output(c, 0, &c->shapes[0]));
    dx[call->outputs[0].index] = c->outputs[0];
    return rg_kernel_gradient(kernel, commands, dy, x, y, NULL, dx, 0);
}

static rg_status convert(const rg_ort_computation *c, rg_onnx_call *call)
{
    const rg_ort_node *k = c->k;
    const rg_onnx_node node = { .type = k->registered->entry->name,
                                .attributes = k->attributes,
                                .attribute_count = k->attribute_count,
                                .inputs = c->shapes,
                                .input_count = k->registered->input_count,
                                .outputs = 1,
                                .entry = k->registered->entry };
    return rg_onnx_convert(&node, call);
}

static rg_status compute_direct(rg_ort_computation *c, rg_commands *commands)
{
    rg_onnx_call call;
    rg_kernel *kernel = NULL;
    RG_TRY(convert(c, &call));
    RG_TRY(find_kernel(c->k, &call, &kernel));
    const rg_status status = record_direct(c, &call, kernel, commands);
    rg_kernel_destroy(kernel);
    return status;
}

/* Records the node once more, with stand-ins: two inputs and a result of the same shape. What
 * cannot be recorded is computed as before. */
static void prepare_direct(rg_ort_computation *c)
{
    rg_ort_node *k = c->k;
    rg_ort_computation made = { .k = k, .context = c->context, .given = c->given, .stands = true };
    rg_commands *commands = NULL;
    rg_tensor *tensors[3] = { NULL };
    memcpy(made.shapes, c->shapes, sizeof made.shapes);
    rg_status status = rg_commands_create(k->queue, &commands);
    for (int32_t i = 0; i < 3 && status == RG_OK; i++)
        status = rg_stand_in_create(commands, &c->shapes[i == 1], 0, &tensors[i]);
    for (int32_t i = 0; i < 3; i++)
        *(i < 2 ? &made.inputs[i] : &made.outputs[0]) = tensors[i];
    if (status == RG_OK)
        status = compute_direct(&made, commands);
    pthread_mutex_lock(&k->lock);
    k->prepared.size = 0;
    if (status == RG_OK) {
        rg_ort_prepared_keep(&k->prepared, commands, tensors, 3);
        memcpy(k->prepared.shapes, c->shapes, sizeof k->prepared.shapes);
    }
    pthread_mutex_unlock(&k->lock);
    for (int32_t i = 0; i < 3; i++)
        rg_tensor_destroy(tensors[i]);
    rg_commands_destroy(commands);
}

static bool same_shape(const rg_tensor_desc *a, const rg_tensor_desc *b)
{
    return a->rank == b->rank && memcmp(a->dims, b->dims, (size_t)a->rank * sizeof a->dims[0]) == 0;
}

/* Whether the computation before this one had the same shapes: shapes that change with every one
 * are not worth recording. */
static bool seen_before(rg_ort_computation *c)
{
    rg_ort_prepared *p = &c->k->prepared;
    pthread_mutex_lock(&c->k->lock);
    const bool seen =
        same_shape(&p->shapes[0], &c->shapes[0]) && same_shape(&p->shapes[1], &c->shapes[1]);
    p->size = 0;
    memcpy(p->shapes, c->shapes, sizeof p->shapes);
    pthread_mutex_unlock(&c->k->lock);
    return seen;
}

/* Runs what was recorded for these shapes; *done: there was something. */
static rg_status run_prepared(rg_ort_computation *c, bool *done)
{
    rg_ort_node *k = c->k;
    rg_ort_prepared prepared;
    if (!k->registered->direct || k->registered->cuda || c->given != 3)
        return RG_OK;
    pthread_mutex_lock(&k->lock);
    *done = k->prepared.size > 0 && same_shape(&k->prepared.shapes[0], &c->shapes[0]) &&
            same_shape(&k->prepared.shapes[1], &c->shapes[1]);
    if (*done) {
        memcpy(prepared.entries, k->prepared.entries, k->prepared.size);
        memcpy(prepared.pointers, k->prepared.pointers,
               (size_t)k->prepared.pointer_count * sizeof prepared.pointers[0]);
        prepared.size = k->prepared.size;
        prepared.pointer_count = k->prepared.pointer_count;
    }
    pthread_mutex_unlock(&k->lock);
    if (!*done)
        return RG_OK;
    void *data[] = { c->data[0], c->data[1], NULL };
    RG_TRY(rg_ort_output(c, 0, &c->shapes[0], &data[2]));
    rg_ort_prepared_run(k->device, &prepared, data);
    return RG_OK;
}

static rg_status give_output(void *context, int32_t output, const rg_tensor_desc *desc,
                             rg_tensor **to)
{
    rg_ort_computation *c = context;
    RG_TRY(make_output(c, output, desc));
    *to = c->outputs[output];
    return RG_OK;
}

static rg_status compute_general(rg_ort_computation *c, rg_commands *commands)
{
    const rg_run_results results = { give_output, c };
    RG_CHECK(
        !c->k->needs_x || c->inputs[c->k->registered->input_count - 1] != NULL, RG_INVALID_ARGUMENT,
        "%s: with strides the shape of dX does not follow from dY; the model must give it, X, or "
        "the attribute shape, (n, c, d…)",
        c->k->registered->entry->name);
    return c->k->outputs == 0 ? RG_OK
                              : rg_run_into(c->k->general, commands, c->inputs,
                                            c->k->registered->input_count, c->k->outputs, &results);
}

/* Gradients of one op have two tensors of one shape. */
static rg_status check_direct(const rg_ort_computation *c)
{
    const ort_entry *e = c->k->registered;
    char left[RG_SHAPE_TEXT], right[RG_SHAPE_TEXT];
    RG_CHECK(!e->direct || c->given != 3 || rg_shape_same_dims(&c->shapes[0], &c->shapes[1]),
             RG_INVALID_ARGUMENT, "%s: %s is %s, but %s is %s", e->entry->name, e->inputs[0].name,
             rg_shape_text(&c->shapes[0], left), e->inputs[1].name,
             rg_shape_text(&c->shapes[1], right));
    return RG_OK;
}

static rg_status compute(rg_ort_computation *c)
{
    rg_commands *commands = NULL;
    bool done = false;
    RG_TRY(take_inputs(c));
    RG_TRY(check_direct(c));
    RG_TRY(rg_ort_native_run(c, &done));
    if (!done)
        RG_TRY(run_prepared(c, &done));
    if (done)
        return RG_OK;
    c->wrapped = true;
    RG_TRY(wrap_inputs(c));
    RG_TRY(begin(c, &commands));
    rg_status status =
        c->k->registered->direct ? compute_direct(c, commands) : compute_general(c, commands);
    if (status == RG_OK)
        status = rg_commands_commit(commands);
    if (status == RG_OK && !c->k->registered->cuda)
        status = rg_commands_wait(commands);
    rg_commands_destroy(commands);
    if (status == RG_OK && c->k->registered->direct && !c->k->registered->cuda && seen_before(c))
        prepare_direct(c);
    return status;
}

ort_status *rg_ort_compute(void *kernel, ort_context *context)
{
    rg_ort_computation c;
    memset(&c, 0, offsetof(rg_ort_computation, shapes));
    c.k = kernel;
    c.context = context;
    const ort_api *const outer_api = current_api;
    const ort_context *const outer_context = current_context;
    current_api = c.k->api;
    current_context = context;
    const rg_status status = compute(&c);
    current_api = outer_api;
    current_context = outer_context;
    for (int32_t i = 0; i < RG_ONNX_TENSORS && c.wrapped; i++) {
        rg_tensor_destroy(c.inputs[i]);
        rg_tensor_destroy(c.outputs[i]);
    }
    free_widened(&c);
    if (status == RG_OK || c.status != NULL)
        return c.status;
    return rg_ort_fail(c.k->api, status);
}
