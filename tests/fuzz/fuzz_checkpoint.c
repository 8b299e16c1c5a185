/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Checkpoints: the whole input is the file. The network is made and its tensors are read, in memory
 * that follows the size of the file; then it is written and opened again. */
#include "fuzz.h"

#include "cli/train_options.h"
#include "train/run_state.h"

#include <retrograde/trainer.h>

enum { MOST_LAYERS = 64 };

/* Whether the model has few layers; how large it says they are must not matter. */
static bool is_short(const rg_run_state *c)
{
    rg_model *model = NULL;
    const bool parsed = FUZZ_TRY(rg_model_parse(c->model_name, c->model, &model));
    const bool is_one = parsed && model->layers_count <= MOST_LAYERS;
    rg_model_destroy(model);
    return is_one;
}

static void check_round_trip(const rg_run_state *c, rg_stepper *trainer)
{
    rg_run_state again;
    rg_safetensors *file;
    const char *path = fuzz_path("again.safetensors");
    FUZZ_CHECK(rg_run_state_write(path, c, trainer) == RG_OK);
    FUZZ_CHECK(rg_run_state_open(path, &again, &file) == RG_OK);
    FUZZ_CHECK(strcmp(again.model, c->model) == 0 && strcmp(again.options, c->options) == 0);
    FUZZ_CHECK(again.epoch == c->epoch && again.steps == c->steps && again.loss == c->loss);
    rg_safetensors_close(file);
    rg_run_state_release(&again);
}

static void use(const char *path, const rg_safetensors *file, const rg_run_state *c)
{
    rg_train_request request = rg_train_defaults();
    char *text = strdup(c->options);
    FUZZ_CHECK(text != NULL);
    if (rg_train_options_read(&request, text) == RG_OK &&
        rg_train_options_check(&request) == RG_OK) {
        rg_trainer_desc desc;
        FUZZ_CHECK(rg_train_desc(&request, &desc) == RG_OK);
        rg_stepper_options options = { .network = c->network,
                                       .optimizer = desc.optimizer,
                                       .momentum = desc.momentum,
                                       .decay = desc.decay,
                                       .batch = desc.batch,
                                       .accumulate = (int32_t)desc.accumulate,
                                       .seed = (uint64_t)desc.seed };
        options.batch = options.batch < 4 ? options.batch : 4;
        options.use_only = (c->steps & 1) != 0;
        rg_model *model = NULL;
        rg_stepper *trainer = NULL;
        const rg_status status =
            rg_run_state_read(path, file, c, fuzz_reader_device(), &options, &model, &trainer);
        FUZZ_CHECK(status != RG_OUT_OF_MEMORY); /* the device has far more than an input is long */
        if (FUZZ_TRY(status)) {
            (void)FUZZ_TRY(rg_run_state_check(trainer));
            check_round_trip(c, trainer);
        }
        rg_stepper_destroy(trainer);
        rg_model_destroy(model);
    }
    free(text);
}

/* What the network says of an image, where it is small: a number for each answer, and each that the
 * program takes for a class is one. */
static void predict(const char *path, const rg_network_desc *n)
{
    enum { MOST = 4096 };
    static const uint8_t image[MOST];
    rg_trainer *trainer;
    if (n->height * n->width > MOST / RG_DATASET_CHANNELS ||
        !FUZZ_TRY(rg_trainer_load(fuzz_reader_device(), path, &trainer)))
        return;
    const int64_t count = rg_trainer_answers(trainer);
    float *answers = count <= 1 << 20 ? calloc((size_t)count, sizeof *answers) : NULL;
    if (answers != NULL && FUZZ_TRY(rg_trainer_predict(trainer, image, RG_U8, 1, answers))) {
        FUZZ_CHECK(n->target != RG_TARGET_LABELS || count == n->classes);
        for (int64_t i = 0; i < count && n->target == RG_TARGET_MASK; i++)
            FUZZ_CHECK(answers[i] >= 0 && answers[i] < (float)n->classes);
    }
    free(answers);
    rg_trainer_destroy(trainer);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[512];
    rg_run_state checkpoint;
    rg_safetensors *file = NULL;
    snprintf(path, sizeof path, "%s", fuzz_file("x.safetensors", data, size));
    if (FUZZ_TRY(rg_run_state_open(path, &checkpoint, &file))) {
        if (is_short(&checkpoint)) {
            use(path, file, &checkpoint);
            predict(path, &checkpoint.network);
        }
        rg_run_state_release(&checkpoint);
    } else {
        FUZZ_CHECK(file == NULL);
    }
    rg_safetensors_close(file);
    return 0;
}
