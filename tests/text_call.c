/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Calls of ops from text: see text_call.h. */
#include "tests/text_call.h"

static rg_tensor_desc parse_shape(const char **at)
{
    rg_dtype dtype = RG_F32;
    int64_t dims[RG_MAX_RANK + 1];
    int32_t rank = 0;
    const size_t named = strcspn(*at, ": ");
    if ((*at)[named] == ':') {
        char name[8] = { 0 };
        memcpy(name, *at, named < 7 ? named : 7);
        EXPECT_OK(rg_dtype_parse(name, &dtype));
        *at += named + 1;
    }
    const bool scalar = **at == '-' && ((*at)[1] == ' ' || (*at)[1] == 0);
    for (char *end; !scalar && rank <= RG_MAX_RANK; *at = end + 1) {
        dims[rank++] = strtoll(*at, &end, 10);
        if (*end != ',') {
            *at = end;
            break;
        }
    }
    *at += scalar;
    *at += strspn(*at, " ");
    return rg_tensor_desc_dense(dtype, rank, dims);
}

rg_status make(const line *from, rg_device *device, spec *recipe, rg_kernel **kernel)
{
    const rg_op_name *name;
    *kernel = NULL;
    memset(recipe, 0, sizeof *recipe);
    EXPECT_OK(rg_op_find(from->op, &recipe->op, &name));
    const rg_op *op = recipe->op;
    memcpy(recipe->desc, op->desc.defaults, op->desc.size);
    for (const char *at = from->shapes; *at != 0 && recipe->inputs < RG_MAX_INPUTS;)
        recipe->x[recipe->inputs++] = parse_shape(&at);
    const rg_status status = rg_fields_parse(&op->desc, op->name, recipe->desc, from->fields);
    return status != RG_OK ? status : rg_kernel_create(device, op, recipe->desc, kernel);
}

bool has_sentence(void)
{
    const char *text = rg_error_text();
    return strlen(text) > 10 && strchr(text, ' ') != NULL;
}
