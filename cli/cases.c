/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Preparing cases. */
#include "cli/cases.h"
#include "core/shape.h"

#include <math.h>
#include <stdlib.h>

const rg_op_test *const rg_op_tests[] = {
#define RG_OP(op) &rg_op_test_##op,
#include "ops/ops.def"
#undef RG_OP
    NULL
};

const rg_op_test *rg_op_test_find(const char *name)
{
    for (int i = 0; rg_op_tests[i] != NULL; i++) {
        if (strcmp(rg_op_tests[i]->op->name, name) == 0)
            return rg_op_tests[i];
    }
    return NULL;
}

const rg_op_test *rg_op_test_at(int count, char **names, int i)
{
    return count == 0 ? rg_op_tests[i] : i < count ? rg_op_test_find(names[i]) : NULL;
}

rg_status rg_case_desc(const rg_op *op, const rg_case *c, void *desc)
{
    memcpy(desc, op->desc.defaults, op->desc.size);
    return rg_fields_parse(&op->desc, op->name, desc, c->fields);
}

/* The dtype before a shape, "i64:-", or that of the case. "real" is what a kernel computes in:
 * f64 for f64, otherwise f32. */
static rg_status parse_dtype(const rg_case *c, const char **at, rg_dtype *dtype)
{
    const size_t length = strcspn(*at, ": ");
    char name[8] = { 0 };
    if ((*at)[length] != ':')
        return RG_OK;
    RG_CHECK(length < sizeof name, RG_INVALID_ARGUMENT, "case '%s': a shape has an unknown dtype",
             c->name);
    memcpy(name, *at, length);
    *at += length + 1;
    if (strcmp(name, "real") != 0)
        return rg_dtype_parse(name, dtype);
    *dtype = *dtype == RG_F64 ? RG_F64 : RG_F32;
    return RG_OK;
}

/* "2,3,4 i32:4": one shape after the other; "-" is rank 0. */
rg_status rg_case_shapes(const rg_case *c, rg_dtype dtype, rg_tensor_desc x[], int32_t *inputs)
{
    const char *at = c->x;
    for (*inputs = 0; *at != 0; (*inputs)++) {
        int64_t dims[RG_MAX_RANK];
        int32_t rank = 0;
        rg_dtype own = dtype;
        RG_TRY(parse_dtype(c, &at, &own));
        while (*at != 0 && *at != ' ') {
            char *end;
            RG_CHECK(rank < RG_MAX_RANK, RG_INVALID_ARGUMENT, "case '%s': more than 8 dimensions",
                     c->name);
            if (*at == '-')
                at++;
            else
                dims[rank++] = strtoll(at, &end, 10), at = end + (*end == ',');
        }
        RG_CHECK(*inputs < RG_MAX_INPUTS, RG_INVALID_ARGUMENT, "case '%s': too many inputs",
                 c->name);
        x[*inputs] = rg_tensor_desc_dense(own, rank, dims);
        at += strspn(at, " ");
    }
    return RG_OK;
}

rg_status rg_commands_finish(rg_commands *commands, rg_status status)
{
    if (status == RG_OK)
        status = rg_commands_commit(commands);
    if (status == RG_OK)
        status = rg_commands_wait(commands);
    rg_commands_destroy(commands);
    return status;
}

/* ---- random numbers (splitmix64) ---- */

rg_random rg_random_seed(uint64_t seed, const char *name)
{
    rg_random random = { seed * UINT64_C(0x9e3779b97f4a7c15) + 1 };
    for (; *name != 0; name++)
        random.state = (random.state ^ (unsigned char)*name) * UINT64_C(0x100000001b3);
    return random;
}

double rg_random_uniform(rg_random *random)
{
    uint64_t z = random->state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return (double)((z ^ z >> 31) >> 11) * 0x1p-53;
}

/* ---- values ---- */

static double *take(int64_t count)
{
    return calloc((size_t)(count > 0 ? count : 1), sizeof(double));
}

/* Every index along the dimensions in `repeat` becomes index 0. */
static void repeat_dims(double *data, const rg_tensor_desc *desc, uint32_t repeat)
{
    const int64_t count = rg_shape_count(desc);
    int64_t inner = 1;
    for (int32_t d = desc->rank - 1; d >= 0 && count > 0; d--) {
        for (int64_t i = 0; repeat >> d & 1 && i < count; i++) {
            const int64_t index = i / inner % desc->dims[d];
            data[i] = data[i - index * inner];
        }
        inner *= desc->dims[d];
    }
}

/* One number of a fill without a function. */
static double draw_one(const rg_fill *fill, rg_random *random)
{
    const bool plain = fill->low == 0 && fill->high == 0;
    const double low = plain ? -2 : fill->low, high = plain ? 2 : fill->high;
    double value = low + (high - low) * rg_random_uniform(random);
    if (fill->step > 0)
        value = fill->step * floor(value / fill->step);
    if (fill->spread > 0)
        value *= pow(10, fill->spread * (2 * rg_random_uniform(random) - 1));
    if (fill->special > 0 && rg_random_uniform(random) < fill->special) {
        const double inf = (double)INFINITY, values[] = { inf, -inf, (double)NAN, 0, -0.0 };
        value = values[(int)(rg_random_uniform(random) * 5)];
    }
    return value;
}

/* A number as the dtype holds it. */
static double round_to(rg_dtype dtype, double value)
{
    char element[8];
    rg_element_set(element, dtype, 0, value);
    return rg_element_get(element, dtype, 0);
}

static double *draw(const rg_tensor_desc *desc, const rg_fill *fill, rg_random *random,
                    bool expanded)
{
    const int64_t count = rg_shape_count(desc);
    double *data = take(count);
    for (int64_t i = 0; data != NULL && i < count; i++) {
        const double value = fill->at != NULL ? fill->at(i) : draw_one(fill, random);
        data[i] = round_to(desc->dtype, value);
    }
    const uint32_t repeat = fill->repeat | (expanded ? 1 : 0);
    if (data != NULL && repeat != 0)
        repeat_dims(data, desc, repeat);
    return data;
}

static rg_ref_tensor ref_of(const rg_tensor_desc *desc, double *data)
{
    rg_ref_tensor ref = { .rank = desc->rank, .data = data };
    memcpy(ref.dims, desc->dims, sizeof ref.dims);
    return ref;
}

rg_status rg_values_make(const rg_op_test *test, const rg_case *c, rg_dtype dtype, uint64_t seed,
                         bool expanded, rg_values *values)
{
    rg_values *v = values;
    memset(v, 0, sizeof *v);
    v->test = test;
    v->c = c;
    v->dtype = dtype;
    RG_TRY(rg_case_desc(test->op, c, v->desc));
    RG_TRY(rg_case_shapes(c, dtype, v->x_desc, &v->inputs));
    RG_CHECK(v->inputs == rg_op_inputs(test->op, v->desc), RG_INVALID_ARGUMENT,
             "case '%s' has %d inputs", c->name, v->inputs);
    v->outputs = rg_op_outputs(test->op, v->desc);
    RG_TRY(test->op->shapes(v->desc, v->x_desc, v->y_desc));
    static const rg_tensor_desc none;
    for (int32_t i = v->outputs; i < RG_MAX_OUTPUTS; i++)
        RG_CHECK(memcmp(&v->y_desc[i], &none, sizeof none) == 0, RG_INVALID_STATE,
                 "case '%s': the shape rule writes output %d, but there are %d", c->name, i,
                 v->outputs);

    rg_random random = rg_random_seed(seed, c->name);
    rg_ref_tensor x[RG_MAX_INPUTS], y[RG_MAX_OUTPUTS], given[RG_MAX_OUTPUTS], dy[RG_MAX_OUTPUTS],
        dx[RG_MAX_INPUTS];
    bool whole = true, any = false; /* gradient */
    for (int32_t i = 0; i < v->inputs; i++) {
        v->x[i] = draw(&v->x_desc[i], &c->x_fill[i], &random, expanded);
        const bool differentiates = rg_op_differentiates(test->op, v->desc, i);
        v->want_dx[i] = differentiates ? take(rg_shape_count(&v->x_desc[i])) : NULL;
        x[i] = ref_of(&v->x_desc[i], v->x[i]);
        dx[i] = ref_of(&v->x_desc[i], v->want_dx[i]);
        any |= differentiates;
        whole = whole && v->x[i] != NULL && (v->want_dx[i] != NULL || !differentiates);
    }
    for (int32_t i = 0; i < v->outputs; i++) {
        v->dy[i] = draw(&v->y_desc[i], &c->dy_fill, &random, expanded);
        v->y[i] = draw(&v->y_desc[i], &c->y_fill, &random, expanded);
        v->want_y[i] = take(rg_shape_count(&v->y_desc[i]));
        dy[i] = ref_of(&v->y_desc[i], v->dy[i]);
        y[i] = ref_of(&v->y_desc[i], v->want_y[i]);
        given[i] = ref_of(&v->y_desc[i], v->y[i]);
        whole = whole && v->dy[i] != NULL && v->y[i] != NULL && v->want_y[i] != NULL;
    }
    RG_CHECK(whole, RG_OUT_OF_MEMORY, "case '%s' does not fit in memory", c->name);
    test->forward(v->desc, x, y);
    for (int32_t i = 0; i < v->outputs && !(c->flags & RG_CASE_FREE_Y); i++) {
        for (int64_t k = 0; k < rg_shape_count(&v->y_desc[i]); k++)
            v->y[i][k] = round_to(v->y_desc[i].dtype, v->want_y[i][k]);
    }
    if (!(c->flags & RG_CASE_FORWARD) && test->gradient != NULL && any)
        test->gradient(v->desc, dy, x, given, dx);
    return RG_OK;
}

void rg_values_free(rg_values *values)
{
    for (int32_t i = 0; i < RG_MAX_INPUTS; i++) {
        free(values->x[i]);
        free(values->want_dx[i]);
    }
    for (int32_t i = 0; i < RG_MAX_OUTPUTS; i++) {
        free(values->y[i]);
        free(values->dy[i]);
        free(values->want_y[i]);
    }
}
