/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Trainers and checkpoints by their public headers alone: a run from the first value to a
 * prediction, a run that stops and continues, and invalid arguments and files. */
#include "tests/data_files.h"

#include <retrograde/checkpoint.h>
#include <retrograde/safetensors.h>

#include <math.h>

enum { PIXELS = 28 * 28, CLASSES = 10, LARGE = 1 << 20 };

static rg_device *device;
static rg_dataset *train_set, *test_set;

static rg_model *model_of(const char *name)
{
    rg_model *model = NULL;
    EXPECT_OK(rg_model_open(name, &model));
    return model;
}

static rg_trainer_desc short_desc(void)
{
    rg_trainer_desc desc = rg_trainer_desc_default();
    desc.epochs = 3;
    desc.batch = 50;
    return desc;
}

static rg_trainer *trainer_of(const char *name, const rg_trainer_desc *desc)
{
    rg_model *model = model_of(name);
    rg_trainer *trainer = NULL;
    EXPECT_OK(rg_trainer_create(device, model, train_set, desc, &trainer));
    rg_model_destroy(model); /* which the trainer does not need */
    return trainer;
}

/* ---- a run ---- */

typedef struct seen {
    int64_t calls, stop_at; /* 0: never */
    rg_trainer_progress last;
} seen;

static bool watch(void *context, const rg_trainer_progress *progress)
{
    seen *s = context;
    s->calls++;
    EXPECT(progress->epoch >= s->last.epoch && progress->batches >= s->last.batches);
    EXPECT(progress->right <= progress->images && progress->images <= progress->of);
    s->last = *progress;
    return s->calls != s->stop_at;
}

static double max_difference(const float *a, const float *b, int64_t count)
{
    double most = 0; /* no fmax: gcc 12 for aarch64 fails to compile such a loop */
    for (int64_t i = 0; i < count; i++) {
        const double difference = fabs((double)a[i] - (double)b[i]);
        if (!(difference <= most))
            most = difference;
    }
    return most;
}

/* Logits of a checkpoint's plan, as a program without trainer would have them. */
static void check_plan(const char *path, const float probabilities[CLASSES])
{
    rg_checkpoint *checkpoint = NULL;
    rg_checkpoint_info info = { 0 };
    rg_plan *plan = NULL;
    EXPECT_OK(rg_checkpoint_open(path, &checkpoint));
    EXPECT_OK(rg_checkpoint_get_info(checkpoint, &info));
    EXPECT_OK(rg_checkpoint_plan(checkpoint, device, &plan));
    rg_checkpoint_close(checkpoint);
    float pixels[PIXELS], logits[CLASSES], p[CLASSES], sum = 0;
    const uint8_t *image = rg_dataset_image(test_set, 0);
    for (int i = 0; i < PIXELS; i++)
        pixels[i] = (float)((image[i] / 255.0 - info.mean[0]) / info.deviation[0]);
    const rg_tensor_desc images = rg_tensor_desc_dense(RG_F32, 4, (int64_t[]){ 1, 28, 28, 1 });
    rg_tensor *source = NULL, *result = NULL;
    rg_queue *queue = NULL;
    rg_commands *commands = NULL;
    EXPECT_OK(rg_tensor_create(device, &images, &source));
    EXPECT_OK(rg_tensor_write(source, pixels, sizeof pixels, RG_LAYOUT_SAME));
    EXPECT_OK(rg_queue_create(device, &queue));
    EXPECT_OK(rg_commands_create(queue, &commands));
    EXPECT_OK(rg_plan_encode(plan, commands, &source));
    EXPECT_OK(rg_plan_result(plan, "logits", &result));
    EXPECT_OK(rg_commands_read(commands, result, logits, sizeof logits, RG_LAYOUT_SAME));
    EXPECT_OK(rg_commands_commit(commands));
    EXPECT_OK(rg_commands_wait(commands));
    for (int k = 0; k < CLASSES; k++)
        sum += p[k] = expf(logits[k]);
    for (int k = 0; k < CLASSES; k++)
        p[k] /= sum;
    EXPECT(max_difference(p, probabilities, CLASSES) < 1e-5);
    rg_commands_destroy(commands);
    rg_queue_destroy(queue);
    rg_tensor_destroy(source);
    rg_plan_destroy(plan);
}

/* A network that was loaded says what the one that was saved says, of bytes and of floats. */
static void check_loaded(const char *path, const rg_trainer_result *result,
                         const float probabilities[CLASSES])
{
    rg_trainer *loaded = NULL;
    rg_trainer_result again = { 0 };
    EXPECT_OK(rg_trainer_load(device, path, &loaded));
    EXPECT_OK(rg_trainer_evaluate(loaded, test_set, &again));
    EXPECT(again.images == result->images && again.right == result->right &&
           again.loss == result->loss && again.accuracy == result->accuracy);
    enum { IMAGES = 300 }; /* more than one batch, and not a multiple of it */
    static uint8_t pixels[IMAGES][PIXELS];
    static float floats[IMAGES][PIXELS], p[IMAGES][CLASSES], q[IMAGES][CLASSES];
    for (int64_t i = 0; i < IMAGES; i++) {
        memcpy(pixels[i], rg_dataset_image(test_set, i % 100), PIXELS);
        for (int k = 0; k < PIXELS; k++)
            floats[i][k] = (float)pixels[i][k] / 255;
    }
    EXPECT_OK(rg_trainer_predict(loaded, pixels, RG_U8, IMAGES, p[0]));
    EXPECT_OK(rg_trainer_predict(loaded, floats, RG_F32, IMAGES, q[0]));
    EXPECT(max_difference(p[0], probabilities, CLASSES) == 0);
    EXPECT(max_difference(p[0], q[0], (int64_t)IMAGES * CLASSES) < 1e-4);
    EXPECT(max_difference(p[0], p[100], CLASSES) < 1e-6);
    EXPECT_FAILS(rg_trainer_train(loaded, 1, NULL, NULL), RG_INVALID_STATE, "for use alone");
    EXPECT_FAILS(rg_trainer_save(loaded, path), RG_INVALID_STATE, "for use alone");
    rg_trainer_desc desc;
    EXPECT_FAILS(rg_trainer_get_desc(loaded, &desc), RG_INVALID_STATE, "for use alone");
    rg_trainer_destroy(loaded);
}

static void check_what_it_says(const char *path)
{
    rg_checkpoint *checkpoint = NULL;
    rg_checkpoint_info info = { 0 };
    rg_trainer_desc desc = { 0 };
    rg_graph *graph = NULL;
    EXPECT_OK(rg_checkpoint_open(path, &checkpoint));
    EXPECT_OK(rg_checkpoint_get_info(checkpoint, &info));
    EXPECT(info.network.size == sizeof info.network && info.network.height == 28 &&
           info.network.classes == CLASSES && !info.network.training);
    EXPECT(info.epochs == 3 && info.steps == 3 * 12 && info.best_epoch == 0);
    EXPECT(info.mean[0] > 0 && info.deviation[0] > 0);
    EXPECT(strcmp(rg_model_name(rg_checkpoint_model(checkpoint)), "small") == 0);
    EXPECT(strcmp(rg_checkpoint_class_name(checkpoint, 7), rg_dataset_class_name(train_set, 7)) ==
           0);
    EXPECT(rg_checkpoint_class_name(checkpoint, CLASSES)[0] == 0 &&
           rg_checkpoint_class_name(checkpoint, -1)[0] == 0);
    EXPECT_OK(rg_checkpoint_trainer_desc(checkpoint, &desc));
    EXPECT(desc.size == sizeof desc && desc.epochs == 3 && desc.batch == 50 &&
           desc.optimizer == RG_OPTIMIZER_ADAM && desc.momentum == 0.9);
    EXPECT_OK(rg_checkpoint_graph(checkpoint, &graph));
    rg_graph_destroy(graph);
    rg_checkpoint_close(checkpoint);
}

static void test_run(void)
{
    const rg_trainer_desc desc = short_desc();
    rg_trainer *trainer = trainer_of("small", &desc);
    rg_trainer_result before = { 0 }, after = { 0 };
    rg_trainer_progress progress = { 0 };
    seen s = { 0 };
    EXPECT_OK(rg_trainer_evaluate(trainer, test_set, &before));
    EXPECT_OK(rg_trainer_train(trainer, 100, watch, &s)); /* 3 there are */
    EXPECT(s.calls >= 3 * 12 && s.last.epoch == 3 && s.last.images == 600 && s.last.of == 600);
    EXPECT(s.last.now_images == 600 && s.last.now_seconds > 0 && s.last.loss > 0);
    EXPECT_OK(rg_trainer_get_progress(trainer, &progress));
    EXPECT(progress.epoch == 3 && progress.epochs == 3 && progress.images == 0 &&
           progress.steps == 36 && progress.batches == 36);
    EXPECT_OK(rg_trainer_evaluate(trainer, test_set, &after));
    EXPECT(after.images == 100 && after.loss < before.loss && after.accuracy > 0.5);
    float p[CLASSES];
    EXPECT_OK(rg_trainer_predict(trainer, rg_dataset_image(test_set, 0), RG_U8, 1, p));
    char path[512];
    snprintf(path, sizeof path, "%s", scratch("run.safetensors"));
    EXPECT_OK(rg_trainer_save(trainer, path));
    rg_trainer_destroy(trainer);
    /* the last bits of a product may depend on how many images it is of */
    float of_many[300][CLASSES];
    static uint8_t many[300][PIXELS];
    rg_trainer *again = NULL;
    EXPECT_OK(rg_trainer_load(device, path, &again));
    for (int64_t i = 0; i < 300; i++)
        memcpy(many[i], rg_dataset_image(test_set, i % 100), PIXELS);
    EXPECT_OK(rg_trainer_predict(again, many, RG_U8, 300, of_many[0]));
    EXPECT(max_difference(of_many[0], p, CLASSES) < 1e-5);
    rg_trainer_destroy(again);
    check_loaded(path, &after, of_many[0]);
    check_plan(path, p);
    check_what_it_says(path);
    scratch_remove("run.safetensors");
}

/* ---- stopping and continuing ---- */

static char files[2][LARGE];

static void save_as(rg_trainer *trainer, const char *name)
{
    EXPECT_OK(rg_trainer_save(trainer, scratch(name)));
}

/* With dropout and batch normalization, whose states go on, too. */
static rg_trainer *random_trainer(const rg_trainer_desc *desc)
{
    rg_model *model = NULL;
    rg_trainer *trainer = NULL;
    EXPECT_OK(rg_model_parse("random",
                             "conv 4 window=3\nbatch_norm\nneuron\npool\ndropout keep=0.7\n"
                             "dense classes\n",
                             &model));
    EXPECT_OK(rg_trainer_create(device, model, train_set, desc, &trainer));
    rg_model_destroy(model);
    return trainer;
}

/* The same bits without a stop, with one within an epoch, and in a new trainer. */
static void test_resume(void)
{
    rg_trainer_desc desc = short_desc();
    desc.epochs = 2;
    desc.accumulate = 5; /* of 12 batches an epoch */
    desc.shift = 1;
    rg_trainer *straight = random_trainer(&desc), *stopped = random_trainer(&desc);
    EXPECT_OK(rg_trainer_train(straight, 2, NULL, NULL));
    seen s = { .stop_at = 7 };
    rg_trainer_progress progress = { 0 };
    EXPECT_OK(rg_trainer_train(stopped, 2, watch, &s));
    EXPECT_OK(rg_trainer_get_progress(stopped, &progress));
    EXPECT(progress.epoch == 1 && progress.images == 350 && progress.batches == 7);
    save_as(stopped, "half.safetensors");
    rg_trainer_destroy(stopped);
    EXPECT_OK(rg_trainer_resume(device, scratch("half.safetensors"), train_set, NULL, &stopped));
    EXPECT_OK(rg_trainer_train(stopped, 1, NULL, NULL));
    EXPECT_OK(rg_trainer_get_progress(stopped, &progress));
    EXPECT(progress.epoch == 2 && progress.images == 0 && progress.batches == 12);
    EXPECT_OK(rg_trainer_train(stopped, 1, NULL, NULL));
    save_as(straight, "a.safetensors");
    save_as(stopped, "b.safetensors");
    const size_t size = scratch_read("a.safetensors", files[0], LARGE);
    EXPECT(size > 0 && size < LARGE && scratch_read("b.safetensors", files[1], LARGE) == size);
    EXPECT(memcmp(files[0], files[1], size) == 0);
    rg_trainer_destroy(straight);
    rg_trainer_destroy(stopped);
    scratch_remove("a.safetensors");
    scratch_remove("b.safetensors");
    scratch_remove("half.safetensors");
}

/* More epochs than were planned, and what cannot change. */
static void test_resume_changed(void)
{
    rg_trainer_desc desc = short_desc();
    desc.epochs = 1;
    rg_trainer *trainer = trainer_of("mlp", &desc), *more = NULL;
    rg_checkpoint *checkpoint = NULL;
    char path[512];
    snprintf(path, sizeof path, "%s", scratch("one.safetensors"));
    EXPECT_OK(rg_trainer_train(trainer, 1, NULL, NULL));
    save_as(trainer, "one.safetensors");
    rg_trainer_destroy(trainer);
    EXPECT_OK(rg_checkpoint_open(path, &checkpoint));
    EXPECT_OK(rg_checkpoint_trainer_desc(checkpoint, &desc));
    rg_checkpoint_close(checkpoint);
    desc.epochs = 2;
    EXPECT_OK(rg_trainer_resume(device, path, train_set, &desc, &more));
    rg_trainer_progress progress = { 0 };
    EXPECT_OK(rg_trainer_train(more, 9, NULL, NULL));
    EXPECT_OK(rg_trainer_get_progress(more, &progress));
    EXPECT(progress.steps == 24);
    EXPECT_OK(rg_trainer_get_desc(more, &desc));
    EXPECT(desc.epochs == 2 && desc.batch == 50);
    rg_trainer_destroy(more);
    rg_trainer_desc other = desc;
    other.optimizer = RG_OPTIMIZER_SGD;
    EXPECT_FAILS(rg_trainer_resume(device, path, train_set, &other, &more), RG_INVALID_ARGUMENT,
                 "cannot change");
    other = desc;
    other.accumulate = 2;
    EXPECT_FAILS(rg_trainer_resume(device, path, train_set, &other, &more), RG_INVALID_ARGUMENT,
                 "cannot change");
    other = desc;
    other.dtype = RG_F64;
    EXPECT_FAILS(rg_trainer_resume(device, path, train_set, &other, &more), RG_INVALID_ARGUMENT,
                 "the network is in f32");
    EXPECT(more == NULL);
    scratch_remove("one.safetensors");
}

/* ---- invalid calls ---- */

static void expect_wrong(const rg_model *model, rg_trainer_desc desc, const char *words)
{
    rg_trainer *trainer = NULL;
    EXPECT_FAILS(rg_trainer_create(device, model, train_set, &desc, &trainer), RG_INVALID_ARGUMENT,
                 words);
    EXPECT(trainer == NULL);
}

static void test_bad_desc(void)
{
    rg_model *model = model_of("mlp");
    rg_trainer_desc d = rg_trainer_desc_default();
#define WRONG(field, value, words)     \
    do {                               \
        d = rg_trainer_desc_default(); \
        d.field = (value);             \
        expect_wrong(model, d, words); \
    } while (0)
    WRONG(size, 0, "size is 0");
    WRONG(size, sizeof d + 4, "rg_trainer_desc_default()");
    WRONG(dtype, RG_U8, "dtype must be f32, f64, bf16 or f16, not u8");
    WRONG(optimizer, (rg_optimizer_kind)9, "optimizer is 9");
    WRONG(schedule, (rg_schedule_kind)-1, "schedule is -1");
    WRONG(rate, -1, "rate must be finite and at least 0, not -1");
    WRONG(rate, NAN, "rate must be finite and at least 0, not nan");
    WRONG(rate, INFINITY, "rate must be finite and at least 0, not inf");
    WRONG(momentum, 1, "momentum must be less than 1, not 1");
    WRONG(decay, -0.5, "decay must be finite and at least 0, not -0.5");
    WRONG(epochs, 0, "epochs must be between 1 and 1000000, not 0");
    WRONG(batch, 0, "batch must be between 1 and 1048576, not 0");
    WRONG(batch, INT64_MAX, "batch must be between");
    WRONG(accumulate, 100,
          "accumulate is 100; it can be at most the number of batches of the whole training, 60");
    WRONG(shift, 1025, "shift must be between 0 and 1024, not 1025");
    WRONG(crop, -1, "crop must be between 0 and 1024, not -1");
    WRONG(seed, -1, "seed must be between 0 and");
    WRONG(drop_every, 0, "drop-every must be between 1 and 1000000, not 0");
#undef WRONG
    rg_model_destroy(model);
}

static void test_null(void)
{
    const rg_trainer_desc desc = short_desc();
    rg_model *model = model_of("mlp");
    rg_trainer *t = NULL;
    rg_trainer_result result;
    rg_trainer_progress progress;
    float p[CLASSES];
    const rg_status wrong = RG_INVALID_ARGUMENT;
    EXPECT_FAILS(rg_trainer_create(NULL, model, train_set, &desc, &t), wrong, "device is NULL");
    EXPECT_FAILS(rg_trainer_create(device, NULL, train_set, &desc, &t), wrong, "model is NULL");
    EXPECT_FAILS(rg_trainer_create(device, model, NULL, &desc, &t), wrong, "set is NULL");
    EXPECT_FAILS(rg_trainer_create(device, model, train_set, NULL, &t), wrong, "desc is NULL");
    EXPECT_FAILS(rg_trainer_create(device, model, train_set, &desc, NULL), wrong,
                 "trainer is NULL");
    EXPECT_FAILS(rg_trainer_load(device, NULL, &t), wrong, "path is NULL");
    EXPECT_FAILS(rg_trainer_load(NULL, "x", &t), wrong, "device is NULL");
    EXPECT_FAILS(rg_trainer_load(device, "x", NULL), wrong, "trainer is NULL");
    EXPECT_FAILS(rg_trainer_resume(device, NULL, train_set, NULL, &t), wrong, "path is NULL");
    EXPECT_FAILS(rg_trainer_resume(device, "x", NULL, NULL, &t), wrong, "set is NULL");
    EXPECT_FAILS(rg_trainer_train(NULL, 1, NULL, NULL), wrong, "trainer is NULL");
    EXPECT_FAILS(rg_trainer_get_progress(NULL, &progress), wrong, "trainer is NULL");
    EXPECT_FAILS(rg_trainer_evaluate(NULL, test_set, &result), wrong, "trainer is NULL");
    EXPECT_FAILS(rg_trainer_predict(NULL, p, RG_F32, 1, p), wrong, "trainer is NULL");
    EXPECT_FAILS(rg_trainer_save(NULL, "x"), wrong, "trainer is NULL");
    EXPECT_OK(rg_trainer_create(device, model, train_set, &desc, &t));
    EXPECT_FAILS(rg_trainer_train(t, -1, NULL, NULL), wrong, "epochs is -1");
    EXPECT_FAILS(rg_trainer_get_progress(t, NULL), wrong, "progress is NULL");
    EXPECT_FAILS(rg_trainer_get_desc(t, NULL), wrong, "desc is NULL");
    EXPECT_FAILS(rg_trainer_evaluate(t, NULL, &result), wrong, "set is NULL");
    EXPECT_FAILS(rg_trainer_evaluate(t, test_set, NULL), wrong, "result is NULL");
    EXPECT_FAILS(rg_trainer_predict(t, NULL, RG_U8, 1, p), wrong, "pixels is NULL");
    EXPECT_FAILS(rg_trainer_predict(t, p, RG_U8, 1, NULL), wrong, "probabilities is NULL");
    EXPECT_FAILS(rg_trainer_predict(t, p, (rg_dtype)99, 1, p), wrong, "dtype is 99");
    EXPECT_FAILS(rg_trainer_predict(t, p, RG_F32, 0, p), wrong, "count is 0");
    EXPECT_FAILS(rg_trainer_save(t, NULL), wrong, "path is NULL");
    EXPECT_FAILS(rg_trainer_save(t, scratch("none/x")), RG_IO, "none/x");
    rg_trainer_destroy(t);
    rg_trainer_destroy(NULL);
    rg_model_destroy(model);
}

static void test_bad_files(void)
{
    static const char text[] = "no safetensors";
    char path[512];
    rg_trainer *t = NULL;
    rg_checkpoint *c = NULL;
    EXPECT_FAILS(rg_trainer_load(device, scratch("none"), &t), RG_IO, "none");
    EXPECT_FAILS(rg_trainer_resume(device, scratch("none"), train_set, NULL, &t), RG_IO, "none");
    EXPECT_FAILS(rg_checkpoint_open(scratch("none"), &c), RG_IO, "none");
    EXPECT_FAILS(rg_checkpoint_open(NULL, &c), RG_INVALID_ARGUMENT, "path is NULL");
    EXPECT_FAILS(rg_checkpoint_open("x", NULL), RG_INVALID_ARGUMENT, "checkpoint is NULL");
    scratch_write("bad", text, sizeof text);
    snprintf(path, sizeof path, "%s", scratch("bad"));
    EXPECT_FAILS(rg_trainer_load(device, path, &t), RG_MALFORMED, "bad");
    EXPECT_FAILS(rg_checkpoint_open(path, &c), RG_MALFORMED, "bad");
    EXPECT_OK(rg_safetensors_write(path, NULL, 0, NULL, 0));
    EXPECT_FAILS(rg_checkpoint_open(path, &c), RG_MALFORMED, "this is not a checkpoint");
    EXPECT(t == NULL && c == NULL);
    EXPECT(rg_checkpoint_model(NULL) == NULL && rg_checkpoint_class_name(NULL, 0)[0] == 0);
    EXPECT_FAILS(rg_checkpoint_get_info(NULL, NULL), RG_INVALID_ARGUMENT, "checkpoint is NULL");
    rg_checkpoint_close(NULL);
    scratch_remove("bad");
}

/* A set of two images (2, 3, 2) of classes 0 and 1 is not for a network of glyphs. */
static void test_other_set(void)
{
    const rg_trainer_desc desc = short_desc();
    const char pixels[24] = { 0 };
    const bytes images = npy_of("|u1", "False", "2, 2, 3, 2", pixels, sizeof pixels);
    const bytes labels = npy_of("|u1", "False", "2,", "\0\1", 2);
    write_file("x.npy", &images);
    write_file("y.npy", &labels);
    rg_dataset *other = NULL;
    EXPECT_OK(rg_dataset_open(scratch_folder, RG_DATASET_TRAIN, &other));
    clear_files();
    rg_trainer *trainer = trainer_of("mlp", &desc), *resumed = NULL;
    rg_trainer_result result;
    EXPECT_FAILS(rg_trainer_evaluate(trainer, other, &result), RG_INVALID_ARGUMENT,
                 "2x3x2 images and 2 classes, but the network needs 28x28x1 and 10");
    save_as(trainer, "glyphs.safetensors");
    EXPECT_FAILS(rg_trainer_resume(device, scratch("glyphs.safetensors"), other, NULL, &resumed),
                 RG_INVALID_ARGUMENT, "2x3x2");
    EXPECT(resumed == NULL);
    scratch_remove("glyphs.safetensors");
    rg_trainer_destroy(trainer);
    rg_dataset_destroy(other);
}

/* A run that diverges is over, and its network is not saved. */
static void test_divergence(void)
{
    static const char model_text[] = "dense 4\nneuron kind=linear a=1e25\ndense classes\n";
    rg_trainer_desc desc = short_desc();
    desc.optimizer = RG_OPTIMIZER_SGD;
    desc.rate = 1e30;
    rg_model *model = NULL;
    rg_trainer *trainer = NULL;
    EXPECT_OK(rg_model_parse("steep", model_text, &model));
    EXPECT_OK(rg_trainer_create(device, model, train_set, &desc, &trainer));
    EXPECT_FAILS(rg_trainer_train(trainer, 1, NULL, NULL), RG_INVALID_STATE,
                 "training diverged in epoch 1");
    EXPECT_FAILS(rg_trainer_train(trainer, 1, NULL, NULL), RG_INVALID_STATE, "diverged before");
    EXPECT_FAILS(rg_trainer_save(trainer, scratch("x")), RG_INVALID_STATE, "diverged");
    rg_trainer_destroy(trainer);
    rg_model_destroy(model);
}

int main(void)
{
    scratch_begin();
    EXPECT_OK(rg_device_create("cpu", NULL, &device));
    EXPECT_OK(rg_dataset_glyphs(1, 600, &train_set));
    EXPECT_OK(rg_dataset_glyphs(2, 100, &test_set));
    test_run();
    test_resume();
    test_resume_changed();
    test_bad_desc();
    test_null();
    test_bad_files();
    test_other_set();
    test_divergence();
    rg_dataset_destroy(train_set);
    rg_dataset_destroy(test_set);
    rg_device_destroy(device);
    scratch_end();
    return rg_test_report();
}
