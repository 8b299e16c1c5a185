/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Scatter charts as inline SVG: predicted against true values, with the line on which both are the
 * same. */
#ifndef RG_TRAIN_SCATTER_H
#define RG_TRAIN_SCATTER_H

#include "train/page.h"

/* A figure element. `name`, of the value, is text from outside; `points` are pairs of true and
 * predicted values, of which those that are not finite are left out. */
void rg_scatter_add(rg_page *page, const char *name, const float points[][2], int64_t count);

#endif
