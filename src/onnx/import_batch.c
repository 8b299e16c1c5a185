/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Files that fix the batch, as exporters write it without dynamic dimensions, read for a batch of
 * any size: where constants have the file's batch in them, it is replaced. */
#include "onnx/import.h"

#include "core/shape.h"

#include <string.h>

/* The length that a dimension has in the file, -1 if it has no number: lengths are linear in the
 * batch. */
static int64_t file_length(const rg_import *m, const rg_tensor_desc shape[RG_PROBES], int32_t d)
{
    const int64_t a = shape[0].dims[d], step = shape[1].dims[d] - a;
    int64_t length;
    if (__builtin_mul_overflow(step, m->file_batch - RG_PROBE_BATCH, &length) ||
        __builtin_add_overflow(length, a, &length))
        return -1;
    return length;
}

rg_status rg_import_within_image(const rg_import *m, const rg_flow *x, int32_t axis)
{
    const int32_t d = rg_flow_axis(x, axis);
    RG_CHECK(m->file_batch == 0 || x->shape[0].dims[d] == x->shape[1].dims[d], RG_UNSUPPORTED,
             "it goes over all images of a batch, of which the file has %lld",
             (long long)m->file_batch);
    return RG_OK;
}

/* The one dimension that is a multiple of the batch, or -1. */
static int32_t batch_dimension(const rg_tensor_desc shape[RG_PROBES])
{
    int32_t found = -1;
    for (int32_t d = 0; d < shape[0].rank; d++) {
        const int64_t a = shape[0].dims[d], b = shape[1].dims[d];
        if (a == b)
            continue;
        if (found >= 0 || a > INT64_MAX / 4 || b > INT64_MAX / 4 ||
            a * (RG_PROBE_BATCH + 1) != b * RG_PROBE_BATCH)
            return -1;
        found = d;
    }
    return found;
}

/* ---- Reshape ---- */

static bool divides(const rg_import *m, int64_t length)
{
    return length > 0 && length % m->file_batch == 0;
}

/* What lies outside the batch within a dimension of this length, as (l n) of (l, n, c) has l: it is
 * that of the last reshape that made such a dimension. */
static int64_t *outside(rg_import *m, int64_t length)
{
    enum { COUNT = sizeof m->batch_parts / sizeof m->batch_parts[0] };
    for (int32_t i = 0; i < COUNT; i++) {
        if (m->batch_parts[i].length == length)
            return &m->batch_parts[i].outside;
    }
    m->batch_part = (m->batch_part + 1) % COUNT;
    m->batch_parts[m->batch_part].length = length;
    m->batch_parts[m->batch_part].outside = 1;
    return &m->batch_parts[m->batch_part].outside;
}

/* Which dimension of the result the batch, with this many elements outside of it, becomes a part
 * of: one that begins where it does, but for the last, which holds features; else the one that it
 * lies in; -1: it lies in none. */
static int32_t find_dimension(const rg_import *m, int64_t before, const int64_t shape[],
                              int32_t rank)
{
    int64_t prefix = 1;
    int32_t within = -1;
    for (int32_t d = 0; d < rank; d++) {
        const bool last = d == rank - 1 && rank > 1 && within >= 0;
        const bool can = !last && divides(m, shape[d]);
        if (prefix == before && can)
            return d;
        if (prefix <= before && can && prefix * shape[d] / m->file_batch >= before)
            within = d;
        prefix *= shape[d];
    }
    return within;
}

rg_status rg_import_open_reshape(rg_import *m, const rg_known *x, bool allow_zero,
                                 const int64_t shape[], int32_t rank,
                                 int64_t dims[RG_PROBES][RG_MAX_RANK], bool *done)
{
    int64_t file[RG_MAX_RANK];
    rg_tensor_desc whole = x->shape[0];
    const int32_t s = batch_dimension(x->shape);
    *done = false;
    if (m->file_batch == 0 || s < 0)
        return RG_OK;
    for (int32_t d = 0; d < whole.rank; d++)
        whole.dims[d] = file_length(m, x->shape, d);
    whole = rg_tensor_desc_dense(whole.dtype, whole.rank, whole.dims);
    memcpy(file, shape, sizeof file[0] * (size_t)rank);
    if (rg_shape_check(&whole, "x", NULL) != RG_OK ||
        rg_resolve_shape(&whole, allow_zero, file, rank) != RG_OK)
        return RG_OK; /* the shape is judged as it is */
    int64_t before = *outside(m, whole.dims[s]);
    bool same = s < rank && (before == 1 || rank == whole.rank); /* up to the batch */
    for (int32_t d = 0; d <= s; d++) {
        if (__builtin_mul_overflow(before, d < s ? whole.dims[d] : 1, &before))
            return RG_OK;
        same = same && file[d] == whole.dims[d];
    }
    const int32_t to = same ? s : find_dimension(m, before, file, rank);
    if (to < 0 || file[to] > INT64_MAX / 4)
        return RG_OK;
    for (int32_t d = 0; d < to; d++)
        before = file[d] > 0 && before % file[d] == 0 ? before / file[d] : 1;
    *outside(m, file[to]) = before;
    for (int32_t p = 0; p < RG_PROBES; p++) {
        memcpy(dims[p], file, sizeof file[0] * (size_t)rank);
        dims[p][to] = file[to] / m->file_batch * (RG_PROBE_BATCH + p);
    }
    *done = true;
    return RG_OK;
}

/* ---- others ---- */

rg_status rg_import_open_sizes(rg_import *m, const rg_proto_node *node, int32_t probe,
                               int64_t sizes[], int32_t count)
{
    rg_known *x = NULL;
    RG_TRY(rg_import_known(m, node, 0, &x));
    const int32_t s = batch_dimension(x->shape);
    if (m->file_batch > 0 && s >= 0 && s < count && count == x->shape[0].rank &&
        sizes[s] == file_length(m, x->shape, s))
        sizes[s] = x->shape[probe].dims[s];
    return RG_OK;
}

/* Dimensions that keep the length that they have in the file, which depends on the batch. */
static void keep_lengths(const rg_import *m, const rg_flow *x, int32_t rank,
                         int64_t dims[RG_PROBES][RG_MAX_RANK])
{
    const int32_t own = rg_flow_rank(x);
    rg_tensor_desc file[RG_PROBES];
    for (int32_t p = 0; p < RG_PROBES; p++) {
        int64_t lengths[RG_MAX_RANK];
        rg_flow_dims(x, p, lengths);
        file[p] = rg_tensor_desc_dense(x->shape[p].dtype, own, lengths);
    }
    for (int32_t d = own < rank ? rank - own : 0; d < rank; d++) {
        const int32_t k = d - (rank - own);
        const int64_t length = file_length(m, file, k);
        if (file[0].dims[k] == file[1].dims[k] || dims[0][d] != length || dims[1][d] != length)
            continue;
        for (int32_t p = 0; p < RG_PROBES; p++)
            dims[p][d] = file[p].dims[k];
    }
}

void rg_import_open_expand(const rg_import *m, const rg_flow *x, int32_t rank,
                           int64_t dims[RG_PROBES][RG_MAX_RANK])
{
    const int32_t at = rg_flow_rank(x) == rank && rank > 0 ? rg_flow_axis(x, 0) : -1;
    const int64_t length = at < 0 ? 1 : x->shape[0].dims[at];
    if (m->file_batch > 0)
        keep_lengths(m, x, rank, dims);
    /* a batch of 1 is no dimension that is repeated: broadcasting does the rest */
    if (m->file_batch <= 1 || rank == 0 || length != 1)
        return;
    for (int32_t p = 0; p < RG_PROBES; p++)
        dims[p][0] = dims[p][0] == m->file_batch ? RG_PROBE_BATCH + p : dims[p][0];
}

rg_status rg_import_open_concat(rg_import *m, const rg_flow *like, int32_t axis, rg_flow *x)
{
    int64_t dims[RG_PROBES][RG_MAX_RANK], wanted[RG_PROBES][RG_MAX_RANK];
    bool any = false;
    if (m->file_batch != 1 || rg_flow_rank(x) != rg_flow_rank(like))
        return RG_OK;
    for (int32_t p = 0; p < RG_PROBES; p++) {
        rg_flow_dims(x, p, dims[p]);
        rg_flow_dims(like, p, wanted[p]);
    }
    for (int32_t d = 0; d < rg_flow_rank(x); d++) {
        const bool batch = wanted[0][d] == RG_PROBE_BATCH && wanted[1][d] == RG_PROBE_BATCH + 1;
        if (d == axis || !batch || dims[0][d] != 1 || dims[1][d] != 1)
            continue;
        any = true;
        for (int32_t p = 0; p < RG_PROBES; p++)
            dims[p][d] = wanted[p][d];
    }
    return any ? rg_flow_expand(m, x, rg_flow_rank(x), dims) : RG_OK;
}

/* Views by strides are written as a Gather of all elements of a vector, in their own order. */
rg_status rg_import_open_gather(rg_import *m, const rg_proto_node *node, const rg_array *indices,
                                bool *done)
{
    int64_t dims[RG_PROBES][RG_MAX_RANK];
    rg_known *known = NULL;
    rg_flow x;
    *done = false;
    RG_TRY(rg_import_known(m, node, 0, &known));
    if (m->file_batch == 0 || known->shape[0].rank != 1 || batch_dimension(known->shape) != 0 ||
        indices->rank < 1 || indices->count != file_length(m, known->shape, 0) ||
        !divides(m, indices->dims[0]))
        return RG_OK;
    for (int64_t i = 0; i < indices->count; i++) {
        if (rg_array_at(indices, i).i != i)
            return RG_OK;
    }
    for (int32_t p = 0; p < RG_PROBES; p++) {
        memcpy(dims[p], indices->dims, sizeof dims[p]);
        dims[p][0] = indices->dims[0] / m->file_batch * (RG_PROBE_BATCH + p);
    }
    *done = true;
    RG_TRY(rg_import_plain(m, node, 0, &x));
    RG_TRY(rg_flow_reshape(m, &x, indices->rank, dims));
    return rg_import_define(m, node, 0, &x);
}
