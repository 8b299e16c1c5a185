/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Micro-batches: the gradients of the parts of a batch, summed in a fixed binary tree.
 *
 *      sum(m, m + 1)     = weight[m] g[m] + weight[m + 1] g[m + 1]
 *      sum(m, .., m + 3) = sum(m, m + 1) + sum(m + 2, m + 3)      and so on
 *
 *  weight[m] is the share of micro-batch m in the images of the batch, so that the root is the
 *  gradient of the mean over the batch. A rank owns neighbours, 2^k of them, and computes a subtree
 *  of the same tree: the bits of the root do not depend on the number of ranks. Running statistics
 *  of batch norm are summed as gradients are, which makes them those of the mean of all
 *  micro-batches.
 *
 *  Subtrees lie on a stack: a new leaf on top, and two subtrees of one size become one. With 2^k
 *  micro-batches there are at most k + 1. */
#include "train/stepper_parts.h"

#include "core/memory.h"
#include "core/shape.h"

#include <retrograde/nodes.h>

#include <stdio.h>
#include <stdlib.h>

static const rg_allocator *const allocator = &rg_default_allocator;

rg_step_range rg_stepper_range(const rg_stepper *t, int64_t count, int64_t index)
{
    const int64_t parts = t->options.micro_batches;
    const int64_t each = (t->options.batch + parts - 1) / parts;
    const int64_t first = index * each, end = first + each;
    return (rg_step_range){ first < count ? first : count, end < count ? end : count };
}

/* ---- the pieces ---- */

static rg_dtype real_of(rg_dtype dtype)
{
    return dtype == RG_F64 ? RG_F64 : RG_F32;
}

/* What plans call the result with the gradient, or the new statistic, of a parameter. */
static rg_status add_piece(rg_micro *m, const rg_network_parameter *p, rg_value *value,
                           rg_graph *graph)
{
    enum { PAD = 16 }; /* elements: pieces begin on cache lines */
    RG_TRY(rg_grow(allocator, (void **)&m->pieces, &m->capacity, m->count, sizeof *m->pieces));
    rg_micro_piece *piece = &m->pieces[m->count];
    const rg_tensor_desc *d = &p->value->desc;
    *piece = (rg_micro_piece){ .parameter = p,
                               .desc = rg_tensor_desc_dense(real_of(d->dtype), d->rank, d->dims),
                               .offset = m->elements };
    RG_CHECK(asprintf(&piece->name, "%s.gradient", p->value->name) >= 0, RG_OUT_OF_MEMORY,
             "out of memory for a name");
    m->count++;
    m->elements += (rg_shape_count(d) + PAD - 1) / PAD * PAD;
    return rg_graph_result(graph, value, piece->name);
}

static rg_status find_pieces(rg_stepper *t)
{
    const rg_network *n = &t->network;
    for (size_t i = 0; i < n->parameters_count; i++) {
        const rg_network_parameter *p = &n->parameters[i];
        rg_value *value = p->trained ? rg_value_gradient(p->value) : p->value->assigned;
        if (value != NULL)
            RG_TRY(add_piece(t->micro, p, value, n->graph));
    }
    /* Updates of statistics are left to the plan that changes parameters. */
    for (size_t i = 0; i < n->graph->assignments_count; i++)
        n->graph->assignments[i].parameter->assigned = n->graph->assignments[i].value->takes = NULL;
    n->graph->assignments_count = 0;
    return RG_OK;
}

/* ---- buffers ---- */

static rg_status make_view(rg_tensor *whole, const rg_micro_piece *piece, rg_tensor **view)
{
    const int64_t count = rg_shape_count(&piece->desc);
    rg_tensor *range;
    RG_TRY(rg_tensor_slice(whole, &piece->offset, &count, NULL, &range));
    const rg_status status = rg_tensor_reshape(range, piece->desc.rank, piece->desc.dims, view);
    rg_tensor_destroy(range);
    return status;
}

/* A tensor of zeros in one dimension. */
static rg_status make_zeros(const rg_stepper *t, int64_t count, rg_tensor **tensor)
{
    const rg_dtype real = real_of(t->options.network.dtype);
    const rg_tensor_desc desc = rg_tensor_desc_dense(real, 1, &count);
    const size_t bytes = (size_t)count * rg_dtype_size(real);
    void *zeros;
    RG_TRY(rg_tensor_create(t->device, &desc, tensor));
    RG_TRY(rg_allocate_zero(allocator, bytes, &zeros));
    const rg_status status = rg_tensor_write(*tensor, zeros, bytes, RG_LAYOUT_SAME);
    rg_release(allocator, zeros, bytes);
    return status;
}

/* Of some MB each, from the last piece to the first. */
static rg_status make_buckets(rg_micro *m)
{
    enum { ELEMENTS = 1 << 19 };
    int64_t end = m->elements;
    RG_TRY(rg_allocate_array(m->count, sizeof *m->buckets, &m->buckets));
    for (size_t i = m->count; i-- > 0;) {
        rg_micro_bucket *b = &m->buckets[m->bucket_count > 0 ? m->bucket_count - 1 : 0];
        if (m->bucket_count == 0 || b->count >= ELEMENTS) {
            b = &m->buckets[m->bucket_count++];
            *b = (rg_micro_bucket){ .end = i + 1 };
        }
        b->first = i;
        b->offset = m->pieces[i].offset;
        b->count += end - b->offset;
        end = b->offset;
    }
    return RG_OK;
}

static rg_status make_bucket_views(rg_micro *m, int32_t level)
{
    RG_TRY(rg_allocate_array(m->bucket_count, sizeof *m->bucket_views[level],
                             &m->bucket_views[level]));
    for (size_t i = 0; i < m->bucket_count; i++) {
        const rg_micro_bucket *b = &m->buckets[i];
        RG_TRY(rg_tensor_slice(m->sums[level], &b->offset, &b->count, NULL,
                               &m->bucket_views[level][i]));
    }
    return RG_OK;
}

static rg_status make_level(rg_stepper *t, int32_t level)
{
    rg_micro *m = t->micro;
    RG_TRY(make_zeros(t, m->elements, &m->sums[level])); /* so that there is no garbage between */
    RG_TRY(rg_allocate_array(m->count, sizeof *m->views[level], &m->views[level]));
    m->levels = level + 1;
    for (size_t i = 0; i < m->count; i++)
        RG_TRY(make_view(m->sums[level], &m->pieces[i], &m->views[level][i]));
    return make_bucket_views(m, level);
}

static rg_status make_kernels(rg_stepper *t)
{
    rg_micro *m = t->micro;
    const rg_tensor_desc number = rg_tensor_desc_dense(real_of(t->options.network.dtype), 0, NULL);
    rg_sgd_desc scale = rg_sgd_desc_default(); /* 0 - weight (-g): any dtype, rounded once */
    scale.gradient.rescale = -1;
    const rg_arithmetic_desc add = rg_arithmetic_desc_default();
    RG_TRY(rg_sgd_create(t->device, &scale, &m->scale));
    RG_TRY(rg_arithmetic_create(t->device, &add, &m->add));
    return rg_tensor_create(t->device, &number, &m->weight);
}

static rg_status make_zero(rg_stepper *t)
{
    rg_micro *m = t->micro;
    int64_t largest = 1;
    for (size_t i = 0; i < m->count; i++) {
        const int64_t count = rg_shape_count(&m->pieces[i].desc);
        largest = count > largest ? count : largest;
    }
    return make_zeros(t, largest, &m->zero);
}

rg_status rg_micro_create(rg_stepper *t)
{
    void *memory;
    RG_TRY(rg_allocate_zero(allocator, sizeof *t->micro, &memory));
    rg_micro *m = t->micro = memory;
    const int32_t owned = t->options.micro_batches / t->ranks;
    RG_TRY(find_pieces(t));
    RG_CHECK(m->count > 0, RG_INVALID_ARGUMENT, "the network has nothing to train");
    RG_TRY(make_kernels(t));
    RG_TRY(make_zero(t));
    RG_TRY(make_buckets(m));
    int32_t levels = 1;
    while (1 << (levels - 1) < owned)
        levels++;
    for (int32_t level = 0; level < levels; level++)
        RG_TRY(make_level(t, level));
    return RG_OK;
}

void rg_micro_destroy(rg_micro *m)
{
    if (m == NULL)
        return;
    for (int32_t level = 0; level < RG_MICRO_LEVELS; level++) {
        for (size_t i = 0; m->views[level] != NULL && i < m->count; i++)
            rg_tensor_destroy(m->views[level][i]);
        rg_release(allocator, m->views[level], m->count * sizeof *m->views[level]);
        for (size_t i = 0; m->bucket_views[level] != NULL && i < m->bucket_count; i++)
            rg_tensor_destroy(m->bucket_views[level][i]);
        rg_release(allocator, m->bucket_views[level],
                   m->bucket_count * sizeof *m->bucket_views[level]);
        rg_tensor_destroy(m->sums[level]);
    }
    for (size_t i = 0; i < m->count; i++)
        free(m->pieces[i].name);
    rg_release(allocator, m->buckets, m->count * sizeof *m->buckets);
    rg_release(allocator, m->pieces, m->capacity * sizeof *m->pieces);
    rg_tensor_destroy(m->zero);
    rg_tensor_destroy(m->weight);
    rg_kernel_destroy(m->scale);
    rg_kernel_destroy(m->add);
    rg_plan_destroy(m->gradient);
    rg_release(allocator, m, sizeof *m);
}

/* ---- the tree ---- */

/* As many zeros as a piece has elements. */
static rg_status zero_like(const rg_micro *m, const rg_micro_piece *piece, rg_tensor **view)
{
    const rg_micro_piece at_start = { .desc = piece->desc };
    return make_view(m->zero, &at_start, view);
}

/* A leaf: weight times the gradients, or zeros where there are none. */
static rg_status record_piece(const rg_micro *m, rg_commands *commands, size_t index, bool is_empty)
{
    rg_tensor *const to = m->views[m->depth][index];
    rg_tensor *gradient = NULL, *zero;
    if (!is_empty)
        RG_TRY(rg_plan_result(m->made != NULL ? m->made : m->gradient, m->pieces[index].name,
                              &gradient));
    RG_TRY(zero_like(m, &m->pieces[index], &zero));
    const rg_status status =
        is_empty ? rg_kernel_forward(m->add, commands, (rg_tensor *[]){ zero, zero }, &to, NULL)
                 : rg_kernel_forward(m->scale, commands,
                                     (rg_tensor *[]){ zero, gradient, m->weight }, &to, NULL);
    rg_tensor_destroy(zero);
    return status;
}

rg_status rg_micro_begin(rg_stepper *t, rg_commands *commands, const rg_step_part *part,
                         int32_t index)
{
    rg_micro *m = t->micro;
    const bool wide = t->options.network.dtype == RG_F64;
    if (index == 0)
        m->depth = 0;
    return rg_commands_write(commands, m->weight,
                             wide ? (const void *)&part->weight64 : &part->weight,
                             wide ? sizeof part->weight64 : sizeof part->weight, RG_LAYOUT_SAME);
}

rg_status rg_micro_add(rg_stepper *t, rg_commands *commands, const rg_step_part *part,
                       int32_t index, size_t bucket)
{
    const rg_micro *m = t->micro;
    const rg_micro_bucket *b = &m->buckets[bucket];
    for (size_t i = b->first; i < b->end; i++)
        RG_TRY(record_piece(m, commands, i, part->count == 0));
    int32_t top = m->depth;
    for (int32_t left = index; left % 2 == 1; left /= 2, top--) {
        rg_tensor *const to = m->bucket_views[top - 1][bucket];
        RG_TRY(rg_kernel_forward(m->add, commands,
                                 (rg_tensor *[]){ to, m->bucket_views[top][bucket] }, &to, NULL));
    }
    return RG_OK;
}

void rg_micro_end(rg_stepper *t, int32_t index)
{
    t->micro->depth++;
    for (int32_t left = index; left % 2 == 1; left /= 2)
        t->micro->depth--;
}

rg_tensor *const *rg_micro_sums(const rg_micro *m)
{
    return m->views[0];
}

rg_tensor *rg_micro_sum(const rg_micro *m)
{
    return m->sums[0];
}
