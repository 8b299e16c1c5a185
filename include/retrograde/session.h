/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/** @file
 *  Sessions: training step by step, with batches and a loop of the caller's own. The verbs are
 *  those of ONNX Runtime's training API; docs/onnxruntime-training.md maps each of them.
 *
 *      rg_model_open("model.onnx", &model);
 *      rg_session_desc desc = rg_session_desc_default();
 *      rg_model_describe(model, &desc.network);
 *      rg_session_create(device, model, &desc, &session);
 *      for (…) {
 *          rg_session_train_step(session, images, labels, &loss);      adds to the gradients
 *          rg_session_optimizer_step(session);
 *          rg_session_reset_gradients(session);
 *      }
 *      rg_session_export(session, "trained.onnx");
 *
 *  Images are (n, c, h, w) for an ONNX model whose file has them so, otherwise (n, h, w, c), in the
 *  dtype of the network and as the network is to see them; labels are those of rg_model_graph().
 *  Trainers (retrograde/trainer.h) read data sets and normalize images themselves.
 *
 *  Every call waits for its work. Calls for one session come from one thread at a time. Programs
 *  that use this header are linked with libretrograde_train. */
#ifndef RETROGRADE_SESSION_H
#define RETROGRADE_SESSION_H

#include <retrograde/trainer.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct rg_session rg_session;

/** How to train. Start from rg_session_desc_default(), then change what matters. */
typedef struct rg_session_desc {
    uint32_t size;               /**< of this struct; set by rg_session_desc_default() */
    rg_network_desc network;     /**< images, classes, loss, frozen parameters; f32 or f64 */
    rg_optimizer_kind optimizer; /**< default RG_OPTIMIZER_ADAM */
    double rate;                 /**< 0 or more (default 0.001) */
    double momentum;             /**< of SGD; 0 to less than 1 (default 0.9) */
    double decay;                /**< of weights, as in rg_trainer_desc (default 0) */
    uint64_t seed;               /**< of parameters that the model has no values for (default 1) */
} rg_session_desc;
RG_API rg_session_desc rg_session_desc_default(void);

/** Creates a session with the weights of an ONNX model, or first values of a model as text. `model`
 *  and *desc are copied. On failure *session is NULL. */
RG_API rg_status rg_session_create(rg_device *device, const rg_model *model,
                                   const rg_session_desc *desc, rg_session **session);
RG_API void rg_session_destroy(rg_session *session);

/** Runs the network forward and backward, with dropout and statistics of the batch, and adds to the
 *  gradients, or starts them after rg_session_reset_gradients(). `loss` receives the mean over the
 *  batch and may be NULL. */
RG_API rg_status rg_session_train_step(rg_session *session, rg_tensor *images, rg_tensor *labels,
                                       double *loss);

/** Runs the network as it is used. `loss` and `outputs` may be NULL; `outputs` receives what comes
 *  before the loss, a dense tensor of the output's shape. */
RG_API rg_status rg_session_eval_step(rg_session *session, rg_tensor *images, rg_tensor *labels,
                                      double *loss, rg_tensor *outputs);

/** Changes the parameters by the gradients. RG_INVALID_STATE before the first training step. */
RG_API rg_status rg_session_optimizer_step(rg_session *session);

/** The next training step starts new gradients. Nothing is written until then. */
RG_API rg_status rg_session_reset_gradients(rg_session *session);

/** The rate of the next optimizer step; 0 for NULL. */
RG_API rg_status rg_session_set_rate(rg_session *session, double rate);
RG_API double rg_session_rate(const rg_session *session);

/** Lets the rate rise from 0 over `warmup` steps and fall to 0 at step `total`; every
 *  rg_session_schedule_step() sets it, the first one to that of step 1. */
RG_API rg_status rg_session_schedule_linear(rg_session *session, int64_t warmup, int64_t total);
RG_API rg_status rg_session_schedule_step(rg_session *session);

/** How many numbers all parameters have, or those that are trained; 0 for NULL. */
RG_API int64_t rg_session_parameters(const rg_session *session, bool trained);

/** Copies them to one buffer of `count` numbers of the network's dtype, or back: one parameter
 *  after the other, in an order that the model decides, dimensions as the graph has them. */
RG_API rg_status rg_session_read_parameters(rg_session *session, bool trained, void *buffer,
                                            int64_t count);
RG_API rg_status rg_session_write_parameters(rg_session *session, bool trained, const void *buffer,
                                             int64_t count);

/** How many parameters the network has, running statistics among them; 0 for NULL. */
RG_API int32_t rg_session_parameter_count(const rg_session *session);

/** What one of them is: its name, which the session owns, dtype and dimensions in the order of the
 *  file, whether it is trained. The last three may be NULL. */
RG_API rg_status rg_session_parameter_at(const rg_session *session, int32_t index,
                                         const char **name, rg_tensor_desc *desc, bool *trained);

/** Copies a parameter to a tensor of the caller, or back; dtype and dimensions are those of
 *  rg_session_parameter_at(). */
RG_API rg_status rg_session_read_parameter(rg_session *session, const char *name,
                                           rg_tensor *tensor);
RG_API rg_status rg_session_write_parameter(rg_session *session, const char *name,
                                            rg_tensor *tensor);

/** Keeps a text of the caller under a name, in UTF-8: the epoch, or a list of classes. Both are
 *  copied, and the files of rg_session_save() have them. */
RG_API rg_status rg_session_set_property(rg_session *session, const char *name, const char *text);
/** The text, valid until it is set again; NULL if there is none. */
RG_API const char *rg_session_property_text(const rg_session *session, const char *name);

/** Writes all parameters, gradients, moments, counters and properties to a safetensors file, whole
 *  or not at all, and reads them into a session of the same model and descriptor: it continues with
 *  the same bits. RG_MALFORMED if the file is of another one; what the session held before is lost
 *  then. */
RG_API rg_status rg_session_save(rg_session *session, const char *path);
RG_API rg_status rg_session_load(rg_session *session, const char *path);

/** Writes the network with its parameters as an ONNX model for inference. The nodes of an ONNX
 *  model stay as its file has them. */
RG_API rg_status rg_session_export(rg_session *session, const char *path);

#ifdef __cplusplus
}
#endif

#endif
