/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The SVG of a drawing as a part of a page. */
#ifndef RG_TRAIN_DRAW_SVG_H
#define RG_TRAIN_DRAW_SVG_H

#include "train/draw.h"
#include "train/page.h"

/* The rules of its colours, light and dark, for a style element. */
void rg_draw_style(rg_page *page);

/* The svg element; `alone` for a file of its own, which brings its rules along. */
rg_status rg_draw_svg_add(rg_page *page, const rg_drawing *drawing, bool alone);

#endif
