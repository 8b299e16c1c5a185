/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* All ops, from ops.def. */
#ifndef RG_OPS_OPS_H
#define RG_OPS_OPS_H

#include "runtime/op.h"

#define RG_OP(name)                  \
    extern const rg_op rg_op_##name; \
    extern const rg_kernel_table rg_kernels_##name;
#include "ops/ops.def"
#undef RG_OP

/* Defines rg_op_<op> with its name and its kernels. */
#define RG_OP_DEFINE(op, ...) \
    const rg_op rg_op_##op = { .name = #op, .kernels = &rg_kernels_##op, __VA_ARGS__ }

/* The ops in the order of ops.def, NULL at the end. */
extern const rg_op *const rg_ops[];

/* Finds an op by its own name, or by a name of MPS or ONNX; then *name is that entry, otherwise
 * NULL. */
rg_status rg_op_find(const char *text, const rg_op **op, const rg_op_name **name);

/* Fields that follow others by this name: the bit of the one called `field`, 0 for others; and sets
 * those in a descriptor whose bits are not in `set`. */
uint32_t rg_op_name_bit(const rg_op_name *name, const char *field);
void rg_op_name_follow(const rg_op *op, const rg_op_name *name, uint32_t set, void *desc);

/* The tensors of a name with a descriptor: where the preset fields were changed, those of the name
 * that has these fields; `name` may be NULL. "" where it has none. */
const char *rg_op_name_tensors(const rg_op *op, const rg_op_name *name, const void *desc);

#endif
