/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Weights of other programs: three bytes of choices, the length of a model, its text, and a
 * safetensors file. A checkpoint is made of them, whose parameters are then read. */
#include "fuzz.h"

#include <retrograde/checkpoint.h>
#include <retrograde/trainer.h>

static void say(void *context, const char *sentence)
{
    (void)context;
    FUZZ_CHECK(sentence[0] != 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_input input = { data, size };
    const uint8_t sizes = fuzz_byte(&input), kind = fuzz_byte(&input), classes = fuzz_byte(&input);
    rg_network_desc network = rg_network_desc_default();
    network.height = 1 + (sizes & 7);
    network.width = 1 + (sizes >> 3 & 7);
    network.channels = 1 + (sizes >> 6);
    network.target = (rg_target_kind)(kind & 3);
    network.dtype = (rg_dtype)(kind >> 2 & 3);
    network.outputs = kind >> 4;
    network.classes = 1 + classes % 32;
    size_t taken;
    uint8_t *bytes = fuzz_take(&input, fuzz_word(&input) % 4096, &taken);
    char *text = malloc(taken + 1), path[512], made[512];
    FUZZ_CHECK(text != NULL);
    memcpy(text, bytes, taken);
    text[taken] = 0;
    free(bytes);
    snprintf(path, sizeof path, "%s", fuzz_file("w.safetensors", input.data, input.size));
    snprintf(made, sizeof made, "%s", fuzz_path("made.safetensors"));
    rg_model *model = NULL;
    rg_trainer *trainer = NULL;
    if (FUZZ_TRY(rg_model_parse("model", text, &model)) &&
        FUZZ_TRY(rg_checkpoint_import_weights(fuzz_reader_device(), model, &network, path, say,
                                              NULL, made))) {
        FUZZ_CHECK(rg_trainer_load(fuzz_reader_device(), made, &trainer) == RG_OK);
        FUZZ_CHECK(rg_trainer_answers(trainer) > 0);
    }
    rg_trainer_destroy(trainer);
    rg_model_destroy(model);
    free(text);
    fuzz_clear();
    return 0;
}
