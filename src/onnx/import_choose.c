/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Operators that choose elements by constants: Gather, and blocks of pixels as channels. */
#include "onnx/import.h"

#include <retrograde/nodes.h>

#include <string.h>

/* ---- Gather ---- */

/* Slices that a Gather becomes at most, and elements of a matrix that picks rows. */
enum { MOST_SLICES = 64, MOST_PICKS = 1 << 20 };

/* Indices from 0, in range. */
static rg_status read_indices(const rg_array *indices, int64_t length, int64_t i, int64_t *index)
{
    *index = rg_array_at(indices, i).i;
    RG_CHECK(*index >= -length && *index < length, RG_MALFORMED,
             "index %lld is out of range for %lld elements", (long long)*index, (long long)length);
    *index += *index < 0 ? length : 0;
    return RG_OK;
}

/* One slice where indices are evenly apart. */
static rg_status pick_evenly(rg_import *m, const rg_array *indices, int32_t axis, int64_t length,
                             rg_flow *x, bool *done)
{
    int64_t first = 0, step = 1, index = 0;
    rg_flow y;
    *done = indices->count > 0;
    for (int64_t i = 0; i < indices->count && *done; i++) {
        RG_TRY(read_indices(indices, length, i, &index));
        first = i == 0 ? index : first;
        step = i == 1 ? index - first : step;
        *done &= index == first + i * step && step >= 1;
    }
    if (!*done)
        return RG_OK;
    RG_TRY(rg_flow_cut(m, x, axis, first, indices->count, step, &y));
    *x = y;
    return RG_OK;
}

rg_status rg_flow_pick(rg_import *m, const rg_array *indices, int32_t axis, int64_t length,
                       rg_flow *x)
{
    rg_flow parts[RG_MOST_SOURCES], y;
    int32_t count = 0;
    for (int64_t i = 0; i < indices->count; i++) {
        int64_t index = 0;
        if (count == RG_MOST_SOURCES) {
            RG_TRY(rg_flow_concat(m, parts, count, axis, &y));
            parts[0] = y;
            count = 1;
        }
        RG_TRY(read_indices(indices, length, i, &index));
        RG_TRY(rg_flow_cut(m, x, axis, index, 1, 1, &parts[count++]));
    }
    RG_TRY(rg_flow_concat(m, parts, count, axis, &y));
    *x = y;
    return RG_OK;
}

/* Rows `first` to `last` - 1 of those that are picked from a matrix (v, c): the product of a matrix
 * of ones and zeros, (k, v), with it. */
static rg_status pick_some_rows(rg_import *m, const rg_array *indices, int64_t first, int64_t last,
                                const rg_flow *x, rg_flow *y)
{
    rg_dense_desc desc = rg_dense_desc_default();
    rg_array *ones = NULL;
    rg_flow picks;
    const int64_t length = x->shape[0].dims[0], dims[] = { last - first, length };
    RG_TRY(rg_arena_take(&m->network->arena, 1, sizeof *ones, &ones));
    RG_TRY(rg_array_create(m, rg_onnx_type_of(x->shape[0].dtype), 2, dims, false, ones));
    for (int64_t i = first; i < last; i++) {
        int64_t index = 0;
        RG_TRY(read_indices(indices, length, i, &index));
        ones->data[(i - first) * length + index].f = 1;
    }
    RG_TRY(rg_import_constant(m, ones, (const int32_t[]){ 0, 1 }, &picks));
    const rg_flow *inputs[] = { &picks, x };
    desc.layout = RG_DENSE_IN_OUT;
    desc.bias = false;
    RG_TRY(rg_import_apply(m, "dense", &desc, inputs, 2, y, 1));
    rg_flow_plain_order(y);
    return RG_OK;
}

/* In pieces, as constants have a length that is folded at most. */
static rg_status pick_rows(rg_import *m, const rg_array *indices, int64_t length, rg_flow *x)
{
    const int64_t piece = MOST_PICKS / length;
    rg_flow parts[RG_MOST_SOURCES], y;
    int32_t count = 0;
    for (int64_t first = 0; first < indices->count; first += piece) {
        const int64_t end = first + piece, last = end < indices->count ? end : indices->count;
        if (count == RG_MOST_SOURCES) {
            RG_TRY(rg_flow_concat(m, parts, count, 0, &y));
            parts[0] = y;
            count = 1;
        }
        RG_TRY(pick_some_rows(m, indices, first, last, x, &parts[count++]));
    }
    RG_TRY(rg_flow_concat(m, parts, count, 0, &y));
    *x = y;
    return RG_OK;
}

/* The dimension that was picked from gets the dimensions of the indices. */
static rg_status shape_picked(rg_import *m, const rg_array *indices, int32_t axis, rg_flow *x)
{
    bool dropped[RG_MAX_RANK] = { false };
    int64_t dims[RG_PROBES][RG_MAX_RANK], file[RG_MAX_RANK];
    const int32_t rank = rg_flow_rank(x) + indices->rank - 1;
    int32_t plain[RG_MAX_RANK];
    if (indices->rank == 1)
        return RG_OK;
    if (indices->rank == 0) {
        dropped[axis] = true;
        return rg_flow_drop(m, x, dropped);
    }
    RG_CHECK(rank <= RG_MAX_RANK, RG_UNSUPPORTED, "the result has %d dimensions", rank);
    for (int32_t d = 0; d < rg_flow_rank(x); d++)
        plain[d] = d;
    RG_TRY(rg_flow_reorder(m, x, plain));
    for (int32_t p = 0; p < RG_PROBES; p++) {
        rg_flow_dims(x, p, file);
        for (int32_t d = 0; d < rank; d++)
            dims[p][d] = d < axis                   ? file[d]
                         : d < axis + indices->rank ? indices->dims[d - axis]
                                                    : file[d - indices->rank + 1];
    }
    return rg_flow_reshape(m, x, rank, dims);
}

/* All elements of a vector in their order, whose number depends on the batch: other dimensions. */
static rg_status pick_all(rg_import *m, const rg_proto_node *node, const rg_known *source,
                          const rg_known *known, bool *done)
{
    const rg_array *indices[RG_PROBES];
    int64_t dims[RG_PROBES][RG_MAX_RANK];
    rg_flow x;
    if (source->shape[0].rank != 1 || known->shape[0].rank != known->shape[1].rank)
        return RG_OK;
    for (int32_t p = 0; p < RG_PROBES; p++) {
        RG_TRY(rg_known_array(m, known, p, &indices[p]));
        if (indices[p]->count != source->shape[p].dims[0])
            return RG_OK;
        for (int64_t i = 0; i < indices[p]->count; i++) {
            if (rg_array_at(indices[p], i).i != i)
                return RG_OK;
        }
        memcpy(dims[p], indices[p]->dims, sizeof dims[p]);
    }
    *done = true;
    RG_TRY(rg_import_plain(m, node, 0, &x));
    RG_TRY(rg_flow_reshape(m, &x, indices[0]->rank, dims));
    return rg_import_define(m, node, 0, &x);
}

/* Elements along a dimension of the file, by constant indices. */
static rg_status pick(rg_import *m, const rg_proto_node *node, const rg_known *source,
                      const rg_array *indices, int32_t along)
{
    const int64_t length = source->shape[0].dims[along];
    rg_flow x;
    bool done = false;
    RG_CHECK(length == source->shape[1].dims[along], RG_UNSUPPORTED,
             "picking from a dimension that depends on the size of the batch is not covered");
    if (along == 0 && source->shape[0].rank == 2)
        RG_TRY(rg_import_plain(m, node, 0, &x));
    else
        RG_TRY(rg_import_any(m, node, 0, &x));
    RG_TRY(pick_evenly(m, indices, along, length, &x, &done));
    if (!done && indices->count > 0 && indices->count <= MOST_SLICES) {
        RG_TRY(rg_flow_pick(m, indices, along, length, &x));
        done = true;
    }
    if (!done && along == 0 && rg_flow_rank(&x) == 2 && indices->count > 0 && length > 0 &&
        length <= MOST_PICKS) {
        RG_TRY(pick_rows(m, indices, length, &x));
        done = true;
    }
    RG_CHECK(done, RG_UNSUPPORTED, "%lld indices along dimension %d are not covered",
             (long long)indices->count, along);
    RG_TRY(shape_picked(m, indices, along, &x));
    return rg_import_define(m, node, 0, &x);
}

rg_status rg_convert_gather(rg_import *m, const rg_proto_node *node)
{
    int64_t axis = 0;
    int32_t along;
    rg_known *known = NULL, *source = NULL;
    const rg_array *indices = NULL;
    bool done = false;
    RG_TRY(rg_attribute_int(node, "axis", &axis));
    RG_TRY(rg_import_known(m, node, 0, &source));
    RG_TRY(rg_import_known(m, node, 1, &known));
    RG_CHECK(rg_type_is_integer(known->type), RG_MALFORMED, "input 1 does not hold integers");
    if (rg_known_is_constant(known) && known->array[0] != known->array[1])
        RG_TRY(pick_all(m, node, source, known, &done));
    if (done)
        return RG_OK;
    RG_CHECK(rg_known_is_constant(known) && known->array[0] == known->array[1], RG_UNSUPPORTED,
             "indices that are computed are not covered");
    RG_TRY(rg_known_array(m, known, 0, &indices));
    RG_TRY(rg_axis("attribute 'axis'", axis, source->shape[0].rank, &along));
    RG_TRY(rg_import_open_gather(m, node, indices, &done));
    return done ? RG_OK : pick(m, node, source, indices, along);
}

/* Indices of one number each: along the first dimension. */
rg_status rg_convert_gather_nd(rg_import *m, const rg_proto_node *node)
{
    int64_t batch = 0;
    rg_known *known = NULL, *source = NULL;
    const rg_array *indices = NULL;
    RG_TRY(rg_attribute_int(node, "batch_dims", &batch));
    RG_CHECK(batch == 0, RG_UNSUPPORTED, "attribute 'batch_dims' is %lld; 0 is covered",
             (long long)batch);
    RG_TRY(rg_import_known(m, node, 0, &source));
    RG_TRY(rg_import_known(m, node, 1, &known));
    RG_CHECK(rg_type_is_integer(known->type), RG_MALFORMED, "input 1 does not hold integers");
    RG_CHECK(rg_known_is_constant(known) && known->array[0] == known->array[1], RG_UNSUPPORTED,
             "indices that are computed are not covered");
    RG_TRY(rg_known_array(m, known, 0, &indices));
    RG_CHECK(indices->rank >= 1 && source->shape[0].rank >= 1, RG_MALFORMED,
             "an input has no dimensions");
    RG_CHECK(indices->dims[indices->rank - 1] == 1, RG_UNSUPPORTED,
             "indices of %lld numbers each are not covered",
             (long long)indices->dims[indices->rank - 1]);
    rg_array rows = *indices;
    rows.rank--;
    return pick(m, node, source, &rows, 0);
}

/* ---- blocks of pixels ---- */

/* Reshapes, permutes and reshapes again, in the order of the file. */
static rg_status permute(rg_import *m, rg_flow *x, int32_t rank,
                         int64_t dims[RG_PROBES][RG_MAX_RANK], const int32_t order[])
{
    int32_t plain[RG_MAX_RANK] = { 0, 1, 2, 3, 4, 5, 6, 7 };
    RG_TRY(rg_flow_reorder(m, x, plain));
    RG_TRY(rg_flow_reshape(m, x, rank, dims));
    RG_TRY(rg_flow_reorder(m, x, order));
    rg_flow_plain_order(x);
    return RG_OK;
}

/* (n, c, h, w) to (n, c / b^2, h b, w b), or back. */
rg_status rg_convert_depth_to_space(rg_import *m, const rg_proto_node *node)
{
    static const int32_t orders[4][6] = { { 0, 3, 4, 1, 5, 2 },   /* DCR: (n, b, b, c', h, w) */
                                          { 0, 1, 4, 2, 5, 3 },   /* CRD: (n, c', b, b, h, w) */
                                          { 0, 3, 5, 1, 2, 4 },   /* back: (n, c, h, b, w, b) */
                                          { 0, 1, 3, 5, 2, 4 } }; /* back, CRD */
    const bool back = node->type[0] == 'S';
    const char *mode = "DCR";
    int64_t dims[RG_PROBES][RG_MAX_RANK], end[RG_PROBES][RG_MAX_RANK], block = 0;
    rg_flow x;
    RG_TRY(rg_attribute_text(node, "mode", &mode));
    RG_TRY(rg_attribute_int(node, "blocksize", &block));
    RG_CHECK(strcmp(mode, "DCR") == 0 || strcmp(mode, "CRD") == 0, RG_UNSUPPORTED,
             "mode '%.40s' is not covered", mode);
    RG_TRY(rg_import_any(m, node, 0, &x));
    RG_CHECK(rg_flow_rank(&x) == 4, RG_MALFORMED, "it has %d dimensions in place of 4",
             rg_flow_rank(&x));
    const bool crd = mode[0] == 'C';
    for (int32_t p = 0; p < RG_PROBES; p++) {
        int64_t file[RG_MAX_RANK];
        rg_flow_dims(&x, p, file);
        const int64_t n = file[0], c = file[1], h = file[2], w = file[3];
        int64_t most; /* of the products below */
        RG_CHECK(block >= 1 && block <= 1 << 20 &&
                     (back ? h % block == 0 && w % block == 0 : c % (block * block) == 0) &&
                     !__builtin_mul_overflow(back    ? c
                                             : h > w ? h
                                                     : w,
                                             back ? block * block : block, &most),
                 RG_MALFORMED, "attribute 'blocksize' is %lld for %lld channels of %lld x %lld",
                 (long long)block, (long long)c, (long long)h, (long long)w);
        const int64_t from[3][6] = { { n, block, block, c / block / block, h, w },
                                     { n, c / block / block, block, block, h, w },
                                     { n, c, h / block, block, w / block, block } };
        const int64_t to[2][4] = { { n, c / block / block, h * block, w * block },
                                   { n, c * block * block, h / block, w / block } };
        memcpy(dims[p], from[back ? 2 : crd], sizeof from[0]);
        memcpy(end[p], to[back], sizeof to[0]);
    }
    RG_TRY(permute(m, &x, 6, dims, orders[2 * back + crd]));
    RG_TRY(rg_flow_reshape(m, &x, 4, end));
    return rg_import_define(m, node, 0, &x);
}
