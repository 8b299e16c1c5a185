/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* A node of ONNX becomes a call of an op: its tensors and layouts from the table, its descriptor
 * from a converter. */
#include "operators/onnx.h"
#include "core/private_api.h"
#include "operators/onnx_converters.h"

#include <stdio.h>

/* ---- tensors ---- */

static bool find_name(const char *const names[], int32_t count, const char *name, int32_t *index)
{
    for (*index = 0; *index < count; (*index)++) {
        if (strcmp(names[*index], name) == 0)
            return true;
    }
    return false;
}

/* The role of the op's tensor `own`; none where the descriptor has no such tensor. */
static void find_role(const rg_onnx_operator *entry, const void *desc, const char *own,
                      rg_onnx_tensor *t)
{
    const rg_op *op = entry->op;
    const char *const *x = rg_op_input_names(op, desc), *const *y = rg_op_output_names(op, desc);
    const int32_t inputs = rg_op_inputs(op, desc), outputs = rg_op_outputs(op, desc);
    const bool is_gradient = own[0] == 'd' && entry->gradient;
    if (is_gradient && find_name(y, outputs, own + 1, &t->index))
        t->role = RG_ROLE_DY;
    else if (is_gradient && find_name(x, inputs, own + 1, &t->index))
        t->role = RG_ROLE_DX;
    else if (find_name(x, inputs, own, &t->index))
        t->role = RG_ROLE_X;
    else if (find_name(y, outputs, own, &t->index))
        t->role = RG_ROLE_Y;
    else
        t->index = -1;
}

static rg_onnx_layout layout_of(const char *text)
{
    return strncmp(text, "@image", 6) == 0  ? RG_ONNX_IMAGE
           : strncmp(text, "@last", 5) == 0 ? RG_ONNX_LAST
                                            : RG_ONNX_SAME;
}

/* One word of the table: NAME[=own][@layout][?], NAME# or NAME[=own]*. */
static int32_t take_word(const rg_onnx_operator *entry, const void *desc, const char *word,
                         size_t size, rg_onnx_tensor tensors[], int32_t left)
{
    const size_t name = strcspn(word, "=@?#* ");
    size_t end = name;
    char own[RG_ONNX_NAME] = "";
    if (word[end] == '=') {
        const size_t length = strcspn(word + end + 1, "@?#* ");
        snprintf(own, sizeof own, "%.*s", (int)length, word + end + 1);
        end += 1 + length;
    }
    const char mark = word[size - 1];
    const int32_t copies = mark == '*' ? left : 1;
    for (int32_t i = 0; i < copies && i < left; i++) {
        rg_onnx_tensor *t = &tensors[i];
        *t = (rg_onnx_tensor){ .layout = mark == '#' ? RG_ONNX_NUMBERS : layout_of(word + end),
                               .index = -1,
                               .optional = mark == '?' || mark == '#' || i > 0 };
        char numbered[RG_ONNX_NAME];
        snprintf(t->name, sizeof t->name, "%.*s", (int)name, word);
        snprintf(numbered, sizeof numbered, "%.16s%d", own, i);
        if (copies > 1)
            snprintf(t->name, sizeof t->name, "%.*s%d", (int)name, word, i);
        if (own[0] != 0)
            find_role(entry, desc, copies > 1 ? numbered : own, t);
    }
    return copies;
}

RG_PRIVATE_API int32_t rg_onnx_tensors(const rg_onnx_operator *entry, const void *desc,
                                       const char *text, rg_onnx_tensor tensors[RG_ONNX_TENSORS])
{
    int32_t count = 0;
    for (const char *at = text; *at != 0 && count < RG_ONNX_TENSORS; at += strspn(at, " ")) {
        const size_t size = strcspn(at, " ");
        count += take_word(entry, desc, at, size, tensors + count, RG_ONNX_TENSORS - count);
        at += size;
    }
    return count;
}

/* The tensors as the final descriptor has them; layouts that the converter has set stay. */
static void find_roles(const rg_onnx_operator *entry, rg_onnx_call *call)
{
    rg_onnx_tensor again[RG_ONNX_TENSORS];
    rg_onnx_tensors(entry, call->desc, entry->inputs, again);
    for (int32_t i = 0; i < call->input_count; i++) {
        call->inputs[i].role = again[i].role;
        call->inputs[i].index = again[i].index;
    }
    rg_onnx_tensors(entry, call->desc, entry->outputs, again);
    for (int32_t i = 0; i < call->output_count; i++) {
        call->outputs[i].role = again[i].role;
        call->outputs[i].index = again[i].index;
    }
}

/* ---- conversion ---- */

static rg_status check_required(const rg_onnx_node *node)
{
    rg_onnx_spec spec;
    for (const char *at = node->entry->attributes; rg_onnx_next_spec(&at, &spec);)
        RG_CHECK(!spec.required || rg_onnx_given(node, spec.name), RG_INVALID_ARGUMENT,
                 "%s: the attribute %s is required", node->type, spec.name);
    return RG_OK;
}

static rg_status unknown(const char *type)
{
    rg_similar similar = rg_similar_begin(type);
    for (const rg_onnx_operator *entry = rg_onnx_operators; entry->name != NULL; entry++)
        rg_similar_try(&similar, entry->name);
    char text[RG_SIMILAR_TEXT];
    return rg_fail(RG_UNSUPPORTED, "'%s' is not a supported operator of ONNX%s", type,
                   rg_similar_text(&similar, text));
}

rg_status rg_onnx_begin(rg_onnx_node *node, rg_onnx_call *call)
{
    if (node->entry == NULL)
        node->entry = rg_onnx_find(node->type);
    if (node->entry == NULL)
        return unknown(node->type);
    const rg_onnx_operator *entry = node->entry;
    *call = (rg_onnx_call){ .op = entry->op, .gradient = entry->gradient };
    memcpy(call->desc, entry->op->desc.defaults, entry->op->desc.size);
    RG_TRY(rg_fields_parse(&entry->op->desc, entry->name, call->desc, entry->fields));
    call->input_count = rg_onnx_tensors(entry, call->desc, entry->inputs, call->inputs);
    call->output_count = rg_onnx_tensors(entry, call->desc, entry->outputs, call->outputs);
    RG_TRY(rg_onnx_check(entry, node->attributes, node->attribute_count));
    return check_required(node);
}

rg_status rg_onnx_finish(const rg_onnx_node *node, rg_onnx_call *call,
                         rg_status (*convert)(const rg_onnx_node *node, rg_onnx_call *call))
{
    if (convert != NULL)
        RG_TRY(convert(node, call));
    find_roles(node->entry, call);
    return RG_OK;
}

RG_PRIVATE_API rg_status rg_onnx_convert(const rg_onnx_node *node, rg_onnx_call *call)
{
    rg_onnx_node found = *node;
    RG_TRY(rg_onnx_begin(&found, call));
    return rg_onnx_finish(&found, call, found.entry->convert);
}

/* ---- layouts ---- */

RG_PRIVATE_API rg_status rg_onnx_shape(const rg_tensor_desc *from, rg_onnx_layout layout,
                                       int64_t axis, rg_tensor_desc *to)
{
    int64_t dims[RG_MAX_RANK], rows = 1, columns = 1;
    int32_t rank = from->rank;
    for (int32_t d = 0; d < rank; d++) {
        rows *= layout == RG_ONNX_ROWS && d < axis ? from->dims[d] : 1;
        columns *= layout == RG_ONNX_ROWS && d < axis ? 1 : from->dims[d];
        dims[d] = from->dims[d];
    }
    if (layout == RG_ONNX_ROWS || layout == RG_ONNX_FLAT) {
        rank = layout == RG_ONNX_ROWS ? 2 : 1;
        dims[0] = layout == RG_ONNX_ROWS ? rows : columns;
        dims[1] = columns;
    } else if (layout == RG_ONNX_TRANSPOSED) {
        RG_CHECK(rank == 2, RG_INVALID_ARGUMENT, "a matrix has rank 2, not %d", rank);
        dims[0] = from->dims[1];
        dims[1] = from->dims[0];
    } else if ((layout == RG_ONNX_LAST || layout == RG_ONNX_IMAGE) && rank > 2) {
        const bool wider = rank == 3 && layout == RG_ONNX_IMAGE;
        for (int32_t d = 2; d < rank; d++)
            dims[d - 1 + wider] = from->dims[d];
        if (wider)
            dims[1] = 1;
        rank += wider;
        dims[rank - 1] = from->dims[1];
    }
    *to = rg_tensor_desc_dense(from->dtype, rank, dims);
    return RG_OK;
}
