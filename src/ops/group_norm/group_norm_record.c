/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Group normalization: the launches of forward and gradient, by rows or by columns. */
#include "ops/group_norm/group_norm_record.h"
#include "core/integer.h"
#include "ops/group_norm/group_norm.h"
#include "ops/norm/norm_record.h"

/* ---- what all launches need ---- */

rg_group_norm_shape rg_group_norm_shape_of(const rg_call *call, bool gradient)
{
    const rg_group_norm_desc *d = call->desc;
    const rg_tensor *x = call->x[0];
    const rg_tensor *const forward[] = { x, call->y[0] };
    const rg_tensor *const backward[] = { call->dy[0], x, call->dx[0] != NULL ? call->dx[0] : x };
    const rg_tensor_desc *descs[RG_WALK_TENSORS];
    const int count = gradient ? 3 : 2;
    for (int t = 0; t < count; t++)
        descs[t] = gradient ? &backward[t]->desc : &forward[t]->desc;
    rg_group_norm_shape s = {
        .channels = rg_channels_make(descs, count, rg_group_norm_axis_of(d, x->desc.rank), true),
        .groups = rg_group_norm_groups_of(d, &x->desc),
        .epsilon = d->epsilon,
        .neuron = rg_norm_neuron_of(&d->neuron, x->desc.dtype, gradient),
    };
    for (int32_t i = 1; i < call->inputs; i++) {
        const rg_tensor *known = call->x[i] != NULL ? call->x[i] : call->dx[i];
        s.parameters.dtype = known != NULL ? known->desc.dtype : s.parameters.dtype;
    }
    return s;
}

/* gamma and beta, or a tensor that replaces them. */
static void take_parameters(const rg_call *call, rg_norm_parameters *p, const rg_tensor **gamma,
                            const rg_tensor **beta)
{
    const rg_group_norm_desc *d = call->desc;
    *gamma = d->gamma && call->x[1] != NULL ? call->x[1] : call->x[0];
    *beta = d->beta && call->x[d->gamma ? 2 : 1] != NULL ? call->x[d->gamma ? 2 : 1] : call->x[0];
    p->has_gamma = *gamma != call->x[0];
    p->has_beta = *beta != call->x[0];
    p->gamma_step = (*gamma)->desc.strides[0];
    p->beta_step = (*beta)->desc.strides[0];
}

static int64_t units_of(const rg_group_norm_shape *s)
{
    return s->by_rows ? rg_ceil_div(s->channels.images.count, s->part)
                      : s->channels.images.count * s->channels.blocks;
}

/* Temporaries of a call; those that stay NULL are not needed. */
typedef struct buffers {
    rg_tensor *mean, *rest, *s, *partial, *moments, *factors, *dgammas, *dbetas;
} buffers;

static void give_back(buffers *r)
{
    rg_tensor *const all[] = { r->mean,    r->rest,    r->s,       r->partial,
                               r->moments, r->factors, r->dgammas, r->dbetas };
    for (int i = 0; i < 8; i++)
        rg_tensor_destroy(all[i]);
}

/* A GPU needs tables between the passes over columns; a CPU has them on its stack. */
static bool needs_tables(const rg_call *call, const rg_group_norm_shape *s)
{
    return !s->by_rows && call->x[0]->device->backend != &rg_backend_cpu;
}

static rg_status take_buffers(rg_call *call, const rg_group_norm_shape *s, buffers *r)
{
    const rg_dtype real = rg_norm_real(call->x[0]->desc.dtype);
    const int64_t images = s->channels.images.count, channels = s->channels.channels;
    const int64_t each[] = { images, s->groups };
    if (call->state == NULL) {
        RG_TRY(rg_norm_temporary(call, real, 2, each, &r->mean));
        RG_TRY(rg_norm_temporary(call, real, 2, each, &r->rest));
        RG_TRY(rg_norm_temporary(call, real, 2, each, &r->s));
    }
    if (!needs_tables(call, s))
        return RG_OK;
    const int64_t partial[] = { images, s->channels.parts, RG_NORM_PARTIAL, channels };
    const int64_t moments[] = { images, RG_NORM_MOMENTS, channels };
    RG_TRY(rg_norm_temporary(call, real, 4, partial, &r->partial));
    return rg_norm_temporary(call, real, 3, moments, &r->moments);
}

static const rg_tensor *slot(const rg_call *call, int32_t index, const rg_tensor *otherwise)
{
    return call->state != NULL ? rg_state_slot_tensor(call->state, index) : otherwise;
}

static const rg_tensor *either(const rg_tensor *tensor, const rg_tensor *otherwise)
{
    return tensor != NULL ? tensor : otherwise;
}

static bool has_neighbours(const rg_group_norm_shape *s)
{
    return s->channels.dense || s->channels.planes;
}

/* ---- forward ---- */

static rg_status record_forward(rg_call *call, const rg_group_norm_shape *shape, const buffers *r)
{
    const rg_tensor *gamma, *beta, *x = call->x[0];
    rg_group_norm_args args = { .shape = *shape };
    take_parameters(call, &args.shape.parameters, &gamma, &beta);
    args.shape.stream = has_neighbours(shape) && rg_call_streams(call, rg_move_bytes(x));
    const rg_launch launch = {
        .tensors = { RG_BIND(args, x, x), RG_BIND(args, gamma, gamma), RG_BIND(args, beta, beta),
                     RG_BIND(args, mean, slot(call, RG_GROUP_NORM_MEAN, r->mean)),
                     RG_BIND(args, rest, slot(call, RG_GROUP_NORM_REST, r->rest)),
                     RG_BIND(args, s, slot(call, RG_GROUP_NORM_S, r->s)),
                     RG_BIND(args, partial, either(r->partial, x)),
                     RG_BIND(args, moments, either(r->moments, x)), RG_BIND(args, y, call->y[0]) },
        .kernel = shape->by_rows ? RG_GROUP_NORM_ROWS : RG_GROUP_NORM_COLUMNS,
        .dtype = x->desc.dtype,
        RG_ARGS(args),
        .units = units_of(shape),
        .bytes = 2 * rg_move_bytes(x)
    };
    return rg_record(call, &launch);
}

/* ---- gradient ---- */

/* Inputs gamma and beta, whose gradients may be asked for; 0: there is none. */
static int32_t gamma_index(const rg_group_norm_desc *d)
{
    return d->gamma ? 1 : 0;
}

static int32_t beta_index(const rg_group_norm_desc *d)
{
    return d->beta ? (d->gamma ? 2 : 1) : 0;
}

static bool wants_parameters(const rg_call *call)
{
    const rg_group_norm_desc *d = call->desc;
    const int32_t gamma = gamma_index(d), beta = beta_index(d);
    return (gamma > 0 && call->dx[gamma] != NULL) || (beta > 0 && call->dx[beta] != NULL);
}

/* Whether the state receives dgamma and dbeta of each image. */
static bool keeps_images(const rg_call *call)
{
    return ((const rg_group_norm_desc *)call->desc)->image_gradients && call->state != NULL;
}

/* Sums over images of one parameter's gradients. */
static rg_status record_join(rg_call *call, const rg_tensor *from, int64_t count, int32_t input)
{
    const rg_tensor *to = input > 0 ? call->dx[input] : NULL;
    if (to == NULL)
        return RG_OK;
    const rg_group_norm_join_args args = { .count = count,
                                           .channels = to->desc.dims[0],
                                           .step = to->desc.strides[0],
                                           .dtype = to->desc.dtype,
                                           .add = call->add >> input & 1 };
    const rg_launch launch = { .tensors = { RG_BIND(args, from, from), RG_BIND(args, to, to) },
                               .kernel = RG_GROUP_NORM_JOIN,
                               .dtype = call->x[0]->desc.dtype,
                               RG_ARGS(args),
                               .units = rg_norm_units(args.channels),
                               .bytes = (count + 1) * args.channels * 4 };
    return rg_record(call, &launch);
}

/* Rows of dgammas and dbetas. */
static int64_t sums_of(const rg_group_norm_shape *s)
{
    return s->by_rows ? units_of(s) : s->channels.images.count;
}

static rg_status take_gradient_buffers(rg_call *call, const rg_group_norm_shape *s, buffers *r)
{
    const rg_dtype real = rg_norm_real(call->x[0]->desc.dtype);
    const int64_t sums[] = { sums_of(s), s->channels.channels };
    const int64_t factors[] = { s->channels.images.count, RG_NORM_FACTORS, s->channels.channels };
    RG_TRY(take_buffers(call, s, r));
    if (needs_tables(call, s))
        RG_TRY(rg_norm_temporary(call, real, 3, factors, &r->factors));
    if (!wants_parameters(call) || (keeps_images(call) && !s->by_rows))
        return RG_OK;
    RG_TRY(rg_norm_temporary(call, real, 2, sums, &r->dgammas));
    return rg_norm_temporary(call, real, 2, sums, &r->dbetas);
}

/* dx, and into dgammas and dbetas sums of images; those that are NULL are not wanted. */
static rg_status record_gradient(rg_call *call, const rg_group_norm_shape *shape, const buffers *r,
                                 const rg_tensor *dx, const rg_tensor *dgammas,
                                 const rg_tensor *dbetas)
{
    const rg_tensor *gamma, *beta, *x = call->x[0];
    rg_group_norm_gradient_args args = { .shape = *shape,
                                         .has_statistics =
                                             call->state != NULL && call->state->filled,
                                         .wants_dx = dx != NULL,
                                         .wants_sums = dgammas != NULL,
                                         .add = call->add & 1 };
    take_parameters(call, &args.shape.parameters, &gamma, &beta);
    args.shape.stream = args.wants_dx && !args.add && has_neighbours(shape) &&
                        rg_call_streams(call, rg_move_bytes(x));
    const rg_launch launch = {
        .tensors = { RG_BIND(args, dy, call->dy[0]), RG_BIND(args, x, x),
                     RG_BIND(args, gamma, gamma), RG_BIND(args, beta, beta),
                     RG_BIND(args, mean, slot(call, RG_GROUP_NORM_MEAN, r->mean)),
                     RG_BIND(args, rest, slot(call, RG_GROUP_NORM_REST, r->rest)),
                     RG_BIND(args, s, slot(call, RG_GROUP_NORM_S, r->s)),
                     RG_BIND(args, dgammas, either(dgammas, x)),
                     RG_BIND(args, dbetas, either(dbetas, x)),
                     RG_BIND(args, partial, either(r->partial, x)),
                     RG_BIND(args, moments, either(r->moments, x)),
                     RG_BIND(args, factors, either(r->factors, x)),
                     RG_BIND(args, dx, either(dx, x)) },
        .kernel = shape->by_rows ? RG_GROUP_NORM_ROWS_GRADIENT : RG_GROUP_NORM_COLUMNS_GRADIENT,
        .dtype = x->desc.dtype,
        RG_ARGS(args),
        .units = units_of(shape),
        .bytes = (dx != NULL ? 3 : 2) * rg_move_bytes(x),
    };
    return rg_record(call, &launch);
}

/* Gradients of parameters, from sums of images. */
static rg_status record_joins(rg_call *call, const rg_group_norm_shape *shape,
                              const rg_tensor *dgammas, const rg_tensor *dbetas)
{
    const rg_group_norm_desc *d = call->desc;
    RG_TRY(record_join(call, dgammas, sums_of(shape), gamma_index(d)));
    return record_join(call, dbetas, sums_of(shape), beta_index(d));
}

/* Rows where the state keeps dgamma and dbeta of each image. Sums over images are a launch of their
 * own, so that their order is the same as without; they come first, because dx may be dy or x. */
static rg_status gradient_apart(rg_call *call, const rg_group_norm_shape *shape, const buffers *r)
{
    if (wants_parameters(call)) {
        RG_TRY(record_gradient(call, shape, r, NULL, r->dgammas, r->dbetas));
        RG_TRY(record_joins(call, shape, r->dgammas, r->dbetas));
    }
    rg_group_norm_shape each = *shape;
    each.part = 1;
    return record_gradient(call, &each, r, call->dx[0], slot(call, RG_GROUP_NORM_DGAMMA, NULL),
                           slot(call, RG_GROUP_NORM_DBETA, NULL));
}

static rg_status gradient_joined(rg_call *call, const rg_group_norm_shape *shape, const buffers *r)
{
    const bool kept = keeps_images(call);
    const rg_tensor *dgammas = kept ? slot(call, RG_GROUP_NORM_DGAMMA, NULL) : r->dgammas;
    const rg_tensor *dbetas = kept ? slot(call, RG_GROUP_NORM_DBETA, NULL) : r->dbetas;
    RG_TRY(record_gradient(call, shape, r, call->dx[0], dgammas, dbetas));
    return record_joins(call, shape, dgammas, dbetas);
}

/* ---- by one strategy ---- */

rg_status rg_group_norm_record(rg_call *call, const rg_group_norm_shape *shape, bool gradient)
{
    buffers r = { 0 };
    rg_status status =
        gradient ? take_gradient_buffers(call, shape, &r) : take_buffers(call, shape, &r);
    if (status == RG_OK && !gradient)
        status = record_forward(call, shape, &r);
    else if (status == RG_OK)
        status = keeps_images(call) && shape->by_rows ? gradient_apart(call, shape, &r)
                                                      : gradient_joined(call, shape, &r);
    give_back(&r);
    return status;
}
