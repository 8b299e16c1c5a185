/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Products of stacks of matrices: description, shape rule, forward, gradient. */
#include "ops/matmul/product_record.h"

#include <retrograde/matmul.h>

#include <float.h>

/* ---- description ---- */

static const rg_matmul_desc defaults = { .size = sizeof(rg_matmul_desc), .alpha = 1 };

rg_matmul_desc rg_matmul_desc_default(void)
{
    return defaults;
}

static const rg_field fields[] = {
    RG_FIELD(rg_matmul_desc, transpose_a, "whether the matrices of a are transposed"),
    RG_FIELD(rg_matmul_desc, transpose_b, "whether the matrices of b are transposed"),
    RG_FIELD_IN(rg_matmul_desc, alpha, -DBL_MAX, DBL_MAX, "factor of the sums"),
    { .name = NULL },
};

static const rg_op_name names[] = {
    { .name = NULL },
};

/* ---- shape rule ---- */

/* Dimension d of y in a tensor whose dimensions are counted from the last; 1 where it has none. */
static int64_t stack_dim(const rg_tensor_desc *x, const rg_tensor_desc *y, int32_t d)
{
    const int32_t own = d - (y->rank - x->rank);
    return own < 0 ? 1 : x->dims[own];
}

static rg_status check_operand(const rg_tensor_desc *x, const char *name, rg_dtype dtype)
{
    char text[RG_SHAPE_TEXT];
    RG_CHECK(rg_dtype_is_data(x->dtype), RG_INVALID_ARGUMENT,
             "matmul: %s is %s; f32, f64, f16 and bf16 are supported", name,
             rg_dtype_name(x->dtype));
    RG_CHECK(x->dtype == dtype, RG_INVALID_ARGUMENT,
             "matmul: b is %s but a is %s; both must have the same dtype", rg_dtype_name(x->dtype),
             rg_dtype_name(dtype));
    RG_CHECK(x->rank >= 2, RG_INVALID_ARGUMENT,
             "matmul: %s is %s; it must have at least two dimensions, those of a matrix", name,
             rg_shape_text(x, text));
    return RG_OK;
}

static rg_status shapes(const void *desc, const rg_tensor_desc x[], rg_tensor_desc y[])
{
    const rg_matmul_desc *d = desc;
    char a[RG_SHAPE_TEXT], b[RG_SHAPE_TEXT];
    RG_TRY(check_operand(&x[0], "a", x[0].dtype));
    RG_TRY(check_operand(&x[1], "b", x[0].dtype));
    const int64_t inner_a = x[0].dims[x[0].rank - (d->transpose_a ? 2 : 1)];
    const int64_t inner_b = x[1].dims[x[1].rank - (d->transpose_b ? 1 : 2)];
    RG_CHECK(inner_a == inner_b, RG_INVALID_ARGUMENT,
             "matmul: a is %s%s and b is %s%s; their inner dimensions are %lld and %lld",
             rg_shape_text(&x[0], a), d->transpose_a ? " transposed" : "", rg_shape_text(&x[1], b),
             d->transpose_b ? " transposed" : "", (long long)inner_a, (long long)inner_b);
    int64_t dims[RG_MAX_RANK];
    rg_tensor_desc result = { .rank = x[0].rank > x[1].rank ? x[0].rank : x[1].rank };
    for (int32_t k = 0; k < result.rank - 2; k++) {
        const int64_t of_a = stack_dim(&x[0], &result, k), of_b = stack_dim(&x[1], &result, k);
        RG_CHECK(of_a == of_b || of_a == 1 || of_b == 1, RG_INVALID_ARGUMENT,
                 "matmul: a is %s and b is %s; %lld and %lld matrices cannot be broadcast",
                 rg_shape_text(&x[0], a), rg_shape_text(&x[1], b), (long long)of_a,
                 (long long)of_b);
        dims[k] = of_a == 1 ? of_b : of_a;
    }
    dims[result.rank - 2] = x[0].dims[x[0].rank - (d->transpose_a ? 1 : 2)];
    dims[result.rank - 1] = x[1].dims[x[1].rank - (d->transpose_b ? 2 : 1)];
    y[0] = rg_tensor_desc_dense(x[0].dtype, result.rank, dims);
    return rg_shape_check(y, "matmul: y", NULL);
}

static uint32_t reads(const void *desc)
{
    (void)desc;
    return RG_READS_X | RG_READS_X << 1;
}

/* ---- products ---- */

/* An operand with the dimensions of y before its own two: those it is repeated along have a stride
 * of 0. `outer` and `inner` are its dimensions that the product keeps and sums over; of a result,
 * its rows and columns. */
typedef struct operand {
    const rg_tensor *tensor;
    rg_tensor_desc desc;
    int32_t outer, inner;
    uint32_t repeated; /* bit d: along dimension d */
} operand;

/* `swapped`: the first of both dimensions is the inner one. */
static operand operand_of(const rg_tensor *tensor, const rg_tensor *y, bool swapped)
{
    const int32_t rank = y->desc.rank, missing = rank - tensor->desc.rank;
    operand o = { .tensor = tensor,
                  .desc = y->desc,
                  .outer = rank - (swapped ? 1 : 2),
                  .inner = rank - (swapped ? 2 : 1) };
    for (int32_t d = 0; d < rank; d++) {
        const bool repeats = d < rank - 2 && stack_dim(&tensor->desc, &y->desc, d) == 1;
        o.repeated |= (uint32_t)repeats << d;
        if (d >= rank - 2)
            o.desc.dims[d] = tensor->desc.dims[d - missing];
        o.desc.strides[d] = repeats ? 0 : tensor->desc.strides[d - missing];
    }
    return o;
}

static operand swapped(operand o)
{
    const int32_t outer = o.outer;
    o.outer = o.inner;
    o.inner = outer;
    return o;
}

/* The dimensions of the stack in `stack`, then dimension `last`, if it is not negative. */
static rg_tensor_desc picked(const operand *o, uint32_t stack, int32_t last)
{
    rg_tensor_desc desc = { .dtype = o->desc.dtype };
    for (int32_t d = 0; d < o->desc.rank; d++) {
        if (d == last || (d < o->desc.rank - 2 && stack >> d & 1)) {
            desc.dims[desc.rank] = o->desc.dims[d];
            desc.strides[desc.rank++] = o->desc.strides[d];
        }
    }
    return desc;
}

static rg_walk walk_of(rg_tensor_desc first, rg_tensor_desc second)
{
    return rg_walk_make((const rg_tensor_desc *const[]){ &first, &second }, 2, 0, first.rank);
}

/* c = alpha a b, summed over the inner dimensions and over those that c is repeated along. */
static rg_status record(rg_call *call, operand a, operand b, operand c, int32_t bit)
{
    const uint32_t summed = c.repeated;
    const rg_tensor_desc stack[] = { picked(&a, ~summed, -1), picked(&b, ~summed, -1),
                                     picked(&c, ~summed, -1) };
    rg_product_call product = {
        .a = a.tensor,
        .b = b.tensor,
        .c = c.tensor,
        .args = { .batch = rg_walk_make(
                      (const rg_tensor_desc *const[]){ &stack[0], &stack[1], &stack[2] }, 3, 0,
                      stack[0].rank),
                  .m = walk_of(picked(&a, 0, a.outer), picked(&c, 0, c.outer)),
                  .n = walk_of(picked(&b, 0, b.outer), picked(&c, 0, c.inner)),
                  .k = walk_of(picked(&a, summed, a.inner), picked(&b, summed, b.inner)),
                  .alpha = ((const rg_matmul_desc *)call->desc)->alpha,
                  .a_transposed = a.outer > a.inner,
                  .b_transposed = b.outer < b.inner,
                  .add = bit >= 0 && call->add >> bit & 1 },
    };
    return rg_record_product(call, &product);
}

static rg_status forward(rg_call *call)
{
    const rg_matmul_desc *d = call->desc;
    const rg_tensor *y = call->y[0];
    operand c = operand_of(y, y, false);
    c.repeated = 0;
    return record(call, operand_of(call->x[0], y, d->transpose_a),
                  operand_of(call->x[1], y, !d->transpose_b), c, -1);
}

/* The columns of a result are its last dimension, so the transpose of da or db is a product with
 * its operands exchanged. */
static rg_status gradient(rg_call *call)
{
    const rg_matmul_desc *d = call->desc;
    const rg_tensor *dy = call->dy[0];
    const operand a = operand_of(call->x[0], dy, d->transpose_a);
    const operand b = operand_of(call->x[1], dy, !d->transpose_b);
    const operand rows = operand_of(dy, dy, false), columns = swapped(rows);
    if (call->dx[0] != NULL) {
        const operand da = operand_of(call->dx[0], dy, false), other = swapped(b);
        RG_TRY(d->transpose_a ? record(call, other, rows, da, 0)
                              : record(call, rows, other, da, 0));
    }
    if (call->dx[1] != NULL) {
        const operand db = operand_of(call->dx[1], dy, false), other = swapped(a);
        RG_TRY(d->transpose_b ? record(call, columns, other, db, 1)
                              : record(call, other, columns, db, 1));
    }
    return RG_OK;
}

RG_OP_DEFINE(matmul, .text = "products of two stacks of matrices, broadcast",
             .desc = { fields, &defaults, sizeof defaults },
             .inputs = (const char *const[]){ "a", "b", NULL },
             .outputs = (const char *const[]){ "y", NULL }, .names = names, .shapes = shapes,
             .reads = reads, .wide_gradients = 3, .forward = forward, .gradient = gradient,
             .strategies = rg_product_strategies);

rg_status rg_matmul_create(rg_device *device, const rg_matmul_desc *desc, rg_kernel **kernel)
{
    return rg_kernel_create(device, &rg_op_matmul, desc, kernel);
}
