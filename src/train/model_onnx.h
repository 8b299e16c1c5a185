/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Models of ONNX files, and networks made from them. */
#ifndef RG_TRAIN_MODEL_ONNX_H
#define RG_TRAIN_MODEL_ONNX_H

#include "onnx/onnx_train.h"
#include "train/model.h"

/* Whether a text is that of an ONNX model, and whether a path names one. */
bool rg_model_is_onnx_text(const char *text);
bool rg_model_is_onnx_path(const char *path);

rg_status rg_model_open_onnx(const char *path, rg_model **model);
/* Reads the text of a model into its `onnx`. */
rg_status rg_model_read_onnx(rg_model *model);

/* The model with a new last layer of this many channels. */
rg_status rg_model_replace_head(const rg_model *model, int64_t classes, rg_model **replaced);

/* Whether the one input of an ONNX model is (n, rows, columns) with sizes: a series, spectra, grey
 * images. */
bool rg_model_is_series(const rg_model *model, int64_t *rows, int64_t *columns);

/* Makes the network; after a failure the caller destroys it. */
rg_status rg_network_build_onnx(const rg_model *model, const rg_network_desc *options,
                                rg_network *network);
/* Writes the nodes of the model with the parameters of a plan, or these alone. RG_UNSUPPORTED if
 * another operator set, dtype, folding or further outputs are asked for, or if the nodes cannot
 * stay. */
rg_status rg_model_rewrite_onnx(const rg_model *model, const rg_network_desc *network,
                                rg_plan *plan, const rg_onnx_write_desc *desc, bool weights,
                                const char *path);
/* Writes the weights of the file into a plan. */
rg_status rg_network_start_onnx(const rg_network *network, rg_plan *plan);

#endif
