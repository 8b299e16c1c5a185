/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The tables made from ops.def: the list of ops, and the kernels of each on every instruction set.
 */
#include "ops/ops.h"
#include "backend/kernel_lists.h"
#include "core/private_api.h"
#include "ops/op_tables.h" /* made by cmake/ops.cmake */

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
