/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* ONNX models for training on images: models without their weights, and networks that read images
 * with channels last, whatever the file has. */
#ifndef RG_ONNX_TRAIN_H
#define RG_ONNX_TRAIN_H

#include "onnx/import.h"
#include "onnx/protobuf_write.h"

/* ---- models without weights, as checkpoints keep them ---- */

/* The layer that the first output ends with: its weights, the dimension of the output's channels in
 * them, and their number. */
typedef struct rg_onnx_head {
    const rg_proto_tensor *w, *b; /* b may be NULL */
    int32_t w_axis, b_axis;
    int64_t classes;
} rg_onnx_head;
rg_status rg_onnx_find_head(const rg_onnx *model, rg_onnx_head *head);
/* Fills in the names of a model that was read. */
rg_status rg_onnx_index_names(rg_onnx *model);
/* Adds the name of a value that a node makes, or with NULL of an initializer. */
rg_status rg_onnx_name(rg_onnx *model, const char *name, rg_proto_node *maker);
/* The node that makes a value; NULL if none does. */
const rg_proto_node *rg_onnx_maker(const rg_onnx *model, const char *name);

/* Names of values that the first output is computed from, itself included. */
rg_status rg_onnx_needed(const rg_onnx *model, rg_names *needed);
bool rg_onnx_is_needed(const rg_proto_node *node, const rg_names *needed);

/* A name for a value that training adds to the network: `wanted`, with an underscore after it for
 * each such name that the model has itself. `model` may be NULL. */
enum { RG_OWN_NAME = 300 };
void rg_onnx_own_name(const rg_onnx *model, const char *wanted, char name[RG_OWN_NAME]);

/* Gives statistics of batch normalizations that are also used otherwise tensors of their own, and
 * marks tensors that are no parameters. */
rg_status rg_onnx_settle_tensors(rg_onnx *model);

/* Writes a model without the elements of tensors of more than 64 floating-point numbers, texts for
 * people, and shapes of values that nodes make. `classes` above 0: with a last layer of so many
 * channels, without elements. */
rg_status rg_onnx_strip(const rg_onnx *model, int64_t classes, rg_writer *writer);

/* Reads such a model: missing elements read as 0. */
rg_status rg_onnx_parse_stripped(const char *name, const void *data, size_t bytes, rg_onnx **model);

/* ---- networks for images ---- */

/* Images (n, height, width, channels), and what a network for them is made for. */
typedef struct rg_onnx_images {
    int64_t height, width, channels;
    /* What the loss applies itself, and is left out at the end of the network. */
    bool without_softmax, without_sigmoid;
    /* Whether a parameter keeps its value while training; NULL: none does. A batch normalization
     * with such statistics uses them as they are. */
    bool (*is_frozen)(const void *context, const char *name);
    const void *context;
} rg_onnx_images;

/* As rg_onnx_network_create(), for a model with one input. The graph has the source "images" (n, h,
 * w, c) in its place (rg_onnx_own_name), and no results: the value of the first output, with
 * channels last, is that of its entry. Parameters of batch normalizations are f32 beside values of
 * 16 bits. */
rg_status rg_onnx_network_for_images(const rg_onnx *model, const rg_onnx_options *options,
                                     const rg_onnx_images *images, rg_onnx_network **network);

/* That the model has one input, which can be the images. */
rg_status rg_onnx_check_input(const rg_onnx *model);

/* Whether the file has the images as (n, h, w, c). */
bool rg_onnx_has_channels_last(const rg_onnx *model, int64_t channels);

/* Elements of a parameter as the file has them, in its order and a dtype; to be released with
 * *bytes. */
rg_status rg_onnx_network_elements(const rg_onnx_network *network, const rg_onnx_entry *entry,
                                   rg_dtype dtype, void **data, size_t *bytes);

#endif
