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
 *      rg_trainer_report(trainer, test, NULL, "report.html", NULL);
 *
 *  The program, `retrograde train`, writes the same files. Either can continue from a checkpoint of
 *  the other, with the same bits as without the stop (rg_trainer_resume). A checkpoint can be used
 *  without the data it was trained with (rg_trainer_load). retrograde/checkpoint.h describes it.
 *
 *  Calls for one trainer come from one thread at a time. Programs that use this header are linked
 *  with libretrograde_train. */
#ifndef RETROGRADE_TRAINER_H
#define RETROGRADE_TRAINER_H

#include <retrograde/dataset.h>
#include <retrograde/group.h>
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

/** How the rate changes; see retrograde/schedule.h. */
typedef enum rg_schedule_kind {
    RG_SCHEDULE_CONSTANT,
    RG_SCHEDULE_STEP,  /**< times `drop` every `drop_every` epochs */
    RG_SCHEDULE_COSINE /**< down to 0 over all epochs */
} rg_schedule_kind;

/** What a pixel x becomes before the network sees it, channel by channel: (x - mean) / deviation,
 *  where pixels of u8 count as 0 to 1. */
typedef enum rg_normalize_kind {
    RG_NORMALIZE_DATA,    /**< mean and deviation of the training set */
    RG_NORMALIZE_NONE,    /**< mean 0, deviation 1 */
    RG_NORMALIZE_IMAGENET /**< those that networks of torchvision were trained with: mean 0.485,
                               0.456, 0.406, deviation 0.229, 0.224, 0.225; for 3 channels */
} rg_normalize_kind;

/** Of a last layer with as many channels as the data needs. */
#define RG_HEAD_AUTO (-1)
/** The length of a text in a descriptor, with its end. */
#define RG_TRAINER_TEXT 1024

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
    int64_t workers;     /**< threads that make batches, as in rg_loader_desc; 0 (default) to 64. It
                              changes no results, and checkpoints do not keep it */
    bool has_loss;     /**< whether `loss` is given; false (default): the one that fits the data */
    rg_loss_kind loss; /**< as in rg_network_desc */
    /** Parameters that keep their values, as `freeze` of rg_network_desc: "features.*,conv1.*";
     *  "" (default): none. */
    char freeze[RG_TRAINER_TEXT];
    /** Rates of parameters by pattern, in place of `rate`: "features.*=0.0001,fc.*=0.01". They
     * follow the schedule; of several that match the last counts. "" (default): none; 32 at most.
     */
    char rates[RG_TRAINER_TEXT];
    /** Of an ONNX model: the channels of a new last layer in place of the product or convolution
     * that its first output ends with; RG_HEAD_AUTO: as many as the data needs; 0 (default): the
     * model stays as it is. Of any model: rg_trainer_load_weights() leaves the last layer as it is.
     */
    int64_t head;
    rg_normalize_kind normalize; /**< of the images (default RG_NORMALIZE_DATA) */
    /** Parts that a batch is cut into, a power of two, at most `batch`; 1 (default): it is not cut.
     *  Their gradients are summed in a fixed binary tree, so that ranks that share them change no
     *  bits. Each has ceil(batch / micro_batches) images, the last ones perhaps fewer or none.
     *  Batch norm uses the statistics of a part, and running statistics take the mean of all parts,
     *  unless `sync_batch_norm` is set. */
    int64_t micro_batches;
    /** The ranks that train together, each with its share of the micro-batches; their number is at
     *  most micro_batches. It must outlive the trainer. NULL (default): this process alone. All
     *  ranks create, resume, train and validate together; data, model and descriptor must be the
     *  same, or creation is RG_INVALID_ARGUMENT on all of them. A rank on which a function
     *  fails calls rg_group_fail(): the others may wait for it. Checkpoints do not keep the group,
     *  and can be continued by any number of ranks with the same bits. */
    rg_group *group;
    /** Sums over ranks are made in the order that is fastest: that of the MPI library, or on GPUs
     *  of NCCL, which then needs a GPU for each rank. The bits depend on both and on the number of
     *  ranks; checkpoints keep the field, to say so. False by default. */
    bool fast;
    /** Batch norm uses the statistics of the whole batch, not those of a part; slower. Not for ONNX
     *  models. False by default. */
    bool sync_batch_norm;
} rg_trainer_desc;
RG_API rg_trainer_desc rg_trainer_desc_default(void);

/** RG_INVALID_ARGUMENT for a descriptor that no trainer takes; the sentence begins with the name of
 *  a field. */
RG_API rg_status rg_trainer_desc_check(const rg_trainer_desc *desc);

/** `rate`, or if that is 0 the default of the optimizer; 0 for NULL. */
RG_API double rg_trainer_desc_base_rate(const rg_trainer_desc *desc);

/** Find an optimizer, a schedule or a normalization by its name: "sgd", "rmsprop", "adam";
 *  "constant", "step", "cosine"; "data", "none", "imagenet". RG_INVALID_ARGUMENT for another name.
 */
RG_API rg_status rg_optimizer_parse(const char *name, rg_optimizer_kind *optimizer);
RG_API rg_status rg_schedule_parse(const char *name, rg_schedule_kind *schedule);
RG_API rg_status rg_normalize_parse(const char *name, rg_normalize_kind *normalize);

/** Finds a loss that networks can be trained with: "softmax_cross_entropy",
 *  "sigmoid_cross_entropy", "mean_squared", "mean_absolute", "huber", "hinge". RG_INVALID_ARGUMENT
 *  for another name. */
RG_API rg_status rg_training_loss_parse(const char *name, rg_loss_kind *loss);

/** Creates a trainer at epoch 0, with initial values of all parameters. The network is made for the
 *  images and classes of `set`. The trainer keeps `set` alive and measures its mean and deviation;
 *  `model` and *desc are copied. On failure *trainer is NULL. */
RG_API rg_status rg_trainer_create(rg_device *device, const rg_model *model, const rg_dataset *set,
                                   const rg_trainer_desc *desc, rg_trainer **trainer);

/** Creates a trainer from a checkpoint, at the point where that was written, which may lie within
 *  an epoch. `set` is the one it was trained with. `desc` says how to continue: begin with
 *  rg_checkpoint_trainer_desc(). Its dtype, optimizer and accumulate cannot change. NULL stands
 *  for the descriptor of the checkpoint. RG_INVALID_ARGUMENT if the set has other images or
 *  classes. On failure *trainer is NULL. */
RG_API rg_status rg_trainer_resume(rg_device *device, const char *path, const rg_dataset *set,
                                   const rg_trainer_desc *desc, rg_trainer **trainer);

/** Creates a trainer from a checkpoint for evaluation and prediction alone: it needs no data set
 *  and no memory for an optimizer. Training and saving are RG_INVALID_STATE. On failure *trainer
 *  is NULL. */
RG_API rg_status rg_trainer_load(rg_device *device, const char *path, rg_trainer **trainer);

/** Creates a trainer of a model that has weights, an ONNX model of rg_model_open(), for evaluation
 *  and prediction alone. The classes, and mean and deviation of RG_NORMALIZE_DATA, are those of
 *  `set`, which is not kept. Without a set, NULL, RG_NORMALIZE_DATA is RG_NORMALIZE_NONE, classes
 *  have their numbers as names, and images have the size of the model's input; RG_INVALID_ARGUMENT
 *  if its file leaves that open. On failure *trainer is NULL. */
RG_API rg_status rg_trainer_open(rg_device *device, const rg_model *model, const rg_dataset *set,
                                 rg_normalize_kind normalize, rg_trainer **trainer);

/** Called with sentences about weights. */
typedef void rg_weights_say(void *context, const char *sentence);

/** Takes weights from a safetensors file before training begins: a checkpoint of ours, or a file of
 *  PyTorch, whose tensors are (out, in, h, w) and (out, in). Tensors are found by the names of
 *  parameters; those of a model as text, "label.w", "label.b", "label.gamma", "label.beta",
 *  "label.mean" and "label.variance", also as "label.weight", "label.bias", "label.running_mean"
 *  and "label.running_var". Dtypes are converted. `say`, unless NULL, receives the names of
 *  parameters that the file lacks, and of tensors that no parameter has. RG_MALFORMED if a shape is
 *  another one, if an element is not finite, or if no name is found; RG_INVALID_STATE if training
 *  has begun. In a group all ranks call it: RG_INVALID_ARGUMENT on all of them where one has taken
 *  other weights than rank 0.
 */
RG_API rg_status rg_trainer_load_weights(rg_trainer *trainer, const char *path, rg_weights_say *say,
                                         void *context);

/** Waits for running work, then frees the trainer. NULL is allowed. */
RG_API void rg_trainer_destroy(rg_trainer *trainer);

/** How far training is. */
typedef struct rg_trainer_progress {
    int64_t epoch;   /**< the current epoch, from 1; after the last one, the number of epochs */
    int64_t epochs;  /**< of the whole training */
    int64_t images;  /**< complete images of this epoch; 0 at its beginning */
    int64_t of;      /**< images in an epoch */
    int64_t right;   /**< of the complete images, those that were classified correctly */
    double loss;     /**< the mean over the complete images; 0 if there are none */
    int64_t steps;   /**< since the beginning of training */
    int64_t batches; /**< that were started since then */
    double rate;     /**< of the last step */
    /** Of the batch that was completed last: its number of images, 0 if there is none, and the mean
     *  of their losses. Devices work asynchronously: it is not the batch that was started last. */
    int64_t batch_images;
    double batch_loss;
    int64_t now_images; /**< images of this epoch that this call of rg_trainer_train() completed */
    double now_seconds; /**< since this call started the epoch */
    int64_t finished;   /**< epochs that are complete */
    int64_t best_epoch; /**< by rg_trainer_validate(), from 1; 0: none was validated */
    double best_accuracy; /**< of that epoch: the mean intersection over union for masks, minus the
                               loss for values */
    double score; /**< the mean over the complete images: as rg_trainer_result.score; 0 if none */
} rg_trainer_progress;

/** Called after every batch, from within rg_trainer_train(). It must not call the trainer. Returns
 *  whether to continue; false ends training after this batch, or in a group after the next. */
typedef bool rg_trainer_watch(void *context, const rg_trainer_progress *progress);

/** Trains `epochs` epochs, all ranks of a group together, but not beyond those of the descriptor.
 *  The rest of an epoch that was interrupted counts as one. `watch` may be NULL. RG_OK also if
 *  `watch` stopped training; the next call continues from there. RG_INVALID_STATE if a loss or a
 *  parameter is no longer finite: such a trainer can neither train nor be saved. */
RG_API rg_status rg_trainer_train(rg_trainer *trainer, int64_t epochs, rg_trainer_watch *watch,
                                  void *context);

RG_API rg_status rg_trainer_get_progress(const rg_trainer *trainer, rg_trainer_progress *progress);

/** The descriptor of the trainer. RG_INVALID_STATE for one of rg_trainer_load(). */
RG_API rg_status rg_trainer_get_desc(const rg_trainer *trainer, rg_trainer_desc *desc);

/** Its model, which lives as long as the trainer; NULL for NULL. */
RG_API const rg_model *rg_trainer_model(const rg_trainer *trainer);

/** The images and classes of its network, and its dtype; `training` is false. */
RG_API rg_status rg_trainer_get_network(const rg_trainer *trainer, rg_network_desc *network);

/** The name of a class, which lives as long as the trainer; "" if there is no such class. */
RG_API const char *rg_trainer_class_name(const rg_trainer *trainer, int32_t label);

/** How many numbers a prediction has for each image; 0 for NULL. */
RG_API int64_t rg_trainer_answers(const rg_trainer *trainer);

/** How many numbers of the network are trained; 0 for NULL. */
RG_API int64_t rg_trainer_parameters(const rg_trainer *trainer);

/** RG_INVALID_ARGUMENT if images or classes of a set are not those of the network. Names of classes
 *  count, unless they are the numbers of the classes. */
RG_API rg_status rg_trainer_check_set(const rg_trainer *trainer, const rg_dataset *set);

/** RG_INVALID_ARGUMENT if a set is not the one that the network was trained with: of image files
 *  names and labels count, of arrays all numbers. RG_OK for checkpoints that do not tell. */
RG_API rg_status rg_trainer_check_images(const rg_trainer *trainer, const rg_dataset *set);

/** In a group: RG_INVALID_ARGUMENT on all ranks, with a sentence that names `what`, if one of them
 *  has another set than rank 0, or images in another order; NULL is none. All ranks call it
 *  together. Functions that create a trainer do so for the training set, and rg_trainer_validate()
 *  for a set that is new to it: a program that knows of the set earlier is told earlier. */
RG_API rg_status rg_trainer_agree_on_set(rg_trainer *trainer, const char *what,
                                         const rg_dataset *set);

/** How good a network is on a set. */
typedef struct rg_trainer_result {
    int64_t images, right; /**< of the set; of these, those that are classified correctly */
    double loss;           /**< the mean over all images, or over all pixels of masks that are not
                                ignored */
    double accuracy;       /**< right / images; for labels and masks the share of labels or pixels
                                that are right, ignored ones left out; NaN for values */
    double score;          /**< the accuracy; for values the mean absolute error */
    double top5;           /**< share of classes among the five most probable; NaN for others */
    double iou; /**< mean intersection over union of the classes of masks; NaN for others */
} rg_trainer_result;

/** Runs the network over a set in inference mode: without dropout, with running statistics. The set
 *  has the images and classes of the network, and is normalized like the training set. */
RG_API rg_status rg_trainer_evaluate(rg_trainer *trainer, const rg_dataset *set,
                                     rg_trainer_result *result);

/** The same for validation, all ranks of a group together: the result belongs to the epoch that was
 *  completed last, and checkpoints keep the best accuracy. A result with a loss that is not finite
 *  is never the best.
 */
RG_API rg_status rg_trainer_validate(rg_trainer *trainer, const rg_dataset *set,
                                     rg_trainer_result *result);

/** The prediction for one image. */
typedef struct rg_prediction {
    int32_t label, predicted;
    float probability; /**< of the prediction */
    float of_label;    /**< the probability of the label */
} rg_prediction;

/** As rg_trainer_evaluate(); predictions[i] receives the prediction for image i of the set.
 *  RG_INVALID_STATE for a network that does not learn one class. */
RG_API rg_status rg_trainer_predict_set(rg_trainer *trainer, const rg_dataset *set,
                                        rg_prediction predictions[], rg_trainer_result *result);

/** How many images of one class were predicted as another, or as the same. */
typedef struct rg_confusion_cell {
    int32_t label, predicted;
    int64_t count; /**< of images; not 0 */
} rg_confusion_cell;

/** Counts `count` predictions. `cells`, of `count` elements, receives the counts that are not 0, by
 *  label, then by prediction: their number is bounded by that of images, not by the square of
 *  that of classes. Returns the number of cells. */
RG_API int64_t rg_confusion_cells(const rg_prediction predictions[], int64_t count,
                                  rg_confusion_cell cells[]);

/** The images of one class. */
typedef struct rg_confusion_class {
    int32_t index;
    int64_t labels, predictions, right;
} rg_confusion_class;

/** Fills in `classes` elements, one for each class. Cells of other classes do not count. */
RG_API void rg_confusion_count(const rg_confusion_cell cells[], int64_t count, int32_t classes,
                               rg_confusion_class of[]);

/** Sorts them by accuracy, the lowest first; classes without images come last. */
RG_API void rg_confusion_weakest(rg_confusion_class of[], int32_t classes);

/** Finds the largest cells with a wrong prediction, the largest first; returns how many there are,
 *  `most` at most. */
RG_API int32_t rg_confusion_mistakes(const rg_confusion_cell cells[], int64_t count,
                                     rg_confusion_cell to[], int32_t most);

/** Classifies `count` images, 1 or more. `pixels` (count, h, w, c) are u8, 0 to 255, or of any
 *  other dtype, as in a data set, and are normalized as the training set was. Pixels of u8 count as
 *  0 to 1, but as themselves for a network that was trained on floats beyond that. Floats that are
 *  bytes are RG_INVALID_ARGUMENT for one that was trained on bytes or on floats from 0 to 1, and
 *  floats from 0 to 1 for one that was trained on floats that are bytes. `probabilities`
 *  receives (count, classes) numbers, which add up to 1 for each image. Of other targets it
 *  receives rg_trainer_answers() numbers for each image: the probability of each label, the values,
 *  or the class of each pixel. */
RG_API rg_status rg_trainer_predict(rg_trainer *trainer, const void *pixels, rg_dtype dtype,
                                    int64_t count, float probabilities[]);

/** Classifies the image in a file: PNG, JPEG or WebP, or NPY (h, w, c), (h, w) or (1, h, w, c)
 *  where the name ends with ".npy". Images of other sizes are resized where those of the training
 *  set were; otherwise they are refused. */
RG_API rg_status rg_trainer_predict_file(rg_trainer *trainer, const char *path,
                                         float probabilities[]);

/** Writes a checkpoint, whole or not at all, also within an epoch. RG_INVALID_STATE if a
 *  parameter is NaN or infinite. */
RG_API rg_status rg_trainer_save(rg_trainer *trainer, const char *path);

/** The same with options of the caller, "name=value" lines in UTF-8, which rg_checkpoint_options()
 *  returns. They include every field of the descriptor that differs from its default.
 *  RG_INVALID_ARGUMENT if they contradict the descriptor of the trainer. */
RG_API rg_status rg_trainer_save_with(rg_trainer *trainer, const char *path, const char *options);

/** Takes the parameters of a checkpoint of the same training, such as that of the best epoch: the
 *  trainer then evaluates, predicts and reports with them. Training and saving are RG_INVALID_STATE
 *  afterwards, because the position in the data would not be that of the parameters.
 *  RG_INVALID_ARGUMENT if the checkpoint is of another network. */
RG_API rg_status rg_trainer_restore(rg_trainer *trainer, const char *path);

/** What a report shows that the trainer does not know. Texts may hold anything, may be NULL, and
 *  are not kept. */
typedef struct rg_report_desc {
    uint32_t size;       /**< of this struct; set by rg_report_desc_default() */
    const char *data;    /**< the name of the data set */
    const char *command; /**< how training was started */
    const char *options; /**< "name=value" lines; NULL (default): those of the descriptor */
    const char *part;    /**< what the set is: "validation"; NULL (default): "test" */
} rg_report_desc;
RG_API rg_report_desc rg_report_desc_default(void);

/** Evaluates the network on a set and writes a report, whole or not at all: one HTML page, below 1
 *  MB, without scripts. It shows losses and accuracies of all epochs that this trainer has
 *  trained and validated, the confusions, the worst images, a drawing of the network, the time of
 *  its layers and its memory. `desc` and `result` may be NULL. With `test` NULL nothing is
 *  evaluated, and *result does not change. RG_INVALID_STATE for a trainer of rg_trainer_load(). */
RG_API rg_status rg_trainer_report(rg_trainer *trainer, const rg_dataset *test,
                                   const rg_report_desc *desc, const char *path,
                                   rg_trainer_result *result);

#ifdef __cplusplus
}
#endif

#endif
