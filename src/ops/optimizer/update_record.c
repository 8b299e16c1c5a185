/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Fields, shape rule and recording, for sgd, rmsprop and adam. */
#include "ops/optimizer/update_record.h"
#include "core/integer.h"

/* ---- fields ---- */

const char *const rg_update_forms[] = { "mps", "torch", NULL };
static const char *const regularizations[] = { "none", "l1", "l2", NULL };
const char *const rg_update_copies[] = { "none", "f16", "bf16", NULL };

const rg_field rg_gradient_fields[] = {
    RG_FIELD(rg_gradient_rules, clip_minimum, "lower bound of the gradient's elements"),
    RG_FIELD(rg_gradient_rules, clip_maximum, "upper bound of the gradient's elements"),
    RG_FIELD(rg_gradient_rules, rescale, "scale of the gradient, applied after clipping"),
    RG_FIELD_NAMED(rg_gradient_rules, regularization, regularizations,
                   "added to the gradient: nothing (none), the sign of the parameter (l1) or the "
                   "parameter (l2)"),
    RG_FIELD(rg_gradient_rules, regularization_scale, "factor of the regularization"),
    { .name = NULL },
};

/* ---- what an optimizer reports of a descriptor ---- */

static int32_t rate_index(const rg_update_plan *p)
{
    return 2 + p->numbers.moments;
}

int32_t rg_update_count_inputs(const rg_update_plan *p)
{
    return rate_index(p) + 1 + p->stepped + p->scaled;
}

int32_t rg_update_count_outputs(const rg_update_plan *p)
{
    return 1 + p->numbers.moments + (p->copy != RG_PARAMETER_COPY_NONE);
}

const rg_alias *rg_update_aliases(const rg_update_plan *p)
{
    static const rg_alias pairs[][RG_UPDATE_MOMENTS + 2] = {
        { RG_X_AS_Y(0, 0) },
        { RG_X_AS_Y(0, 0), RG_X_AS_Y(2, 1) },
        { RG_X_AS_Y(0, 0), RG_X_AS_Y(2, 1), RG_X_AS_Y(3, 2) },
        { RG_X_AS_Y(0, 0), RG_X_AS_Y(2, 1), RG_X_AS_Y(3, 2), RG_X_AS_Y(4, 3) },
    };
    return pairs[p->numbers.moments];
}

rg_status rg_update_check(const rg_update_plan *p)
{
    const rg_gradient_rules *g = p->gradient;
    RG_CHECK(g->clip_minimum <= g->clip_maximum, RG_INVALID_ARGUMENT,
             "%s: gradient.clip_minimum is %g, greater than gradient.clip_maximum, %g", p->op,
             g->clip_minimum, g->clip_maximum);
    RG_CHECK(g->regularization != RG_REGULARIZATION_NONE || g->regularization_scale == 0,
             RG_INVALID_ARGUMENT,
             "%s: gradient.regularization_scale is %g, but gradient.regularization is none", p->op,
             g->regularization_scale);
    return RG_OK;
}

/* ---- shape rule ---- */

static rg_status check_value(const rg_update_plan *p, const char *name, const rg_tensor_desc *x,
                             bool whole)
{
    char text[RG_SHAPE_TEXT];
    const bool fits = whole ? x->dtype == RG_I64 : x->dtype == RG_F32 || x->dtype == RG_F64;
    RG_CHECK(x->rank == 0 && fits, RG_INVALID_ARGUMENT, "%s: %s is %s; it must be of rank 0 and %s",
             p->op, name, rg_shape_text(x, text), whole ? "i64" : "f32 or f64");
    return RG_OK;
}

rg_status rg_update_shapes(const rg_update_plan *p, const char *const names[],
                           const rg_tensor_desc x[], rg_tensor_desc y[])
{
    char have[RG_SHAPE_TEXT], other[RG_SHAPE_TEXT];
    const rg_tensor_desc *value = &x[rate_index(p)];
    const int32_t moments = p->numbers.moments;
    RG_CHECK(x->dtype == RG_F32 || x->dtype == RG_F64, RG_INVALID_ARGUMENT,
             "%s: parameter is %s; it must be f32 or f64, with f16 or bf16 for its copy", p->op,
             rg_dtype_name(x->dtype));
    RG_CHECK(p->copy == RG_PARAMETER_COPY_NONE || x->dtype == RG_F32, RG_INVALID_ARGUMENT,
             "%s: parameter is %s; a copy in 16 bits requires f32", p->op, rg_dtype_name(x->dtype));
    const bool narrow = x[1].dtype == RG_F16 || x[1].dtype == RG_BF16;
    RG_CHECK(x[1].dtype == x->dtype || (narrow && x->dtype == RG_F32), RG_INVALID_ARGUMENT,
             "%s: gradient is %s but parameter is %s; it must have the dtype of parameter, or f16 "
             "or bf16 if parameter is f32",
             p->op, rg_shape_text(&x[1], other), rg_shape_text(x, have));
    for (int32_t i = 1; i < 2 + moments; i++) {
        const bool fits = rg_shape_same_dims(&x[i], x) && (i == 1 || x[i].dtype == x->dtype);
        RG_CHECK(fits, RG_INVALID_ARGUMENT, "%s: %s is %s but parameter is %s", p->op, names[i],
                 rg_shape_text(&x[i], other), rg_shape_text(x, have));
    }
    RG_TRY(check_value(p, "rate", value++, false));
    if (p->stepped)
        RG_TRY(check_value(p, "step", value++, true));
    if (p->scaled)
        RG_TRY(check_value(p, "scale", value, false));
    for (int32_t i = 0; i <= moments; i++)
        y[i] = rg_tensor_desc_dense(x->dtype, x->rank, x->dims);
    if (p->copy != RG_PARAMETER_COPY_NONE)
        y[1 + moments] = rg_tensor_desc_dense(p->copy == RG_PARAMETER_COPY_F16 ? RG_F16 : RG_BF16,
                                              x->rank, x->dims);
    return RG_OK;
}

/* ---- recording ---- */

static rg_update_numbers numbers_of(const rg_update_plan *p, const rg_call *call)
{
    const rg_gradient_rules *g = p->gradient;
    rg_update_numbers n = p->numbers;
    const int32_t rate = rate_index(p), scale = rate + 1 + p->stepped;
    n.clip_minimum = g->clip_minimum;
    n.clip_maximum = g->clip_maximum;
    n.rescale = g->rescale;
    n.l1 = g->regularization == RG_REGULARIZATION_L1 ? g->regularization_scale : 0;
    n.l2 = g->regularization == RG_REGULARIZATION_L2 ? g->regularization_scale : 0;
    n.copy = (int32_t)p->copy;
    n.wide_rate = call->x[rate]->desc.dtype == RG_F64;
    n.wide_scale = p->scaled && call->x[scale]->desc.dtype == RG_F64;
    return n;
}

/* Entries of rg_update_values and of rg_update_tensors; NULL where there is none. */
static void list_values(const rg_update_plan *p, const rg_call *call,
                        const rg_tensor *list[RG_UPDATE_VALUES])
{
    const int32_t rate = rate_index(p);
    list[RG_POINTER_OF(rg_update_values, rate)] = call->x[rate];
    list[RG_POINTER_OF(rg_update_values, step)] = p->stepped ? call->x[rate + 1] : NULL;
    list[RG_POINTER_OF(rg_update_values, scale)] =
        p->scaled ? call->x[rate + 1 + p->stepped] : NULL;
}

static void list_tensors(const rg_update_plan *p, const rg_call *call,
                         const rg_tensor *list[RG_UPDATE_TENSORS])
{
    const int32_t moments = p->numbers.moments;
    memset(list, 0, RG_UPDATE_TENSORS * sizeof list[0]);
    list[RG_POINTER_OF(rg_update_tensors, parameter)] = call->x[0];
    list[RG_POINTER_OF(rg_update_tensors, gradient)] = call->x[1];
    list[RG_POINTER_OF(rg_update_tensors, new_parameter)] = call->y[0];
    for (int32_t m = 0; m < moments; m++) {
        list[RG_POINTER_OF(rg_update_tensors, moment[m])] = call->x[2 + m];
        list[RG_POINTER_OF(rg_update_tensors, new_moment[m])] = call->y[1 + m];
    }
    if (p->copy != RG_PARAMETER_COPY_NONE)
        list[RG_POINTER_OF(rg_update_tensors, copy)] = call->y[1 + moments];
}

/* The walks of all tensors over the dimensions before `end`; what is missing goes along with the
 * parameter. */
static void walk_of(const rg_tensor *const list[RG_UPDATE_TENSORS], int32_t begin, int32_t end,
                    rg_walk *read, rg_walk *written)
{
    const rg_tensor_desc *descs[RG_UPDATE_TENSORS];
    for (int i = 0; i < RG_UPDATE_TENSORS; i++)
        descs[i] = list[i] != NULL ? &list[i]->desc : &list[0]->desc;
    *read = rg_walk_make(descs, RG_UPDATE_INPUTS, begin, end);
    *written = rg_walk_make(descs + RG_UPDATE_INPUTS, RG_UPDATE_INPUTS, begin, end);
}

static bool is_line(const rg_walk *walk)
{
    bool line = walk->rank <= 1;
    for (int t = 0; t < RG_UPDATE_INPUTS && walk->rank == 1; t++)
        line &= walk->strides[t][0] == 1;
    return line;
}

/* Whether elements are contiguous, in the same order in all tensors: dense, as a rule. */
static bool is_flat(const rg_tensor *const list[RG_UPDATE_TENSORS])
{
    bool dense = true;
    for (int i = 0; i < RG_UPDATE_TENSORS; i++)
        dense &= list[i] == NULL || rg_shape_is_dense(&list[i]->desc);
    if (dense)
        return true;
    rg_walk read, written;
    walk_of(list, 0, list[0]->desc.rank, &read, &written);
    return is_line(&read) && is_line(&written);
}

static int64_t bytes_of(const rg_tensor *const list[RG_UPDATE_TENSORS])
{
    int64_t bytes = 0;
    for (int i = 0; i < RG_UPDATE_TENSORS; i++)
        bytes += list[i] != NULL ? (int64_t)rg_dtype_size(list[i]->desc.dtype) : 0;
    return bytes * rg_shape_count(&list[0]->desc);
}

/* Units of a tile: whole pieces, or many small rows. */
static int64_t grain_of(int64_t elements, int64_t units)
{
    const int64_t each = units > 0 ? elements / units : 0;
    return each >= RG_UPDATE_PIECE / 2 ? 1 : RG_UPDATE_PIECE / (each > 0 ? each : 1);
}

static rg_status record_strided(const rg_update_plan *p, rg_call *call, const rg_tensor *list[])
{
    const rg_tensor *const *tensors = list + RG_UPDATE_VALUES;
    const rg_tensor_desc *first = &tensors[0]->desc;
    const int32_t rank = first->rank; /* at least 1: others are flat */
    rg_update_strided_args args = { .length = first->dims[rank - 1],
                                    .numbers = numbers_of(p, call),
                                    .dense = true };
    walk_of(tensors, 0, rank - 1, &args.read, &args.written);
    for (int i = 0; i < RG_UPDATE_TENSORS; i++) {
        const rg_tensor_desc *desc = tensors[i] != NULL ? &tensors[i]->desc : first;
        args.step[i] = desc->strides[rank - 1];
        args.dense &= args.step[i] == 1 || args.length == 1;
    }
    args.pieces = rg_ceil_div(args.length, RG_UPDATE_PIECE);
    const int64_t units = args.read.count * args.pieces;
    const rg_launch launch = { .kernel = RG_UPDATE_STRIDED,
                               .dtype = tensors[1]->desc.dtype,
                               RG_ARGS(args),
                               .list = list,
                               .list_at = RG_POINTER(args, values.rate),
                               .length = RG_UPDATE_VALUES + RG_UPDATE_TENSORS,
                               .units = units,
                               .grain = grain_of(rg_shape_count(first), units),
                               .bytes = bytes_of(tensors) };
    return rg_record(call, &launch);
}

/* Parameters that share a launch: values and dtype of the gradient are the same. */
static bool joins(const rg_update_plan *p, const rg_call *a, const rg_call *b)
{
    const rg_tensor *of_a[RG_UPDATE_VALUES], *of_b[RG_UPDATE_VALUES];
    list_values(p, a, of_a);
    list_values(p, b, of_b);
    for (int i = 0; i < RG_UPDATE_VALUES; i++)
        if (of_a[i] != of_b[i])
            return false;
    return a->x[1]->desc.dtype == b->x[1]->desc.dtype;
}

/* A launch for the rows that have been listed. */
static rg_status record_flat(rg_call *call, rg_update_flat_args *args,
                             const rg_tensor *const list[], int64_t bytes)
{
    int64_t elements = 0, units = 0;
    for (int32_t r = 0; r < args->rows; r++) {
        args->first[r] = units;
        units += rg_ceil_div(args->count[r], RG_UPDATE_PIECE);
        elements += args->count[r];
    }
    args->first[args->rows] = units;
    args->numbers.stream = rg_call_streams(call, bytes / 2);
    const rg_launch launch = { .kernel = RG_UPDATE_FLAT,
                               .dtype = call->x[1]->desc.dtype,
                               RG_ARGS(*args),
                               .list = list,
                               .list_at = RG_POINTER(*args, values.rate),
                               .length = RG_UPDATE_VALUES + args->rows * RG_UPDATE_TENSORS,
                               .units = units,
                               .grain = grain_of(elements, units),
                               .bytes = bytes };
    return rg_record(call, &launch);
}

rg_status rg_update_record(const rg_update_plan *p, rg_call calls[], int32_t count)
{
    for (int32_t n = 0, next; n < count; n = next) {
        const rg_tensor *list[RG_UPDATE_VALUES + RG_UPDATE_ROWS * RG_UPDATE_TENSORS];
        rg_update_flat_args args = { .numbers = numbers_of(p, &calls[n]) };
        int64_t bytes = 0;
        list_values(p, &calls[n], list);
        for (next = n; next < count && args.rows < RG_UPDATE_ROWS; next++) {
            const rg_tensor **row = list + RG_UPDATE_VALUES + args.rows * RG_UPDATE_TENSORS;
            list_tensors(p, &calls[next], row);
            if (!joins(p, &calls[n], &calls[next]) || !is_flat(row))
                break;
            args.count[args.rows++] = rg_shape_count(&row[0]->desc);
            bytes += bytes_of(row);
        }
        if (args.rows > 0) {
            RG_TRY(record_flat(&calls[n], &args, list, bytes));
        } else {
            RG_TRY(record_strided(p, &calls[n], list));
            next = n + 1;
        }
    }
    return RG_OK;
}
