/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Calls of ops written as text, for tests of many ops in one table. */
#ifndef RG_TESTS_TEXT_CALL_H
#define RG_TESTS_TEXT_CALL_H

#include "api.h"

#include "ops/ops.h"
#include "runtime/objects.h"

/* Shapes as text: "2,3 i64:-" is f32[2, 3] and an i64 of rank 0. */
typedef struct line {
    const char *op, *fields, *shapes;
    const char *words; /* of the sentence */
} line;

typedef struct spec {
    _Alignas(16) char desc[RG_MAX_DESC];
    const rg_op *op;
    rg_tensor_desc x[RG_MAX_INPUTS];
    int32_t inputs;
} spec;

/* Fails as parsing or rg_kernel_create does. */
rg_status make(const line *from, rg_device *device, spec *recipe, rg_kernel **kernel);

bool has_sentence(void);

#endif
