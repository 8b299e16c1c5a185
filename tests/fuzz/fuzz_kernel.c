/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Calls of kernels: the input chooses op, fields of the descriptor, instruction set, dtypes,
 * shapes, strides and values; forward and gradient run where they are not refused. Results are not
 * looked at: `retrograde check` does that. */
#include "fuzz.h"

#include "ops/ops.h"

#include <math.h>

enum { MOST_ELEMENTS = 1 << 12, MOST_DIM = 10 };

/* ---- the descriptor ---- */

typedef struct field_choice {
    fuzz_input *input;
    const rg_op *op;
    char *desc;
} field_choice;

static void number_text(fuzz_input *input, const rg_field *field, char *text, size_t capacity)
{
    static const char *const reals[] = { "0", "1", "0.5", "-1", "2", "1e-5", "1e30", "-inf" };
    static const char *const large[] = {
        "64", "255", "1000", "2147483647", "-2147483648", "65536"
    };
    const uint8_t choice = fuzz_byte(input);
    if (field->type == RG_FIELD_BOOL)
        snprintf(text, capacity, "%s", choice & 1 ? "true" : "false");
    else if (field->type == RG_FIELD_F64)
        snprintf(text, capacity, "%s", reals[choice % 8]);
    else if (choice >= 250)
        snprintf(text, capacity, "%s", large[choice - 250]);
    else
        snprintf(text, capacity, "%d", choice % 8 - (choice >= 128 ? 3 : 0));
}

static void value_text(fuzz_input *input, const rg_field *field, char *text, size_t capacity)
{
    if (field->type == RG_FIELD_ENUM) {
        int names = 0;
        while (field->names[names] != NULL)
            names++;
        snprintf(text, capacity, "%s", field->names[fuzz_byte(input) % names]);
        return;
    }
    const int32_t count = field->length == 0  ? 1
                          : field->count != 0 ? fuzz_byte(input) % (field->length + 1)
                                              : field->length;
    size_t used = 0;
    text[0] = 0;
    for (int32_t i = 0; i < count && used + 16 < capacity; i++) {
        char number[16];
        number_text(input, field, number, sizeof number);
        used += (size_t)snprintf(text + used, capacity - used, "%s%s", i > 0 ? "," : "", number);
    }
}

/* Every field keeps its default or takes a value; one that is out of range is left. */
static void choose_field(void *context, const char *name, const rg_field *field, const char *value)
{
    field_choice *c = context;
    char text[192];
    (void)value;
    if ((fuzz_byte(c->input) & 3) != 0)
        return;
    value_text(c->input, field, text, sizeof text);
    (void)FUZZ_TRY(rg_fields_set(&c->op->desc, c->op->name, c->desc, name, text));
}

/* ---- tensors ---- */

static rg_dtype choose_dtype(uint8_t choice, rg_dtype data)
{
    static const rg_dtype others[] = { RG_F32, RG_I32, RG_I64, RG_U8, RG_F16, RG_F64, RG_BF16 };
    return choice % 16 < 9 ? data : others[choice % 16 - 9];
}

/* The shape of input i: like the first, one number a channel, weights of a window, or any. */
static rg_tensor_desc choose_shape(fuzz_input *input, int32_t i, const rg_tensor_desc *x0,
                                   rg_dtype data)
{
    const uint8_t kind = fuzz_byte(input);
    const int64_t last = x0->rank > 0 ? x0->dims[x0->rank - 1] : 1;
    int64_t dims[RG_MAX_RANK] = { 0 };
    int32_t rank = kind >> 4 & 7;
    if (i > 0 && (kind & 3) == 0) {
        rank = x0->rank;
        memcpy(dims, x0->dims, sizeof dims);
    } else if (i > 0 && (kind & 3) == 1) {
        rank = 1;
        dims[0] = last;
    } else if (i > 0 && (kind & 3) == 2) {
        rank = x0->rank;
        for (int32_t d = 0; d < rank; d++)
            dims[d] = d == 0 || d + 1 < rank ? 1 + fuzz_byte(input) % 4 : last;
    } else {
        rank = i == 0 && rank > 5 ? 4 : rank;
        for (int32_t d = 0; d < rank; d++)
            dims[d] = fuzz_byte(input) % MOST_DIM;
    }
    return rg_tensor_desc_dense(choose_dtype(fuzz_byte(input), data), rank, dims);
}

static void fill(rg_tensor *tensor, fuzz_input *input)
{
    static const double values[] = { 0, 1, -1, 0.5, 3, -2.25, 1e4, 1e-8 };
    rg_tensor_desc desc;
    FUZZ_CHECK(rg_tensor_get_desc(tensor, &desc) == RG_OK);
    const uint8_t kind = fuzz_byte(input);
    const int64_t count = rg_shape_count(&desc);
    const size_t bytes = (size_t)count * rg_dtype_size(desc.dtype);
    char *data = malloc(bytes + 1);
    FUZZ_CHECK(data != NULL);
    for (int64_t i = 0; i < count; i++) {
        const double value = kind == 255   ? NAN
                             : kind == 254 ? INFINITY
                                           : values[(kind + i * (kind >> 4 | 1)) % 8];
        rg_element_set(data, desc.dtype, i,
                       rg_dtype_is_data(desc.dtype) || isfinite(value) ? value : 0);
    }
    FUZZ_CHECK(rg_tensor_write(tensor, data, bytes, RG_LAYOUT_SAME) == RG_OK);
    free(data);
}

/* A tensor of this shape: dense, or a view of a larger one. NULL where it would be large. */
static rg_tensor *make_tensor(rg_device *device, const rg_tensor_desc *shape, fuzz_input *input)
{
    const uint8_t kind = fuzz_byte(input);
    int64_t dims[RG_MAX_RANK], start[RG_MAX_RANK], step[RG_MAX_RANK];
    int64_t elements = 1;
    rg_tensor *whole = NULL, *view = NULL;
    for (int32_t d = 0; d < shape->rank; d++) {
        const bool strided = (kind >> d % 4 & 1) != 0;
        step[d] = strided && (kind & 16) != 0 && shape->dims[d] > 1 ? 2 : 1;
        start[d] = strided && shape->dims[d] > 0 ? kind >> 5 & 1 : 0;
        dims[d] = shape->dims[d] * step[d] + start[d] + (strided ? kind >> 6 : 0);
        if (__builtin_mul_overflow(elements, dims[d] > 0 ? dims[d] : 1, &elements) ||
            elements > 16 * MOST_ELEMENTS)
            return NULL;
    }
    const rg_tensor_desc desc = rg_tensor_desc_dense(shape->dtype, shape->rank, dims);
    if (!FUZZ_TRY(rg_tensor_create(device, &desc, &whole)))
        return NULL;
    fuzz_zero(whole);
    FUZZ_CHECK(rg_tensor_slice(whole, start, shape->dims, step, &view) == RG_OK);
    rg_tensor_destroy(whole);
    fill(view, input);
    return view;
}

/* ---- calls ---- */

typedef struct call {
    rg_device *device;
    rg_kernel *kernel;
    int32_t inputs, outputs, gradients;
    rg_tensor_desc x_desc[RG_MAX_INPUTS], y_desc[RG_MAX_OUTPUTS];
    rg_tensor *x[RG_MAX_INPUTS], *y[RG_MAX_OUTPUTS], *dy[RG_MAX_OUTPUTS], *dx[RG_MAX_INPUTS];
    rg_state *state;
} call;

static bool make_tensors(call *c, fuzz_input *input)
{
    bool made = true;
    for (int32_t i = 0; made && i < c->inputs; i++)
        made = (c->x[i] = make_tensor(c->device, &c->x_desc[i], input)) != NULL;
    for (int32_t i = 0; made && i < c->outputs; i++)
        made = (c->y[i] = make_tensor(c->device, &c->y_desc[i], input)) != NULL;
    for (int32_t i = 0; made && i < c->gradients; i++)
        made = (c->dy[i] = make_tensor(c->device, &c->y_desc[i], input)) != NULL;
    const uint8_t wanted = fuzz_byte(input);
    for (int32_t i = 0; made && i < c->inputs; i++) {
        rg_tensor_desc desc = c->x_desc[i];
        const uint8_t choice = fuzz_byte(input);
        desc.dtype = choice > 250 ? RG_F32 : desc.dtype;
        if ((wanted >> i & 1) == 0)
            made = (c->dx[i] = make_tensor(c->device, &desc, input)) != NULL;
    }
    return made;
}

static void run(call *c, fuzz_input *input)
{
    rg_queue *queue = NULL;
    rg_commands *commands = NULL;
    FUZZ_CHECK(rg_queue_create(c->device, &queue) == RG_OK);
    FUZZ_CHECK(rg_commands_create(queue, &commands) == RG_OK);
    const uint8_t choice = fuzz_byte(input);
    if ((choice & 1) == 0)
        (void)FUZZ_TRY(rg_state_create(c->kernel, c->x, &c->state));
    const bool fills = rg_kernel_outputs(c->kernel) == 0;
    (void)FUZZ_TRY(rg_kernel_forward(c->kernel, commands, c->x, fills ? NULL : c->y, c->state));
    (void)FUZZ_TRY(rg_kernel_gradient(c->kernel, commands, c->dy, choice & 2 ? NULL : c->x,
                                      choice & 4 ? NULL : c->y, c->state, c->dx, choice >> 4));
    if (FUZZ_TRY(rg_commands_commit(commands)))
        (void)FUZZ_TRY(rg_commands_wait(commands));
    rg_commands_destroy(commands);
    rg_queue_destroy(queue);
}

static void release(call *c)
{
    for (int i = 0; i < RG_MAX_INPUTS; i++) {
        rg_tensor_destroy(c->x[i]);
        rg_tensor_destroy(c->dx[i]);
    }
    for (int i = 0; i < RG_MAX_OUTPUTS; i++) {
        rg_tensor_destroy(c->y[i]);
        rg_tensor_destroy(c->dy[i]);
    }
    rg_state_destroy(c->state);
    rg_kernel_destroy(c->kernel);
}

static rg_device *choose_device(uint8_t choice)
{
    int32_t count = 0;
    while (rg_device_isa_list(count) != NULL)
        count++;
    return fuzz_device(choice & 1 ? 2 : 1, rg_device_isa_list((choice >> 1) % count));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const rg_dtype dtypes[] = { RG_F32, RG_F64, RG_F16, RG_BF16 };
    fuzz_input input = { data, size };
    int ops = 0;
    while (rg_ops[ops] != NULL)
        ops++;
    const rg_op *op = rg_ops[fuzz_byte(&input) % ops];
    call c = { .device = choose_device(fuzz_byte(&input)) };
    _Alignas(16) char desc[RG_MAX_DESC];
    memcpy(desc, op->desc.defaults, op->desc.size);
    field_choice fields = { &input, op, desc };
    rg_fields_each(&op->desc, op->desc.defaults, choose_field, &fields);
    const rg_dtype dtype = dtypes[fuzz_byte(&input) % 4];
    if (FUZZ_TRY(rg_kernel_create(c.device, op, desc, &c.kernel))) {
        c.inputs = rg_op_inputs(op, desc);
        c.outputs = rg_op_outputs(op, desc);
        c.gradients = rg_op_gradients(op, desc);
        for (int32_t i = 0; i < c.inputs; i++)
            c.x_desc[i] = choose_shape(&input, i, &c.x_desc[0], dtype);
        if (FUZZ_TRY(rg_kernel_shapes(c.kernel, c.x_desc, c.y_desc)) && make_tensors(&c, &input))
            run(&c, &input);
    }
    release(&c);
    return 0;
}
