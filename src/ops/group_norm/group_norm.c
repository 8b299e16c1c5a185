/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Group normalisation: description, validation, shape rule, state, forward, gradient. */
#include "ops/group_norm/group_norm.h"
#include "core/integer.h"
#include "ops/neuron/neuron_fields.h"
#include "ops/norm/norm_record.h"

#include <float.h>

/* ---- description ---- */

static const rg_group_norm_desc defaults = {
    .size = sizeof(rg_group_norm_desc),
    .groups = 1,
    .axis = 1,
    .gamma = true,
    .beta = true,
    .epsilon = (double)FLT_MIN,
    .neuron = { .size = sizeof(rg_neuron_desc), .kind = RG_NEURON_NONE },
};

rg_group_norm_desc rg_group_norm_desc_default(void)
{
    return defaults;
}

static const rg_field fields[] = {
    { .name = "groups",
      .type = RG_FIELD_I64,
      .offset = offsetof(rg_group_norm_desc, groups),
      .low = 0,
      .high = 0x1p53,
      .text = "number of channel groups; 0: one per channel" },
    { .name = "axis",
      .type = RG_FIELD_I64,
      .offset = offsetof(rg_group_norm_desc, axis),
      .text = "first dimension of an image; negative: from the last" },
    { .name = "gamma",
      .type = RG_FIELD_BOOL,
      .offset = offsetof(rg_group_norm_desc, gamma),
      .text = "whether gamma is an input; otherwise 1" },
    { .name = "beta",
      .type = RG_FIELD_BOOL,
      .offset = offsetof(rg_group_norm_desc, beta),
      .text = "whether beta is an input; otherwise 0" },
    { .name = "epsilon",
      .type = RG_FIELD_F64,
      .offset = offsetof(rg_group_norm_desc, epsilon),
      .low = 0,
      .high = DBL_MAX,
      .text = "added to the variance" },
    { .name = "image_gradients",
      .type = RG_FIELD_BOOL,
      .offset = offsetof(rg_group_norm_desc, image_gradients),
      .text = "store dgamma and dbeta of each image in the state" },
    { .name = "neuron",
      .type = RG_FIELD_GROUP,
      .offset = offsetof(rg_group_norm_desc, neuron),
      .fields = rg_neuron_fields,
      .text = "activation applied to the result" },
    { .name = NULL },
};

#define IMAGE      "sourceImage=x destinationImage=y"
#define IMAGE_GRAD "sourceGradient=dy sourceImage=x destinationGradient=dx"
#define IMAGES     "image_gradients=true "
#define ONNX       "X=x scale=gamma B=beta Y=y"

static const rg_op_name names[] = {
    { "MPSCNNGroupNormalization", false, IMAGES, IMAGE, 3, 4 },
    { "MPSCNNGroupNormalizationGradient", true, IMAGES, IMAGE_GRAD, 3, 4 },
    { "MPSCNNInstanceNormalization", false, IMAGES "groups=0", IMAGE, 3, 4 },
    { "MPSCNNInstanceNormalizationGradient", true, IMAGES "groups=0", IMAGE_GRAD, 3, 4 },
    { "GroupNormalization", false, "epsilon=1e-5", "X=x scale=gamma bias=beta Y=y", 0, 0 },
    { "InstanceNormalization", false, "groups=0 epsilon=1e-5",
      "input=x scale=gamma B=beta output=y", 0, 0 },
    { "LayerNormalization", false, "axis=-1 epsilon=1e-5", "X=x Scale=gamma B=beta Y=y", 0, 0 },
    { "LayerNormalizationGrad", true, "axis=-1 epsilon=1e-5",
      "Y_grad=dy X=x scale=gamma X_grad=dx scale_grad=dgamma bias_grad=dbeta", 0, 0 },
    { .name = NULL },
};

/* ---- validation, shape rule ---- */

static rg_status check(const void *desc)
{
    return rg_norm_check_neuron(&((const rg_group_norm_desc *)desc)->neuron, "group_norm");
}

static int32_t count_inputs(const void *desc)
{
    const rg_group_norm_desc *d = desc;
    return 1 + (d->gamma ? 1 : 0) + (d->beta ? 1 : 0);
}

static const char *const *input_names(const void *desc)
{
    static const char *const all[4][4] = {
        { "x", NULL }, { "x", "gamma", NULL }, { "x", "beta", NULL }, { "x", "gamma", "beta", NULL }
    };
    const rg_group_norm_desc *d = desc;
    return all[(d->gamma ? 1 : 0) + (d->beta ? 2 : 0)];
}

static int32_t axis_of(const rg_group_norm_desc *d, int32_t rank)
{
    return (int32_t)(d->axis < 0 ? d->axis + rank : d->axis);
}

static int64_t groups_of(const rg_group_norm_desc *d, const rg_tensor_desc *x)
{
    return d->groups == 0 ? x->dims[x->rank - 1] : d->groups;
}

static rg_status shapes(const void *desc, const rg_tensor_desc x[], rg_tensor_desc y[])
{
    const rg_group_norm_desc *d = desc;
    RG_TRY(rg_norm_check_x(x, "group_norm"));
    const int64_t channels = x->dims[x->rank - 1];
    RG_CHECK(d->axis >= -x->rank && d->axis < x->rank, RG_INVALID_ARGUMENT,
             "group_norm: axis is %lld, but x has rank %d", (long long)d->axis, x->rank);
    RG_CHECK(channels % groups_of(d, x) == 0, RG_INVALID_ARGUMENT,
             "group_norm: %lld groups do not divide %lld channels", (long long)d->groups,
             (long long)channels);
    for (int32_t i = 1; i < count_inputs(d); i++)
        RG_TRY(rg_norm_check_parameter(x, i, input_names(d)[i], "group_norm"));
    y[0] = rg_tensor_desc_dense(x->dtype, x->rank, x->dims);
    return RG_OK;
}

static uint32_t reads(const void *desc)
{
    const rg_group_norm_desc *d = desc;
    uint32_t bits = RG_READS_X | RG_READS_WITH_STATE;
    bits |= d->gamma ? (uint32_t)RG_READS_X << 1 : 0;
    if (d->beta && d->neuron.kind != RG_NEURON_NONE)
        bits |= (uint32_t)RG_READS_X << (d->gamma ? 2 : 1);
    return bits;
}

/* ---- state ---- */

enum { MEAN, REST, S, DGAMMA, DBETA };

static int64_t images_of(const rg_group_norm_desc *d, const rg_tensor_desc *x)
{
    int64_t images = 1;
    for (int32_t i = 0; i < axis_of(d, x->rank); i++)
        images *= x->dims[i];
    return images;
}

static int32_t make_slots(const void *desc, const rg_tensor_desc x[], rg_state_slot slots[])
{
    const rg_group_norm_desc *d = desc;
    const int64_t groups[] = { images_of(d, x), groups_of(d, x) };
    const int64_t channels[] = { groups[0], x->dims[x->rank - 1] };
    const rg_dtype real = rg_norm_real(x->dtype);
    const rg_tensor_desc each = rg_tensor_desc_dense(real, 2, groups);
    slots[MEAN] = (rg_state_slot){ "mean", each };
    slots[REST] = (rg_state_slot){ "mean_rest", each };
    slots[S] = (rg_state_slot){ "inverse_sigma", each };
    if (!d->image_gradients)
        return DGAMMA;
    slots[DGAMMA] = (rg_state_slot){ "dgamma", rg_tensor_desc_dense(real, 2, channels) };
    slots[DBETA] = (rg_state_slot){ "dbeta", rg_tensor_desc_dense(real, 2, channels) };
    return DBETA + 1;
}

/* ---- what all launches need ---- */

/* Whole groups of one image make a unit: so many that it stays in a cache between its passes, and
 * has whole cache lines if it can. */
static void cut_columns(rg_channels *s, int64_t each)
{
    enum { L2_ELEMENTS = 262144, LINE_ELEMENTS = 32, ROW_ELEMENTS = 256, PART_ELEMENTS = 8192 };
    const int64_t most_columns = L2_ELEMENTS / rg_clamp(s->rows.count, 1, L2_ELEMENTS);
    const int64_t want = rg_clamp(most_columns, 1, RG_CHANNEL_COLUMNS);
    int64_t step = each;
    while (step % LINE_ELEMENTS != 0 && step * 2 <= want)
        step *= 2;
    if (step > want)
        step = each;
    s->block = rg_clamp(want / step * step, each, s->channels);
    s->part = rg_clamp(PART_ELEMENTS / s->channels, 16,
                       PART_ELEMENTS); /* of a GPU, where there are many images */
    s->part =
        s->part < rg_ceil_div(s->rows.count, 1024) ? rg_ceil_div(s->rows.count, 1024) : s->part;
    s->parts = rg_ceil_div(s->rows.count, s->part);
    s->blocks = rg_ceil_div(s->channels, s->block);
    s->lanes = s->blocks == 1 && s->block < ROW_ELEMENTS ? ROW_ELEMENTS / s->block : 1;
}

static bool takes_rows(const rg_channels *s)
{
    return s->rows.count == 1;
}

/* The most images of a unit where each is one row: a GPU sums up ROWS of them plainly in each of
 * the teams that share a block, a CPU as many as fit its room. */
static int64_t most_images(int64_t channels, int64_t groups)
{
    enum { ELEMENTS = 65536, ROWS = RG_GROUP_NORM_RUN, TEAMS = 64, WARPS = 8 };
    return rg_clamp(ELEMENTS / channels, ROWS, ROWS * (groups == 1 ? TEAMS : WARPS));
}

static rg_group_norm_shape shape_of(const rg_call *call, const rg_tensor *const tensors[],
                                    int count, bool gradient)
{
    enum { ELEMENTS = 32768, PARTS = 1024 };
    const rg_group_norm_desc *d = call->desc;
    const rg_tensor_desc *descs[RG_WALK_TENSORS];
    for (int t = 0; t < count; t++)
        descs[t] = &tensors[t]->desc;
    const rg_dtype dtype = descs[0]->dtype;
    rg_group_norm_shape s = {
        .channels = rg_channels_make(descs, count, axis_of(d, descs[0]->rank)),
        .groups = groups_of(d, descs[0]),
        .epsilon = d->epsilon,
        .neuron = rg_norm_neuron_of(&d->neuron, dtype, gradient),
    };
    const int64_t channels = s.channels.channels, images = s.channels.images.count;
    s.part = rg_clamp(ELEMENTS / channels, 1, ELEMENTS);
    s.part = s.part < rg_ceil_div(images, PARTS) ? rg_ceil_div(images, PARTS) : s.part;
    s.part = rg_clamp(s.part, 1, most_images(channels, s.groups));
    if (!takes_rows(&s.channels))
        cut_columns(&s.channels, channels / s.groups);
    for (int32_t i = 1; i < call->inputs; i++) {
        const rg_tensor *known = call->x[i] != NULL ? call->x[i] : call->dx[i];
        s.parameters.dtype = known != NULL ? known->desc.dtype : s.parameters.dtype;
    }
    return s;
}

/* gamma and beta, or something that stands in. */
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
    return takes_rows(&s->channels) ? rg_ceil_div(s->channels.images.count, s->part)
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

/* A CPU keeps what lies between the passes over columns on its stack. */
static bool needs_tables(const rg_call *call, const rg_group_norm_shape *s)
{
    return !takes_rows(&s->channels) && call->x[0]->device->backend != &rg_backend_cpu;
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

/* ---- forward ---- */

static rg_status record_forward(rg_call *call, rg_group_norm_shape *shape, const buffers *r)
{
    const rg_tensor *gamma, *beta, *x = call->x[0];
    rg_group_norm_args args = { .shape = *shape };
    take_parameters(call, &args.shape.parameters, &gamma, &beta);
    args.shape.stream = shape->channels.dense && rg_call_streams(call, rg_move_bytes(x));
    const rg_launch launch = {
        .tensors = { x, gamma, beta, slot(call, MEAN, r->mean), slot(call, REST, r->rest),
                     slot(call, S, r->s), either(r->partial, x), either(r->moments, x),
                     call->y[0] },
        .kernel = takes_rows(&shape->channels) ? RG_GROUP_NORM_ROWS : RG_GROUP_NORM_COLUMNS,
        .dtype = x->desc.dtype,
        .args = &args,
        .args_size = sizeof args,
        .units = units_of(shape),
        .grain = 1,
        .bytes = 2 * rg_move_bytes(x)
    };
    return rg_record(call, &launch);
}

static rg_status forward(rg_call *call)
{
    const rg_tensor *const tensors[] = { call->x[0], call->y[0] };
    rg_group_norm_shape shape = shape_of(call, tensors, 2, false);
    buffers r = { 0 };
    rg_status status = take_buffers(call, &shape, &r);
    if (status == RG_OK)
        status = record_forward(call, &shape, &r);
    give_back(&r);
    return status;
}

/* ---- gradient ---- */

/* Inputs gamma and beta, whose gradients may be asked for; 0: there is none. */
static int32_t gamma_place(const rg_group_norm_desc *d)
{
    return d->gamma ? 1 : 0;
}

static int32_t beta_place(const rg_group_norm_desc *d)
{
    return d->beta ? (d->gamma ? 2 : 1) : 0;
}

static bool wants_parameters(const rg_call *call)
{
    const rg_group_norm_desc *d = call->desc;
    const int32_t gamma = gamma_place(d), beta = beta_place(d);
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
    const rg_launch launch = { .tensors = { from, to },
                               .kernel = RG_GROUP_NORM_JOIN,
                               .dtype = call->x[0]->desc.dtype,
                               .args = &args,
                               .args_size = sizeof args,
                               .units = rg_norm_units(args.channels),
                               .grain = 1,
                               .bytes = (count + 1) * args.channels * 4 };
    return rg_record(call, &launch);
}

/* Rows of dgammas and dbetas. */
static int64_t sums_of(const rg_group_norm_shape *s)
{
    return takes_rows(&s->channels) ? units_of(s) : s->channels.images.count;
}

static rg_status take_gradient_buffers(rg_call *call, const rg_group_norm_shape *s, buffers *r)
{
    const rg_dtype real = rg_norm_real(call->x[0]->desc.dtype);
    const int64_t sums[] = { sums_of(s), s->channels.channels };
    const int64_t factors[] = { s->channels.images.count, RG_NORM_FACTORS, s->channels.channels };
    RG_TRY(take_buffers(call, s, r));
    if (needs_tables(call, s))
        RG_TRY(rg_norm_temporary(call, real, 3, factors, &r->factors));
    if (!wants_parameters(call) || (keeps_images(call) && !takes_rows(&s->channels)))
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
    args.shape.stream = args.wants_dx && !args.add && shape->channels.dense &&
                        rg_call_streams(call, rg_move_bytes(x));
    const rg_launch launch = {
        .tensors = { call->dy[0], x, gamma, beta, slot(call, MEAN, r->mean),
                     slot(call, REST, r->rest), slot(call, S, r->s), either(dgammas, x),
                     either(dbetas, x), either(r->partial, x), either(r->moments, x),
                     either(r->factors, x), either(dx, x) },
        .kernel = takes_rows(&shape->channels) ? RG_GROUP_NORM_ROWS_GRADIENT
                                               : RG_GROUP_NORM_COLUMNS_GRADIENT,
        .dtype = x->desc.dtype,
        .args = &args,
        .args_size = sizeof args,
        .units = units_of(shape),
        .grain = 1,
        .bytes = (dx != NULL ? 3 : 2) * rg_move_bytes(x),
    };
    return rg_record(call, &launch);
}

/* Gradients of parameters, from sums of images. */
static rg_status record_joins(rg_call *call, const rg_group_norm_shape *shape,
                              const rg_tensor *dgammas, const rg_tensor *dbetas)
{
    const rg_group_norm_desc *d = call->desc;
    RG_TRY(record_join(call, dgammas, sums_of(shape), gamma_place(d)));
    return record_join(call, dbetas, sums_of(shape), beta_place(d));
}

/* Rows whose images the state keeps apart: their sums come first, on their own, because they have
 * the same order whether somebody keeps the images or not, and dx may be dy or x. */
static rg_status gradient_apart(rg_call *call, const rg_group_norm_shape *shape, const buffers *r)
{
    if (wants_parameters(call)) {
        RG_TRY(record_gradient(call, shape, r, NULL, r->dgammas, r->dbetas));
        RG_TRY(record_joins(call, shape, r->dgammas, r->dbetas));
    }
    rg_group_norm_shape each = *shape;
    each.part = 1;
    return record_gradient(call, &each, r, call->dx[0], slot(call, DGAMMA, NULL),
                           slot(call, DBETA, NULL));
}

static rg_status gradient_joined(rg_call *call, const rg_group_norm_shape *shape, const buffers *r)
{
    const bool kept = keeps_images(call);
    const rg_tensor *dgammas = kept ? slot(call, DGAMMA, NULL) : r->dgammas;
    const rg_tensor *dbetas = kept ? slot(call, DBETA, NULL) : r->dbetas;
    RG_TRY(record_gradient(call, shape, r, call->dx[0], dgammas, dbetas));
    return record_joins(call, shape, dgammas, dbetas);
}

static rg_status gradient(rg_call *call)
{
    const rg_tensor *const tensors[] = { call->dy[0], call->x[0], either(call->dx[0], call->x[0]) };
    const rg_group_norm_shape shape = shape_of(call, tensors, 3, true);
    buffers r = { 0 };
    rg_status status = take_gradient_buffers(call, &shape, &r);
    if (status == RG_OK)
        status = keeps_images(call) && takes_rows(&shape.channels)
                     ? gradient_apart(call, &shape, &r)
                     : gradient_joined(call, &shape, &r);
    give_back(&r);
    return status;
}

RG_OP_DEFINE(group_norm, .text = "group, instance and layer normalization",
             .desc = { fields, &defaults, sizeof defaults },
             .inputs = (const char *const[]){ "x", "gamma", "beta", NULL },
             .outputs = (const char *const[]){ "y", NULL }, .names = names,
             .alias = "x0=y0 dy0=dx0 x0=dx0", .count_inputs = count_inputs,
             .input_names = input_names, .check = check, .shapes = shapes, .state = make_slots,
             .cheap = true, .reads = reads, .forward = forward, .gradient = gradient);

rg_status rg_group_norm_create(rg_device *device, const rg_group_norm_desc *desc,
                               rg_kernel **kernel)
{
    return rg_kernel_create(device, &rg_op_group_norm, desc, kernel);
}

/* With other groups and another axis. */
static rg_status create(rg_device *device, const rg_group_norm_desc *desc, int64_t groups,
                        int64_t axis, rg_kernel **kernel)
{
    rg_group_norm_desc own = defaults;
    RG_CHECK(kernel != NULL, RG_INVALID_ARGUMENT, "group_norm: kernel is NULL");
    *kernel = NULL;
    if (desc != NULL)
        RG_TRY(rg_fields_copy(&rg_op_group_norm.desc, "group_norm", desc, &own));
    own.groups = groups;
    own.axis = axis;
    return rg_kernel_create(device, &rg_op_group_norm, &own, kernel);
}

rg_status rg_instance_norm_create(rg_device *device, const rg_group_norm_desc *desc,
                                  rg_kernel **kernel)
{
    return create(device, desc, 0, 1, kernel);
}

rg_status rg_layer_norm_create(rg_device *device, const rg_group_norm_desc *desc,
                               rg_kernel **kernel)
{
    return create(device, desc, 1, -1, kernel);
}
