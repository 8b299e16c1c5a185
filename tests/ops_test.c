/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* What every op of ops.def owes its callers: defaults that are those of its description, a create
 * function that refuses what it must, and kernels that can be described, copied and written down.
 */
#include "api.h"

#include "ops/ops.h"
#include "runtime/objects.h"

#if RG_TEST_FILES
#include <retrograde/files.h>
#endif

/* An op's own two functions, in one form for all. */
typedef struct subject {
    const rg_op *op;
    void (*set_default)(void *desc);
    rg_status (*create)(rg_device *device, const void *desc, rg_kernel **kernel);
} subject;

#define RG_OP(name)                                                                             \
    static void name##_set_default(void *desc)                                                  \
    {                                                                                           \
        const rg_##name##_desc defaults = rg_##name##_desc_default();                           \
        memcpy(desc, &defaults, sizeof defaults);                                               \
    }                                                                                           \
    static rg_status name##_create(rg_device *device, const void *desc, rg_kernel **kernel)     \
    {                                                                                           \
        return rg_##name##_create(device, desc, kernel);                                        \
    }                                                                                           \
    _Static_assert(sizeof(rg_##name##_desc) <= RG_MAX_DESC, "a descriptor fits on the stack");  \
    _Static_assert(offsetof(rg_##name##_desc, size) == 0, "a descriptor begins with its size"); \
    static const size_t name##_size = sizeof(rg_##name##_desc);
#include "ops/ops.def"
#undef RG_OP

static const struct {
    subject subject;
    const size_t *size;
} subjects[] = {
#define RG_OP(name) { { &rg_op_##name, name##_set_default, name##_create }, &name##_size },
#include "ops/ops.def"
#undef RG_OP
};

/* ---- the description ---- */

static void test_description(const subject *s, size_t size)
{
    _Alignas(16) char desc[RG_MAX_DESC] = { 0 };
    const rg_fields *fields = &s->op->desc;
    uint32_t said = 0;
    s->set_default(desc);
    memcpy(&said, desc, sizeof said);
    EXPECT(said == size && fields->size == size);
    EXPECT(rg_fields_equal(fields, desc, fields->defaults)); /* not memcmp: there is padding */
    _Alignas(16) char checked[RG_MAX_DESC];
    EXPECT_OK(rg_fields_copy(fields, s->op->name, desc, checked));
    EXPECT(rg_fields_equal(fields, desc, checked));
    for (const rg_field *field = fields->fields; field->name != NULL; field++)
        EXPECT(field->offset >= sizeof said && field->offset < size && field->text != NULL);
    const rg_op *found = NULL;
    const rg_op_name *name = NULL;
    EXPECT_OK(rg_op_find(s->op->name, &found, &name));
    EXPECT(found == s->op && name == NULL);
}

/* Every other name leads to the op, and its fields are fields of the op. */
static void test_names(const subject *s)
{
    for (const rg_op_name *n = s->op->names; n != NULL && n->name != NULL; n++) {
        _Alignas(16) char desc[RG_MAX_DESC];
        const rg_op *found = NULL;
        const rg_op_name *name = NULL;
        EXPECT_OK(rg_op_find(n->name, &found, &name));
        EXPECT(found == s->op && name == n);
        s->set_default(desc);
        EXPECT_OK(rg_fields_parse(&s->op->desc, n->name, desc, n->fields));
        EXPECT(!n->gradient || s->op->gradient != NULL);
    }
}

/* ---- what create refuses ---- */

static void refuse_size(const subject *s, rg_device *device, uint32_t size, rg_status status)
{
    _Alignas(16) char desc[RG_MAX_DESC] = { 0 };
    s->set_default(desc);
    memcpy(desc, &size, sizeof size);
    rg_kernel *kernel = (rg_kernel *)desc; /* not NULL */
    EXPECT_FAILS(s->create(device, desc, &kernel), status, s->op->name);
    EXPECT(kernel == NULL);
}

static void test_refused(const subject *s, rg_device *device)
{
    _Alignas(16) char desc[RG_MAX_DESC] = { 0 };
    const uint32_t size = (uint32_t)s->op->desc.size;
    s->set_default(desc);
    rg_kernel *kernel = (rg_kernel *)desc;
    EXPECT_FAILS(s->create(NULL, desc, &kernel), RG_INVALID_ARGUMENT, "device is NULL");
    EXPECT(kernel == NULL);
    kernel = (rg_kernel *)desc;
    EXPECT_FAILS(s->create(device, NULL, &kernel), RG_INVALID_ARGUMENT, "desc is NULL");
    EXPECT(kernel == NULL);
    EXPECT_FAILS(s->create(device, desc, NULL), RG_INVALID_ARGUMENT, "kernel is NULL");
    refuse_size(s, device, 0, RG_INVALID_ARGUMENT);
    refuse_size(s, device, sizeof(uint32_t), RG_INVALID_ARGUMENT);
    refuse_size(s, device, size + 1, RG_UNSUPPORTED);
    refuse_size(s, device, UINT32_MAX, RG_UNSUPPORTED);
}

/* ---- kernels ---- */

static void expect_twin(const rg_kernel *kernel, const rg_kernel *twin, rg_device *device)
{
    char text[1024], other[1024];
    EXPECT(twin != NULL && twin != kernel);
    EXPECT(rg_kernel_equal(kernel, twin) && rg_kernel_equal(twin, kernel));
    EXPECT(rg_kernel_hash(kernel) == rg_kernel_hash(twin));
    EXPECT(rg_kernel_device(twin) == device);
    EXPECT(strcmp(rg_kernel_op(twin), rg_kernel_op(kernel)) == 0);
    EXPECT(strcmp(rg_kernel_label(twin), rg_kernel_label(kernel)) == 0);
    EXPECT(rg_kernel_inputs(twin) == rg_kernel_inputs(kernel));
    EXPECT(rg_kernel_outputs(twin) == rg_kernel_outputs(kernel));
    EXPECT(rg_kernel_describe(kernel, text, sizeof text) ==
           rg_kernel_describe(twin, other, sizeof other));
    EXPECT(strcmp(text, other) == 0);
}

#if RG_TEST_FILES
static void test_json(const rg_kernel *kernel, rg_device *device)
{
    char text[4096];
    const size_t length = rg_kernel_to_json(kernel, text, sizeof text);
    EXPECT(length > 0 && length < sizeof text && length == strlen(text));
    rg_kernel *twin = NULL;
    EXPECT_OK(rg_kernel_from_json(device, text, length, &twin));
    expect_twin(kernel, twin, device);
    char again[4096];
    EXPECT(rg_kernel_to_json(twin, again, sizeof again) == length && strcmp(text, again) == 0);
    rg_kernel_destroy(twin);
}
#endif

static void test_kernel(const subject *s, rg_device *device, rg_device *other)
{
    _Alignas(16) char desc[RG_MAX_DESC] = { 0 };
    s->set_default(desc);
    rg_kernel *kernel = NULL, *copy = NULL, *abroad = NULL;
    EXPECT_OK(s->create(device, desc, &kernel));
    memset(desc, 0xff, sizeof desc); /* it was copied */
    EXPECT_OK(rg_kernel_set_label(kernel, "a \"label\""));
    EXPECT(strcmp(rg_kernel_op(kernel), s->op->name) == 0);
    EXPECT(rg_kernel_inputs(kernel) > 0 && rg_kernel_inputs(kernel) <= RG_MAX_INPUTS);
    EXPECT(rg_kernel_outputs(kernel) > 0 && rg_kernel_outputs(kernel) <= RG_MAX_OUTPUTS);
    char text[1024];
    const size_t length = rg_kernel_describe(kernel, text, sizeof text),
                 named = strlen(s->op->name);
    EXPECT(length < sizeof text && length == strlen(text));
    EXPECT(strncmp(text, s->op->name, named) == 0 && (text[named] == ' ' || text[named] == 0));
    EXPECT_OK(rg_kernel_copy(kernel, NULL, &copy));
    expect_twin(kernel, copy, device);
    EXPECT_OK(rg_kernel_copy(kernel, other, &abroad));
    expect_twin(kernel, abroad, other);
#if RG_TEST_FILES
    test_json(kernel, device);
    test_json(kernel, other);
#endif
    rg_kernel_destroy(kernel);
    rg_kernel_destroy(copy);
    rg_kernel_destroy(abroad);
}

/* Kernels of different ops differ. */
static void test_differ(rg_device *device)
{
    enum { COUNT = sizeof subjects / sizeof subjects[0] };
    rg_kernel *kernels[COUNT] = { NULL };
    for (int i = 0; i < COUNT; i++) {
        _Alignas(16) char desc[RG_MAX_DESC] = { 0 };
        subjects[i].subject.set_default(desc);
        EXPECT_OK(subjects[i].subject.create(device, desc, &kernels[i]));
        EXPECT(rg_ops[i] == subjects[i].subject.op);
        for (int k = 0; k < i; k++) {
            EXPECT(!rg_kernel_equal(kernels[i], kernels[k]));
            EXPECT(rg_kernel_hash(kernels[i]) != rg_kernel_hash(kernels[k]));
        }
    }
    EXPECT(rg_ops[COUNT] == NULL);
    for (int i = 0; i < COUNT; i++)
        rg_kernel_destroy(kernels[i]);
}

int main(void)
{
    rig r = rig_open(1), other = rig_open(2);
    for (size_t i = 0; i < sizeof subjects / sizeof subjects[0]; i++) {
        const subject *s = &subjects[i].subject;
        test_description(s, *subjects[i].size);
        test_names(s);
        test_refused(s, r.device);
        test_kernel(s, r.device, other.device);
    }
    test_differ(r.device);
    rig_close(&r);
    rig_close(&other);
    return rg_test_report();
}
