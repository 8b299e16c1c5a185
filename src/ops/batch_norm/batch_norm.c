/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Batch normalization: description, validation, shape rule, state, forward, gradient. */
#include "ops/batch_norm/batch_norm_record.h"
#include "ops/neuron/neuron_fields.h"

#include <float.h>

/* ---- description ---- */

static const rg_batch_norm_desc defaults = {
    .size = sizeof(rg_batch_norm_desc),
    .gamma = true,
    .beta = true,
    .epsilon = (double)FLT_MIN,
    .momentum = 0.9,
    .neuron = { .size = sizeof(rg_neuron_desc), .kind = RG_NEURON_NONE },
};

rg_batch_norm_desc rg_batch_norm_desc_default(void)
{
    return defaults;
}

static const char *const statistics_names[] = { "own", "returned", "running", "given", NULL };
static const char *const phases[] = { "whole", "statistics", "normalize", NULL };

static const rg_field fields[] = {
    RG_FIELD_NAMED(rg_batch_norm_desc, statistics, statistics_names,
                   "source of mean and variance, and whether they are returned"),
    RG_FIELD_NAMED(
        rg_batch_norm_desc, phase, phases,
        "all in one call, or statistics and normalization in separate calls with a state"),
    RG_FIELD(rg_batch_norm_desc, gamma, "whether gamma is an input; otherwise 1"),
    RG_FIELD(rg_batch_norm_desc, beta, "whether beta is an input; otherwise 0"),
    RG_FIELD_IN(rg_batch_norm_desc, epsilon, 0, DBL_MAX, "added to the variance"),
    RG_FIELD_IN(rg_batch_norm_desc, momentum, 0, 1, "running: weight of the previous average"),
    RG_FIELD(rg_batch_norm_desc, unbiased, "running: use the unbiased variance (divide by m - 1)"),
    RG_FIELD_STRUCT(rg_batch_norm_desc, neuron, rg_neuron_fields,
                    "activation applied to the result"),
    { .name = NULL },
};

#define IMAGE      "sourceImage=x destinationImage=y"
#define PARAMETERS "gradientForGamma=dgamma gradientForBeta=dbeta"
#define IMAGE_GRAD "sourceGradient=dy sourceImage=x destinationGradient=dx " PARAMETERS
#define IMAGE_SUMS "sourceGradient=dy sourceImage=x " PARAMETERS
#define MATRIX                                                                 \
    "inputMatrix=x meanVector=mean varianceVector=variance gammaVector=gamma " \
    "betaVector=beta resultMatrix=y"
#define MATRIX_GRAD                                                            \
    "gradientMatrix=dy inputMatrix=x meanVector=mean varianceVector=variance " \
    "gammaVector=gamma betaVector=beta resultGradientForDataMatrix=dx "        \
    "resultGradientForGammaVector=dgamma resultGradientForBetaVector=dbeta"

static const rg_op_name names[] = {
    { "MPSCNNBatchNormalization", false, "statistics=given", IMAGE, 3, 4 },
    /* Both phases of a class in one call, since a name runs alone. */
    { "MPSCNNBatchNormalizationStatistics", false, "statistics=returned gamma=false beta=false",
      "sourceImage=x mean=new_mean variance=new_variance", 3, 4 },
    { "MPSCNNBatchNormalizationStatisticsGradient", true, "", IMAGE_SUMS, 3, 4 },
    { "MPSCNNBatchNormalizationGradient", true, "", IMAGE_GRAD, 3, 4 },
    { "MPSCNNBatchNormalizationNode", false, "", IMAGE, 3, 4 },
    { "MPSCNNBatchNormalizationGradientNode", true, "", IMAGE_GRAD, 3, 4 },
    { "MPSMatrixBatchNormalization", false, "statistics=given", MATRIX, 2, 2 },
    { "MPSMatrixBatchNormalizationGradient", true, "", MATRIX_GRAD, 2, 2 },
    { .name = NULL },
};

/* ---- validation, shape rule ---- */

static rg_status check(const void *desc)
{
    const rg_batch_norm_desc *d = desc;
    RG_TRY(rg_norm_check_neuron(&d->neuron, "batch_norm"));
    RG_CHECK(d->phase == RG_BATCH_NORM_WHOLE || d->statistics == RG_BATCH_NORM_OWN,
             RG_INVALID_ARGUMENT, "batch_norm: phase %s requires statistics own, not %s",
             phases[d->phase], statistics_names[d->statistics]);
    return RG_OK;
}

static int32_t count_inputs(const void *desc)
{
    return rg_batch_norm_inputs_of(desc).inputs;
}

static int32_t count_outputs(const void *desc)
{
    return rg_batch_norm_gives_statistics(desc) ? 3 : 1;
}

static const char *const *input_names(const void *desc)
{
    static const char *const all[8][6] = {
        { "x", NULL },
        { "x", "gamma", NULL },
        { "x", "beta", NULL },
        { "x", "gamma", "beta", NULL },
        { "x", "mean", "variance", NULL },
        { "x", "gamma", "mean", "variance", NULL },
        { "x", "beta", "mean", "variance", NULL },
        { "x", "gamma", "beta", "mean", "variance", NULL },
    };
    const rg_batch_norm_desc *d = desc;
    return all[(d->gamma ? 1 : 0) + (d->beta ? 2 : 0) +
               (rg_batch_norm_takes_statistics(d) ? 4 : 0)];
}

/* Running averages are updated in place. */
static const rg_alias *aliases_of(const void *desc)
{
    static const rg_alias pairs[][3] = { { RG_X_AS_Y(1, 1), RG_X_AS_Y(2, 2) },
                                         { RG_X_AS_Y(2, 1), RG_X_AS_Y(3, 2) },
                                         { RG_X_AS_Y(3, 1), RG_X_AS_Y(4, 2) } };
    const rg_batch_norm_desc *d = desc;
    return d->statistics == RG_BATCH_NORM_RUNNING ? pairs[rg_batch_norm_inputs_of(d).mean - 1]
                                                  : NULL;
}

static rg_dtype parameter_dtype(const rg_batch_norm_desc *d, const rg_tensor_desc x[])
{
    return count_inputs(d) > 1 ? x[1].dtype : rg_norm_real(x->dtype);
}

static rg_status shapes(const void *desc, const rg_tensor_desc x[], rg_tensor_desc y[])
{
    const rg_batch_norm_desc *d = desc;
    RG_TRY(rg_norm_check_x(x, "batch_norm"));
    const int64_t channels = x->dims[x->rank - 1];
    for (int32_t i = 1; i < count_inputs(d); i++)
        RG_TRY(rg_norm_check_parameter(x, i, input_names(d)[i], "batch_norm"));
    y[0] = rg_tensor_desc_dense(x->dtype, x->rank, x->dims);
    for (int32_t i = 1; i < count_outputs(d); i++)
        y[i] = rg_tensor_desc_dense(parameter_dtype(d, x), 1, &channels);
    return RG_OK;
}

static uint32_t reads(const void *desc)
{
    const rg_batch_norm_desc *d = desc;
    const rg_batch_norm_inputs p = rg_batch_norm_inputs_of(d);
    uint32_t bits = RG_READS_X;
    bits |= d->gamma ? (uint32_t)RG_READS_X << p.gamma : 0;
    bits |= d->beta && d->neuron.kind != RG_NEURON_NONE ? (uint32_t)RG_READS_X << p.beta : 0;
    if (d->statistics == RG_BATCH_NORM_GIVEN)
        bits |= (uint32_t)RG_READS_X << p.mean | (uint32_t)RG_READS_X << p.variance;
    return bits | (d->phase != RG_BATCH_NORM_WHOLE ? RG_READS_STATE : RG_READS_WITH_STATE);
}

/* ---- state ---- */

static int32_t make_slots(const void *desc, const rg_tensor_desc x[], rg_state_slot slots[])
{
    (void)desc;
    const int64_t channels = x->dims[x->rank - 1];
    const int64_t moments[] = { RG_NORM_MOMENTS, channels }, sums[] = { 2, channels };
    const rg_tensor_desc each = rg_tensor_desc_dense(rg_norm_real(x->dtype), 1, &channels);
    slots[MEAN] = (rg_state_slot){ "mean", each };
    slots[VARIANCE] = (rg_state_slot){ "variance", each };
    slots[S] = (rg_state_slot){ "inverse_sigma", each };
    slots[DGAMMA] = (rg_state_slot){ "dgamma", each };
    slots[DBETA] = (rg_state_slot){ "dbeta", each };
    slots[MOMENTS] = (rg_state_slot){ "moments", rg_tensor_desc_dense(each.dtype, 2, moments) };
    slots[SUMS] = (rg_state_slot){ "sums", rg_tensor_desc_dense(RG_F64, 2, sums) };
    return SLOTS;
}

/* Kernels of all phases share a state, for parts of any number of images. */
static bool fits(const void *made, const rg_tensor_desc sources[], const void *desc,
                 const rg_tensor_desc x[])
{
    rg_batch_norm_desc a = *(const rg_batch_norm_desc *)made;
    const rg_batch_norm_desc *b = desc;
    if (a.phase == RG_BATCH_NORM_WHOLE || b->phase == RG_BATCH_NORM_WHOLE)
        return false;
    a.phase = b->phase;
    bool same = rg_fields_equal(&rg_op_batch_norm.desc, &a, b) && sources->rank == x->rank &&
                sources->dtype == x->dtype;
    for (int32_t d = 1; d < x->rank && same; d++)
        same = sources->dims[d] == x->dims[d];
    for (int32_t i = 1; i < count_inputs(desc) && same; i++)
        same = sources[i].dtype == x[i].dtype;
    return same && sources->dims[x->rank - 1] == x->dims[x->rank - 1];
}

static bool keep_first_output(void *desc)
{
    rg_batch_norm_desc d;
    memcpy(&d, desc, sizeof d);
    if (d.phase != RG_BATCH_NORM_WHOLE || d.statistics == RG_BATCH_NORM_GIVEN)
        return false;
    d.statistics = RG_BATCH_NORM_OWN;
    memcpy(desc, &d, sizeof d);
    return true;
}

static bool fills_state(const void *desc)
{
    return ((const rg_batch_norm_desc *)desc)->phase == RG_BATCH_NORM_STATISTICS;
}

static bool writes_state(const void *desc, bool is_gradient)
{
    (void)desc; /* statistics, then their gradients, in every phase */
    (void)is_gradient;
    return true;
}

static bool shares_state(const void *desc)
{
    return ((const rg_batch_norm_desc *)desc)->phase != RG_BATCH_NORM_WHOLE;
}

/* ---- statistics ---- */

/* Statistics of x, or those given, into t->moments. */
static rg_status record_statistics(rg_call *call, const rg_batch_norm_tensors *t, int64_t before,
                                   bool returns)
{
    if (((const rg_batch_norm_desc *)call->desc)->statistics == RG_BATCH_NORM_GIVEN)
        return rg_batch_norm_record_merge(call, t, t->any, before, returns);
    const rg_channels shape = rg_batch_norm_shape_of(t);
    const int64_t dims[] = { shape.parts, RG_NORM_PARTIAL, shape.channels };
    rg_tensor *partial;
    RG_TRY(rg_norm_temporary(call, rg_norm_real(t->x->desc.dtype), 3, dims, &partial));
    rg_status status = rg_batch_norm_record_parts(call, t, partial);
    if (status == RG_OK)
        status = rg_batch_norm_record_merge(call, t, partial, before, returns);
    rg_tensor_destroy(partial);
    return status;
}

/* ---- forward ---- */

/* Moments of the state, or else in a temporary, *made. */
static rg_status take_moments(rg_call *call, rg_batch_norm_tensors *t, rg_tensor **made)
{
    *made = NULL;
    if (call->state != NULL) {
        t->moments = rg_state_slot_tensor(call->state, MOMENTS);
        return RG_OK;
    }
    const int64_t dims[] = { RG_NORM_MOMENTS, rg_batch_norm_channels_of(t->x) };
    RG_TRY(rg_norm_temporary(call, rg_norm_real(t->x->desc.dtype), 2, dims, made));
    t->moments = *made;
    return RG_OK;
}

static rg_status forward_whole(rg_call *call, const rg_batch_norm_request *request)
{
    rg_batch_norm_tensors t = rg_batch_norm_tensors_of(call, request);
    rg_tensor *made;
    RG_TRY(take_moments(call, &t, &made));
    rg_status status = record_statistics(call, &t, 0, true);
    if (status == RG_OK)
        status = rg_batch_norm_record_forward(call, &t);
    rg_tensor_destroy(made);
    return status;
}

static rg_status record_forward(rg_call *call, const rg_batch_norm_request *request)
{
    const rg_batch_norm_desc *d = call->desc;
    if (d->phase == RG_BATCH_NORM_WHOLE)
        return forward_whole(call, request);
    RG_CHECK(call->state != NULL, RG_INVALID_ARGUMENT,
             "batch_norm: phase normalize reads its statistics from the state, which is NULL");
    int64_t *progress = call->state->progress;
    rg_batch_norm_tensors t = rg_batch_norm_tensors_of(call, request);
    t.moments = rg_state_slot_tensor(call->state, MOMENTS);
    if (d->phase == RG_BATCH_NORM_NORMALIZE) {
        RG_CHECK(progress[COUNTED] > 0, RG_INVALID_STATE,
                 "batch_norm: the state has no statistics; run forward of phase statistics first");
        progress[NORMALIZED] = 1;
        return rg_batch_norm_record_forward(call, &t);
    }
    if (progress[NORMALIZED])
        memset(progress, 0, sizeof call->state->progress);
    const int64_t before = progress[COUNTED] > 0 ? progress[COUNTED] - 1 : 0;
    RG_CHECK(rg_batch_norm_rows_of(t.x) < INT64_MAX - before, RG_INVALID_ARGUMENT,
             "batch_norm: the element count of the state overflows: %lld elements per channel and "
             "%lld more",
             (long long)before, (long long)rg_batch_norm_rows_of(t.x));
    progress[COUNTED] = 1 + before + rg_batch_norm_rows_of(t.x);
    progress[SUMMED] = progress[FINISHED] = 0;
    return record_statistics(call, &t, before, false);
}

/* ---- gradient ---- */

/* Sums over x and dy, and what follows from them. */
static rg_status sum_up(rg_call *call, const rg_batch_norm_tensors *t, const rg_tensor *factors,
                        int64_t count, bool before)
{
    const rg_channels shape = rg_batch_norm_shape_of(t);
    const int64_t dims[] = { shape.parts, 2, shape.channels };
    rg_tensor *partial;
    RG_TRY(rg_norm_temporary(call, rg_norm_real(t->x->desc.dtype), 3, dims, &partial));
    rg_status status = rg_batch_norm_record_sums(call, t, partial);
    if (status == RG_OK)
        status = rg_batch_norm_record_join(call, t, partial, factors, count, before);
    rg_tensor_destroy(partial);
    return status;
}

/* Where statistics are given dx alone needs no sums. */
static bool needs_sums(const rg_call *call)
{
    bool needs = ((const rg_batch_norm_desc *)call->desc)->statistics != RG_BATCH_NORM_GIVEN;
    for (int32_t i = 1; i < call->inputs; i++)
        needs |= call->dx[i] != NULL;
    return needs;
}

/* In one call: with the statistics of the state, if there is one. */
static rg_status gradient_whole(rg_call *call, rg_batch_norm_tensors *t, const rg_tensor *factors)
{
    const bool given = ((const rg_batch_norm_desc *)call->desc)->statistics == RG_BATCH_NORM_GIVEN;
    rg_status status = RG_OK;
    if (call->state == NULL || !call->state->filled || given)
        status = record_statistics(call, t, 0, false);
    if (status == RG_OK && needs_sums(call))
        status = sum_up(call, t, factors, rg_batch_norm_rows_of(t->x), false);
    return status == RG_OK ? rg_batch_norm_record_gradient(call, t, factors) : status;
}

/* The gradient of phase statistics. */
static rg_status gradient_statistics(rg_call *call, const rg_batch_norm_tensors *t,
                                     const rg_tensor *factors)
{
    int64_t *progress = call->state->progress;
    const int64_t counted = progress[COUNTED] - 1;
    for (int32_t i = 0; i < call->inputs; i++)
        RG_CHECK(call->dx[i] == NULL, RG_INVALID_ARGUMENT,
                 "batch_norm: phase statistics writes only its state; d%s must be NULL",
                 call->input_names[i]);
    if (progress[FINISHED] != 0)
        progress[SUMMED] = progress[FINISHED] = 0;
    const bool before = progress[SUMMED] > 0;
    const int64_t summed = before ? progress[SUMMED] - 1 : 0, rows = rg_batch_norm_rows_of(t->x);
    RG_CHECK(rows <= counted - summed, RG_INVALID_STATE,
             "batch_norm: dy adds %lld elements per channel to the %lld already summed, more than "
             "the %lld of the statistics",
             (long long)rows, (long long)summed, (long long)counted);
    progress[SUMMED] = 1 + summed + rows;
    return sum_up(call, t, factors, counted, before);
}

/* The gradient of phase normalize. The first call writes dgamma and dbeta of the whole batch; later
 * calls, for its other parts, add 0 where they share these tensors. */
static rg_status gradient_normalize(rg_call *call, const rg_batch_norm_tensors *t,
                                    const rg_tensor *factors)
{
    int64_t *progress = call->state->progress;
    RG_CHECK(progress[SUMMED] > 0, RG_INVALID_STATE,
             "batch_norm: the state has no sums; run the gradient of phase statistics first");
    RG_CHECK(progress[SUMMED] == progress[COUNTED], RG_INVALID_STATE,
             "batch_norm: the state has sums of %lld elements per channel but statistics of %lld; "
             "run the gradient of phase statistics for the whole batch first",
             (long long)progress[SUMMED] - 1, (long long)progress[COUNTED] - 1);
    rg_call own = *call;
    int64_t made = 1;
    for (int32_t i = 1; i < call->inputs; i++) {
        const int64_t bit = INT64_C(1) << i;
        made |= call->dx[i] != NULL ? bit : 0;
        if (progress[FINISHED] & bit && call->add >> i & 1)
            own.dx[i] = NULL;
    }
    progress[FINISHED] |= made;
    RG_TRY(rg_batch_norm_record_join(&own, t, NULL, factors, progress[COUNTED] - 1, true));
    return rg_batch_norm_record_gradient(&own, t, factors);
}

static rg_status gradient_phase(rg_call *call, const rg_batch_norm_tensors *t,
                                const rg_tensor *factors)
{
    const rg_batch_norm_desc *d = call->desc;
    const int64_t *progress = call->state->progress;
    RG_CHECK(progress[COUNTED] > 0, RG_INVALID_STATE,
             "batch_norm: the state has no statistics; run forward of phase statistics first");
    RG_CHECK(progress[NORMALIZED], RG_INVALID_STATE,
             "batch_norm: the statistics in the state were not used yet; run forward of phase "
             "normalize first");
    return d->phase == RG_BATCH_NORM_STATISTICS ? gradient_statistics(call, t, factors)
                                                : gradient_normalize(call, t, factors);
}

static rg_status record_gradient(rg_call *call, const rg_batch_norm_request *request)
{
    const rg_batch_norm_desc *d = call->desc;
    rg_batch_norm_tensors t = rg_batch_norm_tensors_of(call, request);
    const int64_t factor_dims[] = { RG_NORM_FACTORS, rg_batch_norm_channels_of(t.x) };
    const int64_t sum_dims[] = { 2, rg_batch_norm_channels_of(t.x) };
    rg_tensor *moments, *factors = NULL, *sums = NULL;
    RG_TRY(take_moments(call, &t, &moments));
    rg_status status =
        rg_norm_temporary(call, rg_norm_real(t.x->desc.dtype), 2, factor_dims, &factors);
    if (status == RG_OK && call->state == NULL)
        status = rg_norm_temporary(call, RG_F64, 2, sum_dims, &sums);
    t.sums = rg_batch_norm_slot(call, SUMS, sums);
    if (status == RG_OK)
        status = d->phase == RG_BATCH_NORM_WHOLE ? gradient_whole(call, &t, factors)
                                                 : gradient_phase(call, &t, factors);
    rg_tensor_destroy(sums);
    rg_tensor_destroy(factors);
    rg_tensor_destroy(moments);
    return status;
}

rg_status rg_batch_norm_record(rg_call *call, const rg_batch_norm_request *request)
{
    return request->gradient ? record_gradient(call, request) : record_forward(call, request);
}

static const rg_strategy *const strategies[] = { RG_BATCH_NORM_STRATEGIES(RG_STRATEGY_ENTRY) NULL };

static rg_status forward(rg_call *call)
{
    return rg_strategy_run(call, strategies, &(rg_batch_norm_request){ .gradient = false });
}

static rg_status gradient(rg_call *call)
{
    return rg_strategy_run(call, strategies, &(rg_batch_norm_request){ .gradient = true });
}

RG_OP_DEFINE(
    batch_norm, .text = "batch normalization", .desc = { fields, &defaults, sizeof defaults },
    .inputs = (const char *const[]){ "x", "gamma", "beta", "mean", "variance", NULL },
    .outputs = (const char *const[]){ "y", "new_mean", "new_variance", NULL }, .names = names,
    .aliases = (const rg_alias[]){ RG_X_AS_Y(0, 0), RG_DY_AS_DX(0, 0), RG_X_AS_DX(0, 0), 0 },
    .aliases_of = aliases_of, .count_inputs = count_inputs, .count_outputs = count_outputs,
    .input_names = input_names, .check = check, .shapes = shapes, .state = make_slots, .fits = fits,
    .fills_state = fills_state, .writes_state = writes_state, .reads = reads, .optional_dy = 6,
    .shares_state = shares_state, .forward = forward, .gradient = gradient,
    .fusion = { .is_cheap = true, .keep_first_output = keep_first_output },
    .strategies = (const rg_strategy *const *const[]){ strategies, NULL });

rg_status rg_batch_norm_create(rg_device *device, const rg_batch_norm_desc *desc,
                               rg_kernel **kernel)
{
    return rg_kernel_create(device, &rg_op_batch_norm, desc, kernel);
}
