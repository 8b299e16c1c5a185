/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Drawing a trial: a descriptor from the op's field table, then what the op's own hook makes of it,
 * values, layouts, threads, instruction set, forms. */
#include "cli/random_case.h"
#include "cli/strategy_option.h"
#include "core/shape.h"
#include "ops/optest_draw.h"

#include <math.h>
#include <stdio.h>

/* ---- fields ---- */

/* A whole number between the bounds of the field: its default, small, or at a bound. */
static int64_t draw_whole(rg_draw *d, const rg_field *field)
{
    const bool bound = field->low != 0 || field->high != 0;
    const int64_t low = bound && field->low > -4 ? (int64_t)field->low : -4;
    const int64_t high = bound && field->high < (double)(low + 8) ? (int64_t)field->high : low + 8;
    return rg_draw_between(d, low, high);
}

static double draw_number(rg_draw *d, const rg_field *field)
{
    const bool bound = field->low != 0 || field->high != 0;
    double value = rg_draw_factor(d);
    if (bound && field->low >= 0 && field->high <= 1)
        value = rg_draw_chance(d, 0.2) ? field->low : (double)rg_draw_between(d, 1, 15) / 16;
    if (bound)
        value = fmin(fmax(value, field->low), field->high);
    return value;
}

static void draw_element(rg_draw *d, const rg_field *field, char *at)
{
    int names = 0;
    switch (field->type) {
    case RG_FIELD_BOOL:
        *(bool *)at = rg_draw_chance(d, 0.5);
        break;
    case RG_FIELD_ENUM:
        while (field->names[names] != NULL)
            names++;
        *(int *)(void *)at = (int)rg_draw_below(d, names);
        break;
    case RG_FIELD_I32:
        *(int32_t *)(void *)at = (int32_t)draw_whole(d, field);
        break;
    case RG_FIELD_I64:
        *(int64_t *)(void *)at = draw_whole(d, field);
        break;
    case RG_FIELD_F64:
        *(double *)(void *)at = draw_number(d, field);
        break;
    case RG_FIELD_GROUP:
        break;
    }
}

static size_t element_size(rg_field_type type)
{
    return type == RG_FIELD_BOOL                           ? sizeof(bool)
           : type == RG_FIELD_I32 || type == RG_FIELD_ENUM ? 4
                                                           : 8;
}

static void draw_fields(rg_draw *d, const rg_field *field, char *desc)
{
    for (; field->name != NULL; field++) {
        if (field->type == RG_FIELD_GROUP) {
            draw_fields(d, field->fields, desc + field->offset);
            continue;
        }
        if (rg_draw_chance(d, 0.5))
            continue; /* as by default */
        if (field->present != 0)
            *(bool *)(desc + field->present) = true;
        const int32_t most = field->length > 4 ? 4 : field->length;
        int32_t length = field->length == 0 ? 1 : field->length;
        if (field->count != 0) {
            length = (int32_t)rg_draw_between(d, 0, most);
            *(int32_t *)(void *)(desc + field->count) = length;
        }
        for (int32_t i = 0; i < length; i++)
            draw_element(d, field, desc + field->offset + (size_t)i * element_size(field->type));
    }
}

/* ---- values ---- */

/* NaN and infinities only where a case of the op has them, so that they are compared by class:
 * bit i for input i, bit RG_MAX_INPUTS for dy. */
static uint32_t find_special(const rg_op_test *test)
{
    uint32_t found = 0;
    for (const rg_case *c = test->cases; c->name != NULL; c++) {
        for (int32_t i = 0; i < RG_MAX_INPUTS && c->flags & RG_CASE_SPECIAL; i++)
            found |= (uint32_t)(c->x_fill[i].at != NULL) << i;
        if (c->flags & RG_CASE_SPECIAL && c->dy_fill.at != NULL)
            found |= 1u << RG_MAX_INPUTS;
    }
    return found;
}

/* With NaN and infinities in a trial no other magnitudes: a factor that a float takes for 0 would
 * make NaN of an infinity. */
static rg_fill draw_fill(rg_draw *d, bool special, bool calm)
{
    const double kind = rg_random_uniform(&d->random);
    const double constant = (double)rg_draw_between(d, -8, 8) / 4 + 0.125;
    if (kind < 0.5)
        return (rg_fill){ 0 };
    if (kind < 0.68)
        return (rg_fill){ .low = -3, .high = 4, .step = 1 };
    if (kind < 0.76)
        return (rg_fill){ .low = 0.25, .high = 2 };
    if (kind < 0.86 && !calm)
        return (rg_fill){ .spread = d->dtype == RG_F16 ? 1 : 2.5 };
    if (kind < 0.89)
        return (rg_fill){ .low = 0, .high = 1, .step = 2 }; /* zeros */
    if (kind < 0.93)
        return (rg_fill){ .low = constant, .high = constant };
    if (kind < 0.95)
        return (rg_fill){ .low = -2, .high = -0.25 };
    return special ? (rg_fill){ .special = 0.05 } : (rg_fill){ 0 };
}

static void draw_repeats(rg_draw *d, int32_t inputs)
{
    for (int32_t i = 0; i < inputs; i++) {
        if (rg_draw_chance(d, 0.15))
            d->x_fill[i].repeat = (uint32_t)rg_draw_below(d, 1 << d->x[i].rank);
    }
    if (rg_draw_chance(d, 0.1))
        d->dy_fill.repeat = (uint32_t)rg_draw_between(d, 0, 15);
}

/* ---- one attempt ---- */

static bool is_cheap(const rg_op_test *test, const rg_draw *d, int32_t inputs, int32_t outputs,
                     const rg_tensor_desc y[])
{
    const double most = 1e6, elements = 3e5;
    double cost = d->cost, count = 0;
    for (int32_t i = 0; i < inputs; i++)
        count += (double)rg_shape_count(&d->x[i]);
    for (int32_t i = 0; i < outputs; i++)
        count += (double)rg_shape_count(&y[i]);
    if (test->operations != NULL && cost == 0)
        cost = test->operations(d->desc, d->x);
    return count <= elements && cost <= most && count + cost >= 0;
}

static bool draw_once(const rg_op_test *test, rg_draw *d, rg_random_case *c)
{
    const rg_op *op = test->op;
    _Alignas(16) char desc[RG_MAX_DESC], copy[RG_MAX_DESC];
    rg_tensor_desc y[RG_MAX_OUTPUTS];
    memcpy(desc, op->desc.defaults, op->desc.size);
    d->desc = desc;
    d->faults = false;
    d->flags = 0;
    d->cost = 0;
    draw_fields(d, op->desc.fields, desc);
    const uint32_t special = rg_draw_chance(d, 0.3) ? find_special(test) : 0;
    for (int32_t i = 0; i < RG_MAX_INPUTS; i++)
        d->x_fill[i] = draw_fill(d, special >> i & 1, special != 0);
    d->dy_fill = rg_draw_chance(d, 0.7) ? (rg_fill){ 0 }
                                        : draw_fill(d, special >> RG_MAX_INPUTS & 1, special != 0);
    if (test->draw != NULL)
        test->draw(d);
    else
        d->x[0] = rg_draw_shape(d, 0, RG_MAX_RANK);
    if (rg_fields_copy(&op->desc, op->name, desc, copy) != RG_OK ||
        (op->check != NULL && op->check(desc) != RG_OK))
        return false;
    const int32_t inputs = rg_op_inputs(op, desc), outputs = rg_op_outputs(op, desc);
    for (int32_t i = 1; i < inputs && test->draw == NULL; i++)
        d->x[i] = d->x[0];
    size_t extent;
    for (int32_t i = 0; i < inputs; i++) {
        if (rg_shape_check(&d->x[i], "random", &extent) != RG_OK)
            return false;
    }
    if (op->shapes(desc, d->x, y) != RG_OK || !is_cheap(test, d, inputs, outputs, y))
        return false;
    draw_repeats(d, inputs);
    rg_random_fields(op, desc, c->fields, sizeof c->fields);
    rg_random_shapes(d->x, inputs, d->dtype, c->shapes, sizeof c->shapes);
    for (int32_t i = 0; i < inputs; i++) {
        c->x_fill[i] = d->x_fill[i];
        c->flags |= d->x_fill[i].special > 0 ? RG_CASE_SPECIAL : 0;
    }
    c->flags |= d->flags;
    c->dy_fill = d->dy_fill;
    c->flags |= d->dy_fill.special > 0 ? RG_CASE_SPECIAL : 0;
    c->faults = d->faults;
    const bool is_16 = d->dtype == RG_F16 || d->dtype == RG_BF16;
    if (op->wide_gradients != 0 && is_16 && !(d->flags & RG_CASE_NARROW) && rg_draw_chance(d, 0.4))
        c->flags |= RG_CASE_WIDE;
    return true;
}

/* ---- the rest ---- */

static rg_dtype draw_dtype(rg_draw *d, const rg_random_limits *limits)
{
    static const rg_dtype dtypes[] = { RG_F32, RG_F32, RG_F64, RG_F16, RG_BF16 };
    rg_dtype dtype = dtypes[rg_draw_below(d, 5)];
    if (limits->dtype != NULL)
        (void)rg_dtype_parse(limits->dtype, &dtype);
    return dtype;
}

static void draw_device(rg_draw *d, const rg_random_limits *limits, rg_random_case *c)
{
    static const int32_t threads[] = { 1, 2, 2, 3, 5 };
    int32_t isas = 0;
    while (rg_device_isa_list(isas) != NULL)
        isas++;
    const char *isa = rg_device_isa_list((int32_t)rg_draw_below(d, isas));
    const int32_t drawn = threads[rg_draw_below(d, 5)];
    if (!limits->is_cpu)
        return;
    snprintf(c->isa, sizeof c->isa, "%s", limits->isa != NULL ? limits->isa : isa);
    c->threads = limits->threads > 0 ? limits->threads : drawn;
}

/* A strategy of the op for a third of the trials; calls that it does not accept take another. */
static void draw_strategy(rg_draw *d, const rg_random_limits *limits, rg_random_case *c)
{
    const rg_op *op = c->test->op;
    const char *drawn = rg_op_strategy(op, (uint64_t)rg_draw_below(d, 1 << 20));
    if (limits->strategy != NULL)
        drawn = rg_op_has_strategy(op, limits->strategy) ? limits->strategy : NULL;
    else if (!rg_draw_chance(d, 0.33))
        drawn = NULL;
    snprintf(c->strategy, sizeof c->strategy, "%s", drawn != NULL ? drawn : "");
}

static uint32_t draw_forms(rg_draw *d)
{
    uint32_t forms = rg_draw_chance(d, 0.9) ? RG_FORM_GRADIENT : 0;
    const struct {
        uint32_t form;
        double chance;
    } chances[] = {
        { RG_FORM_STATE, 0.5 },  { RG_FORM_ALONE, 0.4 },      { RG_FORM_ADD, 0.4 },
        { RG_FORM_ALIAS, 0.4 },  { RG_FORM_HINT, 0.3 },       { RG_FORM_DIFFERENCES, 0.3 },
        { RG_FORM_COPY, 0.05 },  { RG_FORM_JSON, 0.1 },       { RG_FORM_BATCH, 0.2 },
        { RG_FORM_ALLOC, 0.15 }, { RG_FORM_TEMPORARY, 0.15 }, { RG_FORM_INTERLEAVE, 0.1 },
    };
    for (size_t i = 0; i < sizeof chances / sizeof chances[0]; i++)
        forms |= rg_draw_chance(d, chances[i].chance) ? chances[i].form : 0;
    return forms;
}

bool rg_random_draw(const rg_op_test *test, uint64_t seed, int64_t number,
                    const rg_random_limits *limits, rg_random_case *c)
{
    enum { ATTEMPTS = 200 };
    char name[64];
    snprintf(name, sizeof name, "%s %lld", test->op->name, (long long)number);
    rg_draw d = { .random = rg_random_seed(seed, name) };
    for (int i = 0; i < 8; i++) /* near seeds fall apart */
        (void)rg_random_uniform(&d.random);
    *c = (rg_random_case){ .test = test };
    c->dtype = d.dtype = draw_dtype(&d, limits);
    bool drawn = false;
    for (int i = 0; i < ATTEMPTS && !drawn; i++)
        drawn = draw_once(test, &d, c);
    draw_device(&d, limits, c);
    c->seed = (uint64_t)rg_draw_below(&d, INT64_C(1) << 40) + 1;
    c->views.seed = rg_draw_chance(&d, 0.85) ? (uint64_t)rg_draw_below(&d, 1 << 30) + 1 : 0;
    c->views.mask = rg_draw_chance(&d, 0.6) ? (1u << 26) - 1 : (uint32_t)rg_draw_below(&d, 1 << 26);
    c->forms = draw_forms(&d);
    c->kind = !c->faults && rg_draw_chance(&d, 0.12) ? RG_RANDOM_REFUSE : RG_RANDOM_COMPUTE;
    draw_strategy(&d, limits, c);
    return drawn;
}
