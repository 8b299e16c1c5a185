/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Evaluation by the public headers alone: predictions, confusions, images from files, getters; and
 * drawings of graphs. */
#include "tests/data_files.h"
#include "tests/markup.h"

#include <retrograde/files.h>
#include <retrograde/trainer.h>

#include <math.h>

enum { PIXELS = 28 * 28, CLASSES = 10, IMAGES = 100 };

static rg_device *device;
static rg_dataset *set;
static rg_trainer *trainer;

static void train(void)
{
    rg_trainer_desc desc = rg_trainer_desc_default();
    rg_dataset *train_set = NULL;
    rg_model *model = NULL;
    desc.epochs = 1;
    EXPECT_OK(rg_dataset_glyphs(1, 600, &train_set));
    EXPECT_OK(rg_model_open("mlp", &model));
    EXPECT_OK(rg_trainer_create(device, model, train_set, &desc, &trainer));
    EXPECT_OK(rg_trainer_train(trainer, 1, NULL, NULL));
    rg_model_destroy(model);
    rg_dataset_destroy(train_set);
}

static void test_what_it_is(void)
{
    rg_network_desc network;
    EXPECT(strcmp(rg_model_name(rg_trainer_model(trainer)), "mlp") == 0);
    EXPECT(rg_trainer_model(NULL) == NULL && rg_trainer_parameters(NULL) == 0);
    EXPECT_OK(rg_trainer_get_network(trainer, &network));
    EXPECT(network.size == sizeof network && network.height == 28 && network.classes == CLASSES &&
           network.dtype == RG_F32 && !network.training);
    EXPECT(rg_trainer_parameters(trainer) > PIXELS);
    EXPECT(strcmp(rg_trainer_class_name(trainer, 3), rg_dataset_class_name(set, 3)) == 0);
    EXPECT(rg_trainer_class_name(trainer, CLASSES)[0] == 0 &&
           rg_trainer_class_name(trainer, -1)[0] == 0 && rg_trainer_class_name(NULL, 0)[0] == 0);
    EXPECT_OK(rg_trainer_check_set(trainer, set));
    EXPECT_FAILS(rg_trainer_check_set(NULL, set), RG_INVALID_ARGUMENT, "trainer is NULL");
    EXPECT_FAILS(rg_trainer_get_network(trainer, NULL), RG_INVALID_ARGUMENT, "network is NULL");
}

static void test_names(void)
{
    rg_trainer_desc desc = rg_trainer_desc_default();
    EXPECT_OK(rg_optimizer_parse("sgd", &desc.optimizer));
    EXPECT_OK(rg_schedule_parse("step", &desc.schedule));
    EXPECT(desc.optimizer == RG_OPTIMIZER_SGD && desc.schedule == RG_SCHEDULE_STEP);
    EXPECT(rg_trainer_desc_base_rate(&desc) == 0.05);
    desc.rate = 0.5;
    EXPECT(rg_trainer_desc_base_rate(&desc) == 0.5);
    EXPECT_OK(rg_trainer_desc_check(&desc));
    desc.batch = 0;
    EXPECT_FAILS(rg_trainer_desc_check(&desc), RG_INVALID_ARGUMENT, "batch must be");
    EXPECT_FAILS(rg_trainer_desc_check(NULL), RG_INVALID_ARGUMENT, "desc is NULL");
    EXPECT_FAILS(rg_optimizer_parse(NULL, &desc.optimizer), RG_INVALID_ARGUMENT, "name is NULL");
    EXPECT_FAILS(rg_schedule_parse("step", NULL), RG_INVALID_ARGUMENT, "schedule is NULL");
    EXPECT(rg_trainer_desc_base_rate(NULL) == 0);
    EXPECT_FAILS(rg_optimizer_parse("x", &desc.optimizer), RG_INVALID_ARGUMENT, "not 'x'");
    EXPECT_FAILS(rg_schedule_parse("x", &desc.schedule), RG_INVALID_ARGUMENT, "not 'x'");
}

/* ---- predictions ---- */

static void test_verdicts(void)
{
    rg_prediction predictions[IMAGES];
    rg_confusion_cell cells[IMAGES];
    rg_confusion_class classes[CLASSES];
    rg_trainer_result result, plain;
    EXPECT_OK(rg_trainer_predict_set(trainer, set, predictions, &result));
    EXPECT_OK(rg_trainer_evaluate(trainer, set, &plain));
    EXPECT(result.right == plain.right && result.loss == plain.loss);
    int64_t right = 0;
    for (int64_t i = 0; i < IMAGES; i++) {
        float p[CLASSES];
        const rg_prediction *v = &predictions[i];
        EXPECT_OK(rg_trainer_predict(trainer, rg_dataset_image(set, i), RG_U8, 1, p));
        EXPECT(v->label == rg_dataset_label(set, i) && v->predicted >= 0 && v->predicted < CLASSES);
        EXPECT(fabsf(p[v->predicted] - v->probability) < 1e-5f);
        EXPECT(fabsf(p[v->label] - v->of_label) < 1e-5f && v->of_label <= v->probability);
        right += v->label == v->predicted;
    }
    EXPECT(right == result.right);
    const int64_t count = rg_confusion_cells(predictions, IMAGES, cells);
    int64_t images = 0;
    for (int64_t i = 0; i < count; i++)
        images += cells[i].count;
    EXPECT(images == IMAGES);
    rg_confusion_count(cells, count, CLASSES, classes);
    right = 0;
    for (int k = 0; k < CLASSES; k++)
        right += classes[k].right;
    EXPECT(right == result.right);
    EXPECT_FAILS(rg_trainer_predict_set(trainer, set, NULL, &result), RG_INVALID_ARGUMENT,
                 "predictions");
    EXPECT_FAILS(rg_trainer_predict_set(NULL, set, predictions, &result), RG_INVALID_ARGUMENT,
                 "trainer");
}

static void test_confusion(void)
{
    const rg_prediction predictions[] = { { .label = 2, .predicted = 1 },
                                          { .label = 0, .predicted = 0 },
                                          { .label = 2, .predicted = 1 },
                                          { .label = 2, .predicted = 2 },
                                          { .label = 0, .predicted = 1 } };
    rg_confusion_cell cells[5], mistakes[5];
    rg_confusion_class classes[4];
    EXPECT(rg_confusion_cells(NULL, 0, NULL) == 0);
    EXPECT(rg_confusion_cells(predictions, 5, cells) == 4);
    EXPECT(cells[0].label == 0 && cells[0].predicted == 0 && cells[0].count == 1);
    EXPECT(cells[2].label == 2 && cells[2].predicted == 1 && cells[2].count == 2);
    EXPECT(rg_confusion_mistakes(cells, 4, mistakes, 5) == 2);
    EXPECT(mistakes[0].label == 2 && mistakes[0].count == 2 && mistakes[1].label == 0);
    EXPECT(rg_confusion_mistakes(cells, 4, mistakes, 1) == 1);
    EXPECT(rg_confusion_mistakes(cells, 4, mistakes, 0) == 0);
    EXPECT(rg_confusion_mistakes(NULL, 4, mistakes, 1) == 0);
    rg_confusion_count(cells, 4, 2, classes); /* class 2 does not count */
    EXPECT(classes[0].labels == 2 && classes[1].predictions == 1);
    rg_confusion_count(cells, 4, 4, NULL);
    rg_confusion_weakest(NULL, 4);
    rg_confusion_count(cells, 4, 4, classes);
    EXPECT(classes[1].predictions == 3 && classes[1].labels == 0 && classes[2].labels == 3);
    rg_confusion_weakest(classes, 4); /* 1 of 3, 1 of 2, then those without images */
    EXPECT(classes[0].index == 2 && classes[1].index == 0 && classes[2].index == 1);
}

/* ---- files ---- */

static void test_files(void)
{
    const rg_tensor_desc desc = rg_tensor_desc_dense(RG_F64, 3, (int64_t[]){ 28, 28, 1 });
    const uint8_t *image = rg_dataset_image(set, 5);
    double numbers[PIXELS];
    unsigned char rows[28 * 29] = { 0 };
    float p[CLASSES], of_file[CLASSES];
    rg_tensor *tensor = NULL;
    EXPECT_OK(rg_trainer_predict(trainer, image, RG_U8, 1, p));
    for (int i = 0; i < PIXELS; i++) {
        numbers[i] = image[i] / 255.0;
        rows[i / 28 * 29 + 1 + i % 28] = image[i]; /* a filter byte before each row */
    }
    EXPECT_OK(rg_trainer_predict(trainer, numbers, RG_F64, 1, of_file));
    EXPECT(memcmp(p, of_file, sizeof p) == 0);
    EXPECT_OK(rg_tensor_create(device, &desc, &tensor));
    EXPECT_OK(rg_tensor_write(tensor, numbers, sizeof numbers, RG_LAYOUT_SAME));
    EXPECT_OK(rg_tensor_save_npy(tensor, scratch("x.npy")));
    EXPECT_OK(rg_trainer_predict_file(trainer, scratch("x.npy"), of_file));
    EXPECT(memcmp(p, of_file, sizeof p) == 0);
    if (RG_HAVE_PNG) {
        bytes png = png_start(28, 28, 8, 0, 0), small = png_start(2, 1, 8, 0, 0);
        png_end(&png, rows, sizeof rows);
        png_end(&small, "\0ab", 3);
        write_file("x.png", &png);
        EXPECT_OK(rg_trainer_predict_file(trainer, scratch("x.png"), of_file));
        EXPECT(memcmp(p, of_file, sizeof p) == 0);
        write_file("x.png", &small);
        EXPECT_FAILS(rg_trainer_predict_file(trainer, scratch("x.png"), of_file),
                     RG_INVALID_ARGUMENT, "x.png: the image has 1x2 pixels");
    }
    scratch_write("bad.npy", "x", 1);
    EXPECT_FAILS(rg_trainer_predict_file(trainer, scratch("bad.npy"), of_file), RG_MALFORMED,
                 "bad.npy");
    EXPECT_FAILS(rg_trainer_predict_file(trainer, scratch("none"), of_file), RG_IO, "none");
    EXPECT_FAILS(rg_trainer_predict_file(trainer, NULL, of_file), RG_INVALID_ARGUMENT, "path");
    rg_tensor_destroy(tensor);
    clear_files();
}

/* ---- drawings ---- */

static void test_drawings(void)
{
    const rg_network_desc desc = rg_network_desc_default();
    rg_graph *graph = NULL;
    size_t size;
    EXPECT_OK(rg_model_graph(rg_trainer_model(trainer), &desc, &graph));
    EXPECT_OK(rg_graph_draw(graph, "a title", scratch("x.svg")));
    EXPECT_OK(rg_graph_draw(graph, NULL, scratch("x.dot")));
    char *svg = markup_take("x.svg", &size), *dot = markup_take("x.dot", &size);
    EXPECT(markup_check(svg, NULL) && strstr(svg, "a title") != NULL);
    EXPECT(strstr(dot, "digraph") != NULL && strstr(dot, "dense") != NULL);
    free(svg);
    free(dot);
    EXPECT_FAILS(rg_graph_draw(NULL, "x", "x"), RG_INVALID_ARGUMENT, "graph is NULL");
    EXPECT_FAILS(rg_graph_draw(graph, "x", NULL), RG_INVALID_ARGUMENT, "path is NULL");
    EXPECT_FAILS(rg_graph_draw(graph, "x", scratch("none/x")), RG_IO, "none/x");
    rg_graph_destroy(graph);
}

int main(void)
{
    scratch_begin();
    EXPECT_OK(rg_device_create("cpu", NULL, &device));
    EXPECT_OK(rg_dataset_glyphs(2, IMAGES, &set));
    train();
    test_what_it_is();
    test_names();
    test_verdicts();
    test_confusion();
    test_files();
    test_drawings();
    rg_trainer_destroy(trainer);
    rg_dataset_destroy(set);
    rg_device_destroy(device);
    scratch_end();
    return rg_test_report();
}
