/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Batch normalization: the tensors of a call, and a function for each launch. */
#include "ops/batch_norm/batch_norm_record.h"
#include "core/integer.h"

/* ---- inputs and the state ---- */

bool rg_batch_norm_takes_statistics(const rg_batch_norm_desc *d)
{
    return d->statistics == RG_BATCH_NORM_GIVEN || d->statistics == RG_BATCH_NORM_RUNNING;
}

bool rg_batch_norm_gives_statistics(const rg_batch_norm_desc *d)
{
    return d->statistics == RG_BATCH_NORM_RETURNED || d->statistics == RG_BATCH_NORM_RUNNING;
}

rg_batch_norm_inputs rg_batch_norm_inputs_of(const rg_batch_norm_desc *d)
{
    rg_batch_norm_inputs p = { .inputs = 1 };
    p.gamma = d->gamma ? p.inputs++ : 0;
    p.beta = d->beta ? p.inputs++ : 0;
    p.mean = rg_batch_norm_takes_statistics(d) ? p.inputs++ : 0;
    p.variance = rg_batch_norm_takes_statistics(d) ? p.inputs++ : 0;
    return p;
}

/* The dtype of all parameters; where the call has none of them the state knows it. */
static rg_dtype dtype_of_parameters(const rg_call *call)
{
    for (int32_t i = 1; i < call->inputs; i++) {
        const rg_tensor *known = call->x[i] != NULL ? call->x[i] : call->dx[i];
        if (known != NULL)
            return known->desc.dtype;
    }
    return call->inputs > 1 && call->state != NULL ? call->state->sources[1].dtype
                                                   : rg_norm_real(call->x[0]->desc.dtype);
}

rg_batch_norm_tensors rg_batch_norm_tensors_of(const rg_call *call,
                                               const rg_batch_norm_request *request)
{
    const rg_batch_norm_desc *d = call->desc;
    rg_batch_norm_tensors t = { .x = call->x[0],
                                .at = rg_batch_norm_inputs_of(d),
                                .chained = request->chained,
                                .planes = request->planes };
    t.any = t.x;
    t.gamma = t.at.gamma > 0 && call->x[t.at.gamma] != NULL ? call->x[t.at.gamma] : t.any;
    t.beta = t.at.beta > 0 && call->x[t.at.beta] != NULL ? call->x[t.at.beta] : t.any;
    t.mean = t.at.mean > 0 && call->x[t.at.mean] != NULL ? call->x[t.at.mean] : t.any;
    t.variance =
        t.at.variance > 0 && call->x[t.at.variance] != NULL ? call->x[t.at.variance] : t.any;
    t.parameters = (rg_norm_parameters){ .dtype = dtype_of_parameters(call),
                                         .gamma_step = t.gamma->desc.strides[0],
                                         .beta_step = t.beta->desc.strides[0],
                                         .has_gamma = t.gamma != t.any,
                                         .has_beta = t.beta != t.any };
    return t;
}

/* Of planes, a unit has as many as are summed up side by side, because they share no cache lines.
 */
static rg_channels shape_of(const rg_tensor_desc *const descs[], int tensors,
                            const rg_batch_norm_tensors *t)
{
    enum { PLANES = 16 };
    rg_channels shape = rg_channels_make(descs, tensors, 0, t->chained);
    if (t->planes) {
        shape.planes = true;
        shape.block = rg_min(shape.block, PLANES);
        shape.blocks = rg_ceil_div(shape.channels, shape.block);
    }
    return shape;
}

/* The same where nothing is summed up: parts are whole planes of images, if these are not long. */
static rg_channels shape_of_results(const rg_tensor_desc *const descs[], int tensors,
                                    const rg_batch_norm_tensors *t)
{
    enum { PART_ELEMENTS = 16384, MAX_RUN = 8192 };
    rg_channels s = shape_of(descs, tensors, t);
    if (!t->planes)
        return s;
    const int64_t run = rg_min(s.rows.dims[s.rows.rank - 1], MAX_RUN);
    s.part = run * rg_max(PART_ELEMENTS / (run * s.block), 1);
    s.parts = rg_ceil_div(s.rows.count, s.part);
    return s;
}

rg_channels rg_batch_norm_shape_of(const rg_batch_norm_tensors *t)
{
    return shape_of((const rg_tensor_desc *const[]){ &t->x->desc }, 1, t);
}

int64_t rg_batch_norm_channels_of(const rg_tensor *x)
{
    return x->desc.dims[x->desc.rank - 1];
}

int64_t rg_batch_norm_rows_of(const rg_tensor *x)
{
    return rg_shape_count(&x->desc) / rg_batch_norm_channels_of(x);
}

const rg_tensor *rg_batch_norm_slot(const rg_call *call, int32_t index, const rg_tensor *otherwise)
{
    return call->state != NULL ? rg_state_slot_tensor(call->state, index) : otherwise;
}

/* ---- launches, in the order of the kernels ---- */

rg_status rg_batch_norm_record_parts(rg_call *call, const rg_batch_norm_tensors *t,
                                     const rg_tensor *partial)
{
    rg_batch_norm_parts_args args = { .shape = rg_batch_norm_shape_of(t) };
    const rg_launch launch = { .tensors = { RG_BIND(args, x, t->x),
                                            RG_BIND(args, partial, partial) },
                               .kernel = RG_BATCH_NORM_PARTS,
                               .dtype = t->x->desc.dtype,
                               RG_ARGS(args),
                               .units = rg_channels_units(&args.shape),
                               .bytes = rg_move_bytes(t->x) };
    return rg_record(call, &launch);
}

rg_status rg_batch_norm_record_merge(rg_call *call, const rg_batch_norm_tensors *t,
                                     const rg_tensor *partial, int64_t before, bool returns)
{
    const rg_batch_norm_desc *d = call->desc;
    const rg_channels shape = rg_batch_norm_shape_of(t);
    const bool gives = returns && rg_batch_norm_gives_statistics(d),
               given = d->statistics == RG_BATCH_NORM_GIVEN;
    const rg_tensor *mean_out = gives ? call->y[1] : t->any;
    const rg_tensor *variance_out = gives ? call->y[2] : t->any;
    const rg_batch_norm_merge_args args = {
        .channels = shape.channels,
        .rows = shape.rows.count,
        .part = shape.part,
        .parts = given ? 0 : shape.parts,
        .before = before,
        .mean_in_step = t->mean->desc.strides[0],
        .variance_in_step = t->variance->desc.strides[0],
        .mean_out_step = mean_out->desc.strides[0],
        .variance_out_step = variance_out->desc.strides[0],
        .dtype = t->parameters.dtype,
        .statistics = gives || given ? d->statistics : RG_BATCH_NORM_OWN,
        .epsilon = d->epsilon,
        .momentum = d->momentum,
        .unbiased = d->unbiased,
        .has_state = call->state != NULL,
    };
    const rg_launch launch = {
        .tensors = { RG_BIND(args, partial, partial), RG_BIND(args, moments, t->moments),
                     RG_BIND(args, mean_in, t->mean), RG_BIND(args, variance_in, t->variance),
                     RG_BIND(args, mean_out, mean_out), RG_BIND(args, variance_out, variance_out),
                     RG_BIND(args, mean, rg_batch_norm_slot(call, MEAN, t->any)),
                     RG_BIND(args, variance, rg_batch_norm_slot(call, VARIANCE, t->any)),
                     RG_BIND(args, s, rg_batch_norm_slot(call, S, t->any)) },
        .kernel = RG_BATCH_NORM_MERGE,
        .dtype = t->x->desc.dtype,
        RG_ARGS(args),
        .units = rg_norm_units(shape.channels),
        .bytes = shape.channels * (args.parts + 2) * 16
    };
    return rg_record(call, &launch);
}

rg_status rg_batch_norm_record_forward(rg_call *call, const rg_batch_norm_tensors *t)
{
    const rg_batch_norm_desc *d = call->desc;
    const rg_tensor_desc *const descs[] = { &t->x->desc, &call->y[0]->desc };
    rg_batch_norm_args args = { .shape = shape_of_results(descs, 2, t),
                                .parameters = t->parameters,
                                .neuron = rg_norm_neuron_of(&d->neuron, descs[0]->dtype, false) };
    const rg_launch launch = { .tensors = { RG_BIND(args, x, t->x), RG_BIND(args, gamma, t->gamma),
                                            RG_BIND(args, beta, t->beta),
                                            RG_BIND(args, moments, t->moments),
                                            RG_BIND(args, y, call->y[0]) },
                               .kernel = RG_BATCH_NORM_FORWARD,
                               .dtype = descs[0]->dtype,
                               RG_ARGS(args),
                               .units = rg_channels_units(&args.shape),
                               .backwards = true,
                               .bytes = 2 * rg_move_bytes(t->x) };
    args.stream = (args.shape.dense || t->planes) && rg_call_streams(call, rg_move_bytes(t->x));
    return rg_record(call, &launch);
}

rg_status rg_batch_norm_record_sums(rg_call *call, const rg_batch_norm_tensors *t,
                                    const rg_tensor *partial)
{
    const rg_batch_norm_desc *d = call->desc;
    const rg_tensor_desc *const descs[] = { &call->dy[0]->desc, &t->x->desc };
    const rg_batch_norm_sums_args args = {
        .shape = shape_of(descs, 2, t),
        .parameters = t->parameters,
        .neuron = rg_norm_neuron_of(&d->neuron, descs[0]->dtype, true),
    };
    const rg_launch launch = {
        .tensors = { RG_BIND(args, dy, call->dy[0]), RG_BIND(args, x, t->x),
                     RG_BIND(args, gamma, t->gamma), RG_BIND(args, beta, t->beta),
                     RG_BIND(args, moments, t->moments), RG_BIND(args, partial, partial) },
        .kernel = RG_BATCH_NORM_SUMS,
        .dtype = descs[0]->dtype,
        RG_ARGS(args),
        .units = rg_channels_units(&args.shape),
        .bytes = 2 * rg_move_bytes(t->x)
    };
    return rg_record(call, &launch);
}

/* A gradient of channels that may be wanted, with a tensor that replaces it if it is not. */
static rg_batch_norm_result result_of(const rg_call *call, int32_t input, const rg_tensor *any,
                                      const rg_tensor **tensor)
{
    *tensor = any;
    if (input == 0 || call->dx[input] == NULL)
        return (rg_batch_norm_result){ .wanted = false };
    *tensor = call->dx[input];
    return (rg_batch_norm_result){ .wanted = true,
                                   .add = call->add >> input & 1,
                                   .step = (*tensor)->desc.strides[0] };
}

static bool has_dy(const rg_call *call, int32_t output)
{
    return output < call->outputs && call->dy[output] != NULL;
}

rg_status rg_batch_norm_record_join(rg_call *call, const rg_batch_norm_tensors *t,
                                    const rg_tensor *partial, const rg_tensor *factors,
                                    int64_t count, bool before)
{
    const rg_batch_norm_desc *d = call->desc;
    const rg_channels shape = rg_batch_norm_shape_of(t);
    const rg_tensor *dmean_out = has_dy(call, 1) ? call->dy[1] : t->any;
    const rg_tensor *dvariance_out = has_dy(call, 2) ? call->dy[2] : t->any;
    const rg_tensor *dgamma, *dbeta, *dmean, *dvariance;
    const rg_batch_norm_join_args args = {
        .channels = shape.channels,
        .parts = partial != NULL ? shape.parts : 0,
        .before = before ? 1 : 0,
        .count = (double)count,
        .dmean_out_step = dmean_out->desc.strides[0],
        .dvariance_out_step = dvariance_out->desc.strides[0],
        .parameters = t->parameters,
        .statistics = d->statistics,
        .momentum = d->momentum,
        .gamma_result = result_of(call, t->at.gamma, t->any, &dgamma),
        .beta_result = result_of(call, t->at.beta, t->any, &dbeta),
        .mean_result = result_of(call, t->at.mean, t->any, &dmean),
        .variance_result = result_of(call, t->at.variance, t->any, &dvariance),
        .unbiased = d->unbiased,
        .has_state = call->state != NULL,
        .has_dmean_out = has_dy(call, 1),
        .has_dvariance_out = has_dy(call, 2),
    };
    const rg_launch launch = {
        .tensors = { RG_BIND(args, partial, partial != NULL ? partial : t->any),
                     RG_BIND(args, gamma, t->gamma), RG_BIND(args, moments, t->moments),
                     RG_BIND(args, sums, t->sums), RG_BIND(args, dmean_out, dmean_out),
                     RG_BIND(args, dvariance_out, dvariance_out),
                     RG_BIND(args, state_dgamma, rg_batch_norm_slot(call, DGAMMA, t->any)),
                     RG_BIND(args, state_dbeta, rg_batch_norm_slot(call, DBETA, t->any)),
                     RG_BIND(args, dgamma, dgamma), RG_BIND(args, dbeta, dbeta),
                     RG_BIND(args, dmean, dmean), RG_BIND(args, dvariance, dvariance),
                     RG_BIND(args, factors, factors) },
        .kernel = RG_BATCH_NORM_JOIN,
        .dtype = t->x->desc.dtype,
        RG_ARGS(args),
        .units = rg_norm_units(shape.channels),
        .bytes = shape.channels * (args.parts + 4) * 16,
    };
    return rg_record(call, &launch);
}

rg_status rg_batch_norm_record_gradient(rg_call *call, const rg_batch_norm_tensors *t,
                                        const rg_tensor *factors)
{
    const rg_batch_norm_desc *d = call->desc;
    const rg_tensor *dx = call->dx[0];
    if (dx == NULL)
        return RG_OK;
    const rg_tensor_desc *const descs[] = { &call->dy[0]->desc, &t->x->desc, &dx->desc };
    rg_batch_norm_gradient_args args = {
        .shape = shape_of_results(descs, 3, t),
        .parameters = t->parameters,
        .neuron = rg_norm_neuron_of(&d->neuron, descs[0]->dtype, true),
        .given = d->statistics == RG_BATCH_NORM_GIVEN,
        .extra = has_dy(call, 1) || has_dy(call, 2),
        .add = call->add & 1,
    };
    const rg_launch launch = {
        .tensors = { RG_BIND(args, dy, call->dy[0]), RG_BIND(args, x, t->x),
                     RG_BIND(args, gamma, t->gamma), RG_BIND(args, beta, t->beta),
                     RG_BIND(args, moments, t->moments), RG_BIND(args, factors, factors),
                     RG_BIND(args, dx, dx) },
        .kernel = RG_BATCH_NORM_GRADIENT,
        .dtype = descs[0]->dtype,
        RG_ARGS(args),
        .units = rg_channels_units(&args.shape),
        .backwards = true,
        .bytes = 3 * rg_move_bytes(t->x)
    };
    args.stream =
        !args.add && (args.shape.dense || t->planes) && rg_call_streams(call, rg_move_bytes(t->x));
    return rg_record(call, &launch);
}
