/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Batches that are cut into micro-batches: the mean over the batch stays what it was, runs that
 * stop go on with the same bits, and what is refused. */
#include "tests/data_files.h"

#include <retrograde/checkpoint.h>
#include <retrograde/safetensors.h>

#include <math.h>

enum { LARGE = 1 << 20, VALUES = 4096 };

static rg_device *device;
static rg_dataset *set;
static char files[2][LARGE];

static rg_trainer *trainer_of(const char *layers, const rg_trainer_desc *desc)
{
    rg_model *model = NULL;
    rg_trainer *trainer = NULL;
    EXPECT_OK(rg_model_parse("cut", layers, &model));
    EXPECT_OK(rg_trainer_create(device, model, set, desc, &trainer));
    rg_model_destroy(model);
    return trainer;
}

static rg_trainer_desc desc_of(int64_t batch, int64_t micro_batches)
{
    rg_trainer_desc desc = rg_trainer_desc_default();
    desc.optimizer = RG_OPTIMIZER_SGD;
    desc.dtype = RG_F64;
    desc.epochs = 2;
    desc.batch = batch;
    desc.micro_batches = micro_batches;
    return desc;
}

/* The f64 parameter of a trained network. */
static int64_t trained(const char *layers, const rg_trainer_desc *desc, const char *name,
                       double values[VALUES])
{
    rg_trainer *trainer = trainer_of(layers, desc);
    rg_safetensors *file = NULL;
    size_t index = 0;
    EXPECT_OK(rg_trainer_train(trainer, desc->epochs, NULL, NULL));
    EXPECT_OK(rg_trainer_save(trainer, scratch("micro.safetensors")));
    rg_trainer_destroy(trainer);
    EXPECT_OK(rg_safetensors_open(scratch("micro.safetensors"), &file));
    EXPECT(rg_safetensors_find(file, name, &index));
    const size_t size = rg_safetensors_bytes(file, index);
    EXPECT(size <= VALUES * sizeof *values);
    EXPECT_OK(rg_safetensors_read(file, index, values, size));
    rg_safetensors_close(file);
    scratch_remove("micro.safetensors");
    return (int64_t)(size / sizeof *values);
}

static double farthest(const double *a, const double *b, int64_t count)
{
    double most = 0;
    for (int64_t i = 0; i < count; i++)
        most = fabs(a[i] - b[i]) > most ? fabs(a[i] - b[i]) : most;
    return most;
}

/* 130 images: batches of 50, 50 and 30, which no number of parts divides, and parts without
 * images. */
static void test_mean(void)
{
    static double whole[VALUES], cut[VALUES];
    static const char layers[] = "out: dense classes\n";
    for (int64_t accumulate = 1; accumulate <= 2; accumulate++) {
        rg_trainer_desc desc = desc_of(50, 1);
        desc.accumulate = accumulate;
        const int64_t count = trained(layers, &desc, "out.b", whole);
        EXPECT(count == 10);
        for (int64_t parts = 2; parts <= 32; parts *= 2) {
            desc.micro_batches = parts;
            EXPECT(trained(layers, &desc, "out.b", cut) == count);
            EXPECT(farthest(whole, cut, count) < 1e-13);
        }
    }
}

/* The mean of the means of parts of one size is that of the batch; one part's alone is not. */
static void test_statistics(void)
{
    static double whole[VALUES], cut[VALUES];
    static const char layers[] = "norm: batch_norm\ndense classes\n";
    const rg_trainer_desc once = desc_of(26, 1), halves = desc_of(26, 2); /* 13 and 13 */
    EXPECT(trained(layers, &once, "norm.mean", whole) == 1);
    EXPECT(trained(layers, &halves, "norm.mean", cut) == 1);
    EXPECT(fabs(whole[0] - cut[0]) < 1e-12 && whole[0] != 0);
}

/* With synchronised batch normalization parts, also uneven and empty ones, train as the whole batch
 * does; parts alone do not. Branches, a fused neuron, a norm behind which nothing is trained. */
static void test_synchronised(void)
{
    static double whole[VALUES], cut[VALUES];
    static const char layers[] = "first: batch_norm\n"
                                 "conv 4 window=3 padding.policy=same bias=false\n"
                                 "one: batch_norm epsilon=1e-5\n"
                                 "start: neuron\n"
                                 "conv 4 window=3 padding.policy=same bias=false\n"
                                 "left: batch_norm momentum=0.7\n"
                                 "conv 4 window=1 bias=false from start\n"
                                 "right: batch_norm gamma=false\n"
                                 "arithmetic from left, right\n"
                                 "neuron\n"
                                 "pool\n"
                                 "out: dense classes\n";
    static const char *const names[] = { "out.b",         "one.gamma",  "left.mean", "right.beta",
                                         "left.variance", "first.mean", "conv2.w" };
    const rg_trainer_desc once = desc_of(50, 1);
    rg_trainer_desc parts = desc_of(50, 4);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const int64_t count = trained(layers, &once, names[i], whole);
        for (parts.micro_batches = 2; parts.micro_batches <= 32; parts.micro_batches *= 4) {
            parts.sync_batch_norm = true;
            EXPECT(trained(layers, &parts, names[i], cut) == count);
            EXPECT(farthest(whole, cut, count) < 1e-11);
            parts.sync_batch_norm = false;
            EXPECT(trained(layers, &parts, names[i], cut) == count);
            EXPECT(farthest(whole, cut, count) > 1e-5 || strcmp(names[i], "first.mean") == 0);
        }
    }
}

/* The same bits without a stop and with one within a step, for every dtype. */
static void check_resume(rg_dtype dtype, bool sync)
{
    static const char layers[] = "conv 4 window=3\nbatch_norm\nneuron\npool\ndropout keep=0.7\n"
                                 "dense classes\n";
    rg_trainer_desc desc = desc_of(20, 8);
    desc.optimizer = RG_OPTIMIZER_ADAM;
    desc.dtype = dtype;
    desc.sync_batch_norm = sync;
    desc.accumulate = 5; /* of 7 batches an epoch */
    desc.shift = 1;
    rg_trainer *straight = trainer_of(layers, &desc), *stopped = trainer_of(layers, &desc);
    EXPECT_OK(rg_trainer_train(straight, 2, NULL, NULL));
    EXPECT_OK(rg_trainer_train(stopped, 1, NULL, NULL));
    EXPECT_OK(rg_trainer_save(stopped, scratch("half.safetensors")));
    rg_trainer_destroy(stopped);
    EXPECT_OK(rg_trainer_resume(device, scratch("half.safetensors"), set, NULL, &stopped));
    EXPECT_OK(rg_trainer_get_desc(stopped, &desc));
    EXPECT(desc.micro_batches == 8 && desc.sync_batch_norm == sync);
    EXPECT_OK(rg_trainer_train(stopped, 1, NULL, NULL));
    EXPECT_OK(rg_trainer_save(straight, scratch("a.safetensors")));
    EXPECT_OK(rg_trainer_save(stopped, scratch("b.safetensors")));
    const size_t size = scratch_read("a.safetensors", files[0], LARGE);
    EXPECT(size > 0 && size < LARGE && scratch_read("b.safetensors", files[1], LARGE) == size);
    EXPECT(memcmp(files[0], files[1], size) == 0);
    rg_trainer_destroy(straight);
    rg_trainer_destroy(stopped);
    scratch_remove("a.safetensors");
    scratch_remove("b.safetensors");
    scratch_remove("half.safetensors");
}

static void test_refused(void)
{
    rg_trainer_desc desc = desc_of(50, 3);
    EXPECT_FAILS(rg_trainer_desc_check(&desc), RG_INVALID_ARGUMENT,
                 "micro-batches must be a power of two, not 3");
    desc.micro_batches = 64;
    EXPECT_FAILS(rg_trainer_desc_check(&desc), RG_INVALID_ARGUMENT,
                 "micro-batches must be at most batch, 50, not 64");
    desc.micro_batches = 0;
    EXPECT_FAILS(rg_trainer_desc_check(&desc), RG_INVALID_ARGUMENT, "micro-batches must be");
}

int main(void)
{
    static const rg_dtype dtypes[] = { RG_F32, RG_F64, RG_F16, RG_BF16 };
    scratch_begin();
    EXPECT_OK(rg_device_create("cpu", NULL, &device));
    EXPECT_OK(rg_dataset_glyphs(1, 130, &set));
    test_mean();
    test_statistics();
    test_synchronised();
    for (int i = 0; i < 8; i++)
        check_resume(dtypes[i / 2], i % 2 != 0);
    test_refused();
    rg_dataset_destroy(set);
    rg_device_destroy(device);
    scratch_end();
    return rg_test_report();
}
