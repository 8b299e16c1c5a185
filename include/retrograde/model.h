/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/** @file
 *  Models: a network as text, one line a layer, and the graphs and plans made from it.
 *
 *      # two convolutions, a shortcut, a classifier
 *      first:  conv 16 window=3 padding.policy=same
 *              neuron
 *      second: conv 16 window=3 padding.policy=same
 *              arithmetic from second, first
 *              dense classes
 *
 *  A line is [label:] op [outputs] [field=value]… [from label, label…]. Fields are those of the
 *  op's descriptor, and one number stands for two that are the same: stride=2. `window` is that of
 *  the weights of conv and conv_transpose. `outputs`, the channels of the result, follows conv,
 *  conv_transpose and dense alone: a number, or "classes". Without `from` a layer reads the one
 *  before it; "input" are the images. What follows # is left out.
 *
 *  A text becomes a graph, or a plan with first values, in one call each:
 *
 *      rg_network_desc desc = rg_network_desc_default();
 *      rg_model_open("lenet", &model);
 *      rg_model_plan(model, &desc, device, 1, &plan);
 *
 *  Texts are untrusted: RG_MALFORMED with "name:line:column: …" if a text is not a model, or if no
 *  network can be made from it for these images.
 *
 *  Programs that use this header are linked with libretrograde_train. */
#ifndef RETROGRADE_MODEL_H
#define RETROGRADE_MODEL_H

#include <retrograde/dataset.h>
#include <retrograde/graph.h>
#include <retrograde/loss.h>
#include <retrograde/onnx.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A description of a network. It is immutable and may be used from any thread. */
typedef struct rg_model rg_model;

/** Reads a model from a text in UTF-8. `name` becomes its name and begins error sentences; both are
 *  copied. On failure *model is NULL. */
RG_API rg_status rg_model_parse(const char *name, const char *text, rg_model **model);

/** Reads a built-in model by its name (rg_model_builtin), an ONNX model, whose path ends with
 *  ".onnx", with its weights (see retrograde/onnx.h), or a text file of at most 1 MiB by its path.
 *  RG_IO if it cannot be read. On failure *model is NULL. */
RG_API rg_status rg_model_open(const char *name, rg_model **model);

/** Releases the model; graphs, plans and trainers made from it do not need it. NULL is allowed. */
RG_API void rg_model_destroy(rg_model *model);

/** Its name and its text, which live as long as the model; "" for NULL. The text of an ONNX model
 *  is the file without its weights: a model that is parsed from it can be drawn, not trained. */
RG_API const char *rg_model_name(const rg_model *model);
RG_API const char *rg_model_text(const rg_model *model);

/** The name of built-in model number `index`, from 0; NULL after the last one. */
RG_API const char *rg_model_builtin(int32_t index);

/** The sizes that the input of an ONNX model (n, channels, height, width) has in its file; 0 for
 *  those that it leaves open, and for models as text. */
RG_API rg_status rg_model_input(const rg_model *model, int64_t *height, int64_t *width,
                                int64_t *channels);

/** What a network is made for. Start from rg_network_desc_default(), then change what matters. */
typedef struct rg_network_desc {
    uint32_t size;    /**< of this struct; set by rg_network_desc_default() */
    rg_dtype dtype;   /**< of images and parameters: f32 (default), f64, f16 or bf16 */
    int64_t height;   /**< of an image; 1 to 2^20 (default 28) */
    int64_t width;    /**< of an image; 1 to 2^20 (default 28) */
    int64_t channels; /**< of an image; 1 to 2^20 (default 1) */
    int32_t classes;  /**< number of them; 1 to 2^20 (default 10) */
    bool training;    /**< with dropout, and statistics of the batch in batch normalization; false
                           (default): as a trained network is used */
    bool logits_only; /**< without labels and loss (default false) */
    int64_t seed;     /**< of dropout (default 0) */
    rg_target_kind target; /**< what it learns (default RG_TARGET_CLASS) */
    int64_t outputs; /**< targets of an image: values, or pixels of a mask; 0 (default): as many as
                          classes, which alone is allowed for labels. Of RG_TARGET_CLASS it is of no
                          account */
    bool has_loss;   /**< whether `loss` is given; false (default): softmax_cross_entropy for
                          classes and masks, sigmoid_cross_entropy for labels, mean_squared for
                          values */
    rg_loss_kind loss;  /**< for labels and values: mean_squared, mean_absolute, huber, hinge or
                             sigmoid_cross_entropy */
    const char *freeze; /**< while training: patterns, as those of a shell, separated by commas, of
                             parameters that keep their values; NULL (default): none. They have no
                             gradients. A batch normalization whose running mean or variance is one
                             of them normalizes by its running statistics */
} rg_network_desc;
RG_API rg_network_desc rg_network_desc_default(void);

/** Fills in what an ONNX model decides itself: the sizes that rg_model_input() gives, rows and
 *  columns of an input (n, rows, columns), and the classes of its first output for such images.
 *  Other fields, and those of a model as text, do not change. */
RG_API rg_status rg_model_describe(const rg_model *model, rg_network_desc *desc);

/** Makes the graph of a model; *desc is copied. It has the sources "images" (n, h, w, c) of the
 *  dtype and "labels": (n, 1…) of i32, class numbers with as many dimensions as the last layer
 *  has less one, (n, h, w) of i32 for masks, or the shape of the last layer in the dtype for
 *  labels and values; the results "logits", the last layer, and "loss", the mean over all of
 *  them; and parameters "label.w", "label.b" and so on. With dropout while training there is a
 *  parameter "dropout_step", i64, which the caller counts up. Where an ONNX model has tensors of
 *  these names, sources and this parameter have underscores after theirs. Gradients are not
 *  there yet: see rg_graph_gradients(). RG_MALFORMED while training if the last layer is
 *  softmax, which the loss applies itself. On failure *graph is NULL. */
RG_API rg_status rg_model_graph(const rg_model *model, const rg_network_desc *desc,
                                rg_graph **graph);

/** Makes that graph and a plan of it on a device, and writes the first values of all parameters:
 *  they follow from `seed` and the names alone, the same bits on every machine. The weights of a
 *  trained network come from rg_checkpoint_plan() instead. On failure *plan is NULL. */
RG_API rg_status rg_model_plan(const rg_model *model, const rg_network_desc *desc,
                               rg_device *device, uint64_t seed, rg_plan **plan);

/** Writes the network of a model as an ONNX model, or with `weights` its parameters to a
 *  safetensors file, from a plan that has them: input "images" (batch, channels, height, width),
 *  output "logits", (batch, classes). Of `desc`, inputs and flat_results are not used. See
 *  rg_onnx_write(), rg_onnx_write_weights(), and rg_checkpoint_write_onnx() for networks that are
 *  trained. */
RG_API rg_status rg_model_write_onnx(const rg_model *model, const rg_network_desc *network,
                                     rg_plan *plan, const rg_onnx_write_desc *desc, bool weights,
                                     const char *path);

/** Draws a graph into a file: DOT, for Graphviz, where the path ends with ".dot", else SVG. Forward
 *  nodes run from top to bottom on the left, gradients upwards on the right; parameters are left
 *  out. `title` may be NULL. RG_UNSUPPORTED for an SVG of more than 2000 nodes or 10000 edges. */
RG_API rg_status rg_graph_draw(const rg_graph *graph, const char *title, const char *path);

#ifdef __cplusplus
}
#endif

#endif
