/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The tables made from ops.def: the list of ops, and the kernels of each on every instruction set.
 */
#include "ops/ops.h"
#include "backend/kernel_lists.h"
#include "core/private_api.h"
#include "ops/op_tables.h" /* made by cmake/ops.cmake */

#include <assert.h>
#include <stdio.h>

#define RG_OP(op) RG_KERNELS_DEFINE(op)
#include "ops/ops.def"
#undef RG_OP

const rg_op *const rg_ops[] = {
#define RG_OP(op) &rg_op_##op,
#include "ops/ops.def"
#undef RG_OP
    NULL
};

RG_PRIVATE_API rg_status rg_op_find(const char *text, const rg_op **op, const rg_op_name **name)
{
    for (int i = 0; rg_ops[i] != NULL; i++) {
        *op = rg_ops[i];
        *name = NULL;
        if (strcmp(text, rg_ops[i]->name) == 0)
            return RG_OK;
        for (*name = rg_ops[i]->names; *name != NULL && (*name)->name != NULL; (*name)++) {
            if (strcmp(text, (*name)->name) == 0)
                return RG_OK;
        }
    }
    *op = NULL;
    *name = NULL;
    return rg_fail(RG_INVALID_ARGUMENT, "unknown op '%s'", text);
}

/* ---- names ---- */

/* The next "field=other" of a list; false at its end. */
static bool next_pair(const char **at, char field[32], char other[32])
{
    *at += strspn(*at, " ");
    const int length = (int)strcspn(*at, "="), size = (int)strcspn(*at, " ");
    if (size == 0)
        return false;
    snprintf(field, 32, "%.*s", length, *at);
    snprintf(other, 32, "%.*s", size - length - 1, *at + length + 1);
    *at += size;
    return true;
}

RG_PRIVATE_API uint32_t rg_op_name_bit(const rg_op_name *name, const char *field)
{
    char target[32], other[32];
    uint32_t bit = 1;
    const char *at = name != NULL && name->follows != NULL ? name->follows : "";
    for (; next_pair(&at, target, other); bit <<= 1) {
        if (strcmp(target, field) == 0)
            return bit;
    }
    return 0;
}

static const rg_field *find_field(const rg_op *op, const char *name)
{
    const rg_field *field = op->desc.fields;
    while (strcmp(field->name, name) != 0)
        field++;
    return field;
}

RG_PRIVATE_API void rg_op_name_follow(const rg_op *op, const rg_op_name *name, uint32_t set,
                                      void *desc)
{
    char target[32], other[32];
    uint32_t bit = 1;
    const char *at = name != NULL && name->follows != NULL ? name->follows : "";
    for (; next_pair(&at, target, other); bit <<= 1) {
        const rg_field *to = find_field(op, target), *from = find_field(op, other);
        assert(to->type == RG_FIELD_I32 && from->type == RG_FIELD_I32 &&
               to->length == from->length);
        if (!(set & bit))
            memcpy((char *)desc + to->offset, (char *)desc + from->offset,
                   (size_t)to->length * sizeof(int32_t));
    }
}

/* Whether a descriptor has the fields that a name presets. */
static bool has_fields(const rg_op *op, const rg_op_name *name, const void *desc)
{
    _Alignas(16) char preset[RG_MAX_DESC];
    memcpy(preset, desc, op->desc.size);
    return rg_fields_parse(&op->desc, name->name, preset, name->fields) == RG_OK &&
           rg_fields_equal(&op->desc, preset, desc);
}

/* Whether two names are typed with tensors of the same names. */
static bool types_alike(const rg_op_name *a, const rg_op_name *b)
{
    char one[32], other[32], own[32];
    const char *x = a->tensors, *y = b->tensors;
    bool more = true;
    while (more) {
        more = next_pair(&x, one, own);
        if (more != next_pair(&y, other, own) || (more && strcmp(one, other) != 0))
            return false;
    }
    return true;
}

RG_PRIVATE_API const char *rg_op_name_tensors(const rg_op *op, const rg_op_name *name,
                                              const void *desc)
{
    if (name == NULL || has_fields(op, name, desc))
        return name != NULL ? name->tensors : "";
    for (const rg_op_name *other = op->names; other->name != NULL; other++) {
        if (other->gradient == name->gradient && types_alike(name, other) &&
            has_fields(op, other, desc))
            return other->tensors;
    }
    return name->tensors;
}
