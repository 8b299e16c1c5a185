/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Runs of ONNX's Pad and its gradient: of any rank, and around the edge. */
#include "core/shape.h"
#include "operators/onnx_converters.h"
#include "operators/run.h"
#include "runtime/objects.h"

#include <retrograde/arithmetic.h>
#include <retrograde/concat.h>
#include <retrograde/pad.h>
#include <retrograde/reduce.h>
#include <retrograde/slice.h>

/* Four dimensions for those of a tensor, of which those from `from` up to `to` are padded:
 * neighbours that are not are one. */
typedef struct grouping {
    rg_onnx_pads pads; /* 0 outside of from, to */
    int64_t dims[4];   /* of the tensor, ones in front */
    int32_t count;     /* of groups; more than 4: it cannot be done at once */
} grouping;

static bool is_padded(const rg_onnx_pads *p, int32_t d)
{
    return p->before[d] != 0 || p->after[d] != 0;
}

/* The descriptor gets the pads of the groups. */
static void group_dims(rg_run *run, const rg_onnx_pads *all, const rg_tensor *x, int32_t from,
                       int32_t to, grouping *g)
{
    rg_pad_desc *d = (rg_pad_desc *)run->call.desc;
    const int64_t *dims = x->desc.dims;
    rg_onnx_pads *p = &g->pads;
    int32_t of[RG_MAX_RANK];
    *g = (grouping){ .pads = *all, .dims = { 1, 1, 1, 1 } };
    for (int32_t i = 0; i < p->rank; i++) {
        if (i < from || i >= to)
            p->before[i] = p->after[i] = 0;
        const bool joins = i > 0 && !is_padded(p, i) && !is_padded(p, i - 1);
        of[i] = joins ? g->count - 1 : g->count++;
    }
    memset(d->before, 0, sizeof d->before);
    memset(d->after, 0, sizeof d->after);
    for (int32_t i = 0; i < p->rank && g->count <= 4; i++) {
        const int32_t at = 4 - g->count + of[i];
        g->dims[at] *= dims[i];
        d->before[at] += p->before[i];
        d->after[at] += p->after[i];
    }
}

/* y of the op, in ONNX's dimensions. */
static rg_status ungroup(rg_run *run, const grouping *g, const rg_tensor *x, rg_tensor *made,
                         rg_tensor **y)
{
    int64_t dims[RG_MAX_RANK];
    for (int32_t i = 0; i < g->pads.rank; i++) {
        const int64_t more = g->pads.before[i] + g->pads.after[i];
        dims[i] = x->desc.dims[i] + (run->call.gradient ? -more : more);
    }
    return rg_run_reshape(run, made, g->pads.rank, dims, y);
}

/* ---- around the edge ---- */

/* One dimension of n elements: first `cut` are left out at both sides, then the last `tail` and the
 * first `head` of the m that are left stand around `copies` of all of them. */
typedef struct wrap {
    int64_t n, cut, m, tail, copies, head;
} wrap;

static rg_status plan_wrap(const rg_run *run, int64_t n, int64_t before, int64_t after, wrap *w)
{
    const int64_t more[2] = { before > 0 ? before : 0, after > 0 ? after : 0 };
    *w = (wrap){ .n = n, .cut = more[0] - before, .copies = 1 };
    w->m = n - w->cut - (more[1] - after);
    RG_CHECK(w->m > 0 || (w->m == 0 && more[0] + more[1] == 0), RG_INVALID_ARGUMENT,
             "%s: of %lld elements none is left that could be repeated", run->node.type,
             (long long)n);
    if (w->m == 0)
        return RG_OK;
    w->tail = more[0] % w->m;
    w->head = more[1] % w->m;
    w->copies += more[0] / w->m + more[1] / w->m;
    return RG_OK;
}

/* Elements of the middle of x (outer, n, inner). */
static rg_status cut_middle(rg_run *run, rg_tensor *x, int64_t start, int64_t length, rg_tensor **y)
{
    const int64_t from[] = { 0, start, 0 };
    const int64_t part[] = { x->desc.dims[0], length, x->desc.dims[2] };
    RG_TRY(rg_tensor_slice(x, from, part, NULL, y));
    return rg_run_keep(run, *y);
}

/* x (outer, n, inner) becomes (outer, padded, inner). */
static rg_status wrap_middle(rg_run *run, const wrap *w, rg_tensor *x, rg_tensor **y)
{
    rg_tensor *parts[3], *all;
    rg_concat_desc desc = rg_concat_desc_default();
    const int64_t outer = x->desc.dims[0], inner = x->desc.dims[2];
    desc.axis = 1;
    desc.sources = 0;
    RG_TRY(cut_middle(run, x, w->cut, w->m, &x));
    if (w->tail > 0)
        RG_TRY(cut_middle(run, x, w->m - w->tail, w->tail, &parts[desc.sources++]));
    all = x;
    if (w->copies > 1) {
        RG_TRY(rg_run_reshape(run, x, 4, (int64_t[]){ outer, 1, w->m, inner }, &all));
        RG_TRY(rg_tensor_expand(all, 4, (int64_t[]){ outer, w->copies, w->m, inner }, &all));
        RG_TRY(rg_run_keep(run, all));
        RG_TRY(rg_run_reshape(run, all, 3, (int64_t[]){ outer, w->copies * w->m, inner }, &all));
    }
    parts[desc.sources++] = all;
    if (w->head > 0)
        RG_TRY(cut_middle(run, x, 0, w->head, &parts[desc.sources++]));
    *y = all;
    return desc.sources > 1 ? rg_run_forward(run, &rg_op_concat, &desc, parts, y, NULL) : RG_OK;
}

/* Adds dy to the elements from `start` on of a gradient with n elements in the middle; NULL: zeros.
 */
static rg_status add_middle(rg_run *run, rg_tensor *dy, int64_t n, int64_t start, rg_tensor **sum)
{
    const int64_t dims[] = { dy->desc.dims[0], n, dy->desc.dims[2] };
    const rg_tensor_desc shape = rg_tensor_desc_dense(dy->desc.dtype, 3, dims);
    const rg_arithmetic_desc add = rg_arithmetic_desc_default();
    rg_slice_desc slice = rg_slice_desc_default();
    rg_tensor *x, *dx;
    slice.start_count = slice.length_count = 3;
    slice.start[1] = start;
    memcpy(slice.length, dy->desc.dims, 3 * sizeof slice.length[0]);
    RG_TRY(rg_tensor_create(run->device, &shape, &x)); /* its shape alone counts */
    RG_TRY(rg_run_keep(run, x));
    const rg_run_reads reads = { .dy = &dy, .x = &x, .wanted = 1 };
    RG_TRY(rg_run_gradient(run, &rg_op_slice, &slice, &reads, &dx));
    if (*sum == NULL) {
        *sum = dx;
        return RG_OK;
    }
    return rg_run_forward(run, &rg_op_arithmetic, &add, (rg_tensor *[]){ *sum, dx }, sum, NULL);
}

/* The gradient of x (outer, n, inner): each element gets the sum of its copies. */
static rg_status unwrap_middle(rg_run *run, const wrap *w, rg_tensor *dy, rg_tensor **dx)
{
    const int64_t outer = dy->desc.dims[0], inner = dy->desc.dims[2], all = w->copies * w->m;
    rg_reduce_desc reduce = rg_reduce_desc_default();
    rg_tensor *part, *sum;
    RG_TRY(cut_middle(run, dy, w->tail, all, &sum));
    if (w->copies > 1) {
        reduce.keep_dims = false;
        reduce.dims_count = 1;
        reduce.dims[0] = 1;
        RG_TRY(rg_run_reshape(run, sum, 4, (int64_t[]){ outer, w->copies, w->m, inner }, &sum));
        RG_TRY(rg_run_unary(run, &rg_op_reduce, &reduce, sum, &sum));
    }
    if (w->tail > 0) {
        RG_TRY(cut_middle(run, dy, 0, w->tail, &part));
        RG_TRY(add_middle(run, part, w->m, w->m - w->tail, &sum));
    }
    if (w->head > 0) {
        RG_TRY(cut_middle(run, dy, w->tail + all, w->head, &part));
        RG_TRY(add_middle(run, part, w->m, 0, &sum));
    }
    *dx = NULL;
    return add_middle(run, sum, w->n, w->cut, dx);
}

/* Dimension d of four stands in the middle of (outer, n, inner). */
static rg_status fold(rg_run *run, rg_tensor *x, int32_t d, rg_tensor **y)
{
    int64_t dims[3] = { 1, x->desc.dims[d], 1 };
    for (int32_t i = 0; i < 4; i++)
        dims[i < d ? 0 : 2] *= i != d ? x->desc.dims[i] : 1;
    return rg_run_reshape(run, x, 3, dims, y);
}

static rg_status run_wrap(rg_run *run, grouping *g, rg_tensor *from, rg_tensor **y)
{
    const rg_pad_desc *d = (const rg_pad_desc *)run->call.desc;
    const bool back = run->call.gradient;
    int64_t *const dims = g->dims;
    rg_tensor *x;
    RG_TRY(rg_run_reshape(run, from, 4, dims, &x));
    for (int32_t i = 0; i < 4; i++) {
        const int32_t at = back ? 3 - i : i;
        const int64_t more = d->before[at] + d->after[at];
        wrap w;
        if (d->before[at] == 0 && d->after[at] == 0)
            continue;
        RG_CHECK(!back || dims[at] > more, RG_INVALID_ARGUMENT,
                 "%s: dY is smaller than its padding", run->node.type);
        RG_TRY(plan_wrap(run, back ? dims[at] - more : dims[at], d->before[at], d->after[at], &w));
        RG_TRY(fold(run, x, at, &x));
        RG_TRY(back ? unwrap_middle(run, &w, x, &x) : wrap_middle(run, &w, x, &x));
        dims[at] = x->desc.dims[1];
        RG_TRY(rg_run_reshape(run, x, 4, dims, &x));
    }
    *y = x;
    return RG_OK;
}

/* ---- all modes ---- */

static rg_status run_back(rg_run *run, grouping *g, rg_tensor *from, rg_tensor **dx)
{
    const rg_pad_desc *d = (const rg_pad_desc *)run->call.desc;
    rg_tensor *dy;
    RG_TRY(rg_run_reshape(run, from, 4, g->dims, &dy));
    for (int32_t i = 0; i < 4; i++) {
        g->dims[i] -= d->before[i] + d->after[i];
        RG_CHECK(g->dims[i] >= 0, RG_INVALID_ARGUMENT, "%s: dY is smaller than its padding",
                 run->node.type);
    }
    return rg_run_gradient_of(run, dy, 4, g->dims, dx);
}

static rg_status run_grouped(rg_run *run, grouping *g, rg_tensor *x, rg_tensor **y)
{
    rg_tensor *made;
    if (g->pads.wraps) {
        RG_TRY(run_wrap(run, g, x, &made));
    } else if (run->call.gradient) {
        RG_TRY(run_back(run, g, x, &made));
    } else {
        RG_TRY(rg_run_reshape(run, x, 4, g->dims, &made));
        RG_TRY(rg_run_unary(run, &rg_op_pad, run->call.desc, made, &made));
    }
    return ungroup(run, g, x, made, y);
}

/* What was made since `kept`, but for the result: the commands keep what they use. */
static void drop_steps(rg_run *run, int32_t kept, rg_tensor *result)
{
    int32_t count = kept;
    for (int32_t i = kept; i < run->kept_count; i++) {
        if (run->kept[i] == result)
            run->kept[count++] = result;
        else
            rg_tensor_destroy(run->kept[i]);
    }
    run->kept_count = count;
}

/* All dimensions at once, or where there are too many one after the other: each mode takes its
 * elements from those along one dimension. The gradient goes the other way round. */
rg_status rg_run_pad(rg_run *run)
{
    rg_onnx_pads p;
    grouping g;
    rg_tensor *x = run->in[0];
    RG_TRY(rg_onnx_read_pads(&run->node, &run->call, &p));
    RG_TRY(rg_onnx_finish(&run->node, &run->call, NULL));
    group_dims(run, &p, x, 0, p.rank, &g);
    if (g.count <= 4) {
        RG_TRY(run_grouped(run, &g, x, &x));
        return rg_run_give(run, 0, x);
    }
    for (int32_t i = 0; i < p.rank; i++) {
        const int32_t at = run->call.gradient ? p.rank - 1 - i : i;
        const int32_t kept = run->kept_count;
        if (!is_padded(&p, at))
            continue;
        group_dims(run, &p, x, at, at + 1, &g);
        RG_TRY(run_grouped(run, &g, x, &x));
        drop_steps(run, kept, x);
    }
    return rg_run_give(run, 0, x);
}
