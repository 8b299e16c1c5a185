/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Results of spatial_norm and local_contrast that are a part of the image, or lie beyond it: MPS's
 * offset and clipRect, whose windows see pixels outside of the clip. */
#ifndef RG_OPS_WINDOW_NORM_CLIP_RECORD_H
#define RG_OPS_WINDOW_NORM_CLIP_RECORD_H

#include "ops/window_norm/box_record.h"

/* What the descriptors of both ops say: pixel t of y has its window around pixel offset + t of x.
 */
typedef struct rg_box_clip {
    const int32_t *window, *offset; /* rows, columns */
    const int64_t *output;          /* 0: as many as x has */
} rg_box_clip;

/* The shape rule: images, of any size. `who` is the op. */
rg_status rg_box_clip_shapes(const char *who, const rg_box_clip *clip, const rg_tensor_desc *x,
                             rg_tensor_desc *y);

/* Records a call whose tensors all have the shape of x. */
typedef rg_status rg_box_whole(rg_call *call);

/* Forward and gradient: by `whole` alone where y is where x is; otherwise by `whole` for the part
 * of the image that windows of the clip see, with zeros around it, and copies. */
rg_status rg_box_clip_forward(rg_call *call, const rg_box_clip *clip, rg_box_whole *whole);
rg_status rg_box_clip_gradient(rg_call *call, const rg_box_clip *clip, rg_box_whole *whole);

#endif
