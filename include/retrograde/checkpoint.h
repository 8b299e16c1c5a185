/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/** @file
 *  Checkpoints: trained networks in files, as rg_trainer_save() and `retrograde train` write them.
 *
 *      rg_checkpoint_open("run/checkpoint.safetensors", &checkpoint);
 *      rg_checkpoint_plan(checkpoint, device, &plan);
 *      rg_plan_encode(plan, commands, &images);
 *      rg_plan_result(plan, "logits", &logits);
 *
 *  A checkpoint is one safetensors file: all parameters by their names, and as texts the model,
 *  what images it takes, and how training continues. To evaluate a network, or to classify images,
 *  there is rg_trainer_load(); to train it further, rg_trainer_resume().
 *
 *  Files are untrusted: RG_IO if one cannot be read, RG_MALFORMED if its content is invalid,
 *  RG_UNSUPPORTED if it is of another version. Memory use depends on the size of the file, never on
 *  declared sizes. Programs that use this header are linked with libretrograde_train. */
#ifndef RETROGRADE_CHECKPOINT_H
#define RETROGRADE_CHECKPOINT_H

#include <retrograde/onnx.h>
#include <retrograde/trainer.h>

#ifdef __cplusplus
extern "C" {
#endif

/** An open checkpoint. It is immutable and may be used from any thread. */
typedef struct rg_checkpoint rg_checkpoint;

/** Its network and the state of its training. */
typedef struct rg_checkpoint_info {
    rg_network_desc network; /**< `training` is false */
    int64_t epochs;          /**< that are complete */
    int64_t steps;           /**< since the beginning of training */
    int64_t best_epoch;      /**< by validation, from 1; 0: none was validated */
    double best_accuracy;    /**< of that epoch */
    /** Of each channel of the training set: what the network takes is (x - mean) / deviation, where
     *  pixels of u8 count as 0 to 1. */
    double mean[RG_DATASET_CHANNELS], deviation[RG_DATASET_CHANNELS];
    /** Above 0: that is done with each column in place of each channel. The numbers live as long as
     *  the checkpoint. */
    int64_t columns;
    const double *column_mean, *column_deviation;
    int64_t train_images; /**< that it was trained with; 0 in checkpoints of older versions */
} rg_checkpoint_info;

/** Opens a file, reads everything but its tensors, and checks their shapes against the model. On
 *  failure *checkpoint is NULL. */
RG_API rg_status rg_checkpoint_open(const char *path, rg_checkpoint **checkpoint);

/** Opens a file and reads info and options, but neither parses its model nor checks its tensors:
 *  rg_checkpoint_model() is NULL, and graphs and plans are RG_INVALID_STATE. On failure *checkpoint
 *  is NULL. */
RG_API rg_status rg_checkpoint_inspect(const char *path, rg_checkpoint **checkpoint);

/** Closes it; graphs and plans made from it stay valid. NULL is allowed. */
RG_API void rg_checkpoint_close(rg_checkpoint *checkpoint);

RG_API rg_status rg_checkpoint_get_info(const rg_checkpoint *checkpoint, rg_checkpoint_info *info);

/** Its model, which lives as long as the checkpoint; NULL for NULL. */
RG_API const rg_model *rg_checkpoint_model(const rg_checkpoint *checkpoint);

/** The name of a class, which lives as long as the checkpoint; "" if there is no such class. */
RG_API const char *rg_checkpoint_class_name(const rg_checkpoint *checkpoint, int32_t label);

/** How it was trained; change it for rg_trainer_resume(). */
RG_API rg_status rg_checkpoint_trainer_desc(const rg_checkpoint *checkpoint, rg_trainer_desc *desc);

/** The options it was saved with, "name=value" lines: those of rg_trainer_save_with(), or those
 *  of the descriptor. They live as long as the checkpoint; "" for NULL. */
RG_API const char *rg_checkpoint_options(const rg_checkpoint *checkpoint);

/** Makes its graph, as rg_model_graph() does for `network` of its info, with `logits_only`: one
 *  source, "images", and one result, "logits". It has no weights. On failure *graph is NULL. */
RG_API rg_status rg_checkpoint_graph(const rg_checkpoint *checkpoint, rg_graph **graph);

/** Makes a plan of that graph on a device and reads its weights from the file. On failure *plan is
 *  NULL. */
RG_API rg_status rg_checkpoint_plan(const rg_checkpoint *checkpoint, rg_device *device,
                                    rg_plan **plan);

/** Writes its network as an ONNX model that any runtime takes: input "images" (batch, channels,
 *  height, width), output "logits". The images are those that rg_trainer_predict() takes: pixels of
 *  u8 count as 0 to 1, and mean and deviation of the training set are part of the file. The network
 *  of an ONNX model has the inputs, outputs and nodes of that model with its new parameters, unless
 *  another operator set, dtype or folding is asked for. `device` holds the weights meanwhile. Of
 *  `desc`, which may be NULL, inputs, names, mean, deviation, channels and flat_results are not
 *  used. With `probabilities` there is a second output of that name: softmax of classes, or sigmoid
 *  of labels. See rg_onnx_write(). */
RG_API rg_status rg_checkpoint_write_onnx(const rg_checkpoint *checkpoint, rg_device *device,
                                          const rg_onnx_write_desc *desc, const char *path);

/** Writes the parameters of that model to a safetensors file, as rg_onnx_write_weights() does;
 *  those of an ONNX model have its names. */
RG_API rg_status rg_checkpoint_write_weights(const rg_checkpoint *checkpoint, rg_device *device,
                                             const rg_onnx_write_desc *desc, const char *path);

/** Writes a model that has weights, an ONNX model of rg_model_open(), as a checkpoint that has not
 *  been trained: eval, predict and export take it, pixels of u8 count as 0 to 1. With `as_text` its
 *  network becomes a model as text, see rg_checkpoint_model(), with parameters of that model's
 *  names; RG_UNSUPPORTED, with the names of all nodes concerned, where a text cannot say it. */
RG_API rg_status rg_checkpoint_import(rg_device *device, const rg_model *model, bool as_text,
                                      const char *path);

/** Writes a model with the weights of a safetensors file, of PyTorch or of ours, as such a
 *  checkpoint; see rg_trainer_load_weights(). All parameters must be in the file; `say`, unless
 *  NULL, receives the names of tensors that no parameter has. */
RG_API rg_status rg_checkpoint_import_weights(rg_device *device, const rg_model *model,
                                              const rg_network_desc *network, const char *weights,
                                              rg_weights_say *say, void *context, const char *path);

#ifdef __cplusplus
}
#endif

#endif
