/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Micro-batches in lockstep, for batch normalization with the statistics of the whole batch. Each
 * micro-batch of this rank has a plan of its own; all have the same parameters. Runs are recorded
 * piece by piece: before a layer normalizes, all micro-batches of all ranks have the statistics of
 * their parts, and they are joined on the host, in double and in the order of the parts:
 *
 *      mean = sum w m,   variance = sum w (v + (m - mean)^2)
 *
 *  with w the share of the images that a part has, m and v its own mean and variance. In the
 *  backward pass gradients of a part's mean loss by the joint statistics, dm and dv, are joined
 *  likewise, and a part's own statistics receive
 *
 *      dM = sum w dm,   dV = sum w dv,   for v: dV,   for m: dM + 2 dV (m - mean)
 */
#include "train/network_norm.h"
#include "train/stepper_parts.h"

#include "core/memory.h"
#include "runtime/objects.h"

#include <stdlib.h>

static const rg_allocator *const allocator = &rg_default_allocator;

/* Where all micro-batches wait for each other: a norm, forward or backward. */
typedef struct exchange {
    size_t norm;
    bool backward;
    int32_t step; /* of a plan for few images, by which they are ordered */
} exchange;

struct rg_sync {
    rg_plan **plans; /* of the micro-batches of this rank; the first is that of rg_micro */
    int32_t count;
    exchange *order;  /* of all ranks */
    size_t each;      /* exchanges of a micro-batch */
    int32_t *steps;   /* (micro-batches of this rank, each): the steps before them */
    int64_t channels; /* the most of a norm */
    double *own;      /* (micro-batches of this rank, 2, channels): numbers of an exchange */
    double *all;      /* the same of all ranks */
    double *joint;    /* (2, channels) */
    double **means;   /* of each norm: (1 + micro-batches of this rank, channels), joint and own */
    void *elements;   /* of a tensor */
};

/* ---- the order of exchanges ---- */

static const char *const forward_names[] = { "mean_of_batch", "variance_of_batch",
                                             "unbiased_of_batch" };
static const char *const backward_names[] = { "dmean_of_batch", "dvariance_of_batch" };

/* The step of a plan after which all tensors of an exchange are complete. */
static rg_status find_step(const rg_stepper *t, const rg_plan *plan, const exchange *m, int32_t *at)
{
    const rg_split_norm *norm = &t->network.norms[m->norm];
    const char *const *names = m->backward ? backward_names : forward_names;
    *at = 0;
    for (int k = 0; k < (m->backward ? 2 : 3); k++) {
        char name[RG_NORM_NAME];
        int32_t step;
        rg_norm_result_name(norm, names[k], name);
        RG_TRY(rg_plan_result_step(plan, name, &step));
        *at = step > *at ? step : *at;
    }
    return RG_OK;
}

static int by_step(const void *a, const void *b)
{
    return ((const exchange *)a)->step - ((const exchange *)b)->step;
}

/* The order in which a plan comes to its exchanges. All ranks ask for the same number of images. */
static rg_status find_order(rg_stepper *t)
{
    rg_sync *y = t->sync;
    const rg_network_desc *n = &t->options.network;
    rg_tensor_desc sources[2];
    size_t count = 0;
    const int64_t dims[] = { 1, n->height, n->width, n->channels };
    sources[0] = rg_tensor_desc_dense(n->dtype, 4, dims);
    sources[1] = t->network.label_desc; /* of one image */
    RG_TRY(rg_plan_prepare(y->plans[0], sources));
    for (int backward = 0; backward < 2; backward++) {
        for (size_t i = 0; i < t->network.norms_count; i++) {
            exchange *m = &y->order[count];
            if (backward && !t->network.norms[i].has_gradient)
                continue;
            *m = (exchange){ .norm = i, .backward = backward != 0 };
            RG_TRY(find_step(t, y->plans[0], m, &m->step));
            count++;
        }
    }
    qsort(y->order, count, sizeof *y->order, by_step);
    return RG_OK;
}

/* The steps of the exchanges of a micro-batch, for its number of images. */
static rg_status find_steps(rg_stepper *t, const rg_step_part *part, int32_t index)
{
    rg_sync *y = t->sync;
    int32_t *steps = y->steps + (size_t)index * y->each;
    RG_TRY(rg_plan_prepare(y->plans[index],
                           (rg_tensor_desc[]){ part->images->desc, part->labels->desc }));
    for (size_t k = 0; k < y->each; k++) {
        RG_TRY(find_step(t, y->plans[index], &y->order[k], &steps[k]));
        RG_CHECK(k == 0 || steps[k] > steps[k - 1], RG_UNSUPPORTED,
                 "batch normalization cannot be synchronised in this network: its plan for %lld "
                 "images runs the layers in another order than that for one",
                 (long long)part->count);
    }
    return RG_OK;
}

/* ---- creation ---- */

static rg_status make_memory(rg_stepper *t, rg_sync *y)
{
    const size_t norms = t->network.norms_count, count = (size_t)y->count;
    for (size_t i = 0; i < norms; i++) {
        const int64_t c = t->network.norms[i].channels;
        y->channels = c > y->channels ? c : y->channels;
        y->each += 1 + t->network.norms[i].has_gradient;
    }
    const size_t numbers = 2 * (size_t)y->channels;
    RG_TRY(rg_allocate_array(y->each, sizeof *y->order, &y->order));
    RG_TRY(rg_allocate_array(count * y->each, sizeof *y->steps, &y->steps));
    RG_TRY(rg_allocate_array(count * numbers, sizeof *y->own, &y->own));
    RG_TRY(rg_allocate_array(count * (size_t)t->ranks * numbers, sizeof *y->all, &y->all));
    RG_TRY(rg_allocate_array(numbers, sizeof *y->joint, &y->joint));
    RG_TRY(rg_allocate_array((size_t)y->channels, sizeof(double), &y->elements));
    RG_TRY(rg_allocate_array(norms, sizeof *y->means, &y->means));
    for (size_t i = 0; i < norms; i++)
        RG_TRY(rg_allocate_array((1 + count) * (size_t)t->network.norms[i].channels,
                                 sizeof *y->means[i], &y->means[i]));
    return RG_OK;
}

rg_status rg_sync_create(rg_stepper *t)
{
    rg_plan_options options = rg_plan_options_default();
    void *memory;
    if (t->network.norms_count == 0)
        return RG_OK;
    RG_TRY(rg_allocate_zero(allocator, sizeof(rg_sync), &memory));
    rg_sync *y = t->sync = memory;
    y->count = t->options.micro_batches / t->ranks;
    RG_TRY(rg_allocate_array((size_t)y->count, sizeof *y->plans, &y->plans));
    y->plans[0] = t->micro->gradient;
    options.share = y->plans[0];
    for (int32_t i = 1; i < y->count; i++)
        RG_TRY(rg_plan_create(t->device, t->network.graph, &options, &y->plans[i]));
    RG_TRY(make_memory(t, y));
    return find_order(t);
}

void rg_sync_destroy(rg_stepper *t)
{
    rg_sync *y = t->sync;
    if (y == NULL)
        return;
    const size_t norms = t->network.norms_count, count = (size_t)y->count;
    const size_t numbers = 2 * (size_t)y->channels;
    for (int32_t i = 1; y->plans != NULL && i < y->count; i++)
        rg_plan_destroy(y->plans[i]);
    for (size_t i = 0; y->means != NULL && i < norms; i++)
        rg_release(allocator, y->means[i],
                   (1 + count) * (size_t)t->network.norms[i].channels * sizeof *y->means[i]);
    rg_release(allocator, y->means, norms * sizeof *y->means);
    rg_release(allocator, y->plans, count * sizeof *y->plans);
    rg_release(allocator, y->order, y->each * sizeof *y->order);
    rg_release(allocator, y->steps, count * y->each * sizeof *y->steps);
    rg_release(allocator, y->own, count * numbers * sizeof *y->own);
    rg_release(allocator, y->all, count * (size_t)t->ranks * numbers * sizeof *y->all);
    rg_release(allocator, y->joint, numbers * sizeof *y->joint);
    rg_release(allocator, y->elements, (size_t)y->channels * sizeof(double));
    rg_release(allocator, y, sizeof *y);
    t->sync = NULL;
}

/* ---- an exchange ---- */

static rg_status tensor_of(rg_stepper *t, int32_t part, size_t norm, const char *what,
                           rg_tensor **tensor)
{
    char name[RG_NORM_NAME];
    rg_norm_result_name(&t->network.norms[norm], what, name);
    return rg_plan_result(t->sync->plans[part], name, tensor);
}

static rg_status read_numbers(rg_stepper *t, int32_t part, size_t norm, const char *what,
                              double to[])
{
    rg_sync *y = t->sync;
    rg_tensor *tensor;
    RG_TRY(tensor_of(t, part, norm, what, &tensor));
    const int64_t count = t->network.norms[norm].channels;
    const rg_dtype dtype = tensor->desc.dtype;
    RG_TRY(
        rg_tensor_read(tensor, y->elements, (size_t)count * rg_dtype_size(dtype), RG_LAYOUT_SAME));
    for (int64_t i = 0; i < count; i++)
        to[i] = rg_element_get(y->elements, dtype, i);
    return RG_OK;
}

static rg_status write_numbers(rg_stepper *t, int32_t part, size_t norm, const char *what,
                               const double from[])
{
    rg_sync *y = t->sync;
    rg_tensor *tensor;
    RG_TRY(tensor_of(t, part, norm, what, &tensor));
    const int64_t count = t->network.norms[norm].channels;
    const rg_dtype dtype = tensor->desc.dtype;
    for (int64_t i = 0; i < count; i++)
        rg_element_set(y->elements, dtype, i, from[i]);
    return rg_tensor_write(tensor, y->elements, (size_t)count * rg_dtype_size(dtype),
                           RG_LAYOUT_SAME);
}

/* The two numbers of every channel, of all micro-batches of all ranks; zeros of empty ones. */
static rg_status gather(rg_stepper *t, const rg_step_slot *s, const exchange *m)
{
    rg_sync *y = t->sync;
    const size_t channels = (size_t)t->network.norms[m->norm].channels, each = 2 * channels;
    const char *const *names = m->backward ? backward_names : forward_names;
    for (int32_t i = 0; i < y->count; i++) {
        double *to = y->own + (size_t)i * each;
        memset(to, 0, each * sizeof *to);
        for (int k = 0; k < 2 && s->parts[i].count > 0; k++)
            RG_TRY(read_numbers(t, i, m->norm, names[k], to + (size_t)k * channels));
    }
    const size_t bytes = (size_t)y->count * each * sizeof *y->own;
    if (t->ranks > 1)
        return rg_group_gather(t->options.group, y->own, bytes, y->all);
    memcpy(y->all, y->own, bytes);
    return RG_OK;
}

static double weight_of(const rg_stepper *t, const rg_step_slot *s, int64_t index)
{
    const rg_step_range range = rg_stepper_range(t, s->whole, index);
    return (double)(range.end - range.first) / (double)s->whole;
}

/* The mean of both numbers over all parts; with statistics the variance is about the joint mean. */
static void join(rg_stepper *t, const rg_step_slot *s, const exchange *m)
{
    rg_sync *y = t->sync;
    const int64_t channels = t->network.norms[m->norm].channels;
    for (int64_t c = 0; c < 2 * channels; c++) {
        double sum = 0;
        for (int64_t i = 0; i < t->options.micro_batches; i++) {
            const double *of = y->all + i * 2 * channels;
            const double away =
                m->backward || c < channels ? 0 : of[c - channels] - y->joint[c - channels];
            sum += weight_of(t, s, i) * (of[c] + away * away);
        }
        y->joint[c] = sum;
    }
}

static rg_status hand_out_statistics(rg_stepper *t, const rg_step_slot *s, const exchange *m)
{
    rg_sync *y = t->sync;
    const rg_split_norm *norm = &t->network.norms[m->norm];
    const int64_t channels = norm->channels;
    const double elements = (double)s->whole * (double)norm->elements;
    const double factor = elements > 1 ? elements / (elements - 1) : 1;
    double *means = y->means[m->norm], *const variance = y->joint + channels;
    memcpy(means, y->joint, (size_t)channels * sizeof *means);
    for (int32_t i = 0; i < y->count; i++) {
        memcpy(means + (1 + i) * channels, y->own + i * 2 * channels,
               (size_t)channels * sizeof *means);
        if (s->parts[i].count == 0)
            continue;
        RG_TRY(write_numbers(t, i, m->norm, forward_names[0], y->joint));
        RG_TRY(write_numbers(t, i, m->norm, forward_names[1], variance));
    }
    for (int64_t c = 0; c < channels; c++)
        variance[c] *= factor;
    for (int32_t i = 0; i < y->count; i++) {
        if (s->parts[i].count > 0)
            RG_TRY(write_numbers(t, i, m->norm, forward_names[2], variance));
    }
    return RG_OK;
}

static rg_status hand_out_gradients(rg_stepper *t, const rg_step_slot *s, const exchange *m)
{
    rg_sync *y = t->sync;
    const int64_t channels = t->network.norms[m->norm].channels;
    const double *mean = y->means[m->norm], *const dvariance = y->joint + channels;
    for (int32_t i = 0; i < y->count; i++) {
        const double *own = mean + (1 + i) * channels;
        double *dmean = y->own + i * 2 * channels;
        for (int64_t c = 0; c < channels; c++)
            dmean[c] = y->joint[c] + 2 * dvariance[c] * (own[c] - mean[c]);
        if (s->parts[i].count == 0)
            continue;
        RG_TRY(write_numbers(t, i, m->norm, backward_names[0], dmean));
        RG_TRY(write_numbers(t, i, m->norm, backward_names[1], dvariance));
    }
    return RG_OK;
}

static rg_status run_exchange(rg_stepper *t, rg_step_slot *s, const exchange *m)
{
    RG_TRY(rg_commands_commit_and_continue(s->commands));
    RG_TRY(rg_commands_wait_committed(s->commands));
    RG_TRY(gather(t, s, m));
    join(t, s, m);
    return m->backward ? hand_out_gradients(t, s, m) : hand_out_statistics(t, s, m);
}

/* ---- a batch ---- */

/* The steps of a micro-batch after exchange k - 1, up to exchange k. */
static rg_status record_piece(rg_stepper *t, rg_step_slot *s, int32_t index, size_t k)
{
    const rg_sync *y = t->sync;
    const int32_t *steps = y->steps + (size_t)index * y->each;
    const rg_plan_piece piece = { k > 0 ? steps[k - 1] : -1, k < y->each ? steps[k] : -1 };
    return rg_stepper_record_piece(t, y->plans[index], s, index, &piece);
}

static rg_status record_all(rg_stepper *t, rg_step_slot *s)
{
    const rg_sync *y = t->sync;
    for (size_t k = 0; k <= y->each; k++) {
        for (int32_t i = 0; i < y->count; i++) {
            if (s->parts[i].count > 0)
                RG_TRY(record_piece(t, s, i, k));
        }
        if (k < y->each)
            RG_TRY(run_exchange(t, s, &y->order[k]));
    }
    return RG_OK;
}

rg_status rg_sync_run(rg_stepper *t, rg_step_slot *s)
{
    rg_sync *y = t->sync;
    for (int32_t i = 0; i < y->count; i++) {
        if (s->parts[i].count > 0)
            RG_TRY(find_steps(t, &s->parts[i], i));
    }
    RG_TRY(record_all(t, s));
    for (int32_t i = 0; i < y->count; i++) {
        t->micro->made = y->plans[i];
        if (s->parts[i].count > 0)
            RG_TRY(rg_slot_read(t, s, y->plans[i], i));
        RG_TRY(rg_micro_begin(t, s->commands, &s->parts[i], i));
        for (size_t k = 0; k < t->micro->bucket_count; k++)
            RG_TRY(rg_micro_add(t, s->commands, &s->parts[i], i, k));
        rg_micro_end(t, i);
    }
    return RG_OK;
}
