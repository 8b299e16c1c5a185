/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Models as text: eight bytes for the images and the run, then the text. A model that is read
 * becomes a graph for training and for use, which is written as JSON and read again; a small one
 * takes a step. */
#include "fuzz.h"

#include "train/stepper.h"

#include <math.h>

enum { MOST_LAYERS = 64, MOST_ELEMENTS = 1 << 16, MOST_WORK = 1 << 22 };

/* Whether a step is short: few elements in all layers together, and few products with weights. */
static bool is_small(const rg_network *network, int64_t batch)
{
    double elements = 0, work = 0;
    for (size_t i = 0; i < network->layers_count; i++) {
        const double made = (double)rg_shape_count(&network->layers[i].desc);
        elements += made + (double)network->layers[i].parameters;
        work += made * (1 + (double)network->layers[i].parameters);
    }
    return elements * (double)batch <= MOST_ELEMENTS && work * (double)batch <= MOST_WORK;
}

static void train(const rg_model *model, const rg_network_desc *network, uint8_t choice)
{
    enum { BATCH = 3 };
    const rg_stepper_options options = { .network = *network,
                                         .optimizer = (rg_optimizer_kind)(choice % 3),
                                         .momentum = 0.9,
                                         .batch = BATCH,
                                         .accumulate = 1 + (choice >> 2 & 1),
                                         .seed = 1,
                                         .use_only = (choice & 8) != 0 };
    const size_t bytes = (size_t)(BATCH * network->height * network->width * network->channels) *
                         rg_dtype_size(network->dtype);
    void *images = calloc(1, bytes);
    const int32_t labels[BATCH] = { 0, network->classes - 1, 0 };
    const rg_step_data data = { .images = images, .labels = labels };
    rg_stepper *trainer = NULL;
    rg_outcome outcome;
    FUZZ_CHECK(images != NULL);
    if (FUZZ_TRY(rg_stepper_create(fuzz_reader_device(), model, &options, &trainer))) {
        if (!options.use_only && FUZZ_TRY(rg_stepper_step(trainer, &data, BATCH, 0.01, &outcome)))
            (void)FUZZ_TRY(rg_stepper_finish(trainer, &outcome));
        (void)FUZZ_TRY(rg_stepper_evaluate(trainer, &data, 2, NULL, &outcome));
    }
    rg_stepper_destroy(trainer);
    free(images);
}

static bool build(const rg_model *model, rg_network_desc options, bool training)
{
    rg_network network;
    options.training = training;
    if (!FUZZ_TRY(rg_network_create(model, &options, &network)))
        return false;
    fuzz_graph_round_trip(network.graph);
    const bool small = is_small(&network, 3);
    rg_network_destroy(&network);
    return small;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const rg_dtype dtypes[] = { RG_F32, RG_BF16, RG_F16, RG_F64 };
    fuzz_input input = { data, size };
    const uint8_t choice = fuzz_byte(&input);
    const rg_network_desc options = { .height = 1 + fuzz_byte(&input) % 32,
                                      .width = 1 + fuzz_byte(&input) % 32,
                                      .channels = 1 + fuzz_byte(&input) % 16,
                                      .classes = 1 + fuzz_byte(&input) % 16,
                                      .dtype = dtypes[choice >> 4 & 3],
                                      .seed = fuzz_byte(&input) };
    (void)fuzz_word(&input);
    char *text = fuzz_text(&input);
    rg_model *model;
    if (FUZZ_TRY(rg_model_parse("model", text, &model)) && model->layers_count <= MOST_LAYERS) {
        const bool small = build(model, options, true);
        if (build(model, options, false) && small)
            train(model, &options, choice);
    }
    rg_model_destroy(model);
    free(text);
    return 0;
}
