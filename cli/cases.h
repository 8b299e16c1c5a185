/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Prepared cases: descriptor, shapes, values, and the results of the definition in double. */
#ifndef RG_CLI_CASES_H
#define RG_CLI_CASES_H

#include "ops/optest.h"

/* The tests of all ops in the order of ops.def, NULL at the end. */
extern const rg_op_test *const rg_op_tests[];

/* Finds an op's test by the op's name; NULL if there is none. */
const rg_op_test *rg_op_test_find(const char *name);
/* The test of argument i of `count` names, of all ops if there are no names; NULL past the last. */
const rg_op_test *rg_op_test_at(int count, char **names, int i);

/* The descriptor of a case, in RG_MAX_DESC bytes; dense shapes of its inputs. */
rg_status rg_case_desc(const rg_op *op, const rg_case *c, void *desc);
rg_status rg_case_shapes(const rg_case *c, rg_dtype dtype, rg_tensor_desc x[], int32_t *inputs);

/* Runs what was recorded into `commands`, if recording ended with `status` RG_OK, and destroys
 * them. Returns the first failure. */
rg_status rg_commands_finish(rg_commands *commands, rg_status status);

/* The values of one case in one dtype: inputs as the dtype rounds them, results in double. */
typedef struct rg_values {
    const rg_op_test *test;
    const rg_case *c;
    _Alignas(16) char desc[RG_MAX_DESC];
    rg_dtype dtype;
    int32_t inputs, outputs;
    rg_tensor_desc x_desc[RG_MAX_INPUTS], y_desc[RG_MAX_OUTPUTS];
    double *x[RG_MAX_INPUTS], *y[RG_MAX_OUTPUTS]; /* y: what the gradient is given */
    double *dy[RG_MAX_OUTPUTS];
    double *want_y[RG_MAX_OUTPUTS];
    double *want_dx[RG_MAX_INPUTS]; /* NULL for inputs that have no gradient */
    /* Bit i: y[i], or dx[i], follows from the inputs too badly to be compared; its bits still are
     * the same everywhere. */
    uint32_t unsure_y, unsure_dx;
} rg_values;

/* With `expanded` every input is the same along dimension 0. Release with rg_values_free, also
 * after a failure. */
rg_status rg_values_make(const rg_op_test *test, const rg_case *c, rg_dtype dtype, uint64_t seed,
                         bool expanded, rg_values *values);
void rg_values_free(rg_values *values);

#endif
