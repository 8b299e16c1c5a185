/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Operators for ONNX Runtime, driven by a stand-in for it: values of the softmax gradients, every
 * operator on memory without a byte to spare, and bad input, which gets a sentence. */
#include "ort_stand_in.h"
#include "test.h"

#include <math.h>
#include <stdlib.h>

static const ort_type types[] = { ORT_FLOAT, ORT_DOUBLE, ORT_FLOAT16, ORT_BFLOAT16 };
static const rg_dtype dtypes[] = { RG_F32, RG_F64, RG_F16, RG_BF16 };
enum { TYPES = 4 };

/* ---- values ---- */

static ort_value make(ort_type type, size_t rank, const int64_t dims[])
{
    ort_value v = { .type = type, .rank = rank, .bytes = stand_in_size(type) };
    for (size_t d = 0; d < rank; d++) {
        v.dims[d] = dims[d];
        v.bytes *= (size_t)dims[d];
    }
    v.data = calloc(1, v.bytes > 0 ? v.bytes : 1);
    return v;
}

static void set(ort_value *v, const double values[], size_t count)
{
    for (int t = 0; t < TYPES; t++) {
        if (types[t] == v->type)
            EXPECT_OK(rg_convert(v->data, dtypes[t], values, RG_F64, count));
    }
}

static void get(const ort_value *v, double values[], size_t count)
{
    for (int t = 0; t < TYPES; t++) {
        if (types[t] == v->type)
            EXPECT_OK(rg_convert(values, RG_F64, v->data, dtypes[t], count));
    }
}

/* Numbers in [0, 1), or 1 where they are integers or flags. */
static ort_value made(ort_type type, size_t rank, const int64_t dims[])
{
    ort_value v = make(type, rank, dims);
    const size_t count = v.bytes / stand_in_size(type);
    for (size_t i = 0; i < count; i++) {
        const double value = (double)(i * 7 % 11 + 1) / 16;
        if (type == ORT_INT64)
            ((int64_t *)v.data)[i] = 1;
        else if (type == ORT_BOOL)
            ((uint8_t *)v.data)[i] = i % 3 != 0;
        else
            for (int t = 0; t < TYPES; t++) {
                if (types[t] == type)
                    (void)rg_convert((char *)v.data + i * stand_in_size(type), dtypes[t], &value,
                                     RG_F64, 1);
            }
    }
    return v;
}

static void *allocate(size_t bytes)
{
    return malloc(bytes > 0 ? bytes : 1);
}

static void release(ort_context *c)
{
    for (size_t i = 0; i < c->output_count; i++)
        free(c->outputs[i].data);
    for (size_t i = 0; i < c->input_count; i++) {
        if (c->inputs[i] != NULL)
            free(c->inputs[i]->data);
    }
}

/* ---- softmax ---- */

static double softmax_gradient(const double dy[], const double y[], const int64_t group[],
                               int64_t count, int64_t at, bool is_log)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += is_log ? dy[group[i]] : dy[group[i]] * y[group[i]];
    return is_log ? dy[at] - exp(y[at]) * sum : (dy[at] - sum) * y[at];
}

static void check_softmax(const char *name, bool is_log, bool flat, int axis, int t)
{
    static const double tolerance[] = { 1e-6, 1e-14, 1e-3, 1e-2 };
    static const int64_t dims[] = { 2, 3, 4 }, strides[] = { 12, 4, 1 };
    double dy[24], y[24], got[24];
    for (int i = 0; i < 24; i++) {
        dy[i] = i % 5 * 0.25 - 0.5;
        y[i] = is_log ? -(7 * i % 11 + 1) / 4.0 : (7 * i % 11 + 1) / 64.0;
    }
    ort_value a = make(types[t], 3, dims), b = make(types[t], 3, dims);
    set(&a, dy, 24);
    set(&b, y, 24);
    const struct ort_kernel_info info = { { { "axis", 'i', .ints = { axis } } }, 1 };
    ort_context c = {
        .inputs = { &a, &b }, .input_count = 2, .output_count = 1, .allocate = allocate
    };
    const ort_custom_op *op = stand_in_find("com.microsoft", name, types[t], false);
    ort_status *status = op != NULL ? stand_in_run(op, &info, &c) : NULL;
    EXPECT(status == NULL && c.outputs[0].data != NULL && c.outputs[0].rank == 3);
    if (status == NULL && c.outputs[0].data != NULL) {
        get(&c.outputs[0], got, 24);
        for (int64_t i = 0; i < 24; i++) {
            int64_t group[24], count = 0;
            for (int64_t k = 0; k < 24; k++) {
                bool same = true;
                for (int d = 0; d < 3; d++) {
                    const bool free_dim = flat ? d >= axis : d == axis;
                    same =
                        same && (free_dim || k / strides[d] % dims[d] == i / strides[d] % dims[d]);
                }
                if (same)
                    group[count++] = k;
            }
            const double want = softmax_gradient(dy, y, group, count, i, is_log);
            EXPECT(fabs(got[i] - want) <= tolerance[t] * (1 + fabs(want)));
        }
    }
    stand_in_release(status);
    release(&c);
}

static void test_softmax(void)
{
    for (int t = 0; t < TYPES; t++) {
        for (int axis = 0; axis < 3; axis++) {
            check_softmax("SoftmaxGrad", false, true, axis, t);
            check_softmax("SoftmaxGrad_13", false, false, axis, t);
            check_softmax("LogSoftmaxGrad", true, true, axis, t);
            check_softmax("LogSoftmaxGrad_13", true, false, axis, t);
        }
    }
}

/* ---- every operator ---- */

/* Shapes of inputs: letters are n, c, h, w, a window's output (H, W), k: a class for each position,
 * o: output channels, 3: a number; "-" is absent. */
typedef struct node {
    const char *name, *inputs;
    struct ort_kernel_info info;
    size_t outputs;
} node;

#define WINDOW(k, s, p)                                    \
    { "kernel_shape", 'n', .ints = { k, k }, .count = 2 }, \
        { "strides", 'n', .ints = { s, s }, .count = 2 },  \
    {                                                      \
        "pads", 'n', .ints = { p, p, p, p }, .count = 4    \
    }

static const node nodes[] = {
    { "ReluGrad", "nchw nchw", { .attribute_count = 0 }, 1 },
    { "QuickGeluGrad", "nchw nchw", { .attribute_count = 0 }, 1 },
    { "SoftmaxGrad_13", "nchw nchw", { { { "axis", 'i', .ints = { 1 } } }, 1 }, 1 },
    { "LogSoftmaxGrad", "nchw nchw", { { { "axis", 'i', .ints = { 2 } } }, 1 }, 1 },
    { "ConvGrad", "nohw nchw oc33", { { WINDOW(3, 1, 1) }, 3 }, 3 },
    { "ConvGrad", "nohw nchw oc11", { .attribute_count = 0 }, 3 },
    { "ConvGrad", "nohwh nchwh oc333", { { { "auto_pad", 't', .text = "SAME_UPPER" } }, 1 }, 3 },
    { "MaxPoolGrad", "ncHW ncHW nchw", { { WINDOW(3, 2, 1) }, 3 }, 1 },
    { "AveragePoolGrad", "ncHW nchw", { { WINDOW(3, 2, 1) }, 3 }, 1 },
    { "BatchNormalizationGrad", "nchw nchw c c c", { .attribute_count = 0 }, 3 },
    { "LayerNormalizationGrad", "nchw nchw w nch nch", { .attribute_count = 0 }, 3 },
    { "SoftmaxCrossEntropyLossGrad", "1 nchw nhw c", { .attribute_count = 0 }, 1 },
    { "SoftmaxCrossEntropyLossGrad", "n nc n", { { { "reduction", 't', .text = "none" } }, 1 }, 1 },
    { "DropoutGrad", "nchw nchw 1 1", { .attribute_count = 0 }, 1 },
    { "DivGrad", "nchw nchw w", { .attribute_count = 0 }, 2 },
    { "InPlaceAccumulatorV2", "nchw nchw 1", { .attribute_count = 0 }, 2 },
    { "SGDOptimizerV2", "1 nchw nchw", { .attribute_count = 0 }, 1 },
    { "AdamWOptimizer", "1 1 nchw nchw nchw nchw", { .attribute_count = 0 }, 3 },
};
enum { NODES = sizeof nodes / sizeof nodes[0] };

static const int64_t sizes[][6] = { { 1, 2, 1, 1, 1, 1 },
                                    { 2, 3, 5, 7, 5, 0 },
                                    { 0, 2, 3, 3, 1, 0 },
                                    { 2, 5, 17, 33, 3, 0 },
                                    { 3, 2, 4, 4, 2, 0 } };

static int64_t size_of(char letter, const int64_t s[])
{
    switch (letter) {
    case 'n':
        return s[0];
    case 'c':
        return s[1];
    case 'h':
        return s[2];
    case 'w':
        return s[3];
    case 'o':
        return s[4];
    case 'H':
        return (s[2] - 1) / 2 + 1;
    case 'W':
        return (s[3] - 1) / 2 + 1;
    default:
        return letter - '0';
    }
}

/* The inputs of a node; `wrong`, if it is one of them, has a dimension too many. */
static size_t make_inputs(const node *n, const ort_custom_op *op, const int64_t s[], int wrong,
                          ort_value values[])
{
    size_t count = 0;
    for (const char *at = n->inputs; *at != 0; count++) {
        int64_t dims[STAND_IN_RANK];
        size_t rank = 0;
        for (; *at != 0 && *at != ' '; at++)
            dims[rank++] = size_of(*at, s);
        at += *at == ' ';
        if ((int)count == wrong)
            dims[rank++] = 2;
        values[count] = made(op->get_input_type(op, count), rank, dims);
    }
    return count;
}

/* The pixel in the middle of each window. */
static void fill_indices(ort_value *v, const int64_t s[])
{
    const int64_t plane = s[2] * s[3], width = size_of('W', s), out = size_of('H', s) * width;
    for (int64_t i = 0; i < (int64_t)(v->bytes / 8); i++)
        ((int64_t *)v->data)[i] = i / out * plane + i % out / width * 2 * s[3] + i % width * 2;
}

static const ort_custom_op *find_any(const char *name, ort_type type)
{
    const ort_custom_op *op = stand_in_find("com.microsoft", name, type, false);
    return op != NULL ? op : stand_in_find("org.retrograde", name, type, false);
}

/* Input which[0] has a dimension too many, which[1] is absent; -1: none. */
static ort_status *run_as(const node *n, const struct ort_kernel_info *info,
                          const ort_custom_op *op, const int64_t s[], const int which[2],
                          ort_context *c)
{
    static ort_value values[STAND_IN_TENSORS];
    *c = (ort_context){ .output_count = n->outputs, .allocate = allocate };
    c->input_count = make_inputs(n, op, s, which[0], values);
    if (strcmp(n->name, "MaxPoolGrad") == 0 && which[0] < 0)
        fill_indices(&values[1], s);
    for (size_t i = 0; i < c->input_count; i++)
        c->inputs[i] = &values[i];
    if (which[1] >= 0) {
        free(values[which[1]].data);
        c->inputs[which[1]] = NULL;
    }
    return stand_in_run(op, info, c);
}

static ort_status *run_node(const node *n, const ort_custom_op *op, const int64_t s[], int wrong,
                            int absent, ort_context *c)
{
    return run_as(n, &n->info, op, s, (const int[]){ wrong, absent }, c);
}

static void test_every(void)
{
    for (int i = 0; i < NODES * TYPES; i++) {
        const node *n = &nodes[i % NODES];
        const ort_custom_op *op = find_any(n->name, types[i / NODES]);
        EXPECT(op != NULL);
        for (size_t s = 0; op != NULL && s < sizeof sizes / sizeof sizes[0]; s++) {
            ort_context c;
            ort_status *status = run_node(n, op, sizes[s], -1, -1, &c);
            EXPECT(status == NULL);
            if (status != NULL)
                printf("%s, sizes %zu: %s\n", n->name, s, status->text);
            for (size_t k = 0; status == NULL && k < n->outputs; k++)
                EXPECT(c.outputs[k].data != NULL);
            stand_in_release(status);
            release(&c);
        }
    }
}

/* Nodes of which some results are not wanted: the others have the same bytes. */
static void test_absent_outputs(void)
{
    for (int i = 0; i < NODES * TYPES; i++) {
        const node *n = &nodes[i % NODES];
        const ort_custom_op *op = find_any(n->name, types[i / NODES]);
        ort_context whole, some;
        if (op == NULL || n->outputs == 1)
            continue;
        stand_in_release(run_node(n, op, sizes[1], -1, -1, &whole));
        for (size_t k = 0; k < whole.input_count; k++) /* the next node has their place */
            free(whole.inputs[k]->data);
        whole.input_count = 0;
        for (unsigned absent = 1; absent < 1u << n->outputs; absent++) {
            struct ort_kernel_info info = n->info;
            info.absent_outputs = absent;
            ort_status *status = run_as(n, &info, op, sizes[1], (const int[]){ -1, -1 }, &some);
            EXPECT(status == NULL);
            for (size_t k = 0; k < n->outputs && status == NULL; k++) {
                if (absent >> k & 1)
                    EXPECT(some.outputs[k].data == NULL);
                else
                    EXPECT(memcmp(some.outputs[k].data, whole.outputs[k].data,
                                  whole.outputs[k].bytes) == 0);
            }
            stand_in_release(status);
            release(&some);
        }
        release(&whole);
    }
}

/* ---- bad input ---- */

/* No class at all: every label is outside. */
static void test_no_classes(void)
{
    static const int64_t none[] = { 5, 0, 3, 3, 1, 1 };
    static const node losses[] = {
        { "SoftmaxCrossEntropyLossGrad", "1 nc n", { .attribute_count = 0 }, 1 },
        { "SoftmaxCrossEntropyLossGrad", "1 nchw nhw", { .attribute_count = 0 }, 1 }
    };
    for (int i = 0; i < 2 * TYPES; i++) {
        ort_context c;
        ort_status *status = run_node(&losses[i / TYPES],
                                      find_any(losses[0].name, types[i % TYPES]), none, -1, -1, &c);
        EXPECT(status != NULL && strstr(status->text, "not among the 0 classes") != NULL);
        stand_in_release(status);
        release(&c);
    }
}

/* A status with a sentence, or success where the operator can do it. */
static void check_refused(const node *n, int t, int wrong, int absent, bool must)
{
    const ort_custom_op *op = find_any(n->name, types[t]);
    ort_context c;
    ort_status *status = run_node(n, op, sizes[1], wrong, absent, &c);
    EXPECT(status == NULL ? !must : status->text[0] != 0);
    if (status == NULL && must)
        printf("%s: input %d was not refused\n", n->name, wrong >= 0 ? wrong : absent);
    stand_in_release(status);
    release(&c);
}

static void test_refused(void)
{
    for (int i = 0; i < NODES; i++) {
        const ort_custom_op *op = find_any(nodes[i].name, ORT_FLOAT);
        for (int k = 0; op != NULL && k < (int)op->get_input_count(op); k++) {
            size_t given = 1;
            for (const char *at = nodes[i].inputs; *at != 0; at++)
                given += *at == ' ';
            if ((size_t)k >= given)
                continue;
            const bool broadcast = strcmp(nodes[i].name, "DivGrad") == 0 ||
                                   strcmp(nodes[i].inputs, "nchw nchw 1 1") == 0;
            for (int t = 0; t < TYPES; t++) {
                check_refused(&nodes[i], t, k, -1, !broadcast || (k < 2 && nodes[i].outputs == 1));
                check_refused(&nodes[i], t, -1, k, op->get_input_kind(op, (size_t)k) == 0);
            }
        }
    }
}

/* A tensor of another type, which the runtime itself would refuse. */
static void test_types(void)
{
    const int64_t dims[] = { 2, 3 };
    for (int i = 0; i < 2; i++) {
        ort_value a = made(i == 0 ? ORT_FLOAT16 : ORT_FLOAT, 2, dims), b = made(ORT_FLOAT, 2, dims);
        ort_value mask = made(i == 0 ? ORT_BOOL : ORT_INT64, 2, dims);
        ort_context c = { .inputs = { &a, i == 0 ? &b : &mask },
                          .input_count = 2,
                          .output_count = 1,
                          .allocate = allocate };
        const struct ort_kernel_info info = { .attribute_count = 0 };
        const ort_custom_op *op = find_any(i == 0 ? "ReluGrad" : "DropoutGrad", ORT_FLOAT);
        ort_status *status = stand_in_run(op, &info, &c);
        EXPECT(status != NULL && strstr(status->text, "type") != NULL);
        stand_in_release(status);
        release(&c);
        free(i == 0 ? mask.data : b.data);
    }
}

static void test_attributes(void)
{
    const int64_t dims[] = { 2, 3 };
    const struct ort_kernel_info infos[] = { { { { "axis", 'i', .ints = { 2 } } }, 1 },
                                             { { { "axis", 'i', .ints = { -3 } } }, 1 },
                                             { { { "axis", 'i', .ints = { INT64_MAX } } }, 1 } };
    for (size_t i = 0; i < sizeof infos / sizeof infos[0]; i++) {
        ort_value a = made(ORT_FLOAT, 2, dims), b = made(ORT_FLOAT, 2, dims);
        ort_context c = {
            .inputs = { &a, &b }, .input_count = 2, .output_count = 1, .allocate = allocate
        };
        ort_status *status = stand_in_run(find_any("SoftmaxGrad_13", ORT_FLOAT), &infos[i], &c);
        EXPECT(status != NULL && strstr(status->text, "axis") != NULL);
        stand_in_release(status);
        release(&c);
    }
}

/* An attribute of another type is not taken for one that is absent. */
static void test_attribute_types(void)
{
    static const char long_text[] =
        "a word that is longer than any of the words that are known here";
    static const struct {
        const char *op;
        stand_in_attribute given;
        const char *text;
    } cases[] = {
        { "AdamWOptimizer",
          { "weight_decay", 'i', .ints = { 0 } },
          "weight_decay must be a float" },
        { "AdamWOptimizer", { "adam_mode", 'f', .number = 1 }, "adam_mode must be an int" },
        { "LeakyReluGrad",
          { "alpha", 'i', .ints = { 1 } },
          "alpha must be a float, but it is an int" },
        { "ConvGrad", { "strides", 'i', .ints = { 2 } }, "strides must be a list of ints" },
        { "ConvGrad", { "auto_pad", 'n', .ints = { 1 }, .count = 1 }, "auto_pad must be a string" },
        { "SoftmaxCrossEntropyLossGrad", { "reduction", 'i', .ints = { 1 } }, "must be a string" },
        { "SoftmaxCrossEntropyLossGrad", { "reduction", 't', .text = long_text }, "reduction" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct ort_kernel_info info = { { cases[i].given }, 1, 0, NULL };
        ort_context c = { .allocate = allocate };
        ort_status *status = stand_in_run(find_any(cases[i].op, ORT_FLOAT), &info, &c);
        EXPECT(status != NULL && strstr(status->text, cases[i].text) != NULL);
        stand_in_release(status);
    }
}

/* The shape of dX from the model, where dY does not tell it; the batch may be unknown. */
static void test_pool_shapes(void)
{
    static const node pool = { "MaxPoolGrad", "ncHW ncHW", { { WINDOW(3, 2, 1) }, 3 }, 1 };
    static const node average = { "AveragePoolGrad", "ncHW", { { WINDOW(3, 2, 1) }, 3 }, 1 };
    static const stand_in_attribute more[] = { { "ceil_mode", 'i', .ints = { 1 } },
                                               { "ceil_mode", 'i', .ints = { 0 } } };
    for (int i = 0; i < 8 * TYPES; i++) {
        const int64_t *s = sizes[3];
        const node *n = i & 1 ? &average : &pool;
        struct ort_kernel_info info = n->info;
        const ort_value shape = { .rank = 4, .dims = { i & 2 ? -1 : s[0], s[1], s[2], s[3] } };
        ort_context c;
        info.attributes[info.attribute_count++] = more[i >> 2 & 1];
        info.shape = &shape;
        ort_status *status =
            run_as(n, &info, find_any(n->name, types[i / 8]), s, (const int[]){ -1, -1 }, &c);
        EXPECT(status == NULL && c.outputs[0].rank == 4 && c.outputs[0].dims[0] == s[0] &&
               c.outputs[0].dims[2] == s[2] && c.outputs[0].dims[3] == s[3]);
        stand_in_release(status);
        release(&c);
        info.shape = NULL; /* nobody knows it */
        status = run_as(n, &info, find_any(n->name, types[i / 8]), s, (const int[]){ -1, -1 }, &c);
        EXPECT(status != NULL && strstr(status->text, "the shape of dX does not follow") != NULL);
        stand_in_release(status);
        release(&c);
    }
}

/* Sessions share the domains, and an old runtime gets a sentence. */
static void test_registration(void)
{
    const int before = stand_in_alive();
    for (int i = 0; i < 3; i++)
        EXPECT(stand_in_load());
    EXPECT(stand_in_alive() == before);
    ort_status *status = stand_in_load_into_old();
    EXPECT(status != NULL && status->code == ORT_NOT_IMPLEMENTED &&
           strstr(status->text, "1.21 or later") != NULL);
    stand_in_release(status);
}

int main(void)
{
    static void (*const tests[])(void) = {
        test_softmax, test_every,      test_absent_outputs,  test_refused,     test_no_classes,
        test_types,   test_attributes, test_attribute_types, test_pool_shapes, test_registration,
    };
    for (uint32_t version = 24; version >= 21; version -= 3) {
        stand_in_choose(version);
        EXPECT(stand_in_load());
        EXPECT(stand_in_count("com.microsoft") >= 86 && stand_in_count("") == 8);
        for (size_t i = 0; i < sizeof tests / sizeof tests[0]; i++)
            tests[i]();
        EXPECT((stand_in_shapes() == 0) == (version == 24)); /* the newer one lends them */
    }
    return rg_test_report();
}
