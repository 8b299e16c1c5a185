/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Reductions: the winners of an extreme as a state, of calls and of plans. */
#include "any_device.h"

#include <math.h>

static rg_reduce_desc desc_of(rg_reduce_kind kind, int32_t count, const int64_t dims[])
{
    rg_reduce_desc desc = rg_reduce_desc_default();
    desc.kind = kind;
    desc.dims_count = count;
    for (int32_t i = 0; i < count; i++)
        desc.dims[i] = dims[i];
    return desc;
}

static rg_kernel *reduce_of(rg_device *device, const rg_reduce_desc *desc)
{
    rg_kernel *kernel = NULL;
    EXPECT_OK(rg_reduce_create(device, desc, &kernel));
    return kernel;
}

static rg_tensor *like(rg_device *device, rg_tensor *tensor)
{
    rg_tensor_desc desc;
    EXPECT_OK(rg_tensor_get_desc(tensor, &desc));
    return tensor_of(device, desc.dtype, desc.rank, desc.dims);
}

/* Few values, -0 and NaN among them, so that winners have equals. */
static void fill_with_equals(rg_tensor *tensor, uint64_t seed, bool special)
{
    const int64_t count = count_of(tensor);
    float *values = malloc((size_t)count * sizeof *values);
    for (int64_t i = 0; i < count; i++) {
        const int64_t drawn = draw_from(&seed, 0, 400);
        values[i] = drawn < 200 ? -0.0f : drawn < 396 ? 0.0f : special && drawn == 399 ? NAN : -1;
    }
    EXPECT_OK(rg_tensor_write(tensor, values, bytes_of(tensor), RG_LAYOUT_SAME));
    free(values);
}

/* ---- forms of a call ---- */

enum { FORMS = 4 };

/* dx from x alone, from the state alone, with a temporary state, from both; each is added to what
 * is there if `add` is not 0. All have the same bits, and so has y with and without a state. */
static void check_forms(rig *r, rg_kernel *kernel, rg_tensor *x, uint64_t add)
{
    rg_tensor *y = NULL, *same_y = NULL, *dx[FORMS];
    rg_state *state = NULL, *brief = NULL;
    EXPECT_OK(rg_kernel_forward_alloc(kernel, r->commands, 1, &x, false, &y, NULL));
    EXPECT_OK(rg_kernel_forward_alloc(kernel, r->commands, 1, &x, false, &same_y, &state));
    rg_tensor *dy = like(r->device, y);
    fill(dy, 5);
    for (int i = 0; i < FORMS; i++) {
        dx[i] = like(r->device, x);
        fill(dx[i], 6);
    }
    EXPECT_OK(rg_kernel_gradient(kernel, r->commands, &dy, &x, NULL, NULL, &dx[0], add));
    EXPECT_OK(rg_kernel_gradient(kernel, r->commands, &dy, NULL, NULL, state, &dx[1], add));
    EXPECT_OK(rg_state_create_temporary(kernel, r->commands, &x, &brief));
    EXPECT_OK(rg_kernel_forward(kernel, r->commands, &x, &y, brief));
    EXPECT_OK(rg_kernel_gradient(kernel, r->commands, &dy, NULL, NULL, brief, &dx[2], add));
    EXPECT_OK(rg_kernel_gradient(kernel, r->commands, &dy, &x, &y, state, &dx[3], add));
    EXPECT_OK(rig_run(r));
    EXPECT(same_bits(y, same_y));
    for (int i = 1; i < FORMS; i++)
        EXPECT(same_bits(dx[0], dx[i]));
    for (int i = 0; i < FORMS; i++)
        rg_tensor_destroy(dx[i]);
    rg_state_destroy(state);
    rg_state_destroy(brief);
    rg_tensor_destroy(y);
    rg_tensor_destroy(same_y);
    rg_tensor_destroy(dy);
}

typedef struct shape {
    int32_t rank, count;
    int64_t dims[4], reduced[3];
} shape;

/* Rows short and long, columns, several dimensions; whole vectors and not; groups of many parts. */
static const shape shapes[] = {
    { 2, 1, { 7, 64 }, { 1 } },           { 2, 1, { 5, 67 }, { 1 } },
    { 2, 1, { 3, 1024 }, { 1 } },         { 2, 1, { 3, 5001 }, { 1 } },
    { 2, 1, { 64, 48 }, { 0 } },          { 2, 1, { 67, 5 }, { 0 } },
    { 2, 1, { 4100, 8 }, { 0 } },         { 1, 0, { 70001 }, { 0 } },
    { 4, 2, { 2, 9, 7, 16 }, { 1, 2 } },  { 4, 2, { 2, 9, 7, 5 }, { 1, 2 } },
    { 3, 1, { 3, 5, 32 }, { 1 } },        { 3, 2, { 5, 7, 16 }, { 0, 2 } },
    { 3, 1, { 3, 1, 16 }, { 1 } },        { 2, 1, { 1, 32768 }, { 1 } },
    { 4, 2, { 2, 300, 2, 8 }, { 1, 2 } }, { 2, 1, { 0, 5 }, { 1 } },
};

static void test_forms(rig *r)
{
    static const rg_dtype dtypes[] = { RG_F32, RG_F64, RG_F16, RG_BF16 };
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        const shape *s = &shapes[i];
        const rg_reduce_kind kind = i % 2 == 0 ? RG_REDUCE_MAX : RG_REDUCE_MIN;
        const rg_reduce_desc desc = desc_of(kind, s->count, s->reduced);
        rg_kernel *kernel = reduce_of(r->device, &desc);
        for (int t = 0; t < 4; t++) {
            rg_tensor *x = filled(r->device, dtypes[t], s->rank, s->dims, i + 1);
            for (uint64_t add = 0; add < 2; add++)
                check_forms(r, kernel, x, add);
            rg_tensor_destroy(x);
        }
        rg_tensor *x = tensor_of(r->device, RG_F32, s->rank, s->dims);
        for (int special = 0; special < 2; special++) {
            fill_with_equals(x, i + 1, special != 0);
            check_forms(r, kernel, x, 0);
        }
        rg_tensor_destroy(x);
        rg_kernel_destroy(kernel);
    }
}

/* The state of an extreme has a number for each element of y; those of others have no tensor. */
static void test_slots(rig *r)
{
    rg_tensor *x = filled(r->device, RG_F32, 3, DIMS(2, 5, 3), 1);
    for (int kind = RG_REDUCE_SUM; kind <= RG_REDUCE_ARG_MAX; kind++) {
        rg_reduce_desc desc = desc_of((rg_reduce_kind)kind, 1, DIMS(1));
        desc.keep_dims = false;
        rg_kernel *kernel = reduce_of(r->device, &desc);
        const bool extreme = kind == RG_REDUCE_MIN || kind == RG_REDUCE_MAX;
        rg_state *state = NULL;
        rg_tensor *y = NULL, *winners = NULL;
        rg_tensor_desc found;
        EXPECT_OK(rg_kernel_forward_alloc(kernel, r->commands, 1, &x, false, &y, &state));
        EXPECT_OK(rig_run(r));
        EXPECT(rg_state_count(state) == (extreme ? 1 : 0));
        EXPECT(rg_kernel_modifies_state(kernel, false) == extreme);
        EXPECT(!rg_kernel_modifies_state(kernel, true));
        if (extreme) {
            rg_reduce_desc arg = desc;
            arg.kind = kind == RG_REDUCE_MIN ? RG_REDUCE_ARG_MIN : RG_REDUCE_ARG_MAX;
            rg_kernel *finder = reduce_of(r->device, &arg);
            rg_tensor *numbers = NULL;
            EXPECT_OK(rg_kernel_forward_alloc(finder, r->commands, 1, &x, false, &numbers, NULL));
            EXPECT_OK(rig_run(r));
            EXPECT_OK(rg_state_tensor(state, "winners", &winners));
            EXPECT_OK(rg_tensor_get_desc(winners, &found));
            EXPECT(found.dtype == RG_I64 && found.rank == 2 && found.dims[1] == 3);
            EXPECT(same_bits(winners, numbers));
            rg_tensor_destroy(numbers);
            rg_kernel_destroy(finder);
        }
        rg_state_destroy(state);
        rg_tensor_destroy(y);
        rg_kernel_destroy(kernel);
    }
    rg_tensor_destroy(x);
}

/* ---- winners of a caller ---- */

/* Winners belong to the caller once they are made: an element gets dy if its number is there, and
 * nothing is indexed. */
static void check_any_winner(rig *r, const int64_t dims[2], int64_t axis, const int64_t values[4])
{
    const rg_reduce_desc desc = desc_of(RG_REDUCE_MAX, 1, &axis);
    rg_kernel *kernel = reduce_of(r->device, &desc);
    rg_tensor *x = filled(r->device, RG_F32, 2, dims, 1), *y = NULL, *winners = NULL;
    rg_state *state = NULL;
    EXPECT_OK(rg_kernel_forward_alloc(kernel, r->commands, 1, &x, false, &y, &state));
    EXPECT_OK(rig_run(r));
    const int64_t groups = dims[1 - axis];
    int64_t *numbers = malloc((size_t)groups * sizeof *numbers);
    float *got = malloc(bytes_of(x)), dy_values[4] = { 1, 10, 100, 1000 };
    rg_tensor *dy = like(r->device, y), *dx = like(r->device, x);
    EXPECT_OK(rg_state_tensor(state, "winners", &winners));
    for (int64_t o = 0; o < groups; o++)
        numbers[o] = values[o % 4];
    EXPECT_OK(rg_tensor_write(winners, numbers, bytes_of(winners), RG_LAYOUT_SAME));
    for (int64_t o = 0; o < groups; o++)
        got[o] = dy_values[o % 4];
    EXPECT_OK(rg_tensor_write(dy, got, bytes_of(dy), RG_LAYOUT_SAME));
    for (int add = 0; add < 2; add++) { /* twice as much after the second */
        EXPECT_OK(
            rg_kernel_gradient(kernel, r->commands, &dy, NULL, NULL, state, &dx, (uint64_t)add));
        EXPECT_OK(rig_run(r));
        EXPECT_OK(rg_tensor_read(dx, got, bytes_of(dx), RG_LAYOUT_SAME));
        int wrong = 0;
        for (int64_t i = 0; i < dims[0] * dims[1]; i++) {
            const int64_t o = axis == 1 ? i / dims[1] : i % dims[1];
            const int64_t j = axis == 1 ? i % dims[1] : i / dims[1];
            const float want = numbers[o] == j ? dy_values[o % 4] * (float)(1 + add) : 0;
            wrong += got[i] != want;
        }
        EXPECT(wrong == 0);
    }
    free(numbers);
    free(got);
    rg_tensor *const all[] = { x, y, dy, dx };
    for (int i = 0; i < 4; i++)
        rg_tensor_destroy(all[i]);
    rg_state_destroy(state);
    rg_kernel_destroy(kernel);
}

static void test_any_winner(rig *r)
{
    static const int64_t values[][4] = { { -1, 0, 1, 2 },
                                         { INT64_MIN, INT64_MAX, 63, 64 },
                                         { 62, INT64_MAX - 63, INT64_MIN + 16383, -64 },
                                         { 16384, 16383, 32767, 32768 },
                                         { INT64_C(1) << 32, (INT64_C(1) << 32) + 3, -2, 4 } };
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        check_any_winner(r, DIMS(8, 64), 1, values[i]);
        check_any_winner(r, DIMS(8, 67), 1, values[i]);
        check_any_winner(r, DIMS(64, 8), 0, values[i]);
        check_any_winner(r, DIMS(67, 5), 0, values[i]);
        check_any_winner(r, DIMS(4, 32768), 1, values[i]);
        check_any_winner(r, DIMS(16400, 4), 0, values[i]);
    }
}

/* ---- plans ---- */

/* The number of tensors of states in the storage of a plan. */
static int32_t states_of(const rg_plan *plan)
{
    int32_t count = 0;
    for (int32_t i = 0; i < rg_plan_memory_count(plan); i++) {
        rg_memory_info info;
        EXPECT_OK(rg_plan_memory(plan, i, &info));
        count += info.state != NULL && strcmp(info.state, "winners") == 0;
    }
    return count;
}

/* A global maximum of a source: training keeps the winners and reads the source once; inference
 * keeps none. */
static void test_plans(rig *r)
{
    rg_tensor *x = filled(r->device, RG_F32, 4, DIMS(2, 6, 5, 16), 3), *y[2], *dx = NULL;
    const rg_reduce_desc desc = desc_of(RG_REDUCE_MAX, 2, DIMS(1, 2));
    for (int trains = 0; trains < 2; trains++) {
        rg_graph *graph = NULL;
        EXPECT_OK(rg_graph_create(&graph));
        rg_value *in = rg_graph_source(graph, "x");
        rg_node *node = rg_graph_reduce(graph, &desc, &in);
        rg_value *out = rg_node_output(node, 0);
        EXPECT_OK(rg_graph_result(graph, out, "y"));
        if (trains) {
            rg_node *back = rg_graph_gradient(graph, node, &out, 1);
            EXPECT_OK(rg_graph_result(graph, rg_node_output(back, 0), "dx"));
        }
        rg_plan *plan = NULL;
        rg_tensor *made = NULL;
        EXPECT_OK(rg_plan_create(r->device, graph, NULL, &plan));
        EXPECT_OK(rg_plan_encode(plan, r->commands, &x));
        EXPECT_OK(rig_run(r));
        EXPECT(states_of(plan) == trains && rg_plan_launches(plan) == 1 + trains);
        EXPECT_OK(rg_plan_result(plan, "y", &made));
        y[trains] = like(r->device, made);
        char *values = elements_of(made);
        EXPECT_OK(rg_tensor_write(y[trains], values, bytes_of(made), RG_LAYOUT_SAME));
        free(values);
        if (trains) {
            rg_kernel *kernel = reduce_of(r->device, &desc);
            EXPECT_OK(rg_kernel_gradient_alloc(kernel, r->commands, 1, &y[1], &x, NULL, NULL, 1,
                                               false, &dx));
            EXPECT_OK(rig_run(r));
            EXPECT_OK(rg_plan_result(plan, "dx", &made));
            EXPECT(same_bits(dx, made));
            rg_kernel_destroy(kernel);
        }
        rg_plan_destroy(plan);
        rg_graph_destroy(graph);
    }
    EXPECT(same_bits(y[0], y[1]));
    rg_tensor *const all[] = { x, y[0], y[1], dx };
    for (int i = 0; i < 4; i++)
        rg_tensor_destroy(all[i]);
}

int main(void)
{
    RUN_ON_DEVICES(test_forms, test_slots, test_any_winner, test_plans);
    return rg_test_report();
}
