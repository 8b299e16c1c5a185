/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Classes of MPS as operators: fields as attributes, forward or gradient of one kernel. */
#include "operators/operator_mps.h"
#include "core/memory.h"
#include "core/private_api.h"
#include "core/shape.h"
#include "runtime/objects.h"

#include <retrograde/arithmetic.h>

#include <math.h>
#include <stdio.h>

/* ---- names ---- */

static bool is_mps(const rg_op_name *name)
{
    return strncmp(name->name, "MPS", 3) == 0;
}

/* The entry number `index`; if there are no more, *index becomes their number. */
static rg_mps_name walk(int32_t *index, const char *wanted)
{
    int32_t count = 0;
    for (int32_t i = 0; rg_ops[i] != NULL; i++) {
        for (const rg_op_name *name = rg_ops[i]->names; name != NULL && name->name != NULL;
             name++) {
            if (!is_mps(name))
                continue;
            if (wanted != NULL ? strcmp(name->name, wanted) == 0 : count == *index)
                return (rg_mps_name){ rg_ops[i], name };
            count++;
        }
    }
    *index = count;
    return (rg_mps_name){ NULL, NULL };
}

int32_t rg_mps_count(void)
{
    int32_t count = INT32_MAX;
    walk(&count, NULL);
    return count;
}

rg_mps_name rg_mps_get(int32_t index)
{
    return walk(&index, NULL);
}

bool rg_mps_find(const char *name, rg_mps_name *found)
{
    int32_t index = 0;
    *found = walk(&index, name);
    return found->name != NULL;
}

/* ---- tensors ---- */

/* What a class calls the op's tensor prefix + name: from "sourceImage=x destinationImage=y". */
static void shown(const char *tensors, const char *prefix, const char *own, char *to)
{
    const int length = snprintf(to, RG_ONNX_NAME, "%s%s", prefix, own);
    for (const char *at = tensors; *at != 0; at += strspn(at, " ")) {
        const int typed = (int)strcspn(at, "="), size = (int)strcspn(at, " ");
        if (size - typed - 1 == length && memcmp(at + typed + 1, to, (size_t)length) == 0) {
            snprintf(to, RG_ONNX_NAME, "%.*s", typed, at);
            return;
        }
        at += size;
    }
}

static void add_tensors(const char *typed, const char *prefix, const char *const names[],
                        int32_t count, rg_role role, uint32_t required, rg_onnx_tensor tensors[],
                        int32_t *used)
{
    for (int32_t i = 0; i < count && *used < RG_OPERATOR_TENSORS; i++) {
        rg_onnx_tensor *t = &tensors[(*used)++];
        *t = (rg_onnx_tensor){ .role = role, .index = i, .optional = !(required >> i & 1) };
        shown(typed, prefix, names[i], t->name);
    }
}

static void list_tensors(const rg_mps_name mps, const void *desc, rg_operator *op)
{
    const char *const *x = rg_op_input_names(mps.op, desc), *const *y =
                                                                rg_op_output_names(mps.op, desc);
    const int32_t inputs = rg_op_inputs(mps.op, desc), outputs = rg_op_outputs(mps.op, desc);
    const char *typed = rg_op_name_tensors(mps.op, mps.name, desc);
    op->input_count = op->output_count = 0;
    if (!mps.name->gradient) {
        add_tensors(typed, "", x, inputs, RG_ROLE_X, ~0u, op->inputs, &op->input_count);
        add_tensors(typed, "", y, outputs, RG_ROLE_Y, 0, op->outputs, &op->output_count);
        return;
    }
    const uint32_t reads = mps.op->reads(desc);
    const bool forward = reads & (RG_READS_STATE | RG_READS_OR_STATE);
    add_tensors(typed, "d", y, rg_op_gradients(mps.op, desc), RG_ROLE_DY, ~mps.op->optional_dy,
                op->inputs, &op->input_count);
    add_tensors(typed, "", x, inputs, RG_ROLE_X,
                forward                       ? ~0u
                : mps.op == &rg_op_arithmetic ? 0
                                              : reads & 0xff,
                op->inputs, &op->input_count);
    add_tensors(typed, "", y, reads >> 8 & 0xff ? outputs : 0, RG_ROLE_Y, 0, op->inputs,
                &op->input_count);
    add_tensors(typed, "d", x, inputs, RG_ROLE_DX, 0, op->outputs, &op->output_count);
}

void rg_mps_info(rg_mps_name mps, rg_operator_info *info)
{
    _Alignas(16) char desc[RG_MAX_DESC];
    rg_operator op = { .name = mps.name->name };
    memcpy(desc, mps.op->desc.defaults, mps.op->desc.size);
    *info = (rg_operator_info){
        .name = mps.name->name, .domain = "MPS", .op = mps.op->name, .gradient = mps.name->gradient
    };
    if (rg_fields_parse(&mps.op->desc, mps.name->name, desc, mps.name->fields) != RG_OK)
        return;
    list_tensors(mps, desc, &op);
    info->inputs = op.input_count;
    info->outputs = op.output_count;
}

/* ---- attributes ---- */

static void add_number(char *text, size_t capacity, const rg_attribute *a, int32_t i)
{
    const size_t used = strlen(text);
    if (a->ints != NULL)
        snprintf(text + used, capacity - used, "%s%lld", i > 0 ? "," : "", (long long)a->ints[i]);
    else
        snprintf(text + used, capacity - used, "%s%.17g", i > 0 ? "," : "", a->floats[i]);
}

rg_status rg_mps_take(rg_operator *op, const rg_attribute attributes[], int32_t count)
{
    const rg_fields *fields = &op->mps.op->desc;
    memcpy(op->desc, fields->defaults, fields->size);
    RG_TRY(rg_fields_parse(fields, op->name, op->desc, op->mps.name->fields));
    uint32_t set = 0;
    for (int32_t i = 0; i < count; i++) {
        const rg_attribute *a = &attributes[i];
        char text[512] = "";
        set |= rg_op_name_bit(op->mps.name, a->name);
        RG_CHECK(a->text != NULL || a->ints != NULL || a->floats != NULL, RG_INVALID_ARGUMENT,
                 "%s: attribute %s has no value", op->name, a->name);
        for (int32_t k = 0; a->text == NULL && k < a->count && k < 16; k++)
            add_number(text, sizeof text, a, k);
        RG_TRY(
            rg_fields_set(fields, op->name, op->desc, a->name, a->text != NULL ? a->text : text));
    }
    rg_op_name_follow(op->mps.op, op->mps.name, set, op->desc);
    _Alignas(16) char checked[RG_MAX_DESC];
    RG_TRY(rg_fields_copy(fields, op->name, op->desc, checked));
    if (op->mps.op->check != NULL)
        RG_TRY(op->mps.op->check(checked));
    list_tensors(op->mps, op->desc, op);
    return RG_OK;
}

/* ---- runs ---- */

typedef struct operands {
    rg_tensor *x[RG_MAX_INPUTS], *y[RG_MAX_OUTPUTS], *dy[RG_MAX_OUTPUTS], *dx[RG_MAX_INPUTS];
    rg_tensor *made[RG_MAX_INPUTS + RG_MAX_OUTPUTS]; /* destroyed at the end */
    int32_t made_count;
    rg_state *state;
} operands;

/* The inputs of an operation of two operands that these gradients read, by bits: less than what its
 * gradient reads as a whole. */
static uint32_t reads_of_operands(const rg_arithmetic_desc *d, uint32_t reads, uint64_t wanted)
{
    const bool bounded = d->minimum > -(double)INFINITY || d->maximum < (double)INFINITY;
    if (bounded || reads == 0)
        return reads;
    if (d->kind == RG_ARITHMETIC_MULTIPLY)
        return (wanted & 1 ? 2 : 0) | (wanted & 2 ? 1 : 0);
    return d->kind == RG_ARITHMETIC_DIVIDE && !(wanted & 2) ? 2 : reads;
}

RG_PRIVATE_API uint32_t rg_gradient_reads(const rg_op *op, const void *desc, uint64_t wanted)
{
    const uint32_t reads = op->reads(desc) & 0xff;
    return op == &rg_op_arithmetic ? reads_of_operands(desc, reads, wanted) : reads;
}

/* The dtype of parameters: of those that are given, or else that of the images. */
static rg_dtype parameter_dtype(const rg_op *op, const void *desc, rg_tensor *const x[],
                                rg_dtype image)
{
    const char *const *names = rg_op_input_names(op, desc);
    for (int32_t i = 0; i < rg_op_inputs(op, desc); i++) {
        if (x[i] != NULL && (strcmp(names[i], "gamma") == 0 || strcmp(names[i], "beta") == 0))
            return x[i]->desc.dtype;
    }
    return image;
}

/* The shape of an input that a gradient is asked for and that was not given, where it follows from
 * the other tensors: a bias, gamma and beta have one number per channel of dy, operands of an
 * addition the shape of dy. False if it does not follow. */
static bool gradient_shape(const rg_op *op, const void *desc, rg_tensor *const dy[],
                           rg_tensor *const x[], int32_t input, rg_tensor_desc *shape)
{
    const char *name = rg_op_input_names(op, desc)[input];
    const rg_tensor *wide = dy[0] != NULL ? dy[0] : x[0];
    if (wide == NULL)
        return false;
    const bool is_norm = strcmp(name, "gamma") == 0 || strcmp(name, "beta") == 0;
    if (op == &rg_op_arithmetic) {
        *shape = rg_tensor_desc_dense(wide->desc.dtype, wide->desc.rank, wide->desc.dims);
        return true;
    }
    if ((!is_norm && strcmp(name, "b") != 0) || wide->desc.rank < 1)
        return false;
    const rg_dtype image = wide->desc.dtype;
    *shape = rg_tensor_desc_dense(is_norm ? parameter_dtype(op, desc, x, image) : image, 1,
                                  &wide->desc.dims[wide->desc.rank - 1]);
    return true;
}

RG_PRIVATE_API rg_status rg_gradient_complete(const rg_op *op, const void *desc,
                                              rg_tensor *const dy[], uint64_t wanted,
                                              rg_tensor *x[])
{
    const uint32_t reads = rg_gradient_reads(op, desc, wanted);
    for (int32_t i = 0; i < rg_op_inputs(op, desc); i++) {
        rg_tensor_desc shape;
        void *zeros;
        if (x[i] != NULL || reads >> i & 1 || !gradient_shape(op, desc, dy, x, i, &shape))
            continue;
        rg_device *device = (dy[0] != NULL ? dy[0] : x[0])->storage->device;
        const size_t bytes = (size_t)rg_shape_count(&shape) * rg_dtype_size(shape.dtype);
        RG_TRY(rg_tensor_create(device, &shape, &x[i]));
        RG_TRY(rg_allocate_zero(&device->allocator, bytes + 1, &zeros));
        const rg_status status = rg_tensor_write(x[i], zeros, bytes, RG_LAYOUT_SAME);
        rg_release(&device->allocator, zeros, bytes + 1);
        RG_TRY(status);
    }
    return RG_OK;
}

static rg_status forward_first(const rg_kernel *kernel, rg_commands *commands, operands *o)
{
    rg_tensor *y[RG_MAX_OUTPUTS] = { NULL };
    RG_TRY(rg_kernel_forward_alloc(kernel, commands, 1, o->x, false, y, &o->state));
    for (int32_t i = 0; i < rg_kernel_outputs(kernel); i++) {
        o->made[o->made_count++] = y[i];
        if (o->y[i] == NULL)
            o->y[i] = y[i];
    }
    return RG_OK;
}

/* Operands that these gradients read: which ones depends on what is wanted. */
static rg_status check_read(const rg_operator *op, const operands *o, uint64_t wanted)
{
    const uint32_t reads = rg_gradient_reads(op->mps.op, op->desc, wanted);
    for (int32_t i = 0; i < op->input_count; i++) {
        const rg_onnx_tensor *t = &op->inputs[i];
        RG_CHECK(op->mps.op != &rg_op_arithmetic || t->role != RG_ROLE_X ||
                     !(reads >> t->index & 1) || o->x[t->index] != NULL,
                 RG_INVALID_ARGUMENT, "%s: the gradient reads %s, which is missing", op->name,
                 t->name);
    }
    return RG_OK;
}

static rg_status record(const rg_operator *op, const rg_kernel *kernel, rg_commands *commands,
                        operands *o, uint64_t wanted)
{
    if (!op->mps.name->gradient)
        return rg_kernel_forward_alloc(kernel, commands, 1, o->x, false, o->y, NULL);
    const uint32_t reads = op->mps.op->reads(op->desc);
    bool forward = reads & RG_READS_STATE;
    for (int32_t i = 0; i < rg_kernel_outputs(kernel); i++)
        forward |= o->y[i] == NULL && reads & (uint32_t)RG_READS_Y << i;
    if (forward)
        RG_TRY(forward_first(kernel, commands, o));
    RG_TRY(check_read(op, o, wanted));
    rg_tensor *given[RG_MAX_INPUTS];
    memcpy(given, o->x, sizeof given);
    const rg_status status = rg_gradient_complete(op->mps.op, op->desc, o->dy, wanted, o->x);
    for (int32_t i = 0; i < rg_kernel_inputs(kernel); i++) {
        if (o->x[i] != NULL && given[i] == NULL)
            o->made[o->made_count++] = o->x[i];
    }
    RG_TRY(status);
    return rg_kernel_gradient_alloc(kernel, commands, 1, o->dy, o->x, o->y,
                                    o->state != NULL ? &o->state : NULL, wanted, false, o->dx);
}

/* MPS's matrices and images have a fixed number of dimensions. */
static rg_status check_rank(const rg_operator *op, const rg_tensor *first)
{
    const rg_op_name *name = op->mps.name;
    RG_CHECK(name->rank_high == 0 || first == NULL ||
                 (first->desc.rank >= name->rank_low && first->desc.rank <= name->rank_high),
             RG_INVALID_ARGUMENT, "%s: %s has rank %d, but must have rank %d or %d", op->name,
             op->inputs[0].name, first->desc.rank, name->rank_low, name->rank_high);
    return RG_OK;
}

rg_status rg_mps_run(const rg_operator *op, rg_commands *commands, rg_tensor *const inputs[],
                     int32_t count, uint64_t wanted, rg_tensor *outputs[])
{
    operands o = { .made_count = 0 };
    for (int32_t i = 0; i < op->input_count; i++) {
        const rg_onnx_tensor *t = &op->inputs[i];
        rg_tensor *given = i < count ? inputs[i] : NULL;
        RG_CHECK(given != NULL || t->optional, RG_INVALID_ARGUMENT, "%s: the input %s is missing",
                 op->name, t->name);
        (t->role == RG_ROLE_X ? o.x : t->role == RG_ROLE_DY ? o.dy : o.y)[t->index] = given;
    }
    RG_TRY(check_rank(op, op->mps.name->gradient ? o.dy[0] : o.x[0]));
    rg_kernel *kernel;
    RG_TRY(rg_kernel_create(op->device, op->mps.op, op->desc, &kernel));
    const rg_status status = record(op, kernel, commands, &o, wanted);
    rg_kernel_destroy(kernel);
    rg_state_destroy(o.state);
    for (int32_t i = 0; i < o.made_count; i++)
        rg_tensor_destroy(o.made[i]);
    for (int32_t i = 0; i < op->output_count && status == RG_OK; i++) {
        rg_tensor *made = (op->mps.name->gradient ? o.dx : o.y)[op->outputs[i].index];
        if (wanted >> i & 1)
            outputs[i] = made;
        else
            rg_tensor_destroy(made);
    }
    return status;
}
