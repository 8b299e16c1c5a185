/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Checkpoints: the whole input is the file. A network that is small is made, its tensors are read,
 * and it is written and opened again. */
#include "fuzz.h"

#include "cli/train_options.h"
#include "train/checkpoint.h"

enum { MOST_LAYERS = 64, MOST_ELEMENTS = 1 << 18 };

/* Whether the network is one that is soon made: others are for fuzz_model. */
static bool is_small(const rg_checkpoint *c)
{
    rg_model *model = NULL;
    rg_network network;
    double elements = 0;
    if (!FUZZ_TRY(rg_model_parse(c->model_name, c->model, &model)) ||
        model->layers_count > MOST_LAYERS) {
        rg_model_destroy(model);
        return false;
    }
    const bool made = FUZZ_TRY(rg_network_create(model, &c->network, &network));
    for (size_t i = 0; made && i < network.layers_count; i++)
        elements +=
            (double)rg_shape_count(&network.layers[i].desc) + (double)network.layers[i].parameters;
    if (made)
        rg_network_destroy(&network);
    rg_model_destroy(model);
    return made && elements <= MOST_ELEMENTS;
}

static void check_round_trip(const rg_checkpoint *c, rg_trainer *trainer)
{
    rg_checkpoint again;
    rg_safetensors *file;
    const char *path = fuzz_path("again.safetensors");
    FUZZ_CHECK(rg_checkpoint_write(path, c, trainer) == RG_OK);
    FUZZ_CHECK(rg_checkpoint_open(path, &again, &file) == RG_OK);
    FUZZ_CHECK(strcmp(again.model, c->model) == 0 && strcmp(again.options, c->options) == 0);
    FUZZ_CHECK(again.epoch == c->epoch && again.steps == c->steps && again.loss == c->loss);
    rg_safetensors_close(file);
    rg_checkpoint_release(&again);
}

static void use(const char *path, const rg_safetensors *file, const rg_checkpoint *c)
{
    rg_train_request request = rg_train_defaults();
    char *text = strdup(c->options);
    FUZZ_CHECK(text != NULL);
    if (FUZZ_TRY(rg_train_options_read(&request, text)) &&
        FUZZ_TRY(rg_train_options_check(&request))) {
        rg_trainer_options options = rg_train_trainer_options(&request, &c->network);
        options.batch = options.batch < 4 ? options.batch : 4;
        options.use_only = (c->steps & 1) != 0;
        rg_model *model = NULL;
        rg_trainer *trainer = NULL;
        if (FUZZ_TRY(rg_checkpoint_read(path, file, c, fuzz_reader_device(), &options, &model,
                                        &trainer))) {
            (void)FUZZ_TRY(rg_checkpoint_check(trainer));
            check_round_trip(c, trainer);
        }
        rg_trainer_destroy(trainer);
        rg_model_destroy(model);
    }
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[512];
    rg_checkpoint checkpoint;
    rg_safetensors *file = NULL;
    snprintf(path, sizeof path, "%s", fuzz_file("x.safetensors", data, size));
    if (FUZZ_TRY(rg_checkpoint_open(path, &checkpoint, &file))) {
        if (is_small(&checkpoint))
            use(path, file, &checkpoint);
        rg_checkpoint_release(&checkpoint);
    } else {
        FUZZ_CHECK(file == NULL);
    }
    rg_safetensors_close(file);
    return 0;
}
