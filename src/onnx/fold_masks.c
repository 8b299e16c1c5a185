/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Folding of operators that make masks and lists of indices: Trilu, ScatterND, NonZero. */
#include "onnx/import.h"

#include <string.h>

/* The upper or lower triangle of matrices. */
rg_status rg_fold_trilu(rg_import *m, const rg_proto_node *node, const rg_array *const x[],
                        rg_array *y)
{
    bool upper = true;
    RG_TRY(rg_attribute_bool(node, "upper", &upper));
    const rg_array *k = node->input_count > 1 ? x[1] : NULL;
    RG_CHECK(x[0]->rank >= 2 && (k == NULL || (k->count == 1 && rg_type_is_integer(k->type))),
             RG_MALFORMED, "its inputs are not matrices and an integer");
    const int64_t diagonal = k != NULL ? rg_array_at(k, 0).i : 0;
    const int64_t columns = x[0]->dims[x[0]->rank - 1], rows = x[0]->dims[x[0]->rank - 2];
    RG_TRY(rg_array_create(m, x[0]->type, x[0]->rank, x[0]->dims, false, y));
    for (int64_t i = 0; i < y->count; i++) {
        const int64_t off = i % columns - i / columns % rows;
        if (upper ? off >= diagonal : off <= diagonal)
            y->data[i] = rg_array_at(x[0], i);
    }
    return RG_OK;
}

/* ScatterND: parts of x[0] at indices x[1] are x[2]. */
rg_status rg_fold_scatter(rg_import *m, const rg_proto_node *node, const rg_array *const x[],
                          rg_array *y)
{
    const char *reduction = "none";
    RG_TRY(rg_attribute_text(node, "reduction", &reduction));
    RG_CHECK(x[1] != NULL && x[2] != NULL && x[1]->rank > 0 && rg_type_is_integer(x[1]->type) &&
                 x[2]->type == x[0]->type,
             RG_MALFORMED, "its inputs do not fit together");
    const int64_t depth = x[1]->dims[x[1]->rank - 1];
    RG_CHECK(strcmp(reduction, "none") == 0 && depth >= 1 && depth <= x[0]->rank, RG_UNSUPPORTED,
             "reduction '%.40s' of indices of length %lld is not folded", reduction,
             (long long)depth);
    int64_t part = 1;
    for (int32_t d = (int32_t)depth; d < x[0]->rank; d++)
        part *= x[0]->dims[d];
    const int64_t count = x[1]->count / depth;
    int64_t updates = 0;
    RG_CHECK(count <= 1 << 20 && !__builtin_mul_overflow(count, part, &updates), RG_UNSUPPORTED,
             "%lld parts are not folded", (long long)count);
    RG_CHECK(x[2]->count == updates, RG_MALFORMED, "it has %lld updates in place of %lld",
             (long long)x[2]->count, (long long)updates);
    RG_TRY(rg_array_create(m, x[0]->type, x[0]->rank, x[0]->dims, false, y));
    for (int64_t i = 0; i < y->count; i++)
        y->data[i] = rg_array_at(x[0], i);
    for (int64_t i = 0; i < count; i++) {
        int64_t at = 0;
        for (int64_t d = 0; d < depth; d++) {
            const int64_t index = rg_array_at(x[1], i * depth + d).i, length = x[0]->dims[d];
            RG_CHECK(index >= -length && index < length, RG_MALFORMED,
                     "index %lld is out of range for %lld elements", (long long)index,
                     (long long)length);
            at = at * length + index + (index < 0 ? length : 0);
        }
        for (int64_t k = 0; k < part; k++)
            y->data[at * part + k] = rg_array_at(x[2], i * part + k);
    }
    return RG_OK;
}

/* NonZero: the indices of elements that are not 0, one row per dimension. */
rg_status rg_fold_non_zero(rg_import *m, const rg_proto_node *node, const rg_array *const x[],
                           rg_array *y)
{
    (void)node;
    const bool integer = rg_type_is_integer(x[0]->type);
    int64_t dims[2] = { x[0]->rank, 0 }, found = 0;
    RG_CHECK(x[0]->count <= 1 << 16, RG_UNSUPPORTED, "%lld elements are not folded",
             (long long)x[0]->count);
    for (int32_t pass = 0; pass < 2; pass++) {
        found = 0;
        for (int64_t i = 0; i < x[0]->count; i++) {
            const rg_element e = rg_array_at(x[0], i);
            if (integer ? e.i == 0 : e.f == 0)
                continue;
            int64_t rest = i;
            for (int32_t d = x[0]->rank - 1; d >= 0 && pass > 0; d--) {
                y->data[d * dims[1] + found].i = rest % x[0]->dims[d];
                rest /= x[0]->dims[d];
            }
            found++;
        }
        dims[1] = found;
        if (pass == 0)
            RG_TRY(rg_array_create(m, RG_ONNX_INT64, 2, dims, false, y));
    }
    return RG_OK;
}
