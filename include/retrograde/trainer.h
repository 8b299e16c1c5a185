/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/** @file
 *  Trainers: a network, an optimizer and a data set on a device.
 *
 *      rg_dataset_open("glyphs", RG_DATASET_TRAIN, &train);
 *      rg_model_open("small", &model);
 *
 *      rg_trainer_desc desc = rg_trainer_desc_default();
 *      desc.epochs = 3;
 *      rg_trainer_create(device, model, train, &desc, &trainer);
 *      rg_trainer_train(trainer, 3, NULL, NULL);
 *      rg_trainer_evaluate(trainer, test, &result);
 *      rg_trainer_save(trainer, "checkpoint.safetensors");
 *
 *  Such a file is that of the program, `retrograde train`: each goes on with the other's, with the
 *  same bits as without a stop (rg_trainer_resume), and it can be used without the data it was
 *  trained with (rg_trainer_load). retrograde/checkpoint.h tells what is in it.
 *
 *  Calls for one trainer come from one thread at a time. Programs that use this header are linked
 *  with libretrograde_train. */
#ifndef RETROGRADE_TRAINER_H
#define RETROGRADE_TRAINER_H

#include <retrograde/dataset.h>
#include <retrograde/model.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct rg_trainer rg_trainer;

typedef enum rg_optimizer_kind {
    RG_OPTIMIZER_SGD, /**< gradient descent with momentum */
    RG_OPTIMIZER_RMSPROP,
    RG_OPTIMIZER_ADAM
} rg_optimizer_kind;

/** How the rate goes on; see retrograde/schedule.h. */
typedef enum rg_schedule_kind {
    RG_SCHEDULE_CONSTANT,
    RG_SCHEDULE_STEP,  /**< times `drop` every `drop_every` epochs */
    RG_SCHEDULE_COSINE /**< down to 0 over all epochs */
} rg_schedule_kind;

/** How to train. Start from rg_trainer_desc_default(), then change what matters. */
typedef struct rg_trainer_desc {
    uint32_t size;               /**< of this struct; set by rg_trainer_desc_default() */
    rg_dtype dtype;              /**< of the network: f32 (default), f64, f16 or bf16 */
    rg_optimizer_kind optimizer; /**< default RG_OPTIMIZER_ADAM */
    rg_schedule_kind schedule;   /**< of the rate (default RG_SCHEDULE_COSINE) */
    double rate;                 /**< more than 0, or 0 (default): 0.05 for SGD, else 0.001 */
    double momentum;             /**< of SGD; 0 to less than 1 (default 0.9) */
    double decay;        /**< of weights, 0 (default) or more: decoupled for Adam, L2 for others */
    double drop;         /**< of RG_SCHEDULE_STEP: a factor, 0 or more (default 0.5) */
    int64_t drop_every;  /**< of RG_SCHEDULE_STEP: epochs; 1 to 10^6 (default 2) */
    int64_t warmup;      /**< steps in which the rate rises from 0; 0 (default) or more */
    int64_t epochs;      /**< of the whole training; 1 to 10^6 (default 6) */
    int64_t batch;       /**< images in a batch; 1 to 2^20 (default 64) */
    int64_t accumulate;  /**< batches that make one step; 1 (default) to 2^20 */
    int64_t shift, crop; /**< as in rg_loader_desc; 0 (default) to 1024 */
    bool mirror;         /**< as in rg_loader_desc (default false) */
    int64_t seed;        /**< of everything random; 0 or more (default 1) */
} rg_trainer_desc;
RG_API rg_trainer_desc rg_trainer_desc_default(void);

/** Makes a trainer at epoch 0, with first values of all parameters. The network takes the images
 *  and classes of `set`, which the trainer keeps alive and whose mean and deviation it measures;
 *  `model` and *desc are copied. On failure *trainer is NULL. */
RG_API rg_status rg_trainer_create(rg_device *device, const rg_model *model, const rg_dataset *set,
                                   const rg_trainer_desc *desc, rg_trainer **trainer);

/** Makes a trainer from a checkpoint, where that was written: also within an epoch. `set` is the
 *  one it was trained with. `desc` is NULL, which stands for what the checkpoint was trained with,
 *  or says how to go on: begin with rg_checkpoint_trainer_desc(). Its dtype, optimizer and
 *  accumulate cannot change. RG_INVALID_ARGUMENT where images or classes of the set are others. On
 *  failure *trainer is NULL. */
RG_API rg_status rg_trainer_resume(rg_device *device, const char *path, const rg_dataset *set,
                                   const rg_trainer_desc *desc, rg_trainer **trainer);

/** Makes a trainer from a checkpoint that evaluates and predicts, and needs no data set and no room
 *  for an optimizer: RG_INVALID_STATE where it shall train or be saved. On failure *trainer is
 *  NULL.
 */
RG_API rg_status rg_trainer_load(rg_device *device, const char *path, rg_trainer **trainer);

/** Waits for what is under way, then frees all. NULL allowed. */
RG_API void rg_trainer_destroy(rg_trainer *trainer);

/** Where training is. */
typedef struct rg_trainer_progress {
    int64_t epoch;   /**< that is under way, from 1; behind the last one, the number of epochs */
    int64_t epochs;  /**< of the whole training */
    int64_t images;  /**< of this epoch that are done; 0 at its beginning */
    int64_t of;      /**< images in an epoch */
    int64_t right;   /**< of the images that are done, those that were classified rightly */
    double loss;     /**< the mean over them; 0 where there are none */
    int64_t steps;   /**< that were taken since the beginning of training */
    int64_t batches; /**< that were begun */
    double rate;     /**< of the last step */
    /** Of the batch that has become done: its number of images, 0 where none has, and the mean of
     *  their losses. Devices run behind: it is not the batch that was begun last. */
    int64_t batch_images;
    double batch_loss;
    int64_t now_images; /**< of this epoch that this call of rg_trainer_train() has done */
    double now_seconds; /**< since it began the epoch */
} rg_trainer_progress;

/** Called behind every batch, from within rg_trainer_train(): it may look at its arguments, and not
 *  call the trainer. Returns whether to go on; false ends training behind this batch. */
typedef bool rg_trainer_watch(void *context, const rg_trainer_progress *progress);

/** Trains: the rest of the epoch that is under way, or a whole one, and so on, `epochs` times, but
 *  not beyond those of the descriptor. `watch` may be NULL. RG_OK also where `watch` has stopped
 *  it; the next call goes on from there. RG_INVALID_STATE where a loss or a parameter is no longer
 *  finite: such a trainer trains no more and is not saved. */
RG_API rg_status rg_trainer_train(rg_trainer *trainer, int64_t epochs, rg_trainer_watch *watch,
                                  void *context);

RG_API rg_status rg_trainer_get_progress(const rg_trainer *trainer, rg_trainer_progress *progress);

/** How the trainer was made. RG_INVALID_STATE for one of rg_trainer_load(). */
RG_API rg_status rg_trainer_get_desc(const rg_trainer *trainer, rg_trainer_desc *desc);

/** How good a network is on a set. */
typedef struct rg_trainer_result {
    int64_t images, right; /**< of the set; of these, those that are classified rightly */
    double loss;           /**< the mean over all images */
    double accuracy;       /**< right / images */
} rg_trainer_result;

/** Runs the network over a set as it is used: without dropout, with running statistics. The set has
 *  images and classes as the network takes them, and is normalised as the training set was. */
RG_API rg_status rg_trainer_evaluate(rg_trainer *trainer, const rg_dataset *set,
                                     rg_trainer_result *result);

/** Classifies `count` images, 1 or more. `pixels` (count, h, w, c) are of the dtype u8, 0 to 255,
 *  or f32, as in a data set, and are normalised as the training set was; `probabilities` receives
 *  (count, classes) numbers, which add up to 1 for each image. */
RG_API rg_status rg_trainer_predict(rg_trainer *trainer, const void *pixels, rg_dtype dtype,
                                    int64_t count, float probabilities[]);

/** Writes a checkpoint, whole or not at all, also within an epoch. RG_INVALID_STATE where a
 *  parameter is NaN or infinite. */
RG_API rg_status rg_trainer_save(rg_trainer *trainer, const char *path);

#ifdef __cplusplus
}
#endif

#endif
