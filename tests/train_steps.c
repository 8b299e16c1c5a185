/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Ten steps of a network, for train_torch_test.py: writes the checkpoints before and after, the
 * images, the labels and the losses into a folder.
 *
 * usage: train_steps MODEL DTYPE OPTIMIZER DEVICE FOLDER */
#include "train/run_state.h"

#include <stdio.h>
#include <stdlib.h>

enum { STEPS = 10, BATCH = 8, HEIGHT = 14, WIDTH = 14, CLASSES = 10 };
enum { PIXELS = HEIGHT * WIDTH };

static uint64_t seed = 1;

static double draw(void)
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (double)(seed >> 40) / 0x1p24;
}

static int fail(const char *what)
{
    fprintf(stderr, "train_steps: %s: %s\n", what, rg_error_text());
    return 1;
}

static rg_status write_checkpoint(const char *folder, const char *name, rg_stepper *trainer,
                                  const rg_model *model, const rg_network_desc *network)
{
    static char class_name[] = "a class", no_options[] = "";
    char path[4096], *names[CLASSES];
    snprintf(path, sizeof path, "%s/%s.safetensors", folder, name);
    for (int i = 0; i < CLASSES; i++)
        names[i] = class_name;
    const rg_run_state checkpoint = { .model_name = model->name,
                                      .model = model->text,
                                      .network = *network,
                                      .class_names = names,
                                      .options = no_options };
    return rg_run_state_write(path, &checkpoint, trainer);
}

static rg_status train(rg_stepper *trainer, rg_dtype dtype, FILE *data, FILE *losses)
{
    double pixels[BATCH * PIXELS];
    char images[sizeof pixels];
    int32_t labels[BATCH];
    rg_outcome outcome;
    for (int step = 0; step < STEPS; step++) {
        for (int i = 0; i < BATCH * PIXELS; i++)
            pixels[i] = (float)(2 * draw() - 1);
        for (int i = 0; i < BATCH; i++)
            labels[i] = (int32_t)(draw() * CLASSES);
        for (int64_t i = 0; i < BATCH * PIXELS; i++)
            rg_element_set(images, dtype, i, pixels[i]);
        fwrite(pixels, sizeof pixels, 1, data);
        fwrite(labels, sizeof labels, 1, data);
        const rg_step_data batch = { .images = images, .labels = labels };
        RG_TRY(rg_stepper_step(trainer, &batch, BATCH, 0.01, &outcome));
        do {
            if (outcome.images > 0)
                fprintf(losses, "%.17g\n", outcome.loss);
            RG_TRY(rg_stepper_finish(trainer, &outcome));
        } while (outcome.images > 0);
    }
    return RG_OK;
}

int main(int argc, char **argv)
{
    if (argc != 6)
        return fail("usage: train_steps MODEL DTYPE OPTIMIZER DEVICE FOLDER");
    rg_network_desc network = {
        .height = HEIGHT, .width = WIDTH, .channels = 1, .classes = CLASSES, .dtype = RG_F64
    };
    rg_device_options device_options = rg_device_options_default();
    rg_model *model;
    rg_device *device;
    rg_stepper *trainer;
    if (rg_dtype_parse(argv[2], &network.dtype) != RG_OK || rg_model_open(argv[1], &model) != RG_OK)
        return fail("model");
    if (rg_device_create(argv[4], &device_options, &device) != RG_OK)
        return fail("device");
    const rg_stepper_options options = { .network = network,
                                         .optimizer = strcmp(argv[3], "sgd") == 0
                                                          ? RG_OPTIMIZER_SGD
                                                          : RG_OPTIMIZER_ADAM,
                                         .momentum = 0.9,
                                         .batch = BATCH,
                                         .accumulate = 1,
                                         .seed = 3 };
    if (rg_stepper_create(device, model, &options, &trainer) != RG_OK)
        return fail("trainer");
    char path[4096];
    snprintf(path, sizeof path, "%s/data", argv[5]);
    FILE *data = fopen(path, "wb");
    snprintf(path, sizeof path, "%s/losses", argv[5]);
    FILE *losses = fopen(path, "w");
    if (data == NULL || losses == NULL)
        return fail("files");
    if (write_checkpoint(argv[5], "before", trainer, model, &network) != RG_OK ||
        train(trainer, network.dtype, data, losses) != RG_OK ||
        write_checkpoint(argv[5], "after", trainer, model, &network) != RG_OK)
        return fail("training");
    const bool written = fclose(data) == 0 && fclose(losses) == 0;
    rg_stepper_destroy(trainer);
    rg_device_destroy(device);
    rg_model_destroy(model);
    return written ? 0 : fail("files");
}
