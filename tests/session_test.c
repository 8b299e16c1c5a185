/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Sessions: gradients that add up, parameters in one buffer, schedules, files, and what is wrong.
 */
#include "tests/scratch_folder.h"

#include <retrograde/session.h>

#include <math.h>
#include <string.h>

enum { BATCH = 6, SIZE = 4, CLASSES = 3, MOST = 512 };

static rg_device *device;
static rg_tensor *images, *labels;

static void make_batch(void)
{
    double pixels[BATCH * SIZE * SIZE];
    int32_t classes[BATCH];
    uint64_t seed = 7;
    for (int i = 0; i < BATCH * SIZE * SIZE; i++)
        pixels[i] = (double)(scratch_random(&seed) >> 11) * 0x1p-53;
    for (int i = 0; i < BATCH; i++)
        classes[i] = i % CLASSES;
    const rg_tensor_desc image_desc =
        rg_tensor_desc_dense(RG_F64, 4, (const int64_t[]){ BATCH, SIZE, SIZE, 1 });
    const rg_tensor_desc label_desc =
        rg_tensor_desc_dense(RG_I32, 3, (const int64_t[]){ BATCH, 1, 1 });
    EXPECT_OK(rg_tensor_create(device, &image_desc, &images));
    EXPECT_OK(rg_tensor_create(device, &label_desc, &labels));
    EXPECT_OK(rg_tensor_write(images, pixels, sizeof pixels, RG_LAYOUT_SAME));
    EXPECT_OK(rg_tensor_write(labels, classes, sizeof classes, RG_LAYOUT_SAME));
}

static rg_session *session_of(const char *text, rg_optimizer_kind optimizer, double rate,
                              const char *freeze)
{
    rg_session_desc desc = rg_session_desc_default();
    rg_model *model = NULL;
    rg_session *session = NULL;
    desc.network.dtype = RG_F64;
    desc.network.height = desc.network.width = SIZE;
    desc.network.classes = CLASSES;
    desc.network.freeze = freeze;
    desc.optimizer = optimizer;
    desc.momentum = 0;
    desc.rate = rate;
    EXPECT_OK(rg_model_parse("model", text, &model));
    EXPECT_OK(rg_session_create(device, model, &desc, &session));
    rg_model_destroy(model);
    return session;
}

static const char text[] = "conv 2 window=3\nneuron\ndropout keep=0.999999\ndense classes\n";

static int64_t read_all(rg_session *session, double values[MOST])
{
    const int64_t count = rg_session_parameters(session, true);
    EXPECT(count > 0 && count <= MOST);
    EXPECT_OK(rg_session_read_parameters(session, true, values, count));
    return count;
}

/* Two batches at half the rate are one batch at the whole one: gradients add up. */
static void test_gradients(void)
{
    rg_session *once = session_of(text, RG_OPTIMIZER_SGD, 0.5, NULL);
    rg_session *twice = session_of(text, RG_OPTIMIZER_SGD, 0.25, NULL);
    double a[MOST], b[MOST], before[MOST], loss = 0;
    const int64_t count = read_all(once, before);
    EXPECT_FAILS(rg_session_optimizer_step(once), RG_INVALID_STATE, "no gradients");
    for (int step = 0; step < 3; step++) {
        EXPECT_OK(rg_session_train_step(once, images, labels, &loss));
        EXPECT(isfinite(loss) && loss > 0);
        for (int i = 0; i < 2; i++)
            EXPECT_OK(rg_session_train_step(twice, images, labels, NULL));
        EXPECT_OK(rg_session_optimizer_step(once));
        EXPECT_OK(rg_session_optimizer_step(twice));
        EXPECT_OK(rg_session_reset_gradients(once));
        EXPECT_OK(rg_session_reset_gradients(twice));
        EXPECT(read_all(once, a) == count && read_all(twice, b) == count);
        for (int64_t i = 0; i < count; i++)
            EXPECT(fabs(a[i] - b[i]) < 1e-4);
    }
    EXPECT(memcmp(a, before, (size_t)count * sizeof *a) != 0);
    EXPECT_OK(rg_session_write_parameters(once, true, before, count));
    EXPECT(read_all(once, a) == count && memcmp(a, before, (size_t)count * sizeof *a) == 0);
    EXPECT_FAILS(rg_session_write_parameters(once, true, a, count - 1), RG_INVALID_ARGUMENT,
                 "the buffer");
    rg_session_destroy(once);
    rg_session_destroy(twice);
}

static void test_frozen(void)
{
    rg_session *session = session_of(text, RG_OPTIMIZER_ADAM, 0.1, "conv1.*");
    const int64_t trained = rg_session_parameters(session, true);
    const int64_t all = rg_session_parameters(session, false);
    double before[MOST], after[MOST];
    EXPECT(trained < all && all <= MOST);
    EXPECT_OK(rg_session_read_parameters(session, false, before, all));
    EXPECT_OK(rg_session_train_step(session, images, labels, NULL));
    EXPECT_OK(rg_session_optimizer_step(session));
    EXPECT_OK(rg_session_read_parameters(session, false, after, all));
    EXPECT(memcmp(before, after, (size_t)(all - trained) * sizeof *after) == 0);
    EXPECT(memcmp(before, after, (size_t)all * sizeof *after) != 0);
    rg_session_destroy(session);
}

static void test_rates(void)
{
    rg_session *session = session_of(text, RG_OPTIMIZER_ADAM, 0.1, NULL);
    EXPECT_FAILS(rg_session_schedule_step(session), RG_INVALID_STATE, "no schedule");
    EXPECT_FAILS(rg_session_schedule_linear(session, 5, 5), RG_INVALID_ARGUMENT, "total");
    EXPECT_OK(rg_session_schedule_linear(session, 2, 4));
    const double rates[] = { 0.05, 0.1, 0.05, 0, 0 };
    for (int i = 0; i < 5; i++) {
        EXPECT_OK(rg_session_schedule_step(session));
        EXPECT(fabs(rg_session_rate(session) - rates[i]) < 1e-15);
    }
    EXPECT_OK(rg_session_set_rate(session, 0.3));
    EXPECT(rg_session_rate(session) == 0.3 && rg_session_rate(NULL) == 0);
    EXPECT_FAILS(rg_session_set_rate(session, (double)NAN), RG_INVALID_ARGUMENT, "rate");
    rg_session_destroy(session);
}

/* A session that is loaded continues with the same bits. */
static void test_files(void)
{
    rg_session *session = session_of(text, RG_OPTIMIZER_ADAM, 0.01, NULL);
    rg_session *other = session_of("dense classes\n", RG_OPTIMIZER_ADAM, 0.01, NULL);
    double losses[2][3];
    EXPECT_OK(rg_session_train_step(session, images, labels, NULL));
    EXPECT_OK(rg_session_optimizer_step(session));
    EXPECT_OK(rg_session_save(session, scratch("session")));
    for (int run = 0; run < 2; run++) {
        for (int i = 0; i < 3; i++) {
            EXPECT_OK(rg_session_train_step(session, images, labels, &losses[run][i]));
            EXPECT_OK(rg_session_optimizer_step(session));
        }
        EXPECT_OK(rg_session_load(session, scratch("session")));
    }
    EXPECT(memcmp(losses[0], losses[1], sizeof losses[0]) == 0);
    EXPECT_FAILS(rg_session_load(other, scratch("session")), RG_MALFORMED, "missing");
    scratch_write("bad", "nothing", 7);
    EXPECT_FAILS(rg_session_load(session, scratch("bad")), RG_MALFORMED, "bad");
    EXPECT_FAILS(rg_session_load(session, scratch("none")), RG_IO, "none");
    EXPECT_OK(rg_session_export(other, scratch("model.onnx")));
    scratch_remove("model.onnx");
    scratch_remove("bad");
    scratch_remove("session");
    rg_session_destroy(session);
    rg_session_destroy(other);
}

/* The mean of no losses was NaN, and so were all parameters after it. */
static void test_empty(rg_session *session)
{
    const rg_tensor_desc pixels =
        rg_tensor_desc_dense(RG_F64, 4, (const int64_t[]){ 0, SIZE, SIZE, 1 });
    const rg_tensor_desc classes = rg_tensor_desc_dense(RG_I32, 3, (const int64_t[]){ 0, 1, 1 });
    rg_tensor *no_images = NULL, *no_labels = NULL;
    EXPECT_OK(rg_tensor_create(device, &pixels, &no_images));
    EXPECT_OK(rg_tensor_create(device, &classes, &no_labels));
    EXPECT_FAILS(rg_session_train_step(session, no_images, no_labels, NULL), RG_INVALID_ARGUMENT,
                 "no images");
    EXPECT_FAILS(rg_session_eval_step(session, no_images, no_labels, NULL, NULL),
                 RG_INVALID_ARGUMENT, "no images");
    rg_tensor_destroy(no_images);
    rg_tensor_destroy(no_labels);
}

static void test_bad_calls(void)
{
    rg_session_desc desc = rg_session_desc_default();
    rg_session *session = session_of(text, RG_OPTIMIZER_RMSPROP, 0.01, NULL), *none = session;
    rg_model *model = NULL;
    double outputs[BATCH * CLASSES];
    rg_tensor *small = NULL;
    const rg_tensor_desc wrong = rg_tensor_desc_dense(RG_F64, 4, (const int64_t[]){ 1, 1, 1, 1 });
    const rg_tensor_desc right =
        rg_tensor_desc_dense(RG_F64, 2, (const int64_t[]){ BATCH, CLASSES });
    EXPECT_OK(rg_tensor_create(device, &wrong, &small));
    EXPECT_FAILS(rg_session_train_step(session, small, labels, NULL), RG_INVALID_ARGUMENT, "4x4");
    EXPECT_FAILS(rg_session_train_step(session, labels, labels, NULL), RG_INVALID_ARGUMENT, "f64");
    EXPECT_FAILS(rg_session_train_step(session, NULL, labels, NULL), RG_INVALID_ARGUMENT, "NULL");
    test_empty(session);
    EXPECT_FAILS(rg_session_eval_step(session, images, labels, NULL, small), RG_INVALID_ARGUMENT,
                 "18");
    rg_tensor_destroy(small);
    EXPECT_OK(rg_tensor_create(device, &right, &small));
    EXPECT_OK(rg_session_eval_step(session, images, labels, NULL, small));
    EXPECT_OK(rg_tensor_read(small, outputs, sizeof outputs, RG_LAYOUT_SAME));
    EXPECT(isfinite(outputs[0]));
    rg_tensor_destroy(small);
    EXPECT_OK(rg_model_open("mlp", &model));
    desc.network.dtype = RG_F16;
    EXPECT_FAILS(rg_session_create(device, model, &desc, &none), RG_INVALID_ARGUMENT, "f32 or f64");
    desc = rg_session_desc_default();
    desc.network.freeze = "nothing.*";
    EXPECT_FAILS(rg_session_create(device, model, &desc, &none), RG_INVALID_ARGUMENT,
                 "no parameter");
    EXPECT(none == NULL);
    desc = rg_session_desc_default();
    desc.rate = -1;
    EXPECT_FAILS(rg_session_create(device, model, &desc, &none), RG_INVALID_ARGUMENT, "rate");
    EXPECT_FAILS(rg_session_create(device, NULL, &desc, &none), RG_INVALID_ARGUMENT, "NULL");
    EXPECT_FAILS(rg_session_create(device, model, NULL, &none), RG_INVALID_ARGUMENT, "default");
    EXPECT(rg_session_parameters(NULL, true) == 0);
    rg_model_destroy(model);
    rg_session_destroy(session);
    rg_session_destroy(NULL);
}

/* One parameter by its name changes the others in no way; files keep the caller's texts. */
static void test_names(void)
{
    rg_session *session = session_of(text, RG_OPTIMIZER_SGD, 0.5, NULL), *other;
    const int32_t count = rg_session_parameter_count(session);
    double before[MOST], after[MOST], values[MOST];
    int64_t numbers = 0;
    const int64_t all = read_all(session, before);
    EXPECT(count == 4 && rg_session_parameter_count(NULL) == 0);
    for (int32_t i = 0; i < count; i++) {
        const char *name = NULL;
        rg_tensor_desc desc;
        bool trained = false;
        rg_tensor *tensor = NULL;
        EXPECT_OK(rg_session_parameter_at(session, i, &name, &desc, &trained));
        EXPECT(trained && desc.dtype == RG_F64);
        EXPECT_OK(rg_tensor_create(device, &desc, &tensor));
        EXPECT_OK(rg_session_read_parameter(session, name, tensor));
        int64_t own = 1;
        for (int32_t d = 0; d < desc.rank; d++)
            own *= desc.dims[d];
        EXPECT_OK(rg_tensor_read(tensor, values, (size_t)own * sizeof values[0], RG_LAYOUT_SAME));
        for (int64_t k = 0; k < own; k++) {
            EXPECT(values[k] == before[numbers + k]);
            values[k] += 1;
        }
        EXPECT_OK(rg_tensor_write(tensor, values, (size_t)own * sizeof values[0], RG_LAYOUT_SAME));
        if (i == 1)
            EXPECT_OK(rg_session_write_parameter(session, name, tensor));
        read_all(session, after);
        for (int64_t k = 0; k < all; k++)
            EXPECT(i == 1 && k >= numbers && k < numbers + own ? after[k] == before[k] + 1 : true);
        if (i == 1)
            memcpy(before + numbers, values, (size_t)own * sizeof values[0]);
        numbers += own;
        EXPECT_FAILS(rg_session_read_parameter(session, "none", tensor), RG_INVALID_ARGUMENT,
                     "no parameter 'none'");
        EXPECT_FAILS(rg_session_read_parameter(session, name, images), RG_INVALID_ARGUMENT,
                     "dimensions of the file");
        rg_tensor_destroy(tensor);
    }
    EXPECT(numbers == all && memcmp(before, after, (size_t)all * sizeof before[0]) == 0);
    EXPECT_FAILS(rg_session_parameter_at(session, count, NULL, NULL, NULL), RG_INVALID_ARGUMENT,
                 "no parameter 4");
    EXPECT_OK(rg_session_set_property(session, "epoch", "3"));
    EXPECT_OK(rg_session_set_property(session, "classes", "a \"b\"\n"));
    EXPECT_OK(rg_session_set_property(session, "epoch", "4"));
    EXPECT(strcmp(rg_session_property_text(session, "epoch"), "4") == 0);
    EXPECT(rg_session_property_text(session, "none") == NULL);
    EXPECT_FAILS(rg_session_set_property(session, "", "x"), RG_INVALID_ARGUMENT, "empty");
    EXPECT_OK(rg_session_save(session, scratch("named")));
    other = session_of(text, RG_OPTIMIZER_SGD, 0.5, NULL);
    EXPECT_OK(rg_session_set_property(other, "old", "x"));
    EXPECT_OK(rg_session_load(other, scratch("named")));
    scratch_remove("named");
    EXPECT(strcmp(rg_session_property_text(other, "epoch"), "4") == 0);
    EXPECT(strcmp(rg_session_property_text(other, "classes"), "a \"b\"\n") == 0);
    EXPECT(rg_session_property_text(other, "old") == NULL);
    rg_session_destroy(session);
    rg_session_destroy(other);
}

int main(void)
{
    scratch_begin();
    EXPECT_OK(rg_device_create("cpu", NULL, &device));
    make_batch();
    test_gradients();
    test_frozen();
    test_rates();
    test_files();
    test_bad_calls();
    test_names();
    rg_tensor_destroy(images);
    rg_tensor_destroy(labels);
    rg_device_destroy(device);
    scratch_end();
    return rg_test_report();
}
