/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The options of `retrograde train`: defaults, checks, and as text in a checkpoint. */
#include "cli/train_options.h"
#include "cli/option_text.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OF_THIS_RUN = 10 }; /* options at the head of the table that no checkpoint keeps */

const char rg_train_default_data[] = "fashion-mnist";

rg_train_request rg_train_defaults(void)
{
    return (rg_train_request){ .device = "cpu",
                               .data = rg_train_default_data,
                               .size = "",
                               .model = "lenet",
                               .dtype = "f32",
                               .optimizer = "adam",
                               .schedule = "cosine",
                               .loss = "auto",
                               .weights = "",
                               .head = "",
                               .freeze = "",
                               .rates = "",
                               .normalize = "data",
                               .epochs = 6,
                               .batch = 64,
                               .accumulate = 1,
                               .seed = 1,
                               .memory = 256,
                               .micro_batches = RG_TRAIN_NOT_GIVEN,
                               .stop = RG_TRAIN_NOT_GIVEN,
                               .rate = RG_TRAIN_NOT_GIVEN,
                               .momentum = 0.9,
                               .validation = 0.1,
                               .drop = 0.5,
                               .drop_every = 2 };
}

rg_status rg_open_model(const char *name, rg_model **model)
{
    char text[RG_DID_YOU_MEAN];
    const rg_status status = rg_model_open(name, model);
    return status == RG_IO ? rg_fails(status, "%s%s", rg_error_text(),
                                      rg_did_you_mean(name, rg_model_builtin, text))
                           : status;
}

/* Parts of the table, in the order of the help text; each returns how many options it has. */
static size_t run_options(rg_train_request *q, rg_option *table)
{
    const rg_option options[] = {
        { "device", RG_OPTION_TEXT, &q->device, "NAME", "cpu, cuda or cuda:N (default cpu)" },
        { "threads", RG_OPTION_COUNT, &q->threads, "N", "number of CPU threads; 0 (default): all" },
        { "workers", RG_OPTION_COUNT, &q->workers, "N",
          "number of threads that decode images; 0 (default): chosen by the data" },
        { "memory", RG_OPTION_COUNT, &q->memory, "MB",
          "keep decoded images in memory if they take at most MB megabytes (default 256)" },
        { "out", RG_OPTION_TEXT, &q->out, "FOLDER",
          "results folder (default run, or run-2, ... if it exists; with --resume, that of the "
          "checkpoint)" },
        { "resume", RG_OPTION_TEXT, &q->resume, "PATH",
          "continue from a checkpoint, or from that of a results folder" },
        { "stop", RG_OPTION_COUNT, &q->stop, "N", "stop after epoch N; --resume continues" },
        { "mpi", RG_OPTION_TEXT, &q->mpi, "NAME",
          "with mpirun or srun: openmpi, mpich, abi or the path of a library (default: that of the "
          "launcher); none: processes run independently" },
        { "json", RG_OPTION_FLAG, &q->json, NULL, "print one JSON object per line" },
        { "help", RG_OPTION_FLAG, &q->help, NULL, "print this help" },
    };
    memcpy(table, options, sizeof options);
    return sizeof options / sizeof options[0];
}

static size_t network_options(rg_train_request *q, rg_option *table)
{
    const rg_option options[] = {
        { "data", RG_OPTION_TEXT, &q->data, "PATH",
          "data set: folders of PNG, JPEG or WebP files, perhaps with masks, tar files, IDX, NPY or NPZ "
          "files (default fashion-mnist)" },
        { "size", RG_OPTION_TEXT, &q->size, "SIZE",
          "resize and center-crop images in files: 224, or 192x256 (height x width)" },
        { "model", RG_OPTION_TEXT, &q->model, "NAME",
          "lenet, small, mlp, resnet, a model file or an ONNX model (default lenet)" },
        { "dtype", RG_OPTION_TEXT, &q->dtype, "DTYPE", "f32, f64, bf16 or f16 (default f32)" },
    };
    memcpy(table, options, sizeof options);
    return sizeof options / sizeof options[0];
}

static size_t step_options(rg_train_request *q, rg_option *table)
{
    const rg_option options[] = {
        { "epochs", RG_OPTION_COUNT, &q->epochs, "N", "number of epochs (default 6)" },
        { "batch", RG_OPTION_COUNT, &q->batch, "N", "batch size in images (default 64)" },
        { "accumulate", RG_OPTION_COUNT, &q->accumulate, "N",
          "accumulate gradients over N batches per step (default 1)" },
        { "micro-batches", RG_OPTION_COUNT, &q->micro_batches, "N",
          "split each batch into N parts, a power of two, and sum their gradients in a fixed order "
          "(default 1; under mpirun or srun 8, or the number of ranks if there are more)" },
        { "fast", RG_OPTION_FLAG, &q->fast, NULL,
          "with mpirun or srun: sum over ranks in the order that MPI or NCCL chooses; the bits then "
          "depend on the number of ranks" },
        { "sync-batch-norm", RG_OPTION_FLAG, &q->sync_batch_norm, NULL,
          "with micro-batches: batch norm by the statistics of the whole batch" },
        { "optimizer", RG_OPTION_TEXT, &q->optimizer, "NAME",
          "adam, sgd or rmsprop (default adam)" },
        { "rate", RG_OPTION_REAL, &q->rate, "X", "learning rate (default 0.001; for sgd 0.05)" },
        { "momentum", RG_OPTION_REAL, &q->momentum, "X", "momentum of sgd (default 0.9)" },
        { "decay", RG_OPTION_REAL, &q->decay, "X", "weight decay (default 0)" },
        { "schedule", RG_OPTION_TEXT, &q->schedule, "NAME",
          "learning rate schedule: cosine, step or constant (default cosine)" },
        { "loss", RG_OPTION_TEXT, &q->loss, "NAME",
          "mean_squared, mean_absolute, huber, hinge, sigmoid_cross_entropy or "
          "softmax_cross_entropy (default auto: by the data)" },
        { "warmup", RG_OPTION_COUNT, &q->warmup, "N",
          "warm-up steps to the full learning rate (default 0)" },
        { "drop", RG_OPTION_REAL, &q->drop, "X",
          "schedule step: factor of the learning rate at each drop (default 0.5)" },
        { "drop-every", RG_OPTION_COUNT, &q->drop_every, "N",
          "schedule step: epochs between drops (default 2)" },
        { "validation", RG_OPTION_REAL, &q->validation, "X",
          "fraction of the training data that chooses the best epoch, unless the data has a part for "
          "validation (default 0.1); 0: none" },
        { "patience", RG_OPTION_COUNT, &q->patience, "N",
          "stop after N epochs that are not better by validation; 0 (default): never" },
        { "shift", RG_OPTION_COUNT, &q->shift, "N",
          "shift training images randomly by up to N pixels" },
        { "crop", RG_OPTION_COUNT, &q->crop, "N",
          "pad training images by N pixels, then crop randomly" },
        { "mirror", RG_OPTION_FLAG, &q->mirror, NULL,
          "mirror half of the training images, chosen at random" },
        { "seed", RG_OPTION_COUNT, &q->seed, "N", "seed of all random numbers (default 1)" },
    };
    memcpy(table, options, sizeof options);
    return sizeof options / sizeof options[0];
}

static size_t start_options(rg_train_request *q, rg_option *table)
{
    const rg_option options[] = {
        { "weights", RG_OPTION_TEXT, &q->weights, "FILE",
          "start with the weights in a safetensors file, from PyTorch or a checkpoint" },
        { "head", RG_OPTION_TEXT, &q->head, "N",
          "replace the last layer of an ONNX model by one with N classes; auto: as many as in the "
          "data" },
        { "freeze", RG_OPTION_TEXT, &q->freeze, "PATTERN",
          "do not train parameters whose names match, such as 'features.*'; may be repeated" },
        { "rates", RG_OPTION_TEXT, &q->rates, "LIST",
          "learning rates by parameter name: PATTERN=X,...; or --rate PATTERN=X for each" },
        { "normalize", RG_OPTION_TEXT, &q->normalize, "NAME",
          "statistics for normalizing pixels: data (default), imagenet or none" },
    };
    memcpy(table, options, sizeof options);
    return sizeof options / sizeof options[0];
}

void rg_train_options(rg_train_request *q, rg_option table[RG_TRAIN_OPTIONS])
{
    size_t count = run_options(q, table);
    assert(count == OF_THIS_RUN);
    count += network_options(q, table + count);
    count += step_options(q, table + count);
    count += start_options(q, table + count);
    assert(count < RG_TRAIN_OPTIONS);
    table[count] = (rg_option){ 0 };
}

/* ---- in checkpoints ---- */

char *rg_train_options_text(rg_train_request *request)
{
    rg_option table[RG_TRAIN_OPTIONS];
    rg_train_options(request, table);
    return rg_options_text(table + OF_THIS_RUN);
}

rg_status rg_train_options_read(rg_train_request *request, char *text)
{
    rg_option table[RG_TRAIN_OPTIONS];
    rg_train_options(request, table);
    return rg_options_read(table + OF_THIS_RUN, text);
}

/* ---- checks ---- */

static bool find_dtype(const char *name, rg_dtype *dtype)
{
    static const rg_dtype dtypes[] = { RG_F32, RG_F64, RG_BF16, RG_F16 };
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++) {
        if (strcmp(rg_dtype_name(dtypes[i]), name) == 0) {
            *dtype = dtypes[i];
            return true;
        }
    }
    return false;
}

static rg_status take_tuning(const rg_train_request *q, rg_trainer_desc *desc)
{
    char *end = NULL;
    desc->head = strcmp(q->head, "auto") == 0 ? RG_HEAD_AUTO : strtoll(q->head, &end, 10);
    if (desc->head != RG_HEAD_AUTO && q->head[0] != 0 &&
        (*end != 0 || desc->head < 1 || desc->head > RG_DATASET_CLASSES))
        return rg_fails(RG_INVALID_ARGUMENT,
                        "--head must be auto or a number of classes from 1 to %d, not '%s'",
                        RG_DATASET_CLASSES, q->head);
    if (strlen(q->freeze) >= RG_TRAINER_TEXT || strlen(q->rates) >= RG_TRAINER_TEXT)
        return rg_fails(RG_INVALID_ARGUMENT,
                        "the patterns of --freeze or --rates are longer than %d bytes",
                        RG_TRAINER_TEXT - 1);
    strcpy(desc->freeze, q->freeze);
    strcpy(desc->rates, q->rates);
    return RG_OK;
}

rg_status rg_train_desc(const rg_train_request *q, rg_trainer_desc *desc)
{
    *desc = rg_trainer_desc_default();
    if (!find_dtype(q->dtype, &desc->dtype))
        return rg_fails(RG_INVALID_ARGUMENT, "--dtype must be f32, f64, bf16 or f16, not '%s'",
                        q->dtype);
    RG_PASS(rg_optimizer_parse(q->optimizer, &desc->optimizer));
    RG_PASS(rg_schedule_parse(q->schedule, &desc->schedule));
    desc->has_loss = strcmp(q->loss, "auto") != 0;
    if (desc->has_loss)
        RG_PASS(rg_training_loss_parse(q->loss, &desc->loss));
    RG_PASS(rg_normalize_parse(q->normalize, &desc->normalize));
    RG_PASS(take_tuning(q, desc));
    desc->rate = q->rate == RG_TRAIN_NOT_GIVEN ? 0 : q->rate;
    desc->momentum = q->momentum;
    desc->decay = q->decay;
    desc->drop = q->drop;
    desc->drop_every = q->drop_every;
    desc->warmup = q->warmup;
    desc->epochs = q->epochs;
    desc->batch = q->batch;
    desc->accumulate = q->accumulate;
    desc->micro_batches = q->micro_batches != RG_TRAIN_NOT_GIVEN ? q->micro_batches : 1;
    desc->shift = q->shift;
    desc->crop = q->crop;
    desc->mirror = q->mirror;
    desc->fast = q->fast;
    desc->sync_batch_norm = q->sync_batch_norm;
    desc->seed = q->seed;
    desc->workers = q->workers;
    return RG_OK;
}

rg_status rg_train_size(const char *text, int64_t *height, int64_t *width)
{
    enum { LARGEST = 1 << 15 };
    char *end = NULL;
    *height = *width = 0;
    if (text[0] == 0)
        return RG_OK;
    *height = *width = strtoll(text, &end, 10);
    if (*end == 'x')
        *width = strtoll(end + 1, &end, 10);
    if (end == text || *end != 0 || *height < 1 || *width < 1 || *height > LARGEST ||
        *width > LARGEST)
        return rg_fails(RG_INVALID_ARGUMENT,
                        "--size must be a number of pixels such as 224, or height x width such as "
                        "192x256, at most %d, not '%s'",
                        LARGEST, text);
    return RG_OK;
}

rg_status rg_train_take_size(const rg_model *model, rg_train_request *request,
                             char text[RG_TRAIN_SIZE_TEXT])
{
    int64_t height, width;
    RG_PASS(rg_model_input(model, &height, &width, &request->channels));
    if (request->channels != 1 && request->channels != 3)
        request->channels = 0; /* images have neither */
    if (request->size[0] != 0 || height <= 0 || width <= 0)
        return RG_OK;
    snprintf(text, RG_TRAIN_SIZE_TEXT, "%" PRId64 "x%" PRId64, height, width);
    request->size = text;
    return RG_OK;
}

double rg_train_base_rate(const rg_train_request *request)
{
    rg_trainer_desc desc;
    (void)rg_train_desc(request, &desc);
    return rg_trainer_desc_base_rate(&desc);
}

rg_status rg_train_options_check(const rg_train_request *q)
{
    const rg_status wrong = RG_INVALID_ARGUMENT;
    rg_trainer_desc desc;
    if (!rg_option_is_line(q->data) || !rg_option_is_line(q->model) ||
        !rg_option_is_line(q->weights) || !rg_option_is_line(q->freeze) ||
        !rg_option_is_line(q->rates))
        return rg_fails(
            wrong,
            "--data, --model, --weights and patterns must be texts without line breaks, in UTF-8 and "
            "shorter than 4000 bytes");
    if (q->threads < 0 || q->threads > 1024)
        return rg_fails(wrong, "--threads must be between 0 and 1024, not %" PRId64, q->threads);
    RG_PASS(rg_train_desc(q, &desc));
    if (rg_trainer_desc_check(&desc) != RG_OK) /* fields are named as options are */
        return rg_fails(wrong, "--%s", rg_error_text());
    if (q->memory < 0 || q->memory > 1 << 30)
        return rg_fails(wrong, "--memory must be between 0 and %d MB, not %" PRId64, 1 << 30,
                        q->memory);
    int64_t height, width;
    RG_PASS(rg_train_size(q->size, &height, &width));
    if (q->stop != RG_TRAIN_NOT_GIVEN && q->stop <= 0)
        return rg_fails(wrong, "--stop must be at least 1, not 0: it is the number of an epoch");
    if (q->rate != RG_TRAIN_NOT_GIVEN && q->rate <= 0)
        return rg_fails(wrong, "--rate must be greater than 0, not 0");
    if (q->validation >= 1)
        return rg_fails(wrong,
                        "--validation must be less than 1, not %g: it is a fraction of the "
                        "training data",
                        q->validation);
    if (q->patience > 0 && q->validation <= 0)
        return rg_fails(wrong, "--patience needs images for validation; --validation is 0");
    return RG_OK;
}
