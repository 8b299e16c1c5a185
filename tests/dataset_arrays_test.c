/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Data sets of the caller's arrays: created, refused, shown, and trained with. */
#include "tests/test.h"
#include "train/findings.h"

#include <retrograde/trainer.h>

#include <math.h>
#include <stdlib.h>

enum { COUNT = 60, WIDTH = 4 };
static float pixels[COUNT * WIDTH], values[COUNT];
static int32_t labels[COUNT];

static rg_dataset_arrays arrays_of(rg_target_kind target)
{
    rg_dataset_arrays a = rg_dataset_arrays_default();
    a.count = COUNT;
    a.width = WIDTH;
    a.pixels = pixels;
    a.target = target;
    a.labels = target == RG_TARGET_CLASS ? labels : NULL;
    a.values = target == RG_TARGET_VALUES ? values : NULL;
    a.classes = 2;
    return a;
}

static void test_create(void)
{
    static const char *const names[] = { "low", "high" };
    rg_dataset_arrays a = arrays_of(RG_TARGET_CLASS);
    rg_dataset_info info = { 0 };
    rg_dataset *set = NULL;
    a.names = names;
    EXPECT_OK(rg_dataset_create(&a, &set));
    EXPECT_OK(rg_dataset_get_info(set, &info));
    EXPECT(info.count == COUNT && info.width == WIDTH && info.classes == 2 &&
           info.target == RG_TARGET_CLASS && info.targets == 1);
    EXPECT(rg_dataset_label(set, 1) == labels[1] && rg_dataset_label(set, COUNT) == -1);
    EXPECT(strcmp(rg_dataset_class_name(set, 1), "high") == 0);
    float image[WIDTH] = { 0 };
    EXPECT_OK(rg_dataset_read_image(set, 3, image));
    EXPECT(memcmp(image, pixels + 3 * WIDTH, sizeof image) == 0);
    EXPECT_FAILS(rg_dataset_read_image(set, COUNT, image), RG_INVALID_ARGUMENT, "does not exist");
    rg_dataset_destroy(set);
}

/* A table is one in memory as in a file: its columns are measured one by one. */
static void test_columns(void)
{
    const float table[6] = { -1, 1000, 5, 3, 2000, 5 };
    const int32_t classes[2] = { 1, 0 };
    rg_dataset_arrays a = arrays_of(RG_TARGET_CLASS);
    rg_dataset *set = NULL;
    double mean[3] = { 0 }, deviation[3] = { 0 };
    int64_t columns = -1;
    a.count = 2;
    a.width = 3;
    a.pixels = table;
    a.labels = classes;
    EXPECT_OK(rg_dataset_create(&a, &set));
    EXPECT_OK(rg_dataset_measure_columns(set, &columns, mean, deviation));
    EXPECT(columns == 3 && mean[0] == 1 && mean[1] == 1500 && mean[2] == 5);
    EXPECT(deviation[0] == 2 && deviation[1] == 500 && deviation[2] == 1);
    rg_dataset_destroy(set);
    a.count = 1;
    a.height = 2;
    EXPECT_OK(rg_dataset_create(&a, &set)); /* an image */
    EXPECT_OK(rg_dataset_measure_columns(set, &columns, mean, deviation));
    EXPECT(columns == 0);
    rg_dataset_destroy(set);
}

static void test_refused(void)
{
    const rg_status wrong = RG_INVALID_ARGUMENT;
    rg_dataset *set = NULL;
    rg_dataset_arrays a = arrays_of(RG_TARGET_CLASS);
    a.classes = 1;
    EXPECT_FAILS(rg_dataset_create(&a, &set), wrong, "but there are 1 classes");
    a = arrays_of(RG_TARGET_CLASS);
    a.labels = NULL;
    EXPECT_FAILS(rg_dataset_create(&a, &set), wrong, "NULL");
    a = arrays_of(RG_TARGET_CLASS);
    a.count = 0;
    EXPECT_FAILS(rg_dataset_create(&a, &set), wrong, "no images");
    a = arrays_of(RG_TARGET_CLASS);
    a.dtype = RG_F64;
    EXPECT_FAILS(rg_dataset_create(&a, &set), wrong, "dtype");
    a = arrays_of(RG_TARGET_VALUES);
    const float kept = values[5];
    values[5] = NAN;
    EXPECT_FAILS(rg_dataset_create(&a, &set), wrong, "value 5");
    values[5] = kept;
    a = arrays_of(RG_TARGET_MASK);
    a.labels = labels;
    EXPECT_FAILS(rg_dataset_create(&a, &set), wrong, "the 1 x 4 pixels of its image");
    a.targets = WIDTH * 2;
    EXPECT_FAILS(rg_dataset_create(&a, &set), wrong, "targets is 8");
    a.size = 1;
    EXPECT_FAILS(rg_dataset_create(&a, &set), wrong, "size is 1");
    EXPECT_FAILS(rg_dataset_create(NULL, &set), wrong, "arrays is NULL");
    EXPECT(set == NULL);
}

/* Of any range, also one that no float holds. */
static void test_picture(void)
{
    const float wide[] = { -3e38f, 3e38f, 0, -3e38f };
    rg_dataset_arrays a = arrays_of(RG_TARGET_CLASS);
    rg_dataset *set = NULL;
    uint8_t picture[WIDTH] = { 0 };
    a.count = 1;
    a.pixels = wide;
    EXPECT_OK(rg_dataset_create(&a, &set));
    EXPECT_OK(rg_findings_picture(set, 0, picture));
    EXPECT(picture[0] == 0 && picture[1] == 255 && picture[2] == 128 && picture[3] == 0);
    rg_dataset_destroy(set);
}

/* A network that learns values: the loss falls, and predictions come near. */
static void test_training(void)
{
    rg_dataset_arrays a = arrays_of(RG_TARGET_VALUES);
    rg_trainer_desc desc = rg_trainer_desc_default();
    rg_trainer_result before = { 0 }, after = { 0 };
    rg_device *device = NULL;
    rg_dataset *set = NULL;
    rg_model *model = NULL;
    rg_trainer *trainer = NULL;
    float answer = 0;
    EXPECT_OK(rg_device_create("cpu", NULL, &device));
    EXPECT_OK(rg_dataset_create(&a, &set));
    EXPECT_OK(rg_model_open("mlp", &model));
    desc.epochs = 40;
    desc.batch = 20;
    EXPECT_OK(rg_training_loss_parse("huber", &desc.loss));
    EXPECT_FAILS(rg_training_loss_parse("square", &desc.loss), RG_INVALID_ARGUMENT, "loss must be");
    desc.has_loss = true;
    EXPECT_OK(rg_trainer_create(device, model, set, &desc, &trainer));
    EXPECT(rg_trainer_answers(trainer) == 1 && rg_trainer_answers(NULL) == 0);
    EXPECT_OK(rg_trainer_evaluate(trainer, set, &before));
    EXPECT_OK(rg_trainer_train(trainer, 40, NULL, NULL));
    EXPECT_OK(rg_trainer_evaluate(trainer, set, &after));
    EXPECT(after.loss < 0.1 * before.loss && after.score < 0.2 && isnan(after.accuracy));
    EXPECT_OK(rg_trainer_predict(trainer, pixels, RG_F32, 1, &answer));
    EXPECT(fabsf(answer - values[0]) < 0.5f);
    rg_prediction predictions[COUNT];
    EXPECT_FAILS(rg_trainer_predict_set(trainer, set, predictions, &after), RG_INVALID_STATE,
                 "one class");
    rg_trainer_destroy(trainer);
    rg_model_destroy(model);
    rg_dataset_destroy(set);
    rg_device_destroy(device);
}

int main(void)
{
    for (int i = 0; i < COUNT; i++) {
        for (int k = 0; k < WIDTH; k++)
            pixels[i * WIDTH + k] = (float)((i * 7 + k * 3) % 11) / 11;
        values[i] = 2 * pixels[i * WIDTH] - pixels[i * WIDTH + 1];
        labels[i] = values[i] > 0.5f;
    }
    test_create();
    test_columns();
    test_refused();
    test_picture();
    test_training();
    return rg_test_report();
}
