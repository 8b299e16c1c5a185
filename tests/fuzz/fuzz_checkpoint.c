/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Checkpoints: the whole input is the file. The network is made and its tensors are read, in memory
 * that follows the size of the file; then it is written and opened again. */
#include "fuzz.h"

#include "cli/train_options.h"
#include "train/checkpoint.h"

enum { MOST_LAYERS = 64 };

/* Whether the model has few layers; how large it says they are must not matter. */
static bool is_short(const rg_checkpoint *c)
{
    rg_model *model = NULL;
    const bool parsed = FUZZ_TRY(rg_model_parse(c->model_name, c->model, &model));
    const bool is_one = parsed && model->layers_count <= MOST_LAYERS;
    rg_model_destroy(model);
    return is_one;
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
        const rg_status status =
            rg_checkpoint_read(path, file, c, fuzz_reader_device(), &options, &model, &trainer);
        FUZZ_CHECK(status != RG_OUT_OF_MEMORY); /* the device has far more than an input is long */
        if (FUZZ_TRY(status)) {
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
        if (is_short(&checkpoint))
            use(path, file, &checkpoint);
        rg_checkpoint_release(&checkpoint);
    } else {
        FUZZ_CHECK(file == NULL);
    }
    rg_safetensors_close(file);
    return 0;
}
