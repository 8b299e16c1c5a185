/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Training in a program of one's own: a model as text, images that the library draws, four epochs,
 * a checkpoint and a report; then the checkpoint is loaded and says what it sees in an image.
 *
 *      train_in_c [checkpoint.safetensors [report.html]] */
#include <retrograde/checkpoint.h>
#include <retrograde/retrograde.h>

#include <stdio.h>

enum { CLASSES = 10 };

#define TRY(call)                         \
    do {                                  \
        const rg_status status_ = (call); \
        if (status_ != RG_OK)             \
            return status_;               \
    } while (0)

static const char text[] = "conv 8 window=3 padding.policy=same\n"
                           "neuron\n"
                           "pool\n"
                           "dense classes\n";

/* Every tenth batch is told; false would end training. */
static bool watch(void *context, const rg_trainer_progress *p)
{
    (void)context;
    if (p->batches % 10 == 0)
        printf("epoch %d: %4d of %d images, loss %.3f\n", (int)p->epoch, (int)p->images, (int)p->of,
               p->loss);
    return true;
}

/* Each epoch is validated, so that the report shows how good the network became. */
static rg_status train_epochs(rg_trainer *trainer, const rg_dataset *others, int64_t epochs)
{
    rg_trainer_result result;
    for (int64_t i = 0; i < epochs; i++) {
        TRY(rg_trainer_train(trainer, 1, watch, NULL));
        TRY(rg_trainer_validate(trainer, others, &result));
    }
    return RG_OK;
}

static rg_status train(rg_device *device, const rg_dataset *images, const rg_dataset *others,
                       const char *path, const char *report)
{
    rg_trainer_desc desc = rg_trainer_desc_default();
    rg_report_desc about = rg_report_desc_default();
    rg_model *model = NULL;
    rg_trainer *trainer = NULL;
    desc.epochs = 4;
    desc.batch = 32;
    about.data = "drawn glyphs";
    rg_status status = rg_model_parse("four layers", text, &model);
    if (status == RG_OK)
        status = rg_trainer_create(device, model, images, &desc, &trainer);
    if (status == RG_OK)
        status = train_epochs(trainer, others, desc.epochs);
    if (status == RG_OK)
        status = rg_trainer_save(trainer, path);
    if (status == RG_OK)
        status = rg_trainer_report(trainer, others, &about, report, NULL);
    rg_trainer_destroy(trainer);
    rg_model_destroy(model);
    return status;
}

/* Another program could begin here. */
static rg_status use(rg_device *device, const rg_dataset *images, const char *path, bool *good)
{
    rg_trainer *network;
    rg_trainer_result result;
    float probabilities[CLASSES];
    int32_t best = 0;
    TRY(rg_trainer_load(device, path, &network));
    rg_status status = rg_trainer_evaluate(network, images, &result);
    if (status == RG_OK)
        status = rg_trainer_predict(network, rg_dataset_image(images, 0), RG_U8, 1, probabilities);
    rg_trainer_destroy(network);
    TRY(status);
    for (int32_t k = 1; k < CLASSES; k++)
        best = probabilities[k] > probabilities[best] ? k : best;
    printf("%d of %d new images are right; the first one is a %s, by %.1f %%\n", (int)result.right,
           (int)result.images, rg_dataset_class_name(images, best),
           100 * (double)probabilities[best]);
    *good = result.accuracy > 0.8;
    return RG_OK;
}

int main(int argc, char **argv)
{
    const char *path = argc > 1 ? argv[1] : "train_in_c.safetensors";
    const char *report = argc > 2 ? argv[2] : "train_in_c.html";
    rg_device *device = NULL;
    rg_dataset *images = NULL, *others = NULL;
    bool good = false;
    rg_status status = rg_device_create("cpu", NULL, &device);
    if (status == RG_OK)
        status = rg_dataset_glyphs(1, 2000, &images);
    if (status == RG_OK)
        status = rg_dataset_glyphs(2, 200, &others);
    if (status == RG_OK)
        status = train(device, images, others, path, report);
    if (status == RG_OK)
        status = use(device, others, path, &good);
    if (status != RG_OK)
        fprintf(stderr, "%s\n", rg_error_text());
    rg_dataset_destroy(images);
    rg_dataset_destroy(others);
    rg_device_destroy(device);
    return status == RG_OK && good ? 0 : 1;
}
