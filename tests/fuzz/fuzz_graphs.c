/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* What the fuzz targets do with a graph that was read: write it again, plan it, run it. */
#include "fuzz.h"

#include "graph/plan.h"

#include <retrograde/files.h>

enum { MOST_BYTES = 1 << 22, MOST_SOURCES = 16, MOST_WORK = 1 << 20 };

void fuzz_graph_round_trip(rg_graph *graph)
{
    const size_t length = rg_graph_to_json(graph, NULL, 0);
    char *first = malloc(length + 1), *second = malloc(length + 1);
    rg_graph *again;
    FUZZ_CHECK(length > 0 && first != NULL && second != NULL);
    FUZZ_CHECK(rg_graph_to_json(graph, first, length + 1) == length);
    FUZZ_CHECK(rg_graph_from_json(first, length, &again) == RG_OK);
    FUZZ_CHECK(rg_graph_to_json(again, second, length + 1) == length);
    FUZZ_CHECK(strcmp(first, second) == 0);
    rg_graph_destroy(again);
    free(first);
    free(second);
}

/* A source: rank, dtype and small dimensions. */
static rg_tensor *make_source(fuzz_input *input)
{
    static const rg_dtype dtypes[] = { RG_F32,  RG_F32, RG_F32, RG_F16,
                                       RG_BF16, RG_F64, RG_I32, RG_I64 };
    const uint8_t kind = fuzz_byte(input);
    const int32_t rank = kind >> 5 & 3 ? (kind >> 5 & 3) + 1 : kind & 16 ? 0 : 1;
    int64_t dims[RG_MAX_RANK] = { 0 };
    for (int32_t d = 0; d < rank; d++)
        dims[d] = fuzz_byte(input) % 9;
    const rg_tensor_desc desc = rg_tensor_desc_dense(dtypes[kind % 8], rank, dims);
    rg_tensor *tensor = NULL;
    if (rg_tensor_create(fuzz_reader_device(), &desc, &tensor) == RG_OK)
        fuzz_zero(tensor);
    return tensor;
}

/* Whether a run is short: no large value, and not much work in a node. */
static bool is_small(const rg_plan *plan)
{
    if (rg_plan_bytes_apart(plan) > MOST_BYTES || rg_plan_scratch(plan) > MOST_BYTES)
        return false;
    for (int32_t i = 0; i < rg_plan_memory_count(plan); i++) {
        rg_memory_info info;
        FUZZ_CHECK(rg_plan_memory(plan, i, &info) == RG_OK);
        if (rg_shape_count(&info.desc) > MOST_WORK / 16)
            return false;
    }
    return true;
}

/* A state that the plan is given, for two images: of the graph's descriptor, for small inputs,
 * filled or not. */
static bool make_states(const rg_plan *plan, int32_t index, fuzz_input *input, rg_state *states[2])
{
    const rg_state_value *value = plan->graph->given[plan->given[index]];
    const int32_t inputs = rg_op_inputs(value->op, value->desc);
    rg_kernel *kernel = NULL;
    rg_tensor *x[RG_MAX_INPUTS] = { NULL };
    bool made = FUZZ_TRY(rg_kernel_create(fuzz_reader_device(), value->op, value->desc, &kernel));
    for (int32_t i = 0; made && i < inputs; i++) {
        x[i] = make_source(input);
        made = x[i] != NULL;
    }
    for (int n = 0; n < 2 && made; n++) {
        made = FUZZ_TRY(rg_state_create(kernel, x, &states[n]));
        for (int32_t i = 0; i < rg_state_count(states[n]); i++)
            fuzz_zero(states[n]->tensors[i]);
        if (made)
            states[n]->filled = (fuzz_byte(input) & 7) != 7;
    }
    for (int32_t i = 0; i < inputs; i++)
        rg_tensor_destroy(x[i]);
    rg_kernel_destroy(kernel);
    return made;
}

static void run_with_states(rg_plan *plan, rg_commands *commands, rg_tensor *const sources[],
                            rg_state *const states[])
{
    const int64_t count = rg_plan_sources(plan), given = rg_plan_source_states(plan);
    rg_tensor *images[2 * MOST_SOURCES];
    rg_state *first[MOST_SOURCES];
    for (int64_t i = 0; i < given; i++)
        first[i] = states[2 * i];
    (void)FUZZ_TRY(rg_plan_encode_with_states(plan, commands, sources, count, first, given));
    for (int64_t i = 0; i < 2 * count; i++) /* the first is another one for each image */
        images[i] = i == 1 ? sources[count - 1] : sources[i / 2];
    (void)FUZZ_TRY(
        rg_plan_encode_batch_with_states(plan, commands, 2, images, 2 * count, states, 2 * given));
}

static void run(rg_plan *plan, rg_tensor *const sources[], rg_state *const states[])
{
    rg_queue *queue = NULL;
    rg_commands *commands = NULL;
    FUZZ_CHECK(rg_queue_create(fuzz_reader_device(), &queue) == RG_OK);
    FUZZ_CHECK(rg_commands_create(queue, &commands) == RG_OK);
    if (rg_plan_source_states(plan) > 0)
        run_with_states(plan, commands, sources, states);
    else
        (void)FUZZ_TRY(rg_plan_encode(plan, commands, sources));
    if (FUZZ_TRY(rg_commands_commit(commands)))
        (void)FUZZ_TRY(rg_commands_wait(commands));
    rg_commands_destroy(commands);
    rg_queue_destroy(queue);
}

void fuzz_run_plan(rg_plan *plan, fuzz_input *input)
{
    const int32_t count = rg_plan_sources(plan);
    rg_tensor *sources[MOST_SOURCES] = { NULL };
    rg_state *states[2 * MOST_SOURCES] = { NULL }, *first[MOST_SOURCES];
    rg_tensor_desc descs[MOST_SOURCES];
    const int32_t given = rg_plan_source_states(plan);
    bool made = count <= MOST_SOURCES && given <= MOST_SOURCES;
    for (int32_t i = 0; made && i < count; i++) {
        sources[i] = make_source(input);
        made = sources[i] != NULL && rg_tensor_get_desc(sources[i], &descs[i]) == RG_OK;
    }
    for (int32_t k = 0; made && k < given; k++) {
        made = make_states(plan, k, input, states + 2 * k);
        first[k] = states[2 * k];
    }
    if (made && FUZZ_TRY(rg_plan_prepare_with_states(plan, descs, count, first, given)) &&
        is_small(plan))
        run(plan, sources, states);
    for (int32_t i = 0; i < MOST_SOURCES; i++) {
        rg_tensor_destroy(sources[i]);
        rg_state_destroy(states[2 * i]);
        rg_state_destroy(states[2 * i + 1]);
    }
}

/* Parameters are what a graph says, so that a short text can ask for much: not here. */
static bool has_small_parameters(const rg_graph *graph)
{
    size_t sum = 0;
    for (size_t i = 0; i < graph->values_count; i++) {
        const rg_value *value = graph->values[i];
        size_t bytes = 0;
        if (value->kind != RG_VALUE_PARAMETER)
            continue;
        if (rg_shape_check(&value->desc, "parameter", &bytes) != RG_OK || bytes > MOST_BYTES)
            return false;
        sum += bytes;
    }
    return sum <= MOST_BYTES;
}

void fuzz_run_graph(rg_graph *graph, fuzz_input *input)
{
    rg_plan *plan;
    rg_plan_options options = rg_plan_options_default();
    const uint8_t flags = fuzz_byte(input);
    options.fuse_neurons = options.fuse_losses = (flags & 1) == 0;
    options.in_place = (flags & 2) == 0;
    options.add_gradients = (flags & 4) == 0;
    options.poison = (flags & 8) != 0;
    options.budget = flags & 16 ? 4096 : 0;
    if (!has_small_parameters(graph))
        return;
    if (FUZZ_TRY(rg_plan_create(fuzz_reader_device(), graph, &options, &plan)))
        fuzz_run_plan(plan, input);
    else
        FUZZ_CHECK(plan == NULL);
    rg_plan_destroy(plan);
}
